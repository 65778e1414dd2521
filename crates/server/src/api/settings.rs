//! Settings of a project: what is captured, how long things are kept, own patterns of secrets.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deadstop_protocol::policy_views::FieldFault;
use deadstop_protocol::redact::{Pattern, Redactor};
use deadstop_store::{Setting, Store};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::App;
use super::auth::Who;
use super::extract::{Body, Strict};
use super::problem::{Code, Problem};
use crate::warden::now;

/// The name under which they are kept.
const NAME: &str = "project";

/// What of the requests and answers is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Capture {
    /// Nothing.
    None,
    /// Those that an incident is about.
    #[default]
    Incidents,
    /// All of them.
    All,
}

/// How many days things are kept; null for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retention {
    /// Calls. What they came to by day stays.
    #[schema(required, minimum = 1, maximum = 36500)]
    pub(crate) calls_days: Option<u32>,
    /// What was said in single calls.
    #[schema(required, minimum = 1, maximum = 36500)]
    pub(crate) payloads_days: Option<u32>,
    /// What was said before incidents.
    #[schema(required, minimum = 1, maximum = 36500)]
    pub(crate) evidence_days: Option<u32>,
    /// Sessions that nobody has used since.
    #[schema(required, minimum = 1, maximum = 36500)]
    pub(crate) sessions_days: Option<u32>,
    /// Incidents, with their evidence.
    #[schema(required, minimum = 1, maximum = 36500)]
    pub(crate) incidents_days: Option<u32>,
    /// Alerts that were delivered or given up.
    #[schema(required, minimum = 1, maximum = 36500)]
    pub(crate) deliveries_days: Option<u32>,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention {
            calls_days: Some(90),
            payloads_days: Some(30),
            evidence_days: Some(365),
            sessions_days: Some(365),
            incidents_days: None,
            deliveries_days: Some(30),
        }
    }
}

/// A pattern of secrets that only this project has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretPattern {
    /// What stands in its place: `[redacted:name]`.
    #[schema(min_length = 1, max_length = 40)]
    pub(crate) name: String,
    /// A regular expression; if it has a group, only that is removed.
    #[schema(min_length = 1, max_length = 1000)]
    pub(crate) regex: String,
}

/// The settings of a project.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// What of the requests and answers is kept.
    pub(crate) capture: Capture,
    /// How many days things are kept.
    pub(crate) retention: Retention,
    /// Own patterns of secrets, besides those that are known.
    #[schema(max_items = 64)]
    pub(crate) redaction: Vec<SecretPattern>,
}

impl Strict for Settings {}

impl Settings {
    /// The settings of a project, or what they are if nobody set them.
    pub(crate) async fn of(store: &Store, project: &str) -> Result<Settings, Problem> {
        let Some(found) = store.setting(project, NAME).await? else {
            return Ok(Settings::default());
        };
        serde_json::from_str(&found.value).map_err(|error| {
            tracing::error!(project, "the settings cannot be read: {error}");
            Problem::new(Code::Internal, "the project's settings cannot be read; set them again")
        })
    }
}

impl Settings {
    /// What removes secrets under these settings; says which patterns cannot be used.
    pub(crate) fn redactor(&self) -> Result<Redactor, Vec<FieldFault>> {
        let pattern =
            |own: &SecretPattern| Pattern { name: own.name.clone(), regex: own.regex.clone() };
        let all: Vec<_> = self.redaction.iter().map(pattern).collect();
        Redactor::with_patterns(&all).map_err(|whole| {
            let alone = all.iter().enumerate().filter_map(|(at, pattern)| {
                let bad = Redactor::with_patterns(std::slice::from_ref(pattern)).err()?;
                Some(FieldFault::invalid(format!("redaction[{at}]"), bad.to_string()))
            });
            let mut faults: Vec<_> = alone.collect();
            if faults.is_empty() {
                faults.push(FieldFault::invalid("redaction", whole.to_string()));
            }
            faults
        })
    }
}

/// The settings of the project.
#[utoipa::path(
    get, path = "/api/settings", tag = "settings",
    responses((status = 200, description = "In force", body = Settings))
)]
pub(crate) async fn get(State(app): State<Arc<App>>, who: Who) -> Result<Json<Settings>, Problem> {
    Ok(Json(Settings::of(app.store()?, &who.project).await?))
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
    settings.redactor().map_err(|fault| Problem::fields(Code::InvalidBody, fault))?;
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
    Ok(Json(settings))
}
