//! Refusals: a JSON-RPC error that says why, and that there is no use in trying again.
//!
//! The codes are those of the HTTP gateway (403, 402, 429): JSON-RPC leaves everything above
//! -32000 to applications. `INVALID_REQUEST` would invite a client to mend the request and try
//! again.

use deadstop_core::{GuardId, RefusalKind, Trip, Verdict};
use serde_json::{Value, json};

use super::message::Message;
use crate::told;

/// Why a call is refused.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Why {
    /// The status that the HTTP gateway would give.
    pub code: u16,
    /// A sentence for people and models.
    pub sentence: String,
    /// The guard.
    pub guard: String,
    /// A stable code for programs.
    pub reason: String,
    /// The incident, if it has become one.
    pub incident: Option<String>,
    /// Whether the same call may succeed later.
    pub retryable: bool,
}

impl Why {
    /// A trip as the client is told of it.
    pub fn of(trip: &Trip, incident: Option<&str>) -> Why {
        let (code, sentence) = crate::llm::refusal::in_words(trip);
        Why {
            code,
            sentence,
            guard: trip.guard.name().to_owned(),
            reason: trip.reason.clone(),
            incident: incident.map(str::to_owned),
            retryable: code == 429,
        }
    }

    /// What a guard has said elsewhere: its name, its code for why, and its sentence.
    pub fn said(verdict: Verdict, guard: &str, reason: &str, explain: &str) -> Why {
        let kind = GuardId::named(guard)
            .map_or(RefusalKind::Stopped, |guard| RefusalKind::of(guard, reason, verdict));
        let code = kind.status();
        Why {
            code,
            sentence: match code {
                429 => format!("{} Retry later.", told::sentence(explain)),
                _ => told::refusal(explain),
            },
            guard: guard.to_owned(),
            reason: reason.to_owned(),
            incident: None,
            retryable: code == 429,
        }
    }

    /// Something that failed on the way, with no guard to it.
    pub fn failed(reason: &str, sentence: &str) -> Why {
        Why {
            code: 502,
            sentence: format!("deadstop: {sentence}"),
            reason: reason.to_owned(),
            ..Why::default()
        }
    }
}

/// The answer to a request that is refused.
pub fn refuse(id: &str, why: &Why) -> Vec<u8> {
    answer(id, &error(why))
}

/// The answer to a batch of which something is refused: nothing of it is sent on. `None` if the
/// client expects no answer.
pub fn refuse_all(messages: &[Message<'_>], whys: &[Option<Why>]) -> Option<Vec<u8>> {
    let beside = Why {
        code: 403,
        sentence: "deadstop: not sent, because another call of this batch was refused".to_owned(),
        reason: "batch_refused".to_owned(),
        retryable: true,
        ..Why::default()
    };
    let answers: Vec<Vec<u8>> = messages
        .iter()
        .zip(whys)
        .filter(|(message, _)| message.is_request())
        .filter_map(|(message, why)| Some(refuse(message.id?, why.as_ref().unwrap_or(&beside))))
        .collect();
    (!answers.is_empty()).then(|| {
        let mut all = b"[".to_vec();
        all.extend(answers.join(&b','));
        all.push(b']');
        all
    })
}

/// The answer to what cannot be read.
pub fn unreadable(problem: &str) -> Vec<u8> {
    answer("null", &json!({ "code": -32700, "message": format!("deadstop: {problem}") }))
}

/// The answer to a request whose headers say something else than its message.
pub fn mismatch(id: Option<&str>) -> Vec<u8> {
    let message = "deadstop: Mcp-Method and Mcp-Name must say what the message says";
    answer(id.unwrap_or("null"), &json!({ "code": -32020, "message": message }))
}

/// The answer to a call that has no name, or more than one.
pub fn unreadable_call(id: &str) -> Vec<u8> {
    let message = "deadstop: params must name the tool once, under `name`, with fewer than a million values in its arguments";
    answer(id, &json!({ "code": -32602, "message": message }))
}

/// The answer to a call whose server failed.
pub fn failure(id: &str, reason: &str, sentence: &str) -> Vec<u8> {
    refuse(id, &Why::failed(reason, sentence))
}

/// Tells a server that a request is cancelled.
pub fn cancelled(id: &str, reason: &str) -> Vec<u8> {
    let reason = json!(reason);
    let head = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"#;
    format!("{head}{id},\"reason\":{reason}}}}}").into_bytes()
}

/// Asks a server to cancel a task that it has begun; `id` is the task's, as it came.
pub fn cancelled_task(id: &str) -> Vec<u8> {
    let head =
        r#"{"jsonrpc":"2.0","id":"deadstop-cancel","method":"tasks/cancel","params":{"taskId":"#;
    format!("{head}{id}}}}}").into_bytes()
}

fn error(why: &Why) -> Value {
    json!({
        "code": why.code,
        "message": why.sentence,
        "data": {
            "guard": why.guard,
            "reason": why.reason,
            "incident": why.incident,
            "retryable": why.retryable,
        },
    })
}

/// The id stands there as it came.
fn answer(id: &str, error: &Value) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    #[test]
    fn refusals_keep_the_id_as_it_came() {
        let why = Why { code: 403, sentence: "No. Do not retry.".into(), ..Why::default() };
        for id in ["7", "\"a\\u0062\"", "1e3", "-0"] {
            let bytes = refuse(id, &why);
            assert!(String::from_utf8_lossy(&bytes).contains(&format!("\"id\":{id},")), "{id}");
            let read = read(&bytes).unwrap();
            assert!(read.messages()[0].is_answer());
        }
        let told: Value = serde_json::from_slice(&cancelled("7", "a \"b\"")).unwrap();
        assert_eq!(told["params"], json!({ "requestId": 7, "reason": "a \"b\"" }));
        let told: Value = serde_json::from_slice(&cancelled_task("\"t\"")).unwrap();
        assert_eq!(told["params"], json!({ "taskId": "t" }));
    }

    #[test]
    fn a_batch_is_refused_as_one() {
        let batch = br#"[{"id":1,"method":"a"},{"method":"b"},{"id":2,"method":"c"}]"#;
        let envelope = read(batch).unwrap();
        let why = Why { code: 403, sentence: "no".into(), ..Why::default() };
        let answer = refuse_all(envelope.messages(), &[None, None, Some(why)]).unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer[0]["error"]["data"]["reason"], "batch_refused");
        assert_eq!(
            (answer[1]["id"].clone(), answer[1]["error"]["message"].clone()),
            (json!(2), json!("no"))
        );
        assert_eq!(answer.as_array().unwrap().len(), 2);
        let told = read(br#"[{"method":"b"}]"#).unwrap();
        assert_eq!(refuse_all(told.messages(), &[None]), None);
    }
}
