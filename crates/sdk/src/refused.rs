//! Refusals: a call that may not run, and a scope that is over.

use std::fmt;

use deadstop_core::{GuardId, ScopeKind, Trip, Verdict};
use serde::Serialize;
use serde_json::Value;

/// Where a guard tripped, and what had been spent by then.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Context {
    /// The scope whose guard tripped, as a path: `agent/session/crew/researcher`.
    pub who: String,
    /// The same path as its names, the agent first.
    pub path: Vec<String>,
    /// Its kind: `project`, `agent`, `session` or `nested`.
    pub kind: ScopeKind,
    /// How many scopes are above it inside the session: 0 for the session itself.
    pub depth: usize,
    /// Why, as a stable code: `input_exceeded`, `repetition`, `session_killed`. A call that comes
    /// after a kill has the code of what killed.
    pub reason: String,
    /// Input tokens spent in that scope, with those of the answer that tripped.
    pub input_tokens_spent: u64,
    /// Output tokens spent in that scope, with those of the answer that tripped.
    pub output_tokens_spent: u64,
    /// Milliseconds since that scope was opened.
    pub elapsed_ms: u64,
    /// Input tokens spent from the root on, by everything below it.
    pub accumulated_input_tokens: u64,
    /// Output tokens spent from the root on.
    pub accumulated_output_tokens: u64,
}

/// What a guard says.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Why {
    /// The guard.
    pub guard: String,
    /// What is done about it: `warn`, `steer`, `block` or `kill`.
    pub verdict: Verdict,
    /// The engine's code for this refusal. It is `context.reason`, except after a kill: then it says
    /// what kind of kill it was, such as `session_killed_budget`.
    pub code: String,
    /// One sentence for people.
    pub explain: String,
    /// What was measured.
    pub measured: Value,
    /// The limit.
    pub limit: Value,
    /// Where, and what had been spent.
    pub context: Context,
    /// What the model should be told, where a pattern guard decided.
    pub advice: Option<String>,
    /// The incident at the server, if it became one.
    pub incident: Option<String>,
}

/// Scopes above the session: the project and the agent.
pub(crate) const ABOVE: usize = 2;

impl Why {
    /// What a guard of the engine says, in a scope with this path. `cause` is what ended the scope, if
    /// something did before.
    pub(crate) fn of(trip: &Trip, path: Vec<String>, cause: Option<&str>) -> Why {
        let context = &trip.context;
        Why {
            guard: trip.guard.name().to_owned(),
            verdict: trip.verdict,
            code: trip.reason.clone(),
            explain: trip.explain(),
            measured: serde_json::to_value(trip.measured).unwrap_or_default(),
            limit: serde_json::to_value(trip.limit).unwrap_or_default(),
            context: Context {
                who: path.join("/"),
                path,
                kind: context.kind,
                depth: context.depth.saturating_sub(ABOVE),
                reason: cause.unwrap_or(&trip.reason).to_owned(),
                input_tokens_spent: context.input.0,
                output_tokens_spent: context.output.0,
                elapsed_ms: context.elapsed.0,
                accumulated_input_tokens: context.accumulated_input.0,
                accumulated_output_tokens: context.accumulated_output.0,
            },
            advice: trip.advice.clone(),
            incident: None,
        }
    }

    /// Its stable code.
    pub fn reason(&self) -> &str {
        &self.context.reason
    }

    /// What happened, without the word for what is done about it.
    fn because(&self) -> &str {
        let rest = self.explain.split_once(": ").map(|(_, rest)| rest);
        rest.unwrap_or(&self.explain).trim_end_matches('.')
    }
}

/// A scope is over: no call in it or below it may run. Do not retry; catch it at the top, if at all.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Killed {
    /// What ended it.
    pub why: Why,
}

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = &self.why.context;
        let what = match at.kind {
            ScopeKind::Nested => "scope",
            kind => kind.name(),
        };
        write!(
            f,
            "Deadstop stopped this {what}: {}. Do not retry. \
             [{} | input_tokens={} | output_tokens={} | elapsed_ms={}]",
            self.why.because(),
            at.reason,
            at.input_tokens_spent,
            at.output_tokens_spent,
            at.elapsed_ms
        )
    }
}

impl std::error::Error for Killed {}

/// This call may not run; others may.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Blocked {
    /// Why not.
    pub why: Why,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Deadstop blocked this call: {}. [{}]", self.why.because(), self.why.reason())
    }
}

impl std::error::Error for Blocked {}

/// A call that may not run, or not go on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Its scope is over.
    #[error(transparent)]
    Killed(Box<Killed>),
    /// Only this call is refused.
    #[error(transparent)]
    Blocked(Box<Blocked>),
}

impl Refused {
    pub(crate) fn new(why: Why) -> Refused {
        match why.verdict {
            Verdict::Kill => Refused::Killed(Box::new(Killed { why })),
            _ => Refused::Blocked(Box::new(Blocked { why })),
        }
    }

    /// Why.
    pub fn why(&self) -> &Why {
        match self {
            Refused::Killed(killed) => &killed.why,
            Refused::Blocked(blocked) => &blocked.why,
        }
    }

    /// Whether the scope is over.
    pub fn is_killed(&self) -> bool {
        matches!(self, Refused::Killed(_))
    }

    /// Whether an operator holds the session: the call may be tried again later.
    pub fn is_paused(&self) -> bool {
        self.why().guard == GuardId::Paused.name()
    }
}
