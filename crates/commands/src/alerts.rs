//! `deadstop alerts`: where alerts go, a test of each, and the log of what was delivered.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use crate::client::{Client, encoded};
use crate::list::{self, Paging, Query, Span};
use crate::remote::Server;
use crate::table::Table;
use crate::ui::Hinted;
use crate::{short, ui, when};

/// What a target can hear of.
const EVENTS: [&str; 6] =
    ["kill", "trip", "budget_warning", "breaker_open", "approval", "degraded"];
/// How long a test is waited for, and how often it is looked after.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);
/// The longest address.
const LONGEST: u64 = 10_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List alert targets.
    List,
    /// Add an alert target.
    #[command(subcommand)]
    Add(Add),
    /// Send a test, and wait until it has arrived; 1 if it does not.
    Test {
        /// The target's id
        id: String,
    },
    /// List what was delivered, and what was not.
    Log(Log),
    /// Remove a target.
    Remove {
        /// The target's id
        id: String,
    },
}

#[derive(Debug, clap::Subcommand)]
enum Add {
    /// A signed POST of JSON.
    Webhook {
        /// Where to; `-` reads it from stdin, for it may be a secret
        url: String,
        /// A file with the secret that it is signed with [default: one is made, and shown this once]
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
        #[command(flatten)]
        about: About,
    },
    /// A POST as Slack, Mattermost and others understand it.
    Slack {
        /// Where to; `-` reads it from stdin, for it is a secret
        url: String,
        #[command(flatten)]
        about: About,
    },
    /// A mail.
    Email {
        /// smtps://user:password@host, smtp+starttls://… or smtp://…; `-` reads it from stdin, for
        /// the password would show in `ps`
        #[arg(long, value_name = "URL")]
        smtp: String,
        /// From whom
        #[arg(long, value_name = "ADDRESS")]
        from: String,
        /// To whom; may be given several times
        #[arg(long, value_name = "ADDRESS", required = true)]
        to: Vec<String>,
        #[command(flatten)]
        about: About,
    },
}

#[derive(Debug, clap::Args)]
struct About {
    /// What people will call it
    #[arg(long)]
    name: String,
    /// Only what is about this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// What it wants to hear of [default: all]
    #[arg(long, value_delimiter = ',', value_name = "EVENT", value_parser = EVENTS)]
    on: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct Log {
    /// Only to this target
    #[arg(long, value_name = "ID")]
    target: Option<String>,
    /// Only about this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Only about this incident
    #[arg(long, value_name = "ID")]
    incident: Option<String>,
    /// Only those in this state
    #[arg(long, value_parser = ["waiting", "delivered", "failed"])]
    state: Option<String>,
    #[command(flatten)]
    span: Span,
    #[command(flatten)]
    paging: Paging,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let server = &args.server;
    match &args.command {
        None | Some(Command::List) => list(server),
        Some(Command::Add(order)) => add(order, server),
        Some(Command::Test { id }) => test(id, server),
        Some(Command::Log(args)) => log(args, server),
        Some(Command::Remove { id }) => remove(id, server),
    }
}

fn list(server: &Server) -> anyhow::Result<ExitCode> {
    list::show_whole(server, "/api/alerts/targets", "targets yet", |targets| {
        let mut table =
            Table::new(["target", "name", "to", "agent", "on", "made"]).names([0, 1, 2]);
        for target in targets {
            let on = match target["active"] == true {
                true => ui::text(&target["events"]),
                false => "off".to_owned(),
            };
            table.row([
                ui::text(&target["id"]),
                ui::text(&target["name"]),
                ui::text(&target["summary"]),
                ui::text(&target["agent"]),
                on,
                when::brief(&target["made_ms"]),
            ]);
        }
        table
    })
}

fn add(order: &Add, server: &Server) -> anyhow::Result<ExitCode> {
    let (about, target) = match order {
        Add::Webhook { url, secret_file, about } => {
            let secret = secret_file.as_ref().map(|file| {
                std::fs::read_to_string(file).map(|text| text.trim().to_owned()).map_err(|error| {
                    let problem = format!("cannot read {}: {error}", file.display());
                    Hinted::error(problem, "check --secret-file")
                })
            });
            let mut target = json!({ "type": "webhook", "url": address(url)? });
            if let Some(secret) = secret.transpose()? {
                target["secret"] = json!(secret);
            }
            (about, target)
        }
        Add::Slack { url, about } => (about, json!({ "type": "slack", "url": address(url)? })),
        Add::Email { smtp, from, to, about } => {
            let (smtp, to) = (address(smtp)?, to.join(", "));
            (about, json!({ "type": "email", "smtp": smtp, "from": from, "to": to }))
        }
    };
    let events = if about.on.is_empty() { json!(EVENTS) } else { json!(about.on) };
    let body = json!({
        "name": about.name, "agent": about.agent, "events": events, "active": true,
        "target": target,
    });
    let client = server.client()?;
    let made = ui::runtime()?.block_on(client.post("/api/alerts/targets", &body))?;
    if server.json {
        ui::print(&made.to_string())?;
    } else {
        let id = ui::text(&made["id"]);
        ui::print(&format!("target {id}, {}", ui::text(&made["summary"])))?;
        if let Some(secret) = made["secret"].as_str() {
            ui::print(&format!("signed with {}", ui::printable(secret)))?;
            eprintln!("keep the secret: it is not shown again");
        }
        eprintln!("try it: deadstop alerts test {id}");
    }
    Ok(ExitCode::SUCCESS)
}

/// An address that was typed, or that stands on stdin.
fn address(text: &str) -> anyhow::Result<String> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut read = String::new();
    std::io::stdin().lock().take(LONGEST).read_to_string(&mut read).context("cannot read stdin")?;
    Ok(read.trim().to_owned())
}

fn test(id: &str, server: &Server) -> anyhow::Result<ExitCode> {
    let client = server.client()?;
    let delivery = ui::runtime()?.block_on(async {
        let id = &short::listed(&client, "target", "/api/alerts/targets", id).await?;
        let path = format!("/api/alerts/targets/{}/test", encoded(id));
        let sent = client.post(&path, &json!({})).await.with_context(|| format!("target {id}"))?;
        tried(&client, id, &sent["delivery"]).await
    })?;
    let arrived = delivery["state"] == "delivered";
    if server.json {
        ui::print(&delivery.to_string())?;
    } else {
        let answer = match ui::text(&delivery["answer"]) {
            answer if answer.is_empty() => "no answer yet".to_owned(),
            answer => answer,
        };
        let state = if arrived { "delivered" } else { "not delivered" };
        ui::print(&format!("{state}: {answer}"))?;
        if delivery["state"] == "waiting" {
            eprintln!("it is tried again; see `deadstop alerts log --target {id}`");
        }
    }
    Ok(if arrived { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The delivery once it was tried.
async fn tried(client: &Client, target: &str, delivery: &Value) -> anyhow::Result<Value> {
    let query = Query::new("/api/alerts/deliveries").some("target", Some(target));
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        let found = client.get(query.path()).await?;
        let ours =
            found["items"].as_array().into_iter().flatten().find(|one| one["id"] == *delivery);
        let late = tokio::time::Instant::now() > until;
        // A try that runs is counted already, and has no answer yet.
        let tried = |one: &Value| one["state"] != "waiting" || !one["answer"].is_null();
        match ours {
            Some(one) if late || tried(one) => return Ok(one.clone()),
            None if late => anyhow::bail!("the test is not in the log"),
            _ => tokio::time::sleep(LOOK).await,
        }
    }
}

fn log(log: &Log, server: &Server) -> anyhow::Result<ExitCode> {
    let query = Query::new("/api/alerts/deliveries")
        .some("target", log.target.as_ref())
        .some("agent", log.agent.as_ref())
        .some("incident", log.incident.as_ref())
        .some("state", log.state.as_ref());
    list::show(server, log.span.ask(query), &log.paging, "deliveries", |deliveries| {
        let mut table = Table::new([
            "delivery", "state", "target", "event", "about", "made", "times", "tries", "answer",
        ])
        .right([6, 7])
        .names([0, 2, 4]);
        for delivery in deliveries {
            let about = ["agent", "session"].map(|name| ui::text(&delivery[name]));
            let about = about.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>();
            table.row([
                ui::text(&delivery["id"]),
                ui::text(&delivery["state"]),
                ui::text(&delivery["target"]),
                ui::text(&delivery["event"]),
                about.join("/"),
                when::brief(&delivery["made_ms"]),
                ui::text(&delivery["times"]),
                ui::text(&delivery["attempts"]),
                ui::text(&delivery["answer"]),
            ]);
        }
        table
    })
}

fn remove(id: &str, server: &Server) -> anyhow::Result<ExitCode> {
    let client = server.client()?;
    let gone = ui::runtime()?.block_on(async {
        let id = short::listed(&client, "target", "/api/alerts/targets", id).await?;
        client.delete(&format!("/api/alerts/targets/{}", encoded(&id))).await.map(|_| id)
    });
    let id = &gone.with_context(|| format!("target {id}"))?;
    match server.json {
        true => ui::print(&json!({ "removed": id }).to_string())?,
        false => ui::print(&format!("removed: target {}", ui::printable(id)))?,
    }
    Ok(ExitCode::SUCCESS)
}
