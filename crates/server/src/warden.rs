//! The warden: knows the scopes in use, locks a call's chain from the root down, asks the engine,
//! and sees to it that a kill reaches calls in flight and the disk.
//!
//! A decision takes a microsecond under a lock. Writing is somebody else's business: changed scopes
//! are written in the background several times a second; a kill is written before it is
//! acknowledged.

mod control;
mod scope;
mod writer;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use deadstop_core::{
    Admission, Call, Decision, Link, Outcome, PolicySet, Progress, ScopeKind, ScopeState, Ticket,
    Time, Trip, Verdict, admit, progress, settle,
};
use deadstop_store::{AuditEvent, Store, StoreError, StoredIncident};
use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use smallvec::SmallVec;
use tokio::sync::{broadcast, mpsc, oneshot};

pub(crate) use control::Policies;
pub(crate) use scope::{Chain, Pending, Scope};

/// Sessions in memory before idle ones are let go; what was written can be read again.
const MOST_SCOPES: usize = 20_000;
/// A scope that was not used for so long may be let go.
const IDLE_MS: u64 = 2 * SILENCE_MS;
/// After so long a conversation that has no name is over.
const SILENCE_MS: u64 = 30 * 60 * 1000;

/// Something that happened, for whoever watches.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Event {
    pub(crate) at: Time,
    pub(crate) what: &'static str,
    pub(crate) agent: String,
    pub(crate) session: String,
    pub(crate) text: String,
}

/// The warden.
pub(crate) struct Warden {
    policies: RwLock<Arc<Policies>>,
    project: Arc<Scope>,
    scopes: Mutex<HashMap<String, Arc<Scope>>>,
    store: Option<Store>,
    queue: mpsc::UnboundedSender<oneshot::Sender<Result<(), String>>>,
    dirty: Mutex<Vec<Arc<Scope>>>,
    incidents: Mutex<Vec<StoredIncident>>,
    audit: Mutex<Vec<AuditEvent>>,
    events: broadcast::Sender<Event>,
}

/// The current time, for the engine.
pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl Warden {
    /// A warden that remembers what the store remembers.
    pub(crate) async fn new(
        policies: PolicySet,
        store: Option<Store>,
    ) -> Result<Arc<Warden>, StoreError> {
        let key = scope::key(None, None, &[]);
        let state = Self::stored(store.as_ref(), &key, ScopeKind::Project).await?;
        let project = Arc::new(Scope::new(key, ScopeKind::Project, "", "default", state));
        let (queue, waiting) = mpsc::unbounded_channel();
        let warden = Arc::new(Warden {
            policies: RwLock::new(Arc::new(Policies {
                default: Arc::new(policies),
                agents: HashMap::new(),
            })),
            project,
            scopes: Mutex::new(HashMap::new()),
            store,
            queue,
            dirty: Mutex::new(Vec::new()),
            incidents: Mutex::new(Vec::new()),
            audit: Mutex::new(Vec::new()),
            events: broadcast::channel(1024).0,
        });
        tokio::spawn(writer::run(Arc::downgrade(&warden), waiting));
        Ok(warden)
    }

    /// An agent's scope.
    pub(crate) async fn agent(&self, agent: &str) -> Result<Arc<Scope>, StoreError> {
        self.scope(ScopeKind::Agent, agent, agent, scope::key(Some(agent), None, &[])).await
    }

    /// The chain of scopes that a call is charged to.
    pub(crate) async fn chain(
        &self,
        agent: &str,
        session: &str,
        nested: &[String],
    ) -> Result<Chain, StoreError> {
        let mut chain = Chain::new(Arc::clone(&self.project));
        chain.push(self.agent(agent).await?);
        let key = scope::key(Some(agent), Some(session), &[]);
        chain.push(self.scope(ScopeKind::Session, agent, session, key).await?);
        for depth in 1..=nested.len() {
            let key = scope::key(Some(agent), Some(session), &nested[..depth]);
            let name = &nested[depth - 1];
            chain.push(self.scope(ScopeKind::Nested, agent, name, key).await?);
        }
        Ok(chain)
    }

    /// The session for a conversation that only its first messages name: after a long silence the
    /// same words open a new one.
    pub(crate) fn conversation(&self, agent: &str, name: &str) -> String {
        let scopes = self.scopes.lock();
        let now = now();
        let numbered = |n: u32| if n == 1 { name.to_owned() } else { format!("{name}-{n}") };
        let over = |session: &String| {
            let found = scopes.get(&scope::key(Some(agent), Some(session), &[]));
            found.is_some_and(|scope| scope.idle(now, SILENCE_MS))
        };
        (1..1000).map(numbered).find(|session| !over(session)).unwrap_or_else(|| name.to_owned())
    }

    /// A scope by its key: from memory, from the store, or new.
    async fn scope(
        &self,
        kind: ScopeKind,
        agent: &str,
        name: &str,
        key: String,
    ) -> Result<Arc<Scope>, StoreError> {
        if let Some(scope) = self.scopes.lock().get(&key) {
            scope.touch(now());
            return Ok(Arc::clone(scope));
        }
        let state = Self::stored(self.store.as_ref(), &key, kind).await?;
        let fresh = Arc::new(Scope::new(key.clone(), kind, agent, name, state));
        let mut scopes = self.scopes.lock();
        if scopes.len() >= MOST_SCOPES {
            let now = now();
            scopes.retain(|_, scope| Arc::strong_count(scope) > 1 || !scope.idle(now, IDLE_MS));
        }
        // Somebody else may have been faster: the first one stays.
        let scope = Arc::clone(scopes.entry(key).or_insert(fresh));
        scope.touch(now());
        Ok(scope)
    }

    async fn stored(
        store: Option<&Store>,
        key: &str,
        kind: ScopeKind,
    ) -> Result<ScopeState, StoreError> {
        let stored = match store {
            Some(store) => store.scope(key).await?,
            None => None,
        };
        let read = stored.and_then(|stored| match ScopeState::from_blob(&stored.state) {
            Ok(mut state) => {
                state.recover();
                Some(state)
            }
            Err(error) => {
                tracing::error!(scope = key, "{error}");
                None
            }
        });
        Ok(read.unwrap_or_else(|| ScopeState::new(kind, now())))
    }

    /// May this call run? With the incident, if it may not.
    pub(crate) fn admit(&self, chain: &Chain, call: &Call) -> (Admission, Option<String>) {
        let admission = self.decide(chain, |links, now| admit(links, call, now));
        let incident = self.record(chain, &admission.trips);
        (admission, incident)
    }

    /// May this call go on? With the incident, if it may not.
    pub(crate) fn progress(
        &self,
        chain: &Chain,
        call: &Call,
        ticket: &mut Ticket,
        new: Progress<'_>,
    ) -> (Decision, Option<String>) {
        let decision = self.decide(chain, |links, now| progress(links, call, ticket, new, now));
        let incident = self.record(chain, &decision.trips);
        (decision, incident)
    }

    /// This call has ended.
    pub(crate) fn settle(
        &self,
        chain: &Chain,
        call: &Call,
        ticket: Ticket,
        outcome: &Outcome,
    ) -> Decision {
        let decision = self.decide(chain, |links, now| settle(links, call, ticket, outcome, now));
        self.record(chain, &decision.trips);
        decision
    }

    /// Runs the engine over a locked chain, then carries new kills out.
    fn decide<T>(&self, chain: &Chain, decide: impl FnOnce(&mut [Link<'_>], Time) -> T) -> T {
        let policies = Arc::clone(self.policies.read().of(chain.names().0));
        // Chains are short: nothing of this needs the allocator.
        let mut states: SmallVec<[_; 6]> =
            chain.scopes().iter().map(|scope| scope.state.lock()).collect();
        let alive: SmallVec<[bool; 6]> =
            states.iter().map(|state| state.killed().is_none()).collect();
        let mut links: SmallVec<[Link<'_>; 6]> = states
            .iter_mut()
            .zip(chain.scopes())
            .map(|(state, scope)| Link {
                name: &scope.name,
                policy: policies.of(scope.kind),
                state,
            })
            .collect();
        let decision = decide(&mut links, now());
        drop(links);
        for ((scope, state), alive) in chain.scopes().iter().zip(&states).zip(alive) {
            if let Some(kill) = state.killed().filter(|_| alive) {
                scope.note_kill();
                if !kill.drains {
                    scope.cut();
                }
                self.tell("kill", &scope.agent, &scope.name, kill.because.clone());
            }
        }
        drop(states);
        for scope in chain.scopes() {
            self.mark(scope);
        }
        decision
    }

    fn mark(&self, scope: &Arc<Scope>) {
        if scope.mark_dirty() {
            self.dirty.lock().push(Arc::clone(scope));
        }
    }

    /// Keeps what blocked or killed, and tells whoever watches. Gives the number of the incident
    /// that the strictest trip has become.
    fn record(&self, chain: &Chain, trips: &[Trip]) -> Option<String> {
        let mut first = None;
        for trip in trips.iter().filter(|trip| trip.guard != deadstop_core::GuardId::Killed) {
            let what = match trip.verdict {
                Verdict::Allow => continue,
                Verdict::Warn => "warn",
                Verdict::Block => "block",
                Verdict::Kill => "stop",
            };
            let (agent, session) = chain.names();
            self.tell(what, agent, session, trip.explain());
            if trip.verdict >= Verdict::Block && trip.guard != deadstop_core::GuardId::Paused {
                let id = uuid::Uuid::now_v7().to_string();
                first.get_or_insert_with(|| id.clone());
                self.incidents.lock().push(StoredIncident {
                    id,
                    project: "default".to_owned(),
                    at: now(),
                    agent: agent.to_owned(),
                    session: session.to_owned(),
                    session_number: None,
                    call: None,
                    provider: None,
                    trip: trip.clone(),
                    acknowledged: None,
                });
            }
        }
        first
    }

    /// Tells whoever watches.
    pub(crate) fn tell(&self, what: &'static str, agent: &str, session: &str, text: String) {
        if self.events.receiver_count() > 0 {
            let (agent, session) = (agent.to_owned(), session.to_owned());
            let _ = self.events.send(Event { at: now(), what, agent, session, text });
        }
    }

    /// Events from now on.
    pub(crate) fn watch(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Changes one scope's standing by an operator's word; returns when it is on disk.
    pub(crate) async fn order(
        &self,
        scope: &Arc<Scope>,
        change: impl FnOnce(&mut ScopeState, Time),
    ) -> Result<(), String> {
        {
            let mut state = scope.state.lock();
            change(&mut state, now());
            match state.killed() {
                Some(_) => scope.cut(),
                None => scope.renew(),
            }
        }
        scope.changed.notify_waiters();
        self.mark(scope);
        self.flush().await
    }

    /// Waits until the kills of a chain are on disk; at once if they are, or if there are none.
    pub(crate) async fn settle_kills(&self, chain: &Chain) {
        if !chain.scopes().iter().any(|scope| scope.kill_unwritten()) {
            return;
        }
        if let Err(error) = self.flush().await {
            tracing::error!("a kill is in force, but could not be written: {error}");
        }
    }

    /// Waits until everything that was decided so far is on disk.
    pub(crate) async fn flush(&self) -> Result<(), String> {
        let (done, written) = oneshot::channel();
        self.queue.send(done).map_err(|_| "the writer has stopped".to_owned())?;
        written.await.map_err(|_| "the writer has stopped".to_owned())?
    }

    /// The project's scope.
    pub(crate) fn project(&self) -> &Arc<Scope> {
        &self.project
    }

    /// Every scope in memory.
    pub(crate) fn scopes(&self) -> Vec<Arc<Scope>> {
        self.scopes.lock().values().cloned().collect()
    }

    /// The store, if there is one.
    pub(crate) fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }
}
