//! *time*: how long a scope may live, by the wall clock.
//!
//! **Catches** the session that was meant to take minutes and is still there in the morning.
//! **Lets pass** everything before the limit. **Trips** on the first call after it, and in a stream
//! that runs past it. **Recovers** never.

use crate::gauge::{Dial, Gauge};
use crate::guard::Seat;
use crate::guard::ending::Limits;
use crate::settings::{BadSetting, Seconds, in_range, settings};
use crate::trip::{Action, GuardId, Measure, Trip};

settings! {
    /// Limits on time.
    TimeSettings / RawTime {
        /// Seconds since the scope was opened.
        max_wall_time_seconds: Option<Seconds> = None,
        /// What to do when the time is over.
        action: Action = Action::Terminate,
    }
}

impl TimeSettings {
    pub(crate) fn validate(&self) -> Result<(), BadSetting> {
        let seconds = self.max_wall_time_seconds.map_or(1, |limit| limit.0);
        in_range("time.max_wall_time_seconds", seconds, 1..=u64::MAX / 1000)
    }
}

pub(crate) struct Guard;

impl super::Guard for Guard {
    fn admit(&self, seat: &Seat<'_>) -> Option<Trip> {
        seat.policy.time.max_wall_time_seconds?;
        let limit = Limits::of(seat.policy, seat.scope).time()?;
        let elapsed = seat.now.since(seat.scope.opened);
        if elapsed <= limit {
            return None;
        }
        let mut trip = seat.trip(GuardId::Time, "wall_time_exceeded", seat.policy.time.action);
        trip.measured = Measure::Time(elapsed);
        trip.limit = Measure::Time(limit);
        trip.because = format!("{} has run for {elapsed} (limit {limit})", seat.who());
        Some(trip)
    }

    fn progress(&self, seat: &Seat<'_>) -> Option<Trip> {
        self.admit(seat)
    }

    fn gauges(&self, dial: &Dial<'_>) -> Vec<Gauge> {
        let limits = Limits::full(dial.policy, dial.scope);
        let Some(limit) = limits.time() else { return Vec::new() };
        let elapsed = Measure::Time(dial.now.since(dial.scope.opened));
        vec![Gauge::new(GuardId::Time, "time", elapsed, Measure::Time(limit))]
    }
}
