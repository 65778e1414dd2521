//! The real server, for the tests of several programs.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What the tests' orders bring where they loosen control.
pub(crate) const OPERATOR: &str = "the-operator-of-these-tests";

/// The real server, as a process of its own.
pub(crate) struct Server {
    pub(crate) process: Child,
    pub(crate) url: String,
}

impl Server {
    /// Starts one in a folder with its configuration, and waits until it listens.
    pub(crate) fn start(folder: &Path) -> Server {
        let mut process = spawn(folder);
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let url = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                let address =
                    line.strip_prefix("deadstop listens on ")?.split([' ', ',']).next()?;
                Some(address.trim_end_matches('.').to_owned())
            })
            .unwrap_or_else(|| panic!("the server did not start"));
        // Its output must be read, or the server blocks on a full pipe.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Server { process, url }
    }
}

/// The real server, from its first instruction on.
pub(crate) fn spawn(folder: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_deadstop"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.join("data"))
        .arg("--config")
        .arg(folder.join("deadstop.toml"))
        .current_dir(folder)
        .env("DEADSTOP_OPERATOR_TOKEN", OPERATOR)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
