//! A provider for measurements: OpenAI chat completions, as fast as they can be answered.
//!
//! What it says is told by the model's name in the request: `bench-stream` gives 200 events, one a
//! millisecond; `bench-burst` the same without pauses; anything else 2 KB of JSON. Answers are made
//! of random words, so that nothing looks like a loop. Prints its address.

use std::convert::Infallible;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Events in a stream.
const EVENTS: usize = 200;
/// Different answers: more than any guard looks back on, and a prime, so that connections in step with
/// each other do not get the same few again and again.
const ANSWERS: usize = 127;
/// Between two events of a paced stream.
const PACE: Duration = Duration::from_millis(1);

struct Answers {
    json: Vec<Bytes>,
    streams: Vec<Arc<Vec<Bytes>>>,
    next: AtomicUsize,
}

/// A stream of events, paced or not.
struct Events {
    events: Arc<Vec<Bytes>>,
    at: usize,
    pace: Option<Interval>,
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(pace) = &mut self.pace {
            ready!(pace.poll_tick(context));
        }
        let event = self.events.get(self.at).cloned();
        self.at += 1;
        Poll::Ready(event.map(|event| Ok(Frame::data(event))))
    }
}

type Reply = Response<Either<Full<Bytes>, Events>>;

async fn answer(request: Request<Incoming>, answers: Arc<Answers>) -> Result<Reply, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let head = &body[..body.len().min(8192)];
    let asks = |name: &[u8]| head.windows(name.len()).any(|part| part == name);
    let (paced, burst) = (asks(b"bench-stream"), asks(b"bench-burst"));
    let next = answers.next.fetch_add(1, Ordering::Relaxed) % ANSWERS;
    let (kind, body) = if paced || burst {
        let pace = paced.then(|| {
            let mut pace = interval(PACE);
            pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
            pace
        });
        let events = Events { events: Arc::clone(&answers.streams[next]), at: 0, pace };
        ("text/event-stream; charset=utf-8", Either::Right(events))
    } else {
        ("application/json", Either::Left(Full::new(answers.json[next].clone())))
    };
    let mut response = Response::new(body);
    response.headers_mut().insert("content-type", http::HeaderValue::from_static(kind));
    Ok(response)
}

/// Words out of letters, by a small generator of its own: the same ones in every run.
fn words(state: &mut u64, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 8);
    while text.len() < bytes {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        let letters = 3 + *state % 6;
        text.extend((0..letters).map(|i| char::from(b'a' + ((*state >> (8 + i * 5)) % 26) as u8)));
        text.push(' ');
    }
    text
}

fn answers() -> Answers {
    let mut state = 88_172_645_463_325_252;
    let head =
        r#""id":"chatcmpl-1","created":1700000000,"model":"bench","system_fingerprint":"fp""#;
    let usage = r#""usage":{"prompt_tokens":500,"completion_tokens":200,"total_tokens":700}"#;
    let json = |state: &mut u64| {
        let text = words(state, 1750);
        Bytes::from(format!(
            r#"{{{head},"object":"chat.completion","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],{usage}}}"#
        ))
    };
    let stream = |state: &mut u64| {
        let event = |choices: &str, usage: &str| {
            Bytes::from(format!(
                "data: {{{head},\"object\":\"chat.completion.chunk\",\"choices\":[{choices}]{usage}}}\n\n"
            ))
        };
        let delta = |delta: &str, end: &str| {
            let choice = format!(r#"{{"index":0,"delta":{{{delta}}},"finish_reason":{end}}}"#);
            event(&choice, "")
        };
        let mut events: Vec<Bytes> = (0..EVENTS - 3)
            .map(|_| delta(&format!(r#""content":"{}""#, words(state, 6)), "null"))
            .collect();
        events.push(delta("", r#""stop""#));
        events.push(event("", &format!(",{usage}")));
        events.push(Bytes::from_static(b"data: [DONE]\n\n"));
        Arc::new(events)
    };
    Answers {
        json: (0..ANSWERS).map(|_| json(&mut state)).collect(),
        streams: (0..ANSWERS).map(|_| stream(&mut state)).collect(),
        next: AtomicUsize::new(0),
    }
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let answers = Arc::new(answers());
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
    println!("{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let answers = Arc::clone(&answers);
        let service = service_fn(move |request| answer(request, Arc::clone(&answers)));
        tokio::spawn(async move {
            // A client that leaves is no news.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
