//! Projects: separate tenants. A key gives access to one project only.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use deadstop_protocol::llm::identity;
use deadstop_protocol::policy_views::FieldFault;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::App;
use super::auth::{Role, Via, Who};
use super::extract::{Body, Page, Strict};
use super::keys::{self, KeyOrder, MadeKey};
use super::problem::{Code, Problem, ProblemBody};
use deadstop_warden::now;

/// A project.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Project {
    /// Its name.
    name: String,
    /// When it was first heard of.
    opened_ms: u64,
}

/// A project to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProjectOrder {
    /// Its name.
    #[schema(min_length = 1, max_length = 200)]
    name: String,
}

impl Strict for ProjectOrder {}

/// A project that was just made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MadeProject {
    #[serde(flatten)]
    project: Project,
    /// Its first admin's key, shown this once; null on a server without keys.
    #[schema(required)]
    admin: Option<MadeKey>,
}

/// The projects that you may see.
#[utoipa::path(
    get, path = "/api/projects", tag = "projects",
    responses((status = 200, description = "Your own; all of them for the local user", body = Page<Project>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    who: Who,
) -> Result<Json<Page<Project>>, Problem> {
    let all = app.store()?.projects().await?;
    let own =
        all.into_iter().filter(|one| matches!(who.via, Via::Local(_)) || one.name == who.project);
    let shown = own.map(|one| Project { name: one.name, opened_ms: one.opened.0 });
    Ok(Json(Page::all(shown.collect())))
}

/// Makes a project. On a server with keys the answer holds the project's first admin key: the
/// caller's own key has no access to it.
#[utoipa::path(
    post, path = "/api/projects", tag = "projects", request_body = ProjectOrder,
    responses(
        (status = 201, description = "The project", body = MadeProject),
        (status = 409, description = "`name_taken`", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    who: Who,
    Body(order): Body<ProjectOrder>,
) -> Result<Response, Problem> {
    let store = app.store()?;
    let Some(name) = identity::name(&order.name).filter(|name| *name == order.name) else {
        let fault = FieldFault::invalid("name", "this cannot be a name");
        return Err(Problem::fields(Code::InvalidBody, vec![fault]));
    };
    let _turn = app.policy_turn.lock().await;
    let at = now();
    // If several nodes get this request at once, only one of them creates the project.
    if !store.ensure_project(&name, at).await? {
        return Err(Problem::new(Code::NameTaken, "a project of this name exists already"));
    }
    store.audit(&app.event_in(&name, &who, "project.create", &name, "", &json!({}))).await?;
    let admin = if app.auth.keyed().await? {
        let order =
            KeyOrder { name: format!("first admin of {name}"), role: Role::Admin, agent: None };
        let (key, stored) = keys::make(&app, &who, order, &name).await?;
        Some(MadeKey::later(key, stored))
    } else {
        None
    };
    let body = MadeProject { project: Project { name, opened_ms: at.0 }, admin };
    Ok((StatusCode::CREATED, Json(body)).into_response())
}
