//! `deadstop audit`: lists who did what, when and why; verifies that no entry was changed; exports.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use deadstop_server::{Database, DatabaseLocation};
use serde_json::{Value, json};

use crate::client::Client;
use crate::database::{self, Make, Source};
use crate::list::{self, Paging, Query, Span};
use crate::remote::Server;
use crate::table::Table;
use crate::ui::Hinted;
use crate::{ui, when};

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
    /// List what was done, the newest first.
    List(List),
    /// Check the chain of hashes from its first entry to its last; 1 if it is broken.
    Verify(Verify),
    /// Write all of it, oldest first, a line of JSON an entry.
    Export(Export),
}

#[derive(Debug, Default, PartialEq, clap::Args)]
struct List {
    /// Only entries by this person, key or guard
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
    /// Only this action, such as agent.kill or policy.set
    #[arg(long)]
    action: Option<String>,
    /// Only entries about this agent, session or setting
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    #[command(flatten)]
    span: Span,
    #[command(flatten)]
    paging: Paging,
    /// Orders that were carried out in local files
    #[arg(long, conflicts_with = "server")]
    local: bool,
}

#[derive(Debug, clap::Args)]
struct Verify {
    /// A head that was noted elsewhere (in an alert, a log, an earlier verify): the chain must hold it
    #[arg(long, value_name = "SEQ:HASH")]
    since: Option<String>,
    #[command(flatten)]
    source: Source,
}

#[derive(Debug, clap::Args)]
struct Export {
    /// The file to write, which must not be there yet [default: stdout]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    source: Source,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.command.is_some() {
        list::unfiltered(&args.list)?;
    }
    let server = &args.server;
    match &args.command {
        None => list(&args.list, server),
        Some(Command::List(args)) => list(args, server),
        Some(Command::Verify(args)) => verify(args, server),
        Some(Command::Export(args)) => export(args, server),
    }
}

fn list(list: &List, server: &Server) -> anyhow::Result<ExitCode> {
    if list.local || server.is_none() {
        return list_here(list, server);
    }
    let query = Query::new("/api/audit")
        .some("who", list.who.as_ref())
        .some("action", list.action.as_ref())
        .some("subject", list.subject.as_ref());
    list::show(server, list.span.ask(query), &list.paging, "entries", |entries| {
        let mut table = Table::new(["entry", "at", "who", "action", "subject", "why"]).right([0]);
        for entry in entries {
            table.row([
                ui::text(&entry["seq"]),
                when::brief(&entry["at_ms"]),
                ui::text(&entry["who"]),
                ui::text(&entry["action"]),
                ui::text(&entry["subject"]),
                ui::text(&entry["reason"]),
            ]);
        }
        table
    })
}

/// Orders about local files.
fn list_here(list: &List, server: &Server) -> anyhow::Result<ExitCode> {
    let is = |wanted: &Option<String>, found: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted == found)
    };
    let mut entries = crate::control::gate_here(server).orders_here()?;
    entries.retain(|entry| {
        is(&list.who, &entry.who)
            && is(&list.action, &entry.action)
            && is(&list.subject, &entry.subject)
    });
    if server.json {
        for entry in &entries {
            ui::print(&json!(entry).to_string())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if entries.is_empty() {
        eprintln!("no entries");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["at", "who", "action", "subject", "why"]);
    for entry in &entries {
        let at = when::brief(&json!(entry.at_ms));
        table.row(
            [
                at,
                entry.who.clone(),
                entry.action.clone(),
                entry.subject.clone(),
                entry.reason.clone(),
            ]
            .map(|cell| ui::printable(&cell)),
        );
    }
    ui::print(&table.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn verify(args: &Verify, server: &Server) -> anyhow::Result<ExitCode> {
    let place = args.source.place(server)?;
    let since = args.since.as_deref();
    let chains = ui::runtime()?.block_on(async {
        match place {
            None => {
                let chain = verify_at(&server.client()?, server.project(), since).await?;
                Ok(vec![chain])
            }
            Some(place) => verify_in(&place, server.project(), since).await,
        }
    })?;
    let mut code = ExitCode::SUCCESS;
    for chain in &chains {
        if chain["whole"] != true {
            code = ExitCode::FAILURE;
        }
        ui::print(&if server.json { chain.to_string() } else { told(chain) })?;
    }
    if chains.is_empty() {
        eprintln!("no entries");
    }
    Ok(code)
}

async fn verify_at(
    client: &Client,
    project: Option<&str>,
    since: Option<&str>,
) -> anyhow::Result<Value> {
    let query = Query::new("/api/audit/verify").some("since", since);
    let mut chain = client.get(query.path()).await?;
    if let Some(project) = project {
        chain["project"] = json!(project);
    }
    // What the broken entry says now may help to find out who broke it.
    if let Some(seq) = chain["broken_at"].as_i64() {
        let query = Query::new("/api/audit").some("limit", Some(1)).some("cursor", Some(seq + 1));
        let found = client.get(query.path()).await?;
        let entry = &found["items"][0];
        if entry["seq"] == seq {
            chain["entry"] = entry.clone();
        }
    }
    Ok(chain)
}

/// The chains of a database: one project's, or all.
async fn verify_in(
    place: &DatabaseLocation,
    project: Option<&str>,
    since: Option<&str>,
) -> anyhow::Result<Vec<Value>> {
    let database = database::open(place, Make::Never).await?;
    let found = chains(&database, project, since).await.map_err(|error| database::hinted(&error));
    database.close().await;
    found
}

async fn chains(
    database: &Database,
    project: Option<&str>,
    since: Option<&str>,
) -> Result<Vec<Value>, deadstop_server::DatabaseError> {
    let projects = database.audited_projects().await?;
    let mut chains = Vec::new();
    for name in projects.iter().filter(|name| project.is_none_or(|project| project == *name)) {
        let mut chain = database.verify_audit(name, since).await?;
        chain["project"] = json!(name);
        if let Some(seq) = chain["broken_at"].as_i64()
            && let Some((lines, _)) = database.audit_lines(name, seq - 1).await?
        {
            let entry = lines.lines().next().and_then(|line| serde_json::from_str(line).ok());
            let entry: Option<Value> = entry.filter(|entry: &Value| entry["seq"] == seq);
            chain["entry"] = entry.unwrap_or_default();
        }
        chains.push(chain);
    }
    Ok(chains)
}

fn told(chain: &Value) -> String {
    let project = match ui::text(&chain["project"]) {
        name if name.is_empty() => String::new(),
        name => format!("project {name}: "),
    };
    let Some(seq) = chain["broken_at"].as_i64() else {
        let entries = counted(chain["entries"].as_u64().unwrap_or_default());
        let head = ui::text(&chain["head"]);
        let seq = ui::text(&chain["entries"]);
        return format!(
            "{project}whole: {entries}, the last hash is {head} (--since {seq}:{head})"
        );
    };
    let mut text = format!("{project}broken at entry {seq}: {}", ui::text(&chain["why"]));
    let entry = &chain["entry"];
    if !entry.is_null() {
        text += &format!(
            "\n  it says: {}, {} {} {}",
            when::local(&entry["at_ms"]),
            ui::text(&entry["who"]),
            ui::text(&entry["action"]),
            ui::text(&entry["subject"]),
        );
    }
    text
}

fn counted(entries: u64) -> String {
    if entries == 1 { "1 entry".to_owned() } else { format!("{entries} entries") }
}

fn export(args: &Export, server: &Server) -> anyhow::Result<ExitCode> {
    let place = args.source.place(server)?;
    let lines = ui::runtime()?.block_on(async {
        match place {
            None => {
                // Asked before the file is made: a refusal leaves no empty file behind.
                let mut pieces = server.client()?.pieces("/api/audit/export").await?;
                let mut out = open(args)?;
                let mut lines = 0;
                while let Some(piece) = pieces.next().await? {
                    lines += write(&mut out, &piece)?;
                }
                out.flush()?;
                anyhow::Ok(lines)
            }
            Some(place) => {
                let database = database::open(&place, Make::Never).await?;
                let written = export_from(&database, args, server.project()).await;
                database.close().await;
                written
            }
        }
    })?;
    let to = args.out.as_ref().map(|file| format!(" to {}", file.display()));
    eprintln!("{}{}", counted(lines), to.unwrap_or_default());
    Ok(ExitCode::SUCCESS)
}

async fn export_from(
    database: &Database,
    args: &Export,
    project: Option<&str>,
) -> anyhow::Result<u64> {
    let projects = database.audited_projects().await.map_err(|error| database::hinted(&error))?;
    let mut out = open(args)?;
    let mut lines = 0;
    for name in projects.iter().filter(|name| project.is_none_or(|project| project == *name)) {
        let mut after = 0;
        while let Some((text, last)) =
            database.audit_lines(name, after).await.map_err(|error| database::hinted(&error))?
        {
            lines += write(&mut out, text.as_bytes())?;
            after = last;
        }
    }
    out.flush()?;
    Ok(lines)
}

fn open(args: &Export) -> anyhow::Result<Box<dyn Write>> {
    let Some(file) = &args.out else { return Ok(Box::new(io::stdout().lock())) };
    match File::create_new(file) {
        Ok(open) => Ok(Box::new(io::BufWriter::new(open))),
        Err(error) => {
            let problem = format!("cannot write {}: {error}", file.display());
            Err(Hinted::error(problem, "name a file that does not exist yet"))
        }
    }
}

/// Writes a piece; gives how many lines end in it.
fn write(out: &mut dyn Write, piece: &[u8]) -> anyhow::Result<u64> {
    out.write_all(piece)?;
    Ok(piece.iter().filter(|byte| **byte == b'\n').count() as u64)
}
