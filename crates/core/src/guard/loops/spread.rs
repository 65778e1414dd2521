//! Loops that are spread over many scopes: the same change, failing the same way, in one session or
//! sub-agent after the other.
//!
//! Each of them sees too little of it, so the scope above counts how many of them it happened in: an
//! agent over its sessions, a session over its nested scopes. Only failing calls that would change something count; branches
//! that read the same things, or do the same successfully, are normal. The first success of a call
//! forgets its failures, and so does an hour without one.

use serde::{Deserialize, Serialize};

use crate::call::{Effect, ToolCall};
use crate::guard::times;
use crate::units::{Millis, Time};

/// Calls that are remembered.
const MOST: usize = 16;
/// An hour without the call forgets it.
const FORGOTTEN: Millis = Millis(3_600_000);
/// How many times a rung counts: several branches may fail once each.
pub(super) const SCALE: u32 = 2;

/// Failing calls below a scope.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Spread(Vec<Failing>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Failing {
    #[serde(with = "postcard::fixint::le")]
    signature: u32,
    #[serde(with = "postcard::fixint::le")]
    result: u32,
    count: u32,
    last: Time,
    /// The number of the first of them in this scope.
    first: u64,
}

impl Spread {
    /// How often a call has failed lately, with the one that is asked about, and the number of the
    /// first time.
    pub(super) fn count(&self, call: &ToolCall, now: Time) -> Option<(u32, u64)> {
        let failing = self.0.iter().find(|failing| failing.is(call))?;
        let fresh = call.effect == Effect::Changes && now.since(failing.last) < FORGOTTEN;
        fresh.then(|| (failing.count.saturating_add(1), failing.first))
    }

    /// A call below this scope has ended; `None` is a success.
    pub(super) fn learn(&mut self, call: &ToolCall, failure: Option<u32>, number: u64, now: Time) {
        let at = self.0.iter().position(|failing| failing.is(call));
        match (at, failure) {
            (None, None) => {}
            (Some(at), None) => {
                self.0.remove(at);
            }
            (_, Some(_)) if call.effect != Effect::Changes => {}
            (Some(at), Some(result)) => {
                let failing = &mut self.0[at];
                let goes_on = failing.result == result && now.since(failing.last) < FORGOTTEN;
                let (count, first) = if goes_on {
                    (failing.count.saturating_add(1), failing.first)
                } else {
                    (1, number)
                };
                *failing = Failing { result, count, first, last: now, ..*failing };
            }
            (None, Some(result)) => {
                if self.0.len() == MOST {
                    let oldest = (0..MOST).min_by_key(|at| self.0[*at].last);
                    self.0.swap_remove(oldest.unwrap_or(0));
                }
                let signature = call.signature.short();
                self.0.push(Failing { signature, result, count: 1, last: now, first: number });
            }
        }
    }

    /// A repeat was refused.
    pub(super) fn refuse(&mut self, call: &ToolCall, now: Time) {
        if let Some(failing) = self.0.iter_mut().find(|failing| failing.is(call)) {
            failing.count = failing.count.saturating_add(1);
            failing.last = now;
        }
    }
}

impl Failing {
    fn is(&self, call: &ToolCall) -> bool {
        self.signature == call.signature.short()
    }
}

pub(super) fn because(tool: &str, count: u32, limit: u32, who: &str) -> String {
    let count = times(count.into());
    format!("{tool} failed the same way {count} in different parts of {who} (limit {limit})")
}

pub(super) fn advice(tool: &str, count: u32) -> String {
    let count = times(count.into());
    format!(
        "`{tool}` with these arguments has failed the same way {count}, here and in other tasks of \
         this agent. Do not try it again. Try a different approach, ask the user, or finish with \
         what you have."
    )
}
