//! A provider that follows a script: it answers each request with steps, counts what it has
//! generated, and notices when its client goes away.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::wire::{Framing, Wire};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn header(&self, wanted: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted))?;
        Some(value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// What to do next.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Writes bytes as they are.
    Raw(Vec<u8>),
    /// Writes one chunk of a chunked body.
    Chunk(Vec<u8>),
    /// Writes one chunk that holds so many tokens, by the upstream's own count.
    Tokens(Vec<u8>, u64),
    /// Ends a chunked body.
    End,
    Sleep(Duration),
    /// Does nothing until the client goes away.
    Hang,
    /// Resets the connection.
    Reset,
    /// Closes it.
    Close,
}

/// A reply: steps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reply(pub(crate) Vec<Step>);

impl Reply {
    /// A head alone, with a blank line after it.
    pub(crate) fn head(status: u16, headers: &[(&str, &str)]) -> Reply {
        let mut head = format!("HTTP/1.1 {status} Because\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        Reply(vec![Step::Raw(head.chars().map(|char| char as u8).collect())])
    }

    pub(crate) fn then(mut self, step: Step) -> Reply {
        self.0.push(step);
        self
    }

    pub(crate) fn json(status: u16, body: &Value) -> Reply {
        Reply::of(status, "application/json", body.to_string().as_bytes())
    }

    /// A body of known length.
    pub(crate) fn of(status: u16, kind: &str, body: &[u8]) -> Reply {
        let length = body.len().to_string();
        Reply::head(status, &[("Content-Type", kind), ("Content-Length", &length)])
            .then(Step::Raw(body.to_vec()))
    }

    /// The beginning of an event stream.
    pub(crate) fn stream() -> Reply {
        Reply::head(200, &[("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
    }

    /// A whole event stream, in these chunks.
    pub(crate) fn events(chunks: &[Vec<u8>]) -> Reply {
        let chunks = chunks.iter().filter(|chunk| !chunk.is_empty());
        let mut reply = Reply::stream();
        reply.0.extend(chunks.map(|chunk| Step::Chunk(chunk.clone())));
        reply.then(Step::End)
    }
}

type Answer = dyn Fn(&Seen) -> Reply + Send + Sync;

struct Shared {
    answer: Box<Answer>,
    seen: Mutex<Vec<Seen>>,
    /// Connections on which a reply is under way.
    answering: watch::Sender<usize>,
    /// When clients went away in the middle of a reply.
    gone: Mutex<Vec<Instant>>,
    tokens: AtomicU64,
}

/// The provider.
#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Upstream {
    pub(crate) async fn start(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            seen: Mutex::default(),
            answering: watch::Sender::new(0),
            gone: Mutex::default(),
            tokens: AtomicU64::new(0),
        });
        let theirs = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&theirs)));
            }
        });
        Upstream { address, shared }
    }

    pub(crate) fn requests(&self) -> usize {
        self.shared.seen.lock().len()
    }

    pub(crate) fn last(&self) -> Seen {
        self.shared.seen.lock().last().unwrap().clone()
    }

    /// All requests so far.
    pub(crate) fn all(&self) -> Vec<Seen> {
        self.shared.seen.lock().clone()
    }

    /// What it has generated so far.
    pub(crate) fn tokens(&self) -> u64 {
        self.shared.tokens.load(Ordering::SeqCst)
    }

    /// When clients went away.
    pub(crate) fn gone(&self) -> Vec<Instant> {
        self.shared.gone.lock().clone()
    }

    /// Waits until so many replies are under way.
    pub(crate) async fn answering(&self, wanted: usize) {
        let mut watching = self.shared.answering.subscribe();
        super::soon("replies under way", watching.wait_for(|now| *now == wanted)).await.unwrap();
    }
}

enum Played {
    Kept,
    Closed,
    Gone,
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let mut wire = Wire::new(stream);
    while let Some(head) = wire.head().await {
        let (body, _) = wire.body(Framing::of(&head, Framing::Ended)).await;
        let mut words = head.start.split(' ').map(str::to_owned);
        let seen = Seen {
            method: words.next().unwrap_or_default(),
            target: words.next().unwrap_or_default(),
            headers: head.headers,
            body,
        };
        shared.seen.lock().push(seen.clone());
        let reply = (shared.answer)(&seen);
        shared.answering.send_modify(|now| *now += 1);
        let played = play(&mut wire, reply, &shared).await;
        if matches!(played, Played::Gone) {
            shared.gone.lock().push(Instant::now());
        }
        shared.answering.send_modify(|now| *now -= 1);
        if !matches!(played, Played::Kept) {
            return;
        }
    }
}

async fn play(wire: &mut Wire, reply: Reply, shared: &Shared) -> Played {
    for step in reply.0 {
        let written = match step {
            Step::Raw(bytes) => wire.send(&bytes).await,
            Step::End => wire.send(b"0\r\n\r\n").await,
            Step::Chunk(bytes) => wire.send(&chunk(&bytes)).await,
            Step::Tokens(bytes, tokens) => {
                let written = wire.send(&chunk(&bytes)).await;
                if written.is_ok() {
                    shared.tokens.fetch_add(tokens, Ordering::SeqCst);
                }
                written
            }
            Step::Sleep(time) => {
                tokio::select! {
                    () = tokio::time::sleep(time) => Ok(()),
                    () = wire.gone() => return Played::Gone,
                }
            }
            Step::Hang => {
                wire.gone().await;
                return Played::Gone;
            }
            Step::Reset => {
                let _ = wire.stream.set_zero_linger();
                return Played::Closed;
            }
            Step::Close => return Played::Closed,
        };
        if written.is_err() {
            return Played::Gone;
        }
    }
    Played::Kept
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend(bytes);
    chunk.extend(b"\r\n");
    chunk
}
