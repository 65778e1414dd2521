//! Counters for Prometheus. Each is an atomic: counting never waits, wherever a call is.
//!
//! No label has a value that a caller could choose (agents, sessions, models). So the number of
//! series is fixed, and one project learns nothing of another.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use deadstop_core::{GuardId, NanoUsd, Usage, Verdict};

use crate::Answer;

/// Every guard, in the order of their numbers.
const GUARDS: [GuardId; GuardId::ALL.len()] = GuardId::ALL;
/// Every verdict, in the order of their numbers.
const VERDICTS: [Verdict; 6] =
    [Verdict::Allow, Verdict::Warn, Verdict::Steer, Verdict::Ask, Verdict::Block, Verdict::Kill];

/// Upper bounds of the histogram buckets, in nanoseconds.
const BUCKETS: [u64; 14] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    5_000_000,
    20_000_000,
    100_000_000,
    1_000_000_000,
];

/// The kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A model request.
    Model,
    /// A tool call.
    Tool,
}

/// All counters.
#[derive(Debug, Default)]
pub struct Metrics {
    model_calls: AtomicU64,
    tool_calls: AtomicU64,
    /// By guard and verdict.
    verdicts: [[AtomicU64; VERDICTS.len()]; GUARDS.len()],
    /// Calls without a trip.
    allowed: AtomicU64,
    decisions: Histogram,
    input: AtomicU64,
    output: AtomicU64,
    cache_read: AtomicU64,
    cache_write: AtomicU64,
    money: AtomicU64,
    streams: AtomicI64,
    queue: AtomicI64,
    batches: AtomicU64,
    rows: AtomicU64,
    failed_batches: AtomicU64,
    waited: AtomicU64,
    dropped: AtomicU64,
    shed: AtomicU64,
    exported: AtomicU64,
    not_exported: AtomicU64,
    queued: AtomicU64,
    asked: AtomicI64,
    /// By decision.
    answers: [AtomicU64; Answer::ALL.len()],
    deliveries: AtomicU64,
    failed_deliveries: AtomicU64,
    degraded: AtomicBool,
    times_degraded: AtomicU64,
    alone: AtomicBool,
    allowed_offline: AtomicU64,
    refused_offline: AtomicU64,
}

/// A histogram of durations.
#[derive(Debug, Default)]
struct Histogram {
    /// One more than there are bounds: the last counts everything longer.
    counts: [AtomicU64; BUCKETS.len() + 1],
    nanos: AtomicU64,
}

impl Histogram {
    fn count(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BUCKETS.partition_point(|end| *end < nanos);
        add(&self.counts[bucket], 1);
        add(&self.nanos, nanos);
    }
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Metrics {
    /// Counts a call.
    pub fn call(&self, kind: Kind) {
        match kind {
            Kind::Model => add(&self.model_calls, 1),
            Kind::Tool => add(&self.tool_calls, 1),
        }
    }

    /// Counts a decision and how long the engine took for it.
    pub fn decided(&self, took: Duration) {
        self.decisions.count(took);
    }

    /// Counts a trip.
    pub fn verdict(&self, guard: GuardId, verdict: Verdict) {
        let cell = self.verdicts.get(guard as usize).and_then(|row| row.get(verdict as usize));
        if let Some(counter) = cell {
            add(counter, 1);
        }
    }

    /// Counts a call without a trip.
    pub fn allowed(&self) {
        add(&self.allowed, 1);
    }

    /// Adds the tokens of a call.
    pub fn used(&self, usage: &Usage) {
        add(&self.input, usage.input.0);
        add(&self.output, usage.output.0);
        add(&self.cache_read, usage.cache_read.0);
        add(&self.cache_write, usage.cache_write.0);
    }

    /// Adds the cost of a call.
    pub fn spent(&self, cost: NanoUsd) {
        add(&self.money, cost.0);
    }

    /// A stream was opened; it counts until its answer is dropped.
    pub fn stream_opened(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    /// A stream has ended.
    pub fn stream_ended(&self) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sets how many records wait to be written.
    pub fn queue_depth(&self, waiting: usize) {
        self.queue.store(i64::try_from(waiting).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// A batch was written.
    pub fn batch_written(&self, rows: usize) {
        add(&self.batches, 1);
        add(&self.rows, rows as u64);
    }

    /// A batch could not be written.
    pub fn batch_failed(&self) {
        add(&self.failed_batches, 1);
    }

    /// Counts a write that started early because many calls waited.
    pub fn back_pressure(&self) {
        add(&self.waited, 1);
    }

    /// Counts records that were dropped because the outbox was full.
    pub fn dropped(&self, records: u64) {
        add(&self.dropped, records);
    }

    /// Counts a call that was refused because too many were in flight.
    pub fn shed(&self) {
        add(&self.shed, 1);
    }

    /// Counts calls that were exported as telemetry.
    pub fn exported(&self, calls: u64) {
        add(&self.exported, calls);
    }

    /// Counts calls that were not: the queue was full, or the collector did not take them.
    pub fn not_exported(&self, calls: u64) {
        add(&self.not_exported, calls);
    }

    /// A call waits for room in a limit.
    pub fn queued(&self) {
        add(&self.queued, 1);
    }

    /// A call began to wait for a person.
    pub fn asked(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// A waiting call was decided.
    pub fn answered(&self, answer: Answer) {
        self.asked.fetch_sub(1, Ordering::Relaxed);
        if let Some(counter) = self.answers.get(answer as usize) {
            add(counter, 1);
        }
    }

    /// An alert was delivered.
    pub fn delivered(&self) {
        add(&self.deliveries, 1);
    }

    /// An alert could not be delivered.
    pub fn delivery_failed(&self) {
        add(&self.failed_deliveries, 1);
    }

    /// Sets whether Redis is unreachable.
    pub fn set_alone(&self, alone: bool) {
        if !self.alone.swap(alone, Ordering::Relaxed) && alone {
            add(&self.times_degraded, 1);
        }
    }

    /// Counts a call that was allowed while Redis was unreachable, as its policy says.
    pub fn allowed_offline(&self) {
        add(&self.allowed_offline, 1);
    }

    /// Counts a call that was refused because Redis was unreachable, as its policy says.
    pub fn refused_offline(&self) {
        add(&self.refused_offline, 1);
    }

    /// Sets whether the database takes no writes.
    pub fn set_degraded(&self, degraded: bool) {
        if !self.degraded.swap(degraded, Ordering::Relaxed) && degraded {
            add(&self.times_degraded, 1);
        }
    }
}

impl Metrics {
    /// Whether the database takes no writes, or Redis is unreachable.
    pub fn degraded(&self) -> bool {
        self.degraded.load(Ordering::Relaxed) || self.alone.load(Ordering::Relaxed)
    }

    /// Records that wait to be written.
    pub fn waiting(&self) -> i64 {
        self.queue.load(Ordering::Relaxed)
    }

    /// All metrics in Prometheus' text format.
    pub fn text(&self) -> String {
        let mut text = Exposition(String::with_capacity(8192));
        self.write_calls(&mut text);
        self.write_gauges(&mut text);
        self.write_approvals(&mut text);
        self.write_counters(&mut text);
        text.0
    }

    /// Calls, verdicts, and what was used.
    fn write_calls(&self, text: &mut Exposition) {
        text.head("deadstop_calls_total", "counter", "Calls received.");
        text.line("deadstop_calls_total{kind=\"model\"}", get(&self.model_calls));
        text.line("deadstop_calls_total{kind=\"tool\"}", get(&self.tool_calls));

        text.head(
            "deadstop_verdicts_total",
            "counter",
            "Trips by guard and verdict; allow counts calls without a trip.",
        );
        text.line("deadstop_verdicts_total{guard=\"none\",verdict=\"allow\"}", get(&self.allowed));
        for (guard, row) in GUARDS.iter().zip(&self.verdicts) {
            for (verdict, counter) in VERDICTS.iter().zip(row).skip(1) {
                let name =
                    format!("deadstop_verdicts_total{{guard=\"{guard}\",verdict=\"{verdict}\"}}");
                text.line(&name, get(counter));
            }
        }

        text.histogram("deadstop_decision_seconds", "How long a decision takes.", &self.decisions);

        text.head("deadstop_tokens_total", "counter", "Tokens that calls have used.");
        for (kind, counter) in [
            ("input", &self.input),
            ("output", &self.output),
            ("cache_read", &self.cache_read),
            ("cache_write", &self.cache_write),
        ] {
            text.line(&format!("deadstop_tokens_total{{kind=\"{kind}\"}}"), get(counter));
        }
        text.head("deadstop_cost_usd_total", "counter", "Dollars that calls have cost.");
        text.line("deadstop_cost_usd_total", NanoUsd(get(&self.money)).dollars());
    }

    /// What is the case now.
    fn write_gauges(&self, text: &mut Exposition) {
        let (streams, asked) =
            (self.streams.load(Ordering::Relaxed), self.asked.load(Ordering::Relaxed));
        for (name, help, value) in [
            ("deadstop_streams_open", "Open streams.", streams),
            ("deadstop_approvals_waiting", "Calls that wait for a person.", asked),
            ("deadstop_queue_depth", "Records that wait to be written.", self.waiting()),
            (
                "deadstop_degraded",
                "1 while the database or Redis is unreachable.",
                self.degraded().into(),
            ),
        ] {
            text.head(name, "gauge", help);
            text.line(name, value);
        }
    }

    /// Decisions of people.
    fn write_approvals(&self, text: &mut Exposition) {
        let name = "deadstop_approvals_total";
        text.head(name, "counter", "Decisions about calls that waited for a person.");
        for (answer, counter) in Answer::ALL.iter().zip(&self.answers) {
            text.line(&format!("{name}{{answer=\"{}\"}}", answer.name()), get(counter));
        }
    }

    /// What has happened to records, calls and alerts.
    fn write_counters(&self, text: &mut Exposition) {
        for (name, help, counter) in [
            ("deadstop_batches_written_total", "Batches that were written.", &self.batches),
            ("deadstop_rows_written_total", "Records that were written.", &self.rows),
            (
                "deadstop_batches_failed_total",
                "Batches that failed and are retried.",
                &self.failed_batches,
            ),
            (
                "deadstop_back_pressure_total",
                "Writes started early because many calls waited.",
                &self.waited,
            ),
            (
                "deadstop_dropped_total",
                "Calls dropped from the record because the outbox was full.",
                &self.dropped,
            ),
            ("deadstop_shed_total", "Calls refused because too many were in flight.", &self.shed),
            ("deadstop_telemetry_exported_total", "Calls exported as spans.", &self.exported),
            (
                "deadstop_telemetry_dropped_total",
                "Calls that were not exported: the queue was full, or the collector refused them.",
                &self.not_exported,
            ),
            ("deadstop_queued_total", "Calls that waited for room in a limit.", &self.queued),
            ("deadstop_alerts_delivered_total", "Alerts delivered.", &self.deliveries),
            (
                "deadstop_alerts_failed_total",
                "Failed attempts to deliver an alert.",
                &self.failed_deliveries,
            ),
            (
                "deadstop_degraded_total",
                "Times the database or Redis became unreachable.",
                &self.times_degraded,
            ),
            (
                "deadstop_unasked_passed_total",
                "Calls allowed while Redis was unreachable.",
                &self.allowed_offline,
            ),
            (
                "deadstop_unasked_refused_total",
                "Calls refused because Redis was unreachable.",
                &self.refused_offline,
            ),
        ] {
            text.head(name, "counter", help);
            text.line(name, get(counter));
        }
    }
}

/// The text under construction.
struct Exposition(String);

impl Exposition {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let mut total = 0;
        for (end, counter) in BUCKETS.iter().zip(&histogram.counts) {
            total += get(counter);
            self.line(&format!("{name}_bucket{{le=\"{}\"}}", seconds(*end)), total);
        }
        total += get(&histogram.counts[BUCKETS.len()]);
        self.line(&format!("{name}_bucket{{le=\"+Inf\"}}"), total);
        self.line(&format!("{name}_sum"), seconds(get(&histogram.nanos)));
        self.line(&format!("{name}_count"), total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_and_verdicts_stand_under_their_numbers() {
        for (number, guard) in GUARDS.iter().enumerate() {
            assert_eq!(*guard as usize, number, "{guard}");
        }
        for (number, verdict) in VERDICTS.iter().enumerate() {
            assert_eq!(*verdict as usize, number, "{verdict}");
        }
    }

    #[test]
    fn what_is_counted_is_shown() {
        let metrics = Metrics::default();
        metrics.call(Kind::Model);
        metrics.call(Kind::Tool);
        metrics.call(Kind::Tool);
        metrics.allowed();
        metrics.verdict(GuardId::Loop, Verdict::Kill);
        metrics.verdict(GuardId::Strikes, Verdict::Block);
        metrics.used(&Usage {
            input: deadstop_core::Tokens(10),
            output: deadstop_core::Tokens(20),
            cache_read: deadstop_core::Tokens(3),
            cache_write: deadstop_core::Tokens(4),
        });
        metrics.spent(NanoUsd(1_500_000_000));
        metrics.stream_opened();
        metrics.queue_depth(7);
        metrics.batch_written(12);
        metrics.set_degraded(true);
        metrics.set_degraded(true);
        for nanos in [500, 1_000, 1_001, 2_000_000_000] {
            metrics.decided(Duration::from_nanos(nanos));
        }
        let text = metrics.text();
        for line in [
            "deadstop_calls_total{kind=\"model\"} 1",
            "deadstop_calls_total{kind=\"tool\"} 2",
            "deadstop_verdicts_total{guard=\"none\",verdict=\"allow\"} 1",
            "deadstop_verdicts_total{guard=\"loop\",verdict=\"kill\"} 1",
            "deadstop_verdicts_total{guard=\"loop\",verdict=\"block\"} 0",
            "deadstop_verdicts_total{guard=\"strikes\",verdict=\"block\"} 1",
            "deadstop_decision_seconds_bucket{le=\"0.000001\"} 2",
            "deadstop_decision_seconds_bucket{le=\"0.000002\"} 3",
            "deadstop_decision_seconds_bucket{le=\"1\"} 3",
            "deadstop_decision_seconds_bucket{le=\"+Inf\"} 4",
            "deadstop_decision_seconds_count 4",
            "deadstop_tokens_total{kind=\"output\"} 20",
            "deadstop_cost_usd_total 1.5",
            "deadstop_streams_open 1",
            "deadstop_queue_depth 7",
            "deadstop_rows_written_total 12",
            "deadstop_degraded 1",
            "deadstop_degraded_total 1",
        ] {
            assert!(text.lines().any(|found| found == line), "no `{line}` in\n{text}");
        }
        // Every series has its help and type in front of it, once.
        let named = |line: &str| line.split(['{', ' ']).next().map(str::to_owned);
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = named(line).unwrap();
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end).filter(|base| base.ends_with("seconds")))
                .unwrap_or(&name);
            assert_eq!(text.matches(&format!("# TYPE {base} ")).count(), 1, "{base}");
        }
    }
}
