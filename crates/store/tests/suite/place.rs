//! Where a case runs: an empty database of its own, of either kind.
//!
//! PostgreSQL is started once for the whole program by the project's script, which ends it when this
//! process has ended. DEADSTOP_TEST_POSTGRES names another server.

use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// Names a server to test with.
pub(crate) const SERVER: &str = "DEADSTOP_TEST_POSTGRES";

/// Every case on both databases.
macro_rules! on_both {
    ($($case:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(&crate::place::TestDatabase::sqlite()).await;
            })*
        }
        mod postgres {
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

/// A database for one test alone.
pub(crate) struct TestDatabase {
    pub(crate) address: String,
    name: String,
    _folder: Option<tempfile::TempDir>,
}

impl TestDatabase {
    pub(crate) fn sqlite() -> TestDatabase {
        let folder = tempfile::tempdir().unwrap();
        let address = format!("sqlite:{}", folder.path().join("deadstop.db").display());
        TestDatabase { address, name: String::new(), _folder: Some(folder) }
    }

    pub(crate) async fn postgres() -> TestDatabase {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("deadstop_{}_{next}", std::process::id());
        on_server(format!("CREATE DATABASE {name}")).await;
        let (server, _) = server().rsplit_once('/').expect("a URL with a database");
        TestDatabase { address: format!("{server}/{name}"), name, _folder: None }
    }

    /// On a server of our own it goes with the server.
    pub(crate) async fn remove(&self) {
        if std::env::var(SERVER).is_ok() {
            on_server(format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name)).await;
        }
    }
}

async fn on_server(sql: String) {
    let mut connection = PgConnection::connect(server()).await.unwrap();
    sqlx::query(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
}

/// The address of the server that all cases share.
fn server() -> &'static str {
    static ADDRESS: OnceLock<String> = OnceLock::new();
    ADDRESS.get_or_init(|| {
        if let Ok(address) = std::env::var(SERVER) {
            return address;
        }
        start(&[&std::process::id().to_string()]).1
    })
}

/// Runs the project's script and gives the folder and the address of the server it has started.
pub(crate) fn start(arguments: &[&str]) -> (String, String) {
    let said = script(&[&["start"], arguments].concat());
    let mut lines = said.lines().map(str::to_owned);
    let (folder, address) = (lines.next(), lines.next());
    (folder.expect("a folder"), address.expect("an address"))
}

/// Runs the project's script and gives what it says.
pub(crate) fn script(arguments: &[&str]) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/postgres");
    let ran = Command::new(script).args(arguments).stderr(Stdio::inherit()).output().unwrap();
    assert!(ran.status.success(), "no PostgreSQL to test with; scripts/postgres says why above");
    String::from_utf8(ran.stdout).unwrap()
}
