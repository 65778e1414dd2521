//! Telemetry that agents send: JSON and protobuf say the same, and what is read of it is bounded.

use deadstop_otlp::{Batch, Format, Signal, answer, logs, metrics, traces};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A request as JSON, for each of the three signals.
pub fn check_json(data: &[u8]) {
    each(data, Format::Json);
    if let Ok(batch) = deadstop_otlp::document(data) {
        assert!(deadstop_otlp::signal(data).is_some());
        bounded(&batch, data);
    }
}

/// The same as protobuf.
pub fn check_protobuf(data: &[u8]) {
    each(data, Format::Protobuf);
}

fn each(data: &[u8], format: Format) {
    one::<ExportTraceServiceRequest>(data, format, Signal::Traces, |data, form| traces(data, form).ok());
    one::<ExportLogsServiceRequest>(data, format, Signal::Logs, |data, form| logs(data, form).ok());
    one::<ExportMetricsServiceRequest>(data, format, Signal::Metrics, |data, form| metrics(data, form).ok());
}

fn one<M: Message + Default + Serialize + DeserializeOwned + PartialEq>(
    data: &[u8],
    format: Format,
    signal: Signal,
    read: impl Fn(&[u8], Format) -> Option<Batch>,
) {
    let Some(batch) = read(data, format) else { return };
    bounded(&batch, data);
    let _ = answer(signal, Format::Json, &batch.rejected);
    let _ = answer(signal, Format::Protobuf, &batch.rejected);
    let message: M = match format {
        // We read more than the official classes do, such as numbers in texts.
        Format::Json => match serde_json::from_slice(data) {
            Ok(message) => message,
            Err(_) => return,
        },
        Format::Protobuf => M::decode(data).expect("it was read"),
    };
    // They take lists for objects, by the places of their members: what they mean is what they write.
    let packed = read(&message.encode_to_vec(), Format::Protobuf).expect("what we wrote is read");
    if format == Format::Protobuf {
        assert_eq!(format!("{batch:?}"), format!("{packed:?}"), "as protobuf");
    }
    // A number that is none cannot be written as JSON.
    let Ok(text) = serde_json::to_vec(&message) else { return };
    let Ok(again) = serde_json::from_slice::<M>(&text) else { return };
    if again == message {
        let said = read(&text, Format::Json).expect("what we wrote is read");
        assert_eq!(format!("{packed:?}"), format!("{said:?}"), "as JSON");
    }
}

/// Calls come in the order in which they ended, and there are no more of them than bytes.
fn bounded(batch: &Batch, data: &[u8]) {
    assert!(batch.calls.is_sorted_by_key(|call| call.ended_ms), "not in order");
    assert!(batch.calls.len() + batch.others + batch.rejected.len() <= data.len());
}
