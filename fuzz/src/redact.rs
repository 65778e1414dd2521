//! Redaction: the same wherever a text was cut, done after one pass, JSON stays JSON, and a secret on
//! a line of its own never survives.

use std::sync::LazyLock;

use deadstop_redact::Redactor;
use serde_json::Value;

/// Made up for this test; nothing accepts it.
const SECRET: &str = "sk-proj-a1B2c3D4e5F6g7H8i9J0";

/// Bytes before a place that may tell what stands there.
const LOOK_BACK: usize = 128;

static REDACTOR: LazyLock<Redactor> = LazyLock::new(Redactor::default);

/// A text, or bytes that are none.
pub fn check(data: &[u8]) {
    let once = REDACTOR.redact_bytes(data);
    // A label may move a word into or out of the 128 bytes that are looked back at, and where a key of several lines
    // was, what stood behind it stands on the line before it.
    let joins = text(&once).contains("[redacted:private-key]");
    if data.len() <= LOOK_BACK && once.len() <= LOOK_BACK && !joins {
        let again = REDACTOR.redact_bytes(&once);
        assert_eq!(text(&again), text(&once), "redacted once, redacted for good");
    }

    let mut stream = REDACTOR.stream();
    let mut pieces = Vec::new();
    for part in crate::parts(data) {
        pieces.extend(stream.push(part));
    }
    pieces.extend(stream.finish());
    assert_eq!(text(&pieces), text(&once), "cut");

    if serde_json::from_slice::<Value>(data).is_ok() {
        assert!(serde_json::from_slice::<Value>(&once).is_ok(), "JSON no more: {}", text(&once));
    }
    // Behind a letter it is another word, and stays.
    if text(data).contains(SECRET) {
        return;
    }
    let mut leaking = data.to_vec();
    leaking.extend_from_slice(format!("\n\n{SECRET}\n").as_bytes());
    assert!(!text(&REDACTOR.redact_bytes(&leaking)).contains(SECRET), "the secret is still there");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
