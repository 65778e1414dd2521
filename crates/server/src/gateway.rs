//! The LLM gateway: one call's way through, as a list of steps.
//!
//! ```text
//! route ▸ read the body ▸ who is calling ▸ chain of scopes ▸ results of earlier tool calls
//!       ▸ admit ▸ send on ▸ the answer, judged as it passes ▸ settle
//! ```
//!
//! Bytes pass untouched; what the guards need is read from a copy. The client's own key passes
//! through and is neither kept nor logged.

mod admission;
mod answer;
mod flow;
mod inbound;
mod route;
mod send;
mod watch;

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use deadstop_core::{GuardId, Status, Trip, Verdict};
use deadstop_protocol::llm::Dialect;
use deadstop_protocol::llm::client::Client;
use deadstop_protocol::llm::conversation::Attempt;
use deadstop_protocol::llm::identity::{Identity, Source};
use deadstop_protocol::llm::refusal::{self, Refusal};
use deadstop_protocol::llm::request::{self, Brings};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::auth::{Auth, KEY_HEADER};
use crate::config::{Config, OnKill};
use crate::door::decode::{Fault, REQUEST_UNREADABLE};
use crate::door::{
    Caller, Lines, OURS, Sending, ascii, brought, identify, keep_headers, larger, plain, read_body,
    strip_hop_by_hop, too_large, trace, unavailable, warned,
};
use crate::net::slow::Timed;
use crate::page;
use admission::{Admission, Passed};
use deadstop_store::StoreError;
use deadstop_warden::{Asking, Resolved, Thread, Warden};
use flow::{Cut, Flow, Why, refuses_unread};
use inbound::{Inbound, NotRead};
use route::Route;

type Request = http::Request<Incoming>;

/// The gateway.
pub(crate) struct Gateway {
    config: Config,
    warden: Arc<Warden>,
    auth: Arc<Auth>,
    places: Arc<Semaphore>,
}

impl Gateway {
    pub(crate) fn new(config: Config, warden: Arc<Warden>, auth: Arc<Auth>) -> Gateway {
        let places = Arc::new(Semaphore::new(config.max_in_flight));
        Gateway { places, config, warden, auth }
    }

    /// Answers one request.
    pub(crate) async fn handle(&self, request: Request, lines: &Lines) -> Response<Body> {
        let Some(route) = Route::find(&self.config, request.method(), request.uri()) else {
            return page::lost(&request).unwrap_or_else(|| not_found(&self.config));
        };
        if request::climbs(&route.path) {
            let text = "the path contains `..`, which could leave the provider's base URL; \
                        send the path that you mean";
            return plain(StatusCode::BAD_REQUEST, text);
        }
        if wants_websocket(request.headers()) {
            return websocket_refused();
        }
        if request::leaves(request.method().as_str(), &route.path) {
            return leaving();
        }
        if is_astray(request.headers(), &route) {
            return astray();
        }
        // Shed before anything is read: memory is bounded by the calls in flight.
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            self.warden.metrics.shed();
            return plain(StatusCode::SERVICE_UNAVAILABLE, "too many calls in flight; try again");
        };
        match self.call(request, &route, lines, place).await {
            Ok(response) | Err(response) => response,
        }
    }

    async fn call(
        &self,
        request: Request,
        route: &Route<'_>,
        lines: &Lines,
        place: OwnedSemaphorePermit,
    ) -> Result<Response<Body>, Response<Body>> {
        let (parts, body) = request.into_parts();
        let caller = self.caller(&parts.headers, route).await?;
        let (body, upload) = if is_large_upload(&parts, route, self.config.max_body) {
            (Bytes::new(), Some(Timed::new(body, self.config.body_timeout)))
        } else {
            (read_body(body, self.config.max_body, self.config.body_timeout).await?, None)
        };
        let inbound = Inbound::new(&parts, body, route).map_err(not_read)?;
        let opened = inbound.open();
        let who = self.who(&caller, &parts.headers, route, opened.as_ref()).await?;
        let own = parts.headers.get(KEY_HEADER).and_then(|key| key.to_str().ok());
        let credential = self.warden.credential(own.into_iter().chain(brought(&parts.headers)));
        let attempt = attempt(&parts.headers);
        let recognised = opened.as_ref().filter(|_| who.source.is_recognised());
        let turns = recognised.map(request::Open::turns).unwrap_or_default();
        let agent = who.agent.as_deref().unwrap_or(&self.config.default_agent);
        let project = caller.project.as_str();
        let asking = Asking { project, agent, who: &who, credential, turns, attempt };
        let Resolved { mut chain, thread, single } =
            self.warden.resolve(asking).await.map_err(|error| store_failed(&error))?;
        chain.trace = trace(&parts.headers);
        if let Some(why) = self.warden.closed(&chain) {
            return Err(unavailable(why));
        }
        if upload.is_some() && refuses_unread(&chain) {
            return Err(larger());
        }

        let asked = inbound.with_usage(opened.as_ref());
        let (read, scopes) = (&inbound, &chain);
        let admission =
            Admission { gateway: self, inbound: read, route, scopes, credential, attempt, single };
        let passed = match admission.ask(opened).await {
            Ok(passed) => passed,
            Err(refusal) => {
                // The client may send it again at once, to another node.
                if let Some(noted) = thread.and_then(Thread::failed) {
                    noted.await;
                }
                return Err(refusal);
            }
        };
        let Passed { admitted, call, exchange, warnings, noted } = passed;
        // It is large, and is handed on several times.
        let mut flow = Box::new(Flow::new(Arc::clone(&self.warden), chain, call, admitted, place));
        flow.thread = thread;
        flow.terms = route.provider.prices.clone();

        let hide_usage = asked.is_some();
        let mut parts = outbound(parts, hide_usage || exchange.results.is_some());
        if !exchange.dialect.is_other() || refuses_unread(&flow.chain) {
            // A call could be fetched in two parts of which neither is one.
            parts.headers.remove(header::RANGE);
        }
        flow.sends(&mut parts.headers);
        let body = match upload {
            Some(upload) => Sending::Passing(upload),
            None => Full::new(inbound.outbound(noted, asked)).into(),
        };
        let sent = tokio::select! {
            biased;
            () = flow.stopped() => return Err(Box::pin(self.stopped(&exchange, flow)).await),
            sent = send::send(lines, parts, body, route, self.config.upstream_timeout) => sent,
        };
        let response = answer::pass(self, sent, flow, &exchange, hide_usage).await;
        Ok(warned(response, &warnings))
    }

    /// The names under which a request runs: a path's before a header's, and a key's before both.
    async fn who(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        route: &Route<'_>,
        opened: Option<&request::Open<'_>>,
    ) -> Result<Identity, Response<Body>> {
        let hints = opened.map(|open| open.request().hints.clone()).unwrap_or_default();
        let mut who = identify(route.agent.as_deref(), headers, &hints);
        if let Some(session) = &route.session {
            who = Identity { session: Some(session.clone()), source: Source::Deadstop, ..who };
        }
        let otherwise = &self.config.default_agent;
        who.agent = caller.agent(who.agent, otherwise, (&self.auth, &self.warden)).await?;
        if let Some(only) = &self.config.default_session {
            // A private gateway has one agent and one session, whatever a client calls itself: under
            // another name it would start with fresh limits.
            let session = Some(only.clone());
            who = Identity { agent: None, session, source: Source::Deadstop, ..who };
        }
        Ok(who)
    }

    /// Who is calling: the project that a key belongs to, and the agent that it is bound to.
    async fn caller(
        &self,
        headers: &HeaderMap,
        route: &Route<'_>,
    ) -> Result<Caller, Response<Body>> {
        let holds = route.provider.key.is_some();
        if let Some(caller) = Caller::by_key(&self.auth, headers, holds).await? {
            return Ok(caller);
        }
        if let Some(key) = &route.provider.client_key {
            if brought(headers).any(|theirs| key.is(theirs)) {
                return Ok(Caller::in_default_project());
            }
            let text = "this server holds the provider's key; bring the Deadstop key in its place";
            return Err(plain(StatusCode::FORBIDDEN, text));
        }
        Caller::without_key(&self.auth, headers).await
    }

    /// The answer to a call that was stopped before anything came back.
    async fn stopped(&self, exchange: &Exchange, mut flow: Box<Flow>) -> Response<Body> {
        let why = flow.why_stopped();
        flow.settle(Status::Cancelled);
        flow.settle_kills().await;
        flow.booked().await;
        match why {
            Some(cut) => self.cut(exchange, &cut),
            None => plain(StatusCode::FORBIDDEN, "stopped"),
        }
    }

    /// A refusal in the caller's own protocol.
    fn refusal(&self, exchange: &Exchange, trip: &Trip, incident: Option<&str>) -> Response<Body> {
        answered(match self.config.on_kill {
            // A loop that is refused ends a turn more gently than a failed request does.
            OnKill::Message if trip.verdict == Verdict::Kill || trip.guard == GuardId::Loop => {
                refusal::message(exchange.dialect, exchange.stream, &exchange.model, trip)
            }
            _ => refusal::refuse(exchange.dialect, exchange.client, trip, incident),
        })
    }

    /// The refusal of a call that was cut off.
    fn cut(&self, exchange: &Exchange, cut: &Cut) -> Response<Body> {
        match &cut.why {
            Why::Trip(trip) => self.refusal(exchange, trip, cut.incident.as_deref()),
            Why::Unreachable(why) => answered(refusal::failed(exchange.dialect, 503, why)),
        }
    }
}

/// A refusal as a response.
fn answered(refusal: Refusal) -> Response<Body> {
    let mut response = Response::new(Body::from(refusal.body));
    *response.status_mut() = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::FORBIDDEN);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(refusal.content_type));
    for (name, value) in refusal.headers {
        if let Ok(value) = HeaderValue::from_str(&ascii(&value)) {
            headers.insert(name, value);
        }
    }
    response
}

/// What the answer's reader must know about the request.
struct Exchange {
    dialect: Dialect,
    client: Client,
    stream: bool,
    /// Whether only the content of the request says that it asks a model.
    guessed: bool,
    /// Whether it only fetches something.
    fetches: bool,
    /// Whether calls are looked for in an answer of no dialect.
    brings: Option<Brings>,
    /// The path of the provider's address, where the answer may name addresses of results.
    results: Option<String>,
    model: String,
}

/// A request's head as it goes to the upstream, whose answer may have to be changed.
fn outbound(mut parts: Parts, changes: bool) -> Parts {
    strip_hop_by_hop(&mut parts.headers);
    keep_headers(&mut parts.headers, |name| !OURS.contains(&name.as_str()));
    if changes && parts.headers.contains_key(header::ACCEPT_ENCODING) {
        // A compressed answer could not be changed: a usage chunk removed, an address written anew.
        let plainly = HeaderValue::from_static("identity");
        parts.headers.insert(header::ACCEPT_ENCODING, plainly);
    }
    parts
}

/// Whether a request sends files that are larger than any body that is read, to a path of no dialect. A form of
/// files asks no model, so it passes on as it arrives.
fn is_large_upload(parts: &Parts, route: &Route<'_>, most: usize) -> bool {
    let text = |name| parts.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let form = text(header::CONTENT_TYPE).is_some_and(|kind| {
        kind.trim_start().get(..10).is_some_and(|kind| kind.eq_ignore_ascii_case("multipart/"))
    });
    let length = text(header::CONTENT_LENGTH).and_then(|length| length.parse::<usize>().ok());
    let named = || request::dialect(route.provider.api, parts.method.as_str(), &route.path);
    form && length.is_some_and(|length| length > most)
        && named().is_other()
        && !parts.headers.contains_key(header::CONTENT_ENCODING)
}

/// Whether an SDK says that it has sent this request before.
fn attempt(headers: &HeaderMap) -> Attempt {
    let count = headers.get("x-stainless-retry-count").and_then(|count| count.to_str().ok());
    match count.and_then(|count| count.trim().parse::<u32>().ok()) {
        Some(1..) => Attempt::Again,
        _ => Attempt::First,
    }
}

fn store_failed(error: &StoreError) -> Response<Body> {
    tracing::error!("{error}");
    unavailable("deadstop cannot use its database")
}

/// Whether a ChatGPT login is about to be sent to OpenAI's API, which it does not belong to.
fn is_astray(headers: &HeaderMap, route: &Route<'_>) -> bool {
    let api = route.provider.base_url.host() == Some("api.openai.com");
    api && headers.contains_key("chatgpt-account-id") && route.provider.key.is_none()
}

fn astray() -> Response<Body> {
    let text = "this call brings a ChatGPT login, which belongs to ChatGPT and not to api.openai.com; \
                deadstop does not send it on. Log in with an API key (codex login --with-api-key), or \
                take the base URL out of Codex's configuration: its hooks hold all the same";
    plain(StatusCode::BAD_REQUEST, text)
}

/// Whether a client wants to go on as a WebSocket, where calls could not be judged.
fn wants_websocket(headers: &HeaderMap) -> bool {
    let named = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok());
    named.is_some_and(|name| name.eq_ignore_ascii_case("websocket"))
}

/// Clients that can also speak HTTP, such as Codex, fall back at once on this status. Others end up
/// in a retry after a minute if they are told anything else.
fn websocket_refused() -> Response<Body> {
    let text = "deadstop does not judge calls over WebSocket, so it refuses them; \
                use the same API over HTTP";
    let mut response = plain(StatusCode::UPGRADE_REQUIRED, text);
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The answer to a request that cannot be judged.
fn not_read(why: NotRead) -> Response<Body> {
    match why {
        NotRead::Crowded => plain(StatusCode::PAYLOAD_TOO_LARGE, CROWDED),
        NotRead::Packed(Fault::TooLarge) => too_large(),
        NotRead::Packed(Fault::Broken) => {
            plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, REQUEST_UNREADABLE)
        }
    }
}

/// Why a request with too many parts is not passed on.
const CROWDED: &str = "the request has more parts than Deadstop reads (about 100,000 messages, or 600,000 parts of \
                       their contents; 8 MiB in UTF-16 or UTF-32); send less";

/// The answer to a request that opens a session beside the gateway.
fn leaving() -> Response<Body> {
    let text = "deadstop does not judge calls of sessions over WebSocket, WebRTC or a phone line, so it does not \
                open them; use the same models over HTTP";
    plain(StatusCode::FORBIDDEN, text)
}

fn not_found(config: &Config) -> Response<Body> {
    let names: Vec<&str> = config.providers.keys().map(String::as_str).collect();
    let text = format!(
        "no provider of that name; paths start with one of /{} (also behind /agent/NAME)",
        names.join(", /")
    );
    plain(StatusCode::NOT_FOUND, &text)
}

/// Adds the header that announces that the scope's next call will be refused.
fn last_warned(mut response: Response<Body>, ended: Option<&str>) -> Response<Body> {
    if let Some(value) = ended.and_then(|why| HeaderValue::from_str(&ascii(why)).ok()) {
        response.headers_mut().append("x-deadstop-warning", value);
    }
    response
}
