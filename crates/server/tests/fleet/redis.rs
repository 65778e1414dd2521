//! A Redis of one's own, which may be killed, frozen and started again.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The server; it goes with the last who holds it.
#[derive(Clone)]
pub(crate) struct Redis {
    pub(crate) address: String,
    folder: Arc<Folder>,
}

struct Folder(String);

impl Redis {
    /// Starts one by the project's script, which also ends it should this program die.
    pub(crate) fn start() -> Redis {
        let said = script(&["start", &std::process::id().to_string()]);
        let mut lines = said.lines().map(str::to_owned);
        let (folder, address) = (lines.next().expect("a folder"), lines.next().expect("a URL"));
        Redis { address, folder: Arc::new(Folder(folder)) }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        let text = std::fs::read_to_string(format!("{}/pid", self.folder.0)).unwrap();
        text.trim().parse().unwrap()
    }

    /// Tells it something; it must agree.
    pub(crate) fn say(&self, line: &str) {
        let place = self.address.trim_start_matches("redis://").trim_end_matches("/0");
        let mut wire = TcpStream::connect(place).unwrap();
        wire.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut said = String::new();
        BufReader::new(wire).read_line(&mut said).unwrap();
        assert_eq!(said, "+OK\r\n", "{line}");
    }

    /// Kills it outright.
    pub(crate) fn kill(&self) {
        script(&["pause", &self.folder.0]);
    }

    /// Starts it again, on the same port and empty.
    pub(crate) fn revive(&self) {
        script(&["resume", &self.folder.0]);
    }

    /// Stops its clock: it takes connections and answers nobody.
    pub(crate) fn freeze(&self) {
        signal(self.pid(), "STOP");
    }

    pub(crate) fn thaw(&self) {
        signal(self.pid(), "CONT");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        script(&["stop", &self.0]);
    }
}

/// Sends a signal to a process that is ours.
pub(crate) fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap();
    assert!(sent.success(), "no process {pid} to send {name} to");
}

fn script(arguments: &[&str]) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/redis");
    let ran = Command::new(script).args(arguments).stderr(Stdio::inherit()).output().unwrap();
    assert!(ran.status.success(), "no Redis to test with; scripts/redis says why above");
    String::from_utf8(ran.stdout).unwrap()
}
