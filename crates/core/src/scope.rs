//! A scope: what calls are charged to, with its sticky standing and its bounded state.
//!
//! States are plain values. They live wherever the caller keeps them (a warden's memory, Redis, an
//! SDK's process); a blob starts with its version, so that a node can tell whether it understands
//! what another one wrote.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::grant::{Grant, Grants, TooManyGrants};
use crate::guard::breaker::{self, Circuits, Failing, Outages};
use crate::guard::destructive::Destroyed;
use crate::guard::ending::{Ending, TopUp};
use crate::guard::loops::{Memory, Spread};
use crate::guard::quota::Windows;
use crate::guard::similarity::Window;
use crate::guard::strikes::{Blocked, Strikes};
use crate::guard::swarm::Swarm;
use crate::guard::text_loop::Said;
use crate::guard::velocity::Pace;
use crate::ledger::Ledger;
use crate::measured::Measured;
use crate::policy::Policy;
use crate::text::TextFacts;
use crate::trip::{GuardId, Trip, Verdict};
use crate::twice::Twice;
use crate::units::Time;

/// The version of the state blob that this engine writes.
///
/// It reads versions 4 and 5 too, and of older versions their head only (kind to pace): what a scope spent and
/// whether it was stopped survive an upgrade, and its detectors start afresh. So a guard may change its own state
/// freely as long as this number grows with the release.
pub const STATE_VERSION: u8 = 6;

/// The oldest version whose head has the layout of [`Head`].
const OLDEST: u8 = 1;

/// What kind of scope it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScopeKind {
    /// Everything of one owner: the big red button is here.
    Project,
    /// One agent, over all its sessions.
    Agent,
    /// One run of an agent.
    Session,
    /// Anything inside a session: a sub-agent, a crew, a graph, a pipeline.
    Nested,
}

impl ScopeKind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            ScopeKind::Project => "project",
            ScopeKind::Agent => "agent",
            ScopeKind::Session => "session",
            ScopeKind::Nested => "scope",
        }
    }
}

/// The end of a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    /// When.
    pub at: Time,
    /// The guard that did it; `None` for a person.
    pub guard: Option<GuardId>,
    /// Why, as one clause.
    pub because: String,
    /// Who: an operator's name, or the scope in which the guard tripped.
    pub by: String,
    /// Whether calls that were already running may finish.
    pub drains: bool,
}

/// A hold on a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Since when.
    pub at: Time,
    /// Why, in the operator's words.
    pub because: String,
    /// Who.
    pub by: String,
}

/// What is added to the turns of a standing when a kill or a hold is lifted, which counted as one.
const LIFTED: u64 = 2;

/// Longest text of a person or a guard that a state keeps.
const LONGEST_REASON: usize = 300;

/// The state of one scope: bounded, whatever the length of its life. The fields up to `pace` are
/// the head and keep their layout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScopeState {
    pub(crate) kind: ScopeKind,
    pub(crate) opened: Time,
    pub(crate) kill: Option<Kill>,
    pub(crate) pause: Option<Pause>,
    pub(crate) calls: u64,
    pub(crate) ledger: Ledger,
    pub(crate) pace: Pace,
    pub(crate) circuits: Circuits,
    pub(crate) destroyed: Destroyed,
    pub(crate) memory: Memory,
    pub(crate) window: Window,
    pub(crate) said: Said,
    pub(crate) strikes: Strikes,
    pub(crate) grants: Grants,
    pub(crate) blocked: Blocked,
    /// How often its standing was changed, but for what it shows by itself: see
    /// [`ScopeState::turns`].
    pub(crate) turned: u64,
    /// What estimates of prompts came to; a session's own.
    pub(crate) measured: Measured,
    pub(crate) spread: Spread,
    pub(crate) ending: Ending,
    pub(crate) swarm: Swarm,
    pub(crate) windows: Windows,
    pub(crate) twice: Twice,
    pub(crate) outages: Outages,
}

impl ScopeState {
    /// A scope that has seen nothing yet.
    pub fn new(kind: ScopeKind, now: Time) -> ScopeState {
        ScopeState {
            kind,
            opened: now,
            kill: None,
            pause: None,
            calls: 0,
            ledger: Ledger::default(),
            pace: Pace::default(),
            circuits: Circuits::default(),
            destroyed: Destroyed::default(),
            memory: Memory::default(),
            window: Window::default(),
            said: Said::default(),
            strikes: Strikes::default(),
            grants: Grants::default(),
            blocked: Blocked::default(),
            turned: 0,
            measured: Measured::default(),
            spread: Spread::default(),
            ending: Ending::default(),
            swarm: Swarm::default(),
            windows: Windows::default(),
            twice: Twice::default(),
            outages: Outages::default(),
        }
    }

    /// A scope of which nothing could be read but whether it was ended, and how often its standing was
    /// changed: it begins anew, and dead is dead.
    pub fn unread(kind: ScopeKind, now: Time, killed: bool, turns: u64) -> ScopeState {
        let mut state = ScopeState::new(kind, now);
        if killed {
            state.kill("deadstop", "it had been killed, and nothing else of it can be read", now);
        }
        state.turn_to(turns);
        state
    }

    /// Raises the count of standing changes to at least `turns`: an older version, which does not
    /// count them, may have written this state.
    pub fn turn_to(&mut self, turns: u64) {
        self.turned += turns.saturating_sub(self.turns());
    }

    /// How often its standing was changed: ended, cleared, held, released. Of two copies of a scope
    /// that went apart, the one that was turned more often knows better whether it is dead. A kill
    /// and a hold count as one each while they last, so that a state that was only ever ended needs
    /// no word about it.
    pub fn turns(&self) -> u64 {
        self.turned + u64::from(self.kill.is_some()) + u64::from(self.pause.is_some())
    }

    /// Gives it an allowance for a destructive batch.
    pub fn give(&mut self, grant: Grant, now: Time) -> Result<(), TooManyGrants> {
        let (by, because) = (bounded(&grant.by), bounded(&grant.because));
        self.grants.give(Grant { by, because, ..grant }, now)
    }

    /// Takes a grant back, if it is still there.
    pub fn revoke(&mut self, id: u64) -> Option<Grant> {
        self.grants.revoke(id)
    }

    /// The grants that it holds at a time.
    pub fn grants(&self, now: Time) -> impl Iterator<Item = &Grant> {
        self.grants.held().iter().filter(move |grant| now < grant.expires)
    }

    /// What kind of scope it is.
    pub fn kind(&self) -> ScopeKind {
        self.kind
    }

    /// When it was opened.
    pub fn opened(&self) -> Time {
        self.opened
    }

    /// Calls that were admitted, models and tools together.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// What it has spent and reserved.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Its end, if it has come.
    pub fn killed(&self) -> Option<&Kill> {
        self.kill.as_ref()
    }

    /// The hold it is under, if any.
    pub fn paused(&self) -> Option<&Pause> {
        self.pause.as_ref()
    }

    /// Ends the scope. The first reason stays: what killed it is not overwritten by what came
    /// later.
    pub fn kill(&mut self, by: &str, because: &str, now: Time) {
        self.end(Kill {
            at: now,
            guard: None,
            because: bounded(because),
            by: bounded(by),
            drains: false,
        });
    }

    /// Replaces the reason of a kill: a guard's words may quote the conversation, so the caller
    /// redacts them before it stores the state.
    pub fn reword(&mut self, because: &str) {
        if let Some(kill) = &mut self.kill {
            kill.because = bounded(because);
        }
    }

    /// Lets calls through again. Only agents and projects can be cleared: a session's end is final.
    ///
    /// The detectors forget what they saw, so that what tripped them does not trip them again at
    /// once; what was spent stays spent.
    pub fn clear(&mut self) -> Result<(), Final> {
        match self.kind {
            ScopeKind::Project | ScopeKind::Agent => {}
            ScopeKind::Session | ScopeKind::Nested => return Err(Final),
        }
        if self.kill.take().is_some() {
            self.turned += LIFTED;
        }
        self.forget();
        Ok(())
    }

    /// An operator raises its limits. That lifts the end that one of its limits brought; any other
    /// end of a session is final.
    pub fn top_up(&mut self, more: TopUp) -> Result<(), Final> {
        if self.kill.as_ref().is_some_and(|kill| !kill.guard.is_some_and(GuardId::is_limit)) {
            return Err(Final);
        }
        if self.kill.take().is_some() {
            self.turned += LIFTED;
        }
        self.ending.top_up(more);
        Ok(())
    }

    /// The servers of an agent that fail, so that their calls are refused for a while.
    pub fn failing(&self, policy: &Policy, now: Time) -> Vec<Failing> {
        breaker::failing(self, &policy.breaker, now)
    }

    /// What operators have added to its limits.
    pub fn topped_up(&self) -> TopUp {
        self.ending.extra()
    }

    /// An operator's fresh start under the same name: everything empty, nothing forgiven elsewhere.
    pub fn reset(&mut self, now: Time) {
        let turned = self.turns() + 1;
        *self = ScopeState { turned, ..ScopeState::new(self.kind, now) };
    }

    /// A person spoke, outside of any model call that would tell it. New words begin a new stretch
    /// for the loop guard; words heard before do not, so that two doors may tell the same.
    pub fn hear(&mut self, words: &TextFacts) {
        self.memory.hear(words.sketch());
    }

    /// The agent's context was compacted, outside of any model call that would tell it: what it
    /// forgot it may look up again.
    pub fn compacted(&mut self) {
        self.memory.begin();
        self.said.act();
    }

    /// Holds the next call until [`ScopeState::resume`].
    pub fn pause(&mut self, by: &str, because: &str, now: Time) {
        self.pause.get_or_insert(Pause { at: now, because: bounded(because), by: bounded(by) });
    }

    /// Ends a hold.
    pub fn resume(&mut self) {
        if self.pause.take().is_some() {
            self.turned += LIFTED;
        }
    }

    /// After a crash: calls that were in flight will never be settled. What they had reserved counts
    /// as spent, since money that may have been spent must not come back.
    pub fn recover(&mut self) {
        self.ledger.recover();
        self.circuits = Circuits::default();
        self.outages = Outages::default();
    }

    /// Takes in what was known of the scope before, for one that had to begin without knowing it.
    /// What was spent adds up, and dead is dead. The detectors hold what they have seen meanwhile,
    /// or else what they held before.
    pub fn rejoin(&mut self, mut before: ScopeState) {
        before.recover();
        before.kill = before.kill.or(self.kill.take());
        before.pause = before.pause.or(self.pause.take());
        before.turned = before.turned.max(self.turned);
        before.ledger.rejoin(&self.ledger);
        let meanwhile = std::mem::replace(self, before);
        self.calls += meanwhile.calls;
        if meanwhile.calls > 0 {
            self.pace = meanwhile.pace;
            self.circuits = meanwhile.circuits;
            self.outages = meanwhile.outages;
            self.destroyed = meanwhile.destroyed;
            self.memory = meanwhile.memory;
            self.spread = meanwhile.spread;
            self.window = meanwhile.window;
            self.said = meanwhile.said;
            self.strikes = meanwhile.strikes;
            self.blocked = meanwhile.blocked;
            self.swarm = meanwhile.swarm;
            self.windows = meanwhile.windows;
            self.measured = meanwhile.measured;
            self.grants.deeds = meanwhile.grants.deeds.clone();
        }
        self.ending.rejoin(meanwhile.ending);
        let mut given = meanwhile.grants;
        self.grants.rejoin(given.take());
    }

    /// A call of this scope was refused, as a record of it says: the next one in a row may be the
    /// last. [`crate::admit`] counts those that it refuses by itself.
    pub fn refused(&mut self, what: Blocked) {
        self.strikes.block();
        self.blocked = what;
    }

    /// The state as bytes, version first.
    pub fn to_blob(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![STATE_VERSION]).unwrap_or_default()
    }

    /// Reads a state back; of an older version its head only.
    pub fn from_blob(blob: &[u8]) -> Result<ScopeState, BadBlob> {
        let (&version, body) = blob.split_first().ok_or(BadBlob::Empty)?;
        match version {
            STATE_VERSION => match postcard::take_from_bytes(body) {
                Ok((state, [])) => Ok(state),
                Ok(_) | Err(_) => Err(BadBlob::Damaged),
            },
            // They are the same but for what stands at the end now.
            4 => extended(body, &(tail(), Outages::default())),
            5 => extended(body, &Outages::default()),
            OLDEST..STATE_VERSION => {
                let (head, _) =
                    postcard::take_from_bytes::<Head>(body).map_err(|_| BadBlob::Damaged)?;
                Ok(head.upgrade())
            }
            _ => Err(BadBlob::Version(version)),
        }
    }

    /// The first reason stays, but a stop is a stop: what was let finish is cut after all.
    pub(crate) fn end(&mut self, kill: Kill) {
        let drains = kill.drains;
        self.kill.get_or_insert(kill).drains &= drains;
    }

    /// Ends the scope by a guard.
    pub(crate) fn end_by(&mut self, trip: &Trip, now: Time) {
        debug_assert_eq!(trip.verdict, Verdict::Kill);
        self.end(Kill {
            at: now,
            guard: Some(trip.guard),
            because: bounded(&trip.because),
            by: bounded(&trip.context.who),
            drains: trip.drains,
        });
    }

    /// Empties the detectors. What was spent stays spent, what is dead stays dead.
    ///
    /// Clearing an agent does this to its sessions as well, so that the same guards do not trip
    /// again at once.
    pub fn forget(&mut self) {
        self.circuits = Circuits::default();
        self.outages = Outages::default();
        self.destroyed = Destroyed::default();
        self.grants.deeds = Destroyed::default();
        self.memory = Memory::default();
        self.spread = Spread::default();
        self.window = Window::default();
        self.said = Said::default();
        self.strikes = Strikes::default();
    }
}

/// One scope in the chain that a call is charged to.
#[derive(Debug)]
pub struct Link<'a> {
    /// What people call the scope.
    pub name: &'a str,
    /// Its state.
    pub state: &'a mut ScopeState,
    /// Its policy.
    pub policy: &'a Policy,
}

/// A session that was ended stays ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a session's end is final: open a new session, or have an operator reset this one")]
pub struct Final;

/// A state that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadBlob {
    /// There is nothing in it.
    #[error("the state is empty")]
    Empty,
    /// Another version wrote it.
    #[error("the state has version {0}, this engine reads {STATE_VERSION}: upgrade this node")]
    Version(u8),
    /// It is cut short or altered.
    #[error("the state is damaged: delete it to start the scope afresh")]
    Damaged,
}

/// Reads a state of a version that lacks what this one has at its end.
fn extended(body: &[u8], tail: &impl Serialize) -> Result<ScopeState, BadBlob> {
    let body = postcard::to_extend(tail, body.to_vec()).map_err(|_| BadBlob::Damaged)?;
    match postcard::take_from_bytes(&body) {
        Ok((state, [])) => Ok(state),
        Ok(_) | Err(_) => Err(BadBlob::Damaged),
    }
}

/// What version 5 has behind version 4, as it is in the beginning.
fn tail() -> (Ending, Swarm, Windows, Twice) {
    <(Ending, Swarm, Windows, Twice)>::default()
}

/// The beginning of a state, which has the same layout in every version.
#[derive(Deserialize)]
struct Head {
    kind: ScopeKind,
    opened: Time,
    kill: Option<Kill>,
    pause: Option<Pause>,
    calls: u64,
    ledger: Ledger,
    pace: Pace,
}

impl Head {
    fn upgrade(self) -> ScopeState {
        let Head { kind, opened, kill, pause, calls, ledger, pace } = self;
        ScopeState { kill, pause, calls, ledger, pace, ..ScopeState::new(kind, opened) }
    }
}

fn bounded(text: &str) -> String {
    match text.char_indices().nth(LONGEST_REASON) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{NanoUsd, Tokens};

    fn spent(cost: u64, calls: u64) -> ScopeState {
        let mut state = ScopeState::new(ScopeKind::Session, Time(1));
        state.calls = calls;
        state.ledger.spent.cost = NanoUsd(cost);
        state.ledger.period_cost = NanoUsd(cost);
        state
    }

    #[test]
    fn what_was_known_before_is_taken_in() {
        let mut before = spent(5, 3);
        before.ledger.reserved.cost = NanoUsd(2);
        before.pause("ada", "wait", Time(2));
        let mut state = spent(10, 4);
        state.opened = Time(9);
        state.ledger.in_flight = 1;
        state.ledger.reserved.output = Tokens(7);
        state.kill("bob", "enough", Time(10));
        state.rejoin(before);
        // A call from before that never ended has cost what it had reserved.
        assert_eq!((state.ledger.spent.cost, state.ledger.period_cost), (NanoUsd(17), NanoUsd(17)));
        // One that runs now still runs.
        assert_eq!((state.ledger.in_flight, state.ledger.reserved.output), (1, Tokens(7)));
        assert_eq!((state.calls, state.opened), (7, Time(1)));
        assert_eq!(state.killed().map(|kill| kill.by.as_str()), Some("bob"));
        assert_eq!(state.paused().map(|pause| pause.by.as_str()), Some("ada"));
    }

    #[test]
    fn an_upgrade_keeps_what_was_spent_and_who_was_stopped() {
        let mut state = spent(5, 3);
        state.kill("ada", "first", Time(2));
        let mut blob = state.to_blob();
        assert_eq!(blob[0], STATE_VERSION);
        let whole = postcard::to_extend(&(tail(), Outages::default()), Vec::new()).unwrap().len();
        let outages = postcard::to_extend(&Outages::default(), Vec::new()).unwrap().len();
        for (version, less) in [(4, whole), (5, outages)] {
            let older = [&[version], &blob[1..blob.len() - less]].concat();
            let read = ScopeState::from_blob(&older);
            assert_eq!(read, Ok(state.clone()), "version {version} ended before them");
        }
        for older in OLDEST..4 {
            // Whatever the detectors of an older version looked like.
            let head = blob.len() - 3;
            let old = [&[older], &blob[1..head], &[9, 9, 9, 9, 9, 9][..]].concat();
            let read = ScopeState::from_blob(&old).unwrap();
            assert_eq!(read.killed(), state.killed());
            assert_eq!((read.ledger.clone(), read.calls), (state.ledger.clone(), state.calls));
        }
        assert_eq!(ScopeState::from_blob(&[STATE_VERSION + 1]), Err(BadBlob::Version(7)));
        blob.pop();
        assert_eq!(ScopeState::from_blob(&blob), Err(BadBlob::Damaged));
    }

    #[test]
    fn a_grant_given_while_the_store_was_away_is_kept() {
        let mut state = spent(5, 3);
        let grant = Grant {
            id: 7,
            deletes: 50,
            left: 49,
            tool: None,
            target: Some(crate::Pattern::new("tmp_*")),
            given: Time(1),
            expires: Time(9),
            by: "ada".into(),
            because: "a batch".into(),
        };
        state.give(grant, Time(1)).unwrap();
        assert_eq!(ScopeState::from_blob(&state.to_blob()), Ok(state.clone()));
        let mut known = spent(0, 0);
        known.rejoin(state);
        assert_eq!((known.grants(Time(8)).count(), known.grants(Time(9)).count()), (1, 0));
    }

    #[test]
    fn what_was_dead_before_is_dead_for_its_first_reason() {
        let mut before = spent(0, 0);
        before.kill("ada", "first", Time(2));
        let mut state = spent(0, 0);
        state.kill("bob", "second", Time(3));
        state.rejoin(before);
        assert_eq!(state.killed().map(|kill| kill.because.as_str()), Some("first"));
    }
}
