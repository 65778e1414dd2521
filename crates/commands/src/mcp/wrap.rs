//! `deadstop mcp wrap`: puts us between a client and its servers, and takes us out again.
//!
//! Only what has to change is changed: a server's `command` and `args`, in place, in the text as a
//! person has laid it out. What it was before is kept beside it.

mod diff;
mod edit;
mod toml;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use serde_json::{Value, json};

use crate::run::name;
use crate::ui::{self, Hinted};
use edit::{Change, Way};

/// Arguments of `deadstop mcp wrap`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The client's configuration, such as ~/.cursor/mcp.json or .mcp.json
    file: PathBuf,
    /// Take us out again
    #[arg(long)]
    undo: bool,
    /// Show what would change, and change nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Only these servers; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// The agent that their calls belong to
    #[arg(long, value_name = "NAME", value_parser = name)]
    agent: Option<String>,
    /// Send servers that have a URL through this gateway, such as http://127.0.0.1:4141
    #[arg(long, value_name = "URL")]
    gateway: Option<String>,
    /// What was done, as JSON
    #[arg(long)]
    json: bool,
}

/// A note is put beside the file, with this at the end of its name.
const BACKUP: &str = ".before-deadstop";

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let file = fs::canonicalize(&args.file).map_err(|error| {
        let problem = format!("cannot read {}: {error}", args.file.display());
        Hinted::error(problem, "name the file in which the client keeps its `mcpServers`")
    })?;
    let before = fs::read_to_string(&file)
        .map_err(|error| anyhow::anyhow!("cannot read {}: {error}", file.display()))?;
    let backup = PathBuf::from(format!("{}{BACKUP}", file.display()));
    let way = Way {
        program: program()?,
        agent: args.agent.clone(),
        gateway: args.gateway.as_ref().map(|url| url.trim_end_matches('/').to_owned()),
        only: args.only.clone(),
    };
    let old = fs::read_to_string(&backup).ok();
    let is_toml = file.extension().is_some_and(|ending| ending == "toml");
    let (after, changes) = match args.undo {
        undo if is_toml => toml::rewrite(&before, &way, undo),
        false => edit::wrap(&before, &way),
        true => edit::unwrap(&before, &way, old.as_deref()),
    }
    .map_err(|problem| told(&file, &problem))?;
    if changes.is_empty() {
        return Err(Hinted::error(
            format!("{} has no MCP servers", args.file.display()),
            "they stand under `mcpServers`, `servers` (VS Code), `mcp` (OpenCode), `context_servers` (Zed) or \
             `mcp_servers` (Codex)",
        ));
    }
    let changed = after != before;
    if !args.json {
        ui::print(&diff::lines(&before, &after))?;
        for change in &changes {
            eprintln!("{}", ui::printable(&change.text()));
        }
    }
    if changed && !args.dry_run {
        if !args.undo && old.is_none() {
            write(&backup, &before, &file)?;
        }
        write(&file, &after, &file)?;
        if args.undo && old.as_deref() == Some(after.as_str()) {
            // It is as it was: there is nothing left to go back to.
            let _ = fs::remove_file(&backup);
        }
    }
    if args.json {
        let changes: Vec<Value> = changes.iter().map(Change::json).collect();
        let report = json!({
            "file": file.display().to_string(),
            "backup": backup.display().to_string(),
            "changed": changed && !args.dry_run,
            "servers": changes,
        });
        ui::print(&report.to_string())?;
    } else if args.dry_run {
        eprintln!("nothing was changed: --dry-run");
    } else if changed && !args.undo {
        eprintln!("as it was: {}; restart the client", backup.display());
    } else if !changed {
        eprintln!("nothing to change");
    }
    Ok(ExitCode::SUCCESS)
}

fn told(file: &Path, problem: &edit::Problem) -> anyhow::Error {
    let place = format!("{}: {problem}", file.display());
    Hinted::error(place, "mend it, or restore it")
}

/// This program, as a client can start it.
fn program() -> anyhow::Result<String> {
    let program = std::env::current_exe().context("cannot find this program")?;
    Ok(program.display().to_string())
}

/// Replaces a file whole, with the rights that `like` has.
fn write(path: &Path, text: &str, like: &Path) -> anyhow::Result<()> {
    let next = PathBuf::from(format!("{}.{}.new", path.display(), std::process::id()));
    let written = (|| {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&next)?;
        file.set_permissions(fs::metadata(like)?.permissions())?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&next, path)
    })();
    written.map_err(|error| {
        let _ = fs::remove_file(&next);
        anyhow::anyhow!("cannot write {}: {error}", path.display())
    })
}
