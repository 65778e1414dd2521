//! Scopes: the live state of everything that calls are charged to.

use deadstop_core::{ScopeKind, Time};

use crate::backend::{Row, Tx, sql};
use crate::{Store, StoreError};

/// A scope as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredScope {
    /// Its path, unique in the database.
    pub key: String,
    /// Its project.
    pub project: String,
    /// Its number; zero if it was written before there were numbers.
    pub number: i64,
    /// Its kind.
    pub kind: ScopeKind,
    /// The agent it belongs to; empty for a project.
    pub agent: String,
    /// What people call it.
    pub name: String,
    /// Whether it was ended.
    pub killed: bool,
    /// When it last changed.
    pub updated: Time,
    /// Its version, where several nodes share it; zero where one has it alone.
    pub version: u64,
    /// How often its standing was changed.
    pub turns: u64,
    /// Its state.
    pub state: Vec<u8>,
}

impl Store {
    /// The scope under this key.
    pub async fn scope(&self, key: &str) -> Result<Option<StoredScope>, StoreError> {
        let found = self.backend.row(sql("SELECT * FROM scopes WHERE key = $1").bind(key)).await?;
        found.as_ref().map(read).transpose()
    }

    /// All scopes of a kind that changed since `since`, newest first, and all that were ended.
    pub async fn scopes(
        &self,
        kind: ScopeKind,
        since: Time,
    ) -> Result<Vec<StoredScope>, StoreError> {
        let query =
            sql("SELECT * FROM scopes WHERE kind = $1 AND (updated_ms >= $2 OR killed = 1) \
             ORDER BY updated_ms DESC LIMIT 100000");
        let found = self.backend.rows(query.bind(kind.name()).bind(since)).await?;
        found.iter().map(read).collect()
    }

    /// The scopes of a kind that were ended and have changed since `since`.
    pub async fn killed_since(
        &self,
        kind: ScopeKind,
        since: Time,
    ) -> Result<Vec<StoredScope>, StoreError> {
        let query =
            sql("SELECT * FROM scopes WHERE kind = $1 AND killed = 1 AND updated_ms >= $2 \
             LIMIT 10000");
        let found = self.backend.rows(query.bind(kind.name()).bind(since)).await?;
        found.iter().map(read).collect()
    }

    /// All scopes of an agent that changed since `since`: itself, its sessions and what is in them.
    pub async fn scopes_of_agent(
        &self,
        project: &str,
        agent: &str,
        since: Time,
    ) -> Result<Vec<StoredScope>, StoreError> {
        let query = sql("SELECT * FROM scopes WHERE project = $1 AND agent = $2 \
             AND updated_ms >= $3 ORDER BY updated_ms DESC LIMIT 100000");
        let found = self.backend.rows(query.bind(project).bind(agent).bind(since)).await?;
        found.iter().map(read).collect()
    }
}

/// Writes scopes as they are now.
pub(crate) async fn write(tx: &mut Tx, scopes: &[&StoredScope]) -> Result<(), StoreError> {
    tx.insert(
        "INSERT INTO scopes (key, project, number, kind, agent, name, killed, updated_ms, \
         version, turns, state)",
        "ON CONFLICT (key) DO UPDATE SET number = excluded.number, killed = excluded.killed, \
         updated_ms = excluded.updated_ms, version = excluded.version, turns = excluded.turns, \
         state = excluded.state WHERE scopes.turns < excluded.turns \
         OR scopes.turns = excluded.turns AND scopes.version <= excluded.version",
        scopes,
        |scope, values| {
            values.extend([
                scope.key.as_str().into(),
                scope.project.as_str().into(),
                scope.number.into(),
                scope.kind.name().into(),
                scope.agent.as_str().into(),
                scope.name.as_str().into(),
                i64::from(scope.killed).into(),
                scope.updated.into(),
                scope.version.into(),
                scope.turns.into(),
                scope.state.as_slice().into(),
            ]);
        },
    )
    .await?;
    Ok(())
}

fn read(row: &Row) -> Result<StoredScope, StoreError> {
    Ok(StoredScope {
        key: row.get("key")?,
        project: row.get("project")?,
        number: row.get("number")?,
        kind: kind_named(&row.get::<String>("kind")?),
        agent: row.get("agent")?,
        name: row.get("name")?,
        killed: row.get::<i64>("killed")? != 0,
        updated: Time(row.unsigned("updated_ms")?),
        version: row.unsigned("version")?,
        turns: row.unsigned("turns")?,
        state: row.get("state")?,
    })
}

fn kind_named(name: &str) -> ScopeKind {
    let kinds = [ScopeKind::Project, ScopeKind::Agent, ScopeKind::Session];
    kinds.into_iter().find(|kind| kind.name() == name).unwrap_or(ScopeKind::Nested)
}
