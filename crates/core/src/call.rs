//! What the engine is told about a call: facts, worked out once by `protocol` and only read here.
//!
//! A guard never parses. Whether two calls are the same, what one would destroy, what it may cost:
//! all of that arrives as a plain value, so that the gateway, the SDKs and the backtest cannot
//! disagree about it.

use serde::{Deserialize, Serialize};

use crate::blame::Failure;
use crate::guard::quota::Quota;
use crate::harm::Harm;
use crate::text::{Gist, SHORT, TextFacts};
use crate::twice::CallId;
use crate::units::{Millis, NanoUsd, Tokens};

/// A 64-bit digest that is the same on every machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(#[serde(with = "postcard::fixint::le")] pub u64);

impl Digest {
    /// The digest of some bytes, exactly as they are.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(xxhash_rust::xxh3::xxh3_64(bytes))
    }

    /// The low half, where a second opinion needs no more.
    pub(crate) fn short(self) -> u32 {
        self.0 as u32
    }
}

/// One model request or one tool call, before it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Call {
    /// A request to a language model.
    Model(ModelCall),
    /// A call of a tool.
    Tool(ToolCall),
}

impl Call {
    /// What a person would call it: the tool's or the model's name.
    pub fn name(&self) -> &str {
        match self {
            Call::Model(call) => &call.model,
            Call::Tool(call) => &call.name,
        }
    }

    /// The call as it is kept. Arguments are texts and may hold anything, secrets included; their
    /// digest is enough to recognise the call.
    pub fn without_arguments(&self) -> Call {
        match self {
            Call::Tool(tool) if !tool.arguments.is_empty() => {
                Call::Tool(ToolCall { arguments: Vec::new(), ..tool.clone() })
            }
            other => other.clone(),
        }
    }

    /// Whether what it will use is only estimated before its bill is in.
    pub(crate) fn estimated(&self) -> bool {
        self.model().is_some_and(|call| call.estimated)
    }

    /// Whether it asks about models and runs none.
    pub(crate) fn lookup(&self) -> bool {
        self.model().is_some_and(|call| call.lookup)
    }

    /// The tool call, if it is one.
    pub fn tool(&self) -> Option<&ToolCall> {
        match self {
            Call::Tool(call) => Some(call),
            Call::Model(_) => None,
        }
    }

    /// The model call, if it is one.
    pub fn model(&self) -> Option<&ModelCall> {
        match self {
            Call::Model(call) => Some(call),
            Call::Tool(_) => None,
        }
    }
}

/// A request to a language model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ModelCall {
    /// The model's name as the request gives it.
    pub model: String,
    /// The API or server it goes to, for the breaker.
    pub server: Option<String>,
    /// What this model charges.
    pub rates: Rates,
    /// Prompt tokens, counted or estimated.
    pub input: Tokens,
    /// The request's own limit on the answer, if it sets one.
    pub max_output: Option<Tokens>,
    /// What is new in this request since the last one, not the history again.
    pub prompt: Option<TextFacts>,
    /// Whether a person (or whatever plays one) says something in what is new; tool results alone
    /// do not count.
    pub from_person: bool,
    /// A salted digest of the key that it is sent with: the breaker leaves a provider alone for
    /// one credential and one model, not for strangers.
    pub credential: Option<Digest>,
    /// Whether it is another attempt at the request before it, by its own word or byte for byte.
    pub retry: bool,
    /// Whether `input` is an estimate. An estimate may delay or refuse the call, never end a scope.
    pub estimated: bool,
    /// Whether it asks about models and runs none (a list of models, a count of tokens): no limit
    /// on model calls counts it.
    pub lookup: bool,
    /// The longest answer that the model can give, where that is known.
    pub longest_output: Option<Tokens>,
    /// Whether the history before it was rewritten, as a context compaction does: what the agent
    /// knew it may have to look up again.
    pub compacted: bool,
    /// Whether it opens a conversation that has no name and may be any user's: many who say "hi" are
    /// no loop, so a session's own detectors do not compare its words. The agent's kill switch does.
    #[serde(default)]
    pub opening: bool,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ToolCall {
    /// The tool's name.
    pub name: String,
    /// The MCP server or other backend it runs on, if there is one: the breaker is per server.
    pub server: Option<String>,
    /// Tool and canonical arguments: equal exactly when two calls ask for the same thing.
    pub signature: Digest,
    /// Tool and arguments with numbers, ids and times masked: what is left of a call when its
    /// nonce is taken away.
    pub shape: Digest,
    /// What the call can do to the world, as far as its name and arguments tell.
    pub effect: Effect,
    /// What harm it would do.
    #[serde(default)]
    pub harms: Vec<Harm>,
    /// The scalar arguments with their paths (`query`, `files.0.name`), for access rules.
    pub arguments: Vec<Argument>,
    /// Whether its server describes it otherwise than when it was first seen. Only known while it
    /// is asked for, and not kept.
    #[serde(skip)]
    pub changed: bool,
    /// Whether it changed in that it was added after the tools of its server were first seen.
    #[serde(skip)]
    pub added: bool,
    /// Whether it starts a sub-agent. Only known while it is asked for, and not kept.
    #[serde(skip)]
    pub spawns: bool,
}

/// What a call can do to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Effect {
    /// Nothing, not even look: thinking tools, to-do lists, `echo`.
    Inert,
    /// Looks, and changes nothing.
    Reads,
    /// May change something; the safe guess for an unknown tool.
    #[default]
    Changes,
    /// Nothing but wait: `sleep`.
    Waits,
}

/// One scalar argument of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// Its path inside the arguments, joined by dots.
    pub path: String,
    /// Its value as text.
    pub value: String,
}

/// Prices per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rates {
    /// Prompt tokens that were not in the cache.
    pub input: NanoUsd,
    /// Generated tokens, reasoning included.
    pub output: NanoUsd,
    /// Prompt tokens read from the provider's cache.
    pub cache_read: NanoUsd,
    /// Prompt tokens written to it.
    pub cache_write: NanoUsd,
}

impl Rates {
    /// What the page of seed E charges for an unknown model: $10 in, $30 out.
    pub const FALLBACK: Rates = Rates {
        input: NanoUsd(10_000_000_000),
        output: NanoUsd(30_000_000_000),
        cache_read: NanoUsd(10_000_000_000),
        cache_write: NanoUsd(10_000_000_000),
    };

    /// What some tokens cost, rounded up to the next nano-dollar so that many small calls cannot
    /// add up to something for nothing.
    ///
    /// ```
    /// use deadstop_core::{NanoUsd, Rates, Tokens, Usage};
    /// let usage = Usage { input: Tokens(1_000), output: Tokens(100), ..Usage::default() };
    /// assert_eq!(Rates::FALLBACK.cost(&usage), NanoUsd(13_000_000)); // $0.013
    /// ```
    pub fn cost(&self, usage: &Usage) -> NanoUsd {
        let parts = [
            (usage.input, self.input),
            (usage.output, self.output),
            (usage.cache_read, self.cache_read),
            (usage.cache_write, self.cache_write),
        ];
        let sum: u128 = parts.iter().map(|(t, r)| u128::from(t.0) * u128::from(r.0)).sum();
        NanoUsd(u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}

/// Tokens that a call used, in disjoint parts: cache reads and writes are beside `input`, not in
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Prompt tokens that were neither read from nor written to a cache.
    pub input: Tokens,
    /// Generated tokens, reasoning included.
    pub output: Tokens,
    /// Prompt tokens read from the provider's cache.
    pub cache_read: Tokens,
    /// Prompt tokens written to it.
    pub cache_write: Tokens,
}

impl Usage {
    /// What counts against an input limit: all that the model read for the first time. Cache reads
    /// cost money but are not work; counting them would turn a token cap into a session timer.
    pub fn counted_input(&self) -> Tokens {
        self.input + self.cache_write
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Status {
    /// It did what it should.
    #[default]
    Ok,
    /// It was answered with an error: the tool said no, and the agent may learn from it.
    Error,
    /// It was not answered: transport failed, time ran out, the server died, a provider's 5xx.
    Fault,
    /// It was cut off or abandoned: neither success nor failure.
    Cancelled,
}

impl Status {
    /// Whether the breaker counts it as a failure.
    pub fn failed(self) -> bool {
        matches!(self, Status::Error | Status::Fault)
    }
}

/// What is known when a call has ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// Why it failed, where the door knows; see [`Outcome::failure`].
    pub failure: Option<Failure>,
    /// What it was billed, where that is known better than by the rates of the request: the model
    /// that the answer names, tiers, searches, audio.
    pub billed: Option<NanoUsd>,
    /// The tokens it used, by the provider's figures where there are any.
    pub usage: Usage,
    /// A tool's result.
    pub result: Option<ResultFacts>,
    /// A model's answer.
    pub answer: Option<Answer>,
    /// What the provider says about its windows. It is not kept with the call.
    #[serde(skip)]
    pub quota: Vec<Quota>,
    /// The id that the model or the host gave the call, where the door knows it: by that, a call that
    /// telemetry tells of as well is recognised.
    #[serde(skip)]
    pub id: Option<CallId>,
    /// How long a streamed answer took to begin, where the door has seen that. No guard reads it.
    #[serde(skip)]
    pub first: Option<Millis>,
    /// The model that answered, where telemetry asks for it. No guard reads it.
    #[serde(skip)]
    pub model: Option<String>,
}

/// A tool's result as the guards see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ResultFacts {
    /// With digits, ids, times and temp paths masked: the same failure an hour later is the same.
    pub masked: Digest,
    /// Exactly as it was.
    pub exact: Digest,
    /// What it is about, for errors in which some words change.
    pub gist: Gist,
    /// Whether it is a short answer, of which two may be equal by chance: "ok", "not found".
    pub short: bool,
    /// Whether it says that something is not finished yet: "running", "40 of 100 done".
    pub pending: bool,
}

impl ResultFacts {
    /// What a text says by itself; whether it is pending is for `protocol` to tell.
    pub fn of(text: &str) -> ResultFacts {
        let facts = TextFacts::of(text);
        ResultFacts {
            masked: facts.digest,
            exact: Digest::of(text.as_bytes()),
            gist: facts.gist(),
            short: facts.words < SHORT,
            pending: false,
        }
    }
}

/// A model's answer as the guards see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// The text it wrote, if any.
    pub text: Option<TextFacts>,
    /// The tool calls it asked for, as one digest over all of them; `None` when it asked for none.
    pub calls: Option<Digest>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_adds_the_parts_and_rounds_up() {
        let rates = Rates {
            input: NanoUsd(3_000_000_000),
            output: NanoUsd(15_000_000_000),
            cache_read: NanoUsd(300_000_000),
            cache_write: NanoUsd(3_750_000_000),
        };
        let usage = Usage {
            input: Tokens(1000),
            output: Tokens(2000),
            cache_read: Tokens(10_000),
            cache_write: Tokens(4000),
        };
        assert_eq!(rates.cost(&usage), NanoUsd(3_000_000 + 30_000_000 + 3_000_000 + 15_000_000));
        let tiny = Rates { input: NanoUsd(1), ..Rates::default() };
        assert_eq!(tiny.cost(&Usage { input: Tokens(1), ..Usage::default() }), NanoUsd(1));
        let huge = Usage { input: Tokens(u64::MAX), ..Usage::default() };
        assert_eq!(Rates::FALLBACK.cost(&huge), NanoUsd(u64::MAX));
    }

    #[test]
    fn cache_reads_are_not_work() {
        let usage = Usage {
            input: Tokens(1),
            output: Tokens(2),
            cache_read: Tokens(1_000_000),
            cache_write: Tokens(4),
        };
        assert_eq!(usage.counted_input(), Tokens(5));
    }

    #[test]
    fn only_answers_and_faults_are_failures() {
        assert!(Status::Error.failed() && Status::Fault.failed());
        assert!(!Status::Ok.failed() && !Status::Cancelled.failed());
    }

    #[test]
    fn a_call_knows_its_name_and_kind() {
        let tool = Call::Tool(ToolCall { name: "ls".into(), ..ToolCall::default() });
        let model = Call::Model(ModelCall { model: "gpt".into(), ..ModelCall::default() });
        assert_eq!((tool.name(), model.name()), ("ls", "gpt"));
        assert!(tool.tool().is_some() && tool.model().is_none());
        assert!(model.model().is_some() && model.tool().is_none());
    }
}
