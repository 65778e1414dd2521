//! Refusals: a call that may not run, and a scope that is over.

use deadstop_core::{GuardId, ScopeKind, Trip, Verdict};
use serde::Serialize;
use serde_json::Value;

/// Where a guard tripped, and what had been spent by then.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Context {
    /// The scope whose guard tripped.
    pub who: String,
    /// Its kind: `project`, `agent`, `session` or `nested`.
    pub kind: ScopeKind,
    /// How many scopes are above it inside the session: 0 for the session itself.
    pub depth: usize,
    /// Why, as a stable code: `input_exceeded`, `repetition`, `session_killed`.
    pub reason: String,
    /// Input tokens spent in that scope.
    pub input_tokens_spent: u64,
    /// Output tokens spent in that scope.
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
pub struct Why {
    /// The guard.
    pub guard: String,
    /// What is done about it: `warn`, `block` or `kill`.
    pub verdict: Verdict,
    /// One sentence for people.
    pub explain: String,
    /// What was measured.
    pub measured: Value,
    /// The limit.
    pub limit: Value,
    /// Where, and what had been spent.
    pub context: Context,
    /// The incident at the server, if it became one.
    pub incident: Option<String>,
}

/// Scopes above the session: the project and the agent.
pub(crate) const ABOVE: usize = 2;

impl Why {
    pub(crate) fn of(trip: &Trip) -> Why {
        let context = &trip.context;
        Why {
            guard: trip.guard.name().to_owned(),
            verdict: trip.verdict,
            explain: trip.explain(),
            measured: serde_json::to_value(trip.measured).unwrap_or_default(),
            limit: serde_json::to_value(trip.limit).unwrap_or_default(),
            context: Context {
                who: context.who.clone(),
                kind: context.kind,
                depth: context.depth.saturating_sub(ABOVE),
                reason: trip.reason.clone(),
                input_tokens_spent: context.input.0,
                output_tokens_spent: context.output.0,
                elapsed_ms: context.elapsed.0,
                accumulated_input_tokens: context.accumulated_input.0,
                accumulated_output_tokens: context.accumulated_output.0,
            },
            incident: None,
        }
    }

    /// Its stable code.
    pub fn reason(&self) -> &str {
        &self.context.reason
    }
}

/// A scope is over, and so is whoever runs in it. Do not retry, do not catch but at the top.
#[derive(Debug, Clone, PartialEq, Serialize, thiserror::Error)]
#[error("deadstop {}; do not retry", .why.explain)]
pub struct Killed {
    /// What ended it.
    pub why: Why,
}

/// This call may not run; others may.
#[derive(Debug, Clone, PartialEq, Serialize, thiserror::Error)]
#[error("deadstop {}", .why.explain)]
pub struct Blocked {
    /// Why not.
    pub why: Why,
}

/// A call that may not run, or not go on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refused {
    /// Its scope is over.
    #[error(transparent)]
    Killed(Box<Killed>),
    /// Only this call.
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

    /// The strictest of what guards said.
    pub(crate) fn by(trips: &[Trip]) -> Option<Refused> {
        let trip = trips.first().filter(|trip| trip.verdict > Verdict::Steer)?;
        Some(Refused::new(Why::of(trip)))
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

    /// Whether it was held by a person, and may be tried again later.
    pub fn is_paused(&self) -> bool {
        self.why().guard == GuardId::Paused.name()
    }
}
