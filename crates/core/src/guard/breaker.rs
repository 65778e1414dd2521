//! *breaker*: leaves a failing server alone for a while, per agent and server.
//!
//! # Trip conditions
//! A tool server's circuit opens after `open_after_failures` failures in a row: errors and faults
//! alike, since a server that answers every call with an error is as useless as one that does not
//! answer. A model provider's circuit is kept per credential and model, and only failures of the
//! provider count (5xx, 429, time-outs, torn streams): one client's wrong key must not shut another
//! client out. While a circuit is open, its calls are blocked; other servers are not affected. Such
//! a block is never a strike.
//!
//! # Recovery conditions
//! After a cool-down the circuit is half-open: `half_open_max_calls` trial calls are let through,
//! counted when they are admitted, not when they return, so that a burst cannot slip in. When that
//! many have succeeded the circuit closes; one failure opens it again and the cool-down starts
//! anew. For a tool server the cool-down is `cooldown_seconds`. For a provider it backs off:
//! [`FIRST_BACKOFF`], doubled with every failed trial, up to `cooldown_seconds`, because most
//! outages of a provider last seconds and every call of the agent needs it. Trials that never
//! return (their node died) free their places after another cool-down.
//!
//! The state belongs to the agent's scope and remembers the [`SERVERS`] used last.
//!
//! # One outage
//! An outage begins when the first circuit of a server opens and is over when all its circuits have
//! closed. All trips of one outage have the same streak, so that they make one incident, however many
//! calls are refused, in however many sessions. A failure after a quiet [`APART`] begins another one.

use serde::{Deserialize, Serialize};

use crate::blame::{Blame, Failure, How};
use crate::call::{Call, Digest, Status};
use crate::gauge::{Dial, Gauge};
use crate::guard::{End, Lesson, Note, Seat, times};
use crate::scope::{ScopeKind, ScopeState};
use crate::settings::{BadSetting, Seconds, in_range, settings};
use crate::trip::{Action, GuardId, Measure, Trip, Wait};
use crate::units::{Millis, Time};

settings! {
    /// When to leave a failing server alone.
    BreakerSettings / RawBreaker {
        /// Whether the breaker works at all.
        enabled: bool = true,
        /// Failures in a row that open the circuit.
        open_after_failures: u32 = 5,
        /// Seconds it stays open; for a model's provider, the longest back-off.
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

/// The first cool-down of a provider's circuit.
const FIRST_BACKOFF: Millis = Millis(2000);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    Closed { failures: u32 },
    Open { since: Time, round: u8 },
    HalfOpen { since: Time, round: u8, started: u32, succeeded: u32 },
}

/// Beyond the cool-down: two failures with so much time between them are two outages.
const APART: Millis = Millis(15 * 60 * 1000);

/// The longest name of a server that an outage keeps.
const LONGEST_NAME: usize = 60;

/// What a circuit is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    Tools,
    Provider,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Circuit {
    /// The server's name; for a provider with the credential and the model.
    key: Digest,
    /// The server's name alone.
    server: Digest,
    kind: Kind,
    phase: Phase,
    /// What was seen of the last failure.
    last: How,
}

impl Circuit {
    /// The circuit of a call that has not failed yet; `None` where no server is known.
    fn of(call: &Call) -> Option<Circuit> {
        let name = server(call)?;
        let (kind, key) = match call {
            Call::Tool(_) => (Kind::Tools, Digest::of(name.as_bytes())),
            Call::Model(call) => {
                let credential = call.credential.map_or(0, |credential| credential.0);
                let key = format!("{name}\0{}\0{credential:x}", call.model);
                (Kind::Provider, Digest::of(key.as_bytes()))
            }
        };
        let phase = Phase::Closed { failures: 0 };
        Some(Circuit { key, server: Digest::of(name.as_bytes()), kind, phase, last: How::Unsaid })
    }

    fn cooldown(&self, settings: &BreakerSettings, round: u8) -> Millis {
        let most = settings.cooldown_seconds.millis();
        match self.kind {
            Kind::Tools => most,
            Kind::Provider => most.min(Millis(FIRST_BACKOFF.0 << round.min(20))),
        }
    }

    /// What a call would meet: the phase after time has done its part.
    fn at(&self, settings: &BreakerSettings, now: Time) -> Phase {
        // A clock that went back must not keep a server away until it has caught up.
        let cooled =
            |since: Time, round| now < since || now.since(since) >= self.cooldown(settings, round);
        let trial = |round| Phase::HalfOpen { since: now, round, started: 0, succeeded: 0 };
        match self.phase {
            Phase::Open { since, round } if cooled(since, round) => trial(round),
            Phase::HalfOpen { since, round, started, .. }
                if started >= settings.half_open_max_calls && cooled(since, round) =>
            {
                trial(round)
            }
            other => other,
        }
    }
}

/// The circuits of one agent, the one used last at the end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Circuits(Vec<Circuit>);

impl Circuits {
    /// The circuit of a call, as it is known.
    fn of(&self, call: &Call) -> Option<Circuit> {
        let fresh = Circuit::of(call)?;
        Some(self.0.iter().find(|known| known.key == fresh.key).copied().unwrap_or(fresh))
    }

    fn set(&mut self, circuit: Circuit) {
        self.0.retain(|known| known.key != circuit.key);
        if self.0.len() == SERVERS {
            self.0.remove(0);
        }
        self.0.push(circuit);
    }
}

/// A server that fails, since its first circuit has opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Outage {
    name: String,
    server: Digest,
    kind: Kind,
    began: Time,
    /// When it last failed.
    last: Time,
}

impl Outage {
    fn is_of(&self, circuit: &Circuit) -> bool {
        (self.server, self.kind) == (circuit.server, circuit.kind)
    }

    /// The number that all its trips share. It fits into a number of JavaScript.
    fn streak(&self) -> u64 {
        let Outage { server, kind, began, .. } = self;
        Digest::of(format!("{:x} {kind:?} {}", server.0, began.0).as_bytes()).0 >> 11
    }
}

/// The servers of one agent that fail, the one that began to last at the end. There are no more than
/// circuits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Outages(Vec<Outage>);

impl Outages {
    fn of(&self, circuit: &Circuit) -> Option<&Outage> {
        self.0.iter().find(|outage| outage.is_of(circuit))
    }

    /// A circuit has changed: an outage begins, goes on, or is over.
    fn follow(&mut self, changed: &Circuit, name: &str, circuits: &Circuits, end: (Time, Millis)) {
        let fails = |circuit: &&Circuit| !matches!(circuit.phase, Phase::Closed { .. });
        self.0.retain(|outage| circuits.0.iter().filter(fails).any(|one| outage.is_of(one)));
        if !matches!(changed.phase, Phase::Open { .. }) {
            return;
        }
        let (now, apart) = end;
        let own = |outage: &&mut Outage| outage.is_of(changed);
        match self.0.iter_mut().find(own).filter(|known| now.since(known.last) <= apart) {
            Some(known) => known.last = now,
            None => {
                self.0.retain(|outage| !outage.is_of(changed));
                let name = name.chars().take(LONGEST_NAME).collect();
                let Circuit { server, kind, .. } = *changed;
                self.0.push(Outage { name, server, kind, began: now, last: now });
            }
        }
    }
}

/// A server that fails, as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// Its name.
    pub server: String,
    /// Whether it is a model's provider; otherwise it has tools.
    pub is_provider: bool,
    /// Since when its calls are refused.
    pub since: Time,
    /// How long calls are refused before some are let through to try it; nothing while it is tried.
    pub left: Millis,
    /// Which of its circuits have failed and not recovered: of a provider one for each credential and model.
    pub circuits: Vec<Digest>,
}

/// The circuit that a call goes through, by its key; `None` where no server is known.
pub fn circuit(call: &Call) -> Option<Digest> {
    Circuit::of(call).map(|circuit| circuit.key)
}

/// For so long after its last failure a server is shown as failing while it is tried.
const SHOWN: Millis = Millis(60 * 1000);

/// The servers of an agent that fail: those whose calls are refused, or were until a moment ago.
pub(crate) fn failing(scope: &ScopeState, settings: &BreakerSettings, now: Time) -> Vec<Failing> {
    let left = |circuit: &Circuit| match circuit.at(settings, now) {
        Phase::Closed { .. } => Millis(0),
        Phase::HalfOpen { started, .. } if started < settings.half_open_max_calls => Millis(0),
        Phase::Open { since, round } | Phase::HalfOpen { since, round, .. } => {
            circuit.cooldown(settings, round) - now.since(since)
        }
    };
    let shown = |outage: &Outage| {
        let fails = |circuit: &&Circuit| {
            outage.is_of(circuit) && !matches!(circuit.phase, Phase::Closed { .. })
        };
        let circuits: Vec<&Circuit> = scope.circuits.0.iter().filter(fails).collect();
        let left = circuits.iter().copied().map(left).max().unwrap_or(Millis(0));
        let recent = now.since(outage.last) < SHOWN;
        (settings.enabled && (recent || left > Millis(0))).then(|| Failing {
            server: outage.name.clone(),
            is_provider: outage.kind == Kind::Provider,
            since: outage.began,
            left,
            circuits: circuits.iter().map(|circuit| circuit.key).collect(),
        })
    };
    scope.outages.0.iter().filter_map(shown).collect()
}

fn server(call: &Call) -> Option<&str> {
    match call {
        Call::Tool(call) => call.server.as_deref(),
        Call::Model(call) => call.server.as_deref(),
    }
}

/// "the server files", "openai (gpt-4o)".
fn name(call: &Call) -> String {
    let server = server(call).unwrap_or_default();
    match call {
        Call::Tool(_) => format!("the server {server}"),
        Call::Model(call) => format!("{server} ({})", call.model),
    }
}

pub(crate) struct Guard;

impl super::Guard for Guard {
    fn admit(&self, seat: &Seat<'_>) -> Option<Trip> {
        let settings = &seat.policy.breaker;
        if !settings.enabled || seat.scope.kind != ScopeKind::Agent {
            return None;
        }
        let circuit = seat.scope.circuits.of(seat.call)?;
        let (since, round, how) = match circuit.at(settings, seat.now) {
            Phase::Closed { .. } => return None,
            Phase::HalfOpen { started, .. } if started < settings.half_open_max_calls => {
                return None;
            }
            Phase::HalfOpen { since, round, .. } => (since, round, "other calls are testing it"),
            Phase::Open { since, round } => (since, round, "calls are refused"),
        };
        let mut trip = seat.trip(GuardId::Breaker, "circuit_breaker_open", settings.action);
        let most = u64::from(settings.open_after_failures);
        // Each round after the first began with a trial call that failed.
        let failures = most + u64::from(round);
        (trip.measured, trip.limit) = (Measure::Count(failures), Measure::Count(most));
        // Whole seconds, as a client is told to wait: less would be too early.
        let left = (circuit.cooldown(settings, round) - seat.now.since(since)).whole_seconds();
        trip.waits = Some(Wait::For(left));
        trip.streak = seat.scope.outages.of(&circuit).map(Outage::streak);
        let (who, failed) = (name(seat.call), times(failures));
        let last = match circuit.last {
            How::Unsaid => String::new(),
            last => format!(" (last failure: {last})"),
        };
        trip.because = format!("{who} failed {failed} in a row{last}; {how} for another {left}");
        Some(trip)
    }

    fn commit(&self, scope: &mut ScopeState, note: &mut Note<'_>) {
        let settings = &note.policy.breaker;
        if !settings.enabled || scope.kind != ScopeKind::Agent {
            return;
        }
        let Some(circuit) = scope.circuits.of(note.call) else { return };
        if let Phase::HalfOpen { since, round, started, succeeded } = circuit.at(settings, note.now)
        {
            note.ticket.trial = Some(since);
            let started = started.saturating_add(1);
            let phase = Phase::HalfOpen { since, round, started, succeeded };
            scope.circuits.set(Circuit { phase, ..circuit });
        }
    }

    fn settle(&self, lesson: &mut Lesson<'_>, end: &End<'_>) {
        let settings = &lesson.policy.breaker;
        if !settings.enabled || lesson.scope.kind != ScopeKind::Agent {
            return;
        }
        let Some(before) = lesson.scope.circuits.of(end.call) else { return };
        let failure = end.outcome.failure(end.call);
        let result = match (before.kind, failure) {
            (_, None) if end.outcome.status == Status::Ok => Shown::Works,
            (_, None) => Shown::Unknown,
            // The server works; it was asked for something that it does not have.
            (Kind::Tools, Some(Failure { blame: Blame::Agent, .. })) => Shown::Works,
            (Kind::Tools, Some(_)) => Shown::Fails,
            (Kind::Provider, Some(failure)) => match failure.blame {
                Blame::Provider => Shown::Fails,
                // It answered, if only with a refusal of this one client's request.
                Blame::Caller | Blame::Tool | Blame::Agent => Shown::Unknown,
            },
        };
        let mut after = before;
        after.phase = settled(before.phase, settings, result, end.ticket.trial, end.now);
        if let (Shown::Fails, Some(failure)) = (result, failure) {
            after.last = failure.how;
        }
        if after != before {
            let ScopeState { circuits, outages, .. } = &mut *lesson.scope;
            circuits.set(after);
            let apart = Millis(settings.cooldown_seconds.millis().0.saturating_add(APART.0));
            let name = server(end.call).unwrap_or_default();
            outages.follow(&after, name, circuits, (end.now, apart));
        }
    }

    fn gauges(&self, dial: &Dial<'_>) -> Vec<Gauge> {
        let settings = &dial.policy.breaker;
        if !settings.enabled || dial.scope.kind != ScopeKind::Agent {
            return Vec::new();
        }
        let read = |circuit: &Circuit| {
            let mut gauge = match circuit.at(settings, dial.now) {
                Phase::Closed { failures } => {
                    let most = settings.open_after_failures.into();
                    Gauge::count(GuardId::Breaker, "failures_in_a_row", failures.into(), most)
                }
                Phase::Open { since, round } => {
                    let open = Measure::Time(dial.now.since(since));
                    let cooldown = Measure::Time(circuit.cooldown(settings, round));
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

/// What a call has shown of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Works,
    Fails,
    Unknown,
}

/// The phase after a call has ended.
fn settled(
    phase: Phase,
    settings: &BreakerSettings,
    result: Shown,
    trial: Option<Time>,
    now: Time,
) -> Phase {
    // A trial of an earlier round says nothing about this one.
    let trial = matches!(phase, Phase::HalfOpen { since, .. } if trial == Some(since));
    match (phase, result) {
        (Phase::Closed { failures }, Shown::Fails) => match failures.saturating_add(1) {
            failures if failures >= settings.open_after_failures => {
                Phase::Open { since: now, round: 0 }
            }
            failures => Phase::Closed { failures },
        },
        (Phase::Closed { .. }, Shown::Works) => Phase::Closed { failures: 0 },
        (Phase::HalfOpen { round, .. }, Shown::Fails) if trial => {
            Phase::Open { since: now, round: round.saturating_add(1) }
        }
        (Phase::HalfOpen { since, round, started, succeeded }, Shown::Works) if trial => {
            match succeeded + 1 {
                all if all >= settings.half_open_max_calls => Phase::Closed { failures: 0 },
                succeeded => Phase::HalfOpen { since, round, started, succeeded },
            }
        }
        // A trial that was cut off proves nothing: its place is free again.
        (Phase::HalfOpen { since, round, started, succeeded }, Shown::Unknown) if trial => {
            let started = started.saturating_sub(1);
            Phase::HalfOpen { since, round, started, succeeded }
        }
        (other, _) => other,
    }
}
