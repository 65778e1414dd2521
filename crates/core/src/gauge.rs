//! Gauges: what the guards of a scope measure at a moment, each against its limit.
//!
//! A view for people, not for decisions: it reads a state under a policy and changes nothing. Each
//! guard says what it measures beside its own check, so that the two cannot drift apart.

use serde::Serialize;

use crate::call::Digest;
use crate::guard::GUARDS;
use crate::policy::Policy;
use crate::scope::ScopeState;
use crate::trip::{GuardId, Measure, Signal, Trip};
use crate::units::Time;

/// One thing that a guard measures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gauge {
    /// Which guard.
    pub guard: GuardId,
    /// What it measures, as a stable word, such as `cost` or `calls_without_news`.
    pub what: &'static str,
    /// How much that is now.
    pub measured: Measure,
    /// From where on it trips.
    pub limit: Measure,
    /// How near that is: 0 is nothing, 1 is the limit.
    pub share: f64,
    /// The parts of a score, where it is one.
    pub signals: Vec<Signal>,
    /// The server that it is about, where it is about one.
    pub server: Option<Digest>,
}

impl Gauge {
    pub(crate) fn new(
        guard: GuardId,
        what: &'static str,
        measured: Measure,
        limit: Measure,
    ) -> Gauge {
        let most = limit.amount();
        let share = if most > 0.0 { measured.amount() / most } else { 0.0 };
        Gauge { guard, what, measured, limit, share, signals: Vec::new(), server: None }
    }

    /// Puts what a trip measured in the place of what its guard measures by itself, at the call that
    /// tripped: the guard counted that call, too, and the tool may have limits of its own. So the
    /// gauge and the sentence of a trip have the same numbers. What is used up is at its limit
    /// without the call that was refused, and stays so.
    ///
    /// ```
    /// use deadstop_core::*;
    /// let mut session = ScopeState::new(ScopeKind::Session, Time(0));
    /// let mut policy = Policy::none();
    /// policy.destructive.enabled = true;
    /// policy.destructive.max_deletes = 1;
    /// policy.destructive.action = Action::Terminate;
    /// let harms = vec![Harm::destroys("rm", "t")];
    /// let call = Call::Tool(ToolCall { harms, ..ToolCall::default() });
    /// let mut chain = [Link { name: "s1", state: &mut session, policy: &policy }];
    /// let refused = admit(&mut chain, &call, Time(1));
    /// let mut gauges = session.gauges(&policy, Time(1));
    /// assert_eq!(gauges[0].measured, Measure::Count(0));
    /// Gauge::told(&mut gauges, &refused.trips[0]);
    /// assert_eq!((gauges[0].measured, gauges[0].limit), (Measure::Count(1), Measure::Count(1)));
    /// ```
    pub fn told(gauges: &mut [Gauge], trip: &Trip) {
        let alike = |one: Measure, other: Measure| {
            std::mem::discriminant(&one) == std::mem::discriminant(&other)
        };
        if !alike(trip.measured, trip.limit) || matches!(trip.limit, Measure::None) {
            return;
        }
        let fits =
            |gauge: &&mut Gauge| gauge.guard == trip.guard && alike(gauge.measured, trip.measured);
        // Of several that one guard has, the one with the trip's limit; they come nearest first.
        let best = gauges.iter_mut().filter(fits).min_by_key(|gauge| gauge.limit != trip.limit);
        let ladder = matches!(trip.guard, GuardId::Loop | GuardId::TextLoop);
        if let Some(gauge) = best.filter(|gauge| ladder || gauge.share < 1.0) {
            let told = Gauge::new(trip.guard, gauge.what, trip.measured, trip.limit);
            let signals = if trip.signals.is_empty() { &gauge.signals } else { &trip.signals };
            *gauge = Gauge { signals: signals.clone(), server: gauge.server, ..told };
        }
        gauges.sort_by(|a, b| b.share.total_cmp(&a.share));
    }

    /// A number of things.
    pub(crate) fn count(guard: GuardId, what: &'static str, measured: u64, limit: u64) -> Gauge {
        Gauge::new(guard, what, Measure::Count(measured), Measure::Count(limit))
    }
}

/// What a guard looks at to say what it measures.
pub(crate) struct Dial<'a> {
    pub(crate) scope: &'a ScopeState,
    pub(crate) policy: &'a Policy,
    pub(crate) now: Time,
}

impl ScopeState {
    /// What the guards measure in this scope, the nearest to its limit first. What has no limit, or
    /// is switched off, is not measured.
    ///
    /// ```
    /// use deadstop_core::*;
    /// let mut session = ScopeState::new(ScopeKind::Session, Time(0));
    /// let mut policy = Policy::none();
    /// policy.steps.max_steps = Some(4);
    /// let mut chain = [Link { name: "s1", state: &mut session, policy: &policy }];
    /// admit(&mut chain, &Call::Tool(ToolCall::default()), Time(1));
    /// let gauges = session.gauges(&policy, Time(2));
    /// assert_eq!((gauges[0].what, gauges[0].share), ("tool_calls", 0.25));
    /// ```
    pub fn gauges(&self, policy: &Policy, now: Time) -> Vec<Gauge> {
        let dial = Dial { scope: self, policy, now };
        let mut found: Vec<Gauge> = GUARDS.iter().flat_map(|guard| guard.gauges(&dial)).collect();
        found.sort_by(|a, b| b.share.total_cmp(&a.share));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Call, ModelCall, Outcome, ResultFacts, Status, ToolCall};
    use crate::engine::{admit, settle};
    use crate::guard::strikes::Blocked;
    use crate::harm::Harm;
    use crate::policy::{Mode, PolicySet, Preset};
    use crate::scope::{Link, ScopeKind};
    use crate::settings::{Dollars, Seconds};
    use crate::trip::Verdict;
    use crate::units::{NanoUsd, Tokens};

    /// One agent and one session, and calls that end as soon as they are made.
    struct Bench {
        policies: PolicySet,
        agent: ScopeState,
        session: ScopeState,
        now: Time,
    }

    impl Bench {
        fn new() -> Bench {
            let mut policies = Preset::Observe.policies();
            for policy in [&mut policies.agent, &mut policies.session] {
                policy.mode = Mode::LogOnly;
            }
            let new = |kind| ScopeState::new(kind, Time(0));
            let (agent, session) = (new(ScopeKind::Agent), new(ScopeKind::Session));
            Bench { policies, agent, session, now: Time(0) }
        }

        fn call(&mut self, call: &Call, outcome: &Outcome) {
            self.now = Time(self.now.0 + 1000);
            let mut chain = [
                Link { name: "a", state: &mut self.agent, policy: &self.policies.agent },
                Link { name: "s", state: &mut self.session, policy: &self.policies.session },
            ];
            let ticket = admit(&mut chain, call, self.now).ticket.unwrap();
            settle(&mut chain, call, ticket, outcome, self.now);
        }

        fn read(&self, state: &ScopeState, what: &str) -> Option<(Measure, Measure)> {
            let policy = self.policies.of(state.kind());
            let gauges = state.gauges(policy, self.now);
            assert!(gauges.is_sorted_by(|a, b| a.share >= b.share), "{gauges:?}");
            gauges.iter().find(|g| g.what == what).map(|g| (g.measured, g.limit))
        }
    }

    fn tool(name: &str, server: Option<&str>) -> Call {
        let signature = crate::call::Digest::of(name.as_bytes());
        let server = server.map(str::to_owned);
        Call::Tool(ToolCall { name: name.into(), signature, server, ..ToolCall::default() })
    }

    fn ended(status: Status) -> Outcome {
        Outcome { status, result: Some(ResultFacts::default()), ..Outcome::default() }
    }

    fn counts(measured: u64, limit: u64) -> Option<(Measure, Measure)> {
        Some((Measure::Count(measured), Measure::Count(limit)))
    }

    #[test]
    fn loops_destruction_and_strikes_are_counted_as_their_guards_count() {
        let mut bench = Bench::new();
        assert_eq!(bench.read(&bench.session, "calls_without_news"), counts(0, 5));
        for _ in 0..4 {
            bench.call(&tool("look", None), &ended(Status::Ok));
        }
        assert_eq!(bench.read(&bench.session, "calls_without_news"), counts(4, 5));
        let harms = vec![Harm::destroys("rm", "t")];
        let delete = Call::Tool(ToolCall { harms, ..ToolCall::default() });
        bench.call(&delete, &ended(Status::Fault));
        bench.call(&delete, &ended(Status::Fault));
        assert_eq!(bench.read(&bench.session, "destructive_calls"), counts(2, 3));
        assert_eq!(bench.read(&bench.session, "destroyed_same_target"), counts(2, 3));
        assert_eq!(bench.read(&bench.session, "faults_in_a_row"), counts(2, 3));
        bench.session.refused(Blocked::Tool);
        assert_eq!(bench.read(&bench.session, "blocks_in_a_row"), counts(1, 5));
        bench.now = Time(bench.now.0 + 61_000);
        assert_eq!(bench.read(&bench.session, "destructive_calls"), counts(0, 3));
    }

    /// A stop said "5 times (limit 5)" beside a gauge of 3 of 5.
    #[test]
    fn the_gauge_of_a_loop_has_the_numbers_of_its_trips() {
        let mut bench = Bench::new();
        bench.policies.session.loops.single_rung();
        let loops = &mut bench.policies.session.loops;
        (loops.block_at, loops.end_at) = (crate::ladder::Rung::At(4), crate::ladder::Rung::At(7));
        for policy in [&mut bench.policies.agent, &mut bench.policies.session] {
            policy.mode = Mode::Enforce;
        }
        let (call, mut told) = (tool("look", None), Vec::new());
        for at in 1..=7 {
            let mut chain = [
                Link { name: "a", state: &mut bench.agent, policy: &bench.policies.agent },
                Link { name: "s", state: &mut bench.session, policy: &bench.policies.session },
            ];
            let now = Time(at * 100);
            let admission = admit(&mut chain, &call, now);
            if let Some(ticket) = admission.ticket {
                settle(&mut chain, &call, ticket, &ended(Status::Ok), now);
            }
            bench.now = now;
            let gauge = bench.read(&bench.session, "calls_without_news");
            for trip in admission.trips.iter().filter(|trip| trip.verdict >= Verdict::Block) {
                assert_eq!(gauge, Some((trip.measured, trip.limit)), "{}", trip.because);
                told.push((trip.verdict, trip.measured));
            }
        }
        let count = |verdict, count| (verdict, Measure::Count(count));
        let blocks = [4, 5, 6].map(|at| count(Verdict::Block, at));
        assert_eq!(told, [&blocks[..], &[count(Verdict::Kill, 7)]].concat());
    }

    #[test]
    fn a_breaker_is_read_per_server_and_an_open_one_is_at_its_limit() {
        let mut bench = Bench::new();
        for _ in 0..4 {
            bench.call(&tool("get", Some("files")), &ended(Status::Error));
        }
        let policy = bench.policies.agent.clone();
        let read = |bench: &Bench| {
            let gauges = bench.agent.gauges(&policy, bench.now);
            gauges.into_iter().find(|g| g.guard == GuardId::Breaker).unwrap()
        };
        let gauge = read(&bench);
        assert_eq!((gauge.what, gauge.share), ("failures_in_a_row", 0.8));
        assert_eq!(gauge.server, Some(Digest::of(b"files")));
        bench.call(&tool("get", Some("files")), &ended(Status::Error));
        let gauge = read(&bench);
        assert_eq!((gauge.what, gauge.share), ("circuit_open", 1.0));
        bench.now = Time(bench.now.0 + 31_000);
        assert_eq!(read(&bench).what, "circuit_half_open");
    }

    #[test]
    fn money_tokens_steps_time_and_pace_have_their_limits() {
        let mut bench = Bench::new();
        let policy = &mut bench.policies.session;
        policy.budget.max_cost_usd = Some(Dollars(NanoUsd(1_000_000_000)));
        policy.tokens.total_token_limit = Some(Tokens(1000));
        policy.steps.max_model_calls = Some(10);
        policy.time.max_wall_time_seconds = Some(Seconds(100));
        policy.velocity.max_tokens_per_minute = Some(Tokens(500));
        let call = Call::Model(ModelCall {
            model: "m".into(),
            input: Tokens(100),
            rates: crate::call::Rates { input: NanoUsd(1_000_000_000_000), ..Default::default() },
            ..ModelCall::default()
        });
        let usage =
            crate::call::Usage { input: Tokens(100), output: Tokens(50), ..Default::default() };
        bench.call(&call, &Outcome { usage, ..Outcome::default() });
        let session = &bench.session;
        let money = Measure::Money(NanoUsd(100_000_000));
        assert_eq!(bench.read(session, "cost").unwrap().0, money);
        assert_eq!(bench.read(session, "tokens").unwrap().0, Measure::Tokens(Tokens(150)));
        assert_eq!(bench.read(session, "model_calls"), counts(1, 10));
        assert_eq!(bench.read(session, "tokens_a_minute").unwrap().0, Measure::Tokens(Tokens(150)));
        assert!(bench.read(session, "time").is_some());
        assert_eq!(bench.read(session, "tool_calls"), None, "no limit, no gauge");
    }

    #[test]
    fn a_score_comes_with_its_parts() {
        let mut bench = Bench::new();
        let text = crate::text::TextFacts::of(
            "I could not find the file that you named, shall I look for it in another folder?",
        );
        let call = Call::Model(ModelCall { prompt: Some(text), ..ModelCall::default() });
        let answer = Some(crate::call::Answer { text: Some(text), calls: None });
        for _ in 0..3 {
            bench.call(&call, &Outcome { answer, ..Outcome::default() });
        }
        let gauges = bench.session.gauges(&bench.policies.session, bench.now);
        let score = gauges.iter().find(|g| g.guard == GuardId::Similarity).unwrap();
        assert_eq!((score.measured, score.limit), (Measure::Score(6.0), Measure::Score(10.0)));
        let parts: Vec<_> = score.signals.iter().map(|s| (s.name.as_str(), s.count)).collect();
        let expected =
            [("similar_prompts", 2), ("similar_responses", 2), ("repeated_tool_calls", 0)];
        assert_eq!(parts, expected);
        // The same answer to the same words of a program counts more than one.
        assert_eq!(bench.read(&bench.session, "answers_that_repeat"), counts(4, 5));
    }
}
