//! The shapes of whole policies for the document: made from a policy, so that they cannot fall behind.

use deadstop_core::Preset;
use deadstop_protocol::policy_views::{KillSwitch, Whose, write_policy};
use serde_json::{Map, Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A complete policy: the project's default.
pub(crate) struct WholePolicy;

/// What an agent has of its own: `{policy, kill_switch}`, each complete or null.
pub(crate) struct AgentPolicy;

impl ToSchema for WholePolicy {}

impl PartialSchema for WholePolicy {
    fn schema() -> RefOr<Schema> {
        schema(of_policy(Whose::Project))
    }
}

impl ToSchema for AgentPolicy {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push(("KillSwitch".to_owned(), KillSwitch::schema()));
    }
}

impl PartialSchema for AgentPolicy {
    fn schema() -> RefOr<Schema> {
        let nothing = json!({ "type": "null" });
        schema(json!({
            "type": "object",
            "required": ["policy", "kill_switch"],
            "additionalProperties": false,
            "properties": {
                "policy": { "oneOf": [nothing, of_policy(Whose::Agent)] },
                "kill_switch": {
                    "oneOf": [nothing, { "$ref": "#/components/schemas/KillSwitch" }]
                },
            },
        }))
    }
}

fn schema(value: Value) -> RefOr<Schema> {
    // What is made here is a schema; the test below says so.
    serde_json::from_value(value).unwrap_or_else(|_| Schema::default().into())
}

fn of_policy(whose: Whose) -> Value {
    let policy = write_policy(&Preset::default().policies(), whose);
    like(&policy, 3)
}

/// The schema of values like this one, down to the settings.
fn like(value: &Value, depth: usize) -> Value {
    match value {
        Value::Object(map) if depth > 0 && !map.is_empty() => {
            let properties: Map<String, Value> = map
                .iter()
                .map(|(name, inner)| (name.clone(), setting(name, inner, depth - 1)))
                .collect();
            let required: Vec<_> = map.keys().collect();
            json!({
                "type": "object", "required": required, "properties": properties,
                "additionalProperties": false,
            })
        }
        Value::Object(_) => json!({ "type": "object" }),
        Value::Array(_) => json!({ "type": "array", "items": {} }),
        Value::String(_) => json!({ "type": "string" }),
        Value::Bool(_) => json!({ "type": "boolean" }),
        Value::Number(_) => json!({ "type": "number" }),
        // Limits are what may be null.
        Value::Null => json!({ "type": ["number", "null"] }),
    }
}

/// The schema of a setting: a rung of a ladder is a count or `off`.
fn setting(name: &str, value: &Value, depth: usize) -> Value {
    match name {
        "steer_at" | "block_at" | "end_at" => json!({ "oneOf": [
            { "type": ["number", "null"] }, { "type": "string", "enum": ["off"] },
        ]}),
        _ => like(value, depth),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::check::Checker;
    use deadstop_protocol::policy_views::AgentDocument;

    #[test]
    fn policies_are_of_these_shapes() {
        for preset in Preset::ALL {
            let policies = preset.policies();
            let whole = write_policy(&policies, Whose::Project);
            assert_eq!(Checker::of::<WholePolicy>().faults(&whole), []);
            let own = AgentDocument { policy: Some(policies), kill_switch: None }.to_json();
            assert_eq!(Checker::of::<AgentPolicy>().faults(&own), []);
            let nothing = AgentDocument::default().to_json();
            assert_eq!(Checker::of::<AgentPolicy>().faults(&nothing), []);
        }
        let faults = Checker::of::<WholePolicy>().faults(&json!({ "loop": { "treshold": 1 } }));
        assert!(faults.iter().any(|fault| fault.field == "loop.treshold"));
        assert!(faults.iter().any(|fault| fault.field == "nested"));
    }
}
