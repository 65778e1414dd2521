//! What lasts: scopes with their kills and charges, and incidents, in one SQLite file.
//!
//! Nothing here decides anything. A write that was acknowledged has reached the disk
//! (`synchronous = FULL`); the file is in WAL mode with a single writer.

use std::path::Path;

use deadstop_core::{ScopeKind, Time, Trip};
use sqlx::Row;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use thiserror::Error;

/// Why the store could not do what it was asked.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The file cannot be used at all.
    #[error("cannot open the database {path}: {source}")]
    Open {
        /// Where it is.
        path: String,
        /// What the database said.
        source: sqlx::Error,
    },
    /// The file was written by a newer version, or a migration failed.
    #[error("cannot bring the database up to date: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// A read or write failed.
    #[error("the database failed: {0}")]
    Failed(#[from] sqlx::Error),
}

/// A scope as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredScope {
    /// Its path, unique in the database.
    pub key: String,
    /// Its kind.
    pub kind: ScopeKind,
    /// The agent it belongs to; empty for a project.
    pub agent: String,
    /// What people call it.
    pub name: String,
    /// Whether it was ended.
    pub killed: bool,
    /// When it last changed.
    pub updated: Time,
    /// Its state.
    pub state: Vec<u8>,
}

/// An incident as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredIncident {
    /// Its id.
    pub id: String,
    /// When it happened.
    pub at: Time,
    /// The agent it happened to.
    pub agent: String,
    /// The session it happened in.
    pub session: String,
    /// What happened.
    pub trip: Trip,
}

/// The database.
#[derive(Debug, Clone)]
pub struct Store {
    pool: SqlitePool,
}

impl Store {
    /// Opens the file, making it if there is none, and brings it up to date.
    pub async fn open(path: &Path) -> Result<Store, StoreError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(std::time::Duration::from_secs(5));
        let opened = SqlitePoolOptions::new().max_connections(1).connect_with(options).await;
        let pool = opened
            .map_err(|source| StoreError::Open { path: path.display().to_string(), source })?;
        migrations().run(&pool).await?;
        Ok(Store { pool })
    }

    /// The scope under this key.
    pub async fn scope(&self, key: &str) -> Result<Option<StoredScope>, StoreError> {
        let found = sqlx::query("SELECT * FROM scopes WHERE key = ?")
            .bind(key)
            .fetch_optional(&self.pool)
            .await?;
        Ok(found.as_ref().map(read_scope))
    }

    /// All scopes of a kind that changed since `since`, newest first, and all that were ended.
    pub async fn scopes(
        &self,
        kind: ScopeKind,
        since: Time,
    ) -> Result<Vec<StoredScope>, StoreError> {
        let found = sqlx::query(
            "SELECT * FROM scopes WHERE kind = ? AND (updated_ms >= ? OR killed = 1) \
             ORDER BY updated_ms DESC LIMIT 100000",
        )
        .bind(kind.name())
        .bind(signed(since.0))
        .fetch_all(&self.pool)
        .await?;
        Ok(found.iter().map(read_scope).collect())
    }

    /// Writes scopes and incidents, all or none; when it returns they are on disk.
    pub async fn write(
        &self,
        scopes: &[StoredScope],
        incidents: &[StoredIncident],
    ) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        for scope in scopes {
            sqlx::query(
                "INSERT INTO scopes (key, kind, agent, name, killed, updated_ms, state) \
                 VALUES (?, ?, ?, ?, ?, ?, ?) \
                 ON CONFLICT (key) DO UPDATE SET killed = excluded.killed, \
                 updated_ms = excluded.updated_ms, state = excluded.state",
            )
            .bind(&scope.key)
            .bind(scope.kind.name())
            .bind(&scope.agent)
            .bind(&scope.name)
            .bind(i64::from(scope.killed))
            .bind(signed(scope.updated.0))
            .bind(&scope.state)
            .execute(&mut *transaction)
            .await?;
        }
        for incident in incidents {
            let trip = &incident.trip;
            sqlx::query(
                "INSERT INTO incidents \
                 (id, at_ms, agent, session, guard, reason, verdict, sentence, trip) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
            )
            .bind(&incident.id)
            .bind(signed(incident.at.0))
            .bind(&incident.agent)
            .bind(&incident.session)
            .bind(trip.guard.name())
            .bind(&trip.reason)
            .bind(trip.verdict.to_string())
            .bind(trip.explain())
            .bind(serde_json::to_string(trip).unwrap_or_default())
            .execute(&mut *transaction)
            .await?;
        }
        Ok(transaction.commit().await?)
    }

    /// The newest incidents.
    pub async fn incidents(&self, most: u32) -> Result<Vec<StoredIncident>, StoreError> {
        let found = sqlx::query("SELECT * FROM incidents ORDER BY at_ms DESC, id DESC LIMIT ?")
            .bind(i64::from(most))
            .fetch_all(&self.pool)
            .await?;
        let read = |row: &sqlx::sqlite::SqliteRow| {
            Some(StoredIncident {
                id: row.get("id"),
                at: Time(unsigned(row.get("at_ms"))),
                agent: row.get("agent"),
                session: row.get("session"),
                trip: serde_json::from_str(row.get("trip")).ok()?,
            })
        };
        Ok(found.iter().filter_map(read).collect())
    }

    /// Waits for the last write and lets the file go.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// The files under `migrations/`, in order. A file that was released is never changed again.
fn migrations() -> Migrator {
    let files = [("scopes", include_str!("../migrations/0001_scopes.sql"))];
    let migrations = files.into_iter().zip(1..).map(|((name, sql), version)| {
        let sql = sqlx::SqlSafeStr::into_sql_str(sql);
        Migration::new(version, name.into(), MigrationType::Simple, sql, false)
    });
    Migrator::with_migrations(migrations.collect())
}

fn read_scope(row: &sqlx::sqlite::SqliteRow) -> StoredScope {
    StoredScope {
        key: row.get("key"),
        kind: kind_named(row.get("kind")),
        agent: row.get("agent"),
        name: row.get("name"),
        killed: row.get::<i64, _>("killed") != 0,
        updated: Time(unsigned(row.get("updated_ms"))),
        state: row.get("state"),
    }
}

fn kind_named(name: &str) -> ScopeKind {
    let kinds = [ScopeKind::Project, ScopeKind::Agent, ScopeKind::Session];
    kinds.into_iter().find(|kind| kind.name() == name).unwrap_or(ScopeKind::Nested)
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use deadstop_core::{Call, Destruction, Link, Policy, ScopeState, ToolCall, admit};

    fn trip() -> Trip {
        let mut state = ScopeState::new(ScopeKind::Session, Time(0));
        state.kill("ada", "enough", Time(1));
        let policy = Policy::none();
        let mut chain = [Link { name: "s", state: &mut state, policy: &policy }];
        let destroys = vec![Destruction { verb: "rm".into(), target: "x".into() }];
        let call = Call::Tool(ToolCall { destroys, ..ToolCall::default() });
        admit(&mut chain, &call, Time(2)).trips.remove(0)
    }

    #[tokio::test]
    async fn what_was_written_is_there_after_opening_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deadstop.db");
        let scope = StoredScope {
            key: "default/a/s".into(),
            kind: ScopeKind::Session,
            agent: "a".into(),
            name: "s".into(),
            killed: false,
            updated: Time(5),
            state: vec![1, 2, 3],
        };
        let incident = StoredIncident {
            id: "i1".into(),
            at: Time(7),
            agent: "a".into(),
            session: "s".into(),
            trip: trip(),
        };
        let store = Store::open(&path).await.unwrap();
        store.write(std::slice::from_ref(&scope), std::slice::from_ref(&incident)).await.unwrap();
        store.close().await;

        let store = Store::open(&path).await.unwrap();
        assert_eq!(store.scope(&scope.key).await.unwrap(), Some(scope.clone()));
        assert_eq!(store.scope("default/a/other").await.unwrap(), None);
        assert_eq!(store.incidents(10).await.unwrap(), std::slice::from_ref(&incident));

        let dead = StoredScope { killed: true, state: vec![9], updated: Time(6), ..scope.clone() };
        store.write(std::slice::from_ref(&dead), &[incident]).await.unwrap();
        assert_eq!(store.scope(&scope.key).await.unwrap(), Some(dead.clone()));
        assert_eq!(store.incidents(10).await.unwrap().len(), 1);
        // Old, but dead: a kill is remembered however long ago it was.
        assert_eq!(store.scopes(ScopeKind::Session, Time(100)).await.unwrap(), [dead]);
        assert_eq!(store.scopes(ScopeKind::Agent, Time(0)).await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_file_that_is_no_database_is_a_clear_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deadstop.db");
        std::fs::write(&path, "this is not a database, it is a text of some length").unwrap();
        let error = Store::open(&path).await.unwrap_err().to_string();
        assert!(error.contains("database"), "{error}");
    }
}
