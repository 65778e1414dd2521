//! The `deadstop` program: arguments in, one command run, an exit code out.
//!
//! Data goes to stdout, talk to stderr; an error is followed by a hint where there is one.

/// The standard macros panic when the reader of a pipe has gone away (`deadstop status | head`).
/// These end the program quietly instead, as other tools do.
macro_rules! println {
    ($($words:tt)*) => { crate::ui::say(format_args!("{}\n", format_args!($($words)*))) };
}
macro_rules! eprintln {
    ($($words:tt)*) => { crate::ui::talk(format_args!("{}\n", format_args!($($words)*))) };
}
macro_rules! eprint {
    ($($words:tt)*) => { crate::ui::talk(format_args!($($words)*)) };
}

mod agents;
mod alerts;
mod allow;
mod approvals;
mod audit;
mod backtest;
mod check;
mod client;
mod config;
mod control;
mod database;
mod demo;
mod doctor;
mod explain;
mod grants;
mod hook;
mod incidents;
mod install;
mod keys;
mod list;
mod mcp;
mod operator;
mod policy;
mod prices;
mod ready;
mod remote;
mod run;
mod serve;
mod sessions;
mod sign_in;
mod table;
mod timeline;
mod ui;
mod when;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What calls leave behind on one thread is freed on another: the C library's allocator keeps much
/// of that. How it is tuned is said in `.cargo/config.toml`.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static MEMORY: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Brings a runaway AI agent to a dead stop.
#[derive(Debug, Parser)]
#[command(name = "deadstop", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// See two runaways stopped and a healthy agent finish, without a key or a network.
    Demo(demo::Args),
    /// Run a command behind a gateway of its own, and end all of it when it is stopped.
    Run(run::Args),
    /// Run the gateway: stops agents that are pointed at it.
    Serve(serve::Args),
    /// End a session, an agent or everything, at once and for good.
    Kill(control::Order),
    /// Let an agent, or everything, run again.
    Clear(control::Order),
    /// Give a session that was ended a fresh start under its name.
    Reset(control::Order),
    /// Hold the next call of a session, an agent or everything.
    Pause(control::Order),
    /// Let it go on.
    Resume(control::Order),
    /// Show who runs and what it has cost.
    Status(control::Status),
    /// Print a link that signs your browser in: the page then takes all orders.
    SignIn(remote::Server),
    /// See whether a server can do its work: 0 if so, for health checks.
    Ready(remote::Server),
    /// Follow what happens, live.
    Watch(remote::Server),
    /// Put deadstop into a coding agent's configuration: shows the difference, keeps a backup.
    Install(install::Args),
    /// Take it out again.
    Uninstall(install::Which),
    /// Prove that a deny denies, at every door that is set up; says what it could not prove.
    Doctor(doctor::Args),
    /// Answer a coding agent's hook: reads its event from stdin, says yes or no in its words.
    Hook(hook::Args),
    /// List the calls that wait for a person; approve or deny one.
    Approvals(approvals::Args),
    /// Let one call pass that was held because of its harm: once, within ten minutes.
    Allow(allow::Args),
    /// Let an agent or a session destroy a batch, once, with a reason and an end.
    Grant(grants::Give),
    /// List what was granted to an agent or a session; take it back.
    Grants(grants::Args),
    /// Stand between an MCP client and a server; wrap a client's servers, see and accept their tools.
    Mcp(mcp::Args),
    /// See what a command or a tool call would do, and what each preset says, without running it.
    Check(check::Args),
    /// Replay recorded agent runs through a policy and see what it would have stopped.
    Backtest(backtest::Args),
    /// Write, check and show policies; set them on a server, and compare their versions.
    Policy(policy::Args),
    /// List agents; show one, switch it on or off, tag it.
    Agents(agents::Args),
    /// List sessions; show one with its calls.
    Sessions(sessions::Args),
    /// List what was blocked or killed; note that you have seen it.
    Incidents(incidents::Args),
    /// Explain an incident: why, on what evidence, and what it would have cost.
    Explain(explain::Args),
    /// Show what models cost; set own prices where nobody knows.
    Prices(prices::Args),
    /// Make, list and revoke keys.
    Keys(keys::Args),
    /// See who did what and why, check that nobody has changed it, export it.
    Audit(audit::Args),
    /// Say where alerts go, test it, see what was delivered.
    Alerts(alerts::Args),
}

fn main() -> ExitCode {
    // A hook runs before every tool call of every agent: it starts before anything else is touched.
    if let Some(code) = hook::at_once() {
        return code;
    }
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Kill(order) => control::order("kill", &order),
        Command::Clear(order) => control::order("clear", &order),
        Command::Reset(order) => control::order("reset", &order),
        Command::Pause(order) => control::order("pause", &order),
        Command::Resume(order) => control::order("resume", &order),
        Command::Status(args) => control::status(&args),
        Command::SignIn(server) => sign_in::run(&server),
        Command::Ready(server) => ready::run(&server),
        Command::Watch(server) => control::watch(&server),
        Command::Install(args) => install::install(&args),
        Command::Uninstall(which) => install::uninstall(&which),
        Command::Doctor(args) => doctor::run(&args),
        Command::Hook(args) => Ok(hook::run(&args)),
        Command::Approvals(args) => approvals::run(&args),
        Command::Allow(args) => allow::run(&args),
        Command::Grant(args) => grants::give(&args),
        Command::Grants(args) => grants::run(&args),
        Command::Mcp(args) => mcp::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Backtest(args) => backtest::run(&args),
        Command::Policy(args) => policy::run(&args),
        Command::Agents(args) => agents::run(&args),
        Command::Sessions(args) => sessions::run(&args),
        Command::Incidents(args) => incidents::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Prices(args) => prices::run(&args),
        Command::Keys(args) => keys::run(&args),
        Command::Audit(args) => audit::run(&args),
        Command::Alerts(args) => alerts::run(&args),
    };
    match done {
        Ok(code) => code,
        Err(error) => ui::fail(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }
}
