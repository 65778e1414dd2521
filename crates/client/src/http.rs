//! HTTP/1.1 as far as our own server speaks it: one request, one answer, the connection kept.

use std::io::{self, Read, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::Patience;
use crate::cancel::Cancel;
use crate::error::ClientError;
use crate::line::{Address, Connection};
use crate::server::Server;
use crate::trust::{UNTRUSTED, is_untrusted};

/// Most bytes of an answer's head, and of its body.
const LONGEST_HEAD: usize = 64 * 1024;
const LONGEST_BODY: usize = 8 * 1024 * 1024;
/// Idle connections that are kept.
const MOST_IDLE: usize = 8;

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// The server's clock, as it writes it.
    pub(crate) date: Option<String>,
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) body: Option<&'a [u8]>,
    /// The span in which it is made.
    pub(crate) trace: Option<&'a str>,
}

/// The connections to one server.
#[derive(Debug)]
pub(crate) struct Pool {
    address: Address,
    /// The headers that every request has.
    headers: Headers,
    patience: Patience,
    idle: Mutex<Vec<Connection>>,
}

/// Headers with a key among them, which is not shown.
struct Headers(String);

impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Headers(…)")
    }
}

/// What went wrong with a request, and whether the server can have seen it.
enum Fault {
    /// A connection that was kept had been closed meanwhile.
    Stale,
    Io(io::Error),
    Malformed(&'static str),
}

impl Pool {
    pub(crate) fn new(server: &Server, patience: Patience) -> Result<Pool, ClientError> {
        let address = Address::parse(&server.url)?;
        let mut headers = format!("host: {}\r\naccept: application/json\r\n", address.authority);
        if let Some(key) = &server.key {
            headers.push_str(&format!("x-deadstop-key: {}\r\n", key.text()));
        }
        if let Some(project) = &server.project {
            if project.chars().any(char::is_control) {
                let text = "that is not a valid project name".to_owned();
                return Err(ClientError::BadServer(text));
            }
            headers.push_str(&format!("x-deadstop-project: {project}\r\n"));
        }
        Ok(Pool { address, headers: Headers(headers), patience, idle: Mutex::default() })
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn send(&self, asked: Asked<'_>, cancel: &Cancel) -> Result<Reply, ClientError> {
        if cancel.is_cancelled() {
            return Err(ClientError::Cancelled);
        }
        let sent = self.send_now(asked, cancel);
        cancel.forget();
        if sent.is_err() && cancel.is_cancelled() { Err(ClientError::Cancelled) } else { sent }
    }

    fn send_now(&self, asked: Asked<'_>, cancel: &Cancel) -> Result<Reply, ClientError> {
        let Asked { method, path, body, trace } = asked;
        let mut request =
            format!("{method} {}{path} HTTP/1.1\r\n{}", self.address.prefix, self.headers.0);
        if let Some(body) = body {
            request.push_str("content-type: application/json\r\n");
            request.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        if let Some(trace) = trace {
            request.push_str(&format!("traceparent: {trace}\r\n"));
        }
        request.push_str("\r\n");
        let mut request = request.into_bytes();
        request.extend_from_slice(body.unwrap_or_default());

        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(line) = kept {
            match self.exchange(line, &request, cancel) {
                Err(Fault::Stale) => {}
                done => return done.map_err(|fault| self.told(fault)),
            }
        }
        let line =
            Connection::open(&self.address, self.patience.connect).map_err(|e| self.lost(e))?;
        self.exchange(line, &request, cancel).map_err(|fault| self.told(fault))
    }

    fn exchange(
        &self,
        mut line: Connection,
        request: &[u8],
        cancel: &Cancel,
    ) -> Result<Reply, Fault> {
        let until = Instant::now() + self.patience.answer;
        cancel.watch(line.socket()).map_err(Fault::Io)?;
        line.hurry(until).map_err(Fault::Io)?;
        line.write_all(request).and_then(|()| line.flush()).map_err(stale)?;
        let mut reader = Reader { line, until, bytes: Vec::with_capacity(2048), at: 0 };
        let head = reader.head()?;
        let body = match head.length {
            Length::None => Vec::new(),
            Length::Known(length) => reader.exactly(length)?,
            Length::Chunks => reader.chunks()?,
            Length::UntilEnd => reader.rest()?,
        };
        if head.kept && reader.at == reader.bytes.len() {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < MOST_IDLE {
                idle.push(reader.line);
            }
        }
        Ok(Reply { status: head.status, body, date: head.date })
    }

    fn told(&self, fault: Fault) -> ClientError {
        match fault {
            Fault::Stale => self.lost(io::ErrorKind::UnexpectedEof.into()),
            Fault::Io(error) => self.lost(error),
            Fault::Malformed(what) => ClientError::Malformed(what.to_owned()),
        }
    }

    fn lost(&self, source: io::Error) -> ClientError {
        let why = match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer in time".to_owned(),
            io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
            io::ErrorKind::UnexpectedEof => "the connection broke off".to_owned(),
            _ if is_untrusted(&source) => UNTRUSTED.to_owned(),
            _ => source.to_string(),
        };
        ClientError::NotReached { url: self.address.url.clone(), why, source }
    }
}

/// A connection that was closed before any byte of the answer came. Every request carries an id and
/// may be sent twice.
fn stale(error: io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::UnexpectedEof => Fault::Stale,
        _ => Fault::Io(error),
    }
}

struct Head {
    status: u16,
    length: Length,
    kept: bool,
    date: Option<String>,
}

enum Length {
    None,
    Known(usize),
    Chunks,
    UntilEnd,
}

struct Reader {
    line: Connection,
    until: Instant,
    bytes: Vec<u8>,
    at: usize,
}

impl Reader {
    /// Reads more; false at the end.
    fn more(&mut self) -> Result<bool, Fault> {
        let mut buffer = [0; 16 * 1024];
        self.line.hurry(self.until).map_err(Fault::Io)?;
        let nothing_yet = self.bytes.is_empty();
        let read = loop {
            match self.line.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if nothing_yet => return Err(stale(error)),
                done => break done.map_err(Fault::Io)?,
            }
        };
        if read == 0 && nothing_yet {
            return Err(Fault::Stale);
        }
        self.bytes.extend_from_slice(&buffer[..read]);
        Ok(read > 0)
    }

    fn head(&mut self) -> Result<Head, Fault> {
        loop {
            let line = self.line_of_text()?;
            let mut words = line.split(' ');
            if !words.next().is_some_and(|version| version.starts_with("HTTP/1.")) {
                return Err(Fault::Malformed("it does not speak HTTP"));
            }
            let status = words.next().and_then(|word| word.parse().ok());
            let status: u16 = status.ok_or(Fault::Malformed("it does not speak HTTP"))?;
            let mut head = Head {
                status,
                length: Length::UntilEnd,
                kept: line.starts_with("HTTP/1.1"),
                date: None,
            };
            self.headers(&mut head)?;
            match status {
                100..200 => continue,
                204 | 304 => head.length = Length::None,
                _ => {}
            }
            return Ok(head);
        }
    }

    fn headers(&mut self, head: &mut Head) -> Result<(), Fault> {
        loop {
            let line = self.line_of_text()?;
            if line.is_empty() {
                return Ok(());
            }
            let (name, value) = line.split_once(':').ok_or(Fault::Malformed("a torn header"))?;
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" if !matches!(head.length, Length::Chunks) => {
                    let length = value.parse().map_err(|_| Fault::Malformed("a torn header"))?;
                    head.length = Length::Known(length);
                }
                "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => {
                    head.length = Length::Chunks;
                }
                "date" => head.date = Some(value.to_owned()),
                "connection" if value.eq_ignore_ascii_case("close") => head.kept = false,
                _ => {}
            }
        }
    }

    fn line_of_text(&mut self) -> Result<String, Fault> {
        let mut looked = self.at;
        loop {
            if let Some(end) = self.bytes[looked..].iter().position(|byte| *byte == b'\n') {
                let line = &self.bytes[self.at..looked + end];
                let line = String::from_utf8_lossy(line).trim_end_matches('\r').to_owned();
                self.at = looked + end + 1;
                return Ok(line);
            }
            looked = self.bytes.len();
            if looked - self.at > LONGEST_HEAD {
                return Err(Fault::Malformed("its answer is too long"));
            }
            if !self.more()? {
                return Err(Fault::Io(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    fn exactly(&mut self, length: usize) -> Result<Vec<u8>, Fault> {
        if length > LONGEST_BODY {
            return Err(Fault::Malformed("its answer is too long"));
        }
        while self.bytes.len() - self.at < length {
            if !self.more()? {
                return Err(Fault::Io(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        let body = self.bytes[self.at..self.at + length].to_vec();
        self.at += length;
        Ok(body)
    }

    fn chunks(&mut self) -> Result<Vec<u8>, Fault> {
        let mut body = Vec::new();
        loop {
            let line = self.line_of_text()?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size =
                usize::from_str_radix(size, 16).map_err(|_| Fault::Malformed("a torn chunk"))?;
            if size == 0 {
                while !self.line_of_text()?.is_empty() {}
                return Ok(body);
            }
            if body.len().saturating_add(size) > LONGEST_BODY {
                return Err(Fault::Malformed("its answer is too long"));
            }
            body.extend(self.exactly(size)?);
            self.line_of_text()?;
        }
    }

    fn rest(&mut self) -> Result<Vec<u8>, Fault> {
        while self.more()? {
            if self.bytes.len() - self.at > LONGEST_BODY {
                return Err(Fault::Malformed("its answer is too long"));
            }
        }
        let body = self.bytes[self.at..].to_vec();
        self.at = self.bytes.len();
        Ok(body)
    }
}
