//! Changing a policy: read what is there, write the next version, put it into force.
//!
//! Changes come one after the other, so that each one starts from the newest version, and the
//! version in force is the one written last.

use std::collections::HashMap;
use std::sync::Arc;

use deadstop_core::PolicySet;
use deadstop_protocol::policy_views::{
    AgentDocument, PreventionConfig, Whose, effective, stored_policy, write_policy,
};
use deadstop_store::{PolicyChange, PolicyVersion, Store, StoreError};
use serde_json::{Value, json};

use super::super::App;
use super::super::auth::Who;
use super::super::extract::stale;
use super::super::problem::{Code, Problem};
use super::adopt::adopt;
use deadstop_warden::{Policies, Warden, now};

/// How often a change is tried again when another node was faster.
const ATTEMPTS: usize = 5;

/// Reads all policies and puts them into force: at the start.
pub(crate) async fn load(
    store: &Store,
    base: &PolicySet,
    warden: &Warden,
) -> Result<(), StoreError> {
    adopt(store, base).await?;
    let all = store.policies().await?;
    let mut projects: Vec<_> = all.iter().map(|version| version.project.as_str()).collect();
    projects.dedup();
    for project in projects {
        warden.set_policies(project, in_force(&all, project, base)).await?;
    }
    Ok(())
}

/// The policies of a project, from its current documents. One that cannot be read does not keep the
/// others from being in force: the default stands in for it, and the log says so.
fn in_force(all: &[PolicyVersion], project: &str, base: &PolicySet) -> Policies {
    let own = || all.iter().filter(|version| version.project == project);
    let default = own().find(|version| version.agent.is_none());
    let default = default.and_then(|version| {
        let document = version.document.as_ref()?;
        let value: Value = serde_json::from_str(document).unwrap_or_default();
        stored_policy(&value)
            .inspect_err(|error| tracing::error!(project, "the default policy: {error}"))
            .ok()
    });
    let default = default.unwrap_or_else(|| base.clone());
    let mut agents = HashMap::new();
    for version in own() {
        let (Some(agent), Some(text)) = (&version.agent, &version.document) else { continue };
        match AgentDocument::stored(text) {
            Ok(document) => {
                agents.insert(agent.clone(), Arc::new(effective(&default, &document)));
            }
            Err(error) => tracing::error!(project, agent, "{error}"),
        }
    }
    Policies { default: Arc::new(default), agents }
}

/// The project's default, and its version if it has one.
pub(crate) async fn current_default(
    app: &App,
    project: &str,
) -> Result<(Option<PolicyVersion>, PolicySet), Problem> {
    let version = app.store()?.policy(project, None).await?;
    let policies = read_default(app, version.as_ref().and_then(|v| v.document.as_deref()))?;
    Ok((version, policies))
}

/// A default's document, or else what the server was started with.
pub(crate) fn read_default(app: &App, document: Option<&str>) -> Result<PolicySet, Problem> {
    let Some(document) = document else { return Ok(app.base.clone()) };
    let value: Value = serde_json::from_str(document).unwrap_or_default();
    stored_policy(&value).map_err(unreadable)
}

/// What an agent has of its own, and its version if it has one.
pub(crate) async fn current_agent(
    app: &App,
    project: &str,
    agent: &str,
) -> Result<(Option<PolicyVersion>, AgentDocument), Problem> {
    let version = app.store()?.policy(project, Some(agent)).await?;
    let document = read_agent(version.as_ref().and_then(|v| v.document.as_deref()))?;
    Ok((version, document))
}

/// An agent's document, or an empty one.
pub(crate) fn read_agent(document: Option<&str>) -> Result<AgentDocument, Problem> {
    let document = document.map(AgentDocument::stored).transpose();
    Ok(document.map_err(|error| unreadable(error.to_string()))?.unwrap_or_default())
}

fn unreadable(error: impl std::fmt::Display) -> Problem {
    tracing::error!("{error}");
    Problem::new(Code::Internal, format!("a stored policy cannot be read: {error}"))
}

/// Fails unless the agent is known: it made a call, or has a policy.
pub(super) async fn known_agent(app: &App, project: &str, agent: &str) -> Result<(), Problem> {
    let store = app.store()?;
    let known = app.warden.live_agent(project, agent).is_some()
        || store.agent(project, agent).await?.is_some()
        || store.policy(project, Some(agent)).await?.is_some();
    if known { Ok(()) } else { Err(Problem::not_found("agent")) }
}

/// Writes a new version of the default: what the change makes of the one in force, or nothing to go
/// back to what the server was started with.
pub(super) async fn change_default(
    app: &App,
    who: &Who,
    expected: Option<i64>,
    reason: &str,
    change: impl Fn(PolicySet) -> Option<PolicySet>,
) -> Result<(), Problem> {
    put(app, who, &Target { agent: None, expected, reason }, |current| {
        let policies = change(current.default);
        let document = policies.as_ref().map(|policies| write_policy(policies, Whose::Project));
        Next {
            document: document.map(|document| document.to_string()),
            prevention: policies.as_ref().map(PreventionConfig::of),
        }
    })
    .await
}

/// Writes a new version of what an agent has of its own. The change is told the default.
pub(crate) async fn change_agent(
    app: &App,
    who: &Who,
    agent: &str,
    expected: Option<i64>,
    reason: &str,
    change: impl Fn(&PolicySet, AgentDocument) -> AgentDocument,
) -> Result<(), Problem> {
    put(app, who, &Target { agent: Some(agent), expected, reason }, |current| {
        let document = change(&current.default, current.document);
        Next {
            prevention: document.policy.as_ref().map(PreventionConfig::of),
            document: (!document.is_empty()).then(|| document.to_json().to_string()),
        }
    })
    .await
}

/// Which document is changed, and why.
struct Target<'a> {
    agent: Option<&'a str>,
    expected: Option<i64>,
    reason: &'a str,
}

/// The current version.
struct Current {
    version: i64,
    /// Whether it is the default already.
    is_default: bool,
    default: PolicySet,
    /// Empty where the default is changed.
    document: AgentDocument,
}

/// The next version.
struct Next {
    document: Option<String>,
    prevention: Option<PreventionConfig>,
}

async fn current(app: &App, project: &str, agent: Option<&str>) -> Result<Current, Problem> {
    let (version, default) = current_default(app, project).await?;
    let (version, document) = match agent {
        Some(agent) => current_agent(app, project, agent).await?,
        None => (version, AgentDocument::default()),
    };
    let is_default = version.as_ref().is_none_or(|version| version.document.is_none());
    let version = version.map_or(0, |version| version.version);
    Ok(Current { version, is_default, default, document })
}

async fn put(
    app: &App,
    who: &Who,
    target: &Target<'_>,
    next: impl Fn(Current) -> Next,
) -> Result<(), Problem> {
    let store = app.store()?;
    let _turn = app.policy_turn.lock().await;
    adopt(store, &app.base).await?;
    for attempt in 1.. {
        let current = current(app, &who.project, target.agent).await?;
        let version = current.version;
        if target.expected.is_some_and(|expected| expected != version) {
            return Err(stale());
        }
        let was_default = current.is_default;
        let next = next(current);
        if was_default && next.document.is_none() {
            return Ok(());
        }
        let subject = target.agent.unwrap_or("default");
        let action = if next.document.is_some() { "policy.set" } else { "policy.reset" };
        let detail = json!({ "version": version + 1, "agent": target.agent });
        let event = app.event(who, action, subject, target.reason, &detail);
        let change = PolicyChange {
            project: who.project.clone(),
            agent: target.agent.map(str::to_owned),
            expected: Some(version),
            at: now(),
            who: event.who.clone(),
            note: event.reason.clone(),
            document: next.document,
            prevention: next.prevention.as_ref().map(columns),
        };
        match store.put_policy(&change, Some(&event)).await {
            Ok(_) => break,
            Err(StoreError::Conflict { .. }) if attempt < ATTEMPTS => {}
            Err(error) => return Err(error.into()),
        }
    }
    let all = store.policies().await?;
    app.warden.set_policies(&who.project, in_force(&all, &who.project, &app.base)).await?;
    app.warden.announce_project(&who.project).await;
    let text = format!("the policy of {} was changed", target.agent.unwrap_or("the project"));
    app.warden.tell_change(&who.project, target.agent.unwrap_or_default(), text);
    Ok(())
}

/// The seed page's columns.
pub(super) fn columns(config: &PreventionConfig) -> deadstop_store::PreventionConfig {
    let PreventionConfig { loop_detection, budget, circuit_breaker } = config;
    let action = serde_json::to_value(loop_detection.action).unwrap_or_default();
    deadstop_store::PreventionConfig {
        loop_enabled: loop_detection.enabled,
        loop_threshold: loop_detection.threshold.into(),
        loop_action: action.as_str().unwrap_or_default().to_owned(),
        loop_max_steps: loop_detection.max_steps,
        budget_max_cost: budget.max_cost_usd.map(|dollars| dollars.0),
        budget_soft_alert: budget.soft_alert_threshold_usd.map(|dollars| dollars.0),
        budget_max_wall_time_secs: budget.max_wall_time_seconds.map(|seconds| seconds.0),
        cb_enabled: circuit_breaker.enabled,
        cb_open_after_failures: circuit_breaker.open_after_failures.into(),
        cb_cooldown_seconds: circuit_breaker.cooldown_seconds.0,
        cb_half_open_max_calls: circuit_breaker.half_open_max_calls.into(),
    }
}
