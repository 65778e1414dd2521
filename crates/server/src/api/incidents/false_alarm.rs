//! "This was a false alarm": the exception that would have let it pass, tried on stored sessions, and
//! saved with a reason as the next version of the agent's policy.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deadstop_core::{Call, PolicySet, Verdict};
use deadstop_protocol::policy_views::{AgentDocument, FieldFault, Whose, effective, write_policy};
use deadstop_store::{Store, StoredIncident};
use deadstop_warden::Facts;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::act::{IncidentAction, IncidentOrder, carry_out};
use super::{Incident, written};
use crate::api::App;
use crate::api::auth::Who;
use crate::api::backtest::{Tally, try_on_agent};
use crate::api::extract::{At, Body, Name, Strict};
use crate::api::moments::kind_at;
use crate::api::policies::{change_agent, current_agent, current_default};
use crate::api::problem::{Code, Problem};
use crate::exception::{Exception, exceptions};

/// Sessions of the agent that an exception is tried on.
const SESSIONS: u32 = 100;

/// What would keep an incident from happening again.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Proposed {
    /// The agent whose policy would change.
    agent: String,
    /// The version of its policy that the exceptions start from.
    version: i64,
    /// The exceptions, the narrowest first. Empty where the policy language has none.
    exceptions: Vec<ProposedException>,
    /// Which of them is recommended: the narrowest with which the session would not have been stopped.
    #[schema(required)]
    recommended: Option<String>,
}

/// An exception, and what it would have done.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProposedException {
    /// A word for it, such as `tool_limits` or `allow_deed`; with a number where there are several.
    id: String,
    /// What it does, in a sentence.
    words: String,
    /// The settings that change.
    changes: Vec<SettingChange>,
    /// Sessions of the agent that it was tried on.
    sessions: usize,
    /// What happened to them.
    before: Tally,
    /// What would have happened.
    after: Tally,
    /// Whether the session of the incident would not have been stopped by this guard; null if its calls
    /// are not kept any more.
    #[schema(required)]
    helps: Option<bool>,
}

/// A setting that changes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SettingChange {
    /// Where it is in the policy, such as `loop.tools.get_build.end_at`.
    path: String,
    /// What it was; null if it was not there.
    #[schema(required, value_type = Option<Value>)]
    before: Value,
    /// What it becomes.
    #[schema(required, value_type = Option<Value>)]
    after: Value,
}

/// The exceptions that would have let an incident's call pass, each tried on the agent's last sessions.
#[utoipa::path(
    get, path = "/api/incidents/{id}/exceptions", tag = "incidents",
    params(("id" = String, Path, description = "The incident's id")),
    responses((status = 200, description = "The narrowest first", body = Proposed))
)]
pub(crate) async fn exceptions_for(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(id)): At<Name>,
) -> Result<Json<Proposed>, Problem> {
    let store = app.store()?;
    written(&app).await?;
    let incident = found(store, &who.project, &id).await?;
    let case = Case::read(&app, store, &who, &incident).await?;
    let mut proposals = Vec::new();
    for (id, exception) in case.named() {
        let tried =
            try_on_agent(store, &who.project, &exception.policies, &incident.agent, SESSIONS)
                .await?;
        let (before, after) = tried.tallies();
        let stop = incident.session_number.and_then(|number| tried.stop_of(number));
        let helps = stop.map(|stop| stop != Some(incident.trip.guard.name()));
        proposals.push(ProposedException {
            id,
            words: exception.words.clone(),
            changes: changes(&case.before, &exception.policies),
            sessions: tried.tried(),
            before,
            after,
            helps,
        });
    }
    let helping = proposals.iter().find(|one| one.helps == Some(true));
    let recommended = helping.or_else(|| proposals.first()).map(|one| one.id.clone());
    let (agent, version) = (incident.agent, case.version);
    Ok(Json(Proposed { agent, version, exceptions: proposals, recommended }))
}

/// A false alarm.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FalseAlarm {
    /// The exception to save; without it, the incident is only resolved.
    #[schema(max_length = 50)]
    exception: Option<String>,
    /// Why it was one; kept with the version of the policy and in the audit.
    #[schema(min_length = 1, max_length = 1000)]
    reason: String,
    /// The person, where a client speaks for several.
    #[schema(max_length = 200)]
    by: Option<String>,
}

impl Strict for FalseAlarm {}

/// What came of it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Excepted {
    /// The incident, resolved.
    incident: Incident,
    /// The version of the agent's policy that is in force now.
    version: i64,
}

/// Saves an exception as the next version of the agent's policy, and resolves the incident as a false
/// alarm.
#[utoipa::path(
    post, path = "/api/incidents/{id}/false-alarm", tag = "incidents", request_body = FalseAlarm,
    params(("id" = String, Path, description = "The incident's id")),
    responses((status = 200, description = "In force, and in the audit", body = Excepted))
)]
pub(crate) async fn false_alarm(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(id)): At<Name>,
    Body(alarm): Body<FalseAlarm>,
) -> Result<Json<Excepted>, Problem> {
    let store = app.store()?;
    written(&app).await?;
    let incident = found(store, &who.project, &id).await?;
    if let Some(wanted) = &alarm.exception {
        let case = Case::read(&app, store, &who, &incident).await?;
        let chosen = case.named().find(|(id, _)| id == wanted).map(|(_, exception)| exception);
        let Some(exception) = chosen else {
            let fault = FieldFault::invalid("exception", "is not one of those proposed");
            return Err(Problem::fields(Code::InvalidBody, vec![fault]));
        };
        let reason = format!("false alarm, incident {id}: {}", alarm.reason);
        let change = |_: &PolicySet, document: AgentDocument| AgentDocument {
            policy: Some(exception.policies.clone()),
            ..document
        };
        let expected = Some(case.version);
        change_agent(&app, &who, &incident.agent, expected, &reason, change).await?;
    }
    let order = IncidentOrder::of(IncidentAction::FalseAlarm, id, alarm.reason, alarm.by);
    let mut done = carry_out(&app, &who, order).await?;
    let incident = done.incidents.pop().ok_or_else(|| Problem::not_found("incident"))?;
    let version = store.policy(&who.project, Some(incident.agent())).await?;
    Ok(Json(Excepted { incident, version: version.map_or(0, |version| version.version) }))
}

async fn found(store: &Store, project: &str, id: &str) -> Result<StoredIncident, Problem> {
    let incident = store.incident(project, id).await?;
    incident.ok_or_else(|| Problem::not_found("incident"))
}

/// An incident's policy, and what could be changed in it.
struct Case {
    version: i64,
    before: PolicySet,
    exceptions: Vec<Exception>,
}

impl Case {
    async fn read(
        app: &App,
        store: &Store,
        who: &Who,
        incident: &StoredIncident,
    ) -> Result<Case, Problem> {
        let (_, default) = current_default(app, &who.project).await?;
        let (version, document) = current_agent(app, &who.project, &incident.agent).await?;
        let before = effective(&default, &document);
        let call = match incident.call {
            Some(id) => call(store, &who.project, incident, id).await?,
            None => None,
        };
        let kind = kind_at(incident.trip.context.depth);
        let exceptions = match incident.trip.verdict >= Verdict::Warn {
            true => exceptions(&incident.trip, kind, call.as_ref(), &before),
            false => Vec::new(),
        };
        Ok(Case { version: version.map_or(0, |version| version.version), before, exceptions })
    }

    /// The exceptions with their ids: a word, and a number from the second of a kind on.
    fn named(&self) -> impl Iterator<Item = (String, &Exception)> {
        self.exceptions.iter().enumerate().map(|(index, one)| {
            let before = self.exceptions[..index].iter().filter(|other| other.id == one.id).count();
            let id = match before {
                0 => one.id.to_owned(),
                more => format!("{}-{}", one.id, more + 1),
            };
            (id, one)
        })
    }
}

/// The call that tripped, as far as its facts are kept.
async fn call(
    store: &Store,
    project: &str,
    incident: &StoredIncident,
    id: i64,
) -> Result<Option<Call>, Problem> {
    let Some(session) = incident.session_number else { return Ok(None) };
    let calls = crate::api::backtest::calls(store, project, session, usize::MAX).await?;
    let call = calls.into_iter().find(|call| call.id == id);
    Ok(call.and_then(|call| Facts::read(&call.facts?)).map(|facts| facts.call))
}

/// Settings that differ between two policies.
fn changes(before: &PolicySet, after: &PolicySet) -> Vec<SettingChange> {
    let mut found = Vec::new();
    let [before, after] = [before, after].map(|policies| write_policy(policies, Whose::Agent));
    differences("", &before, &after, &mut found);
    // The preset is a name for what is nearest, and what is new and off says nothing.
    let says = |change: &SettingChange| {
        let off = change.after == false || change.after == "off" || change.after.is_null();
        change.path != "preset" && !(change.before.is_null() && off)
    };
    found.retain(says);
    found
}

fn differences(path: &str, before: &Value, after: &Value, found: &mut Vec<SettingChange>) {
    match (before, after) {
        (before, after) if before == after => {}
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in new {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                differences(&path, old.get(name).unwrap_or(&Value::Null), value, found);
            }
        }
        (before, Value::Object(new)) if before.is_null() => {
            for (name, value) in new {
                differences(&format!("{path}.{name}"), &Value::Null, value, found);
            }
        }
        _ => found.push(SettingChange {
            path: path.to_owned(),
            before: before.clone(),
            after: after.clone(),
        }),
    }
}
