//! Hooks of coding agents: what a host says on stdin, as one kind of event for all hosts, and what we
//! answer, in the host's own words.
//!
//! Each host has a file of its own, with the traps it sets. The rest of the program does not know
//! which host it talks to.

mod claude_code;
mod codex;
mod copilot;
mod cursor;
mod field;
mod gemini;
mod generic;
mod opencode;
mod qwen;
#[cfg(test)]
mod tests;

use deadstop_core::Status;
use serde_json::Value;
use thiserror::Error;

pub use opencode::plugin;

use crate::plain;

/// A coding agent that has hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Host {
    /// Claude Code.
    ClaudeCode,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// Cursor.
    Cursor,
    /// OpenCode.
    OpenCode,
    /// Copilot CLI.
    Copilot,
    /// Qwen Code.
    Qwen,
    /// Any other host, which speaks our own JSON. It has no configuration that we know.
    Generic,
}

impl Host {
    /// All whose configuration is known.
    pub const ALL: [Host; 7] = [
        Host::ClaudeCode,
        Host::Codex,
        Host::Gemini,
        Host::Cursor,
        Host::OpenCode,
        Host::Copilot,
        Host::Qwen,
    ];

    /// The name on the command line, and the agent's name unless it is given another one.
    pub fn name(self) -> &'static str {
        match self {
            Host::ClaudeCode => "claude-code",
            Host::Codex => "codex",
            Host::Gemini => "gemini",
            Host::Cursor => "cursor",
            Host::OpenCode => "opencode",
            Host::Copilot => "copilot",
            Host::Qwen => "qwen",
            Host::Generic => "generic",
        }
    }

    /// The host of this name.
    pub fn named(name: &str) -> Option<Host> {
        Host::ALL.into_iter().chain([Host::Generic]).find(|host| host.name() == name)
    }

    /// The events that we want to hear of, with the moment that each is.
    pub fn events(self) -> &'static [(&'static str, Moment)] {
        match self {
            Host::ClaudeCode => claude_code::EVENTS,
            Host::Codex => codex::EVENTS,
            Host::Gemini => gemini::EVENTS,
            Host::Cursor => cursor::EVENTS,
            Host::OpenCode => opencode::EVENTS,
            Host::Copilot => copilot::EVENTS,
            Host::Qwen => qwen::EVENTS,
            Host::Generic => generic::EVENTS,
        }
    }

    /// The moment of an event; an unknown event is `Moment::Other`.
    pub fn moment(self, event: &str) -> Moment {
        let known = self.events().iter().chain(match self {
            Host::Cursor => cursor::OLDER_EVENTS,
            Host::Generic => generic::OTHER_NAMES,
            _ => &[],
        });
        let mut named = known.filter(|(name, _)| name.eq_ignore_ascii_case(event));
        named.next().map_or(Moment::Other, |(_, moment)| *moment)
    }

    /// Reads what a host has written to stdin. `event` is the event's name where the configured
    /// command tells it; hosts that do not say it themselves need that.
    pub fn read(self, bytes: &[u8], event: Option<&str>) -> Result<Event, BadEvent> {
        let input = plain::read(bytes).map_err(|_| BadEvent::Json)?;
        if !input.is_object() {
            return Err(BadEvent::Json);
        }
        let mut event = match self {
            Host::ClaudeCode | Host::Codex => claude_code::read(self, &input, event),
            Host::Gemini => gemini::read(&input, event),
            Host::Cursor => cursor::read(&input, event),
            Host::OpenCode => opencode::read(&input, event),
            Host::Copilot => copilot::read(&input, event),
            Host::Qwen => qwen::read(&input, event),
            Host::Generic => generic::read(&input, event),
        }?;
        if let Kind::Before(tool) = &mut event.kind {
            tool.spawns |= self.spawns(tool);
        }
        Ok(event)
    }

    /// Whether a tool of this host starts a sub-agent. One that resumes a sub-agent does not.
    fn spawns(self, tool: &ToolUse) -> bool {
        let names: &[&str] = match self {
            Host::ClaudeCode => claude_code::SPAWNS,
            Host::Codex => codex::SPAWNS,
            Host::Gemini => gemini::SPAWNS,
            Host::Cursor => &["Task"],
            Host::OpenCode | Host::Copilot => &["task"],
            Host::Qwen => qwen::SPAWNS,
            Host::Generic => &[],
        };
        let resumes = field::text(&tool.arguments, &["resume"]).is_some();
        names.contains(&tool.name.as_str()) && tool.server.is_none() && !resumes
    }

    /// Whether it tells when a sub-agent begins.
    pub fn tells_sub_agents(self) -> bool {
        self.events().iter().any(|(_, moment)| *moment == Moment::SubAgent)
    }

    /// Whether the answer to an event of this moment can end the turn.
    pub fn ends_turn(self, moment: Moment) -> bool {
        match self {
            // Qwen Code asks once more before its next request, and ends there.
            Host::ClaudeCode | Host::Gemini | Host::Qwen | Host::Generic => true,
            Host::OpenCode => matches!(moment, Moment::Before | Moment::After),
            Host::Codex => moment != Moment::Before,
            Host::Cursor => matches!(moment, Moment::Prompt | Moment::Start),
            Host::Copilot => moment == Moment::Permission,
        }
    }

    /// What its program is called.
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Host::ClaudeCode => &["claude", "claude.exe"],
            Host::Codex => &["codex"],
            Host::Gemini => &["gemini"],
            Host::Cursor => &["cursor-agent"],
            Host::OpenCode => &["opencode"],
            Host::Copilot => &["copilot"],
            Host::Qwen => &["qwen"],
            Host::Generic => &[],
        }
    }

    /// Says it in the host's words. `event` is the name of the event that is answered.
    pub fn answer(self, event: &str, reply: &Reply) -> Output {
        let moment = self.moment(event);
        match self {
            Host::ClaudeCode => claude_code::answer(event, moment, reply),
            Host::Codex => codex::answer(event, moment, reply),
            Host::Gemini => gemini::answer(moment, reply),
            Host::Cursor => cursor::answer(event, moment, reply),
            Host::OpenCode => opencode::answer(moment, reply),
            Host::Copilot => copilot::answer(event, moment, reply),
            Host::Qwen => qwen::answer(event, moment, reply),
            Host::Generic => generic::answer(reply),
        }
    }

    /// Whether an output refuses the call that this event is about, as the host would read it.
    pub fn refuses(self, event: &str, output: &Output) -> bool {
        let said: Value = serde_json::from_str(output.stdout.trim()).unwrap_or_default();
        match self {
            Host::ClaudeCode | Host::Codex | Host::Qwen => {
                codex::refuses(self, event, output, &said)
            }
            Host::Generic => output.code == 2,
            Host::Gemini => {
                let denies = matches!(said["decision"].as_str(), Some("deny" | "block"));
                output.code == 2 || (output.code == 0 && denies)
            }
            Host::Cursor => output.code == 2 || (output.code == 0 && said["permission"] == "deny"),
            Host::OpenCode => {
                output.code == 0 && matches!(said["decision"].as_str(), Some("deny" | "stop"))
            }
            Host::Copilot => output.code == 0 && said["permissionDecision"] == "deny",
        }
    }
}

/// The moments that we care about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// A tool is about to run.
    Before,
    /// A tool has run.
    After,
    /// A person has said something.
    Prompt,
    /// The agent is about to ask a person whether a tool may run.
    Permission,
    /// The agent is about to end its turn.
    Stop,
    /// A session begins or goes on.
    Start,
    /// A sub-agent begins. Hosts do not let a hook refuse that; what it is told is read.
    SubAgent,
    /// A session is over, until its user goes on with it.
    End,
    /// Nothing of ours.
    Other,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The host's name for it.
    pub name: String,
    /// The session.
    pub session: String,
    /// The sub-agent in which it happened, if it was one.
    pub scope: Vec<String>,
    /// What it is about.
    pub kind: Kind,
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// A tool is about to run.
    Before(ToolUse),
    /// A tool has run.
    After {
        /// Which.
        tool: ToolUse,
        /// How it ended.
        status: Status,
        /// What it brought.
        text: String,
    },
    /// A person has said this.
    Prompt(String),
    /// The agent's context was compacted: what it forgot it may look up again.
    Compacted,
    /// The sub-agent of the event's scope begins.
    Begins {
        /// The sub-agent that started it, where the host tells.
        parent: Option<String>,
    },
    /// The sub-agent of the event's scope has ended.
    Ended,
    /// The session is over; tools that still ran ended with it.
    Over,
    /// Something at which a dead session is told that it is dead.
    Standing,
    /// Nothing of ours.
    Other,
}

/// A tool in use.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolUse {
    /// The host's id for this use; some have none.
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// The server that it runs on.
    pub server: Option<String>,
    /// Its arguments.
    pub arguments: Value,
    /// Whether it starts a sub-agent.
    pub spawns: bool,
}

/// What is to be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Go ahead.
    Pass,
    /// Go ahead; people are told.
    Warn(String),
    /// Go ahead; the model is told this, behind the result of its tool. Hosts that have no way to
    /// add to a model's context say nothing.
    Steer(String),
    /// A person should decide.
    Ask(String),
    /// Not this call.
    Refuse(String),
    /// Nothing more: the session is dead.
    End(String),
}

/// What a hook leaves behind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Output {
    /// What goes to stdout.
    pub stdout: String,
    /// What goes to stderr.
    pub stderr: String,
    /// The exit code.
    pub code: u8,
}

impl Output {
    fn nothing() -> Output {
        Output::default()
    }

    fn json(value: &Value) -> Output {
        Output { stdout: value.to_string(), ..Output::default() }
    }
}

/// Why an event cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadEvent {
    /// It is no JSON object.
    #[error("the hook's input is not a JSON object")]
    Json,
    /// Something is missing in it.
    #[error("the hook's input has no `{0}`")]
    Missing(&'static str),
}

/// What a sub-agent is told that was refused: the host has started it all the same.
fn told_sub_agent(why: &str) -> String {
    format!(
        "Deadstop refused this sub-agent and its tool calls ({why}). Do not use tools: say that you were refused, and finish."
    )
}
