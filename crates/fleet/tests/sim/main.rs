//! Simulates nodes, Redis and the network between them. The same seed always gives the same run.
//!
//! `DEADSTOP_SEED=123 cargo test -p deadstop-fleet --test sim` repeats one seed;
//! `DEADSTOP_PLANT=version` plants a bug in it; `DEADSTOP_SOAK=1` runs ten thousand seeds.

#![expect(clippy::expect_used, reason = "these are helpers of tests")]

mod books;
mod check;
mod dice;
mod net;
mod plant;
mod report;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadstop_core::{Call, Outcome, ScopeKind, ScopeState, Ticket, Time, ToolCall};
use deadstop_fleet::{Owner, Record, Transaction};
use tokio::time::sleep;

use crate::net::{Pulse, Weather};
use crate::plant::Plant;
use crate::world::World;

/// The result of one seed.
struct Run {
    trace: u64,
    faults: Vec<String>,
    commits: u64,
    calls: usize,
}

fn run(seed: u64, plant: Option<Plant>) -> Run {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(live(seed, plant))
}

async fn live(seed: u64, plant: Option<Plant>) -> Run {
    let world = World::new(seed, plant);
    for _ in 0..world.plan.nodes {
        world.start();
    }
    let mut tasks = vec![tokio::spawn(befall(Arc::clone(&world)))];
    for caller in 0..world.plan.callers * world.plan.nodes {
        tasks.push(tokio::spawn(call_on(Arc::clone(&world), caller)));
    }
    if world.plan.operators {
        tasks.push(tokio::spawn(operate(Arc::clone(&world))));
    }
    for task in tasks {
        task.await.expect("no task panics");
    }
    calm_down(&world).await;
    check::in_the_end(&world);
    if environment("DEADSTOP_SEED").is_some() {
        println!("{:?}", world.plan);
        for entry in world.books.entries.lock().iter().filter(|e| e.fate == books::Fate::Runs) {
            println!("open: {entry:?}");
        }
    }
    let calls = world.books.entries.lock().len();
    Run {
        trace: world.hub.trace(),
        faults: world.books.faults(),
        commits: *world.hub.commits.lock(),
        calls,
    }
}

fn over(world: &World, begun: tokio::time::Instant) -> bool {
    begun.elapsed() >= Duration::from_secs(world.plan.seconds)
}

/// A caller that makes calls one after the other, each on a random node.
async fn call_on(world: Arc<World>, caller: usize) {
    let begun = tokio::time::Instant::now();
    let chains = world.chains();
    while !over(&world, begun) {
        sleep(Duration::from_millis(world.hub.dice.range(1, 1500))).await;
        let alive = world.alive();
        let (at, node) = world.hub.dice.pick(&alive).clone();
        let chain = world.hub.dice.pick(&chains).clone();
        if world.hub.dice.chance(150) {
            let id = format!("{caller} at {:?}", begun.elapsed());
            tokio::spawn(Arc::clone(&world).report(chain, id));
            continue;
        }
        let call = tokio::spawn(Arc::clone(&world).call(at, node, chain));
        // A caller does not wait for a dead node forever.
        let _ = tokio::time::timeout(Duration::from_secs(20), call).await;
    }
}

async fn operate(world: Arc<World>) {
    let begun = tokio::time::Instant::now();
    let chains = world.chains();
    while !over(&world, begun) {
        sleep(Duration::from_millis(world.hub.dice.range(300, 5000))).await;
        let (_, node) = world.hub.dice.pick(&world.alive()).clone();
        let chain = world.hub.dice.pick(&chains).clone();
        tokio::spawn(Arc::clone(&world).order(node, chain));
    }
}

/// Faults of nodes and of Redis.
async fn befall(world: Arc<World>) {
    let begun = tokio::time::Instant::now();
    let (dice, plan) = (&world.hub.dice, &world.plan);
    while !over(&world, begun) {
        sleep(Duration::from_millis(dice.range(200, 4000))).await;
        let alive = world.alive();
        let (at, node) = dice.pick(&alive).clone();
        let long = Duration::from_millis(dice.range(50, 12_000));
        match dice.range(0, 8) {
            0 | 1 if plan.partitions => {
                node.machine.cut(true);
                tokio::spawn(async move {
                    sleep(long).await;
                    node.machine.cut(false);
                });
            }
            2 | 3 if plan.halts => {
                node.machine.set(Pulse::Halted);
                tokio::spawn(async move {
                    sleep(long).await;
                    node.machine.set(Pulse::Runs);
                });
            }
            4 if plan.crashes && alive.len() > 1 => {
                node.machine.set(Pulse::Dead);
                world.books.dies(at);
                if dice.chance(700) {
                    world.start();
                }
            }
            5 if plan.restarts && world.hub.restarts.lock().len() < 2 => world.lose_memory(),
            6 => {
                // The node reads every scope from the database before a call there uses them.
                for chain in world.chains() {
                    world.cells(&node, &chain);
                }
            }
            7 => {
                for (scope, cell) in &*node.cells.lock() {
                    world.hub.write_down(scope, cell);
                }
            }
            _ => {}
        }
    }
}

/// Ends all faults, and lets open calls finish.
async fn calm_down(world: &Arc<World>) {
    *world.hub.weather.lock() = Weather::default();
    for (_, node) in world.alive() {
        node.machine.cut(false);
        node.machine.set(Pulse::Runs);
    }
    sleep(Duration::from_secs(30)).await;
    check::arrived(world);
    // The remaining nodes commit to every scope, so that reservations of dead nodes are booked.
    for _ in 0..2 {
        for (_, node) in world.alive() {
            for chain in world.chains() {
                let cells = world.cells(&node, &chain);
                let touched = node.fleet.run(cells, &world.policies, None, |_| ()).await;
                if let Err(error) = touched {
                    world.books.fault(format!("(e) Redis is unreachable at the end: {error}"));
                }
            }
        }
        // A node that Redis does not list counts as dead only after a whole lease.
        sleep(Duration::from_secs(8)).await;
    }
    for (_, node) in world.alive() {
        let _ = node.fleet.reread().await;
    }
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Runs seeds until `most` have failed; returns these with their faults.
fn seeds(from: u64, count: u64, plant: Option<Plant>, most: usize) -> Vec<(u64, Vec<String>)> {
    let next = AtomicU64::new(from);
    let found = parking_lot::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while found.lock().len() < most {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + count {
                        return;
                    }
                    let run = run(seed, plant);
                    if !run.faults.is_empty() {
                        found.lock().push((seed, run.faults));
                    }
                }
            });
        }
    });
    let mut found = found.into_inner();
    found.sort();
    found
}

#[test]
fn invariants_hold_under_faults() {
    let plant = environment("DEADSTOP_PLANT").map(|name| Plant::named(&name).expect("a plant"));
    if let Some(seed) = environment("DEADSTOP_SEED") {
        let seed = seed.parse().expect("a number");
        let run = run(seed, plant);
        println!("seed {seed}: {} calls, {} steps", run.calls, run.commits);
        assert!(run.faults.is_empty(), "{:#?}", run.faults);
        return;
    }
    let count = if environment("DEADSTOP_SOAK").is_some() { 10_000 } else { 300 };
    let found = seeds(1, count, plant, 5);
    if let Some((seed, _)) = found.first() {
        panic!(
            "{found:#?}\nsee it again: DEADSTOP_SEED={seed} cargo test -p deadstop-fleet --test sim"
        );
    }
}

#[test]
fn every_planted_bug_is_found() {
    for (plant, name, from) in Plant::ALL {
        let from = if environment("DEADSTOP_SOAK").is_some() { 1 } else { from };
        let found = seeds(from, 2000, Some(plant), 1);
        let (seed, faults) = found.first().unwrap_or_else(|| panic!("{name} was not found"));
        println!("{name}: seed {seed}: {}", faults[0]);
    }
}

/// One node without faults, and a chain.
fn calm() -> (Arc<World>, Arc<world::Node>, Vec<String>) {
    let world = World::new(1, None);
    *world.hub.weather.lock() = Weather::default();
    let (node, chain) = (world.start(), world.chains().remove(0));
    (world, node, chain)
}

/// A job that panics fails for its own caller only.
#[tokio::test(start_paused = true)]
async fn a_job_that_panics_does_not_block_its_lane() {
    let (world, node, chain) = calm();
    let cells = || world.cells(&node, &chain);
    let bad = node.fleet.run(cells(), &world.policies, None, |_| panic!("a bug"));
    assert!(bad.await.is_err());
    let good =
        node.fleet.run(cells(), &world.policies, None, |transaction| transaction.links.len());
    let good = tokio::time::timeout(Duration::from_secs(60), good).await;
    assert_eq!(good.expect("the lane is free").expect("an answer"), 3);
}

/// A node of an older version never overwrites a record that it cannot read, and says why.
#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_is_not_overwritten() {
    let (world, node, chain) = calm();
    let cells = || world.cells(&node, &chain);
    let call =
        || node.fleet.run(cells(), &world.policies, None, |transaction| transaction.links.len());
    assert_eq!(call().await, Ok(3));
    let key = cells()[2].key().to_owned();
    let before = world.hub.model().record(&key).expect("a record").1[0];
    let newer = world.hub.rewrite(&key, |bytes| bytes[0] = 9);
    let refused = call().await.expect_err("it cannot be read").to_string();
    assert!(refused.contains("has version 9"), "{refused}");
    assert_eq!(world.hub.model().record(&key).map(|record| record.0), Some(newer));
    // Other scopes of the project go on.
    let other = world.cells(&node, &[chain[0].clone()]);
    assert!(node.fleet.run(other, &world.policies, None, |_| ()).await.is_ok());
    // So do other sessions of the agent, while a durable job waits for this one.
    let must = node
        .fleet
        .run_durably(cells(), &world.policies, None, |transaction| transaction.links.len());
    let mut sibling = chain.clone();
    sibling[2].push_str("-other");
    for _ in 0..3 {
        let cells = world.cells(&node, &sibling);
        let call =
            node.fleet.run(cells, &world.policies, None, |transaction| transaction.links.len());
        let call = tokio::time::timeout(Duration::from_secs(60), call).await;
        assert_eq!(call.expect("the other job does not block it"), Ok(3));
    }
    // The durable job is done as soon as the record can be read.
    world.hub.rewrite(&key, |bytes| bytes[0] = before);
    let must = tokio::time::timeout(Duration::from_secs(60), must).await;
    assert_eq!(must.expect("it can be read again"), Ok(3));
}

/// A writer that started from this node's version may clear a kill without counting a turn, as
/// older builds do. A record with another history must not.
#[tokio::test(start_paused = true)]
async fn a_kill_is_cleared_only_by_a_writer_that_knew_of_it() {
    for knew in [true, false] {
        let (world, node, chain) = calm();
        let agent = &chain[..2];
        let killed = || {
            let cells = world.cells(&node, agent);
            node.fleet.run(cells, &world.policies, None, |transaction| {
                let (now, link) = (transaction.now, &mut transaction.links[1]);
                link.state.kill("ada", "enough", now);
            })
        };
        assert_eq!(killed().await, Ok(()));
        let cell = world.cells(&node, agent).remove(1);
        world.hub.rewrite(cell.key(), |bytes| {
            let mut record = Record::from_bytes(bytes).expect("a record");
            record.state = ScopeState::new(ScopeKind::Agent, Time(0));
            if !knew {
                record.recent.clear();
            }
            *bytes = record.to_bytes();
        });
        assert_eq!(node.fleet.refresh(std::slice::from_ref(&cell)).await, Ok(()));
        assert_eq!(cell.state.lock().killed().is_none(), knew, "knew: {knew}");
    }
}

/// The end of a call goes in the same commit as the next call, which is decided with it.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_call_rides_with_the_next() {
    let (world, node, chain) = calm();
    let cells = || world.cells(&node, &chain);
    let call = Call::Tool(ToolCall { name: "paint".to_owned(), ..ToolCall::default() });
    let asked = call.clone();
    let admitted = move |transaction: &mut Transaction<'_, '_>| {
        let before = transaction.links[2].state.ledger();
        let before = (before.in_flight, before.spent.cost.0);
        let owner = transaction.me();
        (before, transaction.admit(&asked, &owner).ticket.expect("it is admitted"), owner)
    };
    let ended = |ticket: Ticket, owner: Owner| {
        let call = call.clone();
        node.fleet.run_with_next(cells(), &world.policies, move |transaction| {
            transaction.settle(&call, ticket.clone(), &owner, &Outcome::default());
        })
    };
    let commits = || *world.hub.commits.lock();
    let first = node.fleet.run(cells(), &world.policies, None, admitted.clone()).await;
    let (before, ticket, owner) = first.expect("an answer");
    assert_eq!(before, (0, 0));
    let (begun, asked) = (commits(), tokio::time::Instant::now());
    let settled = ended(ticket, owner);
    let second = node.fleet.run(cells(), &world.policies, None, admitted.clone()).await;
    let (before, ticket, owner) = second.expect("an answer");
    assert_eq!(before, (0, 9_000), "the second call is decided with the end of the first");
    assert_eq!(settled.await, Ok(()));
    assert_eq!(commits() - begun, 1, "one commit for both");
    // Without another call it is committed by itself, a moment later.
    assert_eq!(ended(ticket, owner).await, Ok(()));
    assert_eq!(commits() - begun, 2);
    // A caller that waits for room does not wait for that moment.
    let waited = asked.elapsed();
    for _ in 0..2 {
        let third = node.fleet.run(cells(), &world.policies, None, admitted.clone()).await;
        let (_, ticket, owner) = third.expect("an answer");
        let asked = tokio::time::Instant::now();
        let settled = ended(ticket, owner);
        node.fleet.hurry();
        assert_eq!(settled.await, Ok(()));
        assert!(asked.elapsed() < waited, "{:?} of {waited:?}", asked.elapsed());
    }
}

/// An agent whose sessions another node has written does not stay here.
#[tokio::test(start_paused = true)]
async fn an_agent_stays_until_another_node_has_its_session() {
    let (world, node, chain) = calm();
    let other = world.start();
    let call = Call::Tool(ToolCall { name: "read".to_owned(), ..ToolCall::default() });
    let used = async |node: &Arc<world::Node>| {
        let (cells, call) = (world.cells(node, &chain), call.clone());
        let agent = Arc::clone(&cells[1]);
        let ran = node.fleet.run(cells, &world.policies, None, move |transaction| {
            let owner = transaction.me();
            transaction.admit(&call, &owner);
        });
        assert_eq!(ran.await, Ok(()));
        agent.stays()
    };
    let mut here = Vec::new();
    for _ in 0..12 {
        here.push(used(&node).await);
    }
    assert_eq!(here[..8], [false; 8]);
    assert_eq!(here[10..], [true; 2]);
    assert!(!used(&other).await, "the other node has just met it");
    assert!(!used(&node).await, "the other node was the last to write it");
}

#[test]
fn a_seed_gives_the_same_run_always() {
    for seed in [3, 14, 159] {
        let (one, other) = (run(seed, None), run(seed, None));
        assert_eq!((one.trace, one.commits, one.calls), (other.trace, other.commits, other.calls));
    }
}
