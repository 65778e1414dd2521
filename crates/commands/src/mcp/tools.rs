//! `deadstop mcp tools` and `deadstop mcp accept`: tools as they were first seen, and as they are.

use std::process::ExitCode;

use deadstop_gate::{Gate, Setup};
use serde_json::{Value, json};

use crate::remote::{Server, operator};
use crate::table::Table;
use crate::ui::{self, Hinted};
use crate::{client, when};

/// Arguments of `deadstop mcp tools`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only those of one MCP server
    name: Option<String>,
    /// Only those that have changed
    #[arg(long)]
    changed: bool,
    #[command(flatten)]
    server: Server,
}

/// Arguments of `deadstop mcp accept`.
#[derive(Debug, clap::Args)]
pub(crate) struct Accept {
    /// The MCP server
    name: String,
    /// The tool; `--all` takes all that have changed
    #[arg(required_unless_present = "all")]
    tool: Option<String>,
    /// All of its tools that have changed
    #[arg(long, conflicts_with = "tool")]
    all: bool,
    /// Why
    #[arg(long, default_value = "")]
    reason: String,
    /// In the local files that decide where no server runs
    #[arg(long, conflicts_with = "all")]
    local: bool,
    #[command(flatten)]
    server: Server,
}

pub(super) fn list(args: &Args) -> anyhow::Result<ExitCode> {
    ui::runtime()?.block_on(async {
        let found = tools(&args.server, args.name.as_deref(), args.changed).await?;
        if args.server.json {
            for tool in &found {
                ui::print(&tool.to_string())?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        if found.is_empty() {
            eprintln!("no tools");
            return Ok(ExitCode::SUCCESS);
        }
        let columns = ["server", "tool", "state", "first seen", "accepted by"];
        let mut table = Table::new(columns).names([0, 1]);
        for tool in &found {
            let state = match (tool["added"] == true, tool["changed"] == true) {
                (true, _) => "added later",
                (false, true) => "changed",
                (false, false) => "as it was",
            };
            table.row([
                ui::text(&tool["server"]),
                ui::text(&tool["tool"]),
                state.to_owned(),
                when::brief(&tool["first_ms"]),
                ui::text(&tool["accepted_by"]),
            ]);
        }
        ui::print(&table.to_string())?;
        for tool in &found {
            if let Some(told) = told(tool) {
                ui::print(&told)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// What a person must read before accepting a tool: the old text and the new one, and what is odd.
fn told(tool: &Value) -> Option<String> {
    let mut lines = vec![format!("\n{}/{}", ui::text(&tool["server"]), ui::text(&tool["tool"]))];
    let text = |key: &str| match ui::text(&tool[key]) {
        text if text.is_empty() => "(no text was kept)".to_owned(),
        text => text,
    };
    match (tool["added"] == true, tool["changed"] == true) {
        (true, _) => lines.push(format!("  added  {}", text("seen_text"))),
        (false, true) => {
            lines.push(format!("  was    {}", text("known_text")));
            lines.push(format!("  now    {}", text("seen_text")));
        }
        (false, false) => {}
    }
    let notes = tool["notes"].as_array().map_or(&[][..], Vec::as_slice);
    lines.extend(notes.iter().map(|note| format!("  odd    {}", ui::text(note))));
    (lines.len() > 1).then(|| lines.join("\n"))
}

pub(super) fn accept(args: &Accept) -> anyhow::Result<ExitCode> {
    if let Some(tool) = args.tool.as_deref().filter(|_| args.local) {
        let gate = Gate::open(Setup { alone: true, ..Setup::default() });
        if !gate.accept_here(&args.name, tool)? {
            let problem = format!("no tool {tool} of {} was seen here", args.name);
            return Err(Hinted::error(problem, "a server remembers its own: leave out --local"));
        }
        let done = json!({ "server": args.name, "tool": tool, "changed": false });
        let told = format!("accepted {}/{}", args.name, ui::printable(tool));
        ui::print(&if args.server.json { done.to_string() } else { told })?;
        return Ok(ExitCode::SUCCESS);
    }
    ui::runtime()?.block_on(async {
        let names = match &args.tool {
            Some(tool) => vec![tool.clone()],
            None => {
                let changed = tools(&args.server, Some(&args.name), true).await?;
                changed.iter().map(|tool| ui::text(&tool["tool"])).collect()
            }
        };
        if names.is_empty() {
            let hint = format!("see `deadstop mcp tools {}`", args.name);
            return Err(Hinted::error("no tool of that server has changed", hint));
        }
        let client = args.server.client()?;
        for tool in names {
            let body = json!({
                "server": args.name, "tool": tool, "reason": args.reason, "by": operator(),
            });
            let accepted = client.post("/api/mcp/tools/accept", &body).await?;
            match args.server.json {
                true => ui::print(&accepted.to_string())?,
                false => ui::print(&format!("accepted {}/{}", args.name, ui::printable(&tool)))?,
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn tools(
    server: &Server,
    name: Option<&str>,
    changed: bool,
) -> anyhow::Result<Vec<serde_json::Value>> {
    let query = name.map(|name| format!("?server={}", client::encoded(name))).unwrap_or_default();
    let answer = server.client()?.get(&format!("/api/mcp/tools{query}")).await?;
    let all = answer["items"].as_array().cloned().unwrap_or_default();
    Ok(all.into_iter().filter(|tool| !changed || tool["changed"] == true).collect())
}
