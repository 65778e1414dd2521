//! `kill -9` of the real server in the middle of load: what was acknowledged before is true after.
//!
//! `DEADSTOP_SOAK=1` crashes it more often. Figures are printed (`-- --nocapture`).

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "crash/acknowledged.rs"]
mod acknowledged;
#[path = "crash/ends.rs"]
mod ends;
#[path = "common/server.rs"]
mod server;
#[path = "crash/spending.rs"]
mod spending;
