//! `deadstop allow`: lets one call pass that was held because of its harm, once, within ten minutes.
//!
//! The code stands in the refusal, so that the agent has read it too. It is therefore refused
//! where an agent runs it: in a session of a coding agent, which its host marks in the environment,
//! and without a terminal, unless a person says `--yes`.

use std::io::IsTerminal;
use std::process::ExitCode;

use deadstop_gate::{Gate, Setup};

use crate::{operator, ui};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The code that the refusal named
    #[arg(value_name = "CODE")]
    code: String,
    /// Why, for the record
    #[arg(long, default_value = "")]
    reason: String,
    /// Do not ask for a terminal: a person's own script runs this
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    operator::must_not_be_agent()?;
    if !args.yes && !std::io::stdin().is_terminal() {
        return Err(ui::Hinted::error(
            "a person must allow a call, and there is no terminal here",
            "run this in a terminal, or add --yes in a script of your own",
        ));
    }
    let gate = Gate::open(Setup::default());
    let by = std::env::var("USER").unwrap_or_else(|_| "operator".to_owned());
    let allowed = gate.allow(&args.code, &by, &args.reason)?;
    ui::print(&format!("allowed once within 10 minutes: {}", allowed.what))?;
    Ok(ExitCode::SUCCESS)
}
