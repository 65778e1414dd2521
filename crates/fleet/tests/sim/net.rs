//! The network between nodes and Redis, with its faults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use deadstop_core::{ScopeState, Time};
use deadstop_fleet::model::Model;
use deadstop_fleet::{
    Beat, Cell, Commit, Item, Record, Reply, Shared, Touched, Unreachable, Version, Write,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout};

use crate::books::Books;
use crate::dice::Dice;
use crate::plant::Plant;

/// How long a node waits for an answer.
const ANSWER: Duration = Duration::from_secs(1);
/// Milliseconds that a request may take to arrive, even after its sender gave up.
const LATEST: u64 = 10_000;

/// How often each fault happens, in a thousand requests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    pub(crate) lost_requests: u64,
    pub(crate) lost_replies: u64,
    pub(crate) twice: u64,
    pub(crate) slow: u64,
    pub(crate) late: u64,
    pub(crate) database: u64,
}

/// The database row of a scope.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) state: ScopeState,
    pub(crate) version: Version,
}

/// Redis, the database, and the observations of the simulation.
pub(crate) struct Hub {
    pub(crate) dice: Dice,
    pub(crate) weather: Mutex<Weather>,
    pub(crate) plant: Option<Plant>,
    model: Mutex<Model>,
    /// A replica that lags behind.
    replica: Mutex<Model>,
    pub(crate) database: Mutex<BTreeMap<String, Row>>,
    begun: Instant,
    epoch: u64,
    trace: Mutex<u64>,
    /// The previous content of each record.
    older: Mutex<BTreeMap<String, Vec<u8>>>,
    pub(crate) restarts: Mutex<Vec<Time>>,
    /// Called after each commit that was applied.
    watch: Mutex<Option<Watch>>,
    pub(crate) commits: Mutex<u64>,
}

type Watch = Box<dyn Fn(&Commit, &Model) + Send>;

impl Hub {
    pub(crate) fn new(seed: u64, weather: Weather, plant: Option<Plant>, epoch: u64) -> Arc<Hub> {
        Arc::new(Hub {
            dice: Dice::new(seed),
            weather: Mutex::new(weather),
            plant,
            model: Mutex::default(),
            replica: Mutex::default(),
            database: Mutex::default(),
            begun: Instant::now(),
            epoch,
            trace: Mutex::new(seed),
            older: Mutex::default(),
            restarts: Mutex::default(),
            watch: Mutex::new(None),
            commits: Mutex::new(0),
        })
    }

    pub(crate) fn watch(&self, watch: Watch) {
        *self.watch.lock() = Some(watch);
    }

    pub(crate) fn now(&self) -> Time {
        Time(self.epoch + self.begun.elapsed().as_millis() as u64)
    }

    /// Mixes an event into the trace of the run.
    pub(crate) fn note(&self, what: u64) {
        let mut trace = self.trace.lock();
        *trace = (*trace ^ what ^ self.now().0).wrapping_mul(0x0100_0000_01b3).rotate_left(17);
    }

    pub(crate) fn trace(&self) -> u64 {
        *self.trace.lock()
    }

    pub(crate) fn model(&self) -> Model {
        self.model.lock().clone()
    }

    /// Writes a record as another program would.
    pub(crate) fn rewrite(&self, key: &str, change: impl FnOnce(&mut Vec<u8>)) -> Version {
        let mut model = self.model.lock();
        let (expect, mut value) = model.record(key).expect("a record").clone();
        change(&mut value);
        let version = expect.next(7);
        let write = Some(Write { version, value, keep_ms: 60_000 });
        let item = Item { key: key.to_owned(), expect, write };
        let done = model.commit(&Commit { items: vec![item], ..Commit::default() }, self.now());
        assert!(done.done);
        version
    }

    /// Redis restarts without its data.
    pub(crate) fn restart(&self) {
        self.replica.lock().clone_from(&Model::default());
        self.fail_over();
    }

    /// A failover to a replica that lacks the last writes.
    pub(crate) fn fail_over(&self) {
        let mut restarts = self.restarts.lock();
        restarts.push(self.now());
        let mut model = self.model.lock();
        model.clone_from(&self.replica.lock());
        model.served_by(&restarts.len().to_string());
        self.older.lock().clear();
        drop((model, restarts));
        self.note(1);
    }

    /// Writes a node's state of a scope to the database, unless the row there is newer.
    pub(crate) fn write_down(&self, scope: &str, cell: &Cell) {
        // The version is read first: the state may then be newer than its version, never older.
        let version = cell.version();
        let row = Row { state: cell.state.lock().clone(), version };
        let mut database = self.database.lock();
        let news = |old: &Row| {
            (old.state.turns(), old.version) <= (row.state.turns(), row.version)
                || self.plant == Some(Plant::Rows) && old.version <= row.version
        };
        if database.get(scope).is_none_or(news) {
            database.insert(scope.to_owned(), row);
        }
    }

    fn apply(&self, commit: &Commit) -> Reply {
        let mut planted = None;
        if let Some(plant) = self.plant {
            planted = Some(plant.spoil(commit, &self.model.lock()));
        }
        let known = commit.era.clone().unwrap_or_default();
        let commit = planted.as_ref().unwrap_or(commit);
        let mut model = self.model.lock();
        let before: Vec<(String, Vec<u8>)> = commit
            .items
            .iter()
            .filter(|item| item.write.is_some())
            .filter_map(|item| Some((item.key.clone(), model.record(&item.key)?.1.clone())))
            .collect();
        let mut reply = model.commit(commit, self.now());
        if commit.era.is_none() {
            reply.era = known;
        }
        *self.commits.lock() += 1;
        self.note(u64::from(reply.done) << 8 | (reply.moved.len() as u64) << 16 | 2);
        for sums in &reply.sums {
            self.note(sums.counts[6] ^ sums.changes << 32);
        }
        if reply.done {
            if self.dice.chance(300) {
                self.replica.lock().clone_from(&model);
            }
            self.older.lock().extend(before);
            if let Some(watch) = &*self.watch.lock() {
                watch(commit, &model);
            }
        }
        drop(model);
        match self.plant {
            Some(Plant::Doubt) => {
                for moved in &mut reply.moved {
                    if let Ok(mut record) = Record::from_bytes(&moved.value) {
                        record.recent.clear();
                        moved.value = record.to_bytes();
                    }
                }
            }
            Some(Plant::Stale) if commit.items.iter().all(|item| item.write.is_none()) => {
                for moved in &mut reply.moved {
                    let older = self.older.lock();
                    if let Some(older) = older.get(&commit.items[moved.item].key) {
                        moved.value.clone_from(older);
                    }
                }
            }
            _ => {}
        }
        reply
    }

    /// How long a message takes.
    fn way(&self) -> Duration {
        let weather = *self.weather.lock();
        let ms = match () {
            () if self.dice.chance(weather.late) => self.dice.range(1000, LATEST),
            () if self.dice.chance(weather.slow) => self.dice.range(20, 900),
            () => self.dice.range(0, 4),
        };
        Duration::from_millis(ms)
    }
}

/// Whether a node runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pulse {
    Runs,
    Halted,
    Dead,
}

/// A node's machine and its network cable. Waiting tasks resume in the order in which they began to
/// wait; the runtime's channels would wake them in any order.
pub(crate) struct Machine {
    pulse: Mutex<Pulse>,
    changed: Notify,
    cut: Mutex<bool>,
}

impl Machine {
    pub(crate) fn new() -> Arc<Machine> {
        let (pulse, cut) = (Mutex::new(Pulse::Runs), Mutex::new(false));
        Arc::new(Machine { pulse, changed: Notify::new(), cut })
    }

    pub(crate) fn is_dead(&self) -> bool {
        *self.pulse.lock() == Pulse::Dead
    }

    /// A dead machine stays dead.
    pub(crate) fn set(&self, pulse: Pulse) {
        if !self.is_dead() {
            *self.pulse.lock() = pulse;
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn cut(&self, cut: bool) {
        *self.cut.lock() = cut;
    }

    /// Returns when the node runs; never, if it is dead.
    pub(crate) async fn runs(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if *self.pulse.lock() == Pulse::Runs {
                return;
            }
            changed.await;
        }
    }
}

/// A node's end of the network.
pub(crate) struct Endpoint {
    pub(crate) hub: Arc<Hub>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) books: Arc<Books>,
    /// The index of the node.
    pub(crate) at: usize,
}

impl Endpoint {
    /// Carries a request to Redis and its answer back, subject to faults.
    async fn ask<T: Send + 'static>(
        &self,
        work: impl Fn(&Hub) -> T + Send + Sync + 'static,
    ) -> Result<T, Unreachable> {
        self.machine.runs().await;
        let (hub, dice) = (Arc::clone(&self.hub), &self.hub.dice);
        let weather = *hub.weather.lock();
        if *self.machine.cut.lock() && dice.chance(300) {
            sleep(Duration::from_millis(dice.range(0, 5))).await;
            self.machine.runs().await;
            return Err(Unreachable::not_sent("connection refused"));
        }
        let (tell, told) = oneshot::channel();
        let (there, back) = (hub.way(), hub.way());
        let lost = dice.chance(weather.lost_requests);
        let mute = dice.chance(weather.lost_replies);
        let again = dice.chance(weather.twice).then(|| hub.way());
        // The client library may retry by itself, and return the second answer.
        let second = again.is_some() && dice.chance(500);
        let machine = Arc::clone(&self.machine);
        let asked = Arc::clone(&hub);
        tokio::spawn(async move {
            sleep(there).await;
            if lost || *machine.cut.lock() {
                return;
            }
            let mut answer = work(&asked);
            if second {
                sleep(again.unwrap_or_default()).await;
                answer = work(&asked);
            } else if let Some(again) = again {
                let asked = Arc::clone(&asked);
                tokio::spawn(async move {
                    sleep(again).await;
                    work(&asked);
                });
            }
            sleep(back).await;
            if !mute && !*machine.cut.lock() {
                let _ = tell.send(answer);
            }
        });
        let begun = Instant::now();
        let answer = timeout(ANSWER, told).await;
        if matches!(answer, Ok(Err(_))) && dice.chance(500) {
            // Some nodes notice a broken connection at once, others wait for the timeout.
            tokio::time::sleep_until(begun + ANSWER).await;
        }
        self.machine.runs().await;
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => {
                // The connection broke or timed out: the request may have been carried out.
                Err(Unreachable::maybe_done("no answer"))
            }
        }
    }
}

impl Shared for Endpoint {
    async fn commit(&self, commit: &Commit) -> Result<Reply, Unreachable> {
        let commit = commit.clone();
        self.ask(move |hub| hub.apply(&commit)).await
    }

    async fn beat(&self, node: &str, ms: u64) -> Result<Beat, Unreachable> {
        if node.matches('.').count() > 1 {
            // A new incarnation: its lease had expired.
            self.books.dies(self.at);
        }
        let node = node.to_owned();
        self.ask(move |hub| {
            hub.note(3);
            let now = hub.now();
            hub.model.lock().beat(&node, ms, now)
        })
        .await
    }

    async fn touched(&self, tag: &str, since: Time) -> Result<Touched, Unreachable> {
        let tag = tag.to_owned();
        self.ask(move |hub| hub.model.lock().touched(&tag, since, hub.now())).await
    }

    async fn recall(&self, scope: &str) -> Result<Option<ScopeState>, Unreachable> {
        self.machine.runs().await;
        sleep(Duration::from_millis(self.hub.dice.range(0, 5))).await;
        let failed = self.hub.dice.chance(self.hub.weather.lock().database);
        self.machine.runs().await;
        if failed {
            return Err(Unreachable::not_sent("the database does not answer"));
        }
        if self.hub.plant == Some(Plant::Recall) {
            return Ok(None);
        }
        Ok(self.hub.database.lock().get(scope).map(|row| row.state.clone()))
    }
}
