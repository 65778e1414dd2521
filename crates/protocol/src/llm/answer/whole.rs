//! Answers that are JSON as a whole, and Gemini's list of chunks that streams without events.
//!
//! A whole answer is kept (up to a cap) while its bytes pass, and read when it has ended. Gemini's
//! list is read element by element, so that a long one is followed while it runs.

use super::sse::{Carry, Taken};
use crate::plain;

/// The largest whole answer that is read. A larger one passes and is not looked at.
pub(super) const LARGEST_ANSWER: usize = 32 * 1024 * 1024;

/// A whole answer as it arrives.
#[derive(Debug, Default)]
pub(super) struct Whole {
    bytes: Vec<u8>,
    too_large: bool,
}

impl Whole {
    /// Keeps more of it.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.bytes.len() + bytes.len() > LARGEST_ANSWER {
            self.too_large = true;
            self.bytes = Vec::new();
        }
        if !self.too_large {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Whether it was too large to be read.
    pub(super) fn lost(&self) -> bool {
        self.too_large
    }

    /// All of it as UTF-8, unless it was too large; nothing the second time.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.bytes);
        let is_json = |text: &Vec<u8>| plain::is_json(text);
        plain::utf8(&bytes).filter(is_json).unwrap_or(bytes)
    }
}

/// Finds the objects in a list of them, or a lone one.
#[derive(Debug, Clone, Default)]
pub(super) struct Elements {
    carry: Carry,
    depth: u64,
    in_text: bool,
    escaped: bool,
    /// Whether its first character is still to come, which tells whether it is JSON at all.
    unknown: bool,
    /// It is something else.
    other: bool,
}

impl Elements {
    /// Finds the objects in a file, if it is one of JSON.
    pub(super) fn of_file() -> Elements {
        Elements { unknown: true, ..Elements::default() }
    }

    /// Whether an object has begun and not ended.
    pub(super) fn inside(&self) -> bool {
        self.carry.inside()
    }

    /// Whether any object was too large to be read.
    pub(super) fn lost(&self) -> bool {
        self.carry.lost()
    }

    /// Calls back for each object that these bytes complete, with the offset in them at which it
    /// starts: 0 if it started before.
    pub(super) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8], usize)) {
        let space = |byte: &u8| byte.is_ascii_whitespace() || b"\xEF\xBB\xBF".contains(byte);
        if let (true, Some(first)) = (self.unknown, bytes.iter().find(|byte| !space(byte))) {
            (self.unknown, self.other) = (false, !matches!(first, b'{' | b'['));
        }
        if self.other {
            return;
        }
        let mut at = 0;
        loop {
            let held_from = if self.carry.inside() {
                0
            } else {
                match bytes[at..].iter().position(|byte| *byte == b'{') {
                    Some(gap) => at += gap,
                    None => return,
                }
                at
            };
            let Some(length) = self.end(&bytes[at..]) else {
                // What comes back is too large to be read; it has passed already.
                self.carry.keep(&bytes[at..]);
                return;
            };
            let taken: Taken<'_> = self.carry.take(&bytes[at..at + length]);
            if taken.readable {
                each(&taken.bytes, held_from);
            }
            self.carry.reuse(taken);
            at += length;
        }
    }

    /// Where the current object ends in these bytes. Brackets need no counting: an object's last
    /// brace is the one that closes its first.
    fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_text => self.escaped = true,
                b'"' => self.in_text = !self.in_text,
                _ if self.in_text => {}
                b'{' => self.depth += 1,
                b'}' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_in_a_list() {
        let check = |list: &str, expected: &[&str]| {
            for cut in 0..=list.len() {
                let mut found = Vec::new();
                let mut elements = Elements::default();
                for part in [&list.as_bytes()[..cut], &list.as_bytes()[cut..]] {
                    elements.push(part, |object, _| {
                        found.push(String::from_utf8_lossy(object).into_owned());
                    });
                }
                assert_eq!(found, expected, "{list} cut at {cut}");
            }
        };
        check(r#"[{"a":1},{"b":[{}]}]"#, &[r#"{"a":1}"#, r#"{"b":[{}]}"#]);
        check("[{\"a\":\"}\\\"{\"}\n,\r\n{}\n]", &[r#"{"a":"}\"{"}"#, "{}"]);
        check(r#"{"error":{}}"#, &[r#"{"error":{}}"#]);
        check("[]", &[]);
        check(r#"[{"a":"#, &[]);
    }

    #[test]
    fn a_file_is_read_if_it_is_json() {
        let check = |file: &[u8], expected: usize| {
            for size in [1, 3, file.len()] {
                let (mut elements, mut found) = (Elements::of_file(), 0);
                file.chunks(size).for_each(|part| elements.push(part, |_, _| found += 1));
                assert_eq!(found, expected, "{}", String::from_utf8_lossy(file));
            }
        };
        check(b"{\"a\":1}\n{\"b\":2}\n", 2);
        check(b"\xEF\xBB\xBF \n[{}]", 1);
        check(b"%PDF {} {}", 0);
        check(b"\x89PNG\n{}", 0);
    }

    #[test]
    fn an_answer_too_large_is_forgotten() {
        let mut whole = Whole::default();
        whole.push(&vec![b' '; LARGEST_ANSWER]);
        whole.push(b"{}");
        whole.push(b"{}");
        assert_eq!(whole.take(), b"");
    }
}
