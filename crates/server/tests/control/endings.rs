//! Endings that keep the work: asked to finish, one last answer, topped up by an operator.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::{Ask, Gate, Reply, Said, Seen, Speech, Turn};

type Sent = Arc<Mutex<Vec<String>>>;

/// A model that calls a tool, another one each time; told to finish, or asked to, it answers.
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
        match listens && told {
            true => Speech::Chat.reply(false, &Said::text("I am done.")),
            false => Speech::Chat.reply(false, &look(step)),
        }
    };
    (Gate::start(policy, model).await, sent)
}

fn look(step: usize) -> Said {
    Said::call(&format!("call_{step}"), "read_file", json!({ "path": format!("docs/{step}.md") }))
}

/// One turn of an agent: the status, and whether it has its answer.
async fn turn(gate: &Gate, turns: &mut Vec<Turn>, session: &str) -> (u16, bool) {
    let got = gate.ask(&Speech::Chat.ask(false, turns).by("writer", session)).await;
    let step = turns.iter().filter(|turn| matches!(turn, Turn::Call { .. })).count() + 1;
    let (id, name, arguments) = look(step).calls.remove(0);
    turns.push(Turn::Call { id: id.clone(), name: name.clone(), arguments });
    turns.push(Turn::Result { id, name, text: format!("page {step}: {}", "x".repeat(step)) });
    (got.status, got.text().contains("I am done"))
}

fn opening() -> Vec<Turn> {
    vec![Turn::User("Summarise the pages".into())]
}

async fn top_up(gate: &Gate, session: &str, body: &Value) -> (u16, Value) {
    let path = format!("/api/sessions/writer/{session}/top-up");
    let got = gate.ask(&Ask::post(&path, body)).await;
    (got.status, got.json())
}

#[tokio::test]
async fn near_its_limit_an_agent_is_told_what_is_left_and_finishes() {
    let (gate, sent) = gate(json!({ "steps": { "max_steps": 10 } }), true).await;
    let mut turns = opening();
    for step in 1..=9 {
        assert_eq!(turn(&gate, &mut turns, "s").await, (200, false), "{step}");
    }
    assert_eq!(turn(&gate, &mut turns, "s").await, (200, true), "the tenth answer is the last");
    let sent = sent.lock().unwrap().clone();
    assert!(!sent[8].contains("[Deadstop] ") && sent[9].contains("1 of 10 left"), "{}", sent[9]);
    assert_eq!(gate.scope("s").await["state"], "running");
}

#[tokio::test]
async fn at_its_limit_an_agent_has_one_last_answer() {
    let policy = json!({
        "steps": { "max_model_calls": 4 },
        "ending": { "wrap_up_at": "off", "reserve_for_answer": "5%" },
    });
    for (listens, status) in [(true, 200), (false, 402)] {
        let (gate, sent) = gate(policy.clone(), listens).await;
        let mut turns = opening();
        for _ in 0..3 {
            assert_eq!(turn(&gate, &mut turns, "s").await, (200, false));
        }
        let (last, answered) = turn(&gate, &mut turns, "s").await;
        assert_eq!((last, answered), (status, listens), "an answer with a tool call is refused");
        assert!(sent.lock().unwrap()[3].contains("Give your final answer now"));
        assert_eq!(gate.scope("s").await["state"], "killed", "then it ends");
        assert_eq!(turn(&gate, &mut turns, "s").await.0, 402);
        assert_eq!(sent.lock().unwrap().len(), 4, "nothing more is sent upstream");
    }
}

#[tokio::test]
async fn an_operator_tops_up_what_a_limit_ended_and_it_goes_on() {
    let (gate, _) = gate(json!({ "steps": { "max_steps": 2 } }), false).await;
    let mut turns = opening();
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(turn(&gate, &mut turns, "s").await.0);
    }
    assert_eq!(statuses, [200, 200, 402, 402]);
    assert_eq!(gate.scope("s").await["state"], "killed");

    let (status, problem) = top_up(&gate, "s", &json!({ "reason": "go on" })).await;
    assert_eq!((status, &problem["code"]), (422, &json!("bad_order")), "{problem}");
    let more = json!({ "steps": 1, "cost_usd": 0.5, "time_s": 60, "reason": "nearly there" });
    let (status, done) = top_up(&gate, "s", &more).await;
    assert_eq!(
        (status, &done["done"], &done["scope"]["state"]),
        (200, &json!("topped up"), &json!("running")),
        "{done}"
    );
    // The same conversation goes on, with what it has counted, for one more step.
    let mut turns = opening();
    for _ in 0..2 {
        let (id, name, arguments) = look(turns.len()).calls.remove(0);
        turns.push(Turn::Call { id: id.clone(), name: name.clone(), arguments });
        turns.push(Turn::Result { id, name, text: "page".to_owned() });
    }
    assert_eq!(turn(&gate, &mut turns, "s").await.0, 200);
    assert_eq!(turn(&gate, &mut turns, "s").await.0, 402, "the third was the last");
    let audit = gate.ask(&Ask::get("/api/audit?action=session.top_up")).await.json();
    let entry = &audit["items"][0];
    let reason = entry["reason"].as_str().or(entry["event"]["reason"].as_str()).unwrap_or_default();
    assert!(reason.contains("1 steps") && reason.ends_with("nearly there"), "{audit}");
}

#[tokio::test]
async fn a_persons_stop_is_not_topped_up() {
    let (gate, _) = gate(json!({ "steps": { "max_steps": 50 } }), false).await;
    assert_eq!(turn(&gate, &mut opening(), "s").await.0, 200);
    gate.order("kill", json!({ "agent": "writer", "session": "s", "reason": "enough" })).await;
    let (status, problem) = top_up(&gate, "s", &json!({ "steps": 50 })).await;
    assert_eq!((status, &problem["code"]), (409, &json!("session_final")), "{problem}");
    assert_eq!(gate.scope("s").await["state"], "killed");
    assert_eq!(top_up(&gate, "unheard-of", &json!({ "steps": 5 })).await.0, 404);
}
