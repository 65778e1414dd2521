//! Looks that differ only in numbers: jobs that get on, and how far they are believed.

use super::*;

fn poll(n: usize) -> Step {
    call("read", "job", format!("running, {n} % done"))
}

/// Found by reading: watching a job get on was a loop after five looks.
#[test]
fn numbers_that_change_double_the_limit() {
    check((0..9).map(poll), None);
    check_trip(
        (0..40).map(poll),
        (10, "repetition"),
        (10, 10),
        1..=9,
        "read 10 times with the same arguments, and results that differ only in numbers (limit 10)",
    );
    // An inert tool is no different.
    let think = |n| (0..n).map(|i| call("think", "of it", format!("thought {i}")));
    check(think(9), None);
    check(think(40), Some((10, "repetition")));
    // Once the job stands still, five looks are enough.
    let stuck = (0..3).map(poll).chain((0..9).map(|_| poll(3)));
    check(stuck, Some((8, "repetition")));
    // A word that changes is news.
    let phases = (0..60).map(|n| call("read", "job", format!("{}, {n} % done", word(n / 8))));
    check(phases, None);
}

#[test]
fn numbers_do_not_excuse_what_fails_or_changes_something() {
    let fails = |n| (0..n).map(|i| call("read", "job", format!("!no answer after {i} s")));
    check(fails(4), None);
    check_trip(
        fails(9),
        (5, "retry_without_progress"),
        (5, 5),
        1..=4,
        "read tried 5 times and failed the same way each time (limit 5)",
    );
    let changes = |n| (0..n).map(|i| call("run", "make", format!("built in {i} s")));
    check(changes(4), None);
    check_trip(
        changes(9),
        (5, "repetition"),
        (5, 5),
        1..=4,
        "run with the same arguments and result 5 times (limit 5)",
    );
}

/// Halves are added up: two looks with other numbers weigh as much as one with the same.
#[test]
fn a_look_with_other_numbers_counts_half() {
    let results = [
        ("1 % done", 0, false),
        ("2 % done", 1, true),
        ("2 % done", 3, true),
        ("1 % done", 5, true),
        ("3 % done", 6, true),
        ("failed", 0, false),
        ("4 % done", 1, true),
    ];
    let mut sim = Sim::new(16, Action::Terminate);
    for (at, (result, halves, futile)) in results.into_iter().enumerate() {
        sim.step(call("read", "job", result));
        let memory = &sim.session.memory;
        assert_eq!((memory.halves, memory.futile()), (halves, halves / 2), "after {at}");
        assert_eq!(memory.calls.back().unwrap().is_futile(), futile, "after {at}");
    }
    assert!(sim.session.memory.futile_calls().is_empty());
    sim.step(call("read", "job", "5 % done"));
    assert_eq!(sim.session.memory.futile_calls(), [8]);
}

/// Two jobs in turn make no run, so that only what they bring together counts.
#[test]
fn two_jobs_that_get_on() {
    let turns = |n| (0..n).map(|i| call("read", word(i % 2), format!("{i} % done")));
    check(turns(11), None);
    check_trip(
        turns(40),
        (12, "no_progress"),
        (5, 5),
        8..=12,
        "the last 5 calls, up to read, returned nothing new (limit 5)",
    );
    // A round must bring the same to the letter.
    let round = |n| (0..n).map(|i| call("read", word(i % 2), format!("{} % done", i % 2)));
    check(round(40), Some((7, "ping_pong")));
}

/// The same status with the same text is what makes two calls of a nonce alike.
#[test]
fn a_nonce_and_other_numbers_together_are_paging() {
    check((0..60).map(|n| call("read", format!("page={n}"), format!("page {n} is empty"))), None);
    // With an error they are a retry.
    let errors = (0..60).map(|n| call("read", format!("page={n}"), format!("!page {n} is gone")));
    check(errors, Some((5, "retry_without_progress")));
    // Ten in a row, and not one less, also after something else.
    let nonce = |n| (0..n).map(|i| call("read", format!("page={i}"), LONG));
    check([call("read", "page=x", "full")].into_iter().chain(nonce(9)), None);
    let later = [call("read", "page=x", "full")].into_iter().chain(nonce(10));
    check(later, Some((11, "repetition")));
}
