//! The end of a call rides with the next call of its agent, where the agent's sessions stay on a node.

use std::cell::Cell;

use serde_json::{Value, json};

use crate::fleet::steps::{call, hello, relaxed};
use crate::gate::aside;
use crate::support::{Ask, Gate, until};

/// After so many calls an agent's sessions count as staying.
const STAYED: usize = 12;

/// Commits so far.
async fn commits(gate: &Gate) -> u64 {
    let redis = gate.redis.clone();
    let said = aside(move || redis.tells("INFO commandstats")).await;
    let line = said.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// What a node knows of an agent.
async fn agent(gate: &Gate, node: usize, name: &str) -> Value {
    let got = gate.ask_at(node, &Ask::get("/api/status")).await.json();
    let scopes = got["scopes"].as_array().cloned().unwrap_or_default();
    scopes.into_iter().find(|scope| scope["name"] == name).unwrap_or_default()
}

/// One caller at one node: a commit a call, and all nodes know of each call a moment later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_stays_costs_one_commit_a_call() {
    let gate = Gate::start(relaxed(), hello).await;
    let calls = async |many: usize, node: &dyn Fn(usize) -> usize, agent: &str| {
        for at in 0..many {
            let got = gate.ask_at(node(at), &call(agent, "s")).await;
            assert_eq!(got.status, 200, "{}", got.text());
        }
    };
    let mut used = Vec::new();
    for (name, node) in [("stays", (|_| 0) as fn(usize) -> usize), ("moves", |at| at % 3)] {
        calls(STAYED, &node, name).await;
        let before = commits(&gate).await;
        calls(60, &node, name).await;
        used.push(commits(&gate).await - before);
    }
    println!("60 calls: {used:?} scripts, stays and moves");
    // The end of a call that moves is committed at once, and its admission finds another version.
    assert!(used[0] * 2 < used[1], "{used:?}");
    for node in 0..3 {
        let got = gate.ask_at(node, &call("stays", "other")).await;
        assert_eq!(got.status, 200, "{}", got.text());
    }
    for node in 0..3 {
        until(&format!("all calls at node {node}"), async || {
            let found = agent(&gate, node, "stays").await;
            found["model_calls"] == json!(STAYED + 60 + 3) && found["in_flight"] == 0
        })
        .await;
    }
}

/// A node dies right after it has told its client of the end of a call. The call is booked with at
/// least what it has used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_charge_survives_its_node() {
    let mut policy = relaxed();
    policy["budget"] = json!({ "max_cost_usd": 1000, "reservation": "ceiling" });
    let mut gate = Gate::start(policy, hello).await;
    let one = async |node: usize| {
        let got = gate.ask_at(node, &call("spender", "s")).await;
        assert_eq!(got.status, 200, "{}", got.text());
    };
    one(0).await;
    let paid = Cell::new(0.0);
    until("its price", async || {
        let found = agent(&gate, 0, "spender").await;
        paid.set(found["cost_usd"].as_f64().unwrap_or(0.0));
        found["in_flight"] == 0 && paid.get() > 0.0
    })
    .await;
    let price = paid.get();
    for _ in 1..STAYED * 2 {
        one(0).await;
    }
    gate.kill_node(0).await;
    let least = price * (STAYED * 2) as f64 * 0.999;
    until("the charge", async || {
        let found = agent(&gate, 1, "spender").await;
        // A node books what a dead one has reserved when it uses the scope.
        let got = gate.ask_at(1, &call("spender", "other")).await;
        let more = price * (found["model_calls"].as_f64().unwrap_or(0.0) - (STAYED * 2) as f64);
        got.status == 200
            && found["in_flight"] == 0
            && found["cost_usd"].as_f64().is_some_and(|cost| cost >= least + more * 0.999)
    })
    .await;
}

/// A node that stops commits what waits for a ride first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_leaves_nothing_behind() {
    let gate = Gate::start(relaxed(), hello).await;
    for _ in 0..STAYED * 2 {
        assert_eq!(gate.ask_at(0, &call("worker", "s")).await.status, 200);
    }
    let gate = gate.restart(relaxed()).await;
    assert_eq!(gate.ask_at(1, &call("worker", "s")).await.status, 200);
    let found = agent(&gate, 1, "worker").await;
    assert_eq!(
        (&found["model_calls"], &found["in_flight"]),
        (&json!(STAYED * 2 + 1), &json!(0)),
        "{found}"
    );
}
