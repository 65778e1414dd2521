//! Retention: old rows are deleted in small pieces, so that other writers do not wait. Policies,
//! keys and the audit stay for good.

use deadstop_core::Time;

use crate::backend::{Query, sql};
use crate::number::Numbers;
use crate::{Store, StoreError};

/// What is kept for a while only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kept {
    /// Calls; daily totals are kept.
    Calls,
    /// What calls came to by the hour.
    Hours,
    /// What was said in single calls.
    Payloads,
    /// What was said before incidents.
    Evidence,
    /// Sessions without a call since.
    Sessions,
    /// The live state of sessions without a call since. Killed sessions stay: a kill is final.
    Scopes,
    /// Incidents, with their evidence.
    Incidents,
    /// What was done about them, step by step.
    Rungs,
    /// Alerts that were delivered or given up.
    Deliveries,
    /// Logins that have ended.
    Logins,
}

impl Kept {
    /// Every kind.
    pub const ALL: [Kept; 10] = [
        Kept::Calls,
        Kept::Hours,
        Kept::Payloads,
        Kept::Evidence,
        Kept::Sessions,
        Kept::Scopes,
        Kept::Incidents,
        Kept::Rungs,
        Kept::Deliveries,
        Kept::Logins,
    ];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Kept::Calls => "calls",
            Kept::Hours => "hours",
            Kept::Payloads => "payloads",
            Kept::Evidence => "evidence",
            Kept::Sessions => "sessions",
            Kept::Scopes => "scopes",
            Kept::Incidents => "incidents",
            Kept::Rungs => "rungs",
            Kept::Deliveries => "deliveries",
            Kept::Logins => "logins",
        }
    }
}

impl Store {
    /// Deletes at most so many rows of a project from before a time, the oldest first, and says how
    /// many they were: as long as that is `most`, there may be more.
    pub async fn prune(
        &self,
        project: &str,
        kept: Kept,
        before: Time,
        most: u32,
    ) -> Result<u64, StoreError> {
        self.backend.run(delete(project, kept, before).bind(most)).await
    }
}

fn delete(project: &str, kept: Kept, before: Time) -> Query<'_> {
    let (text, by_number) = match kept {
        Kept::Calls => (
            "DELETE FROM calls WHERE id IN (SELECT id FROM calls \
             WHERE project = $1 AND id < $2 ORDER BY id LIMIT $3)",
            true,
        ),
        Kept::Hours => (
            "DELETE FROM hour_costs WHERE (project, hour, agent_number, provider, model) IN \
             (SELECT project, hour, agent_number, provider, model FROM hour_costs \
             WHERE project = $1 AND hour < $2 / 3600000 ORDER BY hour LIMIT $3)",
            false,
        ),
        Kept::Payloads => (
            "DELETE FROM payloads WHERE call_id IN (SELECT call_id FROM payloads \
             WHERE project = $1 AND call_id < $2 ORDER BY call_id LIMIT $3)",
            true,
        ),
        Kept::Evidence => (
            "DELETE FROM evidence WHERE (incident, position) IN (SELECT incident, position \
             FROM evidence WHERE project = $1 AND at_ms < $2 ORDER BY at_ms LIMIT $3)",
            false,
        ),
        Kept::Sessions => (
            "DELETE FROM sessions WHERE number IN (SELECT number FROM sessions \
             WHERE project = $1 AND used_ms < $2 ORDER BY number LIMIT $3)",
            false,
        ),
        Kept::Scopes => (
            "DELETE FROM scopes WHERE key IN (SELECT key FROM scopes \
             WHERE kind IN ('session', 'scope') AND project = $1 AND updated_ms < $2 \
             AND killed = 0 LIMIT $3)",
            false,
        ),
        Kept::Incidents => (
            "DELETE FROM incidents WHERE id IN (SELECT id FROM incidents \
             WHERE project = $1 AND at_ms < $2 ORDER BY at_ms LIMIT $3)",
            false,
        ),
        Kept::Rungs => (
            "DELETE FROM incident_rungs WHERE (incident, strictness) IN (SELECT incident, \
             strictness FROM incident_rungs WHERE project = $1 AND last_ms < $2 \
             ORDER BY last_ms LIMIT $3)",
            false,
        ),
        Kept::Deliveries => (
            "DELETE FROM alert_deliveries WHERE id IN (SELECT id FROM alert_deliveries \
             WHERE project = $1 AND id < $2 AND state <> 'waiting' ORDER BY id LIMIT $3)",
            true,
        ),
        Kept::Logins => (
            "DELETE FROM logins WHERE id IN (SELECT id FROM logins \
             WHERE project = $1 AND expires_ms < $2 ORDER BY expires_ms LIMIT $3)",
            false,
        ),
    };
    let query = sql(text).bind(project);
    if by_number { query.bind(Numbers::first(before)) } else { query.bind(before) }
}
