//! The Deadstop engine.
pub mod call;
pub mod text;
pub mod units;
pub use call::*;
pub use text::{TextFacts, TextHasher};
pub use units::{Millis, NanoUsd, Time, Tokens};
