//! Guards by the seed pages' routes and by whole policies: versions, ETags, and at once in force.

use serde_json::{Value, json};

use crate::support::{Ask, Gate, Said, Speech};

async fn gate(policy: Value) -> Gate {
    Gate::start(policy, |_| Speech::Chat.reply(false, &Said::text("Done"))).await
}

fn prevention(max_cost_usd: f64) -> Value {
    json!({
        "loop_detection": { "enabled": true, "threshold": 3, "action": "terminate", "max_steps": 50 },
        "budget": {
            "max_cost_usd": max_cost_usd, "soft_alert_threshold_usd": null,
            "max_wall_time_seconds": 120
        },
        "circuit_breaker": {
            "enabled": true, "open_after_failures": 5, "cooldown_seconds": 30,
            "half_open_max_calls": 3
        }
    })
}

async fn put(gate: &Gate, path: &str, body: &Value) -> Value {
    let got = gate.ask(&Ask::of("PUT", path, Some(body))).await;
    assert_eq!(got.status, 200, "{path}: {}", got.text());
    got.json()
}

async fn get(gate: &Gate, path: &str) -> Value {
    let got = gate.ask(&Ask::get(path)).await;
    assert_eq!(got.status, 200, "{path}: {}", got.text());
    got.json()
}

#[tokio::test]
async fn an_agents_guards_replace_the_projects_and_go_again() {
    let gate = gate(json!({})).await;
    let call = |agent: &str| Speech::Chat.says(false, "Hello").by(agent, "s");
    let own = "/api/agents/research-agent/prevention-config";
    assert_eq!(get(&gate, own).await["is_agent_override"], false, "it has not called yet");
    assert_eq!(gate.ask(&call("research-agent")).await.status, 200);

    let shown = get(&gate, own).await;
    assert_eq!(shown["agent_name"], "research-agent");
    assert_eq!(shown["is_agent_override"], false);
    assert_eq!(shown["loop_detection"]["threshold"], 5);

    // A limit that nothing fits under holds from the next call on, for that agent only.
    let shown = put(&gate, own, &prevention(0.000001)).await;
    assert_eq!(shown["is_agent_override"], true);
    assert_eq!(shown["budget"]["max_cost_usd"], 0.000001);
    assert_eq!(gate.ask(&call("research-agent")).await.status, 402);
    assert_eq!(gate.ask(&call("other-agent")).await.status, 200);

    // The project's default does not touch it: there is no partial merge.
    let project = put(&gate, "/api/projects/prevention-config", &prevention(7.5)).await;
    assert_eq!(
        (&project["agent_name"], &project["budget"]["max_cost_usd"]),
        (&json!(null), &json!(7.5))
    );
    assert_eq!(get(&gate, own).await["budget"]["max_cost_usd"], 0.000001);
    let other = get(&gate, "/api/agents/other-agent/prevention-config").await;
    assert_eq!(other["budget"]["max_cost_usd"], 7.5);

    // Reset: back to the default, and its history stays.
    let reset = gate.ask(&Ask::of("DELETE", own, None)).await;
    assert_eq!((reset.status, &reset.json()["is_agent_override"]), (200, &json!(false)));
    assert_eq!(get(&gate, own).await["budget"]["max_cost_usd"], 7.5);
    let fresh = Speech::Chat.says(false, "Hello").by("research-agent", "another");
    assert_eq!(gate.ask(&fresh).await.status, 200);
    let versions = get(&gate, "/api/policies/agents/research-agent/versions").await;
    let versions = versions["items"].as_array().unwrap().clone();
    assert_eq!(versions.len(), 2);
    assert_eq!((&versions[0]["version"], &versions[0]["is_default"]), (&json!(2), &json!(true)));
}

#[tokio::test]
async fn an_agent_that_has_not_called_yet_has_the_defaults_and_they_can_be_put_back() {
    let gate = gate(json!({})).await;
    let switch = get(&gate, "/api/agents/new/kill-switch").await;
    assert_eq!(switch, json!({ "enabled": false, "window_size": 20, "threshold": 10.0 }));
    assert_eq!(put(&gate, "/api/agents/new/kill-switch", &switch).await, switch);

    let path = "/api/agents/newer/prevention-config";
    let mut shown = get(&gate, path).await;
    assert_eq!(
        (&shown["agent_name"], &shown["is_agent_override"]),
        (&json!("newer"), &json!(false))
    );
    assert_eq!(shown["loop_detection"]["threshold"], 5);
    let own = put(&gate, path, &shown).await;
    shown["is_agent_override"] = json!(true);
    assert_eq!(own, shown);
    assert_eq!(put(&gate, path, &own).await, own, "and again, unchanged");
    let project = "/api/projects/prevention-config";
    let shown = get(&gate, project).await;
    assert_eq!(put(&gate, project, &shown).await, shown);

    let mut wrong = own.clone();
    wrong["agent_name"] = json!(7);
    let got = gate.ask(&Ask::of("PUT", path, Some(&wrong))).await;
    assert_eq!((got.status, &got.json()["errors"][0]["field"]), (422, &json!("agent_name")));
}

#[tokio::test]
async fn faults_of_the_pages_bodies_are_named() {
    let gate = gate(json!({})).await;
    let mut body = prevention(0.5);
    body["budget"].as_object_mut().unwrap().remove("max_wall_time_seconds");
    body["budget"]["soft_alert_threshold_usd"] = json!(0.6);
    body["loop_detection"]["tresh"] = json!(1);
    for path in ["/api/agents/a/prevention-config", "/api/projects/prevention-config"] {
        let got = gate.ask(&Ask::of("PUT", path, Some(&body))).await;
        assert_eq!(got.status, 422);
        let fields: Vec<_> =
            got.json()["errors"].as_array().unwrap().iter().map(|e| e["field"].clone()).collect();
        assert_eq!(
            fields,
            [
                "loop_detection.tresh",
                "budget.max_wall_time_seconds",
                "budget.soft_alert_threshold_usd"
            ]
        );
    }
    let switch = json!({ "enabled": true, "window_size": 0 });
    let got = gate.ask(&Ask::of("PUT", "/api/agents/a/kill-switch", Some(&switch))).await;
    assert_eq!((got.status, got.json()["errors"].as_array().unwrap().len()), (422, 2));
}

#[tokio::test]
async fn a_change_says_what_it_replaces() {
    let gate = gate(json!({ "preset": "strict" })).await;
    let path = "/api/policies/default";
    let first = gate.ask(&Ask::get(path)).await;
    assert_eq!(first.header("etag"), Some("\"0\""));
    let mut policy = first.json()["document"].clone();
    assert_eq!(policy["loop"]["action"], "terminate");
    policy["budget"]["max_cost_usd"] = json!(3.25);
    let put = |tag: Option<&str>, body: &Value| {
        let ask = Ask::of("PUT", path, Some(body));
        tag.into_iter().fold(ask, |ask, tag| ask.with("if-match", tag))
    };
    for (tag, status, code) in [
        (None, 428, "if_match_required"),
        (Some("\"1\""), 412, "version_mismatch"),
        (Some("\"abc\""), 412, "version_mismatch"),
    ] {
        let got = gate.ask(&put(tag, &policy)).await;
        assert_eq!((got.status, &got.json()["code"]), (status, &json!(code)), "{tag:?}");
    }
    let done = gate.ask(&put(Some("\"0\""), &policy)).await;
    assert_eq!((done.status, done.header("etag")), (200, Some("\"1\"")), "{}", done.text());
    assert_eq!(gate.ask(&put(Some("\"0\""), &policy)).await.status, 412);

    // All of it or nothing.
    policy.as_object_mut().unwrap().remove("steps");
    policy["agent"]["loop"]["hold"] = json!(1);
    let got = gate.ask(&put(Some("\"1\""), &policy)).await;
    let fields: Vec<_> =
        got.json()["errors"].as_array().unwrap().iter().map(|e| e["field"].clone()).collect();
    assert_eq!((got.status, fields), (422, vec![json!("agent.loop.hold"), json!("steps")]));
    assert_eq!(get(&gate, path).await["version"], 1);
}

#[tokio::test]
async fn versions_can_be_shown_compared_and_restored() {
    let gate = gate(json!({})).await;
    let agent = "/api/policies/agents/a";
    let switch = |on: bool| json!({ "enabled": on, "window_size": 10, "threshold": 5.0 });
    put(&gate, "/api/agents/a/kill-switch", &switch(true)).await;
    put(&gate, "/api/agents/a/prevention-config", &prevention(1.5)).await;
    put(&gate, "/api/agents/a/kill-switch", &switch(false)).await;

    let shown = get(&gate, agent).await;
    assert_eq!((&shown["version"], &shown["document"]["kill_switch"]), (&json!(3), &switch(false)));
    assert_eq!(shown["effective"]["budget"]["max_cost_usd"], 1.5);
    assert_eq!(shown["effective"]["agent"]["similarity"]["window_size"], 10);
    let first = get(&gate, &format!("{agent}/versions/1")).await;
    assert_eq!(first["document"], json!({ "policy": null, "kill_switch": switch(true) }));
    assert_eq!(gate.ask(&Ask::get(&format!("{agent}/versions/9"))).await.status, 404);

    let change = get(&gate, &format!("{agent}/diff")).await;
    let one = json!({ "path": "kill_switch.enabled", "before": true, "after": false });
    assert_eq!(change, json!({ "from": 2, "to": 3, "changes": [one] }));
    let change = get(&gate, &format!("{agent}/diff?from=0&to=1")).await;
    assert_eq!(change["changes"].as_array().unwrap().len(), 3);
    // Against no policy of its own: only what differs from the project's default.
    let change = get(&gate, &format!("{agent}/diff?from=1&to=2")).await;
    let changed = change["changes"].as_array().unwrap();
    let cost = changed.iter().find(|one| one["path"] == "policy.budget.max_cost_usd").unwrap();
    assert_eq!((&cost["before"], &cost["after"]), (&json!(null), &json!(1.5)));
    assert!(changed.len() < 14, "{change}");

    let restore = Ask::post(&format!("{agent}/versions/1/restore"), &json!({ "reason": "calm" }));
    let stale = gate.ask(&restore.clone().with("if-match", "\"2\"")).await;
    assert_eq!(stale.status, 412);
    let got = gate.ask(&restore.with("if-match", "\"3\"")).await;
    assert_eq!((got.status, got.header("etag")), (200, Some("\"4\"")), "{}", got.text());
    let shown = get(&gate, agent).await;
    assert_eq!(shown["document"], first["document"]);
    assert_eq!(shown["note"], "version 1 restored: calm");
    let list = get(&gate, "/api/policies").await;
    assert_eq!(list["items"][0]["agent"], "a");

    // Pages go on where the last one ended.
    let page = get(&gate, &format!("{agent}/versions?limit=3")).await;
    assert_eq!(page["items"].as_array().unwrap().len(), 3);
    let rest = format!("{agent}/versions?limit=3&cursor={}", page["next"].as_str().unwrap());
    let rest = get(&gate, &rest).await;
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["next"]), (1, &json!(null)));
    let bad = gate.ask(&Ask::get(&format!("{agent}/versions?cursor=x"))).await;
    assert_eq!((bad.status, &bad.json()["code"]), (422, &json!("invalid_query")));
}

#[tokio::test]
async fn policies_outlive_the_server_and_stand_in_the_seed_pages_table() {
    let gate = gate(json!({})).await;
    put(&gate, "/api/agents/a/prevention-config", &prevention(0.000001)).await;
    put(&gate, "/api/projects/prevention-config", &prevention(9.0)).await;
    let gate = gate.restart(json!({})).await;
    let call = |agent: &str| Speech::Chat.says(false, "Hello").by(agent, "s");
    assert_eq!(gate.ask(&call("a")).await.status, 402);
    assert_eq!(gate.ask(&call("b")).await.status, 200);
    assert_eq!(get(&gate, "/api/projects/prevention-config").await["budget"]["max_cost_usd"], 9.0);

    let store = gate.store().await;
    let rows = store.prevention_configs("default").await.unwrap();
    let rows: Vec<_> = rows
        .into_iter()
        .map(|(agent, row)| (agent, row.loop_action, row.budget_max_cost.map(|cost| cost.0)))
        .collect();
    assert_eq!(
        rows,
        [
            (None, "terminate".to_owned(), Some(9_000_000_000)),
            (Some("a".to_owned()), "terminate".to_owned(), Some(1000)),
        ]
    );
    store.close().await;
}

#[tokio::test]
async fn every_change_is_in_the_audit() {
    let gate = gate(json!({})).await;
    put(
        &gate,
        "/api/agents/a/kill-switch",
        &json!({ "enabled": true, "window_size": 10, "threshold": 5 }),
    )
    .await;
    gate.order("kill", json!({ "agent": "a", "reason": "it spams", "by": "ada" })).await;
    gate.order("clear", json!({ "agent": "a", "reason": "it is fine", "by": "ada" })).await;
    let settings = get(&gate, "/api/settings").await;
    put(&gate, "/api/settings", &settings).await;
    let target = json!({
        "name": "hook", "agent": null, "events": ["kill"], "active": true,
        "target": { "type": "slack", "url": "https://hooks.example.org/services/very-secret" },
    });
    let made = gate.ask(&Ask::post("/api/alerts/targets", &target)).await;
    assert_eq!(made.status, 201);
    assert_eq!(made.json()["summary"], "slack: https://hooks.example.org/…");
    let key = gate.ask(&Ask::post("/api/keys", &json!({ "name": "boss", "role": "admin" }))).await;
    let key = key.json()["key"].as_str().unwrap().to_owned();
    gate.ask(&Ask::post("/api/login", &json!({ "key": key }))).await;

    let audit = gate.ask(&Ask::get("/api/audit").key(&key)).await;
    let secrets = ["very-secret", key.rsplit('_').next().unwrap()];
    assert!(secrets.iter().all(|secret| !audit.text().contains(secret)));
    let told: Vec<_> = audit.json()["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| [&e["who"], &e["action"], &e["reason"]].map(|v| v.as_str().unwrap().to_owned()))
        .collect();
    let told: Vec<_> = told.iter().map(|entry| entry.join("|")).collect();
    assert_eq!(
        told,
        [
            "boss|login|",
            "local user|key.create|",
            "local user|alert.create|",
            "local user|settings.set|",
            "ada|agent.clear|it is fine",
            "ada|agent.kill|it spams",
            "local user|policy.set|kill-switch",
        ]
    );
    let filtered = gate.ask(&Ask::get("/api/audit?who=ada&action=agent.kill").key(&key)).await;
    assert_eq!(filtered.json()["items"].as_array().unwrap().len(), 1);
    let verified = gate.ask(&Ask::get("/api/audit/verify").key(&key)).await.json();
    assert_eq!((&verified["whole"], &verified["entries"]), (&json!(true), &json!(7)));
    let export = gate.ask(&Ask::get("/api/audit/export").key(&key)).await;
    assert_eq!(export.header("content-type"), Some("application/x-ndjson"));
    let lines: Vec<Value> =
        export.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 7);
    assert!(lines.windows(2).all(|pair| pair[1]["prev"] == pair[0]["hash"]));
}

#[tokio::test]
async fn own_patterns_of_secrets_must_be_usable() {
    let gate = gate(json!({})).await;
    let mut settings = get(&gate, "/api/settings").await;
    assert_eq!(settings["capture"], "incidents");
    settings["redaction"] = json!([
        { "name": "ticket", "regex": "TICKET-[0-9]{6}" },
        { "name": "broken", "regex": "([" },
        { "name": "No", "regex": "x" },
    ]);
    let got = gate.ask(&Ask::of("PUT", "/api/settings", Some(&settings))).await;
    let fields: Vec<_> =
        got.json()["errors"].as_array().unwrap().iter().map(|e| e["field"].clone()).collect();
    assert_eq!((got.status, fields), (422, vec![json!("redaction[1]"), json!("redaction[2]")]));
    settings["redaction"] = json!([{ "name": "ticket", "regex": "TICKET-[0-9]{6}" }]);
    settings["retention"]["calls_days"] = json!(0);
    let got = gate.ask(&Ask::of("PUT", "/api/settings", Some(&settings))).await;
    assert_eq!(got.json()["errors"][0]["field"], "retention.calls_days");
    settings["retention"]["calls_days"] = json!(7);
    put(&gate, "/api/settings", &settings).await;
    assert_eq!(get(&gate, "/api/settings").await, settings);
}
