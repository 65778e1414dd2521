//! Tools of MCP servers: what was seen of them, and whether a change is accepted.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use deadstop_core::Digest;
use deadstop_protocol::mcp::Listed;
use deadstop_store::StoredTool;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::auth::Who;
use super::extract::{Asked, Body, Strict, names};
use super::problem::Problem;

/// A tool of an MCP server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Tool {
    /// The server.
    server: String,
    /// Its name.
    tool: String,
    /// Whether it is described otherwise than when it was first seen, or accepted, or was added
    /// later.
    changed: bool,
    /// Whether it was added after the tools of its server were first seen.
    added: bool,
    /// What its server says about it, as it is accepted: the beginning, without secrets.
    known_text: String,
    /// The same, as it was said last.
    seen_text: String,
    /// What is odd about it: invisible characters, the name of another server's tool.
    notes: Vec<String>,
    /// Whether its server says that it destroys something.
    destructive: bool,
    /// When it was first seen.
    first_ms: u64,
    /// When it changed.
    #[schema(required)]
    changed_ms: Option<u64>,
    /// Who has accepted a change last.
    #[schema(required)]
    accepted_by: Option<String>,
}

impl From<StoredTool> for Tool {
    fn from(tool: StoredTool) -> Tool {
        Tool {
            changed: tool.is_changed(),
            added: tool.is_added(),
            notes: tool.notes.lines().map(str::to_owned).collect(),
            known_text: tool.known_text,
            seen_text: tool.seen_text,
            server: tool.server,
            tool: tool.tool,
            destructive: tool.destructive,
            first_ms: tool.first.0,
            changed_ms: tool.changed.map(|at| at.0),
            accepted_by: tool.accepted_by,
        }
    }
}

/// Tools of MCP servers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Tools {
    /// By server and name.
    items: Vec<Tool>,
}

/// Which tools.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// Those of one server.
    #[param(min_length = 1, max_length = 200)]
    server: Option<String>,
}

/// The tools that were seen.
#[utoipa::path(
    get, path = "/api/mcp/tools", tag = "mcp", params(Which),
    responses((status = 200, description = "All of them", body = Tools))
)]
pub(crate) async fn tools(
    State(app): State<Arc<App>>,
    who: Who,
    Asked(which): Asked<Which>,
) -> Result<Json<Tools>, Problem> {
    let found = app.warden.pins.of(&who.project, which.server.as_deref());
    Ok(Json(Tools { items: found.into_iter().map(Tool::from).collect() }))
}

/// A server's listing, reported by a proxy between the server and its client.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Seen {
    /// The agent.
    #[schema(min_length = 1, max_length = 200)]
    agent: String,
    /// The session.
    #[schema(min_length = 1, max_length = 200)]
    session: String,
    /// The server.
    #[schema(min_length = 1, max_length = 200)]
    server: String,
    /// Its tools.
    #[schema(max_items = 2000)]
    tools: Vec<SeenTool>,
    /// Whether no further page follows.
    #[serde(default)]
    complete: bool,
}

impl Strict for Seen {}

/// A tool in a listing.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SeenTool {
    /// Its name.
    #[schema(max_length = 200)]
    name: String,
    /// A digest of its description, 16 hexadecimal digits.
    #[schema(min_length = 16, max_length = 16, pattern = "^[0-9a-f]{16}$")]
    fingerprint: String,
    /// Whether its server says that it destroys something.
    #[serde(default)]
    destructive: bool,
    /// What its server says about it.
    #[serde(default)]
    #[schema(max_length = 5000)]
    text: String,
    /// Invisible characters in that.
    #[serde(default)]
    #[schema(max_length = 100)]
    invisible: String,
}

/// What is to be done with a listing.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Judged {
    /// Tools that the policy does not allow.
    hidden: Vec<String>,
    /// Tools that have changed since they were first seen.
    changed: Vec<String>,
}

/// Tells of a listing.
#[utoipa::path(
    post, path = "/api/mcp/tools", tag = "mcp", request_body = Seen,
    responses((status = 200, description = "What to make of it", body = Judged))
)]
pub(crate) async fn seen(
    State(app): State<Arc<App>>,
    who: Who,
    Body(seen): Body<Seen>,
) -> Result<Json<Judged>, Problem> {
    names("agent", [&seen.agent])?;
    names("session", [&seen.session])?;
    names("server", [&seen.server])?;
    who.may_see(&seen.agent)?;
    let project = app.project(&who).await?;
    let chain = app.warden.chain(project, &seen.agent, &seen.session, &[]).await?;
    let tools: Vec<Listed> = seen
        .tools
        .into_iter()
        .map(|tool| Listed {
            fingerprint: Digest(u64::from_str_radix(&tool.fingerprint, 16).unwrap_or_default()),
            destructive: tool.destructive,
            name: tool.name,
            text: tool.text,
            invisible: tool.invisible.chars().collect(),
        })
        .collect();
    let names: Vec<String> = tools.iter().map(|tool| tool.name.clone()).collect();
    let listed = deadstop_warden::Tools { tools, complete: seen.complete };
    let changed = app.warden.list(&chain, &seen.server, listed).await;
    let hidden = names.into_iter();
    let hidden = hidden.filter(|name| app.warden.hides(&chain, &seen.server, name)).collect();
    Ok(Json(Judged { hidden, changed }))
}

/// A changed tool that an operator accepts.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Acceptance {
    /// The server.
    #[schema(min_length = 1, max_length = 200)]
    server: String,
    /// The tool.
    #[schema(min_length = 1, max_length = 200)]
    tool: String,
    /// Why.
    #[serde(default)]
    #[schema(max_length = 1000)]
    reason: String,
    /// The person who says so, where a client speaks for several.
    #[schema(max_length = 200)]
    by: Option<String>,
}

impl Strict for Acceptance {}

/// Accepts a tool as it is described now.
#[utoipa::path(
    post, path = "/api/mcp/tools/accept", tag = "mcp", request_body = Acceptance,
    responses((status = 200, description = "Accepted", body = Tool))
)]
pub(crate) async fn accept(
    State(app): State<Arc<App>>,
    who: Who,
    Body(accepted): Body<Acceptance>,
) -> Result<Json<Tool>, Problem> {
    let Acceptance { server, tool, reason, by } = accepted;
    let signed = who.signed(by.as_deref());
    let found = app.warden.accept_tool(&who.project, &server, &tool, &signed).await;
    let found = found.ok_or_else(|| Problem::not_found("tool of that server"))?;
    if let Some(store) = app.warden.store() {
        let subject = format!("{server}/{tool}");
        let mut event = app.event(&who, "tool.accept", &subject, &reason, &json!({}));
        event.who = signed;
        store.accept_tool(&found, &event).await?;
    }
    app.warden.announce_project(&who.project).await;
    Ok(Json(Tool::from(found)))
}
