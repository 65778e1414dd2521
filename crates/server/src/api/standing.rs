//! How a session stands: the one definition, for lists, Now, `status` and a session's page.
//!
//! In this order, the first that holds: stopped (by itself, its agent or its project), finished,
//! paused, waiting for a person's approval, idle, running.

use std::collections::HashSet;
use std::sync::Arc;

use deadstop_core::{Kill, Time};
use deadstop_store::{SessionState, StoredSession};
use deadstop_warden::{Approval, Scope};
use serde::Serialize;
use utoipa::ToSchema;

use super::App;

/// A session that did nothing for so long is idle.
pub(crate) const IDLE_MS: u64 = 15 * 60 * 1000;

/// How a session, an agent or a project stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ScopeStanding)]
pub(crate) enum Standing {
    /// Its calls go through, and it made one in the last 15 minutes or has one that runs.
    Running,
    /// A call of it waits for a person's approval.
    WaitingForApproval,
    /// Its next call is held, by itself or with what is above it.
    Paused,
    /// It may go on and did nothing for 15 minutes.
    Idle,
    /// Its host said that it is over.
    Finished,
    /// A guard ended it, or what is above it.
    StoppedByGuard,
    /// A person ended it, or what is above it.
    StoppedByPerson,
}

impl Standing {
    /// Whether its calls are refused for good.
    pub(crate) fn is_stopped(self) -> bool {
        matches!(self, Standing::StoppedByGuard | Standing::StoppedByPerson)
    }

    /// A scope in memory, by itself.
    pub(crate) fn live(scope: &Scope, now: Time) -> Standing {
        let state = scope.state();
        match (state.killed(), state.paused()) {
            (Some(kill), _) => Standing::stopped(kill),
            (None, Some(_)) => Standing::Paused,
            // Calls that never told how they ended do not keep a session from being over.
            (None, None) if scope.finished() => Standing::Finished,
            (None, None) if state.ledger().in_flight > 0 => Standing::Running,
            (None, None) => Standing::since(scope.used(), now),
        }
    }

    /// A session as it is stored. A stop with an incident was a guard's.
    pub(crate) fn stored(session: &StoredSession, now: Time) -> Standing {
        match session.state {
            SessionState::Killed if session.counters.incidents > 0 => Standing::StoppedByGuard,
            SessionState::Killed => Standing::StoppedByPerson,
            SessionState::Ended => Standing::Finished,
            SessionState::Paused => Standing::Paused,
            SessionState::Running => Standing::since(session.used, now),
        }
    }

    /// The same, given how its agent and its project stand, and whether a call of it waits for
    /// approval.
    pub(crate) fn under(self, above: &[Standing], waits: Waits) -> Standing {
        if self.is_stopped() {
            return self;
        }
        if let Some(stopped) = above.iter().find(|above| above.is_stopped()) {
            return *stopped;
        }
        match self {
            Standing::Finished => self,
            _ if self == Standing::Paused || above.contains(&Standing::Paused) => Standing::Paused,
            _ if waits == Waits::Yes => Standing::WaitingForApproval,
            _ => self,
        }
    }

    fn stopped(kill: &Kill) -> Standing {
        match kill.guard {
            Some(_) => Standing::StoppedByGuard,
            None => Standing::StoppedByPerson,
        }
    }

    fn since(used: Time, now: Time) -> Standing {
        match used.0.saturating_add(IDLE_MS) < now.0 {
            true => Standing::Idle,
            false => Standing::Running,
        }
    }
}

/// Whether a call of a session waits for a person's approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    Yes,
    No,
}

/// The sessions of a project in which a call waits for approval.
pub(crate) struct Waiting(HashSet<(String, String)>);

impl Waiting {
    pub(crate) fn of(app: &App, project: &str, now: Time) -> Waiting {
        let all = app.warden.approvals.waiting(project, now);
        let of = |approval: &Arc<Approval>| (approval.agent.clone(), approval.session.clone());
        Waiting(all.iter().map(of).collect())
    }

    /// Whether one of a session does.
    pub(crate) fn waits(&self, agent: &str, session: &str) -> Waits {
        match self.0.contains(&(agent.to_owned(), session.to_owned())) {
            true => Waits::Yes,
            false => Waits::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Standing::*;
    use super::*;

    #[test]
    fn the_first_that_holds_counts() {
        for (own, above, waits, expected) in [
            (Running, [Running, Idle], Waits::No, Running),
            (Idle, [Running, Running], Waits::Yes, WaitingForApproval),
            (Idle, [Running, Running], Waits::No, Idle),
            (Running, [Running, Paused], Waits::Yes, Paused),
            (Paused, [Running, Running], Waits::Yes, Paused),
            (Finished, [Paused, Running], Waits::Yes, Finished),
            (Finished, [Running, StoppedByPerson], Waits::No, StoppedByPerson),
            (StoppedByGuard, [StoppedByPerson, Paused], Waits::Yes, StoppedByGuard),
            (Paused, [StoppedByPerson, StoppedByGuard], Waits::No, StoppedByPerson),
        ] {
            assert_eq!(own.under(&above, waits), expected, "{own:?} under {above:?}, {waits:?}");
        }
    }

    #[test]
    fn idle_begins_after_a_quarter_of_an_hour() {
        assert_eq!(Standing::since(Time(0), Time(IDLE_MS)), Running);
        assert_eq!(Standing::since(Time(0), Time(IDLE_MS + 1)), Idle);
    }
}
