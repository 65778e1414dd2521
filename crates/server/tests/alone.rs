//! Cases of one server alone: one that keeps nothing, and what one node remembers by itself.

use serde_json::json;

use crate::support::{Ask, Gate, Reply};

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
