//! `deadstop agents`: who there is, how they do, and the switch.

use std::cmp::Reverse;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::{Value, json};

use crate::client::encoded;
use crate::list::{self, Paging, Query};
use crate::remote::{self, Server};
use crate::table::{Table, facts};
use crate::{quota, short, ui, when};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: List,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show one agent.
    Show {
        /// The agent, or the beginning of its name
        name: String,
    },
    /// Let an agent run again, with empty windows; its next call goes through.
    #[command(name = "resume", visible_alias = "on")]
    On {
        /// The agent, or the beginning of its name
        name: String,
        /// Why; people will read it
        #[arg(long, default_value = "", value_name = "TEXT")]
        reason: String,
    },
    /// Stop an agent, with all its sessions, until you resume it.
    #[command(name = "stop", visible_alias = "off")]
    Off {
        /// The agent, or the beginning of its name
        name: String,
        /// Why; people will read it
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Remove an agent from lists until it is used again. Its records stay, and so does a stop.
    #[command(visible_alias = "rm")]
    Remove {
        /// The agent, or the beginning of its name
        name: String,
        /// Why; people will read it
        #[arg(long, default_value = "", value_name = "TEXT")]
        reason: String,
    },
    /// Replace the tags of an agent.
    Tag {
        /// The agent, or the beginning of its name
        name: String,
        /// Its tags from now on
        #[arg(required_unless_present = "none", value_name = "TAG")]
        tags: Vec<String>,
        /// Take all tags away
        #[arg(long, conflicts_with = "tags")]
        none: bool,
    },
}

#[derive(Debug, Default, PartialEq, clap::Args)]
struct List {
    /// Only those with this tag
    #[arg(long)]
    tag: Option<String>,
    /// Only those that may run
    #[arg(long)]
    on: bool,
    /// Only those that were stopped
    #[arg(long, conflicts_with = "on")]
    off: bool,
    #[command(flatten)]
    paging: Paging,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.command.is_some() {
        list::unfiltered(&args.list)?;
    }
    let server = &args.server;
    match &args.command {
        None => list(&args.list, server),
        Some(Command::Show { name }) => show(name, server),
        Some(Command::On { name, reason }) => change(
            name,
            &json!({ "active": true, "reason": reason, "by": remote::operator() }),
            server,
        ),
        Some(Command::Off { name, reason }) => {
            let body = json!({ "active": false, "reason": reason, "by": remote::operator() });
            change(name, &body, server)
        }
        Some(Command::Remove { name, reason }) => remove(name, reason, server),
        Some(Command::Tag { name, tags, none: _ }) => {
            change(name, &json!({ "tags": tags }), server)
        }
    }
}

fn list(list: &List, server: &Server) -> anyhow::Result<ExitCode> {
    let active = (list.on || list.off).then_some(list.on);
    let query = Query::new("/api/agents").some("active", active).some("tag", list.tag.as_ref());
    list::show_sorted(server, query, &list.paging, "agents", danger, |agents| {
        let mut table = Table::new([
            "agent",
            "switch",
            "health",
            "calls",
            "loops",
            "incidents",
            "cost",
            "last used",
            "tags",
        ])
        .right([3, 4, 5, 6])
        .names([0]);
        for agent in agents {
            table.row([
                ui::text(&agent["name"]),
                switch(agent).to_owned(),
                ui::text(&agent["health"]),
                ui::text(&agent["calls"]),
                ui::text(&agent["loops"]),
                ui::text(&agent["incidents"]),
                ui::dollars(&agent["cost_usd"]),
                when::brief(&agent["used_ms"]),
                ui::text(&agent["tags"]),
            ]);
        }
        table
    })
}

/// What can do harm comes first: agents that run, by their health, their incidents and their cost.
fn danger(agent: &Value) -> impl Ord + use<> {
    let count = |key: &str| agent[key].as_u64().unwrap_or_default();
    let cents = (agent["cost_usd"].as_f64().unwrap_or_default() * 100.0) as u64;
    let ill = agent["health"] != "ok";
    Reverse((agent["active"] == true, ill, count("incidents"), count("loops"), cents))
}

fn switch(agent: &Value) -> &'static str {
    if agent["active"] == true { "on" } else { "off" }
}

fn path(name: &str) -> String {
    format!("/api/agents/{}", encoded(name))
}

fn show(name: &str, server: &Server) -> anyhow::Result<ExitCode> {
    let client = server.client()?;
    let agent = ui::runtime()?
        .block_on(async { client.get(&path(&short::known_agent(&client, name).await?)).await });
    tell(&agent.with_context(|| format!("agent {name}"))?, server)
}

fn change(name: &str, body: &Value, server: &Server) -> anyhow::Result<ExitCode> {
    let client = server.client()?;
    let agent = ui::runtime()?.block_on(async {
        client.patch(&path(&short::known_agent(&client, name).await?), body).await
    });
    tell(&agent.with_context(|| format!("agent {name}"))?, server)
}

fn remove(name: &str, reason: &str, server: &Server) -> anyhow::Result<ExitCode> {
    let client = server.client()?;
    let removed = ui::runtime()?.block_on(async {
        let path = path(&short::known_agent(&client, name).await?);
        let reason = Some(reason).filter(|reason| !reason.is_empty());
        let asked = Query::new(path).some("reason", reason).some("by", remote::operator());
        client.delete(asked.path()).await
    })?;
    if server.json {
        ui::print(&removed.to_string())?;
    } else {
        ui::print(&ui::text(&removed["text"]))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(agent: &Value, server: &Server) -> anyhow::Result<ExitCode> {
    if server.json {
        ui::print(&agent.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let by = ui::text(&agent["deactivated_by"]);
    let stopped = match by.as_str() {
        "" => String::new(),
        by => format!("by {by}, {}", when::ago(&agent["deactivated_ms"])),
    };
    let removed = match agent["removed_ms"].is_null() {
        true => String::new(),
        false => format!("{}; its next call lists it again", when::ago(&agent["removed_ms"])),
    };
    let facts = facts(&[
        ("switch", switch(agent).to_owned()),
        ("health", ui::text(&agent["health"])),
        ("stopped", stopped),
        ("why", ui::text(&agent["why"])),
        ("failing", ui::failing(agent)),
        ("removed", removed),
        ("calls", ui::text(&agent["calls"])),
        ("loops", ui::text(&agent["loops"])),
        ("incidents", ui::text(&agent["incidents"])),
        ("tokens", ui::text(&agent["tokens"])),
        ("cost", ui::dollars(&agent["cost_usd"])),
        ("quota", quota::all(agent).join("; ")),
        ("tags", ui::text(&agent["tags"])),
        ("first seen", when::ago(&agent["opened_ms"])),
        ("last used", when::ago(&agent["used_ms"])),
        ("page", server.page(&["agents", &ui::text(&agent["name"])])),
    ]);
    ui::print(&format!("agent {}\n{facts}", ui::text(&agent["name"])))?;
    Ok(ExitCode::SUCCESS)
}
