//! Compares the scripts in a real Redis with the reference model: random commits, in any order,
//! must get the same answers.
//!
//! `scripts/redis` starts the server and says how to install it; `DEADSTOP_TEST_REDIS` names
//! another one. `DEADSTOP_SOAK=1` tries thousands.

#![expect(clippy::expect_used, reason = "these are helpers of tests")]

use std::process::{Command, Stdio};

use deadstop_core::share::{Bounds, Held, spent_since};
use deadstop_core::{NanoUsd, Time, Tokens};
use deadstop_fleet::model::Model;
use deadstop_fleet::{COUNTERS, Commit, Era, Item, Redis, Reply, Sum, Sums, Version, Write};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

const RECORDS: usize = 3;
const COUNTED: usize = 2;
const NODES: [&str; 4] = ["", "n1.a", "n1.a.1", "näme:with:i"];

/// How a value relates to the current one.
#[derive(Debug, Clone, Copy)]
enum Relation {
    Right,
    Wrong,
    Nothing,
}

/// Counters of a draft: which ones, whether `born` is right, what to add, limits close to the
/// current values, and whether `seen` is set and right.
type Counted = (usize, Relation, Sum, [Option<i64>; 8], Option<bool>);

/// A commit before the current values are known.
#[derive(Debug, Clone)]
struct Draft {
    items: Vec<(usize, Relation, Option<Vec<u8>>)>,
    sums: Vec<Counted>,
    /// Whether the commit names an era, and whether that is the current one.
    era: Option<bool>,
    touched: Vec<usize>,
}

fn relation() -> impl Strategy<Value = Relation> {
    prop_oneof![
        8 => Just(Relation::Right),
        1 => Just(Relation::Wrong),
        1 => Just(Relation::Nothing),
    ]
}

fn held() -> impl Strategy<Value = Held> {
    let amount = || prop_oneof![Just(0_i64), -50..60_i64];
    (amount(), amount(), amount(), -2..3_i64).prop_map(|(input, output, cost, calls)| Held {
        input,
        output,
        cost,
        calls,
    })
}

fn node() -> impl Strategy<Value = String> {
    proptest::sample::select(&NODES[..]).prop_map(str::to_owned)
}

fn sum() -> impl Strategy<Value = Sum> {
    let add = prop_oneof![Just([0; COUNTERS]), proptest::array::uniform9(-20..80_i64)];
    let floor = prop_oneof![
        Just([0; COUNTERS]),
        proptest::array::uniform9(0..500_u64),
        // The sum of two of these is still exact.
        Just([4_000_000_000_000_000; COUNTERS]),
    ];
    let period = proptest::sample::select(vec![0, 1_000_000_005, 1_000_000_006, 2_000_000_001_u64]);
    let pace = proptest::option::of((100..130_u64, 0..50_u64, 0..50_u64));
    let counted = (floor, add, period, 0..300_u64, -20..60_i64);
    let who = (
        proptest::collection::vec((node(), held()), 0..3),
        proptest::collection::vec(node(), 0..2),
    );
    (counted, who, pace, 90..130_u64).prop_map(
        |((floor, add, period, period_floor, period_add), (held, bury), pace, minute)| {
            let pace = pace.map(|(bucket, cost, tokens)| (bucket, NanoUsd(cost), Tokens(tokens)));
            Sum {
                floor,
                add,
                period,
                period_floor,
                period_add,
                held,
                bury,
                pace,
                minute,
                ..Sum::default()
            }
        },
    )
}

fn draft() -> impl Strategy<Value = Draft> {
    let value = proptest::option::weighted(0.6, proptest::collection::vec(any::<u8>(), 0..40));
    let item = (0..RECORDS, relation(), value);
    let bounds = proptest::array::uniform8(proptest::option::weighted(0.15, -30..200_i64));
    let seen = proptest::option::weighted(0.2, any::<bool>());
    let sum = (0..COUNTED, relation(), sum(), bounds, seen);
    let touched = proptest::collection::vec(0..RECORDS, 0..3);
    let era = proptest::option::weighted(0.3, proptest::bool::weighted(0.8));
    let parts = (proptest::collection::vec(item, 0..4), proptest::collection::vec(sum, 0..3));
    (parts, era, touched).prop_map(|((mut items, mut sums), era, touched)| {
        items.sort_by_key(|item| item.0);
        items.dedup_by_key(|item| item.0);
        sums.sort_by_key(|sum| sum.0);
        sums.dedup_by_key(|sum| sum.0);
        Draft { items, sums, era, touched }
    })
}

/// Keys that no other test uses.
struct Keys {
    tag: String,
}

impl Keys {
    fn record(&self, at: usize) -> String {
        format!("deadstop:{{{}}}:s:{at}", self.tag)
    }

    fn sums(&self, at: usize) -> String {
        format!("deadstop:{{{}}}:s:{at}:c", self.tag)
    }

    fn all(&self) -> Vec<String> {
        let records = (0..RECORDS).map(|at| self.record(at));
        let sums = (0..COUNTED).map(|at| self.sums(at));
        records
            .chain(sums)
            .chain([Commit::epoch_key(&self.tag), Commit::index(&self.tag)])
            .collect()
    }
}

/// The commit for the current values.
fn commit(draft: &Draft, keys: &Keys, model: &Model, mark: u32) -> Commit {
    let item = |(at, relation, value): &(usize, Relation, Option<Vec<u8>>)| {
        let key = keys.record(*at);
        let there = model.record(&key).map_or(Version::default(), |record| record.0);
        let expect = match relation {
            Relation::Right => there,
            Relation::Wrong => there.next(7),
            Relation::Nothing => Version::default(),
        };
        let write =
            value.clone().map(|value| Write { version: there.next(mark), value, keep_ms: 600_000 });
        Item { key, expect, write }
    };
    let sum = |(at, relation, sum, bounds, seen): &Counted| {
        let key = keys.sums(*at);
        let there = model.sums(&key);
        let born = match relation {
            Relation::Right => there.born,
            Relation::Wrong => there.born + 1,
            Relation::Nothing => 0,
        };
        let seen = seen.map(|right| if right { there.changes } else { there.changes + 1 });
        Sum { key, born, seen, bounds: near(&there, sum.minute, bounds), ..sum.clone() }
    };
    Commit {
        tag: keys.tag.clone(),
        items: draft.items.iter().map(item).collect(),
        sums: draft.sums.iter().map(sum).collect(),
        era: draft.era.map(|known| if known { model.era(&keys.tag) } else { Era::default() }),
        touched: draft.touched.iter().map(|at| format!("acme/{at}")).collect(),
    }
}

/// Limits close to the current values.
fn near(there: &Sums, minute: u64, by: &[Option<i64>; 8]) -> Bounds {
    let held = there.held_by_all();
    let input = there.counts[3].saturating_add_signed(held.input);
    let output = there.counts[4].saturating_add_signed(held.output);
    let cost = there.period_cost.saturating_add_signed(held.cost);
    let (paid, used) = spent_since(&there.pace, minute);
    let bound = |at: usize, amount: u64| by[at].map(|by| amount.saturating_add_signed(by));
    Bounds {
        steps: bound(0, there.counts[1]),
        model_calls: bound(1, there.counts[2]),
        input: bound(2, input),
        output: bound(3, output),
        tokens: bound(4, input + output),
        cost: bound(5, cost),
        pace_cost: bound(6, paid.saturating_add_signed(held.cost)),
        pace_tokens: bound(7, used.saturating_add_signed(held.input + held.output)),
    }
}

/// The address of a server to test with.
fn server() -> String {
    if let Ok(address) = std::env::var("DEADSTOP_TEST_REDIS") {
        return address;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/redis");
    let own = std::process::id().to_string();
    let ran = Command::new(script).args(["start", &own]).stderr(Stdio::inherit()).output();
    let ran = ran.expect("scripts/redis runs");
    assert!(ran.status.success(), "no Redis to test with; scripts/redis says why above");
    let said = String::from_utf8(ran.stdout).expect("words");
    said.lines().nth(1).expect("an address").to_owned()
}

fn soak() -> bool {
    std::env::var("DEADSTOP_SOAK").is_ok_and(|value| !value.is_empty())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_script_does_what_the_model_says() {
    let address = server();
    let redis = Redis::open(&address).expect("an address");
    let mut admin = redis::Client::open(address.as_str())
        .and_then(|client| client.get_connection())
        .expect("a connection");
    let info: String =
        redis::cmd("INFO").arg("replication").query(&mut admin).expect("what it says");
    let line = info.lines().find_map(|line| line.trim_end().strip_prefix("master_replid:"));
    let line = &line.expect("the line of servers that it is of")[..16];
    let empty = || {
        let mut model = Model::default();
        model.served_by(line);
        model
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let (rounds, steps) = if soak() { (200, 100) } else { (12, 50) };
    let (mut done, mut refused) = (0, 0);
    for round in 0..rounds {
        let keys = Keys { tag: format!("test{}x{round}", std::process::id()) };
        let mut model = empty();
        for step in 0..steps {
            if step % 23 == 22 {
                // Redis loses its data.
                let gone = redis::cmd("DEL").arg(keys.all()).query::<u64>(&mut admin);
                assert!(gone.is_ok(), "{gone:?}");
                model = empty();
            }
            let draft = draft().new_tree(&mut runner).expect("a draft").current();
            let commit = commit(&draft, &keys, &model, step);
            let said = redis.commit(&commit).await.expect("an answer");
            let meant: Reply = model.commit(&commit, said.now);
            assert_eq!(said, meant, "round {round}, step {step}: {commit:#?}");
            (done, refused) = (done + u32::from(said.done), refused + u32::from(!said.done));
            let since = Time(said.now.0.saturating_sub(step.into()));
            let found = redis.touched(&keys.tag, since).await.expect("an answer");
            let mut meant = model.touched(&keys.tag, since, found.now);
            // Sorted, because the script returns the most recent first.
            let mut scopes = found.scopes.clone();
            scopes.sort();
            meant.scopes.sort();
            assert_eq!(scopes, meant.scopes, "round {round}, step {step}");
        }
        let gone = redis::cmd("DEL").arg(keys.all()).query::<u64>(&mut admin);
        assert!(gone.is_ok(), "{gone:?}");
    }
    assert!(done > rounds * steps / 10 && refused > rounds * steps / 10, "{done} and {refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signs_of_life_are_kept_as_the_model_says() {
    let redis = Redis::open(&server()).expect("an address");
    let mut model = Model::default();
    let own = |node: &String| node.starts_with(&format!("beat{}-", std::process::id()));
    for (node, ms) in [("a", 5000), ("b", 20), ("a", 7000), ("c", 0), ("b", 5000)] {
        let node = format!("beat{}-{node}", std::process::id());
        let mut said = redis.beat(&node, ms).await.expect("an answer");
        // Other tests may use the same server.
        said.nodes.retain(|(node, _)| own(node));
        said.nodes.sort();
        let meant = model.beat(&node, ms, said.now);
        assert_eq!(said, meant);
    }
}

/// A node of an older version does not overwrite counters that it cannot read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_of_a_newer_version_are_left_alone() {
    let address = server();
    let redis = Redis::open(&address).expect("an address");
    let mut admin = redis::Client::open(address.as_str())
        .and_then(|client| client.get_connection())
        .expect("a connection");
    let keys = Keys { tag: format!("newer{}", std::process::id()) };
    let key = keys.sums(0);
    let mut set = redis::cmd("SET");
    set.arg(&key).arg(b"\x02of another layout").query::<()>(&mut admin).expect("it is set");
    let sum = Sum { key: key.clone(), ..Sum::default() };
    let commit = Commit { tag: keys.tag.clone(), sums: vec![sum], ..Commit::default() };
    let refused = redis.commit(&commit).await.expect_err("it cannot be read");
    assert!(!refused.maybe_done && refused.why.contains("newer version"), "{refused}");
    let there: Vec<u8> = redis::cmd("GET").arg(&key).query(&mut admin).expect("the value");
    assert_eq!(there, b"\x02of another layout");
    let gone = redis::cmd("DEL").arg(&key).query::<u64>(&mut admin);
    assert!(gone.is_ok(), "{gone:?}");
}

/// Nodes have a runtime for each core. What one of them has opened must not be needed by another.
#[test]
fn each_runtime_has_a_connection_of_its_own() {
    let redis = Redis::open(&server()).expect("an address");
    let start = || {
        let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
        built.expect("a runtime")
    };
    let ask = |runtime: &tokio::runtime::Runtime| {
        runtime.block_on(redis.touched("lines", Time(0))).map(|found| found.scopes)
    };
    let (one, other) = (start(), start());
    assert_eq!((ask(&one), ask(&other)), (Ok(Vec::new()), Ok(Vec::new())));
    drop(one);
    assert_eq!(ask(&other), Ok(Vec::new()));
    assert_eq!(ask(&start()), Ok(Vec::new()));
}
