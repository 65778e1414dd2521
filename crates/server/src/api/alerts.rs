//! Alerts: where they go, a test of each, and the log of what was delivered.
//!
//! An address may be a secret by itself, so it is taken in and never shown again: lists show its
//! host.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use deadstop_protocol::llm::identity;
use deadstop_protocol::policy_views::FieldFault;
use deadstop_store::{AlertTarget, Delivery, DeliveryFilter, DeliveryState, StoredDelivery};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::auth::{self, Who};
use super::extract::{AskedBoth, At, Body, Page, Paged, Strict};
use super::problem::{Code, Problem};
use deadstop_warden::now;

/// What a target can hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AlertOn {
    /// A scope was ended.
    Kill,
    /// A guard fired without ending anything.
    Trip,
    /// A budget is nearly used up.
    BudgetWarning,
    /// A circuit breaker opened.
    BreakerOpen,
    /// A call waits for a person.
    Approval,
    /// The server works with a part missing.
    Degraded,
}

impl AlertOn {
    fn name(self) -> &'static str {
        match self {
            AlertOn::Kill => "kill",
            AlertOn::Trip => "trip",
            AlertOn::BudgetWarning => "budget_warning",
            AlertOn::BreakerOpen => "breaker_open",
            AlertOn::Approval => "approval",
            AlertOn::Degraded => "degraded",
        }
    }
}

/// An address to send to.
#[derive(Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Address {
    /// A signed POST.
    Webhook {
        /// Where to.
        #[schema(max_length = 2000)]
        url: String,
        /// What it is signed with; made here if it is left out.
        #[serde(default)]
        #[schema(max_length = 500)]
        secret: Option<String>,
    },
    /// A POST as Slack, Mattermost and others understand it.
    Slack {
        /// Where to.
        #[schema(max_length = 2000)]
        url: String,
    },
    /// A mail.
    Email {
        /// `smtps://user:password@host:port`, `smtp+starttls://…` or `smtp://…`.
        #[schema(max_length = 2000)]
        smtp: String,
        /// From whom.
        #[schema(max_length = 500)]
        from: String,
        /// To whom: one address, or several with commas between.
        #[schema(max_length = 2000)]
        to: String,
    },
}

impl Address {
    /// The same as what delivers to it knows it.
    fn target(&self) -> deadstop_alerts::Target {
        use deadstop_alerts::{Secret, Target};
        match self {
            Address::Webhook { url, secret } => {
                Target::Webhook { url: Secret::new(url), secret: secret.as_ref().map(Secret::new) }
            }
            Address::Slack { url } => Target::Slack { url: Secret::new(url) },
            Address::Email { smtp, from, to } => {
                Target::Email { smtp: Secret::new(smtp), from: from.clone(), to: to.clone() }
            }
        }
    }

    /// Makes a signing secret for a webhook that has none. Returns it, to be shown this once.
    fn sign(&mut self) -> Result<Option<String>, Problem> {
        let Address::Webhook { secret: secret @ None, .. } = self else { return Ok(None) };
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(|_| auth::no_randomness(auth::NoRandomness))?;
        let made = deadstop_alerts::Secret::signing(&random).reveal().to_owned();
        *secret = Some(made.clone());
        Ok(Some(made))
    }
}

/// A target to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TargetOrder {
    /// What people call it.
    #[schema(min_length = 1, max_length = 200)]
    name: String,
    /// The agent it is for; null for all of the project.
    #[schema(required, min_length = 1, max_length = 200)]
    agent: Option<String>,
    /// What it wants to hear of.
    #[schema(max_items = 10)]
    events: Vec<AlertOn>,
    /// Whether it is in use.
    active: bool,
    /// Where to; left out or null when a target is changed, it stays.
    target: Option<Address>,
}

impl Strict for TargetOrder {}

/// A target.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Target {
    /// Its id.
    id: String,
    /// What people call it.
    name: String,
    /// The agent it is for; null for all of the project.
    #[schema(required)]
    agent: Option<String>,
    /// `webhook`, `slack` or `email`.
    kind: String,
    /// Where it goes, without what may be secret.
    summary: String,
    /// What it wants to hear of.
    events: Vec<String>,
    /// Whether it is in use.
    active: bool,
    /// When it was made.
    made_ms: u64,
    /// When it was last changed.
    changed_ms: u64,
}

/// A target that was made or moved.
#[derive(Serialize, ToSchema)]
pub(crate) struct MadeTarget {
    #[serde(flatten)]
    target: Target,
    /// What a webhook is signed with, where it was made here. It is shown this once.
    #[schema(required)]
    secret: Option<String>,
}

impl From<AlertTarget> for Target {
    fn from(stored: AlertTarget) -> Target {
        let target: Option<deadstop_alerts::Target> = serde_json::from_str(&stored.settings).ok();
        Target {
            id: stored.id.to_string(),
            name: stored.name,
            agent: stored.agent,
            kind: stored.kind,
            summary: target.map(|target| target.summary()).unwrap_or_default(),
            events: stored.events,
            active: stored.active,
            made_ms: stored.made.0,
            changed_ms: stored.changed.0,
        }
    }
}

fn checked(order: &TargetOrder) -> Result<(), Problem> {
    let mut faults = Vec::new();
    if let Some(Err(bad)) = order.target.as_ref().map(|address| address.target().validate()) {
        faults.push(FieldFault::invalid("target", bad.to_string()));
    }
    if order.agent.as_deref().is_some_and(|agent| identity::name(agent).is_none()) {
        faults.push(FieldFault::invalid("agent", "this cannot be a name"));
    }
    if faults.is_empty() { Ok(()) } else { Err(Problem::fields(Code::InvalidBody, faults)) }
}

fn names(events: &[AlertOn]) -> Vec<String> {
    events.iter().map(|event| event.name().to_owned()).collect()
}

/// The targets of the project.
#[utoipa::path(
    get, path = "/api/alerts/targets", tag = "alerts",
    responses((status = 200, description = "All of them", body = Page<Target>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    who: Who,
) -> Result<Json<Page<Target>>, Problem> {
    let targets = app.store()?.targets(&who.project).await?;
    Ok(Json(Page::all(targets.into_iter().map(Target::from).collect())))
}

/// Makes a target.
#[utoipa::path(
    post, path = "/api/alerts/targets", tag = "alerts", request_body = TargetOrder,
    responses((status = 201, description = "The target, and once what it is signed with", body = MadeTarget))
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    who: Who,
    Body(order): Body<TargetOrder>,
) -> Result<Response, Problem> {
    checked(&order)?;
    let Some(mut address) = order.target else {
        let fault = FieldFault::missing("target");
        return Err(Problem::fields(Code::InvalidBody, vec![fault]));
    };
    let secret = address.sign()?;
    let (store, at, target) = (app.store()?, now(), address.target());
    let stored = AlertTarget {
        id: store.number(at),
        project: who.project.clone(),
        agent: order.agent.clone(),
        kind: target.name().to_owned(),
        name: order.name.clone(),
        active: order.active,
        events: names(&order.events),
        settings: serde_json::to_string(&target).unwrap_or_default(),
        made: at,
        changed: at,
    };
    let detail = json!({ "name": stored.name, "kind": stored.kind, "to": target.summary() });
    let event = app.event(&who, "alert.create", &stored.id.to_string(), "", &detail);
    store.create_target(&stored, Some(&event)).await?;
    app.warden.reload_targets(&who.project).await?;
    app.warden.announce_project(&who.project).await;
    let body = MadeTarget { target: stored.into(), secret };
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

/// One target.
#[utoipa::path(
    get, path = "/api/alerts/targets/{id}", tag = "alerts",
    params(("id" = String, Path, description = "The target's id")),
    responses((status = 200, description = "The target", body = Target))
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    who: Who,
    At(id): At<i64>,
) -> Result<Json<Target>, Problem> {
    find(&app, &who, id).await.map(|stored| Json(stored.into()))
}

async fn find(app: &App, who: &Who, id: i64) -> Result<AlertTarget, Problem> {
    let found = app.store()?.target(&who.project, id).await?;
    found.ok_or_else(|| Problem::not_found("target"))
}

/// Changes a target.
#[utoipa::path(
    put, path = "/api/alerts/targets/{id}", tag = "alerts", request_body = TargetOrder,
    params(("id" = String, Path, description = "The target's id")),
    responses((status = 200, description = "The target, and once what it is signed with", body = MadeTarget))
)]
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    who: Who,
    At(id): At<i64>,
    Body(order): Body<TargetOrder>,
) -> Result<Json<MadeTarget>, Problem> {
    checked(&order)?;
    let mut stored = find(&app, &who, id).await?;
    let moved = order.target.is_some();
    let mut secret = None;
    if let Some(mut address) = order.target {
        secret = address.sign()?;
        let target = address.target();
        stored.kind = target.name().to_owned();
        stored.settings = serde_json::to_string(&target).unwrap_or_default();
    }
    stored.name = order.name;
    stored.agent = order.agent;
    stored.active = order.active;
    stored.events = names(&order.events);
    stored.changed = now();
    let detail = json!({
        "name": stored.name, "kind": stored.kind, "active": stored.active,
        "events": stored.events, "agent": stored.agent, "moved": moved,
    });
    let event = app.event(&who, "alert.change", &id.to_string(), "", &detail);
    if !app.store()?.update_target(&stored, Some(&event)).await? {
        return Err(Problem::not_found("target"));
    }
    app.warden.reload_targets(&who.project).await?;
    app.warden.announce_project(&who.project).await;
    Ok(Json(MadeTarget { target: stored.into(), secret }))
}

/// Takes a target away.
#[utoipa::path(
    delete, path = "/api/alerts/targets/{id}", tag = "alerts",
    params(("id" = String, Path, description = "The target's id")),
    responses((status = 204, description = "It is gone"))
)]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    who: Who,
    At(id): At<i64>,
) -> Result<StatusCode, Problem> {
    let event = app.event(&who, "alert.delete", &id.to_string(), "", &json!({}));
    if !app.store()?.delete_target(&who.project, id, now(), Some(&event)).await? {
        return Err(Problem::not_found("target"));
    }
    app.warden.reload_targets(&who.project).await?;
    app.warden.announce_project(&who.project).await;
    Ok(StatusCode::NO_CONTENT)
}

/// A test that is on its way.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Tested {
    /// Its delivery; how it ended stands in the log.
    delivery: String,
}

/// Sends a test to a target.
#[utoipa::path(
    post, path = "/api/alerts/targets/{id}/test", tag = "alerts",
    params(("id" = String, Path, description = "The target's id")),
    responses((status = 202, description = "On its way", body = Tested))
)]
pub(crate) async fn test(
    State(app): State<Arc<App>>,
    who: Who,
    At(id): At<i64>,
) -> Result<Response, Problem> {
    let target = find(&app, &who, id).await?;
    let (store, at) = (app.store()?, now());
    let number = store.number(at);
    let sentence = format!("{} tries out the target {}", who.signed(None), target.name);
    let kind = deadstop_alerts::Kind::Test;
    let id_text = number.to_string();
    let mut message = deadstop_alerts::Message::new(&id_text, kind, &who.project, &sentence, at);
    message.agent = target.agent.clone();
    let body = serde_json::to_string(&message).unwrap_or_default();
    let delivery = Delivery {
        id: number,
        project: who.project.clone(),
        target: id,
        event: kind.name().to_owned(),
        agent: target.agent,
        session: None,
        incident: None,
        bunch: String::new(),
        once: false,
        body,
        at,
        due: at,
    };
    store.enqueue(std::slice::from_ref(&delivery)).await?;
    app.warden.posted.notify_one();
    let tested = Tested { delivery: number.to_string() };
    Ok((StatusCode::ACCEPTED, Json(tested)).into_response())
}

/// A delivery.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Delivered {
    /// Its id.
    id: String,
    /// The target.
    target: String,
    /// What it tells of.
    event: String,
    /// The agent it is about.
    #[schema(required)]
    agent: Option<String>,
    /// The session it is about.
    #[schema(required)]
    session: Option<String>,
    /// The incident it is about.
    #[schema(required)]
    incident: Option<String>,
    /// `waiting`, `delivered` or `failed`.
    state: &'static str,
    /// How many messages it stands for.
    times: u64,
    /// How often it was tried.
    attempts: u64,
    /// What the target, or the way to it, said last.
    #[schema(required)]
    answer: Option<String>,
    /// When it was made.
    made_ms: u64,
    /// When the last of its messages was made.
    last_ms: u64,
    /// When it is tried next; null once it is done.
    #[schema(required)]
    due_ms: Option<u64>,
    /// When it was delivered or given up.
    #[schema(required)]
    done_ms: Option<u64>,
}

impl From<StoredDelivery> for Delivered {
    fn from(stored: StoredDelivery) -> Delivered {
        let StoredDelivery { delivery, times, last, attempts, state, answer, done } = stored;
        Delivered {
            id: delivery.id.to_string(),
            target: delivery.target.to_string(),
            event: delivery.event,
            agent: delivery.agent,
            session: delivery.session,
            incident: delivery.incident,
            state: state.name(),
            times,
            attempts,
            answer,
            made_ms: delivery.at.0,
            last_ms: last.0,
            due_ms: (state == DeliveryState::Waiting).then_some(delivery.due.0),
            done_ms: done.map(|at| at.0),
        }
    }
}

/// How a delivery stands.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DeliveryAsked {
    /// To be sent, perhaps again.
    Waiting,
    /// Taken by the target.
    Delivered,
    /// Given up.
    Failed,
}

/// Which deliveries.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeliveriesAsked {
    /// Only those to this target.
    #[param(max_length = 20)]
    target: Option<String>,
    /// Only those about this agent.
    #[param(max_length = 200)]
    agent: Option<String>,
    /// Only those about this incident.
    #[param(max_length = 100)]
    incident: Option<String>,
    /// Only those that stand so.
    #[param(inline)]
    state: Option<DeliveryAsked>,
    /// Not before this time, in milliseconds since 1970.
    #[param(minimum = 0)]
    from: Option<u64>,
    /// Before this time, in milliseconds since 1970.
    #[param(minimum = 0)]
    to: Option<u64>,
}

/// The log of deliveries, the newest first.
#[utoipa::path(
    get, path = "/api/alerts/deliveries", tag = "alerts", params(Paged, DeliveriesAsked),
    responses((status = 200, description = "A page of them", body = Page<Delivered>))
)]
pub(crate) async fn deliveries(
    State(app): State<Arc<App>>,
    who: Who,
    AskedBoth(paged, asked): AskedBoth<Paged, DeliveriesAsked>,
) -> Result<Json<Page<Delivered>>, Problem> {
    let target = asked.target.as_deref().map(str::parse::<i64>).transpose().map_err(|_| {
        let fault = FieldFault::invalid("target", "is not the id of a target");
        Problem::fields(Code::InvalidQuery, vec![fault])
    })?;
    let time = |ms: Option<u64>| ms.map(deadstop_core::Time);
    let filter = DeliveryFilter {
        target,
        agent: asked.agent,
        incident: asked.incident,
        state: asked.state.map(|state| match state {
            DeliveryAsked::Waiting => DeliveryState::Waiting,
            DeliveryAsked::Delivered => DeliveryState::Delivered,
            DeliveryAsked::Failed => DeliveryState::Failed,
        }),
        period: deadstop_store::Period { from: time(asked.from), to: time(asked.to) },
    };
    let found = app.store()?.deliveries(&who.project, &filter, &paged.paging()).await?;
    Ok(Json(Page::of(found, Delivered::from)))
}
