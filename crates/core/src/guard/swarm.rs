//! *swarm*: how many sub-agents a session may have.
//!
//! A sub-agent is a scope inside the session that makes a call: a nested scope of an SDK, a scope that
//! a header of the gateway or a body of the API names, a sub-agent that a coding agent's hook tells of.
//!
//! **Catches** the agent that starts helpers which start helpers: too many in all, side by side, below
//! each other, or in a minute. **Lets pass** calls of a sub-agent that is at work already. **Trips** on
//! the first call of one too many, which is refused; the others go on. **Recovers** when others have
//! been quiet for a minute (side by side, a minute); never for the number in all.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::gauge::{Dial, Gauge};
use crate::guard::{Below, Note, Seat};
use crate::scope::{ScopeKind, ScopeState};
use crate::settings::{BadSetting, in_range, settings};
use crate::trip::{Action, GuardId, Measure, Trip, Wait};
use crate::units::{Millis, Time};

settings! {
    /// Limits on the sub-agents of a session.
    SwarmSettings / RawSwarm {
        /// Sub-agents in all.
        max_agents: Option<u64> = None,
        /// Sub-agents at work side by side: those that made a call in the last minute.
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
}

fn second(scope: &ScopeState, now: Time) -> u32 {
    u32::try_from(now.since(scope.opened).0 / 1000).unwrap_or(u32::MAX)
}

impl Swarm {
    fn active(&self, second: u32) -> u64 {
        let recent = |last: u32| u64::from(second.saturating_sub(last)) * 1000 < AT_WORK.0;
        self.known.iter().filter(|(_, last)| recent(*last)).count() as u64
    }

    fn is_active(&self, place: u32, second: u32) -> bool {
        let recent = |last: u32| u64::from(second.saturating_sub(last)) * 1000 < AT_WORK.0;
        self.known.iter().any(|(known, last)| *known == place && recent(*last))
    }

    fn knows(&self, place: u32) -> bool {
        self.known.iter().any(|(known, _)| *known == place)
    }

    fn last_minute(&self, now: Time) -> u64 {
        let oldest = (now.0 / PIECE_MS).saturating_sub(PIECES as u64 - 1);
        let pieces = (0..PIECES as u64).filter_map(|back| self.newest.checked_sub(back));
        let counted = pieces.filter(|piece| *piece >= oldest);
        counted.map(|piece| u64::from(self.spawns[(piece % PIECES as u64) as usize])).sum()
    }

    /// A sub-agent makes a call.
    fn see(&mut self, place: u32, second: u32, now: Time) {
        if let Some(at) = self.known.iter().position(|(known, _)| *known == place) {
            self.known[at].1 = second;
            return;
        }
        self.total += 1;
        if self.known.len() == KNOWN {
            // The one that was quiet for longest.
            let quiet = self.known.iter().enumerate().min_by_key(|(_, (_, last))| *last);
            if let Some(at) = quiet.map(|(at, _)| at) {
                self.known.remove(at);
            }
        }
        self.known.push_back((place, second));
        let piece = now.0 / PIECE_MS;
        for step in 1..=piece.saturating_sub(self.newest).min(PIECES as u64) {
            self.spawns[((self.newest + step) % PIECES as u64) as usize] = 0;
        }
        self.newest = self.newest.max(piece);
        let slot = &mut self.spawns[(self.newest % PIECES as u64) as usize];
        *slot = slot.saturating_add(1);
    }
}

pub(crate) struct Guard;

impl super::Guard for Guard {
    fn admit(&self, seat: &Seat<'_>) -> Option<Trip> {
        let settings = &seat.policy.swarm;
        let below = seat.below?;
        if settings.none() || seat.scope.kind != ScopeKind::Session {
            return None;
        }
        let (swarm, second) = (&seat.scope.swarm, second(seat.scope, seat.now));
        if let Some(limit) = settings.max_depth.filter(|limit| below.depth > *limit) {
            return Some(trip(
                seat,
                "max_depth",
                below.depth,
                limit,
                "sub-agents below each other",
            ));
        }
        let new = below.places().filter(|place| !swarm.knows(*place)).count() as u64;
        let waking = below.places().filter(|place| !swarm.is_active(*place, second)).count() as u64;
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
        let Some(below) = note.below.filter(|_| scope.kind == ScopeKind::Session) else { return };
        let second = second(scope, note.now);
        for place in below.places() {
            scope.swarm.see(place, second, note.now);
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
