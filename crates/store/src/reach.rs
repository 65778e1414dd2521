//! Whether PostgreSQL can be reached.
//!
//! While it cannot, queries fail at once, and one task retries until PostgreSQL answers. Otherwise
//! every query would wait as long as the first one did.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool};
use sqlx::{ConnectOptions, Connection};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use crate::error::{self, Trouble};

/// How long a query waits for a connection before the server counts as away. Long enough for a new
/// connection over a slow line.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// How long a single statement may take: a server that is frozen keeps its connections, and says
/// nothing on them.
const ANSWER: Duration = Duration::from_secs(10);
/// How long to wait before asking again.
const AGAIN: Duration = Duration::from_millis(100);
/// How long a node that starts waits for a server that is busy, or starts at the same time.
const START: Duration = Duration::from_secs(30);

/// A running query. Boxed: the future is passed through several functions, and each would copy it.
pub(crate) type Asking<'a, T> = Pin<Box<dyn Future<Output = Result<T, sqlx::Error>> + Send + 'a>>;

/// The first connection of a node that starts. A server that is slow or still starting is waited
/// for. Everything else, such as a wrong port or a wrong password, is an error at once.
pub(crate) async fn first_contact(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    patiently(|| async { timeout(START, options.connect()).await.unwrap_or(Err(too_slow())) }).await
}

/// Waits for the first connection of a pool.
pub(crate) async fn filled(pool: &PgPool) -> Result<(), sqlx::Error> {
    patiently(|| async { pool.acquire().await.map(drop) }).await
}

/// Tries again while the server is too slow or still starting, for [`START`].
async fn patiently<T, F: Future<Output = Result<T, sqlx::Error>>>(
    attempt: impl Fn() -> F,
) -> Result<T, sqlx::Error> {
    let begin = Instant::now();
    loop {
        match attempt().await {
            Err(error) if may_pass(&error) && begin.elapsed() < START => sleep(AGAIN).await,
            done => return done,
        }
    }
}

/// Whether an error of the first connection passes by itself.
fn may_pass(error: &sqlx::Error) -> bool {
    /// PostgreSQL's code for "the database system is starting up".
    const STARTING: &str = "57P03";
    match error {
        sqlx::Error::PoolTimedOut => true,
        sqlx::Error::Database(said) => said.code().is_some_and(|code| code == STARTING),
        _ => false,
    }
}

fn too_slow() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(
        std::io::ErrorKind::TimedOut,
        format!("the server accepted no connection within {} s", START.as_secs()),
    ))
}

/// A server, and whether it answers.
#[derive(Debug, Clone)]
pub(crate) struct Reach {
    pub(crate) pool: PgPool,
    away: Arc<AtomicBool>,
    /// The runtime for retries: the query that finds the server away may end before it is back.
    home: Handle,
}

impl Reach {
    /// A server that answers.
    pub(crate) fn new(pool: PgPool) -> Reach {
        Reach { pool, away: Arc::default(), home: Handle::current() }
    }

    /// Runs a query, unless the server is known to be away.
    pub(crate) async fn ask<T>(&self, asking: Asking<'_, T>) -> Result<T, sqlx::Error> {
        if self.away.load(Ordering::Acquire) {
            return Err(silent(io::ErrorKind::NotConnected));
        }
        let answer = match timeout(ANSWER, asking).await {
            Ok(answer) => answer,
            Err(_) => Err(silent(io::ErrorKind::TimedOut)),
        };
        if let Err(error) = &answer
            && error::trouble(error) == Some(Trouble::Away)
            && !self.is_crowded(error)
        {
            self.wait_for_it();
        }
        answer
    }

    /// Whether all connections are in use: then the server is busy and not away.
    fn is_crowded(&self, error: &sqlx::Error) -> bool {
        matches!(error, sqlx::Error::PoolTimedOut)
            && self.pool.size() >= self.pool.options().get_max_connections()
    }

    /// Asks again and again, in the background, until the server answers.
    fn wait_for_it(&self) {
        if self.away.swap(true, Ordering::AcqRel) {
            return;
        }
        let (pool, away) = (self.pool.clone(), Arc::clone(&self.away));
        self.home.spawn(async move {
            while !pool.is_closed() {
                let asked = async { pool.acquire().await?.ping().await };
                if matches!(timeout(PATIENCE, asked).await, Ok(Ok(()))) {
                    break;
                }
                sleep(AGAIN).await;
            }
            away.store(false, Ordering::Release);
        });
    }
}

fn silent(kind: io::ErrorKind) -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(kind, "the server does not answer"))
}
