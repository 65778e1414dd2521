//! `deadstop grant` and `deadstop grants`: one-time allowances for destructive batches.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use crate::client::encoded;
use crate::remote::{self, Server};
use crate::table::Table;
use crate::{list, ui, when};

#[derive(Debug, clap::Args)]
pub(crate) struct Give {
    /// An agent, or one of its sessions
    #[arg(value_name = "AGENT[/SESSION]")]
    whom: String,
    /// How much may be destroyed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    deletes: u32,
    /// Only these targets, such as 'tmp_*'; one without a star may be destroyed again and again
    #[arg(long, value_name = "PATTERN")]
    target: Option<String>,
    /// Only by these tools
    #[arg(long, value_name = "PATTERN")]
    tool: Option<String>,
    /// How long it holds: 10m, 2h
    #[arg(long = "for", value_name = "TIME", value_parser = when::duration)]
    length: Duration,
    /// Why; it is kept in the audit
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An agent, or one of its sessions
    #[arg(value_name = "AGENT[/SESSION]")]
    whom: String,
    /// Take this one back
    #[arg(long, value_name = "ID", requires = "reason")]
    revoke: Option<String>,
    /// Why it is taken back
    #[arg(long, value_name = "TEXT", requires = "revoke")]
    reason: Option<String>,
    #[command(flatten)]
    server: Server,
}

/// Where the grants of an agent or a session stand.
fn path(whom: &str) -> String {
    match whom.split_once('/') {
        Some((agent, session)) => {
            format!("/api/sessions/{}/{}/grants", encoded(agent), encoded(session))
        }
        None => format!("/api/agents/{}/grants", encoded(whom)),
    }
}

pub(crate) fn give(args: &Give) -> anyhow::Result<ExitCode> {
    let mut body = json!({
        "deletes": args.deletes,
        "expires_in_s": args.length.as_secs(),
        "reason": args.reason,
        "by": remote::operator(),
    });
    for (name, pattern) in [("target", &args.target), ("tool", &args.tool)] {
        if let Some(pattern) = pattern {
            body[name] = json!(pattern);
        }
    }
    let client = args.server.client()?;
    let grant = ui::runtime()?.block_on(client.post(&path(&args.whom), &body));
    let grant = grant.with_context(|| args.whom.clone())?;
    tell("granted", &args.whom, &grant, &args.server)
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.server.client()?;
    let path = path(&args.whom);
    if let (Some(id), Some(reason)) = (&args.revoke, &args.reason) {
        let body = json!({ "reason": reason, "by": remote::operator() });
        let path = format!("{path}/{}/revoke", encoded(id));
        let grant = ui::runtime()?.block_on(client.post(&path, &body));
        let grant = grant.with_context(|| format!("grant {id}"))?;
        return tell("revoked", &args.whom, &grant, &args.server);
    }
    list::show_whole(&args.server, &path, "grants", |grants| {
        let columns = ["grant", "left", "of", "target", "tool", "ends", "by", "reason"];
        let mut table = Table::new(columns).right([1, 2]);
        for grant in grants {
            table.row([
                ui::text(&grant["id"]),
                ui::text(&grant["left"]),
                ui::text(&grant["deletes"]),
                anything(&grant["target"]),
                anything(&grant["tool"]),
                when::ago(&grant["expires_ms"]),
                ui::text(&grant["by"]),
                ui::text(&grant["reason"]),
            ]);
        }
        table
    })
}

fn anything(pattern: &Value) -> String {
    if pattern.is_null() { "*".to_owned() } else { ui::text(pattern) }
}

fn tell(done: &str, whom: &str, grant: &Value, server: &Server) -> anyhow::Result<ExitCode> {
    if server.json {
        ui::print(&format!("{grant}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = |key: &str| ui::text(&grant[key]);
    let targets = anything(&grant["target"]);
    let (left, ends) = (text("left"), when::ago(&grant["expires_ms"]));
    ui::print(&format!(
        "{done}: {whom}, {left} of {targets} until {ends}, grant {}\n",
        text("id")
    ))?;
    Ok(ExitCode::SUCCESS)
}
