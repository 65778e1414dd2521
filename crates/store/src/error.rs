//! Why the store could not do what it was asked, and whose fault that is.

use thiserror::Error;

/// Why the store could not do what it was asked.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The database cannot be used at all.
    #[error("cannot open the database {path}: {source}")]
    Open {
        /// Where it is, without any password.
        path: String,
        /// What the database said.
        source: sqlx::Error,
    },
    /// It was written by a newer version, or a migration failed.
    #[error("cannot bring the database up to date: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// A read or write failed.
    #[error("the database failed: {0}")]
    Failed(sqlx::Error),
    /// Another writer was faster: the version to be replaced is no longer the current one.
    #[error("it was changed meanwhile and is now at version {current}; read it again and retry")]
    Conflict {
        /// The version that is there now.
        current: i64,
    },
    /// A cursor that no list has given out.
    #[error("the cursor is not one of this list; start again without it")]
    Cursor,
    /// Something of that name is there already.
    #[error("{0} exists already; choose another name")]
    Exists(&'static str),
    /// A value in the database is not what this version writes there.
    #[error("cannot read {0} from the database; it may be from a newer version")]
    Unreadable(String),
}

/// A failure of the database itself, and not of a wrong query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// It does not answer.
    Away,
    /// There is no room left.
    Full,
    /// It can be read but not written.
    ReadOnly,
    /// Another process holds the lock for too long.
    Busy,
    /// The file is damaged, or the disk is.
    Broken,
}

impl Trouble {
    /// The word for it, for health and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Trouble::Away => "away",
            Trouble::Full => "full",
            Trouble::ReadOnly => "read_only",
            Trouble::Busy => "busy",
            Trouble::Broken => "broken",
        }
    }
}

impl StoreError {
    /// For a caller whose wait timed out.
    pub fn late() -> StoreError {
        StoreError::Failed(sqlx::Error::PoolTimedOut)
    }

    pub(crate) fn unreadable(what: &str) -> StoreError {
        StoreError::Unreadable(what.to_owned())
    }

    /// The failure of the database, if this is one: then a retry may work later, and until then the
    /// policy's fail mode applies.
    pub fn trouble(&self) -> Option<Trouble> {
        match self {
            StoreError::Failed(error) | StoreError::Open { source: error, .. } => trouble(error),
            StoreError::Migrate(sqlx::migrate::MigrateError::Execute(error)) => trouble(error),
            StoreError::Migrate(_)
            | StoreError::Conflict { .. }
            | StoreError::Cursor
            | StoreError::Exists(_)
            | StoreError::Unreadable(_) => None,
        }
    }

    /// Whether the database is at fault and not the question.
    pub fn is_outage(&self) -> bool {
        self.trouble().is_some()
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> StoreError {
        match error {
            sqlx::Error::ColumnDecode { index, .. } => StoreError::Unreadable(index),
            other => StoreError::Failed(other),
        }
    }
}

pub(crate) fn trouble(error: &sqlx::Error) -> Option<Trouble> {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => Some(Trouble::Away),
        sqlx::Error::Database(error) => match error.try_downcast_ref::<sqlx::sqlite::SqliteError>()
        {
            Some(_) => sqlite(error.code()?.parse().ok()?),
            None => postgres(&error.code()?),
        },
        _ => None,
    }
}

/// SQLite's extended result codes: the low byte is the kind.
fn sqlite(code: i32) -> Option<Trouble> {
    match code & 0xff {
        5 | 6 => Some(Trouble::Busy),
        8 => Some(Trouble::ReadOnly),
        10 | 11 | 26 => Some(Trouble::Broken),
        13 => Some(Trouble::Full),
        14 => Some(Trouble::Away),
        _ => None,
    }
}

/// PostgreSQL's error classes.
fn postgres(code: &str) -> Option<Trouble> {
    match code {
        "53100" | "53200" => Some(Trouble::Full),
        "25006" => Some(Trouble::ReadOnly),
        "40001" | "40P01" | "55P03" | "57014" | "53300" => Some(Trouble::Busy),
        "XX001" | "XX002" => Some(Trouble::Broken),
        _ if ["08", "57P", "58", "53"].iter().any(|class| code.starts_with(class)) => {
            Some(Trouble::Away)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sql;
    use crate::{Batch, Store, StoredScope};
    use deadstop_core::{ScopeKind, Time};

    #[test]
    fn codes_tell_what_is_wrong() {
        for (code, expected) in [
            ("53100", Some(Trouble::Full)),
            ("53300", Some(Trouble::Busy)),
            ("25006", Some(Trouble::ReadOnly)),
            ("40P01", Some(Trouble::Busy)),
            ("57P01", Some(Trouble::Away)),
            ("57P03", Some(Trouble::Away)),
            ("08006", Some(Trouble::Away)),
            ("58030", Some(Trouble::Away)),
            ("23505", None),
            ("42P01", None),
        ] {
            assert_eq!(postgres(code), expected, "{code}");
        }
        for (code, expected) in [
            (5, Some(Trouble::Busy)),
            (261, Some(Trouble::Busy)),
            (8, Some(Trouble::ReadOnly)),
            (1032, Some(Trouble::ReadOnly)),
            (778, Some(Trouble::Broken)),
            (13, Some(Trouble::Full)),
            (14, Some(Trouble::Away)),
            (19, None),
            (1, None),
        ] {
            assert_eq!(sqlite(code), expected, "{code}");
        }
    }

    /// A disk that takes no more, or nothing at all: the store says which, can still be read, and
    /// goes on when that is over.
    #[tokio::test]
    async fn a_database_that_takes_no_more_says_so_and_recovers() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("deadstop.db")).await.unwrap();
        let write = async |key: &str| {
            let scope = StoredScope {
                key: key.into(),
                project: "default".into(),
                number: 1,
                kind: ScopeKind::Session,
                agent: "a".into(),
                name: "s".into(),
                killed: true,
                updated: Time(1),
                version: 0,
                turns: 0,
                state: vec![0; 400_000],
            };
            store.write(&Batch { scopes: vec![scope], ..Batch::default() }).await
        };
        for (fault, cure, expected) in [
            ("PRAGMA max_page_count = 1", "PRAGMA max_page_count = 1000000", Trouble::Full),
            ("PRAGMA query_only = on", "PRAGMA query_only = off", Trouble::ReadOnly),
        ] {
            store.backend.run(sql(fault)).await.unwrap();
            let error = write(fault).await.unwrap_err();
            assert_eq!(error.trouble(), Some(expected), "{error}");
            store.health().await.unwrap();
            assert_eq!(store.scope(fault).await.unwrap(), None);
            store.backend.run(sql(cure)).await.unwrap();
            write(fault).await.unwrap();
            assert!(store.scope(fault).await.unwrap().is_some());
        }
    }
}
