//! `deadstop install` and `uninstall`: a coding agent's configuration, with us in it and without.
//!
//! The difference is shown before anything is written. What was there before is kept, so that
//! uninstalling gives it back to the byte. If the file was changed meanwhile, only Deadstop's part
//! is taken out.

mod diff;
pub(crate) mod jsonc;
pub(crate) mod login;
mod piece;
pub(crate) mod plan;
pub(crate) mod record;

use std::fs;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use deadstop_core::{Digest, FailMode};
use deadstop_gate::Found;
use deadstop_protocol::hook::Host;
use serde_json::{Value, json};

use crate::hook;
use crate::remote::filled;
use crate::ui::{self, Hinted};
use piece::Piece;
use plan::{Level, Wanted, whole};
use record::{Changed, Record};

/// Which host, where, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// Send model calls through the server, too: writes the host's base URL
    #[arg(long)]
    gateway: bool,
    /// Start the host's MCP servers through `deadstop mcp`, too
    #[arg(long)]
    mcp: bool,
    /// The server that hooks ask [env: DEADSTOP_SERVER]; without one, local files decide
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// The file with the key that hooks show [env: DEADSTOP_KEY_FILE]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The policy file or preset for when there is no server [env: DEADSTOP_POLICY]
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// The agent's name [default: the host's]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Seconds that the host waits for a hook: longer than a person may take to approve
    #[arg(long, value_name = "SECONDS", default_value_t = hook::PATIENCE + 10)]
    patience: u64,
}

/// Which host's configuration.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Which {
    /// The host: claude-code, codex, gemini, cursor, opencode, copilot or qwen
    #[arg(value_parser = known)]
    host: Host,
    /// The configuration of the project in this folder
    #[arg(long, conflicts_with = "user")]
    project: bool,
    /// The user's configuration, for all projects (unless said otherwise)
    #[arg(long)]
    user: bool,
    /// Show what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Write without asking
    #[arg(long, short)]
    yes: bool,
    /// Answer with JSON
    #[arg(long)]
    json: bool,
}

impl Which {
    fn level(&self) -> Level {
        if self.project { Level::Project } else { Level::User }
    }
}

/// A host whose configuration is known.
fn known(name: &str) -> Result<Host, String> {
    match hook::host(name)? {
        Host::Generic => Err("set `deadstop hook generic` up in the host's own configuration; \
                              docs/hosts/generic.md says what it reads and answers"
            .to_owned()),
        host => Ok(host),
    }
}

/// A file that is about to be changed.
struct Change {
    path: PathBuf,
    now: Option<String>,
    next: Option<String>,
}

impl Change {
    fn carry_out(&self) -> anyhow::Result<()> {
        match &self.next {
            next if *next == self.now => Ok(()),
            Some(text) => record::write(&self.path, text),
            None => fs::remove_file(&self.path)
                .with_context(|| format!("cannot remove {}", self.path.display())),
        }
    }
}

/// A file without Deadstop: its text before the install, or if it was changed since, the text now
/// without Deadstop's part. `None` if nothing else is in it.
fn without(record: &Record, path: &Path, now: &str) -> anyhow::Result<Option<String>> {
    let changed = record.of(path);
    if let Some(changed) = changed.filter(|changed| changed.is_as_written(now)) {
        return changed.before();
    }
    let mut text = now.to_owned();
    for piece in record.pieces.iter().filter(|piece| piece.path == path).rev() {
        text = piece.take(&text)?;
    }
    let ours_alone = changed.is_some_and(|changed| changed.backup.is_none());
    Ok((!(ours_alone && matches!(text.trim(), "" | "{}"))).then_some(text))
}

/// An installation that is worked out, and not written yet.
pub(crate) struct Prepared {
    which: Which,
    place: PathBuf,
    old: Record,
    pieces: Vec<Piece>,
    changes: Vec<Change>,
    notes: Vec<String>,
}

impl Prepared {
    /// The installation for all projects of the user, with nothing but hooks.
    pub(crate) fn usual(host: Host) -> anyhow::Result<Prepared> {
        let which =
            Which { host, project: false, user: true, dry_run: false, yes: true, json: false };
        prepare(&Args {
            which,
            gateway: false,
            mcp: false,
            server: None,
            key_file: None,
            policy: None,
            agent: None,
            patience: hook::PATIENCE + 10,
        })
    }

    /// Whether there is anything to write.
    pub(crate) fn changes(&self) -> bool {
        self.changes.iter().any(|change| change.now != change.next)
    }

    /// Shows what would change.
    pub(crate) fn show(&self) -> anyhow::Result<()> {
        show(&self.changes, &self.notes)
    }

    /// Writes it, and what was there before beside it.
    pub(crate) fn write(&self) -> anyhow::Result<()> {
        let mut files = Vec::new();
        for change in &self.changes {
            let Some(text) = change.next.clone() else {
                change.carry_out()?;
                continue;
            };
            let backup = keep(&self.place, &self.old, change, &self.pieces)?;
            change.carry_out()?;
            let written = Digest::of(text.as_bytes()).0;
            files.push(Changed { path: change.path.clone(), backup, written });
        }
        Record { pieces: self.pieces.clone(), files }.write(&self.place)
    }
}

/// Puts us into a host's configuration.
pub(crate) fn install(args: &Args) -> anyhow::Result<ExitCode> {
    let prepared = prepare(args)?;
    let which = &prepared.which;
    if !go_ahead(which, &prepared.changes, &prepared.notes)? {
        return Ok(ExitCode::SUCCESS);
    }
    prepared.write()?;
    if !which.json {
        eprintln!(
            "done; `deadstop doctor` tests that blocking works, `deadstop uninstall {}{}` takes it back",
            which.host.name(),
            if which.project { " --project" } else { "" }
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn prepare(args: &Args) -> anyhow::Result<Prepared> {
    let which = args.which.clone();
    let wanted = wanted(args)?;
    let pieces = wanted.pieces()?;
    let place = record::place(which.host, which.level())?;
    let old = Record::read(&place)?.unwrap_or_default();
    let mut notes = wanted.notes();
    let mut changes = Vec::new();
    for path in paths(&pieces, &old.pieces) {
        let now = record::read(&path)?;
        if pieces.iter().all(|piece| piece.path != path) {
            // What an earlier installation has put there and this one does not want goes.
            let next = now.as_deref().map(|now| without(&old, &path, now)).transpose()?.flatten();
            changes.push(Change { path, now, next });
            continue;
        }
        let mut text = now.clone().unwrap_or_default();
        for piece in old.pieces.iter().filter(|piece| piece.path == path) {
            text = piece.take(&text)?;
        }
        for piece in pieces.iter().filter(|piece| piece.path == path) {
            let put = piece.put(&text)?;
            text = put.text;
            notes.extend(put.note);
        }
        let next = (now.is_some() || !text.is_empty()).then_some(text);
        changes.push(Change { path, now, next });
    }
    Ok(Prepared { which, place, old, pieces, changes, notes })
}

/// Whether we are in the user's configuration of a host.
pub(crate) fn is_installed(host: Host) -> bool {
    let record = record::place(host, Level::User).and_then(|place| Record::read(&place));
    record.is_ok_and(|record| record.is_some())
}

/// Whether a host has a folder on this machine.
pub(crate) fn is_here(host: Host) -> bool {
    plan::folder(host, Level::User).is_ok_and(|folder| folder.is_dir())
}

/// A file's difference, with its name above it.
pub(crate) fn shown(path: &Path, now: Option<&str>, next: &str) -> String {
    let what = if now.is_none() { " (new)" } else { "" };
    format!("{}{what}\n{}", path.display(), diff::diff(now.unwrap_or_default(), next))
}

/// Takes us out of a host's configuration.
pub(crate) fn uninstall(which: &Which) -> anyhow::Result<ExitCode> {
    let place = record::place(which.host, which.level())?;
    let record = match Record::read(&place)? {
        Some(record) => record,
        None => unrecorded(which)?,
    };
    let mut changes = Vec::new();
    for path in paths(&record.pieces, &[]) {
        let Some(now) = record::read(&path)? else { continue };
        let next = without(&record, &path, &now)?;
        changes.push(Change { path, now: Some(now), next });
    }
    if !go_ahead(which, &changes, &[])? {
        return Ok(ExitCode::SUCCESS);
    }
    for change in &changes {
        change.carry_out()?;
    }
    for backup in record.files.iter().filter_map(|file| file.backup.as_ref()) {
        let _ = fs::remove_file(backup);
    }
    let _ = fs::remove_file(&place);
    Ok(ExitCode::SUCCESS)
}

fn wanted(args: &Args) -> anyhow::Result<Wanted> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let mut command =
        vec![program.display().to_string(), "hook".to_owned(), args.which.host.name().to_owned()];
    // A mark that a later version finds again, whatever the program's file is called.
    if program.file_name().is_none_or(|name| name != "deadstop") {
        return Err(Hinted::error(
            format!("this program is called {}", program.display()),
            "Deadstop finds its hooks by this name: rename the program to deadstop",
        ));
    }
    let mut option = |name: &str, value: Option<String>| {
        command.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
    };
    let file = |path: &Path| whole(path).display().to_string();
    option("--server", args.server.clone());
    option("--key-file", args.key_file.as_deref().map(file));
    option("--agent", args.agent.clone());
    let policy = args.policy.as_deref();
    let preset = policy.filter(|name| deadstop_core::Preset::named(name).is_some());
    option("--policy", preset.map(str::to_owned).or_else(|| policy.map(|p| file(Path::new(p)))));
    if args.patience != hook::PATIENCE + 10 {
        option("--patience", Some(args.patience.saturating_sub(10).max(1).to_string()));
    }
    let found = Found::find(policy);
    if let Some(problem) = found.problem {
        return Err(Hinted::error(problem, "see `deadstop policy check FILE`"));
    }
    let gateway = match args.gateway {
        true => Some(base(args.server.clone())?),
        false => None,
    };
    Ok(Wanted {
        host: args.which.host,
        level: args.which.level(),
        command,
        patience: args.patience.max(2),
        closed: found.policies.session.fail_mode == FailMode::Closed,
        gateway,
        mcp: args.mcp,
    })
}

/// The server whose address is written as the host's base URL.
fn base(named: Option<String>) -> anyhow::Result<String> {
    let server = named
        .or_else(|| filled("DEADSTOP_SERVER"))
        .unwrap_or_else(|| deadstop_client::USUAL.to_owned());
    if server.starts_with("http://") || server.starts_with("https://") {
        return Ok(server);
    }
    Err(Hinted::error(
        format!("--gateway needs a server's address, and `{server}` is not one"),
        format!("name it with --server {}", deadstop_client::USUAL),
    ))
}

/// What is taken out where nothing tells what was put in.
fn unrecorded(which: &Which) -> anyhow::Result<Record> {
    let wanted = Wanted {
        host: which.host,
        level: which.level(),
        command: vec!["deadstop".to_owned()],
        patience: 0,
        closed: false,
        gateway: None,
        mcp: false,
    };
    let pieces = wanted.pieces()?;
    if pieces.iter().all(|piece| !piece.path.is_file()) {
        return Err(Hinted::error(
            format!("deadstop is not installed for {}", which.host.name()),
            "--project looks in this folder",
        ));
    }
    Ok(Record { pieces, files: Vec::new() })
}

/// The files of some pieces, each once.
fn paths(pieces: &[Piece], more: &[Piece]) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for piece in pieces.iter().chain(more) {
        if !paths.contains(&piece.path) {
            paths.push(piece.path.clone());
        }
    }
    paths
}

/// Keeps what is there, unless it is only what an earlier installation has written.
fn keep(
    place: &Path,
    old: &Record,
    change: &Change,
    pieces: &[Piece],
) -> anyhow::Result<Option<PathBuf>> {
    let now = change.now.as_deref();
    if let (Some(changed), Some(now)) = (old.of(&change.path), now)
        && changed.is_as_written(now)
    {
        return Ok(changed.backup.clone());
    }
    let Some(now) = now else { return Ok(None) };
    // Entries of ours without a record are not what was there before us.
    let mut before = now.to_owned();
    for piece in pieces.iter().chain(&old.pieces).filter(|piece| piece.path == change.path) {
        before = piece.take(&before)?;
    }
    let name = change.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let digest = Digest::of(whole(&change.path).as_os_str().as_encoded_bytes()).0;
    let backup = place.with_extension(format!("{digest:08x}.{name}.backup"));
    record::write(&backup, &before)?;
    Ok(Some(backup))
}

/// Shows what would change.
fn show(changes: &[Change], notes: &[String]) -> anyhow::Result<()> {
    for change in changes.iter().filter(|change| change.now != change.next) {
        let what = match (&change.now, &change.next) {
            (None, _) => " (new)",
            (_, None) => " (goes)",
            _ => "",
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let lines = diff::diff(&text(&change.now), &text(&change.next));
        ui::print(&format!("{}{what}\n{lines}", change.path.display()))?;
    }
    for note in notes {
        eprintln!("note: {note}");
    }
    Ok(())
}

/// Shows what would change, and asks. False if there is nothing to do, or the user declines.
fn go_ahead(which: &Which, changes: &[Change], notes: &[String]) -> anyhow::Result<bool> {
    let any = changes.iter().any(|change| change.now != change.next);
    if which.json {
        let files: Vec<Value> = changes
            .iter()
            .map(|change| {
                let what = match (&change.now, &change.next) {
                    (now, next) if now == next => "unchanged",
                    (None, _) => "created",
                    (_, None) => "removed",
                    _ => "changed",
                };
                json!({ "path": whole(&change.path), "change": what })
            })
            .collect();
        let (host, level) = (which.host.name(), which.level().name());
        let written = any && !which.dry_run && which.yes;
        ui::print(
            &json!({ "host": host, "level": level, "files": files, "written": written, "notes": notes })
                .to_string(),
        )?;
    } else {
        show(changes, notes)?;
        if !any {
            eprintln!("nothing to change");
        }
    }
    if !any || which.dry_run {
        // A file that is as it should be is recorded all the same.
        return Ok(!which.dry_run);
    }
    if which.yes {
        return Ok(true);
    }
    if which.json || !std::io::stdin().is_terminal() {
        return Err(Hinted::error(
            "nothing was written: this needs your consent",
            "--yes writes without asking",
        ));
    }
    eprint!("write this? [y/N] ");
    std::io::stderr().flush()?;
    let mut said = String::new();
    std::io::stdin().lock().read_line(&mut said)?;
    Ok(matches!(said.trim(), "y" | "Y" | "yes"))
}
