//! What a policy would have done with stored sessions: their calls once more through the engine, at
//! their own times, refused calls included.
//!
//! The sessions share their project and their agents, as they did then, so limits of an agent over
//! several sessions are judged, too. What earlier sessions had used is not known.
//!
//! - A call that ran is replayed with the result that it had. A person who was asked said yes.
//! - A call that was refused is judged again. If the policy lets it pass, it is taken to bring what
//!   the same call brought last time (a model call: what the last one used).
//! - A call that was refused because a person had stopped its session, or because its agent or
//!   project was off, stays refused: that is no guard's doing. It is in no count.

use std::collections::HashMap;

use deadstop_core::{
    Admission, Call, Digest, GuardId, Link, NanoUsd, Outcome, PolicySet, ScopeKind, ScopeState,
    Ticket, Time, Trip, Verdict, admit, admit_approved, admit_recorded, settle,
};
use deadstop_store::{Numbers, StoredCall};
use deadstop_warden::Facts;

/// A stored session to replay.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) agent: String,
    pub(crate) name: String,
    pub(crate) opened: Time,
    /// Its calls, in the order in which they were asked.
    pub(crate) calls: Vec<StoredCall>,
}

/// The policies to try: per agent, since an agent may have its own, and when each was switched on
/// again.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) policies: HashMap<String, PolicySet>,
    pub(crate) cleared: HashMap<String, Vec<Time>>,
}

/// What the guards did to a session.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Fate {
    /// Calls that passed with a warning, or with advice for the model.
    pub(crate) warned: usize,
    /// Calls that were refused.
    pub(crate) refused: usize,
    /// What ended it, or else the first refusal.
    pub(crate) stop: Option<Stop>,
}

/// What came of a session, and what would have.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    /// Calls that were replayed.
    pub(crate) calls: usize,
    /// What happened.
    pub(crate) before: Fate,
    /// What would have happened.
    pub(crate) after: Fate,
    /// Calls that a person would have been asked about.
    pub(crate) asked: usize,
    /// Why the policy would have stopped it, in a sentence.
    pub(crate) explain: String,
    /// Calls that ran, and would not have been made any more.
    pub(crate) calls_after: usize,
    /// What they cost.
    pub(crate) cost_after: NanoUsd,
    /// What was decided about each call that was replayed: whether it was refused, and by which guard.
    #[cfg(test)]
    pub(crate) verdicts: Vec<(i64, bool, Option<GuardId>)>,
}

/// Where a session was stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) verdict: Verdict,
    pub(crate) guard: GuardId,
    pub(crate) reason: String,
    /// The call it happened at.
    pub(crate) call: i64,
    pub(crate) at: Time,
}

impl Fate {
    /// A call was refused, or ended its scope. Whether this is the stop that is told.
    fn stops(&mut self, stop: Stop) -> bool {
        let known = self.stop.as_ref().map(|stop| stop.verdict);
        let tells = known.is_none_or(|known| known < stop.verdict);
        if tells {
            self.stop = Some(stop);
        }
        tells
    }

    /// What happened, as the stored calls tell.
    fn stored(calls: &[&StoredCall]) -> Fate {
        let mut fate = Fate::default();
        for call in calls {
            let ran = call.status.is_some();
            fate.refused += usize::from(!ran && call.verdict >= Verdict::Block);
            fate.warned +=
                usize::from(ran && (Verdict::Warn..Verdict::Block).contains(&call.verdict));
            let stops = call.verdict == Verdict::Kill || (!ran && call.verdict == Verdict::Block);
            if let (Some(guard), true) = (call.guard, stops) {
                let _ = fate.stops(Stop {
                    verdict: call.verdict,
                    guard,
                    reason: call.reason.clone().unwrap_or_default(),
                    call: call.id,
                    at: call.at,
                });
            }
        }
        fate
    }
}

/// Whether a call was refused by a standing order: a person stopped its session, or its agent or
/// project was off.
fn was_ordered(call: &StoredCall) -> bool {
    let reason = call.reason.as_deref().unwrap_or_default();
    let orders = ["session_killed", "agent_killed", "project_killed"];
    call.status.is_none()
        && (call.guard == Some(GuardId::Paused)
            || (call.guard == Some(GuardId::Killed) && orders.contains(&reason)))
}

/// Whether a call may run, or go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passed {
    Yes,
    No,
}

/// One moment of a call.
#[derive(Debug, Clone, Copy)]
enum Moment {
    Asked,
    Ended,
}

/// A call to replay, with its place.
struct Replayed<'a> {
    session: usize,
    call: &'a StoredCall,
    facts: Facts,
}

impl Replayed<'_> {
    fn ran(&self) -> bool {
        self.call.status.is_some()
    }

    fn over(&self) -> Time {
        Time(self.call.at.0 + self.call.duration.map_or(0, |duration| duration.0))
    }

    /// The numbers that put its moments into the order in which they came.
    fn order(&self) -> [(i64, Moment); 2] {
        let ended = match self.facts.ended {
            0 => Numbers::first(self.over()),
            known => known,
        };
        [(self.call.id, Moment::Asked), (ended.max(self.call.id), Moment::Ended)]
    }
}

/// Replays sessions under other rules: what came of each, in the same order.
pub(crate) fn replay(rules: &Rules, sessions: &[Session]) -> Vec<Tried> {
    let mut replayed = Vec::new();
    let mut tried = Vec::with_capacity(sessions.len());
    for (session, stored) in sessions.iter().enumerate() {
        let from = replayed.len();
        for call in stored.calls.iter().filter(|call| !was_ordered(call)) {
            let facts = call.facts.as_deref().and_then(Facts::read);
            replayed.extend(facts.map(|facts| Replayed { session, call, facts }));
        }
        let calls: Vec<&StoredCall> = replayed[from..].iter().map(|one| one.call).collect();
        let before = Fate::stored(&calls);
        tried.push(Tried { calls: calls.len(), before, ..Tried::default() });
    }
    let mut moments: Vec<(i64, usize, Moment)> = Vec::with_capacity(2 * replayed.len());
    for (index, one) in replayed.iter().enumerate() {
        let ran = one.ran();
        let order = one.order().into_iter().filter(|(_, m)| ran || matches!(m, Moment::Asked));
        moments.extend(order.map(|(number, moment)| (number, index, moment)));
    }
    moments.sort_by_key(|(number, _, moment)| (*number, matches!(moment, Moment::Ended)));
    let mut house = House::new(rules, sessions, tried);
    for (_, index, moment) in moments {
        match moment {
            Moment::Asked => house.asked(index, &replayed[index]),
            Moment::Ended => house.ended(index, &replayed[index]),
        }
    }
    for session in house.warned.into_values() {
        house.tried[session].after.warned += 1;
    }
    house.tried
}

/// The scopes of all sessions that are replayed, and what came of them so far.
struct House<'a> {
    rules: &'a Rules,
    sessions: &'a [Session],
    fallback: PolicySet,
    project: ScopeState,
    agents: HashMap<&'a str, ScopeState>,
    states: Vec<ScopeState>,
    nested: HashMap<(usize, String), ScopeState>,
    /// How many clearings of an agent are behind it.
    cleared: HashMap<&'a str, usize>,
    tickets: HashMap<usize, Ticket>,
    /// What the same call of a session brought last time; model calls are under `None`.
    brought: HashMap<(usize, Option<Digest>), Outcome>,
    /// Calls that passed with a warning, each with its session.
    warned: HashMap<usize, usize>,
    tried: Vec<Tried>,
}

impl<'a> House<'a> {
    fn new(rules: &'a Rules, sessions: &'a [Session], tried: Vec<Tried>) -> House<'a> {
        let first = sessions.iter().map(|session| session.opened).min().unwrap_or_default();
        let state = |session: &Session| ScopeState::new(ScopeKind::Session, session.opened);
        House {
            rules,
            sessions,
            fallback: deadstop_core::Preset::Observe.policies(),
            project: ScopeState::new(ScopeKind::Project, first),
            agents: HashMap::new(),
            states: sessions.iter().map(state).collect(),
            nested: HashMap::new(),
            cleared: HashMap::new(),
            tickets: HashMap::new(),
            brought: HashMap::new(),
            warned: HashMap::new(),
            tried,
        }
    }

    /// Does something with the scopes that a call is charged to.
    fn chain<T>(&mut self, one: &Replayed<'_>, ask: impl FnOnce(&mut [Link<'_>]) -> T) -> T {
        let session = &self.sessions[one.session];
        let policies = self.rules.policies.get(&session.agent).unwrap_or(&self.fallback);
        let opened = session.opened;
        let agent = self.agents.entry(session.agent.as_str());
        let agent = agent.or_insert_with(|| ScopeState::new(ScopeKind::Agent, opened));
        let states = [&mut self.project, agent, &mut self.states[one.session]];
        let names = ["project", session.agent.as_str(), session.name.as_str()];
        let mut chain: Vec<Link<'_>> = states
            .into_iter()
            .zip(names)
            .map(|(state, name)| Link { name, policy: policies.of(state.kind()), state })
            .collect();
        // Every step of the path is a scope of its own. They are taken out, and put back.
        let mut inner = Vec::new();
        let path = one.call.nested.as_deref().unwrap_or_default();
        for (end, _) in
            path.match_indices('/').chain((!path.is_empty()).then_some((path.len(), "")))
        {
            let key = (one.session, path[..end].to_owned());
            let known = self.nested.remove(&key);
            let at = one.call.at;
            inner.push((key, known.unwrap_or_else(|| ScopeState::new(ScopeKind::Nested, at))));
        }
        for ((_, name), state) in &mut inner {
            chain.push(Link { name, policy: &policies.nested, state });
        }
        let answer = ask(&mut chain);
        drop(chain);
        self.nested.extend(inner);
        answer
    }

    /// Empties the guards of an agent that was switched on again by now.
    fn clear(&mut self, session: usize, at: Time) {
        let agent = self.sessions[session].agent.as_str();
        let Some(times) = self.rules.cleared.get(agent) else { return };
        let done = self.cleared.entry(agent).or_default();
        let due = times.partition_point(|time| *time <= at);
        if *done >= due {
            return;
        }
        *done = due;
        if let Some(state) = self.agents.get_mut(agent) {
            // An agent can always be cleared.
            let _ = state.clear();
        }
        for (index, session) in self.sessions.iter().enumerate() {
            if session.agent == agent {
                self.states[index].forget();
            }
        }
        for ((index, _), state) in &mut self.nested {
            if self.sessions[*index].agent == agent {
                state.forget();
            }
        }
    }

    fn asked(&mut self, index: usize, one: &Replayed<'_>) {
        let (at, call) = (one.call.at, &one.facts.call);
        self.clear(one.session, at);
        let granted = one.call.reason.as_deref() == Some("granted");
        let admission = self.chain(one, |chain| match one.ran() {
            true if granted => admit_approved(chain, call, at),
            true => admit_recorded(chain, call, at),
            false => admit(chain, call, at),
        });
        let Admission { verdict, trips, ticket } = admission;
        // A ladder's refusal has a ticket here, so that the run goes on with what the call brought.
        let passed = match verdict {
            Verdict::Block | Verdict::Kill => Passed::No,
            Verdict::Ask if !one.ran() => Passed::No,
            _ => Passed::Yes,
        };
        self.note(index, one, trips, passed);
        let Some(ticket) = ticket else { return };
        if one.ran() {
            self.tickets.insert(index, ticket);
            return;
        }
        // It was refused at the time: it brings what it brought before.
        let known = self.brought.get(&(one.session, signature(call)));
        let outcome = known.cloned().unwrap_or_default();
        let decision = self.chain(one, |chain| settle(chain, call, ticket, &outcome, at));
        self.note(index, one, decision.trips, Passed::Yes);
    }

    fn ended(&mut self, index: usize, one: &Replayed<'_>) {
        let (at, call, outcome) = (one.over(), &one.facts.call, &one.facts.outcome);
        let Some(ticket) = self.tickets.remove(&index) else { return };
        let decision = self.chain(one, |chain| settle(chain, call, ticket, outcome, at));
        self.note(index, one, decision.trips, Passed::Yes);
        self.brought.insert((one.session, signature(call)), outcome.clone());
    }

    /// Counts what the policy decided at a call.
    fn note(&mut self, index: usize, one: &Replayed<'_>, trips: Vec<Trip>, passed: Passed) {
        let tried = &mut self.tried[one.session];
        let refused = passed == Passed::No;
        if refused {
            tried.after.refused += 1;
            if one.ran() {
                tried.calls_after += 1;
                tried.cost_after += one.call.cost;
            }
        }
        let trip = trips.into_iter().next();
        #[cfg(test)]
        match tried.verdicts.iter_mut().rfind(|known| known.0 == one.call.id) {
            Some(known) => known.2 = trip.as_ref().map(|trip| trip.guard).or(known.2),
            None => tried.verdicts.push((one.call.id, refused, trip.as_ref().map(|t| t.guard))),
        }
        let Some(trip) = trip else { return };
        tried.asked += usize::from(trip.verdict == Verdict::Ask);
        let verdict = match trip.verdict {
            // It was asked about and not approved.
            Verdict::Ask if refused => Verdict::Block,
            verdict => verdict,
        };
        if refused || verdict == Verdict::Kill {
            self.warned.remove(&index);
            let explain = trip.explain();
            let (guard, reason) = (trip.guard, trip.reason);
            let stop = Stop { verdict, guard, reason, call: one.call.id, at: one.call.at };
            if tried.after.stops(stop) {
                tried.explain = explain;
            }
        } else if verdict < Verdict::Block {
            self.warned.insert(index, one.session);
        }
    }
}

/// What tells one tool call from another; `None` for model calls.
fn signature(call: &Call) -> Option<Digest> {
    call.tool().map(|tool| tool.signature)
}

#[cfg(test)]
mod tests;
