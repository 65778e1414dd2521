//! What a node asks of Redis in one round trip.

use std::future::Future;
use std::sync::Arc;

use deadstop_core::share::{Bounds, Held};
use deadstop_core::{NanoUsd, ScopeState, Time, Tokens};

use crate::lane::Unreachable;
use crate::record::Version;

/// The counters of a project or an agent that only grow, in this order: calls, tool calls, model
/// calls, input tokens, output tokens, tokens read from a cache, cost, loops, incidents.
pub const COUNTERS: usize = 9;

/// Values of the counters.
pub type Counts = [u64; COUNTERS];

/// Identifies a time in which Redis has lost nothing: the epoch (when Redis began to remember this
/// project) and the replication id of the server. The id changes with every start and every
/// failover. Empty while the node does not know it.
pub type Era = Arc<str>;

/// One commit: Redis applies all of it or nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Commit {
    /// The hash tag of all keys, so that they are in one slot of a Redis cluster.
    pub tag: String,
    /// Records that must still have the version that the node read; some of them are written.
    pub items: Vec<Item>,
    /// Counters to add to.
    pub sums: Vec<Sum>,
    /// The era in which the node has read all of these scopes from the database. If Redis is in
    /// another era, the commit is refused: Redis may have lost its last writes, among them a kill.
    pub era: Option<Era>,
    /// The paths of the scopes in this commit, for the index of recently used scopes.
    pub touched: Vec<String>,
}

impl Commit {
    /// The key of the epoch: when Redis began to remember this project. It is half of the era.
    pub fn epoch_key(tag: &str) -> String {
        format!("deadstop:{{{tag}}}:epoch")
    }

    /// The key of the index that lists a project's scopes by when they were last used.
    pub fn index(tag: &str) -> String {
        format!("deadstop:{{{tag}}}:touched")
    }
}

/// A record that must still have the version that the node read.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The key of the record.
    pub key: String,
    /// The version that the node read.
    pub expect: Version,
    /// The record to write in its place, if any.
    pub write: Option<Write>,
}

/// A new record.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The version of the record.
    pub version: Version,
    /// The bytes of the record.
    pub value: Vec<u8>,
    /// Redis deletes the record when it has not been written for so long.
    pub keep_ms: u64,
}

/// Counters to add to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sum {
    /// The key of the counters.
    pub key: String,
    /// When the counters that this node last read were created; zero if it has read none. If Redis
    /// has others, or none, then it has lost the old ones, and the floors apply.
    pub born: u64,
    /// The values that this node last read: after a loss the counters are raised to at least these.
    pub floor: Counts,
    /// What to add.
    pub add: [i64; COUNTERS],
    /// The budget period that the cost belongs to.
    pub period: u64,
    /// The cost of that period that this node last read: a floor after a loss.
    pub period_floor: u64,
    /// The cost to add to the period.
    pub period_add: i64,
    /// Changes of what nodes have reserved, by node.
    pub held: Vec<(String, Held)>,
    /// Dead nodes: what they had reserved is booked as spent.
    pub bury: Vec<String>,
    /// Upper bounds: Redis refuses the commit if a counter would exceed one.
    pub bounds: Bounds,
    /// The interval of five seconds with which the minute of the pace's bounds begins.
    pub minute: u64,
    /// If set, Redis refuses the commit unless the counters were changed exactly this often.
    pub seen: Option<u64>,
    /// Cost and tokens spent in one interval of five seconds, with the number of the interval.
    pub pace: Option<(u64, NanoUsd, Tokens)>,
}

/// The current values of the counters of one scope.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sums {
    /// When Redis created the counters.
    pub born: u64,
    /// The counters that only grow.
    pub counts: Counts,
    /// The budget period that the cost belongs to.
    pub period: u64,
    /// The cost of that period.
    pub period_cost: u64,
    /// How often the counters were changed.
    pub changes: u64,
    /// What each node has reserved.
    pub held: Vec<(String, Held)>,
    /// Cost and tokens of the last minute, by intervals of five seconds.
    pub pace: Vec<(u64, NanoUsd, Tokens)>,
}

/// A record that has another version than the node expected.
#[derive(Debug, Clone, PartialEq)]
pub struct Moved {
    /// The index of the item in the commit.
    pub item: usize,
    /// The current version; zero if the record does not exist.
    pub version: Version,
    /// The current bytes.
    pub value: Vec<u8>,
}

/// The answer of Redis to a commit.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The time by the clock of Redis.
    pub now: Time,
    /// Whether the commit was applied.
    pub done: bool,
    /// If not applied: the records that have another version. Empty if a counter was the reason.
    pub moved: Vec<Moved>,
    /// The current counters, in the order of the sums.
    pub sums: Vec<Sums>,
    /// The current era, if the commit named one. Redis begins an era if it has none.
    pub era: Era,
}

/// Recently used scopes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// The time by the clock of Redis.
    pub now: Time,
    /// The paths of the scopes, with when each was last used.
    pub scopes: Vec<(String, Time)>,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, PartialEq)]
pub struct Beat {
    /// The time by the clock of Redis.
    pub now: Time,
    /// All nodes, with the time at which the lease of each ends.
    pub nodes: Vec<(String, Time)>,
}

/// The state that nodes share (Redis), and the database behind it.
pub trait Shared: Send + Sync + 'static {
    /// Applies one commit.
    fn commit(&self, commit: &Commit) -> impl Future<Output = Result<Reply, Unreachable>> + Send;

    /// The scopes under a tag that were used since a time.
    fn touched(
        &self,
        tag: &str,
        since: Time,
    ) -> impl Future<Output = Result<Touched, Unreachable>> + Send;

    /// Renews the lease of a node for `ms` milliseconds.
    fn beat(&self, node: &str, ms: u64) -> impl Future<Output = Result<Beat, Unreachable>> + Send;

    /// The state that the database has of a scope. A kill is in the database before it is
    /// acknowledged, so the node reads it there when Redis has lost something.
    fn recall(
        &self,
        scope: &str,
    ) -> impl Future<Output = Result<Option<ScopeState>, Unreachable>> + Send;
}
