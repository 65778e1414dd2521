//! Deadstop inside the agent's own process: the same engine, at the call site.
//!
//! A [`Session`] decides before each model call and each tool call whether it may run. It has a
//! policy, [nested scopes](Scope) with limits of their own, and a kill switch that works from any
//! thread: calls in flight see its [`Stop`], and nothing more is let through.
//!
//! ```
//! use deadstop_sdk::{Refused, Session};
//! use serde_json::json;
//!
//! fn run(session: &Session) -> Result<(), Refused> {
//!     let call = session.tool("search", &json!({ "query": "deadstop" }))?;
//!     let found = "three pages"; // whatever the tool does
//!     call.done(found)
//! }
//!
//! let session = Session::builder("researcher").policy("strict")?.open()?;
//! run(&session)?;
//! session.kill("that is enough");
//! let refused = run(&session).unwrap_err();
//! assert!(refused.is_killed());
//! assert_eq!(session.health().authority_state, "killed");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With [`Builder::server`] a server has the last word; how its budget and this one agree is told in
//! the source of `authority`.

mod authority;
mod capture;
mod exchange;
mod govern;
mod health;
#[cfg(feature = "tower")]
pub mod layer;
mod limits;
mod refused;
mod scope;
mod session;
mod stop;
mod tree;

pub use capture::Capture;
pub use deadstop_core::{Mode, PolicySet, Preset, Status, Time, Tokens, Usage, Verdict};
pub use deadstop_protocol::llm::Api;
pub use exchange::{Exchange, Outgoing, api_of};
pub use health::{Figures, Health, ScopeFigures, ServerHealth, State};
pub use limits::{BadLimit, Limits};
pub use refused::{Blocked, Context, Killed, Refused, Why};
pub use scope::{ModelAsk, Running, Scope};
pub use session::{Builder, Clock, OpenError, Session};
pub use stop::{Stop, Stopped, Watch};
pub use tree::{Observer, ScopeError};
