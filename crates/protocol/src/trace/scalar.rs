//! A JSON scalar that takes whatever is there.
//!
//! Recorded runs come from dozens of tools: an id is a number here and a string there, a time is
//! RFC 3339 or seconds, a flag is missing, null or false. None of that is a reason to lose a trace,
//! so the fields that are not its substance are read as this and asked for what they can give.

use std::borrow::Cow;
use std::fmt;

use deadstop_core::{Digest, Time, Tokens};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Any JSON value; lists and objects count as nothing.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) enum Scalar<'a> {
    #[default]
    Nothing,
    Flag(bool),
    Whole(u64),
    Number(f64),
    Text(Cow<'a, str>),
}

impl<'a> Scalar<'a> {
    /// It as words, if it is anything.
    pub(super) fn text(self) -> Option<Cow<'a, str>> {
        match self {
            Scalar::Nothing => None,
            Scalar::Flag(flag) => Some(Cow::Borrowed(if flag { "true" } else { "false" })),
            Scalar::Whole(number) => Some(Cow::Owned(number.to_string())),
            Scalar::Number(number) => Some(Cow::Owned(number.to_string())),
            Scalar::Text(text) => Some(text),
        }
    }

    /// It as words of one's own; empty words are none.
    pub(super) fn words(self) -> Option<String> {
        self.text().filter(|text| !text.is_empty()).map(Cow::into_owned)
    }

    /// The text, only if it is text.
    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A judgement; benchmarks write it as a flag or as a reward of 0 or 1.
    pub(super) fn flag(&self) -> Option<bool> {
        match self {
            Scalar::Flag(flag) => Some(*flag),
            Scalar::Whole(0) => Some(false),
            Scalar::Whole(1) => Some(true),
            Scalar::Number(reward) if *reward == 0.0 => Some(false),
            Scalar::Number(reward) if *reward == 1.0 => Some(true),
            _ => None,
        }
    }

    /// A flag that is off unless it is clearly on.
    pub(super) fn is_set(&self) -> bool {
        self.flag() == Some(true)
    }

    /// A number of tokens.
    pub(super) fn tokens(&self) -> Option<Tokens> {
        match self {
            Scalar::Whole(count) => Some(Tokens(*count)),
            // A float that is cast saturates: below zero is zero, NaN is zero.
            Scalar::Number(count) => Some(Tokens(*count as u64)),
            _ => None,
        }
    }

    /// A point in time: RFC 3339, or seconds or milliseconds since the epoch.
    pub(super) fn time(&self) -> Option<Time> {
        /// In seconds this is the year 5138, in milliseconds it is 1973.
        const MILLIS_FROM: f64 = 1e11;
        match self {
            Scalar::Text(text) => {
                let at: jiff::Timestamp = text.parse().ok()?;
                u64::try_from(at.as_millisecond()).ok().map(Time)
            }
            Scalar::Whole(number) if *number as f64 >= MILLIS_FROM => Some(Time(*number)),
            Scalar::Whole(number) => Some(Time(number * 1000)),
            Scalar::Number(number) if *number >= MILLIS_FROM => Some(Time(*number as u64)),
            Scalar::Number(number) if *number > 0.0 => Some(Time((number * 1000.0) as u64)),
            _ => None,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Scalar<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyScalar)
    }
}

struct AnyScalar;

impl<'de> Visitor<'de> for AnyScalar {
    type Value = Scalar<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Scalar::Nothing)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Self::Value, E> {
        Ok(Scalar::Flag(flag))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Scalar::Whole(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Scalar::Number(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Scalar::Number(number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Nothing)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Nothing)
    }
}

/// What is left of an image or another medium: enough to tell two of them apart.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Fingerprint(pub(super) u64);

impl Fingerprint {
    fn with(self, other: u64) -> Fingerprint {
        Fingerprint((self.0.rotate_left(17) ^ other).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyPrint)
    }
}

struct AnyPrint;

impl<'de> Visitor<'de> for AnyPrint {
    type Value = Fingerprint;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Fingerprint(0))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Self::Value, E> {
        Ok(Fingerprint(0).with(u64::from(flag)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Fingerprint(0).with(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Fingerprint(0).with(number as u64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Fingerprint(0).with(number.to_bits()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Fingerprint(0).with(Digest::of(text.as_bytes()).0))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut print = Fingerprint(1);
        while let Some(Fingerprint(part)) = list.next_element()? {
            print = print.with(part);
        }
        Ok(print)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut print = Fingerprint(2);
        while let Some((Fingerprint(key), Fingerprint(value))) = map.next_entry()? {
            print = print.with(key).with(value);
        }
        Ok(print)
    }
}
