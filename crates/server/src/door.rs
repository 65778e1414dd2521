//! What the doors that pass calls on have in common: who is calling, the beginning of a path, bodies
//! up to a size, connections to upstreams, and errors of our own.

mod caller;
mod chunks;
pub(crate) mod decode;
mod gate;
mod line;

use std::sync::Arc;
use std::time::Duration;

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use deadstop_core::Trip;
use deadstop_protocol::buffer::append;
use deadstop_protocol::llm::identity::{self, Identity};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;

use crate::api::auth::{KEY_HEADER, PROJECT_HEADER};
use crate::net::slow::Timed;
use crate::operator::OPERATOR_HEADER;
pub(crate) use caller::Caller;
use deadstop_warden::trace::{TRACEPARENT, Trace};
pub(crate) use line::{Answer, Lines, Sending, fetch};

/// The beginning of a path: `/agent/{name}` and `/session/{id}`, both optional.
pub(crate) struct Prefix<'a> {
    pub(crate) agent: Option<String>,
    pub(crate) session: Option<String>,
    /// What follows, without its slash.
    pub(crate) rest: &'a str,
}

impl Prefix<'_> {
    pub(crate) fn of(path: &str) -> Option<Prefix<'_>> {
        let mut rest = path.strip_prefix('/')?;
        let mut named = |what: &str| {
            let (name, after) = rest.strip_prefix(what)?.split_once('/')?;
            rest = after;
            let name = percent_decode_str(name).decode_utf8_lossy().into_owned();
            Some(name).filter(|name| !name.is_empty())
        };
        let (agent, session) = (named("agent/"), named("session/"));
        Some(Prefix { agent, session, rest })
    }
}

/// The agent, session and nested scopes that a request names.
pub(crate) fn identify(
    agent: Option<&str>,
    headers: &HeaderMap,
    hints: &deadstop_protocol::llm::BodyHints,
) -> Identity {
    let readable: Vec<(&str, &str)> = headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
        .collect();
    identity::identify(agent, &readable, hints)
}

/// Where clients put their keys.
pub(crate) const KEY_HEADERS: [&str; 4] =
    ["authorization", "x-api-key", "x-goog-api-key", "api-key"];

/// The keys that a client has brought.
pub(crate) fn brought(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    KEY_HEADERS
        .iter()
        .filter_map(|name| headers.get(*name)?.to_str().ok())
        .map(|value| value.strip_prefix("Bearer ").unwrap_or(value))
}

/// Headers that belong to one connection, not to the message.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    keep_headers(headers, |name| {
        !HOP_BY_HOP.contains(&name.as_str()) && !named.iter().any(|named| named == name.as_str())
    });
}

const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The trace that a request belongs to, as its caller says.
pub(crate) fn trace(headers: &HeaderMap) -> Option<Arc<Trace>> {
    Trace::parse(headers.get(TRACEPARENT)?.to_str().ok()?).map(Arc::new)
}

/// Headers that are for us and not for the provider.
pub(crate) const OURS: [&str; 6] = [
    "x-deadstop-agent",
    "x-deadstop-session",
    "x-deadstop-scope",
    KEY_HEADER,
    PROJECT_HEADER,
    OPERATOR_HEADER,
];

/// Keeps some headers, in their order: removing one by one would reorder the others.
pub(crate) fn keep_headers(headers: &mut HeaderMap, keep: impl Fn(&HeaderName) -> bool) {
    if headers.keys().all(&keep) {
        return;
    }
    let all = std::mem::take(headers);
    headers.reserve(all.len());
    let mut last = None;
    for (name, value) in all {
        // A value without a name belongs to the name before.
        last = name.or(last);
        if let Some(name) = last.as_ref().filter(|name| keep(name)) {
            headers.append(name, value);
        }
    }
}

/// Reads a body to its end, up to a size, into one piece of memory. Most come in one piece already.
pub(crate) async fn gathered<B>(body: B, most: usize) -> Result<Bytes, BoxError>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let mut body = Limited::new(body, most);
    // The length, if the sender says it.
    let length = body.size_hint().upper().and_then(|length| usize::try_from(length).ok());
    let most = length.map_or(most, |length| length.min(most));
    let (mut first, mut all) = (Bytes::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame?.into_data() else { continue };
        if first.is_empty() && all.is_empty() {
            first = piece;
            continue;
        }
        if all.is_empty() {
            append(&mut all, &std::mem::take(&mut first), most);
        }
        append(&mut all, &piece, most);
    }
    Ok(if all.is_empty() { first } else { Bytes::from(all) })
}

/// Reads a request's body, up to a size.
pub(crate) async fn read_body(
    body: Incoming,
    most: usize,
    limit: Duration,
) -> Result<Bytes, Response<Body>> {
    match gathered(Timed::new(body, limit), most).await {
        Ok(read) => Ok(read),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(larger()),
        Err(error) if is_late(&*error) => {
            let text = "the request took longer than body_timeout_seconds allows";
            Err(plain(StatusCode::REQUEST_TIMEOUT, text))
        }
        Err(_) => Err(plain(StatusCode::BAD_REQUEST, "the request broke off")),
    }
}

/// The answer to a request that is too large to be read.
pub(crate) fn larger() -> Response<Body> {
    let text = "the request is larger than max_body_mib allows";
    plain(StatusCode::PAYLOAD_TOO_LARGE, text)
}

fn is_late(error: &(dyn std::error::Error + 'static)) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::TimedOut)
}

/// The answer to a packed request that is too large to be read.
pub(crate) fn too_large() -> Response<Body> {
    plain(StatusCode::PAYLOAD_TOO_LARGE, decode::REQUEST_TOO_LARGE)
}

/// 503 with `Retry-After`, while the database is away.
pub(crate) fn unavailable(text: &str) -> Response<Body> {
    let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, text);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

/// An answer of the gateway's own, in a shape that every SDK can show.
pub(crate) fn plain(status: StatusCode, text: &str) -> Response<Body> {
    let body =
        serde_json::json!({ "error": { "message": text, "type": "deadstop", "code": null } });
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Warnings go out in headers.
pub(crate) fn warned(mut response: Response<Body>, trips: &[Trip]) -> Response<Body> {
    for trip in trips {
        if let Ok(value) = HeaderValue::from_str(&ascii(&trip.explain())) {
            response.headers_mut().append("x-deadstop-warning", value);
        }
    }
    response
}

/// Header values are ASCII; sentences may not be.
pub(crate) fn ascii(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii() && !c.is_ascii_control() { c } else { '?' }).collect()
}
