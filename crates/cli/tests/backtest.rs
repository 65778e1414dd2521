//! The backtest as a user meets it: the real program, whole outputs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn deadstop(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_deadstop")).args(arguments).output().unwrap()
}

fn examples() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/runaways.jsonl");
    root.to_str().unwrap().to_owned()
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path: PathBuf = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// id, verdict, guard, reason, at_call, calls_after
type Expected =
    (&'static str, &'static str, Option<&'static str>, Option<&'static str>, Option<u64>, u64);

fn check(policy: &str, expected: &[Expected]) {
    let output = deadstop(&["backtest", &examples(), "--policy", policy, "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    let found = lines(&output);
    assert_eq!(found.len(), expected.len());
    for (line, (id, verdict, guard, reason, at_call, after)) in found.iter().zip(expected) {
        assert_eq!(line["id"], *id);
        assert_eq!(line["dataset"], "examples");
        assert_eq!(line["verdict"], *verdict, "{id}");
        assert_eq!(line["guard"], json!(guard), "{id}");
        assert_eq!(line["reason"], json!(reason), "{id}");
        assert_eq!(line["at_call"], json!(at_call), "{id}");
        assert_eq!(line["calls_after"], *after, "{id}");
    }
}

#[test]
fn strict_stops_the_runaways_and_nobody_else() {
    check(
        "strict",
        &[
            ("delete-loop", "kill", Some("destructive"), Some("destructive_target"), Some(3), 5),
            ("ping-pong", "kill", Some("loop"), Some("ping_pong"), Some(10), 8),
            ("same-error", "kill", Some("loop"), Some("retry_without_progress"), Some(8), 6),
            ("chant", "block", Some("text_loop"), Some("chanting"), None, 0),
            ("healthy-test-runs", "allow", None, None, None, 0),
            ("healthy-paging", "allow", None, None, None, 0),
        ],
    );
}

#[test]
fn balanced_stops_the_same_runaways_later() {
    check(
        "balanced",
        &[
            ("delete-loop", "kill", Some("destructive"), Some("destructive_target"), Some(3), 5),
            ("ping-pong", "kill", Some("loop"), Some("ping_pong"), Some(12), 6),
            ("same-error", "kill", Some("loop"), Some("retry_without_progress"), Some(10), 4),
            ("chant", "block", Some("text_loop"), Some("chanting"), None, 0),
            ("healthy-test-runs", "allow", None, None, None, 0),
            ("healthy-paging", "allow", None, None, None, 0),
        ],
    );
}

#[test]
fn a_line_has_every_field_and_the_sentence() {
    let output = deadstop(&["backtest", &examples(), "--policy", "strict", "--json"]);
    let first = &lines(&output)[0];
    assert_eq!(first["at_message"], 6);
    assert_eq!(first["calls_total"], 8);
    assert_eq!(
        first["explain"],
        "stopped: delete_asset on asset_id=fact_sales 3 times in 12 s (limit 3 in 60 s)"
    );
    assert_eq!(first["assumed"], json!({"times": false, "usage": true, "unpriced": []}));
    let healthy = &lines(&output)[4];
    assert_eq!(healthy["explain"], Value::Null);
    assert_eq!(healthy["at_message"], Value::Null);
}

#[test]
fn all_trips_lists_every_warning() {
    let with = |arguments: &[&str]| {
        let file = examples();
        let all = [&["backtest", &file, "--policy", "observe", "--json"], arguments].concat();
        lines(&deadstop(&all)).remove(0)
    };
    assert_eq!(with(&[])["trips"], Value::Null);
    let trips = with(&["--all-trips"])["trips"].as_array().unwrap().clone();
    let at: Vec<u64> = trips
        .iter()
        .filter(|trip| trip["guard"] == "destructive")
        .map(|trip| trip["at_call"].as_u64().unwrap())
        .collect();
    // From the fifth on the agent's own scope warns as well.
    assert_eq!(at, [3, 4, 5, 5, 6, 6, 7, 7, 8, 8]);
    assert!(trips.iter().all(|trip| trip["verdict"] == "warn"));
    assert_eq!(trips[0]["measured"], json!({"unit": "count", "value": 3}));
    assert_eq!(trips[0]["evidence"], json!([2, 4]));
}

#[test]
fn people_get_a_table_and_the_sentences() {
    let output = deadstop(&["backtest", &examples(), "--policy", "strict"]);
    let text = stdout(&output);
    for expected in [
        "examples       6     68       0        0      0        1       3  destructive 1, loop 2, text_loop 1",
        "0 of 2\n",
        "  same-error at call 8 of 14\n    stopped: restore_backup tried 8 times and failed the same way each time (limit 8) (6 calls",
        "  chant at message 2 of 2\n    blocked: the answer says the same 27 times over: \"I apologise for the confusion, let me try that again.\"",
        "Assumed:\n  tokens: 6 of 6 traces do not have them all.",
        "--policy strict --explain ",
    ] {
        assert!(text.contains(expected), "missing {expected:?} in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "no colour in a pipe");
}

#[test]
fn explain_shows_the_calls_side_by_side() {
    let output =
        deadstop(&["backtest", &examples(), "--policy", "strict", "--explain", "ping-pong"]);
    let text = stdout(&output);
    for expected in [
        "ping-pong (examples)\ntask: Close OPS-7 once its build is green.\n",
        "stopped: alternates between the same 2 calls, get_build next, with identical results: 8 calls repeated (limit 8)\n",
        "at tool call 10 of 18 (message 20): guard loop, reason ping_pong, measured 8, limit 8",
        "same   2     4        B     get_build {\"id\":\"b-12\"}    2       status: blocked by ticket\n",
        "kill   10    20       B     get_build {\"id\":\"b-12\"}  ",
        "after  11 ",
        "Calls that ask for B: 2, 4, 6, 8, 10.",
        "After it, 8 more tool calls",
    ] {
        assert!(text.contains(expected), "missing {expected:?} in\n{text}");
    }
    let healthy =
        deadstop(&["backtest", &examples(), "--policy", "strict", "--explain", "healthy-paging"]);
    assert!(stdout(&healthy).contains("Nothing to stop: 6 calls passed."));
    let chant = deadstop(&["backtest", &examples(), "--policy", "strict", "--explain", "chant"]);
    assert!(stdout(&chant).contains("  message 2: The incident began at night. I apologise"));
    let unknown = deadstop(&["backtest", &examples(), "--explain", "unknown"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert_eq!(
        stderr(&unknown),
        "error: no trace has the id unknown\n\
         hint: ids are the `id` of each line of `deadstop backtest --json`\n"
    );
}

#[test]
fn broken_lines_are_reported_and_nothing_else_is_lost() {
    let folder = Folder::new();
    let good = std::fs::read_to_string(examples()).unwrap();
    let mut all: Vec<&str> = good.lines().collect();
    all.insert(2, "{\"messages\": [");
    all.insert(5, "not json at all");
    let path = folder.file("mixed.jsonl", all.join("\n"));
    let output = deadstop(&["backtest", &path, "--policy", "strict", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(lines(&output).len(), 6);
    let talk = stderr(&output);
    assert!(talk.contains("mixed.jsonl:3: "), "{talk}");
    assert!(talk.contains("mixed.jsonl:6: "), "{talk}");
    assert!(talk.ends_with("2 broken lines skipped\n"), "{talk}");
}

#[test]
fn reads_gzip_standard_input_and_several_files() {
    let folder = Folder::new();
    let plain = std::fs::read(examples()).unwrap();
    let packed = folder.file("traces.bin", gzip(&plain));
    let twice = deadstop(&["backtest", &packed, &examples(), "--json"]);
    assert_eq!(lines(&twice).len(), 12);

    for (arguments, input) in
        [(&["backtest", "--json"][..], &plain), (&["backtest", "-", "--json"], &gzip(&plain))]
    {
        let mut child = Command::new(env!("CARGO_BIN_EXE_deadstop"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        assert_eq!(lines(&child.wait_with_output().unwrap()).len(), 6);
    }
    let empty = folder.file("empty.jsonl", "");
    assert_eq!(stdout(&deadstop(&["backtest", &empty])), "no traces found\n");
}

#[test]
fn reads_claude_code_transcripts_and_message_lists() {
    let folder = Folder::new();
    let mut transcript = String::new();
    for n in 0..6 {
        let (use_id, at) = (format!("toolu_{n}"), format!("2026-11-14T03:00:{:02}Z", n * 5));
        let answer = json!({"type": "assistant", "sessionId": "s-1", "uuid": format!("a{n}"), "timestamp": at,
            "message": {"id": format!("msg_{n}"), "role": "assistant", "model": "claude-sonnet-4-20250514",
                "content": [{"type": "tool_use", "id": use_id, "name": "Bash", "input": {"command": "psql -c 'DROP TABLE users'"}}],
                "usage": {"input_tokens": 10, "output_tokens": 5}}});
        let result = json!({"type": "user", "sessionId": "s-1", "uuid": format!("u{n}"), "timestamp": at,
            "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use_id, "content": "ERROR: table users is locked", "is_error": true}]}});
        transcript.push_str(&format!("{answer}\n{result}\n"));
    }
    let path = folder.file("transcript.jsonl", transcript);
    let found = lines(&deadstop(&["backtest", &path, "--policy", "balanced", "--json"]));
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0]["id"], &found[0]["at_call"]), (&json!("s-1"), &json!(3)));
    assert_eq!(
        found[0]["explain"],
        "stopped: DROP TABLE on table=users 3 times in 10 s (limit 3 in 60 s)"
    );

    let list =
        json!([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]);
    let path = folder.file("list.json", serde_json::to_string_pretty(&list).unwrap());
    assert_eq!(lines(&deadstop(&["backtest", &path, "--json"]))[0]["verdict"], "allow");
}

/// Deletions of different things are judged by the clock alone, so only where there is one.
#[test]
fn a_pace_is_taken_at_its_word() {
    let folder = Folder::new();
    let mut messages = vec![json!({"role": "user", "content": "delete the old mails"})];
    for n in 0..6 {
        messages.push(json!({"role": "assistant", "content": "", "tool_calls": [{"id": format!("c{n}"), "type": "function",
            "function": {"name": "delete_email", "arguments": format!("{{\"email_id\": \"{n}\"}}")}}]}));
        messages.push(json!({"role": "tool", "tool_call_id": format!("c{n}"), "content": format!("deleted {n}")}));
    }
    let path = folder.file("batch.json", json!({"id": "batch", "messages": messages}).to_string());
    for (pace, verdict) in [(None, "allow"), (Some("5"), "kill"), (Some("120"), "allow")] {
        let mut arguments = vec!["backtest", &path, "--policy", "strict", "--json"];
        arguments.extend(pace.iter().flat_map(|pace| ["--pace", pace]));
        assert_eq!(lines(&deadstop(&arguments))[0]["verdict"], verdict, "{pace:?}");
    }
}

#[test]
fn mistakes_get_a_hint() {
    for (arguments, problem, hint) in [
        (
            &["backtest", "nowhere.jsonl"][..],
            "error: cannot read nowhere.jsonl",
            "hint: name a file",
        ),
        (&["backtest", "."], "error: . is a folder", "hint: name the files in it"),
        (&["backtest", &examples(), "--policy", "strikt"], "error: ", "strict"),
        (&["backtest", &examples(), "--pace", "soon"], "not a number of seconds", ""),
        (&["backtest", &examples(), "--all-trips"], "--json", ""),
    ] {
        let output = deadstop(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let talk = stderr(&output);
        assert!(talk.contains(problem) && talk.contains(hint), "{arguments:?}: {talk}");
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn threads_do_not_change_the_answer() {
    let one =
        deadstop(&["backtest", &examples(), "--policy", "strict", "--json", "--threads", "1"]);
    let many =
        deadstop(&["backtest", &examples(), "--policy", "strict", "--json", "--threads", "7"]);
    assert_eq!(stdout(&one), stdout(&many));
}
