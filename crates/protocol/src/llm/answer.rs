//! Answers as they pass: what the model wrote, which tools it calls, what it cost.
//!
//! A [`Reader`] sees a copy of the bytes and tells what they brought. It never changes them, with
//! one exception: the usage chunk that the gateway asked OpenAI for is kept from a client that did
//! not ask.
//!
//! # What is held, and when
//! [`Piece::ToolCall`] says from where on bytes must wait until the call is judged: `held_from`
//! counts in what the same call of `push` lets pass, which is the bytes just pushed
//! ([`Pass::All`]) or the bytes given back ([`Pass::Bytes`]). An event that was cut has its
//! beginning with the client already, and `held_from` is 0; without the empty line that ends it, an
//! event means nothing. A refusal must then not begin with that empty line: see
//! [`Reader::between_events`].
//!
//! An answer that is JSON as a whole is read at its end, so its calls come from `finish` with
//! `held_from` 0: the gateway keeps the last bytes of such an answer until `finish` has spoken.

mod anthropic;
mod anywhere;
mod budget;
pub mod counted;
pub mod echo;
mod gemini;
mod joined;
mod lenient;
mod mould;
mod nearer;
mod openai_chat;
mod openai_responses;
mod openai_usage;
mod partial;
pub(crate) mod sse;
mod whole;

use std::borrow::Cow;

use deadstop_core::{Tokens, Usage};
use serde::de::IgnoredAny;
use serde_json::Value;

use self::anywhere::Anywhere;
use self::counted::Counted;
use self::echo::Echo;
use self::lenient::Text;
use self::mould::Mould;
pub use self::nearer::nearer;
use self::sse::{Borders, Carry};
use self::whole::{Elements, Whole};
use super::{Dialect, Piece};

/// The form an answer comes in, by the content type of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// Server-sent events.
    Events,
    /// One JSON document.
    Json,
    /// Objects one after the other: the list that Gemini's `streamGenerateContent` sends without `alt=sse`,
    /// and lines of JSON.
    Objects,
    /// A file: one of JSON, or of lines of it, is read like the above, and any other is not read.
    File,
}

/// What may be passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pass {
    /// The bytes just pushed, as they are.
    All,
    /// These bytes instead: something was kept from the client, held back or released.
    Bytes(Vec<u8>),
}

/// Reads an answer as it passes, in pieces of any size.
///
/// ```
/// use deadstop_core::Tokens;
/// use deadstop_protocol::llm::answer::{Form, Pass, Reader};
/// use deadstop_protocol::llm::{Dialect, Piece};
///
/// let mut reader = Reader::new(Dialect::OpenAiChat, Form::Events, false);
/// let mut pieces = Vec::new();
/// let bytes = b"data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"}}]}\n\ndata: [DO";
/// assert_eq!(reader.push(bytes, &mut pieces), Pass::All);
/// assert_eq!(pieces, [Piece::Text("Hello".into())]);
/// assert_eq!(reader.output_so_far(), Tokens(2));
/// reader.push(b"NE]\n\n", &mut pieces);
/// assert_eq!(pieces.last(), Some(&Piece::Done));
/// ```
#[derive(Debug)]
pub struct Reader {
    voice: Voice,
    frame: Frame,
    tally: Tally,
}

/// How the answer is divided.
#[derive(Debug)]
enum Frame {
    Events { borders: Borders, carry: Carry, hiding: Hiding, mould: Mould, held: Held },
    Json(Whole),
    List(Elements),
}

/// Whether usage chunks are kept from the client.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Hiding {
    Never,
    /// They are; the last event was passed on.
    LastPassed,
    /// They are; the last event was one.
    LastHidden,
}

/// Events of a tool call that is not complete yet. What it asks for must not reach the agent before it
/// was judged, so its events wait until they are all there.
#[derive(Debug, Default)]
struct Held {
    /// Whether anything may be held: not in an answer that is packed.
    may: bool,
    bytes: Vec<u8>,
    /// Whether the event that has begun is held as well.
    begun: bool,
}

/// Bytes of a tool call beyond which its events pass as they come.
const MOST_HELD: usize = 4 << 20;

/// How its parts are understood.
#[derive(Debug, Clone)]
enum Voice {
    Chat(openai_chat::Chat),
    Responses(openai_responses::Responses),
    Anthropic(anthropic::Anthropic),
    Gemini(gemini::Gemini),
    /// In any form.
    Anywhere(Box<Anywhere>),
    /// In one dialect, and in any other form besides.
    Guessed(Box<(Voice, Anywhere)>),
    /// As the standard ends lines, and as some clients do.
    Forked(Box<(Voice, Anywhere)>),
}

impl Reader {
    /// A reader for one answer. `hide_usage` says that the usage chunk of an OpenAI chat stream was
    /// asked for by the gateway and not by the client; it means nothing to other answers.
    pub fn new(dialect: Dialect, form: Form, hide_usage: bool) -> Reader {
        let voice = Voice::of(dialect);
        let hides = hide_usage && dialect == Dialect::OpenAiChat;
        let frame = match form {
            Form::Events => Frame::Events {
                borders: Borders::default(),
                carry: Carry::default(),
                hiding: if hides { Hiding::LastPassed } else { Hiding::Never },
                mould: Mould::default(),
                held: Held::default(),
            },
            Form::Json => Frame::Json(Whole::default()),
            Form::Objects => Frame::List(Elements::default()),
            Form::File => Frame::List(Elements::of_file()),
        };
        Reader { voice, frame, tally: Tally::default() }
    }

    /// Looks for calls of any form besides: only the content of the request says which dialect it may be, and
    /// the answer may come in another one.
    pub fn look_anywhere(&mut self) {
        let voice = std::mem::replace(&mut self.voice, Voice::Chat(openai_chat::Chat::default()));
        self.voice = voice.and_others();
    }

    /// Holds the events of a tool call back until it is complete. Only for answers of which parts can be
    /// held: such that are not packed.
    pub fn hold_calls(&mut self) {
        if let Frame::Events { held, .. } = &mut self.frame {
            held.may = true;
        }
    }

    /// Reads an answer that is too large to be read as a whole object by object; [`Reader::lost`] tells whether
    /// anything was left out.
    pub fn read_by_parts(&mut self) {
        if let Frame::Json(whole) = &mut self.frame {
            whole.by_parts();
        }
    }

    /// Leaves [`Reader::echo`] empty: the session has a name, and is not looked for by what it says.
    pub fn without_echo(&mut self) {
        self.tally.silent = true;
    }

    /// Reads the next bytes (decoded, if the answer is compressed), appends what they brought, and
    /// says which bytes may be passed on now.
    pub fn push(&mut self, bytes: &[u8], pieces: &mut Vec<Piece>) -> Pass {
        let pass = self.read(bytes, pieces);
        self.tally.lost |= budget::was_spent();
        pass
    }

    fn read(&mut self, bytes: &[u8], pieces: &mut Vec<Piece>) -> Pass {
        let Reader { voice, frame, tally } = self;
        match frame {
            Frame::Events { borders, carry, hiding, mould, held } => {
                Events { voice, tally, borders, carry, hiding, mould, held }.push(bytes, pieces)
            }
            Frame::Json(whole) => {
                if let Some(kept) = whole.push(bytes) {
                    self.goes_on_by_parts(&kept, bytes, pieces);
                }
                Pass::All
            }
            Frame::List(elements) => {
                elements.push(bytes, |object, held_from| {
                    voice.event(object, None, &mut Sink::new(pieces, tally, held_from));
                });
                Pass::All
            }
        }
    }

    /// The answer is too large to be read as a whole: from here on, its objects are.
    fn goes_on_by_parts(&mut self, kept: &[u8], bytes: &[u8], pieces: &mut Vec<Piece>) {
        self.frame = Frame::List(Elements::of_file());
        for part in [kept, bytes] {
            self.read(part, pieces);
        }
        if let Frame::List(elements) = &self.frame {
            self.tally.lost |= elements.is_other();
        }
    }

    /// The upstream has ended. An event that lacks only its empty line is read all the same.
    pub fn finish(&mut self, pieces: &mut Vec<Piece>) -> Pass {
        let Reader { voice, frame, tally } = self;
        let before = pieces.len();
        let mut sink = Sink::new(pieces, tally, 0);
        let mut pass = Pass::All;
        let mut without = None;
        match frame {
            Frame::Events { carry, hiding, held, .. } => {
                let rest = carry.take(&[]);
                if rest.readable && sse::data(&rest.bytes).is_some() {
                    // Clients that go by the standard leave it out.
                    without = Some(Anywhere::beside(vec![voice.clone()]));
                }
                let fate = match rest.readable {
                    true => voice.hear(&rest.bytes, &mut sink),
                    false => Fate::Pass,
                };
                let keeps = *hiding != Hiding::Never || held.begun;
                let mut last = std::mem::take(&mut held.bytes);
                if keeps && fate == Fate::Pass {
                    last.extend_from_slice(&rest.bytes);
                }
                if !last.is_empty() {
                    pass = Pass::Bytes(last);
                }
            }
            Frame::Json(whole) => document(voice, &whole.take(), &mut sink),
            Frame::List(_) => {}
        }
        voice.finish(&mut sink);
        if let Some(mut without) = without {
            without.heard(sink.pieces.get(before..).unwrap_or_default());
            without.finish(&mut sink);
        }
        self.tally.lost |= budget::was_spent();
        pass
    }

    /// Whether what was pushed so far ends where an event (or a list's element) ends. If it does
    /// not, the client has the beginning of an event, and an error event that follows must first
    /// spoil it: after a bare empty line the client would take the rest for whole. Ask before the
    /// push whose call may be refused.
    pub fn between_events(&self) -> bool {
        match &self.frame {
            Frame::Events { carry, hiding, held, .. } => {
                // In hiding mode the beginning of an event is held back, unless it is too large.
                let keeps = *hiding != Hiding::Never || held.begun;
                !carry.inside() || (keeps && !carry.too_large())
            }
            Frame::Json(_) => true,
            Frame::List(elements) => !elements.inside(),
        }
    }

    /// Whether there was more than is read: an event, a list's element, or the arguments of calls were too
    /// large, or there were too many calls at once. What the client has then was not judged, or only by the objects
    /// in it.
    pub fn lost(&self) -> bool {
        let unread = match &self.frame {
            Frame::Events { carry, .. } => carry.lost(),
            Frame::Json(whole) => whole.lost(),
            Frame::List(elements) => elements.lost(),
        };
        unread || self.tally.lost
    }

    /// Whether a whole answer is nothing that could be read: a client may know its form all the same. Ask
    /// when it has ended.
    pub fn unread(&self) -> bool {
        self.tally.unread
    }

    /// Output tokens so far: the provider's own figure where one came, plus an estimate of what was
    /// written since. The estimate (a token is four characters, rounded up) only grows; a figure
    /// that replaces it may be lower, and is right.
    pub fn output_so_far(&self) -> Tokens {
        self.tally.output()
    }

    /// What the next request will repeat of this answer: see [`Echo`].
    pub fn echo(&self) -> &Echo {
        &self.tally.echo
    }

    /// What its bill counts beside tokens.
    pub fn counted(&self) -> &Counted {
        &self.tally.counted
    }

    /// The answer's own id, where a later request may refer to it by that.
    pub fn id(&self) -> Option<&str> {
        self.tally.id.as_deref()
    }

    /// The provider's figures so far. Those of a stream that was cut may know little of its output:
    /// charge the greater of this and [`Reader::output_so_far`] then.
    pub fn usage(&self) -> Option<Usage> {
        self.tally.usage
    }
}

/// One push of events, with all it needs.
struct Events<'a> {
    voice: &'a mut Voice,
    tally: &'a mut Tally,
    borders: &'a mut Borders,
    carry: &'a mut Carry,
    hiding: &'a mut Hiding,
    mould: &'a mut Mould,
    held: &'a mut Held,
}

impl Events<'_> {
    fn push(&mut self, bytes: &[u8], pieces: &mut Vec<Piece>) -> Pass {
        let hides = *self.hiding != Hiding::Never;
        let holds = self.held.begun || !self.held.bytes.is_empty();
        // While `changed` is empty, what passes is exactly the bytes before `start`.
        let mut changed: Option<Vec<u8>> = (holds || (hides && self.carry.inside())).then(Vec::new);
        let mut start = self.borders.rest_of_last(bytes);
        if start > 0 && *self.hiding == Hiding::LastHidden {
            changed = Some(Vec::new());
        } else if holds {
            // The rest of the empty line that ends the last event, which is held.
            self.held.bytes.extend_from_slice(&bytes[..start]);
        }
        let (inside, first) = (self.carry.inside(), start);
        while let Some(length) = self.borders.end(&bytes[start..]) {
            let begun_before = self.carry.inside() && !hides && !self.held.begun;
            let held_from = match &changed {
                _ if begun_before => 0,
                Some(passed) => passed.len(),
                None => start,
            };
            let event = self.carry.take(&bytes[start..start + length]);
            let fate = match event.readable {
                true => {
                    let mut sink = Sink::new(pieces, self.tally, held_from);
                    read(self.voice, self.mould, &event.bytes, &mut sink)
                }
                false => Fate::Pass,
            };
            if self.held.may
                && self.holds(&event.bytes, begun_before, &mut changed, &bytes[..start])
            {
                self.carry.reuse(event);
                start += length;
                continue;
            }
            if hides {
                let hidden = fate == Fate::Hide;
                *self.hiding = if hidden { Hiding::LastHidden } else { Hiding::LastPassed };
                if hidden && changed.is_none() {
                    changed = Some(bytes[..start].to_vec());
                }
                if let Some(passed) = &mut changed
                    && !hidden
                {
                    passed.extend_from_slice(&event.bytes);
                }
            }
            self.carry.reuse(event);
            start += length;
        }
        let goes_on = inside && start == first;
        let too_large = self.carry.keep(&bytes[start..]);
        let holding = self.held.begun || !self.held.bytes.is_empty();
        // An event whose beginning has passed passes; the next one of a call is held from its start.
        let holds = match goes_on {
            true => self.held.begun,
            false => self.held.may && (self.voice.inside_call() || holding),
        };
        self.held.begun = self.carry.inside() && holds && too_large.is_none();
        if let (true, Some(large)) = (holding, &too_large) {
            // Too large to be judged: it passes, and so does what was held.
            let passed = changed.get_or_insert_with(|| bytes[..start].to_vec());
            passed.append(&mut self.held.bytes);
            passed.extend_from_slice(large);
        } else if (hides && self.carry.inside()) || self.held.begun {
            let passed = changed.get_or_insert_with(|| bytes[..start].to_vec());
            passed.extend_from_slice(&too_large.unwrap_or_default());
        } else if let Some(passed) = &mut changed
            && !hides
        {
            passed.extend_from_slice(&bytes[start..]);
        }
        changed.map_or(Pass::All, Pass::Bytes)
    }

    /// Holds an event that is part of a tool call; whatever ends the call releases what was held.
    fn holds(
        &mut self,
        event: &[u8],
        begun_before: bool,
        changed: &mut Option<Vec<u8>>,
        before: &[u8],
    ) -> bool {
        let small = self.held.bytes.len() + event.len() <= MOST_HELD;
        if self.voice.inside_call() && small && !begun_before {
            changed.get_or_insert_with(|| before.to_vec());
            self.held.bytes.extend_from_slice(event);
            self.held.begun = false;
            return true;
        }
        let Some(passed) = changed else { return false };
        passed.append(&mut self.held.bytes);
        self.held.begun = false;
        if *self.hiding == Hiding::Never {
            passed.extend_from_slice(event);
        }
        *self.hiding == Hiding::Never
    }
}

/// Reads an answer that is JSON as a whole. Clients that asked for a stream read events in whatever comes,
/// so what is no JSON is read as events.
fn document(voice: &mut Voice, bytes: &[u8], sink: &mut Sink<'_>) {
    let before = sink.pieces.len();
    voice.whole(bytes, sink);
    if sink.pieces.len() > before || serde_json::from_slice::<IgnoredAny>(bytes).is_ok() {
        return;
    }
    let (mut borders, mut rest, mut events) = (Borders::default(), bytes, false);
    while !rest.is_empty() {
        let (event, after) = rest.split_at(borders.end(rest).unwrap_or(rest.len()));
        events |= sse::data(event).is_some();
        voice.hear(event, sink);
        rest = after;
    }
    sink.tally.unread = !events && bytes.iter().any(|byte| is_binary(*byte));
}

/// Whether a byte is in no text that a client could read as JSON or as events.
fn is_binary(byte: u8) -> bool {
    byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | 0x1b..=0x1f)
}

/// Reads one event, from its form if it is the one before with another text in it.
fn read(voice: &mut Voice, mould: &mut Mould, event: &[u8], sink: &mut Sink<'_>) -> Fate {
    if let Some(text) = mould.text(event) {
        match mould.thought {
            true => sink.thought(text),
            false => sink.text(text),
        }
        return Fate::Pass;
    }
    let fate = voice.hear(event, sink);
    if let Some(lone) = sink.lone {
        mould.learn(event, lone);
        mould.thought = sink.thinking;
    }
    fate
}

/// What becomes of an event when usage is hidden.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Pass,
    Hide,
}

impl Voice {
    fn of(dialect: Dialect) -> Voice {
        match dialect {
            Dialect::OpenAiChat | Dialect::OpenAiEmbeddings => {
                Voice::Chat(openai_chat::Chat::default())
            }
            Dialect::OpenAiResponses => Voice::Responses(openai_responses::Responses::default()),
            Dialect::Anthropic => Voice::Anthropic(anthropic::Anthropic::default()),
            Dialect::Gemini => Voice::Gemini(gemini::Gemini::default()),
            Dialect::Ollama => Voice::Anywhere(Box::new(Anywhere::ollama(Voice::every()))),
            Dialect::OpenAiOther => Voice::of(Dialect::OpenAiChat).and_others(),
            Dialect::AnthropicOther => Voice::of(Dialect::Anthropic).and_others(),
            Dialect::GeminiOther => Voice::of(Dialect::Gemini).and_others(),
        }
    }

    /// All in which parts of calls are put together.
    fn every() -> Vec<Voice> {
        let dialects =
            [Dialect::OpenAiChat, Dialect::OpenAiResponses, Dialect::Anthropic, Dialect::Gemini];
        dialects.into_iter().map(Voice::of).collect()
    }

    /// The same, and any other form besides.
    fn and_others(self) -> Voice {
        if matches!(self, Voice::Anywhere(_) | Voice::Guessed(_) | Voice::Forked(_)) {
            return self;
        }
        let mut others = Voice::every();
        others.retain(|other| std::mem::discriminant(other) != std::mem::discriminant(&self));
        Voice::Guessed(Box::new((self, Anywhere::beside(others))))
    }

    /// Reads the data of an event, with the event's name.
    fn event(&mut self, data: &[u8], name: Option<&[u8]>, sink: &mut Sink<'_>) -> Fate {
        match self {
            Voice::Chat(chat) => return chat.event(data, sink),
            Voice::Responses(responses) => responses.event(data, sink),
            Voice::Anthropic(anthropic) => anthropic.event(data, name, sink),
            Voice::Gemini(gemini) => gemini.event(data, sink),
            Voice::Anywhere(anywhere) => anywhere.event(data, name, sink),
            Voice::Guessed(both) | Voice::Forked(both) => {
                let (voice, anywhere) = &mut **both;
                let before = sink.pieces.len();
                let fate = voice.event(data, name, sink);
                anywhere.heard(&sink.pieces[before.min(sink.pieces.len())..]);
                anywhere.event(data, name, sink);
                // Another event of the same form may be more than its text to the other readings.
                sink.lone = None;
                return fate;
            }
        }
        Fate::Pass
    }

    /// Reads an event, and what of it only some clients read: lines that end in other ways than the standard's, and
    /// lines that are no data.
    fn hear(&mut self, event: &[u8], sink: &mut Sink<'_>) -> Fate {
        let (data, name, odd) = (sse::data(event), sse::name(event), sse::otherwise(event));
        if odd.is_some() && !matches!(self, Voice::Forked(_)) {
            let fork = Anywhere::beside(vec![self.clone()]);
            let voice = std::mem::replace(self, Voice::Chat(openai_chat::Chat::default()));
            *self = Voice::Forked(Box::new((voice, fork)));
        }
        let Voice::Forked(both) = self else {
            self.bare(event, sink);
            return data.map_or(Fate::Pass, |data| self.event(&data, name, sink));
        };
        // Both readings go on from here: what one of them leaves out changes what the other makes of the rest.
        let (voice, fork) = &mut **both;
        let before = sink.pieces.len();
        voice.bare(event, sink);
        let fate = data.as_ref().map_or(Fate::Pass, |data| voice.event(data, name, sink));
        fork.heard(&sink.pieces[before.min(sink.pieces.len())..]);
        match odd {
            None => fork.read(data.iter().map(|data| &**data), name, sink),
            Some(odd) => fork.read(odd.iter().map(String::as_bytes), name, sink),
        }
        sink.lone = None;
        fate
    }

    /// Reads the lines of an event that are no data.
    fn bare(&mut self, event: &[u8], sink: &mut Sink<'_>) {
        match self {
            Voice::Gemini(gemini) => gemini.bare(event, sink),
            Voice::Guessed(both) => both.0.bare(event, sink),
            _ => {}
        }
    }

    /// Whether a tool call has begun and is not complete yet.
    fn inside_call(&self) -> bool {
        match self {
            Voice::Anthropic(anthropic) => anthropic.inside_call(),
            Voice::Gemini(gemini) => gemini.inside_call(),
            Voice::Guessed(both) | Voice::Forked(both) => both.0.inside_call(),
            Voice::Chat(_) | Voice::Responses(_) | Voice::Anywhere(_) => false,
        }
    }

    fn whole(&mut self, data: &[u8], sink: &mut Sink<'_>) {
        match self {
            Voice::Chat(chat) => chat.whole(data, sink),
            Voice::Responses(responses) => responses.whole(data, sink),
            Voice::Anthropic(anthropic) => anthropic.whole(data, sink),
            Voice::Gemini(gemini) => gemini.whole(data, sink),
            Voice::Anywhere(anywhere) => anywhere.whole(data, sink),
            Voice::Guessed(both) | Voice::Forked(both) => {
                let (voice, anywhere) = &mut **both;
                let before = sink.pieces.len();
                voice.whole(data, sink);
                anywhere.heard(&sink.pieces[before.min(sink.pieces.len())..]);
                anywhere.whole(data, sink);
            }
        }
    }

    fn finish(&mut self, sink: &mut Sink<'_>) {
        match self {
            Voice::Chat(chat) => chat.finish(sink),
            Voice::Responses(responses) => responses.finish(sink),
            Voice::Anthropic(anthropic) => anthropic.finish(sink),
            Voice::Gemini(gemini) => gemini.finish(sink),
            Voice::Anywhere(anywhere) => anywhere.finish(sink),
            Voice::Guessed(both) | Voice::Forked(both) => {
                let (voice, anywhere) = &mut **both;
                let before = sink.pieces.len();
                voice.finish(sink);
                anywhere.heard(&sink.pieces[before.min(sink.pieces.len())..]);
                anywhere.finish(sink);
            }
        }
    }
}

/// What has been counted.
#[derive(Debug, Default)]
struct Tally {
    usage: Option<Usage>,
    /// The provider's last figure for the output.
    figure: u64,
    /// Characters written since that figure.
    since: u64,
    done: bool,
    echo: Echo,
    /// Whether no echo is wanted.
    silent: bool,
    counted: Counted,
    id: Option<String>,
    /// There was more than is kept of a call.
    lost: bool,
    /// A whole answer is neither JSON nor events nor any text.
    unread: bool,
}

impl Tally {
    fn output(&self) -> Tokens {
        Tokens(self.figure.saturating_add(self.since.div_ceil(4)))
    }
}

/// Bytes of an answer's id beyond which it is none.
const LONGEST_ID: usize = 200;

/// Takes what an event brings.
struct Sink<'a> {
    pieces: &'a mut Vec<Piece>,
    tally: &'a mut Tally,
    held_from: usize,
    /// What it brought, if that was a text and nothing else.
    lone: Option<Lone>,
    /// Whether the last text was a thought.
    thinking: bool,
}

/// A text that is all an event brought: where it stands, byte for byte.
#[derive(Debug, Clone, Copy)]
struct Lone {
    address: usize,
    length: usize,
}

impl<'a> Sink<'a> {
    fn new(pieces: &'a mut Vec<Piece>, tally: &'a mut Tally, held_from: usize) -> Sink<'a> {
        Sink { pieces, tally, held_from, lone: None, thinking: false }
    }

    /// Notes that an event has brought this text and nothing else, and changed nothing.
    fn lone(&mut self, text: &Text<'_>) {
        if let (Cow::Borrowed(text), false) = (&text.0, text.is_empty()) {
            self.lone = Some(Lone { address: text.as_ptr().addr(), length: text.len() });
        }
    }

    /// Text of the model. Text that follows text is one piece.
    fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if !self.tally.silent {
            self.tally.echo.text(text);
        }
        self.thinking = false;
        self.written(text);
    }

    /// A thought of the model, which clients need not repeat in their next request.
    fn thought(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.thinking = true;
        self.written(text);
    }

    fn written(&mut self, text: &str) {
        self.unseen(text);
        match self.pieces.last_mut() {
            Some(Piece::Text(before)) => before.push_str(text),
            _ => self.pieces.push(Piece::Text(text.to_owned())),
        }
    }

    /// Text that is generated and paid for, but not said: arguments of calls.
    fn unseen(&mut self, text: &str) {
        self.tally.since += text.chars().count() as u64;
    }

    fn call(&mut self, id: String, name: String, arguments: Value) {
        let held_from = self.held_from;
        if !self.tally.silent {
            self.tally.echo.call(&id, &name);
        }
        self.pieces.push(Piece::ToolCall { id, name, arguments, held_from });
    }

    /// The provider's figures, if they are new. A figure of nothing for the output, while there has
    /// been some, is no figure: some servers fill it in only at the end.
    fn usage(&mut self, usage: Usage, has_output: bool) {
        if has_output && usage.output.0 > 0 {
            (self.tally.figure, self.tally.since) = (usage.output.0, 0);
        }
        if self.tally.usage != Some(usage) {
            self.tally.usage = Some(usage);
            self.pieces.push(Piece::Usage(usage));
        }
    }

    /// The answer's own id.
    fn id(&mut self, id: &str) {
        if self.tally.id.is_none() && !id.is_empty() && id.len() <= LONGEST_ID {
            self.tally.id = Some(id.to_owned());
        }
    }

    fn error(&mut self, message: String) {
        self.pieces.push(Piece::Error(message));
    }

    fn done(&mut self) {
        if !std::mem::replace(&mut self.tally.done, true) {
            self.pieces.push(Piece::Done);
        }
    }
}

#[cfg(test)]
mod tests;
