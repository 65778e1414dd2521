//! A scope in use: its state under a lock, and what calls below it wait for.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use deadstop_core::{Call, Digest, GuardId, Kill, PolicySet, ScopeKind, ScopeState, Time};
use deadstop_fleet::{Cell, Version};
use deadstop_protocol::llm::request::Seen as SeenBefore;
use deadstop_redact::excerpt::Excerpt;
use deadstop_store::{Counters, SessionState, StoredAgent, StoredScope, StoredSession};
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::shared::Page;
use super::{Governed, Project, Running};

/// Tool calls of one conversation that wait for their results.
pub(super) const MOST_PENDING: usize = 256;

/// A scope in use.
pub(crate) struct Scope {
    pub(crate) place: Place,
    pub(crate) state: Arc<Mutex<ScopeState>>,
    /// What other nodes know of it, where there are any.
    cell: OnceLock<Arc<Cell>>,
    /// Told when the scope is held, released or ended by a person.
    pub(crate) changed: Arc<Notify>,
    pub(crate) conversation: Mutex<Conversation>,
    /// Calls that a client reports itself.
    pub(crate) governed: Mutex<Governed>,
    pub(crate) tally: Mutex<Tally>,
    stop: Arc<Mutex<CancellationToken>>,
    /// A number that no other scope has. A session that was reset is another one.
    number: AtomicI64,
    /// The number of the agent it belongs to; 0 as long as nobody has said.
    agent_number: AtomicI64,
    dirty: AtomicBool,
    /// Whether a kill has not reached the disk yet.
    unwritten: AtomicBool,
    /// Whether nobody could read what the store has of it.
    provisional: AtomicBool,
    used: AtomicU64,
}

/// Whether it is dead, dying or held, as a number.
fn standing(state: &ScopeState) -> u8 {
    let dead = state.killed().map_or(0, |kill| if kill.drains { 1 } else { 2 });
    dead | u8::from(state.paused().is_some()) << 2
}

/// Where a scope stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) key: String,
    pub(crate) project: String,
    pub(crate) kind: ScopeKind,
    /// The agent it belongs to; empty for the project.
    pub(crate) agent: String,
    pub(crate) name: String,
}

/// What the engine does not count, and people want to see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) loops: u64,
    pub(crate) incidents: u64,
    /// Health tags.
    pub(crate) tags: BTreeSet<String>,
    /// The provider and the model that were used last.
    pub(crate) provider: Option<String>,
    pub(crate) model: Option<String>,
}

/// What is remembered of a conversation between two requests.
#[derive(Default)]
pub(crate) struct Conversation {
    /// What the last request held.
    pub(crate) seen: SeenBefore,
    /// The words that it was opened with.
    opening: Option<Digest>,
    pending: VecDeque<Pending>,
}

/// A tool call that the model asked for and whose result is not in yet.
pub(crate) struct Pending {
    pub(crate) id: String,
    pub(crate) call: Call,
    pub(crate) running: Running,
    /// The arguments it was asked with, for people.
    pub(crate) asked: Excerpt,
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
            .partition(|pending| numbers.contains(&pending.running.ticket.number));
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
    pub(crate) fn new(place: Place, number: i64, state: ScopeState, tally: Tally) -> Scope {
        let stop = CancellationToken::new();
        if state.killed().is_some() {
            stop.cancel();
        }
        Scope {
            place,
            state: Arc::new(Mutex::new(state)),
            cell: OnceLock::new(),
            changed: Arc::default(),
            conversation: Mutex::new(Conversation::default()),
            governed: Mutex::default(),
            tally: Mutex::new(tally),
            stop: Arc::new(Mutex::new(stop)),
            number: AtomicI64::new(number),
            agent_number: AtomicI64::new(0),
            dirty: AtomicBool::new(false),
            unwritten: AtomicBool::new(false),
            provisional: AtomicBool::new(false),
            used: AtomicU64::new(0),
        }
    }

    pub(crate) fn kind(&self) -> ScopeKind {
        self.place.kind
    }

    pub(crate) fn name(&self) -> &str {
        &self.place.name
    }

    pub(crate) fn agent(&self) -> &str {
        &self.place.agent
    }

    pub(crate) fn number(&self) -> i64 {
        match self.cell.get() {
            Some(cell) => cell.number(),
            None => self.number.load(Ordering::Relaxed),
        }
    }

    /// Shares it with other nodes from now on. Whoever ends or holds it, anywhere, is heard here.
    pub(crate) fn share(&self, version: u64) -> Arc<Cell> {
        let (stop, changed) = (Arc::clone(&self.stop), Arc::clone(&self.changed));
        let known = AtomicU8::new(standing(&self.state.lock()));
        let watch = Box::new(move |state: &ScopeState| {
            if known.swap(standing(state), Ordering::AcqRel) == standing(state) {
                return;
            }
            let mut stop = stop.lock();
            match state.killed() {
                Some(kill) if !kill.drains => stop.cancel(),
                Some(_) => {}
                None if stop.is_cancelled() => *stop = CancellationToken::new(),
                None => {}
            }
            drop(stop);
            changed.notify_waiters();
        });
        let number = self.number.load(Ordering::Relaxed);
        let at = (Version(version), number);
        let state = Arc::clone(&self.state);
        let Place { key, project, name, .. } = &self.place;
        let make = || Arc::new(Cell::new(project, key, name, state, at, watch));
        Arc::clone(self.cell.get_or_init(make))
    }

    /// What other nodes know of it, where there are any.
    pub(crate) fn cell(&self) -> Option<&Arc<Cell>> {
        self.cell.get()
    }

    /// The key of what a client has reported under an id.
    pub(crate) fn letter_key(&self, id: &str) -> String {
        self.cell.get().map(|cell| cell.letter_key(id)).unwrap_or_default()
    }

    /// What goes with it for all nodes.
    pub(crate) fn page(&self) -> Page {
        self.cell.get().map(|cell| Page::read(&cell.page())).unwrap_or_default()
    }

    /// The number of the agent it belongs to.
    pub(crate) fn agent_number(&self) -> i64 {
        self.agent_number.load(Ordering::Relaxed)
    }

    /// Says which agent it belongs to.
    pub(crate) fn set_agent_number(&self, number: i64) {
        if self.agent_number() != number {
            self.agent_number.store(number, Ordering::Relaxed);
        }
    }

    /// Takes in what the store has of it, for one that began while nobody could read it.
    pub(crate) fn rejoin(&self, number: i64, before: ScopeState, tally: Tally) {
        self.number.store(number, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.rejoin(before);
        if state.killed().is_some() {
            self.cut();
        }
        drop(state);
        let mut own = self.tally.lock();
        own.loops += tally.loops;
        own.incidents += tally.incidents;
        own.tags.extend(tally.tags);
        own.provider = own.provider.take().or(tally.provider);
        own.model = own.model.take().or(tally.model);
    }

    /// Keeps of a dead scope only that it is dead and what it has spent.
    pub(crate) fn bury(&self) -> bool {
        let mut state = self.state.lock();
        if state.killed().is_none() {
            return false;
        }
        state.forget();
        drop(state);
        *self.conversation.lock() = Conversation::default();
        *self.governed.lock() = Governed::default();
        true
    }

    /// A fresh start under the same name: history stays with the old number.
    pub(crate) fn renumber(&self, number: i64) {
        self.number.store(number, Ordering::Relaxed);
        *self.tally.lock() = Tally::default();
        *self.conversation.lock() = Conversation::default();
        *self.governed.lock() = Governed::default();
    }

    /// Marks it as one whose stored state could not be read.
    pub(crate) fn set_provisional(&self, provisional: bool) {
        self.provisional.store(provisional, Ordering::Release);
    }

    pub(crate) fn is_provisional(&self) -> bool {
        self.provisional.load(Ordering::Acquire)
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

    /// Its kill is on disk.
    pub(crate) fn kill_written(&self) {
        self.unwritten.store(false, Ordering::Release);
    }

    /// Says that the state has changed; true if nobody had said so yet.
    pub(crate) fn mark_dirty(&self) -> bool {
        // Nearly always it was said already, and looking is cheaper than writing.
        !self.dirty.load(Ordering::Acquire) && !self.dirty.swap(true, Ordering::AcqRel)
    }

    /// Says that nobody has to write it: whoever finds out what the store has of it says so again.
    pub(crate) fn leave(&self) {
        self.dirty.store(false, Ordering::Release);
    }

    /// What is to be written, with the row that people see; from here on, changes count as new.
    pub(crate) fn to_rows(&self) -> Rows {
        self.dirty.store(false, Ordering::Release);
        let Place { key, project, kind, agent, name } = self.place.clone();
        // Asked before the state is locked: whoever brings a state in locks in that order.
        let (number, used) = (self.number(), self.used());
        let version = self.cell.get().map_or(0, |cell| cell.version().0);
        let mut tally = self.tally.lock().clone();
        if let Some(cell) = self.cell.get() {
            let page = Page::read(&cell.page());
            (tally.loops, tally.incidents) = match kind {
                ScopeKind::Session => (page.loops, page.incidents),
                _ => cell.notes(),
            };
            tally.tags = page.tags;
        }
        let state = self.state.lock();
        let scope = StoredScope {
            key,
            project: project.clone(),
            number,
            kind,
            agent: agent.clone(),
            name: name.clone(),
            killed: state.killed().is_some(),
            updated: used,
            version,
            turns: state.turns(),
            state: state.to_blob(),
        };
        let opened = state.opened();
        let spent = state.ledger().spent;
        let counters = Counters {
            calls: state.calls(),
            loops: tally.loops,
            incidents: tally.incidents,
            tokens: spent.input + spent.output + spent.cache_read,
            cost: spent.cost,
            version,
        };
        let seen = match kind {
            ScopeKind::Agent => Seen::Agent(StoredAgent {
                number,
                project,
                name,
                opened,
                used,
                tags: Vec::new(),
                active: state.killed().is_none(),
                deactivated_by: state.killed().map(deactivated_by),
                deactivated: state.killed().map(|kill| kill.at),
                counters,
            }),
            ScopeKind::Session => {
                let (state, why) = match (state.killed(), state.paused()) {
                    (Some(kill), _) => (SessionState::Killed, Some(kill.because.clone())),
                    (None, Some(pause)) => (SessionState::Paused, Some(pause.because.clone())),
                    (None, None) => (SessionState::Running, None),
                };
                Seen::Session(StoredSession {
                    number,
                    project,
                    agent_number: self.agent_number(),
                    agent,
                    name,
                    opened,
                    used,
                    state,
                    why,
                    tags: tally.tags.into_iter().collect(),
                    provider: tally.provider,
                    model: tally.model,
                    counters,
                })
            }
            ScopeKind::Project | ScopeKind::Nested => Seen::Nothing,
        };
        Rows { scope, seen }
    }
}

/// A scope as it is written.
pub(crate) struct Rows {
    pub(crate) scope: StoredScope,
    pub(crate) seen: Seen,
}

/// The row that people see of it.
pub(crate) enum Seen {
    Agent(StoredAgent),
    Session(StoredSession),
    Nothing,
}

/// Who switched an agent off: the similarity guard is the page's kill switch.
pub(crate) fn deactivated_by(kill: &Kill) -> String {
    match kill.guard {
        Some(GuardId::Similarity) => "kill_switch".to_owned(),
        Some(guard) => guard.name().to_owned(),
        None => kill.by.clone(),
    }
}

/// The chain of scopes that a call is charged to, from the project down.
#[derive(Clone)]
pub(crate) struct Chain {
    pub(crate) project: Arc<Project>,
    scopes: SmallVec<[Arc<Scope>; 4]>,
}

impl Chain {
    pub(crate) fn new(project: Arc<Project>) -> Chain {
        let scopes = SmallVec::from_iter([Arc::clone(&project.scope)]);
        Chain { project, scopes }
    }

    pub(crate) fn push(&mut self, scope: Arc<Scope>) {
        self.scopes.push(scope);
    }

    pub(crate) fn scopes(&self) -> &[Arc<Scope>] {
        &self.scopes
    }

    /// The scope in which the call is made.
    pub(crate) fn innermost(&self) -> &Arc<Scope> {
        &self.scopes[self.scopes.len() - 1]
    }

    pub(crate) fn agent(&self) -> Option<&Arc<Scope>> {
        self.scopes.iter().find(|scope| scope.kind() == ScopeKind::Agent)
    }

    pub(crate) fn session(&self) -> Option<&Arc<Scope>> {
        self.scopes.iter().find(|scope| scope.kind() == ScopeKind::Session)
    }

    /// The names of what is nested in the session, one below the other.
    pub(crate) fn nested(&self) -> Option<String> {
        let nested = self.scopes.iter().filter(|scope| scope.kind() == ScopeKind::Nested);
        let names: Vec<&str> = nested.map(|scope| scope.name()).collect();
        (!names.is_empty()).then(|| names.join("/"))
    }

    /// Agent and session.
    pub(crate) fn names(&self) -> (&str, &str) {
        let agent = self.agent().map_or("", |scope| scope.name());
        (agent, self.session().map_or("", |scope| scope.name()))
    }

    /// The policies that hold for it.
    pub(crate) fn policies(&self) -> Arc<PolicySet> {
        self.project.policies(self.agent().map_or("", |scope| scope.name()))
    }

    /// What other nodes know of its scopes.
    pub(crate) fn cells(&self) -> impl Iterator<Item = Arc<Cell>> {
        self.scopes.iter().filter_map(|scope| scope.cell().cloned())
    }

    /// What ends a call of this chain: the end of any of its scopes.
    pub(crate) fn stops(&self) -> Vec<CancellationToken> {
        self.scopes.iter().map(|scope| scope.token()).collect()
    }
}

/// The key of a scope: names one below the other, which no name can imitate.
pub(crate) fn key(
    project: &str,
    agent: Option<&str>,
    session: Option<&str>,
    nested: &[String],
) -> String {
    let mut key = project.to_owned();
    let parts = agent.into_iter().chain(session).chain(nested.iter().map(String::as_str));
    for part in parts {
        key.push('\u{1f}');
        key.push_str(part);
    }
    key
}
