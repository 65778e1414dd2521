//! A tower layer for HTTP clients: requests to a known model API that pass through it are guarded.
//!
//! Requests are read before they are sent, answers as they come. A call that is stopped ends at
//! once, whether it waits for its answer or reads it. Where a server is asked, another thread waits
//! for it: the executor is never blocked.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use tower_layer::Layer;
use tower_service::Service;

use crate::blocking::{self, Blocking};
use crate::exchange::{Exchange, Look, Outgoing};
use crate::refused::Refused;
use crate::scope::Scope;
use crate::stop::{StopOnDrop, Stopped};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Guards an HTTP client with a scope.
///
/// ```
/// use bytes::Bytes;
/// use deadstop_sdk::{Limits, Session, layer::GuardLayer};
/// use http_body_util::Full;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Any client that is a service will do; this one answers by itself.
/// let client = service_fn(async |_request: http::Request<Full<Bytes>>| {
///     let answer = r#"{"choices":[{"message":{"content":"Hi"}}]}"#;
///     let answer = http::Response::builder().header("content-type", "application/json")
///         .body(Full::new(Bytes::from(answer)))?;
///     Ok::<_, http::Error>(answer)
/// });
/// let one = Limits::new().max_model_calls(1);
/// let session = Session::builder("writer").limits(one).open()?;
/// let client = GuardLayer::new(session.root()).layer(client);
///
/// let ask = || {
///     let body = r#"{"model":"gpt-4o","messages":[{"role":"user","content":"Hello"}]}"#;
///     http::Request::post("https://api.openai.com/v1/chat/completions")
///         .body(Full::new(Bytes::from(body)))
/// };
/// assert!(client.clone().oneshot(ask()?).await.is_ok());
/// let refused = client.clone().oneshot(ask()?).await.unwrap_err();
/// assert!(refused.to_string().contains("all 1 model calls"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct GuardLayer {
    scope: Scope,
}

impl GuardLayer {
    /// A layer that charges what passes through it to a scope.
    pub fn new(scope: Scope) -> GuardLayer {
        GuardLayer { scope }
    }
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guarded<S>;

    fn layer(&self, client: S) -> Guarded<S> {
        Guarded { client, scope: self.scope.clone() }
    }
}

/// A client that is guarded.
#[derive(Debug, Clone)]
pub struct Guarded<S> {
    client: S,
    scope: Scope,
}

/// A call that was refused, or that failed by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// Deadstop refused it, or cut it off. Do not retry.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The client failed.
    #[error("the HTTP client failed: {0}")]
    Client(#[source] BoxError),
}

impl<S, B, R> Service<Request<B>> for Guarded<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Unpin,
    R::Error: Into<BoxError>,
{
    type Response = Response<GuardedBody<R>>;
    type Error = GuardError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, GuardError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), GuardError>> {
        self.client.poll_ready(context).map_err(|error| GuardError::Client(error.into()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was asked whether it is ready is the one that is used.
        let fresh = self.client.clone();
        let mut client = std::mem::replace(&mut self.client, fresh);
        let scope = self.scope.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let failed = |error: BoxError| GuardError::Client(error);
            let body = body.collect().await.map_err(|error| failed(error.into()))?.to_bytes();
            if scope.session().is_restored() {
                let sent = client.call(Request::from_parts(parts, Full::new(body))).await;
                let response = sent.map_err(|error| failed(error.into()))?;
                return Ok(response.map(GuardedBody::open));
            }
            let host = parts.uri.host().unwrap_or_default().to_owned();
            let outgoing = Outgoing::new(&host, parts.uri.path(), &body);
            let outgoing = outgoing.method(parts.method.as_str());
            let mut exchange = scope.request_async(&outgoing).await?;
            // A compressed answer cannot be read.
            parts.headers.remove(header::ACCEPT_ENCODING);
            let body = exchange.body().map_or(body, Bytes::copy_from_slice);
            parts.headers.remove(header::CONTENT_LENGTH);
            let sending = client.call(Request::from_parts(parts, Full::new(body)));
            let stopped = exchange.stop_signal().stopped();
            let response = match race(sending, stopped).await {
                Some(Ok(response)) => response,
                Some(Err(error)) => {
                    exchange.broken();
                    return Err(failed(error.into()));
                }
                None => return Err(GuardError::Refused(exchange.cut_off())),
            };
            let kind = response.headers().get(header::CONTENT_TYPE);
            let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
            let told = response.headers().iter();
            let told = told.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
            exchange.headers(&told.collect::<Vec<_>>());
            exchange.answer(response.status().as_u16(), kind);
            Ok(response.map(|body| GuardedBody::guarded(body, exchange)))
        })
    }
}

/// What is done first; `None` if it was stopped.
async fn race<T>(work: impl Future<Output = T>, mut stopped: Stopped) -> Option<T> {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|context| {
        if Pin::new(&mut stopped).poll(context).is_ready() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(context).map(Some)
    })
    .await
}

/// An answer that is judged as it is read.
#[derive(Debug)]
pub struct GuardedBody<R> {
    body: Option<R>,
    guard: Guard,
    /// Tells a judge on another thread when this answer is dropped.
    _leaving: Option<StopOnDrop>,
}

/// How far the judgement of an answer is.
#[derive(Debug)]
enum Guard {
    /// Not guarded, or not any more.
    Open,
    /// The next bytes are awaited.
    Reading(Box<Exchange>, Stopped),
    /// A server is asked about what was read.
    Judging(Blocking<Judged>),
}

/// What was judged, and what is passed on then.
struct Judged {
    exchange: Box<Exchange>,
    refused: Option<Refused>,
    then: Then,
}

/// What is passed on once it was judged.
#[derive(Debug)]
enum Then {
    /// These bytes.
    Pass(Bytes),
    /// The end of the answer, with the bytes before it.
    End(Vec<u8>),
}

type Polled = Poll<Option<Result<Frame<Bytes>, GuardError>>>;

impl<R> GuardedBody<R> {
    fn open(body: R) -> GuardedBody<R> {
        GuardedBody { body: Some(body), guard: Guard::Open, _leaving: None }
    }

    fn guarded(body: R, mut exchange: Exchange) -> GuardedBody<R> {
        let (leaving, left) = StopOnDrop::new();
        exchange.leave_with(left);
        let guard = Guard::reading(Box::new(exchange));
        GuardedBody { body: Some(body), guard, _leaving: Some(leaving) }
    }

    /// It is over: the rest of the answer is not read.
    fn refuse(&mut self, refused: Refused) -> Polled {
        (self.body, self.guard) = (None, Guard::Open);
        Poll::Ready(Some(Err(GuardError::Refused(refused))))
    }

    /// Judges what was read: here, or on another thread if a server is asked. `None` while that waits.
    fn judge(
        &mut self,
        mut exchange: Box<Exchange>,
        look: Look,
        then: Option<Bytes>,
    ) -> Option<Polled> {
        let asks = exchange.asks_server(&look);
        let work = move || {
            let refused = exchange.judge(&look).err();
            let then = match then {
                Some(bytes) => Then::Pass(look.instead().map_or(bytes, Bytes::from)),
                None => Then::End(look.rest()),
            };
            Judged { exchange, refused, then }
        };
        if asks {
            self.guard = Guard::Judging(blocking::run(work));
            return None;
        }
        Some(self.judged(work()))
    }

    fn judged(&mut self, judged: Judged) -> Polled {
        let Judged { mut exchange, refused, then } = judged;
        if let Some(refused) = refused {
            return self.refuse(refused);
        }
        match then {
            Then::Pass(bytes) => {
                self.guard = Guard::reading(exchange);
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Then::End(rest) => match exchange.settle_end() {
                Err(refused) => self.refuse(refused),
                Ok(()) => {
                    (self.body, self.guard) = (None, Guard::Open);
                    let last = (!rest.is_empty()).then(|| Ok(Frame::data(rest.into())));
                    Poll::Ready(last)
                }
            },
        }
    }
}

impl Guard {
    fn reading(exchange: Box<Exchange>) -> Guard {
        let stopped = exchange.stop_signal().stopped();
        Guard::Reading(exchange, stopped)
    }
}

impl<R> Body for GuardedBody<R>
where
    R: Body<Data = Bytes> + Unpin,
    R::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = GuardError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled {
        let this = &mut *self;
        loop {
            if let Guard::Judging(work) = &mut this.guard {
                let judged = std::task::ready!(Pin::new(work).poll(context));
                return this.judged(judged);
            }
            if let Guard::Reading(exchange, stopped) = &mut this.guard
                && Pin::new(stopped).poll(context).is_ready()
            {
                let refused = exchange.cut_off();
                return this.refuse(refused);
            }
            let Some(body) = &mut this.body else { return Poll::Ready(None) };
            let frame = std::task::ready!(Pin::new(body).poll_frame(context));
            let mut exchange = match std::mem::replace(&mut this.guard, Guard::Open) {
                Guard::Reading(exchange, _) => exchange,
                guard => {
                    this.guard = guard;
                    return Poll::Ready(frame.map(|f| f.map_err(|e| GuardError::Client(e.into()))));
                }
            };
            let (look, then) = match frame.map(|frame| frame.map(Frame::into_data)) {
                None => (exchange.look_end(), None),
                Some(Err(error)) => {
                    exchange.broken();
                    return Poll::Ready(Some(Err(GuardError::Client(error.into()))));
                }
                Some(Ok(Err(trailers))) => {
                    this.guard = Guard::reading(exchange);
                    return Poll::Ready(Some(Ok(trailers)));
                }
                Some(Ok(Ok(bytes))) => (exchange.look(&bytes), Some(bytes)),
            };
            let judged = match look {
                Ok(look) => this.judge(exchange, look, then),
                Err(refused) => Some(this.refuse(refused)),
            };
            if let Some(polled) = judged {
                return polled;
            }
        }
    }
}
