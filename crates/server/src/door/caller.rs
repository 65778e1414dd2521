//! On whose behalf a call is made: one way to find out, for every door that passes calls on.

use axum::body::Body;
use deadstop_protocol::llm::identity;
use http::{HeaderMap, Response, StatusCode};

use super::{brought, plain, unavailable};
use crate::api::auth::{Auth, KEY_HEADER, PROJECT_HEADER, Role};
use crate::api::problem::Code;
use deadstop_warden::DEFAULT_PROJECT;

/// On whose behalf a call is made.
pub(crate) struct Caller {
    pub(crate) project: String,
    /// The agent that its key is bound to.
    pub(crate) agent: Option<String>,
}

impl Caller {
    /// Somebody without a key, where none is asked for.
    pub(crate) fn anybody() -> Caller {
        Caller { project: DEFAULT_PROJECT.to_owned(), agent: None }
    }

    /// The owner of the key that was shown. Where the server holds what the upstream wants to see
    /// (`holds`), ours may stand in its place. Gives nobody if no key was shown.
    pub(crate) async fn by_key(
        auth: &Auth,
        headers: &HeaderMap,
        holds: bool,
    ) -> Result<Option<Caller>, Response<Body>> {
        let instead = brought(headers).find(|key| key.starts_with("ds_")).filter(|_| holds);
        let Some(key) = text(headers, KEY_HEADER).or(instead) else { return Ok(None) };
        let who = auth.by_key(key).await.map_err(|problem| match problem.code() {
            // Nobody knows: the client may try again.
            Code::StoreFailed => {
                unavailable("deadstop cannot look this key up: its database is away")
            }
            _ => {
                let text = "this Deadstop key is unknown, wrong or revoked";
                plain(StatusCode::UNAUTHORIZED, text)
            }
        })?;
        if who.role == Role::Viewer {
            return Err(plain(StatusCode::FORBIDDEN, "a viewer's key makes no calls"));
        }
        Ok(Some(Caller { project: who.project, agent: who.agent }))
    }

    /// Somebody who has shown no key, if that is allowed here.
    pub(crate) async fn without_key(
        auth: &Auth,
        headers: &HeaderMap,
    ) -> Result<Caller, Response<Body>> {
        match auth.keyed().await {
            Ok(false) => {
                // A private gateway has one project: in another one its limits would start afresh.
                let named = text(headers, PROJECT_HEADER).and_then(identity::name);
                let named = named.filter(|_| auth.only().is_none());
                Ok(named.map_or_else(Caller::anybody, |project| Caller { project, agent: None }))
            }
            Ok(true) => {
                let text = "this server wants a Deadstop key in the header x-deadstop-key";
                Err(plain(StatusCode::UNAUTHORIZED, text))
            }
            Err(_) => Err(unavailable(
                "deadstop cannot find out whether it has keys: its database is away",
            )),
        }
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
