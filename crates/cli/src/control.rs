//! `deadstop kill`, `clear`, `pause`, `resume`, `status` and `watch`: an operator's commands to a
//! server that runs, or about local files where none does.

mod here;
mod known;

pub(crate) use here::gate as gate_here;

use std::io::Write;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::remote::{self, Server};
use crate::table::Table;
use crate::ui::{self, Hinted};
use crate::when;

/// An order about a scope.
#[derive(Debug, clap::Args)]
pub(crate) struct Order {
    /// A session: its name, or AGENT/SESSION as lists show it
    #[arg(value_name = "SESSION", required_unless_present_any = ["agent", "all", "named"])]
    session: Option<String>,
    /// The same, spelled as in the other commands
    #[arg(long = "session", value_name = "NAME", hide = true, conflicts_with = "session")]
    named: Option<String>,
    /// An agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Everything
    #[arg(long, conflicts_with_all = ["session", "named", "agent"])]
    all: bool,
    /// Why; people will read it
    #[arg(long, default_value = "", value_name = "TEXT")]
    reason: String,
    /// Give the order in advance, about an agent or a session that has made no call yet
    #[arg(long)]
    new: bool,
    /// In local files, where coding agents' hooks are judged without a server
    #[arg(long, conflicts_with = "server")]
    local: bool,
    #[command(flatten)]
    server: Server,
}

impl Order {
    /// The session that it is about, if it is about one.
    fn session(&self) -> Option<&str> {
        self.session.as_deref().or(self.named.as_deref())
    }
}

/// What is shown.
#[derive(Debug, clap::Args)]
pub(crate) struct Status {
    /// What local files know, where coding agents' hooks are judged without a server
    #[arg(long, conflicts_with = "server")]
    local: bool,
    #[command(flatten)]
    server: Server,
}

/// Carries an order out: `kill`, `clear`, `pause` or `resume`.
pub(crate) fn order(what: &str, order: &Order) -> anyhow::Result<ExitCode> {
    if order.local || order.server.is_none() {
        return here::order(what, order);
    }
    let mut body = json!({ "reason": order.reason, "by": remote::operator() });
    if order.all {
        body["all"] = json!(true);
    }
    if let Some(agent) = &order.agent {
        body["agent"] = json!(agent);
    }
    if let Some(session) = order.session() {
        body["session"] = json!(session);
    }
    if order.new {
        body["new"] = json!(true);
    }
    let client = order.server.client()?;
    let carried = ui::runtime()?.block_on(async {
        known::check(&client, order).await?;
        client.post(&format!("/api/{what}"), &body).await
    });
    let answer = match carried {
        // No server was named and none runs: then hooks judge coding agents by local files.
        Err(error) if Hinted::is_away(&error) && here::judges(order) => {
            eprintln!("no server runs at {}: done in local files", order.server.url());
            return here::order(what, order);
        }
        other => other?,
    };
    if order.server.json {
        println!("{answer}");
        return Ok(ExitCode::SUCCESS);
    }
    let scope = &answer["scope"];
    let text = |key: &str| scope[key].as_str().unwrap_or_default();
    let (done, kind, name) = (answer["done"].as_str().unwrap_or(what), text("kind"), text("name"));
    match kind {
        "project" => println!("{done}: everything"),
        _ => println!("{done}: {kind} {name}"),
    }
    if let Some(key) = answer["key"]["key"].as_str() {
        eprintln!("its old keys no longer work; this is its new key, shown this once:");
        println!("{key}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows who runs.
pub(crate) fn status(args: &Status) -> anyhow::Result<ExitCode> {
    let server = &args.server;
    if args.local || server.is_none() {
        return here::status(server);
    }
    let client = server.client()?;
    let answer = ui::runtime()?.block_on(client.get("/api/status"))?;
    if server.json {
        println!("{answer}");
        return Ok(ExitCode::SUCCESS);
    }
    let project = &answer["project"];
    if let ("killed" | "paused", Some(why)) =
        (project["state"].as_str().unwrap_or_default(), project["why"].as_str())
    {
        println!("everything is {}: {why}\n", project["state"].as_str().unwrap_or_default());
    }
    if let Some(until) = answer["key_grace"]["until_ms"].as_u64() {
        let agents = ui::text(&answer["key_grace"]["agents"]);
        let agents = if agents.is_empty() { "none so far".to_owned() } else { agents };
        let until = when::local(&until.into());
        println!("keys are required; agents that call without one until {until}: {agents}\n");
    }
    let none = Vec::new();
    let scopes = answer["scopes"].as_array().unwrap_or(&none);
    if scopes.is_empty() {
        println!("no calls yet");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new([
        "kind",
        "agent",
        "name",
        "state",
        "model calls",
        "tool calls",
        "in flight",
        "cost",
        "why",
    ]);
    for scope in scopes {
        table.row([
            ui::text(&scope["kind"]),
            ui::text(&scope["agent"]),
            ui::text(&scope["name"]),
            ui::text(&scope["state"]),
            ui::text(&scope["model_calls"]),
            ui::text(&scope["steps"]),
            ui::text(&scope["in_flight"]),
            ui::dollars(&scope["cost_usd"]),
            ui::text(&scope["why"]),
        ]);
    }
    println!("{table}");
    Ok(ExitCode::SUCCESS)
}

/// Prints events until the user presses Ctrl-C.
pub(crate) fn watch(server: &Server) -> anyhow::Result<ExitCode> {
    let client = server.client()?;
    ui::runtime()?.block_on(async {
        let mut events = client.events("/api/events").await?;
        let mut interrupted = std::pin::pin!(ui::interrupted());
        eprintln!("watching {} (Ctrl-C ends)", server.url());
        loop {
            let event = tokio::select! {
                event = events.next() => event?,
                () = &mut interrupted => return Ok(ExitCode::SUCCESS),
            };
            let Some(event) = event else {
                eprintln!("the server has gone");
                return Ok(ExitCode::FAILURE);
            };
            let line = if server.json { event.to_string() } else { told(&event) };
            let mut out = std::io::stdout().lock();
            writeln!(out, "{line}").and_then(|()| out.flush())?;
        }
    })
}

fn told(event: &Value) -> String {
    let at = event["at"].as_u64().unwrap_or_default() / 1000;
    let (hours, minutes, seconds) = (at / 3600 % 24, at / 60 % 60, at % 60);
    let text = |key: &str| ui::text(&event[key]);
    let mut line = format!(
        "{hours:02}:{minutes:02}:{seconds:02} UTC  {:<7} {}/{}  {}",
        text("what"),
        text("agent"),
        text("session"),
        text("text")
    );
    if event["what"] == "ask" {
        line.push_str(&format!("  (deadstop approvals approve|deny {})", text("approval")));
    }
    line
}
