//! A million calls: what a call takes on disk and of a processor to write, and how long lists take
//! to read from among them.
//!
//! ```text
//! cargo run --release -p deadstop-store --example million -- [ADDRESS] [CALLS]
//! ```
//!
//! ADDRESS is `postgres://…` or a path for a SQLite file; a temporary file if there is none. The
//! database should be empty. Fails if any list takes longer than promised.

#![expect(clippy::unwrap_used, reason = "a measurement stops at the first fault")]

use std::future::Future;
use std::time::{Duration, Instant};

use deadstop_core::{
    Action, Context, Ends, GuardId, Measure, Millis, NanoUsd, ScopeKind, Status, Time, Tokens,
    Trip, Usage, Verdict,
};
use deadstop_store::{
    AgentFilter, Batch, CallFilter, CallKind, CostBy, CostFilter, Counters, Evidence, Exchange,
    IncidentFilter, Numbers, Order, Paging, Period, SessionFilter, SessionState, Store,
    StoredAgent, StoredCall, StoredIncident, StoredScope, StoredSession,
};

const AGENTS: usize = 200;
const SESSIONS: usize = 5_000;
/// Calls that are written together, as five thousand a second would be.
const TOGETHER: usize = 1_000;
/// Sessions that are running at any time.
const AT_ONCE: usize = 50;
/// One call in so many becomes an incident.
const INCIDENT_EVERY: usize = 100;
/// How often each list is read.
const READS: usize = 1_000;
/// What is promised of each list.
const PROMISED: Duration = Duration::from_millis(20);
const START_MS: u64 = 1_790_000_000_000;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("deadstop.db").display().to_string();
    let address = arguments.next().filter(|address| !address.is_empty()).unwrap_or(file);
    let calls = arguments.next().map_or(1_000_000, |calls| calls.parse().unwrap());
    let store = Store::connect(&address).await.unwrap();
    println!("{} calls of {AGENTS} agents in {SESSIONS} sessions on {}", calls, store.kind());

    let world = World::new(&store, calls);
    let empty = store.size().await.unwrap();
    // Making the rows up is not writing them.
    let (wall, used) = (Instant::now(), cpu());
    world.batches().for_each(drop);
    let (making, made) = (wall.elapsed(), cpu() - used);
    let (wall, used) = (Instant::now(), cpu());
    world.write_calls(&store).await;
    let (writing, written) = (wall.elapsed(), cpu() - used);
    report_writing(calls, writing.saturating_sub(making), written.saturating_sub(made));
    let full = store.size().await.unwrap();
    println!("{:>28}  {} bytes a call", "size", (full - empty) / calls as u64);
    world.write_incidents(&store).await;
    let incidents = calls / INCIDENT_EVERY;
    let more = store.size().await.unwrap() - full;
    println!("{:>28}  {} bytes an incident with its evidence", "", more / incidents as u64);

    let slowest = world.read(&store).await;
    assert!(slowest < PROMISED, "a list took {slowest:?} at p99, more than {PROMISED:?}");
    store.close().await;
}

fn report_writing(calls: usize, wall: Duration, cpu: Duration) {
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / calls as f64;
    println!(
        "{:>28}  {:.1} µs of processor a call in this process, {:.0} calls/s",
        "writing",
        micros(cpu),
        calls as f64 / wall.as_secs_f64()
    );
}

/// What this process has used so far; in steps of 10 ms, which a million calls do not notice.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Numbers that look like chance and are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

struct World {
    agents: Vec<StoredAgent>,
    sessions: Vec<StoredSession>,
    ids: Vec<i64>,
}

impl World {
    fn new(store: &Store, calls: usize) -> World {
        let agents: Vec<_> = (0..AGENTS).map(|n| agent(n, store.number(Time(START_MS)))).collect();
        let sessions = (0..SESSIONS).map(|n| {
            // A session begins when its first call does.
            let first = n / AT_ONCE * AT_ONCE * (calls / SESSIONS);
            session(&agents[n % AGENTS], store.number(Time(START_MS + first as u64 * 20)), n)
        });
        let sessions = sessions.collect();
        let ids = (0..calls).map(|n| store.number(Time(START_MS + n as u64 * 20))).collect();
        World { agents, sessions, ids }
    }

    fn session_of(&self, call: usize) -> usize {
        let each = (self.ids.len() / SESSIONS).max(1);
        let round = call / (each * AT_ONCE);
        (round * AT_ONCE + call % AT_ONCE).min(SESSIONS - 1)
    }

    async fn write_calls(&self, store: &Store) {
        let agents = Batch { agents: self.agents.clone(), ..Batch::default() };
        store.write(&agents).await.unwrap();
        for batch in self.batches() {
            store.write(&batch).await.unwrap();
        }
    }

    /// All calls, together with the sessions and scopes that they have changed.
    fn batches(&self) -> impl Iterator<Item = Batch> {
        (0..self.ids.len()).step_by(TOGETHER).map(|first| {
            let together = first..(first + TOGETHER).min(self.ids.len());
            let mut batch = Batch::default();
            let mut running: Vec<usize> = together.clone().map(|n| self.session_of(n)).collect();
            running.sort_unstable();
            running.dedup();
            for session in running {
                let session = &self.sessions[session];
                batch.sessions.push(session.clone());
                batch.scopes.push(scope(session));
            }
            batch.calls = together.map(|n| self.call(n)).collect();
            batch
        })
    }

    async fn write_incidents(&self, store: &Store) {
        let all: Vec<usize> = (0..self.ids.len()).step_by(INCIDENT_EVERY).collect();
        for some in all.chunks(100) {
            let mut batch = Batch::default();
            for &n in some {
                let session = &self.sessions[self.session_of(n)];
                batch.incidents.push(incident(session, self.ids[n]));
                batch.evidence.extend((0..10).map(|position| evidence(self.ids[n], position)));
            }
            store.write(&batch).await.unwrap();
        }
    }

    fn call(&self, n: usize) -> StoredCall {
        let session = &self.sessions[self.session_of(n)];
        let tool = !n.is_multiple_of(3);
        let tripped = n.is_multiple_of(INCIDENT_EVERY);
        let tokens = |most: usize| Tokens(if tool { 0 } else { (n * 7919 % most) as u64 });
        StoredCall {
            id: self.ids[n],
            project: session.project.clone(),
            agent_number: session.agent_number,
            session_number: session.number,
            nested: None,
            position: n as u64 / AT_ONCE as u64,
            kind: if tool { CallKind::Tool } else { CallKind::Model },
            name: if tool { "search_files" } else { "claude-sonnet-4-5" }.into(),
            server: Some(if tool { "filesystem" } else { "anthropic" }.into()),
            at: Numbers::time(self.ids[n]),
            duration: Some(Millis((n % 5000) as u64)),
            verdict: if tripped { Verdict::Block } else { Verdict::Allow },
            guard: tripped.then_some(GuardId::Loop),
            reason: tripped.then(|| "repetition".into()),
            status: (!tripped).then_some(Status::Ok),
            usage: Usage {
                input: tokens(3000),
                output: tokens(1000),
                cache_read: tokens(50_000),
                cache_write: tokens(2000),
            },
            cost: NanoUsd(if tool { 0 } else { (n * 7919 % 20_000_000) as u64 }),
            incident: tripped.then(|| incident_id(self.ids[n])),
            facts: Some(vec![n as u8; 40]),
            first: None,
            cause: None,
        }
    }

    /// Reads every list many times and gives the slowest p99.
    async fn read(&self, store: &Store) -> Duration {
        let mut dice = Dice(1);
        let mut slowest = Duration::ZERO;
        println!("{:>28}  {:>9} {:>9} {:>9}", "reading", "p50", "p99", "most");
        let mut agents = Vec::new();
        let mut cursors = Vec::new();
        for _ in 0..READS {
            agents.push(self.agents[dice.below(AGENTS)].name.clone());
            cursors.push(dice.below(self.ids.len()));
        }
        let (store, agents, cursors) = (store, &agents, &cursors);
        let page = |n: usize| Paging { limit: 50, cursor: Some(self.ids[cursors[n]].to_string()) };
        let hour = |n: usize| {
            let from = Numbers::time(self.ids[cursors[n]]);
            Period { from: Some(from), to: Some(from + Millis(3_600_000)) }
        };
        let session = |n: usize| self.sessions[self.session_of(cursors[n])].number;

        let mut keep = |p99: Duration| slowest = slowest.max(p99);
        let first = Paging::first(50);
        keep(
            measure("calls, first page", |_| async {
                store.calls("default", &CallFilter::default(), &first).await.unwrap().items.len()
            })
            .await,
        );
        keep(
            measure("calls, any page", |n| async move {
                store.calls("default", &CallFilter::default(), &page(n)).await.unwrap().items.len()
            })
            .await,
        );
        keep(
            measure("calls of an agent", |n| async move {
                let filter = CallFilter { agent: Some(agents[n].clone()), ..CallFilter::default() };
                store.calls("default", &filter, &page(n)).await.unwrap().items.len()
            })
            .await,
        );
        keep(
            measure("calls of a guard", |n| async move {
                let filter = CallFilter { guard: Some(GuardId::Loop), ..CallFilter::default() };
                store.calls("default", &filter, &page(n)).await.unwrap().items.len()
            })
            .await,
        );
        keep(
            measure("calls of agent and guard", |n| async move {
                let (agent, guard) = (Some(agents[n].clone()), Some(GuardId::Loop));
                let filter = CallFilter { agent, guard, ..CallFilter::default() };
                store.calls("default", &filter, &page(n)).await.unwrap().items.len()
            })
            .await,
        );
        keep(
            measure("calls of a tool", |n| async move {
                let name = Some((CallKind::Tool, ["search_files", "rm"][n % 2].to_owned()));
                let filter = CallFilter { name, ..CallFilter::default() };
                store.calls("default", &filter, &Paging::first(50)).await.unwrap().items.len()
            })
            .await,
        );
        keep(
            measure("blocked calls of an agent", |n| async move {
                let (agent, verdict) = (Some(agents[n].clone()), Some(Verdict::Block));
                let filter = CallFilter { agent, verdict, ..CallFilter::default() };
                store.calls("default", &filter, &Paging::first(50)).await.unwrap().items.len()
            })
            .await,
        );
        keep(
            measure("calls of an hour", |n| async move {
                let filter = CallFilter { period: hour(n), ..CallFilter::default() };
                store.calls("default", &filter, &Paging::first(50)).await.unwrap().items.len()
            })
            .await,
        );
        keep(
            measure("session with its timeline", |n| async move {
                let filter = CallFilter {
                    session: Some(session(n)),
                    order: Order::Oldest,
                    ..CallFilter::default()
                };
                store.session("default", session(n)).await.unwrap().unwrap();
                store.calls("default", &filter, &Paging::first(200)).await.unwrap().items.len()
            })
            .await,
        );
        keep(
            measure("sessions, any page", |n| async move {
                store
                    .sessions("default", &SessionFilter::default(), &page(n))
                    .await
                    .unwrap()
                    .items
                    .len()
            })
            .await,
        );
        keep(
            measure("sessions of an agent", |n| async move {
                let agent = Some(agents[n].clone());
                let filter = SessionFilter { agent, ..SessionFilter::default() };
                store.sessions("default", &filter, &Paging::first(50)).await.unwrap().items.len()
            })
            .await,
        );
        keep(
            measure("sessions killed in an hour", |n| async move {
                let state = Some(SessionState::Killed);
                let filter = SessionFilter { state, period: hour(n), ..SessionFilter::default() };
                store.sessions("default", &filter, &Paging::first(50)).await.unwrap().items.len()
            })
            .await,
        );
        keep(
            measure("agents", |_| async {
                store.agents("default", &AgentFilter::default(), &first).await.unwrap().items.len()
            })
            .await,
        );
        keep(
            measure("incidents of an hour", |n| async move {
                let filter = IncidentFilter { period: hour(n), ..IncidentFilter::default() };
                store.incidents("default", &filter, &Paging::first(50)).await.unwrap().items.len()
            })
            .await,
        );
        keep(
            measure("incidents of an agent", |n| async move {
                let agent = Some(agents[n].clone());
                let filter = IncidentFilter { agent, ..IncidentFilter::default() };
                store.incidents("default", &filter, &Paging::first(50)).await.unwrap().items.len()
            })
            .await,
        );
        keep(
            measure("incident in detail", |n| async move {
                let call = cursors[n] / INCIDENT_EVERY * INCIDENT_EVERY;
                let id = incident_id(self.ids[call]);
                let incident = store.incident("default", &id).await.unwrap().unwrap();
                let around = |order| CallFilter {
                    session: incident.session_number,
                    order,
                    ..CallFilter::default()
                };
                let paging = Paging { limit: 25, cursor: Some(self.ids[call].to_string()) };
                let before = store.calls("default", &around(Order::Newest), &paging).await.unwrap();
                let after = store.calls("default", &around(Order::Oldest), &paging).await.unwrap();
                let evidence = store.evidence("default", &id).await.unwrap();
                before.items.len() + after.items.len() + evidence.len()
            })
            .await,
        );
        measure("groups of incidents", |_| async {
            store
                .incident_groups("default", &IncidentFilter::default(), &Paging::first(1000))
                .await
                .unwrap()
                .items
                .len()
        })
        .await;
        measure("costs by day", |_| async {
            store.costs("default", CostBy::Day, &CostFilter::default()).await.unwrap().len()
        })
        .await;
        measure("costs by agent", |_| async {
            store.costs("default", CostBy::Agent, &CostFilter::default()).await.unwrap().len()
        })
        .await;
        slowest
    }
}

/// Reads one list many times and gives its p99.
async fn measure<F: Future<Output = usize>>(what: &str, read: impl Fn(usize) -> F) -> Duration {
    let mut found = read(0).await;
    let mut times = Vec::with_capacity(READS);
    for n in 0..READS {
        let began = Instant::now();
        found = found.max(read(n).await);
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    println!("{what:>28}  {:>9.2?} {:>9.2?} {:>9.2?}  up to {found} rows", at(50), at(99), at(100));
    at(99)
}

fn agent(n: usize, number: i64) -> StoredAgent {
    StoredAgent {
        number,
        project: "default".into(),
        name: format!("agent-{n:03}"),
        opened: Time(START_MS),
        used: Time(START_MS),
        tags: vec!["bench".into()],
        active: true,
        deactivated_by: None,
        deactivated: None,
        removed: None,
        counters: Counters::default(),
    }
}

fn session(agent: &StoredAgent, number: i64, n: usize) -> StoredSession {
    StoredSession {
        number,
        project: "default".into(),
        agent_number: agent.number,
        agent: agent.name.clone(),
        name: format!("run-{n:05}"),
        opened: Numbers::time(number),
        used: Numbers::time(number),
        state: if n.is_multiple_of(10) { SessionState::Killed } else { SessionState::Running },
        why: None,
        tags: Vec::new(),
        provider: Some("anthropic".into()),
        model: Some("claude-sonnet-4-5".into()),
        counters: Counters::default(),
    }
}

fn scope(session: &StoredSession) -> StoredScope {
    StoredScope {
        key: format!("default\u{1f}{}\u{1f}{}", session.agent, session.name),
        project: "default".into(),
        number: session.number,
        kind: ScopeKind::Session,
        agent: session.agent.clone(),
        name: session.name.clone(),
        killed: false,
        updated: session.used,
        version: 0,
        turns: 0,
        state: vec![7; 1500],
    }
}

fn incident_id(call: i64) -> String {
    format!("019a2b3c-0000-7000-8000-{call:020}")
}

fn incident(session: &StoredSession, call: i64) -> StoredIncident {
    StoredIncident {
        id: incident_id(call),
        project: "default".into(),
        at: Numbers::time(call),
        last: Numbers::time(call),
        agent: session.agent.clone(),
        session: session.name.clone(),
        session_number: Some(session.number),
        call: Some(call),
        provider: Some("anthropic".into()),
        trip: trip(session),
        rungs: Vec::new(),
        acknowledged: None,
        about: "repetition".into(),
        assignee: None,
        resolved: None,
        calls: 0,
    }
}

fn trip(session: &StoredSession) -> Trip {
    Trip {
        advice: None,
        streak: None,
        guard: GuardId::Loop,
        reason: "repetition".into(),
        verdict: Action::Block.verdict(),
        ends: Ends::Session,
        drains: false,
        measured: Measure::Count(5),
        limit: Measure::Count(5),
        evidence: vec![1, 2, 3, 4, 5],
        window: None,
        waits: None,
        signals: Vec::new(),
        because: "search_files was called 5 times with the same arguments".into(),
        context: Context {
            who: session.name.clone(),
            kind: ScopeKind::Session,
            depth: 2,
            input: Tokens(1),
            output: Tokens(1),
            elapsed: Millis(1),
            accumulated_input: Tokens(1),
            accumulated_output: Tokens(1),
        },
    }
}

fn evidence(call: i64, position: u64) -> Evidence {
    Evidence {
        project: "default".into(),
        incident: incident_id(call),
        position,
        at: Numbers::time(call),
        call: Some(call),
        exchange: Exchange {
            request: Some("search for the same thing again ".repeat(20)),
            response: Some("nothing was found, as before ".repeat(20)),
            request_chars: 640,
            response_chars: 580,
            request_cut: false,
            response_cut: false,
        },
        body: None,
    }
}
