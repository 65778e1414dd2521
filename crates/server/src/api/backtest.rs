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
use deadstop_core::{NanoUsd, PolicySet, Time, Verdict};
use deadstop_protocol::policy_views::{Whose, effective, read_policy};
use deadstop_store::{CallFilter, Order, Paging, Period, SessionFilter, Store, StoredSession};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::App;
use super::auth::Who;
use super::extract::{Body, Strict};
use super::moments::cleared;
use super::policies::read_agent;
use super::problem::{Code, Problem};
use crate::backtest::{Fate, Rules, Session, Stop, Tried, replay};

/// Sessions that are tried, unless asked for more or fewer.
const SESSIONS: u32 = 100;
/// Calls that are tried at most, of all sessions together.
const MOST_CALLS: usize = 50_000;

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
pub(crate) enum TrialLine {
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
    /// Sessions that were asked for and not tried, because the calls of newer ones are 50,000.
    left_out: usize,
    /// Calls that were tried: those that ran, and those that were refused.
    calls: usize,
    /// Calls that would have passed with a warning.
    warned: usize,
    /// Calls that a person would have been asked about.
    asked: usize,
    /// Calls that would have been refused.
    blocked: usize,
    /// Sessions that would have been ended.
    killed: usize,
    /// Dollars that would not have been spent.
    saved_usd: f64,
    /// Stops by guard.
    by_guard: BTreeMap<&'static str, usize>,
    /// Before and after, for each agent.
    agents: Vec<AgentTried>,
    /// Every session that would have been stopped.
    stopped: Vec<Stopped>,
    /// Every session that was stopped, and would not have been.
    freed: Vec<Freed>,
}

/// An agent's sessions: what happened, and what would have.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct AgentTried {
    /// The agent.
    agent: String,
    /// Its sessions that were tried.
    sessions: usize,
    /// Their calls.
    calls: usize,
    /// What happened.
    before: Tally,
    /// What would have happened under the policy.
    after: Tally,
}

/// What guards did.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Tally {
    /// Calls that passed with a warning.
    warned: usize,
    /// Calls that were refused.
    refused: usize,
    /// Sessions that were stopped: ended, or with a call that was refused.
    stopped: usize,
}

impl Tally {
    fn add(&mut self, fate: &Fate) {
        self.warned += fate.warned;
        self.refused += fate.refused;
        self.stopped += usize::from(fate.stop.is_some());
    }
}

/// What stopped a session at the time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StoppedBy {
    /// `block` or `kill`.
    verdict: String,
    /// The guard.
    guard: &'static str,
    /// Its code for why.
    reason: String,
    /// The call it happened at.
    call: String,
    /// When.
    at_ms: u64,
}

impl StoppedBy {
    fn of(stop: &Stop) -> StoppedBy {
        StoppedBy {
            verdict: stop.verdict.to_string(),
            guard: stop.guard.name(),
            reason: stop.reason.clone(),
            call: stop.call.to_string(),
            at_ms: stop.at.0,
        }
    }
}

/// A session that was stopped, and would not have been.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Freed {
    /// Its agent.
    agent: String,
    /// Its name.
    session: String,
    /// Its number.
    number: String,
    /// What stopped it.
    before: StoppedBy,
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
    /// Calls that ran, and would not have been made.
    calls_after: usize,
    /// Dollars that they cost.
    cost_after_usd: f64,
    /// Whether it was stopped at the time as well.
    was_stopped: bool,
    /// What stopped it at the time, if something did.
    before: Option<StoppedBy>,
}

impl Stopped {
    fn of(session: &StoredSession, stop: &Stop, tried: &Tried) -> Stopped {
        let before = tried.before.stop.as_ref().map(StoppedBy::of);
        Stopped {
            agent: session.agent.clone(),
            session: session.name.clone(),
            number: session.number.to_string(),
            call: stop.call.to_string(),
            at_ms: stop.at.0,
            verdict: stop.verdict.to_string(),
            guard: stop.guard.name(),
            reason: stop.reason.clone(),
            explain: tried.explain.clone(),
            calls_after: tried.calls_after,
            cost_after_usd: tried.cost_after.dollars(),
            was_stopped: before.is_some() || session.state == deadstop_store::SessionState::Killed,
            before,
        }
    }
}

impl Outcome {
    /// How many sessions were tried.
    pub(super) fn tried(&self) -> usize {
        self.sessions
    }

    /// What happened, and what would have, of all agents together.
    pub(super) fn tallies(&self) -> (Tally, Tally) {
        let sum = |of: fn(&AgentTried) -> &Tally| {
            self.agents.iter().map(of).fold(Tally::default(), |sum, one| Tally {
                warned: sum.warned + one.warned,
                refused: sum.refused + one.refused,
                stopped: sum.stopped + one.stopped,
            })
        };
        (sum(|agent| &agent.before), sum(|agent| &agent.after))
    }

    /// The guard that would have stopped a session, if one would have; nothing if the session was not
    /// stopped before either, or was not tried.
    pub(super) fn stop_of(&self, number: i64) -> Option<Option<&'static str>> {
        let number = number.to_string();
        let stopped = self.stopped.iter().find(|one| one.number == number);
        let freed = || self.freed.iter().any(|one| one.number == number);
        match stopped {
            Some(stopped) => Some(Some(stopped.guard)),
            None => freed().then_some(None),
        }
    }

    fn of(sessions: &[StoredSession], tried: &[Tried], asked_for: usize) -> Outcome {
        let left_out = asked_for - tried.len();
        let mut outcome = Outcome { sessions: tried.len(), left_out, ..Outcome::default() };
        let mut agents: BTreeMap<&str, AgentTried> = BTreeMap::new();
        let mut saved = NanoUsd(0);
        for (session, tried) in sessions.iter().zip(tried) {
            outcome.calls += tried.calls;
            outcome.warned += tried.after.warned;
            outcome.asked += tried.asked;
            outcome.blocked += tried.after.refused;
            saved += tried.cost_after;
            let agent = agents.entry(&session.agent).or_default();
            agent.sessions += 1;
            agent.calls += tried.calls;
            agent.before.add(&tried.before);
            agent.after.add(&tried.after);
            if let Some(stop) = &tried.after.stop {
                outcome.killed += usize::from(stop.verdict == Verdict::Kill);
                *outcome.by_guard.entry(stop.guard.name()).or_default() += 1;
                outcome.stopped.push(Stopped::of(session, stop, tried));
            } else if let Some(stop) = &tried.before.stop {
                outcome.freed.push(Freed {
                    agent: session.agent.clone(),
                    session: session.name.clone(),
                    number: session.number.to_string(),
                    before: StoppedBy::of(stop),
                });
            }
        }
        let named = |(name, agent): (&str, AgentTried)| AgentTried { agent: name.into(), ..agent };
        outcome.agents = agents.into_iter().map(named).collect();
        outcome.saved_usd = saved.dollars();
        outcome
    }
}

/// Tries a policy on stored sessions.
#[utoipa::path(
    post, path = "/api/backtest", tag = "policies", request_body = Trial,
    responses((status = 200, description = "Lines of JSON", body = TrialLine, content_type = "application/x-ndjson"))
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
    let (lines, receiver) = mpsc::channel::<TrialLine>(16);
    let project = who.project.clone();
    tokio::spawn(async move {
        let last = match run(&store, &project, &policies, &trial, &lines).await {
            Ok(outcome) => TrialLine::Result(Box::new(outcome)),
            Err(error) => TrialLine::Failed(error.detail().to_owned()),
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
    lines: &mpsc::Sender<TrialLine>,
) -> Result<Outcome, Problem> {
    let mut found = sessions(store, project, trial).await?;
    let of = found.len();
    let (mut loaded, mut many) = (Vec::with_capacity(of), 0);
    for (done, session) in found.iter().enumerate() {
        let calls = calls(store, project, session.number, MOST_CALLS).await?;
        many += calls.len();
        if many > MOST_CALLS && done > 0 {
            break;
        }
        let (agent, name) = (session.agent.clone(), session.name.clone());
        let opened = calls.first().map_or(session.opened, |call| call.at.min(session.opened));
        loaded.push(Session { agent, name, opened, calls });
        if lines.send(TrialLine::Progress(Far { done: done + 1, of })).await.is_err() {
            break;
        }
    }
    found.truncate(loaded.len());
    let rules = rules(store, project, policies, trial, &loaded).await?;
    let tried = tokio::task::spawn_blocking(move || replay(&rules, &loaded)).await;
    let tried = tried.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    Ok(Outcome::of(&found, &tried, of))
}

/// Tries the whole policy of an agent on its last sessions.
pub(super) async fn try_on_agent(
    store: &Store,
    project: &str,
    policies: &PolicySet,
    agent: &str,
    sessions: u32,
) -> Result<Outcome, Problem> {
    let trial = Trial {
        policy: Value::Null,
        agent: Some(agent.to_owned()),
        sessions: Some(sessions),
        from: None,
        to: None,
    };
    let (lines, mut progress) = mpsc::channel::<TrialLine>(16);
    let read = async { while progress.recv().await.is_some() {} };
    let tried = async {
        let tried = run(store, project, policies, &trial, &lines).await;
        drop(lines);
        tried
    };
    tokio::join!(tried, read).0
}

/// The policy for each agent. A project's policy holds for an agent as far as the agent has none of
/// its own; a policy that is tried for one agent is the whole of it.
async fn rules(
    store: &Store,
    project: &str,
    policies: &PolicySet,
    trial: &Trial,
    sessions: &[Session],
) -> Result<Rules, Problem> {
    let since = sessions.iter().map(|session| session.opened).min().unwrap_or_default();
    let mut rules = Rules::default();
    for agent in sessions.iter().map(|session| &session.agent) {
        if rules.policies.contains_key(agent) {
            continue;
        }
        let own = match trial.agent {
            Some(_) => policies.clone(),
            None => {
                let stored = store.policy(project, Some(agent)).await?;
                let document = read_agent(stored.and_then(|own| own.document).as_deref())?;
                effective(policies, &document)
            }
        };
        rules.policies.insert(agent.clone(), own);
        let mut times = cleared(store, project, agent, since).await?;
        times.sort_unstable();
        rules.cleared.insert(agent.clone(), times);
    }
    Ok(rules)
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
