//! What a request repeats of its conversation: the digests that an unnamed conversation is
//! recognised by.
//!
//! Each request repeats what was said and answered before. A *unit* is a message of a person or of
//! tools, or all that a model said in one turn. The key of a model's turn is the digest of that turn
//! and of the [`WINDOW`] units before it: long enough to tell conversations with the same first
//! words apart, and short enough that a history may be cut at its front or edited far back. Standing
//! orders are left out, since many change from call to call.

use deadstop_core::Digest;
use serde_json::value::RawValue;

use super::json::{self, elements, is_true};
use super::news::{News, Speaker, parts};
use super::{Dialect, Open};
use crate::facts::combine;
use crate::llm::answer::echo::Echo;

/// Units before a model's turn that are part of its key.
const WINDOW: usize = 5;
/// Messages at the end of a history that are looked at.
const NEAR: usize = 48;
/// Model's turns, from the last one back, by which a history is looked up.
const TURNS: usize = 4;

/// What a request repeats.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Turns {
    /// Its first words and standing orders.
    pub opening: Option<Digest>,
    /// The keys of the model's turns in it, the last one first.
    pub answers: Vec<Digest>,
    /// All of its units near the end: the same for a request that is sent again.
    pub request: Digest,
    /// The units that the key of its answer will begin with.
    tail: Vec<Digest>,
}

impl Turns {
    /// The key of the answer to this request; `None` if it said nothing.
    pub fn answer(&self, echo: &Echo) -> Option<Digest> {
        let mut units = self.tail.clone();
        units.push(echo.digest()?);
        Some(combine(&units))
    }
}

/// A unit of a history.
enum Unit {
    Model(Echo),
    Other(Digest),
}

impl Unit {
    fn digest(&self) -> Digest {
        match self {
            Unit::Model(echo) => echo.digest().unwrap_or_default(),
            Unit::Other(digest) => *digest,
        }
    }
}

impl<'a> Open<'a> {
    /// What this request repeats of its conversation.
    pub fn turns(&self) -> Turns {
        let opening = self.envelope.request.hints.conversation;
        if self.envelope.continues {
            return Turns { opening, request: Digest::of(self.body), ..Turns::default() };
        }
        if let Some(text) = &self.envelope.items.text {
            let said = Digest::of(text.as_bytes());
            return Turns { opening, answers: Vec::new(), request: said, tail: vec![said] };
        }
        let messages = self.envelope.items.list.as_slice();
        let from = messages.len().saturating_sub(NEAR);
        let mut units = self.units(&messages[from..]);
        // What is begun for the model at the very end was not answered yet.
        while matches!(units.last(), Some(Unit::Model(_))) {
            units.pop();
        }
        let digests: Vec<Digest> = units.iter().map(Unit::digest).collect();
        let window = |at: usize| digests[at.saturating_sub(WINDOW)..at].to_vec();
        let whole = |at: usize| from == 0 || at > WINDOW;
        let key = |(at, unit): (usize, &Unit)| match unit {
            Unit::Model(echo) if whole(at) => {
                let mut units = window(at);
                units.push(echo.digest()?);
                Some(combine(&units))
            }
            _ => None,
        };
        Turns {
            opening,
            answers: units.iter().enumerate().rev().filter_map(key).take(TURNS).collect(),
            request: combine(&digests),
            tail: window(digests.len()),
        }
    }

    fn units(&self, messages: &[&'a RawValue]) -> Vec<Unit> {
        let mut units = Vec::new();
        for message in messages {
            match self.speaker(message) {
                Speaker::System => {}
                Speaker::Model => {
                    if !matches!(units.last(), Some(Unit::Model(_))) {
                        units.push(Unit::Model(Echo::default()));
                    }
                    if let Some(Unit::Model(echo)) = units.last_mut() {
                        said(self.dialect, message, echo);
                    }
                }
                Speaker::Other => {
                    let mut news = News::digest_only();
                    self.tell(message, &mut news);
                    units.push(Unit::Other(news.exact()));
                }
            }
        }
        units
    }
}

/// What a model's message repeats of its answer.
fn said(dialect: Dialect, message: &RawValue, echo: &mut Echo) {
    match dialect {
        Dialect::OpenAiResponses => responses(message, echo),
        Dialect::Anthropic => anthropic(message, echo),
        Dialect::Gemini => gemini(message, echo),
        _ => chat(message, echo),
    }
}

fn chat(message: &RawValue, echo: &mut Echo) {
    let [content, refusal, calls, function] =
        json::fields(message, ["content", "refusal", "tool_calls", "function_call"]);
    content.map(parts).into_iter().flatten().for_each(|part| text(part.text.as_deref(), echo));
    text(refusal.and_then(json::text).as_deref(), echo);
    for call in calls.map(elements).into_iter().flatten() {
        let [id, function] = json::fields(call, ["id", "function"]);
        let name = function.and_then(|function| json::fields(function, ["name"])[0]);
        called(id, name, echo);
    }
    if let Some(function) = function.filter(|function| function.get() != "null") {
        called(None, json::fields(function, ["name"])[0], echo);
    }
}

fn responses(item: &RawValue, echo: &mut Echo) {
    let [kind, content, id, own, name] =
        json::fields(item, ["type", "content", "call_id", "id", "name"]);
    let kind = kind.and_then(json::text);
    match kind.as_deref() {
        Some(kind) if kind.ends_with("_call") => called(id.or(own), name, echo),
        Some("reasoning") => {}
        _ => {
            let all = content.map(parts).into_iter().flatten();
            all.for_each(|part| text(part.text.as_deref(), echo));
        }
    }
}

fn anthropic(message: &RawValue, echo: &mut Echo) {
    let [content] = json::fields(message, ["content"]);
    for part in content.map(parts).into_iter().flatten() {
        match &*part.kind {
            "tool_use" | "server_tool_use" => {
                let [id, name] = json::fields(part.raw, ["id", "name"]);
                called(id, name, echo);
            }
            "text" | "" => text(part.text.as_deref(), echo),
            _ => {}
        }
    }
}

fn gemini(content: &RawValue, echo: &mut Echo) {
    let [parts] = json::fields(content, ["parts"]);
    for part in parts.map(elements).into_iter().flatten() {
        let names = ["text", "thought", "functionCall", "function_call"];
        let [said, thought, call, call_snake] = json::fields(part, names);
        if let Some(call) = call.or(call_snake) {
            let [id, name] = json::fields(call, ["id", "name"]);
            called(id, name, echo);
        } else if !is_true(thought) {
            text(said.and_then(json::text).as_deref(), echo);
        }
    }
}

fn text(said: Option<&str>, echo: &mut Echo) {
    echo.text(said.unwrap_or_default());
}

fn called(id: Option<&RawValue>, name: Option<&RawValue>, echo: &mut Echo) {
    let owned = |value: Option<&RawValue>| json::owned(value).unwrap_or_default();
    echo.call(&owned(id), &owned(name));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::llm::answer::{Form, Reader};
    use crate::llm::request::open;

    fn turns(dialect: Dialect, body: &Value) -> Turns {
        open(dialect, "/v1/x", body.to_string().as_bytes()).unwrap().turns()
    }

    /// The answer as it passes, and the request that repeats it.
    fn check(dialect: Dialect, before: &Value, answer: &str, after: &Value) {
        let mut reader = Reader::new(dialect, Form::Json, false);
        let mut pieces = Vec::new();
        reader.push(answer.as_bytes(), &mut pieces);
        reader.finish(&mut pieces);
        let key = turns(dialect, before).answer(reader.echo()).unwrap();
        assert_eq!(turns(dialect, after).answers.first(), Some(&key), "{dialect:?}");
        assert_eq!(turns(dialect, before).answers, []);
    }

    #[test]
    fn an_answer_is_found_in_the_next_request() {
        check(
            Dialect::OpenAiChat,
            &json!({ "messages": [{ "role": "system", "content": "be nice, it is 12:01" },
                { "role": "user", "content": "hi" }] }),
            r#"{"choices":[{"message":{"reasoning_content":"hm","content":"Hello!\n","tool_calls":[
                {"id":"c1","type":"function","function":{"name":"ls","arguments":"{}"}}]}}]}"#,
            &json!({ "messages": [{ "role": "system", "content": "be nice, it is 12:02" },
                { "role": "user", "content": [{ "type": "text", "text": "hi" }] },
                { "role": "assistant", "content": "Hello!", "tool_calls": [{ "id": "c1",
                    "type": "function", "function": { "name": "ls", "arguments": "{}" } }] },
                { "role": "tool", "tool_call_id": "c1", "content": "a b" }] }),
        );
        check(
            Dialect::Anthropic,
            &json!({ "messages": [{ "role": "user", "content": "hi" }] }),
            r#"{"content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"Yes"},
                {"type":"tool_use","id":"t1","name":"ls","input":{}}]}"#,
            &json!({ "messages": [
                { "role": "user", "content": [{ "type": "text", "text": "hi",
                    "cache_control": { "type": "ephemeral" } }] },
                { "role": "assistant", "content": [{ "type": "text", "text": "Yes" },
                    { "type": "tool_use", "id": "t1", "name": "ls", "input": {} }] },
                { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1",
                    "content": "x" }] }] }),
        );
        check(
            Dialect::OpenAiResponses,
            &json!({ "input": "hi" }),
            r#"{"id":"resp_1","status":"completed","output":[
                {"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]},
                {"type":"message","content":[{"type":"output_text","text":"Yes"}]},
                {"type":"function_call","call_id":"f1","name":"ls","arguments":"{}"}]}"#,
            &json!({ "input": [{ "role": "user", "content": "hi" },
                { "type": "message", "role": "assistant",
                  "content": [{ "type": "output_text", "text": "Yes" }] },
                { "type": "function_call", "call_id": "f1", "name": "ls", "arguments": "{}" },
                { "type": "function_call_output", "call_id": "f1", "output": "x" }] }),
        );
        check(
            Dialect::Gemini,
            &json!({ "contents": [{ "role": "user", "parts": [{ "text": "hi" }] }] }),
            r#"{"candidates":[{"content":{"parts":[{"text":"hm","thought":true},{"text":"Yes"},
                {"functionCall":{"name":"ls","args":{}}}]}}]}"#,
            &json!({ "contents": [{ "role": "user", "parts": [{ "text": "hi" }] },
                { "role": "model", "parts": [{ "text": "Yes" },
                    { "functionCall": { "name": "ls", "args": {} } }] },
                { "role": "user", "parts": [{ "functionResponse": { "name": "ls",
                    "response": { "output": "x" } } }] }] }),
        );
    }

    /// A history may be cut at its front: the keys at its end stay the same.
    #[test]
    fn a_long_history_may_lose_its_beginning() {
        let message = |n: usize| {
            let role = if n.is_multiple_of(2) { "user" } else { "assistant" };
            json!({ "role": role, "content": format!("message {n} of many") })
        };
        let of = |from: usize, to: usize| {
            let messages: Vec<Value> = (from..to).map(message).collect();
            turns(Dialect::OpenAiChat, &json!({ "messages": messages }))
        };
        let whole = of(0, 101);
        for from in [2, 40, 80, 90] {
            assert_eq!(of(from, 101).answers[0], whole.answers[0], "{from}");
        }
        assert_eq!(whole.answers.len(), TURNS);
        assert_eq!(of(0, 99).answers[0], whole.answers[1], "the turn before");
        assert_ne!(of(0, 99).request, whole.request);
    }
}
