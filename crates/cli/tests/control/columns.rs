//! Lists as people see them, in terminals of 80 and 120 columns: whole outputs are compared.
//! `UPDATE_SNAPSHOTS=1` writes the files in `tests/control/columns/` anew.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::house::House;

/// What a server would say, with names as long as they are in real life.
fn answer(path: &str) -> Value {
    let session = "nightly-import-2026-11-15T02:00:00Z";
    let why = "get_build returned the same result 5 times (limit 5); the arguments were identical";
    let incident = |id: &str, guard: &str| {
        json!({ "id": format!("0193a5c0-7f00-7000-8000-00000000{id}"), "at_ms": 0, "agent": "researcher",
            "session": session, "guard": guard, "explain": why, "acknowledged": null })
    };
    let agent = |name: &str, active: bool, health: &str, incidents: u64| {
        json!({ "name": name, "active": active, "health": health, "calls": 4182, "loops": 3,
            "incidents": incidents, "cost_usd": 12.3456, "used_ms": 0, "tags": ["nightly"] })
    };
    let scope = |kind: &str, state: &str, why: Option<&str>| {
        json!({ "kind": kind, "agent": "researcher", "name": session, "state": state,
            "model_calls": 212, "steps": 377, "in_flight": 2, "cost_usd": 4.1, "why": why })
    };
    match path.split('?').next().unwrap_or_default() {
        "/api/incidents" => {
            json!({ "items": [incident("a001", "loop"), incident("b002", "budget")] })
        }
        "/api/agents" => json!({ "items": [
            agent("archivist", true, "ok", 0), agent("researcher", true, "warning", 2),
            agent("writer", false, "stopped", 7),
        ] }),
        "/api/sessions" => json!({ "items": [
            { "agent": "researcher", "name": session, "state": "killed", "tags": ["loop_detected"],
              "model": "claude-sonnet-4-5", "calls": 589, "incidents": 2, "cost_usd": 4.1,
              "used_ms": 0, "why": why },
        ] }),
        "/api/status" => json!({ "project": { "state": "running" }, "scopes": [
            scope("session", "killed", Some(why)), scope("session", "running", None),
            { "kind": "session", "agent": "writer", "name": "draft", "state": "running",
              "standing": "idle", "model_calls": 4, "steps": 9, "in_flight": 0, "cost_usd": 0.2 },
        ] }),
        "/api/alerts/deliveries" => json!({ "items": [{ "state": "failed" }], "next": null }),
        "/api/approvals" => json!({ "items": [
            { "id": "ap-7f3a91", "agent": "researcher", "session": session, "tool": "delete_asset",
              "harms": [{ "because": "deletes a table for good" }], "asked": "asset_id=fact_sales",
              "asked_chars": 19, "since_ms": 0, "until_ms": 0, "explain": why },
        ] }),
        other => panic!("{other} is not played"),
    }
}

/// A server that says only that.
fn stand_in() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let Some(first) = lines.next() else { continue };
            lines.by_ref().find(String::is_empty);
            let body = answer(first.split(' ').nth(1).unwrap_or_default()).to_string();
            let head = format!("content-length: {}\r\nconnection: close", body.len());
            let _ = write!(&stream, "HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}");
        }
    });
    url
}

/// Ages grow while the tests run over the years; their width must not matter.
fn aged(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_inclusive(' ') {
        let number = word.trim_start_matches('(').trim_end();
        let days = number.strip_suffix('d').is_some_and(|days| days.parse::<u64>().is_ok());
        words.push(if days {
            word.replace(|c: char| c.is_ascii_digit(), "9")
        } else {
            word.to_owned()
        });
    }
    words.concat()
}

#[test]
fn lists_keep_to_80_and_120_columns() {
    let url = stand_in();
    let house = House::new();
    for list in ["agents", "sessions", "incidents", "approvals", "status"] {
        for columns in ["80", "120"] {
            let variables = [("DEADSTOP_SERVER", url.as_str()), ("DEADSTOP_COLUMNS", columns)];
            let said = house.with(&variables, &[list]).fine();
            let name = format!("{list}_{columns}.txt");
            let wide = said.out.lines().map(|line| line.chars().count()).max().unwrap_or_default();
            assert!(wide <= columns.parse().unwrap(), "{name} is {wide} wide:\n{}", said.out);
            let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/control/columns");
            let (path, shown) = (path.join(&name), aged(&said.out));
            if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, &shown).unwrap();
            }
            let expected = std::fs::read_to_string(&path).unwrap();
            assert_eq!(shown, expected, "{name}: if this is wanted, set UPDATE_SNAPSHOTS=1");
        }
    }
}

#[test]
fn a_name_may_be_short_and_must_not_be_ambiguous() {
    let house = House::new();
    house.run_away("seeker", "nightly-import-7f3a");
    assert_eq!(house.call("healthy", "nightly-report", ""), 200);
    house.until(&["sessions"], 2);
    let incident = house.ask(&["incidents", "--json"]).fine().json()[0]["id"].clone();
    let incident = incident.as_str().unwrap();

    // The latest incident, and one by the end of its id.
    let latest = house.ask(&["explain"]).fine().out;
    assert!(latest.contains(incident), "{latest}");
    let by_end = &incident[incident.len() - 6..];
    assert!(house.ask(&["explain", by_end]).fine().out.contains(incident));
    let seen = house.ask(&["incidents", "ack", by_end, "--note", "on it"]).fine().out;
    assert!(seen.contains(incident), "{seen}");

    assert!(house.ask(&["agents", "show", "seek"]).fine().out.starts_with("agent seeker\n"));
    let shown = house.ask(&["sessions", "show", "seek/nightly"]).fine().out;
    assert!(shown.starts_with("session seeker/nightly-import-7f3a\n"), "{shown}");
    let shown = house.ask(&["sessions", "show", "7f3a"]).fine().out;
    assert!(shown.starts_with("session seeker/nightly-import-7f3a\n"), "{shown}");

    // What fits two sessions stops neither.
    let both = house.ask(&["kill", "nightly", "--reason", "test"]);
    both.refused("`nightly` fits 2 sessions", "`nightly-import-7f3a`, `nightly-report`");
    assert_eq!(house.call("healthy", "nightly-report", ""), 200);
    let done = house.ask(&["kill", "nightly-rep", "--reason", "test"]).fine().out;
    assert!(done.ends_with("session nightly-report\n"), "{done}");
    assert_eq!(house.call("healthy", "nightly-report", ""), 403);
    let done = house.ask(&["pause", "--agent", "heal", "--reason", "test"]).fine().out;
    assert!(done.ends_with("agent healthy\n"), "{done}");
}

#[test]
fn people_stop_and_resume_and_the_old_names_still_work() {
    let house = House::new();
    assert_eq!(house.call("bot", "s1", ""), 200);
    assert_eq!(house.call("bot", "s2", ""), 200);
    house.until(&["sessions"], 2);
    for (args, said, after) in [
        (&["stop", "bot/s1"][..], "stopped: session s1\n", 403),
        (&["resume", "bot/s1"], "resumed with empty counters: session s1\n", 200),
        (&["kill", "--agent", "bot"], "stopped: agent bot\n", 403),
        (&["resume", "--agent", "bot"], "resumed: agent bot\n", 200),
        (&["stop", "--all"], "stopped: everything\n", 403),
        (&["clear", "--all"], "resumed: everything\n", 200),
    ] {
        assert_eq!(house.ask(args).fine().out, said, "{args:?}");
        assert_eq!(house.call("bot", "s1", ""), after, "{args:?}");
    }
    house.ask(&["agents", "stop", "bot", "--reason", "enough"]).fine();
    assert_eq!(house.call("bot", "s2", ""), 403);
    let shown = house.ask(&["agents", "resume", "bot"]).fine().out;
    assert!(shown.contains(&format!("{}/agents/bot\n", house.url())), "{shown}");
    house.ask(&["stop", "bot/s2"]).fine();
    let row = house.ask(&["sessions", "--state", "stopped"]).fine().rows();
    assert_eq!(&row[0][..2], ["bot/s2", "stopped"]);
}
