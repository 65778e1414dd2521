//! The guards: what each one may look at, what it may change, and the list of all of them.
//!
//! A guard is a file below this one: its settings, its state, its check and its sentence. It is
//! asked at a call's three moments. Asking before a call must not change anything (a call that
//! another scope refuses must leave no trace), so [`Guard::admit`] reads and [`Guard::commit`]
//! writes, once the whole chain has agreed.

pub(crate) mod access;
pub(crate) mod breaker;
pub(crate) mod budget;
pub(crate) mod destructive;
pub(crate) mod ending;
pub(crate) mod harm;
pub(crate) mod loops;
pub(crate) mod quota;
pub(crate) mod similarity;
pub(crate) mod standing;
pub(crate) mod steps;
pub(crate) mod strikes;
pub(crate) mod swarm;
pub(crate) mod text_loop;
pub(crate) mod time;
pub(crate) mod tokens;
pub(crate) mod velocity;

use crate::call::{Call, Digest, Outcome};
use crate::engine::Ticket;
use crate::gauge::{Dial, Gauge};
use crate::grant::Grant;
use crate::ledger::{Ledger, Reserved};
use crate::policy::Policy;
use crate::scope::ScopeState;
use crate::trip::{Action, Context, Ends, GuardId, Measure, Trip};
use crate::units::{NanoUsd, Time, Tokens};

/// All guards that decide about a live scope, in the order in which they are asked. `standing` and
/// `access` come before them, in [`crate::engine`]: what is dead or forbidden is not looked at
/// further.
pub(crate) static GUARDS: [&dyn Guard; 15] = [
    &ending::Guard,
    &steps::Guard,
    &tokens::Guard,
    &budget::Guard,
    &time::Guard,
    &velocity::Guard,
    &swarm::Guard,
    &quota::Guard,
    &breaker::Guard,
    &destructive::Guard,
    &harm::Guard,
    &loops::Guard,
    &similarity::Guard,
    &text_loop::Guard,
    &strikes::Guard,
];

/// One limit or one detector.
pub(crate) trait Guard: Sync {
    /// May this call run? Reads only.
    fn admit(&self, _seat: &Seat<'_>) -> Option<Trip> {
        None
    }
    /// The call will run: count it.
    fn commit(&self, _scope: &mut ScopeState, _note: &mut Note<'_>) {}
    /// May this call go on?
    fn progress(&self, _seat: &Seat<'_>) -> Option<Trip> {
        None
    }
    /// The call has ended: learn from it, then look at what was learned.
    fn settle(&self, _lesson: &mut Lesson<'_>, _end: &End<'_>) {}
    /// Has what was learned gone too far?
    fn verify(&self, _seat: &Seat<'_>, _end: &End<'_>) -> Option<Trip> {
        None
    }
    /// What it measures now, against which limits. Reads only.
    fn gauges(&self, _dial: &Dial<'_>) -> Vec<Gauge> {
        Vec::new()
    }
}

/// Where a guard sits: one scope of the chain, and the call in front of it.
pub(crate) struct Seat<'a> {
    pub(crate) name: &'a str,
    pub(crate) scope: &'a ScopeState,
    pub(crate) policy: &'a Policy,
    pub(crate) call: &'a Call,
    /// What the call has reserved, or is about to reserve, here as everywhere in the chain.
    pub(crate) reserved: Reserved,
    /// The grant that covers the call, if one does.
    pub(crate) grant: Option<&'a Grant>,
    /// The ledger at the root, for what was accumulated there.
    pub(crate) root: &'a Ledger,
    pub(crate) depth: usize,
    /// The sub-agents that the call is made in, if it is made in one.
    pub(crate) below: Option<Below>,
    /// Whether this is the innermost scope: patterns are looked for where the calls are made, so
    /// that parallel branches are not taken for one agent that repeats itself.
    pub(crate) innermost: bool,
    /// What a running call has used so far. It is not in the ledger before the call is settled.
    pub(crate) running: SoFar,
    pub(crate) now: Time,
}

/// Tokens that a running call has used so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct SoFar {
    pub(crate) input: Tokens,
    pub(crate) output: Tokens,
}

/// What a guard may write down when a call is admitted.
pub(crate) struct Note<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) call: &'a Call,
    pub(crate) ticket: &'a mut Ticket,
    /// Whether a grant covers the call.
    pub(crate) granted: bool,
    /// Whether a person has approved this one call.
    pub(crate) approved: bool,
    pub(crate) innermost: bool,
    /// The sub-agents that the call is made in, if it is made in one.
    pub(crate) below: Option<Below>,
    pub(crate) now: Time,
}

/// The scopes inside a session that a call is made in, from the outermost.
#[derive(Clone, Copy)]
pub(crate) struct Below {
    /// How many they are.
    pub(crate) depth: u64,
    /// Each by a digest of its path; of deep trees the outermost and the innermost.
    pub(crate) places: [u32; DEEPEST],
}

/// Scopes inside each other that are told apart.
pub(crate) const DEEPEST: usize = 8;

/// Where a guard learns when a call has ended.
pub(crate) struct Lesson<'a> {
    pub(crate) scope: &'a mut ScopeState,
    pub(crate) policy: &'a Policy,
    pub(crate) innermost: bool,
}

/// A call that has ended.
pub(crate) struct End<'a> {
    pub(crate) call: &'a Call,
    pub(crate) ticket: &'a Ticket,
    pub(crate) outcome: &'a Outcome,
    pub(crate) cost: NanoUsd,
    pub(crate) tokens: Tokens,
    /// Whether the scope that made the call does not remember the same call.
    pub(crate) first_here: bool,
    /// The name of the scope that made the call, as a digest.
    pub(crate) place: Digest,
    pub(crate) now: Time,
}

impl Seat<'_> {
    /// The scope as a sentence calls it: "the session s1".
    pub(crate) fn who(&self) -> String {
        format!("the {} {}", self.scope.kind.name(), self.name)
    }

    /// A trip at this seat; the guard fills in what it measured.
    pub(crate) fn trip(&self, guard: GuardId, reason: &str, action: Action) -> Trip {
        let (own, root, running) = (&self.scope.ledger.spent, &self.root.spent, self.running);
        Trip {
            guard,
            reason: reason.to_owned(),
            verdict: action.verdict(),
            ends: Ends::Scope,
            drains: false,
            measured: Measure::None,
            limit: Measure::None,
            evidence: Vec::new(),
            signals: Vec::new(),
            window: None,
            waits: None,
            because: String::new(),
            advice: None,
            streak: None,
            context: Context {
                who: self.name.to_owned(),
                kind: self.scope.kind,
                depth: self.depth,
                input: own.input + running.input,
                output: own.output + running.output,
                elapsed: self.now.since(self.scope.opened),
                accumulated_input: root.input + running.input,
                accumulated_output: root.output + running.output,
            },
        }
    }
}

/// "once", "twice", "3 times".
pub(crate) fn times(n: u64) -> String {
    match n {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{n} times"),
    }
}
