//! What a node asks of the store, all of it in one round trip.

use std::future::Future;
use std::sync::Arc;

use deadstop_core::{Bounds, Held, NanoUsd, ScopeState, Time, Tokens};

use crate::lane::Away;
use crate::record::Version;

/// The counters of a project or an agent that only go up, in this order: calls, tool calls, model
/// calls, input, output, tokens read from a cache, money, loops, incidents.
pub const COUNTERS: usize = 9;

/// Counters.
pub type Counts = [u64; COUNTERS];

/// A time in which the store forgets nothing: since when it remembers, and the line of servers that
/// writes are copied along, which is another one after every start and every takeover. Nothing
/// while it is not known.
pub type Era = Arc<str>;

/// One step: everything in it happens, or nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Commit {
    /// What the keys have in common, so that they are in one place.
    pub tag: String,
    /// Records that must be as they were read; some are written.
    pub items: Vec<Item>,
    /// Counters that are added to.
    pub sums: Vec<Sum>,
    /// The era in which the node has asked the database for all of it. If the store is in another
    /// one, nothing is done: it may have lost the last of what it knew, and a kill with it.
    pub era: Option<Era>,
    /// The scopes that it is about, by their paths: whoever looks for what was touched lately finds
    /// them.
    pub touched: Vec<String>,
}

impl Commit {
    /// The key of when the store began to remember, which is half of its era.
    pub fn epoch_key(tag: &str) -> String {
        format!("deadstop:{{{tag}}}:epoch")
    }

    /// The key under which a project's scopes are found by when they were touched.
    pub fn index(tag: &str) -> String {
        format!("deadstop:{{{tag}}}:touched")
    }
}

/// A record that must be as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// Its key.
    pub key: String,
    /// The version that was read.
    pub expect: Version,
    /// What to put in its place.
    pub write: Option<Write>,
}

/// A new record.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// Its version.
    pub version: Version,
    /// Its bytes.
    pub value: Vec<u8>,
    /// How long it is kept when nobody touches it.
    pub keep_ms: u64,
}

/// Counters that are added to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sum {
    /// Their key.
    pub key: String,
    /// When those began that this node has seen before; zero if it has seen none. Others now, or
    /// none: the store has lost what it had, and only then the floors count.
    pub born: u64,
    /// The least that they must show then: what this node has seen before.
    pub floor: Counts,
    /// What is new.
    pub add: [i64; COUNTERS],
    /// The period that money is counted in.
    pub period: u64,
    /// Money of that period that this node has seen before.
    pub period_floor: u64,
    /// Money that is new in it.
    pub period_add: i64,
    /// What nodes hold more, or less.
    pub held: Vec<(String, Held)>,
    /// Nodes that are dead: what they hold is spent.
    pub bury: Vec<String>,
    /// How far the counters may go.
    pub bounds: Bounds,
    /// How often they were changed when they were read; where that matters.
    pub seen: Option<u64>,
    /// Money and tokens that were spent in these five seconds.
    pub pace: Option<(u64, NanoUsd, Tokens)>,
}

/// Counters as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sums {
    /// When the store began to count.
    pub born: u64,
    /// Those that only go up.
    pub counts: Counts,
    /// The period that money is counted in.
    pub period: u64,
    /// Money spent in it.
    pub period_cost: u64,
    /// How often they were changed.
    pub changes: u64,
    /// Who holds what.
    pub held: Vec<(String, Held)>,
    /// The last minute.
    pub pace: Vec<(u64, NanoUsd, Tokens)>,
}

/// A record that is not as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Moved {
    /// Which of the items.
    pub item: usize,
    /// What is there now; zero if it is gone.
    pub version: Version,
    /// Its bytes.
    pub value: Vec<u8>,
}

/// What the store says.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The store's time.
    pub now: Time,
    /// Whether it was done.
    pub done: bool,
    /// If not: what is not as it was read. Empty if it was the counters.
    pub moved: Vec<Moved>,
    /// The counters as they are now, in the order of the sums.
    pub sums: Vec<Sums>,
    /// The era that the store is in, if that was asked; one begins where there was none.
    pub era: Era,
}

/// Scopes that were touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// The store's time.
    pub now: Time,
    /// Their paths, with when they were.
    pub scopes: Vec<(String, Time)>,
}

/// A sign of life.
#[derive(Debug, Clone, PartialEq)]
pub struct Beat {
    /// The store's time.
    pub now: Time,
    /// All nodes, with the time until which they count as alive.
    pub nodes: Vec<(String, Time)>,
}

/// The store that nodes share, and the database behind it.
pub trait Shared: Send + Sync + 'static {
    /// Does one step.
    fn commit(&self, commit: &Commit) -> impl Future<Output = Result<Reply, Away>> + Send;

    /// The scopes under a tag that were touched since a time, and the store's time.
    fn touched(&self, tag: &str, since: Time)
    -> impl Future<Output = Result<Touched, Away>> + Send;

    /// Says that a node is alive for so long.
    fn beat(&self, node: &str, ms: u64) -> impl Future<Output = Result<Beat, Away>> + Send;

    /// What the database has of a scope. Kills are there before they are acknowledged, so this is
    /// asked when the store turns out to have lost something.
    fn recall(&self, scope: &str) -> impl Future<Output = Result<Option<ScopeState>, Away>> + Send;
}
