//! Blame, estimates and shares: what may end a scope, and what may only delay a call.

use super::*;
use crate::blame::{Blame, Failure, How};
use crate::policy::Preset;
use crate::trip::Wait;

fn ask(credential: u64, model: &str) -> Call {
    Call::Model(ModelCall {
        model: model.into(),
        server: Some("openai".into()),
        credential: Some(Digest(credential)),
        ..ModelCall::default()
    })
}

/// Agent `a` and session `s` under the defaults.
fn balanced() -> World {
    let set = Preset::Balanced.policies();
    World::default().with("p", set.project).with("a", set.agent).with("s", set.session)
}

fn fail(world: &mut World, call: &Call, failure: Failure, now: u64) -> Decision {
    let ticket = world.start("p/a/s", call, now);
    settle(&mut world.chain("p/a/s"), call, ticket, &Outcome::failed(failure), Time(now))
}

/// A provider that fails in every way, for as long as it likes, ends nothing.
#[test]
fn nothing_that_a_provider_does_ends_a_session() {
    let failures = [500, 502, 503, 529, 429, 408, 409].map(|s| Failure::of_status(s).unwrap());
    let torn = [How::Connection, How::TimedOut, How::Torn, How::Unreadable, How::Reported];
    let all = failures.into_iter().chain(torn.map(Failure::provider));
    let mut world = balanced();
    let mut now = 0;
    for failure in all.cycle().take(200) {
        now += 60_000;
        assert_eq!(fail(&mut world, &ask(1, "m"), failure, now).trips, []);
        // The breaker refuses until it has cooled down; that is no strike either.
        for _ in 0..6 {
            world.admit("p/a/s", &ask(1, "m"), now + 1);
        }
    }
    assert_eq!(world.killed(), Vec::<&str>::new());
}

/// With `provider_errors` the page of seed B holds, and the sentence names status and provider. The
/// attempts of one request count once.
#[test]
fn provider_errors_count_where_a_policy_says_so() {
    let mut world = balanced();
    world.policy("s").strikes.provider_errors = true;
    world.policy("a").breaker.enabled = false;
    let down = Failure::of_status(503).unwrap();
    let Call::Model(first) = ask(1, "m") else { unreachable!() };
    let again = Call::Model(ModelCall { retry: true, ..first });
    for round in 0..2 {
        assert_eq!(fail(&mut world, &ask(1, "m"), down, round).trips, []);
        assert_eq!(fail(&mut world, &again, down, round).trips, []);
        assert_eq!(fail(&mut world, &again, down, round).trips, []);
    }
    let last = fail(&mut world, &ask(1, "m"), down, 9);
    assert_eq!(last.verdict, Verdict::Kill);
    assert_eq!(
        last.trips[0].explain(),
        "stopped: 3 provider errors in a row (503 from openai, limit 3)"
    );
}

#[test]
fn a_callers_mistakes_open_no_breaker_and_count_no_strike() {
    let mut world = balanced();
    for status in [401, 403, 404, 400, 422].into_iter().cycle().take(30) {
        let failure = Failure::of_status(status).unwrap();
        assert_eq!(failure.blame, Blame::Caller);
        assert_eq!(fail(&mut world, &ask(1, "m"), failure, 1).trips, []);
    }
    for credential in [1, 2] {
        assert_eq!(world.admit("p/a/s", &ask(credential, "m"), 2).verdict, Verdict::Allow);
    }
}

#[test]
fn a_breaker_is_for_one_provider_credential_and_model_and_backs_off() {
    let mut world = balanced();
    let (call, down) = (ask(1, "m"), Failure::of_status(503).unwrap());
    for _ in 0..5 {
        fail(&mut world, &call, down, 1000);
    }
    for other in [ask(2, "m"), ask(1, "n")] {
        assert_eq!(world.admit("p/a/s", &other, 1000).verdict, Verdict::Allow);
    }
    let refused = world.admit("p/a/s", &call, 1500);
    assert_eq!(
        (refused.verdict, refused.trips[0].waits),
        (Verdict::Block, Some(Wait::For(Millis(2000))))
    );
    assert_eq!(
        refused.trips[0].because,
        "openai (m) failed 5 times in a row (last failure: 503); calls are refused for another 2 s"
    );
    // Each failed trial doubles the back-off, up to the cool-down of the policy.
    let mut now = 1000;
    for backoff in [2000, 4000, 8000, 16_000, 30_000, 30_000] {
        assert_eq!(world.admit("p/a/s", &call, now + backoff - 1).verdict, Verdict::Block);
        now += backoff;
        fail(&mut world, &call, down, now);
    }
    // It closes by itself once the provider answers.
    now += 30_000;
    let tickets = [(); 3].map(|()| world.start("p/a/s", &call, now));
    assert_eq!(world.admit("p/a/s", &call, now).verdict, Verdict::Block);
    for ticket in tickets {
        world.settle("p/a/s", &call, ticket, &Outcome::default());
    }
    assert_eq!(world.admit("p/a/s", &call, now).verdict, Verdict::Allow);
    // A clock that goes back does not keep it shut.
    for _ in 0..5 {
        fail(&mut world, &call, down, now);
    }
    assert_eq!(world.admit("p/a/s", &call, now).verdict, Verdict::Block);
    assert_eq!(world.admit("p/a/s", &call, 5).verdict, Verdict::Allow);
}

fn guess(input: u64, max_output: Option<u64>) -> Call {
    let Call::Model(call) = model(input, max_output) else { unreachable!() };
    Call::Model(ModelCall { estimated: true, ..call })
}

#[test]
fn an_estimate_refuses_a_call_and_ends_nothing() {
    let tokens = policy(|p| p.tokens.input_token_limit = Some(Tokens(60)));
    let money = policy(|p| p.budget.max_cost_usd = dollars(6));
    for (limited, reason, sentence) in [
        (
            tokens,
            "input_exceeded",
            "blocked: the session s would, by an estimate, go over its input limit of 60 tokens \
             (at 79 tokens, after 0 s)",
        ),
        (
            money,
            "budget_estimate",
            "blocked: gpt needs $0.0790 by an estimate and $0.0600 of its $0.0600 is left",
        ),
    ] {
        let mut world = World::only("p/s", 1, &limited);
        let refused = world.admit("p/s", &guess(79, Some(1)), 0);
        assert_eq!((refused.verdict, refused.trips[0].reason.as_str()), (Verdict::Block, reason));
        assert_eq!(refused.trips[0].explain(), sentence);
        assert_eq!(refused.trips[0].waits, None, "nothing is in flight that could leave room");
        assert_eq!(world.killed(), Vec::<&str>::new());
        // What was counted does end it, and so does what was spent.
        let counted = world.admit("p/s", &model(79, Some(1)), 0);
        assert_eq!(counted.verdict, Verdict::Kill);
    }
}

#[test]
fn bills_correct_the_estimates_of_a_session() {
    let limited = policy(|p| p.tokens.input_token_limit = Some(Tokens(1000)));
    let mut world = World::only("p/s", 1, &limited);
    let call = guess(800, Some(1));
    let ticket = world.start("p/s", &call, 0);
    assert_eq!(ticket.reserved().input, Tokens(800));
    world.settle("p/s", &call, ticket, &used(400, 1));
    // By the raw estimate this would be 1,200 of 1,000.
    assert_eq!(world.start("p/s", &call, 1).reserved().input, Tokens(400));
}

#[test]
fn a_stream_that_is_only_estimated_is_cut_and_ends_nothing() {
    let limited = policy(|p| p.budget.max_cost_usd = dollars(100));
    let mut world = World::only("p/s", 1, &limited);
    let call = guess(10, None);
    let mut ticket = world.start("p/s", &call, 0);
    assert_eq!(world.stream("p/s", &call, &mut ticket, 490).verdict, Verdict::Allow);
    assert_eq!(world.stream("p/s", &call, &mut ticket, 500).verdict, Verdict::Block);
    assert_eq!(world.killed(), Vec::<&str>::new());
    // The bill says it was less: the session goes on.
    // At 96.5% it is asked to finish.
    assert_eq!(world.settle("p/s", &call, ticket, &used(5, 480)).verdict, Verdict::Steer);
    assert_eq!(world.admit("p/s", &guess(1, Some(1)), 3).verdict, Verdict::Allow);
}

/// Six calls without a maximum on $5 used to be refused but for one, and the session ended.
#[test]
fn under_ceiling_calls_without_a_maximum_share_what_is_left() {
    let strict = policy(|p| {
        p.budget.reservation = Reservation::Ceiling;
        p.budget.max_cost_usd = dollars(500);
    });
    let mut world = World::only("p/s", 1, &strict);
    let call = guess(10, None);
    let mut tickets: Vec<Ticket> = (0..6).map(|n| world.start("p/s", &call, n)).collect();
    // Each takes an eighth of what the ones before have left.
    assert!(tickets.is_sorted_by_key(|t| std::cmp::Reverse(t.reserved().output)));
    // A stream that reaches its share takes another one.
    let first = tickets[0].reserved().output.0;
    assert_eq!(world.stream("p/s", &call, &mut tickets[0], first + 1).verdict, Verdict::Allow);
    assert!(tickets[0].reserved().output.0 > first);
    assert!(world.state("s").ledger.committed() <= cents(500));
    // With all shares taken it is cut before it goes over.
    let mut last = first;
    while world.stream("p/s", &call, &mut tickets[0], last).verdict == Verdict::Allow {
        last += 1;
        assert!(world.state("s").ledger.committed() <= cents(500));
    }
    assert!(last > first, "{last}");
    for ticket in tickets.drain(1..) {
        assert_eq!(world.settle("p/s", &call, ticket, &used(10, 5)).verdict, Verdict::Allow);
    }
    assert_eq!(world.killed(), Vec::<&str>::new());
}

#[test]
fn a_share_is_no_longer_than_the_models_longest_answer() {
    let strict = policy(|p| {
        p.budget.reservation = Reservation::Ceiling;
        p.budget.max_cost_usd = dollars(5000);
    });
    let mut world = World::only("p/s", 1, &strict);
    let Call::Model(call) = guess(10, None) else { unreachable!() };
    let call = Call::Model(ModelCall { longest_output: Some(Tokens(300)), ..call });
    assert_eq!(world.start("p/s", &call, 0).reserved().output, Tokens(300));
}

/// What does not fit because of calls in flight may wait for them.
#[test]
fn what_calls_in_flight_may_leave_is_worth_waiting_for() {
    let money = policy(|p| p.budget.max_cost_usd = dollars(10));
    let tokens = policy(|p| p.tokens.output_token_limit = Some(Tokens(50)));
    for limited in [money, tokens] {
        let mut world = World::only("p/s", 1, &limited);
        let call = guess(10, Some(30));
        let ticket = world.start("p/s", &call, 0);
        let second = world.admit("p/s", &call, 0);
        match second.ticket {
            // An expected answer is cut to what is left.
            Some(_) => {
                let third = world.admit("p/s", &call, 0);
                assert_eq!(third.trips[0].waits, Some(Wait::Settle), "{:?}", third.trips);
            }
            None => assert_eq!(second.trips[0].waits, Some(Wait::Settle)),
        }
        world.settle("p/s", &call, ticket, &used(1, 1));
        assert_eq!(world.admit("p/s", &call, 1).verdict, Verdict::Allow);
    }
}

#[test]
fn a_look_up_is_no_model_call() {
    let limited = policy(|p| {
        p.steps.max_model_calls = Some(1);
        p.tokens.total_token_limit = Some(Tokens(50));
        p.budget.max_cost_usd = dollars(10);
    });
    let mut world = World::only("p/s", 1, &limited);
    let look = Call::Model(ModelCall { lookup: true, ..ModelCall::default() });
    for now in 0..20 {
        let ticket = world.start("p/s", &look, now);
        world.settle("p/s", &look, ticket, &Outcome::default());
    }
    assert_eq!(world.state("s").ledger.spent.model_calls, 0);
    assert_eq!(world.admit("p/s", &guess(1, Some(1)), 30).verdict, Verdict::Allow);
}

/// The bill of the answer counts, not the rates of the request.
#[test]
fn a_bill_replaces_the_rates() {
    let mut world = World::only("p/s", 1, &Policy::none());
    let call = guess(10, Some(10));
    let ticket = world.start("p/s", &call, 0);
    let outcome = Outcome { billed: Some(cents(7)), ..used(1000, 1000) };
    world.settle("p/s", &call, ticket, &outcome);
    assert_eq!(world.state("s").ledger.spent.cost, cents(7));
}

/// An answer that is there in full is delivered, whatever the limits say meanwhile.
#[test]
fn no_limit_holds_a_paid_answer_back() {
    let limited = policy(|p| p.budget.max_cost_usd = dollars(100));
    let mut world = World::only("p/s", 1, &limited);
    let call = guess(10, Some(100));
    let (mut ticket, other) = (world.start("p/s", &call, 0), world.start("p/s", &call, 0));
    world.settle("p/s", &call, other, &used(10, 490));
    assert_eq!(world.stream("p/s", &call, &mut ticket.clone(), 0).verdict, Verdict::Block);
    ticket.paid();
    assert_eq!(world.stream("p/s", &call, &mut ticket, 0).verdict, Verdict::Allow);
}
