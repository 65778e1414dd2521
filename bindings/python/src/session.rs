//! Sessions and scopes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadstop_sdk::{Api, Limits, ModelAsk, Outgoing, Refused, Time, Why, api_of};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat};

use crate::call::{Exchange, Running, Stop};
use crate::convert::{plain, to_json};
use crate::refused::{mistake, open_error, refused, scope_error, trip};

/// A session of the engine.
#[pyclass(frozen, module = "deadstop._native")]
pub(crate) struct Session {
    session: deadstop_sdk::Session,
    governed: bool,
    /// For tests that say what time it is.
    clock: Arc<AtomicU64>,
}

/// A session's copy for a forked process.
#[pyclass(frozen, module = "deadstop._native")]
pub(crate) struct Forked {
    copy: Mutex<Option<deadstop_sdk::Forked>>,
    governed: bool,
    clock: Arc<AtomicU64>,
}

#[pymethods]
impl Forked {
    /// The session in the child; nothing at a second time.
    fn session(&self) -> Option<Session> {
        let copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let session = copy.session();
        Some(Session { session, governed: self.governed, clock: Arc::clone(&self.clock) })
    }
}

/// A scope of a session.
#[pyclass(frozen, module = "deadstop._native")]
pub(crate) struct Scope {
    scope: deadstop_sdk::Scope,
    governed: bool,
}

fn limits_of(py: Python<'_>, limits: Option<&Bound<'_, PyDict>>) -> PyResult<Limits> {
    let Some(limits) = limits else { return Ok(Limits::default()) };
    for (name, limit) in limits.iter() {
        if limit.cast::<PyFloat>().is_ok_and(|limit| !limit.value().is_finite()) {
            return Err(mistake(
                py,
                format!("{name}: {limit} is not a limit; leave it out for no limit"),
            ));
        }
    }
    serde_json::from_value(to_json(limits, 0)).map_err(|error| mistake(py, error.to_string()))
}

fn observer(callback: Py<PyAny>) -> impl Fn(&Why) + Send + Sync + 'static {
    move |why: &Why| {
        // An exception in it is reported and changes nothing.
        Python::try_attach(|py| {
            let told = trip(py, why).and_then(|trip| callback.call1(py, (trip,)));
            if let Err(error) = told {
                error.write_unraisable(py, None);
            }
        });
    }
}

#[pymethods]
impl Session {
    #[new]
    #[pyo3(signature = (agent, session=None, policy=None, mode=None, server=None, limits=None,
        captures=None, prices=None, watch_answers=true, clock=None))]
    #[expect(clippy::too_many_arguments, reason = "Python has keywords for them")]
    fn new(
        py: Python<'_>,
        agent: String,
        session: Option<String>,
        policy: Option<&str>,
        mode: Option<&str>,
        server: Option<String>,
        limits: Option<&Bound<'_, PyDict>>,
        captures: Option<String>,
        prices: Option<HashMap<String, (f64, f64)>>,
        watch_answers: bool,
        clock: Option<u64>,
    ) -> PyResult<Session> {
        let open = |error: deadstop_sdk::OpenError| open_error(py, &error);
        let mut builder = deadstop_sdk::Session::builder(agent)
            .limits(limits_of(py, limits)?)
            .watch_answers(watch_answers);
        if let Some(session) = session {
            builder = builder.session(session);
        }
        if let Some(policy) = policy {
            builder = builder.policy(policy).map_err(open)?;
        }
        if let Some(mode) = mode {
            builder = builder.mode_named(mode).map_err(open)?;
        }
        if let Some(captures) = captures {
            builder = builder.captures(captures);
        }
        for (model, (input, output)) in prices.unwrap_or_default() {
            builder = builder.price(model, input, output);
        }
        let time = Arc::new(AtomicU64::new(clock.unwrap_or_default()));
        if clock.is_some() {
            let time = Arc::clone(&time);
            builder = builder.clock(Arc::new(move || Time(time.load(Ordering::SeqCst))));
        }
        let governed = server.is_some();
        if let Some(server) = server {
            builder = builder.server(server);
        }
        let session = py.detach(|| builder.open()).map_err(open)?;
        Ok(Session { session, governed, clock: time })
    }

    #[getter]
    fn agent(&self) -> &str {
        self.session.agent()
    }

    #[getter]
    fn name(&self) -> &str {
        self.session.name()
    }

    #[getter]
    fn governed(&self) -> bool {
        self.governed
    }

    #[getter]
    fn killed(&self) -> bool {
        self.session.is_killed()
    }

    fn root(&self) -> Scope {
        Scope { scope: self.session.root(), governed: self.governed }
    }

    /// Ends it. Then waits, so many seconds at most, until the server has the kill.
    #[pyo3(signature = (reason, seconds=0.0))]
    fn kill(&self, py: Python<'_>, reason: &str, seconds: f64) {
        let most = Duration::try_from_secs_f64(seconds.clamp(0.0, 1e6)).unwrap_or_default();
        py.detach(|| {
            self.session.kill(reason);
            if !most.is_zero() {
                self.session.flush(most);
            }
        });
    }

    fn restore(&self, py: Python<'_>) {
        py.detach(|| self.session.restore());
    }

    fn flush(&self, py: Python<'_>, seconds: f64) {
        let most = Duration::try_from_secs_f64(seconds.clamp(0.0, 1e6)).unwrap_or_default();
        py.detach(|| self.session.flush(most));
    }

    fn stop(&self) -> Stop {
        Stop(self.session.stop_signal())
    }

    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        plain(py, &self.session.state())
    }

    fn health<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        plain(py, &self.session.health())
    }

    fn quotas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let windows = self.session.quotas().into_iter().map(deadstop_sdk::Window::from);
        plain(py, &windows.collect::<Vec<_>>())
    }

    fn captures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        plain(py, &self.session.captures())
    }

    /// Puts another policy in force.
    fn set_policy(&self, py: Python<'_>, policy: &str) -> PyResult<()> {
        let open = |error: deadstop_sdk::OpenError| open_error(py, &error);
        let policies = deadstop_sdk::Session::parse_policy(policy).map_err(open)?;
        self.session.set_policy(policies);
        Ok(())
    }

    /// A copy for a process that is about to be forked off.
    fn before_fork(&self) -> Forked {
        Forked {
            copy: Mutex::new(Some(self.session.before_fork())),
            governed: self.governed,
            clock: Arc::clone(&self.clock),
        }
    }

    /// Says what time it is, where a clock was given.
    fn set_clock(&self, millis: u64) {
        self.clock.store(millis, Ordering::SeqCst);
    }
}

impl Scope {
    /// Decides; lets others run meanwhile if that may wait for a server.
    fn decide<T: Send>(
        &self,
        py: Python<'_>,
        decide: impl FnOnce(&deadstop_sdk::Scope) -> Result<T, Refused> + Send,
    ) -> PyResult<T> {
        let decided = match self.governed {
            true => py.detach(|| decide(&self.scope)),
            false => decide(&self.scope),
        };
        decided.map_err(|error| refused(py, &error))
    }

    fn running(&self, running: deadstop_sdk::Running) -> Running {
        let stop = running.stop_signal().clone();
        Running {
            running: Mutex::new(Some(running)),
            stop,
            governed: self.governed,
            settled: Mutex::default(),
        }
    }
}

#[pymethods]
impl Scope {
    #[getter]
    fn name(&self) -> String {
        self.scope.name()
    }

    #[getter]
    fn path(&self) -> Vec<String> {
        self.scope.path()
    }

    #[pyo3(signature = (name, limits=None))]
    fn scope(
        &self,
        py: Python<'_>,
        name: &str,
        limits: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Scope> {
        let limits = limits_of(py, limits)?;
        let scope = self.scope.scope(name, limits).map_err(|error| scope_error(py, &error))?;
        Ok(Scope { scope, governed: self.governed })
    }

    fn set_limits(&self, py: Python<'_>, limits: &Bound<'_, PyDict>) -> PyResult<()> {
        let limits = limits_of(py, Some(limits))?;
        self.scope.set_limits(limits).map_err(|error| mistake(py, error.to_string()))
    }

    /// Sets all limits: those that are not given are removed.
    fn replace_limits(&self, py: Python<'_>, limits: &Bound<'_, PyDict>) -> PyResult<()> {
        let limits = limits_of(py, Some(limits))?;
        self.scope.replace_limits(limits).map_err(|error| mistake(py, error.to_string()))
    }

    fn limits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        plain(py, &self.scope.limits())
    }

    fn figures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        plain(py, &self.scope.figures())
    }

    fn kill(&self, py: Python<'_>, reason: &str) {
        py.detach(|| self.scope.kill(reason));
    }

    /// The agent's context was compacted.
    fn compacted(&self, py: Python<'_>) {
        py.detach(|| self.scope.compacted());
    }

    fn stop(&self) -> Stop {
        Stop(self.scope.stop_signal())
    }

    fn on_tripped(&self, callback: Py<PyAny>) {
        self.scope.on_tripped(observer(callback));
    }

    fn on_steer(&self, callback: Py<PyAny>) {
        self.scope.on_steer(observer(callback));
    }

    fn environment(&self) -> HashMap<&'static str, String> {
        self.scope.environment().into_iter().collect()
    }

    /// May a tool be called?
    #[pyo3(signature = (name, arguments, server=None))]
    fn tool(
        &self,
        py: Python<'_>,
        name: &str,
        arguments: &Bound<'_, PyAny>,
        server: Option<&str>,
    ) -> PyResult<Running> {
        let arguments = to_json(arguments, 0);
        let running = self.decide(py, |scope| scope.tool_on(name, server, &arguments))?;
        Ok(self.running(running))
    }

    /// May a model be asked?
    #[pyo3(signature = (model, input_tokens=0, max_output_tokens=None, prompt=None, provider=None,
        from_person=false, compacted=false))]
    #[expect(clippy::too_many_arguments, reason = "Python has keywords for them")]
    fn model(
        &self,
        py: Python<'_>,
        model: &str,
        input_tokens: u64,
        max_output_tokens: Option<u64>,
        prompt: Option<&str>,
        provider: Option<&str>,
        from_person: bool,
        compacted: bool,
    ) -> PyResult<ModelRunning> {
        let mut ask = ModelAsk::new(model).input_tokens(input_tokens);
        (ask.provider, ask.max_output_tokens) = (provider, max_output_tokens);
        (ask.prompt, ask.from_person, ask.compacted) = (prompt, from_person, compacted);
        let running = self.decide(py, |scope| scope.model(&ask))?;
        let stop = running.stop_signal().clone();
        Ok(ModelRunning { running: Mutex::new(Some(running)), stop })
    }

    /// May a request be sent?
    fn request(
        &self,
        py: Python<'_>,
        api: &str,
        host: &str,
        method: &str,
        path: &str,
        body: &Bound<'_, PyBytes>,
    ) -> PyResult<Exchange> {
        let api = match api {
            "openai" => Api::OpenAi,
            "anthropic" => Api::Anthropic,
            "gemini" => Api::Gemini,
            _ => api_of(host, path),
        };
        let body = body.as_bytes();
        let outgoing = Outgoing::new(host, path, body).api(api).method(method);
        let exchange = self.decide(py, |scope| scope.request(&outgoing))?;
        let (stop, document) = (exchange.stop_signal().clone(), exchange.asks_document());
        Ok(Exchange { exchange: Mutex::new(exchange), stop, governed: self.governed, document })
    }
}

/// A model call whose figures its caller tells.
#[pyclass(frozen, module = "deadstop._native")]
pub(crate) struct ModelRunning {
    running: Mutex<Option<deadstop_sdk::Running>>,
    stop: deadstop_sdk::StopSignal,
}

#[pymethods]
impl ModelRunning {
    #[getter]
    fn stop(&self) -> Stop {
        Stop(self.stop.clone())
    }

    /// May it go on?
    fn progress(&self, py: Python<'_>, output_tokens: u64, text: &str) -> PyResult<()> {
        let mut running = self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(running) = running.as_mut() else { return Ok(()) };
        running.progress(output_tokens, text).map_err(|error| refused(py, &error))
    }

    /// It has ended.
    #[pyo3(signature = (status, input_tokens=0, output_tokens=0, text="", cache_read=0,
        cache_write=0))]
    #[expect(clippy::too_many_arguments, reason = "Python has keywords for them")]
    fn end(
        &self,
        py: Python<'_>,
        status: &str,
        input_tokens: u64,
        output_tokens: u64,
        text: &str,
        cache_read: u64,
        cache_write: u64,
    ) -> PyResult<()> {
        use deadstop_sdk::{Status, Tokens, Usage};
        let status = match status {
            "ok" => Status::Ok,
            "error" => Status::Error,
            "fault" => Status::Fault,
            _ => Status::Cancelled,
        };
        let usage = Usage {
            input: Tokens(input_tokens),
            output: Tokens(output_tokens),
            cache_read: Tokens(cache_read),
            cache_write: Tokens(cache_write),
        };
        let taken = self.running.lock().ok().and_then(|mut running| running.take());
        let Some(running) = taken else { return Ok(()) };
        running.end_model(status, usage, text).map(drop).map_err(|error| refused(py, &error))
    }
}
