//! Copilot CLI. Trap: it may say neither which event it is nor which use of a tool, so the configured
//! command tells the event. Exit codes are logged and skipped: only JSON refuses. A turn is ended by
//! `interrupt` when it asks for a permission.

use deadstop_core::Status;
use serde_json::{Value, json};

use super::{BadEvent, Event, Host, Kind, Moment, Output, Reply, field};
use crate::told::{refusal, sentence};

/// The events that we want to hear of.
pub(super) const EVENTS: &[(&str, Moment)] = &[
    ("preToolUse", Moment::Before),
    ("postToolUse", Moment::After),
    ("postToolUseFailure", Moment::After),
    ("permissionRequest", Moment::Permission),
    ("userPromptSubmitted", Moment::Prompt),
    ("sessionEnd", Moment::End),
];

pub(super) fn read(input: &Value, told: Option<&str>) -> Result<Event, BadEvent> {
    let name = field::name(input, told)?;
    // The first versions did not tell the session: those of one folder are one then.
    let session = field::session(input, &["sessionId", "session_id", "cwd"])?;
    let scope = field::scope(input, &["agentName", "agent_name"]);
    if let Some(event) = field::event(Host::Copilot, name.clone(), session.clone(), input)? {
        return Ok(Event { scope, ..event });
    }
    let tool = field::tool(input)?;
    let kind = match Host::Copilot.moment(&name) {
        Moment::Before => Kind::Before(tool),
        _ if name.eq_ignore_ascii_case("postToolUseFailure") => {
            let text = field::result(input.get("error"));
            Kind::After { tool, status: Status::Error, text }
        }
        _ => {
            let result = field::any(input, &["toolResult", "tool_result"]);
            let part = |names: &[&str]| result.and_then(|result| field::any(result, names));
            let kind = part(&["resultType", "result_type"]).and_then(Value::as_str);
            let status = match kind {
                Some("failure" | "error") => Status::Error,
                Some("denied") => Status::Cancelled,
                _ => field::status(result),
            };
            let text = part(&["textResultForLlm", "text_result_for_llm"]).or(result);
            Kind::After { tool, status, text: field::result(text) }
        }
    };
    Ok(Event { name, session, scope, kind })
}

pub(super) fn answer(_event: &str, moment: Moment, reply: &Reply) -> Output {
    let decided = |decision: &str, why: String| json!({ "permissionDecision": decision, "permissionDecisionReason": why });
    match (moment, reply) {
        (Moment::Before, Reply::Ask(why)) => Output::json(&decided("ask", sentence(why))),
        (Moment::Before, Reply::Refuse(why) | Reply::End(why)) => {
            Output::json(&decided("deny", refusal(why)))
        }
        (Moment::Permission, Reply::Refuse(why) | Reply::End(why)) => {
            let interrupt = matches!(reply, Reply::End(_));
            Output::json(
                &json!({ "behavior": "deny", "message": refusal(why), "interrupt": interrupt }),
            )
        }
        _ => Output::nothing(),
    }
}
