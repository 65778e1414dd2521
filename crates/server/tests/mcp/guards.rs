//! What the guards make of tool calls that pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::{call, error, event, failed, gate, post, said};
use crate::support::{Ask, Reply, Step, until};

/// The demonstration of the destructive guard, with answers as documents and as streams.
#[tokio::test]
async fn an_agent_that_deletes_again_is_stopped_at_the_third_attempt() {
    for stream in [false, true] {
        let gate = gate(json!({}), move |seen| {
            let answer = said(seen, "asset still exists");
            match stream {
                true => Reply::events(&[event(&answer)]),
                false => Reply::json(200, &answer),
            }
        })
        .await;
        let delete = |id| {
            let arguments = json!({ "asset_id": "fact_sales" });
            post("catalogue", &call(id, "delete_asset", arguments)).by("janitor", "s1")
        };
        for id in [1, 2] {
            let got = gate.ask(&delete(id)).await;
            assert!(got.text().contains("asset still exists"), "{}", got.text());
        }
        let third = error(&gate.ask(&delete(3)).await);
        assert_eq!(third["code"], 403);
        let text = third["message"].as_str().unwrap();
        assert!(text.contains("delete_asset on asset_id=fact_sales 3 times in"), "{text}");
        assert!(text.ends_with("Do not retry."), "{text}");
        assert_eq!(third["data"]["guard"], "destructive");
        assert_eq!(third["data"]["retryable"], false);
        let incident = gate.incident().await;
        assert_eq!(third["data"]["incident"], incident["id"]);
        assert_eq!(gate.upstream.requests(), 2);

        // Whatever follows is refused, at both servers.
        for server in ["catalogue", "files"] {
            let ask = post(server, &call(4, "list_assets", json!({}))).by("janitor", "s1");
            let later = error(&gate.ask(&ask).await);
            assert_eq!(later["data"]["reason"], "session_killed_loop_guard");
        }
        assert_eq!(gate.upstream.requests(), 2);
        let audit = gate.ask(&Ask::get("/api/audit?limit=10")).await.text();
        assert!(
            audit.contains("loop_detected: delete_asset on asset_id=fact_sales 3 times"),
            "{audit}"
        );
        // Another session goes on.
        let other = post("catalogue", &call(5, "list_assets", json!({}))).by("janitor", "s2");
        assert!(error(&gate.ask(&other).await).is_null());
    }
}

#[tokio::test]
async fn access_comes_first() {
    let policy = json!({ "access": { "deny": ["delete_*", "mcp__files__write"] } });
    let gate = gate(policy, |seen| Reply::json(200, &said(seen, "done"))).await;
    for (server, tool, denied) in [
        ("files", "delete_asset", true),
        ("files", "write", true),
        ("catalogue", "write", false),
        ("files", "read", false),
    ] {
        let ask = post(server, &call(1, tool, json!({}))).by("a", tool);
        let error = error(&gate.ask(&ask).await);
        assert_eq!(error["data"]["guard"] == "access", denied, "{server} {tool}: {error}");
    }
}

/// A server that fails, recovers, and fails again; what one agent meets there is neither another
/// agent's business nor another server's.
#[tokio::test]
async fn a_breaker_for_each_agent_and_server() {
    let broken = Arc::new(AtomicBool::new(true));
    let theirs = Arc::clone(&broken);
    let policy = json!({
        "strikes": { "enabled": false },
        "loop": { "enabled": false },
        "agent": { "breaker": {
            "open_after_failures": 3, "cooldown_seconds": 4, "half_open_max_calls": 1,
        }},
    });
    // Failures of all kinds: an error of the tool, one of the protocol, one of HTTP, and a death.
    let gate = gate(policy, move |seen| {
        let id = seen.json()["id"].as_u64().unwrap();
        if !seen.target.starts_with("/files") || !theirs.load(Ordering::SeqCst) {
            return Reply::json(200, &said(seen, &format!("fine {id}")));
        }
        match id % 4 {
            0 => Reply::json(200, &failed(seen, "disk full")),
            1 => Reply::json(
                200,
                &json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -1, "message": "no" } }),
            ),
            2 => Reply::json(500, &json!({})),
            _ => Reply::stream().then(Step::Close),
        }
    })
    .await;
    let ask = async |agent: &str, server: &str, id: u64| {
        let ask = post(server, &call(id, "read_file", json!({ "n": id }))).by(agent, "s");
        let got = gate.ask(&ask).await;
        if got.status == 500 {
            return json!({ "code": 500 });
        }
        if got.text().contains("isError") {
            return json!({ "code": "tool" });
        }
        error(&got)
    };
    let opened = |error: &serde_json::Value| error["data"]["guard"] == "breaker";
    let mut id = 0;
    for round in 0..2 {
        for _ in 0..3 {
            id += 1;
            let error = ask("one", "files", id).await;
            assert!(!error.is_null() && !opened(&error), "round {round} call {id}: {error}");
        }
        let error = ask("one", "files", id).await;
        assert!(opened(&error), "round {round}: {error}");
        assert_eq!(
            (error["code"].clone(), error["data"]["retryable"].clone()),
            (json!(429), json!(true))
        );
        // Neither the other server nor the other agent.
        assert!(ask("one", "catalogue", id).await.is_null());
        if round == 0 {
            assert!(!opened(&ask("two", "files", id).await));
        }
        assert!(ask("two", "catalogue", id).await.is_null());
        // It recovers: after the cool-down one call is let through to see.
        broken.store(false, Ordering::SeqCst);
        until("the cool-down's end", || async { ask("one", "files", 100).await.is_null() }).await;
        assert!(ask("one", "files", 101).await.is_null());
        broken.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_batch_is_sent_whole_or_not_at_all() {
    let policy = json!({ "access": { "deny": ["rm"] } });
    let gate =
        gate(policy, |seen| {
            let ids = seen.json();
            let answers: Vec<_> = ids.as_array().unwrap().iter().map(|asked| {
            json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "content": [] } })
        }).collect();
            Reply::json(200, &json!(answers))
        })
        .await;
    let fine = json!([call(1, "ls", json!({})), call(2, "cat", json!({}))]);
    let got = gate.ask(&post("files", &fine).by("a", "s")).await;
    assert_eq!(got.json().as_array().unwrap().len(), 2);
    let bad = json!([call(3, "ls", json!({})), call(4, "rm", json!({}))]);
    let got = gate.ask(&post("files", &bad).by("a", "s")).await.json();
    assert_eq!(got[0]["error"]["data"]["reason"], "batch_refused");
    assert_eq!(got[1]["error"]["data"]["reason"], "tool_denied");
    assert_eq!(gate.upstream.requests(), 1);
    until("nothing in flight", || async { gate.scope("s").await["in_flight"] == 0 }).await;
}

#[tokio::test]
async fn who_is_calling() {
    let gate = gate(json!({}), |seen| Reply::json(200, &said(seen, "x"))).await;
    let ask = |path: &str| Ask::post(path, &call(1, "read", json!({})));
    for (ask, agent, session) in [
        (ask("/agent/a%201/mcp/files"), "a 1", "default"),
        (ask("/agent/b/session/s%2F1/mcp/files"), "b", "s/1"),
        (ask("/mcp/files").by("c", "s3"), "c", "s3"),
        (ask("/mcp/files").with("mcp-session-id", "m-4"), "default", "m-4"),
        (ask("/mcp/files").with("mcp-session-id", "m-5").by("e", "s5"), "e", "s5"),
    ] {
        assert_eq!(gate.ask(&ask).await.status, 200);
        let status = gate.ask(&Ask::get("/api/status")).await.json();
        let found = status["scopes"].as_array().unwrap().iter().any(|scope| {
            scope["kind"] == "session" && scope["agent"] == agent && scope["name"] == session
        });
        assert!(found, "{agent} {session}: {status}");
    }
    let lost = gate.ask(&ask("/mcp/unknown")).await;
    assert_eq!(lost.status, 404);
    assert!(lost.text().contains("/mcp/catalogue, /mcp/files"), "{}", lost.text());
    // Pages of other origins, and names that were made to resolve to us.
    for (name, value) in [("origin", "https://evil.example"), ("host", "evil.example:4141")] {
        let got = gate.ask(&ask("/mcp/files").with(name, value)).await;
        assert_eq!(got.status, 403, "{name}");
    }
    let requests = gate.upstream.requests();
    // Headers that differ from the body are refused: a proxy would route by them.
    for (name, value) in [("mcp-method", "ping"), ("mcp-name", "other")] {
        let got = gate.ask(&ask("/mcp/files").with(name, value)).await;
        assert_eq!(got.status, 400, "{name}");
    }
    let stateless = ask("/mcp/files").with("mcp-method", "tools/call").with("mcp-name", "read");
    assert_eq!(gate.ask(&stateless).await.status, 200);
    // What cannot be read is not passed on.
    for body in ["nonsense", r#"{"id":1,"Method":"tools/call"}"#] {
        let ask = Ask { body: body.into(), ..ask("/mcp/files") };
        assert_eq!(gate.ask(&ask).await.json()["error"]["code"], -32700);
    }
    assert_eq!(gate.upstream.requests(), requests + 1);
}

#[tokio::test]
async fn keys_are_asked_for() {
    let gate = gate(json!({}), |seen| Reply::json(200, &said(seen, "x"))).await;
    let admin = json!({ "name": "me", "role": "admin" });
    let admin =
        gate.ask(&Ask::post("/api/keys", &admin)).await.json()["key"].as_str().unwrap().to_owned();
    let agent = json!({ "name": "ci", "role": "agent", "agent": "bound" });
    let agent = gate.ask(&Ask::post("/api/keys", &agent).key(&admin)).await.json()["key"]
        .as_str()
        .unwrap()
        .to_owned();
    let ask = || post("files", &call(1, "read", json!({}))).by("other", "s");
    assert_eq!(gate.ask(&ask()).await.status, 401);
    assert_eq!(gate.ask(&ask().with("x-deadstop-key", "ds_wrong")).await.status, 401);
    assert_eq!(gate.upstream.requests(), 0);
    assert_eq!(gate.ask(&ask().with("x-deadstop-key", &agent)).await.status, 200);
    let seen = gate.upstream.last();
    assert!(seen.headers.iter().all(|(_, value)| !value.contains("ds_")), "{seen:?}");
    let status = gate.ask(&Ask::get("/api/status").key(&admin)).await.json();
    assert!(status["scopes"].as_array().unwrap().iter().any(|scope| scope["name"] == "bound"));
}

/// Calls that were all made before, in another order: only their results show that nothing is new.
#[tokio::test]
async fn what_a_result_shows_is_told_behind_that_result() {
    for stream in [false, true] {
        let gate = gate(json!({ "loop": { "block_at": 6, "end_at": 8 } }), move |seen| {
            let tool = seen.json()["params"]["name"].as_str().unwrap_or_default().to_owned();
            let answer = said(seen, &format!("the whole of {tool}, as it was"));
            match stream {
                true => Reply::events(&[event(&answer)]),
                false => Reply::json(200, &answer),
            }
        })
        .await;
        let mut notes = Vec::new();
        for (id, tool) in (1..).zip(["a", "b", "c", "d", "b", "a", "d"]) {
            let ask = post("files", &call(id, &format!("read_{tool}"), json!({}))).by("x", "s");
            let text = gate.ask(&ask).await.text();
            assert!(text.contains(&format!("the whole of read_{tool}")), "{text}");
            notes.push(text.contains("[Deadstop] "));
        }
        assert_eq!(notes, [false, false, false, false, false, false, true], "stream: {stream}");
    }
}
