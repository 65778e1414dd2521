//! The other end: sending a request on to its provider.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::route::Route;
use super::{Gateway, KEY_HEADERS, keep_headers};
use crate::config::{Provider, Secret};
use deadstop_protocol::llm::Api;

/// A client that keeps connections open and leaves headers as they are.
pub(super) type Client =
    hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Makes one.
pub(super) fn client() -> Client {
    let mut http = HttpConnector::new();
    http.set_nodelay(true);
    http.enforce_http(false);
    http.set_connect_timeout(Some(std::time::Duration::from_secs(10)));
    let https = HttpsConnectorBuilder::new()
        .with_webpki_roots()
        .https_or_http()
        .enable_http1()
        .wrap_connector(http);
    hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(std::time::Duration::from_secs(60))
        .http1_preserve_header_case(true)
        .build(https)
}

/// Why nothing came back.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    #[error("the upstream's address is not valid")]
    Address,
    #[error("the upstream did not answer in time")]
    Timeout,
    #[error("the upstream cannot be reached: {0}")]
    Unreachable(String),
}

/// Sends a request on.
pub(super) async fn send(
    gateway: &Gateway,
    mut parts: Parts,
    body: Bytes,
    route: &Route<'_>,
) -> Result<Response<Incoming>, Failed> {
    parts.uri = route.target().ok_or(Failed::Address)?;
    parts.version = http::Version::HTTP_11;
    let host = parts.uri.authority().map(|authority| authority.as_str().to_owned());
    if let Some(host) = host.and_then(|host| HeaderValue::from_str(&host).ok()) {
        parts.headers.insert(header::HOST, host);
    }
    if parts.headers.contains_key(header::CONTENT_LENGTH) {
        // The body may have become longer.
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    authorise(&mut parts, route.provider);
    let request = Request::from_parts(parts, Full::new(body));
    let sent = gateway.client.request(request);
    match tokio::time::timeout(gateway.config.upstream_timeout, sent).await {
        Err(_) => Err(Failed::Timeout),
        Ok(Err(error)) => {
            let mut causes = vec![error.to_string()];
            let mut cause = std::error::Error::source(&error);
            while let Some(deeper) = cause {
                causes.push(deeper.to_string());
                cause = deeper.source();
            }
            Err(Failed::Unreachable(causes.join(": ")))
        }
        Ok(Ok(response)) => Ok(response),
    }
}

/// Puts the server's own key in, where it holds one.
fn authorise(parts: &mut Parts, provider: &Provider) {
    let Some(key) = &provider.key else { return };
    let (name, value) = credential(provider.api, key);
    keep_headers(&mut parts.headers, |name| !KEY_HEADERS.contains(&name.as_str()));
    if let Ok(mut value) = HeaderValue::from_str(&value) {
        value.set_sensitive(true);
        parts.headers.insert(name, value);
    }
}

fn credential(api: Api, key: &Secret) -> (HeaderName, String) {
    match api {
        Api::OpenAi => (header::AUTHORIZATION, format!("Bearer {}", key.reveal())),
        Api::Anthropic => (HeaderName::from_static("x-api-key"), key.reveal().to_owned()),
        Api::Gemini => (HeaderName::from_static("x-goog-api-key"), key.reveal().to_owned()),
    }
}
