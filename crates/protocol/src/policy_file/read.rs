//! The one reader for all formats: serde's view of a [`Node`], which adds to each complaint where
//! it arose.

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess};
use serde::de::{Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::fault::Fault;
use super::tree::{Key, Node, Spot, Value};

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let read = match &self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Unsigned(value) => visitor.visit_u64(*value),
            Value::Signed(value) => visitor.visit_i64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(value) => visitor.visit_borrowed_str(value),
            Value::Gone => visitor.visit_unit(),
            Value::Date => Err(de::Error::invalid_type(self.value.unexpected(), &visitor)),
            Value::List(items) => visitor.visit_seq(Items { items: items.iter().enumerate() }),
            Value::Section(entries) => {
                let mut keys = Keys { entries: entries.iter(), current: None };
                // What is missing is missing from the section, anything else is about a key.
                visitor.visit_map(&mut keys).map_err(|fault| match keys.current {
                    Some((key, _)) => fault.at_least(key.spot),
                    None => fault,
                })
            }
        };
        read.map_err(|fault| fault.at_least(self.spot))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let read = match &self.value {
            Value::Text(word) => visitor.visit_enum(name(word)),
            other => Err(Fault::no_word(other.unexpected(), words)),
        };
        read.map_err(|fault| fault.at_least(self.spot))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _keys: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match &self.value {
            Value::Section(_) => self.deserialize_any(visitor),
            // Serde would take a list for a section without names: `budget = [5]`.
            other => {
                let fault: Fault = de::Error::invalid_type(other.unexpected(), &visitor);
                Err(fault.at_least(self.spot))
            }
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

impl Value {
    /// What serde calls it when it is not what was expected.
    fn unexpected(&self) -> Unexpected<'_> {
        match self {
            Value::Null | Value::Gone => Unexpected::Unit,
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Unsigned(value) => Unexpected::Unsigned(*value),
            Value::Signed(value) => Unexpected::Signed(*value),
            Value::Float(value) => Unexpected::Float(*value),
            Value::Text(value) => Unexpected::Str(value),
            Value::Date => Unexpected::Other("a date"),
            Value::List(_) => Unexpected::Seq,
            Value::Section(_) => Unexpected::Map,
        }
    }
}

fn name(text: &str) -> StrDeserializer<'_, Fault> {
    text.into_deserializer()
}

struct Items<'de> {
    items: std::iter::Enumerate<std::slice::Iter<'de, Node>>,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        let Some((index, node)) = self.items.by_ref().find(|(_, node)| !node.is_gone()) else {
            return Ok(None);
        };
        let here = |fault: Fault| fault.at_least(node.spot).inside(&format!("[{index}]"));
        seed.deserialize(node).map(Some).map_err(here)
    }
}

struct Keys<'de> {
    entries: std::slice::Iter<'de, (Key, Node)>,
    current: Option<&'de (Key, Node)>,
}

impl<'de> MapAccess<'de> for &mut Keys<'de> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        self.current = self.entries.by_ref().find(|(_, node)| !node.is_gone());
        let Some((key, _)) = self.current else { return Ok(None) };
        seed.deserialize(name(&key.name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        match self.current {
            Some((key, node)) => {
                let here = |fault: Fault| fault.at_least(node.spot).inside(&key.name);
                seed.deserialize(node).map_err(here)
            }
            None => Err(Fault::syntax("a value without a key".into(), None::<Spot>)),
        }
    }
}
