//! Finds scopes: in memory, in the database, or new. While the database is unreachable a scope is
//! provisional, and the policy's fail mode decides what calls may do.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use deadstop_core::{ScopeKind, ScopeState};
use deadstop_store::{SessionState, StoreError, StoredScope};

use crate::conversation::Counted;
use crate::{
    Chain, DEFAULT_PROJECT, Outage, Project, Scope, ScopeId, Tally, Warden, log, now, scope,
};

/// Scopes in memory before idle ones are dropped; they can be read from the database again.
pub(crate) const MOST_SCOPES: usize = 20_000;
/// A scope that was not used for so long may be dropped.
const IDLE_MS: u64 = 60 * 60 * 1000;
/// Shorter times, one after the other, while there are still too many and the database can give each
/// of them back: a million sessions in an hour must not stay in memory for an hour.
const CROWDED_MS: [u64; 2] = [10 * 60 * 1000, 60 * 1000];
/// Interval at which idle scopes are dropped.
const SWEEP_MS: u64 = 10_000;
/// How long a call waits for a scope's row. The first call that waits in vain notices the outage;
/// later calls do not wait.
const LOAD: Duration = Duration::from_secs(3);

/// The state in a row. If the state cannot be read, the row still tells whether the scope was
/// killed.
pub(crate) fn state_of(stored: &StoredScope) -> ScopeState {
    match ScopeState::from_blob(&stored.state) {
        Ok(mut state) => {
            state.turn_to(stored.turns);
            state
        }
        Err(error) => {
            tracing::error!(scope = stored.key, "{error}");
            ScopeState::unread(stored.kind, now(), stored.killed, stored.turns)
        }
    }
}

impl Warden {
    /// A project by its name.
    pub async fn project(&self, name: &str) -> Result<Arc<Project>, StoreError> {
        if let Some(project) = self.projects.read().get(name) {
            return Ok(Arc::clone(project));
        }
        let key = scope::key(name, None, None, &[]);
        let place = ScopeId {
            key,
            project: name.to_owned(),
            kind: ScopeKind::Project,
            agent: String::new(),
            name: name.to_owned(),
        };
        let made = match &self.store {
            Some(store) => self.in_time(store.ensure_project(name, now())).await.map(drop),
            None => Ok(()),
        };
        let scope = self.load(place).await?;
        if let Err(error) = made {
            self.get_by(error)?;
            scope.set_provisional(true);
        }
        let project = Arc::new(Project::new(name, scope, Arc::clone(&self.configured)));
        // Another task may have made it meanwhile: the first one stays.
        let mut projects = self.projects.write();
        let project = Arc::clone(projects.entry(name.to_owned()).or_insert(project));
        drop(projects);
        self.look_after(&project.scope);
        self.note_stray(&project.scope);
        Ok(project)
    }

    /// Whether the project exists. Asking does not create it.
    pub async fn knows_project(&self, name: &str) -> Result<bool, StoreError> {
        if name == DEFAULT_PROJECT || self.projects.read().contains_key(name) {
            return Ok(true);
        }
        let Some(store) = &self.store else { return Ok(false) };
        Ok(store.projects().await?.iter().any(|project| project.name == name))
    }

    /// All projects.
    pub fn projects(&self) -> Vec<Arc<Project>> {
        self.projects.read().values().cloned().collect()
    }

    /// An agent's scope.
    pub async fn agent(&self, project: &Project, agent: &str) -> Result<Arc<Scope>, StoreError> {
        let key = scope::key(&project.name, Some(agent), None, &[]);
        self.scope(
            || ScopeId {
                key: key.clone(),
                project: project.name.clone(),
                kind: ScopeKind::Agent,
                agent: agent.to_owned(),
                name: agent.to_owned(),
            },
            &key,
        )
        .await
    }

    /// The chain of scopes that a call is charged to.
    pub async fn chain(
        &self,
        project: Arc<Project>,
        agent: &str,
        session: &str,
        nested: &[String],
    ) -> Result<Chain, StoreError> {
        let name = project.name.clone();
        log::names(&name, agent, session);
        let of_agent = self.agent(&project, agent).await?;
        self.meet(&of_agent).await;
        let agent_number = of_agent.number();
        let mut chain = Chain::new(project);
        chain.push(of_agent);
        for depth in 0..=nested.len() {
            let key = scope::key(&name, Some(agent), Some(session), &nested[..depth]);
            let place = || ScopeId {
                key: key.clone(),
                project: name.clone(),
                kind: if depth == 0 { ScopeKind::Session } else { ScopeKind::Nested },
                agent: agent.to_owned(),
                name: if depth == 0 { session.to_owned() } else { nested[depth - 1].clone() },
            };
            let scope = self.scope(place, &key).await?;
            self.meet(&scope).await;
            scope.set_agent_number(agent_number);
            chain.push(scope);
        }
        Ok(chain)
    }

    /// A scope by its key: from memory, from the database, or new.
    async fn scope(
        &self,
        place: impl FnOnce() -> ScopeId,
        key: &str,
    ) -> Result<Arc<Scope>, StoreError> {
        if let Some(scope) = self.scopes.lock().get(key) {
            scope.touch(now());
            return Ok(Arc::clone(scope));
        }
        let fresh = self.load(place()).await?;
        let mut scopes = self.scopes.lock();
        if scopes.len() >= MOST_SCOPES {
            self.sweep(&mut scopes);
        }
        // Another task may have made it meanwhile: the first one stays.
        let scope = Arc::clone(scopes.entry(key.to_owned()).or_insert(fresh));
        drop(scopes);
        self.look_after(&scope);
        scope.touch(now());
        self.note_stray(&scope);
        Ok(scope)
    }

    /// Drops idle scopes. Killed scopes stay, with as little memory as possible: while the database
    /// is unreachable, only this memory knows of the kill.
    pub(crate) fn sweep(&self, scopes: &mut HashMap<String, Arc<Scope>>) {
        let now = now();
        if now.0.saturating_sub(self.swept.load(Ordering::Relaxed)) < SWEEP_MS {
            return;
        }
        self.swept.store(now.0, Ordering::Relaxed);
        self.forget_removals(scopes);
        let mut drop_idle = |ms| {
            scopes.retain(|_, scope| {
                Arc::strong_count(scope) > 1 || !scope.idle(now, ms) || scope.bury()
            });
            scopes.len()
        };
        let mut left = drop_idle(IDLE_MS);
        let stored = self.store.is_some() && self.outage.read().is_none();
        for ms in CROWDED_MS {
            if stored && left >= MOST_SCOPES {
                left = drop_idle(ms);
            }
        }
    }

    /// Remembers a scope whose row could not be read, for the writer to read later.
    pub(crate) fn note_stray(&self, scope: &Arc<Scope>) {
        if scope.is_provisional() {
            self.strays.lock().push(Arc::clone(scope));
        }
    }

    /// Reads from the database while a call waits: with a time limit, and not at all during an
    /// outage.
    pub(crate) async fn in_time<T>(
        &self,
        asking: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let away = self.outage.read().as_ref().is_some_and(Outage::is_away);
        if away {
            return Err(StoreError::late());
        }
        tokio::time::timeout(LOAD, asking).await.unwrap_or_else(|_| Err(StoreError::late()))
    }

    /// Goes on without the database if the error is an outage. The policies' fail mode decides what
    /// calls may do.
    pub(crate) fn get_by(&self, error: StoreError) -> Result<(), StoreError> {
        if !error.is_outage() {
            return Err(error);
        }
        self.note_outage(&error);
        Ok(())
    }

    /// Reads a scope or makes it. If the database does not answer, the scope is provisional: orders
    /// must find it, and the fail mode decides whether calls may use it.
    pub(crate) async fn load(&self, place: ScopeId) -> Result<Arc<Scope>, StoreError> {
        // The era is read first: if Redis loses data after that, the era differs and the database is
        // read again.
        let era = self.node().map(|node| node.era(&place.project)).unwrap_or_default();
        let (scope, version) = self.load_alone(place).await?;
        self.share(&scope, version);
        if let Some(cell) = scope.cell().filter(|_| !scope.is_provisional()) {
            cell.asked_in(era);
        }
        Ok(scope)
    }

    /// The same without the shared state; returns the version in the row as well.
    async fn load_alone(&self, place: ScopeId) -> Result<(Arc<Scope>, u64), StoreError> {
        let new = |place: ScopeId| {
            let state = ScopeState::new(place.kind, now());
            Scope::new(place, self.number(), state, Tally::default())
        };
        let Some(store) = &self.store else { return Ok((Arc::new(new(place)), 0)) };
        let reading = async {
            let Some(stored) = store.scope(&place.key).await? else { return Ok(None) };
            let number = if stored.number == 0 { self.number() } else { stored.number };
            let tally = self.tally(&place, number).await?;
            Ok(Some((stored, number, tally)))
        };
        let (stored, number, tally) = match self.in_time(reading).await {
            Ok(Some(read)) => read,
            Ok(None) => return Ok((Arc::new(new(place)), 0)),
            Err(error) => {
                self.get_by(error)?;
                let scope = new(place);
                scope.set_provisional(true);
                return Ok((Arc::new(scope), 0));
            }
        };
        let mut state = state_of(&stored);
        self.revive(&mut state);
        Ok((Arc::new(Scope::new(place, number, state, tally)), stored.version))
    }

    /// Prepares a state from the database: its calls in flight have ended. What projects and agents
    /// have reserved on other nodes is in Redis.
    pub(crate) fn revive(&self, state: &mut ScopeState) {
        let counted = matches!(state.kind(), ScopeKind::Project | ScopeKind::Agent);
        match self.node() {
            Some(_) if counted => state.give_back(state.held()),
            _ => state.recover(),
        }
    }

    pub(crate) async fn tally(&self, place: &ScopeId, number: i64) -> Result<Tally, StoreError> {
        let Some(store) = &self.store else { return Ok(Tally::default()) };
        Ok(match place.kind {
            ScopeKind::Agent => {
                let counters = store.agent(&place.project, &place.name).await?.map(|a| a.counters);
                let counters = counters.unwrap_or_default();
                let (loops, incidents) = (counters.loops, counters.incidents);
                Tally { loops, incidents, ..Tally::default() }
            }
            ScopeKind::Session => match store.session(&place.project, number).await? {
                Some(session) => Tally {
                    over: (session.state == SessionState::Ended).then_some(session.used),
                    loops: session.counters.loops,
                    looped: None,
                    counted: Counted::default(),
                    incidents: session.counters.incidents,
                    tags: session.tags.into_iter().collect(),
                    provider: session.provider,
                    model: session.model,
                    circuit: None,
                },
                None => Tally::default(),
            },
            ScopeKind::Project | ScopeKind::Nested => Tally::default(),
        })
    }
}
