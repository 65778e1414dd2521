//! The table of a policy's sections, one for each guard with settings. A new guard adds a line here;
//! [`Policy`], [`RawPolicy`] and what is done to every section are made from it.

use serde::{Deserialize, Serialize};

use super::raw::RawSessionLimits;
use super::{FailMode, Mode, Preset};
use crate::guard::access::{AccessSettings, RawAccess};
use crate::guard::breaker::{BreakerSettings, RawBreaker};
use crate::guard::budget::{BudgetSettings, RawBudget};
use crate::guard::destructive::{DestructiveSettings, RawDestructive};
use crate::guard::harm::{HarmSettings, RawHarm};
use crate::guard::loops::{LoopSettings, RawLoop};
use crate::guard::similarity::{RawSimilarity, SimilaritySettings};
use crate::guard::steps::{RawSteps, StepSettings};
use crate::guard::strikes::{RawStrikes, StrikeSettings};
use crate::guard::text_loop::{RawTextLoop, TextLoopSettings};
use crate::guard::time::{RawTime, TimeSettings};
use crate::guard::tokens::{RawTokens, TokenSettings};
use crate::guard::velocity::{RawVelocity, VelocitySettings};
use crate::settings::{BadSetting, Seconds};
use crate::trip::Action;

/// A line is: `field as "name in files" or "name on a seed page": settings / as typed => how it only warns`.
macro_rules! sections {
    ($(
        $(#[$doc:meta])*
        $field:ident $(as $name:literal)? $(or $alias:literal)?: $settings:ident / $raw:ident
            => |$section:ident| $warns:expr,
    )*) => {
        /// The settings of all guards for one scope.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        pub struct Policy {
            /// Whether verdicts are carried out.
            pub mode: Mode,
            /// What happens while what must last cannot be written.
            pub fail_mode: FailMode,
            /// Seconds that a call waits for a person under the action `ask`; then it is refused.
            pub ask_timeout_s: Seconds,
            /// Calls of an agent that each node lets pass under `fail_mode` open while it cannot
            /// reach the state that nodes share; then it refuses.
            pub offline_calls: u64,
            $( $(#[$doc])* $(#[serde(rename = $name)])? pub $field: $settings, )*
        }

        impl Policy {
            /// Every section as its guard defines it, which is off or without a limit for most.
            pub(super) fn as_defined() -> Policy {
                Policy {
                    mode: Mode::Enforce,
                    fail_mode: FailMode::Open,
                    ask_timeout_s: super::ASK_TIMEOUT,
                    offline_calls: super::OFFLINE_CALLS,
                    $( $field: $settings::default(), )*
                }
            }

            /// Turns every action into a warning.
            pub(super) fn warn_only(&mut self) {
                $( { let $section = &mut self.$field; $warns; } )*
            }

            pub(super) fn validate_sections(&self) -> Result<(), BadSetting> {
                $( self.$field.validate()?; )*
                Ok(())
            }
        }

        /// A policy as it was typed.
        #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct RawPolicy {
            /// The preset to start from; `balanced` if none is named.
            pub preset: Option<Preset>,
            /// Whether verdicts are carried out.
            pub mode: Option<Mode>,
            /// What happens while what must last cannot be written.
            pub fail_mode: Option<FailMode>,
            /// Seconds that a call waits for a person.
            pub ask_timeout_s: Option<Seconds>,
            /// Calls that a node lets pass while it cannot reach the state that nodes share.
            pub offline_calls: Option<u64>,
            $(
                $(#[$doc])* $(#[serde(rename = $name)])? $(#[serde(alias = $alias)])?
                pub $field: Option<$raw>,
            )*
            /// Limits in the shape of seed B.
            pub session_limits: Option<RawSessionLimits>,
            /// The same for the agent that a session belongs to.
            pub agent: Option<Box<RawPolicy>>,
            /// The same for the project.
            pub project: Option<Box<RawPolicy>>,
            /// The same for scopes inside a session.
            pub nested: Option<Box<RawPolicy>>,
        }

        impl RawPolicy {
            /// Lays every section that was typed over a policy.
            pub(super) fn sections_over(self, policy: &mut Policy) {
                $( if let Some(raw) = self.$field { raw.over(&mut policy.$field); } )*
            }
        }
    };
}

sections! {
    /// Tools allowed and denied.
    access: AccessSettings / RawAccess => |it| it.action = Action::Warn,
    /// Number of calls.
    steps: StepSettings / RawSteps => |it| it.action = Action::Warn,
    /// Number of tokens.
    tokens: TokenSettings / RawTokens => |it| it.action = Action::Warn,
    /// Money.
    budget: BudgetSettings / RawBudget => |it| it.action = Action::Warn,
    /// Wall-clock time.
    time: TimeSettings / RawTime => |it| it.action = Action::Warn,
    /// Money and tokens a minute.
    velocity: VelocitySettings / RawVelocity => |it| it.action = Action::Warn,
    /// Calls that repeat themselves.
    loops as "loop" or "loop_detection": LoopSettings / RawLoop => |it| {
        it.action = Action::Warn;
        it.single_rung();
    },
    /// The similarity kill switch.
    similarity or "kill_switch": SimilaritySettings / RawSimilarity
        => |it| it.action = Action::Warn,
    /// Text that repeats itself.
    text_loop: TextLoopSettings / RawTextLoop => |it| {
        it.action = Action::Warn;
        it.single_rung();
    },
    /// Destructive operations.
    destructive: DestructiveSettings / RawDestructive => |it| it.action = Action::Warn,
    /// What one call would do.
    harm: HarmSettings / RawHarm => |it| it.warn_only(),
    /// Failing servers; works in an agent's scope.
    breaker or "circuit_breaker": BreakerSettings / RawBreaker => |it| it.action = Action::Warn,
    /// Failures in a row; works in a session's scope.
    strikes: StrikeSettings / RawStrikes => |it| it.action = Action::Warn,
}
