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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_window_is_told_with_its_share_and_its_end() {
        let in_three_hours = when::now() + 3 * 3_600_000 + 5_000;
        let scope = json!({ "name": "coder", "quotas": [
            { "provider": "anthropic", "window": "5h", "used": 0.62, "resets_ms": in_three_hours },
        ]});
        let [line] = &all(&scope)[..] else { panic!("one line for one window") };
        assert!(line.starts_with("anthropic 5h: 62% used, begins anew 2"), "{line}");
        assert!(line.ends_with("(in 3h)"), "{line}");
        assert_eq!(all(&json!({ "name": "coder" })), Vec::<String>::new());
    }
}
