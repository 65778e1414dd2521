//! Allowed once: a refusal names a code, and a person who gives it lets exactly that call run, once.

use serde_json::{Value, json};

use crate::mcp::{call, error, post, said, servers};
use crate::support::{Ask, Gate, Got, Reply, Said, Seen, Speech, until};

/// Blocks what is catastrophic, and nothing else.
fn blocking() -> Value {
    json!({ "harm": { "enabled": true, "catastrophic": "block" } })
}

fn wipe() -> Value {
    json!({ "command": "rm -rf ~" })
}

/// An upstream whose model wants to wipe the home directory, and whose MCP servers do as they are
/// told.
fn wiping(seen: &Seen) -> Reply {
    if seen.target.ends_with("/mcp") {
        return Reply::json(200, &said(seen, "done"));
    }
    Speech::Chat.reply(false, &Said::call("call_1", "Bash", wipe()))
}

async fn start() -> Gate {
    Gate::with(blocking(), wiping, |config| servers(config, std::time::Duration::from_secs(60)))
        .await
}

/// The code that a text names.
fn code(text: &str) -> String {
    let rest = text.split("`deadstop allow ").nth(1).unwrap_or_else(|| panic!("no code in {text}"));
    rest.chars().take_while(char::is_ascii_alphanumeric).collect()
}

async fn allow(gate: &Gate, code: &str) -> Got {
    let body = json!({ "reason": "ticket 7", "by": "ada" });
    gate.ask(&Ask::post(&format!("/api/allow/{code}"), &body)).await
}

async fn propose(gate: &Gate, session: &str, id: &str, arguments: &Value) -> Value {
    let call = json!({ "id": id, "tool": "Bash", "arguments": arguments });
    let path = format!("/api/sessions/cleaner/{session}/proposal");
    gate.ask(&Ask::post(&path, &json!({ "calls": [call] }))).await.json()["calls"][0].clone()
}

fn explained(decided: &Value) -> &str {
    decided["trips"][0]["explain"].as_str().unwrap_or_else(|| panic!("{decided}"))
}

/// Padding hides what is dangerous in a list: only what was shown whole can be allowed.
#[tokio::test]
async fn hole_08_only_what_was_shown_can_be_allowed() {
    let gate = start().await;
    let padded = json!({ "note": "x".repeat(5000), "command": "rm -rf ~" });
    let refused = propose(&gate, "s1", "t1", &padded).await;
    let code = code(explained(&refused));
    let got = allow(&gate, &code).await;
    assert_eq!((got.status, &got.json()["code"]), (422, &json!("not_shown")), "{}", got.text());
    assert_eq!(propose(&gate, "s1", "t2", &padded).await["verdict"], "block");
    let whole = gate.ask(&Ask::get(&format!("/api/allow/{code}"))).await.json();
    let shown = whole["asked"].as_str().unwrap().chars().count();
    assert!(shown > 5000, "{whole}");
    let body = json!({ "reason": "read it", "by": "ada", "shown_chars": shown });
    let got = gate.ask(&Ask::post(&format!("/api/allow/{code}"), &body)).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(propose(&gate, "s1", "t3", &padded).await["allowed"], true);
}

#[tokio::test]
async fn a_proposed_call_is_allowed_once() {
    let gate = start().await;
    let refused = propose(&gate, "s1", "t1", &wipe()).await;
    assert_eq!(refused["verdict"], "block", "{refused}");
    let code = code(explained(&refused));
    assert_eq!(code.len(), 6);
    // The same call has the same code, and a person sees what it would do.
    assert!(explained(&propose(&gate, "s1", "t2", &wipe()).await).contains(&code));
    let list = gate.ask(&Ask::get("/api/allow")).await.json();
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
    assert_eq!(list["items"][0]["harms"][0]["severity"], "catastrophic", "{list}");
    assert!(list["items"][0]["asked"].as_str().unwrap().contains("rm -rf ~"), "{list}");

    let got = allow(&gate, &code.to_lowercase()).await;
    assert_eq!((got.status, &got.json()["allowed_by"]), (200, &json!("ada")), "{}", got.text());
    // Neither another call nor another session.
    let other = json!({ "command": "rm -rf ~/" });
    assert_eq!(propose(&gate, "s1", "t3", &other).await["verdict"], "block");
    assert_eq!(propose(&gate, "s2", "t3", &wipe()).await["verdict"], "block");
    // This one, once.
    let allowed = propose(&gate, "s1", "t4", &wipe()).await;
    assert_eq!((&allowed["verdict"], &allowed["allowed"]), (&json!("warn"), &json!(true)));
    assert!(explained(&allowed).contains("allowed once by ada: ticket 7"), "{allowed}");
    assert_eq!(propose(&gate, "s1", "t5", &wipe()).await["verdict"], "block");
    assert_eq!(allow(&gate, "NOCODE").await.status, 404);

    // The node that let it pass writes that down a moment later.
    let asked = Ask::get("/api/audit?limit=50");
    let written = async || gate.ask(&asked).await.text().contains("\"call.allowed\"");
    until("call.allowed in the audit", written).await;
    let audit = gate.ask(&asked).await.json();
    for action in ["call.allow", "call.allowed"] {
        let items = audit["items"].as_array().unwrap();
        let entry = items.iter().find(|entry| entry["action"] == action);
        let entry = entry.unwrap_or_else(|| panic!("{action} in {audit}"));
        assert_eq!((&entry["who"], &entry["subject"]), (&json!("ada"), &json!("cleaner/s1")));
        assert!(entry.to_string().contains(&code), "{entry}");
    }
}

#[tokio::test]
async fn many_at_once_get_one_call_through() {
    let gate = std::sync::Arc::new(start().await);
    let code = code(explained(&propose(&gate, "s1", "t0", &wipe()).await));
    assert_eq!(allow(&gate, &code).await.status, 200);
    let mut tries = tokio::task::JoinSet::new();
    // Few enough that no other guard has had enough of equal calls before the one that is allowed runs.
    for n in 0..3 {
        let gate = std::sync::Arc::clone(&gate);
        tries.spawn(async move {
            propose(&gate, "s1", &format!("many-{n}"), &wipe()).await["allowed"] == true
        });
    }
    let through = tries.join_all().await.into_iter().filter(|allowed| *allowed).count();
    assert_eq!(through, 1);
}

#[tokio::test]
async fn answers_and_mcp_calls_name_a_code_too() {
    let gate = start().await;
    let ask = || Speech::Chat.says(false, "Clean up").by("cleaner", "gateway");
    let refused = gate.ask(&ask()).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert_eq!(allow(&gate, &code(&refused.text())).await.status, 200);
    let passed = gate.ask(&ask()).await;
    assert!(passed.status == 200 && passed.text().contains("rm -rf ~"), "{}", passed.text());
    assert_eq!(gate.ask(&ask()).await.status, 403);

    let ask = || post("files", &call(1, "Bash", wipe())).by("cleaner", "tools");
    let refused = error(&gate.ask(&ask()).await);
    assert_eq!(allow(&gate, &code(refused["message"].as_str().unwrap())).await.status, 200);
    assert!(error(&gate.ask(&ask()).await).is_null());
    assert!(!error(&gate.ask(&ask()).await).is_null());
}

/// A person who comes too late for the question can still let the call pass.
#[tokio::test]
async fn a_question_that_lapsed_names_a_code() {
    let policy = json!({ "harm": { "enabled": true, "catastrophic": "ask" }, "ask_timeout_s": 1 });
    let gate = Gate::start(policy, wiping).await;
    let asked = propose(&gate, "s1", "t1", &wipe()).await;
    assert_eq!(asked["verdict"], "ask");
    let path = format!("/api/approvals/{}?wait=60", asked["approval"].as_str().unwrap());
    assert_eq!(gate.ask(&Ask::get(&path)).await.json()["state"], "lapsed");
    let refused = propose(&gate, "s1", "t1", &wipe()).await;
    assert_eq!(refused["verdict"], "block", "{refused}");
    assert_eq!(allow(&gate, &code(explained(&refused))).await.status, 200);
    assert_eq!(propose(&gate, "s1", "t1", &wipe()).await["allowed"], true);
}

#[tokio::test]
async fn an_agent_allows_nothing() {
    let gate = start().await;
    let code = code(explained(&propose(&gate, "s1", "t1", &wipe()).await));
    let made = gate.ask(&Ask::post("/api/keys", &json!({ "name": "root", "role": "admin" }))).await;
    let admin = made.json()["key"].as_str().unwrap().to_owned();
    let body = json!({ "name": "bot", "role": "agent", "agent": "cleaner" });
    let made = gate.ask(&Ask::post("/api/keys", &body).key(&admin)).await.json();
    let bot = made["key"].as_str().unwrap();
    let path = format!("/api/allow/{code}");
    let body = json!({ "reason": "let me" });
    for ask in [Ask::get("/api/allow"), Ask::get(&path), Ask::post(&path, &body)] {
        assert_eq!(gate.ask(&ask.key(bot)).await.status, 403);
    }
    assert_eq!(gate.ask(&Ask::post(&path, &body).key(&admin)).await.status, 200);
}

/// "Try a command": the words of `deadstop check`, from the server.
#[tokio::test]
async fn a_command_can_be_tried() {
    let gate = start().await;
    let check = async |body: Value| gate.ask(&Ask::post("/api/check", &body)).await;
    let tried = check(json!({ "command": "cd /tmp && rm -rf ~" })).await.json();
    assert_eq!(tried["severity"], "catastrophic", "{tried}");
    assert_eq!(
        tried["verdict"],
        json!({ "observe": "warn", "balanced": "ask", "strict": "block" })
    );
    assert_eq!(
        (&tried["harms"][0]["kind"], &tried["harms"][0]["reach"]),
        (&json!("destroys"), &json!("home"))
    );
    assert!(!tried["instead"].as_str().unwrap().is_empty());
    assert_eq!(tried["commands"], json!(["cd /tmp", "rm -rf ~"]), "{tried}");
    let tried = check(json!({ "tool": "drop_table", "input": { "table": "users" } })).await.json();
    assert_eq!(tried["severity"], "serious", "{tried}");
    assert_eq!(check(json!({ "command": "ls" })).await.json()["severity"], "none");
    for bad in [json!({}), json!({ "command": "ls", "tool": "x" }), json!({ "input": {} })] {
        assert_eq!(check(bad.clone()).await.status, 422, "{bad}");
    }
    // Nothing was run or recorded.
    assert_eq!(gate.upstream.requests(), 0);
}
