//! A cell: a scope in one node's memory, with a snapshot of what Redis last had.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use deadstop_core::share::{Held, Totals};
use deadstop_core::{NanoUsd, PolicySet, ScopeKind, ScopeState, Spent, Time, Tokens};
use parking_lot::Mutex;
use tokio::time::Instant;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::lane::Lane;
use crate::record::{Record, Version};
use crate::wire::{Era, Sums};

/// A creation time that no counters have, so that they count as others.
const ANOTHER: u64 = 1;
/// How long after its timeout a request may still arrive at Redis.
const LATE: Duration = Duration::from_secs(15);

/// Called whenever the state changes, by this node or by a read from Redis.
pub type Watch = Box<dyn Fn(&ScopeState) + Send + Sync>;

/// A scope in one node's memory.
pub struct Cell {
    /// The name that people see.
    pub name: String,
    /// The path, unique across all projects.
    pub scope: String,
    kind: ScopeKind,
    tag: String,
    key: String,
    /// The state as this node last saw it.
    pub state: Arc<Mutex<ScopeState>>,
    pub(crate) snapshot: Mutex<Snapshot>,
    pub(crate) lane: Arc<Lane>,
    /// The lane of its jobs: that of its agent.
    pub(crate) home: OnceLock<Arc<Lane>>,
    watch: Watch,
}

/// What Redis last had of a scope, as far as this node knows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) version: Version,
    pub(crate) number: i64,
    pub(crate) recent: Vec<Version>,
    pub(crate) parts: Vec<crate::record::Part>,
    pub(crate) attachment: Vec<u8>,
    pub(crate) sums: Sums,
    /// The era in which this node last read the scope from the database. While it differs from the
    /// current era, Redis may have lost something of the scope.
    pub(crate) asked_in: Era,
    /// Whether this node has seen the whole record. A scope from the database is not whole: the
    /// database does not know which node has reserved what.
    pub(crate) whole: bool,
    /// The older version that Redis has now, if Redis lost the one that this node had seen.
    pub(crate) lost: Option<Version>,
    /// What calls of this node have reserved, and the incarnation that they belong to.
    mine: (u64, Held),
    /// Set while Redis may show wrong reservations for this node: until when an unanswered request
    /// may still arrive.
    pub(crate) suspect: Option<Instant>,
    /// Whether Redis lost data that this node still has to write back.
    pub(crate) astray: bool,
    /// Commits whose answers have not arrived yet.
    pub(crate) pending: u32,
    /// Whether Redis has ever answered this node about the scope.
    pub(crate) met: bool,
    /// When this node last put the scope into the index of recently used scopes.
    pub(crate) listed: Time,
    /// Whether the state was changed here and not yet committed to Redis.
    pub(crate) dirty: bool,
    /// The policies of the last job on this scope.
    pub(crate) policies: Option<Arc<PolicySet>>,
    /// The state with all changes made while Redis is unreachable.
    pub(crate) shadow: Option<Box<ScopeState>>,
    /// Calls that this node admitted during the current outage.
    pub(crate) offline: u64,
}

impl Cell {
    /// A scope from its row in the database, or a new one. `scope` is its path.
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
        // A name may have any length and any characters, so the key is a hash of the path.
        let key = format!("{:032x}", xxh3_128(scope.as_bytes()));
        let (sums, whole) = {
            let mut state = state.lock();
            let held = state.held();
            if counted(kind) {
                // Redis knows which node reserved this.
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
            snapshot: Mutex::new(Snapshot { version, number, sums, whole, ..Snapshot::default() }),
            lane: Arc::default(),
            home: OnceLock::new(),
            watch,
        }
    }

    /// Notes that the database was read in this era: the era before the query, not after its
    /// answer.
    pub fn asked_in(&self, era: Era) {
        self.snapshot.lock().asked_in = era;
    }

    /// The kind of the scope.
    pub fn kind(&self) -> ScopeKind {
        self.kind
    }

    /// Whether all nodes add to its counters at once (projects and agents).
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
        format!("{}:c", self.key)
    }

    /// The key of an entry beside this scope, by the entry's id.
    pub fn entry_key(&self, id: &str) -> String {
        format!("{}:l:{:032x}", self.key, xxh3_128(id.as_bytes()))
    }

    /// Its row number. The node that created the scope chose it.
    pub fn number(&self) -> i64 {
        self.snapshot.lock().number
    }

    /// The version of the snapshot.
    pub fn version(&self) -> Version {
        self.snapshot.lock().version
    }

    /// Whether Redis is known to have a record of it.
    pub fn is_known(&self) -> bool {
        self.snapshot.lock().version > Version::default()
    }

    /// Whether Redis has ever answered this node about it.
    pub fn is_met(&self) -> bool {
        self.snapshot.lock().met
    }

    /// How often its counters were changed, as far as this node knows.
    pub fn changes(&self) -> u64 {
        self.snapshot.lock().sums.changes
    }

    /// The bytes stored with the state.
    pub fn attachment(&self) -> Vec<u8> {
        self.snapshot.lock().attachment.clone()
    }

    /// Loops and incidents, for projects and agents.
    pub fn notes(&self) -> (u64, u64) {
        let counts = self.snapshot.lock().sums.counts;
        (counts[7], counts[8])
    }

    /// Changes the state on this node at once. The next commit brings the change to Redis.
    pub fn force(&self, change: impl FnOnce(&mut ScopeState)) {
        let mut snapshot = self.snapshot.lock();
        snapshot.dirty = true;
        let mut state = self.state.lock();
        change(&mut state);
        if let Some(shadow) = &mut snapshot.shadow {
            shadow.honour(&state);
        }
        (self.watch)(&state);
    }

    /// Redis has an older version than this node: it lost a write. This node's state will be
    /// written back. A kill in the older version is kept.
    pub(crate) fn lost(&self, there: Version, record: Option<&Record>) {
        let mut snapshot = self.snapshot.lock();
        if there.count() >= snapshot.version.count() {
            return;
        }
        snapshot.lost = Some(there);
        // Redis may also have lost a later kill: read the database again.
        snapshot.asked_in = Era::default();
        if let Some(record) = record {
            let mut own = self.state.lock();
            own.honour(&record.state);
            (self.watch)(&own);
        }
    }

    /// Takes in what the database says about kills, read in this era. If Redis does not know of a
    /// kill, the next commit writes it.
    pub(crate) fn asked_again(&self, era: Era, stored: Option<&ScopeState>) {
        let mut snapshot = self.snapshot.lock();
        snapshot.enter(era);
        let Some(stored) = stored else { return };
        let mut own = self.state.lock();
        snapshot.dirty |= own.honour(stored);
        (self.watch)(&own);
    }

    /// State and snapshot, read under both locks so that they match.
    pub(crate) fn both(&self) -> (Snapshot, ScopeState) {
        let snapshot = self.snapshot.lock();
        let state = self.state.lock().clone();
        (snapshot.clone(), state)
    }

    /// Takes over the result of a commit. Newer versions that arrived meanwhile are kept.
    pub(crate) fn done(
        &self,
        state: &ScopeState,
        record: Option<(Version, Record)>,
        sums: Option<Sums>,
        (life, held): (u64, Held),
    ) {
        let mut snapshot = self.snapshot.lock();
        snapshot.hold(life, held);
        snapshot.met = true;
        let mut own = self.state.lock();
        if self.is_counted() {
            own.learn(state);
        }
        if let Some((version, record)) = record
            && version.count() > snapshot.version.count()
        {
            self.take(&mut snapshot, &mut own, version, record);
        }
        if let Some(sums) = sums {
            snapshot.count(sums, &mut own);
        }
        (self.watch)(&own);
    }

    /// Takes over a record that was read from Redis in this era.
    pub(crate) fn adopt(&self, version: Version, record: Record, era: &Era) {
        let mut snapshot = self.snapshot.lock();
        if version.count() < snapshot.version.count() {
            return;
        }
        if !era.is_empty() && record.era == era_mark(era) {
            // The node that wrote this record had read the database in this era, and every later
            // kill is in Redis.
            snapshot.enter(Arc::clone(era));
        }
        let mut own = self.state.lock();
        self.take(&mut snapshot, &mut own, version, record);
        (self.watch)(&own);
    }

    /// Takes over a record from Redis. If this node knows of a kill or clear that the record lacks,
    /// the next commit writes it.
    fn take(
        &self,
        snapshot: &mut Snapshot,
        own: &mut ScopeState,
        version: Version,
        record: Record,
    ) {
        // The record's writer started from this node's version, so it knew everything that this
        // node knows.
        let follows = !snapshot.dirty && record.recent.contains(&snapshot.version);
        snapshot.take(version, &record);
        let mut state = record.state;
        snapshot.dirty = !follows && state.honour(own);
        if snapshot.dirty {
            snapshot.astray();
        }
        match self.is_counted() {
            true => own.set_rest(state),
            false => *own = state,
        }
    }

    /// Takes over counters.
    pub(crate) fn count(&self, sums: Sums) {
        let mut snapshot = self.snapshot.lock();
        snapshot.count(sums, &mut self.state.lock());
    }
}

impl Snapshot {
    /// The version that Redis must have for a commit to succeed.
    pub(crate) fn expect(&self) -> Version {
        match self.lost {
            Some(there) => there,
            None if self.whole => self.version,
            None => self.version.unmarked(),
        }
    }

    /// Enters another era. Counters created in another era count as lost: a server after a failover
    /// may show lower values than this node has seen.
    fn enter(&mut self, era: Era) {
        if self.asked_in != era && self.sums.born != 0 {
            self.sums.born = ANOTHER;
            self.astray();
        }
        self.asked_in = era;
    }

    /// What calls of this node have reserved in an incarnation.
    pub(crate) fn mine(&self, life: u64) -> Held {
        if self.mine.0 == life { self.mine.1 } else { Held::default() }
    }

    /// Adds to this node's reservations. An answer to an earlier incarnation is ignored: its
    /// reservations are booked as spent.
    pub(crate) fn hold(&mut self, life: u64, more: Held) {
        if life >= self.mine.0 {
            self.mine = (life, self.mine(life) + more);
        }
    }

    /// A request got no answer and may still arrive.
    pub(crate) fn doubt(&mut self) {
        self.suspect = Some(Instant::now() + LATE);
    }

    /// Redis lost data that this node still has.
    pub(crate) fn astray(&mut self) {
        self.astray = true;
        self.suspect.get_or_insert_with(Instant::now);
    }

    /// Whether Redis shows the reservations that calls of this node really have, as far as this
    /// node has seen.
    pub(crate) fn in_order(&self, life: u64, me: &str) -> bool {
        let parts = self.parts.iter().map(|part| (&part.node, part.held));
        let sums = self.sums.held.iter().map(|(node, held)| (node, *held));
        let told = parts.chain(sums).find(|(node, _)| *node == me);
        !self.astray && told.map(|(_, held)| held).unwrap_or_default() == self.mine(life)
    }

    fn take(&mut self, version: Version, record: &Record) {
        (self.whole, self.lost) = (true, None);
        // The counters may still have to be written back.
        self.astray &= self.sums.born != 0;
        self.version = version;
        self.number = record.number;
        self.recent.clone_from(&record.recent);
        self.parts.clone_from(&record.parts);
        self.attachment.clone_from(&record.attachment);
    }

    /// Answers may overtake each other: older counters are ignored.
    fn count(&mut self, sums: Sums, state: &mut ScopeState) {
        if sums.born == 0 && self.sums.born == 0 {
            // Redis has no counters yet: keep those from the database.
            return;
        }
        let older = (sums.born, sums.changes) < (self.sums.born, self.sums.changes);
        if self.sums.born != 0 && sums.born != self.sums.born {
            if older && sums.born != 0 {
                return;
            }
            // Redis lost the counters: this node must write back what it has seen.
            self.astray();
            let grown = sums.counts.iter().zip(self.sums.counts).all(|(new, old)| *new >= old);
            if !grown || sums.born == 0 {
                // Never return to an earlier budget period: Redis refuses commits for one.
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

/// A short mark that tells eras apart.
pub(crate) fn era_mark(era: &Era) -> u64 {
    xxh3_64(era.as_bytes()).max(1)
}

/// The hash tag that all keys of a project share.
pub(crate) fn tag(project: &str) -> String {
    format!("{:016x}", xxh3_128(project.as_bytes()) as u64)
}

fn counted(kind: ScopeKind) -> bool {
    matches!(kind, ScopeKind::Project | ScopeKind::Agent)
}

/// The counters in the engine's form.
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

/// The counters in a state's totals.
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

/// The counters to start from before Redis was read: those of the database.
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

    #[test]
    fn an_empty_redis_does_not_hide_what_the_database_had() {
        let mut state = ScopeState::new(ScopeKind::Agent, Time(1));
        let spent = Spent { steps: 3, cost: NanoUsd(70), ..Spent::default() };
        state.set_totals(&Totals { calls: 5, spent, ..Totals::default() });
        let state = Arc::new(Mutex::new(state));
        let cell = Cell::new("p", "p\u{1f}a", "a", state, (Version(0), 1), Box::new(|_| {}));
        cell.count(Sums::default());
        assert_eq!(cell.state.lock().ledger().spent.cost, NanoUsd(70));
        assert_eq!(cell.snapshot.lock().sums.counts[..2], [5, 3]);
        // As soon as Redis has counters, they count.
        let counts = [6, 4, 0, 0, 0, 0, 80, 0, 0];
        cell.count(Sums { counts, born: 9, changes: 1, ..Sums::default() });
        assert_eq!(cell.state.lock().ledger().spent.cost, NanoUsd(80));
    }
}
