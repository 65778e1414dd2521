//! The commands of the `deadstop` program: arguments in, one command run, an exit code out.
//!
//! They are a crate of their own so that they can be built small, and what serves calls fast: the program
//! itself brings the server's future (`Program::start`).
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
mod init;
mod install;
mod keys;
mod list;
mod log;
mod mcp;
mod operator;
mod papers;
mod policy;
mod prices;
mod quota;
mod ready;
mod remote;
mod run;
mod serve;
mod sessions;
mod short;
mod sign_in;
mod table;
mod timeline;
mod ui;
mod welcome;
mod when;

use std::process::ExitCode;
use std::sync::OnceLock;

use clap::{Parser, Subcommand};
use deadstop_server::{Config, Server, StartError};
use futures_util::future::LocalBoxFuture;

/// What the program brings along.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// The version, and which commit it was built from.
    pub version: &'static str,
    /// Starts a server.
    pub start: fn(Config) -> Starting,
}

/// A server that is starting.
pub type Starting = LocalBoxFuture<'static, Result<Server, StartError>>;

static PROGRAM: OnceLock<Program> = OnceLock::new();

fn version() -> &'static str {
    PROGRAM.get().map_or("unknown", |program| program.version)
}

/// Starts a server in this process.
async fn start(config: Config) -> Result<Server, StartError> {
    // Not `Server::start`: it would be compiled here, too.
    match PROGRAM.get() {
        Some(program) => (program.start)(config).await,
        None => Err(StartError::Absent),
    }
}

/// Stops runaway AI agents.
#[derive(Debug, Parser)]
#[command(name = "deadstop", version = version(), propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// See two runaways stopped and a healthy agent finish. Needs no key and no network.
    Demo(demo::Args),
    /// Run a command with limits. A stop ends its whole process tree.
    Run(run::Args),
    /// Start the gateway and its page.
    Serve(serve::Args),
    /// Stop a session, an agent or everything, at once.
    #[command(visible_alias = "kill")]
    Stop(control::Order),
    /// Hold the next call of a session, an agent or everything.
    Pause(control::Order),
    /// Let what was paused or stopped run again. A stopped session starts with empty counters.
    Resume(control::Order),
    /// Old name of `resume` for a stopped agent, or everything.
    Clear(control::Order),
    /// Old name of `resume` for a stopped session.
    Reset(control::Order),
    /// Show what is running and what it has cost.
    Status(control::Status),
    /// Print a link that signs your browser in: the page then takes all orders.
    SignIn(remote::Server),
    /// Check that a server is ready, for health checks: exits with 0 if it is.
    Ready(remote::Server),
    /// Follow what happens, live.
    Watch(control::Watch),
    /// Set Deadstop up: two questions, then it writes the hooks and tests them.
    Init(init::Args),
    /// Install hooks in a coding agent. Shows the difference, keeps a backup.
    Install(install::Args),
    /// Remove the hooks from a coding agent.
    Uninstall(install::Which),
    /// Test that blocking works everywhere Deadstop is installed.
    Doctor(doctor::Args),
    /// Answer a coding agent's hook: reads its event from stdin.
    Hook(hook::Args),
    /// List calls that wait for a person; approve or deny one.
    Approvals(approvals::Args),
    /// Let one refused call pass, once, within ten minutes.
    Allow(allow::Args),
    /// Allow a batch of destructive calls, once, for a limited time.
    Grant(grants::Give),
    /// List grants; revoke one.
    Grants(grants::Args),
    /// Guard MCP servers; list and accept their tools.
    Mcp(mcp::Args),
    /// Show what a command or tool call would do, without running it.
    Check(check::Args),
    /// Replay recorded runs: what would a policy have stopped?
    Backtest(backtest::Args),
    /// Write, check, show, set and compare policies.
    Policy(policy::Args),
    /// List agents; show, stop, resume, tag or remove one.
    Agents(agents::Args),
    /// List sessions; show one with its calls.
    Sessions(sessions::Args),
    /// List incidents; acknowledge, assign, resolve or mute them.
    Incidents(incidents::Args),
    /// Explain an incident: why, with its evidence.
    Explain(explain::Args),
    /// Show model prices; set your own.
    Prices(prices::Args),
    /// Create, list and revoke keys.
    Keys(keys::Args),
    /// Show who did what and why; verify and export it.
    Audit(audit::Args),
    /// Configure alerts, test them, see what was delivered.
    Alerts(alerts::Args),
    /// Print completions for a shell.
    Completions(papers::Completions),
    /// Write man pages.
    Man(papers::Man),
}

/// Runs the command that the arguments name.
pub fn main(program: Program) -> ExitCode {
    let _ = PROGRAM.set(program);
    // A hook runs before every tool call of every agent: it starts before anything else is touched.
    if let Some(code) = hook::at_once() {
        return code;
    }
    if let Some(code) = guardian() {
        return code;
    }
    let cli = Cli::parse();
    let Some(command) = cli.command else {
        return welcome::run().unwrap_or_else(|error| ui::fail(&error));
    };
    let done = match command {
        Command::Demo(args) => demo::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Stop(order) => control::order("kill", &order),
        Command::Clear(order) => control::order("clear", &order),
        Command::Reset(order) => control::order("reset", &order),
        Command::Pause(order) => control::order("pause", &order),
        Command::Resume(order) => control::order("resume", &order),
        Command::Status(args) => control::status(&args),
        Command::SignIn(server) => sign_in::run(&server),
        Command::Ready(server) => ready::run(&server),
        Command::Watch(args) => control::watch(&args),
        Command::Init(args) => init::run(&args),
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
        Command::Completions(args) => papers::completions(&args),
        Command::Man(args) => papers::man(&args),
    };
    match done {
        Ok(code) => code,
        Err(error) => ui::fail(&error),
    }
}

/// The argument with which this program starts itself as a guardian.
const GUARDIAN: &str = "guardian";

/// Watches the tree of a keeper, if this process was started for that.
fn guardian() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != GUARDIAN || arguments.next().is_some() {
        return None;
    }
    let done = deadstop_process::stand_guard(std::io::stdin().lock());
    Some(if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
