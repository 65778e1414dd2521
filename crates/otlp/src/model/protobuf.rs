//! The generated types of protobuf as our model: texts are borrowed from them.

use std::borrow::Cow;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::{logs, resource, trace};

use super::{
    Any, Event, Id, LogRecord, Logs, Pair, Resource, ResourceLogs, ResourceSpans, ScopeLogs,
    ScopeSpans, Span, Status, Traces,
};

impl<'a> From<&'a ExportTraceServiceRequest> for Traces<'a> {
    fn from(request: &'a ExportTraceServiceRequest) -> Traces<'a> {
        let resource_spans = request.resource_spans.iter().map(|of| ResourceSpans {
            resource: of.resource.as_ref().map(program),
            scope_spans: of
                .scope_spans
                .iter()
                .map(|scope| ScopeSpans { spans: scope.spans.iter().map(span).collect() })
                .collect(),
        });
        Traces { resource_spans: resource_spans.collect() }
    }
}

impl<'a> From<&'a ExportLogsServiceRequest> for Logs<'a> {
    fn from(request: &'a ExportLogsServiceRequest) -> Logs<'a> {
        let resource_logs = request.resource_logs.iter().map(|of| ResourceLogs {
            resource: of.resource.as_ref().map(program),
            scope_logs: of
                .scope_logs
                .iter()
                .map(|scope| ScopeLogs {
                    log_records: scope.log_records.iter().map(record).collect(),
                })
                .collect(),
        });
        Logs { resource_logs: resource_logs.collect() }
    }
}

fn program(resource: &resource::v1::Resource) -> Resource<'_> {
    Resource { attributes: pairs(&resource.attributes) }
}

fn span(span: &trace::v1::Span) -> Span<'_> {
    // An id that is too long for any is none.
    let id = |bytes: &[u8]| Id::of(bytes).unwrap_or_default();
    Span {
        trace_id: id(&span.trace_id),
        span_id: id(&span.span_id),
        parent_span_id: id(&span.parent_span_id),
        name: Cow::Borrowed(&span.name),
        start_time_unix_nano: span.start_time_unix_nano,
        end_time_unix_nano: span.end_time_unix_nano,
        attributes: pairs(&span.attributes),
        events: span
            .events
            .iter()
            .map(|event| Event { attributes: pairs(&event.attributes) })
            .collect(),
        status: span
            .status
            .as_ref()
            .map(|status| Status { code: status.code, message: Cow::Borrowed(&status.message) }),
    }
}

fn record(record: &logs::v1::LogRecord) -> LogRecord<'_> {
    LogRecord {
        time_unix_nano: record.time_unix_nano,
        observed_time_unix_nano: record.observed_time_unix_nano,
        body: record.body.as_ref().map(any),
        attributes: pairs(&record.attributes),
        event_name: Cow::Borrowed(&record.event_name),
    }
}

fn pairs(pairs: &[KeyValue]) -> Vec<Pair<'_>> {
    pairs.iter().map(pair).collect()
}

fn pair(pair: &KeyValue) -> Pair<'_> {
    Pair { key: Cow::Borrowed(&pair.key), value: pair.value.as_ref().map(any) }
}

fn any(value: &AnyValue) -> Any<'_> {
    match &value.value {
        None => Any::Empty,
        Some(Value::StringValue(text)) => Any::Text(Cow::Borrowed(text)),
        Some(Value::BoolValue(truth)) => Any::Truth(*truth),
        Some(Value::IntValue(number)) => Any::Int(*number),
        Some(Value::DoubleValue(number)) => Any::Double(*number),
        Some(Value::ArrayValue(list)) => Any::List(list.values.iter().map(any).collect()),
        Some(Value::KvlistValue(list)) => Any::Pairs(pairs(&list.values)),
        Some(Value::BytesValue(_) | Value::StringValueStrindex(_)) => Any::Bytes,
    }
}
