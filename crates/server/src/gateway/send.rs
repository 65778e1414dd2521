//! The other end: sending a request on to its provider.

use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, header};
use http_body::Body as _;

use super::route::Route;
use crate::config::{Provider, Secret};
use crate::door::{Answer, KEY_HEADERS, Lines, Sending, keep_headers};
use deadstop_protocol::llm::Api;

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
    lines: &Lines,
    mut parts: Parts,
    body: Sending,
    route: &Route<'_>,
    most: Duration,
) -> Result<Response<Answer>, Failed> {
    parts.uri = route.target().ok_or(Failed::Address)?;
    parts.version = http::Version::HTTP_11;
    let host = parts.uri.authority().map(|authority| authority.as_str().to_owned());
    if let Some(host) = host.and_then(|host| HeaderValue::from_str(&host).ok()) {
        parts.headers.insert(header::HOST, host);
    }
    if let (true, Sending::Whole(body)) =
        (parts.headers.contains_key(header::CONTENT_LENGTH), &body)
        && let Some(length) = body.size_hint().exact()
    {
        // The body may have become longer.
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    authorise(&mut parts, route.provider);
    let request = Request::from_parts(parts, body);
    let sent = lines.send(&route.provider.way, request);
    match tokio::time::timeout(most, sent).await {
        Err(_) => Err(Failed::Timeout),
        Ok(Err(broken)) => Err(Failed::Unreachable(broken.to_string())),
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
