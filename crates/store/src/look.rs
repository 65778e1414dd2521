//! A look at a PostgreSQL without touching it: nothing is made, and nothing is brought up to date.

use std::time::{Duration, Instant};

use deadstop_core::Time;
use sqlx::{Connection, PgConnection, Row as _};

use crate::backend::{postgres_migrations, without_password};
use crate::error::StoreError;

/// How long it may take to be reached, and to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a look at a PostgreSQL has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// The server's version.
    pub version: String,
    /// The last migration that it has; `None` without Deadstop's tables.
    pub step: Option<i64>,
    /// The last migration that this program knows.
    pub known: i64,
    /// Connections that it takes.
    pub most_connections: i64,
    /// Whether it is a read-only replica.
    pub read_only: bool,
    /// Its time, halfway through the round trip.
    pub time: Time,
    /// The round-trip time.
    pub trip: Duration,
}

/// Looks at the PostgreSQL at an address.
pub async fn look(address: &str) -> Result<Look, StoreError> {
    let failed = |source| StoreError::Open { path: without_password(address), source };
    match tokio::time::timeout(PATIENCE, ask(address)).await {
        Ok(found) => found.map_err(failed),
        Err(_) => Err(failed(sqlx::Error::PoolTimedOut)),
    }
}

async fn ask(address: &str) -> Result<Look, sqlx::Error> {
    let mut line = PgConnection::connect(address).await?;
    let general = "SELECT current_setting('server_version') AS version, \
         current_setting('max_connections')::bigint AS most, pg_is_in_recovery() AS copied, \
         to_regclass('_sqlx_migrations') IS NOT NULL AS ours";
    let found = sqlx::query(general).fetch_one(&mut line).await?;
    let step = match found.try_get("ours")? {
        false => None,
        true => {
            let steps = "SELECT max(version) AS step FROM _sqlx_migrations WHERE success";
            sqlx::query(steps).fetch_one(&mut line).await?.try_get("step")?
        }
    };
    // The statement is prepared by now: only the round trip is measured.
    let clock = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now";
    sqlx::query(clock).fetch_one(&mut line).await?;
    let asked = Instant::now();
    let now: i64 = sqlx::query(clock).fetch_one(&mut line).await?.try_get("now")?;
    let trip = asked.elapsed();
    let known = postgres_migrations().iter().map(|step| step.version).max().unwrap_or(0);
    let look = Look {
        version: found.try_get("version")?,
        step,
        known,
        most_connections: found.try_get("most")?,
        read_only: found.try_get("copied")?,
        time: Time(u64::try_from(now).unwrap_or(0)),
        trip,
    };
    let _ = line.close().await;
    Ok(look)
}
