//! Projects and agents: who there is, what they came to, and whether they may run.

use deadstop_core::{NanoUsd, Time, Tokens};

use crate::audit::AuditEvent;
use crate::backend::{Row, Tx, sql};
use crate::page::{Page, Paging};
use crate::{Store, StoreError};

/// What an agent or a session has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Calls, models and tools together.
    pub calls: u64,
    /// Trips of the guards that look for loops.
    pub loops: u64,
    /// Trips that blocked or killed.
    pub incidents: u64,
    /// Tokens of all kinds.
    pub tokens: Tokens,
    /// Money.
    pub cost: NanoUsd,
    /// The version that they are of, where several nodes count.
    pub version: u64,
}

/// How the names of the sessions begin that `deadstop doctor` stops before their first call. Lists
/// leave out such a session, and an agent that has no others, as long as it has made no call.
pub const CANARY: &str = "doctor-canary-";

/// Agents that are more than the owner of a canary.
const KNOWN: &str = " AND (calls > 0 OR deactivated_ms IS NOT NULL \
     OR NOT EXISTS (SELECT 1 FROM sessions s WHERE s.agent_number = agents.number \
     AND s.name LIKE 'doctor-canary-%') \
     OR EXISTS (SELECT 1 FROM sessions s WHERE s.agent_number = agents.number \
     AND s.name NOT LIKE 'doctor-canary-%'))";

/// Agents that were not removed, or were used later.
const LISTED: &str = " AND (removed_ms IS NULL OR used_ms > removed_ms)";

/// A project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredProject {
    /// Its name.
    pub name: String,
    /// When it was first heard of.
    pub opened: Time,
}

/// An agent as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAgent {
    /// Its number.
    pub number: i64,
    /// Its project.
    pub project: String,
    /// Its name, unique in the project.
    pub name: String,
    /// When it was first heard of.
    pub opened: Time,
    /// When it last did something.
    pub used: Time,
    /// What people have tagged it with. Written by [`Store::set_agent_tags`]; a batch sets them only
    /// for an agent that is new.
    pub tags: Vec<String>,
    /// Whether it may run.
    pub active: bool,
    /// Who switched it off: a guard or a person.
    pub deactivated_by: Option<String>,
    /// When it was switched off.
    pub deactivated: Option<Time>,
    /// What it has come to.
    pub counters: Counters,
    /// When an operator removed it. Written by [`Store::remove_agent`] alone.
    pub removed: Option<Time>,
}

impl StoredAgent {
    /// Whether lists leave it out: it was removed, and not used since.
    pub fn is_removed(&self) -> bool {
        self.removed.is_some_and(|at| self.used <= at)
    }
}

/// An agent that was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedAgent {
    /// Its project.
    pub project: String,
    /// Its name.
    pub name: String,
    /// When it was removed.
    pub at: Time,
}

/// Which agents are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentFilter {
    /// Only those that may run, or only those that may not.
    pub active: Option<bool>,
    /// Only those with this tag.
    pub tag: Option<String>,
}

impl Store {
    /// Makes sure that a project is known; says whether it is new.
    pub async fn ensure_project(&self, project: &str, now: Time) -> Result<bool, StoreError> {
        let query = sql("INSERT INTO projects (name, opened_ms) VALUES ($1, $2) \
             ON CONFLICT (name) DO NOTHING");
        Ok(self.backend.run(query.bind(project).bind(now)).await? > 0)
    }

    /// All projects by name.
    pub async fn projects(&self) -> Result<Vec<StoredProject>, StoreError> {
        let found = self.backend.rows(sql("SELECT * FROM projects ORDER BY name")).await?;
        let read = |row: &Row| {
            Ok(StoredProject { name: row.get("name")?, opened: Time(row.unsigned("opened_ms")?) })
        };
        found.iter().map(read).collect()
    }

    /// Makes sure that an agent is known, and says how: if another node was faster, its number
    /// stands.
    pub async fn ensure_agent(
        &self,
        project: &str,
        name: &str,
        number: i64,
        now: Time,
    ) -> Result<StoredAgent, StoreError> {
        // An update that changes nothing, since only a row that is touched is returned.
        let query = sql("INSERT INTO agents (number, project, name, opened_ms, used_ms) \
             VALUES ($1, $2, $3, $4, $4) \
             ON CONFLICT (project, name) DO UPDATE SET name = excluded.name RETURNING *");
        let query = query.bind(number).bind(project).bind(name).bind(now);
        let found = self.backend.change(query).await?;
        read(found.first().ok_or_else(|| StoreError::unreadable("agents"))?)
    }

    /// Agents by name, without those that were removed.
    pub async fn agents(
        &self,
        project: &str,
        filter: &AgentFilter,
        paging: &Paging,
    ) -> Result<Page<StoredAgent>, StoreError> {
        let tag = filter.tag.as_ref().map(|tag| serde_json::json!(tag).to_string());
        let mut query = sql("SELECT * FROM agents")
            .with(" WHERE project = ", project)
            .then(KNOWN)
            .then(LISTED)
            .with_some(" AND active = ", filter.active)
            .with_some(" AND name > ", paging.cursor.as_ref());
        if let Some(tag) = tag {
            query = query.with(" AND replace(tags, ", tag).then(", '') <> tags");
        }
        let query = query.with(" ORDER BY name LIMIT ", paging.rows());
        let found = self.backend.rows(query).await?;
        let items = found.iter().map(read).collect::<Result<_, _>>()?;
        Ok(paging.page(items, |agent: &StoredAgent| agent.name.clone()))
    }

    /// An agent by its name; also one that was removed.
    pub async fn agent(
        &self,
        project: &str,
        name: &str,
    ) -> Result<Option<StoredAgent>, StoreError> {
        let query = sql("SELECT * FROM agents WHERE project = $1 AND name = $2");
        let found = self.backend.row(query.bind(project).bind(name)).await?;
        found.as_ref().map(read).transpose()
    }

    /// An agent by its number.
    pub async fn agent_by_number(
        &self,
        project: &str,
        number: i64,
    ) -> Result<Option<StoredAgent>, StoreError> {
        let query = sql("SELECT * FROM agents WHERE project = $1 AND number = $2");
        let found = self.backend.row(query.bind(project).bind(number)).await?;
        found.as_ref().map(read).transpose()
    }

    /// Sets an agent's tags; false if there is no such agent.
    pub async fn set_agent_tags(
        &self,
        project: &str,
        name: &str,
        tags: &[String],
        audit: Option<&AuditEvent>,
    ) -> Result<bool, StoreError> {
        let query = sql("UPDATE agents SET tags = $1 WHERE project = $2 AND name = $3");
        let query = query.bind(words(tags)).bind(project).bind(name);
        Ok(self.change(query, audit).await? > 0)
    }

    /// Leaves an agent out of lists until it is used again; false if there is no such agent.
    pub async fn remove_agent(
        &self,
        project: &str,
        name: &str,
        at: Time,
        audit: Option<&AuditEvent>,
    ) -> Result<bool, StoreError> {
        let query = sql("UPDATE agents SET removed_ms = $1 WHERE project = $2 AND name = $3");
        let query = query.bind(at).bind(project).bind(name);
        Ok(self.change(query, audit).await? > 0)
    }

    /// The agents of all projects that were removed and not used since.
    pub async fn removed_agents(&self) -> Result<Vec<RemovedAgent>, StoreError> {
        let query = sql("SELECT project, name, removed_ms FROM agents \
             WHERE removed_ms IS NOT NULL AND used_ms <= removed_ms");
        let read = |row: &Row| {
            Ok(RemovedAgent {
                project: row.get("project")?,
                name: row.get("name")?,
                at: Time(row.unsigned("removed_ms")?),
            })
        };
        self.backend.rows(query).await?.iter().map(read).collect()
    }
}

/// Writes agents as they are now; their tags belong to people and stay.
pub(crate) async fn write(tx: &mut Tx, agents: &[&StoredAgent]) -> Result<(), StoreError> {
    tx.insert(
        "INSERT INTO agents (number, project, name, opened_ms, used_ms, tags, active, \
         deactivated_by, deactivated_ms, calls, loops, incidents, tokens, cost, version)",
        "ON CONFLICT (project, name) DO UPDATE SET \
         used_ms = CASE WHEN excluded.used_ms < agents.used_ms THEN agents.used_ms \
         ELSE excluded.used_ms END, \
         active = excluded.active, deactivated_by = excluded.deactivated_by, \
         deactivated_ms = excluded.deactivated_ms, version = excluded.version, \
         calls = CASE WHEN excluded.calls < agents.calls THEN agents.calls ELSE excluded.calls END, \
         loops = CASE WHEN excluded.calls < agents.calls THEN agents.loops ELSE excluded.loops END, \
         incidents = CASE WHEN excluded.calls < agents.calls THEN agents.incidents \
         ELSE excluded.incidents END, \
         tokens = CASE WHEN excluded.calls < agents.calls THEN agents.tokens \
         ELSE excluded.tokens END, \
         cost = CASE WHEN excluded.calls < agents.calls THEN agents.cost ELSE excluded.cost END \
         WHERE agents.version <= excluded.version",
        agents,
        |agent, values| {
            values.extend([
                agent.number.into(),
                agent.project.as_str().into(),
                agent.name.as_str().into(),
                agent.opened.into(),
                agent.used.into(),
                words(&agent.tags).into(),
                agent.active.into(),
                (&agent.deactivated_by).into(),
                agent.deactivated.into(),
                agent.counters.calls.into(),
                agent.counters.loops.into(),
                agent.counters.incidents.into(),
                agent.counters.tokens.0.into(),
                agent.counters.cost.0.into(),
                agent.counters.version.into(),
            ]);
        },
    )
    .await?;
    Ok(())
}

/// A list of words as JSON.
pub(crate) fn words(words: &[String]) -> String {
    serde_json::to_string(words).unwrap_or_else(|_| "[]".to_owned())
}

pub(crate) fn counters(row: &Row) -> Result<Counters, StoreError> {
    Ok(Counters {
        calls: row.unsigned("calls")?,
        loops: row.unsigned("loops")?,
        incidents: row.unsigned("incidents")?,
        tokens: Tokens(row.unsigned("tokens")?),
        cost: NanoUsd(row.unsigned("cost")?),
        version: row.unsigned("version")?,
    })
}

fn read(row: &Row) -> Result<StoredAgent, StoreError> {
    Ok(StoredAgent {
        number: row.get("number")?,
        project: row.get("project")?,
        name: row.get("name")?,
        opened: Time(row.unsigned("opened_ms")?),
        used: Time(row.unsigned("used_ms")?),
        tags: row.words("tags")?,
        active: row.get("active")?,
        deactivated_by: row.get("deactivated_by")?,
        deactivated: row.maybe_unsigned("deactivated_ms")?.map(Time),
        counters: counters(row)?,
        removed: row.maybe_unsigned("removed_ms")?.map(Time),
    })
}
