//! Settings of a project: what is captured, how long things are kept, own patterns of secrets.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deadstop_store::{Setting, Store};

use super::App;
use super::auth::Who;
use super::extract::{Body, Strict};
use super::problem::{Code, Problem};
use deadstop_warden::now;
use deadstop_warden::settings::{NAME, Settings};

impl Strict for Settings {}

/// The settings of a project, or the defaults if none are stored.
async fn of(store: &Store, project: &str) -> Result<Settings, Problem> {
    let Some(found) = store.setting(project, NAME).await? else {
        return Ok(Settings::default());
    };
    serde_json::from_str(&found.value).map_err(|error| {
        tracing::error!(project, "the settings cannot be read: {error}");
        Problem::new(Code::Internal, "the project's settings cannot be read; set them again")
    })
}

/// The settings of the project.
#[utoipa::path(
    get, path = "/api/settings", tag = "settings",
    responses((status = 200, description = "In force", body = Settings))
)]
pub(crate) async fn get(State(app): State<Arc<App>>, who: Who) -> Result<Json<Settings>, Problem> {
    Ok(Json(of(app.store()?, &who.project).await?))
}

/// Replaces the settings of the project.
#[utoipa::path(
    put, path = "/api/settings", tag = "settings", request_body = Settings,
    responses((status = 200, description = "In force", body = Settings))
)]
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    who: Who,
    Body(settings): Body<Settings>,
) -> Result<Json<Settings>, Problem> {
    let in_force =
        settings.in_force().map_err(|faults| Problem::fields(Code::InvalidBody, faults))?;
    let value = serde_json::to_value(&settings).unwrap_or_default();
    let event = app.event(&who, "settings.set", NAME, "", &value);
    let setting = Setting {
        project: who.project.clone(),
        name: NAME.to_owned(),
        value: value.to_string(),
        changed: now(),
        who: event.who.clone(),
    };
    app.store()?.put_setting(&setting, Some(&event)).await?;
    app.project(&who).await?.set_settings(in_force);
    app.warden.announce_project(&who.project).await;
    Ok(Json(settings))
}
