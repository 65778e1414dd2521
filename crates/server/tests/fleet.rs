//! The same walk-throughs as on one server, on three: real processes on one PostgreSQL and one Redis,
//! behind a balancer that throws dice for every connection.
//!
//! It is a test of the program (`cargo test -p deadstop --test fleet`), whose binary it starts, and
//! lies here because the cases are those of `gateway.rs`. Only `gate` is another one. The seed of the
//! dice is printed; `DEADSTOP_SEED` repeats it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

mod blame;
mod control;
#[path = "../../store/tests/suite/place.rs"]
#[expect(dead_code, unused_imports, unused_macros, reason = "a fleet has no SQLite")]
mod databases;
mod fleet {
    mod addresses;
    pub(crate) mod balancer;
    mod doctor;
    mod elsewhere;
    mod everywhere;
    mod faults;
    pub(crate) mod node;
    pub(crate) mod redis;
    mod rides;
    mod steps;
    mod upgrade;
}
#[path = "fleet/gate.rs"]
mod gate;
mod mcp;
#[path = "support/packing.rs"]
#[expect(dead_code, reason = "some of it is for cases about one server")]
mod packing;
#[path = "fleet/place.rs"]
mod place;
mod steers;
mod stops;
mod streams;
#[expect(dead_code, reason = "some of it is for cases about one server")]
mod support;
mod walks;
