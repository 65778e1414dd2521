//! Blocked calls in a row: what ends the row, and what does not.

use super::*;

fn no_rm() -> Policy {
    policy(|p| {
        p.access.deny = vec![Pattern::new("rm")];
        p.strikes.enabled = true;
        p.strikes.consecutive_blocks = 3;
    })
}

fn thinks(from_person: bool) -> Call {
    let max_output = Some(Tokens(1));
    Call::Model(ModelCall { model: "m".into(), max_output, from_person, ..ModelCall::default() })
}

/// Blocked twice, then something that passes, then blocked once more.
fn check(between: &Call, expected: Verdict) {
    let mut world = World::default().with("p", Policy::none()).with("s", no_rm());
    for now in [1, 2] {
        assert_eq!(world.admit("p/s", &tool("rm"), now).verdict, Verdict::Block);
    }
    let admission = world.admit("p/s", between, 3);
    let ticket = admission.ticket.unwrap();
    world.settle("p/s", between, ticket, &Outcome::default());
    assert_eq!(world.admit("p/s", &tool("rm"), 4).verdict, expected, "after {}", between.name());
}

#[test]
fn asking_the_model_again_does_not_end_the_row() {
    check(&thinks(false), Verdict::Kill);
    check(&thinks(true), Verdict::Block);
    check(&tool("ls"), Verdict::Block);
}

#[test]
fn a_model_call_that_passes_ends_a_row_of_model_calls() {
    let limited = policy(|p| {
        p.velocity.max_tokens_per_minute = Some(Tokens(50));
        p.velocity.action = Action::Block;
        p.strikes.enabled = true;
        p.strikes.consecutive_blocks = 2;
    });
    let mut world = World::default().with("p", Policy::none()).with("s", limited);
    let large = Call::Model(ModelCall { input: Tokens(100), ..ModelCall::default() });
    let blocked = world.admit("p/s", &large, 1);
    assert_eq!(blocked.verdict, Verdict::Block, "{blocked:?}");
    let passed = world.admit("p/s", &thinks(false), 2);
    world.settle("p/s", &thinks(false), passed.ticket.unwrap(), &Outcome::default());
    assert_eq!(world.admit("p/s", &large, 3).verdict, Verdict::Block);
    assert_eq!(world.admit("p/s", &large, 4).verdict, Verdict::Kill);
}
