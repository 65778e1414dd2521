//! What a call sets aside before it runs, and when it needs more.

use super::*;

/// What a request of 10 tokens reserves in `p/s`, after the calls before it.
fn claimed(world: &mut World, max_output: Option<u64>) -> (u64, NanoUsd) {
    let admission = world.admit("p/s", &model(10, max_output), 0);
    let reserved = admission.ticket.unwrap().reserved();
    assert_eq!(reserved.input, Tokens(10));
    (reserved.output.0, reserved.cost)
}

#[test]
fn expected_reserves_what_answers_take() {
    for (max_output, output, cost) in
        [(None, 256, 5220), (Some(100), 100, 2100), (Some(300), 256, 5220)]
    {
        let mut world = World::only("p/s", 0, &Policy::none());
        assert_eq!(claimed(&mut world, max_output), (output, NanoUsd(cost * 100_000)));
    }
    let mut world = World::only("p/s", 0, &Policy::none());
    let call = model(10, None);
    let ticket = world.start("p/s", &call, 0);
    world.settle("p/s", &call, ticket, &used(10, 1000));
    assert_eq!(claimed(&mut world, None).0, 1000);
}

#[test]
fn ceiling_reserves_the_most_that_the_request_allows() {
    let ceiling = policy(|p| p.budget.reservation = Reservation::Ceiling);
    for depth in 0..2 {
        let mut world = World::only("p/s", depth, &ceiling);
        // The prompt is held at the price of a cache write, which is the higher one.
        let (output, cost) = claimed(&mut world, Some(1000));
        assert_eq!((output, cost), (1000, NanoUsd(2_012_500_000)), "at {depth}");
        assert_eq!(claimed(&mut world, None), (256, NanoUsd(524_500_000)), "nothing limits it");
    }
    let mut world = World::only("p/s", 0, &ceiling);
    let rates = Rates { cache_write: NanoUsd(0), ..RATES };
    let dear = ModelCall { rates, input: Tokens(10), max_output: Some(Tokens(1)), ..plain() };
    let reserved = world.start("p/s", &Call::Model(dear), 0).reserved();
    assert_eq!(reserved.cost, NanoUsd(12_000_000), "where writing costs less, reading counts");
}

#[test]
fn ceiling_without_a_maximum_may_reserve_all_that_is_left() {
    type Change = fn(&mut Policy);
    let output: Change = |p| p.tokens.output_token_limit = Some(Tokens(500));
    let total: Change = |p| p.tokens.total_token_limit = Some(Tokens(500));
    let money: Change = |p| p.budget.max_cost_usd = dollars(100);
    let none: Change = |_| ();
    // Left for the first call, after a settled one of 20 and 40, and beside one of 10 and 60.
    for (project, session, fresh, settled, beside) in [
        (none, output, 500, 460, 440),
        (output, none, 500, 460, 440),
        (none, total, 490, 430, 420),
        (total, output, 490, 430, 420),
        (none, money, 493, 443, 427),
        (money, output, 493, 443, 427),
    ] {
        let start = || {
            let mut session = policy(session);
            session.budget.reservation = Reservation::Ceiling;
            session.budget.ceiling_share = 1.0;
            World::default().with("p", policy(project)).with("s", session)
        };
        assert_eq!(claimed(&mut start(), None).0, fresh);

        let mut world = start();
        let call = model(20, Some(40));
        let ticket = world.start("p/s", &call, 0);
        world.settle("p/s", &call, ticket, &used(20, 40));
        assert_eq!(claimed(&mut world, None).0, settled);

        let mut world = start();
        world.start("p/s", &model(10, Some(60)), 0);
        assert_eq!(claimed(&mut world, None).0, beside);
    }
}

#[test]
fn ceiling_takes_the_smallest_of_the_limits() {
    for (output, total, money, expected) in
        [(300, 500, 100, 300), (500, 300, 100, 290), (500, 500, 51, 248)]
    {
        let policy = policy(|p| {
            p.budget.reservation = Reservation::Ceiling;
            p.budget.ceiling_share = 1.0;
            p.tokens.output_token_limit = Some(Tokens(output));
            p.tokens.total_token_limit = Some(Tokens(total));
            p.budget.max_cost_usd = dollars(money);
        });
        assert_eq!(claimed(&mut World::only("p/s", 1, &policy), None).0, expected);
    }
}

#[test]
fn ceiling_asks_for_a_token_where_none_is_left() {
    let all = policy(|p| {
        p.budget.reservation = Reservation::Ceiling;
        p.budget.ceiling_share = 1.0;
        p.tokens.output_token_limit = Some(Tokens(500));
    });
    let mut world = World::only("p/s", 1, &all);
    assert_eq!(claimed(&mut world, None).0, 500);
    let refused = world.admit("p/s", &model(10, None), 3000);
    assert_eq!((refused.verdict, refused.trips.len()), (Verdict::Block, 1));
    let trip = &refused.trips[0];
    assert_eq!(trip.measured, Measure::Tokens(Tokens(501)));
    assert_eq!(
        trip.explain(),
        "blocked: the session s would, with calls in flight, go over its output limit of 500 tokens (at 501 \
         tokens, after 3 s)"
    );
}

#[test]
fn a_model_that_is_free_costs_no_more_than_it_says() {
    let limited = policy(|p| {
        p.budget.reservation = Reservation::Ceiling;
        p.budget.ceiling_share = 1.0;
        p.budget.max_cost_usd = dollars(100);
    });
    let mut world = World::only("p/s", 1, &limited);
    let free = Call::Model(ModelCall { model: "local".into(), ..ModelCall::default() });
    let reserved = world.start("p/s", &free, 0).reserved();
    assert_eq!(reserved.cost, NanoUsd(0));
    assert_eq!(reserved.output, Tokens(1_000_000_000_000_000));
}

#[test]
fn an_answer_that_outgrows_its_reservation_takes_more() {
    let mut world = World::only("p/s", 1, &Policy::none());
    let call = model(10, None);
    let mut ticket = world.start("p/s", &call, 0);
    assert_eq!(ticket.reserved().output, Tokens(256));
    for (so_far, output, cost) in [(0, 256, 522), (256, 256, 522), (257, 257, 524), (300, 300, 610)]
    {
        assert_eq!(world.stream("p/s", &call, &mut ticket, so_far).verdict, Verdict::Allow);
        let expected =
            Reserved { input: Tokens(10), output: Tokens(output), cost: NanoUsd(cost * 1_000_000) };
        assert_eq!(ticket.reserved(), expected, "after {so_far}");
        for state in world.states() {
            assert_eq!(state.ledger.reserved, expected, "after {so_far}");
        }
    }
    world.settle("p/s", &call, ticket, &used(10, 300));
    for state in world.states() {
        assert_eq!(state.ledger.reserved, Reserved::default());
        assert_eq!(state.ledger.spent.cost, cents(61));
    }
}

#[test]
fn a_tools_output_costs_nothing_by_the_token() {
    let mut world = World::only("s", 0, &Policy::none());
    let mut ticket = world.start("s", &tool("ls"), 0);
    world.stream("s", &tool("ls"), &mut ticket, 5);
    let expected = Reserved { output: Tokens(5), ..Reserved::default() };
    assert_eq!(ticket.reserved(), expected);
}

#[test]
fn under_ceiling_an_answer_may_not_outgrow_its_request() {
    for (action, verdict) in [
        (Action::Warn, Verdict::Warn),
        (Action::Block, Verdict::Block),
        (Action::Terminate, Verdict::Block),
    ] {
        let strict = policy(|p| {
            p.budget.reservation = Reservation::Ceiling;
            p.budget.action = action;
        });
        let mut world = World::only("p/s", 0, &strict);
        let call = model(10, Some(100));
        let mut ticket = world.start("p/s", &call, 0);
        assert_eq!(world.stream("p/s", &call, &mut ticket, 100).verdict, Verdict::Allow);
        let cut = world.stream("p/s", &call, &mut ticket, 103);
        assert_eq!((cut.verdict, cut.trips.len()), (verdict, 1));
        let trip = &cut.trips[0];
        assert_eq!((trip.guard, trip.reason.as_str()), (GuardId::Budget, "reservation_exceeded"));
        assert_eq!(trip.measured, Measure::Tokens(Tokens(103)));
        assert_eq!(trip.limit, Measure::Tokens(Tokens(100)));
        assert_eq!((trip.context.depth, trip.context.who.as_str()), (0, "p"));
        assert_eq!(trip.because, "the answer went over the 100 tokens that were set aside for it");
        assert_eq!(world.killed(), Vec::<&str>::new(), "a provider's long answer ends nothing");
    }
}

/// Found by reading: with nothing that limits an answer, a guess of its length cut it off.
#[test]
fn ceiling_with_nothing_that_limits_the_answer_cuts_nothing() {
    let strict = policy(|p| {
        p.budget.reservation = Reservation::Ceiling;
        p.tokens.input_token_limit = Some(Tokens(1_000_000));
    });
    let mut world = World::only("p/s", 1, &strict);
    let call = model(10, None);
    let mut ticket = world.start("p/s", &call, 0);
    assert_eq!((ticket.reserved().output, ticket.ceiling), (Tokens(256), None));
    for so_far in [257, 100_000] {
        let decision = world.stream("p/s", &call, &mut ticket, so_far);
        assert_eq!((decision.verdict, decision.trips.len()), (Verdict::Allow, 0));
        assert_eq!(ticket.reserved().output, Tokens(so_far));
    }
}

/// Found by reading: a prompt that went into the provider's cache cost more than was set aside.
#[test]
fn ceiling_is_not_passed_by_cache_writes() {
    // 80 × 0.125 ¢ + 10 × 0.2 ¢
    for (nano, admitted) in [(120_000_000, true), (119_999_999, false)] {
        let strict = policy(|p| {
            p.budget.reservation = Reservation::Ceiling;
            p.budget.max_cost_usd = Some(Dollars(NanoUsd(nano)));
        });
        let mut world = World::only("p/s", 1, &strict);
        let call = model(80, Some(10));
        let ticket = world.admit("p/s", &call, 0).ticket;
        assert_eq!(ticket.is_some(), admitted, "of {nano}");
        let Some(ticket) = ticket else { continue };
        let usage = Usage { cache_write: Tokens(80), output: Tokens(10), ..Usage::default() };
        let ended = world.settle("p/s", &call, ticket, &Outcome { usage, ..Outcome::default() });
        assert_eq!(ended.trips[0].measured, Measure::Money(NanoUsd(nano)));
        assert!(ended.trips[0].drains, "used up, and not a cent over");
    }
}

/// Found by reading: the guess of an answer's length alone refused the first call.
#[test]
fn what_is_expected_is_no_more_than_what_is_left() {
    type Change = fn(&mut Policy);
    let cases: [(Change, u64); 6] = [
        (|p| p.tokens.output_token_limit = Some(Tokens(200)), 200),
        (|p| p.tokens.output_token_limit = Some(Tokens(256)), 256),
        (|p| p.tokens.output_token_limit = Some(Tokens(257)), 256),
        (|p| p.tokens.total_token_limit = Some(Tokens(200)), 190),
        (|p| p.budget.max_cost_usd = dollars(30), 145),
        (|p| p.tokens.input_token_limit = Some(Tokens(10)), 256),
    ];
    for (change, output) in cases {
        for depth in 0..2 {
            let mut world = World::only("p/s", depth, &policy(change));
            let ticket = world.start("p/s", &model(10, None), 0);
            assert_eq!((ticket.reserved().output, ticket.ceiling), (Tokens(output), None));
        }
    }
    // One token is the least that an answer takes: where not even that is left, it is refused.
    let small = policy(|p| p.tokens.output_token_limit = Some(Tokens(200)));
    let mut world = World::only("p/s", 1, &small);
    let call = model(10, None);
    world.start("p/s", &call, 0);
    let beside = world.admit("p/s", &call, 0);
    assert_eq!((beside.verdict, beside.trips[0].measured), (Verdict::Block, tokens(201)));
    let mut world = World::only("p/s", 1, &Policy::none());
    assert_eq!(claimed(&mut world, Some(0)), (1, NanoUsd(12_000_000)));
}

/// Found by reading: each piece of the answer moved the limit that it had gone over.
#[test]
fn the_limit_of_a_reservation_does_not_move() {
    let strict = policy(|p| {
        p.budget.reservation = Reservation::Ceiling;
        p.budget.action = Action::Warn;
    });
    let mut world = World::only("p/s", 1, &strict);
    let call = model(10, Some(100));
    let mut ticket = world.start("p/s", &call, 0);
    for so_far in [110, 120, 120] {
        let trip = world.stream("p/s", &call, &mut ticket, so_far).trips.remove(0);
        assert_eq!((trip.measured, trip.limit), (tokens(so_far), tokens(100)));
    }
}

/// Found by reading: what a block means for a call that already runs was not said.
#[test]
fn a_block_in_the_stream_cuts_this_call_and_ends_nothing() {
    type Change = fn(&mut Policy);
    let cases: [(&str, Change); 4] = [
        ("output_exceeded", |p| {
            p.tokens.output_token_limit = Some(Tokens(300));
            p.tokens.action = Action::Block;
        }),
        ("budget_exceeded", |p| {
            p.budget.max_cost_usd = dollars(61);
            p.budget.action = Action::Block;
        }),
        ("token_velocity_exceeded", |p| {
            p.velocity.max_tokens_per_minute = Some(Tokens(310));
        }),
        ("cost_velocity_exceeded", |p| p.velocity.max_usd_per_minute = dollars(61)),
    ];
    for (reason, change) in cases {
        let mut world = World::only("p/s", 1, &policy(change));
        let call = model(10, None);
        let mut ticket = world.start("p/s", &call, 0);
        assert!(world.stream("p/s", &call, &mut ticket, 300).allowed(), "{reason}");
        let cut = world.stream("p/s", &call, &mut ticket, 301);
        assert_eq!((cut.verdict, cut.allowed()), (Verdict::Block, false), "{reason}");
        let told: Vec<_> = cut.trips.iter().map(|trip| trip.reason.as_str()).collect();
        assert_eq!(told, [reason]);
        assert!(world.killed().is_empty(), "{reason}");
    }
}

fn tokens(n: u64) -> Measure {
    Measure::Tokens(Tokens(n))
}

fn plain() -> ModelCall {
    ModelCall { model: "gpt".into(), rates: RATES, ..ModelCall::default() }
}

#[test]
fn a_trip_counts_the_answer_that_tripped() {
    let mut policy = Policy::none();
    policy.tokens.input_token_limit = Some(Tokens(500));
    policy.tokens.output_token_limit = Some(Tokens(100));
    for (counted, reason, input) in [
        (None, "output_exceeded", 10),
        (Some(900), "input_and_output_exceeded", 900),
        (Some(7), "output_exceeded", 7),
    ] {
        let mut world = World::only("p/s", 1, &policy);
        let call = model(10, Some(100));
        let mut ticket = world.start("p/s", &call, 0);
        if let Some(counted) = counted {
            prompt_counted(&mut world.chain("p/s"), &call, &mut ticket, Tokens(counted));
        }
        let cut = world.stream("p/s", &call, &mut ticket, 101);
        let trip = cut.decisive().unwrap();
        assert_eq!((trip.reason.as_str(), trip.verdict), (reason, Verdict::Kill));
        let at = &trip.context;
        assert_eq!((at.input, at.output), (Tokens(input), Tokens(101)));
        assert_eq!((at.accumulated_input, at.accumulated_output), (at.input, at.output));
        // Settling it gives everything back that was set aside.
        let cancelled = Outcome { status: Status::Cancelled, ..Outcome::default() };
        world.settle("p/s", &call, ticket, &cancelled);
        assert_eq!(world.state("s").ledger.reserved, Reserved::default());
    }
}
