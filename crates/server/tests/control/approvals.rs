//! Calls that wait for a person, through the gateway and for those who ask themselves.

use serde_json::{Value, json};

use crate::support::{ALL, Ask, Gate, Got, Reply, Said, Seen, Speech, soon, until};

const SECRET: &str = "sk-proj-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6";

fn asking() -> Value {
    json!({ "access": { "ask": ["delete_*"] } })
}

/// An upstream whose model wants to delete something.
fn deleting(seen: &Seen) -> Reply {
    let stream = seen.json()["stream"] == true || seen.target.contains("streamGenerate");
    let speech = match seen.target.as_str() {
        path if path.ends_with("/chat/completions") => Speech::Chat,
        path if path.ends_with("/responses") => Speech::Responses,
        path if path.ends_with("/messages") => Speech::Anthropic,
        _ => Speech::Gemini,
    };
    let arguments = json!({ "asset_id": "fact_sales", "api_key": SECRET });
    speech.reply(stream, &Said::call("call_1", "delete_asset", arguments))
}

/// The calls that wait.
async fn waiting(gate: &Gate) -> Vec<Value> {
    let got = gate.ask(&Ask::get("/api/approvals")).await;
    assert_eq!(got.status, 200, "{}", got.text());
    got.json()["items"].as_array().unwrap().clone()
}

/// The one call that waits.
async fn the_one(gate: &Gate) -> Value {
    // In a fleet the next question may go to a node that has not heard of it yet.
    let found = std::cell::RefCell::new(None);
    until("a call that waits", || async {
        let mut all = waiting(gate).await;
        let one = if all.len() == 1 { all.pop() } else { None };
        found.replace(one);
        found.borrow().is_some()
    })
    .await;
    found.into_inner().unwrap()
}

async fn decide(gate: &Gate, id: &Value, what: &str) -> Got {
    let path = format!("/api/approvals/{}/{what}", id.as_str().unwrap());
    gate.ask(&Ask::post(&path, &json!({ "reason": "ticket 7", "by": "ada" }))).await
}

async fn audit(gate: &Gate, action: &str) -> Value {
    let list = gate.ask(&Ask::get("/api/audit?limit=50")).await.json();
    let items = list["items"].as_array().unwrap().clone();
    items.into_iter().find(|entry| entry["action"] == action).unwrap_or(Value::Null)
}

async fn propose(gate: &Gate, id: &str, target: &str) -> Value {
    let arguments = json!({ "asset_id": target });
    let call = json!({ "id": id, "tool": "delete_asset", "arguments": arguments });
    let ask = Ask::post("/api/sessions/cleaner/s1/proposal", &json!({ "calls": [call] }));
    gate.ask(&ask).await.json()["calls"][0].clone()
}

#[tokio::test]
async fn an_answer_waits_until_a_person_lets_it_pass() {
    let gate = Gate::start(asking(), deleting).await;
    for (speech, stream) in ALL.into_iter().flat_map(|s| [(s, false), (s, true)]) {
        let session = format!("{speech:?}-{stream}");
        let ask = speech.says(stream, "Clean up").by("cleaner", &session);
        let address = gate.address;
        let held = tokio::spawn(async move { ask.send_to(address).await });
        let one = the_one(&gate).await;
        assert!(!held.is_finished(), "{session}");
        assert_eq!(
            (&one["agent"], &one["session"], &one["tool"], &one["guard"], &one["state"]),
            (
                &json!("cleaner"),
                &json!(session),
                &json!("delete_asset"),
                &json!("access"),
                &json!("waiting")
            )
        );
        let (asked, explain) = (one["asked"].as_str().unwrap(), one["explain"].as_str().unwrap());
        assert!(asked.contains("fact_sales") && !asked.contains(SECRET), "{asked}");
        assert!(
            explain.starts_with("waits for a person: delete_asset needs approval"),
            "{explain}"
        );
        assert_eq!(one["until_ms"].as_u64().unwrap() - one["since_ms"].as_u64().unwrap(), 300_000);

        let done = decide(&gate, &one["id"], "approve").await;
        assert_eq!((done.status, &done.json()["state"]), (200, &json!("approved")));
        let got = soon("the held answer", held).await.unwrap();
        assert!(got.status == 200 && got.complete, "{session}: {}", got.text());
        assert!(got.text().contains("fact_sales") && !got.text().contains("deadstop"), "{session}");
        if !stream {
            let warning = got.header("x-deadstop-warning").unwrap();
            assert!(warning.contains("approved by ada: ticket 7"), "{warning}");
        }
        let again = decide(&gate, &one["id"], "deny").await;
        assert_eq!((again.status, &again.json()["code"]), (409, &json!("already_decided")));
    }
    let entry = audit(&gate, "call.approve").await;
    assert_eq!((&entry["who"], &entry["reason"]), (&json!("ada"), &json!("ticket 7")), "{entry}");
    assert!(!entry.to_string().contains(SECRET), "{entry}");
    assert_eq!(gate.counted("deadstop_approvals_total{answer=\"approved\"}").await, 8.0);
    assert_eq!(gate.counted("deadstop_approvals_waiting").await, 0.0);
}

#[tokio::test]
async fn an_answer_that_a_person_denies_never_reaches_the_agent() {
    let gate = Gate::start(asking(), deleting).await;
    for (speech, stream) in ALL.into_iter().flat_map(|s| [(s, false), (s, true)]) {
        let session = format!("{speech:?}-{stream}");
        let ask = speech.says(stream, "Clean up").by("cleaner", &session);
        let address = gate.address;
        let held = tokio::spawn(async move { ask.send_to(address).await });
        let one = the_one(&gate).await;
        assert_eq!(decide(&gate, &one["id"], "deny").await.status, 200);
        let got = soon("the held answer", held).await.unwrap();
        let text = got.text();
        assert_eq!(got.status, if stream { 200 } else { 403 }, "{session}: {text}");
        assert!(text.contains("denied by ada: ticket 7"), "{session}: {text}");
        let scope = gate.scope(&session).await;
        assert_eq!((&scope["state"], &scope["steps"]), (&json!("running"), &json!(0)), "{session}");
    }
    assert_eq!(audit(&gate, "call.deny").await["reason"], "ticket 7");
    assert_eq!(gate.incident().await["verdict"], "block");
}

#[tokio::test]
async fn nobody_who_decides_is_a_refusal() {
    let mut policy = asking();
    policy["ask_timeout_s"] = json!(1);
    let gate = Gate::start(policy, deleting).await;
    let got = gate.ask(&Speech::Chat.says(false, "Clean up").by("cleaner", "s")).await;
    assert_eq!(got.status, 403, "{}", got.text());
    assert!(got.text().contains("no approval within 1 s"), "{}", got.text());
    assert!(waiting(&gate).await.is_empty());
    until("its entry", || async { !audit(&gate, "call.lapse").await.is_null() }).await;
}

#[tokio::test]
async fn a_kill_ends_the_waiting_and_so_does_a_client_that_goes_away() {
    let gate = Gate::start(asking(), deleting).await;
    for stream in [false, true] {
        let session = format!("{stream}");
        let ask = Speech::Anthropic.says(stream, "Clean up").by("cleaner", &session);
        let address = gate.address;
        let held = tokio::spawn(async move { ask.send_to(address).await });
        let one = the_one(&gate).await;
        let order = json!({ "agent": "cleaner", "session": session, "reason": "enough now" });
        gate.order("kill", order).await;
        let got = soon("the held answer", held).await.unwrap();
        assert!(got.text().contains("enough now"), "{stream}: {}", got.text());
        let path = format!("/api/approvals/{}", one["id"].as_str().unwrap());
        assert_eq!(gate.ask(&Ask::get(&path)).await.json()["state"], "stopped");

        let ask = Speech::Anthropic.says(stream, "Clean up").by("other", &session);
        let wire = ask.send(address).await;
        let one = the_one(&gate).await;
        drop(wire);
        until("no call waits", || async { waiting(&gate).await.is_empty() }).await;
        let path = format!("/api/approvals/{}", one["id"].as_str().unwrap());
        assert_eq!(gate.ask(&Ask::get(&path)).await.json()["state"], "withdrawn");
        assert_eq!(decide(&gate, &one["id"], "approve").await.status, 409);
    }
}

#[tokio::test]
async fn who_asks_himself_is_told_at_once_and_comes_back() {
    let gate = Gate::start(asking(), deleting).await;
    let asked = propose(&gate, "t1", "fact_sales").await;
    assert_eq!((&asked["verdict"], &asked["allowed"]), (&json!("ask"), &json!(false)), "{asked}");
    assert_eq!(propose(&gate, "t1", "fact_sales").await["approval"], asked["approval"]);
    let path = format!("/api/approvals/{}?wait=60", asked["approval"].as_str().unwrap());
    let address = gate.address;
    let poll = tokio::spawn(async move { Ask::get(&path).send_to(address).await });
    assert_eq!(decide(&gate, &asked["approval"], "approve").await.status, 200);
    assert_eq!(soon("the word", poll).await.unwrap().json()["state"], "approved");

    // What was approved is that call, and once.
    let other = propose(&gate, "t1", "fact_orders").await;
    assert_eq!(other["verdict"], "ask", "{other}");
    assert_ne!(other["approval"], asked["approval"]);
    assert_eq!(decide(&gate, &other["approval"], "deny").await.status, 200);
    let denied = propose(&gate, "t1", "fact_orders").await;
    assert_eq!((&denied["verdict"], &denied["approval"]), (&json!("block"), &Value::Null));

    let asked = propose(&gate, "t2", "fact_sales").await;
    assert_eq!(decide(&gate, &asked["approval"], "approve").await.status, 200);
    let allowed = propose(&gate, "t2", "fact_sales").await;
    assert_eq!((&allowed["verdict"], &allowed["allowed"]), (&json!("warn"), &json!(true)));
    let why = allowed["trips"][0]["explain"].as_str().unwrap();
    assert!(why.contains("approved by ada: ticket 7"), "{why}");
    // Said twice is said once; another call needs another word.
    assert_eq!(propose(&gate, "t2", "fact_sales").await, allowed);
    assert_eq!(propose(&gate, "t3", "fact_sales").await["verdict"], "ask");
    assert_eq!(gate.scope("s1").await["steps"], 1);
}

#[tokio::test]
async fn an_approval_lifts_nothing_that_is_stricter() {
    let policy = json!({
        "access": { "ask": ["delete_*"] },
        "destructive": { "max_deletes": 1, "action": "block" },
    });
    let gate = Gate::start(policy, deleting).await;
    // The guard that blocks comes first: no person is asked about a call that is blocked anyway.
    assert_eq!(propose(&gate, "t1", "fact_sales").await["verdict"], "block");
    assert!(waiting(&gate).await.is_empty());

    let policy = json!({ "destructive": { "max_deletes": 1, "action": "ask" } });
    let gate = Gate::start(policy, deleting).await;
    for id in ["t1", "t2", "t3", "t4", "t5", "t6"] {
        let asked = propose(&gate, id, id).await;
        assert_eq!(asked["verdict"], "ask", "asking is no strike: {asked}");
    }
    assert_eq!(waiting(&gate).await.len(), 6);
}

#[tokio::test]
async fn only_operators_decide_and_agents_see_their_own() {
    let gate = Gate::start(asking(), deleting).await;
    let asked = propose(&gate, "t1", "fact_sales").await;
    let id = asked["approval"].as_str().unwrap();
    let key = async |with: &str, body: Value| {
        let ask = Ask::post("/api/keys", &body);
        let ask = if with.is_empty() { ask } else { ask.key(with) };
        let got = gate.ask(&ask).await.json();
        got["key"].as_str().unwrap_or_else(|| panic!("{got}")).to_owned()
    };
    let admin = key("", json!({ "name": "root", "role": "admin" })).await;
    let viewer = key(&admin, json!({ "name": "eve", "role": "viewer" })).await;
    let own = json!({ "name": "bot", "role": "agent", "agent": "cleaner" });
    let own = key(&admin, own).await;
    let other = json!({ "name": "bot2", "role": "agent", "agent": "other" });
    let other = key(&admin, other).await;
    let (get, approve) = (format!("/api/approvals/{id}"), format!("/api/approvals/{id}/approve"));
    for (who, see, list) in [(&viewer, 200, 200), (&own, 200, 403), (&other, 404, 403)] {
        assert_eq!(gate.ask(&Ask::get(&get).key(who)).await.status, see);
        assert_eq!(gate.ask(&Ask::get("/api/approvals").key(who)).await.status, list);
        let word = Ask::post(&approve, &json!({ "reason": "let me" })).key(who);
        assert_eq!(gate.ask(&word).await.status, 403);
    }
    let no_reason = Ask::post(&approve, &json!({ "reason": "" })).key(&admin);
    assert_eq!(gate.ask(&no_reason).await.status, 422);
}

/// Number 8 of the attack table: padding hid the argument that mattered, and nothing said so.
#[tokio::test]
async fn hole_08_only_what_was_shown_can_be_approved() {
    let gate = Gate::start(json!({ "access": { "ask": ["*"] } }), deleting).await;
    let asked = async |id: &str, padding: usize| {
        let command = format!("echo {}; touch a; rm -rf ~", "x".repeat(padding));
        let call = json!({ "id": id, "tool": "Bash", "arguments": { "command": command } });
        let ask = Ask::post("/api/sessions/cleaner/s1/proposal", &json!({ "calls": [call] }));
        gate.ask(&ask).await.json()["calls"][0]["approval"].clone()
    };
    let approve = async |id: &Value, shown: Value| {
        let path = format!("/api/approvals/{}/approve", id.as_str().unwrap());
        let mut body = json!({ "reason": "ticket 7" });
        if !shown.is_null() {
            body["shown_chars"] = shown;
        }
        let got = gate.ask(&Ask::post(&path, &body)).await;
        (got.status, got.json()["code"].clone())
    };
    let not_shown = (422, json!("not_shown"));

    // A list says that it holds the beginning, and what the call would do stands first.
    let padded = asked("t1", 5000).await;
    let listed = the_one(&gate).await;
    let chars = listed["asked_chars"].as_u64().unwrap();
    assert!(chars > 5000 && listed["asked"].as_str().unwrap().len() == 2000, "{listed}");
    assert!(!listed["asked"].as_str().unwrap().contains("rm -rf"));
    assert_eq!(listed["harms"][0]["severity"], "catastrophic", "{listed}");
    assert!(listed["harms"][0]["because"].as_str().unwrap().contains("`rm -rf ~`"), "{listed}");
    for wrong in [Value::Null, json!(2000), json!(chars + 1)] {
        assert_eq!(approve(&padded, wrong.clone()).await, not_shown, "{wrong}");
    }
    assert_eq!(waiting(&gate).await.len(), 1);
    let path = format!("/api/approvals/{}", padded.as_str().unwrap());
    let whole = gate.ask(&Ask::get(&path)).await.json();
    let text = whole["asked"].as_str().unwrap();
    assert!(text.ends_with("rm -rf ~\"}") && text.len() as u64 == chars, "{text}");
    assert_eq!(approve(&padded, json!(chars)).await.0, 200);

    // What was not even kept cannot be approved at all, and can be denied.
    let huge = asked("t2", 60_000).await;
    let one = the_one(&gate).await;
    assert!(one["unkept_chars"].as_u64().unwrap() > 20_000, "{one}");
    for shown in [json!(null), one["asked_chars"].clone(), json!(60_100)] {
        assert_eq!(approve(&huge, shown).await, not_shown);
    }
    assert_eq!(decide(&gate, &huge, "deny").await.status, 200);

    // A short call is approved as before.
    let short = asked("t3", 10).await;
    assert_eq!(approve(&short, Value::Null).await.0, 200);
}
