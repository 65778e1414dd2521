//! Seed A: the similarity kill switch.

use deadstop_core::*;

use crate::support::*;

const PROMPT: &str = "please summarise the report about order";

fn switched(similarity: SimilaritySettings) -> World {
    World::of(PolicySet {
        session: Policy { similarity, ..Policy::none() },
        ..Preset::Balanced.policies()
    })
}

#[test]
fn a1_what_differs_in_numbers_times_and_ids_is_similar() {
    let mut world = switched(SimilaritySettings { threshold: 0.5, ..SimilaritySettings::tight() });
    for (number, (prompt, similar)) in [
        ("order #12345 of 2024-01-15T10:30:00Z is late", false),
        ("order  #7 of 2026-11-15T05:00:01Z is late", true),
    ]
    .into_iter()
    .enumerate()
    {
        let trips = world.run("acme/coder/s1", &says(prompt, true), &answer(""), at(number as u64));
        assert_eq!(!trips.is_empty(), similar, "{prompt}");
    }
}

#[test]
fn a2_a4_a_score_of_7_0_of_5_0_deactivates_the_agent() {
    let mut world = switched(SimilaritySettings::tight());
    let path = "acme/coder/s1";
    let answers = ["here is a first summary", "it is the same", "it is the same", "it is the same"];
    let mut last = Vec::new();
    for (second, text) in answers.into_iter().enumerate() {
        assert_eq!(last, [], "nothing before the fourth request");
        last = world.run(path, &says(PROMPT, false), &answer(text), at(second as u64));
    }
    assert_eq!(last.len(), 1);
    let trip = &last[0];
    assert_eq!(
        told(trip),
        (
            "kill_switch".into(),
            Verdict::Kill,
            Measure::Score(7.0),
            Measure::Score(5.0),
            vec![1, 2, 3],
            "stopped: loop score 7.0 of 5.0 in the last 10 requests: 3 similar prompts, 2 \
             similar responses, 0 repeated tool calls"
                .into()
        )
    );
    let signals: Vec<_> =
        trip.signals.iter().map(|s| (s.name.as_str(), s.count, s.weight)).collect();
    assert_eq!(
        signals,
        [
            ("similar_prompts", 3, 1.0),
            ("similar_responses", 2, 2.0),
            ("repeated_tool_calls", 0, 1.5)
        ]
    );
    assert_eq!((trip.guard, trip.ends), (GuardId::Similarity, Ends::Agent));

    let kill = world.state("coder").killed().unwrap().clone();
    assert_eq!((kill.guard, kill.by.as_str()), (Some(GuardId::Similarity), "s1"));
    assert!(world.state("s1").killed().is_none() && world.state("acme").killed().is_none());
    let refused = world.admit(path, &says("something else to do", true), at(9));
    assert_eq!(reasons(&refused.trips), ["agent_killed"]);
    assert_eq!(
        refused.trips[0].because,
        format!("the agent coder was ended 6 s ago by similarity: {}", trip.because)
    );
}

#[test]
fn a2_the_threshold_must_be_exceeded() {
    // Prompts count 1.0: five similar ones are 5.0 of 5.0, six are too many.
    let mut world = switched(SimilaritySettings::tight());
    for n in 1..=7u64 {
        let words =
            format!("answer {} is new", ["a", "b", "c", "d", "e", "f", "g"][n as usize - 1]);
        let trips = world.run("acme/coder/s1", &says(PROMPT, false), &answer(&words), at(n));
        assert_eq!(trips.len(), usize::from(n == 7), "request {n}");
    }
    // Repeated tool calls count 1.5: three are 4.5, four are 6.0.
    let mut world = switched(SimilaritySettings::tight());
    let calls = Outcome {
        answer: Some(Answer { text: None, calls: Some(Digest(7)) }),
        ..Outcome::default()
    };
    for n in 1..=5u64 {
        let trips = world.run("acme/coder/s1", &says("", false), &calls, at(n));
        assert_eq!(trips.len(), usize::from(n == 5), "request {n}");
        if let [trip] = &trips[..] {
            assert_eq!(trip.measured, Measure::Score(6.0));
            assert_eq!((trip.signals[2].count, trip.evidence.clone()), (4, vec![1, 2, 3, 4]));
        }
    }
}

#[test]
fn a3_the_windows_of_the_presets() {
    for (preset, window) in [
        (SimilaritySettings::tight(), 10),
        (SimilaritySettings::balanced(), 20),
        (SimilaritySettings::tolerant(), 50),
    ] {
        for (others, trips) in [(window - 1, 1), (window, 0)] {
            let mut world = switched(SimilaritySettings { threshold: 0.5, ..preset.clone() });
            let path = "acme/coder/s1";
            assert_eq!(world.run(path, &says(PROMPT, false), &answer(""), at(0)), []);
            for _ in 0..others {
                assert_eq!(world.run(path, &says("", false), &answer(""), at(1)), []);
            }
            let found = world.run(path, &says(PROMPT, false), &answer(""), at(2));
            assert_eq!(found.len(), trips, "{others} in between, window {window}");
        }
    }
    let off = switched(SimilaritySettings::default());
    assert_eq!(loop_until_stopped(off, 100), None, "off by default");
}

/// How many similar requests pass.
fn loop_until_stopped(mut world: World, most: u64) -> Option<u64> {
    (1..=most).find(|n| {
        let same = answer("the same answer again");
        !world.run("acme/coder/s1", &says(PROMPT, false), &same, at(*n)).is_empty()
    })
}

#[test]
fn a3_when_the_presets_stop_a_loop() {
    // Each request scores three for every one before it.
    for (preset, stopped_at) in [
        (SimilaritySettings::tight(), 3),
        (SimilaritySettings::balanced(), 5),
        (SimilaritySettings::tolerant(), 8),
    ] {
        assert_eq!(loop_until_stopped(switched(preset), 100), Some(stopped_at));
    }
}

#[test]
fn a4_or_only_the_session_where_the_policy_says_so() {
    let only = SimilaritySettings { ends: Ends::Session, ..SimilaritySettings::tight() };
    let mut world = switched(only);
    for n in 0..3 {
        world.run("acme/coder/s1", &says(PROMPT, false), &answer("the same again"), at(n));
    }
    assert!(world.state("coder").killed().is_none());
    let refused = world.admit("acme/coder/s1", &says(PROMPT, false), at(9));
    assert_eq!(reasons(&refused.trips), ["session_killed_loop_guard"]);
}

/// Found by reading: the window is the session's, so that clearing the agent alone was in vain.
#[test]
fn a6_whoever_clears_an_agent_lets_its_sessions_forget() {
    let mut world = switched(SimilaritySettings::tight());
    let path = "acme/coder/s1";
    let ask = |world: &mut World, n| {
        let trips = world.run(path, &says(PROMPT, false), &answer("the same again"), at(n));
        reasons(&trips) == ["kill_switch"]
    };
    assert_eq!([0, 1, 2].map(|n| ask(&mut world, n)), [false, false, true]);
    let spent = world.state("s1").ledger().clone();
    world.state("coder").clear().unwrap();
    world.state("s1").forget();
    assert_eq!(world.state("s1").ledger(), &spent, "what was spent stays spent");
    assert_eq!([3, 4, 5].map(|n| ask(&mut world, n)), [false, false, true]);
}

/// An agent without sessions: its window is its own.
#[test]
fn a6_cleared_by_an_operator_the_window_is_empty() {
    let policy = Policy { similarity: SimilaritySettings::tight(), ..Policy::none() };
    let mut world = World::default().with(ScopeKind::Agent, "coder", policy);
    let mut stops = Vec::new();
    for n in 0..9 {
        let trips = world.run("coder", &says(PROMPT, false), &answer("the same again"), at(n));
        if reasons(&trips) == ["kill_switch"] {
            stops.push(n);
            let spent = world.state("coder").ledger().clone();
            world.state("coder").clear().unwrap();
            assert!(world.state("coder").killed().is_none());
            assert_eq!(world.state("coder").ledger(), &spent, "what was spent stays spent");
        }
    }
    assert_eq!(stops, [2, 5, 8], "three requests are needed each time");
}

/// A kill switch as its page has it: a window for all requests of the agent.
fn agents_switch(similarity: SimilaritySettings) -> World {
    let none = Policy::none();
    let world = World::of(PolicySet {
        agent: Policy { similarity, ..none.clone() },
        session: none.clone(),
        ..Preset::Balanced.policies()
    });
    with_sessions(world, &none)
}

fn with_sessions(world: World, policy: &Policy) -> World {
    let names = (2..=60).map(|n| format!("s{n}")).chain(["single".to_owned()]);
    names.fold(world, |world, name| world.with(ScopeKind::Session, name.leak(), policy.clone()))
}

/// An opening of a conversation without a name, as the gateway tells it.
fn opens(text: &str) -> Call {
    let Call::Model(call) = says(text, true) else { unreachable!("it is a model call") };
    Call::Model(ModelCall { opening: true, ..call })
}

/// The request at which a world stops a run of requests.
fn stopped_at(
    world: &mut World,
    most: u64,
    request: impl Fn(u64) -> (String, Call, String),
) -> Option<u64> {
    (1..=most).find(|n| {
        let (path, call, said) = request(*n);
        !world.run(&path, &call, &answer(&said), at(*n)).is_empty()
    })
}

/// Found from outside: 60 identical requests without a session header all passed.
#[test]
fn a1_the_agents_window_sees_requests_of_all_its_sessions() {
    let same = "I will try the same thing once more";
    let balanced = || agents_switch(SimilaritySettings::balanced());
    let unnamed = |_| ("acme/coder/single".to_owned(), opens(PROMPT), same.to_owned());
    assert_eq!(stopped_at(&mut balanced(), 60, unnamed), Some(5));
    // 25 sessions with the same request: each of them is its first.
    let sessions = |n| (format!("acme/coder/s{n}"), says(PROMPT, true), same.to_owned());
    assert_eq!(stopped_at(&mut balanced(), 25, sessions), Some(5));
    // Only an order number differs, and the answers have nothing in common.
    let orders = |n: u64| {
        let word = ["one", "two", "three", "four", "five", "six", "seven"][n as usize % 7];
        let said = format!("answer {} {word} {}", word.repeat(n as usize), word.len() as u64 + n);
        ("acme/coder/single".to_owned(), opens(&format!("order #{n}")), said)
    };
    assert_eq!(stopped_at(&mut balanced(), 14, orders), Some(12), "eleven similar prompts");
    // It is off by default, and a session's own window does not compare openings.
    assert_eq!(stopped_at(&mut agents_switch(SimilaritySettings::default()), 60, unnamed), None);
    let similarity = SimilaritySettings::balanced();
    let own = Policy { similarity: similarity.clone(), ..Policy::none() };
    assert_eq!(stopped_at(&mut with_sessions(switched(similarity), &own), 60, unnamed), None);
}

#[test]
fn a1_users_who_all_say_hi_do_not_add_up_in_the_agents_window() {
    let hello = "Hello! How can I help you today?";
    let mut world = agents_switch(SimilaritySettings::balanced());
    let unnamed = |_| ("acme/coder/single".to_owned(), opens("hi"), hello.to_owned());
    assert_eq!(stopped_at(&mut world, 60, unnamed), None);
    let named = |n| (format!("acme/coder/s{n}"), says("hi", true), hello.to_owned());
    assert_eq!(stopped_at(&mut world, 60, named), None);
    // An agent that is told to go on and says the same again is a loop.
    let goes_on = |_| ("acme/coder/s1".to_owned(), says("go on", true), hello.to_owned());
    assert_eq!(stopped_at(&mut world, 60, goes_on), Some(7));
}

/// Found from outside: the answer to the opening of a conversation was not compared.
#[test]
fn a1_four_identical_answers_are_three_similar_responses() {
    let mut world =
        agents_switch(SimilaritySettings { threshold: 5.5, ..SimilaritySettings::balanced() });
    let mut trips = Vec::new();
    for (n, prompt) in [
        "look at the first file",
        "now look at another",
        "and what about this",
        "one more thing to see",
    ]
    .into_iter()
    .enumerate()
    {
        let call = if n == 0 { opens(prompt) } else { says(prompt, true) };
        trips =
            world.run("acme/coder/s1", &call, &answer("I could not find that file"), at(n as u64));
    }
    let [trip] = &trips[..] else { panic!("{trips:?}") };
    assert_eq!((trip.signals[0].count, trip.signals[1].count), (0, 3));
    assert_eq!((trip.measured, trip.context.kind), (Measure::Score(6.0), ScopeKind::Agent));
    assert_eq!(trip.evidence, [1, 2, 3]);
    assert_eq!(world.state("coder").killed().unwrap().guard, Some(GuardId::Similarity));
}

#[test]
fn a1_two_words_are_compared_where_one_is_a_value() {
    let similar = |a: &str, b: &str| {
        let mut world =
            switched(SimilaritySettings { threshold: 0.5, ..SimilaritySettings::tight() });
        world.run("acme/coder/s1", &says(a, true), &answer(""), at(0));
        !world.run("acme/coder/s1", &says(b, true), &answer(""), at(1)).is_empty()
    };
    assert!(similar("order #12345", "order #12346"));
    assert!(!similar("order #12345", "refund #12345"));
    assert!(!similar("go on", "go on"));
    assert!(!similar("7", "8"));
}
