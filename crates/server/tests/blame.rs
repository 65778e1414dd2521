//! Identity, blame and cost at the gateway: under the default policy nothing ends a healthy session. On
//! three nodes every turn of a conversation lands on any of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{
    Ask, Gate, Got, PATIENCE, Reply, Said, Seen, Speech, Step, Turn, percentile, soak, until,
};

fn bearer(ask: Ask, key: &str) -> Ask {
    ask.with("authorization", &format!("Bearer {key}"))
}

/// All sessions that the server knows of, with their states.
async fn sessions(gate: &Gate) -> Vec<Value> {
    let status = gate.ask(&Ask::get("/api/status")).await.json();
    let scopes = status["scopes"].as_array().cloned().unwrap_or_default();
    scopes.into_iter().filter(|scope| scope["kind"] == "session").collect()
}

/// Under the defaults an SDK's three attempts at one call, each answered with 503, used to end the
/// session for good.
#[tokio::test]
async fn a_provider_that_is_down_ends_no_session() {
    let down = Arc::new(AtomicU64::new(60));
    let left = Arc::clone(&down);
    let gate = Gate::start(json!({}), move |_: &Seen| {
        match left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)) {
            Ok(n) => {
                let statuses = [500, 502, 503, 529, 429, 408];
                let status = statuses[n as usize % statuses.len()];
                Reply::json(status, &json!({ "error": { "message": "no" } }))
            }
            Err(_) => Speech::Chat.reply(false, &Said::text("Hello")),
        }
    })
    .await;
    let ask = Speech::Chat.says(false, "Hello there").by("a", "s");
    let mut breaker = 0;
    for attempt in 0..30 {
        let again = ask.clone().with("x-stainless-retry-count", &(attempt % 3).to_string());
        let got = gate.ask(&again).await;
        assert!(got.status >= 408 && got.status != 410, "{}: {}", got.status, got.text());
        assert_ne!(got.status, 403, "{}", got.text());
        breaker += u32::from(got.header("x-deadstop-guard") == Some("breaker"));
    }
    // A trial call may fall into a run that takes longer than the first back-off.
    assert!((20..=25).contains(&breaker), "{breaker}: after five failures it is left alone");
    assert_eq!(gate.scope("s").await["state"], "running");
    down.store(0, Ordering::SeqCst);
    // The breaker closes by itself: its first back-off takes two seconds.
    until("the breaker closes", async || gate.ask(&ask).await.status == 200).await;
}

/// Five calls with a wrong key used to shut another client out for half a minute.
#[tokio::test]
async fn one_clients_mistakes_are_its_own() {
    let gate = Gate::start(json!({}), |seen: &Seen| match seen.header("authorization") {
        Some("Bearer right") => Speech::Chat.reply(false, &Said::text("Hello")),
        _ => Reply::json(401, &json!({ "error": { "message": "no such key" } })),
    })
    .await;
    for _ in 0..20 {
        let wrong = bearer(Speech::Chat.says(false, "Hello there"), "wrong");
        assert_eq!(gate.ask(&wrong).await.status, 401);
        assert_eq!(gate.ask(&bearer(Ask::get("/openai/v1/files/x"), "wrong")).await.status, 401);
        let right = bearer(Speech::Chat.says(false, "Hello there"), "right");
        assert_eq!(gate.ask(&right).await.status, 200);
    }
    assert!(sessions(&gate).await.iter().all(|session| session["state"] == "running"));
}

/// Three people say "hi" without a session's name, and each asks for one deletion. The third one
/// used to be stopped, and everybody who said "hi" afterwards.
#[tokio::test]
async fn strangers_never_share_a_session() {
    let number = AtomicU64::new(0);
    let gate = Gate::start(json!({}), move |seen: &Seen| {
        let number = number.fetch_add(1, Ordering::SeqCst);
        let messages = seen.json()["messages"].as_array().map_or(0, Vec::len);
        let said = match messages {
            2 => {
                let target = json!({ "asset_id": format!("asset-{number}") });
                Said::call(&format!("call_{number}"), "delete_asset", target)
            }
            _ => Said::text(&format!("deleted number {number}")),
        };
        Speech::Chat.reply(false, &said)
    })
    .await;
    for _ in 0..24 {
        let first = gate.ask(&Speech::Chat.says(false, "hi")).await;
        assert_eq!(first.status, 200, "{}", first.text());
        let call = &first.json()["choices"][0]["message"]["tool_calls"][0];
        let id = call["id"].as_str().unwrap().to_owned();
        let arguments = call["function"]["arguments"].as_str().unwrap();
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        let name = "delete_asset".to_owned();
        let turns = [
            Turn::User("hi".into()),
            Turn::Call { id: id.clone(), name: name.clone(), arguments },
            Turn::Result { id, name, text: "gone".into() },
        ];
        let second = gate.ask(&Speech::Chat.ask(false, &turns)).await;
        assert_eq!(second.status, 200, "{}", second.text());
    }
    let sessions = sessions(&gate).await;
    assert_eq!(sessions.len(), 24);
    assert!(sessions.iter().all(|session| session["model_calls"] == 2), "{sessions:?}");
}

/// A fresh `traceparent` with every call used to be a fresh session with every call.
#[tokio::test]
async fn a_trace_is_no_session() {
    let gate = Gate::start(json!({ "breaker": { "enabled": false } }), |_: &Seen| {
        Reply::json(500, &json!({ "error": { "message": "no" } }))
    })
    .await;
    for call in 0..60u64 {
        let trace = format!("00-{:032x}-00f067aa0ba902b7-01", call + 1);
        let ask = Speech::Chat.says(false, "fix the build").with("traceparent", &trace);
        assert_eq!(gate.ask(&ask).await.status, 500);
    }
    let sessions = sessions(&gate).await;
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    assert_eq!(sessions[0]["model_calls"], 60);
}

#[tokio::test]
async fn questions_about_models_are_no_model_calls() {
    let gate = Gate::start(json!({ "steps": { "max_model_calls": 2 } }), |seen: &Seen| {
        match seen.target.contains("messages") || seen.target.contains("models") {
            true => Reply::json(200, &json!({ "data": [], "input_tokens": 3 })),
            false => Speech::Chat.reply(false, &Said::text("Hello")),
        }
    })
    .await;
    for _ in 0..5 {
        let models = Ask::get("/openai/v1/models").by("a", "s");
        assert_eq!(gate.ask(&models).await.status, 200);
        let body = json!({ "model": "claude-sonnet-4-5", "messages": [] });
        let count = Ask::post("/anthropic/v1/messages/count_tokens", &body).by("a", "s");
        assert_eq!(gate.ask(&count).await.status, 200);
    }
    let ask = |text: &str| Speech::Chat.says(false, text).by("a", "s");
    assert_eq!(gate.ask(&ask("one")).await.status, 200);
    assert_eq!(gate.ask(&ask("two")).await.status, 200);
    assert_eq!(gate.ask(&ask("three")).await.status, 402);
    assert_eq!(gate.scope("s").await["model_calls"], 2);
}

/// `x-deadstop-agent: other` on `/agent/NAME/…` used to escape the budget of NAME.
#[tokio::test]
async fn the_path_names_the_agent() {
    let hello = |_: &Seen| Speech::Chat.reply(false, &Said::text("Hello"));
    let gate = Gate::start(json!({ "agent": { "steps": { "max_model_calls": 1 } } }), hello).await;
    let body = Speech::Chat.request(false, &[Turn::User("hi".into())]);
    let ask = Ask::post("/agent/bound/openai/v1/chat/completions", &body);
    assert_eq!(gate.ask(&ask).await.status, 200);
    let other = gate.ask(&ask.with("x-deadstop-agent", "other")).await;
    assert_eq!(other.status, 402, "{}", other.text());
    assert_eq!(gate.scope("other").await, Value::Null);
}

/// Clients may name a session as they like, but not enter another credential's.
#[tokio::test]
async fn a_name_belongs_to_its_credential() {
    let hello = |_: &Seen| Speech::Chat.reply(false, &Said::text("Hello"));
    let gate = Gate::start(json!({}), hello).await;
    for key in ["ada", "bob", "ada", "bob"] {
        let ask = bearer(Speech::Chat.says(false, "hi"), key).with("x-session-id", "1");
        assert_eq!(gate.ask(&ask).await.status, 200);
    }
    let sessions = sessions(&gate).await;
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    assert!(sessions.iter().all(|session| session["model_calls"] == 2), "{sessions:?}");
    assert!(sessions.iter().any(|session| session["name"] == "1"), "{sessions:?}");
}

/// An answer that other requests go on from by its id, as the Responses API does.
#[tokio::test]
async fn a_response_is_gone_on_from_by_its_id() {
    let number = AtomicU64::new(0);
    let gate = Gate::start(json!({}), move |_: &Seen| {
        let number = number.fetch_add(1, Ordering::SeqCst);
        let mut whole = Speech::Responses.whole(&Said::text("Hello"));
        whole["id"] = json!(format!("resp_{number}"));
        Reply::json(200, &whole)
    })
    .await;
    for key in ["ada", "bob"] {
        let mut last: Option<String> = None;
        for turn in 0..4 {
            let mut body = json!({ "model": "gpt-4o", "input": format!("turn {turn}") });
            if let Some(last) = &last {
                body["previous_response_id"] = json!(last);
            }
            let got = gate.ask(&bearer(Ask::post("/openai/v1/responses", &body), key)).await;
            assert_eq!(got.status, 200, "{}", got.text());
            last = got.json()["id"].as_str().map(str::to_owned);
        }
    }
    let sessions = sessions(&gate).await;
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    assert!(sessions.iter().all(|session| session["model_calls"] == 4), "{sessions:?}");
}

/// What the gateway made of some calls at once.
struct Tally {
    served: usize,
    throttled: usize,
    used_up: usize,
    times: Vec<Duration>,
}

async fn at_once(gate: &Gate, ask: &Ask, calls: usize) -> Tally {
    let clients: Vec<_> = (0..calls)
        .map(|_| {
            let (ask, address) = (ask.clone(), gate.address);
            tokio::spawn(async move {
                let begun = Instant::now();
                let mut got = ask.send_to(address).await;
                // A node that waits in vain for Redis says so: it does not spend of a ceiling alone.
                while got.status == 503 && begun.elapsed() < PATIENCE {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    got = ask.send_to(address).await;
                }
                (got, begun.elapsed())
            })
        })
        .collect();
    let mut tally = Tally { served: 0, throttled: 0, used_up: 0, times: Vec::new() };
    for client in clients {
        let (got, took): (Got, Duration) = client.await.unwrap();
        match got.status {
            200 => {
                tally.served += 1;
                tally.times.push(took);
            }
            429 => {
                assert!(got.header("retry-after").is_some(), "{}", got.text());
                tally.throttled += 1;
            }
            402 => tally.used_up += 1,
            other => panic!("{other}: {}", got.text()),
        }
    }
    tally
}

/// $0.0035 a call: 1,000 tokens of gpt-4o in, 100 out.
fn cheap(_: &Seen) -> Reply {
    let said = Said { input: 1000, output: 100, ..Said::text("Here you are") };
    let mut reply = Reply::default().then(Step::Sleep(Duration::from_millis(20)));
    reply.0.extend(Speech::Chat.reply(false, &said).0);
    reply
}

/// The README's example: six calls without `max_tokens` on $5 under `ceiling` got no answer, and the
/// session was dead.
#[tokio::test]
async fn six_calls_on_five_dollars_all_succeed() {
    let policy = json!({ "budget": { "max_cost_usd": 5, "reservation": "ceiling" } });
    let gate = Gate::start(policy, cheap).await;
    let tally = at_once(&gate, &Speech::Chat.says(false, "Sum this up").by("a", "s"), 6).await;
    assert_eq!((tally.served, tally.throttled, tally.used_up), (6, 0, 0));
    assert_eq!(gate.scope("s").await["state"], "running");
}

/// Twenty calls at $0.0035 on $0.05: what fits one after the other is served, and not one more.
#[tokio::test]
async fn calls_that_fit_one_after_the_other_all_succeed() {
    for reservation in ["expected", "ceiling"] {
        let budget = json!({ "max_cost_usd": 0.05, "reservation": reservation, "wait_s": 10 });
        // All answers are the same here: that is not what this is about.
        let policy = json!({ "budget": budget, "text_loop": { "enabled": false } });
        let gate = Gate::start(policy, cheap).await;
        let mut body = Speech::Chat.request(false, &[Turn::User("word ".repeat(800))]);
        body["max_tokens"] = json!(100);
        let ask = Ask::post(Speech::Chat.path(false), &body).by("a", "s");
        let Tally { served, throttled, used_up, .. } = at_once(&gate, &ask, 20).await;
        let spent = gate.scope("s").await["cost_usd"].as_f64().unwrap();
        println!(
            "{reservation}: {served} served, {throttled} throttled, {used_up} refused, ${spent}"
        );
        assert!((13..=15).contains(&served), "{reservation}: {served} served of 14, ${spent}");
        assert_eq!(served + throttled + used_up, 20);
        if reservation == "ceiling" {
            assert!(spent <= 0.05, "${spent}");
        }
    }
}

/// A thousand callers on $30, never a cent over: how many were served, and how long they waited. On
/// three nodes, 200 on $6 unless this is a soak.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_callers_on_thirty_dollars() {
    let _turn = crate::support::heavy().await;
    let callers = if crate::gate::NODES > 1 && !soak() { 200 } else { 1000 };
    let dollars = f64::from(callers) * 0.03;
    let policy = json!({
        "budget": { "max_cost_usd": dollars, "reservation": "ceiling", "wait_s": 60 },
        "velocity": {}, "text_loop": { "enabled": false },
    });
    // $0.10 a call: 20,000 tokens in and 5,000 out.
    let gate = Gate::with(
        policy,
        |_: &Seen| {
            let said = Said { input: 20_000, output: 5000, ..Said::text("A long answer") };
            let mut reply = Reply::default().then(Step::Sleep(Duration::from_millis(30)));
            reply.0.extend(Speech::Chat.reply(false, &said).0);
            reply
        },
        |config| config.max_in_flight = 2000,
    )
    .await;
    let mut body = Speech::Chat.request(false, &[Turn::User("word ".repeat(12_000))]);
    body["max_tokens"] = json!(5000);
    let ask = Ask::post(Speech::Chat.path(false), &body).by("a", "s");
    let Tally { served, throttled, used_up, mut times } =
        at_once(&gate, &ask, callers as usize).await;
    let spent = gate.scope("s").await["cost_usd"].as_f64().unwrap();
    let queued = gate.counted("deadstop_queued_total").await;
    println!(
        "{callers} callers on ${dollars} under ceiling, {} node(s): {served} served, {queued} queued, \
         {throttled} throttled, {used_up} refused; ${spent:.4} spent; wait p50 {:.0} ms, p99 {:.0} ms",
        crate::gate::NODES,
        percentile(&mut times, 50),
        percentile(&mut times, 99),
    );
    assert!(spent <= dollars, "${spent}");
    assert!(served as f64 >= f64::from(callers) * 0.295, "{served}");
    assert_eq!(served + throttled + used_up, callers as usize);
}

/// An unknown model is charged dearly; one whose answer names another is charged as that.
#[tokio::test]
async fn the_model_that_answers_is_billed() {
    let gate = Gate::start(json!({}), |seen: &Seen| {
        let said = Said { input: 1000, output: 1000, ..Said::text("Hello") };
        let mut whole = Speech::Chat.whole(&said);
        whole["model"] = match seen.json()["model"].as_str() {
            Some("my-deployment") => json!("gpt-4o-mini-2024-07-18"),
            _ => json!("house-model"),
        };
        Reply::json(200, &whole)
    })
    .await;
    for (model, session, expected) in
        [("my-deployment", "s", 0.00075), ("house-model", "t", 0.04), ("gpt-4o", "u", 0.0125)]
    {
        let mut body = Speech::Chat.request(false, &[Turn::User("hi".into())]);
        body["model"] = json!(model);
        let ask = Ask::post(Speech::Chat.path(false), &body).by("a", session);
        assert_eq!(gate.ask(&ask).await.status, 200);
        assert_eq!(gate.scope(session).await["cost_usd"], expected, "{model}");
    }
}
