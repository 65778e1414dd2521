//! What a person typed: a policy of which every part may be missing.
//!
//! The top level is about sessions; `agent`, `project` and `nested` say the same about those. The
//! seed pages' own names (`loop_detection`, `kill_switch`, `circuit_breaker`, `session_limits`)
//! are understood where they stood there.

use serde::Deserialize;

use super::{ASK_TIMEOUT, OFFLINE_CALLS, Policy, PolicySet, RawPolicy};
use crate::guard::loops::RawLoop;
use crate::guard::strikes::RawStrikes;
use crate::guard::swarm::RawSwarm;
use crate::guard::text_loop::RawTextLoop;
use crate::settings::{BadSetting, Dollars};

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
            quota,
            ..
        } = self.clone();

        // The breaker is kept per agent and server, wherever it was typed.
        if let Some(breaker) = breaker.take() {
            breaker.over(&mut set.agent.breaker);
        }
        // Windows of providers are kept per agent, too.
        if let Some(quota) = quota {
            quota.over(&mut set.agent.quota);
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
            _ if self.swarm.as_ref().is_some_and(RawSwarm::limits) => {
                let hint = "write it under `[swarm]`: sub-agents are counted in each session";
                let problem = format!("`swarm` has no effect in `{name}`");
                return Err(BadSetting::new(&format!("{name}.swarm"), problem, hint));
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
        if let Some(limits) = &self.session_limits {
            limits.clone().over(policy);
        }
        if self.loops.as_ref().is_some_and(RawLoop::is_single_rung) {
            policy.loops.single_rung();
        }
        if self.text_loop.as_ref().is_some_and(RawTextLoop::is_single_rung) {
            policy.text_loop.single_rung();
        }
        policy.steps.max_steps = max_steps.or(policy.steps.max_steps);
        policy.time.max_wall_time_seconds = max_time.or(policy.time.max_wall_time_seconds);
        self.sections_over(policy);
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
