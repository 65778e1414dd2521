//! What a node reads before its first call, so that it is known while the database is unreachable.

use std::collections::BTreeSet;
use std::sync::Arc;

use deadstop_core::{ScopeKind, ScopeState, Time};
use deadstop_store::StoreError;

use crate::settings::Settings;
use crate::{Scope, ScopeId, Warden, prices};

impl Warden {
    /// Reads what must be known even if the database becomes unreachable: alert targets, settings,
    /// and killed scopes. Policies come from the API, which reads their documents.
    pub(crate) async fn remember(&self) -> Result<(), StoreError> {
        let Some(store) = &self.store else { return Ok(()) };
        for project in store.projects().await? {
            self.project(&project.name).await?;
        }
        for target in store.all_targets().await? {
            let project = self.project(&target.project).await?;
            let mut targets = project.targets.write();
            Arc::make_mut(&mut targets).push(target);
        }
        for project in self.projects() {
            self.reload_mutes(&project.name).await?;
        }
        self.reread_tools().await?;
        self.reread_settings().await?;
        for kind in [ScopeKind::Agent, ScopeKind::Session, ScopeKind::Nested] {
            for stored in store.scopes(kind, Time(u64::MAX >> 1)).await? {
                let place = ScopeId {
                    key: stored.key.clone(),
                    project: stored.project.clone(),
                    kind,
                    agent: stored.agent.clone(),
                    name: stored.name.clone(),
                };
                let Ok(mut state) = ScopeState::from_blob(&stored.state) else { continue };
                self.revive(&mut state);
                let tally = self.tally(&place, stored.number).await?;
                let scope = Arc::new(Scope::new(place, stored.number, state, tally));
                self.share(&scope, stored.version);
                self.look_after(&scope);
                scope.touch(stored.updated);
                self.scopes.lock().insert(stored.key, scope);
            }
        }
        Ok(())
    }

    /// Reads the settings and prices of every project, and which agents were removed.
    pub(crate) async fn reread_settings(&self) -> Result<(), StoreError> {
        let Some(store) = &self.store else { return Ok(()) };
        self.reread_removed().await?;
        let settings = store.settings().await?;
        let mut names: BTreeSet<String> = settings.iter().map(|s| s.project.clone()).collect();
        names.extend(self.projects().iter().map(|project| project.name.clone()));
        for name in names {
            let own = settings.iter().filter(|setting| setting.project == name);
            // Also for a project that has none any more.
            self.project(&name).await?.set_prices(prices::in_force(own));
        }
        let kept = |setting: &&deadstop_store::Setting| setting.name == crate::settings::NAME;
        for setting in settings.iter().filter(kept) {
            let project = self.project(&setting.project).await?;
            let read: Result<Settings, _> = serde_json::from_str(&setting.value);
            let read = read.map_err(|error| error.to_string());
            match read.and_then(|read| read.in_force().map_err(|faults| format!("{faults:?}"))) {
                Ok(settings) => project.set_settings(settings),
                Err(error) => {
                    tracing::error!(project = setting.project, "bad settings: {error}");
                }
            }
        }
        Ok(())
    }
}
