//! A scope in use: its state under a lock, and the signals that its calls wait for.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use deadstop_core::{Digest, Failing, GuardId, Kill, PolicySet, ScopeKind, ScopeState, Time};
use deadstop_fleet::{Cell, Version};
use deadstop_store::{Counters, SessionState, StoredAgent, StoredScope, StoredSession};
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;

use super::Project;
use super::backend::Attachment;
use super::conversation::{Conversation, Counted, Heard};
use super::now;
use super::reported::ReportedCalls;
use super::step::Counts;
use super::stop::{Stop, Stops};
use super::trace::{CallSpan, Trace};

/// A scope in use.
pub struct Scope {
    /// Its key and names.
    pub id: ScopeId,
    pub(crate) state: Arc<Mutex<ScopeState>>,
    /// The link to the shared state, in a cluster.
    cell: OnceLock<Arc<Cell>>,
    /// The conversation, as this node keeps it. In a cluster it travels with the record instead, and
    /// this holds calls that were admitted while the cluster was unreachable; so does `reported`.
    pub(super) conversation: Mutex<Conversation>,
    /// Calls that a client reports itself.
    pub(super) reported: Mutex<ReportedCalls>,
    pub(super) tally: Mutex<Tally>,
    signal: Arc<Signal>,
    /// Its row number, unique among scopes. A reset gives a session a new one.
    number: AtomicI64,
    /// The row number of its agent; 0 until it is known.
    agent_number: AtomicI64,
    dirty: AtomicBool,
    /// Whether it has a kill that is not on disk yet.
    unwritten: AtomicBool,
    /// Whether its row could not be read, because the database was unreachable.
    provisional: AtomicBool,
    used: AtomicU64,
    /// The incident that ended it, once it was looked up.
    pub(super) ended_by: Mutex<Option<String>>,
}

/// Tells calls in flight that their scope was killed, paused or resumed.
struct Signal {
    /// The standing that was last signalled.
    standing: AtomicU8,
    stop: Mutex<Arc<Stop>>,
    changed: Notify,
}

impl Signal {
    fn new(state: &ScopeState) -> Signal {
        let stop = Arc::<Stop>::default();
        if state.killed().is_some() {
            stop.give();
        }
        Signal {
            standing: AtomicU8::new(standing(state)),
            stop: Mutex::new(stop),
            changed: Notify::new(),
        }
    }

    /// Follows the state: cuts calls when the scope is killed, and lets new ones run after a clear.
    fn follow(&self, state: &ScopeState) {
        let now = standing(state);
        if self.standing.load(Ordering::Acquire) == now
            || self.standing.swap(now, Ordering::AcqRel) == now
        {
            return;
        }
        let mut stop = self.stop.lock();
        match state.killed() {
            Some(kill) if !kill.drains => stop.give(),
            Some(_) => {}
            None if stop.is_given() => *stop = Arc::default(),
            None => {}
        }
        drop(stop);
        self.changed.notify_waiters();
    }
}

/// Whether a scope is killed, draining or paused, as a number.
fn standing(state: &ScopeState) -> u8 {
    let dead = state.killed().map_or(0, |kill| if kill.drains { 1 } else { 2 });
    dead | u8::from(state.paused().is_some()) << 2
}

/// The key and names of a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeId {
    /// Its key, unique across projects.
    pub key: String,
    /// The project.
    pub project: String,
    /// What kind of scope it is.
    pub kind: ScopeKind,
    /// The agent it belongs to; empty for the project.
    pub agent: String,
    /// Its name.
    pub name: String,
}

/// Counters that people see and the engine does not need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Loops that were detected.
    pub loops: u64,
    /// When this node saw the last loop begin.
    pub looped: Option<Time>,
    /// Incidents.
    pub incidents: u64,
    /// Of an agent: what it has counted that its sessions meet together.
    pub(crate) counted: Counted,
    /// Health tags.
    pub tags: BTreeSet<String>,
    /// The provider and the model that were used last.
    pub provider: Option<String>,
    /// The model that was used last.
    pub model: Option<String>,
    /// The breaker's circuit that its last model call on this node went through.
    pub(crate) circuit: Option<Digest>,
    /// When its host said that it is over. What it does later takes that back.
    pub over: Option<Time>,
}

impl Tally {
    /// Adds what tripped in a step. Only sessions have tags.
    pub(super) fn add(&mut self, counts: &Counts, kind: ScopeKind) {
        let (loops, incidents) = match kind {
            ScopeKind::Agent => counts.of_agent(&mut self.counted),
            _ => counts.of_session(),
        };
        self.loops += loops;
        if loops > 0 {
            self.looped = Some(now());
        }
        self.incidents += incidents;
        for tag in counts.tags.iter().filter(|_| kind == ScopeKind::Session) {
            if !self.tags.contains(*tag) {
                self.tags.insert((*tag).to_owned());
            }
        }
    }
}

impl Scope {
    /// A scope with this state.
    pub fn new(id: ScopeId, number: i64, state: ScopeState, tally: Tally) -> Scope {
        Scope {
            id,
            signal: Arc::new(Signal::new(&state)),
            state: Arc::new(Mutex::new(state)),
            cell: OnceLock::new(),
            conversation: Mutex::new(Conversation::default()),
            reported: Mutex::default(),
            tally: Mutex::new(tally),
            number: AtomicI64::new(number),
            agent_number: AtomicI64::new(0),
            dirty: AtomicBool::new(false),
            unwritten: AtomicBool::new(false),
            provisional: AtomicBool::new(false),
            used: AtomicU64::new(0),
            ended_by: Mutex::default(),
        }
    }

    /// A read lock on its state. Only a step changes it.
    pub fn state(&self) -> impl Deref<Target = ScopeState> + '_ {
        self.state.lock()
    }

    /// What kind of scope it is.
    pub fn kind(&self) -> ScopeKind {
        self.id.kind
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.id.name
    }

    /// The agent.
    pub fn agent(&self) -> &str {
        &self.id.agent
    }

    /// When this node saw the last loop begin in it.
    pub fn looped(&self) -> Option<Time> {
        self.tally.lock().looped
    }

    /// Whether a failing provider holds it back: the circuit of its last model call fails. Where this node
    /// has seen none of its calls, the provider's name decides.
    pub fn is_held_back_by(&self, failing: &Failing) -> bool {
        let tally = self.tally.lock();
        failing.is_provider
            && match tally.circuit {
                Some(circuit) => failing.circuits.contains(&circuit),
                None => tally.provider.as_ref() == Some(&failing.server),
            }
    }

    /// Whether its host said that it is over, and it did nothing since.
    pub fn finished(&self) -> bool {
        let over = self.tally.lock().over;
        over.is_some_and(|over| self.used() <= over)
    }

    /// Notes that its host said that it is over.
    pub(crate) fn finish(&self, at: Time) {
        self.tally.lock().over = Some(at);
    }

    /// Its row number, unique among scopes.
    pub fn number(&self) -> i64 {
        match self.cell.get() {
            Some(cell) => cell.number(),
            None => self.number.load(Ordering::Relaxed),
        }
    }

    /// Connects it to the shared state. From then on a kill or pause on any node takes effect here.
    pub(crate) fn share(&self, version: u64) -> Arc<Cell> {
        let signal = Arc::clone(&self.signal);
        let watch = Box::new(move |state: &ScopeState| signal.follow(state));
        let number = self.number.load(Ordering::Relaxed);
        let at = (Version(version), number);
        let state = Arc::clone(&self.state);
        let ScopeId { key, project, name, .. } = &self.id;
        let make = || Arc::new(Cell::new(project, key, name, state, at, watch));
        Arc::clone(self.cell.get_or_init(make))
    }

    /// The link to the shared state, in a cluster.
    pub(crate) fn cell(&self) -> Option<&Arc<Cell>> {
        self.cell.get()
    }

    /// The key of the entry for a call that a client reports under an id.
    pub(crate) fn entry_key(&self, id: &str) -> String {
        self.cell.get().map(|cell| cell.entry_key(id)).unwrap_or_default()
    }

    /// How far its conversation has been read.
    pub(super) fn heard(&self) -> Heard {
        match self.cell.get() {
            Some(cell) => Attachment::read(&cell.attachment()).conversation.heard,
            None => self.conversation.lock().heard.clone(),
        }
    }

    /// Signals the new state to calls in flight.
    pub(super) fn follow(&self, state: &ScopeState) {
        self.signal.follow(state);
    }

    /// Completes when the scope is paused, resumed or killed.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.signal.changed.notified()
    }

    /// Wakes all that wait for [`Scope::changed`].
    pub(super) fn tell_changed(&self) {
        self.signal.changed.notify_waiters();
    }

    /// The number of the agent it belongs to.
    pub fn agent_number(&self) -> i64 {
        self.agent_number.load(Ordering::Relaxed)
    }

    /// Sets the row number of its agent.
    pub(crate) fn set_agent_number(&self, number: i64) {
        if self.agent_number() != number {
            self.agent_number.store(number, Ordering::Relaxed);
        }
    }

    /// Merges the row from the database into a scope that was made while the database was
    /// unreachable.
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
        own.over = own.over.or(tally.over);
    }

    /// Frees the memory of a killed scope; keeps the kill and what was spent. False if it is not
    /// killed.
    pub(crate) fn bury(&self) -> bool {
        let mut state = self.state.lock();
        if state.killed().is_none() {
            return false;
        }
        state.forget();
        drop(state);
        *self.conversation.lock() = Conversation::default();
        *self.reported.lock() = ReportedCalls::default();
        true
    }

    /// A fresh start under the same name: history stays with the old row number.
    pub(crate) fn renumber(&self, number: i64) {
        self.number.store(number, Ordering::Relaxed);
        *self.tally.lock() = Tally::default();
        *self.conversation.lock() = Conversation::default();
        *self.reported.lock() = ReportedCalls::default();
    }

    /// Forgets calls that clients reported: they belonged to the session before the reset.
    pub(super) fn forget_reported(&self) {
        *self.reported.lock() = ReportedCalls::default();
    }

    /// Sets whether its row could not be read.
    pub(crate) fn set_provisional(&self, provisional: bool) {
        self.provisional.store(provisional, Ordering::Release);
    }

    /// Whether its row could not be read yet.
    pub(crate) fn is_provisional(&self) -> bool {
        self.provisional.load(Ordering::Acquire)
    }

    /// Cuts every call in flight below this scope.
    pub(crate) fn cut(&self) {
        self.signal.stop.lock().give();
    }

    fn stop(&self) -> Arc<Stop> {
        Arc::clone(&self.signal.stop.lock())
    }

    /// Notes that it was used.
    pub(crate) fn touch(&self, now: Time) {
        self.used.store(now.0, Ordering::Relaxed);
    }

    /// When it was used last.
    pub fn used(&self) -> Time {
        Time(self.used.load(Ordering::Relaxed))
    }

    /// Whether it was not used for `ms` milliseconds.
    pub(crate) fn idle(&self, now: Time, ms: u64) -> bool {
        now.0.saturating_sub(self.used.load(Ordering::Relaxed)) > ms
    }

    /// Notes that it has a kill to write.
    pub(crate) fn note_kill(&self) {
        self.unwritten.store(true, Ordering::Release);
    }

    /// Whether it has a kill that is not on disk yet.
    pub(crate) fn kill_unwritten(&self) -> bool {
        self.unwritten.load(Ordering::Acquire)
    }

    /// Its kill is on disk.
    pub(crate) fn kill_written(&self) {
        self.unwritten.store(false, Ordering::Release);
    }

    /// Marks the state as changed; true if it was not marked before.
    pub(crate) fn mark_dirty(&self) -> bool {
        // Nearly always it is marked already, and a load is cheaper than a swap.
        !self.dirty.load(Ordering::Acquire) && !self.dirty.swap(true, Ordering::AcqRel)
    }

    /// Removes the mark: a provisional scope is marked again when its row has been read.
    pub(crate) fn leave(&self) {
        self.dirty.store(false, Ordering::Release);
    }

    /// What it has come to: what its row will say when it is written next.
    pub fn counters(&self) -> Counters {
        let (version, tally) = (self.version(), self.counted());
        counters(&self.state.lock(), &tally, version)
    }

    /// The version of the shared state; 0 on a single node.
    fn version(&self) -> u64 {
        self.cell.get().map_or(0, |cell| cell.version().0)
    }

    /// What people see of it; in a cluster as all nodes have counted it.
    fn counted(&self) -> Tally {
        let mut tally = self.tally.lock().clone();
        if let Some(cell) = self.cell.get() {
            let page = Attachment::read(&cell.attachment());
            (tally.loops, tally.incidents) = match self.kind() {
                ScopeKind::Session => (page.loops, page.incidents),
                _ => cell.notes(),
            };
            tally.tags = page.tags;
        }
        tally
    }

    /// The rows to write. Removes the mark, so that later changes count as new.
    pub(crate) fn to_rows(&self) -> Rows {
        self.dirty.store(false, Ordering::Release);
        let ScopeId { key, project, kind, agent, name } = self.id.clone();
        // Read before the state is locked: other tasks lock the cell first, then the state.
        let (number, used) = (self.number(), self.used());
        let version = self.version();
        let tally = self.counted();
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
        let counters = counters(&state, &tally, version);
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
                removed: None,
            }),
            ScopeKind::Session => {
                let (state, why) = match (state.killed(), state.paused()) {
                    (Some(kill), _) => (SessionState::Killed, Some(kill.because.clone())),
                    (None, Some(pause)) => (SessionState::Paused, Some(pause.because.clone())),
                    (None, None) if tally.over.is_some_and(|over| used <= over) => {
                        (SessionState::Ended, None)
                    }
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

fn counters(state: &ScopeState, tally: &Tally, version: u64) -> Counters {
    let spent = state.ledger().spent;
    Counters {
        calls: state.calls(),
        loops: tally.loops,
        incidents: tally.incidents,
        tokens: spent.input + spent.output + spent.cache_read,
        cost: spent.cost,
        version,
    }
}

/// A scope as database rows.
pub(crate) struct Rows {
    pub scope: StoredScope,
    pub seen: Seen,
}

/// The row that people see, for agents and sessions.
pub(crate) enum Seen {
    Agent(StoredAgent),
    Session(StoredSession),
    Nothing,
}

/// Who deactivated an agent. A kill by the similarity guard is shown as the kill switch.
pub(crate) fn deactivated_by(kill: &Kill) -> String {
    match kill.guard {
        Some(GuardId::Similarity) => "kill_switch".to_owned(),
        Some(guard) => guard.name().to_owned(),
        None => kill.by.clone(),
    }
}

/// The chain of scopes that a call is charged to, from the project down.
#[derive(Clone)]
pub struct Chain {
    /// The project.
    pub project: Arc<Project>,
    scopes: SmallVec<[Arc<Scope>; 4]>,
    /// The trace that the request belongs to, where its caller names one.
    pub trace: Option<Arc<Trace>>,
}

impl Chain {
    /// Makes one.
    pub fn new(project: Arc<Project>) -> Chain {
        let scopes = SmallVec::from_iter([Arc::clone(&project.scope)]);
        Chain { project, scopes, trace: None }
    }

    /// Adds the next scope, further in.
    pub fn push(&mut self, scope: Arc<Scope>) {
        self.scopes.push(scope);
    }

    /// The scopes, from the project down.
    pub fn scopes(&self) -> &[Arc<Scope>] {
        &self.scopes
    }

    /// The scope in which the call is made.
    pub fn innermost(&self) -> &Arc<Scope> {
        &self.scopes[self.scopes.len() - 1]
    }

    /// The agent.
    pub fn agent(&self) -> Option<&Arc<Scope>> {
        self.scopes.iter().find(|scope| scope.kind() == ScopeKind::Agent)
    }

    /// The session.
    pub fn session(&self) -> Option<&Arc<Scope>> {
        self.scopes.iter().find(|scope| scope.kind() == ScopeKind::Session)
    }

    /// The names of the nested scopes, joined by slashes.
    pub fn nested(&self) -> Option<String> {
        let nested = self.scopes.iter().filter(|scope| scope.kind() == ScopeKind::Nested);
        let names: Vec<&str> = nested.map(|scope| scope.name()).collect();
        (!names.is_empty()).then(|| names.join("/"))
    }

    /// Where a call of this chain stands in its trace.
    pub fn place(&self, call: i64) -> CallSpan {
        let session = self.session().map_or(0, |scope| scope.number());
        CallSpan::of(self.trace.as_deref().copied(), &self.project.name, session, call)
    }

    /// Agent and session.
    pub fn names(&self) -> (&str, &str) {
        let agent = self.agent().map_or("", |scope| scope.name());
        (agent, self.session().map_or("", |scope| scope.name()))
    }

    /// The outermost of its scopes that was ended, if one was.
    pub fn stopped(&self) -> Option<Stopped> {
        self.scopes.iter().find_map(|scope| {
            let state = scope.state.lock();
            let kill = state.killed()?;
            let by = kill.guard.map_or(kill.by.as_str(), |guard| guard.name());
            Some(Stopped {
                kind: scope.kind(),
                name: scope.name().to_owned(),
                guard: kill.guard,
                by: by.to_owned(),
                because: kill.because.clone(),
            })
        })
    }

    /// The policies that hold for it.
    pub fn policies(&self) -> Arc<PolicySet> {
        self.project.policies(self.agent().map_or("", |scope| scope.name()))
    }

    /// The links to the shared state, in a cluster.
    pub fn cells(&self) -> impl Iterator<Item = Arc<Cell>> {
        self.scopes.iter().filter_map(|scope| scope.cell().cloned())
    }

    /// Given when any scope of the chain is killed.
    pub fn stops(&self) -> Stops {
        Stops::new(self.scopes.iter().map(|scope| scope.stop()))
    }
}

/// A scope that was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// Its kind.
    pub kind: ScopeKind,
    /// Its name.
    pub name: String,
    /// The guard that ended it; `None` for an operator.
    pub guard: Option<GuardId>,
    /// The guard or the operator that ended it.
    pub by: String,
    /// Why.
    pub because: String,
}

impl Stopped {
    /// The stable code, which names the scope.
    pub fn reason(&self) -> &'static str {
        match self.kind {
            ScopeKind::Session => self.refusal(),
            ScopeKind::Project => "project_killed",
            ScopeKind::Agent => "agent_killed",
            ScopeKind::Nested => "scope_killed",
        }
    }

    /// The stable code for a client that governs a session: whichever scope ended, its session is over.
    pub fn refusal(&self) -> &'static str {
        self.guard.unwrap_or(GuardId::Killed).refusal()
    }

    /// What happened, in words.
    pub fn sentence(&self) -> String {
        let Stopped { kind, name, by, because, .. } = self;
        format!("{} {name} was ended by {by}: {because}", kind.name())
    }
}

/// The key of a scope: its names, separated by a control character that no name contains.
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
