//! `deadstop doctor`: what is proven, what is wrong, what cannot be told.

use std::fs;

use deadstop_protocol::hook::Host;
use serde_json::Value;

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
    assert!(said.to_string().contains("and one of the server's"), "{said}");
    assert_eq!(code, 0, "{said}");
    // A second time finds the same.
    assert_eq!(doctor(&stage).1, 0);
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
