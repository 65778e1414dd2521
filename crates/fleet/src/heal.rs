//! What a node does between calls: it reads again the scopes in use, and corrects its own
//! reservations in Redis.

use std::sync::{Arc, Weak};

use deadstop_core::Time;
use tokio::time::Instant;

use crate::cell::Cell;
use crate::fleet::Fleet;
use crate::lane::{Haste, Unreachable};
use crate::record::Record;
use crate::wire::{Commit, Item, Shared, Sum, Sums, Touched};

/// Scopes that are read in one request.
const READ_AT_ONCE: usize = 100;

impl<S: Shared> Fleet<S> {
    /// Reads again all scopes in use, so that a kill takes effect here even if the message about it
    /// was lost.
    pub async fn reread(self: &Arc<Self>) -> Result<(), Unreachable> {
        let mut cells: Vec<Arc<Cell>> = {
            let mut known = self.cells.lock();
            known.retain(|_, cell| cell.strong_count() > 0);
            known.values().filter_map(Weak::upgrade).collect()
        };
        cells.sort_by(|a, b| (a.tag(), &a.scope).cmp(&(b.tag(), &b.scope)));
        for same in cells.chunk_by(|a, b| a.tag() == b.tag()) {
            for some in same.chunks(READ_AT_ONCE) {
                self.refresh(some).await?;
            }
        }
        let (life, me) = self.life();
        let wrong = |cell: &&Arc<Cell>| {
            let snapshot = cell.snapshot.lock();
            snapshot.suspect.is_some() || snapshot.pending == 0 && !snapshot.in_order(life, &me)
        };
        for cell in cells.iter().filter(wrong) {
            self.heal(cell).await?;
        }
        Ok(())
    }

    /// Corrects this node's reservations in Redis. They are wrong if a commit was applied without
    /// an answer, or if Redis lost data.
    async fn heal(self: &Arc<Self>, cell: &Arc<Cell>) -> Result<(), Unreachable> {
        let (life, me) = self.life();
        let (late, policies) = {
            let mut snapshot = cell.snapshot.lock();
            let late = snapshot.suspect.is_some_and(|until| Instant::now() < until);
            if snapshot.in_order(life, &me) {
                snapshot.suspect = snapshot.suspect.filter(|_| late || snapshot.pending > 0);
                return Ok(());
            }
            (late, snapshot.policies.clone())
        };
        if let Some(policies) = policies {
            // Every commit writes this node's reservations as they are, so an empty job corrects
            // the record.
            self.enqueue([Arc::clone(cell)], &policies, None, |_| (), Haste::MayFail).await?;
        }
        let healed = !cell.is_counted() || self.heal_counters(cell).await?;
        if healed && !late {
            let mut snapshot = cell.snapshot.lock();
            (snapshot.suspect, snapshot.astray) = (None, false);
        }
        Ok(())
    }

    async fn heal_counters(&self, cell: &Arc<Cell>) -> Result<bool, Unreachable> {
        let (life, me) = self.life();
        let sum = |seen, held| {
            let snapshot = cell.snapshot.lock();
            let held = Vec::from_iter(held);
            let Sums { born, counts, period, period_cost, .. } = snapshot.sums;
            Sum {
                key: cell.sum_key(),
                born,
                floor: counts,
                period,
                period_floor: period_cost,
                held,
                seen,
                ..Sum::default()
            }
        };
        // What was read in one era is not written in another.
        let era = Some(cell.snapshot.lock().asked_in.clone()).filter(|era| !era.is_empty());
        let era = era.unwrap_or_else(|| self.era_of(cell.tag()));
        let ask = async |sum: Sum| {
            let (tag, era) = (cell.tag().to_owned(), Some(Arc::clone(&era)));
            let commit = Commit { tag, sums: vec![sum], era, ..Commit::default() };
            self.shared.commit(&commit).await
        };
        let quiet = |mine| {
            let snapshot = cell.snapshot.lock();
            snapshot.pending == 0 && snapshot.mine(life) == mine
        };
        let mine = cell.snapshot.lock().mine(life);
        if !quiet(mine) {
            return Ok(false);
        }
        let reply = ask(sum(None, None)).await?;
        self.note_era(cell.tag(), Arc::clone(&reply.era));
        if reply.era != era {
            return Ok(false);
        }
        let Some(there) = reply.sums.into_iter().next() else { return Ok(false) };
        cell.count(there.clone());
        if !quiet(mine) || self.life().0 != life {
            return Ok(false);
        }
        let told = there.held.iter().find(|(node, _)| **node == *me).map(|(_, held)| *held);
        let difference = mine - told.unwrap_or_default();
        Ok(difference.is_empty()
            || ask(sum(Some(there.changes), Some((me.to_string(), difference)))).await?.done)
    }

    /// Reads scopes of one project from Redis.
    pub async fn refresh(&self, cells: &[Arc<Cell>]) -> Result<(), Unreachable> {
        let Some(first) = cells.first() else { return Ok(()) };
        let item = |cell: &Arc<Cell>| {
            let expect = cell.snapshot.lock().expect();
            Item { key: cell.key().to_owned(), expect, write: None }
        };
        let counted = || cells.iter().filter(|cell| cell.is_counted());
        // No counters were ever changed so often, so Redis refuses this commit and only answers
        // with the current values.
        let sum =
            |cell: &Arc<Cell>| Sum { key: cell.sum_key(), seen: Some(u64::MAX), ..Sum::default() };
        let commit = Commit {
            tag: first.tag().to_owned(),
            items: cells.iter().map(item).collect(),
            sums: counted().map(sum).collect(),
            era: Some(self.era_of(first.tag())),
            ..Commit::default()
        };
        let reply = match self.shared.commit(&commit).await {
            Ok(reply) => reply,
            Err(error) => {
                self.note_outage(&error);
                return Err(error);
            }
        };
        self.set_time(reply.now);
        self.note_era(&commit.tag, Arc::clone(&reply.era));
        self.note_recovery();
        for cell in cells {
            cell.snapshot.lock().met = true;
        }
        for (cell, sums) in counted().zip(reply.sums) {
            cell.count(sums);
        }
        for moved in reply.moved {
            let cell = &cells[moved.item];
            // An older version: Redis lost a write, or a commit of this node overtook this answer.
            if moved.version.count() < cell.version().count() {
                cell.snapshot.lock().astray();
            } else if let Ok(record) = Record::from_bytes(&moved.value) {
                cell.adopt(moved.version, record, &reply.era);
            }
        }
        Ok(())
    }

    /// The scopes of a cell's project that were used since a time.
    pub async fn touched(&self, project: &Cell, since: Time) -> Result<Touched, Unreachable> {
        self.shared.touched(project.tag(), since).await
    }
}
