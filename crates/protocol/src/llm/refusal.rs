//! Refusals in the provider's own shape, so that SDKs raise once and do not retry.
//!
//! | what stopped it | status |
//! |---|---|
//! | a limit that is used up: steps, tokens, budget, time | 402 |
//! | velocity and breaker, while they only hold back; a limit that calls in flight may leave room in | 429 with Retry-After |
//! | everything else: killed, paused, loops, destructive operations, access … | 403 |
//!
//! The official SDKs try again on 408, 409, 429 and 5xx, so none of these says that something has
//! ended; `x-should-retry: false` says it once more to those that listen.
//!
//! A request for a stream that is refused before it begins gets the same answer as any other: SDKs
//! look at the status first and read the error from a JSON body; an event stream under a 403 would
//! only hide it. Inside a stream that is running already, [`stream_error`] is the event to send:
//! after it the body ends, without a made-up finish.
//!
//! What programs may want to know stands under `error.deadstop`, inside the error, because OpenAI's
//! SDKs hand out only that part of the body.

mod message;

pub use message::message;

use deadstop_core::{Measure, Millis, RefusalKind, ScopeKind, Trip, Verdict, Wait};
use serde_json::{Value, json};

use super::Dialect;
use super::client::Client;
use crate::told;

/// An answer that is given in the provider's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The content type.
    pub content_type: &'static str,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

pub(crate) const JSON: &str = "application/json";

/// Refuses a call, whether a stream was asked for or not, with a status and words that this client does
/// not retry.
pub fn refuse(dialect: Dialect, client: Client, trip: &Trip, incident: Option<&str>) -> Refusal {
    let kind = Kind::of(trip);
    let mut headers = facts_as_headers(trip, incident);
    match kind {
        Kind::Throttled { seconds } => headers.push(("retry-after", seconds.to_string())),
        Kind::Stopped | Kind::UsedUp => headers.push(("x-should-retry", "false".to_owned())),
    }
    let mut error = error(dialect, kind, trip, incident);
    let is_final = !matches!(kind, Kind::Throttled { .. });
    if let Some(words) =
        client.final_words().filter(|_| is_final && family(dialect) == Family::OpenAi)
    {
        error["error"]["final"] = json!(words);
    }
    let (status, body) = (client.status(kind.status()), error.to_string().into_bytes());
    Refusal { status, content_type: JSON, headers, body }
}

/// The event that ends a stream which is already running.
///
/// OpenAI's SDKs raise on any event with an `error` in it, Anthropic's on the event `error`, Google's
/// on data that begins with `{"error":`, Ollama's on a line with an `error` in it. Some clients send
/// everything again but what failed with a code that they know.
pub fn stream_error(
    dialect: Dialect,
    client: Client,
    trip: &Trip,
    incident: Option<&str>,
) -> Vec<u8> {
    let kind = Kind::of(trip);
    let code = client.final_code().filter(|_| !matches!(kind, Kind::Throttled { .. }));
    let mut error = error(dialect, kind, trip, incident);
    let event = match (family(dialect), code) {
        (Family::Anthropic, _) => "event: error\n",
        (Family::OpenAi, Some(code)) if dialect == Dialect::OpenAiResponses => {
            // Codex reads the code of a response that failed, and no other event's.
            error["error"]["code"] = json!(code);
            error = json!({ "type": "response.failed", "sequence_number": 0, "response": {
                "id": "resp_deadstop", "object": "response", "status": "failed", "output": [],
                "error": error["error"],
            }});
            "event: response.failed\n"
        }
        (Family::OpenAi, None) if dialect == Dialect::OpenAiResponses => {
            // The API's own error event, with the error that SDKs look for beside it.
            error["type"] = json!("error");
            error["code"] = json!(trip.reason);
            error["message"] = error["error"]["message"].clone();
            error["param"] = Value::Null;
            error["sequence_number"] = json!(0);
            "event: error\n"
        }
        (Family::Ollama, _) => return format!("{error}\n").into_bytes(),
        (Family::OpenAi, Some(code)) => {
            error["error"]["code"] = json!(code);
            ""
        }
        (Family::Gemini, _) if client == Client::GenAiNode => {
            return format!("{error}\n\n").into_bytes();
        }
        (Family::OpenAi | Family::Gemini, _) => "",
    };
    format!("{event}data: {error}\n\n").into_bytes()
}

/// An error of ours that no guard is the reason of, in the provider's shape: the upstream failed, or
/// Deadstop itself cannot decide.
pub fn failed(dialect: Dialect, status: u16, problem: &str) -> Refusal {
    let headers = if status == 503 { vec![("retry-after", "5".to_owned())] } else { Vec::new() };
    let body = failure(dialect, status, problem).to_string().into_bytes();
    Refusal { status, content_type: JSON, headers, body }
}

/// The same inside a stream that is already running.
pub fn stream_failed(dialect: Dialect, status: u16, problem: &str) -> Vec<u8> {
    let failure = failure(dialect, status, problem);
    let event = match family(dialect) {
        Family::Anthropic => "event: error\n",
        Family::Ollama => return format!("{failure}\n").into_bytes(),
        Family::OpenAi | Family::Gemini => "",
    };
    format!("{event}data: {failure}\n\n").into_bytes()
}

fn failure(dialect: Dialect, status: u16, problem: &str) -> Value {
    match family(dialect) {
        Family::Anthropic => json!({
            "type": "error", "error": { "type": "api_error", "message": problem }
        }),
        Family::Gemini => json!({
            "error": { "code": status, "message": problem, "status": "UNAVAILABLE" }
        }),
        Family::OpenAi => json!({
            "error": { "message": problem, "type": "upstream_error", "param": null, "code": null }
        }),
        Family::Ollama => json!({ "error": problem }),
    }
}

/// A trip's status and its sentence, for doors that have no provider's shape.
pub(crate) fn in_words(trip: &Trip) -> (u16, String) {
    let kind = Kind::of(trip);
    (kind.status(), sentence(kind, trip))
}

/// What a refusal means to the client, with the seconds to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Not this, and not again.
    Stopped,
    /// A limit is used up.
    UsedUp,
    /// Not now.
    Throttled { seconds: u64 },
}

impl Kind {
    fn of(trip: &Trip) -> Kind {
        match trip.refusal_kind() {
            RefusalKind::Stopped => Kind::Stopped,
            RefusalKind::UsedUp => Kind::UsedUp,
            RefusalKind::Throttled => Kind::Throttled { seconds: wait(trip) },
        }
    }

    fn status(self) -> u16 {
        match self {
            Kind::Stopped => RefusalKind::Stopped.status(),
            Kind::UsedUp => RefusalKind::UsedUp.status(),
            Kind::Throttled { .. } => RefusalKind::Throttled.status(),
        }
    }
}

/// Whole seconds after which the refused call is worth another attempt; `None` if it is not.
pub fn retry_after(trip: &Trip) -> Option<u64> {
    match Kind::of(trip) {
        Kind::Throttled { seconds } => Some(seconds),
        Kind::Stopped | Kind::UsedUp => None,
    }
}

/// When calls in flight have probably left some room.
const SETTLE_SECONDS: u64 = 5;

/// Whole seconds until it is worth trying again: what is left of a cool-down, or the part of the
/// minute in which as much was spent as is too much.
fn wait(trip: &Trip) -> u64 {
    let minute = |measured: u64, limit: u64| {
        let over = u128::from(measured.saturating_sub(limit)) * 60;
        let seconds = over.div_ceil(u128::from(measured.max(1)));
        u64::try_from(seconds).unwrap_or(60).clamp(5, 60)
    };
    match trip.waits {
        Some(Wait::Settle) => return SETTLE_SECONDS,
        Some(Wait::For(left)) => return left.whole_seconds().0 / 1000,
        None => {}
    }
    match (trip.measured, trip.limit) {
        (Measure::Time(passed), Measure::Time(cooldown)) => {
            cooldown.0.saturating_sub(passed.0).div_ceil(1000).max(1)
        }
        (Measure::Money(measured), Measure::Money(limit)) => minute(measured.0, limit.0),
        (Measure::Tokens(measured), Measure::Tokens(limit)) => minute(measured.0, limit.0),
        _ => 5,
    }
}

fn error(dialect: Dialect, kind: Kind, trip: &Trip, incident: Option<&str>) -> Value {
    let message = sentence(kind, trip);
    let facts = facts(trip, incident);
    match family(dialect) {
        Family::OpenAi => {
            let kind = match kind {
                Kind::Stopped => "permission_error",
                Kind::UsedUp => "insufficient_quota",
                Kind::Throttled { .. } => "rate_limit_error",
            };
            json!({ "error": {
                "message": message, "type": kind, "param": null, "code": trip.reason,
                "deadstop": facts,
            }})
        }
        Family::Anthropic => {
            let kind = match kind {
                Kind::Stopped => "permission_error",
                Kind::UsedUp => "billing_error",
                Kind::Throttled { .. } => "rate_limit_error",
            };
            json!({ "type": "error", "error": {
                "type": kind, "message": message, "deadstop": facts,
            }})
        }
        Family::Gemini => {
            let status = match kind {
                Kind::Stopped => "PERMISSION_DENIED",
                Kind::UsedUp => "FAILED_PRECONDITION",
                Kind::Throttled { .. } => "RESOURCE_EXHAUSTED",
            };
            let info = json!({
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": trip.reason, "domain": "deadstop",
                "metadata": { "guard": trip.guard.name(), "incident": incident.unwrap_or_default() },
            });
            json!({ "error": {
                "code": kind.status(), "message": message, "status": status, "details": [info],
                "deadstop": facts,
            }})
        }
        Family::Ollama => json!({ "error": message, "deadstop": facts }),
    }
}

/// The sentence that people, and models that read their errors, get to see.
fn sentence(kind: Kind, trip: &Trip) -> String {
    let explain = match (trip.verdict, trip.context.kind) {
        (Verdict::Kill, ScopeKind::Nested) => format!("stopped this scope: {}", trip.because),
        _ => trip.explain(),
    };
    match kind {
        Kind::Stopped | Kind::UsedUp => told::refusal(&explain),
        Kind::Throttled { seconds } => {
            let wait = Millis::from_secs(seconds);
            format!("{} Retry in {wait}.", told::sentence(&explain))
        }
    }
}

/// The same for programs.
fn facts(trip: &Trip, incident: Option<&str>) -> Value {
    json!({
        "guard": trip.guard.name(),
        "reason": trip.reason,
        "verdict": trip.verdict,
        "incident": incident,
        "measured": trip.measured,
        "limit": trip.limit,
        "scope": { "kind": trip.context.kind.name(), "name": trip.context.who },
    })
}

fn facts_as_headers(trip: &Trip, incident: Option<&str>) -> Vec<(&'static str, String)> {
    let mut headers = vec![("x-deadstop-guard", trip.guard.name().to_owned())];
    let all = [
        ("x-deadstop-verdict", Some(trip.verdict.to_string())),
        ("x-deadstop-reason", Some(trip.reason.clone())),
        ("x-deadstop-incident", incident.map(str::to_owned)),
    ];
    for (name, value) in all {
        let fits = |value: &String| value.bytes().all(|b| matches!(b, b' '..=b'~'));
        headers.extend(value.filter(fits).map(|value| (name, value)));
    }
    headers
}

/// Whose errors a dialect has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    OpenAi,
    Anthropic,
    Gemini,
    /// A text, and lines in place of events.
    Ollama,
}

fn family(dialect: Dialect) -> Family {
    match dialect {
        Dialect::OpenAiChat
        | Dialect::OpenAiResponses
        | Dialect::OpenAiEmbeddings
        | Dialect::OpenAiOther => Family::OpenAi,
        Dialect::Anthropic | Dialect::AnthropicOther => Family::Anthropic,
        Dialect::Gemini | Dialect::GeminiOther => Family::Gemini,
        Dialect::Ollama => Family::Ollama,
    }
}

#[cfg(test)]
mod tests;
