//! Telemetry out, over OTLP/HTTP: calls that ended or were refused as spans; kills, trips and orders as
//! logs; all metrics, once a minute.
//!
//! A call never waits for this: it is put into a bounded queue, and what does not fit is counted and
//! left out. Each signal has a task of its own. Prompts and answers are not exported; names are redacted
//! as they are for the database.

mod measures;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use deadstop_alerts::Way;
use deadstop_core::{Measure, Status};
use deadstop_otlp::line::{self, LogEntry, Severity};
use deadstop_otlp::names::{self, deadstop as ours};
use deadstop_otlp::span::{self, Finished};
use deadstop_otlp::{Sender, What};
use deadstop_store::CallKind;
use deadstop_warden::{Exported, Warden, log};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::door::Lines;
use settings::Target;
pub use settings::{RawTelemetry, Telemetry};

/// Spans that wait.
const QUEUE: usize = 8192;
/// Spans of one request.
const BATCH: usize = 512;
/// How long a span waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How long a collector may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a request is sent again, and how long after the first time; doubled each time.
const AGAIN: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Begins to export what a warden does.
pub(crate) fn start(telemetry: Telemetry, way: &Way, warden: &Arc<Warden>) {
    let metrics = Arc::clone(&warden.metrics);
    if let Some(target) = telemetry.traces.clone() {
        let (sender, queue) = mpsc::channel(QUEUE);
        warden.export_to(sender);
        let (telemetry, metrics) = (telemetry.clone(), Arc::clone(&metrics));
        let road = Road::new(target, way);
        tokio::spawn(async move {
            let written = |calls: &[Exported]| {
                let sampled = calls.iter().filter(|call| telemetry.samples(call));
                let spans: Vec<Finished> = sampled.map(finished).collect();
                (span::encode(&spans, telemetry.sender()), spans.len() as u64)
            };
            let count = |sent: bool, calls: u64| match sent {
                true => metrics.exported(calls),
                false => metrics.not_exported(calls),
            };
            run(road, queue, written, count).await;
        });
    }
    if let Some(target) = telemetry.logs.clone() {
        let (sender, queue) = mpsc::channel(QUEUE);
        warden.export_lines_to(sender);
        let telemetry = telemetry.clone();
        let road = Road::new(target, way);
        tokio::spawn(async move {
            let written = |lines: &[log::LogLine]| {
                let lines: Vec<LogEntry> = lines.iter().map(line).collect();
                (line::encode(&lines, telemetry.sender()), lines.len() as u64)
            };
            let count = |sent: bool, lines: u64| {
                if !sent {
                    metrics.lines_not_exported(lines);
                }
            };
            run(road, queue, written, count).await;
        });
    }
    if let Some(target) = telemetry.metrics.clone() {
        let road = Road::new(target, way);
        tokio::spawn(measures::run(telemetry, road, Arc::downgrade(warden)));
    }
}

/// Sends what comes out of a queue, many at a time.
async fn run<T>(
    mut road: Road,
    mut queue: mpsc::Receiver<T>,
    written: impl Fn(&[T]) -> (Vec<u8>, u64),
    count: impl Fn(bool, u64),
) {
    loop {
        let Some(first) = queue.recv().await else { return };
        let mut waiting = vec![first];
        let until = Instant::now() + GATHER;
        while waiting.len() < BATCH {
            match tokio::time::timeout_at(until, queue.recv()).await {
                Ok(Some(next)) => waiting.push(next),
                Ok(None) | Err(_) => break,
            }
        }
        let (body, number) = written(&waiting);
        if number == 0 {
            continue;
        }
        let sent = road.send(body.into()).await;
        count(sent.is_ok(), number);
        road.tell(&sent);
    }
}

impl Telemetry {
    /// Whether a call is exported: as its caller decided about the trace, or else all calls of one
    /// session are, or none.
    fn samples(&self, call: &Exported) -> bool {
        if let (true, Some(sampled)) = (self.follows, call.sampled) {
            return sampled;
        }
        let place = format!("{}/{}", call.row.project, call.row.session_number);
        let at = deadstop_core::Digest::of(place.as_bytes()).0 as f64 / u64::MAX as f64;
        at < self.share || self.share >= 1.0
    }

    /// Who sends.
    fn sender(&self) -> Sender<'_> {
        Sender { resource: &self.resource, version: env!("CARGO_PKG_VERSION") }
    }
}

/// The way to a collector.
struct Road {
    target: Target,
    way: Way,
    lines: Lines,
    /// Whether the last request did not arrive.
    failing: bool,
}

impl Road {
    /// No connection yet. Must be called inside a runtime.
    fn new(target: Target, way: &Way) -> Road {
        Road { target, way: way.clone(), lines: Lines::new(), failing: false }
    }

    /// Says in the log that nothing arrives, once for each time that it begins.
    fn tell(&mut self, sent: &Result<(), String>) {
        let failed = sent.is_err();
        if let (Err(why), false) = (sent, std::mem::replace(&mut self.failing, failed)) {
            tracing::warn!("telemetry is not exported: {why}");
        }
    }

    async fn send(&self, body: bytes::Bytes) -> Result<(), String> {
        let endpoint = &self.target.endpoint;
        let mut pause = FIRST_PAUSE;
        let mut left = AGAIN;
        loop {
            let sent = tokio::time::timeout(PATIENCE, self.once(body.clone())).await;
            let (why, again) = match sent {
                Ok(Ok(status)) if status.is_success() => return Ok(()),
                Ok(Ok(status)) => (
                    format!("{endpoint} answered {status}"),
                    matches!(status.as_u16(), 429 | 502 | 503 | 504),
                ),
                Ok(Err(error)) => (format!("{endpoint}: {error}"), true),
                Err(_) => (format!("{endpoint} did not answer"), true),
            };
            if !again || left == 0 {
                return Err(why);
            }
            tokio::time::sleep(pause).await;
            (pause, left) = (pause * 2, left - 1);
        }
    }

    async fn once(&self, body: bytes::Bytes) -> Result<StatusCode, String> {
        let Target { endpoint, headers } = &self.target;
        let host = endpoint.authority().map_or("", |host| host.as_str());
        let mut request = Request::post(endpoint.clone())
            .header(header::HOST, host)
            .header(header::CONTENT_TYPE, "application/x-protobuf");
        for (name, value) in headers {
            request = request.header(name, value.reveal());
        }
        let request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
        let sent = self.lines.send(&self.way, request).await;
        let response = sent.map_err(|error| error.to_string())?;
        let status = response.status();
        // The connection is used again once its answer was read.
        let _ = response.into_body().collect().await;
        Ok(status)
    }
}

/// A call as a span tells of it.
fn finished(call: &Exported) -> Finished {
    let Exported { row, agent, session, trip, place, .. } = call;
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
    let failed = match row.status {
        Some(Status::Ok | Status::Cancelled) => None,
        Some(Status::Error) => Some("it was answered with an error".to_owned()),
        Some(Status::Fault) => Some("it was not answered".to_owned()),
        None => Some(trip.as_ref().map_or("refused".to_owned(), |trip| trip.explain())),
    };
    let what = match row.kind {
        CallKind::Model => {
            What::Model { provider: row.server.clone(), model: row.name.clone(), usage: row.usage }
        }
        CallKind::Tool => {
            What::Tool { name: row.name.clone(), server: row.server.clone(), call_id: None }
        }
    };
    Finished {
        project: row.project.clone(),
        agent: agent.clone(),
        session: session.clone(),
        trace: place.trace,
        span: place.span,
        parent: place.parent,
        what,
        began_ms: row.at.0,
        ended_ms: row.at.0.saturating_add(row.duration.map_or(0, |took| took.0)),
        failed,
        cost_usd: row.cost.dollars(),
        decided,
    }
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
