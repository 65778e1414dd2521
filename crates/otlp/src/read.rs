//! Telemetry to calls.
//!
//! A span or a log record is one model call, one tool call, or neither. The emitters differ in their
//! names only, so all of them are read alike: the kind of a span first, then each fact under the first
//! of its names that is there.

mod events;
mod langchain;
mod spans;

use deadstop_core::NanoUsd;
use opentelemetry_proto::tonic::collector::logs::v1 as logs_api;
use opentelemetry_proto::tonic::collector::metrics::v1 as metrics_api;
use opentelemetry_proto::tonic::collector::trace::v1 as trace_api;
use prost::Message;
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

use crate::bound;
use crate::call::What;
use crate::model::{Logs, Traces};

/// How telemetry is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `application/x-protobuf`.
    Protobuf,
    /// `application/json`.
    Json,
}

/// What telemetry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Log records.
    Logs,
    /// Figures.
    Metrics,
}

/// Telemetry that cannot be read.
#[derive(Debug, Error)]
#[error("the body is not an OTLP {what} request ({how}): {why}")]
pub struct BadTelemetry {
    what: &'static str,
    how: &'static str,
    why: String,
    vast: bool,
}

impl BadTelemetry {
    /// Whether a smaller batch could be read.
    pub fn is_too_large(&self) -> bool {
        self.vast
    }
}

/// What a request tells of.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// Its calls, in the order in which they ended.
    pub calls: Vec<Observed>,
    /// Spans or records that are no call.
    pub others: usize,
    /// Those that could not be used, and why.
    pub rejected: Vec<String>,
}

/// A call that telemetry tells of.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The telemetry's own id for it.
    pub id: String,
    /// The agent.
    pub agent: Option<String>,
    /// The conversation, or else the trace.
    pub session: Option<String>,
    /// When it began, in milliseconds since 1970.
    pub began_ms: u64,
    /// When it ended.
    pub ended_ms: u64,
    /// Why it failed, if it did.
    pub failed: Option<String>,
    /// What it was.
    pub what: What,
    /// A model's prompt, where the emitter includes it.
    pub prompt: Option<String>,
    /// A tool's arguments, where the emitter includes them.
    pub arguments: Value,
    /// The model's answer or the tool's result, where the emitter includes it.
    pub answer: Option<String>,
    /// What the emitter says that it cost.
    pub cost: Option<NanoUsd>,
}

/// Reads spans.
pub fn traces(body: &[u8], format: Format) -> Result<Batch, BadTelemetry> {
    let about = About { signal: Signal::Traces, format };
    match format {
        Format::Json => Ok(spans::read(&about.json(body)?)),
        Format::Protobuf => {
            let request: trace_api::ExportTraceServiceRequest = about.protobuf(body)?;
            Ok(spans::read(&Traces::from(&request)))
        }
    }
}

/// Reads log records.
pub fn logs(body: &[u8], format: Format) -> Result<Batch, BadTelemetry> {
    let about = About { signal: Signal::Logs, format };
    match format {
        Format::Json => Ok(events::read(&about.json(body)?)),
        Format::Protobuf => {
            let request: logs_api::ExportLogsServiceRequest = about.protobuf(body)?;
            Ok(events::read(&Logs::from(&request)))
        }
    }
}

/// What a JSON document of OTLP is about, by its first field; `None` if it is none. Its beginning is
/// enough.
pub fn signal(document: &[u8]) -> Option<Signal> {
    let rest = document.trim_ascii_start().strip_prefix(b"{")?.trim_ascii_start();
    let named = |name: &str| rest.strip_prefix(b"\"")?.strip_prefix(name.as_bytes());
    let is = |name: &str| named(name).is_some_and(|rest| rest.starts_with(b"\""));
    let known = [
        ("resourceSpans", Signal::Traces),
        ("resourceLogs", Signal::Logs),
        ("resourceMetrics", Signal::Metrics),
    ];
    known.into_iter().find(|(name, _)| is(name)).map(|(_, signal)| signal)
}

/// Reads a JSON document of OTLP, as files have it: the collector's file exporter writes one a line.
pub fn document(body: &[u8]) -> Result<Batch, BadTelemetry> {
    match signal(body) {
        Some(Signal::Traces) => traces(body, Format::Json),
        Some(Signal::Logs) => logs(body, Format::Json),
        Some(Signal::Metrics) => metrics(body, Format::Json),
        None => Err(BadTelemetry {
            what: "export",
            how: "JSON",
            why: "it begins with none of resourceSpans, resourceLogs and resourceMetrics"
                .to_owned(),
            vast: false,
        }),
    }
}

/// Checks metrics. They tell of no single call: their figures are sums.
pub fn metrics(body: &[u8], format: Format) -> Result<Batch, BadTelemetry> {
    let about = About { signal: Signal::Metrics, format };
    let request: metrics_api::ExportMetricsServiceRequest = match format {
        Format::Json => about.json(body)?,
        Format::Protobuf => about.protobuf(body)?,
    };
    let scopes = request.resource_metrics.iter().flat_map(|resource| &resource.scope_metrics);
    Ok(Batch { others: scopes.map(|scope| scope.metrics.len()).sum(), ..Batch::default() })
}

/// The answer to a request of which so many items were rejected.
pub fn answer(signal: Signal, format: Format, rejected: &[String]) -> Vec<u8> {
    let count = i64::try_from(rejected.len()).unwrap_or(i64::MAX);
    let message = rejected.first().cloned().unwrap_or_default();
    let field = match signal {
        Signal::Traces => "rejectedSpans",
        Signal::Logs => "rejectedLogRecords",
        Signal::Metrics => "rejectedDataPoints",
    };
    match (format, signal) {
        (Format::Json, _) if count == 0 => b"{}".to_vec(),
        (Format::Json, _) => {
            let part = json!({ field: count.to_string(), "errorMessage": message });
            json!({ "partialSuccess": part }).to_string().into_bytes()
        }
        (Format::Protobuf, _) if count == 0 => Vec::new(),
        (Format::Protobuf, Signal::Traces) => trace_api::ExportTraceServiceResponse {
            partial_success: Some(trace_api::ExportTracePartialSuccess {
                rejected_spans: count,
                error_message: message,
            }),
        }
        .encode_to_vec(),
        (Format::Protobuf, Signal::Logs) => logs_api::ExportLogsServiceResponse {
            partial_success: Some(logs_api::ExportLogsPartialSuccess {
                rejected_log_records: count,
                error_message: message,
            }),
        }
        .encode_to_vec(),
        (Format::Protobuf, Signal::Metrics) => metrics_api::ExportMetricsServiceResponse {
            partial_success: Some(metrics_api::ExportMetricsPartialSuccess {
                rejected_data_points: count,
                error_message: message,
            }),
        }
        .encode_to_vec(),
    }
}

/// What a request is, for what is said of one that cannot be read.
#[derive(Clone, Copy)]
struct About {
    signal: Signal,
    format: Format,
}

impl About {
    fn json<'a, M: Deserialize<'a>>(self, body: &'a [u8]) -> Result<M, BadTelemetry> {
        if bound::is_vast_json(body) {
            return Err(self.bad(Why::Vast));
        }
        serde_json::from_slice(body).map_err(|error| self.bad(Why::Other(error.to_string())))
    }

    fn protobuf<M: Message + Default>(self, body: &[u8]) -> Result<M, BadTelemetry> {
        if bound::is_vast(body, self.signal) {
            return Err(self.bad(Why::Vast));
        }
        M::decode(body).map_err(|error| self.bad(Why::Other(error.to_string())))
    }

    fn bad(self, why: Why) -> BadTelemetry {
        let what = match self.signal {
            Signal::Traces => "trace",
            Signal::Logs => "logs",
            Signal::Metrics => "metrics",
        };
        let how = match self.format {
            Format::Protobuf => "protobuf",
            Format::Json => "JSON",
        };
        let vast = matches!(why, Why::Vast);
        let why = match why {
            Why::Vast => "it has too many parts, send smaller batches".to_owned(),
            Why::Other(why) => why,
        };
        BadTelemetry { what, how, why, vast }
    }
}

/// Why a request cannot be read.
enum Why {
    /// It has too many parts.
    Vast,
    Other(String),
}

/// Nanoseconds to milliseconds.
fn millis(nanos: u64) -> u64 {
    nanos / 1_000_000
}

#[cfg(test)]
mod tests;
