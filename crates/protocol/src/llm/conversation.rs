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

/// Entries of one generation; two are kept.
const GENERATION: usize = 32_768;
/// Sessions with the same history word for word.
const TWINS: usize = 256;
/// Single prompts in a row that make a batch.
const BATCH: u32 = 16;
/// The next prompt of a batch comes so soon after the last answer; people read first.
const PAUSE_MS: u64 = 2000;

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

/// What is known of the conversations of all callers.
#[derive(Debug, Default)]
pub struct Conversations {
    answers: Bounded<Vec<Seat>>,
    requests: Bounded<Sent>,
    callers: Bounded<Caller>,
    owners: Bounded<Digest>,
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
    batch: Option<SessionId>,
}

impl Conversations {
    /// The session of a request. `caller` stands for the project, the agent and the credential;
    /// `fresh` is a number that was not used before.
    pub fn find(
        &mut self,
        caller: Digest,
        turns: &Turns,
        attempt: Attempt,
        fresh: u64,
        now: Time,
    ) -> Found {
        let request = combine(&[caller, turns.request]).0;
        let sent = self.requests.entry(request);
        let last = sent.last;
        let again = sent.failed.pop().or(last.filter(|_| attempt == Attempt::Again));
        let found = match again {
            Some(session) => Found { session, known: Known::Again },
            // The same first words at the same time may be another person's.
            None if turns.answers.is_empty() => self.opened(caller, fresh, now),
            None => self.continued(caller, turns, last, fresh),
        };
        self.requests.entry(request).last = Some(found.session);
        self.callers.entry(caller.0).in_flight += 1;
        found
    }

    /// The request was answered: a later one may go on from there. `id` is the answer's own.
    pub fn answered(
        &mut self,
        caller: Digest,
        session: SessionId,
        answer: Option<Digest>,
        id: Option<&str>,
        now: Time,
    ) {
        self.ended(caller, now);
        let by_id = id.map(|id| named(caller, id));
        let by_words = answer.map(|answer| combine(&[caller, answer]));
        for key in by_words.into_iter().chain(by_id) {
            let seats = self.answers.entry(key.0);
            if seats.iter().any(|seat| seat.session == session) {
                continue;
            }
            if seats.len() == TWINS {
                seats.remove(0);
            }
            seats.push(Seat { session, taken: false });
        }
    }

    /// The request was not answered: sent again, it is the same one.
    pub fn failed(&mut self, caller: Digest, turns: &Turns, session: SessionId, now: Time) {
        self.ended(caller, now);
        let sent = self.requests.entry(combine(&[caller, turns.request]).0);
        if sent.failed.len() == TWINS {
            sent.failed.remove(0);
        }
        sent.failed.push(session);
    }

    /// The session that an answer with this id was given in.
    pub fn of_answer(&mut self, caller: Digest, id: &str) -> Option<SessionId> {
        self.answers.get(named(caller, id).0)?.last().map(|seat| seat.session)
    }

    /// The name of a session that a client gave a name: its own, unless another credential has
    /// taken that name already.
    pub fn owned(&mut self, place: Digest, credential: Digest, name: &str) -> String {
        let key = named(place, name).0;
        match self.owners.get(key) {
            Some(owner) if *owner != credential => {
                format!("{name}~{:08x}", credential.0 >> 32)
            }
            Some(_) => name.to_owned(),
            None => {
                self.owners.set(key, credential);
                name.to_owned()
            }
        }
    }

    fn continued(
        &mut self,
        caller: Digest,
        turns: &Turns,
        sent: Option<SessionId>,
        fresh: u64,
    ) -> Found {
        let batch = self.callers.entry(caller.0).batch;
        self.callers.entry(caller.0).singles = 0;
        for (back, answer) in turns.answers.iter().enumerate() {
            let Some(seats) = self.answers.get_mut(combine(&[caller, *answer]).0) else { continue };
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

    fn opened(&mut self, caller: Digest, fresh: u64, now: Time) -> Found {
        let caller = self.callers.entry(caller.0);
        let soon = now.since(caller.answered).0 <= PAUSE_MS && caller.answered > Time(0);
        let alone = caller.in_flight == 0;
        caller.singles =
            if alone && (soon || caller.singles == 0) { caller.singles + 1 } else { 1 };
        if caller.singles <= BATCH {
            caller.batch = None;
            return Found { session: SessionId(fresh), known: Known::New };
        }
        let session = *caller.batch.get_or_insert(SessionId(fresh));
        Found { session, known: Known::Single }
    }

    fn ended(&mut self, caller: Digest, now: Time) {
        let caller = self.callers.entry(caller.0);
        caller.in_flight = caller.in_flight.saturating_sub(1);
        caller.answered = now;
    }
}

fn named(place: Digest, name: &str) -> Digest {
    combine(&[place, Digest::of(name.as_bytes())])
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
        if self.new.len() >= GENERATION && !self.new.contains_key(&key) {
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
