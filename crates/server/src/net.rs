//! The port: accepts connections, keeps browsers of other origins out, and hands requests to the
//! API, the page or the gateway.

pub(crate) mod slow;
mod workers;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt;
use tracing::Instrument;
use tracing::field::Empty;

use crate::alerts::Courier;
use crate::anchor;
use crate::api;
use crate::api::auth::{Auth, Peer, Setup};
use crate::config::Config;
use crate::database::{self, Notice};
use crate::door::Lines;
use crate::export::Exporter;
use crate::gateway::Gateway;
use crate::mcp::Mcp;
use crate::operator::Operators;
use crate::page;
use crate::retention;
use deadstop_core::ScopeState;
use deadstop_store::{Store, StoreError};
use deadstop_warden::metrics::Metrics;
use deadstop_warden::{Chain, DEFAULT_PROJECT, Order, Warden, What, log};
use slow::{Paced, Timed};
use workers::{Worker, Workers};

/// How long streams may take to end once they are told to.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The port is taken, or not ours to take.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    /// The machine gives us no more threads.
    #[error("cannot start a thread: {0}")]
    Threads(std::io::Error),
    /// Reachable from other machines without a key: every client would be an admin.
    #[error("{0} is reachable from other machines, and there is no key yet")]
    Exposed(SocketAddr),
    /// Alerts could not be sent over TLS.
    #[error("cannot set up TLS for alerts: {0}")]
    Alerts(String),
    /// The data folder cannot be made.
    #[error("cannot make the folder {0}: {1}")]
    Folder(String, std::io::Error),
    /// Another server uses the data folder.
    #[error("another Deadstop server uses the folder {0}")]
    Taken(String),
    /// The state that nodes share cannot be used.
    #[error("cannot be a node of a fleet: {0}")]
    Shared(String),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The program has no server in it.
    #[error("this program cannot start a server")]
    Absent,
}

/// A server that is running; it stops when it is told to or dropped.
pub struct Server {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    done: tokio::task::JoinHandle<()>,
    warden: Arc<Warden>,
    exporter: Option<Exporter>,
    /// Its data folder, for as long as it runs.
    _folder: Option<std::fs::File>,
}

impl Server {
    /// Starts listening.
    ///
    /// A future is compiled in the crate that awaits it, with that crate's level. All that serves calls is part
    /// of this one, so a program awaits it in a crate that is built for speed. The others are boxed: they are
    /// compiled here, once.
    pub async fn start(config: Config) -> Result<Server, StartError> {
        let folder = config.data.as_deref().filter(|_| config.database.is_none());
        let folder = folder.map(database::lock).transpose()?;
        let store = database::open(config.data.as_deref(), config.database.as_ref()).await?;
        let (alerts, grace) = (config.ways.of_alerts(config.private_alerts), config.shutdown_grace);
        let (body_timeout, client_timeout) = (config.body_timeout, config.client_timeout);
        let metrics = Arc::new(Metrics::default());
        let redis = config.redis.as_ref().map(|url| deadstop_fleet::Redis::open(url.reveal()));
        let redis = redis.transpose().map_err(|error| StartError::Shared(error.to_string()))?;
        let warden =
            Warden::new(config.policies.clone(), store, redis, Arc::clone(&metrics)).await?;
        warden.join().await.map_err(StartError::Shared)?;
        let listen = config.listen;
        if !listen.ip().is_loopback() && !has_key(warden.store()).await? {
            return Err(StartError::Exposed(listen));
        }
        let listener = open(listen).map_err(|error| StartError::Listen(listen, error))?;
        let address = listener.local_addr().map_err(|error| StartError::Listen(listen, error))?;
        api::prepare(&warden, &config.policies).await?;
        let private = config.default_session.clone();
        let only = private.map(|session| Only { agent: config.default_agent.clone(), session });
        let operators = Operators::new(config.operator.clone());
        let anchor = config.anchor.clone();
        let notice = config.data.as_deref().filter(|_| config.database.is_none()).map(Notice::new);
        let auth = Arc::new(Auth::new(Setup {
            store: warden.store().cloned(),
            operators,
            only: only.clone(),
            grace: config.key_grace,
            notice,
        }));
        // Known from the first call on, also if the database is away by then.
        if let Err(problem) = auth.keyed().await {
            tracing::warn!("{}", problem.code().meaning());
        }
        warden.on_change(api::reload(&warden, &auth, &config.policies));
        let exporter = config
            .telemetry
            .as_ref()
            .map(|telemetry| Exporter::start(telemetry, &config.ways.usual, &warden));
        let gate_auth = Arc::clone(&auth);
        let door = Arc::new(Door {
            api: api::router(&warden, auth, metrics, &config),
            mcp: Mcp::new(&config, Arc::clone(&warden), Arc::clone(&gate_auth)),
            gateway: Gateway::new(config, Arc::clone(&warden), gate_auth),
            address,
            body_timeout,
            client_timeout,
            only,
        });
        let workers = Workers::start().map_err(StartError::Threads)?;
        if warden.store().is_some() {
            let courier = Courier::new(&warden, &alerts).map_err(StartError::Alerts)?;
            tokio::spawn(courier.run());
            tokio::spawn(retention::run(Arc::downgrade(&warden)));
            if let Some(anchor) = anchor {
                tokio::spawn(anchor::run(anchor, Arc::downgrade(&warden)));
            }
        }
        let (stop, stopping) = watch::channel(false);
        let last = (grace, Arc::clone(&warden));
        let done = tokio::spawn(accept(listener, door, workers, stopping, last));
        Ok(Server { address, stop, done, warden, exporter, _folder: folder })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether callers must bring a key.
    pub fn has_keys(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { has_key(self.warden.store()).await.unwrap_or(true) })
    }

    /// Lets calls in flight end, settles them, writes everything down, and sends the last telemetry.
    pub fn stop(self) -> BoxFuture<'static, ()> {
        Box::pin(self.stopped())
    }

    async fn stopped(self) {
        self.warden.events.over.cancel();
        let _ = self.stop.send(true);
        let _ = self.done.await;
        let written = async {
            if let Err(error) = self.warden.flush().await {
                tracing::error!("the last changes could not be written: {error}");
            }
        };
        let sent = async {
            if let Some(exporter) = self.exporter {
                exporter.finish().await;
            }
        };
        tokio::join!(written, sent);
        if let Some(store) = self.warden.store() {
            store.close().await;
        }
    }

    /// Ends a session of this server with a reason; true once it is in force and on disk.
    pub fn kill_session<'a>(
        &'a self,
        agent: &'a str,
        session: &'a str,
        reason: &'a str,
    ) -> BoxFuture<'a, bool> {
        Box::pin(self.killed(agent, session, reason))
    }

    async fn killed(&self, agent: &str, session: &str, reason: &str) -> bool {
        let Some(chain) = self.chain(agent, session).await else { return false };
        let scope = Arc::clone(chain.innermost());
        let reason = self.warden.redacted(DEFAULT_PROJECT, reason);
        let order = Order { who: "deadstop run", what: What::Kill, reason: &reason };
        let because = reason.clone();
        self.warden
            .order(&scope, order, move |state, now| state.kill("deadstop run", &because, now))
            .await
            .is_ok()
    }

    /// A session's current state.
    pub fn session<'a>(
        &'a self,
        agent: &'a str,
        session: &'a str,
    ) -> BoxFuture<'a, Option<ScopeState>> {
        Box::pin(async move {
            let chain = self.chain(agent, session).await?;
            let state = chain.innermost().state().clone();
            Some(state)
        })
    }

    async fn chain(&self, agent: &str, session: &str) -> Option<Chain> {
        let project = self.warden.project(DEFAULT_PROJECT).await.ok()?;
        self.warden.chain(project, agent, session, &[]).await.ok()
    }
}

/// How many connections may wait to be accepted. Tokio's own 128 are too few for agents that begin
/// at once: the system resets the connections above it. It caps this number (`somaxconn`).
const WAITING: u32 = 4096;

fn open(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // A restarted server has its port back at once.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING)
}

/// Whether the store has a key that is in force.
async fn has_key(store: Option<&Store>) -> Result<bool, StoreError> {
    match store {
        Some(store) => Ok(store.count_keys().await?.live > 0),
        None => Ok(false),
    }
}

/// Everything that a request may be for.
struct Door {
    api: axum::Router,
    gateway: Gateway,
    mcp: Mcp,
    address: SocketAddr,
    /// How long a request's body may take.
    body_timeout: Duration,
    /// How long a client may keep us waiting with an answer.
    client_timeout: Duration,
    /// The one run that a private gateway is for.
    only: Option<Only>,
}

/// The agent and the session of a private gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Only {
    pub(crate) agent: String,
    pub(crate) session: String,
}

impl Only {
    /// A path of the API with the run's own names in place of those that a client has chosen: under
    /// another name it would start with fresh limits.
    fn path(&self, path: &str) -> Option<String> {
        let mut parts = path.strip_prefix("/api/sessions/")?.splitn(3, '/');
        let (_agent, _session, rest) = (parts.next()?, parts.next()?, parts.next());
        let name = |name| utf8_percent_encode(name, NON_ALPHANUMERIC);
        let rest = rest.map(|rest| format!("/{rest}")).unwrap_or_default();
        Some(format!("/api/sessions/{}/{}{rest}", name(&self.agent), name(&self.session)))
    }
}

/// Replaces the path of a request, and leaves its query.
fn redirect(request: &mut Request<Incoming>, path: &str) {
    let uri = request.uri();
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    if let Ok(uri) = format!("{path}{query}").parse() {
        *request.uri_mut() = uri;
    }
}

async fn accept(
    listener: TcpListener,
    door: Arc<Door>,
    workers: Workers,
    mut stopping: watch::Receiver<bool>,
    (grace, warden): (Duration, Arc<Warden>),
) {
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = stopping.changed() => break,
        };
        let accepted = accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer)));
        let Ok((stream, peer)) = accepted else {
            // Out of descriptors, most likely: wait for some to come back.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let worker = workers.next();
        let served = serve(stream, peer, Arc::clone(&door), worker, graceful.watcher());
        connections.spawn_on(served, &worker.handle);
    }
    drop(listener);
    let over = graceful.shutdown();
    tokio::pin!(over);
    if tokio::time::timeout(grace, &mut over).await.is_err() {
        // Streams end with an error that their clients understand.
        warden.closing.give();
        let _ = tokio::time::timeout(LAST_WORDS, over).await;
    }
    // Cuts off the remaining clients; their calls settle with what they have used.
    connections.shutdown().await;
    // Before the workers end, which carry them.
    warden.last_riders().await;
}

/// Serves one connection to its end, on the thread that it was given to.
fn serve(
    stream: std::net::TcpStream,
    peer: SocketAddr,
    door: Arc<Door>,
    worker: &Worker,
    watcher: Watcher,
) -> impl Future<Output = ()> + Send + use<> {
    let lines = Arc::clone(&worker.lines);
    let mut http = hyper::server::conn::http1::Builder::new();
    // Chunks that arrived together go out in one write.
    http.preserve_header_case(true)
        .writev(false)
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(30));
    async move {
        let Ok(stream) = TcpStream::from_std(stream) else { return };
        let _ = stream.set_nodelay(true);
        let stream = Paced::new(stream, door.client_timeout);
        let service = service_fn(move |request: Request<Incoming>| {
            let (door, lines) = (Arc::clone(&door), Arc::clone(&lines));
            let span = tracing::info_span!(
                target: log::REQUEST, "request", door = named(request.uri().path()),
                project = Empty, agent = Empty, session = Empty
            );
            // A connection keeps room for this for as long as it lasts. In a box of its own it is freed
            // when the answer begins, and an open stream does without.
            let answered =
                Box::pin(
                    async move { Ok::<_, Infallible>(door.answer(request, peer, &lines).await) },
                );
            answered.instrument(span)
        });
        let connection = http.serve_connection(TokioIo::new(stream), service);
        // A broken connection is no error of the server; its calls settle when they are dropped.
        if let Err(error) = watcher.watch(connection).await {
            warn_of_grpc(&error);
        }
    }
}

/// Says in the log, once, that a client speaks HTTP/2. Exporters of OpenTelemetry speak gRPC unless they are
/// told otherwise, and their own logs often say nothing but that the server is unavailable.
fn warn_of_grpc(error: &hyper::Error) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if error.is_parse_version_h2() && !TOLD.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            "a client speaks HTTP/2, perhaps OTLP over gRPC, which this server does not: set \
             OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf in it"
        );
    }
}

impl Door {
    async fn answer(
        &self,
        mut request: Request<Incoming>,
        peer: SocketAddr,
        lines: &Arc<Lines>,
    ) -> Response<Body> {
        if let Err(why) = self.ours(request.headers()) {
            let mut response = Response::new(Body::from(why));
            *response.status_mut() = StatusCode::FORBIDDEN;
            return response;
        }
        if api::serves(request.uri().path()) {
            request.extensions_mut().insert(Peer(peer));
            let path = self.only.as_ref().and_then(|only| only.path(request.uri().path()));
            if let Some(path) = path {
                redirect(&mut request, &path);
            }
            let limit = self.body_timeout;
            let request = request.map(|body| Body::new(Timed::new(body, limit)));
            let answered = Box::pin(self.api.clone().oneshot(request)).await;
            return answered.unwrap_or_else(|never| match never {});
        }
        if page::serves(request.method(), request.uri().path()) {
            return page::answer(&request);
        }
        if let Some(route) = self.mcp.route(request.uri()) {
            return Box::pin(self.mcp.handle(request, route, lines)).await;
        }
        self.gateway.handle(request, lines).await
    }

    /// A page of another origin must not reach a server that trusts its machine, not even by a name
    /// that was made to resolve to it. A server that is reachable from elsewhere has keys, and may
    /// have any name; the pages that talk to it are still its own.
    fn ours(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        let text =
            |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("?"));
        let (host, origin) = (text(header::HOST), text(header::ORIGIN));
        let local = self.address.ip().is_loopback();
        if local && host.is_some_and(|host| !is_loopback(host)) {
            return Err("this server answers to 127.0.0.1 and localhost only");
        }
        let Some(origin) = origin else { return Ok(()) };
        let theirs = origin.split_once("://").map_or("", |(_, host)| host);
        let port = format!(":{}", self.address.port());
        // A page that came through a tunnel has the tunnel's port in both.
        let same = host.is_some_and(|host| host.eq_ignore_ascii_case(theirs));
        let own = match local {
            true => is_loopback(theirs) && (same || theirs.ends_with(&port)),
            false => same,
        };
        if own { Ok(()) } else { Err("this server does not answer pages of other origins") }
    }
}

/// The door that a path leads to, for the log. The path itself is the client's and may hold a secret.
fn named(path: &str) -> &'static str {
    let first = path.trim_start_matches('/').split('/').next();
    match first.unwrap_or_default() {
        "api" => "api",
        "mcp" => "mcp",
        "v1" => "telemetry",
        _ => "gateway",
    }
}

/// Whether a host, with or without its port, is this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_gateway_has_one_session() {
        let only = Only { agent: "my bot".into(), session: "run/1".into() };
        for (path, expected) in [
            ("/api/sessions/other/s/preflight", Some("/api/sessions/my%20bot/run%2F1/preflight")),
            ("/api/sessions/other/s", Some("/api/sessions/my%20bot/run%2F1")),
            (
                "/api/sessions/o/s/calls/7/state",
                Some("/api/sessions/my%20bot/run%2F1/calls/7/state"),
            ),
            ("/api/sessions", None),
            ("/api/agents/other", None),
        ] {
            assert_eq!(only.path(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn only_this_machine() {
        for (host, expected) in [
            ("127.0.0.1:4141", true),
            ("127.0.0.1", true),
            ("127.9.9.9:1", true),
            ("localhost:4141", true),
            ("LOCALHOST", true),
            ("[::1]:4141", true),
            ("evil.example:4141", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example", false),
            ("10.0.0.1", false),
            ("", false),
        ] {
            assert_eq!(is_loopback(host), expected, "{host}");
        }
    }
}
