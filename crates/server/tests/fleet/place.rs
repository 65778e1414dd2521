//! Where a case runs: a database of its own, in PostgreSQL.

pub(crate) use crate::databases::TestDatabase;

/// What runs on both databases on one server, runs on the fleet once.
macro_rules! on_both {
    ($($case:ident),* $(,)?) => {
        mod fleet {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let place = crate::place::TestDatabase::postgres().await;
                super::$case(&place).await;
                place.remove().await;
            })*
        }
    };
}
pub(crate) use on_both;
