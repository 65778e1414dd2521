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

/// A limit without room, a pace and a breaker say nothing about what the agent wanted to do: five
/// such blocks used to end the session.
#[test]
fn lack_of_room_is_no_strike() {
    let strict = |change: fn(&mut Policy)| {
        policy(|p| {
            change(p);
            p.strikes.enabled = true;
            p.strikes.consecutive_blocks = 2;
        })
    };
    let large = Call::Model(ModelCall { input: Tokens(100), ..ModelCall::default() });
    let paid = Call::Model(ModelCall { estimated: true, rates: Rates::FALLBACK, ..plain(1000) });
    let estimated = Call::Model(ModelCall { estimated: true, ..plain(1000) });
    let cases: [(&str, Policy, &Call); 5] = [
        ("pace", strict(|p| p.velocity.max_tokens_per_minute = Some(Tokens(50))), &large),
        ("tokens", strict(|p| p.tokens.input_token_limit = Some(Tokens(50))), &estimated),
        ("budget", strict(|p| p.budget.max_cost_usd = dollars(1)), &paid),
        (
            "steps",
            strict(|p| {
                p.steps.max_model_calls = Some(1);
                p.steps.action = Action::Block;
            }),
            &large,
        ),
        ("hold", strict(|_| ()), &large),
    ];
    for (what, policy, call) in cases {
        let mut world = World::default().with("p", Policy::none()).with("s", policy);
        if what == "hold" {
            world.state("s").pause("ada", "lunch", Time(0));
        }
        if what == "steps" {
            world.start("p/s", call, 0);
        }
        for now in 1..10 {
            let refused = world.admit("p/s", call, now);
            assert_eq!(refused.verdict, Verdict::Block, "{what}: {:?}", refused.trips);
        }
        assert_eq!(world.killed(), Vec::<&str>::new(), "{what}");
    }
}

fn plain(input: u64) -> ModelCall {
    ModelCall { model: "m".into(), input: Tokens(input), ..ModelCall::default() }
}
