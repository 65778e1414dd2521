//! Values, ids and times as OTLP writes them in JSON.
//!
//! Numbers of 64 bits stand in texts there, and ids in hexadecimal. Emitters are not strict about either, so
//! both spellings of numbers are read.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::{Any, Id, Pair};

/// What a value is, by the name of its field.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Kind {
    StringValue,
    BoolValue,
    IntValue,
    DoubleValue,
    ArrayValue,
    KvlistValue,
    BytesValue,
    #[serde(other)]
    Unknown,
}

/// A text that stays where it is unless something in it is escaped.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Default, Deserialize)]
#[serde(default)]
struct List<'a> {
    #[serde(borrow)]
    values: Vec<Any<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pairs<'a> {
    #[serde(borrow)]
    values: Vec<Pair<'a>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Any<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Any<'a>, D::Error> {
        deserializer.deserialize_map(AnyVisitor(PhantomData))
    }
}

struct AnyVisitor<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> Visitor<'de> for AnyVisitor<'a> {
    type Value = Any<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value such as {\"stringValue\": \"…\"}")
    }

    /// Of several values the last one counts.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Any<'a>, A::Error> {
        let mut found = Any::Empty;
        while let Some(kind) = map.next_key::<Kind>()? {
            let value = match kind {
                Kind::StringValue => {
                    map.next_value::<Option<Text<'a>>>()?.map(|text| Any::Text(text.0))
                }
                Kind::BoolValue => map.next_value::<Option<bool>>()?.map(Any::Truth),
                Kind::IntValue => map.next_value::<Option<Whole>>()?.map(|whole| Any::Int(whole.0)),
                Kind::DoubleValue => {
                    map.next_value::<Option<Real>>()?.map(|real| Any::Double(real.0))
                }
                Kind::ArrayValue => {
                    map.next_value::<Option<List<'a>>>()?.map(|list| Any::List(list.values))
                }
                Kind::KvlistValue => {
                    map.next_value::<Option<Pairs<'a>>>()?.map(|pairs| Any::Pairs(pairs.values))
                }
                Kind::BytesValue => map.next_value::<Option<IgnoredAny>>()?.map(|_| Any::Bytes),
                Kind::Unknown => map.next_value::<IgnoredAny>().map(|_| None)?,
            };
            found = value.unwrap_or(found);
        }
        Ok(found)
    }
}

/// A whole number, also as a text.
struct Whole(i64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Whole, D::Error> {
        deserializer.deserialize_any(WholeVisitor).map(Whole)
    }
}

struct WholeVisitor;

impl Visitor<'_> for WholeVisitor {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number, or one in a text")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<i64, E> {
        Ok(number)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<i64, E> {
        i64::try_from(number).map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<i64, E> {
        text.parse().map_err(E::custom)
    }
}

/// A number, also as a text: JSON has no word for what is none.
struct Real(f64);

impl<'de> Deserialize<'de> for Real {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Real, D::Error> {
        deserializer.deserialize_any(RealVisitor).map(Real)
    }
}

struct RealVisitor;

impl Visitor<'_> for RealVisitor {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or one in a text")
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<f64, E> {
        Ok(number)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<f64, E> {
        Ok(number as f64)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<f64, E> {
        Ok(number as f64)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<f64, E> {
        text.parse().map_err(E::custom)
    }
}

/// Nanoseconds since 1970.
pub(super) fn nanos<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    struct Nanos;
    impl Visitor<'_> for Nanos {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("nanoseconds as a number, or in a text")
        }

        fn visit_u64<E: de::Error>(self, nanos: u64) -> Result<u64, E> {
            Ok(nanos)
        }

        fn visit_i64<E: de::Error>(self, nanos: i64) -> Result<u64, E> {
            u64::try_from(nanos).map_err(E::custom)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
            text.parse().map_err(E::custom)
        }
    }
    deserializer.deserialize_any(Nanos)
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Id, D::Error> {
        struct Hex;
        impl Visitor<'_> for Hex {
            type Value = Id;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id in hexadecimal")
            }

            /// What cannot be an id is none: that span is of no use, and the others are.
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Id, E> {
                Ok(id(text.as_bytes()).unwrap_or_default())
            }
        }
        deserializer.deserialize_str(Hex)
    }
}

fn id(text: &[u8]) -> Option<Id> {
    let text = text.strip_prefix(b"0x").unwrap_or(text);
    let mut bytes = [0; 16];
    let (digits, rest) = text.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    for (byte, [high, low]) in bytes.get_mut(..digits.len())?.iter_mut().zip(digits) {
        *byte = u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()?;
    }
    Id::of(bytes.get(..digits.len())?)
}
