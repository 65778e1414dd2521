//! Calls in answers whose form is not known: results of batches, runs of assistants, lists of stored answers,
//! and whatever a path that we do not know answers with.
//!
//! A client finds its calls at places that only it knows. So an answer is read in every dialect, because
//! each puts the parts of a stream together in its own way, and every object of it is looked at besides: what has
//! the shape of a call is one. What is found in several ways is told once.

use std::collections::{HashMap, HashSet};

use deadstop_core::{Digest, Tokens, Usage};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::lenient::{Arguments, Count, Text, count};
use super::openai_chat::{Chat, ToolCall};
use super::openai_responses::Item;
use super::whole::{Elements, Parts};
use super::{Sink, Tally, Voice};
use crate::llm::Piece;
use crate::plain;

/// Calls that are remembered. Beyond that, some are told twice.
const MOST: usize = 1 << 16;

/// Finds calls in any form.
#[derive(Debug, Clone)]
pub(super) struct Anywhere {
    /// The readings that put calls together from parts.
    voices: Vec<Voice>,
    /// Calls whose parts come in a form of none of them.
    parts: Chat,
    /// How often each source has told each call, and how often each was told at all.
    counts: HashMap<(usize, Digest), u32>,
    told: HashMap<Digest, u32>,
    /// Calls by their ids: an object may come again.
    ids: HashSet<Digest>,
    /// Whether the answer itself is Ollama's, of which texts and figures are told, too.
    ollama: bool,
}

/// Who has told a call, behind the voices.
const MAIN: usize = 10;
const PARTS: usize = 11;
const SHAPES: usize = 12;

impl Anywhere {
    /// Looks for calls beside what another reading of the same answer tells.
    pub(super) fn beside(voices: Vec<Voice>) -> Anywhere {
        Anywhere {
            voices,
            parts: Chat::default(),
            counts: HashMap::new(),
            told: HashMap::new(),
            ids: HashSet::new(),
            ollama: false,
        }
    }

    /// Reads Ollama's own answers.
    pub(super) fn ollama(voices: Vec<Voice>) -> Anywhere {
        Anywhere { ollama: true, ..Anywhere::beside(voices) }
    }

    /// Calls that another reading of the same answer has told.
    pub(super) fn heard(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            if let Piece::ToolCall { name, arguments, .. } = piece {
                self.is_new(MAIN, name, arguments);
            }
        }
    }

    /// Reads events as the dialects do, and looks for nothing else.
    pub(super) fn read<'e>(
        &mut self,
        events: impl Iterator<Item = &'e [u8]>,
        name: Option<&[u8]>,
        sink: &mut Sink<'_>,
    ) {
        for data in events {
            self.each_voice(sink, |voice, sink| {
                voice.event(data, name, sink);
            });
        }
    }

    /// Reads one event, or one object.
    pub(super) fn event(&mut self, data: &[u8], name: Option<&[u8]>, sink: &mut Sink<'_>) {
        self.each_voice(sink, |voice, sink| {
            voice.event(data, name, sink);
        });
        if data.trim_ascii_start().starts_with(b"{") {
            self.objects(data, sink);
        }
    }

    /// Reads a whole answer: one object, several, or lines of them.
    pub(super) fn whole(&mut self, data: &[u8], sink: &mut Sink<'_>) {
        Elements::default().push(data, |object, _| {
            self.each_voice(sink, |voice, sink| voice.whole(object, sink));
            self.objects(object, sink);
        });
    }

    /// Looks at an object; of one with too many values at those in it.
    fn objects(&mut self, data: &[u8], sink: &mut Sink<'_>) {
        let mut each = |data: &[u8]| {
            if let Ok(value) = plain::read(data) {
                self.object(&value, sink);
            }
        };
        if !plain::is_vast(data) {
            return each(data);
        }
        Parts::default().push(data, each);
        sink.tally.lost = true;
    }

    /// The upstream has ended.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        self.each_voice(sink, Voice::finish);
        self.of_parts(sink, Chat::finish);
    }

    fn object(&mut self, value: &Value, sink: &mut Sink<'_>) {
        if self.ollama {
            said(value, sink);
        }
        let announces = is(value, "type", "response.output_item.added");
        match value {
            Value::Object(_) if announces => {}
            _ => self.look(value, "", sink),
        }
    }

    fn each_voice(
        &mut self,
        sink: &mut Sink<'_>,
        mut reads: impl FnMut(&mut Voice, &mut Sink<'_>),
    ) {
        let mut voices = std::mem::take(&mut self.voices);
        for (source, voice) in voices.iter_mut().enumerate() {
            let (mut pieces, mut tally) = (Vec::new(), Tally::default());
            reads(voice, &mut Sink::new(&mut pieces, &mut tally, sink.held_from));
            sink.tally.lost |= tally.lost;
            self.tell(source, pieces, sink);
        }
        self.voices = voices;
    }

    fn of_parts(&mut self, sink: &mut Sink<'_>, reads: impl FnOnce(&mut Chat, &mut Sink<'_>)) {
        let (mut pieces, mut tally) = (Vec::new(), Tally::default());
        reads(&mut self.parts, &mut Sink::new(&mut pieces, &mut tally, sink.held_from));
        sink.tally.lost |= tally.lost;
        self.tell(PARTS, pieces, sink);
    }

    /// Tells what no other source has told.
    fn tell(&mut self, source: usize, pieces: Vec<Piece>, sink: &mut Sink<'_>) {
        for piece in pieces {
            if let Piece::ToolCall { id, name, arguments, .. } = piece
                && !name.is_empty()
                && self.is_new(source, &name, &arguments)
            {
                sink.unseen(&arguments.to_string());
                sink.call(id, name, arguments);
            }
        }
    }

    /// Whether no source has told this call as often as this one has now.
    fn is_new(&mut self, source: usize, name: &str, arguments: &Value) -> bool {
        if self.counts.len() > MOST {
            (self.counts, self.told) = (HashMap::new(), HashMap::new());
        }
        let digest = Digest::of(format!("{name}\0{arguments}").as_bytes());
        let count = self.counts.entry((source, digest)).or_default();
        *count += 1;
        let told = self.told.entry(digest).or_default();
        let is_new = *count > *told;
        *told = (*told).max(*count);
        is_new
    }

    /// Looks for calls in a value that stands under a name.
    fn look(&mut self, value: &Value, under: &str, sink: &mut Sink<'_>) {
        match value {
            Value::Array(list) => list.iter().for_each(|one| self.look(one, under, sink)),
            Value::Object(map) => self.look_into(map, under, sink),
            _ => {}
        }
    }

    fn look_into(&mut self, map: &Map<String, Value>, under: &str, sink: &mut Sink<'_>) {
        if self.takes_part(map, under, sink) {
            return;
        }
        if let Some(found) = Found::in_object(map, under) {
            return self.found(found, sink);
        }
        for (name, value) in map {
            let name = plain_name(name);
            match (name.as_str(), value) {
                // Parts of calls, which the readings of the dialects put together.
                ("contentblock", _) => {}
                // Definitions of tools, which many answers repeat.
                ("tools" | "toolchoice" | "parameters" | "inputschema", _) => {}
                ("toolcalls" | "functioncall", _) if under == "delta" => {}
                (
                    "function" | "functioncall" | "tooluse" | "toolcall" | "custom",
                    Value::Object(call),
                ) => match Found::in_member(&name, call, map, under) {
                    Some(found) => self.found(found, sink),
                    None => self.look(value, &name, sink),
                },
                ("executablecode", Value::Object(code)) => {
                    self.found(Found::code(code), sink);
                }
                _ => self.look(value, &name, sink),
            }
        }
    }

    fn found(&mut self, found: Found, sink: &mut Sink<'_>) {
        let Found { id, name, arguments } = found;
        if !id.is_empty() {
            if self.ids.len() > MOST {
                self.ids = HashSet::new();
            }
            if !self.ids.insert(Digest::of(format!("{id}\0{name}\0{arguments}").as_bytes())) {
                return;
            }
        }
        let piece = Piece::ToolCall { id, name, arguments, held_from: 0 };
        self.tell(SHAPES, vec![piece], sink);
    }

    /// Takes a part of a call: of an assistant's step, or of a step of Google's interactions.
    fn takes_part(&mut self, map: &Map<String, Value>, under: &str, sink: &mut Sink<'_>) -> bool {
        let member = |name: &str| map.get(name);
        if under == "toolcalls" && map.contains_key("index") {
            // Whatever has no `function` in it is run by the provider and told when it is done.
            if let Ok(call) = ToolCall::deserialize(&Value::Object(map.clone())) {
                self.of_parts(sink, |parts, sink| parts.part(call, sink));
            }
            return true;
        }
        if text(map, &["type"]) == "function.call.delta" {
            let function = json!({ "name": member("name"), "arguments": member("arguments") });
            let id = member("tool_call_id");
            let call = json!({ "index": member("output_index"), "id": id, "function": function });
            if let Ok(call) = ToolCall::deserialize(&call) {
                self.of_parts(sink, |parts, sink| parts.part(call, sink));
            }
            return true;
        }
        let event = member("event_type").and_then(Value::as_str).unwrap_or_default();
        let (Some(index), true) = (member("index"), event.starts_with("step.")) else {
            return false;
        };
        let step = member("step").or(member("delta")).unwrap_or(&Value::Null);
        let kind = step["type"].as_str().unwrap_or_default();
        if kind != "function_call" && kind != "arguments_delta" {
            return false;
        }
        let arguments = match &step["arguments"] {
            Value::Object(whole) if whole.is_empty() => Value::Null,
            other => other.clone(),
        };
        let function = json!({ "name": step["name"], "arguments": arguments });
        let call = json!({ "index": index, "id": step["id"], "function": function });
        if let Ok(call) = ToolCall::deserialize(&call) {
            self.of_parts(sink, |parts, sink| parts.part(call, sink));
        }
        true
    }
}

/// A call.
struct Found {
    id: String,
    name: String,
    arguments: Value,
}

impl Found {
    /// A call that an object is.
    fn in_object(map: &Map<String, Value>, under: &str) -> Option<Found> {
        let kind = text(map, &["type"]);
        if kind.ends_with("tool_use") {
            return Found::named(map, map);
        }
        let fields = ["name", "arguments", "input", "action", "operation", "code", "queries"];
        if fields.iter().any(|field| map.contains_key(*field))
            && let Ok(item) = Item::deserialize(&Value::Object(map.clone()))
            && item.is_call()
        {
            let (id, name, arguments) = item.into_call();
            return Some(Found { id, name, arguments });
        }
        // Some APIs have no member for the function.
        let bare = under == "toolcalls" && !map.keys().any(|key| plain_name(key) == "function");
        if bare { Found::named(map, map) } else { None }
    }

    /// A call that a member of an object describes.
    fn in_member(
        member: &str,
        call: &Map<String, Value>,
        holder: &Map<String, Value>,
        under: &str,
    ) -> Option<Found> {
        let mut found = Found::named(call, holder)?;
        match member {
            // What only names a function is the definition of a tool, or the choice of one.
            "function" if !has(call, &ARGUMENTS) && under != "toolcalls" => return None,
            "custom" if !call.contains_key("input") => return None,
            "custom" => found.arguments = json!({ "input": call.get("input") }),
            _ => {}
        }
        Some(found)
    }

    /// A call by its name and its arguments, whatever they are called.
    fn named(call: &Map<String, Value>, holder: &Map<String, Value>) -> Option<Found> {
        let name = text(call, &["name", "toolname", "tooltype"]);
        if name.is_empty() {
            return None;
        }
        let mut names = ARGUMENTS.to_vec();
        names.push("parameters");
        let given = call.iter().rev().find(|(key, _)| names.contains(&plain_name(key).as_str()));
        let arguments = given.map_or(Value::Null, |(_, given)| given.clone());
        let ids = ["id", "callid", "tooluseid", "toolcallid"];
        let own = text(call, &ids);
        let id = if own.is_empty() { text(holder, &ids) } else { own };
        Some(Found { id, name, arguments: Arguments(arguments).unpack() })
    }

    /// Code that the model wrote and its provider runs.
    fn code(code: &Map<String, Value>) -> Found {
        let arguments =
            json!({ "language": text(code, &["language"]), "code": text(code, &["code"]) });
        Found { id: text(code, &["id"]), name: "code_execution".to_owned(), arguments }
    }
}

/// How APIs call the arguments of a call.
const ARGUMENTS: [&str; 3] = ["arguments", "args", "input"];

fn has(map: &Map<String, Value>, names: &[&str]) -> bool {
    map.keys().any(|key| names.contains(&plain_name(key).as_str()))
}

/// The text of the first member of one of these names; empty without one.
fn text(map: &Map<String, Value>, names: &[&str]) -> String {
    let of = |name: &str| {
        map.iter().rev().find(|(key, _)| plain_name(key) == name).map(|(_, value)| value)
    };
    let mut found =
        names.iter().filter_map(|name| of(name)).filter_map(|value| Text::deserialize(value).ok());
    found.find(|text| !text.is_empty()).map(|text| text.0.into_owned()).unwrap_or_default()
}

/// A member's name as clients read it that mind neither case nor underscores.
fn plain_name(name: &str) -> String {
    let letters = name.chars().filter(|c| !matches!(c, '_' | '-'));
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

fn is(value: &Value, name: &str, expected: &str) -> bool {
    value.get(name).and_then(Value::as_str) == Some(expected)
}

/// What an object of Ollama's says: its texts, its figures, and its end.
fn said(value: &Value, sink: &mut Sink<'_>) {
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    sink.tally.counted.named(&text(value, "model"));
    for holder in [value, &value["message"]] {
        sink.thought(&text(holder, "thinking"));
        sink.text(&text(holder, "content"));
    }
    sink.text(&text(value, "response"));
    let number = |name: &str| Tokens(count(Count::deserialize(&value[name]).ok()));
    let (input, output) = (number("prompt_eval_count"), number("eval_count"));
    if input.0 > 0 || output.0 > 0 {
        sink.usage(Usage { input, output, ..Usage::default() }, true);
    }
    match &value["error"] {
        Value::String(problem) => sink.error(problem.clone()),
        Value::Object(problem) => {
            let told = problem.get("message").and_then(Value::as_str);
            sink.error(told.unwrap_or_default().to_owned());
        }
        _ if value["done"] == true => sink.done(),
        _ => {}
    }
}
