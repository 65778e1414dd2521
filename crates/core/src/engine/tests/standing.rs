//! A scope's own doings: its end, a clear and a reset.

use super::*;

#[test]
fn the_first_end_stays_and_texts_are_bounded() {
    let mut state = ScopeState::new(ScopeKind::Session, Time(7));
    assert_eq!((state.kind(), state.opened(), state.calls()), (ScopeKind::Session, Time(7), 0));
    state.kill("ada", &"é".repeat(301), Time(8));
    state.kill("bob", "later", Time(9));
    let kill = state.killed().unwrap();
    assert_eq!((kill.at, kill.by.as_str(), kill.guard), (Time(8), "ada", None));
    assert_eq!(kill.because, format!("{}…", "é".repeat(300)));
    let mut state = ScopeState::new(ScopeKind::Session, Time(7));
    state.kill("ada", &"é".repeat(300), Time(8));
    assert_eq!(state.killed().unwrap().because, "é".repeat(300));
}

#[test]
fn only_agents_and_projects_can_be_cleared() {
    for (kind, name, can) in [
        (ScopeKind::Project, "project", true),
        (ScopeKind::Agent, "agent", true),
        (ScopeKind::Session, "session", false),
        (ScopeKind::Nested, "scope", false),
    ] {
        let mut state = ScopeState::new(kind, Time(7));
        state.ledger.spent.steps = 5;
        state.strikes.block();
        state.kill("ada", "stop", Time(8));
        let cleared = state.clear();
        assert_eq!(cleared, if can { Ok(()) } else { Err(Final) }, "{name}");
        assert_eq!((state.killed().is_none(), kind.name()), (can, name));
        assert_eq!(state.ledger.spent.steps, 5, "what was spent stays spent");
        assert_eq!(state.strikes == crate::guard::strikes::Strikes::default(), can);
        let turns = state.turns();
        state.reset(Time(9));
        let fresh = ScopeState { turned: turns + 1, ..ScopeState::new(kind, Time(9)) };
        assert_eq!(state, fresh, "a reset is a fresh start");
    }
    assert_eq!(
        Final.to_string(),
        "a session's end is final: open a new session, or have an operator reset this one"
    );
}

/// A clear lets the detectors forget, so that they do not trip again at once.
#[test]
fn a_clear_forgets_what_the_detectors_saw() {
    let all = policy(|p| {
        p.loops.enabled = true;
        p.similarity.enabled = true;
        p.text_loop.enabled = true;
        p.destructive.enabled = true;
        p.breaker.enabled = true;
    });
    let mut world = World::only("a", 0, &all);
    let text = Some(crate::text::TextFacts::of("the same thing again"));
    let call = Call::Model(ModelCall { prompt: text, from_person: true, ..ModelCall::default() });
    let ticket = world.start("a", &call, 0);
    let answer = crate::call::Answer { text, calls: None };
    let outcome = Outcome { answer: Some(answer), ..used(1, 1) };
    world.settle("a", &call, ticket, &outcome);
    let Call::Tool(mut failing) = delete() else { unreachable!() };
    failing.server = Some("db".into());
    let failing = Call::Tool(failing);
    let ticket = world.start("a", &failing, 0);
    let result = crate::call::ResultFacts::default();
    let outcome = Outcome { status: Status::Fault, result: Some(result), ..Outcome::default() };
    world.settle("a", &failing, ticket, &outcome);
    let state = world.state("a");
    let before = state.clone();
    state.kill("ada", "stop", Time(1));
    state.clear().unwrap();
    let empty = ScopeState::new(ScopeKind::Agent, Time(0));
    macro_rules! forgotten {
        ($($field:ident),*) => {$(
            assert_ne!(before.$field, empty.$field, stringify!($field));
            assert_eq!(state.$field, empty.$field, stringify!($field));
        )*};
    }
    forgotten!(circuits, destroyed, memory, window, said, strikes);
    assert_eq!((&state.ledger, state.calls), (&before.ledger, 2));
}

/// Found by reading: what a limit had let finish, a person's stop could not cut any more.
#[test]
fn a_stop_cuts_what_a_limit_let_finish() {
    let mut world = World::only("p/s", 1, &policy(|p| p.steps.max_model_calls = Some(1)));
    let call = model(10, None);
    let mut ticket = world.start("p/s", &call, 1000);
    assert_eq!(world.admit("p/s", &call, 1500).verdict, Verdict::Kill);
    let ended = world.state("s").killed().unwrap().clone();
    assert!(ended.drains);
    assert_eq!(world.stream("p/s", &call, &mut ticket, 1).verdict, Verdict::Allow);

    world.state("s").kill("ada", "stop it at once", Time(1800));
    let stopped = crate::scope::Kill { drains: false, ..ended };
    assert_eq!(world.state("s").killed(), Some(&stopped), "the first reason stays");
    let cut = world.stream("p/s", &call, &mut ticket, 2);
    assert_eq!(
        (cut.verdict, cut.trips[0].reason.as_str()),
        (Verdict::Kill, "session_killed_steps")
    );

    // The other way round nothing is softened.
    let mut state = ScopeState::new(ScopeKind::Session, Time(0));
    state.kill("ada", "stop", Time(1));
    state.end(crate::scope::Kill { drains: true, ..stopped });
    let kill = state.killed().unwrap();
    assert_eq!((kill.by.as_str(), kill.drains), ("ada", false));
}

/// What tripped in a session does not trip again at once when its agent is cleared.
#[test]
fn forgetting_brings_nothing_back_to_life() {
    let mut state = ScopeState::new(ScopeKind::Session, Time(7));
    state.calls = 9;
    state.ledger.spent.steps = 5;
    state.pause("ada", "wait", Time(8));
    state.kill("ada", "stop", Time(9));
    let kept = state.clone();
    state.strikes.block();
    state.forget();
    assert_eq!(state, kept);
}

#[test]
fn a_crash_costs_what_was_in_flight() {
    let all = policy(|p| {
        p.breaker.enabled = true;
        p.destructive.enabled = true;
        p.budget.tool_prices = [(Pattern::new("rm"), Dollars(cents(5)))].into();
    });
    let mut world = World::only("a", 0, &all);
    let Call::Tool(failing) = delete() else { unreachable!() };
    let failing = Call::Tool(ToolCall { server: Some("db".into()), ..failing });
    let ticket = world.start("a", &failing, 0);
    let outcome = Outcome { status: Status::Fault, ..Outcome::default() };
    world.settle("a", &failing, ticket, &outcome);
    let lost = [world.start("a", &model(10, Some(50)), 0), world.start("a", &delete(), 0)];

    let state = world.state("a");
    let before = state.clone();
    assert_ne!(before.circuits, crate::guard::breaker::Circuits::default());
    state.recover();
    let ledger = &state.ledger;
    assert_eq!((ledger.reserved, ledger.in_flight), (Reserved::default(), 0));
    let spent = Spent {
        steps: 2,
        model_calls: 1,
        input: Tokens(10),
        output: Tokens(50),
        cache_read: Tokens(0),
        cost: cents(21),
    };
    assert_eq!((ledger.spent, ledger.period_cost), (spent, cents(21)));
    // Trials that were out will not come back; what the detectors saw was seen.
    assert_eq!(state.circuits, crate::guard::breaker::Circuits::default());
    assert_eq!((&state.destroyed, state.calls), (&before.destroyed, 3));
    assert_eq!((&state.strikes, state.killed()), (&before.strikes, None));

    // A ticket that turns up after all takes nothing back twice.
    for ticket in lost {
        world.settle("a", &delete(), ticket, &Outcome::default());
    }
    let ledger = &world.state("a").ledger;
    assert_eq!((ledger.reserved, ledger.in_flight), (Reserved::default(), 0));
    assert_eq!(ledger.spent.cost, cents(31));
}
