//! The warden: keeps the scopes in use, runs each decision as one atomic step over a call's chain,
//! and brings a kill to calls in flight and to disk.
//!
//! A decision takes a microsecond. Writing happens in the background (`writer`); a kill or an
//! incident is written before it is acknowledged.

pub mod alerts;
mod approvals;
mod backend;
mod calls;
mod control;
mod conversation;
mod events;
mod fingerprint;
mod govern;
mod grants;
mod hourly;
mod listing;
pub mod log;
mod lookup;
pub mod metrics;
mod nodes;
mod observe;
mod once;
mod orders;
pub mod pins;
mod plain;
pub mod prices;
mod project;
mod recent;
mod record;
mod removal;
mod reported;
mod ride;
mod room;
mod scope;
mod sessions;
pub mod settings;
mod startup;
mod step;
mod stop;
mod texts;
pub mod trace;
mod writer;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deadstop_core::{FailMode, PolicySet, Time};
use deadstop_fleet::{Fleet, Redis};
use deadstop_store::{Numbers, Store, StoreError};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::alerts::{Bunches, ToldOutages};
use crate::metrics::Metrics;
use crate::pins::Pins;
pub use approvals::{Approval, ApprovalOutcome, Approvals, Word};
use backend::{Backend, Node, Pending, Stores};
pub use calls::{Admit, Advice, Ended, Refused, ResultIn, Running, Settled, Terms};
pub use conversation::Turn;
pub use events::{Event, Events};
pub use govern::{Booked, Proposed};
pub use listing::Tools;
pub use nodes::{Message, Reload};
pub use observe::{OBSERVED, Taken, Told};
pub use once::{Allowed, NotAllowed, Once, Onces};
pub use orders::{Order, What};
pub use project::{Policies, Project};
pub use recent::{Recent, Said};
pub use record::{Exported, ExportedCall, Exports, Facts};
pub use removal::{NotRemoved, Removed};
use ride::Riders;
use room::Rooms;
pub use scope::{Chain, Scope, ScopeId, Stopped, Tally};
use sessions::Sessions;
pub use sessions::{Asking, Resolved, Thread};
pub use stop::{Stop, Stops};
use texts::Texts;
pub use writer::Outage;

/// How long the end of an answer waits until its cost is committed for all nodes.
const BOOKED: Duration = Duration::from_secs(1);
/// The project of clients that name none.
pub const DEFAULT_PROJECT: &str = "default";

/// Completes when a call's settlement is committed for all nodes.
pub type Booking = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The warden.
pub struct Warden {
    /// The policies of projects that have saved none.
    configured: Arc<PolicySet>,
    projects: RwLock<HashMap<String, Arc<Project>>>,
    scopes: Mutex<HashMap<String, Arc<Scope>>>,
    /// When idle scopes were last dropped.
    swept: AtomicU64,
    /// Scopes that were made while the database was unreachable.
    strays: Mutex<Vec<Arc<Scope>>>,
    /// When agents were removed, by the keys of their scopes.
    removed: RwLock<HashMap<String, Time>>,
    store: Option<Store>,
    /// Where the state of live scopes is kept.
    backend: Backend,
    /// Texts of calls that have not ended yet.
    texts: Texts,
    /// Called when another node has changed something.
    reload: OnceLock<Reload>,
    /// Held while it runs.
    reading: tokio::sync::Mutex<()>,
    /// Row numbers for a server without a database.
    numbers: Numbers,
    queue: mpsc::UnboundedSender<oneshot::Sender<Result<(), String>>>,
    /// Which session an unnamed conversation belongs to.
    sessions: Sessions,
    /// Calls that wait for room in a limit.
    rooms: Rooms,
    /// Calls whose end rides with the next call of their agent.
    riders: Riders,
    /// Given when the server shuts down and its grace is over.
    pub closing: Arc<Stop>,
    /// Notified when so many calls wait that they should be written at once.
    full: Notify,
    outbox: Mutex<writer::Outbox>,
    outage: RwLock<Option<Outage>>,
    /// When each group of alerts may be sent again.
    pub bunches: Bunches,
    pub(crate) told_outages: ToldOutages,
    /// Notified when an alert was put into the outbox.
    pub posted: Arc<Notify>,
    /// Where calls go that are exported as telemetry.
    exports: OnceLock<Exports>,
    /// The same for lines of the log.
    lines: OnceLock<mpsc::Sender<log::LogLine>>,
    /// Calls that wait for a person.
    pub approvals: Approvals,
    /// Refused calls that a person may allow once.
    pub onces: Onces,
    /// Texts of recent calls, as evidence for an incident.
    pub recent: Recent,
    /// Tools of MCP servers as they were first seen.
    pub pins: Pins,
    /// Events for people who watch.
    pub events: Events,
    /// Counters for Prometheus.
    pub metrics: Arc<Metrics>,
}

/// The current time, for the engine.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl Warden {
    /// A warden with what the database has.
    pub async fn new(
        policies: PolicySet,
        store: Option<Store>,
        redis: Option<Redis>,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Warden>, StoreError> {
        let (queue, waiting) = mpsc::unbounded_channel();
        let numbers = Numbers::new(0);
        let backend = match (redis, &store) {
            (Some(redis), Some(store)) => {
                let seed = u64::try_from(store.number(now())).unwrap_or_default();
                let stores = Stores { redis, store: store.clone() };
                Backend::Cluster(Fleet::new(stores, &nodes::name(), seed, now()))
            }
            _ => Backend::Memory,
        };
        let sessions = Sessions::new(store.as_ref()).await?;
        let warden = Arc::new(Warden {
            configured: Arc::new(policies),
            projects: RwLock::default(),
            scopes: Mutex::new(HashMap::new()),
            swept: AtomicU64::new(0),
            strays: Mutex::default(),
            removed: RwLock::default(),
            store,
            backend,
            texts: Texts::default(),
            reload: OnceLock::new(),
            reading: tokio::sync::Mutex::default(),
            numbers,
            queue,
            full: Notify::new(),
            sessions,
            rooms: Rooms::default(),
            riders: Riders::default(),
            closing: Arc::default(),
            outbox: Mutex::default(),
            outage: RwLock::new(None),
            bunches: Bunches::default(),
            told_outages: ToldOutages::default(),
            posted: Arc::default(),
            approvals: Approvals::default(),
            onces: Onces::default(),
            recent: Recent::default(),
            pins: Pins::default(),
            exports: OnceLock::new(),
            lines: OnceLock::new(),
            events: Events::new(now().0),
            metrics,
        });
        warden.remember().await?;
        warden.project(DEFAULT_PROJECT).await?;
        tokio::spawn(writer::run(Arc::downgrade(&warden), waiting));
        Ok(warden)
    }

    /// Why calls of a chain are refused, if they are: the database does not take writes, or the
    /// state of the chain is unknown.
    pub fn closed(&self, chain: &Chain) -> Option<&'static str> {
        if chain.policies().session.fail_mode != FailMode::Closed {
            return None;
        }
        if self.backend.unreachable().is_some() {
            return Some("deadstop cannot reach Redis, and the policy's fail_mode says closed");
        }
        let unsure =
            self.outage.read().is_some() || chain.scopes().iter().any(|s| s.is_provisional());
        unsure.then_some("deadstop cannot use its database, and the policy's fail_mode says closed")
    }

    /// The time that decisions use.
    pub fn time(&self) -> Time {
        self.backend.now()
    }

    /// This node of the cluster, if there is one.
    fn node(&self) -> Option<&Arc<Node>> {
        self.backend.node()
    }

    /// Why Redis is unreachable, and since when; `None` if it answers, or without a cluster.
    pub fn unreachable(&self) -> Option<(Time, String)> {
        self.backend.unreachable()
    }

    /// A unique row number.
    pub fn number(&self) -> i64 {
        match &self.store {
            Some(store) => store.number(now()),
            None => self.numbers.next(now()),
        }
    }

    fn mark(&self, scope: &Arc<Scope>) {
        if scope.mark_dirty() {
            self.outbox.lock().changed.push(Arc::clone(scope));
        }
    }

    /// Waits until the kills of a chain are on disk; returns at once if there are none to write.
    pub async fn settle_kills(&self, chain: &Chain) {
        if !chain.scopes().iter().any(|scope| scope.kill_unwritten()) {
            return;
        }
        if let Err(error) = self.flush().await {
            tracing::error!("a stop is in force, but could not be stored: {error}");
        }
    }

    /// Waits until an incident is on disk.
    pub async fn settle_incident(&self) {
        if let Err(error) = self.flush().await {
            tracing::error!("an incident could not be written: {error}");
        }
    }

    /// Waits until everything decided so far is on disk.
    pub async fn flush(&self) -> Result<(), String> {
        let (done, written) = oneshot::channel();
        self.queue.send(done).map_err(|_| "the writer has stopped".to_owned())?;
        written.await.map_err(|_| "the writer has stopped".to_owned())?
    }

    /// Every scope of a project in memory.
    pub fn scopes(&self, project: &str) -> Vec<Arc<Scope>> {
        let scopes = self.scopes.lock();
        scopes.values().filter(|scope| scope.id.project == project).cloned().collect()
    }

    /// The database, if there is one.
    pub fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }
}

#[cfg(test)]
mod tests;
