//! A gate on local files, many at once, with files that are damaged and servers that are away.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;

use deadstop_client::Server;
use deadstop_core::{Status, TopUp, Verdict};
use deadstop_gate::{Ask, By, Gate, Given, Judgement, Order, OrderError, ScopePath, Setup, Whom};
use serde_json::json;
use tempfile::TempDir;

struct Stage {
    folder: TempDir,
    policy: String,
}

impl Stage {
    fn new(policy: &str) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policy.toml"), policy).unwrap();
        let policy = folder.path().join("policy.toml").display().to_string();
        Stage { folder, policy }
    }

    fn gate(&self, server: Option<Server>) -> Gate {
        Gate::open(Setup {
            alone: server.is_none(),
            server,
            policy: Some(self.policy.clone()),
            folder: Some(self.folder.path().join("gate")),
            ..Setup::default()
        })
    }

    fn files(&self, ending: &str) -> Vec<PathBuf> {
        fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.path().is_dir() {
                    walk(&entry.path(), found);
                } else {
                    found.push(entry.path());
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.folder.path().join("gate"), &mut found);
        found.retain(|path| path.to_string_lossy().ends_with(ending));
        found
    }
}

fn place() -> ScopePath {
    ScopePath { agent: "coder".into(), session: "s1".into(), scope: Vec::new() }
}

fn ask(id: &str, tool: &str, argument: &str) -> Ask {
    Ask {
        place: place(),
        id: id.into(),
        tool: tool.into(),
        server: None,
        arguments: json!({ "path": argument }),
        cwd: None,
        spawns: false,
        trace: None,
    }
}

/// Found from outside: an id that was used before let any call pass.
#[test]
fn hole_02_a_reused_id_does_not_inherit_a_verdict() {
    let stage = Stage::new("[access]\ndeny = [\"evil_tool\"]\n");
    let gate = stage.gate(None);
    assert_eq!(gate.ask(&ask("y", "ls", "a")).verdict, Verdict::Allow);
    // The same call again is no second one.
    assert_eq!(gate.ask(&ask("y", "ls", "a")).verdict, Verdict::Allow);
    let evil = gate.ask(&ask("y", "evil_tool", "a"));
    assert!(!evil.allowed(), "{evil:?}");
    // The same tool with other arguments is judged and counted as well.
    let stage = Stage::new("[steps]\nmax_steps = 1\n");
    let gate = stage.gate(None);
    assert_eq!(gate.ask(&ask("y", "ls", "a")).verdict, Verdict::Allow);
    assert!(!gate.ask(&ask("y", "ls", "b")).allowed());
}

/// Found from outside: other users could read what lies in local files.
#[test]
fn hole_07_local_files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::new("");
    let gate = stage.gate(None);
    gate.ask(&ask("1", "ls", "a"));
    gate.kill(&place(), "me", "enough").unwrap();
    let files = stage.files("");
    assert!(files.len() > 3, "{files:?}");
    for file in files {
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&file), 0o600, "{}", file.display());
        assert_eq!(mode(file.parent().unwrap()), 0o700, "{}", file.display());
    }
}

/// A server that is not there.
fn away() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    Server::at(format!("http://{}", listener.local_addr().unwrap()))
}

/// A server that gives one answer and is gone.
fn once(status: &'static str, body: &'static str) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::at(format!("http://{}", listener.local_addr().unwrap()));
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        drop(listener);
        let mut seen = Vec::new();
        let mut buffer = [0; 4096];
        while !seen.ends_with(b"}") {
            let read = stream.read(&mut buffer).unwrap();
            seen.extend_from_slice(&buffer[..read]);
        }
        let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: ");
        write!(stream, "{head}{}\r\n\r\n{body}", body.len()).unwrap();
    });
    server
}

#[test]
fn fifty_at_once_get_exactly_what_is_left() {
    let stage = Stage::new("[steps]\nmax_steps = 10\n");
    let answers: Vec<Judgement> = thread::scope(|scope| {
        let asked: Vec<_> = (0..50)
            .map(|n| {
                let stage = &stage;
                scope.spawn(move || {
                    stage.gate(None).ask(&ask(&format!("t{n}"), "read", &n.to_string()))
                })
            })
            .collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    assert_eq!(answers.iter().filter(|answer| answer.allowed()).count(), 10);
    assert!(answers.iter().all(|answer| answer.by == By::Local && answer.notice.is_none()));
    // The same call asked for again is the same call, not another one, until the session is dead.
    assert_eq!(stage.gate(None).ask(&ask("t51", "read", "x")).verdict, Verdict::Kill);
}

#[test]
fn what_is_said_twice_is_said_once_and_what_ends_is_learnt_from() {
    let stage = Stage::new("preset = \"strict\"\n[steps]\nmax_steps = 6\n");
    let gate = stage.gate(None);
    for _ in 0..20 {
        assert!(gate.ask(&ask("same", "read", "a")).allowed());
    }
    assert!(gate.settle(&place(), "same", Status::Ok, Some("nothing")).allowed());
    assert!(gate.settle(&place(), "never asked", Status::Ok, Some("nothing")).allowed());
    for n in 0..3 {
        assert!(gate.ask(&ask(&format!("t{n}"), "read", "a")).allowed());
        gate.settle(&place(), &format!("t{n}"), Status::Ok, Some("nothing"));
    }
    for n in 4..7 {
        let refused = gate.ask(&ask(&format!("t{n}"), "read", "a"));
        let guard = refused.trips[0].guard.as_str();
        assert_eq!((refused.verdict, guard), (Verdict::Block, "loop"), "t{n}");
    }
    let stopped = gate.ask(&ask("t7", "read", "a"));
    assert_eq!((stopped.verdict, stopped.trips[0].guard.as_str()), (Verdict::Kill, "loop"));
    let standing = stage.gate(None).standing(&place(), Some("please go on"));
    assert_eq!(standing.verdict, Verdict::Kill);
    assert!(
        standing.why().starts_with("stopped: session s1 was ended: read"),
        "{}",
        standing.why()
    );
}

#[test]
fn a_persons_new_words_start_afresh() {
    let stage = Stage::new("preset = \"strict\"\n");
    for words in
        ["look at the weather in Oslo please", "and now once more, for the tests of tomorrow"]
    {
        let gate = stage.gate(None);
        assert!(gate.standing(&place(), Some(words)).allowed());
        for n in 0..3 {
            let id = format!("{words}{n}");
            assert!(gate.ask(&ask(&id, "read", "a")).allowed());
            gate.settle(&place(), &id, Status::Ok, Some("nothing"));
        }
    }
}

#[test]
fn nested_scopes_repeat_themselves_apart() {
    let stage = Stage::new("preset = \"strict\"\n");
    let gate = stage.gate(None);
    for n in 0..4 {
        for scope in ["a", "b"] {
            let mut ask = ask(&format!("{scope}{n}"), "read", "a");
            ask.place.scope = vec![scope.to_owned()];
            assert!(gate.ask(&ask).allowed());
            gate.settle(&ask.place, &ask.id, Status::Ok, Some("nothing"));
        }
    }
}

#[test]
fn a_kill_outlives_its_files_being_damaged() {
    let stage = Stage::new("[steps]\nmax_steps = 1\n");
    assert!(stage.gate(None).ask(&ask("t1", "read", "a")).allowed());
    assert_eq!(stage.gate(None).ask(&ask("t2", "read", "b")).verdict, Verdict::Kill);
    for file in stage.files(".session") {
        fs::write(file, "nonsense").unwrap();
    }
    assert_eq!(stage.gate(None).ask(&ask("t3", "read", "c")).verdict, Verdict::Kill);
    for file in stage.files(".killed") {
        fs::write(file, "").unwrap();
    }
    assert_eq!(stage.gate(None).ask(&ask("t4", "read", "c")).verdict, Verdict::Kill);
}

#[test]
fn damaged_files_are_answered_as_the_policy_says() {
    for (mode, allowed, by) in [("open", true, By::Local), ("closed", false, By::FailMode)] {
        for damage in [&b""[..], b"\x01", b"\x07another version", &[0xff; 5_000_000]] {
            let stage = Stage::new(&format!("fail_mode = \"{mode}\"\n"));
            assert!(stage.gate(None).ask(&ask("t1", "read", "a")).allowed());
            for file in stage.files(".session") {
                fs::write(file, damage).unwrap();
            }
            let answer = stage.gate(None).ask(&ask("t2", "read", "b"));
            assert_eq!((answer.allowed(), answer.by), (allowed, by), "{mode}: {answer:?}");
            let said = format!("{:?} {}", answer.notice, answer.why());
            assert!(said.contains("delete it to start afresh"), "{said}");
            assert_eq!(stage.files(".damaged").len(), usize::from(allowed));
        }
    }
}

#[test]
fn a_folder_that_cannot_be_used_is_answered_as_the_policy_says() {
    for (mode, allowed) in [("open", true), ("closed", false)] {
        let stage = Stage::new(&format!("fail_mode = \"{mode}\"\n"));
        fs::write(stage.folder.path().join("gate"), "a file in its place").unwrap();
        let answer = stage.gate(None).ask(&ask("t1", "read", "a"));
        assert_eq!((answer.allowed(), answer.by), (allowed, By::FailMode));
        assert!(answer.notice.is_some() != answer.why().starts_with("blocked: "));
    }
}

#[test]
fn a_server_that_is_away_is_replaced_or_missed() {
    for (mode, by, allowed) in [("open", By::Local, true), ("closed", By::FailMode, false)] {
        let stage = Stage::new(&format!("fail_mode = \"{mode}\"\n"));
        let answer = stage.gate(Some(away())).ask(&ask("t1", "read", "a"));
        assert_eq!((answer.by, answer.allowed()), (by, allowed), "{answer:?}");
    }
}

const DEAD: &str = r#"{"status":403,"code":"session_killed","detail":"session s1 was ended: enough","decision":null}"#;
const FINE: &str = r#"{"calls":[{"id":"t1","allowed":true,"verdict":"allow","trips":[]}]}"#;

#[test]
fn a_kill_that_a_server_told_holds_while_it_is_away() {
    let stage = Stage::new("");
    let killed = stage.gate(Some(once("403 Forbidden", DEAD))).ask(&ask("t1", "read", "a"));
    assert_eq!((killed.verdict, killed.by), (Verdict::Kill, By::Server));
    let later = stage.gate(Some(away())).ask(&ask("t2", "read", "a"));
    assert_eq!((later.verdict, later.by), (Verdict::Kill, By::Local));
    assert!(later.why().contains("enough"));
    // The server may take it back: an operator has reset the session.
    assert!(stage.gate(Some(once("200 OK", FINE))).ask(&ask("t1", "read", "a")).allowed());
    assert!(stage.gate(Some(away())).ask(&ask("t3", "read", "a")).allowed());
}

#[test]
fn a_kill_of_ours_holds_whatever_a_server_says() {
    let stage = Stage::new("[steps]\nmax_steps = 1\n");
    stage.gate(None).ask(&ask("t1", "read", "a"));
    assert_eq!(stage.gate(None).ask(&ask("t2", "read", "a")).verdict, Verdict::Kill);
    let answer = stage.gate(Some(once("200 OK", FINE))).ask(&ask("t1", "read", "a"));
    assert_eq!((answer.verdict, answer.by), (Verdict::Kill, By::Local));
}

#[test]
fn a_policy_that_cannot_be_read_is_a_strict_one() {
    for (policy, allowed) in [("fail_mode = \"closed\"\n[budge]\n", false), ("[budge]\n", true)] {
        let stage = Stage::new(policy);
        let answer = stage.gate(Some(away())).ask(&ask("t1", "read", "a"));
        assert_eq!(answer.allowed(), allowed);
        assert!(answer.notice.is_some_and(|notice| notice.contains("strict")) || !allowed);
    }
}

/// Found from outside: a resume of what was killed said that it was done.
#[test]
fn what_was_killed_is_not_resumed() {
    let stage = Stage::new("");
    let gate = stage.gate(None);
    let order = |order, whom: &Whom| {
        gate.order(whom, Given { order, by: "ada", reason: "because", in_advance: true })
    };
    let session = Whom::Session { agent: "coder".into(), session: "s1".into() };
    let agent = Whom::Agent("coder".into());
    order(Order::Kill, &session).unwrap();
    assert!(matches!(order(Order::Resume, &session), Err(OrderError::Final)));
    order(Order::Kill, &agent).unwrap();
    assert!(matches!(order(Order::Resume, &agent), Err(OrderError::Killed("agent"))));
    order(Order::Clear, &agent).unwrap();
    order(Order::Pause, &agent).unwrap();
    order(Order::Resume, &agent).unwrap();
}

/// A limit ended the session; with more steps it goes on. A person's kill is final.
#[test]
fn a_session_that_a_limit_ended_goes_on_with_more() {
    let stage = Stage::new("[steps]\nmax_steps = 2\n");
    let look = |n: u64| {
        stage.gate(None).ask(&Ask {
            place: place(),
            id: format!("t{n}"),
            tool: "look".into(),
            server: None,
            arguments: json!({ "n": n }),
            cwd: None,
            spawns: false,
            trace: None,
        })
    };
    let more = |steps| {
        let more = TopUp { steps, ..TopUp::default() };
        stage.gate(None).top_up_here("coder", "s1", more, ("ada", "two more files"))
    };
    assert!(matches!(more(1), Err(OrderError::Unknown("session"))));
    let verdicts = |calls: std::ops::RangeInclusive<u64>| -> Vec<Verdict> {
        calls.map(|n| look(n).verdict).collect()
    };
    let kill = Verdict::Kill;
    let told = verdicts(1..=3);
    assert!(told[1] < kill && told[2] == kill, "{told:?}");
    assert_eq!(more(2).unwrap().state, "active");
    let told = verdicts(4..=6);
    assert!(told[0] <= Verdict::Steer && told[1] < kill && told[2] == kill, "{told:?}");
    let [newest, ..] = &stage.gate(None).orders_here().unwrap()[..] else { panic!("no record") };
    assert_eq!((newest.action.as_str(), newest.who.as_str()), ("session.top_up", "ada"));

    assert_eq!(more(5).unwrap().state, "active");
    assert!(look(7).verdict <= Verdict::Steer);
    stage.gate(None).kill(&place(), "ada", "enough").unwrap();
    assert!(matches!(more(5), Err(OrderError::Final)));
    assert_eq!(look(8).verdict, kill);
}
