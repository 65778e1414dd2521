//! Sessions in one process: the kill switch, scopes of every kind, parallel calls.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use deadstop_sdk::{
    AuthorityState, Durability, Limits, Mode, ModelAsk, Outgoing, Refused, Scope, Session,
    SessionStatus, Tokens, Usage,
};
use serde_json::json;

fn session(policy: &str) -> Session {
    Session::builder("agent").session("s1").policy(policy).unwrap().open().unwrap()
}

fn usage(input: u64, output: u64) -> Usage {
    Usage { input: Tokens(input), output: Tokens(output), ..Usage::default() }
}

/// One model call of this size.
fn think(scope: &Scope, input: u64, output: u64) -> Result<(), Refused> {
    let ask = ModelAsk::new("gpt-4o").input_tokens(1);
    scope.model(&ask)?.answered(usage(input, output), "a thought").map(drop)
}

#[test]
fn the_kill_switch_and_what_comes_after() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("captures.jsonl");
    let session = Session::builder("mail").captures(&file).open().unwrap();
    session.tool("read_mail", &json!({})).unwrap().done("42 mails").unwrap();
    let running = session.tool("delete_mail", &json!({ "id": 1 })).unwrap();
    let stop = running.stop_signal().clone();
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
        (AuthorityState::Killed, SessionStatus::Inactive, Durability::Process)
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
    assert_eq!((why.context.who.as_str(), why.context.depth), ("agent/s1/crew", 1));
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
        let limits = Limits::new().input_token_limit(1000);
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
        assert_eq!((context.path[2].as_str(), context.depth), (kind, 1));
        assert_eq!(context.accumulated_input_tokens, context.input_tokens_spent);
        assert!(context.input_tokens_spent >= 1000, "{context:?}");
        assert_eq!(tripped.load(Ordering::SeqCst), 1, "{kind}: once per trip");
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
                let ask = ModelAsk::new("gpt-4o").input_tokens(400).max_output_tokens(400);
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
    let outgoing = Outgoing::new("api.openai.com", "/v1/chat/completions", body);
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
fn what_an_answer_asks_for_is_judged_before_the_agent_sees_it() {
    let session = session("[access]\ndeny = [\"drop_*\"]\n");
    let body = br#"{"model":"claude-sonnet-4-5","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}"#;
    let outgoing = Outgoing::new("api.anthropic.com", "/v1/messages", body);
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
    let limits = Limits::new().max_steps(0);
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
    let child = session.before_fork().session();
    child.tool("b", &json!({})).unwrap().done("2").unwrap();
    assert!(child.tool("c", &json!({})).unwrap_err().is_killed());
    session.tool("b", &json!({})).unwrap().done("2").unwrap();
}

/// A stream of OpenAI's, with text and at last the usage.
fn stream(session: &Session, input: u64, output: u64) -> Result<(), Refused> {
    let body = br#"{"model":"gpt-4o","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    let outgoing = Outgoing::new("api.openai.com", "/v1/chat/completions", body);
    let mut exchange = session.root().request(&outgoing)?;
    exchange.answer(200, "text/event-stream");
    let said = json!({ "choices": [{ "delta": { "content": "Hello" } }] });
    exchange.push(format!("data: {said}\n\n").as_bytes())?;
    let used = json!({ "choices": [],
        "usage": { "prompt_tokens": input, "completion_tokens": output } });
    exchange.push(format!("data: {used}\n\ndata: [DONE]\n\n").as_bytes())?;
    exchange.finish().map(drop)
}

/// A document of OpenAI's.
fn document(session: &Session, input: u64, output: u64) -> Result<(), Refused> {
    let body = br#"{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}]}"#;
    let outgoing = Outgoing::new("api.openai.com", "/v1/chat/completions", body);
    let mut exchange = session.root().request(&outgoing)?;
    exchange.answer(200, "application/json");
    let answer = json!({ "choices": [{ "message": { "content": "Hello" } }],
        "usage": { "prompt_tokens": input, "completion_tokens": output } });
    exchange.push(answer.to_string().as_bytes())?;
    exchange.finish().map(drop)
}

#[test]
fn a_trip_has_the_figures_of_the_answer_that_tripped_and_so_has_the_frozen_state() {
    for run in [stream, document] {
        for (input, output, reason) in [
            (2_000, 61_000, "input_and_output_exceeded"),
            (10, 61_000, "output_exceeded"),
            (2_000, 10, "input_exceeded"),
        ] {
            let session =
                session("[tokens]\ninput_token_limit = 1000\noutput_token_limit = 1000\n");
            let killed = run(&session, input, output).unwrap_err();
            assert!(killed.is_killed(), "{killed}");
            let at = &killed.why().context;
            assert_eq!(at.reason, reason);
            let spent = (at.input_tokens_spent, at.output_tokens_spent);
            assert_eq!(spent, (input, output));
            assert_eq!((at.accumulated_input_tokens, at.accumulated_output_tokens), spent);
            let told =
                format!("[{reason} | input_tokens={input} | output_tokens={output} | elapsed_ms=");
            assert!(killed.to_string().contains(&told), "{killed}");
            // The frozen state has the killing answer, and later calls know the cause.
            let figures = session.state().figures;
            assert_eq!((figures.input_tokens, figures.output_tokens), spent);
            assert_eq!(figures.in_flight, 0);
            let later = session.tool("look", &json!({})).unwrap_err();
            assert_eq!(
                (later.why().reason(), later.why().code.as_str()),
                (reason, "session_killed_tokens")
            );
        }
    }
}

#[test]
fn calls_in_flight_when_a_limit_trips_are_counted_down() {
    let session = session("[steps]\nmax_steps = 10\n");
    let look = |n: u32| session.tool("look", &json!({ "n": n }));
    let running: Vec<_> = (0..10).map(|n| look(n).unwrap()).collect();
    assert!(look(10).unwrap_err().is_killed());
    let version = session.state().state_version;
    assert_eq!(session.state().figures.in_flight, 10);
    for (n, call) in running.into_iter().enumerate() {
        call.done("seen").unwrap();
        assert_eq!(session.state().figures.in_flight, 9 - n as u64);
    }
    assert_eq!(session.state().state_version, version, "nothing else has changed");
}

#[test]
fn limits_that_are_not_given_stay() {
    let session = session("balanced");
    let crew = session.scope("crew", Limits::new().max_cost_usd(5.0).max_model_calls(2)).unwrap();
    crew.set_limits(Limits::new().max_steps(100)).unwrap();
    assert_eq!(crew.limits(), Limits::new().max_cost_usd(5.0).max_model_calls(2).max_steps(100));
    crew.replace_limits(Limits::new().max_steps(1)).unwrap();
    assert_eq!(crew.limits(), Limits::new().max_steps(1));
    assert!(crew.set_limits(Limits::new().max_cost_usd(f64::NAN)).is_err());
}

#[test]
fn an_observer_is_called_once_per_trip_and_not_by_its_own_calls() {
    let told = Arc::new(AtomicUsize::new(0));
    let session = session("[access]\ndeny = [\"rm\"]\n[strikes]\nenabled = false\n");
    session.on_tripped({
        let (told, session) = (Arc::clone(&told), session.clone());
        move |_| {
            told.fetch_add(1, Ordering::SeqCst);
            // A callback that does what tripped is not called again for that.
            assert!(session.tool("rm", &json!({})).is_err());
        }
    });
    assert!(session.tool("rm", &json!({})).is_err());
    assert_eq!(told.load(Ordering::SeqCst), 1);
    assert!(session.tool("rm", &json!({})).is_err());
    assert_eq!(told.load(Ordering::SeqCst), 2);
    session.kill("enough");
    for _ in 0..3 {
        assert!(session.tool("look", &json!({})).unwrap_err().is_killed());
    }
    assert_eq!(told.load(Ordering::SeqCst), 2, "a call in a dead session is no trip");
}

#[test]
fn errors_tell_their_sources() {
    use std::error::Error as _;
    let missing = std::path::Path::new("no/such/folder/captures.jsonl");
    let error = Session::builder("a").captures(missing).open().unwrap_err();
    assert!(error.source().unwrap().downcast_ref::<std::io::Error>().is_some());
    let error = Session::builder("a").server("nowhere").open().unwrap_err();
    assert!(error.source().unwrap().downcast_ref::<deadstop_sdk::ClientError>().is_some());
}
