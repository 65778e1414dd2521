//! Orders: kill, clear, reset, pause, resume. Acknowledged when they are in force and on disk.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deadstop_core::{ScopeKind, ScopeState, Time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::App;
use super::auth::Who;
use super::extract::{Body, Strict};
use super::live::Row;
use super::problem::{Code, Problem};
use crate::warden::{Project, Scope, Warden};

/// An order: what it is about, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    /// Everything there is.
    #[serde(default)]
    all: bool,
    /// An agent by its name.
    #[schema(max_length = 200)]
    agent: Option<String>,
    /// A session by its name; with `agent` where the name alone is not enough.
    #[schema(max_length = 200)]
    session: Option<String>,
    /// Why.
    #[serde(default)]
    #[schema(max_length = 1000)]
    reason: String,
    /// The person who says so, where a client speaks for several.
    #[schema(max_length = 200)]
    by: Option<String>,
}

impl Strict for Order {}

/// An order that was carried out.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Done {
    /// What was done: `killed`, `cleared`, `reset`, `paused` or `resumed`.
    done: &'static str,
    /// The scope as it is now.
    scope: Row,
}

type Carried = Result<Json<Done>, Problem>;

/// Ends a session, an agent or everything.
#[utoipa::path(
    post, path = "/api/kill", tag = "orders", request_body = Order,
    responses((status = 200, description = "In force and on disk", body = Done))
)]
pub(crate) async fn kill(
    State(app): State<Arc<App>>,
    who: Who,
    Body(order): Body<Order>,
) -> Carried {
    let (by, reason) = (who.signed(order.by.as_deref()), order.reason.clone());
    let reason = if reason.is_empty() { "no reason given".to_owned() } else { reason };
    carry_out(&app, &who, &order, "killed", move |state, now| state.kill(&by, &reason, now)).await
}

/// Lets an agent, or everything, run again.
#[utoipa::path(
    post, path = "/api/clear", tag = "orders", request_body = Order,
    responses(
        (status = 200, description = "In force and on disk", body = Done),
        (status = 409, description = "`session_final`", body = super::problem::ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn clear(
    State(app): State<Arc<App>>,
    who: Who,
    Body(order): Body<Order>,
) -> Carried {
    if order.session.is_some() {
        let why = "a session's end is final; start a new session, or reset this one";
        return Err(Problem::new(Code::SessionFinal, why));
    }
    app.warden.forget_below(&who.project, order.agent.as_deref());
    carry_out(&app, &who, &order, "cleared", |state, _| {
        // Checked above: agents and the project can be cleared.
        let _ = state.clear();
    })
    .await
}

/// A fresh start under the same name, for a session that was ended.
#[utoipa::path(
    post, path = "/api/reset", tag = "orders", request_body = Order,
    responses((status = 200, description = "In force and on disk", body = Done))
)]
pub(crate) async fn reset(
    State(app): State<Arc<App>>,
    who: Who,
    Body(order): Body<Order>,
) -> Carried {
    if order.session.is_none() {
        let why = "only a session is reset; an agent, or everything, is cleared";
        return Err(Problem::new(Code::BadOrder, why));
    }
    let project = app.project(&who).await?;
    let scope = find(&app.warden, &project, &order).await?;
    let by = who.signed(order.by.as_deref());
    let said = crate::warden::Order { who: &by, done: "reset", reason: &order.reason };
    acknowledged("reset", &scope, app.warden.reset(&scope, said).await)
}

/// Holds the next call until somebody decides.
#[utoipa::path(
    post, path = "/api/pause", tag = "orders", request_body = Order,
    responses((status = 200, description = "In force and on disk", body = Done))
)]
pub(crate) async fn pause(
    State(app): State<Arc<App>>,
    who: Who,
    Body(order): Body<Order>,
) -> Carried {
    let (by, reason) = (who.signed(order.by.as_deref()), order.reason.clone());
    carry_out(&app, &who, &order, "paused", move |state, now| state.pause(&by, &reason, now)).await
}

/// Ends a hold.
#[utoipa::path(
    post, path = "/api/resume", tag = "orders", request_body = Order,
    responses((status = 200, description = "In force and on disk", body = Done))
)]
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    who: Who,
    Body(order): Body<Order>,
) -> Carried {
    carry_out(&app, &who, &order, "resumed", |state, _| state.resume()).await
}

async fn carry_out(
    app: &App,
    who: &Who,
    order: &Order,
    done: &'static str,
    change: impl FnOnce(&mut ScopeState, Time),
) -> Carried {
    let warden = &app.warden;
    let project = app.project(who).await?;
    let scope = find(warden, &project, order).await?;
    let by = who.signed(order.by.as_deref());
    let said = crate::warden::Order { who: &by, done, reason: &order.reason };
    acknowledged(done, &scope, warden.order(&scope, said, change).await)
}

fn acknowledged(done: &'static str, scope: &Scope, written: Result<(), String>) -> Carried {
    match written {
        Ok(()) => Ok(Json(Done { done, scope: Row::of(scope) })),
        Err(error) => Err(Problem::new(
            Code::NotDurable,
            format!("it is in force here, but could not be written: {error}"),
        )),
    }
}

/// The scope that an order is about.
async fn find(
    warden: &Warden,
    project: &Arc<Project>,
    order: &Order,
) -> Result<Arc<Scope>, Problem> {
    let wrong = |text: &str| Problem::new(Code::BadOrder, text);
    let failed = |_| Problem::new(Code::StoreFailed, "the database failed; see the log");
    match (order.all, &order.agent, &order.session) {
        (true, None, None) => Ok(Arc::clone(&project.scope)),
        (true, _, _) => Err(wrong("`all` stands alone")),
        (false, Some(agent), Some(session)) => {
            let chain = warden.chain(Arc::clone(project), agent, session, &[]).await;
            Ok(Arc::clone(chain.map_err(failed)?.innermost()))
        }
        (false, Some(agent), None) => warden.agent(project, agent).await.map_err(failed),
        (false, None, Some(session)) => {
            let named =
                |scope: &Arc<Scope>| scope.kind() == ScopeKind::Session && scope.name() == session;
            let found: Vec<_> = warden.scopes(&project.name).into_iter().filter(named).collect();
            match found.as_slice() {
                [one] => Ok(Arc::clone(one)),
                [] => {
                    let text = format!("no session in use is called {session}; name its agent too");
                    Err(Problem::new(Code::NoSession, text))
                }
                _ => Err(wrong("several agents have a session of that name; name the agent too")),
            }
        }
        (false, None, None) => Err(wrong("say what: `all`, `agent` or `session`")),
    }
}
