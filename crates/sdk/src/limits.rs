//! Limits of one scope, as whoever opens it says them.

use deadstop_core::{Dollars, NanoUsd, Policy, Seconds, Tokens};
use serde::{Deserialize, Serialize};

/// Limits of a scope: for all that happens in it and below it. What is not set is not limited here.
///
/// ```
/// use deadstop_sdk::Limits;
/// let limits = Limits { input_token_limit: Some(100_000), ..Limits::default() };
/// assert!(limits.check().is_ok());
/// assert!(Limits { max_cost_usd: Some(-1.0), ..limits }.check().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
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

/// A limit that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {problem}; leave it out for no limit")]
pub struct BadLimit {
    /// Which.
    pub name: &'static str,
    /// What is wrong.
    pub problem: &'static str,
}

impl Limits {
    /// Whether they can be.
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
            Some(dollars) if NanoUsd::from_dollars(dollars).is_none() => {
                Err(BadLimit { name: "max_cost_usd", problem: "must be an amount of 0 or more" })
            }
            _ => Ok(()),
        }
    }

    /// These, and where they say nothing, those.
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

    /// Lays them over a policy. A limit of the policy's own that is stricter stays.
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
        let ten = Limits { max_steps: Some(10), max_cost_usd: Some(2.0), ..Limits::default() };
        ten.over(&mut policy);
        Limits { max_steps: Some(20), max_cost_usd: Some(1.0), ..ten }.over(&mut policy);
        assert_eq!(policy.steps.max_steps, Some(10));
        assert_eq!(policy.budget.max_cost_usd.unwrap().0, NanoUsd::DOLLAR);
        assert_eq!(Limits::default().or(ten), ten);
    }

    #[test]
    fn what_cannot_be_is_said() {
        let bad = Limits { max_steps: Some(0), ..Limits::default() }.check().unwrap_err();
        assert_eq!(bad.to_string(), "max_steps: must be 1 or more; leave it out for no limit");
        assert!(Limits { max_cost_usd: Some(f64::NAN), ..Limits::default() }.check().is_err());
    }
}
