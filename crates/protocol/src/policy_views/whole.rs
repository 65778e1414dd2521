//! The whole policy as a JSON body: complete, or refused with the name of everything that is wrong.
//!
//! A policy file may leave things out, because a person writes it on top of a preset. A program that
//! replaces a policy may not: what it does not name would silently become something else.

use deadstop_core::{IDLE, PolicySet, Preset};
use serde_json::{Map, Value, json};

use super::field::{FieldFault, join};
use crate::policy_file;

/// Whose policy it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The project's default, for everybody.
    Project,
    /// One agent's. It says nothing about the project, which is not the agent's to limit.
    Agent,
}

/// A section about another kind of scope.
const SCOPES: [&str; 3] = ["agent", "project", "nested"];

/// A policy as a body: every setting there is, null where nothing is set.
pub fn write_policy(policies: &PolicySet, whose: Whose) -> Value {
    let mut value = policy_file::to_json(policies);
    if let (Whose::Agent, Some(map)) = (whose, value.as_object_mut()) {
        map.remove("project");
    }
    value
}

/// Reads a complete policy.
pub fn read_policy(body: &Value, whose: Whose) -> Result<PolicySet, Vec<FieldFault>> {
    let mut faults = Vec::new();
    let policies = read_policy_at(body, whose, "", &mut faults);
    if faults.is_empty() { policies.ok_or(faults) } else { Err(faults) }
}

/// Reads it as a part of a larger body.
pub(super) fn read_policy_at(
    body: &Value,
    whose: Whose,
    path: &str,
    faults: &mut Vec<FieldFault>,
) -> Option<PolicySet> {
    let before = faults.len();
    let complete = write_policy(&Preset::default().policies(), whose);
    let empty = Map::new();
    let pattern = complete.as_object().unwrap_or(&empty);
    compare(body, pattern, path, 0, faults);
    if faults.len() > before {
        return None;
    }
    match parse(body) {
        Ok(policies) => Some(policies),
        Err(whole) => {
            each_alone(body, path, faults);
            if faults.len() == before {
                // Nothing is wrong alone: settings contradict each other.
                faults.push(FieldFault::invalid(path, whole));
            }
            None
        }
    }
}

/// A policy that was read before and is kept; parts that a later version added take their defaults, and
/// what an earlier version took although it had no effect is left out.
pub fn stored_policy(document: &Value) -> Result<PolicySet, String> {
    let mut document = document.clone();
    for (scope, section, _) in IDLE {
        if let Some(enabled) = document.pointer_mut(&format!("/{scope}/{section}/enabled")) {
            *enabled = Value::Bool(false);
        }
    }
    for scope in ["agent", "project"] {
        if let Some(Value::Object(section)) = document.pointer_mut(&format!("/{scope}/loop")) {
            section.remove("max_wait_s");
        }
    }
    parse(&document)
}

fn parse(body: &Value) -> Result<PolicySet, String> {
    policy_file::parse(&body.to_string(), "policy.json").map_err(|error| {
        let hint = error.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
        format!("{}{hint}", error.problem)
    })
}

/// Complains about what is unknown and missing: in the policy, its sections, and the sections of
/// the other scopes. What a setting holds is read later.
fn compare(
    body: &Value,
    pattern: &Map<String, Value>,
    path: &str,
    depth: usize,
    faults: &mut Vec<FieldFault>,
) {
    let Some(map) = body.as_object() else {
        faults.push(FieldFault::invalid(path, "must be an object"));
        return;
    };
    let unknown = map.keys().filter(|key| !pattern.contains_key(*key));
    faults.extend(unknown.map(|key| FieldFault::unknown(join(path, key))));
    for (key, expected) in pattern {
        let here = join(path, key);
        let is_scope = depth == 0 && SCOPES.contains(&key.as_str());
        match (map.get(key), expected) {
            (None, _) => faults.push(FieldFault::missing(here)),
            (Some(inner), Value::Object(expected)) if is_scope => {
                compare(inner, expected, &here, 1, faults);
            }
            (Some(inner), Value::Object(expected)) if depth < 2 => {
                compare(inner, expected, &here, 2, faults);
            }
            _ => {}
        }
    }
}

/// Puts each setting alone into a policy that is fine, to find all that are not.
fn each_alone(body: &Value, path: &str, faults: &mut Vec<FieldFault>) {
    for (scope, sections) in
        [(None, Some(body))].into_iter().chain(SCOPES.map(|scope| (Some(scope), body.get(scope))))
    {
        let Some(Value::Object(sections)) = sections else { continue };
        for (section, settings) in sections {
            if scope.is_none() && SCOPES.contains(&section.as_str()) {
                continue;
            }
            let plain = json!({ section.clone(): settings });
            let before = faults.len();
            for (name, value) in settings.as_object().into_iter().flatten() {
                let one = json!({ section.clone(): { name.clone(): value } });
                try_alone(scope, &one, &format!("{section}.{name}"), path, faults);
            }
            if faults.len() == before {
                try_alone(scope, &plain, section, path, faults);
            }
        }
    }
}

fn try_alone(
    scope: Option<&str>,
    part: &Value,
    name: &str,
    path: &str,
    faults: &mut Vec<FieldFault>,
) {
    let (part, name) = match scope {
        None => (part.clone(), name.to_owned()),
        Some(scope) => (json!({ scope: part }), join(scope, name)),
    };
    if let Err(detail) = parse(&part) {
        faults.push(FieldFault::invalid(join(path, &name), detail));
    }
}
