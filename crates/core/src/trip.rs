//! A trip: a guard firing, as a value that says everything a person would ask.
//!
//! Which guard, why (a stable code for programs, a sentence for people), what it measured against
//! which limit, the earlier calls it is about, and where in the chain of scopes it happened.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::scope::ScopeKind;
use crate::units::{Millis, NanoUsd, Tokens};

/// The engine's answer, from mild to strict. The strictest along the chain wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Go ahead.
    #[default]
    Allow,
    /// Go ahead; people are told.
    Warn,
    /// Go ahead; the model is told what repeats and what it could do instead.
    Steer,
    /// Not before a person has said so.
    Ask,
    /// Not this call.
    Block,
    /// Not this call, and nothing more in the scope that was ended.
    Kill,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Allow => "allow",
            Verdict::Warn => "warn",
            Verdict::Steer => "steer",
            Verdict::Ask => "ask",
            Verdict::Block => "block",
            Verdict::Kill => "kill",
        })
    }
}

/// What a policy wants done when a guard trips.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Let it pass and tell people.
    Warn,
    /// Let it pass and tell the model.
    Steer,
    /// Hold this call until a person decides about it.
    Ask,
    /// Refuse this call only.
    Block,
    /// Refuse it and end the scope.
    #[serde(alias = "kill")]
    Terminate,
}

impl Action {
    /// The verdict that carries the action out.
    pub fn verdict(self) -> Verdict {
        match self {
            Action::Warn => Verdict::Warn,
            Action::Steer => Verdict::Steer,
            Action::Ask => Verdict::Ask,
            Action::Block => Verdict::Block,
            Action::Terminate => Verdict::Kill,
        }
    }
}

/// Which scope a kill ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ends {
    /// The scope in which the guard tripped.
    Scope,
    /// The session that the call belongs to.
    Session,
    /// The whole agent, until an operator switches it on again.
    Agent,
}

/// What a call that does not pass now would have to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// It may fit once calls in flight have settled.
    Settle,
    /// It may pass after this long.
    For(Millis),
}

/// What a refusal means to the client that gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// Not this, and not again.
    Stopped,
    /// A limit is used up.
    UsedUp,
    /// Not now: the same call may pass later.
    Throttled,
}

impl RefusalKind {
    /// What it means that a guard refuses with this reason and verdict.
    pub fn of(guard: GuardId, reason: &str, verdict: Verdict) -> RefusalKind {
        match guard {
            GuardId::Steps | GuardId::Tokens | GuardId::Budget | GuardId::Time => {
                RefusalKind::UsedUp
            }
            GuardId::Killed if GuardId::is_used_up(reason) => RefusalKind::UsedUp,
            GuardId::Velocity | GuardId::Breaker | GuardId::Quota if verdict < Verdict::Kill => {
                RefusalKind::Throttled
            }
            _ => RefusalKind::Stopped,
        }
    }

    /// The HTTP status. SDKs retry 408, 409, 429 and 5xx, so an end is none of these.
    pub fn status(self) -> u16 {
        match self {
            RefusalKind::Stopped => 403,
            RefusalKind::UsedUp => 402,
            RefusalKind::Throttled => 429,
        }
    }
}

/// Makes the list of guards.
macro_rules! guards {
    ($( $(#[$doc:meta])* $id:ident = $name:literal, )*) => {
        /// Every guard by name. States keep its number: a new guard goes to the end.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum GuardId {
            $( $(#[$doc])* $id, )*
        }

        impl GuardId {
            /// Every guard, in the order of their numbers.
            pub const ALL: [GuardId; [$( $name ),*].len()] = [$( GuardId::$id ),*];

            /// The name used in policies, records and messages.
            pub fn name(self) -> &'static str {
                match self {
                    $( GuardId::$id => $name, )*
                }
            }
        }
    };
}

guards! {
    /// The scope was ended, by a guard or by a person.
    Killed = "killed",
    /// The scope is held until a person decides.
    Paused = "paused",
    /// Tools allowed and denied.
    Access = "access",
    /// Number of calls.
    Steps = "steps",
    /// Number of tokens.
    Tokens = "tokens",
    /// Money.
    Budget = "budget",
    /// Wall-clock time.
    Time = "time",
    /// Money or tokens a minute.
    Velocity = "velocity",
    /// Failing servers.
    Breaker = "breaker",
    /// Destructive operations.
    Destructive = "destructive",
    /// Calls that repeat themselves.
    Loop = "loop",
    /// The similarity score of the kill switch.
    Similarity = "similarity",
    /// Text that repeats itself.
    TextLoop = "text_loop",
    /// Blocks or faults in a row.
    Strikes = "strikes",
    /// What one call would do.
    Harm = "harm",
    /// Sub-agents of a session.
    Swarm = "swarm",
    /// Windows of providers.
    Quota = "quota",
}

impl GuardId {
    /// The guard of this name.
    pub fn named(name: &str) -> Option<GuardId> {
        GuardId::ALL.into_iter().find(|guard| guard.name() == name)
    }

    /// The health tag that a session gets, where the seed pages name one.
    pub fn tag(self, verdict: Verdict) -> &'static str {
        match self {
            GuardId::Loop | GuardId::Destructive | GuardId::Similarity | GuardId::TextLoop => {
                "loop_detected"
            }
            GuardId::Budget if verdict == Verdict::Warn => "budget_warning",
            GuardId::Budget | GuardId::Time | GuardId::Steps | GuardId::Tokens
                if verdict == Verdict::Steer =>
            {
                "budget_warning"
            }
            GuardId::Budget | GuardId::Time | GuardId::Steps | GuardId::Tokens => "budget_exceeded",
            GuardId::Breaker => "circuit_breaker_open",
            other => other.name(),
        }
    }

    /// Whether a call that this guard blocks counts as a strike. A limit that has no room, a pace,
    /// a hold or a server that is left alone say nothing about what the agent wanted to do.
    pub fn strikes(self) -> bool {
        match self {
            GuardId::Access
            | GuardId::Destructive
            | GuardId::Harm
            | GuardId::Loop
            | GuardId::Similarity
            | GuardId::TextLoop
            | GuardId::Strikes => true,
            GuardId::Killed
            | GuardId::Paused
            | GuardId::Steps
            | GuardId::Tokens
            | GuardId::Budget
            | GuardId::Time
            | GuardId::Velocity
            | GuardId::Breaker
            | GuardId::Swarm
            | GuardId::Quota => false,
        }
    }

    /// The code that later calls are refused with once this guard has ended a session.
    pub fn refusal(self) -> &'static str {
        match self {
            GuardId::Loop | GuardId::Destructive | GuardId::Similarity | GuardId::TextLoop => {
                "session_killed_loop_guard"
            }
            GuardId::Steps => "session_killed_steps",
            GuardId::Tokens => "session_killed_tokens",
            GuardId::Budget => "session_killed_budget",
            GuardId::Time => "session_killed_time",
            _ => "session_killed",
        }
    }

    /// Whether it is a limit that can be used up, and raised again.
    pub fn is_limit(self) -> bool {
        matches!(self, GuardId::Steps | GuardId::Tokens | GuardId::Budget | GuardId::Time)
    }

    /// Whether a code of [`GuardId::refusal`] says that a limit of the session is used up.
    pub fn is_used_up(code: &str) -> bool {
        [GuardId::Steps, GuardId::Tokens, GuardId::Budget, GuardId::Time]
            .iter()
            .any(|guard| guard.refusal() == code)
    }
}

impl fmt::Display for GuardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A measured value or a limit, with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "unit", content = "value")]
pub enum Measure {
    /// Nothing to measure.
    #[default]
    None,
    /// A number of things.
    Count(u64),
    /// Tokens.
    Tokens(Tokens),
    /// Money.
    Money(NanoUsd),
    /// Time.
    Time(Millis),
    /// A score.
    Score(f64),
}

impl Measure {
    /// The plain number, to compare two of a kind with.
    pub(crate) fn amount(self) -> f64 {
        match self {
            Measure::None => 0.0,
            Measure::Count(n) | Measure::Tokens(Tokens(n)) => n as f64,
            Measure::Money(money) => money.0 as f64,
            Measure::Time(time) => time.0 as f64,
            Measure::Score(score) => score,
        }
    }
}

impl Measure {
    /// What is left of a limit in the same unit.
    pub(crate) fn left_of(self, limit: Measure) -> Measure {
        match (self, limit) {
            (Measure::Count(used), Measure::Count(limit)) => {
                Measure::Count(limit.saturating_sub(used))
            }
            (Measure::Tokens(used), Measure::Tokens(limit)) => Measure::Tokens(limit - used),
            (Measure::Money(used), Measure::Money(limit)) => Measure::Money(limit - used),
            (Measure::Time(used), Measure::Time(limit)) => {
                Measure::Time(Millis(limit.0.saturating_sub(used.0)))
            }
            _ => Measure::None,
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Measure::None => f.write_str("-"),
            Measure::Count(n) => write!(f, "{n}"),
            Measure::Tokens(t) => write!(f, "{t}"),
            Measure::Money(m) => write!(f, "{m}"),
            Measure::Time(t) => write!(f, "{t}"),
            Measure::Score(s) => write!(f, "{s:.1}"),
        }
    }
}

/// One line of a score: how often, and what each counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Signal {
    /// What was counted.
    pub name: String,
    /// How often.
    pub count: u32,
    /// What each counts for.
    pub weight: f64,
}

/// Where a trip happened and what had been spent by then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Name of the scope whose guard tripped.
    pub who: String,
    /// Its kind.
    pub kind: ScopeKind,
    /// How many scopes are above it: 0 for the root of the chain.
    pub depth: usize,
    /// Input tokens spent in that scope.
    pub input: Tokens,
    /// Output tokens spent in that scope.
    pub output: Tokens,
    /// Time since that scope was opened.
    pub elapsed: Millis,
    /// Input tokens spent at the root, by everything below it.
    pub accumulated_input: Tokens,
    /// Output tokens spent at the root, by everything below it.
    pub accumulated_output: Tokens,
}

/// A guard firing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trip {
    /// Which guard.
    pub guard: GuardId,
    /// Stable code, such as `repetition` or `input_exceeded`.
    pub reason: String,
    /// What is to be done about it.
    pub verdict: Verdict,
    /// Which scope a kill ends.
    pub ends: Ends,
    /// Whether calls in flight may finish: true for limits that are used up, false for stops.
    pub drains: bool,
    /// What was measured.
    pub measured: Measure,
    /// The limit it was measured against.
    pub limit: Measure,
    /// Numbers of the earlier calls it is about, oldest first.
    pub evidence: Vec<u64>,
    /// The parts of a score, where it is one.
    pub signals: Vec<Signal>,
    /// How many requests were looked at, where that is a setting.
    #[serde(default)]
    pub window: Option<u32>,
    /// Whether the same call may pass later without anything being changed, and when.
    #[serde(default)]
    pub waits: Option<Wait>,
    /// One clause a person understands, without the verdict.
    pub because: String,
    /// What the model is told, where the verdict is to steer it: one or two plain sentences.
    #[serde(default)]
    pub advice: Option<String>,
    /// The streak that this trip belongs to: of a loop by the number of its first call, of a failing
    /// server by a number of its outage. All trips of one streak (steer, block, end) carry the same
    /// number, so that they make one incident.
    #[serde(default)]
    pub streak: Option<u64>,
    /// Where it happened.
    pub context: Context,
}

impl Trip {
    /// What a refusal because of it means to the client.
    pub fn refusal_kind(&self) -> RefusalKind {
        if self.waits.is_some() && self.verdict < Verdict::Kill {
            return RefusalKind::Throttled;
        }
        RefusalKind::of(self.guard, &self.reason, self.verdict)
    }

    /// One sentence that says what was done and why.
    ///
    /// ```
    /// # use deadstop_core::*;
    /// # let mut project = ScopeState::new(ScopeKind::Project, Time(0));
    /// # let mut session = ScopeState::new(ScopeKind::Session, Time(0));
    /// let policy = Policy::balanced();
    /// let none = Policy::none();
    /// let delete = Call::Tool(ToolCall {
    ///     name: "delete_asset".into(),
    ///     harms: vec![Harm::destroys("delete_asset", "fact_sales")],
    ///     ..ToolCall::default()
    /// });
    /// let mut last = None;
    /// for second in [0, 6, 12] {
    ///     let mut chain = [
    ///         Link { name: "default", state: &mut project, policy: &none },
    ///         Link { name: "s1", state: &mut session, policy: &policy },
    ///     ];
    ///     last = admit(&mut chain, &delete, Time(second * 1000)).trips.pop();
    /// }
    /// assert_eq!(
    ///     last.unwrap().explain(),
    ///     "stopped: delete_asset on fact_sales 3 times in 12 s (limit 3 in 60 s)"
    /// );
    /// ```
    pub fn explain(&self) -> String {
        let done = match self.verdict {
            Verdict::Allow => "noticed",
            Verdict::Warn => "warned",
            Verdict::Steer => "steered",
            Verdict::Ask => "waits for a person",
            Verdict::Block => "blocked",
            Verdict::Kill => "stopped",
        };
        format!("{done}: {}", self.because)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_ordered_by_strictness() {
        assert!(Verdict::Allow < Verdict::Warn && Verdict::Warn < Verdict::Steer);
        assert!(Verdict::Steer < Verdict::Ask);
        assert!(Verdict::Ask < Verdict::Block && Verdict::Block < Verdict::Kill);
        let actions = [Action::Warn, Action::Steer, Action::Ask, Action::Block, Action::Terminate];
        assert_eq!(
            actions.map(|a| a.verdict().to_string()),
            ["warn", "steer", "ask", "block", "kill"]
        );
        assert_eq!(Verdict::Allow.to_string(), "allow");
    }

    #[test]
    fn names_tags_and_refusals_are_those_of_the_pages() {
        use GuardId::*;
        for (guard, name, tag, refusal) in [
            (Killed, "killed", "killed", "session_killed"),
            (Paused, "paused", "paused", "session_killed"),
            (Access, "access", "access", "session_killed"),
            (Steps, "steps", "budget_exceeded", "session_killed_steps"),
            (Tokens, "tokens", "budget_exceeded", "session_killed_tokens"),
            (Budget, "budget", "budget_exceeded", "session_killed_budget"),
            (Time, "time", "budget_exceeded", "session_killed_time"),
            (Velocity, "velocity", "velocity", "session_killed"),
            (Breaker, "breaker", "circuit_breaker_open", "session_killed"),
            (Destructive, "destructive", "loop_detected", "session_killed_loop_guard"),
            (Loop, "loop", "loop_detected", "session_killed_loop_guard"),
            (Similarity, "similarity", "loop_detected", "session_killed_loop_guard"),
            (TextLoop, "text_loop", "loop_detected", "session_killed_loop_guard"),
            (Strikes, "strikes", "strikes", "session_killed"),
            (Harm, "harm", "harm", "session_killed"),
        ] {
            assert_eq!(guard.to_string(), name);
            assert_eq!(guard.tag(Verdict::Kill), tag);
            assert_eq!(guard.refusal(), refusal);
            let limit = matches!(guard, Steps | Tokens | Budget | Time);
            assert_eq!(GuardId::is_used_up(refusal), limit, "{refusal}");
            assert_eq!(serde_json::to_value(guard).unwrap(), name);
        }
        assert_eq!(Budget.tag(Verdict::Warn), "budget_warning");
    }

    #[test]
    fn measures_carry_their_unit() {
        for (measure, shown) in [
            (Measure::None, "-"),
            (Measure::Count(3), "3"),
            (Measure::Tokens(crate::Tokens(1500)), "1,500 tokens"),
            (Measure::Money(NanoUsd::DOLLAR), "$1.00"),
            (Measure::Time(Millis(5000)), "5 s"),
            (Measure::Score(7.0), "7.0"),
        ] {
            assert_eq!(measure.to_string(), shown);
        }
    }
}
