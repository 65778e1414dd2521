//! Deadstop inside the agent's own process: the same engine, at the call site.
//!
//! A [`Session`] decides before each model call and each tool call whether it may run. It has a
//! policy, [nested scopes](Scope) with limits of their own, and a kill switch that works from any
//! thread: calls in flight see its [`StopSignal`], and no further call is admitted.
//!
//! ```
//! use deadstop_sdk::{AuthorityState, Refused, Session};
//! use serde_json::json;
//!
//! fn run(session: &Session) -> Result<(), Refused> {
//!     let call = session.tool("search", &json!({ "query": "deadstop" }))?;
//!     let found = "three pages"; // what the tool brings
//!     call.done(found)?;
//!     Ok(())
//! }
//!
//! let session = Session::builder("researcher").policy("strict")?.open()?;
//! run(&session)?;
//! session.kill("that is enough");
//! let refused = run(&session).unwrap_err();
//! assert!(refused.is_killed());
//! assert_eq!(session.health().authority_state, AuthorityState::Killed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With [`Builder::server`] a server governs the session over all its processes. Asking it blocks the
//! thread: in async code use [`Scope::tool_async`], [`Scope::model_async`], [`Scope::request_async`]
//! and the [tower layer](layer::GuardLayer), which never block the executor.

mod admission;
mod authority;
pub mod blocking;
mod capture;
mod exchange;
mod govern;
mod health;
#[cfg(feature = "tower")]
pub mod layer;
mod limits;
mod pending;
mod refused;
mod running;
mod scope;
mod session;
mod steer;
mod stop;
mod tree;

pub use capture::{Capture, CaptureKind};
pub use deadstop_client::ClientError;
pub use deadstop_core::{
    Mode, PolicySet, Preset, ProviderQuota, Quota, Status, Time, Tokens, Usage, Verdict,
};
pub use deadstop_protocol::llm::Api;
pub use exchange::{Exchange, Outgoing, api_of};
pub use health::{
    AuthorityState, Durability, Figures, Health, ScopeFigures, ServerHealth, SessionStatus, State,
    Window,
};
pub use limits::{BadLimit, Limits};
pub use refused::{Blocked, Context, Killed, Refused, Why};
pub use running::Running;
pub use scope::{ModelAsk, Scope};
pub use session::{Builder, Clock, Forked, OpenError, Session};
pub use steer::Settled;
pub use stop::{StopSignal, Stopped, Watch};
pub use tree::{Observer, ScopeError};
