//! Settings of guards, each in two forms: raw (what was typed, every field optional) and valid.
//!
//! The macro writes both from one list of fields, so that a name, its type and its documentation
//! exist once. Raw settings refuse unknown keys; laid over valid ones they replace what they name.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::units::{Millis, NanoUsd};

/// Declares the settings of a guard and their raw form. What stands under `elsewhere` may be typed
/// here, because the seed pages have it here, but belongs to another guard.
macro_rules! settings {
    (
        $(#[$meta:meta])*
        $name:ident / $raw:ident {
            $( $(#[$field_meta:meta])* $field:ident : $type:ty = $default:expr, )*
        }
        $( elsewhere { $( $(#[$moved_meta:meta])* $moved:ident : $moved_type:ty, )* } )?
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $( $field: $default, )* }
            }
        }

        #[doc = concat!("What a policy file says about [`", stringify!($name), "`]: any part of it.")]
        #[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $raw {
            $( $(#[$field_meta])* pub $field: Option<$type>, )*
            $( $( $(#[$moved_meta])* pub $moved: Option<$moved_type>, )* )?
        }

        impl $raw {
            /// Lays what was typed over `base`.
            pub(crate) fn over(self, base: &mut $name) {
                $( if let Some(value) = self.$field { base.$field = value; } )*
            }
        }
    };
}
pub(crate) use settings;

/// An amount of money that people type in dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dollars(pub NanoUsd);

impl Serialize for Dollars {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0.dollars())
    }
}

impl<'de> Deserialize<'de> for Dollars {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Dollars, D::Error> {
        let dollars = deserializer.deserialize_any(Number("an amount of dollars, such as 2.50"))?;
        NanoUsd::from_dollars(dollars)
            .map(Dollars)
            .ok_or_else(|| de::Error::custom("an amount of dollars must be 0 or more"))
    }
}

/// A length of time that people type in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(pub u64);

impl Seconds {
    /// The same in milliseconds.
    pub fn millis(self) -> Millis {
        Millis::from_secs(self.0)
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Seconds, D::Error> {
        u64::deserialize(deserializer).map(Seconds)
    }
}

/// A share of something: typed as `0.9` or `"90%"`, or `"off"`, which is 0.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Share(pub f64);

impl Share {
    /// No share at all.
    pub const OFF: Share = Share(0.0);

    /// So many hundredths.
    pub fn percent(percent: u8) -> Share {
        Share(f64::from(percent) / 100.0)
    }

    fn checked<E: de::Error>(share: f64) -> Result<Share, E> {
        match (0.0..=1.0).contains(&share) {
            true => Ok(Share(share)),
            false => Err(E::custom("a share is from 0 to 1, or from \"0%\" to \"100%\"")),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Thousandths of a percent are no one's intention.
        write!(f, "{}%", (self.0 * 100_000.0).round() / 1000.0)
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 == 0.0 {
            true => serializer.serialize_str("off"),
            false => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Share, D::Error> {
        struct Typed;
        impl Visitor<'_> for Typed {
            type Value = Share;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a share such as \"90%\" or 0.9, or \"off\"")
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Share, E> {
                Share::checked(value as f64)
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Share, E> {
                Share::checked(value as f64)
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Share, E> {
                Share::checked(value)
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Share, E> {
                if value == "off" {
                    return Ok(Share::OFF);
                }
                let number =
                    value.strip_suffix('%').and_then(|text| text.trim().parse::<f64>().ok());
                let wrong = || E::invalid_value(de::Unexpected::Str(value), &self);
                Share::checked(number.ok_or_else(wrong)? / 100.0)
            }
        }
        deserializer.deserialize_any(Typed)
    }
}

/// Reads whole and broken numbers alike: `2` is as good an amount as `2.0`.
struct Number(&'static str);

impl Visitor<'_> for Number {
    type Value = f64;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<f64, E> {
        Ok(value as f64)
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<f64, E> {
        Ok(value as f64)
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<f64, E> {
        Ok(value)
    }
}

/// A setting that cannot be: where it stands, what is wrong, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct BadSetting {
    /// Its path in the policy, such as `loop.threshold`.
    pub path: String,
    /// What is wrong.
    pub problem: String,
    /// What to do about it.
    pub hint: String,
}

impl BadSetting {
    pub(crate) fn new(path: &str, problem: impl Into<String>, hint: impl Into<String>) -> Self {
        BadSetting { path: path.to_owned(), problem: problem.into(), hint: hint.into() }
    }
}

/// Fails unless a whole number lies in a range.
pub(crate) fn in_range(
    path: &str,
    value: u64,
    range: std::ops::RangeInclusive<u64>,
) -> Result<(), BadSetting> {
    if range.contains(&value) {
        return Ok(());
    }
    let (low, high) = range.into_inner();
    Err(BadSetting::new(
        path,
        format!("{value} is not between {low} and {high}"),
        format!("write a whole number from {low} to {high}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_are_typed_as_numbers() {
        for (text, expected) in [("2", 2_000_000_000), ("0.5", 500_000_000), ("0", 0)] {
            let read: Dollars = serde_json::from_str(text).unwrap();
            assert_eq!(read, Dollars(NanoUsd(expected)));
            assert_eq!(serde_json::from_str::<f64>(text).unwrap(), read.0.dollars());
        }
        for bad in ["-1", "\"5\"", "true", "1e300"] {
            assert!(serde_json::from_str::<Dollars>(bad).is_err(), "{bad}");
        }
        assert_eq!(serde_json::to_string(&Dollars(NanoUsd(500_000_000))).unwrap(), "0.5");
        let bad = serde_json::from_str::<Dollars>("true").unwrap_err().to_string();
        assert!(bad.contains("expected an amount of dollars, such as 2.50"), "{bad}");
    }

    /// JSON has whole numbers without a sign, TOML and YAML have them with one.
    #[test]
    fn whole_dollars_may_have_a_sign() {
        use serde::de::IntoDeserializer;
        use serde::de::value::{Error, I64Deserializer};
        for (dollars, expected) in [(3i64, Some(3_000_000_000)), (0, Some(0)), (-1, None)] {
            let typed: I64Deserializer<Error> = dollars.into_deserializer();
            let read = Dollars::deserialize(typed).ok();
            assert_eq!(read, expected.map(|nano| Dollars(NanoUsd(nano))), "{dollars}");
        }
    }

    #[test]
    fn seconds_are_whole() {
        assert_eq!(serde_json::from_str::<Seconds>("60").unwrap().millis(), Millis(60_000));
        assert_eq!(serde_json::to_string(&Seconds(60)).unwrap(), "60");
        assert!(serde_json::from_str::<Seconds>("1.5").is_err());
    }

    #[test]
    fn ranges_include_their_ends() {
        assert!(in_range("a.b", 1, 1..=3).is_ok() && in_range("a.b", 3, 1..=3).is_ok());
        let bad = in_range("a.b", 4, 1..=3).unwrap_err();
        assert_eq!(bad.to_string(), "a.b: 4 is not between 1 and 3");
        assert_eq!(bad.hint, "write a whole number from 1 to 3");
        assert!(in_range("a.b", 0, 1..=3).is_err());
    }
}
