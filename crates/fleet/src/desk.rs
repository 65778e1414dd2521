//! The desk: where a job has a chain before it, on copies that nobody else sees yet.

use std::collections::BTreeMap;

use deadstop_core::{
    Admission, Call, Decision, Held, Link, Outcome, Progress, Ticket, Time, admit, admit_approved,
    progress, settle, settle_late,
};
use serde::{Deserialize, Serialize};

/// Who settles a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Owner {
    /// The node that carries it, in this life of its.
    Node(String),
    /// Whoever hears of its end.
    Anybody,
    /// It was let pass while nobody could be asked.
    Unasked,
}

/// A chain of scopes, to be worked on. Whatever is done here is done again if somebody was faster.
pub struct Desk<'a, 'b> {
    /// The chain.
    pub links: &'a mut [Link<'b>],
    /// The store's time.
    pub now: Time,
    /// What goes with each scope of the chain.
    pub pages: &'a mut [Vec<u8>],
    /// The innermost scope's number: another one makes it another scope of the same name.
    pub number: &'a mut i64,
    /// The letter that the job asked for.
    pub letter: &'a mut Option<Vec<u8>>,
    pub(crate) me: &'a str,
    pub(crate) held: &'a mut [BTreeMap<String, Held>],
    pub(crate) notes: &'a mut [[i64; 2]],
    pub(crate) grown: bool,
}

impl Desk<'_, '_> {
    /// What goes with the innermost scope.
    pub fn page(&mut self) -> &mut Vec<u8> {
        let last = self.pages.len() - 1;
        &mut self.pages[last]
    }

    /// Who settles a call that this node carries.
    pub fn me(&self) -> Owner {
        Owner::Node(self.me.to_owned())
    }

    /// May this call run?
    pub fn admit(&mut self, call: &Call, owner: &Owner) -> Admission {
        let now = self.now;
        self.grown = true;
        self.on_behalf(owner, |links| admit(links, call, now))
    }

    /// May it, now that a person has approved it?
    pub fn admit_approved(&mut self, call: &Call, owner: &Owner) -> Admission {
        let now = self.now;
        self.grown = true;
        self.on_behalf(owner, |links| admit_approved(links, call, now))
    }

    /// May it go on?
    pub fn progress(
        &mut self,
        call: &Call,
        ticket: &mut Ticket,
        owner: &Owner,
        new: Progress<'_>,
    ) -> Decision {
        let now = self.now;
        self.grown = true;
        self.on_behalf(owner, |links| progress(links, call, ticket, new, now))
    }

    /// It has ended.
    pub fn settle(
        &mut self,
        call: &Call,
        mut ticket: Ticket,
        owner: &Owner,
        outcome: &Outcome,
    ) -> Decision {
        let now = self.now;
        match owner {
            Owner::Unasked => {
                return self
                    .on_behalf(owner, |links| settle_late(links, call, ticket, outcome, now));
            }
            Owner::Node(node) if node != self.me => {
                // This node was taken for dead meanwhile, and what it held for spent.
                ticket.forfeit();
                for link in self.links.iter_mut() {
                    link.state.give_back(Held { calls: -1, ..Held::default() });
                }
                return settle(self.links, call, ticket, outcome, now);
            }
            Owner::Node(_) | Owner::Anybody => {}
        }
        self.on_behalf(owner, |links| settle(links, call, ticket, outcome, now))
    }

    /// Counts loops and incidents, at a place in the chain.
    pub fn note(&mut self, depth: usize, loops: u64, incidents: u64) {
        if let Some(notes) = self.notes.get_mut(depth) {
            notes[0] = notes[0].saturating_add_unsigned(loops);
            notes[1] = notes[1].saturating_add_unsigned(incidents);
        }
    }

    /// Notes who holds what is set aside, or released.
    fn on_behalf<T>(&mut self, owner: &Owner, work: impl FnOnce(&mut [Link<'_>]) -> T) -> T {
        let before: Vec<Held> = self.links.iter().map(|link| link.state.held()).collect();
        let done = work(self.links);
        let node = match owner {
            Owner::Node(node) => node.as_str(),
            Owner::Anybody | Owner::Unasked => "",
        };
        for ((link, before), held) in self.links.iter().zip(before).zip(self.held.iter_mut()) {
            let more = link.state.held() - before;
            if !more.is_empty() {
                let all = held.entry(node.to_owned()).or_default();
                *all = *all + more;
            }
        }
        done
    }
}
