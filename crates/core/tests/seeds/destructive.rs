//! Seed D: destructive loops.

use deadstop_core::*;

use crate::support::*;

const ASSET: &str = "asset_id=fact_sales";

#[test]
fn d1_d2_d3_a_delete_loop_is_stopped_at_the_third_attempt() {
    for preset in [Preset::Balanced, Preset::Strict] {
        let mut world = World::of(preset.policies());
        let path = "acme/coder/s1";
        let call = delete("delete_asset", ASSET);
        let outcome = result(Status::Ok, "asset still exists");
        assert_eq!(world.run(path, &call, &outcome, at(100)), []);
        assert_eq!(world.run(path, &call, &outcome, at(106)), []);
        let third = world.admit(path, &call, at(112));
        // The loop guard would have told the model; what is stricter comes first.
        let verdicts: Vec<_> = third.trips.iter().map(|trip| trip.verdict).collect();
        assert_eq!((third.verdict, verdicts), (Verdict::Kill, vec![Verdict::Kill, Verdict::Steer]));
        let trip = &third.trips[0];
        assert_eq!(
            told(trip),
            (
                "destructive_target".into(),
                Verdict::Kill,
                Measure::Count(3),
                Measure::Count(3),
                vec![1, 2],
                "stopped: delete_asset on asset_id=fact_sales 3 times in 12 s (limit 3 in 60 s)"
                    .into()
            )
        );
        assert_eq!(trip.guard.tag(trip.verdict), "loop_detected");
        for call in [call, tool("ls", ""), model(1, None)] {
            let later = world.admit(path, &call, at(200));
            assert_eq!((later.verdict, later.ticket), (Verdict::Kill, None));
            assert_eq!(reasons(&later.trips), ["session_killed_loop_guard"]);
        }
    }
}

#[test]
fn d1_volume_over_different_targets() {
    let mut world = World::of(Preset::Balanced.policies());
    let path = "acme/coder/s1";
    let fine = result(Status::Ok, "done");
    assert_eq!(world.run(path, &delete("delete_asset", "a"), &fine, at(0)), []);
    assert_eq!(world.run(path, &tool("ls", ""), &fine, at(1)), []);
    assert_eq!(world.run(path, &delete("drop_table", "b"), &fine, at(2)), []);
    let third = world.admit(path, &delete("truncate_table", "c"), at(5));
    assert_eq!(
        told(&third.trips[0]),
        (
            "destructive_volume".into(),
            Verdict::Kill,
            Measure::Count(3),
            Measure::Count(3),
            vec![1, 3],
            "stopped: destructive calls, the last truncate_table on c, 3 times in 5 s (limit 3 \
             in 60 s)"
                .into()
        )
    );
}

#[test]
fn d3_d5_an_operator_resets_a_killed_session() {
    let mut world = World::of(Preset::Balanced.policies());
    let path = "acme/coder/s1";
    let call = delete("delete_asset", ASSET);
    for second in [0, 6, 12] {
        world.run(path, &call, &result(Status::Ok, "asset still exists"), at(second));
    }
    assert!(world.state("s1").killed().is_some());
    assert_eq!(world.state("s1").clear(), Err(Final), "for its caller it stays dead");
    world.state("s1").reset(at(20));
    let mut fresh = ScopeState::new(ScopeKind::Session, at(20));
    fresh.turn_to(2);
    assert_eq!(world.state("s1"), &fresh, "but for how often it was decided about");
    assert!(world.admit(path, &call, at(21)).ticket.is_some());
    assert_eq!(world.state("coder").ledger().spent.steps, 3, "the agent's history is kept");
}

#[test]
fn d5_a_batch_gets_an_allowance_and_the_same_target_stays_tight() {
    let mut world = World::of(policies(r#"{ "destructive": { "max_deletes": 100 } }"#));
    let path = "acme/coder/s1";
    let fine = result(Status::Ok, "done");
    for n in 0..50 {
        let call = delete("delete_row", &format!("row={n}"));
        assert_eq!(world.run(path, &call, &fine, at(0)), [], "row {n}");
    }
    assert_eq!(world.admit(path, &delete("delete_row", "row=7"), at(1)).verdict, Verdict::Allow);
    let third = world.admit(path, &delete("delete_row", "row=7"), at(2));
    assert_eq!(third.decisive().unwrap().reason, "destructive_target");
}

/// What access refuses never reaches the loop guards.
#[test]
fn d6_access_is_checked_first() {
    let mut world = World::of(policies(
        r#"{ "access": { "deny": ["delete_*"] }, "strikes": { "enabled": false } }"#,
    ));
    let call = delete("delete_asset", ASSET);
    for n in 0..9 {
        let refused = world.admit("acme/coder/s1", &call, at(n));
        assert_eq!(
            (refused.verdict, reasons(&refused.trips)),
            (Verdict::Block, vec!["tool_denied"])
        );
    }
    assert!(world.state("s1").killed().is_none());
}

#[test]
fn d7_the_same_target_over_two_sessions_of_one_agent() {
    let set = policies(r#"{ "agent": { "destructive": { "enabled": true } } }"#);
    let second = set.session.clone();
    let mut world = World::of(set).with(ScopeKind::Session, "s2", second);
    let call = delete("delete_asset", ASSET);
    let outcome = result(Status::Ok, "asset still exists");
    for second in [0, 6] {
        assert_eq!(world.run("acme/coder/s1", &call, &outcome, at(second)), []);
    }
    let third = world.admit("acme/coder/s2", &call, at(12));
    assert_eq!((third.verdict, third.trips.len()), (Verdict::Kill, 1));
    assert_eq!((third.trips[0].context.who.as_str(), third.trips[0].context.depth), ("coder", 1));
    // It ends the session that made the call, not the agent and not the other session.
    assert!(world.state("s2").killed().is_some());
    assert!(world.state("s1").killed().is_none() && world.state("coder").killed().is_none());
}

/// `strict` has it out of the box, at the fifth attempt.
#[test]
fn d7_strict_looks_across_sessions() {
    let mut world = World::of(Preset::Strict.policies());
    for name in ["s2", "s3"] {
        world = world.with(ScopeKind::Session, name, Policy::strict());
    }
    let call = delete("delete_asset", ASSET);
    let outcome = result(Status::Ok, "asset still exists");
    for (second, path) in [(0, "s1"), (6, "s1"), (12, "s2"), (18, "s2")] {
        assert_eq!(world.run(&format!("acme/coder/{path}"), &call, &outcome, at(second)), []);
    }
    let fifth = world.admit("acme/coder/s3", &call, at(24));
    assert_eq!(reasons(&fifth.trips), ["destructive_target"]);
    assert_eq!(fifth.trips[0].evidence, [1, 2, 3, 4]);
    assert!(world.state("s3").killed().is_some() && world.state("coder").killed().is_none());
}
