//! The Model Context Protocol as it passes by: JSON-RPC messages, tool calls, listings, refusals.
//!
//! Messages pass as the bytes they are; what the engine needs is read from them in place. Both eras
//! of the protocol have the same messages: what differs is how they travel, and that is the
//! server's business.

mod call;
mod events;
mod message;
mod note;
mod refusal;
mod tools;
mod trace;

pub use call::{Asked, Ended, asked, begun_task, ended, suspect};
pub use events::Events;
pub use message::{Envelope, Message, Unreadable, key, read, strictly};
pub use note::noted;
pub use refusal::{
    Why, cancelled, cancelled_task, failure, mismatch, refuse, refuse_all, unreadable,
    unreadable_call,
};
pub use tools::{Listed, Listing, listing, lists_unreadably};
pub use trace::{InTrace, Unnamed, in_trace, traced};

/// The method that runs a tool.
pub const CALL: &str = "tools/call";
/// The method that lists tools.
pub const LIST: &str = "tools/list";
