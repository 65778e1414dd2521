//! *killed* and *paused*: what a scope's sticky standing says, before anything else is looked at.
//!
//! **Catches** every call below a scope that was ended or held. **Lets pass** nothing there, except
//! that calls already running may finish when a limit, rather than a stop, ended the scope.
//! **Trips** at once. **Recovers** never for a session; for an agent or a project when an operator
//! clears it; for a hold when an operator resumes it.

use crate::guard::Seat;
use crate::scope::ScopeKind;
use crate::trip::{Action, GuardId, Trip};

/// Refuses a new call in a scope that is dead or held.
pub(crate) fn admit(seat: &Seat<'_>) -> Option<Trip> {
    killed(seat).or_else(|| paused(seat))
}

/// Cuts a running call in a scope that was stopped.
pub(crate) fn progress(seat: &Seat<'_>) -> Option<Trip> {
    killed(seat).filter(|trip| !trip.drains)
}

fn killed(seat: &Seat<'_>) -> Option<Trip> {
    let kill = seat.scope.kill.as_ref()?;
    let reason = match (seat.scope.kind, kill.guard) {
        (ScopeKind::Session, Some(guard)) => guard.refusal(),
        (ScopeKind::Session, None) => "session_killed",
        (ScopeKind::Project, _) => "project_killed",
        (ScopeKind::Agent, _) => "agent_killed",
        (ScopeKind::Nested, _) => "scope_killed",
    };
    let mut trip = seat.trip(GuardId::Killed, reason, Action::Terminate);
    trip.drains = kill.drains;
    trip.because = match kill.guard {
        Some(guard) => format!(
            "{} was ended {} ago by {guard}: {}",
            seat.who(),
            seat.now.since(kill.at),
            kill.because
        ),
        None => format!(
            "{} was killed {} ago by {}: {}",
            seat.who(),
            seat.now.since(kill.at),
            kill.by,
            kill.because
        ),
    };
    Some(trip)
}

fn paused(seat: &Seat<'_>) -> Option<Trip> {
    let pause = seat.scope.pause.as_ref()?;
    let mut trip = seat.trip(GuardId::Paused, "paused", Action::Block);
    trip.because = format!("{} is held by {}: {}", seat.who(), pause.by, pause.because);
    Some(trip)
}
