//! Seed E: the circuit breaker, through all its states.

use deadstop_core::*;

use crate::support::*;

fn on(server: &str) -> Call {
    let server = Some(server.to_owned());
    Call::Tool(ToolCall { name: "query".into(), server, ..ToolCall::default() })
}

fn ended(status: Status) -> Outcome {
    Outcome { status, ..Outcome::default() }
}

/// An agent whose server `db` has failed so often that its circuit opened at second 10.
fn opened() -> World {
    let mut world =
        World::default().with(ScopeKind::Agent, "coder", Preset::Balanced.policies().agent);
    for n in 6..=10 {
        let failed = if n % 2 == 0 { Status::Error } else { Status::Fault };
        assert_eq!(world.run("coder", &on("db"), &ended(failed), at(n)), []);
    }
    world
}

fn meets(world: &mut World, server: &str, now: Time) -> Option<String> {
    let mut probe = world.admit("coder", &on(server), now);
    assert_eq!(probe.ticket.is_some(), probe.trips.is_empty());
    probe.trips.pop().map(|trip| {
        assert_eq!((trip.guard, trip.verdict), (GuardId::Breaker, Verdict::Block));
        assert_eq!(trip.reason, "circuit_breaker_open");
        assert_eq!(trip.limit, Measure::Count(5));
        assert_eq!(trip.guard.tag(trip.verdict), "circuit_breaker_open");
        trip.because
    })
}

#[test]
fn e6_closed_until_five_failures_in_a_row() {
    let mut world =
        World::default().with(ScopeKind::Agent, "coder", Preset::Balanced.policies().agent);
    let statuses = [[Status::Error; 4].as_slice(), &[Status::Ok], &[Status::Fault; 4]].concat();
    for status in statuses {
        assert_eq!(world.run("coder", &on("db"), &ended(status), at(0)), []);
    }
    assert_eq!(world.run("coder", &on("db"), &ended(Status::Cancelled), at(0)), []);
    assert_eq!(meets(&mut world, "db", at(0)), None);
    assert_eq!(world.run("coder", &on("db"), &ended(Status::Error), at(1)), []);
    assert_eq!(
        meets(&mut world, "db", at(1)).unwrap(),
        "the server db failed 5 times in a row; calls are refused for another 30 s"
    );
}

#[test]
fn e6_open_for_the_cool_down_and_for_that_server_only() {
    let mut world = opened();
    let refused = world.admit("coder", &on("db"), at(17));
    assert_eq!(refused.trips[0].measured, Measure::Count(5));
    assert_eq!(
        refused.trips[0].explain(),
        "blocked: the server db failed 5 times in a row; calls are refused for another 23 s"
    );
    assert_eq!(meets(&mut world, "web", at(17)), None);
    assert!(world.admit("coder", &tool("ls", ""), at(17)).ticket.is_some(), "no server at all");
    let model = Call::Model(ModelCall { server: Some("db".into()), ..request(0, None) });
    let verdict = world.admit("coder", &model, at(17)).verdict;
    assert_eq!(verdict, Verdict::Allow, "a provider's circuit is its own, by credential and model");
    assert_eq!(
        meets(&mut world, "db", Time(39_999)).unwrap(),
        "the server db failed 5 times in a row; calls are refused for another 1 s"
    );
    assert_eq!(meets(&mut world, "db", at(40)), None);
}

/// However often its calls are refused, an outage has one number, and the next one has another.
#[test]
fn one_outage_is_one_streak() {
    let mut world = opened();
    let streak = |world: &mut World, server: &str, now| {
        let refused = world.admit("coder", &on(server), now);
        refused.trips[0].streak.unwrap()
    };
    let first = streak(&mut world, "db", at(17));
    assert!(first < 1 << 53, "it fits into a number of JavaScript");
    // Both outages are told apart, though they began at the same time.
    for _ in 0..5 {
        world.run("coder", &on("web"), &ended(Status::Fault), at(10));
    }
    assert_ne!(streak(&mut world, "web", at(17)), first);
    // A trial fails: it goes on.
    world.run("coder", &on("db"), &ended(Status::Fault), at(41));
    assert_eq!(streak(&mut world, "db", at(50)), first);
    let blob = world.state("coder").to_blob();
    assert_eq!(&ScopeState::from_blob(&blob).unwrap(), world.state("coder"));
    // It recovers, and fails again.
    for n in 0..3 {
        world.run("coder", &on("db"), &ended(Status::Ok), at(80 + n));
    }
    for _ in 0..5 {
        world.run("coder", &on("db"), &ended(Status::Fault), at(90));
    }
    let second = streak(&mut world, "db", at(91));
    assert_ne!(second, first);
    // A trial that fails long after is another outage.
    world.run("coder", &on("db"), &ended(Status::Fault), at(130));
    assert_eq!(streak(&mut world, "db", at(131)), second);
    world.run("coder", &on("db"), &ended(Status::Fault), at(130 + 30 + 15 * 60 + 1));
    assert_ne!(streak(&mut world, "db", at(130 + 30 + 15 * 60 + 2)), second);
}

/// A provider's models and credentials have circuits of their own; that it fails is one outage.
#[test]
fn a_providers_outage_is_one_for_all_its_models() {
    let mut world =
        World::default().with(ScopeKind::Agent, "coder", Preset::Balanced.policies().agent);
    let on = |model: &str| {
        let call = ModelCall { server: Some("openai".into()), ..request(0, None) };
        Call::Model(ModelCall { model: model.into(), ..call })
    };
    let mut streaks = Vec::new();
    for model in ["large", "small"] {
        for _ in 0..5 {
            world.run("coder", &on(model), &ended(Status::Fault), at(10));
        }
        streaks.push(world.admit("coder", &on(model), at(11)).trips[0].streak.unwrap());
    }
    assert_eq!(streaks[0], streaks[1]);
    // One of the circuits closes: it goes on as long as the other is open.
    for n in 0..3 {
        world.run("coder", &on("small"), &ended(Status::Ok), at(13 + n));
    }
    let large = world.admit("coder", &on("large"), at(11));
    assert_eq!(large.trips[0].streak, Some(streaks[0]));
}

#[test]
fn what_fails_is_shown_with_when_it_is_tried_again() {
    let mut world = opened();
    let policy = Preset::Balanced.policies().agent;
    let mut shown = |second: u64| world.state("coder").failing(&policy, at(second));
    let failing = |left: u64| Failing {
        server: "db".into(),
        is_provider: false,
        since: at(10),
        left: Millis(left * 1000),
        circuits: vec![circuit(&on("db")).unwrap()],
    };
    assert_eq!(shown(17), [failing(23)]);
    // It may be tried, and the last failure is a moment ago.
    assert_eq!(shown(45), [failing(0)]);
    assert_eq!(shown(71), []);
    let mut healthy = opened();
    for n in 0..3 {
        healthy.run("coder", &on("db"), &ended(Status::Ok), at(40 + n));
    }
    assert_eq!(healthy.state("coder").failing(&policy, at(43)), []);
    let mut cleared = opened();
    cleared.state("coder").forget();
    assert_eq!(cleared.state("coder").failing(&policy, at(17)), []);
}

#[test]
fn e6_half_open_calls_are_counted_before_they_run() {
    let mut world = opened();
    let trials: Vec<_> =
        (0..50).filter_map(|_| world.admit("coder", &on("db"), at(40)).ticket).collect();
    assert_eq!(trials.len(), 3);
    assert_eq!(
        meets(&mut world, "db", at(45)).unwrap(),
        "the server db failed 5 times in a row; other calls are testing it for another 25 s"
    );
    // All three succeed: closed, and the count of failures starts at none.
    for (n, ticket) in trials.into_iter().enumerate() {
        world.settle("coder", &on("db"), ticket, &ended(Status::Ok), at(46));
        assert_eq!(meets(&mut world, "db", at(46)).is_none(), n == 2, "after {n}");
    }
    for _ in 0..4 {
        assert_eq!(world.run("coder", &on("db"), &ended(Status::Error), at(47)), []);
    }
    assert_eq!(meets(&mut world, "db", at(47)), None);
}

#[test]
fn e6_one_failed_trial_opens_it_again() {
    for failed in [Status::Error, Status::Fault] {
        let mut world = opened();
        let ticket = world.admit("coder", &on("db"), at(40)).ticket.unwrap();
        let late = world.admit("coder", &on("db"), at(40)).ticket.unwrap();
        world.settle("coder", &on("db"), ticket, &ended(failed), at(50));
        assert_eq!(
            meets(&mut world, "db", at(60)).unwrap(),
            "the server db failed 6 times in a row; calls are refused for another 20 s"
        );
        // A success that was on its way does not close it.
        world.settle("coder", &on("db"), late, &ended(Status::Ok), at(61));
        assert!(meets(&mut world, "db", at(79)).is_some());
        assert_eq!(meets(&mut world, "db", at(80)), None);
    }
}

#[test]
fn e6_a_cancelled_trial_frees_its_place() {
    let mut world = opened();
    let mut trials: Vec<_> =
        (0..3).map(|_| world.admit("coder", &on("db"), at(40)).ticket.unwrap()).collect();
    let cut = trials.pop().unwrap();
    world.settle("coder", &on("db"), cut, &ended(Status::Cancelled), at(41));
    let fourth = world.admit("coder", &on("db"), at(41)).ticket.unwrap();
    assert!(meets(&mut world, "db", at(41)).is_some(), "one place was free, not two");
    for ticket in trials {
        world.settle("coder", &on("db"), ticket, &ended(Status::Ok), at(42));
    }
    assert!(meets(&mut world, "db", at(42)).is_some(), "two of three have succeeded");
    world.settle("coder", &on("db"), fourth, &ended(Status::Ok), at(43));
    assert_eq!(meets(&mut world, "db", at(43)), None);
}

#[test]
fn e6_trials_that_never_return_free_their_places() {
    let mut world = opened();
    for _ in 0..3 {
        assert!(world.admit("coder", &on("db"), at(40)).ticket.is_some());
    }
    assert!(meets(&mut world, "db", Time(69_999)).is_some());
    for n in 0..3 {
        assert_eq!(meets(&mut world, "db", at(70)), None, "trial {n}");
    }
    assert_eq!(
        meets(&mut world, "db", at(80)).unwrap(),
        "the server db failed 5 times in a row; other calls are testing it for another 20 s"
    );
}

/// Found by reading: trials of an earlier round freed, filled or closed this one.
#[test]
fn e6_trials_of_an_earlier_round_prove_nothing() {
    for status in [Status::Cancelled, Status::Ok, Status::Error, Status::Fault] {
        let mut world = opened();
        let trials = |world: &mut World, second| {
            [(); 3].map(|()| world.admit("coder", &on("db"), at(second)).ticket.unwrap())
        };
        let old = trials(&mut world, 40);
        let new = trials(&mut world, 70);
        for ticket in old {
            world.settle("coder", &on("db"), ticket, &ended(status), at(71));
            assert_eq!(
                meets(&mut world, "db", at(71)).unwrap(),
                "the server db failed 5 times in a row; other calls are testing it for another 29 s",
                "{status:?}"
            );
        }
        for ticket in new {
            world.settle("coder", &on("db"), ticket, &ended(Status::Ok), at(72));
        }
        assert_eq!(meets(&mut world, "db", at(72)), None, "{status:?}");
    }
}

#[test]
fn e6_results_of_calls_from_before_prove_nothing() {
    let mut world =
        World::default().with(ScopeKind::Agent, "coder", Preset::Balanced.policies().agent);
    let mut early: Vec<_> =
        (0..8).map(|_| world.admit("coder", &on("db"), at(0)).ticket.unwrap()).collect();
    for ticket in early.drain(..5) {
        world.settle("coder", &on("db"), ticket, &ended(Status::Error), at(10));
    }
    let [ok, failed, cut] = early.try_into().unwrap();
    world.settle("coder", &on("db"), ok, &ended(Status::Ok), at(11));
    assert!(meets(&mut world, "db", at(11)).is_some(), "still open");
    let trial = world.admit("coder", &on("db"), at(40)).ticket.unwrap();
    world.settle("coder", &on("db"), failed, &ended(Status::Error), at(41));
    world.settle("coder", &on("db"), cut, &ended(Status::Cancelled), at(41));
    world.settle("coder", &on("db"), trial, &ended(Status::Ok), at(41));
    assert_eq!(meets(&mut world, "db", at(41)), None, "the second trial");
    assert_eq!(meets(&mut world, "db", at(41)), None, "the third");
    assert!(meets(&mut world, "db", at(41)).is_some(), "no fourth");
}

#[test]
fn e6_the_sixteen_servers_used_last_are_remembered() {
    for (others, remembered) in [(15, true), (16, false)] {
        let mut world = opened();
        for n in 0..others {
            world.run("coder", &on(&format!("other {n}")), &ended(Status::Error), at(11));
        }
        assert_eq!(meets(&mut world, "db", at(12)).is_some(), remembered, "{others}");
    }
}

#[test]
fn e6_works_in_an_agents_scope_when_it_is_on() {
    for (kind, enabled, works) in [
        (ScopeKind::Agent, true, true),
        (ScopeKind::Agent, false, false),
        (ScopeKind::Session, true, false),
        (ScopeKind::Project, true, false),
    ] {
        let breaker = BreakerSettings { enabled, ..BreakerSettings::default() };
        let policy = Policy { breaker, ..Policy::none() };
        let mut world = World::default().with(kind, "x", policy);
        for _ in 0..9 {
            world.run("x", &on("db"), &ended(Status::Error), at(0));
        }
        let refused = world.admit("x", &on("db"), at(0)).ticket.is_none();
        assert_eq!(refused, works, "{kind:?} {enabled}");
    }
}
