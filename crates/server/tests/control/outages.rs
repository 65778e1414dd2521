//! A failing provider: one incident and one alert however many calls are refused, and sessions that say
//! what holds them back.

use serde_json::{Value, json};

use crate::place::{TestDatabase, on_both};
use crate::support::{Ask, Gate, Reply, Seen, Speech, until};

on_both![an_outage_is_one_incident];

async fn get(gate: &Gate, path: &str) -> Value {
    let got = gate.ask(&Ask::get(path)).await;
    assert_eq!(got.status, 200, "{path}: {}", got.text());
    got.json()
}

async fn items(gate: &Gate, path: &str) -> Vec<Value> {
    get(gate, path).await["items"].as_array().unwrap().clone()
}

/// Calls until so many were refused. The ones that are let through to try the provider fail.
async fn refused(gate: &Gate, agent: &str, session: &str, wanted: u64) -> u64 {
    let mut refused = 0;
    for n in 0..200 {
        let ask = Speech::Chat.says(false, &format!("Question {n} of {session}"));
        let got = gate.ask(&ask.by(agent, session)).await;
        refused += u64::from(got.header("x-deadstop-guard") == Some("breaker"));
        if refused == wanted {
            return refused;
        }
    }
    panic!("{refused} of {wanted} calls of {agent}/{session} were refused");
}

async fn an_outage_is_one_incident(place: &TestDatabase) {
    let policy = json!({
        "strikes": { "enabled": false }, "text_loop": { "enabled": false },
        "breaker": { "open_after_failures": 3 },
    });
    let fails = |_: &Seen| Reply::json(503, &json!({ "error": { "message": "overloaded" } }));
    let gate = Gate::on(place, policy, fails, |_| {}).await;
    let target = json!({
        "name": "ops", "active": true, "agent": null, "events": ["breaker_open", "trip", "kill"],
        "target": { "type": "slack", "url": "https://hooks.example.org/services/x" },
    });
    let made = gate.ask(&Ask::post("/api/alerts/targets", &target)).await;
    assert!(made.status < 300, "{}", made.text());

    // Three sessions of one agent meet the same outage; another agent meets its own.
    let mut met = 0;
    for (session, wanted) in [("s1", 5), ("s2", 4), ("s1", 3), ("s3", 1)] {
        met += refused(&gate, "a", session, wanted).await;
    }
    refused(&gate, "b", "s1", 2).await;

    let found = items(&gate, "/api/incidents?agent=a").await;
    assert_eq!(found.len(), 1, "{found:?}");
    let incident = &found[0];
    assert_eq!((&incident["guard"], &incident["about"]), (&json!("breaker"), &json!("openai")));
    assert_eq!(incident["calls"], met, "{incident}");
    assert!(incident["at_ms"].as_u64() < incident["last_ms"].as_u64(), "{incident}");
    let id = incident["id"].as_str().unwrap();
    let detail = get(&gate, &format!("/api/incidents/{id}")).await;
    assert_eq!((&detail["calls"], &detail["ladder"]), (&json!(met), &json!([])));
    assert_eq!(items(&gate, "/api/incidents?agent=b").await.len(), 1);

    // Each session has it, the agent has it once. A node may have to hear of it first.
    for session in ["s1", "s2", "s3"] {
        let page = items(&gate, &format!("/api/incidents?agent=a&session={session}")).await;
        assert_eq!(page.len(), 1, "{session}: {page:?}");
        let path = format!("/api/sessions/a/{session}");
        until("the session's count", async || get(&gate, &path).await["incidents"] == 1).await;
    }
    until("the agent's count", async || get(&gate, "/api/agents/a").await["incidents"] == 1).await;
    assert_eq!(get(&gate, "/api/agents/a").await["health"], "warning");

    // What it holds back is alive, and says so everywhere.
    let failing = |shown: &Value| shown["failing"][0]["server"] == "openai";
    until("the agent's note", async || failing(&get(&gate, "/api/agents/a").await)).await;
    until("the session's note", async || {
        let shown = get(&gate, "/api/sessions/a/s1").await;
        let listed = &items(&gate, "/api/sessions?agent=a&session=s1").await[0];
        assert_eq!(
            (&shown["standing"], &listed["standing"]),
            (&json!("running"), &json!("running"))
        );
        failing(&shown) && failing(&shown["live"]) && failing(listed)
    })
    .await;
    // A session with another credential is not held back: the breaker lets its calls through.
    let ask = Speech::Chat.says(false, "Hi").with("authorization", "Bearer of-another-client");
    assert_eq!(gate.ask(&ask.by("a", "other")).await.status, 503);
    until("the other session", async || {
        !items(&gate, "/api/sessions?agent=a&session=other").await.is_empty()
    })
    .await;
    let other = get(&gate, "/api/sessions/a/other").await;
    assert_eq!(
        (&other["provider"], &other["failing"]),
        (&json!("openai"), &Value::Null),
        "{other}"
    );
    let status = get(&gate, "/api/status?kind=session&agent=b").await;
    assert!(status["scopes"].as_array().unwrap().iter().all(|one| one["standing"] == "running"));

    // One alert about each agent, whatever number of calls was refused.
    until("two alerts", async || {
        let sent = items(&gate, "/api/alerts/deliveries?limit=100").await;
        sent.iter().map(|one| one["times"].as_u64().unwrap()).sum::<u64>() == 2
    })
    .await;
}
