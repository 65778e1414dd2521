//! What is said to one node holds on all of them, from the next call on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::fleet::steps::{call, hello, relaxed};
use crate::gate::aside;
use crate::support::dialect::chat_chunk;
use crate::support::wire::Next;
use crate::support::{
    Ask, Dice, Gate, Got, Reply, Said, Seen, Speech, Step, heavy, rounds, soon, until,
};

/// Asks a node until it has an answer of its own, and not because a store was late.
async fn judged(gate: &Gate, node: usize, ask: &Ask) -> Got {
    soon("a decision", async {
        loop {
            let got = gate.ask_at(node, ask).await;
            if got.status != 503 {
                return got;
            }
        }
    })
    .await
}

/// A stream that does not end by itself.
fn endless(_: &Seen) -> Reply {
    let event = chat_chunk(&json!({ "content": "once upon a time" }), None);
    Reply::stream().then(Step::Chunk(event)).then(Step::Hang)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_on_one_node_ends_streams_on_all() {
    let gate = Gate::start(relaxed(), endless).await;
    for from in 0..3 {
        let agent = format!("teller-{from}");
        let mut open = Vec::new();
        for node in 0..3 {
            let ask = Speech::Chat.says(true, "Tell me").by(&agent, &format!("s{node}"));
            let address = gate.node(node);
            let mut stream = soon("a stream", ask.open(address)).await.unwrap();
            assert_eq!(stream.status, 200);
            assert!(matches!(soon("its beginning", stream.next()).await, Next::Bytes(_)));
            open.push(stream);
        }
        gate.upstream.answering(3).await;
        let kill = Ask::post("/api/kill", &json!({ "agent": agent, "reason": "enough" }));
        assert_eq!(gate.ask_at(from, &kill).await.status, 200);
        for (node, stream) in open.into_iter().enumerate() {
            let got = soon("a stream's end", stream.rest()).await;
            assert!(got.complete, "node {node} cut its stream without an end");
            assert!(got.text().contains("agent_killed"), "node {node}: {}", got.text());
        }
        gate.upstream.answering(0).await;
        for node in 0..3 {
            let got = judged(&gate, node, &call(&agent, "another")).await;
            assert_eq!(got.status, 403, "node {node}: {}", got.text());
        }
    }
}

/// One caller a node, and an operator at a node by chance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_node_admits_a_call_after_the_acknowledgement() {
    let _turn = heavy().await;
    let gate = Arc::new(Gate::start(relaxed(), hello).await);
    let mut dice = Dice::new(11);
    let (mut before, mut after) = (0, 0);
    for number in 0..rounds(200, 1000) {
        let (agent, session) = (format!("a{number}"), format!("s{number}"));
        let acknowledged = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..3)
            .map(|node| {
                let ask = call(&agent, &session);
                let (gate, acknowledged) = (Arc::clone(&gate), Arc::clone(&acknowledged));
                tokio::spawn(async move {
                    let (mut before, mut after) = (0, 0);
                    while after < 2 {
                        let late = acknowledged.load(Ordering::SeqCst);
                        let got = gate.ask_at(node, &ask).await;
                        assert!([200, 403, 503].contains(&got.status), "{}", got.text());
                        assert!(!late || got.status != 200, "node {node}: {}", got.text());
                        before += usize::from(!late);
                        after += usize::from(late);
                    }
                    (before, after)
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_micros(dice.next() % 6000)).await;
        let order = [json!({ "agent": agent }), json!({ "agent": agent, "session": session })];
        let kill = Ask::post("/api/kill", &order[number % 2]);
        // A session without a call cannot be killed yet.
        let at = dice.to(2);
        until("the kill", async || gate.ask_at(at, &kill).await.status == 200).await;
        acknowledged.store(true, Ordering::SeqCst);
        for caller in callers {
            let counted = soon("a caller", caller).await.unwrap();
            before += counted.0;
            after += counted.1;
        }
    }
    println!("{before} calls sent before a kill, {after} after one, none of those admitted");
}

#[tokio::test]
async fn a_policy_holds_on_every_node_from_the_next_call_on() {
    let gate = Gate::start(relaxed(), hello).await;
    for round in 0..6 {
        // Every node has seen the agent, and holds what it thinks is its policy.
        for node in 0..3 {
            let got = judged(&gate, node, &call("worker", &format!("s{round}-{node}"))).await;
            assert_eq!(got.status, 200, "{}", got.text());
        }
        let path = "/api/policies/agents/worker";
        let mut policy = gate.ask_at(round % 3, &Ask::get(path)).await.json()["effective"].clone();
        assert!(policy.is_object(), "{policy}");
        policy["budget"]["max_cost_usd"] = json!(0.000_000_1);
        let body = json!({ "policy": policy, "kill_switch": null });
        let set = Ask::of("PUT", path, Some(&body)).with("if-match", "*");
        let got = gate.ask_at(round % 3, &set).await;
        assert!([200, 201].contains(&got.status), "{}", got.text());
        for node in 0..3 {
            let got = judged(&gate, node, &call("worker", &format!("t{round}-{node}"))).await;
            assert_eq!(got.status, 402, "round {round}, node {node}: {}", got.text());
        }
        let reset = Ask::of("DELETE", path, None).with("if-match", "*");
        assert!(gate.ask_at((round + 1) % 3, &reset).await.status < 300);
    }
}

#[tokio::test]
async fn keys_hold_on_every_node_from_the_next_call_on() {
    let gate = Gate::start(relaxed(), hello).await;
    for node in 0..3 {
        assert_eq!(gate.ask_at(node, &Ask::get("/api/status")).await.status, 200);
    }
    let make = |role: &str| {
        Ask::post(
            "/api/keys",
            &json!({ "name": role, "role": role, "agent": (role == "agent").then_some("*") }),
        )
    };
    let made = gate.ask_at(0, &make("admin")).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let admin = made.json()["key"].as_str().unwrap().to_owned();
    for node in 0..3 {
        assert_eq!(gate.ask_at(node, &Ask::get("/api/status")).await.status, 401, "node {node}");
        let got = gate.ask_at(node, &Ask::get("/api/status").key(&admin)).await;
        assert_eq!(got.status, 200, "node {node}");
    }
    for round in 0..6 {
        let made = gate.ask_at(round % 3, &make("viewer").key(&admin)).await.json();
        let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
        let look = Ask::get("/api/status").key(key);
        for node in 0..3 {
            assert_eq!(gate.ask_at(node, &look).await.status, 200, "node {node}");
        }
        let revoke = Ask::of("DELETE", &format!("/api/keys/{id}"), None).key(&admin);
        assert!(gate.ask_at((round + 1) % 3, &revoke).await.status < 300);
        for node in 0..3 {
            assert_eq!(gate.ask_at(node, &look).await.status, 401, "round {round}, node {node}");
        }
    }
}

#[tokio::test]
async fn prices_hold_on_every_node_from_the_next_call_on() {
    let gate = Gate::start(relaxed(), hello).await;
    for round in 0..6_u32 {
        let price = f64::from(round + 1);
        let body = json!({ "input_usd": price, "output_usd": 1.0, "cache_read_usd": null, "cache_write_usd": null });
        let node = round as usize % 3;
        let got = gate.ask_at(node, &Ask::of("PUT", "/api/prices/house-llm", Some(&body))).await;
        assert_eq!(got.status, 200, "{}", got.text());
        for node in 0..3 {
            let path = format!("/api/sessions/pricer/s{round}-{node}");
            let preflight = json!({ "id": "m", "model": "house-llm", "input_tokens": 1000 });
            let got =
                judged(&gate, node, &Ask::post(&format!("{path}/preflight"), &preflight)).await;
            assert_eq!(got.status, 200, "{}", got.text());
            let receipt = json!({ "id": "m", "status": "ok", "usage": { "input": 1_000_000 } });
            let got = gate.ask_at(node, &Ask::post(&format!("{path}/receipt"), &receipt)).await;
            assert_eq!(got.status, 200, "{}", got.text());
            let cost = gate.scope(&format!("s{round}-{node}")).await["cost_usd"].as_f64().unwrap();
            assert!((cost - price).abs() < 1e-9, "node {node} charges {cost} for {price}");
        }
    }
}

/// Each answer is 100 tokens for $0.001; the limit is a dollar's hundredth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agents_budget_holds_over_all_nodes() {
    let _turn = heavy().await;
    let answer = |_: &Seen| {
        let message = json!({ "role": "assistant", "content": "Done." });
        let body = json!({
            "id": "x", "object": "chat.completion", "model": "gpt-4o",
            "choices": [{ "index": 0, "finish_reason": "stop", "message": message }],
            "usage": { "prompt_tokens": 0, "completion_tokens": 100, "total_tokens": 100 },
        });
        Reply::json(200, &body)
    };
    let mut policy = relaxed();
    policy["agent"] = json!({ "budget": { "max_cost_usd": 0.01, "reservation": "ceiling" } });
    let gate = Gate::start(policy, answer).await;
    let refused = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..300)
        .map(|number: usize| {
            let request = json!({
                "model": "gpt-4o", "max_tokens": 100,
                "messages": [{ "role": "user", "content": "Go on" }],
            });
            let ask = Ask::post("/openai/v1/chat/completions", &request);
            let ask = ask.by("spender", &format!("s{}", number % 40));
            let (address, refused) = (gate.node(number % 3), Arc::clone(&refused));
            tokio::spawn(async move {
                let got = ask.send_to(address).await;
                assert!([200, 402, 403, 429, 503].contains(&got.status), "{}", got.text());
                refused.fetch_add(usize::from(got.status != 200), Ordering::SeqCst);
            })
        })
        .collect();
    for caller in callers {
        soon("a caller", caller).await.unwrap();
    }
    let (made, refused) = (gate.upstream.requests(), refused.load(Ordering::SeqCst));
    println!("300 calls at once: {made} made, {refused} refused, of a budget for 10");
    assert_eq!(made + refused, 300);
    assert!((1..=10).contains(&made), "{made} calls of $0.001 under a limit of $0.01");
    let spent = gate.scope("spender").await;
    assert!(spent["cost_usd"].as_f64().unwrap() <= 0.01 + 1e-9, "{spent}");
    assert_eq!(spent["in_flight"], 0, "{spent}");
}

#[tokio::test]
async fn a_governed_call_may_be_told_of_at_any_node() {
    let gate = Gate::start(json!({ "budget": { "max_cost_usd": 10 } }), hello).await;
    let path = |what: &str| format!("/api/sessions/cleaner/s1/{what}");
    let preflight =
        json!({ "id": "m1", "model": "gpt-4o", "input_tokens": 1000, "max_output_tokens": 1000 });
    let first = gate.ask_at(0, &Ask::post(&path("preflight"), &preflight)).await;
    assert_eq!(first.status, 200, "{}", first.text());
    // Told again elsewhere, it is the same call and the same answer.
    for node in [1, 2, 0] {
        let again = gate.ask_at(node, &Ask::post(&path("preflight"), &preflight)).await;
        assert_eq!(again.json(), first.json(), "node {node}");
    }
    let receipt = json!({ "id": "m1", "status": "ok", "usage": { "input": 1000, "output": 100 } });
    let booked = gate.ask_at(1, &Ask::post(&path("receipt"), &receipt)).await;
    assert_eq!(booked.status, 200, "{}", booked.text());
    for node in [2, 0, 1] {
        let again = gate.ask_at(node, &Ask::post(&path("receipt"), &receipt)).await;
        assert_eq!((again.status, again.json()), (200, booked.json()), "node {node}");
    }
    for _ in 0..3 {
        let scope = gate.scope("s1").await;
        let told = (&scope["model_calls"], &scope["cost_usd"], &scope["in_flight"]);
        assert_eq!(told, (&json!(1), &json!(0.0035), &json!(0)), "{scope}");
    }
}

/// Tool calls are asked for in an answer at one node, their results come in at another.
#[tokio::test]
async fn a_loop_is_found_over_nodes_at_the_same_step() {
    let steps = |seen: &Seen| {
        let messages = seen.json()["messages"].as_array().map_or(0, Vec::len);
        let call = Said::call(&format!("c{messages}"), "read_file", json!({ "path": "gone.md" }));
        Speech::Chat.reply(false, &call)
    };
    let policy = json!({ "loop": { "threshold": 5, "action": "terminate" } });
    let gate = Gate::start(policy, steps).await;
    for (number, nodes) in [[0, 0, 0], [0, 1, 2], [2, 2, 1], [1, 0, 1]].iter().enumerate() {
        let mut messages = vec![json!({ "role": "user", "content": "Read the file" })];
        let mut stopped = None;
        for step in 0..20 {
            let request = json!({ "model": "gpt-4o", "messages": messages });
            let ask = Ask::post("/openai/v1/chat/completions", &request);
            let ask = ask.by("reader", &format!("s{number}"));
            let got = gate.ask_at(nodes[step % 3], &ask).await;
            if got.status != 200 {
                stopped = Some((step, got));
                break;
            }
            let answer = got.json()["choices"][0]["message"].clone();
            let id = answer["tool_calls"][0]["id"].clone();
            messages.push(answer);
            let result = json!({ "role": "tool", "tool_call_id": id, "content": "no such file" });
            messages.push(result);
        }
        let (step, got) = stopped.unwrap_or_else(|| panic!("{nodes:?}: runs on"));
        assert_eq!((step, got.status), (4, 403), "{nodes:?}: {}", got.text());
        assert_eq!(got.json()["error"]["deadstop"]["guard"], "loop");
        for node in 0..3 {
            let again = gate.ask_at(node, &call("reader", &format!("s{number}"))).await;
            assert_eq!(again.status, 403, "node {node}");
        }
    }
}

#[tokio::test]
async fn a_call_that_waits_at_one_node_is_decided_at_another() {
    let deleting = |_: &Seen| {
        Speech::Chat.reply(false, &Said::call("c1", "delete_asset", json!({ "asset_id": "x" })))
    };
    let gate = Gate::start(json!({ "access": { "ask": ["delete_*"] } }), deleting).await;
    let words = [(0, 1, "approve", 200), (1, 2, "deny", 403), (2, 2, "approve", 200)];
    for (number, (held_at, seen_at, word, status)) in words.into_iter().enumerate() {
        let ask = call("cleaner", &format!("s{number}"));
        let address = gate.node(held_at);
        let held = tokio::spawn(async move { ask.send_to(address).await });
        let list = Ask::get("/api/approvals");
        let waiting = async |node: usize| gate.ask_at(node, &list).await.json()["items"].clone();
        for node in 0..3 {
            until("a call that waits", async || waiting(node).await.as_array().unwrap().len() == 1)
                .await;
        }
        assert!(!held.is_finished());
        let id = waiting(seen_at).await[0]["id"].as_str().unwrap().to_owned();
        let path = format!("/api/approvals/{id}/{word}");
        let said = json!({ "reason": "ticket 7", "by": "ada" });
        let got = gate.ask_at(seen_at, &Ask::post(&path, &said)).await;
        assert_eq!(got.status, 200, "{}", got.text());
        let got = soon("the held answer", held).await.unwrap();
        assert_eq!(got.status, status, "{word}: {}", got.text());
        // The first word counts, wherever the second is said.
        for node in 0..3 {
            let got = gate.ask_at(node, &Ask::post(&path, &said)).await;
            assert_eq!(got.status, 409, "node {node}: {}", got.text());
        }
        for node in 0..3 {
            until("nothing waits", async || waiting(node).await.as_array().unwrap().is_empty())
                .await;
        }
    }
}

/// Ends Redis; returns when the second node knows.
async fn without_redis(gate: &Gate) {
    let redis = gate.redis.clone();
    tokio::task::spawn_blocking(move || redis.kill()).await.unwrap();
    let known = async || gate.ask_at(1, &Ask::get("/readyz")).await.status == 503;
    until("the node knows that it is away", known).await;
}

/// While Redis is away, a node allows as many calls as the policy says, and not one more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_allowance_for_when_redis_is_away_ends() {
    let mut policy = relaxed();
    policy["fail_mode"] = json!("open");
    policy["offline_calls"] = json!(5);
    let gate = Gate::start(policy, hello).await;
    let ask = call("a", "s");
    until("a call", async || gate.ask_at(1, &ask).await.status == 200).await;
    without_redis(&gate).await;
    for passed in 0..5 {
        let got = gate.ask_at(1, &ask).await;
        assert_eq!(got.status, 200, "call {passed}: {}", got.text());
    }
    for _ in 0..3 {
        let got = gate.ask_at(1, &ask).await;
        assert_eq!(got.status, 503, "{}", got.text());
        assert!(got.text().contains("cannot reach the state"), "{}", got.text());
    }
    // Another agent has an allowance of its own.
    assert_eq!(gate.ask_at(1, &call("b", "s")).await.status, 200);
    let redis = gate.redis.clone();
    tokio::task::spawn_blocking(move || redis.revive()).await.unwrap();
    until("it is asked again", async || gate.ask_at(1, &ask).await.status == 200).await;
}

/// "Never a cent over" also holds while Redis is away: three nodes that each spent what is left would
/// pass it, so none spends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ceiling_is_not_spent_while_redis_is_away() {
    let mut policy = relaxed();
    policy["fail_mode"] = json!("open");
    policy["agent"] = json!({ "budget": { "max_cost_usd": 1, "reservation": "ceiling" } });
    let gate = Gate::start(policy, hello).await;
    let ask = call("a", "s");
    until("a call", async || gate.ask_at(1, &ask).await.status == 200).await;
    without_redis(&gate).await;
    let got = gate.ask_at(1, &ask).await;
    assert_eq!(got.status, 503, "{}", got.text());
    let redis = gate.redis.clone();
    tokio::task::spawn_blocking(move || redis.revive()).await.unwrap();
    until("it is asked again", async || gate.ask_at(1, &ask).await.status == 200).await;
}

/// What a stream brings beyond what it was granted waits for the answer, however late that is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_waits_for_its_grant() {
    let words = |count: usize| -> String { (0..count).map(|n| format!("word{n} ")).collect() };
    let long = words(20_000);
    let event = move |text: &str| chat_chunk(&json!({ "content": text }), None);
    let gate = Gate::start(relaxed(), move |_: &Seen| {
        Reply::stream()
            .then(Step::Chunk(event("Listen: ")))
            .then(Step::Sleep(Duration::from_millis(400)))
            .then(Step::Chunk(event(&long)))
            .then(Step::Hang)
    })
    .await;
    let ask = Speech::Chat.says(true, "Tell me").by("teller", "s");
    let mut open = soon("a stream", ask.open(gate.node(0))).await.unwrap();
    open.until("Listen").await;
    // It judges nothing for now; less long than it takes to count as away.
    let redis = gate.redis.clone();
    aside(move || redis.say("CLIENT PAUSE 60000 WRITE")).await;
    let early = tokio::time::timeout(Duration::from_millis(900), open.next()).await;
    assert!(early.is_err(), "it was passed on before it was granted: {early:?}");
    let redis = gate.redis.clone();
    aside(move || redis.say("CLIENT UNPAUSE")).await;
    open.until("word19999").await;
}
