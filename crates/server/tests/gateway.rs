//! The gateway as its two ends see it: scripted upstreams on one side, raw clients on the other.
//!
//! One program, so that it links once and what the tests share is used by all of it. Figures are
//! printed (`cargo test -p deadstop-server --test gateway -- --nocapture --test-threads=1`);
//! `DEADSTOP_SOAK=1` asks for the long versions.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

mod alone;
mod blame;
mod control;
mod exported;
mod faults;
mod fidelity;
#[path = "support/server.rs"]
mod gate;
#[path = "../../store/tests/suite/hands.rs"]
mod hands;
mod holes;
mod mcp;
mod numbers;
mod outage;
#[path = "support/packing.rs"]
mod packing;
mod pages;
#[path = "../../store/tests/suite/place.rs"]
mod place;
mod proxies;
mod spans;
mod steers;
mod stops;
mod streams;
mod support;
mod walks;
