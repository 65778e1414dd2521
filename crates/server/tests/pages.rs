//! The worked examples of the seed pages, end to end and with the pages' own numbers.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::{Ask, Gate, Reply, Said, Seen, Speech};

async fn get(gate: &Gate, path: &str) -> Value {
    let got = gate.ask(&Ask::get(path)).await;
    assert_eq!(got.status, 200, "{path}: {}", got.text());
    got.json()
}

async fn put(gate: &Gate, path: &str, body: &Value) {
    let got = gate.ask(&Ask::of("PUT", path, Some(body))).await;
    assert_eq!(got.status, 200, "{path}: {}", got.text());
}

/// Page A: three similar prompts and two similar responses are 7.0 of 5.0, 140%.
#[tokio::test]
async fn an_incident_of_7_0_over_5() {
    let answered = AtomicUsize::new(0);
    let gate = Gate::start(json!({}), move |_: &Seen| {
        // The first answer is unlike the others, so that 5.0 is reached before it is exceeded.
        let text = match answered.fetch_add(1, Ordering::SeqCst) {
            0 => "Welcome! Tell me which of your orders this is about, and I shall have a look at it.",
            _ => "The parcel was handed to the carrier, who has not scanned it since yesterday evening.",
        };
        Speech::Chat.reply(false, &Said::text(text))
    })
    .await;
    let switch = json!({ "enabled": true, "window_size": 10, "threshold": 5.0 });
    put(&gate, "/api/agents/shop/kill-switch", &switch).await;
    let ask = |n: u32| {
        let text = format!("Check the status of order #{n} and tell me where the parcel is now");
        Speech::Chat.says(false, &text).by("shop", "s1")
    };
    for n in 12_345..=12_348 {
        let got = gate.ask(&ask(n)).await;
        assert_eq!(got.status, 200, "order {n}: {}", got.text());
    }
    assert_eq!(gate.ask(&ask(12_349)).await.status, 403);

    let listed = get(&gate, "/api/incidents?agent=shop").await["items"][0].clone();
    assert_eq!((&listed["score"], &listed["threshold"]), (&json!(7.0), &json!(5.0)), "{listed}");
    assert_eq!((&listed["window"], &listed["provider"]), (&json!(10), &json!("openai")));
    let id = listed["id"].as_str().unwrap();
    let scoring = get(&gate, &format!("/api/incidents/{id}")).await["scoring"].clone();
    assert_eq!((&scoring["percent"], &scoring["scale_end"]), (&json!(140.0), &json!(10.0)));
    let signals = scoring["signals"].as_array().unwrap().iter();
    let signals: Vec<_> = signals
        .map(|one| (one["name"].as_str().unwrap(), &one["count"], &one["weight"], &one["score"]))
        .collect();
    assert_eq!(
        signals,
        [
            ("similar_prompts", &json!(3), &json!(1.0), &json!(3.0)),
            ("similar_responses", &json!(2), &json!(2.0), &json!(4.0)),
            ("repeated_tool_calls", &json!(0), &json!(1.5), &json!(0.0)),
        ]
    );
    let agent = get(&gate, "/api/agents/shop").await;
    assert_eq!(
        (&agent["active"], &agent["deactivated_by"]),
        (&json!(false), &json!("kill_switch"))
    );
}

/// Page D: the agent deletes fact_sales, hears that it still exists, and is stopped at the third attempt.
#[tokio::test]
async fn the_timeline_of_fact_sales() {
    let gate = Gate::start(json!({}), |_| Reply::json(200, &json!({}))).await;
    let base = "/api/sessions/cleaner/s1";
    for attempt in 1..=4 {
        let call = json!({ "id": format!("t{attempt}"), "tool": "delete_asset", "arguments": { "asset_id": "fact_sales" } });
        let got =
            gate.ask(&Ask::post(&format!("{base}/proposal"), &json!({ "calls": [call] }))).await;
        if attempt == 4 {
            assert_eq!(
                (got.status, &got.json()["code"]),
                (403, &json!("session_killed_loop_guard"))
            );
            break;
        }
        assert_eq!(got.json()["calls"][0]["allowed"], attempt < 3, "attempt {attempt}");
        if attempt < 3 {
            let receipt = json!({ "id": format!("t{attempt}"), "status": "ok", "text": "asset still exists" });
            assert_eq!(
                gate.ask(&Ask::post(&format!("{base}/receipt"), &receipt)).await.status,
                200
            );
        }
    }
    let calls = get(&gate, &format!("{base}/calls")).await;
    let calls: Vec<_> = calls["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| {
            let text = |name: &str| call[name].as_str().unwrap_or("-").to_owned();
            [text("name"), text("verdict"), text("guard")].join(" ")
        })
        .collect();
    assert_eq!(
        calls[..3],
        ["delete_asset allow -", "delete_asset allow -", "delete_asset kill destructive"]
    );
    let audit = get(&gate, "/api/audit?action=session.kill").await;
    let reason = audit["items"][0]["reason"].as_str().unwrap();
    let told = "loop_detected: delete_asset on asset_id=fact_sales 3 times in ";
    assert!(reason.starts_with(told), "{reason}");
}

/// Page E: the table of prices, and what a call costs under it.
#[tokio::test]
async fn the_table_of_prices() {
    let gate = Gate::start(json!({}), |seen: &Seen| {
        let asked: Value = serde_json::from_slice(&seen.body).unwrap();
        Reply::json(
            200,
            &json!({
                "id": "c1", "object": "chat.completion", "model": asked["model"],
                "choices": [{ "index": 0, "finish_reason": "stop",
                    "message": { "role": "assistant", "content": "Hello" } }],
                "usage": { "prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100 },
            }),
        )
    })
    .await;
    let cost = async |model: &str, session: &str| {
        let body = json!({ "model": model, "messages": [{ "role": "user", "content": "hi" }] });
        let ask = Ask::post("/openai/v1/chat/completions", &body).by("a", session);
        assert_eq!(gate.ask(&ask).await.status, 200);
        gate.scope(session).await["cost_usd"].as_f64().unwrap()
    };
    // Unknown: $10 and $30 per million.
    assert!((cost("my-custom-model", "before").await - 0.013).abs() < 1e-9);
    for (model, input, output) in
        [("my-custom-model", 5.0, 20.0), ("claude-sonnet-4-6", 3.0, 15.0), ("gpt-4o", 2.5, 10.0)]
    {
        let price = json!({
            "input_usd": input, "output_usd": output, "cache_read_usd": null, "cache_write_usd": null,
        });
        put(&gate, &format!("/api/prices/{model}"), &price).await;
        let expected = (input * 1000.0 + output * 100.0) / 1e6;
        let cost = cost(model, model).await;
        assert!((cost - expected).abs() < 1e-9, "{model}: {cost}, not {expected}");
    }
}

/// Page E: the bodies there and back, as the page writes them.
#[tokio::test]
async fn the_bodies_of_prevention_config_there_and_back() {
    let gate = Gate::start(json!({}), |_| Reply::json(200, &json!({}))).await;
    let body = json!({
        "loop_detection": { "enabled": true, "threshold": 3, "action": "terminate", "max_steps": 50 },
        "budget": { "max_cost_usd": 0.50, "soft_alert_threshold_usd": 0.40, "max_wall_time_seconds": 120 },
        "circuit_breaker": { "enabled": true, "open_after_failures": 5, "cooldown_seconds": 30, "half_open_max_calls": 3 },
    });
    let path = "/api/agents/research-agent/prevention-config";
    assert_eq!(get(&gate, path).await["is_agent_override"], false, "not seen yet: the default");
    put(&gate, path, &body).await;
    let shown = get(&gate, path).await;
    let mut expected = body.clone();
    expected["agent_name"] = json!("research-agent");
    expected["is_agent_override"] = json!(true);
    assert_eq!(shown, expected);
    // What was got can be put, here and as the project's default.
    put(&gate, path, &shown).await;
    assert_eq!(get(&gate, path).await, expected);
    put(&gate, "/api/projects/prevention-config", &shown).await;
    let default = get(&gate, "/api/projects/prevention-config").await;
    assert_eq!(default["budget"], body["budget"]);
    assert_eq!(gate.ask(&Ask::of("DELETE", path, None)).await.status, 200);
    assert_eq!(get(&gate, path).await["is_agent_override"], false);
}
