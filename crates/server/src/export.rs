//! Telemetry out, over OTLP/HTTP: calls that ended or were refused as spans, with the runs around them;
//! kills, trips and orders as logs; all metrics, once a minute.
//!
//! A call never waits for this: it is put into a bounded queue, and what does not fit is counted and
//! left out. Each signal has a task of its own. Prompts and answers are not exported unless that was asked
//! for; they and names are redacted as they are for the database. What still waits when the server stops is sent within two seconds.

mod measures;
mod road;
mod runs;
mod settings;

use std::sync::{Arc, Weak};
use std::time::Duration;

use deadstop_alerts::Way;
use deadstop_core::{Measure, Status, Time};
use deadstop_otlp::line::{self, LogEntry, Severity};
use deadstop_otlp::names::{self, deadstop as ours};
use deadstop_otlp::span::{self, Failed, Finished, Texts, Work};
use deadstop_otlp::{Sender, What};
use deadstop_store::CallKind;
use deadstop_warden::metrics::Metrics;
use deadstop_warden::{Exported, ExportedCall, Exports, Warden, log, now};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use road::Road;
use runs::Runs;
pub use settings::{RawTelemetry, Telemetry};

/// Spans that wait.
const QUEUE: usize = 8192;
/// Spans of one request.
const BATCH: usize = 512;
/// How long a span waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How long a task leaves its queue alone: a call that wakes it pays for that.
const PAUSE: Duration = Duration::from_millis(50);
/// How often a task looks what is over, where nothing else wakes it.
const LOOK: Duration = Duration::from_secs(10);
/// How long a server that stops waits for its collector.
const LAST: Duration = Duration::from_secs(2);

/// The tasks that send telemetry.
pub(crate) struct Exporter {
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Exporter {
    /// Begins to export what a warden does.
    pub(crate) fn start(telemetry: &Telemetry, way: &Way, warden: &Arc<Warden>) -> Exporter {
        let stop = CancellationToken::new();
        let road = |target| Road::new(target, way, &stop);
        let mut tasks = Vec::new();
        if let Some(target) = telemetry.traces.clone() {
            let (sender, queue) = mpsc::channel(QUEUE);
            let Telemetry { texts, sampler, .. } = *telemetry;
            warden.export_to(Exports { queue: sender, texts, sampler });
            let calls = Calls {
                telemetry: telemetry.clone(),
                metrics: Arc::clone(&warden.metrics),
                warden: Arc::downgrade(warden),
                runs: Runs::default(),
                looked: now(),
            };
            tasks.push(tokio::spawn(run(road(target), queue, calls, stop.clone())));
        }
        if let Some(target) = telemetry.logs.clone() {
            let (sender, queue) = mpsc::channel(QUEUE);
            warden.export_lines_to(sender);
            let (telemetry, metrics) = (telemetry.clone(), Arc::clone(&warden.metrics));
            let lines = LogLines { telemetry, metrics };
            tasks.push(tokio::spawn(run(road(target), queue, lines, stop.clone())));
        }
        if let Some(target) = telemetry.metrics.clone() {
            let (telemetry, warden) = (telemetry.clone(), Arc::downgrade(warden));
            let sent = measures::run(telemetry, road(target), warden, stop.clone());
            tasks.push(tokio::spawn(sent));
        }
        Exporter { stop, tasks }
    }

    /// Sends what waits, as far as the collector takes it in time.
    pub(crate) async fn finish(self) {
        self.stop.cancel();
        let until = Instant::now() + LAST;
        let mut lost = false;
        for mut task in self.tasks {
            if tokio::time::timeout_at(until, &mut task).await.is_err() {
                task.abort();
                lost = true;
            }
        }
        if lost {
            let seconds = LAST.as_secs();
            tracing::warn!(
                "the collector did not take the last telemetry within {seconds} s; it is lost"
            );
        }
    }
}

/// What a task sends of one signal.
trait Signal {
    /// What comes out of the queue.
    type Item;

    /// Things from the queue as a request, and how many it has.
    fn written(&mut self, items: Vec<Self::Item>, moment: Moment) -> (Vec<u8>, u64);

    /// So many were sent, or were not.
    fn count(&self, sent: bool, number: u64);
}

/// When a request is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Usual,
    /// Nothing comes after it.
    Last,
}

/// Sends what comes out of a queue, many at a time.
async fn run<S: Signal>(
    mut road: Road,
    mut queue: mpsc::Receiver<S::Item>,
    mut signal: S,
    stop: CancellationToken,
) {
    loop {
        let (items, moment) = gather(&mut queue, &stop).await;
        let (body, number) = signal.written(items, moment);
        if number > 0 {
            let sent = road.send(body.into()).await;
            signal.count(sent, number);
        }
        if moment == Moment::Last {
            return;
        }
    }
}

/// What waits in a queue: a request's worth, or what came within a second, or nothing for a while.
async fn gather<T>(queue: &mut mpsc::Receiver<T>, stop: &CancellationToken) -> (Vec<T>, Moment) {
    let mut waiting = Vec::new();
    let mut until = Instant::now() + LOOK;
    while waiting.len() < BATCH {
        let (before, room) = (waiting.len(), BATCH - waiting.len());
        tokio::select! {
            // What waits comes before the end.
            biased;
            came = queue.recv_many(&mut waiting, room) => if came == 0 {
                return (waiting, Moment::Last);
            },
            () = stop.cancelled() => return (waiting, Moment::Last),
            () = tokio::time::sleep_until(until) => break,
        }
        if before == 0 {
            until = Instant::now() + GATHER;
        }
        if waiting.len() < BATCH {
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = stop.cancelled() => {}
            }
        }
    }
    (waiting, Moment::Usual)
}

/// Spans.
struct Calls {
    telemetry: Telemetry,
    metrics: Arc<Metrics>,
    /// What redacts texts.
    warden: Weak<Warden>,
    runs: Runs,
    /// When it was last looked which runs are over.
    looked: Time,
}

impl Signal for Calls {
    type Item = Exported;

    fn written(&mut self, items: Vec<Exported>, moment: Moment) -> (Vec<u8>, u64) {
        let now = now();
        let mut spans = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Exported::Call(call) => {
                    let parent = self.runs.add(&call, now).or(call.place.parent);
                    spans.push(finished(&call, parent, self.texts(&call)));
                }
                Exported::Over { project, session } => {
                    spans.extend(self.runs.end(&project, session));
                }
            }
        }
        if moment == Moment::Last {
            spans.extend(self.runs.all());
        } else if now.since(self.looked).0 >= LOOK.as_millis() as u64 || self.runs.are_many() {
            self.looked = now;
            spans.extend(self.runs.idle(now));
        }
        (span::encode(&spans, self.telemetry.sender()), spans.len() as u64)
    }

    fn count(&self, sent: bool, number: u64) {
        match sent {
            true => self.metrics.exported(number),
            false => self.metrics.not_exported(number),
        }
    }
}

impl Calls {
    /// What was asked and answered, redacted as it is for the database, where that is wanted.
    fn texts(&self, call: &ExportedCall) -> Texts {
        let found = call.said.as_ref().zip(self.warden.upgrade());
        let Some((said, warden)) = found else { return Texts::default() };
        let project = &call.row.project;
        let asked = warden.shown(project, &said.request);
        // A tool call as people read it begins with the tool's name.
        let tool = |text: &str| Some(text.strip_prefix(&call.row.name)?.trim_start().to_owned());
        let asked = match call.row.kind {
            CallKind::Model => asked,
            CallKind::Tool => asked.map(|text| tool(&text).unwrap_or(text)),
        };
        Texts { asked, answered: warden.shown(project, &said.response) }
    }
}

/// Lines of the log.
struct LogLines {
    telemetry: Telemetry,
    metrics: Arc<Metrics>,
}

impl Signal for LogLines {
    type Item = log::LogLine;

    fn written(&mut self, items: Vec<log::LogLine>, _: Moment) -> (Vec<u8>, u64) {
        let lines: Vec<LogEntry> = items.iter().map(line).collect();
        (line::encode(&lines, self.telemetry.sender()), lines.len() as u64)
    }

    fn count(&self, sent: bool, number: u64) {
        if !sent {
            self.metrics.lines_not_exported(number);
        }
    }
}

impl Telemetry {
    /// Who sends.
    fn sender(&self) -> Sender<'_> {
        Sender { resource: &self.resource, version: env!("CARGO_PKG_VERSION") }
    }
}

/// A call as a span tells of it.
fn finished(call: &ExportedCall, parent: Option<[u8; 8]>, texts: Texts) -> Finished {
    let ExportedCall { row, agent, session, trip, place, model, call_id, .. } = call;
    let mut decided = vec![(ours::VERDICT, row.verdict.to_string())];
    if let Some(trip) = trip {
        decided.push((ours::GUARD, trip.guard.name().to_owned()));
        decided.push((ours::REASON, trip.reason.clone()));
        for (name, measure) in [(ours::MEASURED, trip.measured), (ours::LIMIT, trip.limit)] {
            if measure != Measure::None {
                decided.push((name, measure.to_string()));
            }
        }
    }
    decided.extend(row.incident.clone().map(|incident| (ours::INCIDENT, incident)));
    let (name, server) = (row.name.clone(), row.server.clone());
    let what = match row.kind {
        CallKind::Model => What::Model { provider: server, model: name, usage: row.usage },
        CallKind::Tool => What::Tool { name, server, call_id: call_id.clone() },
    };
    Finished {
        project: row.project.clone(),
        agent: agent.clone(),
        session: session.clone(),
        trace: place.trace,
        span: place.span,
        parent,
        work: Work::Call { what, answered_by: model.clone(), cost_usd: row.cost.dollars(), texts },
        began_ms: row.at.0,
        ended_ms: row.at.0.saturating_add(row.duration.map_or(0, |took| took.0)),
        failed: failed(call),
        decided,
    }
}

/// Why a call failed or was refused, if it was.
fn failed(call: &ExportedCall) -> Option<Failed> {
    let ExportedCall { row, trip, .. } = call;
    let cause = || row.cause.as_deref().unwrap_or("_OTHER").replace(' ', "_");
    let (class, said) = match (row.status, row.kind) {
        (Some(Status::Ok | Status::Cancelled), _) => return None,
        // The conventions' own word.
        (Some(Status::Error), CallKind::Tool) => {
            ("tool_error".to_owned(), "it was answered with an error".to_owned())
        }
        (Some(Status::Error), CallKind::Model) => {
            (cause(), "it was answered with an error".to_owned())
        }
        (Some(Status::Fault), _) => (cause(), "it was not answered".to_owned()),
        (None, _) => match trip {
            Some(trip) => (trip.reason.clone(), trip.explain()),
            None => ("refused".to_owned(), "refused".to_owned()),
        },
    };
    Some(Failed { class, said })
}

/// A line of the log as OTLP has it: `deadstop::kill` is the event `deadstop.kill`.
fn line(line: &log::LogLine) -> LogEntry {
    let severity = if line.target == log::KILL { Severity::Warn } else { Severity::Info };
    let fields = line.fields.iter().map(|(name, value)| (names::of_field(name), value.clone()));
    LogEntry {
        at_ms: line.at.0,
        severity,
        event: line.target.replace("::", "."),
        body: line.text.clone(),
        attributes: fields.collect(),
        place: line.place.map(|place| (place.trace, place.span)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request's worth goes at once, fewer wait for a second, and what is left goes when the server stops.
    #[tokio::test(start_paused = true)]
    async fn a_queue_is_sent_in_batches() {
        let (sender, mut queue) = mpsc::channel(QUEUE);
        let stop = CancellationToken::new();
        for n in 0..BATCH + 3 {
            sender.try_send(n).unwrap();
        }
        let began = Instant::now();
        let (first, moment) = gather(&mut queue, &stop).await;
        assert_eq!((first.len(), moment), (BATCH, Moment::Usual));
        assert_eq!(began.elapsed(), Duration::ZERO, "a full request does not wait");
        let (rest, moment) = gather(&mut queue, &stop).await;
        assert_eq!((rest, moment), (vec![BATCH, BATCH + 1, BATCH + 2], Moment::Usual));
        assert!(began.elapsed() >= GATHER && began.elapsed() < LOOK, "others might have come");
        let (nothing, moment) = gather(&mut queue, &stop).await;
        assert_eq!((nothing.len(), moment), (0, Moment::Usual), "to look for what is over");
        for n in 0..BATCH + 1 {
            sender.try_send(n).unwrap();
        }
        stop.cancel();
        let (first, moment) = gather(&mut queue, &stop).await;
        assert_eq!((first.len(), moment), (BATCH, Moment::Usual));
        let (last, moment) = gather(&mut queue, &stop).await;
        assert_eq!((last.len(), moment), (1, Moment::Last));
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_nothing_comes_into_is_over() {
        let (sender, mut queue) = mpsc::channel(QUEUE);
        sender.try_send(1).unwrap();
        drop(sender);
        let (last, moment) = gather(&mut queue, &CancellationToken::new()).await;
        assert_eq!((last, moment), (vec![1], Moment::Last));
    }

    /// A task whose collector hangs is not waited for longer than two seconds, however many there are.
    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_for_collectors_for_a_bounded_time() {
        let stop = CancellationToken::new();
        let ends = stop.clone();
        let tasks = vec![
            tokio::spawn(std::future::pending()),
            tokio::spawn(async move { ends.cancelled().await }),
            tokio::spawn(std::future::pending()),
        ];
        let began = Instant::now();
        Exporter { stop, tasks }.finish().await;
        assert!((LAST..2 * LAST).contains(&began.elapsed()));
    }
}
