//! Seed E: loops, steps, budget, time and prices.

use std::sync::Mutex;

use deadstop_core::*;

use crate::support::*;

#[test]
fn e1_ping_pong_warns_or_terminates() {
    for (action, verdict) in [("warn", Verdict::Warn), ("terminate", Verdict::Kill)] {
        let typed =
            format!(r#"{{ "loop_detection": {{ "threshold": 5, "action": "{action}" }} }}"#);
        let mut world = World::of(policies(&typed));
        let calls = [tool("read_ticket", "id=a"), tool("read_user", "id=b")];
        let mut seen = Vec::new();
        for n in 0..7 {
            let outcome = result(Status::Ok, ["open", "active"][n % 2]);
            let trips = world.run("acme/coder/s1", &calls[n % 2], &outcome, at(n as u64));
            seen.extend(trips.iter().map(|trip| (n + 1, trip.reason.clone(), trip.verdict)));
        }
        assert_eq!(seen[0], (7, "ping_pong".into(), verdict));
        assert_eq!(world.state("s1").killed().is_some(), verdict == Verdict::Kill);
    }
}

#[test]
fn e3_fifty_parallel_calls_against_max_steps_3() {
    let world = World::of(policies(r#"{ "loop_detection": { "max_steps": 3 } }"#));
    let world = Mutex::new(world);
    let verdicts = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for n in 0..50 {
            let (world, verdicts) = (&world, &verdicts);
            scope.spawn(move || {
                let call = tool("fetch", &format!("page={n}"));
                let admission = world.lock().unwrap().admit("acme/coder/s1", &call, at(1));
                verdicts.lock().unwrap().push((admission.verdict, admission.ticket.is_some()));
            });
        }
    });
    let verdicts = verdicts.into_inner().unwrap();
    let passed = verdicts.iter().filter(|v| **v == (Verdict::Allow, true)).count();
    let refused = verdicts.iter().filter(|v| **v == (Verdict::Kill, false)).count();
    assert_eq!((passed, refused), (3, 47));
    let mut world = world.into_inner().unwrap();
    assert_eq!(world.state("s1").ledger().spent.steps, 3);
    assert_eq!(world.state("acme").ledger().in_flight, 3);
    assert!(world.state("s1").killed().unwrap().drains, "the three may finish");
}

#[test]
fn e4_a_soft_alert_once_then_the_hard_limit() {
    let mut world = World::of(policies(
        r#"{ "budget": { "max_cost_usd": 0.5, "soft_alert_threshold_usd": 0.3,
                         "tool_prices": { "*": 0.1 } } }"#,
    ));
    let money = |cents: u64| Measure::Money(NanoUsd(cents * 10_000_000));
    let expected = [
        None,
        None,
        Some((
            "budget_warning",
            money(30),
            money(30),
            "warned: the session s1 has spent $0.30 (alert at $0.30)",
        )),
        None,
        Some((
            "budget_exceeded",
            money(50),
            money(50),
            "stopped: the session s1 has spent $0.50 of its budget of $0.50",
        )),
    ];
    for (n, expected) in expected.into_iter().enumerate() {
        let call = tool("buy", &format!("{n}"));
        let outcome = result(Status::Ok, ["a", "b", "c", "d", "e"][n]);
        let trips = world.run("acme/coder/s1", &call, &outcome, at(1));
        let told: Vec<_> =
            trips.iter().map(|t| (t.reason.as_str(), t.measured, t.limit, t.explain())).collect();
        let expected: Vec<_> =
            expected.into_iter().map(|(r, m, l, s)| (r, m, l, s.to_owned())).collect();
        assert_eq!(told, expected, "call {n}");
        if let [trip] = &trips[..] {
            let tag = if n == 2 { "budget_warning" } else { "budget_exceeded" };
            assert_eq!(trip.guard.tag(trip.verdict), tag);
        }
    }
}

#[test]
fn e4_wall_time() {
    let set = || policies(r#"{ "budget": { "max_wall_time_seconds": 120 } }"#);
    let mut world = World::of(set());
    let path = "acme/coder/s1";
    let call = model(1, None);
    let mut ticket = world.admit(path, &call, at(120)).ticket.unwrap();
    let so_far = Progress { output: Tokens(1), text: "" };
    let running = world.progress(path, &call, &mut ticket, so_far, at(120));
    assert_eq!(running.verdict, Verdict::Allow);
    let cut = world.progress(path, &call, &mut ticket, so_far, at(125));
    let expected = (
        "wall_time_exceeded".to_owned(),
        Verdict::Kill,
        Measure::Time(Millis(125_000)),
        Measure::Time(Millis(120_000)),
        vec![],
        "stopped: the session s1 has run for 2 min 5 s (limit 2 min)".to_owned(),
    );
    assert_eq!(told(&cut.trips[0]), expected);
    let mut world = World::of(set());
    let refused = world.admit(path, &tool("ls", ""), at(125));
    assert_eq!(told(&refused.trips[0]), expected);
    assert_eq!(refused.trips[0].guard.tag(Verdict::Kill), "budget_exceeded");
    let mut world = World::of(set());
    let first_over = world.admit(path, &tool("ls", ""), Time(120_001));
    assert_eq!(first_over.trips[0].measured, Measure::Time(Millis(120_001)));
}

#[test]
fn e5_a_model_that_nobody_knows_is_not_free() {
    let mut world = World::of(policies(r#"{ "budget": { "max_cost_usd": 0.0042 } }"#));
    let path = "acme/coder/s1";
    let unknown = |input, output| {
        let call = Call::Model(ModelCall {
            model: "my-custom-model".into(),
            rates: Rates::FALLBACK,
            input: Tokens(input),
            max_output: Some(Tokens(output)),
            ..ModelCall::default()
        });
        (call, used(input, output))
    };
    // $10 and $30 a million: 60 and 20 tokens are $0.0012.
    let (call, outcome) = unknown(60, 20);
    assert_eq!(world.run(path, &call, &outcome, at(1)), []);
    assert_eq!(world.state("s1").ledger().spent.cost, NanoUsd(1_200_000));
    let (call, outcome) = unknown(0, 100);
    let trips = world.run(path, &call, &outcome, at(2));
    assert_eq!(
        trips[0].explain(),
        "stopped: the session s1 has spent $0.0042 of its budget of $0.0042"
    );
}
