//! A message's envelope, read in place.
//!
//! A message that two readers could understand in two ways is not read at all: a member that is
//! there twice, or one that only differs in case (there are servers that do not mind the case).
//! What cannot be read cannot be judged.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use deadstop_core::Digest;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::{facts, plain};

/// A JSON-RPC message.
#[derive(Debug, Clone, Default)]
pub struct Message<'a> {
    /// Its id as it stands there: a number or a text.
    pub id: Option<&'a str>,
    /// The method, of a request or a notification.
    pub method: Option<Cow<'a, str>>,
    /// What the method is given.
    pub params: Option<&'a str>,
    /// The result, of an answer.
    pub result: Option<&'a str>,
    /// The error, of an answer.
    pub error: Option<&'a str>,
}

/// What came at once: one message, or a batch (as the protocol had it in 2025-03-26).
#[derive(Debug, Clone)]
pub enum Envelope<'a> {
    /// One.
    One(Message<'a>),
    /// Several.
    Batch(Vec<Message<'a>>),
}

/// Not a message that has one meaning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON-RPC message that can be judged: {0}")]
pub struct Unreadable(String);

impl<'a> Envelope<'a> {
    /// Its messages, in order.
    pub fn messages(&self) -> &[Message<'a>] {
        match self {
            Envelope::One(message) => std::slice::from_ref(message),
            Envelope::Batch(messages) => messages,
        }
    }
}

impl Message<'_> {
    /// Its id in a form in which equal ids are equal, however they are written: a server may write
    /// another's id anew.
    pub fn key(&self) -> Option<Digest> {
        key(self.id?)
    }

    /// Whether it asks for an answer.
    pub fn is_request(&self) -> bool {
        self.method.is_some() && self.id.is_some()
    }

    /// Whether it is a request that an agent makes, and that a dead one may not make: everything
    /// but the handshake and the ping, with which a client finds out that its server is there, and
    /// notifications. Without an id it is one all the same: there are servers that act on it.
    pub fn is_governed(&self) -> bool {
        let free = |method: &str| {
            matches!(method, "initialize" | "server/discover" | "ping")
                || method.starts_with("notifications/")
        };
        self.method.as_deref().is_some_and(|method| !free(method))
    }

    /// Whether it is an answer.
    pub fn is_answer(&self) -> bool {
        self.method.is_none() && (self.result.is_some() || self.error.is_some())
    }

    /// Whether it asks for a method.
    pub fn asks_for(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }
}

/// An id beyond this is compared as it is written: a list in the place of an id would take much memory.
const LONGEST_ID: usize = 4096;

/// Messages in one batch.
const MOST_MESSAGES: usize = 10_000;

/// An id in a form in which equal ids are equal.
pub fn key(id: &str) -> Option<Digest> {
    if id.len() > LONGEST_ID {
        return Some(Digest::of(id.as_bytes()));
    }
    serde_json::from_str(id).ok().map(|id| facts::canonical(&number(id)))
}

/// The official clients make a number of an id that is a text before they look for its request: TypeScript's by
/// `Number`, Python's by `int`.
fn number(id: Value) -> Value {
    let Value::String(text) = &id else { return id };
    let plain = text.trim().replace('_', "");
    let radix = |prefix: &str, radix: u32| {
        let digits = plain.strip_prefix(prefix).or(plain.strip_prefix(&prefix.to_uppercase()))?;
        u64::from_str_radix(digits, radix).ok().map(Value::from)
    };
    let decimal = || {
        let begins = plain.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
        plain.parse::<f64>().ok().filter(|_| begins).map(Value::from)
    };
    let empty = plain.is_empty().then(|| Value::from(0));
    let found = empty.or_else(decimal).or_else(|| radix("0x", 16));
    found.or_else(|| radix("0o", 8)).or_else(|| radix("0b", 2)).unwrap_or(id)
}

/// Reads what came.
///
/// ```
/// use deadstop_protocol::mcp::read;
/// let line = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ls"}}"#;
/// let message = read(line).unwrap().messages()[0].clone();
/// assert_eq!((message.id, message.method.as_deref()), (Some("7"), Some("tools/call")));
/// assert!(read(br#"{"id":7,"method":"ping","Method":"tools/call"}"#).is_err());
/// ```
pub fn read(bytes: &[u8]) -> Result<Envelope<'_>, Unreadable> {
    let bytes = bytes.trim_ascii();
    let unreadable = |error: serde_json::Error| Unreadable(error.to_string());
    if bytes.first() == Some(&b'[') {
        let batch: Result<Batch<'_>, _> = serde_json::from_slice(bytes);
        return batch.map(|batch| Envelope::Batch(batch.0)).map_err(unreadable);
    }
    serde_json::from_slice(bytes).map(Envelope::One).map_err(unreadable)
}

/// What a server says, in JSON that [`read`] takes; `None` if it is no message to any client. A client may read more
/// than [`read`] does, Python's `NaN` for example.
pub fn strictly(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).ok()?.trim_start_matches('\u{feff}');
    if !text.trim_ascii_start().starts_with(['{', '[']) {
        return None;
    }
    let strict = plain::made_strict(text).unwrap_or_else(|| text.to_owned());
    serde_json::from_str::<IgnoredAny>(&strict).ok().map(|_| strict.into_bytes())
}

/// A batch of messages that is small enough to be read.
struct Batch<'a>(Vec<Message<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Batch<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Batch<'a>, D::Error> {
        deserializer.deserialize_seq(BatchVisitor(PhantomData))
    }
}

struct BatchVisitor<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> Visitor<'de> for BatchVisitor<'a> {
    type Value = Batch<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Batch<'a>, A::Error> {
        let mut batch = Vec::new();
        while let Some(message) = list.next_element()? {
            if batch.len() == MOST_MESSAGES {
                let why = format!("a batch has more than {MOST_MESSAGES} messages");
                return Err(A::Error::custom(why));
            }
            batch.push(message);
        }
        Ok(Batch(batch))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Message<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Message<'a>, D::Error> {
        let [id, method, params, result, error] =
            members(deserializer, ["id", "method", "params", "result", "error"])?;
        let method = method.map(text).transpose().map_err(D::Error::custom)?;
        // An id of null is none: an answer to it could not be matched.
        let id = id.filter(|id| *id != "null");
        Ok(Message { id, method, params, result, error })
    }
}

/// A text as JSON has it.
pub(super) fn text(raw: &str) -> Result<Cow<'_, str>, serde_json::Error> {
    /// Borrowed where nothing is escaped.
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text<'_>>(raw).map(|text| text.0)
}

/// Some members of an object, each as it stands there.
pub(super) fn members<'de, D: Deserializer<'de>, const N: usize>(
    deserializer: D,
    names: [&'static str; N],
) -> Result<[Option<&'de str>; N], D::Error> {
    struct Members<const N: usize>([&'static str; N]);
    impl<'de, const N: usize> Visitor<'de> for Members<N> {
        type Value = [Option<&'de str>; N];
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = [None; N];
            while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                let Some(at) = self.0.iter().position(|name| key.eq_ignore_ascii_case(name)) else {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                };
                if found[at].is_some() || key != self.0[at] {
                    return Err(A::Error::custom(format!("`{}` is ambiguous", self.0[at])));
                }
                found[at] = Some(map.next_value::<&'de RawValue>()?.get());
            }
            Ok(found)
        }
    }
    deserializer.deserialize_map(Members(names))
}

/// Some members of an object that is given as text.
pub(super) fn members_of<'a, const N: usize>(
    raw: &'a str,
    names: [&'static str; N],
) -> Result<[Option<&'a str>; N], serde_json::Error> {
    members(&mut serde_json::Deserializer::from_str(raw), names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<&[(Option<&str>, Option<&str>)]>) {
        let read = read(line.as_bytes()).ok();
        let found: Option<Vec<_>> = read.as_ref().map(|envelope| {
            let messages = envelope.messages().iter();
            messages.map(|message| (message.id, message.method.as_deref())).collect()
        });
        assert_eq!(found.as_deref(), expected, "{line}");
    }

    #[test]
    fn envelopes() {
        check(r#"{"id":1,"method":"ping"}"#, Some(&[(Some("1"), Some("ping"))]));
        check(" {\"id\":\"a\\u0062\",\"result\":{}}\r", Some(&[(Some("\"a\\u0062\""), None)]));
        check(r#"{"id":null,"method":"x"}"#, Some(&[(None, Some("x"))]));
        check(r#"{"method":"tools\u002fcall"}"#, Some(&[(None, Some("tools/call"))]));
        check(
            r#"[{"id":1,"method":"a"},{"id":2,"result":1}]"#,
            Some(&[(Some("1"), Some("a")), (Some("2"), None)]),
        );
        check("[]", Some(&[]));
        for unreadable in [
            "",
            "hello",
            "7",
            "[[]]",
            r#"{"id":1,"method":7}"#,
            r#"{"method":"a","method":"b"}"#,
            r#"{"method":"a","METHOD":"b"}"#,
            r#"{"id":1,"Method":"tools/call"}"#,
            r#"{"id":1} trailing"#,
            r#"{"id":1,"method":"ping"}{"id":2,"method":"tools/call"}"#,
            r#"{"id":1,"method":"ping","params":NaN}"#,
            r#"{"id":1,"#,
        ] {
            check(unreadable, None);
        }
    }

    #[test]
    fn kinds() {
        let one = |line: &'static str| read(line.as_bytes()).unwrap().messages()[0].clone();
        assert!(one(r#"{"id":1,"method":"tools/call"}"#).is_request());
        assert!(!one(r#"{"method":"tools/call"}"#).is_request());
        assert!(one(r#"{"id":1,"error":{}}"#).is_answer());
        assert!(one(r#"{"id":1,"method":"tools/list"}"#).asks_for(super::super::LIST));
    }

    #[test]
    fn ids_are_compared_by_what_they_say() {
        for (one, other, same) in [
            ("7", "7", true),
            ("7", "7.0", true),
            ("\"a\\u0062\"", "\"ab\"", true),
            // As the official clients compare them.
            ("7", "\"7\"", true),
            ("7", "\" 7.0 \"", true),
            ("10", "\"0xA\"", true),
            ("10", "\"1_0\"", true),
            ("0", "\"\"", true),
            ("7", "\"seven\"", false),
            ("\"inf\"", "\"Infinity\"", false),
            ("7", "8", false),
        ] {
            assert_eq!(key(one) == key(other), same, "{one} {other}");
        }
    }

    #[test]
    fn depth_is_no_way_out() {
        let deep = format!(
            r#"{{"id":1,"method":"tools/call","params":{}{}}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        check(&deep, Some(&[(Some("1"), Some("tools/call"))]));
    }
}
