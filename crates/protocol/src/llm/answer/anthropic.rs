//! Anthropic messages: blocks that start, grow and stop; usage that is cumulative.

use deadstop_core::{Tokens, Usage};
use serde::Deserialize;
use serde_json::Value;

use super::lenient::{
    Arguments, Count, Failure, Index, Text, count, many, one, parse, plainly, tree,
};
use super::sse::LARGEST_ARGUMENTS;
use super::{Sink, Tally};
use crate::llm::Piece;

/// Blocks that may be open at once; there is one at a time from Anthropic itself.
const MOST_OPEN: usize = 256;

/// The state of one answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Anthropic {
    open: Vec<Open>,
    /// Blocks that have started: clients find a block by its place, whatever index it was given.
    started: i64,
    kept: usize,
    figures: Figures,
    finished: bool,
    /// The same answer without events that have no name, once there was one that matters.
    named: Option<Box<Named>>,
}

/// The official clients leave out events without a name, and go by the name of a ping. Others go by the
/// data alone.
#[derive(Debug, Clone, Default)]
struct Named {
    read: Anthropic,
    /// The calls that were told since both readings differ.
    told: Vec<(String, Value)>,
}

/// Calls that are told apart in two readings.
const MOST_TOLD: usize = 4096;

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    r#type: Text<'a>,
    #[serde(default)]
    index: Index,
    #[serde(borrow, default, deserialize_with = "one")]
    message: Option<Box<Start<'a>>>,
    #[serde(borrow, default, deserialize_with = "one")]
    content_block: Option<Box<Block<'a>>>,
    #[serde(borrow, default, deserialize_with = "one")]
    delta: Option<Delta<'a>>,
    #[serde(default, deserialize_with = "one")]
    usage: Option<Box<Figures>>,
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Start<'a> {
    /// Clients begin with these blocks; there are none from Anthropic itself.
    #[serde(borrow, default, deserialize_with = "many")]
    content: Option<Vec<Block<'a>>>,
    #[serde(default, deserialize_with = "one")]
    usage: Option<Figures>,
    #[serde(borrow, default)]
    model: Text<'a>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, default)]
    r#type: Text<'a>,
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    input: Option<Arguments>,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    /// Clients read a delta by its type. Compatible servers may leave it out.
    #[serde(default, deserialize_with = "tree")]
    r#type: Option<Value>,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thinking: Text<'a>,
    #[serde(borrow, default)]
    partial_json: Text<'a>,
}

impl Delta<'_> {
    /// Whether it names itself a part of an input.
    fn is_typed(&self) -> bool {
        self.r#type.as_ref().is_some_and(|kind| kind == "input_json_delta")
    }
}

/// A whole message, or an error in its place.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default, deserialize_with = "many")]
    content: Option<Vec<Block<'a>>>,
    #[serde(default, deserialize_with = "one")]
    usage: Option<Figures>,
    #[serde(borrow, default)]
    model: Text<'a>,
    error: Option<Failure>,
}

/// Figures that were told; a later one replaces an earlier one, an absent one leaves it.
#[derive(Debug, Clone, Deserialize, Default)]
struct Figures {
    input_tokens: Option<Count>,
    output_tokens: Option<Count>,
    cache_read_input_tokens: Option<Count>,
    cache_creation_input_tokens: Option<Count>,
    #[serde(default, deserialize_with = "tree")]
    cache_creation: Option<Value>,
    #[serde(default, deserialize_with = "tree")]
    server_tool_use: Option<Value>,
    #[serde(default, deserialize_with = "tree")]
    service_tier: Option<Value>,
}

impl Figures {
    fn replaced_by(self, later: Figures) -> Figures {
        Figures {
            input_tokens: later.input_tokens.or(self.input_tokens),
            output_tokens: later.output_tokens.or(self.output_tokens),
            cache_read_input_tokens: later.cache_read_input_tokens.or(self.cache_read_input_tokens),
            cache_creation_input_tokens: later
                .cache_creation_input_tokens
                .or(self.cache_creation_input_tokens),
            cache_creation: later.cache_creation.or(self.cache_creation),
            server_tool_use: later.server_tool_use.or(self.server_tool_use),
            service_tier: later.service_tier.or(self.service_tier),
        }
    }

    fn usage(&self) -> Usage {
        Usage {
            input: Tokens(count(self.input_tokens)),
            output: Tokens(count(self.output_tokens)),
            cache_read: Tokens(count(self.cache_read_input_tokens)),
            cache_write: Tokens(count(self.cache_creation_input_tokens)),
        }
    }
}

/// A tool call whose input is coming. It is kept after its end: clients add to it what comes later.
#[derive(Debug, Clone, Default)]
struct Open {
    /// The index that it was given, unless another block has it now.
    index: Option<i64>,
    /// Where it stands among all blocks.
    place: i64,
    id: String,
    name: String,
    input: Arguments,
    /// What was written under its index.
    written: String,
    /// What was written under its place in deltas that name their type, which is how the official
    /// clients read, once that is something else.
    placed: Option<String>,
    /// Whether some of that came under an index that counts from the end: clients begin anew with it.
    from_end: bool,
    told: bool,
}

impl Open {
    /// Adds a part of the input; gives the bytes that it took.
    fn write(&mut self, index: i64, started: i64, part: &str, typed: bool) -> usize {
        let by_index = self.index == Some(index);
        let by_place = typed && self.place == from_start(index, started);
        if !by_index && !by_place {
            return 0;
        }
        let before = self.size();
        if by_place && index < 0 && !std::mem::replace(&mut self.from_end, true) {
            self.placed = Some(String::new());
        }
        if by_index != by_place && self.placed.is_none() {
            self.placed = Some(self.written.clone());
        }
        if by_index {
            self.written.push_str(part);
        }
        if let Some(placed) = self.placed.as_mut().filter(|_| by_place) {
            placed.push_str(part);
        }
        self.told = false;
        self.size().saturating_sub(before)
    }

    fn size(&self) -> usize {
        self.written.len() + self.placed.as_ref().map_or(0, String::len)
    }

    fn tell(&mut self, sink: &mut Sink<'_>) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        // A client may go by the index or by the place: both readings are judged.
        let placed = self.placed.as_ref().filter(|placed| **placed != self.written);
        let mut before = None;
        for written in std::iter::once(&self.written).chain(placed) {
            // Compatible servers may bring the whole input with the block's start.
            let arguments = if written.trim().is_empty() {
                Arguments(self.input.0.clone()).unpack()
            } else {
                Arguments::parse_partly(written)
            };
            if before.as_ref() != Some(&arguments) {
                sink.call(self.id.clone(), self.name.clone(), arguments.clone());
            }
            before = Some(arguments);
        }
    }
}

impl Anthropic {
    /// Whether a tool call has begun and is not complete yet.
    pub(super) fn inside_call(&self) -> bool {
        self.open.iter().any(|open| !open.told)
    }

    /// Reads one event, with its name.
    pub(super) fn event(&mut self, data: &[u8], name: Option<&[u8]>, sink: &mut Sink<'_>) {
        let left_out = name.is_none_or(|name| name == b"ping");
        let of_block = || data.windows(BLOCK.len()).any(|window| window == BLOCK);
        if left_out && self.named.is_none() && of_block() {
            self.named = Some(Box::new(Named { read: self.clone(), told: Vec::new() }));
        }
        let before = sink.pieces.len();
        self.read(data, sink);
        if let Some(named) = &mut self.named {
            named.heard(&sink.pieces[before.min(sink.pieces.len())..]);
            if !left_out {
                named.reads(sink, |read, sink| read.read(data, sink));
            }
        }
    }

    fn read(&mut self, data: &[u8], sink: &mut Sink<'_>) {
        let Some(event) = parse::<Event<'_>>(data) else {
            return plainly(data, sink).into_iter().for_each(|data| self.read(&data, sink));
        };
        let given = || i64::try_from(count(event.index.count())).unwrap_or(i64::MAX);
        let index = event.index.place().unwrap_or_else(given);
        match event.r#type.as_str() {
            "content_block_delta" => {
                if let Some(delta) = event.delta {
                    let typed = delta.is_typed();
                    self.delta(index, &delta, typed, sink);
                }
            }
            "content_block_start" => {
                if let Some(block) = event.content_block {
                    self.start(index, *block, sink);
                }
            }
            "content_block_stop" => self.stop(index, sink),
            "message_start" => {
                if let Some(message) = event.message {
                    sink.tally.counted.named(message.model.as_str());
                    self.figures(message.usage, sink);
                    for block in message.content.unwrap_or_default() {
                        self.start(self.started, block, sink);
                    }
                }
            }
            "message_delta" => self.figures(event.usage.map(|told| *told), sink),
            "message_stop" => {
                self.tell_all(sink);
                self.finished = true;
                sink.done();
            }
            // Some clients go by the shape of an event whose type they do not know.
            _ => match (event.content_block, event.delta) {
                (Some(block), _) => self.start(index, *block, sink),
                (None, Some(delta)) => self.delta(index, &delta, false, sink),
                (None, None) => {}
            },
        }
        if let Some(failure) = event.error {
            sink.error(failure.0);
            sink.lone = None;
        }
    }

    /// Reads a whole answer.
    pub(super) fn whole(&mut self, data: &[u8], sink: &mut Sink<'_>) {
        let Some(message) = parse::<Message<'_>>(data) else {
            return plainly(data, sink).into_iter().for_each(|data| self.whole(&data, sink));
        };
        for block in message.content.unwrap_or_default() {
            sink.thought(block.thinking.as_str());
            sink.text(block.text.as_str());
            if is_call(&block) {
                let (id, name) = (block.id.0.into_owned(), block.name.0.into_owned());
                let arguments = block.input.unwrap_or_default().unpack();
                sink.unseen(&arguments.to_string());
                sink.call(id, name, arguments);
            }
        }
        sink.tally.counted.named(message.model.as_str());
        self.figures(message.usage, sink);
        match message.error {
            Some(failure) => sink.error(failure.0),
            None => self.finished = true,
        }
    }

    /// The upstream has ended. A block that never stopped is a call as well: a client has it in the
    /// message that it hands out, with as much of its input as came.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        let before = sink.pieces.len();
        self.tell_all(sink);
        if let Some(named) = &mut self.named {
            named.heard(&sink.pieces[before..]);
            named.reads(sink, Anthropic::tell_all);
        }
        if self.finished {
            sink.done();
        }
    }

    fn tell_all(&mut self, sink: &mut Sink<'_>) {
        for open in &mut self.open {
            open.tell(sink);
        }
    }

    fn start(&mut self, index: i64, block: Block<'_>, sink: &mut Sink<'_>) {
        let place = self.started;
        self.started += 1;
        sink.thought(block.thinking.as_str());
        sink.text(block.text.as_str());
        if !is_call(&block) {
            return;
        }
        self.stop(index, sink);
        if self.open.len() >= MOST_OPEN {
            let mut oldest = self.open.remove(0);
            oldest.tell(sink);
            sink.tally.lost = true;
            self.kept = self.kept.saturating_sub(oldest.size());
        }
        // What comes under its index from now on is the new block's.
        for open in self.open.iter_mut().filter(|open| open.index == Some(index)) {
            open.index = None;
        }
        let input = block.input.unwrap_or_default();
        if !input.is_empty() {
            sink.unseen(&input.0.to_string());
        }
        self.open.push(Open {
            index: Some(index),
            place,
            id: block.id.0.into_owned(),
            name: block.name.0.into_owned(),
            input,
            ..Open::default()
        });
    }

    fn delta(&mut self, index: i64, delta: &Delta<'_>, typed: bool, sink: &mut Sink<'_>) {
        let part = delta.partial_json.as_str();
        match (&delta.thinking, &delta.text) {
            (text, none) | (none, text) if none.is_empty() && part.is_empty() => sink.lone(text),
            _ => {}
        }
        sink.thought(delta.thinking.as_str());
        sink.text(delta.text.as_str());
        sink.unseen(part);
        if part.is_empty() {
            return;
        }
        for open in &mut self.open {
            if self.kept + part.len() <= LARGEST_ARGUMENTS {
                self.kept += open.write(index, self.started, part, typed);
            } else {
                sink.tally.lost = true;
            }
        }
    }

    fn stop(&mut self, index: i64, sink: &mut Sink<'_>) {
        let place = from_start(index, self.started);
        let ends = |open: &&mut Open| open.index == Some(index) || open.place == place;
        for open in self.open.iter_mut().filter(ends) {
            open.tell(sink);
        }
    }

    fn figures(&mut self, told: Option<Figures>, sink: &mut Sink<'_>) {
        if let Some(told) = told {
            let output = told.output_tokens.is_some();
            self.figures = std::mem::take(&mut self.figures).replaced_by(told);
            let Figures { cache_creation, server_tool_use, service_tier, .. } = &self.figures;
            let counted = &mut sink.tally.counted;
            counted.anthropic(cache_creation.as_ref(), server_tool_use.as_ref());
            counted.served(service_tier.as_ref().and_then(Value::as_str).unwrap_or_default());
            sink.usage(self.figures.usage(), output);
        }
    }
}

/// What every event of a block has in its type.
const BLOCK: &[u8] = b"content_block";

impl Named {
    /// Remembers the calls that were told.
    fn heard(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            if let Piece::ToolCall { name, arguments, .. } = piece {
                self.told.push((name.clone(), arguments.clone()));
            }
        }
    }

    /// Lets this reading go on, and tells the calls that the other one has not.
    fn reads(&mut self, sink: &mut Sink<'_>, on: impl FnOnce(&mut Anthropic, &mut Sink<'_>)) {
        let (mut pieces, mut tally) = (Vec::new(), Tally::default());
        on(&mut self.read, &mut Sink::new(&mut pieces, &mut tally, sink.held_from));
        sink.tally.lost |= tally.lost || self.told.len() > MOST_TOLD;
        for piece in pieces {
            if let Piece::ToolCall { id, name, arguments, .. } = piece
                && !self.told.iter().any(|(told, with)| *told == name && *with == arguments)
            {
                self.told.push((name.clone(), arguments.clone()));
                sink.call(id, name, arguments);
            }
        }
    }
}

/// A place among so many blocks, which counts from the end if it is negative.
fn from_start(index: i64, started: i64) -> i64 {
    if index < 0 { index.saturating_add(started) } else { index }
}

/// `tool_use`, and what Anthropic runs itself: `server_tool_use`, `mcp_tool_use`.
fn is_call(block: &Block<'_>) -> bool {
    block.r#type.as_str().ends_with("tool_use")
}
