//! Facts about tool calls and results: what makes two of them the same.
//!
//! # Which arguments are equal
//! Arguments are compared in canonical form: object keys in order, and numbers as follows.
//! - Whole numbers are equal when they are the same number, of any size; `1`, `1.0` and `1e0` are
//!   one number.
//! - Broken numbers are rounded to 6 decimals, and the sixth is then rounded away: two are equal
//!   when both lie nearest to the same multiple of 0.00001. So `1.0`, `0.999999` and `1.000001` are
//!   equal, as the page promises of the first two, and `0.12345` and `0.12346` are not.
//! - From 10¹² on, where a float has no such decimals left, they are compared exactly.
//! - Strings, booleans and null are equal when they are the same.
//!
//! This holds at any depth, in objects and arrays alike. Arguments that only tell one attempt from
//! the next ([`NONCES`]) do not count, at the top level: asking again under a new `request_id` is
//! asking again.

pub(crate) mod envelope;
mod pending;

use deadstop_core::{Argument, Digest, Effect, ResultFacts, TextHasher, ToolCall};
use serde_json::{Number, Value};

pub use deadstop_effect as effect;

/// Names of arguments that say which attempt it is, and nothing about what is asked.
pub const NONCES: [&str; 9] = [
    "nonce",
    "request_id",
    "requestId",
    "idempotency_key",
    "idempotencyKey",
    "correlation_id",
    "trace_id",
    "attempt",
    "retry_count",
];

/// Scalar arguments that access rules get to see.
const MOST_ARGUMENTS: usize = 256;
/// Bytes of one argument that they get to see.
const LONGEST_ARGUMENT: usize = 64 * 1024;

/// Works out what the engine needs to know about a tool call.
///
/// ```
/// use deadstop_protocol::facts::tool_call;
/// use serde_json::json;
/// let a = tool_call("bid", &json!({ "price": 1.0, "lot": 7 }));
/// let b = tool_call("bid", &json!({ "lot": 7, "price": 0.999999 }));
/// assert_eq!(a.signature, b.signature);
/// ```
pub fn tool_call(name: &str, arguments: &Value) -> ToolCall {
    described(name, arguments, effect::of(name, arguments))
}

/// The same, with a look at the machine on which it would run, and the paths that it would create.
pub fn tool_call_in(
    name: &str,
    arguments: &Value,
    here: &dyn effect::Surroundings,
) -> (ToolCall, Vec<String>) {
    let mut effects = effect::of_in(name, arguments, here);
    let makes = std::mem::take(&mut effects.makes);
    (described(name, arguments, effects), makes)
}

fn described(name: &str, arguments: &Value, effects: effect::Effects) -> ToolCall {
    let mut canonical = Vec::with_capacity(256);
    canonical.extend_from_slice(name.as_bytes());
    canonical.push(0);
    match arguments {
        Value::Object(map) => {
            let asked = map.iter().filter(|(key, _)| !NONCES.contains(&key.as_str()));
            write_object(asked, &mut canonical);
        }
        other => write_canonical(other, &mut canonical),
    }

    let mut shape = TextHasher::default();
    hash_shape(arguments, &mut shape);
    let shape = [Digest::of(name.as_bytes()), shape.finish().digest];

    let mut flat = Vec::new();
    flatten(arguments, &mut String::new(), &mut flat);
    ToolCall {
        name: name.to_owned(),
        server: mcp_server(name).map(str::to_owned),
        signature: Digest::of(&canonical),
        shape: combine(&shape),
        effect: match effects.effect {
            Effect::Inert if pending::waits(name, arguments) => Effect::Waits,
            other => other,
        },
        harms: effects.harms,
        arguments: flat,
        changed: false,
        added: false,
        spawns: false,
    }
}

/// What is kept of a tool's result, without the envelope of a known host.
pub fn result(text: &str) -> ResultFacts {
    let text = &*envelope::open(text).text;
    ResultFacts { pending: pending::says(text), ..ResultFacts::of(text) }
}

/// Whether a result says by itself that the call failed: the envelope of a known host has an exit
/// code.
pub fn says_failed(text: &str) -> bool {
    envelope::open(text).failed
}

/// The digest of a value in canonical form.
pub fn canonical(value: &Value) -> Digest {
    let mut canonical = Vec::with_capacity(256);
    write_canonical(value, &mut canonical);
    Digest::of(&canonical)
}

/// Several digests as one; their order counts.
pub fn combine(digests: &[Digest]) -> Digest {
    let bytes: Vec<u8> = digests.iter().flat_map(|digest| digest.0.to_le_bytes()).collect();
    Digest::of(&bytes)
}

/// The server of a tool that an MCP client has named `mcp__server__tool`.
fn mcp_server(name: &str) -> Option<&str> {
    let (server, tool) = name.strip_prefix("mcp__")?.split_once("__")?;
    (!server.is_empty() && !tool.is_empty()).then_some(server)
}

fn write_canonical(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(b'n'),
        Value::Bool(true) => out.push(b't'),
        Value::Bool(false) => out.push(b'f'),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_text(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for item in items {
                write_canonical(item, out);
            }
            out.push(b']');
        }
        Value::Object(map) => write_object(map.iter(), out),
    }
}

fn write_object<'a>(entries: impl Iterator<Item = (&'a String, &'a Value)>, out: &mut Vec<u8>) {
    out.push(b'{');
    let mut entries: Vec<_> = entries.collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    for (key, value) in entries {
        write_text(key, out);
        write_canonical(value, out);
    }
    out.push(b'}');
}

/// A text with its length before it, so that no text can pretend to be structure.
fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b's');
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn write_number(number: &Number, out: &mut Vec<u8>) {
    out.push(b'#');
    let float = match number.as_f64() {
        Some(float) if number.is_f64() => float,
        _ => {
            out.extend_from_slice(number.to_string().as_bytes());
            return;
        }
    };
    if float.abs() >= 1e12 {
        // Large floats are whole; one that an integer can hold is that integer.
        let text = if float.abs() < 9e18 { format!("{float:.0}") } else { format!("{float:e}") };
        out.extend_from_slice(text.as_bytes());
        return;
    }
    let six_decimals = (float * 1e6).round();
    let grid = (six_decimals / 10.0).round() as i64;
    let (whole, part) = (grid / 100_000, grid % 100_000);
    out.extend_from_slice(whole.to_string().as_bytes());
    if part != 0 {
        // The sign is in `part` too: -0.5 has no whole that could carry it.
        out.extend_from_slice(format!(".{part}").as_bytes());
    }
}

fn hash_shape(value: &Value, shape: &mut TextHasher) {
    match value {
        Value::Null => shape.push("null"),
        Value::Bool(_) => shape.push(if value == &Value::Bool(true) { "true" } else { "false" }),
        Value::Number(_) => shape.push("0"),
        Value::String(text) => {
            shape.push("\"");
            shape.push(text);
        }
        Value::Array(items) => {
            shape.push("[");
            items.iter().for_each(|item| hash_shape(item, shape));
            shape.push("]");
        }
        Value::Object(map) => {
            shape.push("{");
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            for (key, value) in entries {
                shape.push(key);
                hash_shape(value, shape);
            }
            shape.push("}");
        }
    }
}

fn flatten(value: &Value, path: &mut String, out: &mut Vec<Argument>) {
    if out.len() >= MOST_ARGUMENTS {
        return;
    }
    let mut leaf = |value: &str| {
        let value = &value[..value.floor_char_boundary(LONGEST_ARGUMENT)];
        out.push(Argument { path: path.clone(), value: value.to_owned() });
    };
    match value {
        Value::Null => {}
        Value::Bool(flag) => leaf(if *flag { "true" } else { "false" }),
        Value::Number(number) => leaf(&number.to_string()),
        Value::String(text) => leaf(text),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                within(path, &index.to_string(), |path| flatten(item, path, out));
            }
        }
        Value::Object(map) => {
            for (key, value) in map {
                within(path, key, |path| flatten(value, path, out));
            }
        }
    }
}

fn within(path: &mut String, segment: &str, descend: impl FnOnce(&mut String)) {
    let length = path.len();
    if length > 0 {
        path.push('.');
    }
    path.push_str(segment);
    descend(path);
    path.truncate(length);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn check(a: &Value, b: &Value, equal: bool) {
        let (x, y) = (tool_call("t", a), tool_call("t", b));
        assert_eq!(x.signature == y.signature, equal, "{a} and {b}");
    }

    #[test]
    fn which_arguments_are_equal() {
        for (a, b) in [
            (json!({"price": 1.0}), json!({"price": 0.999999})),
            (json!({"price": 1.0}), json!({"price": 1.000001})),
            (json!({"price": 1}), json!({"price": 1.0})),
            (json!({"a": 1, "b": 2}), json!({"b": 2, "a": 1})),
            (json!([[{"x": 0.1234561}]]), json!([[{"x": 0.1234564}]])),
            (json!(-0.0), json!(0)),
            (json!(-0.5), json!(-0.5000001)),
            (json!(1e3), json!(1000)),
            (json!(2e12), json!(2_000_000_000_000u64)),
            (json!({"q": 1, "request_id": "a"}), json!({"q": 1, "request_id": "b"})),
            (json!({"q": 1, "attempt": 2}), json!({"q": 1})),
        ] {
            check(&a, &b, true);
        }
        for (a, b) in [
            (json!({"price": 1.0}), json!({"price": 1.1})),
            (json!(0.12345), json!(0.12346)),
            (json!(0.5), json!(-0.5)),
            (json!(0.05), json!(0.5)),
            (json!(1.00005), json!(1.5)),
            (json!(1), json!(2)),
            (json!(1), json!("1")),
            (json!(true), json!("true")),
            (json!(null), json!({})),
            (json!([1, 2]), json!([12])),
            (json!(["a", "b"]), json!(["ab"])),
            (json!([[1], 2]), json!([1, [2]])),
            (json!({"a": 1}), json!({"b": 1})),
            (json!(u64::MAX), json!(u64::MAX - 1)),
            (json!(1e300), json!(2e300)),
            (json!("x"), json!("y")),
            (json!({"of": {"nonce": 1}}), json!({"of": {"nonce": 2}})),
        ] {
            check(&a, &b, false);
        }
        assert_ne!(tool_call("a", &json!({})).signature, tool_call("b", &json!({})).signature);
    }

    #[test]
    fn a_nonce_does_not_change_the_shape() {
        let shape = |tool: &str, arguments: Value| tool_call(tool, &arguments).shape;
        let one = shape("get", json!({"q": "x", "nonce": "550e8400-e29b-41d4-a716-446655440000"}));
        let two = shape("get", json!({"q": "x", "nonce": "650e8400-e29b-41d4-a716-446655440001"}));
        assert_eq!(one, two);
        assert_eq!(shape("get", json!({"n": 1})), shape("get", json!({"n": 22.5})));
        assert_ne!(one, shape("get", json!({"q": "y", "nonce": "3f2a9c1d"})));
        assert_ne!(shape("get", json!({"n": 1})), shape("put", json!({"n": 1})));
        assert_ne!(shape("get", json!({"n": 1})), shape("get", json!({"m": 1})));
        assert_ne!(shape("get", json!(true)), shape("get", json!(false)));
    }

    #[test]
    fn arguments_are_flattened() {
        let call = tool_call("t", &json!({"a": {"b": [1, "x", null]}, "c": true}));
        let flat: Vec<_> =
            call.arguments.iter().map(|a| (a.path.as_str(), a.value.as_str())).collect();
        assert_eq!(flat, [("a.b.0", "1"), ("a.b.1", "x"), ("c", "true")]);
        let long = tool_call("t", &json!("ü".repeat(LONGEST_ARGUMENT)));
        assert_eq!(long.arguments[0].value.len(), LONGEST_ARGUMENT);
        let many = tool_call("t", &json!(vec![0; 10_000]));
        assert_eq!(many.arguments.len(), MOST_ARGUMENTS);
    }

    #[test]
    fn servers_come_from_the_name() {
        for (name, server) in [
            ("mcp__linear-server__create_issue", Some("linear-server")),
            ("mcp__a__b__c", Some("a")),
            ("mcp____x", None),
            ("mcp__a__", None),
            ("mcp__a", None),
            ("Bash", None),
        ] {
            assert_eq!(mcp_server(name), server, "{name}");
        }
    }

    #[test]
    fn results_are_masked_but_remembered_exactly() {
        let (a, b) = (result("deleted 6"), result("deleted 7"));
        assert_eq!(a.masked, b.masked);
        assert_ne!(a.exact, b.exact);
    }

    proptest! {
        #[test]
        fn jitter_below_the_grid_is_not_a_difference(whole in -1000i64..1000, jitter in -4e-6..4e-6f64) {
            check(&json!(whole as f64), &json!(whole as f64 + jitter), true);
        }

        #[test]
        fn floats_never_panic(float in proptest::num::f64::ANY) {
            tool_call("t", &json!(float));
        }
    }
}
