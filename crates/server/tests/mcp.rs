//! The MCP gateway over HTTP, between scripted servers and raw clients.

mod fidelity;
mod flights;
mod guards;
mod oauth;
mod sessions;
mod tools;

use std::time::Duration;

use deadstop_server::{Config, McpServer};
use serde_json::{Value, json};

use crate::support::{Ask, Gate, Got, Reply, Seen};

/// Two MCP servers, `files` and `catalogue`, both at the scripted upstream.
pub(crate) fn servers(config: &mut Config, timeout: Duration) {
    let base = config.providers["openai"].base_url.to_string();
    for name in ["files", "catalogue"] {
        let url = format!("{}/{name}/mcp", base.trim_end_matches('/')).parse().unwrap();
        let headers = std::collections::BTreeMap::default();
        let way = config.providers["openai"].way.clone();
        config.mcp.insert(name.to_owned(), McpServer { url, way, headers, timeout });
    }
}

pub(crate) async fn gate(
    policy: Value,
    answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
) -> Gate {
    Gate::with(policy, answer, |config| servers(config, Duration::from_secs(60))).await
}

/// A request to an MCP server.
pub(crate) fn post(server: &str, message: &Value) -> Ask {
    Ask::post(&format!("/mcp/{server}"), message)
        .with("accept", "application/json, text/event-stream")
}

/// A tool call.
pub(crate) fn call(id: u64, tool: &str, arguments: Value) -> Value {
    let params = json!({ "name": tool });
    let mut call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    call["params"]["arguments"] = arguments;
    call
}

/// A server's answer to whatever it was asked.
pub(crate) fn said(seen: &Seen, text: &str) -> Value {
    let content = json!([{ "type": "text", "text": text }]);
    json!({ "jsonrpc": "2.0", "id": seen.json()["id"], "result": { "content": content } })
}

/// The same, as an error of the tool.
pub(crate) fn failed(seen: &Seen, text: &str) -> Value {
    let mut answer = said(seen, text);
    answer["result"]["isError"] = json!(true);
    answer
}

/// One message as an event.
pub(crate) fn event(message: &Value) -> Vec<u8> {
    format!("event: message\ndata: {message}\n\n").into_bytes()
}

/// The error that an answer holds; null if it holds none.
pub(crate) fn error(got: &Got) -> Value {
    assert_eq!(got.status, 200, "{}", got.text());
    let text = got.text();
    let data = text.lines().rev().find_map(|line| line.strip_prefix("data: "));
    let message: Value = serde_json::from_str(data.unwrap_or(&text)).unwrap();
    message["error"].clone()
}
