//! `deadstop sessions`: which there are, and one of them with its calls as a timeline.

use std::process::ExitCode;

use anyhow::Context;
use serde_json::Value;

use crate::client::encoded;
use crate::list::{self, Pages, Paging, Query, Span};
use crate::remote::Server;
use crate::table::{Table, facts};
use crate::ui::Hinted;
use crate::{short, timeline, ui, when};

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
    /// Show one session, and its calls as a timeline.
    Show {
        /// The session: AGENT/SESSION or its name; the beginning or the end of either is enough
        #[arg(value_name = "AGENT/SESSION")]
        session: String,
        #[command(flatten)]
        paging: Paging,
    },
}

#[derive(Debug, Default, PartialEq, clap::Args)]
struct List {
    /// Only those of this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Only those in this state
    #[arg(long, value_parser = ["running", "waiting", "paused", "idle", "finished", "stopped", "ended", "killed"], hide_possible_values = true, value_name = "running|waiting|paused|idle|finished|stopped")]
    state: Option<String>,
    /// Only those with this health tag, such as loop_detected or budget_warning
    #[arg(long)]
    tag: Option<String>,
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
        Some(Command::Show { session, paging }) => show(session, paging, &args.server),
    }
}

fn list(list: &List, server: &Server) -> anyhow::Result<ExitCode> {
    let query = Query::new("/api/sessions")
        .some("agent", list.agent.as_ref())
        .some("state", list.state.as_ref())
        .some("tag", list.tag.as_ref());
    list::show(server, list.span.ask(query), &list.paging, "sessions", |sessions| {
        let mut table = Table::new([
            "session",
            "state",
            "cost",
            "last used",
            "calls",
            "incidents",
            "tags",
            "model",
            "why",
        ])
        .right([2, 4, 5])
        .names([0]);
        for session in sessions {
            table.row([
                format!("{}/{}", ui::text(&session["agent"]), ui::text(&session["name"])),
                ui::standing(session),
                ui::dollars(&session["cost_usd"]),
                when::brief(&session["used_ms"]),
                ui::text(&session["calls"]),
                ui::text(&session["incidents"]),
                ui::text(&session["tags"]),
                ui::text(&session["model"]),
                ui::why(session),
            ]);
        }
        table
    })
}

fn show(named: &str, paging: &Paging, server: &Server) -> anyhow::Result<ExitCode> {
    let client = server.client()?;
    let (session, calls, more) = ui::runtime()?.block_on(async {
        let Some((agent, name)) = short::session(&client, named).await? else {
            let all = client.get("/api/sessions?limit=1000").await.unwrap_or_default();
            let all = all["items"].as_array().cloned().unwrap_or_default();
            if all.iter().any(|session| session["agent"] == named) {
                return Err(Hinted::error(
                    format!("`{named}` is an agent, and no session has that name"),
                    format!("deadstop sessions --agent {named}"),
                ));
            }
            let alone = |session: &Value| match named.contains('/') {
                true => format!("{}/{}", ui::text(&session["agent"]), ui::text(&session["name"])),
                false => ui::text(&session["name"]),
            };
            let hint =
                "write its agent, a slash, its name: AGENT/SESSION; `deadstop sessions` lists them";
            let known = all.iter().map(alone).collect();
            return Err(short::unknown("session", named, known, hint));
        };
        let path = format!("/api/sessions/{}/{}", encoded(&agent), encoded(&name));
        let session = client.get(&path).await.with_context(|| format!("session {named}"))?;
        // The end is what people want to see; as it happened is how they want to read it.
        let query = Query::new(format!("{path}/calls")).some("order", Some("newest"));
        let mut pages = Pages::new(&client, query, paging.most());
        let mut calls = pages.collect().await?;
        calls.reverse();
        anyhow::Ok((session, calls, pages.has_more()))
    })?;
    if server.json {
        let mut whole = session;
        whole["timeline"] = Value::Array(calls);
        ui::print(&whole.to_string())?;
    } else {
        let text = |key: &str| ui::text(&session[key]);
        let page = server.page(&["sessions", &text("agent"), &text("name")]);
        ui::print(&format!("{}\n\npage: {page}\n", told(&session, &calls).trim_end()))?;
    }
    if more {
        eprintln!("showing the latest calls: --limit N shows more, --all shows all");
    }
    Ok(ExitCode::SUCCESS)
}

fn told(session: &Value, calls: &[Value]) -> String {
    let live = &session["live"];
    let now = match live["in_flight"].as_u64() {
        None => String::new(),
        Some(flying) => format!(
            "{flying} in flight, {} spent, {} set aside",
            ui::dollars(&live["cost_usd"]),
            ui::dollars(&live["reserved_usd"])
        ),
    };
    let facts = facts(&[
        ("state", ui::standing(session)),
        ("why", ui::text(&session["why"])),
        ("held back", ui::failing(session)),
        ("tags", ui::text(&session["tags"])),
        ("provider", ui::text(&session["provider"])),
        ("model", ui::text(&session["model"])),
        ("calls", ui::text(&session["calls"])),
        ("incidents", ui::text(&session["incidents"])),
        ("tokens", ui::text(&session["tokens"])),
        ("cost", ui::dollars(&session["cost_usd"])),
        ("now", now),
        ("opened", when::ago(&session["opened_ms"])),
        ("last used", when::ago(&session["used_ms"])),
    ]);
    let name = format!("{}/{}", ui::text(&session["agent"]), ui::text(&session["name"]));
    let calls = match calls.is_empty() {
        true => "no calls yet".to_owned(),
        false => timeline::table(calls, None).to_string(),
    };
    format!("session {name}\n{facts}\n{calls}\n")
}
