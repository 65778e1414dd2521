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
    /// A caller without a Deadstop key, in the default project.
    pub(crate) fn in_default_project() -> Caller {
        Caller { project: DEFAULT_PROJECT.to_owned(), agent: None }
    }

    /// The owner of the request's Deadstop key; `None` without one. Where the server holds the
    /// upstream's key (`holds`), the Deadstop key may stand in the upstream's header.
    pub(crate) async fn by_key(
        auth: &Auth,
        headers: &HeaderMap,
        holds: bool,
    ) -> Result<Option<Caller>, Response<Body>> {
        let instead = brought(headers).find(|key| key.starts_with("ds_")).filter(|_| holds);
        let Some(key) = text(headers, KEY_HEADER).or(instead) else { return Ok(None) };
        let who = auth.by_key(key).await.map_err(|problem| match problem.code() {
            // Not a verdict on the key: the client may retry.
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

    /// A caller without a key, if the server requires none.
    pub(crate) async fn without_key(
        auth: &Auth,
        headers: &HeaderMap,
    ) -> Result<Caller, Response<Body>> {
        match auth.keyed().await {
            Ok(false) => {
                let named = text(headers, PROJECT_HEADER).and_then(identity::name);
                Ok(named.map_or_else(Caller::in_default_project, |project| Caller {
                    project,
                    agent: None,
                }))
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
