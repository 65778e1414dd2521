//! A project: its scope, and the policies that hold in it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use deadstop_core::{Call, Digest, PolicySet};
use deadstop_store::AlertTarget;
use parking_lot::RwLock;

use super::{Scope, now};
use crate::fingerprint::Mutes;
use crate::hourly::Hourly;
use crate::settings::{Capture, InForce};
use deadstop_protocol::prices::Prices;

/// A project in use.
pub struct Project {
    /// Its name.
    pub name: String,
    /// Its scope, the root of every chain.
    pub scope: Arc<Scope>,
    policies: RwLock<Policies>,
    /// Where its alerts go.
    pub targets: RwLock<Arc<Vec<AlertTarget>>>,
    /// Fingerprints of incidents that send no alerts.
    pub(crate) mutes: RwLock<Arc<Mutes>>,
    /// Which texts are kept, and for how long.
    pub settings: RwLock<Arc<InForce>>,
    prices: RwLock<Arc<Prices>>,
    /// Models without a price, and providers whose answers cannot be read, that the log has named.
    unpriced: Hourly,
    unread: Hourly,
    /// The time up to which this node has read which scopes other nodes have used.
    pub caught_up: AtomicU64,
}

/// The policies of a project: the default, and those of agents that have their own.
#[derive(Debug, Clone)]
pub struct Policies {
    /// For all other agents.
    pub default: Arc<PolicySet>,
    /// By agent.
    pub agents: HashMap<String, Arc<PolicySet>>,
}

impl Project {
    /// A project whose policies are the defaults.
    pub fn new(name: &str, scope: Arc<Scope>, default: Arc<PolicySet>) -> Project {
        Project {
            name: name.to_owned(),
            scope,
            policies: RwLock::new(Policies { default, agents: HashMap::new() }),
            targets: RwLock::default(),
            mutes: RwLock::default(),
            settings: RwLock::default(),
            prices: RwLock::default(),
            unpriced: Hourly::default(),
            unread: Hourly::default(),
            caught_up: AtomicU64::new(0),
        }
    }

    /// The policies of an agent.
    pub fn policies(&self, agent: &str) -> Arc<PolicySet> {
        let policies = self.policies.read();
        Arc::clone(policies.agents.get(agent).unwrap_or(&policies.default))
    }

    /// Puts policies into force, from the next decision on.
    pub fn set_policies(&self, policies: Policies) {
        *self.policies.write() = policies;
    }

    /// Puts settings into force.
    pub fn set_settings(&self, settings: InForce) {
        *self.settings.write() = Arc::new(settings);
    }

    /// The model prices of this project.
    pub fn prices(&self) -> Arc<Prices> {
        Arc::clone(&self.prices.read())
    }

    /// Whether the log is to say now that a model's price is not known: once an hour.
    pub fn warns_of_price(&self, model: &str) -> bool {
        self.unpriced.is_due(model, now())
    }

    /// Whether the log is to say now that a provider's answer was not read: once an hour.
    pub fn warns_of_unread(&self, provider: &str) -> bool {
        self.unread.is_due(provider, now())
    }

    /// Puts prices into force.
    pub fn set_prices(&self, prices: Prices) {
        *self.prices.write() = Arc::new(prices);
    }

    /// A name without secrets. Names that differ still differ, so that guards tell them apart.
    pub fn redact_name(&self, name: &str) -> String {
        self.renamed(name).unwrap_or_else(|| name.to_owned())
    }

    /// The same; `None` for a name without secrets.
    fn renamed(&self, name: &str) -> Option<String> {
        let settings = Arc::clone(&self.settings.read());
        let rest = settings.plain.redact(&settings.redactor, name)?;
        Some(format!("{rest}~{:08x}", Digest::of(name.as_bytes()).0 as u32))
    }

    /// A call with redacted names, because they become part of states, sentences and rows.
    /// Arguments stay unchanged, because access rules read them; they are never stored.
    pub fn redact_call(&self, mut call: Call) -> Call {
        let named = |name: &mut String| {
            if let Some(redacted) = self.renamed(name) {
                *name = redacted;
            }
        };
        match &mut call {
            Call::Model(call) => {
                named(&mut call.model);
                call.server.iter_mut().for_each(named);
            }
            Call::Tool(call) => {
                named(&mut call.name);
                call.server.iter_mut().for_each(named);
                for deed in &mut call.harms {
                    named(&mut deed.verb);
                    named(&mut deed.target);
                }
            }
        }
        call
    }

    /// A trip's reason, redacted. A chant is quoted starting at any of its words. The word that
    /// announces a secret may then be at the end of the quote and the secret at its start, so the
    /// check reads the quote twice in a row.
    pub fn redact_reason(&self, because: &str) -> String {
        if let Some((said, quote)) = because.split_once(": \"") {
            let round = quote.trim_end_matches('"');
            let round = format!("{round} {round}");
            if self.redact(&round) != round {
                return said.to_owned();
            }
        }
        // A text that is cut within a word may be cut within a secret.
        match because.strip_suffix('…').and_then(|cut| cut.rsplit_once(' ')) {
            Some((whole, _)) => self.redact(whole) + "…",
            None => self.redact(because),
        }
    }

    /// Whether texts of requests and answers are kept at all.
    pub fn keeps_texts(&self) -> bool {
        self.settings.read().capture != Capture::None
    }

    /// The beginning of a text without secrets.
    pub fn redact_start(&self, text: &str, most: usize) -> String {
        let settings = Arc::clone(&self.settings.read());
        settings.redactor.redact_start(text, most)
    }

    /// A text without secrets.
    pub fn redact(&self, text: &str) -> String {
        let settings = Arc::clone(&self.settings.read());
        settings.redactor.redact(text).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ScopeId, Tally};
    use deadstop_core::{Harm, Preset, ScopeKind, ScopeState, Time, ToolCall};

    const KEY: &str = "sk-proj-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0";

    fn project() -> Project {
        let place = ScopeId {
            key: "p".into(),
            project: "p".into(),
            kind: ScopeKind::Project,
            agent: String::new(),
            name: "p".into(),
        };
        let state = ScopeState::new(ScopeKind::Project, Time(0));
        let scope = Arc::new(Scope::new(place, 1, state, Tally::default()));
        Project::new("p", scope, Arc::new(Preset::Balanced.policies()))
    }

    #[test]
    fn names_lose_their_secrets_and_stay_apart() {
        let project = project();
        assert_eq!(project.redact_name("delete_file"), "delete_file");
        let one = project.redact_name(&format!("m-{KEY}"));
        assert!(one.starts_with("m-[redacted:openai-key]~"), "{one}");
        assert_ne!(one, project.redact_name(&format!("m-{KEY}X")));
        let deed = Harm::destroys("rm", format!("path={KEY}"));
        let tool = ToolCall { name: KEY.into(), harms: vec![deed], ..ToolCall::default() };
        let call = project.redact_call(Call::Tool(tool));
        assert!(!format!("{call:?}").contains("a1B2"), "{call:?}");
    }

    #[test]
    fn reasons_lose_their_secrets() {
        let project = project();
        for (because, expected) in [
            ("5 calls in a row (limit 3)".to_owned(), "5 calls in a row (limit 3)"),
            (format!("rm on {KEY} 3 times"), "rm on [redacted:openai-key] 3 times"),
            // A quote that starts with a secret and ends with the words that announce it.
            ("it says the same: \"hunter2 my password is\"".to_owned(), "it says the same"),
            ("it says the same: \"I try again\"".to_owned(), "it says the same: \"I try again\""),
            // Cut in the middle of a key.
            ("rm on sk-proj-a1B2c…".to_owned(), "rm on…"),
        ] {
            assert_eq!(project.redact_reason(&because), expected);
        }
    }
}
