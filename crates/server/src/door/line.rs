//! Connections to upstreams, each driven by the call that uses it.
//!
//! A client that runs its connections in tasks of their own wakes another task, often on another
//! core, for every chunk of an answer. Here the call's own task polls the connection and takes what
//! it brings: whatever has arrived is passed on in one go, and dropping the answer closes the
//! upstream at once.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tower::ServiceExt;

/// How long a connection is kept without being used.
const KEEP: Duration = Duration::from_secs(60);
/// Connections to one upstream that are kept without being used.
const MOST_IDLE: usize = 512;

type Wire = http1::Connection<MaybeHttpsStream<TokioIo<TcpStream>>, Full<Bytes>>;
type Place = (Scheme, Authority);

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

/// All connections to upstreams.
pub(crate) struct Lines {
    connector: HttpsConnector<HttpConnector>,
    http: http1::Builder,
    idle: Arc<Mutex<Idle>>,
}

type Idle = HashMap<Place, VecDeque<(Instant, Line)>>;

/// One connection, polled by the call that uses it and by no background task.
struct Line {
    sender: http1::SendRequest<Full<Bytes>>,
    wire: Wire,
}

impl Lines {
    /// No connection yet. Must be called inside a runtime.
    pub(crate) fn new() -> Lines {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(Duration::from_secs(10)));
        let connector = HttpsConnectorBuilder::new()
            .with_webpki_roots()
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let mut http = http1::Builder::new();
        http.preserve_header_case(true);
        let idle = Arc::new(Mutex::new(Idle::new()));
        tokio::spawn(let_go(Arc::downgrade(&idle)));
        Lines { connector, http, idle }
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Answer>, Broken> {
        let uri = request.uri().clone();
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err(Broken::Connect("the address has no host".into()));
        };
        let place = (scheme.clone(), authority.clone());
        // On the wire stands the path alone.
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse().unwrap_or_default();
        loop {
            let (mut line, used) = match self.take(&place) {
                Some(line) => (line, true),
                None => (Box::pin(self.connect(uri.clone())).await?, false),
            };
            match line.send(request).await {
                Ok(response) => {
                    let home = Arc::downgrade(&self.idle);
                    let home = Home { place, home };
                    return Ok(response.map(|body| Answer::new(body, line, home)));
                }
                // A kept connection had ended meanwhile and nothing was sent: the next one.
                Err((_, Some(unsent))) if used => request = unsent,
                Err((broken, _)) => return Err(broken),
            }
        }
    }

    async fn connect(&self, uri: Uri) -> Result<Line, Broken> {
        let stream = self.connector.clone().oneshot(uri).await;
        let stream = stream.map_err(|error| Broken::Connect(causes(&*error)))?;
        let (sender, wire) = self.http.handshake(stream).await?;
        Ok(Line { sender, wire })
    }

    fn take(&self, place: &Place) -> Option<Line> {
        let mut idle = self.idle.lock();
        let kept = idle.get_mut(place)?;
        // The one used last is the most likely to be alive.
        while let Some((since, mut line)) = kept.pop_back() {
            if since.elapsed() < KEEP && line.is_alive() {
                return Some(line);
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
        let old = |(since, _): &mut (Instant, Line)| since.elapsed() < KEEP;
        idle.lock().retain(|_, kept| {
            kept.retain_mut(old);
            !kept.is_empty()
        });
    }
}

impl Line {
    /// Whether the other side has not hung up.
    fn is_alive(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        Pin::new(&mut self.wire).poll(&mut context).is_pending() && self.sender.is_ready()
    }

    /// Sends a request; gives it back where nothing of it went out.
    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, (Broken, Option<Request<Full<Bytes>>>)> {
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

/// An answer and the connection it comes over.
pub(crate) struct Answer {
    body: Incoming,
    line: Option<(Line, Home)>,
}

impl Answer {
    fn new(body: Incoming, line: Line, home: Home) -> Answer {
        Answer { body, line: Some((line, home)) }
    }

    /// The answer is complete: the connection can take another request, if both sides agree.
    fn go_home(&mut self) {
        let Some((mut line, Home { place, home })) = self.line.take() else { return };
        let Some(home) = home.upgrade().filter(|_| line.is_alive()) else { return };
        let mut idle = home.lock();
        let kept = idle.entry(place).or_default();
        if kept.len() < MOST_IDLE {
            kept.push_back((Instant::now(), line));
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let mut asked = false;
        loop {
            if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
                match &frame {
                    None => this.go_home(),
                    Some(Err(_)) => this.line = None,
                    Some(Ok(_)) => {}
                }
                return Poll::Ready(frame);
            }
            match &mut this.line {
                Some((line, _)) if !asked => {
                    asked = true;
                    if Pin::new(&mut line.wire).poll(context).is_ready() {
                        this.line = None;
                    }
                }
                _ => return Poll::Pending,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // A reader that knows the length stops at the last byte and does not poll for the end.
        if self.body.is_end_stream() {
            self.go_home();
        }
    }
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
