//! `deadstop allow`: lets one call pass that was refused because of its harm, once, within ten minutes.
//!
//! The code is looked for in the files of the hooks on this machine, then at the server. What is
//! allowed there is shown in full first.
//!
//! The code stands in the refusal, so that the agent has read it too. It is therefore refused
//! where an agent runs it: in a session of a coding agent, which its host marks in the environment,
//! and without a terminal, unless a person says `--yes`.

use std::io::IsTerminal;
use std::process::ExitCode;

use deadstop_gate::{AllowError, Gate, Setup};
use serde_json::json;

use crate::approvals::{confirmed, told};
use crate::client::encoded;
use crate::remote::{self, Server};
use crate::{operator, ui};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The code that the refusal named
    #[arg(value_name = "CODE")]
    code: String,
    /// Why, for the record
    #[arg(long, default_value = "")]
    reason: String,
    /// Allow it without a terminal, from a script that a person runs
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    server: Server,
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
    match gate.allow(&args.code, &by, &args.reason) {
        Ok(allowed) => {
            if args.server.json {
                let said = json!({ "code": allowed.code, "what": allowed.what });
                ui::print(&said.to_string())?;
            } else {
                ui::print(&format!("allowed once within 10 minutes: {}", allowed.what))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(unknown @ AllowError::Unknown(_)) => match at_server(args) {
            // Without a server there are the local codes only.
            Err(error) if ui::Hinted::is_away(&error) => Err(ui::Hinted::error(
                format!("{unknown}; no server answers at {}", args.server.url()),
                "a refusal names its code; a server that knows the code is named with --server",
            )),
            said => said,
        },
        Err(error) => Err(error.into()),
    }
}

/// Allows a call that a server has refused.
fn at_server(args: &Args) -> anyhow::Result<ExitCode> {
    let path = format!("/api/allow/{}", encoded(args.code.trim()));
    let client = args.server.client()?;
    let runtime = ui::runtime()?;
    let one = runtime.block_on(client.get(&path))?;
    if !args.yes
        && !confirmed(&format!("code {}\n{}", ui::text(&one["code"]), told(&one)), "allow")?
    {
        ui::talk(format_args!("not allowed\n"));
        return Ok(ExitCode::from(1));
    }
    let reason = if args.reason.is_empty() { "allowed once" } else { &args.reason };
    let shown = &one["asked_chars"];
    let body = json!({ "reason": reason, "by": remote::operator(), "shown_chars": shown });
    let done = runtime.block_on(client.post(&path, &body))?;
    if args.server.json {
        ui::print(&done.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = |key: &str| ui::text(&done[key]);
    let whose = format!("{} of {}/{}", text("tool"), text("agent"), text("session"));
    let what = ui::text(&done["harms"][0]["because"]);
    ui::print(&format!("allowed once within 10 minutes: {whose}: {what}"))?;
    Ok(ExitCode::SUCCESS)
}
