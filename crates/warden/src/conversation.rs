//! What a session remembers between two requests of its conversation: how far the history was read,
//! and which tool calls wait for their results.
//!
//! One node keeps it in memory. In a cluster it travels with the session's record, because the next
//! request may come to any node.

use std::collections::VecDeque;

use deadstop_core::{Call, Decision, Digest, GuardId, Ticket, Trip, Verdict};
use deadstop_fleet::Owner;
use deadstop_protocol::llm::request::{Notes, Seen};
use serde::{Deserialize, Serialize};

/// Tool calls of one conversation that wait for their results.
const MOST_WAITING: usize = 256;

/// What a session remembers of its conversation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Conversation {
    /// How far the conversation has been read, and the words that opened it.
    pub(super) heard: Heard,
    waiting: VecDeque<Waiting>,
    /// The streaks that were counted last.
    pub(super) counted: Counted,
}

/// A loop or an outage: the guard that sees it, the depth of its scope, and its number there.
pub(super) type Streak = (GuardId, usize, u64);

/// Streaks that are remembered as counted.
const MOST_COUNTED: usize = 8;

/// The streaks that were counted last, so that all trips of one count once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Counted(VecDeque<Streak>);

impl Counted {
    /// The streak that a trip belongs to.
    pub(super) fn streak(trip: &Trip) -> Option<Streak> {
        trip.streak.map(|number| (trip.guard, trip.context.depth, number))
    }

    /// Whether a trip is the first one of its streak. Trips that belong to none are.
    pub(super) fn begins(&mut self, streak: Option<Streak>) -> bool {
        let Some(streak) = streak else { return true };
        if self.0.contains(&streak) {
            return false;
        }
        if self.0.len() == MOST_COUNTED {
            self.0.pop_front();
        }
        self.0.push_back(streak);
        true
    }
}

/// How far a conversation has been read.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Heard {
    /// The messages of the last request.
    pub seen: Seen,
    /// The words that opened the conversation.
    opening: Option<Digest>,
    /// The notes that the model was given, and where.
    pub notes: Notes,
}

impl Heard {
    /// Whether these words open the conversation: the first words, or the same ones repeated.
    pub fn opens_with(&mut self, words: Digest) -> bool {
        *self.opening.get_or_insert(words) == words
    }
}

/// What a request found of its conversation, and what it leaves for the next request.
#[derive(Debug, Clone)]
pub struct Turn {
    /// What it found.
    pub before: Heard,
    /// What it leaves.
    pub after: Heard,
}

/// A tool call that the model asked for and whose result has not come yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Waiting {
    /// The model's id for it.
    pub(super) id: String,
    /// Its number among all calls.
    pub(super) number: i64,
    pub(super) call: Call,
    pub(super) ticket: Ticket,
    pub(super) owner: Owner,
    /// The warning it was admitted with.
    #[serde(with = "as_json")]
    pub(super) warned: Option<Box<Trip>>,
}

impl Waiting {
    /// The note for the model about this call: from its result, or else from its admission.
    pub(super) fn advice(&self, ended: &Decision) -> Option<String> {
        advice(&ended.trips).or_else(|| advice(self.warned.as_deref()))
    }
}

/// The note for the model, if a trip has one.
pub(super) fn advice<'a>(trips: impl IntoIterator<Item = &'a Trip>) -> Option<String> {
    let steers = |trip: &&Trip| trip.verdict == Verdict::Steer;
    trips.into_iter().filter(steers).find_map(|trip| trip.advice.clone())
}

impl Conversation {
    /// Remembers a call; returns the oldest one if there are too many.
    pub(super) fn wait_for(&mut self, call: Waiting) -> Option<Waiting> {
        self.waiting.push_back(call);
        if self.waiting.len() > MOST_WAITING { self.waiting.pop_front() } else { None }
    }

    /// Removes calls, by their numbers in the scope: their results will not come.
    pub(super) fn take_back(&mut self, numbers: &[u64]) -> Vec<Waiting> {
        let mut taken = Vec::new();
        self.waiting.retain(|call| {
            let wanted = numbers.contains(&call.ticket.number);
            if wanted {
                taken.push(call.clone());
            }
            !wanted
        });
        taken
    }

    /// The calls that a result answers. One without an id and a name, which came as a user's text,
    /// answers all that were asked for.
    pub(super) fn all_answered(&mut self, id: &str, name: Option<&str>) -> Vec<Waiting> {
        match (id, name) {
            ("", None) => self.waiting.drain(..).collect(),
            _ => self.answered(id, name).into_iter().collect(),
        }
    }

    /// The call that a result answers: the one with its id, or else the oldest of that name.
    pub(super) fn answered(&mut self, id: &str, name: Option<&str>) -> Option<Waiting> {
        let by_id = |call: &Waiting| !id.is_empty() && call.id == id;
        let by_name = |call: &Waiting| call.id.is_empty() && name == Some(call.call.name());
        let at = self.waiting.iter().position(|call| by_id(call) || by_name(call))?;
        self.waiting.remove(at)
    }
}

/// Stores a value as JSON inside postcard, for types whose format needs field names.
pub(super) mod as_json {
    use serde::de::{DeserializeOwned, Error as _};
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in super::super) fn serialize<T: Serialize, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serde_json::to_string(value).map_err(S::Error::custom)?.serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        let text = String::deserialize(deserializer)?;
        serde_json::from_str(&text).map_err(D::Error::custom)
    }
}
