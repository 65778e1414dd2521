//! `deadstop watch` with a filter shows what fits it, and nothing else.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout};

use serde_json::Value;

use super::house::House;

/// A watcher that the server knows of.
struct Watcher {
    program: Child,
    lines: BufReader<ChildStdout>,
}

impl Watcher {
    fn new(house: &House, filter: &[&str]) -> Watcher {
        let mut program = house.begin(&[&["watch", "--json"], filter].concat());
        let mut said = BufReader::new(program.stderr.take().unwrap());
        let mut first = String::new();
        said.read_line(&mut first).unwrap();
        assert!(first.starts_with("watching "), "{first}");
        let lines = BufReader::new(program.stdout.take().unwrap());
        Watcher { program, lines }
    }

    /// The events until the one of this kind, which is the last of them.
    fn until(&mut self, what: &str) -> Vec<Value> {
        let mut events: Vec<Value> = Vec::new();
        while events.last().is_none_or(|event| event["what"] != what) {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "no {what} in {events:?}");
            events.push(serde_json::from_str(&line).unwrap());
        }
        events
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

#[test]
fn a_filter_shows_what_fits_it_and_nothing_else() {
    let house = House::new();
    let mut of_agent = Watcher::new(&house, &["--agent", "calm"]);
    let mut of_session = Watcher::new(&house, &["--session", "seeker/s2"]);
    let mut of_guard = Watcher::new(&house, &["--guard", "similarity"]);
    house.run_away("seeker", "s1");
    assert_eq!(house.call("calm", "s1", ""), 200);
    house.ask(&["resume", "--agent", "seeker", "--reason", "again"]).fine();
    assert_eq!(house.call("seeker", "s2", ""), 200);
    for (agent, session) in [("seeker", "s2"), ("calm", "s1")] {
        let named = ["--agent", agent, "--session", session, "--reason", "the end"];
        house.ask(&[&["pause"], &named[..]].concat()).fine();
    }

    let all = of_agent.until("paused");
    assert!(all.iter().all(|event| event["agent"] == "calm"), "{all:?}");
    let all = of_session.until("paused");
    let fits = |event: &Value| event["agent"] == "seeker" && event["session"] == "s2";
    assert!(all.iter().all(fits), "{all:?}");
    let all = of_guard.until("stop");
    assert!(all.iter().all(|event| event["guard"] == "similarity"), "{all:?}");
}

#[test]
fn a_guard_that_is_none_is_refused_with_those_that_are() {
    let house = House::new();
    let said = house.ask(&["watch", "--guard", "loops"]);
    assert_eq!((said.code, said.out.as_str()), (2, ""), "{said:?}");
    assert!(said.err.contains("loop") && said.err.contains("budget"), "{said:?}");
}
