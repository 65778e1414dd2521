//! Alerts: where they go, and the outbox of those that are on their way.
//!
//! A message is in the outbox before whatever it tells of is acknowledged, and stays until it was
//! delivered or given up: at least once, over crashes.

use deadstop_core::Time;

use crate::agents::words;
use crate::audit::{self, AuditEvent};
use crate::backend::{Row, Tx, sql};
use crate::number::Numbers;
use crate::page::{Page, Paging, Period};
use crate::{Store, StoreError};

/// Where alerts go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertTarget {
    /// Its id, a number of the node.
    pub id: i64,
    /// Its project.
    pub project: String,
    /// The agent it is for; nothing for all of the project.
    pub agent: Option<String>,
    /// `webhook`, `slack`, `email`.
    pub kind: String,
    /// What people call it.
    pub name: String,
    /// Whether it is in use.
    pub active: bool,
    /// What it wants to hear of.
    pub events: Vec<String>,
    /// Its address, secret and the like, as JSON.
    pub settings: String,
    /// When it was made.
    pub made: Time,
    /// When it was last changed.
    pub changed: Time,
}

/// A message for a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its id, a number of the node: the same at every attempt.
    pub id: i64,
    /// Its project.
    pub project: String,
    /// The target.
    pub target: i64,
    /// What it tells of.
    pub event: String,
    /// The agent it is about.
    pub agent: Option<String>,
    /// The session it is about.
    pub session: Option<String>,
    /// The incident it is about.
    pub incident: Option<String>,
    /// Unsent messages of one bunch to one target are merged into one message with a count. Empty
    /// for a message that is never merged.
    pub bunch: String,
    /// Whether it is left out if its target has a message about its incident already.
    pub once: bool,
    /// The message, as JSON.
    pub body: String,
    /// When it was made.
    pub at: Time,
    /// Not to be sent before. A short delay merges a storm into one message.
    pub due: Time,
}

/// How a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliveryState {
    /// To be sent, perhaps again.
    Waiting,
    /// Taken by the target.
    Delivered,
    /// Given up.
    Failed,
}

impl DeliveryState {
    /// Every state.
    pub const ALL: [DeliveryState; 3] =
        [DeliveryState::Waiting, DeliveryState::Delivered, DeliveryState::Failed];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            DeliveryState::Waiting => "waiting",
            DeliveryState::Delivered => "delivered",
            DeliveryState::Failed => "failed",
        }
    }

    /// The state that a word means.
    pub fn named(name: &str) -> Option<DeliveryState> {
        DeliveryState::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// A delivery as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDelivery {
    /// The message, with when it is due next.
    pub delivery: Delivery,
    /// How many messages have become this one.
    pub times: u64,
    /// When the last of them was made.
    pub last: Time,
    /// How often it was taken to be sent.
    pub attempts: u64,
    /// How it stands.
    pub state: DeliveryState,
    /// What the target, or the way to it, said last.
    pub answer: Option<String>,
    /// When it was delivered or given up.
    pub done: Option<Time>,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// It was taken.
    Delivered,
    /// It is to be tried again.
    Again {
        /// When.
        due: Time,
    },
    /// It is given up.
    Failed,
}

/// Which deliveries are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeliveryFilter {
    /// Only those to this target.
    pub target: Option<i64>,
    /// Only those about this agent.
    pub agent: Option<String>,
    /// Only those about this incident.
    pub incident: Option<String>,
    /// Only those that stand so.
    pub state: Option<DeliveryState>,
    /// Only those made in this span.
    pub period: Period,
}

impl Store {
    /// Keeps a new target.
    pub async fn create_target(
        &self,
        target: &AlertTarget,
        audit: Option<&AuditEvent>,
    ) -> Result<(), StoreError> {
        let query = sql("INSERT INTO alert_targets (id, project, agent, kind, name, active, \
             events, settings, made_ms, changed_ms) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (id) DO NOTHING");
        let query = query
            .bind(target.id)
            .bind(&target.project)
            .bind(&target.agent)
            .bind(&target.kind)
            .bind(&target.name)
            .bind(target.active)
            .bind(words(&target.events))
            .bind(&target.settings)
            .bind(target.made)
            .bind(target.changed);
        match self.change(query, audit).await? {
            0 => Err(StoreError::Exists("an alert target of this id")),
            _ => Ok(()),
        }
    }

    /// Every target of every project.
    pub async fn all_targets(&self) -> Result<Vec<AlertTarget>, StoreError> {
        let query = sql("SELECT * FROM alert_targets ORDER BY project, id");
        self.backend.rows(query).await?.iter().map(read_target).collect()
    }

    /// The targets of a project, oldest first.
    pub async fn targets(&self, project: &str) -> Result<Vec<AlertTarget>, StoreError> {
        let query = sql("SELECT * FROM alert_targets WHERE project = $1 ORDER BY id");
        self.backend.rows(query.bind(project)).await?.iter().map(read_target).collect()
    }

    /// One target.
    pub async fn target(&self, project: &str, id: i64) -> Result<Option<AlertTarget>, StoreError> {
        let query = sql("SELECT * FROM alert_targets WHERE id = $1 AND project = $2");
        let found = self.backend.row(query.bind(id).bind(project)).await?;
        found.as_ref().map(read_target).transpose()
    }

    /// Changes all of a target but its id, its project and when it was made; false if there is none.
    pub async fn update_target(
        &self,
        target: &AlertTarget,
        audit: Option<&AuditEvent>,
    ) -> Result<bool, StoreError> {
        let query = sql("UPDATE alert_targets SET agent = $3, kind = $4, name = $5, active = $6, \
             events = $7, settings = $8, changed_ms = $9 WHERE id = $1 AND project = $2");
        let query = query
            .bind(target.id)
            .bind(&target.project)
            .bind(&target.agent)
            .bind(&target.kind)
            .bind(&target.name)
            .bind(target.active)
            .bind(words(&target.events))
            .bind(&target.settings)
            .bind(target.changed);
        Ok(self.change(query, audit).await? > 0)
    }

    /// Takes a target away and gives up what waits for it; false if there is none.
    pub async fn delete_target(
        &self,
        project: &str,
        id: i64,
        at: Time,
        audit: Option<&AuditEvent>,
    ) -> Result<bool, StoreError> {
        let mut tx = self.backend.begin().await?;
        let query = sql("DELETE FROM alert_targets WHERE id = $1 AND project = $2");
        if tx.run(query.bind(id).bind(project)).await? == 0 {
            tx.undo().await?;
            return Ok(false);
        }
        let query = sql("UPDATE alert_deliveries SET state = 'failed', done_ms = $1, \
             answer = 'the target was deleted' WHERE target = $2 AND state = 'waiting'");
        tx.run(query.bind(at).bind(id)).await?;
        audit::append(&mut tx, audit).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Puts messages into the outbox.
    pub async fn enqueue(&self, deliveries: &[Delivery]) -> Result<(), StoreError> {
        let mut tx = self.backend.begin().await?;
        enqueue(&mut tx, deliveries).await?;
        tx.commit().await
    }

    /// Claims deliveries that are due: no other node gets them before `until`.
    pub async fn claim_deliveries(
        &self,
        now: Time,
        until: Time,
        most: u32,
    ) -> Result<Vec<StoredDelivery>, StoreError> {
        // The second condition is for another node that has waited for our rows: they are not due
        // any more.
        let query = sql("UPDATE alert_deliveries SET due_ms = $2, attempts = attempts + 1 \
             WHERE id IN (SELECT id FROM alert_deliveries WHERE state = 'waiting' \
             AND due_ms <= $1 ORDER BY due_ms, id LIMIT $3) \
             AND state = 'waiting' AND due_ms <= $1 RETURNING *");
        let found = self.backend.change(query.bind(now).bind(until).bind(most)).await?;
        let mut taken = found.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        taken.sort_by_key(|taken| taken.delivery.id);
        Ok(taken)
    }

    /// Notes how an attempt ended; false if it had been finished before.
    pub async fn finish_delivery(
        &self,
        id: i64,
        attempt: Attempt,
        answer: &str,
        at: Time,
    ) -> Result<bool, StoreError> {
        let (state, due, done) = match attempt {
            Attempt::Delivered => (DeliveryState::Delivered, None, Some(at)),
            Attempt::Again { due } => (DeliveryState::Waiting, Some(due), None),
            Attempt::Failed => (DeliveryState::Failed, None, Some(at)),
        };
        let query = sql("UPDATE alert_deliveries SET state = $1, due_ms = coalesce($2, due_ms), \
             answer = $3, done_ms = $4 WHERE id = $5 AND state = 'waiting'");
        let query = query.bind(state.name()).bind(due).bind(answer).bind(done).bind(id);
        Ok(self.backend.run(query).await? > 0)
    }

    /// When the next message is due, if any waits.
    pub async fn next_due(&self) -> Result<Option<Time>, StoreError> {
        let query = sql("SELECT MIN(due_ms) AS due FROM alert_deliveries WHERE state = 'waiting'");
        let Some(row) = self.backend.row(query).await? else { return Ok(None) };
        Ok(row.maybe_unsigned("due")?.map(Time))
    }

    /// The log of deliveries, the newest first.
    pub async fn deliveries(
        &self,
        project: &str,
        filter: &DeliveryFilter,
        paging: &Paging,
    ) -> Result<Page<StoredDelivery>, StoreError> {
        let query = sql("SELECT * FROM alert_deliveries")
            .with(" WHERE project = ", project)
            .with_some(" AND target = ", filter.target)
            .with_some(" AND agent = ", filter.agent.as_ref())
            .with_some(" AND incident = ", filter.incident.as_ref())
            .with_some(" AND state = ", filter.state.map(DeliveryState::name))
            .with_some(" AND id >= ", filter.period.from.map(Numbers::first))
            .with_some(" AND id < ", filter.period.to.map(Numbers::first))
            .with_some(" AND id < ", paging.number()?)
            .with(" ORDER BY id DESC LIMIT ", paging.rows());
        let found = self.backend.rows(query).await?;
        let items = found.iter().map(read).collect::<Result<_, _>>()?;
        Ok(paging.page(items, |item: &StoredDelivery| item.delivery.id.to_string()))
    }
}

/// Puts messages into the outbox: those of a bunch that has not been taken yet are added to it.
pub(crate) async fn enqueue(tx: &mut Tx, deliveries: &[Delivery]) -> Result<(), StoreError> {
    for delivery in deliveries {
        if delivery.once {
            let query = sql("SELECT id FROM alert_deliveries WHERE target = $1 AND incident = $2");
            let query = query.bind(delivery.target).bind(&delivery.incident);
            if tx.row(query).await?.is_some() {
                continue;
            }
        }
        if !delivery.bunch.is_empty() {
            let query = sql("UPDATE alert_deliveries SET times = times + 1, last_ms = $1 \
                 WHERE id = (SELECT MAX(id) FROM alert_deliveries WHERE target = $2 \
                 AND bunch = $3 AND state = 'waiting' AND attempts = 0 AND id < $4) \
                 AND attempts = 0");
            let query = query
                .bind(delivery.at)
                .bind(delivery.target)
                .bind(&delivery.bunch)
                .bind(delivery.id);
            if tx.run(query).await? > 0 {
                continue;
            }
        }
        let query = sql("INSERT INTO alert_deliveries (id, project, target, event, agent, \
             session, incident, bunch, body, times, made_ms, last_ms, due_ms, attempts, state) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 1, $10, $10, $11, 0, 'waiting') \
             ON CONFLICT (id) DO NOTHING");
        let query = query
            .bind(delivery.id)
            .bind(&delivery.project)
            .bind(delivery.target)
            .bind(&delivery.event)
            .bind(&delivery.agent)
            .bind(&delivery.session)
            .bind(&delivery.incident)
            .bind(&delivery.bunch)
            .bind(&delivery.body)
            .bind(delivery.at)
            .bind(delivery.due);
        tx.run(query).await?;
    }
    Ok(())
}

fn read_target(row: &Row) -> Result<AlertTarget, StoreError> {
    Ok(AlertTarget {
        id: row.get("id")?,
        project: row.get("project")?,
        agent: row.get("agent")?,
        kind: row.get("kind")?,
        name: row.get("name")?,
        active: row.get("active")?,
        events: row.words("events")?,
        settings: row.get("settings")?,
        made: Time(row.unsigned("made_ms")?),
        changed: Time(row.unsigned("changed_ms")?),
    })
}

fn read(row: &Row) -> Result<StoredDelivery, StoreError> {
    let state = row.get::<String>("state")?;
    Ok(StoredDelivery {
        delivery: Delivery {
            id: row.get("id")?,
            project: row.get("project")?,
            target: row.get("target")?,
            event: row.get("event")?,
            agent: row.get("agent")?,
            session: row.get("session")?,
            incident: row.get("incident")?,
            bunch: row.get("bunch")?,
            once: false,
            body: row.get("body")?,
            at: Time(row.unsigned("made_ms")?),
            due: Time(row.unsigned("due_ms")?),
        },
        times: row.unsigned("times")?,
        last: Time(row.unsigned("last_ms")?),
        attempts: row.unsigned("attempts")?,
        state: DeliveryState::named(&state).ok_or_else(|| StoreError::unreadable("state"))?,
        answer: row.get("answer")?,
        done: row.maybe_unsigned("done_ms")?.map(Time),
    })
}
