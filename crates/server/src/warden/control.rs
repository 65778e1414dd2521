//! What the control API asks of the warden: scopes of a project, orders with their audit entries,
//! policies that take effect on the next call.

use std::sync::Arc;

use deadstop_core::ScopeKind;
use deadstop_store::StoreError;

use super::{Event, Order, Policies, Scope, Warden, now, scope};

impl Warden {
    /// Puts policies into force, from the next decision on.
    pub(crate) async fn set_policies(
        &self,
        project: &str,
        policies: Policies,
    ) -> Result<(), StoreError> {
        self.project(project).await?.set_policies(policies);
        Ok(())
    }

    /// Reads where a project's alerts go.
    pub(crate) async fn reload_targets(&self, project: &str) -> Result<(), StoreError> {
        let Some(store) = &self.store else { return Ok(()) };
        let targets = store.targets(project).await?;
        *self.project(project).await?.targets.write() = Arc::new(targets);
        Ok(())
    }

    /// An agent's scope, made if need be.
    pub(crate) async fn agent_in(
        &self,
        project: &str,
        agent: &str,
    ) -> Result<Arc<Scope>, StoreError> {
        let project = self.project(project).await?;
        self.agent(&project, agent).await
    }

    /// A session's scope, made if need be.
    pub(crate) async fn session_in(
        &self,
        project: &str,
        agent: &str,
        session: &str,
    ) -> Result<Arc<Scope>, StoreError> {
        let project = self.project(project).await?;
        let chain = self.chain(project, agent, session, &[]).await?;
        Ok(Arc::clone(chain.innermost()))
    }

    /// An agent's scope, if it is in memory.
    pub(crate) fn live_agent(&self, project: &str, agent: &str) -> Option<Arc<Scope>> {
        self.scopes.lock().get(&scope::key(project, Some(agent), None, &[])).cloned()
    }

    /// A session's scope, if it is in memory.
    pub(crate) fn live_session(
        &self,
        project: &str,
        agent: &str,
        session: &str,
    ) -> Option<Arc<Scope>> {
        self.scopes.lock().get(&scope::key(project, Some(agent), Some(session), &[])).cloned()
    }

    /// Lets an agent, or a whole project, run again: what tripped the guards below it is forgotten,
    /// so that it does not trip them again at once.
    pub(crate) async fn clear(&self, scope: &Arc<Scope>, order: Order<'_>) -> Result<(), String> {
        let agent = (scope.kind() != ScopeKind::Project).then(|| scope.agent());
        for below in self.scopes(&scope.place.project) {
            let theirs = agent.is_none_or(|agent| agent == below.agent());
            if theirs && matches!(below.kind(), ScopeKind::Session | ScopeKind::Nested) {
                below.state.lock().forget();
                self.mark(&below);
            }
        }
        self.order(scope, order, |state, _| {
            // Agents and projects can be cleared, and nothing else gets here.
            let _ = state.clear();
        })
        .await
    }

    /// Tells those who watch a project that something was changed.
    pub(crate) fn tell_change(&self, project: &str, agent: &str, text: String) {
        self.events.tell(Event {
            id: 0,
            at: now(),
            what: "change",
            project: project.to_owned(),
            agent: agent.to_owned(),
            session: String::new(),
            text,
            incident: None,
        });
    }
}
