//! A scope in use: its state under a lock, and what calls below it wait for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use deadstop_core::{Call, Digest, ScopeKind, ScopeState, Ticket, Time};
use deadstop_protocol::llm::request::Seen;
use deadstop_store::StoredScope;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Tool calls of one conversation that wait for their results.
const MOST_PENDING: usize = 256;

/// A scope in use.
pub(crate) struct Scope {
    pub(crate) key: String,
    pub(crate) kind: ScopeKind,
    /// The agent it belongs to; empty for the project.
    pub(crate) agent: String,
    pub(crate) name: String,
    pub(crate) state: Mutex<ScopeState>,
    /// Told when the scope is held, released or ended by a person.
    pub(crate) changed: Notify,
    pub(crate) conversation: Mutex<Conversation>,
    stop: Mutex<CancellationToken>,
    dirty: AtomicBool,
    /// Whether a kill has not reached the disk yet.
    unwritten: AtomicBool,
    used: AtomicU64,
}

/// What is remembered of a conversation between two requests.
#[derive(Default)]
pub(crate) struct Conversation {
    /// What the last request held.
    pub(crate) seen: Seen,
    /// The words that it was opened with.
    opening: Option<Digest>,
    pending: VecDeque<Pending>,
}

/// A tool call that the model asked for and whose result is not in yet.
pub(crate) struct Pending {
    pub(crate) id: String,
    pub(crate) call: Call,
    pub(crate) ticket: Ticket,
}

impl Conversation {
    /// Remembers a call; gives back one that has waited too long, if there are too many.
    pub(crate) fn wait_for(&mut self, pending: Pending) -> Option<Pending> {
        self.pending.push_back(pending);
        if self.pending.len() > MOST_PENDING { self.pending.pop_front() } else { None }
    }

    /// Whether words open the conversation: the first ones, or the same ones once more.
    pub(crate) fn opens_with(&mut self, words: Digest) -> bool {
        *self.opening.get_or_insert(words) == words
    }

    /// Takes calls back, by their numbers: nobody will answer them.
    pub(crate) fn take_back(&mut self, numbers: &[u64]) -> VecDeque<Pending> {
        let (taken, left) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|pending| numbers.contains(&pending.ticket.number));
        self.pending = left;
        taken
    }

    /// The call that a result answers: by its id, or else the oldest of that name.
    pub(crate) fn answered(&mut self, id: &str, name: Option<&str>) -> Option<Pending> {
        let by_id = |p: &Pending| !id.is_empty() && p.id == id;
        let by_name = |p: &Pending| p.id.is_empty() && name == Some(p.call.name());
        let at = self.pending.iter().position(|p| by_id(p) || by_name(p))?;
        self.pending.remove(at)
    }
}

impl Scope {
    pub(crate) fn new(
        key: String,
        kind: ScopeKind,
        agent: &str,
        name: &str,
        state: ScopeState,
    ) -> Scope {
        let stop = CancellationToken::new();
        if state.killed().is_some() {
            stop.cancel();
        }
        Scope {
            key,
            kind,
            agent: agent.to_owned(),
            name: name.to_owned(),
            state: Mutex::new(state),
            changed: Notify::new(),
            conversation: Mutex::new(Conversation::default()),
            stop: Mutex::new(stop),
            dirty: AtomicBool::new(false),
            unwritten: AtomicBool::new(false),
            used: AtomicU64::new(0),
        }
    }

    /// Cuts every call in flight below this scope.
    pub(crate) fn cut(&self) {
        self.stop.lock().cancel();
    }

    /// Lets new calls run again after a kill was cleared.
    pub(crate) fn renew(&self) {
        let mut stop = self.stop.lock();
        if stop.is_cancelled() {
            *stop = CancellationToken::new();
        }
    }

    fn token(&self) -> CancellationToken {
        self.stop.lock().clone()
    }

    pub(crate) fn touch(&self, now: Time) {
        self.used.store(now.0, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> Time {
        Time(self.used.load(Ordering::Relaxed))
    }

    pub(crate) fn idle(&self, now: Time, ms: u64) -> bool {
        now.0.saturating_sub(self.used.load(Ordering::Relaxed)) > ms
    }

    pub(crate) fn note_kill(&self) {
        self.unwritten.store(true, Ordering::Release);
    }

    pub(crate) fn kill_unwritten(&self) -> bool {
        self.unwritten.load(Ordering::Acquire)
    }

    /// What was to be written is on disk.
    pub(crate) fn written(&self, scope: &StoredScope) {
        if scope.killed {
            self.unwritten.store(false, Ordering::Release);
        }
    }

    /// Says that the state has changed; true if nobody had said so yet.
    pub(crate) fn mark_dirty(&self) -> bool {
        // Nearly always it was said already, and looking is cheaper than writing.
        !self.dirty.load(Ordering::Acquire) && !self.dirty.swap(true, Ordering::AcqRel)
    }

    /// What is to be written; from here on, changes count as new.
    pub(crate) fn to_stored(&self) -> StoredScope {
        self.dirty.store(false, Ordering::Release);
        let state = self.state.lock();
        StoredScope {
            key: self.key.clone(),
            project: "default".to_owned(),
            number: 0,
            kind: self.kind,
            agent: self.agent.clone(),
            name: self.name.clone(),
            killed: state.killed().is_some(),
            updated: self.used(),
            state: state.to_blob(),
        }
    }
}

/// The chain of scopes that a call is charged to, from the project down.
#[derive(Clone)]
pub(crate) struct Chain(Vec<Arc<Scope>>);

impl Chain {
    pub(crate) fn new(project: Arc<Scope>) -> Chain {
        let mut scopes = Vec::with_capacity(4);
        scopes.push(project);
        Chain(scopes)
    }

    pub(crate) fn push(&mut self, scope: Arc<Scope>) {
        self.0.push(scope);
    }

    pub(crate) fn scopes(&self) -> &[Arc<Scope>] {
        &self.0
    }

    /// The scope in which the call is made.
    pub(crate) fn innermost(&self) -> &Arc<Scope> {
        &self.0[self.0.len() - 1]
    }

    /// Agent and session.
    pub(crate) fn names(&self) -> (&str, &str) {
        let name = |kind| self.0.iter().find(|scope| scope.kind == kind);
        let agent = name(ScopeKind::Agent).map_or("", |scope| &scope.name);
        let session = name(ScopeKind::Session).map_or("", |scope| &scope.name);
        (agent, session)
    }

    /// What ends a call of this chain: the end of any of its scopes.
    pub(crate) fn stops(&self) -> Vec<CancellationToken> {
        self.0.iter().map(|scope| scope.token()).collect()
    }
}

/// The key of a scope: names one below the other, which no name can imitate.
pub(crate) fn key(agent: Option<&str>, session: Option<&str>, nested: &[String]) -> String {
    let mut key = "default".to_owned();
    let parts = agent.into_iter().chain(session).chain(nested.iter().map(String::as_str));
    for part in parts {
        key.push('\u{1f}');
        key.push_str(part);
    }
    key
}
