//! A session as it stood at one of its calls.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deadstop_core::{Digest, Gauge, Measure, ScopeKind, Time, Trip, Verdict};
use deadstop_protocol::policy_views::effective;
use deadstop_store::{
    AuditFilter, Paging, Period, PolicyVersion, Store, StoredCall, StoredSession,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::App;
use super::auth::Who;
use super::backtest::calls;
use super::calls::stored_session;
use super::extract::{At, Name};
use super::gauge::Limit;
use super::policies::{read_agent, read_default};
use super::problem::{Code, Problem};
use crate::replay::{Frame, History, Reel};

/// Calls of a session that can be stepped through; the page shows as many.
const MOST_CALLS: usize = 50_000;
/// Times at which an agent was switched on again that are looked at.
const CLEARINGS: u32 = 1000;

/// A session as it stood when a call was over, or was refused.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Stood {
    /// The call's id.
    call: String,
    /// The how-manieth of the session's calls that are kept this is, from one.
    number: usize,
    /// The moment.
    at_ms: u64,
    /// The session first, then the scope inside it that the call was made in, then its agent and the
    /// project. Of those above this tells what this session has added. Empty if the facts of its
    /// calls are not known any more.
    scopes: Vec<StoodScope>,
}

/// A scope at that moment.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StoodScope {
    /// `session`, `nested`, `agent` or `project`.
    #[schema(value_type = String)]
    kind: ScopeKind,
    /// Its name; the agent's and the project's are known.
    name: String,
    /// Tool calls.
    steps: u64,
    /// Model calls.
    model_calls: u64,
    /// Calls that ran.
    in_flight: u64,
    /// Input tokens, without those from a cache.
    input_tokens: u64,
    /// Output tokens.
    output_tokens: u64,
    /// Dollars spent.
    cost_usd: f64,
    /// Dollars set aside for calls that ran.
    reserved_usd: f64,
    /// What its guards measured, under the policy of the time, the nearest to its limit first.
    limits: Vec<Limit>,
}

/// A session as it stood at one of its calls: its stored facts, run through the guards again.
#[utoipa::path(
    get, path = "/api/sessions/{agent}/{session}/calls/{id}/state", tag = "sessions",
    params(
        ("agent" = String, Path, description = "The agent"),
        ("session" = String, Path, description = "The session's name"),
        ("id" = String, Path, description = "The call's id"),
    ),
    responses((status = 200, description = "As it stood then", body = Stood))
)]
pub(crate) async fn state(
    State(app): State<Arc<App>>,
    who: Who,
    At((Name(agent), Name(session), id)): At<(Name, Name, i64)>,
) -> Result<Json<Stood>, Problem> {
    who.may_see(&agent)?;
    let store = app.store()?;
    // The call knows its session, also if its name was used again since.
    let call = store.call(&who.project, id).await?.ok_or_else(|| Problem::not_found("call"))?;
    let number = Some(call.call.session_number);
    let session = stored_session(store, &who.project, (&agent, &session), number).await?;
    let session = session.ok_or_else(|| Problem::not_found("session"))?;
    let newest = store.policy(&who.project, None).await?.map_or(0, |version| version.version);
    let own = store.policy(&who.project, Some(&agent)).await?.map_or(0, |version| version.version);
    let stamp = (session.used, newest + own);
    let reel = match app.reels.find(session.number, stamp, id) {
        Some(reel) => reel,
        None => {
            let reel = Arc::new(wind(&app, store, &who.project, &session).await?);
            app.reels.keep(session.number, stamp, Arc::clone(&reel));
            reel
        }
    };
    let at = reel.position(id).ok_or_else(|| Problem::not_found("call"))?;
    let trip = trip_of(store, &who.project, &call.call).await?;
    let frame = reel.frame(at);
    Ok(Json(Stood {
        call: id.to_string(),
        number: at + 1,
        at_ms: frame.as_ref().map_or(0, |frame| frame.at.0),
        scopes: frame.as_ref().map(|frame| scopes(frame, &reel, trip.as_ref())).unwrap_or_default(),
    }))
}

/// The trip of a call that was refused or ended its scope, with the numbers of that call.
async fn trip_of(store: &Store, project: &str, call: &StoredCall) -> Result<Option<Trip>, Problem> {
    let Some(id) = call.incident.as_deref().filter(|_| call.verdict >= Verdict::Block) else {
        return Ok(None);
    };
    let Some(incident) = store.incident(project, id).await? else { return Ok(None) };
    if incident.call == Some(call.id) {
        return Ok(Some(incident.trip));
    }
    // The incident grew since: its rungs know the counts of their first and their last call.
    let rungs = store.rungs(project, id).await?;
    let counts = rungs.iter().find_map(|rung| match Some(call.id) {
        id if id == rung.call => Some((rung.count, rung.limit)),
        id if id == rung.last_call => Some((rung.last_count, rung.limit)),
        _ => None,
    });
    Ok(counts.map(|(count, limit)| {
        let (measured, limit) = (Measure::Count(count), Measure::Count(limit));
        Trip { measured, limit, signals: Vec::new(), ..incident.trip }
    }))
}

/// Which kind of scope a trip happened in: chains begin with the project.
pub(super) fn kind_at(depth: usize) -> ScopeKind {
    match depth {
        0 => ScopeKind::Project,
        1 => ScopeKind::Agent,
        2 => ScopeKind::Session,
        _ => ScopeKind::Nested,
    }
}

fn scopes(frame: &Frame<'_>, reel: &Reel, trip: Option<&Trip>) -> Vec<StoodScope> {
    let servers: HashMap<Digest, &str> =
        reel.servers().map(|server| (Digest::of(server.as_bytes()), server)).collect();
    let show = |(name, state): (&str, &deadstop_core::ScopeState)| {
        let mut gauges = state.gauges(frame.policies.of(state.kind()), frame.at);
        if let Some(trip) = trip.filter(|trip| kind_at(trip.context.depth) == state.kind()) {
            Gauge::told(&mut gauges, trip);
        }
        let ledger = state.ledger();
        StoodScope {
            kind: state.kind(),
            name: name.to_owned(),
            steps: ledger.spent.steps,
            model_calls: ledger.spent.model_calls,
            in_flight: ledger.in_flight,
            input_tokens: ledger.spent.input.0,
            output_tokens: ledger.spent.output.0,
            cost_usd: ledger.spent.cost.dollars(),
            reserved_usd: ledger.reserved.cost.dollars(),
            limits: gauges.iter().map(|gauge| Limit::of(gauge, &servers)).collect(),
        }
    };
    frame.scopes().map(show).collect()
}

/// Reads all that a reel is made of, and runs it.
async fn wind(
    app: &App,
    store: &Store,
    project: &str,
    session: &StoredSession,
) -> Result<Reel, Problem> {
    let calls = calls(store, project, session.number, MOST_CALLS).await?;
    let opened = calls.first().map_or(session.opened, |call| call.at);
    let history = history(app, store, project, &session.agent, opened).await?;
    let cleared = cleared(store, project, &session.agent, opened).await?;
    let name = session.name.clone();
    tokio::task::spawn_blocking(move || Reel::new(&name, calls, history, cleared))
        .await
        .map_err(|error| Problem::new(Code::Internal, error.to_string()))
}

/// The policies of an agent since a moment.
async fn history(
    app: &App,
    store: &Store,
    project: &str,
    agent: &str,
    since: Time,
) -> Result<History, Problem> {
    let defaults = versions(store, project, None, since).await?;
    let own = versions(store, project, Some(agent), since).await?;
    let mut times: Vec<Time> = defaults.iter().chain(&own).map(|version| version.at).collect();
    times.push(Time(0));
    times.sort_unstable();
    times.dedup();
    let at = |versions: &[PolicyVersion], time: Time| {
        let newest = versions.iter().filter(|version| version.at <= time).max_by_key(|v| v.version);
        newest.and_then(|version| version.document.clone())
    };
    let mut history = History::new();
    for time in times {
        let default = read_default(app, at(&defaults, time).as_deref())?;
        let document = read_agent(at(&own, time).as_deref())?;
        history.push((time, effective(&default, &document)));
    }
    Ok(history)
}

/// The versions of a document that were in force since a moment.
async fn versions(
    store: &Store,
    project: &str,
    agent: Option<&str>,
    since: Time,
) -> Result<Vec<PolicyVersion>, Problem> {
    let mut found: Vec<PolicyVersion> = Vec::new();
    let mut cursor = None;
    loop {
        let paging = Paging { limit: 100, cursor };
        let page = store.policy_versions(project, agent, &paging).await?;
        found.extend(page.items);
        cursor = page.next;
        let enough = found.last().is_none_or(|version| version.at <= since);
        if cursor.is_none() || enough {
            return Ok(found);
        }
    }
}

/// When the guards of an agent's sessions were emptied.
pub(super) async fn cleared(
    store: &Store,
    project: &str,
    agent: &str,
    since: Time,
) -> Result<Vec<Time>, Problem> {
    let mut found = Vec::new();
    for (action, subject) in [("agent.clear", Some(agent)), ("project.clear", None)] {
        let filter = AuditFilter {
            action: Some(action.to_owned()),
            subject: subject.map(str::to_owned),
            period: Period { from: Some(since), to: None },
            ..AuditFilter::default()
        };
        let page = store.audit_entries(project, &filter, &Paging::first(CLEARINGS)).await?;
        found.extend(page.items.into_iter().map(|entry| entry.event.at));
    }
    Ok(found)
}
