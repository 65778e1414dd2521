//! Calls that have run and that telemetry tells of.

use super::{Word, cost_of, decide_admission, ended};
use crate::call::{Call, Digest, Outcome};
use crate::engine::Admission;
use crate::ledger::Learn;
use crate::scope::Link;
use crate::trip::Trip;
use crate::twice::Mark;
use crate::units::Time;

/// What was decided about a call that telemetry told of.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// What would have been said before it ran.
    pub before: Vec<Trip>,
    /// What is said about its end.
    pub after: Vec<Trip>,
    /// Its number in its innermost scope.
    pub number: u64,
}

/// Takes in a call that has run and that telemetry tells of: it is charged, the guards learn from it,
/// and what they decide holds for the next call. `telemetry` names the report itself, so that one
/// that is sent again counts once; `None` if the call is known, from a report or from a door.
pub fn observe(
    chain: &mut [Link<'_>],
    call: &Call,
    outcome: &Outcome,
    telemetry: Digest,
    now: Time,
) -> Option<Observed> {
    let mark = Mark::of(call, outcome);
    if chain.last_mut()?.state.twice.told(telemetry, mark) {
        return None;
    }
    let Admission { trips: before, ticket, .. } =
        decide_admission(chain, call, now, Word::Recorded);
    let Some(ticket) = ticket else {
        // Its scope is over, or ends with it. It ran all the same, and is paid for.
        let cost = cost_of(chain, call, outcome);
        for link in chain.iter_mut() {
            link.state.calls += 1;
            link.state.ledger.spent.count(call);
            link.state.ledger.charge(&outcome.usage, cost, Learn::No);
        }
        let number = chain.last().map_or(0, |link| link.state.calls);
        return Some(Observed { before, after: Vec::new(), number });
    };
    let number = ticket.number;
    let cost = cost_of(chain, call, outcome);
    let after = ended(chain, call, &ticket, (outcome, cost), now).trips;
    Some(Observed { before, after, number })
}
