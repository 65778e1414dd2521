//! Texts of calls that have not ended yet, in this node's memory, as evidence for an incident. They
//! are not redacted yet, so they are not stored with the session.

use std::collections::{HashMap, VecDeque};

use deadstop_redact::excerpt::Excerpt;
use parking_lot::Mutex;

use super::Said;

/// Bytes that are kept; the oldest texts are dropped first.
const MOST_BYTES: usize = 8 << 20;

/// Texts by the numbers of their calls.
#[derive(Default)]
pub(super) struct Texts(Mutex<List>);

#[derive(Default)]
struct List {
    texts: HashMap<i64, Said>,
    order: VecDeque<i64>,
    bytes: usize,
}

impl Texts {
    /// Keeps the request of a call.
    pub(super) fn keep(&self, call: i64, request: &Excerpt) {
        let mut list = self.0.lock();
        let said = Said { request: request.beginning(), response: Excerpt::default() };
        list.bytes += said.size();
        list.order.push_back(call);
        list.texts.insert(call, said);
        while list.bytes > MOST_BYTES {
            let Some(oldest) = list.order.pop_front() else { break };
            list.remove(oldest);
        }
        let List { texts, order, .. } = &mut *list;
        if order.len() > 2 * texts.len() + 64 {
            order.retain(|call| texts.contains_key(call));
        }
    }

    /// Adds to the answer of a call; returns the texts so far.
    pub(super) fn add(&self, call: i64, answer: &str) -> Said {
        let mut list = self.0.lock();
        let Some(said) = list.texts.get_mut(&call) else {
            let mut said = Said::default();
            said.response.push(answer);
            return said;
        };
        let before = said.size();
        said.response.push(answer);
        let (after, said) = (said.size(), said.clone());
        list.bytes += after - before;
        said
    }

    /// The texts of a call that has ended; empty if this node does not have them.
    pub(super) fn take(&self, call: i64) -> Said {
        self.0.lock().remove(call)
    }
}

impl List {
    fn remove(&mut self, call: i64) -> Said {
        let Some(said) = self.texts.remove(&call) else { return Said::default() };
        self.bytes -= said.size();
        said
    }
}
