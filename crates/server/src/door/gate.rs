//! A connection of which the HTTP client sees the head of an answer only, until it is let in.
//!
//! The client decodes a chunked body byte by byte and hands each chunk on through a channel, and it keeps its
//! buffers for as long as the body lasts. [`super::chunks`] reads such bodies for a fraction of that. So the
//! gate stops at the end of the head: then the connection is either taken from the client, or the client is
//! let in and reads the body itself.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use deadstop_alerts::Stream;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;

use super::chunks;

/// What the gate and the call that uses the connection tell each other.
#[derive(Debug, Default)]
pub(super) struct Latch {
    open: AtomicBool,
    /// Whether some of the request waits until the connection takes more.
    blocked: AtomicBool,
}

impl Latch {
    /// A request is about to be sent: of its answer only the head passes.
    pub(super) fn shut(&self) {
        self.open.store(false, Ordering::Relaxed);
    }

    /// The client reads the rest.
    pub(super) fn open(&self) {
        self.open.store(true, Ordering::Relaxed);
    }

    /// Whether the client reads the rest.
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Whether all of the request was written.
    pub(super) fn is_written(&self) -> bool {
        !self.blocked.load(Ordering::Relaxed)
    }
}

/// The connection.
pub(super) struct Gate {
    stream: TokioIo<Stream>,
    latch: Arc<Latch>,
    head: Head,
    /// What was read and lies behind the head.
    rest: Bytes,
}

impl Gate {
    pub(super) fn new(stream: Stream) -> (Gate, Arc<Latch>) {
        let latch = Arc::<Latch>::default();
        let stream = TokioIo::new(stream);
        let gate =
            Gate { stream, latch: Arc::clone(&latch), head: Head::default(), rest: Bytes::new() };
        (gate, latch)
    }

    /// The connection, and what was read of it behind the head.
    pub(super) fn into_parts(self) -> (Stream, Bytes) {
        (self.stream.into_inner(), self.rest)
    }

    /// Hands on as much of what was read as there is room for.
    fn give(&mut self, cursor: &mut ReadBufCursor<'_>, most: usize) {
        let length = most.min(self.rest.len()).min(cursor.remaining());
        cursor.put_slice(&self.rest[..length]);
        self.rest.advance(length);
    }
}

impl Read for Gate {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.latch.open.load(Ordering::Relaxed) {
            this.head = Head::default();
            if this.rest.is_empty() {
                return Pin::new(&mut this.stream).poll_read(context, cursor);
            }
            this.give(&mut cursor, usize::MAX);
            return Poll::Ready(Ok(()));
        }
        if this.head.is_whole() {
            // The call takes the connection, or opens the gate, before it waits for anything.
            return Poll::Pending;
        }
        if this.rest.is_empty() {
            let (head, rest, room) = (&mut this.head, &mut this.rest, cursor.remaining());
            let read = chunks::read_into(this.stream.inner_mut(), context, room, |bytes| {
                let length = head.read(bytes);
                cursor.put_slice(&bytes[..length]);
                *rest = Bytes::copy_from_slice(&bytes[length..]);
            });
            ready!(read)?;
        } else {
            let length = this.head.read(&this.rest);
            this.give(&mut cursor, length);
        }
        if this.head.is_counted() {
            this.latch.open();
        }
        Poll::Ready(Ok(()))
    }
}

impl Write for Gate {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.latch.blocked.store(written.is_pending(), Ordering::Relaxed);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.latch.blocked.store(written.is_pending(), Ordering::Relaxed);
        written
    }
}

/// Bytes of a line that are looked at: enough for the longest name.
const BEGINNING: usize = CODED.len();
const CODED: &[u8] = b"transfer-encoding:";
const COUNTED: &[u8] = b"content-length:";

/// Follows the head of an answer to its end. Informational answers (1xx) before it belong to it.
#[derive(Debug, Default)]
struct Head {
    /// The beginning of the current line.
    line: [u8; BEGINNING],
    known: usize,
    /// Whether the status line is over.
    begun: bool,
    informational: bool,
    /// Whether the body is coded, and whether its length is given.
    coded: bool,
    counted: bool,
    whole: bool,
}

impl Head {
    fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether its body has a length, so that the client may read all of it.
    fn is_counted(&self) -> bool {
        self.whole && self.counted && !self.coded
    }

    /// How many of these bytes the client may see: those of the head, and all of them if the body is counted.
    fn read(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() && !self.whole {
            let Some(end) = memchr::memchr(b'\n', rest) else {
                self.note(rest);
                return bytes.len();
            };
            self.note(&rest[..end]);
            rest = &rest[end + 1..];
            self.line_ended();
        }
        if self.is_counted() { bytes.len() } else { bytes.len() - rest.len() }
    }

    /// Keeps the beginning of the line.
    fn note(&mut self, part: &[u8]) {
        let length = part.len().min(BEGINNING - self.known);
        self.line[self.known..self.known + length].copy_from_slice(&part[..length]);
        self.known += length;
    }

    fn line_ended(&mut self) {
        let line = &self.line[..std::mem::take(&mut self.known)];
        let named = |name: &[u8]| {
            line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
        };
        let is_empty = line.iter().all(|byte| *byte == b'\r');
        match (self.begun, is_empty) {
            // Empty lines before the status line are passed over.
            (false, true) => {}
            (false, false) => {
                self.begun = true;
                // An upgrade (101) is the answer itself.
                let status = line.get(8..12).unwrap_or_default();
                self.informational = status.starts_with(b" 1") && status != b" 101";
            }
            (true, false) => {
                self.coded |= named(CODED);
                self.counted |= named(COUNTED);
            }
            (true, true) if self.informational => *self = Head::default(),
            (true, true) => self.whole = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head in these bytes ends here, wherever they are cut in two.
    fn check(bytes: &str, expected: usize) {
        let bytes = bytes.as_bytes();
        for cut in 0..=bytes.len() {
            let mut head = Head::default();
            let (first, second) = bytes.split_at(cut);
            let mut length = head.read(first);
            if !head.is_whole() {
                assert_eq!(length, cut, "all that has come belongs to it");
                length += head.read(second);
            }
            let shown = String::from_utf8_lossy(bytes);
            assert!(head.is_whole() && !head.is_counted(), "{shown}");
            assert_eq!(length, expected, "{shown} cut at {cut}");
        }
    }

    #[test]
    fn a_head_ends_with_its_empty_line() {
        check("HTTP/1.1 200 OK\r\n\r\n", 19);
        check("HTTP/1.1 200 OK\r\na: b\r\n\r\n5\r\nhello\r\n", 25);
        check("HTTP/1.1 200 OK\na: b\n\nbody\n\n", 22);
        check("\r\n\nHTTP/1.1 404 Not Found\r\n\r\n\r\n", 29);
        check("HTTP/1.1 101 Switching\r\n\r\nx", 26);
        check("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0", 66);
    }

    #[test]
    fn informational_answers_come_before_it() {
        check("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\na: b\r\n\r\nx", 50);
        check("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.0 500 No\r\n\r\n", 56);
    }

    #[test]
    fn a_body_with_a_length_is_the_clients() {
        let mut head = Head::default();
        let answer = b"HTTP/1.1 200 OK\r\nCONTENT-length: 2\r\n\r\n{}";
        assert_eq!(head.read(answer), answer.len());
        assert!(head.is_counted());
        let mut head = Head::default();
        assert_eq!(
            head.read(b"HTTP/1.1 100 Go\r\nContent-Length: 2\r\n\r\nHTTP/1.1 200 OK\r\n\r\n{}"),
            57
        );
        assert!(head.is_whole() && !head.is_counted());
    }

    #[test]
    fn what_is_no_head_has_no_end() {
        let mut head = Head::default();
        assert_eq!(head.read(b"\r\n\r\n\r\n"), 6);
        assert!(!head.is_whole());
    }
}
