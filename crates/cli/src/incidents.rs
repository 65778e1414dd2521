//! `deadstop incidents`: what was blocked or killed, and who has seen it.

use std::process::ExitCode;

use anyhow::Context;
use serde_json::{Value, json};

use crate::client::encoded;
use crate::list::{self, Paging, Query, Span};
use crate::remote::{self, Server};
use crate::table::Table;
use crate::{short, ui, when};

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
    /// Note that you have seen an incident.
    Ack {
        /// The incident, or the beginning or the end of its id
        id: String,
        /// What you have to say about it; people will read it
        #[arg(long, value_name = "TEXT")]
        note: String,
    },
}

#[derive(Debug, Default, PartialEq, clap::Args)]
struct List {
    /// Only those of this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Only those of this session
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Only those of this guard
    #[arg(long, value_name = "NAME")]
    guard: Option<String>,
    /// Only those with this code for why, such as repetition
    #[arg(long, value_name = "CODE")]
    reason: Option<String>,
    /// Only those that are not acknowledged
    #[arg(long)]
    open: bool,
    /// Only acknowledged ones
    #[arg(long, conflicts_with = "open")]
    seen: bool,
    /// Together by agent, guard and reason, with the first and the last
    #[arg(long)]
    groups: bool,
    #[command(flatten)]
    span: Span,
    #[command(flatten)]
    paging: Paging,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.command.is_some() {
        list::unfiltered(&args.list)?;
    }
    match &args.command {
        None => list(&args.list, &args.server),
        Some(Command::Ack { id, note }) => acknowledge(id, note, &args.server),
    }
}

fn list(list: &List, server: &Server) -> anyhow::Result<ExitCode> {
    let path = if list.groups { "/api/incidents/groups" } else { "/api/incidents" };
    let query = Query::new(path)
        .some("agent", list.agent.as_ref())
        .some("session", list.session.as_ref())
        .some("guard", list.guard.as_ref())
        .some("reason", list.reason.as_ref())
        .some("acknowledged", (list.open || list.seen).then_some(list.seen));
    let show = if list.groups { groups } else { incidents };
    list::show(server, list.span.ask(query), &list.paging, "incidents", show)
}

fn incidents(incidents: &[Value]) -> Table {
    let mut table = Table::new(["incident", "at", "session", "guard", "seen by", "what"]);
    for incident in incidents {
        table.row([
            ui::text(&incident["id"]),
            when::ago(&incident["at_ms"]),
            format!("{}/{}", ui::text(&incident["agent"]), ui::text(&incident["session"])),
            ui::text(&incident["guard"]),
            ui::text(&incident["acknowledged"]["by"]),
            ui::text(&incident["explain"]),
        ]);
    }
    table
}

fn groups(groups: &[Value]) -> Table {
    let mut table =
        Table::new(["agent", "guard", "reason", "count", "open", "first", "last"]).right([3, 4]);
    for group in groups {
        table.row([
            ui::text(&group["agent"]),
            ui::text(&group["guard"]),
            ui::text(&group["reason"]),
            ui::text(&group["count"]),
            ui::text(&group["open"]),
            when::ago(&group["first_ms"]),
            when::ago(&group["last_ms"]),
        ]);
    }
    table
}

fn acknowledge(id: &str, note: &str, server: &Server) -> anyhow::Result<ExitCode> {
    let body = json!({ "note": note, "by": remote::operator() });
    let client = server.client()?;
    let incident = ui::runtime()?.block_on(async {
        let id = short::incident(&client, id).await?;
        client.post(&format!("/api/incidents/{}/acknowledge", encoded(&id)), &body).await
    });
    let incident = incident.with_context(|| format!("incident {id}"))?;
    if server.json {
        ui::print(&incident.to_string())?;
    } else {
        let (id, by) = (ui::text(&incident["id"]), ui::text(&incident["acknowledged"]["by"]));
        ui::print(&format!("seen: incident {id}, by {by}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
