//! The scenarios that every door must judge alike, run by the SDK.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use deadstop_sdk::{
    CaptureKind, Limits, ModelAsk, Refused, Running, Scope, Session, Status, Time, Tokens, Usage,
};
use serde_json::Value;

fn said(admitted: &Result<Running, Refused>) -> String {
    let why = match admitted {
        Ok(running) => running.warnings().first(),
        Err(refused) => Some(refused.why()),
    };
    match why {
        None => "allow".to_owned(),
        Some(why) => format!("{} {}/{}", why.verdict, why.guard, why.code),
    }
}

fn ask(scope: &Scope, step: &Value) -> Result<Running, Refused> {
    if let Some(tool) = step["tool"].as_str() {
        return scope.tool_on(tool, step["server"].as_str(), &step["arguments"]);
    }
    let mut ask = ModelAsk::new(step["model"].as_str().unwrap());
    ask.provider = step["provider"].as_str();
    ask.input_tokens = step["input_tokens"].as_u64().unwrap_or_default();
    ask.max_output_tokens = step["max_output_tokens"].as_u64();
    ask.prompt = step["prompt"].as_str();
    ask.from_person = step["from_person"].as_bool().unwrap_or_default();
    scope.model(&ask)
}

/// Settles a call; the verdict stands in its capture.
fn end(session: &Session, running: Running, step: &Value) -> String {
    let status = match step["status"].as_str().unwrap_or("ok") {
        "ok" => Status::Ok,
        "error" => Status::Error,
        "fault" => Status::Fault,
        _ => Status::Cancelled,
    };
    let tokens = |name: &str| Tokens(step["usage"][name].as_u64().unwrap_or_default());
    let usage = Usage { input: tokens("input"), output: tokens("output"), ..Usage::default() };
    let _ = match step["usage"].is_object() {
        true => running.end_model(status, usage, step["answer"].as_str().unwrap_or_default()),
        false => running.end(status, step["result"].as_str().unwrap_or_default()),
    };
    let captures = session.captures();
    let settled = captures.iter().rev().find(|capture| capture.what == CaptureKind::Settled);
    settled.unwrap().verdict.to_string()
}

#[test]
fn the_sdk_says_what_the_scenarios_say() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let file = file.join("../../tests/conformance/scenarios.json");
    let all: Vec<Value> = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    for scenario in &all {
        let time = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&time);
        let session = Session::builder("agent")
            .session("s1")
            .policy(&scenario["policy"].to_string())
            .unwrap()
            .clock(Arc::new(move || Time(clock.load(Ordering::SeqCst))))
            .open()
            .unwrap();
        let mut open = HashMap::new();
        for (number, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
            let at = format!("{}, step {number}", scenario["name"]);
            time.store(step["at"].as_u64().unwrap_or_default(), Ordering::SeqCst);
            let names = step["scope"].as_array().into_iter().flatten();
            let scope = names.fold(session.root(), |scope, name| {
                scope.scope(name.as_str().unwrap(), Limits::default()).unwrap()
            });
            if let Some(reason) = step["kill"].as_str() {
                session.kill(reason);
            } else if step["limits"].is_object() {
                let limits = serde_json::from_value(step["limits"].clone()).unwrap();
                scope.set_limits(limits).unwrap();
            } else if let Some(id) = step["end"].as_str() {
                let running = open.remove(id).unwrap();
                assert_eq!(end(&session, running, step), step["then"], "{at}");
            } else {
                let admitted = ask(&scope, step);
                assert_eq!(said(&admitted), step["expect"], "{at}");
                let Ok(running) = admitted else { continue };
                match step["open"].as_str() {
                    Some(id) => _ = open.insert(id.to_owned(), running),
                    None => assert_eq!(end(&session, running, step), step["then"], "{at}"),
                }
            }
        }
    }
    assert!(all.len() >= 40);
}
