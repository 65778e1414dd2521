//! Every number that the API shows agrees with a brute-force count over the calls behind it: random
//! histories, on both databases.
//!
//! `crates/store/tests/suite/numbers.rs` does the same for the sums that the database works out alone.

use std::collections::{BTreeMap, BTreeSet};

use deadstop_core::{Measure, NanoUsd, Status, Time, Trip, Verdict};
use deadstop_store::{
    Batch, Counters, Numbers, SessionState, Store, StoredAgent, StoredCall, StoredIncident,
    StoredSession,
};
use serde_json::{Value, json};

use crate::control::kept;
use crate::place::{TestDatabase, on_both};
use crate::support::{Ask, Dice, Gate, Reply, heavy, rounds};

on_both![what_is_shown_agrees_with_the_calls, savings_agree_with_the_calls];

const MOST_STEPS: u64 = 6;
const MOST_USD: f64 = 0.02;
const END_AT: u64 = 5;

async fn get(gate: &Gate, path: &str) -> Value {
    let got = gate.ask(&Ask::get(path)).await;
    assert_eq!(got.status, 200, "{path}: {}", got.text());
    got.json()
}

/// All of a list, page by page.
async fn all(gate: &Gate, path: &str) -> Vec<Value> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = get(gate, &format!("{path}&limit=7{cursor}")).await;
        found.extend(page["items"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next"].as_str() else { return found };
        cursor = format!("&cursor={next}");
    }
}

/// The first of the histories: `DEADSTOP_SEED` begins with one that failed.
fn first_seed() -> u64 {
    std::env::var("DEADSTOP_SEED").map_or(0, |seed| seed.parse().unwrap())
}

/// Says which history it was that failed.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the history of DEADSTOP_SEED={} failed", self.0);
        }
    }
}

/// What a client knows of one of its sessions.
#[derive(Debug, Default)]
struct Book {
    agent: String,
    name: String,
    /// Whether it only repeats itself.
    loops: bool,
    made: usize,
    running: BTreeSet<String>,
    paused: bool,
    by_person: bool,
    by_guard: bool,
    over: bool,
}

impl Book {
    fn path(&self, what: &str) -> String {
        format!("/api/sessions/{}/{}/{what}", self.agent, self.name)
    }

    fn dead(&self) -> bool {
        self.by_person || self.by_guard
    }

    fn standing(&self) -> &'static str {
        match self {
            Book { by_guard: true, .. } => "stopped_by_guard",
            Book { by_person: true, .. } => "stopped_by_person",
            Book { paused: true, .. } => "paused",
            Book { over: true, running, .. } if running.is_empty() => "finished",
            _ => "running",
        }
    }

    fn judged(&mut self, decided: &Value, id: &str) {
        match (decided["allowed"].as_bool(), decided["verdict"].as_str()) {
            (Some(true), _) => {
                self.running.insert(id.to_owned());
            }
            (_, Some("kill")) => self.by_guard |= !self.dead(),
            _ => {}
        }
    }

    async fn tool(&mut self, gate: &Gate) {
        let id = format!("t{}", self.made);
        let about = if self.loops { 0 } else { self.made };
        let call = json!({ "id": id, "tool": "look", "arguments": { "at": about } });
        self.made += 1;
        let asked = json!({ "calls": [call] });
        let got = gate.ask(&Ask::post(&self.path("proposal"), &asked)).await.json();
        self.judged(&got["calls"][0], &id);
    }

    async fn model(&mut self, gate: &Gate, dice: &mut Dice) {
        let id = format!("m{}", self.made);
        let model = dice.pick(&["gpt-4o", "gpt-4o-mini"]);
        let asked = json!({ "id": id, "model": model, "provider": "openai", "input_tokens": 100 });
        self.made += 1;
        let got = gate.ask(&Ask::post(&self.path("preflight"), &asked)).await.json();
        self.judged(&got, &id);
    }

    async fn end(&mut self, gate: &Gate, dice: &mut Dice) {
        let running: Vec<String> = self.running.iter().cloned().collect();
        if running.is_empty() {
            return;
        }
        let id = dice.pick(&running);
        self.running.remove(&id);
        let text = if self.loops { "nothing new".to_owned() } else { format!("this is new: {id}") };
        let usage = match id.starts_with('m') {
            true => json!({ "input": dice.to(400), "output": dice.to(300) }),
            false => json!({}),
        };
        let status = if self.loops { "ok" } else { dice.pick(&["ok", "ok", "ok", "cancelled"]) };
        let receipt = json!({ "id": id, "status": status, "text": text, "usage": usage });
        let got = gate.ask(&Ask::post(&self.path("receipt"), &receipt)).await;
        let killed = got.json()["verdict"] == "kill";
        self.by_guard |= killed && !self.dead();
    }

    async fn order(&mut self, gate: &Gate, what: &str) {
        let got = gate.ask(&Ask::post(&self.path(what), &json!({ "reason": "a test" }))).await;
        assert_eq!(got.status, 200, "{what} {self:?}: {}", got.text());
    }

    async fn act(&mut self, gate: &Gate, dice: &mut Dice) {
        match dice.to(19) {
            0..=7 if !self.paused => {
                self.over = false;
                self.tool(gate).await;
            }
            8..=11 if !self.paused && !self.loops => {
                self.over = false;
                self.model(gate, dice).await;
            }
            12..=16 => {
                self.over &= self.running.is_empty();
                self.end(gate, dice).await;
            }
            17 if !self.dead() && self.made > 0 => {
                let what = if self.paused { "resume" } else { "pause" };
                self.order(gate, what).await;
                (self.paused, self.over) = (!self.paused, false);
            }
            18 if !self.dead() && self.made > 2 => {
                self.order(gate, "kill").await;
                self.by_person = true;
            }
            19 if !self.dead() && !self.paused && self.made > 0 && self.running.is_empty() => {
                let over = json!({ "agent": self.agent, "session": self.name, "done": true });
                assert_eq!(gate.ask(&Ask::post("/api/sessions", &over)).await.status, 200);
                self.over = true;
            }
            _ => {}
        }
        if self.loops && !self.paused {
            // A call at a time: what repeats is judged with what the one before brought.
            while !self.running.is_empty() {
                self.end(gate, dice).await;
            }
        }
    }
}

/// What calls came to.
#[derive(Debug, Default, Clone, PartialEq)]
struct Sum {
    calls: u64,
    tools: u64,
    models: u64,
    tokens: u64,
    nanos: u64,
    loops: BTreeSet<String>,
    incidents: BTreeSet<String>,
    /// Repeats that the loop guard refused: they count for its ladder.
    refused_repeats: u64,
}

fn nanos(usd: &Value) -> u64 {
    (usd.as_f64().unwrap() * 1e9).round() as u64
}

impl Sum {
    fn add(&mut self, call: &Value) {
        // A call that was refused counts in no sum but that of incidents.
        let ran = !call["status"].is_null();
        self.calls += u64::from(ran);
        self.tools += u64::from(ran && call["kind"] == "tool");
        self.models += u64::from(ran && call["kind"] == "model");
        for tokens in ["input_tokens", "output_tokens", "cache_read_tokens"] {
            self.tokens += call[tokens].as_u64().unwrap();
        }
        self.nanos += nanos(&call["cost_usd"]);
        if let Some(incident) = call["incident"].as_str() {
            // A call that is refused because its session is dead names the incident that ended it.
            self.incidents.insert(incident.to_owned());
            // The guards that tell of loops.
            let guard = call["guard"].as_str().unwrap_or_default();
            self.refused_repeats += u64::from(!ran && guard == "loop");
            if ["loop", "similarity", "text_loop"].contains(&guard) {
                self.loops.insert(incident.to_owned());
            }
        }
    }

    fn with(&mut self, other: &Sum) {
        self.calls += other.calls;
        self.tools += other.tools;
        self.models += other.models;
        self.tokens += other.tokens;
        self.nanos += other.nanos;
        self.loops.extend(other.loops.iter().cloned());
        self.incidents.extend(other.incidents.iter().cloned());
    }

    /// What a list, a page or `status` tells of the same.
    fn told(&self, shown: &Value, running: usize) {
        assert_eq!(shown["calls"], self.calls + running as u64, "{shown}");
        assert_eq!(shown["tokens"], self.tokens, "{shown}");
        assert_eq!(nanos(&shown["cost_usd"]), self.nanos, "{shown}");
        assert_eq!(shown["loops"], self.loops.len(), "{shown}");
        assert_eq!(shown["incidents"], self.incidents.len(), "{shown}");
    }
}

fn gauge<'a>(scope: &'a Value, what: &str) -> &'a Value {
    let limits = scope["limits"].as_array().unwrap();
    limits.iter().find(|one| one["what"] == what).unwrap_or(&Value::Null)
}

/// The nearest limit, worked out from the calls.
fn nearest(scope: &Value, book: &Book, sum: &Sum) {
    let limits = scope["limits"].as_array().unwrap();
    let share = |limit: &Value| limit["share"].as_f64().unwrap();
    assert!(limits.is_sorted_by(|a, b| share(a) >= share(b)), "{scope}");
    let flying = |kind: char| book.running.iter().filter(|id| id.starts_with(kind)).count() as u64;
    let steps = gauge(scope, "tool_calls");
    assert_eq!(steps["measured"], (sum.tools + flying('t')) as f64, "{scope}");
    if flying('m') == 0 {
        assert_eq!(nanos(&gauge(scope, "cost")["measured"]), sum.nanos, "{scope}");
    }
    if book.loops && !book.dead() {
        let repeats = if sum.tools < 2 { 0 } else { sum.tools + sum.refused_repeats };
        assert_eq!(gauge(scope, "calls_without_news")["measured"], repeats as f64, "{scope}");
    }
    for limit in limits {
        let expected = limit["measured"].as_f64().unwrap() / limit["limit"].as_f64().unwrap();
        assert!((share(limit) - expected).abs() < 1e-9, "{limit}");
    }
}

async fn what_is_shown_agrees_with_the_calls(place: &TestDatabase) {
    let _turn = heavy().await;
    let policy = json!({
        "preset": "observe",
        "steps": { "max_steps": MOST_STEPS },
        "budget": { "max_cost_usd": MOST_USD },
        "loop": { "enabled": true, "steer_at": 3, "block_at": 4, "end_at": END_AT },
    });
    let gate = Gate::on(place, policy, |_| Reply::json(200, &json!({})), |_| {}).await;
    let (mut books, mut project) = (Vec::new(), Sum::default());
    let first = first_seed();
    for seed in first..first + rounds(12, 1000) as u64 {
        let _told = Named(seed);
        let mut dice = Dice::new(seed);
        let mut mine: Vec<Book> = Vec::new();
        for agent in 0..=dice.to(1) {
            for name in 0..=dice.to(2) {
                let (agent, name) = (format!("a{seed}.{agent}"), format!("s{name}"));
                mine.push(Book { agent, name, loops: dice.one_in(3), ..Book::default() });
            }
        }
        for _ in 0..5 + dice.to(35) {
            let at = dice.to(mine.len() - 1);
            mine[at].act(&gate, &mut dice).await;
        }
        mine.retain(|book| book.made > 0);
        let mut agents: BTreeMap<String, (Sum, usize)> = BTreeMap::new();
        for book in &mine {
            let sum = session(&gate, book).await;
            let agent = agents.entry(book.agent.clone()).or_default();
            agent.0.with(&sum);
            agent.1 += book.running.len();
        }
        for (name, (sum, running)) in &agents {
            sum.told(&get(&gate, &format!("/api/agents/{name}")).await, *running);
            let costs = get(&gate, &format!("/api/costs?by=agent&agent={name}")).await;
            assert_eq!(nanos(&sum_of(&costs, "cost_usd")), sum.nanos, "seed {seed}: {costs}");
            let spend = get(&gate, &format!("/api/spend?step=10s&agent={name}")).await;
            assert_eq!(nanos(&sum_of(&spend, "cost_usd")), sum.nanos, "seed {seed}: {spend}");
            let path = format!("/api/incidents?agent={name}");
            let listed = all(&gate, &path).await.len();
            assert_eq!(listed, sum.incidents.len(), "seed {seed}: {name}");
            project.with(sum);
        }
        books.extend(mine);
        if seed.is_multiple_of(10) {
            whole(&gate, &books, &project, seed).await;
        }
    }
    whole(&gate, &books, &project, u64::MAX).await;
    let stopped = books.iter().filter(|book| book.by_guard).count();
    // Over a thousand histories it is one session in twenty.
    assert!(stopped * 40 > books.len(), "the histories are too calm: {stopped} of {}", books.len());
}

fn sum_of(page: &Value, column: &str) -> Value {
    let items = page["items"].as_array().unwrap();
    json!(items.iter().map(|item| item[column].as_f64().unwrap()).sum::<f64>())
}

/// A session, everywhere that it is shown.
async fn session(gate: &Gate, book: &Book) -> Sum {
    let path = format!("/api/calls?agent={}&session={}", book.agent, book.name);
    let mut sum = Sum::default();
    for call in all(gate, &path).await {
        sum.add(&call);
    }
    let shown = get(gate, &format!("/api/sessions/{}/{}", book.agent, book.name)).await;
    sum.told(&shown, book.running.len());
    assert_eq!(shown["standing"], book.standing(), "{book:?}: {shown}");
    let path = format!("/api/sessions?agent={}&session={}", book.agent, book.name);
    let listed = get(gate, &path).await["items"][0].clone();
    assert_eq!(listed["standing"], book.standing(), "{book:?}: {listed}");
    let live = &shown["live"];
    assert_eq!(live["in_flight"], book.running.len(), "{book:?}: {live}");
    nearest(live, book, &sum);
    sum
}

/// The project as a whole, and the counts of sessions.
async fn whole(gate: &Gate, books: &[Book], sum: &Sum, seed: u64) {
    let status = get(gate, "/api/status?limit=1").await;
    let running: usize = books.iter().map(|book| book.running.len()).sum();
    let counts = &status["sessions"];
    assert_eq!(counts["in_flight"], running, "seed {seed}: {counts}");
    let states = ["running", "paused", "finished", "stopped_by_guard", "stopped_by_person"];
    for state in states {
        let expected = books.iter().filter(|book| book.standing() == state).count();
        let count = |state: &str| counts[state].as_u64().unwrap() as usize;
        // A thousand histories take longer than it takes to be idle: fifteen minutes.
        let idle = if state == "running" { count("idle") } else { 0 };
        assert_eq!(count(state) + idle, expected, "seed {seed}: {state} of {counts}");
    }
    let whole = &status["project"];
    let flying = |kind: char| {
        let ids = books.iter().flat_map(|book| &book.running);
        ids.filter(|id| id.starts_with(kind)).count() as u64
    };
    assert_eq!(whole["steps"], sum.tools + flying('t'), "seed {seed}: {whole}");
    assert_eq!(whole["model_calls"], sum.models + flying('m'), "seed {seed}: {whole}");
    assert_eq!(nanos(&whole["cost_usd"]), sum.nanos, "seed {seed}: {whole}");
    for by in ["agent", "model", "day", "hour"] {
        let costs = get(gate, &format!("/api/costs?by={by}")).await;
        assert_eq!(nanos(&sum_of(&costs, "cost_usd")), sum.nanos, "seed {seed}, by {by}");
    }
    let agents = get(gate, "/api/agent-health").await;
    let names: BTreeSet<&str> = books.iter().map(|book| book.agent.as_str()).collect();
    assert_eq!(agents["agents"], names.len(), "seed {seed}: {agents}");
    let sick: BTreeSet<&str> = books
        .iter()
        .filter(|book| book.by_guard || book.loops)
        .map(|book| book.agent.as_str())
        .collect();
    assert!(agents["warning"].as_u64().unwrap() as usize <= sick.len(), "{agents}");
}

/// A stop of an agent with other runs, as it stands in the database.
struct Stop {
    id: String,
    last: u64,
    calls: Vec<StoredCall>,
    /// What each other run cost, and whether it was stopped; the one opened last at the end.
    runs: Vec<(u64, bool)>,
}

fn clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

async fn keep(store: &Store, seed: u64) -> Stop {
    let mut dice = Dice::new(seed);
    let last = clock() - 60_000 * (1 + dice.to(3000) as u64);
    let name = format!("saver {seed}");
    let base = last - 40_000_000;
    // Numbers only grow, and each history is about another time.
    let numbers = Numbers::new(seed);
    let agent_number = numbers.next(Time(base));
    let session = |number, cost: u64, state, calls| StoredSession {
        number,
        project: "default".into(),
        agent_number,
        agent: name.clone(),
        name: format!("s{number}"),
        opened: Time(base),
        used: Time(last),
        state,
        why: None,
        tags: Vec::new(),
        provider: None,
        model: None,
        counters: Counters { calls, cost: NanoUsd(cost), ..Counters::default() },
    };
    let (mut runs, mut sessions) = (Vec::new(), Vec::new());
    for run in 0..dice.to(120) as u64 {
        let cost = dice.to(3_000_000_000) as u64;
        let (stopped, idle) = (dice.one_in(4), dice.one_in(9));
        let state = if stopped { SessionState::Killed } else { SessionState::Running };
        let number = numbers.next(Time(base + 1 + run));
        sessions.push(session(number, cost, state, u64::from(!idle)));
        runs.push((cost, stopped || idle));
    }
    let own = numbers.next(Time(last - 3_000_000));
    sessions.push(session(own, 5, SessionState::Killed, 3));
    let mut times: Vec<u64> =
        (0..dice.to(40)).map(|_| last + dice.to(6000) as u64 - 5000).collect();
    times.sort_unstable();
    // Some are so cheap that even days at that pace cost less than a run.
    let most = dice.pick(&[2_000_000, 20]);
    let calls: Vec<StoredCall> = times
        .into_iter()
        .map(|at| {
            let at = Time(at);
            let cost = NanoUsd(dice.to(most) as u64);
            let row = kept::call(numbers.next(at), at, (agent_number, own));
            StoredCall { cost, verdict: Verdict::Allow, status: Some(Status::Ok), ..row }
        })
        .collect();
    let trip = Trip { verdict: Verdict::Kill, measured: Measure::Count(5), ..kept::trip() };
    let id = format!("saved-{seed}");
    let incident = StoredIncident {
        id: id.clone(),
        project: "default".into(),
        at: Time(last),
        last: Time(last),
        agent: name.clone(),
        session: format!("s{own}"),
        session_number: Some(own),
        call: None,
        provider: None,
        trip,
        rungs: Vec::new(),
        acknowledged: None,
        about: "repetition".into(),
        assignee: None,
        resolved: None,
        calls: 0,
    };
    let agent = StoredAgent {
        number: agent_number,
        project: "default".into(),
        name,
        opened: Time(base),
        used: Time(last),
        tags: Vec::new(),
        active: true,
        deactivated_by: None,
        deactivated: None,
        removed: None,
        counters: Counters::default(),
    };
    let batch = Batch {
        agents: vec![agent],
        sessions,
        calls: calls.clone(),
        incidents: vec![incident],
        ..Batch::default()
    };
    store.write(&batch).await.unwrap();
    Stop { id, last, calls, runs }
}

async fn savings_agree_with_the_calls(place: &TestDatabase) {
    let _turn = heavy().await;
    let gate = Gate::on(place, json!({}), |_| Reply::json(200, &json!({})), |_| {}).await;
    let store = place.open().await;
    let (mut told_in_money, mut bounded) = (0, 0);
    for seed in 0..rounds(40, 1000) as u64 {
        let stop = keep(&store, seed).await;
        let before = clock();
        let shown = get(&gate, &format!("/api/incidents/{}", stop.id)).await["unstopped"].clone();
        let after = clock();
        // The last twenty that had been asked by then.
        let asked = |call: &&StoredCall| Numbers::time(call.id).0 <= stop.last;
        let mut calls: Vec<&StoredCall> = stop.calls.iter().filter(asked).collect();
        calls.sort_by_key(|call| call.id);
        let calls = &calls[calls.len().saturating_sub(20)..];
        let first = calls.iter().map(|call| call.at.0).min().unwrap_or(stop.last);
        let took = stop.last.saturating_sub(first);
        if calls.len() < 2 || took < 1000 {
            assert_eq!(shown, Value::Null, "seed {seed}");
            continue;
        }
        let minutes = took as f64 / 60_000.0;
        let cost = calls.iter().map(|call| call.cost.0).sum::<u64>() as f64 / 1e9;
        let close = |told: &Value, expected: f64| {
            assert!((told.as_f64().unwrap() - expected).abs() < 1e-9, "seed {seed}: {shown}");
        };
        assert_eq!(shown["measured_calls"], calls.len(), "seed {seed}: {shown}");
        close(&shown["usd_per_minute"], cost / minutes);
        close(&shown["calls_per_minute"], calls.len() as f64 / minutes);
        // Of the hundred sessions opened last, one is the stopped one.
        let runs = stop.runs[stop.runs.len().saturating_sub(99)..].iter();
        let mut usual: Vec<u64> = runs.filter(|(_, out)| !out).map(|(cost, _)| *cost).collect();
        usual.sort_unstable();
        assert_eq!(shown["usual_runs"], usual.len(), "seed {seed}: {shown}");
        if usual.len() < 3 {
            assert!(shown["cost_usd"].is_null() && shown["usual_usd"].is_null(), "{shown}");
            continue;
        }
        let bound = usual[(usual.len() * 9).div_ceil(10) - 1] as f64 / 1e9;
        close(&shown["usual_usd"], bound);
        let pace = |now: u64| cost / minutes * ((now - stop.last) as f64 / 60_000.0);
        let (least, most) = (pace(before).min(bound), pace(after).min(bound));
        let saved = shown["cost_usd"].as_f64().unwrap();
        assert!((least - 1e-9..=most + 1e-9).contains(&saved), "seed {seed}: {shown}");
        told_in_money += 1;
        bounded += u32::from(pace(before) > bound);
    }
    let calm = told_in_money < 10 || bounded == 0 || bounded == told_in_money;
    assert!(!calm, "too few kinds of histories: {told_in_money}, {bounded}");
}
