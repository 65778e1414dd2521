//! What people do about incidents, one or many: acknowledge, assign, resolve, reopen, mute.
//!
//! A mute silences the alerts of all incidents that are alike. They are still recorded, and the guard
//! still refuses. What was resolved opens again when it happens again.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deadstop_core::{GuardId, Time};
use deadstop_store::{
    Acknowledged, Act, AuditEvent, Fingerprint, IncidentFilter, Mute, Paging, Resolution, Resolved,
    StatesWanted, Store, StoredIncident,
};
use deadstop_warden::now;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::{Incident, Shown, written};
use crate::api::App;
use crate::api::auth::Who;
use crate::api::extract::{At, Body, Name, Page, Strict};
use crate::api::problem::{Code, Problem};
use deadstop_protocol::policy_views::FieldFault;

/// Incidents that one order is about at most.
const MOST: usize = 1000;

/// An incident's acknowledgement.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Acknowledgement {
    /// What they have to say.
    #[schema(max_length = 5000)]
    note: String,
    /// The person, where a client speaks for several.
    #[schema(max_length = 200)]
    by: Option<String>,
}

impl Strict for Acknowledgement {}

/// Acknowledges an incident.
#[utoipa::path(
    post, path = "/api/incidents/{id}/acknowledge", tag = "incidents",
    request_body = Acknowledgement,
    params(("id" = String, Path, description = "The incident's id")),
    responses((status = 200, description = "The incident as it is now", body = Incident))
)]
pub(crate) async fn acknowledge(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(id)): At<Name>,
    Body(seen): Body<Acknowledgement>,
) -> Result<Json<Incident>, Problem> {
    let order = IncidentOrder::of(IncidentAction::Acknowledge, id, seen.note, seen.by);
    let mut done = carry_out(&app, &who, order).await?;
    done.incidents.pop().map(Json).ok_or_else(|| Problem::not_found("incident"))
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum IncidentAction {
    /// Note that you have seen them.
    #[default]
    Acknowledge,
    /// Give them to `assignee`, or take them back without one.
    Assign,
    /// Close them: what was wrong is put right.
    Resolve,
    /// Close them: the guard should not have tripped.
    FalseAlarm,
    /// Open them again.
    Reopen,
    /// Send no alerts about incidents that are alike, until `until_ms` or for good.
    Mute,
    /// Send alerts again.
    Unmute,
}

impl IncidentAction {
    /// How the audit calls it.
    fn action(self) -> &'static str {
        match self {
            IncidentAction::Acknowledge => "incident.acknowledge",
            IncidentAction::Assign => "incident.assign",
            IncidentAction::Resolve => "incident.resolve",
            IncidentAction::FalseAlarm => "incident.false_alarm",
            IncidentAction::Reopen => "incident.reopen",
            IncidentAction::Mute => "incident.mute",
            IncidentAction::Unmute => "incident.unmute",
        }
    }
}

/// Incidents that are alike.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Alike {
    /// The agent.
    #[schema(max_length = 200)]
    agent: String,
    /// The guard.
    #[schema(max_length = 50)]
    guard: String,
    /// The tool, or the guard's code for why.
    #[schema(max_length = 200)]
    about: String,
}

/// What to do, and about which incidents.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct IncidentOrder {
    /// What is to be done.
    action: IncidentAction,
    /// Ids of incidents.
    #[serde(default)]
    #[schema(max_items = 1000)]
    ids: Vec<String>,
    /// All incidents of these groups that are not resolved; to reopen, those that are.
    #[serde(default)]
    #[schema(max_items = 100)]
    groups: Vec<Alike>,
    /// To whom they are given.
    #[schema(max_length = 200)]
    assignee: Option<String>,
    /// Until when they are muted, in milliseconds since 1970; for good without it.
    #[schema(minimum = 0)]
    until_ms: Option<u64>,
    /// What you have to say.
    #[serde(default)]
    #[schema(max_length = 5000)]
    note: String,
    /// The person, where a client speaks for several.
    #[schema(max_length = 200)]
    by: Option<String>,
}

impl Strict for IncidentOrder {}

impl IncidentOrder {
    /// What to do about one incident.
    pub(super) fn of(
        action: IncidentAction,
        id: String,
        note: String,
        by: Option<String>,
    ) -> IncidentOrder {
        IncidentOrder { action, ids: vec![id], note, by, ..IncidentOrder::default() }
    }
}

/// What was done.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Acted {
    /// The incidents as they are now, in the order of their ids.
    pub(super) incidents: Vec<Incident>,
    /// Ids of no incident.
    missing: Vec<String>,
}

/// Does something about incidents: some by their ids, or all that are alike.
#[utoipa::path(
    post, path = "/api/incidents/actions", tag = "incidents", request_body = IncidentOrder,
    responses((status = 200, description = "Done, and in the audit", body = Acted))
)]
pub(crate) async fn act(
    State(app): State<Arc<App>>,
    who: Who,
    Body(order): Body<IncidentOrder>,
) -> Result<Json<Acted>, Problem> {
    if order.ids.is_empty() && order.groups.is_empty() {
        let fault = FieldFault::invalid("ids", "name an incident, or a group");
        return Err(Problem::fields(Code::InvalidBody, vec![fault]));
    }
    carry_out(&app, &who, order).await.map(Json)
}

/// Carries an order out.
pub(super) async fn carry_out(
    app: &App,
    who: &Who,
    order: IncidentOrder,
) -> Result<Acted, Problem> {
    let store = app.store()?;
    written(app).await?;
    let by = app.redacted(who, &who.signed(order.by.as_deref()));
    let note = app.redacted(who, &order.note);
    let (found, missing) = found(store, &who.project, &order).await?;
    let word = Word { app, who, by, note };
    match order.action {
        IncidentAction::Mute | IncidentAction::Unmute => word.mute(store, &order, &found).await?,
        _ => word.change(store, &order, &found).await?,
    }
    let text = format!("{} of {}", order.action.action(), found.len());
    app.warden.tell_change(&who.project, "", text);
    let shown = Shown::read(store, &who.project).await?;
    let mut incidents = Vec::with_capacity(found.len());
    for id in found.keys() {
        incidents.extend(store.incident(&who.project, id).await?.map(|one| shown.incident(one)));
    }
    Ok(Acted { incidents, missing })
}

/// The incidents that an order is about, and ids of none.
async fn found(
    store: &Store,
    project: &str,
    order: &IncidentOrder,
) -> Result<(BTreeMap<String, StoredIncident>, Vec<String>), Problem> {
    let (mut found, mut missing) = (BTreeMap::new(), Vec::new());
    for id in &order.ids {
        match store.incident(project, id).await? {
            Some(incident) => drop(found.insert(id.clone(), incident)),
            None => missing.push(id.clone()),
        }
    }
    for group in &order.groups {
        let state = match order.action {
            IncidentAction::Reopen => {
                Some(StatesWanted::One(deadstop_store::IncidentState::Resolved))
            }
            // To mute and to unmute, one of them says enough.
            IncidentAction::Mute | IncidentAction::Unmute => None,
            _ => Some(StatesWanted::Unresolved),
        };
        let guard = serde_json::from_value::<GuardId>(json!(group.guard)).map_err(|_| {
            let fault = FieldFault::invalid("groups", "this is not the name of a guard");
            Problem::fields(Code::InvalidBody, vec![fault])
        })?;
        let filter = IncidentFilter {
            agent: Some(group.agent.clone()),
            guard: Some(guard),
            about: Some(group.about.clone()),
            state: state.map(|state| (state, now())),
            ..IncidentFilter::default()
        };
        let most = if state.is_none() { 1 } else { MOST as u32 };
        let page = store.incidents(project, &filter, &Paging::first(most)).await?;
        found.extend(page.items.into_iter().map(|one| (one.id.clone(), one)));
    }
    Ok((found, missing))
}

/// Who says something, and what.
struct Word<'a> {
    app: &'a App,
    who: &'a Who,
    by: String,
    note: String,
}

impl Word<'_> {
    fn event(
        &self,
        order: &IncidentOrder,
        subject: &str,
        detail: &serde_json::Value,
    ) -> AuditEvent {
        let event = self.app.event(self.who, order.action.action(), subject, &self.note, detail);
        AuditEvent { who: self.by.clone(), ..event }
    }

    async fn change(
        &self,
        store: &Store,
        order: &IncidentOrder,
        found: &BTreeMap<String, StoredIncident>,
    ) -> Result<(), Problem> {
        let (by, note, at) = (self.by.clone(), self.note.clone(), now());
        let resolved = |how| Resolved { by: by.clone(), at, note: note.clone(), how };
        let assignee = order.assignee.as_deref().map(|to| self.app.redacted(self.who, to));
        let act = match order.action {
            IncidentAction::Assign => Act::Assign(assignee.clone(), Acknowledged { by, at, note }),
            IncidentAction::Resolve => Act::Resolve(resolved(Resolution::Fixed)),
            IncidentAction::FalseAlarm => Act::Resolve(resolved(Resolution::FalseAlarm)),
            IncidentAction::Reopen => Act::Reopen,
            IncidentAction::Acknowledge | IncidentAction::Mute | IncidentAction::Unmute => {
                Act::Acknowledge(Acknowledged { by, at, note })
            }
        };
        let detail = match order.action {
            IncidentAction::Assign => json!({ "assignee": assignee }),
            _ => json!({}),
        };
        let events = found.keys().map(|id| (id.clone(), self.event(order, id, &detail)));
        store.act(&self.who.project, &events.collect::<Vec<_>>(), &act).await?;
        Ok(())
    }

    async fn mute(
        &self,
        store: &Store,
        order: &IncidentOrder,
        found: &BTreeMap<String, StoredIncident>,
    ) -> Result<(), Problem> {
        let mut prints: Vec<Fingerprint> =
            found.values().map(StoredIncident::fingerprint).collect();
        prints.sort();
        prints.dedup();
        let project = &self.who.project;
        for fingerprint in prints {
            let Fingerprint { agent, guard, about } = &fingerprint;
            let detail = json!({
                "agent": agent, "guard": guard, "about": about, "until_ms": order.until_ms,
            });
            let event = self.event(order, &fingerprint.id(), &detail);
            if order.action == IncidentAction::Unmute {
                store.unmute(project, &fingerprint, &event).await?;
                continue;
            }
            let mute = Mute {
                project: project.clone(),
                fingerprint,
                at: now(),
                until: order.until_ms.map(Time),
                by: self.by.clone(),
                reason: self.note.clone(),
            };
            store.mute(&mute, &event).await?;
        }
        self.app.warden.reload_mutes(project).await?;
        self.app.warden.announce_project(project).await;
        Ok(())
    }
}

/// Incidents that are alike and send no alerts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Muted {
    /// A short name for what they have in common.
    fingerprint: String,
    /// The agent.
    agent: String,
    /// The guard.
    guard: String,
    /// The tool, or the guard's code for why.
    about: String,
    #[serde(flatten)]
    silence: Silence,
}

/// Who muted something, and until when.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Silence {
    /// Who.
    by: String,
    /// When.
    at_ms: u64,
    /// Until when; null if for good.
    #[schema(required)]
    until_ms: Option<u64>,
    /// Why.
    note: String,
}

impl From<&Mute> for Silence {
    fn from(mute: &Mute) -> Silence {
        Silence {
            by: mute.by.clone(),
            at_ms: mute.at.0,
            until_ms: mute.until.map(|until| until.0),
            note: mute.reason.clone(),
        }
    }
}

/// What is muted now.
#[utoipa::path(
    get, path = "/api/incidents/mutes", tag = "incidents",
    responses((status = 200, description = "All of them", body = Page<Muted>))
)]
pub(crate) async fn mutes(
    State(app): State<Arc<App>>,
    who: Who,
) -> Result<Json<Page<Muted>>, Problem> {
    let mut mutes = app.store()?.mutes(&who.project).await?;
    mutes.retain(|mute| mute.holds(now()));
    let show = |mute: &Mute| Muted {
        fingerprint: mute.fingerprint.id(),
        agent: mute.fingerprint.agent.clone(),
        guard: mute.fingerprint.guard.clone(),
        about: mute.fingerprint.about.clone(),
        silence: Silence::from(mute),
    };
    Ok(Json(Page::all(mutes.iter().map(show).collect())))
}
