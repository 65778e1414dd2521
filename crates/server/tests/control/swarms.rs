//! Sub-agents that clients tell of, a compaction, and the windows of providers as people see them.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::support::{Ask, Gate, Reply, Said, Seen, Speech, Step, until};

/// Opens a scope of the session: the status, and the code of a refusal.
async fn open(gate: &Gate, scope: &[&str], more: Value) -> (u16, String) {
    let mut body = json!({ "agent": "lead", "session": "s", "scope": scope });
    for (key, value) in more.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    let got = gate.ask(&Ask::post("/api/sessions", &body)).await;
    let code = got.json()["code"].as_str().unwrap_or_default().to_owned();
    (got.status, code)
}

/// Proposes a tool call: the reason of a refusal, or nothing.
async fn propose(gate: &Gate, scope: &[&str], id: &str, call: Value) -> String {
    let mut call = call;
    call["id"] = id.into();
    let body = json!({ "calls": [call], "scope": scope });
    let got = gate.ask(&Ask::post("/api/sessions/lead/s/proposal", &body)).await;
    let decided = got.json()["calls"][0].clone();
    match decided["allowed"] == true {
        true => String::new(),
        false => decided["trips"][0]["reason"].as_str().unwrap_or("?").to_owned(),
    }
}

async fn receipt(gate: &Gate, scope: &[&str], id: &str, text: &str) -> Value {
    let body = json!({ "id": id, "status": "ok", "text": text, "scope": scope });
    gate.ask(&Ask::post("/api/sessions/lead/s/receipt", &body)).await.json()
}

fn look(n: usize) -> Value {
    json!({ "tool": "read_file", "arguments": { "path": format!("{n}.md") } })
}

fn spawn(n: usize) -> Value {
    json!({ "tool": "Task", "arguments": { "prompt": format!("part {n}") }, "spawns": true })
}

fn hello(_: &Seen) -> Reply {
    Speech::Chat.reply(false, &Said::text("Hello"))
}

#[tokio::test]
async fn sub_agents_are_counted_whichever_way_they_are_told() {
    let gate = Gate::start(json!({ "swarm": { "max_agents": 3 } }), hello).await;
    assert_eq!(open(&gate, &[], json!({})).await.0, 200);
    // One announces itself by the call that starts it, one by its start, one by its first call.
    assert_eq!(propose(&gate, &[], "t1", spawn(1)).await, "");
    assert_eq!(open(&gate, &["a"], json!({})).await.0, 200);
    assert_eq!(open(&gate, &["b"], json!({})).await.0, 200);
    assert_eq!(propose(&gate, &["c"], "t2", look(2)).await, "");
    assert_eq!(propose(&gate, &[], "t3", spawn(3)).await, "max_agents");
    assert_eq!(open(&gate, &["d"], json!({})).await, (403, "max_agents".to_owned()));
    assert_eq!(propose(&gate, &["d"], "t4", look(4)).await, "max_agents");
    for (n, scope) in ["a", "b", "c"].into_iter().enumerate() {
        assert_eq!(propose(&gate, &[scope], &format!("u{n}"), look(10 + n)).await, "");
    }
    assert_eq!(gate.scope("s").await["state"], "running", "a refusal ends nothing");
}

#[tokio::test]
async fn a_sub_agent_that_ends_makes_room_on_every_node() {
    let gate = Gate::start(json!({ "swarm": { "max_parallel": 2, "max_depth": 2 } }), hello).await;
    assert_eq!(open(&gate, &["a"], json!({})).await.0, 200);
    assert_eq!(open(&gate, &["a", "b"], json!({})).await.0, 200);
    assert_eq!(open(&gate, &["c"], json!({})).await, (429, "max_parallel".to_owned()));
    assert_eq!(open(&gate, &["a", "b"], json!({ "done": true })).await.0, 200);
    assert_eq!(open(&gate, &["a", "b", "x"], json!({})).await, (403, "max_depth".to_owned()));
    assert_eq!(open(&gate, &["c"], json!({})).await.0, 200);
    assert_eq!(propose(&gate, &["a", "b"], "t1", look(1)).await, "max_parallel");
    // A call that starts one and ends makes room again, if the sub-agent never showed itself.
    assert_eq!(open(&gate, &["c"], json!({ "done": true })).await.0, 200);
    assert_eq!(propose(&gate, &["a"], "t2", spawn(2)).await, "");
    assert_eq!(propose(&gate, &["a"], "t3", spawn(3)).await, "max_parallel");
    receipt(&gate, &["a"], "t2", "done").await;
    assert_eq!(propose(&gate, &["a"], "t4", spawn(4)).await, "");
}

/// Calls the same until it is refused: how often it ran.
async fn repeats(gate: &Gate, first: usize) -> usize {
    for n in 0..20 {
        let id = format!("r{}", first + n);
        if !propose(gate, &[], &id, look(0)).await.is_empty() {
            return n;
        }
        receipt(gate, &[], &id, "nothing new").await;
    }
    20
}

#[tokio::test]
async fn a_compaction_lets_an_agent_look_again() {
    let gate = Gate::start(json!({ "loop": { "block_at": 4, "end_at": 50 } }), hello).await;
    open(&gate, &[], json!({})).await;
    let first = repeats(&gate, 0).await;
    assert!((2..10).contains(&first), "{first}");
    assert_eq!(repeats(&gate, 100).await, 0, "it is still refused");
    assert_eq!(open(&gate, &[], json!({ "compacted": true })).await.0, 200);
    assert_eq!(repeats(&gate, 200).await, first, "what it forgot it may look up again");
    // A model call says the same.
    let call = json!({ "id": "m1", "model": "gpt-4o", "input_tokens": 10, "compacted": true });
    let got = gate.ask(&Ask::post("/api/sessions/lead/s/preflight", &call)).await;
    assert_eq!(got.status, 200, "{}", got.text());
    receipt(&gate, &[], "m1", "I will look again.").await;
    assert_eq!(repeats(&gate, 300).await, first);
}

#[tokio::test]
async fn the_windows_of_providers_are_shown() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let (soon, later) = (now + 3600, now + 400_000);
    let answer = move |_: &Seen| -> Reply {
        let body = json!({ "id": "m", "type": "message", "role": "assistant", "model": "claude",
            "content": [{ "type": "text", "text": "Hi" }], "stop_reason": "end_turn",
            "usage": { "input_tokens": 1, "output_tokens": 1 } })
        .to_string();
        let (soon, later, length) = (soon.to_string(), later.to_string(), body.len().to_string());
        let headers = [
            ("content-type", "application/json"),
            ("content-length", length.as_str()),
            ("anthropic-ratelimit-unified-5h-utilization", "0.62"),
            ("anthropic-ratelimit-unified-5h-reset", soon.as_str()),
            ("anthropic-ratelimit-unified-7d-utilization", "0.07"),
            ("anthropic-ratelimit-unified-7d-reset", later.as_str()),
        ];
        Reply::head(200, &headers).then(Step::Raw(body.into_bytes()))
    };
    let gate = Gate::start(json!({}), answer).await;
    let got = gate.ask(&Speech::Anthropic.says(false, "Hello").by("subscriber", "s")).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let is_shown = |quotas: &Value| {
        let five = (&quotas[0]["provider"], &quotas[0]["window"], &quotas[0]["used"]);
        let resets = quotas[0]["resets_ms"].as_u64().unwrap_or_default();
        five == (&json!("anthropic"), &json!("5h"), &json!(0.62))
            && (soon * 1000..soon * 1000 + 60_000).contains(&resets)
            && (&quotas[1]["window"], &quotas[1]["used"]) == (&json!("7d"), &json!(0.07))
    };
    // A node shows what it has in memory: in a fleet the next one may not know the agent yet.
    until("the agent's quota", async || {
        is_shown(&gate.ask(&Ask::get("/api/agents/subscriber")).await.json()["quotas"])
    })
    .await;
    until("the quota among what runs", async || {
        let status = gate.ask(&Ask::get("/api/status?kind=agent")).await.json();
        is_shown(&status["scopes"][0]["quotas"])
    })
    .await;
    until("the metric", async || {
        let text = gate.ask(&Ask::get("/metrics")).await.text();
        let used = "deadstop_quota_used_ratio{provider=\"anthropic\",window=\"5h\"} 0.62";
        text.lines().any(|line| line == used)
    })
    .await;
    let sessions = gate.ask(&Ask::get("/api/status?kind=session")).await.json();
    assert!(sessions["scopes"][0]["quotas"].is_null(), "{sessions}");
}
