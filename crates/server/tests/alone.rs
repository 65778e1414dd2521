//! Cases of one server alone: one that keeps nothing, and what one node remembers by itself.

use std::time::Duration;

use serde_json::json;

use crate::place::{TestDatabase, on_both};
use crate::support::{Ask, Gate, Reply, Said, Seen, Speech, Step};

#[tokio::test]
async fn a_server_that_keeps_nothing_says_so() {
    let answer = |_: &crate::support::Seen| Reply::json(200, &json!({}));
    let gate = Gate::with(json!({}), answer, |config| config.data = None).await;
    for path in ["/api/agents", "/api/incidents", "/api/policies/default", "/api/audit"] {
        let got = gate.ask(&Ask::get(path)).await;
        assert_eq!((got.status, &got.json()["code"]), (503, &json!("no_store")), "{path}");
    }
    assert_eq!(gate.ask(&Ask::get("/api/status")).await.status, 200);
    let unknown = gate.ask(&Ask::post("/api/kill", &json!({ "agent": "a" }))).await;
    assert_eq!((unknown.status, &unknown.json()["code"]), (404, &json!("no_agent")));
    let kill = Ask::post("/api/kill", &json!({ "agent": "a", "new": true }));
    assert_eq!(gate.ask(&kill).await.status, 200);
}

/// Found from outside: 1,000 calls of a loop, and the agent was "ok".
#[tokio::test]
async fn a_loop_that_only_warns_changes_the_agents_health() {
    let answer = |_: &crate::support::Seen| Reply::json(200, &json!({}));
    let policy = json!({ "loop": { "threshold": 3, "action": "warn" } });
    let gate = Gate::with(policy, answer, |_| {}).await;
    for n in 0..5 {
        let call = json!({ "id": format!("t{n}"), "tool": "get_build", "arguments": { "id": 7 } });
        let path = "/api/sessions/cleaner/s1/proposal";
        assert_eq!(gate.ask(&Ask::post(path, &json!({ "calls": [call] }))).await.status, 200);
        let receipt = json!({ "id": format!("t{n}"), "status": "ok", "text": "failed" });
        let path = "/api/sessions/cleaner/s1/receipt";
        assert_eq!(gate.ask(&Ask::post(path, &receipt)).await.status, 200);
    }
    let agent = gate.ask(&Ask::get("/api/agents/cleaner")).await.json();
    assert_eq!(agent["health"], "warning", "{agent}");
    // Another node, or the same one after a restart, knows it from the database.
    let gate = gate.restart(json!({})).await;
    let agent = gate.ask(&Ask::get("/api/agents/cleaner")).await.json();
    assert_eq!(agent["health"], "warning", "{agent}");
    let list = gate.ask(&Ask::get("/api/agents")).await.json();
    assert_eq!(list["items"][0]["health"], "warning", "{list}");
}

/// Seed A: evidence with the request body. What is new in a request says little by itself.
#[tokio::test]
async fn evidence_has_the_whole_request_of_the_call_that_tripped() {
    let answer = |_: &crate::support::Seen| {
        let text = "I have looked at the order once more, and there is nothing new to tell you.";
        Speech::Chat.reply(false, &Said::text(text))
    };
    let gate = Gate::start(json!({}), answer).await;
    let switch = json!({ "enabled": true, "window_size": 10, "threshold": 5.0 });
    let path = "/api/agents/looper/kill-switch";
    assert_eq!(gate.ask(&Ask::of("PUT", path, Some(&switch))).await.status, 200);
    let secret = format!("sk-proj-{}", "a1B2c3D4e5F6g7H8".repeat(3));
    let ask = |agent: &str, n: u32| {
        let system = format!("You are the order desk. The key is {secret}.");
        let body = json!({ "model": "gpt-4o", "messages": [
            { "role": "system", "content": system },
            { "role": "user", "content": format!("Is order {n} of the customer on its way to them?") },
        ] });
        Ask::post("/openai/v1/chat/completions", &body).by(agent, "s1")
    };
    let mut status = 200;
    for n in 0..20 {
        status = gate.ask(&ask("looper", n)).await.status;
        if status != 200 {
            break;
        }
    }
    assert_eq!(status, 403);
    let list = gate.ask(&Ask::get("/api/incidents")).await.json();
    let id = list["items"][0]["id"].as_str().unwrap().to_owned();
    let incident = gate.ask(&Ask::get(&format!("/api/incidents/{id}"))).await.json();
    let pieces = incident["evidence"].as_array().unwrap();
    let (last, before) = pieces.split_last().unwrap();
    let text = last["body"]["text"].as_str().unwrap();
    assert!(text.starts_with("{\"messages\":[{\"content\":\"You are the order desk."), "{text}");
    assert!(text.contains("Is order") && text.contains("[redacted"), "{text}");
    assert!(!incident.to_string().contains(&secret));
    assert_eq!(last["body"]["cut"], false);
    assert!(last["body"]["chars"].as_u64().unwrap() > 150);
    assert!(before.iter().all(|piece| piece["body"].is_null()), "its own requests repeat it");

    // What is not to be kept is not.
    let mut settings = gate.ask(&Ask::get("/api/settings")).await.json();
    settings["capture"] = json!("none");
    assert_eq!(gate.ask(&Ask::of("PUT", "/api/settings", Some(&settings))).await.status, 200);
    let path = "/api/agents/other/kill-switch";
    assert_eq!(gate.ask(&Ask::of("PUT", path, Some(&switch))).await.status, 200);
    for n in 0..20 {
        gate.ask(&ask("other", n)).await;
    }
    let list = gate.ask(&Ask::get("/api/incidents?agent=other")).await.json();
    let id = list["items"][0]["id"].as_str().unwrap().to_owned();
    let incident = gate.ask(&Ask::get(&format!("/api/incidents/{id}"))).await.json();
    assert_eq!(incident["evidence"], json!([]));
}

on_both!(a_change_of_the_table_prevention_configs_counts,);

/// Seed E: configs are stored in `prevention_configs`. Found from outside: an `UPDATE` had no effect.
async fn a_change_of_the_table_prevention_configs_counts(place: &TestDatabase) {
    let answer = |_: &crate::support::Seen| Speech::Chat.reply(false, &Said::text("fine"));
    let gate = Gate::on(place, json!({}), answer, |_| {}).await;
    let config = |cost: f64| {
        json!({
            "loop_detection": { "enabled": true, "threshold": 3, "action": "terminate", "max_steps": 50 },
            "budget": { "max_cost_usd": cost, "soft_alert_threshold_usd": null, "max_wall_time_seconds": 120 },
            "circuit_breaker": { "enabled": true, "open_after_failures": 5, "cooldown_seconds": 30, "half_open_max_calls": 3 },
        })
    };
    for path in ["/api/projects/prevention-config", "/api/agents/a/prevention-config"] {
        assert_eq!(gate.ask(&Ask::of("PUT", path, Some(&config(9.0)))).await.status, 200);
    }
    place
        .tamper(
            "UPDATE prevention_configs SET budget_max_cost_usd = 0.000001, loop_threshold = 7 \
             WHERE agent_name = 'a'",
        )
        .await;
    place
        .tamper(
            "INSERT INTO prevention_configs (project_id, agent_name, loop_max_steps) \
             VALUES ('default', 'b', 4)",
        )
        .await;
    place
        .tamper("UPDATE prevention_configs SET cb_cooldown_seconds = -1 WHERE agent_name IS NULL")
        .await;
    let gate = gate.restart_on(place).await;
    let get = async |agent: &str| {
        let path = format!("/api/agents/{agent}/prevention-config");
        gate.ask(&Ask::get(&path)).await.json()
    };
    let shown = get("a").await;
    assert_eq!(shown["budget"]["max_cost_usd"], 0.000001, "{shown}");
    assert_eq!(shown["loop_detection"]["threshold"], 7);
    assert_eq!(shown["loop_detection"]["max_steps"], 50);
    let call = |agent: &str| Speech::Chat.says(false, "Hello").by(agent, "s");
    assert_eq!(gate.ask(&call("a")).await.status, 402);
    assert_eq!(gate.ask(&call("c")).await.status, 200);
    // The columns' own defaults are those of the page.
    let shown = get("b").await;
    assert_eq!(shown["is_agent_override"], true);
    assert_eq!(shown["loop_detection"]["max_steps"], 4);
    assert_eq!(
        (&shown["loop_detection"]["threshold"], &shown["loop_detection"]["action"]),
        (&json!(5), &json!("warn"))
    );
    // An impossible value is not in force, and the server starts all the same.
    assert_eq!(get("c").await["circuit_breaker"]["cooldown_seconds"], 30);
    let versions = gate.ask(&Ask::get("/api/policies/agents/a/versions")).await.json();
    assert_eq!(
        (&versions["items"][0]["version"], &versions["items"][0]["who"]),
        (&json!(2), &json!("database")),
        "{versions}"
    );
    // A change of the API's is made on top of what the table says.
    place
        .tamper("UPDATE prevention_configs SET cb_cooldown_seconds = 45 WHERE agent_name IS NULL")
        .await;
    place.tamper("DELETE FROM prevention_configs WHERE agent_name = 'b'").await;
    let switch = json!({ "enabled": true, "window_size": 10, "threshold": 5.0 });
    let path = "/api/agents/c/kill-switch";
    assert_eq!(gate.ask(&Ask::of("PUT", path, Some(&switch))).await.status, 200);
    assert_eq!(get("c").await["circuit_breaker"]["cooldown_seconds"], 45);
    assert_eq!(get("b").await["is_agent_override"], false);
    gate.stop().await;
}

/// Two servers on one folder: a kill at one used to be ignored by the other.
#[tokio::test]
async fn a_second_server_on_the_same_folder_does_not_start() {
    let gate = Gate::start(json!({}), |_: &Seen| Reply::json(200, &json!({}))).await;
    let mut config = crate::support::both::config(gate.upstream.address, json!({}));
    config.data = Some(gate.folder.path().to_owned());
    let second = Box::pin(deadstop_server::Server::start(config.clone())).await;
    let why = second.err().expect("it started").to_string();
    assert!(why.starts_with("another Deadstop server uses the folder"), "{why}");
    let (_upstream, _folder) = gate.stop().await;
    assert!(Box::pin(deadstop_server::Server::start(config)).await.is_ok(), "the folder is free");
}

/// When the grace of a shutdown is over, a stream ends with the provider's own error event.
#[tokio::test]
async fn a_shutdown_ends_streams_with_an_error() {
    let gate = Gate::with(
        json!({}),
        |_: &Seen| {
            let once = crate::support::dialect::chat_chunk(&json!({ "content": "Once" }), None);
            Reply::stream().then(Step::Chunk(once)).then(Step::Hang)
        },
        |config| config.shutdown_grace = Duration::from_millis(200),
    )
    .await;
    let mut stream = Speech::Chat.says(true, "Tell me").open(gate.address).await.unwrap();
    stream.until("Once").await;
    let stopping = tokio::spawn(gate.stop());
    let got = stream.rest().await;
    assert!(got.complete && got.text().contains("\"error\""), "{}", got.text());
    assert!(got.text().contains("shutting down"), "{}", got.text());
    stopping.await.unwrap();
}
