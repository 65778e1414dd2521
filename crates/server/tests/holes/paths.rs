//! Spellings of a path that a provider routes, and that must not lead around the guards.

use serde_json::{Value, json};

use crate::support::{Ask, Gate, Reply, Said, Speech, Turn};

fn deny() -> serde_json::Value {
    json!({ "access": { "deny": ["delete_*"] } })
}

/// A gateway whose model asks for a denied tool, whatever the path.
async fn evil(speech: Speech) -> Gate {
    let said = Said::call("c1", "delete_asset", json!({ "path": "a" }));
    Gate::start(deny(), move |_| Reply::json(200, &speech.whole(&said))).await
}

fn says(speech: Speech, path: &str) -> Ask {
    let turns = [Turn::User("Tidy up the docs".into())];
    Ask::post(path, &speech.request(false, &turns)).by("worker", "s1")
}

#[tokio::test]
async fn hole_03_encoded_paths_are_inspected() {
    for (speech, path) in [
        (Speech::Chat, "/openai/v1/%63hat/completions"),
        (Speech::Chat, "/openai/v1/chat%2Fcompletions"),
        (Speech::Chat, "/openai/v1/chat%2fcompletions"),
        (Speech::Chat, "/openai/v1//chat/./completions/"),
        (Speech::Responses, "/openai/v1/respon%73es"),
        (Speech::Anthropic, "/anthropic/v1/m%65ssages"),
        (Speech::Gemini, "/gemini/v1beta/models/g:generate%43ontent"),
    ] {
        let gate = evil(speech).await;
        let got = gate.ask(&says(speech, path)).await;
        assert_eq!(got.status, 403, "{path}: {}", got.text());
        // The provider got the path as the client wrote it.
        let (_, sent) = path[1..].split_once('/').unwrap();
        assert_eq!(gate.upstream.last().target, format!("/{sent}"));
    }
    for path in ["/openai/v1/%63hat/completions", "/openai/v1/chat%2Fcompletions"] {
        assert!(names_its_session("POST", path, &json!({})).await, "{path}");
    }
}

/// Whether a request counts for the session that its body names, which only a model request does.
pub(super) async fn names_its_session(method: &str, path: &str, more: &Value) -> bool {
    let gate = evil(Speech::Chat).await;
    let mut body = json!({ "model": "gpt-5", "session_id": "by-body" });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    gate.ask(&Ask::of(method, path, Some(&body)).with("x-deadstop-agent", "worker")).await;
    !gate.scope("by-body").await.is_null()
}

#[tokio::test]
async fn hole_03_unknown_paths_are_judged_by_their_body() {
    for (speech, path) in [
        (Speech::Chat, "/openai/v1/Chat;a/Completions"),
        (Speech::Chat, "/own/v9/talk"),
        (Speech::Responses, "/openai/v9/talk"),
        (Speech::Anthropic, "/anthropic/v9/talk"),
        (Speech::Gemini, "/gemini/v9/talk"),
    ] {
        let gate = evil(speech).await;
        let ask = says(speech, path);
        let got = gate.ask(&ask).await;
        assert_eq!(got.status, 403, "{path}: {}", got.text());
        assert_eq!(gate.upstream.last().body, ask.body, "{path}");
        assert_eq!(gate.scope("s1").await["model_calls"], 1, "{path}");
    }
    let messages = json!({ "messages": [{ "role": "user", "content": "Tidy up" }] });
    for path in ["/openai/v1/Chat;a/Completions", "/own/v9/talk"] {
        assert!(names_its_session("POST", path, &messages).await, "{path}");
    }
}

#[tokio::test]
async fn hole_14_paths_that_climb_are_refused() {
    let gate = Gate::start(json!({}), |_| Reply::json(200, &json!({}))).await;
    for path in ["../x", "v1/../../x", "%2e%2e/x", ".%2E/x", "%252e%252e/x", "..%2fx", "a/..;b/x"] {
        let got = gate.ask(&Ask::get(&format!("/own/{path}"))).await;
        assert_eq!(got.status, 400, "{path}: {}", got.text());
        assert!(got.text().contains("`..`"), "{path}: {}", got.text());
    }
    assert_eq!(gate.upstream.requests(), 0);
    assert_eq!(gate.ask(&Ask::get("/own/v1/a..b")).await.status, 200);
    assert_eq!(gate.upstream.last().target, "/below/here/v1/a..b");
}

/// OpenCode and the AI SDK want the version in the base URL, and Anthropic's SDK adds it itself.
#[tokio::test]
async fn a_base_url_may_hold_the_version_or_not() {
    for path in ["/anthropic/messages", "/anthropic/v1/messages", "/anthropic/v1/v1/messages"] {
        let gate = evil(Speech::Anthropic).await;
        let got = gate.ask(&says(Speech::Anthropic, path)).await;
        assert_eq!(got.status, 403, "{path}: {}", got.text());
        assert_eq!(gate.upstream.last().target, "/v1/messages");
    }
}

/// Codex tries a WebSocket first. On 426 it falls back to HTTP at once, and nothing has failed.
#[tokio::test]
async fn a_websocket_is_refused_before_the_provider_hears_of_it() {
    let gate = evil(Speech::Responses).await;
    for _ in 0..10 {
        let ask = Ask::get("/openai/v1/responses").by("codex", "s1");
        let ask = ask.with("connection", "Upgrade").with("upgrade", "websocket");
        let got = gate.ask(&ask).await;
        assert_eq!(got.status, 426, "{}", got.text());
        assert!(got.text().contains("over HTTP"), "{}", got.text());
    }
    assert_eq!(gate.upstream.requests(), 0);
    let got = gate.ask(&says(Speech::Responses, "/openai/v1/responses")).await;
    assert_eq!(got.status, 403, "judged, and no breaker is open: {}", got.text());
    assert!(got.text().contains("delete_asset"), "{}", got.text());
}

/// Codex that is logged in with ChatGPT would send ChatGPT's token to OpenAI's API.
#[tokio::test]
async fn a_login_is_not_sent_to_an_address_that_it_does_not_belong_to() {
    let gate = Gate::with(
        deny(),
        |_| Reply::json(200, &json!({})),
        |config| {
            let openai = config.providers.get_mut("openai").unwrap();
            openai.base_url = "https://api.openai.com".parse().unwrap();
        },
    )
    .await;
    let ask = says(Speech::Responses, "/openai/v1/responses").with("chatgpt-account-id", "a1");
    let got = gate.ask(&ask).await;
    assert_eq!(got.status, 400, "{}", got.text());
    assert!(got.text().contains("belongs to ChatGPT"), "{}", got.text());
    assert!(got.text().contains("codex login --with-api-key"), "{}", got.text());

    // Another upstream may want it.
    let gate = Gate::start(json!({}), |_| Reply::json(200, &json!({}))).await;
    assert_eq!(gate.ask(&ask).await.status, 200);
}
