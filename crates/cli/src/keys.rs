//! `deadstop keys`: who may do what. A key is shown once, when it is made.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use deadstop_server::{KeyWanted, Place};
use deadstop_store::Role;
use serde_json::{Value, json};

use crate::client::encoded;
use crate::database::{self, Make, Source};
use crate::remote::{self, Server};
use crate::table::Table;
use crate::ui::Hinted;
use crate::{list, operator, ui, when};

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
    /// Take a key out of force, at once.
    Revoke {
        /// The key's id, as `deadstop keys list` shows it
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
    /// The only agent that it may be; for the role agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
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
    let body = json!({ "name": order.name, "role": order.role, "agent": order.agent });
    ui::runtime()?.block_on(client.post("/api/keys", &body))
}

/// A file that is new, and that only its owner can read.
fn new_file(path: &Path) -> anyhow::Result<File> {
    let opened = File::options().create_new(true).write(true).mode(0o600).open(path);
    opened.map_err(|error| {
        let hint = "--out wants a file that is not there yet, in a folder that is";
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
fn create_in(place: &Place, order: &Create, server: &Server) -> anyhow::Result<Value> {
    let wanted = KeyWanted {
        name: order.name.clone(),
        role: Role::named(&order.role).context("there is no such role")?,
        agent: order.agent.clone(),
        project: server.project().map(str::to_owned),
        by: remote::operator().unwrap_or_else(|| "local user".to_owned()),
    };
    ui::runtime()?.block_on(async {
        let database = database::open(place, Make::IfMissing).await?;
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
                format!("{}, by {}", when::ago(&key["created_ms"]), ui::text(&key["created_by"]));
            let revoked = match key["revoked_ms"].is_null() {
                true => String::new(),
                false => {
                    let by = ui::text(&key["revoked_by"]);
                    format!("{}, by {by}", when::ago(&key["revoked_ms"]))
                }
            };
            table.row([
                ui::text(&key["id"]),
                ui::text(&key["name"]),
                ui::text(&key["role"]),
                ui::text(&key["agent"]),
                made,
                when::ago(&key["used_ms"]),
                revoked,
            ]);
        }
        table
    })
}

fn revoke(id: &str, server: &Server) -> anyhow::Result<ExitCode> {
    let client = server.client()?;
    let gone = ui::runtime()?.block_on(client.delete(&format!("/api/keys/{}", encoded(id))));
    gone.with_context(|| format!("key {id}"))?;
    match server.json {
        true => ui::print(&json!({ "revoked": id }).to_string())?,
        false => ui::print(&format!("revoked: key {}", ui::printable(id)))?,
    }
    Ok(ExitCode::SUCCESS)
}
