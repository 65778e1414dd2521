//! A server that keeps nothing: there is nothing that it could share with others.

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
