//! Versions of policies: show one, compare two, restore one.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use deadstop_protocol::policy_views::{AgentDocument, Change, Whose, diff, write_policy};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::super::App;
use super::super::auth::Who;
use super::super::extract::{Asked, At, Body, IfMatch, Name, Needed, Page, Paged};
use super::super::orders::Why;
use super::super::problem::Problem;
use super::change::{
    change_agent, change_default, current_agent, current_default, known_agent, read_agent,
    read_default,
};
use super::{Document, Listed, agent_document, get_default, nothing};

/// One version of a document.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Version {
    #[serde(flatten)]
    about: Listed,
    /// The document; null where it went back to the default.
    document: Value,
}

/// Which versions to compare.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct Two {
    /// The earlier version; the one before `to` if it is left out. 0 means no policy.
    #[param(minimum = 0)]
    from: Option<i64>,
    /// The later one; the current one if it is left out.
    #[param(minimum = 0)]
    to: Option<i64>,
}

/// What is different between two versions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Difference {
    /// The earlier one.
    from: i64,
    /// The later one.
    to: i64,
    /// Every setting that differs. An agent without a policy of its own is compared as it stands
    /// under the project's default of now.
    changes: Vec<Change>,
}

/// Whose versions.
#[derive(Clone, Copy)]
struct Of<'a> {
    app: &'a App,
    who: &'a Who,
    agent: Option<&'a str>,
}

impl Of<'_> {
    async fn known(&self) -> Result<(), Problem> {
        match self.agent {
            Some(agent) => known_agent(self.app, &self.who.project, agent).await,
            None => Ok(()),
        }
    }

    async fn list(&self, paged: &Paged) -> Result<Json<Page<Listed>>, Problem> {
        self.known().await?;
        let (project, paging) = (&self.who.project, paged.paging());
        let found = self.app.store()?.policy_versions(project, self.agent, &paging).await?;
        Ok(Json(Page::of(found, Listed::from)))
    }

    async fn show(&self, version: i64) -> Result<Json<Version>, Problem> {
        let found =
            self.app.store()?.policy_version(&self.who.project, self.agent, version).await?;
        let found = found.ok_or_else(|| Problem::not_found("version"))?;
        let text = found.document.as_deref().unwrap_or("null");
        let document = serde_json::from_str(text).unwrap_or_default();
        Ok(Json(Version { about: found.into(), document }))
    }

    /// A version's document in full, so that two can be compared.
    async fn document(&self, version: i64) -> Result<Value, Problem> {
        let text = match version {
            0 => None,
            _ => {
                let store = self.app.store()?;
                let found = store.policy_version(&self.who.project, self.agent, version).await?;
                found.ok_or_else(|| Problem::not_found("version"))?.document
            }
        };
        match self.agent {
            Some(_) if text.is_none() => Ok(nothing()),
            Some(_) => Ok(read_agent(text.as_deref())?.to_json()),
            None => Ok(write_policy(&read_default(self.app, text.as_deref())?, Whose::Project)),
        }
    }

    async fn compare(&self, two: &Two) -> Result<Json<Difference>, Problem> {
        self.known().await?;
        let current = match self.agent {
            Some(agent) => current_agent(self.app, &self.who.project, agent).await?.0,
            None => current_default(self.app, &self.who.project).await?.0,
        };
        let to = two.to.unwrap_or_else(|| current.map_or(0, |version| version.version));
        let from = two.from.unwrap_or_else(|| to.saturating_sub(1).max(0));
        let (mut before, mut after) = (self.document(from).await?, self.document(to).await?);
        if self.agent.is_some() {
            // Without an own policy the other version is compared with the default.
            let none = |document: &Value| document["policy"].is_null();
            let (alone, other) = (none(&before), none(&after));
            if alone != other {
                let (_, default) = current_default(self.app, &self.who.project).await?;
                let side = if alone { &mut before } else { &mut after };
                side["policy"] = write_policy(&default, Whose::Agent);
            }
        }
        let changes = diff(&before, &after);
        Ok(Json(Difference { from, to, changes }))
    }
}

/// The versions of the default.
#[utoipa::path(
    get, path = "/api/policies/default/versions", tag = "policies", params(Paged),
    responses((status = 200, description = "The newest first", body = Page<Listed>))
)]
pub(crate) async fn default_versions(
    State(app): State<Arc<App>>,
    who: Who,
    Asked(paged): Asked<Paged>,
) -> Result<Json<Page<Listed>>, Problem> {
    Of { app: &app, who: &who, agent: None }.list(&paged).await
}

/// One version of the default.
#[utoipa::path(
    get, path = "/api/policies/default/versions/{version}", tag = "policies",
    params(("version" = i64, Path, description = "Which")),
    responses((status = 200, description = "With its document", body = Version))
)]
pub(crate) async fn default_version(
    State(app): State<Arc<App>>,
    who: Who,
    At(version): At<i64>,
) -> Result<Json<Version>, Problem> {
    Of { app: &app, who: &who, agent: None }.show(version).await
}

/// What is different between two versions of the default.
#[utoipa::path(
    get, path = "/api/policies/default/diff", tag = "policies", params(Two),
    responses((status = 200, description = "Setting by setting", body = Difference))
)]
pub(crate) async fn default_diff(
    State(app): State<Arc<App>>,
    who: Who,
    Asked(two): Asked<Two>,
) -> Result<Json<Difference>, Problem> {
    Of { app: &app, who: &who, agent: None }.compare(&two).await
}

/// Puts a version of the default into force again, as the newest.
#[utoipa::path(
    post, path = "/api/policies/default/versions/{version}/restore", tag = "policies",
    request_body = Why,
    params(
        ("version" = i64, Path, description = "Which"),
        ("if-match" = Option<String>, Header, description = "The ETag of what it replaces"),
    ),
    responses((status = 200, description = "In force", body = Document))
)]
pub(crate) async fn restore_default(
    State(app): State<Arc<App>>,
    who: Who,
    At(version): At<i64>,
    if_match: IfMatch,
    Body(why): Body<Why>,
) -> Result<Response, Problem> {
    let expected = if_match.expected(Needed::No)?;
    let found = app.store()?.policy_version(&who.project, None, version).await?;
    let found = found.ok_or_else(|| Problem::not_found("version"))?;
    let policies = match &found.document {
        Some(text) => Some(read_default(&app, Some(text))?),
        None => None,
    };
    let reason = restored(version, &why);
    change_default(&app, &who, expected, &reason, |_| policies.clone()).await?;
    get_default(State(app), who).await
}

fn restored(version: i64, why: &Why) -> String {
    let colon = if why.reason.is_empty() { "" } else { ": " };
    format!("version {version} restored{colon}{}", why.reason)
}

/// The versions of what an agent has of its own.
#[utoipa::path(
    get, path = "/api/policies/agents/{name}/versions", tag = "policies",
    params(("name" = String, Path, description = "The agent"), Paged),
    responses((status = 200, description = "The newest first", body = Page<Listed>))
)]
pub(crate) async fn agent_versions(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(agent)): At<Name>,
    Asked(paged): Asked<Paged>,
) -> Result<Json<Page<Listed>>, Problem> {
    Of { app: &app, who: &who, agent: Some(&agent) }.list(&paged).await
}

/// One version of what an agent has of its own.
#[utoipa::path(
    get, path = "/api/policies/agents/{name}/versions/{version}", tag = "policies",
    params(
        ("name" = String, Path, description = "The agent"),
        ("version" = i64, Path, description = "Which"),
    ),
    responses((status = 200, description = "With its document", body = Version))
)]
pub(crate) async fn agent_version(
    State(app): State<Arc<App>>,
    who: Who,
    At((Name(agent), version)): At<(Name, i64)>,
) -> Result<Json<Version>, Problem> {
    Of { app: &app, who: &who, agent: Some(&agent) }.show(version).await
}

/// What is different between two versions of what an agent has of its own.
#[utoipa::path(
    get, path = "/api/policies/agents/{name}/diff", tag = "policies",
    params(("name" = String, Path, description = "The agent"), Two),
    responses((status = 200, description = "Setting by setting", body = Difference))
)]
pub(crate) async fn agent_diff(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(agent)): At<Name>,
    Asked(two): Asked<Two>,
) -> Result<Json<Difference>, Problem> {
    Of { app: &app, who: &who, agent: Some(&agent) }.compare(&two).await
}

/// Puts a version of what an agent has of its own into force again, as the newest.
#[utoipa::path(
    post, path = "/api/policies/agents/{name}/versions/{version}/restore", tag = "policies",
    request_body = Why,
    params(
        ("name" = String, Path, description = "The agent"),
        ("version" = i64, Path, description = "Which"),
        ("if-match" = Option<String>, Header, description = "The ETag of what it replaces"),
    ),
    responses((status = 200, description = "In force", body = Document))
)]
pub(crate) async fn restore_agent(
    State(app): State<Arc<App>>,
    who: Who,
    At((Name(agent), version)): At<(Name, i64)>,
    if_match: IfMatch,
    Body(why): Body<Why>,
) -> Result<Response, Problem> {
    let expected = if_match.expected(Needed::No)?;
    let found = app.store()?.policy_version(&who.project, Some(&agent), version).await?;
    let found = found.ok_or_else(|| Problem::not_found("version"))?;
    let document: AgentDocument = read_agent(found.document.as_deref())?;
    let reason = restored(version, &why);
    let change = |_: &_, _| document.clone();
    change_agent(&app, &who, &agent, expected, &reason, change).await?;
    agent_document(&app, &who, &agent).await
}
