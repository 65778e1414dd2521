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

use deadstop_core::{Call, Trip, Wait};
use deadstop_redact::excerpt::Excerpt;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::{Chain, Refused, Running, Terms, Warden};

/// Interval at which the first call asks again although no call has settled here.
const AGAIN: Duration = Duration::from_millis(250);

/// The queues of waiting calls, by the key of the scope that has no room.
#[derive(Default)]
pub(super) struct Rooms {
    lines: Mutex<HashMap<String, Arc<Line>>>,
    settled: Notify,
}

/// The queue of calls that wait for one scope.
#[derive(Default)]
struct Line {
    turn: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
}

/// A place in a queue; dropping it leaves the queue.
struct Place<'r> {
    rooms: &'r Rooms,
    key: String,
    line: Arc<Line>,
}

impl Rooms {
    /// A call has settled: there may be room now.
    pub(super) fn settled(&self) {
        self.settled.notify_waiters();
    }

    fn join(&self, key: &str) -> Place<'_> {
        let mut lines = self.lines.lock();
        let line = Arc::clone(lines.entry(key.to_owned()).or_default());
        line.waiting.fetch_add(1, Ordering::Relaxed);
        Place { rooms: self, key: key.to_owned(), line }
    }

    /// The outermost scope of a chain for which calls already wait.
    fn taken(&self, chain: &Chain) -> Option<usize> {
        let lines = self.lines.lock();
        if lines.is_empty() {
            return None;
        }
        chain.scopes().iter().position(|scope| lines.contains_key(&scope.place.key))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut lines = self.rooms.lines.lock();
        if self.line.waiting.fetch_sub(1, Ordering::Relaxed) == 1 {
            lines.remove(&self.key);
        }
    }
}

/// The depth of the scope that a refused call would have to wait for.
fn waits_at(refused: &Refused) -> Option<usize> {
    let settles = |trip: &&Trip| trip.waits == Some(Wait::Settle);
    refused.trips.first().filter(settles).map(|trip| trip.context.depth)
}

impl Warden {
    /// Decides about a call. If it only has to wait for calls in flight, it queues for as long as
    /// the policy allows.
    pub async fn admit_in_turn(
        self: &Arc<Warden>,
        chain: &Chain,
        call: &Call,
        request: &Excerpt,
        terms: Terms,
        hold: Duration,
    ) -> Result<(Running, Vec<Trip>), Refused> {
        let patient = terms.clone().patient();
        let ahead = self.rooms.taken(chain);
        let depth = match ahead {
            Some(depth) => depth,
            None => {
                let tried = self.admit_patiently(chain, call, request, patient.clone(), hold).await;
                match tried {
                    Err(refused) if waits_at(&refused).is_some() => {
                        waits_at(&refused).unwrap_or_default()
                    }
                    decided => return decided,
                }
            }
        };
        let Some(scope) = chain.scopes().get(depth) else {
            return self.admit_patiently(chain, call, request, terms, hold).await;
        };
        let wait = chain.policies().of(scope.kind()).budget.wait_s.0;
        let until = Instant::now() + Duration::from_secs(wait);
        let place = self.rooms.join(&scope.place.key);
        if let Ok(_turn) = timeout_at(until, place.line.turn.lock()).await {
            loop {
                let settled = self.rooms.settled.notified();
                tokio::pin!(settled);
                settled.as_mut().enable();
                let tried = self.admit_patiently(chain, call, request, patient.clone(), hold).await;
                match tried {
                    Err(refused) if waits_at(&refused).is_some() && Instant::now() < until => {}
                    Err(refused) if waits_at(&refused).is_some() => break,
                    decided => return decided,
                }
                let again = (Instant::now() + AGAIN).min(until);
                let _ = timeout_at(again, settled).await;
            }
        }
        drop(place);
        self.admit_patiently(chain, call, request, terms, hold).await
    }
}
