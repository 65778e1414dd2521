//! *swarm*: how many sub-agents a session may have.
//!
//! A sub-agent is a scope inside the session that begins or makes a call: a nested scope of an SDK, a
//! scope that a header of the gateway or a body of the API names, a sub-agent that a coding agent's
//! hook tells of. A tool call that starts a sub-agent announces it: it counts from then on, and the
//! next scope that is new takes its place.
//!
//! **Catches** the agent that starts helpers which start helpers: too many in all, side by side, below
//! each other, or in a minute. **Lets pass** calls of a sub-agent that is at work already. **Trips** on
//! the call that would start one too many, or else on its own first call, which is refused; the others
//! go on. **Recovers** when others have ended or have been quiet for a minute (side by side, a minute);
//! never for the number in all.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::gauge::{Dial, Gauge};
use crate::guard::{Below, End, Lesson, Note, Seat};
use crate::scope::{ScopeKind, ScopeState};
use crate::settings::{BadSetting, in_range, settings};
use crate::trip::{Action, GuardId, Measure, Trip, Wait};
use crate::units::{Millis, Time};

settings! {
    /// Limits on the sub-agents of a session.
    SwarmSettings / RawSwarm {
        /// Sub-agents in all.
        max_agents: Option<u64> = None,
        /// Sub-agents at work side by side: those that made a call in the last minute and have not ended.
        max_parallel: Option<u64> = None,
        /// Sub-agents below each other.
        max_depth: Option<u64> = None,
        /// New sub-agents a minute.
        max_spawns_per_minute: Option<u64> = None,
        /// What to do with the first call of one too many.
        action: Action = Action::Block,
    }
}

impl SwarmSettings {
    pub(crate) fn validate(&self) -> Result<(), BadSetting> {
        for (path, limit, most) in [
            ("swarm.max_agents", self.max_agents, u64::MAX),
            ("swarm.max_parallel", self.max_parallel, KNOWN as u64),
            ("swarm.max_depth", self.max_depth, u64::MAX),
            ("swarm.max_spawns_per_minute", self.max_spawns_per_minute, u64::MAX),
        ] {
            in_range(path, limit.unwrap_or(1), 1..=most)?;
        }
        Ok(())
    }

    fn none(&self) -> bool {
        self.max_agents.is_none()
            && self.max_parallel.is_none()
            && self.max_depth.is_none()
            && self.max_spawns_per_minute.is_none()
    }
}

impl RawSwarm {
    /// Whether it sets a limit.
    pub(crate) fn limits(&self) -> bool {
        let counts =
            [self.max_agents, self.max_parallel, self.max_depth, self.max_spawns_per_minute];
        counts.into_iter().flatten().flatten().next().is_some()
    }
}

/// Sub-agents that a session remembers; older ones that come back count as new.
const KNOWN: usize = 48;
/// How long a sub-agent counts as at work after a call.
const AT_WORK: Millis = Millis(60_000);
/// Sub-agents that were announced and have not shown themselves yet, and how long each is expected.
const ANNOUNCED: usize = 16;
const EXPECTED: Millis = Millis(600_000);
/// A minute in pieces.
const PIECE_MS: u64 = 10_000;
const PIECES: usize = 6;

/// The sub-agents of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Swarm {
    total: u64,
    /// Their digests, and the second of the session's life in which each last made a call.
    known: VecDeque<(u32, u32)>,
    /// The newest piece of a minute, and the spawns of that and the five before it.
    newest: u64,
    spawns: [u32; PIECES],
    /// Calls that start a sub-agent which has not made a call yet: their digests, and the second of
    /// the session's life in which each was admitted.
    announced: VecDeque<(u32, u32)>,
}

/// The second of a session's life, from the first minute on: one that ended was at work before that.
fn second(scope: &ScopeState, now: Time) -> u32 {
    u32::try_from(now.since(scope.opened).0.saturating_add(AT_WORK.0) / 1000).unwrap_or(u32::MAX)
}

/// Whether less than this has passed between two seconds of a session's life.
fn within(span: Millis, last: u32, second: u32) -> bool {
    u64::from(second.saturating_sub(last)) * 1000 < span.0
}

impl Swarm {
    fn active(&self, second: u32) -> u64 {
        let known = self.known.iter().filter(|(_, last)| within(AT_WORK, *last, second)).count();
        known as u64 + self.expected(second)
    }

    fn is_active(&self, place: u32, second: u32) -> bool {
        self.known.iter().any(|(known, last)| *known == place && within(AT_WORK, *last, second))
    }

    fn knows(&self, place: u32) -> bool {
        self.known.iter().any(|(known, _)| *known == place)
    }

    /// Sub-agents that were announced and have not shown themselves.
    fn expected(&self, second: u32) -> u64 {
        self.announced.iter().filter(|(_, since)| within(EXPECTED, *since, second)).count() as u64
    }

    fn last_minute(&self, now: Time) -> u64 {
        let oldest = (now.0 / PIECE_MS).saturating_sub(PIECES as u64 - 1);
        let pieces = (0..PIECES as u64).filter_map(|back| self.newest.checked_sub(back));
        let counted = pieces.filter(|piece| *piece >= oldest);
        counted.map(|piece| u64::from(self.spawns[(piece % PIECES as u64) as usize])).sum()
    }

    /// A sub-agent begins or makes a call.
    fn see(&mut self, place: u32, second: u32, now: Time) {
        if let Some(at) = self.known.iter().position(|(known, _)| *known == place) {
            self.known[at].1 = second;
            return;
        }
        self.announced.retain(|(_, since)| within(EXPECTED, *since, second));
        // One that was announced has been counted.
        if self.announced.pop_front().is_none() {
            self.count(now);
        }
        if self.known.len() == KNOWN {
            // The one that was quiet for longest.
            let quiet = self.known.iter().enumerate().min_by_key(|(_, (_, last))| *last);
            if let Some(at) = quiet.map(|(at, _)| at) {
                self.known.remove(at);
            }
        }
        self.known.push_back((place, second));
    }

    /// A call that starts a sub-agent will run.
    fn announce(&mut self, call: u32, second: u32, now: Time) {
        self.count(now);
        if self.announced.len() == ANNOUNCED {
            self.announced.pop_front();
        }
        self.announced.push_back((call, second));
    }

    /// A call has ended: a sub-agent that it started and that never showed itself has ended, too.
    fn ended(&mut self, call: u32) {
        if let Some(at) = self.announced.iter().position(|(announced, _)| *announced == call) {
            self.announced.remove(at);
        }
    }

    /// A sub-agent has ended: it is known, and no longer at work.
    fn rest(&mut self, place: u32, second: u32) {
        let long_ago = second.saturating_sub(u32::try_from(AT_WORK.0 / 1000).unwrap_or(u32::MAX));
        for (_, last) in self.known.iter_mut().filter(|(known, _)| *known == place) {
            *last = (*last).min(long_ago);
        }
    }

    /// Counts a new sub-agent.
    fn count(&mut self, now: Time) {
        self.total += 1;
        let piece = now.0 / PIECE_MS;
        for step in 1..=piece.saturating_sub(self.newest).min(PIECES as u64) {
            self.spawns[((self.newest + step) % PIECES as u64) as usize] = 0;
        }
        self.newest = self.newest.max(piece);
        let slot = &mut self.spawns[(self.newest % PIECES as u64) as usize];
        *slot = slot.saturating_add(1);
    }
}

/// A sub-agent has begun, without a call of its own.
pub(crate) fn begin(scope: &mut ScopeState, below: &Below, now: Time) {
    let second = second(scope, now);
    for place in below.places() {
        scope.swarm.see(place, second, now);
    }
}

/// The innermost sub-agent has ended.
pub(crate) fn end(scope: &mut ScopeState, below: &Below, now: Time) {
    let second = second(scope, now);
    if let Some(place) = below.places().last() {
        scope.swarm.rest(place, second);
    }
}

pub(crate) struct Guard;

impl super::Guard for Guard {
    fn admit(&self, seat: &Seat<'_>) -> Option<Trip> {
        let settings = &seat.policy.swarm;
        let spawns = u64::from(seat.call.tool().is_some_and(|call| call.spawns));
        if settings.none()
            || seat.scope.kind != ScopeKind::Session
            || (seat.below.is_none() && spawns == 0)
        {
            return None;
        }
        let (swarm, second) = (&seat.scope.swarm, second(seat.scope, seat.now));
        let depth = seat.below.map_or(0, |below| below.depth) + spawns;
        if let Some(limit) = settings.max_depth.filter(|limit| depth > *limit) {
            return Some(trip(seat, "max_depth", depth, limit, "sub-agents below each other"));
        }
        let places = |counts: &dyn Fn(u32) -> bool| {
            let below = seat.below.as_ref().into_iter();
            below.flat_map(Below::places).filter(|place| counts(*place)).count() as u64
        };
        let unknown = places(&|place| !swarm.knows(place));
        // Those that were announced have been counted.
        let counted = swarm.expected(second).min(unknown);
        let new = unknown - counted + spawns;
        let waking = places(&|place| !swarm.is_active(place, second)) - counted + spawns;
        let (total, active) = (swarm.total + new, swarm.active(second) + waking);
        let minute = swarm.last_minute(seat.now) + new;
        if let Some(limit) = settings.max_agents.filter(|limit| new > 0 && total > *limit) {
            return Some(trip(seat, "max_agents", total, limit, "sub-agents in all"));
        }
        if let Some(limit) = settings.max_parallel.filter(|limit| waking > 0 && active > *limit) {
            let mut trip = trip(seat, "max_parallel", active, limit, "sub-agents side by side");
            trip.waits = Some(Wait::For(AT_WORK));
            return Some(trip);
        }
        let limit = settings.max_spawns_per_minute.filter(|limit| new > 0 && minute > *limit)?;
        let mut trip = trip(seat, "spawns_per_minute", minute, limit, "new sub-agents in a minute");
        trip.waits = Some(Wait::For(Millis(PIECE_MS)));
        Some(trip)
    }

    fn commit(&self, scope: &mut ScopeState, note: &mut Note<'_>) {
        if scope.kind != ScopeKind::Session {
            return;
        }
        if let Some(below) = &note.below {
            begin(scope, below, note.now);
        }
        if let Some(call) = note.call.tool().filter(|call| call.spawns) {
            let second = second(scope, note.now);
            scope.swarm.announce(call.signature.short(), second, note.now);
        }
    }

    fn settle(&self, lesson: &mut Lesson<'_>, end: &End<'_>) {
        if let (ScopeKind::Session, Some(call)) = (lesson.scope.kind, end.call.tool()) {
            lesson.scope.swarm.ended(call.signature.short());
        }
    }

    fn gauges(&self, dial: &Dial<'_>) -> Vec<Gauge> {
        let (settings, swarm) = (&dial.policy.swarm, &dial.scope.swarm);
        let active = swarm.active(second(dial.scope, dial.now));
        let gauge = |what, used, limit: Option<u64>| {
            limit.map(|limit| Gauge::count(GuardId::Swarm, what, used, limit))
        };
        let total = gauge("sub_agents", swarm.total, settings.max_agents);
        let parallel = gauge("parallel_sub_agents", active, settings.max_parallel);
        total.into_iter().chain(parallel).collect()
    }
}

fn trip(seat: &Seat<'_>, reason: &str, measured: u64, limit: u64, what: &str) -> Trip {
    let mut trip = seat.trip(GuardId::Swarm, reason, seat.policy.swarm.action);
    (trip.measured, trip.limit) = (Measure::Count(measured), Measure::Count(limit));
    trip.because = format!("{} would have {measured} {what} (limit {limit})", seat.who());
    trip
}

impl Below {
    /// The sub-agents that the call is made in, each by a digest of its path.
    fn places(&self) -> impl Iterator<Item = u32> + '_ {
        self.places.iter().copied().take(usize::try_from(self.depth).unwrap_or(usize::MAX))
    }
}
