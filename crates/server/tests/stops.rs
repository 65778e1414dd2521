//! Who is stopped, who is not, and what the stopped one gets to see.

use std::time::{Duration, Instant};

use deadstop_server::OnKill;
use serde_json::{Value, json};

use crate::support::dialect::chat_chunk;
use crate::support::wire::Next;
use crate::support::{ALL, Ask, Gate, Got, Reply, Said, Seen, Speech, Step, Turn, soon, until};

/// Loops end at the fifth call, without advice before that.
fn strict() -> Value {
    json!({ "preset": "strict", "loop": { "threshold": 5, "action": "terminate" } })
}

/// The dialect of a request, and whether it wants a stream, by what arrived at the upstream.
fn spoken(seen: &Seen) -> (Speech, bool) {
    let stream = seen.json()["stream"] == true || seen.target.contains("streamGenerate");
    let speech = match seen.target.as_str() {
        path if path.ends_with("/chat/completions") => Speech::Chat,
        path if path.ends_with("/responses") => Speech::Responses,
        path if path.ends_with("/messages") => Speech::Anthropic,
        _ => Speech::Gemini,
    };
    (speech, stream)
}

/// An upstream that always says the same.
fn saying(said: Said) -> impl Fn(&Seen) -> Reply + Send + Sync + 'static {
    move |seen| {
        let (speech, stream) = spoken(seen);
        speech.reply(stream, &said)
    }
}

/// An upstream whose answer depends on the step that the request names.
fn stepping(
    next: impl Fn(usize) -> Said + Send + Sync + 'static,
) -> impl Fn(&Seen) -> Reply + Send + Sync + 'static {
    move |seen| {
        let (speech, stream) = spoken(seen);
        let step = seen.header("x-step").unwrap().parse().unwrap();
        speech.reply(stream, &next(step))
    }
}

/// An agent that does as the model says: calls the tool, appends the result, asks again.
struct Agent<'a> {
    gate: &'a Gate,
    speech: Speech,
    stream: bool,
    session: String,
    turns: Vec<Turn>,
}

impl Agent<'_> {
    async fn ask(&self, step: usize) -> Got {
        let ask = self.speech.ask(self.stream, &self.turns).by("worker", &self.session);
        self.gate.ask(&ask.with("x-step", &step.to_string())).await
    }

    fn did(&mut self, said: &Said, text: &str) {
        for (id, name, arguments) in said.calls.clone() {
            let result = Turn::Result { id: id.clone(), name: name.clone(), text: text.to_owned() };
            self.turns.push(Turn::Call { id, name, arguments });
            self.turns.push(result);
        }
    }
}

fn agent(gate: &Gate, speech: Speech, stream: bool) -> Agent<'_> {
    let session = format!("{speech:?}-{stream}");
    Agent { gate, speech, stream, session, turns: vec![Turn::User("Tidy up the docs".into())] }
}

/// Whether an answer arrived as the model gave it.
fn arrived(got: &Got) -> bool {
    got.status == 200 && got.complete && !got.text().contains("deadstop")
}

/// The `error` of a refusal, whether it is the body or the last event of a stream.
fn error(got: &Got) -> Value {
    let text = got.text();
    let body = match text.rsplit("data: ").next() {
        Some(event) if got.status == 200 => event.to_owned(),
        _ => text.clone(),
    };
    let body: Value = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e} in {text}"));
    body["error"].clone()
}

#[tokio::test]
async fn a_healthy_agent_with_the_same_tools_in_every_request_runs_200_steps() {
    let file = |step: usize| json!({ "path": format!("docs/chapter-{step}.md") });
    let next = move |step| Said::call(&format!("call_{step}"), "read_file", file(step));
    let gate = Gate::start(json!({ "preset": "strict", "similarity": { "enabled": true } }), {
        stepping(next)
    })
    .await;
    let agents = [(Speech::Chat, false), (Speech::Anthropic, true)];
    for (speech, stream) in agents {
        let mut agent = agent(&gate, speech, stream);
        for step in 0..200 {
            let got = agent.ask(step).await;
            assert!(arrived(&got), "{speech:?} stopped at step {step}: {}", got.text());
            let text = format!("chapter {step} is about {}", "words and things ".repeat(step % 7));
            agent.did(&next(step), &text);
        }
        let scope = gate.scope(&agent.session).await;
        assert_eq!((&scope["steps"], &scope["state"]), (&json!(200), &json!("running")));
    }
}

#[tokio::test]
async fn many_users_who_say_hi_to_one_agent_are_no_loop() {
    let greeting = "Hello! I am the assistant of Example Stores. I can help you with orders, \
                    invoices, returns and gift cards. What can I do for you today?";
    let policy = json!({ "preset": "strict", "similarity": { "enabled": true } });
    let gate = Gate::start(policy, saying(Said::text(greeting))).await;
    for user in 0..60 {
        for speech in ALL {
            let ask = speech.says(user % 2 == 0, "hi");
            let got = gate.ask(&ask.by("support", &format!("user-{user}"))).await;
            assert!(arrived(&got), "user {user}, {speech:?}: {}", got.text());
        }
    }
    assert_eq!(gate.scope("support").await["state"], "running");
}

/// The same where nothing tells the users apart: no session is named, and all say the same first
/// words.
#[tokio::test]
async fn many_users_without_a_name_who_say_hi_are_no_loop() {
    let greeting = "Hello! I am the assistant of Example Stores. I can help you with orders, \
                    invoices, returns and gift cards. What can I do for you today?";
    let gate = Gate::start(strict(), saying(Said::text(greeting))).await;
    for user in 0..60 {
        for speech in ALL {
            let ask = speech.says(user % 2 == 0, "hi").with("x-deadstop-agent", "support");
            let got = gate.ask(&ask).await;
            assert!(arrived(&got), "user {user}, {speech:?}: {}", got.text());
        }
    }
}

#[tokio::test]
async fn a_true_loop_is_stopped_in_every_dialect() {
    let call = |step: usize| {
        Said::call(&format!("call_{step}"), "read_file", json!({ "path": "docs/missing.md" }))
    };
    let gate = Gate::start(strict(), stepping(call)).await;
    for (speech, stream) in ALL.into_iter().flat_map(|s| [(s, false), (s, true)]) {
        let mut agent = agent(&gate, speech, stream);
        let before = gate.upstream.requests();
        let mut stopped = None;
        for step in 0..20 {
            let got = agent.ask(step).await;
            if !arrived(&got) {
                stopped = Some((step, got));
                break;
            }
            agent.did(&call(step), "error: no such file");
        }
        let (step, got) = stopped.unwrap_or_else(|| panic!("{speech:?} {stream}: runs on"));
        // The fifth call would complete the pattern: it is the first that is not made.
        assert_eq!(step, 4, "{speech:?} {stream}");
        let error = error(&got);
        assert_eq!(error["deadstop"]["guard"], "loop", "{speech:?} {stream}: {error}");
        assert_eq!(error["deadstop"]["verdict"], "kill", "{error}");
        assert!(got.complete, "{speech:?} {stream}: cut off without a clean end");
        if !stream {
            assert_eq!(got.status, 403);
            assert_eq!(got.header("x-should-retry"), Some("false"));
        }
        // It is over: the next request does not even reach the upstream.
        let again = agent.ask(9).await;
        assert_eq!((again.status, again.header("x-should-retry")), (403, Some("false")));
        assert_eq!(gate.upstream.requests() - before, 5, "{speech:?} {stream}");
        assert_eq!(gate.scope(&agent.session).await["state"], "killed");
        assert_eq!(gate.incident().await["session"], agent.session);
    }
}

#[tokio::test]
async fn a_refused_tool_call_never_reaches_the_client() {
    let policy = json!({ "access": { "deny": ["delete_*"] }, "strikes": { "enabled": false } });
    let said = Said {
        text: "I will now remove the old data.".into(),
        ..Said::call("call_9", "delete_asset", json!({ "path": "fact_sales", "why": "old" }))
    };
    let gate = Gate::start(policy, saying(said.clone())).await;
    for speech in ALL {
        let got = gate.ask(&speech.says(false, "Clean up").by("a", "s")).await;
        assert_eq!((got.status, got.header("x-should-retry")), (403, Some("false")), "{speech:?}");
        assert!(!got.text().contains("fact_sales"), "{speech:?}: {}", got.text());
        assert_eq!(error(&got)["deadstop"]["guard"], "access");

        let got = gate.ask(&speech.says(true, "Clean up").by("a", "s")).await;
        assert!(got.status == 200 && got.complete, "{speech:?}: {got:?}");
        let text = got.text();
        // What came before is there, and nothing of the event that completes the call. Anthropic's
        // are held from the start of the call.
        assert!(speech != Speech::Anthropic || !text.contains("fact_sales"), "{text}");
        assert!(text.contains("I will now"), "{speech:?}: {text}");
        let events = speech.events(&said);
        let completing = events.iter().position(|event| completes(speech, event)).unwrap();
        let passed: Vec<u8> = events[..completing].concat();
        assert!(text.as_bytes().starts_with(&passed), "{speech:?}: {text}");
        let after = &text[passed.len()..];
        assert!(!after.contains("old") && after.matches("data:").count() == 1, "{after}");
        assert_eq!(error(&got)["deadstop"]["reason"], "tool_denied", "{speech:?}");
        assert!(!text.contains("[DONE]") && !text.contains("message_stop"), "{text}");
    }
    // A call that is refused and not seen is not waited for.
    until("nothing in flight", async || gate.scope("s").await["in_flight"] == 0).await;
}

/// An upstream may say how long its stream is. A client that got less took the refusal for a broken
/// connection, and asked again (Strands Agents).
#[tokio::test]
async fn a_stream_of_known_length_ends_with_the_refusal_as_well() {
    let policy = json!({ "access": { "deny": ["delete_*"] }, "strikes": { "enabled": false } });
    let said = Said::call("call_9", "delete_asset", json!({ "path": "fact_sales" }));
    let answer = move |seen: &Seen| {
        let events = spoken(seen).0.events(&said);
        Reply::of(200, "text/event-stream", &events.concat())
    };
    let gate = Gate::start(policy, answer).await;
    for speech in ALL {
        let got = gate.ask(&speech.says(true, "Clean up").by("a", "s")).await;
        assert!(got.status == 200 && got.complete, "{speech:?}: {got:?}");
        assert_eq!(error(&got)["deadstop"]["guard"], "access", "{speech:?}");
    }
}

/// Whether this event completes the call to `delete_asset` of the test above.
fn completes(speech: Speech, event: &[u8]) -> bool {
    let text = String::from_utf8_lossy(event);
    match speech {
        // The second half of the arguments.
        Speech::Chat => text.contains("old\\\""),
        Speech::Responses => text.contains("function_call_arguments.done"),
        // Held from where it begins.
        Speech::Anthropic => text.contains("content_block_start") && text.contains("tool_use"),
        Speech::Gemini => text.contains("functionCall"),
    }
}

#[tokio::test]
async fn a_refused_answer_leaves_nothing_in_flight() {
    let policy = json!({
        "access": { "deny": ["delete_*"] }, "strikes": { "enabled": false },
        "budget": { "max_cost_usd": 1, "tool_prices": { "read_file": 0.02 } },
    });
    let mut said = Said::call("call_1", "read_file", json!({ "path": "a" }));
    said.calls.push(("call_2".into(), "delete_asset".into(), json!({ "path": "b" })));
    let gate = Gate::start(policy, saying(said)).await;
    for _ in 0..3 {
        let got = gate.ask(&Speech::Chat.says(false, "Clean up").by("a", "s")).await;
        assert_eq!(got.status, 403);
    }
    // The first call was fine, but the agent has never seen it either.
    let scope = gate.scope("s").await;
    assert_eq!((&scope["in_flight"], &scope["reserved_usd"]), (&json!(0), &json!(0.0)), "{scope}");
}

#[tokio::test]
async fn access_rules_look_at_arguments() {
    let policy = json!({ "access": { "rules": [
        { "tool": "read_file", "argument": "path", "matches": "/etc/*" },
    ] } });
    let call = |step| {
        let path = ["/home/ada/notes", "/etc/shadow"][step];
        Said::call(&format!("call_{step}"), "read_file", json!({ "path": path }))
    };
    let gate = Gate::start(policy, stepping(call)).await;
    for speech in ALL {
        let agent = agent(&gate, speech, false);
        assert!(arrived(&agent.ask(0).await), "{speech:?}");
        let got = agent.ask(1).await;
        assert_eq!(got.status, 403, "{speech:?}: {}", got.text());
        assert_eq!(error(&got)["deadstop"]["guard"], "access");
        // Only that call was blocked.
        assert!(arrived(&agent.ask(0).await), "{speech:?}");
    }
}

#[tokio::test]
async fn a_dead_agents_request_gets_a_refusal_that_its_sdk_understands() {
    let gate = Gate::start(json!({}), saying(Said::text("Hello"))).await;
    gate.order("kill", json!({ "agent": "a", "reason": "it spams", "by": "ada" })).await;
    for (speech, stream) in ALL.into_iter().flat_map(|s| [(s, false), (s, true)]) {
        let got = gate.ask(&speech.says(stream, "Go on").by("a", "s")).await;
        assert_eq!(got.status, 403, "{speech:?}");
        assert_eq!(got.header("x-should-retry"), Some("false"));
        assert_eq!(got.header("retry-after"), None);
        assert_eq!(got.header("content-type"), Some("application/json"));
        let body = got.json();
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.contains("it spams") && message.contains("Do not retry."), "{message}");
        let facts = &body["error"]["deadstop"];
        assert_eq!((&facts["guard"], &facts["reason"]), (&json!("killed"), &json!("agent_killed")));
        assert_eq!(facts["scope"], json!({ "kind": "agent", "name": "a" }));
        match speech {
            Speech::Chat | Speech::Responses => {
                assert_eq!(body["error"]["type"], "permission_error");
                assert_eq!(body["error"]["code"], "agent_killed");
            }
            Speech::Anthropic => {
                assert_eq!(body["type"], "error");
                assert_eq!(body["error"]["type"], "permission_error");
            }
            Speech::Gemini => {
                assert_eq!(body["error"]["status"], "PERMISSION_DENIED");
                assert_eq!(body["error"]["code"], 403);
            }
        }
    }
    assert_eq!(gate.upstream.requests(), 0);
}

#[tokio::test]
async fn a_used_up_budget_is_402_with_facts_for_programs() {
    let policy = json!({ "budget": { "max_cost_usd": 0.001 } });
    let said = Said { input: 1000, output: 1000, ..Said::text("Expensive words") };
    let gate = Gate::start(policy, saying(said)).await;
    // The first one fits by its reservation; the bill says otherwise. It is paid, so it is
    // delivered, and says that it is the last one.
    let ask = Speech::Chat.says(false, "Think hard").by("a", "s");
    let got = gate.ask(&ask).await;
    assert!(got.status == 200 && got.text().contains("Expensive words"), "{}", got.text());
    let warning = "session s was ended by budget: the session s has spent $0.0125 of its budget of";
    assert!(got.header("x-deadstop-warning").unwrap().starts_with(warning), "{:?}", got.headers);
    let killed = gate.incident().await;
    for _ in 0..2 {
        let got = gate.ask(&ask).await;
        assert_eq!((got.status, got.header("x-should-retry")), (402, Some("false")));
        assert_eq!(got.header("retry-after"), None);
        assert_eq!(got.header("x-deadstop-incident"), killed["id"].as_str(), "{:?}", got.headers);
        assert_eq!(gate.scope("s").await["cost_usd"], 0.0125);
    }
    assert_eq!(gate.upstream.requests(), 1);

    // One that does not fit from the beginning.
    let long = "a long and costly prompt ".repeat(2000);
    let got = gate.ask(&Speech::Chat.says(false, &long).by("a", "t")).await;
    assert_eq!((got.status, got.header("x-should-retry")), (402, Some("false")), "{}", got.text());
    let error = error(&got);
    assert_eq!(error["type"], "insufficient_quota");
    let facts = &error["deadstop"];
    assert_eq!((&facts["guard"], &facts["reason"]), (&json!("budget"), &json!("budget_estimate")));
    assert_eq!(got.header("x-deadstop-guard"), Some("budget"));
    assert_eq!(got.header("x-deadstop-reason"), Some("budget_estimate"));
    assert!(error["message"].as_str().unwrap().contains("by an estimate"), "{error}");
    assert_eq!(gate.scope("t").await["state"], "running", "an estimate ends nothing");
    assert!(!facts["measured"].is_null() && !facts["limit"].is_null(), "{facts}");
    // The incident can be looked up under the number that the agent was given.
    let incident = gate.incident().await;
    assert!(facts["incident"].is_string(), "{facts}");
    assert_eq!(facts["incident"], incident["id"]);
    assert_eq!(got.header("x-deadstop-incident"), incident["id"].as_str());
}

#[tokio::test]
async fn agents_that_cannot_handle_errors_get_a_last_message() {
    let answer = saying(Said::text("Hello"));
    let gate = Gate::with(json!({}), answer, |config| config.on_kill = OnKill::Message).await;
    gate.order("kill", json!({ "agent": "a", "reason": "it spams" })).await;
    for (speech, stream) in ALL.into_iter().flat_map(|s| [(s, false), (s, true)]) {
        let got = gate.ask(&speech.says(stream, "Go on").by("a", "s")).await;
        assert!(got.status == 200 && got.complete, "{speech:?} {stream}: {}", got.text());
        let kind = got.header("content-type").unwrap();
        let expected = if stream { "text/event-stream" } else { "application/json" };
        assert!(kind.starts_with(expected), "{speech:?} {stream}: {kind}");
        assert!(got.text().contains("it spams"), "{speech:?} {stream}: {}", got.text());
        let finish = match speech {
            Speech::Chat => "\"finish_reason\":\"stop\"",
            Speech::Responses => "\"status\":\"completed\"",
            Speech::Anthropic => "\"stop_reason\":\"end_turn\"",
            Speech::Gemini => "\"finishReason\":\"STOP\"",
        };
        assert!(got.text().contains(finish), "{speech:?} {stream}: {}", got.text());
        if !stream {
            assert!(got.json()["error"].is_null());
        }
    }
}

#[tokio::test]
async fn a_warning_goes_out_in_a_header() {
    let policy = json!({ "steps": { "max_model_calls": 1, "action": "warn" } });
    let gate = Gate::start(policy, saying(Said::text("Hello"))).await;
    for stream in [false, true] {
        let session = format!("{stream}");
        let ask = Speech::Chat.says(stream, "Hello").by("a", &session);
        assert_eq!(gate.ask(&ask).await.header("x-deadstop-warning"), None);
        let got = gate.ask(&ask).await;
        assert_eq!(got.status, 200);
        let warning = got.header("x-deadstop-warning").unwrap_or_default();
        assert!(warning.contains("all 1 model calls"), "{warning}");
    }
}

#[tokio::test]
async fn a_loop_that_only_warns_says_so_in_a_header() {
    let call = |step: usize| {
        Said::call(&format!("call_{step}"), "read_file", json!({ "path": "docs/missing.md" }))
    };
    let policy = json!({ "loop": { "threshold": 5, "action": "warn" } });
    let gate = Gate::start(policy, stepping(call)).await;
    let mut agent = agent(&gate, Speech::Chat, false);
    let mut warnings = Vec::new();
    for step in 0..7 {
        let got = agent.ask(step).await;
        assert!(got.status == 200 && got.complete, "{}", got.text());
        warnings.push(got.header("x-deadstop-warning").map(str::to_owned));
        agent.did(&call(step), "error: no such file");
    }
    let first = warnings.iter().position(Option::is_some);
    assert_eq!(first, Some(4), "{warnings:?}");
}

#[tokio::test]
async fn a_pause_holds_the_next_call_until_resume() {
    let gate = Gate::start(json!({}), saying(Said::text("Hello"))).await;
    for order in [
        json!({ "all": true }),
        json!({ "agent": "a" }),
        json!({
            "agent": "a", "session": "s",
        }),
    ] {
        let before = gate.upstream.requests();
        gate.order("pause", order.clone()).await;
        let ask = Speech::Chat.says(false, "Go on").by("a", "s");
        let address = gate.address;
        let held = tokio::spawn(async move { ask.send_to(address).await });
        tokio::time::sleep(Duration::from_millis(150)).await;
        assert!(!held.is_finished() && gate.upstream.requests() == before, "{order}");
        gate.order("resume", order.clone()).await;
        let got = soon("the held call", held).await.unwrap();
        assert!(arrived(&got), "{order}: {}", got.text());
    }

    // A kill reaches what is held.
    gate.order("pause", json!({ "agent": "a" })).await;
    let ask = Speech::Chat.says(false, "Go on").by("a", "s");
    let address = gate.address;
    let held = tokio::spawn(async move { ask.send_to(address).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    gate.order("kill", json!({ "agent": "a", "session": "s" })).await;
    gate.order("resume", json!({ "agent": "a" })).await;
    assert_eq!(soon("the held call", held).await.unwrap().status, 403);
}

#[tokio::test]
async fn a_pause_that_nobody_ends_refuses_after_its_time() {
    let hold = Duration::from_millis(200);
    let answer = saying(Said::text("Hello"));
    let gate = Gate::with(json!({}), answer, |config| config.hold = hold).await;
    gate.order("pause", json!({ "agent": "a", "reason": "lunch" })).await;
    let asked = Instant::now();
    let got = gate.ask(&Speech::Chat.says(true, "Go on").by("a", "s")).await;
    assert!(asked.elapsed() >= hold);
    assert_eq!((got.status, got.header("x-should-retry")), (403, Some("false")));
    assert!(got.text().contains("lunch"), "{}", got.text());
    assert_eq!(gate.upstream.requests(), 0);
    assert!(arrived(&gate.ask(&Speech::Chat.says(true, "Go on").by("b", "s")).await));
}

#[tokio::test]
async fn everything_can_be_stopped_and_started_again() {
    let gate = Gate::start(json!({}), saying(Said::text("Hello"))).await;
    let ask =
        |agent: &str, session: &str| Speech::Anthropic.says(false, "Go on").by(agent, session);
    assert!(arrived(&gate.ask(&ask("a", "s")).await));
    gate.order("kill", json!({ "all": true, "reason": "fire", "by": "ada" })).await;
    for (agent, session) in [("a", "s"), ("a", "new"), ("new", "new")] {
        let got = gate.ask(&ask(agent, session)).await;
        assert_eq!(got.status, 403);
        assert_eq!(error(&got)["deadstop"]["reason"], "project_killed");
    }
    assert_eq!(gate.project().await["state"], "killed");
    gate.order("clear", json!({ "all": true })).await;
    for (agent, session) in [("a", "s"), ("a", "new"), ("new", "new")] {
        assert!(arrived(&gate.ask(&ask(agent, session)).await), "{agent} {session}");
    }

    gate.order("kill", json!({ "agent": "a" })).await;
    assert_eq!(gate.ask(&ask("a", "s")).await.status, 403);
    assert!(arrived(&gate.ask(&ask("b", "s")).await));
    gate.order("clear", json!({ "agent": "a" })).await;
    assert!(arrived(&gate.ask(&ask("a", "s")).await));
}

#[tokio::test]
async fn a_sessions_end_is_final() {
    let gate = Gate::start(json!({}), saying(Said::text("Hello"))).await;
    let ask = Speech::Chat.says(false, "Go on");
    let dead = ask.clone().by("a", "s");
    assert!(arrived(&gate.ask(&dead).await));
    gate.order("kill", json!({ "session": "s", "reason": "enough" })).await;
    assert_eq!(gate.ask(&dead).await.status, 403);
    let clear = Ask::post("/api/clear", &json!({ "agent": "a", "session": "s" }));
    let got = gate.ask(&clear).await;
    assert_eq!((got.status, &got.json()["code"]), (409, &json!("session_final")));
    for order in [json!({ "agent": "a" }), json!({ "all": true })] {
        gate.order("clear", order).await;
    }
    assert_eq!(gate.ask(&dead).await.status, 403);
    assert!(arrived(&gate.ask(&ask.clone().by("a", "t")).await));

    // It may be named as lists show it.
    let listed = ask.clone().by("a", "u/1");
    assert!(arrived(&gate.ask(&listed).await));
    gate.order("kill", json!({ "session": "a/u/1", "reason": "enough" })).await;
    assert_eq!(gate.ask(&listed).await.status, 403);

    // A kill of an unknown session fails, and kills no other one.
    for unknown in ["unknown", "a/unknown", "a/", "/t", "b/t"] {
        let kill = Ask::post("/api/kill", &json!({ "session": unknown }));
        assert_eq!(gate.ask(&kill).await.status, 404);
    }
    let both = Ask::post("/api/kill", &json!({ "all": true, "agent": "a" }));
    assert_eq!(gate.ask(&both).await.status, 422);

    // Nor does a restart bring it back.
    let gate = gate.restart(json!({})).await;
    assert_eq!(gate.ask(&dead).await.status, 403);
    assert!(arrived(&gate.ask(&ask.by("a", "t")).await));
}

#[tokio::test]
async fn sub_agents_are_scopes_inside_their_session() {
    let call = |step: usize| {
        Said::call(&format!("call_{step}"), "read_file", json!({ "path": "docs/missing.md" }))
    };
    let gate = Gate::start(strict(), stepping(call)).await;
    let session = "0b0e4f6a-sess";
    let sub = |ask: Ask, id: &str| {
        ask.with("x-claude-code-session-id", session).with("x-claude-code-agent-id", id)
    };
    let mut turns = vec![Turn::User("Tidy up the docs".into())];
    let mut status = 200;
    for step in 0..8 {
        let ask = Speech::Anthropic.ask(false, &turns).with("x-step", &step.to_string());
        let got = gate.ask(&sub(ask, "helper")).await;
        status = got.status;
        if status != 200 {
            break;
        }
        let (id, name, arguments) = call(step).calls.remove(0);
        let text = "error: no such file".to_owned();
        turns.push(Turn::Call { id: id.clone(), name: name.clone(), arguments });
        turns.push(Turn::Result { id, name, text });
    }
    assert_eq!(status, 403, "the helper loops and is not stopped");
    // What it did is counted in its session as well.
    let (helper, above) = (gate.scope("helper").await, gate.scope(session).await);
    assert_eq!(helper["kind"], "nested");
    assert_eq!(helper["steps"], above["steps"]);
    assert!(above["cost_usd"].as_f64() >= helper["cost_usd"].as_f64());

    // The end of a session is the end of all that is in it, and of nothing else.
    let hello = || Speech::Anthropic.says(false, "Hello there").with("x-step", "0");
    gate.order("kill", json!({ "agent": "default", "session": session })).await;
    assert_eq!(gate.ask(&sub(hello(), "other")).await.status, 403);
    let fresh = hello().with("x-claude-code-session-id", "another-session");
    assert_eq!(gate.ask(&fresh.with("x-claude-code-agent-id", "helper")).await.status, 200);
}

#[tokio::test]
async fn a_budget_ends_a_stream_on_both_sides() {
    let policy = json!({ "text_loop": { "enabled": false }, "budget": { "max_cost_usd": 0.01 } });
    let gate = Gate::start(policy, |seen: &Seen| {
        if seen.json()["stream"] != true {
            return Speech::Chat.reply(false, &Said::text("Hello"));
        }
        // 10 tokens an event, of $10 a million: the budget lasts for a hundred of them.
        let mut reply = Reply::stream();
        for n in 0..2000 {
            let text = format!("{n:040}");
            reply = reply.then(Step::Tokens(chat_chunk(&json!({ "content": text }), None), 10));
            reply = reply.then(Step::Sleep(Duration::from_millis(1)));
        }
        reply.then(Step::End)
    })
    .await;
    let got = gate.ask(&Speech::Chat.says(true, "Write a book").by("a", "s")).await;
    assert!(got.complete, "no clean end");
    let error = error(&got);
    assert_eq!(error["deadstop"]["guard"], "budget", "{error}");
    assert_eq!(error["type"], "insufficient_quota");
    soon("the upstream is let go", gate.upstream.answering(0)).await;
    assert_eq!(gate.upstream.gone().len(), 1);
    let events = got.text().matches("\"content\"").count();
    assert!((80..=100).contains(&events), "{events} events passed");
    println!("a budget of $0.01 ended a stream after ${:.5}", gate.upstream.tokens() as f64 * 1e-5);
    let cost = gate.scope("s").await["cost_usd"].as_f64().unwrap();
    // What the upstream sent while a cluster was asked for more is paid, though it was not passed on.
    assert!((0.0095..0.012).contains(&cost), "{cost}");
    // The session is over, whatever it asks for.
    let got = gate.ask(&Speech::Chat.says(false, "Hello").by("a", "s")).await;
    assert_eq!((got.status, got.header("x-should-retry")), (402, Some("false")));
    assert!(arrived(&gate.ask(&Speech::Chat.says(false, "Hello").by("a", "t")).await));
}

#[tokio::test]
async fn an_agent_killed_while_its_stream_runs_gets_the_error_event() {
    for speech in ALL {
        let gate = Gate::start(json!({}), move |_: &Seen| {
            let mut reply = Reply::stream();
            let events = speech.events(&Said::text("Once upon a time"));
            reply.0.extend(events[..2].iter().map(|event| Step::Chunk(event.clone())));
            // The beginning of an event, which must not become a whole one.
            reply.then(Step::Chunk(events[0][..9].to_vec())).then(Step::Hang)
        })
        .await;
        let mut open =
            speech.says(true, "Tell me a story").by("a", "s").open(gate.address).await.unwrap();
        let events = speech.events(&Said::text("Once upon a time"));
        // Where a usage chunk must be hidden, the beginning of an event is held back.
        let begun = if speech == Speech::Chat { 0 } else { 9 };
        let passed = events[..2].concat().len() + begun;
        let mut body = Vec::new();
        while body.len() < passed {
            match soon("the story", open.next()).await {
                Next::Bytes(bytes) => body.extend(bytes),
                other => panic!("{speech:?}: {other:?}"),
            }
        }
        gate.order("kill", json!({ "session": "s", "reason": "too long" })).await;
        let got = soon("the end", open.rest()).await;
        assert!(got.complete, "{speech:?}: no clean end");
        let error = error(&got);
        let message = error["message"].as_str().unwrap_or_default();
        assert!(message.contains("too long"), "{speech:?}: {}", got.text());
        assert_eq!(error["deadstop"]["reason"], "session_killed");
        soon("the upstream is let go", gate.upstream.answering(0)).await;
    }
}

/// Gemini's stream without `alt=sse`: a JSON list that grows.
#[tokio::test]
async fn a_list_that_streams_is_passed_on_as_it_grows_and_judged() {
    let path = "/gemini/v1beta/models/gemini-2.5-flash:streamGenerateContent";
    let element = |said: &Said| Speech::Gemini.whole(said).to_string();
    let policy = json!({ "access": { "deny": ["delete_*"] } });
    let gate = Gate::start(policy, move |seen: &Seen| {
        let head = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")];
        let first = format!("[{}", element(&Said::text("Let me see.")));
        let second = element(&Said::call("", seen.header("x-tool").unwrap(), json!({ "n": 1 })));
        Reply::head(200, &head)
            .then(Step::Chunk(first.into()))
            .then(Step::Sleep(Duration::from_millis(200)))
            .then(Step::Chunk(format!(",\r\n{second}").into()))
            .then(Step::Chunk(b"]".to_vec()))
            .then(Step::End)
    })
    .await;
    let request = Speech::Gemini.request(true, &[Turn::User("Clean up".into())]);
    let ask = |tool: &str| Ask::post(path, &request).by("a", tool).with("x-tool", tool);

    let mut open = soon("the head", ask("read_file").open(gate.address)).await.unwrap();
    let first = open.until("Let me see.").await;
    assert!(!first.contains("read_file"), "it was held back until its end");
    let rest = soon("the end", open.rest()).await;
    let list: Value = serde_json::from_str(&(first + &rest.text())).unwrap();
    assert!(rest.complete && list.as_array().unwrap().len() == 2, "{list}");
    assert_eq!(gate.scope("read_file").await["steps"], 1);

    let got = gate.ask(&ask("delete_asset")).await;
    assert!(got.status == 200 && got.complete && !got.text().contains("functionCall"));
    let error = got.json()[1]["error"].clone();
    assert_eq!(error["deadstop"]["reason"], "tool_denied", "{}", got.text());
}

/// Issue 19, number 11: a typo was answered with "killed", and made an agent. On a fleet, the order comes
/// to another node than the call did.
#[tokio::test]
async fn hole_11_an_unknown_name_is_not_killed() {
    let gate = Gate::start(json!({}), |_: &Seen| Reply::json(200, &json!({}))).await;
    let call = |agent: &str| Speech::Chat.says(false, "hello").by(agent, "s1");
    assert_eq!(gate.ask(&call("crawler")).await.status, 200);
    for what in ["/api/kill", "/api/pause"] {
        let typo = gate.ask(&Ask::post(what, &json!({ "agent": "crwaler" }))).await;
        assert_eq!((typo.status, &typo.json()["code"]), (404, &json!("no_agent")), "{what}");
        assert!(typo.text().contains("Did you mean `crawler`?"), "{}", typo.text());
        let order = json!({ "agent": "crawler", "session": "s2" });
        let session = gate.ask(&Ask::post(what, &order)).await;
        assert_eq!((session.status, &session.json()["code"]), (404, &json!("no_session")));
        assert!(session.text().contains("`s1`"), "{}", session.text());
        let named = gate.ask(&Ask::post(what, &json!({ "session": "crwaler/s1" }))).await;
        assert_eq!((named.status, &named.json()["code"]), (404, &json!("no_session")));
        assert!(named.text().contains("Did you mean `crawler/s1`?"), "{}", named.text());
    }
    // Nothing was made of it.
    let status = gate.ask(&Ask::get("/api/status")).await.text();
    assert!(!status.contains("crwaler") && !status.contains("s2"), "{status}");
    let early = json!({ "agent": "later", "new": true, "reason": "in advance" });
    assert_eq!(gate.ask(&Ask::post("/api/kill", &early)).await.status, 200);
    assert_eq!(gate.ask(&call("later")).await.status, 403);
    let kill = json!({ "agent": "crawler", "session": "s1", "reason": "enough" });
    assert_eq!(gate.ask(&Ask::post("/api/kill", &kill)).await.status, 200);
    assert_eq!(gate.ask(&call("crawler")).await.status, 403);
}
