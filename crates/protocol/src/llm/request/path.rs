//! What a path says about a call: its dialect and its model.
//!
//! Servers decode `%63hat`, `chat%2Fcompletions`, `//` and `/./` before they route, so a path is
//! judged in its decoded form. The bytes that are passed on stay as the client sent them.

use std::borrow::Cow;

use crate::llm::{Api, Dialect};
use crate::plain;

/// How often a path is decoded at most. Proxies in front of a provider may decode once more.
const ROUNDS: usize = 3;

/// The dialect of a call, by its path: as the SDKs use it, with or without `/v1` or `/v1beta`, and
/// behind any prefix. A provider that serves another one's dialect as well (vLLM Anthropic's,
/// Gemini OpenAI's) is understood, so that no path leads around the guards.
///
/// ```
/// use deadstop_protocol::llm::{Api, Dialect, request::dialect};
/// assert_eq!(dialect(Api::OpenAi, "POST", "/v1/chat/completions"), Dialect::OpenAiChat);
/// assert_eq!(dialect(Api::OpenAi, "POST", "/v1/%63hat%2Fcompletions"), Dialect::OpenAiChat);
/// assert_eq!(dialect(Api::OpenAi, "GET", "/v1/models"), Dialect::OpenAiOther);
/// ```
pub fn dialect(api: Api, method: &str, path: &str) -> Dialect {
    let path = decoded(path);
    let segments = segments(&path);
    let posted = sends(method);
    match segments.as_slice() {
        [.., "chat", "completions"] if posted => Dialect::OpenAiChat,
        [.., last] if posted && gemini_method(last).is_some() => Dialect::Gemini,
        ["messages"] | [.., "v1", "messages"] if posted => Dialect::Anthropic,
        [.., "messages"] if posted && api == Api::Anthropic => Dialect::Anthropic,
        [.., "responses"] if posted && api != Api::Anthropic => Dialect::OpenAiResponses,
        [.., "api", "chat" | "generate"] if posted && api == Api::OpenAi => Dialect::Ollama,
        [.., "embeddings"] if posted && api == Api::OpenAi => Dialect::OpenAiEmbeddings,
        _ => match api {
            Api::OpenAi => Dialect::OpenAiOther,
            Api::Anthropic => Dialect::AnthropicOther,
            Api::Gemini => Dialect::GeminiOther,
        },
    }
}

/// The dialect of a call whose path says nothing, by its body: a server may route paths in ways
/// that we do not know. What the path says stands.
///
/// ```
/// use deadstop_protocol::llm::{Dialect, request::dialect_by_body};
/// let body = br#"{"model":"m","messages":[]}"#;
/// let found = dialect_by_body(Dialect::OpenAiOther, "/v1/Chat;a/Completions", body);
/// assert_eq!(found, Dialect::OpenAiChat);
/// ```
pub fn dialect_by_body(by_path: Dialect, path: &str, body: &[u8]) -> Dialect {
    let api = match by_path {
        Dialect::OpenAiOther => Api::OpenAi,
        Dialect::AnthropicOther => Api::Anthropic,
        Dialect::GeminiOther => Api::Gemini,
        _ => return by_path,
    };
    if counts_only(path) || is_other(path) {
        return by_path;
    }
    let names = ["messages", "contents", "input", "prompt", "model"];
    // A server may read more than strict JSON.
    let found = plain::present(unmarked(body), names);
    let Some([messages, contents, input, prompt, model]) = found else {
        return by_path;
    };
    match api {
        _ if contents => Dialect::Gemini,
        Api::Anthropic if messages || (prompt && model) => Dialect::Anthropic,
        _ if messages || (prompt && model) => Dialect::OpenAiChat,
        _ if input && model => Dialect::OpenAiResponses,
        _ => by_path,
    }
}

/// The dialect of an answer that was generated earlier and is only fetched now: OpenAI's responses in the
/// background, and stored completions. `None` for every other path.
///
/// ```
/// use deadstop_protocol::llm::{Api, Dialect, request::fetched};
/// let found = fetched(Api::OpenAi, "/v1/responses/resp_1");
/// assert_eq!(found, Some(Dialect::OpenAiResponses));
/// assert_eq!(fetched(Api::OpenAi, "/v1/chat/deferred-completion/r_1"), Some(Dialect::OpenAiChat));
/// assert_eq!(fetched(Api::OpenAi, "/v1/models/gpt-5"), None);
/// ```
pub fn fetched(api: Api, path: &str) -> Option<Dialect> {
    let path = decoded(path);
    match segments(&path).as_slice() {
        _ if api != Api::OpenAi => None,
        // xAI's are asked for with `deferred`, and lie elsewhere.
        [.., "chat", "completions" | "deferred-completion", _] => Some(Dialect::OpenAiChat),
        [.., "responses", _] | [.., "responses", _, "cancel"] => Some(Dialect::OpenAiResponses),
        _ => None,
    }
}

/// Whether calls are looked for in an answer of no dialect, and in which form it comes then. What is sent is
/// answered by what came of it; of what is only fetched, a few paths bring results: those of batches, files, runs
/// of assistants, sessions of agents, and lists of stored answers.
///
/// ```
/// use deadstop_protocol::llm::request::{Brings, brings};
/// assert_eq!(brings("GET", "/v1/threads/t_1/runs/r_1"), Some(Brings::Document));
/// assert_eq!(brings("GET", "/v1/files/f_1/content"), Some(Brings::File));
/// assert_eq!(brings("POST", "/v1/conversations"), Some(Brings::Document));
/// assert_eq!(brings("GET", "/v1/models"), None);
/// ```
pub fn brings(method: &str, path: &str) -> Option<Brings> {
    let posted = sends(method);
    if posted && (counts_only(path) || is_other(path)) {
        return None;
    }
    let path = decoded(path);
    let segments = segments(&path);
    match segments.as_slice() {
        _ if posted => Some(Brings::Document),
        [.., "files", _, "content"] | [.., "batches", _, "results"] => Some(Brings::File),
        [.., last] if last.ends_with(":download") => Some(Brings::File),
        [.., "threads", _, "runs"]
        | [.., "runs" | "steps" | "batches" | "operations" | "interactions", _]
        | [.., "runs", _, "steps"]
        | [.., "batches"]
        | [.., "chat", "completions"]
        | [.., "conversations", _, "items"]
        | [.., "conversations", _, "items", _]
        | [.., "sessions", _, "events"]
        | [.., "sessions", _, "stream"]
        | [.., "sessions", _, "events", "stream"]
        | [.., "threads", _, "events" | "stream"] => Some(Brings::Document),
        _ => None,
    }
}

/// What an answer of no dialect is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Brings {
    /// A document or a stream.
    Document,
    /// A file of any kind.
    File,
}

/// Whether answers of a path name the address of their results: Anthropic's batches do, and clients go there.
pub fn names_results(api: Api, path: &str) -> bool {
    let path = decoded(path);
    let segments = segments(&path);
    api == Api::Anthropic && segments.contains(&"batches") && segments.last() != Some(&"results")
}

/// Whether a path opens a session that goes on without the gateway, over a WebSocket, WebRTC or a phone line:
/// sessions, calls and the keys for them.
///
/// ```
/// use deadstop_protocol::llm::request::leaves;
/// assert!(leaves("POST", "/v1/realtime/calls") && leaves("POST", "/v1/chatkit/sessions"));
/// assert!(!leaves("POST", "/v1/responses"));
/// ```
pub fn leaves(method: &str, path: &str) -> bool {
    let path = decoded(path);
    let opens = |segment: &&str| matches!(*segment, "realtime" | "live" | "auth_tokens");
    let segments = segments(&path);
    let first = segments.get(..segments.len().min(3)).unwrap_or_default();
    // ChatKit's sessions are keys for a page that talks with the provider itself.
    sends(method) && (first.iter().any(opens) || first.ends_with(&["chatkit", "sessions"]))
}

/// Whether a method sends a body that a server acts on. A server may go by a header that names another
/// method, so only those are left out that ask for something.
fn sends(method: &str) -> bool {
    let asks = ["GET", "HEAD", "OPTIONS", "DELETE", "TRACE"];
    !asks.iter().any(|ask| method.eq_ignore_ascii_case(ask))
}

/// A path under an upstream's base URL (its host and its path), whether or not the client's own base
/// URL had the API's version in it: OpenCode and the AI SDK want `/v1` there, Anthropic's SDK adds it
/// itself. A version is added to known endpoints only, and where the upstream is known to want it:
/// some that speak OpenAI's API have none in their paths.
///
/// ```
/// use deadstop_protocol::llm::{Api, request::versioned};
/// let anthropic = ("api.anthropic.com", "");
/// assert_eq!(versioned(Api::Anthropic, anthropic, "/messages"), "/v1/messages");
/// assert_eq!(versioned(Api::Anthropic, anthropic, "/v1/v1/messages"), "/v1/messages");
/// let router = ("openrouter.ai", "/api/v1");
/// assert_eq!(versioned(Api::OpenAi, router, "/v1/chat/completions"), "/chat/completions");
/// ```
pub fn versioned<'a>(api: Api, (host, base): (&str, &str), path: &'a str) -> Cow<'a, str> {
    let (version, wants_it, endpoints): (&str, bool, &[&str]) = match api {
        Api::OpenAi => ("v1", host == "api.openai.com", &OPENAI_ENDPOINTS),
        Api::Anthropic => ("v1", true, &["messages", "complete", "models", "files"]),
        Api::Gemini => {
            let googles = host == "generativelanguage.googleapis.com";
            ("v1beta", googles, &["models", "cachedContents", "files"])
        }
    };
    let base = base.trim_end_matches('/');
    let has_version = base.rsplit('/').next() == Some(version);
    let inner = path.strip_prefix('/').unwrap_or(path);
    let without = |path: &'a str| {
        let rest = path.strip_prefix(version)?;
        rest.starts_with('/').then_some(rest)
    };
    let first = inner.split('/').next().unwrap_or_default();
    match without(inner) {
        // The upstream has the version already, or the client has said it twice.
        Some(rest) if has_version || without(&rest[1..]).is_some() => Cow::Borrowed(rest),
        None if wants_it && base.is_empty() && endpoints.contains(&first) => {
            Cow::Owned(format!("/{version}/{inner}"))
        }
        Some(_) | None => Cow::Borrowed(path),
    }
}

/// The first part of the paths of OpenAI's API, behind its version.
const OPENAI_ENDPOINTS: [&str; 12] = [
    "assistants",
    "audio",
    "batches",
    "chat",
    "completions",
    "conversations",
    "embeddings",
    "files",
    "images",
    "models",
    "moderations",
    "responses",
];

/// Whether a path climbs with `..`, in any spelling, and so could leave what a base URL allows.
///
/// ```
/// use deadstop_protocol::llm::request::climbs;
/// assert!(climbs("/v1/%2e%2E/admin"));
/// assert!(!climbs("/v1/models/a..b"));
/// ```
pub fn climbs(path: &str) -> bool {
    let path = decoded(path);
    // Some servers cut parameters off a segment before they resolve it: `..;a=b`.
    let is_up = |segment: &&str| segment.split(';').next() == Some("..");
    segments(&path).iter().any(is_up)
}

/// The model that a path names: Gemini's `models/{model}:method`, Azure's `deployments/{name}`.
///
/// ```
/// use deadstop_protocol::llm::request::model_in_path;
/// let path = "/v1beta/models/gemini-2.5-flash:generateContent";
/// assert_eq!(model_in_path(path).as_deref(), Some("gemini-2.5-flash"));
/// ```
pub fn model_in_path(path: &str) -> Option<String> {
    let path = decoded(path);
    let segments = segments(&path);
    let at = segments
        .iter()
        .rposition(|segment| matches!(*segment, "models" | "tunedModels" | "deployments"))?;
    let named = segments.get(at + 1)?;
    let model = named.rsplit_once(':').map_or(*named, |(model, _)| model);
    (!model.is_empty()).then(|| model.to_owned())
}

/// A body without the byte order mark that some servers skip.
pub(super) fn unmarked(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)
}

/// Whether a path streams, if it is one of Gemini's.
pub(super) fn streams(path: &str) -> bool {
    let path = decoded(path);
    segments(&path).last().is_some_and(|last| gemini_method(last) == Some(Delivery::Stream))
}

/// Whether a path only counts tokens.
pub(super) fn counts_only(path: &str) -> bool {
    let path = decoded(path);
    segments(&path).last().is_some_and(|last| {
        matches!(*last, "count_tokens" | "input_tokens")
            || last.rsplit_once(':').is_some_and(|(_, method)| method == "countTokens")
    })
}

/// How a Gemini method answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivery {
    Whole,
    Stream,
}

fn gemini_method(segment: &str) -> Option<Delivery> {
    match segment.rsplit_once(':')?.1 {
        "generateContent" => Some(Delivery::Whole),
        "streamGenerateContent" => Some(Delivery::Stream),
        _ => None,
    }
}

/// Known paths whose bodies look like a model request and whose answers never hold a tool call.
fn is_other(path: &str) -> bool {
    let path = decoded(path);
    match segments(&path).as_slice() {
        [.., "audio" | "images", _] => true,
        // What is sent there is answered with the same.
        [.., "conversations", _, "items"] => true,
        [.., last] => {
            let others = ["moderations", "embeddings", "embed", "rerank", "tokenize", "threads"];
            others.contains(last)
        }
        [] => false,
    }
}

/// The path alone, decoded until nothing is left to decode.
fn decoded(path: &str) -> Cow<'_, str> {
    let end = memchr::memchr2(b'?', b'#', path.as_bytes()).unwrap_or(path.len());
    let mut path = Cow::Borrowed(&path[..end]);
    for _ in 0..ROUNDS {
        if !path.contains('%') {
            break;
        }
        path = Cow::Owned(once(&path));
    }
    path
}

/// Undoes one layer of percent-encoding; what is no escape stays.
fn once(path: &str) -> String {
    let bytes = path.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut clear = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                clear.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                clear.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&clear).into_owned()
}

/// The parts of a path. Every request's path is asked for them several times.
fn segments(path: &str) -> Vec<&str> {
    let mut segments = Vec::with_capacity(USUAL_SEGMENTS);
    let mut start = 0;
    for end in memchr::memchr2_iter(b'/', b'\\', path.as_bytes()).chain([path.len()]) {
        let segment = &path[start..end];
        if !matches!(segment, "" | ".") {
            segments.push(segment);
        }
        start = end + 1;
    }
    segments
}

/// Parts that most paths have at most.
const USUAL_SEGMENTS: usize = 8;
