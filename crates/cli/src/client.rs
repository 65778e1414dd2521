//! A small client for the server's API.

use anyhow::Context;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use crate::ui::Hinted;

/// Talks to one server.
pub(crate) struct Client {
    base: String,
    http: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
}

impl Client {
    /// A client for the server at this URL.
    pub(crate) fn new(server: &str) -> anyhow::Result<Client> {
        let base = server.trim_end_matches('/').to_owned();
        let uri: Option<Uri> = base.parse().ok();
        if uri.and_then(|uri| uri.scheme_str().map(|s| s == "http")) != Some(true) {
            return Err(Hinted::error(
                format!("`{server}` is not the URL of a server"),
                "write it as http://127.0.0.1:4141",
            ));
        }
        let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build_http();
        Ok(Client { base, http })
    }

    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let response = self.send(Method::GET, path, None).await?;
        read(response).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let response = self.send(Method::POST, path, Some(body)).await?;
        read(response).await
    }

    /// Server-sent events, one JSON value each.
    pub(crate) async fn events(&self, path: &str) -> anyhow::Result<Events> {
        let response = self.send(Method::GET, path, None).await?;
        Ok(Events { body: response.into_body(), rest: Vec::new() })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Response<Incoming>> {
        let text = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(text)))?;
        self.http.request(request).await.map_err(|error| {
            Hinted::error(
                format!("no server answers at {}: {error}", self.base),
                "start one with `deadstop serve`, or name another with --server",
            )
        })
    }
}

async fn read(response: Response<Incoming>) -> anyhow::Result<Value> {
    let status = response.status();
    let body = response.into_body().collect().await.context("the server broke off")?.to_bytes();
    let value: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    if status.is_success() {
        return Ok(value);
    }
    let detail = value["detail"].as_str().map(str::to_owned);
    let detail = detail.unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned());
    Err(Hinted::error(
        format!("the server says no ({status}): {detail}"),
        "see `deadstop status` for what runs",
    ))
}

/// A stream of events.
pub(crate) struct Events {
    body: Incoming,
    rest: Vec<u8>,
}

impl Events {
    /// The next event; `None` when the stream has ended.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            if let Some(end) = self.rest.windows(2).position(|w| w == b"\n\n") {
                let event: Vec<u8> = self.rest.drain(..end + 2).collect();
                let text = String::from_utf8_lossy(&event);
                let data = text.lines().find_map(|line| line.strip_prefix("data: "));
                if let Some(value) = data.and_then(|data| serde_json::from_str(data).ok()) {
                    return Ok(Some(value));
                }
                continue;
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(bytes) = frame.context("the server broke off")?.into_data() {
                        self.rest.extend_from_slice(&bytes);
                    }
                }
            }
        }
    }
}
