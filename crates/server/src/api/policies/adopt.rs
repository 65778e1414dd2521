//! The table `prevention_configs` counts, too: a row that was changed, added or deleted in the database
//! becomes the next version of its document.
//!
//! Rows are compared with what this program wrote into them, at the start and before each change of a
//! policy; nodes of a cluster also do so whenever they read policies again.

use deadstop_core::PolicySet;
use deadstop_protocol::policy_views::{
    AgentDocument, PreventionConfig, Whose, stored_policy, write_policy,
};
use deadstop_store::{AuditEvent, PolicyChange, PolicyVersion, PreventionRow, Store, StoreError};
use serde_json::{Value, json};

use super::change::columns;
use deadstop_warden::now;

/// Who changed a policy, where a row says so.
const WHO: &str = "database";

/// Makes versions of what was changed in the table.
pub(super) async fn adopt(store: &Store, base: &PolicySet) -> Result<(), StoreError> {
    let rows = store.prevention_rows().await?;
    let all = store.policies().await?;
    for row in &rows {
        let version = find(&all, &row.project, row.agent.as_deref());
        let known = version.is_some_and(|version| version.document.is_some());
        // A row without a mark is new if there is no document; otherwise an earlier version wrote it.
        if row.is_changed() || (row.written.is_none() && !known) {
            changed(store, base, &all, row, version).await?;
        }
    }
    for version in &all {
        let same =
            |row: &PreventionRow| row.project == version.project && row.agent == version.agent;
        if !rows.iter().any(same) {
            deleted(store, version).await?;
        }
    }
    Ok(())
}

fn find<'a>(
    all: &'a [PolicyVersion],
    project: &str,
    agent: Option<&str>,
) -> Option<&'a PolicyVersion> {
    all.iter().find(|version| version.project == project && version.agent.as_deref() == agent)
}

/// A default policy; nothing if its document cannot be read.
fn default(version: Option<&PolicyVersion>, base: &PolicySet) -> Option<PolicySet> {
    let Some(text) = version.and_then(|version| version.document.as_ref()) else {
        return Some(base.clone());
    };
    stored_policy(&serde_json::from_str(text).unwrap_or_default()).ok()
}

/// An agent's document; nothing if it cannot be read.
fn document(version: Option<&PolicyVersion>) -> Option<AgentDocument> {
    match version.and_then(|version| version.document.as_ref()) {
        Some(text) => AgentDocument::stored(text).ok(),
        None => Some(AgentDocument::default()),
    }
}

/// Writes what a row says into its document.
async fn changed(
    store: &Store,
    base: &PolicySet,
    all: &[PolicyVersion],
    row: &PreventionRow,
    version: Option<&PolicyVersion>,
) -> Result<(), StoreError> {
    let (project, agent) = (row.project.as_str(), row.agent.as_deref());
    let Some(default) = default(find(all, project, None), base) else { return Ok(()) };
    let Some(document) = document(version.filter(|_| agent.is_some())) else { return Ok(()) };
    let mut policies = document.policy.clone().unwrap_or(default);
    let config = match said(&policies, row) {
        Ok(config) => config,
        Err(why) => {
            tracing::error!(
                project,
                agent,
                "prevention_configs: a row was changed to what cannot be: {why}; \
                 the policy of before stays in force"
            );
            return Ok(());
        }
    };
    config.write(&mut policies);
    let kept = columns(&PreventionConfig::of(&policies));
    let text = match agent {
        None => write_policy(&policies, Whose::Project).to_string(),
        Some(_) => {
            let policy = Some(policies);
            AgentDocument { policy, ..document }.to_json().to_string()
        }
    };
    write(store, project, agent, version, Some(text), Some(kept)).await
}

/// A row is gone: the agent goes back to the default, the default to what the server was started with.
async fn deleted(store: &Store, version: &PolicyVersion) -> Result<(), StoreError> {
    let (project, agent) = (version.project.as_str(), version.agent.as_deref());
    let Some(found) = document(Some(version).filter(|_| agent.is_some())) else { return Ok(()) };
    let was_default = agent.is_some() && found.policy.is_none();
    if version.document.is_none() || was_default {
        return Ok(());
    }
    let rest = AgentDocument { policy: None, ..found };
    let text = (agent.is_some() && !rest.is_empty()).then(|| rest.to_json().to_string());
    write(store, project, agent, Some(version), text, None).await
}

/// What a policy says with the columns of a row that differ from it. A threshold or an action that was
/// changed takes the place of the whole ladder, which the table does not have.
fn said(policies: &PolicySet, row: &PreventionRow) -> Result<PreventionConfig, String> {
    let row = row.config.as_ref().map_err(ToString::to_string)?;
    let config = PreventionConfig::of(policies);
    let now = columns(&config).as_kept();
    let mut body = serde_json::to_value(&config).map_err(|error| error.to_string())?;
    let mut set = |part: &str, name: &str, differs: bool, value: Value| {
        if differs {
            body[part][name] = value;
        }
    };
    let looped = row.loop_threshold != now.loop_threshold || row.loop_action != now.loop_action;
    let part = "loop_detection";
    set(part, "enabled", row.loop_enabled != now.loop_enabled, json!(row.loop_enabled));
    set(part, "threshold", looped, json!(row.loop_threshold));
    set(part, "action", looped, json!(row.loop_action));
    let differs = row.loop_max_steps != now.loop_max_steps;
    set(part, "max_steps", differs, json!(row.loop_max_steps));
    for rung in ["steer_at", "block_at", "end_at"] {
        set(part, rung, looped, Value::Null);
    }
    let part = "budget";
    let dollars =
        |cost: Option<deadstop_core::NanoUsd>| json!(cost.map(deadstop_core::NanoUsd::dollars));
    let differs = row.budget_max_cost != now.budget_max_cost;
    set(part, "max_cost_usd", differs, dollars(row.budget_max_cost));
    let differs = row.budget_soft_alert != now.budget_soft_alert;
    set(part, "soft_alert_threshold_usd", differs, dollars(row.budget_soft_alert));
    let differs = row.budget_max_wall_time_secs != now.budget_max_wall_time_secs;
    set(part, "max_wall_time_seconds", differs, json!(row.budget_max_wall_time_secs));
    let part = "circuit_breaker";
    set(part, "enabled", row.cb_enabled != now.cb_enabled, json!(row.cb_enabled));
    let differs = row.cb_open_after_failures != now.cb_open_after_failures;
    set(part, "open_after_failures", differs, json!(row.cb_open_after_failures));
    let differs = row.cb_cooldown_seconds != now.cb_cooldown_seconds;
    set(part, "cooldown_seconds", differs, json!(row.cb_cooldown_seconds));
    let differs = row.cb_half_open_max_calls != now.cb_half_open_max_calls;
    set(part, "half_open_max_calls", differs, json!(row.cb_half_open_max_calls));
    if let Some(part) = body["loop_detection"].as_object_mut() {
        part.retain(|name, value| name == "max_steps" || !value.is_null());
    }
    PreventionConfig::read(&body).map_err(|faults| {
        let told: Vec<_> =
            faults.iter().map(|fault| format!("{}: {}", fault.field, fault.detail)).collect();
        told.join("; ")
    })
}

/// Writes the next version. Another node may have done so already.
async fn write(
    store: &Store,
    project: &str,
    agent: Option<&str>,
    version: Option<&PolicyVersion>,
    document: Option<String>,
    prevention: Option<deadstop_store::PreventionConfig>,
) -> Result<(), StoreError> {
    let (at, version) = (now(), version.map_or(0, |version| version.version));
    let note = "prevention_configs was changed in the database".to_owned();
    let event = AuditEvent {
        number: store.number(at),
        project: project.to_owned(),
        at,
        who: WHO.to_owned(),
        action: if document.is_some() { "policy.set" } else { "policy.reset" }.to_owned(),
        subject: agent.unwrap_or("default").to_owned(),
        reason: note.clone(),
        detail: json!({ "version": version + 1, "agent": agent }).to_string(),
    };
    let change = PolicyChange {
        project: project.to_owned(),
        agent: agent.map(str::to_owned),
        expected: Some(version),
        at,
        who: WHO.to_owned(),
        note,
        document,
        prevention,
    };
    match store.put_policy(&change, Some(&event)).await {
        Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
