//! The scenarios that every door must judge alike (`tests/conformance`), through the API and
//! through the gateway.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::{Ask, Gate, Got, Reply, Said, Speech, Turn};

/// Those that need no clock and nothing that only a process of one's own has.
fn scenarios() -> Vec<Value> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let file = file.join("../../tests/conformance/scenarios.json");
    let all: Vec<Value> = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    all.into_iter().filter(|scenario| scenario["needs"].is_null()).collect()
}

fn steps(scenario: &Value) -> Vec<Value> {
    scenario["steps"].as_array().unwrap().clone()
}

async fn post(gate: &Gate, what: &str, body: &Value) -> Got {
    gate.ask(&Ask::post(&format!("/api/sessions/agent/s1/{what}"), body)).await
}

/// What was decided, as the scenarios write it. Who is dead is told so without a decision.
fn said(decision: &Value, code: &Value) -> String {
    if decision.is_null() {
        return format!("kill killed/{}", code.as_str().unwrap_or_default());
    }
    let verdict = decision["verdict"].as_str().unwrap();
    match decision["trips"].get(0) {
        None => verdict.to_owned(),
        Some(trip) => {
            let part = |name: &str| trip[name].as_str().unwrap_or_default().to_owned();
            format!("{verdict} {}/{}", part("guard"), part("reason"))
        }
    }
}

async fn ask(gate: &Gate, id: &str, step: &Value) -> String {
    let scope = step.get("scope").cloned().unwrap_or_else(|| json!([]));
    if let Some(tool) = step["tool"].as_str() {
        let mut call = json!({ "id": id, "tool": tool, "arguments": step["arguments"] });
        if step["server"].is_string() {
            call["server"] = step["server"].clone();
        }
        let got = post(gate, "proposal", &json!({ "calls": [call], "scope": scope })).await.json();
        return said(&got["calls"][0], &got["code"]);
    }
    let mut call = json!({ "id": id, "model": step["model"], "scope": scope });
    for name in ["input_tokens", "max_output_tokens", "prompt", "from_person", "provider"] {
        if let Some(value) = step.get(name) {
            call[name] = value.clone();
        }
    }
    let got = post(gate, "preflight", &call).await.json();
    match got.get("code") {
        Some(code) => said(&got["decision"], code),
        None => said(&got, &Value::Null),
    }
}

async fn end(gate: &Gate, id: &str, scope: &Value, step: &Value) -> String {
    let text = step.get("result").or_else(|| step.get("answer")).cloned();
    let status = step.get("status").cloned().unwrap_or_else(|| "ok".into());
    let mut receipt = json!({ "id": id, "status": status, "text": text });
    if !scope.is_null() {
        receipt["scope"] = scope.clone();
    }
    if step["usage"].is_object() {
        receipt["usage"] = step["usage"].clone();
    }
    let got = post(gate, "receipt", &receipt).await.json();
    match got.get("code") {
        Some(_) => "kill".to_owned(),
        None => got["verdict"].as_str().unwrap().to_owned(),
    }
}

#[tokio::test]
async fn the_api_says_what_the_scenarios_say() {
    let mut played = 0;
    for scenario in scenarios() {
        let gate = Gate::start(scenario["policy"].clone(), |_| Reply::json(200, &json!({}))).await;
        let opening = json!({ "agent": "agent", "session": "s1" });
        gate.ask(&Ask::post("/api/sessions", &opening)).await;
        let mut open = HashMap::new();
        let mut killed = false;
        for (number, step) in steps(&scenario).iter().enumerate() {
            let (at, id) = (format!("{}, step {number}", scenario["name"]), format!("c{number}"));
            if let Some(reason) = step["kill"].as_str() {
                post(&gate, "kill", &json!({ "reason": reason })).await;
                killed = true;
            } else if let Some(name) = step["end"].as_str() {
                let (id, scope): (String, Value) = open.remove(name).unwrap();
                let then = end(&gate, &id, &scope, step).await;
                // Who was killed meanwhile hears of that, although the call is booked.
                let expected = if killed { "kill" } else { step["then"].as_str().unwrap() };
                assert_eq!(then, expected, "{at}");
            } else {
                let answer = ask(&gate, &id, step).await;
                assert_eq!(answer, step["expect"], "{at}");
                if let Some(name) = step["open"].as_str() {
                    open.insert(name.to_owned(), (id, step["scope"].clone()));
                } else if ["allow", "warn", "steer"].iter().any(|word| answer.starts_with(word)) {
                    assert_eq!(end(&gate, &id, &step["scope"], step).await, step["then"], "{at}");
                }
            }
        }
        gate.stop().await;
        played += 1;
    }
    assert!(played >= 30);
}

/// Through the gateway tool calls come in a model's answers, and their results with the next
/// request: those scenarios that are about tool calls alone can be told that way.
#[tokio::test]
async fn the_gateway_says_what_the_scenarios_say() {
    let mut played = 0;
    for scenario in scenarios() {
        let steps = steps(&scenario);
        let plain = |step: &Value| {
            let other = ["open", "end", "server", "status", "model"];
            other.iter().all(|key| step.get(*key).is_none())
        };
        if !steps.iter().all(plain) {
            continue;
        }
        let next = Arc::new(Mutex::new(Said::default()));
        let upstream = Arc::clone(&next);
        let gate = Gate::start(scenario["policy"].clone(), move |_| {
            Speech::Chat.reply(false, &upstream.lock().unwrap())
        })
        .await;
        let mut histories: HashMap<String, Vec<Turn>> = HashMap::new();
        for (number, step) in steps.iter().enumerate() {
            let at = format!("{}, step {number}", scenario["name"]);
            if let Some(reason) = step["kill"].as_str() {
                post(&gate, "kill", &json!({ "reason": reason })).await;
                continue;
            }
            let scope = step["scope"].as_array().cloned().unwrap_or_default();
            let scope: Vec<&str> = scope.iter().filter_map(Value::as_str).collect();
            let scope = scope.join("/");
            let begin = || vec![Turn::User("do what must be done here".into())];
            let history = histories.entry(scope.clone()).or_insert_with(begin);
            let (id, name) = (format!("call_{number}"), step["tool"].as_str().unwrap());
            *next.lock().unwrap() = Said::call(&id, name, step["arguments"].clone());
            let mut request = Speech::Chat.ask(false, history).by("agent", "s1");
            if !scope.is_empty() {
                request = request.with("x-deadstop-scope", &scope);
            }
            let got = gate.ask(&request).await;
            let part = |name: &str| got.header(&format!("x-deadstop-{name}")).map(str::to_owned);
            let told = match (got.status, part("verdict")) {
                (200, _) if part("warning").is_some() => "warn".to_owned(),
                (200, _) => "allow".to_owned(),
                (_, verdict) => format!(
                    "{} {}/{}",
                    verdict.unwrap_or_default(),
                    part("guard").unwrap_or_default(),
                    part("reason").unwrap_or_default()
                ),
            };
            let expected = step["expect"].as_str().unwrap();
            // What the model is told stands in the header for people, too.
            let told_of = expected.starts_with("warn") || expected.starts_with("steer");
            let expected = if told_of { "warn" } else { expected };
            // A warning may be about the result that came with this request.
            let before = number > 0 && steps[number - 1]["then"] == "warn";
            assert!(told == expected || (before && told == "warn"), "{at}: {told} for {expected}");
            if got.status == 200 {
                let (name, text) = (name.to_owned(), step["result"].as_str().unwrap().to_owned());
                let arguments = step["arguments"].clone();
                history.push(Turn::Call { id: id.clone(), name: name.clone(), arguments });
                history.push(Turn::Result { id, name, text });
            }
        }
        gate.stop().await;
        played += 1;
    }
    assert!(played >= 15, "{played}");
}
