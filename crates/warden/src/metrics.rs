//! Counters for Prometheus and for OTLP. Each is an atomic: counting never waits, wherever a call is.
//!
//! Labels that a caller could choose (agents, models) stand in [`Labelled`] alone, which bounds them and
//! shows a project its own only. All others have a fixed number of series.

pub mod family;
mod histogram;
mod labelled;
mod text;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use deadstop_core::{GuardId, NanoUsd, ProviderQuota, Usage, Verdict};

use crate::ApprovalOutcome;
use family::Family;
use histogram::{DECISIONS, Histogram, WRITES};
pub use labelled::{Labelled, Reply, Upstream};
pub use text::Format;

/// Every guard, in the order of their numbers.
const GUARDS: [GuardId; GuardId::ALL.len()] = GuardId::ALL;
/// Every verdict, in the order of their numbers.
const VERDICTS: [Verdict; 6] =
    [Verdict::Allow, Verdict::Warn, Verdict::Steer, Verdict::Ask, Verdict::Block, Verdict::Kill];

/// Families of providers that quotas are shown for; all others are `other`.
const PROVIDERS: [&str; 3] = ["anthropic", "openai", "gemini"];
/// Windows that quotas are shown for; all others are `other`.
const WINDOWS: [&str; 8] =
    ["5h", "7d", "primary", "secondary", "requests", "tokens", "input-tokens", "output-tokens"];

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
    decisions: Decisions,
    writes: Writes,
    /// By agent, and by provider and model.
    pub labelled: Labelled,
    input: AtomicU64,
    output: AtomicU64,
    cache_read: AtomicU64,
    cache_write: AtomicU64,
    money: AtomicU64,
    streams: AtomicI64,
    queue: AtomicI64,
    rows: AtomicU64,
    failed_batches: AtomicU64,
    waited: AtomicU64,
    dropped: AtomicU64,
    shed: AtomicU64,
    unread: AtomicU64,
    exported: AtomicU64,
    not_exported: AtomicU64,
    lines_not_exported: AtomicU64,
    queued: AtomicU64,
    asked: AtomicI64,
    /// By decision.
    answers: [AtomicU64; ApprovalOutcome::ALL.len()],
    deliveries: AtomicU64,
    failed_deliveries: AtomicU64,
    degraded: AtomicBool,
    times_degraded: AtomicU64,
    alone: AtomicBool,
    allowed_offline: AtomicU64,
    refused_offline: AtomicU64,
}

/// How long decisions take.
#[derive(Debug)]
struct Decisions(Histogram);

impl Default for Decisions {
    fn default() -> Decisions {
        Decisions(Histogram::new(DECISIONS))
    }
}

/// How long writes to the database take.
#[derive(Debug)]
struct Writes(Histogram);

impl Default for Writes {
    fn default() -> Writes {
        Writes(Histogram::new(WRITES))
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
        self.decisions.0.count(took);
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

    /// A batch was written, and how long that took.
    pub fn batch_written(&self, rows: usize, took: Duration) {
        self.writes.0.count(took);
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

    /// Counts an answer of no dialect that passed, though Deadstop could not read all of it.
    pub fn unread(&self) {
        add(&self.unread, 1);
    }

    /// Counts calls that were exported as telemetry.
    pub fn exported(&self, calls: u64) {
        add(&self.exported, calls);
    }

    /// Counts calls that were not: the queue was full, or the collector did not take them.
    pub fn not_exported(&self, calls: u64) {
        add(&self.not_exported, calls);
    }

    /// Counts lines of the log that were not exported.
    pub fn lines_not_exported(&self, lines: u64) {
        add(&self.lines_not_exported, lines);
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
    pub fn answered(&self, answer: ApprovalOutcome) {
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

    /// All metrics as text.
    pub fn text(&self, seen: &Seen<'_>, format: Format) -> String {
        text::write(&self.families(seen), format)
    }

    /// All metrics.
    pub fn families(&self, seen: &Seen<'_>) -> Vec<Family> {
        let mut all = self.calls();
        all.extend(self.gauges(seen));
        all.extend(quotas(seen.quotas));
        all.push(self.approvals());
        all.extend(self.counters());
        all.extend(self.labelled.families(seen.project));
        // A metric without a series is left out: it would be a name without a meaning.
        all.retain(|family| !family.series.is_empty());
        all
    }

    /// Calls, verdicts, and what was used.
    fn calls(&self) -> Vec<Family> {
        let mut calls = Family::counter("deadstop_calls", "Calls received.");
        calls.push(&[("kind", "model")], get(&self.model_calls));
        calls.push(&[("kind", "tool")], get(&self.tool_calls));

        let mut verdicts = Family::counter(
            "deadstop_verdicts",
            "Trips by guard and verdict; allow counts calls without a trip.",
        );
        verdicts.push(&[("guard", "none"), ("verdict", "allow")], get(&self.allowed));
        for (guard, row) in GUARDS.iter().zip(&self.verdicts) {
            for (verdict, counter) in VERDICTS.iter().zip(row).skip(1) {
                let (guard, verdict) = (guard.name(), verdict.to_string());
                verdicts.push(&[("guard", guard), ("verdict", &verdict)], get(counter));
            }
        }
        let mut tokens = Family::counter("deadstop_tokens", "Tokens that calls have used.");
        for (kind, counter) in [
            ("input", &self.input),
            ("output", &self.output),
            ("cache_read", &self.cache_read),
            ("cache_write", &self.cache_write),
        ] {
            tokens.push(&[("kind", kind)], get(counter));
        }
        vec![
            calls,
            verdicts,
            Family::histogram("deadstop_decision_seconds", "How long a decision takes.")
                .of(self.decisions.0.read()),
            tokens,
            Family::counter("deadstop_cost_usd", "Dollars that calls have cost.")
                .of(NanoUsd(get(&self.money)).dollars()),
        ]
    }

    /// What is the case now.
    fn gauges(&self, seen: &Seen<'_>) -> Vec<Family> {
        let now = |counter: &AtomicI64| counter.load(Ordering::Relaxed);
        let mut build = Family::gauge("deadstop_build_info", "The version that runs; always 1.");
        build.push(&[("version", env!("CARGO_PKG_VERSION"))], 1u64);
        let up = |down: &AtomicBool| !down.load(Ordering::Relaxed);
        let mut all = vec![
            build,
            Family::gauge("deadstop_streams_open", "Open streams.").of(now(&self.streams)),
            Family::gauge("deadstop_approvals_waiting", "Calls that wait for a person.")
                .of(now(&self.asked)),
            Family::gauge("deadstop_queue_depth", "Records that wait to be written.")
                .of(self.waiting()),
            Family::gauge("deadstop_queue_limit", "Calls that may wait; more are dropped.")
                .of(seen.queue_limit as u64),
            Family::gauge("deadstop_telemetry_queue_depth", "Calls that wait to be exported.")
                .of(seen.exports as u64),
            Family::gauge("deadstop_degraded", "1 while the database or Redis is unreachable.")
                .of(self.degraded()),
            Family::gauge("deadstop_database_up", "0 while the database takes no writes.")
                .of(up(&self.degraded)),
        ];
        if seen.shared {
            let redis = Family::gauge("deadstop_redis_up", "0 while Redis is unreachable.");
            all.push(redis.of(up(&self.alone)));
        }
        all
    }

    /// Decisions of people.
    fn approvals(&self) -> Family {
        let help = "Decisions about calls that waited for a person.";
        let mut family = Family::counter("deadstop_approvals", help);
        for (answer, counter) in ApprovalOutcome::ALL.iter().zip(&self.answers) {
            family.push(&[("answer", answer.name())], get(counter));
        }
        family
    }

    /// What has happened to records, calls and alerts.
    fn counters(&self) -> Vec<Family> {
        let writes = "How long it takes to write a batch to the database.";
        let mut all = vec![
            Family::histogram("deadstop_store_write_seconds", writes).of(self.writes.0.read()),
        ];
        for (name, help, counter) in [
            ("deadstop_rows_written", "Records that were written.", &self.rows),
            (
                "deadstop_batches_failed",
                "Batches that failed and are retried.",
                &self.failed_batches,
            ),
            (
                "deadstop_back_pressure",
                "Writes started early because many calls waited.",
                &self.waited,
            ),
            (
                "deadstop_dropped",
                "Calls dropped from the record because the outbox was full.",
                &self.dropped,
            ),
            ("deadstop_shed", "Calls refused because too many were in flight.", &self.shed),
            (
                "deadstop_unread",
                "Answers outside the model APIs that passed without being read to their end.",
                &self.unread,
            ),
            ("deadstop_telemetry_exported", "Calls exported as spans.", &self.exported),
            (
                "deadstop_telemetry_dropped",
                "Calls that were not exported: the queue was full, or the collector refused them.",
                &self.not_exported,
            ),
            (
                "deadstop_telemetry_lines_dropped",
                "Lines of the log that were not exported.",
                &self.lines_not_exported,
            ),
            ("deadstop_queued", "Calls that waited for room in a limit.", &self.queued),
            ("deadstop_alerts_delivered", "Alerts delivered.", &self.deliveries),
            (
                "deadstop_alerts_failed",
                "Failed attempts to deliver an alert.",
                &self.failed_deliveries,
            ),
            (
                "deadstop_outages",
                "Times the database or Redis became unreachable.",
                &self.times_degraded,
            ),
            (
                "deadstop_unasked_passed",
                "Calls allowed while Redis was unreachable.",
                &self.allowed_offline,
            ),
            (
                "deadstop_unasked_refused",
                "Calls refused because Redis was unreachable.",
                &self.refused_offline,
            ),
        ] {
            all.push(Family::counter(name, help).of(get(counter)));
        }
        all
    }
}

/// What the reader of metrics is shown beside the counters.
#[derive(Debug, Clone, Default)]
pub struct Seen<'a> {
    /// The windows that providers have reported to agents.
    pub quotas: &'a [ProviderQuota],
    /// The project whose agents and models are shown; `None` for those of all.
    pub project: Option<&'a str>,
    /// Calls that wait to be exported.
    pub exports: usize,
    /// Calls that may wait to be written.
    pub queue_limit: usize,
    /// Whether this is a node of a fleet.
    pub shared: bool,
}

/// The fullest window of each kind, and when it begins anew.
fn quotas(quotas: &[ProviderQuota]) -> [Family; 2] {
    let mut fullest: BTreeMap<(&str, &str), &ProviderQuota> = BTreeMap::new();
    for found in quotas {
        let provider = PROVIDERS.into_iter().find(|name| found.provider.contains(name));
        let window = WINDOWS.into_iter().find(|name| *name == found.quota.window);
        let place = (provider.unwrap_or("other"), window.unwrap_or("other"));
        let held = fullest.entry(place).or_insert(found);
        if found.quota.used > held.quota.used {
            *held = found;
        }
    }
    let help = "Used share of a provider's own window, the fullest of all agents.";
    let mut used = Family::gauge("deadstop_quota_used_ratio", help);
    let help = "When that window begins anew.";
    let mut resets = Family::gauge("deadstop_quota_reset_timestamp_seconds", help);
    for ((provider, window), found) in &fullest {
        let labels = [("provider", *provider), ("window", *window)];
        used.push(&labels, found.quota.used);
        resets.push(&labels, found.quota.resets.0 / 1000);
    }
    [used, resets]
}

#[cfg(test)]
mod tests {
    use deadstop_core::{Quota, Time};

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
        metrics.batch_written(12, Duration::from_millis(3));
        metrics.set_degraded(true);
        metrics.set_degraded(true);
        for nanos in [500, 1_000, 1_001, 2_000_000_000] {
            metrics.decided(Duration::from_nanos(nanos));
        }
        let quota = |provider: &str, window: &str, used: f64| ProviderQuota {
            provider: provider.into(),
            quota: Quota { window: window.into(), used, resets: Time(5_000_000) },
        };
        let quotas = [
            quota("anthropic", "5h", 0.2),
            quota("my-anthropic", "5h", 0.61),
            quota("https://evil\"}", "{}\n", 1.0),
        ];
        metrics.labelled.trip("p", "a \"b\"\n", GuardId::Loop, Verdict::Kill);
        let exemplar = family::Exemplar {
            trace: [0xab; 16],
            span: [1; 8],
            took: Duration::from_millis(70),
            at: Time(1_700_000_000_500),
        };
        let upstream = metrics.labelled.upstream("p", "openai", "gpt-4o");
        upstream.answered(Reply::Status(503), exemplar);
        let seen = Seen { quotas: &quotas, project: Some("p"), ..Seen::default() };
        let text = metrics.text(&seen, Format::Text);
        for line in [
            "deadstop_quota_used_ratio{provider=\"anthropic\",window=\"5h\"} 0.61",
            "deadstop_quota_reset_timestamp_seconds{provider=\"anthropic\",window=\"5h\"} 5000",
            "deadstop_quota_used_ratio{provider=\"other\",window=\"other\"} 1",
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
            "deadstop_outages_total 1",
            "deadstop_database_up 0",
            "deadstop_store_write_seconds_bucket{le=\"0.005\"} 1",
            "deadstop_agent_verdicts_total{project=\"p\",agent=\"a \\\"b\\\"\\n\",guard=\"loop\",verdict=\"kill\"} 1",
            "deadstop_upstream_answers_total{project=\"p\",provider=\"openai\",model=\"gpt-4o\",status=\"5xx\"} 1",
            "deadstop_upstream_duration_seconds_bucket{project=\"p\",provider=\"openai\",model=\"gpt-4o\",le=\"0.1\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "no `{line}` in\n{text}");
        }
        let open = metrics.text(&seen, Format::OpenMetrics);
        let shown = "le=\"0.1\"} 1 # {trace_id=\"abababababababababababababababab\",\
                     span_id=\"0101010101010101\"} 0.07 1700000000.500\n";
        assert!(open.contains(shown) && !text.contains("trace_id"), "{open}");
        assert!(open.contains("# TYPE deadstop_calls counter\n") && open.ends_with("# EOF\n"));
        assert!(open.contains("le=\"1.0\""), "{open}");
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
