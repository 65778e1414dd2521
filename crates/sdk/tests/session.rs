//! Sessions in one process: the kill switch, scopes of every kind, parallel calls.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use deadstop_sdk::{Api, Limits, Mode, ModelAsk, Outgoing, Refused, Scope, Session, Tokens, Usage};
use serde_json::json;

fn session(policy: &str) -> Session {
    Session::builder("agent").session("s1").policy(policy).unwrap().open().unwrap()
}

fn usage(input: u64, output: u64) -> Usage {
    Usage { input: Tokens(input), output: Tokens(output), ..Usage::default() }
}

/// One model call of this size.
fn think(scope: &Scope, input: u64, output: u64) -> Result<(), Refused> {
    let ask = ModelAsk { model: "gpt-4o", input_tokens: 1, ..ModelAsk::default() };
    scope.model(&ask)?.answered(usage(input, output), "a thought")
}

#[test]
fn the_kill_switch_and_what_comes_after() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("captures.jsonl");
    let session = Session::builder("mail").captures(&file).open().unwrap();
    session.tool("read_mail", &json!({})).unwrap().done("42 mails").unwrap();
    let running = session.tool("delete_mail", &json!({ "id": 1 })).unwrap();
    let stop = running.stop().clone();
    assert!(!stop.is_stopped());

    session.kill("STOP");
    let version = session.state().state_version;
    assert!(stop.is_stopped() && session.is_killed());
    // The executor could not be interrupted; its result is discarded.
    let Err(Refused::Killed(killed)) = running.done("deleted") else { panic!("it goes on") };
    assert!(killed.to_string().contains("STOP"), "{killed}");
    for _ in 0..3 {
        let refused = session.tool("read_mail", &json!({})).unwrap_err();
        assert!(refused.is_killed());
        assert_eq!(refused.why().reason(), "session_killed");
    }
    assert!(think(&session.root(), 1, 1).unwrap_err().is_killed());
    session.kill("another reason");
    let state = session.state();
    assert_eq!((state.killed, state.state_version), (true, version));
    assert_eq!(state.kill_reason.as_deref(), Some("STOP"));
    let health = session.health();
    assert!(health.killed);
    assert_eq!(
        (health.authority_state, health.status, health.durability),
        ("killed", "inactive", "process")
    );
    let lines = std::fs::read_to_string(&file).unwrap();
    assert!(lines.contains(r#""what":"killed""#) && lines.contains("read_mail"), "{lines}");

    session.restore();
    let recovery = Session::builder("mail").mode(Mode::LogOnly).open().unwrap();
    recovery.tool("read_mail", &json!({})).unwrap().done("41 mails").unwrap();
}

#[test]
fn a_call_that_is_cut_knows_which_scope_was_ended() {
    let session = session("balanced");
    let crew = session.scope("crew", Limits::default()).unwrap();
    let worker = crew.scope("worker", Limits::default()).unwrap();
    let running = worker.tool("read", &json!({})).unwrap();
    crew.kill("enough of this");
    let why = running.done("text").unwrap_err().why().clone();
    assert_eq!((why.context.who.as_str(), why.context.depth), ("crew", 1));
    assert_eq!((why.reason(), session.is_killed()), ("scope_killed", false));
    assert!(why.explain.contains("enough of this"), "{}", why.explain);
}

#[test]
fn in_log_only_everything_is_told_and_nothing_refused() {
    let told = Arc::new(AtomicUsize::new(0));
    let session = Session::builder("a")
        .policy("strict")
        .unwrap()
        .mode(Mode::LogOnly)
        .on_tripped({
            let told = Arc::clone(&told);
            move |why| {
                assert_eq!(why.guard, "destructive");
                told.fetch_add(1, Ordering::SeqCst);
            }
        })
        .open()
        .unwrap();
    for _ in 0..4 {
        let call = session.tool("delete_asset", &json!({ "asset_id": "x" })).unwrap();
        drop(call);
    }
    assert!(told.load(Ordering::SeqCst) >= 2);
    assert!(!session.is_killed());
}

/// The containers of seed C, as scopes: name, children, whether they run side by side.
#[test]
fn all_eight_kinds_of_containers() {
    let kinds: [(&str, &[&str], bool); 8] = [
        ("pipeline", &[], false),
        ("pipe", &["pipeline"], false),
        ("connector", &["branch a", "branch b"], false),
        ("multi connector", &["connector 1", "connector 2"], true),
        ("splitter", &["pipeline 1", "pipeline 2", "pipeline 3"], true),
        ("manifold", &["manager", "worker 1", "worker 2"], false),
        ("junction", &["moderator", "participant 1", "participant 2"], false),
        ("distribution grid", &["router", "worker 1", "worker 2"], true),
    ];
    for (kind, children, parallel) in kinds {
        let session = session("[budget]\n");
        let container = session.scope(kind, Limits::default()).unwrap();
        // Set after construction, as the page does.
        let limits = Limits { input_token_limit: Some(1000), ..Limits::default() };
        container.set_limits(limits).unwrap();
        let tripped = Arc::new(AtomicUsize::new(0));
        container.on_tripped({
            let tripped = Arc::clone(&tripped);
            move |why| {
                assert_eq!(why.reason(), "input_exceeded");
                tripped.fetch_add(1, Ordering::SeqCst);
                panic!("a callback cannot prevent anything");
            }
        });
        let open = |name: &&str| container.scope(name, Limits::default()).unwrap();
        let mut scopes: Vec<Scope> = children.iter().map(open).collect();
        if scopes.is_empty() {
            scopes.push(container.clone());
        }
        let spent = AtomicU64::new(0);
        let work = |scope: &Scope| loop {
            match think(scope, 300, 10) {
                Ok(()) => _ = spent.fetch_add(300, Ordering::SeqCst),
                Err(refused) => break refused,
            }
        };
        let ends: Vec<Refused> = match parallel {
            false => scopes.iter().map(work).collect(),
            true => std::thread::scope(|threads| {
                let all: Vec<_> = scopes.iter().map(|s| threads.spawn(|| work(s))).collect();
                all.into_iter().map(|thread| thread.join().unwrap()).collect()
            }),
        };
        assert!(ends.iter().all(Refused::is_killed), "{kind}: {ends:?}");
        let first = ends.iter().find(|end| end.why().reason() == "input_exceeded");
        let context = &first.expect(kind).why().context;
        assert_eq!((context.who.as_str(), context.depth), (kind, 1));
        assert_eq!(context.accumulated_input_tokens, context.input_tokens_spent);
        assert!(context.input_tokens_spent >= 1000, "{context:?}");
        assert!(tripped.load(Ordering::SeqCst) >= 1, "{kind}");
        // What is beside the container goes on.
        assert!(think(&session.root(), 1, 1).is_ok(), "{kind}");
    }
}

#[test]
fn fifty_at_once_and_three_run() {
    let session = session("[steps]\nmax_steps = 3\n");
    let ran = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for n in 0..50 {
            let (session, ran) = (session.clone(), &ran);
            threads.spawn(move || {
                if let Ok(call) = session.tool("look", &json!({ "n": n })) {
                    ran.fetch_add(1, Ordering::SeqCst);
                    let _ = call.done("seen");
                }
            });
        }
    });
    assert_eq!(ran.load(Ordering::SeqCst), 3);
}

#[test]
fn a_hundred_at_once_and_not_a_cent_over() {
    let policy =
        "[budget]\nmax_cost_usd = 0.05\nreservation = \"ceiling\"\n[strikes]\nenabled = false\n";
    let session = session(policy);
    std::thread::scope(|threads| {
        for _ in 0..100 {
            let session = session.clone();
            threads.spawn(move || {
                let ask = ModelAsk {
                    model: "gpt-4o",
                    input_tokens: 400,
                    max_output_tokens: Some(400),
                    ..ModelAsk::default()
                };
                let Ok(call) = session.model(&ask) else { return };
                std::thread::yield_now();
                let _ = call.answered(usage(400, 400), "");
            });
        }
    });
    let figures = session.state().figures;
    // $0.005 a call: ten fit, and some may have been refused while others were in flight.
    assert!(figures.cost_usd <= 0.05 && figures.cost_usd >= 0.04, "{figures:?}");
    assert_eq!((figures.in_flight, figures.reserved_usd), (0, 0.0));
}

#[test]
fn a_call_is_one_call_in_the_answer_and_where_it_runs() {
    let session = session("[steps]\nmax_steps = 1\n");
    let body = br#"{"model":"gpt-4o","messages":[{"role":"user","content":"tidy up"}]}"#;
    let outgoing = Outgoing {
        api: Api::OpenAi,
        provider: "openai",
        method: "POST",
        path: "/v1/chat/completions",
        body,
    };
    let mut exchange = session.root().request(&outgoing).unwrap();
    exchange.answer(200, "application/json");
    let call = json!({ "id": "c1", "type": "function",
        "function": { "name": "list", "arguments": "{\"path\":\"/\"}" } });
    let answer = json!({ "choices": [{ "message": { "tool_calls": [call] } }],
        "usage": { "prompt_tokens": 10, "completion_tokens": 5 } });
    exchange.push(answer.to_string().as_bytes()).unwrap();
    exchange.finish().unwrap();
    assert_eq!(session.state().figures.steps, 1);
    // With a default that the framework has filled in.
    let call = session.tool("list", &json!({ "path": "/", "all": false })).unwrap();
    call.done("a, b").unwrap();
    assert_eq!(session.state().figures.steps, 1);
    assert!(session.tool("list", &json!({ "path": "/" })).unwrap_err().is_killed());
}

#[test]
fn what_an_answer_asks_for_is_judged_before_anybody_sees_it() {
    let session = session("[access]\ndeny = [\"drop_*\"]\n");
    let outgoing = Outgoing {
        api: Api::Anthropic,
        provider: "anthropic",
        method: "POST",
        path: "/v1/messages",
        body: br#"{"model":"claude-sonnet-4-5","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}"#,
    };
    let mut exchange = session.root().request(&outgoing).unwrap();
    exchange.answer(200, "application/json");
    let answer = json!({ "content": [{ "type": "tool_use", "id": "t", "name": "drop_table",
        "input": { "table": "users" } }], "usage": { "input_tokens": 5, "output_tokens": 7 } });
    exchange.push(answer.to_string().as_bytes()).unwrap();
    let refused = exchange.finish().unwrap_err();
    assert!(!refused.is_killed() && refused.why().guard == "access", "{refused}");
    // It was paid all the same.
    assert_eq!(session.state().figures.output_tokens, 7);
    assert_eq!(session.state().figures.in_flight, 0);
}

#[test]
fn a_name_a_limit_and_a_policy_that_cannot_be() {
    let bad = |result: Result<Session, deadstop_sdk::OpenError>| result.unwrap_err().to_string();
    assert!(bad(Session::builder("").open()).contains("cannot be a name"));
    let limits = Limits { max_steps: Some(0), ..Limits::default() };
    assert!(bad(Session::builder("a").limits(limits).open()).contains("1 or more"));
    let bad = |result: Result<_, deadstop_sdk::OpenError>| result.err().unwrap().to_string();
    let text = bad(Session::builder("a").policy("[budget]\nmax_cost_used = 1"));
    assert!(text.contains("did you mean `max_cost_usd`?"), "{text}");
    assert!(bad(Session::builder("a").mode_named("shout")).contains("log-only"));
    let session = session("balanced");
    assert!(session.scope("a\nb", Limits::default()).is_err());
}

#[test]
fn a_process_that_was_forked_off_goes_on_from_where_it_was() {
    let session = session("[steps]\nmax_steps = 2\n");
    session.tool("a", &json!({})).unwrap().done("1").unwrap();
    let child = session.forked();
    child.tool("b", &json!({})).unwrap().done("2").unwrap();
    assert!(child.tool("c", &json!({})).unwrap_err().is_killed());
    session.tool("b", &json!({})).unwrap().done("2").unwrap();
}
