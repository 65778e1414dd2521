//! Calls that a client reports itself, by the ids it gave them. A report may be repeated: the second
//! one changes nothing.

use std::collections::{HashMap, VecDeque};

use deadstop_core::{Call, Ticket, Trip, Verdict};
use deadstop_fleet::Owner;
use serde::{Deserialize, Serialize};

use super::conversation::as_json;

/// Calls that one scope remembers.
const MOST: usize = 4096;

/// A call that a client reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Reported {
    /// Its row number.
    pub(super) number: i64,
    /// The call, without its arguments.
    pub(super) call: Call,
    /// Set while it runs.
    pub(super) ticket: Option<Ticket>,
    pub(super) owner: Owner,
    /// The warnings it was admitted with.
    #[serde(with = "as_json")]
    pub(super) trips: Vec<Trip>,
    /// The beginning of the request, redacted: a receipt may come to a node that never saw it.
    pub(super) asked: String,
    /// The answer to its receipt.
    #[serde(with = "as_json")]
    pub(super) receipt: Option<(Verdict, Vec<Trip>)>,
}

impl Reported {
    pub(super) fn read(bytes: &[u8]) -> Option<Reported> {
        postcard::from_bytes(bytes).ok()
    }

    pub(super) fn write(&self) -> Vec<u8> {
        postcard::to_extend(self, Vec::new()).unwrap_or_default()
    }

    /// Whether this is the same call, still running.
    pub(super) fn is(&self, call: &Call) -> bool {
        self.ticket.is_some() && self.call == call.without_arguments()
    }
}

/// The reported calls of one scope, in one node's memory.
#[derive(Default)]
pub(super) struct ReportedCalls {
    /// `None` while a step works on the call.
    calls: HashMap<String, Option<Reported>>,
    order: VecDeque<String>,
}

impl ReportedCalls {
    pub(super) fn contains(&self, id: &str) -> bool {
        self.calls.contains_key(id)
    }

    pub(super) fn runs(&self, id: &str) -> bool {
        self.calls.get(id).and_then(Option::as_ref).is_some_and(|call| call.ticket.is_some())
    }

    /// Those that have no receipt, the oldest first.
    pub(super) fn running(&self) -> Vec<String> {
        self.order.iter().filter(|id| self.runs(id)).cloned().collect()
    }

    /// Hands a call to a step, which puts it back.
    pub(super) fn take(&mut self, id: &str) -> Option<Reported> {
        self.calls.get_mut(id)?.take()
    }

    /// Remembers a call; returns one that never had a receipt, if there are too many.
    pub(super) fn put(&mut self, id: &str, call: Reported) -> Option<Reported> {
        if self.calls.insert(id.to_owned(), Some(call)).is_none() {
            self.order.push_back(id.to_owned());
        }
        if self.order.len() <= MOST {
            return None;
        }
        let oldest = self.order.pop_front()?;
        self.calls.remove(&oldest).flatten().filter(|call| call.ticket.is_some())
    }
}
