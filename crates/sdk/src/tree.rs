//! The scopes of one session, under one lock: project ▸ agent ▸ session ▸ what is nested in it.
//!
//! The chain is the server's, so that the same events give the same verdicts and the same depths.
//! A scope below is found by its name: opening `researcher` twice in one place gives the same scope,
//! and what was spent and seen there stays spent and seen. A decision takes a microsecond, so one lock
//! is enough.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use deadstop_core::{
    Admission, Call, Decision, GuardId, Kill, Link, Mode, Policy, PolicySet, ScopeKind, ScopeState,
    Ticket, Time, Trip, Verdict,
};
use deadstop_protocol::llm::request::{Notes, Seen};
use smallvec::SmallVec;

use crate::authority::Remote;
use crate::limits::Limits;
use crate::refused::{ABOVE, Refused, Why};
use crate::stop::StopSignal;

/// The most scopes of a session: an agent that makes up a name for each call would fill the memory.
const MOST_SCOPES: usize = 16_384;
/// Tool calls of answers that wait to be run.
const MOST_PENDING: usize = 256;
/// Where the session is in every tree.
pub(crate) const SESSION: usize = ABOVE;
/// Where the agent is in every tree.
pub(crate) const AGENT: usize = 1;

/// Is told of each trip. It cannot prevent anything.
pub type Observer = Arc<dyn Fn(&Why) + Send + Sync>;

/// The scopes of a session.
pub(crate) struct Tree {
    nodes: Vec<Node>,
    policies: Arc<PolicySet>,
    /// The mode that the session was opened with; it overrides the policy's.
    mode: Option<Mode>,
    /// Changes with every decision.
    pub(crate) version: u64,
}

struct Node {
    name: Arc<str>,
    path: SmallVec<[usize; 6]>,
    state: ScopeState,
    limits: Limits,
    policy: Policy,
    stop: StopSignal,
    children: HashMap<Arc<str>, usize>,
    below: Vec<usize>,
    observers: Vec<Observer>,
    /// Those that are told when the model is steered.
    steers: Vec<Observer>,
    seen: Seen,
    /// What the model was told, and where in its conversation.
    notes: Notes,
    /// What the server said to the model about the end of an earlier call.
    late: Option<Why>,
    pending: VecDeque<Pending>,
    /// The code of what ended it, for calls that come later.
    cause: Option<String>,
}

/// A tool call that an answer asks for, and that has not run yet.
pub(crate) struct Pending {
    pub(crate) id: String,
    pub(crate) call: Call,
    pub(crate) ticket: Ticket,
    /// How the server knows it.
    pub(crate) remote: Option<Remote>,
    /// The warnings with which it was admitted.
    pub(crate) warnings: Vec<Why>,
}

/// A scope that a decision has ended.
pub(crate) struct Ended {
    pub(crate) at: usize,
    pub(crate) name: Arc<str>,
    pub(crate) kill: Kill,
    /// The stops of the calls that must not go on.
    pub(crate) stops: Vec<StopSignal>,
}

/// What the engine says about a call.
pub(crate) trait Judged {
    /// Every guard that tripped, the strictest first.
    fn trips(&self) -> &[Trip];
}

impl Judged for Admission {
    fn trips(&self) -> &[Trip] {
        &self.trips
    }
}

impl Judged for Decision {
    fn trips(&self) -> &[Trip] {
        &self.trips
    }
}

/// A scope that cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScopeError {
    /// Its name.
    #[error("`{0}` cannot be a scope's name: 1 to 200 printable characters without a slash")]
    Name(String),
    /// One of its limits.
    #[error(transparent)]
    Limit(#[from] crate::limits::BadLimit),
    /// There are too many.
    #[error("a session has at most {MOST_SCOPES} scopes: use the same name for the same work")]
    TooMany,
}

impl Tree {
    pub(crate) fn new(
        names: [&str; 3],
        policies: Arc<PolicySet>,
        mode: Option<Mode>,
        now: Time,
    ) -> Tree {
        let mut tree = Tree { nodes: Vec::new(), policies, mode, version: 0 };
        let kinds = [ScopeKind::Project, ScopeKind::Agent, ScopeKind::Session];
        for (depth, (name, kind)) in names.into_iter().zip(kinds).enumerate() {
            tree.push(name.into(), kind, depth.checked_sub(1), now);
        }
        tree
    }

    fn push(&mut self, name: Arc<str>, kind: ScopeKind, above: Option<usize>, now: Time) -> usize {
        let at = self.nodes.len();
        let mut path = above.map(|above| self.nodes[above].path.clone()).unwrap_or_default();
        path.push(at);
        if let Some(above) = above {
            self.nodes[above].children.insert(Arc::clone(&name), at);
            self.nodes[above].below.push(at);
        }
        let stop = StopSignal::default();
        if above.is_some_and(|above| self.nodes[above].stop.is_stopped()) {
            stop.stop();
        }
        self.nodes.push(Node {
            name,
            path,
            state: ScopeState::new(kind, now),
            limits: Limits::default(),
            policy: self.policies.of(kind).clone(),
            stop,
            children: HashMap::new(),
            below: Vec::new(),
            observers: Vec::new(),
            steers: Vec::new(),
            seen: Seen::default(),
            notes: Notes::default(),
            late: None,
            pending: VecDeque::new(),
            cause: None,
        });
        self.renew(at);
        at
    }

    /// The scope of this name below another, opened if there is none.
    pub(crate) fn open(
        &mut self,
        above: usize,
        name: &str,
        limits: Limits,
        now: Time,
    ) -> Result<usize, ScopeError> {
        // A path of scopes is written with slashes, in headers and in the environment.
        let good = deadstop_protocol::llm::identity::name(name).as_deref() == Some(name);
        if !good || name.contains('/') {
            return Err(ScopeError::Name(name.chars().take(200).collect()));
        }
        limits.check()?;
        let found = self.nodes[above].children.get(name).copied();
        let at = match found {
            Some(at) => at,
            None if self.nodes.len() >= MOST_SCOPES => return Err(ScopeError::TooMany),
            None => self.push(name.into(), ScopeKind::Nested, Some(above), now),
        };
        self.limit(at, limits.or(self.nodes[at].limits));
        Ok(at)
    }

    /// Sets a scope's limits.
    pub(crate) fn limit(&mut self, at: usize, limits: Limits) {
        self.nodes[at].limits = limits;
        self.renew(at);
    }

    pub(crate) fn limits(&self, at: usize) -> Limits {
        self.nodes[at].limits
    }

    /// Puts another policy in force, from the next call on.
    pub(crate) fn follow(&mut self, policies: Arc<PolicySet>) {
        self.policies = policies;
        self.version += 1;
        (0..self.nodes.len()).for_each(|at| self.renew(at));
    }

    pub(crate) fn policies(&self) -> &Arc<PolicySet> {
        &self.policies
    }

    pub(crate) fn mode(&self) -> Mode {
        self.nodes[SESSION].policy.mode
    }

    fn renew(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let mut policy = self.policies.of(node.state.kind()).clone();
        node.limits.over(&mut policy);
        policy.mode = self.mode.unwrap_or(policy.mode);
        node.policy = policy;
    }

    pub(crate) fn observe(&mut self, at: usize, observer: Observer) {
        self.nodes[at].observers.push(observer);
    }

    pub(crate) fn observe_steers(&mut self, at: usize, observer: Observer) {
        self.nodes[at].steers.push(observer);
    }

    /// The observers that these trips concern. A trip is a call that a guard refuses or ends, or, in
    /// log-only mode, one that it would have; a call in a scope that is over or held is none.
    pub(crate) fn observers(&self, at: usize, trips: &[Trip]) -> Vec<(Observer, Why)> {
        let path = &self.nodes[at].path;
        let mut told = Vec::new();
        for trip in trips {
            let Some(here) = path.get(trip.context.depth) else { continue };
            if trip.verdict == Verdict::Steer && trip.advice.is_some() {
                told.extend(self.steer_observers_of(*here, &self.why(at, trip)));
                continue;
            }
            let log_only = self.nodes[*here].policy.mode == Mode::LogOnly;
            let least = if log_only { Verdict::Warn } else { Verdict::Block };
            if trip.verdict < least || matches!(trip.guard, GuardId::Killed | GuardId::Paused) {
                continue;
            }
            told.extend(self.observers_of(*here, &self.why(at, trip)));
        }
        told
    }

    /// The observers of a scope and of those that contain it, the innermost first.
    pub(crate) fn observers_of(&self, at: usize, why: &Why) -> Vec<(Observer, Why)> {
        self.each_above(at, why, |node| &node.observers)
    }

    /// The same of those that are told when the model is steered.
    pub(crate) fn steer_observers_of(&self, at: usize, why: &Why) -> Vec<(Observer, Why)> {
        self.each_above(at, why, |node| &node.steers)
    }

    fn each_above(
        &self,
        at: usize,
        why: &Why,
        of: impl Fn(&Node) -> &Vec<Observer>,
    ) -> Vec<(Observer, Why)> {
        let mut told = Vec::new();
        for above in self.nodes[at].path.iter().rev() {
            let observers = of(&self.nodes[*above]).iter();
            told.extend(observers.map(|observer| (Arc::clone(observer), why.clone())));
        }
        told
    }

    /// What a guard says about a call in a scope.
    pub(crate) fn why(&self, at: usize, trip: &Trip) -> Why {
        let here = self.nodes[at].path.get(trip.context.depth).copied().unwrap_or(at);
        let over = trip.guard == GuardId::Killed;
        let cause = self.nodes[here].cause.as_deref().filter(|_| over);
        Why::of(trip, self.path(here), cause)
    }

    /// The refusal for the strictest trip, if it refuses.
    pub(crate) fn refused(&self, at: usize, trips: &[Trip]) -> Option<Refused> {
        let trip = trips.first().filter(|trip| trip.verdict >= Verdict::Ask)?;
        Some(Refused::new(self.why(at, trip)))
    }

    /// The code of what ended a scope, if it is over and the code is known.
    pub(crate) fn cause(&self, at: usize) -> Option<&str> {
        self.nodes[at].cause.as_deref()
    }

    /// Remembers what ended a scope. The first cause stays.
    pub(crate) fn caused_by(&mut self, at: usize, code: &str) {
        self.nodes[at].cause.get_or_insert_with(|| code.to_owned());
    }

    /// A scope's names from the agent down; the project's own for the project.
    pub(crate) fn path(&self, at: usize) -> Vec<String> {
        let path = self.nodes[at].path.iter().skip(usize::from(at >= AGENT));
        path.map(|at| self.nodes[*at].name.to_string()).collect()
    }

    pub(crate) fn state(&self, at: usize) -> &ScopeState {
        &self.nodes[at].state
    }

    pub(crate) fn name(&self, at: usize) -> &Arc<str> {
        &self.nodes[at].name
    }

    pub(crate) fn policy(&self, at: usize) -> &Policy {
        &self.nodes[at].policy
    }

    pub(crate) fn stop(&self, at: usize) -> StopSignal {
        self.nodes[at].stop.clone()
    }

    pub(crate) fn seen(&mut self, at: usize) -> &mut Seen {
        &mut self.nodes[at].seen
    }

    /// What the model was told in a scope.
    pub(crate) fn notes(&mut self, at: usize) -> &mut Notes {
        &mut self.nodes[at].notes
    }

    /// What the server said to the model about the end of an earlier call of a scope.
    pub(crate) fn late(&mut self, at: usize) -> &mut Option<Why> {
        &mut self.nodes[at].late
    }

    /// The scope of this path inside the session.
    pub(crate) fn at(&self, path: &[String]) -> Option<usize> {
        self.all().find(|at| self.names(*at) == path)
    }

    /// The agent's context in a scope was compacted.
    pub(crate) fn compacted(&mut self, at: usize) {
        self.nodes[at].state.compacted();
    }

    /// The names of the scopes inside the session, the outermost first.
    pub(crate) fn names(&self, at: usize) -> Vec<String> {
        let inside = self.nodes[at].path.iter().skip(SESSION + 1);
        inside.map(|at| self.nodes[*at].name.to_string()).collect()
    }

    /// Every scope of the session, itself first.
    pub(crate) fn all(&self) -> impl Iterator<Item = usize> {
        SESSION..self.nodes.len()
    }

    /// Whether the session is over.
    pub(crate) fn killed(&self) -> Option<&Kill> {
        self.nodes[..=SESSION].iter().find_map(|node| node.state.killed())
    }

    /// The outermost scope, from the session on, that is over and so ends this one; else itself.
    pub(crate) fn ender(&self, at: usize) -> usize {
        if self.killed().is_some() {
            return SESSION;
        }
        let over = |at: &&usize| self.nodes[**at].state.killed().is_some();
        self.nodes[at].path.iter().find(over).copied().unwrap_or(at)
    }

    /// Asks the engine about a call in a scope; tells which scopes that has ended.
    pub(crate) fn decide<T: Judged>(
        &mut self,
        at: usize,
        decide: impl FnOnce(&mut [Link<'_>]) -> T,
    ) -> (T, Vec<Ended>) {
        self.version += 1;
        let path = self.nodes[at].path.clone();
        let alive: SmallVec<[bool; 6]> =
            path.iter().map(|at| self.nodes[*at].state.killed().is_none()).collect();
        let mut links: SmallVec<[Link<'_>; 6]> = SmallVec::new();
        let (mut rest, mut passed) = (self.nodes.as_mut_slice(), 0);
        for at in &path {
            // A scope stands behind the one above it, so one pass meets them all.
            let Some((node, behind)) = rest[at - passed..].split_first_mut() else { break };
            let Node { name, state, policy, .. } = node;
            links.push(Link { name, state, policy });
            (rest, passed) = (behind, at + 1);
        }
        let decision = decide(&mut links);
        drop(links);
        let fresh = path.iter().zip(alive).filter(|(_, alive)| *alive).map(|(at, _)| *at);
        let fresh: SmallVec<[usize; 6]> = fresh.collect();
        let ended: Vec<Ended> = fresh.into_iter().filter_map(|at| self.ended(at)).collect();
        for Ended { at, kill, .. } in &ended {
            let kills =
                |trip: &&Trip| trip.verdict == Verdict::Kill && Some(trip.guard) == kill.guard;
            if let Some(trip) = decision.trips().iter().find(kills) {
                self.caused_by(*at, &trip.reason);
            }
        }
        (decision, ended)
    }

    /// Asks the engine about a call on a copy, which is then dropped.
    pub(crate) fn attempt<T>(&self, at: usize, decide: impl FnOnce(&mut [Link<'_>]) -> T) -> T {
        let path = self.nodes[at].path.iter();
        let mut states: Vec<_> =
            path.map(|at| (&self.nodes[*at], self.nodes[*at].state.clone())).collect();
        let links = states.iter_mut().map(|(node, state)| Link {
            name: &node.name,
            policy: &node.policy,
            state,
        });
        decide(&mut links.collect::<Vec<_>>())
    }

    /// Ends a scope by an order. `None` if it was over.
    pub(crate) fn kill(&mut self, at: usize, by: &str, because: &str, now: Time) -> Option<Ended> {
        let over = self.nodes[at].state.killed().is_some_and(|kill| !kill.drains);
        if over {
            return None;
        }
        self.version += 1;
        let node = &mut self.nodes[at];
        match node.state.killed().cloned() {
            None => node.state.kill(by, because, now),
            // Its calls were to finish; now they are cut. What ended it stays.
            Some(kill) => {
                return Some(Ended {
                    at,
                    name: Arc::clone(&self.nodes[at].name),
                    kill: Kill { drains: false, ..kill },
                    stops: self.stops(at),
                });
            }
        }
        self.ended(at)
    }

    /// Holds a scope, or lets it go on.
    pub(crate) fn pause(&mut self, at: usize, because: Option<&str>, now: Time) {
        self.version += 1;
        match because {
            Some(because) => self.nodes[at].state.pause("the server", because, now),
            None => self.nodes[at].state.resume(),
        }
    }

    /// An operator has cleared the agent or the project: calls are admitted again. A session or a scope
    /// that was killed itself stays dead. Tells whether anything was cleared.
    pub(crate) fn revive(&mut self) -> bool {
        let mut cleared = false;
        for node in &mut self.nodes[..SESSION] {
            cleared |= node.state.killed().is_some() && node.state.clear().is_ok();
            node.cause = None;
        }
        if !cleared {
            return false;
        }
        self.version += 1;
        for at in 0..self.nodes.len() {
            let dead =
                self.nodes[at].path.iter().any(|at| self.nodes[*at].state.killed().is_some());
            if !dead {
                // What tripped before must not trip again at once.
                self.nodes[at].state.forget();
                self.nodes[at].stop = StopSignal::default();
            }
        }
        true
    }

    fn ended(&self, at: usize) -> Option<Ended> {
        let kill = self.nodes[at].state.killed()?.clone();
        let stops = if kill.drains { Vec::new() } else { self.stops(at) };
        Some(Ended { at, name: Arc::clone(&self.nodes[at].name), kill, stops })
    }

    /// The stops of a scope and of all below it.
    fn stops(&self, at: usize) -> Vec<StopSignal> {
        let mut stops = Vec::new();
        let mut left = vec![at];
        while let Some(at) = left.pop() {
            stops.push(self.nodes[at].stop.clone());
            left.extend(&self.nodes[at].below);
        }
        stops
    }

    /// Remembers a tool call that an answer asks for; gives back the oldest if there are too many.
    pub(crate) fn wait_for(&mut self, at: usize, pending: Pending) -> Option<Pending> {
        let waiting = &mut self.nodes[at].pending;
        waiting.push_back(pending);
        if waiting.len() > MOST_PENDING { waiting.pop_front() } else { None }
    }

    /// The call of an answer that a tool call now runs, and the scope that it was admitted in: of the
    /// same name, and if there are several, with the same arguments. Frameworks add defaults to
    /// arguments, so the name is enough.
    pub(crate) fn claim(&mut self, at: usize, call: &Call) -> Option<(usize, Pending)> {
        let (name, signature) = call.tool().map(|tool| (&tool.name, tool.signature))?;
        let path = self.nodes[at].path.clone();
        for at in path.iter().rev() {
            let waiting = &mut self.nodes[*at].pending;
            let named = |pending: &Pending| pending.call.name() == name;
            let same = |pending: &Pending| {
                named(pending) && pending.call.tool().is_some_and(|t| t.signature == signature)
            };
            let found = waiting.iter().position(same).or_else(|| waiting.iter().position(named));
            if let Some(pending) = found.and_then(|found| waiting.remove(found)) {
                return Some((*at, pending));
            }
        }
        None
    }

    /// The call of an answer whose result has come back.
    pub(crate) fn answered(&mut self, at: usize, id: &str, name: Option<&str>) -> Option<Pending> {
        let waiting = &mut self.nodes[at].pending;
        let found = match id {
            "" => waiting.iter().position(|pending| Some(pending.call.name()) == name),
            id => waiting.iter().position(|pending| pending.id == id),
        };
        waiting.remove(found?)
    }

    /// Takes back what an answer asked for, by the ids.
    pub(crate) fn take_back(&mut self, at: usize, numbers: &[u64]) -> Vec<Pending> {
        let waiting = std::mem::take(&mut self.nodes[at].pending);
        let (taken, kept): (VecDeque<_>, VecDeque<_>) =
            waiting.into_iter().partition(|pending| numbers.contains(&pending.ticket.number));
        self.nodes[at].pending = kept;
        taken.into()
    }

    /// A copy for a forked process.
    pub(crate) fn copy(&self) -> Tree {
        let nodes = self.nodes.iter().map(|node| {
            let mut state = node.state.clone();
            // Calls in flight belong to the process that makes them.
            state.recover();
            Node {
                name: Arc::clone(&node.name),
                path: node.path.clone(),
                state,
                limits: node.limits,
                policy: node.policy.clone(),
                stop: StopSignal::default(),
                children: node.children.clone(),
                below: node.below.clone(),
                observers: node.observers.clone(),
                steers: node.steers.clone(),
                seen: Seen::default(),
                notes: node.notes.clone(),
                late: node.late.clone(),
                pending: VecDeque::new(),
                cause: node.cause.clone(),
            }
        });
        let tree = Tree {
            nodes: nodes.collect(),
            policies: Arc::clone(&self.policies),
            mode: self.mode,
            version: self.version,
        };
        for at in 0..tree.nodes.len() {
            if tree.nodes[at].state.killed().is_some_and(|kill| !kill.drains) {
                tree.stops(at).iter().for_each(StopSignal::stop);
            }
        }
        tree
    }
}
