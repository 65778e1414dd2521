//! Tools of MCP servers: as they were first seen, and as they were described last.

use deadstop_core::{Digest, Time};

use crate::audit::AuditEvent;
use crate::backend::{Query, Row, Tx, sql};
use crate::{Store, StoreError};

/// A tool of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTool {
    /// Its project.
    pub project: String,
    /// Its server.
    pub server: String,
    /// Its name.
    pub tool: String,
    /// Its description as it is accepted; zero if the tool was added later and is not.
    pub known: Digest,
    /// Its description as it was given last.
    pub seen: Digest,
    /// Whether its server has ever said that it destroys something.
    pub destructive: bool,
    /// When it was first seen.
    pub first: Time,
    /// When it was described otherwise.
    pub changed: Option<Time>,
    /// Who has accepted a change.
    pub accepted_by: Option<String>,
    /// What its server says about it, as it is accepted: the beginning, redacted.
    pub known_text: String,
    /// The same, as it was said last.
    pub seen_text: String,
    /// What is odd about it, one finding a line.
    pub notes: String,
}

impl StoredTool {
    /// Whether it is described otherwise than it is accepted, or was added later.
    pub fn is_changed(&self) -> bool {
        self.known != self.seen
    }

    /// Whether it was added after the tools of its server were first seen.
    pub fn is_added(&self) -> bool {
        self.known == Digest(0) && self.is_changed()
    }
}

/// A listing that is being compared with the tools of its server. If it is dropped, nothing is kept.
pub struct Listing {
    tx: Tx,
    project: String,
    server: String,
    /// The tools, as all nodes know them.
    pub tools: Vec<StoredTool>,
    /// When the list was first seen to its end.
    pub complete: Option<Time>,
}

impl Listing {
    /// Keeps tools as they are now, those that are known already with their first time; and that the list
    /// was seen to its end, if it was.
    pub async fn keep(
        mut self,
        tools: &[StoredTool],
        complete: Option<Time>,
    ) -> Result<(), StoreError> {
        for tool in tools {
            self.tx.run(put(tool)).await?;
        }
        if let Some(at) = complete.filter(|_| self.complete.is_none()) {
            let query = sql("UPDATE mcp_servers SET complete_ms = $1 \
                 WHERE project = $2 AND server = $3");
            self.tx.run(query.bind(at).bind(&self.project).bind(&self.server)).await?;
        }
        self.tx.commit().await
    }
}

impl Store {
    /// All tools of all projects.
    pub async fn tools(&self) -> Result<Vec<StoredTool>, StoreError> {
        let query = sql("SELECT * FROM mcp_tools ORDER BY project, server, tool");
        self.backend.rows(query).await?.iter().map(read).collect()
    }

    /// Servers whose list of tools was seen to its end, as project and name.
    pub async fn complete_servers(&self) -> Result<Vec<(String, String)>, StoreError> {
        let query = sql("SELECT project, server FROM mcp_servers WHERE complete_ms IS NOT NULL");
        let read = |row: &Row| Ok((row.get("project")?, row.get("server")?));
        self.backend.rows(query).await?.iter().map(read).collect()
    }

    /// Reads the tools of a server, to compare a listing with them. Other nodes that do the same wait
    /// until this listing is kept or dropped, so that one listing is the first.
    pub async fn listing(&self, project: &str, server: &str) -> Result<Listing, StoreError> {
        let mut tx = self.backend.begin().await?;
        let first = sql("INSERT INTO mcp_servers (project, server) VALUES ($1, $2) \
             ON CONFLICT (project, server) DO NOTHING");
        tx.run(first.bind(project).bind(server)).await?;
        // An update that changes nothing, to hold the row until the end of the transaction.
        let hold = sql("UPDATE mcp_servers SET server = server WHERE project = $1 AND server = $2");
        tx.run(hold.bind(project).bind(server)).await?;
        let query = sql("SELECT complete_ms FROM mcp_servers WHERE project = $1 AND server = $2");
        let row = tx.row(query.bind(project).bind(server)).await?;
        let row = row.ok_or_else(|| StoreError::unreadable("mcp_servers"))?;
        let complete = row.maybe_unsigned("complete_ms")?.map(Time);
        let query = sql("SELECT * FROM mcp_tools WHERE project = $1 AND server = $2 ORDER BY tool");
        let rows = tx.rows(query.bind(project).bind(server)).await?;
        let tools = rows.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Listing { tx, project: project.to_owned(), server: server.to_owned(), tools, complete })
    }

    /// Keeps a tool as it is now, with who says so.
    pub async fn accept_tool(
        &self,
        tool: &StoredTool,
        audit: &AuditEvent,
    ) -> Result<(), StoreError> {
        self.change(put(tool), Some(audit)).await?;
        Ok(())
    }
}

fn put(tool: &StoredTool) -> Query<'_> {
    sql("INSERT INTO mcp_tools (project, server, tool, known, seen, destructive, first_ms, \
         changed_ms, accepted_by, known_text, seen_text, notes) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
         ON CONFLICT (project, server, tool) DO UPDATE SET known = excluded.known, \
         seen = excluded.seen, destructive = excluded.destructive, \
         changed_ms = excluded.changed_ms, accepted_by = excluded.accepted_by, \
         known_text = excluded.known_text, seen_text = excluded.seen_text, \
         notes = excluded.notes")
    .bind(&tool.project)
    .bind(&tool.server)
    .bind(&tool.tool)
    .bind(hex(tool.known))
    .bind(hex(tool.seen))
    .bind(tool.destructive)
    .bind(tool.first)
    .bind(tool.changed)
    .bind(&tool.accepted_by)
    .bind(&tool.known_text)
    .bind(&tool.seen_text)
    .bind(&tool.notes)
}

fn hex(digest: Digest) -> String {
    format!("{:016x}", digest.0)
}

fn digest(row: &Row, column: &str) -> Result<Digest, StoreError> {
    let text: String = row.get(column)?;
    // A digest that cannot be read becomes zero, which matches no description.
    Ok(Digest(u64::from_str_radix(&text, 16).unwrap_or_default()))
}

fn read(row: &Row) -> Result<StoredTool, StoreError> {
    let changed: Option<i64> = row.get("changed_ms")?;
    Ok(StoredTool {
        project: row.get("project")?,
        server: row.get("server")?,
        tool: row.get("tool")?,
        known: digest(row, "known")?,
        seen: digest(row, "seen")?,
        destructive: row.get("destructive")?,
        first: Time(row.unsigned("first_ms")?),
        changed: changed.map(|at| Time(at.unsigned_abs())),
        accepted_by: row.get("accepted_by")?,
        known_text: row.get("known_text")?,
        seen_text: row.get("seen_text")?,
        notes: row.get("notes")?,
    })
}
