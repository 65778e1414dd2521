//! How much a request unpacks to: two bytes of protobuf, or three of JSON, make a span that takes hundreds.
//!
//! A request is walked before it is decoded, and one with too many parts is not decoded at all.

use crate::Signal;

/// What the parts of a request may weigh. A weight is about 40 bytes of memory.
const MOST: usize = 1_000_000;
/// A span, a record, a figure, an event or a link.
const ITEM: usize = 8;
/// An attribute, or a value.
const VALUE: usize = 2;

/// How deep messages lie in each other; decoders give up at 100 and at 128.
const DEEPEST: usize = 128;

/// Whether a request of protobuf has more parts than are decoded.
pub(crate) fn is_vast(body: &[u8], signal: Signal) -> bool {
    let mut walk = Walk { signal, left: MOST };
    walk.message(body, Part::Request, 0).is_none()
}

/// The messages of OTLP in which others lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Request,
    Resources,
    Resource,
    Scopes,
    Scope,
    Span,
    /// An event or a link of a span, by the number of its attributes.
    OfSpan(u64),
    Record,
    Metric,
    Figures,
    Point,
    Pair,
    Value,
    Values,
    Pairs,
}

impl Part {
    /// What lies in a field of this number.
    fn of(self, field: u64, signal: Signal) -> Option<Part> {
        let item = match signal {
            Signal::Traces => Part::Span,
            Signal::Logs => Part::Record,
            Signal::Metrics => Part::Metric,
        };
        let pairs = |number| (field == number).then_some(Part::Pair);
        match (self, field) {
            (Part::Request, 1) => Some(Part::Resources),
            (Part::Resources, 1) => Some(Part::Resource),
            (Part::Resources, 2) => Some(Part::Scopes),
            // Entities behind the attributes.
            (Part::Resource, 3) => Some(Part::OfSpan(0)),
            (Part::Scopes, 1) => Some(Part::Scope),
            (Part::Scopes, 2) => Some(item),
            (Part::Span, 11) => Some(Part::OfSpan(3)),
            (Part::Span, 13) => Some(Part::OfSpan(4)),
            (Part::Record, 5) | (Part::Pair, 2) | (Part::Values, 1) => Some(Part::Value),
            (Part::Metric, 5 | 7 | 9 | 10 | 11) => Some(Part::Figures),
            (Part::Figures, 1) => Some(Part::Point),
            (Part::Value, 5) => Some(Part::Values),
            (Part::Value, 6) => Some(Part::Pairs),
            (Part::Resource | Part::Pairs, _) => pairs(1),
            (Part::Scope, _) => pairs(3),
            (Part::Span, _) => pairs(9),
            (Part::Record, _) => pairs(6),
            (Part::Metric, _) => pairs(12),
            (Part::OfSpan(number), _) => pairs(number),
            _ => None,
        }
    }

    fn weight(self) -> usize {
        match self {
            Part::Pair | Part::Value | Part::Values | Part::Pairs => VALUE,
            _ => ITEM,
        }
    }
}

struct Walk {
    signal: Signal,
    left: usize,
}

impl Walk {
    /// Walks through a message; `None` when there is too much in it. What is no protobuf ends the walk, as it ends
    /// the decoder's.
    fn message(&mut self, mut bytes: &[u8], part: Part, depth: usize) -> Option<()> {
        if depth > DEEPEST {
            return Some(());
        }
        while !bytes.is_empty() {
            let Some(tag) = varint(&mut bytes) else { return Some(()) };
            let skipped = match tag & 7 {
                0 => varint(&mut bytes).map(|_| 0),
                1 => Some(8),
                2 => varint(&mut bytes).and_then(|length| usize::try_from(length).ok()),
                5 => Some(4),
                // Groups are skipped by decoders; what is in them is counted.
                _ => Some(0),
            };
            let Some((inner, rest)) = skipped.and_then(|length| bytes.split_at_checked(length))
            else {
                return Some(());
            };
            bytes = rest;
            if tag & 7 == 2 {
                self.field(inner, part, tag >> 3, depth)?;
            }
        }
        Some(())
    }

    fn field(&mut self, inner: &[u8], part: Part, field: u64, depth: usize) -> Option<()> {
        if part == Part::Point {
            // Attributes, examples, or counts, of which one byte makes eight.
            self.left = self.left.checked_sub(ITEM + inner.len() / 2)?;
            return Some(());
        }
        let Some(inside) = part.of(field, self.signal) else { return Some(()) };
        self.left = self.left.checked_sub(inside.weight())?;
        self.message(inner, inside, depth + 1)
    }
}

/// Takes a number off the beginning.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or_default();
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// The same for JSON: objects in lists weigh by what the list is called, every value besides.
pub(crate) fn is_vast_json(body: &[u8]) -> bool {
    let mut lists: Vec<Option<usize>> = Vec::new();
    let (mut left, mut at) = (MOST, 0);
    let mut name: &[u8] = b"";
    while let Some(byte) = body.get(at) {
        let weight = match byte {
            b'"' => {
                let end = quoted(body, at);
                name = body.get(at + 1..end).unwrap_or_default();
                at = end;
                0
            }
            b'[' => {
                let values = matches!(name, b"attributes" | b"values");
                lists.push(Some(if values { VALUE } else { ITEM }));
                0
            }
            b'{' => {
                let weight = lists.last().copied().flatten().unwrap_or(VALUE);
                lists.push(None);
                weight
            }
            b']' | b'}' => {
                lists.pop();
                0
            }
            b',' => 1,
            _ => 0,
        };
        let Some(rest) = left.checked_sub(weight).filter(|_| lists.len() <= DEEPEST) else {
            return true;
        };
        left = rest;
        at += 1;
    }
    false
}

/// Where the text ends that begins here.
fn quoted(body: &[u8], from: usize) -> usize {
    let mut at = from + 1;
    while let Some(byte) = body.get(at) {
        match byte {
            b'\\' => at += 1,
            b'"' => return at,
            _ => {}
        }
        at += 1;
    }
    body.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field with bytes in it.
    fn field(number: u8, inner: &[u8]) -> Vec<u8> {
        let mut length = inner.len();
        let mut bytes = vec![(number << 3) | 2];
        while length > 0x7f {
            bytes.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        [bytes, inner.to_vec()].concat()
    }

    fn within(path: &[u8], inner: Vec<u8>) -> Vec<u8> {
        path.iter().rev().fold(inner, |inner, number| field(*number, &inner))
    }

    #[test]
    fn hole_04_empty_parts_are_counted() {
        let check = |signal: Signal, path: &[u8], each: &[u8], most: usize| {
            for (times, expected) in [(most / 2, false), (most * 2, true)] {
                let body = within(path, each.repeat(times));
                assert_eq!(is_vast(&body, signal), expected, "{signal:?} {path:?} {times}");
            }
        };
        let empty = |number| field(number, b"");
        check(Signal::Traces, &[1, 2], &empty(2), MOST / ITEM);
        check(Signal::Traces, &[1, 2, 2], &empty(9), MOST / VALUE);
        check(Signal::Traces, &[1, 2, 2], &empty(11), MOST / ITEM);
        check(Signal::Traces, &[1, 2, 2, 11], &empty(3), MOST / VALUE);
        check(Signal::Traces, &[1, 2, 2, 9, 2, 5], &empty(1), MOST / VALUE);
        check(Signal::Traces, &[1, 1], &empty(1), MOST / VALUE);
        check(Signal::Logs, &[1, 2, 2, 5, 6], &empty(1), MOST / VALUE);
        check(Signal::Logs, &[1, 2, 2], &empty(6), MOST / VALUE);
        check(Signal::Metrics, &[1, 2, 2, 5], &empty(1), MOST / ITEM);
        check(Signal::Metrics, &[1, 2, 2, 10, 1, 8], b"1", MOST * 2);
        check(Signal::Traces, &[], &empty(1), MOST / ITEM);
        // What the decoder skips hides nothing: a group, a number, a field that it does not know.
        let behind = [&[0x0b_u8, 0x10, 1][..], &empty(2)].concat();
        check(Signal::Traces, &[1, 2], &behind, MOST / ITEM);
        assert!(!is_vast(&[0xff; 64], Signal::Traces) && !is_vast(b"", Signal::Logs));
    }

    #[test]
    fn hole_04_objects_are_counted() {
        let check = |before: &str, each: &str, most: usize| {
            for (times, expected) in [(most / 2, false), (most * 2, true)] {
                let body = format!("{before}{}", each.repeat(times));
                assert_eq!(is_vast_json(body.as_bytes()), expected, "{before} {times}");
            }
        };
        let spans = r#"{"resourceSpans":[{"scopeSpans":[{"spans":["#;
        check(spans, "{},", MOST / (ITEM + 1));
        check(&format!(r#"{spans}{{"attributes":["#), "{},", MOST / (VALUE + 1));
        check(r#"{"resourceMetrics":[{"bucketCounts":["#, "1,", MOST);
        let text = format!("{spans}{{\"name\":\"{}\"}}]}}]}}]}}", "{[,\\\"".repeat(MOST));
        assert!(!is_vast_json(text.as_bytes()), "what stands in a text is no part");
        assert!(is_vast_json("[".repeat(1000).as_bytes()));
    }
}
