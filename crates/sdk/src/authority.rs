//! The authority over a session: a server, if there is one.
//!
//! # How budgets agree
//! Every call is judged twice: here, by the session's own engine with the server's policy and the
//! scopes' own limits, and at the server, whose scopes count what all processes do. It is tried here
//! on a copy, asked there, and only then entered here, so that a refusal of either leaves no trace at
//! the other. What a call may use is leased: it is set aside at the server before the call runs and
//! given back, or booked, when it ends. So a server's budget holds over all processes to the cent,
//! and no process holds more than its calls in flight. Reports of ends go up in the background, in
//! order; a new question waits for those before it, so that a call never stands in its own way. Calls
//! that were made while the server was away are told when it is back, first that they were made, then
//! how they ended.

use deadstop_core::{Outcome, Verdict};
use serde_json::Value;

use crate::health::ServerHealth;
use crate::stop::StopSignal;

/// A call that is about to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) id: &'a str,
    pub(crate) scope: &'a [String],
    pub(crate) call: &'a Asked,
}

/// How the server knows a call.
#[derive(Debug, Clone)]
pub(crate) struct Remote {
    pub(crate) id: String,
    /// What it has yet to hear, because it was away when the call began.
    pub(crate) late: Option<Asked>,
}

#[derive(Debug, Clone)]
pub(crate) enum Asked {
    Tool {
        tool: String,
        server: Option<String>,
        arguments: Value,
    },
    Model {
        model: String,
        provider: Option<String>,
        input: u64,
        max_output: Option<u64>,
        prompt: Option<String>,
        from_person: bool,
        compacted: bool,
    },
}

/// What was said.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Told {
    /// Go ahead; perhaps with something to say to the model.
    Allowed(Option<Box<Refusal>>),
    /// Do not.
    Refused(Box<Refusal>),
    /// The server does not answer: the fail mode decides.
    Away,
    /// The call was stopped, or its caller left, before the server answered.
    Stopped,
}

/// Why not, or what the model should be told, in the server's words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) verdict: Verdict,
    pub(crate) guard: String,
    pub(crate) reason: String,
    /// Where the scope that is over is in the tree, if it is the session or above it.
    pub(crate) ended: Option<usize>,
    /// The code of what ended the scope, where the reason only says that it is over.
    pub(crate) cause: Option<String>,
    pub(crate) explain: String,
    pub(crate) measured: Value,
    pub(crate) limit: Value,
    pub(crate) incident: Option<String>,
    /// What the model should be told.
    pub(crate) advice: Option<String>,
}

/// How a call ended.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) remote: Remote,
    pub(crate) scope: Vec<String>,
    pub(crate) outcome: Outcome,
    /// The beginning of what was answered.
    pub(crate) text: Option<String>,
    /// Whether the model has been told something about it already.
    pub(crate) steered: bool,
}

/// What the server is told in the background.
#[derive(Debug, Clone)]
pub(crate) enum Telling {
    /// How a call ended.
    Ended(Box<Report>),
    /// The context of the agent in this scope was compacted.
    Compacted(Vec<String>),
}

/// The authority over a session.
pub(crate) trait Authority: Send + Sync {
    /// May a call be made? Returns at once when one of the signals is given.
    fn ask(&self, question: &Question<'_>, until: [&StopSignal; 2]) -> Told;
    /// A call has ended, or a context was compacted. Never waits.
    fn tell(&self, telling: Telling);
    /// The session was ended here. Never waits for the server; see [`Authority::flush`].
    fn killed(&self, reason: &str);
    /// How it is.
    fn health(&self) -> ServerHealth;
    /// Waits, at most so long, until everything that was told has arrived.
    fn flush(&self, most: std::time::Duration);
    /// The session is gone: threads may end.
    fn close(&self);
}
