//! Policy files: what was read and is printed reads back as the same policy.

use deadstop_protocol::policy_file::{parse, to_json, to_toml};
use deadstop_protocol::policy_views::stored_policy;

/// The first byte chooses the format: `t`, `y`, anything else is JSON.
pub fn check(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let file = match first {
        b't' => "policy.toml",
        b'y' => "policy.yaml",
        _ => "policy.json",
    };
    match parse(text, file) {
        Ok(policies) => {
            let printed = to_toml(&policies);
            assert_eq!(parse(&printed, "p.toml").as_ref(), Ok(&policies), "{printed}");
            let stored = to_json(&policies);
            assert_eq!(stored_policy(&stored).as_ref(), Ok(&policies), "{stored}");
        }
        Err(error) => {
            // YAML ends lines with a return alone, too.
            let lines = text.trim_start_matches('\u{feff}').split(['\n', '\r']).count();
            let line = error.line.unwrap_or(1);
            assert!(line >= 1 && line <= lines.max(1) + 1, "line {line} of {lines}: {error}");
            assert!(!error.to_string().is_empty());
        }
    }
}
