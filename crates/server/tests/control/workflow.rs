//! What people do about incidents: states, groups, mutes, on either database.

use serde_json::{Value, json};

use crate::support::{Ask, Gate, Reply, until};

async fn get(gate: &Gate, path: &str) -> Value {
    let got = gate.ask(&Ask::get(path)).await;
    assert_eq!(got.status, 200, "{path}: {}", got.text());
    got.json()
}

async fn act(gate: &Gate, order: Value) -> Value {
    let got = gate.ask(&Ask::post("/api/incidents/actions", &order)).await;
    assert_eq!(got.status, 200, "{order}: {}", got.text());
    got.json()
}

/// A call that is refused, and becomes an incident.
async fn refuse(gate: &Gate, agent: &str, id: &str, tool: &str) {
    let call = json!({ "id": id, "tool": tool, "arguments": {} });
    let path = format!("/api/sessions/{agent}/s-{id}/proposal");
    let got = gate.ask(&Ask::post(&path, &json!({ "calls": [call] }))).await;
    assert_eq!(got.json()["calls"][0]["allowed"], false, "{}", got.text());
}

/// The ids of incidents in a state, the newest first.
async fn ids(gate: &Gate, query: &str) -> Vec<String> {
    let page = get(gate, &format!("/api/incidents?{query}")).await;
    let items = page["items"].as_array().unwrap().iter();
    items.map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

async fn group(gate: &Gate, agent: &str, about: &str) -> Value {
    let path = format!("/api/incidents/groups?agent={agent}&about={about}");
    let page = get(gate, &path).await;
    assert_eq!(page["items"].as_array().unwrap().len(), 1, "{page}");
    page["items"][0].clone()
}

async fn gate() -> Gate {
    let policy = json!({ "access": { "deny": ["delete_*", "drop_*"] } });
    Gate::start(policy, |_| Reply::json(200, &json!({}))).await
}

#[tokio::test]
async fn an_incident_is_acknowledged_assigned_resolved_and_opens_again() {
    let gate = gate().await;
    refuse(&gate, "a", "c1", "delete_user").await;
    refuse(&gate, "a", "c2", "drop_table").await;
    let all = ids(&gate, "state=open").await;
    assert_eq!(all.len(), 2);
    let id = all[1].clone();
    let state = |done: &Value| done["incidents"][0]["state"].as_str().unwrap().to_owned();
    let order = |action: &str| json!({ "action": action, "ids": [id], "note": "why", "by": "ada" });

    assert_eq!(state(&act(&gate, order("acknowledge")).await), "acknowledged");
    let assigned = act(&gate, json!({ "action": "assign", "ids": [id], "assignee": "bob" })).await;
    assert_eq!(assigned["incidents"][0]["assignee"], "bob");
    assert_eq!(ids(&gate, "state=acknowledged").await, std::slice::from_ref(&id));
    let done = act(&gate, order("resolve")).await;
    assert_eq!(state(&done), "resolved");
    let resolved = &done["incidents"][0]["resolved"];
    assert_eq!((&resolved["by"], &resolved["how"]), (&json!("ada"), &json!("fixed")));
    assert_eq!(ids(&gate, "state=unresolved").await, [all[0].clone()]);
    assert_eq!(ids(&gate, "state=resolved").await, std::slice::from_ref(&id));
    assert_eq!(group(&gate, "a", "delete_user").await["state"], "resolved");
    assert_eq!(state(&act(&gate, order("false_alarm")).await), "resolved");
    assert_eq!(get(&gate, &format!("/api/incidents/{id}")).await["resolved"]["how"], "false_alarm");
    assert_eq!(state(&act(&gate, order("reopen")).await), "open");
    act(&gate, order("resolve")).await;

    // It happens again: the group is open again, and says so.
    refuse(&gate, "a", "c3", "delete_user").await;
    let again = group(&gate, "a", "delete_user").await;
    assert_eq!(
        (&again["state"], &again["reopened"], &again["count"], &again["open"]),
        (&json!("open"), &json!(true), &json!(2), &json!(1))
    );
    let strip = again["strip"]["counts"].as_array().unwrap();
    assert_eq!((strip.len(), &strip[27]), (28, &json!(2)));
    assert!(again["first_ms"].as_u64() < again["last_ms"].as_u64(), "{again}");

    let audit = get(&gate, "/api/audit?limit=100").await;
    let audit: Vec<_> = audit["items"].as_array().unwrap().iter().collect();
    for action in ["acknowledge", "assign", "resolve", "false_alarm", "reopen"] {
        let action = format!("incident.{action}");
        let entry = audit.iter().find(|entry| entry["action"] == action.as_str());
        assert_eq!(entry.map(|entry| &entry["subject"]), Some(&json!(id)), "{action}");
    }
}

/// A loop that goes on after its incident was resolved opens that incident again.
#[tokio::test]
async fn a_loop_that_goes_on_opens_its_incident_again() {
    let policy =
        json!({ "loop": { "enabled": true, "steer_at": 3, "block_at": "off", "end_at": "off" } });
    let gate = Gate::start(policy, |_| Reply::json(200, &json!({}))).await;
    let look = async |id: usize| {
        let call = json!({ "id": format!("c{id}"), "tool": "look", "arguments": {} });
        let path = |what: &str| format!("/api/sessions/a/s/{what}");
        gate.ask(&Ask::post(&path("proposal"), &json!({ "calls": [call] }))).await;
        let receipt = json!({ "id": format!("c{id}"), "status": "ok", "text": "the same" });
        assert_eq!(gate.ask(&Ask::post(&path("receipt"), &receipt)).await.status, 200);
    };
    for id in 0..4 {
        look(id).await;
    }
    let open = ids(&gate, "state=open").await;
    assert_eq!(open.len(), 1);
    act(&gate, json!({ "action": "resolve", "ids": open })).await;
    assert!(ids(&gate, "state=unresolved").await.is_empty());
    let resolved = get(&gate, &format!("/api/incidents/{}", open[0])).await;
    let at = resolved["resolved"]["at_ms"].as_u64().unwrap();
    until("time went on", || async {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        since.as_millis() > u128::from(at)
    })
    .await;
    look(4).await;
    assert_eq!(ids(&gate, "state=open").await, open);
    assert_eq!(group(&gate, "a", "look").await["state"], "open");
}

#[tokio::test]
async fn a_group_is_resolved_at_once_and_unknown_ids_are_named() {
    let gate = gate().await;
    for id in 0..5 {
        refuse(&gate, "a", &format!("c{id}"), "delete_user").await;
    }
    refuse(&gate, "a", "c9", "drop_table").await;
    refuse(&gate, "b", "c1", "delete_user").await;
    let alike = json!({ "agent": "a", "guard": "access", "about": "delete_user" });
    let done =
        act(&gate, json!({ "action": "resolve", "groups": [alike], "ids": ["no-id"] })).await;
    assert_eq!(done["incidents"].as_array().unwrap().len(), 5);
    assert_eq!(done["missing"], json!(["no-id"]));
    assert_eq!(ids(&gate, "state=unresolved").await.len(), 2);
    for (bad, status) in [
        (json!({ "action": "resolve" }), 422),
        (json!({ "action": "forget", "ids": ["x"] }), 422),
        (json!({ "action": "mute", "ids": ["x"], "until": 5 }), 422),
    ] {
        let got = gate.ask(&Ask::post("/api/incidents/actions", &bad)).await;
        assert_eq!(got.status, status, "{bad}: {}", got.text());
    }
}

/// What is muted sends no alert; it is recorded and refused as ever.
#[tokio::test]
async fn a_mute_silences_alerts_and_nothing_else() {
    let gate = gate().await;
    let target = json!({
        "name": "ops", "active": true, "agent": null, "events": ["trip", "kill"],
        "target": { "type": "slack", "url": "https://hooks.example.org/services/x" },
    });
    let made = gate.ask(&Ask::post("/api/alerts/targets", &target)).await;
    assert!(made.status < 300, "{}", made.text());
    let alerts = async || {
        let page = get(&gate, "/api/alerts/deliveries?limit=100").await;
        let items = page["items"].as_array().unwrap().iter();
        items.filter_map(|one| one["times"].as_u64().or(Some(1))).sum::<u64>()
    };
    refuse(&gate, "a", "c1", "delete_user").await;
    let first = ids(&gate, "").await;
    assert_eq!(alerts().await, 1);

    let muted = act(&gate, json!({ "action": "mute", "ids": first, "note": "known" })).await;
    assert_eq!(muted["incidents"][0]["state"], "muted");
    refuse(&gate, "a", "c2", "delete_user").await;
    assert_eq!(ids(&gate, "state=muted").await.len(), 2, "recorded");
    assert_eq!(alerts().await, 1, "no alert");
    assert_eq!(get(&gate, "/api/incidents/mutes").await["items"][0]["about"], "delete_user");
    assert_eq!(group(&gate, "a", "delete_user").await["muted"]["note"], "known");
    refuse(&gate, "a", "c3", "drop_table").await;
    assert_eq!(alerts().await, 2, "another fingerprint");

    act(&gate, json!({ "action": "unmute", "ids": first })).await;
    refuse(&gate, "a", "c4", "delete_user").await;
    assert_eq!(alerts().await, 3);
    // A mute that is over holds no longer.
    act(&gate, json!({ "action": "mute", "ids": first, "until_ms": 1 })).await;
    refuse(&gate, "a", "c5", "delete_user").await;
    assert_eq!(alerts().await, 4);
    assert_eq!(get(&gate, "/api/incidents/mutes").await["items"], json!([]));
}

/// A loop that was none: the exception for one tool is tried on history, saved, and in force.
#[tokio::test]
async fn a_false_alarm_becomes_an_exception_that_was_tried() {
    let policy =
        json!({ "loop": { "enabled": true, "steer_at": "off", "block_at": "off", "end_at": 4 } });
    let gate = Gate::start(policy, |_| Reply::json(200, &json!({}))).await;
    let look = async |session: &str, tool: &str, calls: usize| {
        let path = |what: &str| format!("/api/sessions/poller/{session}/{what}");
        let mut passed = 0;
        for id in 0..calls {
            let call = json!({ "id": format!("c{id}"), "tool": tool, "arguments": {} });
            let got = gate.ask(&Ask::post(&path("proposal"), &json!({ "calls": [call] }))).await;
            if got.json()["calls"][0]["allowed"] != true {
                break;
            }
            passed += 1;
            let receipt = json!({ "id": format!("c{id}"), "status": "ok", "text": "the same" });
            assert_eq!(gate.ask(&Ask::post(&path("receipt"), &receipt)).await.status, 200);
        }
        passed
    };
    assert_eq!(look("first", "get_build", 6).await, 3);
    let id = ids(&gate, "state=open").await.remove(0);
    let proposed = get(&gate, &format!("/api/incidents/{id}/exceptions")).await;
    assert_eq!(proposed["recommended"], "tool_limits", "{proposed}");
    let first = &proposed["exceptions"][0];
    let change = json!({ "path": "loop.tools.get_build.end_at", "before": null, "after": 8 });
    assert!(first["changes"].as_array().unwrap().contains(&change), "{first}");
    assert_eq!((&first["helps"], &first["sessions"]), (&json!(true), &json!(1)), "{first}");
    assert_eq!((&first["before"]["stopped"], &first["after"]["stopped"]), (&json!(1), &json!(0)));

    let path = format!("/api/incidents/{id}/false-alarm");
    let alarm = json!({ "exception": "tool_limits", "reason": "it waits for a build" });
    let saved = gate.ask(&Ask::post(&path, &alarm)).await;
    assert_eq!(saved.status, 200, "{}", saved.text());
    let saved = saved.json();
    assert_eq!(saved["incident"]["resolved"]["how"], "false_alarm", "{saved}");
    assert_eq!(saved["version"], 1);
    let versions = get(&gate, "/api/policies/agents/poller/versions").await;
    let note = versions["items"][0]["note"].as_str().unwrap();
    assert!(note.contains(&id) && note.contains("it waits for a build"), "{note}");
    assert_eq!(look("second", "get_build", 9).await, 7, "twice as often");
    assert_eq!(look("third", "other", 6).await, 3, "another tool as before");

    for (bad, status) in [
        (json!({ "exception": "none_such", "reason": "x" }), 422),
        (json!({ "exception": "tool_limits", "reason": "" }), 422),
    ] {
        assert_eq!(gate.ask(&Ask::post(&path, &bad)).await.status, status, "{bad}");
    }
}
