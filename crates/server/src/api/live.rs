//! What runs now: every scope in memory, and events as they happen.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::response::sse::{Event as Sse, KeepAlive, Sse as Stream};
use deadstop_core::ScopeKind;
use futures_util::{StreamExt, stream};
use serde::Serialize;
use utoipa::ToSchema;

use super::App;
use super::auth::Who;
use super::problem::Problem;
use crate::warden::{Event, Scope, now};

/// A session or an agent as it is now.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Row {
    /// `project`, `agent`, `session` or `nested`.
    #[schema(value_type = String)]
    kind: ScopeKind,
    /// The agent that it belongs to; empty for the project.
    pub(crate) agent: String,
    /// What people call it.
    pub(crate) name: String,
    /// `running`, `paused` or `killed`.
    pub(crate) state: &'static str,
    /// Why it is paused or killed.
    #[schema(required)]
    pub(crate) why: Option<String>,
    /// Tool calls.
    pub(crate) steps: u64,
    /// Model calls.
    pub(crate) model_calls: u64,
    /// Calls that run.
    in_flight: u64,
    /// Input tokens.
    pub(crate) input_tokens: u64,
    /// Output tokens.
    pub(crate) output_tokens: u64,
    /// Dollars spent.
    pub(crate) cost_usd: f64,
    /// Dollars set aside for calls that run.
    reserved_usd: f64,
    /// When it was opened.
    pub(crate) opened_ms: u64,
    /// When it was last used.
    pub(crate) used_ms: u64,
}

impl Row {
    pub(crate) fn of(scope: &Scope) -> Row {
        let state = scope.state.lock();
        let ledger = state.ledger();
        let (standing, why) = match (state.killed(), state.paused()) {
            (Some(kill), _) => ("killed", Some(kill.because.clone())),
            (None, Some(pause)) => ("paused", Some(pause.because.clone())),
            (None, None) => ("running", None),
        };
        Row {
            kind: scope.kind(),
            agent: scope.agent().to_owned(),
            name: scope.name().to_owned(),
            state: standing,
            why,
            steps: ledger.spent.steps,
            model_calls: ledger.spent.model_calls,
            in_flight: ledger.in_flight,
            input_tokens: ledger.spent.input.0,
            output_tokens: ledger.spent.output.0,
            cost_usd: ledger.spent.cost.dollars(),
            reserved_usd: ledger.reserved.cost.dollars(),
            opened_ms: state.opened().0,
            used_ms: scope.used().0,
        }
    }
}

/// Everything in memory.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Status {
    /// The project as a whole.
    project: Row,
    /// Agents, sessions and what is nested in them, the last used first.
    scopes: Vec<Row>,
}

/// What runs now.
#[utoipa::path(
    get, path = "/api/status", tag = "live",
    responses((status = 200, description = "Every scope in memory", body = Status))
)]
pub(crate) async fn status(State(app): State<Arc<App>>, who: Who) -> Result<Json<Status>, Problem> {
    let project = app.project(&who).await?;
    let mut scopes: Vec<Row> =
        app.warden.scopes(&project.name).iter().map(|scope| Row::of(scope)).collect();
    scopes.sort_by(|a, b| b.used_ms.cmp(&a.used_ms).then_with(|| a.name.cmp(&b.name)));
    Ok(Json(Status { project: Row::of(&project.scope), scopes }))
}

/// Events as they happen, and what a watcher missed that says what it saw last.
#[utoipa::path(
    get, path = "/api/events", tag = "live",
    params(("last-event-id" = Option<String>, Header, description = "The last event that was seen")),
    responses((status = 200, description = "Server-sent events", body = String, content_type = "text/event-stream"))
)]
pub(crate) async fn events(
    State(app): State<Arc<App>>,
    who: Who,
    headers: HeaderMap,
) -> impl IntoResponse {
    let since = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let (missed, live) = app.warden.events.watch(since, now());
    let first: Vec<Sse> = match missed {
        Some(missed) => {
            missed.iter().filter(|event| event.project == who.project).map(told).collect()
        }
        None => vec![Sse::default().event("missed").data("what happened before is too long ago")],
    };
    // A server that stops does not wait for those who only watch.
    let over = app.warden.events.over.clone().cancelled_owned();
    let live = stream::unfold((live, who.project), |(mut live, project)| async move {
        use tokio::sync::broadcast::error::RecvError;
        let event = loop {
            match live.recv().await {
                Ok(event) if event.project == project => break told(&event),
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => {
                    break Sse::default().event("missed").data(missed.to_string());
                }
                Err(RecvError::Closed) => return None,
            }
        };
        Some((event, (live, project)))
    });
    let live = live.take_until(over);
    let all = stream::iter(first).chain(live).map(Ok::<_, Infallible>);
    Stream::new(all).keep_alive(KeepAlive::default())
}

fn told(event: &Event) -> Sse {
    let id = event.id.to_string();
    Sse::default().id(id).event(event.what).json_data(event).unwrap_or_default()
}
