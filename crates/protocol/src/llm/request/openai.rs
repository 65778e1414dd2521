//! OpenAI's requests: chat completions, responses, and the rest as far as it needs to be read.

use deadstop_core::Tokens;
use serde_json::value::RawValue;

use super::json::{self, count, is_true, object, owned, present};
use super::news::{News, Speaker, output};
use super::{BadRequest, Envelope};
use crate::llm::{BodyHints, Request, ToolResult};

/// `POST …/chat/completions`.
pub(super) fn chat(body: &str) -> Result<Envelope<'_>, BadRequest> {
    let names = [
        "model",
        "stream",
        "stream_options",
        "max_completion_tokens",
        "max_tokens",
        "n",
        "prompt_cache_key",
        "safety_identifier",
        "user",
        "session_id",
        "conversation_id",
        "metadata",
    ];
    let found = object(body, names, "messages")?;
    let [model, stream, options, max, old_max, n, cache_key, safety, user, rest @ ..] =
        found.fields;
    let wants_usage = options.map(|options| json::fields(options, ["include_usage"])[0]);
    let each = count(max).or_else(|| count(old_max));
    let request = Request {
        model: owned(model).unwrap_or_default(),
        stream: is_true(stream),
        max_output: each.map(|each| Tokens(each.saturating_mul(count(n).unwrap_or(1).max(1)))),
        wants_usage: is_true(wants_usage.flatten()),
        hints: BodyHints {
            session: session(rest),
            prompt_cache_key: owned(cache_key),
            safety_identifier: owned(safety).or_else(|| owned(user)),
            ..BodyHints::default()
        },
        ..Request::default()
    };
    Ok(Envelope {
        request,
        items: found.items,
        stream,
        stream_options: options,
        ..Envelope::default()
    })
}

/// Ollama's `POST /api/chat` and `/api/generate`. Both stream unless they are told not to.
pub(super) fn ollama(body: &str) -> Result<Envelope<'_>, BadRequest> {
    let found = object(body, ["model", "stream", "options", "prompt"], "messages")?;
    let [model, stream, options, prompt] = found.fields;
    let most = options.and_then(|options| json::fields(options, ["num_predict"])[0]);
    let mut items = found.items;
    items.text = items.text.or_else(|| prompt.and_then(json::text));
    let request = Request {
        model: owned(model).unwrap_or_default(),
        stream: stream.is_none_or(|stream| stream.get() != "false"),
        max_output: count(most).map(Tokens),
        ..Request::default()
    };
    Ok(Envelope { request, items, ..Envelope::default() })
}

/// `POST …/responses`.
pub(super) fn responses(body: &str) -> Result<Envelope<'_>, BadRequest> {
    let names = [
        "model",
        "stream",
        "max_output_tokens",
        "instructions",
        "previous_response_id",
        "conversation",
        "prompt_cache_key",
        "safety_identifier",
        "user",
        "session_id",
        "conversation_id",
        "metadata",
    ];
    let found = object(body, names, "input")?;
    let [model, stream, max, system, previous, kept, cache_key, safety, user, rest @ ..] =
        found.fields;
    let kept_id =
        owned(kept).or_else(|| owned(kept.and_then(|kept| json::fields(kept, ["id"])[0])));
    let request = Request {
        model: owned(model).unwrap_or_default(),
        stream: is_true(stream),
        max_output: count(max).map(Tokens),
        hints: BodyHints {
            session: kept_id.or_else(|| session(rest)),
            prompt_cache_key: owned(cache_key),
            previous_response_id: owned(previous),
            safety_identifier: owned(safety).or_else(|| owned(user)),
            ..BodyHints::default()
        },
        ..Request::default()
    };
    let continues = request.hints.previous_response_id.is_some() || present(kept);
    Ok(Envelope { request, items: found.items, system, continues, ..Envelope::default() })
}

/// The session or conversation that a body names, by itself or in its metadata.
fn session([own, conversation, metadata]: [Option<&RawValue>; 3]) -> Option<String> {
    let inner = || {
        let [session, conversation] = json::fields(metadata?, ["session_id", "conversation_id"]);
        owned(session).or_else(|| owned(conversation))
    };
    owned(own).or_else(|| owned(conversation)).or_else(inner)
}

/// Embeddings, older and unknown paths of any provider: what most of them have in common.
pub(super) fn other(body: &str) -> Result<Envelope<'_>, BadRequest> {
    let names = ["model", "stream", "max_tokens", "safety_identifier", "user"];
    let found = object(body, names, "tool_outputs")?;
    let [model, stream, max, safety, user] = found.fields;
    let request = Request {
        model: owned(model).unwrap_or_default(),
        stream: is_true(stream),
        max_output: count(max).map(Tokens),
        hints: BodyHints {
            safety_identifier: owned(safety).or_else(|| owned(user)),
            ..BodyHints::default()
        },
        ..Request::default()
    };
    // The provider keeps an assistant's history: only what its tools brought is sent.
    let continues = !found.items.list.is_empty();
    Ok(Envelope { request, items: found.items, continues, ..Envelope::default() })
}

/// Tells what a tool brought to an assistant's run.
pub(super) fn output_tell(item: &RawValue, news: &mut News) {
    let [id, result] = json::fields(item, ["tool_call_id", "output"]);
    news.result(ToolResult {
        id: owned(id).unwrap_or_default(),
        text: output(result),
        ..ToolResult::default()
    });
}

/// The fields of a chat message that are read.
pub(super) type ChatMessage<'a> = [Option<&'a RawValue>; 5];

/// Reads the fields of a chat message.
pub(super) fn chat_message(message: &RawValue) -> ChatMessage<'_> {
    json::fields(message, ["role", "content", "tool_call_id", "name", "tool_name"])
}

/// Who speaks in a chat message.
pub(super) fn chat_speaker([role, ..]: ChatMessage<'_>) -> Speaker {
    match role.and_then(json::text).as_deref() {
        Some("assistant") => Speaker::Model,
        Some("system" | "developer") => Speaker::System,
        _ => Speaker::Other,
    }
}

/// Tells what a chat message brings.
pub(super) fn chat_tell([role, content, id, name, tool]: ChatMessage<'_>, news: &mut News) {
    match role.and_then(json::text).as_deref() {
        Some("user") => {
            if let Some(content) = content {
                news.content(content);
            }
        }
        Some("tool" | "function") => news.result(ToolResult {
            id: owned(id).unwrap_or_default(),
            name: owned(name).or_else(|| owned(tool)),
            text: output(content),
            is_error: false,
        }),
        _ => {}
    }
}

/// Who speaks in an item of a responses request: calls and thoughts are the model's.
pub(super) fn responses_speaker(item: &RawValue) -> Speaker {
    let [kind, role] = json::fields(item, ["type", "role"]);
    let kind = kind.and_then(json::text);
    match (kind.as_deref(), role.and_then(json::text).as_deref()) {
        (_, Some("assistant")) => Speaker::Model,
        (_, Some("system" | "developer")) => Speaker::System,
        (None | Some("message" | "mcp_approval_response"), _) => Speaker::Other,
        (Some(kind), _) if kind.ends_with("_output") => Speaker::Other,
        _ => Speaker::Model,
    }
}

/// Tells what an item of a responses request brings.
pub(super) fn responses_tell(item: &RawValue, news: &mut News) {
    let names = ["type", "role", "content", "call_id", "name", "output"];
    let [kind, role, content, id, name, result] = json::fields(item, names);
    match (kind.and_then(json::text).as_deref(), role.and_then(json::text).as_deref()) {
        (None | Some("message"), Some("user")) => {
            if let Some(content) = content {
                news.content(content);
            }
        }
        (Some(kind), _) if kind.ends_with("_output") => news.result(ToolResult {
            id: owned(id).unwrap_or_default(),
            name: owned(name),
            text: output(result),
            is_error: false,
        }),
        _ => {}
    }
}
