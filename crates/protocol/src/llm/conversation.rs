//! Which session an unnamed conversation belongs to.
//!
//! Most clients do not say which conversation a request is part of, but each request repeats what
//! was said and answered before. The index maps the key of every answer ([`Turns::answer`]) to the
//! session that it was given in, so that:
//! - a request without history starts a new session: the "hi" of two people is two sessions;
//! - a request whose history is known goes on with that session;
//! - where several sessions have the same history word for word, each request that goes on takes
//!   one of them that has not been continued yet;
//! - a request that is sent again after a failure, an edit of an earlier message, and branches that
//!   run side by side stay in their session;
//! - a caller that only ever sends single prompts, one after the other, gets one session for them:
//!   that is a batch, not a crowd.
//!
//! All keys are mixed with the caller's: credentials never see each other's sessions. Everything is
//! bounded, and nothing here reads a clock or makes up a number: both are arguments.

use std::collections::HashMap;

use deadstop_core::{Digest, Time};

use super::request::Turns;
use crate::facts::combine;

/// The bounds of the index. They are the same wherever it is kept.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Entries of one generation of a map; two generations are kept.
    pub generation: usize,
    /// Sessions with the same history word for word.
    pub twins: usize,
    /// Single prompts in a row that make a batch.
    pub batch: u32,
    /// The next prompt of a batch comes so soon after the last answer; people read first.
    pub pause_ms: u64,
    /// A caller that was silent for so long has no request in flight: its node may have died.
    pub lost_ms: u64,
}

/// The bounds in force.
pub const LIMITS: Limits =
    Limits { generation: 65_536, twins: 256, batch: 16, pause_ms: 2000, lost_ms: 600_000 };

/// A session, by the number that its name is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub u64);

impl SessionId {
    /// The session's name.
    pub fn name(self) -> String {
        format!("c-{:016x}", self.0)
    }
}

/// Why a request belongs to its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// It starts a conversation.
    New,
    /// It goes on with one.
    Continued,
    /// It is another attempt.
    Again,
    /// It is one of many single prompts.
    Single,
}

/// Whether a request says that it is another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// The first, as far as it says.
    First,
    /// A further one.
    Again,
}

/// The session of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Which.
    pub session: SessionId,
    /// Why.
    pub known: Known,
}

/// What a request is looked up by. Every key is mixed with the caller's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// The project, the agent and the credential.
    pub caller: Digest,
    /// The request itself: the same when it is sent again.
    pub request: Digest,
    /// The answers that it repeats, the last one first.
    pub answers: Vec<Digest>,
}

impl Keys {
    /// The keys of a caller's request.
    pub fn of(caller: Digest, turns: &Turns) -> Keys {
        let own = |key: &Digest| combine(&[caller, *key]);
        Keys {
            caller,
            request: own(&turns.request),
            answers: turns.answers.iter().map(own).collect(),
        }
    }

    /// The keys under which later requests may name the answer to this one: its words (`answer`,
    /// see [`Turns::answer`]) and its id.
    pub fn to_answer(caller: Digest, answer: Option<Digest>, id: Option<&str>) -> Vec<Digest> {
        let by_words = answer.map(|answer| combine(&[caller, answer]));
        by_words.into_iter().chain(id.map(|id| named(caller, id))).collect()
    }
}

/// What is known of the conversations of all callers.
#[derive(Debug, Default)]
pub struct Conversations {
    answers: Bounded<Vec<Seat>>,
    requests: Bounded<Sent>,
    callers: Bounded<Caller>,
    owners: Bounded<Owner>,
}

/// The credential that a session's name belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The credential.
    pub credential: Digest,
    /// When that was last confirmed by what all nodes share.
    pub confirmed: Time,
}

/// A session that was given an answer.
#[derive(Debug, Clone, Copy)]
struct Seat {
    session: SessionId,
    /// Whether a request has gone on from there.
    taken: bool,
}

/// A request that was sent, maybe by several who say the same.
#[derive(Debug, Clone, Default)]
struct Sent {
    last: Option<SessionId>,
    /// Sessions in which it was not answered. A client that sends it again takes one.
    failed: Vec<SessionId>,
}

/// How a caller behaves.
#[derive(Debug, Clone, Copy, Default)]
struct Caller {
    /// Single prompts in a row, none at the same time as another.
    singles: u32,
    in_flight: u32,
    answered: Time,
    /// When a request of it was last sent or ended.
    seen: Time,
    batch: Option<SessionId>,
}

impl Conversations {
    /// The session of a request. `fresh` is a number that was not used before.
    pub fn find(&mut self, keys: &Keys, attempt: Attempt, fresh: u64, now: Time) -> Found {
        let sent = self.requests.entry(keys.request.0);
        let last = sent.last;
        let again = sent.failed.pop().or(last.filter(|_| attempt == Attempt::Again));
        let caller = self.callers.entry(keys.caller.0);
        if now.since(caller.seen).0 > LIMITS.lost_ms {
            caller.in_flight = 0;
        }
        let found = match again {
            Some(session) => Found { session, known: Known::Again },
            // The same first words at the same time may be another person's.
            None if keys.answers.is_empty() => caller.opened(fresh, now),
            None => self.continued(keys, last, fresh),
        };
        self.requests.entry(keys.request.0).last = Some(found.session);
        let caller = self.callers.entry(keys.caller.0);
        caller.in_flight += 1;
        caller.seen = now;
        found
    }

    /// The request was answered: a later one may go on from there. See [`Keys::to_answer`].
    pub fn answered(&mut self, caller: Digest, session: SessionId, answer: &[Digest], now: Time) {
        self.ended(caller, now);
        for key in answer {
            let seats = self.answers.entry(key.0);
            if seats.iter().any(|seat| seat.session == session) {
                continue;
            }
            if seats.len() == LIMITS.twins {
                seats.remove(0);
            }
            seats.push(Seat { session, taken: false });
        }
    }

    /// The request was not answered: sent again, it is the same one.
    pub fn failed(&mut self, keys: &Keys, session: SessionId, now: Time) {
        self.ended(keys.caller, now);
        let sent = self.requests.entry(keys.request.0);
        if sent.failed.len() == LIMITS.twins {
            sent.failed.remove(0);
        }
        sent.failed.push(session);
    }

    /// Whether it knows an answer that the request repeats.
    pub fn knows(&mut self, keys: &Keys) -> bool {
        keys.answers.iter().any(|key| self.answers.get(key.0).is_some())
    }

    /// The session that an answer was given in, by the key of its id.
    pub fn of_answer(&mut self, key: Digest) -> Option<SessionId> {
        self.answers.get(key.0)?.last().map(|seat| seat.session)
    }

    /// The owner of a session's name, by the name's key, as far as it is known here.
    pub fn owner(&mut self, key: Digest) -> Option<Owner> {
        self.owners.get(key.0).copied()
    }

    /// Sets the owner of a session's name.
    pub fn set_owner(&mut self, key: Digest, owner: Owner) {
        self.owners.set(key.0, owner);
    }

    fn continued(&mut self, keys: &Keys, sent: Option<SessionId>, fresh: u64) -> Found {
        let caller = self.callers.entry(keys.caller.0);
        caller.singles = 0;
        let batch = caller.batch;
        for (back, answer) in keys.answers.iter().enumerate() {
            let Some(seats) = self.answers.get_mut(answer.0) else { continue };
            let same = |seat: &Seat| sent == Some(seat.session);
            // From the last answer go on where no request has gone on yet; from an earlier one
            // only an edit or a branch does, and that belongs to one that has gone on.
            let free = seats.iter().position(|seat| !seat.taken && back == 0);
            let gone_on = || seats.iter().rposition(|seat| seat.taken);
            let at = free
                .or_else(|| seats.iter().rposition(same))
                .or_else(gone_on)
                .or_else(|| seats.len().checked_sub(1));
            let Some(seat) = at.and_then(|at| seats.get_mut(at)) else { continue };
            seat.taken = true;
            if Some(seat.session) == batch {
                // One of many single prompts turns out to be a conversation: it has its own.
                seat.session = SessionId(fresh);
                return Found { session: seat.session, known: Known::New };
            }
            return Found { session: seat.session, known: Known::Continued };
        }
        Found { session: SessionId(fresh), known: Known::New }
    }

    fn ended(&mut self, caller: Digest, now: Time) {
        let caller = self.callers.entry(caller.0);
        caller.in_flight = caller.in_flight.saturating_sub(1);
        (caller.answered, caller.seen) = (now, now);
    }
}

impl Caller {
    /// A request without history.
    fn opened(&mut self, fresh: u64, now: Time) -> Found {
        let soon = now.since(self.answered).0 <= LIMITS.pause_ms && self.answered > Time(0);
        let alone = self.in_flight == 0;
        self.singles = if alone && (soon || self.singles == 0) { self.singles + 1 } else { 1 };
        if self.singles <= LIMITS.batch {
            self.batch = None;
            return Found { session: SessionId(fresh), known: Known::New };
        }
        let session = *self.batch.get_or_insert(SessionId(fresh));
        Found { session, known: Known::Single }
    }
}

/// The key of a name: a session's, or an answer's id.
pub fn named(place: Digest, name: &str) -> Digest {
    combine(&[place, Digest::of(name.as_bytes())])
}

/// A session's name for a credential that does not own the name.
pub fn of_another(name: &str, credential: Digest) -> String {
    format!("{name}~{:08x}", credential.0 >> 32)
}

/// A map of which the entries used last stay.
#[derive(Debug)]
struct Bounded<V> {
    new: HashMap<u64, V>,
    old: HashMap<u64, V>,
}

impl<V> Default for Bounded<V> {
    fn default() -> Bounded<V> {
        Bounded { new: HashMap::new(), old: HashMap::new() }
    }
}

impl<V> Bounded<V> {
    fn get(&mut self, key: u64) -> Option<&V> {
        self.get_mut(key).map(|value| &*value)
    }

    fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        if let Some(value) = self.old.remove(&key) {
            self.set(key, value);
        }
        self.new.get_mut(&key)
    }

    fn set(&mut self, key: u64, value: V) {
        self.old.remove(&key);
        if self.new.len() >= LIMITS.generation && !self.new.contains_key(&key) {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(key, value);
    }
}

impl<V: Default> Bounded<V> {
    fn entry(&mut self, key: u64) -> &mut V {
        if self.get_mut(key).is_none() {
            self.set(key, V::default());
        }
        self.new.entry(key).or_default()
    }
}

#[cfg(test)]
mod tests;
