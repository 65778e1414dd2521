//! Calls that two doors tell of: one that a gateway, a hook or an SDK sees may also be told of by
//! telemetry, before or after. It counts once, whichever comes first.
//!
//! A call is known by the id that its model or its host gave it where both sides have one of the same
//! maker, and otherwise by what both sides can see: a tool by its name, a model call by the tokens
//! that it was billed for. One call of one side is the same as one call of the other side at most.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::call::{Call, Digest, Outcome};

/// Calls that a scope remembers for this.
const REMEMBERED: usize = 24;

/// The id that a model, a host or a client gave a call.
///
/// Ids of one maker begin alike: `toolu_…`, `call_…`. Two of these that differ are two calls. A
/// client's own id says nothing about the model's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CallId {
    digest: u32,
    maker: u8,
}

impl CallId {
    /// The id of a text; `None` if that is empty.
    pub fn of(id: &str) -> Option<CallId> {
        let maker = id.split(['_', '-', '.']).next().filter(|maker| maker.len() < id.len());
        let maker = maker.map_or(0, |maker| Digest::of(maker.as_bytes()).short().to_le_bytes()[0]);
        let digest = Digest::of(id.as_bytes()).short().max(1);
        (!id.is_empty()).then_some(CallId { digest, maker: maker.max(1) })
    }
}

/// How a call is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// By its id; 0 if it has none.
    id: CallId,
    /// By what is seen of it.
    looks: u32,
}

impl Mark {
    /// `None` for a call of which nothing is known that another door would see, too.
    pub(crate) fn of(call: &Call, outcome: &Outcome) -> Option<Mark> {
        let id = outcome.id.unwrap_or_default();
        let looks = match call {
            Call::Tool(call) => Digest::of(call.name.as_bytes()).short(),
            Call::Model(_) => {
                let used = &outcome.usage;
                let prompt = used.input + used.cache_read + used.cache_write;
                if prompt.0 == 0 && used.output.0 == 0 {
                    return None;
                }
                let mut tokens = [0; 16];
                tokens[..8].copy_from_slice(&prompt.0.to_le_bytes());
                tokens[8..].copy_from_slice(&used.output.0.to_le_bytes());
                Digest::of(&tokens).short()
            }
        };
        Some(Mark { id, looks })
    }

    fn is(self, other: Mark) -> bool {
        let known = self.id.digest != 0;
        match known && self.id == other.id {
            true => true,
            false if known && self.id.maker == other.id.maker => false,
            false => self.looks == other.looks,
        }
    }
}

/// A call, and who has told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    id: CallId,
    looks: u32,
    /// Whether a door saw it.
    door: bool,
    /// The telemetry that told of it, by its own id; 0 if none did.
    told: u32,
}

impl Entry {
    fn mark(&self) -> Mark {
        Mark { id: self.id, looks: self.looks }
    }
}

/// The calls of a scope that were told of last.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Twice(VecDeque<Entry>);

impl Twice {
    /// A door has seen a call end. Says whether telemetry told of it before.
    pub(crate) fn seen(&mut self, mark: Mark) -> bool {
        let known = self.0.iter_mut().find(|e| e.told != 0 && !e.door && e.mark().is(mark));
        if let Some(entry) = known {
            entry.door = true;
            return true;
        }
        self.push(Entry { id: mark.id, looks: mark.looks, door: true, told: 0 });
        false
    }

    /// Telemetry tells of a call, under its own id for that. Says whether it is known already, from a
    /// door or from the same telemetry.
    pub(crate) fn told(&mut self, telemetry: Digest, mark: Option<Mark>) -> bool {
        let told = telemetry.short().max(1);
        if self.0.iter().any(|entry| entry.told == told) {
            return true;
        }
        let Some(mark) = mark else {
            self.push(Entry { id: CallId::default(), looks: 0, door: false, told });
            return false;
        };
        let same = |entry: &Entry| entry.id == mark.id && mark.id != CallId::default();
        let known = self.0.iter_mut().find(|e| same(e) || e.told == 0 && e.mark().is(mark));
        if let Some(entry) = known {
            entry.told = told;
            return true;
        }
        self.push(Entry { id: mark.id, looks: mark.looks, door: false, told });
        false
    }

    fn push(&mut self, entry: Entry) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(entry);
    }
}
