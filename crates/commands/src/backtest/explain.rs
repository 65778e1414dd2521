//! One trace around its stop: the calls side by side, what was seen as the same, and why.

use std::collections::BTreeMap;
use std::fmt::Write;

use deadstop_core::{Digest, Verdict};
use deadstop_protocol::facts;
use deadstop_protocol::replay::{Event, Report};
use deadstop_protocol::trace::{RecordedCall, Trace, Turn};

use crate::table::Table;
use crate::ui;

/// Calls shown before and after those that a stop is about.
const AROUND: usize = 3;
/// Calls shown at most before the stop.
const MOST: usize = 24;
/// Characters of arguments and results that are shown.
const WIDTH: usize = 50;

/// A tool call of the trace, with letters for what it asks and what it brought.
struct Shown<'a> {
    nth: usize,
    call: &'a RecordedCall,
    asks: String,
    brings: String,
    evidence: bool,
}

/// The text for one trace.
pub(crate) fn explain(trace: &Trace, report: &Report) -> String {
    let mut out = String::new();
    let dataset = trace.dataset.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
    let _ = writeln!(out, "{}{dataset}", trace.id);
    if let Some(task) = &trace.task {
        let _ = writeln!(out, "task: {}", clip(task));
    }
    let Some(event) = report.telling() else {
        let _ = writeln!(out, "\nNothing to stop: {} calls passed.", report.calls_total);
        return out;
    };
    let _ = writeln!(out, "\n{}", event.trip.explain());
    let _ = writeln!(out, "{}\n", facts_of(event, report));

    let shown = label(trace, report, event);
    match event.at_call {
        Some(stop) => {
            let _ = writeln!(out, "{}", side_by_side(&shown, stop, event.trip.verdict));
            legend(&mut out, &shown, stop);
        }
        None => said(&mut out, trace, event),
    }
    let _ = writeln!(
        out,
        "After it, {} more tool calls and {} were spent.",
        event.calls_after, report.cost_after
    );
    out
}

fn facts_of(event: &Event, report: &Report) -> String {
    let trip = &event.trip;
    let at = match event.at_call {
        Some(call) => format!("tool call {call} of {}", report.calls_total),
        None => format!("the answer in message {}", event.at_message),
    };
    format!(
        "at {at} (message {}): guard {}, reason {}, measured {}, limit {}",
        event.at_message, trip.guard, trip.reason, trip.measured, trip.limit
    )
}

fn label<'a>(trace: &'a Trace, report: &Report, event: &Event) -> Vec<Shown<'a>> {
    let evidence: Vec<(usize, usize)> = report
        .calls
        .iter()
        .filter(|call| event.trip.evidence.contains(&call.number))
        .filter_map(|call| Some((call.turn, call.call?)))
        .collect();
    let mut asked = BTreeMap::new();
    let mut brought = BTreeMap::new();
    let mut shown = Vec::new();
    for (turn, calls) in trace.turns.iter().enumerate().filter_map(|(turn, event)| match event {
        Turn::Answer { calls, .. } => Some((turn, calls)),
        Turn::Prompt { .. } => None,
    }) {
        for (nth, call) in calls.iter().enumerate() {
            let signature = facts::tool_call(&call.name, &call.arguments).signature;
            let result = call.result.as_ref().map(|result| facts::result(&result.text).masked);
            shown.push(Shown {
                nth: shown.len() + 1,
                call,
                asks: letter(index(&mut asked, signature)),
                brings: result
                    .map(|digest| (index(&mut brought, digest) + 1).to_string())
                    .unwrap_or_default(),
                evidence: evidence.contains(&(turn, nth)),
            });
        }
    }
    shown
}

fn index(seen: &mut BTreeMap<u64, usize>, digest: Digest) -> usize {
    let next = seen.len();
    *seen.entry(digest.0).or_insert(next)
}

/// A, B, … Z, AA, AB, …
fn letter(index: usize) -> String {
    let last = char::from(b'A' + (index % 26) as u8);
    match index / 26 {
        0 => last.to_string(),
        more => letter(more - 1) + &last.to_string(),
    }
}

fn side_by_side(shown: &[Shown<'_>], stop: usize, verdict: Verdict) -> Table {
    let first = shown.iter().find(|s| s.evidence).map_or(stop, |s| s.nth);
    let from = first.saturating_sub(AROUND).max(stop.saturating_sub(MOST)).max(1);
    let mut table =
        Table::new(["", "call", "message", "asks", "what", "brings", "result"]).inside();
    for s in shown.iter().filter(|s| (from..=stop + AROUND).contains(&s.nth)) {
        let mark = match () {
            () if s.nth == stop => verdict.to_string(),
            () if s.evidence => "same".to_owned(),
            () if s.nth > stop => "after".to_owned(),
            () => String::new(),
        };
        let result = s.call.result.as_ref();
        let error = if result.is_some_and(|r| r.is_error) { "error: " } else { "" };
        table.row([
            mark,
            s.nth.to_string(),
            s.call.message.to_string(),
            s.asks.clone(),
            clip(&format!("{} {}", s.call.name, s.call.arguments)),
            s.brings.clone(),
            clip(&format!("{error}{}", result.map_or("", |r| &r.text))),
        ]);
    }
    table
}

/// Says in words what the letters and numbers mean.
fn legend(out: &mut String, shown: &[Shown<'_>], stop: usize) {
    let _ = writeln!(
        out,
        "Calls with the same letter ask for the same thing; results with the same number are the\n\
         same once numbers, ids, times and temp paths are masked."
    );
    let Some(at) = shown.iter().find(|s| s.nth == stop) else { return };
    let alike: Vec<String> = shown
        .iter()
        .filter(|s| s.nth <= stop && s.asks == at.asks)
        .map(|s| s.nth.to_string())
        .collect();
    if alike.len() > 1 {
        let _ = writeln!(out, "Calls that ask for {}: {}.", at.asks, alike.join(", "));
    }
}

/// For a stop at an answer: what the model said, turn by turn.
fn said(out: &mut String, trace: &Trace, event: &Event) {
    for turn in &trace.turns {
        let Turn::Answer { text, message, .. } = turn else { continue };
        if (event.at_message.saturating_sub(2 * MOST)..=event.at_message).contains(message) {
            let _ = writeln!(out, "  message {message}: {}", clip(text));
        }
    }
}

/// One line of limited width.
fn clip(text: &str) -> String {
    ui::clip(text, WIDTH)
}
