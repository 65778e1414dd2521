//! Whose request it is: the credential it came with, and the session that an unnamed conversation
//! belongs to.
//!
//! A credential is only ever kept as a digest, with a salt that each installation makes up for
//! itself. The index of conversations is in this node's memory; in a cluster, where the next request
//! may come to any node, a conversation is known by its first words instead.

use std::sync::Arc;

use deadstop_core::{Digest, Time};
use deadstop_protocol::llm::answer::echo::Echo;
use deadstop_protocol::llm::conversation::{Attempt, Conversations, Found, Known, SessionId};
use deadstop_protocol::llm::identity::{Identity, Source};
use deadstop_protocol::llm::request::Turns;
use deadstop_store::Setting;
use http::HeaderMap;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use super::brought;
use crate::api::auth::{KEY_HEADER, key};
use deadstop_warden::{DEFAULT_PROJECT, Warden};

/// The name under which the salt is stored.
const SALT: &str = "credential_salt";

/// What is known of callers.
pub(crate) struct Callers {
    index: Mutex<Conversations>,
    salt: OnceCell<String>,
}

/// A request in its conversation: what to remember once it is answered.
pub(super) struct Thread {
    callers: Arc<Callers>,
    caller: Digest,
    turns: Turns,
    session: SessionId,
    answered: bool,
}

/// The session of a request.
pub(super) struct Placed {
    pub(super) session: String,
    /// Its place in a conversation that has no name.
    pub(super) thread: Option<Thread>,
    /// Whether it is one of many single prompts: they are not compared with each other.
    pub(super) single: bool,
}

impl Placed {
    /// A session that has a name.
    pub(super) fn named(session: String) -> Placed {
        Placed { session, thread: None, single: false }
    }
}

/// What a request says about itself.
pub(super) struct Asking<'a> {
    pub(super) project: &'a str,
    pub(super) agent: &'a str,
    pub(super) who: &'a Identity,
    pub(super) credential: Digest,
    pub(super) turns: Turns,
    pub(super) retry: bool,
    pub(super) now: Time,
}

impl Callers {
    pub(super) fn new() -> Arc<Callers> {
        Arc::new(Callers { index: Mutex::default(), salt: OnceCell::new() })
    }

    /// The digest of the credential that a request came with.
    pub(super) async fn credential(&self, warden: &Warden, headers: &HeaderMap) -> Digest {
        let salt = self.salt.get_or_init(|| salt(warden)).await;
        let mut hasher = Sha256::new();
        hasher.update(salt.as_bytes());
        let own = headers.get(KEY_HEADER).and_then(|key| key.to_str().ok());
        for shown in own.into_iter().chain(brought(headers)) {
            hasher.update([0]);
            hasher.update(shown.as_bytes());
        }
        let hash = hasher.finalize();
        Digest(hash.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// The session that a request belongs to; `None` if nothing says so.
    pub(super) fn place(self: &Arc<Callers>, asking: Asking<'_>) -> Option<Placed> {
        let Asking { project, agent, who, credential, turns, retry, now } = asking;
        let place = Digest::of(format!("{project}\0{agent}").as_bytes());
        let caller = deadstop_protocol::facts::combine(&[place, credential]);
        let found = match (who.source, who.session.as_deref()) {
            (Source::Conversation, _) => {
                let attempt = if retry { Attempt::Again } else { Attempt::First };
                self.index.lock().find(caller, &turns, attempt, fresh(), now)
            }
            (Source::PreviousResponse, Some(id)) => {
                let known = self.index.lock().of_answer(caller, id);
                let session = known.unwrap_or_else(|| SessionId(fresh()));
                Found { session, known: Known::Continued }
            }
            // The operator's own header says exactly which.
            (Source::Deadstop, Some(name)) => {
                return Some(Placed::named(name.to_owned()));
            }
            (_, Some(name)) => {
                return Some(Placed::named(self.index.lock().owned(place, credential, name)));
            }
            (_, None) => return None,
        };
        let callers = Arc::clone(self);
        let thread = Thread { callers, caller, turns, session: found.session, answered: false };
        Some(Placed {
            session: found.session.name(),
            thread: Some(thread),
            single: found.known == Known::Single,
        })
    }
}

impl Thread {
    /// The request was answered.
    pub(super) fn answered(mut self, echo: &Echo, id: Option<&str>, now: Time) {
        self.answered = true;
        let answer = self.turns.answer(echo);
        self.callers.index.lock().answered(self.caller, self.session, answer, id, now);
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if !self.answered {
            // Refused, failed or given up: sent again, it is the same request.
            let now = deadstop_warden::now();
            self.callers.index.lock().failed(self.caller, &self.turns, self.session, now);
        }
    }
}

/// A number that no session has yet.
fn fresh() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1 ^ uuid::Uuid::now_v7().as_u64_pair().0
}

/// The installation's salt: from its database, or made up and stored there.
async fn salt(warden: &Warden) -> String {
    let made = key::secret().unwrap_or_else(|_| uuid::Uuid::new_v4().to_string());
    let Some(store) = warden.store() else { return made };
    let stored = |found: Option<Setting>| {
        found.and_then(|setting| serde_json::from_str::<String>(&setting.value).ok())
    };
    if let Ok(Some(salt)) = store.setting(DEFAULT_PROJECT, SALT).await.map(stored) {
        return salt;
    }
    let setting = Setting {
        project: DEFAULT_PROJECT.to_owned(),
        name: SALT.to_owned(),
        value: serde_json::Value::from(made.clone()).to_string(),
        changed: warden.time(),
        who: "deadstop".to_owned(),
    };
    if let Err(error) = store.put_setting(&setting, None).await {
        tracing::warn!(
            "the salt for credentials cannot be stored, it holds until a restart: {error}"
        );
    }
    made
}
