//! A Redis of one's own, which may be killed, frozen and started again.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::PATIENCE;

/// The server; it goes with the last who holds it.
#[derive(Clone)]
pub(crate) struct Redis {
    pub(crate) address: String,
    folder: Arc<Folder>,
}

/// How nodes reach it, and which program they are.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) program: PathBuf,
    pub(crate) address: String,
    /// A file with certificates that they trust.
    pub(crate) trusted: Option<PathBuf>,
}

struct Folder(String);

impl Way {
    /// To an address, for the program that is tested.
    pub(crate) fn to(address: &str) -> Way {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_deadstop"));
        Way { program, address: address.to_owned(), trusted: None }
    }
}

impl Redis {
    /// Starts one by the project's script, which also ends it should this program die.
    pub(crate) fn start() -> Redis {
        Redis::with(&[])
    }

    /// The same with options of the server's.
    pub(crate) fn with(options: &[&str]) -> Redis {
        let own = std::process::id().to_string();
        Redis::started(&[&["start", own.as_str()], options].concat())
    }

    /// A sentinel that has another server take over from one, once that is gone.
    pub(crate) fn sentinel(watched: &Redis) -> Redis {
        Redis::started(&["sentinel", &std::process::id().to_string(), &watched.port().to_string()])
    }

    /// One that follows another.
    pub(crate) fn replica(of: &Redis) -> Redis {
        Redis::with(&["--replicaof", "127.0.0.1", &of.port().to_string()])
    }

    /// Three that share all keys among them.
    pub(crate) fn cluster() -> [Redis; 3] {
        let all = [0, 1, 2].map(|_| {
            let bus = free_port().to_string();
            (Redis::with(&["--cluster-enabled", "yes", "--cluster-port", &bus]), bus)
        });
        for (at, (redis, _)) in all.iter().enumerate() {
            let (from, to) = (at * 16_384 / 3, (at + 1) * 16_384 / 3 - 1);
            redis.say(&format!("CLUSTER ADDSLOTSRANGE {from} {to}"));
            for (other, bus) in &all {
                redis.say(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", other.port()));
            }
        }
        let all = all.map(|(redis, _)| redis);
        let fine = |redis: &Redis| {
            let said = redis.tells("CLUSTER INFO");
            said.contains("cluster_state:ok") && said.contains("cluster_known_nodes:3")
        };
        until(|| all.iter().all(fine));
        all
    }

    fn started(arguments: &[&str]) -> Redis {
        let said = script(arguments);
        let mut lines = said.lines().map(str::to_owned);
        let (folder, address) = (lines.next().expect("a folder"), lines.next().expect("a URL"));
        Redis { address, folder: Arc::new(Folder(folder)) }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        let text = std::fs::read_to_string(format!("{}/pid", self.folder.0)).unwrap();
        text.trim().parse().unwrap()
    }

    /// Nodes reach it as it is.
    pub(crate) fn way(&self) -> Way {
        Way::to(&self.address)
    }

    /// Where it listens.
    pub(crate) fn place(&self) -> SocketAddr {
        self.address.trim_start_matches("redis://").trim_end_matches("/0").parse().unwrap()
    }

    pub(crate) fn port(&self) -> u16 {
        self.place().port()
    }

    /// Tells it something; it must agree.
    pub(crate) fn say(&self, line: &str) {
        assert_eq!(self.ask(line).1, "+OK", "{line}");
    }

    /// Cuts all subscriptions and forbids new ones: nodes get no messages. Gives how many it cut.
    pub(crate) fn deafen(&self) -> usize {
        self.say("ACL SETUSER default -subscribe");
        let said = self.ask("CLIENT KILL TYPE pubsub").1;
        said.trim_start_matches(':').parse().unwrap()
    }

    /// What it has to say about something, at length.
    pub(crate) fn tells(&self, line: &str) -> String {
        let (mut wire, first) = self.ask(line);
        let bytes = first.strip_prefix('$').unwrap_or_else(|| panic!("{line}: {first}"));
        let mut said = vec![0; bytes.parse().unwrap()];
        wire.read_exact(&mut said).unwrap();
        String::from_utf8(said).unwrap()
    }

    fn ask(&self, line: &str) -> (BufReader<TcpStream>, String) {
        let mut wire = TcpStream::connect(self.place()).unwrap();
        wire.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let (mut wire, mut said) = (BufReader::new(wire), String::new());
        wire.read_line(&mut said).unwrap();
        (wire, said.trim_end().to_owned())
    }

    /// Waits until a server that follows this one has all that it has.
    pub(crate) fn followed_by(&self, replica: &Redis) {
        let offset = |redis: &Redis, name: &str| {
            let said = redis.tells("INFO replication");
            let line = said.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
            line.and_then(|line| line.trim().parse::<u64>().ok())
        };
        until(|| {
            let has = offset(self, "master_repl_offset:");
            let link = replica.tells("INFO replication").contains("master_link_status:up");
            link && has.is_some() && offset(replica, "slave_repl_offset:") >= has
        });
    }

    /// Kills it outright.
    pub(crate) fn kill(&self) {
        script(&["pause", &self.folder.0]);
    }

    /// Starts it again, on the same port and empty.
    pub(crate) fn revive(&self) {
        script(&["resume", &self.folder.0]);
    }

    /// Suspends it: the kernel takes connections, and Redis answers none.
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

/// A port that is free at this moment.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn until(mut so: impl FnMut() -> bool) {
    let asked = Instant::now();
    while !so() {
        assert!(asked.elapsed() < PATIENCE, "a Redis does not get ready");
        std::thread::sleep(Duration::from_millis(20));
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
