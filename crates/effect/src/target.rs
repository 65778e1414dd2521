//! What a call is done to, as far as its arguments say: the thing that the guard counts by.

use std::fmt::Write;

use serde_json::{Map, Value};

/// A target longer than this is cut: it is read by people and kept in state.
const MAX_TARGET: usize = 200;

/// Names of arguments that say what is meant, best first.
const KNOWN: &[&str] = &[
    "asset_id",
    "id",
    "table",
    "schema",
    "database",
    "bucket",
    "path",
    "file_path",
    "filename",
    "key",
    "name",
    "resource",
    "uri",
    "url",
    "target",
];

/// More names, tried after any `…_id`.
const KNOWN_TOO: &[&str] = &[
    "table_name",
    "database_name",
    "bucket_name",
    "collection",
    "index",
    "namespace",
    "repo",
    "branch",
    "file",
    "directory",
    "folder",
    "user",
    "username",
    "email",
    "ids",
    "paths",
    "files",
    "object",
];

/// The target of a call whose name is the deed: its best known argument, or all of its scalars.
pub(super) fn of(arguments: &Map<String, Value>) -> String {
    known(arguments).unwrap_or_else(|| scalars(arguments))
}

/// The argument that by its name says what the call is about.
pub(super) fn known(arguments: &Map<String, Value>) -> Option<String> {
    let text = |key: &str| arguments.get(key).and_then(render).map(|value| (key.to_owned(), value));
    let any_id = || {
        arguments.iter().find_map(|(key, value)| {
            let is_id = key.ends_with("_id") || key.ends_with("Id") || key.ends_with("_ids");
            is_id.then(|| render(value).map(|value| (key.clone(), value))).flatten()
        })
    };
    let (key, value) = KNOWN[..2]
        .iter()
        .find_map(|key| text(key))
        .or_else(any_id)
        .or_else(|| KNOWN[2..].iter().chain(KNOWN_TOO).find_map(|key| text(key)))?;
    if key == "table"
        && let Some((_, schema)) = text("schema")
    {
        return Some(clip(&format!("table={schema}.{value}")));
    }
    Some(clip(&format!("{key}={value}")))
}

/// Whether an `action` says that something goes.
pub(super) fn is_deletion(value: Option<&Value>) -> bool {
    let deeds = ["delete", "drop", "truncate", "destroy", "purge", "wipe"];
    value
        .and_then(Value::as_str)
        .is_some_and(|text| deeds.iter().any(|deed| deed.eq_ignore_ascii_case(text.trim())))
}

/// Whether the call only asks what would happen.
pub(super) fn is_rehearsal(arguments: &Map<String, Value>) -> bool {
    ["dry_run", "dryRun", "dryrun", "DryRun", "preview_only"]
        .iter()
        .any(|key| arguments.get(*key).and_then(Value::as_bool) == Some(true))
}

/// The words joined by a space, no longer than a target may be.
pub(super) fn join<T: AsRef<str>>(words: &[T]) -> String {
    let mut joined = String::new();
    for word in words {
        if joined.len() > MAX_TARGET {
            break;
        }
        if !joined.is_empty() {
            joined.push(' ');
        }
        joined.push_str(word.as_ref());
    }
    clip(&joined)
}

/// The text, no longer than a target may be.
pub(super) fn clip(text: &str) -> String {
    match text.char_indices().nth(MAX_TARGET) {
        Some((end, _)) => text[..end].to_owned(),
        None => text.to_owned(),
    }
}

fn scalars(arguments: &Map<String, Value>) -> String {
    let mut all: Vec<_> = arguments.iter().filter_map(|(k, v)| Some((k, scalar(v)?))).collect();
    all.sort();
    let mut text = String::new();
    for (key, value) in all {
        let gap = if text.is_empty() { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{gap}{key}={value}");
        if text.len() > MAX_TARGET {
            break;
        }
    }
    clip(&text)
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(clip(text)),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

fn render(value: &Value) -> Option<String> {
    match value {
        Value::Array(items) if !items.is_empty() => {
            let items: Option<Vec<String>> = items.iter().take(20).map(scalar).collect();
            items.map(|items| clip(&items.join(",")))
        }
        Value::Bool(_) => None,
        other => scalar(other).filter(|text| !text.is_empty()),
    }
}
