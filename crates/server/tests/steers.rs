//! What the model is told about its loop: where it stands in the request, that it stays there, and
//! what becomes of an agent that listens and of one that does not.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::{ALL, Ask, Gate, Reply, Said, Seen, Speech, Turn};

fn speech_of(seen: &Seen) -> (Speech, bool) {
    let stream = seen.json()["stream"] == true || seen.target.contains("streamGenerate");
    let speech = match seen.target.as_str() {
        path if path.ends_with("/chat/completions") => Speech::Chat,
        path if path.ends_with("/responses") => Speech::Responses,
        path if path.ends_with("/messages") => Speech::Anthropic,
        _ => Speech::Gemini,
    };
    (speech, stream)
}

fn look(step: usize) -> Said {
    Said::call(&format!("call_{step}"), "read_file", json!({ "path": "docs/missing.md" }))
}

/// What the upstream was sent, request by request.
type Sent = Arc<Mutex<Vec<String>>>;

/// A model that calls the same tool again and again; with `listens` it stops once it is told.
async fn gate(policy: Value, listens: bool) -> (Gate, Sent) {
    let sent = Sent::default();
    let log = Arc::clone(&sent);
    let model = move |seen: &Seen| -> Reply {
        let body = String::from_utf8_lossy(&seen.body).into_owned();
        let told = body.contains("[Deadstop] ");
        let step = {
            let mut log = log.lock().unwrap();
            log.push(body);
            log.len()
        };
        let (speech, stream) = speech_of(seen);
        match listens && told {
            true => speech.reply(stream, &Said::text("The file is not there, so I am done.")),
            false => speech.reply(stream, &look(step)),
        }
    };
    (Gate::start(policy, model).await, sent)
}

/// Plays an agent until it is refused, or has its answer: the status of each request.
async fn run(gate: &Gate, speech: Speech, stream: bool, most: usize) -> Vec<u16> {
    let mut turns = vec![Turn::User("Read the file".into())];
    let mut statuses = Vec::new();
    for step in 1..=most {
        let ask = speech.ask(stream, &turns).by("reader", &format!("{speech:?}-{stream}"));
        let got = gate.ask(&ask).await;
        statuses.push(got.status);
        let text = got.text();
        if got.status != 200 || text.contains("I am done") || text.contains("deadstop") {
            break;
        }
        let (id, name, arguments) = look(step).calls.remove(0);
        turns.push(Turn::Call { id: id.clone(), name: name.clone(), arguments });
        turns.push(Turn::Result { id, name, text: "error: no such file".to_owned() });
    }
    statuses
}

#[tokio::test]
async fn an_agent_that_listens_finishes_in_every_dialect() {
    let (gate, sent) = gate(json!({}), true).await;
    for (speech, stream) in ALL.into_iter().flat_map(|s| [(s, false), (s, true)]) {
        sent.lock().unwrap().clear();
        let statuses = run(&gate, speech, stream, 12).await;
        // The third call is steered; its result carries the note, and the fourth answer is the last.
        assert_eq!(statuses, [200; 4], "{speech:?} {stream}");
        let sent = sent.lock().unwrap().clone();
        let told: Vec<bool> = sent.iter().map(|body| body.contains("[Deadstop] ")).collect();
        assert_eq!(told, [false, false, false, true], "{speech:?}");
        let note = "You have called `read_file` 3 times with the same arguments";
        assert!(sent[3].contains(note), "{}", sent[3]);
        let session = format!("{speech:?}-{stream}");
        let scope = gate.scope(&session).await;
        assert_eq!(scope["state"], "running", "{scope}");
        let (_, ladder) = incident(&gate, &session).await;
        assert_eq!(steps(&ladder), ["steer 3-3"], "{ladder}");
        assert!(ladder[0]["said"].as_str().unwrap().contains("3 times"), "{ladder}");
        assert_eq!(ladder[0]["next"], Value::Null, "it called no tool any more: {ladder}");
    }
}

#[tokio::test]
async fn an_agent_that_does_not_listen_is_ended() {
    let (gate, _) = gate(json!({}), false).await;
    let statuses = run(&gate, Speech::Chat, false, 20).await;
    assert_eq!(statuses, [200, 200, 200, 200, 403], "the fifth call is refused");
    // It asks again for what was refused, and is ended at the tenth.
    let session = "Chat-false";
    let mut turns = vec![Turn::User("Read the file".into())];
    for step in 1..=4 {
        let (id, name, arguments) = look(step).calls.remove(0);
        turns.push(Turn::Call { id: id.clone(), name: name.clone(), arguments });
        turns.push(Turn::Result { id, name, text: "error: no such file".to_owned() });
    }
    for asked in 6..=10 {
        let got = gate.ask(&Speech::Chat.ask(false, &turns).by("reader", session)).await;
        assert_eq!(got.status, 403, "{asked}: {}", got.text());
        let verdict = if asked == 10 { "kill" } else { "block" };
        assert_eq!(got.header("x-deadstop-verdict"), Some(verdict), "{asked}");
        let state = gate.scope(session).await["state"].clone();
        assert_eq!(state == "killed", asked == 10, "{asked}: {state}");
    }
    // All steps are one incident, which says what the agent was told and what it did next.
    let (incident, ladder) = incident(&gate, session).await;
    assert_eq!(incident["verdict"], "kill", "{incident}");
    assert!(incident["last_ms"].as_u64() > incident["at_ms"].as_u64(), "{incident}");
    assert_eq!(steps(&ladder), ["steer 3-4", "block 5-9", "kill 10-10"], "{ladder}");
    for rung in &ladder.as_array().unwrap()[..2] {
        assert_eq!(rung["next"]["repeats"], true, "{rung}");
        assert_eq!(rung["next"]["name"], "read_file", "{rung}");
    }
    let agent = gate.ask(&Ask::get("/api/agents/reader")).await.json();
    assert_eq!((&agent["incidents"], &agent["loops"]), (&json!(1), &json!(1)), "{agent}");
    // Each call of the loop stands once in the evidence.
    let pieces = incident["evidence"].as_array().unwrap();
    let mut calls: Vec<_> = pieces.iter().map(|piece| piece["call"].to_string()).collect();
    calls.dedup();
    assert_eq!(calls.len(), pieces.len(), "{pieces:?}");
}

/// The only incident of a session, and its ladder.
async fn incident(gate: &Gate, session: &str) -> (Value, Value) {
    let path = format!("/api/incidents?agent=reader&session={session}");
    let listed = gate.ask(&Ask::get(&path)).await.json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "{listed}");
    let id = listed["items"][0]["id"].as_str().unwrap();
    let incident = gate.ask(&Ask::get(&format!("/api/incidents/{id}"))).await.json();
    let ladder = incident["ladder"].clone();
    (incident, ladder)
}

fn steps(ladder: &Value) -> Vec<String> {
    let step = |rung: &Value| {
        let verdict = rung["verdict"].as_str().unwrap_or_default();
        format!("{verdict} {}-{}", rung["count"], rung["last_count"])
    };
    ladder.as_array().unwrap().iter().map(step).collect()
}

/// Found from outside: 1,000 calls of a loop without an incident.
#[tokio::test]
async fn a_loop_that_only_warns_is_one_incident() {
    let (gate, _) = gate(json!({ "preset": "observe" }), false).await;
    assert_eq!(run(&gate, Speech::Chat, false, 12).await, [200; 12]);
    let (shown, ladder) = incident(&gate, "Chat-false").await;
    assert_eq!((&shown["verdict"], &shown["guard"]), (&json!("warn"), &json!("loop")), "{shown}");
    assert_eq!(ladder.as_array().map(Vec::len), Some(1), "{ladder}");
    assert_eq!((&ladder[0]["count"], &ladder[0]["said"]), (&json!(5), &json!(null)), "{ladder}");
    assert!(ladder[0]["last_count"].as_u64() > Some(9), "{ladder}");
    let agent = gate.ask(&Ask::get("/api/agents/reader")).await.json();
    assert_eq!((&agent["health"], &agent["incidents"]), (&json!("warning"), &json!(1)), "{agent}");
}

/// What a provider has cached is the beginning of the request before.
#[tokio::test]
async fn the_prefix_stays_the_same_after_a_note() {
    let policy = json!({ "loop": { "steer_at": 3, "block_at": "off", "end_at": "off" } });
    let (gate, sent) = gate(policy, false).await;
    for speech in ALL {
        sent.lock().unwrap().clear();
        assert_eq!(run(&gate, speech, false, 14).await, [200; 14]);
        let sent = sent.lock().unwrap().clone();
        assert!(sent[3].contains("[Deadstop] "), "{speech:?}");
        for pair in sent.windows(2) {
            let shared = pair[0].bytes().zip(pair[1].bytes()).take_while(|(a, b)| a == b).count();
            // All of the messages: what differs is how the list and the object end.
            let rest = &pair[0][shared..];
            assert!(
                !rest.contains("no such file") && !rest.contains("Deadstop"),
                "{speech:?}: {rest}"
            );
        }
    }
}

#[tokio::test]
async fn a_policy_that_does_not_steer_leaves_every_byte() {
    let policy = json!({ "loop": { "threshold": 5, "action": "warn" } });
    let (gate, sent) = gate(policy, false).await;
    assert_eq!(run(&gate, Speech::Anthropic, false, 9).await, [200; 9]);
    assert!(sent.lock().unwrap().iter().all(|body| !body.contains("Deadstop")));
}
