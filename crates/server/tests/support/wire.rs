//! HTTP/1.1 by hand, so that nothing tidies up what the tests want to see: header case and order,
//! chunks as they come, and whether a body ended as it should.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A head: its first line and its headers, in order and as they were written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Head {
    pub(crate) start: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Head {
    pub(crate) fn get(&self, wanted: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted))?;
        Some(value)
    }

    fn parse(bytes: &[u8]) -> Head {
        // Byte by byte, since header values need not be UTF-8.
        let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        let mut lines = text.split("\r\n");
        let start = lines.next().unwrap_or_default().to_owned();
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        Head { start, headers }
    }
}

/// Where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
    Ended,
}

impl Framing {
    pub(crate) fn of(head: &Head, otherwise: Framing) -> Framing {
        if head.get("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
            return Framing::Chunked;
        }
        match head.get("content-length").and_then(|value| value.parse().ok()) {
            Some(0) => Framing::Ended,
            Some(length) => Framing::Length(length),
            None => otherwise,
        }
    }
}

/// What came next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Bytes(Vec<u8>),
    /// The body ended as it said it would.
    End,
    /// The connection ended before the body did.
    Broken,
}

/// One end of a connection.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Wire {
        let _ = stream.set_nodelay(true);
        Wire { stream, buffer: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Reads more; false when nothing comes any more.
    async fn fill(&mut self) -> bool {
        let mut more = [0; 16 * 1024];
        match self.stream.read(&mut more).await {
            Ok(0) | Err(_) => false,
            Ok(read) => {
                self.buffer.extend_from_slice(&more[..read]);
                true
            }
        }
    }

    /// Returns when the other end has gone away.
    pub(crate) async fn gone(&mut self) {
        while self.fill().await {}
    }

    pub(crate) async fn head(&mut self) -> Option<Head> {
        loop {
            if let Some(at) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = Head::parse(&self.buffer[..at]);
                self.buffer.drain(..at + 4);
                return Some(head);
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    /// The next bytes of a body, as far as they are there.
    pub(crate) async fn next(&mut self, framing: &mut Framing) -> Next {
        match *framing {
            Framing::Ended => Next::End,
            Framing::UntilClose => {
                if self.buffer.is_empty() && !self.fill().await {
                    *framing = Framing::Ended;
                    return Next::End;
                }
                Next::Bytes(std::mem::take(&mut self.buffer))
            }
            Framing::Length(left) => {
                if self.buffer.is_empty() && !self.fill().await {
                    return Next::Broken;
                }
                let now = left.min(self.buffer.len());
                *framing = if now == left { Framing::Ended } else { Framing::Length(left - now) };
                Next::Bytes(self.buffer.drain(..now).collect())
            }
            Framing::Chunked => self.chunk(framing).await,
        }
    }

    async fn chunk(&mut self, framing: &mut Framing) -> Next {
        let line = loop {
            if let Some(at) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                break at;
            }
            if !self.fill().await {
                return Next::Broken;
            }
        };
        let size = String::from_utf8_lossy(&self.buffer[..line]).into_owned();
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16);
        let Ok(size) = size else { return Next::Broken };
        while self.buffer.len() < line + 2 + size + 2 {
            if !self.fill().await {
                return Next::Broken;
            }
        }
        let bytes = self.buffer[line + 2..line + 2 + size].to_vec();
        self.buffer.drain(..line + 2 + size + 2);
        if size == 0 {
            *framing = Framing::Ended;
            return Next::End;
        }
        Next::Bytes(bytes)
    }

    /// A whole body, and whether it ended as it should.
    pub(crate) async fn body(&mut self, mut framing: Framing) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        loop {
            match self.next(&mut framing).await {
                Next::Bytes(bytes) => body.extend(bytes),
                Next::End => return (body, true),
                Next::Broken => return (body, false),
            }
        }
    }
}
