//! A node of the fleet: commits jobs to Redis, renews its lease, and follows the clock of Redis and
//! the other nodes.

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

use crate::batch::{Batch, Entries, Setting};
use crate::cell::Cell;
use crate::lane::{Draining, Haste, Job, Lane, Unreachable, lane_of, split_by_policy};
use crate::record::{Record, Version};
use crate::ride::Rides;
use crate::transaction::Transaction;
use crate::wire::{Commit, Era, Reply, Shared};

/// Jobs in one commit, at most.
const MOST_JOBS: usize = 128;
/// Attempts at a commit that keeps losing to concurrent writers.
const MOST_TRIES: u32 = 64;
/// How long a node's lease lasts after a heartbeat.
const LEASE_MS: u64 = 5000;
const LEASE: Duration = Duration::from_millis(LEASE_MS);
/// How long a node that is not listed is remembered.
const FORGOTTEN: Duration = Duration::from_secs(3600);
/// Heartbeat first if the last one is older than this, so that the answer to a commit arrives
/// before the lease ends.
const FRESH: Duration = Duration::from_secs(3);
/// Interval of heartbeats.
const BEAT: Duration = Duration::from_secs(1);
/// Interval at which scopes in use are read again, in case a message about a change was lost.
const REREAD: Duration = Duration::from_secs(1);
/// Back-off after a failed Redis request.
const REST: Duration = Duration::from_millis(100);
/// Entries that a node remembers.
const ENTRIES: usize = 20_000;

/// A node of the fleet, possibly this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The name of its current incarnation.
    pub node: String,
    /// When its lease ends.
    pub until: Time,
}

/// All nodes that Redis lists.
#[derive(Debug, Clone, Default)]
struct Peers {
    all: Vec<Peer>,
    /// The time by the clock of Redis when they were listed.
    at: Time,
    /// When this node asked for the list.
    asked: Option<Instant>,
}

/// A node of the fleet.
pub struct Fleet<S> {
    pub(crate) shared: S,
    /// The incarnation of this node, and its name in it.
    me: RwLock<(u64, Arc<str>)>,
    name: String,
    /// Marks the versions that this node writes.
    seed: u64,
    began: Instant,
    /// The clock of Redis at this node's start, by this node's own clock.
    offset: AtomicI64,
    latest: AtomicU64,
    /// When the last heartbeat was sent that succeeded.
    beaten: Mutex<Option<Instant>>,
    peers: RwLock<Peers>,
    /// Nodes that have reservations and are not listed, and since when this node misses them.
    missing: Mutex<HashMap<String, Instant>>,
    marks: AtomicU64,
    outage: Mutex<Option<Outage>>,
    pub(crate) cells: Mutex<HashMap<String, Weak<Cell>>>,
    pub(crate) rides: Rides,
    /// The current era of Redis, by tag.
    eras: Mutex<HashMap<String, Era>>,
    entries: Mutex<Remembered>,
    /// Serialises jobs that run offline.
    alone: Mutex<()>,
    /// Commits that were attempted.
    pub steps: AtomicU64,
    /// Commits lost to a concurrent writer.
    pub conflicts: AtomicU64,
    stopped: AtomicBool,
}

/// Entries that this node has seen, oldest first.
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
        if self.order.len() > ENTRIES
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

/// Redis does not answer.
#[derive(Debug, Clone)]
struct Outage {
    since: Time,
    why: String,
}

impl<S: Shared> Fleet<S> {
    /// A node. Its name is for people. Every incarnation gets a number of its own, so that the
    /// reservations of an earlier one can be told apart. `seed` marks the versions that it writes.
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
            missing: Mutex::default(),
            marks: AtomicU64::new(seed),
            outage: Mutex::new(None),
            cells: Mutex::default(),
            rides: Rides::default(),
            eras: Mutex::default(),
            entries: Mutex::default(),
            alone: Mutex::default(),
            steps: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        };
        Arc::new(fleet)
    }

    /// Sends heartbeats and reads again the scopes in use, until the node stops. The two loops do
    /// not wait for each other.
    pub async fn keep(self: Arc<Self>) {
        let weak = Arc::downgrade(&self);
        drop(self);
        let alive = || weak.upgrade().filter(|fleet| !fleet.stopped.load(Ordering::Acquire));
        let beats = async {
            while let Some(fleet) = alive() {
                let begun = Instant::now();
                // During an outage this request notices when Redis is back.
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

    /// Stops the heartbeats. The node's lease then expires.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Sends a heartbeat, which renews the lease. If the lease had expired, the node takes a new
    /// name first.
    pub async fn beat(&self) -> Result<(), Unreachable> {
        self.rename_if_expired();
        let (life, me) = self.life();
        let asked = Instant::now();
        let beat = match self.shared.beat(&me, LEASE_MS).await {
            Ok(beat) => beat,
            Err(error) => {
                self.note_outage(&error);
                return Err(error);
            }
        };
        self.set_time(beat.now);
        {
            let mut beaten = self.beaten.lock();
            // If the lease ended before this answer arrived, other nodes may have seen it expire.
            let unbroken = beaten.is_none_or(|before| before.elapsed() < LEASE);
            if unbroken && self.life().0 == life {
                *beaten = (*beaten).max(Some(asked));
            }
        }
        let all: Vec<Peer> =
            beat.nodes.into_iter().map(|(node, until)| Peer { node, until }).collect();
        self.missing.lock().retain(|node, since| {
            since.elapsed() < FORGOTTEN && !all.iter().any(|peer| peer.node == *node)
        });
        let mut peers = self.peers.write();
        if peers.asked < Some(asked) {
            *peers = Peers { all, at: beat.now, asked: Some(asked) };
        }
        drop(peers);
        self.note_recovery();
        Ok(())
    }

    /// After its lease expired, the node takes a new name: other nodes may have booked the
    /// reservations of the old one as spent.
    fn rename_if_expired(&self) {
        let mut beaten = self.beaten.lock();
        if beaten.is_some_and(|at| at.elapsed() >= LEASE) {
            *beaten = None;
            let mut me = self.me.write();
            let life = me.0 + 1;
            *me = (life, format!("{}.{life}", self.name).into());
        }
    }

    /// The shared state.
    pub fn shared(&self) -> &S {
        &self.shared
    }

    /// The name of this node's current incarnation.
    pub fn me(&self) -> Arc<str> {
        self.life().1
    }

    pub(crate) fn life(&self) -> (u64, Arc<str>) {
        self.me.read().clone()
    }

    /// All nodes that Redis listed at the last heartbeat.
    pub fn peers(&self) -> Vec<Peer> {
        self.peers.read().all.clone()
    }

    /// Whether a node is dead: its lease had ended when Redis last listed the nodes. A node that is
    /// not listed is dead after it was missing for a whole lease: it may have just started, or
    /// Redis may have lost its name and will learn it at the next heartbeat.
    pub(crate) fn is_dead(&self, node: &str) -> bool {
        if node.is_empty() || *node == *self.me() {
            return false;
        }
        let peers = self.peers.read();
        if let Some(peer) = peers.all.iter().find(|peer| peer.node == node) {
            return peer.until < peers.at;
        }
        let missed = *self.missing.lock().entry(node.to_owned()).or_insert_with(Instant::now);
        peers.asked.is_some_and(|asked| asked >= missed + LEASE)
    }

    /// The time by the clock of Redis. It never goes back.
    pub fn now(&self) -> Time {
        let now = self.offset.load(Ordering::Relaxed).saturating_add(self.elapsed());
        let now = u64::try_from(now).unwrap_or(0);
        Time(self.latest.fetch_max(now, Ordering::Relaxed).max(now))
    }

    fn elapsed(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// Sets the clock from an answer. Redis read its clock at some time between request and answer,
    /// so this clock may run a little late, never early. No node therefore begins a period, or
    /// takes another node for dead, before Redis would.
    pub(crate) fn set_time(&self, now: Time) {
        let now = i64::try_from(now.0).unwrap_or(i64::MAX);
        self.offset.store(now - self.elapsed(), Ordering::Relaxed);
    }

    /// Keeps a scope up to date from now on. It replaces an older cell for the same path.
    pub fn know(&self, cell: &Arc<Cell>) {
        let mut cells = self.cells.lock();
        cells.insert(cell.scope.clone(), Arc::downgrade(cell));
    }

    /// Runs a job on a chain and commits it. The job runs again for as long as its commit loses to
    /// a concurrent writer. Fails at once during an outage.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        cells: impl IntoIterator<Item = Arc<Cell>>,
        policies: &Arc<PolicySet>,
        entry: Option<String>,
        job: impl FnMut(&mut Transaction<'_, '_>) -> T + Send + 'static,
    ) -> Result<T, Unreachable> {
        self.check_reachable()?;
        self.enqueue(cells, policies, entry, job, Haste::MayFail).await
    }

    /// Runs a job that must not be lost: during an outage it stays in its lane and is retried until
    /// it is committed. Its turn among other jobs is fixed when this function returns, even if the
    /// caller drops the future.
    pub fn run_durably<T: Send + 'static>(
        self: &Arc<Self>,
        cells: impl IntoIterator<Item = Arc<Cell>>,
        policies: &Arc<PolicySet>,
        entry: Option<String>,
        job: impl FnMut(&mut Transaction<'_, '_>) -> T + Send + 'static,
    ) -> Pin<Box<dyn Future<Output = Result<T, Unreachable>> + Send>> {
        self.enqueue(cells, policies, entry, job, Haste::Durable)
    }

    pub(crate) fn enqueue<T: Send + 'static>(
        self: &Arc<Self>,
        cells: impl IntoIterator<Item = Arc<Cell>>,
        policies: &Arc<PolicySet>,
        entry: Option<String>,
        mut job: impl FnMut(&mut Transaction<'_, '_>) -> T + Send + 'static,
        haste: Haste,
    ) -> Pin<Box<dyn Future<Output = Result<T, Unreachable>> + Send>> {
        let result = Arc::new(Mutex::new(None));
        let (done, waiting) = oneshot::channel();
        let put = Arc::clone(&result);
        self.queue(Job {
            cells: cells.into_iter().collect(),
            policies: Arc::clone(policies),
            entry,
            run: Box::new(move |transaction: &mut Transaction<'_, '_>| {
                *put.lock() = Some(job(transaction));
            }),
            done,
            must: haste != Haste::MayFail,
            rides: match haste {
                Haste::Rides => self.rides.until(),
                Haste::MayFail | Haste::Durable => None,
            },
            held: Vec::new(),
            doubts: Vec::new(),
            found: false,
        });
        Box::pin(async move {
            let gone = || Unreachable::not_sent("this node is shutting down");
            waiting.await.map_err(|_| gone())??;
            result.lock().take().ok_or_else(gone)
        })
    }

    /// Puts a job into its lane, and starts the lane if it is idle.
    fn queue(self: &Arc<Self>, job: Job) {
        let cells = &job.cells;
        let lane = lane_of(cells);
        for (depth, cell) in cells.iter().enumerate() {
            if let Some(lane) = lane.as_ref().filter(|_| depth > 0) {
                cell.home.get_or_init(|| Arc::clone(lane));
            }
            cell.snapshot.lock().policies = Some(Arc::clone(&job.policies));
        }
        if let Some(lane) = lane {
            lane.queue.lock().jobs.push_back(job);
            self.start(lane);
        }
    }

    /// Starts a lane that has something to do. Jobs that all wait for a ride get a timer instead.
    pub(crate) fn start(self: &Arc<Self>, lane: Arc<Lane>) {
        let mut queue = lane.queue.lock();
        let (busy, due) = (queue.busy, queue.ready(MOST_JOBS) > 0);
        if !busy && due {
            queue.busy = true;
            drop(queue);
            tokio::spawn(Arc::clone(self).drain(lane));
        } else if !due && !queue.jobs.is_empty() && !std::mem::replace(&mut queue.timed, true) {
            drop(queue);
            self.depart_in_time(lane);
        }
    }

    /// Runs all jobs of a lane.
    pub(crate) async fn drain(self: Arc<Self>, lane: Arc<Lane>) {
        // Frees the lane even if a job panics.
        let draining = Draining(Arc::clone(&lane));
        let lane = &*draining.0;
        let mut stuck = 0;
        loop {
            let jobs = {
                let mut queue = lane.queue.lock();
                let many = queue.ready(MOST_JOBS + stuck);
                queue.busy = many > 0;
                if many == 0 {
                    break;
                }
                // Whatever becomes of this attempt, they have waited for their ride.
                let board = |job: Job| Job { rides: None, ..job };
                queue.jobs.drain(..many).map(board).collect::<Vec<Job>>()
            };
            let (mut jobs, late) = self.ask_first(jobs).await;
            let others = split_by_policy(&mut jobs);
            stuck = late.len();
            {
                // First in the queue for the next round. Until then other jobs run.
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
            let (done, unread) = self.step_readable(&mut jobs).await;
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
            let Err(error) = done else {
                jobs.into_iter().for_each(Job::end);
                continue;
            };
            let (must, may): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(|job| job.must);
            may.into_iter().for_each(|job| drop(job.done.send(Err(error.clone()))));
            if must.is_empty() {
                continue;
            }
            // Jobs that need not be retried fail at once.
            let may: Vec<Job> = {
                let mut queue = lane.queue.lock();
                let waiting = std::mem::take(&mut queue.jobs);
                let (later, may): (Vec<Job>, Vec<Job>) =
                    waiting.into_iter().partition(|job| job.must);
                queue.jobs = must.into_iter().chain(later).collect();
                may
            };
            may.into_iter().for_each(|job| drop(job.done.send(Err(error.clone()))));
            tokio::time::sleep(REST).await;
        }
        // Jobs that wait for a ride may have come meanwhile.
        self.start(Arc::clone(&draining.0));
    }

    /// Commits jobs together, without those that use a scope whose record cannot be read. Of these,
    /// durable jobs are returned for a later attempt and the others fail.
    async fn step_readable(&self, jobs: &mut Vec<Job>) -> (Result<(), Unreachable>, Vec<Job>) {
        let mut unread = Vec::new();
        while !jobs.is_empty() {
            let Failed { error, unreadable } = match self.step(jobs).await {
                Ok(()) => break,
                Err(failed) => failed,
            };
            let Some(cell) = unreadable else { return (Err(error), unread) };
            let uses = |job: &Job| job.cells.iter().any(|other| Arc::ptr_eq(other, &cell));
            let (theirs, rest): (Vec<Job>, _) = std::mem::take(jobs).into_iter().partition(uses);
            *jobs = rest;
            for job in theirs {
                if job.found {
                    job.end();
                } else if job.must {
                    unread.push(job);
                } else {
                    drop(job.done.send(Err(error.clone())));
                }
            }
        }
        (Ok(()), unread)
    }

    /// Commits jobs together; retries while the commit loses to a concurrent writer.
    async fn step(&self, jobs: &mut [Job]) -> Result<(), Failed> {
        let mut entries = Entries::new();
        for key in jobs.iter().filter_map(|job| job.entry.as_ref()) {
            entries.insert(key.clone(), self.entries.lock().get(key));
        }
        for tries in 0..MOST_TRIES {
            // Lease expired or about to: renew it first, under a new name if it expired.
            if self.beaten.lock().is_none_or(|at| at.elapsed() >= FRESH) {
                self.beat().await?;
            }
            // A snapshot read meanwhile may show that an unanswered attempt was committed.
            for job in jobs.iter_mut() {
                // The caller has left: do not admit a call for it.
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
                // Redis may be in another era by now: check again.
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
                batch.run(job, &entries);
            }
            let commit = batch.commit(&entries);
            batch.asked();
            let reply = self.shared.commit(&commit).await;
            let reply = match reply {
                Ok(reply) if !was_done_before(&commit, &reply) => Ok(reply),
                Ok(_) => Err(Unreachable::maybe_done("Redis received a commit twice")),
                Err(error) => {
                    self.note_outage(&error);
                    Err(error)
                }
            };
            let reply = match reply {
                Ok(reply) => reply,
                Err(error) => {
                    batch.answered();
                    if error.maybe_done {
                        batch.doubt();
                        for job in jobs.iter_mut().filter(|job| job.must && !job.found) {
                            if let Some(doubt) = batch.sign(job, &commit) {
                                job.doubt(doubt);
                            }
                        }
                    }
                    return Err(error.into());
                }
            };
            self.set_time(reply.now);
            self.note_recovery();
            if reply.done {
                if let Some(stayed) = batch.stayed()
                    && let Some(lane) = jobs.iter().find_map(|job| lane_of(&job.cells))
                {
                    lane.note(stayed);
                }
                for (key, version, value) in batch.entries(&commit) {
                    self.entries.lock().put(key, version, value);
                }
                batch.answered();
                batch.done(reply);
                return Ok(());
            }
            batch.answered();
            self.conflicts.fetch_add(1, Ordering::Relaxed);
            self.catch_up(&commit, &batch, reply, &mut entries).await?;
            if tries > 2 {
                // Random back-off, so that concurrent writers get their turn.
                let wait = u64::from(tries) * 100 + (jitter >> 8) % (200 * u64::from(tries));
                tokio::time::sleep(Duration::from_micros(wait.min(5000))).await;
            }
        }
        Err(Unreachable::not_sent(format!(
            "{MOST_TRIES} commits in a row lost to concurrent writers"
        ))
        .into())
    }

    /// Takes over what other nodes have written.
    async fn catch_up(
        &self,
        commit: &Commit,
        batch: &Batch<'_>,
        reply: Reply,
        entries: &mut Entries,
    ) -> Result<(), Failed> {
        for (cell, sums) in batch.counted().zip(reply.sums) {
            cell.count(sums);
        }
        self.note_era(&commit.tag, Arc::clone(&reply.era));
        for moved in reply.moved {
            let Some(cell) = batch.cell(moved.item) else {
                let key = &commit.items[moved.item].key;
                let value = (moved.version > Version::default()).then_some(moved.value);
                entries.insert(key.clone(), (moved.version, value));
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
                    // The record is damaged or was written by a newer version: a node never
                    // overwrites a record that it cannot read.
                    let error = Unreachable::not_sent(format!(
                        "cannot read the state of {}: {error}",
                        cell.name
                    ));
                    return Err(Failed { error, unreadable: Some(Arc::clone(cell)) });
                }
            }
        }
        Ok(())
    }

    /// The current era, and the scopes of these jobs that this node has not read from the database
    /// in it. A kill is in the database before it is acknowledged, and Redis may have lost it.
    fn unsure(&self, jobs: &[Job]) -> (Era, Vec<Arc<Cell>>) {
        let mut cells = jobs.iter().filter(|job| !job.found).flat_map(|job| &job.cells).peekable();
        let era = cells.peek().map_or_else(Era::default, |cell| self.era_of(cell.tag()));
        let unsure = |cell: &&Arc<Cell>| !era.is_empty() && cell.snapshot.lock().asked_in != era;
        let unsure = cells.filter(unsure).cloned().collect();
        (era, unsure)
    }

    /// Reads from the database the scopes that it was not asked for in this era. If the database
    /// does not answer, durable jobs on these scopes wait, other jobs on them fail, and jobs on
    /// other scopes go on.
    async fn ask_first(&self, jobs: Vec<Job>) -> (Vec<Job>, Vec<Job>) {
        let (era, unsure) = self.unsure(&jobs);
        let mut failed: Vec<(Arc<Cell>, Unreachable)> = Vec::new();
        for cell in unsure {
            if failed.iter().all(|(other, _)| !Arc::ptr_eq(other, &cell))
                && let Err(error) = self.recall(&cell, &era).await
            {
                failed.push((cell, error));
            }
        }
        let (mut ready, mut late) = (Vec::with_capacity(jobs.len()), Vec::new());
        for job in jobs {
            let uses = |(cell, _): &&(Arc<Cell>, Unreachable)| {
                job.cells.iter().any(|other| Arc::ptr_eq(other, cell))
            };
            match failed.iter().find(uses) {
                None => ready.push(job),
                Some(_) if job.must => late.push(job),
                Some((_, error)) => drop(job.done.send(Err(error.clone()))),
            }
        }
        (ready, late)
    }

    /// Reads from the database whether a scope was killed.
    async fn recall(&self, cell: &Cell, era: &Era) -> Result<(), Unreachable> {
        if cell.snapshot.lock().asked_in == *era {
            // Another job of the same commit has already read it.
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

    /// The era of a project, as far as this node knows. A caller reads it before it reads a scope
    /// from the database, and passes it to [`Cell::asked_in`].
    pub fn era(&self, project: &str) -> Era {
        self.era_of(&crate::cell::tag(project))
    }

    /// Runs a job on the last state this node knows, while Redis is unreachable. Its changes are
    /// dropped when Redis is back. Calls admitted this way are booked when they end.
    pub fn offline<T>(
        &self,
        cells: &[Arc<Cell>],
        policies: &PolicySet,
        job: impl FnOnce(&mut Transaction<'_, '_>) -> T,
    ) -> T {
        let _alone = self.alone.lock();
        let done = Batch::offline(&self.me(), self.now(), cells, policies, job);
        if self.outage.lock().is_none() {
            // Redis is back already.
            cells.iter().for_each(|cell| cell.snapshot.lock().shadow = None);
        }
        done
    }

    /// Counts a call that is admitted offline; returns how many there were in this scope during the
    /// outage.
    pub fn count_offline(&self, cell: &Cell) -> u64 {
        let mut snapshot = cell.snapshot.lock();
        snapshot.offline += 1;
        snapshot.offline
    }

    /// Since when Redis is unreachable, and the last error. `None` while it answers.
    pub fn outage(&self) -> Option<(Time, String)> {
        self.outage.lock().as_ref().map(|outage| (outage.since, outage.why.clone()))
    }

    /// Fails at once during an outage, so that no call waits for a timeout. Heartbeats go on and
    /// notice when Redis is back.
    fn check_reachable(&self) -> Result<(), Unreachable> {
        match self.outage.lock().as_ref() {
            Some(outage) => Err(Unreachable::not_sent(outage.why.clone())),
            None => Ok(()),
        }
    }

    pub(crate) fn note_outage(&self, error: &Unreachable) {
        let mut outage = self.outage.lock();
        let since = outage.as_ref().map_or_else(|| self.now(), |outage| outage.since);
        if outage.is_none() {
            tracing::error!("{error}");
        }
        *outage = Some(Outage { since, why: error.why.clone() });
    }

    pub(crate) fn note_recovery(&self) {
        if self.outage.lock().take().is_some() {
            tracing::warn!("Redis is reachable again");
            self.reset_offline();
        }
    }

    /// Forgets the offline calls of an outage that is over.
    pub fn reset_offline(&self) {
        let cells: Vec<Arc<Cell>> = self.cells.lock().values().filter_map(Weak::upgrade).collect();
        for cell in cells {
            let mut snapshot = cell.snapshot.lock();
            snapshot.shadow = None;
            snapshot.offline = 0;
        }
    }
}

/// Why a commit failed.
struct Failed {
    error: Unreachable,
    /// The scope whose record this node cannot read, if that is why.
    unreadable: Option<Arc<Cell>>,
}

impl From<Unreachable> for Failed {
    fn from(error: Unreachable) -> Failed {
        Failed { error, unreadable: None }
    }
}

/// Whether Redis has already applied this commit: the client library may have sent it twice.
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
