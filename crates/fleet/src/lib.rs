//! The live state of scopes, shared by many nodes.
//!
//! The engine stays one piece: a node runs it on copies of a call's chain and swaps the result in,
//! if nobody was faster; otherwise again on what is there now ([`Fleet::run`]). One round trip, when
//! nobody else touched the chain.
//!
//! ```text
//! session, nested   one record each: state, what goes with it, who holds what     swapped in whole
//! project, agent    a record for standing, grants, circuits                        swapped in whole
//!                   counters and money                                             added to, within bounds
//! ```
//!
//! Projects and agents are used by all nodes at once, so what changes with every call is not in
//! their record: a node takes from the limit what its call may use, and gives back what it did not
//! (a slice for each call, checked and taken in the same step, so that a limit holds exactly). Time
//! is the store's ([`Fleet::now`]).

mod batch;
mod cell;
mod desk;
mod fleet;
mod heal;
mod lane;
mod look;
pub mod model;
mod record;
mod redis;
mod wire;

pub use cell::{Cell, Watch};
pub use desk::{Desk, Owner};
pub use fleet::{Fleet, Peer};
pub use lane::Away;
pub use look::Look;
pub use record::{Record, Version};
pub use redis::{BadAddress, Redis};
pub use wire::{
    Beat, COUNTERS, Commit, Counts, Era, Item, Moved, Reply, Shared, Sum, Sums, Touched, Write,
};
