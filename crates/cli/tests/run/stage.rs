//! What the tests of `deadstop run` play on: a provider, an agent, the program itself, and the
//! search for what is left of it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

#[path = "../common/provider.rs"]
mod provider;

pub(crate) use provider::Provider;

/// Nothing here takes longer.
const LONGEST: Duration = Duration::from_secs(30);

static COUNT: AtomicU32 = AtomicU32::new(0);

/// An agent that does what its model asks for, so many times; it goes on when it is refused.
pub(crate) const AGENT: &str = r#"
import json, os, sys, time, urllib.request, urllib.error
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
headers = {"content-type": "application/json", "authorization": "Bearer sk-mine"}
messages = [{"role": "user", "content": "look everything up"}]
for step in range(int(sys.argv[1])):
    body = json.dumps({"model": "gpt-4o", "messages": messages})
    try:
        request = urllib.request.Request(url, body.encode(), headers)
        message = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
        call = message["tool_calls"][0]["id"]
        messages += [message, {"role": "tool", "tool_call_id": call, "content": "nothing found"}]
        print("answered", flush=True)
    except urllib.error.HTTPError as error:
        print("refused", error.code, flush=True)
        time.sleep(0.05)
print("done")
"#;

/// A run of the program, in a folder and a process group of its own, with a mark on all its
/// processes.
pub(crate) struct Stage {
    folder: TempDir,
    marker: String,
    variables: Vec<(String, String)>,
}

/// How a run came out.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Outcome {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

impl Stage {
    pub(crate) fn new() -> Stage {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let marker = format!("deadstop-run-{}-{count}-end", std::process::id());
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("agent.py"), AGENT).unwrap();
        Stage { folder, marker, variables: Vec::new() }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Stage {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The file's text, once it has so many lines.
    pub(crate) fn lines(&self, name: &str, count: usize) -> String {
        let file = self.path(name);
        until(&format!("{count} lines in {name}"), || {
            fs::read_to_string(&file).is_ok_and(|text| text.lines().count() >= count)
        });
        fs::read_to_string(&file).unwrap()
    }

    /// Starts the program.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        // Shells make processes in the background ignore signals, and the tests would inherit that.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP,INT,QUIT,TERM").arg(env!("CARGO_BIN_EXE_deadstop"));
        for (name, _) in std::env::vars() {
            let name = name.as_str();
            if name.contains("_BASE") || name.contains("PROXY") || name.starts_with("DEADSTOP") {
                command.env_remove(name);
            }
        }
        let child = command
            .args(args)
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env("XDG_CONFIG_HOME", self.folder.path())
            .env("PYENV_ROOT", pyenv())
            .env("RUN_MARKER", &self.marker)
            // Not the server that the person who runs the tests may have.
            .env("DEADSTOP_SERVER", "none")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Running { child }
    }

    /// Runs the program to its end; afterwards nothing of it may be left.
    pub(crate) fn run(&self, args: &[&str]) -> Outcome {
        self.finish(self.start(args))
    }

    /// Waits until so many of this run are alive; one between `fork` and `exec` is seen a moment
    /// later.
    pub(crate) fn lives(&self, least: usize) {
        until(&format!("{least} living processes"), || bearers(&self.marker).len() >= least);
    }

    /// Waits until nothing of this run is alive.
    pub(crate) fn dies(&self) {
        until("nothing is left", || bearers(&self.marker).is_empty());
    }

    pub(crate) fn finish(&self, running: Running) -> Outcome {
        let outcome = running.finish(b"");
        assert_eq!(bearers(&self.marker), Vec::<u32>::new(), "survivors of {outcome:?}");
        outcome
    }
}

/// Where pyenv is, if python is pyenv's: it looks in the home folder, which is another one here.
fn pyenv() -> String {
    let home = std::env::var("HOME").unwrap_or_default();
    std::env::var("PYENV_ROOT").unwrap_or(format!("{home}/.pyenv"))
}

/// A program that runs.
pub(crate) struct Running {
    pub(crate) child: Child,
}

impl Running {
    /// Sends a signal to its whole group, as a terminal does.
    pub(crate) fn signal_group(&self, signal: &str) {
        send(signal, &format!("-{}", self.child.id()));
    }

    /// Sends a signal to it alone.
    pub(crate) fn signal(&self, signal: &str) {
        send(signal, &self.child.id().to_string());
    }

    pub(crate) fn finish(mut self, input: &[u8]) -> Outcome {
        let mut stdin = self.child.stdin.take().unwrap();
        let input = input.to_owned();
        thread::spawn(move || stdin.write_all(&input));
        let stdout = collect(self.child.stdout.take().unwrap());
        let stderr = collect(self.child.stderr.take().unwrap());
        let deadline = Instant::now() + LONGEST;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                self.signal("TERM");
                panic!("it does not end");
            }
            thread::sleep(Duration::from_millis(2));
        };
        Outcome {
            code: status.code().unwrap(),
            stdout: stdout.join().unwrap(),
            stderr: String::from_utf8(stderr.join().unwrap()).unwrap(),
        }
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut read = Vec::new();
        pipe.read_to_end(&mut read).unwrap();
        read
    })
}

fn send(signal: &str, to: &str) {
    let sent = Command::new("kill").args([&format!("-{signal}"), "--", to]).status().unwrap();
    assert!(sent.success());
}

/// Gives an order to a server, as `deadstop kill` does.
pub(crate) fn order(server: &str, path: &str, body: &str) -> String {
    let host = server.trim().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    // The server may be gone before it has answered: it dies with its run.
    let _ = stream.read_to_string(&mut answer);
    answer
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONGEST;
    while !holds() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// All living processes that bear a marker in their arguments or their environment.
fn bearers(marker: &str) -> Vec<u32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let bears = |file: &Path| {
        let text = fs::read(file).unwrap_or_default();
        text.windows(marker.len()).any(|window| window == marker.as_bytes())
    };
    pids.filter(|pid| {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        bears(&folder.join("cmdline")) || bears(&folder.join("environ"))
    })
    .collect()
}
