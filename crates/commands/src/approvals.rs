//! `deadstop approvals`: calls that wait for a person, and the person's word.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::{Value, json};

use crate::client::encoded;
use crate::remote::{self, Server};
use crate::table::{Table, facts};
use crate::{list, short, ui, when};

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
        /// The approval, or the beginning or the end of its id
        id: String,
    },
    /// Let a call pass, after all of it was shown.
    Approve {
        /// The approval, or the beginning or the end of its id
        id: String,
        /// Why; it is kept in the audit
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Do not ask on the terminal: you were shown this many characters by `approvals show`
        #[arg(long, value_name = "CHARACTERS")]
        shown: Option<u64>,
    },
    /// Refuse a call.
    Deny {
        /// The approval, or the beginning or the end of its id
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
        Some(Command::Approve { id, reason, shown }) => approve(id, reason, *shown, server),
        Some(Command::Deny { id, reason }) => {
            decide(id, "deny", &json!({ "reason": reason, "by": remote::operator() }), server)
        }
    }
}

fn waiting(server: &Server) -> anyhow::Result<Vec<Value>> {
    let client = server.client()?;
    let answer = ui::runtime()?.block_on(client.get("/api/approvals"))?;
    Ok(answer["items"].as_array().cloned().unwrap_or_default())
}

fn list(server: &Server) -> anyhow::Result<ExitCode> {
    list::show_whole(server, "/api/approvals", "calls that wait for a person", |waiting| {
        let columns = ["approval", "session", "tool", "would", "asked", "waits", "refused", "why"];
        let mut table = Table::new(columns).names([0, 1]);
        for one in waiting {
            let (asked, worst) = (ui::text(&one["asked"]), ui::text(&one["harms"][0]["because"]));
            table.row([
                ui::text(&one["id"]),
                format!("{}/{}", ui::text(&one["agent"]), ui::text(&one["session"])),
                ui::text(&one["tool"]),
                worst,
                beginning(&asked, chars(one)),
                since(&one["since_ms"]),
                format!("in {}", left(&one["until_ms"])),
                ui::text(&one["explain"]),
            ]);
        }
        table
    })
}

/// Characters of a call that the list shows.
const LISTED: usize = 60;

/// The beginning of a call, and how much of it is not shown.
fn beginning(asked: &str, chars: u64) -> String {
    let shown = asked.chars().count().min(LISTED) as u64;
    match chars.saturating_sub(shown) {
        0 => ui::clip(asked, LISTED),
        more => format!("{} [{more} more characters]", ui::clip(asked, LISTED)),
    }
}

/// Characters of the whole call.
fn chars(one: &Value) -> u64 {
    let count = |key: &str| one[key].as_u64().unwrap_or_default();
    count("asked_chars") + count("unkept_chars")
}

fn since(ms: &Value) -> String {
    when::length(when::now().saturating_sub(ms.as_u64().unwrap_or_default()))
}

fn left(ms: &Value) -> String {
    when::length(ms.as_u64().unwrap_or_default().saturating_sub(when::now()))
}

/// The whole id, for people who typed a part of it.
fn whole(id: &str, server: &Server) -> anyhow::Result<String> {
    let ids: Vec<String> = waiting(server)?.iter().map(|one| ui::text(&one["id"])).collect();
    // The server knows those that wait no longer, and says what became of them.
    Ok(short::pick("approval", id, &ids)?.unwrap_or_else(|| id.to_owned()))
}

fn show(id: &str, server: &Server) -> anyhow::Result<ExitCode> {
    let one = look(&whole(id, server)?, server).with_context(|| format!("approval {id}"))?;
    match server.json {
        true => ui::print(&one.to_string())?,
        false => {
            let page = server.page(&["approvals"]);
            ui::print(&format!("approval {}\n{}page: {page}\n", ui::text(&one["id"]), told(&one)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn look(id: &str, server: &Server) -> anyhow::Result<Value> {
    let client = server.client()?;
    ui::runtime()?.block_on(client.get(&format!("/api/approvals/{}", encoded(id))))
}

/// Approves a call. What is approved was shown: on a terminal it is printed in full and asked about;
/// a script says how many characters `approvals show` printed, unless the list holds them all.
fn approve(
    id: &str,
    reason: &str,
    shown: Option<u64>,
    server: &Server,
) -> anyhow::Result<ExitCode> {
    let whole = whole(id, server)?;
    let one = look(&whole, server).with_context(|| format!("approval {id}"))?;
    let waits = one["state"] == "waiting";
    let asks = shown.is_none() && waits && std::io::stdin().is_terminal();
    let mut body = json!({ "reason": reason, "by": remote::operator() });
    if let Some(chars) = shown {
        body["shown_chars"] = json!(chars);
    }
    if asks {
        if !confirmed(&format!("approval {whole}\n{}", told(&one)), "approve")? {
            ui::talk(format_args!("not approved; it still waits\n"));
            return Ok(ExitCode::from(1));
        }
        body["shown_chars"] = one["asked_chars"].clone();
    }
    let decided = decide(&whole, "approve", &body, server);
    match decided {
        Err(error) if waits && format!("{error:#}").contains("`shown_chars`") => {
            let chars = &one["asked_chars"];
            Err(ui::Hinted::error(
                format!("the call has {chars} characters, and they were not all shown"),
                format!("read `deadstop approvals show {id}`, then repeat with --shown {chars}"),
            ))
        }
        decided => decided,
    }
}

/// Shows a call on the terminal, and asks whether to do this with it.
pub(crate) fn confirmed(shown: &str, what: &str) -> anyhow::Result<bool> {
    ui::talk(format_args!("{shown}{what} this call? [y/N] "));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn decide(id: &str, what: &str, body: &Value, server: &Server) -> anyhow::Result<ExitCode> {
    let path = format!("/api/approvals/{}/{what}", encoded(&whole(id, server)?));
    let client = server.client()?;
    let one = ui::runtime()?.block_on(client.post(&path, body));
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

/// A call in full, what it would do first.
pub(crate) fn told(one: &Value) -> String {
    let text = |key: &str| ui::text(&one[key]);
    let decided = match one["decided_by"].as_str() {
        Some(by) => format!("{} by {by}: {}", text("state"), text("decided_why")),
        None => text("state"),
    };
    let harms = one["harms"].as_array().map_or(&[][..], Vec::as_slice);
    let would = harms
        .iter()
        .map(|harm| format!("{}: {}", ui::text(&harm["severity"]), ui::text(&harm["because"])));
    let unkept = match one["unkept_chars"].as_u64() {
        None | Some(0) => String::new(),
        Some(more) => format!("{more} more characters were not kept: it cannot be approved"),
    };
    facts(&[
        ("state", decided),
        ("session", format!("{}/{}", text("agent"), text("session"))),
        (&text("kind"), text("tool")),
        ("server", text("server")),
        ("would", would.collect::<Vec<_>>().join("; ")),
        ("asked", text("asked")),
        ("length", format!("{} characters", chars(one))),
        ("cut", unkept),
        ("why", text("explain")),
        ("since", when::ago(&one["since_ms"])),
        ("until", when::ago(&one["until_ms"])),
    ])
}
