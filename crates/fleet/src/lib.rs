//! The live state of scopes, shared by many nodes.
//!
//! A node runs the engine on a snapshot of a call's chain and commits the result if no other node
//! changed the chain meanwhile. If the commit lost to a concurrent writer, the node runs the engine
//! again on the current state ([`Fleet::run`]). Without a conflict this takes one round trip to
//! Redis.
//!
//! ```text
//! session, nested   one record: state, attachment, reservations by node   replaced as a whole
//! project, agent    a record: standing, grants, breakers                   replaced as a whole
//!                   counters: usage, cost, reservations by node            added to, within bounds
//! ```
//!
//! All nodes use projects and agents at once, so what changes with every call is not in their
//! record. A node reserves from the limit what its call may use, and gives back what the call did
//! not use. Each call is a slice of its own, checked and reserved in the same commit, so a limit
//! holds exactly. All nodes use the clock of Redis ([`Fleet::now`]).

mod batch;
mod cell;
mod fleet;
mod heal;
mod lane;
mod look;
pub mod model;
mod packed;
mod record;
mod redis;
mod ride;
mod sessions;
mod transaction;
mod wire;

pub use cell::{Cell, Watch};
pub use fleet::{Fleet, Peer};
pub use lane::Unreachable;
pub use look::Look;
pub use record::{Record, Version};
pub use redis::{BadAddress, Redis};
pub use ride::{End, can_wait};
pub use sessions::{Index, IndexLimits, Lookup, Recognised};
pub use transaction::{Owner, Transaction};
pub use wire::{
    Beat, COUNTERS, Commit, Counts, Era, Item, Moved, Reply, Shared, Sum, Sums, Touched, Write,
};
