//! Agents: the list, their health, and the switch.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deadstop_core::{GuardId, Kill, Millis, Verdict};
use deadstop_protocol::policy_views::FieldFault;
use deadstop_store::{AgentFilter, Counters, IncidentFilter, Paging, Period, Store, StoredAgent};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::auth::Who;
use super::extract::{AskedBoth, At, Body, Name, Page, Paged, Strict};
use super::gauge::Quota;
use super::live::Row;
use super::orders::{Why, carry_out};
use super::problem::{Code, Problem};
use deadstop_warden::{Scope, What, now};

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

impl From<&Row> for Totals {
    fn from(row: &Row) -> Totals {
        Totals {
            calls: row.steps + row.model_calls,
            loops: 0,
            incidents: 0,
            tokens: row.input_tokens + row.output_tokens,
            cost_usd: row.cost_usd,
        }
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
    /// The windows that its providers have reported and that have not begun anew, the fullest first.
    quotas: Vec<Quota>,
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
            quotas: Vec::new(),
            totals: stored.counters.into(),
            name: stored.name,
        };
        if let Some(scope) = live {
            let state = scope.state();
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
    Ok(Json(Page::of(found, |agent| {
        let live = app.warden.live_agent(&who.project, &agent.name);
        Agent::of(agent, live.as_deref(), &recent)
    })))
}

/// The agents that had an incident or a loop in the last day, on whichever node.
struct Recent(HashSet<String>);

impl Recent {
    /// Of one agent, or of all.
    async fn read(store: &Store, project: &str, agent: Option<&str>) -> Result<Recent, Problem> {
        let from = deadstop_core::Time(now().0.saturating_sub(RECENT.0));
        let filter = IncidentFilter {
            agent: agent.map(str::to_owned),
            period: Period { from: Some(from), to: None },
            ..IncidentFilter::default()
        };
        let groups = store.incident_groups(project, &filter, &Paging::first(1000)).await?;
        // A loop that only warns is no incident.
        let loops = GuardId::ALL.into_iter();
        let loops: Vec<_> =
            loops.filter(|guard| guard.tag(Verdict::Warn) == "loop_detected").collect();
        let mut found = store.tripped_since(project, agent, &loops, from).await?;
        found.extend(groups.items.into_iter().map(|group| group.agent));
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
    Ok(Json(Agent::of(stored, live.as_deref(), &recent)))
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
        counters: Counters {
            calls: row.steps + row.model_calls,
            tokens: deadstop_core::Tokens(row.input_tokens + row.output_tokens),
            cost: deadstop_core::NanoUsd::from_dollars(row.cost_usd).unwrap_or_default(),
            ..Counters::default()
        },
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
