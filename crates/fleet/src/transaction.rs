//! A transaction: one chain of scopes that a job works on, on snapshots that no other job sees
//! before the commit.

use std::collections::BTreeMap;

use deadstop_core::share::{Held, progress_held, settle_buried, settle_late};
use deadstop_core::{
    Admission, Call, Decision, Digest, Link, Observed, Outcome, Progress, Ticket, Time, Verdict,
    admit, admit_allowed, admit_approved, observe, progress, settle,
};
use serde::{Deserialize, Serialize};

/// Who settles a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Owner {
    /// The node that carries the call, named by its current incarnation.
    Node(String),
    /// Any node: the one that receives the call's receipt.
    Any,
    /// A call that a node admitted while Redis was unreachable. It reserved nothing there and is
    /// booked when it ends.
    Offline,
}

/// A chain of scopes that a job works on. If the commit loses to a concurrent writer, the job runs
/// again on a new transaction.
pub struct Transaction<'a, 'b> {
    /// The chain, from the project down.
    pub links: &'a mut [Link<'b>],
    /// The time by the clock of Redis.
    pub now: Time,
    /// For each scope of the chain: bytes that are stored with its state and that the engine does
    /// not read.
    pub attachments: &'a mut [Vec<u8>],
    /// The number of the innermost scope. A new number makes it a new scope under the same name.
    pub number: &'a mut i64,
    /// The entry that the job asked for: a record of its own beside the chain, found by key.
    pub entry: &'a mut Option<Vec<u8>>,
    pub(crate) me: &'a str,
    pub(crate) held: &'a mut [BTreeMap<String, Held>],
    pub(crate) notes: &'a mut [[i64; 2]],
    pub(crate) grown: bool,
    /// Whether the job refused something. A refusal must rest on current counters, so the commit
    /// then checks that they have not changed since they were read.
    pub(crate) refused: bool,
}

impl<'a, 'b> Transaction<'a, 'b> {
    /// A transaction on state that only this node keeps. It does not track reservations by node.
    pub fn local(
        links: &'a mut [Link<'b>],
        now: Time,
        number: &'a mut i64,
        entry: &'a mut Option<Vec<u8>>,
    ) -> Transaction<'a, 'b> {
        Transaction {
            links,
            now,
            attachments: &mut [],
            number,
            entry,
            me: "",
            held: &mut [],
            notes: &mut [],
            grown: false,
            refused: false,
        }
    }
}

impl Transaction<'_, '_> {
    /// The bytes stored with the innermost scope.
    pub fn attachment(&mut self) -> &mut Vec<u8> {
        let last = self.attachments.len() - 1;
        &mut self.attachments[last]
    }

    /// The owner of a call that this node carries.
    pub fn me(&self) -> Owner {
        Owner::Node(self.me.to_owned())
    }

    /// Decides whether a call may run, and reserves for it.
    pub fn admit(&mut self, call: &Call, owner: &Owner) -> Admission {
        let admission = admit(self.links, call, self.now);
        self.admitted(admission, owner)
    }

    /// Decides about a call that a person has approved.
    pub fn admit_approved(&mut self, call: &Call, owner: &Owner) -> Admission {
        let admission = admit_approved(self.links, call, self.now);
        self.admitted(admission, owner)
    }

    /// Decides about a call whose harm a person has allowed once.
    pub fn admit_allowed(&mut self, call: &Call, owner: &Owner) -> Admission {
        let admission = admit_allowed(self.links, call, self.now);
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

    /// Decides whether a running call may go on.
    pub fn progress(
        &mut self,
        call: &Call,
        ticket: &mut Ticket,
        owner: &Owner,
        mut new: Progress<'_>,
    ) -> Decision {
        self.grown = true;
        let before = ticket.held();
        let decision = if *owner == Owner::Offline {
            // Judged on a copy, which must not take more of a limit than the call was granted.
            new.output = new.output.min(ticket.reserved().output);
            progress_held(self.links, call, ticket, new, self.now)
        } else {
            progress(self.links, call, ticket, new, self.now)
        };
        self.refused |= !decision.allowed();
        self.hold(owner, ticket.held() - before);
        decision
    }

    /// Settles a call: replaces its reservation by what it used.
    pub fn settle(
        &mut self,
        call: &Call,
        ticket: Ticket,
        owner: &Owner,
        outcome: &Outcome,
    ) -> Decision {
        let now = self.now;
        let decision = match owner {
            Owner::Offline => settle_late(self.links, call, ticket, outcome, now),
            // This node's lease had expired meanwhile, so its reservations were already booked as
            // spent.
            Owner::Node(node) if node != self.me => {
                settle_buried(self.links, call, ticket, outcome, now)
            }
            Owner::Node(_) | Owner::Any => {
                self.hold(owner, Held::default() - ticket.held());
                settle(self.links, call, ticket, outcome, now)
            }
        };
        self.refused |= !decision.allowed();
        decision
    }

    /// Takes in a call that has run and that telemetry tells of; `None` if it is known already.
    pub fn observe(&mut self, call: &Call, outcome: &Outcome, report: Digest) -> Option<Observed> {
        let observed = observe(self.links, call, outcome, report, self.now)?;
        self.grown = true;
        let trips = || observed.before.iter().chain(&observed.after);
        self.refused |= trips().any(|trip| trip.verdict >= Verdict::Block);
        Some(observed)
    }

    /// Counts loops and incidents for the scope at a depth of the chain.
    pub fn note(&mut self, depth: usize, loops: u64, incidents: u64) {
        if let Some(notes) = self.notes.get_mut(depth) {
            notes[0] = notes[0].saturating_add_unsigned(loops);
            notes[1] = notes[1].saturating_add_unsigned(incidents);
        }
    }

    /// Notes a change of an owner's reservations in every scope of the chain. It is not derived
    /// from the states: they may lag behind.
    fn hold(&mut self, owner: &Owner, more: Held) {
        let node = match owner {
            Owner::Node(node) => node.as_str(),
            Owner::Any => "",
            // An offline call has no reservation in Redis.
            Owner::Offline => return,
        };
        for held in self.held.iter_mut().filter(|_| !more.is_empty()) {
            let all = held.entry(node.to_owned()).or_default();
            *all = *all + more;
        }
    }
}
