//! Connections to upstreams, each driven by the call that uses it.
//!
//! A client that runs its connections in tasks of their own wakes another task, often on another
//! core, for every chunk of an answer. Here the call's own task polls the connection and takes what
//! it brings: whatever has arrived is passed on in one go, and dropping the answer closes the
//! upstream at once.
//!
//! A body of a known length is read by the HTTP client. One that comes in chunks, as streams do, is read
//! from the connection itself: see [`super::gate`].

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use deadstop_alerts::{Proxy, Stream, Way};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::client::legacy::connect::HttpConnector;
use parking_lot::Mutex;
use tower::ServiceExt;

use super::chunks::{self, Chunks};
use super::gate::{Gate, Latch};
use crate::net::slow::Timed;
use crate::ways::goal;

/// How long a connection is kept without being used.
const KEEP: Duration = Duration::from_secs(60);
/// Connections to one upstream that are kept without being used.
const MOST_IDLE: usize = 512;

/// How long a proxy may take to open its tunnel, and the upstream to agree on TLS.
const AGREED: Duration = Duration::from_secs(30);

type Wire = http1::Connection<Gate, Sending>;
type Place = (Way, Scheme, Authority);

/// The body of a request to an upstream.
pub(crate) enum Sending {
    /// All of it is there.
    Whole(Full<Bytes>),
    /// It is passed on while it arrives.
    Passing(Timed<Incoming>),
}

impl From<Full<Bytes>> for Sending {
    fn from(body: Full<Bytes>) -> Sending {
        Sending::Whole(body)
    }
}

impl Body for Sending {
    type Data = Bytes;
    type Error = std::io::Error;

    #[inline]
    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match &mut *self {
            Sending::Whole(body) => {
                Pin::new(body).poll_frame(context).map_err(|never| match never {})
            }
            Sending::Passing(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Sending::Whole(body) => body.is_end_stream(),
            Sending::Passing(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Sending::Whole(body) => body.size_hint(),
            Sending::Passing(body) => body.size_hint(),
        }
    }
}

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("{0}")]
    Connect(String),
    #[error("{0}")]
    Wire(#[from] hyper::Error),
    #[error("connection closed before the answer")]
    Closed,
}

/// Why the body of an answer is not whole.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Torn {
    #[error("{0}")]
    Wire(#[from] hyper::Error),
    #[error("error reading a body from connection: {0}")]
    Chunks(#[from] io::Error),
}

/// All connections to upstreams.
pub(crate) struct Lines {
    tcp: HttpConnector,
    http: http1::Builder,
    idle: Arc<Mutex<Idle>>,
}

type Idle = HashMap<Place, VecDeque<(Instant, Kept)>>;

/// A connection that waits for its next request.
enum Kept {
    Line(Box<Line>),
    /// One that was taken from its HTTP client.
    Bare(Bare),
}

struct Bare {
    stream: Stream,
    forwarder: Option<Arc<Proxy>>,
}

/// One connection, polled by the call that uses it and by no background task.
struct Line {
    sender: http1::SendRequest<Sending>,
    wire: Wire,
    latch: Arc<Latch>,
    /// The proxy at its end, if that forwards requests.
    forwarder: Option<Arc<Proxy>>,
}

impl Lines {
    /// No connection yet. Must be called inside a runtime.
    pub(crate) fn new() -> Lines {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(Duration::from_secs(10)));
        let mut http = http1::Builder::new();
        http.preserve_header_case(true);
        let idle = Arc::new(Mutex::new(Idle::new()));
        tokio::spawn(let_go(Arc::downgrade(&idle)));
        Lines { tcp, http, idle }
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(
        &self,
        way: &Way,
        request: Request<impl Into<Sending>>,
    ) -> Result<Response<Answer>, Broken> {
        let mut request = request.map(Into::into);
        let uri = request.uri().clone();
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err(Broken::Connect("the address has no host".into()));
        };
        let place = (way.clone(), scheme.clone(), authority.clone());
        loop {
            let (mut line, used) = match self.take(&place) {
                Some(Kept::Line(line)) => (line, true),
                Some(Kept::Bare(bare)) => (self.speak(bare).await?, true),
                None => (Box::pin(self.connect(way, &uri)).await?, false),
            };
            line.address(&mut request, &uri);
            match request.body() {
                Sending::Whole(_) => line.latch.shut(),
                // Its rest may follow while the answer comes, so the client does both.
                Sending::Passing(_) => line.latch.open(),
            }
            match line.send(request).await {
                Ok(response) => {
                    if let Some(why) = line.shut_out(&response) {
                        return Err(why);
                    }
                    let home = Arc::downgrade(&self.idle);
                    return Ok(Answer::of(response, line, Home { place, home }));
                }
                // A kept connection had ended meanwhile and nothing was sent: the next one.
                Err((_, Some(unsent))) if used => request = unsent,
                Err((broken, _)) => return Err(broken),
            }
        }
    }

    async fn connect(&self, way: &Way, uri: &Uri) -> Result<Box<Line>, Broken> {
        let failed = |why: String| Broken::Connect(why);
        let goal = goal(uri).ok_or_else(|| failed("the address has no host".to_owned()))?;
        let proxy = way.proxy(goal);
        let tcp = self.tcp.clone();
        let stream = match proxy {
            None => tcp.oneshot(uri.clone()).await.map_err(|error| failed(causes(&error)))?,
            Some(proxy) => {
                let lost = |why: String| {
                    failed(format!("the proxy {proxy} cannot be reached: {why}; check its address"))
                };
                let place = format!("http://{}", proxy.place()).parse();
                let place: Uri = place.map_err(|_| lost("its name is not valid".to_owned()))?;
                tcp.oneshot(place).await.map_err(|error| lost(causes(&error)))?
            }
        };
        let opening = way.open(stream.into_inner(), proxy.map(Arc::as_ref), goal);
        let opened = tokio::time::timeout(AGREED, opening).await;
        let opened = opened.map_err(|_| {
            let who = proxy.map_or("the upstream".to_owned(), |proxy| format!("the proxy {proxy}"));
            failed(format!("{who} accepted the connection and said nothing for {AGREED:?}"))
        })?;
        let stream = opened.map_err(|error| failed(error.to_string()))?;
        let forwarder = proxy.filter(|proxy| proxy.forwards(goal)).cloned();
        self.speak(Bare { stream, forwarder }).await
    }

    /// Gives a connection to an HTTP client.
    async fn speak(&self, Bare { stream, forwarder }: Bare) -> Result<Box<Line>, Broken> {
        let (gate, latch) = Gate::new(stream);
        let (sender, wire) = self.http.handshake(gate).await?;
        Ok(Box::new(Line { sender, wire, latch, forwarder }))
    }

    fn take(&self, place: &Place) -> Option<Kept> {
        let mut idle = self.idle.lock();
        let kept = idle.get_mut(place)?;
        // The one used last is the most likely to be alive.
        while let Some((since, mut kept)) = kept.pop_back() {
            if since.elapsed() < KEEP && kept.is_alive() {
                return Some(kept);
            }
        }
        None
    }
}

/// Closes connections that were idle for [`KEEP`], until the owner is dropped.
async fn let_go(idle: Weak<Mutex<Idle>>) {
    loop {
        tokio::time::sleep(KEEP / 2).await;
        let Some(idle) = idle.upgrade() else { return };
        let old = |(since, _): &mut (Instant, Kept)| since.elapsed() < KEEP;
        idle.lock().retain(|_, kept| {
            kept.retain_mut(old);
            !kept.is_empty()
        });
    }
}

impl Kept {
    fn is_alive(&mut self) -> bool {
        match self {
            Kept::Line(line) => line.is_alive(),
            Kept::Bare(bare) => {
                let mut context = Context::from_waker(Waker::noop());
                // What comes unasked for belongs to no answer.
                chunks::read(&mut bare.stream, &mut context, 1).is_pending()
            }
        }
    }
}

impl Line {
    /// Writes a request's address as the other side wants it: the path alone, or for a proxy that
    /// forwards the whole URL.
    fn address(&self, request: &mut Request<Sending>, uri: &Uri) {
        let Some(proxy) = &self.forwarder else {
            let path = uri.path_and_query().map_or("/", |path| path.as_str());
            *request.uri_mut() = path.parse().unwrap_or_default();
            return;
        };
        *request.uri_mut() = uri.clone();
        let authorization = proxy.authorization().map(|value| HeaderValue::from_str(&value));
        if let Some(Ok(mut value)) = authorization {
            value.set_sensitive(true);
            request.headers_mut().insert(header::PROXY_AUTHORIZATION, value);
        }
    }

    /// The error if the answer is the proxy's own, which wants to know who asks.
    fn shut_out(&self, response: &Response<Incoming>) -> Option<Broken> {
        let wants = response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED;
        let proxy = self.forwarder.as_ref().filter(|_| wants)?;
        Some(Broken::Connect(proxy.wants_credentials().to_string()))
    }

    /// Whether the other side has not hung up.
    fn is_alive(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        Pin::new(&mut self.wire).poll(&mut context).is_pending() && self.sender.is_ready()
    }

    /// Sends a request; gives it back where nothing of it went out.
    async fn send(
        &mut self,
        request: Request<Sending>,
    ) -> Result<Response<Incoming>, (Broken, Option<Request<Sending>>)> {
        let mut sent = std::pin::pin!(self.sender.try_send_request(request));
        let wire = &mut self.wire;
        std::future::poll_fn(|context| {
            // An error of the wire reaches the answer as well, which says it better.
            let over = Pin::new(&mut *wire).poll(context).is_ready();
            match sent.as_mut().poll(context) {
                Poll::Ready(Ok(response)) => Poll::Ready(Ok(response)),
                Poll::Ready(Err(mut error)) => {
                    let unsent = error.take_message();
                    Poll::Ready(Err((Broken::Wire(error.into_error()), unsent)))
                }
                Poll::Pending if over => Poll::Ready(Err((Broken::Closed, None))),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

/// Where a connection goes when its answer is complete.
struct Home {
    place: Place,
    home: Weak<Mutex<Idle>>,
}

impl Home {
    /// Keeps a connection for the next request, if it is alive.
    fn take_in(self, mut kept: Kept) {
        let Some(home) = self.home.upgrade().filter(|_| kept.is_alive()) else { return };
        let mut idle = home.lock();
        let idle = idle.entry(self.place).or_default();
        if idle.len() < MOST_IDLE {
            idle.push_back((Instant::now(), kept));
        }
    }
}

/// The body of an answer and the connection it comes over.
pub(crate) struct Answer(Source);

/// Where a body is read from. The connection is missing once the body is over.
enum Source {
    /// From the HTTP client.
    Client { body: Incoming, line: Option<(Box<Line>, Home)> },
    /// From the connection itself. Without a home the connection is used once.
    Chunks { chunks: Chunks, stream: Option<(Bare, Option<Home>)> },
}

impl Answer {
    fn of(response: Response<Incoming>, line: Box<Line>, home: Home) -> Response<Answer> {
        let headers = response.headers();
        let chunked = headers.contains_key(header::TRANSFER_ENCODING);
        let counted = !chunked && headers.contains_key(header::CONTENT_LENGTH);
        // While the rest of a large request is still to be written, the client does both.
        let clients = line.latch.is_open() || !line.latch.is_written();
        if counted || clients || response.body().is_end_stream() {
            line.latch.open();
            let line = Some((line, home));
            return response.map(|body| Answer(Source::Client { body, line }));
        }
        let ends_itself =
            codings(headers).next_back().is_some_and(|last| last.eq_ignore_ascii_case("chunked"));
        let home = Some(home).filter(|_| ends_itself && stays_open(&response));
        let Line { wire, forwarder, .. } = *line;
        let (stream, rest) = wire.into_parts().io.into_parts();
        let chunks = match ends_itself {
            true => Chunks::chunked(rest),
            false => Chunks::to_the_end(rest),
        };
        let stream = Some((Bare { stream, forwarder }, home));
        response.map(|_| Answer(Source::Chunks { chunks, stream }))
    }

    /// The answer is complete: the connection can take another request, if both sides agree.
    fn go_home(&mut self) {
        match &mut self.0 {
            Source::Client { line, .. } => {
                if let Some((line, home)) = line.take() {
                    home.take_in(Kept::Line(line));
                }
            }
            Source::Chunks { chunks, stream } => {
                if let Some((bare, Some(home))) = stream.take()
                    && chunks.is_complete()
                {
                    home.take_in(Kept::Bare(bare));
                }
            }
        }
    }

    /// The connection is of no more use.
    fn close(&mut self) {
        match &mut self.0 {
            Source::Client { line, .. } => *line = None,
            Source::Chunks { stream, .. } => *stream = None,
        }
    }
}

/// The codings of a body.
fn codings(headers: &HeaderMap) -> impl DoubleEndedIterator<Item = &str> {
    let values = headers.get_all(header::TRANSFER_ENCODING).iter();
    values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).map(str::trim)
}

/// Whether the other side takes another request on the same connection.
fn stays_open<B>(response: &Response<B>) -> bool {
    let named = response.headers().get_all(header::CONNECTION).iter();
    let mut named =
        named.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let closes = named.any(|name| name.trim().eq_ignore_ascii_case("close"));
    response.version() == Version::HTTP_11 && !closes
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Torn;

    #[inline]
    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Torn>>> {
        let this = &mut *self;
        let frame = match &mut this.0 {
            Source::Client { body, line } => std::task::ready!(by_client(body, line, context)),
            Source::Chunks { stream: None, .. } => None,
            Source::Chunks { chunks, stream: Some((bare, _)) } => {
                let frame = std::task::ready!(chunks.poll(&mut bare.stream, context));
                frame.map(|frame| frame.map_err(Torn::from))
            }
        };
        match &frame {
            None => this.go_home(),
            Some(Ok(_)) => {}
            Some(Err(_)) => this.close(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Client { body, .. } => body.is_end_stream(),
            Source::Chunks { stream, .. } => stream.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Client { body, .. } => body.size_hint(),
            Source::Chunks { .. } => SizeHint::default(),
        }
    }
}

/// The next part of a body that the HTTP client reads; its connection is polled with it.
fn by_client(
    body: &mut Incoming,
    line: &mut Option<(Box<Line>, Home)>,
    context: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, Torn>>> {
    let mut asked = false;
    loop {
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Torn::from)));
        }
        match line {
            Some((used, _)) if !asked => {
                asked = true;
                if Pin::new(&mut used.wire).poll(context).is_ready() {
                    *line = None;
                }
            }
            _ => return Poll::Pending,
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // A reader that knows the length stops at the last byte and does not poll for the end.
        if matches!(self.0, Source::Client { .. }) && self.is_end_stream() {
            self.go_home();
        }
    }
}

/// The most that a fetched answer may have.
const MOST_FETCHED: usize = 1 << 20;

/// Sends a request of Deadstop's own and reads the whole answer.
pub(crate) async fn fetch(
    lines: &Lines,
    way: &Way,
    mut request: Request<Full<Bytes>>,
    patience: Duration,
) -> Result<(StatusCode, Bytes), String> {
    let host = request.uri().authority().map(|host| host.as_str().to_owned()).unwrap_or_default();
    if let Ok(host) = HeaderValue::from_str(&host) {
        request.headers_mut().insert(header::HOST, host);
    }
    let asking = async {
        let response = lines.send(way, request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MOST_FETCHED).collect().await;
        Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
    };
    let answered = tokio::time::timeout(patience, asking).await;
    answered.map_err(|_| "it did not answer in time".to_owned())?
}

/// An error with what lies behind it.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut texts = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(deeper) = cause {
        texts.push(deeper.to_string());
        cause = deeper.source();
    }
    texts.join(": ")
}
