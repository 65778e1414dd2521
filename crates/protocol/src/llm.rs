//! Language-model APIs on the wire: requests in, answers out, refusals back, without I/O.
//!
//! A gateway passes bytes on untouched and hands this module a copy. It reads what the guards need
//! and nothing more, whatever the chunk boundaries are, with bounded memory.

pub mod answer;
pub mod client;
pub mod conversation;
pub mod identity;
pub mod quota;
pub mod refusal;
pub mod request;
pub mod words;

use deadstop_core::{ModelCall, TextFacts, Tokens, Usage};
use serde_json::Value;

use deadstop_redact::excerpt::Excerpt;

use crate::prices::{Prices, Terms};

/// The dialect of one API call: which shape its request, its answer and its errors have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI `POST …/chat/completions`, and everything compatible with it.
    OpenAiChat,
    /// OpenAI `POST …/responses`.
    OpenAiResponses,
    /// OpenAI `POST …/embeddings`.
    OpenAiEmbeddings,
    /// Any other path of an OpenAI-like provider: passes through, counts as a call. Calls in its answers
    /// are found whatever their form.
    OpenAiOther,
    /// Anthropic `POST …/v1/messages`.
    Anthropic,
    /// Any other path of Anthropic (`/v1/messages/count_tokens` among them): passes through.
    AnthropicOther,
    /// Gemini `POST …/models/{model}:generateContent` and `:streamGenerateContent`.
    Gemini,
    /// Any other path of Gemini: passes through.
    GeminiOther,
    /// Ollama's own `POST /api/chat` and `/api/generate`.
    Ollama,
}

impl Dialect {
    /// Whether it is any other path of a provider: no model answers there, as far as the path tells.
    pub fn is_other(self) -> bool {
        matches!(self, Dialect::OpenAiOther | Dialect::AnthropicOther | Dialect::GeminiOther)
    }
}

/// The family of APIs a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// OpenAI and everything compatible with it.
    OpenAi,
    /// Anthropic.
    Anthropic,
    /// Google Gemini.
    Gemini,
}

/// A tool result that a request carries back to the model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolResult {
    /// The id of the call it answers, if the dialect has ids.
    pub id: String,
    /// The tool's name, where the dialect repeats it.
    pub name: Option<String>,
    /// Its text.
    pub text: String,
    /// Whether it is flagged as an error.
    pub is_error: bool,
}

/// What the guards need to know about a request.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// The model's name.
    pub model: String,
    /// Whether the answer is to be streamed.
    pub stream: bool,
    /// The request's own limit on the answer.
    pub max_output: Option<Tokens>,
    /// An upper estimate of the prompt's tokens, by the size of the whole body.
    pub input: Tokens,
    /// The text that is new since the last request of this conversation: what a person said and
    /// what tools brought.
    pub prompt: Option<TextFacts>,
    /// Whether a person's words are among what is new.
    pub from_person: bool,
    /// Whether the history before it was rewritten to be shorter: the context was compacted.
    pub compacted: bool,
    /// That text as people read it: its beginning.
    pub said: Excerpt,
    /// Tool results that are new.
    pub results: Vec<ToolResult>,
    /// Whether the client asked for the usage chunk of a stream itself (OpenAI chat only).
    pub wants_usage: bool,
    /// Whether it asks about models and runs none: a list of models, a count of tokens.
    pub lookup: bool,
    /// Who is calling, as far as the body tells: see `identity`.
    pub hints: BodyHints,
}

impl Request {
    /// The call that it is, at the prices of its model. Its input is an estimate.
    pub fn call(&self, provider: &str, prices: &Prices, terms: Option<&Terms>) -> ModelCall {
        ModelCall {
            model: self.model.clone(),
            server: Some(provider.to_owned()),
            rates: prices.price_at(terms, &self.model).rates,
            input: self.input,
            max_output: self.max_output,
            prompt: self.prompt,
            from_person: self.from_person,
            compacted: self.compacted,
            estimated: true,
            lookup: self.lookup,
            longest_output: crate::prices::longest_output(&self.model),
            ..ModelCall::default()
        }
    }
}

/// What a body says about who is calling.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BodyHints {
    /// Anthropic `metadata.user_id`, whole.
    pub metadata_user_id: Option<String>,
    /// A `session_id` or `conversation_id` in the body or its metadata, or OpenAI's `conversation`.
    pub session: Option<String>,
    /// OpenAI `prompt_cache_key`.
    pub prompt_cache_key: Option<String>,
    /// OpenAI `previous_response_id`.
    pub previous_response_id: Option<String>,
    /// OpenAI `safety_identifier`, or else `user`.
    pub safety_identifier: Option<String>,
    /// Digest of the first messages of the conversation (system prompt and first user message).
    pub conversation: Option<deadstop_core::Digest>,
}

/// One thing that an answer brought.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// Text the model wrote (reasoning included), in order.
    Text(String),
    /// A tool call that is now complete.
    ToolCall {
        /// Its id; empty where the dialect has none.
        id: String,
        /// The tool.
        name: String,
        /// The arguments.
        arguments: Value,
        /// Where, in the bytes just pushed, the event starts that completes it: everything before
        /// may be passed on without giving the call away.
        held_from: usize,
    },
    /// Usage by the provider's own count, so far: replaces what was told before.
    Usage(Usage),
    /// The provider reported an error instead of, or in the middle of, an answer.
    Error(String),
    /// The answer is complete.
    Done,
}
