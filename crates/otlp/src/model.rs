//! Spans and log records as they are read from either format, with texts that stay in the request.
//!
//! Only what makes a call is kept. The generated types decode JSON through several copies of each value, and
//! most requests are read for a few attributes.

mod json;
mod protobuf;

use std::borrow::Cow;

use serde::Deserialize;

/// A request with spans.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Traces<'a> {
    #[serde(borrow)]
    pub(crate) resource_spans: Vec<ResourceSpans<'a>>,
}

/// The spans of one program.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ResourceSpans<'a> {
    #[serde(borrow)]
    pub(crate) resource: Option<Resource<'a>>,
    #[serde(borrow)]
    pub(crate) scope_spans: Vec<ScopeSpans<'a>>,
}

/// A program.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Resource<'a> {
    #[serde(borrow)]
    pub(crate) attributes: Vec<Pair<'a>>,
}

/// The spans of one library.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ScopeSpans<'a> {
    #[serde(borrow)]
    pub(crate) spans: Vec<Span<'a>>,
}

/// A span.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Span<'a> {
    pub(crate) trace_id: Id,
    pub(crate) span_id: Id,
    pub(crate) parent_span_id: Id,
    #[serde(borrow)]
    pub(crate) name: Cow<'a, str>,
    #[serde(deserialize_with = "json::nanos")]
    pub(crate) start_time_unix_nano: u64,
    #[serde(deserialize_with = "json::nanos")]
    pub(crate) end_time_unix_nano: u64,
    #[serde(borrow)]
    pub(crate) attributes: Vec<Pair<'a>>,
    #[serde(borrow)]
    pub(crate) events: Vec<Event<'a>>,
    #[serde(borrow)]
    pub(crate) status: Option<Status<'a>>,
}

/// Something that happened in a span.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Event<'a> {
    #[serde(borrow)]
    pub(crate) attributes: Vec<Pair<'a>>,
}

/// How a span ended.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status<'a> {
    pub(crate) code: i32,
    #[serde(borrow)]
    pub(crate) message: Cow<'a, str>,
}

/// A request with log records.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Logs<'a> {
    #[serde(borrow)]
    pub(crate) resource_logs: Vec<ResourceLogs<'a>>,
}

/// The log records of one program.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ResourceLogs<'a> {
    #[serde(borrow)]
    pub(crate) resource: Option<Resource<'a>>,
    #[serde(borrow)]
    pub(crate) scope_logs: Vec<ScopeLogs<'a>>,
}

/// The log records of one library.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ScopeLogs<'a> {
    #[serde(borrow)]
    pub(crate) log_records: Vec<LogRecord<'a>>,
}

/// A log record.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LogRecord<'a> {
    #[serde(deserialize_with = "json::nanos")]
    pub(crate) time_unix_nano: u64,
    #[serde(deserialize_with = "json::nanos")]
    pub(crate) observed_time_unix_nano: u64,
    #[serde(borrow)]
    pub(crate) body: Option<Any<'a>>,
    #[serde(borrow)]
    pub(crate) attributes: Vec<Pair<'a>>,
    #[serde(borrow)]
    pub(crate) event_name: Cow<'a, str>,
}

/// A name and its value.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pair<'a> {
    #[serde(borrow)]
    pub(crate) key: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) value: Option<Any<'a>>,
}

/// A value.
#[derive(Debug, Default)]
pub(crate) enum Any<'a> {
    /// None, which is a value all the same.
    #[default]
    Empty,
    Text(Cow<'a, str>),
    Truth(bool),
    Int(i64),
    Double(f64),
    List(Vec<Any<'a>>),
    Pairs(Vec<Pair<'a>>),
    /// Bytes, which nothing reads.
    Bytes,
}

/// The id of a trace or a span: 16 bytes at most, and as many as a valid one has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Id {
    length: u8,
    bytes: [u8; 16],
}

impl Id {
    /// `None` if it is too long for any id.
    pub(crate) fn of(bytes: &[u8]) -> Option<Id> {
        let mut id = Id { length: u8::try_from(bytes.len()).ok()?, bytes: [0; 16] };
        id.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(id)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}
