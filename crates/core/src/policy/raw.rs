//! What a person typed: a policy of which every part may be missing.
//!
//! The top level is about sessions; `agent`, `project` and `nested` say the same about those. The
//! seed pages' own names (`loop_detection`, `kill_switch`, `circuit_breaker`, `session_limits`)
//! are understood where they stood there.

use serde::Deserialize;

use super::{ASK_TIMEOUT, FailMode, Mode, OFFLINE_CALLS, Policy, PolicySet, Preset};
use crate::guard::access::RawAccess;
use crate::guard::breaker::RawBreaker;
use crate::guard::budget::RawBudget;
use crate::guard::destructive::RawDestructive;
use crate::guard::harm::RawHarm;
use crate::guard::loops::RawLoop;
use crate::guard::similarity::RawSimilarity;
use crate::guard::steps::RawSteps;
use crate::guard::strikes::RawStrikes;
use crate::guard::text_loop::RawTextLoop;
use crate::guard::time::RawTime;
use crate::guard::tokens::RawTokens;
use crate::guard::velocity::RawVelocity;
use crate::settings::{BadSetting, Dollars, Seconds};

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
    /// Calls that are let pass while nobody can be asked.
    pub offline_calls: Option<u64>,
    /// Tools allowed and denied.
    pub access: Option<RawAccess>,
    /// Number of calls.
    pub steps: Option<RawSteps>,
    /// Number of tokens.
    pub tokens: Option<RawTokens>,
    /// Money.
    pub budget: Option<RawBudget>,
    /// Wall-clock time.
    pub time: Option<RawTime>,
    /// Money and tokens a minute.
    pub velocity: Option<RawVelocity>,
    /// Calls that repeat themselves.
    #[serde(rename = "loop", alias = "loop_detection")]
    pub loops: Option<RawLoop>,
    /// The similarity kill switch.
    #[serde(alias = "kill_switch")]
    pub similarity: Option<RawSimilarity>,
    /// Text that repeats itself.
    pub text_loop: Option<RawTextLoop>,
    /// Destructive operations.
    pub destructive: Option<RawDestructive>,
    /// What one call would do.
    pub harm: Option<RawHarm>,
    /// Failing servers, per agent.
    #[serde(alias = "circuit_breaker")]
    pub breaker: Option<RawBreaker>,
    /// Failures in a row.
    pub strikes: Option<RawStrikes>,
    /// Limits in the shape of seed B.
    pub session_limits: Option<RawSessionLimits>,
    /// The same for the agent that a session belongs to.
    pub agent: Option<Box<RawPolicy>>,
    /// The same for the project.
    pub project: Option<Box<RawPolicy>>,
    /// The same for scopes inside a session.
    pub nested: Option<Box<RawPolicy>>,
}

/// `session_limits:` as seed B writes it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawSessionLimits {
    /// Dollars a session may cost.
    pub max_cost_per_session: Option<Dollars>,
    /// Tool calls a session may make.
    #[serde(alias = "max_tool_calls")]
    pub max_steps: Option<u64>,
    /// Blocks and errors in a row.
    pub circuit_breaker: Option<RawStrikes>,
}

impl RawPolicy {
    /// Makes valid policies of it.
    ///
    /// ```
    /// use deadstop_core::RawPolicy;
    /// let raw: RawPolicy = serde_json::from_str(
    ///     r#"{ "preset": "strict", "budget": { "max_cost_usd": 5 } }"#,
    /// ).unwrap();
    /// let policies = raw.resolve().unwrap();
    /// assert_eq!(policies.session.budget.max_cost_usd.unwrap().0.to_string(), "$5.00");
    /// ```
    pub fn resolve(self) -> Result<PolicySet, BadSetting> {
        let mut set = self.preset.unwrap_or_default().policies();
        let RawPolicy {
            mode,
            fail_mode,
            ask_timeout_s,
            offline_calls,
            agent,
            project,
            nested,
            mut breaker,
            ..
        } = self.clone();

        // The breaker is kept per agent and server, wherever it was typed.
        if let Some(breaker) = breaker.take() {
            breaker.over(&mut set.agent.breaker);
        }
        let own = RawPolicy { agent: None, project: None, nested: None, breaker: None, ..self };
        own.over(&mut set.session)?;
        set.session.validate()?;
        set.nested = set.session.inside();

        for (name, raw, policy) in [
            ("agent", agent, &mut set.agent),
            ("project", project, &mut set.project),
            ("nested", nested, &mut set.nested),
        ] {
            let within =
                |bad: BadSetting| BadSetting { path: format!("{name}.{}", bad.path), ..bad };
            policy.mode = mode.unwrap_or_default();
            policy.fail_mode = fail_mode.unwrap_or_default();
            policy.ask_timeout_s = ask_timeout_s.unwrap_or(ASK_TIMEOUT);
            policy.offline_calls = offline_calls.unwrap_or(OFFLINE_CALLS);
            if let Some(raw) = raw {
                raw.idle_in(name)?;
                raw.inner(name)?.over(policy).map_err(within)?;
            }
            policy.validate().map_err(within)?;
        }
        Ok(set)
    }

    /// A detector that does not look in this kind of scope may not be switched on there.
    fn idle_in(&self, name: &str) -> Result<(), BadSetting> {
        let text_loop = self.text_loop.as_ref().and_then(|raw| raw.enabled);
        let similarity = self.similarity.as_ref().and_then(|raw| raw.enabled);
        let (section, hint) = match name {
            "agent" | "project" if text_loop == Some(true) => {
                ("text_loop", "write it under `[text_loop]`: answers are compared in each session")
            }
            "project" if similarity == Some(true) => {
                ("similarity", "write it under `[agent.similarity]`: each agent has its own window")
            }
            _ => return Ok(()),
        };
        let problem = format!("`{section}` has no effect in `{name}`");
        Err(BadSetting::new(&format!("{name}.{section}.enabled"), problem, hint))
    }

    /// A section about another kind of scope may not hold what is said once for all.
    fn inner(self, name: &str) -> Result<RawPolicy, BadSetting> {
        let misplaced = [
            ("preset", self.preset.is_some()),
            ("agent", self.agent.is_some()),
            ("project", self.project.is_some()),
            ("nested", self.nested.is_some()),
        ];
        match misplaced.iter().find(|(_, there)| *there) {
            None => Ok(self),
            Some((key, _)) => Err(BadSetting::new(
                &format!("{name}.{key}"),
                format!("`{key}` cannot stand inside `{name}`"),
                "move it to the top of the policy",
            )),
        }
    }

    fn over(self, policy: &mut Policy) -> Result<(), BadSetting> {
        policy.mode = self.mode.unwrap_or(policy.mode);
        policy.fail_mode = self.fail_mode.unwrap_or(policy.fail_mode);
        policy.ask_timeout_s = self.ask_timeout_s.unwrap_or(policy.ask_timeout_s);
        policy.offline_calls = self.offline_calls.unwrap_or(policy.offline_calls);
        let max_steps = self.loops.as_ref().and_then(|raw| raw.max_steps);
        let max_time = self.budget.as_ref().and_then(|raw| raw.max_wall_time_seconds);
        macro_rules! lay {
            ($($section:ident),*) => {$(
                if let Some(raw) = self.$section { raw.over(&mut policy.$section); }
            )*};
        }
        if let Some(limits) = self.session_limits {
            limits.over(policy);
        }
        if self.loops.as_ref().is_some_and(RawLoop::is_single_rung) {
            policy.loops.single_rung();
        }
        if self.text_loop.as_ref().is_some_and(RawTextLoop::is_single_rung) {
            policy.text_loop.single_rung();
        }
        policy.steps.max_steps = max_steps.or(policy.steps.max_steps);
        policy.time.max_wall_time_seconds = max_time.or(policy.time.max_wall_time_seconds);
        lay!(access, steps, tokens, budget, time, velocity);
        lay!(loops, similarity, text_loop, destructive, harm, breaker, strikes);
        Ok(())
    }
}

impl RawSessionLimits {
    fn over(self, policy: &mut Policy) {
        policy.budget.max_cost_usd = self.max_cost_per_session.or(policy.budget.max_cost_usd);
        policy.steps.max_steps = self.max_steps.or(policy.steps.max_steps);
        if let Some(strikes) = self.circuit_breaker {
            strikes.over(&mut policy.strikes);
            policy.strikes.enabled = true;
        }
    }
}
