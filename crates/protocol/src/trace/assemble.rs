//! Messages put together to turns, and results to the calls that they answer.

use std::collections::{HashMap, HashSet};

use deadstop_core::{Time, Usage};
use serde_json::{Map, Value};

use super::record::{Block, Content, Record, add_line};
use super::{RecordedCall, RecordedResult, Trace, Turn};

/// A trace in the making.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    turns: Vec<Turn>,
    messages: usize,
    /// The calls without a result, by id. The last one is the next to be answered: ids repeat, and
    /// a result belongs to the latest answer that has its id; inside one answer, to the first.
    open: HashMap<String, Vec<CallPosition>>,
    /// The turn that the last result came back to.
    answered: Option<usize>,
    /// Where the answers of a transcript are, by the id of the API's message.
    answers: HashMap<String, usize>,
    /// The calls of those answers, so that one that is written twice is read once.
    written: HashSet<(usize, String)>,
}

/// Who says what is not an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    Person,
    Program,
}

/// Where a call is: its turn, and its number in it.
#[derive(Debug, Clone, Copy)]
struct CallPosition {
    turn: usize,
    call: usize,
}

/// A call with the id that its result will have.
struct OpenCall {
    id: String,
    name: String,
    arguments: Value,
}

/// A result with the id of its call.
struct Returned {
    id: String,
    text: String,
    is_error: bool,
}

/// A message taken apart.
#[derive(Default)]
struct Parts {
    text: String,
    calls: Vec<OpenCall>,
    results: Vec<Returned>,
}

/// Puts a trace together from its record.
pub(super) fn trace(mut record: Record<'_>, name: impl FnOnce() -> String) -> Trace {
    let mut assembly = Assembly::default();
    let system = std::mem::take(&mut record.system).into_text();
    if !system.is_empty() {
        assembly.turns.push(Turn::Prompt { text: system, person: false, at: None, message: 0 });
    }
    for message in record.messages.unwrap_or_default() {
        assembly.add(message);
    }
    let made = assembly.finish();
    Trace {
        id: record.id.words().unwrap_or_else(name),
        dataset: record.dataset.words(),
        model: record.model.words().or(made.model),
        task: record.task.words(),
        outcome: record.outcome.flag(),
        labels: record.labels,
        ..made
    }
}

impl Assembly {
    /// Takes the next message of a list.
    pub(super) fn add(&mut self, message: Record<'_>) {
        let by = match message.role.as_str() {
            Some("user") => Speaker::Person,
            _ => Speaker::Program,
        };
        self.add_said(message, by);
    }

    /// Takes the next message, from a speaker that its role does not tell.
    pub(super) fn add_said(&mut self, mut message: Record<'_>, by: Speaker) {
        self.messages += 1;
        let number = self.messages;
        let at = message.time();
        match message.role.as_str() {
            Some("assistant") => {
                let usage = message.usage();
                let model = std::mem::take(&mut message.model).words();
                let parts = Parts::of(message);
                self.turns.push(Turn::Answer {
                    text: parts.text,
                    calls: Vec::new(),
                    usage,
                    model,
                    at,
                    message: number,
                });
                self.open_calls(self.turns.len() - 1, number, parts.calls);
                self.close_calls(parts.results, at, number);
            }
            Some("tool" | "function") => {
                let results = Parts::of_tool(message);
                self.close_calls(results, at, number);
            }
            Some(_) => {
                let parts = Parts::of(message);
                self.close_calls(parts.results, at, number);
                if !parts.text.is_empty() {
                    let (text, person) = (parts.text, by == Speaker::Person);
                    self.turns.push(Turn::Prompt { text, person, at, message: number });
                }
            }
            None if message.is_call_item() => self.add_call_item(message, at),
            None if message.is_result_item() => {
                let id = message.call_id.words().unwrap_or_default();
                let result = Returned { id, text: message.output.into_text(), is_error: false };
                self.close_calls(vec![result], at, number);
            }
            // A message without a role is skipped; it only keeps its number.
            None => {}
        }
    }

    /// Takes the next piece of an answer that a transcript writes over several events. The usage
    /// stands on each of them, growing at most, so it is taken once and at its largest.
    pub(super) fn add_piece(&mut self, mut message: Record<'_>) {
        let Some(id) = std::mem::take(&mut message.id).words() else {
            return self.add_said(message, Speaker::Program);
        };
        let known = self.answers.get(&id).copied();
        let Some(index) = known else {
            self.answers.insert(id, self.turns.len());
            let index = self.turns.len();
            for call in message.content.call_ids() {
                self.written.insert((index, call.to_owned()));
            }
            return self.add_said(message, Speaker::Program);
        };
        let (at, usage) = (message.time(), message.usage());
        let mut parts = Parts::of(message);
        parts
            .calls
            .retain(|call| call.id.is_empty() || self.written.insert((index, call.id.clone())));
        let Some(Turn::Answer { text, usage: total, message, .. }) = self.turns.get_mut(index)
        else {
            return;
        };
        let number = *message;
        *total = largest(*total, usage);
        // A later snapshot repeats what an earlier one had.
        if parts.text.starts_with(text.as_str()) {
            *text = parts.text;
        } else if !text.ends_with(&parts.text) {
            add_line(text, &parts.text);
        }
        self.open_calls(index, number, parts.calls);
        self.close_calls(parts.results, at, number);
    }

    /// Takes a call that stands beside the answer it belongs to: the last one, unless that is
    /// over, which shows in a result.
    fn add_call_item(&mut self, item: Record<'_>, at: Option<Time>) {
        let number = self.messages;
        let goes_on = matches!(self.turns.last(), Some(Turn::Answer { .. }))
            && self.answered.is_none_or(|turn| turn + 1 < self.turns.len());
        if !goes_on {
            let (text, calls) = (String::new(), Vec::new());
            let (usage, model) = (None, None);
            self.turns.push(Turn::Answer { text, calls, usage, model, at, message: number });
        }
        let call = OpenCall {
            id: item.call_id.words().unwrap_or_default(),
            name: item.name.words().unwrap_or_default(),
            arguments: parsed(item.arguments.or(item.input)),
        };
        self.open_calls(self.turns.len() - 1, number, vec![call]);
    }

    /// All that the messages tell, as a trace without a name. The model is the first that answered.
    pub(super) fn finish(self) -> Trace {
        let model = self.turns.iter().find_map(|turn| match turn {
            Turn::Answer { model, .. } => model.clone(),
            Turn::Prompt { .. } => None,
        });
        Trace { model, messages: self.messages, turns: self.turns, ..Trace::default() }
    }

    fn open_calls(&mut self, turn: usize, message: usize, new: Vec<OpenCall>) {
        let Some(Turn::Answer { calls, .. }) = self.turns.get_mut(turn) else { return };
        let first = calls.len();
        let mut ids = Vec::with_capacity(new.len());
        for OpenCall { id, name, arguments } in new {
            ids.push(id);
            calls.push(RecordedCall { name, arguments, message, result: None });
        }
        for (number, id) in ids.into_iter().enumerate().rev() {
            self.open.entry(id).or_default().push(CallPosition { turn, call: first + number });
        }
    }

    fn close_calls(&mut self, results: Vec<Returned>, at: Option<Time>, message: usize) {
        for Returned { id, text, is_error } in results {
            let Some(place) = self.open.get_mut(&id).and_then(Vec::pop) else { continue };
            let Some(Turn::Answer { calls, .. }) = self.turns.get_mut(place.turn) else { continue };
            self.answered = Some(place.turn);
            if let Some(call) = calls.get_mut(place.call) {
                call.result = Some(RecordedResult { text, is_error, at, message });
            }
        }
    }
}

impl Record<'_> {
    fn time(&self) -> Option<Time> {
        self.ts.time().or_else(|| self.timestamp.time())
    }

    fn usage(&self) -> Option<Usage> {
        self.usage.as_ref().and_then(|tally| tally.usage())
    }
}

impl Content<'_> {
    fn call_ids(&self) -> impl Iterator<Item = &str> {
        let blocks = match self {
            Content::Blocks(blocks) => blocks.as_slice(),
            _ => &[],
        };
        blocks.iter().filter(|block| block.is_call()).filter_map(|block| block.id.as_str())
    }
}

impl Parts {
    fn of(message: Record<'_>) -> Parts {
        let mut parts = Parts::default();
        parts.take_content(message.content);
        for call in message.tool_calls.unwrap_or_default() {
            let function = call.function.or(call.custom).unwrap_or_default();
            let arguments = function.arguments.or(function.input).or(call.arguments);
            parts.calls.push(OpenCall {
                id: call.id.words().unwrap_or_default(),
                name: function.name.words().or_else(|| call.name.words()).unwrap_or_default(),
                arguments: parsed(arguments),
            });
        }
        if let Some(function) = message.function_call {
            // Before calls had ids, a result named its function.
            let name = function.name.words().unwrap_or_default();
            let arguments = parsed(function.arguments);
            parts.calls.push(OpenCall { id: name.clone(), name, arguments });
        }
        parts
    }

    /// A message that is a tool's result as a whole, or a list of result blocks.
    fn of_tool(message: Record<'_>) -> Vec<Returned> {
        let mut parts = Parts::default();
        parts.take_content(message.content);
        if parts.results.is_empty() {
            let id = message.tool_call_id.words().or_else(|| message.name.words());
            parts.results.push(Returned {
                id: id.unwrap_or_default(),
                text: parts.text,
                is_error: message.is_error.is_set(),
            });
        }
        parts.results
    }

    fn take_content(&mut self, content: Content<'_>) {
        let blocks = match content {
            Content::Blocks(blocks) => blocks,
            words => {
                self.text = words.into_text();
                return;
            }
        };
        for block in blocks {
            if block.is_call() {
                self.calls.push(OpenCall {
                    id: block.id.words().unwrap_or_default(),
                    name: block.name.words().unwrap_or_default(),
                    arguments: parsed(block.input),
                });
            } else if block.is_result() {
                self.results.push(returned(block));
            } else if let Some(words) = block.into_words() {
                add_line(&mut self.text, &words);
            }
        }
    }
}

fn returned(block: Block<'_>) -> Returned {
    Returned {
        id: block.tool_use_id.words().unwrap_or_default(),
        text: block.content.map(|content| content.into_text()).unwrap_or_default(),
        is_error: block.is_error.is_set(),
    }
}

/// The arguments as JSON. OpenAI writes them as a string with JSON in it, and some models write
/// an empty one for no arguments.
fn parsed(arguments: Option<Value>) -> Value {
    match arguments {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(Value::String(text)) if text.trim().is_empty() => Value::Object(Map::new()),
        Some(Value::String(text)) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        Some(value) => value,
    }
}

fn largest(one: Option<Usage>, other: Option<Usage>) -> Option<Usage> {
    let (Some(a), Some(b)) = (one, other) else { return one.or(other) };
    Some(Usage {
        input: a.input.max(b.input),
        output: a.output.max(b.output),
        cache_read: a.cache_read.max(b.cache_read),
        cache_write: a.cache_write.max(b.cache_write),
    })
}
