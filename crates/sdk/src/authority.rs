//! Whoever has the last word over a session: a server, if there is one.
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
    },
}

/// What was said.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Told {
    /// Go ahead.
    Allowed,
    /// Do not.
    Refused(Refusal),
    /// Nobody answers: the fail mode decides.
    Away,
}

/// Why not, in the server's words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) verdict: Verdict,
    pub(crate) guard: String,
    pub(crate) reason: String,
    pub(crate) explain: String,
    pub(crate) measured: Value,
    pub(crate) limit: Value,
    pub(crate) incident: Option<String>,
}

/// How a call ended.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) remote: Remote,
    pub(crate) scope: Vec<String>,
    pub(crate) outcome: Outcome,
    /// The beginning of what was answered.
    pub(crate) text: Option<String>,
}

/// Whoever has the last word.
pub(crate) trait Authority: Send + Sync {
    /// May it?
    fn ask(&self, question: &Question<'_>) -> Told;
    /// It has ended. Never waits.
    fn tell(&self, report: Report);
    /// The session was ended here. With `wait`, returns when that lasts, or after a while.
    fn killed(&self, reason: &str, wait: bool);
    /// How it is.
    fn health(&self) -> ServerHealth;
    /// Waits, not for long, until what was told has arrived.
    fn flush(&self, most: std::time::Duration);
    /// Nobody asks any more.
    fn close(&self);
}
