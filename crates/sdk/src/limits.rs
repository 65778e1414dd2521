//! Limits of one scope, as its opener sets them.

use deadstop_core::{Dollars, NanoUsd, Policy, Seconds, Tokens};
use serde::{Deserialize, Serialize};

/// Limits of a scope: they hold for all calls in it and below it. What is not set is not limited here.
///
/// ```
/// use deadstop_sdk::Limits;
/// let limits = Limits::new().input_token_limit(100_000).max_steps(20);
/// assert!(limits.check().is_ok());
/// assert!(limits.max_cost_usd(-1.0).check().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Limits {
    /// Input tokens, without cache reads.
    pub input_token_limit: Option<u64>,
    /// Output tokens, reasoning included.
    pub output_token_limit: Option<u64>,
    /// Both together.
    pub total_token_limit: Option<u64>,
    /// Dollars, for models and tools.
    pub max_cost_usd: Option<f64>,
    /// Tool calls.
    pub max_steps: Option<u64>,
    /// Model calls.
    pub max_model_calls: Option<u64>,
    /// Seconds since the scope was opened.
    pub max_wall_time_seconds: Option<u64>,
}

/// A limit that has no meaning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {problem}; leave it out for no limit")]
#[non_exhaustive]
pub struct BadLimit {
    /// Which.
    pub name: &'static str,
    /// What is wrong.
    pub problem: &'static str,
}

/// Declares a method that sets one limit.
macro_rules! setters {
    ($( $(#[doc = $doc:literal])* $name:ident: $kind:ty, )*) => {
        impl Limits {
            $(
                $(#[doc = $doc])*
                #[must_use]
                pub fn $name(mut self, limit: $kind) -> Limits {
                    self.$name = Some(limit);
                    self
                }
            )*
        }
    };
}

setters! {
    /// Limits input tokens, without cache reads.
    input_token_limit: u64,
    /// Limits output tokens, reasoning included.
    output_token_limit: u64,
    /// Limits input and output tokens together.
    total_token_limit: u64,
    /// Limits dollars, for models and tools.
    max_cost_usd: f64,
    /// Limits tool calls.
    max_steps: u64,
    /// Limits model calls.
    max_model_calls: u64,
    /// Limits the seconds since the scope was opened.
    max_wall_time_seconds: u64,
}

impl Limits {
    /// No limits yet.
    pub fn new() -> Limits {
        Limits::default()
    }

    /// Checks that every limit has a meaning.
    pub fn check(&self) -> Result<(), BadLimit> {
        for (name, limit) in [
            ("input_token_limit", self.input_token_limit),
            ("output_token_limit", self.output_token_limit),
            ("total_token_limit", self.total_token_limit),
            ("max_steps", self.max_steps),
            ("max_model_calls", self.max_model_calls),
            ("max_wall_time_seconds", self.max_wall_time_seconds),
        ] {
            if limit == Some(0) {
                return Err(BadLimit { name, problem: "must be 1 or more" });
            }
        }
        match self.max_cost_usd {
            Some(dollars) if NanoUsd::from_dollars(dollars).is_none() => Err(BadLimit {
                name: "max_cost_usd",
                problem: "must be a finite amount of 0 or more",
            }),
            _ => Ok(()),
        }
    }

    /// These limits, and the others where these are not set.
    ///
    /// ```
    /// use deadstop_sdk::Limits;
    /// let both = Limits::new().max_steps(5).or(Limits::new().max_steps(9).max_cost_usd(1.0));
    /// assert_eq!((both.max_steps, both.max_cost_usd), (Some(5), Some(1.0)));
    /// ```
    #[must_use]
    pub fn or(self, others: Limits) -> Limits {
        Limits {
            input_token_limit: self.input_token_limit.or(others.input_token_limit),
            output_token_limit: self.output_token_limit.or(others.output_token_limit),
            total_token_limit: self.total_token_limit.or(others.total_token_limit),
            max_cost_usd: self.max_cost_usd.or(others.max_cost_usd),
            max_steps: self.max_steps.or(others.max_steps),
            max_model_calls: self.max_model_calls.or(others.max_model_calls),
            max_wall_time_seconds: self.max_wall_time_seconds.or(others.max_wall_time_seconds),
        }
    }

    /// Lays them over a policy. Where both limit something the stricter limit holds.
    pub(crate) fn over(&self, policy: &mut Policy) {
        fn least<T: Ord>(own: &mut Option<T>, typed: Option<T>) {
            *own = match (own.take(), typed) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        least(&mut policy.tokens.input_token_limit, self.input_token_limit.map(Tokens));
        least(&mut policy.tokens.output_token_limit, self.output_token_limit.map(Tokens));
        least(&mut policy.tokens.total_token_limit, self.total_token_limit.map(Tokens));
        let money = self.max_cost_usd.and_then(NanoUsd::from_dollars).map(Dollars);
        least(&mut policy.budget.max_cost_usd, money);
        least(&mut policy.steps.max_steps, self.max_steps);
        least(&mut policy.steps.max_model_calls, self.max_model_calls);
        let time = self.max_wall_time_seconds.map(Seconds);
        least(&mut policy.time.max_wall_time_seconds, time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stricter_limit_holds() {
        let mut policy = Policy::none();
        let ten = Limits::new().max_steps(10).max_cost_usd(2.0);
        ten.over(&mut policy);
        ten.max_steps(20).max_cost_usd(1.0).over(&mut policy);
        assert_eq!(policy.steps.max_steps, Some(10));
        assert_eq!(policy.budget.max_cost_usd.unwrap().0, NanoUsd::DOLLAR);
        assert_eq!(Limits::default().or(ten), ten);
    }

    #[test]
    fn a_limit_without_a_meaning_is_refused() {
        let bad = Limits::new().max_steps(0).check().unwrap_err();
        assert_eq!(bad.to_string(), "max_steps: must be 1 or more; leave it out for no limit");
        for dollars in [f64::NAN, f64::INFINITY, -1.0] {
            assert!(Limits::new().max_cost_usd(dollars).check().is_err());
        }
    }
}
