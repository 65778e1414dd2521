//! *budget*: how much money a scope may spend, on models and on tools.
//!
//! **Catches** the agent that spends a month's money overnight, and a thousand calls at once that
//! each look affordable. **Lets pass** whatever fits into what is left after everything in flight.
//! **Trips** when the bills have reached the limit: then the scope ends. An estimate ends nothing: a
//! call whose prompt is estimated not to fit is blocked, a stream is cut when the running count
//! reaches the limit, and the bill decides about the scope. A call that only fits if others use
//! less than they reserved may wait for them (`wait_s`). A soft alert warns once, when it is
//! crossed. **Recovers** with the next period, where the budget has one.

use std::collections::BTreeMap;

use crate::call::Call;
use crate::gauge::{Dial, Gauge};
use crate::guard::ending::Limits;
use crate::guard::{End, Seat};
use crate::ledger::{Period, Reservation, output_cost};
use crate::pattern::Pattern;
use crate::settings::{BadSetting, Dollars, Seconds, in_range, settings};
use crate::trip::{Action, GuardId, Measure, Trip, Verdict, Wait};
use crate::units::NanoUsd;

settings! {
    /// Limits on money.
    BudgetSettings / RawBudget {
        /// The most that may be spent.
        max_cost_usd: Option<Dollars> = None,
        /// Warn when this much is spent.
        soft_alert_threshold_usd: Option<Dollars> = None,
        /// How long the limit counts: for the scope's life, or each hour or day anew.
        per: Period = Period::Total,
        /// How a call's cost is reserved before it runs.
        reservation: Reservation = Reservation::Expected,
        /// Under `ceiling`: the share of what is left that a call without a maximum of its own
        /// reserves at most. A stream that reaches it takes another share, or is cut.
        ceiling_share: f64 = 0.125,
        /// Seconds that a call waits for room that calls in flight may leave. 0: it is refused at
        /// once.
        wait_s: Seconds = Seconds(30),
        /// What a call of a tool costs, by name.
        tool_prices: BTreeMap<Pattern, Dollars> = BTreeMap::new(),
        /// What to do when the limit is reached.
        action: Action = Action::Terminate,
    }
    elsewhere {
        /// The page has it here; it is `time.max_wall_time_seconds`.
        max_wall_time_seconds: Seconds,
    }
}

impl BudgetSettings {
    pub(crate) fn validate(&self) -> Result<(), BadSetting> {
        if self.soft_alert_threshold_usd == Some(Dollars(NanoUsd(0))) {
            return Err(BadSetting::new(
                "budget.soft_alert_threshold_usd",
                "an alert at 0 is crossed before anything is spent",
                "leave it out for no alert, or write the dollars that are worth one",
            ));
        }
        if !(self.ceiling_share > 0.0 && self.ceiling_share <= 1.0) {
            return Err(BadSetting::new(
                "budget.ceiling_share",
                format!("{} is no share", self.ceiling_share),
                "write a number above 0 and up to 1, such as 0.125",
            ));
        }
        in_range("budget.wait_s", self.wait_s.0, 0..=3600)?;
        let Some(hard) = self.max_cost_usd else { return Ok(()) };
        if hard.0 == NanoUsd(0) {
            return Err(BadSetting::new(
                "budget.max_cost_usd",
                "a budget of 0 stops every call",
                "leave it out for no limit, or kill the agent to stop it",
            ));
        }
        match self.soft_alert_threshold_usd {
            Some(soft) if soft >= hard => Err(BadSetting::new(
                "budget.soft_alert_threshold_usd",
                format!("the soft alert ({}) is not below the hard limit ({})", soft.0, hard.0),
                "set it below max_cost_usd, so that the warning comes before the stop",
            )),
            _ => Ok(()),
        }
    }

    /// The price of a tool, by the longest pattern that fits.
    pub(crate) fn tool_price(&self, tool: &str) -> Option<NanoUsd> {
        let fits = self.tool_prices.iter().filter(|(pattern, _)| pattern.matches(tool));
        fits.max_by_key(|(pattern, _)| pattern.to_string().len()).map(|(_, price)| price.0)
    }
}

pub(crate) struct Guard;

impl super::Guard for Guard {
    fn admit(&self, seat: &Seat<'_>) -> Option<Trip> {
        let settings = &seat.policy.budget;
        let limit = Limits::of(seat.policy, seat.scope).cost()?;
        let ledger = &seat.scope.ledger;
        if seat.call.lookup() {
            return None;
        }
        let estimated = seat.call.estimated();
        let certain = match seat.call {
            Call::Tool(_) => seat.reserved.cost,
            Call::Model(call) => {
                seat.reserved.cost - output_cost(&call.rates, seat.reserved.output)
            }
        };
        let at_least = ledger.period_cost + certain;
        // A call that costs nothing is not refused for its own sake, only for what is gone.
        let used_up = ledger.period_cost >= limit;
        if used_up || at_least > limit {
            let mut trip = trip(seat, at_least, limit, settings.action);
            trip.drains = true;
            trip.because = match used_up {
                true => format!("{} has spent its budget of {limit}", seat.who()),
                false => format!(
                    "{} needs {certain}{} and {} of its {limit} is left",
                    seat.call.name(),
                    if estimated { " by an estimate" } else { "" },
                    limit - ledger.period_cost
                ),
            };
            if estimated && !used_up {
                trip.verdict = trip.verdict.min(Verdict::Block);
                trip.reason = "budget_estimate".to_owned();
            }
            return Some(trip);
        }
        let committed = ledger.committed() + seat.reserved.cost;
        if committed <= limit {
            return None;
        }
        let mut trip = trip(seat, committed, limit, settings.action);
        // The rest may come back: nothing ends for that.
        trip.verdict = trip.verdict.min(Verdict::Block);
        trip.reason = "budget_reserved".to_owned();
        trip.waits = (ledger.in_flight > 0).then_some(Wait::Settle);
        trip.because = format!(
            "{} may cost {}, and of the budget of {limit} {} is spent and {} reserved",
            seat.call.name(),
            seat.reserved.cost,
            ledger.period_cost,
            ledger.reserved.cost
        );
        Some(trip)
    }

    fn progress(&self, seat: &Seat<'_>) -> Option<Trip> {
        let settings = &seat.policy.budget;
        let limit = Limits::of(seat.policy, seat.scope).cost()?;
        let committed = seat.scope.ledger.committed();
        if committed <= limit {
            return None;
        }
        let mut trip = trip(seat, committed, limit, settings.action);
        if seat.call.estimated() {
            // The bill decides about the scope.
            trip.verdict = trip.verdict.min(Verdict::Block);
        }
        trip.because =
            format!("the answer took {} to {committed}, over its budget of {limit}", seat.who());
        Some(trip)
    }

    fn verify(&self, seat: &Seat<'_>, end: &End<'_>) -> Option<Trip> {
        let settings = &seat.policy.budget;
        let (after, before) =
            (seat.scope.ledger.period_cost, seat.scope.ledger.period_cost - end.cost);
        if let Some(limit) = Limits::of(seat.policy, seat.scope).cost()
            && after >= limit
        {
            let mut trip = trip(seat, after, limit, settings.action);
            // Calls in flight are paid for: they may end, and streams are cut by what they use.
            trip.drains = true;
            trip.because = format!("{} has spent {after} of its budget of {limit}", seat.who());
            return Some(trip);
        }
        let soft = settings.soft_alert_threshold_usd?.0;
        if before >= soft || after < soft {
            return None;
        }
        let mut trip = trip(seat, after, soft, Action::Warn);
        trip.reason = "budget_warning".to_owned();
        trip.because = format!("{} has spent {after} (alert at {soft})", seat.who());
        Some(trip)
    }

    fn gauges(&self, dial: &Dial<'_>) -> Vec<Gauge> {
        let settings = &dial.policy.budget;
        let Some(limit) = Limits::full(dial.policy, dial.scope).cost() else { return Vec::new() };
        let what = match settings.per {
            Period::Total => "cost",
            Period::Hour => "cost_this_hour",
            Period::Day => "cost_today",
        };
        let used = Measure::Money(dial.scope.ledger.committed_at(settings.per, dial.now));
        vec![Gauge::new(GuardId::Budget, what, used, Measure::Money(limit))]
    }
}

fn trip(seat: &Seat<'_>, measured: NanoUsd, limit: NanoUsd, action: Action) -> Trip {
    let mut trip = seat.trip(GuardId::Budget, "budget_exceeded", action);
    trip.measured = Measure::Money(measured);
    trip.limit = Measure::Money(limit);
    trip
}
