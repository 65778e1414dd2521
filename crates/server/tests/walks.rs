//! The walk-throughs of the seed pages, from the first call to the last look at it, on SQLite and on
//! PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use crate::place::{TestDatabase, on_both};
use crate::support::{Ask, Gate, Got, Reply, Said, Speech, Upstream};

async fn gate(place: &TestDatabase, policy: Value, answer: &'static str) -> Gate {
    let reply = move |_: &crate::support::Seen| Speech::Chat.reply(false, &Said::text(answer));
    Gate::on(place, policy, reply, |config| config.private_alerts = true).await
}

async fn ask(gate: &Gate, method: &str, path: &str, body: Value) -> Got {
    let ask = match body {
        Value::Null => Ask::get(path),
        body => Ask::post(path, &body),
    };
    gate.ask(&Ask { method: method.to_owned(), ..ask }).await
}

async fn get(gate: &Gate, path: &str) -> Value {
    let got = ask(gate, "GET", path, Value::Null).await;
    assert_eq!(got.status, 200, "{path}: {}", got.text());
    got.json()
}

/// Asks until the answer is as it should be: what is written in the background takes a moment.
async fn until(gate: &Gate, path: &str, fine: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..200 {
        let got = get(gate, path).await;
        if fine(&got) {
            return got;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{path} is not as it should be: {}", get(gate, path).await);
}

/// A mail server that takes everything.
async fn mailbox() -> (u16, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mail = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&mail);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = BufReader::new(stream);
            stream.write_all(b"220 ready\r\n").await.unwrap();
            let (mut line, mut data) = (String::new(), false);
            while stream.read_line(&mut line).await.unwrap_or(0) > 0 {
                let said = line.trim_end().to_owned();
                seen.lock().push_str(&line);
                line.clear();
                let answer = match said.as_str() {
                    "." if data => {
                        data = false;
                        "250 taken"
                    }
                    _ if data => continue,
                    "DATA" => {
                        data = true;
                        "354 go on"
                    }
                    "QUIT" => "221 bye",
                    _ => "250 fine",
                };
                stream.write_all(format!("{answer}\r\n").as_bytes()).await.unwrap();
            }
        }
    });
    (port, mail)
}

const WORDS: &str = "I will look at the orders of the customer again and tell you what I find, \
                     since the last attempt did not bring anything that we could work with today";

on_both!(
    similarity_switches_the_agent_off_and_a_person_switches_it_on,
    a_delete_loop_ends_the_session_and_an_operator_resets_it,
    an_agents_own_guards_and_back_to_the_default,
    projects_are_walls,
    a_policy_is_tried_on_what_was,
    own_prices_are_charged_from_the_next_call_on,
);

/// Seed A: trip, agent inactive, incident with its breakdown, webhook and mail, switched on again.
async fn similarity_switches_the_agent_off_and_a_person_switches_it_on(place: &TestDatabase) {
    let gate = gate(place, json!({ "preset": "balanced" }), WORDS).await;
    let hook = Upstream::start(|_| Reply::json(200, &json!({}))).await;
    let (port, mail) = mailbox().await;
    let address = json!({ "type": "webhook", "url": format!("http://{}/hook", hook.address), "secret": "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0" });
    let mailed = json!({ "type": "email", "smtp": format!("smtp://127.0.0.1:{port}"), "from": "deadstop@example.org", "to": "ops@example.org" });
    for (name, target) in [("hook", address), ("mail", mailed)] {
        let body = json!({ "name": name, "agent": null, "events": ["kill"], "active": true, "target": target });
        let got = ask(&gate, "POST", "/api/alerts/targets", body).await;
        assert_eq!(got.status, 201, "{}", got.text());
        assert!(!got.text().contains("whsec_"));
    }
    let switch = json!({ "enabled": true, "window_size": 10, "threshold": 5.0 });
    let got = ask(&gate, "PUT", "/api/agents/looper/kill-switch", switch.clone()).await;
    assert_eq!((got.status, got.json()), (200, switch.clone()));

    let says = |n: u32| {
        let text = format!(
            "Look at order {n} of the customer again and tell me what you find there, please, as soon as you can"
        );
        Speech::Chat.says(false, &text).by("looper", &format!("s{n}"))
    };
    let one = |n: u32| {
        Speech::Chat.says(false, &format!("Look at order {n} of the customer again and tell me what you find there, please, as soon as you can")).by("looper", "s1")
    };
    let mut refused = None;
    for n in 0..20 {
        let got = gate.ask(&one(n)).await;
        if got.status != 200 {
            refused = Some((n, got));
            break;
        }
    }
    let (n, got) = refused.expect("the switch trips");
    assert_eq!(got.status, 403, "{}", got.text());
    assert!((2..8).contains(&n), "{n}");

    let agent = get(&gate, "/api/agents/looper").await;
    assert_eq!(
        (&agent["active"], &agent["deactivated_by"]),
        (&json!(false), &json!("kill_switch"))
    );
    let session = get(&gate, "/api/sessions/looper/s1").await;
    assert_eq!(session["stopped_with"], "agent", "{session}");
    assert_eq!(gate.ask(&says(99)).await.status, 403, "other sessions of the agent are dead, too");

    let list = get(&gate, "/api/incidents?agent=looper").await;
    let incident = &list["items"][0];
    assert_eq!(
        (&incident["guard"], &incident["provider"]),
        (&json!("similarity"), &json!("openai"))
    );
    assert_eq!((&incident["threshold"], &incident["window"]), (&json!(5.0), &json!(10)));
    assert!(incident["score"].as_f64().unwrap() > 5.0);
    let id = incident["id"].as_str().unwrap().to_owned();
    let detail = get(&gate, &format!("/api/incidents/{id}")).await;
    let text = detail.to_string();
    let signals =
        detail["incident"]["signals"].as_array().or(detail["signals"].as_array()).unwrap();
    let total: f64 = signals.iter().map(|line| line["score"].as_f64().unwrap()).sum();
    assert!((total - incident["score"].as_f64().unwrap()).abs() < 1e-6, "{text}");
    let evidence = detail["evidence"].as_array().unwrap();
    // On a fleet it is what the node has seen that found out.
    let alone = gate.addresses().len() == 1;
    assert!(evidence.len() >= if alone { 2 } else { 1 }, "{text}");
    assert!(text.contains("Look at order"), "{text}");
    assert!(!alone || text.contains("I will look at the orders"), "{text}");

    for _ in 0..200 {
        if hook.requests() > 0 && mail.lock().contains("\r\n.\r\n") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let told = hook.last();
    assert_eq!(hook.requests(), 1, "a storm is one message");
    let body = told.json()["data"].clone();
    assert_eq!((&body["agent"], &body["kind"]), (&json!("looper"), &json!("kill")), "{body}");
    assert!(body["score"].as_f64().unwrap() > 5.0 && body["at"].as_str().is_some());
    assert!(told.header("webhook-signature").unwrap().starts_with("v1,"));
    let mail = mail.lock().clone();
    assert!(mail.contains("ops@example.org") && mail.contains("looper"), "{mail}");
    let log = until(&gate, "/api/alerts/deliveries", |log| {
        log["items"].as_array().unwrap().iter().all(|item| item["state"] == "delivered")
    })
    .await;
    assert_eq!(log["items"].as_array().unwrap().len(), 2);

    let on = json!({ "active": true, "reason": "it was the test data" });
    let got = ask(&gate, "PATCH", "/api/agents/looper", on).await;
    assert_eq!((got.status, &got.json()["active"]), (200, &json!(true)), "{}", got.text());
    for n in 0..2 {
        assert_eq!(gate.ask(&one(n)).await.status, 200, "the window is empty");
    }
    // The settings are still there, and so is what happened.
    assert_eq!(get(&gate, "/api/agents/looper/kill-switch").await, switch);
    assert_eq!(get(&gate, "/api/incidents?agent=looper").await["items"][0]["id"], id.as_str());
    let audit = get(&gate, "/api/audit").await.to_string();
    for part in ["agent.kill", "agent.clear", "it was the test data"] {
        assert!(audit.contains(part), "{part}: {audit}");
    }
    assert_eq!(get(&gate, "/api/audit/verify").await["whole"], true);
    gate.stop().await;
}

/// Seed D: the loop is found in the model's own tool calls, and the audit has the sentence.
async fn a_delete_loop_ends_the_session_and_an_operator_resets_it(place: &TestDatabase) {
    let delete = |_: &crate::support::Seen| {
        let call = Said::call("c1", "delete_asset", json!({ "asset_id": "fact_sales" }));
        Speech::Chat.reply(false, &call)
    };
    let gate = Gate::on(place, json!({}), delete, |_| {}).await;
    let step = |text: &str| Speech::Chat.says(false, text).by("cleaner", "s1");
    for text in ["clean up the catalogue", "asset still exists"] {
        assert_eq!(gate.ask(&step(text)).await.status, 200);
    }
    let third = gate.ask(&step("asset still exists, really")).await;
    assert_eq!(third.status, 403, "{}", third.text());
    let next = gate.ask(&step("and now?")).await;
    assert_eq!(next.status, 403);
    assert!(next.text().contains("session_killed_loop_guard"), "{}", next.text());

    let audit = get(&gate, "/api/audit").await;
    let entry = audit["items"].as_array().unwrap().iter();
    let entry = entry.into_iter().find(|entry| entry["action"] == "session.kill").unwrap();
    let reason = entry["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("loop_detected: delete_asset on asset_id=fact_sales 3 times"),
        "{reason}"
    );
    let session = get(&gate, "/api/sessions/cleaner/s1").await;
    assert_eq!(session["state"], "killed");
    assert!(session["tags"].to_string().contains("loop_detected"), "{session}");
    let calls = until(&gate, "/api/sessions/cleaner/s1/calls", |calls| {
        calls["items"].as_array().unwrap().len() >= 5
    })
    .await;
    assert!(calls.to_string().contains("delete_asset"));

    let reset = json!({ "reason": "the mock is repaired" });
    let got = ask(&gate, "POST", "/api/sessions/cleaner/s1/reset", reset).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(gate.ask(&step("start afresh")).await.status, 200);
    // History is kept: the incident is still there, and so is the session that died.
    assert_eq!(
        get(&gate, "/api/incidents?agent=cleaner").await["items"].as_array().unwrap().len(),
        1
    );
    until(&gate, "/api/sessions?agent=cleaner", |list| {
        let states: Vec<_> =
            list["items"].as_array().unwrap().iter().map(|item| item["state"].clone()).collect();
        states.contains(&json!("killed")) && states.contains(&json!("running"))
    })
    .await;
    the_session_that_died_stays_reachable(&gate).await;
    the_request_log_finds_calls(&gate).await;
    gate.stop().await;
}

/// After a reset its name is another session's, its number is still its own.
async fn the_session_that_died_stays_reachable(gate: &Gate) {
    let base = "/api/sessions/cleaner/s1";
    let list = get(gate, "/api/sessions?agent=cleaner").await;
    let of = |state: &str| {
        let mut rows = list["items"].as_array().unwrap().iter();
        rows.find(|row| row["state"] == state).unwrap()["number"].as_str().unwrap().to_owned()
    };
    let (old, new) = (of("killed"), of("running"));
    let session = get(gate, &format!("{base}?number={old}")).await;
    assert_eq!((&session["state"], &session["superseded"]), (&json!("killed"), &json!(true)));
    assert_eq!(session["live"], Value::Null, "{session}");
    for path in [base.to_owned(), format!("{base}?number={new}")] {
        let session = get(gate, &path).await;
        assert_eq!((&session["number"], &session["superseded"]), (&json!(new), &json!(false)));
        assert_eq!(session["state"], "running");
    }
    // The incident names the session that it happened in, and its replay is that session's.
    let incidents = get(gate, &format!("/api/incidents?number={old}")).await;
    assert_eq!(incidents["items"][0]["session_number"], json!(old), "{incidents}");
    let none = get(gate, &format!("/api/incidents?number={new}")).await;
    assert_eq!(none["items"], json!([]));
    let calls = get(gate, &format!("{base}/calls?number={old}")).await;
    let calls = calls["items"].as_array().unwrap();
    assert!(calls.len() >= 5 && calls.iter().all(|call| call["session_number"] == json!(old)));
    let killed = calls.iter().find(|call| call["verdict"] == "kill").unwrap();
    let state = get(gate, &format!("{base}/calls/{}/state", killed["id"].as_str().unwrap())).await;
    assert_eq!(state["scopes"][0]["kind"], "session", "{state}");
    until(gate, &format!("{base}/calls"), |calls| {
        let calls = calls["items"].as_array().unwrap();
        !calls.is_empty() && calls.iter().all(|call| call["session_number"] == json!(new))
    })
    .await;
    // A number of another session, and what is no number.
    for (path, status) in [
        (format!("/api/sessions/cleaner/s2?number={old}"), 404),
        (format!("{base}/calls?number=1"), 404),
        (format!("{base}?number=x"), 422),
    ] {
        assert_eq!(ask(gate, "GET", &path, Value::Null).await.status, status, "{path}");
    }
}

/// Page A's "check the Request Log": every call, the newest first, by whatever is known of it.
async fn the_request_log_finds_calls(gate: &Gate) {
    let all = get(gate, "/api/calls?limit=1000").await;
    let all = all["items"].as_array().unwrap().clone();
    assert!(all.windows(2).all(|two| two[0]["at_ms"].as_u64() >= two[1]["at_ms"].as_u64()));
    // In the longest pause: a call's number is made a moment before or after its time, and it is the
    // number that is looked for.
    let at = |call: &Value| call["at_ms"].as_u64().unwrap();
    let pause = all.windows(2).max_by_key(|two| at(&two[0]) - at(&two[1])).unwrap();
    let middle = at(&pause[0]).midpoint(at(&pause[1])) + 1;
    let number = all[0]["session_number"].as_str().unwrap();
    type Fits = Box<dyn Fn(&Value) -> bool>;
    let is = |name: &'static str, value: &str| -> Fits {
        let value = json!(value);
        Box::new(move |call| call[name] == value)
    };
    let cases: Vec<(String, Fits)> = vec![
        ("agent=cleaner".into(), is("agent", "cleaner")),
        (format!("number={number}"), is("session_number", number)),
        ("tool=delete_asset".into(), is("name", "delete_asset")),
        ("model=gpt-4o".into(), is("kind", "model")),
        ("verdict=kill".into(), is("verdict", "kill")),
        (
            "agent=cleaner&tool=delete_asset&verdict=kill".into(),
            Box::new(|call| call["name"] == "delete_asset" && call["verdict"] == "kill"),
        ),
        (format!("from={middle}"), Box::new(move |call| call["at_ms"].as_u64() >= Some(middle))),
        (format!("to={middle}"), Box::new(move |call| call["at_ms"].as_u64() < Some(middle))),
    ];
    for (query, fits) in cases {
        let expected: Vec<_> = all.iter().filter(|call| fits(call)).map(|c| &c["id"]).collect();
        assert!(!expected.is_empty() && expected.len() < all.len() || query.contains("agent="));
        // Page by page.
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = get(gate, &format!("/api/calls?limit=2&{query}{cursor}")).await;
            found.extend(page["items"].as_array().unwrap().iter().map(|c| c["id"].clone()));
            let Some(next) = page["next"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{query}");
    }
    for query in ["tool=a&model=b", "verdict=shout", "number=x"] {
        let got = ask(gate, "GET", &format!("/api/calls?{query}"), Value::Null).await;
        assert_eq!((got.status, &got.json()["code"]), (422, &json!("invalid_query")), "{query}");
    }
}

/// Seed E: an override, in force on the next call; back to the default; history kept.
async fn an_agents_own_guards_and_back_to_the_default(place: &TestDatabase) {
    let gate = gate(place, json!({}), "fine").await;
    let path = "/api/agents/research-agent/prevention-config";
    let says = |n: u32| Speech::Chat.says(false, &format!("step {n}")).by("research-agent", "s1");
    assert_eq!(gate.ask(&says(0)).await.status, 200);
    let before = get(&gate, path).await;
    assert_eq!(before["is_agent_override"], false);
    assert_eq!(before["loop_detection"]["threshold"], 5);
    let config = json!({
        "loop_detection": { "enabled": true, "threshold": 3, "action": "terminate", "max_steps": 2 },
        "budget": { "max_cost_usd": 0.50, "soft_alert_threshold_usd": 0.40, "max_wall_time_seconds": 120 },
        "circuit_breaker": { "enabled": true, "open_after_failures": 5, "cooldown_seconds": 30, "half_open_max_calls": 3 },
    });
    let got = ask(&gate, "PUT", path, config.clone()).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let mut after = get(&gate, path).await;
    assert_eq!(
        (&after["agent_name"], &after["is_agent_override"]),
        (&json!("research-agent"), &json!(true))
    );
    let shown = after.as_object_mut().unwrap();
    shown.remove("agent_name");
    shown.remove("is_agent_override");
    assert_eq!(after, config);
    for (missing, broken) in [(
        "budget",
        json!({ "loop_detection": config["loop_detection"], "circuit_breaker": config["circuit_breaker"] }),
    )] {
        let got = ask(&gate, "PUT", path, broken).await;
        assert_eq!(got.status, 422);
        assert!(got.text().contains(missing), "{}", got.text());
    }
    let versions = get(&gate, "/api/policies/agents/research-agent/versions").await;
    assert_eq!(versions["items"].as_array().unwrap().len(), 1);

    let default = json!({
        "loop_detection": { "enabled": true, "threshold": 7, "action": "warn", "max_steps": null },
        "budget": { "max_cost_usd": null, "soft_alert_threshold_usd": null, "max_wall_time_seconds": null },
        "circuit_breaker": { "enabled": true, "open_after_failures": 5, "cooldown_seconds": 30, "half_open_max_calls": 3 },
    });
    let got = ask(&gate, "PUT", "/api/projects/prevention-config", default).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(get(&gate, path).await["loop_detection"]["threshold"], 3, "no partial merge");
    let got = ask(&gate, "DELETE", path, Value::Null).await;
    assert!(got.status == 200 || got.status == 204, "{}", got.text());
    let back = get(&gate, path).await;
    assert_eq!(
        (&back["is_agent_override"], &back["loop_detection"]["threshold"]),
        (&json!(false), &json!(7))
    );
    let versions = get(&gate, "/api/policies/agents/research-agent/versions").await;
    assert_eq!(versions["items"].as_array().unwrap().len(), 2, "history is kept");
    // And it all lasts.
    let gate = gate.restart_on(place).await;
    assert_eq!(get(&gate, path).await["loop_detection"]["threshold"], 7);
    gate.stop().await;
}

/// An id of another project is not found, and its calls do not count here.
async fn projects_are_walls(place: &TestDatabase) {
    let gate = gate(place, json!({}), "fine").await;
    let own = Speech::Chat.says(false, "hello").by("ours", "s1");
    let theirs =
        Speech::Chat.says(false, "hello").by("theirs", "s1").with("x-deadstop-project", "other");
    assert_eq!(gate.ask(&own).await.status, 200);
    assert_eq!(gate.ask(&theirs).await.status, 200);
    until(&gate, "/api/agents", |list| list["items"].as_array().unwrap().len() == 1).await;
    for path in ["/api/agents/theirs", "/api/sessions/theirs/s1", "/api/sessions/theirs/s1/calls"] {
        assert_eq!(ask(&gate, "GET", path, Value::Null).await.status, 404, "{path}");
        let seen = gate.ask(&Ask::get(path).with("x-deadstop-project", "other")).await;
        assert_eq!(seen.status, 200, "{path}: {}", seen.text());
    }
    let kill = Ask::post("/api/kill", &json!({ "all": true, "reason": "enough" }));
    assert_eq!(gate.ask(&kill.with("x-deadstop-project", "other")).await.status, 200);
    assert_eq!(gate.ask(&own).await.status, 200, "another project's red button");
    assert_eq!(gate.ask(&theirs).await.status, 403);
    gate.stop().await;
}

/// F5: yesterday's traffic under another policy.
async fn a_policy_is_tried_on_what_was(place: &TestDatabase) {
    let gate = gate(place, json!({}), "fine").await;
    for n in 0..6 {
        let says = Speech::Chat.says(false, &format!("step {n}")).by("worker", "s1");
        assert_eq!(gate.ask(&says).await.status, 200);
    }
    let mut policy = get(&gate, "/api/policies/default").await["effective"].clone();
    policy["steps"]["max_model_calls"] = json!(4);
    let got = ask(&gate, "POST", "/api/backtest", json!({ "policy": policy })).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let lines: Vec<Value> =
        got.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["progress"], json!({ "done": 1, "of": 1 }));
    let result = &lines.last().unwrap()["result"];
    assert_eq!(
        (&result["sessions"], &result["calls"], &result["killed"]),
        (&json!(1), &json!(6), &json!(1)),
        "{result}"
    );
    assert_eq!(
        (&result["stopped"][0]["guard"], &result["stopped"][0]["calls_after"]),
        (&json!("steps"), &json!(2))
    );
    let agent = &result["agents"][0];
    assert_eq!((&agent["before"]["stopped"], &agent["after"]["stopped"]), (&json!(0), &json!(1)));

    // In force, it stops sessions. Trying it again tells what happened; a looser one frees them.
    let put = Ask::of("PUT", "/api/policies/default", Some(&policy)).with("if-match", "*");
    let put = gate.ask(&put).await;
    assert_eq!(put.status, 200, "{}", put.text());
    for n in 0..7 {
        let says = Speech::Chat.says(false, &format!("step {n}")).by("worker", "s2");
        assert_eq!(gate.ask(&says).await.status == 200, n < 4, "{n}");
    }
    let policy = get(&gate, "/api/policies/default").await["effective"].clone();
    let result = tried(&gate, &policy).await;
    let again = result["stopped"].as_array().unwrap().iter().find(|one| one["session"] == "s2");
    let again = again.unwrap_or_else(|| panic!("{result}"));
    for what in ["guard", "reason", "call", "verdict"] {
        assert_eq!(again[what], again["before"][what], "{again}");
    }
    assert_eq!(again["calls_after"], 0, "{again}");
    let mut looser = policy.clone();
    looser["steps"]["max_model_calls"] = json!(100);
    let result = tried(&gate, &looser).await;
    assert_eq!((&result["stopped"], &result["freed"][0]["session"]), (&json!([]), &json!("s2")));
    gate.stop().await;
}

/// What came of trying a policy.
async fn tried(gate: &Gate, policy: &Value) -> Value {
    let got = ask(gate, "POST", "/api/backtest", json!({ "policy": policy })).await;
    let last: Value = serde_json::from_str(got.text().lines().last().unwrap()).unwrap();
    last["result"].clone()
}

/// An unknown model is charged at the fallback, until an operator sets its price.
async fn own_prices_are_charged_from_the_next_call_on(place: &TestDatabase) {
    let gate = gate(place, json!({}), WORDS).await;
    let preflight = |id: &str| json!({ "id": id, "model": "house-llm-7", "input_tokens": 1000 });
    let used =
        json!({ "input": 1_000_000, "output": 1_000_000, "cache_read": 0, "cache_write": 0 });
    let charged = async |id: &str| {
        let path = "/api/sessions/pricer/s1";
        let got = ask(&gate, "POST", &format!("{path}/preflight"), preflight(id)).await;
        assert_eq!(got.status, 200, "{}", got.text());
        let receipt = json!({ "id": id, "status": "ok", "usage": used });
        let got = ask(&gate, "POST", &format!("{path}/receipt"), receipt).await;
        assert_eq!(got.status, 200, "{}", got.text());
        get(&gate, "/api/status").await["project"]["cost_usd"].as_f64().unwrap()
    };
    let first = charged("m1").await;
    assert!((first - 40.0).abs() < 1e-6, "{first}");
    let listed =
        until(&gate, "/api/prices", |found| found["items"][0]["model"] == "house-llm-7").await;
    assert_eq!(
        (&listed["items"][0]["source"], &listed["items"][0]["calls"]),
        (&json!("fallback"), &json!(1))
    );
    assert_eq!(get(&gate, "/api/costs?by=model").await["items"][0]["priced_by_fallback"], true);

    let price = json!({ "input_usd": 1.0, "output_usd": 2.5, "cache_read_usd": null, "cache_write_usd": null });
    let put = ask(&gate, "PUT", "/api/prices/House-LLM", price.clone()).await;
    assert_eq!(put.status, 200, "{}", put.text());
    assert_eq!(put.json()["source"], "own");
    assert_eq!(get(&gate, "/api/prices/house-llm").await["output_usd"], 2.5);
    assert_eq!(ask(&gate, "GET", "/api/prices/other", Value::Null).await.status, 404);
    let second = charged("m2").await - first;
    assert!((second - 3.5).abs() < 1e-6, "{second}");
    assert_eq!(get(&gate, "/api/costs?by=model").await["items"][0]["priced_by_fallback"], false);
    let hours = until(&gate, "/api/costs?by=hour", |found| found["items"][0]["calls"] == 2).await;
    assert_eq!(hours["items"].as_array().unwrap().len(), 1, "{hours}");
    assert_eq!(hours["items"][0]["of"].as_str().unwrap().parse::<u64>().unwrap() % 3_600_000, 0);

    for (bad, field) in [
        (
            json!({ "input_usd": -1, "output_usd": 2.5, "cache_read_usd": null, "cache_write_usd": null }),
            "input_usd",
        ),
        (json!({ "input_usd": 1, "output_usd": 2.5, "cache_read_usd": null }), "cache_write_usd"),
        (
            json!({ "input_usd": 1, "output_usd": "2", "cache_read_usd": null, "cache_write_usd": null }),
            "output_usd",
        ),
    ] {
        let got = ask(&gate, "PUT", "/api/prices/house-llm", bad).await;
        assert_eq!(
            (got.status, &got.json()["errors"][0]["field"]),
            (422, &json!(field)),
            "{}",
            got.text()
        );
    }
    // It outlives the server, and can be taken back.
    let gate = gate.restart_on(place).await;
    assert_eq!(get(&gate, "/api/prices?model=house-llm-7").await["items"][0]["input_usd"], 1.0);
    let reset = ask(&gate, "DELETE", "/api/prices/house-llm", Value::Null).await;
    assert_eq!((reset.status, &reset.json()["source"]), (200, &json!("fallback")));
    assert_eq!(ask(&gate, "DELETE", "/api/prices/house-llm", Value::Null).await.status, 404);
    for action in ["price.set", "price.reset"] {
        let audit = get(&gate, &format!("/api/audit?action={action}")).await;
        assert_eq!(audit["items"].as_array().unwrap().len(), 1, "{audit}");
    }
}
