//! Gemini's requests: generateContent. Keys come in camel case, and from some clients in snake case.

use deadstop_core::Tokens;
use serde_json::value::RawValue;

use super::attachment::marker;
use super::json::{self, count, elements, is_true, object, owned, present};
use super::news::{News, Speaker};
use super::{BadRequest, Envelope};
use crate::llm::{Request, ToolResult};

/// `POST …/models/{model}:generateContent`; the path says which model, and whether in a stream. Google's Code
/// Assist wraps the same and names the model beside it.
pub(super) fn generate(body: &str) -> Result<Envelope<'_>, BadRequest> {
    let plain = bare(body)?;
    if !plain.items.list.is_empty() {
        return Ok(plain);
    }
    let [wrapped, model] = object(body, ["request", "model"], "")?.fields;
    let Some(wrapped) = wrapped.filter(|wrapped| wrapped.get().starts_with('{')) else {
        return Ok(plain);
    };
    let mut envelope = bare(wrapped.get())?;
    envelope.request.model = owned(model).unwrap_or_default();
    Ok(envelope)
}

fn bare(body: &str) -> Result<Envelope<'_>, BadRequest> {
    let names =
        ["generationConfig", "generation_config", "systemInstruction", "system_instruction"];
    let found = object(body, names, "contents")?;
    let [config, config_snake, system, system_snake] = found.fields;
    let names = ["maxOutputTokens", "max_output_tokens", "candidateCount", "candidate_count"];
    let config = config.or(config_snake).map_or([None; 4], |config| json::fields(config, names));
    let [max, max_snake, n, n_snake] = config.map(count);
    let each = n.or(n_snake).unwrap_or(1).max(1);
    let request = Request {
        max_output: max.or(max_snake).map(|max| Tokens(max.saturating_mul(each))),
        ..Request::default()
    };
    let system = system.or(system_snake).and_then(|system| json::fields(system, ["parts"])[0]);
    Ok(Envelope { request, items: found.items, system, ..Envelope::default() })
}

/// Who speaks in a content.
pub(super) fn speaker(content: &RawValue) -> Speaker {
    let [role] = json::fields(content, ["role"]);
    match role.and_then(json::text).as_deref() {
        Some("model") => Speaker::Model,
        Some("system") => Speaker::System,
        _ => Speaker::Other,
    }
}

/// Tells what a content brings.
pub(super) fn tell(content: &RawValue, news: &mut News) {
    let [parts] = json::fields(content, ["parts"]);
    let (Speaker::Other, Some(parts)) = (speaker(content), parts) else { return };
    for part in elements(parts) {
        let names = ["text", "thought", "functionResponse", "function_response"];
        let [text, thought, response, response_snake] = json::fields(part, names);
        match (response.or(response_snake), text.and_then(json::text)) {
            (Some(response), _) => news.result(result(response)),
            (None, Some(text)) if !is_true(thought) => news.said(&text),
            (None, Some(_)) => {}
            (None, None) => news.mark(&marker(kind(part), part.get())),
        }
    }
}

/// A tool's answer is any object; by convention its text is in one of a few fields.
fn result(response: &RawValue) -> ToolResult {
    let [id, name, answer] = json::fields(response, ["id", "name", "response"]);
    let [output, result, error] =
        answer.map_or([None; 3], |answer| json::fields(answer, ["output", "result", "error"]));
    let text = [output, result, error].into_iter().flatten().find_map(json::text);
    ToolResult {
        id: owned(id).unwrap_or_default(),
        name: owned(name),
        text: match (text, answer) {
            (Some(text), _) => text.into_owned(),
            (None, Some(answer)) => answer.get().to_owned(),
            (None, None) => String::new(),
        },
        is_error: present(error),
    }
}

fn kind(part: &RawValue) -> &'static str {
    let [inline, inline_snake] = json::fields(part, ["inlineData", "inline_data"]);
    if inline.or(inline_snake).is_some() { "inline_data" } else { "part" }
}
