//! Calls that the server works on, by the ids that their client gave them.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use deadstop_core::Digest;

/// Ids of calls that were answered in the server's place, while it may still answer them itself.
const MOST_DEAD: usize = 4096;

/// A call as the gate knows it, which judges it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ours {
    /// Its id there.
    pub(super) id: String,
    /// The span in which its client made it, if the client says so.
    pub(super) trace: Option<String>,
}

/// A call that the server works on.
#[derive(Debug, Clone)]
pub(super) struct Flight {
    /// Its id as it came.
    pub(super) id: String,
    /// The same call at the gate.
    pub(super) ours: Ours,
    pub(super) since: Instant,
    /// Whether a thread watches for an order to stop it.
    pub(super) watched: bool,
    /// What the model is told behind its result.
    pub(super) advice: Option<String>,
}

/// What is known of requests that were sent on.
#[derive(Debug, Default)]
pub(super) struct Flights {
    calls: HashMap<Digest, Flight>,
    /// Listings that were asked for, with their ids as they came.
    lists: HashMap<Digest, String>,
    dead: HashSet<Digest>,
}

impl Flights {
    /// A call is sent on.
    pub(super) fn call(&mut self, key: Digest, flight: Flight) {
        self.dead.remove(&key);
        self.calls.insert(key, flight);
    }

    /// A listing is asked for.
    pub(super) fn list(&mut self, key: Digest, id: &str) {
        self.lists.insert(key, id.to_owned());
    }

    pub(super) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// The call that an answer is for.
    pub(super) fn answered(&mut self, key: Digest) -> Option<Flight> {
        self.calls.remove(&key)
    }

    /// An answer has come to what may have been a request for a listing.
    pub(super) fn listed(&mut self, key: Digest) {
        self.lists.remove(&key);
    }

    /// Takes out all listings that are asked for: their ids.
    pub(super) fn lists(&mut self) -> Vec<String> {
        self.lists.drain().map(|(_, id)| id).collect()
    }

    /// Whether an answer comes too late, because its call was answered in its place.
    pub(super) fn is_dead(&mut self, key: Digest) -> bool {
        self.dead.remove(&key)
    }

    /// Takes a call out that is answered in the server's place.
    pub(super) fn take(&mut self, key: Digest) -> Option<Flight> {
        let flight = self.calls.remove(&key)?;
        if self.dead.len() < MOST_DEAD {
            self.dead.insert(key);
        }
        Some(flight)
    }

    /// All calls that are open.
    pub(super) fn keys(&self) -> Vec<Digest> {
        self.calls.keys().copied().collect()
    }

    /// Long calls without a watching thread; marks them as watched, so the caller must start one.
    pub(super) fn unwatched(&mut self, long: impl Fn(&Flight) -> bool) -> Vec<(Digest, Ours)> {
        let mut found = Vec::new();
        for (key, flight) in &mut self.calls {
            if !flight.watched && long(flight) {
                flight.watched = true;
                found.push((*key, flight.ours.clone()));
            }
        }
        found
    }

    /// Calls that have taken too long.
    pub(super) fn late(&self, late: impl Fn(&Flight) -> bool) -> Vec<Digest> {
        self.calls.iter().filter(|(_, flight)| late(flight)).map(|(key, _)| *key).collect()
    }

    /// Whether a call still runs, and is not another one with the same id of the client.
    pub(super) fn runs(&self, key: Digest, ours: &Ours) -> bool {
        self.calls.get(&key).is_some_and(|flight| flight.ours == *ours)
    }
}
