//! The way to an MCP server: what is sent on, and what it is told about calls that were stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use deadstop_protocol::mcp;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full};

use super::named;
use super::oauth::Noted;
use super::span::Spans;
use crate::config::McpServer;
use crate::door::{Answer, Lines, OURS, keep_headers, strip_hop_by_hop};
use deadstop_warden::Stops;

/// How long a server may take to hear that a call was cancelled.
const TOLD: Duration = Duration::from_secs(5);

/// How long a task of a server is watched, and of how many answers.
const LONGEST_TASK: Duration = Duration::from_secs(24 * 60 * 60);
const MOST_WATCHED: usize = 10_000;
static WATCHED: AtomicUsize = AtomicUsize::new(0);

/// Where requests go.
#[derive(Clone)]
pub(super) struct Upstream {
    pub(super) name: String,
    pub(super) server: McpServer,
    pub(super) lines: Arc<Lines>,
    pub(super) noted: Arc<Noted>,
}

/// A request that is to be sent on.
pub(super) struct Onward {
    pub(super) upstream: Upstream,
    method: Method,
    headers: HeaderMap,
    uri: Uri,
    body: Bytes,
    /// Where Deadstop has the metadata of this resource.
    metadata: Option<String>,
}

impl Onward {
    pub(super) fn new(
        parts: &Parts,
        body: Bytes,
        upstream: Upstream,
        metadata: Option<String>,
    ) -> Onward {
        let mut headers = parts.headers.clone();
        strip_hop_by_hop(&mut headers);
        named::hide(&mut headers);
        // The origin was checked here. It names Deadstop's address and means nothing to the server.
        let ours = |name: &HeaderName| OURS.contains(&name.as_str()) || name == header::ORIGIN;
        // Deadstop keys are never passed on, in whichever header they stand.
        let is_key = |value: &HeaderValue| {
            let value = value.as_bytes();
            value.strip_prefix(b"Bearer ").unwrap_or(value).starts_with(b"ds_")
        };
        let keys: Vec<HeaderName> = headers
            .iter()
            .filter(|(_, value)| is_key(value))
            .map(|(name, _)| name.clone())
            .collect();
        keep_headers(&mut headers, |name| !ours(name) && !keys.contains(name));
        let uri = target(&upstream.server.url, parts.uri.query());
        let host = uri.authority().map(|authority| HeaderValue::from_str(authority.as_str()));
        if let Some(Ok(host)) = host {
            headers.insert(header::HOST, host);
        }
        for (name, value) in &upstream.server.headers {
            let name = name.parse::<HeaderName>();
            if let (Ok(name), Ok(mut value)) = (name, HeaderValue::from_str(value.reveal())) {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        }
        Onward { upstream, method: parts.method.clone(), headers, uri, body, metadata }
    }

    /// Asks for an uncompressed answer, as it will be read.
    pub(super) fn plainly(&mut self) {
        if self.headers.contains_key(header::ACCEPT_ENCODING) {
            let plainly = HeaderValue::from_static("identity");
            self.headers.insert(header::ACCEPT_ENCODING, plainly);
        }
    }

    /// Tells the server of our span.
    pub(super) fn in_span(&mut self, spans: Spans) {
        spans.put_into(&mut self.headers);
    }

    /// Whether it resumes a stream that broke off.
    pub(super) fn resumes(&self) -> bool {
        self.method == Method::GET && self.headers.contains_key("last-event-id")
    }

    /// Sends it and waits for the head of its answer.
    pub(super) async fn send(&self) -> Result<Response<Answer>, String> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let Upstream { name, lines, server, noted } = &self.upstream;
        let sent = lines.send(&server.way, request).await;
        let mut response = sent.map_err(|broken| broken.to_string())?;
        let demands = matches!(response.status().as_u16(), 401 | 403);
        if let Some(metadata) = self.metadata.as_ref().filter(|_| demands) {
            noted.rewrite(name, response.headers_mut(), metadata);
        }
        Ok(response)
    }

    /// Tells the server that these calls are cancelled. The notification is sent in the background.
    pub(super) fn cancel(&self, ids: &[String], reason: &str) {
        for id in ids {
            tokio::spawn(self.telling("notifications/cancelled", mcp::cancelled(id, reason)));
        }
    }

    /// Waits with tasks that the server has begun for calls of a chain, and cancels them when it is stopped.
    pub(super) fn watch_tasks(&self, ids: &[String], mut stops: Stops) {
        if ids.is_empty() || WATCHED.load(Ordering::Relaxed) >= MOST_WATCHED {
            return;
        }
        WATCHED.fetch_add(1, Ordering::Relaxed);
        let cancel: Vec<_> =
            ids.iter().map(|id| self.telling("tasks/cancel", mcp::cancelled_task(id))).collect();
        tokio::spawn(async move {
            let stopped = std::future::poll_fn(|context| stops.poll(context));
            if tokio::time::timeout(LONGEST_TASK, stopped).await.is_ok() {
                for told in cancel {
                    told.await;
                }
            }
            WATCHED.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Sends a message of Deadstop's own, in the client's session.
    fn telling(
        &self,
        method: &'static str,
        body: Vec<u8>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let mut headers = self.headers.clone();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        headers.remove("mcp-name");
        headers.remove(header::CONTENT_ENCODING);
        if headers.contains_key("mcp-method") {
            headers.insert("mcp-method", HeaderValue::from_static(method));
        }
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = headers;
        let lines = Arc::clone(&self.upstream.lines);
        let way = self.upstream.server.way.clone();
        async move {
            let told = async {
                if let Ok(response) = lines.send(&way, request).await {
                    let _ = response.into_body().collect().await;
                }
            };
            let _ = tokio::time::timeout(TOLD, told).await;
        }
    }
}

/// The server's endpoint, with what a client has added to it.
fn target(url: &Uri, query: Option<&str>) -> Uri {
    let all = match (url.query(), query) {
        (_, None) => return url.clone(),
        (None, Some(theirs)) => theirs.to_owned(),
        (Some(own), Some(theirs)) => format!("{own}&{theirs}"),
    };
    let mut parts = url.clone().into_parts();
    parts.path_and_query = format!("{}?{all}", url.path()).parse().ok();
    Uri::from_parts(parts).unwrap_or_else(|_| url.clone())
}
