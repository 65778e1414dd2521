//! Gemini `generateContent`: chunks that are whole answers in small, with cumulative usage.
//!
//! The same shape comes as events, as the elements of a list and as one object. Nothing marks the
//! end of a stream but its end.

use deadstop_core::{Tokens, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Sink;
use super::lenient::{Arguments, Count, Failure, Text, count, many, one, parse, plainly, tree};
use super::partial::Partial;
use super::sse::bare;
use super::whole::Elements;

/// The state of one answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Gemini {
    figures: Figures,
    /// The model gave a reason why it stopped.
    finished: bool,
    /// Something was read that is no error.
    read: bool,
    /// A call whose arguments are still coming.
    open: Option<Open>,
    /// Lines of a stream that are no data. Google's Python SDK reads objects from them all the same.
    bare: Elements,
}

/// A call whose arguments come one by one.
#[derive(Debug, Clone, Default)]
struct Open {
    id: String,
    name: String,
    arguments: Partial,
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
    /// The chunk itself, as Google's Code Assist wraps it.
    #[serde(borrow)]
    response: Option<&'a RawValue>,
}

/// Where a chunk stands.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Outermost,
    Wrapped,
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
    #[serde(default, deserialize_with = "tree")]
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
    #[serde(default, deserialize_with = "tree")]
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
    /// A tool that Google runs.
    #[serde(default, deserialize_with = "tree")]
    tool_call: Option<Value>,
    #[serde(default, deserialize_with = "tree", rename = "tool_call")]
    tool_call_snake: Option<Value>,
}

#[derive(Deserialize)]
struct FunctionCall<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    args: Option<Arguments>,
    #[serde(default, deserialize_with = "tree", rename = "partialArgs")]
    partial_args: Option<Value>,
    #[serde(default, deserialize_with = "tree", rename = "partial_args")]
    partial_args_snake: Option<Value>,
    #[serde(default, deserialize_with = "tree", rename = "willContinue")]
    will_continue: Option<Value>,
    #[serde(default, deserialize_with = "tree", rename = "will_continue")]
    will_continue_snake: Option<Value>,
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
    #[serde(default, deserialize_with = "tree")]
    prompt_tokens_details: Option<Value>,
    #[serde(default, deserialize_with = "tree")]
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
        self.chunk(data, Place::Outermost, sink);
    }

    fn chunk(&mut self, data: &[u8], place: Place, sink: &mut Sink<'_>) {
        let Some(chunk) = parse::<Chunk<'_>>(data) else {
            return plainly(data, sink).into_iter().for_each(|data| self.chunk(&data, place, sink));
        };
        let wrapped = chunk.response.filter(|inner| inner.get().starts_with('{'));
        if let (Some(inner), Place::Outermost) = (wrapped, place) {
            self.chunk(inner.get().as_bytes(), Place::Wrapped, sink);
        }
        sink.tally.counted.named(chunk.model_version.as_str());
        for candidate in chunk.candidates.unwrap_or_default() {
            if let Some(told) = &candidate.grounding_metadata {
                let queries = told["webSearchQueries"].as_array().map_or(0, Vec::len) as u64;
                let counted = &mut sink.tally.counted;
                counted.searches = counted.searches.max(queries);
            }
            for part in candidate.content.and_then(|content| content.parts).unwrap_or_default() {
                self.part(part, sink);
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

    /// Reads the lines of an event that are no data.
    pub(super) fn bare(&mut self, event: &[u8], sink: &mut Sink<'_>) {
        let Some(lines) = bare(event) else { return };
        let mut elements = std::mem::take(&mut self.bare);
        elements.push(&lines, |object, _| self.event(object, sink));
        sink.tally.lost |= elements.lost();
        self.bare = elements;
    }

    /// Whether a tool call has begun and is not complete yet.
    pub(super) fn inside_call(&self) -> bool {
        self.open.is_some()
    }

    /// The upstream has ended.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        self.close(sink);
        if self.finished {
            sink.done();
        }
    }

    fn part(&mut self, part: Part<'_>, sink: &mut Sink<'_>) {
        match part.thought {
            Some(Value::Bool(true)) => sink.thought(part.text.as_str()),
            _ => sink.text(part.text.as_str()),
        }
        for call in [part.function_call, part.function_call_snake].into_iter().flatten() {
            self.call(*call, sink);
        }
        for code in [part.executable_code, part.executable_code_snake].into_iter().flatten() {
            let Code { id, language, code } = *code;
            sink.unseen(code.as_str());
            let arguments = json!({ "language": language.as_str(), "code": code.as_str() });
            sink.call(id.0.into_owned(), "code_execution".to_owned(), arguments);
        }
        for tool in [part.tool_call, part.tool_call_snake].into_iter().flatten() {
            let kind = tool["toolType"].as_str().or(tool["tool_type"].as_str()).unwrap_or_default();
            if !kind.is_empty() {
                let arguments = Arguments(tool["args"].clone()).unpack();
                sink.unseen(&arguments.to_string());
                let id = tool["id"].as_str().unwrap_or_default().to_owned();
                sink.call(id, kind.to_lowercase(), arguments);
            }
        }
    }

    /// A call, or a part of one: its name comes first, and then its arguments.
    fn call(&mut self, call: FunctionCall<'_>, sink: &mut Sink<'_>) {
        let goes_on =
            [call.will_continue, call.will_continue_snake].contains(&Some(Value::Bool(true)));
        let parts = [call.partial_args, call.partial_args_snake].into_iter().flatten();
        let parts: Vec<Value> = parts.filter_map(list).flatten().collect();
        let in_parts = goes_on || !parts.is_empty();
        let arguments = call.args.unwrap_or_default();
        if !call.name.is_empty() {
            self.close(sink);
            if !in_parts {
                let arguments = arguments.unpack();
                sink.unseen(&arguments.to_string());
                return sink.call(call.id.0.into_owned(), call.name.0.into_owned(), arguments);
            }
            let (id, name) = (call.id.0.into_owned(), call.name.0.into_owned());
            self.open = Some(Open { id, name, ..Open::default() });
        }
        let Some(open) = &mut self.open else { return };
        open.arguments.merge(arguments.unpack());
        for argument in &parts {
            sink.tally.lost |= !open.arguments.add(argument);
        }
        if !goes_on {
            self.close(sink);
        }
    }

    /// The call whose arguments were coming is complete.
    fn close(&mut self, sink: &mut Sink<'_>) {
        if let Some(Open { id, name, arguments }) = self.open.take() {
            let arguments = arguments.whole();
            sink.unseen(&arguments.to_string());
            sink.call(id, name, arguments);
        }
    }
}

fn list(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(list) => Some(list),
        _ => None,
    }
}
