//! Seeds C to E: limits to the token and to the cent, and each in its own words.

use deadstop_core::*;

use crate::support::*;

fn money(cents: u64) -> Measure {
    Measure::Money(NanoUsd(cents * 10_000_000))
}

fn tokens(n: u64) -> Measure {
    Measure::Tokens(Tokens(n))
}

fn budget(cents: u64, action: Action) -> Policy {
    let mut policy = Policy::none();
    policy.budget.max_cost_usd = Some(Dollars(NanoUsd(cents * 10_000_000)));
    policy.budget.action = action;
    policy
}

/// The one trip of an admission, as it is told; nothing when it passed without a word.
fn asked(world: &mut World, call: &Call) -> Option<Told> {
    let admission = world.admit("s1", call, at(3));
    assert_eq!(admission.ticket.is_some(), admission.verdict <= Verdict::Warn);
    assert!(admission.trips.len() <= 1);
    admission.trips.first().map(told)
}

#[test]
fn e4_a_prompt_that_no_longer_fits_ends_the_session() {
    let spent = || {
        let mut world = World::session(budget(50, Action::Terminate));
        assert_eq!(world.run("s1", &model(300, Some(1)), &used(300, 0), at(1)), []);
        world
    };
    // Of 50 cents 20 are left: 198 tokens fit with one of an answer, 200 without, 201 do not.
    assert_eq!(asked(&mut spent(), &model(198, Some(1))), None);
    let (reason, verdict, ..) = asked(&mut spent(), &model(200, Some(1))).unwrap();
    assert_eq!((reason.as_str(), verdict), ("budget_reserved", Verdict::Block));
    let mut world = spent();
    let expected = (
        "budget_exceeded".into(),
        Verdict::Kill,
        Measure::Money(NanoUsd(501_000_000)),
        money(50),
        vec![],
        "stopped: gpt needs $0.20 and $0.20 of its $0.50 is left".into(),
    );
    assert_eq!(asked(&mut world, &model(201, Some(1))), Some(expected));
    assert!(world.state("s1").killed().unwrap().drains);
}

#[test]
fn e4_what_only_fits_beside_nothing_else_is_blocked() {
    let mut world = World::session(budget(50, Action::Terminate));
    let first = world.admit("s1", &model(100, Some(100)), at(1)).ticket.unwrap();
    let expected = (
        "budget_reserved".into(),
        Verdict::Block,
        Measure::Money(NanoUsd(501_000_000)),
        money(50),
        vec![],
        "blocked: gpt may cost $0.20, and of the budget of $0.50 $0 is spent and $0.30 reserved"
            .into(),
    );
    assert_eq!(asked(&mut world, &model(199, Some(100))), Some(expected));
    assert_eq!(asked(&mut world, &model(198, Some(100))), None, "to the cent");
    // When the first took less than it had reserved, there is room again.
    world.settle("s1", &model(100, Some(100)), first, &used(100, 0), at(2));
    assert_eq!(asked(&mut world, &model(1, Some(50))), None);
    assert!(world.state("s1").killed().is_none());
}

#[test]
fn e4_a_budget_that_is_gone_stops_what_is_free() {
    for (action, verdict, done) in
        [(Action::Warn, Verdict::Warn, "warned"), (Action::Block, Verdict::Block, "blocked")]
    {
        let mut world = World::session(budget(50, action));
        let trips = world.run("s1", &model(100, Some(100)), &used(500, 0), at(1));
        assert_eq!((reasons(&trips), trips[0].verdict), (vec!["budget_exceeded"], verdict));
        assert!(trips[0].drains, "to the cent, nothing was overspent");
        let expected = (
            "budget_exceeded".into(),
            verdict,
            money(50),
            money(50),
            vec![],
            format!("{done}: the session s1 has spent its budget of $0.50"),
        );
        assert_eq!(asked(&mut world, &tool("ls", "")), Some(expected));
    }
    let mut world = World::session(budget(50, Action::Terminate));
    let trips = world.run("s1", &model(100, Some(100)), &used(501, 0), at(1));
    assert_eq!(
        trips[0].explain(),
        "stopped: the session s1 has spent $0.50 of its budget of $0.50"
    );
    assert!(trips[0].drains, "what still runs is paid for, and delivered");
}

#[test]
fn e4_a_warning_does_not_block() {
    let mut world = World::session(budget(50, Action::Warn));
    assert!(world.admit("s1", &model(100, Some(200)), at(1)).ticket.is_some());
    let told = asked(&mut world, &model(1, Some(1))).unwrap();
    assert_eq!((told.0.as_str(), told.1), ("budget_reserved", Verdict::Warn));
}

#[test]
fn e4_an_answer_is_cut_when_it_goes_over_the_budget() {
    let mut world = World::session(budget(50, Action::Terminate));
    let call = model(100, Some(200));
    let mut ticket = world.admit("s1", &call, at(1)).ticket.unwrap();
    let mut stream = |output| {
        let so_far = Progress { output: Tokens(output), text: "" };
        world.progress("s1", &call, &mut ticket, so_far, at(2)).trips
    };
    assert_eq!(stream(200), []);
    let expected = (
        "budget_exceeded".into(),
        Verdict::Kill,
        money(52),
        money(50),
        vec![],
        "stopped: the answer took the session s1 to $0.52, over its budget of $0.50".into(),
    );
    assert_eq!(told(&stream(210)[0]), expected);
}

#[test]
fn e4_a_soft_alert_needs_no_hard_limit() {
    let mut policy = Policy::none();
    policy.budget.soft_alert_threshold_usd = Some(Dollars(NanoUsd(250_000_000)));
    let mut world = World::session(policy);
    let mut alerts = Vec::new();
    for n in 1..=9 {
        let trips = world.run("s1", &model(100, Some(0)), &used(100, 0), at(n));
        alerts.extend(trips.iter().map(|trip| (n, told(trip))));
    }
    let expected = (
        "budget_warning".into(),
        Verdict::Warn,
        money(30),
        money(25),
        vec![],
        "warned: the session s1 has spent $0.30 (alert at $0.25)".into(),
    );
    assert_eq!(alerts, [(3, expected)], "once, when it is crossed");
}

fn token_limits(input: Option<u64>, output: Option<u64>, total: Option<u64>) -> Policy {
    let tokens = TokenSettings {
        input_token_limit: input.map(Tokens),
        output_token_limit: output.map(Tokens),
        total_token_limit: total.map(Tokens),
        action: Action::Terminate,
    };
    Policy { tokens, ..Policy::none() }
}

/// What a session that has read 60 and written 40 tokens says to a request.
#[test]
fn c1_before_a_call() {
    type Expected = Option<(&'static str, Verdict, u64, u64)>;
    fn check(mut policy: Policy, input: u64, output: u64, expected: Expected) {
        policy.budget.reservation = Reservation::Ceiling;
        let mut world = World::session(policy);
        assert_eq!(world.run("s1", &model(60, Some(40)), &used(60, 40), at(1)), []);
        let told = asked(&mut world, &model(input, Some(output)))
            .map(|(reason, verdict, measured, limit, ..)| (reason, verdict, measured, limit));
        let expected =
            expected.map(|(reason, v, m, l)| (reason.to_owned(), v, tokens(m), tokens(l)));
        assert_eq!(told, expected, "{input} and {output}");
    }
    let (kill, block) = (Verdict::Kill, Verdict::Block);
    let input = || token_limits(Some(100), None, None);
    check(input(), 40, 1000, None);
    check(input(), 41, 1, Some(("input_exceeded", kill, 101, 100)));
    let output = || token_limits(None, Some(100), None);
    check(output(), 1000, 60, None);
    check(output(), 1, 61, Some(("output_exceeded", block, 101, 100)));
    check(token_limits(None, Some(40), None), 1, 1, Some(("output_exceeded", kill, 41, 40)));
    check(token_limits(None, Some(41), None), 1, 1, None);
    let total = || token_limits(None, None, Some(200));
    check(total(), 50, 50, None);
    check(total(), 50, 51, Some(("total_exceeded", block, 201, 200)));
    check(total(), 99, 1, None);
    check(total(), 100, 1, Some(("total_exceeded", kill, 201, 200)));
    let both = || token_limits(Some(100), Some(40), None);
    check(both(), 41, 1, Some(("input_and_output_exceeded", kill, 142, 140)));
    let all = || token_limits(Some(100), Some(100), Some(150));
    check(all(), 41, 61, Some(("input_exceeded", kill, 101, 100)));
    check(all(), 30, 30, Some(("total_exceeded", block, 160, 150)));
}

#[test]
fn c1_warnings_do_not_block_and_tools_have_no_tokens() {
    let mut policy = token_limits(Some(10), Some(10), Some(10));
    policy.tokens.action = Action::Warn;
    let mut world = World::session(policy);
    assert_eq!(asked(&mut world, &model(1, Some(20))), None);
    assert_eq!(asked(&mut world, &model(1, Some(20))).unwrap().1, Verdict::Warn);
    assert_eq!(asked(&mut world, &tool("ls", "")), None);
    let mut world = World::session(token_limits(Some(1), None, None));
    assert_eq!(asked(&mut world, &tool("ls", "")), None);
}

#[test]
fn c1_cache_reads_are_not_counted_and_cache_writes_are() {
    for (cache_read, cache_write, trips) in [(1_000_000, 40, 0), (0, 41, 1)] {
        let mut world = World::session(token_limits(Some(100), None, None));
        let usage = Usage {
            input: Tokens(60),
            cache_read: Tokens(cache_read),
            cache_write: Tokens(cache_write),
            ..Usage::default()
        };
        let outcome = Outcome { usage, ..Outcome::default() };
        assert_eq!(world.run("s1", &model(1, Some(1)), &outcome, at(1)).len(), trips);
    }
}

#[test]
fn c1_in_the_stream() {
    for (policy, expected) in [
        (token_limits(None, Some(100), None), Some(("output", 101, 100))),
        (token_limits(None, None, Some(111)), None),
        (token_limits(None, None, Some(110)), Some(("total", 111, 110))),
    ] {
        let mut world = World::session(policy);
        let call = model(10, Some(100));
        let mut ticket = world.admit("s1", &call, at(0)).ticket.unwrap();
        let mut stream = |output| {
            let so_far = Progress { output: Tokens(output), text: "" };
            world.progress("s1", &call, &mut ticket, so_far, at(2)).trips
        };
        assert_eq!(stream(100), []);
        let told: Vec<_> = stream(101).iter().map(told).collect();
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(part, measured, limit)| {
                let because = format!(
                    "stopped: the session s1 went, while answering, over its {part} limit of {limit} tokens \
                     (at {measured} tokens, after 2 s)"
                );
                let reason = format!("{part}_exceeded");
                (reason, Verdict::Kill, tokens(measured), tokens(limit), vec![], because)
            })
            .collect();
        assert_eq!(told, expected);
    }
}

#[test]
fn e3_steps_and_model_calls_are_counted_apart() {
    let mut policy = Policy::none();
    policy.steps.max_steps = Some(2);
    policy.steps.max_model_calls = Some(1);
    policy.steps.action = Action::Block;
    let mut world = World::session(policy);
    let expected = |reason: &str, limit: u64, what: &str| {
        Some((
            reason.to_owned(),
            Verdict::Block,
            Measure::Count(limit),
            Measure::Count(limit),
            vec![],
            format!("blocked: all {limit} {what} of the session s1 are used up"),
        ))
    };
    assert_eq!(asked(&mut world, &model(1, None)), None);
    assert_eq!(asked(&mut world, &model(1, None)), expected("max_model_calls", 1, "model calls"));
    assert_eq!(asked(&mut world, &tool("ls", "")), None);
    assert_eq!(asked(&mut world, &tool("ls", "")), None);
    assert_eq!(asked(&mut world, &tool("ls", "")), expected("max_steps", 2, "tool calls"));
}

fn destructive(change: impl FnOnce(&mut DestructiveSettings)) -> World {
    let mut destructive = DestructiveSettings { enabled: true, ..DestructiveSettings::default() };
    change(&mut destructive);
    World::session(Policy { destructive, ..Policy::none() })
}

/// Targets of one call each, with the second in which it is made: which is the first to trip?
fn first_stop(mut world: World, calls: &[(&[&str], u64)]) -> Option<(usize, String, Vec<u64>)> {
    for (n, (targets, now)) in calls.iter().enumerate() {
        let destroy = |t: &&str| Harm::destroys("rm", *t);
        let harms = targets.iter().map(destroy).collect();
        let call = Call::Tool(ToolCall { name: "rm".into(), harms, ..ToolCall::default() });
        if let Some(trip) = world.admit("s1", &call, Time(*now)).trips.pop() {
            return Some((n + 1, trip.because, trip.evidence));
        }
    }
    None
}

/// The same nine times, at once.
fn nine<'a>(targets: &'a [&'a str]) -> [(&'a [&'a str], u64); 9] {
    [(targets, 0); 9]
}

#[test]
fn d1_the_window_slides() {
    let stop = |last| first_stop(destructive(|_| ()), &[(&["a"], 0), (&["a"], 1), (&["a"], last)]);
    let expected = |took: &str| format!("rm on a 3 times in {took} (limit 3 in 60 s)");
    assert_eq!(stop(59_999), Some((3, expected("60 s"), vec![1, 2])));
    // Found from outside: the audit said 11 s for what took 11.2 s.
    for (last, took) in [(11_200, "12 s"), (12_000, "12 s"), (1_000, "1 s"), (850, "850 ms")] {
        assert_eq!(stop(last), Some((3, expected(took), vec![1, 2])), "{last}");
    }
    assert_eq!(stop(60_000), None);
}

#[test]
fn d1_one_call_counts_once_whatever_it_names() {
    let many: &[&str] = &["a", "b", "c", "d"];
    let stop = first_stop(destructive(|_| ()), &[(many, 0), (&["e"], 0), (&["f"], 0)]);
    let expected = "destructive calls, the last rm on f, 3 times in 0 s (limit 3 in 60 s)";
    assert_eq!(stop, Some((3, expected.into(), vec![1, 2])));
    // Each of its targets is remembered, and one that is named twice is one.
    let world = || destructive(|d| d.max_deletes = 100);
    let stop = first_stop(world(), &[(many, 0), (&["x", "d"], 0), (&["y", "d"], 0)]);
    let expected = "rm on d 3 times in 0 s (limit 3 in 60 s)";
    assert_eq!(stop, Some((3, expected.into(), vec![1, 2])));
    assert_eq!(first_stop(world(), &[(&["a", "a"], 0), (&["a", "a"], 0)]), None);
}

#[test]
fn d1_what_counts() {
    assert_eq!(first_stop(destructive(|_| ()), &nine(&[])), None);
    assert_eq!(first_stop(destructive(|d| d.enabled = false), &nine(&["a"])), None);
    let exempt = || destructive(|d| d.exempt_targets = vec![Pattern::new("/tmp/*")]);
    assert_eq!(first_stop(exempt(), &nine(&["/tmp/a"])), None);
    assert_eq!(first_stop(exempt(), &nine(&["/tmp/a", "/home"])).unwrap().0, 3);
    let scratch = || destructive(|d| d.exempt_targets = vec![Pattern::new("scratch_*")]);
    for target in ["scratch_1", "asset_id=scratch_1", "table=scratch_1"] {
        assert_eq!(first_stop(scratch(), &nine(&[target])), None, "{target}");
    }
    assert_eq!(first_stop(scratch(), &nine(&["table=facts"])).unwrap().0, 3);
    // A call that does not say what it destroys counts for volume only.
    let stop = first_stop(destructive(|_| ()), &nine(&[""]));
    let expected = "destructive calls, the last rm, 3 times in 0 s (limit 3 in 60 s)";
    assert_eq!(stop, Some((3, expected.into(), vec![1, 2])));
    let unknown = destructive(|d| (d.max_deletes, d.max_same_target) = (5, 2));
    assert_eq!(first_stop(unknown, &nine(&[""])).unwrap().0, 5);
    // Each limit by itself, down to the first call.
    let limits =
        |volume, same| destructive(|d| (d.max_deletes, d.max_same_target) = (volume, same));
    assert_eq!(
        first_stop(limits(1, 9), &[(&["a"], 0)]).unwrap().1,
        "destructive calls, the last rm on a, once in 0 s (limit 1 in 60 s)"
    );
    assert_eq!(
        first_stop(limits(9, 2), &nine(&["a"])).unwrap().1,
        "rm on a twice in 0 s (limit 2 in 60 s)"
    );
}

#[test]
fn d1_blocked_calls_are_not_counted_and_it_recovers() {
    let mut world = destructive(|d| d.action = Action::Block);
    let verdicts: Vec<_> = [0, 1, 2, 3, 59, 60, 61]
        .map(|second| world.admit("s1", &delete("rm", "a"), at(second)).verdict)
        .into();
    use Verdict::{Allow, Block};
    assert_eq!(verdicts, [Allow, Allow, Block, Block, Block, Allow, Allow]);
}

#[test]
fn d1_memory_is_bounded() {
    let mut world = destructive(|d| d.action = Action::Warn);
    let many = ["a", "b", "c", "d"].map(|t| Harm::destroys("rm", t));
    let call =
        Call::Tool(ToolCall { name: "rm".into(), harms: many.into(), ..ToolCall::default() });
    for _ in 0..10 {
        world.admit("s1", &call, at(1));
    }
    // Twice three calls and sixteen targets are remembered: 22, of which five are of each.
    let trip = world.admit("s1", &call, at(1)).trips.pop().unwrap();
    assert_eq!((trip.measured, trip.evidence), (Measure::Count(6), vec![6, 7, 8, 9, 10]));
    let limits = |volume, same| {
        let mut world = destructive(|d| {
            (d.max_deletes, d.max_same_target) = (volume, same);
            d.action = Action::Warn;
        });
        for n in 0..60 {
            world.admit("s1", &delete("rm", &format!("{n}")), at(1));
        }
        world.admit("s1", &delete("rm", "x"), at(1)).trips.pop().unwrap().measured
    };
    assert_eq!(limits(3, 5), Measure::Count(2 * 5 + 16 + 1));
    assert_eq!(limits(7, 3), Measure::Count(2 * 7 + 16 + 1));
}

/// Found by reading: the fifth target of a call was not looked at.
#[test]
fn d1_every_target_of_a_call_counts() {
    let dummies = |n: usize, count: usize| -> Vec<String> {
        (0..count).map(|i| format!("dummy {n} {i}")).collect()
    };
    for (count, stopped_at) in [(4, Some(3)), (15, Some(3)), (16, None)] {
        let calls: Vec<Vec<String>> = (0..6)
            .map(|n| dummies(n, count).into_iter().chain(["prod.db".to_owned()]).collect())
            .collect();
        let calls: Vec<Vec<&str>> =
            calls.iter().map(|call| call.iter().map(String::as_str).collect()).collect();
        let calls: Vec<(&[&str], u64)> = calls.iter().map(|call| (call.as_slice(), 0)).collect();
        let world = destructive(|d| d.max_deletes = 100);
        let stop = first_stop(world, &calls).map(|(n, ..)| n);
        assert_eq!(stop, stopped_at, "after {count} others, sixteen of a call are remembered");
    }
}

#[test]
fn b9_access_says_why() {
    let mut policy = Policy::none();
    policy.access.allow = vec![Pattern::new("read_*"), Pattern::new("refund")];
    policy.access.rules =
        serde_json::from_str(r#"[{ "tool": "refund", "argument": "amount", "above": 100 }]"#)
            .unwrap();
    let mut world = World::session(policy);
    let refund = |amount: &str| {
        let arguments = vec![Argument { path: "amount".into(), value: amount.into() }];
        Call::Tool(ToolCall { name: "refund".into(), arguments, ..ToolCall::default() })
    };
    for (call, expected) in [
        (tool("read_file", ""), None),
        (refund("100"), None),
        (model(1, None), None),
        (
            refund("101"),
            Some(("argument_denied", "blocked: refund may not be called with this amount")),
        ),
        (
            tool("write", ""),
            Some(("tool_not_allowed", "blocked: write is not among the allowed tools")),
        ),
    ] {
        let told = asked(&mut world, &call).map(|told| (told.0, told.5));
        assert_eq!(told, expected.map(|(r, s)| (r.to_owned(), s.to_owned())), "{}", call.name());
    }
}
