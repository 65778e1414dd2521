//! `deadstop keys`: who may do what. A key is shown once, when it is made.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use deadstop_server::{DatabaseLocation, KeyWanted};
use deadstop_store::Role;
use serde_json::{Value, json};

use crate::client::encoded;
use crate::database::{self, Make, Source};
use crate::remote::{self, Server};
use crate::table::Table;
use crate::ui::Hinted;
use crate::{list, operator, short, ui, when};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a key; it is shown this once.
    Create(Create),
    /// List the keys of the project, with those that were revoked.
    List,
    /// Revoke a key, at once.
    Revoke {
        /// The key's id, as `deadstop keys list` shows it, or its beginning or end
        id: String,
    },
}

#[derive(Debug, clap::Args)]
struct Create {
    /// What it may do
    #[arg(long, value_parser = Role::ALL.map(Role::name))]
    role: String,
    /// What people will call it
    #[arg(long)]
    name: String,
    /// For the role agent: the only agent that it may be, or a pattern such as 'team-*'
    #[arg(long, value_name = "NAME|PATTERN")]
    agent: Option<String>,
    /// For the role agent: it may be any agent, also under a new name that no kill is about
    #[arg(long, conflicts_with = "agent")]
    any_agent: bool,
    /// Make the first key without asking, although agents are running that will need one
    #[arg(long, short)]
    yes: bool,
    /// Write the key to a new file that only you can read, instead of showing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    source: Source,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let server = &args.server;
    match &args.command {
        Command::Create(order) => create(order, server),
        Command::List => list(server),
        Command::Revoke { id } => revoke(id, server),
    }
}

fn create(order: &Create, server: &Server) -> anyhow::Result<ExitCode> {
    // Before the key is made: one that cannot be written down would be lost.
    let out = order.out.as_deref().map(|path| new_file(path).map(|file| (path, file)));
    let out = out.transpose()?;
    let made = make(order, server).inspect_err(|_| {
        if let Some((path, _)) = &out {
            let _ = std::fs::remove_file(path);
        }
    })?;
    if let Some((path, mut file)) = out {
        writeln!(file, "{}", ui::text(&made["key"]))
            .with_context(|| format!("cannot write {}", path.display()))?;
        return show_written(&made, path, server);
    }
    if server.json {
        ui::print(&made.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    // The key alone is data: it can go right into a file.
    let (id, role, name) =
        (ui::text(&made["id"]), ui::text(&made["role"]), ui::text(&made["name"]));
    eprintln!("key {id} ({role}, {name}); keep it: it is not shown again");
    ui::print(&ui::text(&made["key"]))?;
    eprintln!("use it: export DEADSTOP_KEY=…, or --key-file FILE");
    Ok(ExitCode::SUCCESS)
}

/// Makes a key, with a server or without.
fn make(order: &Create, server: &Server) -> anyhow::Result<Value> {
    if let Some(place) = order.source.place(server)? {
        operator::must_not_be_agent()?;
        return create_in(&place, order, server);
    }
    let client = server.client()?;
    let body = json!({ "name": order.name, "role": order.role, "agent": order.bound()? });
    let made = ui::runtime()?.block_on(async {
        let who = client.get("/api/whoami").await?;
        if who["key"].is_null() {
            let agents = client.get("/api/status?kind=agent").await?;
            let none = Vec::new();
            let rows = agents["scopes"].as_array().unwrap_or(&none);
            order.confirm(&rows.iter().map(|row| ui::text(&row["name"])).collect::<Vec<_>>())?;
        }
        client.post("/api/keys", &body).await
    })?;
    if let Some(until) = made["grace_until_ms"].as_u64() {
        let until = when::local(&until.into());
        eprintln!(
            "from now on orders need a key; agents that were running may call without one until {until}"
        );
    }
    Ok(made)
}

impl Create {
    /// The agent that an agent's key is for.
    fn bound(&self) -> anyhow::Result<Option<&str>> {
        match (&self.agent, self.any_agent, self.role.as_str()) {
            (None, false, "agent") => Err(Hinted::error(
                "an agent's key is for one agent, and none is named",
                "add --agent NAME, a pattern such as --agent 'team-*', or --any-agent",
            )),
            (None, true, _) => Ok(Some("*")),
            (agent, _, _) => Ok(agent.as_deref()),
        }
    }

    /// Asks before a first key is made while agents are running: their calls fail without one.
    fn confirm(&self, running: &[String]) -> anyhow::Result<()> {
        if running.is_empty() {
            return Ok(());
        }
        let shown: Vec<&str> = running.iter().take(10).map(String::as_str).collect();
        let more = running.len().saturating_sub(shown.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        eprintln!(
            "This is the first key: every client will need one. Orders need it at once. {} agent(s) made calls \
             in the last 24 hours and will fail with 401 when the grace ends (key_grace_seconds, 15 \
             minutes by default): {}{more}.\nGive each one a key in the header x-deadstop-key: deadstop keys \
             create --role agent --name NAME --agent NAME",
            running.len(),
            shown.join(", "),
        );
        if self.yes {
            return Ok(());
        }
        if !std::io::stdin().is_terminal() {
            return Err(Hinted::error(
                "the first key was not made",
                "add --yes if this is what you want",
            ));
        }
        eprint!("Make it? [y/N] ");
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).context("no answer")?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Hinted::error(
                "the first key was not made",
                "answer y to make it, or add --yes",
            )),
        }
    }
}

/// A file that is new, and that only its owner can read.
fn new_file(path: &Path) -> anyhow::Result<File> {
    let opened = File::options().create_new(true).write(true).mode(0o600).open(path);
    opened.map_err(|error| {
        let hint = "--out needs a file that does not exist yet, in a folder that does";
        Hinted::error(format!("cannot make {}: {error}", path.display()), hint)
    })
}

/// Says where a key was written; the key itself is not shown.
fn show_written(made: &Value, path: &Path, server: &Server) -> anyhow::Result<ExitCode> {
    let path = path.display();
    if server.json {
        let mut shown = made.clone();
        shown["key"] = Value::Null;
        shown["file"] = json!(path.to_string());
        ui::print(&shown.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (id, role, name) =
        (ui::text(&made["id"]), ui::text(&made["role"]), ui::text(&made["name"]));
    eprintln!("key {id} ({role}, {name}) is in {path}, readable by you alone");
    eprintln!("use it: --key-file {path}");
    Ok(ExitCode::SUCCESS)
}

/// Makes a key without a server.
fn create_in(place: &DatabaseLocation, order: &Create, server: &Server) -> anyhow::Result<Value> {
    let wanted = KeyWanted {
        name: order.name.clone(),
        role: Role::named(&order.role).context("there is no such role")?,
        agent: order.bound()?.map(str::to_owned),
        project: server.project().map(str::to_owned),
        by: remote::operator().unwrap_or_else(|| "local user".to_owned()),
    };
    ui::runtime()?.block_on(async {
        let database = database::open(place, Make::IfMissing).await?;
        let stops = database.first_key_stops().await.map_err(|error| database::hinted(&error))?;
        order.confirm(&stops)?;
        let made = database.create_key(wanted).await.map_err(|error| database::hinted(&error));
        database.close().await;
        made
    })
}

fn list(server: &Server) -> anyhow::Result<ExitCode> {
    list::show_whole(server, "/api/keys", "keys yet", |keys| {
        let mut table =
            Table::new(["key", "name", "role", "agent", "made", "last used", "revoked"]);
        for key in keys {
            let made =
                format!("{}, by {}", when::brief(&key["created_ms"]), ui::text(&key["created_by"]));
            let revoked = match key["revoked_ms"].is_null() {
                true => String::new(),
                false => {
                    let by = ui::text(&key["revoked_by"]);
                    format!("{}, by {by}", when::brief(&key["revoked_ms"]))
                }
            };
            table.row([
                ui::text(&key["id"]),
                ui::text(&key["name"]),
                ui::text(&key["role"]),
                ui::text(&key["agent"]),
                made,
                when::brief(&key["used_ms"]),
                revoked,
            ]);
        }
        table
    })
}

fn revoke(id: &str, server: &Server) -> anyhow::Result<ExitCode> {
    let client = server.client()?;
    let gone = ui::runtime()?.block_on(async {
        let id = short::listed(&client, "key", "/api/keys", id).await?;
        client.delete(&format!("/api/keys/{}", encoded(&id))).await.map(|_| id)
    });
    let id = gone.with_context(|| format!("key {id}"))?;
    match server.json {
        true => ui::print(&json!({ "revoked": id }).to_string())?,
        false => ui::print(&format!("revoked: key {}", ui::printable(&id)))?,
    }
    Ok(ExitCode::SUCCESS)
}
