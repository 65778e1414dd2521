//! What a policy would have done with a session that is stored: its calls once more through the
//! engine, at their own times.
//!
//! A session is tried by itself, with its agent's scope as empty as its own: what other sessions of
//! the agent had spent by then is not counted.

use std::collections::HashMap;

use deadstop_core::{NanoUsd, PolicySet, Ticket, Time, Trip, Verdict, admit_recorded, settle};
use deadstop_store::StoredCall;

use crate::replay::{Moment, Run, moments};
use deadstop_warden::Facts;

/// What would have come of a session.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    /// Calls that were tried.
    pub(crate) calls: usize,
    /// Calls that would have been let pass with a warning.
    pub(crate) warned: usize,
    /// Calls that a person would have been asked about.
    pub(crate) asked: usize,
    /// Calls that would have been refused, one by one.
    pub(crate) blocked: usize,
    /// What would have ended it, or else the first refusal.
    pub(crate) stop: Option<Stop>,
}

/// Where a session would have been stopped.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) trip: Trip,
    /// The call it would have happened at.
    pub(crate) call: i64,
    pub(crate) at: Time,
    /// Calls that would not have been made any more, that one included.
    pub(crate) calls_after: usize,
    /// What they cost.
    pub(crate) cost_after: NanoUsd,
}

/// Tries a session: its calls in the order in which they were made.
pub(crate) fn replay(policies: &PolicySet, name: &str, calls: &[StoredCall]) -> Tried {
    let facts: Vec<Option<Facts>> =
        calls.iter().map(|call| Facts::read(call.facts.as_deref()?)).collect();
    let moments = moments(calls, &facts);
    let mut run = Run::new(name, calls.first().map_or(Time(0), |call| call.at));
    let mut tried = Tried { calls: facts.iter().flatten().count(), ..Tried::default() };
    let mut tickets: HashMap<usize, Ticket> = HashMap::new();
    for (at, index, moment) in moments {
        let Some(facts) = &facts[index] else { continue };
        let nested = calls[index].nested.as_deref();
        let (trips, refused) = match moment {
            Moment::Asked => {
                // The call was made, whatever a person or a ladder would have said about it.
                let admission =
                    run.chain(policies, nested, |chain| admit_recorded(chain, &facts.call, at));
                let refused = admission.verdict >= Verdict::Block;
                tickets.extend(admission.ticket.map(|ticket| (index, ticket)));
                (admission.trips, refused)
            }
            Moment::Refused => continue,
            Moment::Ended => {
                let Some(ticket) = tickets.remove(&index) else { continue };
                let (call, outcome) = (&facts.call, &facts.outcome);
                let decision =
                    run.chain(policies, nested, |chain| settle(chain, call, ticket, outcome, at));
                (decision.trips, false)
            }
        };
        let Some(trip) = trips.into_iter().next() else { continue };
        match trip.verdict {
            Verdict::Kill => {
                // A kill at the end of a call spares those after it.
                let from = if refused { index } else { index + 1 };
                tried.stop = Some(Stop::at(trip, at, calls, index, from));
                return tried;
            }
            Verdict::Block if refused => {
                tried.blocked += 1;
                if tried.stop.is_none() {
                    let mut stop = Stop::at(trip, at, calls, index, index);
                    (stop.calls_after, stop.cost_after) = (1, calls[index].cost);
                    tried.stop = Some(stop);
                }
            }
            Verdict::Ask => tried.asked += 1,
            _ => tried.warned += 1,
        }
    }
    tried
}

impl Stop {
    fn at(trip: Trip, at: Time, calls: &[StoredCall], index: usize, from: usize) -> Stop {
        let after = calls.get(from..).unwrap_or_default();
        let cost_after = after.iter().fold(NanoUsd(0), |sum, call| sum + call.cost);
        Stop { trip, call: calls[index].id, at, calls_after: after.len(), cost_after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deadstop_core::{Call, Millis, Outcome, Preset, ResultFacts, Status, ToolCall, Usage};
    use deadstop_store::CallKind;

    fn call(index: u64, tool: &str) -> StoredCall {
        let signature = deadstop_core::Digest::of(tool.as_bytes());
        let facts = ToolCall { name: tool.into(), signature, ..ToolCall::default() };
        let outcome = Outcome { result: Some(ResultFacts::default()), ..Outcome::default() };
        StoredCall {
            id: i64::try_from(index).unwrap(),
            project: "default".into(),
            agent_number: 1,
            session_number: 2,
            nested: None,
            position: index,
            kind: CallKind::Tool,
            name: tool.into(),
            server: None,
            at: Time(index * 1000),
            duration: Some(Millis(10)),
            verdict: Verdict::Allow,
            guard: None,
            reason: None,
            status: Some(Status::Ok),
            usage: Usage::default(),
            cost: NanoUsd(100),
            incident: None,
            facts: Facts::write(&Call::Tool(facts), &outcome),
        }
    }

    #[test]
    fn a_loop_would_have_been_stopped_and_what_follows_is_counted() {
        let calls: Vec<_> = (1..=12).map(|index| call(index, "update_row")).collect();
        let tried = replay(&Preset::Strict.policies(), "s1", &calls);
        let stop = tried.stop.unwrap();
        assert_eq!((tried.calls, stop.trip.guard.name()), (12, "loop"));
        assert_eq!(stop.call, 8, "{stop:?}");
        assert_eq!(stop.cost_after, NanoUsd(100 * stop.calls_after as u64));
        let later = replay(&Preset::Balanced.policies(), "s1", &calls);
        assert_eq!(later.stop.map(|stop| stop.call), Some(10));
        let watched = replay(&Preset::Observe.policies(), "s1", &calls);
        assert!(watched.stop.is_none() && watched.warned > 0);
    }

    #[test]
    fn a_healthy_session_passes() {
        let calls: Vec<_> = (1..=200).map(|index| call(index, &format!("tool{index}"))).collect();
        let tried = replay(&Preset::Strict.policies(), "s1", &calls);
        assert!(tried.stop.is_none(), "{:?}", tried.stop);
        assert_eq!((tried.calls, tried.blocked), (200, 0));
    }

    #[test]
    fn calls_that_never_ran_are_left_out() {
        let mut calls: Vec<_> = (1..=4).map(|index| call(index, "update_row")).collect();
        calls.push(StoredCall { facts: None, status: None, ..call(5, "update_row") });
        assert_eq!(replay(&Preset::Strict.policies(), "s1", &calls).calls, 4);
    }
}
