//! Anthropic's requests: messages.

use deadstop_core::Tokens;
use serde_json::value::RawValue;

use super::json::{self, count, is_true, object, owned};
use super::news::{News, Speaker, output, parts};
use super::{BadRequest, Envelope};
use crate::llm::{BodyHints, Request, ToolResult};

/// `POST …/v1/messages`.
pub(super) fn messages(body: &str) -> Result<Envelope<'_>, BadRequest> {
    let names = ["model", "stream", "max_tokens", "system", "metadata"];
    let found = object(body, names, "messages")?;
    let [model, stream, max, system, metadata] = found.fields;
    let user_id = metadata.and_then(|metadata| json::fields(metadata, ["user_id"])[0]);
    let request = Request {
        model: owned(model).unwrap_or_default(),
        stream: is_true(stream),
        max_output: count(max).map(Tokens),
        hints: BodyHints {
            // An object instead of a string is kept as its JSON.
            metadata_user_id: owned(user_id).or_else(|| {
                user_id.filter(|id| id.get().starts_with('{')).map(|id| id.get().to_owned())
            }),
            ..BodyHints::default()
        },
        ..Request::default()
    };
    Ok(Envelope { request, items: found.items, system, ..Envelope::default() })
}

/// Who speaks in a message.
pub(super) fn speaker(message: &RawValue) -> Speaker {
    let [role] = json::fields(message, ["role"]);
    match role.and_then(json::text).as_deref() {
        Some("assistant") => Speaker::Model,
        Some("system") => Speaker::System,
        _ => Speaker::Other,
    }
}

/// Tells what a message brings: results of tools come as blocks of a user's message, beside what
/// the user says.
pub(super) fn tell(message: &RawValue, news: &mut News) {
    let [role, content] = json::fields(message, ["role", "content"]);
    let (Some("user"), Some(content)) = (role.and_then(json::text).as_deref(), content) else {
        return;
    };
    for part in parts(content) {
        if part.kind != "tool_result" {
            news.part(&part);
            continue;
        }
        let names = ["tool_use_id", "content", "is_error"];
        let [id, content, is_error] = json::fields(part.raw, names);
        news.result(ToolResult {
            id: owned(id).unwrap_or_default(),
            name: None,
            text: output(content),
            is_error: is_true(is_error),
        });
    }
}
