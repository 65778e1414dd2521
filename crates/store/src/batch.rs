//! A batch: everything that is to be written together, all or nothing.

use std::collections::{BTreeMap, HashSet};

use crate::alerts::Delivery;
use crate::audit::AuditEvent;
use crate::backend::Waiting;
use crate::evidence::{Evidence, Payload};
use crate::{
    Store, StoreError, StoredAgent, StoredCall, StoredIncident, StoredScope, StoredSession, agents,
    alerts, audit, calls, costs, evidence, incidents, scopes, sessions,
};

/// What is to be written together. Where a row comes twice, the last one counts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// Scopes as they are now.
    pub scopes: Vec<StoredScope>,
    /// Agents as they are now.
    pub agents: Vec<StoredAgent>,
    /// Sessions as they are now.
    pub sessions: Vec<StoredSession>,
    /// Calls that were made or have ended.
    pub calls: Vec<StoredCall>,
    /// What was said in them.
    pub payloads: Vec<Payload>,
    /// New incidents, and known ones that grew; all trips of one incident count.
    pub incidents: Vec<StoredIncident>,
    /// What they are about.
    pub evidence: Vec<Evidence>,
    /// What was done, for the audit.
    pub audit: Vec<AuditEvent>,
    /// Messages for the outbox.
    pub deliveries: Vec<Delivery>,
}

impl Batch {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.rows() == 0
    }

    /// How many rows there are to write.
    pub fn rows(&self) -> usize {
        self.scopes.len()
            + self.agents.len()
            + self.sessions.len()
            + self.calls.len()
            + self.payloads.len()
            + self.incidents.len()
            + self.evidence.len()
            + self.audit.len()
            + self.deliveries.len()
    }
}

/// Whether some of the calls may have been counted before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Calls {
    New,
    PerhapsCounted,
}

impl Store {
    /// Writes a batch, all or nothing; when it returns, it lasts. The same batch may be written
    /// again, for instance when it is unknown whether the first write succeeded.
    pub async fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        // Asking for each call whether it was counted before would cost as much as writing it.
        // Calls are nearly always new, and if not that shows.
        if self.attempted(batch, Calls::New).await? {
            return Ok(());
        }
        self.attempted(batch, Calls::PerhapsCounted).await?;
        Ok(())
    }

    /// An attempt that is compiled in this crate: see [`Waiting`].
    fn attempted<'a>(&'a self, batch: &'a Batch, known: Calls) -> Waiting<'a, bool> {
        Box::pin(self.attempt(batch, known))
    }

    /// Tables and rows come in the same order on every node, so that no two wait for each other.
    async fn attempt(&self, batch: &Batch, known: Calls) -> Result<bool, StoreError> {
        let mut tx = self.backend.begin().await?;
        scopes::write(&mut tx, &last(&batch.scopes, |row| &row.key)).await?;
        agents::write(&mut tx, &last(&batch.agents, |row| (&row.project, &row.name))).await?;
        sessions::write(&mut tx, &last(&batch.sessions, |row| row.number)).await?;
        let calls = last(&batch.calls, |row| row.id);
        let counted = match known {
            Calls::New => HashSet::new(),
            Calls::PerhapsCounted => calls::ended(&mut tx, &calls).await?,
        };
        let written = calls::write(&mut tx, &calls).await?;
        if known == Calls::New && written < calls.len() as u64 {
            tx.undo().await?;
            return Ok(false);
        }
        costs::add(&mut tx, &calls, &counted).await?;
        evidence::write_payloads(&mut tx, &last(&batch.payloads, |row| row.call)).await?;
        incidents::write(&mut tx, &incidents::grown(&batch.incidents)).await?;
        let items = last(&batch.evidence, |row| (&row.incident, row.position));
        evidence::write(&mut tx, &items).await?;
        alerts::enqueue(&mut tx, &batch.deliveries).await?;
        let mut events: Vec<_> = batch.audit.iter().collect();
        events.sort_by(|a, b| a.project.cmp(&b.project));
        audit::append(&mut tx, events).await?;
        tx.commit().await?;
        Ok(true)
    }
}

/// The last row of each key, in the order of the keys.
fn last<'b, T, K: Ord>(rows: &'b [T], key: impl Fn(&'b T) -> K) -> Vec<&'b T> {
    if rows.is_sorted_by(|a, b| key(a) < key(b)) {
        return rows.iter().collect();
    }
    let by_key: BTreeMap<K, &T> = rows.iter().map(|row| (key(row), row)).collect();
    by_key.into_values().collect()
}
