//! What all that is sent has in common: where it comes from, and attributes.

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;

/// Who sends.
#[derive(Debug, Clone, Copy)]
pub struct Sender<'a> {
    /// What is known of the place: `service.name` and others.
    pub resource: &'a [(String, String)],
    /// The version of the program.
    pub version: &'a str,
}

impl Sender<'_> {
    pub(crate) fn resource(&self) -> Option<Resource> {
        let attributes = self.resource.iter().map(|(key, value)| text(key, value)).collect();
        Some(Resource { attributes, ..Resource::default() })
    }

    pub(crate) fn scope(&self) -> Option<InstrumentationScope> {
        Some(InstrumentationScope {
            name: "deadstop".to_owned(),
            version: self.version.to_owned(),
            ..InstrumentationScope::default()
        })
    }
}

/// An attribute with a text.
pub(crate) fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Any::StringValue(value.to_owned()))
}

/// An attribute.
pub(crate) fn attribute(key: &str, value: Any) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

/// Nanoseconds since 1970.
pub(crate) fn nanos(millis: u64) -> u64 {
    millis.saturating_mul(1_000_000)
}
