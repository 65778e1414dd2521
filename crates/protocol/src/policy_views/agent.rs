//! An agent's document: what it has of its own, on top of the project's default.

use deadstop_core::PolicySet;
use serde_json::{Value, json};
use thiserror::Error;

use super::field::{FieldFault, Fields};
use super::kill_switch::KillSwitch;
use super::whole::{Whose, read_policy_at, stored_policy, write_policy};

/// What an agent has of its own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentDocument {
    /// A policy of its own, in every part: nothing is merged.
    pub policy: Option<PolicySet>,
    /// A kill switch of its own, on top of whichever policy is in force.
    pub kill_switch: Option<KillSwitch>,
}

/// A stored document that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a stored policy cannot be read ({0}); restore another version of it")]
pub struct BadDocument(String);

impl AgentDocument {
    /// Whether it says nothing, so that the agent is back to the default.
    pub fn is_empty(&self) -> bool {
        self.policy.is_none() && self.kill_switch.is_none()
    }

    /// Reads a body: both parts there, each complete or null.
    pub fn read(body: &Value) -> Result<AgentDocument, Vec<FieldFault>> {
        let mut faults = Vec::new();
        let fields = Fields::of(body, "", &["policy", "kill_switch"], &mut faults);
        let policy = fields
            .get("policy")
            .filter(|value| !value.is_null())
            .and_then(|value| read_policy_at(value, Whose::Agent, "policy", &mut faults));
        let kill_switch = fields
            .get("kill_switch")
            .filter(|value| !value.is_null())
            .and_then(|value| KillSwitch::read_at(value, "kill_switch", &mut faults));
        if faults.is_empty() { Ok(AgentDocument { policy, kill_switch }) } else { Err(faults) }
    }

    /// The document as it is shown and kept.
    pub fn to_json(&self) -> Value {
        let policy = self.policy.as_ref().map(|policy| write_policy(policy, Whose::Agent));
        json!({ "policy": policy, "kill_switch": self.kill_switch })
    }

    /// Reads a document that was kept.
    pub fn stored(text: &str) -> Result<AgentDocument, BadDocument> {
        let bad = |error: serde_json::Error| BadDocument(error.to_string());
        let value: Value = serde_json::from_str(text).map_err(bad)?;
        let policy = match &value["policy"] {
            Value::Null => None,
            policy => Some(stored_policy(policy).map_err(BadDocument)?),
        };
        let kill_switch = match &value["kill_switch"] {
            Value::Null => None,
            switch => Some(serde_json::from_value(switch.clone()).map_err(bad)?),
        };
        Ok(AgentDocument { policy, kill_switch })
    }
}

/// The policies in force for an agent: its own, or else the project's default; its kill switch on
/// top. What holds for the project as a whole is always the project's.
pub fn effective(default: &PolicySet, document: &AgentDocument) -> PolicySet {
    let mut policies = document.policy.clone().unwrap_or_else(|| default.clone());
    policies.project = default.project.clone();
    if let Some(switch) = document.kill_switch {
        switch.write(&mut policies);
    }
    policies
}
