//! What many nodes count together of a scope, apart from what one of them may change at a time.
//!
//! A project's or an agent's scope is used by every node at once. Its counters only ever add up, so
//! nodes add to them side by side ([`Totals`]); the rest (its standing, grants, circuits, what it
//! destroyed) changes rarely and is swapped in as a whole.

use std::cmp::Ordering;

use crate::call::{Call, Outcome};
pub use crate::engine::progress_held;
use crate::engine::{Decision, Ticket, settle};
use crate::guard::ending::Limits;
use crate::guard::strikes::{Blocked, Strikes};
use crate::guard::velocity::{BUCKET_MS, BUCKETS, Pace};
use crate::ledger::{Ledger, Reservation, Reserved, Spent};
use crate::policy::Policy;
use crate::scope::{Kill, Link, ScopeState};
use crate::units::{NanoUsd, Time, Tokens};

/// The counters of a scope.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals {
    /// Calls that were admitted.
    pub calls: u64,
    /// What was used.
    pub spent: Spent,
    /// What calls in flight have set aside.
    pub held: Held,
    /// The period that money is counted in.
    pub period: u64,
    /// Money spent in it.
    pub period_cost: NanoUsd,
    /// Money and tokens of the last minute, by the number of each five seconds.
    pub pace: Vec<(u64, NanoUsd, Tokens)>,
}

/// What calls in flight have set aside, and how many they are. Differences may be negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Held {
    /// Input tokens.
    pub input: i64,
    /// Output tokens.
    pub output: i64,
    /// Money, in billionths of a dollar.
    pub cost: i64,
    /// Calls.
    pub calls: i64,
}

impl Held {
    /// Nothing.
    pub fn is_empty(&self) -> bool {
        *self == Held::default()
    }

    /// Clamps negatives to zero.
    pub fn or_nothing(self) -> Held {
        Held {
            input: self.input.max(0),
            output: self.output.max(0),
            cost: self.cost.max(0),
            calls: self.calls.max(0),
        }
    }
}

impl std::ops::Add for Held {
    type Output = Held;

    fn add(self, more: Held) -> Held {
        Held {
            input: self.input + more.input,
            output: self.output + more.output,
            cost: self.cost + more.cost,
            calls: self.calls + more.calls,
        }
    }
}

impl std::ops::Sub for Held {
    type Output = Held;

    fn sub(self, less: Held) -> Held {
        self + Held {
            input: -less.input,
            output: -less.output,
            cost: -less.cost,
            calls: -less.calls,
        }
    }
}

/// What a policy lets a scope count up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Tool calls.
    pub steps: Option<u64>,
    /// Model calls.
    pub model_calls: Option<u64>,
    /// Input tokens, spent and set aside.
    pub input: Option<u64>,
    /// Output tokens, spent and set aside.
    pub output: Option<u64>,
    /// Both.
    pub tokens: Option<u64>,
    /// Money of the period, spent and set aside.
    pub cost: Option<u64>,
    /// Money of the last minute, spent and set aside.
    pub pace_cost: Option<u64>,
    /// Tokens of the last minute, spent and set aside.
    pub pace_tokens: Option<u64>,
}

impl Policy {
    /// What counters may go up to.
    pub fn bounds(&self) -> Bounds {
        Bounds {
            steps: self.steps.max_steps,
            model_calls: self.steps.max_model_calls,
            input: self.tokens.input_token_limit.map(|limit| limit.0),
            output: self.tokens.output_token_limit.map(|limit| limit.0),
            tokens: self.tokens.total_token_limit.map(|limit| limit.0),
            cost: self.budget.max_cost_usd.map(|limit| limit.0.0),
            ..self.pace_bounds()
        }
    }

    /// The same for a scope whose limits an operator may have raised.
    pub fn bounds_of(&self, scope: &ScopeState) -> Bounds {
        let limits = Limits::full(self, scope);
        Bounds {
            steps: limits.steps(),
            model_calls: limits.model_calls(),
            input: limits.input().map(|limit| limit.0),
            output: limits.output().map(|limit| limit.0),
            tokens: limits.total().map(|limit| limit.0),
            cost: limits.cost().map(|limit| limit.0),
            ..self.pace_bounds()
        }
    }

    fn pace_bounds(&self) -> Bounds {
        Bounds {
            pace_cost: self.velocity.max_usd_per_minute.map(|limit| limit.0.0),
            pace_tokens: self.velocity.max_tokens_per_minute.map(|limit| limit.0),
            ..Bounds::default()
        }
    }

    /// Whether it says "never a cent over": then a node must not spend on what it last knew.
    pub fn limits_exactly(&self) -> bool {
        self.budget.max_cost_usd.is_some() && self.budget.reservation == Reservation::Ceiling
    }

    /// Whether it limits a pace: then it matters what others have spent a moment ago.
    pub fn limits_pace(&self) -> bool {
        self.velocity.max_usd_per_minute.is_some() || self.velocity.max_tokens_per_minute.is_some()
    }
}

/// Money and tokens since an interval, of the newest twelve intervals.
pub fn spent_since(pace: &[(u64, NanoUsd, Tokens)], oldest: u64) -> (u64, u64) {
    let newest = pace.iter().map(|entry| entry.0).max().unwrap_or(0);
    let from = oldest.max(newest.saturating_sub(BUCKETS as u64 - 1));
    let counts = pace.iter().filter(|entry| entry.0 >= from);
    counts.fold((0, 0), |sum, entry| (sum.0 + entry.1.0, sum.1 + entry.2.0))
}

/// The first interval of five seconds of the minute that ends now.
pub fn minute_began(now: Time) -> u64 {
    (now.0 / BUCKET_MS).saturating_sub(BUCKETS as u64 - 1)
}

impl ScopeState {
    /// Its counters, under a policy.
    pub fn totals(&self, policy: &Policy) -> Totals {
        let mut ledger = self.ledger.clone();
        ledger.name_period(policy.budget.per);
        Totals {
            calls: self.calls,
            spent: self.ledger.spent,
            held: self.held(),
            period: ledger.period_index(),
            period_cost: self.ledger.period_cost,
            pace: self.pace.entries().collect(),
        }
    }

    /// Takes counters in that others have counted as well.
    pub fn set_totals(&mut self, totals: &Totals) {
        self.calls = totals.calls;
        self.ledger.spent = totals.spent;
        self.set_held(totals.held);
        self.ledger.set_period(totals.period, totals.period_cost);
        self.pace = Pace::of(&totals.pace);
    }

    /// All that is not counted together, as a state of its own.
    pub fn rest(&self) -> ScopeState {
        let mut rest = self.clone();
        rest.calls = 0;
        rest.ledger = Ledger::default();
        rest.pace = Pace::default();
        // Strikes are a session's.
        rest.strikes = Strikes::default();
        rest.blocked = Blocked::default();
        rest
    }

    /// Puts another rest in the place of this one's; what is counted stays.
    pub fn set_rest(&mut self, mut rest: ScopeState) {
        rest.calls = self.calls;
        rest.ledger = std::mem::take(&mut self.ledger);
        rest.pace = std::mem::take(&mut self.pace);
        *self = rest;
    }

    /// What calls in flight have set aside.
    pub fn held(&self) -> Held {
        let Reserved { input, output, cost } = self.ledger.reserved;
        Held {
            input: signed(input.0),
            output: signed(output.0),
            cost: signed(cost.0),
            calls: signed(self.ledger.in_flight),
        }
    }

    fn set_held(&mut self, held: Held) {
        let amount = |n: i64| u64::try_from(n).unwrap_or(0);
        self.ledger.reserved = Reserved {
            input: Tokens(amount(held.input)),
            output: Tokens(amount(held.output)),
            cost: NanoUsd(amount(held.cost)),
        };
        self.ledger.in_flight = amount(held.calls);
    }

    /// Ends calls that will not be settled any more. Their reservations count as spent, since they
    /// may have been.
    pub fn bury(&mut self, held: Held) {
        let before = self.held();
        self.set_held(held);
        self.ledger.recover();
        self.set_held(before - held);
    }

    /// Takes over from another copy whether it is dead or held, if that copy knows better: copies may
    /// go apart where a store has lost what it had. Where both know as much, dead is dead. Says whether
    /// it is another standing now.
    pub fn honour(&mut self, known: &ScopeState) -> bool {
        match self.turns().cmp(&known.turns()) {
            Ordering::Greater => false,
            Ordering::Equal => {
                let before = (self.kill.clone(), self.pause.clone());
                if let Some(kill) = &known.kill {
                    self.end(kill.clone());
                }
                if let (None, Some(pause)) = (&self.pause, &known.pause) {
                    self.pause = Some(pause.clone());
                }
                (&before.0, &before.1) != (&self.kill, &self.pause)
            }
            Ordering::Less => {
                if self.kill.is_some() && known.kill.is_none() {
                    // It was cleared: what tripped its guards must not trip them again at once.
                    self.forget();
                }
                self.kill.clone_from(&known.kill);
                self.pause.clone_from(&known.pause);
                self.turned = known.turned;
                true
            }
        }
    }

    /// Ends it as another copy was ended. The first reason stays.
    pub fn end_as(&mut self, kill: &Kill) {
        self.end(kill.clone());
    }

    /// Takes over what another copy has learnt of its calls and does not share.
    pub fn learn(&mut self, from: &ScopeState) {
        self.ledger.learn(&from.ledger);
    }

    /// Whether another copy has the same [`rest`](ScopeState::rest).
    pub fn has_rest_of(&self, other: &ScopeState) -> bool {
        // All fields, so that a new one is not forgotten.
        let ScopeState {
            kind,
            opened,
            kill,
            pause,
            calls: _,
            ledger: _,
            pace: _,
            circuits,
            destroyed,
            memory,
            window,
            said,
            strikes: _,
            grants,
            blocked: _,
            turned,
            measured,
            spread,
            ending,
            swarm,
            windows,
            twice,
            outages,
        } = self;
        (*kind, *opened, *turned) == (other.kind, other.opened, other.turned)
            && (kill, pause) == (&other.kill, &other.pause)
            && (circuits, destroyed) == (&other.circuits, &other.destroyed)
            && (memory, window, said) == (&other.memory, &other.window, &other.said)
            && (grants, measured, spread) == (&other.grants, &other.measured, &other.spread)
            && (ending, swarm) == (&other.ending, &other.swarm)
            && (windows, twice, outages) == (&other.windows, &other.twice, &other.outages)
    }

    /// What was set aside for calls that never ran is free again.
    pub fn give_back(&mut self, held: Held) {
        self.set_held(self.held() - held);
    }
}

impl Ticket {
    /// The same without the text so far, which only the process that carries the call needs.
    pub fn bare(&self) -> Ticket {
        let mut bare = self.clone();
        bare.chant = None;
        bare
    }

    /// Takes over what another copy of it has set aside.
    pub fn hold_as(&mut self, other: &Ticket) {
        self.reserved = other.reserved;
        self.ceiling = other.ceiling;
    }

    /// What the call holds, and itself.
    pub fn held(&self) -> Held {
        let Reserved { input, output, cost } = self.reserved;
        let (input, output, cost) = (signed(input.0), signed(output.0), signed(cost.0));
        Held { input, output, cost, calls: 1 }
    }
}

/// Ends a call whose node was taken for dead in between. What it had set aside is booked as spent, or
/// will be: what is charged now is the difference, and there is nothing left to release.
pub fn settle_buried(
    chain: &mut [Link<'_>],
    call: &Call,
    mut ticket: Ticket,
    outcome: &Outcome,
    now: Time,
) -> Decision {
    let booked = std::mem::take(&mut ticket.reserved);
    let mut left = Vec::with_capacity(chain.len());
    for link in chain.iter_mut() {
        let per = link.policy.budget.per;
        let ledger = &mut link.state.ledger;
        ledger.roll(per, now);
        // The call is in flight no longer, and settling takes one off.
        ledger.in_flight += 1;
        // Which period it was booked in is known only where there was but one.
        let same = per.same(ticket.admitted, now);
        let period = if same { booked.cost } else { NanoUsd(0) };
        left.push((ledger.unbook(booked), period - ledger.period_cost));
        ledger.period_cost = ledger.period_cost - period;
    }
    let decision = settle(chain, call, ticket, outcome, now);
    // What is not booked yet will be.
    for (link, (left, period)) in chain.iter_mut().zip(left) {
        let ledger = &mut link.state.ledger;
        ledger.unbook(left);
        ledger.period_cost = ledger.period_cost - period;
    }
    decision
}

/// Books a call that was allowed while the cluster was unreachable: it counts now, and its usage is
/// spent, whatever the limits say.
pub fn settle_late(
    chain: &mut [Link<'_>],
    call: &Call,
    mut ticket: Ticket,
    outcome: &Outcome,
    now: Time,
) -> Decision {
    ticket.reserved = Reserved::default();
    for link in chain.iter_mut() {
        link.state.calls += 1;
        link.state.ledger.in_flight += 1;
        match call {
            Call::Tool(_) => link.state.ledger.spent.steps += 1,
            Call::Model(call) if call.lookup => {}
            Call::Model(_) => link.state.ledger.spent.model_calls += 1,
        }
    }
    settle(chain, call, ticket, outcome, now)
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{ModelCall, Rates, Usage};
    use crate::{Preset, ScopeKind, Verdict, admit};

    fn call() -> Call {
        let rates = Rates { input: NanoUsd(1000), output: NanoUsd(1000), ..Rates::default() };
        Call::Model(ModelCall { input: Tokens(10), rates, ..ModelCall::default() })
    }

    #[test]
    fn counters_and_rest_make_the_whole() {
        let policies = Preset::Balanced.policies();
        let mut agent = ScopeState::new(ScopeKind::Agent, Time(0));
        let mut chain = [Link { name: "a", state: &mut agent, policy: &policies.agent }];
        let ticket = admit(&mut chain, &call(), Time(1)).ticket.unwrap();
        let second = admit(&mut chain, &call(), Time(1)).ticket.unwrap();
        let usage = Usage { input: Tokens(10), output: Tokens(7), ..Usage::default() };
        let outcome = Outcome { usage, ..Outcome::default() };
        let done = settle(&mut chain, &call(), second, &outcome, Time(70_000));
        assert_eq!(done.verdict, Verdict::Allow);
        let totals = agent.totals(&policies.agent);
        assert_eq!((totals.calls, totals.held.calls, totals.spent.output), (2, 1, Tokens(7)));
        assert_eq!(totals.held.input, 10);
        let mut other = agent.rest();
        assert_eq!(other.calls(), 0);
        other.set_totals(&totals);
        assert_eq!(other.totals(&policies.agent), totals);
        let same = |one: &ScopeState, two: &ScopeState| one.rest() == two.rest();
        assert!(agent.has_rest_of(&agent.rest()) && same(&agent, &agent.rest()));
        other.kill("ada", "enough", Time(5));
        assert!(!agent.has_rest_of(&other) && !same(&agent, &other));
        agent.set_rest(other.rest());
        assert_eq!(agent.killed().map(|kill| kill.by.as_str()), Some("ada"));
        assert_eq!(agent.totals(&policies.agent), totals);
        // Its node dies: what it had set aside is spent.
        let cost = agent.ledger().spent.cost;
        agent.bury(totals.held);
        assert!(agent.held().is_empty());
        assert_eq!(agent.ledger().spent.cost, cost + ticket.reserved().cost);
    }

    #[test]
    fn of_two_copies_the_one_that_was_turned_more_often_knows_better() {
        let agent = || ScopeState::new(ScopeKind::Agent, Time(0));
        let mut dead = agent();
        dead.kill("ada", "enough", Time(1));
        let mut cleared = dead.clone();
        cleared.clear().unwrap();
        let mut again = cleared.clone();
        again.kill("bob", "once more", Time(3));
        let mut held = cleared.clone();
        held.pause("cid", "wait", Time(3));
        let (mut reset, mut released) = (again.clone(), held.clone());
        reset.reset(Time(4));
        released.resume();
        let turns =
            [&agent(), &dead, &cleared, &again, &held, &reset, &released].map(ScopeState::turns);
        assert_eq!(turns, [0, 1, 2, 3, 3, 4, 4]);
        let merged = |one: &ScopeState, other: &ScopeState| {
            let mut merged = one.clone();
            merged.honour(other);
            let by = merged.killed().map(|kill| kill.by.clone());
            (by.unwrap_or_default(), merged.paused().is_some(), merged.turns())
        };
        for (one, other, by, paused, turns) in [
            (&agent(), &dead, "ada", false, 1),
            (&dead, &cleared, "", false, 2),
            (&dead, &again, "bob", false, 3),
            (&again, &reset, "", false, 4),
            // Both know as much: dead is dead, and held is held.
            (&again, &held, "bob", true, 4),
        ] {
            assert_eq!(merged(one, other), (by.to_owned(), paused, turns));
            assert_eq!(merged(other, one), (by.to_owned(), paused, turns));
        }
        for state in [dead, cleared, again, held, reset, released] {
            assert_eq!(ScopeState::from_blob(&state.to_blob()), Ok(state));
        }
    }

    #[test]
    fn a_call_that_nobody_was_asked_about_counts_when_it_ends() {
        let policies = Preset::Balanced.policies();
        let mut agent = ScopeState::new(ScopeKind::Agent, Time(0));
        let mut offline = agent.clone();
        let mut chain = [Link { name: "a", state: &mut offline, policy: &policies.agent }];
        let ticket = admit(&mut chain, &call(), Time(1)).ticket.unwrap();
        let mut chain = [Link { name: "a", state: &mut agent, policy: &policies.agent }];
        let usage = Usage { input: Tokens(10), output: Tokens(7), ..Usage::default() };
        let outcome = Outcome { usage, ..Outcome::default() };
        settle_late(&mut chain, &call(), ticket, &outcome, Time(2));
        let totals = agent.totals(&policies.agent);
        assert_eq!((totals.calls, totals.spent.model_calls, totals.held.calls), (1, 1, 0));
        assert_eq!(totals.spent.output, Tokens(7));
    }

    #[test]
    fn a_call_whose_node_was_taken_for_dead_is_charged_once() {
        let policies = Preset::Balanced.policies();
        // Buried before it ends, and only afterwards: in both cases no more than what was set aside.
        for early in [true, false] {
            let mut agent = ScopeState::new(ScopeKind::Agent, Time(0));
            let mut chain = [Link { name: "a", state: &mut agent, policy: &policies.agent }];
            let ticket = admit(&mut chain, &call(), Time(1)).ticket.unwrap();
            let held = ticket.held();
            if early {
                agent.bury(held);
            }
            let mut chain = [Link { name: "a", state: &mut agent, policy: &policies.agent }];
            let usage = Usage { input: Tokens(10), output: Tokens(7), ..Usage::default() };
            let outcome = Outcome { usage, ..Outcome::default() };
            settle_buried(&mut chain, &call(), ticket, &outcome, Time(2));
            if !early {
                agent.bury(held);
            }
            let totals = agent.totals(&policies.agent);
            assert!(totals.held.is_empty(), "{totals:?}");
            let most = if early { 7 } else { held.output.unsigned_abs() };
            assert_eq!(totals.spent.output, Tokens(most));
            assert_eq!(totals.period_cost, totals.spent.cost);
        }
    }
}
