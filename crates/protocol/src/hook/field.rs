//! Fields of a hook's input, whatever a host calls them.

use deadstop_core::Status;
use serde_json::Value;

use super::{BadEvent, Event, Host, Kind, Moment, ToolUse};
use crate::llm::identity;
use crate::plain;

/// The longest text of a result that is looked at.
const LONGEST: usize = 256 * 1024;

/// The first of these fields that is a text which says something.
pub(super) fn text<'v>(input: &'v Value, names: &[&str]) -> Option<&'v str> {
    let found = names.iter().find_map(|name| input[*name].as_str());
    found.filter(|text| !text.trim().is_empty())
}

/// The first of these fields that is there.
pub(super) fn any<'v>(input: &'v Value, names: &[&str]) -> Option<&'v Value> {
    names.iter().find_map(|name| input.get(*name)).filter(|value| !value.is_null())
}

/// Arguments, also where a host sends them as a text that holds JSON.
pub(super) fn arguments(input: &Value, names: &[&str]) -> Value {
    match any(input, names) {
        Some(Value::String(text)) => {
            plain::read(text.as_bytes()).unwrap_or_else(|_| Value::String(text.clone()))
        }
        Some(value) => value.clone(),
        None => Value::Null,
    }
}

/// A value as the text of a result.
pub(super) fn result(value: Option<&Value>) -> String {
    let mut text = match value {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    text.truncate(text.floor_char_boundary(LONGEST));
    text
}

/// Whether a result says of itself that it is an error.
pub(super) fn status(result: Option<&Value>) -> Status {
    let Some(result) = result else { return Status::Ok };
    let flagged = ["is_error", "isError"].iter().any(|name| result[*name] == true);
    let exit = result["exit_code"].as_i64().or(result["metadata"]["exit_code"].as_i64());
    if result["interrupted"] == true {
        return Status::Cancelled;
    }
    if flagged || exit.is_some_and(|code| code != 0) { Status::Error } else { Status::Ok }
}

/// The session's name.
pub(super) fn session(input: &Value, names: &[&'static str]) -> Result<String, BadEvent> {
    let missing = BadEvent::Missing(names.first().copied().unwrap_or("session_id"));
    text(input, names).and_then(identity::name).ok_or(missing)
}

/// The sub-agent, if it is one.
pub(super) fn scope(input: &Value, names: &[&str]) -> Vec<String> {
    text(input, names).and_then(identity::name).into_iter().collect()
}

/// The event's name: what the input says, or else what the command was told.
pub(super) fn name(input: &Value, told: Option<&str>) -> Result<String, BadEvent> {
    let said = text(input, &["hook_event_name", "hookEventName"]);
    said.or(told).map(str::to_owned).ok_or(BadEvent::Missing("hook_event_name"))
}

/// What has happened, where a moment of ours that is no tool's needs nothing more.
pub(super) fn event(
    host: Host,
    name: String,
    session: String,
    input: &Value,
) -> Result<Option<Event>, BadEvent> {
    let kind = match host.moment(&name) {
        Moment::Before | Moment::After => return Ok(None),
        Moment::Prompt => Kind::Prompt(text(input, &["prompt"]).unwrap_or_default().to_owned()),
        Moment::Start if text(input, &["source"]) == Some("compact") => Kind::Compacted,
        Moment::SubAgent => {
            Kind::Begins { parent: text(input, &["parent_agent_id"]).and_then(identity::name) }
        }
        Moment::Permission | Moment::Stop | Moment::Start => Kind::Standing,
        Moment::End => Kind::Over,
        Moment::Other => Kind::Other,
    };
    Ok(Some(Event { name, session, scope: Vec::new(), kind }))
}

/// A tool in use, by the names that most hosts use.
pub(super) fn tool(input: &Value) -> Result<ToolUse, BadEvent> {
    let name = text(input, &["tool_name", "toolName"]).ok_or(BadEvent::Missing("tool_name"))?;
    Ok(ToolUse {
        id: text(input, &["tool_use_id", "toolUseId", "tool_call_id", "toolCallId"])
            .map(str::to_owned),
        name: name.to_owned(),
        server: None,
        arguments: arguments(input, &["tool_input", "toolInput", "toolArgs", "tool_args"]),
        spawns: false,
    })
}
