//! Grants: an operator's one-time allowance for a destructive batch, for an agent or a session.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use deadstop_core::{Millis, Pattern};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::App;
use super::approvals::Because;
use super::auth::Who;
use super::extract::{At, Body, Name, Strict};
use super::problem::{Code, Problem, ProblemBody};
use super::sessions::known;
use deadstop_warden::{Scope, now};

/// An allowance for a destructive batch.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewGrant {
    /// How much may be destroyed with it.
    #[schema(minimum = 1, maximum = 1_000_000, example = 50)]
    deletes: u32,
    /// Only by these tools; `*` stands for any characters.
    #[schema(min_length = 1, max_length = 200)]
    tool: Option<String>,
    /// Only these targets; `*` stands for any characters. One without a star may be destroyed again
    /// and again.
    #[schema(min_length = 1, max_length = 500, example = "tmp_*")]
    target: Option<String>,
    /// Why.
    #[schema(min_length = 1, max_length = 1000)]
    reason: String,
    /// Seconds until it ends.
    #[schema(minimum = 1, maximum = 604_800, example = 600)]
    expires_in_s: u64,
    /// The person who says so, where a client speaks for several.
    #[schema(max_length = 200)]
    by: Option<String>,
}

impl Strict for NewGrant {}

/// A grant as it is now.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Grant {
    /// Its id.
    id: String,
    /// How much may be destroyed with it.
    deletes: u32,
    /// How much of that is left.
    left: u32,
    /// Only by these tools.
    #[schema(required)]
    tool: Option<String>,
    /// Only these targets.
    #[schema(required)]
    target: Option<String>,
    /// Who gave it.
    by: String,
    /// Why.
    reason: String,
    /// When it was given.
    given_ms: u64,
    /// When it ends.
    expires_ms: u64,
}

impl Grant {
    fn of(grant: &deadstop_core::Grant) -> Grant {
        Grant {
            id: grant.id.to_string(),
            deletes: grant.deletes,
            left: grant.left,
            tool: grant.tool.as_ref().map(ToString::to_string),
            target: grant.target.as_ref().map(ToString::to_string),
            by: grant.by.clone(),
            reason: grant.because.clone(),
            given_ms: grant.given.0,
            expires_ms: grant.expires.0,
        }
    }
}

/// The grants of an agent or a session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Given {
    /// Those that are in force, in the order in which they were given.
    items: Vec<Grant>,
}

/// The grants of an agent.
#[utoipa::path(
    get, path = "/api/agents/{name}/grants", tag = "grants",
    params(("name" = String, Path, description = "The agent")),
    responses((status = 200, description = "Those in force", body = Given))
)]
pub(crate) async fn of_agent(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(name)): At<Name>,
) -> Result<Json<Given>, Problem> {
    if app.warden.is_removed(&who.project, &name) {
        let live = app.warden.live_agent(&who.project, &name);
        return given_before(&who, &name, live.as_deref());
    }
    Ok(given(&*known_agent(&app, &who, &name).await?))
}

/// Gives an agent a grant, for all its sessions together.
#[utoipa::path(
    post, path = "/api/agents/{name}/grants", tag = "grants", request_body = NewGrant,
    params(("name" = String, Path, description = "The agent")),
    responses(
        (status = 201, description = "In force and on disk", body = Grant),
        (status = 409, description = "`too_many_grants`", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn give_agent(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(name)): At<Name>,
    Body(grant): Body<NewGrant>,
) -> Result<(StatusCode, Json<Grant>), Problem> {
    let scope = known_agent(&app, &who, &name).await?;
    give(&app, &who, &scope, &grant).await
}

/// Takes a grant of an agent back.
#[utoipa::path(
    post, path = "/api/agents/{name}/grants/{id}/revoke", tag = "grants", request_body = Because,
    params(
        ("name" = String, Path, description = "The agent"),
        ("id" = String, Path, description = "The grant")
    ),
    responses((status = 200, description = "As it was", body = Grant))
)]
pub(crate) async fn revoke_agent(
    State(app): State<Arc<App>>,
    who: Who,
    At((Name(name), id)): At<(Name, String)>,
    Body(because): Body<Because>,
) -> Result<Json<Grant>, Problem> {
    let scope = known_agent(&app, &who, &name).await?;
    revoke(&app, &who, &scope, &id, &because).await
}

/// The grants of a session.
#[utoipa::path(
    get, path = "/api/sessions/{agent}/{session}/grants", tag = "grants",
    params(
        ("agent" = String, Path, description = "The agent"),
        ("session" = String, Path, description = "The session")
    ),
    responses((status = 200, description = "Those in force", body = Given))
)]
pub(crate) async fn of_session(
    State(app): State<Arc<App>>,
    who: Who,
    At(at): At<(Name, Name)>,
) -> Result<Json<Given>, Problem> {
    let (Name(agent), Name(session)) = &at;
    if app.warden.is_removed(&who.project, agent) {
        let live = app.warden.live_session(&who.project, agent, session);
        return given_before(&who, agent, live.as_deref());
    }
    Ok(given(&*known(&app, &who, &at).await?))
}

/// Gives a session a grant.
#[utoipa::path(
    post, path = "/api/sessions/{agent}/{session}/grants", tag = "grants", request_body = NewGrant,
    params(
        ("agent" = String, Path, description = "The agent"),
        ("session" = String, Path, description = "The session")
    ),
    responses(
        (status = 201, description = "In force and on disk", body = Grant),
        (status = 409, description = "`too_many_grants`", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn give_session(
    State(app): State<Arc<App>>,
    who: Who,
    At(at): At<(Name, Name)>,
    Body(grant): Body<NewGrant>,
) -> Result<(StatusCode, Json<Grant>), Problem> {
    let scope = known(&app, &who, &at).await?;
    give(&app, &who, &scope, &grant).await
}

/// Takes a grant of a session back.
#[utoipa::path(
    post, path = "/api/sessions/{agent}/{session}/grants/{id}/revoke", tag = "grants", request_body = Because,
    params(
        ("agent" = String, Path, description = "The agent"),
        ("session" = String, Path, description = "The session"),
        ("id" = String, Path, description = "The grant")
    ),
    responses((status = 200, description = "As it was", body = Grant))
)]
pub(crate) async fn revoke_session(
    State(app): State<Arc<App>>,
    who: Who,
    At((agent, session, id)): At<(Name, Name, String)>,
    Body(because): Body<Because>,
) -> Result<Json<Grant>, Problem> {
    let scope = known(&app, &who, &(agent, session)).await?;
    revoke(&app, &who, &scope, &id, &because).await
}

/// An agent that is live or stored; fails for an unknown one.
async fn known_agent(app: &App, who: &Who, name: &str) -> Result<Arc<Scope>, Problem> {
    who.may_see(name)?;
    if app.warden.live_agent(&who.project, name).is_none() {
        let stored = app.store()?.agent(&who.project, name).await?;
        stored.ok_or_else(|| Problem::not_found("agent"))?;
    }
    Ok(app.warden.agent_in(&who.project, name).await?)
}

/// The grants of a removed agent, as far as they are in memory: to look it up would count as a use.
fn given_before(who: &Who, agent: &str, live: Option<&Scope>) -> Result<Json<Given>, Problem> {
    who.may_see(agent)?;
    Ok(live.map_or_else(|| Json(Given { items: Vec::new() }), given))
}

fn given(scope: &Scope) -> Json<Given> {
    let items = scope.state().grants(now()).map(Grant::of).collect();
    Json(Given { items })
}

async fn give(
    app: &App,
    who: &Who,
    scope: &Arc<Scope>,
    asked: &NewGrant,
) -> Result<(StatusCode, Json<Grant>), Problem> {
    let at = app.warden.time();
    let pattern = |text: &Option<String>| text.as_ref().map(|text| Pattern::new(text.as_str()));
    let grant = deadstop_core::Grant {
        id: u64::try_from(app.warden.number()).unwrap_or_default(),
        deletes: asked.deletes,
        left: asked.deletes,
        tool: pattern(&asked.tool),
        target: pattern(&asked.target),
        given: at,
        expires: at + Millis::from_secs(asked.expires_in_s),
        by: app.redacted(who, &who.signed(asked.by.as_deref())),
        because: app.redacted(who, &asked.reason),
    };
    match app.warden.give(scope, grant.clone()).await {
        Ok(Ok(())) => Ok((StatusCode::CREATED, Json(Grant::of(&grant)))),
        Ok(Err(error)) => Err(not_durable(&error)),
        Err(too_many) => Err(Problem::new(Code::TooManyGrants, too_many.to_string())),
    }
}

async fn revoke(
    app: &App,
    who: &Who,
    scope: &Arc<Scope>,
    id: &str,
    because: &Because,
) -> Result<Json<Grant>, Problem> {
    let missing = || Problem::not_found("grant that is in force");
    let id: u64 = id.parse().map_err(|_| missing())?;
    let by = app.redacted(who, &who.signed(because.by.as_deref()));
    let reason = app.redacted(who, &because.reason);
    let revoked = app.warden.revoke_grant(scope, id, &by, &reason).await;
    match revoked.ok_or_else(missing)? {
        (grant, Ok(())) => Ok(Json(Grant::of(&grant))),
        (_, Err(error)) => Err(not_durable(&error)),
    }
}

fn not_durable(error: &str) -> Problem {
    Problem::new(
        Code::NotDurable,
        format!("it is in force here, but could not be written: {error}"),
    )
}
