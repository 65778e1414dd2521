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
use super::auth::Who;
use super::extract::{AskedBoth, At, Body, Page, Paged, Strict};
use super::problem::{Code, Problem};
use crate::warden::now;

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
            AlertOn::Degraded => "degraded",
        }
    }
}

/// An address to send to.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Address {
    /// A POST, signed if there is a secret.
    Webhook {
        /// Where to.
        #[schema(max_length = 2000)]
        url: String,
        /// What it is signed with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
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
    fn kind(&self) -> &'static str {
        match self {
            Address::Webhook { .. } => "webhook",
            Address::Slack { .. } => "slack",
            Address::Email { .. } => "email",
        }
    }

    /// Where it goes, without what may be secret.
    fn summary(&self) -> String {
        match self {
            Address::Webhook { url, .. } | Address::Slack { url } => host(url),
            Address::Email { smtp, to, .. } => format!("{to} over {}", host(smtp)),
        }
    }

    fn is_signed(&self) -> bool {
        matches!(self, Address::Webhook { secret: Some(_), .. })
    }

    /// What is wrong with it, as far as that can be told without the network.
    fn faults(&self) -> Vec<FieldFault> {
        let (field, url, schemes): (_, _, &[&str]) = match self {
            Address::Webhook { url, .. } | Address::Slack { url } => {
                ("target.url", url, &["http", "https"])
            }
            Address::Email { smtp, .. } => {
                ("target.smtp", smtp, &["smtp", "smtps", "smtp+starttls"])
            }
        };
        let mut faults = Vec::new();
        let read: Option<http::Uri> = url.parse().ok();
        let fine = read.is_some_and(|uri| {
            uri.scheme_str().is_some_and(|scheme| schemes.contains(&scheme))
                && uri.host().is_some_and(|host| !host.is_empty())
        });
        if !fine {
            let detail = format!("write a URL that starts with {}://", schemes.join(":// or "));
            faults.push(FieldFault::invalid(field, detail));
        }
        if let Address::Email { from, to, .. } = self {
            for (field, text) in [("target.from", from), ("target.to", to)] {
                if !text.contains('@') || text.chars().any(char::is_control) {
                    faults.push(FieldFault::invalid(field, "write it as name@example.org"));
                }
            }
        }
        faults
    }
}

fn host(url: &str) -> String {
    let uri: http::Uri = url.parse().unwrap_or_default();
    let (scheme, host) = (uri.scheme_str().unwrap_or("?"), uri.host().unwrap_or("?"));
    match uri.port_u16() {
        Some(port) => format!("{scheme}://{host}:{port}/…"),
        None => format!("{scheme}://{host}/…"),
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
    #[schema(required, max_length = 200)]
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
    /// Whether what it gets is signed.
    signed: bool,
    /// What it wants to hear of.
    events: Vec<String>,
    /// Whether it is in use.
    active: bool,
    /// When it was made.
    made_ms: u64,
    /// When it was last changed.
    changed_ms: u64,
}

impl From<AlertTarget> for Target {
    fn from(stored: AlertTarget) -> Target {
        let address: Option<Address> = serde_json::from_str(&stored.settings).ok();
        Target {
            id: stored.id.to_string(),
            name: stored.name,
            agent: stored.agent,
            kind: stored.kind,
            summary: address.as_ref().map(Address::summary).unwrap_or_default(),
            signed: address.as_ref().is_some_and(Address::is_signed),
            events: stored.events,
            active: stored.active,
            made_ms: stored.made.0,
            changed_ms: stored.changed.0,
        }
    }
}

fn checked(order: &TargetOrder) -> Result<(), Problem> {
    let mut faults = order.target.as_ref().map(Address::faults).unwrap_or_default();
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
    responses((status = 201, description = "The target", body = Target))
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    who: Who,
    Body(order): Body<TargetOrder>,
) -> Result<Response, Problem> {
    checked(&order)?;
    let Some(address) = &order.target else {
        let fault = FieldFault::missing("target");
        return Err(Problem::fields(Code::InvalidBody, vec![fault]));
    };
    let (store, at) = (app.store()?, now());
    let stored = AlertTarget {
        id: store.number(at),
        project: who.project.clone(),
        agent: order.agent.clone(),
        kind: address.kind().to_owned(),
        name: order.name.clone(),
        active: order.active,
        events: names(&order.events),
        settings: serde_json::to_string(address).unwrap_or_default(),
        made: at,
        changed: at,
    };
    let detail = json!({ "name": stored.name, "kind": stored.kind, "to": address.summary() });
    let event = app.event(&who, "alert.create", &stored.id.to_string(), "", &detail);
    store.create_target(&stored, Some(&event)).await?;
    app.warden.reload_targets(&who.project).await?;
    Ok((StatusCode::CREATED, Json(Target::from(stored))).into_response())
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
    responses((status = 200, description = "The target", body = Target))
)]
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    who: Who,
    At(id): At<i64>,
    Body(order): Body<TargetOrder>,
) -> Result<Json<Target>, Problem> {
    checked(&order)?;
    let mut stored = find(&app, &who, id).await?;
    if let Some(address) = &order.target {
        stored.kind = address.kind().to_owned();
        stored.settings = serde_json::to_string(address).unwrap_or_default();
    }
    stored.name = order.name;
    stored.agent = order.agent;
    stored.active = order.active;
    stored.events = names(&order.events);
    stored.changed = now();
    let detail = json!({
        "name": stored.name, "kind": stored.kind, "active": stored.active,
        "events": stored.events, "agent": stored.agent, "moved": order.target.is_some(),
    });
    let event = app.event(&who, "alert.change", &id.to_string(), "", &detail);
    if !app.store()?.update_target(&stored, Some(&event)).await? {
        return Err(Problem::not_found("target"));
    }
    app.warden.reload_targets(&who.project).await?;
    Ok(Json(stored.into()))
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
    let body = json!({
        "id": number.to_string(), "kind": "test", "project": who.project, "agent": target.agent,
        "sentence": sentence, "at": at, "count": 1, "first_seen": at, "last_seen": at,
    });
    let delivery = Delivery {
        id: number,
        project: who.project.clone(),
        target: id,
        event: "test".to_owned(),
        agent: target.agent,
        session: None,
        incident: None,
        bunch: String::new(),
        body: body.to_string(),
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
