//! Through us and directly: the same bytes, in both directions, on stdio.
//!
//! The server is this very program: as a child it plays the test below, and keeps to dice that are
//! thrown from each line it reads.

use std::io::{BufRead, Write};
use std::process::Command;

use crate::{Client, serve, wrapper};

#[path = "../../../server/tests/support/dice.rs"]
#[expect(dead_code, reason = "the other tests throw them in more ways")]
mod dice;
use dice::Dice;

const CHILD: &str = "DEADSTOP_TEST_SERVER";

/// Only a server when it is started as one.
#[test]
fn plays_the_server() {
    let Some(heard) = std::env::var_os(CHILD) else { return };
    let mut heard = std::fs::File::create(heard).unwrap();
    let mut out = std::io::stdout().lock();
    for (number, line) in std::io::stdin().lock().split(b'\n').enumerate() {
        let line = line.unwrap();
        heard.write_all(&line).unwrap();
        heard.write_all(b"\n").unwrap();
        out.write_all(&said(number as u64, &line)).unwrap();
        out.flush().unwrap();
    }
    heard.flush().unwrap();
    std::process::exit(5);
}

fn value(dice: &mut Dice, depth: usize) -> String {
    match dice.to(if depth == 0 { 3 } else { 5 }) {
        0 => dice.pick(&["null", "true", "-0", "1e3", "1.50", "12345678901234567890"]).to_owned(),
        1..=3 => format!("\"{}\"", dice.pick(&["", "a", "\\u00e9", "é", "\\n", "\\/", "日本"])),
        4 => format!("[{} ,{}]", value(dice, depth - 1), value(dice, depth - 1)),
        _ => format!("{{\"k\" :{},\"l\": {}}}", value(dice, depth - 1), value(dice, depth - 1)),
    }
}

/// What the server says to a line: some notes and requests of its own, perhaps noise, an answer.
fn said(number: u64, line: &[u8]) -> Vec<u8> {
    let mut dice = Dice::new(number.wrapping_mul(31).wrapping_add(line.len() as u64));
    let mut all = String::new();
    for _ in 0..dice.to(2) {
        let note = dice.pick(&[
            "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":VALUE}\n",
            "{\"jsonrpc\":\"2.0\",\"id\":\"s\",\"method\":\"sampling/createMessage\",\"params\":VALUE}\n",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"elicitation/create\",\"params\":VALUE}\r\n",
            "a line that is no JSON VALUE\n",
            "\n",
        ]);
        all += &note.replace("VALUE", &value(&mut dice, 2));
    }
    let asked: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
    let mut answer = |asked: &serde_json::Value| {
        let id = &asked["id"];
        let body = match (asked["method"].as_str(), dice.to(3)) {
            (_, 0) => format!("\"error\":{{\"code\":-1,\"message\":{}}}", value(&mut dice, 0)),
            (Some("tools/call"), 1) => "\"result\":{\"content\":[],\"isError\":true}".to_owned(),
            (Some("tools/list"), _) => format!(
                "\"result\": {{\"tools\":[ {{\"name\":\"read\",\"x\":{}}} ]}}",
                value(&mut dice, 2)
            ),
            _ => format!("\"result\":{}", value(&mut dice, 3)),
        };
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id} ,{body}}}")
    };
    match &asked {
        serde_json::Value::Array(batch) => {
            let answers: Vec<String> =
                batch.iter().filter(|asked| !asked["id"].is_null()).map(&mut answer).collect();
            all += &format!("[{}]\n", answers.join(", "));
        }
        asked if asked["method"].is_string() && !asked["id"].is_null() => {
            all += &answer(asked);
            all.push('\n');
        }
        _ => {}
    }
    all.into_bytes()
}

/// One line of a client.
fn line(dice: &mut Dice) -> String {
    let one = |dice: &mut Dice| {
        let method = dice.pick(&[
            "initialize",
            "ping",
            "tools/list",
            "tools/call",
            "tools/call",
            "resources/read",
            "notifications/initialized",
            "notifications/cancelled",
            "logging/setLevel",
        ]);
        let params = match method {
            "tools/call" => format!(
                "{{\"name\":\"{}\", \"arguments\":{}}}",
                dice.pick(&["read", "l\\u0073", "fetch page"]),
                value(dice, 3)
            ),
            _ => value(dice, 3),
        };
        let id = match method.starts_with("notifications") {
            true => String::new(),
            false => format!("\"id\" :{},", dice.pick(&["1", "\"x\"", "77", "\"\\u0061b\"", "-3"])),
        };
        format!("{{{id}\"method\":\"{method}\",\"jsonrpc\":\"2.0\",\"params\":{params}}}")
    };
    match dice.to(20) {
        0 => String::new(),
        1 => "  ".to_owned(),
        2 => "{\"jsonrpc\":\"2.0\",\"id\":\"s\",\"result\":{\"role\":\"assistant\"}}".to_owned(),
        3 => format!("[{} , {}]", one(dice), "{\"method\":\"notifications/x\"}"),
        4 => one(dice) + "\r",
        _ => one(dice),
    }
}

#[test]
fn thousands_of_lines_are_the_same_in_bytes() {
    let soak = std::env::var_os("DEADSTOP_SOAK").is_some_and(|value| value != "0");
    let folder = tempfile::tempdir().unwrap();
    let off =
        "[strikes]\nenabled = false\n[loop]\nenabled = false\n[agent.breaker]\nenabled = false\n";
    let server = serve(folder.path(), off);
    let program = std::env::current_exe().unwrap().display().to_string();
    let child = [program.as_str(), "--exact", "fidelity::plays_the_server", "--nocapture"];
    let direct = || {
        let mut command = Command::new(child[0]);
        command.args(&child[1..]);
        command
    };
    let through = || wrapper(folder.path(), Some(&server.url), &child);
    let mut both = Vec::new();
    for (name, command) in [("direct", direct()), ("through", through())] {
        let heard = folder.path().join(name);
        let mut command = command;
        command.env(CHILD, &heard);
        let mut client = Client::start(command);
        let mut got = Vec::new();
        // What the test program says before it begins.
        for _ in 0..2 {
            got.extend(client.line());
        }
        for seed in 0..if soak { 5000 } else { 500 } {
            let line = line(&mut Dice::new(seed));
            client.send(line.as_bytes());
            let expected = said(seed, line.as_bytes());
            let mut answer = Vec::new();
            while answer.len() < expected.len() {
                let next = client.line();
                assert!(
                    !next.is_empty(),
                    "{name} {seed}: the end after {}",
                    String::from_utf8_lossy(&answer)
                );
                answer.extend(next);
            }
            assert_eq!(
                String::from_utf8_lossy(&answer),
                String::from_utf8_lossy(&expected),
                "{name} {seed} {line}"
            );
            got.extend(answer);
        }
        let (status, rest) = client.close();
        assert_eq!(status.code(), Some(5), "{name}");
        got.extend(rest);
        both.push((got, std::fs::read(heard).unwrap()));
    }
    let (direct, through) = (&both[0], &both[1]);
    assert_eq!(String::from_utf8_lossy(&direct.0), String::from_utf8_lossy(&through.0));
    assert_eq!(String::from_utf8_lossy(&direct.1), String::from_utf8_lossy(&through.1));
}
