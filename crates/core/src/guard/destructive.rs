//! *destructive*: deleting too much, or the same thing again and again.
//!
//! **Catches** two things in a sliding window: many destructive calls (volume), and few on the same
//! target (the agent that deletes it again because "it still exists"). Only serious harm counts.
//! **Lets pass** what comes back (scratch files, caches, files under version control), targets that
//! the policy exempts, and one repeat. **Trips** before the call that would
//! reach a limit: with 3 in 60 seconds, the third is not made. **Recovers** as the window slides
//! on, unless the trip ended the scope.
//!
//! A batch that is meant gets a higher `max_deletes`, for an agent or a session, or a grant, which
//! lifts the limit on volume; the limit on the same target stays tight. One call counts once for volume, however many things it names.
//!
//! It looks at every scope that has a policy for it: in an agent's scope it sees the same target
//! over several sessions.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::call::{Digest, ToolCall};
use crate::gauge::{Dial, Gauge};
use crate::guard::{Note, Seat, times};
use crate::harm::Harm;
use crate::pattern::Pattern;
use crate::scope::ScopeState;
use crate::settings::{BadSetting, Seconds, in_range, settings};
use crate::trip::{Action, Ends, GuardId, Measure, Trip};
use crate::units::{Millis, Time};

settings! {
    /// Limits on destructive operations.
    DestructiveSettings / RawDestructive {
        /// Whether to look at all.
        enabled: bool = false,
        /// The destructive call that trips, counted over all targets.
        max_deletes: u32 = 3,
        /// The destructive call that trips, counted per target.
        max_same_target: u32 = 3,
        /// The window in seconds.
        window_s: Seconds = Seconds(60),
        /// Targets that may be destroyed freely.
        exempt_targets: Vec<Pattern> = Vec::new(),
        /// What to do when a limit is reached.
        action: Action = Action::Terminate,
        /// Which scope a stop ends.
        ends: Ends = Ends::Session,
    }
}

/// Most destructive calls that a window may be asked to remember.
const MOST: u64 = 1000;

impl DestructiveSettings {
    pub(crate) fn validate(&self) -> Result<(), BadSetting> {
        let path = |field: &str| format!("destructive.{field}");
        in_range(&path("max_deletes"), self.max_deletes.into(), 1..=MOST)?;
        in_range(&path("max_same_target"), self.max_same_target.into(), 1..=MOST)?;
        in_range(&path("window_s"), self.window_s.0, 1..=31_536_000)
    }

    /// An agent's limits where nothing was typed about them: what each of its sessions may do is not
    /// refused to the agent.
    pub(crate) fn follow(&mut self, session: &DestructiveSettings) {
        self.enabled &= session.enabled;
        self.max_deletes = self.max_deletes.max(session.max_deletes);
        self.max_same_target = self.max_same_target.max(session.max_same_target);
        self.exempt_targets.clone_from(&session.exempt_targets);
        if matches!(session.action, Action::Warn | Action::Steer | Action::Ask) {
            self.action = session.action;
        }
    }

    /// What counts of what a call would destroy.
    pub(crate) fn counted<'a>(&self, call: &'a ToolCall) -> impl Iterator<Item = &'a Harm> {
        let exempt = |d: &&Harm| !self.exempt_targets.iter().any(|p| p.matches_target(&d.target));
        call.destroys().filter(exempt)
    }

    fn remembered(&self) -> usize {
        let calls = u64::from(self.max_deletes.max(self.max_same_target)).min(MOST);
        2 * calls as usize + TARGETS_A_CALL
    }
}

/// Targets that are remembered of one call.
const TARGETS_A_CALL: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Deed {
    at: Time,
    number: u64,
    /// `None` when the call did not say what it destroys.
    target: Option<Digest>,
}

/// The destructive calls of the window, one entry for each of their targets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Destroyed(VecDeque<Deed>);

impl Destroyed {
    /// One entry for each call in the window, of those that `wanted` picks.
    fn calls(&self, window: Millis, now: Time, wanted: impl Fn(&Deed) -> bool) -> Vec<Deed> {
        let within = self.0.iter().filter(|deed| now.since(deed.at) < window && wanted(deed));
        let mut calls: Vec<Deed> = within.copied().collect();
        calls.dedup_by_key(|deed| deed.number);
        calls
    }
}

fn target(deed: &Harm) -> Option<Digest> {
    (!deed.target.is_empty()).then(|| Digest::of(deed.target.as_bytes()))
}

pub(crate) struct Guard;

impl super::Guard for Guard {
    fn admit(&self, seat: &Seat<'_>) -> Option<Trip> {
        let settings = &seat.policy.destructive;
        if !settings.enabled {
            return None;
        }
        let tool = seat.call.tool()?;
        let first = settings.counted(tool).next()?;
        let window = settings.window_s.millis();

        for deed in settings.counted(tool) {
            let Some(target) = target(deed) else { continue };
            if seat.grant.is_some_and(|grant| grant.names(&deed.target)) {
                continue;
            }
            let wanted = |d: &Deed| d.target == Some(target);
            let mut same = seat.scope.destroyed.calls(window, seat.now, wanted);
            same.extend(seat.scope.grants.deeds.calls(window, seat.now, wanted));
            same.sort_by_key(|deed| deed.number);
            if same.len() + 1 >= settings.max_same_target as usize {
                let what = format!("{} on {}", deed.verb, deed.target);
                let limit = settings.max_same_target;
                return Some(trip(seat, "destructive_target", &what, &same, limit));
            }
        }
        if seat.grant.is_some() {
            return None;
        }
        let all = seat.scope.destroyed.calls(window, seat.now, |_| true);
        (all.len() + 1 >= settings.max_deletes as usize).then(|| {
            let what = match first.target.as_str() {
                "" => format!("destructive calls, the last {},", first.verb),
                target => format!("destructive calls, the last {} on {target},", first.verb),
            };
            trip(seat, "destructive_volume", &what, &all, settings.max_deletes)
        })
    }

    fn commit(&self, scope: &mut ScopeState, note: &mut Note<'_>) {
        let settings = &note.policy.destructive;
        let Some(call) = note.call.tool().filter(|_| settings.enabled) else { return };
        // A person looked at this one: an agent's sessions may each have some approved.
        if note.approved && !note.innermost {
            return;
        }
        let seen = match note.granted {
            true => &mut scope.grants.deeds.0,
            false => &mut scope.destroyed.0,
        };
        for deed in settings.counted(call).take(TARGETS_A_CALL) {
            while seen.len() >= settings.remembered() {
                seen.pop_front();
            }
            seen.push_back(Deed { at: note.now, number: scope.calls, target: target(deed) });
        }
    }

    fn gauges(&self, dial: &Dial<'_>) -> Vec<Gauge> {
        let settings = &dial.policy.destructive;
        if !settings.enabled {
            return Vec::new();
        }
        let (window, seen) = (settings.window_s.millis(), &dial.scope.destroyed);
        let all = seen.calls(window, dial.now, |_| true);
        let on = |deed: &Deed| {
            let same = |other: &Deed| deed.target.is_some() && other.target == deed.target;
            seen.calls(window, dial.now, same).len() as u64
        };
        let worst = all.iter().map(on).max().unwrap_or_default();
        let gauge =
            |what, count, limit: u32| Gauge::count(GuardId::Destructive, what, count, limit.into());
        vec![
            gauge("destructive_calls", all.len() as u64, settings.max_deletes),
            gauge("destroyed_same_target", worst, settings.max_same_target),
        ]
    }
}

fn trip(seat: &Seat<'_>, reason: &str, what: &str, before: &[Deed], limit: u32) -> Trip {
    let settings = &seat.policy.destructive;
    let count = before.len() as u64 + 1;
    let mut trip = seat.trip(GuardId::Destructive, reason, settings.action);
    trip.ends = settings.ends;
    trip.measured = Measure::Count(count);
    trip.limit = Measure::Count(limit.into());
    trip.evidence = before.iter().map(|deed| deed.number).collect();
    let took = before.first().map_or(Millis(0), |first| seat.now.since(first.at));
    // Rounded up: what took 11.2 s was not over after 11.
    let took = if took.0 > 1000 { Millis(took.0.next_multiple_of(1000)) } else { took };
    let window = settings.window_s.millis();
    trip.because = format!("{what} {} in {took} (limit {limit} in {window})", times(count));
    trip
}
