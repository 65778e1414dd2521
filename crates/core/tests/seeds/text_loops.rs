//! What none of the seeds has: text loops.

use deadstop_core::*;

use crate::support::*;

#[test]
fn f4_a_chant_is_cut_in_the_stream() {
    for (preset, verdict) in [(Preset::Strict, Verdict::Kill), (Preset::Balanced, Verdict::Warn)] {
        let mut world = World::of(preset.policies());
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
        assert_eq!((found.verdict, found.trips.len()), (verdict, 1));
        let trip = &found.trips[0];
        assert_eq!((trip.guard, trip.reason.as_str()), (GuardId::TextLoop, "chanting"));
        assert_eq!((trip.measured, trip.limit), (Measure::Count(85), Measure::None));
        assert_eq!(trip.because, "the answer says the same 85 times over: \"I will try again.\"");
        assert_eq!(world.state("s1").killed().is_some(), verdict == Verdict::Kill);
    }
}

/// At which answer a row of them is stopped, and what is said then.
fn answers(calls: impl Iterator<Item = (Call, Outcome)>) -> Option<(u64, Trip)> {
    let mut world = World::of(Preset::Strict.policies());
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
fn f4_what_a_person_asked_for_counts_half() {
    let words =
        ["ada", "bob", "cyd", "dan", "eve", "fay", "gil", "hal", "ian", "joe", "kim", "lea"];
    let asked = |from_person| {
        words
            .iter()
            .map(move |name| (says(&format!("is {name} there today"), from_person), answer(SAME)))
    };
    let (stopped_at, trip) = answers(asked(true)).unwrap();
    assert_eq!((stopped_at, trip.measured), (8, Measure::Count(8)));
    assert_eq!(trip.evidence, [1, 8]);
    assert_eq!(answers(asked(false)).unwrap().0, 5, "a machine's words are no excuse");
    // Nor are the same words of a person again.
    let nagging = words.iter().map(|_| (says("is ada there today", true), answer(SAME)));
    assert_eq!(answers(nagging).unwrap().0, 5);
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
