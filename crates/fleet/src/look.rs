//! Inspects a Redis server for `deadstop doctor`: its version, whether our scripts run there, and
//! which nodes it knows.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use deadstop_core::Time;

use crate::lane::Unreachable;
use crate::redis::{NODES, Redis};

/// Round trips to measure; the report has their median.
const TRIPS: usize = 21;
/// A tag that no project uses.
const TAG: &str = "doctor";

/// What an inspection of a Redis server found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Product and version.
    pub version: String,
    /// Whether the server tells its replication id. Only then do nodes notice a failover at once.
    pub named: bool,
    /// Whether it is a replica, which takes no writes.
    pub copied: bool,
    /// Its `maxmemory-policy`: which keys it evicts when memory is full.
    pub eviction: String,
    /// Bytes in use.
    pub used: u64,
    /// Its `maxmemory` in bytes; zero means unlimited.
    pub most: u64,
    /// Whether its data survives a restart.
    pub kept: bool,
    /// Its clock at the time of the inspection.
    pub time: Time,
    /// The median round trip of one of our scripts.
    pub trip: Duration,
    /// Nodes that have renewed a lease in the last hour, with the end of their lease.
    pub nodes: Vec<(String, Time)>,
}

impl Redis {
    /// Inspects the server.
    pub async fn look(&self) -> Result<Look, Unreachable> {
        let text: String = self.ask_one(::redis::cmd("INFO").arg("everything")).await?;
        let said: HashMap<&str, &str> =
            text.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
        let word = |name: &str| said.get(name).copied().unwrap_or_default();
        let number = |name: &str| word(name).parse().unwrap_or(0);
        let (mut trips, mut time) = (Vec::new(), Time(0));
        for _ in 0..TRIPS {
            let asked = Instant::now();
            time = self.touched(TAG, Time(u64::MAX >> 12)).await?.now;
            trips.push(asked.elapsed());
        }
        trips.sort();
        let nodes: HashMap<String, u64> = self.query(::redis::cmd("HGETALL").arg(NODES)).await?;
        let mut nodes: Vec<(String, Time)> =
            nodes.into_iter().map(|(node, until)| (node, Time(until))).collect();
        nodes.sort();
        let server = if said.contains_key("valkey_version") { "Valkey" } else { "Redis" };
        let version = [word("valkey_version"), word("redis_version")];
        let version = version.into_iter().find(|version| !version.is_empty()).unwrap_or("?");
        Ok(Look {
            version: format!("{server} {version}"),
            named: !word("master_replid").is_empty(),
            copied: word("role") == "slave",
            eviction: word("maxmemory_policy").to_owned(),
            used: number("used_memory"),
            most: number("maxmemory"),
            kept: word("aof_enabled") == "1" || number("rdb_saves") > 0,
            time,
            trip: trips[TRIPS / 2],
            nodes,
        })
    }
}
