//! *loop*: tool calls that repeat themselves and bring nothing new.
//!
//! What counts is what a call *brought*: its result, with numbers, ids, times and temp paths
//! masked. A call that was made before and brought what it brought before has brought nothing;
//! `threshold` of those in a row are a loop. A look in which only such masked things have changed
//! counts half: it may be a job that gets on. Words do not count: a model rewords its thought every
//! time it does the same.
//!
//! **Catches**, each with its own reason code:
//! - `repetition`: the same call with the same result, `threshold` times. At twice the threshold
//!   also, of calls that only look, when nothing but numbers, ids or times differ: in the result (a
//!   job may be getting on), or in the arguments (a nonce; of calls that change things, a batch).
//! - `retry_without_progress`: the same, where the result is the same failure. A nonce does not
//!   help here; entirely different arguments do, up to three times the threshold.
//! - `ping_pong` and `cycle`: a round of 2, or of 3 to 8 calls, that starts over.
//! - `no_progress`: any other mix of calls that were all made before with the same result, up to
//!   [`MEMORY`] calls ago: rounds of any length, and loops slower than any window in time.
//!
//! **Lets pass** polling that changes, paging (new text each time), test runs after an edit (the
//! edit was new), and looking again, or doing again, after a person said something new: what was
//! seen before their words does not count against what follows them. **Neutral**, neither
//! progress nor futile, are calls that cannot change anything and brought nothing that this tool
//! had not brought before: thinking tools and empty searches do not hide a loop.
//!
//! **Trips** before the call that would complete the pattern, or, for `no_progress`, when its
//! result is in. **Recovers** with the first call that brings something new.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::call::{Digest, Effect, Status, ToolCall};
use crate::gauge::{Dial, Gauge};
use crate::guard::{End, Lesson, Note, Seat, times};
use crate::scope::ScopeState;
use crate::settings::{BadSetting, in_range, settings};
use crate::text::Sketch;
use crate::trip::{Action, Ends, GuardId, Measure, Trip};

settings! {
    /// When repetition is a loop.
    LoopSettings / RawLoop {
        /// Whether to look at all.
        enabled: bool = false,
        /// Repeated calls in a row that are a loop.
        threshold: u32 = 5,
        /// What to do then.
        action: Action = Action::Warn,
        /// Which scope a stop ends.
        ends: Ends = Ends::Session,
    }
    elsewhere {
        /// The page has it here; it is `steps.max_steps`.
        max_steps: u64,
    }
}

impl LoopSettings {
    pub(crate) fn validate(&self) -> Result<(), BadSetting> {
        in_range("loop.threshold", self.threshold.into(), 2..=MEMORY as u64 / 4)
    }
}

/// Calls that a scope remembers.
pub(crate) const MEMORY: usize = 64;
/// The longest round that is told apart from mere lack of progress.
const LONGEST_CYCLE: usize = 8;
/// Things that people said which are remembered.
const PROMPTS: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    signature: Digest,
    result: Digest,
    #[serde(with = "postcard::fixint::le")]
    shape: u32,
    #[serde(with = "postcard::fixint::le")]
    exact: u32,
    #[serde(with = "postcard::fixint::le")]
    tool: u32,
    number: u64,
    failed: bool,
    /// Whether it may have changed something.
    changes: bool,
    /// Whether it brought nothing new.
    futile: bool,
}

impl Seen {
    /// The same call with the same result, but for numbers, ids and times in it.
    fn same(&self, other: &Seen) -> bool {
        self.signature == other.signature && self.result == other.result
    }

    /// The same call with the same result; to the letter, where a call only looked and got an
    /// answer: if nothing but numbers change in that, a job may be getting on.
    fn surely_same(&self, other: &Seen) -> bool {
        self.same(other) && (self.failed || self.changes || self.exact == other.exact)
    }

    /// The same but for a nonce. A success must be the same to the letter: `deleted 7` after
    /// `deleted 6` is progress, the same text for both is not.
    fn alike(&self, other: &Seen) -> bool {
        self.shape == other.shape
            && self.failed == other.failed
            && if self.failed { self.result == other.result } else { self.exact == other.exact }
    }

    /// The same failure of the same tool, whatever it was asked.
    fn fails_alike(&self, other: &Seen) -> bool {
        self.failed && other.failed && self.tool == other.tool && self.result == other.result
    }
}

/// What a scope remembers of its calls.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Memory {
    calls: VecDeque<Seen>,
    /// How many of them came since a person last said something new.
    stretch: u32,
    /// Calls in a row that brought nothing new, in halves: one that brought other numbers than
    /// before counts half.
    halves: u32,
    prompts: VecDeque<Sketch>,
}

impl Memory {
    /// Calls since a person last said something new, newest first.
    fn recent(&self) -> impl Iterator<Item = &Seen> {
        self.calls.iter().rev().take(self.stretch as usize)
    }

    fn learn(&mut self, seen: Seen, effect: Effect) {
        let known = match () {
            () if self.recent().any(|before| before.surely_same(&seen)) => 2,
            () if self.recent().any(|before| before.same(&seen)) => 1,
            () => 0,
        };
        let nothing_for_this_tool =
            || self.recent().any(|b| b.tool == seen.tool && b.result == seen.result);
        let neutral = match effect {
            Effect::Inert => true,
            Effect::Reads => nothing_for_this_tool(),
            Effect::Changes => false,
        };
        if known > 0 {
            self.halves = self.halves.saturating_add(known);
        } else if !neutral {
            self.halves = 0;
        }
        let seen = Seen { futile: known > 0, ..seen };
        if self.calls.len() == MEMORY {
            self.calls.pop_front();
        }
        self.calls.push_back(seen);
        self.stretch = self.stretch.saturating_add(1).min(MEMORY as u32);
    }

    /// A person spoke. New words start a new stretch; "continue" for the fifth time does not.
    pub(crate) fn hear(&mut self, words: Sketch) {
        let heard_before = self.prompts.iter().any(|before| before.similar(words));
        if heard_before || words == Sketch::Tiny {
            return;
        }
        if self.prompts.len() == PROMPTS {
            self.prompts.pop_front();
        }
        self.prompts.push_back(words);
        self.stretch = 0;
        self.halves = 0;
    }

    /// Calls in a row that brought nothing new.
    fn futile(&self) -> u32 {
        self.halves / 2
    }

    /// The pattern that this call would complete, if it would.
    fn pattern(&self, call: &ToolCall, threshold: u32) -> Option<Pattern> {
        let threshold = threshold as usize;
        let newest = self.recent().next()?;
        let run = |alike: &dyn Fn(&Seen) -> bool| self.recent().take_while(|s| alike(s)).count();

        if newest.signature == call.signature {
            let count = run(&|seen| seen.surely_same(newest)) + 1;
            if count >= threshold {
                let kind = if newest.failed { Kind::Retry } else { Kind::Repetition };
                return Some(Pattern { kind, count, round: 1 });
            }
            let count = run(&|seen| seen.same(newest)) + 1;
            if count >= 2 * threshold {
                return Some(Pattern { kind: Kind::Numbers, count, round: 1 });
            }
        }
        if newest.shape == call.shape.short() {
            let count = run(&|seen| seen.alike(newest)) + 1;
            if newest.failed && count >= threshold {
                return Some(Pattern { kind: Kind::Retry, count, round: 1 });
            }
            // What changes things is not judged: `set row 1`, `set row 2`, each "ok", is a batch.
            if call.effect != Effect::Changes && count >= 2 * threshold {
                return Some(Pattern { kind: Kind::Nonce, count, round: 1 });
            }
        }
        if newest.tool == tool_digest(&call.name) && newest.failed {
            let count = run(&|seen| seen.fails_alike(newest)) + 1;
            if count >= 3 * threshold {
                return Some(Pattern { kind: Kind::SameError, count, round: 1 });
            }
        }
        self.cycle(call.signature, threshold)
    }

    /// A round of calls that starts over, with this one as its next call.
    fn cycle(&self, next: Digest, threshold: usize) -> Option<Pattern> {
        if (self.futile() as usize) + 1 < threshold {
            return None;
        }
        let calls = &self.calls;
        let last = calls.len();
        (2..=LONGEST_CYCLE).find_map(|round| {
            let expected = last.checked_sub(round)?;
            let repeats = (round..(self.stretch as usize).min(last))
                .take_while(|back| {
                    calls[last + round - 1 - back].surely_same(&calls[last - 1 - back])
                })
                .count();
            let fits = calls[expected].signature == next && repeats + 1 >= threshold;
            fits.then_some(Pattern { kind: Kind::Cycle, count: repeats + 1, round })
        })
    }

    /// The calls that a pattern is about: those that fit, and the first round they repeat.
    fn evidence(&self, pattern: &Pattern) -> Vec<u64> {
        let first_round = if pattern.kind == Kind::Cycle { pattern.round } else { 0 };
        oldest_first(self.calls.iter().rev().take(pattern.count - 1 + first_round))
    }

    /// The calls in a row that brought nothing new.
    fn futile_calls(&self) -> Vec<u64> {
        let in_a_row = self.futile() as usize;
        oldest_first(self.calls.iter().rev().filter(|seen| seen.futile).take(in_a_row))
    }
}

fn oldest_first<'a>(newest_first: impl Iterator<Item = &'a Seen>) -> Vec<u64> {
    let mut numbers: Vec<u64> = newest_first.map(|seen| seen.number).collect();
    numbers.reverse();
    numbers
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Repetition,
    Numbers,
    Nonce,
    Retry,
    SameError,
    Cycle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pattern {
    kind: Kind,
    /// Calls that fit, with the one that is asked about.
    count: usize,
    /// Length of a round.
    round: usize,
}

impl Pattern {
    fn reason(&self) -> &'static str {
        match (self.kind, self.round) {
            (Kind::Repetition | Kind::Numbers | Kind::Nonce, _) => "repetition",
            (Kind::Retry | Kind::SameError, _) => "retry_without_progress",
            (Kind::Cycle, 2) => "ping_pong",
            (Kind::Cycle, _) => "cycle",
        }
    }

    fn limit(&self, threshold: u32) -> u32 {
        match self.kind {
            Kind::Numbers | Kind::Nonce => 2 * threshold,
            Kind::SameError => 3 * threshold,
            Kind::Repetition | Kind::Retry | Kind::Cycle => threshold,
        }
    }

    fn because(&self, tool: &str, limit: u32) -> String {
        let (count, round) = (times(self.count as u64), self.round);
        let what = match self.kind {
            Kind::Repetition => format!("{tool} with the same arguments and result {count}"),
            Kind::Numbers => format!(
                "{tool} {count} with the same arguments, and results that differ only in numbers"
            ),
            Kind::Nonce => format!(
                "{tool} {count} with arguments that differ only in numbers or ids, and the same result"
            ),
            Kind::Retry => format!("{tool} tried {count} and failed the same way each time"),
            Kind::SameError => format!("{tool} failed the same way {count}, whatever it was asked"),
            Kind::Cycle => format!(
                "the same {round} calls, {tool} next, go round with the same results: {} calls \
                 repeated",
                self.count
            ),
        };
        format!("{what} (limit {limit})")
    }
}

fn tool_digest(name: &str) -> u32 {
    Digest::of(name.as_bytes()).short()
}

pub(crate) struct Guard;

impl super::Guard for Guard {
    fn admit(&self, seat: &Seat<'_>) -> Option<Trip> {
        let settings = &seat.policy.loops;
        if !settings.enabled || !seat.innermost {
            return None;
        }
        let call = seat.call.tool()?;
        let pattern = seat.scope.memory.pattern(call, settings.threshold)?;
        let limit = pattern.limit(settings.threshold);
        let mut trip = seat.trip(GuardId::Loop, pattern.reason(), settings.action);
        trip.ends = settings.ends;
        trip.measured = Measure::Count(pattern.count as u64);
        trip.limit = Measure::Count(limit.into());
        trip.evidence = seat.scope.memory.evidence(&pattern);
        trip.because = pattern.because(&call.name, limit);
        Some(trip)
    }

    fn commit(&self, scope: &mut ScopeState, note: &mut Note<'_>) {
        let Some(call) = note.call.model() else { return };
        if let (true, true, Some(text)) = (note.innermost, call.from_person, call.prompt) {
            scope.memory.hear(text.sketch());
        }
    }

    fn settle(&self, lesson: &mut Lesson<'_>, end: &End<'_>) {
        let (true, true, Some(call)) =
            (lesson.policy.loops.enabled, lesson.innermost, end.call.tool())
        else {
            return;
        };
        let Some(result) = end.outcome.result else { return };
        if end.outcome.status == Status::Cancelled {
            return;
        }
        let seen = Seen {
            signature: call.signature,
            result: result.masked,
            shape: call.shape.short(),
            exact: result.exact.short(),
            tool: tool_digest(&call.name),
            number: end.ticket.number,
            failed: end.outcome.status.failed(),
            changes: call.effect == Effect::Changes,
            futile: false,
        };
        lesson.scope.memory.learn(seen, call.effect);
    }

    fn verify(&self, seat: &Seat<'_>, _end: &End<'_>) -> Option<Trip> {
        let settings = &seat.policy.loops;
        let memory = &seat.scope.memory;
        if !settings.enabled || !seat.innermost || memory.futile() < settings.threshold {
            return None;
        }
        let call = seat.call.tool()?;
        // The call is over: it cannot be blocked any more, only what follows can.
        let action = match settings.action {
            Action::Block => Action::Warn,
            other => other,
        };
        let mut trip = seat.trip(GuardId::Loop, "no_progress", action);
        trip.ends = settings.ends;
        trip.measured = Measure::Count(memory.futile().into());
        trip.limit = Measure::Count(settings.threshold.into());
        trip.evidence = memory.futile_calls();
        trip.because = format!(
            "{} calls in a row, the last {}, brought nothing that was not there before (limit {})",
            memory.futile(),
            call.name,
            settings.threshold
        );
        Some(trip)
    }

    fn gauges(&self, dial: &Dial<'_>) -> Vec<Gauge> {
        let settings = &dial.policy.loops;
        if !settings.enabled {
            return Vec::new();
        }
        let futile = dial.scope.memory.futile().into();
        let most = settings.threshold.into();
        vec![Gauge::count(GuardId::Loop, "calls_without_news", futile, most)]
    }
}

#[cfg(test)]
mod tests;
