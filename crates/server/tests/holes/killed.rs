//! A killed session is refused everywhere, not only where tools are called.

use serde_json::{Value, json};

use crate::mcp::{error, gate, post, said};
use crate::support::{Ask, Gate, Reply};

fn request(method: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": { "uri": "file:///a" } })
}

async fn start() -> Gate {
    gate(json!({}), |seen| Reply::json(200, &said(seen, "done"))).await
}

#[tokio::test]
async fn hole_06_killed_agents_cannot_use_mcp() {
    let methods = [
        "resources/read",
        "resources/list",
        "prompts/get",
        "resources/subscribe",
        "tools/list",
        "completion/complete",
        "vendor/custom",
    ];
    let gate = start().await;
    for method in methods {
        let ask = post("files", &request(method)).by("crawler", "s1");
        assert!(error(&gate.ask(&ask).await).is_null(), "{method}");
    }
    let order = json!({ "agent": "crawler", "reason": "runaway" });
    gate.order("kill", order).await;
    let before = gate.upstream.requests();
    for method in methods {
        let ask = post("files", &request(method)).by("crawler", "s1");
        let refused = error(&gate.ask(&ask).await);
        assert_eq!(refused["code"], 403, "{method}");
        assert_eq!(refused["data"]["reason"], "agent_killed", "{method}");
        assert!(refused["message"].as_str().unwrap().contains("runaway"), "{refused}");
    }
    // In a batch as well; nothing of it is sent on.
    let batch = json!([request("ping"), request("resources/read")]);
    let got = gate.ask(&post("files", &batch).by("crawler", "s1")).await;
    assert!(got.text().contains("agent_killed"), "{}", got.text());
    assert_eq!(gate.upstream.requests(), before);

    // Without an id a server may act on it all the same, and some do not mind the method.
    for odd in [json!({ "id": null }), json!({})] {
        let mut sent = request("resources/read");
        sent.as_object_mut().unwrap().remove("id");
        sent.as_object_mut().unwrap().extend(odd.as_object().unwrap().clone());
        gate.ask(&post("files", &sent).by("crawler", "s1")).await;
        assert_eq!(gate.upstream.requests(), before, "{sent}");
    }
    for method in ["PUT", "GET", "DELETE"] {
        let mut ask = post("files", &request("resources/read")).by("crawler", "s1");
        ask.method = method.to_owned();
        assert_eq!(error(&gate.ask(&ask).await)["code"], 403, "{method}");
        assert_eq!(gate.upstream.requests(), before, "{method}");
    }

    // A client may find out that its server is there, and other agents go on.
    for method in ["initialize", "ping"] {
        let ask = post("files", &request(method)).by("crawler", "s1");
        assert!(error(&gate.ask(&ask).await).is_null(), "{method}");
    }
    let other = post("files", &request("resources/read")).by("reader", "s2");
    assert!(error(&gate.ask(&other).await).is_null());
}

/// A loop that runs at the provider goes on there; a killed agent neither starts one nor asks about it.
#[tokio::test]
async fn killed_agents_cannot_use_loops_that_run_at_the_provider() {
    let gate = start().await;
    gate.order("kill", json!({ "agent": "crawler", "reason": "runaway" })).await;
    for (method, path) in [
        ("POST", "/openai/v1/threads/t1/runs"),
        ("GET", "/openai/v1/threads/t1/runs/r1"),
        ("GET", "/openai/v1/responses/resp_1"),
        ("POST", "/openai/v1/batches"),
    ] {
        let body = (method == "POST").then(|| json!({ "assistant_id": "a1" }));
        let got = gate.ask(&Ask::of(method, path, body.as_ref()).by("crawler", "s1")).await;
        assert_eq!(got.status, 403, "{method} {path}: {}", got.text());
        assert!(got.text().contains("runaway"), "{method} {path}: {}", got.text());
    }
    assert_eq!(gate.upstream.requests(), 0);
}
