//! Just enough JSON: an object's fields as slices of the body, without building a value.
//!
//! A history of several megabytes is walked once and cut into messages; only those that are new are
//! ever looked into. Of a key that comes twice the last one counts, as it does for the providers.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Deserializer;
use serde_json::value::RawValue;

/// The messages of a request: a list, or one text instead of it.
#[derive(Debug, Default)]
pub(super) struct Items<'a> {
    pub list: Vec<&'a RawValue>,
    pub text: Option<Cow<'a, str>>,
}

/// The fields of an object that were asked for.
pub(super) struct Object<'a, const N: usize> {
    pub fields: [Option<&'a RawValue>; N],
    pub items: Items<'a>,
}

/// Reads the named fields of an object, and one more, `list`, cut into its elements.
pub(super) fn object<'a, const N: usize>(
    json: &'a str,
    names: [&str; N],
    list: &str,
) -> Result<Object<'a, N>, serde_json::Error> {
    let mut reader = Deserializer::from_str(json);
    let object = reader.deserialize_map(ObjectVisitor { names: &names, list })?;
    reader.end()?;
    Ok(object)
}

/// Reads the named fields of an object; none of them if it is no object.
pub(super) fn fields<'a, const N: usize>(
    value: &'a RawValue,
    names: [&str; N],
) -> [Option<&'a RawValue>; N] {
    object(value.get(), names, "").map_or([None; N], |object| object.fields)
}

/// The elements of a list; none if it is no list.
pub(super) fn elements(value: &RawValue) -> Vec<&RawValue> {
    match value.get().starts_with('[') {
        true => serde_json::from_str(value.get()).unwrap_or_default(),
        false => Vec::new(),
    }
}

/// A string's text. One with half a surrogate pair in it is no text for Rust, but some clients cut
/// their strings there: its escapes then stay as they are.
pub(super) fn text(value: &RawValue) -> Option<Cow<'_, str>> {
    let inner = value.get().strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    Some(serde_json::from_str(value.get()).map_or(Cow::Borrowed(inner), Cow::Owned))
}

/// A string's text as an owned one; `None` for anything else, and for the empty string.
pub(super) fn owned(value: Option<&RawValue>) -> Option<String> {
    text(value?).map(Cow::into_owned).filter(|text| !text.is_empty())
}

/// Whether it is `true`.
pub(super) fn is_true(value: Option<&RawValue>) -> bool {
    value.is_some_and(|value| value.get() == "true")
}

/// A count, also one that was written as `1.0`.
pub(super) fn count(value: Option<&RawValue>) -> Option<u64> {
    let number: f64 = value?.get().parse().ok()?;
    (number >= 0.0).then_some(number as u64)
}

/// Whether there is a value other than `null`.
pub(super) fn present(value: Option<&RawValue>) -> bool {
    value.is_some_and(|value| value.get() != "null")
}

struct ObjectVisitor<'n, const N: usize> {
    names: &'n [&'n str; N],
    list: &'n str,
}

impl<'a, const N: usize> Visitor<'a> for ObjectVisitor<'_, N> {
    type Value = Object<'a, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut object = Object { fields: [None; N], items: Items::default() };
        while let Some(slot) = map.next_key_seed(KeySeed { names: self.names, list: self.list })? {
            match slot {
                Slot::Field(index) => object.fields[index] = Some(map.next_value()?),
                Slot::List => object.items = map.next_value_seed(ItemsSeed)?,
                Slot::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(object)
    }
}

enum Slot {
    Field(usize),
    List,
    Other,
}

struct KeySeed<'n> {
    names: &'n [&'n str],
    list: &'n str,
}

impl<'a> DeserializeSeed<'a> for KeySeed<'_> {
    type Value = Slot;
    fn deserialize<D: serde::Deserializer<'a>>(self, reader: D) -> Result<Slot, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = Slot;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Slot, E> {
        if !self.list.is_empty() && key == self.list {
            return Ok(Slot::List);
        }
        let index = self.names.iter().position(|name| *name == key);
        Ok(index.map_or(Slot::Other, Slot::Field))
    }
}

/// Takes whatever is there: a list is cut up, a text is kept, all else counts as nothing.
struct ItemsSeed;

impl<'a> DeserializeSeed<'a> for ItemsSeed {
    type Value = Items<'a>;
    fn deserialize<D: serde::Deserializer<'a>>(self, reader: D) -> Result<Items<'a>, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for ItemsSeed {
    type Value = Items<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("messages")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<Items<'a>, A::Error> {
        let mut list = Vec::with_capacity(64);
        while let Some(item) = seq.next_element()? {
            list.push(item);
        }
        Ok(Items { list, text: None })
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Items<'a>, E> {
        Ok(Items { list: Vec::new(), text: Some(Cow::Borrowed(text)) })
    }

    fn visit_str<E>(self, text: &str) -> Result<Items<'a>, E> {
        Ok(Items { list: Vec::new(), text: Some(Cow::Owned(text.to_owned())) })
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Items<'a>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Items::default())
    }

    fn visit_unit<E>(self) -> Result<Items<'a>, E> {
        Ok(Items::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Items<'a>, E> {
        Ok(Items::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Items<'a>, E> {
        Ok(Items::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Items<'a>, E> {
        Ok(Items::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Items<'a>, E> {
        Ok(Items::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_wherever_they_are() {
        let json =
            r#" { "a" : 1, "x": {"a": 2}, "\u0062": "t\"\n", "m": [ {"r":1} , 2 ], "a": 3 } "#;
        let found = object(json, ["a", "b", "c"], "m").unwrap();
        assert_eq!(count(found.fields[0]), Some(3));
        assert_eq!(text(found.fields[1].unwrap()).unwrap(), "t\"\n");
        assert!(found.fields[2].is_none());
        let list: Vec<_> = found.items.list.iter().map(|item| item.get()).collect();
        assert_eq!(list, [r#"{"r":1}"#, "2"]);
    }

    #[test]
    fn messages_may_be_anything() {
        for json in ["null", "1", "-1", "1.5", "true", "{\"a\":[]}"] {
            let body = format!(r#"{{"m":{json}}}"#);
            let items = object(&body, [], "m").unwrap().items;
            assert!(items.list.is_empty() && items.text.is_none(), "{json}");
        }
        for json in [r#""hi""#, r#""h\u0069""#] {
            let body = format!(r#"{{"m":{json}}}"#);
            assert_eq!(object(&body, [], "m").unwrap().items.text.unwrap(), "hi");
        }
        for json in ["", "[]", "1", "{", "{\"a\":1} x", "{\"a\"}"] {
            assert!(object(json, ["a"], "m").is_err(), "{json}");
        }
    }

    #[test]
    fn half_a_surrogate_pair_is_no_reason_to_go_blind() {
        let raw: &RawValue = serde_json::from_str(r#""cut \ud83d""#).unwrap();
        assert_eq!(text(raw).unwrap(), r"cut \ud83d");
        let raw: &RawValue = serde_json::from_str("17").unwrap();
        assert_eq!(text(raw), None);
    }
}
