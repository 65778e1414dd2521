//! A lane: the queue of jobs of one agent on one node.
//!
//! All jobs that wait in a lane are committed together, so that a thousand concurrent callers cost
//! a few round trips instead of a thousand.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use deadstop_core::PolicySet;
use deadstop_core::share::Held;
use parking_lot::Mutex;
use smallvec::SmallVec;
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::cell::Cell;
use crate::record::Version;
use crate::transaction::Transaction;

/// Redis (or the database behind it) did not answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the shared state is unreachable: {why}")]
pub struct Unreachable {
    /// The error.
    pub why: String,
    /// Whether the request may have been carried out although no answer arrived.
    pub maybe_done: bool,
}

impl Unreachable {
    /// The request was not sent, or was refused: it has certainly not been carried out.
    pub fn not_sent(why: impl Into<String>) -> Unreachable {
        Unreachable { why: why.into(), maybe_done: false }
    }

    /// The request was sent and its answer did not arrive: it may have been carried out.
    pub fn maybe_done(why: impl Into<String>) -> Unreachable {
        Unreachable { why: why.into(), maybe_done: true }
    }
}

/// The scopes of a job, from the project down.
pub(crate) type Cells = SmallVec<[Arc<Cell>; 4]>;

/// How urgent a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Haste {
    /// It fails if Redis does not answer.
    MayFail,
    /// It is retried until it is committed.
    Durable,
    /// The same, and it may wait for another job of its lane to be committed with.
    Rides,
}

/// A function to run on a chain, and how to report its result.
pub(crate) struct Job {
    pub(crate) cells: Cells,
    pub(crate) policies: Arc<PolicySet>,
    pub(crate) entry: Option<String>,
    pub(crate) run: Box<dyn FnMut(&mut Transaction<'_, '_>) + Send>,
    pub(crate) done: oneshot::Sender<Result<(), Unreachable>>,
    /// Whether the node retries the job until it is committed.
    pub(crate) must: bool,
    /// Until when it waits for a job to ride with; `None` if it does not wait.
    pub(crate) rides: Option<Instant>,
    /// Changes of this node's reservations at the last attempt, each with the incarnation of the
    /// node that made it.
    pub(crate) held: Vec<(Arc<Cell>, u64, Held)>,
    /// Attempts that may have been committed although no answer arrived.
    pub(crate) doubts: Vec<Doubt>,
    /// Whether one of those attempts turned out to be committed.
    pub(crate) found: bool,
}

/// An attempt that may have been committed although no answer arrived.
pub(crate) struct Doubt {
    /// The scope whose record shows whether it was.
    pub(crate) cell: Arc<Cell>,
    /// The version that the record lists if it was.
    pub(crate) version: Version,
    /// Changes of this node's reservations, if it was committed.
    pub(crate) held: Vec<(Arc<Cell>, u64, Held)>,
}

impl Job {
    /// Notes an attempt without an answer. Until its fate is known, this node cannot tell what it
    /// has reserved in Redis, so the scopes count as pending.
    pub(crate) fn doubt(&mut self, doubt: Doubt) {
        if self.doubts.is_empty() {
            self.cells.iter().for_each(|cell| cell.snapshot.lock().pending += 1);
        }
        self.doubts.push(doubt);
    }

    /// Reports success to the caller.
    pub(crate) fn end(self) {
        if !self.doubts.is_empty() {
            self.cells.iter().for_each(|cell| cell.snapshot.lock().pending -= 1);
        }
        let _ = self.done.send(Ok(()));
    }

    /// Whether one of the unanswered attempts was committed. If so, its reservations are counted.
    pub(crate) fn look(&mut self) -> bool {
        let told = |doubt: &Doubt| doubt.cell.snapshot.lock().recent.contains(&doubt.version);
        let Some(at) = self.doubts.iter().position(told) else { return false };
        for (cell, life, held) in std::mem::take(&mut self.doubts[at].held) {
            cell.snapshot.lock().hold(life, held);
        }
        true
    }
}

/// The queue of jobs of one agent.
#[derive(Default)]
pub(crate) struct Lane {
    pub(crate) queue: Mutex<Queue>,
    /// Calls in a row whose sessions no other node had written meanwhile; see [`crate::ride`].
    pub(crate) stays: AtomicU32,
}

/// Marks a lane as busy while its jobs run. If a job panics, its callers get an error and the next
/// job finds the lane free.
pub(crate) struct Draining(pub(crate) Arc<Lane>);

impl Drop for Draining {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queue.lock().busy = false;
        }
    }
}

#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) jobs: VecDeque<Job>,
    pub(crate) busy: bool,
    /// Whether a timer will start the lane for jobs that wait for a ride.
    pub(crate) timed: bool,
}

/// The lane of a job on these scopes: that of its agent.
pub(crate) fn lane_of(cells: &[Arc<Cell>]) -> Option<Arc<Lane>> {
    match cells.get(1) {
        Some(agent) => Some(Arc::clone(&agent.lane)),
        None => cells.first().map(|cell| Arc::clone(cell.home.get().unwrap_or(&cell.lane))),
    }
}

/// Takes out the jobs from the first one that has another policy than the jobs before it. One
/// commit uses one policy: the budget periods of two policies cannot be compared.
pub(crate) fn split_by_policy(jobs: &mut Vec<Job>) -> Vec<Job> {
    let other = jobs.windows(2).position(|two| !Arc::ptr_eq(&two[0].policies, &two[1].policies));
    other.map_or_else(Vec::new, |at| jobs.split_off(at + 1))
}
