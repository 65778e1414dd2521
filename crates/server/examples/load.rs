//! A load generator for measurements: streams, and conversations that grow.
//!
//! ```text
//! load ADDRESS[,ADDRESS]… PATH json|stream|burst|history CONNECTIONS SECONDS|Nx [HEADER: VALUE]…
//! ```
//!
//! With several addresses each request goes to one of them by chance, as a balancer would send it.
//! Prints a line of JSON: requests, failures, seconds, and latencies in microseconds. An answer is
//! a failure unless its status is 200 and it is complete.

use std::io::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A conversation begins with so many bytes …
const HISTORY: usize = 400 << 10;
/// … and is given up after so many requests.
const TURNS: u64 = 100;

struct Plan {
    addresses: Vec<String>,
    path: String,
    kind: String,
    until: Option<Instant>,
    left: AtomicU64,
    headers: String,
    names: AtomicU64,
}

#[derive(Default)]
struct Measured {
    whole: Vec<u32>,
    first: Vec<u32>,
    failures: u64,
}

struct Agent {
    state: u64,
    session: u64,
    turns: u64,
    body: Vec<u8>,
}

impl Agent {
    /// The next request's body; a history's grows by an answer and a question.
    fn next(&mut self, plan: &Plan) {
        let history = plan.kind == "history";
        self.turns += 1;
        if !history || self.body.is_empty() || self.turns > TURNS {
            let per_session = if history { 1 } else { 20 };
            if self.turns.is_multiple_of(per_session) || self.turns == 1 || history {
                self.session = plan.names.fetch_add(1, Ordering::Relaxed) % 1000;
                self.turns = self.turns.min(1);
            }
            let stream = matches!(plan.kind.as_str(), "stream" | "burst");
            self.body.clear();
            self.body.extend_from_slice(
                format!(
                    r#"{{"model":"bench-{}","stream":{stream},"max_tokens":256,"messages":["#,
                    plan.kind
                )
                .as_bytes(),
            );
            self.message("system", 400);
            while history && self.body.len() < HISTORY {
                self.message("user", 900);
                self.message("assistant", 900);
            }
        } else {
            self.body.truncate(self.body.len() - 2);
            self.message("assistant", 900);
        }
        self.message("user", 1400);
        self.body.pop();
        self.body.extend_from_slice(b"]}");
    }

    fn message(&mut self, role: &str, bytes: usize) {
        if self.body.last() == Some(&b'}') {
            self.body.push(b',');
        }
        self.body.extend_from_slice(format!(r#"{{"role":"{role}","content":""#).as_bytes());
        let end = self.body.len() + bytes;
        while self.body.len() < end {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            let letters = 3 + self.state % 6;
            for i in 0..letters {
                self.body.push(b'a' + ((self.state >> (8 + i * 5)) % 26) as u8);
            }
            self.body.push(b' ');
        }
        self.body.extend_from_slice(br#""},"#);
    }
}

impl Plan {
    fn more(&self) -> bool {
        match self.until {
            Some(until) => Instant::now() < until,
            None => {
                let take = |left: u64| left.checked_sub(1);
                self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
            }
        }
    }
}

async fn agent(plan: Arc<Plan>, number: u64) -> Result<Measured> {
    let mut measured = Measured::default();
    let state = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(number + 1) | 1;
    let mut agent = Agent { state, session: 0, turns: 0, body: Vec::new() };
    let mut streams: Vec<Option<TcpStream>> = plan.addresses.iter().map(|_| None).collect();
    let mut throws = state;
    let mut buffer = vec![0; 64 << 10];
    while plan.more() {
        agent.next(&plan);
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
             x-deadstop-session: bench-{}\r\nauthorization: Bearer sk-bench\r\n{}\
             content-length: {}\r\n\r\n",
            plan.path,
            agent.session,
            plan.headers,
            agent.body.len()
        );
        throws = throws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let chosen = (throws >> 33) as usize % streams.len();
        let mut open = match streams[chosen].take() {
            Some(open) => open,
            None => {
                let open = TcpStream::connect(&plan.addresses[chosen]).await?;
                open.set_nodelay(true)?;
                open
            }
        };
        let began = Instant::now();
        match exchange(&mut open, head.as_bytes(), &agent.body, &mut buffer).await {
            Ok((first, keep)) => {
                measured.whole.push(micros(began.elapsed()));
                measured.first.push(micros(first.duration_since(began)));
                streams[chosen] = keep.then_some(open);
            }
            Err(error) => {
                if measured.failures == 0 {
                    eprintln!("{error}");
                }
                measured.failures += 1;
            }
        }
    }
    Ok(measured)
}

/// Sends a request and reads the whole answer: when its first byte came, and whether the connection
/// may be used again.
async fn exchange(
    stream: &mut TcpStream,
    head: &[u8],
    body: &[u8],
    buffer: &mut [u8],
) -> Result<(Instant, bool)> {
    let small = [head, body].concat();
    stream.write_all(&small).await?;
    let mut read = 0;
    // The head, and perhaps the first bytes of the body.
    let head_end = loop {
        let n = stream.read(&mut buffer[read..]).await?;
        if n == 0 {
            return Err(Error::other("closed"));
        }
        read += n;
        if let Some(at) = buffer[..read].windows(4).position(|part| part == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).to_ascii_lowercase();
    if !head.starts_with("http/1.1 200") {
        let text = String::from_utf8_lossy(&buffer[..read]).into_owned();
        return Err(Error::other(text));
    }
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let events = head.contains("text/event-stream");
    let mut first = (read > head_end).then(Instant::now);
    let mut total = read - head_end;
    let mut tail: Vec<u8> = buffer[head_end..read].to_vec();
    let complete = |total: usize, tail: &[u8]| match length {
        Some(length) => total >= length,
        None => tail.ends_with(b"0\r\n\r\n"),
    };
    while !complete(total, &tail) {
        let n = stream.read(buffer).await?;
        if n == 0 {
            return Err(Error::other("broke off"));
        }
        first.get_or_insert_with(Instant::now);
        total += n;
        tail.extend_from_slice(&buffer[..n]);
        let spare = tail.len().saturating_sub(64);
        tail.drain(..spare);
    }
    if events && !tail.windows(6).any(|part| part == b"[DONE]") {
        return Err(Error::other(format!("cut: {}", String::from_utf8_lossy(&tail))));
    }
    Ok((first.unwrap_or_else(Instant::now), !head.contains("connection: close")))
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

fn percentile(sorted: &[u32], percent: usize) -> u32 {
    sorted.get(sorted.len() * percent / 100).or(sorted.last()).copied().unwrap_or(0)
}

#[tokio::main]
async fn main() -> Result<()> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [addresses, path, kind, connections, long, headers @ ..] = given.as_slice() else {
        return Err(Error::other(
            "load ADDRESSES PATH KIND CONNECTIONS SECONDS|Nx [HEADER: VALUE]…",
        ));
    };
    let number = |text: &str| text.parse::<u64>().map_err(Error::other);
    let began = Instant::now();
    let (until, left) = match long.strip_suffix('x') {
        Some(requests) => (None, number(requests)?),
        None => (Some(began + Duration::from_secs(number(long)?)), 0),
    };
    let plan = Arc::new(Plan {
        addresses: addresses.split(',').map(str::to_owned).collect(),
        path: path.clone(),
        kind: kind.clone(),
        until,
        left: AtomicU64::new(left),
        headers: headers.iter().map(|header| format!("{header}\r\n")).collect(),
        names: AtomicU64::new(0),
    });
    let agents: Vec<_> =
        (0..number(connections)?).map(|n| tokio::spawn(agent(Arc::clone(&plan), n))).collect();
    let mut all = Measured::default();
    for agent in agents {
        let measured = agent.await??;
        all.whole.extend(measured.whole);
        all.first.extend(measured.first);
        all.failures += measured.failures;
    }
    let seconds = began.elapsed().as_secs_f64();
    all.whole.sort_unstable();
    all.first.sort_unstable();
    println!(
        r#"{{"requests":{},"failures":{},"seconds":{seconds:.3},"p50":{},"p99":{},"first":{}}}"#,
        all.whole.len(),
        all.failures,
        percentile(&all.whole, 50),
        percentile(&all.whole, 99),
        percentile(&all.first, 50),
    );
    Ok(())
}
