//! Seed C: token limits on containers hold for the sum of what runs inside.

use deadstop_core::*;

use crate::support::*;

/// The eight containers of the page, each with the paths of what runs inside.
const CONTAINERS: [(&str, [&str; 3]); 8] = [
    ("Pipeline", ["Pipeline/extract", "Pipeline/transform", "Pipeline/load"]),
    ("Pipe", ["Pipe", "Pipe", "Pipe"]),
    ("Connector", ["Connector/first", "Connector/second", "Connector/third"]),
    ("MultiConnector", ["MultiConnector/c1/b1", "MultiConnector/c1/b2", "MultiConnector/c2/b3"]),
    ("Splitter", ["Splitter/left", "Splitter/middle", "Splitter/right"]),
    ("Manifold", ["Manifold/manager", "Manifold/analyzer", "Manifold/writer"]),
    ("Junction", ["Junction/moderator", "Junction/pro", "Junction/contra"]),
    ("DistributionGrid", ["DistributionGrid/router", "DistributionGrid/w1", "DistributionGrid/w2"]),
];

/// A container in a session, with a policy on the container alone.
fn container(kind: &'static str, inside: [&'static str; 3], policy: Policy) -> World {
    let mut world = World::default().with(ScopeKind::Session, "run", Policy::none()).with(
        ScopeKind::Nested,
        kind,
        policy,
    );
    let mut known = vec![kind];
    for name in inside.iter().flat_map(|path| path.split('/')) {
        if !known.contains(&name) {
            known.push(name);
            world = world.with(ScopeKind::Nested, name, Policy::none());
        }
    }
    world
}

fn limited(input: u64, output: u64) -> Policy {
    let tokens = TokenSettings {
        input_token_limit: Some(Tokens(input)),
        output_token_limit: Some(Tokens(output)),
        ..TokenSettings::default()
    };
    Policy { tokens, ..Policy::none() }
}

/// C4, C5: one child after the other, and the limit holds for their sum.
#[test]
fn c4_c5_containers_in_sequence() {
    for (kind, inside) in CONTAINERS {
        let mut world = container(kind, inside, limited(100, 1000));
        // Spent elsewhere in the session, before: accumulated at the root, not in the container.
        assert_eq!(world.run("run", &model(7, Some(10)), &used(7, 3), at(0)), []);
        let paths = inside.map(|path| format!("run/{path}"));
        for path in &paths[..2] {
            assert_eq!(world.run(path, &model(40, Some(10)), &used(40, 10), at(1)), []);
        }
        let refused = world.admit(&paths[2], &model(40, Some(10)), at(2));
        assert_eq!(refused.trips.len(), 1, "{kind}");
        let trip = &refused.trips[0];
        assert_eq!(
            told(trip),
            (
                "input_exceeded".into(),
                Verdict::Kill,
                Measure::Tokens(Tokens(120)),
                Measure::Tokens(Tokens(100)),
                vec![],
                format!(
                    "stopped: the scope {kind} would go over its input limit of 100 tokens (at 120 \
                     tokens, after 2 s)"
                )
            )
        );
        assert_eq!(
            trip.context,
            Context {
                who: kind.into(),
                kind: ScopeKind::Nested,
                depth: 1,
                input: Tokens(80),
                output: Tokens(20),
                elapsed: Millis(2000),
                accumulated_input: Tokens(87),
                accumulated_output: Tokens(23),
            }
        );
        // All below the container is at its end, the session around it is not.
        for path in &paths {
            let after = world.admit(path, &tool("ls", ""), at(3));
            assert_eq!(
                (after.verdict, reasons(&after.trips)),
                (Verdict::Kill, vec!["scope_killed"])
            );
        }
        assert_eq!(world.run("run", &model(40, Some(10)), &used(40, 10), at(3)), []);
    }
}

/// C4, C5: all children at once share the container's limit instead of having it three times.
#[test]
fn c4_c5_containers_in_parallel() {
    for (kind, inside) in CONTAINERS {
        let mut world = container(kind, inside, limited(100, 1000));
        let paths = inside.map(|path| format!("run/{path}"));
        let call = model(40, Some(10));
        let tickets: Vec<_> =
            paths.iter().filter_map(|path| world.admit(path, &call, at(1)).ticket).collect();
        assert_eq!(tickets.len(), 2, "{kind}: the third does not fit beside the others");
        let refused = world.admit(&paths[2], &call, at(1));
        assert_eq!(
            (refused.verdict, reasons(&refused.trips)),
            (Verdict::Block, vec!["input_exceeded"])
        );
        assert_eq!(
            refused.trips[0].because,
            format!(
                "the scope {kind} would, with calls in flight, go over its input limit of 100 tokens (at \
                 120 tokens, after 1 s)"
            )
        );
        // The provider counted more than was estimated: the second to end goes over.
        let mut verdicts = Vec::new();
        for (path, ticket) in paths.iter().zip(tickets) {
            let decision = world.settle(path, &call, ticket, &used(51, 10), at(3));
            verdicts.push((decision.verdict, decision.trips.first().map(Trip::explain)));
        }
        let over = format!(
            "stopped: the scope {kind} went over its input limit of 100 tokens (at 102 tokens, after 3 s)"
        );
        assert_eq!(verdicts, [(Verdict::Allow, None), (Verdict::Kill, Some(over))]);
    }
}

/// C1: the running count of all branches cuts a stream.
#[test]
fn c1_branches_that_stream_share_the_output_limit() {
    for (kind, inside) in CONTAINERS {
        let mut world = container(kind, inside, limited(1000, 50));
        let paths = inside.map(|path| format!("run/{path}"));
        let call = model(1, Some(5));
        let mut tickets: Vec<_> =
            paths.iter().map(|path| world.admit(path, &call, at(0)).ticket.unwrap()).collect();
        let mut stream = |n: usize, output: u64| {
            let so_far = Progress { output: Tokens(output), text: "" };
            let decision = world.progress(&paths[n], &call, &mut tickets[n], so_far, at(4));
            (decision.verdict, decision.trips.first().map(|trip| trip.because.clone()))
        };
        assert_eq!(stream(0, 30), (Verdict::Allow, None));
        assert_eq!(stream(1, 15), (Verdict::Allow, None));
        let over = format!(
            "the scope {kind} went, while answering, over its output limit of 50 tokens (at 51 tokens, \
             after 4 s)"
        );
        assert_eq!(stream(2, 6), (Verdict::Kill, Some(over.clone())));
        // The other branches are cut at their next token.
        let (verdict, because) = stream(0, 31);
        assert_eq!(verdict, Verdict::Kill);
        assert_eq!(
            because.unwrap(),
            format!("the scope {kind} was ended 0 s ago by tokens: {over}")
        );
    }
}

#[test]
fn c1_reasons_of_the_page() {
    for (input, output, expected) in [
        (100, 50, None),
        (101, 50, Some(("input_exceeded", 101, 100))),
        (100, 51, Some(("output_exceeded", 51, 50))),
        (101, 51, Some(("input_and_output_exceeded", 152, 150))),
    ] {
        let mut world = World::session(limited(100, 50));
        let trips = world.run("s1", &model(1, Some(1)), &used(input, output), at(1));
        let told: Vec<_> = trips.iter().map(|t| (t.reason.as_str(), t.measured, t.limit)).collect();
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(reason, m, l)| (reason, Measure::Tokens(Tokens(m)), Measure::Tokens(Tokens(l))))
            .collect();
        assert_eq!(told, expected, "{input} and {output}");
    }
}
