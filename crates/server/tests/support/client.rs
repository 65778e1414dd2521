//! A client that says exactly what it is told to say.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::net::TcpStream;

use super::wire::{Framing, Head, Next, Wire};

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Sends the body in chunks of this size instead of giving its length.
    pub(crate) chunked: Option<usize>,
}

impl Ask {
    pub(crate) fn get(path: &str) -> Ask {
        let (method, path) = ("GET".to_owned(), path.to_owned());
        Ask { method, path, headers: Vec::new(), body: Vec::new(), chunked: None }
    }

    pub(crate) fn post(path: &str, body: &Value) -> Ask {
        let ask =
            Ask { method: "POST".to_owned(), body: body.to_string().into(), ..Ask::get(path) };
        ask.with("content-type", "application/json")
    }

    /// Any method, with a JSON body or none.
    pub(crate) fn of(method: &str, path: &str, body: Option<&Value>) -> Ask {
        let ask = body.map_or_else(|| Ask::get(path), |body| Ask::post(path, body));
        Ask { method: method.to_owned(), ..ask }
    }

    /// Brings a key.
    pub(crate) fn key(self, key: &str) -> Ask {
        self.with("authorization", &format!("Bearer {key}"))
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Ask {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Names agent and session, the way clients of ours do.
    pub(crate) fn by(self, agent: &str, session: &str) -> Ask {
        self.with("x-deadstop-agent", agent).with("x-deadstop-session", session)
    }

    fn bytes(&self, to: SocketAddr) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        let named = |wanted: &str| self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(wanted));
        if !named("host") {
            head += &format!("Host: {to}\r\n");
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        match self.chunked {
            Some(_) => head += "Transfer-Encoding: chunked\r\n",
            None if !self.body.is_empty() && !named("content-length") => {
                head += &format!("Content-Length: {}\r\n", self.body.len());
            }
            None => {}
        }
        head += "\r\n";
        let mut bytes: Vec<u8> = head.chars().map(|char| char as u8).collect();
        match self.chunked {
            None => bytes.extend(&self.body),
            Some(size) => {
                for piece in self.body.chunks(size.max(1)) {
                    bytes.extend(format!("{:x}\r\n", piece.len()).bytes());
                    bytes.extend(piece);
                    bytes.extend(b"\r\n");
                }
                bytes.extend(b"0\r\n\r\n");
            }
        }
        bytes
    }

    /// Sends it and does not wait for anything.
    pub(crate) async fn send(&self, to: SocketAddr) -> Wire {
        let mut wire = Wire::new(TcpStream::connect(to).await.unwrap());
        // Fails if the server refuses a large body before it has read all of it.
        let _ = wire.send(&self.bytes(to)).await;
        wire
    }

    /// Sends it and waits for the head of the answer.
    pub(crate) async fn open(&self, to: SocketAddr) -> Option<Answering> {
        let mut wire = self.send(to).await;
        let head = wire.head().await?;
        let status: u16 = head.start.split(' ').nth(1)?.parse().ok()?;
        let bare = self.method == "HEAD" || status == 204 || status == 304;
        let otherwise = if bare { Framing::Ended } else { Framing::UntilClose };
        let framing = if bare { Framing::Ended } else { Framing::of(&head, otherwise) };
        Some(Answering { wire, head, status, framing })
    }

    /// Sends it and waits for the whole answer.
    pub(crate) async fn send_to(&self, to: SocketAddr) -> Got {
        // Boxed, since a wire's room would otherwise be on the stack once for each caller above.
        match super::soon("an answer", Box::pin(self.open(to))).await {
            Some(answering) => super::soon("the answer's end", Box::pin(answering.rest())).await,
            None => Got::default(),
        }
    }
}

/// An answer of which the head is there.
pub(crate) struct Answering {
    wire: Wire,
    pub(crate) head: Head,
    pub(crate) status: u16,
    framing: Framing,
}

impl Answering {
    pub(crate) async fn next(&mut self) -> Next {
        self.wire.next(&mut self.framing).await
    }

    /// Reads until the body so far contains `wanted`.
    pub(crate) async fn until(&mut self, wanted: &str) -> String {
        let mut text = String::new();
        while !text.contains(wanted) {
            match super::soon(wanted, self.next()).await {
                Next::Bytes(bytes) => text += &String::from_utf8_lossy(&bytes),
                other => panic!("{other:?} instead of {wanted}, after {text}"),
            }
        }
        text
    }

    pub(crate) async fn rest(mut self) -> Got {
        let (body, complete) = self.wire.body(self.framing).await;
        let Head { start, headers } = self.head;
        Got { status: self.status, start, headers, body, complete }
    }
}

/// An answer; status 0 when there was none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Got {
    pub(crate) status: u16,
    /// The first line.
    pub(crate) start: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether the body ended as it should.
    pub(crate) complete: bool,
}

impl Got {
    pub(crate) fn header(&self, wanted: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted))?;
        Some(value)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {} {}", self.status, self.text()))
    }
}
