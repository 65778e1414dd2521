//! Commands and statements: a bounded report, and no harm that vanishes behind a harmless beginning.

use deadstop_core::Severity;
use deadstop_effect::{Effects, of};
use serde_json::json;

/// A shell command.
pub fn shell(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let plain = bounded(of("Bash", &json!({ "command": text })));
    let behind = bounded(of("Bash", &json!({ "command": format!("true\n{text}") })));
    assert!(worst(&behind) >= worst(&plain), "hidden behind `true`: {plain:?} {behind:?}");
}

/// An SQL statement.
pub fn sql(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let plain = bounded(of("execute_sql", &json!({ "query": text })));
    let behind = bounded(of("execute_sql", &json!({ "query": format!("SELECT 1;\n{text}") })));
    assert!(worst(&behind) >= worst(&plain), "hidden behind a SELECT: {plain:?} {behind:?}");
}

fn worst(effects: &Effects) -> Severity {
    effects.harms.iter().map(deadstop_core::Harm::severity).max().unwrap_or_default()
}

fn bounded(effects: Effects) -> Effects {
    assert!(effects.harms.len() <= 32, "{} harms", effects.harms.len());
    assert!(effects.commands.len() <= 16, "{} commands", effects.commands.len());
    assert!(effects.makes.len() <= 32, "{} paths", effects.makes.len());
    effects
}
