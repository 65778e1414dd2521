//! Bodies that come in chunks, or until the connection ends, read straight from the connection.
//!
//! While nothing comes, such a body holds no buffer: all that a thread reads passes through one of the
//! thread's own. Chunks are handed on as they come; the rules are those of the HTTP client beside it.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use deadstop_alerts::Stream;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes that are read at once.
const MOST: usize = 32 << 10;
/// Bytes of extensions that chunks may have, and bytes and lines of trailers.
const MOST_EXTRA: usize = 16 << 10;
const MOST_TRAILERS: usize = 100;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; MOST].into_boxed_slice());
}

/// Reads what has arrived, up to `most` bytes; nothing at the end.
pub(super) fn read(
    stream: &mut Stream,
    context: &mut Context<'_>,
    most: usize,
) -> Poll<io::Result<Bytes>> {
    let mut read = Bytes::new();
    ready!(read_into(stream, context, most, |bytes| read = Bytes::copy_from_slice(bytes)))?;
    Poll::Ready(Ok(read))
}

/// The same, without a buffer of its own for what has arrived.
pub(super) fn read_into(
    stream: &mut Stream,
    context: &mut Context<'_>,
    most: usize,
    take: impl FnOnce(&[u8]),
) -> Poll<io::Result<()>> {
    BUFFER.with_borrow_mut(|buffer| {
        let mut read = ReadBuf::new(&mut buffer[..most.min(MOST)]);
        ready!(Pin::new(stream).poll_read(context, &mut read))?;
        take(read.filled());
        Poll::Ready(Ok(()))
    })
}

/// A body.
pub(super) struct Chunks {
    framing: Framing,
    /// What was read and not handed on.
    rest: Bytes,
}

/// How it ends.
enum Framing {
    Chunked(Chunked),
    /// With the connection.
    Connection,
}

impl Chunks {
    /// A chunked body that begins with these bytes.
    pub(super) fn chunked(rest: Bytes) -> Chunks {
        Chunks { framing: Framing::Chunked(Chunked::default()), rest }
    }

    /// A body that begins with these bytes and ends with the connection.
    pub(super) fn to_the_end(rest: Bytes) -> Chunks {
        Chunks { framing: Framing::Connection, rest }
    }

    /// Whether it has ended where its sender says, and nothing follows it.
    pub(super) fn is_complete(&self) -> bool {
        match &self.framing {
            Framing::Chunked(chunked) => chunked.state == State::Done && self.rest.is_empty(),
            Framing::Connection => false,
        }
    }

    /// Its next part.
    #[inline]
    pub(super) fn poll(
        &mut self,
        stream: &mut Stream,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            match &mut self.framing {
                Framing::Chunked(chunked) => match chunked.next(&mut self.rest) {
                    Ok(Some(frame)) => return Poll::Ready(Some(Ok(frame))),
                    Ok(None) if chunked.state == State::Done => return Poll::Ready(None),
                    Ok(None) => {}
                    Err(error) => return Poll::Ready(Some(Err(error))),
                },
                Framing::Connection if !self.rest.is_empty() => {
                    return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.rest)))));
                }
                Framing::Connection => {}
            }
            // Before it waits, so that it holds nothing meanwhile.
            self.rest = Bytes::new();
            let read = match ready!(read(stream, context, MOST)) {
                Ok(read) => read,
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            if read.is_empty() {
                return Poll::Ready(match &self.framing {
                    Framing::Connection => None,
                    Framing::Chunked(_) => Some(Err(io::ErrorKind::UnexpectedEof.into())),
                });
            }
            self.rest = read;
        }
    }
}

/// Where a chunked body stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Before the first digit of a chunk's size.
    #[default]
    Start,
    Size,
    /// White space behind the size.
    Space,
    Extension,
    SizeEnd,
    Data,
    DataEnd,
    DataEnded,
    /// Before a line of trailers, or the empty line that ends the body.
    Line,
    Trailer,
    TrailerEnd,
    End,
    Done,
}

/// Reads the chunked coding.
#[derive(Debug, Default)]
struct Chunked {
    state: State,
    /// Bytes of the chunk that are still to come.
    left: u64,
    /// Bytes of extensions so far.
    extra: usize,
    trailers: Vec<u8>,
}

impl Chunked {
    /// The next part in these bytes; `None` where they end first, or the body does.
    fn next(&mut self, bytes: &mut Bytes) -> io::Result<Option<Frame<Bytes>>> {
        loop {
            match self.state {
                State::Done => return Ok(None),
                State::Data if bytes.is_empty() => return Ok(None),
                State::Data => {
                    let length = usize::try_from(self.left).unwrap_or(usize::MAX);
                    let data = bytes.split_to(length.min(bytes.len()));
                    self.left -= data.len() as u64;
                    if self.left == 0 {
                        self.state = State::DataEnd;
                    }
                    return Ok(Some(Frame::data(data)));
                }
                _ => {}
            }
            let Some(byte) = bytes.first().copied() else { return Ok(None) };
            bytes.advance(1);
            self.state = self.step(byte)?;
            if self.state == State::Done && !self.trailers.is_empty() {
                return trailers(&std::mem::take(&mut self.trailers)).map(Some);
            }
        }
    }

    /// Reads a byte that is no data.
    fn step(&mut self, byte: u8) -> io::Result<State> {
        Ok(match (self.state, byte) {
            (State::Start | State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                let size = self.left.checked_mul(16).and_then(|size| size.checked_add(digit));
                self.left = size.ok_or_else(|| bad("a chunk's size is too large"))?;
                State::Size
            }
            (State::Size | State::Space, b' ' | b'\t') => State::Space,
            (State::Size | State::Space, b';') => State::Extension,
            (State::Size | State::Space | State::Extension, b'\r') => State::SizeEnd,
            (State::Extension, b'\n') => return Err(bad("a chunk's extension has a line end")),
            (State::Extension, _) => {
                self.extra += 1;
                if self.extra >= MOST_EXTRA {
                    return Err(bad("the extensions of the chunks are too large"));
                }
                State::Extension
            }
            (State::SizeEnd, b'\n') if self.left == 0 => State::Line,
            (State::SizeEnd, b'\n') => State::Data,
            (State::DataEnd, b'\r') => State::DataEnded,
            (State::DataEnded, b'\n') => State::Start,
            (State::Line, b'\r') => State::End,
            (State::Line | State::Trailer, _) => {
                self.trailers.push(byte);
                if self.trailers.len() >= MOST_EXTRA {
                    return Err(bad("the trailers are too large"));
                }
                if byte == b'\r' { State::TrailerEnd } else { State::Trailer }
            }
            (State::TrailerEnd, b'\n') => {
                self.trailers.push(byte);
                State::Line
            }
            (State::End, b'\n') => State::Done,
            _ => return Err(bad("the chunks are not framed as they should be")),
        })
    }
}

/// Reads the lines behind the last chunk.
fn trailers(lines: &[u8]) -> io::Result<Frame<Bytes>> {
    let mut trailers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = line.split_at(colon.ok_or_else(|| bad("a trailer has no colon"))?);
        let name = HeaderName::from_bytes(name).map_err(io::Error::other)?;
        let value = HeaderValue::from_bytes(value[1..].trim_ascii()).map_err(io::Error::other)?;
        if trailers.len() >= MOST_TRAILERS {
            return Err(bad("there are too many trailers"));
        }
        trailers.append(name, value);
    }
    Ok(Frame::trailers(trailers))
}

fn bad(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chunks of a body that comes in parts of a size, and its trailers; the state at its end.
    fn decode(body: &[u8], size: usize) -> io::Result<(Vec<Vec<u8>>, HeaderMap, State)> {
        let (mut chunked, mut data) = (Chunked::default(), Vec::new());
        let mut trailers = HeaderMap::new();
        for part in body.chunks(size) {
            let mut part = Bytes::copy_from_slice(part);
            while let Some(frame) = chunked.next(&mut part)? {
                match frame.into_data() {
                    Ok(bytes) => data.push(bytes.to_vec()),
                    Err(frame) => trailers = frame.into_trailers().unwrap(),
                }
            }
            if chunked.state == State::Done {
                break;
            }
        }
        Ok((data, trailers, chunked.state))
    }

    fn check(body: &str, expected: &[&str]) {
        let (data, _, state) = decode(body.as_bytes(), body.len()).unwrap();
        let data: Vec<_> = data.iter().map(|data| String::from_utf8_lossy(data)).collect();
        assert_eq!(data, expected, "{body:?}");
        for size in 1..body.len() {
            let (parts, _, ends) = decode(body.as_bytes(), size).unwrap();
            assert_eq!(parts.concat(), expected.concat().as_bytes(), "{body:?} by {size}");
            assert_eq!(ends, state);
        }
    }

    #[test]
    fn chunks_are_handed_on_as_they_come() {
        check("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", &["hello", " world"]);
        check("A\r\n0123456789\r\n0\r\n\r\n", &["0123456789"]);
        check("1 \t;name=\"v\"\r\nx\r\n00\r\n\r\n", &["x"]);
        check("3\r\na\r\n\r\n0\r\n\r\n", &["a\r\n"]);
        check("0\r\n\r\n", &[]);
    }

    #[test]
    fn what_is_not_framed_as_it_should_be_is_an_error() {
        let long = format!("1;{}\r\n", "x".repeat(MOST_EXTRA));
        let trailers = format!("0\r\na: {}\r\n\r\n", "x".repeat(MOST_EXTRA));
        for body in [
            "\r\n",
            "x\r\n",
            "5\nhello",
            "5 5\r\n",
            "1;a\nx",
            "1\r\nxy",
            "1\r\nx\ry",
            "10000000000000000\r\n",
            "0\r\n\rx",
            "0\r\na\r\n\r\n",
            "0\r\na b: c\r\n\r\n",
            "-1\r\n",
            &long,
            &trailers,
        ] {
            for size in [1, 7, body.len()] {
                assert!(decode(body.as_bytes(), size).is_err(), "{body:?} by {size}");
            }
        }
    }

    #[test]
    fn trailers_come_last() {
        let body = b"1\r\nx\r\n0\r\nA: one\r\nb:two \r\n\r\n";
        for size in 1..=body.len() {
            let (data, trailers, state) = decode(body, size).unwrap();
            assert_eq!((data.concat(), state), (b"x".to_vec(), State::Done));
            assert_eq!(trailers["a"], "one");
            assert_eq!(trailers["b"], "two");
        }
    }
}
