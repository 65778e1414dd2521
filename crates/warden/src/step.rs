//! One atomic step on a chain of scopes, wherever their state lives.
//!
//! A step is a function over the chain: it asks the engine, changes what the session remembers, and
//! counts trips. The backend makes it atomic: in memory it runs once under the chain's locks; in a
//! cluster it runs on snapshots, and again if the commit lost to a concurrent writer. So a step
//! reads only what it is given and has no effect outside it.

use deadstop_core::{
    Admission, Call, Decision, Digest, GuardId, Kill, Observed, Outcome, Progress, ScopeKind,
    ScopeState, Status, Ticket, Time, Trip, Verdict, Wait,
};
use deadstop_fleet::{Owner, Transaction};
use smallvec::SmallVec;

use super::Project;
use super::conversation::{Conversation, Counted, Streak, Waiting, advice};
use super::reported::Reported;

/// What a step works on.
pub(super) struct Step<'s, 'a, 'b> {
    transaction: &'s mut Transaction<'a, 'b>,
    conversation: &'s mut Conversation,
    /// Whether the conversation may have been changed.
    changed: bool,
    /// Whether the innermost scope became a new one.
    fresh: bool,
    /// The call that the client reports under the id that the step was made for.
    pub(super) reported: &'s mut Option<Reported>,
    counts: Counts,
}

/// The trips of a step, for the counters of agent and session that people see.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// What is new in the session.
    pub(super) new: SmallVec<[NewTrip; 2]>,
    pub(super) tags: SmallVec<[&'static str; 2]>,
}

/// A trip that begins a loop, an incident, or both.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewTrip {
    streak: Option<Streak>,
    /// Whether a scope above the session saw it. Then other sessions of the agent may meet the same.
    shared: bool,
    is_loop: bool,
    is_incident: bool,
}

impl Counts {
    pub(super) fn is_empty(&self) -> bool {
        self.tags.is_empty()
    }

    /// Loops and incidents that are new in the session.
    pub(super) fn of_session(&self) -> (u64, u64) {
        sum(self.new.iter())
    }

    /// Those that are new for its agent, which remembers what it has counted: one outage meets many
    /// sessions and is one incident of the agent.
    pub(super) fn of_agent(&self, counted: &mut Counted) -> (u64, u64) {
        sum(self.new.iter().filter(|trip| !trip.shared || counted.begins(trip.streak)))
    }

    /// Whether an agent has to look up what it has counted.
    pub(super) fn is_shared(&self) -> bool {
        self.new.iter().any(|trip| trip.shared)
    }
}

fn sum<'a>(new: impl Iterator<Item = &'a NewTrip>) -> (u64, u64) {
    new.fold((0, 0), |(loops, incidents), trip| {
        (loops + u64::from(trip.is_loop), incidents + u64::from(trip.is_incident))
    })
}

/// The result of a step, with the scopes that it killed, by their depth in the chain.
pub(super) struct Judged<T> {
    pub(super) value: T,
    pub(super) killed: SmallVec<[(usize, Kill); 1]>,
}

/// What a step leaves for its backend to store.
pub(super) struct Traces {
    pub(super) conversation_changed: bool,
    /// Whether the innermost scope became a new one, which has counted nothing yet.
    pub(super) fresh: bool,
    pub(super) counts: Counts,
}

/// Runs a step. The reason of a kill may quote texts, and is kept for as long as the scope. So it
/// is redacted here, before it is stored.
pub(super) fn judge<'a, 'b, T>(
    project: &Project,
    transaction: &mut Transaction<'a, 'b>,
    conversation: &mut Conversation,
    reported: &mut Option<Reported>,
    job: impl FnOnce(&mut Step<'_, 'a, 'b>) -> T,
) -> (Judged<T>, Traces) {
    let alive: SmallVec<[bool; 6]> =
        transaction.links.iter().map(|link| link.state.killed().is_none()).collect();
    let mut step = Step {
        transaction,
        conversation,
        changed: false,
        fresh: false,
        reported,
        counts: Counts::default(),
    };
    let value = job(&mut step);
    let Step { changed, fresh, counts, .. } = step;
    let mut killed = SmallVec::new();
    for (depth, alive) in alive.into_iter().enumerate() {
        let state = &mut *transaction.links[depth].state;
        if let Some(kill) = state.killed().filter(|_| alive) {
            let because = project.redact_reason(&kill.because);
            state.reword(&because);
        }
        if let Some(kill) = state.killed().filter(|_| alive) {
            killed.push((depth, kill.clone()));
        }
    }
    (Judged { value, killed }, Traces { conversation_changed: changed, fresh, counts })
}

impl Step<'_, '_, '_> {
    /// The time of the step.
    pub(super) fn now(&self) -> Time {
        self.transaction.now
    }

    /// The innermost scope's state.
    pub(super) fn state(&mut self) -> Option<&mut ScopeState> {
        self.transaction.links.last_mut().map(|link| &mut *link.state)
    }

    /// What the innermost scope remembers of its conversation.
    pub(super) fn conversation(&self) -> &Conversation {
        self.conversation
    }

    /// The same, for changes.
    pub(super) fn conversation_mut(&mut self) -> &mut Conversation {
        self.changed = true;
        self.conversation
    }

    /// Gives the innermost scope another number: a new session under the same name, which remembers
    /// nothing of the old one.
    pub(super) fn renumber(&mut self, number: i64) {
        *self.transaction.number = number;
        *self.conversation_mut() = Conversation::default();
        self.fresh = true;
    }

    /// Who settles a call that this node carries.
    pub(super) fn me(&self) -> Owner {
        self.transaction.me()
    }

    /// Decides whether a call may run.
    pub(super) fn admit(&mut self, call: &Call, owner: &Owner) -> Admission {
        let admission = self.transaction.admit(call, owner);
        self.counted(admission)
    }

    /// Decides about a call that a person has approved.
    pub(super) fn admit_approved(&mut self, call: &Call, owner: &Owner) -> Admission {
        let admission = self.transaction.admit_approved(call, owner);
        self.counted(admission)
    }

    /// Decides about a call whose harm a person has allowed once.
    pub(super) fn admit_allowed(&mut self, call: &Call, owner: &Owner) -> Admission {
        let admission = self.transaction.admit_allowed(call, owner);
        self.counted(admission)
    }

    /// Decides whether a sub-agent may begin in the innermost scope. A refusal is counted with its
    /// first call, which is refused as well.
    pub(super) fn begin(&mut self) -> Decision {
        self.transaction.begin()
    }

    /// The sub-agent of the innermost scope has ended.
    pub(super) fn end(&mut self) {
        self.transaction.end();
    }

    fn counted(&mut self, admission: Admission) -> Admission {
        // A call that a person is asked about has not been decided yet.
        if admission.verdict != Verdict::Ask {
            self.count(&admission.trips);
        }
        admission
    }

    /// Decides whether a running call may go on.
    pub(super) fn progress(
        &mut self,
        call: &Call,
        ticket: &mut Ticket,
        owner: &Owner,
        new: Progress<'_>,
    ) -> Decision {
        let decision = self.transaction.progress(call, ticket, owner, new);
        self.count(&decision.trips);
        decision
    }

    /// Settles a call.
    pub(super) fn settle(
        &mut self,
        call: &Call,
        ticket: Ticket,
        owner: &Owner,
        outcome: &Outcome,
    ) -> Decision {
        let decision = self.transaction.settle(call, ticket, owner, outcome);
        self.count(&decision.trips);
        // The model gets the advice about its answer with its next request.
        if let (Some(_), Some(advice)) = (call.model(), advice(&decision.trips)) {
            self.conversation_mut().heard.notes.add("", &advice);
        }
        decision
    }

    /// Takes in a call that has run and that telemetry tells of; `None` if it is known already.
    pub(super) fn observe(
        &mut self,
        call: &Call,
        outcome: &Outcome,
        report: Digest,
    ) -> Option<Observed> {
        let observed = self.transaction.observe(call, outcome, report)?;
        self.count(&observed.before);
        self.count(&observed.after);
        let trips = observed.before.iter().chain(&observed.after);
        // The model gets the advice with the next request that passes a door.
        if let Some(advice) = advice(trips) {
            self.conversation_mut().heard.notes.add("", &advice);
        }
        Some(observed)
    }

    /// Cancels calls whose results will not come.
    pub(super) fn cancel(
        &mut self,
        calls: impl IntoIterator<Item = Waiting>,
    ) -> Vec<(Waiting, Decision)> {
        let outcome = cancelled();
        let calls = calls.into_iter().map(|waiting| {
            let ticket = waiting.ticket.clone();
            let decision = self.settle(&waiting.call, ticket, &waiting.owner, &outcome);
            (waiting, decision)
        });
        calls.collect()
    }

    /// Counts trips, for agent and session.
    pub(super) fn count(&mut self, trips: &[Trip]) {
        for trip in trips {
            if trip.guard == GuardId::Killed || trip.verdict == Verdict::Allow {
                continue;
            }
            let tag = trip.guard.tag(trip.verdict);
            // All trips of one loop or outage are one incident.
            let streak = Counted::streak(trip);
            if !is_overruled(trip, trips) && self.conversation.counted.begins(streak) {
                self.changed |= streak.is_some();
                let above = matches!(trip.context.kind, ScopeKind::Agent | ScopeKind::Project);
                self.counts.new.push(NewTrip {
                    streak,
                    shared: above && streak.is_some(),
                    is_loop: tag == "loop_detected",
                    is_incident: is_incident(trip),
                });
            }
            if !self.counts.tags.contains(&tag) {
                self.counts.tags.push(tag);
            }
        }
    }
}

/// Whether a trip becomes an incident, or part of one: it blocked or killed, and not by an operator's
/// order; or it belongs to a loop or an outage, which is an incident from its first warning on.
pub(super) fn is_incident(trip: &Trip) -> bool {
    let waits = trip.waits == Some(Wait::Settle);
    let from = if trip.streak.is_some() { Verdict::Warn } else { Verdict::Block };
    trip.verdict >= from && !waits && !matches!(trip.guard, GuardId::Paused | GuardId::Killed)
}

/// Whether a milder step of a loop did not come about, because another guard refused the call.
pub(super) fn is_overruled(trip: &Trip, trips: &[Trip]) -> bool {
    let refused = trips.iter().any(|trip| trip.verdict >= Verdict::Block);
    trip.streak.is_some() && trip.verdict < Verdict::Block && refused
}

/// The outcome of a cancelled call.
pub(super) fn cancelled() -> Outcome {
    Outcome { status: Status::Cancelled, ..Outcome::default() }
}
