//! A server that runs, a provider behind it, agents that call, and the program itself as people
//! and programs use it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

#[path = "../common/provider.rs"]
mod provider;
#[path = "../common/server.rs"]
mod server;

use provider::Provider;
pub(crate) use server::OPERATOR;
use server::Server;

/// Asked again and again, it is a loop to the similarity guard.
const PROMPT: &str = "please look up how many rows the file report.csv in the folder of reports \
     has and tell me the number as soon as you know it, thank you";

/// A run of the program.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// The rows of its table as cells, without the head.
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        let cells = |line: &str| line.split('\t').map(str::to_owned).collect();
        self.out.lines().filter(|line| line.contains('\t')).skip(1).map(cells).collect()
    }

    /// The lines of a timeline, below its head.
    pub(crate) fn calls(&self) -> Vec<&str> {
        let lines = self.out.lines().skip_while(|line| !line.contains("  verdict  "));
        lines.skip(1).take_while(|line| !line.is_empty()).collect()
    }

    /// Its lines of JSON.
    pub(crate) fn json(&self) -> Vec<Value> {
        let read = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{self:?}"));
        self.out.lines().map(read).collect()
    }

    /// It went well.
    #[track_caller]
    pub(crate) fn fine(self) -> Said {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// It failed, with these words, and said what to do.
    #[track_caller]
    pub(crate) fn refused(&self, problem: &str, hint: &str) {
        assert_eq!((self.code, self.out.as_str()), (2, ""), "{self:?}");
        let (error, advice) = self.err.split_once("\nhint: ").unwrap_or_else(|| panic!("{self:?}"));
        assert!(error.contains(problem), "{problem}: {self:?}");
        assert!(advice.contains(hint), "{hint}: {self:?}");
    }
}

/// All of it.
pub(crate) struct House {
    folder: TempDir,
    pub(crate) provider: Provider,
    server: Option<Server>,
}

impl House {
    pub(crate) fn new() -> House {
        House::under("preset = \"balanced\"\n[similarity]\nenabled = true\n")
    }

    /// One under this policy.
    pub(crate) fn under(policy: &str) -> House {
        let folder = TempDir::new().unwrap();
        let provider = Provider::start(r#"{"file":"report.csv"}"#);
        let toml = format!(
            "policy = \"policy.toml\"\nprivate_alerts = true\n[providers.openai]\nbase_url = \"{}\"\n",
            provider.url("")
        );
        std::fs::write(folder.path().join("deadstop.toml"), toml).unwrap();
        std::fs::write(folder.path().join("policy.toml"), policy).unwrap();
        let server = Some(Server::start(folder.path()));
        House { folder, provider, server }
    }

    pub(crate) fn url(&self) -> &str {
        self.server.as_ref().map_or("http://127.0.0.1:1", |server| server.url.as_str())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn data(&self) -> String {
        self.path("data").display().to_string()
    }

    /// Ends the server as Ctrl-C does.
    pub(crate) fn stop(&mut self) {
        let mut server = self.server.take().unwrap();
        let id = server.process.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        server.process.wait().unwrap();
    }

    pub(crate) fn start(&mut self) {
        self.server = Some(Server::start(self.folder.path()));
    }

    /// The program, asking this house's server.
    pub(crate) fn ask(&self, args: &[&str]) -> Said {
        self.ask_as("", args)
    }

    /// The same with a key.
    pub(crate) fn ask_as(&self, key: &str, args: &[&str]) -> Said {
        let variables = [("DEADSTOP_SERVER", self.url()), ("DEADSTOP_KEY", key)];
        deadstop(self.folder.path(), &variables, args, "")
    }

    /// The program, which goes on: what it prints is read while it runs.
    pub(crate) fn begin(&self, args: &[&str]) -> Child {
        begin(self.folder.path(), &[("DEADSTOP_SERVER", self.url())], args)
    }

    /// The program without a server.
    pub(crate) fn alone(&self, args: &[&str]) -> Said {
        deadstop(self.folder.path(), &[], args, "")
    }

    /// The program with something on its stdin.
    pub(crate) fn tell(&self, args: &[&str], stdin: &str) -> Said {
        deadstop(self.folder.path(), &[("DEADSTOP_SERVER", self.url())], args, stdin)
    }

    /// The program with these variables.
    pub(crate) fn with(&self, variables: &[(&str, &str)], args: &[&str]) -> Said {
        deadstop(self.folder.path(), variables, args, "")
    }

    /// An agent's call: the status of its answer.
    pub(crate) fn call(&self, agent: &str, session: &str, headers: &str) -> u16 {
        let body = serde_json::json!({
            "model": "gpt-4o", "messages": [{ "role": "user", "content": PROMPT }],
        });
        let path = format!("/agent/{agent}/openai/v1/chat/completions");
        let headers = format!("x-deadstop-session: {session}\r\n{headers}");
        let answer = self.post(&path, &headers, &body);
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// A tool call that an agent would make: the approval that it waits for.
    pub(crate) fn propose(&self, agent: &str, session: &str, id: &str) -> String {
        self.propose_about(agent, session, id, "fact_sales")
    }

    /// The same, with this asset.
    pub(crate) fn propose_about(
        &self,
        agent: &str,
        session: &str,
        id: &str,
        asset: &str,
    ) -> String {
        let arguments = serde_json::json!({ "asset_id": asset });
        let call = serde_json::json!({ "id": id, "tool": "delete_asset", "arguments": arguments });
        let path = format!("/api/sessions/{agent}/{session}/proposal");
        let answer = self.post(&path, "", &serde_json::json!({ "calls": [call] }));
        let body = answer.split("\r\n\r\n").nth(1).unwrap();
        let body: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
        body["calls"][0]["approval"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned()
    }

    pub(crate) fn post(&self, path: &str, headers: &str, body: &Value) -> String {
        self.raw("POST", path, headers, body)
    }

    /// A request without a key: status, head and body of its answer.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &Value,
    ) -> (u16, String, Value) {
        let answer = self.raw(method, path, headers, body);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.replace('\r', ""), serde_json::from_str(body).unwrap_or_default())
    }

    /// The same for one that only looks.
    pub(crate) fn get(&self, path: &str, headers: &str) -> (u16, Value) {
        let (status, _, body) = self.send("GET", path, headers, &Value::Null);
        (status, body)
    }

    fn raw(&self, method: &str, path: &str, headers: &str, body: &Value) -> String {
        let host = self.url().strip_prefix("http://").unwrap();
        let body = body.to_string();
        let mut stream = TcpStream::connect(host).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n{headers}\
             connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Waits until a list has so many entries: what is not urgent is written in batches.
    pub(crate) fn until(&self, args: &[&str], count: usize) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let all = [args, &["--json"]].concat();
        while self.ask(&all).fine().json().len() < count {
            assert!(Instant::now() < deadline, "{args:?} never has {count} entries");
        }
    }

    /// An agent that repeats itself until it is stopped.
    pub(crate) fn run_away(&self, agent: &str, session: &str) {
        for _ in 0..20 {
            if self.call(agent, session, "") == 403 {
                return;
            }
        }
        panic!("it was not stopped");
    }
}

/// The program in a folder, with nothing of this machine's environment that could change it.
fn deadstop(folder: &Path, variables: &[(&str, &str)], args: &[&str], stdin: &str) -> Said {
    let mut child = begin(folder, variables, args);
    // A program that does not read its stdin may be gone already.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

/// The same, which goes on.
fn begin(folder: &Path, variables: &[(&str, &str)], args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deadstop"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DEADSTOP")) {
        command.env_remove(name);
    }
    command
        .args(args)
        .current_dir(folder)
        .envs([("TZ", "UTC"), ("USER", "tester"), ("NO_COLOR", "1")])
        .env("HOME", folder)
        .env("DEADSTOP_OPERATOR_TOKEN", OPERATOR)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}
