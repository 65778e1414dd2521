//! Calls that a client reports itself, by the ids that it gave them: saying something twice is
//! saying it once.

use std::collections::{HashMap, VecDeque};

use deadstop_core::Call;
use deadstop_protocol::excerpt::Excerpt;
use serde_json::Value;

use super::Running;

/// Calls that are remembered; a client that repeats itself does so soon.
const MOST: usize = 4096;

/// What a client was told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

/// A call that was reported.
pub(crate) struct Reported {
    pub(crate) call: Call,
    /// While it runs.
    pub(crate) running: Option<Running>,
    pub(crate) request: Excerpt,
    pub(crate) response: Excerpt,
    /// What was said when it asked, and when it told how it ended.
    pub(crate) admitted: Reply,
    pub(crate) receipt: Option<Reply>,
}

/// The calls of one scope.
#[derive(Default)]
pub(crate) struct Governed {
    calls: HashMap<String, Reported>,
    order: VecDeque<String>,
}

impl Governed {
    /// A call by the client's id.
    pub(crate) fn get(&mut self, id: &str) -> Option<&mut Reported> {
        self.calls.get_mut(id)
    }

    /// Remembers a call; gives back one that never told how it ended, if there are too many.
    pub(crate) fn insert(&mut self, id: String, call: Reported) -> Option<Reported> {
        self.order.push_back(id.clone());
        self.calls.insert(id, call);
        if self.order.len() <= MOST {
            return None;
        }
        let oldest = self.order.pop_front()?;
        self.calls.remove(&oldest).filter(|call| call.running.is_some())
    }
}
