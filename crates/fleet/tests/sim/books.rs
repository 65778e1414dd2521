//! What really happened in a simulation, kept apart from the code under test: which scopes were
//! killed, which calls ran, and what they cost.

use std::collections::{BTreeMap, BTreeSet};

use deadstop_core::share::Held;
use deadstop_core::{NanoUsd, Tokens};
use parking_lot::Mutex;

/// Whether a call still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Runs,
    /// Its client was told of its end, and the end waits to be committed.
    Told,
    Settled,
}

/// A call that was admitted.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// The scopes that it is charged to.
    pub(crate) chain: Vec<String>,
    pub(crate) node: usize,
    pub(crate) tool: bool,
    pub(crate) offline: bool,
    /// The most that it had reserved.
    pub(crate) reserved: Held,
    /// What it was last granted.
    pub(crate) granted: Held,
    /// What it has really used so far.
    pub(crate) input: Tokens,
    pub(crate) output: Tokens,
    pub(crate) cost: NanoUsd,
    pub(crate) fate: Fate,
    /// Its usage is final: its node has begun to settle it.
    pub(crate) ends: bool,
}

/// An admission whose answer was lost: it may have been committed.
#[derive(Debug, Clone)]
pub(crate) struct Ghost {
    pub(crate) chain: Vec<String>,
    pub(crate) tool: bool,
}

/// The record of a simulation.
#[derive(Default)]
pub(crate) struct Books {
    pub(crate) entries: Mutex<Vec<Entry>>,
    ghosts: Mutex<BTreeMap<usize, Ghost>>,
    /// Nodes whose lease expired, or may have.
    dead: Mutex<BTreeSet<usize>>,
    /// Kills that were acknowledged and not cleared, by scope.
    kills: Mutex<BTreeMap<String, u64>>,
    orders: Mutex<u64>,
    faults: Mutex<Vec<String>>,
}

impl Books {
    /// Notes a violated invariant.
    pub(crate) fn fault(&self, what: String) {
        let mut faults = self.faults.lock();
        if faults.len() < 5 && !faults.contains(&what) {
            faults.push(what);
        }
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.faults.lock().clone()
    }

    /// The lease of a node expired, or may have.
    pub(crate) fn dies(&self, node: usize) {
        self.dead.lock().insert(node);
    }

    pub(crate) fn has_died(&self, node: usize) -> bool {
        self.dead.lock().contains(&node)
    }

    pub(crate) fn any_node_died(&self) -> bool {
        !self.dead.lock().is_empty()
    }

    /// An upper bound of what calls of dead nodes had reserved in a scope.
    pub(crate) fn died(&self, scope: &str) -> u64 {
        let entries = self.entries.lock();
        let here = entries.iter().filter(|entry| entry.chain.iter().any(|name| name == scope));
        let dead = here.filter(|entry| self.has_died(entry.node));
        dead.map(|entry| entry.reserved.cost.unsigned_abs()).sum()
    }

    /// A kill was acknowledged.
    pub(crate) fn killed(&self, scope: &str) {
        let mut orders = self.orders.lock();
        *orders += 1;
        self.kills.lock().insert(scope.to_owned(), *orders);
    }

    /// An operator begins to clear a kill.
    pub(crate) fn clears(&self, scope: &str) {
        self.kills.lock().remove(scope);
    }

    /// The kills in force in a chain.
    pub(crate) fn standing(&self, chain: &[String]) -> Vec<(String, u64)> {
        let kills = self.kills.lock();
        chain.iter().filter_map(|scope| Some((scope.clone(), *kills.get(scope)?))).collect()
    }

    /// All killed scopes.
    pub(crate) fn dead_scopes(&self) -> Vec<String> {
        self.kills.lock().keys().cloned().collect()
    }

    /// A caller asks for an admission. Until the answer arrives, it may have been committed.
    pub(crate) fn asks(&self, chain: &[String], tool: bool) -> usize {
        let mut ghosts = self.ghosts.lock();
        let id = ghosts.last_key_value().map_or(0, |(id, _)| id + 1);
        ghosts.insert(id, Ghost { chain: chain.to_vec(), tool });
        id
    }

    /// The caller got its answer, or the request was not sent.
    pub(crate) fn answered(&self, ghost: usize) {
        // Emptied instead of removed: the highest id must stay in use.
        self.ghosts.lock().entry(ghost).and_modify(|ghost| ghost.chain.clear());
    }

    pub(crate) fn ghosts(&self) -> Vec<Ghost> {
        self.ghosts.lock().values().cloned().collect()
    }

    pub(crate) fn open(&self, entry: Entry) -> usize {
        let mut entries = self.entries.lock();
        entries.push(entry);
        entries.len() - 1
    }

    pub(crate) fn change(&self, at: usize, change: impl FnOnce(&mut Entry)) {
        change(&mut self.entries.lock()[at]);
    }
}
