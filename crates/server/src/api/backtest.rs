//! Backtest over stored sessions: what would this policy have done?
//!
//! The answer comes as lines of JSON: progress while it works, the result at the end.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body as HttpBody, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use deadstop_core::{NanoUsd, PolicySet, Time};
use deadstop_protocol::policy_views::{Whose, read_policy};
use deadstop_store::{CallFilter, Order, Paging, Period, SessionFilter, Store, StoredSession};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::App;
use super::auth::Who;
use super::extract::{Body, Strict};
use super::problem::{Code, Problem};
use crate::backtest::{Stop, replay};

/// Sessions that are tried, unless asked for more or fewer.
const SESSIONS: u32 = 100;
/// Calls of one session that are tried.
const MOST_CALLS: usize = 20_000;

/// What to try.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trial {
    /// The whole policy.
    #[schema(value_type = Object)]
    policy: Value,
    /// Only this agent's sessions.
    #[schema(max_length = 200)]
    agent: Option<String>,
    /// The last so many sessions.
    #[schema(minimum = 1, maximum = 10_000)]
    sessions: Option<u32>,
    /// Sessions that were opened at this time or later, in milliseconds since 1970.
    from: Option<u64>,
    /// Sessions that were opened before this time, in milliseconds since 1970.
    to: Option<u64>,
}

impl Strict for Trial {}

/// A line of the answer: `progress` while it works, `result` at the end.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// How far it is.
    Progress(Far),
    /// What came of it.
    Result(Box<Outcome>),
    /// It could not go on.
    Failed(String),
}

/// How far it is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Far {
    /// Sessions that were tried.
    done: usize,
    /// Sessions that there are to try.
    of: usize,
}

/// What the policy would have done.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Outcome {
    /// Sessions that were tried.
    sessions: usize,
    /// Calls that were tried.
    calls: usize,
    /// Calls that would have passed with a warning.
    warned: usize,
    /// Calls that a person would have been asked about.
    asked: usize,
    /// Calls that would have been refused, one by one.
    blocked: usize,
    /// Sessions that would have been ended.
    killed: usize,
    /// Dollars that would not have been spent.
    saved_usd: f64,
    /// Stops by guard.
    by_guard: BTreeMap<&'static str, usize>,
    /// Every session that would have been stopped.
    stopped: Vec<Stopped>,
}

/// A session that would have been stopped.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Stopped {
    /// Its agent.
    agent: String,
    /// Its name.
    session: String,
    /// Its number.
    number: String,
    /// The call it would have happened at.
    call: String,
    /// When.
    at_ms: u64,
    /// `block` or `kill`.
    verdict: String,
    /// The guard.
    guard: &'static str,
    /// Its code for why.
    reason: String,
    /// Why, in a sentence.
    explain: String,
    /// Calls that would not have been made.
    calls_after: usize,
    /// Dollars that they cost.
    cost_after_usd: f64,
    /// Whether it was stopped at the time as well.
    was_stopped: bool,
}

impl Stopped {
    fn of(session: &StoredSession, stop: &Stop) -> Stopped {
        Stopped {
            agent: session.agent.clone(),
            session: session.name.clone(),
            number: session.number.to_string(),
            call: stop.call.to_string(),
            at_ms: stop.at.0,
            verdict: stop.trip.verdict.to_string(),
            guard: stop.trip.guard.name(),
            reason: stop.trip.reason.clone(),
            explain: stop.trip.explain(),
            calls_after: stop.calls_after,
            cost_after_usd: stop.cost_after.dollars(),
            was_stopped: session.state == deadstop_store::SessionState::Killed,
        }
    }
}

/// Tries a policy on stored sessions.
#[utoipa::path(
    post, path = "/api/backtest", tag = "policies", request_body = Trial,
    responses((status = 200, description = "Lines of JSON", body = Line, content_type = "application/x-ndjson"))
)]
pub(crate) async fn backtest(
    State(app): State<Arc<App>>,
    who: Who,
    Body(trial): Body<Trial>,
) -> Result<Response, Problem> {
    let policies = read_policy(&trial.policy, Whose::Project)
        .map_err(|faults| Problem::fields(Code::InvalidBody, faults))?;
    let store = app.store()?.clone();
    let flushed = app.warden.flush_everywhere().await;
    flushed.map_err(|error| Problem::new(Code::StoreFailed, error))?;
    let (lines, receiver) = mpsc::channel::<Line>(16);
    let project = who.project.clone();
    tokio::spawn(async move {
        let last = match run(&store, &project, &policies, &trial, &lines).await {
            Ok(outcome) => Line::Result(Box::new(outcome)),
            Err(error) => {
                tracing::error!("{error}");
                Line::Failed("the database failed; see the log".to_owned())
            }
        };
        // Fails if the client has disconnected.
        let _ = lines.send(last).await;
    });
    let body = stream::unfold(receiver, |mut receiver| async move {
        let line = receiver.recv().await?;
        let text = format!("{}\n", json!(line));
        Some((Ok::<_, Infallible>(Bytes::from(text)), receiver))
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, HttpBody::from_stream(body)).into_response())
}

async fn run(
    store: &Store,
    project: &str,
    policies: &PolicySet,
    trial: &Trial,
    lines: &mpsc::Sender<Line>,
) -> Result<Outcome, deadstop_store::StoreError> {
    let sessions = sessions(store, project, trial).await?;
    let of = sessions.len();
    let mut outcome = Outcome::default();
    let mut saved = NanoUsd(0);
    for (done, session) in sessions.iter().enumerate() {
        let calls = calls(store, project, session.number, MOST_CALLS).await?;
        let tried = replay(policies, &session.name, &calls);
        outcome.sessions += 1;
        outcome.calls += tried.calls;
        outcome.warned += tried.warned;
        outcome.asked += tried.asked;
        outcome.blocked += tried.blocked;
        if let Some(stop) = &tried.stop {
            outcome.killed += usize::from(stop.trip.verdict == deadstop_core::Verdict::Kill);
            *outcome.by_guard.entry(stop.trip.guard.name()).or_default() += 1;
            saved += stop.cost_after;
            outcome.stopped.push(Stopped::of(session, stop));
        }
        if lines.send(Line::Progress(Far { done: done + 1, of })).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    outcome.saved_usd = saved.dollars();
    Ok(outcome)
}

async fn sessions(
    store: &Store,
    project: &str,
    trial: &Trial,
) -> Result<Vec<StoredSession>, deadstop_store::StoreError> {
    let most = trial.sessions.unwrap_or(SESSIONS) as usize;
    let filter = SessionFilter {
        agent: trial.agent.clone(),
        period: Period { from: trial.from.map(Time), to: trial.to.map(Time) },
        ..SessionFilter::default()
    };
    let mut found = Vec::new();
    let mut cursor = None;
    loop {
        let limit = u32::try_from(most - found.len()).unwrap_or(u32::MAX).min(1000);
        let page = store.sessions(project, &filter, &Paging { limit, cursor }).await?;
        found.extend(page.items);
        cursor = page.next;
        if cursor.is_none() || found.len() >= most {
            return Ok(found);
        }
    }
}

/// The calls of a session with their facts, in their order.
pub(super) async fn calls(
    store: &Store,
    project: &str,
    session: i64,
    most: usize,
) -> Result<Vec<deadstop_store::StoredCall>, deadstop_store::StoreError> {
    let filter =
        CallFilter { session: Some(session), order: Order::Oldest, ..CallFilter::default() };
    let mut found = Vec::new();
    let mut cursor = None;
    loop {
        let paging = Paging { limit: 1000, cursor };
        let page = store.calls_with_facts(project, &filter, &paging).await?;
        found.extend(page.items.into_iter().map(|listed| listed.call));
        cursor = page.next;
        if cursor.is_none() || found.len() >= most {
            return Ok(found);
        }
    }
}
