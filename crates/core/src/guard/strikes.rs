//! *strikes*: too many refusals or failures in a row that the agent could have changed.
//!
//! **Catches** the agent that runs against a wall: call after call is blocked and it does not
//! stop, or no tool that it calls answers any more. **Lets pass** errors that a tool answers with
//! (an agent may learn from those), failures of the provider (5xx, 429, time-outs, torn streams),
//! those of the caller (a wrong key), and calls for which a limit has no room or a breaker is open.
//! **Trips** on the last of `consecutive_blocks` blocked calls, or of `consecutive_errors` failed
//! ones. **Recovers** with the first call that is admitted, or answered. Between two blocked tool
//! calls an agent asks its model what to do next: that does not end the row, unless a person has
//! spoken and was answered.
//!
//! # What `consecutive_errors` counts
//! Calls of tools that got no answer, and calls that failed because of the agent itself. With
//! `provider_errors` it also counts failures of the provider, as the page of seed B does (B4). No
//! preset sets that: a provider's outage must not end a healthy session. Several attempts at one
//! request count once.

use serde::{Deserialize, Serialize};

use crate::blame::{Blame, Failure, How};
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
        /// Failed calls in a row that the agent could have changed: tools without an answer.
        consecutive_errors: u32 = 3,
        /// Whether failures of the provider count as errors, too.
        provider_errors: bool = false,
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
        let settings = &lesson.policy.strikes;
        let errors = &mut lesson.scope.strikes.errors;
        match end.outcome.failure(end.call) {
            Some(failure) if counts(settings, failure, end) => {
                // The attempts of one request are one failure.
                let retried = end.call.model().is_some_and(|call| call.retry) && *errors > 0;
                *errors = errors.saturating_add(u32::from(!retried));
            }
            Some(Failure { blame: Blame::Tool | Blame::Agent, .. }) => *errors = 0,
            Some(_) => {}
            None if end.outcome.status == Status::Ok => *errors = 0,
            None => {}
        }
    }

    fn verify(&self, seat: &Seat<'_>, end: &End<'_>) -> Option<Trip> {
        let settings = &seat.policy.strikes;
        let count = seat.scope.strikes.errors;
        let failure = end.outcome.failure(end.call)?;
        if !settings.enabled || !counts_here(seat.scope) || !counts(settings, failure, end) {
            return None;
        }
        let limit = settings.consecutive_errors;
        (count >= limit).then(|| {
            let mut trip = trip(seat, "consecutive_errors", count, limit, "");
            trip.because = failed(seat, failure, count, limit);
            trip
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

/// Whether a failure is one that the agent could have changed.
fn counts(settings: &StrikeSettings, failure: Failure, end: &End<'_>) -> bool {
    match failure.blame {
        Blame::Tool => end.outcome.status == Status::Fault,
        Blame::Provider => settings.provider_errors,
        // It was told what is wrong and may learn from that.
        Blame::Agent | Blame::Caller => false,
    }
}

/// "3 provider errors in a row (503 from openai, limit 3)".
fn failed(seat: &Seat<'_>, failure: Failure, count: u32, limit: u32) -> String {
    let (what, server) = match seat.call {
        Call::Model(call) => ("provider errors", call.server.as_deref()),
        Call::Tool(call) => ("calls without an answer", call.server.as_deref()),
    };
    if failure.how == How::Unsaid && failure.blame == Blame::Tool {
        return format!("{count} tool calls in a row were not answered (limit {limit})");
    }
    let from = server.map(|server| format!(" from {server}")).unwrap_or_default();
    format!("{count} {what} in a row ({}{from}, limit {limit})", failure.how)
}

fn trip(seat: &Seat<'_>, reason: &str, count: u32, limit: u32, what: &str) -> Trip {
    let mut trip = seat.trip(GuardId::Strikes, reason, seat.policy.strikes.action);
    trip.ends = Ends::Session;
    trip.measured = Measure::Count(count.into());
    trip.limit = Measure::Count(limit.into());
    trip.because = format!("{count} calls in a row {what} (limit {limit})");
    trip
}
