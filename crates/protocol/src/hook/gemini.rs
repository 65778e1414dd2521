//! Gemini CLI. Time-outs are in milliseconds, and what is on stdout must be JSON and nothing else.
//! `continue: false` ends the agent's loop. A tool's use has no id.

use deadstop_core::Status;
use serde_json::{Value, json};

use super::{BadEvent, Event, Host, Kind, Moment, Output, Reply, field};
use crate::told::{refusal, sentence};

/// The events that we want to hear of.
pub(super) const EVENTS: &[(&str, Moment)] = &[
    ("BeforeTool", Moment::Before),
    ("AfterTool", Moment::After),
    ("BeforeAgent", Moment::Prompt),
    ("AfterAgent", Moment::Stop),
    ("SessionStart", Moment::Start),
    ("SessionEnd", Moment::End),
];

/// The tools that start a sub-agent: one for all of them, and those of versions in which each
/// sub-agent was a tool by its own name. The tools that a sub-agent uses do not name it.
pub(super) const SPAWNS: &[&str] = &[
    "invoke_agent",
    "delegate_to_agent",
    "codebase_investigator",
    "generalist",
    "browser_agent",
    "cli_help",
];

pub(super) fn read(input: &Value, told: Option<&str>) -> Result<Event, BadEvent> {
    let name = field::name(input, told)?;
    let session = field::session(input, &["session_id"])?;
    let scope = field::scope(input, &["agent_id", "subagent_id"]);
    if let Some(event) = field::event(Host::Gemini, name.clone(), session.clone(), input)? {
        return Ok(Event { scope, ..event });
    }
    let mut tool = field::tool(input)?;
    tool.server = field::text(&input["mcp_context"], &["server_name"]).map(str::to_owned);
    let kind = match Host::Gemini.moment(&name) {
        Moment::Before => Kind::Before(tool),
        _ => {
            let response = field::any(input, &["tool_response"]);
            let error = response.and_then(|response| field::any(response, &["error"]));
            let content = response.and_then(|response| field::any(response, &["llmContent"]));
            let status = if error.is_some() { Status::Error } else { field::status(response) };
            Kind::After { tool, status, text: field::result(error.or(content).or(response)) }
        }
    };
    Ok(Event { name, session, scope, kind })
}

pub(super) fn answer(moment: Moment, reply: &Reply) -> Output {
    let said = match (moment, reply) {
        (Moment::Before, Reply::Refuse(why) | Reply::Ask(why)) => {
            json!({ "decision": "deny", "reason": refusal(why) })
        }
        (Moment::Before | Moment::Prompt, Reply::End(why)) => json!({
            "decision": "deny",
            "reason": refusal(why),
            "continue": false,
            "stopReason": sentence(why),
        }),
        (Moment::Prompt, Reply::Refuse(why)) => {
            json!({ "decision": "deny", "reason": sentence(why) })
        }
        (Moment::After | Moment::Stop | Moment::Start, Reply::End(why)) => {
            json!({ "continue": false, "stopReason": sentence(why) })
        }
        (Moment::After, Reply::Steer(advice)) => json!({ "hookSpecificOutput": {
            "hookEventName": "AfterTool",
            "additionalContext": advice,
        }}),
        (Moment::Before | Moment::After, Reply::Warn(why)) => {
            json!({ "systemMessage": sentence(why) })
        }
        _ => json!({}),
    };
    Output::json(&said)
}
