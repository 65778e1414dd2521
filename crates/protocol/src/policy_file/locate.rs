//! Finds the setting that a complaint is about in what was typed, under whichever of its names.

use super::tree::{Node, Spot, Value};

/// Names that mean the same, the seed pages' ones second.
const OTHER_NAMES: [(&str, &str); 4] = [
    ("loop", "loop_detection"),
    ("similarity", "kill_switch"),
    ("breaker", "circuit_breaker"),
    ("max_steps", "max_tool_calls"),
];

/// Settings that may be typed in another section as well. What stands in a section of its own wins
/// over the others, and the first of these over the second, as when a policy is resolved.
const OTHER_PLACES: [(&str, &str); 5] = [
    ("steps.max_steps", "loop.max_steps"),
    ("steps.max_steps", "session_limits.max_steps"),
    ("time.max_wall_time_seconds", "budget.max_wall_time_seconds"),
    ("budget.max_cost_usd", "session_limits.max_cost_per_session"),
    ("strikes.", "session_limits.circuit_breaker."),
];

/// A setting as it was typed: its path, and where its key stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) path: String,
    pub(super) spot: Spot,
}

/// The setting of this path (`agent.loop.threshold`, `access.rules[0]`), if it was typed.
pub(super) fn find(tree: &Node, path: &str) -> Option<Found> {
    places(path).iter().find_map(|path| follow(tree, path))
}

/// All paths under which a setting may have been typed, the one that wins first.
fn places(path: &str) -> Vec<String> {
    let scopes = ["agent.", "project.", "nested."];
    let scope = scopes.into_iter().find(|scope| path.starts_with(scope)).unwrap_or_default();
    let setting = &path[scope.len()..];
    let mut places = vec![path.to_owned()];
    for (own, other) in OTHER_PLACES {
        if let Some(rest) = setting.strip_prefix(own) {
            places.push(format!("{scope}{other}{rest}"));
        }
    }
    // The breaker belongs to agents, and may be typed at the top.
    if scope == "agent." && setting.starts_with("breaker.") {
        places.push(setting.to_owned());
    }
    places
}

fn follow(tree: &Node, path: &str) -> Option<Found> {
    let mut node = tree;
    let mut found: Option<Found> = None;
    for step in path.split('.') {
        let (name, index) = match step.trim_end_matches(']').split_once('[') {
            Some((name, index)) => (name, Some(index.parse::<usize>().ok()?)),
            None => (step, None),
        };
        let other = OTHER_NAMES.iter().find(|(own, _)| *own == name).map(|(_, other)| *other);
        let (key, inner) = node.get(name).or_else(|| other.and_then(|other| node.get(other)))?;
        let before = found.map(|found| format!("{}.", found.path)).unwrap_or_default();
        found = Some(Found { path: format!("{before}{}", key.name), spot: key.spot });
        node = inner;
        if let (Some(index), Some(found)) = (index, &mut found) {
            let Value::List(items) = &node.value else { return None };
            // Items that were passed over have no place in what was read.
            let left = items.iter().enumerate().filter(|(_, item)| !item.is_gone());
            let (index, item) = left.clone().nth(index)?;
            node = item;
            found.path.push_str(&format!("[{index}]"));
            found.spot = node.spot;
        }
    }
    // Nothing, explicitly, is the same as not typed.
    found.filter(|_| !matches!(node.value, Value::Null))
}
