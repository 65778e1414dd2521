//! Delivers the alerts that wait in the outbox: a message stays there until it was delivered or given
//! up.

use std::sync::{Arc, Weak};
use std::time::Duration;

use deadstop_alerts::{Message, Sender, Settings, Target, backoff};
use deadstop_core::Time;
use deadstop_store::{Attempt, Delivery, StoredDelivery};
use deadstop_warden::{Warden, now};
use tokio::sync::Notify;

/// How often the outbox is looked into when no one says that something is in it.
const LOOK: Duration = Duration::from_secs(1);
/// How long a message is ours once we have taken it.
const LEASE_MS: u64 = 120_000;
/// Messages that are on their way at a time.
const AT_ONCE: u32 = 16;

/// Sends what is in the outbox, until the warden is gone.
pub(crate) struct Courier {
    pub(crate) sender: Arc<Sender>,
    warden: Weak<Warden>,
    /// Told when something is in the outbox.
    pub(crate) waiting: Arc<Notify>,
}

impl Courier {
    pub(crate) fn new(warden: &Arc<Warden>, settings: &Settings) -> Result<Courier, String> {
        let sender = Sender::new(settings).map_err(|error| error.to_string())?;
        let (warden, waiting) = (Arc::downgrade(warden), Arc::clone(&warden.posted));
        Ok(Courier { sender: Arc::new(sender), warden, waiting })
    }

    pub(crate) async fn run(self) {
        loop {
            let _ = tokio::time::timeout(LOOK, self.waiting.notified()).await;
            let Some(warden) = self.warden.upgrade() else { return };
            while self.round(&warden).await > 0 {}
        }
    }

    /// Sends what is due; how much that was.
    async fn round(&self, warden: &Arc<Warden>) -> usize {
        let Some(store) = warden.store() else { return 0 };
        let at = now();
        let taken = store.claim_deliveries(at, Time(at.0 + LEASE_MS), AT_ONCE).await;
        // A store that does not answer is the writer's to tell.
        let taken = taken.unwrap_or_default();
        let count = taken.len();
        let sent = taken.into_iter().map(|delivery| self.send(warden, delivery));
        futures_util::future::join_all(sent).await;
        count
    }

    async fn send(&self, warden: &Arc<Warden>, taken: StoredDelivery) {
        let Some(store) = warden.store() else { return };
        let Delivery { id, project, target, body, .. } = taken.delivery;
        let (attempt, answer) =
            match self.attempt(warden, &project, target, &body, taken.times, taken.last).await {
                Ok(answer) => (Attempt::Delivered, answer),
                Err(Undelivered::Never(why)) => (Attempt::Failed, why),
                Err(Undelivered::NotYet(why, after)) => {
                    let failed = u32::try_from(taken.attempts).unwrap_or(u32::MAX);
                    let jitter =
                        f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
                    match backoff(failed, jitter) {
                        Some(wait) => {
                            let wait = wait.0.max(after);
                            (Attempt::Again { due: Time(now().0 + wait) }, why)
                        }
                        None => (Attempt::Failed, why),
                    }
                }
            };
        match attempt {
            Attempt::Delivered => warden.metrics.delivered(),
            Attempt::Again { .. } | Attempt::Failed => warden.metrics.delivery_failed(),
        }
        // A receiver may answer with anything, also with what it was sent to log in.
        let answer = warden.redacted(&project, &answer);
        if let Err(error) = store.finish_delivery(id, attempt, &answer, now()).await {
            // It will be sent again: at least once is the promise.
            tracing::warn!("cannot note how an alert ended: {error}");
        }
    }

    async fn attempt(
        &self,
        warden: &Arc<Warden>,
        project: &str,
        target: i64,
        body: &str,
        times: u64,
        last: Time,
    ) -> Result<String, Undelivered> {
        let never = |why: &str| Undelivered::Never(why.to_owned());
        let project = warden.project(project).await;
        let project = project.map_err(|error| Undelivered::NotYet(error.to_string(), 0))?;
        let targets = Arc::clone(&project.targets.read());
        let found = targets.iter().find(|known| known.id == target);
        let found = found.ok_or_else(|| never("the target was deleted"))?;
        let target: Target = serde_json::from_str(&found.settings)
            .map_err(|_| never("the target cannot be read; save it again"))?;
        let mut message: Message =
            serde_json::from_str(body).map_err(|_| never("the message cannot be read"))?;
        message.count = times;
        message.last_seen = message.last_seen.max(last);
        message.audit_head = head(warden, &project.name).await;
        match self.sender.deliver(&target, &message).await {
            Ok(receipt) => Ok(format!("{} {}", receipt.status, receipt.reply)),
            Err(error) if error.retry() => {
                let after = error
                    .retry_after()
                    .map_or(0, |wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
                Err(Undelivered::NotYet(error.to_string(), after))
            }
            Err(error) => Err(Undelivered::Never(error.to_string())),
        }
    }
}

/// The head of a project's audit, so that every receiver has one that the database cannot change.
async fn head(warden: &Warden, project: &str) -> Option<String> {
    let heads = warden.store()?.audit_heads().await.ok()?;
    let head = heads.into_iter().find(|head| head.project == project)?;
    Some(format!("{}:{}", head.seq, head.hash))
}

/// Why a message did not arrive.
enum Undelivered {
    /// And never will.
    Never(String),
    /// And may later, after so many milliseconds.
    NotYet(String, u64),
}
