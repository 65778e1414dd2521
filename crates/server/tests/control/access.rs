//! Keys and logins: what they open, and that they stop opening it.

use serde_json::{Value, json};

use crate::support::{Ask, Gate, Got, Reply, Speech};

async fn gate() -> Gate {
    Gate::start(json!({}), |_| Reply::json(200, &json!({}))).await
}

/// Makes a key with another one, or as the local user.
async fn make(gate: &Gate, by: Option<&str>, role: &str) -> Value {
    let ask = Ask::post(
        "/api/keys",
        &json!({ "name": format!("the {role}"), "role": role, "agent": (role == "agent").then_some("*") }),
    );
    let ask = by.into_iter().fold(ask, Ask::key);
    let got = gate.ask(&ask).await;
    assert_eq!(got.status, 201, "{}", got.text());
    got.json()
}

fn code(got: &Got) -> (u16, String) {
    (got.status, got.json()["code"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn the_local_user_is_admin_until_there_is_a_key() {
    let gate = gate().await;
    let who = gate.ask(&Ask::get("/api/whoami")).await.json();
    assert_eq!((&who["role"], &who["project"]), (&json!("admin"), &json!("default")));

    let early = Ask::post("/api/keys", &json!({ "name": "v", "role": "viewer" }));
    assert_eq!(code(&gate.ask(&early).await), (409, "first_key_admin".into()));
    let admin = make(&gate, None, "admin").await;
    assert!(admin["key"].as_str().unwrap().starts_with("ds_a_"));

    for path in ["/api/whoami", "/api/status", "/metrics"] {
        assert_eq!(code(&gate.ask(&Ask::get(path)).await), (401, "key_required".into()), "{path}");
    }
    assert_eq!(gate.ask(&Ask::get("/healthz")).await.status, 200);
    let key = admin["key"].as_str().unwrap();
    for ask in
        [Ask::get("/api/whoami").key(key), Ask::get("/api/whoami").with("x-deadstop-key", key)]
    {
        let who = gate.ask(&ask).await.json();
        assert_eq!((&who["name"], &who["key"]), (&json!("the admin"), &admin["id"]));
    }
    // The list tells everything but the secret.
    let list = gate.ask(&Ask::get("/api/keys").key(key)).await;
    assert_eq!(list.json()["items"][0]["id"], admin["id"]);
    assert!(!list.text().contains(key.rsplit('_').next().unwrap()));
}

#[tokio::test]
async fn a_key_that_is_wrong_or_revoked_opens_nothing() {
    let gate = gate().await;
    let admin = make(&gate, None, "admin").await;
    let key = admin["key"].as_str().unwrap();
    let viewer = make(&gate, Some(key), "viewer").await;
    let other = viewer["key"].as_str().unwrap();

    let forged =
        format!("{}_{}", key.rsplit_once('_').unwrap().0, other.rsplit('_').next().unwrap());
    for bad in [forged.as_str(), "ds_a_x_y", "", "sk-123", &other[..other.len() - 1]] {
        let got = gate.ask(&Ask::get("/api/status").key(bad)).await;
        assert_eq!(code(&got), (401, "bad_key".into()), "{bad}");
    }
    let basic = Ask::get("/api/status").with("authorization", "Basic YTpi");
    assert_eq!(gate.ask(&basic).await.status, 401);

    let status = Ask::get("/api/status").key(other);
    assert_eq!(gate.ask(&status).await.status, 200);
    let kill = Ask::post("/api/kill", &json!({ "all": true })).key(other);
    assert_eq!(code(&gate.ask(&kill).await), (403, "forbidden".into()));

    let revoke = |id: &Value| {
        let path = format!("/api/keys/{}", id.as_str().unwrap());
        Ask::of("DELETE", &path, None).key(key)
    };
    assert_eq!(gate.ask(&revoke(&viewer["id"])).await.status, 204);
    assert_eq!(code(&gate.ask(&status).await), (401, "bad_key".into()));
    assert_eq!(code(&gate.ask(&revoke(&admin["id"])).await), (409, "last_admin_key".into()));
    assert_eq!(gate.ask(&Ask::get("/api/status").key(key)).await.status, 200);
}

/// A scraper's configuration lies on many machines: its key opens the metrics and nothing else.
#[tokio::test]
async fn a_key_for_metrics_reads_metrics_and_nothing_else() {
    let gate = gate().await;
    let admin = make(&gate, None, "admin").await;
    let admin = admin["key"].as_str().unwrap();
    let scraper = make(&gate, Some(admin), "metrics").await;
    let scraper = scraper["key"].as_str().unwrap();
    assert!(scraper.starts_with("ds_m_"), "{scraper}");

    let scraped = gate.ask(&Ask::get("/metrics").key(scraper)).await;
    assert_eq!(scraped.status, 200);
    assert!(scraped.text().contains("deadstop_calls_total"));
    for path in ["/api/whoami", "/api/status", "/api/costs", "/api/events"] {
        let got = gate.ask(&Ask::get(path).key(scraper)).await;
        assert_eq!(code(&got), (403, "forbidden".into()), "{path}");
    }
    let told = Ask::post("/v1/traces", &json!({})).key(scraper);
    assert_eq!(code(&gate.ask(&told).await), (403, "forbidden".into()));
    let login = Ask::post("/api/login", &json!({ "key": scraper }));
    assert_eq!(code(&gate.ask(&login).await), (403, "forbidden".into()));
    let call = Speech::Chat.says(false, "hello").with("x-deadstop-key", scraper);
    let refused = gate.ask(&call).await;
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("a key for metrics makes no calls"), "{}", refused.text());

    let agent = make(&gate, Some(admin), "agent").await;
    let got = gate.ask(&Ask::get("/metrics").key(agent["key"].as_str().unwrap())).await;
    assert_eq!(code(&got), (403, "forbidden".into()), "an agent's key reads no metrics");
    let bound = json!({ "name": "x", "role": "metrics", "agent": "a" });
    let bound = gate.ask(&Ask::post("/api/keys", &bound).key(admin)).await;
    assert_eq!(bound.status, 422, "{}", bound.text());
}

#[tokio::test]
async fn a_login_brings_its_token_with_every_change() {
    let gate = gate().await;
    let admin = make(&gate, None, "admin").await;
    let key = admin["key"].as_str().unwrap();
    let secret = key.rsplit('_').next().unwrap();
    let turned: String = secret.chars().rev().collect();
    let wrong = Ask::post("/api/login", &json!({ "key": key.replace(secret, &turned) }));
    assert_eq!(code(&gate.ask(&wrong).await), (401, "bad_key".into()));

    let login = gate.ask(&Ask::post("/api/login", &json!({ "key": key }))).await;
    assert_eq!(login.status, 200, "{}", login.text());
    let cookie = login.header("set-cookie").unwrap().to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let token = login.json()["csrf_token"].as_str().unwrap().to_owned();
    assert!(!cookie.contains(&token) && !cookie.contains(key));
    let with_cookie = |ask: Ask| ask.with("cookie", &format!("theme=dark; {cookie}"));

    let who = gate.ask(&with_cookie(Ask::get("/api/whoami"))).await.json();
    assert_eq!((&who["role"], &who["csrf_token"]), (&json!("admin"), &json!(token)));
    let pause = || with_cookie(Ask::post("/api/pause", &json!({ "all": true })));
    for ask in [pause(), pause().with("x-csrf-token", ""), pause().with("x-csrf-token", "aaaa")] {
        assert_eq!(code(&gate.ask(&ask).await), (403, "bad_csrf_token".into()));
    }
    assert_eq!(gate.ask(&pause().with("x-csrf-token", &token)).await.status, 200);

    let logout = with_cookie(Ask::post("/api/logout", &json!({}))).with("x-csrf-token", &token);
    assert_eq!(gate.ask(&logout).await.status, 204);
    let got = gate.ask(&with_cookie(Ask::get("/api/whoami"))).await;
    assert_eq!(code(&got), (401, "bad_key".into()));
}

#[tokio::test]
async fn a_login_ends_with_its_key() {
    let gate = gate().await;
    let key = make(&gate, None, "admin").await["key"].as_str().unwrap().to_owned();
    let second = make(&gate, Some(&key), "operator").await;
    let login = Ask::post("/api/login", &json!({ "key": second["key"] }));
    let login = gate.ask(&login).await;
    let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let whoami = Ask::get("/api/whoami").with("cookie", &cookie);
    assert_eq!(gate.ask(&whoami).await.status, 200);
    let path = format!("/api/keys/{}", second["id"].as_str().unwrap());
    let revoke = Ask::of("DELETE", &path, None).key(&key);
    assert_eq!(gate.ask(&revoke).await.status, 204);
    assert_eq!(gate.ask(&whoami).await.status, 401);
}

/// Seed D: once killed, the operator clears it, and the agent starts from a fresh keyring.
#[tokio::test]
async fn an_agent_that_was_killed_and_cleared_needs_its_new_key() {
    let gate = gate().await;
    let admin = make(&gate, None, "admin").await;
    let admin = admin["key"].as_str().unwrap();
    let bound = |agent: &str| json!({ "name": "runner", "role": "agent", "agent": agent });
    let key = async |agent: &str| {
        let made = gate.ask(&Ask::post("/api/keys", &bound(agent)).key(admin)).await;
        made.json()["key"].as_str().unwrap().to_owned()
    };
    let (old, other) = (key("cleaner").await, key("reader").await);
    let opens = async |key: &str, agent: &str| {
        let opening = json!({ "agent": agent, "session": "s1" });
        gate.ask(&Ask::post("/api/sessions", &opening).key(key)).await.status
    };
    let order = async |what: &str| {
        let body = json!({ "agent": "cleaner", "reason": "it deletes too much" });
        let got = gate.ask(&Ask::post(&format!("/api/{what}"), &body).key(admin)).await;
        assert_eq!(got.status, 200, "{}", got.text());
        got.json()
    };
    assert_eq!(opens(&old, "cleaner").await, 200);
    // Clearing what was not killed changes no key.
    assert_eq!(order("clear").await["key"], Value::Null);
    assert_eq!(opens(&old, "cleaner").await, 200);

    order("kill").await;
    assert_eq!(opens(&old, "cleaner").await, 403);
    let cleared = order("clear").await;
    let fresh = cleared["key"]["key"].as_str().unwrap().to_owned();
    assert_eq!(
        (&cleared["key"]["name"], &cleared["key"]["agent"], &cleared["key"]["role"]),
        (&json!("runner"), &json!("cleaner"), &json!("agent"))
    );
    assert_eq!(opens(&old, "cleaner").await, 401, "the old key no longer works");
    assert_eq!(opens(&fresh, "cleaner").await, 200);
    assert_eq!(opens(&fresh, "reader").await, 404, "it is bound as the old one was");
    assert_eq!(opens(&other, "reader").await, 200, "other agents keep theirs");
    let audit = gate.ask(&Ask::get("/api/audit").key(admin)).await;
    assert!(audit.text().contains("the agent cleaner was cleared"), "{}", audit.text());
    assert!(!audit.text().contains(&fresh));

    // Switched off and on again, as the kill switch's page has it, it runs on with its key.
    for active in [false, true] {
        let body = json!({ "active": active });
        let change = Ask::of("PATCH", "/api/agents/cleaner", Some(&body)).key(admin);
        assert_eq!(gate.ask(&change).await.status, 200);
    }
    assert_eq!(opens(&fresh, "cleaner").await, 200);
}
