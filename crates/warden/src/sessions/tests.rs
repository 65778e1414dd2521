//! Thousands of unnamed conversations at once, in memory and on three nodes that share a Redis: the
//! same cases for both. `DEADSTOP_SOAK=1` plays as many in Redis as in memory.

use std::collections::{HashMap, HashSet};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use deadstop_protocol::llm::Dialect;
use deadstop_protocol::llm::request::open;
use serde_json::{Value, json};

use super::*;

/// Nodes that share their state; a client may reach any of them.
struct Nodes {
    wardens: Vec<Arc<Warden>>,
    project: String,
    dice: Dice,
    _folders: Vec<tempfile::TempDir>,
}

impl Nodes {
    /// One server.
    async fn memory() -> Nodes {
        let warden = Warden::new(policies(), None, None, Arc::default()).await.unwrap();
        Nodes::of(vec![warden], Vec::new())
    }

    /// Three nodes on one Redis. What lasts plays no part here: each has a database of its own.
    async fn cluster() -> Nodes {
        let (mut wardens, mut folders) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            let store = Store::open(&folder.path().join("store")).await.unwrap();
            let redis = Redis::open(redis()).unwrap();
            let warden = Warden::new(policies(), Some(store), Some(redis), Arc::default()).await;
            wardens.push(warden.unwrap());
            folders.push(folder);
        }
        Nodes::of(wardens, folders)
    }

    fn of(wardens: Vec<Arc<Warden>>, folders: Vec<tempfile::TempDir>) -> Nodes {
        let project = uuid::Uuid::new_v4().to_string();
        let dice = Dice(0x9e37_79b9_7f4a_7c15);
        Nodes { wardens, project, dice, _folders: folders }
    }

    fn any(&mut self) -> Arc<Warden> {
        let at = self.dice.roll(self.wardens.len() as u64);
        Arc::clone(&self.wardens[at as usize])
    }

    /// A request without a name reaches one of the nodes.
    async fn send(&mut self, history: &[Value], attempt: Attempt) -> Placed {
        self.send_as(Digest(7), &unnamed(), history, attempt).await
    }

    async fn send_as(
        &mut self,
        credential: Digest,
        who: &Identity,
        history: &[Value],
        attempt: Attempt,
    ) -> Placed {
        let body = json!({ "model": "m", "messages": history }).to_string();
        let turns =
            open(Dialect::OpenAiChat, "/v1/chat/completions", body.as_bytes()).unwrap().turns();
        let (warden, project) = (self.any(), self.project.clone());
        let asking =
            Asking { project: &project, agent: "default", who, credential, turns, attempt };
        warden.place(asking).await
    }

    /// One turn of a conversation; returns its session.
    async fn say(&mut self, history: &mut Vec<Value>, text: &str, answer: &str) -> String {
        history.push(user(text));
        let placed = self.send(history, Attempt::First).await;
        history.push(answered(placed.thread.unwrap(), answer, &[]).await);
        placed.session
    }
}

fn policies() -> deadstop_core::PolicySet {
    deadstop_core::RawPolicy::default().resolve().unwrap()
}

/// One Redis for all tests of this program.
fn redis() -> &'static str {
    static ADDRESS: OnceLock<String> = OnceLock::new();
    ADDRESS.get_or_init(|| {
        if let Ok(address) = std::env::var("DEADSTOP_TEST_REDIS") {
            return address;
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/redis");
        let own = std::process::id().to_string();
        let ran = Command::new(script).args(["start", &own]).stderr(Stdio::inherit()).output();
        let ran = ran.unwrap();
        assert!(ran.status.success(), "no Redis to test with; scripts/redis says why above");
        String::from_utf8(ran.stdout).unwrap().lines().nth(1).unwrap().to_owned()
    })
}

fn soak() -> bool {
    std::env::var("DEADSTOP_SOAK").is_ok_and(|value| !value.is_empty())
}

fn unnamed() -> Identity {
    Identity { source: Source::Conversation, ..Identity::default() }
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

/// The client's message about an answer of a text and of tool calls.
async fn answered(thread: Thread, text: &str, calls: &[String]) -> Value {
    let mut echo = Echo::default();
    echo.text(text);
    calls.iter().for_each(|id| echo.call(id, "tool"));
    if let Some(noted) = thread.answered(&echo, None) {
        noted.await;
    }
    let call = |id: &String| json!({ "id": id, "function": { "name": "tool" } });
    let calls: Vec<Value> = calls.iter().map(call).collect();
    json!({ "role": "assistant", "content": text, "tool_calls": calls })
}

async fn failed(thread: Thread) {
    if let Some(noted) = thread.failed() {
        noted.await;
    }
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
    waiting: Option<Thread>,
    answers: u64,
}

/// Which conversation each session belongs to, and the other way round.
#[derive(Default)]
struct Book {
    owner: HashMap<String, u64>,
    session: HashMap<u64, String>,
}

impl Book {
    fn note(&mut self, conversation: u64, session: &str) {
        let of = *self.owner.entry(session.to_owned()).or_insert(conversation);
        assert_eq!(of, conversation, "two conversations share {session}");
        let is = self.session.entry(conversation).or_insert_with(|| session.to_owned());
        assert_eq!(is, session, "conversation {conversation} is split");
    }

    /// It was not answered yet: another conversation that failed as well may take its session.
    fn forget(&mut self, conversation: u64) {
        if let Some(session) = self.session.remove(&conversation) {
            self.owner.remove(&session);
        }
    }
}

/// All clients, with the nodes that they use.
struct Play {
    nodes: Nodes,
    dice: Dice,
    book: Book,
}

impl Play {
    async fn run(nodes: Nodes, conversations: u64, clients: usize) {
        let mut play = Play { nodes, dice: Dice(0x2545_f491_4f6c_dd1d), book: Book::default() };
        let mut begun = 0;
        let mut talks: Vec<Option<Talk>> = (0..clients).map(|_| None).collect();
        while begun < conversations || talks.iter().any(Option::is_some) {
            let talk = &mut talks[play.dice.roll(clients as u64) as usize];
            match talk {
                None if begun < conversations => {
                    begun += 1;
                    *talk = Some(play.begin(begun).await);
                }
                None => {}
                Some(now) if now.waiting.is_some() => {
                    play.hear(now).await;
                    if now.left == 0 {
                        *talk = None;
                    }
                }
                Some(now) => play.go_on(now).await,
            }
        }
        assert_eq!(play.book.session.len() as u64, conversations);
        assert_eq!(play.book.owner.len() as u64, conversations);
    }

    async fn begin(&mut self, conversation: u64) -> Talk {
        let words = match self.dice.roll(3) {
            0 => "hi".to_owned(),
            _ => format!("please look at ticket {}", self.dice.roll(1000)),
        };
        let left = 1 + self.dice.roll(6);
        let history = vec![user(&words)];
        let mut talk = Talk { conversation, history, left, waiting: None, answers: 0 };
        self.send(&mut talk, Attempt::First).await;
        talk
    }

    async fn send(&mut self, talk: &mut Talk, attempt: Attempt) {
        let placed = self.nodes.send(&talk.history, attempt).await;
        self.book.note(talk.conversation, &placed.session);
        talk.waiting = placed.thread;
    }

    /// The answer comes, or none does and the client tries again.
    async fn hear(&mut self, talk: &mut Talk) {
        let Some(thread) = talk.waiting.take() else { return };
        if self.dice.roll(10) == 0 {
            failed(thread).await;
            if talk.answers == 0 {
                self.book.forget(talk.conversation);
            }
            let says = if self.dice.roll(2) == 0 { Attempt::Again } else { Attempt::First };
            self.send(talk, says).await;
            return;
        }
        let text = match self.dice.roll(4) {
            0 => String::new(),
            _ => format!("answer {:x}", self.dice.roll(u64::MAX)),
        };
        let calls = self.dice.roll(3) + u64::from(text.is_empty());
        let calls: Vec<String> =
            (0..calls).map(|_| format!("call_{:x}", self.dice.roll(u64::MAX))).collect();
        talk.history.push(answered(thread, &text, &calls).await);
        for id in calls {
            talk.history.push(json!({ "role": "tool", "tool_call_id": id, "content": "done" }));
        }
        talk.answers += 1;
        talk.left -= 1;
    }

    /// The client says something more: in its place, instead of its last words, or beside them.
    async fn go_on(&mut self, talk: &mut Talk) {
        if self.dice.roll(8) == 0 && talk.history.len() > 4 {
            let last = |message: &Value| message["role"] == "user";
            let at = talk.history.iter().rposition(last).filter(|at| *at > 0);
            talk.history.truncate(at.unwrap_or(talk.history.len()));
        }
        if self.dice.roll(6) == 0 {
            let mut branch = talk.history.clone();
            branch.push(user("in the meantime, count the files"));
            let placed = self.nodes.send(&branch, Attempt::First).await;
            self.book.note(talk.conversation, &placed.session);
            let text = format!("{:x}", self.dice.roll(u64::MAX));
            answered(placed.thread.unwrap(), &text, &[]).await;
        }
        talk.history.push(user(&format!("and then {}?", self.dice.roll(5))));
        self.send(talk, Attempt::First).await;
    }
}

/// 10,000 conversations of 200 clients with one credential, a third with the same first words, all
/// at once: with tools, branches side by side, edits and attempts that fail.
#[tokio::test]
async fn in_memory_no_two_clients_share_a_session_and_no_conversation_is_split() {
    Play::run(Nodes::memory().await, 10_000, 200).await;
}

/// The same in Redis, each turn on one of three nodes.
#[tokio::test]
async fn in_a_cluster_no_two_clients_share_a_session_and_no_conversation_is_split() {
    let conversations = if soak() { 10_000 } else { 1000 };
    Play::run(Nodes::cluster().await, conversations, 200).await;
}

async fn a_conversation_whose_turns_land_anywhere(mut nodes: Nodes) {
    let (mut ada, mut bob) = (Vec::new(), Vec::new());
    let first = nodes.say(&mut ada, "hi", "Hello!").await;
    let second = nodes.say(&mut bob, "hi", "Hello!").await;
    assert_ne!(first, second);
    // Their histories are the same word for word: each session is taken once.
    let next = [nodes.say(&mut ada, "go", "1").await, nodes.say(&mut bob, "go", "2").await];
    assert_eq!(HashSet::from(next.clone()), HashSet::from([first, second]));
    for n in 0..12 {
        assert_eq!(nodes.say(&mut ada, &format!("a{n}"), "yes").await, next[0]);
        assert_eq!(nodes.say(&mut bob, &format!("b{n}"), "yes").await, next[1]);
    }
}

async fn a_batch_is_one_session(mut nodes: Nodes) {
    let mut sessions = HashMap::<String, u32>::new();
    for item in 0..60 {
        let session = nodes.say(&mut Vec::new(), &format!("classify item {item}"), "fine").await;
        *sessions.entry(session).or_default() += 1;
    }
    assert_eq!(sessions.values().max(), Some(&(60 - LIMITS.batch)));
    let mut history = Vec::new();
    let single = nodes.say(&mut history, "and what about this?", "that one").await;
    let own = nodes.say(&mut history, "why?", "because").await;
    assert_ne!(own, single);
    assert_eq!(nodes.say(&mut history, "really?", "yes").await, own);
}

async fn names_belong_to_the_credential_that_used_them_first(mut nodes: Nodes) {
    let who = |source| Identity { session: Some("s1".to_owned()), source, ..Identity::default() };
    let (mine, theirs) = (Digest(8 << 40), Digest(9 << 40));
    for _ in 0..9 {
        for (credential, session) in [(mine, "s1"), (theirs, "s1~00000900")] {
            let named = who(Source::SessionHeader);
            let placed = nodes.send_as(credential, &named, &[user("hi")], Attempt::First).await;
            assert_eq!(placed.session, session);
            let named = who(Source::Deadstop);
            let placed = nodes.send_as(credential, &named, &[user("hi")], Attempt::First).await;
            assert_eq!(placed.session, "s1");
        }
    }
}

async fn an_answer_is_found_by_its_id(mut nodes: Nodes) {
    let placed = nodes.send(&[user("hi")], Attempt::First).await;
    let mut echo = Echo::default();
    echo.text("Hello");
    if let Some(noted) = placed.thread.unwrap().answered(&echo, Some("resp_1")) {
        noted.await;
    }
    let named = Some("resp_1".to_owned());
    let who = Identity { session: named, source: Source::PreviousResponse, ..Identity::default() };
    for _ in 0..6 {
        let next = nodes.send_as(Digest(7), &who, &[user("more")], Attempt::First).await;
        assert_eq!(next.session, placed.session);
        let other = nodes.send_as(Digest(8), &who, &[user("more")], Attempt::First).await;
        assert_ne!(other.session, placed.session);
    }
}

/// Every case on one server and on three nodes.
macro_rules! on_both {
    ($($case:ident)*) => {$(
        mod $case {
            use super::Nodes;

            #[tokio::test]
            async fn in_memory() {
                super::$case(Nodes::memory().await).await;
            }

            #[tokio::test]
            async fn in_a_cluster() {
                super::$case(Nodes::cluster().await).await;
            }
        }
    )*};
}

on_both! {
    a_conversation_whose_turns_land_anywhere
    a_batch_is_one_session
    names_belong_to_the_credential_that_used_them_first
    an_answer_is_found_by_its_id
}

/// The script decides as the index in memory does, step by step.
#[tokio::test]
async fn the_script_decides_as_memory_does() {
    let (mut memory, redis) = (Conversations::default(), Redis::open(redis()).unwrap());
    let mut dice = Dice(0x853c_49e6_748f_ea9b);
    let project = uuid::Uuid::new_v4().to_string();
    let shared = index(&redis, &project);
    let mut now = Time(1_000_000);
    for step in 0..if soak() { 50_000 } else { 2000 } {
        let mut digest = |sides: u64| Digest(dice.roll(sides));
        let (caller, request) = (digest(3), digest(40));
        let answers = (0..digest(4).0).map(|_| digest(60)).collect();
        let (keys, session) = (Keys { caller, request, answers }, SessionId(digest(30).0));
        now = Time(now.0 + digest(4000).0);
        match digest(4).0 {
            0 => {
                memory.failed(&keys, session, now);
                shared.failed(caller, request, session.0, now).await.unwrap();
            }
            1 => {
                memory.answered(caller, session, &keys.answers, now);
                shared.answered(caller, session.0, &keys.answers, now).await.unwrap();
            }
            _ => {
                let again = digest(3).0 == 0;
                let attempt = if again { Attempt::Again } else { Attempt::First };
                let fresh = 1000 + step;
                let found = memory.find(&keys, attempt, fresh, now);
                let lookup = Lookup { caller, request, answers: &keys.answers, again, fresh, now };
                let (session, known) = shared.find(lookup).await.unwrap();
                assert_eq!((session, known_as(known)), (found.session.0, found.known), "{step}");
            }
        }
        let key = digest(60);
        let found = memory.of_answer(key).map(|session| session.0);
        assert_eq!(shared.of_answer(key).await.unwrap(), found);
    }
}

/// A generation that is full becomes the old one; what is used stays.
#[tokio::test]
async fn the_index_in_redis_is_bounded() {
    let redis = Redis::open(redis()).unwrap();
    let limits = IndexLimits { generation: 10, twins: 2, batch: 1, pause_ms: 1, lost_ms: 1 };
    let project = uuid::Uuid::new_v4().to_string();
    let index = Index::new(&redis, &project, limits);
    for n in 0..100 {
        index.answered(Digest(1), n, &[Digest(n)], Time(1)).await.unwrap();
        assert_eq!(index.of_answer(Digest(0)).await.unwrap(), Some(0), "used each time");
    }
    let mut kept = Vec::new();
    for n in 0..100 {
        kept.extend(index.of_answer(Digest(n)).await.unwrap());
    }
    assert!((10..=20).contains(&kept.len()), "{kept:?}");
    assert!(kept.contains(&0) && kept.contains(&99), "{kept:?}");
}
