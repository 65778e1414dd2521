//! Govern: for SDKs, and for anything else that cannot go through the gateway.
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
    Answer, Call, Decision, Digest, GuardId, Harm, ModelCall, Outcome, Status, TextFacts,
    TextHasher, Tokens, Trip, Usage, Verdict,
};
use deadstop_protocol::facts;
use deadstop_redact::excerpt::Excerpt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::App;
use super::auth::Who;
use super::extract::{At, Body, Name, Strict, names};
use super::live::Row;
use super::problem::{Code, Problem};
use deadstop_warden::{Approval, Booked, Chain, Proposed, Refused};

/// Opens a session.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Opening {
    /// The agent.
    #[schema(min_length = 1, max_length = 200)]
    agent: String,
    /// The session's name; one is made up if none is given.
    #[schema(min_length = 1, max_length = 200)]
    session: Option<String>,
    /// What a person has just said to it, where no model call tells that: new words let calls be
    /// made again that would have been repetition.
    #[schema(max_length = 1_000_000)]
    said: Option<String>,
}

impl Strict for Opening {}

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

/// A model call that is about to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Preflight {
    /// The client's id for this call.
    #[schema(min_length = 1, max_length = 200)]
    id: String,
    /// The model.
    #[schema(min_length = 1, max_length = 200)]
    model: String,
    /// The provider.
    #[schema(max_length = 200)]
    provider: Option<String>,
    /// Tokens of the prompt, as far as they are known.
    #[serde(default)]
    #[schema(maximum = 1_000_000_000_000_u64)]
    input_tokens: u64,
    /// The most tokens that the answer may have.
    #[schema(maximum = 1_000_000_000_000_u64)]
    max_output_tokens: Option<u64>,
    /// What is new in the prompt since the last call.
    prompt: Option<String>,
    /// Whether a person has said it.
    #[serde(default)]
    from_person: bool,
    /// The nested scopes in which it is made, the outermost first.
    #[serde(default)]
    #[schema(max_items = 16)]
    scope: Vec<String>,
}

impl Strict for Preflight {}

/// Tool calls that an answer asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Proposal {
    /// The calls, in order.
    #[schema(min_items = 1, max_items = 256)]
    calls: Vec<ProposedCall>,
    /// The nested scopes in which they are made, the outermost first.
    #[serde(default)]
    #[schema(max_items = 16)]
    scope: Vec<String>,
    /// How long they may be held while the session is paused, in seconds; 0 refuses them at once.
    #[serde(default)]
    #[schema(maximum = 600)]
    hold_s: u64,
}

impl Strict for Proposal {}

/// A tool call that an answer asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProposedCall {
    /// The client's id for this call.
    #[schema(min_length = 1, max_length = 200)]
    id: String,
    /// The tool.
    #[schema(min_length = 1, max_length = 200)]
    tool: String,
    /// The server that it runs on.
    #[schema(max_length = 200)]
    server: Option<String>,
    /// Its arguments: an object as a rule, but whatever the model made up is judged.
    #[serde(default)]
    arguments: Value,
    /// What harm it would do, from a hook that has looked at the machine. Not for other clients.
    #[serde(default)]
    #[schema(ignore)]
    harms: Option<Vec<Harm>>,
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

/// How far a call is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Report {
    /// The client's id for the call.
    #[schema(min_length = 1, max_length = 200)]
    id: String,
    /// Tokens of the answer so far.
    #[serde(default)]
    #[schema(maximum = 1_000_000_000_000_u64)]
    output_tokens: u64,
    /// What was said since the last report.
    #[serde(default)]
    text: String,
    /// The nested scopes in which it was made, the outermost first.
    #[serde(default)]
    #[schema(max_items = 16)]
    scope: Vec<String>,
    /// Answers when the call is to be stopped, or after so many milliseconds.
    #[serde(default)]
    #[schema(maximum = 60_000)]
    wait_ms: u64,
}

impl Strict for Report {}

/// How a call ended.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Receipt {
    /// The client's id for the call.
    #[schema(min_length = 1, max_length = 200)]
    id: String,
    /// How it ended.
    status: Ended,
    /// The tokens that it used, by the provider's figures.
    #[serde(default)]
    usage: Used,
    /// A model's answer, or a tool's result.
    text: Option<String>,
    /// The nested scopes in which it was made, the outermost first.
    #[serde(default)]
    #[schema(max_items = 16)]
    scope: Vec<String>,
    /// Whether to answer only when it is on disk. A session that is dead always is.
    #[serde(default = "yes")]
    #[schema(default = true)]
    wait: bool,
}

fn yes() -> bool {
    true
}

impl Strict for Receipt {}

/// How a call ended.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ended {
    /// It did what it should.
    Ok,
    /// It was answered with an error.
    Error,
    /// It was not answered.
    Fault,
    /// It was cut off.
    Cancelled,
}

impl Ended {
    fn status(self) -> Status {
        match self {
            Ended::Ok => Status::Ok,
            Ended::Error => Status::Error,
            Ended::Fault => Status::Fault,
            Ended::Cancelled => Status::Cancelled,
        }
    }
}

/// Tokens that a call used.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Used {
    /// Of the prompt, without those of the cache.
    #[schema(maximum = 1_000_000_000_000_u64)]
    input: u64,
    /// Of the answer.
    #[schema(maximum = 1_000_000_000_000_u64)]
    output: u64,
    /// Read from the provider's cache.
    #[schema(maximum = 1_000_000_000_000_u64)]
    cache_read: u64,
    /// Written to it.
    #[schema(maximum = 1_000_000_000_000_u64)]
    cache_write: u64,
}

/// What was decided.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Decided {
    /// The client's id for the call.
    id: String,
    /// Whether it may go ahead.
    allowed: bool,
    /// `allow`, `warn`, `ask`, `block` or `kill`. After `ask`, wait at `/api/approvals/{approval}`
    /// and ask again with the same id.
    verdict: String,
    /// Every guard that has something to say, the strictest first.
    trips: Vec<Spoken>,
    /// The incident that it became, if it is a new one.
    #[schema(required)]
    incident: Option<String>,
    /// What waits for a person's word, if it does.
    #[schema(required)]
    approval: Option<String>,
}

/// What a guard says.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Spoken {
    /// The guard.
    guard: &'static str,
    /// Its code for why.
    reason: String,
    /// Why, in a sentence.
    explain: String,
    /// What was measured.
    #[schema(value_type = Object)]
    measured: Value,
    /// The limit.
    #[schema(value_type = Object)]
    limit: Value,
    /// What the model should be told, where the verdict is `steer` or stricter and a pattern guard
    /// decided: put it behind the tool's result.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

/// A refusal: an error whose code is a guard's, with what was decided.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its schema is used: it is made where trips become words")]
pub(crate) struct Refusal {
    /// Always `about:blank`: the code tells more.
    r#type: String,
    /// The status in words.
    title: String,
    /// The status.
    status: u16,
    /// `session_killed…`, a guard's code for why, or one of the API's own codes.
    code: String,
    /// What went wrong, in words, and what to do about it.
    detail: String,
    /// The fields that are wrong; none for a refusal.
    errors: Vec<deadstop_protocol::policy_views::FieldFault>,
    /// What was decided, if it was about a call.
    decision: Option<Decided>,
}

/// What was decided about each of several calls.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DecidedAll {
    /// One for each call, in order.
    calls: Vec<Decided>,
}

/// Opens a session.
#[utoipa::path(
    post, path = "/api/sessions", tag = "govern", request_body = Opening,
    responses(
        (status = 200, description = "It is open", body = Opened),
        (status = 403, description = "It is dead: `session_killed…`", body = Refusal, content_type = "application/problem+json"),
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
    let chain = chain(&app, &who, &opening.agent, &session, &[]).await?;
    if let Some(refusal) = dead(&chain) {
        return Ok(refusal.into_response());
    }
    app.warden.register(&chain).await;
    if let Some(said) = &opening.said {
        app.warden.hear_person(&chain, TextFacts::of(said)).await;
    }
    let policy = deadstop_protocol::policy_file::to_json(&chain.policies());
    let scope = Row::of(chain.innermost());
    let (agent, session) = (opening.agent, session);
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
    )
)]
pub(crate) async fn preflight(
    State(app): State<Arc<App>>,
    who: Who,
    At((Name(agent), Name(session))): At<(Name, Name)>,
    Body(asked): Body<Preflight>,
) -> Result<Response, Problem> {
    let chain = chain(&app, &who, &agent, &session, &asked.scope).await?;
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
    Body(asked): Body<Proposal>,
) -> Result<Response, Problem> {
    let chain = chain(&app, &who, &agent, &session, &asked.scope).await?;
    held(&chain, Duration::from_secs(asked.hold_s)).await;
    if let Some(refusal) = dead(&chain) {
        return Ok(refusal.into_response());
    }
    let mut decided = Vec::new();
    for proposed in asked.calls {
        let mut request = Excerpt::default();
        request.push(&format!("{} {}", proposed.tool, proposed.arguments));
        let mut facts = facts::tool_call(&proposed.tool, &proposed.arguments);
        if let Some(harms) = proposed.harms {
            facts.harms = harms.into_iter().take(MOST_HARMS).map(bounded).collect();
        }
        facts.server = proposed.server;
        if let Some(server) = facts.server.clone() {
            app.warden.pins.judge(&who.project, &server, &mut facts);
        }
        let call = chain.project.redact_call(Call::Tool(facts));
        let reply = ask(&app, &chain, &proposed.id, &call, &request).await?;
        // Another node stopped it, and this one hears of it only now.
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
    )
)]
pub(crate) async fn progress(
    State(app): State<Arc<App>>,
    who: Who,
    At((Name(agent), Name(session))): At<(Name, Name)>,
    Body(report): Body<Report>,
) -> Result<Response, Problem> {
    let chain = chain(&app, &who, &agent, &session, &report.scope).await?;
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
        (status = 403, description = "It is booked, and the session is dead", body = Refusal, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn receipt(
    State(app): State<Arc<App>>,
    who: Who,
    At((Name(agent), Name(session))): At<(Name, Name)>,
    Body(receipt): Body<Receipt>,
) -> Result<Response, Problem> {
    let chain = chain(&app, &who, &agent, &session, &receipt.scope).await?;
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
    let outcome = move |call: &Call| ended.outcome(call);
    let reply = |decision: &Decision| decided(&receipt.id, decision.verdict, &decision.trips, None);
    match app.warden.receipt(chain, &receipt.id, outcome, text, whole).await {
        // A dead session hears that it is dead, although its receipt is booked.
        Booked::Now(decision) => Ok(dead(chain).unwrap_or_else(|| reply(&decision))),
        Booked::Before(decision) => Ok(reply(&decision)),
        Booked::Later => Err(Problem::new(
            Code::NotDurable,
            "the cluster is unreachable; the receipt is booked when it is back",
        )),
        Booked::Unknown => Err(no_call()),
    }
}

impl Receipt {
    /// How the call has ended.
    fn outcome(&self, call: &Call) -> Outcome {
        let text = self.text.as_deref().unwrap_or_default();
        let Used { input, output, cache_read, cache_write } = self.usage;
        let model = call.model().is_some();
        Outcome {
            status: self.status.status(),
            usage: Usage {
                input: Tokens(input),
                output: Tokens(output),
                cache_read: Tokens(cache_read),
                cache_write: Tokens(cache_write),
            },
            result: (!model && self.text.is_some()).then(|| facts::result(text)),
            failure: None,
            billed: None,
            answer: model.then(|| {
                let mut hasher = TextHasher::default();
                hasher.push(text);
                Answer { text: (!text.is_empty()).then(|| hasher.finish()), calls: None::<Digest> }
            }),
        }
    }
}

/// Waits while a chain is paused, for as long as the caller will.
async fn held(chain: &Chain, wait: Duration) {
    let until = Instant::now() + wait;
    loop {
        // Registered before looking, so that a word said in between is not missed.
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

/// How often a call that is waited for is looked at: it may have ended.
const LOOK: Duration = Duration::from_millis(500);

/// Waits until a call is stopped or ends, or this server stops, for as long as the caller will.
async fn stopped(app: &App, chain: &Chain, report: &Report) {
    let until = Instant::now() + Duration::from_millis(report.wait_ms);
    let stops = chain.stops();
    let stops = stops.iter().map(|stop| Box::pin(stop.cancelled()));
    let mut stop = futures_util::future::select_all(stops);
    while Instant::now() < until && app.warden.may_run(chain, &report.id) {
        tokio::select! {
            _ = &mut stop => return,
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
        Proposed::Allowed(trips) => {
            let verdict = trips.first().map_or(Verdict::Allow, |trip| trip.verdict);
            Ok(decided(id, verdict, &trips, None))
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

/// The chain of a session that is the caller's to use.
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

/// What a dead session is told, whatever it asks.
fn dead(chain: &Chain) -> Option<Reply> {
    let code = chain.scopes().iter().find_map(|scope| {
        let state = scope.state();
        let kill = state.killed()?;
        let code = kill.guard.unwrap_or(GuardId::Killed).refusal();
        Some((
            code,
            format!("{} {} was ended: {}", scope.kind().name(), scope.name(), kill.because),
        ))
    });
    let (code, why) = code?;
    Some(Reply { status: 403, body: problem(403, code, &why, &Value::Null) })
}

/// A kill or an incident lasts before anybody is told.
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

/// What a call is told that waits for a person.
fn waits(id: &str, approval: &Approval) -> Reply {
    let mut reply = decided(id, Verdict::Ask, &approval.trips, None);
    reply.body["code"] = "approval_required".into();
    reply.body["decision"]["approval"] = approval.id.as_str().into();
    reply
}

/// The answer to a question.
fn decided(id: &str, verdict: Verdict, trips: &[Trip], incident: Option<String>) -> Reply {
    let json = |measure: &deadstop_core::Measure| serde_json::to_value(measure).unwrap_or_default();
    let said = |trip: &Trip| Spoken {
        guard: trip.guard.name(),
        reason: trip.reason.clone(),
        explain: trip.explain(),
        measured: json(&trip.measured),
        limit: json(&trip.limit),
        advice: trip.advice.clone(),
    };
    let allowed = verdict <= Verdict::Steer;
    let decision = Decided {
        id: id.to_owned(),
        allowed,
        verdict: verdict.to_string(),
        trips: trips.iter().map(said).collect(),
        incident,
        approval: None,
    };
    let decision = serde_json::to_value(decision).unwrap_or_default();
    let Some(trip) = trips.first().filter(|_| !allowed) else {
        return Reply { status: 200, body: decision };
    };
    let status = match trip.guard {
        GuardId::Budget | GuardId::Tokens | GuardId::Steps | GuardId::Time => 402,
        _ => 403,
    };
    // One that is dead already says what killed it.
    let code = match trip.verdict {
        Verdict::Kill if trip.guard != GuardId::Killed => trip.guard.refusal(),
        _ => &trip.reason,
    };
    Reply { status, body: problem(status, code, &trip.explain(), &decision) }
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
        (status, [(header::CONTENT_TYPE, kind)], self.body.to_string()).into_response()
    }
}
