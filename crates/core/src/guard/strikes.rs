//! *strikes*: too many refusals or faults in a row.
//!
//! **Catches** the agent that runs against a wall: call after call is blocked and it does not
//! stop, or nothing it calls answers any more. **Lets pass** errors that a tool answers with: an
//! agent may learn from those, and coding agents see several in a row every day. **Trips** on the
//! last of `consecutive_blocks` blocked calls, or of `consecutive_errors` calls that failed without
//! an answer. **Recovers** with the first call that is admitted, or answered. Between two blocked tool
//! calls an agent asks its model what to do next: that is no way out of the row, unless a person has
//! spoken and was answered.

use serde::{Deserialize, Serialize};

use crate::call::{Call, Status};
use crate::gauge::{Dial, Gauge};
use crate::guard::{End, Lesson, Note, Seat};
use crate::scope::{ScopeKind, ScopeState};
use crate::settings::{BadSetting, in_range, settings};
use crate::trip::{Action, Ends, GuardId, Measure, Trip};

settings! {
    /// How many failures in a row end a session.
    StrikeSettings / RawStrikes {
        /// Whether to count at all.
        enabled: bool = false,
        /// Blocked calls in a row.
        consecutive_blocks: u32 = 5,
        /// Calls in a row that failed without an answer.
        consecutive_errors: u32 = 3,
        /// What to do then.
        action: Action = Action::Terminate,
    }
}

impl StrikeSettings {
    pub(crate) fn validate(&self) -> Result<(), BadSetting> {
        let blocks = self.consecutive_blocks.into();
        in_range("strikes.consecutive_blocks", blocks, 1..=1_000_000)?;
        let errors = self.consecutive_errors.into();
        in_range("strikes.consecutive_errors", errors, 1..=1_000_000)
    }
}

/// Failures in a row.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Strikes {
    blocks: u32,
    errors: u32,
}

impl Strikes {
    /// A call of this scope was blocked.
    pub(crate) fn block(&mut self) {
        self.blocks = self.blocks.saturating_add(1);
    }
}

/// What kind of call was blocked last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Blocked {
    /// A request to a model, or nothing yet.
    #[default]
    Model,
    /// A call of a tool.
    Tool,
}

impl Blocked {
    /// The kind of this call.
    pub fn of(call: &Call) -> Blocked {
        match call {
            Call::Model(_) => Blocked::Model,
            Call::Tool(_) => Blocked::Tool,
        }
    }
}

fn counts_here(scope: &ScopeState) -> bool {
    scope.kind == ScopeKind::Session
}

/// Whether the blocked calls in a row have become too many.
pub(crate) fn blocked(seat: &Seat<'_>) -> Option<Trip> {
    let settings = &seat.policy.strikes;
    let count = seat.scope.strikes.blocks;
    if !settings.enabled || !counts_here(seat.scope) || count < settings.consecutive_blocks {
        return None;
    }
    Some(trip(seat, "consecutive_blocks", count, settings.consecutive_blocks, "were blocked"))
}

pub(crate) struct Guard;

impl super::Guard for Guard {
    fn commit(&self, scope: &mut ScopeState, note: &mut Note<'_>) {
        if note.call.tool().is_some() || scope.blocked == Blocked::Model {
            scope.strikes.blocks = 0;
        }
    }

    fn settle(&self, lesson: &mut Lesson<'_>, end: &End<'_>) {
        // Once it is answered: an agent that tries a refused request again says the same words.
        let heard = end.call.model().is_some_and(|call| call.from_person);
        if heard && end.outcome.status == Status::Ok {
            lesson.scope.strikes.blocks = 0;
        }
        let errors = &mut lesson.scope.strikes.errors;
        match end.outcome.status {
            Status::Fault => *errors = errors.saturating_add(1),
            Status::Ok | Status::Error => *errors = 0,
            Status::Cancelled => {}
        }
    }

    fn verify(&self, seat: &Seat<'_>, end: &End<'_>) -> Option<Trip> {
        let settings = &seat.policy.strikes;
        let count = seat.scope.strikes.errors;
        let fault = end.outcome.status == Status::Fault;
        if !settings.enabled || !counts_here(seat.scope) || !fault {
            return None;
        }
        (count >= settings.consecutive_errors).then(|| {
            trip(seat, "consecutive_errors", count, settings.consecutive_errors, "got no answer")
        })
    }

    fn gauges(&self, dial: &Dial<'_>) -> Vec<Gauge> {
        let (settings, strikes) = (&dial.policy.strikes, &dial.scope.strikes);
        if !settings.enabled || !counts_here(dial.scope) {
            return Vec::new();
        }
        let gauge = |what, count: u32, limit: u32| {
            Gauge::count(GuardId::Strikes, what, count.into(), limit.into())
        };
        vec![
            gauge("blocks_in_a_row", strikes.blocks, settings.consecutive_blocks),
            gauge("faults_in_a_row", strikes.errors, settings.consecutive_errors),
        ]
    }
}

fn trip(seat: &Seat<'_>, reason: &str, count: u32, limit: u32, what: &str) -> Trip {
    let mut trip = seat.trip(GuardId::Strikes, reason, seat.policy.strikes.action);
    trip.ends = Ends::Session;
    trip.measured = Measure::Count(count.into());
    trip.limit = Measure::Count(limit.into());
    trip.because = format!("{count} calls in a row {what} (limit {limit})");
    trip
}
