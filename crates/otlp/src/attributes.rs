//! Attributes of a span, a log record or a resource, looked up by name.

use deadstop_core::NanoUsd;
use serde_json::{Map, Number, Value};

use crate::model::{Any, Pair};

/// Lists inside lists beyond this are left out.
const DEEPEST: u8 = 16;

/// The attributes of one thing.
#[derive(Clone, Copy)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [Pair<'a>]);

impl<'a> Attributes<'a> {
    fn get(self, name: &str) -> Option<&'a Any<'a>> {
        let value = self.0.iter().find(|pair| pair.key == name)?.value.as_ref()?;
        (!matches!(value, Any::Empty)).then_some(value)
    }

    /// A text under one name, where it is one and not empty.
    pub(crate) fn str(self, name: &str) -> Option<&'a str> {
        match self.get(name)? {
            Any::Text(text) if !text.is_empty() => Some(text),
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
            Any::Text(text) => text.clone().into_owned(),
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
            Any::Int(number) => u64::try_from(*number).ok(),
            Any::Double(number) if *number >= 0.0 => Some(*number as u64),
            Any::Text(text) => text.trim().parse().ok(),
            _ => None,
        })
    }

    /// The first amount in dollars of several names.
    pub(crate) fn dollars(self, names: &[&str]) -> Option<NanoUsd> {
        let amount = names.iter().find_map(|name| match self.get(name)? {
            Any::Int(number) => Some(*number as f64),
            Any::Double(number) => Some(*number),
            Any::Text(text) => text.trim().parse().ok(),
            _ => None,
        });
        amount.and_then(NanoUsd::from_dollars)
    }

    /// The first truth value of several names.
    pub(crate) fn truth(self, names: &[&str]) -> Option<bool> {
        names.iter().find_map(|name| match self.get(name)? {
            Any::Truth(truth) => Some(*truth),
            Any::Text(text) => text.trim().parse().ok(),
            _ => None,
        })
    }

    /// The first value of several names as JSON. A text that is JSON is read.
    pub(crate) fn json(self, names: &[&str]) -> Option<Value> {
        names.iter().find_map(|name| match self.get(name)? {
            Any::Text(text) => {
                Some(serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_string())))
            }
            other => Some(json(other, 0)),
        })
    }
}

/// A value as text.
pub(crate) fn value_text(value: Option<&Any<'_>>) -> Option<String> {
    match value? {
        Any::Empty => None,
        Any::Text(text) => Some(text.to_string()),
        other => Some(json(other, 0).to_string()),
    }
}

fn json(value: &Any<'_>, depth: u8) -> Value {
    if depth > DEEPEST {
        return Value::Null;
    }
    match value {
        Any::Text(text) => Value::String(text.to_string()),
        Any::Truth(truth) => Value::Bool(*truth),
        Any::Int(number) => Value::Number((*number).into()),
        Any::Double(number) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
        Any::List(list) => Value::Array(list.iter().map(|value| json(value, depth + 1)).collect()),
        Any::Pairs(pairs) => {
            let pair = |pair: &Pair<'_>| {
                let value = pair.value.as_ref();
                (pair.key.to_string(), value.map_or(Value::Null, |value| json(value, depth + 1)))
            };
            Value::Object(pairs.iter().map(pair).collect::<Map<_, _>>())
        }
        Any::Empty | Any::Bytes => Value::Null,
    }
}
