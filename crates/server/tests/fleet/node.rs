//! One node: the real program, as a process of its own.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::redis::{Way, signal};
use crate::support::PATIENCE;

/// A node; its process ends when this is dropped.
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    process: Child,
    log: PathBuf,
}

impl Node {
    /// Starts one with the configuration in a folder, and waits until it listens.
    pub(crate) fn start(folder: &Path, number: usize, database: &str, way: &Way) -> Node {
        let log = folder.join(format!("node-{number}.log"));
        let trusted = way.trusted.iter().map(|file| ("SSL_CERT_FILE", file));
        let mut process = Command::new(&way.program)
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(folder.join("deadstop.toml"))
            .current_dir(folder)
            .env("DEADSTOP_DATABASE", database)
            .env("DEADSTOP_REDIS", &way.address)
            .envs(trusted)
            .env("XDG_DATA_HOME", folder)
            // The cases are those of a server inside the test's process, which trusts its machine.
            .env("DEADSTOP_TRUST_LOCAL", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines =
            BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut said = String::new();
        let address = lines.by_ref().find_map(|line| {
            said += &format!("{line}\n");
            let rest = line.strip_prefix("deadstop listens on http://")?;
            rest.split([' ', ',']).next()?.parse().ok()
        });
        let Some(address) = address else {
            let _ = process.wait();
            panic!("node {number} did not start: {said}");
        };
        // Its output must be read, or the node blocks on a full pipe.
        let mut file = File::options().create(true).append(true).open(&log).unwrap();
        std::thread::spawn(move || lines.for_each(|line| drop(writeln!(file, "{line}"))));
        Node { address, process, log }
    }

    /// Stops it gracefully, and waits until it has gone.
    pub(crate) fn stop(mut self) {
        signal(self.process.id(), "TERM");
        let asked = Instant::now();
        while self.process.try_wait().unwrap().is_none() {
            assert!(asked.elapsed() < PATIENCE, "a node does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills it outright.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let said = std::fs::read_to_string(&self.log).unwrap_or_default();
            println!("{} said:\n{said}", self.log.display());
        }
    }
}
