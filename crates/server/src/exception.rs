//! Exceptions: how a policy would have to differ so that a false alarm does not come again.
//!
//! The narrowest comes first: one target or one deed, then one tool, then one setting of the agent.
//! Nothing here says whether it is enough; a trial on stored sessions does.

use deadstop_core::{
    Action, Call, GuardId, Measure, Pattern, Policy, PolicySet, Rung, ScopeKind, ToolCall,
    ToolLimits, Trip,
};

/// A change of a policy that would have let something pass.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Exception {
    /// A word for it.
    pub(crate) id: &'static str,
    /// What it does, in a sentence.
    pub(crate) words: String,
    /// The policies of the agent with it.
    pub(crate) policies: PolicySet,
}

/// By how much a limit is raised.
const TWICE: u64 = 2;

/// The exceptions for a trip, the narrowest first; none where the policy language has none.
pub(crate) fn exceptions(
    trip: &Trip,
    kind: ScopeKind,
    call: Option<&Call>,
    policies: &PolicySet,
) -> Vec<Exception> {
    if kind == ScopeKind::Project {
        return Vec::new();
    }
    let mut drafts = Drafts { policies, kind, found: Vec::new() };
    let tool = call.and_then(Call::tool);
    match trip.guard {
        GuardId::Loop => {
            let names_itself = |tool: &&ToolCall| exact(&tool.name).is_some();
            drafts.of_loop(trip, tool.filter(names_itself).map(|tool| tool.name.as_str()));
        }
        GuardId::TextLoop => drafts.of_text_loop(),
        GuardId::Similarity => drafts.of_similarity(trip),
        GuardId::Harm => {
            for harm in tool.into_iter().flat_map(|tool| &tool.harms) {
                let deed = harm.deed();
                let Some(pattern) = exact(&deed) else { continue };
                drafts.add("allow_deed", format!("Allow `{deed}`, and only that"), |policy| {
                    policy.harm.allow.push(pattern);
                });
            }
        }
        GuardId::Destructive => {
            for target in tool.into_iter().flat_map(ToolCall::destroys) {
                let target = &target.target;
                let Some(pattern) = exact(target) else { continue };
                let words = format!("Do not count what destroys `{target}`");
                drafts.add("exempt_target", words, |policy| {
                    policy.destructive.exempt_targets.push(pattern);
                });
            }
            drafts.of_limit(trip);
        }
        GuardId::Access => drafts.of_access(tool.map(|tool| tool.name.as_str())),
        _ => drafts.of_limit(trip),
    }
    drafts.found
}

/// The pattern for one text and no other. The text is the agent's: with a `*` in it, as in `rm -rf *`,
/// it would stand for more than the person has seen, and there is none.
fn exact(text: &str) -> Option<Pattern> {
    Some(Pattern::new(text)).filter(|pattern| pattern.is_exact() && !text.is_empty())
}

/// Exceptions that are being made.
struct Drafts<'a> {
    policies: &'a PolicySet,
    kind: ScopeKind,
    found: Vec<Exception>,
}

impl Drafts<'_> {
    fn policy(&self) -> &Policy {
        self.policies.of(self.kind)
    }

    /// Adds one, unless it changes nothing.
    fn add(&mut self, id: &'static str, words: String, change: impl FnOnce(&mut Policy)) {
        let mut policies = self.policies.clone();
        change(match self.kind {
            ScopeKind::Project => &mut policies.project,
            ScopeKind::Agent => &mut policies.agent,
            ScopeKind::Session => &mut policies.session,
            ScopeKind::Nested => &mut policies.nested,
        });
        let known = self.found.iter().any(|other| other.policies == policies);
        if policies != *self.policies && !known {
            self.found.push(Exception { id, words, policies });
        }
    }

    /// A loop of one tool: more repeats for that tool, then any number. A loop of several: more
    /// repeats for all.
    fn of_loop(&mut self, trip: &Trip, tool: Option<&str>) {
        let loops = &self.policy().loops;
        let single = !matches!(trip.reason.as_str(), "ping_pong" | "cycle" | "no_progress");
        let count = match trip.measured {
            Measure::Count(count) => u32::try_from(count).unwrap_or(u32::MAX),
            _ => 0,
        };
        let mut rungs = [loops.steer_at, loops.block_at, loops.end_at];
        if rungs.iter().all(|rung| *rung == Rung::Off) {
            let at = Rung::At(loops.threshold);
            match loops.action {
                Action::Block => rungs[1] = at,
                Action::Terminate => rungs[2] = at,
                _ => rungs[0] = at,
            }
        }
        let own = tool.and_then(|tool| loops.tools.get(&Pattern::new(tool)));
        if let Some(own) = own {
            rungs = [own.steer_at, own.block_at, own.end_at];
        }
        // Every rung is doubled until the streak that tripped would not have been refused.
        let lowest = rungs.iter().skip(1).filter_map(|rung| rung.count()).min();
        let mut factor = 2_u32;
        while lowest.is_some_and(|at| at.saturating_mul(factor) <= count) && factor < 1 << 16 {
            factor = factor.saturating_mul(2);
        }
        let more = rungs.map(|rung| raised(rung, factor));
        let [steer_at, block_at, end_at] = more;
        let upto = more.into_iter().filter_map(Rung::count).max().unwrap_or_default();
        match tool.filter(|_| single) {
            Some(tool) => {
                let words = format!(
                    "Let `{tool}` repeat {factor} times as often: up to {upto} times without news"
                );
                let limits = ToolLimits { ignore: false, steer_at, block_at, end_at };
                let name = Pattern::new(tool);
                self.add("tool_limits", words, |policy| {
                    policy.loops.tools.insert(name, limits);
                });
                let words = format!("Never take repeats of `{tool}` for a loop");
                let name = Pattern::new(tool);
                self.add("ignore_tool", words, |policy| {
                    let ignored = ToolLimits { ignore: true, ..ToolLimits::default() };
                    policy.loops.tools.insert(name, ignored);
                });
            }
            None => {
                let words = format!("Let every round of calls repeat {factor} times as often");
                self.add("ladder", words, |policy| {
                    let loops = &mut policy.loops;
                    (loops.steer_at, loops.block_at, loops.end_at) = (steer_at, block_at, end_at);
                });
            }
        }
    }

    fn of_text_loop(&mut self) {
        let words = "Let answers repeat twice as often".to_owned();
        self.add("ladder", words, |policy| {
            let texts = &mut policy.text_loop;
            texts.steer_at = raised(texts.steer_at, 2);
            texts.end_at = raised(texts.end_at, 2);
            texts.max_repeated_answers = texts.max_repeated_answers.saturating_mul(2);
        });
    }

    fn of_similarity(&mut self, trip: &Trip) {
        let Measure::Score(score) = trip.measured else { return };
        let threshold = score.floor() + 1.0;
        let words = format!("Let requests be alike up to a score of {threshold}");
        self.add("threshold", words, |policy| policy.similarity.threshold = threshold);
    }

    /// A tool that is denied by its own name is no longer denied. Patterns stay: they may be meant.
    fn of_access(&mut self, tool: Option<&str>) {
        let Some(tool) = tool else { return };
        let words = format!("Do not deny `{tool}`");
        let name = Pattern::new(tool);
        self.add("undeny", words, |policy| policy.access.deny.retain(|other| *other != name));
        let (words, name) = (format!("Allow `{tool}`, too"), Pattern::new(tool));
        self.add("allow_tool", words, |policy| {
            if !policy.access.allow.is_empty() {
                policy.access.allow.push(name);
            }
        });
    }

    /// The limit that was reached, twice as high.
    fn of_limit(&mut self, trip: &Trip) {
        let words = format!("Twice the limit that was reached ({})", trip.limit);
        let (guard, reason) = (trip.guard, trip.reason.as_str());
        self.add("raise_limit", words, |policy| match (guard, trip.limit) {
            (GuardId::Steps, _) if reason == "max_model_calls" => {
                twice(&mut policy.steps.max_model_calls);
            }
            (GuardId::Steps, _) => twice(&mut policy.steps.max_steps),
            (GuardId::Time, _) => {
                if let Some(most) = &mut policy.time.max_wall_time_seconds {
                    most.0 = most.0.saturating_mul(TWICE);
                }
            }
            (GuardId::Budget, _) => {
                if let Some(most) = &mut policy.budget.max_cost_usd {
                    most.0.0 = most.0.0.saturating_mul(2);
                }
            }
            (GuardId::Tokens, Measure::Tokens(limit)) => {
                let tokens = &mut policy.tokens;
                let all = [
                    &mut tokens.input_token_limit,
                    &mut tokens.output_token_limit,
                    &mut tokens.total_token_limit,
                ];
                for most in all.into_iter().flatten().filter(|most| **most == limit) {
                    most.0 = most.0.saturating_mul(TWICE);
                }
            }
            (GuardId::Velocity, Measure::Tokens(_)) => {
                if let Some(most) = &mut policy.velocity.max_tokens_per_minute {
                    most.0 = most.0.saturating_mul(TWICE);
                }
            }
            (GuardId::Velocity, _) => {
                if let Some(most) = &mut policy.velocity.max_usd_per_minute {
                    most.0.0 = most.0.0.saturating_mul(2);
                }
            }
            (GuardId::Destructive, _) => {
                let limits = &mut policy.destructive;
                limits.max_deletes = limits.max_deletes.saturating_mul(2).min(1000);
                limits.max_same_target = limits.max_same_target.saturating_mul(2).min(1000);
            }
            (GuardId::Strikes, _) => {
                let limits = &mut policy.strikes;
                limits.consecutive_blocks = limits.consecutive_blocks.saturating_mul(2);
                limits.consecutive_errors = limits.consecutive_errors.saturating_mul(2);
            }
            (GuardId::Breaker, _) => {
                let most = &mut policy.breaker.open_after_failures;
                *most = most.saturating_mul(2);
            }
            _ => {}
        });
    }
}

fn raised(rung: Rung, factor: u32) -> Rung {
    match rung {
        Rung::Off => Rung::Off,
        Rung::At(at) => Rung::At(at.saturating_mul(factor).min(deadstop_core::HIGHEST_RUNG)),
    }
}

fn twice(most: &mut Option<u64>) {
    if let Some(most) = most {
        *most = most.saturating_mul(TWICE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deadstop_core::{Harm, Link, Preset, Reach, ScopeState, Time, admit};

    /// The first trip that stops a call made again and again, and the call.
    fn stopped(call: &Call, policies: &PolicySet) -> Option<Trip> {
        let mut session = ScopeState::new(ScopeKind::Session, Time(0));
        for at in 1..40 {
            let mut chain = [Link { name: "s", state: &mut session, policy: &policies.session }];
            let admission = admit(&mut chain, call, Time(at * 10));
            let Some(ticket) = admission.ticket else { return admission.trips.into_iter().next() };
            let result = Some(deadstop_core::ResultFacts::default());
            let outcome = deadstop_core::Outcome { result, ..Default::default() };
            deadstop_core::settle(&mut chain, call, ticket, &outcome, Time(at * 10 + 1));
        }
        None
    }

    fn tool(name: &str, harms: Vec<Harm>) -> Call {
        Call::Tool(ToolCall { name: name.into(), harms, ..ToolCall::default() })
    }

    #[test]
    fn each_exception_is_for_one_thing_and_keeps_the_rest() {
        let strict = Preset::Strict.policies();
        let call = tool("get_build", Vec::new());
        let trip = stopped(&call, &strict).unwrap();
        let found = exceptions(&trip, ScopeKind::Session, Some(&call), &strict);
        assert_eq!(
            found.iter().map(|one| one.id).collect::<Vec<_>>(),
            ["tool_limits", "ignore_tool"]
        );
        let later = stopped(&call, &found[0].policies).unwrap();
        let (Measure::Count(before), Measure::Count(after)) = (trip.measured, later.measured)
        else {
            panic!("{later:?}")
        };
        assert!(after > before, "{later:?}");
        assert_eq!(stopped(&call, &found[1].policies), None);
        for one in &found {
            let other = stopped(&tool("other", Vec::new()), &one.policies).unwrap();
            assert_eq!(other.measured, trip.measured, "another tool is judged as before");
        }
    }

    #[test]
    fn a_deed_is_allowed_and_no_other() {
        let strict = Preset::Strict.policies();
        let deed = |target: &str| {
            let harm = Harm { reach: Reach::Home, ..Harm::destroys("rm -rf", target) };
            tool("bash", vec![harm])
        };
        let trip = stopped(&deed("~/old"), &strict).unwrap();
        assert_eq!(trip.guard, GuardId::Harm);
        let found = exceptions(&trip, ScopeKind::Session, Some(&deed("~/old")), &strict);
        let guard = |call: &Call| stopped(call, &found[0].policies).map(|trip| trip.guard);
        assert_ne!(guard(&deed("~/old")), Some(GuardId::Harm));
        assert_eq!(guard(&deed("~")), Some(GuardId::Harm));
        // In a policy `rm -rf ~/*` would stand for everything in the home directory.
        let wide = deed("~/*");
        let trip = stopped(&wide, &strict).unwrap();
        assert_eq!(exceptions(&trip, ScopeKind::Session, Some(&wide), &strict), []);
    }

    #[test]
    fn a_limit_is_doubled_and_a_projects_is_not() {
        let mut policies = Preset::Observe.policies();
        policies.session.steps.max_steps = Some(3);
        let call = tool("look", Vec::new());
        let mut session = ScopeState::new(ScopeKind::Session, Time(0));
        policies.session.loops.enabled = false;
        let trip = (0..9).find_map(|at| {
            let mut chain = [Link { name: "s", state: &mut session, policy: &policies.session }];
            admit(&mut chain, &call, Time(at)).trips.into_iter().find(|t| t.guard == GuardId::Steps)
        });
        let trip = trip.unwrap();
        let found = exceptions(&trip, ScopeKind::Session, Some(&call), &policies);
        assert_eq!(found[0].policies.session.steps.max_steps, Some(6));
        assert_eq!(exceptions(&trip, ScopeKind::Project, Some(&call), &policies), []);
    }
}
