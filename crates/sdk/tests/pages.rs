//! The worked examples of the pages about `session.kill()` and token limits, with their own numbers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::{Arc, Mutex};

use deadstop_sdk::{Limits, ModelAsk, Refused, Scope, Session, Status, Tokens, Usage};
use serde_json::json;

/// The page's `session.yaml`.
const SESSION_YAML: &str = "\
# session.yaml
session_limits:
  circuit_breaker:
    consecutive_blocks: 5
    consecutive_errors: 3
";

fn open(policy: &str) -> Session {
    Session::builder("my-agent").session("s1").policy(policy).unwrap().open().unwrap()
}

/// One model call of this size.
fn think(scope: &Scope, input: u64, output: u64) -> Result<(), Refused> {
    let ask = ModelAsk::new("gpt-4o").input_tokens(1);
    let usage = Usage { input: Tokens(input), output: Tokens(output), ..Usage::default() };
    scope.model(&ask)?.answered(usage, "a thought").map(drop)
}

#[test]
fn the_pages_yaml_kills_after_five_blocks() {
    let session = open(&format!("{SESSION_YAML}access:\n  deny: [rm]\n"));
    for n in 1..=5 {
        let refused = session.tool("rm", &json!({ "n": n })).unwrap_err();
        assert_eq!(refused.is_killed(), n == 5, "blocked call {n}: {refused}");
    }
    assert!(session.is_killed());
    assert!(think(&session.root(), 1, 1).unwrap_err().is_killed());
}

#[test]
fn the_pages_yaml_kills_after_three_errors() {
    let session = open(SESSION_YAML);
    for n in 1..=3 {
        assert!(!session.is_killed(), "before error {n}");
        // The executor broke down: the call has no result.
        let ended = session
            .tool("fetch", &json!({ "n": n }))
            .unwrap()
            .end(Status::Fault, "connection reset");
        assert_eq!(ended.is_err_and(|refused| refused.is_killed()), n == 3, "error {n}");
    }
    assert!(session.is_killed());
}

#[test]
fn max_cost_per_session_of_a_yaml_kills() {
    // gpt-4o: $2.50 and $10 per million, so a call of 40,000 and 10,000 tokens costs $0.20.
    let session = open("session_limits:\n  max_cost_per_session: 0.5\n");
    let root = session.root();
    assert!(think(&root, 40_000, 10_000).is_ok());
    assert!(think(&root, 40_000, 10_000).is_ok());
    let killed = think(&root, 40_000, 10_000).err().or_else(|| think(&root, 1, 1).err()).unwrap();
    assert!(killed.is_killed(), "{killed}");
    assert_eq!(killed.why().reason(), "budget_exceeded");
}

#[test]
fn forbidden_tools_stop_changing_at_the_kill() {
    let session = open("[access]\ndeny = [\"rm\"]\n");
    assert_eq!(session.state().forbidden_tools, ["rm"]);
    session.kill("STOP");
    let before = session.state();
    let _ = session.tool("look", &json!({}));
    session.root().set_limits(Limits::new().max_steps(7)).unwrap();
    let after = session.state();
    assert_eq!(after.forbidden_tools, before.forbidden_tools);
    assert_eq!(after.state_version, before.state_version);
}

/// The page's manifold: 100,000 input and 50,000 output tokens for a manager and its worker, and a limit
/// of its own on the worker's pipeline.
#[test]
fn nested_token_limits_with_the_pages_numbers() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let session = open("[text_loop]\nenabled = false\n");
    let limits = Limits::new().input_token_limit(100_000).output_token_limit(50_000);
    let manifold = session.scope("manifold", limits).unwrap();
    manifold.on_tripped({
        let told = Arc::clone(&told);
        move |why| told.lock().unwrap().push(why.context.clone())
    });
    let manager = manifold.scope("manager", Limits::default()).unwrap();
    let inner = Limits::new().input_token_limit(50_000).output_token_limit(25_000);
    let worker = manifold.scope("analyzer", inner).unwrap();

    // The inner limit ends the worker alone.
    assert!(think(&worker, 40_000, 9_000).is_ok());
    let killed = think(&worker, 11_000, 1_000).unwrap_err();
    let at = &killed.why().context;
    assert_eq!((at.reason.as_str(), at.depth), ("input_exceeded", 2));
    assert_eq!((at.input_tokens_spent, at.output_tokens_spent), (51_000, 10_000));
    assert_eq!(at.path, ["my-agent", "s1", "manifold", "analyzer"]);

    // The outer one holds for the sum: 51,000 of the worker and what the manager uses.
    assert!(think(&manager, 40_000, 30_000).is_ok());
    let killed = think(&manager, 20_000, 20_000).unwrap_err();
    let at = &killed.why().context;
    assert_eq!((at.reason.as_str(), at.depth), ("input_and_output_exceeded", 1));
    assert_eq!((at.accumulated_input_tokens, at.accumulated_output_tokens), (111_000, 60_000));
    assert!(killed.to_string().contains("input_tokens=111000 | output_tokens=60000 | elapsed_ms="));
    let reasons: Vec<_> = told.lock().unwrap().iter().map(|at| at.reason.clone()).collect();
    assert_eq!(reasons.last().map(String::as_str), Some("input_and_output_exceeded"));

    // What is beside the manifold goes on.
    assert!(think(&session.root(), 1, 1).is_ok());
}

/// The page's test at a small limit: an input of more than 1,000 tokens.
#[test]
fn a_limit_of_1000_is_exceeded_by_a_larger_input() {
    let session = open("[tokens]\ninput_token_limit = 1000\n");
    let ask = ModelAsk::new("gpt-4o").input_tokens(1_001);
    let refused = session.root().model(&ask).unwrap_err();
    assert_eq!(refused.why().reason(), "input_exceeded");
}
