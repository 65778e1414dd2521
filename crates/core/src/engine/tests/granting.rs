//! One-time allowances for destructive batches.

use super::*;

fn rm(targets: &[&str]) -> Call {
    let deed = |target: &&str| Harm::destroys("rm", *target);
    let harms = targets.iter().map(deed).collect();
    Call::Tool(ToolCall { name: "shell".into(), harms, ..ToolCall::default() })
}

fn grant(id: u64, deletes: u32, target: Option<&str>) -> Grant {
    Grant {
        id,
        deletes,
        left: deletes,
        tool: None,
        target: target.map(Pattern::new),
        given: Time(0),
        expires: Time(50_000),
        by: "ada".into(),
        because: "the old tables".into(),
    }
}

fn world() -> World {
    let guarded = policy(|p| p.destructive.enabled = true);
    World::default().with("p", Policy::none()).with("a", Policy::none()).with("s", guarded)
}

/// What becomes of one call after the other.
fn verdicts(world: &mut World, calls: &[(&str, u64)]) -> Vec<Verdict> {
    let verdict = |(target, now): &(&str, u64)| {
        world.admit("p/a/s", &rm(&target.split(' ').collect::<Vec<_>>()), *now).verdict
    };
    calls.iter().map(verdict).collect()
}

use Verdict::{Allow, Kill};

#[test]
fn a_grant_lifts_the_limit_on_volume_wherever_it_was_given() {
    for holder in ["s", "a", "p"] {
        let mut world = world();
        world.state(holder).give(grant(1, 5, Some("tmp_*")), Time(0)).unwrap();
        for n in 1..=5 {
            let admitted = world.admit("p/a/s", &rm(&[&format!("tmp_{n}")]), n);
            assert_eq!(admitted.verdict, Allow, "{holder} {n}");
            let note = admitted.trips.first().unwrap();
            assert_eq!((note.reason.as_str(), note.verdict), ("granted", Allow));
            assert_eq!(
                note.explain(),
                format!(
                    "noticed: rm on tmp_{n} is granted by ada: the old tables ({} of 5 left)",
                    5 - n
                )
            );
            let ticket = admitted.ticket.unwrap();
            assert_eq!(ticket.granted().unwrap().0.left, 5 - n as u32);
        }
        assert_eq!(world.state(holder).grants(Time(6)).count(), 0, "it is used up");
        // From there on it is as without one.
        let after = verdicts(&mut world, &[("tmp_6", 6), ("tmp_7", 7), ("tmp_8", 8)]);
        assert_eq!(after, [Allow, Allow, Kill], "{holder}");
    }
}

#[test]
fn a_grant_is_for_what_it_says() {
    let mut world = world();
    world.state("s").give(grant(1, 10, Some("tmp_*")), Time(0)).unwrap();
    // One that destroys something else as well is not covered, nor one that takes too much.
    let calls = [("tmp_1", 1), ("tmp_2 prod", 2), ("prod_2", 3), ("tmp_3", 4), ("prod_3", 5)];
    assert_eq!(verdicts(&mut world, &calls), [Allow, Allow, Allow, Allow, Kill]);
    assert_eq!(world.state("s").grants(Time(5)).next().unwrap().left, 8);

    let mut world = self::world();
    let by_tool = Grant { tool: Some(Pattern::new("psql")), ..grant(1, 10, None) };
    world.state("s").give(by_tool, Time(0)).unwrap();
    assert_eq!(verdicts(&mut world, &[("a", 1), ("b", 2), ("c", 3)]), [Allow, Allow, Kill]);

    let mut world = self::world();
    world.state("s").give(grant(1, 2, None), Time(0)).unwrap();
    assert_eq!(verdicts(&mut world, &[("a b c", 1), ("d e", 2), ("f", 3)]), [Allow, Allow, Allow]);
    assert_eq!(world.state("s").grants(Time(3)).count(), 0, "two were left, and two were taken");
}

/// Found from outside: the README's own example did not match an argument.
#[test]
fn a_target_is_matched_by_its_value_too() {
    for named in ["asset_id=tmp_", "table=tmp_", "tmp_"] {
        let mut world = world();
        world.state("a").give(grant(1, 50, Some("tmp_*")), Time(0)).unwrap();
        for n in 1..=50 {
            let verdict = world.admit("p/a/s", &rm(&[&format!("{named}{n}")]), n).verdict;
            assert_eq!(verdict, Allow, "{named}{n}");
        }
    }
    let mut world = world();
    world.state("a").give(grant(1, 50, Some("tmp_*")), Time(0)).unwrap();
    let others = [("asset_id=prod_tmp_0", 1), ("/a b=tmp_1", 2), ("table=x", 3)];
    assert_eq!(verdicts(&mut world, &others), [Allow, Allow, Kill]);
    // One that names the very target lets it go again and again, by its value, too.
    let mut world = self::world();
    world.state("a").give(grant(1, 50, Some("fact_sales")), Time(0)).unwrap();
    let same = [("asset_id=fact_sales", 1), ("asset_id=fact_sales", 2), ("asset_id=fact_sales", 3)];
    assert_eq!(verdicts(&mut world, &same), [Allow, Allow, Allow]);
}

#[test]
fn a_grant_ends() {
    let mut world = world();
    world.state("s").give(grant(1, 100, None), Time(0)).unwrap();
    let calls = [("a", 49_997), ("b", 49_998), ("c", 49_999)];
    assert_eq!(verdicts(&mut world, &calls), [Allow, Allow, Allow]);
    let late = [("d", 50_000), ("e", 50_001), ("f", 50_002)];
    assert_eq!(verdicts(&mut world, &late), [Allow, Allow, Kill]);

    let mut world = self::world();
    world.state("s").give(grant(1, 100, None), Time(0)).unwrap();
    assert_eq!(world.state("s").revoke(1).map(|grant| grant.left), Some(100));
    assert_eq!(world.state("s").revoke(1), None);
    assert_eq!(verdicts(&mut world, &[("a", 1), ("b", 2), ("c", 3)]), [Allow, Allow, Kill]);
}

#[test]
fn the_same_target_stays_tight_unless_it_is_named() {
    let mut world = world();
    world.state("s").give(grant(1, 100, Some("fact_*")), Time(0)).unwrap();
    let again = [("fact_sales", 1), ("fact_sales", 2), ("fact_sales", 3)];
    assert_eq!(verdicts(&mut world, &again), [Allow, Allow, Kill]);

    let mut world = self::world();
    world.state("s").give(grant(1, 3, Some("fact_sales")), Time(0)).unwrap();
    let again: Vec<_> = (1..=3).map(|n| ("fact_sales", n)).collect();
    assert_eq!(verdicts(&mut world, &again), [Allow; 3]);
    // What was destroyed under the grant is remembered.
    assert_eq!(verdicts(&mut world, &[("fact_sales", 4)]), [Kill]);
}

#[test]
fn a_scope_holds_a_few() {
    let mut state = ScopeState::new(ScopeKind::Session, Time(0));
    for id in 0..crate::MOST_GRANTS as u64 {
        state.give(grant(id, 1, None), Time(0)).unwrap();
    }
    assert_eq!(state.give(grant(99, 1, None), Time(0)), Err(crate::TooManyGrants));
    assert_eq!(state.give(grant(99, 1, None), Time(50_000)), Ok(()), "those that ended are gone");
    state.reset(Time(1));
    assert_eq!(state.grants(Time(1)).count(), 0);
}
