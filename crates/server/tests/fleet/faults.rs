//! Real faults under load: Redis killed, frozen for ten seconds, or replaced by one that lacks its last
//! writes; PostgreSQL restarted; a node killed.
//! By fail mode: what was let through, what was refused, and that a known kill is honoured always.
//!
//! `make faults` prints the table.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::databases::{script, start};
use crate::fleet::balancer::Balancer;
use crate::fleet::redis::{Redis, Way};
use crate::gate::aside;
use crate::place::TestDatabase;
use crate::support::wire::Next;
use crate::support::{Ask, Gate, Reply, Seen, Speech, Step, heavy, soon, until};

/// What a call costs: 1,000 tokens in and 100 out of gpt-4o.
const CALL_USD: f64 = 1000.0 * 2.5e-6 + 100.0 * 10e-6;
const PHASES: [&str; 3] = ["before", "during", "after"];
const CALLERS: usize = 6;

fn answer(seen: &Seen) -> Reply {
    if seen.json()["stream"] == true {
        return Reply::stream().then(Step::Chunk(b": wait\n\n".to_vec())).then(Step::Hang);
    }
    let message = json!({ "role": "assistant", "content": "Done." });
    let body = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "model": "gpt-4o",
        "choices": [{ "index": 0, "finish_reason": "stop", "message": message }],
        "usage": { "prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100 },
    });
    Reply::json(200, &body)
}

fn policy(fail_mode: &str) -> Value {
    let off = json!({ "enabled": false });
    json!({
        "fail_mode": fail_mode, "loop": off, "text_loop": off, "similarity": off, "strikes": off,
        // More than these tests use; another test covers its end.
        "offline_calls": 1_000_000,
        "budget": { "max_cost_usd": 1000.0 },
    })
}

fn call(agent: &str, session: &str) -> Ask {
    Speech::Chat.says(false, "Go on").by(agent, session)
}

/// What came of the calls of a phase: how many, by what was answered, and the longest that one took.
#[derive(Default)]
struct Told {
    answers: BTreeMap<u16, usize>,
    longest: Duration,
}

/// Callers that go on whatever happens, each with a session of its own, and notes of it.
struct Load {
    phase: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    told: Arc<Mutex<[Told; 3]>>,
    callers: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn start(address: SocketAddr) -> Load {
        let mut load = Load {
            phase: Arc::default(),
            over: Arc::default(),
            told: Arc::default(),
            callers: Vec::new(),
        };
        for caller in 0..CALLERS {
            let (phase, over) = (Arc::clone(&load.phase), Arc::clone(&load.over));
            let told = Arc::clone(&load.told);
            let ask = call("steady", &format!("s{caller}"));
            load.callers.push(tokio::spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    let (now, asked) = (phase.load(Ordering::SeqCst), Instant::now());
                    let got = ask.send_to(address).await;
                    {
                        let told = &mut told.lock()[now];
                        *told.answers.entry(got.status).or_default() += 1;
                        told.longest = told.longest.max(asked.elapsed());
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }));
        }
        load
    }

    /// Waits until a phase has seen so many answers of a kind.
    async fn sees(&self, status: u16, many: usize) {
        let what = format!("{many} answers {status} {}", PHASES[self.phase.load(Ordering::SeqCst)]);
        let before = self.count(status);
        until(&what, async || self.count(status) >= before + many).await;
    }

    fn count(&self, status: u16) -> usize {
        let told = &self.told.lock()[self.phase.load(Ordering::SeqCst)];
        told.answers.get(&status).copied().unwrap_or_default()
    }

    fn next(&self) {
        self.phase.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends it, prints what there was, and gives it.
    async fn end(self, what: &str, fail_mode: &str) -> [Told; 3] {
        self.over.store(true, Ordering::SeqCst);
        for caller in self.callers {
            soon("a caller ends", caller).await.unwrap();
        }
        let told = std::mem::take(&mut *self.told.lock());
        for (phase, told) in PHASES.iter().zip(&told) {
            let of = |status| told.answers.get(&status).copied().unwrap_or_default();
            let all: usize = told.answers.values().sum();
            let refused = all - of(200) - of(0);
            let longest = told.longest.as_millis();
            println!(
                "fault: {what:<28} {fail_mode:<7} {phase:<7} {:>6} let through {refused:>6} refused \
                 {:>4} no answer  longest {longest:>6} ms",
                of(200),
                of(0)
            );
        }
        told
    }
}

/// What stands before the fault: an agent that is dead, and a session that has spent something.
async fn history(gate: &Gate) {
    for node in 0..3 {
        admitted(gate, node).await;
    }
    until("a call", async || gate.ask(&call("dead", "s")).await.status == 200).await;
    gate.order("kill", json!({ "agent": "dead", "reason": "it is enough" })).await;
}

/// One call that is let through. On a busy machine a store may be late and refuse the first ones.
async fn admitted(gate: &Gate, node: usize) {
    let ask = call("spender", "s");
    until("a call is let through", async || gate.ask_at(node, &ask).await.status == 200).await;
}

/// A kill that was acknowledged is honoured by every node, whatever is away.
async fn honoured(gate: &Gate) {
    for node in 0..gate.nodes.len() {
        for session in ["s", "another", &format!("{:?}", Instant::now())] {
            let got = gate.ask_at(node, &call("dead", session)).await;
            // Who fails closed need not look at who asks.
            if got.status != 503 {
                assert_eq!(got.status, 403, "node {node}: {}", got.text());
                assert!(got.text().contains("it is enough"), "node {node}: {}", got.text());
            }
        }
    }
}

/// Every node says that something is wrong, or that all is well again.
async fn health(gate: &Gate, fine: bool) {
    let wanted = if fine { 200 } else { 503 };
    for node in 0..gate.nodes.len() {
        until("readiness", async || gate.ask_at(node, &Ask::get("/readyz")).await.status == wanted)
            .await;
        let line = format!("deadstop_degraded {}", u8::from(!fine));
        until(&line, async || {
            let text = gate.ask_at(node, &Ask::get("/metrics")).await.text();
            text.lines().any(|found| found == line)
        })
        .await;
        assert_eq!(gate.ask_at(node, &Ask::get("/healthz")).await.status, 200, "it lives");
    }
}

/// Whatever was spent before is still spent, and counts on.
async fn spent(gate: &Gate, calls: u32) {
    for node in 0..gate.nodes.len() {
        let path = "/api/sessions/spender/s";
        until("what was spent", async || {
            let got = gate.ask_at(node, &Ask::get(path)).await.json();
            let cost = got["cost_usd"].as_f64().unwrap_or_default();
            (cost - f64::from(calls) * CALL_USD).abs() < 1e-9
        })
        .await;
    }
}

/// A fault of a store, from the first call before it to the first after it.
async fn store_away(
    what: &str,
    fail_mode: &str,
    gate: &Gate,
    away: impl AsyncFnOnce(),
    back: impl AsyncFnOnce(),
) {
    history(gate).await;
    let load = Load::start(gate.address);
    load.sees(200, 50).await;
    load.next();
    away().await;
    health(gate, false).await;
    honoured(gate).await;
    // From when the nodes know: as the policy says.
    let during = if fail_mode == "open" { 200 } else { 503 };
    load.sees(during, 50).await;
    for node in 0..3 {
        let ask = call("steady", "s0");
        until("as the policy says", async || gate.ask_at(node, &ask).await.status == during).await;
    }
    honoured(gate).await;
    back().await;
    health(gate, true).await;
    load.next();
    load.sees(200, 50).await;
    honoured(gate).await;
    for node in 0..3 {
        admitted(gate, node).await;
    }
    spent(gate, 6).await;
    load.end(what, fail_mode).await;
}

async fn redis_killed(fail_mode: &str) {
    let _turn = heavy().await;
    let gate = Gate::start(policy(fail_mode), answer).await;
    let redis = gate.redis.clone();
    let (killed, revived) = (redis.clone(), redis);
    store_away(
        "Redis kill -9, back empty",
        fail_mode,
        &gate,
        async || aside(move || killed.kill()).await,
        async || aside(move || revived.revive()).await,
    )
    .await;
}

async fn redis_frozen(fail_mode: &str) {
    let _turn = heavy().await;
    let gate = Gate::start(policy(fail_mode), answer).await;
    let (frozen, thawed) = (gate.redis.clone(), gate.redis.clone());
    let since = Arc::new(Mutex::new(Instant::now()));
    let at = Arc::clone(&since);
    store_away(
        "Redis SIGSTOP for 10 s",
        fail_mode,
        &gate,
        async || {
            aside(move || frozen.freeze()).await;
            *at.lock() = Instant::now();
        },
        async || {
            let rest = Duration::from_secs(10).saturating_sub(since.lock().elapsed());
            tokio::time::sleep(rest).await;
            aside(move || thawed.thaw()).await;
        },
    )
    .await;
}

/// Another Redis takes over that does not know the last orders. Killed agents stay dead, cleared
/// ones run, and both at once: a poll every few seconds would be too late.
async fn redis_taken_over(fail_mode: &str) {
    let _turn = heavy().await;
    let (master, replica) = aside(|| {
        let master = Redis::start();
        let replica = Redis::replica(&master);
        (master, replica)
    })
    .await;
    let door = Balancer::start(vec![master.place()]).await;
    let way = Way::to(&format!("redis://{}/0", door.address));
    let database = TestDatabase::postgres().await.address;
    let stores = (master.clone(), way);
    let gate = Gate::over(&database, stores, policy(fail_mode), answer, |_| {}).await;
    history(&gate).await;
    for agent in ["late", "cleared"] {
        for node in 0..3 {
            let ask = call(agent, "s");
            until("a call", async || gate.ask_at(node, &ask).await.status == 200).await;
        }
    }
    gate.order("kill", json!({ "agent": "cleared", "reason": "too early" })).await;
    let load = Load::start(gate.address);
    load.sees(200, 50).await;
    let (from, to) = (master.clone(), replica.clone());
    aside(move || {
        from.followed_by(&to);
        to.say("REPLICAOF NO ONE");
    })
    .await;
    gate.order("clear", json!({ "agent": "cleared" })).await;
    load.sees(200, 50).await;
    if fail_mode == "closed" {
        // No node gets the message.
        let (from, to) = (master.clone(), replica.clone());
        assert_eq!(aside(move || (from.deafen(), to.deafen())).await, (3, 0));
    }
    gate.order("kill", json!({ "agent": "late", "reason": "it is enough" })).await;
    if fail_mode == "open" {
        // A node that cannot ask Redis goes by the messages that it got.
        for node in 0..3 {
            let ask = call("late", "s");
            until("the kill", async || gate.ask_at(node, &ask).await.status == 403).await;
        }
    }
    load.next();
    door.send_to(vec![replica.place()]);
    aside(move || master.kill()).await;
    for node in 0..3 {
        let ask = call("late", "s");
        until("a decision", async || {
            let got = gate.ask_at(node, &ask).await;
            assert!([403, 503].contains(&got.status), "node {node}: {}", got.text());
            got.status == 403
        })
        .await;
    }
    let heard = replica.clone();
    aside(move || heard.say("ACL SETUSER default +subscribe")).await;
    honoured(&gate).await;
    for node in 0..3 {
        let ask = call("cleared", "s");
        until("who was cleared goes on", async || gate.ask_at(node, &ask).await.status == 200)
            .await;
    }
    health(&gate, true).await;
    load.next();
    load.sees(200, 50).await;
    honoured(&gate).await;
    for node in 0..3 {
        admitted(&gate, node).await;
    }
    spent(&gate, 6).await;
    load.end("Redis taken over, writes lost", fail_mode).await;
}

async fn postgres_restarted(fail_mode: &str) {
    let _turn = heavy().await;
    let (folder, address) = aside(|| start(&[&std::process::id().to_string()])).await;
    let gate = Gate::at(&address, policy(fail_mode), answer, |_| {}).await;
    let (gone, again) = (folder.clone(), folder.clone());
    store_away(
        "PostgreSQL stopped, restarted",
        fail_mode,
        &gate,
        async || drop(aside(move || script(&["pause", &gone])).await),
        async || drop(aside(move || script(&["resume", &again])).await),
    )
    .await;
    drop(gate.stop().await);
    aside(move || script(&["stop", &folder])).await;
}

/// Every fault under both fail modes.
macro_rules! in_both_modes {
    ($($case:ident),* $(,)?) => {
        mod open {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case("open").await;
            })*
        }
        mod closed {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case("closed").await;
            })*
        }
    };
}

in_both_modes!(redis_killed, redis_frozen, redis_taken_over, postgres_restarted);

/// A node dies with calls in flight: the others go on, and what it held comes back by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_killed_with_calls_in_flight() {
    let _turn = heavy().await;
    let mut gate = Gate::start(policy("open"), answer).await;
    history(&gate).await;
    let mut streams = Vec::new();
    for number in 0..5 {
        let ask = Speech::Chat.says(true, "Tell me").by("holder", &format!("s{number}"));
        let mut open = soon("a stream", ask.open(gate.node(0))).await.unwrap();
        assert!(matches!(soon("its beginning", open.next()).await, Next::Bytes(_)));
        streams.push(open);
    }
    until("five in flight", async || gate.scope("holder").await["in_flight"] == 5).await;
    let load = Load::start(gate.address);
    load.sees(200, 50).await;
    load.next();
    gate.kill_node(0).await;
    honoured(&gate).await;
    // As a rule of thumb for people: it is seen to be dead within seconds.
    for node in 0..2 {
        until("nothing in flight", async || {
            let got = gate.ask_at(node, &Ask::get("/api/status")).await.json();
            let scopes = got["scopes"].as_array().cloned().unwrap_or_default();
            let holder = scopes.into_iter().find(|scope| scope["name"] == "holder");
            // A node notices it only when it reads the scope.
            let asked = gate.ask_at(node, &call("holder", "s0")).await;
            asked.status == 200 && holder.is_some_and(|scope| scope["in_flight"] == 0)
        })
        .await;
    }
    load.next();
    load.sees(200, 50).await;
    honoured(&gate).await;
    let told = load.end("a node kill -9", "open").await;
    let cut = told[1].answers.get(&0).copied().unwrap_or_default();
    assert!(cut <= CALLERS, "{cut} got no answer, more than were in flight");
}

/// While PostgreSQL is away, a session that ran on any node is judged by what Redis knows: it uses
/// up none of the offline calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_move_while_the_database_is_away() {
    let _turn = heavy().await;
    let (folder, address) = aside(|| start(&[&std::process::id().to_string()])).await;
    let mut policy = policy("open");
    policy["offline_calls"] = json!(3);
    let gate = Gate::at(&address, policy, answer, |_| {}).await;
    for node in 0..3 {
        // The agent is known on every node, its sessions on one.
        let ask = call("mover", &format!("s{node}"));
        until("a call", async || gate.ask_at(node, &ask).await.status == 200).await;
    }
    let gone = folder.clone();
    aside(move || script(&["pause", &gone])).await;
    health(&gate, false).await;
    for round in 0..10 {
        for node in 0..3 {
            for session in 0..3 {
                let got = gate.ask_at(node, &call("mover", &format!("s{session}"))).await;
                assert_eq!(got.status, 200, "round {round}, node {node}: {}", got.text());
            }
        }
    }
    // A session that Redis does not know may have been killed: it gets the offline calls only.
    let mut passed = 0;
    for _ in 0..6 {
        passed += usize::from(gate.ask_at(0, &call("mover", "new")).await.status == 200);
    }
    assert_eq!(passed, 3);
    // And it does not affect the others.
    assert_eq!(gate.ask_at(0, &call("mover", "s1")).await.status, 200);
    let again = folder.clone();
    aside(move || script(&["resume", &again])).await;
    health(&gate, true).await;
    until("all is well", async || gate.ask_at(0, &call("mover", "new")).await.status == 200).await;
    drop(gate.stop().await);
    aside(move || script(&["stop", &folder])).await;
}
