//! Any other host: a JSON object of our own in, a decision and an exit code out. `docs/hosts/generic.md`
//! describes it. The names that other hosts use are understood as well, so that a host whose hooks look
//! like theirs needs no adapter.
//!
//! Trap: hosts read either stdout or the exit code. A refusal says it in both: JSON with the decision, the
//! reason on stderr, and exit code 2.

use deadstop_core::Status;
use serde_json::{Value, json};

use super::{BadEvent, Event, Host, Kind, Moment, Output, Reply, field};
use crate::told::{refusal, sentence};

/// The events that we want to hear of.
pub(super) const EVENTS: &[(&str, Moment)] = &[
    ("before", Moment::Before),
    ("after", Moment::After),
    ("prompt", Moment::Prompt),
    ("stop", Moment::Stop),
    ("start", Moment::Start),
    ("end", Moment::End),
];

/// What other hosts call them.
pub(super) const OTHER_NAMES: &[(&str, Moment)] = &[
    ("preToolUse", Moment::Before),
    ("postToolUse", Moment::After),
    ("userPromptSubmit", Moment::Prompt),
    ("agentSpawn", Moment::Start),
    ("sessionStart", Moment::Start),
    ("sessionEnd", Moment::End),
];

pub(super) fn read(input: &Value, told: Option<&str>) -> Result<Event, BadEvent> {
    let said = field::text(input, &["event"]).or(told);
    let name = field::name(input, said)?;
    // A host without sessions has one for each folder.
    let session = field::session(input, &["session", "session_id", "conversation_id", "cwd"])?;
    let scope = field::scope(input, &["sub_agent", "agent_id"]);
    if let Some(event) = field::event(Host::Generic, name.clone(), session.clone(), input)? {
        return Ok(Event { scope, ..event });
    }
    let mut tool = match field::text(input, &["tool"]) {
        Some(name) => super::ToolUse {
            name: name.to_owned(),
            arguments: field::arguments(input, &["arguments"]),
            ..super::ToolUse::default()
        },
        None => field::tool(input)?,
    };
    tool.id = field::text(input, &["call"]).map(str::to_owned).or(tool.id);
    tool.server = field::text(input, &["server"]).map(str::to_owned);
    tool.spawns = input["spawns"] == true;
    let kind = match Host::Generic.moment(&name) {
        Moment::Before => Kind::Before(tool),
        _ => {
            let result = field::any(input, &["result", "tool_response", "tool_result"]);
            let status = match field::text(input, &["status"]) {
                Some("error") => Status::Error,
                Some("cancelled") => Status::Cancelled,
                Some("fault") => Status::Fault,
                _ => field::status(result),
            };
            Kind::After { tool, status, text: field::result(result) }
        }
    };
    Ok(Event { name, session, scope, kind })
}

pub(super) fn answer(reply: &Reply) -> Output {
    let refused = |decision: &str, why: &String| Output {
        stdout: json!({ "decision": decision, "reason": refusal(why) }).to_string(),
        stderr: format!("{}\n", refusal(why)),
        code: 2,
    };
    match reply {
        Reply::Pass => Output::json(&json!({ "decision": "allow" })),
        Reply::Warn(why) => Output::json(&json!({ "decision": "allow", "warning": sentence(why) })),
        Reply::Steer(advice) => Output::json(&json!({ "decision": "allow", "advice": advice })),
        Reply::Ask(why) => refused("ask", why),
        Reply::Refuse(why) => refused("deny", why),
        Reply::End(why) => refused("stop", why),
    }
}
