//! A batch: jobs of one lane that run on snapshots of their chains and are committed together.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use deadstop_core::share::{Bounds, Held, Totals, minute_began, spent_since};
use deadstop_core::{Link, NanoUsd, Policy, PolicySet, ScopeState, Time, Tokens};
use smallvec::SmallVec;

use crate::cell::{Cell, Snapshot, counts_of, era_mark};
use crate::lane::{Doubt, Job};
use crate::record::{Record, Version};
use crate::ride::Stayed;
use crate::transaction::Transaction;
use crate::wire::{COUNTERS, Commit, Era, Item, Reply, Sum, Write};

/// Redis deletes a scope that has not been used for a day; the database keeps it longer.
const KEEP_MS: u64 = 24 * 3600 * 1000;
/// Redis keeps an entry that was written more than once for an hour. After the first write it keeps
/// it for as long as a scope: its client may take that long before it reports again.
const KEEP_ENTRY_MS: u64 = 3600 * 1000;

/// A node puts a scope into the index of recently used scopes once in so many milliseconds. Who reads
/// the index looks back further than that.
const LIST_MS: u64 = 1000;

/// Entries by their keys, as this node last saw them.
pub(crate) type Entries = HashMap<String, (Version, Option<Vec<u8>>)>;

/// The node that commits, its clock, and which other nodes are dead.
pub(crate) struct Setting<'a> {
    pub(crate) me: Arc<str>,
    pub(crate) life: u64,
    pub(crate) now: Time,
    /// The era in which this node has read all scopes of the batch from the database.
    pub(crate) era: Era,
    /// A number that makes the versions of this commit differ from those of every other writer.
    pub(crate) mark: u32,
    /// How many attempts came before this one.
    pub(crate) tries: u32,
    pub(crate) is_dead: &'a (dyn Fn(&str) -> bool + Sync),
}

/// A scope that the batch works on.
struct Work {
    me: Arc<str>,
    life: u64,
    /// The mark of the era.
    era: u64,
    cell: Arc<Cell>,
    policies: Arc<PolicySet>,
    before: ScopeState,
    state: ScopeState,
    snapshot: Snapshot,
    attachment: Vec<u8>,
    number: i64,
    held: BTreeMap<String, Held>,
    notes: [i64; 2],
    /// Whether a job asked for room in its limits.
    grown: bool,
    /// Dead nodes that still have reservations here.
    bury: Vec<String>,
    /// For each limited amount: the highest value that a job reached and found within its limit.
    relied: [Option<u64>; LIMITED],
    next: Version,
    /// The record to write, if it changed.
    written: Option<Record>,
}

impl Work {
    fn policy(&self) -> &Policy {
        self.policies.of(self.cell.kind())
    }

    /// Whether this commit puts it into the index of recently used scopes.
    fn is_unlisted(&self, now: Time) -> bool {
        now.since(self.snapshot.listed).0 >= LIST_MS
    }

    /// Whether the record has to be written.
    fn changed(&self) -> bool {
        // A record that Redis lost is written again. A new one is written too, so that every node
        // notices if it disappears later.
        let missing = self.snapshot.lost.is_some() || self.snapshot.version == Version::default();
        match self.cell.is_counted() {
            _ if self.snapshot.dirty || missing => true,
            true => {
                !self.state.has_rest_of(&self.before) || self.attachment != self.snapshot.attachment
            }
            false => {
                self.state != self.before
                    || self.attachment != self.snapshot.attachment
                    || self.number != self.snapshot.number
                    || !self.snapshot.in_order(self.life, &self.me)
                    || !self.bury.is_empty()
            }
        }
    }

    /// The record with all changes of this batch.
    fn record(&self) -> Record {
        let mut record = Record {
            number: self.number,
            recent: self.snapshot.recent.clone(),
            parts: Vec::new(),
            attachment: self.attachment.clone(),
            state: if self.cell.is_counted() { self.state.rest() } else { self.state.clone() },
            era: self.era,
        };
        if !self.cell.is_counted() {
            let buried = |node: &String| self.bury.contains(node);
            record.parts =
                self.snapshot.parts.iter().filter(|part| !buried(&part.node)).cloned().collect();
            // This node knows best what its own calls reserve: an earlier commit of its own may
            // have been applied without an answer.
            record.set_held(&self.me, self.snapshot.mine(self.life));
            for (node, more) in &self.held {
                let held = record.held_by(node) + *more;
                record.set_held(node, if node.is_empty() { held.or_nothing() } else { held });
            }
        }
        record.remember(self.next);
        record
    }

    /// Notes the amounts that a job reached and found within their limits.
    fn rely(&mut self, before: &Totals, minute: u64) {
        let policy = self.policies.of(self.cell.kind());
        let after = self.state.totals(policy);
        let before = amounts(before, after.period, minute);
        let now = amounts(&after, after.period, minute);
        for (at, limit) in limits(&policy.bounds_of(&self.state)).into_iter().enumerate() {
            // A pace is judged for calls, too, that add nothing to it.
            let judged = now[at] > before[at] || at >= PACE;
            if judged && limit.is_some_and(|limit| now[at] <= limit) {
                self.relied[at] = self.relied[at].max(Some(now[at]));
            }
        }
    }

    /// The upper bounds for the commit. They are set so that every job still had room when it ran,
    /// whatever other nodes have added meanwhile. Changes after the highest relied-on value shift
    /// the bound by the same amount.
    fn bounds(&self, after: &Totals, minute: u64) -> Bounds {
        let now = amounts(after, after.period, minute);
        let limits = limits(&self.policy().bounds_of(&self.state));
        let bound = |at: usize| {
            let relied = self.relied[at]?;
            Some(limits[at]?.saturating_add_signed(difference(now[at], relied)))
        };
        Bounds {
            steps: bound(0),
            model_calls: bound(1),
            input: bound(2),
            output: bound(3),
            tokens: bound(4),
            cost: bound(5),
            pace_cost: bound(PACE),
            pace_tokens: bound(PACE + 1),
        }
    }

    /// The changes of the counters.
    fn sum(&self, fresh: bool, now: Time) -> Sum {
        let minute = minute_began(now);
        let policy = self.policy();
        let (before, after) = (self.before.totals(policy), self.state.totals(policy));
        let seen = &self.snapshot.sums;
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
            bounds: self.bounds(&after, minute),
            minute,
            seen: fresh.then_some(seen.changes),
            pace: new_pace(&before, &after),
        }
    }
}

/// How many amounts are limited.
pub(crate) const LIMITED: usize = 8;
/// The first of those that are limited by their pace.
const PACE: usize = 6;

/// The limited amounts: steps, model calls, input, output, input plus output, cost, cost and tokens
/// of the minute. Cost of another period counts as zero.
pub(crate) fn amounts(totals: &Totals, period: u64, minute: u64) -> [u64; LIMITED] {
    let held = totals.held;
    let input = totals.spent.input.0.saturating_add_signed(held.input);
    let output = totals.spent.output.0.saturating_add_signed(held.output);
    let spent = if totals.period == period { totals.period_cost.0 } else { 0 };
    let cost = spent.saturating_add_signed(held.cost);
    let (paid, used) = spent_since(&totals.pace, minute);
    let paid = paid.saturating_add_signed(held.cost);
    let used = used.saturating_add_signed(held.input + held.output);
    let (steps, models) = (totals.spent.steps, totals.spent.model_calls);
    [steps, models, input, output, input + output, cost, paid, used]
}

pub(crate) fn limits(bounds: &Bounds) -> [Option<u64>; LIMITED] {
    let Bounds { steps, model_calls, input, output, tokens, cost, pace_cost, pace_tokens } =
        *bounds;
    [steps, model_calls, input, output, tokens, cost, pace_cost, pace_tokens]
}

/// Cost and tokens that the batch added to the newest interval.
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

/// Jobs on snapshots.
pub(crate) struct Batch<'a> {
    setting: Setting<'a>,
    works: Vec<Work>,
    /// Whether a job refused something.
    refused: bool,
    entries: BTreeMap<String, Option<Vec<u8>>>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(setting: Setting<'a>) -> Batch<'a> {
        Batch { setting, works: Vec::new(), refused: false, entries: BTreeMap::new() }
    }

    /// Where the sessions were in which the batch admitted calls; `None` if there are no such
    /// sessions, or only new ones.
    pub(crate) fn stayed(&self) -> Option<Stayed> {
        let admitted = self.works.iter().filter(|work| work.grown && !work.cell.is_counted());
        let versions = admitted.map(|work| work.snapshot.version);
        let known = versions.filter(|version| *version > Version::default());
        let stayed = known.map(|version| version.is_by(self.setting.mark));
        stayed
            .reduce(|all, one| all && one)
            .map(|all| if all { Stayed::Here } else { Stayed::Elsewhere })
    }

    /// The index of a scope in the batch; adds it if it is new.
    fn place(&mut self, cell: &Arc<Cell>, policies: &Arc<PolicySet>) -> usize {
        if let Some(at) = self.works.iter().position(|work| Arc::ptr_eq(&work.cell, cell)) {
            return at;
        }
        let (snapshot, before) = cell.both();
        let dead = |node: &String| (self.setting.is_dead)(node);
        let mut state = before.clone();
        let bury: Vec<String> = match cell.is_counted() {
            true => snapshot
                .sums
                .held
                .iter()
                .map(|(node, _)| node)
                .filter(|n| dead(n))
                .cloned()
                .collect(),
            false => {
                let parts = snapshot.parts.iter().filter(|part| dead(&part.node));
                parts.map(|part| (state.bury(part.held), part.node.clone()).1).collect()
            }
        };
        if !cell.is_counted() {
            let told = snapshot.parts.iter().find(|part| *part.node == *self.setting.me);
            let told = told.map(|part| part.held).unwrap_or_default();
            state.give_back(told - snapshot.mine(self.setting.life));
        }
        if !cell.is_counted() && !snapshot.whole {
            // Redis does not have this scope, so it cannot tell which node made these reservations:
            // book them as spent.
            state.bury(state.held());
        }
        self.works.push(Work {
            me: Arc::clone(&self.setting.me),
            life: self.setting.life,
            era: era_mark(&self.setting.era),
            next: snapshot.version.next(self.setting.mark),
            attachment: snapshot.attachment.clone(),
            number: snapshot.number,
            cell: Arc::clone(cell),
            policies: Arc::clone(policies),
            before,
            state,
            snapshot,
            held: BTreeMap::new(),
            notes: [0; 2],
            grown: false,
            bury,
            relied: [None; LIMITED],
            written: None,
        });
        self.works.len() - 1
    }

    /// Runs one job.
    pub(crate) fn run(&mut self, job: &mut Job, entries: &Entries) {
        let places: SmallVec<[usize; 6]> =
            job.cells.iter().map(|cell| self.place(cell, &job.policies)).collect();
        let mut entry = job.entry.as_ref().and_then(|key| match self.entries.get(key) {
            Some(entry) => entry.clone(),
            None => entries.get(key).and_then(|known| known.1.clone()),
        });
        let Some(&last) = places.last() else { return };
        let mut attachments: SmallVec<[Vec<u8>; 6]> =
            places.iter().map(|at| std::mem::take(&mut self.works[*at].attachment)).collect();
        let totals: SmallVec<[Totals; 6]> = places
            .iter()
            .map(|at| &self.works[*at])
            .map(|work| work.state.totals(work.policy()))
            .collect();
        let mut number = self.works[last].number;
        // Taken out and put back, so that all states of a chain can be borrowed at once.
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
        let mut transaction = Transaction {
            links: &mut links,
            now: self.setting.now,
            attachments: &mut attachments,
            number: &mut number,
            entry: &mut entry,
            me: &self.setting.me,
            held: &mut held,
            notes: &mut notes,
            grown: false,
            refused: false,
        };
        (job.run)(&mut transaction);
        let grown = transaction.grown;
        self.refused |= transaction.refused;
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
        for (at, attachment) in places.iter().zip(attachments) {
            self.works[*at].attachment = attachment;
        }
        self.works[last].number = number;
        for (at, before) in places.iter().zip(&totals).filter(|_| grown) {
            self.works[*at].grown = true;
            self.works[*at].rely(before, minute_began(self.setting.now));
        }
        if let Some(key) = &job.entry {
            self.entries.insert(key.clone(), entry);
        }
    }

    /// The commit that asks Redis to apply the batch.
    pub(crate) fn commit(&mut self, entries: &Entries) -> Commit {
        for work in &mut self.works {
            work.written = work.changed().then(|| work.record());
        }
        let tag = self.works.first().map_or("", |work| work.cell.tag()).to_owned();
        let mut items: Vec<Item> = self
            .works
            .iter()
            .map(|work| Item {
                key: work.cell.key().to_owned(),
                expect: work.snapshot.expect(),
                write: work.written.as_ref().map(|record| Write {
                    version: work.next,
                    value: record.to_bytes(),
                    keep_ms: KEEP_MS,
                }),
            })
            .collect();
        for (key, entry) in &self.entries {
            let (version, known) = entries.get(key).cloned().unwrap_or_default();
            let write = entry.as_ref().filter(|_| *entry != known).map(|value| Write {
                version: version.next(self.setting.mark),
                value: value.clone(),
                keep_ms: if known.is_none() { KEEP_MS } else { KEEP_ENTRY_MS },
            });
            items.push(Item { key: key.clone(), expect: version, write });
        }
        let counted = self.works.iter().filter(|work| work.cell.is_counted());
        // A refusal rests on current counters.
        let fresh = self.refused && self.setting.tries < 2;
        let sums = counted.map(|work| work.sum(fresh, self.setting.now)).collect();
        let unlisted = self.works.iter().filter(|work| work.is_unlisted(self.setting.now));
        let touched = unlisted.map(|work| work.cell.scope.clone()).collect();
        Commit { tag, items, sums, era: Some(Arc::clone(&self.setting.era)), touched }
    }

    /// The scope of an item of the commit, unless the item is an entry.
    pub(crate) fn cell(&self, item: usize) -> Option<&Arc<Cell>> {
        self.works.get(item).map(|work| &work.cell)
    }

    /// The scopes whose counters are part of the commit.
    pub(crate) fn counted(&self) -> impl Iterator<Item = &Arc<Cell>> {
        self.works.iter().map(|work| &work.cell).filter(|cell| cell.is_counted())
    }

    /// The entries as they are after the commit.
    pub(crate) fn entries<'b>(
        &'b self,
        commit: &'b Commit,
    ) -> impl Iterator<Item = (&'b str, Version, Option<Vec<u8>>)> {
        commit.items[self.works.len()..].iter().map(|item| {
            let version = item.write.as_ref().map_or(item.expect, |write| write.version);
            (item.key.as_str(), version, self.entries.get(&item.key).cloned().flatten())
        })
    }

    /// The commit is about to be sent. Until its answer arrives, this node's reservations in Redis
    /// are uncertain and must not be corrected.
    pub(crate) fn asked(&self) {
        for cell in self.counted() {
            cell.snapshot.lock().pending += 1;
        }
    }

    /// The answer has arrived, or the node has given up waiting.
    pub(crate) fn answered(&self) {
        for cell in self.counted() {
            cell.snapshot.lock().pending -= 1;
        }
    }

    /// The commit was applied: the cells take over the new states.
    pub(crate) fn done(self, reply: Reply) {
        let mut sums = reply.sums.into_iter();
        for work in self.works {
            if work.is_unlisted(self.setting.now) {
                work.cell.snapshot.lock().listed = self.setting.now;
            }
            let sums = if work.cell.is_counted() { sums.next() } else { None };
            let mine = work.held.get(&*work.me).copied().unwrap_or_default();
            let record = work.written.map(|record| (work.next, record));
            work.cell.done(&work.state, record, sums, (work.life, mine));
        }
    }

    /// No answer arrived: the commit may have been applied.
    pub(crate) fn doubt(&self) {
        for work in &self.works {
            work.cell.snapshot.lock().doubt();
        }
    }

    /// The record and version that will show whether a job was committed. It is the record of the
    /// innermost scope, because other nodes write that one least.
    pub(crate) fn sign(&self, job: &Job, commit: &Commit) -> Option<Doubt> {
        job.cells.iter().rev().find_map(|cell| {
            let at = self.works.iter().position(|work| Arc::ptr_eq(&work.cell, cell))?;
            let write = commit.items[at].write.as_ref()?;
            let (cell, held) = (Arc::clone(cell), job.held.clone());
            Some(Doubt { cell, version: write.version, held })
        })
    }

    /// Runs a job on the last state this node knows, while Redis is unreachable.
    pub(crate) fn offline<T>(
        me: &str,
        now: Time,
        cells: &[Arc<Cell>],
        policies: &PolicySet,
        job: impl FnOnce(&mut Transaction<'_, '_>) -> T,
    ) -> T {
        let mut states: SmallVec<[ScopeState; 6]> = cells
            .iter()
            .map(|cell| match cell.snapshot.lock().shadow.take() {
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
        let mut attachments: SmallVec<[Vec<u8>; 6]> =
            cells.iter().map(|cell| cell.attachment()).collect();
        let mut transaction = Transaction {
            links: &mut links,
            now,
            attachments: &mut attachments,
            number: &mut cells.last().map_or(0, |cell| cell.number()),
            entry: &mut None,
            me,
            held: &mut held,
            notes: &mut notes,
            grown: false,
            refused: false,
        };
        let done = job(&mut transaction);
        drop(links);
        for (cell, state) in cells.iter().zip(states) {
            cell.snapshot.lock().shadow = Some(Box::new(state));
        }
        done
    }
}
