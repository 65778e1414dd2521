//! A stand-in for a provider: OpenAI's chat API, with three models that each have one habit.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Response, header};
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};

/// Starts it on a free port of this machine.
pub(super) async fn start() -> anyhow::Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let routes = Router::new().route("/v1/chat/completions", post(answer));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Ok(address)
}

async fn answer(Json(request): Json<Value>) -> Response<Body> {
    let results = request["messages"]
        .as_array()
        .map_or(0, |messages| messages.iter().filter(|message| message["role"] == "tool").count());
    match request["model"].as_str().unwrap_or_default() {
        "stand-in-janitor" => called("delete_asset", &json!({ "asset_id": "fact_sales" }), results),
        "stand-in-writer" => endless(),
        _ => match ["north", "south", "east"].get(results) {
            Some(region) => called("read_sales", &json!({ "region": region }), results),
            None => said("Sales are up in the north, flat in the south and down in the east."),
        },
    }
}

fn called(tool: &str, arguments: &Value, nth: usize) -> Response<Body> {
    let call = json!({
        "id": format!("call_{nth}"),
        "type": "function",
        "function": { "name": tool, "arguments": arguments.to_string() },
    });
    whole(&json!({ "role": "assistant", "content": null, "tool_calls": [call] }), "tool_calls")
}

fn said(text: &str) -> Response<Body> {
    whole(&json!({ "role": "assistant", "content": text }), "stop")
}

fn whole(message: &Value, finish: &str) -> Response<Body> {
    let body = json!({
        "id": "chatcmpl-stand-in",
        "object": "chat.completion",
        "model": "stand-in",
        "choices": [{ "index": 0, "message": message, "finish_reason": finish }],
        "usage": { "prompt_tokens": 60, "completion_tokens": 20, "total_tokens": 80 },
    });
    typed("application/json", Body::from(body.to_string()))
}

/// An answer that does not end by itself.
fn endless() -> Response<Body> {
    let words =
        ["sales", "rose", "then", "fell", "while", "margins", "held", "and", "costs", "grew"];
    let events = stream::unfold(0usize, move |n| async move {
        tokio::time::sleep(Duration::from_millis(1)).await;
        // Never quite the same twice, so that only the budget can end it.
        let (a, b, c) = (n * n % 10, (n * 7 + n / 10) % 10, n / 100 % 10);
        let text = format!("{} {} {} ", words[a], words[b], words[c]);
        let chunk = json!({
            "id": "chatcmpl-stand-in",
            "object": "chat.completion.chunk",
            "model": "stand-in",
            "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": null }],
        });
        Some((Ok::<_, Infallible>(Bytes::from(format!("data: {chunk}\n\n"))), n + 1))
    });
    typed("text/event-stream", Body::from_stream(events))
}

fn typed(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}
