//! The `deadstop` program: arguments in, one command run, an exit code out.
//!
//! Data goes to stdout, talk to stderr; an error is followed by a hint where there is one.

mod backtest;
mod client;
mod config;
mod control;
mod demo;
mod policy;
mod run;
mod serve;
mod ui;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The system's allocator keeps an arena for every thread and gives little back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    Status(control::Server),
    /// Follow what happens, live.
    Watch(control::Server),
    /// Replay recorded agent runs through a policy and see what it would have stopped.
    Backtest(backtest::Args),
    /// Write, check and show policies.
    Policy(policy::Args),
}

fn main() -> ExitCode {
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
        Command::Status(server) => control::status(&server),
        Command::Watch(server) => control::watch(&server),
        Command::Backtest(args) => backtest::run(&args),
        Command::Policy(args) => policy::run(&args),
    };
    match done {
        Ok(code) => code,
        Err(error) => ui::fail(&error),
    }
}
