//! A session: one run of an agent in this process, with its policy, its scopes and its kill switch.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deadstop_core::{Mode, NanoUsd, PolicySet, Preset, Rates, Time, Trip, Verdict};
use deadstop_protocol::llm::identity;
use deadstop_protocol::policy_file::{self, PolicyError};
use deadstop_protocol::prices::Prices;

use crate::authority::Authority;
use crate::capture::{Capture, Captures};
use crate::health::{Health, State};
use crate::limits::{BadLimit, Limits};
use crate::refused::Why;
use crate::scope::Scope;
use crate::stop::Stop;
use crate::tree::{Ended, Observer, SESSION, ScopeError, Tree};

/// Tells the time: the system's, or in a test whatever it likes.
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
    frozen: OnceLock<State>,
    authority: OnceLock<Arc<dyn Authority>>,
    /// Makes the ids of calls.
    run: String,
    calls: AtomicU64,
    /// Calls about which a server is being asked.
    pub(crate) asking: AtomicUsize,
    /// Whether tool calls are looked at in the answers that ask for them.
    pub(crate) watches_answers: bool,
}

/// A session that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
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
    /// The server, which answered with a refusal.
    #[error("the server refuses this session: {0}")]
    Server(String),
}

fn hinted(error: &PolicyError) -> String {
    match &error.hint {
        Some(hint) => format!("{error}; hint: {hint}"),
        None => error.to_string(),
    }
}

/// What a session is opened with.
pub struct Builder {
    agent: String,
    session: Option<String>,
    pub(crate) policies: Option<PolicySet>,
    mode: Option<Mode>,
    limits: Limits,
    prices: HashMap<String, (f64, f64)>,
    captures: Option<PathBuf>,
    clock: Option<Clock>,
    observer: Option<Observer>,
    watches_answers: bool,
    pub(crate) server: Option<crate::govern::Address>,
}

impl Session {
    /// Begins a session of an agent.
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
            watches_answers: true,
            server: None,
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

    /// Ends the session, for good: nothing more is let through, calls in flight are cut, its state
    /// stands still, captures are written. Where there is a server the end lasts there; see
    /// [`Health::durability`]. May be said from anywhere, and more than once: the first reason stays.
    pub fn kill(&self, reason: &str) {
        let reason = if reason.trim().is_empty() { "no reason given" } else { reason };
        self.end("the agent's process", reason);
        if let Some(authority) = self.authority() {
            authority.killed(reason, true);
        }
    }

    /// Lets go of the clients that it guards; they are again what they were. The session itself
    /// stays what it is: one that was killed stays dead.
    pub fn restore(&self) {
        self.0.restored.store(true, Ordering::Release);
        self.0.captures.flush();
        if let Some(authority) = self.authority() {
            authority.flush(Duration::from_secs(1));
        }
    }

    /// Whether its clients were let go.
    pub fn is_restored(&self) -> bool {
        self.0.restored.load(Ordering::Acquire)
    }

    /// Whether it is over.
    pub fn is_killed(&self) -> bool {
        self.0.frozen.get().is_some() || self.tree().killed().is_some()
    }

    /// The stop that comes when it is killed.
    pub fn stop(&self) -> Stop {
        self.tree().stop(SESSION)
    }

    /// What it has used so far. After a kill: what it had used by then.
    pub fn state(&self) -> State {
        if let Some(frozen) = self.0.frozen.get() {
            return frozen.clone();
        }
        State::of(self, &self.tree())
    }

    /// How it is.
    pub fn health(&self) -> Health {
        let killed = self.is_killed();
        let server = self.authority().map(|authority| authority.health());
        let paused = self.tree().state(SESSION).paused().is_some();
        let away = server.as_ref().is_some_and(|server| !server.connected);
        let authority_state = match (killed, away, paused) {
            (true, _, _) => "killed",
            (false, true, _) => "unreachable",
            (false, false, true) => "paused",
            (false, false, false) => "active",
        };
        let status = match (killed || self.is_restored(), away) {
            (true, _) => "inactive",
            (false, true) => "degraded",
            (false, false) => "active",
        };
        let durability = match &server {
            None => "process",
            Some(server) if killed && !server.knows_kill => "pending",
            Some(server) if !killed && !server.connected => "pending",
            Some(_) => "server",
        };
        let lost_captures = self.0.captures.lost();
        Health { killed, authority_state, status, durability, server, lost_captures }
    }

    /// The last captures, the oldest first.
    pub fn captures(&self) -> Vec<Capture> {
        self.0.captures.last()
    }

    /// Has a function told of everything that trips, in any of its scopes. It cannot prevent
    /// anything, and if it panics nothing happens but that.
    pub fn on_tripped(&self, observer: impl Fn(&Why) + Send + Sync + 'static) {
        self.root().on_tripped(observer);
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

    /// Where other processes find this session: variables for their environment. With a server they
    /// are governed as one.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        self.root().environment()
    }

    /// Waits, at most so long, until what happened is at the server and on disk.
    pub fn flush(&self, most: Duration) {
        self.0.captures.flush();
        if let Some(authority) = self.authority() {
            authority.flush(most);
        }
    }

    /// The same session for a process that was forked off: what was used until then counts, calls
    /// in flight stay with the parent, and a server is asked anew.
    #[must_use]
    pub fn forked(&self) -> Session {
        let copy = Session(Arc::new(Inner {
            agent: self.0.agent.clone(),
            name: self.0.name.clone(),
            tree: Mutex::new(self.tree().copy()),
            prices: Arc::clone(&self.0.prices),
            clock: Arc::clone(&self.0.clock),
            captures: Captures::default(),
            restored: AtomicBool::new(self.is_restored()),
            frozen: self.0.frozen.clone(),
            authority: OnceLock::new(),
            run: uuid::Uuid::now_v7().simple().to_string(),
            calls: AtomicU64::new(0),
            asking: AtomicUsize::new(0),
            watches_answers: self.0.watches_answers,
        }));
        if let Some(authority) = self.authority() {
            let address = crate::govern::Address { url: authority.health().url };
            crate::govern::connect_later(&copy, address);
        }
        copy
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

    /// Ends the session by somebody's word.
    pub(crate) fn end(&self, by: &str, reason: &str) {
        let mut tree = self.tree();
        let ended = tree.kill(SESSION, by, reason, self.now());
        drop(tree);
        self.carry_out(ended.into_iter().collect());
    }

    /// Carries out what a decision has ended, without any lock: cuts calls, freezes, writes, tells.
    pub(crate) fn carry_out(&self, ended: Vec<Ended>) {
        for Ended { at, name, kill, stops } in ended {
            if at <= SESSION {
                let state = State::of(self, &self.tree());
                let _ = self.0.frozen.set(state);
            }
            stops.iter().for_each(Stop::stop);
            self.0.captures.add(Capture {
                at_ms: kill.at.0,
                what: "killed",
                scope: if at <= SESSION { Vec::new() } else { vec![name.to_string()] },
                name: String::new(),
                verdict: Verdict::Kill,
                why: Some(kill.because.clone()),
                cost_usd: None,
            });
            if at <= SESSION {
                self.0.captures.flush();
                // A guard's kill is no reason for the call that it refuses to wait.
                if let Some(authority) = self.authority().filter(|_| kill.guard.is_some()) {
                    authority.killed(&kill.because, false);
                }
            }
        }
    }

    pub(crate) fn capture(&self, capture: Capture) {
        self.0.captures.add(capture);
    }

    /// Tells observers of trips, without any lock. What they do is their own business.
    pub(crate) fn tell(&self, at: usize, trips: &[Trip]) {
        if trips.is_empty() {
            return;
        }
        let told = self.tree().observers(at, trips);
        for (observer, why) in told {
            let _ = catch_unwind(AssertUnwindSafe(|| observer(&why)));
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (agent, session) = (self.agent(), self.name());
        f.debug_struct("Session").field("agent", &agent).field("session", &session).finish()
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

    /// Whether verdicts are carried out, whatever the policy says.
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

    /// Has a function told of everything that trips.
    #[must_use]
    pub fn on_tripped(mut self, observer: impl Fn(&Why) + Send + Sync + 'static) -> Builder {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Whether tool calls are judged when a model's answer asks for them (they are), or only where
    /// they run.
    #[must_use]
    pub fn watch_answers(mut self, watch: bool) -> Builder {
        self.watches_answers = watch;
        self
    }

    /// A server that has the last word: its address, such as `http://127.0.0.1:4141`. A key comes
    /// from `DEADSTOP_KEY` or `DEADSTOP_KEY_FILE`, a project from `DEADSTOP_PROJECT`.
    #[must_use]
    pub fn server(mut self, url: impl Into<String>) -> Builder {
        self.server = Some(crate::govern::Address { url: url.into() });
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
        let session = Session(Arc::new(Inner {
            agent: self.agent,
            name,
            tree: Mutex::new(tree),
            prices,
            clock,
            captures,
            restored: AtomicBool::new(false),
            frozen: OnceLock::new(),
            authority: OnceLock::new(),
            run: uuid::Uuid::now_v7().simple().to_string(),
            calls: AtomicU64::new(0),
            asking: AtomicUsize::new(0),
            watches_answers: self.watches_answers,
        }));
        if let Some(address) = self.server {
            crate::govern::connect(&session, address)?;
        }
        Ok(session)
    }
}

/// The catalogue takes a while to unpack, so that all sessions share one; own prices go on top.
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
