//! The `deadstop` program: the commands, and what serves calls.
//!
//! A future is compiled in the crate that awaits it, with that crate's level. The commands are built small. All
//! that a call runs through is part of the server's future, so it is named here, in a crate that is built fast.

use std::process::ExitCode;

use deadstop_commands::Program;
use deadstop_server::Server;

/// What calls leave behind on one thread is freed on another: the C library's allocator keeps much
/// of that. How it is tuned is said in `.cargo/config.toml`.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static MEMORY: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    deadstop_commands::main(Program {
        version: concat!(env!("CARGO_PKG_VERSION"), env!("DEADSTOP_BUILD")),
        start: |config| Box::pin(Server::start(config)),
    })
}
