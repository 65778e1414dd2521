//! A session of the engine, its scopes, and the tools that are called in it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadstop_sdk::{
    Exchange, Limits, OpenError, Refused, Running, Scope, Session, Settled, StopSignal, Time,
    Watch, blocking,
};
use napi::bindgen_prelude::{Either, Function, Object, ToNapiValue};
use napi::{Env, Result};
use napi_derive::napi;
use serde::Deserialize;
use serde_json::Value;

use crate::convert::{limits, mistake, plain, refusal, status};
use crate::model::Door;
use crate::slab::Slab;
use crate::trips::Trips;

/// A number with flags below it, or a refusal as JSON.
pub(crate) type Decided = Either<u32, String>;

/// Trips wait to be told, or something was stopped.
pub(crate) const TRIPS: u32 = 1;
/// Another body is to be sent.
pub(crate) const BODY: u32 = 2;
/// At a call's end: the model is to be told something, see `note`.
pub(crate) const ADVICE: u32 = 2;
/// Flags take so many bits.
pub(crate) const FLAGS: u32 = 2;

/// What a session is opened with.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Options {
    agent: String,
    session: Option<String>,
    policy: Option<String>,
    mode: Option<String>,
    server: Option<String>,
    limits: Limits,
    captures: Option<PathBuf>,
    prices: HashMap<String, (f64, f64)>,
    watch_answers: bool,
    clock: Option<u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            agent: String::new(),
            session: None,
            policy: None,
            mode: None,
            server: None,
            limits: Limits::default(),
            captures: None,
            prices: HashMap::new(),
            watch_answers: true,
            clock: None,
        }
    }
}

/// Scopes that were opened, by their numbers and by their paths.
struct Scopes {
    list: Vec<Scope>,
    numbers: HashMap<Vec<String>, u32>,
}

/// What threads share.
pub(crate) struct Shared {
    pub(crate) session: Session,
    scopes: Mutex<Scopes>,
    running: Mutex<Slab<Running>>,
    /// In boxes: they are large, and change hands often.
    exchanges: Mutex<Slab<Box<Exchange>>>,
    doors: Mutex<HashMap<u32, Arc<Door>>>,
    pub(crate) trips: Arc<Trips>,
    watched: Mutex<Watched>,
    /// How the tool call that ended last was settled.
    last: Mutex<Settled>,
}

/// The session's stop signal, and the callback that waits for it.
struct Watched {
    signal: StopSignal,
    _watch: Watch,
}

impl Watched {
    fn new(session: &Session, trips: &Arc<Trips>) -> Watched {
        let (signal, trips) = (session.stop_signal(), Arc::clone(trips));
        let watch = signal.on_stop(move || trips.wake());
        Watched { signal, _watch: watch }
    }
}

impl Shared {
    pub(crate) fn scope(&self, number: u32) -> Result<Scope> {
        let scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        scopes.list.get(number as usize).cloned().ok_or_else(|| mistake("there is no such scope"))
    }

    pub(crate) fn running(&self) -> MutexGuard<'_, Slab<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn exchanges(&self) -> MutexGuard<'_, Slab<Box<Exchange>>> {
        self.exchanges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn doors(&self) -> MutexGuard<'_, HashMap<u32, Arc<Door>>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn door(&self, number: u32) -> Result<Arc<Door>> {
        self.doors().get(&number).cloned().ok_or_else(|| mistake("there is no such door"))
    }

    fn last(&self) -> MutexGuard<'_, Settled> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session that was revived has another stop signal, which is to be watched.
    pub(crate) fn watch_again(&self) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.signal.is_stopped() && !self.session.is_killed() {
            *watched = Watched::new(&self.session, &self.trips);
        }
    }

    /// Flags for what has just been decided.
    pub(crate) fn flags(&self) -> u32 {
        if self.trips.any() { TRIPS } else { 0 }
    }

    pub(crate) fn settled(
        &self,
        settled: std::result::Result<(), deadstop_sdk::Refused>,
    ) -> Decided {
        match settled {
            Ok(()) => Either::A(self.flags()),
            Err(refused) => Either::B(refusal(&refused)),
        }
    }

    fn tool(&self, scope: &Scope, name: &str, server: Option<&str>, arguments: &Value) -> Decided {
        match scope.tool_on(name, server, arguments) {
            Ok(running) => {
                self.watch_again();
                let number = self.running().put(running);
                Either::A(number << FLAGS | self.flags())
            }
            Err(refused) => Either::B(refusal(&refused)),
        }
    }
}

/// Works on another thread, and gives a promise of what comes of it.
pub(crate) fn later<'env, T: ToNapiValue + Send + 'static>(
    env: &'env Env,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Object<'env>> {
    type Resolver<T> = Box<dyn FnOnce(Env) -> Result<T> + Send>;
    let (deferred, promise) = env.create_deferred::<T, Resolver<T>>()?;
    blocking::spawn(move || {
        let done = work();
        deferred.resolve(Box::new(move |_| Ok(done)));
    });
    Ok(promise)
}

/// A session.
#[napi]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    /// For tests that say what time it is.
    clock: Arc<AtomicU64>,
    governed: bool,
}

#[napi]
impl Engine {
    /// Opens a session. `wake` is called when something has happened on another thread, which only a
    /// session with a server has: a session without one is lighter, and is collected sooner.
    #[napi(constructor)]
    pub fn new(options: String, wake: Option<Function<'_, (), ()>>) -> Result<Engine> {
        let options: Options = serde_json::from_str(&options).map_err(mistake)?;
        let mut builder = Session::builder(options.agent)
            .limits(options.limits)
            .watch_answers(options.watch_answers);
        if let Some(session) = options.session {
            builder = builder.session(session);
        }
        if let Some(policy) = &options.policy {
            builder = builder.policy(policy).map_err(mistake)?;
        }
        if let Some(mode) = &options.mode {
            builder = builder.mode_named(mode).map_err(mistake)?;
        }
        if let Some(captures) = options.captures {
            builder = builder.captures(captures);
        }
        for (model, (input, output)) in options.prices {
            builder = builder.price(model, input, output);
        }
        let clock = Arc::new(AtomicU64::new(options.clock.unwrap_or_default()));
        if options.clock.is_some() {
            let clock = Arc::clone(&clock);
            builder = builder.clock(Arc::new(move || Time(clock.load(Ordering::SeqCst))));
        }
        let governed = options.server.is_some();
        if let Some(server) = options.server {
            builder = builder.server(server);
        }
        let session = builder.open().map_err(|error| match error {
            // The refusal as JSON: the package throws the kill.
            OpenError::Killed(killed) => mistake(refusal(&Refused::Killed(killed))),
            other => mistake(other),
        })?;
        let trips = Arc::new(Trips::new(wake)?);
        let watched = Mutex::new(Watched::new(&session, &trips));
        let root = session.root();
        let shared = Arc::new(Shared {
            session,
            scopes: Mutex::new(Scopes {
                list: vec![root],
                numbers: HashMap::from([(Vec::new(), 0)]),
            }),
            running: Mutex::default(),
            exchanges: Mutex::default(),
            doors: Mutex::default(),
            trips,
            watched,
            last: Mutex::default(),
        });
        Ok(Engine { shared, clock, governed })
    }

    /// The agent.
    #[napi(getter)]
    pub fn agent(&self) -> String {
        self.shared.session.agent().to_owned()
    }

    /// The session's name.
    #[napi(getter)]
    pub fn name(&self) -> String {
        self.shared.session.name().to_owned()
    }

    /// Whether a server has the last word, so that decisions are better made `later`.
    #[napi(getter)]
    pub fn governed(&self) -> bool {
        self.governed
    }

    /// Whether it is over.
    #[napi(getter)]
    pub fn killed(&self) -> bool {
        self.shared.session.is_killed()
    }

    /// Ends a scope, or with 0 the session. It does not wait for a server: see `flush_later`.
    #[napi]
    pub fn kill(&self, scope: u32, reason: String) -> Result<()> {
        self.shared.scope(scope)?.kill(&reason);
        Ok(())
    }

    /// The agent's context in a scope, or with 0 in the session, was compacted.
    #[napi]
    pub fn compacted(&self, scope: u32) -> Result<()> {
        self.shared.scope(scope)?.compacted();
        Ok(())
    }

    /// Ends the guarding of clients.
    #[napi]
    pub fn restore(&self) {
        self.shared.session.restore();
    }

    /// Waits, at most so long, until what happened is at the server and on disk.
    #[napi]
    pub fn flush(&self, millis: u32) {
        self.shared.session.flush(Duration::from_millis(millis.into()));
    }

    /// The same on another thread.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn flush_later<'env>(&self, env: &'env Env, millis: u32) -> Result<Object<'env>> {
        let shared = Arc::clone(&self.shared);
        later(env, move || shared.session.flush(Duration::from_millis(millis.into())))
    }

    /// What it has used, as JSON.
    #[napi]
    pub fn state(&self) -> String {
        plain(&self.shared.session.state())
    }

    /// How it is, as JSON.
    #[napi]
    pub fn health(&self) -> String {
        plain(&self.shared.session.health())
    }

    /// The windows that providers have reported, as JSON.
    #[napi]
    pub fn quotas(&self) -> String {
        let windows = self.shared.session.quotas().into_iter().map(deadstop_sdk::Window::from);
        plain(&windows.collect::<Vec<_>>())
    }

    /// What happened last, as JSON.
    #[napi]
    pub fn captures(&self) -> String {
        plain(&self.shared.session.captures())
    }

    /// Puts another policy in force.
    #[napi]
    pub fn set_policy(&self, policy: String) -> Result<()> {
        let policies = Session::parse_policy(&policy).map_err(mistake)?;
        self.shared.session.set_policy(policies);
        Ok(())
    }

    /// Says what time it is, where a clock was given.
    #[napi]
    pub fn set_clock(&self, millis: f64) {
        self.clock.store(millis as u64, Ordering::SeqCst);
    }

    /// Opens a scope inside another; limits as JSON.
    #[napi]
    pub fn scope(&self, parent: u32, name: String, typed: String) -> Result<u32> {
        let scope = self.shared.scope(parent)?.scope(&name, limits(&typed)?).map_err(mistake)?;
        let path = scope.path();
        let mut scopes = self.shared.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = scopes.numbers.get(&path) {
            return Ok(*number);
        }
        let number = u32::try_from(scopes.list.len()).map_err(mistake)?;
        scopes.list.push(scope);
        scopes.numbers.insert(path, number);
        Ok(number)
    }

    /// A scope's names inside the session.
    #[napi]
    pub fn path(&self, scope: u32) -> Result<Vec<String>> {
        Ok(self.shared.scope(scope)?.path())
    }

    /// A scope's limits, as JSON.
    #[napi]
    pub fn limits(&self, scope: u32) -> Result<String> {
        Ok(plain(&self.shared.scope(scope)?.limits()))
    }

    /// Sets all limits of a scope.
    #[napi]
    pub fn set_limits(&self, scope: u32, typed: String) -> Result<()> {
        self.shared.scope(scope)?.replace_limits(limits(&typed)?).map_err(mistake)
    }

    /// What a scope has used, as JSON.
    #[napi]
    pub fn figures(&self, scope: u32) -> Result<String> {
        Ok(plain(&self.shared.scope(scope)?.figures()))
    }

    /// Whether a scope, or anything above it, is over.
    #[napi]
    pub fn is_stopped(&self, scope: u32) -> Result<bool> {
        Ok(self.shared.scope(scope)?.stop_signal().is_stopped())
    }

    /// Whether a scope, or anything above it, was ended, also if calls in flight may finish.
    #[napi]
    pub fn is_over(&self, scope: u32) -> Result<bool> {
        let (state, path) = (self.shared.session.state(), self.shared.scope(scope)?.path());
        Ok(state.killed || state.scopes.iter().any(|one| one.killed && path.starts_with(&one.path)))
    }

    /// Why a scope is over: a refusal as JSON.
    #[napi]
    pub fn why(&self, scope: u32) -> Result<String> {
        Ok(refusal(&self.shared.scope(scope)?.why_stopped()))
    }

    /// Variables with which another process continues in a scope.
    #[napi]
    pub fn environment(&self, scope: u32) -> Result<HashMap<String, String>> {
        let all = self.shared.scope(scope)?.environment();
        Ok(all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Has steers in a scope kept for an observer: see `take_trips`.
    #[napi]
    pub fn observe_steers(&self, scope: u32, observer: u32) -> Result<()> {
        let trips = Arc::clone(&self.shared.trips);
        self.shared.scope(scope)?.on_steer(move |why| trips.add(observer, why));
        Ok(())
    }

    /// Has trips of a scope kept for an observer: see `take_trips`.
    #[napi]
    pub fn observe(&self, scope: u32, observer: u32) -> Result<()> {
        let trips = Arc::clone(&self.shared.trips);
        self.shared.scope(scope)?.on_tripped(move |why| trips.add(observer, why));
        Ok(())
    }

    /// Trips that wait to be told, as JSON.
    #[napi]
    pub fn take_trips(&self) -> String {
        self.shared.trips.take().to_string()
    }

    /// May a tool be called? Arguments as JSON.
    #[napi(ts_return_type = "number | string")]
    pub fn tool(
        &self,
        scope: u32,
        name: String,
        server: Option<String>,
        arguments: String,
    ) -> Result<Decided> {
        let arguments = serde_json::from_str(&arguments).map_err(mistake)?;
        let scope = self.shared.scope(scope)?;
        Ok(self.shared.tool(&scope, &name, server.as_deref(), &arguments))
    }

    /// The same, where a server is asked.
    #[napi(ts_return_type = "Promise<number | string>")]
    pub fn tool_later<'env>(
        &self,
        env: &'env Env,
        scope: u32,
        name: String,
        server: Option<String>,
        arguments: String,
    ) -> Result<Object<'env>> {
        let arguments: Value = serde_json::from_str(&arguments).map_err(mistake)?;
        let (shared, scope) = (Arc::clone(&self.shared), self.shared.scope(scope)?);
        later(env, move || shared.tool(&scope, &name, server.as_deref(), &arguments))
    }

    /// A tool's call has ended: 0 well, 1 with an error, 2 without an answer, 3 broken off.
    #[napi(ts_return_type = "number | string")]
    pub fn end(&self, call: u32, how: u32, text: String) -> Decided {
        let taken = self.shared.running().take(call);
        let Some(running) = taken else { return Either::A(self.shared.flags()) };
        match running.end(status(how), &text) {
            Ok(settled) => {
                let told = if settled.advice.is_some() { ADVICE } else { 0 };
                *self.shared.last() = settled;
                Either::A(self.shared.flags() | told)
            }
            Err(refused) => Either::B(refusal(&refused)),
        }
    }

    /// What the model is to be told behind the result of the call that ended last.
    #[napi]
    pub fn note(&self) -> Option<String> {
        self.shared.last().note()
    }

    /// Leaves that to the guarded client whose model asked for the call; false if there is none.
    #[napi]
    pub fn leave_note(&self) -> bool {
        self.shared.last().leave_to_client()
    }
}
