//! Refused calls that a person may allow once, by the code that the refusal names.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deadstop_warden::{NotAllowed, Once};
use serde::Serialize;
use utoipa::ToSchema;

use super::App;
use super::approvals::{Approving, LISTED, Would, all_shown};
use super::auth::Who;
use super::extract::{At, Body};
use super::problem::{Code, Problem, ProblemBody};

/// A refused call that can be allowed once, or was.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RefusedCall {
    /// The code that the refusal names.
    code: String,
    /// The agent.
    agent: String,
    /// The session.
    session: String,
    /// The nested scopes in which it was made, one below the other.
    #[schema(required)]
    scope: Option<String>,
    /// The tool.
    tool: String,
    /// The server that it runs on.
    #[schema(required)]
    server: Option<String>,
    /// What it would do, the worst first.
    harms: Vec<Would>,
    /// What it is called with, without secrets. A list holds the first 2,000 characters,
    /// `GET /api/allow/{code}` all of them.
    asked: String,
    /// Characters of the whole text.
    asked_chars: u64,
    /// Characters of the call behind the whole text, which were not kept. A call with any cannot be
    /// allowed.
    unkept_chars: u64,
    /// Why it was refused.
    explain: String,
    /// When it was refused last.
    refused_ms: u64,
    /// Who has allowed it.
    #[schema(required)]
    allowed_by: Option<String>,
    /// Why.
    #[schema(required)]
    allowed_why: Option<String>,
    /// Until when it may then be made, once.
    #[schema(required)]
    until_ms: Option<u64>,
}

impl RefusedCall {
    fn of(once: Once) -> RefusedCall {
        let allowed = once.allowed;
        RefusedCall {
            code: once.code,
            agent: once.agent,
            session: once.session,
            scope: once.nested,
            tool: once.tool,
            server: once.server,
            harms: once.harms.iter().map(Would::of).collect(),
            asked_chars: once.asked.chars().count() as u64,
            asked: once.asked,
            unkept_chars: once.unkept,
            explain: once.because,
            refused_ms: once.at.0,
            until_ms: allowed.as_ref().map(|allowed| allowed.until.0),
            allowed_why: allowed.as_ref().map(|allowed| allowed.reason.clone()),
            allowed_by: allowed.map(|allowed| allowed.by),
        }
    }

    fn beginning(self) -> RefusedCall {
        RefusedCall { asked: self.asked.chars().take(LISTED).collect(), ..self }
    }
}

/// Refused calls that can be allowed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RefusedCalls {
    /// Those of the last hour, the newest first.
    items: Vec<RefusedCall>,
}

/// Calls that were refused because of their harm, and can be allowed once.
#[utoipa::path(
    get, path = "/api/allow", tag = "allow",
    responses((status = 200, description = "Those of the last hour, the newest first", body = RefusedCalls))
)]
pub(crate) async fn list(State(app): State<Arc<App>>, who: Who) -> Json<RefusedCalls> {
    let onces = app.warden.onces.of(&who.project, app.warden.time());
    let items = onces.into_iter().rev().map(|once| RefusedCall::of(once).beginning());
    Json(RefusedCalls { items: items.collect() })
}

/// One of them, whole.
#[utoipa::path(
    get, path = "/api/allow/{code}", tag = "allow",
    params(("code" = String, Path, description = "The code that the refusal names")),
    responses((status = 200, description = "As it is now", body = RefusedCall))
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    who: Who,
    At(code): At<String>,
) -> Result<Json<RefusedCall>, Problem> {
    find(&app, &who, &code).map(|once| Json(RefusedCall::of(once)))
}

/// Allows exactly this call of its session, once, within ten minutes.
#[utoipa::path(
    post, path = "/api/allow/{code}", tag = "allow", request_body = Approving,
    params(("code" = String, Path, description = "The code that the refusal names")),
    responses(
        (status = 200, description = "In force and in the audit", body = RefusedCall),
        (status = 422, description = "`not_shown`: show the whole call first", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn allow(
    State(app): State<Arc<App>>,
    who: Who,
    At(code): At<String>,
    Body(seen): Body<Approving>,
) -> Result<Json<RefusedCall>, Problem> {
    let once = find(&app, &who, &code)?;
    let at = format!("/api/allow/{}", once.code);
    all_shown(&once.asked, once.unkept, seen.shown_chars, &at)?;
    let by = app.redacted(&who, &who.signed(seen.by.as_deref()));
    let reason = app.redacted(&who, &seen.reason);
    match app.warden.allow_once(&who.project, &once.code, &by, &reason).await {
        Ok(once) => Ok(Json(RefusedCall::of(once))),
        Err(NotAllowed::Unknown) => Err(unknown()),
        Err(NotAllowed::NotWritten(error)) => {
            let text = format!("it is in force, but could not be written: {error}");
            Err(Problem::new(Code::NotDurable, text))
        }
    }
}

fn find(app: &App, who: &Who, code: &str) -> Result<Once, Problem> {
    let found = app.warden.onces.get(&who.project, code, app.warden.time());
    let found = found.ok_or_else(unknown)?;
    who.may_see(&found.agent)?;
    Ok(found)
}

fn unknown() -> Problem {
    Problem::not_found("code: codes end an hour after the refusal, or when they are used")
}
