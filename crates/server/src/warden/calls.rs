//! A call's three moments: the engine is asked over a locked chain, or where there are many nodes
//! over copies that are swapped in; what was decided is kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deadstop_core::{
    Admission, Call, Decision, Link, Outcome, Progress, Ticket, Time, Trip, Verdict, admit,
    progress, settle,
};
use deadstop_fleet::Owner;
use deadstop_redact::excerpt::Excerpt;
use smallvec::SmallVec;

use super::{BOOKED, Booking, Chain, Refused, Running, Said, Warden, Wish, Wished, record};

/// A call as it is kept: its id among all, and what its ticket said.
pub(crate) struct Numbered {
    id: i64,
    number: u64,
    admitted: Time,
    /// What was said about it when it was let pass.
    warned: Option<Box<Trip>>,
}

impl Numbered {
    pub(crate) fn of(id: i64, ticket: &Ticket, warned: Option<Box<Trip>>) -> Numbered {
        Numbered { id, number: ticket.number, admitted: ticket.admitted, warned }
    }
}

impl Warden {
    /// May this call run? Where a person is to be asked, [`Warden::ask`] does so.
    pub(crate) async fn admit(
        &self,
        chain: &Chain,
        call: &Call,
        request: &Excerpt,
        wish: Wish,
    ) -> Result<(Running, Vec<Trip>), Refused> {
        match self.node() {
            None => self.admit_here(chain, call, request),
            Some(node) => match self.wish(node, chain, call, request, wish).await {
                Wished::Decided(decided) => decided,
                Wished::Stale => Err(Refused { stale: true, ..Refused::default() }),
                Wished::Known(_) => Err(Refused::default()),
            },
        }
    }

    /// The same where there is one node only, which need not wait for anybody.
    pub(crate) fn admit_here(
        &self,
        chain: &Chain,
        call: &Call,
        request: &Excerpt,
    ) -> Result<(Running, Vec<Trip>), Refused> {
        self.admit_by(chain, call, request, |links, now| admit(links, call, now))
    }

    pub(super) fn admit_by(
        &self,
        chain: &Chain,
        call: &Call,
        request: &Excerpt,
        decide: impl FnOnce(&mut [Link<'_>], Time) -> Admission,
    ) -> Result<(Running, Vec<Trip>), Refused> {
        let begun = Instant::now();
        let admission = self.decide(chain, decide);
        self.metrics.decided(begun.elapsed());
        self.admitted(chain, call, request, admission, self.number(), None)
    }

    /// Keeps what was decided about a call.
    pub(super) fn admitted(
        &self,
        chain: &Chain,
        call: &Call,
        request: &Excerpt,
        admission: Admission,
        id: i64,
        owner: Option<Owner>,
    ) -> Result<(Running, Vec<Trip>), Refused> {
        if admission.verdict == Verdict::Ask {
            // Nothing has happened yet.
            for trip in &admission.trips {
                self.metrics.verdict(trip.guard, trip.verdict);
            }
            return Err(Refused { trips: admission.trips, ..Refused::default() });
        }
        let said = || Said { request: request.clone(), response: Excerpt::default() };
        let incident = self.record(chain, call, id, &admission.trips, said);
        match admission.ticket {
            Some(ticket) => {
                self.note_grant(chain, &ticket);
                let warned = admission.trips.first().cloned().map(Box::new);
                let running = Running { id, ticket, warned, owner, slice: None };
                Ok((running, admission.trips))
            }
            None => {
                if let Some(trip) = admission.trips.first() {
                    self.refused(chain, call, id, trip, incident.clone());
                }
                Err(Refused { trips: admission.trips, incident, ..Refused::default() })
            }
        }
    }

    /// May this call go on? With the incident, if it may not.
    pub(crate) fn progress(
        &self,
        chain: &Chain,
        call: &Call,
        running: &mut Running,
        new: Progress<'_>,
        said: impl Fn() -> Said,
    ) -> (Decision, Option<String>) {
        let decision = match self.node() {
            Some(node) => self.progress_here(node, chain, call, running, new),
            None => {
                let ticket = &mut running.ticket;
                self.decide(chain, |links, now| progress(links, call, ticket, new, now))
            }
        };
        let incident = self.record(chain, call, running.id, &decision.trips, said);
        if let Some(trip) = decision.trips.first() {
            running.warned = Some(Box::new(trip.clone()));
        }
        (decision, incident)
    }

    /// This call has ended. Nobody waits for what comes of it; what comes next comes after it.
    pub(crate) fn settle_soon(
        self: &Arc<Warden>,
        chain: &Chain,
        call: &Call,
        running: Running,
        outcome: &Outcome,
        said: Said,
    ) -> Option<Booking> {
        let Some(node) = self.node() else {
            self.settle_here(chain, call, running, outcome, said);
            return None;
        };
        let unasked = running.owner == Some(Owner::Unasked);
        let done = self.settle_everywhere(node, chain, call, &running, outcome);
        let (warden, chain) = (Arc::clone(self), chain.clone());
        let (call, outcome) = (call.clone(), outcome.clone());
        let booked = tokio::spawn(async move {
            let Ok((decision, killed)) = done.await else { return };
            warden.carry_kills(&chain, killed);
            let Running { id, ticket, warned, .. } = running;
            warden.book(
                &chain,
                &call,
                Numbered::of(id, &ticket, warned),
                &outcome,
                &decision,
                said,
            );
        });
        // Whoever waits does so for as long as others usually take, and not for an outage.
        let patience = if node.away().is_some() || unasked { Duration::ZERO } else { BOOKED };
        Some(Box::pin(async move {
            let _ = tokio::time::timeout(patience, booked).await;
        }))
    }

    /// This call has ended.
    pub(crate) async fn settle(
        &self,
        chain: &Chain,
        call: &Call,
        running: Running,
        outcome: &Outcome,
        said: Said,
    ) -> Decision {
        let Some(node) = self.node() else {
            return self.settle_here(chain, call, running, outcome, said);
        };
        match self.settle_everywhere(node, chain, call, &running, outcome).await {
            Ok((decision, killed)) => {
                self.carry_kills(chain, killed);
                let Running { id, ticket, warned, .. } = running;
                self.book(chain, call, Numbered::of(id, &ticket, warned), outcome, &decision, said);
                decision
            }
            Err(_) => Decision { verdict: Verdict::Allow, trips: Vec::new() },
        }
    }

    pub(super) fn settle_here(
        &self,
        chain: &Chain,
        call: &Call,
        running: Running,
        outcome: &Outcome,
        said: Said,
    ) -> Decision {
        let Running { id, ticket, warned, .. } = running;
        let call_of = Numbered { id, number: ticket.number, admitted: ticket.admitted, warned };
        let decision = self.decide(chain, |links, now| settle(links, call, ticket, outcome, now));
        self.book(chain, call, call_of, outcome, &decision, said);
        decision
    }

    /// Keeps what a call has come to.
    pub(crate) fn book(
        &self,
        chain: &Chain,
        call: &Call,
        Numbered { id, number, admitted, warned }: Numbered,
        outcome: &Outcome,
        decision: &Decision,
        said: Said,
    ) {
        let incident = self.record(chain, call, id, &decision.trips, || said.clone());
        let trip = decision.trips.first().or(warned.as_deref());
        let ended = record::Ended { id, number, admitted, outcome, trip, incident, said };
        self.ended(chain, call, ended);
    }

    /// Runs the engine over a locked chain, then carries new kills out.
    pub(super) fn decide<T>(
        &self,
        chain: &Chain,
        decide: impl FnOnce(&mut [Link<'_>], Time) -> T,
    ) -> T {
        let policies = chain.policies();
        // Chains are short: nothing of this needs the allocator.
        let mut states: SmallVec<[_; 6]> =
            chain.scopes().iter().map(|scope| scope.state.lock()).collect();
        let alive: SmallVec<[bool; 6]> =
            states.iter().map(|state| state.killed().is_none()).collect();
        let mut links: SmallVec<[Link<'_>; 6]> = states
            .iter_mut()
            .zip(chain.scopes())
            .map(|(state, scope)| Link {
                name: scope.name(),
                policy: policies.of(scope.kind()),
                state,
            })
            .collect();
        let decision = decide(&mut links, self.time());
        drop(links);
        let mut killed: SmallVec<[_; 2]> = SmallVec::new();
        for ((scope, state), alive) in chain.scopes().iter().zip(&mut states).zip(alive) {
            if let Some(kill) = state.killed().filter(|_| alive) {
                // It may quote what was said, and is kept for as long as the scope is.
                let because = chain.project.redact_reason(&kill.because);
                state.reword(&because);
            }
            if let Some(kill) = state.killed().filter(|_| alive) {
                scope.note_kill();
                if !kill.drains {
                    scope.cut();
                }
                killed.push((Arc::clone(scope), kill.clone()));
            }
        }
        drop(states);
        for (scope, kill) in killed {
            self.killed_by_guard(&scope, &kill);
            self.end_everywhere(&scope, &kill);
        }
        for scope in chain.scopes() {
            self.mark(scope);
        }
        decision
    }
}
