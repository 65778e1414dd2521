//! Calls that a client reports itself, by the ids that it gave them: saying something twice is
//! saying it once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use deadstop_core::{Call, Time};
use deadstop_redact::excerpt::Excerpt;
use serde_json::Value;

use super::{Answer, Approval, Running};

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
    /// Calls that a person was asked about.
    asked: HashMap<String, Arc<Approval>>,
}

impl Governed {
    /// A call by the client's id.
    pub(crate) fn get(&mut self, id: &str) -> Option<&mut Reported> {
        self.calls.get_mut(id)
    }

    /// What was asked about a call, if it is the same one and the answer still counts.
    pub(crate) fn asked(&self, id: &str, call: &Call, now: Time) -> Option<Arc<Approval>> {
        let counts = |approval: &&Arc<Approval>| match approval.word() {
            None => true,
            Some(word) => match word.answer {
                Answer::Approved => approval.is_approved(now),
                Answer::Denied | Answer::Lapsed => true,
                Answer::Withdrawn | Answer::Stopped => false,
            },
        };
        self.asked.get(id).filter(|approval| approval.call == *call).filter(counts).cloned()
    }

    /// Remembers that a person was asked about a call.
    pub(crate) fn ask(&mut self, id: String, approval: Arc<Approval>, now: Time) {
        self.asked.retain(|_, known| !known.is_over(now));
        self.asked.insert(id, approval);
    }

    /// An approval is good for one call.
    pub(crate) fn forget(&mut self, id: &str) {
        self.asked.remove(id);
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
