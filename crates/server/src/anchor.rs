//! The heads of the audit, kept outside the database.
//!
//! A chain of hashes shows what was changed in its middle. Cut at its end, with the head moved back,
//! it would still look whole. So the last entry of each project is also noted in a file in another
//! folder, sealed with a key that the database does not hold, written to the log, and sent with
//! every alert. A chain that does not hold the entry that was noted was cut or replaced.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use deadstop_store::{Head, Store, StoreError};
use deadstop_warden::Warden;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::api::auth::key;
use crate::operator::{OperatorToken, TokenError};

/// How often the heads are looked at.
const EVERY: Duration = Duration::from_secs(1);
/// The file with the key.
const KEY: &str = "audit-key";

/// Where the heads of one database are noted.
#[derive(Debug)]
pub struct Anchor {
    path: PathBuf,
    key: OperatorToken,
    noted: Mutex<BTreeMap<String, Noted>>,
}

/// One head as it is noted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    seq: i64,
    hash: String,
    /// Made with the key: a head that was noted by another hand shows.
    seal: String,
}

impl Anchor {
    /// The anchor of a database, in a folder that is not the database's. The key is made if there is
    /// none.
    pub fn open(folder: &Path, database: &str) -> Result<Anchor, TokenError> {
        let key = OperatorToken::read_or_make(&folder.join(KEY))?;
        let name: String = key::digest(database).chars().take(16).collect();
        let path = folder.join(format!("audit-heads-{name}.json"));
        let noted = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        Ok(Anchor { path, key, noted: Mutex::new(noted.unwrap_or_default()) })
    }

    /// The head that was noted for a project: what was noted, and whether its seal is ours.
    fn noted(&self, project: &str) -> Option<(Head, bool)> {
        let noted = self.noted.lock().get(project).cloned()?;
        let sealed = key::same(&noted.seal, &self.seal(project, noted.seq, &noted.hash));
        let head = Head { project: project.to_owned(), seq: noted.seq, hash: noted.hash };
        Some((head, sealed))
    }

    fn seal(&self, project: &str, seq: i64, hash: &str) -> String {
        key::derived(&format!("audit {seq} {hash} {project}"), self.key.reveal())
    }

    /// Why a chain that looks whole is not the one that was noted; `None` if it is.
    pub(crate) async fn fault(
        &self,
        store: &Store,
        project: &str,
    ) -> Result<Option<&'static str>, StoreError> {
        Ok(match self.noted(project) {
            None => None,
            Some((_, false)) => Some("the head that is noted outside the database was changed"),
            Some((head, true)) if store.holds_head(&head).await? => None,
            Some(_) => Some("the chain does not hold the entry that is noted outside the database"),
        })
    }

    /// Notes heads that go on from what is noted. One that does not is told and left as it is.
    async fn note(&self, store: &Store) -> Result<(), StoreError> {
        let mut changed = false;
        for head in store.audit_heads().await? {
            let before = self.noted(&head.project);
            if before.as_ref().is_some_and(|(noted, _)| *noted == head) {
                continue;
            }
            if let Some((noted, sealed)) = before
                && (!sealed || noted.seq > head.seq || !store.holds_head(&noted).await?)
            {
                tracing::error!(
                    "the audit of project {} was cut or replaced: entry {} is noted outside the \
                     database, and is not in it",
                    head.project,
                    noted.seq
                );
                continue;
            }
            tracing::info!("audit head of project {}: {}:{}", head.project, head.seq, head.hash);
            let seal = self.seal(&head.project, head.seq, &head.hash);
            let noted = Noted { seq: head.seq, hash: head.hash, seal };
            self.noted.lock().insert(head.project, noted);
            changed = true;
        }
        if changed && let Err(error) = self.write() {
            tracing::warn!("cannot note the audit's heads in {}: {error}", self.path.display());
        }
        Ok(())
    }

    /// Replaces the file as a whole.
    fn write(&self) -> std::io::Result<()> {
        let text = serde_json::to_vec(&*self.noted.lock())?;
        let draft = self.path.with_extension("new");
        let mut options = std::fs::File::options();
        let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&draft)?;
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&draft, &self.path)
    }
}

/// Notes heads until the warden is gone.
pub(crate) async fn run(anchor: Arc<Anchor>, warden: Weak<Warden>) {
    loop {
        {
            let Some(warden) = warden.upgrade() else { return };
            let Some(store) = warden.store() else { return };
            if let Err(error) = anchor.note(store).await {
                tracing::debug!("the audit's heads could not be read: {error}");
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}
