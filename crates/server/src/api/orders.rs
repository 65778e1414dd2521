//! Orders: kill, clear, reset, pause, resume. Acknowledged when they and their audit entries are in
//! force and on disk.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deadstop_core::ScopeKind;
use deadstop_protocol::llm::identity;
use deadstop_protocol::near::nearest;
use deadstop_protocol::policy_views::FieldFault;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::App;
use super::auth::Who;
use super::extract::{Body, Strict, names};
use super::keys::{self, MadeKey};
use super::live::Row;
use super::problem::{Code, Problem, ProblemBody};
use deadstop_warden::{Scope, What};

/// An order: what it is about, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    /// Everything there is.
    #[serde(default)]
    all: bool,
    /// An agent by its name.
    #[schema(min_length = 1, max_length = 200)]
    agent: Option<String>,
    /// A session by its name, or as `agent/session`; with `agent` where that is not enough.
    #[schema(min_length = 1, max_length = 200)]
    session: Option<String>,
    /// Why.
    #[serde(default)]
    #[schema(max_length = 1000)]
    reason: String,
    /// The person who says so, where a client speaks for several.
    #[schema(max_length = 200)]
    by: Option<String>,
    /// Kill or pause in advance: the agent or session has made no call yet. Without it, an unknown name
    /// is refused, because it may be a typo.
    #[serde(default)]
    new: bool,
}

impl Strict for Order {}

impl Order {
    /// Refuses impossible names: the operator would believe that the order took effect.
    fn check(&self) -> Result<(), Problem> {
        let names = [("agent", &self.agent), ("session", &self.session)];
        let bad = names.into_iter().filter(|(_, name)| {
            name.as_deref().is_some_and(|name| identity::name(name).as_deref() != Some(name))
        });
        let faults: Vec<_> =
            bad.map(|(field, _)| FieldFault::invalid(field, "this cannot be a name")).collect();
        if faults.is_empty() { Ok(()) } else { Err(Problem::fields(Code::InvalidBody, faults)) }
    }
}

/// Why something is done.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Why {
    /// Why.
    #[serde(default)]
    #[schema(max_length = 1000)]
    pub(crate) reason: String,
    /// The person who says so, where a client speaks for several.
    #[schema(max_length = 200)]
    pub(crate) by: Option<String>,
}

impl Strict for Why {}

/// An order that was carried out.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Done {
    /// What was done: `killed`, `cleared`, `reset`, `paused`,
    /// `resumed` or `topped up`.
    pub(super) done: &'static str,
    /// The scope as it is now.
    pub(super) scope: Row,
    /// The agent's new key, shown this once: clearing an agent that was killed takes its old keys
    /// out of force. Null if it has none of its own.
    #[schema(required)]
    pub(super) key: Option<MadeKey>,
}

pub(crate) type Carried = Result<Json<Done>, Problem>;

/// Ends a session, an agent or everything.
#[utoipa::path(
    post, path = "/api/kill", tag = "orders", request_body = Order,
    responses(
        (status = 200, description = "In force and on disk", body = Done),
        (status = 404, description = "`no_agent` or `no_session`, with the nearest names", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn kill(
    State(app): State<Arc<App>>,
    who: Who,
    Body(order): Body<Order>,
) -> Carried {
    find_and_carry_out(&app, &who, &order, What::Kill).await
}

/// Lets an agent, or everything, run again. An agent that was killed gets a fresh key, if it has keys of
/// its own; switching it on (`PATCH /api/agents/{name}`) keeps them.
#[utoipa::path(
    post, path = "/api/clear", tag = "orders", request_body = Order,
    responses(
        (status = 200, description = "In force and on disk", body = Done),
        (status = 409, description = "`session_final`", body = ProblemBody, content_type = "application/problem+json"),
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
    order.check()?;
    let scope = find(&app, &who, &order).await?;
    // Before it may run: its old keys must not work for a moment.
    let key = match scope.kind() == ScopeKind::Agent && scope.state().killed().is_some() {
        true => keys::renew(&app, &who, scope.name()).await?,
        false => None,
    };
    let why = Why { reason: order.reason.clone(), by: order.by.clone() };
    let Json(done) = carry_out(&app, &who, &scope, What::Clear, &why).await?;
    Ok(Json(Done { key, ..done }))
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
    find_and_carry_out(&app, &who, &order, What::Reset).await
}

/// Holds the next call until a person decides.
#[utoipa::path(
    post, path = "/api/pause", tag = "orders", request_body = Order,
    responses(
        (status = 200, description = "In force and on disk", body = Done),
        (status = 404, description = "`no_agent` or `no_session`, with the nearest names", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn pause(
    State(app): State<Arc<App>>,
    who: Who,
    Body(order): Body<Order>,
) -> Carried {
    find_and_carry_out(&app, &who, &order, What::Pause).await
}

/// Ends a hold.
#[utoipa::path(
    post, path = "/api/resume", tag = "orders", request_body = Order,
    responses(
        (status = 200, description = "In force and on disk", body = Done),
        (status = 409, description = "`session_final` or `scope_killed`", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    who: Who,
    Body(order): Body<Order>,
) -> Carried {
    find_and_carry_out(&app, &who, &order, What::Resume).await
}

async fn find_and_carry_out(app: &App, who: &Who, order: &Order, what: What) -> Carried {
    order.check()?;
    if matches!(what, What::Kill | What::Pause) && !order.new && !order.all {
        known(app, who, order).await?;
    }
    let scope = find(app, who, order).await?;
    let why = Why { reason: order.reason.clone(), by: order.by.clone() };
    carry_out(app, who, &scope, what, &why).await
}

/// Carries an order about a scope out.
pub(crate) async fn carry_out(
    app: &App,
    who: &Who,
    scope: &Arc<Scope>,
    what: What,
    why: &Why,
) -> Carried {
    if what == What::Resume {
        resumable(scope)?;
    }
    // Before anything else: it becomes part of the scope's state, the audit, events and alerts.
    let by = app.redacted(who, &who.signed(why.by.as_deref()));
    let reason = app.redacted(who, &why.reason);
    let because = if reason.is_empty() { "no reason given" } else { &reason };
    let order = deadstop_warden::Order { who: &by, what, reason: because };
    let (done, warden) = (what.done(), &app.warden);
    let carried = match what {
        What::Clear => warden.clear(scope, order).await,
        What::Kill => {
            let (by, because) = (by.clone(), because.to_owned());
            warden.order(scope, order, move |state, now| state.kill(&by, &because, now)).await
        }
        What::Reset => warden.reset(scope, order).await,
        What::Pause => {
            let (by, because) = (by.clone(), because.to_owned());
            warden.order(scope, order, move |state, now| state.pause(&by, &because, now)).await
        }
        What::Resume => warden.order(scope, order, |state, _| state.resume()).await,
        What::TopUp => return Err(Problem::new(Code::BadOrder, "say by how much")),
    };
    match carried {
        Ok(()) => Ok(Json(Done { done, scope: Row::of(scope), key: None })),
        Err(error) => {
            let text = match in_force(scope, what) {
                true => format!("it is in force here, but could not be written: {error}"),
                // An order that lets a scope continue waits until all nodes can know it.
                false => format!("it will be carried out as soon as it can be: {error}"),
            };
            Err(Problem::new(Code::NotDurable, text))
        }
    }
}

/// A scope that was killed is not resumed: that would let no call pass.
fn resumable(scope: &Scope) -> Result<(), Problem> {
    if scope.state().killed().is_none() {
        return Ok(());
    }
    let name = scope.name();
    Err(match scope.kind() {
        ScopeKind::Session | ScopeKind::Nested => Problem::new(
            Code::SessionFinal,
            format!(
                "the session {name} was killed, and its end is final; start a new session, or reset this one"
            ),
        ),
        ScopeKind::Agent => Problem::new(
            Code::ScopeKilled,
            format!("the agent {name} was killed, not paused; clear it to let it run again"),
        ),
        ScopeKind::Project => Problem::new(
            Code::ScopeKilled,
            "everything was killed, not paused; clear it to let agents run again",
        ),
    })
}

/// Whether a scope is, on this node, as an order wants it.
fn in_force(scope: &Scope, what: What) -> bool {
    let state = scope.state();
    match what {
        What::Kill => state.killed().is_some(),
        What::Clear | What::Reset | What::TopUp => state.killed().is_none(),
        What::Pause => state.paused().is_some(),
        What::Resume => state.paused().is_none(),
    }
}

/// Refuses an order about an agent or a session that was never heard of: a typo must not look like a
/// kill. A session without its agent is looked up by [`find`].
async fn known(app: &App, who: &Who, order: &Order) -> Result<(), Problem> {
    let Some(agent) = order.agent.as_deref() else { return Ok(()) };
    let (warden, project) = (&app.warden, &who.project);
    let unknown = |code: Code, kind: &str, name: &str, near: Vec<String>| {
        let meant = meant(near);
        let text = format!(
            "Nothing was done: the server knows no {kind} `{name}`.{meant} Send `\"new\": true` to give \
             the order in advance."
        );
        Err(Problem::new(code, text))
    };
    if !warden.knows(project, agent, None).await {
        let near = nearest(agent, warden.agent_names(project).await);
        return unknown(Code::NoAgent, "agent", agent, near);
    }
    let Some(session) = order.session.as_deref() else { return Ok(()) };
    if !warden.knows(project, agent, Some(session)).await {
        let mut live = warden.scopes(project);
        live.retain(|scope| scope.kind() == ScopeKind::Session && scope.agent() == agent);
        let near = nearest(session, live.iter().map(|scope| scope.name()));
        return unknown(Code::NoSession, "session", session, near);
    }
    Ok(())
}

/// " Did you mean `a` or `b`?", or nothing.
fn meant(near: Vec<String>) -> String {
    let near: Vec<String> = near.into_iter().map(|near| format!("`{near}`")).collect();
    match near.is_empty() {
        true => String::new(),
        false => format!(" Did you mean {}?", near.join(" or ")),
    }
}

/// The scope that an order is about.
async fn find(app: &App, who: &Who, order: &Order) -> Result<Arc<Scope>, Problem> {
    let wrong = |text: &str| Problem::new(Code::BadOrder, text);
    let (warden, project) = (&app.warden, &who.project);
    names("agent", &order.agent)?;
    names("session", &order.session)?;
    match (order.all, &order.agent, &order.session) {
        (true, None, None) => Ok(Arc::clone(&warden.project(project).await?.scope)),
        (true, _, _) => Err(wrong("`all` stands alone")),
        (false, Some(agent), Some(session)) => {
            Ok(warden.session_in(project, agent, session).await?)
        }
        (false, Some(agent), None) => Ok(warden.agent_in(project, agent).await?),
        (false, None, Some(session)) => {
            let named = |scope: &Arc<Scope>| {
                scope.kind() == ScopeKind::Session
                    && (scope.name() == session || is_with_agent(session, scope))
            };
            let found: Vec<_> = warden.scopes(project).into_iter().filter(named).collect();
            match found.as_slice() {
                [one] => Ok(Arc::clone(one)),
                [] => {
                    let mut live = warden.scopes(project);
                    live.retain(|scope| scope.kind() == ScopeKind::Session);
                    let shown = live.iter().map(|scope| match session.contains('/') {
                        true => format!("{}/{}", scope.agent(), scope.name()),
                        false => scope.name().to_owned(),
                    });
                    let meant = meant(nearest(session, shown));
                    let text = format!(
                        "Nothing was done: no session in use is called `{session}`.{meant}"
                    );
                    Err(Problem::new(Code::NoSession, text))
                }
                _ => Err(wrong("several agents have a session of that name; name the agent too")),
            }
        }
        (false, None, None) => Err(wrong("say what: `all`, `agent` or `session`")),
    }
}

/// `AGENT/SESSION`, as lists show it.
fn is_with_agent(text: &str, scope: &Scope) -> bool {
    let name = text.strip_prefix(scope.agent()).and_then(|rest| rest.strip_prefix('/'));
    name == Some(scope.name())
}
