//! Holds a JSON value against the schema that the API's document shows, and names every fault.
//!
//! The schema is the one that the handlers' types generate, so that what is documented and what is
//! accepted cannot differ. Only what our types use of JSON Schema is understood.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use deadstop_protocol::policy_views::FieldFault;
use parking_lot::RwLock;
use serde_json::{Map, Value};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A schema with everything that it refers to.
pub(crate) struct Checker {
    schema: Value,
    named: Map<String, Value>,
}

impl Checker {
    /// The schema of a type, worked out once.
    pub(crate) fn of<T: ToSchema + 'static>() -> Arc<Checker> {
        static KNOWN: LazyLock<RwLock<HashMap<TypeId, Arc<Checker>>>> =
            LazyLock::new(RwLock::default);
        let id = TypeId::of::<T>();
        if let Some(known) = KNOWN.read().get(&id) {
            return Arc::clone(known);
        }
        let mut named = Vec::new();
        T::schemas(&mut named);
        let fresh = Arc::new(Checker::new(&<T as PartialSchema>::schema(), &named));
        Arc::clone(KNOWN.write().entry(id).or_insert(fresh))
    }

    /// A schema and those that it may refer to.
    pub(crate) fn new(schema: &RefOr<Schema>, named: &[(String, RefOr<Schema>)]) -> Checker {
        let json = |schema: &RefOr<Schema>| serde_json::to_value(schema).unwrap_or_default();
        let named = named.iter().map(|(name, schema)| (name.clone(), json(schema))).collect();
        Checker { schema: json(schema), named }
    }

    /// Everything that is wrong with a value.
    pub(crate) fn faults(&self, value: &Value) -> Vec<FieldFault> {
        self.faults_at(value, "")
    }

    /// The same for a value that stands at a path.
    pub(crate) fn faults_at(&self, value: &Value, path: &str) -> Vec<FieldFault> {
        let mut faults = Vec::new();
        self.walk(&self.schema, value, path, &mut faults);
        faults
    }

    /// The types that a value may have.
    pub(crate) fn types(&self) -> Vec<&str> {
        types(self.resolve(&self.schema))
    }

    fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let name = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next());
        match name.and_then(|name| self.named.get(name)) {
            Some(named) => self.resolve(named),
            None => schema,
        }
    }

    fn walk(&self, schema: &Value, value: &Value, path: &str, faults: &mut Vec<FieldFault>) {
        let schema = self.resolve(schema);
        for choice in ["oneOf", "anyOf"] {
            if let Some(Value::Array(options)) = schema.get(choice) {
                self.one_of(options, value, path, faults);
            }
        }
        if let Some(Value::Array(parts)) = schema.get("allOf") {
            parts.iter().for_each(|part| self.walk(part, value, path, faults));
        }
        let types = types(schema);
        if !types.is_empty() && !types.iter().any(|kind| is(kind, value)) {
            let words: Vec<_> = types.iter().map(|kind| in_words(kind)).collect();
            faults.push(FieldFault::invalid(path, format!("must be {}", words.join(" or "))));
            return;
        }
        if let Some(Value::Array(allowed)) = schema.get("enum")
            && !allowed.contains(value)
        {
            let allowed: Vec<_> = allowed.iter().map(|one| format!("`{}`", shown(one))).collect();
            let detail = format!("must be one of {}", allowed.join(", "));
            faults.push(FieldFault::invalid(path, detail));
        }
        match value {
            Value::Object(map) => self.object(schema, map, path, faults),
            Value::Array(items) => self.array(schema, items, path, faults),
            Value::Number(number) => range(schema, number, path, faults),
            Value::String(text) => length(schema, text, path, faults),
            _ => {}
        }
    }

    /// The faults of the choice that comes nearest: the one with the fewest.
    fn one_of(&self, options: &[Value], value: &Value, path: &str, faults: &mut Vec<FieldFault>) {
        let tried = options.iter().map(|option| {
            let mut found = Vec::new();
            self.walk(option, value, path, &mut found);
            let deep = found.iter().any(|fault| fault.field != path);
            (found.len(), !deep, found)
        });
        // Among equals, the choice that was understood deeper down says more than `must be null`.
        if let Some((_, _, found)) =
            tried.min_by_key(|(count, shallow, _)| (*count > 0, *shallow, *count))
        {
            faults.extend(found);
        }
    }

    fn object(
        &self,
        schema: &Value,
        map: &Map<String, Value>,
        path: &str,
        faults: &mut Vec<FieldFault>,
    ) {
        let none = Map::new();
        let known = schema["properties"].as_object().unwrap_or(&none);
        for (name, value) in map {
            let here = join(path, name);
            match (known.get(name), schema.get("additionalProperties")) {
                (Some(inner), _) => self.walk(inner, value, &here, faults),
                (None, Some(Value::Bool(false))) => faults.push(FieldFault::unknown(here)),
                (None, Some(inner @ Value::Object(_))) => self.walk(inner, value, &here, faults),
                (None, _) => {}
            }
        }
        let required = schema["required"].as_array().into_iter().flatten();
        let missing = required.filter_map(Value::as_str).filter(|name| !map.contains_key(*name));
        faults.extend(missing.map(|name| FieldFault::missing(join(path, name))));
    }

    fn array(&self, schema: &Value, items: &[Value], path: &str, faults: &mut Vec<FieldFault>) {
        if let Some(most) = schema["maxItems"].as_u64()
            && items.len() as u64 > most
        {
            faults.push(FieldFault::invalid(path, format!("may have at most {most} entries")));
        }
        if let Some(least) = schema["minItems"].as_u64()
            && (items.len() as u64) < least
        {
            let detail = if least == 1 {
                "must not be empty".to_owned()
            } else {
                format!("must have at least {least} entries")
            };
            faults.push(FieldFault::invalid(path, detail));
        }
        if let Some(inner) = schema.get("items") {
            for (at, item) in items.iter().enumerate() {
                self.walk(inner, item, &format!("{path}[{at}]"), faults);
            }
        }
    }
}

fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        _ => true,
    }
}

fn in_words(kind: &str) -> &str {
    match kind {
        "object" => "an object",
        "array" => "a list",
        "string" => "a text",
        "boolean" => "true or false",
        "integer" => "a whole number",
        "number" => "a number",
        other => other,
    }
}

fn range(schema: &Value, number: &serde_json::Number, path: &str, faults: &mut Vec<FieldFault>) {
    let Some(value) = number.as_f64() else { return };
    for (key, word, fine) in [
        ("minimum", "at least", (|value, limit| value >= limit) as fn(f64, f64) -> bool),
        ("maximum", "at most", |value, limit| value <= limit),
        ("exclusiveMinimum", "above", |value, limit| value > limit),
        ("exclusiveMaximum", "below", |value, limit| value < limit),
    ] {
        if let Some(limit) = schema[key].as_f64()
            && !fine(value, limit)
        {
            faults.push(FieldFault::invalid(path, format!("must be {word} {limit}")));
        }
    }
}

fn length(schema: &Value, text: &str, path: &str, faults: &mut Vec<FieldFault>) {
    let length = text.chars().count() as u64;
    if let Some(most) = schema["maxLength"].as_u64()
        && length > most
    {
        faults.push(FieldFault::invalid(path, format!("may have at most {most} characters")));
    }
    if let Some(least) = schema["minLength"].as_u64()
        && length < least
    {
        let detail = if least == 1 {
            "must not be empty".to_owned()
        } else {
            format!("must have at least {least} characters")
        };
        faults.push(FieldFault::invalid(path, detail));
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn join(path: &str, step: &str) -> String {
    if path.is_empty() { step.to_owned() } else { format!("{path}.{step}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(PartialEq, ToSchema, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[schema(max_length = 3)]
        name: String,
        count: Option<u32>,
        #[schema(required)]
        must: Option<f64>,
        #[serde(default)]
        flag: bool,
        kind: Kind,
        inner: Option<Inner>,
        #[schema(max_items = 2)]
        list: Vec<Inner>,
        #[schema(min_items = 1)]
        some: Option<Vec<u8>>,
    }

    #[derive(PartialEq, ToSchema, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[schema(minimum = 1, maximum = 5)]
        n: u8,
    }

    #[derive(PartialEq, ToSchema, serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        One,
        Two,
    }

    #[test]
    fn every_fault_is_found() {
        let fine = json!({ "name": "a", "must": null, "kind": "one", "list": [] });
        for (change, expected) in [
            (json!({}), vec![]),
            (json!({ "count": null, "flag": true, "inner": null }), vec![]),
            (json!({ "count": 5, "must": 2, "inner": { "n": 1 }, "list": [{ "n": 5 }] }), vec![]),
            (json!({ "name": "abcd" }), vec!["name: may have at most 3 characters"]),
            (json!({ "kind": "three" }), vec!["kind: must be one of `one`, `two`"]),
            (
                json!({ "count": 1.5, "flag": 1 }),
                vec!["count: must be a whole number or null", "flag: must be true or false"],
            ),
            (
                json!({ "inner": { "n": 9, "m": 1 } }),
                vec!["inner.m: unknown field; remove it", "inner.n: must be at most 5"],
            ),
            (
                json!({ "list": [{ "n": 1 }, {}, { "n": "x" }] }),
                vec![
                    "list: may have at most 2 entries",
                    "list[1].n: missing; send the full object, null where nothing is set",
                    "list[2].n: must be a whole number",
                ],
            ),
            // Found by schemathesis: the least was not looked at.
            (json!({ "some": [] }), vec!["some: must not be empty"]),
            (json!({ "extra": 1 }), vec!["extra: unknown field; remove it"]),
            (
                json!({ "name": null, "kind": 1 }),
                vec!["kind: must be a text", "name: must be a text"],
            ),
        ] {
            let mut body = fine.clone();
            body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            let faults = Checker::of::<Outer>().faults(&body);
            let told: Vec<_> =
                faults.iter().map(|fault| format!("{}: {}", fault.field, fault.detail)).collect();
            assert_eq!(told, expected, "{body}");
        }
        let faults = Checker::of::<Outer>().faults(&json!({}));
        let missing: Vec<_> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(missing, ["name", "must", "kind", "list"]);
    }
}
