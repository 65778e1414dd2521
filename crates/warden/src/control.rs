//! What the control API asks of the warden: scopes of a project, orders with their audit entries,
//! policies that take effect on the next call.

use std::sync::Arc;

use deadstop_core::{ProviderQuota, ScopeKind, ScopeState, Time};
use deadstop_store::{AgentFilter, Batch, Paging, StoreError};

use super::record::Exports;
use super::{Event, Message, Order, Policies, Scope, Warden, metrics, now, scope, writer};

/// A session that was not used for so long cannot be continued.
const REMEMBERED_MS: u64 = 7 * 24 * 3600 * 1000;

impl Warden {
    /// Puts policies into force from the next decision on.
    pub async fn set_policies(&self, project: &str, policies: Policies) -> Result<(), StoreError> {
        self.project(project).await?.set_policies(policies);
        Ok(())
    }

    /// Reads the alert targets of a project again.
    pub async fn reload_targets(&self, project: &str) -> Result<(), StoreError> {
        let Some(store) = &self.store else { return Ok(()) };
        let targets = store.targets(project).await?;
        *self.project(project).await?.targets.write() = Arc::new(targets);
        Ok(())
    }

    /// Tells all nodes that a project was changed, and waits until they have applied it.
    pub async fn announce_project(&self, project: &str) {
        if self.node().is_some() {
            // A read that was under way may have seen the old values.
            self.read_again(Some(project.to_owned())).await;
        }
        self.announce(Message::Project { name: project.to_owned() }).await;
    }

    /// An agent's scope; created if it does not exist.
    pub async fn agent_in(&self, project: &str, agent: &str) -> Result<Arc<Scope>, StoreError> {
        let project = self.project(project).await?;
        self.agent(&project, agent).await
    }

    /// A session's scope; created if it does not exist.
    pub async fn session_in(
        &self,
        project: &str,
        agent: &str,
        session: &str,
    ) -> Result<Arc<Scope>, StoreError> {
        let project = self.project(project).await?;
        let chain = self.chain(project, agent, session, &[]).await?;
        Ok(Arc::clone(chain.innermost()))
    }

    /// Whether an agent, or a session of it, was ever heard of, here or on another node, and the agent
    /// was not removed. While Redis or
    /// the database cannot be asked the answer is yes: an operator's kill must not wait for them.
    pub async fn knows(&self, project: &str, agent: &str, session: Option<&str>) -> bool {
        let key = scope::key(project, Some(agent), session, &[]);
        let live = || self.scopes.lock().contains_key(&key) && !self.is_removed(project, agent);
        if live() {
            return true;
        }
        self.catch_up(project).await;
        if live() || self.unreachable().is_some() {
            return true;
        }
        if self.is_removed(project, agent) {
            return false;
        }
        let Some(store) = &self.store else { return false };
        let stored = self.in_time(async {
            let agent = match session {
                Some(_) => None,
                None => store.agent(project, agent).await?,
            };
            Ok(agent.is_some() || store.scope(&key).await?.is_some())
        });
        stored.await.unwrap_or(true)
    }

    /// Names of a project's agents: those in memory, and up to 200 from the database.
    pub async fn agent_names(&self, project: &str) -> Vec<String> {
        let mut live = self.listed_scopes(project);
        live.retain(|scope| scope.kind() == ScopeKind::Agent);
        let mut names: Vec<String> = live.iter().map(|scope| scope.name().to_owned()).collect();
        if let Some(store) = &self.store {
            let (all, paging) = (AgentFilter::default(), Paging { limit: 200, cursor: None });
            let listed = self.in_time(store.agents(project, &all, &paging)).await;
            names.extend(listed.into_iter().flat_map(|page| page.items).map(|agent| agent.name));
        }
        names
    }

    /// An agent's scope, if it is in memory.
    pub fn live_agent(&self, project: &str, agent: &str) -> Option<Arc<Scope>> {
        self.scopes.lock().get(&scope::key(project, Some(agent), None, &[])).cloned()
    }

    /// The windows that providers have reported to agents in memory, of all projects.
    pub fn quotas(&self) -> Vec<ProviderQuota> {
        let agents: Vec<Arc<Scope>> = {
            let scopes = self.scopes.lock();
            scopes.values().filter(|scope| scope.kind() == ScopeKind::Agent).cloned().collect()
        };
        let now = self.time();
        agents.iter().flat_map(|agent| agent.state().quotas(now)).collect()
    }

    /// All metrics as text, with the agents and models of a project.
    pub fn metrics_text(&self, project: &str, format: metrics::Format) -> String {
        let quotas = self.quotas();
        self.metrics.text(&self.seen(&quotas, Some(project)), format)
    }

    /// All metrics, with the agents and models of all projects.
    pub fn metrics_families(&self) -> Vec<metrics::family::Family> {
        let quotas = self.quotas();
        self.metrics.families(&self.seen(&quotas, None))
    }

    fn seen<'a>(&self, quotas: &'a [ProviderQuota], project: Option<&'a str>) -> metrics::Seen<'a> {
        self.metrics.queue_depth(self.queue_depth());
        let waiting = |exports: &Exports| exports.queue.max_capacity() - exports.queue.capacity();
        metrics::Seen {
            quotas,
            project,
            exports: self.exports.get().map_or(0, waiting),
            queue_limit: writer::MOST,
            shared: self.node().is_some(),
        }
    }

    /// A session's scope, if it is in memory.
    pub fn live_session(&self, project: &str, agent: &str, session: &str) -> Option<Arc<Scope>> {
        self.scopes.lock().get(&scope::key(project, Some(agent), Some(session), &[])).cloned()
    }

    /// Clears an agent or a whole project. The detectors of its sessions are emptied, so that they
    /// do not trip again at once.
    pub async fn clear(&self, scope: &Arc<Scope>, order: Order<'_>) -> Result<(), String> {
        let agent = (scope.kind() != ScopeKind::Project).then(|| scope.agent());
        let project = scope.id.project.clone();
        self.forget_sessions(&project, agent);
        self.announce(Message::Forget { project, agent: agent.map(str::to_owned) }).await;
        if let Some(agent) = agent {
            let stored = self.forget_stored(&scope.id.project, agent).await;
            stored.map_err(|error| error.to_string())?;
        }
        self.order(scope, order, |state, _| {
            // Clearing fails only for sessions, and no caller passes one.
            let _ = state.clear();
        })
        .await
    }

    /// Empties the detectors of an agent's sessions that are in the database only. In a cluster any
    /// node may have one of them in use, so each node empties those that it knows.
    async fn forget_stored(&self, project: &str, agent: &str) -> Result<(), StoreError> {
        let Some(store) = self.store.as_ref().filter(|_| self.node().is_none()) else {
            return Ok(());
        };
        let since = Time(now().0.saturating_sub(REMEMBERED_MS));
        let mut batch = Batch::default();
        for mut stored in store.scopes_of_agent(project, agent, since).await? {
            let below = matches!(stored.kind, ScopeKind::Session | ScopeKind::Nested);
            if !below || self.scopes.lock().contains_key(&stored.key) {
                continue;
            }
            let Ok(mut state) = ScopeState::from_blob(&stored.state) else { continue };
            state.forget();
            stored.state = state.to_blob();
            batch.scopes.push(stored);
        }
        store.write(&batch).await
    }

    /// Shows watchers of a project that something was changed.
    pub fn tell_change(&self, project: &str, agent: &str, text: String) {
        self.spread(Event::new("change", project, agent, "", text));
    }
}
