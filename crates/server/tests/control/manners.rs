//! Bodies, methods, the document and its page, health and counters.

use serde_json::json;

use crate::support::{Ask, Gate, Reply};

async fn gate() -> Gate {
    Gate::start(json!({}), |_| Reply::json(200, &json!({}))).await
}

#[tokio::test]
async fn what_is_wrong_with_a_body_is_named() {
    let gate = gate().await;
    for (body, status, code, fields) in [
        (json!({ "agnt": "a", "why": 1 }), 422, "invalid_body", vec!["agnt", "why"]),
        (json!({ "agent": 5, "all": "yes" }), 422, "invalid_body", vec!["agent", "all"]),
        (json!([]), 422, "invalid_body", vec![""]),
        (json!({}), 422, "bad_order", vec![]),
    ] {
        let got = gate.ask(&Ask::post("/api/kill", &body)).await;
        assert_eq!((got.status, &got.json()["code"]), (status, &json!(code)), "{body}");
        assert_eq!(got.header("content-type"), Some("application/problem+json"));
        let named: Vec<_> =
            got.json()["errors"].as_array().unwrap().iter().map(|e| e["field"].clone()).collect();
        assert_eq!(named, fields, "{body}");
    }
    let mut plain = Ask::post("/api/kill", &json!({ "all": true }));
    plain.headers.clear();
    assert_eq!(gate.ask(&plain).await.status, 415);
    let mut broken = Ask::post("/api/kill", &json!({}));
    broken.body = b"{\"all\": tru".to_vec();
    let got = gate.ask(&broken).await;
    assert_eq!((got.status, &got.json()["code"]), (400, &json!("bad_json")));
    let got = gate.ask(&Ask::get("/api/incidents?limt=3&limit=x")).await;
    assert_eq!((got.status, &got.json()["code"]), (422, &json!("invalid_query")));
    assert_eq!(got.json()["errors"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn routes_and_methods_that_are_not_there_say_so() {
    let gate = gate().await;
    for (method, path, status, code) in [
        ("GET", "/api/nothing", 404, "not_found"),
        ("POST", "/api/status", 405, "method_not_allowed"),
        ("DELETE", "/api/keys/unknown", 404, "not_found"),
    ] {
        let ask = Ask { method: method.to_owned(), ..Ask::get(path) };
        let got = gate.ask(&ask).await;
        assert_eq!((got.status, &got.json()["code"]), (status, &json!(code)), "{method} {path}");
    }
}

#[tokio::test]
async fn the_document_describes_itself() {
    let gate = gate().await;
    let document = gate.ask(&Ask::get("/api/openapi.json")).await.json();
    assert_eq!(document["openapi"], "3.1.0");
    let schemas = &document["components"]["schemas"];
    // Everything that is referred to is there.
    let text = document.to_string();
    for part in text.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(schemas[name].is_object(), "{name}");
    }
    let mut ids: Vec<&str> = text.split("\"operationId\":\"").skip(1).collect();
    ids.iter_mut().for_each(|id| *id = id.split('"').next().unwrap());
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "every operation has a name of its own");
    let kill = &document["paths"]["/api/kill"]["post"];
    assert_eq!(kill["x-deadstop-roles"], json!(["operator", "admin"]));
    assert_eq!(kill["requestBody"]["required"], true);
    assert!(kill["responses"]["422"]["description"].as_str().unwrap().contains("invalid_body"));
    assert_eq!(schemas["Order"]["additionalProperties"], false);

    let page = gate.ask(&Ask::get("/api/docs")).await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let text = page.text();
    assert!(text.contains("/api/kill") && !text.contains("<script") && !text.contains("https://"));
}

#[tokio::test]
async fn health_and_counters() {
    let gate = gate().await;
    assert_eq!(gate.ask(&Ask::get("/healthz")).await.text(), "ok\n");
    let ready = gate.ask(&Ask::get("/readyz")).await;
    assert_eq!((ready.status, &ready.json()["store"]), (200, &json!("ok")));
    let metrics = gate.ask(&Ask::get("/metrics")).await;
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    assert!(metrics.text().contains("\ndeadstop_degraded 0\n"));
}

#[tokio::test]
async fn a_project_with_a_typo_is_not_made_by_looking_at_it() {
    let gate = gate().await;
    let looked = |path: &str| Ask::get(path).with("x-deadstop-project", "tpyo");
    for ask in [
        looked("/api/status"),
        looked("/api/sessions"),
        looked("/api/policies/default"),
        Ask::post("/api/kill", &json!({ "all": true })).with("x-deadstop-project", "tpyo"),
    ] {
        let got = gate.ask(&ask).await;
        assert_eq!((got.status, &got.json()["code"]), (404, &json!("not_found")), "{}", ask.path);
        assert!(got.text().contains("no project `tpyo`"), "{}", got.text());
    }
    let projects = gate.ask(&Ask::get("/api/projects")).await.text();
    assert!(!projects.contains("tpyo"), "{projects}");
    // A first call makes it, and from then on it is there.
    let opening = json!({ "agent": "a", "session": "s" });
    let opened = Ask::post("/api/sessions", &opening).with("x-deadstop-project", "tpyo");
    assert_eq!(gate.ask(&opened).await.status, 200);
    assert_eq!(gate.ask(&looked("/api/status")).await.status, 200);
}

#[tokio::test]
async fn pages_are_its_own_by_whatever_port_they_came() {
    let gate = Gate::start(json!({}), |_| Reply::json(200, &json!({}))).await;
    for (host, origin, status) in [
        // Through a tunnel: `ssh -L 9999:127.0.0.1:4141`.
        ("127.0.0.1:9999", "http://127.0.0.1:9999", 200),
        ("localhost:9999", "http://localhost:9999", 200),
        // Another program's page on this machine, and names that were made to resolve to it.
        ("127.0.0.1:4141", "http://127.0.0.1:9999", 403),
        ("localhost:9999", "http://127.0.0.1:9999", 403),
        ("evil.example", "http://evil.example", 403),
        ("127.0.0.1:9999", "null", 403),
    ] {
        let ask = Ask::get("/api/status").with("host", host).with("origin", origin);
        assert_eq!(gate.ask(&ask).await.status, status, "{host} {origin}");
    }
}
