//! Sessions for clients that bring none: where the server gives no `Mcp-Session-Id`, and in the protocol
//! of 2026-07-28, which has no sessions. Without them all clients of an agent would share one session,
//! and after its end the next client would be refused.
//!
//! Deadstop gives such a client an id of its own, in both ways that clients send back: as
//! `Mcp-Session-Id` and as a cookie. The server sees neither.

use axum::body::Body;
use deadstop_protocol::mcp::Message;
use http::{HeaderMap, HeaderValue, Response, header};

use super::MCP_SESSION;

/// What the ids of Deadstop begin with.
const OURS: &str = "deadstop-";
/// The cookie's name.
const COOKIE: &str = "deadstop-mcp";

/// The session that a client says it has, by the protocol's header or by the cookie.
pub(super) fn brought(headers: &HeaderMap) -> Option<&str> {
    let named = headers.get(MCP_SESSION).and_then(|id| id.to_str().ok());
    named.or_else(|| {
        let cookies = headers.get_all(header::COOKIE).into_iter();
        let mut cookies = cookies.filter_map(|value| value.to_str().ok()).flat_map(pairs);
        cookies.find_map(own).filter(|id| id.starts_with(OURS))
    })
}

/// Whether the client names a session that the server does not know.
pub(super) fn is_ours(headers: &HeaderMap) -> bool {
    headers.get(MCP_SESSION).is_some_and(|id| id.as_bytes().starts_with(OURS.as_bytes()))
}

/// Takes out what the server did not give the client.
pub(super) fn hide(headers: &mut HeaderMap) {
    if is_ours(headers) {
        headers.remove(MCP_SESSION);
    }
    let cookies: Vec<HeaderValue> = headers.get_all(header::COOKIE).into_iter().cloned().collect();
    let has = |value: &HeaderValue| {
        value.to_str().is_ok_and(|text| pairs(text).any(|p| own(p).is_some()))
    };
    if !cookies.iter().any(has) {
        return;
    }
    headers.remove(header::COOKIE);
    for value in cookies {
        let Ok(text) = value.to_str() else {
            headers.append(header::COOKIE, value);
            continue;
        };
        let others: Vec<&str> = pairs(text).filter(|pair| own(pair).is_none()).collect();
        if let (false, Ok(value)) = (others.is_empty(), others.join("; ").parse()) {
            headers.append(header::COOKIE, value);
        }
    }
}

/// A new id.
pub(super) fn made() -> String {
    format!("{OURS}{}", uuid::Uuid::new_v4().simple())
}

/// Whether a message opens a connection: the client has no session by then, and is about to have one.
pub(super) fn opens(message: &Message<'_>) -> bool {
    message.asks_for("initialize") || message.asks_for("server/discover")
}

/// Gives a client its id, unless the server gave it one.
pub(super) fn offer(response: &mut Response<Body>, id: &str) {
    let headers = response.headers_mut();
    if headers.contains_key(MCP_SESSION) {
        return;
    }
    let cookie = format!("{COOKIE}={id}; Path=/; HttpOnly; SameSite=Strict");
    if let (Ok(id), Ok(cookie)) = (HeaderValue::from_str(id), HeaderValue::from_str(&cookie)) {
        headers.insert(MCP_SESSION, id);
        headers.append(header::SET_COOKIE, cookie);
    }
}

fn pairs(cookies: &str) -> impl Iterator<Item = &str> {
    cookies.split(';').map(str::trim).filter(|pair| !pair.is_empty())
}

/// The value of a pair, if it is our cookie.
fn own(pair: &str) -> Option<&str> {
    pair.strip_prefix(COOKIE)?.strip_prefix('=')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_by_header_or_cookie_and_are_hidden_from_servers() {
        for (session, cookie, found, left) in [
            (Some("abc"), None, Some("abc"), (Some("abc"), None)),
            (Some("deadstop-1"), None, Some("deadstop-1"), (None, None)),
            (None, Some("deadstop-mcp=deadstop-2"), Some("deadstop-2"), (None, None)),
            (
                None,
                Some("a=b; deadstop-mcp=deadstop-2;c=d"),
                Some("deadstop-2"),
                (None, Some("a=b; c=d")),
            ),
            (None, Some("deadstop-mcp=other"), None, (None, None)),
            (None, Some("a=b;c=d"), None, (None, Some("a=b;c=d"))),
            (Some("abc"), Some("deadstop-mcp=deadstop-2"), Some("abc"), (Some("abc"), None)),
            (None, None, None, (None, None)),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(session) = session {
                headers.insert(MCP_SESSION, session.parse().unwrap());
            }
            if let Some(cookie) = cookie {
                headers.insert(header::COOKIE, cookie.parse().unwrap());
            }
            assert_eq!(brought(&headers), found, "{session:?} {cookie:?}");
            hide(&mut headers);
            let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap());
            assert_eq!((text(MCP_SESSION), text("cookie")), left, "{session:?} {cookie:?}");
        }
    }
}
