//! A project: its scope, and the policies that hold in it.

use std::collections::HashMap;
use std::sync::Arc;

use deadstop_core::PolicySet;
use deadstop_store::AlertTarget;
use parking_lot::RwLock;

use super::Scope;
use crate::settings::InForce;

/// A project in use.
pub(crate) struct Project {
    pub(crate) name: String,
    pub(crate) scope: Arc<Scope>,
    policies: RwLock<Policies>,
    /// Where its alerts go.
    pub(crate) targets: RwLock<Arc<Vec<AlertTarget>>>,
    pub(crate) settings: RwLock<Arc<InForce>>,
}

/// The policies of a project: its default, and those of agents that have something of their own.
#[derive(Debug, Clone)]
pub(crate) struct Policies {
    /// For everybody else.
    pub(crate) default: Arc<PolicySet>,
    /// By agent.
    pub(crate) agents: HashMap<String, Arc<PolicySet>>,
}

impl Project {
    pub(crate) fn new(name: &str, scope: Arc<Scope>, default: Arc<PolicySet>) -> Project {
        Project {
            name: name.to_owned(),
            scope,
            policies: RwLock::new(Policies { default, agents: HashMap::new() }),
            targets: RwLock::default(),
            settings: RwLock::default(),
        }
    }

    /// What holds for an agent.
    pub(crate) fn policies(&self, agent: &str) -> Arc<PolicySet> {
        let policies = self.policies.read();
        Arc::clone(policies.agents.get(agent).unwrap_or(&policies.default))
    }

    /// Puts policies into force, from the next decision on.
    pub(crate) fn set_policies(&self, policies: Policies) {
        *self.policies.write() = policies;
    }

    /// Puts settings into force.
    pub(crate) fn set_settings(&self, settings: InForce) {
        *self.settings.write() = Arc::new(settings);
    }

    /// A text without secrets.
    pub(crate) fn redact(&self, text: &str) -> String {
        let settings = Arc::clone(&self.settings.read());
        settings.redactor.redact(text).into_owned()
    }
}
