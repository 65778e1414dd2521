//! Keys: the first one does not stop running agents without a warning, and an agent's key is an
//! agent's.

use std::time::Duration;

use deadstop_server::{Database, DatabaseLocation, KeyWanted};
use deadstop_store::Role;
use serde_json::{Value, json};

use crate::support::dialect::Said;
use crate::support::{Ask, Gate, Speech};

async fn gate(grace: Duration) -> Gate {
    let answer = |_: &_| Speech::Chat.reply(false, &Said::text("hello"));
    Gate::with(json!({}), answer, |config| config.key_grace = grace).await
}

fn call(agent: &str) -> Ask {
    Speech::Chat.says(false, "hello").by(agent, "s")
}

async fn status(gate: &Gate, ask: &Ask) -> u16 {
    gate.ask(ask).await.status
}

/// Issue 19, number 16: from the first key on, every running agent got 401, without a warning.
#[tokio::test]
async fn hole_16_the_first_key_gives_running_agents_time() {
    let gate = gate(Duration::from_secs(600)).await;
    assert_eq!(status(&gate, &call("runner")).await, 200);
    let propose = Ask::post(
        "/api/sessions/runner/s/proposal",
        &json!({ "calls": [{ "id": "1", "tool": "ls", "arguments": {} }] }),
    );
    let open = |agent: &str| Ask::post("/api/sessions", &json!({ "agent": agent, "session": "n" }));
    let made = gate.ask(&Ask::post("/api/keys", &json!({ "name": "me", "role": "admin" }))).await;
    let made = made.json();
    // Who makes it is told whom it is about, and until when.
    assert_eq!(made["running"], json!(["runner"]), "{made}");
    assert!(made["grace_until_ms"].as_u64().is_some(), "{made}");
    let admin = made["key"].as_str().unwrap();

    for ask in [call("runner"), propose, open("runner")] {
        assert_eq!(status(&gate, &ask).await, 200, "{ask:?}");
    }
    // One that was not there before, and everything but calls, needs a key at once.
    for ask in [
        call("stranger"),
        open("stranger"),
        Ask::get("/api/status"),
        Ask::get("/api/whoami"),
        Ask::post("/api/kill", &json!({ "all": true })),
        Ask::post("/api/clear", &json!({ "all": true })),
        Ask::post("/api/sessions/stranger/s/proposal", &json!({ "calls": [] })),
    ] {
        assert_eq!(status(&gate, &ask).await, 401, "{ask:?}");
    }
    let shown = gate.ask(&Ask::get("/api/status").key(admin)).await.json();
    assert_eq!(shown["key_grace"]["agents"], json!(["runner"]), "{shown}");
    // A server that starts with keys gives no time.
    let admin = admin.to_owned();
    let gate = gate.restart(json!({})).await;
    assert_eq!(status(&gate, &call("runner")).await, 401);
    let shown = gate.ask(&Ask::get("/api/status").key(&admin)).await.json();
    assert_eq!(shown["key_grace"], Value::Null, "{shown}");
}

/// Issue 19, number 16: a running server noticed a key that was made in its database 2 s later.
#[tokio::test]
async fn hole_16_a_running_server_enforces_the_first_key_at_once() {
    let gate = gate(Duration::ZERO).await;
    assert_eq!(status(&gate, &call("runner")).await, 200);
    let place = DatabaseLocation::Folder(gate.folder.path().to_owned());
    let database = Database::open(&place).await.unwrap();
    let wanted = KeyWanted {
        name: "me".into(),
        role: Role::Admin,
        agent: None,
        project: None,
        by: "a test".into(),
    };
    // Believed for two seconds from here on, if nothing says otherwise.
    assert_eq!(status(&gate, &call("runner")).await, 200);
    let made = database.create_key(wanted).await.unwrap();
    assert_eq!(status(&gate, &call("runner")).await, 401);
    let with = call("runner").with("x-deadstop-key", made["key"].as_str().unwrap());
    assert_eq!(status(&gate, &with).await, 200);
    database.close().await;
}

/// Issue 19, number 12: a key without an agent evades the kill of one under a new name.
#[tokio::test]
async fn hole_12_an_agents_key_is_bound_unless_asked_for() {
    let gate = gate(Duration::ZERO).await;
    let made = gate.ask(&Ask::post("/api/keys", &json!({ "name": "me", "role": "admin" }))).await;
    let admin = made.json()["key"].as_str().unwrap().to_owned();
    let make = |agent: Value| {
        let order = json!({ "name": "bot", "role": "agent", "agent": agent });
        Ask::post("/api/keys", &order).key(&admin)
    };
    let unbound = gate.ask(&make(Value::Null)).await;
    assert_eq!(unbound.status, 422, "{}", unbound.text());
    assert!(unbound.text().contains("team-*"), "{}", unbound.text());
    let (one, like, any) = (
        gate.ask(&make(json!("bot"))).await.json(),
        gate.ask(&make(json!("team-*"))).await.json(),
        gate.ask(&make(json!("*"))).await.json(),
    );
    assert_eq!((&like["agent"], &any["agent"]), (&json!("team-*"), &Value::Null));
    let by =
        |key: &Value, agent: &str| call(agent).with("x-deadstop-key", key["key"].as_str().unwrap());
    let kill = |agent: &str| {
        Ask::post("/api/kill", &json!({ "agent": agent, "reason": "enough" })).key(&admin)
    };
    // One that is killed cannot go on under another name.
    assert_eq!(status(&gate, &by(&one, "bot")).await, 200);
    assert_eq!(status(&gate, &kill("bot")).await, 200);
    assert_eq!(status(&gate, &by(&one, "bot")).await, 403);
    assert_eq!(status(&gate, &by(&one, "another")).await, 403);
    assert_eq!(status(&gate, &by(&like, "team-1")).await, 200);
    assert_eq!(status(&gate, &by(&like, "another")).await, 403);
    let nameless = Speech::Chat.says(false, "hello");
    let nameless = nameless.with("x-deadstop-key", like["key"].as_str().unwrap());
    assert_eq!(status(&gate, &nameless).await, 403);
    assert_eq!(status(&gate, &by(&any, "another")).await, 200);
    // The same at the API.
    let open = |agent: &str| {
        let order = json!({ "agent": agent, "session": "s" });
        Ask::post("/api/sessions", &order).key(like["key"].as_str().unwrap())
    };
    assert_eq!(status(&gate, &open("team-2")).await, 200);
    assert_eq!(status(&gate, &open("another")).await, 404);
}
