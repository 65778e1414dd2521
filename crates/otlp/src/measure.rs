//! Metrics as OTLP: sums and histograms that grow from the server's start, and gauges.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::exemplar::Value as Exemplified;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar, Gauge, Histogram, HistogramDataPoint, Metric,
    NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
};
use prost::Message;

use crate::write::{Sender, nanos, text};

/// A metric with its points.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Its name.
    pub name: String,
    /// What it measures.
    pub description: String,
    /// Its unit, as UCUM writes it; empty for a count of things.
    pub unit: &'static str,
    /// Whether a number of it only grows.
    pub grows: bool,
    /// Its points.
    pub points: Vec<Point>,
}

/// One point of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Names and values.
    pub attributes: Vec<(String, String)>,
    /// What it is.
    pub value: Value,
}

/// What a point is.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// Counts by size.
    Counts {
        /// Upper ends of the buckets.
        ends: Vec<f64>,
        /// One more than there are ends.
        counts: Vec<u64>,
        /// All of them together.
        sum: f64,
        /// Some that are known with their traces.
        examples: Vec<Example>,
    },
}

/// A value that was measured in a trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Example {
    /// The trace.
    pub trace: [u8; 16],
    /// The span.
    pub span: [u8; 8],
    /// The value.
    pub value: f64,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

/// From when on things were counted, and when they were read, in milliseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct Period {
    /// The server's start.
    pub from_ms: u64,
    /// Now.
    pub to_ms: u64,
}

/// Metrics as one request of an exporter.
pub fn encode(metrics: Vec<Measured>, period: Period, sender: Sender<'_>) -> Vec<u8> {
    let metrics = metrics.into_iter().map(|metric| written(metric, period)).collect();
    let (resource, scope) = (sender.resource(), sender.scope());
    let scope_metrics = vec![ScopeMetrics { scope, metrics, schema_url: String::new() }];
    let metrics = ResourceMetrics { resource, scope_metrics, schema_url: String::new() };
    ExportMetricsServiceRequest { resource_metrics: vec![metrics] }.encode_to_vec()
}

fn written(metric: Measured, period: Period) -> Metric {
    let cumulative = AggregationTemporality::Cumulative.into();
    let (mut numbers, mut histograms) = (Vec::new(), Vec::new());
    for Point { attributes, value } in metric.points {
        let attributes = attributes.iter().map(|(key, value)| text(key, value)).collect();
        match value {
            Value::Number(number) => numbers.push(NumberDataPoint {
                attributes,
                start_time_unix_nano: if metric.grows { nanos(period.from_ms) } else { 0 },
                time_unix_nano: nanos(period.to_ms),
                value: Some(Number::AsDouble(number)),
                ..NumberDataPoint::default()
            }),
            counts @ Value::Counts { .. } => {
                histograms.extend(histogram(attributes, counts, period));
            }
        }
    }
    let data = match (histograms.is_empty(), metric.grows) {
        (false, _) => Data::Histogram(Histogram {
            data_points: histograms,
            aggregation_temporality: cumulative,
        }),
        (true, true) => Data::Sum(Sum {
            data_points: numbers,
            aggregation_temporality: cumulative,
            is_monotonic: true,
        }),
        (true, false) => Data::Gauge(Gauge { data_points: numbers }),
    };
    Metric {
        name: metric.name,
        description: metric.description,
        unit: metric.unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn histogram(
    attributes: Vec<KeyValue>,
    value: Value,
    period: Period,
) -> Option<HistogramDataPoint> {
    let Value::Counts { ends, counts, sum, examples } = value else { return None };
    let exemplars = examples.iter().map(|example| Exemplar {
        time_unix_nano: nanos(example.at_ms),
        trace_id: example.trace.to_vec(),
        span_id: example.span.to_vec(),
        value: Some(Exemplified::AsDouble(example.value)),
        ..Exemplar::default()
    });
    Some(HistogramDataPoint {
        attributes,
        start_time_unix_nano: nanos(period.from_ms),
        time_unix_nano: nanos(period.to_ms),
        count: counts.iter().sum(),
        sum: Some(sum),
        exemplars: exemplars.collect(),
        bucket_counts: counts,
        explicit_bounds: ends,
        ..HistogramDataPoint::default()
    })
}
