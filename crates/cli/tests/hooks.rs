//! `deadstop hook` as hosts call it: the real program, one process an event, with local files and with
//! the real server.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;

use deadstop_client::Client;
use deadstop_protocol::hook::{Host, Moment, Output};
use deadstop_protocol::told;
use serde_json::{Value, json};
use tempfile::TempDir;

#[path = "hooks/doctor.rs"]
mod doctor;
#[path = "hooks/install.rs"]
mod install;
#[path = "hooks/orders.rs"]
mod orders;
#[path = "common/server.rs"]
mod server;
#[path = "hooks/swarm.rs"]
mod swarm;

use server::Server;

/// A home of its own.
struct Stage {
    folder: TempDir,
    /// The server that the environment names.
    server: Option<String>,
}

impl Stage {
    fn new(policy: &str) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policy.toml"), policy).unwrap();
        Stage { folder, server: Some(absent()) }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_deadstop"));
        command.env_clear().env("HOME", self.folder.path()).current_dir(self.folder.path());
        command.env("DEADSTOP_POLICY", self.folder.path().join("policy.toml"));
        command.envs(self.server.iter().map(|url| ("DEADSTOP_SERVER", url)));
        command
    }

    fn hook(&self, host: Host, input: &str) -> Output {
        self.run(self.command().args(["hook", host.name(), event(host)]), input)
    }

    fn run(&self, command: &mut Command, input: &str) -> Output {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        // One that does not want to hear it all may leave before the end.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        Output {
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code().unwrap().try_into().unwrap(),
        }
    }
}

/// The URL of a server that is not there.
fn absent() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// No server at all, whatever runs on this machine.
fn none() -> Option<String> {
    Some("none".to_owned())
}

/// The event before a tool runs.
fn event(host: Host) -> &'static str {
    host.events()[0].0
}

/// A tool that is about to run, as a host says it.
fn before(host: Host, id: &str, command: &str) -> String {
    let input = json!({ "command": command });
    let said = match host {
        Host::ClaudeCode | Host::Codex => {
            json!({ "session_id": "s", "transcript_path": "/t", "cwd": "/w",
            "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": input, "tool_use_id": id })
        }
        Host::Qwen => json!({ "session_id": "s", "hook_event_name": "PreToolUse", "cwd": "/w",
            "tool_name": "run_shell_command", "tool_input": input, "tool_use_id": id }),
        Host::Generic => json!({ "event": "before", "session": "s", "tool": "shell",
            "arguments": input, "call": id }),
        Host::Gemini => json!({ "session_id": "s", "hook_event_name": "BeforeTool", "cwd": "/w",
            "timestamp": "2026-01-01T00:00:00Z", "tool_name": "run_shell_command", "tool_input": input }),
        Host::Cursor => {
            json!({ "conversation_id": "s", "generation_id": "g", "hook_event_name": "preToolUse",
            "tool_name": "Shell", "tool_input": input, "tool_use_id": id })
        }
        Host::OpenCode => json!({ "session_id": "s", "hook_event_name": "tool.execute.before",
            "tool_name": "bash", "tool_input": input, "tool_use_id": id }),
        Host::Copilot => json!({ "sessionId": "s", "timestamp": 1, "cwd": "/w", "toolName": "bash",
            "toolArgs": input.to_string() }),
    };
    said.to_string()
}

/// What a host prints to allow.
fn silence(host: Host) -> &'static str {
    match host {
        Host::ClaudeCode | Host::Codex | Host::Copilot | Host::Qwen => "",
        Host::Generic => r#"{"decision":"allow"}"#,
        Host::Gemini | Host::Cursor | Host::OpenCode => "{}",
    }
}

/// What a host is told when a call is refused, or when its session is dead.
fn refusal(host: Host, why: &str, dead: bool) -> Value {
    let (told, said) = (told::refusal(why), told::sentence(why));
    let specific = json!({ "hookEventName": event(host), "permissionDecision": "deny",
        "permissionDecisionReason": told });
    match (host, dead) {
        (Host::ClaudeCode, true) => {
            json!({ "continue": false, "stopReason": said, "hookSpecificOutput": specific })
        }
        (Host::Generic, dead) => {
            let decision = if dead { "stop" } else { "deny" };
            json!({ "decision": decision, "reason": told })
        }
        (Host::ClaudeCode | Host::Codex | Host::Qwen, _) => {
            json!({ "hookSpecificOutput": specific })
        }
        (Host::Gemini, true) => {
            json!({ "decision": "deny", "reason": told, "continue": false, "stopReason": said })
        }
        (Host::Gemini, false) => json!({ "decision": "deny", "reason": told }),
        (Host::Cursor, _) => {
            json!({ "permission": "deny", "user_message": said, "agent_message": told })
        }
        (Host::OpenCode, true) => json!({ "decision": "stop", "reason": told }),
        (Host::OpenCode, false) => json!({ "decision": "deny", "reason": told }),
        (Host::Copilot, _) => {
            json!({ "permissionDecision": "deny", "permissionDecisionReason": told })
        }
    }
}

#[track_caller]
fn says(host: Host, output: &Output, expected: &Value) {
    let said: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
    assert_eq!((&said, output.code), (expected, 0), "{host:?} {output:?}");
    assert!(host.refuses(event(host), output), "{host:?} {output:?}");
}

#[track_caller]
fn passes(host: Host, output: &Output) {
    assert_eq!((output.stdout.as_str(), output.code), (silence(host), 0), "{host:?} {output:?}");
    assert!(!host.refuses(event(host), output));
}

#[test]
fn every_host_is_allowed_denied_and_killed() {
    for host in Host::ALL {
        let stage = Stage::new(
            "[[access.rules]]\ntool = \"*\"\nargument = \"command\"\nmatches = \"*secret*\"\n[steps]\nmax_steps = 2\n",
        );
        passes(host, &stage.hook(host, &before(host, "t1", "ls")));
        let denied = stage.hook(host, &before(host, "t2", "cat secret"));
        let said: Value = serde_json::from_str(&denied.stdout).unwrap();
        assert!(said.to_string().contains("Deadstop blocked this call: "), "{said}");
        assert!(host.refuses(event(host), &denied), "{host:?} {denied:?}");
        passes(host, &stage.hook(host, &before(host, "t3", "pwd")));
        let why = "stopped: all 2 tool calls of the session s are used up";
        says(host, &stage.hook(host, &before(host, "t4", "df")), &refusal(host, why, true));
        let why = "stopped: session s was ended: all 2 tool calls of the session s are used up";
        says(host, &stage.hook(host, &before(host, "t5", "df")), &refusal(host, why, true));
    }
}

#[test]
fn without_a_server_that_was_named_the_fail_mode_decides() {
    for host in Host::ALL {
        let open = Stage::new("fail_mode = \"open\"\n");
        let output = open.hook(host, &before(host, "t1", "ls"));
        passes(host, &output);
        assert!(output.stderr.contains("connection refused; judged by local files"), "{output:?}");
        let closed = Stage::new("fail_mode = \"closed\"\n");
        let url = closed.server.clone().unwrap();
        let why = format!(
            "blocked: no answer from the server at {url}: connection refused, and the policy's fail_mode says closed"
        );
        says(host, &closed.hook(host, &before(host, "t1", "ls")), &refusal(host, &why, false));
    }
}

#[test]
fn what_cannot_be_read_is_answered_as_the_policy_says() {
    for host in Host::ALL {
        let mut open = Stage::new("");
        let mut closed = Stage::new("fail_mode = \"closed\"\n");
        (open.server, closed.server) = (none(), none());
        for nonsense in ["", "nonsense", "[1]", "{\"tool_name\":", "{}", "\u{1}"] {
            passes(host, &open.hook(host, nonsense));
            let output = closed.hook(host, nonsense);
            assert!(host.refuses(event(host), &output), "{host:?} {nonsense} {output:?}");
            assert!(output.stderr.contains("the hook's input"), "{output:?}");
        }
    }
}

#[test]
fn states_that_are_damaged_are_answered_as_the_policy_says() {
    for (mode, refused) in [("open", false), ("closed", true)] {
        let mut stage = Stage::new(&format!("fail_mode = \"{mode}\"\n"));
        stage.server = none();
        fs::create_dir_all(stage.folder.path().join(".local/state")).unwrap();
        fs::write(stage.folder.path().join(".local/state/deadstop"), "in the way").unwrap();
        let output = stage.hook(Host::Codex, &before(Host::Codex, "t", "ls"));
        assert_eq!(Host::Codex.refuses("PreToolUse", &output), refused, "{output:?}");
    }
}

#[test]
fn a_dead_session_is_told_so_at_its_prompt_and_at_its_end() {
    let stage = Stage::new("[steps]\nmax_steps = 1\n");
    for host in [Host::ClaudeCode, Host::Codex] {
        stage.hook(host, &before(host, "t1", "ls"));
        stage.hook(host, &before(host, "t2", "ls"));
        for event in ["UserPromptSubmit", "Stop", "SessionStart"] {
            let input = json!({ "session_id": "s", "hook_event_name": event, "prompt": "go on" });
            let output = stage.run(stage.command().args(["hook", host.name()]), &input.to_string());
            let said: Value = serde_json::from_str(&output.stdout).unwrap();
            assert_eq!(said["continue"], false, "{host:?} {event}");
            let other = input.to_string().replace("\"s\"", "\"another\"");
            let output = stage.run(stage.command().args(["hook", host.name()]), &other);
            assert_eq!(output.stdout, "", "{host:?} {event}");
        }
    }
}

#[test]
fn a_tool_that_ends_is_settled_also_where_it_has_no_id() {
    // Five times the same for nothing is a loop; only results show that.
    for host in [Host::ClaudeCode, Host::Gemini, Host::Copilot] {
        let stage = Stage::new("preset = \"strict\"\n");
        let mut refused = None;
        for n in 0..8 {
            let said = before(host, &format!("t{n}"), "make test");
            let output = stage.hook(host, &said);
            if host.refuses(event(host), &output) {
                refused = Some(n);
                break;
            }
            let mut after: Value = serde_json::from_str(&said).unwrap();
            let name = host.events()[1].0;
            after["hook_event_name"] = name.into();
            after["tool_response"] = "error: no rule".into();
            after["toolResult"] =
                json!({ "resultType": "success", "textResultForLlm": "error: no rule" });
            stage.run(stage.command().args(["hook", host.name(), name]), &after.to_string());
        }
        assert_eq!(refused, Some(4), "{host:?}");
    }
}

/// The third time the model is told, behind the result; an agent that goes on is refused at the fifth,
/// and ended at the tenth.
#[test]
fn a_loop_is_steered_then_refused_then_ended() {
    let stage = Stage::new("preset = \"balanced\"\n");
    let host = Host::ClaudeCode;
    let mut said = Vec::new();
    for n in 1..=10 {
        let asked = before(host, &format!("t{n}"), "make test");
        let output = stage.hook(host, &asked);
        if host.refuses(event(host), &output) {
            let ends = output.stdout.contains("\"continue\":false");
            said.push(if ends { "ended" } else { "refused" });
            continue;
        }
        let mut after: Value = serde_json::from_str(&asked).unwrap();
        after["hook_event_name"] = "PostToolUse".into();
        after["tool_response"] = "error: no rule".into();
        let output = stage.hook(host, &after.to_string());
        let told = output.stdout.contains("additionalContext");
        if told {
            let note = format!("Deadstop: You have called `Bash` {n} times");
            assert!(output.stdout.contains(&note), "{}", output.stdout);
        }
        said.push(if told { "told" } else { "nothing" });
    }
    let expected = ["nothing", "nothing", "told", "told"];
    let expected = [&expected[..], &["refused"; 5], &["ended"]].concat();
    assert_eq!(said, expected);
}

/// What only a result shows, the server says at the receipt: the model reads it behind that result.
#[test]
fn a_steer_that_the_server_decides_at_the_end_of_a_call_is_told() {
    let mut stage = Stage::new("");
    let folder = tempfile::tempdir().unwrap();
    let policy = "[loop]\nsteer_at = 3\nblock_at = \"off\"\nend_at = \"off\"\n";
    fs::write(folder.path().join("policy.toml"), policy).unwrap();
    fs::write(folder.path().join("deadstop.toml"), "policy = \"policy.toml\"\n").unwrap();
    let server = Server::start(folder.path());
    stage.server = Some(server.url.clone());
    let host = Host::ClaudeCode;
    let told: Vec<bool> = (1..=3)
        .map(|n| {
            let asked = before(host, &format!("t{n}"), &format!("update-row {n}"));
            passes(host, &stage.hook(host, &asked));
            let mut after: Value = serde_json::from_str(&asked).unwrap();
            after["hook_event_name"] = "PostToolUse".into();
            after["tool_response"] =
                json!({ "is_error": true, "content": "error: table t is read-only" });
            stage.hook(host, &after.to_string()).stdout.contains("additionalContext")
        })
        .collect();
    assert_eq!(told, [false, false, true]);
}

/// An agent that does something else once it was told goes on.
#[test]
fn an_agent_that_follows_the_advice_goes_on() {
    let stage = Stage::new("preset = \"balanced\"\n");
    let host = Host::ClaudeCode;
    let mut used = 0;
    let mut call = |command: &str, result: &str| {
        used += 1;
        let asked = before(host, &format!("t{used}"), command);
        let output = stage.hook(host, &asked);
        assert!(!host.refuses(event(host), &output), "{command}: {}", output.stdout);
        let mut after: Value = serde_json::from_str(&asked).unwrap();
        after["hook_event_name"] = "PostToolUse".into();
        after["tool_response"] = result.into();
        stage.hook(host, &after.to_string()).stdout.contains("additionalContext")
    };
    let told: Vec<bool> = (0..3).map(|_| call("make test", "error: no rule")).collect();
    assert_eq!(told, [false, false, true]);
    for (command, result) in [
        ("cat Makefile", "build: cargo build"),
        ("cargo test", "12 passed"),
        ("git commit -am done", "1 file changed"),
    ] {
        assert!(!call(command, result), "{command}");
    }
}

/// Tells that the host has ended its session, as it would; false for a host that has no hook for that.
fn ends(stage: &Stage, host: Host) -> bool {
    let ends = host.events().iter().find(|(_, moment)| *moment == Moment::End);
    let Some((name, _)) = ends else { return false };
    let mut said: Value = serde_json::from_str(&before(host, "t", "ls")).unwrap();
    said["hook_event_name"] = (*name).into();
    said["event"] = (*name).into();
    let output = stage.run(stage.command().args(["hook", host.name(), name]), &said.to_string());
    assert_eq!((output.stdout.as_str(), output.code), (silence(host), 0), "{host:?} {output:?}");
    true
}

/// Found on a walk: sessions that their users had ended counted as running, and as idle for days.
#[test]
fn a_session_that_its_host_ended_is_finished_until_it_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("deadstop.toml"), "").unwrap();
    let server = Server::start(folder.path());
    let client = Client::new(&deadstop_client::Server::at(&server.url)).unwrap();
    let hosts = Host::ALL.into_iter().chain([Host::Generic]);
    for host in hosts {
        for at in [none(), Some(server.url.clone())] {
            let local = at == none();
            let mut stage = Stage::new("");
            stage.server = at;
            let standing = || -> String {
                let found = if local {
                    let output =
                        stage.run(stage.command().args(["status", "--local", "--json"]), "");
                    let known: Value = serde_json::from_str(&output.stdout).unwrap();
                    let all = known["scopes"].as_array().unwrap().clone();
                    all.into_iter().find(|it| it["kind"] == "session").unwrap()["state"].clone()
                } else {
                    let path = format!("/api/sessions/{}/s", host.name());
                    let found: Value = client.get(&path).unwrap();
                    let flying = &found["live"]["in_flight"];
                    assert!(found["standing"] != "finished" || flying == 0, "{found}");
                    found["standing"].clone()
                };
                found.as_str().unwrap().to_owned()
            };
            let runs = if local { "active" } else { "running" };
            // Its user leaves while a tool runs.
            passes(host, &stage.hook(host, &before(host, "t1", "ls")));
            assert_eq!(standing(), runs, "{host:?}");
            if !ends(&stage, host) {
                continue;
            }
            assert_eq!(standing(), "finished", "{host:?}");
            passes(host, &stage.hook(host, &before(host, "t2", "pwd")));
            assert_eq!(standing(), runs, "{host:?}");
        }
    }
}

/// Fifty processes at once: how many were allowed.
fn fifty(stage: &Stage) -> usize {
    thread::scope(|scope| {
        let asked: Vec<_> = (0..50)
            .map(|n| {
                scope.spawn(move || {
                    let host = Host::ClaudeCode;
                    let output =
                        stage.hook(host, &before(host, &format!("t{n}"), &format!("echo {n}")));
                    assert_eq!(output.code, 0);
                    !host.refuses("PreToolUse", &output)
                })
            })
            .collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).filter(|allowed| *allowed).count()
    })
}

#[test]
fn fifty_at_once_with_local_files() {
    let mut stage = Stage::new("[steps]\nmax_steps = 10\n");
    stage.server = none();
    assert_eq!(fifty(&stage), 10);
}

#[test]
fn fifty_at_once_with_a_server() {
    let mut stage = Stage::new("");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("policy.toml"), "[steps]\nmax_steps = 10\n").unwrap();
    fs::write(folder.path().join("deadstop.toml"), "policy = \"policy.toml\"\n").unwrap();
    let mut server = Server::start(folder.path());
    stage.server = Some(server.url.clone());
    assert_eq!(fifty(&stage), 10);
    // What the server has said is known when it is gone.
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    let output = stage.hook(Host::ClaudeCode, &before(Host::ClaudeCode, "t99", "ls"));
    assert!(Host::ClaudeCode.refuses("PreToolUse", &output), "{output:?}");
    assert!(output.stdout.contains("\"continue\":false"), "{output:?}");
}

/// The answers to a call that a person was asked about; the second may go ahead.
fn asked(stage: &Stage, client: &Client, id: &str, word: &str) -> Output {
    thread::scope(|scope| {
        let hook = scope.spawn(|| stage.hook(Host::Codex, &before(Host::Codex, id, id)));
        let waiting = loop {
            let all = client.get("/api/approvals").unwrap();
            match all["items"][0]["id"].as_str() {
                Some(waiting) => break waiting.to_owned(),
                None => assert!(!hook.is_finished(), "no person was asked"),
            }
        };
        let mut decide = stage.command();
        decide.args(["approvals", word, &waiting, "--reason", "because"]);
        let decided = stage.run(decide.env("DEADSTOP_OPERATOR_TOKEN", server::OPERATOR), "");
        assert_eq!(decided.code, 0, "{decided:?}");
        hook.join().unwrap()
    })
}

#[test]
fn a_person_decides_where_the_policy_says_ask() {
    let policy = "[access]\ndeny = [\"Bash\"]\naction = \"ask\"\n";
    let mut stage = Stage::new(policy);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("policy.toml"), policy).unwrap();
    fs::write(folder.path().join("deadstop.toml"), "policy = \"policy.toml\"\n").unwrap();
    let server = Server::start(folder.path());
    stage.server = Some(server.url.clone());
    let client = Client::new(&deadstop_client::Server::at(&server.url)).unwrap();
    let approved = asked(&stage, &client, "t1", "approve");
    passes(Host::Codex, &approved);
    let denied = asked(&stage, &client, "t2", "deny");
    assert!(Host::Codex.refuses("PreToolUse", &denied), "{denied:?}");
    // Without a server the host asks its own person, where it can.
    stage.server = none();
    for (host, asks) in [(Host::ClaudeCode, true), (Host::Codex, false)] {
        let output = stage.hook(host, &before(host, "t3", "ls"));
        let said: Value = serde_json::from_str(&output.stdout).unwrap();
        let decision = &said["hookSpecificOutput"]["permissionDecision"];
        assert_eq!(decision, if asks { "ask" } else { "deny" }, "{host:?}");
    }
}
