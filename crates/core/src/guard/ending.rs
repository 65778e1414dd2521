//! *ending*: how a scope comes to its end when a limit is near or used up, so that its work is kept.
//!
//! **Wrap up.** When `wrap_up_at` of a limit (steps, tokens, money, time) is used and something is
//! left, the model is told once what is left and is asked to finish.
//!
//! **The last answer.** With `reserve_for_answer`, a share of each limit is kept back. When the rest
//! is used up, tool calls are refused, one more model call is admitted, and the scope ends when that
//! is answered, or when the answer asks for a tool. No limit is passed: the answer is paid from what
//! was kept back.
//!
//! **Top up.** An operator may raise the limits of a scope. That lifts the end that a limit brought,
//! and no other.

use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::guard::{End, Lesson, Note, Seat};
use crate::policy::Policy;
use crate::scope::{ScopeKind, ScopeState};
use crate::settings::{BadSetting, Share, settings};
use crate::trip::{Action, GuardId, Measure, Trip, Verdict};
use crate::units::{Millis, NanoUsd, Time, Tokens};

settings! {
    /// What happens before and at the end of a limit.
    EndingSettings / RawEnding {
        /// The share of a limit from which on the agent is asked to finish, or "off".
        wrap_up_at: Share = Share::percent(90),
        /// The share of each limit that is kept for one last answer without tools, or "off".
        reserve_for_answer: Share = Share::OFF,
    }
}

impl EndingSettings {
    /// Sets both off.
    pub(crate) fn off(&mut self) {
        (self.wrap_up_at, self.reserve_for_answer) = (Share::OFF, Share::OFF);
    }

    pub(crate) fn validate(&self) -> Result<(), BadSetting> {
        if self.reserve_for_answer.0 > 0.5 {
            return Err(BadSetting::new(
                "ending.reserve_for_answer",
                format!("{} is more than half of a limit", self.reserve_for_answer),
                "write a share up to 50%, such as \"5%\", or \"off\"",
            ));
        }
        Ok(())
    }
}

/// What an operator adds to the limits of a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TopUp {
    /// Money.
    pub cost: NanoUsd,
    /// Tool calls, and as many model calls.
    pub steps: u64,
    /// Tokens: input, output and both.
    pub tokens: Tokens,
    /// Time.
    pub time: Millis,
}

impl TopUp {
    fn add(&mut self, more: TopUp) {
        self.cost += more.cost;
        self.steps = self.steps.saturating_add(more.steps);
        self.tokens += more.tokens;
        self.time = Millis(self.time.0.saturating_add(more.time.0));
    }

    fn most(self, other: TopUp) -> TopUp {
        TopUp {
            cost: self.cost.max(other.cost),
            steps: self.steps.max(other.steps),
            tokens: self.tokens.max(other.tokens),
            time: self.time.max(other.time),
        }
    }
}

/// What a scope remembers about its ending.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Ending {
    extra: TopUp,
    /// Whether the agent was told that its time is nearly over.
    told_time: bool,
    closing: Option<Closing>,
}

/// A limit is used up, and one last answer is left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Closing {
    guard: GuardId,
    at: Time,
    /// Whether the last answer was begun.
    answered: bool,
    /// Tool calls that were refused since.
    refused: u8,
}

/// Tool calls that are refused while the last answer is waited for; one more ends the scope.
const MOST_REFUSED: u8 = 8;

/// Tokens that a short answer needs: where fewer are left, there is nothing to ask for.
const LEAST_ANSWER: Tokens = Tokens(100);

/// The code of a trip that leaves one last answer.
const LAST_ANSWER: &str = "last_answer";

impl Ending {
    pub(crate) fn top_up(&mut self, more: TopUp) {
        self.extra.add(more);
        self.told_time = false;
        self.closing = None;
    }

    pub(crate) fn extra(&self) -> TopUp {
        self.extra
    }

    /// Takes in what was known before.
    pub(crate) fn rejoin(&mut self, meanwhile: Ending) {
        self.extra = self.extra.most(meanwhile.extra);
        self.told_time |= meanwhile.told_time;
        self.closing = self.closing.take().or(meanwhile.closing);
    }
}

/// The limits that hold for a scope now: what its policy says, and what an operator added; without
/// what is kept back, unless the last answer is being given. Each is worked out when it is asked for:
/// guards ask for one or two of them, several times a call.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'a> {
    policy: &'a Policy,
    extra: &'a TopUp,
    /// The share that is kept back.
    kept: f64,
}

impl<'a> Limits<'a> {
    /// The limits of a scope for an ordinary call.
    pub(crate) fn of(policy: &'a Policy, scope: &'a ScopeState) -> Limits<'a> {
        let share = policy.ending.reserve_for_answer.0;
        let keeps = share != 0.0 && has_endings(scope) && scope.ending.closing.is_none();
        Limits { kept: if keeps { share } else { 0.0 }, ..Limits::full(policy, scope) }
    }

    /// The same with what is kept back for the last answer.
    pub(crate) fn full(policy: &'a Policy, scope: &'a ScopeState) -> Limits<'a> {
        Limits { policy, extra: &scope.ending.extra, kept: 0.0 }
    }

    /// Tool calls.
    pub(crate) fn steps(&self) -> Option<u64> {
        Some(self.policy.steps.max_steps?.saturating_add(self.extra.steps))
    }

    /// Model calls; the last answer is one.
    pub(crate) fn model_calls(&self) -> Option<u64> {
        let limit = self.policy.steps.max_model_calls?.saturating_add(self.extra.steps);
        Some(limit.saturating_sub(u64::from(self.kept != 0.0)))
    }

    /// Input tokens.
    pub(crate) fn input(&self) -> Option<Tokens> {
        self.tokens(self.policy.tokens.input_token_limit)
    }

    /// Output tokens.
    pub(crate) fn output(&self) -> Option<Tokens> {
        self.tokens(self.policy.tokens.output_token_limit)
    }

    /// Input and output tokens together.
    pub(crate) fn total(&self) -> Option<Tokens> {
        self.tokens(self.policy.tokens.total_token_limit)
    }

    /// Money.
    pub(crate) fn cost(&self) -> Option<NanoUsd> {
        let limit = self.policy.budget.max_cost_usd?.0 + self.extra.cost;
        Some(NanoUsd(self.less(limit.0)))
    }

    /// Time since the scope was opened.
    pub(crate) fn time(&self) -> Option<Millis> {
        let limit = self.policy.time.max_wall_time_seconds?.millis();
        Some(Millis(self.less(limit.0.saturating_add(self.extra.time.0))))
    }

    fn tokens(&self, limit: Option<Tokens>) -> Option<Tokens> {
        Some(Tokens(self.less((limit? + self.extra.tokens).0)))
    }

    /// A limit without what is kept back.
    fn less(&self, limit: u64) -> u64 {
        match self.kept == 0.0 {
            true => limit,
            false => limit - ((limit as f64 * self.kept) as u64).min(limit),
        }
    }

    /// The limit that a trip was measured against.
    fn behind(&self, trip: &Trip) -> Option<f64> {
        let tokens = |limit: Option<Tokens>| limit.map(|limit| limit.0 as f64);
        match (trip.guard, trip.reason.as_str()) {
            (GuardId::Steps, "max_steps") => self.steps().map(|limit| limit as f64),
            (GuardId::Steps, _) => self.model_calls().map(|limit| limit as f64),
            (GuardId::Budget, _) => self.cost().map(|limit| limit.0 as f64),
            (GuardId::Time, _) => self.time().map(|limit| limit.0 as f64),
            (_, "input_exceeded") => tokens(self.input()),
            (_, "output_exceeded") => tokens(self.output()),
            (_, "total_exceeded") => tokens(self.total()),
            _ => tokens(self.input())
                .zip(tokens(self.output()))
                .map(|(input, output)| input + output),
        }
    }
}

/// Agents and projects have many conversations: there is no one to tell, and no last answer.
fn has_endings(scope: &ScopeState) -> bool {
    matches!(scope.kind, ScopeKind::Session | ScopeKind::Nested)
}

/// The moment of a call at which a guard tripped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    Admit,
    Progress,
    Settle,
}

/// Makes of the end that a limit brings the beginning of the last answer, where one is kept back.
pub(crate) fn keep_answer(seat: &Seat<'_>, trip: &mut Trip, moment: Moment) {
    let kept = seat.policy.ending.reserve_for_answer.0 > 0.0 && has_endings(seat.scope);
    if !kept || trip.verdict != Verdict::Kill || !trip.guard.is_limit() {
        return;
    }
    let full = Limits::full(seat.policy, seat.scope).behind(trip);
    let fits = full.is_some_and(|full| trip.measured.amount() <= full);
    trip.verdict = match (&seat.scope.ending.closing, seat.call, moment) {
        (None, Call::Model(_), Moment::Admit) if fits => Verdict::Steer,
        (None, Call::Tool(_), Moment::Admit) | (None, _, Moment::Progress) => Verdict::Block,
        (None, _, Moment::Settle) if fits => Verdict::Steer,
        (Some(closing), Call::Tool(_), Moment::Admit) if closing.waits() => Verdict::Block,
        _ => return,
    };
    trip.reason = LAST_ANSWER.to_owned();
    trip.advice = Some(format!(
        "A limit of this run is used up ({}). No tool will run any more. Give your final answer now, \
         from what you have, and say what is left to do.",
        trip.because
    ));
}

impl Closing {
    fn waits(&self) -> bool {
        !self.answered && self.refused < MOST_REFUSED
    }
}

/// Whether a trip leaves one last answer.
pub(crate) fn leaves_answer(trip: &Trip) -> bool {
    trip.reason == LAST_ANSWER && trip.guard.is_limit() && trip.verdict >= Verdict::Steer
}

/// Begins the last answer in a scope where a trip left one, or counts a refused tool call.
pub(crate) fn close(scope: &mut ScopeState, trip: &Trip, now: Time) {
    match &mut scope.ending.closing {
        Some(closing) => closing.refused = closing.refused.saturating_add(1),
        None => {
            scope.ending.closing =
                Some(Closing { guard: trip.guard, at: now, answered: false, refused: 0 });
        }
    }
}

pub(crate) struct Guard;

impl super::Guard for Guard {
    fn admit(&self, seat: &Seat<'_>) -> Option<Trip> {
        if let Some(closing) = &seat.scope.ending.closing {
            let over = match seat.call {
                Call::Model(call) => closing.answered && !call.lookup,
                Call::Tool(_) => true,
            };
            return over.then(|| ended(seat, closing));
        }
        let at = seat.policy.ending.wrap_up_at.0;
        if at == 0.0 || !has_endings(seat.scope) || seat.call.tool().is_none() {
            return None;
        }
        let limits = Limits::of(seat.policy, seat.scope);
        let used = seat.scope.ledger.spent.steps + 1;
        if let Some(limit) = limits.steps()
            && crosses(used - 1, used, limit, at)
        {
            let (used, limit) = (Measure::Count(used), Measure::Count(limit));
            return Some(wrap_up(seat, GuardId::Steps, used, limit, "tool calls"));
        }
        let limit = limits.time()?;
        let elapsed = seat.now.since(seat.scope.opened);
        let near = !seat.scope.ending.told_time && crosses(0, elapsed.0, limit.0, at);
        near.then(|| {
            let (used, limit) = (Measure::Time(elapsed), Measure::Time(limit));
            wrap_up(seat, GuardId::Time, used, limit, "time")
        })
    }

    fn commit(&self, scope: &mut ScopeState, note: &mut Note<'_>) {
        match note.call {
            Call::Model(call) => {
                if let (false, Some(closing)) = (call.lookup, &mut scope.ending.closing) {
                    closing.answered = true;
                }
            }
            Call::Tool(_) => {
                let at = note.policy.ending.wrap_up_at.0;
                let limit = note.policy.time.max_wall_time_seconds;
                if limit.is_some() && at > 0.0 && !scope.ending.told_time {
                    let limit = Limits::of(note.policy, scope).time().unwrap_or_default();
                    let elapsed = note.now.since(scope.opened);
                    scope.ending.told_time = crosses(0, elapsed.0, limit.0, at);
                }
            }
        }
    }

    fn settle(&self, lesson: &mut Lesson<'_>, end: &End<'_>) {
        // An answer that failed was none: the client may ask again.
        let failed = end.call.model().is_some() && end.outcome.status.failed();
        if let (true, Some(closing)) = (failed, &mut lesson.scope.ending.closing) {
            closing.answered = false;
        }
    }

    fn verify(&self, seat: &Seat<'_>, end: &End<'_>) -> Option<Trip> {
        if let Some(closing) = &seat.scope.ending.closing {
            let last = end.call.model().is_some_and(|call| !call.lookup) && closing.answered;
            return last.then(|| ended(seat, closing));
        }
        if !has_endings(seat.scope) {
            return None;
        }
        used_up(seat).or_else(|| near(seat, end))
    }
}

/// A limit of model calls or of time of which only the last answer is left. Money and tokens have
/// their own guards for that.
fn used_up(seat: &Seat<'_>) -> Option<Trip> {
    if seat.policy.ending.reserve_for_answer.0 == 0.0 {
        return None;
    }
    let (limits, spent) = (Limits::of(seat.policy, seat.scope), &seat.scope.ledger.spent);
    if let Some(limit) = limits.model_calls().filter(|limit| spent.model_calls >= *limit) {
        let mut trip = seat.trip(GuardId::Steps, "max_model_calls", seat.policy.steps.action);
        trip.drains = true;
        (trip.measured, trip.limit) = (Measure::Count(spent.model_calls), Measure::Count(limit));
        trip.because = format!("{} has one model call left", seat.who());
        return Some(trip);
    }
    let elapsed = seat.now.since(seat.scope.opened);
    let limit = limits.time().filter(|limit| elapsed > *limit)?;
    let mut trip = seat.trip(GuardId::Time, "wall_time_exceeded", seat.policy.time.action);
    (trip.measured, trip.limit) = (Measure::Time(elapsed), Measure::Time(limit));
    trip.because = format!("{} has run for {elapsed} (limit {limit})", seat.who());
    Some(trip)
}

/// A limit on money or tokens that this call brought near its end.
fn near(seat: &Seat<'_>, end: &End<'_>) -> Option<Trip> {
    let at = seat.policy.ending.wrap_up_at.0;
    if at == 0.0 {
        return None;
    }
    let (limits, ledger) = (Limits::of(seat.policy, seat.scope), &seat.scope.ledger);
    if let Some(limit) = limits.cost() {
        let after = ledger.period_cost;
        if crosses((after - end.cost).0, after.0, limit.0, at) {
            let (used, limit) = (Measure::Money(after), Measure::Money(limit));
            return Some(wrap_up(seat, GuardId::Budget, used, limit, "the budget"));
        }
    }
    let (usage, spent) = (&end.outcome.usage, &ledger.spent);
    let (input, output) = (usage.counted_input(), usage.output);
    [
        (limits.input(), spent.input, input, "input tokens"),
        (limits.output(), spent.output, output, "output tokens"),
        (limits.total(), spent.input + spent.output, input + output, "tokens"),
    ]
    .into_iter()
    .find_map(|(limit, after, more, what)| {
        let limit = limit.filter(|limit| *limit - after >= LEAST_ANSWER)?;
        crosses((after - more).0, after.0, limit.0, at).then(|| {
            let (used, limit) = (Measure::Tokens(after), Measure::Tokens(limit));
            wrap_up(seat, GuardId::Tokens, used, limit, what)
        })
    })
}

/// Whether an amount reaches a share of its limit with this step, and something is left.
fn crosses(before: u64, after: u64, limit: u64, share: f64) -> bool {
    let from = (limit as f64 * share).ceil() as u64;
    before < from && after >= from && after < limit
}

/// Tells the agent what is left and asks it to finish.
fn wrap_up(seat: &Seat<'_>, guard: GuardId, used: Measure, limit: Measure, what: &str) -> Trip {
    let mut trip = seat.trip(guard, "wrap_up", Action::Steer);
    let left = used.left_of(limit);
    (trip.measured, trip.limit) = (used, limit);
    let percent = (100.0 * used.amount() / limit.amount().max(1.0)) as u64;
    trip.because = format!("{} has used {percent}% of {what}: {left} of {limit} left", seat.who());
    trip.advice = Some(format!(
        "This run has used {percent}% of {what} ({left} of {limit} left). Finish now: leave out what \
         is optional, save your work, and give your answer."
    ));
    trip
}

/// The end, after the last answer or in its place.
fn ended(seat: &Seat<'_>, closing: &Closing) -> Trip {
    let mut trip = seat.trip(closing.guard, "last_answer_given", Action::Terminate);
    trip.drains = true;
    trip.because = match (seat.call, closing.answered) {
        (Call::Tool(call), true) => format!(
            "{} asked for {} in its last answer, and a limit was used up {} ago",
            seat.who(),
            call.name,
            seat.now.since(closing.at)
        ),
        (Call::Tool(_), false) => format!(
            "{} went on calling tools, and a limit was used up {} ago",
            seat.who(),
            seat.now.since(closing.at)
        ),
        (Call::Model(_), _) => format!(
            "{} has given its last answer; a limit was used up {} ago",
            seat.who(),
            seat.now.since(closing.at)
        ),
    };
    if matches!(seat.call, Call::Tool(_)) && closing.waits() {
        trip.verdict = Verdict::Block;
        trip.reason = LAST_ANSWER.to_owned();
        trip.because = format!(
            "a limit of {} is used up, and tools do not run any more; one last answer is left",
            seat.who()
        );
        trip.advice = Some("Give your final answer now, without tools.".to_owned());
    }
    trip
}
