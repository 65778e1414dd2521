//! The warden and the doors: an LLM gateway, an MCP gateway and a control API on one
//! port.
//!
//! [`Server::start`] is all there is to call; the CLI runs it in the foreground, `deadstop run` in
//! private, the demo beside its stand-in provider.

mod alerts;
mod api;
mod backtest;
mod caller;
mod config;
mod database;
mod gateway;
mod mcp;
mod metrics;
mod net;
mod page;
mod prices;
mod replay;
mod retention;
mod settings;
mod warden;

pub use config::{
    BadConfig, Config, DEFAULT_LISTEN, McpServer, OnKill, Provider, RawConfig, RawMcp,
    RawMcpServer, RawProvider, Secret,
};
pub use database::{Database, DatabaseError, KeyWanted, Place};
pub use net::{Server, StartError};
