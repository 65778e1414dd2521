//! What none of the seeds has: text loops.

use deadstop_core::*;

use crate::support::*;

#[test]
fn f4_a_chant_is_cut_in_the_stream() {
    let chants = |policy: PolicySet| {
        let mut world = World::of(policy);
        let call = says("what is the weather like", true);
        let path = "acme/coder/s1";
        let mut ticket = world.admit(path, &call, at(0)).ticket.unwrap();
        let mut stream = |text: &str| {
            let so_far = Progress { output: Tokens(1), text };
            world.progress(path, &call, &mut ticket, so_far, at(1))
        };
        // 85 times 18 bytes, of which the end is looked at every 256.
        assert_eq!(stream(&"I will try again. ".repeat(80)).trips, []);
        let found = stream(&"I will try again. ".repeat(6));
        assert_eq!(found.trips.len(), 1);
        let trip = &found.trips[0];
        assert_eq!((trip.guard, trip.reason.as_str()), (GuardId::TextLoop, "chanting"));
        assert_eq!((trip.measured, trip.limit), (Measure::Count(85), Measure::None));
        assert_eq!(trip.because, "the answer says the same 85 times over: \"I will try again.\"");
        assert_eq!(world.state("s1").killed().is_some(), found.verdict == Verdict::Kill);
        found.verdict
    };
    assert_eq!(chants(Preset::Observe.policies()), Verdict::Warn);
    assert_eq!(chants(Preset::Balanced.policies()), Verdict::Block, "the stream is cut");
    assert_eq!(chants(Preset::Strict.policies()), Verdict::Block);
    let typed = policies(r#"{ "text_loop": { "action": "terminate" } }"#);
    assert_eq!(chants(typed), Verdict::Kill);
}

/// One chant may be bad luck; an agent that chants for the third time is ended.
#[test]
fn f4_the_third_chant_ends_the_session() {
    for preset in [Preset::Balanced, Preset::Strict] {
        let mut world = World::of(preset.policies());
        let (call, path) = (says("what is the weather like", true), "acme/coder/s1");
        for verdict in [Verdict::Block, Verdict::Block, Verdict::Kill] {
            let mut ticket = world.admit(path, &call, at(0)).ticket.unwrap();
            let text = &"I will try again. ".repeat(200);
            let so_far = Progress { output: Tokens(1), text };
            let found = world.progress(path, &call, &mut ticket, so_far, at(1));
            assert_eq!(found.verdict, verdict);
            let cut = Outcome { status: Status::Cancelled, ..Outcome::default() };
            world.settle(path, &call, ticket, &cut, at(1));
        }
    }
}

/// At which answer a row of them is stopped, and what is said then.
fn answers(calls: impl Iterator<Item = (Call, Outcome)>) -> Option<(u64, Trip)> {
    let single = r#"{ "text_loop": { "action": "terminate", "max_repeated_answers": 5 } }"#;
    let mut world = World::of(policies(single));
    for (n, (call, outcome)) in calls.enumerate() {
        if let Some(trip) = world.run("acme/coder/s1", &call, &outcome, at(1)).pop() {
            return Some((n as u64 + 1, trip));
        }
    }
    None
}

const SAME: &str = "I am sorry, but I cannot do that";

#[test]
fn f4_the_same_answer_over_several_turns() {
    let machine = || (says("continue", true), answer(SAME));
    let (stopped_at, trip) = answers(std::iter::repeat_with(machine).take(20)).unwrap();
    assert_eq!(stopped_at, 5);
    assert_eq!(
        told(&trip),
        (
            "repeated_answer".into(),
            Verdict::Kill,
            Measure::Count(5),
            Measure::Count(5),
            vec![1, 5],
            "stopped: 5 answers say the same and none of them calls a tool (limit 5)".into()
        )
    );
    assert_eq!((trip.guard, trip.ends), (GuardId::TextLoop, Ends::Session));
}

#[test]
fn f4_what_was_asked_anew_does_not_count() {
    let words =
        ["ada", "bob", "cyd", "dan", "eve", "fay", "gil", "hal", "ian", "joe", "kim", "lea"];
    let asked = |from_person| {
        words
            .iter()
            .map(move |name| (says(&format!("is {name} there today"), from_person), answer(SAME)))
    };
    assert_eq!(answers(asked(true)), None, "new questions may have the same answer");
    let (stopped_at, trip) = answers(asked(false)).unwrap();
    assert_eq!((stopped_at, trip.measured), (9, Measure::Count(9)), "new results count half");
    assert_eq!(trip.evidence, [1, 9]);
    // The same words again, faster than a person can say them, come from a program.
    let nagging = words.iter().map(|_| (says("is ada there today", true), answer(SAME)));
    assert_eq!(answers(nagging).unwrap().0, 5);
}

/// DSPy's agents write their calls as text, and get the results as text: it took nine answers to stop them.
#[test]
fn f4_the_same_answer_to_the_same_result() {
    let seen = || (says("error: there is no such build", false), answer(SAME));
    let (stopped_at, trip) = answers(std::iter::repeat_with(seen).take(20)).unwrap();
    assert_eq!((stopped_at, trip.measured), (4, Measure::Count(4)));
    assert_eq!(
        trip.because,
        "4 answers say the same, to results that are the same: they count as 6 (limit 5)"
    );
    // Nothing said, or too little to compare, is no result.
    let silent = || (says("", false), answer(SAME));
    assert_eq!(answers(std::iter::repeat_with(silent).take(20)).unwrap().0, 5);
    // Results that take turns with other answers are no row.
    let polling = (0..40).map(|n| {
        let text = ["it is not so", "it may be so", "it must be so", "it can be so"][n % 4];
        (says("the build is still running", false), answer(text))
    });
    assert_eq!(answers(polling), None);
}

#[test]
fn f4_answers_that_take_turns() {
    let turns = |many: usize| {
        (0..40).map(move |n| {
            let texts = ["it is not so", "it may be so", "it must be so", "it can be so"];
            (says("", false), answer(texts[n % many]))
        })
    };
    for (many, stopped_at, evidence) in [(2, 6, [1, 6]), (3, 7, [1, 7])] {
        let (n, trip) = answers(turns(many)).unwrap();
        assert_eq!((n, trip.evidence), (stopped_at, evidence.to_vec()), "{many} in turn");
        assert_eq!(trip.measured, Measure::Count(5));
    }
    assert_eq!(answers(turns(4)), None, "four in turn are not told from a conversation");
}

/// Found by reading: the sentence spoke of a row, and one other answer does not end the loop.
#[test]
fn f4_one_other_answer_in_between() {
    let row = (1..=20).map(|n| {
        let text = if n == 5 { "something else for once" } else { SAME };
        (says("", false), answer(text))
    });
    let (stopped_at, trip) = answers(row).unwrap();
    assert_eq!((stopped_at, trip.measured), (9, Measure::Count(5)));
    assert_eq!(trip.evidence, [3, 9], "the third is the oldest that was still known");
    assert_eq!(trip.because, "5 answers say the same and none of them calls a tool (limit 5)");
}

#[test]
fn f4_what_is_no_text_loop() {
    let acting = Outcome {
        answer: Some(Answer { text: Some(TextFacts::of(SAME)), calls: Some(Digest(1)) }),
        ..Outcome::default()
    };
    let row = |texts: &[Outcome]| {
        answers(texts.iter().cycle().take(60).map(|outcome| (says("", false), outcome.clone())))
    };
    let same = answer(SAME);
    assert_eq!(row(&[answer("yes")]), None, "too short to compare");
    assert_eq!(row(std::slice::from_ref(&acting)), None, "it calls tools");
    let four = [same.clone(), same.clone(), same.clone(), same.clone()];
    assert_eq!(row(&[four.as_slice(), &[acting]].concat()), None, "now and then it does");
    let others = ["something else for once", "and now for another", "or a third one"].map(answer);
    assert_eq!(row(&[four.as_slice(), &others].concat()), None, "it says other things");
    assert_eq!(row(&[four.as_slice(), &[same]].concat()).unwrap().0, 5);
}

#[test]
fn f4_an_answer_that_is_over_cannot_be_blocked() {
    let mut world =
        World::of(policies(r#"{ "text_loop": { "action": "block", "max_repeated_answers": 2 } }"#));
    world.run("acme/coder/s1", &says("", false), &answer(SAME), at(0));
    let trips = world.run("acme/coder/s1", &says("", false), &answer(SAME), at(0));
    assert_eq!((trips.len(), trips[0].verdict), (1, Verdict::Warn));
}
