//! Gemini `generateContent`: chunks that are whole answers in small, with cumulative usage.
//!
//! The same shape comes as events, as the elements of a list and as one object. Nothing marks the
//! end of a stream but its end.

use deadstop_core::{Tokens, Usage};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Sink;
use super::lenient::{Arguments, Count, Failure, Text, count, many, one, parse, plainly};
use super::whole::Elements;

/// The state of one answer.
#[derive(Debug, Default)]
pub(super) struct Gemini {
    figures: Figures,
    /// The model gave a reason why it stopped.
    finished: bool,
    /// Something was read that is no error.
    read: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow, default, deserialize_with = "many")]
    candidates: Option<Vec<Candidate<'a>>>,
    #[serde(default, deserialize_with = "one")]
    usage_metadata: Option<Figures>,
    #[serde(borrow, default, deserialize_with = "one")]
    prompt_feedback: Option<Box<Feedback<'a>>>,
    #[serde(borrow, default)]
    model_version: Text<'a>,
    error: Option<Failure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback<'a> {
    #[serde(borrow, default)]
    block_reason: Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(borrow, default, deserialize_with = "one")]
    content: Option<Content<'a>>,
    #[serde(borrow, default)]
    finish_reason: Text<'a>,
    grounding_metadata: Option<Value>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow, default, deserialize_with = "many")]
    parts: Option<Vec<Part<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    thought: Option<Value>,
    #[serde(borrow, default, deserialize_with = "one")]
    function_call: Option<Box<FunctionCall<'a>>>,
    #[serde(borrow, default, deserialize_with = "one")]
    executable_code: Option<Box<Code<'a>>>,
    // The same in snake case, which Google's Python SDK reads as well.
    #[serde(borrow, default, deserialize_with = "one", rename = "function_call")]
    function_call_snake: Option<Box<FunctionCall<'a>>>,
    #[serde(borrow, default, deserialize_with = "one", rename = "executable_code")]
    executable_code_snake: Option<Box<Code<'a>>>,
}

#[derive(Deserialize)]
struct FunctionCall<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    args: Option<Arguments>,
}

/// Code that the model wrote and Google runs.
#[derive(Deserialize)]
struct Code<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    language: Text<'a>,
    #[serde(borrow, default)]
    code: Text<'a>,
}

#[derive(Debug, Clone, Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Figures {
    prompt_token_count: Option<Count>,
    cached_content_token_count: Option<Count>,
    tool_use_prompt_token_count: Option<Count>,
    candidates_token_count: Option<Count>,
    thoughts_token_count: Option<Count>,
    prompt_tokens_details: Option<Value>,
    candidates_tokens_details: Option<Value>,
}

impl Figures {
    fn replaced_by(self, later: Figures) -> Figures {
        Figures {
            prompt_token_count: later.prompt_token_count.or(self.prompt_token_count),
            cached_content_token_count: later
                .cached_content_token_count
                .or(self.cached_content_token_count),
            tool_use_prompt_token_count: later
                .tool_use_prompt_token_count
                .or(self.tool_use_prompt_token_count),
            candidates_token_count: later.candidates_token_count.or(self.candidates_token_count),
            thoughts_token_count: later.thoughts_token_count.or(self.thoughts_token_count),
            prompt_tokens_details: later.prompt_tokens_details.or(self.prompt_tokens_details),
            candidates_tokens_details: later
                .candidates_tokens_details
                .or(self.candidates_tokens_details),
        }
    }

    /// In disjoint parts: cached tokens are a part of the prompt's; what tools brought and what was
    /// thought come beside it.
    fn usage(&self) -> Usage {
        let prompt = count(self.prompt_token_count);
        let cached = count(self.cached_content_token_count).min(prompt);
        let tools = count(self.tool_use_prompt_token_count);
        let thoughts = count(self.thoughts_token_count);
        Usage {
            input: Tokens((prompt - cached).saturating_add(tools)),
            output: Tokens(count(self.candidates_token_count).saturating_add(thoughts)),
            cache_read: Tokens(cached),
            cache_write: Tokens(0),
        }
    }
}

impl Gemini {
    /// Reads one chunk.
    pub(super) fn event(&mut self, data: &[u8], sink: &mut Sink<'_>) {
        let Some(chunk) = parse::<Chunk<'_>>(data) else {
            return plainly(data).into_iter().for_each(|data| self.event(&data, sink));
        };
        sink.tally.counted.named(chunk.model_version.as_str());
        for candidate in chunk.candidates.unwrap_or_default() {
            if let Some(told) = &candidate.grounding_metadata {
                let queries = told["webSearchQueries"].as_array().map_or(0, Vec::len) as u64;
                let counted = &mut sink.tally.counted;
                counted.searches = counted.searches.max(queries);
            }
            for part in candidate.content.and_then(|content| content.parts).unwrap_or_default() {
                read_part(part, sink);
            }
            self.finished |= !candidate.finish_reason.is_empty();
        }
        self.finished |= chunk.prompt_feedback.is_some_and(|told| !told.block_reason.is_empty());
        if let Some(told) = chunk.usage_metadata {
            let output = told.candidates_token_count.or(told.thoughts_token_count);
            self.figures = std::mem::take(&mut self.figures).replaced_by(told);
            let Figures { prompt_tokens_details, candidates_tokens_details, .. } = &self.figures;
            let counted = &mut sink.tally.counted;
            counted.gemini(prompt_tokens_details.as_ref(), candidates_tokens_details.as_ref());
            sink.usage(self.figures.usage(), output.is_some());
        }
        match chunk.error {
            Some(failure) => sink.error(failure.0),
            None => self.read = true,
        }
    }

    /// Reads a whole answer. An error may come as a list of one, and other answers than generated
    /// ones have no reason to stop.
    pub(super) fn whole(&mut self, data: &[u8], sink: &mut Sink<'_>) {
        Elements::default().push(data, |object, _| self.event(object, sink));
        self.finished = self.read;
    }

    /// The upstream has ended.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        if self.finished {
            sink.done();
        }
    }
}

fn read_part(part: Part<'_>, sink: &mut Sink<'_>) {
    match part.thought {
        Some(Value::Bool(true)) => sink.thought(part.text.as_str()),
        _ => sink.text(part.text.as_str()),
    }
    let calls = [part.function_call, part.function_call_snake];
    for call in calls.into_iter().flatten().filter(|call| !call.name.is_empty()) {
        let arguments = call.args.unwrap_or_default().unpack();
        sink.unseen(&arguments.to_string());
        sink.call(call.id.0.into_owned(), call.name.0.into_owned(), arguments);
    }
    for code in [part.executable_code, part.executable_code_snake].into_iter().flatten() {
        let Code { id, language, code } = *code;
        sink.unseen(code.as_str());
        let arguments = json!({ "language": language.as_str(), "code": code.as_str() });
        sink.call(id.0.into_owned(), "code_execution".to_owned(), arguments);
    }
}
