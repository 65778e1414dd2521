//! `deadstop doctor --cluster`: what it finds of a fleet that is well, and of one that is not.

use std::process::Command;

use serde_json::{Value, json};

use crate::gate::aside;
use crate::support::{Gate, Reply};

/// What it says, and its exit code.
async fn doctor(gate: &Gate) -> (Value, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deadstop"));
    command.args(["doctor", "--cluster", "--json", "--database", &gate.database]);
    command.args(["--redis", &gate.redis.address]).current_dir(gate.folder.path());
    for name in ["DEADSTOP_SERVER", "DEADSTOP_KEY", "DEADSTOP_KEY_FILE", "DEADSTOP_PROJECT"] {
        command.env_remove(name);
    }
    for address in gate.addresses() {
        command.args(["--node", &format!("http://{address}")]);
    }
    let output = aside(move || command.output().unwrap()).await;
    let text = String::from_utf8(output.stdout).unwrap();
    let said = serde_json::from_str(&text)
        .unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    (said, output.status.code().unwrap())
}

/// What was found of one thing: its state, and the words.
fn found(said: &Value, what: &str) -> (String, String) {
    let checks = said["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["what"] == what);
    let check = check.unwrap_or_else(|| panic!("nothing about {what} in {said}"));
    let word = |name: &str| check[name].as_str().unwrap().to_owned();
    (word("state"), word("detail"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_that_is_well_and_one_that_is_not() {
    let gate = Gate::start(json!({}), |_| Reply::json(200, &json!({}))).await;
    let (said, code) = doctor(&gate).await;
    for what in ["PostgreSQL", "tables", "Redis", "scripts", "memory", "clock", "nodes", "kill"] {
        assert_eq!(found(&said, what).0, "ok", "{what}: {said}");
    }
    assert_eq!(code, 0, "{said}");
    assert!(found(&said, "nodes").1.starts_with("3 alive"), "{said}");
    assert!(found(&said, "kill").1.contains("honoured by 3 of 3"), "{said}");

    gate.redis.say("CONFIG SET maxmemory-policy allkeys-lru");
    let (said, code) = doctor(&gate).await;
    assert_eq!((found(&said, "memory").0.as_str(), code), ("wrong", 1), "{said}");

    let redis = gate.redis.clone();
    aside(move || redis.kill()).await;
    let (said, code) = doctor(&gate).await;
    assert_eq!((found(&said, "Redis").0.as_str(), code), ("wrong", 1), "{said}");
    assert_eq!(found(&said, "PostgreSQL").0, "ok", "{said}");
}
