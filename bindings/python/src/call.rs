//! Calls in flight, and the stop that they obey.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use deadstop_sdk::{Refused, Settled, Status};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::convert::to_text;
use crate::refused::{exception, mistake, refused};

/// A tool call that was admitted.
#[pyclass(frozen, module = "deadstop._native")]
pub(crate) struct Running {
    pub(crate) running: Mutex<Option<deadstop_sdk::Running>>,
    pub(crate) stop: deadstop_sdk::StopSignal,
    pub(crate) governed: bool,
    /// How it was settled.
    pub(crate) settled: Mutex<Settled>,
}

#[pymethods]
impl Running {
    /// It has ended: `ok`, `error`, `fault` or `cancelled`, with what it brought. Gives what the model
    /// should be told behind the result, if a guard steers it.
    fn end(
        &self,
        py: Python<'_>,
        status: &str,
        result: &Bound<'_, PyAny>,
    ) -> PyResult<Option<String>> {
        let status = match status {
            "ok" => Status::Ok,
            "error" => Status::Error,
            "fault" => Status::Fault,
            "cancelled" => Status::Cancelled,
            other => {
                return Err(mistake(
                    py,
                    format!("`{other}` is not a status: use ok, error, fault or cancelled"),
                ));
            }
        };
        let text = to_text(result);
        let taken = self.running.lock().ok().and_then(|mut running| running.take());
        let Some(running) = taken else { return Ok(None) };
        let settled = running.end(status, &text).map_err(|error| refused(py, &error))?;
        let note = settled.note();
        *self.settled.lock().unwrap_or_else(PoisonError::into_inner) = settled;
        Ok(note)
    }

    /// Leaves what the model should be told to the guarded client whose model asked for this call;
    /// false if there is none.
    fn leave(&self) -> bool {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner).leave_to_client()
    }

    #[getter]
    fn stop(&self) -> Stop {
        Stop(self.stop.clone())
    }

    /// Whether it waits for a server.
    #[getter]
    fn governed(&self) -> bool {
        self.governed
    }
}

/// A model call on its way.
#[pyclass(frozen, module = "deadstop._native")]
pub(crate) struct Exchange {
    pub(crate) exchange: Mutex<deadstop_sdk::Exchange>,
    pub(crate) stop: deadstop_sdk::StopSignal,
    pub(crate) governed: bool,
    pub(crate) document: bool,
}

/// How the headers begin in which providers report how much of a window is used.
const WINDOWS: [&[u8]; 3] = [b"anthropic-ratelimit-", b"x-codex-", b"x-ratelimit-"];

/// What an answer's headers say.
#[derive(Default)]
struct Told {
    kind: String,
    is_packed: bool,
    /// Those about windows, with their names in lower case.
    windows: Vec<(String, String)>,
}

impl Told {
    /// Headers as they came: pairs of bytes.
    fn of(headers: &Bound<'_, PyList>) -> PyResult<Told> {
        let mut told = Told::default();
        for pair in headers.iter() {
            let (name, value): (Bound<'_, PyBytes>, Bound<'_, PyBytes>) = pair.extract()?;
            let (name, value) = (name.as_bytes(), value.as_bytes());
            let begins = |with: &&[u8]| {
                name.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with))
            };
            if name.eq_ignore_ascii_case(b"content-type") {
                told.kind = String::from_utf8_lossy(value).into_owned();
            } else if name.eq_ignore_ascii_case(b"content-encoding") {
                let plain = value.is_empty() || value.eq_ignore_ascii_case(b"identity");
                told.is_packed |= !plain;
            } else if WINDOWS.iter().any(begins) {
                let name = String::from_utf8_lossy(name).to_ascii_lowercase();
                told.windows.push((name, String::from_utf8_lossy(value).into_owned()));
            }
        }
        Ok(told)
    }

    fn tell(&self, exchange: &mut deadstop_sdk::Exchange) {
        if !self.windows.is_empty() {
            let windows: Vec<(&str, &str)> =
                self.windows.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            exchange.headers(&windows);
        }
    }
}

impl Exchange {
    /// Works on it; lets others run meanwhile if that may wait for a server.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut deadstop_sdk::Exchange) -> T + Send,
    ) -> T {
        if !self.governed
            && let Ok(mut exchange) = self.exchange.try_lock()
        {
            return work(&mut exchange);
        }
        // The thread that holds it may wait for the interpreter, to call an observer.
        py.detach(|| work(&mut self.exchange.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[pymethods]
impl Exchange {
    #[getter]
    fn stop(&self) -> Stop {
        Stop(self.stop.clone())
    }

    #[getter]
    fn governed(&self) -> bool {
        self.governed
    }

    /// Whether the request asks for an answer in one document, and not for a stream.
    #[getter]
    fn document(&self) -> bool {
        self.document
    }

    /// All of an answer at once, its bytes unpacked; gives those to pass on instead, if there are others.
    fn whole<'py>(
        &self,
        py: Python<'py>,
        status: u16,
        headers: &Bound<'py, PyList>,
        bytes: &Bound<'py, PyBytes>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let told = Told::of(headers)?;
        let given = bytes.as_bytes();
        let passed = self.with(py, |exchange| {
            told.tell(exchange);
            exchange.whole(status, &told.kind, given).map(|passed| match passed {
                std::borrow::Cow::Borrowed(_) => None,
                std::borrow::Cow::Owned(bytes) => Some(bytes),
            })
        });
        let passed = passed.map_err(|error| refused(py, &error))?;
        Ok(passed.map(|changed| PyBytes::new(py, &changed)))
    }

    /// The body to send instead, if there is one.
    fn body<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        let body = self.with(py, |exchange| exchange.body().map(<[u8]>::to_vec));
        body.map(|body| PyBytes::new(py, &body))
    }

    /// The answer begins: its status, and its headers as they came. One that is packed is not read.
    fn answer(&self, py: Python<'_>, status: u16, headers: &Bound<'_, PyList>) -> PyResult<()> {
        let told = Told::of(headers)?;
        let kind = if told.is_packed { "" } else { &told.kind };
        self.with(py, |exchange| {
            told.tell(exchange);
            exchange.answer(status, kind);
        });
        Ok(())
    }

    /// Judges the next bytes; gives what may be passed on.
    fn push<'py>(
        &self,
        py: Python<'py>,
        bytes: Bound<'py, PyBytes>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let given = bytes.as_bytes();
        let passed = self.with(py, |exchange| {
            exchange.push(given).map(|passed| match passed {
                std::borrow::Cow::Borrowed(_) => None,
                std::borrow::Cow::Owned(bytes) => Some(bytes),
            })
        });
        match passed {
            Ok(None) => Ok(bytes),
            Ok(Some(changed)) => Ok(PyBytes::new(py, &changed)),
            Err(error) => Err(refused(py, &error)),
        }
    }

    /// The answer is complete; gives what is left to pass on.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let rest = self.with(py, deadstop_sdk::Exchange::finish);
        let rest = rest.map_err(|error: Refused| refused(py, &error))?;
        Ok(PyBytes::new(py, &rest))
    }

    fn broken(&self, py: Python<'_>) {
        self.with(py, deadstop_sdk::Exchange::broken);
    }

    fn abandon(&self, py: Python<'_>) {
        self.with(py, deadstop_sdk::Exchange::abandon);
    }

    /// Breaks it off, and gives the exception to raise.
    fn cut_off(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let why = self.with(py, deadstop_sdk::Exchange::cut_off);
        exception(py, &why)
    }
}

/// The signal that a call obeys.
#[pyclass(frozen, module = "deadstop._native")]
pub(crate) struct Stop(pub(crate) deadstop_sdk::StopSignal);

#[pymethods]
impl Stop {
    #[getter]
    fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }

    /// Waits for it, so many seconds at most.
    fn wait(&self, py: Python<'_>, seconds: f64) -> bool {
        let most = Duration::try_from_secs_f64(seconds.clamp(0.0, 1e6)).unwrap_or_default();
        py.detach(|| self.0.wait(most))
    }

    /// Calls a function when it is given, on the thread that gives it.
    fn on_stop(&self, callback: Py<PyAny>) -> Watch {
        Watch(Mutex::new(Some(self.0.on_stop(move || {
            // Without an interpreter (it is on its way out) the callback is not needed.
            Python::try_attach(|py| {
                if let Err(error) = callback.call0(py) {
                    error.write_unraisable(py, None);
                }
            });
        }))))
    }
}

/// A function that waits for a stop.
#[pyclass(frozen, module = "deadstop._native")]
pub(crate) struct Watch(Mutex<Option<deadstop_sdk::Watch>>);

#[pymethods]
impl Watch {
    /// It need not be called any more.
    fn cancel(&self) {
        let watch = self.0.lock().ok().and_then(|mut watch| watch.take());
        drop(watch);
    }
}
