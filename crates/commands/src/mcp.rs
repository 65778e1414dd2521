//! `deadstop mcp`: between an MCP client and a server on stdio; and what goes with it.

mod flights;
mod relay;
mod stdio;
mod tools;
mod wrap;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::run::name;
use crate::ui::Hinted;
use crate::when;

/// Arguments of `deadstop mcp`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    stdio: Stdio,
}

/// What stands between a client and a server.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Stdio {
    /// What the MCP server is called in policies and records [default: from its command]
    #[arg(long, value_name = "NAME", value_parser = name)]
    server: Option<String>,
    /// The agent that its calls belong to
    #[arg(long, env = "DEADSTOP_AGENT", value_name = "NAME", value_parser = name)]
    agent: Option<String>,
    /// The session that its calls belong to [default: a new one]
    #[arg(long, env = "DEADSTOP_SESSION", value_name = "ID", value_parser = name)]
    session: Option<String>,
    /// The Deadstop server to ask; without one that answers, local files decide
    #[arg(long, env = "DEADSTOP_SERVER", value_name = "URL")]
    via: Option<String>,
    /// The policy where no server has one: a file or a preset [env: DEADSTOP_POLICY]
    #[arg(long, value_name = "FILE|PRESET")]
    policy: Option<String>,
    /// How long a tool call may take
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = when::duration)]
    timeout: Duration,
    /// Tell on stderr what was decided, as lines of JSON
    #[arg(long)]
    json: bool,
    /// The MCP server's command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Put Deadstop between a client and its MCP servers: rewrites `mcpServers` in its configuration.
    Wrap(wrap::Args),
    /// List the tools that servers have, and which have changed since they were first seen.
    Tools(tools::Args),
    /// Accept a tool as its server describes it now.
    Accept(tools::Accept),
}

const HELP: &str = "\
Examples:
  deadstop mcp -- npx -y @modelcontextprotocol/server-filesystem /srv
  deadstop mcp --server files --agent coder -- python server.py
  deadstop mcp wrap ~/.cursor/mcp.json          # all servers of a client; --undo takes it back
  deadstop mcp accept files write --reason \"read the new description\"

Lines pass as they are, both ways. A tool call is judged before the server sees it; one that is
refused is answered with a JSON-RPC error. The exit code is the server's own.";

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Some(Command::Wrap(args)) => wrap::run(args),
        Some(Command::Tools(args)) => tools::list(args),
        Some(Command::Accept(args)) => tools::accept(args),
        None if args.stdio.command.is_empty() => Err(Hinted::error(
            "there is no command",
            "write the MCP server's after two dashes: deadstop mcp -- npx -y some-server",
        )),
        None => stdio::run(&args.stdio),
    }
}

/// Programs that run others: what a server is called stands behind them.
const RUNNERS: [&str; 14] = [
    "npx", "bunx", "pnpx", "pnpm", "yarn", "bun", "node", "deno", "uvx", "uv", "pipx", "python",
    "python3", "docker",
];

/// The name of a server without `--name`, guessed from its command.
fn called(command: &[OsString]) -> String {
    let words: Vec<String> =
        command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let stem = |word: &String| {
        let last = Path::new(word)
            .file_name()
            .map_or_else(|| word.clone(), |name| name.to_string_lossy().into_owned());
        let last = last.split_once('@').map_or(last.clone(), |(name, _)| name.to_owned());
        let scripts = [".js", ".mjs", ".cjs", ".ts", ".py", ".exe"];
        scripts.iter().find_map(|end| last.strip_suffix(end)).unwrap_or(&last).to_owned()
    };
    let verbs = ["run", "exec", "dlx", "tool", "x"];
    let named = words
        .iter()
        .find(|word| {
            let bare = stem(word);
            !word.starts_with('-')
                && !RUNNERS.contains(&bare.as_str())
                && !verbs.contains(&word.as_str())
        })
        .or(words.first());
    named.map(stem).and_then(|found| name(&found).ok()).unwrap_or_else(|| "server".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_called_by_what_they_are() {
        for (command, expected) in [
            ("npx -y @modelcontextprotocol/server-filesystem /srv", "server-filesystem"),
            ("npx -y some-server@1.2.3", "some-server"),
            ("uvx mcp-server-sqlite --db-path x", "mcp-server-sqlite"),
            ("uv run server.py", "server"),
            ("node /opt/files/index.js", "index"),
            ("/usr/bin/python3 -m mcp_server", "mcp_server"),
            ("/opt/catalogue --stdio", "catalogue"),
            ("npx", "npx"),
        ] {
            let words: Vec<OsString> = command.split(' ').map(OsString::from).collect();
            assert_eq!(called(&words), expected, "{command}");
        }
    }
}
