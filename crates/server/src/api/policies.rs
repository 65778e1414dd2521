//! Policies: the project's default and what agents have of their own, with all their versions.
//!
//! The bodies are whole documents. A change says which version it replaces (`if-match`), is kept
//! for good, and is in force when it is acknowledged.

mod adopt;
mod change;
mod shape;
mod versions;
mod views;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use deadstop_protocol::policy_views::{AgentDocument, Whose, effective, read_policy, write_policy};
use deadstop_store::PolicyVersion;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

pub(crate) use change::load;
pub(super) use change::{change_agent, current_agent, current_default};
use change::{change_default, known_agent};
pub(super) use change::{read_agent, read_default};
use shape::{AgentPolicy, WholePolicy};
pub(crate) use versions::*;
pub(crate) use views::*;

use super::App;
use super::auth::Who;
use super::extract::{Asked, At, ETag, IfMatch, Name, Needed, Page, Raw};
use super::problem::{Code, Problem};

/// Why something is changed.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct Because {
    /// Why; kept with the version.
    #[param(max_length = 1000)]
    pub(crate) reason: Option<String>,
}

impl Because {
    fn text(&self) -> &str {
        self.reason.as_deref().unwrap_or_default()
    }
}

/// A document and who wrote it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Document {
    /// The agent; null for the project's default.
    #[schema(required)]
    agent: Option<String>,
    /// Its version; 0 if there is none. The same as in the ETag.
    version: i64,
    /// When it was written.
    #[schema(required)]
    at_ms: Option<u64>,
    /// Who wrote it.
    #[schema(required)]
    who: Option<String>,
    /// Why.
    #[schema(required)]
    note: Option<String>,
    /// The document, as it can be sent back: for the project a whole policy, for an agent
    /// `{policy, kill_switch}`, each of which may be null.
    document: Value,
    /// The policy in force.
    effective: Value,
}

impl Document {
    fn of(
        agent: Option<&str>,
        version: Option<&PolicyVersion>,
        document: Value,
        effective: Value,
    ) -> Document {
        Document {
            agent: agent.map(str::to_owned),
            version: version.map_or(0, |version| version.version),
            at_ms: version.map(|version| version.at.0),
            who: version.map(|version| version.who.clone()),
            note: version.map(|version| version.note.clone()),
            document,
            effective,
        }
    }

    fn answer(self) -> Response {
        (ETag(self.version), Json(self)).into_response()
    }
}

/// A document in the list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Listed {
    /// The agent; null for the project's default.
    #[schema(required)]
    agent: Option<String>,
    /// Its version.
    version: i64,
    /// When it was written.
    at_ms: u64,
    /// Who wrote it.
    who: String,
    /// Why.
    note: String,
    /// Whether it went back to the default.
    is_default: bool,
}

impl From<PolicyVersion> for Listed {
    fn from(version: PolicyVersion) -> Listed {
        Listed {
            agent: version.agent,
            version: version.version,
            at_ms: version.at.0,
            who: version.who,
            note: version.note,
            is_default: version.document.is_none(),
        }
    }
}

/// All documents of the project.
#[utoipa::path(
    get, path = "/api/policies", tag = "policies",
    responses((status = 200, description = "The default first, then by agent", body = Page<Listed>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    who: Who,
) -> Result<Json<Page<Listed>>, Problem> {
    let all = app.store()?.policies().await?;
    let own = all.into_iter().filter(|version| version.project == who.project);
    Ok(Json(Page::all(own.map(Listed::from).collect())))
}

/// The project's default policy.
#[utoipa::path(
    get, path = "/api/policies/default", tag = "policies",
    responses((status = 200, description = "With its ETag", body = Document))
)]
pub(crate) async fn get_default(
    State(app): State<Arc<App>>,
    who: Who,
) -> Result<Response, Problem> {
    let (version, policies) = current_default(&app, &who.project).await?;
    let policy = write_policy(&policies, Whose::Project);
    Ok(Document::of(None, version.as_ref(), policy.clone(), policy).answer())
}

/// Replaces the project's default policy.
#[utoipa::path(
    put, path = "/api/policies/default", tag = "policies", request_body = WholePolicy,
    params(("if-match" = String, Header, description = "The ETag of what it replaces"), Because),
    responses((status = 200, description = "In force", body = Document))
)]
pub(crate) async fn put_default(
    State(app): State<Arc<App>>,
    who: Who,
    if_match: IfMatch,
    Asked(because): Asked<Because>,
    Raw(body): Raw,
) -> Result<Response, Problem> {
    let expected = if_match.expected(Needed::Yes)?;
    let policies = read_policy(&body, Whose::Project).map_err(invalid)?;
    change_default(&app, &who, expected, because.text(), |_| Some(policies.clone())).await?;
    get_default(State(app), who).await
}

/// Goes back to the policy that the server was started with.
#[utoipa::path(
    delete, path = "/api/policies/default", tag = "policies",
    params(("if-match" = Option<String>, Header, description = "The ETag of what it replaces"), Because),
    responses((status = 200, description = "In force", body = Document))
)]
pub(crate) async fn delete_default(
    State(app): State<Arc<App>>,
    who: Who,
    if_match: IfMatch,
    Asked(because): Asked<Because>,
) -> Result<Response, Problem> {
    let expected = if_match.expected(Needed::No)?;
    change_default(&app, &who, expected, because.text(), |_| None).await?;
    get_default(State(app), who).await
}

/// What an agent has of its own, and the policy in force for it.
#[utoipa::path(
    get, path = "/api/policies/agents/{name}", tag = "policies",
    params(("name" = String, Path, description = "The agent")),
    responses((status = 200, description = "With its ETag", body = Document))
)]
pub(crate) async fn get_agent(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(agent)): At<Name>,
) -> Result<Response, Problem> {
    known_agent(&app, &who.project, &agent).await?;
    agent_document(&app, &who, &agent).await
}

async fn agent_document(app: &App, who: &Who, agent: &str) -> Result<Response, Problem> {
    let (_, default) = current_default(app, &who.project).await?;
    let (version, document) = current_agent(app, &who.project, agent).await?;
    let in_force = write_policy(&effective(&default, &document), Whose::Agent);
    Ok(Document::of(Some(agent), version.as_ref(), document.to_json(), in_force).answer())
}

/// Replaces what an agent has of its own.
#[utoipa::path(
    put, path = "/api/policies/agents/{name}", tag = "policies", request_body = AgentPolicy,
    params(
        ("name" = String, Path, description = "The agent; it need not have been heard of yet"),
        ("if-match" = String, Header, description = "The ETag of what it replaces; \"0\" for nothing"),
        Because,
    ),
    responses((status = 200, description = "In force", body = Document))
)]
pub(crate) async fn put_agent(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(agent)): At<Name>,
    if_match: IfMatch,
    Asked(because): Asked<Because>,
    Raw(body): Raw,
) -> Result<Response, Problem> {
    let expected = if_match.expected(Needed::Yes)?;
    let document = AgentDocument::read(&body).map_err(invalid)?;
    let change = |_: &_, _| document.clone();
    change_agent(&app, &who, &agent, expected, because.text(), change).await?;
    agent_document(&app, &who, &agent).await
}

/// Takes an agent back to the project's default.
#[utoipa::path(
    delete, path = "/api/policies/agents/{name}", tag = "policies",
    params(
        ("name" = String, Path, description = "The agent"),
        ("if-match" = Option<String>, Header, description = "The ETag of what it replaces"),
        Because,
    ),
    responses((status = 200, description = "In force", body = Document))
)]
pub(crate) async fn delete_agent(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(agent)): At<Name>,
    if_match: IfMatch,
    Asked(because): Asked<Because>,
) -> Result<Response, Problem> {
    known_agent(&app, &who.project, &agent).await?;
    let expected = if_match.expected(Needed::No)?;
    let change = |_: &_, _| AgentDocument::default();
    change_agent(&app, &who, &agent, expected, because.text(), change).await?;
    agent_document(&app, &who, &agent).await
}

fn invalid(faults: Vec<deadstop_protocol::policy_views::FieldFault>) -> Problem {
    Problem::fields(Code::InvalidBody, faults)
}

/// Nothing of its own, as it is shown.
fn nothing() -> Value {
    json!({ "policy": null, "kill_switch": null })
}
