//! A web server that answers as it is told and remembers what it was asked.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// One answer.
#[derive(Clone)]
pub(crate) enum Reply {
    /// An ordinary one.
    Answer { status: u16, headers: Vec<(&'static str, String)>, body: Vec<u8> },
    /// The connection is closed instead.
    Close,
    /// Nothing happens.
    Hang,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self::Answer { status, headers: Vec::new(), body: b"so be it".to_vec() }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Self::Answer { headers, .. } = &mut self {
            headers.push((name, value.to_owned()));
        }
        self
    }

    pub(crate) fn body(mut self, text: Vec<u8>) -> Self {
        if let Self::Answer { body, .. } = &mut self {
            *body = text;
        }
        self
    }
}

/// What arrived.
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

pub(crate) struct HttpListener {
    port: u16,
    received: Arc<Mutex<Vec<Received>>>,
}

impl HttpListener {
    /// Answers one request after the other.
    pub(crate) async fn start(replies: Vec<Reply>) -> Self {
        Self::start_with(replies, None).await
    }

    /// The same with TLS.
    pub(crate) async fn start_with(replies: Vec<Reply>, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&received);
        tokio::spawn(async move {
            for reply in replies {
                let (stream, _) = listener.accept().await.unwrap();
                let service = service_fn(|request| answer(request, reply.clone(), &seen));
                let server = hyper::server::conn::http1::Builder::new();
                // The client may leave at any time.
                match &tls {
                    None => drop(server.serve_connection(TokioIo::new(stream), service).await),
                    Some(tls) => {
                        let Ok(stream) = tls.accept(stream).await else { continue };
                        drop(server.serve_connection(TokioIo::new(stream), service).await);
                    }
                }
            }
        });
        Self { port, received }
    }

    pub(crate) fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.port)
    }

    pub(crate) fn secure_url(&self, host: &str, path: &str) -> String {
        format!("https://{host}:{}{path}", self.port)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        std::mem::take(&mut self.received.lock().unwrap())
    }
}

async fn answer(
    request: Request<Incoming>,
    reply: Reply,
    seen: &Mutex<Vec<Received>>,
) -> Result<Response<Full<Bytes>>, Closed> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    seen.lock().unwrap().push(Received {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        headers: parts.headers,
        body,
    });
    match reply {
        Reply::Close => Err(Closed),
        Reply::Hang => {
            let never: Infallible = std::future::pending().await;
            match never {}
        }
        Reply::Answer { status, headers, body } => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            Ok(response.body(Full::new(Bytes::from(body))).unwrap())
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("closed on purpose")]
struct Closed;
