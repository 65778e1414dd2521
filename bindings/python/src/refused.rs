//! Refusals as the exceptions that `deadstop._errors` defines.

use deadstop_sdk::{OpenError, Refused, ScopeError, Why};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::convert::plain;

static KILLED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static BLOCKED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The exception for a refusal.
pub(crate) fn refused(py: Python<'_>, refused: &Refused) -> PyErr {
    let made = exception(py, refused);
    made.map_or_else(|error| error, |made| PyErr::from_value(made.into_bound(py).into_any()))
}

/// The same as a value.
pub(crate) fn exception(py: Python<'_>, refused: &Refused) -> PyResult<Py<PyAny>> {
    let (cell, name) = match refused.is_killed() {
        true => (&KILLED, "DeadstopKilled"),
        false => (&BLOCKED, "DeadstopBlocked"),
    };
    let class = cell.import(py, "deadstop._errors", name)?;
    let why = plain(py, refused.why())?;
    Ok(class.call1((refused.to_string(), why))?.unbind())
}

/// What an observer is told.
pub(crate) fn trip(py: Python<'_>, why: &Why) -> PyResult<Py<PyAny>> {
    let class = PyModule::import(py, "deadstop._errors")?.getattr("Trip")?;
    Ok(class.call1((plain(py, why)?,))?.unbind())
}

/// Something that the caller can mend.
pub(crate) fn mistake(py: Python<'_>, text: String) -> PyErr {
    match ERROR.import(py, "deadstop._errors", "DeadstopError") {
        Ok(class) => match class.call1((text,)) {
            Ok(made) => PyErr::from_value(made),
            Err(error) => error,
        },
        Err(error) => error,
    }
}

/// A session that cannot be opened. One that was killed raises the kill.
pub(crate) fn open_error(py: Python<'_>, error: &OpenError) -> PyErr {
    match error {
        OpenError::Killed(killed) => refused(py, &Refused::Killed(killed.clone())),
        other => mistake(py, other.to_string()),
    }
}

pub(crate) fn scope_error(py: Python<'_>, error: &ScopeError) -> PyErr {
    mistake(py, error.to_string())
}
