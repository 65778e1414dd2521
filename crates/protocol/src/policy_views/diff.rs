//! What is different between two documents, setting by setting.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::field::join;

/// A setting that is different.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Change {
    /// Its path, such as `policy.budget.max_cost_usd`.
    pub path: String,
    /// What it was; null if it was not there.
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub before: Value,
    /// What it is; null if it is not there.
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub after: Value,
}

/// Every setting that differs, in the order of their names. A list is one setting.
///
/// ```
/// use deadstop_protocol::policy_views::diff;
/// use serde_json::json;
/// let changes = diff(&json!({ "a": { "b": 1, "c": 2 } }), &json!({ "a": { "b": 1, "c": 3 } }));
/// assert_eq!((changes.len(), changes[0].path.as_str()), (1, "a.c"));
/// ```
pub fn diff(before: &Value, after: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    walk("", before, after, &mut changes);
    changes
}

fn walk(path: &str, before: &Value, after: &Value, changes: &mut Vec<Change>) {
    if before == after {
        return;
    }
    let none = Map::new();
    let (old, new) = match (before, after) {
        (Value::Object(old), Value::Object(new)) => (old, new),
        // A part that came or went is told setting by setting, too.
        (Value::Null, Value::Object(new)) if !new.is_empty() => (&none, new),
        (Value::Object(old), Value::Null) if !old.is_empty() => (old, &none),
        _ => {
            let (before, after) = (before.clone(), after.clone());
            changes.push(Change { path: path.to_owned(), before, after });
            return;
        }
    };
    let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    for key in keys {
        let value = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or_default();
        walk(&join(path, key), &value(old), &value(new), changes);
    }
}
