//! Bytes to events and back, without I/O: recorded traces, facts about tool calls, model APIs
//! and MCP on the wire, prices, and texts freed of secrets.

pub mod buffer;
pub mod check;
pub mod facts;
pub mod govern;
pub mod hook;
pub mod llm;
pub mod mcp;
pub mod near;
pub mod plain;
pub mod policy_file;
pub mod policy_views;
pub mod prices;
pub mod replay;
pub mod told;
pub mod trace;
