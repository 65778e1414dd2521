//! The first minute of a new user: the demo stops two agents and lets one finish.

use std::process::Command;

use serde_json::Value;

/// The third delete of the same asset ends the session, and the audit says so.
#[test]
fn a_cleanup_is_stopped_at_the_third_attempt() {
    let output = Command::new(env!("CARGO_BIN_EXE_deadstop"))
        .args(["demo", "cleanup", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (told["attempts"].clone(), told["later"].clone()),
        (3.into(), "session_killed_loop_guard".into())
    );
    let audit = told["audit"].as_str().unwrap();
    assert!(
        audit.starts_with("loop_detected: delete_asset on asset_id=fact_sales 3 times in"),
        "{audit}"
    );
    assert!(told["stopped"].as_str().unwrap().ends_with("Do not retry."));
    assert!(told["incident"].is_string());
}

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
