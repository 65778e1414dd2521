//! What a node does between calls: it reads again what it has in use, and puts right what the store shows
//! of its own calls.

use std::sync::{Arc, Weak};

use deadstop_core::Time;
use tokio::time::Instant;

use crate::cell::Cell;
use crate::fleet::Fleet;
use crate::lane::Away;
use crate::record::Record;
use crate::wire::{Commit, Item, Shared, Sum, Sums, Touched};

/// Scopes that are read again in one step.
const READ_AT_ONCE: usize = 100;

impl<S: Shared> Fleet<S> {
    /// Reads again all scopes in use, so that a lost message cannot keep what is dead alive.
    pub async fn reread(self: &Arc<Self>) -> Result<(), Away> {
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
            let copy = cell.copy.lock();
            copy.suspect.is_some() || copy.pending == 0 && !copy.in_order(life, &me)
        };
        for cell in cells.iter().filter(wrong) {
            self.heal(cell).await?;
        }
        Ok(())
    }

    /// Sees to it that the store shows what calls of this node really hold: a step of which nobody
    /// knew may have been done, or the store may have lost what it had.
    async fn heal(self: &Arc<Self>, cell: &Arc<Cell>) -> Result<(), Away> {
        let (life, me) = self.life();
        let (late, policies) = {
            let mut copy = cell.copy.lock();
            let late = copy.suspect.is_some_and(|until| Instant::now() < until);
            if copy.in_order(life, &me) {
                copy.suspect = copy.suspect.filter(|_| late || copy.pending > 0);
                return Ok(());
            }
            (late, copy.policies.clone())
        };
        if let Some(policies) = policies {
            // Whatever a job does, it puts the record in order first.
            self.enqueue([Arc::clone(cell)], &policies, None, |_| (), false).await?;
        }
        let healed = !cell.is_counted() || self.heal_counters(cell).await?;
        if healed && !late {
            let mut copy = cell.copy.lock();
            (copy.suspect, copy.astray) = (None, false);
        }
        Ok(())
    }

    async fn heal_counters(&self, cell: &Arc<Cell>) -> Result<bool, Away> {
        let (life, me) = self.life();
        let sum = |seen, held| {
            let copy = cell.copy.lock();
            let held = Vec::from_iter(held);
            let Sums { born, counts, period, period_cost, .. } = copy.sums;
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
        // What was seen in one era is not written in another.
        let era = Some(cell.copy.lock().asked_in.clone()).filter(|era| !era.is_empty());
        let era = era.unwrap_or_else(|| self.era_of(cell.tag()));
        let ask = async |sum: Sum| {
            let (tag, era) = (cell.tag().to_owned(), Some(Arc::clone(&era)));
            let commit = Commit { tag, sums: vec![sum], era, ..Commit::default() };
            self.shared.commit(&commit).await
        };
        let quiet = |mine| {
            let copy = cell.copy.lock();
            copy.pending == 0 && copy.mine(life) == mine
        };
        let mine = cell.copy.lock().mine(life);
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

    /// Reads scopes of one project.
    pub async fn refresh(&self, cells: &[Arc<Cell>]) -> Result<(), Away> {
        let Some(first) = cells.first() else { return Ok(()) };
        let item = |cell: &Arc<Cell>| {
            let expect = cell.copy.lock().expect();
            Item { key: cell.key().to_owned(), expect, write: None }
        };
        let counted = || cells.iter().filter(|cell| cell.is_counted());
        // Counters that were changed so often there are none: this is never done, only answered.
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
            Err(away) => {
                self.note_away(&away);
                return Err(away);
            }
        };
        self.set_time(reply.now);
        self.note_era(&commit.tag, Arc::clone(&reply.era));
        self.note_back();
        for cell in cells {
            cell.copy.lock().met = true;
        }
        for (cell, sums) in counted().zip(reply.sums) {
            cell.count(sums);
        }
        for moved in reply.moved {
            let cell = &cells[moved.item];
            // Less than what is known: it was lost, or jobs in between know better already.
            if moved.version.count() < cell.version().count() {
                cell.copy.lock().astray();
            } else if let Ok(record) = Record::from_bytes(&moved.value) {
                cell.adopt(moved.version, record, &reply.era);
            }
        }
        Ok(())
    }

    /// The scopes of a cell's project that were touched since a time.
    pub async fn touched(&self, project: &Cell, since: Time) -> Result<Touched, Away> {
        self.shared.touched(project.tag(), since).await
    }
}
