//! Govern: for SDKs, and for other clients that cannot go through the gateway.
//!
//! A session is opened; before a call it asks ([`preflight`] for a model, [`propose`] for the tools
//! that an answer asks for), while it runs it may tell how far it is ([`progress`]), afterwards it
//! tells how it went ([`receipt`]). Where a person is asked, it is told so at once, waits at
//! `/api/approvals/{id}`, and asks again under the same id. Everything carries the client's own id and may be said twice.
//! Once the session is dead, everything is refused.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use deadstop_core::{
    Call, Decision, GuardId, Harm, ModelCall, Outcome, TextFacts, TextHasher, Tokens, Trip, Verdict,
};
use deadstop_protocol::facts;
use deadstop_protocol::govern::{
    Decided, DecidedAll, Ended, Opening, Preflight, Proposal, Receipt, Refusal, Report, Spoken,
};
use deadstop_protocol::llm::answer::counted::Counted;
use deadstop_protocol::llm::refusal;
use deadstop_redact::excerpt::Excerpt;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::App;
use super::auth::{Standing, Via, Who};
use super::extract::{At, Body, InTrace, Name, Strict, names};
use super::live::Row;
use super::problem::{Code, Problem};
use deadstop_warden::{Approval, Booked, Chain, Proposed, Refused};

impl Strict for Opening {}
impl Strict for Preflight {}
impl Strict for Proposal {}
impl Strict for Report {}
impl Strict for Receipt {}

/// A session that is open.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Opened {
    /// The agent.
    agent: String,
    /// The session's name.
    session: String,
    /// The policy in force, for an engine of the client's own.
    policy: Value,
    /// The session as it is now.
    scope: Row,
}

/// Harms of one call that a hook may tell of, and bytes of a name in them.
const MOST_HARMS: usize = 32;
const LONGEST_NAME: usize = 800;

/// A harm with names that are not longer than ours would be.
fn bounded(mut harm: Harm) -> Harm {
    for name in [&mut harm.verb, &mut harm.target] {
        name.truncate(name.floor_char_boundary(LONGEST_NAME));
    }
    harm
}

/// Opens a session, or a nested scope in it. May be repeated: a person's words, a compaction or the
/// beginning and end of a sub-agent are told this way, too.
#[utoipa::path(
    post, path = "/api/sessions", tag = "govern", request_body = Opening,
    responses(
        (status = 200, description = "It is open", body = Opened),
        (status = 403, description = "It is dead: `session_killed…`; or its scope may not be opened: `max_agents`, `max_depth`", body = Refusal, content_type = "application/problem+json"),
        (status = 429, description = "Its scope may not be opened now: `max_parallel`, `spawns_per_minute`", body = Refusal, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn open(
    State(app): State<Arc<App>>,
    who: Who,
    Body(opening): Body<Opening>,
) -> Result<Response, Problem> {
    let session = opening.session.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    names("agent", [&opening.agent])?;
    names("session", [&session])?;
    // A private gateway has one agent and one session, whatever a client calls itself.
    let (agent, session) = match app.auth.only() {
        Some(only) => (only.agent.clone(), only.session.clone()),
        None => (opening.agent, session),
    };
    if who.via == Via::Local(Standing::Grace) && !app.auth.grace.admits(&app.warden, &agent).await {
        let detail = format!("this server has keys now: the agent `{agent}` needs one");
        return Err(Problem::new(Code::KeyRequired, detail));
    }
    let chain = chain(&app, &who, &agent, &session, &opening.scope).await?;
    if let Some(refusal) = dead(&chain) {
        return Ok(refusal.into_response());
    }
    app.warden.register(&chain).await;
    if let Some(said) = &opening.said {
        app.warden.hear_person(&chain, TextFacts::of(said)).await;
    }
    if opening.compacted {
        app.warden.compacted(&chain).await;
    }
    match (opening.scope.is_empty(), opening.done) {
        (true, true) => app.warden.finish(&chain).await,
        (true, false) => {}
        (false, true) => app.warden.end(&chain).await,
        (false, false) => {
            let Decision { verdict, trips, .. } = app.warden.begin(&chain).await;
            let reply = decided("", verdict, &trips, None);
            if reply.status != 200 {
                return Ok(reply.into_response());
            }
        }
    }
    let policy = deadstop_protocol::policy_file::to_json(&chain.policies());
    let scope = Row::of(chain.innermost());
    Ok(Json(Opened { agent, session, policy, scope }).into_response())
}

/// May this model call be made?
#[utoipa::path(
    post, path = "/api/sessions/{agent}/{session}/preflight", tag = "govern", request_body = Preflight,
    params(("agent" = String, Path, description = "The agent"), ("session" = String, Path, description = "The session")),
    responses(
        (status = 200, description = "It may", body = Decided),
        (status = 402, description = "A budget is used up", body = Refusal, content_type = "application/problem+json"),
        (status = 403, description = "It may not: `session_killed…` or the guard's reason", body = Refusal, content_type = "application/problem+json"),
        (status = 429, description = "Not now, and no strike; `Retry-After` and `detail` say when", body = Refusal, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn preflight(
    State(app): State<Arc<App>>,
    who: Who,
    At((Name(agent), Name(session))): At<(Name, Name)>,
    InTrace(trace): InTrace,
    Body(asked): Body<Preflight>,
) -> Result<Response, Problem> {
    let mut chain = chain(&app, &who, &agent, &session, &asked.scope).await?;
    chain.trace = trace;
    let mut request = Excerpt::default();
    request.push(asked.prompt.as_deref().unwrap_or_default());
    let hashed = asked.prompt.as_ref().map(|prompt| {
        let mut hasher = TextHasher::default();
        hasher.push(prompt);
        hasher.finish()
    });
    let call = Call::Model(ModelCall {
        rates: chain.project.prices().price(&asked.model).rates,
        model: asked.model,
        server: asked.provider,
        input: Tokens(asked.input_tokens),
        max_output: asked.max_output_tokens.map(Tokens),
        prompt: hashed,
        from_person: asked.from_person,
        compacted: asked.compacted,
        ..ModelCall::default()
    });
    let call = chain.project.redact_call(call);
    let reply = ask(&app, &chain, &asked.id, &call, &request).await?;
    settle_down(&app, &chain, &reply).await?;
    Ok(reply.into_response())
}

/// May these tool calls be made? Each is decided by itself, in order.
#[utoipa::path(
    post, path = "/api/sessions/{agent}/{session}/proposal", tag = "govern", request_body = Proposal,
    params(("agent" = String, Path, description = "The agent"), ("session" = String, Path, description = "The session")),
    responses(
        (status = 200, description = "What was decided about each", body = DecidedAll),
        (status = 403, description = "The session is dead: `session_killed…`", body = Refusal, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn propose(
    State(app): State<Arc<App>>,
    who: Who,
    At((Name(agent), Name(session))): At<(Name, Name)>,
    InTrace(trace): InTrace,
    Body(asked): Body<Proposal>,
) -> Result<Response, Problem> {
    let mut chain = chain(&app, &who, &agent, &session, &asked.scope).await?;
    chain.trace = trace;
    held(&chain, Duration::from_secs(asked.hold_s)).await;
    if let Some(refusal) = dead(&chain) {
        return Ok(refusal.into_response());
    }
    let mut decided = Vec::new();
    for proposed in asked.calls {
        let request = Excerpt::of_call(&format!("{} {}", proposed.tool, proposed.arguments));
        let mut facts = facts::tool_call(&proposed.tool, &proposed.arguments);
        if let Some(mut harms) = proposed.harms {
            // The worst are kept, wherever they stand.
            harms.sort_by_key(|harm| std::cmp::Reverse(harm.severity()));
            facts.harms = harms.into_iter().take(MOST_HARMS).map(bounded).collect();
        }
        facts.server = proposed.server;
        facts.spawns = proposed.spawns;
        if let Some(server) = facts.server.clone() {
            app.warden.pins.judge(&who.project, &server, &mut facts);
        }
        let call = chain.project.redact_call(Call::Tool(facts));
        let reply = ask(&app, &chain, &proposed.id, &call, &request).await?;
        // Another node stopped it, and this node learns of it only now.
        if decided.is_empty()
            && reply.body["decision"]["trips"][0]["guard"] == GuardId::Killed.name()
            && let Some(refusal) = dead(&chain)
        {
            return Ok(refusal.into_response());
        }
        decided.push(reply);
    }
    for reply in &decided {
        settle_down(&app, &chain, reply).await?;
    }
    let calls: Vec<Value> = decided.into_iter().map(Reply::into_decision).collect();
    Ok(Json(json!({ "calls": calls })).into_response())
}

/// May this call go on?
#[utoipa::path(
    post, path = "/api/sessions/{agent}/{session}/progress", tag = "govern", request_body = Report,
    params(("agent" = String, Path, description = "The agent"), ("session" = String, Path, description = "The session")),
    responses(
        (status = 200, description = "It may", body = Decided),
        (status = 402, description = "A budget is used up", body = Refusal, content_type = "application/problem+json"),
        (status = 403, description = "It may not", body = Refusal, content_type = "application/problem+json"),
        (status = 429, description = "Not now, and no strike; `Retry-After` and `detail` say when", body = Refusal, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn progress(
    State(app): State<Arc<App>>,
    who: Who,
    At((Name(agent), Name(session))): At<(Name, Name)>,
    InTrace(trace): InTrace,
    Body(report): Body<Report>,
) -> Result<Response, Problem> {
    let mut chain = chain(&app, &who, &agent, &session, &report.scope).await?;
    chain.trace = trace;
    let mut reply = progress_now(&app, &chain, &report).await?;
    if report.wait_ms > 0 && reply.status == 200 {
        stopped(&app, &chain, &report).await;
        reply = progress_now(&app, &chain, &Report { text: String::new(), ..report }).await?;
    }
    settle_down(&app, &chain, &reply).await?;
    Ok(reply.into_response())
}

/// This call has ended. What it cost is on disk when this is answered.
#[utoipa::path(
    post, path = "/api/sessions/{agent}/{session}/receipt", tag = "govern", request_body = Receipt,
    params(("agent" = String, Path, description = "The agent"), ("session" = String, Path, description = "The session")),
    responses(
        (status = 200, description = "It is booked", body = Decided),
        (status = 402, description = "It is booked, and a budget is used up", body = Refusal, content_type = "application/problem+json"),
        (status = 403, description = "It is booked, and the session is dead", body = Refusal, content_type = "application/problem+json"),
        (status = 429, description = "Not now, and no strike; `Retry-After` and `detail` say when", body = Refusal, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn receipt(
    State(app): State<Arc<App>>,
    who: Who,
    At((Name(agent), Name(session))): At<(Name, Name)>,
    InTrace(trace): InTrace,
    Body(receipt): Body<Receipt>,
) -> Result<Response, Problem> {
    let mut chain = chain(&app, &who, &agent, &session, &receipt.scope).await?;
    chain.trace = trace;
    let reply = book(&app, &chain, &receipt).await?;
    if !receipt.wait && reply.status == 200 {
        return Ok(reply.into_response());
    }
    app.warden.flush().await.map_err(|error| {
        let text = format!("it is booked here, but could not be written yet: {error}");
        Problem::new(Code::NotDurable, text)
    })?;
    Ok(reply.into_response())
}

async fn progress_now(app: &App, chain: &Chain, report: &Report) -> Result<Reply, Problem> {
    let output = Tokens(report.output_tokens);
    let found = app.warden.report(chain, &report.id, output, &report.text).await;
    let (decision, incident) = found.ok_or_else(no_call)?;
    let reply = decided(&report.id, decision.verdict, &decision.trips, incident);
    // A stop that this node knows counts, also while it cannot ask others.
    Ok(if reply.status == 200 { dead(chain).unwrap_or(reply) } else { reply })
}

async fn book(app: &App, chain: &Chain, receipt: &Receipt) -> Result<Reply, Problem> {
    let ended = receipt.clone();
    let text = receipt.text.as_deref().unwrap_or_default();
    let whole = matches!(receipt.status, Ended::Ok | Ended::Error);
    let prices = chain.project.prices();
    let outcome = move |call: &Call| {
        let outcome = ended.outcome(call);
        let billed = call
            .model()
            .map(|model| prices.bill(None, &model.model, &outcome.usage, &Counted::default()).cost);
        Outcome { billed, ..outcome }
    };
    let reply = |decision: &Decision| decided(&receipt.id, decision.verdict, &decision.trips, None);
    match app.warden.receipt(chain, &receipt.id, outcome, text, whole).await {
        // A killed session's receipt is booked, and the answer says that it was killed.
        Booked::Now(decision) => Ok(dead(chain).unwrap_or_else(|| reply(&decision))),
        Booked::Before(decision) => Ok(reply(&decision)),
        Booked::Later => Err(Problem::new(
            Code::NotDurable,
            "the cluster is unreachable; the receipt is booked when it is back",
        )),
        Booked::Unknown => Err(no_call()),
    }
}

/// Waits while a chain is paused, for as long as the caller will.
async fn held(chain: &Chain, wait: Duration) {
    let until = Instant::now() + wait;
    loop {
        // Registered before looking, so that a change in between is not missed.
        let changed: Vec<_> = chain.scopes().iter().map(|scope| scope.changed()).collect();
        if !chain.scopes().iter().any(|scope| scope.state().paused().is_some()) {
            return;
        }
        let word = futures_util::future::select_all(changed.into_iter().map(Box::pin));
        if tokio::time::timeout_at(until, word).await.is_err() {
            return;
        }
    }
}

/// How often a watched call is checked: it may have ended.
const LOOK: Duration = Duration::from_millis(500);

/// Waits until a call is stopped or ends, or this server stops, for as long as the caller will.
async fn stopped(app: &App, chain: &Chain, report: &Report) {
    let until = Instant::now() + Duration::from_millis(report.wait_ms);
    let mut stops = chain.stops();
    while Instant::now() < until && app.warden.may_run(chain, &report.id) {
        tokio::select! {
            () = stops.given() => return,
            () = app.warden.events.over.cancelled() => return,
            () = tokio::time::sleep_until(until.min(Instant::now() + LOOK)) => {}
        }
    }
}

/// Asks the engine, unless it was asked before.
async fn ask(
    app: &App,
    chain: &Chain,
    id: &str,
    call: &Call,
    request: &Excerpt,
) -> Result<Reply, Problem> {
    if let Some(why) = app.warden.closed(chain) {
        return Err(Problem::new(Code::StoreFailed, why));
    }
    match app.warden.propose(chain, id, call, request).await {
        Proposed::Allowed { trips, span } => {
            let verdict = trips.first().map_or(Verdict::Allow, |trip| trip.verdict);
            let mut reply = decided(id, verdict, &trips, None);
            if let Some(span) = span {
                reply.body["traceparent"] = span.header().into();
            }
            Ok(reply)
        }
        Proposed::Waits(approval) => Ok(waits(id, &approval)),
        Proposed::Refused(Refused { unreachable: Some(why), .. }) => {
            let text = format!("the cluster is unreachable ({why}), and the policy says to refuse");
            Err(Problem::new(Code::StoreFailed, text))
        }
        Proposed::Refused(Refused { trips, incident, .. }) => {
            let verdict = trips.first().map_or(Verdict::Block, |trip| trip.verdict);
            Ok(decided(id, verdict, &trips, incident))
        }
    }
}

/// The chain of a session that the caller may use.
pub(super) async fn chain(
    app: &App,
    who: &Who,
    agent: &str,
    session: &str,
    nested: &[String],
) -> Result<Chain, Problem> {
    who.may_see(agent)?;
    names("scope", nested)?;
    let project = app.project(who).await?;
    app.warden.chain(project, agent, session, nested).await.map_err(|error| {
        tracing::error!("{error}");
        Problem::new(Code::StoreFailed, "the database failed; see the log")
    })
}

/// The refusal for every request of a killed session.
fn dead(chain: &Chain) -> Option<Reply> {
    let stopped = chain.stopped()?;
    let mut body = problem(403, stopped.refusal(), &stopped.sentence(), &Value::Null);
    body["ended"] = stopped.kind.name().into();
    Some(Reply { status: 403, body, retry_after: None })
}

/// Waits until a kill or an incident is on disk, before the client is answered.
async fn settle_down(app: &App, chain: &Chain, reply: &Reply) -> Result<(), Problem> {
    if reply.status != 200 {
        app.warden.settle_kills(chain).await;
        app.warden.settle_incident().await;
    }
    Ok(())
}

fn no_call() -> Problem {
    Problem::not_found("call that runs")
}

/// The answer for a call that waits for a person.
fn waits(id: &str, approval: &Approval) -> Reply {
    let mut reply = decided(id, Verdict::Ask, &approval.trips, None);
    reply.body["code"] = "approval_required".into();
    reply.body["decision"]["approval"] = approval.id.as_str().into();
    reply
}

/// The answer to a question.
fn decided(id: &str, verdict: Verdict, trips: &[Trip], incident: Option<String>) -> Reply {
    let allowed = verdict <= Verdict::Steer;
    let decision = Decided {
        id: id.to_owned(),
        allowed,
        verdict,
        trips: trips.iter().map(Spoken::from).collect(),
        incident,
        approval: None,
        traceparent: None,
    };
    let decision = serde_json::to_value(decision).unwrap_or_default();
    let Some(trip) = trips.first().filter(|_| !allowed) else {
        return Reply { status: 200, body: decision, retry_after: None };
    };
    let status = trip.refusal_kind().status();
    // If the scope was killed before, the code says what killed it.
    let code = match trip.verdict {
        Verdict::Kill if trip.guard != GuardId::Killed => trip.guard.refusal(),
        _ => &trip.reason,
    };
    let body = problem(status, code, &trip.explain(), &decision);
    Reply { status, body, retry_after: refusal::retry_after(trip) }
}

/// A call that may not be made, as a problem+json.
fn problem(status: u16, code: &str, detail: &str, decision: &Value) -> Value {
    let title = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    json!({
        "type": "about:blank",
        "title": title,
        "status": status,
        "code": code,
        "detail": detail,
        "errors": [],
        "decision": decision,
    })
}

/// The answer to a client that governs its own calls.
struct Reply {
    status: u16,
    body: Value,
    /// Seconds after which a call that does not pass now is worth another attempt.
    retry_after: Option<u64>,
}

impl Reply {
    /// What was decided, without the error around it.
    fn into_decision(mut self) -> Value {
        if self.status == 200 { self.body } else { self.body["decision"].take() }
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::FORBIDDEN);
        let kind = if self.status == 200 { "application/json" } else { "application/problem+json" };
        let after = self.retry_after.map(|seconds| [(header::RETRY_AFTER, seconds.to_string())]);
        (status, [(header::CONTENT_TYPE, kind)], after, self.body.to_string()).into_response()
    }
}
