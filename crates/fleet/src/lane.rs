//! A lane: the jobs of one agent on one node, in the order in which they came.
//!
//! Whoever waits is taken along: all jobs that are there are done in one step, so that a thousand
//! callers at once take a few round trips and not a thousand.

use std::collections::VecDeque;
use std::sync::Arc;

use deadstop_core::{Held, PolicySet};
use parking_lot::Mutex;
use smallvec::SmallVec;
use thiserror::Error;
use tokio::sync::oneshot;

use crate::cell::Cell;
use crate::desk::Desk;
use crate::record::Version;

/// The store does not answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the shared state is away: {why}")]
pub struct Away {
    /// What it says.
    pub why: String,
    /// Whether what was asked may have been done all the same.
    pub perhaps: bool,
}

impl Away {
    /// Nothing was asked.
    pub fn before(why: impl Into<String>) -> Away {
        Away { why: why.into(), perhaps: false }
    }

    /// Something was asked, and nobody knows what became of it.
    pub fn after(why: impl Into<String>) -> Away {
        Away { why: why.into(), perhaps: true }
    }
}

/// The scopes of a job, from the project down.
pub(crate) type Cells = SmallVec<[Arc<Cell>; 4]>;

/// Something to be done to a chain.
pub(crate) struct Job {
    pub(crate) cells: Cells,
    pub(crate) policies: Arc<PolicySet>,
    pub(crate) letter: Option<String>,
    pub(crate) run: Box<dyn FnMut(&mut Desk<'_, '_>) + Send>,
    pub(crate) done: oneshot::Sender<Result<(), Away>>,
    /// Whether it is tried until it is done.
    pub(crate) must: bool,
    /// What this node held more, or less, in that life, when it was last tried.
    pub(crate) held: Vec<(Arc<Cell>, u64, Held)>,
    /// Tries of which nobody knows whether they were done.
    pub(crate) doubts: Vec<Doubt>,
    /// Whether it turned out to be done.
    pub(crate) found: bool,
}

/// A try of which nobody knows whether it was done.
pub(crate) struct Doubt {
    /// The record that would show it.
    pub(crate) cell: Arc<Cell>,
    /// The version that it would remember.
    pub(crate) version: Version,
    /// What this node holds more, or less, if it was done.
    pub(crate) held: Vec<(Arc<Cell>, u64, Held)>,
}

impl Job {
    /// Nobody knows whether this try was done. As long as that is so, nobody knows either what this
    /// node holds.
    pub(crate) fn doubt(&mut self, doubt: Doubt) {
        if self.doubts.is_empty() {
            self.cells.iter().for_each(|cell| cell.copy.lock().pending += 1);
        }
        self.doubts.push(doubt);
    }

    /// It is done.
    pub(crate) fn end(self) {
        if !self.doubts.is_empty() {
            self.cells.iter().for_each(|cell| cell.copy.lock().pending -= 1);
        }
        let _ = self.done.send(Ok(()));
    }

    /// Whether a try turns out to be done: then what it held counts.
    pub(crate) fn look(&mut self) -> bool {
        let told = |doubt: &Doubt| doubt.cell.copy.lock().recent.contains(&doubt.version);
        let Some(at) = self.doubts.iter().position(told) else { return false };
        for (cell, life, held) in std::mem::take(&mut self.doubts[at].held) {
            cell.copy.lock().hold(life, held);
        }
        true
    }
}

/// The jobs of one agent.
#[derive(Default)]
pub(crate) struct Lane {
    pub(crate) queue: Mutex<Queue>,
}

/// A lane whose jobs are being done. If that ends with a job that fails, those who wait for it hear
/// so, and the others go on.
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
}
