//! How long things are kept, and that they go when their time is over: a little at a time, in the
//! background.

use std::sync::Weak;
use std::time::Duration;

use deadstop_core::Time;
use deadstop_store::Kept;

use deadstop_warden::{Project, Warden, now};

/// How often old rows are deleted.
const EVERY: Duration = Duration::from_secs(600);
/// Rows that are deleted in one go.
const PIECE: u32 = 1000;
/// A pause between two pieces, so that other writers get their turn.
const PAUSE: Duration = Duration::from_millis(20);
const DAY_MS: u64 = 24 * 3600 * 1000;

/// Runs until the warden is gone.
pub(crate) async fn run(warden: Weak<Warden>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(warden) = warden.upgrade() else { return };
        for project in warden.projects() {
            for kept in Kept::ALL {
                prune(&warden, &project, kept).await;
            }
        }
    }
}

async fn prune(warden: &Warden, project: &Project, kept: Kept) {
    let Some(store) = warden.store() else { return };
    let Some(days) = project.settings.read().retention.days(kept) else { return };
    let before = Time(now().0.saturating_sub(u64::from(days) * DAY_MS));
    loop {
        match store.prune(&project.name, kept, before, PIECE).await {
            Ok(deleted) if deleted < u64::from(PIECE) => return,
            Ok(_) => tokio::time::sleep(PAUSE).await,
            Err(error) => {
                tracing::warn!("old rows could not be deleted: {error}");
                return;
            }
        }
    }
}
