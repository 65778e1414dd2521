//! LangChain's wrappings. Its callbacks hand a tool's arguments and result over inside of objects that
//! also hold the step, the run and ids, which are others each time: a loop would never look alike.
//!
//! OpenLLMetry writes arguments as `{"input_str": …, "inputs": {…}, "metadata": {…}}` and a result as
//! `{"output": {"lc": 1, "kwargs": {"content": …}}}`; OpenInference writes a result as
//! `{"type": "tool", "data": {"content": …}}`.

use serde_json::{Map, Value};

/// What the tool itself was given.
pub(super) fn arguments(value: Value) -> Value {
    match value {
        Value::Object(mut wrapping) if wrapping.contains_key("input_str") => {
            let inputs = wrapping.remove("inputs").filter(|inputs| !inputs.is_null());
            inputs.or_else(|| wrapping.remove("input_str")).unwrap_or_default()
        }
        other => other,
    }
}

/// A tool's result, and the model's id for the call, if a text is LangChain's message with both.
pub(super) fn message(text: &str) -> Option<(String, Option<String>)> {
    // Most results are no such message: they are not read as JSON.
    if !text.starts_with('{') || !text.contains("\"content\"") {
        return None;
    }
    let mut value: Value = serde_json::from_str(text).ok()?;
    let said = match value.get("output") {
        Some(_) => value.get_mut("output")?.get_mut("kwargs")?,
        None if value.get("type").and_then(Value::as_str) == Some("tool") => {
            value.get_mut("data")?
        }
        None => return None,
    };
    let said: &mut Map<String, Value> = said.as_object_mut()?;
    let content = match said.remove("content")? {
        Value::String(content) => content,
        other => other.to_string(),
    };
    let id = said.get("tool_call_id").and_then(Value::as_str).map(str::to_owned);
    Some((content, id))
}

/// What a JSON object of LangChain's facts names under a key.
pub(super) fn named(text: &str, key: &str) -> Option<String> {
    let value: Value = serde_json::from_str(text).ok()?;
    value.get(key)?.as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}
