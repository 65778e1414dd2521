//! Waiting for room in a limit: a call that fits once calls in flight have settled waits for them.
//!
//! Calls that wait for the same scope form a queue. Only the first one asks again, whenever a call
//! has settled, so calls are admitted in the order in which they came. A client that disconnects
//! leaves the queue. In a cluster, calls also settle on other nodes without a message to this one.
//! So the first call also asks again at intervals.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadstop_core::{Trip, Wait};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::{Admit, Chain, Refused, Running, Warden};

/// Interval at which the first call asks again although no call has settled here.
const AGAIN: Duration = Duration::from_millis(250);

/// The queues of waiting calls, by the key of the scope that has no room.
#[derive(Default)]
pub(super) struct Rooms {
    queues: Mutex<HashMap<String, Arc<Queue>>>,
    /// How many calls wait. Where none does, no lock is taken.
    waiting: AtomicUsize,
    settled: Notify,
}

/// The queue of calls that wait for one scope.
#[derive(Default)]
struct Queue {
    turn: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
}

/// A call in a queue; dropping it leaves the queue.
struct Queued<'r> {
    rooms: &'r Rooms,
    key: String,
    queue: Arc<Queue>,
}

impl Rooms {
    /// A call has settled: there may be room now.
    pub(super) fn settled(&self) {
        // A call counts itself before it asks for the last time: it sees this call settled, or it is
        // seen here.
        if self.wait() {
            self.settled.notify_waiters();
        }
    }

    /// Whether a call waits for room.
    pub(super) fn wait(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    fn join(&self, key: &str) -> Queued<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut queues = self.queues.lock();
        let queue = Arc::clone(queues.entry(key.to_owned()).or_default());
        queue.waiting.fetch_add(1, Ordering::Relaxed);
        Queued { rooms: self, key: key.to_owned(), queue }
    }

    /// The outermost scope of a chain for which calls already wait.
    fn taken(&self, chain: &Chain) -> Option<usize> {
        if !self.wait() {
            return None;
        }
        let queues = self.queues.lock();
        chain.scopes().iter().position(|scope| queues.contains_key(&scope.id.key))
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let mut queues = self.rooms.queues.lock();
        if self.queue.waiting.fetch_sub(1, Ordering::Relaxed) == 1 {
            queues.remove(&self.key);
        }
        drop(queues);
        self.rooms.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The depth of the scope that a refused call would have to wait for.
fn waits_at(refused: &Refused) -> Option<usize> {
    let settles = |trip: &&Trip| trip.waits == Some(Wait::Settle);
    refused.trips.first().filter(settles).map(|trip| trip.context.depth)
}

impl Warden {
    /// Decides about a call. If it only has to wait for calls in flight, it queues for as long as
    /// the policy allows. Where the policy says `ask`, it waits for a person, and in a paused scope
    /// for it to be resumed.
    pub async fn admit_in_turn(
        self: &Arc<Warden>,
        admit: Admit<'_>,
    ) -> Result<(Running, Vec<Trip>), Refused> {
        let patient = admit.terms.clone().patient();
        self.in_turn(admit.chain, |last| {
            let terms = if last { admit.terms.clone() } else { patient.clone() };
            self.admit_patiently(Admit { terms, ..admit.clone() })
        })
        .await
    }

    /// Calls `attempt` until it is not refused for lack of room, in the order in which calls came.
    /// It is told whether this is the last attempt, whose refusal counts.
    pub(super) async fn in_turn<T, F: Future<Output = Result<T, Refused>>>(
        &self,
        chain: &Chain,
        mut attempt: impl FnMut(bool) -> F,
    ) -> Result<T, Refused> {
        let depth = match self.rooms.taken(chain) {
            Some(depth) => depth,
            None => match attempt(false).await {
                Err(refused) => match waits_at(&refused) {
                    Some(depth) => depth,
                    None => return Err(refused),
                },
                admitted => return admitted,
            },
        };
        Box::pin(self.queue(chain, depth, attempt)).await
    }

    /// Calls `attempt` in its turn among those that wait for room at a depth of the chain.
    async fn queue<T, F: Future<Output = Result<T, Refused>>>(
        &self,
        chain: &Chain,
        depth: usize,
        mut attempt: impl FnMut(bool) -> F,
    ) -> Result<T, Refused> {
        let Some(scope) = chain.scopes().get(depth) else { return attempt(true).await };
        let wait = chain.policies().of(scope.kind()).budget.wait_s.0;
        let until = Instant::now() + Duration::from_secs(wait);
        let queued = self.rooms.join(&scope.id.key);
        self.metrics.queued();
        // What waits to be committed with the next call may be the room that this one waits for.
        self.land_riders();
        if let Ok(_turn) = timeout_at(until, queued.queue.turn.lock()).await {
            loop {
                let settled = self.rooms.settled.notified();
                tokio::pin!(settled);
                settled.as_mut().enable();
                match attempt(false).await {
                    Err(refused) if waits_at(&refused).is_some() && Instant::now() < until => {}
                    Err(refused) if waits_at(&refused).is_some() => break,
                    decided => return decided,
                }
                let again = (Instant::now() + AGAIN).min(until);
                let _ = timeout_at(again, settled).await;
            }
        }
        drop(queued);
        attempt(true).await
    }
}
