//! Answers that a client would reach or read past Deadstop: redirects, packings, other methods, answers
//! that are fetched later, streams that hold more than is read.

use serde_json::json;

use super::paths::names_its_session;
use crate::packing::pack;
use crate::support::{Ask, Gate, Reply, Said, Speech, Step, Turn};

fn deny() -> serde_json::Value {
    json!({ "access": { "deny": ["delete_*"] } })
}

fn evil() -> Said {
    Said::call("c1", "delete_asset", json!({ "path": "a" }))
}

async fn answering(reply: Reply) -> Gate {
    Gate::start(deny(), move |_| reply.clone()).await
}

fn asks(speech: Speech, stream: bool) -> Ask {
    speech.says(stream, "Tidy up").by("worker", "s1")
}

/// SDKs follow a redirect with the whole request, to an address that is not ours.
#[tokio::test]
async fn hole_03_a_redirect_does_not_lead_past_the_gateway() {
    for status in [301, 302, 303, 307, 308] {
        let away =
            [("Location", "http://127.0.0.1:1/v1/chat/completions"), ("Content-Length", "0")];
        let gate = answering(Reply::head(status, &away)).await;
        let got = gate.ask(&asks(Speech::Chat, false)).await;
        assert_eq!(got.status, 502, "{status}: {}", got.text());
        assert!(got.text().contains("redirect"), "{}", got.text());
        assert_eq!(got.header("location"), None);
        // What is only fetched may lie elsewhere.
        let got = gate.ask(&Ask::get("/openai/v1/videos/v1/content").by("worker", "s1")).await;
        assert_eq!(got.status, status, "{}", got.text());
    }
}

/// A server may go by the body, or by a header that names another method.
#[tokio::test]
async fn hole_03_other_methods_are_inspected() {
    for (method, path) in [
        ("PUT", "/openai/v1/chat/completions"),
        ("PATCH", "/openai/v1/chat/completions"),
        ("post", "/openai/v1/chat/completions"),
        ("GET", "/openai/v1/chat/completions"),
        ("DELETE", "/own/v9/talk"),
    ] {
        let gate = answering(Reply::json(200, &Speech::Chat.whole(&evil()))).await;
        let body = Speech::Chat.request(false, &[Turn::User("Tidy up".into())]);
        let ask = Ask::of(method, path, Some(&body)).with("x-http-method-override", "POST");
        let got = gate.ask(&ask.by("worker", "s1")).await;
        assert_eq!(got.status, 403, "{method} {path}: {}", got.text());
    }
    // The request is read as well.
    for method in ["PUT", "PATCH"] {
        let path = "/openai/v1/chat/completions";
        assert!(names_its_session(method, path, &json!({})).await, "{method}");
    }
}

/// A response in the background is asked for once and fetched later.
#[tokio::test]
async fn hole_05_answers_that_are_fetched_later_are_inspected() {
    for (path, speech, stream) in [
        ("/openai/v1/responses/resp_1", Speech::Responses, false),
        ("/openai/v1/responses/resp_1?include[]=x", Speech::Responses, false),
        ("/openai/v1/responses/resp_1?stream=true&starting_after=3", Speech::Responses, true),
        ("/openai/v1/respon%73es/resp_1", Speech::Responses, false),
        ("/openai/v1/chat/completions/c_1", Speech::Chat, false),
        // xAI's.
        ("/openai/v1/chat/deferred-completion/c_1", Speech::Chat, false),
    ] {
        let reply = match stream {
            true => Reply::events(&speech.events(&evil())),
            false => Reply::json(200, &speech.whole(&evil())),
        };
        let gate = answering(reply).await;
        let got = gate.ask(&Ask::get(path).by("worker", "s1")).await;
        assert!(got.text().contains("is denied"), "{path}: {} {}", got.status, got.text());
    }
    // Perplexity wraps it.
    let wrapped =
        json!({ "id": "c_1", "status": "COMPLETED", "response": Speech::Chat.whole(&evil()) });
    let gate = answering(Reply::json(200, &wrapped)).await;
    let got = gate.ask(&Ask::get("/openai/async/chat/completions/c_1").by("worker", "s1")).await;
    assert!(got.text().contains("is denied"), "wrapped: {} {}", got.status, got.text());
}

/// Clients read what they asked for, whatever its type says.
#[tokio::test]
async fn hole_05_answers_under_another_type_are_inspected() {
    for speech in [Speech::Chat, Speech::Responses, Speech::Anthropic, Speech::Gemini] {
        let (whole, events) = (speech.whole(&evil()).to_string(), speech.events(&evil()).concat());
        for (kind, stream, body) in [
            ("image/png", false, whole.as_bytes()),
            ("text/event-stream", false, whole.as_bytes()),
            ("text/event-stream", false, &events),
            ("audio/mpeg", true, &events),
            ("application/json", true, &events),
        ] {
            let gate = answering(Reply::of(200, kind, body)).await;
            let got = gate.ask(&asks(speech, stream)).await;
            assert!(got.text().contains("is denied"), "{kind}: {} {}", got.status, got.text());
        }
    }
}

/// An answer that we cannot unpack may be one that its client can.
#[tokio::test]
async fn hole_05_answers_that_cannot_be_unpacked_do_not_pass() {
    for stream in [false, true] {
        let body = match stream {
            true => Speech::Chat.events(&evil()).concat(),
            false => Speech::Chat.whole(&evil()).to_string().into_bytes(),
        };
        let mut garbage = pack("gzip", std::slice::from_ref(&body)).concat();
        garbage.extend_from_slice(b"and more");
        for (what, encoding, bytes) in [
            ("an unknown encoding", "compress", body.clone()),
            ("two encodings", "gzip, gzip", body.clone()),
            ("garbage behind it", "gzip", garbage),
        ] {
            let length = bytes.len().to_string();
            let head = [
                ("Content-Type", if stream { "text/event-stream" } else { "application/json" }),
                ("Content-Encoding", encoding),
                ("Content-Length", &length),
            ];
            let reply = Reply::head(200, &head).then(Step::Raw(bytes.clone()));
            let gate = answering(reply).await;
            let got = gate.ask(&asks(Speech::Chat, stream)).await;
            let passed = got.body.windows(bytes.len()).any(|window| window == bytes);
            let fine = !passed && (stream || got.status >= 400);
            assert!(fine, "{what}, stream {stream}: {} {} {passed}", got.status, got.text());
        }
    }
}

/// What is not read is not judged, so a stream that holds more than is read breaks off.
#[tokio::test]
async fn hole_05_a_stream_that_holds_more_than_is_read_breaks_off() {
    let call = |arguments: &str| {
        let function = json!({ "name": "read_file", "arguments": arguments });
        let call = json!({ "index": 0, "id": "c1", "type": "function", "function": function });
        let choice = json!({ "index": 0, "delta": { "tool_calls": [call] } });
        format!("data: {}\n\n", json!({ "choices": [choice] }))
    };
    let padding = " ".repeat(1 << 20);
    let long = [call("{\"path\":\"")].into_iter().chain((0..20).map(|_| call(&padding)));
    let long: Vec<Vec<u8>> = long.map(String::into_bytes).collect();
    let large = vec![call(&" ".repeat(17 << 20)).into_bytes()];
    for (what, chunks) in [("long arguments", long), ("a large event", large)] {
        let mut chunks = chunks;
        chunks.push(b"data: [DONE]\n\n".to_vec());
        let gate = answering(Reply::events(&chunks)).await;
        let got = gate.ask(&asks(Speech::Chat, true)).await;
        assert!(!got.complete, "{what}: {} bytes passed", got.body.len());
        assert!(!got.text().contains("[DONE]"), "{what}");
    }
}

/// Half of a surrogate pair, `NaN`, numbers without end and depth: clients read on.
#[tokio::test]
async fn hole_05_json_that_only_lenient_clients_read_is_inspected() {
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    for odd in ["NaN", "-Infinity", "1e999", "\"x\\ud800\"", &deep] {
        for speech in [Speech::Chat, Speech::Responses, Speech::Anthropic, Speech::Gemini] {
            let body = speech.whole(&evil()).to_string();
            // Beside the calls, where we look, and where we do not.
            for member in ["usage", "usageMetadata", "model", "id", "other"] {
                let answer = format!("{{\"{member}\":{odd},{}", &body[1..]);
                let gate = answering(Reply::of(200, "application/json", answer.as_bytes())).await;
                let got = gate.ask(&asks(speech, false)).await;
                assert_eq!(got.status, 403, "{member} {odd:.20}: {}", got.text());
            }
        }
    }
}
