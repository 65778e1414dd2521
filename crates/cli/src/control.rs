//! `deadstop kill`, `clear`, `pause`, `resume`, `status` and `watch`: an operator's commands to a
//! server that runs.

use std::io::Write;
use std::process::ExitCode;

use comfy_table::{ContentArrangement, presets};
use serde_json::{Value, json};

use crate::client::Client;
use crate::ui;

/// Which server, and in which form to answer.
#[derive(Debug, clap::Args)]
pub(crate) struct Server {
    /// The server to talk to
    #[arg(
        long,
        env = "DEADSTOP_SERVER",
        default_value = "http://127.0.0.1:4141",
        value_name = "URL"
    )]
    server: String,
    /// Answer with JSON
    #[arg(long)]
    json: bool,
}

/// An order about a scope.
#[derive(Debug, clap::Args)]
pub(crate) struct Order {
    /// A session, or with --agent the session of that agent
    #[arg(value_name = "SESSION", required_unless_present_any = ["agent", "all"])]
    session: Option<String>,
    /// An agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Everything
    #[arg(long, conflicts_with_all = ["session", "agent"])]
    all: bool,
    /// Why; people will read it
    #[arg(long, default_value = "", value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    server: Server,
}

/// Carries an order out: `kill`, `clear`, `pause` or `resume`.
pub(crate) fn order(what: &str, order: &Order) -> anyhow::Result<ExitCode> {
    let by = std::env::var("USER").ok().filter(|user| !user.is_empty());
    let mut body = json!({ "reason": order.reason, "by": by.as_deref().unwrap_or("an operator") });
    if order.all {
        body["all"] = json!(true);
    }
    if let Some(agent) = &order.agent {
        body["agent"] = json!(agent);
    }
    if let Some(session) = &order.session {
        body["session"] = json!(session);
    }
    let client = Client::new(&order.server.server)?;
    let answer = ui::runtime()?.block_on(client.post(&format!("/api/{what}"), &body))?;
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
    Ok(ExitCode::SUCCESS)
}

/// Shows who runs.
pub(crate) fn status(server: &Server) -> anyhow::Result<ExitCode> {
    let client = Client::new(&server.server)?;
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
    let none = Vec::new();
    let scopes = answer["scopes"].as_array().unwrap_or(&none);
    if scopes.is_empty() {
        println!("no calls yet");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = comfy_table::Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
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
        table.add_row([
            shown(&scope["kind"]),
            shown(&scope["agent"]),
            shown(&scope["name"]),
            shown(&scope["state"]),
            shown(&scope["model_calls"]),
            shown(&scope["steps"]),
            shown(&scope["in_flight"]),
            format!("${:.4}", scope["cost_usd"].as_f64().unwrap_or_default()),
            shown(&scope["why"]),
        ]);
    }
    println!("{table}");
    Ok(ExitCode::SUCCESS)
}

/// Follows what happens until somebody has seen enough.
pub(crate) fn watch(server: &Server) -> anyhow::Result<ExitCode> {
    let client = Client::new(&server.server)?;
    ui::runtime()?.block_on(async {
        let mut events = client.events("/api/events").await?;
        eprintln!("watching {} (Ctrl-C ends)", server.server);
        loop {
            let event = tokio::select! {
                event = events.next() => event?,
                () = ui::interrupted() => return Ok(ExitCode::SUCCESS),
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
    let text = |key: &str| shown(&event[key]);
    format!(
        "{hours:02}:{minutes:02}:{seconds:02} UTC  {:<7} {}/{}  {}",
        text("what"),
        text("agent"),
        text("session"),
        text("text")
    )
}

/// A value as text, without control characters: names and reasons come from outside.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
