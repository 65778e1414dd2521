//! JSON fields read with good will: one field of an odd type must not hide the rest of an event.
//!
//! Compatible servers send lists where OpenAI sends a text, floats where it sends whole numbers and
//! `null` nearly anywhere. A strict struct would fail on them, and a tool call beside the odd field
//! would go unseen. Everything borrows from the event where it can.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

use super::{Sink, budget};
use crate::plain::{self, DEEPEST};

/// Bytes of arguments beyond which an end that is missing is not looked for.
const LONGEST_CUT: usize = 1 << 20;

/// What an object takes beside its size: room to grow, and the box that it stands in.
const BOXED: usize = 64;
/// What an element of a list takes in a tree, a member of an object, and an object beside its members.
const ELEMENT: usize = 64;
const MEMBER: usize = 96;
const OBJECT: usize = 640;

/// Reads JSON, or nothing if it is none. Checked as a whole, text is cheaper to read than bytes.
pub(super) fn parse<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Option<T> {
    match std::str::from_utf8(data) {
        Ok(text) => budget::within(|| serde_json::from_str(text).ok()),
        // The caller tries again with what `plainly` makes of it.
        Err(_) => None,
    }
}

/// The same JSON as most clients read it. `None` if that changes nothing, or if it is no JSON.
pub(super) fn plainly(data: &[u8], sink: &mut Sink<'_>) -> Option<Vec<u8>> {
    if plain::is_vast(data) {
        // There is no room for a tree of it, which would also join members that come twice.
        let strict = std::str::from_utf8(data).ok().and_then(plain::made_strict);
        sink.tally.lost |= strict.is_none();
        return strict.map(String::into_bytes);
    }
    let plain = serde_json::to_vec(&plain::read(data).ok()?).ok()?;
    (plain != data).then_some(plain)
}

/// A field that is an object; whatever else stands there counts as nothing, so that it does not hide
/// what stands beside it.
pub(super) fn one<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    One::deserialize(deserializer).map(|one| one.0)
}

/// A field that is a list of objects; elements that are none count as nothing.
pub(super) fn many<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_any(ManyVisitor(PhantomData))
}

/// A field of any form, of bounded depth.
pub(super) fn tree<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    ArgumentsSeed(DEEPEST)
        .deserialize(deserializer)
        .map(|value| Some(value).filter(|it| !it.is_null()))
}

/// An object, or nothing.
struct One<T>(Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for One<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<One<T>, D::Error> {
        deserializer.deserialize_any(OneVisitor(PhantomData))
    }
}

/// Takes any value for nothing; its visitors read what they are for.
macro_rules! nothing {
    ($value:expr; $($visit:ident: $kind:ty),*) => {
        $(fn $visit<E: Error>(self, _: $kind) -> Result<Self::Value, E> {
            Ok($value)
        })*

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok($value)
        }
    };
}

struct OneVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OneVisitor<T> {
    type Value = One<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    nothing!(One(None); visit_bool: bool, visit_u64: u64, visit_i64: i64, visit_f64: f64, visit_str: &str);

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<One<T>, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(One(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<One<T>, A::Error> {
        if !budget::take(size_of::<T>() + BOXED) {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(One(None));
        }
        T::deserialize(MapAccessDeserializer::new(map)).map(|read| One(Some(read)))
    }
}

struct ManyVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ManyVisitor<T> {
    type Value = Option<Vec<T>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    nothing!(None; visit_bool: bool, visit_u64: u64, visit_i64: i64, visit_f64: f64, visit_str: &str);

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut read = Vec::new();
        while let Some(One(item)) = items.next_element::<One<T>>()? {
            read.extend(item);
        }
        Ok(Some(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

/// A text; a list of texts or parts is joined, anything else is empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl Text<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// This text, or `other` if this is empty.
    pub(super) fn or<'t>(&'t self, other: &'t Text<'_>) -> &'t str {
        if self.is_empty() { other.as_str() } else { self.as_str() }
    }
}

/// A part of a text that comes as a list.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<'a>, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E: Error>(self) -> Result<Text<'de>, E> {
        Ok(Text::default())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Text<'de>, E> {
        Ok(Text::default())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(number.to_string())))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(number.to_string())))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Text<'de>, E> {
        Ok(Text::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Text<'de>, A::Error> {
        let mut whole = String::new();
        while let Some(part) = parts.next_element::<Text<'de>>()? {
            whole.push_str(part.as_str());
        }
        Ok(Text(Cow::Owned(whole)))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Text<'de>, A::Error> {
        let part = Part::deserialize(MapAccessDeserializer::new(map))?;
        Ok(if part.text.is_empty() { part.thinking } else { part.text })
    }
}

/// A count; whatever is no number counts as nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count(pub(super) u64);

/// The count behind an optional field, or nothing.
pub(super) fn count(field: Option<Count>) -> u64 {
    field.map_or(0, |count| count.0)
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Count, D::Error> {
        deserializer.deserialize_any(CountVisitor)
    }
}

struct CountVisitor;

impl<'de> Visitor<'de> for CountVisitor {
    type Value = Count;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a count")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Count, E> {
        Ok(Count(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Count, E> {
        Ok(Count(u64::try_from(number).unwrap_or(0)))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Count, E> {
        Ok(Count(number as u64))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Count, E> {
        Ok(Count(text.trim().parse().unwrap_or(0)))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Count, E> {
        Ok(Count(0))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Count, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Count(0))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Count, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Count(0))
    }
}

/// Where something stands, as different clients take it: some need a number, and count a negative one
/// from the end of what they have; others make a number of anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Index {
    count: Option<Count>,
    place: Option<i64>,
}

impl Index {
    /// As a number of any kind.
    pub(super) fn count(self) -> Option<Count> {
        self.count
    }

    /// As a place in a list.
    pub(super) fn place(self) -> Option<i64> {
        self.place
    }
}

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Index, D::Error> {
        deserializer.deserialize_any(IndexVisitor)
    }
}

struct IndexVisitor;

impl<'de> Visitor<'de> for IndexVisitor {
    type Value = Index;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an index")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Index, E> {
        Ok(Index {
            count: Some(Count(number)),
            place: Some(i64::try_from(number).unwrap_or(i64::MAX)),
        })
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Index, E> {
        let place = Some(number);
        CountVisitor.visit_i64(number).map(|count| Index { count: Some(count), place })
    }

    fn visit_bool<E: Error>(self, is: bool) -> Result<Index, E> {
        // Python counts `true` as one.
        Ok(Index { count: Some(Count(0)), place: Some(i64::from(is)) })
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Index, E> {
        // An integer without bound is a float to us.
        let place = (number.fract() == 0.0).then_some(number as i64);
        CountVisitor.visit_f64(number).map(|count| Index { count: Some(count), place })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Index, E> {
        let place = text.trim().parse().ok();
        CountVisitor.visit_str(text).map(|count| Index { count: Some(count), place })
    }

    fn visit_unit<E: Error>(self) -> Result<Index, E> {
        Ok(Index::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Index, A::Error> {
        CountVisitor.visit_seq(items).map(|count| Index { count: Some(count), place: None })
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Index, A::Error> {
        CountVisitor.visit_map(entries).map(|count| Index { count: Some(count), place: None })
    }
}

/// A provider's error: an object with a message, or just a text.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Failure(pub(super) String);

#[derive(Deserialize, Default)]
struct FailureFields<'a> {
    #[serde(borrow, default)]
    message: Text<'a>,
    #[serde(borrow, default)]
    r#type: Text<'a>,
    #[serde(borrow, default)]
    code: Text<'a>,
    #[serde(borrow, default)]
    status: Text<'a>,
}

impl<'de> Deserialize<'de> for Failure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Failure, D::Error> {
        Ok(match ArgumentsSeed(4).deserialize(deserializer)? {
            Value::String(text) => Failure(text),
            value => {
                let fields = FailureFields::deserialize(&value).unwrap_or_default();
                let known = [fields.message, fields.r#type, fields.status, fields.code];
                let first = known.into_iter().find(|field| !field.is_empty());
                Failure(first.map_or_else(|| value.to_string(), |text| text.0.into_owned()))
            }
        })
    }
}

/// Arguments of a tool call, as a value of bounded depth.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Arguments(pub(super) Value);

impl Arguments {
    /// Arguments that come as a text of JSON. Nothing means none; what is no JSON stays a text.
    pub(super) fn parse(text: &str) -> Value {
        if text.trim().is_empty() {
            return Value::Object(Map::new());
        }
        let read = |text: &str| budget::within(|| serde_json::from_str::<Arguments>(text));
        let strictly = |_| read(&plain::strict(text.trim_start_matches('\u{feff}')));
        match read(text).or_else(strictly) {
            Ok(arguments) => arguments.0,
            Err(_) => Value::String(text.to_owned()),
        }
    }

    /// The same for clients that go on with what can be read of arguments that break off.
    pub(super) fn parse_partly(text: &str) -> Value {
        match budget::within(|| serde_json::from_str::<Arguments>(text)) {
            Err(_) if !text.trim().is_empty() => {
                let strict = plain::strict(text);
                match budget::within(|| serde_json::from_str::<Arguments>(&strict)) {
                    Ok(arguments) => arguments.0,
                    Err(error) => {
                        let read = strict.get(..fault(&strict, &error)).and_then(cut_off);
                        read.unwrap_or_else(|| Value::String(text.to_owned()))
                    }
                }
            }
            _ => Arguments::parse(text),
        }
    }

    /// Whether there is nothing in it.
    pub(super) fn is_empty(&self) -> bool {
        match &self.0 {
            Value::Null => true,
            Value::Object(map) => map.is_empty(),
            Value::String(text) => text.is_empty(),
            _ => false,
        }
    }

    /// The value, with a text of JSON unpacked and nothing as an empty object.
    pub(super) fn unpack(self) -> Value {
        match self.0 {
            Value::Null => Value::Object(Map::new()),
            // Some servers have no empty object.
            Value::Array(list) if list.is_empty() => Value::Object(Map::new()),
            Value::String(text) => Arguments::parse(&text),
            value => value,
        }
    }
}

/// Where reading failed: the whole length if only the end is missing.
fn fault(text: &str, error: &serde_json::Error) -> usize {
    if error.is_eof() {
        return text.len();
    }
    let before: usize = text.split_inclusive('\n').take(error.line() - 1).map(str::len).sum();
    text.floor_char_boundary((before + error.column().saturating_sub(1)).min(text.len()))
}

/// What can be read of an object whose end is missing: some clients go on with that much.
fn cut_off(text: &str) -> Option<Value> {
    let text = text.trim_start();
    if !text.starts_with('{') || text.len() > LONGEST_CUT {
        return None;
    }
    if let Ok(Arguments(whole)) = serde_json::from_str(text) {
        return Some(whole);
    }
    // The brackets to close at the end, and at the last place where nothing was half written.
    let (mut open, mut safe) = (Vec::new(), (0, Vec::new()));
    let (mut inside, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            _ if inside => {}
            b'{' => open.push(b'}'),
            b'[' => open.push(b']'),
            b'}' | b']' if open.pop() != Some(byte) => return None,
            _ => {}
        }
        match byte {
            b'{' | b'[' | b'}' | b']' if !inside => safe = (at + 1, open.clone()),
            b',' if !inside => safe = (at, open.clone()),
            _ => {}
        }
        if open.is_empty() || open.len() > DEEPEST {
            return None;
        }
    }
    let closed = |start: &str, open: &[u8]| {
        let end = open.iter().rev().map(|byte| char::from(*byte));
        let whole: String = start.chars().chain(end).collect();
        serde_json::from_str::<Arguments>(&whole).ok().map(|arguments| arguments.0)
    };
    let in_text = || {
        let kept = if escaped { &text[..text.len() - 1] } else { text };
        closed(&format!("{kept}\""), &open)
    };
    let value = if inside { in_text() } else { closed(text, &open) };
    value.or_else(|| closed(&text[..safe.0], &safe.1))
}

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Arguments, D::Error> {
        ArgumentsSeed(DEEPEST).deserialize(deserializer).map(Arguments)
    }
}

/// A text, or a value of any other form. An untagged enum would keep a copy of the whole value first.
pub(super) enum TextOrTree<'a> {
    Text(Cow<'a, str>),
    Tree(Value),
}

impl<'de> Deserialize<'de> for TextOrTree<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TextOrTree<'de>, D::Error> {
        deserializer.deserialize_any(TextOrTreeVisitor)
    }
}

struct TextOrTreeVisitor;

/// Hands values that are no text on to the reader of trees.
macro_rules! trees {
    ($($visit:ident: $kind:ty),*) => {
        $(fn $visit<E: Error>(self, value: $kind) -> Result<Self::Value, E> {
            ArgumentsSeed(DEEPEST).$visit(value).map(TextOrTree::Tree)
        })*
    };
}

impl<'de> Visitor<'de> for TextOrTreeVisitor {
    type Value = TextOrTree<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    trees!(visit_bool: bool, visit_u64: u64, visit_i64: i64, visit_f64: f64);

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(TextOrTree::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(TextOrTree::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(TextOrTree::Tree(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        ArgumentsSeed(DEEPEST).visit_seq(items).map(TextOrTree::Tree)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        ArgumentsSeed(DEEPEST).visit_map(entries).map(TextOrTree::Tree)
    }
}

/// Reads so many levels, and `null` for whatever is deeper.
#[derive(Clone, Copy)]
struct ArgumentsSeed(usize);

impl<'de> DeserializeSeed<'de> for ArgumentsSeed {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.0 == 0 {
            return IgnoredAny::deserialize(deserializer).map(|_| Value::Null);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ArgumentsSeed {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(if budget::take(value.len()) { value.to_owned() } else { String::new() }))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(ArgumentsSeed(self.0 - 1))? {
            if !budget::take(ELEMENT) {
                // What is left of it is of no use, and takes room.
                while items.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(Value::Null);
            }
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<Cow<'de, str>>()? {
            let value = entries.next_value_seed(ArgumentsSeed(self.0 - 1))?;
            let first = if map.is_empty() { OBJECT } else { 0 };
            if !budget::take(first + MEMBER + key.len()) {
                while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                return Ok(Value::Null);
            }
            map.insert(key.into_owned(), value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_of_any_shape() {
        let check = |input: &str, expected: &str| {
            let text: Text<'_> = serde_json::from_str(input).unwrap();
            assert_eq!(text.as_str(), expected, "{input}");
        };
        check(r#""plain""#, "plain");
        check(r#""a\nb é""#, "a\nb é");
        check("null", "");
        check("true", "");
        check("7", "7");
        check(r#"["a",{"type":"text","text":"b"},null]"#, "ab");
        check(r#"[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]"#, "hm");
    }

    #[test]
    fn counts_of_any_shape() {
        let check = |input: &str, expected: u64| {
            let field: Option<Count> = serde_json::from_str(input).unwrap();
            assert_eq!(count(field), expected, "{input}");
        };
        check("12", 12);
        check("12.0", 12);
        check("-3", 0);
        check("null", 0);
        check(r#""12""#, 12);
        check(r#"{"a":1}"#, 0);
    }

    #[test]
    fn failures_of_any_shape() {
        let check = |input: &str, expected: &str| {
            let failure: Failure = serde_json::from_str(input).unwrap();
            assert_eq!(failure.0, expected, "{input}");
        };
        check(r#""model not found""#, "model not found");
        check(r#"{"message":"slow down","code":429}"#, "slow down");
        check(r#"{"code":429,"status":"RESOURCE_EXHAUSTED"}"#, "RESOURCE_EXHAUSTED");
        check(r#"{"message":null,"code":500}"#, "500");
        check(r#"{"why":1}"#, r#"{"why":1}"#);
    }

    #[test]
    fn arguments_are_read_at_any_depth() {
        assert_eq!(Arguments::parse(""), json!({}));
        assert_eq!(
            Arguments::parse("{\"a\": [1, -2, 0.5, null]}"),
            json!({"a": [1, -2, 0.5, null]})
        );
        assert_eq!(Arguments::parse("{\"a\": 1"), json!("{\"a\": 1"));
        // Some clients go on with what can be read of arguments that break off.
        for (text, expected) in [
            ("{\"a\": 1", json!({ "a": 1 })),
            ("{\"a\": 1}e\n\"}", json!({ "a": 1 })),
            ("{\"l\": [1, 2][]}}", json!({ "l": [1, 2] })),
            ("{\"a\": \"rm -rf /sr", json!({ "a": "rm -rf /sr" })),
            ("{\"a\": \"x\\", json!({ "a": "x" })),
            ("{\"a\": 1, \"b", json!({ "a": 1 })),
            ("{\"a\": {\"b\": [1,", json!({ "a": { "b": [1] } })),
            ("rm", json!("rm")),
            ("{a", json!({})),
        ] {
            assert_eq!(Arguments::parse_partly(text), expected, "{text}");
        }
        let deep = format!("{{\"path\":\"/x\",\"deep\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
        assert_eq!(Arguments::parse(&deep)["path"], json!("/x"));
    }
}
