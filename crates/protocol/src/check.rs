//! What Deadstop would say about one tool call, without making it: `deadstop check`, and the page's
//! "try a command".

use deadstop_core::{
    Call, Harm, HarmKind, Link, OnHarm, PolicySet, Preset, Reach, Recovery, ScopeKind, ScopeState,
    Severity, Time, Verdict, admit,
};
use serde::Serialize;
use serde_json::Value;

use crate::facts;
use crate::facts::effect::Surroundings;

/// What would be said about a call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Checked {
    /// The tool.
    pub tool: String,
    /// What harm it would do, the worst first.
    pub harms: Vec<Told>,
    /// How bad the worst is.
    pub severity: Severity,
    /// What each preset would do.
    pub verdict: Verdicts,
    /// Why, in one sentence.
    pub because: String,
    /// The safer way, if one is needed.
    pub instead: String,
}

/// One harm, with its severity.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Told {
    /// What sort of harm.
    pub kind: HarmKind,
    /// What is done.
    pub verb: String,
    /// What it is done to.
    pub target: String,
    /// How far it reaches.
    pub reach: Reach,
    /// Whether what is lost comes back.
    pub recovery: Recovery,
    /// How bad that is.
    pub severity: Severity,
}

/// What each preset would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Verdicts {
    /// `observe`.
    pub observe: Verdict,
    /// `balanced`.
    pub balanced: Verdict,
    /// `strict`.
    pub strict: Verdict,
}

/// Checks calls against the presets.
#[derive(Debug)]
pub struct Checker([PolicySet; 3]);

impl Default for Checker {
    fn default() -> Checker {
        Checker(Preset::ALL.map(Preset::policies))
    }
}

impl Checker {
    /// What would be said about the first call of a session, if it were this one.
    ///
    /// ```
    /// use deadstop_protocol::check::Checker;
    /// use deadstop_protocol::facts::effect::Nowhere;
    /// let input = serde_json::json!({ "command": "rm -rf ~" });
    /// let checked = Checker::default().check("Bash", &input, &Nowhere);
    /// assert_eq!(serde_json::to_value(checked.verdict).unwrap()["balanced"], "ask");
    /// ```
    pub fn check(&self, tool: &str, input: &Value, here: &dyn Surroundings) -> Checked {
        let (call, _) = facts::tool_call_in(tool, input, here);
        let mut harms: Vec<Harm> = call.harms.clone();
        let strict = &self.0[2].session.harm;
        let rank = |harm: &Harm| (strict.wants(harm), harm.severity());
        harms.sort_by_key(|harm| std::cmp::Reverse(rank(harm)));
        let severity = harms.iter().map(Harm::severity).max().unwrap_or_default();
        let call = Call::Tool(call);
        let [observe, balanced, strict_says] = [0, 1, 2].map(|at| first(&self.0[at], &call));
        let (because, instead) = match harms.first() {
            Some(harm) if rank(harm) > (OnHarm::Allow, Severity::None) => {
                (harm.because(), harm.instead().to_owned())
            }
            Some(harm) => (harm.because(), String::new()),
            None => ("no harm was found in this call".to_owned(), String::new()),
        };
        Checked {
            tool: tool.to_owned(),
            harms: harms.into_iter().map(told).collect(),
            severity,
            verdict: Verdicts { observe, balanced, strict: strict_says },
            because,
            instead,
        }
    }
}

fn told(harm: Harm) -> Told {
    let severity = harm.severity();
    let Harm { kind, verb, target, reach, recovery } = harm;
    Told { kind, verb, target, reach, recovery, severity }
}

/// The verdict about the first call of a session.
fn first(policies: &PolicySet, call: &Call) -> Verdict {
    let mut session = ScopeState::new(ScopeKind::Session, Time(0));
    let mut chain = [Link { name: "check", state: &mut session, policy: &policies.session }];
    admit(&mut chain, call, Time(1)).verdict
}

#[cfg(test)]
mod tests;
