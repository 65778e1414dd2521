//! One suite for both databases: every case runs on SQLite and on PostgreSQL, each time with a
//! database of its own.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may")]

#[path = "suite/hands.rs"]
mod hands;
#[path = "suite/place.rs"]
mod place;
#[path = "suite/sample.rs"]
mod sample;

#[path = "suite/audit.rs"]
mod audit;
#[path = "suite/control.rs"]
mod control;
#[path = "suite/edges.rs"]
mod edges;
#[path = "suite/faults.rs"]
mod faults;
#[path = "suite/lists.rs"]
mod lists;
#[path = "suite/numbers.rs"]
mod numbers;
#[path = "suite/outbox.rs"]
mod outbox;
#[path = "suite/records.rs"]
mod records;
#[path = "suite/secrecy.rs"]
mod secrecy;
#[path = "suite/spend.rs"]
mod spend;
