//! An operator's orders about local files: what was killed there is cleared there.

use deadstop_protocol::hook::{Host, Output};
use serde_json::{Value, json};

use super::server::OPERATOR;
use super::{Stage, absent, before, event, none, passes};

const HOST: Host = Host::ClaudeCode;

fn stage() -> Stage {
    let mut stage = Stage::new("");
    stage.server = none();
    stage
}

fn run(stage: &Stage, arguments: &[&str]) -> Output {
    let mut command = stage.command();
    command.env("USER", "ann").env("DEADSTOP_OPERATOR_TOKEN", OPERATOR);
    stage.run(command.args(arguments), "")
}

/// Issue 19, number 1: an agent could run `deadstop clear` in its own shell.
#[test]
fn hole_01_an_agent_does_not_lift_its_kill_in_local_files() {
    let stage = stage();
    passes(HOST, &stage.hook(HOST, &before(HOST, "t1", "ls")));
    assert_eq!(run(&stage, &["kill", "--agent", HOST.name(), "--local"]).code, 0);
    refused(&stage, "t2", "was ended");
    for order in [
        &["clear", "--agent", HOST.name(), "--local"][..],
        &["resume", "--all", "--local"],
        &["reset", "s1", "--agent", HOST.name(), "--local"],
    ] {
        // Neither without a terminal nor where a host marks the shell as its agent's.
        let shell = stage.run(stage.command().args(order), "");
        assert!(shell.code == 2 && shell.stderr.contains("in a terminal"), "{shell:?}");
        let marked = stage.run(stage.command().env("CLAUDECODE", "1").args(order), "");
        assert!(marked.code == 2 && marked.stderr.contains("CLAUDECODE is set"), "{marked:?}");
    }
    refused(&stage, "t3", "was ended");
    // To tighten control takes nothing.
    let paused = stage.run(stage.command().args(["pause", "--all", "--local"]), "");
    assert_eq!(paused.code, 0, "{paused:?}");
    assert_eq!(run(&stage, &["clear", "--agent", HOST.name(), "--local"]).code, 0);
}

fn json_of(stage: &Stage, arguments: &[&str]) -> Value {
    let output = run(stage, &[arguments, &["--json"]].concat());
    assert_eq!(output.code, 0, "{arguments:?} {output:?}");
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[track_caller]
fn refused(stage: &Stage, id: &str, why: &str) {
    let output = stage.hook(HOST, &before(HOST, id, "ls"));
    assert!(HOST.refuses(event(HOST), &output) && output.stdout.contains(why), "{output:?}");
}

#[test]
fn an_agent_is_killed_and_cleared_in_local_files() {
    let stage = stage();
    passes(HOST, &stage.hook(HOST, &before(HOST, "t1", "ls")));
    let secret = "AKIAIOSFODNN7EXAMPLE";
    let reason = format!("it leaks {secret}");
    for (whom, kind) in [(["--agent", "claude-code"].as_slice(), "agent"), (&["--all"], "project")]
    {
        let kill = [&["kill"], whom, &["--local", "--reason", &reason]].concat();
        let said = json_of(&stage, &kill);
        assert_eq!((&said["done"], &said["where"]), (&json!("killed"), &json!("local")), "{said}");
        assert_eq!(
            (&said["scope"]["kind"], &said["scope"]["state"]),
            (&json!(kind), &json!("killed"))
        );
        refused(&stage, "t2", "it leaks");
        let known = json_of(&stage, &["status", "--local"]);
        let dead = known["scopes"].as_array().unwrap().iter().filter(|it| it["state"] == "killed");
        assert_eq!(dead.map(|it| &it["kind"]).collect::<Vec<_>>(), [kind], "{known}");
        // A server called `none` is none.
        let said = json_of(&stage, &[["clear"].as_slice(), whom].concat());
        assert_eq!((&said["done"], &said["scope"]["state"]), (&json!("cleared"), &json!("active")));
        passes(HOST, &stage.hook(HOST, &before(HOST, &format!("after {kind}"), "ls")));
    }
    let audit = run(&stage, &["audit", "--local", "--json"]).stdout;
    let actions: Vec<Value> = audit.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let told: Vec<_> = actions.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(told, ["project.clear", "project.kill", "agent.clear", "agent.kill"], "{audit}");
    assert!(actions.iter().all(|entry| entry["who"] == "ann"), "{audit}");
    assert!(audit.contains("it leaks") && !audit.contains(secret), "{audit}");
    let one = run(&stage, &["audit", "--local", "--json", "--action", "agent.kill"]).stdout;
    assert_eq!(one.lines().count(), 1, "{one}");
}

#[test]
fn a_session_is_reset_and_not_cleared() {
    let stage = stage();
    let whom = ["s", "--agent", "claude-code", "--local"];
    json_of(&stage, &[&["kill"], whom.as_slice(), &["--reason", "enough", "--new"]].concat());
    refused(&stage, "t1", "enough");
    let output = run(&stage, &[["clear"].as_slice(), &whom].concat());
    assert!(output.code == 2 && output.stderr.contains("hint: deadstop resume"), "{output:?}");
    refused(&stage, "t2", "enough");
    json_of(&stage, &[["reset"].as_slice(), &whom].concat());
    passes(HOST, &stage.hook(HOST, &before(HOST, "t3", "ls")));
    json_of(&stage, &[&["pause"], whom.as_slice(), &["--reason", "lunch"]].concat());
    refused(&stage, "t4", "is held by ann: lunch");
    json_of(&stage, &["resume", "claude-code/s", "--local"]);
    passes(HOST, &stage.hook(HOST, &before(HOST, "t5", "ls")));
    // `resume` also takes what was stopped.
    json_of(&stage, &[&["stop"], whom.as_slice(), &["--reason", "enough"]].concat());
    refused(&stage, "t6", "enough");
    json_of(&stage, &[["resume"].as_slice(), &whom].concat());
    passes(HOST, &stage.hook(HOST, &before(HOST, "t7", "ls")));
    json_of(&stage, &["stop", "--agent", "claude-code", "--local", "--reason", "enough"]);
    refused(&stage, "t8", "enough");
    json_of(&stage, &["resume", "--agent", "claude-code", "--local"]);
    passes(HOST, &stage.hook(HOST, &before(HOST, "t9", "ls")));
}

/// Issue 19, number 11, without a server: a typo was answered with "stopped", and made an agent.
#[test]
fn hole_11_an_unknown_name_is_not_killed_in_local_files() {
    let stage = stage();
    passes(HOST, &stage.hook(HOST, &before(HOST, "t1", "ls")));
    let before_it = json_of(&stage, &["status", "--local"]);
    for what in ["stop", "pause"] {
        for (whom, problem, hint) in [
            (["--agent", "cluade-code"].as_slice(), "no agent `cluade-code`", "`claude-code`?"),
            (&["s", "--agent", "cluade-code"], "no agent `cluade-code`", "`claude-code`?"),
            (&["claude-code/s2"], "no session `s2`", "did you mean `s`?"),
            (&["--agent", "zzz"], "no agent `zzz`", "deadstop status --local"),
        ] {
            let output = run(&stage, &[&[what], whom, &["--local"]].concat());
            assert!(output.code == 2 && output.stdout.is_empty(), "{output:?}");
            let (error, advice) = output.stderr.split_once("\nhint: ").unwrap();
            assert!(error.contains(problem), "{output:?}");
            assert!(advice.contains(hint) && advice.contains("--new"), "{output:?}");
        }
    }
    // Nothing was made of it, and calls go on.
    assert_eq!(json_of(&stage, &["status", "--local"]), before_it);
    passes(HOST, &stage.hook(HOST, &before(HOST, "t2", "ls")));
    json_of(&stage, &["stop", "--agent", "later", "--local", "--new", "--reason", "in advance"]);
    let known = json_of(&stage, &["status", "--local"]).to_string();
    assert!(known.contains("later") && !known.contains("cluade"), "{known}");
    json_of(&stage, &["stop", "--agent", "claude-code", "--local", "--reason", "enough"]);
    refused(&stage, "t3", "enough");
}

#[test]
fn orders_that_cannot_be_carried_out_say_why() {
    let mut stage = stage();
    for (arguments, hint) in [
        (["clear", "--agent", "unknown", "--local"].as_slice(), "deadstop status --local"),
        (&["kill", "s", "--local"], "--agent"),
        (&["reset", "--all", "--local"], "only a session"),
        (&["kill", "--all", "--local", "--server", "http://127.0.0.1:1"], "cannot be used with"),
    ] {
        let output = run(&stage, arguments);
        assert!(output.code == 2 && output.stderr.contains(hint), "{arguments:?} {output:?}");
    }
    // If the user named a server, local files do not take its place.
    stage.server = Some(absent());
    let output = run(&stage, &["kill", "--all"]);
    assert!(output.code == 2 && output.stderr.contains("no server answers"), "{output:?}");
}
