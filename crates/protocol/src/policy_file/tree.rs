//! A file as a tree whose keys and values know where they stand, the same for all formats.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::NonFiniteFloatPolicy;
use serde_saphyr::{Location, Spanned};
use toml::de::{DeTable, DeValue};

use super::fault::Fault;

/// A line and a column, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct At {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A place as the format's parser gives it; turned into a line only when an error needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spot {
    Byte(usize),
    At(At),
}

impl Spot {
    /// The line and column of this place in the text.
    pub(super) fn at(self, text: &str) -> At {
        let offset = match self {
            Spot::At(at) => return at,
            Spot::Byte(offset) => text.floor_char_boundary(offset),
        };
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        At {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

/// A value and where it stands.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) spot: Spot,
    pub(super) value: Value,
}

/// A key and where it stands.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) spot: Spot,
    pub(super) name: String,
}

/// What all formats have in common.
#[derive(Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    /// A date, which only TOML knows and no setting is.
    Date,
    /// Passed over, as if it had not been typed: a mistake that was already noted.
    Gone,
    List(Vec<Node>),
    Section(Vec<(Key, Node)>),
}

impl Node {
    /// The value of a key of this section, with the key.
    pub(super) fn get(&self, name: &str) -> Option<(&Key, &Node)> {
        let Value::Section(entries) = &self.value else { return None };
        let found = entries.iter().find(|(key, node)| key.name == name && !node.is_gone());
        found.map(|(key, node)| (key, node))
    }

    /// Whether it was passed over.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.value, Value::Gone)
    }
}

/// Reads TOML.
pub(super) fn from_toml(text: &str) -> Result<Node, Fault> {
    let table = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or_default();
        match text.get(span.clone()) {
            Some(key) if error.message() == "duplicate key" => {
                Fault::twice(key.to_owned(), Some(Spot::Byte(span.start)))
            }
            _ => Fault::syntax(
                error.message().to_owned(),
                error.span().map(|span| Spot::Byte(span.start)),
            ),
        }
    })?;
    Ok(Node { spot: Spot::Byte(0), value: toml_table(table.into_inner())? })
}

fn toml_table(table: DeTable<'_>) -> Result<Value, Fault> {
    let mut entries = Vec::new();
    for (key, value) in table {
        let spot = Spot::Byte(key.span().start);
        let key = Key { spot, name: key.into_inner().into_owned() };
        let node = toml_node(value).map_err(|fault| fault.inside(&key.name))?;
        entries.push((key, node));
    }
    // The table is sorted by name; the first mistake to be named is the first in the file.
    entries.sort_by_key(|(key, _)| match key.spot {
        Spot::Byte(offset) => offset,
        Spot::At(at) => at.line,
    });
    Ok(Value::Section(entries))
}

fn toml_node(value: toml::Spanned<DeValue<'_>>) -> Result<Node, Fault> {
    let spot = Spot::Byte(value.span().start);
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Boolean(bool) => Value::Bool(bool),
        DeValue::Datetime(_) => Value::Date,
        DeValue::Integer(digits) => {
            let (text, radix) = (digits.as_str(), digits.radix());
            let signed = || i64::from_str_radix(text, radix).map(Value::Signed);
            u64::from_str_radix(text, radix)
                .map(Value::Unsigned)
                .or_else(|_| signed())
                .map_err(|_| Fault::number(text, spot))?
        }
        DeValue::Float(digits) => match digits.as_str().parse::<f64>() {
            Ok(number) if number.is_finite() => Value::Float(number),
            _ => return Err(Fault::number(digits.as_str(), spot)),
        },
        DeValue::Array(values) => {
            let node = |(index, value)| {
                toml_node(value).map_err(|fault| fault.inside(&format!("[{index}]")))
            };
            Value::List(values.into_iter().enumerate().map(node).collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => toml_table(table)?,
    };
    Ok(Node { spot, value })
}

/// Reads YAML, of which aliases may not make much more than was typed.
pub(super) fn from_yaml(text: &str) -> Result<Node, Fault> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 32,
            max_nodes: 100_000,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_merge_keys: 1_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 20_000,
            max_replay_stack_depth: 16,
        },
        // Comments are for people, and a long block of them is no reason to fail.
        emit_comments: false,
        strict_booleans: true,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
    };
    let root: Node = serde_saphyr::from_str_with_options::<Spanned<Value>>(text, options)
        .map_err(|error| yaml_fault(&error))?
        .into();
    match root.value {
        // A file of nothing but comments says nothing.
        Value::Null => Ok(Node { value: Value::Section(Vec::new()), ..root }),
        _ => Ok(root),
    }
}

fn yaml_fault(error: &serde_saphyr::Error) -> Fault {
    let mut error = error.without_snippet();
    let spot = error.location().map(spot);
    while let serde_saphyr::Error::AliasError { error: inner, .. } = error {
        error = inner;
    }
    match error {
        serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => {
            Fault::twice(key.clone(), spot)
        }
        serde_saphyr::Error::MultipleDocuments { .. } => {
            Fault::syntax("a policy is one document, but here a second one starts".into(), spot)
        }
        serde_saphyr::Error::Budget { .. }
        | serde_saphyr::Error::AliasReplayLimitExceeded { .. }
        | serde_saphyr::Error::AliasReplayStackDepthExceeded { .. } => {
            Fault::syntax("too many values, levels or aliases for a policy".into(), spot)
        }
        _ => {
            let message = error.to_string();
            let end = message.rfind(" at line ").unwrap_or(message.len());
            Fault::syntax(message[..end].to_owned(), spot)
        }
    }
}

fn spot(location: Location) -> Spot {
    Spot::At(At { line: location.line() as usize, column: location.column() as usize })
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Node {
        Node { spot: spot(spanned.referenced), value: spanned.value }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a setting")
    }
    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Unsigned(value))
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(u64::try_from(value).map_or(Value::Signed(value), Value::Unsigned))
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }
    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = seq.next_element::<Spanned<Value>>()? {
            nodes.push(node.into());
        }
        Ok(Value::List(nodes))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, node)) = map.next_entry::<Spanned<String>, Spanned<Value>>()? {
            let key = Key { spot: spot(key.referenced), name: key.value };
            entries.push((key, node.into()));
        }
        Ok(Value::Section(entries))
    }
}
