//! Python values as JSON, and back.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde_json::{Map, Number, Value};

/// The deepest nesting that is read; a deeper value is taken for its text.
const DEEPEST: usize = 64;

/// A Python value as JSON: what is not JSON is taken for its text.
pub(crate) fn to_json(value: &Bound<'_, PyAny>, depth: usize) -> Value {
    if let Ok(text) = value.cast::<PyString>() {
        return Value::String(text.to_string_lossy().into_owned());
    }
    if value.is_none() {
        return Value::Null;
    }
    // A bool is an int in Python, so it is asked first.
    if let Ok(flag) = value.cast::<PyBool>() {
        return Value::Bool(flag.is_true());
    }
    if value.is_instance_of::<PyInt>() {
        let whole = value.extract::<i64>().map(Number::from);
        let whole = whole.or_else(|_| value.extract::<u64>().map(Number::from));
        return whole.map_or_else(|_| text_of(value), Value::Number);
    }
    if let Ok(float) = value.cast::<PyFloat>() {
        return Number::from_f64(float.value()).map_or_else(|| text_of(value), Value::Number);
    }
    if depth >= DEEPEST {
        return text_of(value);
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        let mut map = Map::new();
        for (key, value) in dict.iter() {
            let key = match key.cast::<PyString>() {
                Ok(text) => text.to_string_lossy().into_owned(),
                Err(_) => key.str().map(|text| text.to_string()).unwrap_or_default(),
            };
            map.insert(key, to_json(&value, depth + 1));
        }
        return Value::Object(map);
    }
    if let Ok(list) = value.cast::<PyList>() {
        return list.iter().map(|item| to_json(&item, depth + 1)).collect();
    }
    if let Ok(tuple) = value.cast::<PyTuple>() {
        return tuple.iter().map(|item| to_json(&item, depth + 1)).collect();
    }
    // Models of pydantic and of the frameworks that use it.
    if let Ok(dumped) = value.call_method0("model_dump")
        && dumped.is_instance_of::<PyDict>()
    {
        return to_json(&dumped, depth + 1);
    }
    text_of(value)
}

fn text_of(value: &Bound<'_, PyAny>) -> Value {
    Value::String(value.str().map(|text| text.to_string()).unwrap_or_default())
}

/// What a tool brought, as text.
pub(crate) fn to_text(value: &Bound<'_, PyAny>) -> String {
    match to_json(value, 0) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// JSON as a Python value.
pub(crate) fn from_json<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(flag) => PyBool::new(py, *flag).to_owned().into_any(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => whole.into_pyobject(py)?.into_any(),
            (None, Some(whole)) => whole.into_pyobject(py)?.into_any(),
            (None, None) => PyFloat::new(py, number.as_f64().unwrap_or_default()).into_any(),
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(items) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(from_json(py, item)?)?;
            }
            list.into_any()
        }
        Value::Object(map) => {
            let dict = PyDict::new(py);
            for (key, value) in map {
                dict.set_item(key, from_json(py, value)?)?;
            }
            dict.into_any()
        }
    })
}

/// Anything that serialises, as a Python value.
pub(crate) fn plain<'py>(
    py: Python<'py>,
    value: &impl serde::Serialize,
) -> PyResult<Bound<'py, PyAny>> {
    from_json(py, &serde_json::to_value(value).unwrap_or_default())
}
