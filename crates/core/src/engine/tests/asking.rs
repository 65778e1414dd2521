//! Calls that a person is asked about.

use super::*;

fn approved(world: &mut World, path: &str, call: &Call, now: u64) -> Admission {
    admit_approved(&mut world.chain(path), call, Time(now))
}

fn ask_to_delete() -> Policy {
    policy(|p| {
        p.destructive.enabled = true;
        p.destructive.max_deletes = 1;
        p.destructive.action = Action::Ask;
        p.strikes.enabled = true;
        p.strikes.consecutive_blocks = 2;
    })
}

#[test]
fn asking_leaves_no_trace_and_is_no_strike() {
    let mut world = World::default().with("p", Policy::none()).with("s", ask_to_delete());
    let before = world.states();
    for now in 0..10 {
        let asked = world.admit("p/s", &delete(), now);
        assert_eq!((asked.verdict, asked.ticket), (Verdict::Ask, None));
        assert_eq!(asked.trips[0].guard, GuardId::Destructive);
        assert!(asked.trips[0].explain().starts_with("waits for a person: "));
    }
    assert_eq!(world.states(), before);
    assert_eq!(world.admit("p/s", &tool("read"), 11).verdict, Verdict::Allow);
}

#[test]
fn what_a_person_approves_runs_with_a_warning() {
    let mut world = World::default().with("p", Policy::none()).with("s", ask_to_delete());
    let admission = approved(&mut world, "p/s", &delete(), 1);
    assert_eq!(admission.verdict, Verdict::Warn);
    let ticket = admission.ticket.unwrap();
    assert_eq!(ticket.number, 1);
    let done = world.settle("p/s", &delete(), ticket, &Outcome::default());
    assert_eq!(done.verdict, Verdict::Allow);
    // It is counted like any other, and the next one is asked about again.
    assert_eq!(world.admit("p/s", &delete(), 2).trips[0].measured, Measure::Count(2));
}

#[test]
fn everything_stricter_still_holds() {
    for (action, verdict) in [(Action::Block, Verdict::Block), (Action::Terminate, Verdict::Kill)] {
        let stricter = policy(|p| {
            p.access.deny = vec![Pattern::new("rm")];
            p.access.action = action;
        });
        let mut world = World::default().with("p", stricter).with("s", ask_to_delete());
        let refused = approved(&mut world, "p/s", &delete(), 2);
        assert_eq!((refused.verdict, refused.ticket), (verdict, None));
    }
    let mut world = World::default().with("p", Policy::none()).with("s", ask_to_delete());
    world.state("p").kill("ada", "enough", Time(1));
    assert_eq!(approved(&mut world, "p/s", &delete(), 2).verdict, Verdict::Kill);
}

#[test]
fn nobody_is_asked_about_what_runs_already() {
    let asks = policy(|p| {
        p.budget.max_cost_usd = Some(Dollars(NanoUsd::DOLLAR));
        p.budget.action = Action::Ask;
    });
    let mut world = World::default().with("s", asks);
    let call = model(100, Some(100));
    let mut ticket = world.start("s", &call, 1);
    let streamed = world.stream("s", &call, &mut ticket, 600);
    assert_eq!((streamed.verdict, streamed.allowed()), (Verdict::Warn, true));
    assert_eq!(world.settle("s", &call, ticket, &used(100, 600)).verdict, Verdict::Warn);
    // What is used up is asked about from then on.
    assert_eq!(world.admit("s", &call, 3000).verdict, Verdict::Ask);
    assert!(approved(&mut world, "s", &call, 3001).ticket.is_some());
}
