//! The warden: keeps the scopes in use, runs each decision as one atomic step over a call's chain,
//! and brings a kill to calls in flight and to disk.
//!
//! A decision takes a microsecond. Writing happens in the background (`writer`); a kill or an
//! incident is written before it is acknowledged.

pub mod alerts;
mod approvals;
mod backend;
mod calls;
mod control;
mod conversation;
mod events;
mod fingerprint;
mod govern;
mod grants;
mod hourly;
mod listing;
pub mod log;
pub mod metrics;
mod nodes;
mod observe;
mod once;
pub mod pins;
mod plain;
pub mod prices;
mod project;
mod recent;
mod record;
mod removal;
mod reported;
mod room;
mod scope;
mod sessions;
pub mod settings;
mod step;
mod texts;
pub mod trace;
mod writer;

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deadstop_core::{FailMode, PolicySet, ScopeKind, ScopeState, Time};
use deadstop_fleet::{Fleet, Redis};
use deadstop_store::{Numbers, SessionState, Store, StoreError, StoredScope};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::alerts::Bunches;
use crate::metrics::Metrics;
use crate::pins::Pins;
use crate::settings::Settings;
pub use approvals::{Approval, ApprovalOutcome, Approvals, Word};
use backend::{Backend, Node, Pending, Stores};
pub use calls::{Admit, Advice, Ended, Refused, ResultIn, Running, Settled, Terms};
pub use conversation::Turn;
pub use events::{Event, Events};
pub use govern::{Booked, Proposed};
pub use listing::Tools;
pub use nodes::{Message, Reload};
pub use observe::{OBSERVED, Taken, Told};
pub use once::{Allowed, NotAllowed, Once, Onces};
pub use project::{Policies, Project};
pub use recent::{Recent, Said};
use record::Exports;
pub use record::{Exported, Facts};
pub use removal::{NotRemoved, Removed};
use room::Rooms;
pub use scope::{Chain, Scope, ScopeId, Stopped, Tally};
use sessions::Sessions;
pub use sessions::{Asking, Resolved, Thread};
use step::{Judged, Step};
use texts::Texts;
pub use writer::Outage;

/// Scopes in memory before idle ones are dropped; they can be read from the database again.
const MOST_SCOPES: usize = 20_000;
/// A scope that was not used for so long may be dropped.
const IDLE_MS: u64 = 60 * 60 * 1000;
/// Interval at which idle scopes are dropped.
const SWEEP_MS: u64 = 10_000;
/// How long a call waits for a scope's row. The first call that waits in vain notices the outage;
/// later calls do not wait.
const LOAD: Duration = Duration::from_secs(3);
/// How long an order waits for its commit.
const SPREAD: Duration = Duration::from_secs(3);
/// How long the end of an answer waits until its cost is committed for all nodes.
const BOOKED: Duration = Duration::from_secs(1);
/// The project of clients that name none.
pub const DEFAULT_PROJECT: &str = "default";

/// Completes when a call's settlement is committed for all nodes.
pub type Booking = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The warden.
pub struct Warden {
    /// The policies of projects that have saved none.
    configured: Arc<PolicySet>,
    projects: RwLock<HashMap<String, Arc<Project>>>,
    scopes: Mutex<HashMap<String, Arc<Scope>>>,
    /// When idle scopes were last dropped.
    swept: AtomicU64,
    /// Scopes that were made while the database was unreachable.
    strays: Mutex<Vec<Arc<Scope>>>,
    /// When agents were removed, by the keys of their scopes.
    removed: RwLock<HashMap<String, Time>>,
    store: Option<Store>,
    /// Where the state of live scopes is kept.
    backend: Backend,
    /// Texts of calls that have not ended yet.
    texts: Texts,
    /// Called when another node has changed something.
    reload: OnceLock<Reload>,
    /// Held while it runs.
    reading: tokio::sync::Mutex<()>,
    /// Row numbers for a server without a database.
    numbers: Numbers,
    queue: mpsc::UnboundedSender<oneshot::Sender<Result<(), String>>>,
    /// Which session an unnamed conversation belongs to.
    sessions: Sessions,
    /// Calls that wait for room in a limit.
    rooms: Rooms,
    /// Cancelled when the server shuts down and its grace is over.
    pub closing: tokio_util::sync::CancellationToken,
    /// Notified when so many calls wait that they should be written at once.
    full: Notify,
    outbox: Mutex<writer::Outbox>,
    outage: RwLock<Option<Outage>>,
    /// When each group of alerts may be sent again.
    pub bunches: Bunches,
    /// Notified when an alert was put into the outbox.
    pub posted: Arc<Notify>,
    /// Where calls go that are exported as telemetry.
    exports: OnceLock<Exports>,
    /// The same for lines of the log.
    lines: OnceLock<mpsc::Sender<log::LogLine>>,
    /// Calls that wait for a person.
    pub approvals: Approvals,
    /// Refused calls that a person may allow once.
    pub onces: Onces,
    /// Texts of recent calls, as evidence for an incident.
    pub recent: Recent,
    /// Tools of MCP servers as they were first seen.
    pub pins: Pins,
    /// Events for people who watch.
    pub events: Events,
    /// Counters for Prometheus.
    pub metrics: Arc<Metrics>,
}

/// The kind of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Kills the scope.
    Kill,
    /// Lifts a kill.
    Clear,
    /// A fresh start under the same name.
    Reset,
    /// Pauses the scope.
    Pause,
    /// Lifts a pause.
    Resume,
    /// Raises the limits of a session, and lifts the end that one of them brought.
    TopUp,
}

impl What {
    /// The name of the order.
    pub fn name(self) -> &'static str {
        match self {
            What::Kill => "kill",
            What::Clear => "clear",
            What::Reset => "reset",
            What::Pause => "pause",
            What::Resume => "resume",
            What::TopUp => "top_up",
        }
    }

    /// The past participle of the order.
    pub fn done(self) -> &'static str {
        match self {
            What::Kill => "killed",
            What::Clear => "cleared",
            What::Reset => "reset",
            What::Pause => "paused",
            What::Resume => "resumed",
            What::TopUp => "topped up",
        }
    }
}

/// An operator's order.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    /// Who gave it.
    pub who: &'a str,
    /// Its kind.
    pub what: What,
    /// Why.
    pub reason: &'a str,
}

impl Order<'_> {
    /// The order as a sentence, once it is carried out.
    fn text(&self) -> String {
        format!("{} by {}: {}", self.what.done(), self.who, self.reason)
    }
}

/// The current time, for the engine.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The state in a row. If the state cannot be read, the row still tells whether the scope was
/// killed.
fn state_of(stored: &StoredScope) -> ScopeState {
    match ScopeState::from_blob(&stored.state) {
        Ok(mut state) => {
            state.turn_to(stored.turns);
            state
        }
        Err(error) => {
            tracing::error!(scope = stored.key, "{error}");
            ScopeState::unread(stored.kind, now(), stored.killed, stored.turns)
        }
    }
}

impl Warden {
    /// A warden with what the database has.
    pub async fn new(
        policies: PolicySet,
        store: Option<Store>,
        redis: Option<Redis>,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Warden>, StoreError> {
        let (queue, waiting) = mpsc::unbounded_channel();
        let numbers = Numbers::new(0);
        let backend = match (redis, &store) {
            (Some(redis), Some(store)) => {
                let seed = u64::try_from(store.number(now())).unwrap_or_default();
                let stores = Stores { redis, store: store.clone() };
                Backend::Cluster(Fleet::new(stores, &nodes::name(), seed, now()))
            }
            _ => Backend::Memory,
        };
        let sessions = Sessions::new(store.as_ref()).await?;
        let warden = Arc::new(Warden {
            configured: Arc::new(policies),
            projects: RwLock::default(),
            scopes: Mutex::new(HashMap::new()),
            swept: AtomicU64::new(0),
            strays: Mutex::default(),
            removed: RwLock::default(),
            store,
            backend,
            texts: Texts::default(),
            reload: OnceLock::new(),
            reading: tokio::sync::Mutex::default(),
            numbers,
            queue,
            full: Notify::new(),
            sessions,
            rooms: Rooms::default(),
            closing: tokio_util::sync::CancellationToken::new(),
            outbox: Mutex::default(),
            outage: RwLock::new(None),
            bunches: Bunches::default(),
            posted: Arc::default(),
            approvals: Approvals::default(),
            onces: Onces::default(),
            recent: Recent::default(),
            pins: Pins::default(),
            exports: OnceLock::new(),
            lines: OnceLock::new(),
            events: Events::new(now().0),
            metrics,
        });
        warden.remember().await?;
        warden.project(DEFAULT_PROJECT).await?;
        tokio::spawn(writer::run(Arc::downgrade(&warden), waiting));
        Ok(warden)
    }

    /// Reads what must be known even if the database becomes unreachable: alert targets, settings,
    /// and killed scopes. Policies come from the API, which reads their documents.
    async fn remember(&self) -> Result<(), StoreError> {
        let Some(store) = &self.store else { return Ok(()) };
        for project in store.projects().await? {
            self.project(&project.name).await?;
        }
        for target in store.all_targets().await? {
            let project = self.project(&target.project).await?;
            let mut targets = project.targets.write();
            Arc::make_mut(&mut targets).push(target);
        }
        for project in self.projects() {
            self.reload_mutes(&project.name).await?;
        }
        self.reread_tools().await?;
        self.reread_settings().await?;
        for kind in [ScopeKind::Agent, ScopeKind::Session, ScopeKind::Nested] {
            for stored in store.scopes(kind, Time(u64::MAX >> 1)).await? {
                let place = ScopeId {
                    key: stored.key.clone(),
                    project: stored.project.clone(),
                    kind,
                    agent: stored.agent.clone(),
                    name: stored.name.clone(),
                };
                let Ok(mut state) = ScopeState::from_blob(&stored.state) else { continue };
                self.revive(&mut state);
                let tally = self.tally(&place, stored.number).await?;
                let scope = Arc::new(Scope::new(place, stored.number, state, tally));
                self.share(&scope, stored.version);
                self.look_after(&scope);
                scope.touch(stored.updated);
                self.scopes.lock().insert(stored.key, scope);
            }
        }
        Ok(())
    }

    /// Reads the settings and prices of every project, and which agents were removed.
    async fn reread_settings(&self) -> Result<(), StoreError> {
        let Some(store) = &self.store else { return Ok(()) };
        self.reread_removed().await?;
        let settings = store.settings().await?;
        let mut names: BTreeSet<String> = settings.iter().map(|s| s.project.clone()).collect();
        names.extend(self.projects().iter().map(|project| project.name.clone()));
        for name in names {
            let own = settings.iter().filter(|setting| setting.project == name);
            // Also for a project that has none any more.
            self.project(&name).await?.set_prices(prices::in_force(own));
        }
        let kept = |setting: &&deadstop_store::Setting| setting.name == crate::settings::NAME;
        for setting in settings.iter().filter(kept) {
            let project = self.project(&setting.project).await?;
            let read: Result<Settings, _> = serde_json::from_str(&setting.value);
            let read = read.map_err(|error| error.to_string());
            match read.and_then(|read| read.in_force().map_err(|faults| format!("{faults:?}"))) {
                Ok(settings) => project.set_settings(settings),
                Err(error) => {
                    tracing::error!(project = setting.project, "bad settings: {error}");
                }
            }
        }
        Ok(())
    }

    /// A project by its name.
    pub async fn project(&self, name: &str) -> Result<Arc<Project>, StoreError> {
        if let Some(project) = self.projects.read().get(name) {
            return Ok(Arc::clone(project));
        }
        let key = scope::key(name, None, None, &[]);
        let place = ScopeId {
            key,
            project: name.to_owned(),
            kind: ScopeKind::Project,
            agent: String::new(),
            name: name.to_owned(),
        };
        let made = match &self.store {
            Some(store) => self.in_time(store.ensure_project(name, now())).await.map(drop),
            None => Ok(()),
        };
        let scope = self.load(place).await?;
        if let Err(error) = made {
            self.get_by(error)?;
            scope.set_provisional(true);
        }
        let project = Arc::new(Project::new(name, scope, Arc::clone(&self.configured)));
        // Another task may have made it meanwhile: the first one stays.
        let mut projects = self.projects.write();
        let project = Arc::clone(projects.entry(name.to_owned()).or_insert(project));
        drop(projects);
        self.look_after(&project.scope);
        self.note_stray(&project.scope);
        Ok(project)
    }

    /// Whether the project exists. Asking does not create it.
    pub async fn knows_project(&self, name: &str) -> Result<bool, StoreError> {
        if name == DEFAULT_PROJECT || self.projects.read().contains_key(name) {
            return Ok(true);
        }
        let Some(store) = &self.store else { return Ok(false) };
        Ok(store.projects().await?.iter().any(|project| project.name == name))
    }

    /// All projects.
    pub fn projects(&self) -> Vec<Arc<Project>> {
        self.projects.read().values().cloned().collect()
    }

    /// An agent's scope.
    pub async fn agent(&self, project: &Project, agent: &str) -> Result<Arc<Scope>, StoreError> {
        let key = scope::key(&project.name, Some(agent), None, &[]);
        self.scope(
            || ScopeId {
                key: key.clone(),
                project: project.name.clone(),
                kind: ScopeKind::Agent,
                agent: agent.to_owned(),
                name: agent.to_owned(),
            },
            &key,
        )
        .await
    }

    /// The chain of scopes that a call is charged to.
    pub async fn chain(
        &self,
        project: Arc<Project>,
        agent: &str,
        session: &str,
        nested: &[String],
    ) -> Result<Chain, StoreError> {
        let name = project.name.clone();
        log::names(&name, agent, session);
        let of_agent = self.agent(&project, agent).await?;
        self.meet(&of_agent).await;
        let agent_number = of_agent.number();
        let mut chain = Chain::new(project);
        chain.push(of_agent);
        for depth in 0..=nested.len() {
            let key = scope::key(&name, Some(agent), Some(session), &nested[..depth]);
            let place = || ScopeId {
                key: key.clone(),
                project: name.clone(),
                kind: if depth == 0 { ScopeKind::Session } else { ScopeKind::Nested },
                agent: agent.to_owned(),
                name: if depth == 0 { session.to_owned() } else { nested[depth - 1].clone() },
            };
            let scope = self.scope(place, &key).await?;
            self.meet(&scope).await;
            scope.set_agent_number(agent_number);
            chain.push(scope);
        }
        Ok(chain)
    }

    /// A scope by its key: from memory, from the database, or new.
    async fn scope(
        &self,
        place: impl FnOnce() -> ScopeId,
        key: &str,
    ) -> Result<Arc<Scope>, StoreError> {
        if let Some(scope) = self.scopes.lock().get(key) {
            scope.touch(now());
            return Ok(Arc::clone(scope));
        }
        let fresh = self.load(place()).await?;
        let mut scopes = self.scopes.lock();
        if scopes.len() >= MOST_SCOPES {
            self.sweep(&mut scopes);
        }
        // Another task may have made it meanwhile: the first one stays.
        let scope = Arc::clone(scopes.entry(key.to_owned()).or_insert(fresh));
        drop(scopes);
        self.look_after(&scope);
        scope.touch(now());
        self.note_stray(&scope);
        Ok(scope)
    }

    /// Drops idle scopes. Killed scopes stay, with as little memory as possible: while the database
    /// is unreachable, only this memory knows of the kill.
    fn sweep(&self, scopes: &mut HashMap<String, Arc<Scope>>) {
        let now = now();
        if now.0.saturating_sub(self.swept.load(Ordering::Relaxed)) < SWEEP_MS {
            return;
        }
        self.swept.store(now.0, Ordering::Relaxed);
        self.forget_removals(scopes);
        scopes.retain(|_, scope| {
            Arc::strong_count(scope) > 1 || !scope.idle(now, IDLE_MS) || scope.bury()
        });
    }

    /// Remembers a scope whose row could not be read, for the writer to read later.
    fn note_stray(&self, scope: &Arc<Scope>) {
        if scope.is_provisional() {
            self.strays.lock().push(Arc::clone(scope));
        }
    }

    /// Reads from the database while a call waits: with a time limit, and not at all during an
    /// outage.
    async fn in_time<T>(
        &self,
        asking: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let away = self.outage.read().as_ref().is_some_and(Outage::is_away);
        if away {
            return Err(StoreError::late());
        }
        tokio::time::timeout(LOAD, asking).await.unwrap_or_else(|_| Err(StoreError::late()))
    }

    /// Goes on without the database if the error is an outage. The policies' fail mode decides what
    /// calls may do.
    fn get_by(&self, error: StoreError) -> Result<(), StoreError> {
        if !error.is_outage() {
            return Err(error);
        }
        self.note_outage(&error);
        Ok(())
    }

    /// Reads a scope or makes it. If the database does not answer, the scope is provisional: orders
    /// must find it, and the fail mode decides whether calls may use it.
    async fn load(&self, place: ScopeId) -> Result<Arc<Scope>, StoreError> {
        // The era is read first: if Redis loses data after that, the era differs and the database is
        // read again.
        let era = self.node().map(|node| node.era(&place.project)).unwrap_or_default();
        let (scope, version) = self.load_alone(place).await?;
        self.share(&scope, version);
        if let Some(cell) = scope.cell().filter(|_| !scope.is_provisional()) {
            cell.asked_in(era);
        }
        Ok(scope)
    }

    /// The same without the shared state; returns the version in the row as well.
    async fn load_alone(&self, place: ScopeId) -> Result<(Arc<Scope>, u64), StoreError> {
        let new = |place: ScopeId| {
            let state = ScopeState::new(place.kind, now());
            Scope::new(place, self.number(), state, Tally::default())
        };
        let Some(store) = &self.store else { return Ok((Arc::new(new(place)), 0)) };
        let reading = async {
            let Some(stored) = store.scope(&place.key).await? else { return Ok(None) };
            let number = if stored.number == 0 { self.number() } else { stored.number };
            let tally = self.tally(&place, number).await?;
            Ok(Some((stored, number, tally)))
        };
        let (stored, number, tally) = match self.in_time(reading).await {
            Ok(Some(read)) => read,
            Ok(None) => return Ok((Arc::new(new(place)), 0)),
            Err(error) => {
                self.get_by(error)?;
                let scope = new(place);
                scope.set_provisional(true);
                return Ok((Arc::new(scope), 0));
            }
        };
        let mut state = state_of(&stored);
        self.revive(&mut state);
        Ok((Arc::new(Scope::new(place, number, state, tally)), stored.version))
    }

    /// Prepares a state from the database: its calls in flight have ended. What projects and agents
    /// have reserved on other nodes is in Redis.
    fn revive(&self, state: &mut ScopeState) {
        let counted = matches!(state.kind(), ScopeKind::Project | ScopeKind::Agent);
        match self.node() {
            Some(_) if counted => state.give_back(state.held()),
            _ => state.recover(),
        }
    }

    async fn tally(&self, place: &ScopeId, number: i64) -> Result<Tally, StoreError> {
        let Some(store) = &self.store else { return Ok(Tally::default()) };
        Ok(match place.kind {
            ScopeKind::Agent => {
                let counters = store.agent(&place.project, &place.name).await?.map(|a| a.counters);
                let counters = counters.unwrap_or_default();
                let (loops, incidents) = (counters.loops, counters.incidents);
                Tally { loops, incidents, ..Tally::default() }
            }
            ScopeKind::Session => match store.session(&place.project, number).await? {
                Some(session) => Tally {
                    over: (session.state == SessionState::Ended).then_some(session.used),
                    loops: session.counters.loops,
                    looped: None,
                    incidents: session.counters.incidents,
                    tags: session.tags.into_iter().collect(),
                    provider: session.provider,
                    model: session.model,
                },
                None => Tally::default(),
            },
            ScopeKind::Project | ScopeKind::Nested => Tally::default(),
        })
    }

    /// Why calls of a chain are refused, if they are: the database does not take writes, or the
    /// state of the chain is unknown.
    pub fn closed(&self, chain: &Chain) -> Option<&'static str> {
        if chain.policies().session.fail_mode != FailMode::Closed {
            return None;
        }
        if self.backend.unreachable().is_some() {
            return Some("deadstop cannot reach Redis, and the policy's fail_mode says closed");
        }
        let unsure =
            self.outage.read().is_some() || chain.scopes().iter().any(|s| s.is_provisional());
        unsure.then_some("deadstop cannot use its database, and the policy's fail_mode says closed")
    }

    /// The time that decisions use.
    pub fn time(&self) -> Time {
        self.backend.now()
    }

    /// This node of the cluster, if there is one.
    fn node(&self) -> Option<&Arc<Node>> {
        self.backend.node()
    }

    /// Why Redis is unreachable, and since when; `None` if it answers, or without a cluster.
    pub fn unreachable(&self) -> Option<(Time, String)> {
        self.backend.unreachable()
    }

    /// A unique row number.
    pub fn number(&self) -> i64 {
        match &self.store {
            Some(store) => store.number(now()),
            None => self.numbers.next(now()),
        }
    }

    fn mark(&self, scope: &Arc<Scope>) {
        if scope.mark_dirty() {
            self.outbox.lock().changed.push(Arc::clone(scope));
        }
    }

    /// The chain from the project down to a scope.
    fn chain_to(&self, scope: &Arc<Scope>) -> Result<Chain, String> {
        let project = self.projects.read().get(&scope.id.project).cloned();
        let project = project.ok_or_else(|| format!("there is no project {}", scope.id.project))?;
        let mut chain = Chain::new(project);
        if matches!(scope.kind(), ScopeKind::Session | ScopeKind::Nested)
            && let Some(agent) = self.live_agent(&scope.id.project, scope.agent())
        {
            chain.push(agent);
        }
        if scope.kind() != ScopeKind::Project {
            chain.push(Arc::clone(scope));
        }
        Ok(chain)
    }

    /// Changes one scope in a durable step.
    fn change<T: Send + 'static>(
        &self,
        scope: &Arc<Scope>,
        job: impl FnMut(&mut Step<'_, '_, '_>) -> T + Send + 'static,
    ) -> Result<Pending<Judged<T>>, String> {
        Ok(self.backend.run_durably(&self.chain_to(scope)?, None, job))
    }

    /// Applies an operator's order to a scope. Returns when the change and its audit entry are on
    /// disk and all nodes obey it.
    pub async fn order(
        &self,
        scope: &Arc<Scope>,
        order: Order<'_>,
        change: impl Fn(&mut ScopeState, Time) + Send + Sync + 'static,
    ) -> Result<(), String> {
        let change = Arc::new(change);
        // Only a kill or pause is applied here before the commit. A clear applied early could lift
        // a kill that this node has not seen.
        let stops = matches!(order.what, What::Kill | What::Pause);
        if order.what == What::Kill {
            scope.note_kill();
        }
        let unreachable = self.backend.unreachable().is_some();
        if unreachable && stops {
            self.force(scope, &*change);
        }
        let (work, fresh) =
            (Arc::clone(&change), (order.what == What::Reset).then(|| self.number()));
        let done = self.change(scope, move |step| {
            let now = step.now();
            if let Some(state) = step.state() {
                work(state, now);
            }
            if let Some(number) = fresh {
                step.renumber(number);
            }
        })?;
        let spread = in_time(done).await;
        if spread.is_err() && !unreachable && stops {
            self.force(scope, &*change);
        }
        if order.what == What::Reset {
            scope.forget_reported();
        }
        if order.what == What::TopUp {
            *scope.ended_by.lock() = None;
        }
        scope.tell_changed();
        self.tell_nodes_of(scope);
        self.ordered(scope, &order);
        self.mark(scope);
        let written = self.flush().await;
        // After a failover Redis may lack this order, and a node that read the database before this
        // write would not know it either. An empty step writes it to Redis again if it is missing.
        let kept = match (&spread, &written) {
            (Ok(()), Ok(())) => in_time(self.change(scope, |_| ())?).await,
            _ => Ok(()),
        };
        self.tell_of(scope, order.what.done(), order.text());
        spread.and(written).and(kept)
    }

    /// A fresh start under the same name for a killed session and its nested scopes. History stays
    /// with the old row number.
    pub async fn reset(&self, scope: &Arc<Scope>, order: Order<'_>) -> Result<(), String> {
        let below = format!("{}\u{1f}", scope.id.key);
        let mut nested = self.scopes(&scope.id.project);
        nested.retain(|nested| nested.id.key.starts_with(&below));
        // The old state is written before its row becomes that of the new session.
        self.mark(scope);
        self.flush().await?;
        let mut spread = Ok(());
        for nested in &nested {
            let fresh = self.number();
            let done = self.change(nested, move |step| {
                let now = step.now();
                if let Some(state) = step.state() {
                    state.reset(now);
                }
                step.renumber(fresh);
            })?;
            spread = in_time(done).await.and(spread);
            nested.forget_reported();
            nested.tell_changed();
            self.tell_nodes_of(nested);
            self.mark(nested);
        }
        self.order(scope, order, ScopeState::reset).await.and(spread)
    }

    /// Waits until the kills of a chain are on disk; returns at once if there are none to write.
    pub async fn settle_kills(&self, chain: &Chain) {
        if !chain.scopes().iter().any(|scope| scope.kill_unwritten()) {
            return;
        }
        if let Err(error) = self.flush().await {
            tracing::error!("a kill is in force, but could not be written: {error}");
        }
    }

    /// Waits until an incident is on disk.
    pub async fn settle_incident(&self) {
        if let Err(error) = self.flush().await {
            tracing::error!("an incident could not be written: {error}");
        }
    }

    /// Waits until everything decided so far is on disk.
    pub async fn flush(&self) -> Result<(), String> {
        let (done, written) = oneshot::channel();
        self.queue.send(done).map_err(|_| "the writer has stopped".to_owned())?;
        written.await.map_err(|_| "the writer has stopped".to_owned())?
    }

    /// Every scope of a project in memory.
    pub fn scopes(&self, project: &str) -> Vec<Arc<Scope>> {
        let scopes = self.scopes.lock();
        scopes.values().filter(|scope| scope.id.project == project).cloned().collect()
    }

    /// The database, if there is one.
    pub fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }
}

/// The result of a step, with a time limit.
async fn in_time<T>(done: Pending<Judged<T>>) -> Result<T, String> {
    match tokio::time::timeout(SPREAD, done.known()).await {
        Ok(Ok(judged)) => Ok(judged.value),
        Ok(Err(unreachable)) => Err(unreachable.why),
        Err(_) => Err(format!("Redis did not answer within {} s", SPREAD.as_secs())),
    }
}

#[cfg(test)]
mod tests;
