//! `deadstop approvals`: calls that wait for a person, and the person's word.

use std::process::ExitCode;

use anyhow::Context;
use serde_json::{Value, json};

use crate::client::encoded;
use crate::remote::{self, Server};
use crate::table::{Table, facts};
use crate::{list, ui, when};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the calls that wait, the longest waiting first.
    List,
    /// Show one in full.
    Show {
        /// The approval, or the end of its id
        id: String,
    },
    /// Let a call pass.
    Approve {
        /// The approval, or the end of its id
        id: String,
        /// Why; it is kept in the audit
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Refuse a call.
    Deny {
        /// The approval, or the end of its id
        id: String,
        /// Why; the agent is told, and it is kept in the audit
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let server = &args.server;
    match &args.command {
        None | Some(Command::List) => list(server),
        Some(Command::Show { id }) => show(id, server),
        Some(Command::Approve { id, reason }) => decide(id, "approve", reason, server),
        Some(Command::Deny { id, reason }) => decide(id, "deny", reason, server),
    }
}

fn waiting(server: &Server) -> anyhow::Result<Vec<Value>> {
    let client = server.client()?;
    let answer = ui::runtime()?.block_on(client.get("/api/approvals"))?;
    Ok(answer["items"].as_array().cloned().unwrap_or_default())
}

fn list(server: &Server) -> anyhow::Result<ExitCode> {
    list::show_whole(server, "/api/approvals", "calls that wait for a person", |waiting| {
        let columns = ["approval", "session", "tool", "asked", "waits", "refused", "why"];
        let mut table = Table::new(columns);
        for one in waiting {
            table.row([
                ui::text(&one["id"]),
                format!("{}/{}", ui::text(&one["agent"]), ui::text(&one["session"])),
                ui::text(&one["tool"]),
                ui::clip(&ui::text(&one["asked"]), 60),
                since(&one["since_ms"]),
                format!("in {}", left(&one["until_ms"])),
                ui::text(&one["explain"]),
            ]);
        }
        table
    })
}

fn since(ms: &Value) -> String {
    when::length(when::now().saturating_sub(ms.as_u64().unwrap_or_default()))
}

fn left(ms: &Value) -> String {
    when::length(ms.as_u64().unwrap_or_default().saturating_sub(when::now()))
}

/// The whole id, for people who typed its end.
fn whole(id: &str, server: &Server) -> anyhow::Result<String> {
    let ids: Vec<String> = waiting(server)?.iter().map(|one| ui::text(&one["id"])).collect();
    let mut fits = ids.iter().filter(|one| one.ends_with(id));
    match (fits.next(), fits.next()) {
        (Some(one), None) => Ok(one.clone()),
        (Some(_), Some(_)) => Err(ui::Hinted::error(
            format!("several calls that wait end in {id}"),
            "write more of it; `deadstop approvals` lists them",
        )),
        // The server knows those that wait no longer, and says what became of them.
        (None, _) => Ok(id.to_owned()),
    }
}

fn show(id: &str, server: &Server) -> anyhow::Result<ExitCode> {
    let path = format!("/api/approvals/{}", encoded(&whole(id, server)?));
    let client = server.client()?;
    let one = ui::runtime()?.block_on(client.get(&path));
    tell(&one.with_context(|| format!("approval {id}"))?, server)
}

fn decide(id: &str, what: &str, reason: &str, server: &Server) -> anyhow::Result<ExitCode> {
    let path = format!("/api/approvals/{}/{what}", encoded(&whole(id, server)?));
    let body = json!({ "reason": reason, "by": remote::operator() });
    let client = server.client()?;
    let one = ui::runtime()?.block_on(client.post(&path, &body));
    let one = one.with_context(|| format!("approval {id}"))?;
    if server.json {
        ui::print(&format!("{one}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = |key: &str| ui::text(&one[key]);
    let (done, tool) = (text("state"), text("tool"));
    ui::print(&format!("{done}: {tool} of {}/{}\n", text("agent"), text("session")))?;
    Ok(ExitCode::SUCCESS)
}

fn tell(one: &Value, server: &Server) -> anyhow::Result<ExitCode> {
    if server.json {
        ui::print(&format!("{one}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = |key: &str| ui::text(&one[key]);
    let decided = match one["decided_by"].as_str() {
        Some(by) => format!("{} by {by}: {}", text("state"), text("decided_why")),
        None => text("state"),
    };
    let facts = facts(&[
        ("state", decided),
        ("session", format!("{}/{}", text("agent"), text("session"))),
        (&text("kind"), text("tool")),
        ("server", text("server")),
        ("asked", text("asked")),
        ("destroys", text("destroys")),
        ("why", text("explain")),
        ("since", when::ago(&one["since_ms"])),
        ("until", when::ago(&one["until_ms"])),
    ]);
    ui::print(&format!("approval {}\n{facts}", text("id")))?;
    Ok(ExitCode::SUCCESS)
}
