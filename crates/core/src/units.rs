//! Units as types, so that a token is never added to a dollar nor a duration to a date.
//!
//! Money is counted in whole nano-dollars: the cheapest token on the market costs a few dozen of
//! them, so a price per token has no fraction worth keeping and no float ever enters the ledger.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// A point in time: milliseconds since the Unix epoch, given by the engine's caller.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// How long after `earlier` this is; nothing if the clock went backwards.
    pub fn since(self, earlier: Time) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Millis> for Time {
    type Output = Time;
    fn add(self, rhs: Millis) -> Time {
        Time(self.0.saturating_add(rhs.0))
    }
}

/// A length of time in milliseconds.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// Whole seconds as milliseconds.
    pub const fn from_secs(secs: u64) -> Millis {
        Millis(secs.saturating_mul(1000))
    }

    /// As whole seconds, rounded up; at least one.
    ///
    /// ```
    /// # use deadstop_core::Millis;
    /// assert_eq!(Millis(1001).whole_seconds(), Millis(2000));
    /// assert_eq!(Millis(0).whole_seconds(), Millis(1000));
    /// ```
    pub const fn whole_seconds(self) -> Millis {
        let seconds = self.0.div_ceil(1000);
        Millis::from_secs(if seconds == 0 { 1 } else { seconds })
    }
}

impl fmt::Display for Millis {
    /// Short and human: `850 ms`, `12 s`, `3 min 5 s`, `2 h 10 min`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.0 / 1000;
        match secs {
            0 if self.0 > 0 => write!(f, "{} ms", self.0),
            0..=119 => write!(f, "{secs} s"),
            120..=7199 if secs.is_multiple_of(60) => write!(f, "{} min", secs / 60),
            120..=7199 => write!(f, "{} min {} s", secs / 60, secs % 60),
            _ if secs % 3600 < 60 => write!(f, "{} h", secs / 3600),
            _ => write!(f, "{} h {} min", secs / 3600, secs % 3600 / 60),
        }
    }
}

/// A number of model tokens.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Tokens(pub u64);

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", grouped(self.0))
    }
}

/// An amount of money in nano-dollars (a billionth of a US dollar).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct NanoUsd(pub u64);

impl NanoUsd {
    /// One US dollar.
    pub const DOLLAR: NanoUsd = NanoUsd(1_000_000_000);

    /// Reads a dollar amount typed by a person; `None` unless it is finite, not negative and
    /// small enough to count.
    ///
    /// ```
    /// use deadstop_core::NanoUsd;
    /// assert_eq!(NanoUsd::from_dollars(0.25), Some(NanoUsd(250_000_000)));
    /// assert_eq!(NanoUsd::from_dollars(-1.0), None);
    /// ```
    pub fn from_dollars(dollars: f64) -> Option<NanoUsd> {
        let nano = (dollars * 1e9).round();
        if !(nano.is_finite() && (0.0..1e18).contains(&nano)) {
            return None;
        }
        // The product was rounded once too often for large amounts: take the neighbour that is
        // shown as what was typed, so that an amount survives being written and read.
        let near = nano as u64;
        let exact = |n: &u64| NanoUsd(*n).dollars() == dollars;
        let found = [near, near.saturating_sub(1), near + 1].into_iter().find(exact);
        Some(NanoUsd(found.unwrap_or(near)))
    }

    /// The amount in dollars, for showing and for JSON; never for arithmetic.
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl fmt::Display for NanoUsd {
    /// Cents from ten cents up, more digits below: `$5.00`, `$0.0042`, `$0.000007`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("$0"),
            100_000_000.. => write!(f, "${:.2}", self.dollars()),
            100_000.. => write!(f, "${:.4}", self.dollars()),
            _ => write!(f, "${:.6}", self.dollars()),
        }
    }
}

/// Saturating arithmetic: a counter that cannot wrap cannot be wrapped on purpose.
macro_rules! counts {
    ($($unit:ident),*) => {$(
        impl Add for $unit {
            type Output = $unit;
            fn add(self, rhs: $unit) -> $unit { $unit(self.0.saturating_add(rhs.0)) }
        }
        impl AddAssign for $unit {
            fn add_assign(&mut self, rhs: $unit) { *self = *self + rhs; }
        }
        impl Sub for $unit {
            type Output = $unit;
            fn sub(self, rhs: $unit) -> $unit { $unit(self.0.saturating_sub(rhs.0)) }
        }
    )*};
}
counts!(Millis, Tokens, NanoUsd);

/// Digits in groups of three, as people read them.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_as_people_read_them() {
        for (shown, expected) in [
            (Millis(0).to_string(), "0 s"),
            (Millis(850).to_string(), "850 ms"),
            (Millis(12_400).to_string(), "12 s"),
            (Millis(119_999).to_string(), "119 s"),
            (Millis(120_000).to_string(), "2 min"),
            (Millis(185_000).to_string(), "3 min 5 s"),
            (Millis(7_199_000).to_string(), "119 min 59 s"),
            (Millis(7_200_000).to_string(), "2 h"),
            (Millis(7_259_999).to_string(), "2 h"),
            (Millis(7_260_000).to_string(), "2 h 1 min"),
            (Millis(7_800_000).to_string(), "2 h 10 min"),
            (Tokens(7).to_string(), "7 tokens"),
            (Tokens(1_234_567).to_string(), "1,234,567 tokens"),
            (Tokens(123_456).to_string(), "123,456 tokens"),
            (NanoUsd(0).to_string(), "$0"),
            (NanoUsd(5_000_000_000).to_string(), "$5.00"),
            (NanoUsd(100_000_000).to_string(), "$0.10"),
            (NanoUsd(4_200_000).to_string(), "$0.0042"),
            (NanoUsd(7_000).to_string(), "$0.000007"),
        ] {
            assert_eq!(shown, expected);
        }
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Tokens(u64::MAX) + Tokens(1), Tokens(u64::MAX));
        assert_eq!(Tokens(1) - Tokens(2), Tokens(0));
        assert_eq!(Time(5).since(Time(9)), Millis(0));
        assert_eq!(Time(9).since(Time(5)), Millis(4));
        assert_eq!(Time(5) + Millis(4), Time(9));
        let mut spent = NanoUsd(1);
        spent += NanoUsd(2);
        assert_eq!(spent, NanoUsd(3));
    }

    #[test]
    fn dollars_are_read_with_care() {
        assert_eq!(NanoUsd::from_dollars(1.5), Some(NanoUsd(1_500_000_000)));
        assert_eq!(NanoUsd::from_dollars(0.0), Some(NanoUsd(0)));
        let large = NanoUsd(4_242_035_690_000_000);
        assert_eq!(NanoUsd::from_dollars(large.dollars()), Some(large));
        for bad in [f64::NAN, f64::INFINITY, -0.01, 1e12] {
            assert_eq!(NanoUsd::from_dollars(bad), None, "{bad}");
        }
    }
}
