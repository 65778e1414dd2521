//! *velocity*: how fast a scope may spend.
//!
//! **Catches** a burst long before a daily budget would: ten dollars in a minute is a fault even
//! when a hundred a day are fine. **Lets pass** any pace up to the limit, averaged over the last
//! minute. **Trips** when what was spent in that minute, with what is reserved, goes over.
//! **Recovers** by itself as the minute slides on; that is why it blocks rather than kills.
//!
//! The minute is kept in twelve buckets of five seconds, so that a scope of any size needs the same
//! few bytes: the window is between 55 and 60 seconds long.

use serde::{Deserialize, Serialize};

use crate::gauge::{Dial, Gauge};
use crate::guard::{End, Lesson, Seat};
use crate::settings::{BadSetting, Dollars, in_range, settings};
use crate::trip::{Action, GuardId, Measure, Trip, Verdict};
use crate::units::{NanoUsd, Time, Tokens};

settings! {
    /// Limits on spending per minute.
    VelocitySettings / RawVelocity {
        /// Dollars a minute.
        max_usd_per_minute: Option<Dollars> = None,
        /// Tokens a minute, input and output together.
        max_tokens_per_minute: Option<Tokens> = None,
        /// What to do when it goes too fast.
        action: Action = Action::Block,
    }
}

impl VelocitySettings {
    pub(crate) fn validate(&self) -> Result<(), BadSetting> {
        if self.max_usd_per_minute == Some(Dollars(NanoUsd(0))) {
            return Err(BadSetting::new(
                "velocity.max_usd_per_minute",
                "a pace of 0 stops every call",
                "leave it out for no limit, or write the dollars a minute that are fine",
            ));
        }
        let tokens = self.max_tokens_per_minute.map_or(1, |limit| limit.0);
        in_range("velocity.max_tokens_per_minute", tokens, 1..=u64::MAX)
    }
}

pub(crate) const BUCKETS: usize = 12;
pub(crate) const BUCKET_MS: u64 = 5000;

/// What was spent in the last minute.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Pace {
    /// Number of the newest bucket, counted from the epoch.
    newest: u64,
    buckets: [(NanoUsd, Tokens); BUCKETS],
}

impl Pace {
    fn add(&mut self, now: Time, cost: NanoUsd, tokens: Tokens) {
        let bucket = now.0 / BUCKET_MS;
        let skipped = bucket.saturating_sub(self.newest).min(BUCKETS as u64);
        for step in 1..=skipped {
            self.buckets[((self.newest + step) % BUCKETS as u64) as usize] = Default::default();
        }
        self.newest = self.newest.max(bucket);
        // A clock that went backwards books into the newest bucket: later, never never.
        let slot = &mut self.buckets[(self.newest % BUCKETS as u64) as usize];
        slot.0 += cost;
        slot.1 += tokens;
    }

    fn last_minute(&self, now: Time) -> (NanoUsd, Tokens) {
        let oldest = (now.0 / BUCKET_MS).saturating_sub(BUCKETS as u64 - 1);
        let mut sum = (NanoUsd(0), Tokens(0));
        for back in 0..BUCKETS as u64 {
            let Some(bucket) = self.newest.checked_sub(back) else { break };
            if bucket < oldest {
                break;
            }
            let (cost, tokens) = self.buckets[(bucket % BUCKETS as u64) as usize];
            sum.0 += cost;
            sum.1 += tokens;
        }
        sum
    }
}

/// For counters that many nodes add to.
#[cfg(feature = "share")]
impl Pace {
    /// What is in it, by the number of the five seconds.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, NanoUsd, Tokens)> {
        let oldest = self.newest.saturating_sub(BUCKETS as u64 - 1);
        let entry = |bucket: u64| {
            let (cost, tokens) = self.buckets[(bucket % BUCKETS as u64) as usize];
            (bucket, cost, tokens)
        };
        let filled = |entry: &(u64, NanoUsd, Tokens)| entry.1 > NanoUsd(0) || entry.2 > Tokens(0);
        (oldest..=self.newest).map(entry).filter(filled)
    }

    /// One with these entries, of which the newest twelve count.
    pub(crate) fn of(entries: &[(u64, NanoUsd, Tokens)]) -> Pace {
        let newest = entries.iter().map(|entry| entry.0).max().unwrap_or(0);
        let mut pace = Pace { newest, ..Pace::default() };
        for (bucket, cost, tokens) in entries {
            if newest - bucket < BUCKETS as u64 {
                pace.buckets[(bucket % BUCKETS as u64) as usize] = (*cost, *tokens);
            }
        }
        pace
    }
}

pub(crate) struct Guard;

impl super::Guard for Guard {
    fn admit(&self, seat: &Seat<'_>) -> Option<Trip> {
        if seat.call.lookup() {
            return None;
        }
        let wanted = seat.reserved;
        check(seat, wanted.cost, wanted.input + wanted.output)
    }

    fn progress(&self, seat: &Seat<'_>) -> Option<Trip> {
        check(seat, NanoUsd(0), Tokens(0))
    }

    fn settle(&self, lesson: &mut Lesson<'_>, end: &End<'_>) {
        lesson.scope.pace.add(end.now, end.cost, end.tokens);
    }

    fn gauges(&self, dial: &Dial<'_>) -> Vec<Gauge> {
        let (settings, held) = (&dial.policy.velocity, &dial.scope.ledger.reserved);
        let (cost, tokens) = dial.scope.pace.last_minute(dial.now);
        let money = settings.max_usd_per_minute.map(|limit| {
            let used = Measure::Money(cost + held.cost);
            Gauge::new(GuardId::Velocity, "cost_a_minute", used, Measure::Money(limit.0))
        });
        let tokens = settings.max_tokens_per_minute.map(|limit| {
            let used = Measure::Tokens(tokens + held.input + held.output);
            Gauge::new(GuardId::Velocity, "tokens_a_minute", used, Measure::Tokens(limit))
        });
        money.into_iter().chain(tokens).collect()
    }
}

fn check(seat: &Seat<'_>, cost: NanoUsd, tokens: Tokens) -> Option<Trip> {
    let settings = &seat.policy.velocity;
    if settings.max_usd_per_minute.is_none() && settings.max_tokens_per_minute.is_none() {
        return None;
    }
    let held = &seat.scope.ledger.reserved;
    let (spent_cost, spent_tokens) = seat.scope.pace.last_minute(seat.now);
    let too_fast = settings.max_usd_per_minute.is_some_and(|limit| spent_cost > limit.0)
        || settings.max_tokens_per_minute.is_some_and(|limit| spent_tokens > limit);
    let cost = spent_cost + held.cost + cost;
    let tokens = spent_tokens + held.input + held.output + tokens;
    let (reason, measured, limit) =
        match (settings.max_usd_per_minute, settings.max_tokens_per_minute) {
            (Some(limit), _) if cost > limit.0 => {
                ("cost_velocity_exceeded", Measure::Money(cost), Measure::Money(limit.0))
            }
            (_, Some(limit)) if tokens > limit => {
                ("token_velocity_exceeded", Measure::Tokens(tokens), Measure::Tokens(limit))
            }
            _ => return None,
        };
    let mut trip = seat.trip(GuardId::Velocity, reason, settings.action);
    if !too_fast && seat.call.estimated() {
        // Only with what is reserved, which is an estimate: nothing ends for that.
        trip.verdict = trip.verdict.min(Verdict::Block);
    }
    trip.measured = measured;
    trip.limit = limit;
    trip.because = format!("{} is at {measured} a minute (limit {limit})", seat.who());
    Some(trip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minute_slides() {
        let mut pace = Pace::default();
        let total = |pace: &Pace, at| pace.last_minute(Time(at)).0.0;
        for second in 0..60 {
            pace.add(Time(second * 1000), NanoUsd(1), Tokens(2));
        }
        assert_eq!(pace.last_minute(Time(59_999)), (NanoUsd(60), Tokens(120)));
        assert_eq!(total(&pace, 60_000), 55);
        assert_eq!(total(&pace, 90_000), 25);
        assert_eq!(total(&pace, 115_000), 0);
        pace.add(Time(90_000), NanoUsd(1), Tokens(0));
        assert_eq!(total(&pace, 90_000), 26);
        pace.add(Time(1_000_000), NanoUsd(7), Tokens(0));
        assert_eq!(total(&pace, 1_000_000), 7);
        // Backwards: counted now rather than lost.
        pace.add(Time(500_000), NanoUsd(3), Tokens(0));
        assert_eq!(total(&pace, 1_000_000), 10);
    }
}
