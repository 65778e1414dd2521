//! When things go wrong: no database, a broken one, one that goes away and comes back, a process
//! that is killed while it writes, and a file from an older version.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use deadstop_store::{Batch, Store, Trouble, Verified};
use sqlx::{Connection, SqliteConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::place::{SERVER, TestDatabase, on_both, script, start};
use crate::sample::{agent, event, incident, number, scope};

on_both![what_was_acknowledged_survives_a_kill];

/// Where the process that is to be killed writes.
const VICTIM: &str = "DEADSTOP_TEST_VICTIM";

/// The same program once more, as the victim: it writes and says so, until it is killed.
async fn what_was_acknowledged_survives_a_kill(place: &TestDatabase) {
    if let Ok(address) = std::env::var(VICTIM) {
        let store = Store::connect(&address).await.unwrap();
        for n in 0.. {
            let key = format!("{}-{n}", std::process::id());
            let audit = vec![event(store.number(crate::sample::at(n)))];
            let batch = Batch {
                scopes: vec![scope(&key)],
                incidents: vec![incident(&key, "ada", 1)],
                audit,
                ..Batch::default()
            };
            store.write(&batch).await.unwrap();
            println!("\nwritten {key}");
        }
    }
    let kind = if place.address.starts_with("postgres") { "postgres" } else { "sqlite" };
    let case = format!("faults::{kind}::what_was_acknowledged_survives_a_kill");
    let mut acknowledged = Vec::new();
    for round in 0..5 {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &case, "--nocapture"])
            .env(VICTIM, &place.address)
            .env(SERVER, &place.address)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        let written = lines.map_while(Result::ok);
        let keys = written.filter_map(|line| Some(line.strip_prefix("written ")?.to_owned()));
        acknowledged.extend(keys.take(3 + 17 * round));
        victim.kill().unwrap();
        victim.wait().unwrap();
    }
    assert_eq!(acknowledged.len(), 3 * 5 + 17 * 10);
    let store = place.open().await;
    for key in &acknowledged {
        assert!(store.scope(key).await.unwrap().is_some(), "{key}");
        assert!(store.incident("default", key).await.unwrap().is_some(), "{key}");
    }
    match store.verify_audit("default").await.unwrap() {
        Verified::Whole { entries, .. } => assert!(entries >= acknowledged.len() as u64),
        broken => panic!("{broken:?}"),
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_a_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deadstop.db");
    std::fs::write(&path, "this is not a database, it is a text of some length").unwrap();
    let error = Store::open(&path).await.unwrap_err();
    assert!(error.to_string().contains("database"), "{error}");
    assert_eq!(error.trouble(), Some(Trouble::Broken), "{error}");
    let nowhere = Store::open(&folder.path().join("no/such/folder/deadstop.db")).await;
    assert_eq!(nowhere.unwrap_err().trouble(), Some(Trouble::Away));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_clear_error_without_its_password() {
    let address = "postgres://app:s3cret@127.0.0.1:1/x?password=s3cret@too";
    let error = Store::connect(address).await.unwrap_err();
    assert_eq!(error.trouble(), Some(Trouble::Away), "{error}");
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    assert!(error.to_string().contains("127.0.0.1:1/x"), "{error}");
}

/// PostgreSQL and the nodes start at the same time, after a power cut or with compose.
#[tokio::test]
async fn a_server_that_is_still_starting_is_waited_for() {
    let place = TestDatabase::postgres().await;
    let (before, database) = place.address.rsplit_once('/').unwrap();
    let real = before.rsplit_once('@').unwrap().1.to_owned();
    let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = front.local_addr().unwrap();
    let turned_away = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&turned_away);
    tokio::spawn(async move {
        loop {
            let (mut client, _) = front.accept().await.unwrap();
            let real = real.clone();
            if count.load(Ordering::Relaxed) == 2 {
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(real).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
                continue;
            }
            let length = client.read_u32().await.unwrap() as usize;
            client.read_exact(&mut vec![0; length - 4]).await.unwrap();
            let says = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0";
            client.write_u8(b'E').await.unwrap();
            client.write_u32(4 + says.len() as u32).await.unwrap();
            client.write_all(says).await.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let store = Store::connect(&format!("postgres://app@{at}/{database}?sslmode=disable")).await;
    let one = scope("default/a/s");
    store.unwrap().write(&Batch { scopes: vec![one], ..Batch::default() }).await.unwrap();
    assert_eq!(turned_away.load(Ordering::Relaxed), 2);
    place.remove().await;
}

/// A file of the first release is brought up to date, and nothing in it is lost.
#[tokio::test]
async fn a_file_of_the_first_release_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deadstop.db");
    let address = format!("sqlite:{}?mode=rwc", path.display());
    let mut connection = SqliteConnection::connect(&address).await.unwrap();
    let first = include_str!("../../migrations/sqlite/0001_scopes.sql");
    sqlx::raw_sql(first).execute(&mut connection).await.unwrap();
    let trip = serde_json::to_string(&crate::sample::trip()).unwrap();
    sqlx::raw_sql(
        "INSERT INTO scopes VALUES ('default', 'project', '', 'default', 1, 5, x'0102');
         CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT NOT NULL,
             installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, success BOOLEAN NOT NULL,
             checksum BLOB NOT NULL, execution_time BIGINT NOT NULL);",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    sqlx::query("INSERT INTO incidents VALUES ('i1', 7, 'a', 's', 'g', 'r', 'kill', 'why', $1)")
        .bind(trip)
        .execute(&mut connection)
        .await
        .unwrap();
    // The checksum that the first release has written beside its migration.
    let migration = sqlx::migrate::Migration::new(
        1,
        "scopes".into(),
        sqlx::migrate::MigrationType::Simple,
        sqlx::SqlSafeStr::into_sql_str(first),
        false,
    );
    sqlx::query("INSERT INTO _sqlx_migrations VALUES (1, 'scopes', '', TRUE, $1, 0)")
        .bind(migration.checksum.to_vec())
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();

    let store = Store::open(&path).await.unwrap();
    let old = store.scope("default").await.unwrap().unwrap();
    assert_eq!((old.project.as_str(), old.number, old.killed), ("default", 0, true));
    let old = store.incident("default", "i1").await.unwrap().unwrap();
    assert_eq!((old.session_number, old.acknowledged), (None, None));
}

/// PostgreSQL is stopped and started again: first an outage that is told as one, then it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_is_used_again() {
    let (folder, address) = start(&[&std::process::id().to_string()]);
    let store = Store::connect(&address).await.unwrap();
    let write = async |n: u64| {
        let agents = vec![agent(&format!("agent-{n}"), number(n))];
        store.write(&Batch { agents, ..Batch::default() }).await
    };
    write(1).await.unwrap();
    script(&["pause", &folder]);
    for result in [write(2).await, store.health().await] {
        let error = result.unwrap_err();
        assert_eq!(error.trouble(), Some(Trouble::Away), "{error}");
    }
    script(&["resume", &folder]);
    let mut again = write(3).await;
    for _ in 0..20 {
        if again.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        again = write(3).await;
    }
    again.unwrap();
    assert!(store.agent("default", "agent-1").await.unwrap().is_some());
    assert!(store.agent("default", "agent-2").await.unwrap().is_none());
    assert!(store.agent("default", "agent-3").await.unwrap().is_some());
    script(&["stop", &folder]);
}

/// While nodes are upgraded one by one, the first new one changes tables under the others' hands.
#[tokio::test]
async fn a_table_that_gets_another_column_is_still_read() {
    let place = TestDatabase::postgres().await;
    let store = place.open().await;
    let one = scope("default/a/s");
    store.write(&Batch { scopes: vec![one.clone()], ..Batch::default() }).await.unwrap();
    let read = async || {
        // On every connection that there is.
        for _ in 0..10 {
            let asking: Vec<_> = (0..8)
                .map(|_| {
                    let (store, key) = (store.clone(), one.key.clone());
                    tokio::spawn(async move { store.scope(&key).await })
                })
                .collect();
            for asked in asking {
                assert_eq!(asked.await.unwrap().unwrap().as_ref(), Some(&one));
            }
        }
        let all = store.scopes(one.kind, crate::sample::at(0)).await.unwrap();
        assert_eq!(all, std::slice::from_ref(&one));
    };
    read().await;
    let mut newer = sqlx::PgConnection::connect(&place.address).await.unwrap();
    for table in ["scopes", "agents", "sessions"] {
        let change = format!("ALTER TABLE {table} ADD COLUMN news BIGINT NOT NULL DEFAULT 0");
        sqlx::query(sqlx::AssertSqlSafe(change)).execute(&mut newer).await.unwrap();
    }
    read().await;
    let again = Batch {
        scopes: vec![one.clone()],
        agents: vec![agent("ada", number(1))],
        ..Batch::default()
    };
    store.write(&again).await.unwrap();
    read().await;
}
