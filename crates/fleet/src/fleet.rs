//! A node of the fleet: brings jobs to the store, and knows the store's time and the other nodes.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use deadstop_core::{PolicySet, Time};
use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

use crate::batch::{Batch, Letters, Setting};
use crate::cell::Cell;
use crate::desk::Desk;
use crate::lane::{Away, Cells, Draining, Job, Lane};
use crate::record::{Record, Version};
use crate::wire::{Commit, Era, Reply, Shared};

/// Jobs that are done in one step.
const MOST_JOBS: usize = 128;
/// How often a step is tried anew because somebody was faster.
const MOST_TRIES: u32 = 64;
/// How long a node lives on one sign of life.
const LEASE_MS: u64 = 5000;
const LEASE: Duration = Duration::from_millis(LEASE_MS);
/// How long a node that is missed is remembered.
const FORGOTTEN: Duration = Duration::from_secs(3600);
/// How old it may be when something is asked, so that the answer is there before it is over.
const FRESH: Duration = Duration::from_secs(3);
/// How often it gives one.
const BEAT: Duration = Duration::from_secs(1);
/// How often scopes in use are read again, in case nobody told that they have changed.
const REREAD: Duration = Duration::from_secs(1);
/// How long nobody is asked after nobody has answered.
const REST: Duration = Duration::from_millis(100);
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

/// All nodes that the store knows.
#[derive(Debug, Clone, Default)]
struct Peers {
    all: Vec<Peer>,
    /// The store's time then.
    at: Time,
    /// When they were asked for.
    asked: Option<Instant>,
}

/// A node of the fleet.
pub struct Fleet<S> {
    pub(crate) shared: S,
    /// Which of its lives this node is in, and its name in it.
    me: RwLock<(u64, Arc<str>)>,
    name: String,
    /// What tells its writes from those of others.
    seed: u64,
    began: Instant,
    /// The store's time when this node began, by this node's clock.
    offset: AtomicI64,
    latest: AtomicU64,
    /// When the last sign of life was given.
    beaten: Mutex<Option<Instant>>,
    peers: RwLock<Peers>,
    /// Nodes that hold something and are not among the peers, and since when they are missed.
    strangers: Mutex<HashMap<String, Instant>>,
    marks: AtomicU64,
    away: Mutex<Option<Absence>>,
    pub(crate) cells: Mutex<HashMap<String, Weak<Cell>>>,
    /// The era that the store is in, by tag.
    eras: Mutex<HashMap<String, Era>>,
    letters: Mutex<Remembered>,
    /// Held by whoever does something while nobody can be asked.
    alone: Mutex<()>,
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
}

impl<S: Shared> Fleet<S> {
    /// A node. Its name tells people which one it is; every life gets a number of its own, so that
    /// what it held before is told apart. `seed` makes the marks of its writes.
    pub fn new(shared: S, name: &str, seed: u64, clock: Time) -> Arc<Fleet<S>> {
        let fleet = Fleet {
            shared,
            me: RwLock::new((0, format!("{name}.{seed:x}").into())),
            name: format!("{name}.{seed:x}"),
            seed: xxh3_64(&seed.to_le_bytes()),
            began: Instant::now(),
            offset: AtomicI64::new(i64::try_from(clock.0).unwrap_or(0)),
            latest: AtomicU64::new(0),
            beaten: Mutex::new(None),
            peers: RwLock::default(),
            strangers: Mutex::default(),
            marks: AtomicU64::new(seed),
            away: Mutex::new(None),
            cells: Mutex::default(),
            eras: Mutex::default(),
            letters: Mutex::default(),
            alone: Mutex::default(),
            steps: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        };
        Arc::new(fleet)
    }

    /// Gives signs of life, and reads again what is in use, until the node is gone. Neither waits
    /// for the other.
    pub async fn keep(self: Arc<Self>) {
        let weak = Arc::downgrade(&self);
        drop(self);
        let alive = || weak.upgrade().filter(|fleet| !fleet.stopped.load(Ordering::Acquire));
        let beats = async {
            while let Some(fleet) = alive() {
                let begun = Instant::now();
                // While the store is away, this is what asks whether it is back.
                let heard = fleet.beat().await.is_ok();
                let next = begun + if heard { BEAT } else { REST };
                drop(fleet);
                tokio::time::sleep_until(next).await;
            }
        };
        let reads = async {
            while let Some(fleet) = alive() {
                let next = Instant::now() + REREAD;
                let _ = fleet.reread().await;
                drop(fleet);
                tokio::time::sleep_until(next).await;
            }
        };
        tokio::join!(beats, reads);
    }

    /// Stops giving signs of life, as a node does that ends.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Gives a sign of life. One that comes too late begins another life.
    pub async fn beat(&self) -> Result<(), Away> {
        self.live_on();
        let (life, me) = self.life();
        let asked = Instant::now();
        let beat = match self.shared.beat(&me, LEASE_MS).await {
            Ok(beat) => beat,
            Err(away) => {
                self.note_away(&away);
                return Err(away);
            }
        };
        self.set_time(beat.now);
        {
            let mut beaten = self.beaten.lock();
            // If the lease was over before this was heard, others may have seen that.
            let unbroken = beaten.is_none_or(|before| before.elapsed() < LEASE);
            if unbroken && self.life().0 == life {
                *beaten = (*beaten).max(Some(asked));
            }
        }
        let all: Vec<Peer> =
            beat.nodes.into_iter().map(|(node, until)| Peer { node, until }).collect();
        self.strangers.lock().retain(|node, since| {
            since.elapsed() < FORGOTTEN && !all.iter().any(|peer| peer.node == *node)
        });
        let mut peers = self.peers.write();
        if peers.asked < Some(asked) {
            *peers = Peers { all, at: beat.now, asked: Some(asked) };
        }
        drop(peers);
        self.note_back();
        Ok(())
    }

    /// Whoever was silent for too long counts as dead, and goes on as somebody else: what it held
    /// may have been booked as spent.
    fn live_on(&self) {
        let mut beaten = self.beaten.lock();
        if beaten.is_some_and(|at| at.elapsed() >= LEASE) {
            *beaten = None;
            let mut me = self.me.write();
            let life = me.0 + 1;
            *me = (life, format!("{}.{life}", self.name).into());
        }
    }

    /// The store.
    pub fn shared(&self) -> &S {
        &self.shared
    }

    /// This node's name, in this life of its.
    pub fn me(&self) -> Arc<str> {
        self.life().1
    }

    pub(crate) fn life(&self) -> (u64, Arc<str>) {
        self.me.read().clone()
    }

    /// All nodes that have given signs of life lately.
    pub fn peers(&self) -> Vec<Peer> {
        self.peers.read().all.clone()
    }

    /// Whether a node is dead: its time was up when the store was last asked for all nodes. One that
    /// the store does not name is dead if it is missed for a whole lease: it may be too young, or the
    /// store may have lost its name and will hear it again.
    pub(crate) fn is_dead(&self, node: &str) -> bool {
        if node.is_empty() || *node == *self.me() {
            return false;
        }
        let peers = self.peers.read();
        if let Some(peer) = peers.all.iter().find(|peer| peer.node == node) {
            return peer.until < peers.at;
        }
        let missed = *self.strangers.lock().entry(node.to_owned()).or_insert_with(Instant::now);
        peers.asked.is_some_and(|asked| asked >= missed + LEASE)
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

    /// It was read at some time since it was asked for. Taken for the present it is a little late,
    /// never early: so nobody begins a period, or takes a node for dead, before the store would.
    pub(crate) fn set_time(&self, now: Time) {
        let now = i64::try_from(now.0).unwrap_or(i64::MAX);
        self.offset.store(now - self.elapsed(), Ordering::Relaxed);
    }

    /// A scope that is in use here from now on, in the place of any other of its name.
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

    pub(crate) fn enqueue<T: Send + 'static>(
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
        let policies = Arc::clone(policies);
        let lane = match cells.get(1) {
            Some(agent) => Some(Arc::clone(&agent.lane)),
            None => cells.first().map(|cell| Arc::clone(cell.home.get().unwrap_or(&cell.lane))),
        };
        for (depth, cell) in cells.iter().enumerate() {
            if let Some(lane) = lane.as_ref().filter(|_| depth > 0) {
                cell.home.get_or_init(|| Arc::clone(lane));
            }
            cell.copy.lock().policies = Some(Arc::clone(&policies));
        }
        if let Some(lane) = lane {
            let mut queue = lane.queue.lock();
            queue.jobs.push_back(Job {
                cells,
                policies,
                letter,
                run,
                done,
                must,
                held: Vec::new(),
                doubts: Vec::new(),
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
        // Whatever ends this early, the next job finds the lane free.
        let lane = Draining(lane);
        let lane = &*lane.0;
        let mut stuck = 0;
        loop {
            let jobs = {
                let mut queue = lane.queue.lock();
                let many = queue.jobs.len().min(MOST_JOBS + stuck);
                queue.busy = many > 0;
                if many == 0 {
                    return;
                }
                queue.jobs.drain(..many).collect::<Vec<Job>>()
            };
            let (mut jobs, late) = self.ask_first(jobs).await;
            let others = under_others(&mut jobs);
            stuck = late.len();
            {
                // First in line for the next time, and in nobody's way until then.
                let mut queue = lane.queue.lock();
                others.into_iter().rev().for_each(|job| queue.jobs.push_front(job));
                late.into_iter().rev().for_each(|job| queue.jobs.push_front(job));
            }
            if jobs.is_empty() {
                if stuck > 0 {
                    tokio::time::sleep(REST).await;
                }
                continue;
            }
            let (done, unread) = self.step_by_those_who_can(&mut jobs).await;
            if !unread.is_empty() {
                stuck += unread.len();
                {
                    let mut queue = lane.queue.lock();
                    unread.into_iter().rev().for_each(|job| queue.jobs.push_front(job));
                }
                if jobs.is_empty() {
                    tokio::time::sleep(REST).await;
                }
            }
            let Err(away) = done else {
                jobs.into_iter().for_each(Job::end);
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
            tokio::time::sleep(REST).await;
        }
    }

    /// Does jobs in one step. Those whose scope's state cannot be read are left out: they are refused, or
    /// given back if they must be done.
    async fn step_by_those_who_can(&self, jobs: &mut Vec<Job>) -> (Result<(), Away>, Vec<Job>) {
        let mut unread = Vec::new();
        while !jobs.is_empty() {
            let Failed { away, unreadable } = match self.step(jobs).await {
                Ok(()) => break,
                Err(failed) => failed,
            };
            let Some(cell) = unreadable else { return (Err(away), unread) };
            let uses = |job: &Job| job.cells.iter().any(|other| Arc::ptr_eq(other, &cell));
            let (theirs, rest): (Vec<Job>, _) = std::mem::take(jobs).into_iter().partition(uses);
            *jobs = rest;
            for job in theirs {
                if job.found {
                    job.end();
                } else if job.must {
                    unread.push(job);
                } else {
                    drop(job.done.send(Err(away.clone())));
                }
            }
        }
        (Ok(()), unread)
    }

    /// Does jobs in one step, until nobody was faster.
    async fn step(&self, jobs: &mut [Job]) -> Result<(), Failed> {
        let mut letters = Letters::new();
        for key in jobs.iter().filter_map(|job| job.letter.as_ref()) {
            letters.insert(key.clone(), self.letters.lock().get(key));
        }
        for tries in 0..MOST_TRIES {
            // One whose lease is over is somebody else before it does anything.
            if self.beaten.lock().is_none_or(|at| at.elapsed() >= FRESH) {
                self.beat().await?;
            }
            // Whoever did not know whether its job was done may have been told meanwhile.
            for job in jobs.iter_mut() {
                // Nobody is admitted who has gone away.
                let gone = !job.must && job.done.is_closed();
                job.found = job.found || gone || job.look();
            }
            if jobs.iter().all(|job| job.found) {
                return Ok(());
            }
            let (era, unsure) = self.unsure(jobs);
            if !unsure.is_empty() {
                for cell in unsure {
                    self.recall(&cell, &era).await?;
                }
                // It may be another era by now.
                continue;
            }
            let jitter = self.marks.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            let step = self.steps.fetch_add(1, Ordering::Relaxed);
            let (life, me) = self.life();
            let setting = Setting {
                me,
                life,
                now: self.now(),
                era,
                mark: Version::mark(self.seed, step),
                tries,
                is_dead: &|node| self.is_dead(node),
            };
            let mut batch = Batch::new(setting);
            for job in jobs.iter_mut().filter(|job| !job.found) {
                batch.run(job, &letters);
            }
            let commit = batch.commit(&letters);
            batch.asked();
            let reply = self.shared.commit(&commit).await;
            let reply = match reply {
                Ok(reply) if !was_done_before(&commit, &reply) => Ok(reply),
                Ok(_) => Err(Away::after("a step arrived twice")),
                Err(away) => {
                    self.note_away(&away);
                    Err(away)
                }
            };
            let reply = match reply {
                Ok(reply) => reply,
                Err(away) => {
                    batch.answered();
                    if away.perhaps {
                        batch.doubt();
                        for job in jobs.iter_mut().filter(|job| job.must && !job.found) {
                            if let Some(doubt) = batch.sign(job, &commit) {
                                job.doubt(doubt);
                            }
                        }
                    }
                    return Err(away.into());
                }
            };
            self.set_time(reply.now);
            self.note_back();
            if reply.done {
                for (key, version, value) in batch.letters(&commit) {
                    self.letters.lock().put(key, version, value);
                }
                batch.answered();
                batch.done(reply);
                return Ok(());
            }
            batch.answered();
            self.conflicts.fetch_add(1, Ordering::Relaxed);
            self.catch_up(&commit, &batch, reply, &mut letters).await?;
            if tries > 2 {
                // Let the others get on.
                let wait = u64::from(tries) * 100 + (jitter >> 8) % (200 * u64::from(tries));
                tokio::time::sleep(Duration::from_micros(wait.min(5000))).await;
            }
        }
        Err(Away::before("others are always faster").into())
    }

    /// Takes in what others have done.
    async fn catch_up(
        &self,
        commit: &Commit,
        batch: &Batch<'_>,
        reply: Reply,
        letters: &mut Letters,
    ) -> Result<(), Failed> {
        for (cell, sums) in batch.counted().zip(reply.sums) {
            cell.count(sums);
        }
        self.note_era(&commit.tag, Arc::clone(&reply.era));
        for moved in reply.moved {
            let Some(cell) = batch.cell(moved.item) else {
                let key = &commit.items[moved.item].key;
                let value = (moved.version > Version::default()).then_some(moved.value);
                letters.insert(key.clone(), (moved.version, value));
                continue;
            };
            if moved.version == Version::default() {
                cell.lost(moved.version, None);
                continue;
            }
            match Record::from_bytes(&moved.value) {
                Ok(record) if moved.version.count() < cell.version().count() => {
                    cell.lost(moved.version, Some(&record));
                }
                Ok(record) => cell.adopt(moved.version, record, &reply.era),
                Err(error) => {
                    // Of a newer version, or damaged: nobody may overwrite what he cannot read.
                    let away = Away::before(format!("the state of {}: {error}", cell.name));
                    return Err(Failed { away, unreadable: Some(Arc::clone(cell)) });
                }
            }
        }
        Ok(())
    }

    /// The era that jobs are done in, and those of their scopes that the database was not asked for in
    /// it: kills are there before they are acknowledged, and the store may have lost one.
    fn unsure(&self, jobs: &[Job]) -> (Era, Vec<Arc<Cell>>) {
        let mut cells = jobs.iter().filter(|job| !job.found).flat_map(|job| &job.cells).peekable();
        let era = cells.peek().map_or_else(Era::default, |cell| self.era_of(cell.tag()));
        let unsure = |cell: &&Arc<Cell>| !era.is_empty() && cell.copy.lock().asked_in != era;
        let unsure = cells.filter(unsure).cloned().collect();
        (era, unsure)
    }

    /// Asks the database for what jobs use, where it was not asked in this era. While it does not answer,
    /// only those wait that must, and go on that need not ask.
    async fn ask_first(&self, jobs: Vec<Job>) -> (Vec<Job>, Vec<Job>) {
        let (era, unsure) = self.unsure(&jobs);
        let mut failed: Vec<(Arc<Cell>, Away)> = Vec::new();
        for cell in unsure {
            if failed.iter().all(|(other, _)| !Arc::ptr_eq(other, &cell))
                && let Err(away) = self.recall(&cell, &era).await
            {
                failed.push((cell, away));
            }
        }
        let (mut ready, mut late) = (Vec::with_capacity(jobs.len()), Vec::new());
        for job in jobs {
            let uses = |(cell, _): &&(Arc<Cell>, Away)| {
                job.cells.iter().any(|other| Arc::ptr_eq(other, cell))
            };
            match failed.iter().find(uses) {
                None => ready.push(job),
                Some(_) if job.must => late.push(job),
                Some((_, away)) => drop(job.done.send(Err(away.clone()))),
            }
        }
        (ready, late)
    }

    /// Asks the database who is dead.
    async fn recall(&self, cell: &Cell, era: &Era) -> Result<(), Away> {
        if cell.copy.lock().asked_in == *era {
            // By another job of the same step.
            return Ok(());
        }
        let stored = self.shared.recall(&cell.scope).await?;
        cell.asked_again(Arc::clone(era), stored.as_ref());
        Ok(())
    }

    pub(crate) fn era_of(&self, tag: &str) -> Era {
        self.eras.lock().get(tag).cloned().unwrap_or_default()
    }

    pub(crate) fn note_era(&self, tag: &str, era: Era) {
        let mut eras = self.eras.lock();
        if !era.is_empty() && eras.get(tag) != Some(&era) {
            eras.insert(tag.to_owned(), era);
        }
    }

    /// The era of a project, as far as this node knows. Whoever asks the database for a scope asks for
    /// this first, and tells [`Cell::asked_in`].
    pub fn era(&self, project: &str) -> Era {
        self.era_of(&crate::cell::tag(project))
    }

    /// Does a job on what this node knows, while nobody can be asked. What it changes is forgotten
    /// when the store is back; calls that were let pass are booked when they end.
    pub fn unasked<T>(
        &self,
        cells: &[Arc<Cell>],
        policies: &PolicySet,
        job: impl FnOnce(&mut Desk<'_, '_>) -> T,
    ) -> T {
        let _alone = self.alone.lock();
        let done = Batch::unasked(&self.me(), self.now(), cells, policies, job);
        if self.away.lock().is_none() {
            // It is back already.
            cells.iter().for_each(|cell| cell.copy.lock().shadow = None);
        }
        done
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

    /// No call waits for a store that is away: signs of life go on, and say when it is back.
    fn absent(&self) -> Result<(), Away> {
        match self.away.lock().as_ref() {
            Some(away) => Err(Away::before(away.why.clone())),
            None => Ok(()),
        }
    }

    pub(crate) fn note_away(&self, gone: &Away) {
        let mut away = self.away.lock();
        let since = away.as_ref().map_or_else(|| self.now(), |away| away.since);
        if away.is_none() {
            tracing::error!("{gone}");
        }
        *away = Some(Absence { since, why: gone.why.clone() });
    }

    pub(crate) fn note_back(&self) {
        if self.away.lock().take().is_some() {
            tracing::warn!("the shared state is back");
            self.all_well();
        }
    }

    /// Whoever was let pass while a store was away does not count any more.
    pub fn all_well(&self) {
        let cells: Vec<Arc<Cell>> = self.cells.lock().values().filter_map(Weak::upgrade).collect();
        for cell in cells {
            let mut copy = cell.copy.lock();
            copy.shadow = None;
            copy.unasked = 0;
        }
    }
}

/// Takes out the jobs from the first one on that is under another policy than those before it. One step
/// is judged by one policy: what was counted in periods of one is not comparable with the other's.
fn under_others(jobs: &mut Vec<Job>) -> Vec<Job> {
    let other = jobs.windows(2).position(|two| !Arc::ptr_eq(&two[0].policies, &two[1].policies));
    other.map_or_else(Vec::new, |at| jobs.split_off(at + 1))
}

/// Why a step was not done.
struct Failed {
    away: Away,
    /// The scope whose state nobody here can read.
    unreadable: Option<Arc<Cell>>,
}

impl From<Away> for Failed {
    fn from(away: Away) -> Failed {
        Failed { away, unreadable: None }
    }
}

/// Whether what was asked for is there already: whoever carries it may have sent it twice.
fn was_done_before(commit: &Commit, reply: &Reply) -> bool {
    !reply.done
        && reply.moved.iter().any(|moved| {
            let write = commit.items.get(moved.item).and_then(|item| item.write.as_ref());
            let record = || Record::from_bytes(&moved.value).ok();
            write.is_some_and(|write| {
                write.version == moved.version
                    || record().is_some_and(|record| record.recent.contains(&write.version))
            })
        })
}
