//! The MCP gateway over HTTP: `/mcp/{server}`, as one list of steps.
//!
//! ```text
//! route ▸ who is calling ▸ read the messages ▸ admit each tool call ▸ send on
//!       ▸ the answer, read as it passes ▸ settle
//! ```
//!
//! Streamable HTTP in both of its eras: with `initialize` and `Mcp-Session-Id`, and without. Bytes
//! pass untouched, but for listings that hold tools which the policy does not allow, and for the span that
//! a call's `_meta` names where calls are exported.

mod answer;
mod flight;
mod follow;
mod named;
mod oauth;
mod pass;
mod reading;
mod span;
mod waiting;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use deadstop_core::{Call, Trip, Verdict};
use deadstop_protocol::llm::BodyHints;
use deadstop_protocol::llm::identity::{self, Identity, Source};
use deadstop_protocol::mcp::{self, Message, Why};
use deadstop_redact::excerpt::Excerpt;
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode, Uri, header};
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::api::auth::Auth;
use crate::config::{Config, McpServer};
use crate::door::{
    Caller, Lines, Prefix, decode, identify, plain, read_body, too_large, trace, unavailable,
    warned,
};
use deadstop_warden::{Admit, Chain, Refused, Running, Terms, Warden};
use flight::Flight;
use oauth::{Noted, SignIn, Step};
use pass::{Onward, Upstream};
use reading::Reading;
use span::Spans;
use waiting::Waiting;

/// The header that names an MCP session.
const MCP_SESSION: &str = "mcp-session-id";

/// The largest request of a sign-in.
const MOST_FORM: usize = 64 << 10;

/// The gateway.
pub(crate) struct Mcp {
    servers: BTreeMap<String, McpServer>,
    warden: Arc<Warden>,
    auth: Arc<Auth>,
    places: Arc<Semaphore>,
    max_body: usize,
    body_timeout: Duration,
    hold: Duration,
    default_agent: String,
    default_session: Option<String>,
    behind_proxy: bool,
    waiting: Arc<Waiting>,
    noted: Arc<Noted>,
}

/// A path that was understood.
pub(crate) struct Route {
    agent: Option<String>,
    session: Option<String>,
    server: String,
    /// What is asked of the server's sign-in, if that is what the path is about.
    sign_in: Option<Step>,
    /// The path of the server itself.
    path: String,
}

impl Mcp {
    pub(crate) fn new(config: &Config, warden: Arc<Warden>, auth: Arc<Auth>) -> Mcp {
        Mcp {
            servers: config.mcp.clone(),
            warden,
            auth,
            places: Arc::new(Semaphore::new(config.max_in_flight)),
            max_body: config.max_body,
            body_timeout: config.body_timeout,
            hold: config.hold,
            default_agent: config.default_agent.clone(),
            default_session: config.default_session.clone(),
            behind_proxy: config.behind_proxy,
            waiting: Arc::default(),
            noted: Arc::default(),
        }
    }

    /// Reads `/mcp/{server}`, or an address of that server's sign-in, with `/agent/{name}` and `/session/{id}` before it if need be.
    pub(crate) fn route(&self, uri: &Uri) -> Option<Route> {
        let (sign_in, path) = match Step::of(uri.path()) {
            Some((step, about)) => (Some(step), about),
            None => (None, uri.path()),
        };
        let Prefix { agent, session, rest } = Prefix::of(path)?;
        let server = rest.strip_prefix("mcp/")?;
        let server = server.strip_suffix('/').unwrap_or(server).to_owned();
        Some(Route { agent, session, server, sign_in, path: path.to_owned() })
    }

    /// Answers one request.
    pub(crate) async fn handle(
        &self,
        request: http::Request<Incoming>,
        route: Route,
        lines: &Arc<Lines>,
    ) -> Response<Body> {
        let Some(server) = self.servers.get(&route.server) else {
            return self.not_found();
        };
        // Shed before anything is read: memory is bounded by the calls in flight.
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            self.warden.metrics.shed();
            return plain(StatusCode::SERVICE_UNAVAILABLE, "too many calls in flight; try again");
        };
        let upstream = Upstream {
            name: route.server.clone(),
            server: server.clone(),
            lines: Arc::clone(lines),
            noted: Arc::clone(&self.noted),
        };
        match self.answer(request, &route, upstream, place).await {
            Ok(response) | Err(response) => response,
        }
    }

    async fn answer(
        &self,
        request: http::Request<Incoming>,
        route: &Route,
        upstream: Upstream,
        place: tokio::sync::OwnedSemaphorePermit,
    ) -> Result<Response<Body>, Response<Body>> {
        let (parts, body) = request.into_parts();
        let origin = oauth::origin(&parts.headers, self.behind_proxy);
        if let (Some(step), Some(origin)) = (route.sign_in, &origin) {
            // Without a key: what is public at the authorization server is public here.
            let body = read_body(body, MOST_FORM, self.body_timeout).await?;
            let Upstream { name, server, lines, noted } = &upstream;
            let sign_in = SignIn { name, server, lines, noted, origin };
            return Ok(sign_in.answer(step, &route.path, &parts, body).await);
        }
        let metadata = origin.map(|origin| format!("{origin}{}{}", oauth::RESOURCE, route.path));
        let caller = self.caller(&parts.headers, &upstream.server).await?;
        let body = read_body(body, self.max_body, self.body_timeout).await?;
        // What comes with another method is read as well: a server may not mind the method.
        if parts.method == Method::DELETE && named::is_ours(&parts.headers) {
            return Ok(plain(StatusCode::OK, "the session is over"));
        }
        if parts.method != Method::POST && body.is_empty() {
            let session = parts.headers.get(MCP_SESSION).cloned();
            let onward = Onward::new(&parts, body, upstream, metadata);
            let waiting = Arc::clone(&self.waiting);
            return Ok(follow::follow(onward, session, waiting, place).await);
        }
        let clear = match decode::whole(&parts.headers, &body) {
            Err(decode::Fault::TooLarge) => return Err(too_large()),
            // It is no message then, and refused as that.
            unpacked => unpacked.unwrap_or_default(),
        };
        let readable = clear.as_deref().unwrap_or(&body);
        let envelope = mcp::read(readable).map_err(|problem| {
            json(StatusCode::BAD_REQUEST, mcp::unreadable(&problem.to_string()))
        })?;
        let messages = envelope.messages();
        if let Some(message) = mismatched(&parts.headers, messages) {
            return Err(json(StatusCode::BAD_REQUEST, mcp::mismatch(message.id)));
        }
        let is_ours = |m: &Message<'_>| m.asks_for(mcp::CALL) || m.asks_for(mcp::LIST);
        let mut who = self.who(route, &parts);
        let nameless =
            self.default_session.is_none() && matches!(who.source, Source::Unnamed | Source::Trace);
        let opens = messages.iter().any(named::opens);
        let offered = nameless.then(named::made);
        if !messages.iter().any(|message| is_ours(message) || message.is_governed()) {
            let onward = Onward::new(&parts, body, upstream, metadata);
            let mut response = answer::pass(onward, None, place).await;
            if let Some(id) = offered.filter(|_| opens && response.status().is_success()) {
                named::offer(&mut response, &id);
            }
            return Ok(response);
        }

        who.agent =
            caller.agent(who.agent, &self.default_agent, (&self.auth, &self.warden)).await?;
        let mut chain = self.chain(&caller, &who).await?;
        chain.trace = trace(&parts.headers);
        if let Some(why) = self.warden.closed(&chain) {
            return Err(unavailable(why));
        }
        let (flights, warnings) = self.admit_all(&chain, &envelope, &upstream.name).await?;
        if !messages.iter().any(is_ours) {
            let onward = Onward::new(&parts, body, upstream, metadata);
            return Ok(answer::pass(onward, None, place).await);
        }
        let lists = messages.iter().filter(|m| m.asks_for(mcp::LIST));
        let lists = lists.filter_map(|message| Some((message.key()?, message.id?.to_owned())));
        let as_sent = clear.is_none().then_some(&body[..]);
        let spans = Spans::of(messages, &flights, as_sent);
        let reading = Reading {
            flights,
            bookings: Vec::new(),
            tasks: Vec::new(),
            lists: lists.collect(),
            warden: Arc::clone(&self.warden),
            chain,
            server: upstream.name.clone(),
            deadline: Instant::now() + upstream.server.timeout,
            waiting: Arc::clone(&self.waiting),
            session: parts.headers.get(MCP_SESSION).cloned(),
        };
        let scopes = reading.chain.clone();
        let mut onward = Onward::new(&parts, spans.body(&body), upstream, metadata);
        onward.in_span(spans);
        onward.plainly();
        let mut response = answer::pass(onward, Some(reading), place).await;
        // A client whose calls were stopped meanwhile stays where it was.
        let lives = response.status().is_success() && scopes.stopped().is_none();
        if let Some(id) = offered.filter(|_| lives) {
            named::offer(&mut response, &id);
        }
        Ok(warned(response, &warnings))
    }

    /// Admits every tool call of a request, and refuses other messages if the chain was killed. If
    /// one message of a batch is refused, nothing of it is sent on.
    async fn admit_all(
        &self,
        chain: &Chain,
        envelope: &mcp::Envelope<'_>,
        server: &str,
    ) -> Result<(Vec<Flight>, Vec<Trip>), Response<Body>> {
        let messages = envelope.messages();
        let (mut flights, mut warnings) = (Vec::new(), Vec::new());
        let mut whys: Vec<Option<Why>> = vec![None; messages.len()];
        let dead = chain.stopped().map(|stopped| {
            let text = format!("stopped: {}", stopped.sentence());
            Why::said(Verdict::Kill, "killed", stopped.reason(), &text)
        });
        for (message, why) in messages.iter().zip(&mut whys) {
            if !message.asks_for(mcp::CALL) {
                *why = dead.clone().filter(|_| message.is_governed());
                continue;
            }
            let Some(asked) = mcp::asked(message) else {
                return Err(json(
                    StatusCode::OK,
                    mcp::unreadable_call(message.id.unwrap_or("null")),
                ));
            };
            let mut facts = asked.facts(server);
            self.warden.pins.judge(&chain.project.name, server, &mut facts);
            let call = chain.project.redact_call(Call::Tool(facts));
            let request = Excerpt::of_call(&asked.text());
            let chain = self.in_trace(chain, message);
            match self.admit(&chain, &call, &request).await {
                Ok((running, trips)) => {
                    let steers = |trip: &&Trip| trip.verdict == Verdict::Steer;
                    let advice = trips.iter().filter(steers).find_map(|trip| trip.advice.clone());
                    warnings.extend(trips);
                    let warden = Arc::clone(&self.warden);
                    let id = message.id.map(str::to_owned);
                    let mut flight =
                        Flight::new(warden, chain, call, running, request.beginning(), id);
                    flight.advice = advice;
                    flights.push(flight);
                }
                Err(refused) => *why = Some(refused),
            }
        }
        if whys.iter().all(Option::is_none) {
            return Ok((flights, warnings));
        }
        let refusal = match envelope {
            mcp::Envelope::One(message) => message
                .id
                .zip(whys.into_iter().flatten().next())
                .map(|(id, why)| mcp::refuse(id, &why)),
            mcp::Envelope::Batch(messages) => mcp::refuse_all(messages, &whys),
        };
        Err(refusal.map_or_else(accepted, |refusal| json(StatusCode::OK, refusal)))
    }

    /// Asks the engine. A call in a paused scope waits for a person's decision.
    async fn admit(
        &self,
        chain: &Chain,
        call: &Call,
        request: &Excerpt,
    ) -> Result<(Running, Vec<Trip>), Why> {
        let admit = Admit { chain, call, request, terms: Terms::default(), hold: self.hold };
        self.warden.admit_in_turn(admit).await.map_err(
            |Refused { trips, incident, unreachable, .. }| match trips.first() {
                Some(trip) => Why::of(trip, incident.as_deref()),
                None if unreachable.is_some() => Why::failed(
                    "unavailable",
                    "deadstop cannot reach its shared state, and the policy says to refuse",
                ),
                None => Why::failed("refused", "refused. Do not retry."),
            },
        )
    }

    /// Who is calling: the project that a key belongs to, and the agent that it is bound to.
    async fn caller(
        &self,
        headers: &HeaderMap,
        server: &McpServer,
    ) -> Result<Caller, Response<Body>> {
        let holds = server.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"));
        match Caller::by_key(&self.auth, headers, holds).await? {
            Some(caller) => Ok(caller),
            None => Caller::without_key(&self.auth, headers).await,
        }
    }

    /// The chain of one message. By the conventions the message's own word about its trace comes before
    /// that of the connection that brings it; nothing but spans needs it.
    fn in_trace(&self, chain: &Chain, message: &Message<'_>) -> Chain {
        let mut chain = chain.clone();
        if let Some(own) = self.warden.exports().then(|| span::own(message)).flatten() {
            chain.trace = Some(Arc::new(own));
        }
        chain
    }

    fn who(&self, route: &Route, parts: &Parts) -> Identity {
        let mut who = identify(route.agent.as_deref(), &parts.headers, &BodyHints::default());
        if let Some(session) = &route.session {
            who = Identity { session: Some(session.clone()), source: Source::Deadstop, ..who };
        }
        // A trace may be as short as one request; the protocol's own session says more.
        if matches!(who.source, Source::Unnamed | Source::Trace)
            && let Some(session) = named::brought(&parts.headers).and_then(identity::name)
        {
            who.session = Some(session);
            who.source = Source::SessionHeader;
        }
        who
    }

    async fn chain(&self, caller: &Caller, who: &Identity) -> Result<Chain, Response<Body>> {
        let failed = |error: deadstop_store::StoreError| {
            tracing::error!("{error}");
            unavailable("deadstop cannot use its database")
        };
        // A private gateway has one agent and one session, whatever a client calls itself.
        let private = self.default_session.is_some();
        let agent = who.agent.as_deref().filter(|_| !private).unwrap_or(&self.default_agent);
        let session = self.default_session.clone().or_else(|| who.session.clone());
        let session = session.unwrap_or_else(|| "default".to_owned());
        let project = self.warden.project(&caller.project).await.map_err(failed)?;
        // A name in Deadstop's own header is kept. Another field that serves as a name may hold a
        // secret, so it is redacted.
        let session = match who.source {
            Source::Deadstop => session,
            _ => project.redact_name(&session),
        };
        self.warden.chain(project, agent, &session, &who.nested).await.map_err(failed)
    }

    fn not_found(&self) -> Response<Body> {
        let names: Vec<&str> = self.servers.keys().map(String::as_str).collect();
        let text = match names.is_empty() {
            true => {
                "no MCP server is configured; add [mcp.servers.NAME] to deadstop.toml".to_owned()
            }
            false => format!("no MCP server of that name; there is /mcp/{}", names.join(", /mcp/")),
        };
        plain(StatusCode::NOT_FOUND, &text)
    }
}

/// In newer MCP versions headers repeat the message's method and tool name, so that proxies can
/// route by them. Finds a message whose headers differ: its server might act on the header, and
/// Deadstop judges the body.
fn mismatched<'m, 'a>(headers: &HeaderMap, messages: &'m [Message<'a>]) -> Option<&'m Message<'a>> {
    // Of a header that comes twice, a server takes either.
    let all = |name: &str| headers.get_all(name).into_iter().map(|value| value.to_str().ok());
    messages.iter().find(|message| {
        let method = message.method.as_deref();
        let differs = method.is_some() && all("mcp-method").any(|said| said != method);
        let name = || mcp::asked(message).map(|asked| asked.name);
        // A name that a header cannot hold is encoded: the server compares that one itself.
        let mut named =
            all("mcp-name").filter(|said| said.is_none_or(|said| !said.starts_with("=?")));
        let misnamed = method == Some(mcp::CALL)
            && named.any(|said| said.is_none() || name().as_deref() != said);
        differs || misnamed
    })
}

/// A JSON-RPC answer of our own.
fn json(status: StatusCode, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The answer to messages that expect none (notifications).
fn accepted() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}
