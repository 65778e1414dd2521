//! What a replay uses, what it assumes, and what it says of both.

use std::collections::BTreeSet;

use deadstop_core::{Dollars, Preset};
use serde_json::json;

use super::*;
use crate::trace::RecordedResult;

fn answer(text: &str, calls: Vec<RecordedCall>) -> Turn {
    let message = 1;
    Turn::Answer { text: text.into(), calls, usage: None, model: None, at: None, message }
}

fn call(name: &str, n: u64, result: &str, is_error: bool) -> RecordedCall {
    let result = RecordedResult { text: result.into(), is_error, at: None, message: 2 };
    RecordedCall {
        name: name.into(),
        arguments: json!({ "n": n }),
        message: 1,
        result: Some(result),
    }
}

fn trace(turns: Vec<Turn>) -> Trace {
    Trace { id: "t".into(), model: Some("gpt-4o".into()), turns, ..Trace::default() }
}

fn replay(preset: Preset, trace: &Trace) -> Report {
    Replayer::new(preset.policies(), &Prices::builtin(), None).replay(trace)
}

#[test]
fn recorded_usage_is_charged_and_the_rest_is_estimated() {
    let usage = Usage { input: Tokens(1_000_000), output: Tokens(100_000), ..Usage::default() };
    let Turn::Answer { text, calls, model, at, message, .. } = answer("hello there", vec![]) else {
        unreachable!()
    };
    let recorded = Turn::Answer { text, calls, usage: Some(usage), model, at, message };
    let report = replay(Preset::Balanced, &trace(vec![recorded]));
    // $2.50 and $10 per million.
    assert_eq!(report.cost, NanoUsd(3_500_000_000));
    assert!(!report.assumed.usage && report.assumed.times);
    assert_eq!((report.model_calls, report.calls_total), (1, 0));

    let prompt = Turn::Prompt { text: "x".repeat(4_000_000), person: true, at: None, message: 1 };
    let report =
        replay(Preset::Balanced, &trace(vec![prompt, answer(&"y".repeat(400_000), vec![])]));
    assert_eq!(report.cost, NanoUsd(3_500_000_000));
    assert!(report.assumed.usage);
}

#[test]
fn a_model_that_nobody_knows_is_named() {
    let mut unknown = trace(vec![answer("hello", vec![])]);
    unknown.model = Some("my-own-model".into());
    let report = replay(Preset::Balanced, &unknown);
    assert_eq!(report.assumed.unpriced, BTreeSet::from(["my-own-model".to_owned()]));
}

#[test]
fn the_first_stop_counts_and_what_comes_after_is_counted() {
    let looping = |n| answer("again", vec![call("poll", n, "pending", false)]);
    let stuck = trace((0..11).map(|_| looping(1)).collect());
    let report = replay(Preset::Strict, &stuck);
    let stop = report.telling().unwrap();
    assert_eq!(report.verdict(), Verdict::Kill);
    assert_eq!((stop.at_call, stop.calls_after), (Some(8), 3));
    let said: Vec<_> = report.events.iter().map(|event| event.trip.verdict).collect();
    use Verdict::{Block, Kill, Steer};
    assert_eq!(said, [Steer, Steer, Block, Block, Block, Kill]);
    // Three more answers were paid for: 3 × (input so far + 1 token out).
    assert!(report.cost_after > NanoUsd(0) && report.cost_after < report.cost);
    // Blocked calls ran in the recording; the eighth was the end: eight answers, seven tool calls.
    assert_eq!(report.calls.len(), 15);
    assert_eq!(report.calls[1], Replayed { number: 2, turn: 0, call: Some(0) });

    let warned = replay(Preset::Observe, &stuck);
    assert_eq!(warned.verdict(), Verdict::Warn);
    assert_eq!(warned.telling().unwrap().at_call, Some(5));
    assert_eq!(warned.calls.len(), 22);
    assert_eq!(warned.cost_after, NanoUsd(0));
}

/// A block ends one call and not the trace; it is still the first stop.
#[test]
fn a_block_is_a_stop_that_the_trace_survives() {
    let mut policies = Preset::Strict.policies();
    policies.session.access.deny = vec![deadstop_core::Pattern::new("rm")];
    let turns = vec![
        answer("a", vec![call("ls", 1, "a", false)]),
        answer("b", vec![call("rm", 1, "gone", false)]),
        answer("c", vec![call("ls", 2, "b", false)]),
    ];
    let report = Replayer::new(policies, &Prices::builtin(), None).replay(&trace(turns));
    assert_eq!(report.verdict(), Verdict::Block);
    assert_eq!(report.telling().unwrap().at_call, Some(2));
    assert_eq!(report.calls.len(), 5);
}

#[test]
fn a_call_that_a_person_refused_is_no_failure() {
    let refused = "The user doesn't want to proceed with this tool use.";
    for (error, verdict) in [(refused, Verdict::Allow), ("connection refused", Verdict::Kill)] {
        let turns = (0..9).map(|_| answer("", vec![call("restore", 1, error, true)])).collect();
        assert_eq!(replay(Preset::Strict, &trace(turns)).verdict(), verdict, "{error}");
    }
}

#[test]
fn without_times_only_patterns_are_judged() {
    let mut policies = Preset::Strict.policies();
    policies.session.time.max_wall_time_seconds = Some(deadstop_core::Seconds(1));
    policies.session.velocity.max_usd_per_minute = Some(Dollars(NanoUsd(1)));
    let deletes = |same: bool| {
        let n = move |i| if same { 1 } else { i };
        (0..5)
            .map(|i| answer("", vec![call("delete_row", n(i), &format!("ok {i}"), false)]))
            .collect()
    };
    let prices = Prices::builtin();
    let verdict = |pace, turns| {
        Replayer::new(policies.clone(), &prices, pace).replay(&trace(turns)).verdict()
    };
    assert_eq!(verdict(None, deletes(false)), Verdict::Allow);
    assert_eq!(verdict(None, deletes(true)), Verdict::Kill);
    assert_ne!(verdict(Some(Millis(1000)), deletes(false)), Verdict::Allow);
}

#[test]
fn recorded_times_are_used() {
    let at = |seconds: u64| {
        let Turn::Answer { text, calls, usage, model, message, .. } =
            answer("", vec![call("delete_row", seconds, "ok", false)])
        else {
            unreachable!()
        };
        Turn::Answer { text, calls, usage, model, at: Some(Time(seconds * 1000)), message }
    };
    let quick = replay(Preset::Strict, &trace(vec![at(100), at(101), at(102)]));
    assert_eq!(quick.telling().unwrap().trip.reason, "destructive_volume");
    assert!(!quick.assumed.times);
    let slow = replay(Preset::Strict, &trace(vec![at(100), at(161), at(222)]));
    assert_eq!(slow.verdict(), Verdict::Allow);
}
