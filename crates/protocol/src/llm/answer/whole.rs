//! Answers that are JSON as a whole, and Gemini's list of chunks that streams without events.
//!
//! A whole answer is kept (up to a cap) while its bytes pass, and read when it has ended. Gemini's
//! list is read element by element, so that a long one is followed while it runs. So is an object that is too
//! large to be kept: what is in it is read, part by part.

use std::collections::VecDeque;
use std::ops::Range;

use super::sse::{Carry, Taken};
use crate::buffer::append;
use crate::plain;

/// The largest answer that is read as a whole.
pub(super) const LARGEST_ANSWER: usize = 32 * 1024 * 1024;

/// The largest part that is read of an object that is too large itself.
const LARGEST_PART: usize = 512 * 1024;

/// Objects within each other that are followed in such an object; of deeper ones the inner ones are read.
const DEEPEST_PART: usize = 1024;

/// A whole answer as it arrives.
#[derive(Debug, Default)]
pub(super) struct Whole {
    bytes: Vec<u8>,
    too_large: bool,
    /// Whether a larger one goes on being read object by object.
    by_parts: bool,
}

impl Whole {
    /// Reads an answer that is too large to be kept object by object.
    pub(super) fn by_parts(&mut self) {
        self.by_parts = true;
    }

    /// Keeps more of it. Once it is too large, what was kept is given back if its objects are to be read.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut kept = None;
        if self.bytes.len() + bytes.len() > LARGEST_ANSWER && !self.too_large {
            self.too_large = true;
            kept = Some(std::mem::take(&mut self.bytes)).filter(|_| self.by_parts);
        }
        if !self.too_large {
            append(&mut self.bytes, bytes, LARGEST_ANSWER);
        }
        kept
    }

    /// Whether it was too large to be read.
    pub(super) fn lost(&self) -> bool {
        self.too_large
    }

    /// All of it as UTF-8, unless it was too large; nothing the second time.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.bytes);
        self.too_large |= plain::is_too_wide(&bytes);
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
    /// What is read of the current object, which is too large to be read as one.
    parts: Option<Parts>,
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

    /// Whether it is a file of another kind than JSON.
    pub(super) fn is_other(&self) -> bool {
        self.other
    }

    /// Calls back for each object that these bytes complete, with the offset in them at which it
    /// starts: 0 if it started before. In place of an object that is too large come those in it.
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
                // What comes back is too large to be read as one; it has passed already.
                if let Some(large) = self.carry.keep(&bytes[at..]) {
                    let parts = self.parts.get_or_insert_default();
                    parts.push(&large, |part| each(part, 0));
                }
                return;
            };
            let taken: Taken<'_> = self.carry.take(&bytes[at..at + length]);
            match taken.readable {
                true => each(&taken.bytes, held_from),
                false => {
                    let mut parts = self.parts.take().unwrap_or_default();
                    parts.push(&taken.bytes, |part| each(part, held_from));
                }
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

/// The largest objects within a larger one that are small enough to be read. Work and memory do not depend on
/// how they lie in each other.
#[derive(Debug, Clone, Default)]
pub(super) struct Parts {
    /// The bytes since the first of the objects below.
    bytes: Vec<u8>,
    /// Where the objects begin that have not ended, from the outermost that may still be read.
    open: VecDeque<usize>,
    /// Those that have ended and lie in no other that has: they are read if what they lie in cannot be.
    ended: Vec<Range<usize>>,
    in_text: bool,
    escaped: bool,
}

impl Parts {
    /// Calls back for each of them that these bytes complete.
    pub(super) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        // What comes before is in `self.bytes`, or is not needed.
        let mut from = 0;
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_text => self.escaped = true,
                b'"' => self.in_text = !self.in_text,
                _ if self.in_text => {}
                b'{' => {
                    if self.open.is_empty() {
                        self.bytes.clear();
                        from = at;
                    } else if self.open.len() == DEEPEST_PART {
                        self.open.pop_front();
                    }
                    self.open.push_back(self.bytes.len() + at - from);
                }
                b'}' => {
                    let Some(start) = self.open.pop_back() else { continue };
                    while self.ended.last().is_some_and(|ended| ended.start > start) {
                        self.ended.pop();
                    }
                    self.ended.push(start..self.bytes.len() + at + 1 - from);
                    if self.open.is_empty() {
                        self.bytes.extend_from_slice(&bytes[from..=at]);
                        from = at + 1;
                        self.tell(self.bytes.len(), &mut each);
                    }
                }
                _ => {}
            }
            if !self.open.is_empty() && self.bytes.len() + at - from >= LARGEST_PART {
                self.bytes.extend_from_slice(&bytes[from..=at]);
                from = at + 1;
                self.narrow(&mut each);
            }
        }
        if !self.open.is_empty() {
            self.bytes.extend_from_slice(&bytes[from..]);
        }
    }

    /// Forgets the outermost objects, until half of the room is free: so a byte is moved once at most.
    fn narrow(&mut self, each: &mut impl FnMut(&[u8])) {
        let end = self.bytes.len();
        while self.open.front().is_some_and(|start| end - start > LARGEST_PART / 2) {
            self.open.pop_front();
        }
        let start = self.open.front().copied().unwrap_or(end);
        self.tell(start, each);
        self.bytes.drain(..start);
        self.open.iter_mut().for_each(|open| *open -= start);
        for ended in &mut self.ended {
            *ended = ended.start - start..ended.end - start;
        }
    }

    /// Calls back for those that have ended before this place.
    fn tell(&mut self, before: usize, each: &mut impl FnMut(&[u8])) {
        let many = self.ended.iter().take_while(|ended| ended.start < before).count();
        for ended in self.ended.drain(..many) {
            each(self.bytes.get(ended).unwrap_or_default());
        }
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
        for by_parts in [false, true] {
            let mut whole = Whole { by_parts, ..Whole::default() };
            assert_eq!(whole.push(&vec![b' '; LARGEST_ANSWER]), None);
            let kept = whole.push(b"{}").map(|kept| kept.len());
            assert_eq!(kept, by_parts.then_some(LARGEST_ANSWER));
            assert_eq!(whole.push(b"{}"), None);
            assert_eq!(whole.take(), b"");
        }
    }

    /// What is read of a list with an object that is too large, in chunks of several sizes.
    fn parts_of(large: &str) -> Vec<String> {
        let list = format!("[{{\"first\":1}},{large},{{\"last\":1}}]").into_bytes();
        let mut before: Option<Vec<String>> = None;
        for size in [1 << 20, (1 << 20) + 1, list.len()] {
            let (mut elements, mut found) = (Elements::default(), Vec::new());
            for part in list.chunks(size) {
                elements.push(part, |object, _| {
                    found.push(String::from_utf8_lossy(object).into_owned());
                });
            }
            assert!(elements.lost() && !elements.inside());
            assert!(before.is_none_or(|before| before == found), "in chunks of {size}");
            before = Some(found);
        }
        let mut found = before.unwrap_or_default();
        assert_eq!(found.remove(0), r#"{"first":1}"#);
        assert_eq!(found.pop().as_deref(), Some(r#"{"last":1}"#));
        found
    }

    #[test]
    fn an_object_too_large_is_read_by_its_parts() {
        let pad = "x".repeat(17 << 20);
        let check = |large: &str, expected: &[&str]| assert_eq!(parts_of(large), expected);
        check(
            &format!(r#"{{"a":{{"n":1}},"pad":"{{\"{pad}}}","b":[{{"n":"}}\"{{","c":{{}}}}]}}"#),
            &[r#"{"n":1}"#, r#"{"n":"}\"{","c":{}}"#],
        );
        // The inner one is small, each that it lies in is not.
        check(&format!(r#"{{"a":{{"pad":"{pad}","b":{{"n":1}}}}}}"#), &[r#"{"n":1}"#]);
        check(&format!(r#"{{"pad":"{pad}"}}"#), &[]);
        let part = format!(r#"{{"text":"{}"}}"#, "y".repeat(1 << 18));
        let many = parts_of(&format!(r#"{{"pages":[{}]}}"#, vec![part.clone(); 80].join(",")));
        assert!(many.len() == 80 && many.iter().all(|found| *found == part));
    }

    #[test]
    fn no_depth_costs_more_than_its_bytes() {
        let deep = 2 << 20;
        let large = format!("{}{{\"n\":1}}{}", "{\"a\":[".repeat(deep), "]}".repeat(deep));
        let found = parts_of(&large);
        // The innermost objects are read, and nothing twice.
        assert!(found.iter().any(|part| part.contains("{\"n\":1}")), "{}", found.len());
        assert!(found.iter().map(String::len).sum::<usize>() <= large.len());
    }
}
