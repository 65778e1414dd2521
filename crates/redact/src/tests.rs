//! Tests of redaction: what must go, what must stay, and that cuts make no difference.

mod invariants;
mod kinds;
mod stays;

use super::Redactor;

fn redact(text: &str) -> String {
    Redactor::default().redact(text).into_owned()
}

/// Checks one text, and that doing it twice changes nothing more.
#[track_caller]
fn check(input: &str, expected: &str) {
    let once = redact(input);
    assert_eq!(once, expected, "of {input}");
    assert_eq!(redact(&once), once, "twice, of {input}");
    if input.starts_with(['{', '[']) && serde_json::from_str::<serde_json::Value>(input).is_ok() {
        assert!(serde_json::from_str::<serde_json::Value>(&once).is_ok(), "no JSON: {once}");
    }
}
