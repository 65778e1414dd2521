//! The control API: see what runs, stop it, hold it, let it go on.
//!
//! Orders are acknowledged when they are in force and on disk.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event as Sse, KeepAlive, Sse as Stream};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use deadstop_core::{ScopeKind, ScopeState, Time};
use deadstop_store::{IncidentFilter, Paging};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::warden::{Scope, Warden};

type App = State<Arc<Warden>>;

/// All routes.
pub(crate) fn router(warden: Arc<Warden>) -> Router {
    Router::new()
        .route("/", get(home))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/api/status", get(status))
        .route("/api/incidents", get(incidents))
        .route("/api/events", get(events))
        .route("/api/kill", post(kill))
        .route("/api/clear", post(clear))
        .route("/api/reset", post(reset))
        .route("/api/pause", post(pause))
        .route("/api/resume", post(resume))
        .fallback(|| async { problem(StatusCode::NOT_FOUND, "not_found", "no such route") })
        .with_state(warden)
}

/// An order: what it is about, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    /// Everything there is.
    #[serde(default)]
    all: bool,
    /// An agent by its name.
    agent: Option<String>,
    /// A session by its name; with `agent` where the name alone is not enough.
    session: Option<String>,
    /// Why.
    #[serde(default)]
    reason: String,
    /// Who says so.
    #[serde(default = "somebody")]
    by: String,
}

fn somebody() -> String {
    "an operator".to_owned()
}

/// A session or an agent as it is now.
#[derive(Debug, Serialize)]
struct Row {
    kind: ScopeKind,
    agent: String,
    name: String,
    state: &'static str,
    why: Option<String>,
    steps: u64,
    model_calls: u64,
    in_flight: u64,
    input_tokens: u64,
    output_tokens: u64,
    cost_usd: f64,
    reserved_usd: f64,
    opened_ms: Time,
    used_ms: Time,
}

impl Row {
    fn of(scope: &Scope) -> Row {
        let state = scope.state.lock();
        let ledger = state.ledger();
        let (standing, why) = match (state.killed(), state.paused()) {
            (Some(kill), _) => ("killed", Some(kill.because.clone())),
            (None, Some(pause)) => ("paused", Some(pause.because.clone())),
            (None, None) => ("running", None),
        };
        Row {
            kind: scope.kind,
            agent: scope.agent.clone(),
            name: scope.name.clone(),
            state: standing,
            why,
            steps: ledger.spent.steps,
            model_calls: ledger.spent.model_calls,
            in_flight: ledger.in_flight,
            input_tokens: ledger.spent.input.0,
            output_tokens: ledger.spent.output.0,
            cost_usd: ledger.spent.cost.dollars(),
            reserved_usd: ledger.reserved.cost.dollars(),
            opened_ms: state.opened(),
            used_ms: scope.used(),
        }
    }
}

async fn home(State(warden): App) -> Html<String> {
    let running = warden.scopes().iter().filter(|s| s.kind == ScopeKind::Session).count();
    Html(format!(
        "<!doctype html><title>Deadstop</title><h1>Deadstop is running</h1>\
         <p>{running} sessions in memory. See <code>deadstop status</code> and \
         <code>deadstop watch</code>, or <a href=\"/api/status\">/api/status</a>.</p>"
    ))
}

async fn status(State(warden): App) -> Json<Value> {
    let mut rows: Vec<Row> = warden.scopes().iter().map(|scope| Row::of(scope)).collect();
    rows.sort_by(|a, b| b.used_ms.cmp(&a.used_ms).then_with(|| a.name.cmp(&b.name)));
    Json(json!({ "project": Row::of(warden.project()), "scopes": rows }))
}

async fn incidents(State(warden): App, Query(page): Query<Page>) -> Response {
    let Some(store) = warden.store() else {
        return Json(json!({ "incidents": [] })).into_response();
    };
    let written = warden.flush().await;
    let paging = Paging::first(page.limit.unwrap_or(50));
    match store.incidents("default", &IncidentFilter::default(), &paging).await {
        Ok(found) if written.is_ok() => {
            let rows: Vec<Value> = found
                .items
                .iter()
                .map(|incident| {
                    json!({
                        "id": incident.id,
                        "at_ms": incident.at,
                        "agent": incident.agent,
                        "session": incident.session,
                        "guard": incident.trip.guard,
                        "reason": incident.trip.reason,
                        "verdict": incident.trip.verdict,
                        "explain": incident.trip.explain(),
                        "trip": incident.trip,
                    })
                })
                .collect();
            Json(json!({ "incidents": rows })).into_response()
        }
        _ => problem(StatusCode::INTERNAL_SERVER_ERROR, "store_failed", "the database failed"),
    }
}

#[derive(Debug, Deserialize)]
struct Page {
    limit: Option<u32>,
}

async fn events(State(warden): App) -> impl IntoResponse {
    let watching = stream::unfold(warden.watch(), |mut watching| async move {
        use tokio::sync::broadcast::error::RecvError;
        let event = match watching.recv().await {
            Ok(event) => Sse::default().event(event.what).json_data(&event).unwrap_or_default(),
            Err(RecvError::Lagged(missed)) => {
                Sse::default().event("missed").data(missed.to_string())
            }
            Err(RecvError::Closed) => return None,
        };
        Some((Ok::<_, Infallible>(event), watching))
    });
    Stream::new(watching).keep_alive(KeepAlive::default())
}

async fn kill(State(warden): App, Json(order): Json<Order>) -> Response {
    let (by, reason) = (order.by.clone(), order.reason.clone());
    let reason = if reason.is_empty() { "no reason given".to_owned() } else { reason };
    carry_out(&warden, order, "killed", move |state, now| state.kill(&by, &reason, now)).await
}

async fn clear(State(warden): App, Json(order): Json<Order>) -> Response {
    if order.session.is_some() {
        let why = "a session's end is final; start a new session, or reset this one";
        return problem(StatusCode::CONFLICT, "session_final", why);
    }
    let agent = order.agent.clone();
    for scope in warden.scopes() {
        let below = agent.as_ref().is_none_or(|agent| *agent == scope.agent);
        if below && matches!(scope.kind, ScopeKind::Session | ScopeKind::Nested) {
            scope.state.lock().forget();
        }
    }
    carry_out(&warden, order, "cleared", |state, _| {
        // Checked above: agents and the project can be cleared.
        let _ = state.clear();
    })
    .await
}

/// A fresh start under the same name, for a session that was ended.
async fn reset(State(warden): App, Json(order): Json<Order>) -> Response {
    if order.session.is_none() {
        let why = "only a session is reset; an agent, or everything, is cleared";
        return problem(StatusCode::UNPROCESSABLE_ENTITY, "bad_order", why);
    }
    carry_out(&warden, order, "reset", ScopeState::reset).await
}

async fn pause(State(warden): App, Json(order): Json<Order>) -> Response {
    let (by, reason) = (order.by.clone(), order.reason.clone());
    carry_out(&warden, order, "paused", move |state, now| state.pause(&by, &reason, now)).await
}

async fn resume(State(warden): App, Json(order): Json<Order>) -> Response {
    carry_out(&warden, order, "resumed", |state, _| state.resume()).await
}

async fn carry_out(
    warden: &Warden,
    order: Order,
    done: &'static str,
    change: impl FnOnce(&mut ScopeState, Time),
) -> Response {
    let scope = match find(warden, &order).await {
        Ok(scope) => scope,
        Err(response) => return *response,
    };
    warden.tell(
        done,
        &scope.agent,
        &scope.name,
        format!("{} by {}: {}", done, order.by, order.reason),
    );
    match warden.order(&scope, change).await {
        Ok(()) => Json(json!({ "done": done, "scope": Row::of(&scope) })).into_response(),
        Err(error) => problem(
            StatusCode::INTERNAL_SERVER_ERROR,
            "not_durable",
            &format!("it is in force here, but could not be written: {error}"),
        ),
    }
}

/// The scope that an order is about.
async fn find(warden: &Warden, order: &Order) -> Result<Arc<Scope>, Box<Response>> {
    let wrong = |text: &str| Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "bad_order", text));
    let failed = |_| {
        let text = "the database failed; see the log";
        Box::new(problem(StatusCode::INTERNAL_SERVER_ERROR, "store_failed", text))
    };
    match (order.all, &order.agent, &order.session) {
        (true, None, None) => Ok(Arc::clone(warden.project())),
        (true, _, _) => Err(wrong("`all` stands alone")),
        (false, Some(agent), Some(session)) => {
            let chain = warden.chain(agent, session, &[]).await.map_err(failed)?;
            Ok(Arc::clone(chain.innermost()))
        }
        (false, Some(agent), None) => warden.agent(agent).await.map_err(failed),
        (false, None, Some(session)) => {
            let named =
                |scope: &Arc<Scope>| scope.kind == ScopeKind::Session && scope.name == *session;
            let found: Vec<_> = warden.scopes().into_iter().filter(named).collect();
            match found.as_slice() {
                [one] => Ok(Arc::clone(one)),
                [] => {
                    let text = format!("no session in use is called {session}; name its agent too");
                    Err(Box::new(problem(StatusCode::NOT_FOUND, "no_session", &text)))
                }
                _ => Err(wrong("several agents have a session of that name; name the agent too")),
            }
        }
        (false, None, None) => Err(wrong("say what: `all`, `agent` or `session`")),
    }
}

/// An error as problem+json, with a code that stays the same.
fn problem(status: StatusCode, code: &str, detail: &str) -> Response {
    let body = json!({
        "type": "about:blank",
        "title": status.canonical_reason(),
        "status": status.as_u16(),
        "code": code,
        "detail": detail,
    });
    (status, [("content-type", "application/problem+json")], body.to_string()).into_response()
}
