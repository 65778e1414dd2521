//! How this node stands among others, and what it has to do without: for the page, which says so on
//! every place.

use deadstop_core::FailMode;
use serde::Serialize;
use utoipa::ToSchema;

use deadstop_warden::{Project, Warden};

/// The nodes, as this one sees them.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Cluster {
    /// This node.
    node: String,
    /// All nodes that gave signs of life lately, this one among them.
    nodes: Vec<String>,
    /// Set while the shared state is away.
    #[schema(required)]
    degraded: Option<Degraded>,
}

/// Something that is missing.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Degraded {
    /// Since when.
    since_ms: u64,
    /// What is missing, and what becomes of calls meanwhile.
    what: String,
}

impl Cluster {
    /// None on a server that is alone.
    pub(crate) fn of(warden: &Warden, project: &Project) -> Option<Cluster> {
        let (node, nodes) = warden.peers()?;
        let policies = project.policies("");
        let meanwhile = match policies.session.fail_mode {
            FailMode::Open => format!(
                "this node judges by what it knows and lets pass {} calls of each agent at most",
                policies.session.offline_calls
            ),
            FailMode::Closed => "calls are refused until it is back, as the policy says".to_owned(),
        };
        let degraded = warden.unreachable().map(|(since, why)| Degraded {
            since_ms: since.0,
            what: format!("the state that all nodes share is away ({why}): {meanwhile}"),
        });
        Some(Cluster { node, nodes, degraded })
    }
}

impl Degraded {
    /// What is missing while the database takes no writes.
    pub(crate) fn database(warden: &Warden, project: &Project) -> Option<Degraded> {
        let outage = warden.outage()?;
        let meanwhile = match project.policies("").session.fail_mode {
            FailMode::Open => "calls go on and are judged by what is known",
            FailMode::Closed => "calls are refused until it is back, as the policy says",
        };
        let what = format!("the database takes no writes ({}): {meanwhile}", outage.name());
        Some(Degraded { since_ms: outage.since.0, what })
    }
}
