//! When things go wrong at either end: what the client gets to see, what is counted, and what must
//! never be written down.

use std::io::Write;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::dialect::chat_chunk;
use crate::support::{ALL, Ask, Gate, Got, PATIENCE, Reply, Said, Seen, Speech, Step, soon, until};

fn hello() -> Ask {
    Speech::Chat.says(false, "Hello there")
}

/// An upstream that does as a header says.
fn faulty(seen: &Seen) -> Reply {
    match seen.header("x-fault").unwrap_or_default() {
        "reset" => Reply::default().then(Step::Reset),
        "close" => Reply::default().then(Step::Close),
        "garbage" => Reply::default().then(Step::Raw(b"\x00\x01 this is no HTTP\r\n\r\n".to_vec())),
        "hang" => Reply::default().then(Step::Hang),
        "cut json" => {
            Reply::head(200, &[("Content-Type", "application/json"), ("Content-Length", "500")])
                .then(Step::Raw(b"{\"choices\":[{".to_vec()))
                .then(Step::Close)
        }
        "cut stream" => Reply::stream()
            .then(Step::Chunk(chat_chunk(&json!({ "content": "Once" }), None)))
            .then(Step::Sleep(Duration::from_millis(50)))
            .then(Step::Reset),
        "no json" => Reply::of(200, "application/json", b"<html>oops</html>"),
        "error event" => Reply::stream()
            .then(Step::Chunk(b"data: {\"error\":{\"message\":\"overloaded\"}}\n\n".to_vec()))
            .then(Step::End),
        "" => Speech::Chat.reply(false, &Said::text("Hello")),
        status => Reply::json(status.parse().unwrap(), &json!({ "error": { "message": "no" } })),
    }
}

/// No strikes, so that failures only meet the breaker.
fn breaking() -> Value {
    json!({ "strikes": { "enabled": false }, "breaker": { "open_after_failures": 3 } })
}

#[tokio::test]
async fn faults_of_the_upstream_are_passed_on_and_open_the_breaker() {
    let gate = Gate::with(breaking(), faulty, |config| {
        config.upstream_timeout = Duration::from_millis(300);
    })
    .await;
    for (fault, status) in [
        ("500", 500),
        ("503", 503),
        ("529", 529),
        ("reset", 502),
        ("close", 502),
        ("garbage", 502),
        ("hang", 502),
        ("cut json", 502),
        ("cut stream", 200),
        ("no json", 200),
        ("error event", 200),
    ] {
        let stream = fault.contains("stream") || fault.contains("event");
        let ask = Speech::Chat.says(stream, "Hello there").with("x-fault", fault);
        for failure in 0..3 {
            let got = gate.ask(&ask.clone().by(fault, "s")).await;
            assert_eq!(got.status, status, "{fault} {failure}: {}", got.text());
            match fault {
                "500" | "503" | "529" => assert_eq!(got.json()["error"]["message"], "no"),
                "cut stream" => {
                    // Broken off here as it was there, and not ended as if nothing had happened.
                    assert!(got.text().contains("Once") && !got.complete, "{}", got.text());
                }
                "no json" => assert_eq!(got.text(), "<html>oops</html>"),
                "error event" => assert!(got.complete && got.text().contains("overloaded")),
                _ => {
                    let message = got.json()["error"]["message"].clone();
                    assert!(message.as_str().unwrap().contains("upstream"), "{fault}: {message}");
                }
            }
        }
        let refused = gate.ask(&hello().by(fault, "s")).await;
        assert_eq!(refused.status, 429, "{fault}: the breaker is not open");
        assert!(
            refused.header("retry-after").is_some() && refused.header("x-should-retry").is_none()
        );
        let error = refused.json()["error"].clone();
        assert_eq!(error["deadstop"]["guard"], "breaker", "{error}");
        // Another provider, and another agent, are not to blame.
        let other = Speech::Anthropic.says(false, "Hello there").by(fault, "s");
        assert_eq!(gate.ask(&other).await.status, 200, "{fault}");
        assert_eq!(gate.ask(&hello().by("other", "s")).await.status, 200, "{fault}");
        assert_eq!(gate.scope(fault).await["in_flight"], 0);
    }
}

#[tokio::test]
async fn a_clients_own_mistakes_are_passed_on() {
    let gate = Gate::start(json!({ "breaker": { "enabled": false } }), faulty).await;
    for status in ["400", "401", "404", "413", "422", "429"] {
        for _ in 0..20 {
            let got = gate.ask(&hello().by("a", "s").with("x-fault", status)).await;
            assert_eq!(got.status.to_string(), status);
            assert_eq!(got.json()["error"]["message"], "no");
        }
    }
    let scope = gate.scope("s").await;
    assert_eq!((&scope["state"], &scope["cost_usd"]), (&json!("running"), &json!(0.0)), "{scope}");
}

#[tokio::test]
async fn failures_in_a_row_end_the_session_where_the_policy_says_so() {
    let strikes = json!({ "consecutive_errors": 4, "provider_errors": true });
    let policy = json!({ "breaker": { "enabled": false }, "strikes": strikes });
    let gate = Gate::start(policy, faulty).await;
    for _ in 0..4 {
        let got = gate.ask(&hello().by("a", "s").with("x-fault", "500")).await;
        assert_eq!(got.status, 500);
    }
    let got = gate.ask(&hello().by("a", "s")).await;
    assert_eq!((got.status, got.header("x-should-retry")), (403, Some("false")), "{}", got.text());
    assert_eq!(gate.scope("s").await["state"], "killed");
    let incident = gate.incident().await;
    assert_eq!(incident["guard"], "strikes");
    let why = "4 provider errors in a row (500 from openai, limit 4)";
    assert!(incident.to_string().contains(why), "{incident}");
    assert_eq!(got.header("x-deadstop-incident"), incident["id"].as_str());
    assert_eq!(gate.ask(&hello().by("a", "t")).await.status, 200);
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_a_bad_gateway() {
    // A port that was free a moment ago.
    let absent = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let gate = Gate::with(breaking(), faulty, |config| {
        for provider in config.providers.values_mut() {
            provider.base_url = format!("http://{absent}").parse().unwrap();
        }
    })
    .await;
    for speech in ALL {
        let got = gate.ask(&speech.says(true, "Hello there").by("a", "s")).await;
        assert_eq!(got.status, 502, "{speech:?}");
        let error = got.json()["error"].clone();
        assert!(error["message"].as_str().unwrap().contains("cannot be reached"), "{error}");
        if speech == Speech::Anthropic {
            assert_eq!(
                (&got.json()["type"], &error["type"]),
                (&json!("error"), &json!("api_error"))
            );
        }
    }
    assert_eq!(gate.scope("s").await["cost_usd"], 0.0);
}

#[tokio::test]
async fn what_is_too_large_unknown_or_too_much_is_said_so() {
    let gate = Gate::with(json!({}), faulty, |config| {
        config.max_body = 10_000;
        config.max_in_flight = 2;
    })
    .await;
    for chunked in [None, Some(1000)] {
        let mut ask = hello();
        ask.body = vec![b'x'; 20_000];
        ask.chunked = chunked;
        assert_eq!(gate.ask(&ask).await.status, 413);
    }
    for path in ["/none/v1/chat/completions", "/agent/a/none/v1/x", "/agent/a", "/api/nothing"] {
        let got = gate.ask(&Ask::post(path, &json!({}))).await;
        assert_eq!(got.status, 404, "{path}: {}", got.text());
    }
    assert_eq!(gate.upstream.requests(), 0);

    // Two calls hang; the third is shed before its body is read.
    let held: Vec<_> = (0..2)
        .map(|_| {
            let (ask, address) = (hello().with("x-fault", "hang"), gate.address);
            tokio::spawn(async move { ask.send(address).await.head().await })
        })
        .collect();
    gate.upstream.answering(2).await;
    let got = gate.ask(&hello()).await;
    assert_eq!(got.status, 503, "{}", got.text());
    assert_eq!(gate.ask(&Ask::get("/api/status")).await.status, 200);
    held.iter().for_each(tokio::task::JoinHandle::abort);
    until("room again", async || gate.ask(&hello()).await.status == 200).await;
}

#[tokio::test]
async fn pages_of_other_origins_are_kept_out() {
    let gate = Gate::start(json!({}), faulty).await;
    let port = gate.address.port();
    for (name, value, expected) in [
        ("Host", format!("127.0.0.1:{port}"), 200),
        ("Host", format!("localhost:{port}"), 200),
        ("Host", format!("evil.example:{port}"), 403),
        ("Host", "127.0.0.1.evil.example".to_owned(), 403),
        ("Origin", format!("http://127.0.0.1:{port}"), 200),
        ("Origin", format!("http://localhost:{port}"), 200),
        ("Origin", "http://127.0.0.1:9999".to_owned(), 403),
        ("Origin", "https://evil.example".to_owned(), 403),
        ("Origin", format!("http://evil.example:{port}"), 403),
        ("Origin", "null".to_owned(), 403),
    ] {
        for ask in [hello(), Ask::get("/api/status"), Ask::get("/healthz"), Ask::get("/")] {
            let path = ask.path.clone();
            let got = gate.ask(&ask.with(name, &value)).await;
            assert_eq!(got.status, expected, "{path} with {name}: {value}");
        }
    }
    // A page cannot send JSON without asking first, and what it can send is not understood.
    let mut order = Ask::post("/api/kill", &json!({ "all": true }));
    order.headers = vec![("content-type".into(), "text/plain".into())];
    assert_eq!(gate.ask(&order).await.status, 415);
    assert_eq!(gate.project().await["state"], "running");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graceful_stop_settles_what_is_in_flight() {
    let gate = Gate::start(json!({ "text_loop": { "enabled": false } }), |seen: &Seen| {
        if seen.header("x-fault").is_some() {
            return faulty(seen);
        }
        let mut reply = Reply::stream();
        for number in 0..20 {
            let text = format!("{number:040}");
            reply = reply
                .then(Step::Tokens(chat_chunk(&json!({ "content": text }), None), 10))
                .then(Step::Sleep(Duration::from_millis(20)));
        }
        reply.then(Step::Chunk(b"data: [DONE]\n\n".to_vec())).then(Step::End)
    })
    .await;
    let mut ends: Vec<tokio::task::JoinHandle<Got>> = Vec::new();
    for number in 0..5 {
        let ask = Speech::Chat.says(true, "Hello there").by("a", &format!("s{number}"));
        let address = gate.address;
        ends.push(tokio::spawn(async move { ask.send_to(address).await }));
    }
    gate.upstream.answering(5).await;
    let gate = soon("the restart", gate.restart(json!({}))).await;
    for end in ends {
        let got = soon("a stream", end).await.unwrap();
        assert!(got.complete && got.text().contains("[DONE]"), "cut off: {}", got.text());
    }
    for number in 0..5 {
        // Known again when it is used again.
        let session = format!("s{number}");
        gate.ask(&hello().by("a", &session).with("x-fault", "400")).await;
        let scope = gate.scope(&session).await;
        assert_eq!(scope["output_tokens"], 200, "{scope}");
        assert_eq!((&scope["in_flight"], &scope["reserved_usd"]), (&json!(0), &json!(0.0)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_does_not_end_is_not_waited_for_but_paid() {
    let gate = Gate::start(json!({ "text_loop": { "enabled": false } }), |seen: &Seen| {
        if seen.header("x-fault").is_some() {
            return faulty(seen);
        }
        let mut reply = Reply::stream();
        let event = |number| chat_chunk(&json!({ "content": format!("{number:040}") }), None);
        reply.0.extend((0..5).map(|number| Step::Tokens(event(number), 10)));
        reply.then(Step::Hang)
    })
    .await;
    let ask = Speech::Chat.says(true, "Hello there").by("a", "s");
    let mut open = soon("the stream", ask.open(gate.address)).await.unwrap();
    open.until(&format!("{:040}", 4)).await;
    let gate = soon("the restart", gate.restart(json!({}))).await;
    gate.ask(&hello().by("a", "s").with("x-fault", "400")).await;
    let scope = gate.scope("s").await;
    assert!(scope["output_tokens"].as_u64().unwrap() >= 50, "{scope}");
    assert_eq!((&scope["in_flight"], &scope["reserved_usd"]), (&json!(0), &json!(0.0)), "{scope}");
    // No connection is left at either end.
    let rest = tokio::time::timeout(PATIENCE, open.rest()).await;
    assert!(rest.is_ok(), "the client hangs on a server that is gone");
    gate.upstream.answering(0).await;
}

/// A place for logs to go to.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What all threads of this program log. Calls are served by threads of the server's own.
fn logged() -> Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    let start = || {
        let log = Log::default();
        let writer = log.clone();
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
            .with_writer(move || writer.clone())
            .init();
        log
    };
    LOG.get_or_init(start).clone()
}

#[tokio::test]
async fn secrets_are_neither_stored_nor_logged() {
    let log = logged();
    tracing::info!("the log is taken");

    let secrets = ["sk-secret-one", "sk-ant-secret-two", "goog-secret-three", "cookie-secret-four"];
    let held = "sk-the-servers-own";
    let policy = json!({
        "preset": "strict", "access": { "deny": ["delete_*"] },
        "breaker": { "open_after_failures": 2 },
    });
    let gate = Gate::with(
        policy,
        |seen: &Seen| match seen.header("x-fault") {
            Some(_) => faulty(seen),
            None => {
                Speech::Chat.reply(false, &Said::call("c", "delete_asset", json!({ "path": "x" })))
            }
        },
        |config| {
            let mut own = config.providers["openai"].clone();
            own.key = Some(deadstop_server::Secret::new(held));
            config.providers.insert("held".to_owned(), own);
        },
    )
    .await;
    for fault in ["", "500", "reset", "garbage", "401"] {
        for path in ["/openai/v1/chat/completions", "/held/v1/chat/completions"] {
            let mut ask = hello()
                .by("a", fault)
                .with("Authorization", &format!("Bearer {}", secrets[0]))
                .with("x-api-key", secrets[1])
                .with("Cookie", secrets[3]);
            ask.path = format!("{path}?key={}", secrets[2]);
            if !fault.is_empty() {
                ask = ask.with("x-fault", fault);
            }
            let got = gate.ask(&ask).await;
            assert!(!got.text().contains("secret"), "{fault}: {}", got.text());
            assert!(!got.text().contains(held), "{fault}: {}", got.text());
        }
    }
    // The client's own key passes; where the server holds one, that one does.
    gate.ask(&hello().by("b", "s").with("Authorization", "Bearer mine")).await;
    assert_eq!(gate.upstream.last().header("authorization"), Some("Bearer mine"));
    let ask = hello().by("b", "s").with("Authorization", "Bearer mine").with("x-api-key", "mine");
    gate.ask(&Ask { path: "/held/v1/chat/completions".into(), ..ask }).await;
    let seen = gate.upstream.last();
    assert_eq!(seen.header("authorization"), Some(format!("Bearer {held}").as_str()));
    assert_eq!(seen.header("x-api-key"), None);
    gate.order("kill", json!({ "agent": "a", "reason": "enough" })).await;
    let status = gate.ask(&Ask::get("/api/status")).await.text();
    let incidents = gate.ask(&Ask::get("/api/incidents")).await.text();

    let (_, folder) = gate.stop().await;
    let mut written = vec![("the log".to_owned(), log.0.lock().clone())];
    written.push(("the status".to_owned(), status.into()));
    written.push(("the incidents".to_owned(), incidents.into()));
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let path = file.unwrap().path();
        written.push((path.display().to_string(), std::fs::read(&path).unwrap()));
    }
    assert!(written.len() > 3, "there is no database");
    for (place, bytes) in written {
        let text = String::from_utf8_lossy(&bytes);
        if place == "the log" {
            assert!(text.contains("the log is taken"));
        }
        for secret in secrets.iter().chain([&held]) {
            assert!(!text.contains(secret), "{secret} is in {place}");
        }
    }
}

/// Seed E: an unknown model is charged $10 and $30 per million, and the log says so with a hint.
#[tokio::test]
async fn an_unknown_model_is_logged_with_a_hint() {
    let log = logged();
    let gate = Gate::start(json!({}), |_: &Seen| {
        Reply::json(
            200,
            &json!({
                "id": "c1", "object": "chat.completion", "model": "my-custom-model",
                "choices": [{ "index": 0, "finish_reason": "stop",
                    "message": { "role": "assistant", "content": "Hello" } }],
                "usage": { "prompt_tokens": 120, "completion_tokens": 100, "total_tokens": 220 },
            }),
        )
    })
    .await;
    let body =
        json!({ "model": "my-custom-model", "messages": [{ "role": "user", "content": "hi" }] });
    let ask = Ask::post("/openai/v1/chat/completions", &body).by("a", "s");
    assert_eq!(gate.ask(&ask).await.status, 200);
    let cost = gate.scope("s").await["cost_usd"].as_f64().unwrap();
    assert!((cost - 0.0042).abs() < 1e-9, "{cost}");
    gate.stop().await;
    let log = String::from_utf8(log.0.lock().clone()).unwrap();
    let told =
        "budget.unknown_model_cost_estimated model_id=my-custom-model estimated_cost_usd=0.004200";
    assert!(log.contains(told) && log.contains("hint="), "{log}");
}

/// Found by a person with the page open, who waited ten seconds for Ctrl-C.
#[tokio::test]
async fn a_server_that_stops_does_not_wait_for_those_who_watch() {
    let gate = Gate::start(json!({}), |_| Reply::json(200, &json!({}))).await;
    let watching = Ask::get("/api/events").open(gate.address).await.unwrap();
    assert_eq!(watching.status, 200);
    let (got, _) = tokio::join!(watching.rest(), gate.stop());
    assert!(got.complete, "it is told that this is the end, and not cut off");
}
