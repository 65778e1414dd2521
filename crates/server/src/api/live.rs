//! What runs now: every scope in memory, and events as they happen.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::response::sse::{Event as Sse, KeepAlive, Sse as Stream};
use deadstop_core::{ScopeKind, Time};
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::auth::Who;
use super::auth::grace::KeyGrace;
use super::cluster::{Cluster, Degraded};
use super::extract::Asked;
use super::gauge::{FailingServer, Limit, Quota};
use super::problem::Problem;
use super::standing::{Standing, Waiting};
use deadstop_store::CANARY;
use deadstop_warden::{Event, Project, Scope, now};

/// A session or an agent as it is now.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Row {
    /// `project`, `agent`, `session` or `nested`.
    #[schema(value_type = String)]
    kind: ScopeKind,
    /// The agent that it belongs to; empty for the project.
    pub(crate) agent: String,
    /// What people call it.
    pub(crate) name: String,
    /// `running`, `paused` or `killed`: whether its own calls go through.
    pub(crate) state: &'static str,
    /// How it stands, with all that is above it.
    pub(crate) standing: Standing,
    /// Why it is paused or killed.
    #[schema(required)]
    pub(crate) why: Option<String>,
    /// Tool calls.
    pub(crate) steps: u64,
    /// Model calls.
    pub(crate) model_calls: u64,
    /// Calls that run.
    in_flight: u64,
    /// Input tokens.
    pub(crate) input_tokens: u64,
    /// Output tokens.
    pub(crate) output_tokens: u64,
    /// Dollars spent.
    pub(crate) cost_usd: f64,
    /// Dollars set aside for calls that run.
    reserved_usd: f64,
    /// When it was opened.
    pub(crate) opened_ms: u64,
    /// When it was last used.
    pub(crate) used_ms: u64,
}

impl Row {
    pub(crate) fn of(scope: &Scope) -> Row {
        // It takes the same lock.
        let standing = Standing::live(scope, now());
        let state = scope.state();
        let ledger = state.ledger();
        let (word, why) = match (state.killed(), state.paused()) {
            (Some(kill), _) => ("killed", Some(kill.because.clone())),
            (None, Some(pause)) => ("paused", Some(pause.because.clone())),
            (None, None) => ("running", None),
        };
        Row {
            kind: scope.kind(),
            agent: scope.agent().to_owned(),
            name: scope.name().to_owned(),
            state: word,
            standing,
            why,
            steps: ledger.spent.steps,
            model_calls: ledger.spent.model_calls,
            in_flight: ledger.in_flight,
            input_tokens: ledger.spent.input.0,
            output_tokens: ledger.spent.output.0,
            cost_usd: ledger.spent.cost.dollars(),
            reserved_usd: ledger.reserved.cost.dollars(),
            opened_ms: state.opened().0,
            used_ms: scope.used().0,
        }
    }
}

/// A scope that runs, and how near it is to its limits.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Running {
    #[serde(flatten)]
    pub(crate) row: Row,
    /// What its guards measure, the nearest to its limit first; empty where nothing is limited.
    limits: Vec<Limit>,
    /// Of an agent: the windows that its providers have reported, the fullest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    quotas: Vec<Quota>,
    /// Of an agent: the servers that fail, so that their calls are refused for a while. Of a session:
    /// the provider that it used last, if that fails.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    failing: Vec<FailingServer>,
}

impl Running {
    pub(crate) fn of(project: &Project, scope: &Scope, now: Time) -> Running {
        let policies = project.policies(scope.agent());
        let gauges = scope.state().gauges(policies.of(scope.kind()), now);
        let names = HashMap::new();
        let limits = gauges.iter().map(|gauge| Limit::of(gauge, &names)).collect();
        let quotas = Quota::all(&scope.state(), now);
        let failing = match scope.kind() {
            ScopeKind::Agent => FailingServer::of_agent(project, scope, now),
            _ => Vec::new(),
        };
        Running { row: Row::of(scope), limits, quotas, failing }
    }

    /// The same for a session below an agent.
    pub(crate) fn below(
        project: &Project,
        agent: Option<&Scope>,
        scope: &Scope,
        now: Time,
    ) -> Running {
        let of = |agent| FailingServer::of_session(project, agent, scope, now);
        let failing = agent.map(of).unwrap_or_default();
        Running { failing, ..Running::of(project, scope, now) }
    }

    fn share(&self) -> f64 {
        self.limits.first().map_or(0.0, |limit| limit.share)
    }
}

/// What runs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Status {
    /// The project as a whole.
    project: Running,
    /// Agents, sessions and what is nested in them: a page of those that were asked for.
    scopes: Vec<Running>,
    /// The cursor of the next page; null if this is the last.
    #[schema(required)]
    next: Option<String>,
    /// Sessions in memory, whatever was asked for.
    sessions: Standings,
    /// The nodes, on a server that is one of many.
    #[schema(required)]
    cluster: Option<Cluster>,
    /// Set while the database takes no writes.
    #[schema(required)]
    database: Option<Degraded>,
    /// Set for a while after the first key: agents that were running may call without one.
    #[schema(required)]
    key_grace: Option<KeyGrace>,
}

/// How many sessions stand how. Each is in exactly one of the counts.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Standings {
    /// Those that may go on and did something in the last 15 minutes.
    running: usize,
    /// Those with a call that waits for a person's approval.
    waiting_for_approval: usize,
    /// The two above together.
    busy: usize,
    /// Those that may go on and did nothing for 15 minutes.
    idle: usize,
    /// Those that are held, themselves or with what is above them.
    paused: usize,
    /// Those whose host said that they are over.
    finished: usize,
    /// Those that a guard ended, themselves or with what is above them.
    stopped_by_guard: usize,
    /// Those that a person ended, themselves or with what is above them.
    stopped_by_person: usize,
    /// Those that were ended, by a guard or a person.
    killed: usize,
    /// Calls that run in them.
    in_flight: u64,
}

impl Standings {
    fn add(&mut self, row: &Row) {
        self.in_flight += row.in_flight;
        let (count, sum) = match row.standing {
            Standing::Running => (&mut self.running, Some(&mut self.busy)),
            Standing::WaitingForApproval => (&mut self.waiting_for_approval, Some(&mut self.busy)),
            Standing::Idle => (&mut self.idle, None),
            Standing::Paused => (&mut self.paused, None),
            Standing::Finished => (&mut self.finished, None),
            Standing::StoppedByGuard => (&mut self.stopped_by_guard, Some(&mut self.killed)),
            Standing::StoppedByPerson => (&mut self.stopped_by_person, Some(&mut self.killed)),
        };
        *count += 1;
        if let Some(sum) = sum {
            *sum += 1;
        }
    }
}

/// Scopes on a page, unless asked for fewer.
const MOST: u32 = 1000;

/// Which scopes.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct StatusAsked {
    /// Scopes on a page.
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    limit: Option<u32>,
    /// Where to go on: `next` of the page before.
    #[param(max_length = 100)]
    cursor: Option<String>,
    /// Only this agent and what is below it.
    #[param(max_length = 200)]
    agent: Option<String>,
    /// Only scopes of this kind.
    #[param(inline)]
    kind: Option<KindAsked>,
    /// Only those that stand so.
    #[param(inline)]
    state: Option<StateAsked>,
    /// Only those whose names have this in them; case does not matter.
    #[param(max_length = 200)]
    name: Option<String>,
    /// Only those that were used at this time or later, in milliseconds since 1970, or run now.
    #[param(minimum = 0)]
    used_since: Option<u64>,
    /// How many limits each scope is listed with, the nearest first; all if it is left out.
    #[param(minimum = 0, maximum = 100)]
    limits: Option<u32>,
    /// The last used first, or the nearest to a limit first.
    #[param(inline)]
    order: Option<StatusOrder>,
}

/// A kind of scope.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KindAsked {
    /// Agents.
    Agent,
    /// Sessions.
    Session,
    /// What is nested in sessions.
    Nested,
}

/// How a scope stands.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StateAsked {
    /// It may go on, so may all above it, and its host did not say that it is over.
    Running,
    /// It is held.
    Paused,
    /// It was ended.
    Killed,
    /// It was not ended, neither was what is above it, and its host did not say that it is over.
    Alive,
}

/// Which comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StatusOrder {
    /// The last used.
    #[default]
    Used,
    /// The nearest to a limit.
    Danger,
}

impl StatusAsked {
    fn wants(&self, running: &Running, above: &[&'static str]) -> bool {
        let row = &running.row;
        let kind = match self.kind {
            None => true,
            Some(KindAsked::Agent) => row.kind == ScopeKind::Agent,
            Some(KindAsked::Session) => row.kind == ScopeKind::Session,
            Some(KindAsked::Nested) => row.kind == ScopeKind::Nested,
        };
        let over = row.standing == Standing::Finished;
        let alive = row.state != "killed" && !above.contains(&"killed") && !over;
        let state = match self.state {
            None => true,
            Some(StateAsked::Running) => {
                alive && row.state == "running" && !above.contains(&"paused")
            }
            Some(StateAsked::Paused) => row.state == "paused",
            Some(StateAsked::Killed) => row.state == "killed",
            Some(StateAsked::Alive) => alive,
        };
        let contains = |name: &String| row.name.to_lowercase().contains(&name.to_lowercase());
        let used = |since: u64| row.used_ms >= since || row.in_flight > 0 || row.state == "paused";
        kind && state
            && self.agent.as_ref().is_none_or(|agent| row.agent == *agent)
            && self.name.as_ref().is_none_or(contains)
            && self.used_since.is_none_or(used)
    }

    /// Where a scope stands in the order: smaller comes first.
    fn place(&self, running: &Running, number: i64) -> ListPosition {
        let (first, second) = match self.order.unwrap_or_default() {
            StatusOrder::Used => (0, running.row.used_ms),
            // Shares are not negative, so that their bits are in their order. Among equals the newest comes
            // first: when each was used last is not the same on every node, and the next page may come from
            // another one.
            StatusOrder::Danger => (running.share().max(0.0).to_bits(), number.unsigned_abs()),
        };
        (Reverse(first), Reverse(second), number)
    }
}

type ListPosition = (Reverse<u64>, Reverse<u64>, i64);

fn written(place: &ListPosition) -> String {
    format!("{:x}.{:x}.{:x}", place.0.0, place.1.0, place.2)
}

fn read(cursor: &str) -> Result<ListPosition, Problem> {
    let mut parts = cursor.split('.').map(|part| u64::from_str_radix(part, 16).ok());
    let mut next = || parts.next().flatten();
    match (next(), next(), next().and_then(|number| i64::try_from(number).ok())) {
        (Some(share), Some(used), Some(number)) => Ok((Reverse(share), Reverse(used), number)),
        _ => Err(deadstop_store::StoreError::Cursor.into()),
    }
}

/// What runs now.
#[utoipa::path(
    get, path = "/api/status", tag = "live", params(StatusAsked),
    responses((status = 200, description = "Scopes in memory", body = Status))
)]
pub(crate) async fn status(
    State(app): State<Arc<App>>,
    who: Who,
    Asked(asked): Asked<StatusAsked>,
) -> Result<Json<Status>, Problem> {
    let after = asked.cursor.as_deref().map(read).transpose()?;
    let (project, now) = (app.project(&who).await?, now());
    let whole = Running::of(&project, &project.scope, now);
    let scopes = app.warden.listed_scopes(&project.name);
    let agents: HashMap<&str, (&Scope, Row)> = scopes
        .iter()
        .filter(|scope| scope.kind() == ScopeKind::Agent)
        .map(|scope| (scope.name(), (&**scope, Row::of(scope))))
        .collect();
    let waiting = Waiting::of(&app, &project.name, now);
    let mut sessions = Standings::default();
    let mut found: Vec<(ListPosition, Running)> = Vec::new();
    let canaries = canary_owners(&scopes);
    let hidden = |scope: &Scope| match scope.kind() {
        ScopeKind::Agent => canaries.contains(scope.name()) && is_unused(scope),
        _ => is_canary(scope),
    };
    for scope in scopes.iter().filter(|scope| !hidden(scope)) {
        let agent = agents.get(scope.agent());
        let mut running = match scope.kind() {
            ScopeKind::Session => {
                Running::below(&project, agent.map(|(agent, _)| *agent), scope, now)
            }
            _ => Running::of(&project, scope, now),
        };
        let agent = agent.map(|(_, row)| row);
        let above = [whole.row.state, agent.map_or("running", |agent| agent.state)];
        if scope.kind() == ScopeKind::Session {
            let over = [whole.row.standing, agent.map_or(Standing::Running, |row| row.standing)];
            let waits = waiting.waits(scope.agent(), scope.name());
            running.row.standing = running.row.standing.under(&over, waits);
            sessions.add(&running.row);
        }
        let place = asked.place(&running, scope.number());
        if asked.wants(&running, &above) && after.is_none_or(|after| place > after) {
            found.push((place, running));
        }
    }
    found.sort_by_key(|(place, _)| *place);
    let most = asked.limit.unwrap_or(MOST) as usize;
    let next = (found.len() > most).then(|| written(&found[most - 1].0));
    found.truncate(most);
    let limits = asked.limits.map_or(usize::MAX, |limits| limits as usize);
    let shorten = |(_, mut running): (ListPosition, Running)| {
        running.limits.truncate(limits);
        running
    };
    let scopes = found.into_iter().map(shorten).collect();
    let cluster = Cluster::of(&app.warden, &project);
    let database = Degraded::database(&app.warden, &project);
    let key_grace = app.auth.grace.shown();
    Ok(Json(Status { project: whole, scopes, next, sessions, cluster, database, key_grace }))
}

/// Whether no call was made in a scope, and no order was given about it.
fn is_unused(scope: &Scope) -> bool {
    let state = scope.state();
    let (spent, flying) = (&state.ledger().spent, state.ledger().in_flight);
    let used = spent.steps + spent.model_calls + flying > 0;
    let ordered =
        scope.kind() == ScopeKind::Agent && (state.killed().is_some() || state.paused().is_some());
    !used && !ordered
}

/// Whether a scope is a session that `deadstop doctor` has stopped before its first call.
fn is_canary(scope: &Scope) -> bool {
    scope.kind() == ScopeKind::Session && scope.name().starts_with(CANARY) && is_unused(scope)
}

/// Agents that have no sessions but such.
fn canary_owners(scopes: &[Arc<Scope>]) -> HashSet<&str> {
    let sessions = || scopes.iter().filter(|scope| scope.kind() == ScopeKind::Session);
    let mut owners: HashSet<&str> =
        sessions().filter(|scope| is_canary(scope)).map(|scope| scope.agent()).collect();
    for scope in sessions().filter(|scope| !is_canary(scope)) {
        owners.remove(scope.agent());
    }
    owners
}

/// Events as they happen, and what a watcher missed that says what it saw last.
#[utoipa::path(
    get, path = "/api/events", tag = "live",
    params(("last-event-id" = Option<String>, Header, description = "The last event that was seen")),
    responses((status = 200, description = "Server-sent events", body = String, content_type = "text/event-stream"))
)]
pub(crate) async fn events(
    State(app): State<Arc<App>>,
    who: Who,
    headers: HeaderMap,
) -> impl IntoResponse {
    let since = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    // A new client gets the current id at once, so that it can resume from there even if its
    // connection breaks before the first event. Without data the line is no event.
    let here = app.warden.events.last();
    let (missed, live) = app.warden.events.watch(Some(since.unwrap_or(here)), now());
    let place = since.is_none().then(|| Sse::default().id(here.to_string()));
    let first: Vec<Sse> = match missed {
        Some(missed) => {
            missed.iter().filter(|event| event.project == who.project).map(told).collect()
        }
        None => {
            vec![Sse::default().event("missed").data("the events before this are no longer kept")]
        }
    };
    // A server that shuts down does not wait for watching clients.
    let over = app.warden.events.over.clone().cancelled_owned();
    let live = stream::unfold((live, who.project), |(mut live, project)| async move {
        use tokio::sync::broadcast::error::RecvError;
        let event = loop {
            match live.recv().await {
                Ok(event) if event.project == project => break told(&event),
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => {
                    break Sse::default().event("missed").data(missed.to_string());
                }
                Err(RecvError::Closed) => return None,
            }
        };
        Some((event, (live, project)))
    });
    let live = live.take_until(over);
    let all = stream::iter(place).chain(stream::iter(first)).chain(live).map(Ok::<_, Infallible>);
    Stream::new(all).keep_alive(KeepAlive::default())
}

fn told(event: &Event) -> Sse {
    let id = event.id.to_string();
    Sse::default().id(id).event(&event.what).json_data(event).unwrap_or_default()
}
