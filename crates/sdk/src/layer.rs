//! A tower layer for HTTP clients: whatever speaks a known model API through it is guarded.
//!
//! Requests are read before they are sent, answers as they come. A call that is stopped ends at
//! once, whether it waits for its answer or reads it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use tower_layer::Layer;
use tower_service::Service;

use crate::exchange::{Exchange, Outgoing, api_of};
use crate::refused::Refused;
use crate::scope::Scope;
use crate::stop::Stopped;

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
/// let one = Limits { max_model_calls: Some(1), ..Limits::default() };
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
#[derive(Debug)]
pub enum GuardError {
    /// Deadstop refused it, or cut it off. Do not retry.
    Refused(Refused),
    /// The client failed.
    Client(BoxError),
}

impl fmt::Display for GuardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GuardError::Refused(refused) => refused.fmt(f),
            GuardError::Client(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for GuardError {}

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
            let outgoing = Outgoing {
                api: api_of(&host, parts.uri.path()),
                provider: &host,
                method: parts.method.as_str(),
                path: parts.uri.path(),
                body: &body,
            };
            let mut exchange = scope.request(&outgoing).map_err(GuardError::Refused)?;
            // What is packed cannot be read.
            parts.headers.remove(header::ACCEPT_ENCODING);
            let body = exchange.body().map_or(body, Bytes::copy_from_slice);
            parts.headers.remove(header::CONTENT_LENGTH);
            let sending = client.call(Request::from_parts(parts, Full::new(body)));
            let stopped = exchange.stop().stopped();
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
    guard: Option<(Exchange, Stopped)>,
}

impl<R> GuardedBody<R> {
    fn open(body: R) -> GuardedBody<R> {
        GuardedBody { body: Some(body), guard: None }
    }

    fn guarded(body: R, exchange: Exchange) -> GuardedBody<R> {
        let stopped = exchange.stop().stopped();
        GuardedBody { body: Some(body), guard: Some((exchange, stopped)) }
    }

    /// It is over: the rest of the answer is not read.
    fn refuse(&mut self, refused: Refused) -> Poll<Option<Result<Frame<Bytes>, GuardError>>> {
        (self.body, self.guard) = (None, None);
        Poll::Ready(Some(Err(GuardError::Refused(refused))))
    }
}

impl<R> Body for GuardedBody<R>
where
    R: Body<Data = Bytes> + Unpin,
    R::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = GuardError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, GuardError>>> {
        let this = &mut *self;
        if let Some((exchange, stopped)) = &mut this.guard
            && Pin::new(stopped).poll(context).is_ready()
        {
            let refused = exchange.cut_off();
            return this.refuse(refused);
        }
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let frame = std::task::ready!(Pin::new(body).poll_frame(context));
        let Some((exchange, _)) = &mut this.guard else {
            return Poll::Ready(frame.map(|f| f.map_err(|e| GuardError::Client(e.into()))));
        };
        match frame {
            None => {
                let rest = exchange.finish();
                (this.body, this.guard) = (None, None);
                match rest {
                    Ok(rest) if rest.is_empty() => Poll::Ready(None),
                    Ok(rest) => Poll::Ready(Some(Ok(Frame::data(rest.into())))),
                    Err(refused) => this.refuse(refused),
                }
            }
            Some(Err(error)) => {
                exchange.broken();
                this.guard = None;
                Poll::Ready(Some(Err(GuardError::Client(error.into()))))
            }
            Some(Ok(frame)) => match frame.into_data() {
                Err(trailers) => Poll::Ready(Some(Ok(trailers))),
                Ok(bytes) => match exchange.push(&bytes) {
                    Ok(std::borrow::Cow::Borrowed(_)) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                    Ok(std::borrow::Cow::Owned(kept)) => {
                        Poll::Ready(Some(Ok(Frame::data(kept.into()))))
                    }
                    Err(refused) => this.refuse(refused),
                },
            },
        }
    }
}
