//! Calls: lists, a session's timeline, and what was said in one.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use deadstop_core::{Status, Verdict};
use deadstop_protocol::policy_views::FieldFault;
use deadstop_store::{
    CallFilter, CallKind, Exchange, ListedCall, Order, SessionFilter, Store, StoredSession,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::auth::Who;
use super::extract::{AskedBoth, At, Filter, Name, Page, number};
use super::problem::{Code, Problem};

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
    /// That session's number: a name may be used again after a reset, a number is not.
    session_number: String,
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
    /// How long its streamed answer took to begin; null for other calls, and where the door has not seen
    /// it.
    #[schema(required)]
    first_ms: Option<u64>,
    /// `allow`, `warn`, `steer`, `ask`, `block` or `kill`.
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
    /// Why it failed, in short: the provider's HTTP status, such as `503`, or what happened, such as
    /// `time-out`. Null for a call that did not fail.
    #[schema(required)]
    cause: Option<String>,
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
            session_number: call.session_number.to_string(),
            nested: call.nested,
            position: call.position,
            kind: call.kind.name(),
            name: call.name,
            server: call.server,
            at_ms: call.at.0,
            duration_ms: call.duration.map(|duration| duration.0),
            first_ms: call.first.map(|first| first.0),
            verdict: call.verdict.to_string(),
            guard: call.guard.map(deadstop_core::GuardId::name),
            reason: call.reason,
            status: call.status.map(|status| match status {
                Status::Ok => "ok",
                Status::Error => "error",
                Status::Fault => "fault",
                Status::Cancelled => "cancelled",
            }),
            cause: call.cause,
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

/// Which calls.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct CallsAsked {
    /// Only those of the session with this number, also if its name was used again.
    #[param(max_length = 20)]
    number: Option<String>,
    /// Only requests to this model.
    #[param(max_length = 200)]
    model: Option<String>,
    /// Only calls of this tool.
    #[param(max_length = 200)]
    tool: Option<String>,
    /// Only those about which this was decided.
    #[param(inline)]
    verdict: Option<VerdictAsked>,
    /// Only those that ended so.
    #[param(inline)]
    status: Option<StatusAsked>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StatusAsked {
    /// It did what it should.
    Ok,
    /// It was answered with an error.
    Error,
    /// It was not answered: time ran out, the connection was lost, the provider failed.
    Fault,
    /// It was cut off or abandoned.
    Cancelled,
}

impl From<StatusAsked> for Status {
    fn from(asked: StatusAsked) -> Status {
        match asked {
            StatusAsked::Ok => Status::Ok,
            StatusAsked::Error => Status::Error,
            StatusAsked::Fault => Status::Fault,
            StatusAsked::Cancelled => Status::Cancelled,
        }
    }
}

/// What was decided about a call.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum VerdictAsked {
    /// It ran.
    Allow,
    /// It ran, and people were told.
    Warn,
    /// It ran, and the model was told.
    Steer,
    /// A person was asked.
    Ask,
    /// It was refused.
    Block,
    /// It was refused or cut, and its scope ended.
    Kill,
}

impl From<VerdictAsked> for Verdict {
    fn from(asked: VerdictAsked) -> Verdict {
        match asked {
            VerdictAsked::Allow => Verdict::Allow,
            VerdictAsked::Warn => Verdict::Warn,
            VerdictAsked::Steer => Verdict::Steer,
            VerdictAsked::Ask => Verdict::Ask,
            VerdictAsked::Block => Verdict::Block,
            VerdictAsked::Kill => Verdict::Kill,
        }
    }
}

impl CallsAsked {
    /// The model or the tool that is wanted.
    fn name(&self) -> Result<Option<(CallKind, String)>, Problem> {
        match (&self.model, &self.tool) {
            (Some(_), Some(_)) => {
                let fault = FieldFault::invalid(
                    "tool",
                    "cannot be combined with `model`: a call has one of them",
                );
                Err(Problem::fields(Code::InvalidQuery, vec![fault]))
            }
            (Some(model), None) => Ok(Some((CallKind::Model, model.clone()))),
            (None, Some(tool)) => Ok(Some((CallKind::Tool, tool.clone()))),
            (None, None) => Ok(None),
        }
    }
}

/// Calls, the newest first.
#[utoipa::path(
    get, path = "/api/calls", tag = "calls", params(Filter, CallsAsked),
    responses((status = 200, description = "A page of them", body = Page<Call>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    who: Who,
    AskedBoth(filter, asked): AskedBoth<Filter, CallsAsked>,
) -> Result<Json<Page<Call>>, Problem> {
    let store = app.store()?;
    let number = number(asked.number.as_deref())?;
    let name = asked.name()?;
    written(&app).await;
    let wanted = CallFilter {
        agent: filter.agent.clone(),
        session: match session_number(store, &who.project, &filter, number).await? {
            Wanted::Nothing => return Ok(Json(Page::all(Vec::new()))),
            Wanted::Session(number) => Some(number),
            Wanted::Any => None,
        },
        name,
        verdict: asked.verdict.map(Verdict::from),
        guard: filter.guard()?,
        status: asked.status.map(Status::from),
        period: filter.period(),
        order: Order::Newest,
    };
    let found = store.calls(&who.project, &wanted, &filter.paging()).await?;
    Ok(Json(Page::of(found, Call::from)))
}

/// Waits a moment for the newest calls to reach the disk.
pub(super) async fn written(app: &App) {
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

/// The session that a filter names: the one with this number, or the one of this name that was opened
/// last.
pub(crate) async fn session_number(
    store: &Store,
    project: &str,
    filter: &Filter,
    number: Option<i64>,
) -> Result<Wanted, Problem> {
    let found = match number {
        Some(number) => store.session(project, number).await?.filter(|session| {
            filter.agent.as_ref().is_none_or(|agent| *agent == session.agent)
                && filter.session.as_ref().is_none_or(|name| *name == session.name)
        }),
        None if filter.session.is_none() => return Ok(Wanted::Any),
        None => {
            let (agent, name) = (filter.agent.clone(), filter.session.clone());
            let named = SessionFilter { agent, name, ..SessionFilter::default() };
            let found = store.sessions(project, &named, &deadstop_store::Paging::first(1)).await?;
            found.items.into_iter().next()
        }
    };
    Ok(found.map_or(Wanted::Nothing, |session| Wanted::Session(session.number)))
}

/// A stored session by its name, and by its number if one is given.
pub(crate) async fn stored_session(
    store: &Store,
    project: &str,
    (agent, name): (&str, &str),
    number: Option<i64>,
) -> Result<Option<StoredSession>, Problem> {
    let Some(number) = number else {
        return Ok(store.session_named(project, agent, name).await?);
    };
    let found = store.session(project, number).await?;
    Ok(found.filter(|session| session.agent == agent && session.name == name))
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
    let number = number(asked.number.as_deref())?;
    let stored = stored_session(store, &who.project, (&agent, &session), number).await?;
    let Some(stored) = stored else {
        let live = app.warden.live_session(&who.project, &agent, &session);
        return match live {
            Some(_) if number.is_none() => Ok(Json(Page::all(Vec::new()))),
            _ => Err(Problem::not_found("session")),
        };
    };
    let filter = Filter::from(asked);
    let wanted = CallFilter {
        agent: None,
        session: Some(stored.number),
        name: None,
        verdict: None,
        guard: filter.guard()?,
        status: None,
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
    /// The session's number. Without it, the session of that name that was opened last.
    #[param(max_length = 20)]
    number: Option<String>,
}

impl From<Timeline> for Filter {
    fn from(asked: Timeline) -> Filter {
        let Timeline { limit, cursor, guard, from, to, number: _ } = asked;
        Filter { limit, cursor, guard, from, to, ..Filter::default() }
    }
}
