//! A look at a Redis: what it is, whether our scripts run there, and which nodes it knows.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use deadstop_core::Time;

use crate::lane::Away;
use crate::redis::{NODES, Redis};

/// Round trips of which the median is told.
const TRIPS: usize = 21;
/// Under which nobody keeps anything.
const TAG: &str = "doctor";

/// What a look at a Redis has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// What it says that it is.
    pub version: String,
    /// Whether it says which line of servers it is of: only then it is noticed at once when another one
    /// takes over.
    pub named: bool,
    /// Whether it follows another server, and so takes no writes.
    pub copied: bool,
    /// What it throws out to make room.
    pub eviction: String,
    /// Bytes in use.
    pub used: u64,
    /// Bytes that it may use; zero is all there are.
    pub most: u64,
    /// Whether what it holds outlives a restart.
    pub kept: bool,
    /// Its time, in the middle of the question.
    pub time: Time,
    /// What one of our scripts takes, there and back.
    pub trip: Duration,
    /// Nodes that have given signs of life, and the time until which they count as alive.
    pub nodes: Vec<(String, Time)>,
}

impl Redis {
    /// Looks at it.
    pub async fn look(&self) -> Result<Look, Away> {
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
