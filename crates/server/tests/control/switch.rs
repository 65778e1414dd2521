//! Agents, sessions and incidents: the switch, the detail of an incident, orders on sessions.

use serde_json::{Value, json};

use super::kept::{AGENT, SESSION, keep};
use crate::support::{Ask, Gate, Reply, Said, Speech, soon, until};

async fn get(gate: &Gate, path: &str) -> Value {
    let got = gate.ask(&Ask::get(path)).await;
    assert_eq!(got.status, 200, "{path}: {}", got.text());
    got.json()
}

/// The seed page's walk: trip, inactive, incident, switched on, window empty, runs on.
#[tokio::test]
async fn the_kill_switch_from_its_trip_to_switching_on_again() {
    let answer = |_: &crate::support::Seen| {
        Speech::Chat.reply(false, &Said::text("I will try the same thing once more, as before."))
    };
    let gate =
        Gate::start(json!({ "preset": "strict", "text_loop": { "enabled": false } }), answer).await;
    let switch = json!({ "enabled": true, "window_size": 10, "threshold": 5.0 });
    let put = Ask::of("PUT", "/api/agents/looper/kill-switch", Some(&switch));
    assert_eq!(gate.ask(&put).await.status, 200);
    let ask =
        || Speech::Chat.says(false, "Please fix the order #12345 right now").by("looper", "s");
    let mut asked = 0;
    while gate.ask(&ask()).await.status == 200 {
        asked += 1;
        assert!(asked < 20, "it was never stopped");
    }
    let agent = get(&gate, "/api/agents/looper").await;
    assert_eq!(
        (&agent["active"], &agent["deactivated_by"], &agent["health"]),
        (&json!(false), &json!("kill_switch"), &json!("stopped"))
    );
    let incident = gate.incident().await;
    assert_eq!((&incident["guard"], &incident["window"]), (&json!("similarity"), &json!(10)));
    let id = incident["id"].as_str().unwrap();
    let detail = get(&gate, &format!("/api/incidents/{id}")).await;
    let scoring = &detail["scoring"];
    let sum: f64 =
        scoring["signals"].as_array().unwrap().iter().map(|s| s["score"].as_f64().unwrap()).sum();
    assert_eq!(scoring["score"].as_f64().unwrap(), sum);
    assert_eq!((&scoring["threshold"], &scoring["scale_end"]), (&json!(5.0), &json!(10.0)));

    let on = Ask::of(
        "PATCH",
        "/api/agents/looper",
        Some(&json!({ "active": true, "reason": "looked into it" })),
    );
    let on = gate.ask(&on).await;
    assert_eq!((on.status, &on.json()["active"]), (200, &json!(true)), "{}", on.text());
    assert_eq!(on.json()["deactivated_by"], Value::Null);
    for _ in 1..asked {
        assert_eq!(gate.ask(&ask()).await.status, 200, "the window was not empty");
    }
    // Its settings are still there.
    assert_eq!(get(&gate, "/api/agents/looper/kill-switch").await, switch);

    let off =
        Ask::of("PATCH", "/api/agents/looper", Some(&json!({ "active": false, "by": "ada" })));
    assert_eq!(gate.ask(&off).await.json()["deactivated_by"], "ada");
    assert_eq!(gate.ask(&ask()).await.status, 403);
    let unknown = Ask::of("PATCH", "/api/agents/unknown", Some(&json!({ "active": true })));
    assert_eq!(gate.ask(&unknown).await.status, 404);
}

/// Asks until the switch (20 / 10.0) of an agent stops it. Gives the requests that passed.
async fn passes(gate: &Gate, agent: &str, most: u64, ask: impl Fn(u64) -> Ask) -> u64 {
    let switch = json!({ "enabled": true, "window_size": 20, "threshold": 10.0 });
    let put = Ask::of("PUT", &format!("/api/agents/{agent}/kill-switch"), Some(&switch));
    assert_eq!(gate.ask(&put).await.status, 200);
    for n in 0..most {
        let got = gate.ask(&ask(n)).await;
        if got.status != 200 {
            assert_eq!(got.status, 403, "{}", got.text());
            return n;
        }
    }
    most
}

/// Found from outside: the switch worked in a named session only.
#[tokio::test]
async fn the_kill_switch_sees_the_agents_requests_with_and_without_a_session() {
    let answer = |_: &crate::support::Seen| {
        Speech::Chat.reply(false, &Said::text("I will try the same thing once more, as before."))
    };
    let gate = Gate::start(json!({ "text_loop": { "enabled": false } }), answer).await;
    let unnamed = |agent: &'static str, text: String| {
        Speech::Chat.says(false, &text).with("x-deadstop-agent", agent)
    };
    let same = "Please fix the order #12345 right now";
    assert_eq!(passes(&gate, "template", 60, |_| unnamed("template", same.into())).await, 5);
    let order = |n| unnamed("orders", format!("Please fix the order #{n} right now"));
    assert_eq!(passes(&gate, "orders", 14, order).await, 5);
    let session = |n| Speech::Chat.says(false, same).by("crowd", &format!("s{n}"));
    assert_eq!(passes(&gate, "crowd", 25, session).await, 5);
    assert_eq!(passes(&gate, "hotel", 60, |_| unnamed("hotel", "hi".into())).await, 60);
    for agent in ["template", "orders", "crowd"] {
        let agent = get(&gate, &format!("/api/agents/{agent}")).await;
        assert_eq!(
            (&agent["active"], &agent["deactivated_by"]),
            (&json!(false), &json!("kill_switch"))
        );
    }
    // Without the switch nothing of this is a loop.
    for _ in 0..60 {
        assert_eq!(gate.ask(&unnamed("free", same.into())).await.status, 200);
    }
}

/// Found from outside: the event had the agent's name as its session, and another type.
#[tokio::test]
async fn the_kill_switch_is_told_as_an_event_of_its_own_type() {
    let answer = |_: &crate::support::Seen| {
        Speech::Chat.reply(false, &Said::text("I will try the same thing once more, as before."))
    };
    let gate = Gate::start(json!({ "text_loop": { "enabled": false } }), answer).await;
    let mut watching = Ask::get("/api/events").open(gate.address).await.unwrap();
    let ask =
        |_| Speech::Chat.says(false, "Please fix the order #12345 right now").by("looper", "s");
    assert_eq!(passes(&gate, "looper", 60, ask).await, 5);
    let wanted = r#""what":"kill","event_type":"kill_switch","agent":"looper","session":"""#;
    soon("the event", watching.until(wanted)).await;
}

/// Found from outside: a resume of what was killed said that it was done.
#[tokio::test]
async fn what_was_killed_is_not_resumed() {
    let gate = Gate::start(json!({}), |_| Speech::Chat.reply(false, &Said::text("Hello"))).await;
    assert_eq!(gate.ask(&Speech::Chat.says(false, "Hello").by("a", "s")).await.status, 200);
    gate.order("kill", json!({ "agent": "a", "session": "s" })).await;
    let session = json!({ "agent": "a", "session": "s" });
    for ask in [
        Ask::post("/api/sessions/a/s/resume", &json!({ "reason": "go" })),
        Ask::post("/api/resume", &session),
    ] {
        let got = gate.ask(&ask).await;
        assert_eq!((got.status, &got.json()["code"]), (409, &json!("session_final")));
        assert!(got.text().contains("start a new session, or reset this one"), "{}", got.text());
    }
    gate.order("kill", json!({ "agent": "a" })).await;
    let got = gate.ask(&Ask::post("/api/resume", &json!({ "agent": "a" }))).await;
    assert_eq!((got.status, &got.json()["code"]), (409, &json!("scope_killed")));
    assert!(got.text().contains("clear it to let it run again"), "{}", got.text());
    gate.order("clear", json!({ "agent": "a" })).await;
    gate.order("pause", json!({ "agent": "a" })).await;
    gate.order("resume", json!({ "agent": "a" })).await;
}

#[tokio::test]
async fn what_is_kept_is_shown() {
    let gate = Gate::start(json!({}), |_| Reply::json(200, &json!({}))).await;
    let kept = keep(&gate, "default").await;

    let agents = get(&gate, "/api/agents").await;
    let agent = &agents["items"][0];
    assert_eq!(
        (&agent["name"], &agent["loops"], &agent["cost_usd"]),
        (&json!(AGENT), &json!(1), &json!(4.0))
    );
    assert_eq!(agent["health"], "warning", "it had an incident today");
    let tag = Ask::of("PATCH", &format!("/api/agents/{AGENT}"), Some(&json!({ "tags": ["prod"] })));
    assert_eq!(gate.ask(&tag).await.json()["tags"], json!(["prod"]));
    for (query, count) in
        [("tag=prod", 1), ("tag=test", 0), ("active=true", 1), ("active=false", 0)]
    {
        let found = get(&gate, &format!("/api/agents?{query}")).await;
        assert_eq!(found["items"].as_array().unwrap().len(), count, "{query}");
    }

    for (query, count) in [
        (format!("agent={AGENT}"), 1),
        ("agent=other".into(), 0),
        (format!("session={SESSION}"), 1),
        ("state=running".into(), 1),
        ("state=killed".into(), 0),
        ("tag=loop_detected".into(), 1),
        ("guard=loop".into(), 1),
        ("guard=breaker".into(), 0),
        ("from=0&to=5".into(), 0),
    ] {
        let found = get(&gate, &format!("/api/sessions?{query}")).await;
        assert_eq!(found["items"].as_array().unwrap().len(), count, "{query}");
    }
    let session = get(&gate, &format!("/api/sessions/{AGENT}/{SESSION}")).await;
    assert_eq!((&session["tags"], &session["live"]), (&json!(["loop_detected"]), &json!(null)));
    let timeline = format!("/api/sessions/{AGENT}/{SESSION}/calls");
    let calls = get(&gate, &timeline).await;
    let positions = |page: &Value| -> Vec<u64> {
        page["items"].as_array().unwrap().iter().map(|c| c["position"].as_u64().unwrap()).collect()
    };
    assert_eq!(positions(&calls), [1, 2, 3, 4]);
    let page = get(&gate, &format!("{timeline}?order=newest&limit=3")).await;
    assert_eq!(positions(&page), [4, 3, 2]);
    let rest = format!("{timeline}?order=newest&cursor={}", page["next"].as_str().unwrap());
    assert_eq!(positions(&get(&gate, &rest).await), [1]);
    for query in [format!("session={SESSION}"), format!("agent={AGENT}"), String::new()] {
        let found = get(&gate, &format!("/api/calls?{query}")).await;
        assert_eq!(positions(&found), [4, 3, 2, 1], "{query}");
    }
    assert!(positions(&get(&gate, "/api/calls?session=unknown").await).is_empty());
    let call = get(&gate, &format!("/api/calls/{}", kept.call)).await;
    assert_eq!((&call["status"], &call["said"]), (&json!("ok"), &json!(null)));
    for path in ["/api/calls/17", "/api/calls/x", "/api/incidents/none", "/api/sessions/a/b"] {
        assert_eq!(gate.ask(&Ask::get(path)).await.status, 404, "{path}");
    }

    let costs = get(&gate, "/api/costs?by=model").await;
    assert_eq!(
        (&costs["items"][0]["of"], &costs["items"][0]["cost_usd"]),
        (&json!("gpt-4o"), &json!(4.0))
    );
    assert_eq!(get(&gate, "/api/costs").await["items"][0]["of"], AGENT);
    assert_eq!(gate.ask(&Ask::get("/api/costs?by=moon")).await.status, 422);
}

#[tokio::test]
async fn an_incident_in_detail() {
    let gate = Gate::start(json!({}), |_| Reply::json(200, &json!({}))).await;
    let kept = keep(&gate, "default").await;
    let list = get(&gate, "/api/incidents?guard=similarity&acknowledged=false").await;
    let item = &list["items"][0];
    assert_eq!(
        (&item["score"], &item["threshold"], &item["window"]),
        (&json!(7.0), &json!(5.0), &json!(10))
    );
    assert_eq!((&item["provider"], &item["acknowledged"]), (&json!("openai"), &json!(null)));
    assert!(get(&gate, "/api/incidents?guard=loop").await["items"].as_array().unwrap().is_empty());
    let by_session = get(&gate, &format!("/api/incidents?agent={AGENT}&session={SESSION}")).await;
    assert_eq!(by_session["items"].as_array().unwrap().len(), 1);

    let detail = get(&gate, &format!("/api/incidents/{}", kept.incident)).await;
    assert_eq!(detail["scoring"]["percent"], 140.0);
    let lines: Vec<_> = detail["scoring"]["signals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| (line["count"].as_u64().unwrap(), line["score"].as_f64().unwrap()))
        .collect();
    assert_eq!(lines, [(3, 3.0), (2, 4.0), (0, 0.0)]);
    let piece = &detail["evidence"][0];
    assert_eq!((&piece["request"], &piece["request_chars"]), (&json!("wall-request"), &json!(12)));
    assert_eq!(detail["before"].as_array().unwrap().len(), 4);
    assert_eq!(detail["after"].as_array().unwrap().len(), 0);
    // Four dollars in a minute. It is the agent's only run, so what a run usually costs is not known.
    let unstopped = &detail["unstopped"];
    assert_eq!(unstopped["usd_per_minute"], 4.0);
    assert_eq!((&unstopped["cost_usd"], &unstopped["usual_runs"]), (&json!(null), &json!(0)));
    assert!(unstopped["how"].as_str().unwrap().contains("$4.0000 a minute"), "{unstopped}");

    let groups = get(&gate, "/api/incidents/groups").await;
    assert_eq!((&groups["items"][0]["count"], &groups["items"][0]["open"]), (&json!(1), &json!(1)));
    let path = format!("/api/incidents/{}/acknowledge", kept.incident);
    let seen = gate.ask(&Ask::post(&path, &json!({ "note": "known", "by": "ada" }))).await.json();
    assert_eq!(
        (&seen["acknowledged"]["by"], &seen["acknowledged"]["note"]),
        (&json!("ada"), &json!("known"))
    );
    assert_eq!(get(&gate, "/api/incidents/groups").await["items"][0]["open"], 0);
    assert!(
        get(&gate, "/api/incidents?acknowledged=false").await["items"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn orders_on_sessions() {
    let answer = |_: &crate::support::Seen| Speech::Chat.reply(false, &Said::text("Hello"));
    let gate = Gate::start(json!({}), answer).await;
    let call = || Speech::Chat.says(false, "Hello").by("a", "s 1/2");
    let order = |what: &str| {
        let path = format!("/api/sessions/a/s%201%2F2/{what}");
        Ask::post(&path, &json!({ "reason": "because", "by": "ada" }))
    };
    assert_eq!(gate.ask(&order("kill")).await.status, 404, "there is no such session yet");
    assert_eq!(gate.ask(&call()).await.status, 200);
    for (what, done, state) in [
        ("pause", "paused", "paused"),
        ("resume", "resumed", "running"),
        ("kill", "killed", "killed"),
    ] {
        let got = gate.ask(&order(what)).await;
        assert_eq!(got.status, 200, "{what}: {}", got.text());
        assert_eq!(
            (&got.json()["done"], &got.json()["scope"]["state"]),
            (&json!(done), &json!(state))
        );
        assert_eq!(get(&gate, "/api/sessions/a/s%201%2F2").await["state"], state);
    }
    assert_eq!(gate.ask(&call()).await.status, 403);
    assert_eq!(gate.ask(&order("reset")).await.status, 200);
    assert_eq!(gate.ask(&call()).await.status, 200);
    let audit = get(&gate, "/api/audit?who=ada").await;
    let actions: Vec<_> =
        audit["items"].as_array().unwrap().iter().map(|e| e["action"].clone()).collect();
    assert_eq!(actions, ["session.reset", "session.kill", "session.resume", "session.pause"]);
    assert_eq!(audit["items"][0]["subject"], "a/s 1/2");
}

#[tokio::test]
async fn alert_targets_keep_their_secrets() {
    let gate = Gate::start(json!({}), |_| Reply::json(200, &json!({}))).await;
    let order = |target: Value| json!({ "name": "t", "agent": "a", "events": ["kill", "trip"], "active": true, "target": target });
    for (target, field) in [
        (json!({ "type": "webhook", "url": "ftp://x" }), "target"),
        (json!({ "type": "slack", "url": "nonsense" }), "target"),
        (json!({ "type": "email", "smtp": "https://x", "from": "a@b", "to": "c@d" }), "target"),
        (json!({ "type": "email", "smtp": "smtp://x", "from": "a", "to": "c@d" }), "target"),
        (Value::Null, "target"),
    ] {
        let got = gate.ask(&Ask::post("/api/alerts/targets", &order(target.clone()))).await;
        assert_eq!(
            (got.status, &got.json()["errors"][0]["field"]),
            (422, &json!(field)),
            "{target}"
        );
    }
    let hook = json!({ "type": "webhook", "url": "https://example.org:8443/hide-me", "secret": "whsec_hide" });
    let made = gate.ask(&Ask::post("/api/alerts/targets", &order(hook))).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert!(!made.text().contains("hide"));
    let made = made.json();
    assert_eq!(
        (&made["summary"], &made["secret"]),
        (&json!("webhook: https://example.org:8443/…"), &json!(null))
    );
    let path = format!("/api/alerts/targets/{}", made["id"].as_str().unwrap());

    let mut change = order(Value::Null);
    change["active"] = json!(false);
    let changed = gate.ask(&Ask::of("PUT", &path, Some(&change))).await.json();
    assert_eq!((&changed["active"], &changed["summary"]), (&json!(false), &made["summary"]));
    change["target"] = json!({ "type": "webhook", "url": "https://example.org/new" });
    let moved = gate.ask(&Ask::of("PUT", &path, Some(&change))).await.json();
    let secret = moved["secret"].as_str().unwrap();
    assert!(secret.starts_with("whsec_"), "{secret}");
    assert!(!gate.ask(&Ask::get(&path)).await.text().contains(secret));
    let test = gate.ask(&Ask::of("POST", &format!("{path}/test"), None)).await;
    assert_eq!(test.status, 202, "{}", test.text());
    let log = get(&gate, "/api/alerts/deliveries").await;
    assert_eq!(
        (&log["items"][0]["id"], &log["items"][0]["event"]),
        (&test.json()["delivery"], &json!("test"))
    );
    let list = gate.ask(&Ask::get("/api/alerts/targets")).await;
    assert!(!list.text().contains("hide") && list.json()["items"].as_array().unwrap().len() == 1);
    assert_eq!(gate.ask(&Ask::of("DELETE", &path, None)).await.status, 204);
    assert_eq!(gate.ask(&Ask::of("DELETE", &path, None)).await.status, 404);
}

/// The names that a node lists, and whether Now shows a text.
async fn listed(address: std::net::SocketAddr) -> (Vec<String>, String) {
    let agents = Ask::get("/api/agents").send_to(address).await.json();
    let name = |agent: &Value| agent["name"].as_str().unwrap().to_owned();
    let names = agents["items"].as_array().unwrap().iter().map(name).collect();
    (names, Ask::get("/api/status").send_to(address).await.text())
}

/// Issue 19, number 11: an agent that a typo had made could not be removed. On a fleet, every node leaves
/// it out, whichever was asked.
#[tokio::test]
async fn hole_11_a_removed_agent_is_left_out_until_it_is_used() {
    let gate = Gate::start(json!({}), |_| Speech::Chat.reply(false, &Said::text("Hello"))).await;
    let call = |agent: &str| Speech::Chat.says(false, "Hello").by(agent, "s");
    assert_eq!(gate.ask(&call("crawler")).await.status, 200);
    gate.order("kill", json!({ "agent": "crwaler", "reason": "a typo" })).await;
    until("both are listed", async || {
        let (names, _) = listed(gate.address).await;
        names == ["crawler", "crwaler"]
    })
    .await;
    let remove =
        |name: &str| Ask::of("DELETE", &format!("/api/agents/{name}?reason=a%20typo&by=ada"), None);
    let got = gate.ask(&remove("crwaler")).await;
    assert_eq!((got.status, &got.json()["stopped"]), (200, &json!(true)), "{}", got.text());
    assert!(got.text().contains("It is still stopped"), "{}", got.text());
    for address in gate.addresses() {
        let (names, now) = listed(address).await;
        assert_eq!(names, ["crawler"]);
        assert!(!now.contains("crwaler"), "{now}");
        // Its page is still there: incidents and sessions link to it.
        let kept = Ask::get("/api/agents/crwaler").send_to(address).await;
        assert!(kept.status == 200 && kept.json()["removed_ms"].is_u64(), "{}", kept.text());
        // To look at it is no use of it.
        let grants = Ask::get("/api/agents/crwaler/grants").send_to(address).await;
        assert_eq!(grants.status, 200, "{}", grants.text());
        // The same typo is one again.
        let typo = Ask::post("/api/kill", &json!({ "agent": "crwaler" }));
        for ask in [remove("crwaler"), typo, remove("crawlr")] {
            let got = ask.send_to(address).await;
            assert_eq!((got.status, &got.json()["code"]), (404, &json!("no_agent")));
            assert!(got.text().contains("Did you mean `crawler`?"), "{}", got.text());
        }
    }
    assert_eq!(listed(gate.address).await.0, ["crawler"]);
    let audit = get(&gate, "/api/audit?action=agent.remove").await;
    let entry = &audit["items"][0];
    assert_eq!((&entry["subject"], &entry["reason"]), (&json!("crwaler"), &json!("a typo")));
    assert!(entry["who"].as_str().unwrap().contains("ada"), "{entry}");
    // The stop holds, and a call lists the agent again.
    assert_eq!(gate.ask(&call("crwaler")).await.status, 403);
    for address in gate.addresses() {
        until("it is listed again", async || {
            let (names, now) = listed(address).await;
            names == ["crawler", "crwaler"] && now.contains("crwaler")
        })
        .await;
    }
}

/// An agent whose call runs stays in sight.
#[tokio::test]
async fn an_agent_with_calls_in_flight_is_not_removed() {
    let gate = Gate::start(json!({}), |_| Reply::json(200, &json!({}))).await;
    let post = async |what: &str, body: Value| {
        let ask = Ask::post(&format!("/api/sessions/worker/s/{what}"), &body);
        assert_eq!(gate.ask(&ask).await.status, 200, "{what}");
    };
    let remove = Ask::of("DELETE", "/api/agents/worker", None);
    post("proposal", json!({ "calls": [{ "id": "t1", "tool": "ls", "arguments": {} }] })).await;
    for address in gate.addresses() {
        let got = remove.send_to(address).await;
        assert_eq!((got.status, &got.json()["code"]), (409, &json!("calls_in_flight")));
        assert!(got.text().contains("1 call in flight"), "{}", got.text());
    }
    post("receipt", json!({ "id": "t1", "status": "ok", "text": "done" })).await;
    let got = gate.ask(&remove).await;
    assert_eq!((got.status, &got.json()["stopped"]), (200, &json!(false)), "{}", got.text());
    for address in gate.addresses() {
        until("a node leaves it out", || async {
            let (names, now) = listed(address).await;
            names.is_empty() && !now.contains("worker")
        })
        .await;
    }
    // Its records stay.
    let sessions = get(&gate, "/api/sessions?agent=worker").await;
    assert_eq!(sessions["items"].as_array().unwrap().len(), 1);
}
