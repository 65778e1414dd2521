//! Clients without a session: each gets one, and the end of one is not the end of the next.

use serde_json::{Value, json};

use super::{call, error, gate, post, said};
use crate::support::{Ask, Gate, Got, Reply, Seen};

/// A server without sessions, unless it is asked for one.
fn stateless(seen: &Seen) -> Reply {
    let answer = said(seen, "fine").to_string();
    let length = answer.len().to_string();
    let mut headers = vec![("content-type", "application/json"), ("content-length", &length)];
    if seen.header("x-wants").is_some() {
        headers.push(("mcp-session-id", "theirs"));
    }
    Reply::head(200, &headers).then(crate::support::Step::Raw(answer.into_bytes()))
}

fn message(method: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": {} })
}

/// What a client learns about its session: the header and the cookie.
fn learned(got: &Got) -> (String, String) {
    let id = got.header("mcp-session-id").unwrap_or_default().to_owned();
    let cookie = got.header("set-cookie").unwrap_or_default();
    (id, cookie.split(';').next().unwrap_or_default().to_owned())
}

async fn works(gate: &Gate, ask: Ask) -> bool {
    error(&gate.ask(&ask).await).is_null()
}

#[tokio::test]
async fn the_end_of_one_client_is_not_the_end_of_the_next() {
    let gate = gate(json!({}), stateless).await;
    let read = || post("files", &call(2, "read", json!({})));
    for opening in ["initialize", "server/discover"] {
        let (id, cookie) = learned(&gate.ask(&post("files", &message(opening))).await);
        assert!(id.starts_with("deadstop-") && cookie == format!("deadstop-mcp={id}"), "{cookie}");
        // A client sends back the one or the other.
        assert!(works(&gate, read().with("mcp-session-id", &id)).await);
        assert!(works(&gate, read().with("cookie", &format!("a=b; {cookie}"))).await);
        let seen = gate.upstream.last();
        assert_eq!((seen.header("mcp-session-id"), seen.header("cookie")), (None, Some("a=b")));
        let order = json!({ "agent": "default", "session": id, "reason": "enough" });
        gate.order("kill", order).await;
        assert!(!works(&gate, read().with("mcp-session-id", &id)).await);
        assert!(!works(&gate, read().with("cookie", &cookie)).await);
        // A refusal offers no other session.
        let refused = gate.ask(&read().with("cookie", &cookie)).await;
        assert_eq!(learned(&refused), Default::default());
        let (next, _) = learned(&gate.ask(&post("files", &message(opening))).await);
        assert_ne!(next, id);
        assert!(works(&gate, read().with("mcp-session-id", &next)).await);
        // The server never had it, so it is not asked to end it.
        let before = gate.upstream.requests();
        let over = Ask::of("DELETE", "/mcp/files", None).with("mcp-session-id", &next);
        assert_eq!((gate.ask(&over).await.status, gate.upstream.requests()), (200, before));
    }
}

#[tokio::test]
async fn a_session_with_a_name_keeps_it() {
    let gate = gate(json!({}), stateless).await;
    for opening in ["initialize", "server/discover", "tools/list", "tools/call"] {
        let mut message = message(opening);
        message["params"] = json!({ "name": "read", "arguments": {} });
        let ask = post("files", &message).with("x-wants", "a session");
        assert_eq!(learned(&gate.ask(&ask).await), ("theirs".to_owned(), String::new()));
        for named in [
            post("files", &message).by("a", "s"),
            post("files", &message).with("mcp-session-id", "theirs"),
        ] {
            assert_eq!(learned(&gate.ask(&named).await), Default::default(), "{opening}");
        }
        // A client that opens nothing learns its session with its first answer.
        let (id, cookie) = learned(&gate.ask(&post("files", &message)).await);
        assert!(!id.is_empty() && cookie.contains(&id), "{opening}");
    }
}
