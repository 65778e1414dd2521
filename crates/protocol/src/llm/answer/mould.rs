//! Most events of a stream are the event before with another text in it.
//!
//! Where that is so, the text is read without reading the JSON around it again. Nothing is guessed:
//! an event fits if all its bytes but those inside one JSON string are those of an event that
//! was read in full and brought nothing but that string, and if what stands in the string needs no
//! unescaping. Read in full, it would have brought the same text and nothing else.

use super::Lone;

/// OpenAI pads its events with a text of random length, so that their size does not reveal words.
const PADDING: &[u8] = b"\"obfuscation\":\"";

/// The last event that brought a text and nothing else.
#[derive(Debug, Default)]
pub(super) struct Mould {
    /// All before the text.
    before: Vec<u8>,
    /// All after it, up to the padding if there is some.
    after: Vec<u8>,
    /// All after the padding.
    end: Option<Vec<u8>>,
    /// Whether its text was a thought.
    pub(super) thought: bool,
}

impl Mould {
    /// The text of an event that fits.
    pub(super) fn text<'e>(&self, event: &'e [u8]) -> Option<&'e str> {
        if self.before.is_empty() {
            return None;
        }
        let rest = event.strip_prefix(self.before.as_slice())?;
        let (text, rest) = rest.split_at(string_end(rest)?);
        let rest = rest.strip_prefix(self.after.as_slice())?;
        match &self.end {
            Some(end) => {
                let padding = rest.strip_suffix(end.as_slice())?;
                (string_end(padding).is_none() && is_plain(padding)).then_some(())?;
            }
            None => rest.is_empty().then_some(())?,
        }
        // An empty text may let another field speak in its place.
        std::str::from_utf8(text).ok().filter(|text| !text.is_empty())
    }

    /// Takes the form of an event that brought a text and nothing else.
    pub(super) fn learn(&mut self, event: &[u8], lone: Lone) {
        let Some(at) = lone.address.checked_sub(event.as_ptr().addr()) else { return };
        let Some((head, tail)) = event.split_at_checked(at + lone.length) else { return };
        self.before.clear();
        self.before.extend_from_slice(&head[..at]);
        let padding = memchr::memmem::find(tail, PADDING).map(|found| found + PADDING.len());
        let padding = padding.and_then(|from| Some((from, from + string_end(&tail[from..])?)));
        self.after.clear();
        match padding {
            Some((from, to)) => {
                self.after.extend_from_slice(&tail[..from]);
                let end = self.end.get_or_insert_default();
                end.clear();
                end.extend_from_slice(&tail[to..]);
            }
            None => {
                self.after.extend_from_slice(tail);
                self.end = None;
            }
        }
    }
}

/// Where a JSON string ends, if there is nothing in it that would have to be unescaped or is no JSON.
fn string_end(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))?;
    (bytes[end] == b'"').then_some(end)
}

fn is_plain(bytes: &[u8]) -> bool {
    bytes.is_ascii() && !bytes.iter().any(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lone(event: &str, text: &str) -> Lone {
        let address = event.as_ptr().addr() + event.find(text).unwrap();
        Lone { address, length: text.len() }
    }

    fn check(learned: &str, event: &str, expected: Option<&str>) {
        let mut mould = Mould::default();
        mould.learn(learned.as_bytes(), lone(learned, "TEXT"));
        assert_eq!(mould.text(event.as_bytes()), expected, "{learned} {event}");
    }

    #[test]
    fn only_the_text_may_differ() {
        let event = "data: {\"a\":1,\"t\":\"TEXT\",\"f\":null}\n\n";
        for text in ["x", " two words", "ü", "/"] {
            check(event, &event.replace("TEXT", text), Some(text));
        }
        for text in ["", "a\\nb", "\\\"", "a\"b", "a\nb", "\",\"x\":\"y"] {
            check(event, &event.replace("TEXT", text), None);
        }
        for (from, to) in [("1", "2"), ("null", "\"stop\""), ("\"t\"", "\"u\""), ("\n\n", "\n")] {
            check(event, &event.replace(from, to), None);
        }
        check(event, "", None);
        // What stands behind it is something else.
        check(event, &format!("{event}data: more\n\n"), None);
    }

    #[test]
    fn padding_may_differ_too() {
        let event = "data: {\"t\":\"TEXT\",\"obfuscation\":\"aB\"}\n\n";
        let padded = |padding: &str| event.replace("TEXT", "x").replace("aB", padding);
        for padding in ["aB", "", "aBcDeF"] {
            check(event, &padded(padding), Some("x"));
        }
        for padding in ["\\n", "a\",\"error\":\"b", "ü", "a\n"] {
            check(event, &padded(padding), None);
        }
        let bare = "data: {\"t\":\"TEXT\"}\n\n";
        check(event, &bare.replace("TEXT", "x"), None);
        check(bare, &padded("aB"), None);
    }

    #[test]
    fn a_new_form_replaces_the_old_one() {
        let mut mould = Mould::default();
        assert_eq!(mould.text(b"data: x"), None);
        let (first, second) = ("{\"t\":\"TEXT\",\"obfuscation\":\"a\"}", "[\"TEXT\"]");
        mould.learn(first.as_bytes(), lone(first, "TEXT"));
        mould.learn(second.as_bytes(), lone(second, "TEXT"));
        assert_eq!(mould.text(b"[\"new\"]"), Some("new"));
        assert_eq!(mould.text(first.as_bytes()), None);
        // A text from elsewhere teaches nothing.
        mould.learn(b"short", Lone { address: usize::MAX - 4, length: 2 });
        assert_eq!(mould.text(b"[\"new\"]"), Some("new"));
    }
}
