//! OpenAI responses: typed events, each item announced, streamed and repeated when it is done.
//!
//! A call is told once, by the first event that has all of it. The final event repeats the whole
//! answer; calls in it that were not told before are told then.

use deadstop_core::Digest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Sink;
use super::lenient::{Arguments, Count, Failure, Text, many, one, parse, plainly};
use super::openai_usage::OpenAiUsage;
use super::sse::LARGEST_ARGUMENTS;

/// Items that are remembered, to tell each once.
const MOST_ITEMS: usize = 4096;

/// The state of one answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Responses {
    items: Vec<Seen>,
    /// Bytes of arguments that came in parts.
    kept: usize,
    finished: bool,
}

/// What an event is read for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Thought,
    Unseen,
    ItemAdded,
    ItemDone,
    ArgumentsDone,
    End,
    Error,
    Skip,
}

impl Kind {
    fn of(name: &str) -> Kind {
        let Some(name) = name.strip_prefix("response.") else {
            return if name == "error" { Kind::Error } else { Kind::Skip };
        };
        match name {
            "output_text.delta"
            | "refusal.delta"
            | "audio.transcript.delta"
            | "output_audio_transcript.delta" => Kind::Text,
            "reasoning_text.delta"
            | "reasoning_summary_text.delta"
            | "reasoning_summary.delta"
            | "reasoning.delta" => Kind::Thought,
            "function_call_arguments.delta"
            | "mcp_call_arguments.delta"
            | "mcp_call.arguments_delta"
            | "custom_tool_call_input.delta"
            | "code_interpreter_call_code.delta" => Kind::Unseen,
            "output_item.added" => Kind::ItemAdded,
            "output_item.done" => Kind::ItemDone,
            "function_call_arguments.done" | "mcp_call_arguments.done" => Kind::ArgumentsDone,
            "completed" | "incomplete" | "failed" | "cancelled" => Kind::End,
            _ => Kind::Skip,
        }
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    r#type: Text<'a>,
    #[serde(borrow, default)]
    delta: Text<'a>,
    output_index: Option<Count>,
    #[serde(borrow, default)]
    item_id: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    arguments: Text<'a>,
    #[serde(borrow, default, deserialize_with = "one")]
    item: Option<Box<Item<'a>>>,
    #[serde(borrow, default, deserialize_with = "one")]
    response: Option<Box<Response<'a>>>,
    #[serde(borrow, default)]
    message: Text<'a>,
    #[serde(borrow, default)]
    code: Text<'a>,
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    model: Text<'a>,
    #[serde(borrow, default)]
    service_tier: Text<'a>,
    #[serde(borrow, default)]
    status: Text<'a>,
    #[serde(borrow, default, deserialize_with = "many")]
    output: Option<Vec<Item<'a>>>,
    #[serde(default, deserialize_with = "one")]
    usage: Option<OpenAiUsage>,
    error: Option<Failure>,
}

/// Anything in an answer's output, with the fields of all kinds of calls.
#[derive(Deserialize)]
pub(super) struct Item<'a> {
    #[serde(borrow, default)]
    r#type: Text<'a>,
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    call_id: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default, rename = "tool")]
    called: Text<'a>,
    arguments: Option<Arguments>,
    input: Option<Arguments>,
    action: Option<Arguments>,
    operation: Option<Arguments>,
    code: Option<Arguments>,
    queries: Option<Arguments>,
    #[serde(borrow, default, deserialize_with = "many")]
    content: Option<Vec<Part<'a>>>,
    #[serde(borrow, default, deserialize_with = "many")]
    summary: Option<Vec<Part<'a>>>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    refusal: Text<'a>,
}

impl Item<'_> {
    /// Its id, its tool and its arguments.
    pub(super) fn into_call(mut self) -> (String, String, Value) {
        let arguments = self.take_arguments();
        (self.call_id.or(&self.id).to_owned(), self.tool().to_owned(), arguments)
    }

    /// Calls, and requests to approve one: a client that approves by itself runs it.
    pub(super) fn is_call(&self) -> bool {
        let kind = self.r#type.as_str();
        // Mistral writes `function.call`.
        kind.ends_with("_call") || matches!(kind, "mcp_approval_request" | "function.call")
    }

    /// What the tool is called: its name, or what kind of built-in tool it is (`local_shell`).
    fn tool(&self) -> &str {
        let kind = self.r#type.as_str();
        let built_in = kind.strip_suffix("_call").unwrap_or(kind);
        // LM Studio has `tool` in the place of `name`.
        match self.name.or(&self.called) {
            "" => built_in,
            name => name,
        }
    }

    /// The beginning of its arguments, if that is a text with something in it.
    fn begun(&mut self) -> String {
        let given = [self.arguments.take(), self.input.take(), self.code.take()];
        let texts = given.into_iter().flatten().filter_map(|given| match given.0 {
            Value::String(text) => Some(text),
            _ => None,
        });
        texts.collect()
    }

    fn take_arguments(&mut self) -> Value {
        if let Some(arguments) = self.arguments.take() {
            return arguments.unpack();
        }
        if let Some(Arguments(input)) = self.input.take() {
            return json!({ "input": input });
        }
        if let Some(action) = self.action.take().or(self.operation.take()) {
            return action.unpack();
        }
        match (self.code.take(), self.queries.take()) {
            (Some(Arguments(code)), _) => json!({ "code": code }),
            (None, Some(Arguments(queries))) => json!({ "queries": queries }),
            (None, None) => json!({}),
        }
    }
}

impl Responses {
    /// Reads one event.
    pub(super) fn event(&mut self, data: &[u8], sink: &mut Sink<'_>) {
        // Many events repeat the whole request or a whole item: they are not even parsed.
        let skips = leading_type(data).is_some_and(|name| Kind::of(name) == Kind::Skip);
        if skips && has_one_type(data) {
            return;
        }
        let Some(event) = parse::<Event<'_>>(data) else {
            return plainly(data, sink).into_iter().for_each(|data| self.event(&data, sink));
        };
        let index = event.output_index.map(|index| index.0);
        match Kind::of(event.r#type.as_str()) {
            Kind::Text => sink.text(event.delta.as_str()),
            Kind::Thought => sink.thought(event.delta.as_str()),
            Kind::Unseen => {
                sink.unseen(event.delta.as_str());
                self.written(index, &event, sink);
            }
            Kind::ItemAdded => {
                if let Some(mut item) = event.item.filter(|item| item.is_call()) {
                    let mut seen = Seen::of(&item, index);
                    seen.kind = item.r#type.as_str().to_owned();
                    seen.written = item.begun();
                    self.kept += seen.written.len();
                    self.remember(seen);
                }
            }
            Kind::ItemDone => {
                if let Some(item) = event.item {
                    self.item(*item, index, sink);
                }
            }
            Kind::ArgumentsDone => self.arguments_done(&event, sink),
            Kind::End => {
                self.finished = true;
                self.end(event, sink);
            }
            Kind::Error => sink.error(match event.error {
                Some(failure) => failure.0,
                None => event.message.or(&event.code).to_owned(),
            }),
            // Compatible servers may send a bare error.
            Kind::Skip => {
                if let Some(failure) = event.error {
                    sink.error(failure.0);
                }
            }
        }
    }

    /// Reads a whole answer.
    pub(super) fn whole(&mut self, data: &[u8], sink: &mut Sink<'_>) {
        let Some(mut response) = parse::<Response<'_>>(data) else {
            return plainly(data, sink).into_iter().for_each(|data| self.whole(&data, sink));
        };
        for item in response.output.iter_mut().flatten() {
            let thinks = item.r#type.as_str() == "reasoning";
            for part in item.summary.iter().chain(item.content.iter()).flatten() {
                match thinks {
                    true => sink.thought(part.text.as_str()),
                    false => sink.text(part.text.as_str()),
                }
                sink.text(part.refusal.as_str());
            }
        }
        let running = matches!(response.status.as_str(), "queued" | "in_progress");
        self.finished = response.error.is_none() && !running;
        self.response(response, sink);
    }

    /// The upstream has ended.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        self.leftovers(sink);
        if self.finished {
            sink.done();
        }
    }

    fn end(&mut self, event: Event<'_>, sink: &mut Sink<'_>) {
        let failed = event.r#type.as_str() == "response.failed";
        let Some(mut response) = event.response else {
            sink.done();
            return;
        };
        if failed && response.error.is_none() {
            response.error = Some(Failure("the response failed".to_owned()));
        }
        self.response(*response, sink);
        self.leftovers(sink);
        sink.done();
    }

    /// Keeps a part of a call's arguments.
    fn written(&mut self, index: Option<u64>, event: &Event<'_>, sink: &mut Sink<'_>) {
        let part = event.delta.as_str();
        let fits = self.kept + part.len() <= LARGEST_ARGUMENTS;
        let Some(seen) = self.find(index, event.item_id.as_str()) else { return };
        seen.streamed = true;
        if fits {
            seen.written.push_str(part);
            self.kept += part.len();
        } else {
            sink.tally.lost = true;
        }
    }

    /// Tells the calls whose parts alone have come, or have come otherwise than the whole: some clients put a
    /// call together from its parts and wait for nothing else.
    fn leftovers(&mut self, sink: &mut Sink<'_>) {
        for seen in &mut self.items {
            let whole = members(&seen.arguments(Arguments::parse));
            let same = |told: &Vec<Digest>| seen.written.trim().is_empty() || *told == whole;
            let name = if seen.name.is_empty() { &seen.named } else { &seen.name };
            if !name.is_empty() && !seen.told.as_ref().is_some_and(same) {
                let arguments = seen.arguments(Arguments::parse_partly);
                let id = if seen.call_id.is_empty() { &seen.id } else { &seen.call_id };
                sink.call(id.clone(), name.clone(), arguments);
                seen.told = Some(whole);
            }
            seen.written = String::new();
        }
        self.kept = 0;
    }

    fn response(&mut self, response: Response<'_>, sink: &mut Sink<'_>) {
        sink.id(response.id.as_str());
        let counted = &mut sink.tally.counted;
        counted.named(response.model.as_str());
        counted.served(response.service_tier.as_str());
        let items = response.output.iter().flatten();
        let of = |kind: &str| items.clone().filter(|item| item.r#type.as_str() == kind).count();
        counted.searches = counted.searches.max(of("web_search_call") as u64);
        counted.file_searches = counted.file_searches.max(of("file_search_call") as u64);
        for (index, item) in response.output.unwrap_or_default().into_iter().enumerate() {
            self.item(item, u64::try_from(index).ok(), sink);
        }
        if let Some(usage) = response.usage {
            usage.details(&mut sink.tally.counted);
            sink.usage(usage.disjoint(), usage.has_output());
        }
        if let Some(failure) = response.error {
            sink.error(failure.0);
        }
    }

    /// A whole item: tells the call in it, unless it was told.
    fn item(&mut self, mut item: Item<'_>, index: Option<u64>, sink: &mut Sink<'_>) {
        if !item.is_call() {
            return;
        }
        let new = Seen::of(&item, index);
        let arguments = item.take_arguments();
        let members = members(&arguments);
        // The final event may repeat a call without its arguments, and a built-in one in short. A
        // function with fewer of them is another call: a deletion that has lost its condition.
        let shortens = item.r#type.as_str() != "function_call";
        let within = |told: &Vec<Digest>| match shortens {
            true => members.iter().all(|member| told.contains(member)),
            false => members.is_empty() || *told == members,
        };
        let repeats = |seen: &Seen| {
            let named = new.name.is_empty() || seen.named == new.name;
            named && seen.told.as_ref().is_some_and(within)
        };
        if self.items.iter().any(|seen| seen.is(&new) && repeats(seen)) {
            return;
        }
        // Another call under an id that was told is a call of its own.
        let at = match self.items.iter().rposition(|seen| seen.told.is_none() && seen.is(&new)) {
            Some(at) => at,
            None => self.remember(new),
        };
        let Some(seen) = self.items.get_mut(at) else { return };
        seen.told = Some(members);
        item.name.as_str().clone_into(&mut seen.named);
        if !seen.streamed {
            sink.unseen(&arguments.to_string());
        }
        let id = item.call_id.or(&item.id).to_owned();
        sink.call(id, item.tool().to_owned(), arguments);
    }

    /// All arguments of a call are here; its name came when the item was added.
    fn arguments_done(&mut self, event: &Event<'_>, sink: &mut Sink<'_>) {
        let index = event.output_index.map(|index| index.0);
        let Some(seen) = self.find(index, event.item_id.as_str()) else { return };
        let name = if seen.name.is_empty() { event.name.as_str() } else { &seen.name };
        // Without a name there is nothing to judge yet: the item itself follows.
        if seen.told.is_some() || name.is_empty() {
            return;
        }
        if !seen.streamed {
            sink.unseen(event.arguments.as_str());
        }
        let id = if seen.call_id.is_empty() { &seen.id } else { &seen.call_id };
        let arguments = Arguments::parse(event.arguments.as_str());
        let (id, name) = (id.clone(), name.to_owned());
        seen.told = Some(members(&arguments));
        seen.named.clone_from(&name);
        sink.call(id, name, arguments);
    }

    fn find(&mut self, index: Option<u64>, id: &str) -> Option<&mut Seen> {
        let by_id = self.items.iter().rposition(|seen| !id.is_empty() && seen.id == id);
        let by_index =
            || self.items.iter().rposition(|seen| index.is_some() && seen.index == index);
        let at = by_id.or_else(by_index)?;
        self.items.get_mut(at)
    }

    fn remember(&mut self, seen: Seen) -> usize {
        if self.items.len() >= MOST_ITEMS {
            self.items.remove(0);
        }
        self.items.push(seen);
        self.items.len() - 1
    }
}

/// A call that has been announced or told.
#[derive(Debug, Clone, Default)]
struct Seen {
    index: Option<u64>,
    id: String,
    call_id: String,
    name: String,
    /// What kind of item it is, if it was announced.
    kind: String,
    /// Its arguments as their parts have come, which were counted.
    written: String,
    streamed: bool,
    /// What its arguments were when it was told.
    told: Option<Vec<Digest>>,
    /// The name under which it was told.
    named: String,
}

/// Each argument by its digest.
fn members(arguments: &Value) -> Vec<Digest> {
    let of = |name: &str, value: &Value| Digest::of(format!("{name}={value}").as_bytes());
    match arguments {
        Value::Object(map) => map.iter().map(|(name, value)| of(name, value)).collect(),
        other => vec![of("", other)],
    }
}

impl Seen {
    /// Arguments that came in parts, as those of an item of this kind are judged.
    fn arguments(&self, read: fn(&str) -> Value) -> Value {
        match self.kind.as_str() {
            "custom_tool_call" => json!({ "input": self.written }),
            "code_interpreter_call" => json!({ "code": self.written }),
            _ => read(&self.written),
        }
    }

    fn of(item: &Item<'_>, index: Option<u64>) -> Seen {
        Seen {
            index,
            id: item.id.as_str().to_owned(),
            call_id: item.call_id.as_str().to_owned(),
            name: item.name.as_str().to_owned(),
            ..Seen::default()
        }
    }

    /// Whether both are the same item. Ids of items differ between the events of some proxies, and
    /// indexes are wrong on others: the call's own id is the best witness.
    fn is(&self, other: &Seen) -> bool {
        if !self.call_id.is_empty() && !other.call_id.is_empty() {
            let named = !self.name.is_empty() && !other.name.is_empty();
            return self.call_id == other.call_id && !(named && self.name != other.name);
        }
        let same_id = !self.id.is_empty() && self.id == other.id;
        same_id || (self.index.is_some() && self.index == other.index && self.name == other.name)
    }
}

/// Whether no other member of an object may be its type: clients take the last one.
fn has_one_type(data: &[u8]) -> bool {
    let (mut depth, mut types, mut at) = (0_u64, 0, 0);
    // Whether a text that begins now is a member's name.
    let mut names = false;
    while let Some(&byte) = data.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => (depth, names) = (depth + 1, byte == b'{'),
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => names = true,
            b'"' => {
                let from = at;
                while let Some(&inner) = data.get(at).filter(|inner| **inner != b'"') {
                    at += if inner == b'\\' { 2 } else { 1 };
                }
                let text = data.get(from..at).unwrap_or_default();
                if depth == 1 && names {
                    types += u64::from(text == b"type" || text.contains(&b'\\'));
                }
                (at, names) = (at + 1, false);
            }
            _ => {}
        }
    }
    types == 1
}

/// The event's type, if it is the first field, as it is from OpenAI.
fn leading_type(data: &[u8]) -> Option<&str> {
    let rest = data.strip_prefix(b"{\"type\":")?;
    let rest = rest.strip_prefix(b" ").unwrap_or(rest).strip_prefix(b"\"")?;
    let end = rest.iter().take(80).position(|byte| *byte == b'"')?;
    std::str::from_utf8(&rest[..end]).ok()
}
