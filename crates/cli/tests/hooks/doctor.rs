//! `deadstop doctor`: what is proven, what is wrong, what cannot be told.

use std::fs;
use std::path::Path;
use std::process::Command;

use deadstop_protocol::hook::Host;
use serde_json::{Value, json};

use super::Stage;
use super::server::Server;

fn doctor(stage: &Stage) -> (Value, u8) {
    let output = stage.run(stage.command().args(["doctor", "--json", "--quick"]), "");
    let said = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    (said, output.code)
}

fn state(said: &Value, what: &str) -> String {
    let checks = said["checks"].as_array().unwrap();
    let mut found = checks.iter().filter(|check| check["what"] == what);
    let found = found.next().unwrap_or_else(|| panic!("no {what} in {said}"));
    found["state"].as_str().unwrap().to_owned()
}

fn stage() -> Stage {
    let mut stage = Stage::new("");
    stage.server = super::none();
    stage
}

#[test]
fn every_hook_that_is_installed_is_proven() {
    let stage = stage();
    let (said, code) = doctor(&stage);
    assert_eq!((code, state(&said, "local states").as_str()), (2, "ok"), "no door: {said}");
    for host in Host::ALL {
        let done = stage.run(stage.command().args(["install", host.name(), "--yes"]), "");
        assert_eq!(done.code, 0, "{done:?}");
    }
    let (said, code) = doctor(&stage);
    for host in Host::ALL {
        assert_eq!(state(&said, &format!("hook {} (user)", host.name())), "ok", "{said}");
    }
    assert_eq!(code, 0, "{said}");
    // Nothing of the canaries is left.
    let folder = stage.folder.path().join(".local/state/deadstop/gate");
    let left = fs::read_dir(folder).unwrap().flatten().flat_map(|project| {
        fs::read_dir(project.path()).unwrap().flatten().map(|entry| entry.file_name())
    });
    assert!(left.into_iter().all(|name| !name.to_string_lossy().contains("canary")));
    // Found a bug: agents that only the canaries had used stayed in the list.
    let listed = stage.run(stage.command().args(["status", "--local"]), "");
    assert!(!listed.stdout.contains("agent"), "{listed:?}");
}

#[test]
fn a_hook_that_does_not_deny_is_wrong() {
    type Damage = fn(&str) -> String;
    let damages: [(&str, Damage); 4] = [
        ("the program is gone", |text| text.replace("/deadstop hook", "/gone/deadstop hook")),
        ("it always says yes", |text| {
            let start = text.find("\"command\": \"").unwrap() + 12;
            format!("{}true ; : {}", &text[..start], &text[start..])
        }),
        ("an event is missing", |text| text.replace("\"PreToolUse\"", "\"Surprise\"")),
        ("all hooks are off", |text| text.replacen('{', "{\"disableAllHooks\": true,", 1)),
    ];
    for (what, damage) in damages {
        let stage = stage();
        stage.run(stage.command().args(["install", "claude-code", "--yes"]), "");
        let path = stage.folder.path().join(".claude/settings.json");
        fs::write(&path, damage(&fs::read_to_string(&path).unwrap())).unwrap();
        let (said, code) = doctor(&stage);
        assert_eq!(code, 1, "{what}: {said}");
        assert!(said["checks"].to_string().contains("wrong"), "{what}: {said}");
    }
}

#[test]
fn a_server_is_tried_with_its_gateway_and_its_kills() {
    let mut stage = stage();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("deadstop.toml"), "").unwrap();
    let server = Server::start(folder.path());
    stage.server = Some(server.url.clone());
    stage.run(stage.command().args(["install", "codex", "--yes"]), "");
    let (said, code) = doctor(&stage);
    for what in ["port", "store", "clock", "access", "gateway", "hook codex (user)"] {
        assert_eq!(state(&said, what), "ok", "{said}");
    }
    assert!(said.to_string().contains("and so is one that the server refuses"), "{said}");
    assert_eq!(code, 0, "{said}");
    // A second time finds the same.
    assert_eq!(doctor(&stage).1, 0);
    // Found a bug: the agent of the canaries stayed in every list.
    for list in ["agents", "sessions", "status", "incidents"] {
        let listed = stage.run(stage.command().args([list, "--server", &server.url]), "");
        assert!(!listed.stdout.contains("doctor"), "{list}: {listed:?}");
    }
    drop(server);
    let (said, code) = doctor(&stage);
    assert_eq!((code, state(&said, "server").as_str()), (1, "wrong"), "{said}");
}

#[test]
fn what_is_wrong_in_the_house_is_said() {
    let stage = Stage::new("[budge]\n");
    let (said, code) = doctor(&stage);
    assert_eq!((code, state(&said, "policy").as_str()), (1, "wrong"), "{said}");
}

/// Nothing is left out: a command that takes too long is started, and ended.
#[test]
fn run_is_tried_with_a_real_command() {
    let stage = stage();
    let output = stage.run(stage.command().args(["doctor", "--json"]), "");
    let said: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(state(&said, "run"), "ok", "{said}");
    assert!(said.to_string().contains("a command over its time limit was ended"), "{said}");
    assert_eq!(output.code, 0, "a door was proven: {said}");
}

#[test]
fn servers_that_a_client_starts_through_us_are_tried() {
    let mut stage = stage();
    let program = env!("CARGO_BIN_EXE_deadstop");
    let config = stage.folder.path().join(".cursor/mcp.json");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    let servers = json!({ "mcpServers": {
        "files": { "command": "no-such-server", "args": ["/srv"] },
        "web": { "url": "http://127.0.0.1:1/mcp" },
    }});
    fs::write(&config, servers.to_string()).unwrap();
    let (said, code) = doctor(&stage);
    assert!(code == 2 && !said.to_string().contains("mcp files"), "no door yet: {said}");
    let wrap = ["mcp", "wrap", ".cursor/mcp.json", "--agent", "coder"];
    let wrapped = stage.run(stage.command().args(wrap), "");
    assert_eq!(wrapped.code, 0, "{wrapped:?}");
    for server in [super::none(), Some(super::absent())] {
        stage.server = server;
        let (said, _) = doctor(&stage);
        assert_eq!(state(&said, "mcp files (cursor, user)"), "ok", "{said}");
        assert!(!said.to_string().contains("mcp web"), "{said}");
    }
    stage.server = super::none();
    let text = fs::read_to_string(&config).unwrap();
    let liar = stage.folder.path().join("liar/deadstop");
    fs::create_dir_all(liar.parent().unwrap()).unwrap();
    let script = stage.folder.path().join("liar.sh");
    let text_of_it = "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n";
    fs::write(&script, text_of_it).unwrap();
    // By another process: a file that is open for writing anywhere, also in a child of another test
    // that has not yet begun, cannot be run.
    let copied = Command::new("install").args(["-m", "755"]).args([&script, &liar]).status();
    assert!(copied.unwrap().success());
    for (broken, why) in [
        (liar.as_path(), "should have been refused"),
        (Path::new("/gone/deadstop"), "cannot be run"),
    ] {
        fs::write(&config, text.replace(program, broken.to_str().unwrap())).unwrap();
        let (said, code) = doctor(&stage);
        assert_eq!(
            (code, state(&said, "mcp files (cursor, user)").as_str()),
            (1, "wrong"),
            "{said}"
        );
        assert!(said.to_string().contains(why), "{said}");
    }
}

#[test]
fn servers_behind_the_gateway_are_tried() {
    let mut stage = stage();
    let folder = tempfile::tempdir().unwrap();
    let servers = "[mcp.servers.one]\nurl = \"http://127.0.0.1:1/mcp\"\n\
                   [mcp.servers.two]\nurl = \"http://127.0.0.1:1/mcp\"\n";
    fs::write(folder.path().join("deadstop.toml"), servers).unwrap();
    let server = Server::start(folder.path());
    stage.server = Some(server.url.clone());
    let (said, code) = doctor(&stage);
    for what in ["mcp one (gateway)", "mcp two (gateway)"] {
        assert_eq!(state(&said, what), "ok", "{said}");
    }
    assert_eq!(code, 0, "{said}");
}
