//! The engine's three moments, over small chains of scopes.

use super::*;
use crate::call::{Digest, ModelCall, Rates, ToolCall, Usage};
use crate::harm::Harm;
use crate::ledger::{Ledger, Reservation, Spent};
use crate::pattern::Pattern;
use crate::policy::Policy;
use crate::scope::{Final, ScopeState};
use crate::settings::{Dollars, Seconds};
use crate::trip::{Action, Context, Measure};
use crate::units::{Millis, NanoUsd};

mod asking;
mod blaming;
mod detectors;
mod ending;
mod granting;
mod harming;
mod periods;
mod reservations;
mod standing;
mod striking;
mod swarming;

/// Named scopes, parents before their children; a path such as `p/a/s` picks a chain.
#[derive(Default)]
struct World(Vec<(&'static str, ScopeState, Policy)>);

impl World {
    fn with(mut self, name: &'static str, policy: Policy) -> World {
        let kind = match &name[..1] {
            "p" => ScopeKind::Project,
            "a" => ScopeKind::Agent,
            "s" => ScopeKind::Session,
            _ => ScopeKind::Nested,
        };
        self.0.push((name, ScopeState::new(kind, Time(0)), policy));
        self
    }

    /// A chain in which only one scope has a policy.
    fn only(path: &'static str, depth: usize, policy: &Policy) -> World {
        let names = path.split('/').enumerate();
        names.fold(World::default(), |world, (at, name)| {
            world.with(name, if at == depth { policy.clone() } else { Policy::none() })
        })
    }

    fn chain(&mut self, path: &str) -> Vec<Link<'_>> {
        let wanted: Vec<&str> = path.split('/').collect();
        let chosen = self.0.iter_mut().filter(|(name, ..)| wanted.contains(name));
        chosen.map(|(name, state, policy)| Link { name, state, policy }).collect()
    }

    fn state(&mut self, name: &str) -> &mut ScopeState {
        &mut self.0.iter_mut().find(|(n, ..)| *n == name).unwrap().1
    }

    fn policy(&mut self, name: &str) -> &mut Policy {
        &mut self.0.iter_mut().find(|(n, ..)| *n == name).unwrap().2
    }

    fn states(&self) -> Vec<ScopeState> {
        self.0.iter().map(|(_, state, _)| state.clone()).collect()
    }

    fn killed(&self) -> Vec<&'static str> {
        self.0.iter().filter(|(_, state, _)| state.kill.is_some()).map(|(name, ..)| *name).collect()
    }

    fn admit(&mut self, path: &str, call: &Call, now: u64) -> Admission {
        admit(&mut self.chain(path), call, Time(now))
    }

    fn start(&mut self, path: &str, call: &Call, now: u64) -> Ticket {
        self.admit(path, call, now).ticket.unwrap()
    }

    fn stream(&mut self, path: &str, call: &Call, ticket: &mut Ticket, output: u64) -> Decision {
        let so_far = Progress { output: Tokens(output), text: "" };
        progress(&mut self.chain(path), call, ticket, so_far, Time(2000))
    }

    fn settle(&mut self, path: &str, call: &Call, ticket: Ticket, outcome: &Outcome) -> Decision {
        settle(&mut self.chain(path), call, ticket, outcome, Time(2000))
    }
}

fn tool(name: &str) -> Call {
    Call::Tool(ToolCall { name: name.into(), ..ToolCall::default() })
}

fn delete() -> Call {
    let harms = vec![Harm::destroys("rm", "x")];
    Call::Tool(ToolCall { name: "rm".into(), harms, ..ToolCall::default() })
}

/// A tenth of a cent for a token read, a fifth for one written.
const RATES: Rates = Rates {
    input: NanoUsd(1_000_000_000_000),
    output: NanoUsd(2_000_000_000_000),
    cache_read: NanoUsd(100_000_000_000),
    cache_write: NanoUsd(1_250_000_000_000),
};

fn model(input: u64, max_output: Option<u64>) -> Call {
    Call::Model(ModelCall {
        model: "gpt".into(),
        rates: RATES,
        input: Tokens(input),
        max_output: max_output.map(Tokens),
        ..ModelCall::default()
    })
}

fn used(input: u64, output: u64) -> Outcome {
    let usage = Usage { input: Tokens(input), output: Tokens(output), ..Usage::default() };
    Outcome { usage, ..Outcome::default() }
}

fn cents(cents: u64) -> NanoUsd {
    NanoUsd(cents * 10_000_000)
}

fn dollars(cents_: u64) -> Option<Dollars> {
    Some(Dollars(cents(cents_)))
}

fn policy(change: impl FnOnce(&mut Policy)) -> Policy {
    let mut policy = Policy::none();
    change(&mut policy);
    policy
}

fn steps(limit: u64, action: Action) -> Policy {
    policy(|p| {
        p.steps.max_steps = Some(limit);
        p.steps.action = action;
    })
}

/// A policy that finds fault with the first call of any kind, at 10 seconds, each for its reason.
fn refusals(action: Action) -> Vec<(&'static str, Policy)> {
    vec![
        (
            "tool_denied",
            policy(|p| {
                p.access.deny = vec![Pattern::new("*")];
                p.access.action = action;
            }),
        ),
        (
            "input_exceeded",
            policy(|p| {
                p.tokens.input_token_limit = Some(Tokens(9));
                p.tokens.action = action;
            }),
        ),
        (
            "budget_exceeded",
            policy(|p| {
                p.budget.max_cost_usd = Some(Dollars(NanoUsd(1)));
                p.budget.action = action;
                p.budget.tool_prices = [(Pattern::new("*"), Dollars(cents(1)))].into();
            }),
        ),
        (
            "wall_time_exceeded",
            policy(|p| {
                p.time.max_wall_time_seconds = Some(Seconds(9));
                p.time.action = action;
            }),
        ),
        (
            "token_velocity_exceeded",
            policy(|p| {
                p.velocity.max_tokens_per_minute = Some(Tokens(9));
                p.velocity.action = action;
            }),
        ),
        (
            "destructive_target",
            policy(|p| {
                p.destructive.enabled = true;
                p.destructive.max_same_target = 1;
                p.destructive.action = action;
            }),
        ),
    ]
}

#[test]
fn the_strictest_verdict_wins_and_comes_first() {
    let mut project = steps(1, Action::Warn);
    project.time.max_wall_time_seconds = Some(Seconds(1));
    project.time.action = Action::Block;
    let mut world = World::default()
        .with("p", project)
        .with("a", steps(1, Action::Block))
        .with("s", steps(1, Action::Terminate))
        .with("n", steps(1, Action::Terminate));
    world.start("p/a/s/n", &tool("ls"), 0);
    let admission = world.admit("p/a/s/n", &tool("ls"), 5000);
    assert_eq!(admission.verdict, Verdict::Kill);
    assert_eq!(admission.ticket, None);
    let order: Vec<_> = admission
        .trips
        .iter()
        .map(|trip| (trip.verdict, trip.context.who.as_str(), trip.guard))
        .collect();
    assert_eq!(
        order,
        [
            (Verdict::Kill, "s", GuardId::Steps),
            (Verdict::Kill, "n", GuardId::Steps),
            (Verdict::Block, "p", GuardId::Time),
            (Verdict::Block, "a", GuardId::Steps),
            (Verdict::Warn, "p", GuardId::Steps),
        ]
    );
    assert_eq!(admission.decisive(), admission.trips.first());
    assert_eq!(world.killed(), ["s", "n"]);
}

#[test]
fn a_decision_allows_up_to_a_warning() {
    for (verdict, allowed) in [
        (Verdict::Allow, true),
        (Verdict::Warn, true),
        (Verdict::Block, false),
        (Verdict::Kill, false),
    ] {
        let decision = Decision { verdict, ..Decision::default() };
        assert_eq!((decision.allowed(), decision.decisive()), (allowed, None), "{verdict}");
    }
    let mut world = World::only("s", 0, &steps(1, Action::Warn));
    world.start("s", &tool("ls"), 0);
    let ticket = world.start("s", &tool("ls"), 0);
    assert_eq!(ticket.number, 2);
    let killed = policy(|p| p.tokens.output_token_limit = Some(Tokens(1)));
    let mut world = World::only("s", 0, &killed);
    let call = model(0, Some(1));
    let ticket = world.start("s", &call, 0);
    let decision = world.settle("s", &call, ticket, &used(0, 2));
    assert_eq!(decision.decisive(), decision.trips.first());
    assert_eq!(decision.decisive().unwrap().reason, "output_exceeded");
}

#[test]
fn a_kill_ends_all_below_and_nothing_else() {
    let all = ["p/a1/s1/n1", "p/a1/s1", "p/a1/s2", "p/a2/s3", "p/a2"];
    let check = |name: &str, expected: &[&str], reason: &str, kind: &str| {
        let mut world = ["p", "a1", "s1", "n1", "s2", "a2", "s3"]
            .into_iter()
            .fold(World::default(), |world, name| world.with(name, Policy::none()));
        world.state(name).kill("ada", "it deletes my mail", Time(1000));
        let before = world.states();
        for path in all {
            let admission = world.admit(path, &tool("ls"), 6000);
            let dead = expected.contains(&path);
            assert_eq!(admission.verdict == Verdict::Kill, dead, "{name} and {path}");
            assert_eq!(admission.ticket.is_none(), dead, "{name} and {path}");
            if dead {
                let trip = admission.decisive().unwrap();
                assert_eq!(trip.guard, GuardId::Killed);
                assert_eq!(trip.reason, reason);
                let why =
                    format!("the {kind} {name} was killed 5 s ago by ada: it deletes my mail");
                assert_eq!(trip.explain(), format!("stopped: {why}"));
                assert!(!trip.drains);
            }
        }
        if expected.len() == all.len() {
            assert_eq!(world.states(), before, "a refusal by a kill leaves no trace");
        }
    };
    check("p", &all, "project_killed", "project");
    check("a1", &["p/a1/s1/n1", "p/a1/s1", "p/a1/s2"], "agent_killed", "agent");
    check("s1", &["p/a1/s1/n1", "p/a1/s1"], "session_killed", "session");
    check("n1", &["p/a1/s1/n1"], "scope_killed", "scope");
}

#[test]
fn what_a_guard_ended_is_refused_with_the_guards_code() {
    for (guard, reason) in [
        (GuardId::Loop, "session_killed_loop_guard"),
        (GuardId::Budget, "session_killed_budget"),
        (GuardId::Steps, "session_killed_steps"),
        (GuardId::Tokens, "session_killed_tokens"),
        (GuardId::Time, "session_killed_time"),
        (GuardId::Strikes, "session_killed"),
    ] {
        let mut world = World::only("a/s", 0, &Policy::none());
        let kill = crate::scope::Kill {
            at: Time(1000),
            guard: Some(guard),
            because: "of this".into(),
            by: "s".into(),
            drains: false,
        };
        world.state("s").end(kill);
        let trip = world.admit("a/s", &tool("ls"), 4000).trips.remove(0);
        assert_eq!((trip.guard, trip.reason.as_str()), (GuardId::Killed, reason));
        assert_eq!(trip.because, format!("the session s was ended 3 s ago by {guard}: of this"));
    }
}

/// The promise of admission: in every scope, or in none.
#[test]
fn a_refused_call_leaves_no_trace_but_a_strike() {
    for (reason, policy) in refusals(Action::Block) {
        for depth in 0..4 {
            for call in [delete(), model(10, Some(10))] {
                let mut world = World::only("p/a/s/n", depth, &policy);
                let mut expected = world.states();
                let admission = world.admit("p/a/s/n", &call, 10_000);
                if admission.ticket.is_some() {
                    // Model calls have no name to deny and no target; tools no tokens.
                    let expected = matches!(
                        (&call, reason),
                        (Call::Model(_), "tool_denied" | "destructive_target")
                            | (Call::Tool(_), "input_exceeded" | "token_velocity_exceeded")
                    );
                    assert!(expected, "{reason} let {} pass", call.name());
                    continue;
                }
                assert_eq!(admission.verdict, Verdict::Block);
                let told: Vec<_> =
                    admission.trips.iter().map(|t| (t.reason.as_str(), t.context.depth)).collect();
                assert_eq!(told, [(reason, depth)]);
                if admission.trips[0].guard.strikes() {
                    expected.iter_mut().for_each(|state| state.refused(Blocked::of(&call)));
                }
                assert_eq!(world.states(), expected, "{reason} at {depth}");
            }
        }
    }
}

#[test]
fn a_kill_at_admission_changes_nothing_but_the_standing() {
    for (reason, policy) in refusals(Action::Terminate) {
        let call = if reason.contains("velocity") || reason.contains("input") {
            model(10, Some(10))
        } else {
            delete()
        };
        let mut world = World::only("p/a/s/n", 1, &policy);
        let before = world.states();
        let admission = world.admit("p/a/s/n", &call, 10_000);
        assert_eq!((admission.verdict, admission.ticket), (Verdict::Kill, None), "{reason}");
        // The destructive guard ends the session that made the call, the others their own scope.
        let dead = if reason == "destructive_target" { "s" } else { "a" };
        assert_eq!(world.killed(), [dead], "{reason}");
        let kill = world.state(dead).kill.take().unwrap();
        assert_eq!((kill.at, kill.by.as_str()), (Time(10_000), "a"));
        assert_eq!(kill.because, admission.trips[0].because);
        assert_eq!(kill.guard, Some(admission.trips[0].guard));
        assert_eq!(world.states(), before, "{reason}");
    }
}

#[test]
fn warnings_let_the_call_run() {
    for (reason, policy) in refusals(Action::Warn) {
        let call = if reason.contains("velocity") || reason.contains("input") {
            model(10, Some(10))
        } else {
            delete()
        };
        let mut world = World::only("p/a/s", 2, &policy);
        let admission = world.admit("p/a/s", &call, 10_000);
        assert_eq!(admission.verdict, Verdict::Warn, "{reason}");
        assert!(admission.ticket.is_some(), "{reason}");
        assert_eq!(admission.trips[0].reason, reason);
        assert!(admission.trips[0].explain().starts_with("warned: "), "{reason}");
        assert_eq!((world.state("p").calls(), world.killed().len()), (1, 0), "{reason}");
    }
}

#[test]
fn access_is_asked_before_the_other_guards() {
    let mut both = steps(1, Action::Terminate);
    both.access.deny = vec![Pattern::new("rm")];
    let mut world = World::only("p/s", 1, &both);
    world.start("p/s", &tool("ls"), 0);
    let admission = world.admit("p/s", &tool("rm"), 0);
    assert_eq!(admission.verdict, Verdict::Block);
    assert_eq!(admission.trips.len(), 1, "the step limit was not looked at");
    assert_eq!(admission.trips[0].explain(), "blocked: rm is denied by the pattern rm");
    world.policy("s").access.action = Action::Warn;
    let admission = world.admit("p/s", &tool("rm"), 0);
    let reasons: Vec<_> = admission.trips.iter().map(|trip| trip.reason.as_str()).collect();
    assert_eq!(reasons, ["max_steps", "tool_denied"], "after a warning all are asked");
}

#[test]
fn the_ledger_books_what_was_used_in_every_scope() {
    let mut world = World::only("p/a/s", 0, &Policy::none());
    let call = model(100, Some(50));
    let ticket = world.start("p/a/s", &call, 1000);
    assert_eq!((ticket.number, ticket.admitted), (1, Time(1000)));
    let reserved = Reserved { input: Tokens(100), output: Tokens(50), cost: cents(20) };
    assert_eq!(ticket.reserved(), reserved);
    for state in world.states() {
        assert_eq!((state.ledger.reserved, state.ledger.in_flight, state.calls), (reserved, 1, 1));
        let spent = Spent { model_calls: 1, ..Spent::default() };
        assert_eq!(state.ledger.spent, spent, "tokens and money are spent when they are used");
    }
    let usage = Usage {
        input: Tokens(60),
        output: Tokens(30),
        cache_read: Tokens(1000),
        cache_write: Tokens(40),
    };
    let outcome = Outcome { usage, ..Outcome::default() };
    let decision = world.settle("p/a/s", &call, ticket, &outcome);
    assert_eq!((decision.verdict, decision.trips.len()), (Verdict::Allow, 0));
    let tool = tool("ls");
    let ticket = world.start("p/a/s", &tool, 3000);
    assert_eq!((ticket.number, ticket.reserved()), (2, Reserved::default()));
    for state in world.states() {
        let Ledger { spent, reserved, in_flight, period_cost, .. } = state.ledger.clone();
        // 60 × 0.1 ¢ + 30 × 0.2 ¢ + 1000 × 0.01 ¢ + 40 × 0.125 ¢
        let expected = Spent {
            steps: 1,
            model_calls: 1,
            input: Tokens(100),
            output: Tokens(30),
            cache_read: Tokens(1000),
            cost: cents(27),
        };
        assert_eq!((spent, reserved, in_flight), (expected, Reserved::default(), 1));
        assert_eq!((period_cost, state.ledger.committed()), (cents(27), cents(27)));
    }
}

#[test]
fn only_whole_answers_teach_what_to_expect() {
    for (status, expected) in
        [(Status::Ok, 80), (Status::Error, 256), (Status::Fault, 256), (Status::Cancelled, 256)]
    {
        let mut world = World::only("s", 0, &Policy::none());
        let call = model(0, None);
        let ticket = world.start("s", &call, 0);
        let outcome = Outcome { status, ..used(0, 80) };
        world.settle("s", &call, ticket, &outcome);
        assert_eq!(world.start("s", &call, 0).reserved().output, Tokens(expected), "{status:?}");
    }
}

#[test]
fn log_only_warns_where_it_would_have_stopped() {
    for (reason, mut policy) in refusals(Action::Terminate) {
        let call = if reason.contains("velocity") || reason.contains("input") {
            model(10, Some(10))
        } else {
            delete()
        };
        policy.mode = Mode::LogOnly;
        let mut world = World::only("p/a/s", 1, &policy);
        let admission = world.admit("p/a/s", &call, 10_000);
        assert_eq!(admission.verdict, Verdict::Warn, "{reason}");
        assert_eq!(admission.trips[0].reason, reason);
        assert!(admission.ticket.is_some() && world.killed().is_empty());
    }
}

#[test]
fn log_only_holds_in_the_stream_and_at_the_end() {
    let policy = policy(|p| {
        p.mode = Mode::LogOnly;
        p.tokens.output_token_limit = Some(Tokens(10));
    });
    let mut world = World::only("p/s", 1, &policy);
    let call = model(0, Some(10));
    let mut ticket = world.start("p/s", &call, 0);
    let streaming = world.stream("p/s", &call, &mut ticket, 11);
    let ended = world.settle("p/s", &call, ticket, &used(0, 11));
    for decision in [streaming, ended] {
        assert_eq!(decision.verdict, Verdict::Warn);
        assert_eq!(decision.trips[0].reason, "output_exceeded");
    }
    assert!(world.killed().is_empty());
}

#[test]
fn log_only_does_not_overrule_a_person_or_another_scope() {
    let shadow = policy(|p| p.mode = Mode::LogOnly);
    let mut world = World::only("p/s", 1, &shadow);
    world.state("s").pause("ada", "look", Time(0));
    assert_eq!(world.admit("p/s", &tool("ls"), 1).verdict, Verdict::Block);
    world.state("s").kill("ada", "enough", Time(0));
    assert_eq!(world.admit("p/s", &tool("ls"), 1).verdict, Verdict::Kill);

    let mut world = World::default().with("p", steps(1, Action::Block)).with("s", shadow);
    world.start("p/s", &tool("ls"), 0);
    assert_eq!(world.admit("p/s", &tool("ls"), 0).verdict, Verdict::Block);
}

#[test]
fn which_scope_a_kill_ends() {
    fn check(path: &'static str, trips_in: usize, ends: Ends, expected: &str) {
        let policy = policy(|p| {
            p.destructive.enabled = true;
            p.destructive.max_deletes = 1;
            p.destructive.ends = ends;
        });
        let mut world = World::only(path, trips_in, &policy);
        let admission = world.admit(path, &delete(), 10_000);
        assert_eq!(admission.verdict, Verdict::Kill);
        assert_eq!(world.killed(), [expected], "{ends:?} from {trips_in} of {path}");
        let kill = world.state(expected).kill.clone().unwrap();
        assert_eq!(kill.by, path.split('/').nth(trips_in).unwrap());
    }
    for (depth, own) in ["p", "a", "s", "n"].into_iter().enumerate() {
        check("p/a/s/n", depth, Ends::Scope, own);
        check("p/a/s/n", depth, Ends::Session, "s");
        check("p/a/s/n", depth, Ends::Agent, "a");
    }
    // Without such a scope in the chain: the one it happened in.
    check("p/a", 1, Ends::Session, "a");
    check("p/n", 0, Ends::Session, "p");
    check("s/n", 1, Ends::Agent, "n");
    check("s/n", 0, Ends::Agent, "s");
}

#[test]
fn calls_in_flight_may_finish_when_a_limit_is_used_up() {
    let used_up = [
        (steps(1, Action::Terminate), tool("ls"), tool("ls")),
        (policy(|p| p.steps.max_model_calls = Some(1)), model(1, None), model(1, None)),
        (policy(|p| p.budget.max_cost_usd = dollars(30)), model(100, Some(50)), model(301, None)),
        // Found by reading: a used-up token limit cut what was running, unlike the other limits.
        (
            policy(|p| p.tokens.input_token_limit = Some(Tokens(100))),
            model(100, Some(50)),
            model(101, Some(1)),
        ),
    ];
    for (policy, first, second) in used_up {
        let mut world = World::only("p/s", 1, &policy);
        let mut ticket = world.start("p/s", &first, 1000);
        let refused = world.admit("p/s", &second, 1000);
        assert_eq!((refused.verdict, refused.trips[0].drains), (Verdict::Kill, true));
        assert!(world.state("s").killed().unwrap().drains);
        let going_on = world.stream("p/s", &first, &mut ticket, 1);
        assert_eq!((going_on.verdict, going_on.trips.len()), (Verdict::Allow, 0));
        let ended = world.settle("p/s", &first, ticket, &used(100, 50));
        assert_eq!(ended.verdict, Verdict::Allow, "what is dead does not die again");
        assert_eq!(world.admit("p/s", &second, 2000).verdict, Verdict::Kill);
    }
}

#[test]
fn a_persons_kill_cuts_calls_in_flight() {
    for (name, reason) in [("p", "project_killed"), ("s", "session_killed")] {
        let mut world = World::only("p/s", 1, &Policy::none());
        let call = model(10, Some(50));
        let mut ticket = world.start("p/s", &call, 1000);
        world.state(name).kill("ada", "stop", Time(1500));
        let cut = world.stream("p/s", &call, &mut ticket, 1);
        assert_eq!((cut.verdict, cut.allowed()), (Verdict::Kill, false));
        assert_eq!((cut.trips.len(), cut.trips[0].reason.as_str()), (1, reason));
        assert_eq!(world.killed(), [name], "being refused by a kill kills nothing else");
        let outcome = Outcome { status: Status::Cancelled, ..used(10, 7) };
        assert_eq!(world.settle("p/s", &call, ticket, &outcome).verdict, Verdict::Allow);
        for state in world.states() {
            assert_eq!(state.ledger.reserved, Reserved::default());
            assert_eq!((state.ledger.spent.output, state.ledger.in_flight), (Tokens(7), 0));
        }
    }
}

#[test]
fn tools_cost_what_the_innermost_policy_says() {
    let prices = |list: &[(&str, u64)]| {
        policy(|p| {
            let list = list.iter().map(|(name, c)| (Pattern::new(*name), Dollars(cents(*c))));
            p.budget.tool_prices = list.collect();
        })
    };
    for (tool_name, expected) in [
        ("search_web", 3),
        ("search_it", 2),
        ("browse", 7),
        ("SEARCH_WEB", 3),
        ("send", 5),
        ("x", 0),
    ] {
        let mut world = World::default()
            .with("p", prices(&[("*", 9), ("send", 5)]))
            .with("s", prices(&[("search_web", 3), ("search*", 2), ("b*", 7)]));
        if tool_name == "x" {
            world.policy("p").budget.tool_prices.remove(&Pattern::new("*"));
        }
        let call = tool(tool_name);
        let ticket = world.start("p/s", &call, 0);
        let reserved = Reserved { cost: cents(expected), ..Reserved::default() };
        assert_eq!(ticket.reserved(), reserved, "{tool_name}");
        assert_eq!(world.state("p").ledger.committed(), cents(expected));
        world.settle("p/s", &call, ticket, &Outcome::default());
        for state in world.states() {
            assert_eq!(state.ledger.spent.cost, cents(expected), "{tool_name}");
            assert_eq!(state.ledger.reserved, Reserved::default());
        }
    }
}

#[test]
fn a_dead_scope_keeps_its_books_and_makes_no_trips() {
    let limited = policy(|p| p.tokens.output_token_limit = Some(Tokens(100)));
    let mut world = World::default().with("p", limited.clone()).with("s", limited);
    let call = model(1, Some(50));
    let tickets = [world.start("p/s", &call, 0), world.start("p/s", &call, 0)];
    world.state("s").kill("ada", "stop", Time(1));
    let [first, second] = tickets;
    // The project is alive and its limit is passed; the session's is too, but it is dead.
    assert_eq!(world.settle("p/s", &call, first, &used(1, 90)).verdict, Verdict::Allow);
    let over = world.settle("p/s", &call, second, &used(1, 20));
    let told: Vec<_> = over.trips.iter().map(|t| (t.context.who.as_str(), t.verdict)).collect();
    assert_eq!(told, [("p", Verdict::Kill)]);
    for state in world.states() {
        assert_eq!(state.ledger.spent.output, Tokens(110));
    }
    assert_eq!(world.state("s").killed().unwrap().by, "ada");
}

#[test]
fn a_pause_holds_the_next_call_until_it_is_resumed() {
    let mut world = World::only("a/s", 1, &Policy::none());
    let call = model(1, Some(50));
    let mut running = world.start("a/s", &call, 0);
    world.state("a").pause("ada", "let me look", Time(1000));
    world.state("a").pause("bob", "me too", Time(1500));
    assert_eq!(world.state("a").paused().unwrap().at, Time(1000));
    let before = world.states();
    let held = world.admit("a/s", &tool("ls"), 2000);
    assert_eq!((held.verdict, held.ticket), (Verdict::Block, None));
    let trip = &held.trips[0];
    assert_eq!((trip.guard, trip.reason.as_str()), (GuardId::Paused, "paused"));
    assert_eq!(trip.explain(), "blocked: the agent a is held by ada: let me look");
    assert_eq!(world.states(), before, "a hold is no strike");
    assert_eq!(world.stream("a/s", &call, &mut running, 1).verdict, Verdict::Allow);

    // A kill outranks a hold, in the same scope and in another.
    world.state("s").kill("ada", "no", Time(2000));
    let refused = world.admit("a/s", &tool("ls"), 2000);
    let reasons: Vec<_> = refused.trips.iter().map(|trip| trip.reason.as_str()).collect();
    assert_eq!((refused.verdict, reasons), (Verdict::Kill, vec!["session_killed", "paused"]));

    world.state("a").resume();
    assert_eq!(world.state("a").paused(), None);
    let mut world = World::only("a/s", 1, &Policy::none());
    world.state("a").pause("ada", "let me look", Time(1000));
    world.state("a").resume();
    assert!(world.admit("a/s", &tool("ls"), 2000).ticket.is_some());
}

#[test]
fn a_trip_says_where_it_happened() {
    let mut world = World::only("p/a/s/n", 3, &steps(1, Action::Block));
    let call = model(10, None);
    let ticket = world.start("p/a", &call, 0);
    world.settle("p/a", &call, ticket, &used(30, 40));
    let ticket = world.start("p/a/s/n", &call, 0);
    world.settle("p/a/s/n", &call, ticket, &used(3, 4));
    world.start("p/a/s/n", &tool("ls"), 0);
    let trip = world.admit("p/a/s/n", &tool("ls"), 7000).trips.remove(0);
    assert_eq!(
        trip.context,
        Context {
            who: "n".into(),
            kind: ScopeKind::Nested,
            depth: 3,
            input: Tokens(3),
            output: Tokens(4),
            elapsed: Millis(7000),
            accumulated_input: Tokens(33),
            accumulated_output: Tokens(44),
        }
    );
    assert_eq!((trip.measured, trip.limit), (Measure::Count(1), Measure::Count(1)));
    assert_eq!(trip.explain(), "blocked: all 1 tool calls of the scope n are used up");
}

#[test]
fn an_empty_chain_decides_nothing() {
    let admission = admit(&mut [], &tool("ls"), Time(0));
    assert_eq!((admission.verdict, admission.trips.len()), (Verdict::Allow, 0));
    let ticket = admission.ticket.unwrap();
    assert_eq!(ticket.number, 0);
    let decision = settle(&mut [], &tool("ls"), ticket, &Outcome::default(), Time(0));
    assert_eq!(decision.verdict, Verdict::Allow);
    let reserved = admit(&mut [], &model(5, None), Time(0)).ticket.unwrap().reserved();
    assert_eq!((reserved.input, reserved.output), (Tokens(5), Tokens(1)));
}
