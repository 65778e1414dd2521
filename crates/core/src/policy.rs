//! A policy: the settings of all guards for one scope, and the presets to start from.
//!
//! What a person typed is a [`RawPolicy`]; only [`RawPolicy::resolve`] makes valid policies of it,
//! one for each kind of scope, so that nothing behind this border checks a setting again.

mod raw;
mod table;

use serde::{Deserialize, Serialize};

pub use raw::{IDLE, RawSessionLimits};
pub use table::{Policy, RawPolicy};

use crate::guard::access::{AccessSettings, Pin};
use crate::guard::breaker::BreakerSettings;
use crate::guard::destructive::DestructiveSettings;
use crate::guard::harm::HarmSettings;
use crate::guard::loops::LoopSettings;
use crate::guard::strikes::StrikeSettings;
use crate::guard::text_loop::TextLoopSettings;
use crate::ladder::Rung;
use crate::scope::ScopeKind;
use crate::settings::{BadSetting, Seconds, in_range};
use crate::trip::Action;

/// Whether verdicts are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// They are.
    #[default]
    Enforce,
    /// They are recorded as warnings, and everything passes but what a person has killed.
    #[serde(alias = "shadow")]
    LogOnly,
}

/// What happens to calls while what must last cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailMode {
    /// They go on, judged by what is known; a known kill is honoured always.
    #[default]
    Open,
    /// They are refused until it can be written again.
    Closed,
}

/// How long a call waits for a person, by default.
pub(crate) const ASK_TIMEOUT: Seconds = Seconds(300);

/// Calls of an agent that a node lets pass while it cannot reach the shared state, by default.
pub(crate) const OFFLINE_CALLS: u64 = 1000;

/// Ready-made policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// Every detector is on and only warns.
    Observe,
    /// Loops are steered, then blocked, then ended; destruction and limits stop.
    #[default]
    Balanced,
    /// Loops are ended sooner.
    Strict,
}

impl Preset {
    /// All of them, mildest first.
    pub const ALL: [Preset; 3] = [Preset::Observe, Preset::Balanced, Preset::Strict];

    /// The name used in policies and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Observe => "observe",
            Preset::Balanced => "balanced",
            Preset::Strict => "strict",
        }
    }

    /// The preset of this name.
    pub fn named(name: &str) -> Option<Preset> {
        Preset::ALL.into_iter().find(|preset| preset.name() == name)
    }

    /// Its policies.
    pub fn policies(self) -> PolicySet {
        let session = match self {
            Preset::Observe => Policy::observe(),
            Preset::Balanced => Policy::balanced(),
            Preset::Strict => Policy::strict(),
        };
        let agent = match self {
            Preset::Observe => {
                let mut agent = Policy {
                    destructive: across_sessions(Action::Warn),
                    loops: spread(Rung::Off, Rung::Off),
                    ..breaking()
                };
                agent.warn_only();
                agent
            }
            Preset::Balanced => Policy {
                destructive: spread_over_sessions(),
                loops: spread(Rung::Off, Rung::Off),
                ..breaking()
            },
            Preset::Strict => Policy {
                destructive: across_sessions(Action::Terminate),
                loops: spread(Rung::At(10), Rung::At(20)),
                ..breaking()
            },
        };
        PolicySet { project: Policy::none(), agent, nested: session.inside(), session }
    }
}

/// Serious deletions of one agent within a minute, over all its sessions and their people.
const SPREAD_DELETES: u32 = 30;

/// One agent that destroys the same thing in session after session.
fn across_sessions(action: Action) -> DestructiveSettings {
    DestructiveSettings {
        enabled: true,
        max_deletes: SPREAD_DELETES,
        max_same_target: 5,
        action,
        ..DestructiveSettings::default()
    }
}

/// One agent that deletes a little in each of many sessions. Only the call is refused, and only after
/// many: the agent's other sessions may be other people's, who each may delete something.
fn spread_over_sessions() -> DestructiveSettings {
    DestructiveSettings {
        enabled: true,
        max_deletes: SPREAD_DELETES,
        max_same_target: 5,
        action: Action::Block,
        ..DestructiveSettings::default()
    }
}

/// One agent that fails the same way in session after session.
fn spread(block_at: Rung, end_at: Rung) -> LoopSettings {
    LoopSettings {
        enabled: true,
        steer_at: Rung::At(5),
        block_at,
        end_at,
        ..LoopSettings::default()
    }
}

fn breaking() -> Policy {
    Policy { breaker: BreakerSettings::default(), ..Policy::none() }
}

impl Policy {
    /// No limit and no detector.
    pub fn none() -> Policy {
        let mut policy = Policy::as_defined();
        policy.breaker.enabled = false;
        policy
    }

    /// A session under the defaults of the seed pages.
    ///
    /// ```
    /// use deadstop_core::{Policy, Rung};
    /// let policy = Policy::balanced();
    /// assert_eq!(policy.loops.steer_at, Rung::At(3));
    /// assert_eq!((policy.loops.block_at, policy.loops.end_at), (Rung::At(5), Rung::At(10)));
    /// assert_eq!(policy.destructive.max_deletes, 3);
    /// ```
    pub fn balanced() -> Policy {
        Policy {
            access: AccessSettings { pin_tools: Pin::Warn, ..AccessSettings::default() },
            loops: LoopSettings {
                enabled: true,
                steer_at: Rung::At(3),
                block_at: Rung::At(5),
                end_at: Rung::At(10),
                ..LoopSettings::default()
            },
            text_loop: TextLoopSettings {
                enabled: true,
                steer_at: Rung::At(3),
                end_at: Rung::At(10),
                ..TextLoopSettings::default()
            },
            destructive: DestructiveSettings { enabled: true, ..DestructiveSettings::default() },
            harm: HarmSettings { enabled: true, ..HarmSettings::default() },
            strikes: StrikeSettings { enabled: true, ..StrikeSettings::default() },
            ..Policy::none()
        }
    }

    /// A session in which loops are ended sooner, and harm is refused.
    pub fn strict() -> Policy {
        let mut policy = Policy::balanced();
        policy.loops.end_at = Rung::At(8);
        policy.text_loop.end_at = Rung::At(8);
        policy.loops.action = Action::Terminate;
        policy.text_loop.action = Action::Terminate;
        policy.access.pin_tools = Pin::Block;
        policy.harm = HarmSettings::strict();
        policy
    }

    /// A session in which everything is noticed and nothing stopped.
    pub fn observe() -> Policy {
        let mut policy = Policy::balanced();
        policy.similarity.enabled = true;
        policy.warn_only();
        policy
    }

    /// The policy of a scope nested in one with this policy: patterns are looked for where the
    /// calls are made; what is counted is counted above.
    pub fn inside(&self) -> Policy {
        Policy {
            mode: self.mode,
            fail_mode: self.fail_mode,
            ask_timeout_s: self.ask_timeout_s,
            offline_calls: self.offline_calls,
            loops: self.loops.clone(),
            similarity: self.similarity.clone(),
            text_loop: self.text_loop.clone(),
            ..Policy::none()
        }
    }

    pub(crate) fn validate(&self) -> Result<(), BadSetting> {
        in_range("ask_timeout_s", self.ask_timeout_s.0, 1..=86_400)?;
        self.validate_sections()
    }
}

/// A policy for each kind of scope.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicySet {
    /// For the project.
    pub project: Policy,
    /// For an agent.
    pub agent: Policy,
    /// For a session.
    pub session: Policy,
    /// For a scope inside a session that brings no policy of its own.
    pub nested: Policy,
}

impl PolicySet {
    /// The policy for a kind of scope.
    pub fn of(&self, kind: ScopeKind) -> &Policy {
        match kind {
            ScopeKind::Project => &self.project,
            ScopeKind::Agent => &self.agent,
            ScopeKind::Session => &self.session,
            ScopeKind::Nested => &self.nested,
        }
    }
}

#[cfg(test)]
mod tests;
