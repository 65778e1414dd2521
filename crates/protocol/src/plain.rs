//! JSON as the most lenient programs read it.
//!
//! A program that reads more than we do sees calls that we miss. Python takes `NaN`, `Infinity` and numbers
//! without a bound; JavaScript and Python take half of a surrogate pair, which a model can write into any
//! argument; of a member that comes twice, both take the last one; neither stops at our depth.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::Value;

/// How deep values are read. `serde_json` gives up on a whole document at 128 levels; stopping
/// before that means that no nesting can hide a call.
pub(crate) const DEEPEST: usize = 96;

/// JSON in UTF-16 or UTF-32 as UTF-8; `None` if it is neither. Python tells them apart like this, by their marks
/// or by where the first characters, which are ASCII, have zeros.
pub fn utf8(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() > LARGEST_WIDE {
        return None;
    }
    let (wide, big, skip) = width(bytes)?;
    let bytes = bytes.get(skip..)?;
    let text: String = if wide {
        let units = bytes.chunks(4).map(|unit| match unit {
            [a, b, c, d] if big => u32::from_be_bytes([*a, *b, *c, *d]),
            [a, b, c, d] => u32::from_le_bytes([*a, *b, *c, *d]),
            _ => u32::MAX,
        });
        units.map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    } else {
        let units = bytes.chunks(2).map(|unit| match unit {
            [a, b] if big => u16::from_be_bytes([*a, *b]),
            [a, b] => u16::from_le_bytes([*a, *b]),
            _ => 0xfffd,
        });
        let units = char::decode_utf16(units);
        units.map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    };
    Some(text.into_bytes())
}

/// The largest JSON in UTF-16 or UTF-32 that is read: there must be room for both forms of it.
const LARGEST_WIDE: usize = 8 << 20;

/// Whether this is JSON in UTF-16 or UTF-32 that is larger than is read.
pub fn is_too_wide(bytes: &[u8]) -> bool {
    let begins = |(wide, _, skip): (bool, bool, usize)| {
        let unit = bytes.get(skip..skip + if wide { 4 } else { 2 })?;
        unit.iter().find(|byte| **byte != 0).copied()
    };
    bytes.len() > LARGEST_WIDE
        && width(bytes).and_then(begins).is_some_and(|first| b"{[\"\t\n\r ".contains(&first))
}

/// Whether a character has four bytes, whether the large one comes first, and the length of the mark.
fn width(bytes: &[u8]) -> Option<(bool, bool, usize)> {
    let zeros = |at: usize| bytes.get(at).map(|byte| *byte == 0);
    Some(match bytes {
        [0, 0, 0xfe, 0xff, ..] => (true, true, 4),
        [0xff, 0xfe, 0, 0, ..] => (true, false, 4),
        [0xfe, 0xff, ..] => (false, true, 2),
        [0xff, 0xfe, ..] => (false, false, 2),
        _ => match (zeros(0)?, zeros(1)?, zeros(2), zeros(3)) {
            (true, true, ..) => (true, true, 0),
            (true, false, ..) => (false, true, 0),
            (false, true, Some(true), Some(true)) => (true, false, 0),
            (false, true, ..) => (false, false, 0),
            _ => return None,
        },
    })
}

/// Whether it is JSON to a lenient parser.
pub fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
        || made_strict(&text(bytes))
            .is_some_and(|strict| serde_json::from_str::<IgnoredAny>(&strict).is_ok())
}

/// The memory that a tree may take: 16 MiB of `0,` would take 256 MiB, and of `{"":0},` 1.5 GiB.
const LARGEST_TREE: usize = 48 << 20;

/// Bytes of JSON that need not be looked at: each takes less than 100 in a tree.
const NEVER_VAST: usize = LARGEST_TREE / 100;

/// Whether a tree of this JSON would take more memory than there is for it. About what `serde_json` needs counts:
/// a node for each object, room for four in each list, and a slot for each value.
pub(crate) fn is_vast(bytes: &[u8]) -> bool {
    if bytes.len() <= NEVER_VAST {
        return false;
    }
    let deepest = usize::MAX;
    weight(bytes, &Weights { object: 640, list: 128, member: 64, comma: 32, letter: 1, deepest })
        > LARGEST_TREE
}

/// The memory that the parts of a request may take beside its text.
const LARGEST_PARTS: usize = 48 << 20;

/// Levels of a request that are taken apart: messages, the parts of their contents, and the parts of a result among
/// those. What lies deeper, in a structured result or in a tool's schema, stays as it is.
const PARTED: usize = 7;

/// Whether a request has more parts than are read. A part of a message takes about 80 bytes: 15 MiB of `0,` took 611
/// MiB, and 300,000 messages 129 MiB. Texts do not count, so no context of a million tokens is refused: a message has
/// ten tokens at least, and 100,000 messages are read.
pub(crate) fn is_crowded(bytes: &[u8]) -> bool {
    let weights =
        Weights { object: 100, list: 40, member: 30, comma: 80, letter: 0, deepest: PARTED };
    bytes.len() > LARGEST_PARTS / 100 && weight(bytes, &weights) > LARGEST_PARTS
}

/// What the parts of JSON count.
struct Weights {
    object: usize,
    list: usize,
    member: usize,
    comma: usize,
    letter: usize,
    /// What lies deeper does not count.
    deepest: usize,
}

fn weight(bytes: &[u8], weights: &Weights) -> usize {
    let (mut sum, mut depth, mut in_text, mut escaped) = (0_usize, 0_usize, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => sum += weights.letter,
            b'{' | b'[' => {
                depth += 1;
                if depth <= weights.deepest {
                    sum += if *byte == b'{' { weights.object } else { weights.list };
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b':' if depth <= weights.deepest => sum += weights.member,
            b',' if depth <= weights.deepest => sum += weights.comma,
            _ => {}
        }
    }
    sum
}

/// As [`read`], but not what [`is_vast`].
pub(crate) fn read_bounded(bytes: &[u8]) -> serde_json::Result<Value> {
    match is_vast(bytes) {
        true => Err(serde::de::Error::custom("too many values")),
        false => read(bytes),
    }
}

/// Which of these members an object has, with another value than null, to a lenient program; `None` if it is no
/// object. Nothing is built of it, whatever its size.
pub(crate) fn present<const N: usize>(bytes: &[u8], names: [&str; N]) -> Option<[bool; N]> {
    let bytes = bytes.trim_ascii_start();
    let mut found = [false; N];
    // The member that is read now, and whether its name is behind us.
    let (mut named, mut valued) = (None, false);
    let (mut depth, mut at, mut ended) = (0_usize, 0, false);
    while let Some(byte) = bytes.get(at) {
        let mut length = 1;
        match byte {
            _ if byte.is_ascii_whitespace() => {}
            _ if ended || (depth == 0 && *byte != b'{') => return None,
            b'"' => {
                length = quoted(&bytes[at..]);
                if depth == 1 && !valued {
                    named = position(&bytes[at..at + length], &names);
                } else if depth == 1 {
                    note(&mut found, named, true);
                }
            }
            b'{' | b'[' => {
                if depth == 1 {
                    note(&mut found, named, true);
                }
                depth += 1;
            }
            b'}' | b']' => {
                depth -= 1;
                ended = depth == 0;
            }
            b':' if depth == 1 => valued = true,
            b',' if depth == 1 => (named, valued) = (None, false),
            _ => {
                let word = &bytes[at..];
                let end = word.iter().position(|byte| !is_word(char::from(*byte)));
                length = end.unwrap_or(word.len()).max(1);
                if depth == 1 && valued {
                    let word = std::str::from_utf8(&word[..length]).unwrap_or_default();
                    note(&mut found, named, word != "null" && !is_beyond(word));
                }
            }
        }
        at += length;
    }
    ended.then_some(found)
}

/// Of a member that comes twice the last one counts.
fn note<const N: usize>(found: &mut [bool; N], named: Option<usize>, is: bool) {
    if let Some(slot) = named.and_then(|named| found.get_mut(named)) {
        *slot = is;
    }
}

/// Which of these names a text in quotes is.
fn position<const N: usize>(quoted: &[u8], names: &[&str; N]) -> Option<usize> {
    // A name of six characters per letter at most; more are none of these.
    let text = std::str::from_utf8(quoted.get(..quoted.len().min(256))?).ok()?;
    let name: Cow<'_, str> = match text.contains('\\') {
        true => serde_json::from_str::<String>(text).ok()?.into(),
        false => text.trim_matches('"').into(),
    };
    names.iter().position(|own| **own == *name)
}

/// Bytes as programs decode them: what is no text is replaced.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes))
}

/// Reads JSON with good will: bytes that are no text are replaced, and so is whatever only lenient parsers
/// take. `null` stands for what is deeper than [`DEEPEST`].
pub(crate) fn read(bytes: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(bytes).or_else(|_| serde_json::from_str(&strict(&text(bytes))))
}

/// Strict JSON, if the text is JSON to a lenient parser.
pub(crate) fn strict(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    write_strict(text, &mut out);
    out
}

/// The same, or `None` if the text is that already: a large one is not copied for nothing.
pub(crate) fn made_strict(text: &str) -> Option<String> {
    let mut same = Same(Some(text));
    write_strict(text, &mut same);
    (same.0 != Some("")).then(|| strict(text))
}

/// Takes a text.
trait Write {
    fn push_str(&mut self, text: &str);

    fn push(&mut self, c: char) {
        self.push_str(c.encode_utf8(&mut [0; 4]));
    }
}

impl Write for String {
    fn push_str(&mut self, text: &str) {
        String::push_str(self, text);
    }
}

/// What follows in a text if it has been equal so far.
struct Same<'a>(Option<&'a str>);

impl Write for Same<'_> {
    fn push_str(&mut self, text: &str) {
        self.0 = self.0.and_then(|rest| rest.strip_prefix(text));
    }
}

fn write_strict(text: &str, out: &mut impl Write) {
    let (mut depth, mut rest) = (0_usize, text);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => {
                let length = quoted(rest.as_bytes());
                if depth <= DEEPEST {
                    write_text(&rest[..length], out);
                }
                rest = &rest[length..];
                continue;
            }
            '{' | '[' => {
                depth += 1;
                if depth == DEEPEST + 1 {
                    out.push_str("null");
                }
                1
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if depth == DEEPEST {
                    rest = &rest[1..];
                    continue;
                }
                1
            }
            _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            other => other.len_utf8(),
        };
        let token = &rest[..length];
        rest = &rest[length..];
        if depth <= DEEPEST {
            out.push_str(if is_beyond(token) { "null" } else { token });
        }
    }
}

/// What numbers and the three words are made of.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')
}

/// A number that is none in strict JSON, or that no float can hold.
fn is_beyond(token: &str) -> bool {
    let is_number = token.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    matches!(token, "NaN" | "Infinity" | "-Infinity")
        || (is_number && token.parse::<f64>().is_ok_and(f64::is_infinite))
}

/// The length of the text in quotes at the beginning.
fn quoted(text: &[u8]) -> usize {
    let mut escaped = false;
    for (at, byte) in text.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Writes a text in quotes with half pairs and control characters replaced.
fn write_text(text: &str, out: &mut impl Write) {
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c == '\\' || c < ' ') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let unit = |text: &str| {
            let digits = text.strip_prefix("\\u")?.get(..4)?;
            u32::from_str_radix(digits, 16).ok()
        };
        let length = match (unit(rest), rest.get(6..).and_then(unit)) {
            (Some(0xD800..0xDC00), Some(0xDC00..0xE000)) => 12,
            (Some(0xD800..0xE000), _) => {
                out.push_str("\\ufffd");
                rest = &rest[6..];
                continue;
            }
            _ if rest.starts_with('\\') => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            _ => {
                out.push(' ');
                rest = &rest[1..];
                continue;
            }
        };
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_lenient_programs_read_is_read() {
        let check = |text: &str, expected: Value| {
            assert_eq!(read(text.as_bytes()).unwrap_or_default(), expected, "{text}");
            let made = made_strict(text).unwrap_or_else(|| text.to_owned());
            assert_eq!(made, strict(text), "{text}");
        };
        check(
            "{\"a\": NaN, \"b\": [Infinity, -Infinity, 1]}",
            json!({"a": null, "b": [null, null, 1]}),
        );
        check("{\"a\": 1e999, \"b\": -1E+999, \"c\": 2}", json!({"a": null, "b": null, "c": 2}));
        check(r#"{"a": "x\ud800y", "b": "\ud83d\ude00"}"#, json!({"a": "x\u{fffd}y", "b": "😀"}));
        check(r#"{"a": "\udc00\ud800\ud800\udc00"}"#, json!({"a": "\u{fffd}\u{fffd}\u{10000}"}));
        check(r#"{"a": "NaN \\u \" [{", "b\\": 1}"#, json!({"a": "NaN \\u \" [{", "b\\": 1}));
        check("{\"a\": \"tab\there\"}", json!({"a": "tab here"}));
        check("{\"a\": 1, \"a\": 2}", json!({"a": 2}));
        // What is no JSON to any client is none.
        for none in ["{\"a\": nan}", "{\"a\" 1}", "{\"a\": \"x", "{\"a\": \"\\u12\"}", "{} {}", ""]
        {
            assert!(read(none.as_bytes()).is_err(), "{none}");
        }
    }

    #[test]
    fn hole_04_a_tree_is_not_larger_than_there_is_room_for() {
        let check = |each: &str, times: usize, expected: bool| {
            let text = format!("[{}0]", each.repeat(times));
            assert!(is_json(text.as_bytes()));
            assert_eq!(is_vast(text.as_bytes()), expected, "{times} times {each}");
            assert_eq!(read_bounded(text.as_bytes()).is_err(), expected, "{times} times {each}");
        };
        check("0,", 1 << 20, false);
        check("0,", 2 << 20, true);
        check("{\"\":0},", 1 << 16, false);
        check("{\"\":0},", 1 << 17, true);
        check("[0],", 1 << 19, true);
        let messages = r#"{"role":"tool","tool_call_id":"a","content":"x"},"#;
        assert!(is_crowded("0,".repeat(1 << 20).as_bytes()));
        assert!(is_crowded(messages.repeat(200_000).as_bytes()));
        assert!(!is_crowded(messages.repeat(100_000).as_bytes()));
        // Whatever its size, a structured result is not taken apart, and neither are pictures.
        let rows = format!("[{}0]", "[1.5,2],".repeat(1 << 20));
        let answer = format!(r#"{{"functionResponse":{{"response":{{"rows":{rows}}}}}}}"#);
        let request = |part: &str| format!(r#"{{"contents":[{{"parts":[{part}]}}]}}"#);
        assert!(!is_crowded(request(&answer).as_bytes()));
        assert!(is_crowded(request(&rows).as_bytes()));
        let picture = format!(r#"{{"inlineData":{{"data":"{}"}}}}"#, "[{,:".repeat(8 << 20));
        assert!(!is_crowded(request(&picture).as_bytes()));
        // What stands in a text takes its length.
        check(&format!("\"{}\",", "[{,:".repeat(1 << 10)), 1 << 10, false);
    }

    #[test]
    fn json_in_other_widths_is_read() {
        let text = "{\"a\": \"\u{e9} \u{1f600}\"}";
        let of = |units: &dyn Fn(char) -> Vec<u8>, mark: &[u8]| {
            [mark.to_vec(), text.chars().flat_map(units).collect()].concat()
        };
        let narrow = |big: bool| {
            move |c: char| {
                let units = c.encode_utf16(&mut [0; 2]).to_vec();
                let bytes = units.into_iter();
                bytes.flat_map(|u| if big { u.to_be_bytes() } else { u.to_le_bytes() }).collect()
            }
        };
        let wide = |big: bool| {
            move |c: char| {
                let unit = u32::from(c);
                Vec::from(if big { unit.to_be_bytes() } else { unit.to_le_bytes() })
            }
        };
        for mark in [true, false] {
            let marked = |bytes: &'static [u8]| if mark { bytes } else { &[] };
            for bytes in [
                of(&narrow(true), marked(&[0xfe, 0xff])),
                of(&narrow(false), marked(&[0xff, 0xfe])),
                of(&wide(true), marked(&[0, 0, 0xfe, 0xff])),
                of(&wide(false), marked(&[0xff, 0xfe, 0, 0])),
            ] {
                assert_eq!(utf8(&bytes).as_deref(), Some(text.as_bytes()), "{bytes:?}");
            }
        }
        for plain in [text.as_bytes(), b"", b"{", b"{}", b"\xEF\xBB\xBF{}"] {
            assert_eq!(utf8(plain), None);
        }
    }

    #[test]
    fn no_depth_hides_what_stands_beside_it() {
        let deep = format!(
            "{{\"deep\":{}1,\"]\"{},\"a\":[1]}}",
            "[{\"x\":".repeat(5000),
            "}]".repeat(5000)
        );
        assert_eq!(read(deep.as_bytes()).unwrap_or_default()["a"], json!([1]));
        let just = format!("{}{}", "[".repeat(DEEPEST), "]".repeat(DEEPEST));
        assert_eq!(strict(&just), just);
    }
}
