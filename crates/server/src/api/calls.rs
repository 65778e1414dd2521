//! Calls: lists, a session's timeline, and what was said in one.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use deadstop_core::Status;
use deadstop_store::{CallFilter, Exchange, ListedCall, Order, SessionFilter, Store};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::auth::Who;
use super::extract::{Asked, AskedBoth, At, Filter, Name, Page};
use super::problem::Problem;

/// How long a list waits for what is being written.
const WRITTEN: Duration = Duration::from_millis(500);

/// A call.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Call {
    /// Its id.
    id: String,
    /// The agent that made it.
    agent: String,
    /// The session it belongs to.
    session: String,
    /// The nested scope that it was made in, if it was.
    #[schema(required)]
    nested: Option<String>,
    /// Its position in the session.
    position: u64,
    /// `model` or `tool`.
    kind: &'static str,
    /// The model's or the tool's name.
    name: String,
    /// The provider or server it went to.
    #[schema(required)]
    server: Option<String>,
    /// When it was made.
    at_ms: u64,
    /// How long it took; null while it runs.
    #[schema(required)]
    duration_ms: Option<u64>,
    /// `allow`, `warn`, `block` or `kill`.
    verdict: String,
    /// The guard that tripped.
    #[schema(required)]
    guard: Option<&'static str>,
    /// That guard's code for why.
    #[schema(required)]
    reason: Option<String>,
    /// `ok`, `error`, `fault` or `cancelled`; null while it runs, and if it never ran.
    #[schema(required)]
    status: Option<&'static str>,
    /// Input tokens.
    input_tokens: u64,
    /// Output tokens.
    output_tokens: u64,
    /// Input tokens read from a cache.
    cache_read_tokens: u64,
    /// Input tokens written to a cache.
    cache_write_tokens: u64,
    /// Dollars.
    cost_usd: f64,
    /// The incident that it became.
    #[schema(required)]
    incident: Option<String>,
}

impl From<ListedCall> for Call {
    fn from(listed: ListedCall) -> Call {
        let ListedCall { call, agent, session } = listed;
        Call {
            id: call.id.to_string(),
            agent,
            session,
            nested: call.nested,
            position: call.position,
            kind: call.kind.name(),
            name: call.name,
            server: call.server,
            at_ms: call.at.0,
            duration_ms: call.duration.map(|duration| duration.0),
            verdict: call.verdict.to_string(),
            guard: call.guard.map(deadstop_core::GuardId::name),
            reason: call.reason,
            status: call.status.map(|status| match status {
                Status::Ok => "ok",
                Status::Error => "error",
                Status::Fault => "fault",
                Status::Cancelled => "cancelled",
            }),
            input_tokens: call.usage.input.0,
            output_tokens: call.usage.output.0,
            cache_read_tokens: call.usage.cache_read.0,
            cache_write_tokens: call.usage.cache_write.0,
            cost_usd: call.cost.dollars(),
            incident: call.incident,
        }
    }
}

/// What was asked and answered, secrets removed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Said {
    /// What was asked.
    #[schema(required)]
    request: Option<String>,
    /// What was answered.
    #[schema(required)]
    response: Option<String>,
    /// How many characters the request had in full.
    request_chars: u64,
    /// How many characters the answer had in full.
    response_chars: u64,
    /// Whether the request is shortened here.
    request_cut: bool,
    /// Whether the answer is shortened here.
    response_cut: bool,
}

impl From<Exchange> for Said {
    fn from(exchange: Exchange) -> Said {
        Said {
            request: exchange.request,
            response: exchange.response,
            request_chars: exchange.request_chars,
            response_chars: exchange.response_chars,
            request_cut: exchange.request_cut,
            response_cut: exchange.response_cut,
        }
    }
}

/// A call, and what was said in it if that was kept.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CallDetail {
    #[serde(flatten)]
    call: Call,
    /// What was said; null if it was not kept.
    #[schema(required)]
    said: Option<Said>,
}

/// Calls, the newest first.
#[utoipa::path(
    get, path = "/api/calls", tag = "calls", params(Filter),
    responses((status = 200, description = "A page of them", body = Page<Call>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    who: Who,
    Asked(filter): Asked<Filter>,
) -> Result<Json<Page<Call>>, Problem> {
    let store = app.store()?;
    written(&app).await;
    let wanted = CallFilter {
        agent: filter.agent.clone(),
        session: match session_number(store, &who.project, &filter).await? {
            Wanted::Nothing => return Ok(Json(Page::all(Vec::new()))),
            Wanted::Session(number) => Some(number),
            Wanted::Any => None,
        },
        guard: filter.guard()?,
        period: filter.period(),
        order: Order::Newest,
    };
    let found = store.calls(&who.project, &wanted, &filter.paging()).await?;
    Ok(Json(Page::of(found, Call::from)))
}

/// Waits a moment for the newest calls to reach the disk.
async fn written(app: &App) {
    let _ = tokio::time::timeout(WRITTEN, app.warden.flush()).await;
}

/// Which sessions' rows a filter asks for.
pub(crate) enum Wanted {
    /// Those of all sessions.
    Any,
    /// Those of the session with this number.
    Session(i64),
    /// None: there is no such session.
    Nothing,
}

/// The session that a filter names: the one of this name that was opened last.
pub(crate) async fn session_number(
    store: &Store,
    project: &str,
    filter: &Filter,
) -> Result<Wanted, Problem> {
    if filter.session.is_none() {
        return Ok(Wanted::Any);
    }
    let (agent, name) = (filter.agent.clone(), filter.session.clone());
    let named = SessionFilter { agent, name, ..SessionFilter::default() };
    let found = store.sessions(project, &named, &deadstop_store::Paging::first(1)).await?;
    Ok(found.items.first().map_or(Wanted::Nothing, |session| Wanted::Session(session.number)))
}

/// One call.
#[utoipa::path(
    get, path = "/api/calls/{id}", tag = "calls",
    params(("id" = String, Path, description = "The call's id")),
    responses((status = 200, description = "The call", body = CallDetail))
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    who: Who,
    At(id): At<i64>,
) -> Result<Json<CallDetail>, Problem> {
    let store = app.store()?;
    let call = store.call(&who.project, id).await?.ok_or_else(|| Problem::not_found("call"))?;
    let payload = store.payload(&who.project, id).await?;
    Ok(Json(CallDetail { call: call.into(), said: payload.map(|payload| payload.exchange.into()) }))
}

/// In which order.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct Ordered {
    /// `oldest` (as it happened) or `newest` first.
    #[param(inline)]
    order: Option<OrderAsked>,
}

/// The newest or the oldest first.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OrderAsked {
    /// As it happened.
    Oldest,
    /// The newest first.
    Newest,
}

/// A session's calls as a timeline.
#[utoipa::path(
    get, path = "/api/sessions/{agent}/{session}/calls", tag = "sessions",
    params(
        ("agent" = String, Path, description = "The agent"),
        ("session" = String, Path, description = "The session's name"),
        Timeline, Ordered,
    ),
    responses((status = 200, description = "A page of them", body = Page<Call>))
)]
pub(crate) async fn timeline(
    State(app): State<Arc<App>>,
    who: Who,
    At((Name(agent), Name(session))): At<(Name, Name)>,
    AskedBoth(asked, ordered): AskedBoth<Timeline, Ordered>,
) -> Result<Json<Page<Call>>, Problem> {
    who.may_see(&agent)?;
    let store = app.store()?;
    written(&app).await;
    let stored = store.session_named(&who.project, &agent, &session).await?;
    let Some(stored) = stored else {
        let live = app.warden.live_session(&who.project, &agent, &session);
        return match live {
            Some(_) => Ok(Json(Page::all(Vec::new()))),
            None => Err(Problem::not_found("session")),
        };
    };
    let filter = Filter::from(asked);
    let wanted = CallFilter {
        agent: None,
        session: Some(stored.number),
        guard: filter.guard()?,
        period: filter.period(),
        order: match ordered.order {
            Some(OrderAsked::Newest) => Order::Newest,
            Some(OrderAsked::Oldest) | None => Order::Oldest,
        },
    };
    let found = store.calls(&who.project, &wanted, &filter.paging()).await?;
    Ok(Json(Page::of(found, Call::from)))
}

/// Which part of a timeline.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct Timeline {
    /// Entries on a page.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<u32>,
    /// Where to go on: `next` of the page before.
    #[param(max_length = 100)]
    cursor: Option<String>,
    /// Only calls at which this guard tripped.
    #[param(max_length = 50)]
    guard: Option<String>,
    /// Not before this time, in milliseconds since 1970.
    #[param(minimum = 0)]
    from: Option<u64>,
    /// Before this time, in milliseconds since 1970.
    #[param(minimum = 0)]
    to: Option<u64>,
}

impl From<Timeline> for Filter {
    fn from(asked: Timeline) -> Filter {
        let Timeline { limit, cursor, guard, from, to } = asked;
        Filter { limit, cursor, guard, from, to, ..Filter::default() }
    }
}
