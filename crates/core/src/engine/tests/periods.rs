//! Budgets that start afresh: which period a call's money belongs to.

use super::*;
use crate::ledger::Period;

#[test]
fn a_budget_starts_afresh_with_its_period() {
    let hour = Millis::from_secs(3600).0;
    let hourly = policy(|p| {
        p.budget.max_cost_usd = dollars(10);
        p.budget.per = Period::Hour;
        p.budget.action = Action::Block;
        p.budget.tool_prices = [(Pattern::new("pay"), Dollars(cents(5)))].into();
    });
    let mut world = World::only("p/s", 0, &hourly);
    for now in [0, 1] {
        let ticket = world.start("p/s", &tool("pay"), now);
        world.settle("p/s", &tool("pay"), ticket, &Outcome::default());
    }
    assert_eq!(world.admit("p/s", &tool("pay"), hour - 1).verdict, Verdict::Block);
    assert!(world.admit("p/s", &tool("pay"), hour).ticket.is_some());
    let ledger = world.state("p").ledger().clone();
    assert_eq!((ledger.period_cost, ledger.spent.cost), (NanoUsd(0), cents(10)));
    assert_eq!(ledger.committed(), cents(5));
}

#[test]
fn a_call_that_ends_in_the_next_period_is_charged_to_that_one() {
    let hour = Millis::from_secs(3600).0;
    let hourly = policy(|p| {
        p.budget.per = Period::Hour;
        p.budget.tool_prices = [(Pattern::new("pay"), Dollars(cents(5)))].into();
    });
    let mut world = World::only("s", 0, &hourly);
    let first = world.start("s", &tool("pay"), 0);
    let second = world.start("s", &tool("pay"), 0);
    settle(&mut world.chain("s"), &tool("pay"), first, &Outcome::default(), Time(hour - 1));
    settle(&mut world.chain("s"), &tool("pay"), second, &Outcome::default(), Time(hour));
    assert_eq!(world.state("s").ledger.period_cost, cents(5));
    assert_eq!(world.state("s").ledger.spent.cost, cents(10));
}

/// Found by reading: the money of the last hour cut an answer of this one.
#[test]
fn a_stream_counts_the_money_of_its_own_period() {
    let hour = Millis::from_secs(3600).0;
    let hourly = policy(|p| {
        p.budget.max_cost_usd = dollars(100);
        p.budget.per = Period::Hour;
    });
    for (now, verdict) in [(hour - 1, Verdict::Kill), (hour, Verdict::Allow)] {
        let mut world = World::only("p/s", 0, &hourly);
        let call = model(10, Some(100));
        let first = world.start("p/s", &call, 0);
        world.settle("p/s", &call, first, &used(10, 300));
        let mut ticket = world.start("p/s", &call, hour - 1);
        let so_far = Progress { output: Tokens(250), text: "" };
        let decision = progress(&mut world.chain("p/s"), &call, &mut ticket, so_far, Time(now));
        assert_eq!(decision.verdict, verdict, "at {now}");
    }
}
