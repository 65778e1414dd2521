//! Lines of the log as OTLP: kills, trips and orders, each an event with its attributes.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use prost::Message;

use crate::write::{Sender, nanos, text};

/// A line of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogEntry {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// How grave it is.
    pub severity: Severity,
    /// What it is: `deadstop.kill`, `deadstop.trip`, `deadstop.order`.
    pub event: String,
    /// The sentence.
    pub body: String,
    /// Names and values.
    pub attributes: Vec<(String, String)>,
    /// The trace and the span that it belongs to.
    pub place: Option<([u8; 16], [u8; 8])>,
}

/// How grave a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// As intended.
    Info,
    /// A person should look.
    Warn,
}

/// Lines as one request of an exporter.
pub fn encode(lines: &[LogEntry], sender: Sender<'_>) -> Vec<u8> {
    let log_records = lines.iter().map(record).collect();
    let (resource, scope) = (sender.resource(), sender.scope());
    let scope_logs = vec![ScopeLogs { scope, log_records, schema_url: String::new() }];
    let logs = ResourceLogs { resource, scope_logs, schema_url: String::new() };
    ExportLogsServiceRequest { resource_logs: vec![logs] }.encode_to_vec()
}

fn record(line: &LogEntry) -> LogRecord {
    let (number, name) = match line.severity {
        Severity::Info => (SeverityNumber::Info, "INFO"),
        Severity::Warn => (SeverityNumber::Warn, "WARN"),
    };
    let (trace_id, span_id) =
        line.place.map(|(trace, span)| (trace.to_vec(), span.to_vec())).unwrap_or_default();
    LogRecord {
        time_unix_nano: nanos(line.at_ms),
        observed_time_unix_nano: nanos(line.at_ms),
        severity_number: number.into(),
        severity_text: name.to_owned(),
        body: Some(AnyValue { value: Some(Any::StringValue(line.body.clone())) }),
        attributes: line.attributes.iter().map(|(key, value)| text(key, value)).collect(),
        event_name: line.event.clone(),
        trace_id,
        span_id,
        ..LogRecord::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_what_it_says() {
        let line = LogEntry {
            at_ms: 1000,
            severity: Severity::Warn,
            event: "deadstop.kill".into(),
            body: "Stopped.".into(),
            attributes: vec![("deadstop.incident".into(), "i1".into())],
            place: Some(([1; 16], [2; 8])),
        };
        let bytes = encode(&[line], Sender { resource: &[], version: "1" });
        let request = ExportLogsServiceRequest::decode(&*bytes).unwrap();
        let record = &request.resource_logs[0].scope_logs[0].log_records[0];
        assert_eq!((record.time_unix_nano, record.severity_number), (1_000_000_000, 13));
        assert_eq!((&*record.trace_id, &*record.event_name), (&[1; 16][..], "deadstop.kill"));
        assert_eq!(record.attributes[0], text("deadstop.incident", "i1"));
    }
}
