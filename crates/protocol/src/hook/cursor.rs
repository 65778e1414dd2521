//! Cursor. `preToolUse` comes for every tool; the older events for shells, MCP and files are
//! understood as well, but only one of the two families may be configured, or each call counts
//! twice. To allow, it says nothing: an `allow` could stand above the person's own settings.

use deadstop_core::Status;
use serde_json::{Value, json};

use super::{BadEvent, Event, Host, Kind, Moment, Output, Reply, ToolUse, field};
use crate::told::{refusal, sentence};

/// The events that we want to hear of.
pub(super) const EVENTS: &[(&str, Moment)] = &[
    ("preToolUse", Moment::Before),
    ("postToolUse", Moment::After),
    ("postToolUseFailure", Moment::After),
    ("beforeSubmitPrompt", Moment::Prompt),
    ("stop", Moment::Stop),
    ("sessionStart", Moment::Start),
    ("sessionEnd", Moment::End),
];

/// Those of older versions.
pub(super) const OLDER_EVENTS: &[(&str, Moment)] = &[
    ("beforeShellExecution", Moment::Before),
    ("beforeMCPExecution", Moment::Before),
    ("beforeReadFile", Moment::Before),
    ("afterShellExecution", Moment::After),
    ("afterMCPExecution", Moment::After),
    ("afterFileEdit", Moment::After),
];

pub(super) fn read(input: &Value, told: Option<&str>) -> Result<Event, BadEvent> {
    let name = field::name(input, told)?;
    let session = field::session(input, &["conversation_id", "session_id"])?;
    let scope = field::scope(input, &["subagent_id", "agent_id"]);
    if let Some(event) = field::event(Host::Cursor, name.clone(), session.clone(), input)? {
        return Ok(Event { scope, ..event });
    }
    let tool = tool(&name, input)?;
    let kind = match Host::Cursor.moment(&name) {
        Moment::Before => Kind::Before(tool),
        _ if name.eq_ignore_ascii_case("postToolUseFailure") => {
            let status = match field::text(input, &["failure_type"]) {
                Some("timeout") => Status::Fault,
                _ if input["is_interrupt"] == true => Status::Cancelled,
                _ => Status::Error,
            };
            Kind::After { tool, status, text: field::result(input.get("error_message")) }
        }
        _ => {
            let result = field::any(input, &["tool_output", "output", "result_json", "edits"]);
            Kind::After { tool, status: field::status(result), text: field::result(result) }
        }
    };
    Ok(Event { name, session, scope, kind })
}

fn tool(event: &str, input: &Value) -> Result<ToolUse, BadEvent> {
    let named = |name: &str, arguments: Value| {
        Ok(ToolUse { name: name.to_owned(), arguments, ..ToolUse::default() })
    };
    match event {
        "beforeShellExecution" | "afterShellExecution" => {
            let command = field::text(input, &["command"]).ok_or(BadEvent::Missing("command"))?;
            named("Shell", json!({ "command": command }))
        }
        "beforeReadFile" => named("Read", json!({ "path": input["file_path"] })),
        "afterFileEdit" => named("Write", json!({ "path": input["file_path"] })),
        _ => {
            let mut tool = field::tool(input)?;
            let parts: Vec<&str> = tool.name.split(':').collect();
            if let ["MCP", server, _] = parts[..] {
                tool.server = Some(server.to_owned());
            }
            Ok(tool)
        }
    }
}

pub(super) fn answer(event: &str, moment: Moment, reply: &Reply) -> Output {
    let may_ask = event.ends_with("Execution");
    let said = match (moment, reply) {
        (Moment::Before, Reply::Ask(why)) if may_ask => json!({
            "permission": "ask",
            "user_message": sentence(why),
            "agent_message": sentence(why),
        }),
        (Moment::Before, Reply::Refuse(why) | Reply::End(why) | Reply::Ask(why)) => json!({
            "permission": "deny",
            "user_message": sentence(why),
            "agent_message": refusal(why),
        }),
        (Moment::After, Reply::Steer(advice)) => json!({ "additional_context": advice }),
        (Moment::Prompt | Moment::Start, Reply::Refuse(why) | Reply::End(why)) => {
            json!({ "continue": false, "user_message": sentence(why) })
        }
        _ => json!({}),
    };
    Output::json(&said)
}
