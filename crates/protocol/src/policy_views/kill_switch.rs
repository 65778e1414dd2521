//! `kill-switch`: the similarity guard's settings, as seed A's page has them.

use deadstop_core::{PolicySet, RawPolicy, RawSimilarity, SimilaritySettings};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::field::{FieldFault, Fields};

/// The similarity kill switch of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct KillSwitch {
    /// Whether it looks at all.
    pub enabled: bool,
    /// Recent requests to look at.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1000, example = 20))]
    pub window_size: u32,
    /// The score that must be exceeded.
    #[cfg_attr(feature = "schema", schema(exclusive_minimum = 0.0, example = 10.0))]
    pub threshold: f64,
}

impl KillSwitch {
    const FIELDS: [&str; 3] = ["enabled", "window_size", "threshold"];

    /// What a policy says: of the agent's own window, or else of the window of each session.
    pub fn of(policies: &PolicySet) -> KillSwitch {
        let (agent, session) = (&policies.agent.similarity, &policies.session.similarity);
        let in_force = if session.enabled && !agent.enabled { session } else { agent };
        let SimilaritySettings { enabled, window_size, threshold, .. } = *in_force;
        KillSwitch { enabled, window_size, threshold }
    }

    /// Makes a policy say this. Its window is the agent's, over all sessions: those do not look by
    /// themselves any more.
    pub fn write(self, policies: &mut PolicySet) {
        let similarity = &mut policies.agent.similarity;
        similarity.enabled = self.enabled;
        similarity.window_size = self.window_size;
        similarity.threshold = self.threshold;
        policies.session.similarity.enabled = false;
        policies.nested.similarity.enabled = false;
    }

    /// Reads a body; every field must be there.
    ///
    /// ```
    /// use deadstop_protocol::policy_views::KillSwitch;
    /// let body = serde_json::json!({ "enabled": true, "window_size": 20, "threshold": 10.0 });
    /// assert_eq!(KillSwitch::read(&body).unwrap().window_size, 20);
    /// let faults = KillSwitch::read(&serde_json::json!({ "enabled": true, "size": 20 }));
    /// let fields: Vec<_> = faults.unwrap_err().into_iter().map(|fault| fault.field).collect();
    /// assert_eq!(fields, ["size", "window_size", "threshold"]);
    /// ```
    pub fn read(body: &Value) -> Result<KillSwitch, Vec<FieldFault>> {
        let mut faults = Vec::new();
        let switch = KillSwitch::read_at(body, "", &mut faults);
        if faults.is_empty() { switch.ok_or(faults) } else { Err(faults) }
    }

    /// Reads it as a part of a larger body.
    pub(super) fn read_at(
        body: &Value,
        path: &str,
        faults: &mut Vec<FieldFault>,
    ) -> Option<KillSwitch> {
        let fields = Fields::of(body, path, &Self::FIELDS, faults);
        let enabled = fields.read("enabled", "true or false", faults);
        let window_size: Option<u32> =
            fields.read("window_size", "a whole number from 1 to 1000", faults);
        let threshold: Option<f64> = fields.read("threshold", "a number above 0", faults);
        for (name, raw) in [
            ("window_size", RawSimilarity { window_size, ..RawSimilarity::default() }),
            ("threshold", RawSimilarity { threshold, ..RawSimilarity::default() }),
        ] {
            let alone = RawPolicy { similarity: Some(raw), ..RawPolicy::default() };
            if let Err(bad) = alone.resolve() {
                let detail = format!("{}; {}", bad.problem, bad.hint);
                faults.push(FieldFault::invalid(super::field::join(path, name), detail));
            }
        }
        Some(KillSwitch { enabled: enabled?, window_size: window_size?, threshold: threshold? })
    }
}
