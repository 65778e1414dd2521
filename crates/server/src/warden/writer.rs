//! Writes what has changed, in the background and on demand.
//!
//! One task, so that a scope's older state can never overwrite a newer one.

use std::sync::Weak;
use std::time::Duration;

use deadstop_store::Batch;
use tokio::sync::{mpsc, oneshot};

use super::Warden;

/// How often changes are written when nobody waits for them.
const EVERY: Duration = Duration::from_millis(500);

type Waiting = oneshot::Sender<Result<(), String>>;

/// Runs until the warden is gone.
pub(super) async fn run(warden: Weak<Warden>, mut waiting: mpsc::UnboundedReceiver<Waiting>) {
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let mut asked = Vec::new();
        tokio::select! {
            _ = tick.tick() => {}
            first = waiting.recv() => match first {
                Some(first) => asked.push(first),
                None => return,
            },
        }
        while let Ok(more) = waiting.try_recv() {
            asked.push(more);
        }
        let Some(warden) = warden.upgrade() else { return };
        let written = warden.write().await;
        for ask in asked {
            // Whoever asked may have gone away meanwhile.
            let _ = ask.send(written.clone());
        }
    }
}

impl Warden {
    async fn write(&self) -> Result<(), String> {
        let Some(store) = &self.store else { return Ok(()) };
        let changed = std::mem::take(&mut *self.dirty.lock());
        let incidents = std::mem::take(&mut *self.incidents.lock());
        let audit = std::mem::take(&mut *self.audit.lock());
        if changed.is_empty() && incidents.is_empty() && audit.is_empty() {
            return Ok(());
        }
        let scopes: Vec<_> = changed.iter().map(|scope| scope.to_stored()).collect();
        let batch = Batch { scopes, incidents, audit, ..Batch::default() };
        let written = store.write(&batch).await;
        if written.is_ok() {
            changed.iter().zip(&batch.scopes).for_each(|(scope, stored)| scope.written(stored));
        }
        if let Err(error) = &written {
            tracing::error!("{error}");
            // Nothing is lost: it is tried again with the next round.
            for scope in &changed {
                self.mark(scope);
            }
            self.incidents.lock().splice(0..0, batch.incidents);
            self.audit.lock().splice(0..0, batch.audit);
        }
        written.map_err(|error| error.to_string())
    }
}
