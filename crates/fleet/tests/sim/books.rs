//! What really happened, kept apart from everything that is tested: who was stopped, which calls ran,
//! and what they cost.

use std::collections::{BTreeMap, BTreeSet};

use deadstop_core::{Held, NanoUsd, Tokens};
use parking_lot::Mutex;

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Runs,
    Settled,
}

/// A call that was let pass.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// The scopes that it is charged to.
    pub(crate) chain: Vec<String>,
    pub(crate) node: usize,
    pub(crate) tool: bool,
    pub(crate) unasked: bool,
    /// The most that it had set aside.
    pub(crate) reserved: Held,
    /// What it was last granted.
    pub(crate) granted: Held,
    /// What it has really used by now.
    pub(crate) input: Tokens,
    pub(crate) output: Tokens,
    pub(crate) cost: NanoUsd,
    pub(crate) fate: Fate,
    /// It uses no more: whoever ends it has begun to say so.
    pub(crate) ends: bool,
}

/// An admission of which nobody knows whether it was done.
#[derive(Debug, Clone)]
pub(crate) struct Ghost {
    pub(crate) chain: Vec<String>,
    pub(crate) tool: bool,
}

/// The books.
#[derive(Default)]
pub(crate) struct Books {
    pub(crate) entries: Mutex<Vec<Entry>>,
    ghosts: Mutex<BTreeMap<usize, Ghost>>,
    /// Nodes that were taken for dead, or may have been.
    dead: Mutex<BTreeSet<usize>>,
    /// Kills that were acknowledged and not taken back, by scope.
    kills: Mutex<BTreeMap<String, u64>>,
    orders: Mutex<u64>,
    faults: Mutex<Vec<String>>,
}

impl Books {
    /// Something is not as it must be.
    pub(crate) fn fault(&self, what: String) {
        let mut faults = self.faults.lock();
        if faults.len() < 5 && !faults.contains(&what) {
            faults.push(what);
        }
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.faults.lock().clone()
    }

    /// A node is dead, or may be taken for it.
    pub(crate) fn dies(&self, node: usize) {
        self.dead.lock().insert(node);
    }

    pub(crate) fn has_died(&self, node: usize) -> bool {
        self.dead.lock().contains(&node)
    }

    pub(crate) fn anybody_died(&self) -> bool {
        !self.dead.lock().is_empty()
    }

    /// What calls of nodes that died had set aside in a scope, at most.
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

    /// Somebody begins to take a kill back.
    pub(crate) fn clears(&self, scope: &str) {
        self.kills.lock().remove(scope);
    }

    /// The kills that hold in a chain.
    pub(crate) fn standing(&self, chain: &[String]) -> Vec<(String, u64)> {
        let kills = self.kills.lock();
        chain.iter().filter_map(|scope| Some((scope.clone(), *kills.get(scope)?))).collect()
    }

    /// All scopes that are dead.
    pub(crate) fn dead_scopes(&self) -> Vec<String> {
        self.kills.lock().keys().cloned().collect()
    }

    /// Somebody asks whether a call may run; until he is answered, nobody knows.
    pub(crate) fn asks(&self, chain: &[String], tool: bool) -> usize {
        let mut ghosts = self.ghosts.lock();
        let id = ghosts.last_key_value().map_or(0, |(id, _)| id + 1);
        ghosts.insert(id, Ghost { chain: chain.to_vec(), tool });
        id
    }

    /// He was answered, or nothing was asked.
    pub(crate) fn answered(&self, ghost: usize) {
        // The last one stays for its number.
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
