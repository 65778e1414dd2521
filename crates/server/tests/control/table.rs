//! Every route × every role × a foreign project. The routes come from the API's document, so that a
//! new route without a rule fails here.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use super::kept::{AGENT, Kept, SESSION, keep};
use crate::support::{Ask, Gate, Got, Reply};

const ROLES: [&str; 5] = ["metrics", "agent", "viewer", "operator", "admin"];

/// A server with two projects, each with things in it and a key for every role.
struct World {
    gate: Gate,
    kept: Kept,
    /// By role; those of the project `default`.
    keys: BTreeMap<&'static str, Value>,
    /// An admin of the project `other`.
    foreign: String,
    /// For ids that must be new.
    number: AtomicU32,
}

/// A route of the document.
struct Route {
    method: String,
    path: String,
    /// The roles that may call it; empty if it needs no key.
    roles: Vec<String>,
    has_body: bool,
}

impl World {
    async fn new() -> World {
        let asks = json!({
            "access": { "ask": ["wall_ask"] },
            "harm": { "enabled": true, "catastrophic": "block" },
        });
        let gate = Gate::start(asks, |_| Reply::json(200, &json!({}))).await;
        let kept = keep(&gate, "default").await;
        let mut keys = BTreeMap::new();
        let mut admin = String::new();
        for role in ["admin", "metrics", "agent", "viewer", "operator"] {
            let order = json!({ "name": format!("the {role}"), "role": role, "agent": (role == "agent").then_some("*") });
            let ask = Ask::post("/api/keys", &order);
            let ask = if admin.is_empty() { ask } else { ask.key(&admin) };
            let made = gate.ask(&ask).await;
            assert_eq!(made.status, 201, "{}", made.text());
            let made = made.json();
            if role == "admin" {
                admin = made["key"].as_str().unwrap().to_owned();
            }
            keys.insert(role, made);
        }
        let other = Ask::post("/api/projects", &json!({ "name": "other" })).key(&admin);
        let other = gate.ask(&other).await.json();
        let foreign = other["admin"]["key"].as_str().unwrap().to_owned();
        let world = World { gate, kept, keys, foreign, number: AtomicU32::new(0) };
        // A policy of its own, and a second version of the default.
        for path in
            ["/api/projects/prevention-config", &format!("/api/agents/{AGENT}/prevention-config")]
        {
            let put = Ask::of("PUT", path, Some(&prevention())).key(&world.key("admin"));
            assert_eq!(world.gate.ask(&put).await.status, 200);
        }
        world
    }

    fn key(&self, role: &str) -> String {
        self.keys[role]["key"].as_str().unwrap().to_owned()
    }

    async fn routes(&self) -> Vec<Route> {
        let document = self.gate.ask(&Ask::get("/api/openapi.json")).await.json();
        let mut routes = Vec::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                routes.push(Route {
                    method: method.to_ascii_uppercase(),
                    path: path.clone(),
                    roles: serde_json::from_value(operation["x-deadstop-roles"].clone())
                        .unwrap_or_default(),
                    has_body: !operation["requestBody"].is_null(),
                });
            }
        }
        assert!(routes.len() > 60, "{}", routes.len());
        routes
    }

    /// A request that is fine in every way but perhaps its key. What is used up is made anew.
    async fn request(&self, route: &Route) -> Ask {
        let admin = self.key("admin");
        if route.path == "/api/prices/{name}" {
            let set = Ask::of("PUT", &format!("/api/prices/{AGENT}"), Some(&price())).key(&admin);
            assert_eq!(self.gate.ask(&set).await.status, 200);
        }
        let id = match route.path.as_str() {
            path if path.starts_with("/api/keys/") => {
                let order = json!({ "name": "wall-spare", "role": "viewer" });
                let made = self.gate.ask(&Ask::post("/api/keys", &order).key(&admin)).await;
                made.json()["id"].as_str().unwrap().to_owned()
            }
            path if path.starts_with("/api/alerts/targets/") => {
                let made = Ask::post("/api/alerts/targets", &target()).key(&admin);
                self.gate.ask(&made).await.json()["id"].as_str().unwrap().to_owned()
            }
            path if path.contains("/grants/") => {
                let of = match path.starts_with("/api/agents/") {
                    true => format!("/api/agents/{AGENT}/grants"),
                    false => format!("/api/sessions/{AGENT}/{SESSION}/grants"),
                };
                let made = self.gate.ask(&Ask::post(&of, &grant()).key(&admin)).await.json();
                made["id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
            }
            path if path.starts_with("/api/approvals/") => {
                let number = self.number.fetch_add(1, Ordering::Relaxed);
                let call = json!({ "id": format!("wall-ask-{number}"), "tool": "wall_ask" });
                let asked = "/api/sessions/wall-asker/s/proposal";
                let asked = Ask::post(asked, &json!({ "calls": [call] })).key(&admin);
                let asked = self.gate.ask(&asked).await.json();
                asked["calls"][0]["approval"].as_str().unwrap().to_owned()
            }
            path if path.starts_with("/api/allow/") => {
                let number = self.number.fetch_add(1, Ordering::Relaxed);
                let call = json!({
                    "id": "wall", "tool": "Bash", "arguments": { "command": "rm -rf ~" },
                });
                let asked = format!("/api/sessions/wall-asker/refused-{number}/proposal");
                let asked = Ask::post(&asked, &json!({ "calls": [call] })).key(&admin);
                let refused = self.gate.ask(&asked).await.text();
                let code = refused.split("deadstop allow ").nth(1).unwrap();
                code.chars().take(6).collect()
            }
            path if path.contains("/calls/{id}") => self.kept.call.clone(),
            _ => self.kept.incident.clone(),
        };
        // The first request opens a governed session, so another one is used than those looked at.
        let (agent, session) =
            if governs(&route.path) { ("wall-governor", "governed") } else { (AGENT, SESSION) };
        let path = route
            .path
            .replace("{id}", &id)
            .replace("{code}", &id)
            .replace("{name}", &self.named(route).await)
            .replace("{agent}", agent)
            .replace("{session}", session)
            .replace("{version}", "1");
        assert!(!path.contains('{'), "{path}: what stands for this parameter?");
        let mut body = route.has_body.then(|| self.body(route));
        if let Some(body) = body.as_mut().filter(|_| governs(&route.path)) {
            let number = self.number.fetch_add(1, Ordering::Relaxed);
            body["id"] = json!(format!("wall-call-{number}"));
            if path.ends_with("/progress") || path.ends_with("/receipt") {
                let asked = path.rsplit_once('/').unwrap().0.to_owned() + "/preflight";
                let preflight = json!({ "id": body["id"], "model": "gpt-4o" });
                let asked = Ask::post(&asked, &preflight).key(&self.key("admin"));
                assert_eq!(self.gate.ask(&asked).await.status, 200);
            }
            if path.ends_with("/proposal") {
                let calls = json!([{ "id": body["id"], "tool": format!("wall_tool_{number}") }]);
                *body = json!({ "calls": calls });
            }
        }
        // Most of these say which version they replace; any will do.
        Ask::of(&route.method, &path, body.as_ref()).with("if-match", "*")
    }

    /// The agent that a request is about; one that is removed is there no more afterwards.
    async fn named(&self, route: &Route) -> String {
        if (route.method.as_str(), route.path.as_str()) != ("DELETE", "/api/agents/{name}") {
            return AGENT.to_owned();
        }
        let name = format!("wall-gone-{}", self.number.fetch_add(1, Ordering::Relaxed));
        let opening = Ask::post("/api/sessions", &json!({ "agent": name })).key(&self.key("admin"));
        assert_eq!(self.gate.ask(&opening).await.status, 200);
        name
    }

    fn body(&self, route: &Route) -> Value {
        let path = route.path.as_str();
        match path {
            "/api/prices/{name}" => price(),
            "/v1/traces" | "/v1/logs" | "/v1/metrics" => json!({}),
            "/api/login" => json!({ "key": self.key("viewer") }),
            "/api/keys" => json!({ "name": "wall-new", "role": "viewer" }),
            "/api/projects" => {
                let number = std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .unwrap()
                    .as_nanos();
                json!({ "name": format!("project-{number}") })
            }
            "/api/kill" | "/api/clear" | "/api/pause" => {
                json!({ "agent": "wall-order", "new": true })
            }
            // What was killed is not resumed.
            "/api/resume" => json!({ "agent": "wall-held" }),
            "/api/reset" => json!({ "agent": "wall-order", "session": "wall-order" }),
            "/api/agents/{name}" => json!({ "tags": ["wall-tag"] }),
            "/api/agents/{name}/kill-switch" => {
                json!({ "enabled": true, "window_size": 20, "threshold": 10.0 })
            }
            "/api/settings" => json!({
                "capture": "all", "redaction": [],
                "retention": {
                    "calls_days": 1, "payloads_days": null, "evidence_days": null,
                    "sessions_days": null, "incidents_days": null, "deliveries_days": null,
                },
            }),
            "/api/policies/default" => deadstop_protocol::policy_views::write_policy(
                &deadstop_core::Preset::Strict.policies(),
                deadstop_protocol::policy_views::Whose::Project,
            ),
            "/api/backtest" => {
                let policy = deadstop_protocol::policy_views::write_policy(
                    &deadstop_core::Preset::Strict.policies(),
                    deadstop_protocol::policy_views::Whose::Project,
                );
                json!({ "policy": policy })
            }
            "/api/check" => json!({ "command": "rm -rf build" }),
            "/api/sessions" => json!({ "agent": "wall-governor", "session": "governed" }),
            "/api/mcp/tools" => json!({
                "agent": "wall-governor", "session": "governed", "server": "wall-server",
                "tools": [{ "name": "wall-tool", "fingerprint": "0123456789abcdef" }],
            }),
            "/api/mcp/tools/accept" => json!({
                "server": "wall-server", "tool": "wall-tool", "reason": "wall-reason",
            }),
            _ if path.ends_with("/preflight") => json!({ "model": "gpt-4o" }),
            _ if path.ends_with("/progress") => json!({ "text": "so far" }),
            _ if path.ends_with("/receipt") => json!({ "status": "ok" }),
            _ if path.ends_with("/proposal") => json!({}),
            "/api/policies/agents/{name}" => json!({ "policy": null, "kill_switch": null }),
            "/api/alerts/targets" | "/api/alerts/targets/{id}" => target(),
            "/api/incidents/{id}/acknowledge" => json!({ "note": "wall-note" }),
            "/api/incidents/actions" => json!({ "action": "reopen", "ids": ["nothing"] }),
            "/api/incidents/{id}/false-alarm" => json!({ "reason": "wall-reason" }),
            _ if path.ends_with("/prevention-config") => prevention(),
            _ if path.ends_with("/grants") => grant(),
            _ if path.ends_with("/top-up") => json!({ "steps": 5 }),
            _ if path.ends_with("/revoke") => json!({ "reason": "wall-reason" }),
            _ if path.starts_with("/api/sessions/")
                || path.starts_with("/api/approvals/")
                || path.starts_with("/api/allow/")
                || path.ends_with("/restore") =>
            {
                json!({ "reason": "wall-reason" })
            }
            _ => panic!("{} {path}: what is a body for this?", route.method),
        }
    }

    async fn send(&self, ask: &Ask) -> Got {
        // Events never end: their head is enough.
        if ask.path != "/api/events" {
            return self.gate.ask(ask).await;
        }
        let answering = ask.open(self.gate.address).await.unwrap();
        match answering.status {
            200 => Got { status: 200, ..Got::default() },
            _ => answering.rest().await,
        }
    }
}

fn price() -> Value {
    json!({ "input_usd": 1.0, "output_usd": 2.0, "cache_read_usd": null, "cache_write_usd": null })
}

fn prevention() -> Value {
    json!({
        "loop_detection": {
            "enabled": true, "threshold": 3, "action": "terminate", "max_steps": 50
        },
        "budget": {
            "max_cost_usd": 0.5, "soft_alert_threshold_usd": 0.4, "max_wall_time_seconds": 120
        },
        "circuit_breaker": {
            "enabled": true, "open_after_failures": 5, "cooldown_seconds": 30,
            "half_open_max_calls": 3
        }
    })
}

/// Whether a route is for sessions that report themselves.
fn governs(path: &str) -> bool {
    ["/preflight", "/proposal", "/progress", "/receipt"].iter().any(|end| path.ends_with(end))
}

fn grant() -> Value {
    json!({ "deletes": 5, "target": "wall_*", "reason": "wall-reason", "expires_in_s": 600 })
}

fn target() -> Value {
    json!({
        "name": "wall-target", "agent": null, "events": ["kill"], "active": false,
        "target": { "type": "webhook", "url": "https://example.org/wall-hook" },
    })
}

#[tokio::test]
async fn every_route_takes_its_role_and_no_less() {
    let world = World::new().await;
    for route in world.routes().await {
        let what = format!("{} {}", route.method, route.path);
        if route.roles.is_empty() {
            let got = world.send(&world.request(&route).await).await;
            assert!(got.status < 400, "{what}: {} {}", got.status, got.text());
            continue;
        };
        let keyless = world.send(&world.request(&route).await).await;
        assert_eq!(
            (keyless.status, &keyless.json()["code"]),
            (401, &json!("key_required")),
            "{what} without a key"
        );
        for role in ROLES {
            let ask = world.request(&route).await.key(&world.key(role));
            let got = world.send(&ask).await;
            if !route.roles.iter().any(|one| one == role) {
                let code = got.json()["code"].clone();
                assert_eq!((got.status, code), (403, json!("forbidden")), "{what} as {role}");
            } else {
                assert!(got.status < 400, "{what} as {role}: {} {}", got.status, got.text());
            }
        }
    }
}

/// Things of one project, as its admin sees them.
async fn snapshot(world: &World) -> Vec<Value> {
    let mut seen = Vec::new();
    // A request for incidents is answered once everything is written.
    world.gate.ask(&Ask::get("/api/incidents").key(&world.key("admin"))).await;
    for path in [
        format!("/api/agents/{AGENT}"),
        format!("/api/sessions/{AGENT}/{SESSION}"),
        format!("/api/incidents/{}", world.kept.incident),
        "/api/policies".into(),
        "/api/alerts/targets".into(),
        "/api/settings".into(),
    ] {
        let got = world.gate.ask(&Ask::get(&path).key(&world.key("admin"))).await;
        assert_eq!(got.status, 200, "{path}: {}", got.text());
        let mut value = got.json();
        // The clock goes on.
        value["unstopped"] = Value::Null;
        // Among them the time that goes by.
        if let Some(limits) = value.pointer_mut("/live/limits") {
            *limits = Value::Null;
        }
        seen.push(value);
    }
    seen
}

#[tokio::test]
async fn projects_are_walls() {
    let world = World::new().await;
    // What takes any name makes something of the caller's own.
    let makes = |route: &Route| match route.method.as_str() {
        "PUT" => {
            ["/prevention-config", "/kill-switch", "/policies/agents/{name}", "/prices/{name}"]
                .iter()
                .any(|end| route.path.ends_with(end))
        }
        "POST" => route.path.ends_with("/preflight") || route.path.ends_with("/proposal"),
        // The caller's own defaults, for an agent that has not called yet.
        "GET" => ["/prevention-config", "/kill-switch"].iter().any(|end| route.path.ends_with(end)),
        _ => false,
    };
    let mut routes = world.routes().await;
    routes.retain(|route| !route.roles.is_empty());
    // First what only looks, so that it cannot see what the rest has made; last what takes a name
    // that is the caller's own from then on.
    routes.sort_by_key(|route| (route.method != "GET", makes(route) || !route.path.contains('{')));
    // The targets that the requests are about are made first, so that they do not show as changes.
    let mut asks = Vec::new();
    for route in &routes {
        asks.push(world.request(route).await.key(&world.foreign));
    }
    let before = snapshot(&world).await;
    for (route, ask) in routes.iter().zip(&asks) {
        let what = format!("{} {}", route.method, route.path);
        let got = world.send(ask).await;
        if route.path.contains('{') {
            let expected = if makes(route) { 200 } else { 404 };
            assert_eq!(got.status, expected, "{what}: {}", got.text());
        }
        if route.method == "GET" && makes(route) {
            let shown = got.json();
            assert_ne!(shown["is_agent_override"], true, "{what}: {shown}");
            assert_ne!(shown["loop_detection"], prevention()["loop_detection"], "{what}: {shown}");
        } else if route.method == "GET" {
            assert!(!got.text().contains("wall-"), "{what}: {}", got.text());
        }
        assert!(got.status < 500, "{what}: {}", got.text());
    }
    assert_eq!(snapshot(&world).await, before);
}

#[tokio::test]
async fn a_key_names_its_own_project_or_none() {
    let world = World::new().await;
    let admin = world.key("admin");
    for (project, status) in [("default", 200), ("other", 404), ("nowhere", 404), ("", 404)] {
        let ask = Ask::get("/api/agents").key(&admin).with("x-deadstop-project", project);
        assert_eq!(world.gate.ask(&ask).await.status, status, "{project}");
    }
    let own = world.gate.ask(&Ask::get("/api/projects").key(&admin)).await.json();
    let names: Vec<_> =
        own["items"].as_array().unwrap().iter().map(|p| p["name"].clone()).collect();
    assert_eq!(names, ["default"]);
}

#[tokio::test]
async fn an_agents_key_is_for_its_agent() {
    let world = World::new().await;
    let order = json!({ "name": "bound", "role": "agent", "agent": "another-agent" });
    let made = Ask::post("/api/keys", &order).key(&world.key("admin"));
    let bound = world.gate.ask(&made).await.json()["key"].as_str().unwrap().to_owned();
    let session = format!("/api/sessions/{AGENT}/{SESSION}");
    for (method, path, body) in [
        ("GET", session.clone(), None),
        ("GET", format!("{session}/calls"), None),
        ("POST", format!("{session}/kill"), Some(json!({}))),
    ] {
        let got = world.gate.ask(&Ask::of(method, &path, body.as_ref()).key(&bound)).await;
        assert_eq!(got.status, 404, "{method} {path}");
    }
    for bad in [
        json!({ "name": "x", "role": "viewer", "agent": "a" }),
        json!({ "name": "x", "role": "agent", "agent": "" }),
        json!({ "name": "", "role": "agent" }),
        json!({ "name": "x", "role": "king" }),
    ] {
        let got = world.gate.ask(&Ask::post("/api/keys", &bad).key(&world.key("admin"))).await;
        assert_eq!((got.status, &got.json()["code"]), (422, &json!("invalid_body")), "{bad}");
    }
}
