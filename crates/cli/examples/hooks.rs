//! How long a hook's whole run takes, from the start of its process to its end: `make bench-hooks`.
//!
//! Warm is with the program in the system's memory, as it is while an agent works; cold is with the
//! program put out of it before each run.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench that cannot go on stops")]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};

struct Bench {
    program: PathBuf,
    folder: tempfile::TempDir,
    server: Option<String>,
}

impl Bench {
    fn hook(&self, event: &str, number: usize) -> Duration {
        let input = format!(
            r#"{{"session_id":"s{}","hook_event_name":"{event}","tool_name":"Bash","tool_use_id":"t{number}",
            "tool_input":{{"command":"cargo test --package number-{number} && git status"}},"tool_response":"ok {number}"}}"#,
            number % 7
        );
        let mut command = Command::new(&self.program);
        command.args(["hook", "claude-code", event]).env_clear().env("HOME", self.folder.path());
        command.envs(self.server.iter().map(|url| ("DEADSTOP_SERVER", url)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let began = Instant::now();
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        let took = began.elapsed();
        assert!(done.status.success() && done.stdout.is_empty(), "{done:?}");
        took
    }

    fn cold(&self) {
        let file = File::open(&self.program).unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
}

fn report(name: &str, mut took: Vec<Duration>) {
    took.sort();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0;
    println!(
        "{name:<34} median {:>7.2} ms   p99 {:>7.2} ms   ({} runs)",
        at(0.5),
        at(0.99),
        took.len()
    );
}

fn rounds(bench: &Bench, where_: &str) {
    for number in 0..20 {
        bench.hook("PreToolUse", number);
    }
    let warm =
        |event: &str, from: usize| (from..from + 400).map(|n| bench.hook(event, n)).collect();
    report(&format!("{where_}, before a tool, warm"), warm("PreToolUse", 1000));
    report(&format!("{where_}, after a tool, warm"), warm("PostToolUse", 1000));
    let cold = (5000..5100).map(|number| {
        bench.cold();
        bench.hook("PreToolUse", number)
    });
    report(&format!("{where_}, before a tool, cold"), cold.collect());
}

fn main() {
    let program = std::env::args_os().nth(1).map(PathBuf::from);
    let program = program.unwrap_or_else(|| Path::new("target/release/deadstop").to_owned());
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Bench { program, folder, server: None };
    let nothing = (0..400).map(|_| {
        let began = Instant::now();
        Command::new("true").status().unwrap();
        began.elapsed()
    });
    report("`true`, for comparison", nothing.collect());
    rounds(&bench, "local files");

    let mut server = Command::new(&bench.program)
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(bench.folder.path().join("data"))
        .env_clear()
        .env("HOME", bench.folder.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok);
    bench.server = lines.find_map(|line| {
        let rest = line.strip_prefix("deadstop listens on ")?.split([' ', ',']).next()?;
        Some(rest.trim_end_matches('.').to_owned())
    });
    std::thread::spawn(move || lines.for_each(drop));
    assert!(bench.server.is_some(), "the server did not start");
    rounds(&bench, "server");
    server.kill().unwrap();
    server.wait().unwrap();
}
