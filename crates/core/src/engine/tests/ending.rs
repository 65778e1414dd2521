//! Endings that keep the work: asked to finish, one last answer, topped up.

use super::*;
use crate::guard::ending::TopUp;
use crate::settings::Share;

fn kept(change: impl FnOnce(&mut Policy)) -> Policy {
    policy(|p| {
        p.ending.reserve_for_answer = Share::percent(10);
        change(p);
    })
}

fn step(world: &mut World, now: u64) -> Admission {
    let admission = world.admit("p/s", &tool("ls"), now);
    if let Some(ticket) = admission.ticket.clone() {
        world.settle("p/s", &tool("ls"), ticket, &Outcome::default());
    }
    admission
}

fn answer(world: &mut World, outcome: &Outcome) -> Decision {
    let call = model(1, Some(1));
    let ticket = world.start("p/s", &call, 100);
    world.settle("p/s", &call, ticket, outcome)
}

fn reasons(trips: &[Trip]) -> Vec<&str> {
    trips.iter().map(|trip| trip.reason.as_str()).collect()
}

#[test]
fn near_a_limit_the_agent_is_asked_to_finish_once() {
    let mut world = World::only("p/s", 1, &steps(20, Action::Terminate));
    let told: Vec<u64> =
        (1..=20).filter(|n| step(&mut world, *n).verdict == Verdict::Steer).collect();
    assert_eq!(told, [18], "of 20 tool calls, two are left at the eighteenth");
    assert_eq!(step(&mut world, 21).verdict, Verdict::Kill);

    let mut world = World::only("p/s", 1, &policy(|p| p.budget.max_cost_usd = dollars(100)));
    assert_eq!(answer(&mut world, &used(800, 0)).verdict, Verdict::Allow);
    let near = answer(&mut world, &used(120, 0));
    let trip = near.decisive().unwrap();
    assert_eq!(
        (near.verdict, trip.guard, trip.reason.as_str()),
        (Verdict::Steer, GuardId::Budget, "wrap_up")
    );
    let advice = trip.advice.clone().unwrap();
    assert!(advice.contains("92% of the budget ($0.0800 of $1.00 left)"), "{advice}");
    assert_eq!(answer(&mut world, &used(10, 0)).verdict, Verdict::Allow, "once");

    // By the clock.
    let timed = policy(|p| p.time.max_wall_time_seconds = Some(Seconds(100)));
    let mut world = World::only("p/s", 1, &timed);
    let told: Vec<u64> = [80, 91, 95]
        .into_iter()
        .filter(|s| step(&mut world, s * 1000).verdict == Verdict::Steer)
        .collect();
    assert_eq!(told, [91]);
}

#[test]
fn it_can_be_turned_off_and_small_limits_have_nothing_left_to_tell() {
    let off = policy(|p| {
        p.steps.max_steps = Some(20);
        p.ending.wrap_up_at = Share::OFF;
    });
    for (policy, most) in [(off, 20), (steps(5, Action::Terminate), 5)] {
        let mut world = World::only("p/s", 1, &policy);
        for now in 1..=most {
            assert_eq!(step(&mut world, now).verdict, Verdict::Allow, "{now} of {most}");
        }
    }
}

#[test]
fn at_the_limit_one_last_answer_without_tools_is_left() {
    let mut world = World::only("p/s", 1, &kept(|p| p.steps.max_steps = Some(2)));
    step(&mut world, 1);
    step(&mut world, 2);
    // Tools are refused, several in one answer, too; the session lives.
    for now in [3, 4] {
        let refused = step(&mut world, now);
        assert_eq!((refused.verdict, reasons(&refused.trips)[0]), (Verdict::Block, "last_answer"));
    }
    assert_eq!(world.killed(), Vec::<&str>::new());
    let last = answer(&mut world, &used(5, 5));
    assert_eq!((last.verdict, reasons(&last.trips)), (Verdict::Kill, vec!["last_answer_given"]));
    assert_eq!(world.killed(), ["s"]);
    assert_eq!(world.state("s").killed().unwrap().guard, Some(GuardId::Steps));
}

#[test]
fn a_tool_in_the_last_answer_ends_it_and_so_does_going_on() {
    let limited = kept(|p| p.steps.max_steps = Some(1));
    let mut world = World::only("p/s", 1, &limited);
    step(&mut world, 1);
    step(&mut world, 2);
    let call = model(1, Some(1));
    let _running = world.start("p/s", &call, 3);
    assert_eq!(step(&mut world, 4).verdict, Verdict::Kill);

    let mut world = World::only("p/s", 1, &limited);
    let ended = (1..=20).find(|now| step(&mut world, *now).verdict == Verdict::Kill);
    assert_eq!(ended, Some(11), "one ran, one closed it, eight were refused");
}

#[test]
fn the_last_answer_is_paid_from_what_was_kept_back() {
    let mut world = World::only("p/s", 1, &kept(|p| p.budget.max_cost_usd = dollars(100)));
    let near = answer(&mut world, &used(905, 0));
    assert_eq!(near.verdict, Verdict::Steer, "90 cents are gone: {:?}", near.trips);
    assert!(reasons(&near.trips).contains(&"last_answer"));
    assert!(
        near.trips.iter().any(|t| t.advice.as_ref().is_some_and(|a| a.contains("final answer")))
    );
    // An answer that fails was none.
    let failed = Outcome { status: Status::Error, ..Outcome::default() };
    assert_eq!(answer(&mut world, &failed).verdict, Verdict::Allow);
    assert_eq!(answer(&mut world, &used(50, 0)).verdict, Verdict::Kill);
    assert!(world.state("s").ledger().spent.cost <= cents(100));
    assert_eq!(world.admit("p/s", &model(1, Some(1)), 9).verdict, Verdict::Kill);

    // What passes the whole limit ends it as ever.
    let mut world = World::only("p/s", 1, &kept(|p| p.budget.max_cost_usd = dollars(100)));
    assert_eq!(answer(&mut world, &used(1500, 0)).verdict, Verdict::Kill);
}

#[test]
fn the_last_model_call_is_the_last_answer() {
    let mut world = World::only("p/s", 1, &kept(|p| p.steps.max_model_calls = Some(3)));
    assert_eq!(answer(&mut world, &used(1, 1)).verdict, Verdict::Allow);
    assert_eq!(answer(&mut world, &used(1, 1)).verdict, Verdict::Steer);
    assert_eq!(step(&mut world, 5).verdict, Verdict::Block);
    assert_eq!(answer(&mut world, &used(1, 1)).verdict, Verdict::Kill);
}

#[test]
fn a_top_up_lifts_what_a_limit_ended_and_nothing_else() {
    let mut world = World::only("p/s", 1, &steps(2, Action::Terminate));
    for now in 1..=3 {
        step(&mut world, now);
    }
    assert_eq!(world.killed(), ["s"]);
    let turns = world.state("s").turns();
    world.state("s").top_up(TopUp { steps: 2, ..TopUp::default() }).unwrap();
    assert!(world.state("s").turns() > turns, "the lifted kill is newer than the kill");
    assert_eq!(step(&mut world, 4).verdict, Verdict::Allow);
    assert_eq!(step(&mut world, 5).verdict, Verdict::Allow);
    assert_eq!(step(&mut world, 6).verdict, Verdict::Kill);
    let again = world.state("s").clone();
    assert_eq!(ScopeState::from_blob(&again.to_blob()), Ok(again));

    // A person's stop is final, and so is a loop's end.
    for guard in [None, Some(GuardId::Loop)] {
        let mut state = ScopeState::new(ScopeKind::Session, Time(0));
        state.kill("ada", "enough", Time(1));
        state.kill.as_mut().unwrap().guard = guard;
        assert_eq!(state.top_up(TopUp { steps: 9, ..TopUp::default() }), Err(Final));
        assert!(state.killed().is_some());
    }
}

#[test]
fn every_limit_can_be_raised() {
    let more =
        TopUp { cost: cents(100), steps: 1, tokens: Tokens(1000), time: Millis::from_secs(100) };
    for change in [
        (|p: &mut Policy| p.budget.max_cost_usd = dollars(1)) as fn(&mut Policy),
        |p| p.tokens.total_token_limit = Some(Tokens(10)),
        |p| p.tokens.input_token_limit = Some(Tokens(10)),
        |p| p.time.max_wall_time_seconds = Some(Seconds(1)),
    ] {
        let mut world = World::only("p/s", 1, &policy(change));
        answer_or_not(&mut world);
        answer_or_not(&mut world);
        assert_eq!(world.killed(), ["s"]);
        world.state("s").top_up(more).unwrap();
        assert!(world.admit("p/s", &model(1, Some(1)), 4000).ticket.is_some());
    }
}

fn answer_or_not(world: &mut World) {
    let call = model(1, Some(1));
    if let Some(ticket) = world.admit("p/s", &call, 3000).ticket {
        world.settle("p/s", &call, ticket, &used(20, 0));
    }
}
