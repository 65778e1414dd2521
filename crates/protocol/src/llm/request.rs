//! Requests to language models: which dialect a path speaks, and what is new in a body.
//!
//! A body is walked once, borrowed, and never built into a tree. [`open`] reads what stands around
//! the conversation, which tells whose request it is; [`Open::read`] then reads what is new in the
//! conversation itself, given what the session has [`Seen`]. [`read`] does both at once.
//!
//! # What is new
//! A person's words and tools' results that follow what an earlier request of the session already
//! contained. Where nothing earlier is recognised (a first request, a rewritten history), what
//! follows the model's last message. A request that is sent again word for word repeats the words
//! that it asked with, so that guards can see the repetition, and brings no results.
//! Standing orders (system and developer prompts) do not count as words of a person.

mod anthropic;
mod attachment;
mod gemini;
mod json;
mod news;
mod openai;
mod path;
mod seen;
mod steer;
mod turns;
mod usage;

pub use path::{
    Brings, brings, climbs, dialect, dialect_by_body, fetched, leaves, model_in_path,
    names_results, versioned,
};
pub use seen::Seen;
pub use steer::Notes;
pub use turns::Turns;
pub use usage::with_usage;

use std::cell::Cell;
use std::sync::Mutex;

use deadstop_core::{Digest, TextFacts, Tokens};
use serde_json::value::RawValue;

use crate::plain;

pub(crate) use self::attachment::marker;
use self::attachment::{BYTES_PER_TOKEN, discount};
use self::json::Items;
use self::news::{News, Speaker};
use self::openai::ChatMessage;
use self::path::{counts_only, streams, unmarked};
use super::{Dialect, Request};
use crate::facts::combine;

/// Why a body could not be read. It may still be passed on: the provider will have its own view.
#[derive(Debug, thiserror::Error)]
pub enum BadRequest {
    /// Bytes that are no text.
    #[error("the body is not UTF-8 text; decode its content-encoding first")]
    NotText(#[from] std::str::Utf8Error),
    /// Text that is no JSON object.
    #[error("the body is not a JSON object: {0}")]
    NotJson(#[from] serde_json::Error),
}

/// Whether a request has more parts than are read: hundreds of thousands of messages, for example. Where no model
/// answers, and where texts are embedded, its parts are not looked at.
pub fn is_crowded(dialect: Dialect, body: &[u8]) -> bool {
    !dialect.is_other() && dialect != Dialect::OpenAiEmbeddings && plain::is_crowded(body)
}

/// Opens a body and reads what is new in it: see [`open`] and [`Open::read`].
pub fn read(
    dialect: Dialect,
    path: &str,
    body: &[u8],
    seen: &mut Seen,
) -> Result<Request, BadRequest> {
    Ok(open(dialect, path, body)?.read(seen))
}

/// Reads what stands around the conversation.
///
/// Fields that are missing or strange are left empty. An empty body is fine on a path that is only
/// passed through, and so is one there that is no JSON: it just says nothing.
pub fn open<'a>(dialect: Dialect, path: &str, body: &'a [u8]) -> Result<Open<'a>, BadRequest> {
    let body = unmarked(body);
    let mut free = counts_only(path);
    let envelope = match dialect {
        Dialect::OpenAiChat => openai::chat(std::str::from_utf8(body)?)?,
        Dialect::OpenAiResponses => openai::responses(std::str::from_utf8(body)?)?,
        Dialect::OpenAiEmbeddings => openai::other(std::str::from_utf8(body)?)?,
        Dialect::Anthropic => anthropic::messages(std::str::from_utf8(body)?)?,
        Dialect::Gemini => gemini::generate(std::str::from_utf8(body)?)?,
        Dialect::Ollama => openai::ollama(std::str::from_utf8(body)?)?,
        Dialect::OpenAiOther | Dialect::AnthropicOther | Dialect::GeminiOther => {
            let text = std::str::from_utf8(body).unwrap_or_default();
            openai::other(text).unwrap_or_else(|_| {
                // An upload, most likely: its size says nothing about tokens.
                free = true;
                Envelope::default()
            })
        }
    };
    let mut open = Open { dialect, body, free, envelope, looked: Mutex::default() };
    let request = &mut open.envelope.request;
    request.lookup = dialect.is_other() && (counts_only(path) || body.is_empty());
    if request.model.is_empty() {
        request.model = model_in_path(path).unwrap_or_default();
    }
    if dialect == Dialect::Gemini {
        request.stream = streams(path);
    }
    open.envelope.request.hints.conversation = open.conversation();
    Ok(open)
}

/// A body whose surroundings were read, and whose conversation was not yet.
#[derive(Debug)]
pub struct Open<'a> {
    dialect: Dialect,
    body: &'a [u8],
    /// Whether its size says nothing about what it costs.
    free: bool,
    envelope: Envelope<'a>,
    /// Chat messages whose fields were read, by their addresses in the body. The few at the end of a conversation are
    /// asked several times who speaks in them and what they bring.
    looked: Mutex<Vec<(usize, ChatMessage<'a>)>>,
}

/// What a dialect finds around the conversation.
#[derive(Debug, Default)]
struct Envelope<'a> {
    request: Request,
    items: Items<'a>,
    /// Standing orders that are no message.
    system: Option<&'a RawValue>,
    /// Whether the provider keeps the history, so that all that is sent is new.
    continues: bool,
    stream: Option<&'a RawValue>,
    stream_options: Option<&'a RawValue>,
}

impl<'a> Open<'a> {
    /// What is known without the conversation: who is calling, for which model, in a stream or not.
    pub fn request(&self) -> &Request {
        &self.envelope.request
    }

    /// See [`with_usage`], without reading the body again.
    pub fn with_usage(&self) -> Option<Vec<u8>> {
        match self.dialect {
            Dialect::OpenAiChat => {
                usage::edit(self.body, self.envelope.stream, self.envelope.stream_options)
            }
            _ => None,
        }
    }

    /// Reads what is new since the requests that were seen, and remembers this one.
    pub fn read(self, seen: &mut Seen) -> Request {
        let messages = self.envelope.items.list.as_slice();
        let chain = if self.envelope.continues { Vec::new() } else { seen::chain(messages) };
        let head = seen.recognise(&chain);
        let known = head.map_or(0, |head| head.messages as usize);
        let again = head.is_some() && known == messages.len();
        let from = match head {
            _ if self.envelope.continues => 0,
            Some(_) if !again => known,
            _ => self.last_turn(),
        };

        let mut news = News::default();
        if let Some(text) = &self.envelope.items.text {
            news.said(text);
        }
        for message in messages.iter().skip(from) {
            self.tell(message, &mut news);
        }
        let fresh = messages.iter().skip(known);
        let discount = head.map_or(0, |head| head.discount)
            + fresh.map(|message| discount(message.get())).sum::<u64>();
        let root = self.envelope.request.hints.conversation.map_or(0, |digest| digest.0);
        let shortened = head.is_none() && seen.shortened(root, messages.len());
        seen.remember(head, &chain, (discount, root));

        let mut request = self.envelope.request;
        let size = (self.body.len() as u64).div_ceil(BYTES_PER_TOKEN);
        request.input = Tokens(if self.free { 0 } else { size.saturating_sub(discount) });
        request.prompt = news.facts();
        request.from_person = news.from_person;
        request.compacted = shortened || news.summary;
        request.said = news.said;
        request.results = if again { Vec::new() } else { news.results };
        request
    }

    /// Where the last turn begins: after the model's last message, not counting an answer that was
    /// begun for it at the very end.
    fn last_turn(&self) -> usize {
        let messages = self.envelope.items.list.as_slice();
        let by_model = |message: &&'a RawValue| self.speaker(message) == Speaker::Model;
        let Some(end) = messages.iter().rposition(|message| !by_model(message)) else {
            return messages.len();
        };
        messages[..end].iter().rposition(by_model).map_or(0, |at| at + 1)
    }

    /// The fields of a chat message, read once.
    fn chat_message(&self, message: &'a RawValue) -> ChatMessage<'a> {
        let place = message.get().as_ptr().addr();
        let Ok(mut looked) = self.looked.lock() else { return openai::chat_message(message) };
        if let Some((_, fields)) = looked.iter().find(|(known, _)| *known == place) {
            return *fields;
        }
        let fields = openai::chat_message(message);
        if looked.len() < MOST_LOOKED {
            looked.push((place, fields));
        }
        fields
    }

    fn speaker(&self, message: &'a RawValue) -> Speaker {
        match self.dialect {
            Dialect::OpenAiChat | Dialect::Ollama => {
                openai::chat_speaker(self.chat_message(message))
            }
            Dialect::OpenAiOther => Speaker::Other,
            Dialect::OpenAiResponses => openai::responses_speaker(message),
            Dialect::Anthropic => anthropic::speaker(message),
            Dialect::Gemini => gemini::speaker(message),
            _ => Speaker::System,
        }
    }

    fn tell(&self, message: &'a RawValue, news: &mut News) {
        match self.dialect {
            Dialect::OpenAiChat | Dialect::Ollama => {
                openai::chat_tell(self.chat_message(message), news);
            }
            Dialect::OpenAiOther => openai::output_tell(message, news),
            Dialect::OpenAiResponses => openai::responses_tell(message, news),
            Dialect::Anthropic => anthropic::tell(message, news),
            Dialect::Gemini => gemini::tell(message, news),
            _ => {}
        }
    }

    /// Identifies a conversation that the client does not name: by its standing orders, masked,
    /// since many have the time of day in them, and by the first thing a person said.
    fn conversation(&self) -> Option<Digest> {
        if self.envelope.continues {
            return None;
        }
        let opening = self.envelope.items.list.iter().take(OPENING);
        let first = match &self.envelope.items.text {
            Some(text) => Digest::of(text.as_bytes()),
            None => opening.clone().find_map(|message| {
                if message.get().len() > LONGEST_FIRST {
                    let words = beginning(message.get(), LONGEST_FIRST).as_bytes();
                    return (self.speaker(message) == Speaker::Other).then(|| Digest::of(words));
                }
                let mut news = News::digest_only();
                self.tell(message, &mut news);
                news.from_person.then(|| news.exact())
            })?,
        };
        let spoken = opening.filter(|message| self.speaker(message) == Speaker::System);
        let orders = self.envelope.system.or_else(|| spoken.copied().next());
        let orders = orders.map_or("", |orders| beginning(orders.get(), LONGEST_ORDERS));
        Some(combine(&[masked(orders), first]))
    }
}

/// Chat messages whose fields are remembered.
const MOST_LOOKED: usize = 64;
/// Messages among which the first words of a person are looked for.
const OPENING: usize = 8;
/// Bytes of a first message beyond which its beginning will do, as it lies in the body.
const LONGEST_FIRST: usize = 64 * 1024;
/// Bytes of the standing orders, as they lie in the body, that tell conversations apart.
const LONGEST_ORDERS: usize = 2048;

/// Standing orders that a thread remembers.
const REMEMBERED: usize = 256;

thread_local! {
    /// Digests of standing orders, before and after masking, each at the place that the first of them gives it.
    static MASKED: [Cell<(u64, Digest)>; REMEMBERED] =
        const { [const { Cell::new((0, Digest(0))) }; REMEMBERED] };
}

/// The digest of standing orders with their values masked. Every request of an agent repeats the same orders, and
/// masking them costs a hundred times what it costs to recognise them.
fn masked(orders: &str) -> Digest {
    let exact = Digest::of(orders.as_bytes()).0;
    MASKED.with(|places| {
        let place = &places[exact as usize % REMEMBERED];
        match place.get() {
            (known, masked) if known == exact && known != 0 => masked,
            _ => {
                let masked = TextFacts::of(orders).digest;
                place.set((exact, masked));
                masked
            }
        }
    })
}

fn beginning(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests;
