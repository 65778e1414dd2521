//! Attributes of a span, a log record or a resource, looked up by name.

use deadstop_core::NanoUsd;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use serde_json::{Map, Number, Value};

/// Lists inside lists beyond this are left out.
const DEEPEST: u8 = 16;

/// The attributes of one thing.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [KeyValue]);

impl<'a> Attributes<'a> {
    fn get(self, name: &str) -> Option<&'a Any> {
        self.0.iter().find(|pair| pair.key == name)?.value.as_ref()?.value.as_ref()
    }

    /// A text under one name, where it is one and not empty.
    pub(crate) fn str(self, name: &str) -> Option<&'a str> {
        match self.get(name)? {
            Any::StringValue(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// Whether there is something under one of several names.
    pub(crate) fn has(self, names: &[&str]) -> bool {
        names.iter().any(|name| self.get(name).is_some())
    }

    /// A text under one name; numbers and lists are written out.
    pub(crate) fn text(self, name: &str) -> Option<String> {
        let text = match self.get(name)? {
            Any::StringValue(text) => text.clone(),
            other => match json(other, 0) {
                Value::Null => return None,
                value => value.to_string(),
            },
        };
        (!text.is_empty()).then_some(text)
    }

    /// The first of several names that is there.
    pub(crate) fn first(self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.text(name))
    }

    /// The first number of several names. Some emitters write numbers as texts.
    pub(crate) fn number(self, names: &[&str]) -> Option<u64> {
        names.iter().find_map(|name| match self.get(name)? {
            Any::IntValue(number) => u64::try_from(*number).ok(),
            Any::DoubleValue(number) if *number >= 0.0 => Some(*number as u64),
            Any::StringValue(text) => text.trim().parse().ok(),
            _ => None,
        })
    }

    /// The first amount in dollars of several names.
    pub(crate) fn dollars(self, names: &[&str]) -> Option<NanoUsd> {
        let amount = names.iter().find_map(|name| match self.get(name)? {
            Any::IntValue(number) => Some(*number as f64),
            Any::DoubleValue(number) => Some(*number),
            Any::StringValue(text) => text.trim().parse().ok(),
            _ => None,
        });
        amount.and_then(NanoUsd::from_dollars)
    }

    /// The first truth value of several names.
    pub(crate) fn truth(self, names: &[&str]) -> Option<bool> {
        names.iter().find_map(|name| match self.get(name)? {
            Any::BoolValue(truth) => Some(*truth),
            Any::StringValue(text) => text.trim().parse().ok(),
            _ => None,
        })
    }

    /// The first value of several names as JSON. A text that is JSON is read.
    pub(crate) fn json(self, names: &[&str]) -> Option<Value> {
        names.iter().find_map(|name| match self.get(name)? {
            Any::StringValue(text) => {
                Some(serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone())))
            }
            other => Some(json(other, 0)),
        })
    }
}

/// A value as JSON.
pub(crate) fn value_text(value: Option<&AnyValue>) -> Option<String> {
    match value?.value.as_ref()? {
        Any::StringValue(text) => Some(text.clone()),
        other => Some(json(other, 0).to_string()),
    }
}

fn json(value: &Any, depth: u8) -> Value {
    if depth > DEEPEST {
        return Value::Null;
    }
    let inner = |value: &AnyValue| value.value.as_ref().map_or(Value::Null, |v| json(v, depth + 1));
    match value {
        Any::StringValue(text) => Value::String(text.clone()),
        Any::BoolValue(truth) => Value::Bool(*truth),
        Any::IntValue(number) => Value::Number((*number).into()),
        Any::DoubleValue(number) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
        Any::ArrayValue(list) => Value::Array(list.values.iter().map(inner).collect()),
        Any::KvlistValue(list) => {
            let pairs = list
                .values
                .iter()
                .map(|pair| (pair.key.clone(), pair.value.as_ref().map_or(Value::Null, inner)));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
        _ => Value::Null,
    }
}
