//! Claude Code. Trap: exit codes 1 and 127 and time-outs let a call through, so refusals are JSON
//! with exit code 0. `continue: false` before a tool ends the turn only where nothing is denied, and
//! the tool runs; so the tool is denied there, and the turn is ended when all tools that were asked
//! for together are through (`PostToolBatch`). A `decision: "block"` at Stop would make it go on.

use deadstop_core::Status;
use serde_json::{Value, json};

use super::{BadEvent, Event, Host, Kind, Moment, Output, Reply, field, told_sub_agent};
use crate::told::{refusal, sentence};

/// The events that we want to hear of.
pub(super) const EVENTS: &[(&str, Moment)] = &[
    ("PreToolUse", Moment::Before),
    ("PostToolUse", Moment::After),
    ("PostToolUseFailure", Moment::After),
    ("PostToolBatch", Moment::Stop),
    ("UserPromptSubmit", Moment::Prompt),
    ("Stop", Moment::Stop),
    ("SubagentStart", Moment::SubAgent),
    ("SubagentStop", Moment::Stop),
    ("SessionStart", Moment::Start),
    ("SessionEnd", Moment::End),
];

/// The tools that start a sub-agent, under the names of newer and of older versions.
pub(super) const SPAWNS: &[&str] = &["Agent", "Task"];

/// Reads an event; Codex says it in the same words.
pub(super) fn read(host: Host, input: &Value, told: Option<&str>) -> Result<Event, BadEvent> {
    let name = field::name(input, told)?;
    let session = field::session(input, &["session_id"])?;
    let scope = field::scope(input, &["agent_id"]);
    if let Some(event) = field::event(host, name.clone(), session.clone(), input)? {
        let ends = name.eq_ignore_ascii_case("SubagentStop") && !scope.is_empty();
        let kind = if ends { Kind::Ended } else { event.kind };
        return Ok(Event { scope, kind, ..event });
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

/// The answer to a sub-agent that begins and may not. Codex reads it in the same way.
pub(super) fn begun(event: &str, why: &str) -> Output {
    Output::json(&json!({ "hookSpecificOutput": {
        "hookEventName": event,
        "additionalContext": told_sub_agent(why),
    }}))
}

pub(super) fn answer(event: &str, moment: Moment, reply: &Reply) -> Output {
    let decided = |decision: &str, why: &str| {
        json!({
            "hookEventName": event,
            "permissionDecision": decision,
            "permissionDecisionReason": refusal(why),
        })
    };
    match (moment, reply) {
        (_, Reply::Pass) | (Moment::Other, _) => Output::nothing(),
        (Moment::SubAgent, Reply::Refuse(why) | Reply::End(why)) => begun(event, why),
        (_, Reply::Warn(why)) => Output::json(&json!({ "systemMessage": sentence(why) })),
        (Moment::After, Reply::Steer(advice)) => Output::json(&json!({ "hookSpecificOutput": {
            "hookEventName": event,
            "additionalContext": advice,
        }})),
        (Moment::Before, Reply::Ask(why)) => {
            let mut ask = decided("ask", why);
            ask["permissionDecisionReason"] = sentence(why).into();
            Output::json(&json!({ "hookSpecificOutput": ask }))
        }
        (Moment::Before, Reply::Refuse(why)) => {
            Output::json(&json!({ "hookSpecificOutput": decided("deny", why) }))
        }
        (Moment::Before, Reply::End(why)) => Output::json(&json!({
            "continue": false,
            "stopReason": sentence(why),
            "hookSpecificOutput": decided("deny", why),
        })),
        (Moment::Prompt, Reply::Refuse(why) | Reply::End(why)) => Output::json(&json!({
            "continue": false,
            "stopReason": sentence(why),
            "decision": "block",
            "reason": sentence(why),
        })),
        (_, Reply::End(why)) => {
            Output::json(&json!({ "continue": false, "stopReason": sentence(why) }))
        }
        (_, Reply::Refuse(_) | Reply::Ask(_) | Reply::Steer(_)) => Output::nothing(),
    }
}
