//! Runs of sessions: when one begins, what stands below it, and what ends it.

use deadstop_core::{
    Context, Ends, GuardId, Measure, Millis, NanoUsd, ScopeKind, Status, Tokens, Trip,
};
use deadstop_store::StoredCall;
use deadstop_warden::trace::{CallSpan, Trace};

use super::*;

/// A call of a session at a moment.
fn call(session: i64, id: i64, at: u64) -> ExportedCall {
    let usage = Usage { input: Tokens(10), output: Tokens(5), ..Usage::default() };
    let row = StoredCall {
        id,
        project: "p".into(),
        agent_number: 1,
        session_number: session,
        nested: None,
        position: 1,
        kind: CallKind::Model,
        name: "gpt-4o".into(),
        server: Some("openai".into()),
        at: Time(at),
        duration: Some(Millis(100)),
        first: None,
        verdict: Verdict::Allow,
        guard: None,
        reason: None,
        status: Some(Status::Ok),
        cause: None,
        usage,
        cost: NanoUsd(0),
        incident: None,
        facts: None,
    };
    ExportedCall {
        place: CallSpan::of(None, "p", session, id),
        row,
        agent: "coder".into(),
        session: format!("s{session}"),
        trip: None,
        model: None,
        call_id: None,
        said: None,
    }
}

fn used(run: &Finished) -> Usage {
    let Work::Run { usage, .. } = &run.work else { panic!("not a run: {run:?}") };
    *usage
}

#[test]
fn calls_of_one_session_are_one_run() {
    let mut runs = Runs::default();
    let first = runs.add(&call(1, 1, 5000), Time(5100));
    let second = runs.add(&call(1, 2, 7000), Time(7100));
    assert!(first.is_some() && first == second);
    assert_ne!(runs.add(&call(2, 3, 7000), Time(7100)), first, "another session");
    let run = runs.end("p", 1).unwrap();
    assert_eq!((Some(run.span), run.parent), (first, None));
    assert_eq!(run.trace, CallSpan::of(None, "p", 1, 1).trace);
    assert_eq!((run.began_ms, run.ended_ms), (5000, 7100));
    assert_eq!((used(&run).input, used(&run).output), (Tokens(20), Tokens(10)));
    assert_eq!(run.failed, None);
    assert_eq!(runs.end("p", 1), None, "it was told");
    assert_eq!(runs.all().len(), 1);
}

/// A tool call of a while ago ends after the model call that came behind it.
#[test]
fn a_run_begins_with_its_earliest_call() {
    let mut runs = Runs::default();
    runs.add(&call(1, 2, 7000), Time(7100));
    runs.add(&call(1, 1, 5000), Time(7200));
    let run = runs.end("p", 1).unwrap();
    assert_eq!((run.began_ms, run.ended_ms), (5000, 7100));
}

#[test]
fn calls_below_a_callers_span_belong_to_no_run() {
    let mut runs = Runs::default();
    let caller = Trace { id: [7; 16], parent: [9; 8], sampled: true };
    let inside = ExportedCall { place: CallSpan::of(Some(caller), "p", 1, 1), ..call(1, 1, 5000) };
    assert_eq!(runs.add(&inside, Time(5100)), None);
    assert!(runs.all().is_empty());
}

#[test]
fn a_run_without_calls_for_a_while_is_over() {
    let mut runs = Runs::default();
    let first = runs.add(&call(1, 1, 5000), Time(5000));
    assert!(runs.idle(Time(5000 + IDLE_MS - 1)).is_empty());
    let over = runs.idle(Time(5000 + IDLE_MS));
    assert_eq!(over.iter().map(|run| Some(run.span)).collect::<Vec<_>>(), [first]);
    let again = runs.add(&call(1, 2, 5000 + IDLE_MS), Time(5000 + IDLE_MS));
    assert_ne!(again, first, "another run");
    assert_eq!(runs.all()[0].trace, over[0].trace, "in the same trace");
}

#[test]
fn a_run_that_was_stopped_says_why() {
    let mut runs = Runs::default();
    let trip = Trip {
        guard: GuardId::Loop,
        verdict: Verdict::Kill,
        reason: "loop_detected".into(),
        measured: Measure::Count(5),
        limit: Measure::Count(5),
        because: "the same call 5 times".into(),
        ends: Ends::Session,
        drains: false,
        evidence: Vec::new(),
        signals: Vec::new(),
        window: None,
        waits: None,
        advice: None,
        streak: None,
        context: Context {
            who: "s1".into(),
            kind: ScopeKind::Session,
            depth: 2,
            input: Tokens(10),
            output: Tokens(5),
            elapsed: Millis(1000),
            accumulated_input: Tokens(10),
            accumulated_output: Tokens(5),
        },
    };
    let mut refused = call(1, 2, 6000);
    refused.trip = Some(Box::new(trip));
    (refused.row.status, refused.row.verdict) = (None, Verdict::Kill);
    refused.row.incident = Some("i1".into());
    runs.add(&call(1, 1, 5000), Time(5000));
    runs.add(&refused, Time(6000));
    runs.add(&call(1, 3, 7000), Time(7000));
    let run = runs.end("p", 1).unwrap();
    assert_eq!(run.failed.unwrap().class, "loop_detected");
    assert!(run.decided.contains(&(ours::VERDICT, "kill".to_owned())));
    assert!(run.decided.contains(&(ours::INCIDENT, "i1".to_owned())));
}

/// However many sessions there are, the memory is bounded: those that were idle longest end first.
#[test]
fn there_are_not_too_many_runs() {
    let mut runs = Runs::default();
    let most = MOST as i64;
    for session in 0..2 * most + 1 {
        assert!(!runs.are_many());
        runs.add(&call(session, session, 5000), Time(5000 + session as u64));
    }
    assert!(runs.are_many());
    let over = runs.idle(Time(30_000));
    assert_eq!(over.len(), MOST + 1);
    assert!(over.iter().any(|run| run.session == "s0"));
    assert!(runs.end("p", 2 * most).is_some(), "the newest are kept");
    assert!(!runs.are_many());
}
