//! The LLM gateway: one call's way through, as a list of steps.
//!
//! ```text
//! route ▸ read the body ▸ who is calling ▸ chain of scopes ▸ results of earlier tool calls
//!       ▸ admit ▸ send on ▸ the answer, judged as it passes ▸ settle
//! ```
//!
//! Bytes pass untouched; what the guards need is read from a copy. The client's own key passes
//! through and is neither kept nor logged.

mod answer;
mod flow;
mod route;
mod send;
mod who;

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use deadstop_core::{Call, Digest, GuardId, Outcome, Status, Trip, Verdict};
use deadstop_protocol::facts;
use deadstop_protocol::llm::identity::{Identity, Source};
use deadstop_protocol::llm::refusal::{self, Refusal};
use deadstop_protocol::llm::request::{self, Notes, Turns};
use deadstop_protocol::llm::{Dialect, Request as Facts, ToolResult};
use deadstop_redact::excerpt::Excerpt;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use hyper::body::Incoming;
use tokio::sync::Semaphore;

use crate::api::auth::Auth;
use crate::config::{Config, OnKill};
use crate::door::{
    Caller, Lines, OURS, ascii, brought, decode, identify, keep_headers, plain, read_body,
    strip_hop_by_hop, too_large, unavailable, warned,
};
use deadstop_store::StoreError;
use deadstop_warden::{Chain, Ended, Refused, ResultIn, Running, Terms, Turn, Warden};
use flow::{Admitted, Cut, Flow, Why};
use route::Route;
use who::{Asking, Callers, Placed, Thread};

type Request = http::Request<Incoming>;

/// The gateway.
pub(crate) struct Gateway {
    config: Config,
    warden: Arc<Warden>,
    auth: Arc<Auth>,
    places: Arc<Semaphore>,
    callers: Arc<Callers>,
}

/// A request, read with what is known of its conversation.
struct Read {
    facts: Facts,
    /// Whether it opens a conversation that may be anybody's.
    opening: bool,
    /// What it found of the conversation, and what it leaves for the next request.
    turn: Option<Turn>,
}

impl Read {
    fn unreadable(route: &Route<'_>) -> Read {
        let model = request::model_in_path(&route.path).unwrap_or_else(|| route.name.to_owned());
        Read { facts: Facts { model, ..Facts::default() }, opening: false, turn: None }
    }
}

fn read(
    warden: &Warden,
    chain: &Chain,
    opened: Option<request::Open<'_>>,
    anybody: bool,
) -> Option<Read> {
    let before = warden.heard(chain);
    let mut after = before.clone();
    let facts = opened?.read(&mut after.seen);
    let words = facts.prompt.map(|text| text.digest).filter(|_| anybody);
    let opening = words.is_some_and(|words| after.opens_with(words));
    Some(Read { facts, opening, turn: Some(Turn { before, after }) })
}

/// The body with what the model was told before and is told now; `None` if it was told nothing that
/// stands in this body.
fn noted<'a>(
    notes: &mut Notes,
    new: &[(String, String)],
    open: impl FnOnce() -> Option<request::Open<'a>>,
) -> Option<Vec<u8>> {
    for (id, advice) in new {
        notes.add(id, advice);
    }
    if notes.is_empty() { None } else { open()?.with_notes(notes) }
}

/// How a tool call has ended, by the result that came with a request.
fn outcome(result: &ToolResult) -> Outcome {
    Outcome {
        status: if result.is_error { Status::Error } else { Status::Ok },
        result: Some(facts::result(&result.text)),
        ..Outcome::default()
    }
}

impl Gateway {
    pub(crate) fn new(config: Config, warden: Arc<Warden>, auth: Arc<Auth>) -> Gateway {
        let places = Arc::new(Semaphore::new(config.max_in_flight));
        Gateway { places, config, warden, auth, callers: Callers::new() }
    }

    /// Answers one request.
    pub(crate) async fn handle(&self, request: Request, lines: &Lines) -> Response<Body> {
        let Some(route) = Route::find(&self.config, request.uri()) else {
            return not_found(&self.config);
        };
        if request::climbs(&route.path) {
            let text = "the path contains `..`, which could leave the provider's base URL; \
                        send the path that you mean";
            return plain(StatusCode::BAD_REQUEST, text);
        }
        if wants_websocket(request.headers()) {
            return websocket_refused();
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
        place: tokio::sync::OwnedSemaphorePermit,
    ) -> Result<Response<Body>, Response<Body>> {
        let (mut parts, body) = request.into_parts();
        let caller = self.caller(&parts.headers, route).await?;
        let body = read_body(body, self.config.max_body).await?;
        let api = route.provider.api;
        let method = parts.method.as_str();
        let named = request::dialect(api, method, &route.path);

        let readable = decode::whole(&parts.headers, &body).map_err(|_| too_large())?;
        let clear = readable.as_deref().unwrap_or(&body);
        let dialect = request::dialect_by_body(named, method, &route.path, clear);
        let opened = request::open(dialect, &route.path, clear).ok();
        let hints = opened.as_ref().map(|open| open.request().hints.clone()).unwrap_or_default();
        let mut who = identify(route.agent.as_deref(), &parts.headers, &hints);
        if let Some(session) = &route.session {
            who = Identity { session: Some(session.clone()), source: Source::Deadstop, ..who };
        }
        let otherwise = &self.config.default_agent;
        who.agent = caller.agent(who.agent, otherwise, (&self.auth, &self.warden)).await?;
        let credential = self.callers.credential(&self.warden, &parts.headers).await;
        let retry = is_retry(&parts.headers);
        let turns = opened.as_ref().map(request::Open::turns).unwrap_or_default();
        let asking = (credential, turns, retry);
        let (chain, thread, single) = self.chain(&caller.project, &who, asking).await?;
        if let Some(why) = self.warden.closed(&chain) {
            return Err(unavailable(why));
        }

        // Asking for the usage chunk changes the body. It is left as it is if it is compressed, or
        // if the path is unknown: what answers there may not know the option.
        let changeable = readable.is_none() && named == dialect;
        let asked = opened.as_ref().filter(|_| changeable).and_then(request::Open::with_usage);
        let hide_usage = asked.is_some();
        // In a cluster a conversation is known by its first words, which may be another person's:
        // many who say "hi" are no loop. A session does not compare single prompts with each other
        // either; the agent's kill switch does, where an operator has switched it on.
        let anybody = who.source == Source::Conversation
            && self.config.default_session.is_none()
            && (single || self.warden.is_clustered());
        let terms = route.provider.prices.clone();
        let mut opened = opened;
        let mut notes = Vec::new();
        let (admitted, call, exchange, warnings, noted) = loop {
            let Read { mut facts, opening, mut turn } = read(&self.warden, &chain, opened, anybody)
                .unwrap_or_else(|| Read::unreadable(route));
            let ended = self.results(&chain, &facts).await;
            let mut warnings = ended.trips;
            notes.extend(ended.notes);
            // What is packed cannot be written into.
            let writable = readable.is_none().then_some(&body);
            let noted = writable.zip(turn.as_mut()).and_then(|(body, turn)| {
                let open = || request::open(dialect, &route.path, body).ok();
                noted(&mut turn.after.notes, &notes, open)
            });
            let mut call = facts.call(route.name, &chain.project.prices(), terms.as_deref());
            (call.credential, call.retry, call.opening) = (Some(credential), retry, opening);
            let call = chain.project.redact_call(Call::Model(call));
            let exchange = Exchange { dialect, stream: facts.stream, model: facts.model.clone() };
            let request = std::mem::take(&mut facts.said);
            let terms = Terms::in_turn(turn);
            if let Some((running, more)) =
                self.admit(&chain, &call, &request, &exchange, terms).await?
            {
                warnings.extend(more);
                let admitted = Admitted { running, request };
                break (admitted, call, exchange, warnings, noted);
            }
            // The conversation went on meanwhile: what is new in this request must be read again.
            opened = request::open(dialect, &route.path, readable.as_deref().unwrap_or(&body)).ok();
        };
        let mut flow = Flow::new(Arc::clone(&self.warden), chain, call, admitted, place);
        flow.thread = thread;
        flow.terms = terms;

        strip_hop_by_hop(&mut parts.headers);
        keep_headers(&mut parts.headers, |name| !OURS.contains(&name.as_str()));
        let body = match noted {
            Some(noted) if hide_usage => request::with_usage(&noted).unwrap_or(noted).into(),
            Some(noted) => noted.into(),
            None => asked.map_or(body, Bytes::from),
        };
        if hide_usage && parts.headers.contains_key(header::ACCEPT_ENCODING) {
            // Nothing could be taken out of a packed answer.
            let plainly = HeaderValue::from_static("identity");
            parts.headers.insert(header::ACCEPT_ENCODING, plainly);
        }
        let sent = tokio::select! {
            biased;
            () = flow.stopped() => return Err(self.stopped(&exchange, flow).await),
            sent = send::send(lines, parts, body, route, self.config.upstream_timeout) => sent,
        };
        let response = answer::pass(self, sent, flow, &exchange, hide_usage).await;
        Ok(warned(response, &warnings))
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
                return Ok(Caller::anybody());
            }
            let text = "this server holds the provider's key; bring the Deadstop key in its place";
            return Err(plain(StatusCode::FORBIDDEN, text));
        }
        Caller::without_key(&self.auth, headers).await
    }

    /// The answer to a call that was stopped before anything came back.
    async fn stopped(&self, exchange: &Exchange, mut flow: Flow) -> Response<Body> {
        let why = flow.why_stopped();
        flow.settle(Status::Cancelled);
        flow.settle_kills().await;
        flow.booked().await;
        match why {
            Some(cut) => self.cut(exchange, &cut),
            None => plain(StatusCode::FORBIDDEN, "stopped"),
        }
    }

    /// The chain of scopes of a call, its place in an unnamed conversation, and whether it is one of
    /// many single prompts.
    async fn chain(
        &self,
        project: &str,
        who: &Identity,
        (credential, turns, retry): (Digest, Turns, bool),
    ) -> Result<(Chain, Option<Thread>, bool), Response<Body>> {
        // A private gateway has one agent and one session, whatever a client calls itself: under
        // another name it would start with fresh limits.
        let private = self.config.default_session.is_some();
        let agent = who.agent.as_deref().filter(|_| !private);
        let agent = agent.unwrap_or(&self.config.default_agent);
        let shared = self.warden.is_clustered();
        let placed = match (&self.config.default_session, who.source, &who.session) {
            (Some(only), ..) => Some(Placed::named(only.clone())),
            (None, Source::Conversation, Some(words)) if shared => {
                let words = format!("{words}-{:08x}", credential.0 >> 32);
                Some(Placed::named(self.warden.conversation(project, agent, &words).await))
            }
            // A response's id is another one each time: only the node that gave it knows its session.
            (None, Source::PreviousResponse, _) if shared => None,
            (None, ..) => {
                let now = self.warden.time();
                self.callers.place(Asking { project, agent, who, credential, turns, retry, now })
            }
        };
        let placed = placed.unwrap_or_else(|| Placed::named("default".to_owned()));
        let Placed { session, thread, single } = placed;
        let failed = |error: StoreError| {
            tracing::error!("{error}");
            unavailable("deadstop cannot use its database")
        };
        let project = self.warden.project(project).await.map_err(failed)?;
        // What was given as a name stays one. What serves as one may have been meant otherwise.
        let session = match who.source {
            Source::Deadstop => session,
            _ => project.redact_name(&session),
        };
        let chain = self.warden.chain(project, agent, &session, &who.nested).await;
        Ok((chain.map_err(failed)?, thread, single))
    }

    /// Tool results that came with this request: the calls they answer are over now. Gives what
    /// the guards have to say about them.
    async fn results(&self, chain: &Chain, facts: &Facts) -> Ended {
        let read = |result: &ToolResult| ResultIn {
            id: result.id.clone(),
            name: result.name.as_deref().map(|name| chain.project.redact_name(name)),
            outcome: outcome(result),
            text: result.text.clone(),
        };
        self.warden.results_in(chain, facts.results.iter().map(read).collect()).await
    }

    /// Asks the engine; a call in a scope that is held waits for a person's word.
    async fn admit(
        &self,
        chain: &Chain,
        call: &Call,
        request: &Excerpt,
        exchange: &Exchange,
        terms: Terms,
    ) -> Result<Option<(Running, Vec<Trip>)>, Response<Body>> {
        let hold = self.config.hold;
        let refused = match self.warden.admit_in_turn(chain, call, request, terms, hold).await {
            Ok(admitted) => return Ok(Some(admitted)),
            Err(refused) if refused.stale => return Ok(None),
            Err(refused) => refused,
        };
        let Refused { trips, incident, unreachable, .. } = refused;
        Err(match trips.first() {
            Some(trip) => self.refusal(exchange, trip, incident.as_deref()),
            None if unreachable.is_some() => unavailable(
                "Deadstop cannot reach the state that its nodes share, and the policy says to refuse.",
            ),
            None => plain(StatusCode::FORBIDDEN, "refused"),
        })
    }

    /// A refusal in the caller's own protocol.
    fn refusal(&self, exchange: &Exchange, trip: &Trip, incident: Option<&str>) -> Response<Body> {
        let refusal = match self.config.on_kill {
            // A loop that is refused ends a turn more gently than a failed request does.
            OnKill::Message if trip.verdict == Verdict::Kill || trip.guard == GuardId::Loop => {
                refusal::message(exchange.dialect, exchange.stream, &exchange.model, trip)
            }
            _ => refusal::refuse(exchange.dialect, trip, incident),
        };
        answered(refusal)
    }

    /// The same for a call that may not go on.
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

/// What the two ends of a call have agreed on.
struct Exchange {
    dialect: Dialect,
    stream: bool,
    model: String,
}

/// Whether an SDK says that it has sent this request before.
fn is_retry(headers: &HeaderMap) -> bool {
    let count = headers.get("x-stainless-retry-count").and_then(|count| count.to_str().ok());
    count.is_some_and(|count| count.trim().parse::<u32>().is_ok_and(|count| count > 0))
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

fn not_found(config: &Config) -> Response<Body> {
    let names: Vec<&str> = config.providers.keys().map(String::as_str).collect();
    let text = format!(
        "no provider of that name; paths start with one of /{} (also behind /agent/NAME)",
        names.join(", /")
    );
    plain(StatusCode::NOT_FOUND, &text)
}

/// The last answer of a scope says that it is the last one.
fn last_warned(mut response: Response<Body>, ended: Option<&str>) -> Response<Body> {
    if let Some(value) = ended.and_then(|why| HeaderValue::from_str(&ascii(why)).ok()) {
        response.headers_mut().append("x-deadstop-warning", value);
    }
    response
}
