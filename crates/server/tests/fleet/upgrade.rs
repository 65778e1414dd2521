//! Nodes are replaced one by one while everybody goes on: nothing is refused, nothing is forgotten, and
//! what is said to a node of one build holds on those of the other.
//!
//! `DEADSTOP_OTHER`, the path of another build's program, makes it an upgrade from that one; without it
//! nodes are replaced by their like.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::fleet::redis::{Redis, Way};
use crate::fleet::steps::{call, everywhere, hello, relaxed};
use crate::gate::aside;
use crate::place::TestDatabase;
use crate::support::{Ask, Gate, heavy, soon, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_replaced_one_by_one() {
    let _turn = heavy().await;
    let own = PathBuf::from(env!("CARGO_BIN_EXE_deadstop"));
    let other = std::env::var_os("DEADSTOP_OTHER").map_or_else(|| own.clone(), PathBuf::from);
    let redis = aside(Redis::start).await;
    let way = Way { program: other, ..redis.way() };
    let database = TestDatabase::postgres().await.address;
    let mut gate = Gate::over(&database, (redis, way), relaxed(), hello, |_| {}).await;
    everywhere(&gate, "spender", 200).await;
    everywhere(&gate, "dead", 200).await;
    gate.order("kill", json!({ "agent": "dead", "reason": "it is enough" })).await;

    let over = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            let (over, address) = (Arc::clone(&over), gate.address);
            tokio::spawn(async move {
                let (ask, mut told) = (call("steady", &format!("s{caller}")), Vec::new());
                while !over.load(Ordering::SeqCst) {
                    told.push(ask.send_to(address).await.status);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                told
            })
        })
        .collect();
    for node in 0..3 {
        gate.replace_node(node, own.clone()).await;
        everywhere(&gate, "dead", 403).await;
        everywhere(&gate, "spender", 200).await;
        // From a node of either build to those of the other.
        for from in [0, 2] {
            let agent = format!("after-{node}-by-{from}");
            everywhere(&gate, &agent, 200).await;
            let order = Ask::post("/api/kill", &json!({ "agent": agent, "reason": "enough" }));
            let got = gate.ask_at(from, &order).await;
            assert_eq!(got.status, 200, "{}", got.text());
            everywhere(&gate, &agent, 403).await;
        }
    }
    over.store(true, Ordering::SeqCst);
    let (mut fine, mut late) = (0, 0);
    for caller in callers {
        for status in soon("a caller", caller).await.unwrap() {
            assert!([200, 503].contains(&status), "a caller got {status}");
            (fine, late) = (fine + usize::from(status == 200), late + usize::from(status != 200));
        }
    }
    println!("nodes replaced: {fine} calls let through, {late} refused because a store was late");
    assert!(fine > 50 && late * 20 < fine, "{fine} let through, {late} refused");
    // Three before, three after each of three.
    let path = "/api/sessions/spender/s";
    until("all that was called", async || gate.ask(&Ask::get(path)).await.json()["calls"] == 12)
        .await;
    // What only the new build can do, once all are of it.
    gate.order("clear", json!({ "agent": "dead" })).await;
    everywhere(&gate, "dead", 200).await;
}
