//! The `deadstop` program: arguments in, one command run, an exit code out.
//!
//! Data goes to stdout, talk to stderr; an error is followed by a hint where there is one.

mod backtest;
mod policy;
mod ui;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Brings a runaway AI agent to a dead stop.
#[derive(Debug, Parser)]
#[command(name = "deadstop", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Replay recorded agent runs through a policy and see what it would have stopped.
    Backtest(backtest::Args),
    /// Write, check and show policies.
    Policy(policy::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Backtest(args) => backtest::run(&args),
        Command::Policy(args) => policy::run(&args),
    };
    match done {
        Ok(code) => code,
        Err(error) => ui::fail(&error),
    }
}
