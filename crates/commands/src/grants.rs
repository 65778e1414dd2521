//! `deadstop grant` and `deadstop grants`: more for a session whose limit is near or used up, and
//! one-time allowances for destructive batches.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use deadstop_core::{Millis, NanoUsd, Tokens, TopUp};
use deadstop_gate::OrderError;
use serde_json::{Value, json};

use crate::client::{Client, encoded};
use crate::control::gate_here;
use crate::remote::{self, Server};
use crate::table::Table;
use crate::ui::Hinted;
use crate::{list, operator, short, ui, when};

#[derive(Debug, clap::Args)]
pub(crate) struct Give {
    /// An agent, or one of its sessions; the beginnings of their names are enough
    #[arg(value_name = "AGENT[/SESSION]")]
    whom: String,
    /// Dollars that the session may spend in addition
    #[arg(long, value_name = "USD", value_parser = money)]
    cost: Option<f64>,
    /// Tool calls, and as many model calls, that it may make in addition
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// Tokens that it may use in addition: 200k, 1.5m
    #[arg(long, value_name = "N", value_parser = amount)]
    tokens: Option<u64>,
    /// How much longer it may run: 30m, 2h
    #[arg(long, value_name = "TIME", value_parser = when::duration)]
    time: Option<Duration>,
    /// How many destructive operations may pass
    #[arg(
        long, value_name = "N", requires = "length",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        conflicts_with_all = ["cost", "steps", "tokens", "time"],
        required_unless_present_any = ["cost", "steps", "tokens", "time"],
    )]
    deletes: Option<u32>,
    /// Only these targets, such as 'tmp_*'; one without a star may be destroyed again and again
    #[arg(long, value_name = "PATTERN", requires = "deletes")]
    target: Option<String>,
    /// Only by these tools
    #[arg(long, value_name = "PATTERN", requires = "deletes")]
    tool: Option<String>,
    /// How long the grant is valid: 10m, 2h
    #[arg(long = "for", value_name = "TIME", value_parser = when::duration, requires = "deletes")]
    length: Option<Duration>,
    /// Why; it is kept in the audit
    #[arg(long, value_name = "TEXT", required_unless_present_any = ["cost", "steps", "tokens", "time"])]
    reason: Option<String>,
    /// Raise the limits of a session in local files, where hooks judge without a server
    #[arg(long, conflicts_with = "deletes")]
    local: bool,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An agent, or one of its sessions; the beginnings of their names are enough
    #[arg(value_name = "AGENT[/SESSION]")]
    whom: String,
    /// Revoke this grant
    #[arg(long, value_name = "ID", requires = "reason")]
    revoke: Option<String>,
    /// Why you revoke it; it is kept in the audit
    #[arg(long, value_name = "TEXT", requires = "revoke")]
    reason: Option<String>,
    #[command(flatten)]
    server: Server,
}

/// Where the grants of an agent or a session stand.
async fn path(client: &Client, whom: &str) -> anyhow::Result<String> {
    Ok(match short::whom(client, whom).await? {
        (agent, Some(session)) => {
            format!("/api/sessions/{}/{}/grants", encoded(&agent), encoded(&session))
        }
        (agent, None) => format!("/api/agents/{}/grants", encoded(&agent)),
    })
}

/// Reads `200k`, `1.5m` and plain numbers.
fn amount(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase().replace('_', "");
    let (number, times) = match lower.strip_suffix(['k', 'm']) {
        Some(number) if lower.ends_with('k') => (number, 1e3),
        Some(number) => (number, 1e6),
        None => (lower.as_str(), 1.0),
    };
    let read = number.parse::<f64>().ok().map(|number| (number * times).round());
    let fits = read.filter(|number| (1.0..=1e12).contains(number));
    fits.map(|number| number as u64)
        .ok_or_else(|| format!("`{text}` is no number of tokens; write 200000, 200k or 1.5m"))
}

/// Reads `5`, `2.50` and `$5`.
fn money(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_start_matches('$').parse::<f64>().ok();
    let fits = number.filter(|number| *number > 0.0 && *number <= 1e6);
    fits.ok_or_else(|| format!("`{text}` is no amount of dollars; write 5 or 2.50"))
}

/// Raises the limits of a session; one that a limit ended goes on.
fn top_up(args: &Give) -> anyhow::Result<ExitCode> {
    if !args.whom.contains('/') {
        anyhow::bail!("limits are raised for a session: write {}/SESSION", args.whom);
    }
    if args.local || args.server.is_none() {
        return top_up_here(args);
    }
    let mut body = json!({
        "reason": args.reason.as_deref().unwrap_or_default(),
        "by": remote::operator(),
    });
    if let Some(cost) = args.cost {
        body["cost_usd"] = json!(cost);
    }
    for (name, amount) in [
        ("steps", args.steps),
        ("tokens", args.tokens),
        ("time_s", args.time.map(|time| time.as_secs())),
    ] {
        if let Some(amount) = amount {
            body[name] = json!(amount);
        }
    }
    let client = args.server.client()?;
    let done = ui::runtime()?.block_on(async {
        let (agent, session) = short::whom(&client, &args.whom).await?;
        let session = session.unwrap_or_default();
        let path = format!("/api/sessions/{}/{}/top-up", encoded(&agent), encoded(&session));
        client.post(&path, &body).await
    });
    let done = match done {
        // No server was named and none runs: then hooks judge coding agents by local files.
        Err(error) if Hinted::is_away(&error) && !args.server.is_typed() && !Server::is_usual() => {
            eprintln!("no server runs at {}: done in local files", args.server.url());
            return top_up_here(args);
        }
        other => other.with_context(|| args.whom.clone())?,
    };
    if args.server.json {
        ui::print(&format!("{done}\n"))?;
    } else {
        let text = |key: &str| ui::text(&done["scope"][key]);
        let (agent, name, state) = (text("agent"), text("name"), text("state"));
        ui::print(&format!("topped up: {agent}/{name}, which is {state} now\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The same in local files.
fn top_up_here(args: &Give) -> anyhow::Result<ExitCode> {
    let Some((agent, session)) = args.whom.split_once('/') else {
        anyhow::bail!("limits are raised for a session: write {}/SESSION", args.whom);
    };
    operator::must_be_operator()?;
    let more = TopUp {
        cost: args.cost.and_then(NanoUsd::from_dollars).unwrap_or_default(),
        steps: args.steps.unwrap_or_default(),
        tokens: Tokens(args.tokens.unwrap_or_default()),
        time: Millis(args.time.map_or(0, |time| time.as_secs() * 1000)),
    };
    let by = remote::operator().unwrap_or_else(|| "operator".to_owned());
    let reason = args.reason.as_deref().unwrap_or_default();
    let gate = gate_here(&args.server);
    let here = gate.top_up_here(agent, session, more, (&by, reason)).map_err(|error| {
        let problem = error.to_string();
        match error {
            OrderError::Unknown(_) => {
                Hinted::error(problem, "`deadstop status --local` lists them")
            }
            OrderError::Final => Hinted::error(
                "the session was stopped for good, so its limits cannot be raised",
                "deadstop resume SESSION --agent NAME --local gives it a fresh start",
            ),
            other => other.into(),
        }
    })?;
    if args.server.json {
        ui::print(&json!({ "done": "topped up", "scope": here, "where": "local" }).to_string())?;
    } else {
        let (agent, name) = (ui::printable(agent), ui::printable(&here.name));
        ui::print(&format!("topped up: {agent}/{name}, which is {} now\n", here.state))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn give(args: &Give) -> anyhow::Result<ExitCode> {
    let (Some(deletes), Some(length)) = (args.deletes, args.length) else { return top_up(args) };
    let mut body = json!({
        "deletes": deletes,
        "expires_in_s": length.as_secs(),
        "reason": args.reason,
        "by": remote::operator(),
    });
    for (name, pattern) in [("target", &args.target), ("tool", &args.tool)] {
        if let Some(pattern) = pattern {
            body[name] = json!(pattern);
        }
    }
    let client = args.server.client()?;
    let grant = ui::runtime()?
        .block_on(async { client.post(&path(&client, &args.whom).await?, &body).await });
    let grant = grant.with_context(|| args.whom.clone())?;
    tell("granted", &args.whom, &grant, &args.server)
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.server.client()?;
    let runtime = ui::runtime()?;
    let path = runtime.block_on(path(&client, &args.whom))?;
    if let (Some(id), Some(reason)) = (&args.revoke, &args.reason) {
        let body = json!({ "reason": reason, "by": remote::operator() });
        let grant = runtime.block_on(async {
            let id = short::listed(&client, "grant", &path, id).await?;
            client.post(&format!("{path}/{}/revoke", encoded(&id)), &body).await
        });
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
                when::brief(&grant["expires_ms"]),
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
