//! Removed agents: lists and counts leave them out until they are used again.
//!
//! Removing an agent deletes nothing. Its calls, incidents and audit entries stay, and so does a stop:
//! an agent that was stopped and removed is refused when it calls again. Every node keeps a map of
//! removed agents, which it reads from the database whenever it reads settings again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use deadstop_core::{ScopeKind, Time};
use deadstop_store::{AuditEvent, StoreError};

use super::{Scope, Warden, now, scope};

/// Calls of an agent that was not used for so long do not keep it from being removed: their clients
/// have left without reporting an end.
const ABANDONED_MS: u64 = 15 * 60 * 1000;

/// Why an agent was not removed.
#[derive(Debug)]
pub enum NotRemoved {
    /// No agent of that name was heard of, or it is removed already.
    Unknown,
    /// It has calls in flight, and is not stopped.
    Busy(u64),
    /// What it did could not be written.
    NotDurable(String),
    /// The database does not answer.
    Store(StoreError),
}

impl From<StoreError> for NotRemoved {
    fn from(error: StoreError) -> NotRemoved {
        NotRemoved::Store(error)
    }
}

/// An agent that was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// When: what is used later is listed again.
    pub at: Time,
    /// Whether it is stopped, and stays so.
    pub stopped: bool,
    /// Whether it is paused, and stays so.
    pub paused: bool,
}

impl Warden {
    /// Leaves an agent out of lists and counts, on all nodes, until it is used again.
    pub async fn remove_agent(
        &self,
        project: &str,
        agent: &str,
        audit: &AuditEvent,
    ) -> Result<Removed, NotRemoved> {
        self.catch_up(project).await;
        if !self.knows(project, agent, None).await {
            return Err(NotRemoved::Unknown);
        }
        let Some(store) = &self.store else { return Err(NotRemoved::Unknown) };
        // Before it is looked up, which counts as a use.
        let recent = |scope: &Arc<Scope>| !scope.idle(now(), ABANDONED_MS);
        let recent = self.live_agent(project, agent).as_ref().is_some_and(recent);
        let scope = self.agent_in(project, agent).await?;
        self.meet(&scope).await;
        let (flying, runs) = {
            let state = scope.state();
            (state.ledger().in_flight, state.killed().is_none())
        };
        // The calls of a stopped agent were cut; what is left are tool calls without a result.
        if recent && runs && flying > 0 {
            return Err(NotRemoved::Busy(flying));
        }
        // Its row must be there, with all that was done so far.
        self.mark(&scope);
        self.flush_everywhere().await.map_err(NotRemoved::NotDurable)?;
        let at = now().max(self.time()).max(scope.used());
        let turn = self.reading.lock().await;
        if !store.remove_agent(project, agent, at, Some(audit)).await? {
            return Err(NotRemoved::Unknown);
        }
        self.removed.write().insert(scope.id.key.clone(), at);
        drop(turn);
        self.announce_project(project).await;
        let state = scope.state();
        Ok(Removed { at, stopped: state.killed().is_some(), paused: state.paused().is_some() })
    }

    /// Whether an agent was removed and not used since.
    pub fn is_removed(&self, project: &str, agent: &str) -> bool {
        let key = scope::key(project, Some(agent), None, &[]);
        let removed = self.removed.read().get(&key).copied();
        removed.is_some_and(|at| {
            let scopes = self.scopes.lock();
            scopes.get(&key).is_none_or(|scope| scope.used() <= at)
        })
    }

    /// The agents of a project that were removed and not used since.
    pub fn removed_agents(&self, project: &str) -> HashSet<String> {
        let prefix = format!("{project}\u{1f}");
        let removed = self.removed.read();
        let names: Vec<String> =
            removed.keys().filter_map(|key| Some(key.strip_prefix(&prefix)?.to_owned())).collect();
        drop(removed);
        names.into_iter().filter(|name| self.is_removed(project, name)).collect()
    }

    /// The scopes of a project in memory, without removed agents and what is below them.
    pub fn listed_scopes(&self, project: &str) -> Vec<Arc<Scope>> {
        let mut scopes = self.scopes(project);
        let removed = self.removed_agents(project);
        if !removed.is_empty() {
            let kept = |scope: &Arc<Scope>| {
                scope.kind() == ScopeKind::Project || !removed.contains(scope.agent())
            };
            scopes.retain(kept);
        }
        scopes
    }

    /// Reads again which agents are removed. The caller holds `reading`, or starts the warden.
    pub(super) async fn reread_removed(&self) -> Result<(), StoreError> {
        let Some(store) = &self.store else { return Ok(()) };
        let stored = store.removed_agents().await?;
        let key = |project: &str, agent: &str| scope::key(project, Some(agent), None, &[]);
        let removed = stored.iter().map(|agent| (key(&agent.project, &agent.name), agent.at));
        *self.removed.write() = removed.collect();
        Ok(())
    }

    /// Forgets removals of agents that were used since, before their scopes leave memory.
    pub(super) fn forget_removals(&self, scopes: &HashMap<String, Arc<Scope>>) {
        let still =
            |key: &String, at: &Time| scopes.get(key).is_none_or(|scope| scope.used() <= *at);
        self.removed.write().retain(|key, at| still(key, at));
    }
}
