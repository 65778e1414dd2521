//! Scripts of tool calls, and at which call which pattern is found in them.

use super::memory::MEMORY;
use crate::call::{Call, Digest, Effect, ModelCall, Outcome, ResultFacts, Status, ToolCall, Usage};
use crate::engine::{admit, settle};
use crate::policy::Policy;
use crate::scope::{Link, ScopeKind, ScopeState};
use crate::text::TextFacts;
use crate::trip::{Action, Ends, GuardId, Measure, Trip, Verdict};
use crate::units::{Time, Tokens};

mod polling;

/// One line of a script.
#[derive(Debug, Clone)]
enum Step {
    /// A tool is called with arguments and brings a result. A result that starts with `!` is an
    /// error, one with `?` never came. Tools called `think` are inert, those called `read` or
    /// `search` only look, all others may change something.
    Tool(String, String, String),
    /// A person says something.
    Person(&'static str),
    /// Something that is no person says something.
    Machine(&'static str),
}

fn call(tool: &str, arguments: impl Into<String>, result: impl Into<String>) -> Step {
    Step::Tool(tool.into(), arguments.into(), result.into())
}

/// A word without digits for each number: what is new to a guard that masks digits.
fn word(mut n: usize) -> String {
    let mut word = String::from("w");
    loop {
        word.push(char::from(b'a' + (n % 26) as u8));
        n /= 26;
        if n == 0 {
            return word;
        }
    }
}

/// A result that is too long to be the same by chance.
const LONG: &str = "there is nothing new on this page since you looked at it the last time, please \
                    come back later or ask for another one";

/// Plays scripts in one session until it is ended.
struct Sim {
    policy: Policy,
    session: ScopeState,
    /// Tool calls that were asked for.
    asked: usize,
    /// What fired, and at which of them.
    fired: Vec<(usize, Trip)>,
}

impl Sim {
    fn new(threshold: u32, action: Action) -> Sim {
        let mut policy = Policy::none();
        policy.loops.enabled = true;
        policy.loops.threshold = threshold;
        policy.loops.action = action;
        let session = ScopeState::new(ScopeKind::Session, Time(0));
        Sim { policy, session, asked: 0, fired: Vec::new() }
    }

    fn play(mut self, script: impl IntoIterator<Item = Step>) -> Sim {
        for step in script {
            if self.session.killed().is_some() {
                break;
            }
            self.step(step);
        }
        self
    }

    fn step(&mut self, step: Step) {
        let (call, outcome) = match step {
            Step::Person(words) => (said(words, true), Outcome::default()),
            Step::Machine(words) => (said(words, false), Outcome::default()),
            Step::Tool(tool, arguments, result) => {
                self.asked += 1;
                (tool_call(&tool, &arguments), tool_result(&result))
            }
        };
        let (policy, now) = (&self.policy, Time(self.asked as u64 * 1000));
        let mut chain = [Link { name: "s", state: &mut self.session, policy }];
        let admission = admit(&mut chain, &call, now);
        let mut trips = admission.trips;
        if let Some(ticket) = admission.ticket {
            trips.extend(settle(&mut chain, &call, ticket, &outcome, now).trips);
        }
        self.fired.extend(trips.into_iter().map(|trip| (self.asked, trip)));
    }

    /// The first thing that fired.
    fn first(&self) -> Option<(usize, &str)> {
        self.fired.first().map(|(at, trip)| (*at, trip.reason.as_str()))
    }
}

fn said(words: &str, from_person: bool) -> Call {
    let prompt = Some(TextFacts::of(words));
    Call::Model(ModelCall { prompt, from_person, ..ModelCall::default() })
}

fn tool_call(tool: &str, arguments: &str) -> Call {
    let whole = format!("{tool} {arguments}");
    let effect = match tool {
        "think" => Effect::Inert,
        "read" | "search" => Effect::Reads,
        _ => Effect::Changes,
    };
    Call::Tool(ToolCall {
        name: tool.into(),
        signature: Digest::of(whole.as_bytes()),
        shape: TextFacts::of(&whole).digest,
        effect,
        ..ToolCall::default()
    })
}

fn tool_result(text: &str) -> Outcome {
    let status = match text.as_bytes().first() {
        Some(b'!') => Status::Error,
        Some(b'?') => Status::Fault,
        _ => Status::Ok,
    };
    Outcome { status, result: Some(ResultFacts::of(text)), ..Outcome::default() }
}

/// What stops a script under threshold 5, and at which call.
fn check(script: impl IntoIterator<Item = Step>, expected: Option<(usize, &str)>) {
    let sim = Sim::new(5, Action::Terminate).play(script);
    assert_eq!(sim.first(), expected);
    let killed = sim.session.killed().map(|kill| kill.guard);
    assert_eq!(killed, expected.map(|_| Some(GuardId::Loop)));
}

/// A pattern in all its details, at the call that completes it.
fn check_trip(
    script: impl IntoIterator<Item = Step>,
    (at, reason): (usize, &str),
    (measured, limit): (u64, u64),
    evidence: impl IntoIterator<Item = u64>,
    because: &str,
) {
    let sim = Sim::new(5, Action::Terminate).play(script);
    assert_eq!(sim.first(), Some((at, reason)));
    let trip = &sim.fired[0].1;
    assert_eq!(
        (trip.guard, trip.verdict, trip.ends),
        (GuardId::Loop, Verdict::Kill, Ends::Session)
    );
    assert_eq!((trip.measured, trip.limit), (Measure::Count(measured), Measure::Count(limit)));
    assert_eq!(trip.evidence, evidence.into_iter().collect::<Vec<_>>());
    assert_eq!(trip.because, because);
    assert!(!trip.drains);
}

fn same(n: usize) -> impl Iterator<Item = Step> {
    (0..n).map(|_| call("run", "make", "all is well"))
}

/// `rounds` of so many different calls.
fn round(period: usize, calls: usize) -> impl Iterator<Item = Step> {
    (0..calls).map(move |n| {
        let word = word(n % period);
        call("run", word.clone(), format!("result of {word}"))
    })
}

#[test]
fn repetition_is_found_at_the_fifth_call() {
    check(same(4), None);
    check_trip(
        same(9),
        (5, "repetition"),
        (5, 5),
        1..=4,
        "run with the same arguments and result 5 times (limit 5)",
    );
    // Numbers in the evidence are the scope's own: model calls have some, too.
    let after_a_question = [Step::Machine("hello")].into_iter().chain(same(9));
    let sim = Sim::new(5, Action::Terminate).play(after_a_question);
    assert_eq!(sim.fired[0].1.evidence, [2, 3, 4, 5]);
    // Only the run counts, not what was before it.
    let later = [call("run", "x", "y")].into_iter().chain(same(9));
    let sim = Sim::new(5, Action::Terminate).play(later);
    assert_eq!((sim.fired[0].0, sim.fired[0].1.evidence.clone()), (6, vec![2, 3, 4, 5]));
}

#[test]
fn a_retry_that_fails_the_same_way_is_no_progress() {
    let because = "run tried 5 times and failed the same way each time (limit 5)";
    for sign in ["!", "?"] {
        let retry = |n| (0..n).map(move |_| call("run", "make", format!("{sign}no rule")));
        check(retry(4), None);
        check_trip(retry(9), (5, "retry_without_progress"), (5, 5), 1..=4, because);
        // A timestamp, an id and a temporary path in the error do not make it another one.
        let stamped = |n| {
            (0..n).map(move |i| {
                let at = format!("2024-01-15T10:30:{i:02}Z");
                let error = format!("{sign}{at} request 3f2a9c{i:02} failed, see /tmp/x{i}/log");
                call("run", "make", error)
            })
        };
        check(stamped(4), None);
        check_trip(stamped(9), (5, "retry_without_progress"), (5, 5), 1..=4, because);
        // Nor does a nonce in the arguments, when the error is the same.
        let nonce =
            |n| (0..n).map(move |i| call("run", format!("make id={i}"), format!("{sign}no")));
        check(nonce(4), None);
        check_trip(nonce(9), (5, "retry_without_progress"), (5, 5), 1..=4, because);
    }
}

#[test]
fn a_nonce_in_the_arguments_only_doubles_the_limit() {
    for tool in ["read", "think"] {
        let nonce = |n| (0..n).map(move |i| call(tool, format!("page request_id={i}"), LONG));
        check(nonce(9), None);
        check_trip(
            nonce(20),
            (10, "repetition"),
            (10, 10),
            1..=9,
            &format!(
                "{tool} 10 times with arguments that differ only in numbers or ids, and the same \
                 result (limit 10)"
            ),
        );
    }
    // A short answer may be the same by chance: sixty orders that were all shipped are a batch.
    check((0..60).map(|i| call("read", format!("order={i}"), "shipped")), None);
    // A result that differs in a number only is progress here.
    check((0..40).map(|i| call("read", format!("row={i}"), format!("row {i}"))), None);
    // The same answer to each of a batch of changes is no news, and none is needed.
    check((0..200).map(|i| call("set", format!("row={i}"), "ok")), None);
    // A result that is now an error and now a success is not the same.
    let mut turns = 0;
    let flaky = std::iter::repeat_with(|| {
        turns += 1;
        let sign = if turns % 2 == 0 { "!" } else { "" };
        call("read", format!("request_id={turns}"), format!("{sign}maybe"))
    });
    check(flaky.take(40), None);
}

#[test]
fn the_same_error_whatever_is_asked_has_thrice_the_limit() {
    let errors = |n| (0..n).map(|i| call("run", word(i), "!command not found"));
    check(errors(14), None);
    check_trip(
        errors(20),
        (15, "retry_without_progress"),
        (15, 15),
        1..=14,
        "run failed the same way 15 times, whatever it was asked (limit 15)",
    );
    // Different errors, another tool, or success in between: the agent is getting somewhere.
    check((0..40).map(|i| call("run", word(i), format!("!no {}", word(i)))), None);
    let tools = ["run", "exec"];
    check((0..40).map(|i| call(tools[i % 2], word(i), "!not found")), None);
    check(errors(14).chain([call("exec", "x", "!command not found")]), None);
    check((0..40).map(|i| call("run", word(i), ["!no", "yes"][i % 2])), None);
}

#[test]
fn ping_pong_is_a_round_of_two() {
    // A and B, four of them again, and the next would be the fifth.
    check(round(2, 6), None);
    let sim = Sim::new(5, Action::Terminate).play(round(2, 20));
    assert_eq!(sim.first(), Some((7, "ping_pong")));
    let trip = &sim.fired[0].1;
    assert_eq!((trip.measured, trip.limit), (Measure::Count(5), Measure::Count(5)));
    // Found by reading: the first round, which the others repeat, was not part of it.
    assert_eq!(trip.evidence, [1, 2, 3, 4, 5, 6]);
    assert_eq!(
        trip.because,
        "alternates between the same 2 calls, run next, with identical results: 5 calls repeated \
         (limit 5)"
    );
}

#[test]
fn cycles_of_three_to_eight() {
    for period in 3..=8 {
        check(round(period, period + 4), None);
        let sim = Sim::new(5, Action::Terminate).play(round(period, 40));
        assert_eq!(sim.first(), Some((period + 5, "cycle")), "{period}");
        let trip = &sim.fired[0].1;
        assert_eq!((trip.measured, trip.limit), (Measure::Count(5), Measure::Count(5)));
        assert_eq!(trip.evidence, (1..=period as u64 + 4).collect::<Vec<_>>());
        assert_eq!(
            trip.because,
            format!(
                "alternates between the same {period} calls, run next, with identical results: 5 \
                 calls repeated (limit 5)"
            )
        );
    }
}

#[test]
fn a_round_whose_results_change_is_none() {
    let changing = (0..40).map(|n| call("run", word(n % 3), format!("result {}", word(n))));
    check(changing, None);
    // The calls come in another order: no round, and still nothing new.
    let order = [0, 1, 2, 1, 0, 2, 0, 1];
    let mixed = order.into_iter().map(|n| call("run", word(n), "known"));
    check(mixed, Some((8, "no_progress")));
    // The next call leaves the round.
    let left = round(3, 7).chain([call("run", "elsewhere", "new")]).chain(round(3, 4));
    check(left, None);
}

#[test]
fn longer_rounds_bring_no_progress() {
    for period in [9, 20, MEMORY] {
        check(round(period, period + 4), None);
        check_trip(
            round(period, 200),
            (period + 5, "no_progress"),
            (5, 5),
            (period as u64 + 1)..=(period as u64 + 5),
            "the last 5 calls, up to run, returned nothing new (limit 5)",
        );
    }
    // One longer than memory is new every time.
    check(round(MEMORY + 1, 400), None);
}

#[test]
fn something_new_starts_the_count_again() {
    let futile = |n| (0..n).map(|i| call("run", word(i % 7), "known"));
    // Seven new ones and four of them again, then something new, and four again.
    let script: Vec<_> =
        futile(7).chain(futile(4)).chain([call("run", "new", "news")]).chain(futile(4)).collect();
    check(script.clone(), None);
    let more = script.into_iter().chain([call("run", word(6), "known")]);
    check(more, Some((17, "no_progress")));
}

#[test]
fn an_inert_call_hides_no_loop() {
    let with = |noop: fn(usize) -> Step| {
        (0..40).map(move |n| if n % 3 == 2 { noop(n) } else { call("run", "make", "well") })
    };
    // The same thought each time is itself a repeat.
    check(with(|_| call("think", "hm", "")), Some((7, "no_progress")));
    // Reworded each time it is neither progress nor a repeat.
    check(with(|n| call("think", word(n), "")), Some((8, "no_progress")));
    check(with(|n| call("think", word(n), word(n))), Some((8, "no_progress")));
    // A tool that may change something makes it new.
    check(with(|n| call("write", word(n), word(n))), None);
    // Found by reading: what was neutral was shown as evidence.
    let turns = (0..40).map(|n| match n % 2 {
        1 => call("think", word(n), ""),
        _ => call("run", "make", "well"),
    });
    let sim = Sim::new(5, Action::Terminate).play(turns);
    assert_eq!(sim.first(), Some((11, "no_progress")));
    assert_eq!(sim.fired[0].1.evidence, [3, 5, 7, 9, 11]);
}

#[test]
fn empty_searches_are_neutral() {
    let search = |n: usize| call("search", word(n), "no results");
    check((0..60).map(search), None);
    // Between the same call again and again they hide nothing; the first was news.
    let between =
        (0..40).map(move |n| if n % 2 == 1 { search(n) } else { call("run", "make", "well") });
    check(between, Some((11, "no_progress")));
    // What another tool found is news for this one, and a find is news at any time.
    let others = (0..40).map(|n| match n % 2 {
        1 => call("read", word(n), format!("found {}", word(n))),
        _ => call("run", "make", "well"),
    });
    check(others, None);
    // A tool that may change something is not excused by an empty answer.
    let changes = (0..40).map(|n| match n % 2 {
        1 => call("write", word(n), "no results"),
        _ => call("run", "make", "well"),
    });
    check(changes, None);
}

#[test]
fn a_search_is_neutral_only_for_what_the_same_tool_brought() {
    // `run` has said "nothing" before; that `search` says it is news the first time.
    let script = |searches: usize| {
        let known = (0..5).map(|_| call("run", "a", "nothing"));
        let mut script: Vec<_> = known.take(4).collect();
        script.push(call("search", "b", "nothing"));
        script.extend((0..searches).map(|n| call("search", word(n), "nothing")));
        script.extend((0..4).map(|_| call("run", "a", "nothing")));
        script
    };
    check(script(0), None);
    check(script(3), None);
}

#[test]
fn new_words_of_a_person_start_a_new_stretch() {
    let words = "please look at the other module";
    let script = |say: Step| same(4).chain([say]).chain(same(9)).collect::<Vec<_>>();
    check(script(Step::Person(words)), Some((9, "repetition")));
    // Not from a person, or too little to mean something: nothing has changed.
    check(script(Step::Machine(words)), Some((5, "repetition")));
    check(script(Step::Person("continue")), Some((5, "repetition")));
    check(script(Step::Person("")), Some((5, "repetition")));
    // Only the calls since then are shown.
    let sim = Sim::new(5, Action::Terminate).play(script(Step::Person(words)));
    assert_eq!(sim.fired[0].1.evidence, [6, 7, 8, 9]);
}

/// Found by reading: what was seen before a person's words counted against what followed them.
#[test]
fn doing_it_all_again_for_a_person_is_no_loop() {
    let words = Step::Person("and now please do all of it again");
    for period in [5, 9, 30] {
        let again = round(period, period).chain([words.clone()]).chain(round(period, period));
        check(again.collect::<Vec<_>>(), None);
    }
    // Within what they asked for it is a loop, in its time.
    let twice = round(2, 4).chain([words]).chain(round(2, 20));
    check(twice, Some((11, "ping_pong")));
    // An empty search is news again, too.
    let search = |n: usize| call("search", word(n), "no results");
    let before = same(1).chain((0..3).map(search));
    let after = same(1).chain([search(7)]).chain(same(4));
    check(before.chain([Step::Person("please look for it once more")]).chain(after), None);
}

#[test]
fn the_same_words_again_are_not_new() {
    let say = Step::Person("please just go on");
    let script = same(3).chain([say.clone()]).chain(same(3)).chain([say]).chain(same(9));
    check(script, Some((8, "repetition")));
    // Four prompts are remembered.
    let prompts = [
        "first of all this",
        "then second comes that",
        "third is the charm",
        "fourth for luck now",
    ];
    let once = |more: &[&'static str]| {
        let all: Vec<_> = prompts.iter().chain(more).map(|words| Step::Person(words)).collect();
        all.into_iter().chain(same(4)).chain([Step::Person(prompts[0])]).chain(same(9))
    };
    check(once(&[]), Some((5, "repetition")));
    check(once(&["and the fifth one"]), Some((9, "repetition")));
}

#[test]
fn honest_work_is_no_loop() {
    // Edit, test, edit, test: the edit is new each time, whatever it answers.
    check(
        (0..200).map(|n| match n % 2 {
            0 => call("edit", word(n), "ok"),
            _ => call("run", "test", "!3 failed"),
        }),
        None,
    );
    // Polling that changes, for as long as it does.
    let polling = |n: usize| call("read", "status", format!("working on {}", word(n)));
    check((0..200).map(polling), None);
    let stuck = (0..50).map(polling).chain((0..9).map(|_| call("read", "status", "waiting")));
    check(stuck, Some((55, "repetition")));
    // Paging: the arguments differ in a number, the text is new.
    check((0..200).map(|n| call("read", format!("page={n}"), format!("row {}", word(n)))), None);
    // Four repeats, then news, all day long.
    check((0..200).map(|n| call("run", word(n / 4), word(n / 4))), None);
}

#[test]
fn thresholds_hold_exactly() {
    fn check(threshold: u32, at: u32, reason: &str, script: impl Iterator<Item = Step>) {
        let script: Vec<_> = script.take(at as usize).collect();
        let before = script[..script.len() - 1].to_vec();
        let sim = Sim::new(threshold, Action::Terminate).play(before);
        assert_eq!(sim.first(), None, "{reason} with {threshold}");
        let sim = Sim::new(threshold, Action::Terminate).play(script);
        assert_eq!(sim.first(), Some((at as usize, reason)), "with {threshold}");
        let trip = &sim.fired[0].1;
        assert_eq!(trip.measured, trip.limit);
    }
    for t in 2..=40 {
        check(t, t, "repetition", same(200));
        let retry = (0..200).map(|_| call("run", "x", "!no"));
        check(t, t, "retry_without_progress", retry);
        let nonce = (0..200).map(|n| call("read", format!("id={n}"), LONG));
        check(t, 2 * t, "repetition", nonce);
        let numbers = (0..200).map(|n| call("read", "status", format!("{n} % done")));
        // What the second look will bring is not known: at 2 it counts as the same.
        check(t, if t == 2 { 2 } else { 2 * t }, "repetition", numbers);
        let two = (0..200).map(|n| call("read", word(n % 2), format!("{n} % done")));
        check(t, 2 * t + 2, "no_progress", two);
        let errors = (0..200).map(|n| call("run", word(n), "!no"));
        check(t, 3 * t, "retry_without_progress", errors);
        check(t, t + 2, "ping_pong", round(2, 200));
        check(t, t + 8, "cycle", round(8, 200));
        check(t, t + 9, "no_progress", round(9, 200));
    }
}

#[test]
fn each_action_is_carried_out() {
    for (action, at_admission, at_settlement) in [
        (Action::Warn, Verdict::Warn, Verdict::Warn),
        (Action::Block, Verdict::Block, Verdict::Warn),
        (Action::Terminate, Verdict::Kill, Verdict::Kill),
    ] {
        let sim = Sim::new(5, action).play(same(5));
        assert_eq!(sim.fired.len(), 1);
        assert_eq!(sim.fired[0].1.verdict, at_admission);
        // What is over cannot be blocked any more.
        let sim = Sim::new(5, action).play(round(9, 14));
        assert_eq!(sim.fired.len(), 1);
        assert_eq!(sim.fired[0].1.verdict, at_settlement);
        assert_eq!(sim.session.killed().is_some(), action == Action::Terminate);
    }
}

/// What is only warned of goes on, and so do the warnings.
#[test]
fn a_pattern_is_told_for_as_long_as_it_lasts() {
    for (script, first, reason) in [
        (same(12).collect::<Vec<_>>(), 5, "repetition"),
        (round(2, 12).collect(), 7, "ping_pong"),
        (round(3, 12).collect(), 8, "cycle"),
    ] {
        let sim = Sim::new(5, Action::Warn).play(script);
        let at: Vec<_> = sim.fired.iter().filter(|(_, trip)| trip.reason == reason).collect();
        let told: Vec<_> = at.iter().map(|(at, trip)| (*at, trip.measured)).collect();
        let expected = (first..=12).map(|n| (n, Measure::Count((n - first + 5) as u64)));
        assert_eq!(told, expected.collect::<Vec<_>>(), "{reason}");
    }
}

#[test]
fn a_trip_ends_what_the_policy_says() {
    for ends in [Ends::Scope, Ends::Session, Ends::Agent] {
        for script in [same(5).collect::<Vec<_>>(), round(9, 14).collect()] {
            let mut sim = Sim::new(5, Action::Terminate);
            sim.policy.loops.ends = ends;
            assert_eq!(sim.play(script).fired[0].1.ends, ends);
        }
    }
}

#[test]
fn memory_is_bounded_whatever_goes_on() {
    let sim = Sim::new(5, Action::Warn).play(same(200));
    assert_eq!(sim.session.memory.calls.len(), MEMORY);
    assert_eq!(sim.session.memory.stretch as usize, MEMORY);
    let [.., (_, repetition)] = &sim.fired[..] else { unreachable!() };
    assert_eq!(repetition.reason, "repetition");
    assert_eq!(repetition.measured, Measure::Count(200), "counted beyond what is remembered");
    assert_eq!(repetition.evidence, (136..=199).collect::<Vec<_>>());
    let sim = Sim::new(5, Action::Warn).play(round(9, 300));
    let [.., (_, no_progress)] = &sim.fired[..] else { unreachable!() };
    assert_eq!(no_progress.reason, "no_progress");
    assert_eq!(no_progress.measured, Measure::Count(291));
    assert_eq!(no_progress.evidence, (237..=300).collect::<Vec<_>>());
    let prompts =
        ["one two three", "two three four", "three four five", "four five six", "five six"];
    let sim = Sim::new(5, Action::Warn).play(prompts.map(Step::Person));
    assert_eq!(sim.session.memory.prompts.len(), 4);
}

#[test]
fn what_brought_nothing_to_compare_is_not_learned() {
    let call = tool_call("run", "make");
    for outcome in [
        Outcome { status: Status::Cancelled, ..tool_result("well") },
        Outcome::default(),
        Outcome { usage: Usage { output: Tokens(1), ..Usage::default() }, ..Outcome::default() },
    ] {
        let mut sim = Sim::new(5, Action::Terminate);
        for _ in 0..20 {
            let mut chain = [Link { name: "s", state: &mut sim.session, policy: &sim.policy }];
            let admission = admit(&mut chain, &call, Time(0));
            let ticket = admission.ticket.unwrap();
            assert_eq!(settle(&mut chain, &call, ticket, &outcome, Time(0)).trips, []);
        }
        assert!(sim.session.memory.calls.is_empty());
    }
}

#[test]
fn looks_only_where_it_is_wanted_and_where_the_calls_are_made() {
    let mut off = Sim::new(5, Action::Terminate);
    off.policy.loops.enabled = false;
    let off = off.play(same(50));
    assert_eq!((off.first(), off.session.memory.calls.len()), (None, 0));

    // Two branches of one session make the same calls: that is no repetition.
    let sim = Sim::new(5, Action::Terminate);
    let mut session = ScopeState::new(ScopeKind::Session, Time(0));
    let mut branches = [(); 5].map(|()| ScopeState::new(ScopeKind::Nested, Time(0)));
    for _ in 0..4 {
        for branch in &mut branches {
            let mut chain = [
                Link { name: "s", state: &mut session, policy: &sim.policy },
                Link { name: "n", state: branch, policy: &sim.policy },
            ];
            let call = tool_call("run", "make");
            let admission = admit(&mut chain, &call, Time(0));
            assert_eq!(admission.trips, []);
            let ticket = admission.ticket.unwrap();
            let decision = settle(&mut chain, &call, ticket, &tool_result("well"), Time(0));
            assert_eq!(decision.trips, []);
        }
    }
    assert!(session.memory.calls.is_empty());
}

#[test]
fn a_person_is_heard_only_where_the_calls_are_made() {
    let sim = Sim::new(5, Action::Terminate);
    let mut session = ScopeState::new(ScopeKind::Session, Time(0));
    let mut nested = ScopeState::new(ScopeKind::Nested, Time(0));
    let mut chain = [
        Link { name: "s", state: &mut session, policy: &sim.policy },
        Link { name: "n", state: &mut nested, policy: &sim.policy },
    ];
    admit(&mut chain, &said("something new to do", true), Time(0));
    assert_eq!((session.memory.prompts.len(), nested.memory.prompts.len()), (0, 1));
}
