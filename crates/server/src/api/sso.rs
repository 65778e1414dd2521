//! Sign-in through an OpenID provider: to it, and back from it.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use deadstop_protocol::llm::identity;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::App;
use super::auth::{self, Person, Who};
use super::problem::Problem;
use crate::sso::{Attempt, Provider};

/// The cookie of a sign-in that has begun.
const COOKIE: &str = "deadstop_sso";
/// How long a person may take at the provider, in seconds.
const MOST_SECONDS: u32 = 600;

/// Whether people can sign in through an OpenID provider.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SignOn {
    /// Whether they can; then `/api/sso/login` begins.
    enabled: bool,
}

/// Why a browser comes back without a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turned {
    /// The provider, or the person there, said no.
    Denied,
    /// No group of the person has a role.
    NoRole,
    /// The sign-in was begun elsewhere, or too long ago.
    Over,
    /// An admin has revoked the person.
    Revoked,
    /// All else; the log says what.
    Failed,
}

impl Turned {
    fn name(self) -> &'static str {
        match self {
            Turned::Denied => "denied",
            Turned::NoRole => "no_role",
            Turned::Over => "over",
            Turned::Revoked => "revoked",
            Turned::Failed => "failed",
        }
    }
}

/// Whether people can sign in through an OpenID provider.
#[utoipa::path(
    get, path = "/api/sso", tag = "keys",
    responses((status = 200, description = "Whether they can", body = SignOn))
)]
pub(crate) async fn about(State(app): State<Arc<App>>) -> Json<SignOn> {
    Json(SignOn { enabled: app.sso.is_some() })
}

/// Sends a browser to the OpenID provider.
#[utoipa::path(
    get, path = "/api/sso/login", tag = "keys",
    responses((status = 303, description = "To the provider, or back to the page where that fails"))
)]
pub(crate) async fn sign_in(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let Some(provider) = &app.sso else { return turned(Turned::Failed, &headers) };
    let Ok(attempt) = Attempt::begin() else { return turned(Turned::Failed, &headers) };
    match provider.address(&attempt).await {
        Ok(address) => {
            let cookie = set_cookie(attempt.secret(), MOST_SECONDS, &headers);
            go(&address, vec![cookie])
        }
        Err(error) => {
            tracing::warn!("sign-in: {error}");
            turned(Turned::Failed, &headers)
        }
    }
}

/// What a provider sends a browser back with.
#[derive(Debug, Deserialize)]
pub(crate) struct Back {
    code: Option<String>,
    state: Option<String>,
    error: Option<String>,
}

/// Ends a sign-in: the browser comes back from the OpenID provider.
#[utoipa::path(
    get, path = "/api/sso/callback", tag = "keys",
    params(
        ("code" = Option<String>, Query, description = "What the provider gives for a token"),
        ("state" = Option<String>, Query, description = "What the sign-in began with"),
        ("error" = Option<String>, Query, description = "Why there is no code"),
    ),
    responses((status = 303, description = "To the page, with a login's cookie if it is one"))
)]
pub(crate) async fn callback(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Query(back): Query<Back>,
) -> Response {
    let Some(provider) = &app.sso else { return turned(Turned::Failed, &headers) };
    match signed_in(&app, provider, &headers, back).await {
        Ok(secret) => {
            let cookies = vec![auth::set_cookie(&secret, &headers), set_cookie("", 0, &headers)];
            go("/", cookies)
        }
        Err(why) => turned(why, &headers),
    }
}

async fn signed_in(
    app: &App,
    provider: &Provider,
    headers: &HeaderMap,
    back: Back,
) -> Result<String, Turned> {
    let failed = |problem: Problem| {
        tracing::warn!("sign-in: {}", problem.code().meaning());
        Turned::Failed
    };
    let attempt = auth::cookie_of(headers, COOKIE).map(Attempt::of).ok_or(Turned::Over)?;
    let state = back.state.ok_or(Turned::Over)?;
    if !auth::key::same(&state, &attempt.state()) {
        return Err(Turned::Over);
    }
    let code = match (back.code, back.error) {
        (Some(code), None) => code,
        (_, error) => {
            tracing::warn!("sign-in: the provider answered {:?}", error.unwrap_or_default());
            return Err(Turned::Denied);
        }
    };
    let person = provider.person(&code, &attempt).await.map_err(|error| {
        tracing::warn!("sign-in: {error}");
        Turned::Failed
    })?;
    let role = provider.sso.role(&person.groups).ok_or_else(|| {
        tracing::warn!("sign-in: no group of {:?} has a role", person.name);
        Turned::NoRole
    })?;
    // Without keys every process of the machine has the role that a person would sign in for.
    if !app.auth.keyed().await.map_err(failed)? {
        tracing::warn!(
            "sign-in: make a key first (deadstop keys create): until then no login is needed"
        );
        return Err(Turned::Failed);
    }
    let name = identity::name(&person.name).unwrap_or_else(|| "a person without a name".to_owned());
    let person = Person {
        id: auth::key::derived(&format!("sso {}", provider.sso.issuer), &person.subject),
        project: provider.sso.project.clone(),
        name,
        role,
    };
    let event = |who: &Who| {
        let detail = json!({ "role": who.role.name(), "issuer": provider.sso.issuer });
        app.event(who, "login", who.key().unwrap_or_default(), "", &detail)
    };
    let signed = app.auth.log_in_person(person, event).await.map_err(failed)?;
    signed.ok_or(Turned::Revoked)
}

/// Back to the page, which says why.
fn turned(why: Turned, headers: &HeaderMap) -> Response {
    go(&format!("/sign-in?sso={}", why.name()), vec![set_cookie("", 0, headers)])
}

fn go(address: &str, cookies: Vec<String>) -> Response {
    let mut response =
        (StatusCode::SEE_OTHER, [(header::LOCATION, address), (header::CACHE_CONTROL, "no-store")])
            .into_response();
    for cookie in cookies {
        if let Ok(cookie) = cookie.parse() {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
    }
    response
}

/// A cookie that comes along when the provider sends the browser back, which is from another site.
fn set_cookie(secret: &str, seconds: u32, headers: &HeaderMap) -> String {
    let secure = if auth::is_https(headers) { "; Secure" } else { "" };
    format!("{COOKIE}={secret}; Path=/api/sso; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}")
}
