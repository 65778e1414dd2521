//! The JSON of recorded runs, as it is written.
//!
//! A trace, a transcript's event and a message are one type here: which one an object is shows
//! only in the fields it has, and reading it once into all of them is both simpler and faster
//! than trying one shape after the other.

use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::scalar::{Fingerprint, Scalar};
use super::tally::Tally;

/// What can stand on a line or make up a file.
#[derive(Debug)]
pub(super) enum Top<'a> {
    One(Box<Record<'a>>),
    Many(Vec<Record<'a>>),
}

/// One object: a trace, an event of a transcript, or a message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Record<'a> {
    // A message.
    #[serde(borrow)]
    pub(super) role: Scalar<'a>,
    pub(super) content: Content<'a>,
    pub(super) name: Scalar<'a>,
    pub(super) tool_calls: Option<Vec<ToolCall<'a>>>,
    pub(super) function_call: Option<Function<'a>>,
    pub(super) tool_call_id: Scalar<'a>,
    pub(super) is_error: Scalar<'a>,
    pub(super) usage: Option<Box<Tally<'a>>>,
    pub(super) ts: Scalar<'a>,
    pub(super) timestamp: Scalar<'a>,
    // An item of OpenAI's responses, which has a type in the place of a role.
    pub(super) call_id: Scalar<'a>,
    pub(super) arguments: Option<Value>,
    pub(super) input: Option<Value>,
    pub(super) output: Content<'a>,
    // A trace; `id` and `model` are a message's as well.
    pub(super) id: Scalar<'a>,
    pub(super) model: Scalar<'a>,
    pub(super) dataset: Scalar<'a>,
    pub(super) task: Scalar<'a>,
    pub(super) outcome: Scalar<'a>,
    pub(super) labels: Option<Value>,
    /// The system prompt, which Anthropic's requests keep beside the messages.
    pub(super) system: Content<'a>,
    pub(super) messages: Option<Vec<Record<'a>>>,
    // An event of a transcript.
    #[serde(rename = "type")]
    pub(super) kind: Scalar<'a>,
    pub(super) message: Option<Box<Record<'a>>>,
    pub(super) uuid: Scalar<'a>,
    #[serde(rename = "sessionId")]
    pub(super) session: Scalar<'a>,
    /// How the same id is written when Claude Code streams its events.
    #[serde(rename = "session_id")]
    pub(super) streamed_session: Scalar<'a>,
    #[serde(rename = "isSidechain")]
    pub(super) is_sidechain: Scalar<'a>,
    #[serde(rename = "isMeta")]
    pub(super) is_meta: Scalar<'a>,
    #[serde(rename = "isCompactSummary")]
    pub(super) is_summary: Scalar<'a>,
}

/// A message's content: nothing, words, or a list of blocks.
#[derive(Debug, Default)]
pub(super) enum Content<'a> {
    #[default]
    Nothing,
    Words(Scalar<'a>),
    Blocks(Vec<Block<'a>>),
}

/// A part of a message's content, OpenAI's or Anthropic's.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Block<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Scalar<'a>,
    pub(super) text: Scalar<'a>,
    pub(super) refusal: Scalar<'a>,
    // A call.
    pub(super) id: Scalar<'a>,
    pub(super) name: Scalar<'a>,
    pub(super) input: Option<Value>,
    // A result.
    pub(super) tool_use_id: Scalar<'a>,
    pub(super) content: Option<Box<Content<'a>>>,
    pub(super) is_error: Scalar<'a>,
    // A medium: Anthropic's, OpenAI's, MCP's.
    source: Fingerprint,
    image_url: Fingerprint,
    input_audio: Fingerprint,
    file: Fingerprint,
    data: Fingerprint,
}

/// An entry of OpenAI's `tool_calls`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ToolCall<'a> {
    #[serde(borrow)]
    pub(super) id: Scalar<'a>,
    pub(super) function: Option<Function<'a>>,
    pub(super) custom: Option<Function<'a>>,
    // Some recorders write these flat.
    pub(super) name: Scalar<'a>,
    pub(super) arguments: Option<Value>,
}

/// The function of a tool call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Function<'a> {
    #[serde(borrow)]
    pub(super) name: Scalar<'a>,
    pub(super) arguments: Option<Value>,
    /// What a custom tool has in their place.
    pub(super) input: Option<Value>,
}

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Trace,
    Event,
    Message,
    /// Nothing that is known, though it may be an event of a type that does not matter.
    Strange {
        typed: bool,
    },
}

impl Record<'_> {
    /// What it is, by the fields it has.
    pub(super) fn kind(&self) -> Kind {
        let session = self.session.as_str().or(self.streamed_session.as_str());
        match self.kind.as_str() {
            _ if self.messages.is_some() => Kind::Trace,
            Some("summary" | "file-history-snapshot") => Kind::Event,
            Some(_) if self.message.is_some() || session.is_some() => Kind::Event,
            _ if self.is_call_item() || self.is_result_item() => Kind::Message,
            _ if self.role.as_str().is_some() => Kind::Message,
            kind => Kind::Strange { typed: kind.is_some() },
        }
    }

    /// Whether it is a call among OpenAI's response items.
    pub(super) fn is_call_item(&self) -> bool {
        matches!(self.kind.as_str(), Some("function_call" | "custom_tool_call"))
    }

    /// Whether it is a result among them.
    pub(super) fn is_result_item(&self) -> bool {
        matches!(self.kind.as_str(), Some("function_call_output" | "custom_tool_call_output"))
    }
}

impl<'a> Content<'a> {
    /// All its words, blocks on lines of their own.
    pub(super) fn into_text(self) -> String {
        match self {
            Content::Nothing => String::new(),
            Content::Words(words) => words.words().unwrap_or_default(),
            Content::Blocks(blocks) => {
                let mut text = String::new();
                for block in blocks {
                    if let Some(words) = block.into_words() {
                        add_line(&mut text, &words);
                    }
                }
                text
            }
        }
    }
}

/// Adds a paragraph to a text.
pub(super) fn add_line(text: &mut String, words: &str) {
    if !text.is_empty() && !words.is_empty() {
        text.push('\n');
    }
    text.push_str(words);
}

impl Block<'_> {
    /// Whether it calls a tool, the client's or the provider's own (`server_tool_use`).
    pub(super) fn is_call(&self) -> bool {
        self.kind.as_str().is_some_and(|kind| kind.ends_with("tool_use"))
    }

    /// Whether it is a tool's result.
    pub(super) fn is_result(&self) -> bool {
        self.kind.as_str().is_some_and(|kind| kind.ends_with("tool_result"))
    }

    /// Its words, or what stands for a medium.
    pub(super) fn into_words(self) -> Option<String> {
        let media = [self.source, self.image_url, self.input_audio, self.file, self.data];
        let print = media.into_iter().find(|print| *print != Fingerprint::default());
        if let Some(words) = self.text.words().or_else(|| self.refusal.words()) {
            return Some(words);
        }
        let kind = self.kind.as_str().unwrap_or("medium");
        let print = print.filter(|_| !kind.contains("thinking"))?;
        Some(format!("[{kind}#{:016x}]", print.0))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Top<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyTop)
    }
}

struct AnyTop;

impl<'de> Visitor<'de> for AnyTop {
    type Value = Top<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object or a list of messages")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        Record::deserialize(MapAccessDeserializer::new(map)).map(Box::new).map(Top::One)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut records = Vec::new();
        while let Some(record) = list.next_element()? {
            records.push(record);
        }
        Ok(Top::Many(records))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyContent)
    }
}

struct AnyContent;

impl<'de> Visitor<'de> for AnyContent {
    type Value = Content<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, a list of content blocks, or null")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Content::Nothing)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Self::Value, E> {
        Ok(Content::Words(Scalar::Flag(flag)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Content::Words(Scalar::Whole(number)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Content::Words(Scalar::Text(number.to_string().into())))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Content::Words(Scalar::Number(number)))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Content::Words(Scalar::Text(text.into())))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Content::Words(Scalar::Text(text.to_owned().into())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut blocks = Vec::new();
        while let Some(Part(block)) = list.next_element()? {
            blocks.push(block);
        }
        Ok(Content::Blocks(blocks))
    }

    /// No format allows an object as content, but some tools answer with one. Its JSON is the text
    /// then.
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let value = Value::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Content::Words(Scalar::Text(value.to_string().into())))
    }
}

/// A block, or a bare string in the place of one.
struct Part<'a>(Block<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for Part<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyPart)
    }
}

struct AnyPart;

impl<'de> Visitor<'de> for AnyPart {
    type Value = Part<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a content block or text")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Part(Block::default()))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Part(Block { text: Scalar::Text(text.into()), ..Block::default() }))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Part(Block { text: Scalar::Text(text.to_owned().into()), ..Block::default() }))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        Block::deserialize(MapAccessDeserializer::new(map)).map(Part)
    }
}
