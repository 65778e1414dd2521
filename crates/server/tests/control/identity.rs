//! Which session a request belongs to, as a table (`tests/conformance/identity.json`): on one server and
//! on three nodes, where each request comes to any of them.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{Ask, Gate, Reply, Said, Seen, Speech};

/// The provider answers with the number and the status that a request asks for.
fn answer(seen: &Seen) -> Reply {
    let status = seen.header("x-status").and_then(|status| status.parse().ok()).unwrap_or(200);
    if status != 200 {
        return Reply::json(status, &json!({ "error": { "message": "no" } }));
    }
    let number = seen.header("x-number").unwrap_or_default();
    Speech::Chat.reply(false, &Said::text(&format!("answer {number}")))
}

/// Model calls of each session of an agent.
async fn calls(gate: &Gate, agent: &str) -> HashMap<String, u64> {
    let status = gate.ask(&Ask::get("/api/status?limit=500")).await.json();
    let scopes = status["scopes"].as_array().cloned().unwrap_or_default();
    let own = |scope: &&Value| scope["kind"] == "session" && scope["agent"] == agent;
    let name = |scope: &Value| scope["name"].as_str().unwrap().to_owned();
    scopes.iter().filter(own).map(|s| (name(s), s["model_calls"].as_u64().unwrap())).collect()
}

fn request(agent: &str, number: usize, request: &Value) -> Ask {
    let says = request["says"].as_array().unwrap().iter().enumerate();
    let role = |at: usize| if at.is_multiple_of(2) { "user" } else { "assistant" };
    let messages: Vec<Value> =
        says.map(|(at, text)| json!({ "role": role(at), "content": text })).collect();
    let mut body = json!({ "model": "gpt-4o", "messages": messages });
    for (name, value) in request["body"].as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    let path = format!("/agent/{agent}/openai/v1/chat/completions");
    let key = format!("Bearer {}", request["key"].as_str().unwrap());
    let mut ask = Ask::post(&path, &body).with("authorization", &key);
    ask = ask.with("x-number", &number.to_string());
    if let Some(status) = request["status"].as_u64() {
        ask = ask.with("x-status", &status.to_string());
    }
    for (name, value) in request["headers"].as_object().into_iter().flatten() {
        ask = ask.with(name, value.as_str().unwrap());
    }
    ask
}

#[tokio::test]
async fn every_request_belongs_to_its_session() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let file = fs::read_to_string(file.join("../../tests/conformance/identity.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&file).unwrap();
    let gate = Gate::start(json!({}), answer).await;
    for (at, case) in cases.iter().enumerate() {
        let (agent, name) = (format!("case-{at}"), &case["name"]);
        let mut labels = HashMap::<String, String>::new();
        let mut before = HashMap::new();
        for (number, asked) in case["requests"].as_array().unwrap().iter().enumerate() {
            let got = gate.ask(&request(&agent, number + 1, asked)).await;
            assert_eq!(u64::from(got.status), asked["status"].as_u64().unwrap_or(200), "{name}");
            let after = calls(&gate, &agent).await;
            let grew = after.iter().find(|(name, calls)| before.get(*name) != Some(*calls));
            let (session, _) = grew.unwrap_or_else(|| panic!("{name}: no session was called"));
            let label = asked["session"].as_str().unwrap();
            match label.strip_prefix('=') {
                Some(exactly) => assert_eq!(session, exactly, "{name}, request {}", number + 1),
                None => {
                    let known = labels.iter().find(|(_, known)| *known == session);
                    let known = known.map_or(label, |(label, _)| label.as_str()).to_owned();
                    let is = labels.entry(label.to_owned()).or_insert_with(|| session.clone());
                    assert_eq!((is.as_str(), known.as_str()), (session.as_str(), label), "{name}");
                }
            }
            before = after;
        }
    }
}
