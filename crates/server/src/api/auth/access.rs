//! Who may do what: one table for the router, the document and the test.

use axum::http::Method;

use super::Role;

/// What a route asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: it tells nobody anything.
    Nothing,
    /// A role, or one above it.
    Role(Role),
}

use Need::Nothing;

const AGENT: Need = Need::Role(Role::Agent);
const VIEWER: Need = Need::Role(Role::Viewer);
const OPERATOR: Need = Need::Role(Role::Operator);
const ADMIN: Need = Need::Role(Role::Admin);

/// Every route of the API. A route that is not listed here is not served.
///
/// A viewer sees, an operator gives orders and sets guards, an admin decides who may do what and
/// where things are sent. An agent's key is for calls; of the API it has what is about itself.
pub(crate) const ROUTES: &[(&str, &str, Need)] = &[
    ("GET", "/", Nothing),
    ("GET", "/healthz", Nothing),
    ("GET", "/readyz", Nothing),
    ("GET", "/metrics", VIEWER),
    ("GET", "/api/openapi.json", Nothing),
    ("GET", "/api/docs", Nothing),
    ("POST", "/api/login", Nothing),
    ("POST", "/api/logout", AGENT),
    ("GET", "/api/whoami", AGENT),
    ("GET", "/api/status", VIEWER),
    ("GET", "/api/events", VIEWER),
    ("GET", "/api/incidents", VIEWER),
    ("POST", "/api/sessions", AGENT),
    ("POST", "/api/sessions/{agent}/{session}/preflight", AGENT),
    ("POST", "/api/sessions/{agent}/{session}/proposal", AGENT),
    ("POST", "/api/sessions/{agent}/{session}/progress", AGENT),
    ("POST", "/api/sessions/{agent}/{session}/receipt", AGENT),
    ("POST", "/api/kill", OPERATOR),
    ("POST", "/api/clear", OPERATOR),
    ("POST", "/api/reset", OPERATOR),
    ("POST", "/api/pause", OPERATOR),
    ("POST", "/api/resume", OPERATOR),
    ("GET", "/api/keys", ADMIN),
    ("POST", "/api/keys", ADMIN),
    ("DELETE", "/api/keys/{id}", ADMIN),
];

/// What the route that matched asks for; `None` if nobody thought of it.
pub(crate) fn need(method: &Method, path: &str) -> Option<Need> {
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    let found = ROUTES.iter().find(|(m, p, _)| *m == method && *p == path);
    found.map(|(_, _, need)| *need)
}
