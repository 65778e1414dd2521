//! Databases that go away, fill up or cannot be written, and alerts that fail: calls obey the fail
//! mode, health and metrics say what is wrong, and everything goes on without a restart.

mod away;
mod disk;
mod hooks;

use std::time::{Duration, Instant};

use deadstop_server::Secret;
use serde_json::{Value, json};

use crate::support::{Ask, Gate, Got, Reply, Seen, Speech, until};

/// What a call costs: 1,000 tokens in and 100 out of gpt-4o.
const CALL_USD: f64 = 1000.0 * 2.5e-6 + 100.0 * 10e-6;

/// A model that always says the same, at the same price.
fn answer(_: &Seen) -> Reply {
    let message = json!({ "role": "assistant", "content": "Done." });
    Reply::json(
        200,
        &json!({
            "id": "chatcmpl-1", "object": "chat.completion", "model": "gpt-4o",
            "choices": [{ "index": 0, "finish_reason": "stop", "message": message }],
            "usage": { "prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100 },
        }),
    )
}

/// A server that keeps its things at an address, under a policy that minds deletions only.
async fn gate(address: &str, fail_mode: &str) -> Gate {
    let off = json!({ "enabled": false });
    let policy = json!({
        "fail_mode": fail_mode, "access": { "deny": ["delete_*"] },
        "loop": off, "text_loop": off, "similarity": off,
    });
    // Boxed, as are steps of long cases: together they are more than a thread's stack has room for.
    Box::pin(Gate::with(policy, answer, |config| config.database = Some(Secret::new(address))))
        .await
}

fn call(agent: &str, session: &str) -> Ask {
    Speech::Chat.says(false, "Go on").by(agent, session)
}

/// An answer, and how long it took.
async fn timed(gate: &Gate, ask: &Ask) -> (Got, Duration) {
    let asked = Instant::now();
    (gate.ask(ask).await, asked.elapsed())
}

async fn get(gate: &Gate, path: &str) -> Value {
    let got = gate.ask(&Ask::get(path)).await;
    assert_eq!(got.status, 200, "{path}: {}", got.text());
    got.json()
}

/// Asks for a call that the policy denies; gives the incident's id.
async fn denied(gate: &Gate, agent: &str, id: &str) -> String {
    let call = json!({ "id": id, "tool": "delete_asset", "arguments": { "asset_id": "x" } });
    let path = format!("/api/sessions/{agent}/s/proposal");
    let got = gate.ask(&Ask::post(&path, &json!({ "calls": [call] }))).await;
    let incident = got.json()["calls"][0]["incident"].as_str().map(str::to_owned);
    incident.unwrap_or_else(|| panic!("no incident: {}", got.text()))
}

/// Gives an order that takes effect but cannot be written; the answer says both.
async fn order_in_vain(gate: &Gate, what: &str, mut order: Value) {
    order["new"] = json!(true);
    let got = gate.ask(&Ask::post(&format!("/api/{what}"), &order)).await;
    assert_eq!((got.status, &got.json()["code"]), (503, &json!("not_durable")), "{}", got.text());
}

/// Waits until the server knows that its database cannot be used, and sees that it says so.
async fn degraded(gate: &Gate, trouble: &str) {
    // What is wrong may show only when it is tried again: a file that cannot be written is first
    // one that has failed.
    let word = format!("({trouble})");
    until(&word, async || {
        let got = gate.ask(&Ask::get("/readyz")).await;
        got.status == 503 && got.text().contains(&word)
    })
    .await;
    until("the metric", async || metric(gate, "deadstop_degraded 1").await).await;
    let ready = gate.ask(&Ask::get("/readyz")).await.json();
    assert_eq!((&ready["ready"], &ready["store"]), (&json!(false), &json!("failed")), "{ready}");
    assert_eq!(gate.ask(&Ask::get("/healthz")).await.status, 200, "it lives");
}

/// Waits until the server can use its database again.
async fn recovered(gate: &Gate) {
    until("ready", async || gate.ask(&Ask::get("/readyz")).await.status == 200).await;
    until("the metric", async || metric(gate, "deadstop_degraded 0").await).await;
}

async fn metric(gate: &Gate, line: &str) -> bool {
    gate.ask(&Ask::get("/metrics")).await.text().lines().any(|found| found == line)
}

/// Waits until a session's cost, as it is written, is that of so many calls.
async fn costs(gate: &Gate, agent: &str, calls: u32) {
    let path = format!("/api/sessions/{agent}/s");
    let mut last = Value::Null;
    for _ in 0..200 {
        last = gate.ask(&Ask::get(&path)).await.json();
        let cost = last["cost_usd"].as_f64().unwrap_or_default();
        if (cost - f64::from(calls) * CALL_USD).abs() < 1e-9 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{path} has not the cost of {calls} calls: {last}");
}

/// The incident is written, with what it is about.
async fn kept(gate: &Gate, incident: &str) {
    let path = format!("/api/incidents/{incident}");
    until("the incident", async || gate.ask(&Ask::get(&path)).await.status == 200).await;
    let found = get(gate, &path).await;
    assert!(found["evidence"].as_array().is_some_and(|items| !items.is_empty()), "{found}");
}

/// The audit is whole and has these reasons.
async fn audited(gate: &Gate, reasons: &[&str]) {
    let all = get(gate, "/api/audit?limit=200").await["items"].to_string();
    for reason in reasons {
        assert!(all.contains(reason), "no {reason} in {all}");
    }
    assert_eq!(get(gate, "/api/audit/verify").await["whole"], true);
}
