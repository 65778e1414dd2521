//! Conversations, played through the real readers of requests and answers. Thousands of them at once,
//! in memory and in Redis, are in the warden's tests.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::*;
use crate::llm::Dialect;
use crate::llm::answer::echo::Echo;
use crate::llm::request::open;

fn turns(messages: &[Value]) -> Turns {
    let body = json!({ "model": "m", "messages": messages }).to_string();
    open(Dialect::OpenAiChat, "/v1/chat/completions", body.as_bytes()).unwrap().turns()
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

/// A caller whose node died with a request in flight would never have had a batch again.
#[test]
fn a_request_that_was_lost_is_not_in_flight_for_ever() {
    let mut desk = Desk::default();
    desk.ask(CALLER, &[user("lost")], Attempt::First);
    desk.now += LIMITS.lost_ms;
    let last = (0..20).map(|n| desk.say(&mut Vec::new(), &format!("item {n}"), "fine")).last();
    assert_eq!(last.unwrap().known, Known::Single);
}

/// An index with a counter for its new sessions.
#[derive(Default)]
struct Desk {
    index: Conversations,
    fresh: u64,
    now: u64,
}

const CALLER: Digest = Digest(7);

impl Desk {
    fn ask(&mut self, caller: Digest, messages: &[Value], attempt: Attempt) -> Found {
        self.send(caller, &turns(messages), attempt)
    }

    fn send(&mut self, caller: Digest, turns: &Turns, attempt: Attempt) -> Found {
        self.fresh += 1;
        self.now += 100;
        self.index.find(&Keys::of(caller, turns), attempt, self.fresh, Time(self.now))
    }

    fn fail(&mut self, turns: &Turns, found: Found) {
        self.index.failed(&Keys::of(CALLER, turns), found.session, Time(self.now));
    }

    /// The client's message about an answer of a text and of tool calls.
    fn answer(
        &mut self,
        caller: Digest,
        turns: &Turns,
        found: Found,
        text: &str,
        calls: &[String],
    ) -> Value {
        let mut echo = Echo::default();
        echo.text(text);
        calls.iter().for_each(|id| echo.call(id, "tool"));
        let keys = Keys::to_answer(caller, turns.answer(&echo), None);
        self.now += 100;
        self.index.answered(caller, found.session, &keys, Time(self.now));
        let call = |id: &String| json!({ "id": id, "function": { "name": "tool" } });
        let calls: Vec<Value> = calls.iter().map(call).collect();
        json!({ "role": "assistant", "content": text, "tool_calls": calls })
    }

    fn say(&mut self, history: &mut Vec<Value>, text: &str, answer: &str) -> Found {
        history.push(user(text));
        let turns = turns(history);
        let found = self.send(CALLER, &turns, Attempt::First);
        let said = self.answer(CALLER, &turns, found, answer, &[]);
        history.push(said);
        found
    }
}

#[test]
fn the_hi_of_two_people_is_two_sessions() {
    let mut desk = Desk::default();
    let (mut ada, mut bob) = (Vec::new(), Vec::new());
    let first = desk.say(&mut ada, "hi", "Hello Ada");
    let second = desk.say(&mut bob, "hi", "Hello Bob");
    assert_ne!(first.session, second.session);
    assert_eq!(desk.say(&mut bob, "more", "yes").session, second.session);
    assert_eq!(desk.say(&mut ada, "more", "yes").session, first.session);
    assert_eq!(desk.say(&mut ada, "thanks", "bye").known, Known::Continued);
}

/// Nothing tells them apart, but no session is taken twice.
#[test]
fn of_sessions_with_the_same_history_each_is_taken_once() {
    let mut desk = Desk::default();
    let mut people: Vec<Vec<Value>> = vec![Vec::new(); 5];
    let mut sessions: Vec<SessionId> = Vec::new();
    for history in &mut people {
        sessions.push(desk.say(history, "hi", "Hello!").session);
    }
    let next: HashSet<SessionId> =
        people.iter_mut().map(|history| desk.say(history, "next", "Sure.").session).collect();
    assert_eq!(next, sessions.into_iter().collect());
}

#[test]
fn a_request_that_failed_is_the_same_when_it_comes_again() {
    let mut desk = Desk::default();
    let opening = [user("hi")];
    let first = desk.ask(CALLER, &opening, Attempt::First);
    // Another person's, while the first one waits for its answer.
    let other = desk.ask(CALLER, &opening, Attempt::First);
    assert_ne!(first.session, other.session);
    let turns = turns(&opening);
    desk.fail(&turns, first);
    desk.fail(&turns, other);
    // Each of the two who try again takes one of the two.
    let (one, two) =
        (desk.ask(CALLER, &opening, Attempt::First), desk.ask(CALLER, &opening, Attempt::Again));
    assert_eq!((one.session, two.session), (other.session, first.session));
    desk.answer(CALLER, &turns, one, "Hello", &[]);
    desk.fail(&turns, two);
    for _ in 0..60 {
        let again = desk.ask(CALLER, &opening, Attempt::First);
        assert_eq!((again.session, again.known), (first.session, Known::Again));
        desk.fail(&turns, again);
    }
}

#[test]
fn credentials_do_not_see_each_other() {
    let mut desk = Desk::default();
    let mut history = Vec::new();
    let mine = desk.say(&mut history, "hi", "Hello");
    history.push(user("next"));
    let theirs = desk.ask(Digest(8), &history, Attempt::First);
    assert_eq!((theirs.known, theirs.session == mine.session), (Known::New, false));
    let answer = Keys::to_answer(CALLER, None, Some("resp_1"));
    desk.index.answered(CALLER, mine.session, &answer, Time(9));
    assert_eq!(desk.index.of_answer(named(CALLER, "resp_1")), Some(mine.session));
    assert_eq!(desk.index.of_answer(named(Digest(8), "resp_1")), None);
    assert_eq!(of_another("s1", Digest(9 << 40)), "s1~00000900");
}

#[test]
fn many_single_prompts_one_after_the_other_are_a_batch() {
    let mut desk = Desk::default();
    let mut sessions = HashMap::<SessionId, u32>::new();
    for item in 0..300 {
        let found = desk.say(&mut Vec::new(), &format!("classify item {item}"), "fine");
        *sessions.entry(found.session).or_default() += 1;
    }
    assert_eq!(sessions.values().max(), Some(&(300 - LIMITS.batch)));
    assert_eq!(sessions.len(), LIMITS.batch as usize + 1);
    // One of them goes on after all: it has a session of its own from then on.
    let mut history = Vec::new();
    let single = desk.say(&mut history, "and what about this?", "that one");
    assert_eq!(single.known, Known::Single);
    let own = desk.say(&mut history, "why?", "because");
    assert_ne!(own.session, single.session);
    assert_eq!(desk.say(&mut history, "really?", "yes").session, own.session);
}

#[test]
fn memory_is_bounded() {
    let mut desk = Desk::default();
    for n in 0..LIMITS.generation as u64 * 3 {
        desk.index.requests.set(n, Sent { last: Some(SessionId(n)), failed: Vec::new() });
    }
    assert!(desk.index.requests.new.len() + desk.index.requests.old.len() <= 2 * LIMITS.generation);
    // What is used stays.
    let used = LIMITS.generation as u64 * 3 - 1;
    for n in 0..LIMITS.generation as u64 * 3 {
        desk.index
            .requests
            .set(n + 1_000_000, Sent { last: Some(SessionId(n)), failed: Vec::new() });
        assert!(desk.index.requests.get(used).is_some());
    }
}
