//! *loop*: tool calls that repeat themselves and bring nothing new.
//!
//! What counts is what a call *brought*: its result, with numbers, ids, times and temp paths
//! masked. A call that was made before and brought what it brought before has brought nothing new.
//! How many of those in a row do what is the ladder: `steer_at` tells the model, `block_at` refuses
//! the call, `end_at` ends the session. A refused repeat counts, too, so that an agent that keeps
//! asking is ended at `end_at`. A look in which only masked things have changed counts half: it may
//! be a job that gets on. Words do not count: a model rewords its thought every time it does the
//! same.
//!
//! **Catches**, each with its own reason code:
//! - `repetition`: the same call with the same result. At twice the rung also, of calls that only
//!   look, when nothing but numbers, ids or times differ: in the result (a job may be getting on),
//!   or in the arguments, where the result is a long one. At ten times the rung, when the result
//!   says that something is not finished and its numbers move.
//! - `retry_without_progress`: the same, where the result is the same failure, be it in slightly
//!   other words. A nonce does not help here; entirely different arguments do, up to three times the
//!   rung.
//! - `ping_pong` and `cycle`: a round of 2, or of 3 to 8 calls, that starts over.
//! - `no_progress`: any other mix of calls that were all made before with the same result, up to
//!   [`memory::MEMORY`] calls ago: rounds of any length.
//! - `spread_retry`: the same failing change in many sessions of an agent, or in many scopes of a
//!   session, at twice the rung of the scope above.
//!
//! **Waits** with an agent that waits: a reading call after a real pause (a `sleep` in between, 2 s
//! where the last result said that something is not finished, 30 s otherwise, without the time that
//! models worked) does not count until the agent has waited for `max_wait_s`. After a pause of 15
//! minutes a new streak begins.
//!
//! **Lets pass** polling that changes, paging (new text each time), test runs after an edit (the
//! edit was new), and looking again, or doing again, after a person said something new: what was
//! seen before their words does not count against what follows them. **Neutral**, neither
//! progress nor futile, are calls that cannot change anything and brought nothing that this tool
//! had not brought before: thinking tools and empty searches do not hide a loop.
//!
//! A context compaction begins anew, too, since the agent has to read again what it forgot. Tools may
//! have limits of their own, or none: `[loop.tools."get_job*"]`.
//!
//! **Trips** before the call that would complete the pattern, or, for `no_progress`, when its
//! result is in. **Recovers** with the first call that brings something new.

mod memory;
mod spread;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::call::{Status, ToolCall};
use crate::gauge::{Dial, Gauge};
use crate::guard::{End, Lesson, Note, Seat};
use crate::ladder::{self, HIGHEST_RUNG, Ladder, Rung};
use crate::pattern::Pattern as Name;
use crate::scope::ScopeState;
use crate::settings::{BadSetting, Seconds, in_range, settings};
use crate::trip::{Action, Ends, GuardId, Measure, Trip, Verdict};
use crate::units::{Millis, Time};
use memory::Ended;
pub(crate) use memory::Memory;
pub(crate) use spread::Spread;

settings! {
    /// When repetition is a loop.
    LoopSettings / RawLoop {
        /// Whether to look at all.
        enabled: bool = false,
        /// Repeated calls in a row that are a loop. Counts where no rung of the ladder is set.
        threshold: u32 = 5,
        /// What to do then.
        action: Action = Action::Warn,
        /// Repeated calls from which on the model is told.
        steer_at: Rung = Rung::Off,
        /// Repeated calls from which on they are refused.
        block_at: Rung = Rung::Off,
        /// Repeated calls that end the session.
        end_at: Rung = Rung::Off,
        /// Which scope a stop ends.
        ends: Ends = Ends::Session,
        /// How long an agent may wait for something, looking at it with pauses.
        max_wait_s: Seconds = Seconds(1800),
        /// Tools with limits of their own, by name or pattern.
        tools: BTreeMap<Name, ToolLimits> = BTreeMap::new(),
    }
    elsewhere {
        /// The page has it here; it is `steps.max_steps`.
        max_steps: u64,
    }
}

/// Limits of one tool, in place of the ladder; a rung that is not named is off.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolLimits {
    /// Whether its calls are not looked at.
    pub ignore: bool,
    /// Repeated calls from which on the model is told.
    pub steer_at: Rung,
    /// Repeated calls from which on they are refused.
    pub block_at: Rung,
    /// Repeated calls that end the session.
    pub end_at: Rung,
}

impl LoopSettings {
    /// Takes the rungs away, so that threshold and action hold.
    pub fn single_rung(&mut self) {
        (self.steer_at, self.block_at, self.end_at) = (Rung::Off, Rung::Off, Rung::Off);
    }

    /// The ladder for all tools that have none of their own.
    pub(crate) fn ladder(&self) -> Ladder {
        let ladder = Ladder::new(self.steer_at, self.block_at, self.end_at);
        if ladder.is_off() { Ladder::single(self.threshold, self.action) } else { ladder }
    }

    /// The ladder for a tool; `None` if its calls are not looked at. Of several patterns that fit,
    /// the longest counts.
    fn ladder_of(&self, tool: &str) -> Option<Ladder> {
        let fitting = self.tools.iter().filter(|(name, _)| name.matches(tool));
        let Some((_, own)) = fitting.max_by_key(|(name, _)| name.to_string().len()) else {
            return Some(self.ladder());
        };
        let ladder = Ladder::new(own.steer_at, own.block_at, own.end_at);
        (!own.ignore && !ladder.is_off()).then_some(ladder)
    }

    pub(crate) fn validate(&self) -> Result<(), BadSetting> {
        in_range("loop.threshold", self.threshold.into(), 2..=HIGHEST_RUNG.into())?;
        in_range("loop.max_wait_s", self.max_wait_s.0, 0..=31_536_000)?;
        let named = |steer_at, block_at, end_at| {
            [("steer_at", steer_at), ("block_at", block_at), ("end_at", end_at)]
        };
        ladder::validate("loop", named(self.steer_at, self.block_at, self.end_at))?;
        for (name, own) in &self.tools {
            let section = format!("loop.tools.{name}");
            ladder::validate(&section, named(own.steer_at, own.block_at, own.end_at))?;
            if !own.ignore && Ladder::new(own.steer_at, own.block_at, own.end_at).is_off() {
                return Err(BadSetting::new(
                    &section,
                    "it says nothing",
                    "write `ignore = true`, or at least one of steer_at, block_at, end_at",
                ));
            }
        }
        Ok(())
    }

    fn max_wait(&self) -> Millis {
        self.max_wait_s.millis()
    }
}

impl RawLoop {
    /// Whether a threshold or an action was typed and no rung: then those two are all there is.
    pub(crate) fn is_single_rung(&self) -> bool {
        let rung = self.steer_at.or(self.block_at).or(self.end_at);
        (self.threshold.is_some() || self.action.is_some()) && rung.is_none()
    }
}

pub(crate) struct Guard;

impl super::Guard for Guard {
    fn admit(&self, seat: &Seat<'_>) -> Option<Trip> {
        let settings = &seat.policy.loops;
        if !settings.enabled {
            return None;
        }
        let call = seat.call.tool()?;
        let ladder = settings.ladder_of(&call.name)?;
        if !seat.innermost {
            return spread_trip(seat, call, &ladder);
        }
        let memory = &seat.scope.memory;
        let (pattern, step) = memory.pattern(call, &ladder, (seat.now, settings.max_wait()))?;
        let mut trip = seat.trip(GuardId::Loop, pattern.reason(), Action::Warn);
        trip.verdict = step.verdict;
        trip.ends = settings.ends;
        trip.measured = Measure::Count(pattern.count.into());
        trip.limit = Measure::Count(step.at.into());
        trip.evidence = memory.evidence(&pattern);
        trip.because = pattern.because(&call.name, step.at);
        trip.streak = Some(memory.streak());
        trip.advice = (step.verdict >= Verdict::Steer).then(|| pattern.advice(&call.name));
        Some(trip)
    }

    fn commit(&self, scope: &mut ScopeState, note: &mut Note<'_>) {
        let (true, Some(call)) = (note.innermost, note.call.model()) else { return };
        if call.compacted {
            scope.memory.begin();
        }
        if let (true, false, Some(text)) = (call.from_person, call.opening, call.prompt) {
            scope.memory.hear(text.sketch());
        }
    }

    fn settle(&self, lesson: &mut Lesson<'_>, end: &End<'_>) {
        let settings = &lesson.policy.loops;
        if !settings.enabled {
            return;
        }
        let Some(call) = end.call.tool() else {
            if lesson.innermost {
                lesson.scope.memory.think(end.now.since(end.ticket.admitted));
            }
            return;
        };
        let Some(result) = &end.outcome.result else { return };
        if end.outcome.status == Status::Cancelled || settings.ladder_of(&call.name).is_none() {
            return;
        }
        if !lesson.innermost {
            // Once for each scope below: within one the scope's own memory counts.
            let failure = end.outcome.status.failed().then(|| result.masked.short());
            if end.first_here || failure.is_none() {
                lesson.scope.spread.learn(call, failure, lesson.scope.calls, end.now);
            }
            return;
        }
        lesson.scope.memory.learn(&Ended {
            call,
            result,
            failed: end.outcome.status.failed(),
            number: end.ticket.number,
            admitted: end.ticket.admitted,
            now: end.now,
            max_wait: settings.max_wait(),
        });
    }

    fn verify(&self, seat: &Seat<'_>, end: &End<'_>) -> Option<Trip> {
        let settings = &seat.policy.loops;
        let memory = &seat.scope.memory;
        if !settings.enabled || !seat.innermost {
            return None;
        }
        let call = seat.call.tool()?;
        let ladder = settings.ladder_of(&call.name)?;
        let count = memory.futile();
        let step = ladder.step_after(count, 1)?;
        // What was told before the call ran is not told again behind it, unless it is the end.
        let again = memory.told(&ladder) || !memory.futile_calls().contains(&end.ticket.number);
        if again && step.verdict < Verdict::Kill {
            return None;
        }
        let mut trip = seat.trip(GuardId::Loop, "no_progress", Action::Warn);
        trip.verdict = step.verdict;
        trip.ends = settings.ends;
        trip.measured = Measure::Count(count.into());
        trip.limit = Measure::Count(step.at.into());
        trip.evidence = memory.futile_calls();
        trip.because = memory::no_progress(count, &call.name, step.at);
        trip.streak = Some(memory.streak());
        trip.advice = (step.verdict >= Verdict::Steer).then(|| memory::mixed_advice(count));
        Some(trip)
    }

    fn gauges(&self, dial: &Dial<'_>) -> Vec<Gauge> {
        let settings = &dial.policy.loops;
        let (count, scale) = dial.scope.memory.repeats();
        let (true, Some(most)) = (settings.enabled, settings.ladder().limit(count, scale)) else {
            return Vec::new();
        };
        vec![Gauge::count(GuardId::Loop, "calls_without_news", count.into(), most.into())]
    }
}

/// A call was refused by this guard in a scope: the refused repeat counts there.
pub(crate) fn refused(scope: &mut ScopeState, call: &ToolCall, place: ChainPosition, now: Time) {
    match place {
        ChainPosition::Innermost => scope.memory.refuse(),
        ChainPosition::Above => scope.spread.refuse(call, now),
    }
}

/// Where in its chain a scope is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChainPosition {
    /// The calls are made in it.
    Innermost,
    /// They are made below it.
    Above,
}

/// A failing call that was tried in many places below a scope.
fn spread_trip(seat: &Seat<'_>, call: &ToolCall, ladder: &Ladder) -> Option<Trip> {
    let (count, first) = seat.scope.spread.count(call, seat.now)?;
    let step = ladder.step(count, spread::SCALE)?;
    let mut trip = seat.trip(GuardId::Loop, "spread_retry", Action::Warn);
    trip.verdict = step.verdict;
    trip.ends = seat.policy.loops.ends;
    trip.measured = Measure::Count(count.into());
    trip.limit = Measure::Count(step.at.into());
    trip.because = spread::because(&call.name, count, step.at, &seat.who());
    trip.streak = Some(first);
    trip.advice = (step.verdict >= Verdict::Steer).then(|| spread::advice(&call.name, count));
    Some(trip)
}

#[cfg(test)]
mod tests;
