//! What a person typed: a policy of which every part may be missing.
//!
//! The top level is about sessions; `agent`, `project` and `nested` say the same about those. The
//! seed pages' own names (`loop_detection`, `kill_switch`, `circuit_breaker`, `session_limits`)
//! are understood where they stood there.

use serde::Deserialize;

use super::{ASK_TIMEOUT, OFFLINE_CALLS, Policy, PolicySet, Preset, RawPolicy};
use crate::guard::destructive::DestructiveSettings;
use crate::guard::ending::EndingSettings;
use crate::guard::loops::{LoopSettings, RawLoop};
use crate::guard::strikes::RawStrikes;
use crate::guard::swarm::RawSwarm;
use crate::guard::text_loop::RawTextLoop;
use crate::settings::{BadSetting, Dollars, Share};

/// Guards that do not look in a kind of scope: the scope, the guard's section, and where to write it.
pub const IDLE: [(&str, &str, &str); 8] = [
    ("agent", "text_loop", TEXT_LOOP),
    ("project", "text_loop", TEXT_LOOP),
    ("project", "similarity", "write it under `[agent.similarity]`: each agent has its own window"),
    ("agent", "strikes", STRIKES),
    ("project", "strikes", STRIKES),
    ("nested", "strikes", STRIKES),
    ("project", "breaker", BREAKER),
    ("nested", "breaker", BREAKER),
];
const TEXT_LOOP: &str = "write it under `[text_loop]`: answers are compared in each session";
const STRIKES: &str = "write it under `[strikes]`: strikes are counted in each session";
const BREAKER: &str = "write it under `[breaker]`: a circuit is kept for each agent and server";

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
        let preset = self.preset.unwrap_or_default();
        let mut set = preset.policies();
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
        set.agent.destructive.follow(&set.session.destructive);
        let typed = agent.as_ref().and_then(|agent| agent.destructive.as_ref());
        // Switched on by hand, it begins where the section's own defaults are.
        if preset == Preset::Balanced && typed.is_some_and(|raw| raw.enabled == Some(true)) {
            set.agent.destructive =
                DestructiveSettings { enabled: true, ..DestructiveSettings::default() };
        }

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

    /// A guard that does not look in this kind of scope may not be switched on there.
    fn idle_in(&self, name: &str) -> Result<(), BadSetting> {
        let refused = |setting: &str, hint: &str| {
            let section = setting.split('.').next().unwrap_or(setting);
            let problem = match setting.ends_with(".enabled") {
                true => format!("`{section}` has no effect in `{name}`"),
                false => format!("`{setting}` has no effect in `{name}`"),
            };
            Err(BadSetting::new(&format!("{name}.{setting}"), problem, hint))
        };
        for (scope, section, hint) in IDLE {
            if scope == name && self.switches_on(section) {
                return refused(&format!("{section}.enabled"), hint);
            }
        }
        if self.swarm.as_ref().is_some_and(RawSwarm::limits) {
            return refused(
                "swarm",
                "write it under `[swarm]`: sub-agents are counted in each session",
            );
        }
        let usual = EndingSettings::default();
        let ending = self.ending.as_ref();
        let shares = [
            ("ending.wrap_up_at", ending.and_then(|raw| raw.wrap_up_at), usual.wrap_up_at),
            (
                "ending.reserve_for_answer",
                ending.and_then(|raw| raw.reserve_for_answer),
                usual.reserve_for_answer,
            ),
        ];
        for (setting, share, usual) in shares {
            let set = share.is_some_and(|share| share != usual && share != Share::OFF);
            if set && name != "nested" {
                return refused(
                    setting,
                    "write it under `[ending]`: a session is brought to its end",
                );
            }
        }
        let wait = self.loops.as_ref().and_then(|raw| raw.max_wait_s);
        let usual = LoopSettings::default().max_wait_s;
        match wait.filter(|wait| *wait != usual) {
            Some(_) if name != "nested" => {
                refused("loop.max_wait_s", "write it under `[loop]`: a session waits")
            }
            _ => Ok(()),
        }
    }

    fn switches_on(&self, section: &str) -> bool {
        let enabled = match section {
            "text_loop" => self.text_loop.as_ref().and_then(|raw| raw.enabled),
            "similarity" => self.similarity.as_ref().and_then(|raw| raw.enabled),
            "strikes" => self.strikes.as_ref().and_then(|raw| raw.enabled),
            "breaker" => self.breaker.as_ref().and_then(|raw| raw.enabled),
            _ => None,
        };
        enabled == Some(true)
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
