//! Cases of one server alone: one that keeps nothing, and what one node remembers by itself.

use std::time::Duration;

use serde_json::json;

use crate::support::{Ask, Gate, Reply, Seen, Speech, Step};

#[tokio::test]
async fn a_server_that_keeps_nothing_says_so() {
    let answer = |_: &crate::support::Seen| Reply::json(200, &json!({}));
    let gate = Gate::with(json!({}), answer, |config| config.data = None).await;
    for path in ["/api/agents", "/api/incidents", "/api/policies/default", "/api/audit"] {
        let got = gate.ask(&Ask::get(path)).await;
        assert_eq!((got.status, &got.json()["code"]), (503, &json!("no_store")), "{path}");
    }
    assert_eq!(gate.ask(&Ask::get("/api/status")).await.status, 200);
    let kill = Ask::post("/api/kill", &json!({ "agent": "a" }));
    assert_eq!(gate.ask(&kill).await.status, 200);
}

/// Found from outside: 1,000 calls of a loop, and the agent was "ok".
#[tokio::test]
async fn a_loop_that_only_warns_changes_the_agents_health() {
    let answer = |_: &crate::support::Seen| Reply::json(200, &json!({}));
    let policy = json!({ "loop": { "threshold": 3, "action": "warn" } });
    let gate = Gate::with(policy, answer, |_| {}).await;
    for n in 0..5 {
        let call = json!({ "id": format!("t{n}"), "tool": "get_build", "arguments": { "id": 7 } });
        let path = "/api/sessions/cleaner/s1/proposal";
        assert_eq!(gate.ask(&Ask::post(path, &json!({ "calls": [call] }))).await.status, 200);
        let receipt = json!({ "id": format!("t{n}"), "status": "ok", "text": "failed" });
        let path = "/api/sessions/cleaner/s1/receipt";
        assert_eq!(gate.ask(&Ask::post(path, &receipt)).await.status, 200);
    }
    let agent = gate.ask(&Ask::get("/api/agents/cleaner")).await.json();
    assert_eq!(agent["health"], "warning", "{agent}");
}

/// Two servers on one folder: a kill at one used to be ignored by the other.
#[tokio::test]
async fn a_second_server_on_the_same_folder_does_not_start() {
    let gate = Gate::start(json!({}), |_: &Seen| Reply::json(200, &json!({}))).await;
    let mut config = crate::support::both::config(gate.upstream.address, json!({}));
    config.data = Some(gate.folder.path().to_owned());
    let second = Box::pin(deadstop_server::Server::start(config.clone())).await;
    let why = second.err().expect("it started").to_string();
    assert!(why.starts_with("another Deadstop server uses the folder"), "{why}");
    let (_upstream, _folder) = gate.stop().await;
    assert!(Box::pin(deadstop_server::Server::start(config)).await.is_ok(), "the folder is free");
}

/// When the grace of a shutdown is over, a stream ends with the provider's own error event.
#[tokio::test]
async fn a_shutdown_ends_streams_with_an_error() {
    let gate = Gate::with(
        json!({}),
        |_: &Seen| {
            let once = crate::support::dialect::chat_chunk(&json!({ "content": "Once" }), None);
            Reply::stream().then(Step::Chunk(once)).then(Step::Hang)
        },
        |config| config.shutdown_grace = Duration::from_millis(200),
    )
    .await;
    let mut stream = Speech::Chat.says(true, "Tell me").open(gate.address).await.unwrap();
    stream.until("Once").await;
    let stopping = tokio::spawn(gate.stop());
    let got = stream.rest().await;
    assert!(got.complete && got.text().contains("\"error\""), "{}", got.text());
    assert!(got.text().contains("shutting down"), "{}", got.text());
    stopping.await.unwrap();
}
