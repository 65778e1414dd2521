//! The desk: where a job has a chain before it, on copies that nobody else sees yet.

use std::collections::BTreeMap;

use deadstop_core::{
    Admission, Call, Decision, Held, Link, Outcome, Progress, Ticket, Time, Verdict, admit,
    admit_approved, progress, settle, settle_buried, settle_late,
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
    /// Whether something was refused: nobody is refused for what was true a while ago.
    pub(crate) refused: bool,
}

impl<'a, 'b> Desk<'a, 'b> {
    /// A chain of which one node alone keeps the state: nothing is noted about who holds what.
    pub fn local(
        links: &'a mut [Link<'b>],
        now: Time,
        number: &'a mut i64,
        letter: &'a mut Option<Vec<u8>>,
    ) -> Desk<'a, 'b> {
        Desk {
            links,
            now,
            pages: &mut [],
            number,
            letter,
            me: "",
            held: &mut [],
            notes: &mut [],
            grown: false,
            refused: false,
        }
    }
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
        let admission = admit(self.links, call, self.now);
        self.admitted(admission, owner)
    }

    /// May it, now that a person has approved it?
    pub fn admit_approved(&mut self, call: &Call, owner: &Owner) -> Admission {
        let admission = admit_approved(self.links, call, self.now);
        self.admitted(admission, owner)
    }

    fn admitted(&mut self, admission: Admission, owner: &Owner) -> Admission {
        self.grown = true;
        self.refused |= admission.verdict >= Verdict::Block;
        if let Some(ticket) = &admission.ticket {
            self.hold(owner, ticket.held());
        }
        admission
    }

    /// May it go on?
    pub fn progress(
        &mut self,
        call: &Call,
        ticket: &mut Ticket,
        owner: &Owner,
        mut new: Progress<'_>,
    ) -> Decision {
        self.grown = true;
        if *owner == Owner::Unasked {
            new.output = new.output.min(ticket.reserved().output);
        }
        let before = ticket.held();
        let decision = progress(self.links, call, ticket, new, self.now);
        self.refused |= !decision.allowed();
        self.hold(owner, ticket.held() - before);
        decision
    }

    /// It has ended.
    pub fn settle(
        &mut self,
        call: &Call,
        ticket: Ticket,
        owner: &Owner,
        outcome: &Outcome,
    ) -> Decision {
        let now = self.now;
        let decision = match owner {
            Owner::Unasked => settle_late(self.links, call, ticket, outcome, now),
            // This node was taken for dead meanwhile, and what it held for spent.
            Owner::Node(node) if node != self.me => {
                settle_buried(self.links, call, ticket, outcome, now)
            }
            Owner::Node(_) | Owner::Anybody => {
                self.hold(owner, Held::default() - ticket.held());
                settle(self.links, call, ticket, outcome, now)
            }
        };
        self.refused |= !decision.allowed();
        decision
    }

    /// Counts loops and incidents, at a place in the chain.
    pub fn note(&mut self, depth: usize, loops: u64, incidents: u64) {
        if let Some(notes) = self.notes.get_mut(depth) {
            notes[0] = notes[0].saturating_add_unsigned(loops);
            notes[1] = notes[1].saturating_add_unsigned(incidents);
        }
    }

    /// Notes who holds more, or less, in all of the chain. Not read off the states: what they show
    /// may lag behind.
    fn hold(&mut self, owner: &Owner, more: Held) {
        let node = match owner {
            Owner::Node(node) => node.as_str(),
            Owner::Anybody => "",
            // Nobody knows of it before it ends.
            Owner::Unasked => return,
        };
        for held in self.held.iter_mut().filter(|_| !more.is_empty()) {
            let all = held.entry(node.to_owned()).or_default();
            *all = *all + more;
        }
    }
}
