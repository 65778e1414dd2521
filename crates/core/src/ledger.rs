//! The ledger of a scope: what was spent, and what calls in flight have reserved.
//!
//! A call reserves before it runs and settles when it ends, in every scope of its chain, so that
//! `spent + reserved` is at all times the most that the scope is committed to.

use serde::{Deserialize, Serialize};

use crate::call::{Call, Rates, Usage};
use crate::units::{Millis, NanoUsd, Time, Tokens};

/// What was really used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spent {
    /// Tool calls that were admitted.
    pub steps: u64,
    /// Model calls that were admitted.
    pub model_calls: u64,
    /// Input tokens as limits count them: without cache reads.
    pub input: Tokens,
    /// Output tokens.
    pub output: Tokens,
    /// Tokens read from a cache: they cost, but no limit counts them.
    pub cache_read: Tokens,
    /// Money, for models and tools.
    pub cost: NanoUsd,
}

/// What a call may use, set aside before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reserved {
    /// Input tokens.
    pub input: Tokens,
    /// Output tokens.
    pub output: Tokens,
    /// Money.
    pub cost: NanoUsd,
}

/// How a call's cost is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reservation {
    /// What calls of this scope typically use; corrected while the answer streams. Parallel calls
    /// may overshoot by what one of them generates between two events.
    #[default]
    Expected,
    /// The most that the request allows. Never a cent over, at the price of refusing calls that
    /// would in the end have fitted.
    Ceiling,
}

/// The period over which money is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    /// The life of the scope.
    #[default]
    Total,
    /// Each hour (UTC) anew.
    Hour,
    /// Each day (UTC) anew.
    Day,
}

impl Period {
    /// The number of the period that a moment lies in. Periods of different lengths are told apart
    /// by [`KINDS`].
    fn index(self, now: Time) -> u64 {
        match self {
            Period::Total => 0,
            Period::Hour => KINDS + now.0 / Millis::from_secs(3600).0 % KINDS,
            Period::Day => 2 * KINDS + now.0 / Millis::from_secs(86_400).0 % KINDS,
        }
    }
}

#[cfg(feature = "share")]
impl Period {
    /// Whether two moments lie in one.
    pub(crate) fn same(self, one: Time, other: Time) -> bool {
        self.index(one) == self.index(other)
    }
}

/// More periods than there are of one length.
const KINDS: u64 = 1_000_000_000;

/// Tokens assumed for an answer before a scope has seen any.
const FIRST_GUESS: Tokens = Tokens(256);

/// The ledger of one scope.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// What was used since the scope was opened.
    pub spent: Spent,
    /// What calls in flight have set aside.
    pub reserved: Reserved,
    /// Calls in flight.
    pub in_flight: u64,
    /// Money spent in the current period of the budget.
    pub period_cost: NanoUsd,
    period_index: u64,
    /// Running mean of output tokens per answer, in 1/16 tokens; 0 before the first.
    typical: u64,
}

impl Spent {
    /// Counts a call. Lists of models and counts of tokens are no model calls.
    pub(crate) fn count(&mut self, call: &Call) {
        match call {
            Call::Tool(_) => self.steps += 1,
            Call::Model(call) if call.lookup => {}
            Call::Model(_) => self.model_calls += 1,
        }
    }
}

impl Ledger {
    /// Starts a new period if `now` lies in one. It never returns to an earlier period: a clock
    /// that is set back must not hand out the same budget twice.
    pub(crate) fn roll(&mut self, period: Period, now: Time) {
        let index = period.index(now);
        let known = self.period_index;
        if known > 0 && known < KINDS && known == index % KINDS {
            // Written before periods said of which length they are.
            self.period_index = index;
        } else if known / KINDS != index / KINDS || known < index {
            self.period_index = index;
            self.period_cost = NanoUsd(0);
        }
    }

    /// Money that is spent or set aside in the current period.
    pub fn committed(&self) -> NanoUsd {
        self.period_cost + self.reserved.cost
    }

    /// The same at a later moment: what was spent in a period that is over counts no more.
    pub(crate) fn committed_at(&self, period: Period, now: Time) -> NanoUsd {
        let mut then = self.clone();
        then.roll(period, now);
        then.committed()
    }

    /// The answer's length to expect, given the request's own limit.
    pub(crate) fn expected_output(&self, max: Option<Tokens>) -> Tokens {
        let typical = match self.typical {
            0 => FIRST_GUESS,
            sixteenths => Tokens(sixteenths / 16),
        };
        max.map_or(typical, |max| typical.min(max))
    }

    pub(crate) fn reserve(&mut self, reserved: Reserved) {
        self.reserved.input += reserved.input;
        self.reserved.output += reserved.output;
        self.reserved.cost += reserved.cost;
    }

    pub(crate) fn release(&mut self, reserved: Reserved) {
        self.reserved.input = self.reserved.input - reserved.input;
        self.reserved.output = self.reserved.output - reserved.output;
        self.reserved.cost = self.reserved.cost - reserved.cost;
    }

    /// Books what is reserved as spent: its calls are gone.
    pub(crate) fn recover(&mut self) {
        let lost = std::mem::take(&mut self.reserved);
        self.in_flight = 0;
        self.spent.input += lost.input;
        self.spent.output += lost.output;
        self.spent.cost += lost.cost;
        self.period_cost += lost.cost;
    }

    /// Adds what was spent and set aside in another ledger of the same scope, which is the newer one.
    pub(crate) fn rejoin(&mut self, newer: &Ledger) {
        let spent = &newer.spent;
        self.spent.steps += spent.steps;
        self.spent.model_calls += spent.model_calls;
        self.spent.input += spent.input;
        self.spent.output += spent.output;
        self.spent.cache_read += spent.cache_read;
        self.spent.cost += spent.cost;
        self.reserve(newer.reserved);
        self.in_flight += newer.in_flight;
        if self.period_index == newer.period_index {
            self.period_cost += newer.period_cost;
        } else if self.period_index < newer.period_index {
            (self.period_index, self.period_cost) = (newer.period_index, newer.period_cost);
        }
        if newer.typical > 0 {
            self.typical = newer.typical;
        }
    }

    /// Books what a call really used. `learn` is false for calls that were cut off: their length
    /// says nothing about the next answer.
    pub(crate) fn charge(&mut self, usage: &Usage, cost: NanoUsd, learn: Learn) {
        self.spent.input += usage.counted_input();
        self.spent.output += usage.output;
        self.spent.cache_read += usage.cache_read;
        self.spent.cost += cost;
        self.period_cost += cost;
        if learn == Learn::Yes && usage.output > Tokens(0) {
            let seen = usage.output.0.saturating_mul(16);
            self.typical = match self.typical {
                0 => seen,
                mean => mean - mean / 8 + seen / 8,
            };
        }
    }
}

/// For counters that many nodes add to.
#[cfg(feature = "share")]
impl Ledger {
    /// The number of the current period.
    pub(crate) fn period_index(&self) -> u64 {
        self.period_index
    }

    /// Says of which length the current period is, as far as its number does not say it yet.
    pub(crate) fn name_period(&mut self, period: Period) {
        if self.period_index < KINDS {
            self.period_index += period.index(Time(0));
        }
    }

    /// Takes over what an answer typically takes.
    pub(crate) fn learn(&mut self, from: &Ledger) {
        self.typical = from.typical;
    }

    /// Puts the period in the place of this one's.
    pub(crate) fn set_period(&mut self, index: u64, cost: NanoUsd) {
        (self.period_index, self.period_cost) = (index, cost);
    }

    /// Takes back what was booked as spent, as far as it is there; gives what is not.
    pub(crate) fn unbook(&mut self, booked: Reserved) -> Reserved {
        let spent = &mut self.spent;
        let left = Reserved {
            input: booked.input - spent.input,
            output: booked.output - spent.output,
            cost: booked.cost - spent.cost,
        };
        spent.input = spent.input - booked.input;
        spent.output = spent.output - booked.output;
        spent.cost = spent.cost - booked.cost;
        left
    }
}

/// Whether an answer's length is worth learning from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Learn {
    Yes,
    No,
}

/// What `tokens` of output cost at these rates.
pub(crate) fn output_cost(rates: &Rates, tokens: Tokens) -> NanoUsd {
    rates.cost(&Usage { output: tokens, ..Usage::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(output: u64) -> Usage {
        Usage { output: Tokens(output), ..Usage::default() }
    }

    #[test]
    fn learns_what_an_answer_typically_takes() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.expected_output(None), FIRST_GUESS);
        assert_eq!(ledger.expected_output(Some(Tokens(10))), Tokens(10));
        ledger.charge(&answer(1000), NanoUsd(0), Learn::Yes);
        assert_eq!(ledger.expected_output(None), Tokens(1000));
        ledger.charge(&answer(200), NanoUsd(0), Learn::Yes);
        assert_eq!(ledger.expected_output(None), Tokens(900));
        ledger.charge(&answer(100_000), NanoUsd(0), Learn::No);
        ledger.charge(&answer(0), NanoUsd(0), Learn::Yes);
        assert_eq!(ledger.expected_output(None), Tokens(900));
        assert_eq!(ledger.expected_output(Some(Tokens(5000))), Tokens(900));
    }

    #[test]
    fn a_period_starts_afresh_but_the_total_stays() {
        let hour = Millis::from_secs(3600).0;
        for (period, later, expected) in [
            (Period::Total, 1000 * hour, 5),
            (Period::Hour, hour - 1, 5),
            (Period::Hour, hour, 0),
            (Period::Day, 23 * hour, 5),
            (Period::Day, 24 * hour, 0),
        ] {
            let mut ledger = Ledger::default();
            ledger.roll(period, Time(0));
            ledger.charge(&answer(1), NanoUsd(5), Learn::Yes);
            ledger.roll(period, Time(later));
            // Back again: the same budget is not handed out twice.
            ledger.charge(&answer(1), NanoUsd(0), Learn::Yes);
            ledger.roll(period, Time(0));
            assert_eq!(ledger.period_cost, NanoUsd(expected), "{period:?} after {later}");
            assert_eq!(ledger.spent.cost, NanoUsd(5));
        }
    }

    #[test]
    fn what_was_in_flight_at_a_crash_is_spent() {
        let mut ledger = Ledger { in_flight: 2, ..Ledger::default() };
        ledger.reserve(Reserved { input: Tokens(1), output: Tokens(2), cost: NanoUsd(3) });
        ledger.charge(&answer(10), NanoUsd(10), Learn::Yes);
        ledger.recover();
        assert_eq!((ledger.reserved, ledger.in_flight), (Reserved::default(), 0));
        assert_eq!((ledger.spent.input, ledger.spent.output), (Tokens(1), Tokens(12)));
        assert_eq!((ledger.spent.cost, ledger.period_cost), (NanoUsd(13), NanoUsd(13)));
    }

    #[test]
    fn what_is_reserved_comes_back() {
        let mut ledger = Ledger::default();
        let some = Reserved { input: Tokens(1), output: Tokens(2), cost: NanoUsd(3) };
        ledger.reserve(some);
        ledger.reserve(some);
        ledger.charge(&answer(1), NanoUsd(10), Learn::Yes);
        assert_eq!(ledger.committed(), NanoUsd(16));
        ledger.release(some);
        assert_eq!(ledger.reserved, some);
        assert_eq!(ledger.committed(), NanoUsd(13));
    }
}
