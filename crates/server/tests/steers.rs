//! What the model is told about its loop: where it stands in the request, that it stays there, and
//! what becomes of an agent that listens and of one that does not.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::{ALL, Gate, Reply, Said, Seen, Speech, Turn};

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
    for (speech, stream) in ALL.into_iter().flat_map(|s| [(s, false), (s, true)]) {
        let (gate, sent) = gate(json!({}), true).await;
        let statuses = run(&gate, speech, stream, 12).await;
        // The third call is steered; its result carries the note, and the fourth answer is the last.
        assert_eq!(statuses, [200; 4], "{speech:?} {stream}");
        let sent = sent.lock().unwrap().clone();
        let told: Vec<bool> = sent.iter().map(|body| body.contains("[Deadstop] ")).collect();
        assert_eq!(told, [false, false, false, true], "{speech:?}");
        let note = "You have called `read_file` 3 times with the same arguments";
        assert!(sent[3].contains(note), "{}", sent[3]);
        let scope = gate.scope(&format!("{speech:?}-{stream}")).await;
        assert_eq!(scope["state"], "running", "{scope}");
        gate.stop().await;
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
}

/// What a provider has cached is the beginning of the request before.
#[tokio::test]
async fn the_prefix_stays_the_same_after_a_note() {
    let policy = json!({ "loop": { "steer_at": 3, "block_at": "off", "end_at": "off" } });
    for speech in ALL {
        let (gate, sent) = gate(policy.clone(), false).await;
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
        gate.stop().await;
    }
}

#[tokio::test]
async fn a_policy_that_does_not_steer_leaves_every_byte() {
    let policy = json!({ "loop": { "threshold": 5, "action": "warn" } });
    let (gate, sent) = gate(policy, false).await;
    assert_eq!(run(&gate, Speech::Anthropic, false, 9).await, [200; 9]);
    assert!(sent.lock().unwrap().iter().all(|body| !body.contains("Deadstop")));
}
