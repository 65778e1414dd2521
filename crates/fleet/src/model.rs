//! The reference model of the shared state: what the scripts in Redis do, in a few lines of Rust.
//!
//! A test compares the scripts with this model step by step, and the simulation runs on it.

use std::collections::BTreeMap;

use deadstop_core::Time;
use deadstop_core::share::{Held, spent_since};

use crate::record::Version;
use crate::wire::{Beat, Commit, Era, Moved, Reply, Sum, Sums, Touched};

/// Intervals of five seconds that are kept: one minute.
const PACE: u64 = 12;
/// The first digit of a period's number tells its length (total, hour, day).
const KINDS: u64 = 1_000_000_000;

/// Milliseconds after the end of its lease for which a node is still listed.
const FORGOTTEN_MS: u64 = 3600 * 1000;

/// The contents of a modelled Redis.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Model {
    records: BTreeMap<String, (Version, Vec<u8>)>,
    sums: BTreeMap<String, Sums>,
    nodes: BTreeMap<String, Time>,
    epochs: BTreeMap<String, u64>,
    /// The replication id of the server.
    server: String,
    touched: BTreeMap<(String, String), Time>,
}

impl Model {
    /// Applies one commit.
    pub fn commit(&mut self, commit: &Commit, now: Time) -> Reply {
        let mut moved = Vec::new();
        for (at, item) in commit.items.iter().enumerate() {
            let there = self.records.get(&item.key);
            let version = there.map_or(Version::default(), |there| there.0);
            if version != item.expect {
                let value = there.map(|there| there.1.clone()).unwrap_or_default();
                moved.push(Moved { item: at, version, value });
            }
        }
        let era = match commit.era {
            Some(_) => {
                self.epochs.entry(commit.tag.clone()).or_insert(now.0);
                self.era(&commit.tag)
            }
            None => Era::default(),
        };
        let counted: Vec<(Sums, bool)> = commit
            .sums
            .iter()
            .map(|sum| add(self.sums.get(&sum.key).cloned().unwrap_or_default(), sum, now))
            .collect();
        let same = commit.era.as_ref().is_none_or(|known| *known == era);
        let done = same && moved.is_empty() && counted.iter().all(|(_, within)| *within);
        if done {
            for item in &commit.items {
                if let Some(write) = &item.write {
                    let record = (write.version, write.value.clone());
                    self.records.insert(item.key.clone(), record);
                }
            }
            for (sum, (sums, _)) in commit.sums.iter().zip(&counted) {
                self.sums.insert(sum.key.clone(), sums.clone());
            }
            for scope in &commit.touched {
                self.touched.insert((commit.tag.clone(), scope.clone()), now);
            }
            let sums = counted.into_iter().map(|(sums, _)| sums).collect();
            return Reply { now, done, moved, sums, era };
        }
        let current = |sum: &Sum| self.sums.get(&sum.key).cloned().unwrap_or_default();
        Reply { now, done, moved, sums: commit.sums.iter().map(current).collect(), era }
    }

    /// The scopes under a tag that were used since a time.
    pub fn touched(&self, tag: &str, since: Time, now: Time) -> Touched {
        let ours = self.touched.iter().filter(|((of, _), at)| of == tag && **at >= since);
        Touched { now, scopes: ours.map(|((_, scope), at)| (scope.clone(), *at)).collect() }
    }

    /// Renews the lease of a node.
    pub fn beat(&mut self, node: &str, ms: u64, now: Time) -> Beat {
        self.nodes.insert(node.to_owned(), Time(now.0 + ms));
        self.nodes.retain(|_, until| until.0 + FORGOTTEN_MS >= now.0);
        Beat { now, nodes: self.nodes.iter().map(|(node, until)| (node.clone(), *until)).collect() }
    }

    /// The current era of a tag.
    pub fn era(&self, tag: &str) -> Era {
        format!("{}:{}", self.epochs.get(tag).copied().unwrap_or(0), self.server).into()
    }

    /// A failover: a server with another replication id continues with this content.
    pub fn served_by(&mut self, server: &str) {
        server.clone_into(&mut self.server);
    }

    /// The counters under a key.
    pub fn sums(&self, key: &str) -> Sums {
        self.sums.get(key).cloned().unwrap_or_default()
    }

    /// The record under a key.
    pub fn record(&self, key: &str) -> Option<&(Version, Vec<u8>)> {
        self.records.get(key)
    }
}

fn add(before: Sums, sum: &Sum, now: Time) -> (Sums, bool) {
    let fresh = sum.seen.is_none_or(|seen| seen == before.changes);
    let lost = before.born == 0 || sum.born != 0 && sum.born != before.born;
    let mut sums = before;
    if sums.born == 0 {
        sums.born = now.0;
    }
    for (count, floor) in sums.counts.iter_mut().zip(sum.floor).filter(|_| lost) {
        *count = (*count).max(floor);
    }
    let same_kind = sums.period / KINDS == sum.period / KINDS;
    let late = same_kind && sum.period < sums.period;
    if sums.period != sum.period && !late {
        (sums.period, sums.period_cost) = (sum.period, 0);
    }
    if lost {
        sums.period_cost = sums.period_cost.max(sum.period_floor);
    }
    for (count, more) in sums.counts.iter_mut().zip(sum.add) {
        *count = count.saturating_add_signed(more);
    }
    sums.period_cost = sums.period_cost.saturating_add_signed(sum.period_add);
    for dead in &sum.bury {
        let Some(at) = sums.held.iter().position(|(node, _)| node == dead) else { continue };
        let (_, held) = sums.held.remove(at);
        sums.counts[3] = sums.counts[3].saturating_add_signed(held.input);
        sums.counts[4] = sums.counts[4].saturating_add_signed(held.output);
        sums.counts[6] = sums.counts[6].saturating_add_signed(held.cost);
        sums.period_cost = sums.period_cost.saturating_add_signed(held.cost);
    }
    for (node, delta) in &sum.held {
        let held = sums.held.iter().find(|(other, _)| other == node);
        let mut held = held.map(|(_, held)| *held).unwrap_or_default() + *delta;
        if node.is_empty() {
            // Reservations under the empty name belong to no node, so no node would correct a
            // negative one: clamp it to zero.
            held = held.or_nothing();
        }
        set(&mut sums.held, node, held);
    }
    if let Some((bucket, cost, tokens)) = sum.pace {
        match sums.pace.iter_mut().find(|entry| entry.0 % PACE == bucket % PACE) {
            Some(entry) if entry.0 == bucket => {
                (entry.1, entry.2) = (entry.1 + cost, entry.2 + tokens);
            }
            Some(entry) if entry.0 < bucket => *entry = (bucket, cost, tokens),
            Some(_) => {}
            None => sums.pace.push((bucket, cost, tokens)),
        }
        sums.pace.sort_by_key(|entry| entry.0);
    }
    sums.changes += 1;
    let within = fresh && !late && within(&sums, sum);
    (sums, within)
}

fn set(all: &mut Vec<(String, Held)>, node: &str, held: Held) {
    all.retain(|(other, _)| other != node);
    if !held.is_empty() {
        all.push((node.to_owned(), held));
        all.sort_by(|a, b| a.0.cmp(&b.0));
    }
}

fn within(sums: &Sums, sum: &Sum) -> bool {
    let held = sums.held_by_all();
    let up_to = |amount: u64, bound: Option<u64>| bound.is_none_or(|bound| amount <= bound);
    let input = sums.counts[3].saturating_add_signed(held.input);
    let output = sums.counts[4].saturating_add_signed(held.output);
    let (pace_cost, pace_tokens) = spent_since(&sums.pace, sum.minute);
    let bounds = &sum.bounds;
    up_to(sums.counts[1], bounds.steps)
        && up_to(sums.counts[2], bounds.model_calls)
        && up_to(input, bounds.input)
        && up_to(output, bounds.output)
        && up_to(input + output, bounds.tokens)
        && up_to(sums.period_cost.saturating_add_signed(held.cost), bounds.cost)
        && up_to(pace_cost.saturating_add_signed(held.cost), bounds.pace_cost)
        && up_to(pace_tokens.saturating_add_signed(held.input + held.output), bounds.pace_tokens)
}

impl Sums {
    /// The reservations of all nodes together.
    pub fn held_by_all(&self) -> Held {
        self.held.iter().fold(Held::default(), |all, (_, held)| all + *held)
    }
}
