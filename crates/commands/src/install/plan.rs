//! What belongs into each host's configuration, and where that is.

use std::path::{Path, PathBuf};

use deadstop_protocol::hook::{self, Host, Moment};
use serde_json::{Value, json};

use super::login;
use super::piece::{Piece, What};
use crate::client::encoded;
use crate::remote::filled;
use crate::ui::Hinted;

/// Seconds that a host waits for a hook at the end of a session, where its user waits, too.
const PATIENCE_AT_END: u64 = 10;

/// Whose configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// The user's, for all their projects.
    User,
    /// That of the project in this folder.
    Project,
}

impl Level {
    /// The word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Level::User => "user",
            Level::Project => "project",
        }
    }
}

/// What is wanted.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) host: Host,
    pub(crate) level: Level,
    /// The hook's command, as words.
    pub(crate) command: Vec<String>,
    /// Seconds that the host waits for it.
    pub(crate) patience: u64,
    /// Whether what cannot be judged is refused.
    pub(crate) closed: bool,
    /// The server that model calls go through, if they should.
    pub(crate) gateway: Option<String>,
    /// Whether MCP servers are started through us.
    pub(crate) mcp: bool,
}

impl Wanted {
    /// Everything that is to be written.
    pub(crate) fn pieces(&self) -> anyhow::Result<Vec<Piece>> {
        let mut pieces =
            vec![Piece { path: hooks_file(self.host, self.level)?, what: self.hooks() }];
        if let Some(server) = &self.gateway {
            // The agent's name stands in the path, so that calls of hooks and of models are one agent's.
            let agent = encoded(self.agent());
            let server = format!("{}/agent/{agent}", server.trim_end_matches('/'));
            pieces.extend(self.base_urls(&server)?);
        }
        if self.mcp {
            let program = self.command.first().cloned().unwrap_or_default();
            for (path, at) in mcp_files(self.host, self.level)? {
                if path.is_file() {
                    let at = at.iter().map(|key| (*key).to_owned()).collect();
                    let program = program.clone();
                    pieces.push(Piece { path, what: What::McpServers { at, program } });
                }
            }
        }
        Ok(pieces)
    }

    /// The agent that the hook reports.
    fn agent(&self) -> &str {
        let mut words = self.command.iter();
        let named = words.by_ref().find(|word| *word == "--agent").and(words.next());
        named.map_or(self.host.name(), String::as_str)
    }

    /// What cannot be written for this host, for people.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.host == Host::Codex {
            notes.push(
                "codex runs a new hook only once you trust it: start codex, type /hooks, and trust these"
                    .to_owned(),
            );
        }
        if self.host.tells_sub_agents() {
            notes.push(
                "sub-agents are covered: [swarm] in the policy limits how many there may be"
                    .to_owned(),
            );
        }
        if self.gateway.is_some() && matches!(self.host, Host::Cursor | Host::Copilot) {
            notes.push(format!(
                "tool calls are covered, model calls are not: {} has no setting for a base URL",
                self.host.name()
            ));
        }
        notes.extend(login::unseen(self.host));
        if self.gateway.is_none() {
            notes.push(
                "tool calls are covered, model calls are not; --gateway sends those through a server"
                    .to_owned(),
            );
        }
        notes
    }

    fn hooks(&self) -> What {
        if self.host == Host::OpenCode {
            return What::Whole(hook::plugin(&self.command, self.closed));
        }
        let entry = |event: &str, moment: Moment| {
            let command = format!("{} {event}", shell(&self.command));
            let patience = match moment {
                Moment::End => self.patience.min(PATIENCE_AT_END),
                _ => self.patience,
            };
            let tools = matches!(moment, Moment::Before | Moment::After);
            let nested = |hook: Value| {
                let mut entry = json!({ "hooks": [hook] });
                if tools {
                    entry["matcher"] = "*".into();
                }
                entry
            };
            match self.host {
                Host::ClaudeCode | Host::Codex => {
                    nested(json!({ "type": "command", "command": command, "timeout": patience }))
                }
                Host::Gemini | Host::Qwen => nested(json!({
                    "type": "command", "name": "deadstop", "command": command,
                    "timeout": patience * 1000,
                })),
                Host::Cursor => {
                    json!({ "command": command, "timeout": patience, "failClosed": self.closed })
                }
                Host::Copilot | Host::OpenCode | Host::Generic => {
                    json!({ "type": "command", "bash": command, "timeoutSec": patience })
                }
            }
        };
        let events = self.host.events().iter();
        let entries: Vec<_> =
            events.map(|(event, moment)| ((*event).to_owned(), entry(event, *moment))).collect();
        if self.host == Host::Copilot {
            let mut hooks = serde_json::Map::new();
            for (event, entry) in entries {
                hooks.insert(event, json!([entry]));
            }
            let whole = json!({ "version": 1, "hooks": hooks });
            let text = serde_json::to_string_pretty(&whole).unwrap_or_default();
            return What::Whole(text + "\n");
        }
        let top = match self.host {
            Host::Cursor => vec![("version".to_owned(), json!(1))],
            _ => Vec::new(),
        };
        What::Hooks { entries, mark: mark(self.host), top }
    }

    fn base_urls(&self, server: &str) -> anyhow::Result<Vec<Piece>> {
        let (host, level) = (self.host, self.level);
        let value = |path: PathBuf, at: &[&str], value: String| {
            let at = at.iter().map(|key| (*key).to_owned()).collect();
            Piece { path, what: What::Value { at, value } }
        };
        Ok(match host {
            Host::ClaudeCode => vec![value(
                hooks_file(host, level)?,
                &["env", "ANTHROPIC_BASE_URL"],
                format!("{server}/anthropic"),
            )],
            // Its token is ChatGPT's, and would go to another address.
            Host::Codex if login::chatgpt() => Vec::new(),
            Host::Codex => {
                let path = folder(host, level)?.join("config.toml");
                vec![Piece { path, what: What::Provider { url: format!("{server}/openai/v1") } }]
            }
            Host::Gemini => {
                let name = "GOOGLE_GEMINI_BASE_URL".to_owned();
                let value = format!("{server}/gemini");
                let path = folder(host, level)?.join(".env");
                vec![Piece { path, what: What::Variable { name, value } }]
            }
            Host::OpenCode => {
                let path = match level {
                    Level::User => folder(host, level)?.join("opencode.json"),
                    Level::Project => PathBuf::from("opencode.json"),
                };
                let at = |provider| ["provider", provider, "options", "baseURL"];
                vec![
                    value(path.clone(), &at("anthropic"), format!("{server}/anthropic/v1")),
                    value(path, &at("openai"), format!("{server}/openai/v1")),
                ]
            }
            Host::Qwen => {
                let name = "OPENAI_BASE_URL".to_owned();
                let path = folder(host, level)?.join(".env");
                vec![Piece {
                    path,
                    what: What::Variable { name, value: format!("{server}/openai/v1") },
                }]
            }
            Host::Cursor | Host::Copilot | Host::Generic => Vec::new(),
        })
    }
}

/// What marks a command as ours, whatever the program's place.
pub(crate) fn mark(host: Host) -> String {
    format!("deadstop hook {} ", host.name())
}

/// The file that holds a host's hooks.
pub(crate) fn hooks_file(host: Host, level: Level) -> anyhow::Result<PathBuf> {
    let folder = folder(host, level)?;
    Ok(folder.join(match (host, level) {
        // Not the one that is shared: the path of a program is this machine's.
        (Host::ClaudeCode, Level::Project) => "settings.local.json",
        (Host::ClaudeCode, Level::User) | (Host::Gemini | Host::Qwen | Host::Generic, _) => {
            "settings.json"
        }
        (Host::Codex | Host::Cursor, _) => "hooks.json",
        (Host::OpenCode, _) => "plugins/deadstop.js",
        (Host::Copilot, _) => "hooks/deadstop.json",
    }))
}

/// The folder of a host's configuration.
pub(crate) fn folder(host: Host, level: Level) -> anyhow::Result<PathBuf> {
    if level == Level::Project {
        return Ok(PathBuf::from(match host {
            Host::ClaudeCode => ".claude",
            Host::Codex => ".codex",
            Host::Gemini => ".gemini",
            Host::Cursor => ".cursor",
            Host::OpenCode => ".opencode",
            Host::Copilot => ".github",
            Host::Qwen => ".qwen",
            Host::Generic => ".",
        }));
    }
    let home = || {
        let home = filled("HOME").map(PathBuf::from);
        home.ok_or_else(|| Hinted::error("HOME is not set", "set it, or use --project"))
    };
    let set = |variable: &str| filled(variable).map(PathBuf::from);
    Ok(match host {
        Host::ClaudeCode => match set("CLAUDE_CONFIG_DIR") {
            Some(folder) => folder,
            None => home()?.join(".claude"),
        },
        Host::Codex => match set("CODEX_HOME") {
            Some(folder) => folder,
            None => home()?.join(".codex"),
        },
        Host::Gemini => match set("GEMINI_CLI_HOME") {
            Some(folder) => folder.join(".gemini"),
            None => home()?.join(".gemini"),
        },
        Host::Cursor => home()?.join(".cursor"),
        Host::OpenCode => match (set("OPENCODE_CONFIG_DIR"), set("XDG_CONFIG_HOME")) {
            (Some(folder), _) => folder,
            (None, Some(folder)) => folder.join("opencode"),
            (None, None) => home()?.join(".config/opencode"),
        },
        Host::Qwen | Host::Generic => match set("QWEN_HOME") {
            Some(folder) => folder,
            None => home()?.join(".qwen"),
        },
        Host::Copilot => match set("COPILOT_HOME") {
            Some(folder) => folder,
            None => home()?.join(".copilot"),
        },
    })
}

/// The files in which a host names its MCP servers, and where in them.
pub(crate) fn mcp_files(
    host: Host,
    level: Level,
) -> anyhow::Result<Vec<(PathBuf, &'static [&'static str])>> {
    let at: &[&str] = &["mcpServers"];
    Ok(match (host, level) {
        (Host::ClaudeCode, Level::Project) => vec![(PathBuf::from(".mcp.json"), at)],
        (Host::ClaudeCode, Level::User) => {
            let inside = filled("CLAUDE_CONFIG_DIR").map(PathBuf::from);
            let folder = inside.or_else(|| filled("HOME").map(PathBuf::from)).unwrap_or_default();
            vec![(folder.join(".claude.json"), at)]
        }
        (Host::Codex, _) => vec![(folder(host, level)?.join("config.toml"), &["mcp_servers"])],
        (Host::Gemini | Host::Qwen, _) => {
            vec![(folder(host, level)?.join("settings.json"), at)]
        }
        (Host::Cursor, _) => vec![(folder(host, level)?.join("mcp.json"), at)],
        (Host::Copilot, Level::User) => vec![(folder(host, level)?.join("mcp-config.json"), at)],
        (Host::Copilot, Level::Project) | (Host::OpenCode | Host::Generic, _) => Vec::new(),
    })
}

/// Words as a shell reads them.
pub(crate) fn shell(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    let quoted = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// The words of a line that [`shell`] has written.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '\\' if !quoted => word.get_or_insert_default().extend(letters.next()),
            ' ' if !quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

/// A path that holds wherever it is used from.
pub(crate) fn whole(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        for line in [&["/opt/dead stop/deadstop", "hook", "it's"][..], &["a", "", "$HOME;ls", "\\"]]
        {
            let given: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(words(&shell(&given)), given);
        }
    }
}
