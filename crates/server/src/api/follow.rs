//! Following a session: for an SDK that runs the engine itself and must hear at once of a kill, a
//! hold or another policy.
//!
//! A long poll rather than the stream of events: an agent's key sees its own session and nothing
//! else, and a client that reconnects needs only the current state.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use deadstop_core::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::auth::Who;
use super::extract::{Asked, At, Name};
use super::govern;
use super::problem::Problem;
use deadstop_warden::Chain;

/// How long a follower is held before it is told that nothing has changed.
const HOLD: Duration = Duration::from_secs(25);

/// What the follower knows.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct Known {
    /// The version that the follower got last; without it the answer comes at once.
    #[param(max_length = 64)]
    after: Option<String>,
}

/// How a session stands.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Standing {
    /// Changes when anything in this answer changes.
    version: String,
    /// `running`, `paused`, `draining` (it is over, and what runs may finish) or `killed`: by itself,
    /// or with its agent or the project.
    state: &'static str,
    /// Why it is paused or killed.
    #[schema(required)]
    why: Option<String>,
    /// Which scope is over, if one is: `session`, or its `agent` or `project`, which may be cleared.
    #[schema(required)]
    ended: Option<&'static str>,
    /// The policy in force.
    policy: Value,
}

/// How a session stands: at once if it is not what the follower knows, or else when it changes.
#[utoipa::path(
    get, path = "/api/sessions/{agent}/{session}/follow", tag = "govern", params(Known,
        ("agent" = String, Path, description = "The agent"),
        ("session" = String, Path, description = "The session")),
    responses((status = 200, description = "How it stands", body = Standing))
)]
pub(crate) async fn follow(
    State(app): State<Arc<App>>,
    who: Who,
    At((Name(agent), Name(session))): At<(Name, Name)>,
    Asked(known): Asked<Known>,
) -> Result<Json<Standing>, Problem> {
    who.may_see(&agent)?;
    if app.warden.live_session(&who.project, &agent, &session).is_none() {
        let stored = app.store()?.session_named(&who.project, &agent, &session).await?;
        stored.ok_or_else(|| Problem::not_found("session"))?;
    }
    let chain = govern::chain(&app, &who, &agent, &session, &[]).await?;
    let known = known.after.filter(|after| !after.is_empty());
    let until = tokio::time::Instant::now() + HOLD;
    let mut changes = app.warden.events.changes.subscribe();
    loop {
        let standing = stands(&chain);
        if known.as_ref() != Some(&standing.version) {
            return Ok(Json(standing));
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return Ok(Json(standing)) },
            () = app.warden.events.over.cancelled() => return Ok(Json(standing)),
            () = tokio::time::sleep_until(until) => return Ok(Json(standing)),
        }
    }
}

fn stands(chain: &Chain) -> Standing {
    let policy = deadstop_protocol::policy_file::to_json(&chain.policies());
    let (mut state, mut why, mut ended) = ("running", None, None);
    for scope in chain.scopes() {
        let scope = scope.state();
        match (scope.killed(), scope.paused()) {
            (Some(kill), _) => {
                let over = if kill.drains { "draining" } else { "killed" };
                (state, why) = (over, Some(kill.because.clone()));
                ended = Some(scope.kind().name());
                break;
            }
            (None, Some(pause)) if state == "running" => {
                (state, why) = ("paused", Some(pause.because.clone()));
            }
            _ => {}
        }
    }
    let told = format!("{state}\n{}\n{policy}", why.as_deref().unwrap_or_default());
    let version = format!("{:016x}", Digest::of(told.as_bytes()).0);
    Standing { version, state, why, ended, policy }
}
