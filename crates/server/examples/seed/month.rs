//! A month of a few agents: their sessions, models and tools, busier by day than by night.

use std::path::Path;

use deadstop_core::{
    Call, Digest, Link, Millis, ModelCall, NanoUsd, Outcome, Period, Preset, Rates, ResultFacts,
    ScopeKind, ScopeState, Status, Time, Tokens, ToolCall, Usage, Verdict, admit, settle,
};
use deadstop_store::{
    Batch, CallKind, Counters, SessionState, Store, StoredAgent, StoredCall, StoredScope,
    StoredSession,
};

use super::{FACTS_VERSION, TOGETHER, now, written};

const DAYS: u64 = 30;
const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

/// What an agent does for a living.
struct Worker {
    name: &'static str,
    model: &'static str,
    /// Dollars for a million tokens, in and out.
    price: (u64, u64),
    tools: [&'static str; 3],
    /// What its sessions are called, with a number behind.
    work: &'static str,
    /// Sessions on a usual day, and turns in each.
    sessions: u64,
    turns: u64,
}

const WORKERS: [Worker; 5] = [
    Worker {
        name: "researcher",
        model: "gpt-4o",
        price: (2_500, 10_000),
        tools: ["web_search", "read_page", "take_note"],
        work: "report",
        sessions: 7,
        turns: 14,
    },
    Worker {
        name: "support",
        model: "gpt-4o-mini",
        price: (150, 600),
        tools: ["find_order", "find_customer", "send_reply"],
        work: "ticket",
        sessions: 22,
        turns: 5,
    },
    Worker {
        name: "coder",
        model: "claude-sonnet-4",
        price: (3_000, 15_000),
        tools: ["read_file", "edit_file", "run_tests"],
        work: "issue",
        sessions: 5,
        turns: 24,
    },
    Worker {
        name: "bookkeeper",
        model: "gpt-4o",
        price: (2_500, 10_000),
        tools: ["query_ledger", "match_invoice", "post_entry"],
        work: "close",
        sessions: 3,
        turns: 9,
    },
    Worker {
        name: "translator",
        model: "gpt-4o-mini",
        price: (150, 600),
        tools: ["read_file", "look_up", "write_file"],
        work: "manual",
        sessions: 4,
        turns: 11,
    },
];

/// Numbers that look as if by chance, and are the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most.max(1)
    }
}

/// A call, as the engine is told about it.
struct Made {
    at: u64,
    by: usize,
    call: Call,
    outcome: Outcome,
}

/// Everything that is written, as it comes together.
struct Month<'a> {
    store: &'a Store,
    chance: Chance,
    batch: Batch,
    made: Vec<Made>,
}

pub(super) async fn write(folder: &Path) {
    let store = Store::open(&folder.join("deadstop.db")).await.unwrap();
    let end = now();
    let start = end - DAYS * DAY;
    store.ensure_project("default", Time(start)).await.unwrap();
    let mut month =
        Month { store: &store, chance: Chance(7), batch: Batch::default(), made: Vec::new() };
    let mut agents = Vec::new();
    let mut begins = Vec::new();
    for (by, worker) in WORKERS.iter().enumerate() {
        begins.extend(times(worker, start, end, &mut month.chance).into_iter().map(|at| (at, by)));
        agents.push(StoredAgent {
            number: store.number(Time(start)),
            project: "default".into(),
            name: worker.name.into(),
            opened: Time(start),
            used: Time(end),
            tags: Vec::new(),
            active: true,
            deactivated_by: None,
            deactivated: None,
            removed: None,
            counters: Counters::default(),
        });
    }
    begins.sort_unstable();
    for (at, by) in begins {
        let session = month.work(by, &agents[by], at, end);
        let (sum, more) = (&mut agents[by].counters, session.counters);
        sum.calls += more.calls;
        sum.tokens.0 += more.tokens.0;
        sum.cost.0 += more.cost.0;
        month.batch.sessions.push(session);
        written(&store, &mut month.batch, TOGETHER).await;
    }
    let Month { mut batch, mut made, .. } = month;
    made.sort_by_key(|made| made.at);
    batch.scopes = scopes(&agents, &made, start, end);
    batch.agents = agents;
    store.write(&batch).await.unwrap();
    store.close().await;
    println!("a month of {} agents", WORKERS.len());
}

/// When its sessions began: most by day, few at the week's end; and some just before the end.
fn times(worker: &Worker, start: u64, end: u64, chance: &mut Chance) -> Vec<u64> {
    let mut found = Vec::new();
    for day in start / DAY..=end / DAY {
        // The first of January 1970 was a Thursday.
        let rest = matches!((day + 4) % 7, 0 | 6);
        let many = if rest { worker.sessions.div_ceil(4) } else { worker.sessions };
        for _ in 0..many + chance.below(many / 2 + 1) {
            let hour = 6 + (chance.below(14) + chance.below(14)) / 2;
            let at = day * DAY + hour * HOUR + chance.below(HOUR);
            if at > start && at + HOUR / 2 < end {
                found.push(at);
            }
        }
    }
    found.extend((0..4).map(|_| end - HOUR / 3 + chance.below(HOUR / 3)));
    found
}

impl Month<'_> {
    /// One session with its calls: a model, and a tool after it.
    fn work(&mut self, by: usize, agent: &StoredAgent, at: u64, end: u64) -> StoredSession {
        let worker = &WORKERS[by];
        let mut session = StoredSession {
            number: self.store.number(Time(at)),
            project: agent.project.clone(),
            agent_number: agent.number,
            agent: agent.name.clone(),
            name: format!("{}-{}", worker.work, 1000 + at / 60_000 % 9000),
            opened: Time(at),
            used: Time(at),
            state: SessionState::Ended,
            why: None,
            tags: Vec::new(),
            provider: Some(provider(worker).into()),
            model: Some(worker.model.into()),
            counters: Counters::default(),
        };
        let mut clock = at;
        let mut context = 900 + self.chance.below(1500);
        for turn in 0..worker.turns / 2 + self.chance.below(worker.turns) {
            let thinks = model(worker, context, &mut self.chance);
            let looks = tool(worker, turn, &mut self.chance);
            for (kind, (call, outcome)) in [(CallKind::Model, thinks), (CallKind::Tool, looks)] {
                let took = match kind {
                    CallKind::Model => 700 + self.chance.below(4000),
                    CallKind::Tool => 40 + self.chance.below(600),
                };
                if clock + took >= end {
                    break;
                }
                let row = self.row(&session, &call, &outcome, Time(clock), Millis(took));
                session.counters.calls += 1;
                session.counters.tokens.0 += row.usage.input.0 + row.usage.output.0;
                session.counters.cost.0 += row.cost.0;
                self.batch.calls.push(row);
                self.made.push(Made { at: clock, by, call, outcome });
                clock += took + 200;
            }
            context += 300 + self.chance.below(900);
            clock += self.chance.below(4000);
        }
        session.used = Time(clock.min(end));
        session
    }

    fn row(
        &self,
        session: &StoredSession,
        call: &Call,
        outcome: &Outcome,
        at: Time,
        took: Millis,
    ) -> StoredCall {
        let (kind, name, server, cost) = match call {
            Call::Model(call) => {
                (CallKind::Model, &call.model, &call.server, call.rates.cost(&outcome.usage))
            }
            Call::Tool(call) => (CallKind::Tool, &call.name, &call.server, NanoUsd(0)),
        };
        StoredCall {
            id: self.store.number(at),
            project: session.project.clone(),
            agent_number: session.agent_number,
            session_number: session.number,
            nested: None,
            position: session.counters.calls + 1,
            kind,
            name: name.clone(),
            server: server.clone(),
            at,
            duration: Some(took),
            verdict: Verdict::Allow,
            guard: None,
            reason: None,
            status: Some(Status::Ok),
            usage: outcome.usage,
            cost,
            incident: None,
            facts: postcard::to_extend(&(call, outcome), vec![FACTS_VERSION]).ok(),
            first: None,
            cause: None,
        }
    }
}

fn provider(worker: &Worker) -> &'static str {
    if worker.model.starts_with("claude") { "anthropic" } else { "openai" }
}

fn model(worker: &Worker, context: u64, chance: &mut Chance) -> (Call, Outcome) {
    let rates = Rates {
        input: NanoUsd(worker.price.0 * 1_000_000),
        output: NanoUsd(worker.price.1 * 1_000_000),
        ..Rates::default()
    };
    let output = Tokens(120 + chance.below(500));
    let usage = Usage { input: Tokens(context), output, ..Usage::default() };
    let call = Call::Model(ModelCall {
        model: worker.model.into(),
        server: Some(provider(worker).into()),
        rates,
        input: usage.input,
        ..ModelCall::default()
    });
    (call, Outcome { usage, ..Outcome::default() })
}

fn tool(worker: &Worker, turn: u64, chance: &mut Chance) -> (Call, Outcome) {
    let seen = Digest::of(&chance.below(u64::MAX).to_le_bytes());
    let call = Call::Tool(ToolCall {
        name: worker.tools[(turn % 3) as usize].into(),
        server: Some("tools".into()),
        signature: seen,
        shape: seen,
        ..ToolCall::default()
    });
    let result = Some(ResultFacts { exact: seen, masked: seen, ..ResultFacts::default() });
    (call, Outcome { result, ..Outcome::default() })
}

/// The project and its agents as all these calls leave them, so that budgets agree with what was spent.
fn scopes(agents: &[StoredAgent], made: &[Made], start: u64, end: u64) -> Vec<StoredScope> {
    let mut policies = Preset::Observe.policies();
    policies.project.budget.per = Period::Day;
    policies.agent.budget.per = Period::Day;
    let mut project = ScopeState::new(ScopeKind::Project, Time(start));
    let mut states: Vec<ScopeState> =
        agents.iter().map(|_| ScopeState::new(ScopeKind::Agent, Time(start))).collect();
    for made in made {
        let mut chain = [
            Link { name: "default", state: &mut project, policy: &policies.project },
            Link { name: "", state: &mut states[made.by], policy: &policies.agent },
        ];
        let admission = admit(&mut chain, &made.call, Time(made.at));
        if let Some(ticket) = admission.ticket {
            settle(&mut chain, &made.call, ticket, &made.outcome, Time(made.at));
        }
    }
    let kept = |key: String, agent: &str, name: &str, number, state: &ScopeState| StoredScope {
        key,
        project: "default".into(),
        number,
        kind: state.kind(),
        agent: agent.to_owned(),
        name: name.to_owned(),
        killed: false,
        updated: Time(end),
        version: 0,
        turns: state.turns(),
        state: state.to_blob(),
    };
    let mut found = vec![kept("default".into(), "", "default", 0, &project)];
    for (agent, state) in agents.iter().zip(&states) {
        let key = format!("default\u{1f}{}", agent.name);
        found.push(kept(key, &agent.name, &agent.name, agent.number, state));
    }
    found
}
