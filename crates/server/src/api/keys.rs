//! Keys, and logging in with one.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use deadstop_protocol::llm::identity;
use deadstop_protocol::policy_views::FieldFault;
use deadstop_store::StoredKey;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::App;
use super::auth::{self, NewKey, NoRandomness, Role, Who};
use super::extract::{At, Body, Name, Page, Strict};
use super::problem::{Code, Problem, ProblemBody};
use deadstop_warden::now;

/// A key to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyOrder {
    /// What people call it.
    #[schema(min_length = 1, max_length = 200)]
    pub(crate) name: String,
    /// What it may do.
    pub(crate) role: Role,
    /// For the role `agent`: the only agent that it may be, a pattern such as `team-*`, or `*` for any.
    #[schema(min_length = 1, max_length = 200)]
    pub(crate) agent: Option<String>,
}

impl Strict for KeyOrder {}

/// How a key is asked for that is for any agent.
const ANY: &str = "*";
/// What is said about an agent's key that names no agent.
const UNBOUND: &str =
    "name the agent that the key is for, a pattern such as `team-*`, or `*` for any";

impl KeyOrder {
    /// What is wrong with it beyond what its types say.
    pub(crate) fn faults(&self) -> Vec<FieldFault> {
        let is_name = |text: &str| identity::name(text).is_some_and(|name| name == text);
        let mut faults = Vec::new();
        if !is_name(&self.name) {
            faults.push(FieldFault::invalid("name", "this cannot be a name"));
        }
        match (&self.agent, self.role) {
            // A key for any agent would evade the kill of one under another name.
            (None, Role::Agent) => faults.push(FieldFault::invalid("agent", UNBOUND)),
            (Some(name), Role::Agent) if !is_name(name) => {
                faults.push(FieldFault::invalid("agent", "this cannot be an agent's name"));
            }
            (Some(_), Role::Metrics | Role::Viewer | Role::Operator | Role::Admin) => {
                faults.push(FieldFault::invalid("agent", "only with the role `agent`"));
            }
            _ => {}
        }
        faults
    }

    /// Makes the key. Gives its text, for this once, and what is kept of it.
    pub(crate) fn make(
        self,
        project: &str,
        made_by: String,
    ) -> Result<(String, StoredKey), NoRandomness> {
        let made = NewKey::make(self.role)?;
        let stored = StoredKey {
            id: made.id,
            project: project.to_owned(),
            role: self.role.into(),
            name: self.name,
            agent: self.agent.filter(|agent| agent != ANY),
            digest: made.hash,
            made: now(),
            made_by,
            used: None,
            revoked: None,
            revoked_by: None,
        };
        Ok((made.text, stored))
    }
}

/// What the audit says about a key that was made.
pub(crate) fn made_detail(key: &StoredKey) -> Value {
    json!({ "name": key.name, "role": key.role.name(), "agent": key.agent })
}

/// A key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Key {
    /// What finds it; a part of its text.
    id: String,
    /// What people call it.
    name: String,
    /// What it may do.
    role: Role,
    /// The only agent that it may be, or a pattern for it; null for any.
    #[schema(required)]
    agent: Option<String>,
    /// Who made it.
    created_by: String,
    /// When.
    created_ms: u64,
    /// When it was last used, to the minute.
    #[schema(required)]
    used_ms: Option<u64>,
    /// Since when it is no longer in force.
    #[schema(required)]
    revoked_ms: Option<u64>,
    /// Who took it out of force.
    #[schema(required)]
    revoked_by: Option<String>,
}

impl From<StoredKey> for Key {
    fn from(key: StoredKey) -> Key {
        Key {
            id: key.id,
            name: key.name,
            role: key.role.into(),
            agent: key.agent,
            created_by: key.made_by,
            created_ms: key.made.0,
            used_ms: key.used.map(|at| at.0),
            revoked_ms: key.revoked.map(|at| at.0),
            revoked_by: key.revoked_by,
        }
    }
}

/// A key that was just made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MadeKey {
    /// The key itself. It is shown this once.
    pub(crate) key: String,
    #[serde(flatten)]
    pub(crate) about: Key,
    /// After the first key: agents that did something in the last 24 hours, and need a key now.
    pub(crate) running: Vec<String>,
    /// After the first key: until when they may call without one; null if they may not, or if this is
    /// not the first.
    #[schema(required)]
    pub(crate) grace_until_ms: Option<u64>,
}

impl MadeKey {
    /// One that is not the first of a running server.
    pub(crate) fn later(key: String, stored: StoredKey) -> MadeKey {
        MadeKey { key, about: stored.into(), running: Vec::new(), grace_until_ms: None }
    }
}

/// The keys of the project.
#[utoipa::path(
    get, path = "/api/keys", tag = "keys",
    responses((status = 200, description = "All of them, revoked ones too", body = Page<Key>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    who: Who,
) -> Result<Json<Page<Key>>, Problem> {
    let keys = app.store()?.keys(&who.project).await?;
    Ok(Json(Page { items: keys.into_iter().map(Key::from).collect(), next: None }))
}

/// Makes a key.
#[utoipa::path(
    post, path = "/api/keys", tag = "keys", request_body = KeyOrder,
    responses(
        (status = 201, description = "The key, shown this once", body = MadeKey),
        (status = 409, description = "`first_key_admin`", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    who: Who,
    Body(order): Body<KeyOrder>,
) -> Result<Response, Problem> {
    let faults = order.faults();
    if !faults.is_empty() {
        return Err(Problem::fields(Code::InvalidBody, faults));
    }
    let first = !app.auth.keyed().await?;
    if order.role != Role::Admin && first {
        let detail = "create a key with the role admin first: after the first key, only an admin can create more";
        return Err(Problem::new(Code::FirstKeyAdmin, detail));
    }
    let (key, stored) = make(&app, &who, order, &who.project).await?;
    let running = if first { auth::grace::running(&app.warden) } else { Vec::new() };
    let grace_until_ms = app.auth.grace.would_end().filter(|_| first);
    let body = MadeKey { key, about: stored.into(), running, grace_until_ms };
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

/// Makes a key in a project and keeps it. Gives its text, for this once.
pub(crate) async fn make(
    app: &App,
    who: &Who,
    order: KeyOrder,
    project: &str,
) -> Result<(String, StoredKey), Problem> {
    let order = KeyOrder { name: app.warden.redacted(project, &order.name), ..order };
    let made = order.make(project, who.signed(None));
    let (text, stored) = made.map_err(auth::no_randomness)?;
    let detail = made_detail(&stored);
    let event = app.event_in(project, who, "key.create", &stored.id, "", &detail);
    app.store()?.create_key(&stored, Some(&event)).await?;
    app.auth.forget();
    app.warden.announce_project(project).await;
    Ok((text, stored))
}

/// Takes the keys of an agent's own out of force and makes one in their place; nothing if it has none.
pub(crate) async fn renew(app: &App, who: &Who, agent: &str) -> Result<Option<MadeKey>, Problem> {
    // A server that keeps nothing has no keys.
    let Ok(store) = app.store() else { return Ok(None) };
    let keys = store.keys(&who.project).await?;
    let old: Vec<_> = keys
        .into_iter()
        .filter(|key| key.revoked.is_none() && key.agent.as_deref() == Some(agent))
        .collect();
    let Some(last) = old.last() else { return Ok(None) };
    let order =
        KeyOrder { name: last.name.clone(), role: Role::Agent, agent: Some(agent.to_owned()) };
    for key in &old {
        let why = format!("the agent {agent} was cleared");
        let event = app.event(who, "key.revoke", &key.id, &why, &json!({}));
        store.revoke_key(&who.project, &key.id, &event.who, now(), Some(&event)).await?;
    }
    let (key, stored) = make(app, who, order, &who.project).await?;
    Ok(Some(MadeKey::later(key, stored)))
}

/// Takes a key out of force, at once.
#[utoipa::path(
    delete, path = "/api/keys/{id}", tag = "keys",
    params(("id" = String, Path, description = "The key's id")),
    responses(
        (status = 204, description = "No longer in force"),
        (status = 409, description = "`last_admin_key`", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn revoke(
    State(app): State<Arc<App>>,
    who: Who,
    At(Name(id)): At<Name>,
) -> Result<StatusCode, Problem> {
    let store = app.store()?;
    let keys = store.keys(&who.project).await?;
    let in_force = |key: &&StoredKey| {
        let is_admin = key.role == deadstop_store::Role::Admin && key.revoked.is_none();
        // A person signs in only while the provider works.
        is_admin && !key.is_person()
    };
    let mut admins = keys.iter().filter(in_force);
    if let (Some(only), None) = (admins.next(), admins.next())
        && only.id == id
    {
        let detail = "this is the project's last admin key; make another one first";
        return Err(Problem::new(Code::LastAdminKey, detail));
    }
    let event = app.event(&who, "key.revoke", &id, "", &json!({}));
    let revoked = store.revoke_key(&who.project, &id, &event.who, now(), Some(&event)).await?;
    app.auth.forget();
    app.warden.announce_project(&who.project).await;
    if !revoked {
        return Err(Problem::not_found("key"));
    }
    Ok(StatusCode::NO_CONTENT)
}

/// A key to log in with.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Credentials {
    /// The key; on a server without keys the operator's token, or the code of a sign-in link.
    #[schema(max_length = 200)]
    key: String,
}

impl Strict for Credentials {}

/// Who is asking.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Identity {
    /// The project.
    project: String,
    /// What people call them.
    name: String,
    /// What they may do.
    role: Role,
    /// The only agent that they may be.
    #[schema(required)]
    agent: Option<String>,
    /// Whether orders that loosen control are taken from them: by their role, and on a server without
    /// keys only with the operator's token.
    operator: bool,
    /// The key's id; null for the local user of a server without keys.
    #[schema(required)]
    key: Option<String>,
    /// What a login must send as `x-csrf-token` with every change; null without a login.
    #[schema(required)]
    csrf_token: Option<String>,
}

impl From<Who> for Identity {
    fn from(who: Who) -> Identity {
        let key = who.key().map(str::to_owned);
        let csrf_token = who.csrf().map(str::to_owned);
        let operator = who.may_loosen();
        let Who { project, name, role, agent, .. } = who;
        Identity { project, name, role, agent, operator, key, csrf_token }
    }
}

/// Opens a login with a key, or with a sign-in link.
#[utoipa::path(
    post, path = "/api/login", tag = "keys", request_body = Credentials,
    responses(
        (status = 200, description = "Sets the login's cookie", body = Identity),
        (status = 401, description = "`bad_key`", body = ProblemBody, content_type = "application/problem+json"),
        (status = 403, description = "`forbidden`: a key for metrics", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "`store_failed`", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn log_in(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Body(credentials): Body<Credentials>,
) -> Result<Response, Problem> {
    let event = |who: &Who| app.event(who, "login", who.key().unwrap_or_default(), "", &json!({}));
    let (secret, who) = app.auth.log_in(&credentials.key, event).await?;
    let cookie = auth::set_cookie(&secret, &headers);
    Ok(([(header::SET_COOKIE, cookie)], Json(Identity::from(who))).into_response())
}

/// Ends a login.
#[utoipa::path(
    post, path = "/api/logout", tag = "keys",
    responses((status = 204, description = "The login is over"))
)]
pub(crate) async fn log_out(
    State(app): State<Arc<App>>,
    who: Who,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let event = app.event(&who, "logout", who.key().unwrap_or_default(), "", &json!({}));
    app.auth.log_out(&headers, &event).await?;
    app.warden.announce_project(&who.project).await;
    let cookie = [(header::SET_COOKIE, auth::end_cookie())];
    Ok((StatusCode::NO_CONTENT, cookie).into_response())
}

/// Who is asking.
#[utoipa::path(
    get, path = "/api/whoami", tag = "keys",
    responses((status = 200, description = "You", body = Identity))
)]
pub(crate) async fn whoami(who: Who) -> Json<Identity> {
    Json(who.into())
}
