//! How the server ends here, a provider behind it, and a client that may find it dead.

use std::process::Command;
use std::time::{Duration, Instant};

use axum::Json;
use axum::routing::post;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::server::{OPERATOR, Server};

/// A provider whose answers all cost the same and take a moment.
pub(crate) async fn provider() -> String {
    let answer = || async {
        tokio::time::sleep(Duration::from_millis(3)).await;
        Json(json!({
            "id": "chatcmpl-1", "object": "chat.completion", "model": "gpt-4o",
            "choices": [{
                "index": 0, "finish_reason": "stop",
                "message": { "role": "assistant", "content": "Done." },
            }],
            "usage": { "prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100 },
        }))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = axum::Router::new().route("/v1/chat/completions", post(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

impl Server {
    /// SIGKILL: no chance to write anything.
    pub(crate) fn crash(mut self) -> Instant {
        self.process.kill().unwrap();
        let at = Instant::now();
        self.process.wait().unwrap();
        at
    }

    /// Ends it as Ctrl-C does.
    pub(crate) fn stop(mut self) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status().unwrap();
        assert!(sent.success());
        self.process.wait().unwrap();
    }
}

/// A client that may find the server dead.
#[derive(Clone)]
pub(crate) struct Caller(Client<HttpConnector, Full<Bytes>>);

impl Caller {
    pub(crate) fn new() -> Caller {
        Caller(Client::builder(TokioExecutor::new()).build_http())
    }

    /// Status and body, if a whole answer came.
    pub(crate) async fn send(
        &self,
        request: hyper::http::request::Builder,
        body: &Value,
    ) -> Option<(u16, Value)> {
        let request = request.header("content-type", "application/json");
        let request = request.header("x-deadstop-operator", OPERATOR);
        let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
        let response = self.0.request(request).await.ok()?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.ok()?.to_bytes();
        Some((status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    /// A model call through the gateway.
    pub(crate) async fn call(&self, url: &str, agent: &str, session: &str) -> Option<(u16, Value)> {
        let request = Request::post(format!("{url}/agent/{agent}/openai/v1/chat/completions"))
            .header("x-deadstop-session", session);
        let says = json!([{ "role": "user", "content": "Go on" }]);
        self.send(request, &json!({ "model": "gpt-4o", "messages": says })).await
    }

    /// Whether an order was acknowledged.
    pub(crate) async fn order(&self, url: &str, what: &str, order: &Value) -> bool {
        let sent = self.send(Request::post(format!("{url}/api/{what}")), order).await;
        matches!(sent, Some((200, _)))
    }

    /// Asks the API; status and body, if a whole answer came.
    pub(crate) async fn ask(
        &self,
        method: &str,
        url: &str,
        path: &str,
        body: &Value,
    ) -> Option<(u16, Value)> {
        let request = Request::builder().method(method).uri(format!("{url}{path}"));
        self.send(request, body).await
    }
}
