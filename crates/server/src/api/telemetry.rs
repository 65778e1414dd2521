//! Telemetry in: OTLP over HTTP. What spans and events tell of has run already, so it is charged and
//! judged, and what the guards decide holds for the next call at any door.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use deadstop_core::{
    Answer, Call, CallId, Digest, Failure, How, ModelCall, NanoUsd, Outcome, Status, TextFacts,
    Time, ToolCall, Usage,
};
use deadstop_otlp::{Batch, Format, Observed, Signal, What};
use deadstop_protocol::facts;
use deadstop_protocol::llm::answer::counted::Counted;
use deadstop_protocol::prices::PriceSource;
use deadstop_redact::excerpt::Excerpt;
use deadstop_warden::{Chain, Taken, Told, now};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tracing::Instrument;

use super::App;
use super::auth::Who;
use super::extract::names;
use super::govern::chain;
use super::problem::{Code, Problem};
use crate::door::decode::{self, Fault};

/// Bytes of a request, packed.
const LARGEST: usize = 8 << 20;

/// Bytes of a request, unpacked.
const UNPACKED: usize = 16 << 20;

/// Calls of one request; exporters send 512 at a time unless they are told otherwise.
const MOST_CALLS: usize = 20_000;

/// Calls of one request that are booked before others have their turn.
const BEFORE_OTHERS: usize = 32;

/// Requests that are read at once: each may need many times its size.
const AT_ONCE: usize = 8;

/// The longest name of an agent or a session.
const LONGEST_NAME: usize = 200;

/// Takes in spans.
#[utoipa::path(
    post, path = "/v1/traces", tag = "telemetry",
    request_body(content(("application/x-protobuf"), ("application/json")), description = "An OTLP `ExportTraceServiceRequest`"),
    responses((status = 200, description = "Taken in; the answer names what was not"))
)]
pub(crate) async fn traces(
    State(app): State<Arc<App>>,
    who: Who,
    request: Request,
) -> Result<Response, Problem> {
    take(&app, &who, request, Signal::Traces).await
}

/// Takes in log records: the events of Claude Code and Gemini CLI.
#[utoipa::path(
    post, path = "/v1/logs", tag = "telemetry",
    request_body(content(("application/x-protobuf"), ("application/json")), description = "An OTLP `ExportLogsServiceRequest`"),
    responses((status = 200, description = "Taken in; the answer names what was not"))
)]
pub(crate) async fn logs(
    State(app): State<Arc<App>>,
    who: Who,
    request: Request,
) -> Result<Response, Problem> {
    take(&app, &who, request, Signal::Logs).await
}

/// Accepts metrics, so that an exporter of all three signals works. They tell of no single call.
#[utoipa::path(
    post, path = "/v1/metrics", tag = "telemetry",
    request_body(content(("application/x-protobuf"), ("application/json")), description = "An OTLP `ExportMetricsServiceRequest`"),
    responses((status = 200, description = "Read, and not kept"))
)]
pub(crate) async fn metrics(
    State(app): State<Arc<App>>,
    who: Who,
    request: Request,
) -> Result<Response, Problem> {
    take(&app, &who, request, Signal::Metrics).await
}

/// Where requests are read and booked: apart from the threads that calls pass through, since one
/// request may take as long as a thousand calls.
pub(crate) struct Ingest {
    home: Handle,
    turns: Semaphore,
}

impl Ingest {
    /// On the runtime that this is called in.
    pub(crate) fn here() -> Ingest {
        Ingest { home: Handle::current(), turns: Semaphore::new(AT_ONCE) }
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Problem> {
        // It is never closed.
        let _turn = self.turns.acquire().await;
        self.home.spawn(work.in_current_span()).await.map_err(|error| {
            tracing::error!("telemetry could not be read: {error}");
            Problem::new(Code::Internal, "the server failed; its log says why")
        })
    }
}

async fn take(
    app: &Arc<App>,
    who: &Who,
    request: Request,
    signal: Signal,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let format = format(&parts.headers)?;
    let body = axum::body::to_bytes(body, LARGEST).await.map_err(|_| {
        let most = LARGEST >> 20;
        Problem::new(
            Code::TooLarge,
            format!("the body is larger than {most} MB: send smaller batches"),
        )
    })?;
    let (theirs, who) = (Arc::clone(app), who.clone());
    let work = async move {
        let batch = read(&parts.headers, &body, format, signal)?;
        // What follows waits for the database at times: the bytes need not.
        drop(body);
        let taking = Taking { app: &theirs, who: &who, chains: HashMap::new() };
        Ok::<_, Problem>(taking.all(batch).await)
    };
    let rejected = app.ingest.run(work).await??;
    let mut response = Response::new(Body::from(deadstop_otlp::answer(signal, format, &rejected)));
    let kind = match format {
        Format::Protobuf => "application/x-protobuf",
        Format::Json => "application/json",
    };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    *response.status_mut() = StatusCode::OK;
    Ok(response)
}

/// What a body tells of.
fn read(
    headers: &HeaderMap,
    body: &Bytes,
    format: Format,
    signal: Signal,
) -> Result<Batch, Problem> {
    let clear = decode::whole_up_to(headers, body, UNPACKED).map_err(|fault| match fault {
        Fault::TooLarge => {
            Problem::new(Code::TooLarge, "the body is too large when it is unpacked")
        }
        Fault::Broken => Problem::new(
            Code::BadRequest,
            "the body cannot be unpacked: send it plainly, or as gzip, deflate, br or zstd",
        ),
    })?;
    let clear = clear.as_deref().unwrap_or(body);
    let read = match signal {
        Signal::Traces => deadstop_otlp::traces(clear, format),
        Signal::Logs => deadstop_otlp::logs(clear, format),
        Signal::Metrics => deadstop_otlp::metrics(clear, format),
    };
    read.map_err(|error| match error.is_too_large() {
        true => Problem::new(Code::TooLarge, error.to_string()),
        false => Problem::new(Code::BadRequest, error.to_string()),
    })
}

fn format(headers: &HeaderMap) -> Result<Format, Problem> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    match kind.unwrap_or_default().split(';').next().unwrap_or_default().trim() {
        "application/x-protobuf" | "application/protobuf" => Ok(Format::Protobuf),
        "application/json" => Ok(Format::Json),
        other => Err(Problem::new(
            Code::WrongContentType,
            format!(
                "the content type is {other:?}: send OTLP as application/x-protobuf or application/json"
            ),
        )),
    }
}

/// One request's way in.
struct Taking<'a> {
    app: &'a Arc<App>,
    who: &'a Who,
    /// The sessions that it told of so far.
    chains: HashMap<(String, String), Chain>,
}

impl Taking<'_> {
    /// Books all calls, and says which could not be.
    async fn all(mut self, batch: Batch) -> Vec<String> {
        let Batch { calls, mut rejected, .. } = batch;
        for (at, call) in calls.into_iter().enumerate() {
            if at >= MOST_CALLS {
                rejected.push(format!("a request may tell of {MOST_CALLS} calls at most"));
            } else if let Err(problem) = self.one(call).await {
                rejected.push(problem.detail().to_owned());
            }
            if at % BEFORE_OTHERS == BEFORE_OTHERS - 1 {
                tokio::task::yield_now().await;
            }
        }
        rejected
    }

    async fn one(&mut self, observed: Observed) -> Result<(), Problem> {
        let chain = self.chain(&observed).await?;
        let told = told(&chain, observed);
        // Booked, known or booked later: in each case the emitter need not send it again.
        let _: Taken = self.app.warden.observe(&chain, told).await;
        Ok(())
    }

    async fn chain(&mut self, observed: &Observed) -> Result<Chain, Problem> {
        let short = |name: &Option<String>, default: &str| {
            let name = name.as_deref().unwrap_or(default);
            name[..name.floor_char_boundary(LONGEST_NAME)].to_owned()
        };
        let (mut agent, mut session) =
            (short(&observed.agent, "default"), short(&observed.session, "default"));
        // A private gateway has one agent and one session, whatever telemetry calls them.
        if let Some(only) = self.app.auth.only() {
            (agent, session) = (only.agent.clone(), only.session.clone());
        }
        names("agent", [&agent])?;
        names("session", [&session])?;
        let key = (agent, session);
        if let Some(known) = self.chains.get(&key) {
            return Ok(known.clone());
        }
        let found = chain(self.app, self.who, &key.0, &key.1, &[]).await?;
        self.chains.insert(key, found.clone());
        Ok(found)
    }
}

/// A call as the warden takes it.
fn told(chain: &Chain, observed: Observed) -> Told {
    let Observed { id, failed, began_ms, what, prompt, arguments, answer, cost, .. } = observed;
    let status = if failed.is_some() { Status::Error } else { Status::Ok };
    let (mut request, mut response) = (Excerpt::default(), Excerpt::default());
    let mut named = None;
    let (call, outcome) = match what {
        What::Tool { name, server, call_id } => {
            request = Excerpt::of_call(&format!("{name} {arguments}"));
            let result = answer.or(failed);
            response.push(result.as_deref().unwrap_or_default());
            let mut call = ToolCall { server, ..facts::tool_call(&name, &arguments) };
            // What was asked is not told: this call cannot be known to be the one before it again.
            if arguments.is_null() {
                call.signature = Digest::of(id.as_bytes());
                call.shape = call.signature;
            }
            let call = Call::Tool(call);
            let model_id = call_id.as_deref().and_then(CallId::of);
            let result = result.as_deref().map(facts::result);
            named = call_id;
            (call, Outcome { status, id: model_id, result, ..Outcome::default() })
        }
        What::Model { provider, model, usage } => {
            request.push(prompt.as_deref().unwrap_or_default());
            response.push(answer.as_deref().or(failed.as_deref()).unwrap_or_default());
            let billed = bill(chain, &model, &usage, cost);
            // A prompt holds all that was said before: it is not compared with the last one.
            let call = ModelCall {
                rates: chain.project.prices().price(&model).rates,
                model,
                server: provider,
                input: usage.input,
                ..ModelCall::default()
            };
            let text = answer.as_deref().filter(|text| !text.is_empty()).map(TextFacts::of);
            let outcome = Outcome {
                status,
                // The telemetry does not say whose fault it was: it is not the agent's.
                failure: failed.is_some().then(|| Failure::provider(How::Unsaid)),
                billed: Some(billed),
                usage,
                answer: Some(Answer { text, calls: None }),
                ..Outcome::default()
            };
            (Call::Model(call), outcome)
        }
    };
    let call = chain.project.redact_call(call);
    let began = Time(began_ms).min(now());
    let id = Digest::of(id.as_bytes());
    Told { id, call, outcome, call_id: named, began, request, response }
}

/// What a model call has cost: by our prices, as at every door. Where we know none, the emitter's own
/// figure is nearer to the truth than the fallback.
fn bill(chain: &Chain, model: &str, usage: &Usage, said: Option<NanoUsd>) -> NanoUsd {
    let bill = chain.project.prices().bill(None, model, usage, &Counted::default());
    match said {
        Some(said) if bill.source == PriceSource::Fallback => {
            tracing::debug!(
                "`{}` has no price: charged {said}, as the emitter of its telemetry reported; \
                 `deadstop prices` sets a price",
                bill.model
            );
            said
        }
        _ => bill.cost,
    }
}
