//! How it ends: hang-ups, signals, and no process left behind.

use std::process::Command;

use serde_json::json;

use crate::{Client, call, until, wrapper};

fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

#[test]
fn the_code_is_the_servers_own() {
    let folder = tempfile::tempdir().unwrap();
    for (script, expected) in [("cat; exit 0", 0), ("cat; exit 42", 42), ("cat; kill -9 $$", 137)] {
        let mut client = Client::start(wrapper(folder.path(), None, &["sh", "-c", script]));
        client.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"hello\"}");
        assert_eq!(client.line(), b"{\"jsonrpc\":\"2.0\",\"method\":\"hello\"}\n");
        let (status, rest) = client.close();
        assert_eq!((status.code(), rest), (Some(expected), Vec::new()), "{script}");
    }
    let client = Client::start(wrapper(folder.path(), None, &["/no/such/server"]));
    assert_eq!(client.close().0.code(), Some(127));
}

/// What is said after the hang-up still arrives, also without a line end.
#[test]
fn the_last_words_pass() {
    let folder = tempfile::tempdir().unwrap();
    let script = "cat >/dev/null; printf 'not json\\n{\"a\":1}'";
    let client = Client::start(wrapper(folder.path(), None, &["sh", "-c", script]));
    assert_eq!(client.close().1, b"not json\n{\"a\":1}");
}

/// A server that does not listen, with a helper in a session of its own.
#[test]
fn nobody_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let script = "setsid sleep 600 & echo $!; trap '' TERM; sleep 600 & wait";
    for how in ["-TERM", "-INT", "-HUP", "-KILL", "hang up"] {
        let mut client = Client::start(wrapper(folder.path(), None, &["sh", "-c", script]));
        let helper: u32 = String::from_utf8(client.line()).unwrap().trim().parse().unwrap();
        assert!(lives(helper));
        let status = match how {
            "hang up" => client.close().0,
            _ => {
                signal(client.process.id(), how);
                client.process.wait().unwrap()
            }
        };
        until("the helper's end", || !lives(helper));
        if how == "-TERM" {
            assert_eq!(status.code(), Some(143));
        }
    }
}

/// A hang-up does not cut off a call that is under way.
#[test]
fn a_call_under_way_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let answer = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}";
    let script = format!("read -r line; cat >/dev/null; sleep 1; echo '{answer}'");
    let mut client = Client::start(wrapper(folder.path(), None, &["sh", "-c", &script]));
    client.send(call(1, "slow", json!({})).to_string().as_bytes());
    let (status, rest) = client.close();
    assert_eq!(String::from_utf8_lossy(&rest).trim(), answer);
    assert!(status.success());
}
