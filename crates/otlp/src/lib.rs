//! OpenTelemetry: calls read from telemetry that others send, and our own calls written as spans.
//!
//! Pure: bytes in, calls out, and calls in, bytes out. Names of attributes stand in one module, since
//! the GenAI conventions are not stable yet.

mod attributes;
mod bound;
mod call;
pub mod line;
pub mod measure;
mod model;
pub mod names;
mod read;
pub mod span;
mod write;

pub use call::What;
pub use read::{
    BadTelemetry, Batch, Format, Observed, Signal, answer, document, logs, metrics, signal, traces,
};
pub use write::Sender;
