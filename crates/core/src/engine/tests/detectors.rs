//! Detectors look in the scope that makes the calls, and only while they are switched on.

use super::*;
use crate::call::{Answer, ResultFacts};
use crate::text::TextFacts;

/// Every detector warns at the second time.
fn touchy() -> Policy {
    policy(|p| {
        p.loops.enabled = true;
        p.loops.threshold = 2;
        p.similarity.enabled = true;
        p.similarity.threshold = 0.5;
        p.similarity.action = Action::Warn;
        p.text_loop.enabled = true;
        p.text_loop.max_repeated_answers = 2;
    })
}

fn ask(world: &mut World, path: &str) -> Vec<(String, String)> {
    let text = Some(TextFacts::of("the same thing again"));
    let call = Call::Model(ModelCall { prompt: text, ..ModelCall::default() });
    let answer = Some(Answer { text, calls: None });
    told(world, path, &call, &Outcome { answer, ..Outcome::default() })
}

fn act(world: &mut World, path: &str) -> Vec<(String, String)> {
    let result = Some(ResultFacts::default());
    told(world, path, &tool("ls"), &Outcome { result, ..Outcome::default() })
}

/// What is said about a call, and by which scope.
fn told(world: &mut World, path: &str, call: &Call, outcome: &Outcome) -> Vec<(String, String)> {
    let admission = world.admit(path, call, 0);
    let ended = world.settle(path, call, admission.ticket.unwrap(), outcome);
    let trips = admission.trips.into_iter().chain(ended.trips);
    trips.map(|trip| (trip.context.who, trip.reason)).collect()
}

/// A session that has been told off by every detector.
fn told_off() -> World {
    let mut world = World::default().with("s", touchy()).with("n", touchy());
    for _ in 0..3 {
        act(&mut world, "s");
    }
    for _ in 0..3 {
        ask(&mut world, "s");
    }
    let by_s = |reasons: &[&str]| -> Vec<(String, String)> {
        reasons.iter().map(|reason| ("s".to_owned(), (*reason).to_owned())).collect()
    };
    assert_eq!(ask(&mut world, "s"), by_s(&["kill_switch", "repeated_answer"]));
    assert_eq!(act(&mut world, "s"), by_s(&["repetition"]));
    world
}

#[test]
fn a_scope_is_not_told_off_for_calls_made_inside_it() {
    let mut world = told_off();
    let before = world.state("s").clone();
    assert_eq!(ask(&mut world, "s/n"), []);
    assert_eq!(act(&mut world, "s/n"), []);
    let after = world.state("s");
    assert_eq!((&after.memory, &after.window), (&before.memory, &before.window));
    assert_eq!(after.said, before.said);
}

#[test]
fn a_detector_that_is_switched_off_says_no_more() {
    let mut world = told_off();
    let policy = world.policy("s");
    policy.loops.enabled = false;
    policy.similarity.enabled = false;
    policy.text_loop.enabled = false;
    assert_eq!(ask(&mut world, "s"), []);
    assert_eq!(act(&mut world, "s"), []);
}

#[test]
fn a_breaker_that_is_switched_off_lets_pass_what_it_held() {
    let breaking = policy(|p| p.breaker.enabled = true);
    let mut world = World::only("a", 0, &breaking);
    let call = Call::Tool(ToolCall { server: Some("db".into()), ..ToolCall::default() });
    for _ in 0..5 {
        let ticket = world.start("a", &call, 0);
        let failed = Outcome { status: Status::Fault, ..Outcome::default() };
        world.settle("a", &call, ticket, &failed);
    }
    assert_eq!(world.admit("a", &call, 2000).verdict, Verdict::Block);
    world.policy("a").breaker.enabled = false;
    assert_eq!(world.admit("a", &call, 2000).verdict, Verdict::Allow);
}

#[test]
fn chants_are_looked_for_only_where_the_innermost_scope_wants_it() {
    let listening = policy(|p| {
        p.text_loop.enabled = true;
        p.text_loop.action = Action::Terminate;
    });
    let text = "I will try again. ".repeat(200);
    for (outer, inner) in [(false, false), (true, false), (false, true), (true, true)] {
        let wants = |wants| if wants { listening.clone() } else { Policy::none() };
        let start = || World::default().with("p", wants(outer)).with("s", wants(inner));
        let told: &[&str] = if inner { &["s"] } else { &[] };
        let call = model(0, None);
        let mut world = start();
        let mut ticket = world.start("p/s", &call, 0);
        let so_far = Progress { output: Tokens(1), text: &text };
        let decision = progress(&mut world.chain("p/s"), &call, &mut ticket, so_far, Time(1));
        let who: Vec<_> = decision.trips.iter().map(|trip| trip.context.who.as_str()).collect();
        assert_eq!((who, world.killed()), (told.to_vec(), told.to_vec()));
        assert_eq!(ticket.chant.is_some(), inner, "nothing is kept if no guard needs it");
        // The text comes in pieces; the ticket remembers.
        let mut world = start();
        let mut ticket = world.start("p/s", &call, 0);
        for _ in 0..200 {
            let so_far = Progress { output: Tokens(1), text: "I will try again. " };
            progress(&mut world.chain("p/s"), &call, &mut ticket, so_far, Time(1));
        }
        assert_eq!(world.killed(), told);
    }
}
