//! What none of the seeds has: a budget under concurrency, and spend velocity.

use std::sync::Mutex;

use deadstop_core::*;

use crate::support::*;

/// A call of eight tokens and an answer of up to 45 at ten cents, a thousand times, for $5.
#[test]
fn f3_a_thousand_parallel_calls_against_a_budget() {
    let world = World::of(policies(
        r#"{ "budget": { "max_cost_usd": 5, "reservation": "ceiling" },
             "strikes": { "enabled": false } }"#,
    ));
    let world = Mutex::new(world);
    let running = Mutex::new(Vec::new());
    let call = model(8, Some(45));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..125 {
                    let mut world = world.lock().unwrap();
                    let admission = world.admit("acme/coder/s1", &call, at(1));
                    let ledger = world.state("s1").ledger();
                    assert!(ledger.committed() <= NanoUsd(5_000_000_000));
                    drop(world);
                    match admission.ticket {
                        Some(ticket) => running.lock().unwrap().push(ticket),
                        None => assert_eq!(reasons(&admission.trips), ["budget_reserved"]),
                    }
                }
            });
        }
    });
    let running = running.into_inner().unwrap();
    assert_eq!(running.len(), 50, "as many as fit, and not one more");
    let mut world = world.into_inner().unwrap();
    for ticket in running {
        let usage = Usage { cache_write: Tokens(8), output: Tokens(45), ..Usage::default() };
        let outcome = Outcome { usage, ..Outcome::default() };
        world.settle("acme/coder/s1", &call, ticket, &outcome, at(2));
    }
    let ledger = world.state("s1").ledger();
    assert_eq!(ledger.spent.cost, NanoUsd(5_000_000_000), "spent to the cent");
    assert_eq!(ledger.reserved, Reserved::default());
}

#[test]
fn f8_dollars_a_minute() {
    let mut world = World::of(policies(
        r#"{ "velocity": { "max_usd_per_minute": 1 }, "strikes": { "enabled": false },
             "budget": { "tool_prices": { "buy": 0.5 } } }"#,
    ));
    let path = "acme/coder/s1";
    let fine = result(Status::Ok, "done");
    assert_eq!(world.run(path, &tool("buy", "a"), &fine, at(2)), []);
    let held = world.admit(path, &tool("buy", "b"), at(3)).ticket.unwrap();
    let expected = (
        "cost_velocity_exceeded".to_owned(),
        Verdict::Block,
        Measure::Money(NanoUsd(1_500_000_000)),
        Measure::Money(NanoUsd(1_000_000_000)),
        vec![],
        "blocked: the session s1 is at $1.50 a minute (limit $1.00)".to_owned(),
    );
    assert_eq!(told(&world.admit(path, &tool("buy", "c"), at(4)).trips[0]), expected);
    world.settle(path, &tool("buy", "b"), held, &fine, at(4));
    assert_eq!(told(&world.admit(path, &tool("buy", "c"), Time(59_999)).trips[0]), expected);
    // It recovers by itself.
    assert!(world.admit(path, &tool("buy", "c"), at(60)).ticket.is_some());
    assert!(world.state("s1").killed().is_none());
}

#[test]
fn f8_tokens_a_minute() {
    let mut world = World::of(policies(
        r#"{ "velocity": { "max_tokens_per_minute": 1000, "action": "terminate" } }"#,
    ));
    let path = "acme/coder/s1";
    assert_eq!(world.run(path, &model(100, Some(100)), &used(300, 300), at(0)), []);
    let call = model(300, Some(100));
    let mut ticket = world.admit(path, &call, at(10)).ticket.unwrap();
    let mut stream = |output| {
        let so_far = Progress { output: Tokens(output), text: "" };
        world.progress(path, &call, &mut ticket, so_far, at(11))
    };
    assert_eq!(stream(100).trips, []);
    let cut = stream(101);
    assert_eq!(
        told(&cut.trips[0]),
        (
            "token_velocity_exceeded".into(),
            Verdict::Kill,
            Measure::Tokens(Tokens(1001)),
            Measure::Tokens(Tokens(1000)),
            vec![],
            "stopped: the session s1 is at 1,001 tokens a minute (limit 1,000 tokens)".into()
        )
    );
}
