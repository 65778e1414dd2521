//! Recorded agent runs, read from whatever they were recorded in.
//!
//! The backtest replays what agents really did, so it must read what people really have. Five
//! formats are understood, told apart by their content and never by a file's name:
//!
//! | format | looks like |
//! |---|---|
//! | traces, one a line | `{"dataset":…, "id":…, "model":…, "task":…, "outcome":…, "labels":…, "messages":[…]}` |
//! | OpenAI messages | `[{"role":…}, …]` or `{"messages":[…]}`, a line each, or one document over many lines |
//! | OpenAI response items | the same, with `function_call` and `function_call_output` among them |
//! | Anthropic messages | the same, with `text`, `tool_use` and `tool_result` blocks as content |
//! | Claude Code transcripts | `{"type":"assistant", "sessionId":…, "message":{…}}`, an event a line |
//!
//! A bare message a line (`{"role":…}`) is read as well: the file is then one trace. Lines of
//! different formats may be mixed.
//!
//! # What is left out
//! Thinking blocks, tool results whose call is not in the trace, and the answers that Claude Code
//! makes up itself (model `<synthetic>`: no model was asked, nothing was paid). Images and other
//! media are kept as `[image#<digest>]`, so that two different screenshots stay different.

mod assemble;
mod read;
mod record;
mod scalar;
mod tally;
mod transcript;

use deadstop_core::{Time, Usage};
use serde_json::Value;

pub use read::{BadLine, MAX_LINE, MAX_TRANSCRIPT, Reader};

/// One recorded run of an agent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trace {
    /// Its name: the recorded id, a transcript's session, or else `line-<n>`, where it was found.
    pub id: String,
    /// The collection it belongs to.
    pub dataset: Option<String>,
    /// The model that ran: the recorded one, or else the first that answered.
    pub model: Option<String>,
    /// What the agent was to do.
    pub task: Option<String>,
    /// Whether it succeeded, where the trace says so.
    pub outcome: Option<bool>,
    /// Whatever else is known about the run, as it was recorded.
    pub labels: Option<Value>,
    /// How many messages the trace has. A transcript writes one answer as several events; they
    /// count as one message.
    pub messages: usize,
    /// What was said and done, in order.
    pub turns: Vec<Turn>,
}

/// One event of a trace.
#[derive(Debug, Clone, PartialEq)]
pub enum Turn {
    /// Words that went to the model.
    Prompt {
        /// The words.
        text: String,
        /// Whether a person (or whatever plays one) said them: not so for system prompts, for
        /// what a client puts in by itself, and for what an agent tells its sub-agent.
        person: bool,
        /// When it was said.
        at: Option<Time>,
        /// Which message it was, from 1; 0 for a system prompt that is kept beside the messages.
        message: usize,
    },
    /// An answer of the model.
    Answer {
        /// What it wrote.
        text: String,
        /// The tools it called, each with its result.
        calls: Vec<RecordedCall>,
        /// The tokens it used.
        usage: Option<Usage>,
        /// The model, where the message names it.
        model: Option<String>,
        /// When it came.
        at: Option<Time>,
        /// Which message it was, from 1.
        message: usize,
    },
}

/// A tool call as it was recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedCall {
    /// The tool's name.
    pub name: String,
    /// Its arguments: the JSON inside OpenAI's string, or the string itself if that is not JSON.
    /// An empty string means no arguments, `{}`.
    pub arguments: Value,
    /// The message that asked for it, from 1.
    pub message: usize,
    /// What came back, if the trace goes on that far.
    pub result: Option<RecordedResult>,
}

/// A tool's result as it was recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedResult {
    /// Its text.
    pub text: String,
    /// Whether it is flagged as an error. Only the flag counts; a format without one has none.
    pub is_error: bool,
    /// When it came.
    pub at: Option<Time>,
    /// The message it came in, from 1.
    pub message: usize,
}

#[cfg(test)]
mod tests;
