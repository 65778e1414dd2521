//! Administration on the database itself, without a server: making the first key before the server
//! is reachable, a new key for an admin who lost all keys, and verifying the audit log on a copy.
//!
//! Access to the database is the only permission needed: with it a person can change everything
//! anyway. Each change is written to the audit log.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use deadstop_protocol::llm::identity;
use deadstop_store::{AuditEvent, Role, Store, StoreError};
use futures_util::future::{BoxFuture, LocalBoxFuture};
use serde_json::Value;

use crate::api::audit;
use crate::api::auth::{DEFAULT_PROJECT, NoRandomness};
use crate::api::keys::{KeyOrder, MadeKey, made_detail};
use crate::config::Secret;
use crate::net::StartError;
use deadstop_warden::now;

/// The database inside the data folder.
const FILE: &str = "deadstop.db";

/// The file that is locked for as long as a server uses the folder.
const LOCK: &str = "deadstop.lock";

/// The file that changes when a key is made in the database without the server that uses it.
const NOTICE: &str = "deadstop.keys";

/// How old a look at that file may be: looking costs a call of the system, for every request.
/// Making a key takes this much longer, so a key counts from the moment at which its maker has it.
const LOOKED: Duration = Duration::from_millis(10);

/// Tells a running server that a key was made beside it: it looks at once, not at its next turn.
#[derive(Debug)]
pub(crate) struct Notice {
    path: PathBuf,
    seen: parking_lot::Mutex<Look>,
}

/// What the last look at the file found.
#[derive(Debug)]
struct Look {
    modified: Option<SystemTime>,
    at: Instant,
}

impl Look {
    fn at(path: &Path) -> Look {
        // The time comes first: a change after it is one for the next look.
        let at = Instant::now();
        Look { modified: modified(path), at }
    }
}

impl Notice {
    pub(crate) fn new(folder: &Path) -> Notice {
        let path = folder.join(NOTICE);
        let seen = parking_lot::Mutex::new(Look::at(&path));
        Notice { path, seen }
    }

    /// Whether the file has changed, where the last look at it is older than [`LOOKED`].
    pub(crate) fn changed(&self) -> bool {
        let mut seen = self.seen.lock();
        if seen.at.elapsed() < LOOKED {
            return false;
        }
        let found = Look::at(&self.path);
        let changed = seen.modified != found.modified;
        *seen = found;
        changed
    }
}

fn touch(path: &Path, key: &str) -> std::io::Result<()> {
    let mut options = std::fs::File::options();
    let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(path)?;
    writeln!(file, "{key}")
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|about| about.modified()).ok()
}

/// Takes a data folder for one server. A second one would decide by its own memory, and ignore what
/// was killed or spent at the first. The lock ends with the process, however that ends.
pub(crate) fn lock(folder: &Path) -> Result<std::fs::File, StartError> {
    let shown = folder.display().to_string();
    private_folder(folder)?;
    let file = std::fs::File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(folder.join(LOCK))
        .map_err(|error| StartError::Folder(shown.clone(), error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(StartError::Taken(shown)),
        Err(std::fs::TryLockError::Error(error)) => Err(StartError::Folder(shown, error)),
    }
}

/// Where a database is.
#[derive(Debug, Clone)]
pub enum DatabaseLocation {
    /// In a file in this folder.
    Folder(PathBuf),
    /// Elsewhere: `postgres://…`.
    Url(Secret),
}

/// A key that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyWanted {
    /// What people will call it.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The only agent that it may be.
    pub agent: Option<String>,
    /// The project it is for; it is made if there is none of this name.
    pub project: Option<String>,
    /// Who makes it, for the record.
    pub by: String,
}

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// There is no database there, and none is to be made.
    #[error("there is no database in {0}")]
    Missing(String),
    /// The database cannot be opened.
    #[error(transparent)]
    Open(#[from] StartError),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The order is wrong.
    #[error("{0}")]
    Wrong(String),
    /// The first key must be an admin's.
    #[error("the first key must have the role admin: after it, only an admin can create keys")]
    FirstKeyAdmin,
    /// Nothing secret can be made.
    #[error("the system has no source of randomness, so no secret can be created")]
    NoRandomness,
}

impl From<NoRandomness> for DatabaseError {
    fn from(_: NoRandomness) -> DatabaseError {
        DatabaseError::NoRandomness
    }
}

/// A database that is being opened. Boxed, so that it is compiled here and not where it is awaited.
pub type Opening<'a> = LocalBoxFuture<'a, Result<Database, DatabaseError>>;

/// A database that is open.
#[derive(Debug)]
pub struct Database {
    store: Store,
    /// Where a server that uses it looks for news.
    notice: Option<PathBuf>,
}

impl Database {
    /// Opens the database that is there.
    pub fn open(place: &DatabaseLocation) -> Opening<'_> {
        Box::pin(Database::found(place))
    }

    async fn found(place: &DatabaseLocation) -> Result<Database, DatabaseError> {
        if let DatabaseLocation::Folder(folder) = place
            && !folder.join(FILE).is_file()
        {
            return Err(DatabaseError::Missing(folder.display().to_string()));
        }
        Database::found_or_made(place).await
    }

    /// Opens the database; one that is to be a file is made if there is none.
    pub fn open_or_make(place: &DatabaseLocation) -> Opening<'_> {
        Box::pin(Database::found_or_made(place))
    }

    async fn found_or_made(place: &DatabaseLocation) -> Result<Database, DatabaseError> {
        let store = match place {
            DatabaseLocation::Folder(folder) => open(Some(folder), None).await?,
            DatabaseLocation::Url(url) => open(None, Some(url)).await?,
        };
        let missing = || DatabaseError::Missing("the place that was named".to_owned());
        let notice = match place {
            DatabaseLocation::Folder(folder) => Some(folder.join(NOTICE)),
            DatabaseLocation::Url(_) => None,
        };
        Ok(Database { store: store.ok_or_else(missing)?, notice })
    }

    /// Makes a key, and writes so into the audit. Gives what `POST /api/keys` answers: the key is in
    /// it, this once.
    pub fn create_key(&self, wanted: KeyWanted) -> BoxFuture<'_, Result<Value, DatabaseError>> {
        Box::pin(self.make_key(wanted))
    }

    async fn make_key(&self, wanted: KeyWanted) -> Result<Value, DatabaseError> {
        let project = wanted.project.as_deref().unwrap_or(DEFAULT_PROJECT);
        if identity::name(project).is_none_or(|name| name != project) {
            let problem = format!("`{project}` cannot be the name of a project");
            return Err(DatabaseError::Wrong(problem));
        }
        let order = KeyOrder { name: wanted.name, role: wanted.role.into(), agent: wanted.agent };
        if let Some(fault) = order.faults().first() {
            return Err(DatabaseError::Wrong(format!("{}: {}", fault.field, fault.detail)));
        }
        if wanted.role != Role::Admin && self.store.count_keys().await?.ever == 0 {
            return Err(DatabaseError::FirstKeyAdmin);
        }
        self.store.ensure_project(project, now()).await?;
        let (text, stored) = order.make(project, wanted.by.clone())?;
        let event = AuditEvent {
            number: self.store.number(now()),
            project: project.to_owned(),
            at: now(),
            who: wanted.by,
            action: "key.create".to_owned(),
            subject: stored.id.clone(),
            reason: "made in the database, without a server".to_owned(),
            detail: made_detail(&stored).to_string(),
        };
        self.store.create_key(&stored, Some(&event)).await?;
        if let Some(notice) = &self.notice {
            match touch(notice, &stored.id) {
                // By the time that the key is shown the server has to look again.
                Ok(()) => tokio::time::sleep(LOOKED).await,
                Err(error) => {
                    tracing::warn!("a running server hears of the key 2 s later: {error}");
                }
            }
        }
        let made = MadeKey::later(text, stored);
        Ok(serde_json::to_value(made).unwrap_or_default())
    }

    /// The agents that a first key would stop sooner or later: those that did something in the last
    /// 24 hours. None if there is a key already.
    pub fn first_key_stops(&self) -> BoxFuture<'_, Result<Vec<String>, DatabaseError>> {
        Box::pin(self.stopped_by_first_key())
    }

    async fn stopped_by_first_key(&self) -> Result<Vec<String>, DatabaseError> {
        if self.store.count_keys().await?.ever > 0 {
            return Ok(Vec::new());
        }
        let filter = deadstop_store::AgentFilter::default();
        let first = deadstop_store::Paging::first(1000);
        let found = self.store.agents(DEFAULT_PROJECT, &filter, &first).await?;
        let since = now().0.saturating_sub(24 * 60 * 60 * 1000);
        let recent = found.items.into_iter().filter(|agent| agent.used.0 >= since);
        Ok(recent.map(|agent| agent.name).collect())
    }

    /// The projects that have an audit.
    pub async fn audited_projects(&self) -> Result<Vec<String>, DatabaseError> {
        Ok(self.store.audited_projects().await?)
    }

    /// Checks a project's chain, and that it holds a head that was noted elsewhere. Gives what `GET /api/audit/verify` answers.
    pub fn verify_audit<'a>(
        &'a self,
        project: &'a str,
        since: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Value, DatabaseError>> {
        Box::pin(self.verified_audit(project, since))
    }

    async fn verified_audit(
        &self,
        project: &str,
        since: Option<&str>,
    ) -> Result<Value, DatabaseError> {
        let wrong = || DatabaseError::Wrong("a head is SEQ:HASH, as `verify` prints it".to_owned());
        let since = since.map(|text| audit::since_head(project, text).ok_or_else(wrong));
        let chain = audit::check(&self.store, project, since.transpose()?.as_ref()).await?;
        Ok(serde_json::to_value(chain).unwrap_or_default())
    }

    /// The next entries of a project's audit after a place, as `GET /api/audit/export` writes them,
    /// and the place of the last one; nothing at the end.
    pub fn audit_lines<'a>(
        &'a self,
        project: &'a str,
        after: i64,
    ) -> BoxFuture<'a, Result<Option<(String, i64)>, DatabaseError>> {
        Box::pin(async move { Ok(audit::piece(&self.store, project, after).await?) })
    }

    /// Waits for the last write and lets the database go.
    pub async fn close(self) {
        self.store.close().await;
    }
}

/// Makes a folder that only its owner can look into, unless it is there.
fn private_folder(folder: &Path) -> Result<(), StartError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| StartError::Folder(folder.display().to_string(), error))
}

/// The database at one of two places; none if neither is named.
pub(crate) async fn open(
    folder: Option<&Path>,
    url: Option<&Secret>,
) -> Result<Option<Store>, StartError> {
    if let Some(url) = url {
        return Ok(Some(Store::connect(url.reveal()).await?));
    }
    let Some(folder) = folder else { return Ok(None) };
    private_folder(folder)?;
    Ok(Some(Store::open(&folder.join(FILE)).await?))
}
