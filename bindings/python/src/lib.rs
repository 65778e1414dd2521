//! The engine for Python: what `deadstop` in `python/` builds on. Nothing here is for users.
//!
//! Python objects are only touched with the interpreter attached, and never under a lock of ours. A
//! call that may wait for a server lets other Python threads run meanwhile.

mod call;
mod convert;
mod refused;
mod session;

use pyo3::prelude::*;

/// The engine.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<session::Session>()?;
    module.add_class::<session::Scope>()?;
    module.add_class::<session::ModelRunning>()?;
    module.add_class::<call::Running>()?;
    module.add_class::<call::Exchange>()?;
    module.add_class::<call::Stop>()?;
    module.add_class::<call::Watch>()?;
    Ok(())
}
