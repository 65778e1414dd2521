//! Who may do what: one table for the router, the document and the test.

use axum::http::Method;

use super::Role;

/// What a route asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: the answer holds nothing confidential.
    Nothing,
    /// A role, or one above it.
    Role(Role),
    /// Reading metrics: a key for that alone, or a viewer's. An agent's key does not.
    Scraping,
    /// Acting as an agent: its own key, or an operator's. A viewer only looks.
    Acting,
}

impl Need {
    /// Whether a role is enough.
    pub(crate) fn met_by(self, role: Role) -> bool {
        match self {
            Need::Nothing => true,
            Need::Role(needed) => role >= needed,
            Need::Scraping => role == Role::Metrics || role >= Role::Viewer,
            Need::Acting => role == Role::Agent || role >= Role::Operator,
        }
    }

    /// The roles that are enough; nothing if none is asked for.
    pub(crate) fn roles(self) -> Vec<Role> {
        let all = [Role::Metrics, Role::Agent, Role::Viewer, Role::Operator, Role::Admin];
        match self {
            Need::Nothing => Vec::new(),
            need => all.into_iter().filter(|role| need.met_by(*role)).collect(),
        }
    }
}

use Need::{Acting, Nothing, Scraping};

const AGENT: Need = Need::Role(Role::Agent);
const VIEWER: Need = Need::Role(Role::Viewer);
const OPERATOR: Need = Need::Role(Role::Operator);
const ADMIN: Need = Need::Role(Role::Admin);

/// Every route of the API. A route that is not listed here is not served.
///
/// A viewer sees, an operator gives orders and sets guards, an admin decides who may do what and
/// where things are sent. An agent's key is for calls; of the API it has what is about itself. A key for
/// metrics goes into the configuration of a scraper, so it opens nothing else.
pub(crate) const ROUTES: &[(&str, &str, Need)] = &[
    ("GET", "/healthz", Nothing),
    ("GET", "/readyz", Nothing),
    ("GET", "/metrics", Scraping),
    ("GET", "/api/openapi.json", Nothing),
    ("GET", "/api/docs", Nothing),
    ("POST", "/api/login", Nothing),
    ("GET", "/api/sso", Nothing),
    ("GET", "/api/sso/login", Nothing),
    ("GET", "/api/sso/callback", Nothing),
    ("POST", "/api/logout", AGENT),
    ("GET", "/api/whoami", AGENT),
    ("GET", "/api/keys", ADMIN),
    ("POST", "/api/keys", ADMIN),
    ("DELETE", "/api/keys/{id}", ADMIN),
    ("GET", "/api/projects", VIEWER),
    ("POST", "/api/projects", ADMIN),
    ("GET", "/api/status", VIEWER),
    ("GET", "/api/events", VIEWER),
    ("POST", "/api/sessions", Acting),
    ("POST", "/api/sessions/{agent}/{session}/preflight", Acting),
    ("POST", "/api/sessions/{agent}/{session}/proposal", Acting),
    ("POST", "/api/sessions/{agent}/{session}/progress", Acting),
    ("POST", "/api/sessions/{agent}/{session}/receipt", Acting),
    ("POST", "/v1/traces", Acting),
    ("POST", "/v1/logs", Acting),
    ("POST", "/v1/metrics", Acting),
    ("GET", "/api/approvals", VIEWER),
    // An agent may wait for the word about its own call, and never say it.
    ("GET", "/api/approvals/{id}", AGENT),
    ("POST", "/api/approvals/{id}/approve", OPERATOR),
    ("POST", "/api/approvals/{id}/deny", OPERATOR),
    // An agent may not see what could be allowed, and never allow it.
    ("GET", "/api/allow", VIEWER),
    ("GET", "/api/allow/{code}", VIEWER),
    ("POST", "/api/allow/{code}", OPERATOR),
    ("POST", "/api/check", VIEWER),
    ("GET", "/api/mcp/tools", VIEWER),
    ("POST", "/api/mcp/tools", Acting),
    ("POST", "/api/mcp/tools/accept", OPERATOR),
    ("POST", "/api/backtest", VIEWER),
    ("POST", "/api/kill", OPERATOR),
    ("POST", "/api/clear", OPERATOR),
    ("POST", "/api/reset", OPERATOR),
    ("POST", "/api/pause", OPERATOR),
    ("POST", "/api/resume", OPERATOR),
    ("GET", "/api/agents", VIEWER),
    ("GET", "/api/agents/{name}", VIEWER),
    ("PATCH", "/api/agents/{name}", OPERATOR),
    ("DELETE", "/api/agents/{name}", OPERATOR),
    ("GET", "/api/agents/{name}/grants", VIEWER),
    ("POST", "/api/agents/{name}/grants", OPERATOR),
    ("POST", "/api/agents/{name}/grants/{id}/revoke", OPERATOR),
    ("GET", "/api/agents/{name}/prevention-config", VIEWER),
    ("PUT", "/api/agents/{name}/prevention-config", OPERATOR),
    ("DELETE", "/api/agents/{name}/prevention-config", OPERATOR),
    ("GET", "/api/agents/{name}/kill-switch", VIEWER),
    ("PUT", "/api/agents/{name}/kill-switch", OPERATOR),
    ("GET", "/api/projects/prevention-config", VIEWER),
    ("PUT", "/api/projects/prevention-config", OPERATOR),
    ("GET", "/api/policies", VIEWER),
    ("GET", "/api/policies/default", VIEWER),
    ("PUT", "/api/policies/default", OPERATOR),
    ("DELETE", "/api/policies/default", OPERATOR),
    ("GET", "/api/policies/default/versions", VIEWER),
    ("GET", "/api/policies/default/versions/{version}", VIEWER),
    ("GET", "/api/policies/default/diff", VIEWER),
    ("POST", "/api/policies/default/versions/{version}/restore", OPERATOR),
    ("GET", "/api/policies/agents/{name}", VIEWER),
    ("PUT", "/api/policies/agents/{name}", OPERATOR),
    ("DELETE", "/api/policies/agents/{name}", OPERATOR),
    ("GET", "/api/policies/agents/{name}/versions", VIEWER),
    ("GET", "/api/policies/agents/{name}/versions/{version}", VIEWER),
    ("GET", "/api/policies/agents/{name}/diff", VIEWER),
    ("POST", "/api/policies/agents/{name}/versions/{version}/restore", OPERATOR),
    ("GET", "/api/sessions", VIEWER),
    // An agent may look at its own session, and end it; never undo an end.
    ("GET", "/api/sessions/{agent}/{session}", AGENT),
    ("GET", "/api/sessions/{agent}/{session}/calls", AGENT),
    ("GET", "/api/sessions/{agent}/{session}/follow", AGENT),
    ("GET", "/api/sessions/{agent}/{session}/calls/{id}/state", AGENT),
    ("POST", "/api/sessions/{agent}/{session}/kill", Acting),
    ("POST", "/api/sessions/{agent}/{session}/pause", OPERATOR),
    ("POST", "/api/sessions/{agent}/{session}/resume", OPERATOR),
    ("POST", "/api/sessions/{agent}/{session}/reset", OPERATOR),
    ("POST", "/api/sessions/{agent}/{session}/top-up", OPERATOR),
    ("GET", "/api/sessions/{agent}/{session}/grants", VIEWER),
    ("POST", "/api/sessions/{agent}/{session}/grants", OPERATOR),
    ("POST", "/api/sessions/{agent}/{session}/grants/{id}/revoke", OPERATOR),
    ("GET", "/api/calls", VIEWER),
    ("GET", "/api/calls/{id}", VIEWER),
    ("GET", "/api/incidents", VIEWER),
    ("GET", "/api/incidents/groups", VIEWER),
    ("GET", "/api/incidents/{id}", VIEWER),
    ("POST", "/api/incidents/{id}/acknowledge", OPERATOR),
    ("POST", "/api/incidents/actions", OPERATOR),
    ("GET", "/api/incidents/mutes", VIEWER),
    ("GET", "/api/incidents/{id}/exceptions", VIEWER),
    ("POST", "/api/incidents/{id}/false-alarm", OPERATOR),
    ("GET", "/api/costs", VIEWER),
    ("GET", "/api/spend", VIEWER),
    ("GET", "/api/speed", VIEWER),
    ("GET", "/api/activity", VIEWER),
    ("GET", "/api/agent-health", VIEWER),
    ("GET", "/api/settings", VIEWER),
    ("PUT", "/api/settings", ADMIN),
    ("GET", "/api/prices", VIEWER),
    ("GET", "/api/prices/{name}", VIEWER),
    ("PUT", "/api/prices/{name}", OPERATOR),
    ("DELETE", "/api/prices/{name}", OPERATOR),
    ("GET", "/api/presets", VIEWER),
    ("GET", "/api/audit", OPERATOR),
    ("GET", "/api/audit/verify", OPERATOR),
    ("GET", "/api/audit/export", ADMIN),
    ("GET", "/api/alerts/targets", OPERATOR),
    ("POST", "/api/alerts/targets", ADMIN),
    ("GET", "/api/alerts/targets/{id}", OPERATOR),
    ("PUT", "/api/alerts/targets/{id}", ADMIN),
    ("DELETE", "/api/alerts/targets/{id}", ADMIN),
    ("POST", "/api/alerts/targets/{id}/test", OPERATOR),
    ("GET", "/api/alerts/deliveries", OPERATOR),
];

/// What the matched route asks for; `None` if the table has no line for it.
pub(crate) fn need(method: &Method, path: &str) -> Option<Need> {
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    let found = ROUTES.iter().find(|(m, p, _)| *m == method && *p == path);
    found.map(|(_, _, need)| *need)
}

/// What tightens control. While there are no keys every process of the machine may do it: the one
/// button always works.
const TIGHTENS: &[(&str, &str)] = &[
    ("POST", "/api/kill"),
    ("POST", "/api/pause"),
    ("POST", "/api/sessions/{agent}/{session}/pause"),
    ("POST", "/api/approvals/{id}/deny"),
    ("POST", "/api/agents/{name}/grants/{id}/revoke"),
    ("POST", "/api/sessions/{agent}/{session}/grants/{id}/revoke"),
    // Its handler looks: to switch an agent off tightens, all else does not.
    ("PATCH", "/api/agents/{name}"),
];

/// Whether a change is open to a process that may be an agent: it belongs to making calls, or it
/// tightens control.
pub(crate) fn is_open(method: &Method, path: &str, need: Need) -> bool {
    let acts = matches!(need, Acting | AGENT | VIEWER);
    acts || TIGHTENS.iter().any(|(m, p)| *m == method.as_str() && *p == path)
}
