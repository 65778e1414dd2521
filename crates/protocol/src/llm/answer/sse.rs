//! Server-sent events, found in bytes that arrive in pieces of any size.
//!
//! Only the borders of events are looked for here; an event that lies within one piece is read in
//! place, and only one that is cut is copied. The standard's rules hold: lines end in `\n`, `\r\n`
//! or `\r`, an empty line ends an event, several `data:` lines are one text, a leading byte order
//! mark is dropped.

use std::borrow::Cow;

/// The largest event that is read. A larger one is not looked at, and its reader says so.
pub(crate) const LARGEST_EVENT: usize = 16 * 1024 * 1024;

/// What is kept of the arguments of an answer's calls, where they come in parts. They are kept twice, so this is 4 MiB
/// of arguments: no model writes as many.
pub(super) const LARGEST_ARGUMENTS: usize = 8 * 1024 * 1024;
/// What a buffer may keep for the next event once it is empty.
const SPARE: usize = 64 * 1024;

const MARK: &[u8] = b"\xEF\xBB\xBF";

/// Finds where events end.
#[derive(Debug)]
pub(crate) struct Borders {
    /// Nothing of the current line has been seen.
    line_empty: bool,
    /// The last byte was a `\r` within an event: a `\n` now belongs to it.
    after_cr: bool,
    /// The last event ended in a `\r`: a `\n` now still belongs to that event.
    owes_lf: bool,
}

impl Default for Borders {
    fn default() -> Borders {
        Borders { line_empty: true, after_cr: false, owes_lf: false }
    }
}

impl Borders {
    /// How many of these bytes still belong to the event before: a `\n` whose `\r` ended it.
    pub(crate) fn rest_of_last(&mut self, bytes: &[u8]) -> usize {
        match bytes.first() {
            Some(first) if self.owes_lf => {
                self.owes_lf = false;
                usize::from(*first == b'\n')
            }
            _ => 0,
        }
    }

    /// Where the current event ends in these bytes, its empty line included.
    pub(crate) fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(first) = bytes.get(at) {
            if self.after_cr {
                self.after_cr = false;
                if *first == b'\n' {
                    at += 1;
                    continue;
                }
            }
            let Some(length) = line_end(&bytes[at..]) else {
                self.line_empty = false;
                return None;
            };
            let is_cr = bytes[at + length] == b'\r';
            let ends_event = self.line_empty && length == 0;
            at += length + 1;
            self.line_empty = true;
            if !ends_event {
                self.after_cr = is_cr;
                continue;
            }
            if is_cr {
                match bytes.get(at) {
                    Some(b'\n') => at += 1,
                    Some(_) => {}
                    None => self.owes_lf = true,
                }
            }
            return Some(at);
        }
        None
    }
}

/// Where the first `\r` or `\n` is. Most of a stream is looked at here.
fn line_end(bytes: &[u8]) -> Option<usize> {
    memchr::memchr2(b'\n', b'\r', bytes)
}

/// The data of an event: in place if it is one line, joined by line ends if it is several. `None`
/// for comments, pings without data and empty events.
pub(crate) fn data(event: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut rest = event.strip_prefix(MARK).unwrap_or(event);
    let mut found: Option<Cow<'_, [u8]>> = None;
    while !rest.is_empty() {
        let length = line_end(rest).unwrap_or(rest.len());
        let line = &rest[..length];
        rest = rest.get(length + 1..).unwrap_or_default();
        let Some(value) = line.strip_prefix(b"data") else { continue };
        let value = match value.split_first() {
            None => value,
            Some((b':', value)) => value.strip_prefix(b" ").unwrap_or(value),
            Some(_) => continue,
        };
        match &mut found {
            None => found = Some(Cow::Borrowed(value)),
            Some(joined) => {
                let joined = joined.to_mut();
                joined.push(b'\n');
                joined.extend_from_slice(value);
            }
        }
    }
    found
}

/// The data of an event as some clients read it: those that end lines as Python's `splitlines` does (at form feeds, at
/// Unicode's own line ends, and at a few control characters), and those that take a byte order mark for a part of
/// the first line. `None` where that changes nothing.
pub(crate) fn otherwise(event: &[u8]) -> Option<Vec<String>> {
    let may_break = |byte: &u8| matches!(byte, 0x0b | 0x0c | 0x1c..=0x1e | 0xc2 | 0xe2);
    let marked = event.starts_with(MARK);
    if !marked && !event.iter().fold(false, |found, byte| found | may_break(byte)) {
        return None;
    }
    let text = String::from_utf8_lossy(event);
    if !marked && !text.contains(is_odd_end) {
        return None;
    }
    let lines = text.split(|c: char| matches!(c, '\r' | '\n') || is_odd_end(c));
    let (mut found, mut data) = (Vec::new(), String::new());
    for line in lines.chain([""]) {
        match line.strip_prefix("data:") {
            Some(value) => {
                data.push_str(if data.is_empty() { "" } else { "\n" });
                data.push_str(value.strip_prefix(' ').unwrap_or(value));
            }
            None if line.is_empty() && !data.is_empty() => found.push(std::mem::take(&mut data)),
            None => {}
        }
    }
    (!data_is(event, &found)).then_some(found)
}

/// Whether an event's data is just this, as the standard reads it.
fn data_is(event: &[u8], found: &[String]) -> bool {
    match (data(event), found) {
        (None, []) => true,
        (Some(data), [one]) => *data == *one.as_bytes(),
        _ => false,
    }
}

fn is_odd_end(c: char) -> bool {
    matches!(c, '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// The lines of an event that are neither data nor another field nor a comment, with their ends.
pub(crate) fn bare(event: &[u8]) -> Option<Vec<u8>> {
    let event = event.strip_prefix(MARK).unwrap_or(event);
    let lines = event.split_inclusive(|byte| matches!(byte, b'\r' | b'\n'));
    let fields: [&[u8]; 5] = [b"data", b"event", b"id", b"retry", b":"];
    let is_field = |line: &&[u8]| fields.iter().any(|field| line.starts_with(field));
    let bare: Vec<u8> = lines.filter(|line| !is_field(line)).flatten().copied().collect();
    bare.iter().any(|byte| !byte.is_ascii_whitespace()).then_some(bare)
}

/// The name of an event, if it has one that says something.
pub(crate) fn name(event: &[u8]) -> Option<&[u8]> {
    let lines =
        event.strip_prefix(MARK).unwrap_or(event).split(|byte| matches!(byte, b'\r' | b'\n'));
    let mut values = lines.filter_map(|line| line.strip_prefix(b"event:"));
    let named = values.next_back().map(|value| value.strip_prefix(b" ").unwrap_or(value));
    named.filter(|name| !name.is_empty())
}

/// What has arrived of an event that is not complete yet, up to the cap.
#[derive(Debug, Clone, Default)]
pub(crate) struct Carry {
    bytes: Vec<u8>,
    /// Some of the event has arrived.
    inside: bool,
    /// The event is too large to be read: its bytes are no longer kept.
    too_large: bool,
    /// An event has passed, at least in part, that was not read.
    lost: bool,
}

impl Carry {
    /// Whether an event has begun and not ended.
    pub(crate) fn inside(&self) -> bool {
        self.inside
    }

    /// Whether the current event has grown too large to be kept.
    pub(crate) fn too_large(&self) -> bool {
        self.too_large
    }

    /// Whether any event was too large to be read.
    pub(crate) fn lost(&self) -> bool {
        self.lost
    }

    /// Keeps the beginning of an event, or more of it. If that makes it too large, what was kept
    /// (the new bytes included) is given back.
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        if bytes.is_empty() {
            return None;
        }
        self.inside = true;
        if self.too_large {
            return Some(bytes.to_vec());
        }
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() <= LARGEST_EVENT {
            return None;
        }
        (self.too_large, self.lost) = (true, true);
        Some(std::mem::take(&mut self.bytes))
    }

    /// The event that these bytes end: its whole bytes, and whether it may be read.
    pub(crate) fn take<'a>(&mut self, end: &'a [u8]) -> Taken<'a> {
        let mut kept = std::mem::take(&mut self.bytes);
        let was_large = std::mem::take(&mut self.too_large);
        self.inside = false;
        let bytes = if kept.is_empty() {
            self.bytes = kept;
            Cow::Borrowed(end)
        } else {
            kept.extend_from_slice(end);
            Cow::Owned(kept)
        };
        let readable = !was_large && bytes.len() <= LARGEST_EVENT;
        self.lost |= !readable;
        Taken { bytes, readable }
    }

    /// Takes a buffer back, so that cut events do not each allocate one.
    pub(crate) fn reuse(&mut self, taken: Taken<'_>) {
        if let Cow::Owned(mut buffer) = taken.bytes
            && buffer.capacity() <= SPARE
        {
            buffer.clear();
            self.bytes = buffer;
        }
    }
}

/// An event that has ended.
pub(crate) struct Taken<'a> {
    /// Its bytes: all of them, unless it was too large to be kept.
    pub(crate) bytes: Cow<'a, [u8]>,
    /// Whether it is small enough to be read.
    pub(crate) readable: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(stream: &[u8]) -> Vec<String> {
        let mut borders = Borders::default();
        let (mut found, mut start) = (Vec::new(), 0);
        while let Some(end) = borders.end(&stream[start..]) {
            if let Some(data) = data(&stream[start..start + end]) {
                found.push(String::from_utf8_lossy(&data).into_owned());
            }
            start += end;
        }
        found
    }

    #[test]
    fn events_by_the_standard() {
        let check = |stream: &str, expected: &[&str]| {
            assert_eq!(events(stream.as_bytes()), expected, "{stream:?}");
        };
        check("data: a\n\ndata: b\n\n", &["a", "b"]);
        check("data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]);
        check("data: a\r\rdata: b\r\r", &["a", "b"]);
        check("data: a\ndata: b\n\n", &["a\nb"]);
        check("data:a\n\ndata:  b\n\n", &["a", " b"]);
        check("data\n\n", &[""]);
        check(": comment\n\nevent: ping\n\n\n\ndata: a\n\n", &["a"]);
        check(": OPENROUTER PROCESSING\ndata: a\n\n", &["a"]);
        check("\u{feff}data: a\n\n", &["a"]);
        check("database: a\n\n", &[]);
        check("data: not ended\n", &[]);
        check("event: x\nid: 1\nretry: 5\ndata: a\n\n", &["a"]);
    }

    #[test]
    fn lines_that_end_in_other_ways() {
        let same = |event: &str| assert_eq!(otherwise(event.as_bytes()), None, "{event:?}");
        let check = |event: &str, expected: &[&str]| {
            let found = otherwise(event.as_bytes()).unwrap();
            assert_eq!(found, expected, "{event:?}");
        };
        same("data: a\n\n");
        same("data: \u{2713} caf\u{e9}\n\n");
        check("\u{feff}data: a\n\n", &[]);
        check("\u{feff}event: x\ndata: a\u{c}\n\n", &["a"]);
        same("\u{feff}event: x\ndata: a\n\n");
        // Within a text, such clients lose the event.
        check("data: \"a\u{2028}b\"\n\n", &["\"a"]);
        check("data: a\u{c}\n\n", &["a"]);
        for end in
            ["\u{2028}", "\u{2029}", "\u{85}", "\u{b}", "\u{c}", "\u{1c}", "\u{1d}", "\u{1e}"]
        {
            check(&format!("data: a{end}{end}data: b\n\n"), &["a", "b"]);
        }
    }

    #[test]
    fn lines_that_are_no_field() {
        let found =
            |event: &str| bare(event.as_bytes()).map(|bare| String::from_utf8(bare).unwrap());
        assert_eq!(found("event: x\ndata: a\n\n"), None);
        assert_eq!(found(": {}\nid: 1\nretry: 5\n\n"), None);
        assert_eq!(found("{\"a\":\n1}\n\n").as_deref(), Some("{\"a\":\n1}\n\n"));
    }

    #[test]
    fn a_line_end_anywhere_in_a_block() {
        for length in 0..70 {
            let mut line = vec![b'x'; length];
            assert_eq!(line_end(&line), None);
            line.extend_from_slice(b"\rxx\n");
            assert_eq!(line_end(&line), Some(length));
        }
    }

    #[test]
    fn an_event_too_large_is_given_back_and_not_read() {
        let mut carry = Carry::default();
        assert_eq!(carry.keep(&vec![b'x'; LARGEST_EVENT]), None);
        assert_eq!(carry.keep(b"yy").map(|kept| kept.len()), Some(LARGEST_EVENT + 2));
        assert_eq!(carry.keep(b"zz"), Some(b"zz".to_vec()));
        assert!(carry.inside() && carry.too_large());
        let taken = carry.take(b"\n");
        assert!(!taken.readable);
        assert_eq!(&*taken.bytes, b"\n");
        assert!(!carry.inside() && carry.take(b"data: a\n\n").readable);
    }
}
