//! `deadstop allow`: lets one call pass that was held because of its harm, once, within ten minutes.
//!
//! The code stands in the refusal, so that the agent has read it too. It is therefore refused
//! where an agent runs it: in a session of a coding agent, which its host marks in the environment,
//! and without a terminal, unless a person says `--yes`.

use std::io::IsTerminal;
use std::process::ExitCode;

use deadstop_gate::{Gate, Setup};

use crate::ui;

/// Variables with which hosts mark what their agents run.
const MARKS: &[&str] = &[
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "GEMINI_CLI",
    "CURSOR_AGENT",
    "OPENCODE",
    "COPILOT_AGENT",
    "DEADSTOP_SESSION",
];
/// Beginnings of such variables.
const MARKED: &[&str] = &["CODEX_SANDBOX", "CODEX_THREAD", "CODEX_SESSION"];

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
    let names: Vec<String> =
        std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
    if let Some(mark) = names.iter().find(|name| is_mark(name)) {
        return Err(ui::Hinted::error(
            format!("an agent's session cannot allow its own calls ({mark} is set)"),
            "run this in a terminal of your own",
        ));
    }
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

fn is_mark(name: &str) -> bool {
    MARKS.contains(&name) || MARKED.iter().any(|start| name.starts_with(start))
}
