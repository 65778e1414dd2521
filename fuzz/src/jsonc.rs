//! JSON with comments: what we set is there, what we take out is gone, and the rest stays.

#[path = "../../crates/commands/src/install/jsonc.rs"]
mod editor;

use editor::Jsonc;
use serde_json::{Value, json};

/// Changes a file as `install` and `uninstall` do.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(file) = Jsonc::read(text) else { return };
    let hook = json!({ "command": "deadstop hook", "timeout": 5 });
    for path in [&["a"][..], &["hooks", "a"], &["mcp", "b", "c"]] {
        set(&file, path, &hook);
        push(&file, path, &hook);
    }
}

fn set(file: &Jsonc, path: &[&str], to: &Value) {
    let beside = file.get(&["keep"]);
    let mut changed = file.clone();
    if changed.set(path, to).is_err() {
        return;
    }
    let text = changed.clone().into_text();
    assert!(Jsonc::read(&text).is_ok(), "set spoils the file: {text}");
    assert_eq!(changed.get(path).as_ref(), Some(to), "set: {text}");
    assert_eq!(changed.get(&["keep"]), beside, "set changes what stands beside it: {text}");
    assert!(changed.unset(path).is_ok(), "unset");
    let text = changed.clone().into_text();
    assert!(Jsonc::read(&text).is_ok(), "unset spoils the file: {text}");
    assert_eq!(changed.get(path), None, "unset: {text}");
    assert_eq!(changed.get(&["keep"]), beside, "unset changes what stands beside it: {text}");
}

fn push(file: &Jsonc, path: &[&str], item: &Value) {
    let before = file.get(path);
    let mut changed = file.clone();
    if changed.push(path, item).is_err() {
        return;
    }
    let text = changed.clone().into_text();
    let Some(Value::Array(items)) = changed.get(path) else { panic!("no list after push: {text}") };
    assert_eq!(items.last(), Some(item), "push: {text}");
    let ours = |found: &Value| found == item;
    assert!(changed.remove_items(path, &ours).is_ok(), "remove");
    let text = changed.clone().into_text();
    let after = changed.get(path);
    let count = |value: &Option<Value>| {
        value.as_ref().and_then(Value::as_array).into_iter().flatten().filter(|v| !ours(v)).count()
    };
    assert_eq!(count(&after), count(&before), "the items of others stay: {text}");
    let gone = after.as_ref().and_then(Value::as_array).is_none_or(|list| !list.iter().any(ours));
    assert!(gone, "our items go: {text}");
}
