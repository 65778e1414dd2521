//! What the store's own cases do to a database.

use deadstop_store::Store;
use sqlx::{Connection, PgConnection, SqliteConnection};

use crate::place::TestDatabase;

impl TestDatabase {
    pub(crate) async fn open(&self) -> Store {
        Store::connect(&self.address).await.unwrap()
    }

    /// Changes rows directly, as an attacker with access to the database would.
    pub(crate) async fn tamper(&self, sql: &'static str) -> u64 {
        if self.address.starts_with("postgres") {
            let mut connection = PgConnection::connect(&self.address).await.unwrap();
            sqlx::query(sql).execute(&mut connection).await.unwrap().rows_affected()
        } else {
            let mut connection = SqliteConnection::connect(&self.address).await.unwrap();
            sqlx::query(sql).execute(&mut connection).await.unwrap().rows_affected()
        }
    }
}
