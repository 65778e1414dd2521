//! What a preset does to labelled traces: loops stopped, and how early; healthy runs left alone.
//!
//! The labels say how many calls in a row brought nothing new, seen with hindsight. Where the fifth
//! of them stands is worked out here by that same definition (tool, arguments, result with its
//! digits masked), which the engine does not use: it has a bounded memory, masks more, and must
//! decide before the call.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, ensure};
use deadstop_core::{Preset, Verdict};
use deadstop_protocol::check::Checker;
use deadstop_protocol::facts::effect::Nowhere;
use deadstop_protocol::prices::Prices;
use deadstop_protocol::replay::Replayer;
use deadstop_protocol::trace::{Trace, Turn};

use crate::bench::{load, trace_files};

/// Futile calls in a row that are certainly a loop.
const LOOP: u64 = 5;

#[derive(Default)]
struct Tally {
    loops: usize,
    stopped: usize,
    in_time: usize,
    clean: usize,
    clean_stopped: usize,
    coding_calls: usize,
    coding_stops: usize,
}

/// Replays all traces of a folder with `strict`, prints what came of it and fails below the marks.
pub(crate) fn check(folder: &str) -> anyhow::Result<()> {
    let prices = Prices::builtin();
    let strict = Replayer::new(Preset::Strict.policies(), &prices, None);
    let balanced = Replayer::new(Preset::Balanced.policies(), &prices, None);
    let mut tally = Tally::default();
    for file in trace_files(Path::new(folder))? {
        for trace in load(&file)? {
            let futile = label(&trace, "futile_run")?;
            let report = strict.replay(&trace);
            let stop = report.telling().filter(|event| event.trip.verdict >= Verdict::Block);
            let by_loop = stop.filter(|event| event.trip.guard.name() != "destructive");
            if by_loop.is_some() {
                let mild = balanced.replay(&trace).verdict();
                ensure!(mild == Verdict::Warn, "balanced does not warn about {}", trace.id);
            }
            if trace.dataset.as_deref().is_some_and(|name| name.contains("claude_code")) {
                tally.coding_calls += report.calls_total;
                tally.coding_stops += usize::from(stop.is_some());
            }
            if futile >= LOOP {
                let fifth = fifth_futile(&trace).context("the label does not fit the trace")?;
                tally.loops += 1;
                tally.stopped += usize::from(stop.is_some());
                let at = stop.map(|event| event.at_call.unwrap_or(0));
                tally.in_time += usize::from(at.is_some_and(|at| at <= fifth));
            } else if futile <= 1 && trace.outcome == Some(true) {
                tally.clean += 1;
                tally.clean_stopped += usize::from(stop.is_some());
            }
        }
    }
    tally.report()
}

impl Tally {
    fn report(&self) -> anyhow::Result<()> {
        let Tally { loops, stopped, in_time, clean, clean_stopped, .. } = *self;
        println!(
            "loops stopped: {stopped} of {loops}, at the fifth futile call or before: {in_time}"
        );
        println!("successful runs without futile calls stopped: {clean_stopped} of {clean}");
        println!("coding sessions: {} stops in {} calls", self.coding_stops, self.coding_calls);
        ensure!(stopped * 100 >= loops * 95, "fewer than 95% of the loops were stopped");
        ensure!(in_time * 100 >= stopped * 80, "fewer than 80% of them in time");
        ensure!(clean_stopped * 500 <= clean, "more than 1 in 500 healthy runs was stopped");
        let stops_allowed = self.coding_calls / 5000;
        ensure!(self.coding_stops <= stops_allowed, "too many coding sessions were stopped");
        Ok(())
    }
}

fn label(trace: &Trace, name: &str) -> anyhow::Result<u64> {
    let labels = trace.labels.as_ref().with_context(|| format!("{} has no labels", trace.id))?;
    labels[name].as_u64().with_context(|| format!("{} has no label {name}", trace.id))
}

/// The number of the call that is the fifth in a row to bring nothing new.
fn fifth_futile(trace: &Trace) -> Option<usize> {
    let mut seen = HashSet::new();
    let mut run = 0;
    let calls = trace.turns.iter().flat_map(|turn| match turn {
        Turn::Answer { calls, .. } => calls.as_slice(),
        Turn::Prompt { .. } => &[],
    });
    for (index, call) in calls.enumerate() {
        let result = call.result.as_ref().map_or("", |result| &result.text);
        let new = seen.insert((&call.name, call.arguments.to_string(), digits_masked(result)));
        run = if new { 0 } else { run + 1 };
        if run == LOOP {
            return Some(index + 1);
        }
    }
    None
}

fn digits_masked(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    for c in text.chars() {
        if !c.is_numeric() {
            masked.push(c);
        } else if !masked.ends_with('\0') {
            masked.push('\0');
        }
    }
    masked
}

/// Counts the coding calls that `balanced` and `strict` would ask about or refuse because of harm,
/// judged by their text alone, and prints each of them.
pub(crate) fn harms(folder: &str) -> anyhow::Result<()> {
    let checker = Checker::default();
    let (mut calls, mut balanced, mut strict) = (0_usize, 0_usize, 0_usize);
    for file in trace_files(Path::new(folder))? {
        for trace in load(&file)? {
            let coding = trace
                .dataset
                .as_deref()
                .is_some_and(|name| name.contains("claude_code") || name.contains("openhands"));
            if !coding {
                continue;
            }
            for turn in &trace.turns {
                let Turn::Answer { calls: made, .. } = turn else { continue };
                for call in made {
                    calls += 1;
                    let checked = checker.check(&call.name, &call.arguments, &Nowhere);
                    let asked = checked.verdict.balanced >= Verdict::Ask;
                    balanced += usize::from(asked);
                    let held = checked.verdict.strict >= Verdict::Ask;
                    strict += usize::from(held);
                    if held {
                        let who = if asked { "balanced" } else { "strict  " };
                        let harm = &checked.because;
                        println!("{who} {} {harm}", trace.id);
                        println!("    {}", call.arguments);
                    }
                }
            }
        }
    }
    println!("of {calls} coding calls, balanced asks about {balanced}, strict holds {strict}");
    ensure!(balanced * 500 <= calls, "balanced asks more than once in 500 coding calls");
    Ok(())
}
