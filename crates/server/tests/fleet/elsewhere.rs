//! What one node has in its memory, and what all nodes do at once: a client that moves to another
//! node must not notice a difference.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::databases::{script, start};
use crate::fleet::steps::{call, hello, relaxed};
use crate::gate::aside;
use crate::support::{Ask, Gate, Got, Said, Seen, Speech, soon, until};

fn count(all: &[Got], status: u16) -> usize {
    all.iter().filter(|got| got.status == status).count()
}

#[tokio::test]
async fn a_price_that_was_the_last_one_is_gone_everywhere() {
    let gate = Gate::start(relaxed(), hello).await;
    let own = json!({ "input_usd": 7.0, "output_usd": 1.0, "cache_read_usd": null, "cache_write_usd": null });
    let path = "/api/prices/house-llm";
    let source = async |node: usize| {
        let got = gate.ask_at(node, &Ask::get("/api/prices?model=house-llm")).await;
        got.json()["items"][0]["source"].as_str().unwrap().to_owned()
    };
    for round in 0..3 {
        let got = gate.ask_at(round, &Ask::of("PUT", path, Some(&own))).await;
        assert_eq!(got.status, 200, "{}", got.text());
        for node in 0..3 {
            assert_eq!(source(node).await, "own", "node {node}");
        }
        assert!(gate.ask_at(round + 1, &Ask::of("DELETE", path, None)).await.status < 300);
        for node in 0..3 {
            assert_eq!(source(node).await, "fallback", "node {node}");
        }
    }
}

#[tokio::test]
async fn a_project_is_made_once() {
    let gate = Gate::start(relaxed(), hello).await;
    for round in 0..5 {
        let make = Ask::post("/api/projects", &json!({ "name": format!("p{round}") }));
        let all = tokio::join!(gate.ask_at(0, &make), gate.ask_at(1, &make), gate.ask_at(2, &make));
        let all = [all.0, all.1, all.2];
        assert_eq!((count(&all, 201), count(&all, 409)), (1, 2), "round {round}");
    }
}

/// Two people, each at a node, say the opposite at the same time: one is told that it is in force.
#[tokio::test]
async fn of_two_words_about_a_call_one_counts() {
    let deleting = |_: &Seen| {
        Speech::Chat.reply(false, &Said::call("c1", "delete_asset", json!({ "asset_id": "x" })))
    };
    let gate = Gate::start(json!({ "access": { "ask": ["delete_*"] } }), deleting).await;
    for round in 0..6 {
        let (ask, address) = (call("cleaner", &format!("s{round}")), gate.node(round));
        let held = tokio::spawn(async move { ask.send_to(address).await });
        let list = Ask::get("/api/approvals");
        let mut id = String::new();
        for node in 0..3 {
            until("a call that waits", async || {
                let items = gate.ask_at(node, &list).await.json()["items"].clone();
                items.as_array().is_some_and(|items| items.len() == 1)
            })
            .await;
            let items = gate.ask_at(node, &list).await.json()["items"].clone();
            items[0]["id"].as_str().unwrap().clone_into(&mut id);
        }
        let word = |word: &str| {
            Ask::post(&format!("/api/approvals/{id}/{word}"), &json!({ "reason": "because" }))
        };
        let (yes, no) = (word("approve"), word("deny"));
        let (yes, no) = tokio::join!(gate.ask_at(round + 1, &yes), gate.ask_at(round + 2, &no));
        let (yes, no) = (yes.status, no.status);
        assert!([(200, 409), (409, 200)].contains(&(yes, no)), "round {round}: {yes}, {no}");
        let got = soon("the held answer", held).await.unwrap();
        assert_eq!(got.status, if yes == 200 { 200 } else { 403 }, "{}", got.text());
    }
    let audit = gate.ask_at(0, &Ask::get("/api/audit?limit=100")).await.json();
    let actions = audit["items"].as_array().unwrap().iter();
    let words = actions.filter(|one| one["action"].as_str().unwrap().starts_with("call."));
    assert_eq!(words.count(), 6);
}

/// What is nested in a session starts afresh with it, on every node.
#[tokio::test]
async fn a_reset_reaches_what_is_nested() {
    let gate = Gate::start(json!({ "preset": "strict" }), hello).await;
    let path = |what: &str| format!("/api/sessions/tidy/s/{what}");
    let passes = async |node: usize, id: &str| {
        let tool = json!({ "id": id, "tool": "read_file", "arguments": { "path": "gone.md" } });
        let asked = json!({ "calls": [tool], "scope": ["helper"] });
        let got = gate.ask_at(node, &Ask::post(&path("proposal"), &asked)).await;
        assert!([200, 403].contains(&got.status), "{}", got.text());
        got.status == 200 && got.json()["calls"][0]["verdict"] == "allow"
    };
    let mut steps = 0;
    while passes(steps, &format!("t{steps}")).await {
        let receipt = json!({
            "id": format!("t{steps}"), "status": "error", "text": "no such file", "scope": ["helper"],
        });
        let got = gate.ask_at(steps, &Ask::post(&path("receipt"), &receipt)).await;
        assert!([200, 403].contains(&got.status), "{}", got.text());
        steps += 1;
        assert!(steps < 12, "it loops and is not stopped");
    }
    gate.order("kill", json!({ "agent": "tidy", "session": "s" })).await;
    for node in 0..3 {
        assert!(!passes(node, &format!("u{node}")).await, "node {node}");
    }
    gate.order("reset", json!({ "agent": "tidy", "session": "s" })).await;
    for node in 0..3 {
        assert!(passes(node, &format!("v{node}")).await, "node {node}");
    }
}

/// A client that waits for its call to be stopped can wait at any node, and is told.
#[tokio::test]
async fn a_report_waits_for_the_stop() {
    let gate = Gate::start(relaxed(), hello).await;
    let path = |what: &str| format!("/api/sessions/runner/s/{what}");
    let tool = json!({ "calls": [{ "id": "t", "tool": "build" }] });
    let got = gate.ask_at(0, &Ask::post(&path("proposal"), &tool)).await;
    assert_eq!(got.json()["calls"][0]["verdict"], "allow", "{}", got.text());
    let wait = |ms: u64| Ask::post(&path("progress"), &json!({ "id": "t", "wait_ms": ms }));
    let asked = Instant::now();
    let got = gate.ask_at(1, &wait(700)).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(asked.elapsed() >= Duration::from_millis(700), "it did not wait");
    let unknown = Ask::post(&path("progress"), &json!({ "id": "u", "wait_ms": 50_000 }));
    assert_eq!(soon("an unknown call", gate.ask_at(1, &unknown)).await.status, 404);
    let (ask, address) = (wait(55_000), gate.node(2));
    let waiting = tokio::spawn(async move { ask.send_to(address).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    gate.order("kill", json!({ "agent": "runner", "reason": "enough" })).await;
    let got = soon("the stop", waiting).await.unwrap();
    assert_eq!(got.status, 403, "{}", got.text());
}

/// An agent that uses tools goes on while Redis is away, and what it did is booked afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_go_on_while_redis_is_away() {
    let mut policy = relaxed();
    policy["fail_mode"] = json!("open");
    let steps = |seen: &Seen| {
        let messages = seen.json()["messages"].as_array().map_or(0, Vec::len);
        Speech::Chat.reply(false, &Said::call(&format!("c{messages}"), "look", json!({})))
    };
    let gate = Gate::start(policy, steps).await;
    let mut messages = vec![json!({ "role": "user", "content": "Look around" })];
    let mut step = async |gate: &Gate| {
        let request = json!({ "model": "gpt-4o", "messages": messages });
        let ask = Ask::post("/openai/v1/chat/completions", &request).by("looker", "s");
        let got = soon("a step", gate.ask_at(0, &ask)).await;
        assert_eq!(got.status, 200, "{}", got.text());
        let answer = got.json()["choices"][0]["message"].clone();
        let id = answer["tool_calls"][0]["id"].clone();
        messages.push(answer);
        messages.push(json!({ "role": "tool", "tool_call_id": id, "content": "nothing" }));
    };
    step(&gate).await;
    let path = |what: &str| format!("/api/sessions/looker/s/{what}");
    let tool = json!({ "calls": [{ "id": "t", "tool": "build" }] });
    assert_eq!(gate.ask_at(0, &Ask::post(&path("proposal"), &tool)).await.status, 200);
    let redis = gate.redis.clone();
    aside(move || redis.kill()).await;
    let known = async || gate.ask_at(0, &Ask::get("/readyz")).await.status == 503;
    until("the node knows that it is away", known).await;
    for _ in 0..3 {
        step(&gate).await;
    }
    // What runs goes on, and its end is booked when that can be done.
    let progress = Ask::post(&path("progress"), &json!({ "id": "t" }));
    assert_eq!(soon("whether it may go on", gate.ask_at(0, &progress)).await.status, 200);
    let receipt = Ask::post(&path("receipt"), &json!({ "id": "t", "status": "ok" }));
    let got = soon("a receipt", gate.ask_at(0, &receipt)).await;
    assert_eq!((got.status, &got.json()["code"]), (503, &json!("not_durable")), "{}", got.text());
    // So is one of a call that was allowed while Redis was away.
    let tool = json!({ "calls": [{ "id": "u", "tool": "build" }] });
    let got = soon("an unasked call", gate.ask_at(0, &Ask::post(&path("proposal"), &tool))).await;
    assert_eq!(got.json()["calls"][0]["allowed"], true, "{}", got.text());
    let receipt = Ask::post(&path("receipt"), &json!({ "id": "u", "status": "ok", "wait": false }));
    let got = soon("its receipt", gate.ask_at(0, &receipt)).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let redis = gate.redis.clone();
    aside(move || redis.revive()).await;
    let well = async || gate.ask_at(0, &Ask::get("/readyz")).await.status == 200;
    until("it is back", well).await;
    step(&gate).await;
    // Seven in all: calls that were allowed while Redis was away count like the others.
    until("all tool calls are booked", async || gate.scope("s").await["steps"] == 7).await;
}

/// Operators have keys. They are believed while the database is away, and a kill is in force at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_known_while_the_database_is_away() {
    let (folder, address) = aside(|| start(&[&std::process::id().to_string()])).await;
    let mut policy = relaxed();
    policy["fail_mode"] = json!("open");
    let gate = Gate::at(&address, policy, hello, |_| {}).await;
    let make = Ask::post("/api/keys", &json!({ "name": "ann", "role": "admin" }));
    let key = gate.ask_at(0, &make).await.json()["key"].as_str().unwrap().to_owned();
    let ask = call("a", "s").with("x-deadstop-key", &key);
    for node in 0..3 {
        assert_eq!(gate.ask_at(node, &ask).await.status, 200, "node {node}");
    }
    // Longer than it takes a node to look by itself whether something was changed.
    tokio::time::sleep(Duration::from_millis(4500)).await;
    let gone = folder.clone();
    aside(move || script(&["pause", &gone])).await;
    for node in 0..3 {
        let got = soon("a call", gate.ask_at(node, &ask)).await;
        assert_eq!(got.status, 200, "node {node}: {}", got.text());
    }
    let kill = Ask::post("/api/kill", &json!({ "agent": "a", "reason": "enough" })).key(&key);
    let got = soon("an order", gate.ask_at(1, &kill)).await;
    assert_eq!((got.status, &got.json()["code"]), (503, &json!("not_durable")), "{}", got.text());
    for node in 0..3 {
        until("it is dead", async || gate.ask_at(node, &ask).await.status == 403).await;
    }
    let again = folder.clone();
    aside(move || script(&["resume", &again])).await;
    until("it is on disk", async || gate.ask_at(2, &kill).await.status == 200).await;
    drop(gate.stop().await);
    aside(move || script(&["stop", &folder])).await;
}
