//! A scope as a node has it: its state, and how the store's copy was when it was last seen.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use deadstop_core::{Held, NanoUsd, PolicySet, ScopeKind, ScopeState, Spent, Tokens, Totals};
use parking_lot::Mutex;
use tokio::time::Instant;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::lane::Lane;
use crate::record::{Record, Version};
use crate::wire::{Era, Sums};

/// When no store ever began to count.
const ANOTHER: u64 = 1;
/// How long a request may be on its way that nobody waits for any more.
const LATE: Duration = Duration::from_secs(15);

/// Told whenever a state comes in, from here or from elsewhere.
pub type Watch = Box<dyn Fn(&ScopeState) + Send + Sync>;

/// A scope as a node has it.
pub struct Cell {
    /// What people call it.
    pub name: String,
    /// Its path, unique everywhere.
    pub scope: String,
    kind: ScopeKind,
    tag: String,
    key: String,
    /// Its state, as it was last seen.
    pub state: Arc<Mutex<ScopeState>>,
    pub(crate) copy: Mutex<Copy>,
    pub(crate) lane: Arc<Lane>,
    /// The lane that its jobs are in: its agent's.
    pub(crate) home: OnceLock<Arc<Lane>>,
    watch: Watch,
}

/// The store's copy, as it was last seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Copy {
    pub(crate) version: Version,
    pub(crate) number: i64,
    pub(crate) recent: Vec<Version>,
    pub(crate) parts: Vec<crate::record::Part>,
    pub(crate) page: Vec<u8>,
    pub(crate) sums: Sums,
    /// The era in which the database was asked for it. Until that is the present one, it is not known
    /// whether the store has lost something of it.
    pub(crate) asked_in: Era,
    /// Whether it was ever seen whole. What comes from the database is not: it does not say who
    /// holds what.
    pub(crate) whole: bool,
    /// What the store has in its place, if it has lost what it had.
    pub(crate) lost: Option<Version>,
    /// What calls of this node hold, in that life of its.
    mine: (u64, Held),
    /// Whether the store may show something else, and how long that may still become so.
    pub(crate) suspect: Option<Instant>,
    /// Whether the store has lost what it had, and was not told yet.
    pub(crate) astray: bool,
    /// Steps whose answers are not there yet.
    pub(crate) pending: u32,
    /// Whether the store was asked about it.
    pub(crate) met: bool,
    /// Whether the state was changed here and the store does not know yet.
    pub(crate) dirty: bool,
    /// The policies of its last job here.
    pub(crate) policies: Option<Arc<PolicySet>>,
    /// What happens here while nobody can be asked.
    pub(crate) shadow: Option<Box<ScopeState>>,
    /// Calls that were let pass since then.
    pub(crate) unasked: u64,
}

impl Cell {
    /// A scope, from what the database has of it or new. `scope` is its path.
    pub fn new(
        project: &str,
        scope: &str,
        name: &str,
        state: Arc<Mutex<ScopeState>>,
        (version, number): (Version, i64),
        watch: Watch,
    ) -> Cell {
        let kind = state.lock().kind();
        let tag = tag(project);
        // Names may be of any length and hold anything.
        let key = format!("{:032x}", xxh3_128(scope.as_bytes()));
        let (sums, whole) = {
            let mut state = state.lock();
            let held = state.held();
            if counted(kind) {
                // Who holds it, the store knows.
                state.give_back(held);
            }
            (sums_of(&state), version == Version::default() && held.is_empty())
        };
        Cell {
            name: name.to_owned(),
            scope: scope.to_owned(),
            kind,
            key: format!("deadstop:{{{tag}}}:s:{key}"),
            tag,
            state,
            copy: Mutex::new(Copy { version, number, sums, whole, ..Copy::default() }),
            lane: Arc::default(),
            home: OnceLock::new(),
            watch,
        }
    }

    /// The database was asked for it in this era: the one before the question, not after the answer.
    pub fn asked_in(&self, era: Era) {
        self.copy.lock().asked_in = era;
    }

    /// What kind of scope it is.
    pub fn kind(&self) -> ScopeKind {
        self.kind
    }

    /// Whether all nodes count in it at once.
    pub(crate) fn is_counted(&self) -> bool {
        counted(self.kind)
    }

    pub(crate) fn tag(&self) -> &str {
        &self.tag
    }

    /// The key of its record.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The key of its counters.
    pub fn sum_key(&self) -> String {
        format!("{}:n", self.key)
    }

    /// The key of something else that goes with it.
    pub fn letter_key(&self, id: &str) -> String {
        format!("{}:l:{:032x}", self.key, xxh3_128(id.as_bytes()))
    }

    /// Its number among all rows: that of the first node that knew it.
    pub fn number(&self) -> i64 {
        self.copy.lock().number
    }

    /// The version of the copy that was last seen.
    pub fn version(&self) -> Version {
        self.copy.lock().version
    }

    /// Whether the store is known to have something of it.
    pub fn is_known(&self) -> bool {
        self.copy.lock().version > Version::default()
    }

    /// Whether the store was ever asked about it.
    pub fn is_met(&self) -> bool {
        self.copy.lock().met
    }

    /// How often its counters were changed, as far as this node knows.
    pub fn changes(&self) -> u64 {
        self.copy.lock().sums.changes
    }

    /// What goes with the state.
    pub fn page(&self) -> Vec<u8> {
        self.copy.lock().page.clone()
    }

    /// Loops and incidents, for projects and agents.
    pub fn notes(&self) -> (u64, u64) {
        let counts = self.copy.lock().sums.counts;
        (counts[7], counts[8])
    }

    /// Changes the state at once, for this node. The next job brings it to the store.
    pub fn force(&self, change: impl FnOnce(&mut ScopeState)) {
        let mut copy = self.copy.lock();
        copy.dirty = true;
        let mut state = self.state.lock();
        change(&mut state);
        if let Some(shadow) = &mut copy.shadow {
            shadow.honour(&state);
        }
        (self.watch)(&state);
    }

    /// The store has lost what this node knows of it, and has something older in its place. This
    /// node's copy is put back, but whoever is dead by what is there stays so.
    pub(crate) fn lost(&self, there: Version, record: Option<&Record>) {
        let mut copy = self.copy.lock();
        if there.count() >= copy.version.count() {
            return;
        }
        copy.lost = Some(there);
        // It may have been killed since, and forgotten.
        copy.asked_in = Era::default();
        if let Some(record) = record {
            let mut own = self.state.lock();
            own.honour(&record.state);
            (self.watch)(&own);
        }
    }

    /// The database was asked in this era who is dead. What the store does not know of that it is
    /// told.
    pub(crate) fn asked_again(&self, era: Era, stored: Option<&ScopeState>) {
        let mut copy = self.copy.lock();
        copy.enter(era);
        let Some(stored) = stored else { return };
        let mut own = self.state.lock();
        copy.dirty |= own.honour(stored);
        (self.watch)(&own);
    }

    /// State and copy, as they belong together.
    pub(crate) fn both(&self) -> (Copy, ScopeState) {
        let copy = self.copy.lock();
        let state = self.state.lock().clone();
        (copy.clone(), state)
    }

    /// Takes in what a step has made of it. Others may have been here since: what is newer stays.
    pub(crate) fn done(
        &self,
        state: &ScopeState,
        record: Option<(Version, Record)>,
        sums: Option<Sums>,
        (life, held): (u64, Held),
    ) {
        let mut copy = self.copy.lock();
        copy.hold(life, held);
        copy.met = true;
        let mut own = self.state.lock();
        if self.is_counted() {
            own.learn(state);
        }
        if let Some((version, record)) = record
            && version.count() > copy.version.count()
        {
            self.take(&mut copy, &mut own, version, record);
        }
        if let Some(sums) = sums {
            copy.count(sums, &mut own);
        }
        (self.watch)(&own);
    }

    /// Takes in what the store has, in this era.
    pub(crate) fn adopt(&self, version: Version, record: Record, era: &Era) {
        let mut copy = self.copy.lock();
        if version.count() < copy.version.count() {
            return;
        }
        if !era.is_empty() && record.era == era_mark(era) {
            // Somebody has asked the database in this era, and whoever is killed later is killed here.
            copy.enter(Arc::clone(era));
        }
        let mut own = self.state.lock();
        self.take(&mut copy, &mut own, version, record);
        (self.watch)(&own);
    }

    /// Takes over what the store has. If this node knows better whether it is dead, the store is told.
    fn take(&self, copy: &mut Copy, own: &mut ScopeState, version: Version, record: Record) {
        // Whoever goes on from what this node has knows all that it knows.
        let follows = !copy.dirty && record.recent.contains(&copy.version);
        copy.take(version, &record);
        let mut state = record.state;
        copy.dirty = !follows && state.honour(own);
        if copy.dirty {
            copy.astray();
        }
        match self.is_counted() {
            true => own.set_rest(state),
            false => *own = state,
        }
    }

    /// Takes counters in.
    pub(crate) fn count(&self, sums: Sums) {
        let mut copy = self.copy.lock();
        copy.count(sums, &mut self.state.lock());
    }
}

impl Copy {
    /// The version that the store must have.
    pub(crate) fn expect(&self) -> Version {
        match self.lost {
            Some(there) => there,
            None if self.whole => self.version,
            None => self.version.unmarked(),
        }
    }

    /// Another era begins. Counters of which one was born in another era count as others: a server
    /// that took over may show less than what was seen.
    fn enter(&mut self, era: Era) {
        if self.asked_in != era && self.sums.born != 0 {
            self.sums.born = ANOTHER;
            self.astray();
        }
        self.asked_in = era;
    }

    /// What calls of this node hold, in this life of its.
    pub(crate) fn mine(&self, life: u64) -> Held {
        if self.mine.0 == life { self.mine.1 } else { Held::default() }
    }

    /// Answers to an earlier life come too late: what it held is not this one's.
    pub(crate) fn hold(&mut self, life: u64, more: Held) {
        if life >= self.mine.0 {
            self.mine = (life, self.mine(life) + more);
        }
    }

    /// Something was asked, and may be done yet.
    pub(crate) fn doubt(&mut self) {
        self.suspect = Some(Instant::now() + LATE);
    }

    /// The store has lost what it had.
    pub(crate) fn astray(&mut self) {
        self.astray = true;
        self.suspect.get_or_insert_with(Instant::now);
    }

    /// Whether the store shows what calls of this node hold, as far as it was seen.
    pub(crate) fn in_order(&self, life: u64, me: &str) -> bool {
        let parts = self.parts.iter().map(|part| (&part.node, part.held));
        let sums = self.sums.held.iter().map(|(node, held)| (node, *held));
        let told = parts.chain(sums).find(|(node, _)| *node == me);
        !self.astray && told.map(|(_, held)| held).unwrap_or_default() == self.mine(life)
    }

    fn take(&mut self, version: Version, record: &Record) {
        (self.whole, self.lost) = (true, None);
        // Counters may still be.
        self.astray &= self.sums.born != 0;
        self.version = version;
        self.number = record.number;
        self.recent.clone_from(&record.recent);
        self.parts.clone_from(&record.parts);
        self.page.clone_from(&record.page);
    }

    /// Answers may overtake each other: what is older does not count.
    fn count(&mut self, sums: Sums, state: &mut ScopeState) {
        if sums.born == 0 && self.sums.born == 0 {
            // There is nothing there yet: what the database had is all that is known.
            return;
        }
        let older = (sums.born, sums.changes) < (self.sums.born, self.sums.changes);
        if self.sums.born != 0 && sums.born != self.sums.born {
            if older && sums.born != 0 {
                return;
            }
            // The store has lost what it had, and must be told what this node has seen.
            self.astray();
            let grown = sums.counts.iter().zip(self.sums.counts).all(|(new, old)| *new >= old);
            if !grown || sums.born == 0 {
                // A period that has begun has begun: whoever stays behind is never heard.
                if sums.period > self.sums.period {
                    let Sums { period, period_cost, .. } = sums;
                    (self.sums.period, self.sums.period_cost) = (period, period_cost);
                    state.set_totals(&totals_of(&self.sums));
                }
                return;
            }
        } else if older {
            return;
        }
        state.set_totals(&totals_of(&sums));
        self.sums = sums;
    }
}

/// What tells eras apart in a few bytes.
pub(crate) fn era_mark(era: &Era) -> u64 {
    xxh3_64(era.as_bytes()).max(1)
}

/// What all keys of a project have in common.
pub(crate) fn tag(project: &str) -> String {
    format!("{:016x}", xxh3_128(project.as_bytes()) as u64)
}

fn counted(kind: ScopeKind) -> bool {
    matches!(kind, ScopeKind::Project | ScopeKind::Agent)
}

/// Counters as the engine has them.
pub(crate) fn totals_of(sums: &Sums) -> Totals {
    let [calls, steps, model_calls, input, output, cache, cost, ..] = sums.counts;
    Totals {
        calls,
        spent: Spent {
            steps,
            model_calls,
            input: Tokens(input),
            output: Tokens(output),
            cache_read: Tokens(cache),
            cost: NanoUsd(cost),
        },
        held: sums.held.iter().fold(Held::default(), |all, (_, held)| all + *held),
        period: sums.period,
        period_cost: NanoUsd(sums.period_cost),
        pace: sums.pace.clone(),
    }
}

/// The counters that a state shows.
pub(crate) fn counts_of(totals: &Totals) -> [u64; 7] {
    let spent = &totals.spent;
    [
        totals.calls,
        spent.steps,
        spent.model_calls,
        spent.input.0,
        spent.output.0,
        spent.cache_read.0,
        spent.cost.0,
    ]
}

/// What a node knows of counters before it has asked for them: what the database had.
fn sums_of(state: &ScopeState) -> Sums {
    if !counted(state.kind()) {
        return Sums::default();
    }
    let ledger = state.ledger();
    let spent = &ledger.spent;
    let mut counts = [0; 9];
    counts[..7].copy_from_slice(&[
        state.calls(),
        spent.steps,
        spent.model_calls,
        spent.input.0,
        spent.output.0,
        spent.cache_read.0,
        spent.cost.0,
    ]);
    Sums { counts, ..Sums::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deadstop_core::Time;

    #[test]
    fn an_empty_store_does_not_make_forget_what_the_database_had() {
        let mut state = ScopeState::new(ScopeKind::Agent, Time(1));
        let spent = Spent { steps: 3, cost: NanoUsd(70), ..Spent::default() };
        state.set_totals(&Totals { calls: 5, spent, ..Totals::default() });
        let state = Arc::new(Mutex::new(state));
        let cell = Cell::new("p", "p\u{1f}a", "a", state, (Version(0), 1), Box::new(|_| {}));
        cell.count(Sums::default());
        assert_eq!(cell.state.lock().ledger().spent.cost, NanoUsd(70));
        assert_eq!(cell.copy.lock().sums.counts[..2], [5, 3]);
        // Once there is something, that counts.
        let counts = [6, 4, 0, 0, 0, 0, 80, 0, 0];
        cell.count(Sums { counts, born: 9, changes: 1, ..Sums::default() });
        assert_eq!(cell.state.lock().ledger().spent.cost, NanoUsd(80));
    }
}
