//! A project's settings: which texts of requests and answers are kept, for how long, and which
//! secrets of its own are redacted.

use std::sync::Arc;

use deadstop_protocol::policy_views::FieldFault;
use deadstop_redact::{Pattern, Redactor};
use deadstop_store::Kept;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::plain::Plain;

/// The name under which the settings are stored.
pub const NAME: &str = "project";

/// Which requests and answers are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Capture {
    /// Nothing.
    None,
    /// Those that an incident is about.
    #[default]
    Incidents,
    /// All of them.
    All,
}

/// How many days records are kept; null means forever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Calls (daily totals are kept).
    #[schema(required, minimum = 1, maximum = 36500)]
    pub calls_days: Option<u32>,
    /// Requests and answers of single calls.
    #[schema(required, minimum = 1, maximum = 36500)]
    pub payloads_days: Option<u32>,
    /// Requests and answers kept as evidence of incidents.
    #[schema(required, minimum = 1, maximum = 36500)]
    pub evidence_days: Option<u32>,
    /// Sessions, counted from their last use.
    #[schema(required, minimum = 1, maximum = 36500)]
    pub sessions_days: Option<u32>,
    /// Incidents, with their evidence.
    #[schema(required, minimum = 1, maximum = 36500)]
    pub incidents_days: Option<u32>,
    /// Alerts that were delivered or given up.
    #[schema(required, minimum = 1, maximum = 36500)]
    pub deliveries_days: Option<u32>,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention {
            calls_days: Some(90),
            payloads_days: Some(30),
            evidence_days: Some(365),
            sessions_days: Some(365),
            incidents_days: None,
            deliveries_days: Some(30),
        }
    }
}

/// A pattern of secrets that only this project has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretPattern {
    /// The text in its place is `[redacted:name]`.
    #[schema(min_length = 1, max_length = 40)]
    pub name: String,
    /// A regular expression; if it has a group, only the group is redacted.
    #[schema(min_length = 1, max_length = 1000)]
    pub regex: String,
}

/// The settings of a project.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Which requests and answers are kept.
    pub capture: Capture,
    /// How many days records are kept.
    pub retention: Retention,
    /// The project's own patterns, besides the built-in ones.
    #[schema(max_items = 64)]
    pub redaction: Vec<SecretPattern>,
}

impl Settings {
    /// Validates the settings; lists the patterns that cannot be used.
    pub fn in_force(&self) -> Result<InForce, Vec<FieldFault>> {
        let redactor =
            if self.redaction.is_empty() { Redactor::default() } else { self.redactor()? };
        let (capture, retention) = (self.capture, self.retention.clone());
        Ok(InForce { capture, retention, redactor, plain: Arc::default() })
    }

    /// The redactor for these settings; lists the patterns that cannot be used.
    fn redactor(&self) -> Result<Redactor, Vec<FieldFault>> {
        let pattern =
            |own: &SecretPattern| Pattern { name: own.name.clone(), regex: own.regex.clone() };
        let all: Vec<_> = self.redaction.iter().map(pattern).collect();
        Redactor::with_patterns(&all).map_err(|whole| {
            let alone = all.iter().enumerate().filter_map(|(at, pattern)| {
                let bad = Redactor::with_patterns(std::slice::from_ref(pattern)).err()?;
                Some(FieldFault::invalid(format!("redaction[{at}]"), bad.to_string()))
            });
            let mut faults: Vec<_> = alone.collect();
            if faults.is_empty() {
                faults.push(FieldFault::invalid("redaction", whole.to_string()));
            }
            faults
        })
    }
}

/// Validated settings.
#[derive(Clone, Default)]
pub struct InForce {
    /// Which texts are kept.
    pub capture: Capture,
    /// For how long.
    pub retention: Retention,
    /// Removes secrets.
    pub redactor: Redactor,
    /// Names in which it found none.
    pub(crate) plain: Arc<Plain>,
}

impl Retention {
    /// How many days a kind of record is kept; `None` means forever.
    pub fn days(&self, kept: Kept) -> Option<u32> {
        match kept {
            Kept::Calls | Kept::Hours => self.calls_days,
            Kept::Payloads => self.payloads_days,
            Kept::Evidence => self.evidence_days,
            Kept::Sessions | Kept::Scopes => self.sessions_days,
            Kept::Incidents | Kept::Rungs => self.incidents_days,
            Kept::Deliveries => self.deliveries_days,
            Kept::Logins => Some(1),
        }
    }
}
