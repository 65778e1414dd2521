//! What a reel shows is what the engine held at the time.

use super::*;
use deadstop_core::Rung;
use deadstop_core::{
    Call, Digest, Measure, Millis, NanoUsd, Outcome, Preset, ResultFacts, Status, ToolCall, Usage,
};
use deadstop_store::CallKind;

fn call(index: u64, tool: &str) -> StoredCall {
    let signature = Digest::of(tool.as_bytes());
    let facts = ToolCall { name: tool.into(), signature, ..ToolCall::default() };
    let outcome = Outcome { result: Some(ResultFacts::default()), ..Outcome::default() };
    StoredCall {
        id: i64::try_from(index).unwrap(),
        project: "default".into(),
        agent_number: 1,
        session_number: 2,
        nested: None,
        position: index,
        kind: CallKind::Tool,
        name: tool.into(),
        server: None,
        at: Time(index * 1000),
        duration: Some(Millis(10)),
        verdict: Verdict::Allow,
        guard: None,
        reason: None,
        status: Some(Status::Ok),
        usage: Usage::default(),
        cost: NanoUsd(0),
        incident: None,
        facts: Facts::write(&Call::Tool(facts), &outcome, 0),
        first: None,
        cause: None,
    }
}

fn refused(index: u64, guard: GuardId) -> StoredCall {
    let (verdict, guard) = (Verdict::Block, Some(guard));
    StoredCall { facts: None, status: None, duration: None, verdict, guard, ..call(index, "no") }
}

fn reel(calls: Vec<StoredCall>) -> Reel {
    Reel::new("s1", calls, vec![(Time(0), Preset::Strict.policies())], Vec::new())
}

/// What a gauge of the session's scope showed at a call.
fn read(reel: &Reel, index: usize, what: &str) -> (u64, u64) {
    let frame = reel.frame(index).unwrap();
    let (_, state) = frame.scopes().next().unwrap();
    let gauges = state.gauges(frame.policies.of(state.kind()), frame.at);
    let gauge = gauges.iter().find(|gauge| gauge.what == what).unwrap();
    match (gauge.measured, gauge.limit) {
        (Measure::Count(measured), Measure::Count(limit)) => (measured, limit),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_loop_grows_call_by_call_and_is_shown_beyond_its_limit() {
    let reel = reel((1..=8).map(|index| call(index, "look")).collect());
    let grown: Vec<_> = (0..8).map(|at| read(&reel, at, "calls_without_news").0).collect();
    assert_eq!(grown, [0, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn a_call_that_was_asked_before_another_was_over_is_not_there_yet() {
    // As a model's answer asks for tools: before its end, at its end, and long before it.
    for asked in [1005, 1010, 1500] {
        let mut first = call(1, "think");
        first.duration = Some(Millis(if asked == 1500 { 5000 } else { 10 }));
        let second = StoredCall { at: Time(asked), ..call(2, "think") };
        let reel = reel(vec![first, second]);
        assert_eq!(read(&reel, 0, "calls_without_news").0, 0, "{asked}");
        let frame = reel.frame(0).unwrap();
        assert!(frame.scopes().all(|(_, state)| state.calls() == 1), "{asked}");
        let frame = reel.frame(1).unwrap();
        assert!(frame.scopes().all(|(_, state)| state.calls() == 2), "{asked}");
    }
}

#[test]
fn refusals_count_as_strikes_until_a_call_passes() {
    let blocked = |index| refused(index, GuardId::Access);
    let dead = refused(5, GuardId::Killed);
    let reel = reel(vec![call(1, "a"), blocked(2), blocked(3), dead, call(6, "b")]);
    let strikes: Vec<_> = (0..5).map(|at| read(&reel, at, "blocks_in_a_row").0).collect();
    assert_eq!(strikes, [0, 1, 2, 2, 0]);
}

#[test]
fn policies_hold_from_their_time_on_and_clearing_empties() {
    let calls = (1..=8).map(|index| call(index, "look")).collect();
    let mut tighter = Preset::Strict.policies();
    tighter.session.loops.block_at = Rung::Off;
    tighter.session.loops.end_at = Rung::At(3);
    let history = vec![(Time(0), Preset::Strict.policies()), (Time(3500), tighter)];
    let reel = Reel::new("s1", calls, history, vec![Time(5500)]);
    assert_eq!(read(&reel, 2, "calls_without_news"), (3, 5));
    assert_eq!(read(&reel, 3, "calls_without_news"), (4, 3));
    assert_eq!(read(&reel, 5, "calls_without_news"), (0, 3));
    assert_eq!(read(&reel, 7, "calls_without_news"), (3, 3));
}

#[test]
fn a_frame_is_the_same_from_a_still_image_as_from_the_start() {
    let calls: Vec<_> =
        (1..=2000).map(|index| call(index, ["look", "see", "find"][index as usize % 3])).collect();
    let reel = reel(calls.clone());
    assert!(reel.stills.len() > 6, "{}", reel.stills.len());
    for at in [0, 254, 255, 256, 257, 1000, 1999] {
        let short = self::reel(calls[..=at].to_vec());
        let (one, other) = (reel.frame(at).unwrap(), short.frame(at).unwrap());
        for ((_, a), (_, b)) in one.scopes().zip(other.scopes()) {
            assert_eq!(a, b, "at {at}");
        }
    }
}

#[test]
fn calls_inside_a_session_have_scopes_of_their_own() {
    let inside = |index| StoredCall { nested: Some("crew".into()), ..call(index, "look") };
    let reel = reel(vec![inside(1), inside(2), call(3, "other")]);
    let frame = reel.frame(1).unwrap();
    let names: Vec<_> = frame.scopes().map(|(name, state)| (name, state.kind().name())).collect();
    assert_eq!(names, [("s1", "session"), ("crew", "scope"), ("", "agent"), ("", "project")]);
    assert_eq!(reel.frame(2).unwrap().scopes().count(), 3);
}

#[test]
fn a_kept_reel_is_made_anew_when_there_is_news_for_the_call() {
    let reels = Reels::default();
    let reel = Arc::new(reel((1..=500).map(|index| call(index, "look")).collect()));
    let stamp = (Time(9), 1);
    reels.keep(2, stamp, reel);
    assert!(reels.find(2, stamp, 500).is_some());
    assert!(reels.find(2, (Time(10), 1), 100).is_some(), "long past");
    assert!(reels.find(2, (Time(10), 1), 500).is_none(), "may have changed");
    assert!(reels.find(2, (Time(9), 2), 100).is_none(), "another policy");
    assert!(reels.find(2, stamp, 501).is_none() && reels.find(3, stamp, 1).is_none());
}

/// Refused repeats count at their calls, as they did in the engine: the gauge beside a stop does not
/// stay where it was at the last call that ran.
#[test]
fn the_gauge_beside_a_stop_is_what_the_guard_held() {
    let policies = Preset::Strict.policies();
    let held = |run: &Run| {
        let gauges = run.states[2].gauges(&policies.session, Time(99_000));
        let gauge = gauges.into_iter().find(|gauge| gauge.what == "calls_without_news");
        gauge.map(|gauge| gauge.measured)
    };
    let mut run = Run::new("s1", Time(0));
    let (mut calls, mut told, mut stopped) = (Vec::new(), Vec::new(), false);
    for index in 1..=30 {
        let mut row = call(index, "look");
        let facts = Facts::read(row.facts.as_deref().unwrap()).unwrap();
        let admission = run.chain(&policies, None, |chain| admit(chain, &facts.call, row.at));
        if let Some(ticket) = admission.ticket {
            let ended = Time(row.at.0 + 10);
            run.chain(&policies, None, |chain| {
                settle(chain, &facts.call, ticket, &facts.outcome, ended)
            });
        } else {
            let trip = &admission.trips[0];
            (row.status, row.duration, row.verdict) = (None, None, trip.verdict);
            (row.guard, row.reason) = (Some(trip.guard), Some(trip.reason.clone()));
            stopped |= trip.verdict == Verdict::Kill;
        }
        calls.push(row);
        told.push(held(&run));
    }
    assert!(stopped, "the loop was ended");
    let reel = reel(calls);
    for (at, held) in told.into_iter().enumerate() {
        let (shown, _) = read(&reel, at, "calls_without_news");
        assert_eq!(Some(Measure::Count(shown)), held, "at call {at}");
    }
}
