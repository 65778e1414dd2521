//! `deadstop mcp` between clients and servers on stdio: with a server to ask, and without.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "common/server.rs"]
mod server;

#[path = "mcp/end.rs"]
mod end;
#[path = "mcp/fidelity.rs"]
mod fidelity;
#[path = "mcp/spans.rs"]
mod spans;
#[path = "mcp/stdio.rs"]
mod stdio;
#[path = "mcp/wrapping.rs"]
mod wrapping;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longer than anything takes that works, on a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A client of an MCP server on stdio.
pub(crate) struct Client {
    pub(crate) process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Client {
    pub(crate) fn start(mut command: Command) -> Client {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().unwrap());
        Client { process, input, output }
    }

    pub(crate) fn send(&mut self, line: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line).unwrap();
        input.write_all(b"\n").unwrap();
        input.flush().unwrap();
    }

    pub(crate) fn line(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        self.output.read_until(b'\n', &mut line).unwrap();
        line
    }

    pub(crate) fn message(&mut self) -> Value {
        let line = self.line();
        serde_json::from_slice(&line)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&line)))
    }

    pub(crate) fn call(&mut self, id: u64, tool: &str, arguments: Value) -> Value {
        self.send(call(id, tool, arguments).to_string().as_bytes());
        self.message()
    }

    /// Hangs up, and waits for what is left to be said and for the end.
    pub(crate) fn close(mut self) -> (ExitStatus, Vec<u8>) {
        self.input = None;
        let mut rest = Vec::new();
        self.output.read_to_end(&mut rest).unwrap();
        (self.process.wait().unwrap(), rest)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn call(id: u64, tool: &str, arguments: Value) -> Value {
    let params = json!({ "name": tool });
    let mut call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    call["params"]["arguments"] = arguments;
    call
}

pub(crate) fn deadstop() -> Command {
    Command::new(env!("CARGO_BIN_EXE_deadstop"))
}

/// `deadstop mcp` for the agent `janitor`, session `s`, in front of a command. With a server's URL
/// it asks that, and otherwise what lies in the folder.
pub(crate) fn wrapper(folder: &Path, url: Option<&str>, command: &[&str]) -> Command {
    let mut wrapper = deadstop();
    wrapper.args(["mcp", "--agent", "janitor", "--session", "s", "--server", "catalogue"]);
    // No server listens on port 9 of this machine.
    wrapper.args(["--via", url.unwrap_or("http://127.0.0.1:9")]);
    wrapper.arg("--").args(command);
    wrapper.env("XDG_STATE_HOME", folder.join("state")).env("XDG_CONFIG_HOME", folder);
    for name in ["DEADSTOP_POLICY", "DEADSTOP_KEY", "DEADSTOP_KEY_FILE", "DEADSTOP_PROJECT"] {
        wrapper.env_remove(name);
    }
    wrapper
}

/// The catalogue of the demonstration.
pub(crate) const CATALOGUE: [&str; 3] = [env!("CARGO_BIN_EXE_deadstop"), "demo", "catalogue"];

/// A server with a policy.
pub(crate) fn serve(folder: &Path, policy: &str) -> server::Server {
    std::fs::write(folder.join("policy.toml"), policy).unwrap();
    std::fs::write(folder.join("deadstop.toml"), "policy = \"policy.toml\"\n").unwrap();
    server::Server::start(folder)
}

/// The program's answer about a server.
pub(crate) fn ask(url: &str, words: &[&str]) -> String {
    let mut command = deadstop();
    command.args(words).args(["--server", url]).env("DEADSTOP_OPERATOR_TOKEN", server::OPERATOR);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Asks until the answer is yes.
pub(crate) fn until(what: &str, mut asked: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !asked() {
        assert!(begun.elapsed() < PATIENCE, "{what}: waited for nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
}
