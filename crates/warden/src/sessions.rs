//! Resolves a request to its chain of scopes: which session it belongs to, by the name it gives or, if
//! it gives none, by the answers that it repeats.
//!
//! The index of unnamed conversations is in this node's memory, or in Redis for all nodes: one round
//! trip for a request without a name, none for one that the operator has named. A name that a client
//! chose belongs to the credential that used it first; a node asks Redis for the owner once and
//! remembers it. While Redis is unreachable, this node goes by its own memory.
//!
//! A credential is only ever kept as a digest, with a salt that each installation makes up for itself.

use std::sync::Arc;

use deadstop_core::{Digest, Time};
use deadstop_fleet::{Index, IndexLimits, Lookup, Recognised, Redis};
use deadstop_protocol::facts::combine;
use deadstop_protocol::llm::answer::echo::Echo;
use deadstop_protocol::llm::conversation::{
    Attempt, Conversations, Found, Keys, Known, LIMITS, Owner, SessionId, named, of_another,
};
use deadstop_protocol::llm::identity::{Identity, Source};
use deadstop_protocol::llm::request::Turns;
use deadstop_store::{Setting, Store, StoreError};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::{Booking, Chain, DEFAULT_PROJECT, Warden, now};

/// The name under which the salt is stored.
const SALT: &str = "credential_salt";
/// The session of requests that say nothing about themselves.
const UNNAMED: &str = "default";
/// A node asks Redis again who owns a name after so long, so that the entry there does not expire.
const OWNED_MS: u64 = 10 * 60 * 1000;

/// What this node knows of sessions.
pub(super) struct Sessions {
    index: Mutex<Conversations>,
    /// A hash that has taken in the installation's salt.
    salted: Sha256,
}

impl Sessions {
    /// With the installation's salt: from its database, or made up and stored there.
    pub(super) async fn new(store: Option<&Store>) -> Result<Sessions, StoreError> {
        let made = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        let salt = match store {
            Some(store) => salt(store, made).await?,
            None => made,
        };
        Ok(Sessions { index: Mutex::default(), salted: Sha256::new_with_prefix(salt.as_bytes()) })
    }
}

/// What a request says about itself.
pub struct Asking<'a> {
    /// The project.
    pub project: &'a str,
    /// The agent.
    pub agent: &'a str,
    /// The names that it gives.
    pub who: &'a Identity,
    /// The digest of its credential; see [`Warden::credential`].
    pub credential: Digest,
    /// What it repeats of its conversation; only wanted where that [finds](Source::is_recognised) the
    /// session.
    pub turns: Turns,
    /// Whether it says that it was sent before.
    pub attempt: Attempt,
}

/// The chain of a request.
pub struct Resolved {
    /// Its scopes.
    pub chain: Chain,
    /// Its place in a conversation that has no name.
    pub thread: Option<Thread>,
    /// Whether it is one of many single prompts: they are not compared with each other.
    pub single: bool,
}

/// A request in an unnamed conversation: what to remember once it is answered. If it is dropped
/// before that, the request was refused, failed or given up, and is the same when it is sent again.
pub struct Thread {
    warden: Arc<Warden>,
    project: String,
    keys: Keys,
    turns: Turns,
    session: SessionId,
    ended: bool,
}

/// The session of a request.
struct Placed {
    session: String,
    thread: Option<Thread>,
    single: bool,
}

impl Placed {
    fn named(session: String) -> Placed {
        Placed { session, thread: None, single: false }
    }
}

impl Warden {
    /// The chain of scopes that a request belongs to.
    pub async fn resolve(self: &Arc<Warden>, asking: Asking<'_>) -> Result<Resolved, StoreError> {
        let (agent, who) = (asking.agent, asking.who);
        let project = self.project(asking.project).await?;
        let Placed { session, thread, single } = self.place(asking).await;
        // What the operator gave as a name stays one. What a client's header or body says may have
        // been meant otherwise.
        let session = match who.source {
            Source::Deadstop => session,
            _ => project.redact_name(&session),
        };
        let chain = self.chain(project, agent, &session, &who.nested).await?;
        Ok(Resolved { chain, thread, single })
    }

    /// The digest of the credentials that a request came with.
    pub fn credential<'h>(&self, shown: impl IntoIterator<Item = &'h str>) -> Digest {
        let mut hasher = self.sessions.salted.clone();
        for shown in shown {
            hasher.update([0]);
            hasher.update(shown.as_bytes());
        }
        let hash = hasher.finalize();
        Digest(hash.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    async fn place(self: &Arc<Warden>, asking: Asking<'_>) -> Placed {
        let Asking { project, agent, who, credential, turns, attempt } = asking;
        if let (Source::Deadstop, Some(name)) = (who.source, &who.session) {
            // The operator's own header says exactly which.
            return Placed::named(name.clone());
        }
        let place = Digest::of(format!("{project}\0{agent}").as_bytes());
        let caller = combine(&[place, credential]);
        let keys = Keys::of(caller, &turns);
        let found = match (who.source, who.session.as_deref()) {
            (Source::Conversation, _) => self.find(project, &keys, attempt).await,
            (Source::PreviousResponse, Some(id)) => {
                let known = self.session_of(project, named(caller, id)).await;
                let session = known.unwrap_or_else(|| SessionId(fresh()));
                Found { session, known: Known::Continued }
            }
            (_, Some(name)) => {
                let owner = self.owner(project, named(place, name), credential).await;
                return Placed::named(match owner == credential {
                    true => name.to_owned(),
                    false => of_another(name, credential),
                });
            }
            (_, None) => return Placed::named(UNNAMED.to_owned()),
        };
        let (warden, session) = (Arc::clone(self), found.session);
        let thread =
            Thread { warden, project: project.to_owned(), keys, turns, session, ended: false };
        Placed {
            session: session.name(),
            thread: Some(thread),
            single: found.known == Known::Single,
        }
    }

    /// The session of a request without a name.
    async fn find(&self, project: &str, keys: &Keys, attempt: Attempt) -> Found {
        let (fresh, now) = (fresh(), self.time());
        if let Some(redis) = self.index_redis() {
            let lookup = Lookup {
                caller: keys.caller,
                request: keys.request,
                answers: &keys.answers,
                again: attempt == Attempt::Again,
                fresh,
                now,
            };
            if let Ok((session, known)) = index(redis, project).find(lookup).await {
                let found = Found { session: SessionId(session), known: known_as(known) };
                // It may have begun here while Redis was unreachable.
                let begun_here =
                    found.known == Known::New && self.sessions.index.lock().knows(keys);
                if !begun_here {
                    return found;
                }
            }
        }
        self.sessions.index.lock().find(keys, attempt, fresh, now)
    }

    /// The session that an answer was given in.
    async fn session_of(&self, project: &str, answer: Digest) -> Option<SessionId> {
        if let Some(redis) = self.index_redis()
            && let Ok(Some(session)) = index(redis, project).of_answer(answer).await
        {
            return Some(SessionId(session));
        }
        self.sessions.index.lock().of_answer(answer)
    }

    /// The credential that a client's name for a session belongs to.
    async fn owner(&self, project: &str, name: Digest, credential: Digest) -> Digest {
        let known = self.sessions.index.lock().owner(name);
        let now = self.time();
        let mut owner = known.unwrap_or(Owner { credential, confirmed: Time(0) });
        if let Some(redis) = self.index_redis() {
            let fresh = known.is_some() && now.since(owner.confirmed).0 < OWNED_MS;
            if !fresh && let Ok(first) = index(redis, project).owner(name, owner.credential).await {
                owner = Owner { credential: first, confirmed: now };
            }
        }
        if known != Some(owner) {
            self.sessions.index.lock().set_owner(name, owner);
        }
        owner.credential
    }

    /// The Redis that has the index, if there is one and it answers.
    fn index_redis(&self) -> Option<&Redis> {
        let node = self.node().filter(|node| node.outage().is_none())?;
        Some(&node.shared().redis)
    }
}

impl Thread {
    /// The request was answered. If it returns a future, the door waits for that before it ends the
    /// answer, because the next request may reach another node.
    #[must_use]
    pub fn answered(mut self, echo: &Echo, id: Option<&str>) -> Option<Booking> {
        self.ended = true;
        let answer = Keys::to_answer(self.keys.caller, self.turns.answer(echo), id);
        self.end(Some(answer))
    }

    /// The request was not answered.
    #[must_use]
    pub fn failed(mut self) -> Option<Booking> {
        self.ended = true;
        self.end(None)
    }

    /// Notes the end, with the keys of the answer if there is one.
    fn end(&mut self, answer: Option<Vec<Digest>>) -> Option<Booking> {
        let (warden, now) = (Arc::clone(&self.warden), self.warden.time());
        let (keys, session) = (self.keys.clone(), self.session);
        let here = move |warden: &Warden, answer: Option<&[Digest]>| {
            let mut index = warden.sessions.index.lock();
            match answer {
                Some(answer) => index.answered(keys.caller, session, answer, now),
                None => index.failed(&keys, session, now),
            }
        };
        let runtime = tokio::runtime::Handle::try_current().ok();
        let Some(runtime) = runtime.filter(|_| warden.index_redis().is_some()) else {
            here(&warden, answer.as_deref());
            return None;
        };
        let (project, keys) = (std::mem::take(&mut self.project), self.keys.clone());
        let patience = warden.patience();
        let noted = runtime.spawn(async move {
            let done = match (warden.index_redis(), &answer) {
                (Some(redis), Some(answer)) => {
                    let index = index(redis, &project);
                    index.answered(keys.caller, session.0, answer, now).await.is_ok()
                }
                (Some(redis), None) => {
                    let index = index(redis, &project);
                    index.failed(keys.caller, keys.request, session.0, now).await.is_ok()
                }
                (None, _) => false,
            };
            if !done {
                here(&warden, answer.as_deref());
            }
        });
        Some(Box::pin(async move {
            let _ = tokio::time::timeout(patience, noted).await;
        }))
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if !self.ended {
            drop(self.end(None));
        }
    }
}

/// A project's index in Redis.
fn index<'r>(redis: &'r Redis, project: &str) -> Index<'r> {
    let limits = IndexLimits {
        generation: LIMITS.generation,
        twins: LIMITS.twins,
        batch: LIMITS.batch,
        pause_ms: LIMITS.pause_ms,
        lost_ms: LIMITS.lost_ms,
    };
    Index::new(redis, project, limits)
}

fn known_as(recognised: Recognised) -> Known {
    match recognised {
        Recognised::New => Known::New,
        Recognised::Continued => Known::Continued,
        Recognised::Again => Known::Again,
        Recognised::Single => Known::Single,
    }
}

/// A number that no session has yet.
fn fresh() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1 ^ uuid::Uuid::now_v7().as_u64_pair().0
}

/// The salt in the database. Nodes that start at the same time agree on the one that was stored first.
async fn salt(store: &Store, made: String) -> Result<String, StoreError> {
    let setting = Setting {
        project: DEFAULT_PROJECT.to_owned(),
        name: SALT.to_owned(),
        value: serde_json::Value::from(made.clone()).to_string(),
        changed: now(),
        who: "deadstop".to_owned(),
    };
    let stored = store.first_setting(&setting).await?;
    Ok(serde_json::from_str(&stored.value).unwrap_or(made))
}

#[cfg(test)]
mod tests;
