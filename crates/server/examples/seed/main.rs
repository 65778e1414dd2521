//! A database as a busy server leaves it behind, written quickly: very many sessions, and a very
//! long one whose calls have their facts. For tests that want to see how the real program copes.
//!
//! ```text
//! cargo run -p deadstop-server --example seed -- FOLDER [SESSIONS] [CALLS]
//! cargo run -p deadstop-server --example seed -- FOLDER month
//! ```
//!
//! With `month` it is what a few agents left behind that did their work for a month, for pictures.
//!
//! FOLDER is what `deadstop serve --data` is given; there must be no database in it.

#![expect(clippy::unwrap_used, reason = "a tool for tests stops at the first fault")]

mod month;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use deadstop_core::{
    Call, Digest, Millis, ModelCall, NanoUsd, Outcome, Rates, ResultFacts, Status, Time, Tokens,
    ToolCall, Usage, Verdict,
};
use deadstop_store::{
    Batch, CallKind, Counters, SessionState, Store, StoredAgent, StoredCall, StoredSession,
};

const AGENTS: usize = 40;
/// Rows that are written together.
const TOGETHER: usize = 2000;
/// The first byte of stored facts: the form in which the server writes them.
const FACTS_VERSION: u8 = 2;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = std::path::PathBuf::from(arguments.next().unwrap());
    std::fs::create_dir_all(&folder).unwrap();
    let how = arguments.next();
    if how.as_deref() == Some("month") {
        return month::write(&folder).await;
    }
    let sessions: usize = how.map_or(10_000, |count| count.parse().unwrap());
    let calls: usize = arguments.next().map_or(20_000, |count| count.parse().unwrap());
    let began = Instant::now();
    let store = Store::open(&folder.join("deadstop.db")).await.unwrap();
    let now = now();
    let seed = Seed { start: now - 20 * 3_600_000 };
    store.ensure_project("default", Time(seed.start)).await.unwrap();
    let agents: Vec<_> = (0..AGENTS).map(|n| seed.agent(&store, n)).collect();
    store.write(&Batch { agents: agents.clone(), ..Batch::default() }).await.unwrap();
    let mut batch = Batch::default();
    for n in 0..sessions {
        let session = seed.session(&store, &agents[n % AGENTS], &format!("run-{n:05}"), n as u64);
        batch.calls.push(seed.call(&store, &session, 0, n as u64 * 5000));
        batch.sessions.push(session);
        written(&store, &mut batch, TOGETHER).await;
    }
    let mut long = seed.session(&store, &agents[0], "the-long-one", sessions as u64);
    long.counters.calls = calls as u64;
    long.used = Time(now - 60_000);
    batch.sessions.push(long.clone());
    for n in 0..calls {
        // Now and then nothing happens for a while.
        let at = (n * 400 + n / 1000 * 120_000) as u64;
        batch.calls.push(seed.call(&store, &long, n, at));
        written(&store, &mut batch, TOGETHER).await;
    }
    written(&store, &mut batch, 1).await;
    store.close().await;
    println!("{sessions} sessions and one of {calls} calls in {:.1?}", began.elapsed());
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

/// Writes what has come together, if it is enough.
async fn written(store: &Store, batch: &mut Batch, enough: usize) {
    if batch.calls.len() >= enough {
        store.write(&std::mem::take(batch)).await.unwrap();
    }
}

struct Seed {
    start: u64,
}

impl Seed {
    fn agent(&self, store: &Store, n: usize) -> StoredAgent {
        StoredAgent {
            number: store.number(Time(self.start)),
            project: "default".into(),
            name: format!("agent-{n:02}"),
            opened: Time(self.start),
            used: Time(self.start + 3_600_000),
            tags: Vec::new(),
            active: true,
            deactivated_by: None,
            deactivated: None,
            removed: None,
            counters: Counters::default(),
        }
    }

    fn session(&self, store: &Store, agent: &StoredAgent, name: &str, n: u64) -> StoredSession {
        let opened = Time(self.start + n * 5000);
        StoredSession {
            number: store.number(opened),
            project: "default".into(),
            agent_number: agent.number,
            agent: agent.name.clone(),
            name: name.to_owned(),
            opened,
            used: Time(opened.0 + 1000),
            state: SessionState::Running,
            why: None,
            tags: Vec::new(),
            provider: Some("openai".into()),
            model: Some("gpt-4o".into()),
            counters: Counters { calls: 1, cost: NanoUsd(1_000_000), ..Counters::default() },
        }
    }

    /// Models and tools in turn; every fourth look of a tool brings what the one before brought.
    fn call(&self, store: &Store, session: &StoredSession, n: usize, after: u64) -> StoredCall {
        let at = Time(self.start + after);
        let tool = n % 2 == 1;
        let usage = match tool {
            true => Usage::default(),
            false => Usage { input: Tokens(900), output: Tokens(90), ..Usage::default() },
        };
        let name = if tool { "search" } else { "gpt-4o" };
        let rates = Rates { input: NanoUsd(2_500_000_000), ..Rates::default() };
        let cost = if tool { NanoUsd(0) } else { rates.cost(&usage) };
        let server = Some(if tool { "files" } else { "openai" }.to_owned());
        let looked = Digest::of(&(n / 8).to_le_bytes());
        let call = match tool {
            true => Call::Tool(ToolCall {
                name: name.into(),
                server: server.clone(),
                signature: looked,
                shape: looked,
                ..ToolCall::default()
            }),
            false => Call::Model(ModelCall {
                model: name.into(),
                server: server.clone(),
                rates,
                input: usage.input,
                ..ModelCall::default()
            }),
        };
        let found = ResultFacts { exact: looked, masked: looked, ..ResultFacts::default() };
        let outcome = Outcome { usage, result: tool.then_some(found), ..Outcome::default() };
        StoredCall {
            id: store.number(at),
            project: session.project.clone(),
            agent_number: session.agent_number,
            session_number: session.number,
            nested: (n % 3 == 2).then(|| "crew/worker".to_owned()),
            position: n as u64 + 1,
            kind: if tool { CallKind::Tool } else { CallKind::Model },
            name: name.to_owned(),
            server,
            at,
            duration: Some(Millis(300)),
            verdict: Verdict::Allow,
            guard: None,
            reason: None,
            status: Some(Status::Ok),
            usage,
            cost,
            incident: None,
            facts: postcard::to_extend(&(call, outcome), vec![FACTS_VERSION]).ok(),
            first: None,
            cause: None,
        }
    }
}
