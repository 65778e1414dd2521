//! Codex. Trap: what PreToolUse prints is valid as a whole or not at all, and what is not valid lets
//! the call through. So it prints nothing to allow, and never `continue`, `stopReason`, `ask` or a
//! warning there. A turn ends by `continue: false` at a prompt, after a tool, or at Stop.

use serde_json::{Value, json};

use super::{Host, Moment, Output, Reply, claude_code};
use crate::told::{refusal, sentence};

/// The events that we want to hear of.
pub(super) const EVENTS: &[(&str, Moment)] = &[
    ("PreToolUse", Moment::Before),
    ("PostToolUse", Moment::After),
    ("UserPromptSubmit", Moment::Prompt),
    ("Stop", Moment::Stop),
    ("SubagentStart", Moment::SubAgent),
    ("SubagentStop", Moment::Stop),
    ("SessionStart", Moment::Start),
];

/// The tools that start a sub-agent; some versions name it with its namespace.
pub(super) const SPAWNS: &[&str] = &["spawn_agent", "collaboration.spawn_agent"];

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
        (Moment::SubAgent, Reply::Refuse(why) | Reply::End(why)) => claude_code::begun(event, why),
        (Moment::Prompt, Reply::Refuse(why)) => {
            Output::json(&json!({ "decision": "block", "reason": sentence(why) }))
        }
        (Moment::Prompt | Moment::After | Moment::Stop | Moment::Start, Reply::End(why)) => {
            Output::json(&json!({ "continue": false, "stopReason": sentence(why) }))
        }
        _ => Output::nothing(),
    }
}

/// Whether an output refuses a call, as Codex or Claude Code would read it.
pub(super) fn refuses(host: Host, event: &str, output: &Output, said: &Value) -> bool {
    if output.code == 2 {
        return !output.stderr.trim().is_empty();
    }
    let specific = &said["hookSpecificOutput"];
    let denies = output.code == 0
        && specific["hookEventName"] == event
        && specific["permissionDecision"] == "deny"
        && specific["permissionDecisionReason"].as_str().is_some_and(|why| !why.trim().is_empty());
    let spoilt =
        ["continue", "stopReason", "suppressOutput"].iter().any(|key| said.get(key).is_some());
    denies && !(host == Host::Codex && spoilt)
}
