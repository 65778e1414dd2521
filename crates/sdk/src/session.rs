//! A session: one run of an agent in this process, with its policy, its scopes and its kill switch.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deadstop_client::ClientError;
use deadstop_core::{Mode, NanoUsd, PolicySet, Preset, ProviderQuota, Rates, Time, Trip, Verdict};
use deadstop_protocol::llm::identity;
use deadstop_protocol::policy_file::{self, PolicyError};
use deadstop_protocol::prices::Prices;

use crate::authority::Authority;
use crate::blocking;
use crate::capture::{Capture, CaptureKind, Captures};
use crate::health::{AuthorityState, Durability, Frozen, Health, SessionStatus, State};
use crate::limits::{BadLimit, Limits};
use crate::refused::{Killed, Why};
use crate::scope::Scope;
use crate::stop::StopSignal;
use crate::tree::{AGENT, Ended, Observer, SESSION, ScopeError, Tree};

/// Tells the time: the system's, or a test's own.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// One run of an agent. Cheap to clone, and every clone is the same session, on any thread.
///
/// ```
/// use deadstop_sdk::{Limits, Session};
///
/// let session = Session::builder("janitor").policy("strict")?.open()?;
/// let delete = serde_json::json!({ "asset_id": "fact_sales" });
/// let mut ran = 0;
/// let refused = loop {
///     match session.tool("delete_asset", &delete) {
///         Ok(call) => { ran += 1; call.done("asset still exists")?; }
///         Err(refused) => break refused,
///     }
/// };
/// assert_eq!(ran, 2);
/// assert!(refused.to_string().contains("delete_asset on asset_id=fact_sales 3 times"));
/// assert!(session.state().killed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Session(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    agent: String,
    name: String,
    tree: Mutex<Tree>,
    prices: Arc<Prices>,
    clock: Clock,
    captures: Captures,
    restored: AtomicBool,
    /// What the kill froze, once the session is over.
    frozen: Mutex<Option<Frozen>>,
    authority: OnceLock<Arc<dyn Authority>>,
    /// Makes the ids of calls.
    run: String,
    calls: AtomicU64,
    /// How many calls a server is being asked about.
    pub(crate) asking: AtomicUsize,
    /// Whether tool calls are looked at in the answers that ask for them.
    pub(crate) watches_answers: bool,
    state_folder: Option<PathBuf>,
}

/// A session that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The session was killed before. Open one with another name.
    #[error(transparent)]
    Killed(Box<Killed>),
    /// The agent's or the session's name.
    #[error("`{0}` cannot be a name: 1 to 200 printable characters")]
    Name(String),
    /// The policy.
    #[error("{}", hinted(.0))]
    Policy(#[from] PolicyError),
    /// One of the limits.
    #[error(transparent)]
    Limit(#[from] BadLimit),
    /// The mode.
    #[error("`{0}` is no mode: write `enforce` or `log-only`")]
    Mode(String),
    /// The file of captures.
    #[error("cannot write captures to {path}: {source}")]
    Captures {
        /// Where they were to go.
        path: String,
        /// Why they cannot.
        source: std::io::Error,
    },
    /// The price of a model.
    #[error("the price of `{0}` must be two amounts of dollars per million tokens, 0 or more")]
    Price(String),
    /// The server refuses the session, or cannot be used.
    #[error("cannot open the session at the server: {0}")]
    Server(#[from] ClientError),
}

fn hinted(error: &PolicyError) -> String {
    match &error.hint {
        Some(hint) => format!("{error}; hint: {hint}"),
        None => error.to_string(),
    }
}

/// What a session is opened with: see [`Session::builder`].
pub struct Builder {
    agent: String,
    session: Option<String>,
    policies: Option<PolicySet>,
    mode: Option<Mode>,
    limits: Limits,
    prices: HashMap<String, (f64, f64)>,
    captures: Option<PathBuf>,
    clock: Option<Clock>,
    observer: Option<Observer>,
    steer_observer: Option<Observer>,
    watches_answers: bool,
    server: Option<String>,
    state_folder: Option<PathBuf>,
}

impl Session {
    /// Begins a session of an agent.
    ///
    /// ```
    /// use deadstop_sdk::{Limits, Mode, Session};
    /// let session = Session::builder("researcher")
    ///     .session("run-7")
    ///     .policy("strict")?
    ///     .mode(Mode::LogOnly)
    ///     .limits(Limits::new().max_cost_usd(5.0))
    ///     .open()?;
    /// assert_eq!((session.agent(), session.name()), ("researcher", "run-7"));
    /// # Ok::<(), deadstop_sdk::OpenError>(())
    /// ```
    pub fn builder(agent: impl Into<String>) -> Builder {
        Builder {
            agent: agent.into(),
            session: None,
            policies: None,
            mode: None,
            limits: Limits::default(),
            prices: HashMap::new(),
            captures: None,
            clock: None,
            observer: None,
            steer_observer: None,
            watches_answers: true,
            server: None,
            state_folder: None,
        }
    }

    /// The agent.
    pub fn agent(&self) -> &str {
        &self.0.agent
    }

    /// The session's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The session itself as a scope: what is not nested is charged here.
    pub fn root(&self) -> Scope {
        Scope { session: self.clone(), at: SESSION }
    }

    /// A scope inside the session, opened if there is none of this name.
    pub fn scope(&self, name: &str, limits: Limits) -> Result<Scope, ScopeError> {
        self.root().scope(name, limits)
    }

    /// Ends the session, for good: no further call is admitted, calls in flight are cut, its state is
    /// frozen, captures are written. It may be called on any thread and more than once: the first
    /// reason stays.
    ///
    /// It never waits for a server: the server is told in the background, and a file keeps the kill
    /// until it was. [`Session::flush`] waits; [`Health::durability`] says where the kill is kept.
    ///
    /// ```
    /// use deadstop_sdk::{AuthorityState, Session};
    /// let session = Session::builder("mail").open()?;
    /// session.kill("it deletes my mail");
    /// assert!(session.tool("read", &serde_json::json!({})).unwrap_err().is_killed());
    /// assert_eq!(session.health().authority_state, AuthorityState::Killed);
    /// assert_eq!(session.state().kill_reason.as_deref(), Some("it deletes my mail"));
    /// # Ok::<(), deadstop_sdk::OpenError>(())
    /// ```
    pub fn kill(&self, reason: &str) {
        let reason = if reason.trim().is_empty() { "no reason given" } else { reason };
        self.end("the agent's process", reason);
        if let Some(authority) = self.authority() {
            authority.killed(reason);
        }
    }

    /// Ends the guarding of clients: they are again what they were. A session that was killed stays
    /// dead.
    pub fn restore(&self) {
        self.0.restored.store(true, Ordering::Release);
        self.0.captures.flush();
    }

    /// Whether [`Session::restore`] was called.
    pub fn is_restored(&self) -> bool {
        self.0.restored.load(Ordering::Acquire)
    }

    /// Whether it is over.
    pub fn is_killed(&self) -> bool {
        self.tree().killed().is_some()
    }

    /// The signal that is given when it is killed.
    pub fn stop_signal(&self) -> StopSignal {
        self.tree().stop(SESSION)
    }

    /// What it has used. A kill freezes the state: afterwards only calls that were in flight are still
    /// booked.
    pub fn state(&self) -> State {
        let tree = self.tree();
        State::of(self, &tree, self.frozen().clone())
    }

    /// The windows that providers have reported to its agent and that have not begun anew, the
    /// fullest first.
    pub fn quotas(&self) -> Vec<ProviderQuota> {
        let now = self.now();
        self.tree().state(AGENT).quotas(now)
    }

    /// How it is.
    ///
    /// ```
    /// use deadstop_sdk::{Durability, Session, SessionStatus};
    /// let session = Session::builder("a").open()?;
    /// let health = session.health();
    /// assert_eq!(health.status, SessionStatus::Active);
    /// assert_eq!(health.durability, Durability::Process); // there is no server
    /// # Ok::<(), deadstop_sdk::OpenError>(())
    /// ```
    pub fn health(&self) -> Health {
        let killed = self.is_killed();
        let server = self.authority().map(|authority| authority.health());
        let paused = self.tree().state(SESSION).paused().is_some();
        let away = server.as_ref().is_some_and(|server| !server.connected);
        let authority_state = match (killed, away, paused) {
            (true, _, _) => AuthorityState::Killed,
            (false, true, _) => AuthorityState::Unreachable,
            (false, false, true) => AuthorityState::Paused,
            (false, false, false) => AuthorityState::Active,
        };
        let status = match (killed || self.is_restored(), away) {
            (true, _) => SessionStatus::Inactive,
            (false, true) => SessionStatus::Degraded,
            (false, false) => SessionStatus::Active,
        };
        let durability = match &server {
            None => Durability::Process,
            Some(server) if killed && !server.knows_kill => Durability::Pending,
            Some(server) if !killed && !server.connected => Durability::Pending,
            Some(_) => Durability::Server,
        };
        let lost_captures = self.0.captures.lost();
        Health { killed, authority_state, status, durability, server, lost_captures }
    }

    /// The last captures, the oldest first.
    pub fn captures(&self) -> Vec<Capture> {
        self.0.captures.last()
    }

    /// Calls a function once for each trip in any of its scopes: when a guard refuses a call or ends a
    /// scope, and in log-only mode when it would have. It cannot prevent anything; a panic in it is
    /// contained, and calls that it makes itself do not call it again.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use deadstop_sdk::{Limits, Session};
    /// let session = Session::builder("a").limits(Limits::new().max_steps(1)).open()?;
    /// let told = Arc::new(Mutex::new(Vec::new()));
    /// session.on_tripped({
    ///     let told = Arc::clone(&told);
    ///     move |why| told.lock().unwrap().push(why.reason().to_owned())
    /// });
    /// for n in 0..4 {
    ///     let _ = session.tool("look", &serde_json::json!({ "n": n }));
    /// }
    /// assert_eq!(*told.lock().unwrap(), ["max_steps"]);
    /// # Ok::<(), deadstop_sdk::OpenError>(())
    /// ```
    pub fn on_tripped(&self, observer: impl Fn(&Why) + Send + Sync + 'static) {
        self.root().on_tripped(observer);
    }

    /// Calls a function each time the model is steered: see [`Scope::on_steer`].
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use deadstop_sdk::Session;
    /// let session = Session::builder("a").policy("balanced")?.open()?;
    /// let told = Arc::new(Mutex::new(Vec::new()));
    /// session.on_steer({
    ///     let told = Arc::clone(&told);
    ///     move |why| told.lock().unwrap().extend(why.advice.clone())
    /// });
    /// for _ in 0..3 {
    ///     session.tool("look", &serde_json::json!({ "n": 1 }))?.failed("no such page")?;
    /// }
    /// assert_eq!(told.lock().unwrap().len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_steer(&self, observer: impl Fn(&Why) + Send + Sync + 'static) {
        self.root().on_steer(observer);
    }

    /// Puts another policy in force, from the next call on.
    pub fn set_policy(&self, policies: PolicySet) {
        self.tree().follow(Arc::new(policies));
    }

    /// Reads a policy: a preset's name, or a policy as text (TOML, YAML or JSON).
    pub fn parse_policy(text: &str) -> Result<PolicySet, OpenError> {
        match Preset::named(text.trim()) {
            Some(preset) => Ok(preset.policies()),
            None => Ok(policy_file::parse(text, "policy")?),
        }
    }

    /// The policy in force.
    pub fn policies(&self) -> Arc<PolicySet> {
        Arc::clone(self.tree().policies())
    }

    /// Variables with which another process continues this session. With a server both are governed as
    /// one.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        self.root().environment()
    }

    /// Waits, at most so long, until the server has every report and kill, and the disk every capture.
    pub fn flush(&self, most: Duration) {
        self.0.captures.flush();
        if let Some(authority) = self.authority() {
            authority.flush(most);
        }
    }

    /// The same without blocking the thread.
    pub async fn flush_async(&self, most: Duration) {
        let session = self.clone();
        blocking::run(move || session.flush(most)).await;
    }

    /// A copy for a process that is about to be forked off: what was used until now counts, and calls in
    /// flight stay with this process. It is made before the fork, because in the moment of the fork
    /// another thread may hold a lock that the child would wait for without end.
    #[must_use]
    pub fn before_fork(&self) -> Forked {
        let copy = Session(Arc::new(Inner {
            agent: self.0.agent.clone(),
            name: self.0.name.clone(),
            tree: Mutex::new(self.tree().copy()),
            prices: Arc::clone(&self.0.prices),
            clock: Arc::clone(&self.0.clock),
            captures: Captures::default(),
            restored: AtomicBool::new(self.is_restored()),
            frozen: Mutex::new(self.frozen().clone()),
            authority: OnceLock::new(),
            run: uuid::Uuid::now_v7().simple().to_string(),
            calls: AtomicU64::new(0),
            asking: AtomicUsize::new(0),
            watches_answers: self.0.watches_answers,
            state_folder: self.0.state_folder.clone(),
        }));
        let address = self.authority().map(|authority| {
            let folder = self.0.state_folder.clone();
            crate::govern::Address { url: authority.health().url, folder }
        });
        Forked { session: copy, address, parent: self.clone() }
    }

    pub(crate) fn tree(&self) -> MutexGuard<'_, Tree> {
        self.0.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Time {
        (self.0.clock)()
    }

    pub(crate) fn prices(&self) -> &Prices {
        &self.0.prices
    }

    pub(crate) fn authority(&self) -> Option<&Arc<dyn Authority>> {
        self.0.authority.get()
    }

    pub(crate) fn govern(&self, authority: Arc<dyn Authority>) {
        let _ = self.0.authority.set(authority);
    }

    /// An id that no other call has.
    pub(crate) fn call_id(&self) -> String {
        format!("{}-{}", self.0.run, self.0.calls.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether nothing runs, and nothing is about to.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.asking.load(Ordering::Acquire) == 0
            && self.tree().state(SESSION).ledger().in_flight == 0
    }

    fn frozen(&self) -> MutexGuard<'_, Option<Frozen>> {
        self.0.frozen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the session by an order.
    pub(crate) fn end(&self, by: &str, reason: &str) {
        self.end_at(SESSION, by, reason);
    }

    /// Ends the session, its agent or its project by an order.
    pub(crate) fn end_at(&self, at: usize, by: &str, reason: &str) {
        let ended = self.tree().kill(at, by, reason, self.now());
        self.carry_out(ended.into_iter().collect());
    }

    /// The agent or the project was cleared: calls are admitted again, unless the session itself was
    /// killed.
    pub(crate) fn revive(&self) -> bool {
        let mut tree = self.tree();
        let revived = tree.revive();
        if revived && tree.killed().is_none() {
            *self.frozen() = None;
        }
        revived
    }

    /// Carries out what a decision has ended, without any lock: cuts calls, freezes, writes, tells.
    pub(crate) fn carry_out(&self, ended: Vec<Ended>) {
        for Ended { at, name, kill, stops } in ended {
            if at <= SESSION {
                let tree = self.tree();
                self.frozen().get_or_insert_with(|| Frozen::of(&tree));
            }
            stops.iter().for_each(StopSignal::stop);
            self.0.captures.add(Capture {
                at_ms: kill.at.0,
                what: CaptureKind::Killed,
                scope: if at <= SESSION { Vec::new() } else { vec![name.to_string()] },
                name: String::new(),
                verdict: Verdict::Kill,
                why: Some(kill.because.clone()),
                cost_usd: None,
            });
            if at <= SESSION {
                self.0.captures.flush();
                if let Some(authority) = self.authority().filter(|_| kill.guard.is_some()) {
                    authority.killed(&kill.because);
                }
            }
        }
    }

    pub(crate) fn capture(&self, capture: Capture) {
        self.0.captures.add(capture);
    }

    /// Tells observers about trips, without any lock.
    pub(crate) fn tell(&self, at: usize, trips: &[Trip]) {
        if trips.is_empty() {
            return;
        }
        let told = self.tree().observers(at, trips);
        told.into_iter().for_each(|(observer, why)| tell(&observer, &why));
    }

    /// Tells observers about a trip at the server.
    pub(crate) fn tell_why(&self, at: usize, why: &Why) {
        let told = self.tree().observers_of(at, why);
        told.into_iter().for_each(|(observer, why)| tell(&observer, &why));
    }

    /// Tells observers that the server steers the model.
    pub(crate) fn tell_steer(&self, at: usize, why: &Why) {
        let told = self.tree().steer_observers_of(at, why);
        told.into_iter().for_each(|(observer, why)| tell(&observer, &why));
    }
}

thread_local! {
    /// The observers that run on this thread.
    static TELLING: RefCell<Vec<Observer>> = const { RefCell::new(Vec::new()) };
}

/// Calls an observer, unless the trip comes from a call that this observer makes itself.
fn tell(observer: &Observer, why: &Why) {
    let entered = TELLING.with_borrow_mut(|running| {
        let fresh = !running.iter().any(|one| Arc::ptr_eq(one, observer));
        if fresh {
            running.push(Arc::clone(observer));
        }
        fresh
    });
    if entered {
        // A panic in an observer changes nothing here.
        let _ = catch_unwind(AssertUnwindSafe(|| observer(why)));
        TELLING.with_borrow_mut(Vec::pop);
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (agent, session) = (self.agent(), self.name());
        f.debug_struct("Session").field("agent", &agent).field("session", &session).finish()
    }
}

/// A session's copy for a forked process.
#[derive(Debug)]
pub struct Forked {
    session: Session,
    address: Option<crate::govern::Address>,
    parent: Session,
}

impl Forked {
    /// The session in the child: a server is asked anew. The parent's session stays in memory untouched:
    /// ending it here could wait for a lock that no thread of the child will ever release.
    #[must_use]
    pub fn session(self) -> Session {
        std::mem::forget(self.parent);
        if let Some(address) = &self.address {
            crate::govern::connect_later(&self.session, address);
        }
        self.session
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(authority) = self.authority.get() {
            authority.close();
        }
    }
}

impl Builder {
    /// Names the session; one is made up if none is given.
    #[must_use]
    pub fn session(mut self, name: impl Into<String>) -> Builder {
        self.session = Some(name.into());
        self
    }

    /// The policy: a preset's name, or a policy as text (TOML, YAML or JSON).
    pub fn policy(self, text: &str) -> Result<Builder, OpenError> {
        Ok(self.policies(Session::parse_policy(text)?))
    }

    /// The policy, ready made.
    #[must_use]
    pub fn policies(mut self, policies: PolicySet) -> Builder {
        self.policies = Some(policies);
        self
    }

    /// Whether verdicts are carried out. It overrides the policy's mode.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Builder {
        self.mode = Some(mode);
        self
    }

    /// The same, by its name: `enforce`, or `log-only`.
    pub fn mode_named(self, mode: &str) -> Result<Builder, OpenError> {
        match mode {
            "enforce" => Ok(self.mode(Mode::Enforce)),
            "log-only" | "log_only" | "shadow" => Ok(self.mode(Mode::LogOnly)),
            other => Err(OpenError::Mode(other.to_owned())),
        }
    }

    /// Limits of the session, beside those of its policy.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Builder {
        self.limits = limits;
        self
    }

    /// What a model charges, in dollars per million tokens of input and output.
    #[must_use]
    pub fn price(mut self, model: impl Into<String>, input: f64, output: f64) -> Builder {
        self.prices.insert(model.into(), (input, output));
        self
    }

    /// A file that gets a line for everything that happens.
    #[must_use]
    pub fn captures(mut self, path: impl Into<PathBuf>) -> Builder {
        self.captures = Some(path.into());
        self
    }

    /// Another clock, for tests.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Builder {
        self.clock = Some(clock);
        self
    }

    /// Calls a function once for each trip: see [`Session::on_tripped`].
    #[must_use]
    pub fn on_tripped(mut self, observer: impl Fn(&Why) + Send + Sync + 'static) -> Builder {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Calls a function each time the model is steered: see [`Session::on_steer`].
    #[must_use]
    pub fn on_steer(mut self, observer: impl Fn(&Why) + Send + Sync + 'static) -> Builder {
        self.steer_observer = Some(Arc::new(observer));
        self
    }

    /// Whether tool calls are judged when a model's answer asks for them (the default), or only where
    /// they run.
    #[must_use]
    pub fn watch_answers(mut self, watch: bool) -> Builder {
        self.watches_answers = watch;
        self
    }

    /// A server that governs the session, over all processes that use it: its address, such as `http://127.0.0.1:4141`. A key comes
    /// from `DEADSTOP_KEY` or `DEADSTOP_KEY_FILE`, a project from `DEADSTOP_PROJECT`.
    #[must_use]
    pub fn server(mut self, url: impl Into<String>) -> Builder {
        self.server = Some(url.into());
        self
    }

    /// Where kills are kept until the server has them; below `$XDG_STATE_HOME` if not given.
    #[must_use]
    pub fn state_folder(mut self, folder: impl Into<PathBuf>) -> Builder {
        self.state_folder = Some(folder.into());
        self
    }

    /// Opens it.
    pub fn open(self) -> Result<Session, OpenError> {
        let name = self.session.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        for given in [&self.agent, &name] {
            if identity::name(given).as_ref() != Some(given) {
                return Err(OpenError::Name(given.chars().take(200).collect()));
            }
        }
        self.limits.check()?;
        let prices = price_list(self.prices)?;
        let captures = match &self.captures {
            None => Captures::default(),
            Some(path) => Captures::to(path).map_err(|source| OpenError::Captures {
                path: path.display().to_string(),
                source,
            })?,
        };
        let clock = self.clock.unwrap_or_else(|| Arc::new(system_time));
        let policies = Arc::new(self.policies.unwrap_or_else(|| Preset::default().policies()));
        let mut tree = Tree::new(["default", &self.agent, &name], policies, self.mode, clock());
        tree.limit(SESSION, self.limits);
        if let Some(observer) = self.observer {
            tree.observe(SESSION, observer);
        }
        if let Some(observer) = self.steer_observer {
            tree.observe_steers(SESSION, observer);
        }
        let session = Session(Arc::new(Inner {
            agent: self.agent,
            name,
            tree: Mutex::new(tree),
            prices,
            clock,
            captures,
            restored: AtomicBool::new(false),
            frozen: Mutex::default(),
            authority: OnceLock::new(),
            run: uuid::Uuid::now_v7().simple().to_string(),
            calls: AtomicU64::new(0),
            asking: AtomicUsize::new(0),
            watches_answers: self.watches_answers,
            state_folder: self.state_folder.clone(),
        }));
        if let Some(url) = self.server {
            let address = crate::govern::Address { url, folder: self.state_folder };
            crate::govern::connect(&session, &address)?;
        }
        Ok(session)
    }
}

/// Unpacking the catalogue takes a while, so all sessions share one; own prices are laid over it.
fn price_list(own: HashMap<String, (f64, f64)>) -> Result<Arc<Prices>, OpenError> {
    static BUILTIN: OnceLock<Arc<Prices>> = OnceLock::new();
    if own.is_empty() {
        return Ok(Arc::clone(BUILTIN.get_or_init(|| Arc::new(Prices::builtin()))));
    }
    let mut table = Vec::with_capacity(own.len());
    for (model, (input, output)) in own {
        let (Some(input), Some(output)) =
            (NanoUsd::from_dollars(input), NanoUsd::from_dollars(output))
        else {
            return Err(OpenError::Price(model));
        };
        table.push((model, Rates { input, output, cache_read: input, cache_write: input }));
    }
    Ok(Arc::new(Prices::builtin().with_own(table)))
}

fn system_time() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
