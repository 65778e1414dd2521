//! `deadstop policy get`, `set`, `reset`, `versions`, `diff` and `restore`: the policies of a server.

use std::process::ExitCode;

use anyhow::Context;
use deadstop_protocol::policy_file;
use deadstop_protocol::policy_views::{Whose, stored_policy, write_policy};
use serde_json::{Value, json};

use super::load::load;
use crate::client::encoded;
use crate::list::{self, Paging, Query};
use crate::remote::Server;
use crate::table::Table;
use crate::{ui, when};

/// Whose policy.
#[derive(Debug, clap::Args)]
pub(super) struct Of {
    /// An agent, and not the project's default
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Get {
    #[command(flatten)]
    of: Of,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Args)]
pub(super) struct Set {
    /// A policy file or a preset (observe, balanced, strict); `-` is stdin
    #[arg(value_name = "FILE|PRESET")]
    source: String,
    #[command(flatten)]
    of: Of,
    /// Why; people will read it
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// The version that it replaces, as `policy get` has shown it; if another one is in force by
    /// now, nothing is changed
    #[arg(long, value_name = "VERSION")]
    replaces: Option<i64>,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Args)]
pub(super) struct Reset {
    /// Take this agent back to the project's default
    #[arg(long, value_name = "NAME", required_unless_present = "default")]
    agent: Option<String>,
    /// Take the project's default back to what the server was started with
    #[arg(long, conflicts_with = "agent")]
    default: bool,
    /// Why; people will read it
    #[arg(long, default_value = "", value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Args)]
pub(super) struct Versions {
    #[command(flatten)]
    of: Of,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Args)]
pub(super) struct Diff {
    /// The earlier version; 0 is what there was before the first
    #[arg(value_name = "VERSION")]
    from: i64,
    /// The later version [default: the one in force]
    #[arg(value_name = "VERSION")]
    to: Option<i64>,
    #[command(flatten)]
    of: Of,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Args)]
pub(super) struct Restore {
    /// The version that is to be in force again
    #[arg(value_name = "VERSION")]
    number: i64,
    #[command(flatten)]
    of: Of,
    /// Why; people will read it
    #[arg(long, default_value = "", value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    server: Server,
}

fn path(agent: Option<&str>) -> String {
    match agent {
        Some(agent) => format!("/api/policies/agents/{}", encoded(agent)),
        None => "/api/policies/default".to_owned(),
    }
}

fn whose(agent: Option<&str>) -> String {
    agent.map_or_else(|| "the project's default".to_owned(), |agent| format!("agent {agent}"))
}

pub(super) fn get(args: &Get) -> anyhow::Result<ExitCode> {
    let agent = args.of.agent.as_deref();
    let client = args.server.client()?;
    let answer = ui::runtime()?.block_on(client.get(&path(agent)));
    let answer = answer.with_context(|| whose(agent))?;
    if args.server.json {
        ui::print(&answer.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    ui::print(&document(agent, &answer)?)?;
    Ok(ExitCode::SUCCESS)
}

/// The policy in force as a file that can be edited and set.
fn document(agent: Option<&str>, answer: &Value) -> anyhow::Result<String> {
    let policies = stored_policy(&answer["effective"]).map_err(anyhow::Error::msg);
    let policies = policies.context("the server's policy cannot be read by this program")?;
    let version = &answer["version"];
    let (of, option) = match agent {
        Some(agent) => (format!("of the agent {agent}"), format!(" --agent '{agent}'")),
        None => ("of the project".to_owned(), String::new()),
    };
    let document = &answer["document"];
    let own = !document["policy"].is_null() || !document["kill_switch"].is_null();
    let origin = match (answer["at_ms"].is_null(), agent) {
        (true, None) => "which the server was started with".to_owned(),
        (true, Some(_)) => "which is the project's default".to_owned(),
        (false, Some(_)) if !own => format!("back to the project's default {}", written(answer)),
        (false, _) => format!("set {}", written(answer)),
    };
    Ok(format!(
        "# The policy {of} that is in force, with every setting: version {version},\n# {origin}.\n\
         # To change it: edit this, then\n#   deadstop policy set FILE{option} --replaces {version} \
         --reason TEXT\n\n{}",
        policy_file::to_toml(&policies)
    ))
}

fn written(answer: &Value) -> String {
    let note = match ui::text(&answer["note"]) {
        note if note.is_empty() => note,
        note => format!(": {note}"),
    };
    format!("by {}, {}{note}", ui::text(&answer["who"]), when::ago(&answer["at_ms"]))
}

pub(super) fn set(args: &Set) -> anyhow::Result<ExitCode> {
    let policies = load(&args.source)?;
    let agent = args.of.agent.as_deref();
    let client = args.server.client()?;
    let path = path(agent);
    let query = Query::new(path.clone()).some("reason", Some(&args.reason));
    let answer = ui::runtime()?.block_on(async {
        // An agent may have a policy before its first call.
        let current = client.find(&path).await?.unwrap_or_default();
        let in_force = current["version"].as_i64().unwrap_or_default();
        let version = args.replaces.unwrap_or(in_force);
        // A kill switch of the agent's own is another thing than its policy, and stays.
        let body = match agent {
            None => write_policy(&policies, Whose::Project),
            Some(_) => json!({
                "policy": write_policy(&policies, Whose::Agent),
                "kill_switch": current["document"]["kill_switch"],
            }),
        };
        client.put(query.path(), &body, Some(version)).await
    });
    tell(agent, &answer.with_context(|| whose(agent))?, &args.server)
}

pub(super) fn reset(args: &Reset) -> anyhow::Result<ExitCode> {
    let agent = args.agent.as_deref();
    let reason = (!args.reason.is_empty()).then_some(&args.reason);
    let query = Query::new(path(agent)).some("reason", reason);
    let client = args.server.client()?;
    let answer = ui::runtime()?.block_on(client.delete(query.path()));
    tell(agent, &answer.with_context(|| whose(agent))?, &args.server)
}

pub(super) fn restore(args: &Restore) -> anyhow::Result<ExitCode> {
    let agent = args.of.agent.as_deref();
    let path = format!("{}/versions/{}/restore", path(agent), args.number);
    let client = args.server.client()?;
    let answer = ui::runtime()?.block_on(client.post(&path, &json!({ "reason": args.reason })));
    let answer = answer.with_context(|| format!("{}, version {}", whose(agent), args.number))?;
    tell(agent, &answer, &args.server)
}

/// Says what is in force now.
fn tell(agent: Option<&str>, answer: &Value, server: &Server) -> anyhow::Result<ExitCode> {
    if server.json {
        ui::print(&answer.to_string())?;
    } else {
        let (version, whose) = (&answer["version"], ui::printable(&whose(agent)));
        ui::print(&format!("in force: {whose}, version {version}"))?;
        let option = agent.map(|agent| format!(" --agent '{agent}'")).unwrap_or_default();
        let before = version.as_i64().unwrap_or_default() - 1;
        eprintln!("to see what changed: deadstop policy diff {before}{option}");
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn versions(args: &Versions) -> anyhow::Result<ExitCode> {
    let agent = args.of.agent.as_deref();
    let query = Query::new(format!("{}/versions", path(agent)));
    let shown = list::show(&args.server, query, &args.paging, "versions yet", |versions| {
        let mut table = Table::new(["version", "at", "by", "what", "why"]).right([0]);
        for version in versions {
            let what = if version["is_default"] == true { "reset" } else { "set" };
            table.row([
                ui::text(&version["version"]),
                when::brief(&version["at_ms"]),
                ui::text(&version["who"]),
                what.to_owned(),
                ui::text(&version["note"]),
            ]);
        }
        table
    });
    shown.with_context(|| whose(agent))
}

pub(super) fn diff(args: &Diff) -> anyhow::Result<ExitCode> {
    let agent = args.of.agent.as_deref();
    let query = Query::new(format!("{}/diff", path(agent)));
    let query = query.some("from", Some(args.from)).some("to", args.to);
    let client = args.server.client()?;
    let answer = ui::runtime()?.block_on(client.get(query.path()));
    let answer = answer.with_context(|| whose(agent))?;
    if args.server.json {
        ui::print(&answer.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let none = Vec::new();
    let changes = answer["changes"].as_array().unwrap_or(&none);
    if changes.is_empty() {
        eprintln!("versions {} and {} are the same", answer["from"], answer["to"]);
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new([
        "setting",
        &format!("version {}", answer["from"]),
        &format!("version {}", answer["to"]),
    ]);
    for change in changes {
        let side = |name: &str| match &change[name] {
            Value::Null => "-".to_owned(),
            value => ui::clip(&value.to_string(), 200),
        };
        table.row([ui::text(&change["path"]), side("before"), side("after")]);
    }
    ui::print(&table.to_string())?;
    Ok(ExitCode::SUCCESS)
}
