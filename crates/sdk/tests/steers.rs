//! Steers in one process: the advice stands behind a tool's result, or in the next request.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::{Arc, Mutex};

use deadstop_sdk::{Outgoing, Running, Session, Verdict};
use serde_json::{Value, json};

const STEERS: &str = "[loop]\nsteer_at = 3\nblock_at = \"off\"\nend_at = \"off\"\n";
const LADDER: &str = "[loop]\nsteer_at = 3\nblock_at = 5\nend_at = 8\n";

fn session(policy: &str) -> Session {
    Session::builder("agent").session("s1").policy(policy).unwrap().open().unwrap()
}

fn get_build(session: &Session) -> Running {
    session.tool("get_build", &json!({ "id": 7 })).unwrap()
}

#[test]
fn the_advice_stands_behind_the_result_and_the_callback_hears_it() {
    let session = session(LADDER);
    let heard = Arc::new(Mutex::new(Vec::new()));
    session.on_steer({
        let heard = Arc::clone(&heard);
        move |why| heard.lock().unwrap().push(why.clone())
    });
    let tripped = Arc::new(Mutex::new(0));
    session.on_tripped({
        let tripped = Arc::clone(&tripped);
        move |_| *tripped.lock().unwrap() += 1
    });
    let mut told = Vec::new();
    for _ in 0..4 {
        let settled = get_build(&session).failed("502").unwrap();
        told.push(settled.told("502").into_owned());
    }
    assert_eq!(told[..2], ["502", "502"]);
    for (text, why) in told[2..].iter().zip(heard.lock().unwrap().iter()) {
        let advice = why.advice.clone().unwrap();
        assert_eq!(*text, format!("502\n\n[Deadstop] {advice}"));
        assert_eq!((why.guard.as_str(), why.verdict), ("loop", Verdict::Steer));
        assert!(advice.contains("get_build"), "{advice}");
    }
    assert_eq!((heard.lock().unwrap().len(), *tripped.lock().unwrap()), (2, 0));
}

#[test]
fn an_agent_that_follows_the_advice_goes_on_and_one_that_does_not_is_ended() {
    let follows = session(LADDER);
    while !get_build(&follows).failed("502").unwrap().told("502").contains("[Deadstop]") {}
    for page in ["first", "second", "third"] {
        let call = follows.tool("read_log", &json!({ "page": page })).unwrap();
        let settled = call.done(&format!("the {page} page of the log")).unwrap();
        assert_eq!(settled.advice, None);
    }
    assert!(!follows.is_killed());

    let ignores = session(LADDER);
    let mut refused = 0;
    for _ in 0..8 {
        match ignores.tool("get_build", &json!({ "id": 7 })) {
            Ok(call) => drop(call.failed("502")),
            Err(_) => refused += 1,
        }
    }
    assert!(ignores.is_killed());
    assert!(refused >= 3, "{refused}");
}

#[test]
fn a_policy_without_steers_tells_nothing() {
    let session = session("[loop]\nsteer_at = \"off\"\nblock_at = 5\n");
    for _ in 0..4 {
        let settled = get_build(&session).failed("502").unwrap();
        assert_eq!(settled.told("502"), "502");
    }
}

/// One round of an agent with a guarded client: the request that was sent, after the model asked for the
/// tool once more.
fn round(session: &Session, messages: &mut Vec<Value>) -> String {
    let body = json!({ "model": "gpt-4o", "messages": messages }).to_string();
    let outgoing = Outgoing::new("api.openai.com", "/v1/chat/completions", body.as_bytes());
    let mut exchange = session.root().request(&outgoing).unwrap();
    let sent = exchange.body().map_or(body.clone(), |body| String::from_utf8_lossy(body).into());
    let id = format!("c{}", messages.len());
    let call = json!({ "id": id, "type": "function",
        "function": { "name": "get_build", "arguments": "{\"id\":7}" } });
    let message = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
    let answer = json!({ "choices": [{ "message": message }],
        "usage": { "prompt_tokens": 10, "completion_tokens": 5 } });
    exchange.answer(200, "application/json");
    exchange.push(answer.to_string().as_bytes()).unwrap();
    exchange.finish().unwrap();
    messages.push(message);
    messages.push(json!({ "role": "tool", "tool_call_id": id, "content": "502" }));
    sent
}

#[test]
fn a_tool_that_no_guard_runs_is_steered_with_the_next_request_and_the_prefix_stays() {
    let session = session(STEERS);
    let mut messages = vec![json!({ "role": "user", "content": "is the build green?" })];
    let sent: Vec<String> = (0..10).map(|_| round(&session, &mut messages)).collect();
    let first = sent.iter().position(|body| body.contains("[Deadstop]")).unwrap();
    assert_eq!(first, 3, "the results of three calls have come back");
    for pair in sent.windows(2) {
        // All but the end of the list of messages and of the body.
        let before = pair[0].strip_suffix("],\"model\":\"gpt-4o\"}");
        let before = before.or_else(|| pair[0].strip_suffix("]}")).unwrap();
        assert!(pair[1].starts_with(before), "{}\n{}", pair[0], pair[1]);
    }
    assert_eq!(sent[9].matches("[Deadstop]").count(), 7);
}

#[test]
fn advice_that_a_result_cannot_carry_is_left_to_the_client() {
    let session = session(STEERS);
    let mut messages = vec![json!({ "role": "user", "content": "is the build green?" })];
    for turn in 0..4 {
        let sent = round(&session, &mut messages);
        assert_eq!(sent.contains("[Deadstop]"), turn == 3, "{sent}");
        // The guarded tool runs, and its result is no text.
        let settled = get_build(&session).failed("502").unwrap();
        assert_eq!(settled.leave_to_client(), turn >= 2);
    }
    let alone = get_build(&session).failed("502").unwrap();
    assert!(alone.advice.is_some() && !alone.leave_to_client(), "no answer asked for this call");
}
