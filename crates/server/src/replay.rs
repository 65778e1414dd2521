//! A stored session run through the engine once more: what its guards held at each of its calls.
//!
//! What happened is followed, not judged again: every call that ran runs, under the policies of its
//! time with their verdicts taken for warnings, and what was refused is counted as a refusal. A
//! [`Reel`] keeps still images on the way, so that stepping through a long session runs a few
//! hundred moments at a time and not all from the start.
//!
//! A session is run by itself: of its agent and its project this shows what the session added.

use std::collections::HashMap;
use std::sync::Arc;

use deadstop_core::{
    Blocked, GuardId, Link, Mode, PolicySet, ScopeKind, ScopeState, Ticket, Time, Verdict, admit,
    admit_approved, settle,
};
use deadstop_store::{CallKind, StoredCall};

use deadstop_warden::Facts;

/// Moments between two still images.
const STILL_EVERY: usize = 512;

/// One moment of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// It was let pass.
    Asked,
    /// It was over.
    Ended,
    /// It was not let pass.
    Refused,
}

/// The moments of a session's calls in the order in which they came, each with its call.
pub(crate) fn moments(calls: &[StoredCall], facts: &[Option<Facts>]) -> Vec<(Time, usize, Moment)> {
    let mut found = Vec::with_capacity(2 * calls.len());
    for (index, call) in calls.iter().enumerate() {
        if facts[index].is_some() && call.status.is_some() {
            let ended = Time(call.at.0 + call.duration.map_or(0, |duration| duration.0));
            found.push((call.at, index, Moment::Asked));
            found.push((ended, index, Moment::Ended));
        } else if call.status.is_none() && call.verdict >= Verdict::Block {
            found.push((call.at, index, Moment::Refused));
        }
    }
    // What ends at the moment at which another begins ends first, as it did then.
    found.sort_by_key(|(at, index, moment)| match moment {
        Moment::Asked | Moment::Refused => (*at, 1, *index),
        Moment::Ended => (*at, usize::from(calls[*index].at == *at) * 2, *index),
    });
    found
}

/// The scopes of a session that is run again.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    name: String,
    opened: Time,
    states: [ScopeState; 3],
    nested: HashMap<String, ScopeState>,
}

impl Run {
    pub(crate) fn new(name: &str, opened: Time) -> Run {
        let kinds = [ScopeKind::Project, ScopeKind::Agent, ScopeKind::Session];
        let states = kinds.map(|kind| ScopeState::new(kind, opened));
        Run { name: name.to_owned(), opened, states, nested: HashMap::new() }
    }

    /// Does something with the scopes that a call is charged to.
    pub(crate) fn chain<T>(
        &mut self,
        policies: &PolicySet,
        nested: Option<&str>,
        ask: impl FnOnce(&mut [Link<'_>]) -> T,
    ) -> T {
        let names = ["project", "agent", self.name.as_str()];
        let mut chain: Vec<Link<'_>> = self
            .states
            .iter_mut()
            .zip(names)
            .map(|(state, name)| Link { name, policy: policies.of(state.kind()), state })
            .collect();
        if let Some(path) = nested {
            let opened = self.opened;
            let state = self
                .nested
                .entry(path.to_owned())
                .or_insert_with(|| ScopeState::new(ScopeKind::Nested, opened));
            chain.push(Link { name: path, policy: &policies.nested, state });
        }
        ask(&mut chain)
    }

    fn forget(&mut self) {
        let nested = self.nested.values_mut();
        for state in self.states.iter_mut().chain(nested) {
            state.forget();
        }
    }
}

/// What was in force, and since when: the oldest first.
pub(crate) type History = Vec<(Time, PolicySet)>;

/// How far a run has come.
#[derive(Debug, Clone)]
struct Still {
    run: Run,
    tickets: HashMap<usize, Ticket>,
    /// How many clearings are behind it.
    cleared: usize,
}

/// A session that can be looked at as it stood at any of its calls.
pub(crate) struct Reel {
    calls: Vec<StoredCall>,
    facts: Vec<Option<Facts>>,
    moments: Vec<(Time, usize, Moment)>,
    history: History,
    /// The same with their own modes: refused calls are judged by these.
    enforced: History,
    /// When the last call that ran was asked.
    last_ran: Time,
    /// When its guards were emptied: the agent or the project was switched on again.
    cleared: Vec<Time>,
    stills: Vec<Still>,
    by_id: HashMap<i64, usize>,
}

/// A session at one of its calls.
pub(crate) struct Frame<'a> {
    pub(crate) at: Time,
    pub(crate) policies: &'a PolicySet,
    run: Run,
    nested: Option<String>,
}

impl Frame<'_> {
    /// The session's scope, then that of the call if it was made inside it, then those above.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = (&str, &ScopeState)> {
        let [project, agent, session] = &self.run.states;
        let nested =
            self.nested.as_deref().and_then(|path| Some((path, self.run.nested.get(path)?)));
        let inner = [(self.run.name.as_str(), session)].into_iter().chain(nested);
        inner.chain([("", agent), ("", project)])
    }
}

impl Reel {
    /// Runs a session from its first call to its last.
    pub(crate) fn new(
        name: &str,
        mut calls: Vec<StoredCall>,
        mut history: History,
        mut cleared: Vec<Time>,
    ) -> Reel {
        let enforced = history.clone();
        for policy in history.iter_mut().flat_map(|(_, policies)| all(policies)) {
            policy.mode = Mode::LogOnly;
        }
        cleared.sort_unstable();
        let read = |call: &mut StoredCall| Facts::read(&call.facts.take()?);
        let facts: Vec<_> = calls.iter_mut().map(read).collect();
        let moments = moments(&calls, &facts);
        let by_id = calls.iter().enumerate().map(|(index, call)| (call.id, index)).collect();
        let opened = calls.first().map_or(Time(0), |call| call.at);
        let run = Run::new(name, opened);
        let mut still = Still { run, tickets: HashMap::new(), cleared: 0 };
        let ran = calls.iter().filter(|call| call.status.is_some()).map(|call| call.at);
        let last_ran = ran.max().unwrap_or_default();
        let stills = Vec::new();
        let mut reel =
            Reel { calls, facts, moments, history, enforced, last_ran, cleared, stills, by_id };
        for at in 0..reel.moments.len() {
            if at % STILL_EVERY == 0 {
                reel.stills.push(still.clone());
            }
            reel.step(&mut still, at);
        }
        reel
    }

    /// How many calls it has.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// The servers that its calls went to.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &str> {
        self.calls.iter().filter_map(|call| call.server.as_deref())
    }

    /// The how-manieth call this is, from zero.
    pub(crate) fn position(&self, id: i64) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    /// The session as it stood when a call was over, or refused: with all that were asked before it, and
    /// without those that were asked later, even if that was before this one was over. A model's answer asks
    /// for tools while it is read, a millisecond before its end or at it; who steps through a session sees
    /// them come one after the other all the same.
    pub(crate) fn frame(&self, index: usize) -> Option<Frame<'_>> {
        let call = self.calls.get(index)?;
        let over = Time(call.at.0 + call.duration.map_or(0, |duration| duration.0));
        let place = |time: Time, wanted: fn(Moment) -> bool| {
            let from = self.moments.partition_point(|(at, ..)| *at < time);
            let is = |(_, of, moment): &(Time, usize, Moment)| *of == index && wanted(*moment);
            // A call of which nothing is known stands where it would have been.
            let found = self.moments[from..].iter().position(is);
            found.map_or((from, from), |ahead| (from + ahead, from + ahead + 1))
        };
        let (begin, _) = place(call.at, |moment| moment != Moment::Ended);
        let (_, end) = place(over, |moment| moment != Moment::Asked);
        let still = (begin / STILL_EVERY).min(self.stills.len().saturating_sub(1));
        let mut now = self.stills.get(still)?.clone();
        for at in still * STILL_EVERY..end {
            if self.moments[at].1 <= index {
                self.step(&mut now, at);
            }
        }
        self.clear(&mut now, over);
        let (run, nested) = (now.run, call.nested.clone());
        Some(Frame { at: over, policies: self.policies(over)?, run, nested })
    }

    fn policies(&self, at: Time) -> Option<&PolicySet> {
        in_force(&self.history, at)
    }

    /// Judges a refused call as it was judged then, so that its repeat counts. Whether it came to the
    /// same; otherwise nothing is changed.
    fn refuse(&self, still: &mut Still, at: Time, index: usize) -> bool {
        let (Some(policies), Some(facts)) = (in_force(&self.enforced, at), &self.facts[index])
        else {
            return false;
        };
        let mut run = still.run.clone();
        let nested = self.calls[index].nested.as_deref();
        let admission = run.chain(policies, nested, |chain| admit(chain, &facts.call, at));
        let same = match admission.verdict {
            Verdict::Block => true,
            // What was ended here and ran on had its end lifted.
            Verdict::Kill => at >= self.last_ran,
            _ => false,
        };
        if same {
            still.run = run;
        }
        same
    }

    fn clear(&self, still: &mut Still, at: Time) {
        while self.cleared.get(still.cleared).is_some_and(|cleared| *cleared <= at) {
            still.cleared += 1;
            still.run.forget();
        }
    }

    fn step(&self, still: &mut Still, moment: usize) {
        let (at, index, moment) = self.moments[moment];
        self.clear(still, at);
        let (Some(policies), call) = (self.policies(at), &self.calls[index]) else { return };
        let nested = call.nested.as_deref();
        match (moment, &self.facts[index]) {
            (Moment::Asked, Some(facts)) => {
                // A person may have been asked; the call was made.
                let admission = still
                    .run
                    .chain(policies, nested, |chain| admit_approved(chain, &facts.call, at));
                still.tickets.extend(admission.ticket.map(|ticket| (index, ticket)));
            }
            (Moment::Ended, Some(facts)) => {
                let Some(ticket) = still.tickets.remove(&index) else { return };
                still.run.chain(policies, nested, |chain| {
                    settle(chain, &facts.call, ticket, &facts.outcome, at);
                });
            }
            (Moment::Refused, _) if self.refuse(still, at, index) => {}
            (Moment::Refused, _) if counts(call) => {
                let what = match call.kind {
                    CallKind::Model => Blocked::Model,
                    CallKind::Tool => Blocked::Tool,
                };
                still.run.chain(policies, nested, |chain| {
                    chain.iter_mut().for_each(|link| link.state.refused(what));
                });
            }
            _ => {}
        }
    }
}

fn in_force(history: &History, at: Time) -> Option<&PolicySet> {
    let after = history.partition_point(|(since, _)| *since <= at);
    history.get(after.saturating_sub(1)).map(|(_, policies)| policies)
}

/// Whether a refusal was a strike: one by a guard, and not because it had ended already.
fn counts(call: &StoredCall) -> bool {
    match call.guard {
        Some(GuardId::Killed | GuardId::Paused) | None => false,
        Some(GuardId::Strikes) => true,
        Some(_) => call.verdict == Verdict::Block,
    }
}

fn all(policies: &mut PolicySet) -> [&mut deadstop_core::Policy; 4] {
    let PolicySet { project, agent, session, nested } = policies;
    [project, agent, session, nested]
}

/// The reels that were shown last: an operator who steps through a session asks many times.
#[derive(Default)]
pub(crate) struct Reels(parking_lot::Mutex<Vec<Shown>>);

/// A reel, and what it was made from.
#[derive(Clone)]
struct Shown {
    session: i64,
    /// When the session was last used, and how many versions of policies there were.
    stamp: (Time, i64),
    reel: Arc<Reel>,
}

impl Reels {
    /// Reels that are kept.
    const KEPT: usize = 4;
    /// Calls at the end of one that later news may still change.
    const UNSETTLED: usize = 200;

    /// The reel of a session, if what it shows of a call still holds.
    pub(crate) fn find(&self, session: i64, stamp: (Time, i64), call: i64) -> Option<Arc<Reel>> {
        let mut kept = self.0.lock();
        let at = kept.iter().position(|shown| shown.session == session)?;
        let shown = kept.remove(at);
        let position = shown.reel.position(call);
        let settled = position.is_some_and(|at| at + Reels::UNSETTLED < shown.reel.len());
        let holds = shown.stamp == stamp || (shown.stamp.1 == stamp.1 && settled);
        let reel = (holds && position.is_some()).then(|| Arc::clone(&shown.reel));
        kept.push(shown);
        reel
    }

    /// Keeps one.
    pub(crate) fn keep(&self, session: i64, stamp: (Time, i64), reel: Arc<Reel>) {
        let mut kept = self.0.lock();
        kept.retain(|shown| shown.session != session);
        if kept.len() >= Reels::KEPT {
            kept.remove(0);
        }
        kept.push(Shown { session, stamp, reel });
    }
}

#[cfg(test)]
mod tests;
