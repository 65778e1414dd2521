//! A node of the fleet: brings jobs to the store, and knows the store's time and the other nodes.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use deadstop_core::{Held, PolicySet, Time};
use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::batch::{Batch, Letters, Setting};
use crate::cell::Cell;
use crate::desk::Desk;
use crate::lane::{Away, Cells, Job, Lane};
use crate::record::{Record, Version};
use crate::wire::{Commit, Item, Reply, Shared, Sum, Sums, Touched};

/// Jobs that are done in one step.
const MOST_JOBS: usize = 128;
/// How often a step is tried anew because somebody was faster.
const MOST_TRIES: u32 = 64;
/// How long a node lives on one sign of life.
const LEASE_MS: u64 = 5000;
/// How often it gives one.
const BEAT: Duration = Duration::from_secs(1);
/// How often scopes in use are read again, in case nobody told that they have changed.
const REREAD: Duration = Duration::from_secs(1);
/// Scopes that are read again in one step.
const READ_AT_ONCE: usize = 100;
/// How long nobody is asked after nobody has answered.
const REST_MS: u64 = 100;
/// Letters that are remembered.
const LETTERS: usize = 20_000;

/// Another node, or this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its name, in this life of its.
    pub node: String,
    /// Until when it counts as alive.
    pub until: Time,
}

/// A node of the fleet.
pub struct Fleet<S> {
    pub(crate) shared: S,
    /// This node's name; another one in each of its lives.
    me: RwLock<Arc<str>>,
    name: String,
    lives: AtomicU64,
    began: Instant,
    /// The store's time when this node began, by this node's clock.
    offset: AtomicI64,
    latest: AtomicU64,
    /// When the last sign of life was given.
    beaten: Mutex<Option<Instant>>,
    peers: RwLock<Vec<Peer>>,
    marks: AtomicU64,
    away: Mutex<Option<Absence>>,
    cells: Mutex<HashMap<String, Weak<Cell>>>,
    letters: Mutex<Remembered>,
    /// Steps, and those that had to be tried anew.
    pub steps: AtomicU64,
    /// Steps that somebody was faster with.
    pub conflicts: AtomicU64,
    stopped: AtomicBool,
}

/// Letters that this node has seen, oldest first.
#[derive(Default)]
struct Remembered {
    known: HashMap<String, (Version, Option<Vec<u8>>)>,
    order: VecDeque<String>,
}

impl Remembered {
    fn get(&self, key: &str) -> (Version, Option<Vec<u8>>) {
        self.known.get(key).cloned().unwrap_or_default()
    }

    fn put(&mut self, key: &str, version: Version, value: Option<Vec<u8>>) {
        if self.known.insert(key.to_owned(), (version, value)).is_none() {
            self.order.push_back(key.to_owned());
        }
        if self.order.len() > LETTERS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

/// The store does not answer.
#[derive(Debug, Clone)]
struct Absence {
    since: Time,
    why: String,
    /// When it was last asked.
    asked: Instant,
}

impl<S: Shared> Fleet<S> {
    /// A node. Its name tells people which one it is; every life gets a number of its own, so that
    /// what it held before is told apart. `seed` makes the marks of its writes.
    pub fn new(shared: S, name: &str, seed: u64, clock: Time) -> Arc<Fleet<S>> {
        let fleet = Fleet {
            shared,
            me: RwLock::new(format!("{name}.{seed:x}").into()),
            name: format!("{name}.{seed:x}"),
            lives: AtomicU64::new(0),
            began: Instant::now(),
            offset: AtomicI64::new(i64::try_from(clock.0).unwrap_or(0)),
            latest: AtomicU64::new(0),
            beaten: Mutex::new(None),
            peers: RwLock::default(),
            marks: AtomicU64::new(seed),
            away: Mutex::new(None),
            cells: Mutex::default(),
            letters: Mutex::default(),
            steps: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        };
        Arc::new(fleet)
    }

    /// Gives signs of life, and reads again what is in use, until the node is gone.
    pub async fn keep(self: Arc<Self>) {
        let weak = Arc::downgrade(&self);
        drop(self);
        let (mut beat, mut read) = (Instant::now(), Instant::now());
        loop {
            let Some(fleet) = weak.upgrade() else { return };
            if fleet.stopped.load(Ordering::Acquire) {
                return;
            }
            let now = Instant::now();
            if now >= beat {
                let _ = fleet.beat().await;
                beat = now + BEAT;
            }
            if now >= read {
                let _ = fleet.reread().await;
                read = now + REREAD;
            }
            drop(fleet);
            tokio::time::sleep_until(beat.min(read)).await;
        }
    }

    /// Stops giving signs of life, as a node does that ends.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Gives a sign of life. One that comes too late begins another life.
    pub async fn beat(&self) -> Result<(), Away> {
        self.live_on();
        let me = self.me();
        let asked = Instant::now();
        let beat = match self.shared.beat(&me, LEASE_MS).await {
            Ok(beat) => beat,
            Err(away) => {
                self.note_away(&away);
                return Err(away);
            }
        };
        self.set_time(beat.now, asked);
        *self.beaten.lock() = Some(asked);
        *self.peers.write() =
            beat.nodes.into_iter().map(|(node, until)| Peer { node, until }).collect();
        self.note_back();
        Ok(())
    }

    /// Whoever was silent for too long counts as dead, and goes on as somebody else: what it held
    /// may have been booked as spent.
    fn live_on(&self) {
        let mut beaten = self.beaten.lock();
        let lapsed = |at: Instant| at.elapsed() >= Duration::from_millis(LEASE_MS);
        if beaten.is_some_and(lapsed) {
            *beaten = None;
            let life = self.lives.fetch_add(1, Ordering::Relaxed) + 1;
            *self.me.write() = format!("{}.{life}", self.name).into();
            for cell in self.cells.lock().values().filter_map(Weak::upgrade) {
                cell.copy.lock().mine = Held::default();
            }
        }
    }

    /// The store.
    pub fn shared(&self) -> &S {
        &self.shared
    }

    /// This node's name, in this life of its.
    pub fn me(&self) -> Arc<str> {
        Arc::clone(&self.me.read())
    }

    /// All nodes that have given signs of life lately.
    pub fn peers(&self) -> Vec<Peer> {
        self.peers.read().clone()
    }

    /// Those of them that are dead: they are known, and their time is up.
    pub(crate) fn is_dead(&self, node: &str) -> bool {
        let now = self.now();
        !node.is_empty()
            && *node != *self.me()
            && match self.peers.read().iter().find(|peer| peer.node == node) {
                Some(peer) => peer.until < now,
                // An earlier life of this one, or one that was forgotten long ago. One that is too
                // young to be known has calls in flight only after its first sign of life.
                None => self.beaten.lock().is_some_and(|at| at.elapsed() < BEAT * 2),
            }
    }

    /// The store's time. It does not go back.
    pub fn now(&self) -> Time {
        let now = self.offset.load(Ordering::Relaxed).saturating_add(self.elapsed());
        let now = u64::try_from(now).unwrap_or(0);
        Time(self.latest.fetch_max(now, Ordering::Relaxed).max(now))
    }

    fn elapsed(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn set_time(&self, now: Time, asked: Instant) {
        // It was read at some time since it was asked for.
        let way = i64::try_from(asked.elapsed().as_millis() / 2).unwrap_or(0);
        let now = i64::try_from(now.0).unwrap_or(i64::MAX);
        self.offset.store(now + way - self.elapsed(), Ordering::Relaxed);
    }

    /// A scope that is in use here from now on.
    pub fn know(&self, cell: &Arc<Cell>) {
        let mut cells = self.cells.lock();
        cells.insert(cell.scope.clone(), Arc::downgrade(cell));
    }

    /// Does a job on a chain: again, until nobody was faster.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        cells: impl IntoIterator<Item = Arc<Cell>>,
        policies: &Arc<PolicySet>,
        letter: Option<String>,
        job: impl FnMut(&mut Desk<'_, '_>) -> T + Send + 'static,
    ) -> Result<T, Away> {
        self.absent()?;
        self.enqueue(cells, policies, letter, job, false).await
    }

    /// Does a job that must not be lost: while the store is away, it waits. It has its place among
    /// the others from the moment of this call on, whether anybody waits for it or not.
    pub fn insist<T: Send + 'static>(
        self: &Arc<Self>,
        cells: impl IntoIterator<Item = Arc<Cell>>,
        policies: &Arc<PolicySet>,
        letter: Option<String>,
        job: impl FnMut(&mut Desk<'_, '_>) -> T + Send + 'static,
    ) -> Pin<Box<dyn Future<Output = Result<T, Away>> + Send>> {
        self.enqueue(cells, policies, letter, job, true)
    }

    fn enqueue<T: Send + 'static>(
        self: &Arc<Self>,
        cells: impl IntoIterator<Item = Arc<Cell>>,
        policies: &Arc<PolicySet>,
        letter: Option<String>,
        mut job: impl FnMut(&mut Desk<'_, '_>) -> T + Send + 'static,
        must: bool,
    ) -> Pin<Box<dyn Future<Output = Result<T, Away>> + Send>> {
        let result = Arc::new(Mutex::new(None));
        let (done, waiting) = oneshot::channel();
        let cells: Cells = cells.into_iter().collect();
        let put = Arc::clone(&result);
        let run = Box::new(move |desk: &mut Desk<'_, '_>| *put.lock() = Some(job(desk)));
        let lane = cells.get(1).or(cells.first()).map(|cell| Arc::clone(&cell.lane));
        let policies = Arc::clone(policies);
        if let Some(lane) = lane {
            let mut queue = lane.queue.lock();
            queue.jobs.push_back(Job {
                cells,
                policies,
                letter,
                run,
                done,
                must,
                doubt: None,
                found: false,
            });
            let idle = !std::mem::replace(&mut queue.busy, true);
            drop(queue);
            if idle {
                tokio::spawn(Arc::clone(self).drain(lane));
            }
        }
        Box::pin(async move {
            let gone = || Away::before("this node ends");
            waiting.await.map_err(|_| gone())??;
            result.lock().take().ok_or_else(gone)
        })
    }

    /// Does all jobs of a lane.
    async fn drain(self: Arc<Self>, lane: Arc<Lane>) {
        loop {
            let mut jobs = {
                let mut queue = lane.queue.lock();
                let many = queue.jobs.len().min(MOST_JOBS);
                queue.busy = many > 0;
                if many == 0 {
                    return;
                }
                queue.jobs.drain(..many).collect::<Vec<Job>>()
            };
            let Err(away) = self.step(&mut jobs).await else {
                jobs.into_iter().for_each(|job| drop(job.done.send(Ok(()))));
                continue;
            };
            let (must, may): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(|job| job.must);
            may.into_iter().for_each(|job| drop(job.done.send(Err(away.clone()))));
            if must.is_empty() {
                continue;
            }
            // Whoever need not wait is told at once that nobody answers.
            let may: Vec<Job> = {
                let mut queue = lane.queue.lock();
                let waiting = std::mem::take(&mut queue.jobs);
                let (later, may): (Vec<Job>, Vec<Job>) =
                    waiting.into_iter().partition(|job| job.must);
                queue.jobs = must.into_iter().chain(later).collect();
                may
            };
            may.into_iter().for_each(|job| drop(job.done.send(Err(away.clone()))));
            tokio::time::sleep(Duration::from_millis(REST_MS)).await;
        }
    }

    /// Does jobs in one step, until nobody was faster.
    async fn step(&self, jobs: &mut [Job]) -> Result<(), Away> {
        let mut letters = Letters::new();
        for key in jobs.iter().filter_map(|job| job.letter.as_ref()) {
            letters.insert(key.clone(), self.letters.lock().get(key));
        }
        // One whose lease is over is somebody else before it does anything.
        if self.beaten.lock().is_none_or(|at| at.elapsed() >= Duration::from_millis(LEASE_MS)) {
            self.beat().await?;
        }
        for tries in 0..MOST_TRIES {
            let mark = self.marks.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            let setting = Setting {
                me: self.me(),
                now: self.now(),
                mark: (mark >> 48) as u16,
                first: tries == 0,
                is_dead: &|node| self.is_dead(node),
            };
            let mut batch = Batch::new(setting);
            for job in jobs.iter_mut().filter(|job| !job.found) {
                batch.run(job, &letters);
            }
            let commit = batch.commit(&letters);
            let asked = Instant::now();
            self.steps.fetch_add(1, Ordering::Relaxed);
            batch.asked();
            let reply = self.shared.commit(&commit).await;
            let reply = match reply {
                Ok(reply) => reply,
                Err(away) => {
                    batch.answered();
                    self.note_away(&away);
                    if let Some(doubt) = batch.doubt(&commit).filter(|_| away.perhaps) {
                        for job in jobs.iter_mut().filter(|job| job.must && job.doubt.is_none()) {
                            job.doubt = Some(doubt.clone());
                        }
                    }
                    return Err(away);
                }
            };
            self.set_time(reply.now, asked);
            self.note_back();
            if reply.done {
                for (key, version, value) in batch.letters(&commit) {
                    self.letters.lock().put(key, version, value);
                }
                batch.answered();
                batch.done(&commit, reply);
                return Ok(());
            }
            batch.answered();
            self.conflicts.fetch_add(1, Ordering::Relaxed);
            self.catch_up(&commit, &batch, reply, &mut letters).await?;
            for job in jobs.iter_mut() {
                job.found |= job
                    .doubt
                    .as_ref()
                    .is_some_and(|(cell, version)| cell.copy.lock().recent.contains(version));
            }
            if jobs.iter().all(|job| job.found) {
                return Ok(());
            }
            if tries > 2 {
                // Let the others get on.
                let wait = u64::from(tries) * 100 + (mark >> 8) % (200 * u64::from(tries));
                tokio::time::sleep(Duration::from_micros(wait.min(5000))).await;
            }
        }
        Err(Away::before("others are always faster"))
    }

    /// Takes in what others have done.
    async fn catch_up(
        &self,
        commit: &Commit,
        batch: &Batch<'_>,
        reply: Reply,
        letters: &mut Letters,
    ) -> Result<(), Away> {
        for (cell, sums) in batch.counted().zip(reply.sums) {
            cell.count(sums);
        }
        for moved in reply.moved {
            let Some(cell) = batch.cell(moved.item) else {
                let key = &commit.items[moved.item].key;
                let value = (moved.version > Version::default()).then_some(moved.value);
                letters.insert(key.clone(), (moved.version, value));
                continue;
            };
            if moved.version.count() < commit.items[moved.item].expect.count() {
                self.recall(cell).await?;
                continue;
            }
            match Record::from_bytes(&moved.value) {
                Ok(record) => cell.adopt(moved.version, record),
                Err(error) => {
                    // Of a newer version, or damaged: nobody may overwrite what he cannot read.
                    return Err(Away::before(format!("the state of {}: {error}", cell.name)));
                }
            }
        }
        Ok(())
    }

    /// The store has lost what it had of a scope. This node's copy takes its place, but not without
    /// asking the database who is dead.
    async fn recall(&self, cell: &Arc<Cell>) -> Result<(), Away> {
        let stored = self.shared.recall(&cell.scope).await?;
        let mut copy = cell.copy.lock();
        copy.sure = true;
        drop(copy);
        if let Some(stored) = stored {
            let mut state = cell.state.lock().clone();
            state.honour(&stored);
            cell.put(state);
        }
        Ok(())
    }

    /// Reads again all scopes in which something is in flight here, so that a lost message cannot
    /// keep what is dead alive.
    pub async fn reread(&self) -> Result<(), Away> {
        let mut cells: Vec<Arc<Cell>> = {
            let mut known = self.cells.lock();
            known.retain(|_, cell| cell.strong_count() > 0);
            known.values().filter_map(Weak::upgrade).collect()
        };
        cells.retain(|cell| cell.copy.lock().version > Version::default());
        cells.sort_by(|a, b| (a.tag(), &a.scope).cmp(&(b.tag(), &b.scope)));
        for same in cells.chunk_by(|a, b| a.tag() == b.tag()) {
            for some in same.chunks(READ_AT_ONCE) {
                self.refresh(some).await?;
            }
        }
        for cell in cells.iter().filter(|cell| cell.copy.lock().suspect) {
            self.heal(cell).await?;
        }
        Ok(())
    }

    /// Sees to it that the counters show what calls of this node really hold: a step of which nobody
    /// knew may have been done, or the store may have lost what it had.
    async fn heal(&self, cell: &Arc<Cell>) -> Result<(), Away> {
        let sum = |seen, held| {
            let copy = cell.copy.lock();
            let held = Vec::from_iter(held);
            let Sums { counts, period, period_cost, .. } = copy.sums;
            Sum {
                key: cell.sum_key(),
                floor: counts,
                period,
                period_floor: period_cost,
                held,
                seen,
                ..Sum::default()
            }
        };
        let ask = async |sum: Sum| {
            let tag = cell.tag().to_owned();
            let commit = Commit { tag, sums: vec![sum], ..Commit::default() };
            self.shared.commit(&commit).await
        };
        let (mine, pending) = {
            let copy = cell.copy.lock();
            (copy.mine, copy.pending)
        };
        let reply = ask(sum(None, None)).await?;
        let Some(there) = reply.sums.into_iter().next().filter(|_| pending == 0) else {
            return Ok(());
        };
        let me = self.me();
        let told = there.held.iter().find(|(node, _)| **node == *me).map(|(_, held)| *held);
        let difference = mine - told.unwrap_or_default();
        let quiet = {
            let copy = cell.copy.lock();
            copy.pending == 0 && copy.mine == mine
        };
        if !quiet {
            return Ok(());
        }
        let healed = difference.is_empty()
            || ask(sum(Some(there.changes), Some((me.to_string(), difference)))).await?.done;
        cell.copy.lock().suspect = !healed;
        Ok(())
    }

    /// Reads scopes of one project.
    pub async fn refresh(&self, cells: &[Arc<Cell>]) -> Result<(), Away> {
        let Some(first) = cells.first() else { return Ok(()) };
        let item = |cell: &Arc<Cell>| Item {
            key: cell.key().to_owned(),
            expect: cell.version(),
            write: None,
            sure: false,
        };
        let items = cells.iter().map(item).collect();
        // Counters are read by adding nothing to them.
        let counted = cells.iter().filter(|cell| cell.is_counted());
        let sums = counted.clone().map(|cell| {
            let Sums { period, counts, .. } = cell.copy.lock().sums;
            Sum { key: cell.sum_key(), floor: counts, period, ..Sum::default() }
        });
        let (tag, sums) = (first.tag().to_owned(), sums.collect());
        let commit = Commit { tag, items, sums, ..Commit::default() };
        let asked = Instant::now();
        let reply = match self.shared.commit(&commit).await {
            Ok(reply) => reply,
            Err(away) => {
                self.note_away(&away);
                return Err(away);
            }
        };
        self.set_time(reply.now, asked);
        self.note_back();
        for cell in cells {
            cell.copy.lock().met = true;
        }
        for (cell, sums) in counted.zip(reply.sums) {
            cell.count(sums);
        }
        for moved in reply.moved {
            let cell = &cells[moved.item];
            // Jobs in between may know better already.
            if moved.version.count() <= cell.version().count() {
                continue;
            }
            if let Ok(record) = Record::from_bytes(&moved.value) {
                cell.adopt(moved.version, record);
            }
        }
        Ok(())
    }

    /// The scopes of a cell's project that were touched since a time.
    pub async fn touched(&self, project: &Cell, since: Time) -> Result<Touched, Away> {
        self.shared.touched(project.tag(), since).await
    }

    /// Does a job on what this node knows, while nobody can be asked. What it changes is forgotten
    /// when the store is back; calls that were let pass are booked when they end.
    pub fn unasked<T>(
        &self,
        cells: &[Arc<Cell>],
        policies: &PolicySet,
        job: impl FnOnce(&mut Desk<'_, '_>) -> T,
    ) -> T {
        Batch::unasked(&self.me(), self.now(), cells, policies, job)
    }

    /// Calls that were let pass in a scope since the store is away.
    pub fn count_unasked(&self, cell: &Cell) -> u64 {
        let mut copy = cell.copy.lock();
        copy.unasked += 1;
        copy.unasked
    }

    /// Since when the store is away, and what it says.
    pub fn away(&self) -> Option<(Time, String)> {
        self.away.lock().as_ref().map(|away| (away.since, away.why.clone()))
    }

    /// Nobody waits for a store that did not answer a moment ago.
    fn absent(&self) -> Result<(), Away> {
        let mut away = self.away.lock();
        match away.as_mut() {
            Some(away) if away.asked.elapsed() < Duration::from_millis(REST_MS) => {
                Err(Away::before(away.why.clone()))
            }
            Some(away) => {
                away.asked = Instant::now();
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn note_away(&self, gone: &Away) {
        let mut away = self.away.lock();
        let since = away.as_ref().map_or_else(|| self.now(), |away| away.since);
        if away.is_none() {
            tracing::error!("{gone}");
        }
        *away = Some(Absence { since, why: gone.why.clone(), asked: Instant::now() });
    }

    fn note_back(&self) {
        if self.away.lock().take().is_some() {
            tracing::warn!("the shared state is back");
            let cells: Vec<Arc<Cell>> =
                self.cells.lock().values().filter_map(Weak::upgrade).collect();
            for cell in cells {
                let mut copy = cell.copy.lock();
                copy.shadow = None;
                copy.unasked = 0;
            }
        }
    }
}
