//! Five hundred crashes at random moments, on SQLite and on PostgreSQL: kills are in force, clears
//! are not undone, incidents are there with their evidence, receipts are booked, policies hold, and
//! the audit is whole.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hyper::Request;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::ends::{Caller, provider};
use crate::server::{Server, spawn};

/// What a receipt costs: 2,000 tokens in and 50 out of gpt-4o.
const RECEIPT_USD: f64 = 2000.0 * 2.5e-6 + 50.0 * 10e-6;
/// Crashes in an ordinary run.
const FEW: usize = 12;
/// Crashes when there is time.
const MANY: usize = 500;
/// Lives after which everything that was ever acknowledged is looked at, not the last life alone.
const ALL_EVERY: usize = 100;

/// What the server has acknowledged.
#[derive(Default)]
struct Known {
    /// Agent and session of what was ended; an agent's end has no session.
    dead: Vec<(String, Option<String>)>,
    /// Agents that were ended and cleared again, or with a session that was ended and reset.
    cleared: Vec<(String, Option<String>)>,
    /// Ids of incidents, as refusals have told them.
    incidents: Vec<String>,
    /// Receipts by agent and session.
    receipts: HashMap<(String, String), u64>,
    /// Reasons of orders.
    orders: Vec<String>,
    /// The version of the default policy, and the number of steps that it allows.
    policy: Option<(i64, u64)>,
}

impl Known {
    /// How many of each kind.
    fn counts(&self) -> [usize; 6] {
        let Known { dead, cleared, incidents, receipts, orders, policy } = self;
        let policies = usize::from(policy.is_some());
        [dead.len(), cleared.len(), incidents.len(), receipts.len(), orders.len(), policies]
    }

    /// Whether something of each kind was acknowledged.
    fn has_each(&self) -> bool {
        self.counts().iter().all(|count| *count > 0)
    }

    fn append(&mut self, mut more: Known) {
        self.dead.append(&mut more.dead);
        self.cleared.append(&mut more.cleared);
        self.incidents.append(&mut more.incidents);
        self.receipts.extend(more.receipts);
        self.orders.append(&mut more.orders);
        self.policy = more.policy.or(self.policy);
    }
}

/// One life of the server, as its clients see it.
#[derive(Clone)]
struct Life {
    caller: Caller,
    url: String,
    round: usize,
    known: Arc<Mutex<Known>>,
    over: Arc<AtomicBool>,
}

impl Life {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
        self.caller.ask(method, &self.url, path, body).await
    }

    /// Calls through the gateway: sessions end by their budget.
    async fn work(self, worker: usize) {
        let agent = format!("r{}-worker-{worker}", self.round);
        let mut number = 0;
        while !self.is_over() {
            let session = format!("s{number}");
            match self.caller.call(&self.url, &agent, &session).await {
                Some((200, _)) => {}
                Some((402 | 403, body)) => {
                    let facts = &body["error"]["deadstop"];
                    let mut known = self.known.lock();
                    known.incidents.extend(facts["incident"].as_str().map(str::to_owned));
                    if facts["verdict"] == "kill" {
                        known.dead.push((agent.clone(), Some(session)));
                    }
                    number += 1;
                }
                Some((status, body)) => panic!("{status}: {body}"),
                None => return,
            }
        }
    }

    /// Calls that a client reports itself: models with receipts, and tools until they loop.
    async fn report(self) {
        let agent = format!("r{}-reporter", self.round);
        for number in 0.. {
            let session = format!("s{}", number / 20);
            let path = |what: &str| format!("/api/sessions/{agent}/{session}/{what}");
            let (model, tool) = (format!("m{number}"), format!("t{number}"));
            let asked = json!({ "id": model, "model": "gpt-4o", "input_tokens": 2000 });
            let Some((status, _)) = self.ask("POST", &path("preflight"), &asked).await else {
                return;
            };
            if status == 200 {
                let usage = json!({ "input": 2000, "output": 50 });
                let receipt = json!({ "id": model, "status": "ok", "usage": usage });
                // Booked whether the session has died of it or not.
                match self.ask("POST", &path("receipt"), &receipt).await {
                    Some((200 | 403, _)) => {
                        let mut known = self.known.lock();
                        *known.receipts.entry((agent.clone(), session.clone())).or_default() += 1;
                    }
                    Some((status, body)) => panic!("{status}: {body}"),
                    None => return,
                }
            }
            let arguments = json!({ "asset_id": "fact_sales" });
            let call = json!({ "id": tool, "tool": "delete_asset", "arguments": arguments });
            let proposal = json!({ "calls": [call] });
            match self.ask("POST", &path("proposal"), &proposal).await {
                Some((200, body)) => {
                    let decided = &body["calls"][0];
                    let mut known = self.known.lock();
                    known.incidents.extend(decided["incident"].as_str().map(str::to_owned));
                    if decided["verdict"] == "kill" {
                        known.dead.push((agent.clone(), Some(session)));
                    }
                }
                Some((403, _)) => {}
                Some((status, body)) => panic!("{status}: {body}"),
                None => return,
            }
        }
    }

    /// An operator: ends agents and sessions, and lets some of them go on.
    async fn order(self) {
        for number in 0.. {
            let agent = format!("r{}-killed-{number}", self.round);
            let session = (number % 3 == 0).then(|| "s".to_owned());
            // In use when it is ended, as a rule.
            self.caller.call(&self.url, &agent, "s").await;
            let order = |what: &'static str| {
                let reason = format!("{what} {agent}");
                let body = json!({ "agent": agent, "session": session, "reason": reason });
                (what, reason, body)
            };
            if !self.carried_out(order("kill")).await {
                return;
            }
            if number % 2 == 0 {
                self.known.lock().dead.push((agent.clone(), session.clone()));
                continue;
            }
            let back = if session.is_some() { "reset" } else { "clear" };
            if !self.carried_out(order(back)).await {
                return;
            }
            self.known.lock().cleared.push((agent.clone(), session.clone()));
        }
    }

    async fn carried_out(&self, (what, reason, body): (&str, String, Value)) -> bool {
        match self.ask("POST", &format!("/api/{what}"), &body).await {
            Some((200, _)) => {
                self.known.lock().orders.push(reason);
                true
            }
            Some((status, body)) => panic!("{what}: {status}: {body}"),
            None => false,
        }
    }

    /// An admin who changes the project's policy all the time.
    async fn change(self) {
        let Some((200, mut current)) = self.ask("GET", "/api/policies/default", &Value::Null).await
        else {
            return;
        };
        while !self.is_over() {
            let (version, mut policy) = (current["version"].clone(), current["document"].clone());
            let steps = policy["steps"]["max_steps"].as_u64().unwrap() + 1;
            policy["steps"]["max_steps"] = steps.into();
            let request = Request::put(format!("{}/api/policies/default", self.url))
                .header("if-match", format!("\"{version}\""));
            match self.caller.send(request, &policy).await {
                Some((200, new)) => {
                    self.known.lock().policy = Some((new["version"].as_i64().unwrap(), steps));
                    current = new;
                }
                Some((status, body)) => panic!("{status}: {body}"),
                None => return,
            }
        }
    }
}

/// Load until the crash, which comes after so long. Gives what was acknowledged.
async fn live_and_die(server: Server, round: usize, after: Duration) -> Known {
    let (known, over) = (Arc::default(), Arc::default());
    let caller = Caller::new();
    let life = Life { caller, url: server.url.clone(), round, known, over };
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..3 {
        tasks.spawn(life.clone().work(worker));
    }
    tasks.spawn(life.clone().report());
    tasks.spawn(life.clone().order());
    tasks.spawn(life.clone().change());
    tokio::time::sleep(after).await;
    server.crash();
    life.over.store(true, Ordering::SeqCst);
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    std::mem::take(&mut *life.known.lock())
}

/// Looks at everything that was acknowledged, after the crash of `round`.
async fn check(server: &Server, round: usize, known: &Known) {
    let (caller, url) = (Caller::new(), server.url.as_str());
    let get = async |path: &str| caller.ask("GET", url, path, &Value::Null).await.unwrap();
    for (agent, session) in &known.dead {
        let shown = session.as_deref().unwrap_or("another");
        let (status, body) = caller.call(url, agent, shown).await.unwrap();
        assert!([402, 403].contains(&status), "round {round}: {agent} {shown} lives: {body}");
    }
    for (agent, session) in &known.cleared {
        if let Some(session) = session {
            let (_, shown) = get(&format!("/api/sessions/{agent}/{session}")).await;
            assert_eq!(shown["state"], "running", "round {round}: {agent} is dead again: {shown}");
        }
        // A session of its own: these calls must not use up another session's budget.
        let (status, body) = caller.call(url, agent, &format!("look-{round}")).await.unwrap();
        assert_eq!(status, 200, "round {round}: {agent} is dead again: {body}");
    }
    for id in &known.incidents {
        let (status, incident) = get(&format!("/api/incidents/{id}")).await;
        assert_eq!(status, 200, "round {round}: the incident {id} is gone: {incident}");
        let evidence = incident["evidence"].as_array().map_or(0, Vec::len);
        assert!(evidence > 0, "round {round}: an incident without evidence: {incident}");
    }
    for ((agent, session), receipts) in &known.receipts {
        let (status, shown) = get(&format!("/api/sessions/{agent}/{session}")).await;
        assert_eq!(status, 200, "round {round}: {agent}/{session} is gone: {shown}");
        let (cost, least) = (&shown["cost_usd"], *receipts as f64 * RECEIPT_USD);
        let cost = cost.as_f64().unwrap_or_else(|| panic!("{shown}"));
        assert!(cost >= least - 1e-9, "round {round}: ${cost} of ${least} is booked: {shown}");
    }
    check_policy(&caller, url, round, known).await;
    check_audit(&caller, url, round, known).await;
}

/// The policy that was acknowledged last is in force, or a later one whose answer was lost.
async fn check_policy(caller: &Caller, url: &str, round: usize, known: &Known) {
    let Some((version, steps)) = known.policy else { return };
    let opening = json!({ "agent": format!("r{round}-visitor"), "session": "s" });
    let (_, opened) = caller.ask("POST", url, "/api/sessions", &opening).await.unwrap();
    let in_force = opened["policy"]["steps"]["max_steps"].as_u64();
    let in_force = in_force.unwrap_or_else(|| panic!("no steps in {opened}"));
    let (_, saved) = caller.ask("GET", url, "/api/policies/default", &Value::Null).await.unwrap();
    assert_eq!(saved["document"]["steps"]["max_steps"], in_force);
    let newer = saved["version"].as_i64().unwrap() - version;
    assert!((0..=1).contains(&newer), "round {round}: version {version} of {}", saved["version"]);
    assert_eq!(in_force, steps + newer.unsigned_abs(), "round {round}");
}

/// The chain is whole, and every order that was acknowledged is in it.
async fn check_audit(caller: &Caller, url: &str, round: usize, known: &Known) {
    let (_, verified) = caller.ask("GET", url, "/api/audit/verify", &Value::Null).await.unwrap();
    assert_eq!(verified["whole"], true, "round {round}: {verified}");
    let (mut path, mut found) = ("/api/audit?limit=500".to_owned(), Vec::new());
    loop {
        let (status, page) = caller.ask("GET", url, &path, &Value::Null).await.unwrap();
        assert_eq!(status, 200, "{page}");
        let items = page["items"].as_array().unwrap();
        found.extend(items.iter().filter_map(|item| Some(item["reason"].as_str()?.to_owned())));
        let missing = known.orders.iter().any(|reason| !found.contains(reason));
        match page["next"].as_str().filter(|_| missing) {
            Some(next) => path = format!("/api/audit?limit=500&cursor={next}"),
            None => break,
        }
    }
    for reason in &known.orders {
        assert!(found.contains(reason), "round {round}: no entry for {reason}");
    }
}

/// Moments that are spread out, and the same in every run.
fn after(round: usize, most_ms: u64) -> Duration {
    let mixed = (round as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    Duration::from_micros(mixed % (most_ms * 1000))
}

async fn crash_often(folder: &Path, database: Option<&str>, rounds: usize) {
    let database = database.map_or(String::new(), |url| format!("database = \"{url}\"\n"));
    let toml = format!(
        "policy = \"policy.json\"\n{database}[providers.openai]\nbase_url = \"{}\"\n",
        provider().await
    );
    std::fs::write(folder.join("deadstop.toml"), toml).unwrap();
    let policy = json!({
        "budget": { "max_cost_usd": 0.02 }, "steps": { "max_steps": 1000 },
        "text_loop": { "enabled": false }, "loop": { "enabled": false },
        "destructive": { "enabled": true, "max_deletes": 3, "action": "terminate" },
    });
    std::fs::write(folder.join("policy.json"), policy.to_string()).unwrap();

    let begun = Instant::now();
    let (mut all, mut down) = (Known::default(), Duration::ZERO);
    let mut last = Known::default();
    // On a slow machine a life may be too short for one of each kind to be acknowledged.
    let mut round = 0;
    while round < rounds || (round < 10 * rounds && !all.has_each()) {
        if round % 8 == 7 {
            // One that does not get so far as to listen.
            let mut early = spawn(folder);
            tokio::time::sleep(after(round, 40)).await;
            early.kill().unwrap();
            early.wait().unwrap();
        }
        let started = Instant::now();
        let server = Server::start(folder);
        down = down.max(started.elapsed());
        check(&server, round, &last).await;
        all.append(last);
        if round % ALL_EVERY == ALL_EVERY - 1 {
            check(&server, round, &all).await;
        }
        last = live_and_die(server, round, after(round, 400)).await;
        round += 1;
    }
    let rounds = round;
    let server = Server::start(folder);
    check(&server, rounds, &last).await;
    all.append(last);
    check(&server, rounds, &all).await;
    server.stop();
    let (dead, cleared, incidents) = (all.dead.len(), all.cleared.len(), all.incidents.len());
    assert!(all.has_each(), "{:?}", all.counts());
    println!(
        "{rounds} crashes in {:.0} s: {dead} ends, {cleared} clears and resets, {incidents} \
         incidents, {} receipts, {} orders and version {} of the policy were acknowledged, none \
         lost, none undone; a start took at most {} ms",
        begun.elapsed().as_secs_f64(),
        all.receipts.values().sum::<u64>(),
        all.orders.len(),
        all.policy.map_or(0, |(version, _)| version),
        down.as_millis(),
    );
}

fn rounds() -> usize {
    let asked = std::env::var("DEADSTOP_CRASHES").ok().and_then(|rounds| rounds.parse().ok());
    let soak = std::env::var_os("DEADSTOP_SOAK").is_some_and(|value| value != "0");
    asked.unwrap_or(if soak { MANY } else { FEW })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    crash_often(folder.path(), None, rounds()).await;
}

/// The server crashes, PostgreSQL stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres() {
    let folder = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/postgres");
    let own = std::process::id().to_string();
    let started = Command::new(script).args(["start", &own]).stderr(Stdio::inherit()).output();
    let started = String::from_utf8(started.unwrap().stdout).unwrap();
    let address = started.lines().nth(1).expect("scripts/postgres says why above").to_owned();
    crash_often(folder.path(), Some(&address), rounds()).await;
    let made = started.lines().next().unwrap();
    assert!(Command::new(script).args(["stop", made]).status().unwrap().success());
}
