//! Bytes to events and back, without I/O: recorded traces, facts about tool calls, prices,
//! and texts freed of secrets.

pub mod effect;
pub mod excerpt;
pub mod facts;
pub mod hook;
pub mod llm;
pub mod policy_file;
pub mod policy_views;
pub mod prices;
pub mod redact;
pub mod replay;
pub mod trace;
