//! `deadstop incidents`: what was blocked or killed, how it stands, and what people do about it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use crate::control::guard_names;
use crate::list::{self, Paging, Query, Span};
use crate::remote::{self, Server};
use crate::table::Table;
use crate::ui::Hinted;
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
    /// Acknowledge incidents: you have seen them.
    Ack {
        /// The incidents, or the beginnings or the ends of their ids
        #[arg(required = true)]
        id: Vec<String>,
        /// A note that people will read
        #[arg(long, value_name = "TEXT")]
        note: String,
    },
    /// Give incidents to a person.
    Assign {
        /// The incidents, or the beginnings or the ends of their ids
        #[arg(required = true)]
        id: Vec<String>,
        /// To whom [default: you]
        #[arg(long, value_name = "NAME")]
        to: Option<String>,
        /// A note that people will read
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: String,
    },
    /// Resolve incidents. Each opens again if it happens again.
    Resolve {
        /// The incidents, or the beginnings or the ends of their ids
        #[arg(required = true)]
        id: Vec<String>,
        /// A note that people will read
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: String,
        /// The guard should not have tripped
        #[arg(long)]
        false_alarm: bool,
    },
    /// Reopen resolved incidents.
    Reopen {
        /// The incidents, or the beginnings or the ends of their ids
        #[arg(required = true)]
        id: Vec<String>,
        /// A note that people will read
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: String,
    },
    /// Send no alerts about incidents that are like these. They are still recorded and enforced.
    Mute {
        /// The incidents, or the beginnings or the ends of their ids
        #[arg(required = true)]
        id: Vec<String>,
        /// For how long, such as 2h or 7d [default: for good]
        #[arg(long = "for", value_name = "TIME", value_parser = when::duration)]
        span: Option<Duration>,
        /// Why; people will read it
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: String,
    },
    /// Send alerts again about incidents that are like these.
    Unmute {
        /// The incidents, or the beginnings or the ends of their ids
        #[arg(required = true)]
        id: Vec<String>,
        /// Why; people will read it
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: String,
    },
}

impl Command {
    /// What the server is asked to do, about which incidents.
    fn order(&self) -> (&[String], Value) {
        match self {
            Command::Ack { id, note } => (id, json!({ "action": "acknowledge", "note": note })),
            Command::Assign { id, to, note } => {
                let to = to.clone().or_else(remote::operator);
                (id, json!({ "action": "assign", "assignee": to, "note": note }))
            }
            Command::Resolve { id, note, false_alarm } => {
                let action = if *false_alarm { "false_alarm" } else { "resolve" };
                (id, json!({ "action": action, "note": note }))
            }
            Command::Reopen { id, note } => (id, json!({ "action": "reopen", "note": note })),
            Command::Mute { id, span, note } => {
                let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
                let until = span.map(|span| when::now().saturating_add(ms(span)));
                (id, json!({ "action": "mute", "until_ms": until, "note": note }))
            }
            Command::Unmute { id, note } => (id, json!({ "action": "unmute", "note": note })),
        }
    }
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
    #[arg(long, value_name = "NAME", value_parser = guard_names(), hide_possible_values = true)]
    guard: Option<String>,
    /// Only those with this reason code, such as repetition
    #[arg(long, value_name = "CODE")]
    reason: Option<String>,
    /// Only those in this state
    #[arg(long, value_parser = ["open", "acknowledged", "muted", "resolved", "unresolved"], hide_possible_values = true, value_name = "open|acknowledged|muted|resolved|unresolved")]
    state: Option<String>,
    /// Only those that are not acknowledged
    #[arg(long)]
    open: bool,
    /// Only acknowledged ones
    #[arg(long, conflicts_with = "open")]
    seen: bool,
    /// Group those that are alike (same agent, guard and tool), with the first and last time
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
        Some(command) => act(command, &args.server),
    }
}

fn list(list: &List, server: &Server) -> anyhow::Result<ExitCode> {
    let path = if list.groups { "/api/incidents/groups" } else { "/api/incidents" };
    let query = Query::new(path)
        .some("agent", list.agent.as_ref())
        .some("session", list.session.as_ref())
        .some("guard", list.guard.as_ref())
        .some("reason", list.reason.as_ref())
        .some("state", list.state.as_ref())
        .some("acknowledged", (list.open || list.seen).then_some(list.seen));
    let show = if list.groups { groups } else { incidents };
    list::show(server, list.span.ask(query), &list.paging, "incidents", show)
}

fn incidents(incidents: &[Value]) -> Table {
    let columns = ["incident", "at", "session", "guard", "state", "calls", "who", "what"];
    let mut table = Table::new(columns).right([5]).names([0, 2]);
    for incident in incidents {
        table.row([
            ui::text(&incident["id"]),
            when::brief(&incident["at_ms"]),
            format!("{}/{}", ui::text(&incident["agent"]), ui::text(&incident["session"])),
            ui::text(&incident["guard"]),
            ui::text(&incident["state"]),
            calls(incident),
            who(incident),
            ui::text(&incident["explain"]),
        ]);
    }
    table
}

fn groups(groups: &[Value]) -> Table {
    let mut table =
        Table::new(["agent", "guard", "about", "state", "count", "open", "first", "last"])
            .right([4, 5]);
    for group in groups {
        table.row([
            ui::text(&group["agent"]),
            ui::text(&group["guard"]),
            ui::text(&group["about"]),
            ui::text(&group["state"]),
            ui::text(&group["count"]),
            ui::text(&group["open"]),
            when::brief(&group["first_ms"]),
            when::brief(&group["last_ms"]),
        ]);
    }
    table
}

/// How many calls an incident met, where it grew.
fn calls(incident: &Value) -> String {
    match incident["calls"].as_u64() {
        Some(MOST_COUNTED..) => format!("{MOST_COUNTED}+"),
        Some(calls @ 2..) => calls.to_string(),
        _ => String::new(),
    }
}

/// The server counts no further.
const MOST_COUNTED: u64 = 10_000;

/// The person behind an incident's state.
fn who(incident: &Value) -> String {
    let of = match incident["state"].as_str() {
        Some("resolved") => &incident["resolved"]["by"],
        Some("muted") => &incident["muted"]["by"],
        _ if incident["assignee"].is_string() => &incident["assignee"],
        _ => &incident["acknowledged"]["by"],
    };
    ui::text(of)
}

fn act(command: &Command, server: &Server) -> anyhow::Result<ExitCode> {
    let (typed, mut body) = command.order();
    let client = server.client()?;
    let done = ui::runtime()?.block_on(async {
        let mut ids = Vec::new();
        for id in typed {
            ids.push(short::incident(&client, id).await.with_context(|| format!("incident {id}"))?);
        }
        body["ids"] = json!(ids);
        body["by"] = json!(remote::operator());
        client.post("/api/incidents/actions", &body).await
    })?;
    if server.json {
        ui::print(&done.to_string())?;
    } else {
        let incidents = done["incidents"].as_array().map(Vec::as_slice).unwrap_or_default();
        let line = |one: &Value| {
            format!(
                "{}: incident {}, by {}",
                ui::text(&one["state"]),
                ui::text(&one["id"]),
                who(one)
            )
        };
        let lines: Vec<String> = incidents.iter().map(line).collect();
        if !lines.is_empty() {
            ui::print(&lines.join("\n"))?;
        }
    }
    match done["missing"].as_array().map(Vec::as_slice).unwrap_or_default() {
        [] => Ok(ExitCode::SUCCESS),
        missing => {
            let missing: Vec<String> = missing.iter().map(ui::text).collect();
            let error = format!("incident {}: Not Found", missing.join(", "));
            Err(Hinted::error(error, "`deadstop incidents` lists them"))
        }
    }
}
