//! On whose behalf a call is made: one way to find out, for every door that passes calls on.

use axum::body::Body;
use deadstop_protocol::llm::identity;
use http::{HeaderMap, Response, StatusCode};

use super::{brought, plain, unavailable};
use crate::api::auth::{Auth, Bound, KEY_HEADER, Need, PROJECT_HEADER, Role};
use crate::api::problem::Code;
use deadstop_warden::{DEFAULT_PROJECT, Warden};

/// What a call is told that brings no key.
const KEY_WANTED: &str = "this server wants a Deadstop key in the header x-deadstop-key; an operator \
    makes one with: deadstop keys create --role agent --name NAME --agent NAME";

/// On whose behalf a call is made.
pub(crate) struct Caller {
    pub(crate) project: String,
    /// The agents that its key is for.
    pub(crate) bound: Bound,
    /// Whether it needs a key soon, and may call without one only if it was running before.
    grace: bool,
}

impl Caller {
    /// A caller without a Deadstop key, in the default project.
    pub(crate) fn in_default_project() -> Caller {
        Caller::of(DEFAULT_PROJECT.to_owned(), Bound::Any)
    }

    fn of(project: String, bound: Bound) -> Caller {
        Caller { project, bound, grace: false }
    }

    /// The agent that a call belongs to which names this one, or none; the answer if it may not be
    /// made. `otherwise` is the agent of calls that name none.
    pub(crate) async fn agent(
        &self,
        named: Option<String>,
        otherwise: &str,
        (auth, warden): (&Auth, &Warden),
    ) -> Result<Option<String>, Response<Body>> {
        let Some(agent) = self.bound.resolve(named) else {
            let text = "this Deadstop key is for other agents: name one of them in the path \
                        (/agent/NAME) or in the header x-deadstop-agent";
            return Err(plain(StatusCode::FORBIDDEN, text));
        };
        let name = agent.as_deref().unwrap_or(otherwise);
        if self.grace && !auth.grace.admits(warden, name).await {
            return Err(plain(StatusCode::UNAUTHORIZED, KEY_WANTED));
        }
        Ok(agent)
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
                unavailable("deadstop cannot check this key: its database is unreachable")
            }
            _ => {
                let text = "this Deadstop key is unknown, wrong or revoked";
                plain(StatusCode::UNAUTHORIZED, text)
            }
        })?;
        if !Need::Acting.met_by(who.role) {
            let why = match who.role {
                Role::Metrics => "a key for metrics makes no calls",
                _ => "a viewer's key makes no calls",
            };
            return Err(plain(StatusCode::FORBIDDEN, why));
        }
        Ok(Some(Caller::of(who.project, Bound::of(who.agent.as_deref()))))
    }

    /// A caller without a key, if the server requires none.
    pub(crate) async fn without_key(
        auth: &Auth,
        headers: &HeaderMap,
    ) -> Result<Caller, Response<Body>> {
        match auth.keyed().await {
            Ok(false) => {
                // A private gateway has one project: in another one its limits would start afresh.
                let named = text(headers, PROJECT_HEADER).and_then(identity::name);
                let named = named.filter(|_| auth.only().is_none());
                Ok(named.map_or_else(Caller::in_default_project, |project| {
                    Caller::of(project, Bound::Any)
                }))
            }
            Ok(true) if auth.grace.is_on() => {
                Ok(Caller { grace: true, ..Caller::in_default_project() })
            }
            Ok(true) => Err(plain(StatusCode::UNAUTHORIZED, KEY_WANTED)),
            Err(_) => Err(unavailable(
                "deadstop cannot check whether keys are required: its database is unreachable",
            )),
        }
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
