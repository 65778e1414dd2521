//! A report for people: a table per dataset, and the most telling stops.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use deadstop_core::{GuardId, NanoUsd, Verdict};
use deadstop_protocol::replay::Report;
use deadstop_protocol::trace::Trace;

use crate::{table, ui};

/// Stops that are told in full.
const TOLD: usize = 10;

/// Everything that was seen so far, in counts.
#[derive(Debug, Default)]
pub(crate) struct Table {
    datasets: BTreeMap<String, Counts>,
    stops: Vec<Stop>,
    untimed: usize,
    uncounted: usize,
    unpriced: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Counts {
    traces: usize,
    calls: usize,
    verdicts: BTreeMap<Verdict, usize>,
    guards: BTreeMap<GuardId, usize>,
    calls_after: usize,
    cost_after: NanoUsd,
    succeeded: usize,
    succeeded_stopped: usize,
}

#[derive(Debug)]
struct Stop {
    id: String,
    guard: GuardId,
    at: String,
    calls_after: usize,
    cost_after: NanoUsd,
    sentence: String,
}

impl Table {
    /// Counts one trace.
    pub(crate) fn add(&mut self, trace: &Trace, report: &Report) {
        let name = trace.dataset.clone().unwrap_or_else(|| "traces".to_owned());
        let counts = self.datasets.entry(name).or_default();
        let verdict = report.verdict();
        counts.traces += 1;
        counts.calls += report.calls_total;
        *counts.verdicts.entry(verdict).or_default() += 1;
        self.untimed += usize::from(report.assumed.times);
        self.uncounted += usize::from(report.assumed.usage);
        self.unpriced.extend(report.assumed.unpriced.iter().cloned());
        counts.succeeded += usize::from(trace.outcome == Some(true));
        let Some(event) = report.telling() else { return };
        *counts.guards.entry(event.trip.guard).or_default() += 1;
        if verdict < Verdict::Block {
            return;
        }
        counts.succeeded_stopped += usize::from(trace.outcome == Some(true));
        counts.calls_after += event.calls_after;
        counts.cost_after += report.cost_after;
        let total = report.calls_total;
        self.stops.push(Stop {
            id: trace.id.clone(),
            guard: event.trip.guard,
            at: match event.at_call {
                Some(call) => format!("at call {call} of {total}"),
                None => format!("at message {} of {}", event.at_message, trace.messages),
            },
            calls_after: event.calls_after,
            cost_after: report.cost_after,
            sentence: event.trip.explain(),
        });
        self.keep_telling();
    }

    /// Keeps memory bounded: of the stops only the most telling are remembered.
    fn keep_telling(&mut self) {
        if self.stops.len() >= 100 * TOLD {
            self.rank();
            self.stops.truncate(10 * TOLD);
        }
    }

    /// What would have been saved says most; each guard is heard before any is heard again.
    fn rank(&mut self) {
        self.stops.sort_by(|a, b| {
            (b.calls_after, b.cost_after, &a.id).cmp(&(a.calls_after, a.cost_after, &b.id))
        });
        let mut heard = BTreeMap::<GuardId, usize>::new();
        self.stops.sort_by_cached_key(|stop| {
            let turn = heard.entry(stop.guard).or_default();
            *turn += 1;
            *turn > 1
        });
    }

    /// The whole report as text.
    pub(crate) fn render(mut self, policy: &str) -> String {
        let mut out = String::new();
        if self.datasets.is_empty() {
            return "no traces found\n".to_owned();
        }
        let _ = writeln!(out, "What the policy {policy} would have done:\n\n{}", self.counts());
        self.rank();
        if self.stops.is_empty() {
            let _ = writeln!(out, "\nIt would have stopped nothing.");
        } else {
            let _ = writeln!(out, "\nThe most telling stops:");
        }
        for stop in self.stops.iter().take(TOLD) {
            let saved = match (stop.calls_after, stop.cost_after) {
                (0, NanoUsd(0)) => String::new(),
                (calls, cost) => format!(" ({calls} calls and {cost} came after)"),
            };
            let _ = writeln!(out, "\n  {} {}", bold(&stop.id), stop.at);
            let _ = writeln!(out, "    {}{saved}", stop.sentence);
        }
        self.assumptions(&mut out);
        if let Some(stop) = self.stops.first() {
            let _ = writeln!(
                out,
                "\nTo see one of them: deadstop backtest FILES --policy {policy} --explain {}",
                stop.id
            );
        }
        out
    }

    fn counts(&self) -> table::Table {
        let mut table = table::Table::new([
            "dataset",
            "traces",
            "calls",
            "warned",
            "steered",
            "asked",
            "blocked",
            "killed",
            "by guard",
            "calls after",
            "cost after",
            "successes stopped",
        ])
        .right([1, 2, 3, 4, 5, 6, 7, 9, 10, 11])
        .inside();
        for (name, counts) in &self.datasets {
            let verdict = |verdict| counts.verdicts.get(&verdict).copied().unwrap_or(0);
            let guards: Vec<String> =
                counts.guards.iter().map(|(guard, n)| format!("{guard} {n}")).collect();
            table.row([
                name.clone(),
                counts.traces.to_string(),
                counts.calls.to_string(),
                verdict(Verdict::Warn).to_string(),
                verdict(Verdict::Steer).to_string(),
                verdict(Verdict::Ask).to_string(),
                verdict(Verdict::Block).to_string(),
                verdict(Verdict::Kill).to_string(),
                if guards.is_empty() { "-".to_owned() } else { guards.join(", ") },
                counts.calls_after.to_string(),
                counts.cost_after.to_string(),
                format!("{} of {}", counts.succeeded_stopped, counts.succeeded),
            ]);
        }
        table
    }

    fn assumptions(&self, out: &mut String) {
        let traces: usize = self.datasets.values().map(|counts| counts.traces).sum();
        let mut notes = Vec::new();
        if self.untimed > 0 {
            notes.push(format!(
                "times: {} of {traces} traces have none. Limits per minute and on wall time were \
                 not judged there; give --pace SECONDS to judge them.",
                self.untimed
            ));
        }
        if self.uncounted > 0 {
            notes.push(format!(
                "tokens: {} of {traces} traces do not have them all. The missing ones were counted \
                 at four characters a token, with the whole history read in each request.",
                self.uncounted
            ));
        }
        if !self.unpriced.is_empty() {
            let models: Vec<&str> = self.unpriced.iter().map(String::as_str).collect();
            notes.push(format!(
                "prices: $10 in and $30 out per million tokens for {}.",
                models.join(", ")
            ));
        }
        if !notes.is_empty() {
            let _ = writeln!(out, "\nAssumed:");
        }
        for note in notes {
            let _ = writeln!(out, "  {note}");
        }
    }
}

fn bold(text: &str) -> String {
    use owo_colors::OwoColorize;
    if ui::colour() { text.bold().to_string() } else { text.to_owned() }
}
