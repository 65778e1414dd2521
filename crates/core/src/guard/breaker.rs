//! *breaker*: leaves a failing server alone for a while, per agent and server.
//!
//! # Trip conditions
//! A server's circuit opens after `open_after_failures` failures in a row: errors and faults alike,
//! since a server that answers every call with an error is as useless as one that does not answer.
//! While it is open, calls to that server are blocked; other servers are not affected.
//!
//! # Recovery conditions
//! After `cooldown_seconds` the circuit is half-open: `half_open_max_calls` trial calls are let
//! through, counted when they are admitted, not when they return, so that a burst cannot slip in.
//! When that many have succeeded the circuit closes; one failure opens it again and the cool-down
//! starts anew. Trials that never return (their node died) free their places after another
//! cool-down.
//!
//! The state belongs to the agent's scope and remembers the [`SERVERS`] used last.

use serde::{Deserialize, Serialize};

use crate::call::{Call, Digest, Status};
use crate::gauge::{Dial, Gauge};
use crate::guard::{End, Lesson, Note, Seat};
use crate::scope::{ScopeKind, ScopeState};
use crate::settings::{BadSetting, Seconds, in_range, settings};
use crate::trip::{Action, GuardId, Measure, Trip};
use crate::units::Time;

settings! {
    /// When to leave a failing server alone.
    BreakerSettings / RawBreaker {
        /// Whether the breaker works at all.
        enabled: bool = true,
        /// Failures in a row that open the circuit.
        open_after_failures: u32 = 5,
        /// Seconds it stays open.
        cooldown_seconds: Seconds = Seconds(30),
        /// Trial calls after that.
        half_open_max_calls: u32 = 3,
        /// What to do with a call to a server whose circuit is open.
        action: Action = Action::Block,
    }
}

impl BreakerSettings {
    pub(crate) fn validate(&self) -> Result<(), BadSetting> {
        let path = |field: &str| format!("breaker.{field}");
        in_range(&path("open_after_failures"), self.open_after_failures.into(), 1..=1_000_000)?;
        in_range(&path("cooldown_seconds"), self.cooldown_seconds.0, 1..=31_536_000)?;
        in_range(&path("half_open_max_calls"), self.half_open_max_calls.into(), 1..=1_000_000)
    }
}

/// Servers that an agent's state remembers.
pub(crate) const SERVERS: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    Closed { failures: u32 },
    Open { since: Time },
    HalfOpen { since: Time, started: u32, succeeded: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Circuit {
    server: Digest,
    phase: Phase,
}

/// The circuits of one agent, the one used last at the end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Circuits(Vec<Circuit>);

impl Circuits {
    fn phase(&self, server: Digest) -> Phase {
        let found = self.0.iter().find(|circuit| circuit.server == server);
        found.map_or(Phase::Closed { failures: 0 }, |circuit| circuit.phase)
    }

    fn set(&mut self, server: Digest, phase: Phase) {
        self.0.retain(|circuit| circuit.server != server);
        if self.0.len() == SERVERS {
            self.0.remove(0);
        }
        self.0.push(Circuit { server, phase });
    }
}

/// What a call would meet: the phase after time has done its part.
fn at(phase: Phase, settings: &BreakerSettings, now: Time) -> Phase {
    let cooled = |since: Time| now.since(since) >= settings.cooldown_seconds.millis();
    let trial = Phase::HalfOpen { since: now, started: 0, succeeded: 0 };
    match phase {
        Phase::Open { since } if cooled(since) => trial,
        Phase::HalfOpen { since, started, .. }
            if started >= settings.half_open_max_calls && cooled(since) =>
        {
            trial
        }
        other => other,
    }
}

fn server(call: &Call) -> Option<&str> {
    match call {
        Call::Tool(call) => call.server.as_deref(),
        Call::Model(call) => call.server.as_deref(),
    }
}

pub(crate) struct Guard;

impl super::Guard for Guard {
    fn admit(&self, seat: &Seat<'_>) -> Option<Trip> {
        let settings = &seat.policy.breaker;
        if !settings.enabled || seat.scope.kind != ScopeKind::Agent {
            return None;
        }
        let server = server(seat.call)?;
        let phase = seat.scope.circuits.phase(Digest::of(server.as_bytes()));
        let (since, how) = match at(phase, settings, seat.now) {
            Phase::Closed { .. } => return None,
            Phase::HalfOpen { started, .. } if started < settings.half_open_max_calls => {
                return None;
            }
            Phase::HalfOpen { since, .. } => (since, "is being tried out by other calls"),
            Phase::Open { since } => (since, "keeps failing and is left alone"),
        };
        let mut trip = seat.trip(GuardId::Breaker, "circuit_breaker_open", settings.action);
        let cooldown = settings.cooldown_seconds.millis();
        trip.measured = Measure::Time(seat.now.since(since));
        trip.limit = Measure::Time(cooldown);
        let left = cooldown - seat.now.since(since);
        trip.because = format!("the server {server} {how} for another {left}");
        Some(trip)
    }

    fn commit(&self, scope: &mut ScopeState, note: &mut Note<'_>) {
        let settings = &note.policy.breaker;
        let (true, ScopeKind::Agent, Some(name)) =
            (settings.enabled, scope.kind, server(note.call))
        else {
            return;
        };
        let server = Digest::of(name.as_bytes());
        if let Phase::HalfOpen { since, started, succeeded } =
            at(scope.circuits.phase(server), settings, note.now)
        {
            note.ticket.trial = Some(since);
            let phase = Phase::HalfOpen { since, started: started.saturating_add(1), succeeded };
            scope.circuits.set(server, phase);
        }
    }

    fn settle(&self, lesson: &mut Lesson<'_>, end: &End<'_>) {
        let settings = &lesson.policy.breaker;
        let (true, ScopeKind::Agent, Some(name)) =
            (settings.enabled, lesson.scope.kind, server(end.call))
        else {
            return;
        };
        let server = Digest::of(name.as_bytes());
        let before = lesson.scope.circuits.phase(server);
        let after = settled(before, settings, end.outcome.status, end.ticket.trial, end.now);
        if after != before {
            lesson.scope.circuits.set(server, after);
        }
    }

    fn gauges(&self, dial: &Dial<'_>) -> Vec<Gauge> {
        let settings = &dial.policy.breaker;
        if !settings.enabled || dial.scope.kind != ScopeKind::Agent {
            return Vec::new();
        }
        let read = |circuit: &Circuit| {
            let mut gauge = match at(circuit.phase, settings, dial.now) {
                Phase::Closed { failures } => {
                    let most = settings.open_after_failures.into();
                    Gauge::count(GuardId::Breaker, "failures_in_a_row", failures.into(), most)
                }
                Phase::Open { since } => {
                    let open = Measure::Time(dial.now.since(since));
                    let cooldown = Measure::Time(settings.cooldown_seconds.millis());
                    Gauge {
                        share: 1.0,
                        ..Gauge::new(GuardId::Breaker, "circuit_open", open, cooldown)
                    }
                }
                Phase::HalfOpen { started, .. } => {
                    let most = settings.half_open_max_calls.into();
                    let what = "circuit_half_open";
                    Gauge {
                        share: 1.0,
                        ..Gauge::count(GuardId::Breaker, what, started.into(), most)
                    }
                }
            };
            gauge.server = Some(circuit.server);
            gauge
        };
        dial.scope.circuits.0.iter().map(read).collect()
    }
}

/// The phase after a call has ended.
fn settled(
    phase: Phase,
    settings: &BreakerSettings,
    status: Status,
    trial: Option<Time>,
    now: Time,
) -> Phase {
    // A trial of an earlier round says nothing about this one.
    let trial = matches!(phase, Phase::HalfOpen { since, .. } if trial == Some(since));
    match phase {
        Phase::Closed { failures } if status.failed() => match failures.saturating_add(1) {
            failures if failures >= settings.open_after_failures => Phase::Open { since: now },
            failures => Phase::Closed { failures },
        },
        Phase::Closed { .. } if status == Status::Ok => Phase::Closed { failures: 0 },
        Phase::HalfOpen { .. } if trial && status.failed() => Phase::Open { since: now },
        Phase::HalfOpen { since, started, succeeded } if trial && status == Status::Ok => {
            match succeeded + 1 {
                all if all >= settings.half_open_max_calls => Phase::Closed { failures: 0 },
                succeeded => Phase::HalfOpen { since, started, succeeded },
            }
        }
        // A trial that was cut off proves nothing: its place is free again.
        Phase::HalfOpen { since, started, succeeded } if trial => {
            Phase::HalfOpen { since, started: started.saturating_sub(1), succeeded }
        }
        other => other,
    }
}
