//! Sessions: one run of an agent each, from its first call to its end.

use deadstop_core::Time;

use crate::agents::{Counters, counters, words};
use crate::backend::{Row, Tx, sql};
use crate::number::Numbers;
use crate::page::{Page, Paging, Period};
use crate::{Store, StoreError};

/// How a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SessionState {
    /// Calls go through.
    Running,
    /// The next call is held.
    Paused,
    /// It was ended by a guard or a person.
    Killed,
    /// It ended by itself.
    Ended,
}

impl SessionState {
    /// Every state.
    pub const ALL: [SessionState; 4] =
        [SessionState::Running, SessionState::Paused, SessionState::Killed, SessionState::Ended];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            SessionState::Running => "running",
            SessionState::Paused => "paused",
            SessionState::Killed => "killed",
            SessionState::Ended => "ended",
        }
    }

    /// The state that a word means.
    pub fn named(name: &str) -> Option<SessionState> {
        SessionState::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// A session as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSession {
    /// Its number.
    pub number: i64,
    /// Its project.
    pub project: String,
    /// Its agent's number.
    pub agent_number: i64,
    /// Its agent.
    pub agent: String,
    /// Its name. An operator's reset opens a new session of the same name, with a new number.
    pub name: String,
    /// When it was opened.
    pub opened: Time,
    /// When it last did something.
    pub used: Time,
    /// How it stands.
    pub state: SessionState,
    /// Why it stands so, as one clause.
    pub why: Option<String>,
    /// Its health tags.
    pub tags: Vec<String>,
    /// The provider it used last.
    pub provider: Option<String>,
    /// The model it used last.
    pub model: Option<String>,
    /// What it has come to.
    pub counters: Counters,
}

/// Which sessions are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionFilter {
    /// Only those of this agent.
    pub agent: Option<String>,
    /// Only those of this name.
    pub name: Option<String>,
    /// Only those that stand so.
    pub state: Option<SessionState>,
    /// Only those with this health tag.
    pub tag: Option<String>,
    /// Only those that were open at some moment of this span.
    pub period: Period,
}

impl Store {
    /// Sessions, the one opened last first.
    pub async fn sessions(
        &self,
        project: &str,
        filter: &SessionFilter,
        paging: &Paging,
    ) -> Result<Page<StoredSession>, StoreError> {
        let tag = filter.tag.as_ref().map(|tag| serde_json::json!(tag).to_string());
        let query = sql("SELECT * FROM sessions WHERE ");
        // An agent is looked up inside the project: then its number alone chooses the index.
        let query = match (&filter.agent, &filter.name) {
            (Some(agent), None) => query
                .with("agent_number = (SELECT number FROM agents WHERE project = ", project)
                .with(" AND name = ", agent)
                .then(")"),
            (agent, name) => query
                .with("project = ", project)
                .with_some(" AND agent = ", agent.as_ref())
                .with_some(" AND name = ", name.as_ref()),
        };
        let mut query = query
            .then(" AND (calls > 0 OR name NOT LIKE 'doctor-canary-%')")
            .with_some(" AND state = ", filter.state.map(SessionState::name))
            .with_some(" AND used_ms >= ", filter.period.from)
            .with_some(" AND number < ", filter.period.to.map(Numbers::first))
            .with_some(" AND number < ", paging.number()?);
        if let Some(tag) = tag {
            query = query.with(" AND replace(tags, ", tag).then(", '') <> tags");
        }
        let query = query.with(" ORDER BY number DESC LIMIT ", paging.rows());
        let found = self.backend.rows(query).await?;
        let items = found.iter().map(read).collect::<Result<_, _>>()?;
        Ok(paging.page(items, |session: &StoredSession| session.number.to_string()))
    }

    /// A session by its number.
    pub async fn session(
        &self,
        project: &str,
        number: i64,
    ) -> Result<Option<StoredSession>, StoreError> {
        let query = sql("SELECT * FROM sessions WHERE project = $1 AND number = $2");
        let found = self.backend.row(query.bind(project).bind(number)).await?;
        found.as_ref().map(read).transpose()
    }

    /// The session of this name that was opened last.
    pub async fn session_named(
        &self,
        project: &str,
        agent: &str,
        name: &str,
    ) -> Result<Option<StoredSession>, StoreError> {
        let query = sql("SELECT * FROM sessions WHERE project = $1 AND agent = $2 AND name = $3 \
             ORDER BY number DESC LIMIT 1");
        let found = self.backend.row(query.bind(project).bind(agent).bind(name)).await?;
        found.as_ref().map(read).transpose()
    }
}

/// Writes sessions as they are now.
pub(crate) async fn write(tx: &mut Tx, sessions: &[&StoredSession]) -> Result<(), StoreError> {
    tx.insert(
        "INSERT INTO sessions (number, project, agent_number, agent, name, opened_ms, used_ms, \
         state, why, tags, provider, model, calls, loops, incidents, tokens, cost, \
         version)",
        "ON CONFLICT (number) DO UPDATE SET used_ms = excluded.used_ms, state = excluded.state, \
         why = excluded.why, tags = excluded.tags, agent_number = COALESCE(NULLIF(excluded.agent_number, 0), sessions.agent_number), \
         provider = COALESCE(excluded.provider, sessions.provider), \
         model = COALESCE(excluded.model, sessions.model), calls = excluded.calls, loops = excluded.loops, \
         incidents = excluded.incidents, tokens = excluded.tokens, cost = excluded.cost, \
         version = excluded.version WHERE sessions.version <= excluded.version",
        sessions,
        |session, values| {
            values.extend([
                session.number.into(),
                session.project.as_str().into(),
                session.agent_number.into(),
                session.agent.as_str().into(),
                session.name.as_str().into(),
                session.opened.into(),
                session.used.into(),
                session.state.name().into(),
                (&session.why).into(),
                words(&session.tags).into(),
                (&session.provider).into(),
                (&session.model).into(),
                session.counters.calls.into(),
                session.counters.loops.into(),
                session.counters.incidents.into(),
                session.counters.tokens.0.into(),
                session.counters.cost.0.into(),
                session.counters.version.into(),
            ]);
        },
    )
    .await?;
    Ok(())
}

fn read(row: &Row) -> Result<StoredSession, StoreError> {
    let state = row.get::<String>("state")?;
    Ok(StoredSession {
        number: row.get("number")?,
        project: row.get("project")?,
        agent_number: row.get("agent_number")?,
        agent: row.get("agent")?,
        name: row.get("name")?,
        opened: Time(row.unsigned("opened_ms")?),
        used: Time(row.unsigned("used_ms")?),
        state: SessionState::named(&state).ok_or_else(|| StoreError::unreadable("state"))?,
        why: row.get("why")?,
        tags: row.words("tags")?,
        provider: row.get("provider")?,
        model: row.get("model")?,
        counters: counters(row)?,
    })
}
