//! The first minute of a new user: the demo stops two agents and lets one finish.

use std::process::Command;

use serde_json::Value;

#[test]
fn two_are_stopped_and_one_finishes() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_deadstop")).args(["demo", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (agent, stopped, words) in [
        ("janitor", true, "delete_asset on asset_id=fact_sales 3 times"),
        ("writer", true, "budget of $0.05"),
        ("reporter", false, "Sales are up in the north"),
    ] {
        assert_eq!(told[agent]["stopped"], stopped, "{agent}");
        let text = told[agent]["text"].as_str().unwrap();
        assert!(text.contains(words), "{agent}: {text}");
    }
}
