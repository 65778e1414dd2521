//! A policy: the settings of all guards for one scope, and the presets to start from.
//!
//! What a person typed is a [`RawPolicy`]; only [`RawPolicy::resolve`] makes valid policies of it,
//! one for each kind of scope, so that nothing behind this border checks a setting again.

mod raw;

use serde::{Deserialize, Serialize};

pub use raw::{RawPolicy, RawSessionLimits};

use crate::guard::access::{AccessSettings, Pin};
use crate::guard::breaker::BreakerSettings;
use crate::guard::budget::BudgetSettings;
use crate::guard::destructive::DestructiveSettings;
use crate::guard::harm::HarmSettings;
use crate::guard::loops::LoopSettings;
use crate::guard::similarity::SimilaritySettings;
use crate::guard::steps::StepSettings;
use crate::guard::strikes::StrikeSettings;
use crate::guard::text_loop::TextLoopSettings;
use crate::guard::time::TimeSettings;
use crate::guard::tokens::TokenSettings;
use crate::guard::velocity::VelocitySettings;
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

/// How long a call waits for a person where nobody has said otherwise.
pub(crate) const ASK_TIMEOUT: Seconds = Seconds(300);

/// Calls of an agent that a node lets pass while nobody can be asked, where nobody said otherwise.
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
            Preset::Balanced => Policy { loops: spread(Rung::Off, Rung::Off), ..breaking() },
            Preset::Strict => Policy {
                destructive: across_sessions(Action::Terminate),
                loops: spread(Rung::At(10), Rung::At(20)),
                ..breaking()
            },
        };
        PolicySet { project: Policy::none(), agent, nested: session.inside(), session }
    }
}

/// One agent that destroys the same thing in session after session.
fn across_sessions(action: Action) -> DestructiveSettings {
    DestructiveSettings {
        enabled: true,
        max_deletes: 100,
        max_same_target: 5,
        action,
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

/// The settings of all guards for one scope.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Policy {
    /// Whether verdicts are carried out.
    pub mode: Mode,
    /// What happens while what must last cannot be written.
    pub fail_mode: FailMode,
    /// Seconds that a call waits for a person under the action `ask`; then it is refused.
    pub ask_timeout_s: Seconds,
    /// Calls of an agent that each node lets pass under `fail_mode` open while it cannot reach the
    /// state that nodes share; then it refuses.
    pub offline_calls: u64,
    /// Tools allowed and denied.
    pub access: AccessSettings,
    /// Number of calls.
    pub steps: StepSettings,
    /// Number of tokens.
    pub tokens: TokenSettings,
    /// Money.
    pub budget: BudgetSettings,
    /// Wall-clock time.
    pub time: TimeSettings,
    /// Money and tokens a minute.
    pub velocity: VelocitySettings,
    /// Calls that repeat themselves.
    #[serde(rename = "loop")]
    pub loops: LoopSettings,
    /// The similarity kill switch.
    pub similarity: SimilaritySettings,
    /// Text that repeats itself.
    pub text_loop: TextLoopSettings,
    /// Destructive operations.
    pub destructive: DestructiveSettings,
    /// What one call would do.
    pub harm: HarmSettings,
    /// Failing servers; works in an agent's scope.
    pub breaker: BreakerSettings,
    /// Failures in a row; works in a session's scope.
    pub strikes: StrikeSettings,
}

impl Policy {
    /// No limit and no detector.
    pub fn none() -> Policy {
        Policy {
            mode: Mode::Enforce,
            fail_mode: FailMode::Open,
            ask_timeout_s: ASK_TIMEOUT,
            offline_calls: OFFLINE_CALLS,
            access: AccessSettings::default(),
            steps: StepSettings::default(),
            tokens: TokenSettings::default(),
            budget: BudgetSettings::default(),
            time: TimeSettings::default(),
            velocity: VelocitySettings::default(),
            loops: LoopSettings::default(),
            similarity: SimilaritySettings::default(),
            text_loop: TextLoopSettings::default(),
            destructive: DestructiveSettings::default(),
            harm: HarmSettings::default(),
            breaker: BreakerSettings { enabled: false, ..BreakerSettings::default() },
            strikes: StrikeSettings::default(),
        }
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

    /// Turns every action into a warning.
    fn warn_only(&mut self) {
        for action in [
            &mut self.access.action,
            &mut self.steps.action,
            &mut self.tokens.action,
            &mut self.budget.action,
            &mut self.time.action,
            &mut self.velocity.action,
            &mut self.loops.action,
            &mut self.similarity.action,
            &mut self.text_loop.action,
            &mut self.destructive.action,
            &mut self.breaker.action,
            &mut self.strikes.action,
        ] {
            *action = Action::Warn;
        }
        self.loops.single_rung();
        self.text_loop.single_rung();
        self.harm.warn_only();
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
        self.access.validate()?;
        self.steps.validate()?;
        self.tokens.validate()?;
        self.budget.validate()?;
        self.time.validate()?;
        self.velocity.validate()?;
        self.loops.validate()?;
        self.similarity.validate()?;
        self.text_loop.validate()?;
        self.destructive.validate()?;
        self.harm.validate()?;
        self.breaker.validate()?;
        self.strikes.validate()
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
