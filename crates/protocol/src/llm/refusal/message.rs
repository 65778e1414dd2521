//! A refusal that looks like the model's last word, for agents that cannot handle errors.
//!
//! With `on_kill = "message"` a refused call is answered with a complete assistant message that
//! says why, calls no tool, and so ends an agent's loop the polite way. Nothing was generated: its
//! usage is zero, and its `created` is too, since this module knows no clock.

use deadstop_core::{Digest, Trip};
use serde_json::{Value, json};

use super::{JSON, Kind, Refusal, facts_as_headers, refuse, sentence};
use crate::llm::Dialect;
use crate::llm::client::Client;

const EVENTS: &str = "text/event-stream; charset=utf-8";
const LINES: &str = "application/x-ndjson";

/// The answer with the sentence as its text, whole or as a stream. Where a dialect has no such
/// answer (embeddings, other paths) it is a plain refusal.
pub fn message(dialect: Dialect, stream: bool, model: &str, trip: &Trip) -> Refusal {
    let text = sentence(Kind::of(trip), trip);
    let id = format!("{:016x}", Digest::of(text.as_bytes()).0);
    let word = Word { id: &id, model, text: &text };
    let body = match (dialect, stream) {
        (Dialect::OpenAiChat, false) => word.chat().to_string(),
        (Dialect::OpenAiChat, true) => word.chat_stream(),
        (Dialect::OpenAiResponses, false) => word.response(Stage::Completed).to_string(),
        (Dialect::OpenAiResponses, true) => word.response_stream(),
        (Dialect::Anthropic, false) => word.anthropic(&json!([text_block(&text)])).to_string(),
        (Dialect::Anthropic, true) => word.anthropic_stream(),
        (Dialect::Gemini, false) => word.gemini().to_string(),
        (Dialect::Gemini, true) => format!("data: {}\r\n\r\n", word.gemini()),
        (Dialect::Ollama, _) => format!("{}\n", word.ollama()),
        _ => return refuse(dialect, Client::Other, trip, None),
    };
    let content_type = match (dialect, stream) {
        (_, false) => JSON,
        (Dialect::Ollama, true) => LINES,
        (_, true) => EVENTS,
    };
    Refusal {
        status: 200,
        content_type,
        headers: facts_as_headers(trip, None),
        body: body.into_bytes(),
    }
}

/// The last word, before it takes a shape.
struct Word<'a> {
    id: &'a str,
    model: &'a str,
    text: &'a str,
}

/// How far a response has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    InProgress,
    Completed,
}

impl Word<'_> {
    fn chat(&self) -> Value {
        json!({
            "id": format!("chatcmpl-{}", self.id), "object": "chat.completion", "created": 0,
            "model": self.model,
            "choices": [{
                "index": 0, "finish_reason": "stop", "logprobs": null,
                "message": { "role": "assistant", "content": self.text, "refusal": null },
            }],
            "usage": chat_usage(),
        })
    }

    fn chat_stream(&self) -> String {
        let chunk = |delta: Value, finish: Option<&str>| {
            json!({
                "id": format!("chatcmpl-{}", self.id), "object": "chat.completion.chunk",
                "created": 0, "model": self.model,
                "choices": [{
                    "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish,
                }],
            })
        };
        let first = chunk(json!({ "role": "assistant", "content": "" }), None);
        let text = chunk(json!({ "content": self.text }), None);
        // In the last chunk rather than in one of its own without choices, which a client that
        // did not ask for the usage would trip over.
        let mut last = chunk(json!({}), Some("stop"));
        last["usage"] = chat_usage();
        format!("data: {first}\n\ndata: {text}\n\ndata: {last}\n\ndata: [DONE]\n\n")
    }

    fn response(&self, stage: Stage) -> Value {
        let done = stage == Stage::Completed;
        json!({
            "id": format!("resp_{}", self.id), "object": "response", "created_at": 0,
            "status": if done { "completed" } else { "in_progress" },
            "model": self.model, "error": null, "incomplete_details": null, "instructions": null,
            "max_output_tokens": null, "metadata": {}, "parallel_tool_calls": true,
            "previous_response_id": null, "reasoning": { "effort": null, "summary": null },
            "store": false, "temperature": 1.0, "text": { "format": { "type": "text" } },
            "tool_choice": "auto", "tools": [], "top_p": 1.0, "truncation": "disabled",
            "user": null,
            "output": if done { json!([self.item(stage)]) } else { json!([]) },
            "usage": if done { response_usage() } else { Value::Null },
        })
    }

    fn item(&self, stage: Stage) -> Value {
        let done = stage == Stage::Completed;
        json!({
            "id": self.item_id(), "type": "message", "role": "assistant",
            "status": if done { "completed" } else { "in_progress" },
            "content": if done { json!([output_text(self.text)]) } else { json!([]) },
        })
    }

    fn item_id(&self) -> String {
        format!("msg_{}", self.id)
    }

    fn response_stream(&self) -> String {
        let at = |mut event: Value| {
            event["item_id"] = json!(self.item_id());
            event["output_index"] = json!(0);
            event["content_index"] = json!(0);
            event
        };
        let (begun, done) = (Stage::InProgress, Stage::Completed);
        let events = [
            ("response.created", json!({ "response": self.response(begun) })),
            ("response.in_progress", json!({ "response": self.response(begun) })),
            ("response.output_item.added", json!({ "output_index": 0, "item": self.item(begun) })),
            ("response.content_part.added", at(json!({ "part": output_text("") }))),
            ("response.output_text.delta", at(json!({ "delta": self.text, "logprobs": [] }))),
            ("response.output_text.done", at(json!({ "text": self.text, "logprobs": [] }))),
            ("response.content_part.done", at(json!({ "part": output_text(self.text) }))),
            ("response.output_item.done", json!({ "output_index": 0, "item": self.item(done) })),
            ("response.completed", json!({ "response": self.response(done) })),
        ];
        let numbered = events.into_iter().enumerate().map(|(number, (name, mut event))| {
            event["sequence_number"] = json!(number);
            named_event(name, event)
        });
        numbered.collect()
    }

    fn anthropic(&self, content: &Value) -> Value {
        let whole = content.as_array().is_some_and(|blocks| !blocks.is_empty());
        json!({
            "id": format!("msg_{}", self.id), "type": "message", "role": "assistant",
            "model": self.model, "content": content,
            "stop_reason": if whole { json!("end_turn") } else { Value::Null },
            "stop_sequence": null,
            "usage": {
                "input_tokens": 0, "output_tokens": 0,
                "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
            },
        })
    }

    fn anthropic_stream(&self) -> String {
        let delta = json!({ "type": "text_delta", "text": self.text });
        let end = json!({ "stop_reason": "end_turn", "stop_sequence": null });
        [
            ("message_start", json!({ "message": self.anthropic(&json!([])) })),
            ("content_block_start", json!({ "index": 0, "content_block": text_block("") })),
            ("content_block_delta", json!({ "index": 0, "delta": delta })),
            ("content_block_stop", json!({ "index": 0 })),
            ("message_delta", json!({ "delta": end, "usage": { "output_tokens": 0 } })),
            ("message_stop", json!({})),
        ]
        .map(|(name, event)| named_event(name, event))
        .concat()
    }

    /// For both of its paths: one reads the message, the other one the response.
    fn ollama(&self) -> Value {
        json!({
            "model": self.model, "created_at": "1970-01-01T00:00:00Z", "response": self.text,
            "message": { "role": "assistant", "content": self.text },
            "done": true, "done_reason": "stop", "prompt_eval_count": 0, "eval_count": 0,
        })
    }

    fn gemini(&self) -> Value {
        json!({
            "candidates": [{
                "content": { "role": "model", "parts": [{ "text": self.text }] },
                "finishReason": "STOP", "index": 0,
            }],
            "usageMetadata": {
                "promptTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0,
            },
            "modelVersion": self.model, "responseId": self.id,
        })
    }
}

/// An event whose name stands both before and in its data, as two of the providers have it.
fn named_event(name: &str, mut event: Value) -> String {
    event["type"] = json!(name);
    format!("event: {name}\ndata: {event}\n\n")
}

fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn output_text(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn chat_usage() -> Value {
    json!({ "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 })
}

fn response_usage() -> Value {
    json!({
        "input_tokens": 0, "input_tokens_details": { "cached_tokens": 0, "cache_write_tokens": 0 },
        "output_tokens": 0, "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": 0,
    })
}
