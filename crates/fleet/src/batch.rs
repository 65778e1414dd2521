//! A batch: jobs on copies of their chains, and what the store is asked to make of it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use deadstop_core::{
    Bounds, Held, Link, NanoUsd, Policy, PolicySet, ScopeState, Time, Tokens, Totals,
};
use smallvec::SmallVec;

use crate::cell::{Cell, Copy, counts_of, era_mark};
use crate::desk::Desk;
use crate::lane::{Doubt, Job};
use crate::record::{Record, Version};
use crate::wire::{COUNTERS, Commit, Era, Item, Reply, Sum, Write};

/// How long the store keeps what nobody uses; the database has it longer.
const KEEP_MS: u64 = 24 * 3600 * 1000;
/// How long it keeps a letter that something was added to: whoever wrote the first word may take as
/// long as a scope is kept until he is heard of again.
const KEEP_LETTER_MS: u64 = 3600 * 1000;

/// Letters by their keys, as they were last seen.
pub(crate) type Letters = HashMap<String, (Version, Option<Vec<u8>>)>;

/// Who does it, when, and who else is alive.
pub(crate) struct Setting<'a> {
    pub(crate) me: Arc<str>,
    pub(crate) life: u64,
    pub(crate) now: Time,
    /// The era in which the database was asked for all that is used.
    pub(crate) era: Era,
    /// Makes the versions of this step different from everybody else's.
    pub(crate) mark: u32,
    /// How often it was tried before.
    pub(crate) tries: u32,
    pub(crate) is_dead: &'a (dyn Fn(&str) -> bool + Sync),
}

/// A scope that is worked on.
struct Work {
    me: Arc<str>,
    life: u64,
    /// The mark of the era.
    era: u64,
    cell: Arc<Cell>,
    policies: Arc<PolicySet>,
    before: ScopeState,
    state: ScopeState,
    copy: Copy,
    page: Vec<u8>,
    number: i64,
    held: BTreeMap<String, Held>,
    notes: [i64; 2],
    /// Dead nodes that hold something.
    bury: Vec<String>,
    /// The most that jobs have counted on there being room for, of each amount.
    relied: [u64; 6],
    next: Version,
    /// Its record as the store is asked to write it.
    written: Option<Record>,
}

impl Work {
    fn policy(&self) -> &Policy {
        self.policies.of(self.cell.kind())
    }

    /// Whether its record is another one now.
    fn changed(&self) -> bool {
        // What the store has lost is put back, and what is new is put there: whoever finds less
        // later knows that it was lost.
        let missing = self.copy.lost.is_some() || self.copy.version == Version::default();
        match self.cell.is_counted() {
            _ if self.copy.dirty || missing => true,
            true => self.state.rest() != self.before.rest() || self.page != self.copy.page,
            false => {
                self.state != self.before
                    || self.page != self.copy.page
                    || self.number != self.copy.number
                    || !self.copy.in_order(self.life, &self.me)
                    || !self.bury.is_empty()
            }
        }
    }

    /// Its record, as it is now.
    fn record(&self) -> Record {
        let mut record = Record {
            number: self.number,
            recent: self.copy.recent.clone(),
            parts: Vec::new(),
            page: self.page.clone(),
            state: if self.cell.is_counted() { self.state.rest() } else { self.state.clone() },
            era: self.era,
        };
        if !self.cell.is_counted() {
            let buried = |node: &String| self.bury.contains(node);
            record.parts =
                self.copy.parts.iter().filter(|part| !buried(&part.node)).cloned().collect();
            // What this node holds it knows best: a step that it was not told of may have been done.
            record.set_held(&self.me, self.copy.mine(self.life));
            for (node, more) in &self.held {
                let held = record.held_by(node) + *more;
                record.set_held(node, if node.is_empty() { held.or_nothing() } else { held });
            }
        }
        record.remember(self.next);
        record
    }

    /// Notes what a job has counted on there being room for.
    fn rely(&mut self, before: &Totals) {
        let policy = self.policies.of(self.cell.kind());
        let after = self.state.totals(policy);
        let (before, now) = (amounts(before, after.period), amounts(&after, after.period));
        for (at, limit) in limits(&policy.bounds()).into_iter().enumerate() {
            if now[at] > before[at] && limit.is_some_and(|limit| now[at] <= limit) {
                self.relied[at] = self.relied[at].max(now[at]);
            }
        }
    }

    /// How far the counters may go in the end, so that there was room for each job when its turn
    /// was: what came after the highest point they counted on does not matter for them.
    fn bounds(&self, after: &Totals) -> Bounds {
        let now = amounts(after, after.period);
        let limits = limits(&self.policy().bounds());
        let bound = |at: usize| {
            let relied = Some(self.relied[at]).filter(|relied| *relied > 0)?;
            Some(limits[at]?.saturating_add_signed(difference(now[at], relied)))
        };
        Bounds {
            steps: bound(0),
            model_calls: bound(1),
            input: bound(2),
            output: bound(3),
            tokens: bound(4),
            cost: bound(5),
        }
    }

    /// Its counters, as they are to be changed.
    fn sum(&self, fresh: bool) -> Sum {
        let policy = self.policy();
        let (before, after) = (self.before.totals(policy), self.state.totals(policy));
        let seen = &self.copy.sums;
        let mut add = [0; COUNTERS];
        for (add, (after, before)) in
            add.iter_mut().zip(counts_of(&after).into_iter().zip(counts_of(&before)))
        {
            *add = difference(after, before);
        }
        (add[7], add[8]) = (self.notes[0], self.notes[1]);
        let same = before.period == after.period;
        let base = if same { before.period_cost.0 } else { 0 };
        Sum {
            key: self.cell.sum_key(),
            born: seen.born,
            floor: seen.counts,
            add,
            period: after.period,
            period_floor: base,
            period_add: difference(after.period_cost.0, base),
            held: self
                .held
                .iter()
                .filter(|(_, held)| !held.is_empty())
                .map(|(node, held)| (node.clone(), *held))
                .collect(),
            bury: self.bury.clone(),
            bounds: self.bounds(&after),
            seen: fresh.then_some(seen.changes),
            pace: new_pace(&before, &after),
        }
    }
}

/// What is limited: steps, model calls, input, output, both, money. Money of another period than
/// this one does not count.
fn amounts(totals: &Totals, period: u64) -> [u64; 6] {
    let held = totals.held;
    let input = totals.spent.input.0.saturating_add_signed(held.input);
    let output = totals.spent.output.0.saturating_add_signed(held.output);
    let spent = if totals.period == period { totals.period_cost.0 } else { 0 };
    let cost = spent.saturating_add_signed(held.cost);
    [totals.spent.steps, totals.spent.model_calls, input, output, input + output, cost]
}

fn limits(bounds: &Bounds) -> [Option<u64>; 6] {
    [bounds.steps, bounds.model_calls, bounds.input, bounds.output, bounds.tokens, bounds.cost]
}

/// What was spent just now.
fn new_pace(before: &Totals, after: &Totals) -> Option<(u64, NanoUsd, Tokens)> {
    let newest = after.pace.last()?.0;
    let sum = |totals: &Totals| {
        let since = totals.pace.iter().filter(|entry| entry.0 == newest);
        since.fold((NanoUsd(0), Tokens(0)), |all, entry| (all.0 + entry.1, all.1 + entry.2))
    };
    let (before, after) = (sum(before), sum(after));
    let new = (newest, after.0 - before.0, after.1 - before.1);
    (new.1 > NanoUsd(0) || new.2 > Tokens(0)).then_some(new)
}

fn difference(after: u64, before: u64) -> i64 {
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    signed(after) - signed(before)
}

fn add(all: &mut BTreeMap<String, Held>, node: &str, more: Held) {
    let held = all.entry(node.to_owned()).or_default();
    *held = *held + more;
}

/// Jobs on copies.
pub(crate) struct Batch<'a> {
    setting: Setting<'a>,
    works: Vec<Work>,
    /// Whether something is asked for that limits may forbid.
    grown: bool,
    /// Whether something was refused.
    refused: bool,
    letters: BTreeMap<String, Option<Vec<u8>>>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(setting: Setting<'a>) -> Batch<'a> {
        Batch { setting, works: Vec::new(), grown: false, refused: false, letters: BTreeMap::new() }
    }

    /// Where in the batch a scope is, from now on.
    fn place(&mut self, cell: &Arc<Cell>, policies: &Arc<PolicySet>) -> usize {
        if let Some(at) = self.works.iter().position(|work| Arc::ptr_eq(&work.cell, cell)) {
            return at;
        }
        let (copy, before) = cell.both();
        let dead = |node: &String| (self.setting.is_dead)(node);
        let mut state = before.clone();
        let bury: Vec<String> = match cell.is_counted() {
            true => {
                copy.sums.held.iter().map(|(node, _)| node).filter(|n| dead(n)).cloned().collect()
            }
            false => {
                let parts = copy.parts.iter().filter(|part| dead(&part.node));
                parts.map(|part| (state.bury(part.held), part.node.clone()).1).collect()
            }
        };
        if !cell.is_counted() {
            let told = copy.parts.iter().find(|part| *part.node == *self.setting.me);
            let told = told.map(|part| part.held).unwrap_or_default();
            state.give_back(told - copy.mine(self.setting.life));
        }
        if !cell.is_counted() && !copy.whole {
            // The store does not have it, and nobody knows who held this.
            state.bury(state.held());
        }
        self.works.push(Work {
            me: Arc::clone(&self.setting.me),
            life: self.setting.life,
            era: era_mark(&self.setting.era),
            next: copy.version.next(self.setting.mark),
            page: copy.page.clone(),
            number: copy.number,
            cell: Arc::clone(cell),
            policies: Arc::clone(policies),
            before,
            state,
            copy,
            held: BTreeMap::new(),
            notes: [0; 2],
            bury,
            relied: [0; 6],
            written: None,
        });
        self.works.len() - 1
    }

    /// Does one job.
    pub(crate) fn run(&mut self, job: &mut Job, letters: &Letters) {
        let places: SmallVec<[usize; 6]> =
            job.cells.iter().map(|cell| self.place(cell, &job.policies)).collect();
        let mut letter = job.letter.as_ref().and_then(|key| match self.letters.get(key) {
            Some(letter) => letter.clone(),
            None => letters.get(key).and_then(|known| known.1.clone()),
        });
        let Some(&last) = places.last() else { return };
        let mut pages: SmallVec<[Vec<u8>; 6]> =
            places.iter().map(|at| std::mem::take(&mut self.works[*at].page)).collect();
        let totals: SmallVec<[Totals; 6]> = places
            .iter()
            .map(|at| &self.works[*at])
            .map(|work| work.state.totals(work.policy()))
            .collect();
        let mut number = self.works[last].number;
        // Taken out and put back, so that all of a chain can be changed at once.
        let mut states: SmallVec<[ScopeState; 6]> = places
            .iter()
            .map(|at| {
                let state = &mut self.works[*at].state;
                let kind = state.kind();
                std::mem::replace(state, ScopeState::new(kind, Time(0)))
            })
            .collect();
        let mut held: SmallVec<[BTreeMap<String, Held>; 6]> =
            places.iter().map(|_| BTreeMap::new()).collect();
        let mut notes: SmallVec<[[i64; 2]; 6]> =
            places.iter().map(|at| self.works[*at].notes).collect();
        let mut links: SmallVec<[Link<'_>; 6]> = job
            .cells
            .iter()
            .zip(&mut states)
            .map(|(cell, state)| Link {
                name: &cell.name,
                state,
                policy: job.policies.of(cell.kind()),
            })
            .collect();
        let mut desk = Desk {
            links: &mut links,
            now: self.setting.now,
            pages: &mut pages,
            number: &mut number,
            letter: &mut letter,
            me: &self.setting.me,
            held: &mut held,
            notes: &mut notes,
            grown: false,
            refused: false,
        };
        (job.run)(&mut desk);
        let grown = desk.grown;
        self.grown |= grown;
        self.refused |= desk.refused;
        drop(links);
        job.held.clear();
        for (cell, held) in job.cells.iter().zip(&held) {
            let mine = held.get(&*self.setting.me).filter(|held| !held.is_empty());
            job.held.extend(mine.map(|held| (Arc::clone(cell), self.setting.life, *held)));
        }
        for (at, ((state, held), notes)) in
            places.iter().zip(states.into_iter().zip(held).zip(notes))
        {
            let work = &mut self.works[*at];
            (work.state, work.notes) = (state, notes);
            for (node, more) in held {
                add(&mut work.held, &node, more);
            }
        }
        for (at, page) in places.iter().zip(pages) {
            self.works[*at].page = page;
        }
        self.works[last].number = number;
        for (at, before) in places.iter().zip(&totals).filter(|_| grown) {
            self.works[*at].rely(before);
        }
        if let Some(key) = &job.letter {
            self.letters.insert(key.clone(), letter);
        }
    }

    /// What the store is asked.
    pub(crate) fn commit(&mut self, letters: &Letters) -> Commit {
        for work in &mut self.works {
            work.written = work.changed().then(|| work.record());
        }
        let tag = self.works.first().map_or("", |work| work.cell.tag()).to_owned();
        let mut items: Vec<Item> = self
            .works
            .iter()
            .map(|work| Item {
                key: work.cell.key().to_owned(),
                expect: work.copy.expect(),
                write: work.written.as_ref().map(|record| Write {
                    version: work.next,
                    value: record.to_bytes(),
                    keep_ms: KEEP_MS,
                }),
            })
            .collect();
        for (key, letter) in &self.letters {
            let (version, known) = letters.get(key).cloned().unwrap_or_default();
            let write = letter.as_ref().filter(|_| *letter != known).map(|value| Write {
                version: version.next(self.setting.mark),
                value: value.clone(),
                keep_ms: if known.is_none() { KEEP_MS } else { KEEP_LETTER_MS },
            });
            items.push(Item { key: key.clone(), expect: version, write });
        }
        let counted = self.works.iter().filter(|work| work.cell.is_counted());
        let fresh = |work: &Work| {
            let tries = self.setting.tries;
            self.grown && tries == 0 && work.policy().limits_pace() || self.refused && tries < 2
        };
        let sums = counted.map(|work| work.sum(fresh(work))).collect();
        let touched = self.works.iter().map(|work| work.cell.scope.clone()).collect();
        Commit { tag, items, sums, era: Some(Arc::clone(&self.setting.era)), touched }
    }

    /// The scope of an item, if it is a scope's.
    pub(crate) fn cell(&self, item: usize) -> Option<&Arc<Cell>> {
        self.works.get(item).map(|work| &work.cell)
    }

    /// The scopes whose counters were asked for.
    pub(crate) fn counted(&self) -> impl Iterator<Item = &Arc<Cell>> {
        self.works.iter().map(|work| &work.cell).filter(|cell| cell.is_counted())
    }

    /// The letters as they are once it is done.
    pub(crate) fn letters<'b>(
        &'b self,
        commit: &'b Commit,
    ) -> impl Iterator<Item = (&'b str, Version, Option<Vec<u8>>)> {
        commit.items[self.works.len()..].iter().map(|item| {
            let version = item.write.as_ref().map_or(item.expect, |write| write.version);
            (item.key.as_str(), version, self.letters.get(&item.key).cloned().flatten())
        })
    }

    /// It is asked: whoever counts what this node holds must not do so before the answer is there.
    pub(crate) fn asked(&self) {
        for cell in self.counted() {
            cell.copy.lock().pending += 1;
        }
    }

    /// The answer is there, or will never be.
    pub(crate) fn answered(&self) {
        for cell in self.counted() {
            cell.copy.lock().pending -= 1;
        }
    }

    /// It is done: what was a copy holds.
    pub(crate) fn done(self, reply: Reply) {
        let mut sums = reply.sums.into_iter();
        for work in self.works {
            let sums = if work.cell.is_counted() { sums.next() } else { None };
            let mine = work.held.get(&*work.me).copied().unwrap_or_default();
            let record = work.written.map(|record| (work.next, record));
            work.cell.done(&work.state, record, sums, (work.life, mine));
        }
    }

    /// Nobody knows whether it was done.
    pub(crate) fn doubt(&self) {
        for work in &self.works {
            work.cell.copy.lock().doubt();
        }
    }

    /// A record of a job, and the version that would show that it was done: that of the innermost
    /// scope, which others write least.
    pub(crate) fn sign(&self, job: &Job, commit: &Commit) -> Option<Doubt> {
        job.cells.iter().rev().find_map(|cell| {
            let at = self.works.iter().position(|work| Arc::ptr_eq(&work.cell, cell))?;
            let write = commit.items[at].write.as_ref()?;
            let (cell, held) = (Arc::clone(cell), job.held.clone());
            Some(Doubt { cell, version: write.version, held })
        })
    }

    /// Does a job on what this node knows, while nobody can be asked.
    pub(crate) fn unasked<T>(
        me: &str,
        now: Time,
        cells: &[Arc<Cell>],
        policies: &PolicySet,
        job: impl FnOnce(&mut Desk<'_, '_>) -> T,
    ) -> T {
        let mut states: SmallVec<[ScopeState; 6]> = cells
            .iter()
            .map(|cell| match cell.copy.lock().shadow.take() {
                Some(mut shadow) => {
                    shadow.honour(&cell.state.lock());
                    *shadow
                }
                None => cell.state.lock().clone(),
            })
            .collect();
        let mut links: SmallVec<[Link<'_>; 6]> = cells
            .iter()
            .zip(&mut states)
            .map(|(cell, state)| Link { name: &cell.name, state, policy: policies.of(cell.kind()) })
            .collect();
        let mut held: SmallVec<[BTreeMap<String, Held>; 6]> =
            cells.iter().map(|_| BTreeMap::new()).collect();
        let mut notes: SmallVec<[[i64; 2]; 6]> = cells.iter().map(|_| [0; 2]).collect();
        let mut pages: SmallVec<[Vec<u8>; 6]> = cells.iter().map(|cell| cell.page()).collect();
        let mut desk = Desk {
            links: &mut links,
            now,
            pages: &mut pages,
            number: &mut cells.last().map_or(0, |cell| cell.number()),
            letter: &mut None,
            me,
            held: &mut held,
            notes: &mut notes,
            grown: false,
            refused: false,
        };
        let done = job(&mut desk);
        drop(links);
        for (cell, state) in cells.iter().zip(states) {
            cell.copy.lock().shadow = Some(Box::new(state));
        }
        done
    }
}
