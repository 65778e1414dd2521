//! `prevention-config`: loop detection, budget and circuit breaker, as seed E's page has them.
//!
//! A limit that is null is no limit. A field that is left out is an error: the client may have
//! forgotten it.

use deadstop_core::{
    Action, Dollars, PolicySet, RawBreaker, RawBudget, RawLoop, RawPolicy, RawSteps, RawTime, Rung,
    Seconds,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::field::{FieldFault, Fields};

/// The page's `prevention_configs` keeps whole numbers in 32 bits.
const LARGEST_COUNT: u64 = i32::MAX as u64;
/// And amounts as `NUMERIC(10, 6)`.
const LARGEST_DOLLARS: u64 = 10_000;

/// Guards of an agent, or of all agents of a project that have none of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PreventionConfig {
    /// Calls that repeat themselves.
    pub loop_detection: LoopDetection,
    /// Money and time.
    pub budget: BudgetControls,
    /// Failing servers.
    pub circuit_breaker: CircuitBreaker,
}

/// Calls that repeat themselves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LoopDetection {
    /// Whether to look at all.
    pub enabled: bool,
    /// Repeated calls in a row that are a loop.
    #[cfg_attr(feature = "schema", schema(minimum = 2, maximum = 10_000, example = 5))]
    pub threshold: u32,
    /// What to do then.
    pub action: LoopAction,
    /// Tool calls a session may make; null for no limit.
    #[cfg_attr(feature = "schema", schema(required, minimum = 1, maximum = 2_147_483_647))]
    pub max_steps: Option<u64>,
    /// The ladder: repeated calls from which on the model is told. A body that names none of the
    /// three rungs has threshold and action alone.
    #[cfg_attr(feature = "schema", schema(minimum = 2, maximum = 10_000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steer_at: Option<u32>,
    /// The ladder: repeated calls from which on they are refused.
    #[cfg_attr(feature = "schema", schema(minimum = 2, maximum = 10_000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_at: Option<u32>,
    /// The ladder: repeated calls that end the session.
    #[cfg_attr(feature = "schema", schema(minimum = 2, maximum = 10_000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_at: Option<u32>,
}

/// What to do about a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum LoopAction {
    /// Let it pass and tell people.
    Warn,
    /// Let it pass and tell the model. Not on the seed's page.
    Steer,
    /// Hold this call until a person decides. Not on the seed's page.
    Ask,
    /// Refuse this call only. Not on the seed's page; shown where a policy says so.
    Block,
    /// Refuse it and end the session.
    Terminate,
}

/// Money and time of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BudgetControls {
    /// The most that a session may cost; null for no limit.
    #[cfg_attr(feature = "schema", schema(required, value_type = Option<f64>, minimum = 0.000_001, exclusive_maximum = 10_000.0))]
    pub max_cost_usd: Option<Dollars>,
    /// Warn when a session has cost this much; below `max_cost_usd`; null for no warning.
    #[cfg_attr(feature = "schema", schema(required, value_type = Option<f64>, minimum = 0.000_001, exclusive_maximum = 10_000.0))]
    pub soft_alert_threshold_usd: Option<Dollars>,
    /// Seconds that a session may take; null for no limit.
    #[cfg_attr(feature = "schema", schema(required, value_type = Option<u64>, minimum = 1, maximum = 2_147_483_647))]
    pub max_wall_time_seconds: Option<Seconds>,
}

/// When to leave a failing server alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CircuitBreaker {
    /// Whether it works at all.
    pub enabled: bool,
    /// Failures in a row that open the circuit.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1_000_000, example = 5))]
    pub open_after_failures: u32,
    /// Seconds it stays open.
    #[cfg_attr(feature = "schema", schema(value_type = u64, minimum = 1, maximum = 31_536_000, example = 30))]
    pub cooldown_seconds: Seconds,
    /// Trial calls after that.
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1_000_000, example = 3))]
    pub half_open_max_calls: u32,
}

impl From<Action> for LoopAction {
    fn from(action: Action) -> LoopAction {
        match action {
            Action::Warn => LoopAction::Warn,
            Action::Steer => LoopAction::Steer,
            Action::Ask => LoopAction::Ask,
            Action::Block => LoopAction::Block,
            Action::Terminate => LoopAction::Terminate,
        }
    }
}

impl From<LoopAction> for Action {
    fn from(action: LoopAction) -> Action {
        match action {
            LoopAction::Warn => Action::Warn,
            LoopAction::Steer => Action::Steer,
            LoopAction::Ask => Action::Ask,
            LoopAction::Block => Action::Block,
            LoopAction::Terminate => Action::Terminate,
        }
    }
}

impl PreventionConfig {
    /// What a policy says.
    pub fn of(policies: &PolicySet) -> PreventionConfig {
        let (session, breaker) = (&policies.session, &policies.agent.breaker);
        PreventionConfig {
            loop_detection: LoopDetection {
                enabled: session.loops.enabled,
                threshold: session.loops.threshold,
                action: session.loops.action.into(),
                max_steps: session.steps.max_steps,
                steer_at: session.loops.steer_at.count(),
                block_at: session.loops.block_at.count(),
                end_at: session.loops.end_at.count(),
            },
            budget: BudgetControls {
                max_cost_usd: session.budget.max_cost_usd,
                soft_alert_threshold_usd: session.budget.soft_alert_threshold_usd,
                max_wall_time_seconds: session.time.max_wall_time_seconds,
            },
            circuit_breaker: CircuitBreaker {
                enabled: breaker.enabled,
                open_after_failures: breaker.open_after_failures,
                cooldown_seconds: breaker.cooldown_seconds,
                half_open_max_calls: breaker.half_open_max_calls,
            },
        }
    }

    /// Makes a policy say this. Scopes inside a session look for loops as the session does, unless
    /// they have settings of their own.
    pub fn write(&self, policies: &mut PolicySet) {
        let follows = policies.nested.loops == policies.session.loops;
        let session = &mut policies.session;
        session.loops.enabled = self.loop_detection.enabled;
        session.loops.threshold = self.loop_detection.threshold;
        session.loops.action = self.loop_detection.action.into();
        let rung = |count: Option<u32>| count.map_or(Rung::Off, Rung::At);
        session.loops.steer_at = rung(self.loop_detection.steer_at);
        session.loops.block_at = rung(self.loop_detection.block_at);
        session.loops.end_at = rung(self.loop_detection.end_at);
        session.steps.max_steps = self.loop_detection.max_steps;
        session.budget.max_cost_usd = self.budget.max_cost_usd;
        session.budget.soft_alert_threshold_usd = self.budget.soft_alert_threshold_usd;
        session.time.max_wall_time_seconds = self.budget.max_wall_time_seconds;
        if follows {
            policies.nested.loops = session.loops.clone();
        }
        let breaker = &mut policies.agent.breaker;
        breaker.enabled = self.circuit_breaker.enabled;
        breaker.open_after_failures = self.circuit_breaker.open_after_failures;
        breaker.cooldown_seconds = self.circuit_breaker.cooldown_seconds;
        breaker.half_open_max_calls = self.circuit_breaker.half_open_max_calls;
    }

    /// Reads a body; every field must be there, and every fault is named. A body as `GET` answers it
    /// is read, too: the path says whose guards it sets, whatever the body's `agent_name` says.
    pub fn read(body: &Value) -> Result<PreventionConfig, Vec<FieldFault>> {
        let mut faults = Vec::new();
        // What `GET` answers says whose guards they are; a body may keep that when it is sent back.
        let shown = ["agent_name", "is_agent_override"].into_iter();
        let parts = ["loop_detection", "budget", "circuit_breaker"].into_iter();
        let known: Vec<&str> = parts.chain(shown.filter(|name| body.get(name).is_some())).collect();
        let top = Fields::of(body, "", &known, &mut faults);
        let _: Option<Option<String>> = top.read("agent_name", "a name or null", &mut faults);
        let _: Option<bool> = top.read("is_agent_override", "true or false", &mut faults);
        let loop_detection = read_loop(&top, &mut faults);
        let budget = read_budget(&top, &mut faults);
        let circuit_breaker = read_breaker(&top, &mut faults);
        match (loop_detection, budget, circuit_breaker) {
            (Some(loop_detection), Some(budget), Some(circuit_breaker)) if faults.is_empty() => {
                Ok(PreventionConfig { loop_detection, budget, circuit_breaker })
            }
            _ => Err(faults),
        }
    }
}

fn read_loop(top: &Fields<'_>, faults: &mut Vec<FieldFault>) -> Option<LoopDetection> {
    // The seed's page has no rungs; a body may leave them out.
    let given = |name: &&str| top.get("loop_detection").is_some_and(|v| v.get(*name).is_some());
    let rungs = ["steer_at", "block_at", "end_at"].into_iter().filter(given);
    let known: Vec<&str> =
        ["enabled", "threshold", "action", "max_steps"].into_iter().chain(rungs).collect();
    let fields = top.inner("loop_detection", &known, faults);
    let enabled = fields.read("enabled", "true or false", faults);
    let threshold: Option<u32> = fields.read("threshold", "a whole number from 2 to 10000", faults);
    let action = fields.read("action", "`warn`, `steer`, `block` or `terminate`", faults);
    let max_steps: Option<Option<u64>> = fields.read("max_steps", COUNT_OR_NULL, faults);
    let loops = RawLoop { threshold, ..RawLoop::default() };
    judge("loop_detection.threshold", RawPolicy { loops: Some(loops), ..alone() }, faults);
    let mut rung = |name: &str| -> Option<u32> {
        let expected = "a whole number from 2 to 10000, or null for none";
        fields.read::<Option<u32>>(name, expected, faults).flatten()
    };
    let (steer_at, block_at, end_at) = (rung("steer_at"), rung("block_at"), rung("end_at"));
    let typed = |count: Option<u32>| Some(count.map_or(Rung::Off, Rung::At));
    let loops = RawLoop {
        steer_at: typed(steer_at),
        block_at: typed(block_at),
        end_at: typed(end_at),
        ..RawLoop::default()
    };
    judge("loop_detection.end_at", RawPolicy { loops: Some(loops), ..alone() }, faults);
    let steps = RawSteps { max_steps, ..RawSteps::default() };
    let path = "loop_detection.max_steps";
    if small_enough(path, max_steps.flatten(), faults) {
        judge(path, RawPolicy { steps: Some(steps), ..alone() }, faults);
    }
    Some(LoopDetection {
        enabled: enabled?,
        threshold: threshold?,
        action: action?,
        max_steps: max_steps?,
        steer_at,
        block_at,
        end_at,
    })
}

fn read_budget(top: &Fields<'_>, faults: &mut Vec<FieldFault>) -> Option<BudgetControls> {
    let known = ["max_cost_usd", "soft_alert_threshold_usd", "max_wall_time_seconds"];
    let fields = top.inner("budget", &known, faults);
    let max_cost_usd: Option<Option<Dollars>> =
        fields.read("max_cost_usd", DOLLARS_OR_NULL, faults);
    let soft_alert_threshold_usd: Option<Option<Dollars>> =
        fields.read("soft_alert_threshold_usd", DOLLARS_OR_NULL, faults);
    let max_wall_time_seconds: Option<Option<Seconds>> =
        fields.read("max_wall_time_seconds", COUNT_OR_NULL, faults);

    let before = faults.len();
    let hard = RawBudget { max_cost_usd, ..RawBudget::default() };
    let soft = RawBudget { soft_alert_threshold_usd, ..RawBudget::default() };
    for (path, amount, raw) in [
        ("budget.max_cost_usd", max_cost_usd.flatten(), hard.clone()),
        ("budget.soft_alert_threshold_usd", soft_alert_threshold_usd.flatten(), soft.clone()),
    ] {
        if affordable(path, amount, faults) {
            judge(path, RawPolicy { budget: Some(raw), ..alone() }, faults);
        }
    }
    if faults.len() == before {
        // Each is fine alone; together the soft one must come first.
        let both = RawBudget { soft_alert_threshold_usd: soft.soft_alert_threshold_usd, ..hard };
        let path = "budget.soft_alert_threshold_usd";
        judge(path, RawPolicy { budget: Some(both), ..alone() }, faults);
    }
    let path = "budget.max_wall_time_seconds";
    let seconds = max_wall_time_seconds.flatten().map(|seconds| seconds.0);
    if small_enough(path, seconds, faults) {
        let time = RawTime { max_wall_time_seconds, ..RawTime::default() };
        judge(path, RawPolicy { time: Some(time), ..alone() }, faults);
    }
    Some(BudgetControls {
        max_cost_usd: max_cost_usd?,
        soft_alert_threshold_usd: soft_alert_threshold_usd?,
        max_wall_time_seconds: max_wall_time_seconds?,
    })
}

fn read_breaker(top: &Fields<'_>, faults: &mut Vec<FieldFault>) -> Option<CircuitBreaker> {
    let known = ["enabled", "open_after_failures", "cooldown_seconds", "half_open_max_calls"];
    let fields = top.inner("circuit_breaker", &known, faults);
    let enabled = fields.read("enabled", "true or false", faults);
    let count = "a whole number from 1 to 1000000";
    let open_after_failures: Option<u32> = fields.read("open_after_failures", count, faults);
    let cooldown_seconds: Option<Seconds> =
        fields.read("cooldown_seconds", "a whole number of seconds, 1 or more", faults);
    let half_open_max_calls: Option<u32> = fields.read("half_open_max_calls", count, faults);
    let none = RawBreaker::default;
    for (name, raw) in [
        ("open_after_failures", RawBreaker { open_after_failures, ..none() }),
        ("cooldown_seconds", RawBreaker { cooldown_seconds, ..none() }),
        ("half_open_max_calls", RawBreaker { half_open_max_calls, ..none() }),
    ] {
        let path = format!("circuit_breaker.{name}");
        judge(&path, RawPolicy { breaker: Some(raw), ..alone() }, faults);
    }
    Some(CircuitBreaker {
        enabled: enabled?,
        open_after_failures: open_after_failures?,
        cooldown_seconds: cooldown_seconds?,
        half_open_max_calls: half_open_max_calls?,
    })
}

const COUNT_OR_NULL: &str = "a whole number of 1 or more, or null for no limit";
const DOLLARS_OR_NULL: &str = "an amount of dollars above 0, or null for none";

/// A policy in which nothing else can be wrong.
fn alone() -> RawPolicy {
    RawPolicy::default()
}

/// Core says whether a setting can be; only its place is named as it is here.
fn judge(path: &str, raw: RawPolicy, faults: &mut Vec<FieldFault>) {
    if let Err(bad) = raw.resolve() {
        faults.push(FieldFault::invalid(path, format!("{}; {}", bad.problem, bad.hint)));
    }
}

fn small_enough(path: &str, count: Option<u64>, faults: &mut Vec<FieldFault>) -> bool {
    let fits = count.is_none_or(|count| count <= LARGEST_COUNT);
    if !fits {
        let detail = format!("more than {LARGEST_COUNT}; write null for no limit");
        faults.push(FieldFault::invalid(path, detail));
    }
    fits
}

fn affordable(path: &str, amount: Option<Dollars>, faults: &mut Vec<FieldFault>) -> bool {
    let nano = |dollars: u64| dollars * deadstop_core::NanoUsd::DOLLAR.0;
    let Some(Dollars(amount)) = amount else { return true };
    let detail = if amount.0 >= nano(LARGEST_DOLLARS) {
        format!("must be below ${LARGEST_DOLLARS}; use the full policy for more")
    } else if !amount.0.is_multiple_of(1000) {
        "is finer than a millionth of a dollar; use the full policy for that".to_owned()
    } else {
        return true;
    };
    faults.push(FieldFault::invalid(path, detail));
    false
}
