//! One-time grants: given with a reason and an end, used up by the calls that they cover.

use serde_json::{Value, json};

use crate::support::{Ask, Gate, Reply, until};

async fn propose(gate: &Gate, id: &str, target: &str) -> Value {
    let arguments = json!({ "asset_id": target });
    let call = json!({ "id": id, "tool": "delete_asset", "arguments": arguments });
    let ask = Ask::post("/api/sessions/cleaner/s1/proposal", &json!({ "calls": [call] }));
    gate.ask(&ask).await.json()["calls"][0].clone()
}

async fn start(policy: Value) -> Gate {
    let gate = Gate::start(policy, |_| Reply::json(200, &json!({}))).await;
    let opening = json!({ "agent": "cleaner", "session": "s1" });
    assert_eq!(gate.ask(&Ask::post("/api/sessions", &opening)).await.status, 200);
    gate
}

fn batch(deletes: u32) -> Value {
    json!({
        "deletes": deletes, "target": "asset_id=tmp_*", "reason": "the old assets",
        "expires_in_s": 600, "by": "ada",
    })
}

async fn audited(gate: &Gate, action: &str) -> Value {
    let list = gate.ask(&Ask::get("/api/audit?limit=50")).await.json();
    let items = list["items"].as_array().unwrap().clone();
    items.into_iter().find(|entry| entry["action"] == action).unwrap_or(Value::Null)
}

#[tokio::test]
async fn a_batch_that_is_granted_goes_through_and_no_more() {
    for holder in ["/api/agents/cleaner/grants", "/api/sessions/cleaner/s1/grants"] {
        let gate = start(json!({ "preset": "strict" })).await;
        let given = gate.ask(&Ask::post(holder, &batch(10))).await;
        assert_eq!(given.status, 201, "{}", given.text());
        assert_eq!((&given.json()["left"], &given.json()["by"]), (&json!(10), &json!("ada")));
        for n in 1..=10 {
            let got = propose(&gate, &format!("t{n}"), &format!("tmp_{n}")).await;
            assert_eq!((&got["verdict"], &got["allowed"]), (&json!("allow"), &json!(true)));
            let why = got["trips"][0]["explain"].as_str().unwrap();
            assert!(why.contains("is granted by ada: the old assets"), "{why}");
            let list = gate.ask(&Ask::get(holder)).await.json();
            let left = list["items"][0]["left"].as_u64().unwrap_or_default();
            assert_eq!(left, 10 - n, "{list}");
        }
        for (n, verdict) in [(11, "allow"), (12, "allow"), (13, "kill")] {
            let got = propose(&gate, &format!("t{n}"), &format!("tmp_{n}")).await;
            assert_eq!(got["verdict"], verdict, "{n}: {got}");
        }
        let entry = audited(&gate, "grant.give").await;
        assert_eq!((&entry["who"], &entry["reason"]), (&json!("ada"), &json!("the old assets")));
        until("its end", || async { !audited(&gate, "grant.used_up").await.is_null() }).await;
    }
}

#[tokio::test]
async fn a_grant_outlives_a_restart_and_can_be_taken_back() {
    let policy = json!({ "preset": "strict" });
    let gate = start(policy.clone()).await;
    let path = "/api/agents/cleaner/grants";
    let id = gate.ask(&Ask::post(path, &batch(50))).await.json()["id"].clone();
    assert_eq!(propose(&gate, "t1", "tmp_1").await["allowed"], true);
    let gate = gate.restart(policy).await;
    let list = gate.ask(&Ask::get(path)).await.json();
    assert_eq!((&list["items"][0]["id"], &list["items"][0]["left"]), (&id, &json!(49)), "{list}");
    let revoke = format!("{path}/{}/revoke", id.as_str().unwrap());
    let revoke = Ask::post(&revoke, &json!({ "reason": "done", "by": "bob" }));
    assert_eq!(gate.ask(&revoke).await.json()["left"], 49);
    assert_eq!(gate.ask(&revoke).await.status, 404);
    assert_eq!(audited(&gate, "grant.revoke").await["who"], "bob");
    assert_eq!(gate.ask(&Ask::get(path)).await.json()["items"], json!([]));
}

#[tokio::test]
async fn the_same_target_again_is_stopped_under_a_grant() {
    let gate = start(json!({ "preset": "strict" })).await;
    let path = "/api/sessions/cleaner/s1/grants";
    assert_eq!(gate.ask(&Ask::post(path, &batch(50))).await.status, 201);
    for (n, verdict) in [(1, "allow"), (2, "allow"), (3, "kill")] {
        assert_eq!(propose(&gate, &format!("t{n}"), "tmp_1").await["verdict"], verdict, "{n}");
    }
}

#[tokio::test]
async fn what_is_no_grant_is_refused() {
    let gate = start(json!({})).await;
    for (path, body, status) in [
        ("/api/agents/cleaner/grants", json!({ "deletes": 0 }), 422),
        ("/api/agents/cleaner/grants", json!({ "deletes": 5, "expires_in_s": 60 }), 422),
        ("/api/agents/unknown/grants", batch(5), 404),
        ("/api/sessions/cleaner/nothing/grants", batch(5), 404),
    ] {
        let got = gate.ask(&Ask::post(path, &body)).await;
        assert_eq!(got.status, status, "{path} {body}: {}", got.text());
    }
    for _ in 0..16 {
        let got = gate.ask(&Ask::post("/api/agents/cleaner/grants", &batch(5))).await;
        assert_eq!(got.status, 201);
    }
    let got = gate.ask(&Ask::post("/api/agents/cleaner/grants", &batch(5))).await;
    assert_eq!((got.status, &got.json()["code"]), (409, &json!("too_many_grants")));
}

/// An allowance may also be a setting: for one agent, over what holds for all.
#[tokio::test]
async fn an_agent_may_have_an_allowance_of_its_own() {
    let gate = start(json!({ "preset": "strict" })).await;
    let mut policies = deadstop_core::Preset::Strict.policies();
    policies.session.destructive.max_deletes = 20;
    let whose = deadstop_protocol::policy_views::Whose::Agent;
    let policy = deadstop_protocol::policy_views::write_policy(&policies, whose);
    let policy = json!({ "policy": policy, "kill_switch": null });
    let put = Ask::of("PUT", "/api/policies/agents/cleaner", Some(&policy)).with("if-match", "*");
    let put = gate.ask(&put).await;
    assert_eq!(put.status, 200, "{}", put.text());
    for n in 1..20 {
        let got = propose(&gate, &format!("t{n}"), &format!("tmp_{n}")).await;
        assert_eq!(got["verdict"], "allow", "{n}: {got}");
    }
    assert_eq!(propose(&gate, "t20", "tmp_20").await["verdict"], "kill");
}
