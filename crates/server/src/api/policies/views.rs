//! The seed pages' own routes: `prevention-config` and `kill-switch`, views of the policy.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use deadstop_core::{Preset, SimilaritySettings};
use deadstop_protocol::policy_views::{
    AgentDocument, BudgetControls, CircuitBreaker, KillSwitch, LoopDetection, PreventionConfig,
    Whose, effective, write_policy,
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::super::App;
use super::super::auth::Who;
use super::super::extract::{At, Body, ETag, IfMatch, Name, Needed};
use super::super::problem::Problem;
use super::change::{change_agent, change_default, current_agent, current_default, known_agent};

/// The guards in force, and whose they are.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Prevention {
    /// The agent; null for the project's default.
    #[schema(required)]
    agent_name: Option<String>,
    /// Whether the agent has guards of its own.
    is_agent_override: bool,
    loop_detection: LoopDetection,
    budget: BudgetControls,
    circuit_breaker: CircuitBreaker,
}

impl Prevention {
    fn of(agent_name: Option<&str>, is_agent_override: bool, config: PreventionConfig) -> Self {
        let PreventionConfig { loop_detection, budget, circuit_breaker } = config;
        let agent_name = agent_name.map(str::to_owned);
        Prevention { agent_name, is_agent_override, loop_detection, budget, circuit_breaker }
    }
}

/// The guards in force for an agent: its own, or else the project's, also before its first call.
#[utoipa::path(
    get, path = "/api/agents/{name}/prevention-config", tag = "guards",
    params(("name" = String, Path, description = "The agent")),
    responses((status = 200, description = "In force", body = Prevention))
)]
pub(crate) async fn get_prevention(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(agent)): At<Name>,
) -> Result<Response, Problem> {
    prevention(&app, &who, &agent).await
}

async fn prevention(app: &App, who: &Who, agent: &str) -> Result<Response, Problem> {
    let (_, default) = current_default(app, &who.project).await?;
    let (version, document) = current_agent(app, &who.project, agent).await?;
    let config = PreventionConfig::of(&effective(&default, &document));
    let body = Prevention::of(Some(agent), document.policy.is_some(), config);
    Ok((ETag(version.map_or(0, |version| version.version)), Json(body)).into_response())
}

/// Gives an agent guards of its own.
#[utoipa::path(
    put, path = "/api/agents/{name}/prevention-config", tag = "guards",
    request_body = PreventionConfig,
    params(
        ("name" = String, Path, description = "The agent; it need not have been heard of yet"),
        ("if-match" = Option<String>, Header, description = "The ETag of what it replaces"),
    ),
    responses((status = 200, description = "In force", body = Prevention))
)]
pub(crate) async fn put_prevention(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(agent)): At<Name>,
    if_match: IfMatch,
    Body(config): Body<PreventionConfig>,
) -> Result<Response, Problem> {
    let expected = if_match.expected(Needed::No)?;
    let change = |default: &_, document: AgentDocument| {
        let mut policy = document.policy.unwrap_or_else(|| Clone::clone(default));
        config.write(&mut policy);
        AgentDocument { policy: Some(policy), ..document }
    };
    change_agent(&app, &who, &agent, expected, "prevention-config", change).await?;
    prevention(&app, &who, &agent).await
}

/// Takes an agent back to the project's guards. Its kill switch stays.
#[utoipa::path(
    delete, path = "/api/agents/{name}/prevention-config", tag = "guards",
    params(
        ("name" = String, Path, description = "The agent"),
        ("if-match" = Option<String>, Header, description = "The ETag of what it replaces"),
    ),
    responses((status = 200, description = "In force", body = Prevention))
)]
pub(crate) async fn delete_prevention(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(agent)): At<Name>,
    if_match: IfMatch,
) -> Result<Response, Problem> {
    known_agent(&app, &who.project, &agent).await?;
    let expected = if_match.expected(Needed::No)?;
    let change = |_: &_, document: AgentDocument| AgentDocument { policy: None, ..document };
    change_agent(&app, &who, &agent, expected, "prevention-config reset", change).await?;
    prevention(&app, &who, &agent).await
}

/// The project's guards, for every agent that has none of its own.
#[utoipa::path(
    get, path = "/api/projects/prevention-config", tag = "guards",
    responses((status = 200, description = "In force", body = Prevention))
)]
pub(crate) async fn get_project_prevention(
    State(app): State<Arc<App>>,
    who: Who,
) -> Result<Response, Problem> {
    let (version, default) = current_default(&app, &who.project).await?;
    let body = Prevention::of(None, false, PreventionConfig::of(&default));
    Ok((ETag(version.map_or(0, |version| version.version)), Json(body)).into_response())
}

/// Sets the project's guards.
#[utoipa::path(
    put, path = "/api/projects/prevention-config", tag = "guards",
    request_body = PreventionConfig,
    params(("if-match" = Option<String>, Header, description = "The ETag of what it replaces")),
    responses((status = 200, description = "In force", body = Prevention))
)]
pub(crate) async fn put_project_prevention(
    State(app): State<Arc<App>>,
    who: Who,
    if_match: IfMatch,
    Body(config): Body<PreventionConfig>,
) -> Result<Response, Problem> {
    let expected = if_match.expected(Needed::No)?;
    let change = |mut policies| {
        config.write(&mut policies);
        Some(policies)
    };
    change_default(&app, &who, expected, "prevention-config", change).await?;
    get_project_prevention(State(app), who).await
}

/// An agent's kill switch: its own, or else the project's, also before its first call.
#[utoipa::path(
    get, path = "/api/agents/{name}/kill-switch", tag = "guards",
    params(("name" = String, Path, description = "The agent")),
    responses((status = 200, description = "In force", body = KillSwitch))
)]
pub(crate) async fn get_kill_switch(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(agent)): At<Name>,
) -> Result<Response, Problem> {
    kill_switch(&app, &who, &agent).await
}

async fn kill_switch(app: &App, who: &Who, agent: &str) -> Result<Response, Problem> {
    let (_, default) = current_default(app, &who.project).await?;
    let (version, document) = current_agent(app, &who.project, agent).await?;
    let switch = KillSwitch::of(&effective(&default, &document));
    Ok((ETag(version.map_or(0, |version| version.version)), Json(switch)).into_response())
}

/// Sets an agent's kill switch.
#[utoipa::path(
    put, path = "/api/agents/{name}/kill-switch", tag = "guards", request_body = KillSwitch,
    params(
        ("name" = String, Path, description = "The agent; it need not have been heard of yet"),
        ("if-match" = Option<String>, Header, description = "The ETag of what it replaces"),
    ),
    responses((status = 200, description = "In force", body = KillSwitch))
)]
pub(crate) async fn put_kill_switch(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(agent)): At<Name>,
    if_match: IfMatch,
    Body(switch): Body<KillSwitch>,
) -> Result<Response, Problem> {
    let expected = if_match.expected(Needed::No)?;
    let change =
        |_: &_, document: AgentDocument| AgentDocument { kill_switch: Some(switch), ..document };
    change_agent(&app, &who, &agent, expected, "kill-switch", change).await?;
    kill_switch(&app, &who, &agent).await
}

/// Ready-made settings, the tightest kill switch first and the mildest policy first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Presets {
    /// Kill switches.
    kill_switch: Vec<KillSwitchPreset>,
    /// Whole policies.
    policies: Vec<PolicyPreset>,
}

/// A ready-made kill switch.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KillSwitchPreset {
    /// What it is called.
    name: &'static str,
    /// Recent requests to look at.
    window_size: u32,
    /// The score that must be exceeded.
    threshold: f64,
}

/// A ready-made policy.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PolicyPreset {
    /// What it is called.
    name: &'static str,
    /// The whole policy, as `PUT /api/policies/default` takes it.
    policy: Value,
}

/// Ready-made settings to start from.
#[utoipa::path(
    get, path = "/api/presets", tag = "guards",
    responses((status = 200, description = "The same for every project", body = Presets))
)]
pub(crate) async fn presets(_who: Who) -> Json<Presets> {
    let kill_switch = SimilaritySettings::presets().into_iter().map(|(name, settings)| {
        let SimilaritySettings { window_size, threshold, .. } = settings;
        KillSwitchPreset { name, window_size, threshold }
    });
    let policies = Preset::ALL.into_iter().map(|preset| {
        let policy = write_policy(&preset.policies(), Whose::Project);
        PolicyPreset { name: preset.name(), policy }
    });
    Json(Presets { kill_switch: kill_switch.collect(), policies: policies.collect() })
}
