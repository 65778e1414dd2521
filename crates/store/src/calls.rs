//! Calls: one small row each, millions of them, read by session, by agent, by guard and by time.

use std::collections::HashSet;

use deadstop_core::{GuardId, Millis, NanoUsd, Status, Time, Tokens, Usage, Verdict};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as NotAWord, StrDeserializer};

use crate::backend::{Query, Row, Tx, sql};
use crate::number::Numbers;
use crate::page::{Order, Page, Paging, Period};
use crate::{Store, StoreError};

/// Characters of a name that are in an index (`0008_requests.sql`).
pub(crate) const INDEXED: usize = 200;

/// What kind of call it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// A request to a language model.
    Model,
    /// A call of a tool.
    Tool,
}

impl CallKind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            CallKind::Model => "model",
            CallKind::Tool => "tool",
        }
    }
}

/// A call as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredCall {
    /// Its id, made by [`Numbers::next`] from [`StoredCall::at`]: lists find a time by it.
    pub id: i64,
    /// Its project.
    pub project: String,
    /// The agent that made it.
    pub agent_number: i64,
    /// The session it belongs to.
    pub session_number: i64,
    /// The path of nested scopes inside the session, if there are any.
    pub nested: Option<String>,
    /// Its position in the session.
    pub position: u64,
    /// What kind of call.
    pub kind: CallKind,
    /// The model's or the tool's name.
    pub name: String,
    /// The provider or server it went to.
    pub server: Option<String>,
    /// When it was made.
    pub at: Time,
    /// How long it took; nothing while it runs.
    pub duration: Option<Millis>,
    /// How long a streamed answer took to begin, where the door has seen that.
    pub first: Option<Millis>,
    /// What was decided about it.
    pub verdict: Verdict,
    /// The guard that tripped, if one did.
    pub guard: Option<GuardId>,
    /// That guard's code for why.
    pub reason: Option<String>,
    /// How it ended; nothing while it runs, and for a call that never ran. A call that has ended is
    /// not written again.
    pub status: Option<Status>,
    /// Why it failed, in short: the provider's HTTP status, or what happened to the connection.
    pub cause: Option<String>,
    /// The tokens it used.
    pub usage: Usage,
    /// What it cost.
    pub cost: NanoUsd,
    /// The incident that it became.
    pub incident: Option<String>,
    /// What a backtest needs to replay it. Lists leave it out.
    pub facts: Option<Vec<u8>>,
}

/// A call in a list, with the names that belong to its numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedCall {
    /// The call.
    pub call: StoredCall,
    /// Its agent's name; empty if the agent's row is gone.
    pub agent: String,
    /// Its session's name; empty if the session's row is gone.
    pub session: String,
}

/// Which calls are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallFilter {
    /// Only those of this agent.
    pub agent: Option<String>,
    /// Only those of the session with this number.
    pub session: Option<i64>,
    /// Only those of this model or tool.
    pub name: Option<(CallKind, String)>,
    /// Only those about which this was decided.
    pub verdict: Option<Verdict>,
    /// Only those at which this guard tripped.
    pub guard: Option<GuardId>,
    /// Only those that ended so.
    pub status: Option<Status>,
    /// Only those made in this span.
    pub period: Period,
    /// The newest or the oldest first.
    pub order: Order,
}

const COLUMNS: &str = "SELECT c.id, c.project, c.agent_number, c.session_number, c.nested, \
    c.position, c.kind, c.name, c.server, c.at_ms, c.duration_ms, c.first_ms, c.verdict, c.guard, \
    c.reason, c.status, c.cause, c.input, c.output, c.cache_read, c.cache_write, c.cost, c.incident, \
    (SELECT a.name FROM agents a WHERE a.number = c.agent_number) AS agent_name, \
    (SELECT s.name FROM sessions s WHERE s.number = c.session_number) AS session_name";

impl Store {
    /// Calls, page by page.
    pub async fn calls(
        &self,
        project: &str,
        filter: &CallFilter,
        paging: &Paging,
    ) -> Result<Page<ListedCall>, StoreError> {
        let query = select(sql(COLUMNS).then(" FROM calls c WHERE "), project, filter, paging)?;
        let found = self.backend.rows(query).await?;
        let items = found.iter().map(listed).collect::<Result<_, _>>()?;
        Ok(paging.page(items, |listed: &ListedCall| listed.call.id.to_string()))
    }

    /// Calls with what a backtest needs to replay them, page by page.
    pub async fn calls_with_facts(
        &self,
        project: &str,
        filter: &CallFilter,
        paging: &Paging,
    ) -> Result<Page<ListedCall>, StoreError> {
        let query = sql(COLUMNS).then(", c.facts FROM calls c WHERE ");
        let found = self.backend.rows(select(query, project, filter, paging)?).await?;
        let items = found.iter().map(with_facts).collect::<Result<_, _>>()?;
        Ok(paging.page(items, |listed: &ListedCall| listed.call.id.to_string()))
    }

    /// The agents, or the one of this name, at whose calls one of these guards tripped since a moment.
    pub async fn tripped_since(
        &self,
        project: &str,
        agent: Option<&str>,
        guards: &[GuardId],
        since: Time,
    ) -> Result<HashSet<String>, StoreError> {
        let mut found = HashSet::new();
        for guard in guards {
            let query = sql("SELECT a.name FROM agents a");
            let query = match agent {
                Some(agent) => query
                    .with(" WHERE a.project = ", project)
                    .with(" AND a.name = ", agent)
                    .with(
                        " AND EXISTS (SELECT 1 FROM calls c WHERE c.agent_number = a.number \
                         AND c.guard = ",
                        guard.name(),
                    )
                    .with(" AND c.id >= ", Numbers::first(since))
                    .then(")"),
                None => query
                    .with(
                        " WHERE a.number IN (SELECT c.agent_number FROM calls c WHERE c.project = ",
                        project,
                    )
                    .with(" AND c.guard = ", guard.name())
                    .with(" AND c.id >= ", Numbers::first(since))
                    .with(") AND a.project = ", project),
            };
            for row in self.backend.rows(query).await? {
                found.insert(row.get("name")?);
            }
        }
        Ok(found)
    }

    /// The agents, or the one of this name, that had an incident which grew since a moment.
    pub async fn troubled_since(
        &self,
        project: &str,
        agent: Option<&str>,
        since: Time,
    ) -> Result<HashSet<String>, StoreError> {
        let query = sql("SELECT DISTINCT agent FROM incidents")
            .with(" WHERE project = ", project)
            .with_some(" AND agent = ", agent)
            .with(" AND last_ms >= ", since);
        self.backend.rows(query).await?.iter().map(|row| row.get("agent")).collect()
    }

    /// One call with all that is known of it.
    pub async fn call(&self, project: &str, id: i64) -> Result<Option<ListedCall>, StoreError> {
        let query = sql(COLUMNS)
            .with(", c.facts FROM calls c WHERE c.id = ", id)
            .with(" AND c.project = ", project);
        let found = self.backend.row(query).await?;
        found.as_ref().map(with_facts).transpose()
    }
}

/// The conditions of a list. Exactly one of them chooses the index: a session or an agent is looked
/// up inside the project, so the project itself need not be asked about again.
fn select<'q>(
    query: Query<'q>,
    project: &'q str,
    filter: &'q CallFilter,
    paging: &Paging,
) -> Result<Query<'q>, StoreError> {
    let query = if let Some(session) = filter.session {
        query
            .with("c.session_number = (SELECT number FROM sessions WHERE number = ", session)
            .with(" AND project = ", project)
            .with_some(" AND agent = ", filter.agent.as_ref())
            .then(")")
    } else if let Some(agent) = &filter.agent {
        query
            .with("c.agent_number = (SELECT number FROM agents WHERE project = ", project)
            .with(" AND name = ", agent)
            .then(")")
    } else {
        query.with("c.project = ", project)
    };
    let (from, to) = (filter.period.from.map(Numbers::first), filter.period.to.map(Numbers::first));
    let (kind, name) = match &filter.name {
        Some((kind, name)) => (Some(kind_code(*kind)), Some(name)),
        None => (None, None),
    };
    // Said in the words of the index, which holds the beginning of a name: a name may be longer than
    // an index's row.
    let start = name.map(|name| name.chars().take(INDEXED).collect::<String>());
    let query = query.with_some(" AND substr(c.name, 1, 200) = ", start);
    let query = query.with_some(" AND c.name = ", name).with_some(" AND c.kind = ", kind);
    let query = match filter.verdict {
        // Said in the words of the index, which leaves these calls out.
        Some(verdict) if verdict != Verdict::Allow => {
            query.with(" AND c.verdict <> 0 AND c.verdict = ", verdict_code(verdict))
        }
        verdict => query.with_some(" AND c.verdict = ", verdict.map(verdict_code)),
    };
    let query = query
        .with_some(" AND c.guard = ", filter.guard.map(GuardId::name))
        .with_some(" AND c.status = ", filter.status.map(status_code))
        .with_some(" AND c.id >= ", from)
        .with_some(" AND c.id < ", to);
    let cursor = paging.number()?;
    Ok(match filter.order {
        Order::Newest => query
            .with_some(" AND c.id < ", cursor)
            .with(" ORDER BY c.id DESC LIMIT ", paging.rows()),
        Order::Oldest => {
            query.with_some(" AND c.id > ", cursor).with(" ORDER BY c.id LIMIT ", paging.rows())
        }
    })
}

/// Writes calls: new ones, and those that were still running. Says how many that were.
pub(crate) async fn write(tx: &mut Tx, calls: &[&StoredCall]) -> Result<u64, StoreError> {
    tx.insert(
        "INSERT INTO calls (id, agent_number, session_number, position, at_ms, duration_ms, \
         input, output, cache_read, cache_write, cost, kind, verdict, status, project, name, \
         server, nested, guard, reason, incident, facts, first_ms, cause)",
        "ON CONFLICT (id) DO UPDATE SET duration_ms = excluded.duration_ms, \
         first_ms = excluded.first_ms, cause = excluded.cause, \
         input = excluded.input, output = excluded.output, cache_read = excluded.cache_read, \
         cache_write = excluded.cache_write, cost = excluded.cost, verdict = excluded.verdict, \
         status = excluded.status, guard = excluded.guard, reason = excluded.reason, \
         incident = excluded.incident, facts = coalesce(excluded.facts, calls.facts) \
         WHERE calls.status IS NULL",
        calls,
        |call, values| {
            values.extend([
                call.id.into(),
                call.agent_number.into(),
                call.session_number.into(),
                call.position.into(),
                call.at.into(),
                call.duration.map(|duration| duration.0).into(),
                call.usage.input.0.into(),
                call.usage.output.0.into(),
                call.usage.cache_read.0.into(),
                call.usage.cache_write.0.into(),
                call.cost.0.into(),
                kind_code(call.kind).into(),
                verdict_code(call.verdict).into(),
                call.status.map(status_code).into(),
                call.project.as_str().into(),
                call.name.as_str().into(),
                (&call.server).into(),
                (&call.nested).into(),
                call.guard.map(GuardId::name).into(),
                (&call.reason).into(),
                (&call.incident).into(),
                (&call.facts).into(),
                call.first.map(|first| first.0).into(),
                (&call.cause).into(),
            ]);
        },
    )
    .await
}

/// Which of these calls had ended already when they were last written.
pub(crate) async fn ended(tx: &mut Tx, calls: &[&StoredCall]) -> Result<HashSet<i64>, StoreError> {
    let mut ended = HashSet::new();
    for some in calls.chunks(100) {
        let mut query = sql("SELECT id FROM calls WHERE status IS NOT NULL AND id IN (0");
        for call in some {
            query = query.with(", ", call.id);
        }
        for row in tx.rows(query.then(")")).await? {
            ended.insert(row.get("id")?);
        }
    }
    Ok(ended)
}

fn listed(row: &Row) -> Result<ListedCall, StoreError> {
    Ok(ListedCall {
        call: read(row)?,
        agent: row.get::<Option<String>>("agent_name")?.unwrap_or_default(),
        session: row.get::<Option<String>>("session_name")?.unwrap_or_default(),
    })
}

fn with_facts(row: &Row) -> Result<ListedCall, StoreError> {
    let mut listed = listed(row)?;
    listed.call.facts = row.get("facts")?;
    Ok(listed)
}

fn read(row: &Row) -> Result<StoredCall, StoreError> {
    let guard = row.get::<Option<String>>("guard")?;
    Ok(StoredCall {
        id: row.get("id")?,
        project: row.get("project")?,
        agent_number: row.get("agent_number")?,
        session_number: row.get("session_number")?,
        nested: row.get("nested")?,
        position: row.unsigned("position")?,
        kind: if row.get::<i64>("kind")? == 0 { CallKind::Model } else { CallKind::Tool },
        name: row.get("name")?,
        server: row.get("server")?,
        at: Time(row.unsigned("at_ms")?),
        duration: row.maybe_unsigned("duration_ms")?.map(Millis),
        first: row.maybe_unsigned("first_ms")?.map(Millis),
        verdict: verdict(row.get("verdict")?)?,
        guard: guard.as_deref().map(guard_named).transpose()?,
        reason: row.get("reason")?,
        status: row.get::<Option<i64>>("status")?.map(status).transpose()?,
        cause: row.get("cause")?,
        usage: Usage {
            input: Tokens(row.unsigned("input")?),
            output: Tokens(row.unsigned("output")?),
            cache_read: Tokens(row.unsigned("cache_read")?),
            cache_write: Tokens(row.unsigned("cache_write")?),
        },
        cost: NanoUsd(row.unsigned("cost")?),
        incident: row.get("incident")?,
        facts: None,
    })
}

/// The guard of this name, as core spells it.
fn guard_named(name: &str) -> Result<GuardId, StoreError> {
    let word: StrDeserializer<'_, NotAWord> = name.into_deserializer();
    GuardId::deserialize(word).map_err(|_| StoreError::unreadable("guard"))
}

fn kind_code(kind: CallKind) -> i64 {
    match kind {
        CallKind::Model => 0,
        CallKind::Tool => 1,
    }
}

const VERDICTS: [Verdict; 6] =
    [Verdict::Allow, Verdict::Warn, Verdict::Block, Verdict::Kill, Verdict::Ask, Verdict::Steer];
const STATUSES: [Status; 4] = [Status::Ok, Status::Error, Status::Fault, Status::Cancelled];

pub(crate) fn verdict_code(verdict: Verdict) -> i64 {
    match verdict {
        Verdict::Allow => 0,
        Verdict::Warn => 1,
        Verdict::Block => 2,
        Verdict::Kill => 3,
        Verdict::Ask => 4,
        Verdict::Steer => 5,
    }
}

fn verdict(code: i64) -> Result<Verdict, StoreError> {
    let found = VERDICTS.into_iter().find(|verdict| verdict_code(*verdict) == code);
    found.ok_or_else(|| StoreError::unreadable("verdict"))
}

pub(crate) fn status_code(status: Status) -> i64 {
    match status {
        Status::Ok => 0,
        Status::Error => 1,
        Status::Fault => 2,
        Status::Cancelled => 3,
    }
}

fn status(code: i64) -> Result<Status, StoreError> {
    let found = STATUSES.into_iter().find(|status| status_code(*status) == code);
    found.ok_or_else(|| StoreError::unreadable("status"))
}
