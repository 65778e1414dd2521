//! Ends of calls that ride with the next call of their agent, in a cluster.
//!
//! The end of a call is committed for all nodes. That costs a round trip, unless it goes in the same
//! commit as the admission of the next call. Until then the call counts with what it has reserved. The
//! end of a model's answer may ride if nothing depends on it meanwhile:
//!
//! - It ended well, and no guard trips, as far as this node can tell.
//! - Every limit above it has plenty of room ([`can_wait`]), so neither what it would free nor what
//!   it used beyond its reservation decides about another call.
//! - No call waits for room.
//! - The agent's sessions stay on this node ([`Cell::stays`](deadstop_fleet::Cell::stays)). The next
//!   call here is decided after it, because the two are in one lane.
//!
//! A client is told of the end of an answer before its cost is committed, as on one node, where the
//! database follows several times a second. If the node dies in between, its reservation is booked as
//! spent. What a client reports by the API is acknowledged after its commit, and never rides.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use deadstop_core::share::Held;
use deadstop_core::{Call, Link, Outcome, ScopeState, Status, Time, Tokens, settle};
use deadstop_fleet::{End, Owner, can_wait};
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::backend::Commits;
use super::{BOOKED, Chain, Running, Scope, Warden};

/// Calls that ride, until they are committed and recorded.
#[derive(Debug, Clone, Default)]
pub(super) struct Riders(Arc<Riding>);

#[derive(Debug, Default)]
struct Riding {
    many: AtomicUsize,
    none: Notify,
}

/// A call that rides; dropping it says that it has arrived.
pub(super) struct Rider(Arc<Riding>);

impl Riders {
    pub(super) fn join(&self) -> Rider {
        self.0.many.fetch_add(1, Ordering::SeqCst);
        Rider(Arc::clone(&self.0))
    }

    fn any(&self) -> bool {
        self.0.many.load(Ordering::SeqCst) > 0
    }

    /// Returns when none rides.
    async fn gone(&self) {
        loop {
            let mut none = std::pin::pin!(self.0.none.notified());
            none.as_mut().enable();
            if !self.any() {
                return;
            }
            none.await;
        }
    }
}

impl Drop for Rider {
    fn drop(&mut self) {
        if self.0.many.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.none.notify_waiters();
        }
    }
}

/// Whether a guard trips at the end of a call, on what this node knows.
fn trips(chain: &Chain, call: &Call, running: &Running, (outcome, now): (&Outcome, Time)) -> bool {
    let policies = chain.policies();
    let copy = |scope: &Arc<Scope>| ScopeState::clone(&scope.state());
    let mut states: SmallVec<[ScopeState; 6]> = chain.scopes().iter().map(copy).collect();
    let mut links: SmallVec<[Link<'_>; 6]> = states
        .iter_mut()
        .zip(chain.scopes())
        .map(|(state, scope)| Link { name: scope.name(), policy: policies.of(scope.kind()), state })
        .collect();
    !settle(&mut links, call, running.ticket.bare(), outcome, now).trips.is_empty()
}

impl Warden {
    /// When the end of a call is to be committed.
    pub(super) fn commits(
        &self,
        chain: &Chain,
        call: &Call,
        running: &Running,
        outcome: &Outcome,
    ) -> Commits {
        let (Some(_), Call::Model(model)) = (self.node(), call) else { return Commits::Now };
        let stays = chain.agent().and_then(|agent| agent.cell()).is_some_and(|cell| cell.stays());
        let well = outcome.status == Status::Ok && outcome.failure.is_none();
        let carried = matches!(running.owner, Owner::Node(_));
        if !(stays && well && carried) || self.rooms.wait() {
            return Commits::Now;
        }
        let cost = outcome.billed.unwrap_or_else(|| model.rates.cost(&outcome.usage));
        let amount = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let tokens = |tokens: Tokens| amount(tokens.0);
        let used = Held {
            input: tokens(outcome.usage.counted_input()),
            output: tokens(outcome.usage.output),
            cost: amount(cost.0),
            calls: 0,
        };
        let end = End { held: self.backend.held(running), used, now: self.time() };
        let policies = chain.policies();
        let roomy = chain
            .scopes()
            .iter()
            .all(|scope| can_wait(policies.of(scope.kind()), &scope.state(), &end));
        match roomy && !trips(chain, call, running, (outcome, end.now)) {
            true => Commits::WithNext,
            false => Commits::Now,
        }
    }

    /// Commits now what waits for the next call.
    pub(super) fn land_riders(&self) {
        if let Some(node) = self.node().filter(|_| self.riders.any()) {
            node.hurry();
        }
    }

    /// The node is about to stop: waits until the ends of calls are committed, for a second at most.
    pub async fn last_riders(&self) {
        if let Some(node) = self.node() {
            node.no_more_rides();
            let _ = timeout(BOOKED, self.riders.gone()).await;
        }
    }
}
