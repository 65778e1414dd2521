//! What the control API asks of the warden: scopes of a project, orders with their audit entries,
//! policies that take effect on the next call.

use std::collections::HashMap;
use std::sync::Arc;

use deadstop_core::{PolicySet, ScopeKind, ScopeState, Time};
use deadstop_store::{AuditEvent, StoreError};
use tokio::sync::broadcast;

use super::{Event, Scope, Warden, scope};

/// The one project that this warden knows.
const PROJECT: &str = "default";

/// The policies of a project: its default, and those of agents that have something of their own.
#[derive(Debug, Clone)]
pub(crate) struct Policies {
    /// For everybody else.
    pub(crate) default: Arc<PolicySet>,
    /// By agent.
    pub(crate) agents: HashMap<String, Arc<PolicySet>>,
}

impl Policies {
    /// The policies in force for an agent.
    pub(crate) fn of(&self, agent: &str) -> &Arc<PolicySet> {
        self.agents.get(agent).unwrap_or(&self.default)
    }
}

impl Warden {
    /// Puts policies into force, from the next decision on.
    pub(crate) fn set_policies(&self, project: &str, policies: Policies) {
        if project == PROJECT {
            *self.policies.write() = Arc::new(policies);
        }
    }

    /// Every scope of a project in memory.
    pub(crate) fn scopes_in(&self, project: &str) -> Vec<Arc<Scope>> {
        if project == PROJECT { self.scopes() } else { Vec::new() }
    }

    /// The project's own scope; nothing for a project that nobody knows.
    pub(crate) fn project_in(&self, project: &str) -> Option<Arc<Scope>> {
        (project == PROJECT).then(|| Arc::clone(self.project()))
    }

    /// An agent's scope, made if need be; nothing in a project that nobody knows.
    pub(crate) async fn agent_in(
        &self,
        project: &str,
        agent: &str,
    ) -> Result<Option<Arc<Scope>>, StoreError> {
        if project != PROJECT {
            return Ok(None);
        }
        self.agent(agent).await.map(Some)
    }

    /// A session's scope, made if need be; nothing in a project that nobody knows.
    pub(crate) async fn session_in(
        &self,
        project: &str,
        agent: &str,
        session: &str,
    ) -> Result<Option<Arc<Scope>>, StoreError> {
        if project != PROJECT {
            return Ok(None);
        }
        let chain = self.chain(agent, session, &[]).await?;
        Ok(Some(Arc::clone(chain.innermost())))
    }

    /// An agent's scope, if it is in memory.
    pub(crate) fn live_agent(&self, project: &str, agent: &str) -> Option<Arc<Scope>> {
        self.live(project, &scope::key(Some(agent), None, &[]))
    }

    /// A session's scope, if it is in memory.
    pub(crate) fn live_session(
        &self,
        project: &str,
        agent: &str,
        session: &str,
    ) -> Option<Arc<Scope>> {
        self.live(project, &scope::key(Some(agent), Some(session), &[]))
    }

    fn live(&self, project: &str, key: &str) -> Option<Arc<Scope>> {
        self.scopes.lock().get(key).filter(|_| project == PROJECT).cloned()
    }

    /// Changes a scope's standing by somebody's word. When it returns, the change and its audit
    /// entry are on disk, both or neither.
    pub(crate) async fn carry_out(
        &self,
        scope: &Arc<Scope>,
        event: AuditEvent,
        change: impl FnOnce(&mut ScopeState, Time),
    ) -> Result<(), String> {
        self.note(event);
        self.order(scope, change).await
    }

    /// Lets an agent, or a whole project, run again: what tripped the guards below it is forgotten,
    /// so that it does not trip them again at once.
    pub(crate) async fn clear(
        &self,
        project: &str,
        scope: &Arc<Scope>,
        event: AuditEvent,
    ) -> Result<(), String> {
        for below in self.scopes_in(project) {
            let theirs = scope.kind == ScopeKind::Project || below.agent == scope.agent;
            if theirs && matches!(below.kind, ScopeKind::Session | ScopeKind::Nested) {
                below.state.lock().forget();
                self.mark(&below);
            }
        }
        self.carry_out(scope, event, |state, _| {
            // Agents and projects can be cleared, and nothing else gets here.
            let _ = state.clear();
        })
        .await
    }

    /// Puts an entry into the audit with the next write.
    pub(crate) fn note(&self, event: AuditEvent) {
        if self.store.is_some() {
            self.audit.lock().push(event);
        }
    }

    /// Events of a project from now on.
    pub(crate) fn watch_in(&self, project: &str) -> Option<broadcast::Receiver<Event>> {
        (project == PROJECT).then(|| self.watch())
    }
}
