//! Tool calls that reach a client in other ways than a model's answer: Ollama's own API, assistants' runs, batches,
//! failures, other widths of letters; and ways to a model that do not pass the gateway.

use serde_json::{Value, json};

use crate::packing::pack;
use crate::support::{Ask, Gate, Got, Reply, Said, Speech, Step, Turn};

fn deny() -> Value {
    json!({ "access": { "deny": ["delete_*"] } })
}

fn evil() -> Said {
    Said::call("c1", "delete_asset", json!({ "path": "a" }))
}

/// What a client gets whose provider answers with this.
async fn answered(ask: Ask, reply: Reply) -> (Gate, Got) {
    let gate = Gate::start(deny(), move |_| reply.clone()).await;
    let got = gate.ask(&ask.by("worker", "s1")).await;
    (gate, got)
}

async fn refused(what: &str, ask: Ask, reply: Reply) -> Gate {
    let (gate, got) = answered(ask, reply).await;
    assert!(got.text().contains("is denied"), "{what}: {} {}", got.status, got.text());
    gate
}

fn lines(lines: &[Value]) -> Vec<u8> {
    lines.iter().map(|line| format!("{line}\n")).collect::<String>().into_bytes()
}

#[tokio::test]
async fn hole_05_ollamas_own_api_is_inspected() {
    let function = json!({ "name": "delete_asset", "arguments": { "path": "a" } });
    let message =
        json!({ "role": "assistant", "content": "", "tool_calls": [{ "function": function }] });
    let call = json!({ "model": "llama3", "message": message, "done": false });
    let done =
        json!({ "model": "llama3", "message": { "content": "" }, "done": true, "eval_count": 7 });
    let messages = json!([{ "role": "user", "content": "Tidy up" }]);
    let stream = lines(&[call.clone(), done]);
    for kind in ["application/x-ndjson", "application/json", "text/event-stream"] {
        // It streams unless it is told not to.
        let ask = Ask::post("/own/api/chat", &json!({ "model": "llama3", "messages": messages }));
        let gate = refused(kind, ask, Reply::of(200, kind, &stream)).await;
        assert_eq!(gate.scope("s1").await["model_calls"], 1, "{kind}");
    }
    let body = json!({ "model": "llama3", "messages": messages, "stream": false });
    let (_, got) = answered(Ask::post("/own/api/chat", &body), Reply::json(200, &call)).await;
    assert_eq!(got.status, 403, "{}", got.text());
    // Its clients want a text for an error.
    assert!(
        got.json()["error"].as_str().is_some_and(|error| error.contains("is denied")),
        "{}",
        got.text()
    );
    let body = json!({ "model": "llama3", "prompt": "Tidy up" });
    let generated =
        json!({ "response": "", "tool_calls": [{ "function": function }], "done": true });
    refused(
        "generate",
        Ask::post("/own/api/generate", &body),
        Reply::of(200, "application/x-ndjson", &lines(&[generated])),
    )
    .await;
    // A stream without a denied call passes as it is, line by line.
    let fine =
        lines(&[json!({ "message": { "content": "Hi" }, "done": false }), json!({ "done": true })]);
    let ask = Ask::post("/own/api/chat", &json!({ "model": "llama3", "messages": messages }));
    let (_, got) = answered(ask, Reply::of(200, "application/x-ndjson", &fine)).await;
    assert_eq!((got.status, &got.body), (200, &fine));
}

#[tokio::test]
async fn hole_05_runs_of_assistants_are_inspected() {
    let function = json!({ "name": "delete_asset", "arguments": "{\"path\":\"a\"}" });
    let call = json!({ "id": "c1", "type": "function", "function": function });
    let action =
        json!({ "type": "submit_tool_outputs", "submit_tool_outputs": { "tool_calls": [call] } });
    let run = json!({ "id": "run_1", "object": "thread.run", "status": "requires_action", "required_action": action });
    let steps = json!({ "object": "list", "data": [{ "step_details": { "type": "tool_calls", "tool_calls": [call] } }] });
    let threads = "/openai/v1/threads/t_1/runs";
    let body = json!({ "assistant_id": "a_1", "model": "gpt-5" });
    for (what, ask, answer) in [
        ("a run", Ask::post(threads, &body), &run),
        ("a thread and a run", Ask::post("/openai/v1/threads/runs", &body), &run),
        ("polling", Ask::get(&format!("{threads}/run_1")), &run),
        ("a list", Ask::get(threads), &json!({ "object": "list", "data": [run] })),
        ("steps", Ask::get(&format!("{threads}/run_1/steps")), &steps),
        (
            "outputs",
            Ask::post(
                &format!("{threads}/run_1/submit_tool_outputs"),
                &json!({
                    "tool_outputs": [{ "tool_call_id": "c0", "output": "done" }],
                }),
            ),
            &run,
        ),
    ] {
        refused(what, ask, Reply::json(200, answer)).await;
    }
    let events =
        format!("event: thread.run.requires_action\ndata: {run}\n\nevent: done\ndata: [DONE]\n\n");
    let body = json!({ "assistant_id": "a_1", "stream": true });
    refused(
        "a stream",
        Ask::post(threads, &body),
        Reply::of(200, "text/event-stream", events.as_bytes()),
    )
    .await;
}

#[tokio::test]
async fn hole_05_results_of_batches_are_inspected() {
    let chat = Speech::Chat.whole(&evil());
    let line =
        json!({ "id": "b", "custom_id": "1", "response": { "status_code": 200, "body": chat } });
    let fine = json!({ "id": "b", "custom_id": "0", "response": { "body": Speech::Chat.whole(&Said::text("Hi")) } });
    let message = json!({ "custom_id": "1", "result": { "type": "succeeded", "message": Speech::Anthropic.whole(&evil()) } });
    let gemini = json!({ "response": { "inlinedResponses": { "inlinedResponses": [{ "response": Speech::Gemini.whole(&evil()) }] } } });
    for (path, kind, answer) in [
        (
            "/openai/v1/files/f_1/content",
            "application/octet-stream",
            lines(&[fine.clone(), line.clone()]),
        ),
        ("/openai/v1/files/f_1/content", "application/json", lines(&[line])),
        ("/anthropic/v1/messages/batches/b_1/results", "application/binary", lines(&[message])),
        ("/gemini/v1beta/batches/b_1", "application/json", gemini.to_string().into_bytes()),
    ] {
        refused(path, Ask::get(path), Reply::of(200, kind, &answer)).await;
    }
    // A file of another kind passes, whatever is in it, and so does a harmless one.
    let mut picture = b"\x89PNG\r\n\x1a\n".to_vec();
    picture
        .extend(lines(&[json!({ "tool_calls": [{ "name": "delete_asset", "arguments": {} }] })]));
    for file in [picture, lines(&[fine])] {
        let ask = Ask::get("/openai/v1/files/f_1/content");
        let (_, got) = answered(ask, Reply::of(200, "application/octet-stream", &file)).await;
        assert_eq!((got.status, &got.body), (200, &file));
    }
}

#[tokio::test]
async fn hole_05_answers_in_another_dialect_are_inspected() {
    // Only the body says that it may be OpenAI's; the provider has an API of its own.
    for speech in [Speech::Responses, Speech::Anthropic, Speech::Gemini] {
        let body = Speech::Chat.request(false, &[Turn::User("Tidy up".into())]);
        let reply = Reply::json(200, &speech.whole(&evil()));
        refused("whole", Ask::post("/own/v9/talk", &body), reply).await;
        let body = Speech::Chat.request(true, &[Turn::User("Tidy up".into())]);
        let reply = Reply::events(&speech.events(&evil()));
        refused("a stream", Ask::post("/own/v9/talk", &body), reply).await;
    }
    // A request of a form that we do not know.
    let answer = json!({ "text": "", "tool_calls": [{ "name": "delete_asset", "parameters": { "path": "a" } }] });
    let ask = Ask::post("/own/v1/chat", &json!({ "message": "Tidy up" }));
    refused("a form of its own", ask, Reply::json(200, &answer)).await;
}

/// Clients that do not look at the status read the body of a failure like that of an answer.
#[tokio::test]
async fn hole_05_failures_with_calls_in_them_are_inspected() {
    for speech in [Speech::Chat, Speech::Responses, Speech::Anthropic, Speech::Gemini] {
        for status in [300, 400, 404, 429, 500, 503] {
            let reply = Reply::json(status, &speech.whole(&evil()));
            refused(&status.to_string(), speech.says(false, "Tidy up"), reply).await;
        }
    }
    // A failure without one passes as it is.
    let failure = json!({ "error": { "message": "slow down", "type": "rate_limit_error" } });
    let (_, got) = answered(Speech::Chat.says(false, "Tidy up"), Reply::json(429, &failure)).await;
    assert_eq!((got.status, got.json()), (429, failure));
}

fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// Python's `json` reads UTF-16 and UTF-32, in requests and in answers.
#[tokio::test]
async fn hole_05_other_widths_of_letters_are_inspected() {
    for speech in [Speech::Chat, Speech::Responses, Speech::Anthropic, Speech::Gemini] {
        let answer = wide(&speech.whole(&evil()).to_string());
        let reply = Reply::of(200, "application/json", &answer);
        refused("an answer", speech.says(false, "Tidy up"), reply).await;
    }
    // A request to a path that we do not know is judged by its body.
    let body = Speech::Chat.request(false, &[Turn::User("Tidy up".into())]).to_string();
    for odd in [wide(&body), [b"\xff\xfe".to_vec(), wide(&body)].concat()] {
        let mut ask = Ask::post("/own/v9/talk", &Value::Null);
        ask.body = odd.clone();
        let gate = refused("a request", ask, Reply::json(200, &Speech::Chat.whole(&evil()))).await;
        assert_eq!(gate.upstream.last().body, odd, "it is sent on as it came");
        assert_eq!(gate.scope("s1").await["model_calls"], 1);
    }
    // And so is one that only lenient servers read.
    let mut ask = Ask::post("/own/v9/talk", &Value::Null);
    ask.body = format!("{{\"odd\":NaN,{}", &body[1..]).into_bytes();
    refused("a lenient request", ask, Reply::json(200, &Speech::Chat.whole(&evil()))).await;
    // What is in another character set, or in no text at all, is not passed on.
    let answer = Speech::Chat.whole(&evil()).to_string().into_bytes();
    for (kind, body) in [
        ("application/json; charset=utf-7", answer.clone()),
        ("application/json;charset=\"IBM037\"", answer.clone()),
        ("application/vnd.amazon.eventstream", answer),
        ("application/octet-stream", b"\x01\x02\x03 delete_asset".to_vec()),
    ] {
        let (_, got) =
            answered(Speech::Chat.says(false, "Tidy up"), Reply::of(200, kind, &body)).await;
        assert_eq!(got.status, 502, "{kind}: {}", got.text());
    }
}

/// A request that cannot be read is not judged, so it is not sent on.
#[tokio::test]
async fn hole_03_requests_that_cannot_be_unpacked_are_refused() {
    let body = Speech::Chat.request(false, &[Turn::User("Tidy up".into())]).to_string();
    for encoding in ["compress", "gzip, gzip", "gzip"] {
        let mut ask = Ask::post("/own/v9/talk", &Value::Null);
        ask.body = body.clone().into_bytes();
        let reply = Reply::json(200, &Speech::Chat.whole(&evil()));
        let (gate, got) = answered(ask.with("content-encoding", encoding), reply).await;
        assert_eq!(got.status, 415, "{encoding}: {}", got.text());
        assert_eq!(gate.upstream.requests(), 0, "{encoding}");
    }
}

/// Some servers send `deflate` without the header that belongs to it.
#[tokio::test]
async fn hole_05_a_raw_deflate_is_inspected() {
    let zlib = pack("deflate", &[Speech::Chat.whole(&evil()).to_string().into_bytes()]).concat();
    // The header has two bytes, the checksum four.
    let raw = &zlib[2..zlib.len() - 4];
    let length = raw.len().to_string();
    let head = [
        ("Content-Type", "application/json"),
        ("Content-Encoding", "deflate"),
        ("Content-Length", &length),
    ];
    let reply = Reply::head(200, &head).then(Step::Raw(raw.to_vec()));
    refused("raw", Speech::Chat.says(false, "Tidy up"), reply).await;
}

/// A session that goes on over WebRTC, a WebSocket or a phone line does not pass the gateway any more.
#[tokio::test]
async fn hole_03_sessions_beside_the_gateway_are_not_opened() {
    for path in [
        "/openai/v1/realtime/calls",
        "/openai/v1/realtime/client_secrets",
        "/openai/v1/re%61ltime/sessions",
        "/openai/v1/live/sessions",
        "/openai/v1/chatkit/sessions",
        "/gemini/v1alpha/auth_tokens",
    ] {
        let ask = Ask::post(path, &json!({ "model": "gpt-realtime" }));
        let (gate, got) = answered(ask, Reply::json(200, &json!({}))).await;
        assert_eq!(got.status, 403, "{path}: {}", got.text());
        assert_eq!(gate.upstream.requests(), 0, "{path}");
    }
}

/// Anthropic's SDK fetches the results of a batch at the address that the batch names.
#[tokio::test]
async fn hole_03_a_batch_does_not_lead_past_the_gateway() {
    let batch = json!({
        "id": "b_1", "type": "message_batch", "processing_status": "ended",
        "results_url": "https://api.anthropic.com/v1/messages/batches/b_1/results",
    });
    for (path, answer) in [
        ("/anthropic/v1/messages/batches/b_1", batch.clone()),
        ("/anthropic/v1/messages/batches", json!({ "data": [batch] })),
    ] {
        let ask = Ask::get(path).with("accept-encoding", "gzip");
        let (gate, got) = answered(ask, Reply::json(200, &answer)).await;
        assert_eq!(got.status, 200, "{}", got.text());
        let near = answer.to_string().replace("https://api.anthropic.com", "");
        assert_eq!(got.text(), near, "{path}");
        assert_eq!(gate.upstream.last().header("accept-encoding"), Some("identity"));
    }
}

fn strict() -> Value {
    json!({ "harm": { "enabled": true, "unreadable": "ask" }, "access": { "deny": ["delete_*"] } })
}

/// A client follows a redirect to the results of a batch. Many providers keep files elsewhere, so it is refused
/// only where the policy wants it.
#[tokio::test]
async fn hole_03_results_of_files_do_not_lie_elsewhere() {
    let away = [("Location", "http://127.0.0.1:1/results"), ("Content-Length", "0")];
    for path in ["/openai/v1/files/f_1/content", "/anthropic/v1/messages/batches/b_1/results"] {
        let gate = Gate::start(strict(), move |_| Reply::head(302, &away)).await;
        let got = gate.ask(&Ask::get(path).by("worker", "s1")).await;
        assert_eq!(got.status, 502, "{path}: {}", got.text());
        let (gate, got) = answered(Ask::get(path), Reply::head(302, &away)).await;
        assert_eq!((got.status, got.header("location")), (302, Some(away[0].1)), "{path}");
        let warning = got.header("x-deadstop-warning").unwrap_or_default();
        assert!(warning.contains("lies elsewhere"), "{path}: {warning}");
        assert!(
            gate.ask(&Ask::get("/metrics")).await.text().contains("deadstop_unread_total 1"),
            "{path}"
        );
        // A model is asked here or not at all, and so is what only its body may tell.
        for ask in [
            Speech::Chat.says(false, "Tidy up"),
            Ask::post("/own/v1/chat", &json!({ "message": "Tidy up" })),
        ] {
            assert_eq!(gate.ask(&ask.by("worker", "s1")).await.status, 502, "{path}");
        }
    }
}

/// An answer of no dialect that is too large to be read as a whole is read as it passes.
#[tokio::test]
async fn hole_05_large_answers_of_no_dialect_are_inspected() {
    let call = json!({ "tool_calls": [{ "name": "delete_asset", "parameters": { "path": "a" } }] });
    let page = json!({ "text": "y".repeat(1 << 20) }).to_string();
    let many = format!("{page},").repeat(40);
    let pages =
        |first: &str, last: &str| format!("{{\"pages\":[{first},{many}{last}]}}").into_bytes();
    let json = |body: &[u8]| Reply::of(200, "application/json", body);
    let post = || Ask::post("/own/v1/ocr", &json!({ "document": "d" }));

    for ask in [post(), Ask::get("/own/v1/files/f_1/content")] {
        let fine = pages("{}", &page);
        let (_, got) = answered(ask.clone(), json(&fine)).await;
        assert_eq!((got.status, got.complete, got.body == fine), (200, true, true), "{}", ask.path);
        // The call is behind what was read before anything passed.
        let late = pages("{}", &call.to_string());
        let (_, got) = answered(ask.clone(), json(&late)).await;
        assert!(got.status == 200 && got.body.len() < late.len(), "{}: {}", ask.path, got.status);
        assert!(!got.text().contains("parameters"), "{}", ask.path);
    }
    // And this one before it: nothing has passed, so that the client is told.
    let early = json(&pages(&call.to_string(), &page));
    refused("early", post(), early).await;
    // An object that is too large itself was not read whole.
    let reply = json(&pages("{}", &page));
    let gate = Gate::start(strict(), move |_| reply.clone()).await;
    let got = gate.ask(&post().by("worker", "s1")).await;
    assert!(got.status == 502 || !got.complete, "{}", got.status);
    // A picture within an object has no parts.
    let picture =
        json!({ "data": [{ "b64_json": "A".repeat(33 << 20) }] }).to_string().into_bytes();
    let (_, got) = answered(post(), json(&picture)).await;
    assert_eq!((got.status, got.complete, got.body.len()), (200, true, picture.len()));
}

/// Embeddings are larger than what is read, packed or not.
#[tokio::test]
async fn large_embeddings_pass() {
    let body = json!({ "data": [{ "embedding": "A".repeat(33 << 20) }] }).to_string().into_bytes();
    let ask = || Ask::post("/openai/v1/embeddings", &json!({ "model": "m", "input": ["a"] }));
    let (_, got) = answered(ask(), Reply::of(200, "application/json", &body)).await;
    assert_eq!((got.status, got.complete, got.body.len()), (200, true, body.len()));
    let packed = pack("gzip", &[body]).concat();
    let length = packed.len().to_string();
    let head = [
        ("Content-Type", "application/json"),
        ("Content-Encoding", "gzip"),
        ("Content-Length", &length),
    ];
    let reply = Reply::head(200, &head).then(Step::Raw(packed.clone()));
    let (_, got) = answered(ask(), reply).await;
    assert_eq!((got.status, got.complete, got.body.len()), (200, true, packed.len()));
}

/// A file may be packed in a way that only its client knows.
#[tokio::test]
async fn a_file_in_an_unknown_packing_passes() {
    let head = [
        ("Content-Type", "application/octet-stream"),
        ("Content-Encoding", "aws-chunked"),
        ("Content-Length", "2"),
    ];
    let reply = Reply::head(200, &head).then(Step::Raw(b"{}".to_vec()));
    let ask = Ask::get("/own/v1/files/f_1/content");
    let (_, got) = answered(ask.clone(), reply.clone()).await;
    assert_eq!((got.status, got.complete, got.text().as_str()), (200, true, "{}"));
    let gate = Gate::start(strict(), move |_| reply.clone()).await;
    let got = gate.ask(&ask.by("worker", "s1")).await;
    assert!(!got.complete || got.status == 502, "{}", got.status);
}

/// A form with files asks no model, so it may be larger than any body that is read.
#[tokio::test]
async fn large_files_are_sent_on_as_they_arrive() {
    let form = |path: &str, kind: &str| {
        let mut ask = Ask::of("POST", path, None).with("content-type", kind);
        ask.body = vec![b'x'; 3 << 20];
        ask.by("worker", "s1")
    };
    let multipart = "multipart/form-data; boundary=b";
    for (policy, path, kind, expected) in [
        (deny(), "/openai/v1/files", multipart, 200),
        (deny(), "/openai/v1/files", "application/json", 413),
        (deny(), "/openai/v1/chat/completions", multipart, 413),
        (strict(), "/openai/v1/files", multipart, 413),
    ] {
        let answer = |_: &_| Reply::json(200, &json!({ "id": "file_1" }));
        let gate = Gate::with(policy, answer, |config| config.max_body = 1 << 20).await;
        let ask = form(path, kind);
        let got = gate.ask(&ask).await;
        assert_eq!(got.status, expected, "{path} {kind}: {}", got.text());
        if expected == 200 {
            assert!(gate.upstream.last().body == ask.body, "the whole file is there");
        }
    }
}

/// A client that fetches an answer in parts sees a call of which no part is one.
#[tokio::test]
async fn hole_05_answers_are_not_fetched_in_parts() {
    let answer = |_: &_| Reply::json(200, &json!({}));
    for (policy, path, passes) in [
        (deny(), "/openai/v1/responses/resp_1", false),
        (deny(), "/openai/v1/files/f_1/content", true),
        (strict(), "/openai/v1/files/f_1/content", false),
    ] {
        let gate = Gate::start(policy, answer).await;
        gate.ask(&Ask::get(path).with("range", "bytes=0-9").by("worker", "s1")).await;
        assert_eq!(gate.upstream.last().header("range").is_some(), passes, "{path}");
    }
}
