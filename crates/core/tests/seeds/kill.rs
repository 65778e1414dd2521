//! Seed B: session.kill(), strikes and log-only.

use deadstop_core::*;

use crate::support::*;

#[test]
fn b1_after_a_kill_every_call_is_refused_and_the_state_frozen() {
    let mut world = World::of(Preset::Balanced.policies());
    world.state("s1").kill("user", "stop deleting my mail", at(1));
    let frozen = world.state("s1").clone();
    for n in 2..20 {
        for call in [tool("ls", ""), model(10, None)] {
            let refused = world.admit("acme/coder/s1", &call, at(n));
            assert_eq!((refused.verdict, refused.ticket), (Verdict::Kill, None));
            assert_eq!(reasons(&refused.trips), ["session_killed"]);
        }
    }
    assert_eq!(world.state("s1"), &frozen);
    assert_eq!(world.state("s1").clear(), Err(Final));
}

#[test]
fn b4_five_blocks_in_a_row_kill_the_session() {
    let mut world = World::of(policies(r#"{ "access": { "deny": ["rm"] } }"#));
    let path = "acme/coder/s1";
    let fine = result(Status::Ok, "fine");
    let denied = tool("rm", "x");
    for n in 0..4 {
        let refused = world.admit(path, &denied, at(n));
        assert_eq!(
            (refused.verdict, reasons(&refused.trips)),
            (Verdict::Block, vec!["tool_denied"])
        );
    }
    assert_eq!(world.run(path, &tool("ls", ""), &fine, at(5)), [], "and it starts again");
    for n in 0..4 {
        assert_eq!(world.admit(path, &denied, at(n)).verdict, Verdict::Block);
    }
    let last = world.admit(path, &denied, at(10));
    assert_eq!(reasons(&last.trips), ["consecutive_blocks", "tool_denied"]);
    assert_eq!(
        told(&last.trips[0]),
        (
            "consecutive_blocks".into(),
            Verdict::Kill,
            Measure::Count(5),
            Measure::Count(5),
            vec![],
            "stopped: 5 calls in a row were blocked (limit 5)".into()
        )
    );
    assert_eq!(last.trips[0].ends, Ends::Session);
    assert_eq!(reasons(&world.admit(path, &tool("ls", ""), at(11)).trips), ["session_killed"]);
    assert!(world.state("coder").killed().is_none());
}

#[test]
fn b4_three_faults_in_a_row_kill_the_session() {
    let call = tool("fetch", "");
    let check = |statuses: &[Status], killed_at: Option<usize>| {
        let mut world = World::of(Preset::Balanced.policies());
        let found = statuses.iter().position(|status| {
            let outcome = Outcome { status: *status, ..Outcome::default() };
            let trips = world.run("acme/coder/s1", &call, &outcome, at(1));
            if let [trip] = &trips[..] {
                assert_eq!(trip.reason, "consecutive_errors");
                assert_eq!(
                    trip.explain(),
                    "stopped: 3 tool calls in a row were not answered (limit 3)"
                );
                assert_eq!((trip.measured, trip.limit), (Measure::Count(3), Measure::Count(3)));
            }
            !trips.is_empty()
        });
        assert_eq!(found, killed_at, "{statuses:?}");
        assert_eq!(world.state("s1").killed().is_some(), killed_at.is_some());
    };
    use Status::{Cancelled, Error, Fault, Ok};
    check(&[Fault, Fault], None);
    check(&[Fault, Fault, Fault], Some(2));
    check(&[Fault, Fault, Ok, Fault, Fault], None);
    check(&[Fault, Fault, Error, Fault, Fault], None);
    check(&[Fault, Fault, Cancelled, Fault], Some(3));
    check(&[Fault, Fault, Cancelled], None);
    check(&[Error; 4], None);
}

/// One session may run against a wall; that is not the fault of the agent's others.
#[test]
fn b4_strikes_are_counted_in_sessions() {
    let mut policy = Policy::none();
    policy.access.deny = vec![Pattern::new("rm")];
    policy.strikes = StrikeSettings {
        enabled: true,
        consecutive_blocks: 1,
        consecutive_errors: 1,
        provider_errors: false,
        action: Action::Warn,
    };
    let fault = Outcome { status: Status::Fault, ..Outcome::default() };
    let cut = Outcome { status: Status::Cancelled, ..Outcome::default() };
    for (kind, counts) in [
        (ScopeKind::Project, false),
        (ScopeKind::Agent, false),
        (ScopeKind::Session, true),
        (ScopeKind::Nested, false),
    ] {
        for enabled in [true, false] {
            policy.strikes.enabled = enabled;
            let strike = |reason| if counts && enabled { vec![reason] } else { vec![] };
            let mut world = World::default().with(kind, "x", policy.clone());
            let refused = world.admit("x", &tool("rm", ""), at(0));
            let expected = [vec!["tool_denied"], strike("consecutive_blocks")].concat();
            assert_eq!(reasons(&refused.trips), expected, "{kind:?}");
            let trips = world.run("x", &tool("ls", ""), &fault, at(1));
            assert_eq!(reasons(&trips), strike("consecutive_errors"), "{kind:?}");
            assert_eq!(world.run("x", &tool("ls", ""), &cut, at(2)), [], "that was no fault");
        }
    }
}

#[test]
fn b5_max_cost_per_session_kills() {
    let mut world = World::of(policies(
        r#"{ "session_limits": { "max_cost_per_session": 0.5 },
             "budget": { "tool_prices": { "buy": 0.25 } } }"#,
    ));
    let path = "acme/coder/s1";
    assert_eq!(world.run(path, &tool("buy", "a"), &result(Status::Ok, "a"), at(0)), []);
    let trips = world.run(path, &tool("buy", "b"), &result(Status::Ok, "b"), at(1));
    assert_eq!(reasons(&trips), ["budget_exceeded"]);
    assert_eq!(
        trips[0].explain(),
        "stopped: the session s1 has spent $0.50 of its budget of $0.50"
    );
    assert_eq!(
        reasons(&world.admit(path, &tool("ls", ""), at(2)).trips),
        ["session_killed_budget"]
    );
}

#[test]
fn b6_in_log_only_nothing_is_stopped() {
    let mut world = World::of(policies(r#"{ "preset": "strict", "mode": "log-only" }"#));
    let mut seen = Vec::new();
    for n in 0..6 {
        let call = delete("delete_asset", "asset_id=fact_sales");
        let trips = world.run("acme/coder/s1", &call, &result(Status::Ok, "still there"), at(n));
        assert!(trips.iter().all(|trip| trip.verdict == Verdict::Warn));
        seen.extend(trips.into_iter().map(|trip| trip.reason));
    }
    assert_eq!(world.state("s1").calls(), 6);
    assert!(seen.contains(&"destructive_target".into()) && seen.contains(&"repetition".into()));
}
