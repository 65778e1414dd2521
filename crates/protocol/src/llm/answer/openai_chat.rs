//! OpenAI chat completions and everything that calls itself compatible; also embeddings and the
//! older text completions, whose answers have the same frame.
//!
//! A tool call streams as deltas under an index, and nothing marks its end. It counts as complete as
//! soon as its arguments are a whole JSON object (some SDKs run it then, without waiting), and at
//! the latest when the next call starts, a finish reason comes or the stream ends. Until a finish
//! reason the calls are kept, because some servers interleave them.

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::joined::{Joined, Part};
use super::lenient::{
    Arguments, Count, Failure, Index, Text, TextOrTree, count, many, one, parse, plainly,
};
use super::openai_usage::OpenAiUsage;
use super::sse::LARGEST_ARGUMENTS;
use super::{Fate, Sink};

/// Calls that may be open at once; the oldest counts as complete when there are more.
const MOST_OPEN: usize = 256;

/// The state of one answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Chat {
    open: Vec<Open>,
    /// The same calls as the official clients join them.
    joined: Joined,
    /// Bytes of arguments of all open calls.
    kept: usize,
    /// A finish reason came: the answer may end without `[DONE]`.
    finished: bool,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default, deserialize_with = "many")]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default, deserialize_with = "one")]
    usage: Option<Box<OpenAiUsage>>,
    error: Option<Failure>,
    #[serde(borrow, default)]
    object: Text<'a>,
    #[serde(borrow, default)]
    message: Text<'a>,
    #[serde(borrow, default)]
    model: Text<'a>,
    #[serde(borrow, default)]
    service_tier: Text<'a>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: Index,
    #[serde(borrow, default, deserialize_with = "one")]
    delta: Option<Message<'a>>,
    #[serde(borrow, default, deserialize_with = "one")]
    message: Option<Box<Message<'a>>>,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    finish_reason: Text<'a>,
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Text<'a>,
    #[serde(borrow, default)]
    refusal: Text<'a>,
    #[serde(borrow, default)]
    reasoning: Text<'a>,
    #[serde(borrow, default)]
    reasoning_content: Text<'a>,
    #[serde(borrow, default, deserialize_with = "many")]
    tool_calls: Option<Vec<ToolCall<'a>>>,
    #[serde(borrow, default, deserialize_with = "one")]
    function_call: Option<Box<Function<'a>>>,
}

#[derive(Deserialize, Default)]
pub(super) struct ToolCall<'a> {
    #[serde(default)]
    index: Index,
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default, deserialize_with = "one")]
    function: Option<Function<'a>>,
    #[serde(borrow, default, deserialize_with = "one")]
    custom: Option<Custom<'a>>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    arguments: Written<'a>,
}

#[derive(Deserialize)]
struct Custom<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    input: Text<'a>,
}

/// Arguments as a text of JSON; some servers send the object itself.
enum Written<'a> {
    Text(std::borrow::Cow<'a, str>),
    Object(Arguments),
}

impl<'de: 'a, 'a> Deserialize<'de> for Written<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Written<'a>, D::Error> {
        Ok(match TextOrTree::deserialize(deserializer)? {
            TextOrTree::Text(text) => Written::Text(text),
            TextOrTree::Tree(tree) => Written::Object(Arguments(tree)),
        })
    }
}

impl Default for Written<'_> {
    fn default() -> Self {
        Written::Text("".into())
    }
}

impl<'a> Chunk<'a> {
    /// The text of a chunk that brings nothing else.
    fn lone(&self) -> Option<&Text<'a>> {
        let Chunk { choices, usage, error, object, message: _, model: _, service_tier: _ } = self;
        let [choice] = choices.as_deref()? else { return None };
        let Choice { index: _, delta, message, text, finish_reason, error: failed } = choice;
        let others = usage.is_some()
            || error.is_some()
            || failed.is_some()
            || message.is_some()
            || object.as_str() == "error"
            || !finish_reason.is_empty();
        let delta = delta.as_ref()?;
        let calls = delta.tool_calls.is_some() || delta.function_call.is_some();
        if others || calls {
            return None;
        }
        let texts =
            [text, &delta.reasoning, &delta.reasoning_content, &delta.content, &delta.refusal];
        let mut said = texts.into_iter().filter(|text| !text.is_empty());
        said.next().filter(|_| said.next().is_none())
    }
}

impl Chat {
    /// Reads one event.
    pub(super) fn event(&mut self, data: &[u8], sink: &mut Sink<'_>) -> Fate {
        if data.trim_ascii() == b"[DONE]" {
            self.complete(None, sink);
            sink.done();
            return Fate::Pass;
        }
        let Some(chunk) = parse::<Chunk<'_>>(data) else {
            return plainly(data, sink).map_or(Fate::Pass, |data| self.event(&data, sink));
        };
        let extra = chunk.choices.as_ref().is_none_or(Vec::is_empty)
            && chunk.usage.is_some()
            && chunk.error.is_none();
        if let Some(text) = chunk.lone() {
            sink.lone(text);
        }
        self.chunk(chunk, sink);
        if extra { Fate::Hide } else { Fate::Pass }
    }

    /// Reads a whole answer.
    pub(super) fn whole(&mut self, data: &[u8], sink: &mut Sink<'_>) {
        let Some(chunk) = parse::<Chunk<'_>>(data) else {
            return plainly(data, sink).into_iter().for_each(|data| self.whole(&data, sink));
        };
        self.finished = chunk.error.is_none() && chunk.object.as_str() != "error";
        self.chunk(chunk, sink);
    }

    /// The upstream has ended.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        self.complete(None, sink);
        if self.finished {
            sink.done();
        }
    }

    /// A part of a call that an answer of another form brings.
    pub(super) fn part(&mut self, call: ToolCall<'_>, sink: &mut Sink<'_>) {
        self.delta(Index::default(), call, false, sink);
    }

    fn chunk(&mut self, chunk: Chunk<'_>, sink: &mut Sink<'_>) {
        sink.tally.counted.named(chunk.model.as_str());
        sink.tally.counted.served(chunk.service_tier.as_str());
        for choice in chunk.choices.unwrap_or_default() {
            self.choice(choice, sink);
        }
        if let Some(usage) = chunk.usage {
            usage.details(&mut sink.tally.counted);
            sink.usage(usage.disjoint(), usage.has_output());
        }
        if let Some(failure) = chunk.error {
            sink.error(failure.0);
        } else if chunk.object.as_str() == "error" {
            sink.error(chunk.message.0.into_owned());
        }
    }

    fn choice(&mut self, choice: Choice<'_>, sink: &mut Sink<'_>) {
        let number = choice.index;
        sink.text(choice.text.as_str());
        let mut places = Vec::new();
        let whole = choice.message.map(|message| (*message, true));
        for (message, whole) in choice.delta.map(|delta| (delta, false)).into_iter().chain(whole) {
            sink.thought(message.reasoning.or(&message.reasoning_content));
            sink.text(message.content.as_str());
            sink.text(message.refusal.as_str());
            let calls = message.tool_calls.unwrap_or_default();
            places.extend(calls.iter().filter_map(|call| call.index.place()));
            for call in calls {
                self.delta(number, call, false, sink);
                if whole {
                    // Nothing continues it, whatever id the next one has.
                    self.complete(Some(number), sink);
                    self.forget(number);
                }
            }
            if let Some(function) = message.function_call {
                let call = ToolCall { function: Some(*function), ..ToolCall::default() };
                self.delta(number, call, true, sink);
            }
        }
        if let Some(choice) = number.place().filter(|_| !places.is_empty()) {
            self.joined.came(choice, &places, &told_by(&self.open), sink);
        }
        if !choice.finish_reason.is_empty() {
            self.finished = true;
            self.complete(Some(number), sink);
        }
        if let Some(failure) = choice.error {
            sink.error(failure.0);
        }
    }

    /// One delta of a tool call.
    fn delta(&mut self, number: Index, call: ToolCall<'_>, legacy: bool, sink: &mut Sink<'_>) {
        let choice = count(number.count());
        let index = if legacy { Some(Count(u64::MAX)) } else { call.index.count() };
        let custom = call.custom.is_some();
        let (name, written) = match (call.function, call.custom) {
            (Some(function), _) => (function.name, function.arguments),
            (None, Some(custom)) => (custom.name, Written::Text(custom.input.0)),
            (None, None) => (Text::default(), Written::default()),
        };
        let part = Part {
            place: if legacy { None } else { call.index.place() },
            id: call.id.as_str(),
            name: name.as_str(),
            arguments: match &written {
                Written::Text(text) => Some(text),
                Written::Object(Arguments(Value::Null)) => Some(""),
                Written::Object(_) => None,
            },
        };
        let fits = self.kept + part.arguments.map_or(0, str::len) <= LARGEST_ARGUMENTS;
        if fits
            && let Some(choice) = number.place()
            && (legacy || part.place.is_some())
        {
            self.kept += self.joined.add(choice, part);
        }
        sink.tally.lost |= !fits;
        let at = match self.find(choice, index, call.id.as_str(), name.as_str()) {
            Some(at) => at,
            None => {
                self.start(choice, custom, sink);
                self.open.len() - 1
            }
        };
        let Some(open) = self.open.get_mut(at) else { return };
        open.index = index.or(open.index);
        if open.id.is_empty() {
            open.id.push_str(call.id.as_str());
        }
        if open.name != name.as_str() && !name.is_empty() {
            // Clients join the parts of a name. What was judged is not what they will see.
            open.name.push_str(name.as_str());
            open.told = false;
        }
        let is_object = matches!(&written, Written::Object(Arguments(value)) if !value.is_null());
        if open.object && !is_object && !matches!(&written, Written::Text(text) if text.is_empty())
        {
            // Clients do not join an object and a text: the text takes its place.
            open.tell(sink);
            self.kept = self.kept.saturating_sub(open.arguments.len());
            (open.arguments, open.balance) = (String::new(), Balance::default());
        }
        open.object = is_object;
        let text = match written {
            Written::Text(text) => text,
            Written::Object(Arguments(Value::Null)) => "".into(),
            Written::Object(Arguments(object)) => object.to_string().into(),
        };
        sink.unseen(&text);
        if self.kept + text.len() <= LARGEST_ARGUMENTS {
            self.kept += text.len();
            open.write(&text);
        } else {
            sink.tally.lost = true;
        }
        if open.balance.whole() {
            open.tell(sink);
        }
    }

    /// The open call that a delta continues. An index says which; but some servers send no index,
    /// or 0 for every call, so a new id starts a new call whatever its index is, and so does a name
    /// without an id after a call that is complete.
    fn find(&self, choice: u64, index: Option<Count>, id: &str, name: &str) -> Option<usize> {
        self.open.iter().rposition(|open| {
            let same_id = open.id == id || id.is_empty() || open.id.is_empty();
            open.choice == choice
                && match index {
                    Some(_) if id.is_empty() && !name.is_empty() && open.told => false,
                    Some(_) => open.index == index && same_id,
                    None if id.is_empty() => name.is_empty(),
                    None if open.told && !name.is_empty() && open.name != name => false,
                    None => open.id == id,
                }
        })
    }

    /// Starts a call; those before it in the same choice are complete now, unless their arguments
    /// are visibly not.
    fn start(&mut self, choice: u64, custom: bool, sink: &mut Sink<'_>) {
        for open in &mut self.open {
            if open.choice == choice && !open.balance.unfinished() {
                open.tell(sink);
            }
        }
        if self.open.len() >= MOST_OPEN {
            let mut oldest = self.open.remove(0);
            oldest.tell(sink);
            sink.tally.lost = true;
            self.kept = self.kept.saturating_sub(oldest.arguments.len());
        }
        self.open.push(Open { choice, custom, ..Open::default() });
    }

    /// The calls of one choice, or of all, are complete. They are kept: clients add to them what
    /// comes after a finish reason.
    fn complete(&mut self, number: Option<Index>, sink: &mut Sink<'_>) {
        let choice = number.map(|number| count(number.count()));
        let place = number.map(|number| number.place().unwrap_or_default());
        for open in &mut self.open {
            if choice.is_none_or(|choice| open.choice == choice) {
                open.tell(sink);
            }
        }
        self.joined.tell(place, &told_by(&self.open), sink);
    }

    /// Nothing continues the calls of this choice.
    fn forget(&mut self, number: Index) {
        self.open.retain(|open| open.choice != count(number.count()));
        self.joined.forget(number.place().unwrap_or_default());
        self.kept = self.open.iter().map(|open| open.arguments.len()).sum();
    }
}

/// Whether one of these calls has the name, and the arguments if there are any.
fn told_by(open: &[Open]) -> impl Fn(&str, Option<&str>) -> bool {
    move |name, arguments| {
        let same = |open: &Open| arguments.is_none_or(|text| open.arguments.trim() == text);
        open.iter().any(|open| open.name == name && same(open))
    }
}

/// A tool call whose deltas are coming.
#[derive(Debug, Clone, Default)]
struct Open {
    choice: u64,
    index: Option<Count>,
    custom: bool,
    id: String,
    name: String,
    arguments: String,
    /// Whether they came as an object last.
    object: bool,
    balance: Balance,
    told: bool,
}

impl Open {
    fn write(&mut self, text: &str) {
        if self.told && !text.trim().is_empty() {
            // It was not complete after all: what was judged is not what the client will see.
            self.told = false;
        }
        self.arguments.push_str(text);
        if !self.custom {
            self.balance.read(text);
        }
    }

    fn tell(&mut self, sink: &mut Sink<'_>) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        let arguments = if self.custom {
            json!({ "input": self.arguments })
        } else {
            Arguments::parse(&self.arguments)
        };
        sink.call(self.id.clone(), self.name.clone(), arguments);
    }
}

/// Follows arguments as they are written, to know when they are a whole object.
#[derive(Debug, Clone, Default)]
struct Balance {
    depth: u64,
    in_text: bool,
    escaped: bool,
    started: bool,
    ended: bool,
    more: bool,
}

impl Balance {
    fn read(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_text => self.escaped = true,
                b'"' if self.started => self.in_text = !self.in_text,
                _ if self.in_text => {}
                b' ' | b'\n' | b'\r' | b'\t' => {}
                _ if self.ended => self.more = true,
                b'{' => {
                    self.started = true;
                    self.depth += 1;
                }
                b'}' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.ended = self.started && self.depth == 0;
                }
                // A text, a number or a list is no arguments object: only an end mark ends it.
                _ if !self.started => (self.ended, self.more) = (true, true),
                _ => {}
            }
        }
    }

    /// Exactly one object has been written.
    fn whole(&self) -> bool {
        self.ended && !self.more
    }

    /// An object has been started and not ended.
    fn unfinished(&self) -> bool {
        self.started && !self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_object_is_recognised() {
        let check = |written: &str, whole: bool, unfinished: bool| {
            let mut balance = Balance::default();
            for part in written.split_inclusive('"') {
                balance.read(part);
            }
            assert_eq!((balance.whole(), balance.unfinished()), (whole, unfinished), "{written}");
        };
        check("", false, false);
        check("{}", true, false);
        check(" {\"a\": {\"b\": \"}\\\"\"}} \n", true, false);
        check("{\"a\": \"}", false, true);
        check("{\"a\": [1,", false, true);
        check("{}{}", false, false);
        check("\"{}\"", false, false);
        check("null", false, false);
    }
}
