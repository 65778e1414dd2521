//! *tokens*: how much a scope may read and write.
//!
//! **Catches** context that grows without end (input) and answers that do (output), in the scope
//! itself and in everything below it: the limit of a container holds for the sum of its children,
//! run one after the other or all at once. **Lets pass** cache reads: they cost money, which is the
//! budget's business, but are not work. **Trips** when the provider's own figures, or a prompt whose
//! tokens were counted, pass a limit: then the scope ends. An estimate ends nothing: a call whose
//! estimated prompt does not fit is blocked, and so is a stream whose running count goes over. A
//! call that would only fit if others in flight used less than they reserved waits for them.
//! **Recovers** never: what is spent stays spent.
//!
//! Reason codes are those of the page: `input_exceeded`, `output_exceeded`,
//! `input_and_output_exceeded`; ours adds `total_exceeded`.

use crate::gauge::{Dial, Gauge};
use crate::guard::ending::Limits;
use crate::guard::{End, Seat};
use crate::policy::Policy;
use crate::scope::ScopeState;
use crate::settings::{BadSetting, in_range, settings};
use crate::trip::{Action, GuardId, Measure, Trip, Verdict, Wait};
use crate::units::Tokens;

settings! {
    /// Limits on the number of tokens.
    TokenSettings / RawTokens {
        /// Input tokens, without cache reads.
        input_token_limit: Option<Tokens> = None,
        /// Output tokens, reasoning included.
        output_token_limit: Option<Tokens> = None,
        /// Both together.
        total_token_limit: Option<Tokens> = None,
        /// What to do when a limit is passed.
        action: Action = Action::Terminate,
    }
}

impl TokenSettings {
    pub(crate) fn validate(&self) -> Result<(), BadSetting> {
        for (path, limit) in [
            ("tokens.input_token_limit", self.input_token_limit),
            ("tokens.output_token_limit", self.output_token_limit),
            ("tokens.total_token_limit", self.total_token_limit),
        ] {
            in_range(path, limit.map_or(1, |limit| limit.0), 1..=u64::MAX)?;
        }
        Ok(())
    }

    /// The same with the limits that hold for a scope now.
    fn now(&self, policy: &Policy, scope: &ScopeState) -> TokenSettings {
        let limits = Limits::of(policy, scope);
        TokenSettings {
            input_token_limit: limits.input(),
            output_token_limit: limits.output(),
            total_token_limit: limits.total(),
            action: self.action,
        }
    }

    /// Which limits these amounts pass: reason, measured, limit.
    fn passed(&self, input: Tokens, output: Tokens) -> Option<(&'static str, Tokens, Tokens)> {
        let over = |amount: Tokens, limit: Option<Tokens>| limit.filter(|limit| amount > *limit);
        match (over(input, self.input_token_limit), over(output, self.output_token_limit)) {
            (Some(i), Some(o)) => Some(("input_and_output_exceeded", input + output, i + o)),
            (Some(limit), None) => Some(("input_exceeded", input, limit)),
            (None, Some(limit)) => Some(("output_exceeded", output, limit)),
            (None, None) => {
                let total = input + output;
                over(total, self.total_token_limit).map(|limit| ("total_exceeded", total, limit))
            }
        }
    }

    fn none(&self) -> bool {
        self.input_token_limit.is_none()
            && self.output_token_limit.is_none()
            && self.total_token_limit.is_none()
    }
}

pub(crate) struct Guard;

impl super::Guard for Guard {
    fn admit(&self, seat: &Seat<'_>) -> Option<Trip> {
        let settings = &seat.policy.tokens;
        if settings.none() {
            return None;
        }
        let settings = &settings.now(seat.policy, seat.scope);
        let call = seat.call.model().filter(|call| !call.lookup)?;
        let (spent, held) = (&seat.scope.ledger.spent, &seat.scope.ledger.reserved);
        let wanted = seat.reserved;
        // What is certain: what was spent, a prompt that was counted, and that an answer needs at
        // least one token more.
        let counted = if call.estimated { Tokens(0) } else { wanted.input };
        let least = spent.output + Tokens(1);
        if let Some(passed) = settings.passed(spent.input + counted, least) {
            let mut trip = trip(seat, passed, settings.action, "would go over");
            trip.drains = true;
            return Some(trip);
        }
        if let Some(passed) = settings.passed(spent.input + wanted.input, least) {
            let mut trip = trip(seat, passed, settings.action, "would, by an estimate, go over");
            trip.verdict = trip.verdict.min(Verdict::Block);
            return Some(trip);
        }
        let committed = settings.passed(
            spent.input + held.input + wanted.input,
            spent.output + held.output + wanted.output,
        );
        committed.map(|passed| {
            let how = "would, with calls in flight, go over";
            let mut trip = trip(seat, passed, settings.action, how);
            // The rest may come back: nothing ends for that.
            trip.verdict = trip.verdict.min(Verdict::Block);
            trip.waits = (seat.scope.ledger.in_flight > 0).then_some(Wait::Settle);
            trip
        })
    }

    fn progress(&self, seat: &Seat<'_>) -> Option<Trip> {
        let settings = &seat.policy.tokens;
        if settings.none() {
            return None;
        }
        let settings = &settings.now(seat.policy, seat.scope);
        let (spent, held) = (&seat.scope.ledger.spent, &seat.scope.ledger.reserved);
        let passed = settings.passed(spent.input + held.input, spent.output + held.output)?;
        let mut trip = trip(seat, passed, settings.action, "went, while answering, over");
        if seat.call.estimated() {
            // The bill decides about the scope.
            trip.verdict = trip.verdict.min(Verdict::Block);
        }
        Some(trip)
    }

    fn verify(&self, seat: &Seat<'_>, _end: &End<'_>) -> Option<Trip> {
        let settings = &seat.policy.tokens;
        if settings.none() {
            return None;
        }
        let settings = &settings.now(seat.policy, seat.scope);
        let spent = &seat.scope.ledger.spent;
        let passed = settings.passed(spent.input, spent.output)?;
        let mut trip = trip(seat, passed, settings.action, "went over");
        // Calls in flight are paid for: they may end, and streams are cut by what they use.
        trip.drains = true;
        Some(trip)
    }

    fn gauges(&self, dial: &Dial<'_>) -> Vec<Gauge> {
        let limits = Limits::full(dial.policy, dial.scope);
        let (spent, held) = (&dial.scope.ledger.spent, &dial.scope.ledger.reserved);
        let (input, output) = (spent.input + held.input, spent.output + held.output);
        [
            ("input_tokens", input, limits.input()),
            ("output_tokens", output, limits.output()),
            ("tokens", input + output, limits.total()),
        ]
        .into_iter()
        .filter_map(|(what, used, limit)| {
            let (used, limit) = (Measure::Tokens(used), Measure::Tokens(limit?));
            Some(Gauge::new(GuardId::Tokens, what, used, limit))
        })
        .collect()
    }
}

fn trip(
    seat: &Seat<'_>,
    (reason, measured, limit): (&str, Tokens, Tokens),
    action: Action,
    how: &str,
) -> Trip {
    let mut trip = seat.trip(GuardId::Tokens, reason, action);
    trip.measured = Measure::Tokens(measured);
    trip.limit = Measure::Tokens(limit);
    let part = reason.trim_end_matches("_exceeded").replace('_', " ");
    trip.because = format!(
        "{} {how} its {part} limit of {limit} (at {measured}, after {})",
        seat.who(),
        trip.context.elapsed
    );
    trip
}
