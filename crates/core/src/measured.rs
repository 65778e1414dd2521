//! What estimates of prompts came to, by a session's own bills.
//!
//! Before a call runs, its prompt is only estimated. Bills show how far such estimates are off: how
//! many tokens a text really has, and how much of it the provider reads from its cache. The next
//! estimate is corrected by what the last few bills have shown.

use serde::{Deserialize, Serialize};

use crate::call::{ModelCall, Usage};
use crate::units::{NanoUsd, Tokens};

/// Estimates and what they came to, the newest weighing most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    estimated: u64,
    counted: u64,
    expected_cost: u64,
    cost: u64,
}

impl Measured {
    /// Learns from the bill of a call whose prompt was estimated.
    pub(crate) fn learn(&mut self, call: &ModelCall, usage: &Usage) {
        let prompt = Usage { output: Tokens(0), ..*usage };
        let read = usage.counted_input() + usage.cache_read;
        if !call.estimated || call.input == Tokens(0) || read == Tokens(0) {
            return;
        }
        let decayed = |sum: u64, new: u64| (sum - sum / 4).saturating_add(new);
        let guess = Usage { input: call.input, ..Usage::default() };
        self.estimated = decayed(self.estimated, call.input.0);
        self.counted = decayed(self.counted, usage.counted_input().0);
        self.expected_cost = decayed(self.expected_cost, call.rates.cost(&guess).0);
        self.cost = decayed(self.cost, call.rates.cost(&prompt).0);
    }

    /// Whether it has learned anything yet.
    pub(crate) fn knows(&self) -> bool {
        self.estimated > 0
    }

    /// What an estimate of tokens will probably come to.
    pub(crate) fn tokens(&self, estimate: Tokens) -> Tokens {
        Tokens(scaled(estimate.0, self.counted, self.estimated))
    }

    /// What an estimate of a prompt's price will probably come to.
    pub(crate) fn cost(&self, estimate: NanoUsd) -> NanoUsd {
        NanoUsd(scaled(estimate.0, self.cost, self.expected_cost))
    }
}

fn scaled(amount: u64, by: u64, of: u64) -> u64 {
    if of == 0 {
        return amount;
    }
    let scaled = u128::from(amount) * u128::from(by) / u128::from(of);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Rates;

    fn call(input: u64) -> ModelCall {
        let rates = Rates {
            input: NanoUsd(3_000_000_000),
            cache_read: NanoUsd(300_000_000),
            ..Rates::default()
        };
        ModelCall { input: Tokens(input), estimated: true, rates, ..ModelCall::default() }
    }

    #[test]
    fn bills_correct_the_next_estimate() {
        let mut measured = Measured::default();
        assert!(!measured.knows());
        assert_eq!(measured.tokens(Tokens(100)), Tokens(100));
        let usage = Usage { input: Tokens(50), ..Usage::default() };
        measured.learn(&call(100), &usage);
        assert_eq!(measured.tokens(Tokens(1000)), Tokens(500));
        assert_eq!(measured.cost(NanoUsd(1000)), NanoUsd(500));
        // Most of the prompt is read from the cache: no limit counts that, but it costs a tenth.
        let cached = Usage { input: Tokens(0), cache_read: Tokens(1000), ..Usage::default() };
        for _ in 0..40 {
            measured.learn(&call(1000), &cached);
        }
        assert_eq!(measured.tokens(Tokens(1000)), Tokens(0));
        assert_eq!(measured.cost(NanoUsd(1000)), NanoUsd(100));
    }

    #[test]
    fn a_counted_prompt_teaches_nothing() {
        let mut measured = Measured::default();
        let counted = ModelCall { estimated: false, ..call(100) };
        measured.learn(&counted, &Usage { input: Tokens(50), ..Usage::default() });
        measured.learn(&call(100), &Usage::default());
        assert!(!measured.knows());
    }
}
