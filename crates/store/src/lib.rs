//! What lasts: scopes with their kills and charges, agents, sessions, calls, incidents and their
//! evidence, policies, keys, alerts and the audit, in SQLite or PostgreSQL.
//!
//! Nothing here decides anything. A write that was acknowledged has reached the disk. Every row
//! belongs to a project, and every query names the project: it never finds another project's rows.

mod agents;
mod alerts;
mod audit;
mod backend;
mod batch;
mod calls;
mod costs;
mod error;
mod evidence;
mod incidents;
mod keys;
mod look;
mod number;
mod page;
mod policies;
mod reach;
mod retention;
mod scopes;
mod sessions;
mod settings;
mod speed;
mod tools;
mod workflow;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use deadstop_core::Time;

use backend::{Backend, Query, sql};

pub use agents::{AgentFilter, CANARY, Counters, RemovedAgent, StoredAgent, StoredProject};
pub use alerts::{AlertTarget, Attempt, Delivery, DeliveryFilter, DeliveryState, StoredDelivery};
pub use audit::{AuditEntry, AuditEvent, AuditFilter, Head, Verified};
pub use batch::Batch;
pub use calls::{CallFilter, CallKind, ListedCall, StoredCall};
pub use costs::{CostBy, CostFilter, CostLine};
pub use costs::{SpendBy, SpendPoint, SpendStep};
pub use error::{StoreError, Trouble};
pub use evidence::{Body, Evidence, Exchange, Payload};
pub use incidents::{
    Acknowledged, IncidentFilter, IncidentGroup, MOST_CALLS, StoredIncident, StoredRung,
};
pub use keys::{KeyCount, Role, StoredKey, StoredLogin};
pub use look::{Look, look};
pub use number::Numbers;
pub use page::{Order, Page, Paging, Period};
pub use policies::{PolicyChange, PolicyVersion, PreventionConfig, PreventionRow};
pub use retention::Kept;
pub use scopes::StoredScope;
pub use sessions::{SessionFilter, SessionState, StoredSession};
pub use settings::Setting;
pub use speed::{ActivityPoint, Speed, SpeedBy, SpeedFilter, Took};
pub use tools::{Listing, StoredTool};
pub use workflow::{
    Act, Fingerprint, IncidentState, Mute, Resolution, Resolved, StatesWanted, Strip,
};

/// How long the database may take to say that it is there.
const PROBE: Duration = Duration::from_secs(2);

/// The database. Clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    backend: Backend,
    numbers: Arc<Numbers>,
}

impl Store {
    /// Opens a SQLite file, making it if there is none, and brings it up to date.
    pub async fn open(path: &Path) -> Result<Store, StoreError> {
        Store::new(Backend::sqlite(path).await?).await
    }

    /// Opens what an address names: `postgres://…`, or a SQLite file as `sqlite:path` or plainly by
    /// its path.
    pub async fn connect(address: &str) -> Result<Store, StoreError> {
        if ["postgres://", "postgresql://"].iter().any(|scheme| address.starts_with(scheme)) {
            return Store::new(Backend::postgres(address).await?).await;
        }
        let path = address.strip_prefix("sqlite:").unwrap_or(address);
        Store::open(Path::new(path.strip_prefix("//").unwrap_or(path))).await
    }

    /// Every start gets a name of its own for the numbers that it makes.
    async fn new(backend: Backend) -> Result<Store, StoreError> {
        let query = sql("INSERT INTO counters (name, value) VALUES ('node', 1) \
             ON CONFLICT (name) DO UPDATE SET value = counters.value + 1 RETURNING value");
        let node = match backend.change(query).await?.first() {
            Some(row) => row.unsigned("value")?,
            None => 0,
        };
        Ok(Store { backend, numbers: Arc::new(Numbers::new(node)) })
    }

    /// A number that no other node makes: for scopes, calls, targets, deliveries, audit events.
    pub fn number(&self, now: Time) -> i64 {
        self.numbers.next(now)
    }

    /// Which database it is: `sqlite` or `postgres`.
    pub fn kind(&self) -> &'static str {
        match self.backend {
            Backend::Sqlite { .. } => "sqlite",
            Backend::Postgres(_) => "postgres",
        }
    }

    /// Whether the database answers at all, cheaply. Whether it can be written to is told by the
    /// writes.
    pub async fn health(&self) -> Result<(), StoreError> {
        let asked = self.backend.row(sql("SELECT 1 AS one"));
        match tokio::time::timeout(PROBE, asked).await {
            Ok(answered) => answered.map(|_| ()),
            Err(_) => Err(StoreError::late()),
        }
    }

    /// How many bytes the database takes.
    pub async fn size(&self) -> Result<u64, StoreError> {
        let query = sql(match self.backend {
            Backend::Sqlite { .. } => {
                "SELECT page_count * page_size AS size \
                 FROM pragma_page_count(), pragma_page_size()"
            }
            Backend::Postgres(_) => "SELECT pg_database_size(current_database()) AS size",
        });
        self.backend.row(query).await?.map_or(Ok(0), |row| row.unsigned("size"))
    }

    /// Waits for the last write and lets the database go.
    pub async fn close(&self) {
        self.backend.close().await;
    }

    /// Runs a change, and writes its audit entry along with it if anything was changed.
    async fn change(
        &self,
        query: Query<'_>,
        audit: Option<&AuditEvent>,
    ) -> Result<u64, StoreError> {
        let Some(event) = audit else { return self.backend.run(query).await };
        let mut tx = self.backend.begin().await?;
        let changed = tx.run(query).await?;
        if changed == 0 {
            tx.undo().await?;
            return Ok(0);
        }
        audit::append(&mut tx, [event]).await?;
        tx.commit().await?;
        Ok(changed)
    }
}
