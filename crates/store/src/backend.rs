//! One interface to both databases.
//!
//! The other files write each query once: SQL that both understand, with `$1` placeholders, and
//! values of a few plain types. Text reaches a query only as a value; the SQL itself is made of
//! pieces that were written in this crate.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPool, PgPoolOptions, PgRow};
use sqlx::query::Query as Prepared;
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteRow, SqliteSynchronous,
};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection as _, Decode, Postgres, Row as _, Sqlite,
    Transaction, Type,
};

use crate::error::StoreError;
use crate::reach::{self, Asking, Reach};

/// Connections to PostgreSQL, and readers of a SQLite file.
const POSTGRES_CONNECTIONS: u32 = 8;
const SQLITE_READERS: u32 = 4;
/// How long a query waits for a free SQLite reader.
const PATIENCE: Duration = Duration::from_secs(3);
/// Rows in one statement, from many to one, so that few different statements stay prepared.
const CHUNKS: [usize; 5] = [256, 64, 16, 4, 1];

/// A question to a database, on its way. Boxed, and made by functions that are not async themselves:
/// a crate compiles all futures that it awaits, so every crate that reads a row would compile both
/// drivers once more.
pub(crate) type Waiting<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Which database it is.
#[derive(Debug, Clone)]
pub(crate) enum Backend {
    /// One file with a single writer; readers see the last commit and never wait.
    Sqlite { writer: SqlitePool, readers: SqlitePool },
    /// A server, shared by many nodes.
    Postgres(Reach),
}

/// A transaction on either. One that is dropped before its end has not happened.
pub(crate) enum Tx {
    Sqlite(Held),
    Postgres(Transaction<'static, Postgres>, Reach),
}

/// A SQLite connection inside a transaction. SQLite rolls back by itself when the disk is full, and
/// then sqlx's own count of open transactions stays wrong. So this code sends BEGIN and COMMIT
/// itself, and closes a connection whose transaction did not end.
pub(crate) struct Held {
    connection: PoolConnection<Sqlite>,
    ended: bool,
}

impl Held {
    async fn begin(writer: &SqlitePool) -> Result<Held, sqlx::Error> {
        let mut held = Held { connection: writer.acquire().await?, ended: false };
        // A transaction that becomes a writer only later may find that it cannot.
        sqlx::query("BEGIN IMMEDIATE").execute(&mut *held.connection).await?;
        Ok(held)
    }

    async fn end(mut self, how: &'static str) -> Result<(), sqlx::Error> {
        sqlx::query(how).execute(&mut *self.connection).await?;
        self.ended = true;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.ended {
            self.connection.close_on_drop();
        }
    }
}

/// A row of either.
pub(crate) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// A value for a placeholder. PostgreSQL wants to know the type of a NULL as well.
#[derive(Debug, Clone)]
pub(crate) enum Value<'q> {
    Int(Option<i64>),
    Bool(bool),
    Text(Option<Cow<'q, str>>),
    Bytes(Option<&'q [u8]>),
}

/// A statement and its values.
#[derive(Clone)]
pub(crate) struct Query<'q> {
    text: Cow<'static, str>,
    values: Vec<Value<'q>>,
}

/// A statement as it was written here.
pub(crate) fn sql<'q>(text: &'static str) -> Query<'q> {
    Query { text: Cow::Borrowed(text), values: Vec::new() }
}

impl<'q> Query<'q> {
    /// The value of the next placeholder.
    pub(crate) fn bind(mut self, value: impl Into<Value<'q>>) -> Query<'q> {
        self.values.push(value.into());
        self
    }

    /// More of the statement.
    pub(crate) fn then(mut self, text: &'static str) -> Query<'q> {
        self.text.to_mut().push_str(text);
        self
    }

    /// More of the statement, which ends in a placeholder for this value.
    pub(crate) fn with(self, text: &'static str, value: impl Into<Value<'q>>) -> Query<'q> {
        let mut query = self.then(text).bind(value);
        let number = query.values.len();
        // Writing to a string cannot fail.
        let _ = write!(query.text.to_mut(), "${number}");
        query
    }

    /// The same, if there is a value.
    pub(crate) fn with_some(
        self,
        text: &'static str,
        value: Option<impl Into<Value<'q>>>,
    ) -> Query<'q> {
        match value {
            Some(value) => self.with(text, value),
            None => self,
        }
    }
}

/// Runs a prepared statement on whichever database it is.
macro_rules! on_either {
    ($on:expr, $query:expr, $fetch:ident) => {
        match $on {
            Either::Sqlite(executor) => {
                sqlite($query).$fetch(executor).await.map(|found| found.into_either())
            }
            Either::Postgres(executor) => {
                postgres($query).$fetch(executor).await.map(|found| found.into_either())
            }
        }
    };
}

/// Runs a reading statement. If a newer node has added a column to the table since the statement
/// was prepared, it is prepared again.
macro_rules! reading {
    ($backend:expr, $query:expr, $fetch:ident) => {
        match $backend {
            Backend::Sqlite { readers, .. } => {
                sqlite($query).$fetch(readers).await.map(|found| found.into_either())
            }
            Backend::Postgres(reach) => {
                let mut connection = reach.pool.acquire().await?;
                let found = match postgres($query.clone()).$fetch(&mut *connection).await {
                    Err(error) if is_outdated(&error) => {
                        connection.clear_cached_statements().await?;
                        postgres($query).$fetch(&mut *connection).await
                    }
                    found => found,
                };
                found.map(|found| found.into_either())
            }
        }
    };
}

/// PostgreSQL's words for a statement that was prepared for other columns.
fn is_outdated(error: &sqlx::Error) -> bool {
    let told = error.as_database_error();
    told.is_some_and(|told| {
        told.code().as_deref() == Some("0A000") && told.message().contains("cached plan")
    })
}

enum Either<S, P> {
    Sqlite(S),
    Postgres(P),
}

/// A statement's result, in a form that is the same for both databases.
trait IntoEither {
    type Found;
    fn into_either(self) -> Self::Found;
}

impl IntoEither for SqliteRow {
    type Found = Row;
    fn into_either(self) -> Row {
        Row::Sqlite(self)
    }
}

impl IntoEither for PgRow {
    type Found = Row;
    fn into_either(self) -> Row {
        Row::Postgres(self)
    }
}

impl IntoEither for sqlx::sqlite::SqliteQueryResult {
    type Found = u64;
    fn into_either(self) -> u64 {
        self.rows_affected()
    }
}

impl IntoEither for sqlx::postgres::PgQueryResult {
    type Found = u64;
    fn into_either(self) -> u64 {
        self.rows_affected()
    }
}

impl<T: IntoEither> IntoEither for Vec<T> {
    type Found = Vec<T::Found>;
    fn into_either(self) -> Self::Found {
        self.into_iter().map(T::into_either).collect()
    }
}

impl<T: IntoEither> IntoEither for Option<T> {
    type Found = Option<T::Found>;
    fn into_either(self) -> Self::Found {
        self.map(T::into_either)
    }
}

/// Makes a database that only its owner can read: it holds evidence and secrets. SQLite gives the
/// files beside it the same mode. One that was made before is closed to users outside its group.
/// A failure shows when the file is opened.
fn keep_private(path: &Path) {
    let mut options = std::fs::OpenOptions::new();
    if options.create_new(true).write(true).mode(0o600).open(path).is_ok() {
        return;
    }
    for ending in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(ending);
        if let Ok(metadata) = std::fs::metadata(&file) {
            let mode = metadata.permissions().mode();
            if mode & 0o007 != 0 {
                let closed = std::fs::Permissions::from_mode(mode & 0o770);
                let _ = std::fs::set_permissions(&file, closed);
            }
        }
    }
}

impl Backend {
    /// Opens a file, making it if there is none.
    pub(crate) fn sqlite(path: &Path) -> Waiting<'_, Backend> {
        Box::pin(Backend::open(path))
    }

    async fn open(path: &Path) -> Result<Backend, StoreError> {
        let broken = |source| StoreError::Open { path: path.display().to_string(), source };
        keep_private(path);
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .pragma("journal_size_limit", "67108864")
            .pragma("temp_store", "memory")
            .pragma("cache_size", "-4000")
            .busy_timeout(Duration::from_secs(5))
            .disable_statement_logging();
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(Duration::from_secs(30))
            .test_before_acquire(false)
            .connect_with(options.clone())
            .await
            .map_err(broken)?;
        sqlite_migrations().run(&writer).await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(SQLITE_READERS)
            .acquire_timeout(PATIENCE)
            .test_before_acquire(false)
            .connect_with(
                options
                    .create_if_missing(false)
                    .pragma("query_only", "on")
                    // The system caches the file as well.
                    .pragma("cache_size", "-2000"),
            )
            .await
            .map_err(broken)?;
        Ok(Backend::Sqlite { writer, readers })
    }

    /// Connects to a server.
    pub(crate) async fn postgres(url: &str) -> Result<Backend, StoreError> {
        // The address may hold a password: whatever is said about it is said without it.
        let shown = without_password(url);
        let broken = |source| StoreError::Open { path: shown.clone(), source };
        let options: PgConnectOptions = url.parse().map_err(broken)?;
        let options = options.disable_statement_logging();
        let mut first = reach::first_contact(&options).await.map_err(broken)?;
        postgres_migrations().run(&mut first).await?;
        let pool = PgPoolOptions::new()
            .max_connections(POSTGRES_CONNECTIONS)
            .acquire_timeout(reach::PATIENCE)
            .after_connect(|connection, _| {
                Box::pin(async move {
                    // What was acknowledged has reached the disk, whatever the server's default.
                    let durable = "SELECT set_config('synchronous_commit', 'on', false) \
                         WHERE current_setting('synchronous_commit') IN ('off', 'local')";
                    sqlx::query(durable).execute(connection).await?;
                    Ok(())
                })
            })
            .connect_lazy_with(options);
        reach::filled(&pool).await.map_err(broken)?;
        first.close().await.map_err(broken)?;
        Ok(Backend::Postgres(Reach::new(pool)))
    }

    /// Waits for an answer; not at all for a server that is known to be away.
    async fn asked<T>(&self, asking: Asking<'_, T>) -> Result<T, StoreError> {
        let reach = match self {
            Backend::Sqlite { .. } => None,
            Backend::Postgres(reach) => Some(reach),
        };
        asked_of(reach, asking).await
    }

    /// All rows that a reading statement finds.
    pub(crate) fn rows<'a>(&'a self, query: Query<'a>) -> Waiting<'a, Vec<Row>> {
        Box::pin(self.asked(Box::pin(async move { reading!(self, query, fetch_all) })))
    }

    /// The first row that a reading statement finds.
    pub(crate) fn row<'a>(&'a self, query: Query<'a>) -> Waiting<'a, Option<Row>> {
        Box::pin(self.asked(Box::pin(async move { reading!(self, query, fetch_optional) })))
    }

    /// Runs one writing statement by itself and says how many rows it touched.
    pub(crate) fn run<'a>(&'a self, query: Query<'a>) -> Waiting<'a, u64> {
        Box::pin(self.asked(Box::pin(async move { on_either!(self.writer(), query, execute) })))
    }

    /// Runs one writing statement by itself and gives the rows that it returns.
    pub(crate) fn change<'a>(&'a self, query: Query<'a>) -> Waiting<'a, Vec<Row>> {
        Box::pin(self.asked(Box::pin(async move { on_either!(self.writer(), query, fetch_all) })))
    }

    /// Begins a transaction that will write.
    pub(crate) fn begin(&self) -> Waiting<'_, Tx> {
        Box::pin(async move {
            Ok(match self {
                Backend::Sqlite { writer, .. } => Tx::Sqlite(Held::begin(writer).await?),
                Backend::Postgres(reach) => {
                    Tx::Postgres(reach.ask(Box::pin(reach.pool.begin())).await?, reach.clone())
                }
            })
        })
    }

    /// Waits for what is going on and lets the database go.
    pub(crate) fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            match self {
                Backend::Sqlite { writer, readers } => {
                    readers.close().await;
                    writer.close().await;
                }
                Backend::Postgres(reach) => reach.pool.close().await,
            }
        })
    }

    fn writer(&self) -> Either<&SqlitePool, &PgPool> {
        match self {
            Backend::Sqlite { writer, .. } => Either::Sqlite(writer),
            Backend::Postgres(reach) => Either::Postgres(&reach.pool),
        }
    }
}

impl Tx {
    /// All rows that a statement gives.
    pub(crate) fn rows<'a>(&'a mut self, query: Query<'a>) -> Waiting<'a, Vec<Row>> {
        let reach = self.reach();
        let asking = Box::pin(async move { on_either!(self.executor(), query, fetch_all) });
        Box::pin(async move { asked_of(reach.as_ref(), asking).await })
    }

    /// The first row that a statement gives.
    pub(crate) fn row<'a>(&'a mut self, query: Query<'a>) -> Waiting<'a, Option<Row>> {
        let reach = self.reach();
        let asking = Box::pin(async move { on_either!(self.executor(), query, fetch_optional) });
        Box::pin(async move { asked_of(reach.as_ref(), asking).await })
    }

    /// Runs a statement and says how many rows it touched.
    pub(crate) fn run<'a>(&'a mut self, query: Query<'a>) -> Waiting<'a, u64> {
        let reach = self.reach();
        let asking = Box::pin(async move { on_either!(self.executor(), query, execute) });
        Box::pin(async move { asked_of(reach.as_ref(), asking).await })
    }

    /// Inserts many rows with few statements: `head VALUES (…), (…) tail`. Says how many rows were
    /// touched.
    pub(crate) async fn insert<'q, T>(
        &mut self,
        head: &'static str,
        tail: &'static str,
        rows: &'q [T],
        values: impl Fn(&'q T, &mut Vec<Value<'q>>),
    ) -> Result<u64, StoreError> {
        let mut touched = 0;
        let mut rest = rows;
        while !rest.is_empty() {
            let size = CHUNKS.into_iter().find(|size| *size <= rest.len()).unwrap_or(1);
            let (now, later) = rest.split_at(size);
            rest = later;
            let mut bound = Vec::new();
            for (row, done) in now.iter().zip(0..) {
                values(row, &mut bound);
                if done == 0 {
                    bound.reserve(bound.len() * (size - 1));
                }
            }
            let text = self.many(head, tail, size, bound.len() / size);
            touched += self.run(Query { text: Cow::Owned(text), values: bound }).await?;
        }
        Ok(touched)
    }

    /// The text of an insert of `rows` rows. SQLite searches a list for each named placeholder,
    /// which is slow with a thousand of them: there they have no names.
    fn many(&self, head: &str, tail: &str, rows: usize, columns: usize) -> String {
        let named = matches!(self, Tx::Postgres(..));
        let mut text = String::with_capacity(head.len() + tail.len() + 16 + rows * columns * 6);
        text.push_str(head);
        text.push_str(" VALUES ");
        for row in 0..rows {
            text.push_str(if row == 0 { "(" } else { ", (" });
            for column in 0..columns {
                if column > 0 {
                    text.push(',');
                }
                if named {
                    let _ = write!(text, "${}", row * columns + column + 1);
                } else {
                    text.push('?');
                }
            }
            text.push(')');
        }
        text.push(' ');
        text.push_str(tail);
        text
    }

    /// Makes it last.
    pub(crate) fn commit(self) -> Waiting<'static, ()> {
        Box::pin(async move {
            match self {
                Tx::Sqlite(held) => held.end("COMMIT").await?,
                Tx::Postgres(changes, reach) => reach.ask(Box::pin(changes.commit())).await?,
            }
            Ok(())
        })
    }

    /// Takes it back. Dropping it does the same, but costs SQLite its connection.
    pub(crate) fn undo(self) -> Waiting<'static, ()> {
        Box::pin(async move {
            match self {
                Tx::Sqlite(held) => held.end("ROLLBACK").await?,
                Tx::Postgres(changes, reach) => reach.ask(Box::pin(changes.rollback())).await?,
            }
            Ok(())
        })
    }

    fn reach(&self) -> Option<Reach> {
        match self {
            Tx::Sqlite(_) => None,
            Tx::Postgres(_, reach) => Some(reach.clone()),
        }
    }

    fn executor(&mut self) -> Either<&mut sqlx::SqliteConnection, &mut sqlx::PgConnection> {
        match self {
            Tx::Sqlite(held) => Either::Sqlite(&mut *held.connection),
            Tx::Postgres(transaction, _) => Either::Postgres(&mut **transaction),
        }
    }
}

/// A file answers by itself; a server may not.
async fn asked_of<T>(reach: Option<&Reach>, asking: Asking<'_, T>) -> Result<T, StoreError> {
    Ok(match reach {
        Some(reach) => reach.ask(asking).await?,
        None => asking.await?,
    })
}

/// What both databases can read into.
pub(crate) trait Column:
    for<'r> Decode<'r, Sqlite> + Type<Sqlite> + for<'r> Decode<'r, Postgres> + Type<Postgres>
{
}

impl<T> Column for T where
    T: for<'r> Decode<'r, Sqlite> + Type<Sqlite> + for<'r> Decode<'r, Postgres> + Type<Postgres>
{
}

impl Row {
    /// The value of a column.
    pub(crate) fn get<T: Column>(&self, column: &str) -> Result<T, StoreError> {
        // Unchecked is about the declared type only: a SMALLINT is read as an `i64` like all others.
        Ok(match self {
            Row::Sqlite(row) => row.try_get_unchecked(column)?,
            Row::Postgres(row) => row.try_get_unchecked(column)?,
        })
    }

    /// A count, a time or an amount.
    pub(crate) fn unsigned(&self, column: &str) -> Result<u64, StoreError> {
        Ok(u64::try_from(self.get::<i64>(column)?).unwrap_or(0))
    }

    /// The same, where there may be none.
    pub(crate) fn maybe_unsigned(&self, column: &str) -> Result<Option<u64>, StoreError> {
        let value = self.get::<Option<i64>>(column)?;
        Ok(value.map(|value| u64::try_from(value).unwrap_or(0)))
    }

    /// A list of words that is kept as JSON.
    pub(crate) fn words(&self, column: &str) -> Result<Vec<String>, StoreError> {
        let text: String = self.get(column)?;
        serde_json::from_str(&text).map_err(|_| StoreError::unreadable(column))
    }
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Value::Int(Some(value))
    }
}

impl From<Option<i64>> for Value<'_> {
    fn from(value: Option<i64>) -> Self {
        Value::Int(value)
    }
}

impl From<u64> for Value<'_> {
    fn from(value: u64) -> Self {
        Value::Int(Some(i64::try_from(value).unwrap_or(i64::MAX)))
    }
}

impl From<u32> for Value<'_> {
    fn from(value: u32) -> Self {
        Value::Int(Some(i64::from(value)))
    }
}

impl From<Option<u64>> for Value<'_> {
    fn from(value: Option<u64>) -> Self {
        Value::Int(value.map(|value| i64::try_from(value).unwrap_or(i64::MAX)))
    }
}

impl From<deadstop_core::Time> for Value<'_> {
    fn from(value: deadstop_core::Time) -> Self {
        Value::from(value.0)
    }
}

impl From<Option<deadstop_core::Time>> for Value<'_> {
    fn from(value: Option<deadstop_core::Time>) -> Self {
        Value::from(value.map(|time| time.0))
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl<'q> From<&'q str> for Value<'q> {
    fn from(value: &'q str) -> Self {
        Value::Text(Some(storable(value)))
    }
}

impl<'q> From<&'q String> for Value<'q> {
    fn from(value: &'q String) -> Self {
        Value::from(value.as_str())
    }
}

impl From<String> for Value<'_> {
    fn from(value: String) -> Self {
        let clean = match storable(&value) {
            Cow::Borrowed(_) => None,
            Cow::Owned(clean) => Some(clean),
        };
        Value::Text(Some(Cow::Owned(clean.unwrap_or(value))))
    }
}

impl<'q> From<Option<&'q str>> for Value<'q> {
    fn from(value: Option<&'q str>) -> Self {
        Value::Text(value.map(storable))
    }
}

impl<'q> From<&'q Option<String>> for Value<'q> {
    fn from(value: &'q Option<String>) -> Self {
        Value::from(value.as_deref())
    }
}

impl<'q> From<&'q [u8]> for Value<'q> {
    fn from(value: &'q [u8]) -> Self {
        Value::Bytes(Some(value))
    }
}

impl<'q> From<&'q Option<Vec<u8>>> for Value<'q> {
    fn from(value: &'q Option<Vec<u8>>) -> Self {
        Value::Bytes(value.as_deref())
    }
}

/// PostgreSQL's text has no NUL. One from outside must not make a whole batch fail there, and what
/// is kept is the same in both.
pub(crate) fn storable(text: &str) -> Cow<'_, str> {
    if text.as_bytes().contains(&0) {
        Cow::Owned(text.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

macro_rules! prepare {
    ($name:ident, $database:ty, $arguments:ty) => {
        fn $name<'q>(query: Query<'q>) -> Prepared<'q, $database, $arguments> {
            let prepared = match query.text {
                Cow::Borrowed(text) => sqlx::query(text),
                // Made of pieces of this crate only; see `Query::then` and `Tx::many`.
                Cow::Owned(text) => sqlx::query(AssertSqlSafe(text)),
            };
            query.values.into_iter().fold(prepared, |prepared, value| match value {
                Value::Int(value) => prepared.bind(value),
                Value::Bool(value) => prepared.bind(value),
                Value::Text(Some(Cow::Borrowed(value))) => prepared.bind(value),
                Value::Text(Some(Cow::Owned(value))) => prepared.bind(value),
                Value::Text(None) => prepared.bind(None::<&str>),
                Value::Bytes(value) => prepared.bind(value),
            })
        }
    };
}
prepare!(sqlite, Sqlite, SqliteArguments);
prepare!(postgres, Postgres, PgArguments);

fn sqlite_migrations() -> Migrator {
    migrator(&[
        ("scopes", include_str!("../migrations/sqlite/0001_scopes.sql")),
        ("control", include_str!("../migrations/sqlite/0002_control.sql")),
        ("hours", include_str!("../migrations/sqlite/0003_hours.sql")),
        ("tools", include_str!("../migrations/sqlite/0004_tools.sql")),
        ("versions", include_str!("../migrations/sqlite/0005_versions.sql")),
        ("turns", include_str!("../migrations/sqlite/0006_turns.sql")),
        ("rungs", include_str!("../migrations/sqlite/0007_rungs.sql")),
        ("texts", include_str!("../migrations/sqlite/0008_texts.sql")),
        ("requests", include_str!("../migrations/sqlite/0009_requests.sql")),
        ("removed", include_str!("../migrations/sqlite/0010_removed.sql")),
        ("mcp_servers", include_str!("../migrations/sqlite/0011_mcp_servers.sql")),
        ("workflow", include_str!("../migrations/sqlite/0012_workflow.sql")),
        ("speed", include_str!("../migrations/sqlite/0013_speed.sql")),
        ("outages", include_str!("../migrations/sqlite/0014_outages.sql")),
    ])
}

pub(crate) fn postgres_migrations() -> Migrator {
    migrator(&[
        ("control", include_str!("../migrations/postgres/0001_control.sql")),
        ("hours", include_str!("../migrations/postgres/0002_hours.sql")),
        ("tools", include_str!("../migrations/postgres/0003_tools.sql")),
        ("versions", include_str!("../migrations/postgres/0004_versions.sql")),
        ("turns", include_str!("../migrations/postgres/0005_turns.sql")),
        ("rungs", include_str!("../migrations/postgres/0006_rungs.sql")),
        ("texts", include_str!("../migrations/postgres/0007_texts.sql")),
        ("requests", include_str!("../migrations/postgres/0008_requests.sql")),
        ("removed", include_str!("../migrations/postgres/0009_removed.sql")),
        ("mcp_servers", include_str!("../migrations/postgres/0010_mcp_servers.sql")),
        ("workflow", include_str!("../migrations/postgres/0011_workflow.sql")),
        ("speed", include_str!("../migrations/postgres/0012_speed.sql")),
        ("outages", include_str!("../migrations/postgres/0013_outages.sql")),
    ])
}

/// The files under `migrations/`, in order. A file that was released is never changed again.
fn migrator(files: &[(&'static str, &'static str)]) -> Migrator {
    let migrations = files.iter().zip(1..).map(|(&(name, sql), version)| {
        let sql = sqlx::SqlSafeStr::into_sql_str(sql);
        Migration::new(version, name.into(), MigrationType::Simple, sql, false)
    });
    Migrator::with_migrations(migrations.collect())
}

/// An address as it may be shown.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "postgres".to_owned() };
    let host = rest.split('?').next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}")
}
