//! The doors: an LLM gateway, an MCP gateway and a control API on one port. They speak HTTP and ask
//! the warden.
//!
//! [`Server::start`] is all there is to call; the CLI runs it in the foreground, `deadstop run` in
//! private, the demo beside its stand-in provider.

mod alerts;
mod anchor;
mod api;
mod backtest;
mod config;
mod database;
mod door;
mod exception;
mod export;
mod gateway;
mod mcp;
mod net;
mod operator;
mod page;
mod replay;
mod retention;
mod sso;
mod ways;

pub use anchor::Anchor;
pub use config::{
    BadConfig, Config, DEFAULT_LISTEN, McpServer, OnKill, Provider, RawConfig, RawMcp,
    RawMcpServer, RawProvider, Secret,
};
pub use database::{Database, DatabaseError, DatabaseLocation, KeyWanted, Opening};
pub use export::{RawTelemetry, Telemetry};
pub use net::{Server, StartError};
pub use operator::{OPERATOR_HEADER, OperatorToken, TokenError};
pub use sso::{RawSso, Sso};
pub use ways::Ways;
