//! Answers in odd clothes: whatever a client takes for a tool call is judged as one.

use serde_json::{Value, json};

use crate::support::{Gate, Reply, Said, Speech, Step};

fn evil() -> Said {
    Said::call("c1", "delete_asset", json!({ "path": "a" }))
}

/// Asks a model whose answer is this, under a policy that denies what it asks for.
async fn refused(what: &str, speech: Speech, stream: bool, reply: Reply) {
    let policy = json!({ "access": { "deny": ["delete_*", "apply_patch"] } });
    let gate = Gate::start(policy, move |_| reply.clone()).await;
    let got = gate.ask(&speech.says(stream, "Tidy up").by("worker", "s1")).await;
    assert!(got.text().contains("is denied"), "{what}: {} {}", got.status, got.text());
    assert!(stream || got.status == 403, "{what}: {}", got.status);
}

fn whole(body: &Value) -> Reply {
    Reply::json(200, body)
}

#[tokio::test]
async fn hole_05_answers_of_any_type_are_inspected() {
    for kind in ["text/plain", "application/octet-stream", "text/html", "application/x+json", ""] {
        for speech in [Speech::Chat, Speech::Responses, Speech::Anthropic, Speech::Gemini] {
            let body = speech.whole(&evil()).to_string();
            refused(kind, speech, false, Reply::of(200, kind, body.as_bytes())).await;
        }
    }
    // Without any type.
    let body = Speech::Chat.whole(&evil()).to_string();
    let length = body.len().to_string();
    let reply = Reply::head(200, &[("Content-Length", &length)]).then(Step::Raw(body.into()));
    refused("no type", Speech::Chat, false, reply).await;
    for speech in [Speech::Chat, Speech::Anthropic, Speech::Gemini] {
        let events = speech.events(&evil()).concat();
        refused("a stream", speech, true, Reply::of(200, "text/plain", &events)).await;
    }
}

#[tokio::test]
async fn hole_05_answers_with_marks_and_doubles_are_inspected() {
    for speech in [Speech::Chat, Speech::Responses, Speech::Anthropic, Speech::Gemini] {
        let body = speech.whole(&evil()).to_string();
        let marked = format!("\u{feff}{body}");
        let json = "application/json";
        refused("a BOM", speech, false, Reply::of(200, json, marked.as_bytes())).await;
        // The field that holds the calls comes twice: clients take the last one.
        let field = match speech {
            Speech::Chat => "choices",
            Speech::Responses => "output",
            Speech::Anthropic => "content",
            Speech::Gemini => "candidates",
        };
        let double = format!("{{\"{field}\":[],{}", &body[1..]);
        refused("doubles", speech, false, Reply::of(200, json, double.as_bytes())).await;
    }
}

#[tokio::test]
async fn hole_05_calls_by_other_names_are_inspected() {
    let part = json!({ "function_call": { "name": "delete_asset", "args": { "path": "a" } } });
    let gemini = json!({ "candidates": [{ "content": { "parts": [part] } }] });
    refused("snake case", Speech::Gemini, false, whole(&gemini)).await;
    let approval = json!({
        "type": "mcp_approval_request", "id": "mcpr_1", "name": "delete_asset",
        "server_label": "files", "arguments": "{\"path\":\"a\"}",
    });
    let operation = json!({ "type": "delete_file", "path": "a" });
    let patch = json!({
        "type": "apply_patch_call", "id": "apc_1", "call_id": "c1", "status": "completed",
        "operation": operation,
    });
    for item in [approval, patch] {
        let answer = json!({ "id": "r1", "status": "completed", "output": [item] });
        refused("an item", Speech::Responses, false, whole(&answer)).await;
    }
}

#[tokio::test]
async fn hole_05_answers_that_are_too_large_are_refused() {
    let mut body = Speech::Chat.whole(&evil()).to_string().into_bytes();
    body.resize(33 << 20, b' ');
    let gate = Gate::start(json!({}), move |_| Reply::of(200, "application/json", &body)).await;
    let got = gate.ask(&Speech::Chat.says(false, "Tidy up").by("worker", "s1")).await;
    assert_eq!(got.status, 502);
    assert!(got.text().contains("larger than 32 MiB"), "{}", got.text());
}

#[tokio::test]
async fn hole_02_two_calls_with_one_id_are_both_judged() {
    let mut said = Said::call("c1", "list_files", json!({}));
    said.calls.push(("c1".into(), "delete_asset".into(), json!({ "path": "a" })));
    for speech in [Speech::Chat, Speech::Responses, Speech::Anthropic, Speech::Gemini] {
        refused("one id", speech, false, whole(&speech.whole(&said))).await;
        refused("one id", speech, true, Reply::events(&speech.events(&said))).await;
    }
}

/// Issue 19, number 5: clients put a name together that comes in several events, and some SDKs mend
/// arguments that break off.
#[tokio::test]
async fn hole_05_split_names_and_torn_arguments_are_inspected() {
    let event = |function: Value| {
        let call = json!({ "index": 0, "id": "c1", "type": "function", "function": function });
        let choice = json!({ "index": 0, "delta": { "tool_calls": [call] } });
        format!("data: {}\n\n", json!({ "choices": [choice] }))
    };
    let split = [
        event(json!({ "name": "delete_", "arguments": "" })),
        event(json!({ "name": "asset", "arguments": "{}" })),
    ];
    let torn = [event(json!({ "name": "delete_asset", "arguments": "{\"path\":\"a" }))];
    for (what, events) in [("a split name", split.concat()), ("torn arguments", torn.concat())] {
        let stream = format!("{events}data: [DONE]\n\n");
        let reply = Reply::of(200, "text/event-stream", stream.as_bytes());
        refused(what, Speech::Chat, true, reply).await;
    }
}
