//! A project: its scope, and the policies that hold in it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use deadstop_core::PolicySet;
use deadstop_protocol::policy_views::{AgentDocument, effective};
use deadstop_protocol::redact::{Pattern, Redactor};
use deadstop_store::{AlertTarget, Kept};
use parking_lot::RwLock;

use super::Scope;
use crate::retention;

/// A project in use.
pub(crate) struct Project {
    pub(crate) name: String,
    pub(crate) scope: Arc<Scope>,
    policies: RwLock<Policies>,
    /// Where its alerts go.
    pub(crate) targets: RwLock<Arc<Vec<AlertTarget>>>,
    pub(crate) settings: RwLock<Arc<Settings>>,
}

/// What a project wants kept, and how.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(crate) capture: Capture,
    /// Days by kind, where they are not the usual ones.
    retention: BTreeMap<String, u64>,
    pub(crate) redactor: Redactor,
}

impl Settings {
    /// How many days a kind is kept.
    pub(crate) fn days(&self, kept: Kept) -> u64 {
        self.retention.get(kept.name()).copied().unwrap_or_else(|| retention::days(kept))
    }
}

/// Which requests and answers are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Capture {
    /// Those that an incident is about.
    #[default]
    Incidents,
    /// All.
    All,
    /// None.
    None,
}

impl Capture {
    pub(crate) const ALL: [Capture; 3] = [Capture::Incidents, Capture::All, Capture::None];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Capture::Incidents => "incidents",
            Capture::All => "all",
            Capture::None => "none",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Capture> {
        Capture::ALL.into_iter().find(|capture| capture.name() == name)
    }
}

struct Policies {
    default: Arc<PolicySet>,
    /// Documents of agents, and what they come to with the default.
    documents: HashMap<String, AgentDocument>,
    agents: HashMap<String, Arc<PolicySet>>,
}

impl Project {
    pub(crate) fn new(name: &str, scope: Arc<Scope>, default: Arc<PolicySet>) -> Project {
        let policies = Policies { default, documents: HashMap::new(), agents: HashMap::new() };
        Project {
            name: name.to_owned(),
            scope,
            policies: RwLock::new(policies),
            targets: RwLock::default(),
            settings: RwLock::default(),
        }
    }

    /// What holds for an agent.
    pub(crate) fn policies(&self, agent: &str) -> Arc<PolicySet> {
        let policies = self.policies.read();
        Arc::clone(policies.agents.get(agent).unwrap_or(&policies.default))
    }

    /// What holds for agents that have no document.
    pub(crate) fn default_policies(&self) -> Arc<PolicySet> {
        Arc::clone(&self.policies.read().default)
    }

    /// Changes the default, for every agent that builds on it.
    pub(crate) fn set_default(&self, default: Arc<PolicySet>) {
        let mut policies = self.policies.write();
        let Policies { documents, agents, .. } = &*policies;
        let built = |name: &String| {
            let document = documents.get(name)?;
            Some((name.clone(), Arc::new(effective(&default, document))))
        };
        let agents: HashMap<_, _> = agents.keys().filter_map(built).collect();
        policies.agents = agents;
        policies.default = default;
    }

    /// Changes one agent's document; an empty one takes it back to the default.
    pub(crate) fn set_agent(&self, agent: &str, document: AgentDocument) {
        let mut policies = self.policies.write();
        if document == AgentDocument::default() {
            policies.documents.remove(agent);
            policies.agents.remove(agent);
            return;
        }
        let built = Arc::new(effective(&policies.default, &document));
        policies.agents.insert(agent.to_owned(), built);
        policies.documents.insert(agent.to_owned(), document);
    }

    /// Takes a setting over that somebody has saved.
    pub(crate) fn take_setting(&self, name: &str, value: &str) -> Result<(), String> {
        let mut settings = self.settings.write();
        let mut new = Settings::clone(&settings);
        new.take(name, value)?;
        *settings = Arc::new(new);
        Ok(())
    }

    /// A text without secrets.
    pub(crate) fn redact(&self, text: &str) -> String {
        let settings = Arc::clone(&self.settings.read());
        settings.redactor.redact(text).into_owned()
    }
}

impl Settings {
    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        let bad = |error: serde_json::Error| error.to_string();
        match name {
            "capture" => {
                let word: String = serde_json::from_str(value).map_err(bad)?;
                let all = Capture::ALL.map(Capture::name).join(", ");
                self.capture = Capture::named(&word).ok_or(format!("one of {all}"))?;
            }
            "retention" => self.retention = serde_json::from_str(value).map_err(bad)?,
            "redaction" => {
                let patterns: Vec<OwnPattern> = serde_json::from_str(value).map_err(bad)?;
                let patterns: Vec<Pattern> = patterns
                    .into_iter()
                    .map(|OwnPattern { name, regex }| Pattern { name, regex })
                    .collect();
                let redactor = Redactor::with_patterns(&patterns);
                self.redactor = redactor.map_err(|error| error.to_string())?;
            }
            _ => return Err(format!("there is no setting `{name}`")),
        }
        Ok(())
    }
}

/// A pattern of the project's own.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnPattern {
    name: String,
    regex: String,
}
