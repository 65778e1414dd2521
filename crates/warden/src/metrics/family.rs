//! What is measured, apart from how it is written: Prometheus' text and OTLP are made of this.

use std::time::Duration;

use deadstop_core::Time;

/// A metric with all its series.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Its name, without the `_total` of a counter.
    pub name: &'static str,
    /// What it measures, in a sentence.
    pub help: &'static str,
    /// Whether it only grows.
    pub kind: FamilyKind,
    /// Its series.
    pub series: Vec<Series>,
}

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    /// It only grows, until the server restarts.
    Counter,
    /// It is what is the case now.
    Gauge,
    /// Durations, counted by how long they were.
    Histogram,
}

/// One series of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Names and values of its labels.
    pub labels: Vec<(&'static str, String)>,
    /// What it has come to.
    pub value: Value,
}

/// What a series has come to.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// Durations by length.
    Durations(Durations),
}

/// Durations, counted by how long they were.
#[derive(Debug, Clone, PartialEq)]
pub struct Durations {
    /// The upper ends of the buckets, in nanoseconds.
    pub ends: &'static [u64],
    /// How many fell into each bucket; the last counts everything longer.
    pub counts: Vec<u64>,
    /// All of them together, in nanoseconds.
    pub nanos: u64,
    /// A recent one of each bucket that is known with its trace.
    pub exemplars: Vec<Option<Exemplar>>,
}

/// A duration that was measured in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exemplar {
    /// The trace.
    pub trace: [u8; 16],
    /// The span in it.
    pub span: [u8; 8],
    /// How long it took.
    pub took: Duration,
    /// When it ended.
    pub at: Time,
}

impl Family {
    /// A counter.
    pub(super) fn counter(name: &'static str, help: &'static str) -> Family {
        Family { name, help, kind: FamilyKind::Counter, series: Vec::new() }
    }

    /// A gauge.
    pub(super) fn gauge(name: &'static str, help: &'static str) -> Family {
        Family { name, help, kind: FamilyKind::Gauge, series: Vec::new() }
    }

    /// Durations.
    pub(super) fn histogram(name: &'static str, help: &'static str) -> Family {
        Family { name, help, kind: FamilyKind::Histogram, series: Vec::new() }
    }

    /// The same with a series that has no labels.
    pub(super) fn of(mut self, value: impl Into<Value>) -> Family {
        self.push(&[], value);
        self
    }

    /// Adds a series.
    pub(super) fn push(&mut self, labels: &[(&'static str, &str)], value: impl Into<Value>) {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.series.push(Series { labels, value: value.into() });
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number as f64)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Number(number as f64)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::Number(number)
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Value {
        Value::Number(f64::from(u8::from(is)))
    }
}

impl From<Durations> for Value {
    fn from(durations: Durations) -> Value {
        Value::Durations(durations)
    }
}
