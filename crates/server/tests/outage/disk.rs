//! A SQLite file on a disk that is full, in a folder that cannot be written, or locked by another
//! process.
//!
//! A real small disk takes the right to mount, and a file that cannot be written although it is open
//! takes the right to make it immutable. Where there is no such right these cases say so and end:
//! the store's own tests have SQLite say the same by pragmas.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use sqlx::{Connection, SqliteConnection};

use super::{audited, call, costs, degraded, denied, gate, kept, order_in_vain, recovered};
use crate::support::{Ask, Gate};

/// Whether a command has worked.
fn run(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|ran| ran.status.success())
}

/// A small disk, as long as it lives.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount() -> Option<Disk> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        let mounted = run("mount", &["-t", "tmpfs", "-o", "size=8m", "tmpfs", &path]);
        mounted.then_some(Disk(folder))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Leaves no room at all.
    fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.path().join("junk")).unwrap();
        for size in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    fn make_room(&self) {
        std::fs::remove_file(self.path().join("junk")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run("umount", &["-l", &self.path().display().to_string()]);
    }
}

/// What must be true while nothing can be written; gives an incident that happens then.
async fn goes_on(gate: &Gate, trouble: &str) -> String {
    // What was there before can be read, and what is new can run.
    for agent in ["warm", "cold", "new"] {
        let got = gate.ask(&call(agent, "s")).await;
        assert_eq!(got.status, 200, "{agent}: {}", got.text());
    }
    assert_eq!(gate.ask(&call("dead", "s")).await.status, 403);
    order_in_vain(gate, "kill", json!({ "agent": "doomed", "session": "s", "reason": "now" }))
        .await;
    assert_eq!(gate.ask(&call("doomed", "s")).await.status, 403);
    degraded(gate, trouble).await;
    denied(gate, "cold", "t1").await
}

/// What must be true afterwards, also after a restart.
async fn went_on(gate: Gate, address: &str, incident: &str) {
    recovered(&gate).await;
    kept(&gate, incident).await;
    costs(&gate, "cold", 2).await;
    audited(&gate, &["before", "now"]).await;
    gate.stop().await;
    let gate = super::gate(address, "open").await;
    for (agent, status) in [("warm", 200), ("cold", 200), ("dead", 403), ("doomed", 403)] {
        assert_eq!(gate.ask(&call(agent, "s")).await.status, status, "{agent}");
    }
    gate.stop().await;
}

async fn history(address: &str, fail_mode: &str) -> Gate {
    let gate = gate(address, fail_mode).await;
    for agent in ["cold", "doomed", "dead"] {
        assert_eq!(gate.ask(&call(agent, "s")).await.status, 200);
    }
    gate.order("kill", json!({ "agent": "dead", "session": "s", "reason": "before" })).await;
    gate.stop().await;
    let gate = super::gate(address, fail_mode).await;
    assert_eq!(gate.ask(&call("warm", "s")).await.status, 200);
    gate
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk() {
    let Some(disk) = Disk::mount() else {
        println!("no right to mount a small disk: not tried");
        return;
    };
    let address = format!("sqlite:{}", disk.path().join("deadstop.db").display());
    let gate = history(&address, "open").await;
    disk.fill();
    fill_the_rest(&gate).await;
    let incident = goes_on(&gate, "full").await;
    disk.make_room();
    went_on(gate, &address, &incident).await;
}

/// Room that SQLite has taken before it may use: calls until it has none left.
async fn fill_the_rest(gate: &Gate) {
    for number in 0..2000 {
        let got = gate.ask(&call("filler", &format!("s{}", number % 200))).await;
        assert_eq!(got.status, 200, "{}", got.text());
        if number % 50 == 49 && gate.ask(&Ask::get("/readyz")).await.status == 503 {
            return;
        }
    }
    panic!("the disk is full, and the server has not noticed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_where_nothing_may_be_lost() {
    let Some(disk) = Disk::mount() else {
        println!("no right to mount a small disk: not tried");
        return;
    };
    let address = format!("sqlite:{}", disk.path().join("deadstop.db").display());
    let gate = history(&address, "closed").await;
    disk.fill();
    let mut refused = None;
    for number in 0..5000 {
        let got = gate.ask(&call("filler", &format!("s{}", number % 200))).await;
        if got.status != 200 {
            refused = Some(got);
            break;
        }
    }
    let got = refused.expect("calls are refused once the disk is full");
    assert_eq!((got.status, got.header("retry-after").is_some()), (503, true), "{}", got.text());
    degraded(&gate, "full").await;
    disk.make_room();
    recovered(&gate).await;
    assert_eq!(gate.ask(&call("warm", "s")).await.status, 200);
    gate.stop().await;
}

/// Makes files immutable, or as they were.
fn freeze(folder: &Path, how: &str) -> bool {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    // All of them, also after one that did not work.
    files.filter(|file| !run("chattr", &[how, &file.display().to_string()])).count() == 0
}

/// Thaws what was frozen, whatever happens: otherwise the folder could not be removed.
struct Thaw<'a>(&'a Path);

impl Drop for Thaw<'_> {
    fn drop(&mut self) {
        freeze(self.0, "-i");
    }
}

/// Whether a file that is open can be made immutable here.
fn can_freeze() -> bool {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let mut file = std::fs::File::create(folder.path().join("file")).unwrap();
    let _thaw = Thaw(folder.path());
    freeze(folder.path(), "+i") && file.write_all(b"x").is_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_written() {
    if !can_freeze() {
        println!("no right to make an open file immutable: not tried");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", folder.path().join("deadstop.db").display());
    let gate = history(&address, "open").await;
    let _thaw = Thaw(folder.path());
    assert!(freeze(folder.path(), "+i"));
    let incident = goes_on(&gate, "read_only").await;
    assert!(freeze(folder.path(), "-i"));
    went_on(gate, &address, &incident).await;
}

/// Another process holds the write lock: a backup, or a person with a tool.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_in_somebody_elses_hands() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("sqlite:{}", folder.path().join("deadstop.db").display());
    let gate = history(&address, "open").await;
    let mut theirs = SqliteConnection::connect(&address).await.unwrap();
    sqlx::query("BEGIN IMMEDIATE").execute(&mut theirs).await.unwrap();
    let incident = goes_on(&gate, "busy").await;
    sqlx::query("ROLLBACK").execute(&mut theirs).await.unwrap();
    theirs.close().await.unwrap();
    went_on(gate, &address, &incident).await;
}
