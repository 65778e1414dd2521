//! Conversations of strangers, played through the real readers of requests and answers.

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
        self.index.find(caller, turns, attempt, self.fresh, Time(self.now))
    }

    fn fail(&mut self, turns: &Turns, found: Found) {
        self.index.failed(CALLER, turns, found.session, Time(self.now));
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
        let key = turns.answer(&echo);
        self.now += 100;
        self.index.answered(caller, found.session, key, None, Time(self.now));
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
    desk.index.answered(CALLER, mine.session, None, Some("resp_1"), Time(9));
    assert_eq!(desk.index.of_answer(CALLER, "resp_1"), Some(mine.session));
    assert_eq!(desk.index.of_answer(Digest(8), "resp_1"), None);
    let place = Digest(1);
    assert_eq!(desk.index.owned(place, Digest(8), "s1"), "s1");
    assert_eq!(desk.index.owned(place, Digest(8), "s1"), "s1");
    assert_eq!(desk.index.owned(place, Digest(9 << 40), "s1"), "s1~00000900");
}

#[test]
fn many_single_prompts_one_after_the_other_are_a_batch() {
    let mut desk = Desk::default();
    let mut sessions = HashMap::<SessionId, u32>::new();
    for item in 0..300 {
        let found = desk.say(&mut Vec::new(), &format!("classify item {item}"), "fine");
        *sessions.entry(found.session).or_default() += 1;
    }
    assert_eq!(sessions.values().max(), Some(&(300 - BATCH)));
    assert_eq!(sessions.len(), BATCH as usize + 1);
    // One of them goes on after all: it has a session of its own from then on.
    let mut history = Vec::new();
    let single = desk.say(&mut history, "and what about this?", "that one");
    assert_eq!(single.known, Known::Single);
    let own = desk.say(&mut history, "why?", "because");
    assert_ne!(own.session, single.session);
    assert_eq!(desk.say(&mut history, "really?", "yes").session, own.session);
}

/// A small generator of numbers, the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// A client in the middle of a conversation.
struct Talk {
    conversation: u64,
    history: Vec<Value>,
    left: u64,
    waiting: Option<(Turns, Found)>,
    answers: u64,
}

/// 10,000 conversations of 200 clients with one credential, a third with the same first words, all
/// at once: with tools, branches side by side, edits and attempts that fail.
#[test]
fn no_two_clients_share_a_session_and_no_conversation_is_split() {
    play(0x9e37_79b9_7f4a_7c15, 10_000, 200);
}

/// Which conversation each session belongs to, and the other way round.
#[derive(Default)]
struct Book {
    owner: HashMap<SessionId, u64>,
    session: HashMap<u64, SessionId>,
}

impl Book {
    fn note(&mut self, conversation: u64, found: Found) {
        let of = *self.owner.entry(found.session).or_insert(conversation);
        assert_eq!(of, conversation, "two conversations share {:?}", found.session);
        let is = *self.session.entry(conversation).or_insert(found.session);
        assert_eq!(is, found.session, "conversation {conversation} is split");
    }

    /// Nothing was answered yet: another one that failed as well may take its place.
    fn forget(&mut self, conversation: u64) {
        if let Some(session) = self.session.remove(&conversation) {
            self.owner.remove(&session);
        }
    }
}

fn play(seed: u64, conversations: u64, clients: usize) {
    let (mut dice, mut desk, mut book) = (Dice(seed), Desk::default(), Book::default());
    let mut begun = 0;
    let mut talks: Vec<Option<Talk>> = (0..clients).map(|_| None).collect();
    while begun < conversations || talks.iter().any(Option::is_some) {
        let talk = &mut talks[dice.roll(clients as u64) as usize];
        match talk {
            None if begun < conversations => {
                begun += 1;
                *talk = Some(begin(begun, &mut dice, &mut desk, &mut book));
            }
            None => {}
            Some(now) if now.waiting.is_some() => {
                hear(now, &mut dice, &mut desk, &mut book);
                if now.left == 0 {
                    *talk = None;
                }
            }
            Some(now) => go_on(now, &mut dice, &mut desk, &mut book),
        }
    }
    assert_eq!(book.session.len() as u64, conversations);
    assert_eq!(book.owner.len() as u64, conversations);
}

fn begin(conversation: u64, dice: &mut Dice, desk: &mut Desk, book: &mut Book) -> Talk {
    let words = match dice.roll(3) {
        0 => "hi".to_owned(),
        _ => format!("please look at ticket {}", dice.roll(1000)),
    };
    let history = vec![user(&words)];
    let turns = turns(&history);
    let found = desk.send(CALLER, &turns, Attempt::First);
    book.note(conversation, found);
    let left = 1 + dice.roll(6);
    Talk { conversation, history, left, waiting: Some((turns, found)), answers: 0 }
}

/// The answer comes, or none does and the client tries again.
fn hear(now: &mut Talk, dice: &mut Dice, desk: &mut Desk, book: &mut Book) {
    let Some((turns, found)) = now.waiting.take() else { return };
    if dice.roll(10) == 0 {
        desk.fail(&turns, found);
        if now.answers == 0 {
            book.forget(now.conversation);
        }
        let says = if dice.roll(2) == 0 { Attempt::Again } else { Attempt::First };
        let again = desk.send(CALLER, &turns, says);
        book.note(now.conversation, again);
        now.waiting = Some((turns, again));
        return;
    }
    let text = match dice.roll(4) {
        0 => String::new(),
        _ => format!("answer {:x}", dice.roll(u64::MAX)),
    };
    let calls = dice.roll(3) + u64::from(text.is_empty());
    let calls: Vec<String> =
        (0..calls).map(|_| format!("call_{:x}", dice.roll(u64::MAX))).collect();
    let said = desk.answer(CALLER, &turns, found, &text, &calls);
    now.history.push(said);
    for id in calls {
        now.history.push(json!({ "role": "tool", "tool_call_id": id, "content": "done" }));
    }
    now.answers += 1;
    now.left -= 1;
}

/// The client says something more: in its place, instead of its last words, or beside them.
fn go_on(now: &mut Talk, dice: &mut Dice, desk: &mut Desk, book: &mut Book) {
    if dice.roll(8) == 0 && now.history.len() > 4 {
        let last = |message: &Value| message["role"] == "user";
        let at = now.history.iter().rposition(last).filter(|at| *at > 0);
        now.history.truncate(at.unwrap_or(now.history.len()));
    }
    if dice.roll(6) == 0 {
        let mut branch = now.history.clone();
        branch.push(user("in the meantime, count the files"));
        let turns = turns(&branch);
        let other = desk.send(CALLER, &turns, Attempt::First);
        book.note(now.conversation, other);
        desk.answer(CALLER, &turns, other, &format!("{:x}", dice.roll(u64::MAX)), &[]);
    }
    now.history.push(user(&format!("and then {}?", dice.roll(5))));
    let turns = turns(&now.history);
    let found = desk.send(CALLER, &turns, Attempt::First);
    book.note(now.conversation, found);
    now.waiting = Some((turns, found));
}

#[test]
fn memory_is_bounded() {
    let mut desk = Desk::default();
    for n in 0..GENERATION as u64 * 3 {
        desk.index.requests.set(n, Sent { last: Some(SessionId(n)), failed: Vec::new() });
    }
    assert!(desk.index.requests.new.len() + desk.index.requests.old.len() <= 2 * GENERATION);
    // What is used stays.
    let used = GENERATION as u64 * 3 - 1;
    for n in 0..GENERATION as u64 * 3 {
        desk.index
            .requests
            .set(n + 1_000_000, Sent { last: Some(SessionId(n)), failed: Vec::new() });
        assert!(desk.index.requests.get(used).is_some());
    }
}
