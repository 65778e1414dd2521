//! Claude Code. Trap: exit codes 1 and 127 and time-outs let a call through, so refusals are JSON
//! with exit code 0. `continue: false` before a tool ends the turn only where nothing is denied, and
//! the tool runs; so the tool is denied there, and the turn is ended when all tools that were asked
//! for together are through (`PostToolBatch`). A `decision: "block"` at Stop would make it go on.

use deadstop_core::Status;
use serde_json::{Value, json};

use super::{BadEvent, Event, Host, Kind, Moment, Output, Reply, field, told};

/// The events that we want to hear of.
pub(super) const EVENTS: &[(&str, Moment)] = &[
    ("PreToolUse", Moment::Before),
    ("PostToolUse", Moment::After),
    ("PostToolUseFailure", Moment::After),
    ("PostToolBatch", Moment::Stop),
    ("UserPromptSubmit", Moment::Prompt),
    ("Stop", Moment::Stop),
    ("SubagentStop", Moment::Stop),
    ("SessionStart", Moment::Start),
];

/// Reads an event; Codex says it in the same words.
pub(super) fn read(host: Host, input: &Value, told: Option<&str>) -> Result<Event, BadEvent> {
    let name = field::name(input, told)?;
    let session = field::session(input, &["session_id"])?;
    let scope = field::scope(input, &["agent_id"]);
    if let Some(event) = field::event(host, name.clone(), session.clone(), input)? {
        return Ok(Event { scope, ..event });
    }
    let tool = field::tool(input)?;
    let kind = match host.moment(&name) {
        Moment::Before => Kind::Before(tool),
        _ if name.eq_ignore_ascii_case("PostToolUseFailure") => {
            let interrupted = input["is_interrupt"] == true;
            let status = if interrupted { Status::Cancelled } else { Status::Error };
            Kind::After { tool, status, text: field::result(input.get("error")) }
        }
        _ => {
            let result = field::any(input, &["tool_response", "tool_result"]);
            Kind::After { tool, status: field::status(result), text: field::result(result) }
        }
    };
    Ok(Event { name, session, scope, kind })
}

pub(super) fn answer(event: &str, moment: Moment, reply: &Reply) -> Output {
    let decided = |decision: &str, why: &str| {
        json!({
            "hookEventName": event,
            "permissionDecision": decision,
            "permissionDecisionReason": told(why),
        })
    };
    match (moment, reply) {
        (_, Reply::Pass) | (Moment::Other, _) => Output::nothing(),
        (_, Reply::Warn(why)) => {
            Output::json(&json!({ "systemMessage": format!("deadstop {why}") }))
        }
        (Moment::After, Reply::Steer(advice)) => Output::json(&json!({ "hookSpecificOutput": {
            "hookEventName": event,
            "additionalContext": advice,
        }})),
        (Moment::Before, Reply::Ask(why)) => {
            let mut ask = decided("ask", why);
            ask["permissionDecisionReason"] = format!("deadstop: {why}").into();
            Output::json(&json!({ "hookSpecificOutput": ask }))
        }
        (Moment::Before, Reply::Refuse(why)) => {
            Output::json(&json!({ "hookSpecificOutput": decided("deny", why) }))
        }
        (Moment::Before, Reply::End(why)) => Output::json(&json!({
            "continue": false,
            "stopReason": format!("deadstop {why}"),
            "hookSpecificOutput": decided("deny", why),
        })),
        (Moment::Prompt, Reply::Refuse(why) | Reply::End(why)) => Output::json(&json!({
            "continue": false,
            "stopReason": format!("deadstop {why}"),
            "decision": "block",
            "reason": format!("deadstop {why}"),
        })),
        (_, Reply::End(why)) => {
            Output::json(&json!({ "continue": false, "stopReason": format!("deadstop {why}") }))
        }
        (_, Reply::Refuse(_) | Reply::Ask(_) | Reply::Steer(_)) => Output::nothing(),
    }
}
