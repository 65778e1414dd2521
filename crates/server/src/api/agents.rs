//! Agents: the list, their health, and the switch.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deadstop_core::{GuardId, Kill, Millis, Verdict};
use deadstop_protocol::policy_views::FieldFault;
use deadstop_store::{AgentFilter, Counters, Paging, Store, StoredAgent};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::auth::Who;
use super::extract::{Asked, AskedBoth, At, Body, Name, Page, Paged, Strict};
use super::gauge::{FailingServer, Quota};
use super::live::Row;
use super::orders::{Why, carry_out};
use super::problem::{Code, Problem, ProblemBody};
use deadstop_protocol::near::nearest;
use deadstop_warden::{NotRemoved, Project, Scope, What, now};

/// An agent with incidents younger than this has something to look at.
const RECENT: Millis = Millis::from_secs(24 * 60 * 60);

/// What calls came to.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub(crate) struct Totals {
    /// Calls, models and tools together.
    calls: u64,
    /// Loops: all trips of one streak count once.
    loops: u64,
    /// Trips that blocked or killed.
    incidents: u64,
    /// Tokens of all kinds.
    tokens: u64,
    /// Dollars.
    cost_usd: f64,
}

impl From<Counters> for Totals {
    fn from(counters: Counters) -> Totals {
        Totals {
            calls: counters.calls,
            loops: counters.loops,
            incidents: counters.incidents,
            tokens: counters.tokens.0,
            cost_usd: counters.cost.dollars(),
        }
    }
}

impl Totals {
    /// What is in memory is newer than what is written, unless another node has written since.
    pub(super) fn newest(stored: Counters, live: Option<&Scope>) -> Totals {
        let live = live.map(Scope::counters).filter(|live| live.version >= stored.version);
        live.unwrap_or(stored).into()
    }
}

/// An agent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Agent {
    /// Its name.
    name: String,
    /// Whether it may run.
    active: bool,
    /// Who switched it off: `kill_switch`, another guard, or a person.
    #[schema(required)]
    deactivated_by: Option<String>,
    /// When.
    #[schema(required)]
    deactivated_ms: Option<u64>,
    /// Why, in a sentence.
    #[schema(required)]
    why: Option<String>,
    /// `ok`, `warning` (incidents or loops in the last 24 hours), `paused` or `stopped`.
    health: &'static str,
    /// What people have tagged it with.
    tags: Vec<String>,
    /// When it was first heard of.
    opened_ms: u64,
    /// When it last did something.
    used_ms: u64,
    /// When an operator removed it; null if it is listed.
    #[schema(required)]
    removed_ms: Option<u64>,
    /// The windows that its providers have reported and that have not begun anew, the fullest first.
    quotas: Vec<Quota>,
    /// The providers and tool servers that fail, so that their calls are refused for a while.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    failing: Vec<FailingServer>,
    #[serde(flatten)]
    totals: Totals,
}

impl Agent {
    /// The stored agent, updated with the newer values in memory.
    fn of(stored: StoredAgent, live: Option<&Scope>, recent: &Recent) -> Agent {
        let mut agent = Agent {
            active: stored.active,
            deactivated_by: stored.deactivated_by,
            deactivated_ms: stored.deactivated.map(|at| at.0),
            why: None,
            health: if recent.0.contains(&stored.name) { "warning" } else { "ok" },
            tags: stored.tags,
            opened_ms: stored.opened.0,
            used_ms: stored.used.0,
            removed_ms: stored.removed.filter(|at| stored.used <= *at).map(|at| at.0),
            quotas: Vec::new(),
            failing: Vec::new(),
            totals: Totals::newest(stored.counters, live),
            name: stored.name,
        };
        if let Some(scope) = live {
            let state = scope.state();
            agent.removed_ms = agent.removed_ms.filter(|at| scope.used().0 <= *at);
            agent.quotas = Quota::all(&state, now());
            agent.active = state.killed().is_none();
            agent.deactivated_by = state.killed().map(deactivated_by);
            agent.deactivated_ms = state.killed().map(|kill| kill.at.0);
            agent.why = state.killed().map(|kill| kill.because.clone());
            if scope.looped().is_some_and(|at| now().since(at) < RECENT) {
                agent.health = "warning";
            }
            if let Some(pause) = state.paused() {
                agent.why.get_or_insert_with(|| pause.because.clone());
                agent.health = "paused";
            }
        }
        if !agent.active {
            agent.health = "stopped";
        }
        agent
    }
}

impl Agent {
    fn with_failing(self, project: &Project, live: Option<&Scope>) -> Agent {
        let of = |scope| FailingServer::of_agent(project, scope, now());
        Agent { failing: live.map(of).unwrap_or_default(), ..self }
    }
}

/// Who ended an agent, in the seed page's word where it was the kill switch.
pub(crate) fn deactivated_by(kill: &Kill) -> String {
    match kill.guard {
        Some(GuardId::Similarity) => "kill_switch".to_owned(),
        Some(guard) => guard.name().to_owned(),
        None => kill.by.clone(),
    }
}

/// Which agents.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct AgentsAsked {
    /// Only those that may run, or only those that may not.
    active: Option<bool>,
    /// Only those with this tag.
    #[param(max_length = 50)]
    tag: Option<String>,
}

/// The agents of the project.
#[utoipa::path(
    get, path = "/api/agents", tag = "agents", params(Paged, AgentsAsked),
    responses((status = 200, description = "By name", body = Page<Agent>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    who: Who,
    AskedBoth(paged, asked): AskedBoth<Paged, AgentsAsked>,
) -> Result<Json<Page<Agent>>, Problem> {
    let store = app.store()?;
    let filter = AgentFilter { active: asked.active, tag: asked.tag };
    let found = store.agents(&who.project, &filter, &paged.paging()).await?;
    let recent = Recent::read(store, &who.project, None).await?;
    let project = app.project(&who).await?;
    Ok(Json(Page::of(found, |agent| {
        let live = app.warden.live_agent(&who.project, &agent.name);
        Agent::of(agent, live.as_deref(), &recent).with_failing(&project, live.as_deref())
    })))
}

/// How many agents there are, and how they are.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct AgentHealth {
    /// All that lists name.
    agents: usize,
    /// Those with nothing to look at.
    ok: usize,
    /// Those with incidents or loops in the last 24 hours.
    warning: usize,
    /// Those that are paused.
    paused: usize,
    /// Those that are stopped.
    stopped: usize,
}

/// How many agents there are, and how they are: of all of them, however many pages the list has.
#[utoipa::path(
    get, path = "/api/agent-health", tag = "agents",
    responses((status = 200, description = "Numbers of agents", body = AgentHealth))
)]
pub(crate) async fn health(
    State(app): State<Arc<App>>,
    who: Who,
) -> Result<Json<AgentHealth>, Problem> {
    let store = app.store()?;
    let recent = Recent::read(store, &who.project, None).await?;
    let (mut health, mut cursor) = (AgentHealth::default(), None);
    loop {
        let paging = Paging { cursor, ..Paging::first(1000) };
        let page = store.agents(&who.project, &AgentFilter::default(), &paging).await?;
        for agent in page.items {
            let live = app.warden.live_agent(&who.project, &agent.name);
            health.agents += 1;
            *match Agent::of(agent, live.as_deref(), &recent).health {
                "warning" => &mut health.warning,
                "paused" => &mut health.paused,
                "stopped" => &mut health.stopped,
                _ => &mut health.ok,
            } += 1;
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(Json(health));
        }
    }
}

/// The agents that had an incident or a loop in the last day, on whichever node.
struct Recent(HashSet<String>);

impl Recent {
    /// Of one agent, or of all.
    async fn read(store: &Store, project: &str, agent: Option<&str>) -> Result<Recent, Problem> {
        let from = deadstop_core::Time(now().0.saturating_sub(RECENT.0));
        // A loop that only warns is no incident.
        let loops = GuardId::ALL.into_iter();
        let loops: Vec<_> =
            loops.filter(|guard| guard.tag(Verdict::Warn) == "loop_detected").collect();
        let mut found = store.tripped_since(project, agent, &loops, from).await?;
        found.extend(store.troubled_since(project, agent, from).await?);
        Ok(Recent(found))
    }
}

/// One agent.
#[utoipa::path(
    get, path = "/api/agents/{name}", tag = "agents",
    params(("name" = String, Path, description = "The agent")),
    responses((status = 200, description = "The agent", body = Agent))
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(name)): At<Name>,
) -> Result<Json<Agent>, Problem> {
    show(&app, &who, &name).await
}

async fn show(app: &App, who: &Who, name: &str) -> Result<Json<Agent>, Problem> {
    who.may_see(name)?;
    let store = app.store()?;
    let live = app.warden.live_agent(&who.project, name);
    let stored = match (store.agent(&who.project, name).await?, &live) {
        (Some(stored), _) => stored,
        (None, Some(scope)) => unwritten(&who.project, scope),
        (None, None) => return Err(Problem::not_found("agent")),
    };
    let recent = Recent::read(store, &who.project, Some(name)).await?;
    let project = app.project(who).await?;
    let agent = Agent::of(stored, live.as_deref(), &recent);
    Ok(Json(agent.with_failing(&project, live.as_deref())))
}

/// An agent that is in use and not written yet.
fn unwritten(project: &str, scope: &Scope) -> StoredAgent {
    let row = Row::of(scope);
    StoredAgent {
        number: 0,
        project: project.to_owned(),
        name: scope.name().to_owned(),
        opened: deadstop_core::Time(row.opened_ms),
        used: deadstop_core::Time(row.used_ms),
        tags: Vec::new(),
        active: true,
        deactivated_by: None,
        deactivated: None,
        removed: None,
        counters: scope.counters(),
    }
}

/// Why an agent is removed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct RemovalAsked {
    /// Why.
    #[param(max_length = 1000)]
    reason: Option<String>,
    /// The person who says so, where a client speaks for several.
    #[param(max_length = 200)]
    by: Option<String>,
}

/// An agent that was removed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RemovedAgent {
    /// Its name.
    name: String,
    /// When. A later use lists it again.
    removed_ms: u64,
    /// Whether it is stopped. It stays so: its calls are refused until it is resumed.
    stopped: bool,
    /// Whether it is paused. It stays so.
    paused: bool,
    /// What was done and what stays, in sentences.
    text: String,
}

/// Removes an agent from lists and counts, until it is used again. Its calls, sessions, incidents, policy,
/// keys and audit entries stay. A stop or pause stays too.
#[utoipa::path(
    delete, path = "/api/agents/{name}", tag = "agents",
    params(("name" = String, Path, description = "The agent"), RemovalAsked),
    responses(
        (status = 200, description = "Removed, on all nodes and on disk", body = RemovedAgent),
        (status = 404, description = "`no_agent`, with the nearest names", body = ProblemBody, content_type = "application/problem+json"),
        (status = 409, description = "`calls_in_flight`", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(name)): At<Name>,
    Asked(asked): Asked<RemovalAsked>,
) -> Result<Json<RemovedAgent>, Problem> {
    who.may_see(&name)?;
    app.store()?;
    let reason = asked.reason.unwrap_or_default();
    let mut event = app.event(&who, "agent.remove", &name, &reason, &json!({}));
    event.who = app.redacted(&who, &who.signed(asked.by.as_deref()));
    let removed = match app.warden.remove_agent(&who.project, &name, &event).await {
        Ok(removed) => removed,
        Err(error) => return Err(not_removed(&app, &who, &name, error).await),
    };
    app.warden.tell_change(&who.project, &name, format!("the agent {name} was removed"));
    let stays = match (removed.stopped, removed.paused) {
        (true, _) => " It is still stopped: its calls are refused until you resume it.",
        (false, true) => " It is still paused: its next call is held until you resume it.",
        (false, false) => "",
    };
    let text = format!(
        "Removed agent `{name}` from lists. Its records stay; its next call lists it again.{stays}"
    );
    Ok(Json(RemovedAgent {
        name,
        removed_ms: removed.at.0,
        stopped: removed.stopped,
        paused: removed.paused,
        text,
    }))
}

async fn not_removed(app: &App, who: &Who, name: &str, error: NotRemoved) -> Problem {
    match error {
        NotRemoved::Unknown => {
            let near = nearest(name, app.warden.agent_names(&who.project).await);
            let near: Vec<String> = near.into_iter().map(|near| format!("`{near}`")).collect();
            let meant = match near.is_empty() {
                true => String::new(),
                false => format!(" Did you mean {}?", near.join(" or ")),
            };
            let text = format!("Nothing was removed: the server lists no agent `{name}`.{meant}");
            Problem::new(Code::NoAgent, text)
        }
        NotRemoved::Busy(calls) => Problem::new(
            Code::CallsInFlight,
            format!(
                "Nothing was removed: agent `{name}` has {calls} {} in flight. Wait until no \
                 call runs, or stop the agent first.",
                if calls == 1 { "call" } else { "calls" }
            ),
        ),
        NotRemoved::NotDurable(error) => Problem::new(
            Code::StoreFailed,
            format!("Nothing was removed: what the agent did could not be written: {error}"),
        ),
        NotRemoved::Store(error) => error.into(),
    }
}

/// What to change about an agent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentChange {
    /// Switches it on or off. Switched on, its windows are empty and its next call runs.
    active: Option<bool>,
    /// Replaces its tags.
    #[schema(max_items = 50)]
    tags: Option<Vec<String>>,
    /// Why.
    #[serde(default)]
    #[schema(max_length = 1000)]
    reason: String,
    /// The person who says so, where a client speaks for several.
    #[schema(max_length = 200)]
    by: Option<String>,
}

impl Strict for AgentChange {}

/// Switches an agent on or off, or tags it.
#[utoipa::path(
    patch, path = "/api/agents/{name}", tag = "agents", request_body = AgentChange,
    params(("name" = String, Path, description = "The agent")),
    responses((status = 200, description = "In force and on disk", body = Agent))
)]
pub(crate) async fn change(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(name)): At<Name>,
    Body(change): Body<AgentChange>,
) -> Result<Json<Agent>, Problem> {
    if let Some(tags) = &change.tags {
        let bad = |tag: &String| {
            tag.trim().is_empty() || tag.chars().count() > 50 || tag.chars().any(char::is_control)
        };
        if let Some(at) = tags.iter().position(bad) {
            let fault = FieldFault::invalid(format!("tags[{at}]"), "a tag has 1 to 50 characters");
            return Err(Problem::fields(Code::InvalidBody, vec![fault]));
        }
    }
    if change.active != Some(false) || change.tags.is_some() {
        who.must_loosen()?;
    }
    // Fails if the agent is unknown.
    let Json(_) = show(&app, &who, &name).await?;
    if let Some(tags) = &change.tags {
        let tags: Vec<_> = tags.iter().map(|tag| app.redacted(&who, tag)).collect();
        let event = app.event(&who, "agent.tag", &name, &change.reason, &json!({ "tags": tags }));
        app.store()?.set_agent_tags(&who.project, &name, &tags, Some(&event)).await?;
    }
    if let Some(active) = change.active {
        let scope = app.warden.agent_in(&who.project, &name).await?;
        let what = if active { What::Clear } else { What::Kill };
        let why = Why { reason: change.reason, by: change.by };
        let Json(_) = carry_out(&app, &who, &scope, what, &why).await?;
    }
    show(&app, &who, &name).await
}
