//! Arguments of a call that come one by one, each with its path (`$.files[0].name`), and texts in pieces.

use serde_json::{Map, Value};

use super::sse::LARGEST_ARGUMENTS;
use crate::plain::DEEPEST;

/// The longest list that a path may open.
const LONGEST_LIST: usize = 10_000;

/// Arguments so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Partial {
    whole: Value,
    /// Bytes of texts, and places of lists.
    size: usize,
}

/// A step of a path.
#[derive(Debug, PartialEq)]
enum Step {
    Member(String),
    Element(usize),
}

impl Partial {
    /// All of them, as an object.
    pub(super) fn whole(self) -> Value {
        if self.whole.is_null() { Value::Object(Map::new()) } else { self.whole }
    }

    /// Adds arguments that came whole.
    pub(super) fn merge(&mut self, arguments: Value) {
        match (&mut self.whole, arguments) {
            (Value::Object(own), Value::Object(more)) => own.extend(more),
            (Value::Null, more) => self.whole = more,
            (_, _) => {}
        }
    }

    /// Adds an argument, or a piece of a text. False if there is more than is kept.
    pub(super) fn add(&mut self, argument: &Value) -> bool {
        let member = |camel: &str, snake: &str| argument.get(camel).or(argument.get(snake));
        let path = member("jsonPath", "json_path").and_then(Value::as_str).unwrap_or_default();
        let Some(steps) = steps(path) else { return false };
        let text = member("stringValue", "string_value").and_then(Value::as_str);
        self.size += text.map_or(1, str::len);
        let mut place = &mut self.whole;
        for step in steps {
            match step {
                Step::Member(name) => {
                    if !place.is_object() {
                        *place = Value::Object(Map::new());
                    }
                    let Value::Object(map) = place else { return false };
                    place = map.entry(name).or_insert(Value::Null);
                }
                Step::Element(at) => {
                    if !place.is_array() {
                        *place = Value::Array(Vec::new());
                    }
                    let Value::Array(list) = place else { return false };
                    if at >= list.len() {
                        self.size += (at - list.len()) * size_of::<Value>();
                        list.resize(at + 1, Value::Null);
                    }
                    let Some(element) = list.get_mut(at) else { return false };
                    place = element;
                }
            }
        }
        match (place, text) {
            (Value::String(so_far), Some(text)) => so_far.push_str(text),
            (place, Some(text)) => *place = Value::String(text.to_owned()),
            (place, None) => {
                let number = member("numberValue", "number_value");
                let given = number.or(member("boolValue", "bool_value"));
                *place = given.cloned().unwrap_or_default();
            }
        }
        self.size <= LARGEST_ARGUMENTS
    }
}

/// The steps of a path; `None` if it is none, or too deep.
fn steps(path: &str) -> Option<Vec<Step>> {
    let mut rest = path.trim().strip_prefix('$').unwrap_or(path.trim());
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let quote = inner.chars().next().filter(|c| matches!(c, '\'' | '"'));
            let (step, after) = match quote {
                Some(quote) => {
                    let (name, after) = inner[1..].split_once(quote)?;
                    (Step::Member(name.to_owned()), after.strip_prefix(']')?)
                }
                None => {
                    let (at, after) = inner.split_once(']')?;
                    let at = at.trim().parse().ok().filter(|at| *at <= LONGEST_LIST)?;
                    (Step::Element(at), after)
                }
            };
            steps.push(step);
            rest = after;
        } else {
            let inner = rest.strip_prefix('.').unwrap_or(rest);
            let end = inner.find(['.', '[']).unwrap_or(inner.len());
            if end == 0 {
                return None;
            }
            steps.push(Step::Member(inner[..end].to_owned()));
            rest = &inner[end..];
        }
    }
    (steps.len() <= DEEPEST).then_some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_are_put_together_by_their_paths() {
        let mut partial = Partial::default();
        for argument in [
            json!({ "jsonPath": "$.command", "stringValue": "rm ", "willContinue": true }),
            json!({ "jsonPath": "$.command", "stringValue": "-rf /srv" }),
            json!({ "json_path": "$.files[1].name", "string_value": "a" }),
            json!({ "jsonPath": "$['odd name'][\"x\"]", "numberValue": 2 }),
            json!({ "jsonPath": "$.deep", "boolValue": true }),
            json!({ "jsonPath": "$.none", "nullValue": "NULL_VALUE" }),
        ] {
            assert!(partial.add(&argument));
        }
        partial.merge(json!({ "more": 1 }));
        let expected = json!({
            "command": "rm -rf /srv", "files": [null, { "name": "a" }], "odd name": { "x": 2 },
            "deep": true, "none": null, "more": 1,
        });
        assert_eq!(partial.whole(), expected);
        assert_eq!(Partial::default().whole(), json!({}));
    }

    #[test]
    fn what_cannot_be_kept_is_told() {
        for path in ["$.a[100000]", "$[", "$..a", "$['a"] {
            let argument = json!({ "jsonPath": path, "numberValue": 1 });
            assert!(!Partial::default().add(&argument), "{path}");
        }
        let argument = json!({ "jsonPath": "$.a", "stringValue": "x".repeat(3 << 20) });
        let mut partial = Partial::default();
        assert!(partial.add(&argument) && partial.add(&argument) && !partial.add(&argument));
    }
}
