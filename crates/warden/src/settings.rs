//! What a project wants kept: what of requests and answers, for how long, and which secrets of its own
//! are to be removed.

use deadstop_protocol::policy_views::FieldFault;
use deadstop_redact::{Pattern, Redactor};
use deadstop_store::Kept;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The name under which the settings are stored.
pub const NAME: &str = "project";

/// What of the requests and answers is kept.
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

/// How many days things are kept; null for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Calls. What they came to by day stays.
    #[schema(required, minimum = 1, maximum = 36500)]
    pub calls_days: Option<u32>,
    /// What was said in single calls.
    #[schema(required, minimum = 1, maximum = 36500)]
    pub payloads_days: Option<u32>,
    /// What was said before incidents.
    #[schema(required, minimum = 1, maximum = 36500)]
    pub evidence_days: Option<u32>,
    /// Sessions that nobody has used since.
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
    /// What stands in its place: `[redacted:name]`.
    #[schema(min_length = 1, max_length = 40)]
    pub name: String,
    /// A regular expression; if it has a group, only that is removed.
    #[schema(min_length = 1, max_length = 1000)]
    pub regex: String,
}

/// The settings of a project.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// What of the requests and answers is kept.
    pub capture: Capture,
    /// How many days things are kept.
    pub retention: Retention,
    /// Own patterns of secrets, besides those that are known.
    #[schema(max_items = 64)]
    pub redaction: Vec<SecretPattern>,
}

impl Settings {
    /// Settings as they are carried out; says which patterns cannot be used.
    pub fn in_force(&self) -> Result<InForce, Vec<FieldFault>> {
        let redactor =
            if self.redaction.is_empty() { Redactor::default() } else { self.redactor()? };
        Ok(InForce { capture: self.capture, retention: self.retention.clone(), redactor })
    }

    /// What removes secrets under these settings; says which patterns cannot be used.
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

/// Settings as they are carried out.
#[derive(Clone, Default)]
pub struct InForce {
    /// What is kept of texts.
    pub capture: Capture,
    /// For how long.
    pub retention: Retention,
    /// Removes secrets.
    pub redactor: Redactor,
}

impl Retention {
    /// How many days a kind is kept; `None` for ever.
    pub fn days(&self, kept: Kept) -> Option<u32> {
        match kept {
            Kept::Calls | Kept::Hours => self.calls_days,
            Kept::Payloads => self.payloads_days,
            Kept::Evidence => self.evidence_days,
            Kept::Sessions | Kept::Scopes => self.sessions_days,
            Kept::Incidents => self.incidents_days,
            Kept::Deliveries => self.deliveries_days,
            Kept::Logins => Some(1),
        }
    }
}
