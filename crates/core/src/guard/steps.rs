//! *steps*: how many calls a scope may make.
//!
//! **Catches** the agent that never finishes, whatever it does. **Lets pass** exactly the number
//! allowed, also when all calls come at the same moment: a step is taken in the same breath as it
//! is checked. **Trips** on the first call over the limit; calls that were admitted before may
//! finish. **Recovers** never: the scope is at its end.

use crate::call::Call;
use crate::gauge::{Dial, Gauge};
use crate::guard::ending::Limits;
use crate::guard::{Note, Seat};
use crate::scope::ScopeState;
use crate::settings::{BadSetting, in_range, settings};
use crate::trip::{Action, GuardId, Measure, Trip};

settings! {
    /// Limits on the number of calls.
    StepSettings / RawSteps {
        /// Tool calls.
        max_steps: Option<u64> = None,
        /// Model calls. Lists of models and counts of tokens are none.
        max_model_calls: Option<u64> = None,
        /// What to do with the first call over a limit.
        action: Action = Action::Terminate,
    }
}

impl StepSettings {
    pub(crate) fn validate(&self) -> Result<(), BadSetting> {
        for (path, limit) in
            [("steps.max_steps", self.max_steps), ("steps.max_model_calls", self.max_model_calls)]
        {
            in_range(path, limit.unwrap_or(1), 1..=u64::MAX)?;
        }
        Ok(())
    }
}

pub(crate) struct Guard;

impl super::Guard for Guard {
    fn admit(&self, seat: &Seat<'_>) -> Option<Trip> {
        let (settings, spent) = (&seat.policy.steps, &seat.scope.ledger.spent);
        if settings.max_steps.is_none() && settings.max_model_calls.is_none() {
            return None;
        }
        let limits = Limits::of(seat.policy, seat.scope);
        let (used, limit, reason, what) = match seat.call {
            Call::Model(call) if call.lookup => return None,
            Call::Tool(_) => (spent.steps, limits.steps()?, "max_steps", "tool calls"),
            Call::Model(_) => {
                (spent.model_calls, limits.model_calls()?, "max_model_calls", "model calls")
            }
        };
        if used < limit {
            return None;
        }
        let mut trip = seat.trip(GuardId::Steps, reason, settings.action);
        trip.drains = true;
        // Of those that were allowed: the call that is refused is none of them.
        trip.measured = Measure::Count(used);
        trip.limit = Measure::Count(limit);
        trip.because = format!("all {limit} {what} of {} are used up", seat.who());
        Some(trip)
    }

    fn commit(&self, scope: &mut ScopeState, note: &mut Note<'_>) {
        scope.ledger.spent.count(note.call);
    }

    fn gauges(&self, dial: &Dial<'_>) -> Vec<Gauge> {
        let limits = Limits::full(dial.policy, dial.scope);
        let spent = &dial.scope.ledger.spent;
        let gauge = |what, used, limit: Option<u64>| {
            limit.map(|limit| Gauge::count(GuardId::Steps, what, used, limit))
        };
        let tools = gauge("tool_calls", spent.steps, limits.steps());
        let models = gauge("model_calls", spent.model_calls, limits.model_calls());
        tools.into_iter().chain(models).collect()
    }
}
