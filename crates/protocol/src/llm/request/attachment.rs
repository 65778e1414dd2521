//! Attachments inside a body: how much less they are than their size, and what stands for them.
//!
//! A prompt's tokens are estimated by its size, a token for three bytes. A picture of a megabyte is
//! no third of a million tokens, so data in base64 is found and counted for what it is.

use deadstop_core::Digest;

/// Bytes that are taken for a token: fewer than in any text but dense ones, so that the estimate
/// is rather too high.
pub(super) const BYTES_PER_TOKEN: u64 = 3;
/// What a picture may count; providers scale larger ones down.
const PICTURE_TOKENS: u64 = 2000;
/// Bytes of base64 that are taken for a token in what is no picture: documents, sound.
const BYTES_PER_FILE_TOKEN: u64 = 32;
/// A run of base64 shorter than this is not worth a look.
const SHORTEST: usize = 1024;

/// Tokens that an estimate by size counts too many in this JSON.
///
/// Looks at every 1024th byte first and goes back from there: ordinary text has a blank or a quote
/// close by, and is passed over in great strides.
pub(super) fn discount(json: &str) -> u64 {
    let bytes = json.as_bytes();
    let mut sum = 0;
    let mut start = 0;
    while let Some(window) = bytes.get(start..start + SHORTEST) {
        if let Some(gap) = window.iter().rposition(|b| !is_base64(*b)) {
            start += gap + 1;
            continue;
        }
        let tail = &bytes[start + SHORTEST..];
        let rest = tail.iter().take_while(|b| is_base64(**b)).count();
        let end = start + SHORTEST + rest;
        if introduced(&bytes[..start]) {
            sum += too_many(&bytes[start..end]);
        }
        start = end;
    }
    sum
}

/// What stands for a part that is no text: two different pictures are two different things, so the
/// word after its kind is a digest, in letters that no mask takes for a number or an id.
pub(crate) fn marker(kind: &str, json: &str) -> String {
    let digest = Digest::of(json.as_bytes()).0;
    let letter = |nibble: u32| (b'g' + (digest >> (4 * nibble) & 15) as u8) as char;
    let word: String = (0..16).map(letter).collect();
    let kind = if kind.is_empty() { "part" } else { kind };
    format!("[{kind} {word}]")
}

fn is_base64(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'+' | b'/' | b'-' | b'_' | b'=')
}

/// Whether what comes before says that data follows: base64 that a tool printed is text.
fn introduced(before: &[u8]) -> bool {
    let before = before.strip_suffix(b"\"").unwrap_or(before).trim_ascii_end();
    let before = before.strip_suffix(b":").unwrap_or(before).trim_ascii_end();
    before.ends_with(b";base64,") || before.ends_with(b"data\"")
}

fn too_many(base64: &[u8]) -> u64 {
    let size = base64.len() as u64;
    let picture = [&b"iVBORw0KGgo"[..], b"/9j/", b"R0lGOD", b"UklGR"]
        .iter()
        .any(|magic| base64.starts_with(magic));
    let by_size = size / BYTES_PER_TOKEN;
    let real = if picture { PICTURE_TOKENS } else { size / BYTES_PER_FILE_TOKEN };
    by_size.saturating_sub(real)
}

#[cfg(test)]
mod tests {
    use deadstop_core::TextFacts;

    use super::*;

    #[test]
    fn data_is_counted_for_what_it_is() {
        let long = "A1b2".repeat(30_000);
        for (json, expected) in [
            (format!(r#"{{"data":"iVBORw0KGgo{long}"}}"#), 40_003 - 2000),
            (format!(r#"{{"data" : "/9j/{long}"}}"#), 40_001 - 2000),
            (format!(r#"{{"url":"data:image/png;base64,iVBORw0KGgo{long}"}}"#), 40_003 - 2000),
            (format!(r#"{{"data":"JVBERi0{long}"}}"#), 40_002 - 3750),
            (format!(r#"{{"text":"{long}"}}"#), 0),
            (format!(r#"{{"text":"{}"}}"#, "plain words and more ".repeat(1000)), 0),
            (format!(r#"{{"data":"{}"}}"#, &long[..1000]), 0),
            (r#"{"data":"#.to_owned(), 0),
            (format!(r#"[{{"data":"iVBORw0KGgo{long}"}},{{"data":"/9j/{long}"}}]"#), 76_004),
        ] {
            assert_eq!(discount(&json), expected, "{}", &json[..json.len().min(60)]);
        }
    }

    #[test]
    fn markers_survive_the_masks() {
        let facts = |json: &str| TextFacts::of(&marker("image", json)).digest;
        assert_eq!(facts("a"), facts("a"));
        assert_ne!(facts("a"), facts("b"));
    }
}
