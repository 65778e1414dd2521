//! Waiting, as it shows in calls and results: a `sleep`, and an answer that says "not yet".

use serde_json::Value;

/// Results longer than this are documents, whatever words are in them.
const LONGEST: usize = 400;

/// Words of a status that is not final.
const UNFINISHED: [&str; 22] = [
    "running",
    "pending",
    "queued",
    "queueing",
    "waiting",
    "processing",
    "progress",
    "in_progress",
    "in-progress",
    "starting",
    "started",
    "scheduled",
    "building",
    "deploying",
    "provisioning",
    "creating",
    "initializing",
    "downloading",
    "uploading",
    "incomplete",
    "unfinished",
    "busy",
];

/// Whether a result says that something is not finished yet: a word for it, `40%`, `12 of 60`,
/// `12/60`, or a bare number.
pub(super) fn says(result: &str) -> bool {
    let result = result.trim();
    if result.is_empty() || result.len() > LONGEST {
        return false;
    }
    let word = |word: &str| UNFINISHED.iter().any(|known| word.eq_ignore_ascii_case(known));
    let mut words = result.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-')));
    if words.any(word) || result.to_ascii_lowercase().contains("not ready") {
        return true;
    }
    result.bytes().all(|b| b.is_ascii_digit() || b == b'.') || has_share(result)
}

/// `40%`, `40 %`, `12 of 60`, `12/60`.
fn has_share(text: &str) -> bool {
    let digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = rest[at..].trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let after = rest.trim_start_matches(' ');
        let whole = after.strip_prefix('/').or_else(|| after.strip_prefix("of "));
        if after.starts_with('%') || whole.is_some_and(|whole| digit(whole.trim_start())) {
            return true;
        }
    }
    false
}

/// Whether a call that does nothing does so to let time pass: a tool called `sleep` or `wait`, or
/// the command.
pub(super) fn waits(name: &str, arguments: &Value) -> bool {
    let first = |text: &str| {
        let text = text.trim_start().to_ascii_lowercase();
        let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
        matches!(&text[..end], "sleep" | "wait" | "delay" | "pause")
    };
    let tool = name.rsplit("__").next().unwrap_or(name);
    first(tool) || ["command", "cmd"].iter().any(|key| arguments[key].as_str().is_some_and(first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_finished() {
        for text in [
            "running",
            "{\"status\": \"RUNNING\"}",
            "status: in_progress",
            "still in progress",
            "37",
            "37.5",
            "40%",
            "40 % done",
            "12 of 60 rows",
            "12/60",
            "the database is not ready",
        ] {
            assert!(says(text), "{text}");
        }
        for text in [
            "",
            "ok",
            "finished",
            "succeeded",
            "table is read-only",
            "3 files changed",
            "see /tmp/12/a",
            "error 404",
            "v1.2.3",
        ] {
            assert!(!says(text), "{text}");
        }
        assert!(!says(&format!("{} running", "word ".repeat(100))));
    }

    #[test]
    fn what_waits() {
        for (name, arguments) in [
            ("sleep", json!({ "seconds": 5 })),
            ("wait_for", json!({})),
            ("mcp__clock__sleep", json!({})),
            ("Bash", json!({ "command": "sleep 30" })),
            ("shell", json!({ "cmd": " sleep 1" })),
        ] {
            assert!(waits(name, &arguments), "{name}");
        }
        for (name, arguments) in [
            ("think", json!({})),
            ("sleepy", json!({})),
            ("Bash", json!({ "command": "echo sleep" })),
        ] {
            assert!(!waits(name, &arguments), "{name}");
        }
    }
}
