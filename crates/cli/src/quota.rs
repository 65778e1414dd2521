//! The windows that providers have reported, as lines for people.

use serde_json::Value;

use crate::{ui, when};

/// One window: `anthropic 5h: 62% used, begins anew 2026-11-15 14:00:00 (in 3h)`.
fn told(quota: &Value) -> String {
    format!(
        "{} {}: {:.0}% used, begins anew {}",
        ui::text(&quota["provider"]),
        ui::text(&quota["window"]),
        quota["used"].as_f64().unwrap_or_default() * 100.0,
        when::ago(&quota["resets_ms"]),
    )
}

/// The windows of an agent, the fullest first.
pub(crate) fn all(scope: &Value) -> Vec<String> {
    scope["quotas"].as_array().into_iter().flatten().map(told).collect()
}
