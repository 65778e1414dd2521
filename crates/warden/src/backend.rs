//! Where the state of live scopes is kept, and how a step on a chain becomes atomic.
//!
//! There are two backends: the memory of one node, where a step runs once under the chain's locks,
//! and a cluster, where nodes share the state through Redis and a step is committed if no other node
//! changed the chain meanwhile. They differ in nothing else: what a step decides, counts and records
//! is written once, in the modules next to this one.

mod cluster;
mod memory;

use std::pin::Pin;
use std::sync::Arc;

use deadstop_core::share::Held;
use deadstop_core::{Call, Decision, Outcome, Progress, Time};

use super::calls::{Found, Terms, admission};
use super::step::{Judged, Step};
use super::{Chain, Running};
pub(super) use cluster::{Attachment, Node, Slice, Stores};
pub(crate) use deadstop_fleet::Unreachable;

/// Where the state of live scopes is kept.
pub(super) enum Backend {
    /// In the memory of this node, the only one.
    Memory,
    /// In Redis, shared with other nodes.
    Cluster(Arc<Node>),
}

/// What a step comes to: known at once, or when the cluster has answered.
pub(super) enum Pending<T> {
    Now(T),
    Later(Pin<Box<dyn Future<Output = Result<T, Unreachable>> + Send>>),
}

impl<T> Pending<T> {
    /// Waits for it.
    pub(super) async fn known(self) -> Result<T, Unreachable> {
        match self {
            Pending::Now(value) => Ok(value),
            Pending::Later(value) => value.await,
        }
    }
}

/// When the end of a call is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Commits {
    /// At once: something depends on it.
    Now,
    /// With the next call of the agent, or a moment later. See [`super::ride`].
    WithNext,
}

impl Backend {
    /// The node of a cluster that this is, if it is one.
    pub(super) fn node(&self) -> Option<&Arc<Node>> {
        match self {
            Backend::Memory => None,
            Backend::Cluster(node) => Some(node),
        }
    }

    /// The time by which steps are made. In a cluster it is the same on all nodes.
    pub(super) fn now(&self) -> Time {
        match self {
            Backend::Memory => super::now(),
            Backend::Cluster(node) => node.now(),
        }
    }

    /// Why the state cannot be reached, and since when; `None` if it can.
    pub(super) fn unreachable(&self) -> Option<(Time, String)> {
        self.node()?.outage()
    }

    /// Decides about a call. It fails if the state cannot be reached.
    pub(super) async fn admit(
        &self,
        chain: &Chain,
        call: &Call,
        terms: &Terms,
        number: i64,
    ) -> Result<Judged<Found>, Unreachable> {
        match self {
            Backend::Memory => {
                let job = |step: &mut Step<'_, '_, '_>| admission(step, call, terms, number);
                Ok(memory::step(chain, terms.reported_as(), self.now(), job))
            }
            Backend::Cluster(node) => cluster::admit(node, chain, call, terms, number).await,
        }
    }

    /// Decides about a call on what this node last knew, because the state cannot be reached. `None`
    /// if the policy says to refuse it.
    pub(super) fn admit_offline(&self, chain: &Chain, call: &Call) -> Option<Judged<Found>> {
        cluster::admit_offline(self.node()?, chain, call)
    }

    /// Decides whether a call may go on. Never waits: what a cluster has to say about it arrives
    /// later, see [`Backend::undecided`].
    pub(super) fn progress(
        &self,
        chain: &Chain,
        call: &Call,
        running: &mut Running,
        new: Progress<'_>,
    ) -> Judged<Decision> {
        match self {
            Backend::Memory => memory::step(chain, None, self.now(), |step| {
                step.progress(call, &mut running.ticket, &running.owner, new)
            }),
            Backend::Cluster(node) => cluster::progress(node, chain, call, running, new),
        }
    }

    /// What to wait for until the cluster has granted what a stream has used; `None` if there is
    /// nothing to wait for.
    pub(super) fn undecided(
        &self,
        running: &Running,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.node().filter(|node| node.outage().is_none())?;
        cluster::undecided(running)
    }

    /// What a call has reserved by now.
    pub(super) fn held(&self, running: &Running) -> Held {
        cluster::held(running)
    }

    /// Ends a call. Its turn among other steps is fixed when this returns.
    pub(super) fn settle(
        &self,
        chain: &Chain,
        call: &Call,
        running: Running,
        end: (&Outcome, Commits),
    ) -> Pending<Judged<Decision>> {
        match self {
            Backend::Memory => Pending::Now(memory::step(chain, None, self.now(), |step| {
                step.settle(call, running.ticket, &running.owner, end.0)
            })),
            Backend::Cluster(node) => cluster::settle(node, chain, call, running, end),
        }
    }

    /// Runs a step that must not be lost: while the state cannot be reached, it waits. Its turn among
    /// other steps is fixed when this returns.
    pub(super) fn run_durably<T: Send + 'static>(
        &self,
        chain: &Chain,
        reported_as: Option<&str>,
        mut job: impl FnMut(&mut Step<'_, '_, '_>) -> T + Send + 'static,
    ) -> Pending<Judged<T>> {
        match self {
            Backend::Memory => {
                Pending::Now(memory::step(chain, reported_as, self.now(), |step| job(step)))
            }
            Backend::Cluster(node) => cluster::run_durably(node, chain, reported_as, job),
        }
    }
}
