//! Whether PostgreSQL can be reached.
//!
//! While it cannot, queries fail at once, and one task retries until PostgreSQL answers. Otherwise
//! every query would wait as long as the first one did.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::PgPool;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::error::{self, Trouble};

/// How long a query waits for a connection before the server counts as away. Long enough for a new
/// connection over a slow line.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// How long a single statement may take: a server that is frozen keeps its connections, and says
/// nothing on them.
const ANSWER: Duration = Duration::from_secs(10);
/// How long to wait before asking again.
const AGAIN: Duration = Duration::from_millis(100);

/// A running query. Boxed: the future is passed through several functions, and each would copy it.
pub(crate) type Asking<'a, T> = Pin<Box<dyn Future<Output = Result<T, sqlx::Error>> + Send + 'a>>;

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
