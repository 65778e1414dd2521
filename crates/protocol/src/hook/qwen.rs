//! Qwen Code. It has Claude Code's events and answers, and Gemini CLI's time-outs and results. Traps: a
//! `continue: false` at Stop makes it go on, a tool's use has another id before it runs than afterwards,
//! and `UserPromptSubmit` comes before every request to the model, without words but for the first.
//! There a dead session's turn is ended.

use deadstop_core::Status;
use serde_json::{Value, json};

use super::{BadEvent, Event, Host, Kind, Moment, Output, Reply, field};
use crate::told::{refusal, sentence};

/// The events that we want to hear of.
pub(super) const EVENTS: &[(&str, Moment)] = &[
    ("PreToolUse", Moment::Before),
    ("PostToolUse", Moment::After),
    ("PostToolUseFailure", Moment::After),
    ("UserPromptSubmit", Moment::Prompt),
    ("SessionStart", Moment::Start),
    ("SessionEnd", Moment::End),
];

/// The tools that start a sub-agent.
pub(super) const SPAWNS: &[&str] = &["agent", "task"];

pub(super) fn read(input: &Value, told: Option<&str>) -> Result<Event, BadEvent> {
    let name = field::name(input, told)?;
    let session = field::session(input, &["session_id"])?;
    let scope = field::scope(input, &["agent_id"]);
    if let Some(event) = field::event(Host::Qwen, name.clone(), session.clone(), input)? {
        let kind = match event.kind {
            Kind::Prompt(words) if words.trim().is_empty() => Kind::Standing,
            kind => kind,
        };
        return Ok(Event { scope, kind, ..event });
    }
    let tool = super::ToolUse { id: None, ..field::tool(input)? };
    let kind = match Host::Qwen.moment(&name) {
        Moment::Before => Kind::Before(tool),
        _ if name.eq_ignore_ascii_case("PostToolUseFailure") => {
            let text = field::result(input.get("error"));
            Kind::After { tool, status: Status::Error, text }
        }
        _ => {
            let response = field::any(input, &["tool_response"]);
            let content = response.and_then(|response| field::any(response, &["llmContent"]));
            let text = field::result(content.or(response));
            Kind::After { tool, status: field::status(response), text }
        }
    };
    Ok(Event { name, session, scope, kind })
}

pub(super) fn answer(event: &str, moment: Moment, reply: &Reply) -> Output {
    match (moment, reply) {
        (Moment::Before, Reply::Refuse(why) | Reply::End(why) | Reply::Ask(why)) => {
            Output::json(&json!({ "hookSpecificOutput": {
                "hookEventName": event,
                "permissionDecision": "deny",
                "permissionDecisionReason": refusal(why),
            }}))
        }
        (Moment::After, Reply::Steer(advice)) => Output::json(&json!({ "hookSpecificOutput": {
            "hookEventName": event,
            "additionalContext": advice,
        }})),
        (Moment::Prompt, Reply::Refuse(why) | Reply::End(why)) => Output::json(&json!({
            "continue": false,
            "stopReason": sentence(why),
            "decision": "block",
            "reason": sentence(why),
        })),
        _ => Output::nothing(),
    }
}
