//! Messages in a stream of server-sent events.

use std::borrow::Cow;

use crate::llm::answer::sse::{Borders, Carry, data};

/// Finds the events of a stream that comes in pieces.
#[derive(Debug, Default)]
pub struct Events {
    borders: Borders,
    carry: Carry,
    /// Whether an event had an id: a client that loses the stream may resume it.
    resumable: bool,
    /// Whether an event has begun and not ended.
    amid: bool,
}

impl Events {
    /// Takes bytes in; `each` gets every event that they end, whole, and what it says.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8], Option<&[u8]>)) {
        let (late, mut rest) = bytes.split_at(self.borders.rest_of_last(bytes));
        if !late.is_empty() {
            // The end of a line break whose beginning has ended the event before.
            each(late, None);
        }
        while let Some(end) = self.borders.end(rest) {
            let taken = self.carry.take(&rest[..end]);
            rest = &rest[end..];
            self.resumable |= has_id(&taken.bytes);
            let said = if taken.readable { data(&taken.bytes) } else { None };
            each(&taken.bytes, said.as_deref());
            drop(said);
            self.carry.reuse(taken);
        }
        if !bytes.is_empty() {
            self.amid = !rest.is_empty();
        }
        // An event that has grown too large to be read passes in pieces.
        if let Some(piece) = self.carry.keep(rest) {
            each(&piece, None);
        }
    }

    /// The beginning of an event that has not ended; it is given once.
    pub fn rest(&mut self) -> Vec<u8> {
        self.carry.take(&[]).bytes.into_owned()
    }

    /// Whether one of our own events may be inserted here.
    pub fn is_between(&self) -> bool {
        !self.amid
    }

    /// Whether the stream can be taken up again where it broke off.
    pub fn is_resumable(&self) -> bool {
        self.resumable
    }

    /// An event with other data, everything else of it as it was.
    pub fn reworded<'a>(event: &'a [u8], said: &[u8]) -> Cow<'a, [u8]> {
        let mut new = Vec::with_capacity(event.len());
        for line in event.split_inclusive(|byte| *byte == b'\n') {
            let bare = line.trim_ascii_end();
            if !bare.is_empty() && !bare.starts_with(b"data") {
                new.extend_from_slice(line);
            }
        }
        new.extend_from_slice(b"data: ");
        new.extend_from_slice(said);
        new.extend_from_slice(b"\n\n");
        Cow::Owned(new)
    }
}

fn has_id(event: &[u8]) -> bool {
    event
        .split(|byte| matches!(byte, b'\n' | b'\r'))
        .any(|line| line.strip_prefix(b"id:").is_some_and(|id| !id.trim_ascii().is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_in_pieces_of_any_size() {
        let stream = b": hi\n\nid: 1\nevent: message\ndata: {\"a\":1}\n\ndata: b\r\n\r\nrest";
        for size in 1..stream.len() {
            let mut events = Events::default();
            let mut found = Vec::new();
            for piece in stream.chunks(size) {
                events.push(piece, |_, said| {
                    found.extend(said.map(|said| String::from_utf8_lossy(said).into_owned()));
                });
            }
            assert_eq!(found, ["{\"a\":1}", "b"], "{size}");
            assert!(events.is_resumable() && !events.is_between());
            events.push(b"\n\n", |_, _| {});
            assert!(events.is_between(), "{size}");
        }
    }

    #[test]
    fn other_words() {
        let event = b"id: 1\nevent: message\ndata: {\ndata: }\n\n";
        assert_eq!(&*Events::reworded(event, b"{}"), b"id: 1\nevent: message\ndata: {}\n\n");
    }
}
