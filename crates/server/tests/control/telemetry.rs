//! Telemetry as a door: what it tells of is charged and judged, and refused at the next call.

use serde_json::{Value, json};

use crate::support::{Ask, Gate, Said, Seen, Speech};

async fn gate(policy: Value) -> Gate {
    Gate::start(policy, |_: &Seen| Speech::Chat.reply(false, &Said::text("hello"))).await
}

fn attributes(pairs: &Value) -> Value {
    let pairs = pairs.as_object().unwrap().iter().map(|(key, value)| {
        let value = match value {
            Value::Number(number) => json!({ "intValue": number.to_string() }),
            other => json!({ "stringValue": other }),
        };
        json!({ "key": key, "value": value })
    });
    Value::Array(pairs.collect())
}

/// A request with one span of the session `s1` of the agent `watched`.
fn span(n: u64, own: &Value, failed: Option<&str>) -> Value {
    let mut all = attributes(own);
    all.as_array_mut().unwrap().extend(
        attributes(&json!({ "gen_ai.agent.name": "watched", "gen_ai.conversation.id": "s1" }))
            .as_array()
            .unwrap()
            .clone(),
    );
    let status = failed.map_or(json!({}), |why| json!({ "code": 2, "message": why }));
    json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": [{
        "traceId": "5b8efff798038103d269b633813fc60c", "spanId": format!("{n:016x}"), "name": "x",
        "startTimeUnixNano": "1544712660000000000", "endTimeUnixNano": "1544712661500000000",
        "attributes": all, "status": status,
    }] }] }] })
}

fn query(n: u64) -> Value {
    let own = json!({
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "query",
        "gen_ai.tool.call.id": format!("call_{n}"),
        "gen_ai.tool.call.arguments": "{\"sql\":\"select * from orders\"}",
    });
    span(n, &own, Some("no such table: orders"))
}

fn chat(n: u64, input: u64, output: u64) -> Value {
    let own = json!({
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o",
        "gen_ai.usage.input_tokens": input, "gen_ai.usage.output_tokens": output,
    });
    span(n, &own, None)
}

async fn tell(gate: &Gate, spans: &Value) {
    let got = gate.ask(&Ask::post("/v1/traces", spans)).await;
    assert_eq!((got.status, got.text().as_str()), (200, "{}"));
}

#[tokio::test]
async fn a_loop_that_only_telemetry_tells_of_is_refused_at_its_next_call() {
    let gate = gate(json!({ "preset": "strict" })).await;
    let ask = || Speech::Chat.says(false, "go on").by("watched", "s1");
    tell(&gate, &query(1)).await;
    assert_eq!(gate.ask(&ask()).await.status, 200);
    for n in 2..=12 {
        tell(&gate, &query(n)).await;
    }
    let refused = gate.ask(&ask()).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(refused.text().contains("query"), "{}", refused.text());
    let incident = gate.incident().await;
    let sentence = incident["explain"].as_str().unwrap_or_default();
    assert!(sentence.contains("observed through telemetry"), "{incident}");
    assert_eq!((&incident["agent"], &incident["session"]), (&json!("watched"), &json!("s1")));
}

#[tokio::test]
async fn a_call_that_the_gateway_saw_is_not_charged_again() {
    let gate = gate(json!({})).await;
    let said = Said::text("hello");
    let ask = Speech::Chat.says(false, "what is new?").by("watched", "s1");
    assert_eq!(gate.ask(&ask).await.status, 200);
    let cost = || async { gate.scope("s1").await["cost_usd"].as_f64().unwrap() };
    let once = cost().await;
    assert!(once > 0.0);
    tell(&gate, &chat(1, said.input, said.output)).await;
    assert!((cost().await - once).abs() < 1e-12, "the gateway has charged it");
    tell(&gate, &chat(2, 1000, 100)).await;
    let more = cost().await;
    assert!(more > once, "one that only telemetry saw");
    tell(&gate, &chat(2, 1000, 100)).await;
    assert!((cost().await - more).abs() < 1e-12, "the exporter sent it again");
}

/// What an emitter says that a call cost counts where we know no price, and only there; and the list of
/// costs says the same as the session.
#[tokio::test]
async fn an_emitters_cost_stands_in_for_a_price_that_is_unknown() {
    let gate = gate(json!({})).await;
    let told = |n: u64, model: &str| {
        let own = json!({
            "gen_ai.operation.name": "chat", "gen_ai.request.model": model, "cost_usd": "0.125",
            "gen_ai.usage.input_tokens": 1000 + n, "gen_ai.usage.output_tokens": 10,
        });
        span(n, &own, None)
    };
    tell(&gate, &told(1, "house-model-that-has-no-price")).await;
    let once = gate.scope("s1").await["cost_usd"].as_f64().unwrap();
    assert!((once - 0.125).abs() < 1e-9, "{once}");
    tell(&gate, &told(2, "gpt-4o")).await;
    let both = gate.scope("s1").await["cost_usd"].as_f64().unwrap();
    assert!(both > once && both < 0.2, "by our own price: {both}");
    gate.ask(&Ask::get("/api/incidents")).await;
    let listed = gate.ask(&Ask::get("/api/costs?by=model")).await.json();
    let cost = |model: &str| {
        let items = listed["items"].as_array().unwrap();
        items.iter().find(|item| item["of"] == model).unwrap()["cost_usd"].as_f64().unwrap()
    };
    let sum = cost("house-model-that-has-no-price") + cost("gpt-4o");
    assert!((cost("house-model-that-has-no-price") - 0.125).abs() < 1e-9, "{listed}");
    assert!((sum - both).abs() < 1e-9, "{listed}");
}

/// Most emitters leave arguments out: then calls that fail alike are no repeated call, and only a long row of
/// them ends the session.
#[tokio::test]
async fn calls_without_their_arguments_are_no_repeated_call() {
    let gate = gate(json!({ "preset": "strict" })).await;
    let bash = |n: u64| {
        let own = json!({ "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "Bash" });
        span(n, &own, Some("Shell command failed"))
    };
    for n in 1..=8 {
        tell(&gate, &bash(n)).await;
    }
    let next = || Speech::Chat.says(false, "go on").by("watched", "s1");
    let answered = gate.ask(&next()).await;
    assert_eq!(answered.status, 200, "{}", answered.text());
    for n in 9..=40 {
        tell(&gate, &bash(n)).await;
    }
    let refused = gate.ask(&next()).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(refused.text().contains("whatever it was asked"), "{}", refused.text());
}

#[tokio::test]
async fn a_budget_holds_for_what_telemetry_tells_of() {
    let gate = gate(json!({ "budget": { "max_cost_usd": 0.05 } })).await;
    tell(&gate, &chat(1, 100_000, 1000)).await;
    let refused = gate.ask(&Speech::Chat.says(false, "more").by("watched", "s1")).await;
    assert_eq!(refused.status, 402, "{}", refused.text());
}

#[tokio::test]
async fn calls_that_ran_after_a_stop_are_counted() {
    let gate = gate(json!({ "steps": { "max_steps": 2, "action": "terminate" } })).await;
    for number in 1..=5 {
        tell(&gate, &query(number)).await;
    }
    let scope = gate.scope("s1").await;
    assert_eq!((scope["state"].as_str(), scope["steps"].as_u64()), (Some("killed"), Some(5)));
}

#[tokio::test]
async fn bad_telemetry_is_told_why_and_the_rest_is_kept() {
    let gate = gate(json!({})).await;
    for (ask, status) in [
        (Ask::post("/v1/traces", &json!({ "resourceSpans": 7 })), 400),
        (Ask { body: b"hello".to_vec(), ..Ask::of("POST", "/v1/traces", None) }, 415),
        (Ask::get("/v1/traces"), 405),
    ] {
        let got = gate.ask(&ask).await;
        assert_eq!(got.status, status, "{}", got.text());
        assert!(!got.json()["detail"].as_str().unwrap().is_empty());
    }
    let mut mixed = query(1);
    let spans = mixed["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array_mut().unwrap();
    let mut nameless = spans[0].clone();
    nameless["spanId"] = json!("00000000000000ff");
    nameless["attributes"] = attributes(&json!({ "gen_ai.operation.name": "chat" }));
    spans.push(nameless);
    let got = gate.ask(&Ask::post("/v1/traces", &mixed)).await.json();
    assert_eq!(got["partialSuccess"]["rejectedSpans"], "1", "{got}");
    assert_eq!(gate.scope("s1").await["steps"], 1);
    for path in ["/v1/logs", "/v1/metrics"] {
        assert_eq!(gate.ask(&Ask::post(path, &json!({}))).await.status, 200, "{path}");
    }
}
