//! Sessions that are governed by preflight and receipt, without the gateway (B7, D3).

use serde_json::{Value, json};

use crate::support::{Ask, Gate, Got, Reply};

async fn gate(policy: Value) -> Gate {
    Gate::start(policy, |_| Reply::json(200, &json!({}))).await
}

async fn post(gate: &Gate, what: &str, body: Value) -> Got {
    gate.ask(&Ask::post(&format!("/api/sessions/cleaner/s1/{what}"), &body)).await
}

fn delete(id: u32) -> Value {
    let arguments = json!({ "asset_id": "fact_sales" });
    json!({ "calls": [{ "id": format!("t{id}"), "tool": "delete_asset", "arguments": arguments }] })
}

/// Found from outside: an id that was used before let any call pass.
#[tokio::test]
async fn hole_02_a_reused_id_does_not_inherit_a_verdict() {
    let gate = gate(json!({ "access": { "deny": ["evil_tool"] } })).await;
    let call = |tool: &str, amount: u32| json!({ "calls": [{ "id": "y", "tool": tool, "arguments": { "amount": amount } }] });
    let allowed = |got: Got| got.json()["calls"][0]["allowed"] == true;
    assert!(allowed(post(&gate, "proposal", call("ls", 1)).await));
    assert!(!allowed(post(&gate, "proposal", call("evil_tool", 1)).await));
    assert!(allowed(post(&gate, "proposal", call("ls", 1)).await));
}

#[tokio::test]
async fn a_delete_loop_ends_the_session_and_everything_after_is_refused() {
    let gate = gate(json!({ "preset": "strict" })).await;
    let opening = json!({ "agent": "cleaner", "session": "s1" });
    let opened = gate.ask(&Ask::post("/api/sessions", &opening)).await.json();
    assert_eq!(opened["session"], "s1");
    assert_eq!(opened["policy"]["destructive"]["max_deletes"], 3);
    for attempt in 1..=2 {
        let got = post(&gate, "proposal", delete(attempt)).await.json();
        assert_eq!(got["calls"][0]["allowed"], true, "{got}");
        let receipt =
            json!({ "id": format!("t{attempt}"), "status": "ok", "text": "asset still exists" });
        assert_eq!(post(&gate, "receipt", receipt).await.status, 200);
    }
    let third = post(&gate, "proposal", delete(3)).await.json();
    assert_eq!(third["calls"][0]["allowed"], false);
    assert_eq!(third["calls"][0]["verdict"], "kill");
    let why = third["calls"][0]["trips"][0]["explain"].as_str().unwrap();
    assert!(why.contains("delete_asset on asset_id=fact_sales 3 times"), "{why}");

    let preflight = json!({ "id": "m1", "model": "gpt-4o" });
    for (what, body) in [
        ("proposal", delete(4)),
        ("preflight", preflight),
        ("proposal", delete(1)),
        ("receipt", json!({ "id": "t1", "status": "ok" })),
    ] {
        let got = post(&gate, what, body).await;
        let json = got.json();
        if what == "receipt" {
            // It was booked before the end, and says again what it said then.
            assert_eq!(got.status, 200, "{json}");
        } else {
            assert_eq!(
                (got.status, &json["code"]),
                (403, &json!("session_killed_loop_guard")),
                "{json}"
            );
        }
    }
    let opening = json!({ "agent": "cleaner", "session": "s1" });
    let again = gate.ask(&Ask::post("/api/sessions", &opening)).await;
    assert_eq!((again.status, &again.json()["code"]), (403, &json!("session_killed_loop_guard")));

    gate.order("reset", json!({ "agent": "cleaner", "session": "s1", "reason": "looked into it" }))
        .await;
    let got = post(&gate, "proposal", delete(5)).await.json();
    assert_eq!(got["calls"][0]["allowed"], true, "{got}");
}

#[tokio::test]
async fn what_is_said_twice_counts_once() {
    let gate = gate(json!({ "budget": { "max_cost_usd": 1 } })).await;
    let preflight =
        json!({ "id": "m1", "model": "gpt-4o", "input_tokens": 1000, "max_output_tokens": 1000 });
    let first = post(&gate, "preflight", preflight.clone()).await;
    assert_eq!(first.status, 200, "{}", first.text());
    assert_eq!(post(&gate, "preflight", preflight).await.json(), first.json());
    assert_eq!(gate.scope("s1").await["model_calls"], 1);
    let progress = json!({ "id": "m1", "output_tokens": 10, "text": "hello" });
    assert_eq!(post(&gate, "progress", progress).await.json()["allowed"], true);
    let receipt = json!({
        "id": "m1", "status": "ok", "usage": { "input": 1000, "output": 100 }, "text": "hello you",
    });
    let booked = post(&gate, "receipt", receipt.clone()).await;
    assert_eq!(booked.status, 200, "{}", booked.text());
    assert_eq!(post(&gate, "receipt", receipt).await.json(), booked.json());
    let scope = gate.scope("s1").await;
    assert_eq!((&scope["cost_usd"], &scope["in_flight"]), (&json!(0.0035), &json!(0)));
    let unknown = post(&gate, "receipt", json!({ "id": "m9", "status": "ok" })).await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn a_budget_refuses_the_next_call_with_402() {
    let gate = gate(json!({ "budget": { "max_cost_usd": 0.001 } })).await;
    let preflight = json!({ "id": "m1", "model": "gpt-4o", "input_tokens": 100_000 });
    let got = post(&gate, "preflight", preflight).await;
    assert_eq!(got.status, 402, "{}", got.text());
    assert_eq!(got.json()["code"], "session_killed_budget");
    assert_eq!(got.json()["decision"]["trips"][0]["guard"], "budget");
}

/// A call that fits once another has settled is told when to try again, and is no strike.
#[tokio::test]
async fn a_call_without_room_is_told_when_to_try_again() {
    let budget = json!({ "max_cost_usd": 0.05, "reservation": "ceiling" });
    let gate = gate(json!({ "budget": budget })).await;
    // $0.0425 each, at most.
    let preflight = |id: &str| json!({ "id": id, "model": "gpt-4o", "input_tokens": 1000, "max_output_tokens": 4000 });
    assert_eq!(post(&gate, "preflight", preflight("m1")).await.status, 200);
    for _ in 0..7 {
        let got = post(&gate, "preflight", preflight("m2")).await;
        assert_eq!(got.status, 429, "{}", got.text());
        assert!(got.header("retry-after").is_some_and(|after| after.parse::<u32>().is_ok()));
    }
    let usage = json!({ "input": 1000, "output": 100 });
    let receipt = json!({ "id": "m1", "status": "ok", "usage": usage, "text": "hello you" });
    assert_eq!(post(&gate, "receipt", receipt).await.status, 200);
    assert_eq!(post(&gate, "preflight", preflight("m2")).await.status, 200);
    assert_eq!(gate.scope("s1").await["state"], "running");
}

/// A prompt of more than 200,000 tokens has another price: the rates of the request do not say so.
#[tokio::test]
async fn a_receipt_is_billed_as_the_gateway_bills() {
    let gate = gate(json!({})).await;
    let preflight = json!({ "id": "m1", "model": "gemini-2.5-pro", "input_tokens": 300_000 });
    assert_eq!(post(&gate, "preflight", preflight).await.status, 200);
    let usage = json!({ "input": 300_000, "output": 1000 });
    let receipt = json!({ "id": "m1", "status": "ok", "usage": usage, "text": "hello" });
    assert_eq!(post(&gate, "receipt", receipt).await.status, 200);
    // $2.50 and $15 a million, in place of $1.25 and $10.
    assert_eq!(gate.scope("s1").await["cost_usd"], 0.765);
}

/// Found from outside: later calls of every limit said `session_killed_budget`, and the steps had a tag
/// that no page names.
#[tokio::test]
async fn later_calls_say_which_limit_ended_the_session() {
    for (policy, code) in [
        (json!({ "steps": { "max_steps": 1 } }), "session_killed_steps"),
        (
            json!({ "budget": { "max_cost_usd": 0.01, "tool_prices": { "t": 0.01 } } }),
            "session_killed_budget",
        ),
    ] {
        let gate = gate(policy).await;
        let mut codes = Vec::new();
        for n in 0..4 {
            let call = json!({ "id": format!("t{n}"), "tool": "t", "arguments": { "n": n } });
            let got = post(&gate, "proposal", json!({ "calls": [call] })).await;
            if got.status == 200 {
                let receipt = json!({ "id": format!("t{n}"), "status": "ok", "text": "ok" });
                post(&gate, "receipt", receipt).await;
            } else {
                codes.push(got.json()["code"].as_str().unwrap_or_default().to_owned());
            }
        }
        assert!(codes.len() > 1 && codes.iter().all(|said| said == code), "{codes:?}");
        let session = gate.ask(&Ask::get("/api/sessions/cleaner/s1")).await.json();
        assert_eq!(session["tags"], json!(["budget_exceeded"]), "{session}");
    }
}

/// Found from outside: one loop of ten calls counted as ten.
#[tokio::test]
async fn a_loop_of_ten_calls_is_one_loop() {
    let gate = gate(json!({ "loop": { "threshold": 3, "action": "warn" } })).await;
    for n in 0..10 {
        let call = json!({ "id": format!("t{n}"), "tool": "get_build", "arguments": { "id": 7 } });
        assert_eq!(post(&gate, "proposal", json!({ "calls": [call] })).await.status, 200);
        let receipt = json!({ "id": format!("t{n}"), "status": "ok", "text": "failed" });
        assert_eq!(post(&gate, "receipt", receipt).await.status, 200);
    }
    let session = gate.ask(&Ask::get("/api/sessions/cleaner/s1")).await.json();
    assert_eq!((&session["loops"], &session["tags"]), (&json!(1), &json!(["loop_detected"])));
}

#[tokio::test]
async fn what_a_session_has_spent_lasts() {
    let policy = json!({ "budget": { "max_cost_usd": 10 } });
    let gate = gate(policy.clone()).await;
    let preflight = json!({ "id": "m1", "model": "gpt-4o", "input_tokens": 1000 });
    assert_eq!(post(&gate, "preflight", preflight).await.status, 200);
    let receipt = json!({ "id": "m1", "status": "ok", "usage": { "input": 1_000_000 } });
    assert_eq!(post(&gate, "receipt", receipt).await.status, 200);
    let gate = gate.restart(policy).await;
    let preflight = json!({ "id": "m2", "model": "gpt-4o" });
    assert_eq!(post(&gate, "preflight", preflight).await.status, 200);
    assert_eq!(gate.scope("s1").await["cost_usd"], 2.5);
}

/// A scope's key is made of names; one with a separator in it was taken for another scope.
#[tokio::test]
async fn names_in_bodies_are_names() {
    let gate = gate(json!({ "preset": "observe" })).await;
    let bad = "cleaner\u{1f}s1";
    let preflight = json!({ "id": "a", "model": "m", "scope": ["x", bad] });
    for (path, body) in [
        ("/api/sessions", json!({ "agent": bad })),
        ("/api/sessions", json!({ "agent": "a", "session": bad })),
        ("/api/sessions/cleaner/s1/preflight", preflight),
        ("/api/kill", json!({ "agent": bad })),
        ("/api/reset", json!({ "agent": "cleaner", "session": " " })),
    ] {
        let got = gate.ask(&Ask::post(path, &body)).await;
        assert_eq!(got.status, 422, "{path} {body}: {}", got.json());
    }
}
