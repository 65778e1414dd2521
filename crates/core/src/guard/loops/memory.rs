//! What the loop guard remembers of a scope's calls, and which pattern a next call would complete.
//!
//! The last [`MEMORY`] calls are kept as digests. How long the present streak is lies in counters
//! beside them, so that a ladder may have rungs far beyond that number.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::call::{Digest, Effect, ResultFacts, ToolCall};
use crate::guard::times;
use crate::ladder::{Ladder, Step};
use crate::text::{Gist, Sketch};
use crate::trip::Verdict;
use crate::units::{Millis, Time};

/// Calls that a scope remembers.
pub(crate) const MEMORY: usize = 64;
/// The longest round that is told apart from mere lack of progress.
const LONGEST_CYCLE: usize = 8;
/// Things that people said which are remembered.
const PROMPTS: usize = 4;
/// A pause after which the next call begins a new streak.
const EXPIRES: Millis = Millis(900_000);
/// The pause between two looks at something that is not finished yet.
const SHORT_PAUSE: u64 = 2;
/// The pause between two looks at anything else. Models take seconds to think, so a shorter one may
/// be no pause at all.
const LONG_PAUSE: u64 = 30;
/// Waits in a row, without a look in between, that are no longer patience.
const MOST_NAPS: u32 = 20;
/// Shares of common words, in percent, from which on two errors count as one: of the same call, of
/// calls that differ in numbers and ids, and of other calls of the tool.
const SAME_CALL: u32 = 45;
const SAME_SHAPE: u32 = 60;
const SAME_TOOL: u32 = 75;

/// One call as it is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    #[serde(with = "postcard::fixint::le")]
    signature: u32,
    #[serde(with = "postcard::fixint::le")]
    result: u32,
    #[serde(with = "postcard::fixint::le")]
    shape: u32,
    #[serde(with = "postcard::fixint::le")]
    exact: u32,
    #[serde(with = "postcard::fixint::le")]
    tool: u16,
    /// When it was admitted, in whole seconds.
    #[serde(with = "postcard::fixint::le")]
    at: u32,
    /// What a failure says.
    #[serde(with = "postcard::fixint::le")]
    gist: u32,
    number: u64,
    flags: Flags,
}

/// Facts of a call that are true or false, in one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Flags(u8);

impl Flags {
    const FAILED: u8 = 1;
    const CHANGES: u8 = 2;
    /// It brought nothing new.
    const FUTILE: u8 = 4;
    const SHORT: u8 = 8;
    const PENDING: u8 = 16;
    /// The gist is that of a long text.
    const LONG: u8 = 32;

    fn with(self, flag: u8, on: bool) -> Flags {
        if on { Flags(self.0 | flag) } else { self }
    }

    fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }
}

/// A call that has ended, as the memory is told of it.
pub(super) struct Ended<'a> {
    pub(super) call: &'a ToolCall,
    pub(super) result: &'a ResultFacts,
    pub(super) failed: bool,
    pub(super) number: u64,
    pub(super) admitted: Time,
    pub(super) now: Time,
    pub(super) max_wait: Millis,
}

impl Seen {
    fn of(ended: &Ended<'_>) -> Seen {
        let Ended { call, result, .. } = ended;
        let flags = Flags::default()
            .with(Flags::FAILED, ended.failed)
            .with(Flags::CHANGES, call.effect == Effect::Changes)
            .with(Flags::SHORT, result.short)
            .with(Flags::PENDING, result.pending)
            .with(Flags::LONG, result.gist.long);
        Seen {
            signature: call.signature.short(),
            result: result.masked.short(),
            shape: call.shape.short(),
            exact: result.exact.short(),
            tool: tool_digest(&call.name),
            at: seconds(ended.admitted),
            gist: result.gist.bits,
            number: ended.number,
            flags,
        }
    }

    /// Whether it brought nothing new.
    pub(super) fn is_futile(&self) -> bool {
        self.flags.has(Flags::FUTILE)
    }

    fn gist(&self) -> Gist {
        Gist { bits: self.gist, long: self.flags.has(Flags::LONG) }
    }

    fn failed(&self) -> bool {
        self.flags.has(Flags::FAILED)
    }

    /// The same result but for numbers, ids and times in it; of two failures, most words of it.
    fn brings(&self, other: &Seen, share: u32) -> bool {
        self.failed() == other.failed()
            && (self.result == other.result
                || (self.failed() && self.gist().near(other.gist(), share)))
    }

    /// The same call with the same result, but for numbers, ids and times in it.
    fn same(&self, other: &Seen) -> bool {
        self.signature == other.signature && self.brings(other, SAME_CALL)
    }

    /// The same call with the same result; to the letter, where a call only looked and got an
    /// answer: if nothing but numbers change in that, a job may be getting on.
    fn surely_same(&self, other: &Seen) -> bool {
        let judged = self.failed() || self.flags.has(Flags::CHANGES);
        self.same(other) && (judged || self.exact == other.exact)
    }

    /// The same but for a nonce. A success must be the same to the letter: `deleted 7` after
    /// `deleted 6` is progress, the same text for both is not. And it must be long enough not to be
    /// the same by chance: sixty orders that are all "shipped" are a batch.
    fn alike(&self, other: &Seen) -> bool {
        self.shape == other.shape
            && if self.failed() {
                self.brings(other, SAME_SHAPE)
            } else {
                !other.failed() && self.exact == other.exact && !self.flags.has(Flags::SHORT)
            }
    }

    /// The same failure of the same tool, whatever it was asked.
    fn fails_alike(&self, other: &Seen) -> bool {
        self.failed() && self.tool == other.tool && self.brings(other, SAME_TOOL)
    }
}

/// How many calls in a row are like the newest, by each way of comparing them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Runs {
    sure: u32,
    same: u32,
    alike: u32,
    fails: u32,
}

/// What a scope remembers of its calls.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Memory {
    pub(super) calls: VecDeque<Seen>,
    /// How many of them came since a person last said something new.
    pub(super) stretch: u32,
    /// Calls in a row that brought nothing new, in halves: one that brought other numbers than
    /// before counts half.
    pub(super) halves: u32,
    runs: Runs,
    /// Repeats of the newest call that were refused.
    refused: u32,
    /// The number of the call that the present streak begins with.
    first: u64,
    /// When the newest call ended.
    ended: Time,
    /// Since when the agent waits for something, looking at it from time to time.
    waits_since: Option<Time>,
    /// Waits since the newest call.
    naps: u32,
    /// How long models have worked since the newest call: that is no pause.
    thought: Millis,
    pub(super) prompts: VecDeque<Sketch>,
}

impl Memory {
    /// Calls since a person last said something new, newest first.
    fn recent(&self) -> impl Iterator<Item = &Seen> {
        self.calls.iter().rev().take(self.stretch as usize)
    }

    /// Whether it remembers the same call.
    pub(crate) fn remembers(&self, call: &ToolCall) -> bool {
        self.calls.iter().any(|seen| seen.signature == call.signature.short())
    }

    /// A call has ended and brought something.
    pub(super) fn learn(&mut self, ended: &Ended<'_>) {
        if self.expired(ended.admitted) {
            self.begin();
        }
        let patient = self.patient(ended.call, ended.admitted, ended.max_wait);
        self.ended = ended.now;
        if ended.call.effect == Effect::Waits && self.naps < MOST_NAPS {
            self.naps += 1;
            return;
        }
        let seen = Seen::of(ended);
        if patient && self.looks_again(&seen) {
            return;
        }
        let weight = self.weight(&seen);
        let neutral = match ended.call.effect {
            Effect::Inert | Effect::Waits => true,
            Effect::Reads => self.recent().any(|b| b.tool == seen.tool && b.result == seen.result),
            Effect::Changes => false,
        };
        if weight > 0 {
            self.halves = self.halves.saturating_add(weight);
        } else if !neutral {
            self.halves = 0;
        }
        self.run(&seen);
        let runs = [self.runs.same, self.runs.alike, self.runs.fails];
        if weight == 0 && !neutral && runs.iter().all(|run| *run == 1) {
            self.first = seen.number;
            self.waits_since = None;
        }
        let flags = seen.flags.with(Flags::FUTILE, weight > 0);
        self.push(Seen { flags, ..seen });
    }

    /// How little a call brought, in halves.
    fn weight(&self, seen: &Seen) -> u32 {
        if self.recent().any(|before| before.surely_same(seen)) {
            2
        } else if self.recent().any(|before| before.same(seen)) {
            u32::from(!seen.flags.has(Flags::PENDING))
        } else {
            0
        }
    }

    /// How the call continues the runs.
    fn run(&mut self, seen: &Seen) {
        let next = self.refused.saturating_add(1);
        let before = self.recent().next().copied();
        let grown = |run: u32, like: fn(&Seen, &Seen) -> bool| match &before {
            Some(before) if like(before, seen) => run.saturating_add(next),
            _ => 1,
        };
        self.runs = Runs {
            sure: grown(self.runs.sure, Seen::surely_same),
            same: grown(self.runs.same, Seen::same),
            alike: grown(self.runs.alike, Seen::alike),
            fails: grown(self.runs.fails, Seen::fails_alike),
        };
    }

    fn push(&mut self, seen: Seen) {
        if self.calls.len() == MEMORY {
            self.calls.pop_front();
        }
        self.calls.push_back(seen);
        self.stretch = self.stretch.saturating_add(1).min(MEMORY as u32);
        self.refused = 0;
        self.naps = 0;
        self.thought = Millis(0);
    }

    /// A look after a pause that found what it had found before: takes the place of the earlier
    /// one. False if it found something else.
    fn looks_again(&mut self, seen: &Seen) -> bool {
        let stretch = self.stretch as usize;
        let before = self.calls.iter_mut().rev().take(stretch);
        let Some(before) = before.into_iter().find(|before| before.same(seen)) else {
            return false;
        };
        let since = Time(u64::from(before.at) * 1000);
        (before.at, before.number, before.exact) = (seen.at, seen.number, seen.exact);
        self.waits_since.get_or_insert(since);
        (self.naps, self.thought) = (0, Millis(0));
        true
    }

    /// Whether a call is a look at something after a real pause, within the time that an agent may
    /// wait for it.
    fn patient(&self, call: &ToolCall, now: Time, max_wait: Millis) -> bool {
        if !matches!(call.effect, Effect::Reads | Effect::Inert) {
            return false;
        }
        let waited = self.waits_since.map_or(Millis(0), |since| now.since(since));
        if waited > max_wait {
            return false;
        }
        let Some(before) = self.recent().find(|seen| seen.signature == call.signature.short())
        else {
            return false;
        };
        let thought = self.thought.0 / 1000;
        let pause = u64::from(seconds(now).saturating_sub(before.at)).saturating_sub(thought);
        let pending = before.flags.has(Flags::PENDING);
        self.naps > 0 || pause >= if pending { SHORT_PAUSE } else { LONG_PAUSE }
    }

    /// Whether so much time has passed that the next call begins a new streak.
    fn expired(&self, now: Time) -> bool {
        self.ended != Time(0) && now.since(self.ended).0 >= EXPIRES.0 + self.thought.0
    }

    /// A model has worked for so long.
    pub(super) fn think(&mut self, took: Millis) {
        self.thought = Millis(self.thought.0.saturating_add(took.0));
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
        self.begin();
    }

    /// What was seen before does not count against what follows.
    pub(crate) fn begin(&mut self) {
        let prompts = std::mem::take(&mut self.prompts);
        let calls = std::mem::take(&mut self.calls);
        *self = Memory { prompts, calls, ..Memory::default() };
    }

    /// A repeat was refused: it counts, so that an agent that keeps asking is ended in its time.
    pub(super) fn refuse(&mut self) {
        self.refused = self.refused.saturating_add(1);
        self.halves = self.halves.saturating_add(2);
    }

    /// Calls in a row that brought nothing new.
    pub(super) fn futile(&self) -> u32 {
        self.halves / 2
    }

    /// How many of the newest calls are one pattern, and how many times a rung counts for it: the
    /// pattern that is nearest to a rung. Counted as a trip counts it, so that a gauge and the
    /// sentence of a stop say the same.
    pub(super) fn repeats(&self) -> (u32, u32) {
        let futile = (self.futile(), Kind::Mix.scale());
        let Some(newest) = self.recent().next() else { return futile };
        let (failed, has) = (newest.failed(), |flag| newest.flags.has(flag));
        let pending = has(Flags::PENDING) && !failed;
        let same = if pending { Kind::Progress } else { Kind::Numbers };
        let judged = failed || !(has(Flags::CHANGES) || has(Flags::SHORT));
        let alike = if failed { Kind::Retry } else { Kind::Nonce };
        let runs = [
            (self.runs.sure, Kind::Repetition),
            (self.runs.same, same),
            (if judged { self.runs.alike } else { 0 }, alike),
            (if failed { self.runs.fails } else { 0 }, Kind::SameError),
        ];
        let counted = runs.into_iter().filter_map(|(run, kind)| {
            let count = run.saturating_add(self.refused);
            // One call by itself repeats nothing.
            (run > 0 && count > 1).then_some((count, kind.scale()))
        });
        let near = |(count, scale): (u32, u32)| f64::from(count) / f64::from(scale);
        counted.fold(futile, |best, next| if near(next) > near(best) { next } else { best })
    }

    /// The number of the call that the present streak begins with.
    pub(super) fn streak(&self) -> u64 {
        self.first
    }

    /// Whether the newest calls are a run that was told of before the newest of them ran.
    pub(super) fn told(&self, ladder: &Ladder) -> bool {
        ladder.step(self.runs.sure, 1).is_some()
    }

    /// The pattern that this call would complete, and the step that it reaches.
    pub(super) fn pattern(
        &self,
        call: &ToolCall,
        ladder: &Ladder,
        (now, max_wait): (Time, Millis),
    ) -> Option<(Pattern, Step)> {
        let newest = self.recent().next()?;
        let waits = call.effect == Effect::Waits && self.naps < MOST_NAPS;
        if waits || self.expired(now) || self.patient(call, now, max_wait) {
            return None;
        }
        let mut best: Option<(Pattern, Step)> = None;
        let mut consider = |kind: Kind, count: u32, round: usize| {
            let pattern = Pattern { kind, count, round };
            let Some(step) = ladder.step(count, kind.scale()) else { return };
            if best.as_ref().is_none_or(|(_, found)| found.verdict < step.verdict) {
                best = Some((pattern, step));
            }
        };
        let more = self.refused.saturating_add(1);
        let failed = newest.failed();
        if newest.signature == call.signature.short() {
            let kind = if failed { Kind::Retry } else { Kind::Repetition };
            consider(kind, self.runs.sure.saturating_add(more), 1);
            let pending = newest.flags.has(Flags::PENDING) && !failed;
            let kind = if pending { Kind::Progress } else { Kind::Numbers };
            consider(kind, self.runs.same.saturating_add(more), 1);
        }
        if newest.shape == call.shape.short() {
            let count = self.runs.alike.saturating_add(more);
            if failed {
                consider(Kind::Retry, count, 1);
            } else if call.effect != Effect::Changes && !newest.flags.has(Flags::SHORT) {
                // What changes things is not judged: `set row 1`, `set row 2`, each "ok", is a batch.
                consider(Kind::Nonce, count, 1);
            }
        }
        if newest.tool == tool_digest(&call.name) && failed {
            let kind = match call.effect {
                Effect::Changes => Kind::SameError,
                _ => Kind::SameMiss,
            };
            consider(kind, self.runs.fails.saturating_add(more), 1);
        }
        if let Some((count, round)) = self.cycle(call.signature, ladder) {
            consider(Kind::Cycle, count, round);
        }
        // A mix of calls is only refused once it has been told of, and only for calls of the mix.
        let signature = call.signature.short();
        let known = |seen: &Seen| seen.signature == signature && seen.is_futile();
        let next = self.futile().saturating_add(1);
        let refuses = ladder.has(Verdict::Block)
            && ladder.step(next, 1).is_some_and(|step| step.verdict >= Verdict::Block);
        if refuses && self.recent().any(known) {
            consider(Kind::Mix, next, 1);
        }
        best
    }

    /// A round of calls that starts over, with this one as its next call: how many calls of it are
    /// repeats, and how long it is.
    fn cycle(&self, next: Digest, ladder: &Ladder) -> Option<(u32, usize)> {
        ladder.step(self.futile().saturating_add(1), 1)?;
        let calls = &self.calls;
        let last = calls.len();
        let stretch = (self.stretch as usize).min(last);
        (2..=LONGEST_CYCLE).find_map(|round| {
            let expected = last.checked_sub(round)?;
            let repeats = (round..stretch)
                .take_while(|back| {
                    calls[last + round - 1 - back].surely_same(&calls[last - 1 - back])
                })
                .count();
            let count = match u32::try_from(repeats) {
                // As far back as memory goes: the streak's own count knows of more.
                Ok(_) if repeats + round == MEMORY => self.futile(),
                Ok(repeats) => repeats,
                Err(_) => u32::MAX,
            };
            let count = count.saturating_add(1);
            let fits = calls[expected].signature == next.short() && ladder.step(count, 1).is_some();
            fits.then_some((count, round))
        })
    }

    /// The calls that a pattern is about: those that fit, and the first round they repeat.
    pub(super) fn evidence(&self, pattern: &Pattern) -> Vec<u64> {
        if pattern.kind == Kind::Mix {
            return self.futile_calls();
        }
        let first_round = if pattern.kind == Kind::Cycle { pattern.round } else { 0 };
        let ran = pattern.count.saturating_sub(1).saturating_sub(self.refused) as usize;
        oldest_first(self.calls.iter().rev().take(ran + first_round))
    }

    /// The calls in a row that brought nothing new.
    pub(super) fn futile_calls(&self) -> Vec<u64> {
        let in_a_row = self.futile() as usize;
        let futile = self.calls.iter().rev().filter(|seen| seen.is_futile());
        oldest_first(futile.take(in_a_row))
    }
}

fn oldest_first<'a>(newest_first: impl Iterator<Item = &'a Seen>) -> Vec<u64> {
    let mut numbers: Vec<u64> = newest_first.map(|seen| seen.number).collect();
    numbers.reverse();
    numbers
}

fn tool_digest(name: &str) -> u16 {
    Digest::of(name.as_bytes()).0 as u16
}

fn seconds(time: Time) -> u32 {
    (time.0 / 1000) as u32
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Repetition,
    Numbers,
    Progress,
    Nonce,
    Retry,
    SameError,
    SameMiss,
    Cycle,
    Mix,
}

impl Kind {
    /// How many times a rung counts for it: weaker signs of a loop need more of them.
    fn scale(self) -> u32 {
        match self {
            Kind::Repetition | Kind::Retry | Kind::Cycle | Kind::Mix => 1,
            Kind::Numbers | Kind::Nonce => 2,
            Kind::SameError | Kind::SameMiss => 3,
            Kind::Progress => 10,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) kind: Kind,
    /// Calls that fit, with the one that is asked about.
    pub(super) count: u32,
    /// Length of a round.
    round: usize,
}

impl Pattern {
    pub(super) fn reason(&self) -> &'static str {
        match (self.kind, self.round) {
            (Kind::Repetition | Kind::Numbers | Kind::Progress | Kind::Nonce, _) => "repetition",
            (Kind::Retry | Kind::SameError | Kind::SameMiss, _) => "retry_without_progress",
            (Kind::Cycle, 2) => "ping_pong",
            (Kind::Cycle, _) => "cycle",
            (Kind::Mix, _) => "no_progress",
        }
    }

    pub(super) fn because(&self, tool: &str, limit: u32) -> String {
        let (count, round) = (times(self.count.into()), self.round);
        let what = match self.kind {
            Kind::Repetition => format!("{tool} with the same arguments and result {count}"),
            Kind::Numbers | Kind::Progress => format!(
                "{tool} {count} with the same arguments, and results that differ only in numbers"
            ),
            Kind::Nonce => format!(
                "{tool} {count} with arguments that differ only in numbers or ids, and the same result"
            ),
            Kind::Retry => format!("{tool} tried {count} and failed the same way each time"),
            Kind::SameError | Kind::SameMiss => {
                format!("{tool} failed the same way {count}, whatever it was asked")
            }
            Kind::Cycle => format!(
                "alternates between the same {round} calls, {tool} next, with identical results: \
                 {} calls repeated",
                self.count
            ),
            Kind::Mix => return no_progress(self.count, tool, limit),
        };
        format!("{what} (limit {limit})")
    }

    /// What the model is told.
    pub(super) fn advice(&self, tool: &str) -> String {
        let count = times(self.count.into());
        let what = match self.kind {
            Kind::Repetition => {
                format!(
                    "You have called `{tool}` {count} with the same arguments and got the same result."
                )
            }
            Kind::Numbers | Kind::Progress => format!(
                "You have called `{tool}` {count} with the same arguments; only numbers in the result changed."
            ),
            Kind::Nonce => format!(
                "You have called `{tool}` {count}; only a number or id in the arguments changed, and the result stayed the same."
            ),
            Kind::Retry => {
                format!("You have tried `{tool}` {count} and it failed the same way each time.")
            }
            Kind::SameError | Kind::SameMiss => {
                format!("`{tool}` has failed the same way {count}, with different arguments.")
            }
            Kind::Cycle => format!(
                "You repeat the same {} calls in turn, `{tool}` next, and get the same results: {} repeats so far.",
                self.round, self.count
            ),
            Kind::Mix => return mixed_advice(self.count),
        };
        format!("{what} {ADVICE}")
    }
}

const ADVICE: &str = "Repeating it will not help. Try a different approach, ask the user, or finish \
                      with what you have.";

pub(super) fn no_progress(count: u32, tool: &str, limit: u32) -> String {
    format!("the last {count} calls, up to {tool}, returned nothing new (limit {limit})")
}

pub(super) fn mixed_advice(count: u32) -> String {
    format!("Your last {count} tool calls were all made before and returned nothing new. {ADVICE}")
}
