//! Settlements that ride with the next admission of their lane.
//!
//! The end of a call need not cost a round trip of its own: until it is committed, all nodes count
//! what the call had reserved. So it waits a moment for another job of its lane, and both go in one
//! commit. It is the earlier one of the two, so the next call on this node is decided with it.
//!
//! Another node sees it a moment later. Riding therefore pays only where an agent's sessions stay on
//! one node: [`Cell::stays`] tells. What else must hold is for the caller to judge.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use deadstop_core::share::{Held, minute_began};
use deadstop_core::{Policy, PolicySet, ScopeState, Time};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::batch::{amounts, limits};
use crate::cell::Cell;
use crate::fleet::Fleet;
use crate::lane::{Haste, Lane, Queue, Unreachable};
use crate::transaction::Transaction;
use crate::wire::Shared;

/// How long the end of a call waits for another job of its lane.
const WAIT: Duration = Duration::from_millis(20);
/// So many jobs that wait for a ride do not wait for another one.
const FULL: usize = 64;
/// A limit has plenty of room if what is left of it is so many times what a call has reserved.
const ROOMY: u64 = 8;
/// Calls in a row whose sessions no other node had written meanwhile: after so many, an agent's
/// sessions count as staying on this node.
const STAYS: u32 = 8;

/// Whether it makes no difference to a scope's limits if a call counts for a moment longer with what
/// it has reserved, and not with what it has used: it has used no more than that, so nothing is lost
/// if its node dies, and what is left of each limit is many times what the call would free.
pub fn can_wait(policy: &Policy, scope: &ScopeState, end: &End) -> bool {
    let totals = scope.totals(policy);
    let amounts = amounts(&totals, totals.period, minute_began(end.now));
    let limits = limits(&policy.bounds_of(scope));
    let covered = of_a_call(&end.used).zip(of_a_call(&end.held)).all(|(used, held)| used <= held);
    let roomy = |((amount, limit), held): ((u64, Option<u64>), u64)| match limit {
        Some(limit) => limit.saturating_sub(amount) >= held.saturating_mul(ROOMY),
        None => true,
    };
    covered && amounts.into_iter().zip(limits).zip(of_a_call(&end.held)).all(roomy)
}

/// What a call adds to each limited amount, in their order. The end of a call counts no step.
fn of_a_call(held: &Held) -> impl Iterator<Item = u64> {
    let amount = |n: i64| u64::try_from(n).unwrap_or(0);
    let (input, output, cost) = (amount(held.input), amount(held.output), amount(held.cost));
    [0, 0, input, output, input + output, cost, cost, input + output].into_iter()
}

/// The end of a call.
#[derive(Debug, Clone, Copy)]
pub struct End {
    /// What it has reserved.
    pub held: Held,
    /// What it has used.
    pub used: Held,
    /// The time.
    pub now: Time,
}

/// Lanes in which jobs wait for a ride.
#[derive(Default)]
pub(crate) struct Rides {
    /// Whether no job waits any more, because the node is about to stop.
    over: AtomicBool,
    lanes: Mutex<Vec<Weak<Lane>>>,
}

impl Rides {
    /// Until when a job that is queued now waits.
    pub(crate) fn until(&self) -> Option<Instant> {
        (!self.over.load(Ordering::Acquire)).then(|| Instant::now() + WAIT)
    }
}

/// Where the sessions were in which a commit has admitted calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stayed {
    /// This node was the last to write them.
    Here,
    /// Another node had written one of them.
    Elsewhere,
}

impl Lane {
    /// Notes where the sessions of its last calls were.
    pub(crate) fn note(&self, stayed: Stayed) {
        let stays = match stayed {
            Stayed::Here => self.stays.load(Ordering::Relaxed).saturating_add(1).min(STAYS),
            Stayed::Elsewhere => 0,
        };
        self.stays.store(stays, Ordering::Relaxed);
    }
}

impl Cell {
    /// Whether the sessions of this agent stay on this node, as far as their last calls tell. If
    /// they do not, the next call is likely to be decided on another node.
    pub fn stays(&self) -> bool {
        self.lane.stays.load(Ordering::Relaxed) >= STAYS
    }
}

impl Queue {
    /// How many jobs to take now, up to a number. None if all wait for a ride.
    pub(crate) fn ready(&self, most: usize) -> usize {
        let many = self.jobs.len();
        let waits = || {
            let now = Instant::now();
            self.jobs.iter().all(|job| job.rides.is_some_and(|until| now < until))
        };
        if many < FULL && waits() { 0 } else { many.min(most) }
    }
}

impl<S: Shared> Fleet<S> {
    /// Runs a job as [`Fleet::run_durably`] does. It may wait a moment for another job of its lane,
    /// so that both are committed together.
    pub fn run_with_next<T: Send + 'static>(
        self: &Arc<Self>,
        cells: impl IntoIterator<Item = Arc<Cell>>,
        policies: &Arc<PolicySet>,
        job: impl FnMut(&mut Transaction<'_, '_>) -> T + Send + 'static,
    ) -> Pin<Box<dyn Future<Output = Result<T, Unreachable>> + Send>> {
        self.enqueue(cells, policies, None, job, Haste::Rides)
    }

    /// Commits what waits for a ride now: a caller may wait for it.
    pub fn hurry(self: &Arc<Self>) {
        let lanes = self.rides.lanes.lock().clone();
        for lane in lanes.into_iter().filter_map(|lane| lane.upgrade()) {
            lane.queue.lock().jobs.iter_mut().for_each(|job| job.rides = None);
            self.start(lane);
        }
    }

    /// Commits what waits for a ride now and from now on: the node is about to stop.
    pub fn no_more_rides(self: &Arc<Self>) {
        self.rides.over.store(true, Ordering::Release);
        self.hurry();
    }

    /// Starts a lane when the first job in it has waited long enough for a ride.
    pub(crate) fn depart_in_time(self: &Arc<Self>, lane: Arc<Lane>) {
        self.rides.lanes.lock().push(Arc::downgrade(&lane));
        let fleet = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                let next = {
                    let mut queue = lane.queue.lock();
                    let next = queue.jobs.iter().find_map(|job| job.rides);
                    queue.timed = next.is_some();
                    next
                };
                let Some(next) = next else { break };
                tokio::time::sleep_until(next.max(Instant::now() + Duration::from_millis(1))).await;
                fleet.start(Arc::clone(&lane));
            }
            let mut lanes = fleet.rides.lanes.lock();
            if let Some(at) = lanes.iter().position(|other| other.as_ptr() == Arc::as_ptr(&lane)) {
                lanes.swap_remove(at);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use deadstop_core::{Dollars, NanoUsd, Preset, ScopeKind, Tokens};

    use super::*;

    #[test]
    fn a_call_waits_where_it_makes_no_difference() {
        let cost = |cost| Held { cost, ..Held::default() };
        let output = |output| Held { output, ..Held::default() };
        for (limit, held, used, waits) in [
            // No limit.
            (None, cost(1 << 40), cost(1 << 40), true),
            // It has used more than it had reserved: a node that dies would lose that.
            (None, cost(1_000), cost(1_001), false),
            (Some(1 << 40), cost(1_000), cost(1_001), false),
            // What it would free is an eighth of what is left, or more.
            (Some(8_000), cost(1_000), cost(1_000), true),
            (Some(7_999), cost(1_000), cost(10), false),
            // Another amount than the limited one.
            (Some(1), output(501), output(400), true),
        ] {
            let mut policy = Preset::Observe.policies().agent;
            policy.budget.max_cost_usd = limit.map(|limit| Dollars(NanoUsd(limit)));
            let scope = ScopeState::new(ScopeKind::Agent, Time(0));
            let end = End { held, used, now: Time(1) };
            assert_eq!(can_wait(&policy, &scope, &end), waits, "{limit:?} {held:?} {used:?}");
            policy.tokens.output_token_limit = Some(Tokens(4_000));
            let tokens = held.output == 0;
            assert_eq!(
                can_wait(&policy, &scope, &end),
                waits && tokens,
                "{held:?} of 4,000 tokens"
            );
        }
    }
}
