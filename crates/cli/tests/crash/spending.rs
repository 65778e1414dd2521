//! Spending through the gateway is written in the background: of what was answered, at most the last
//! second is lost, and nothing is made up.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::ends::{Caller, provider};
use crate::server::Server;

/// What a call costs by the stand-in's own figures: 1,000 tokens in and 100 out of gpt-4o.
const CALL_USD: f64 = 1000.0 * 2.5e-6 + 100.0 * 10e-6;
/// More than any call costs, or has reserved when the server dies.
const MOST_USD: f64 = 0.01;

/// What the clients know for certain.
#[derive(Default)]
struct Known {
    /// When a call was answered.
    answered: Mutex<Vec<Instant>>,
    sent: AtomicU64,
    /// Agent and session of what was ended; an agent's end has no session.
    dead: Mutex<Vec<(String, Option<String>)>>,
    /// Agents that were ended and cleared again.
    cleared: Mutex<Vec<String>>,
}

/// Calls that run until the server is gone: sessions end by their budget.
async fn work(
    caller: Caller,
    url: String,
    agent: String,
    known: Arc<Known>,
    over: Arc<AtomicBool>,
) {
    let mut number = 0;
    while !over.load(Ordering::SeqCst) {
        let session = format!("s{number}");
        known.sent.fetch_add(1, Ordering::SeqCst);
        match caller.call(&url, &agent, &session).await {
            Some((200, _)) => known.answered.lock().await.push(Instant::now()),
            Some((402, body)) if body["error"]["deadstop"]["verdict"] == "kill" => {
                known.dead.lock().await.push((agent.clone(), Some(session)));
                number += 1;
            }
            Some((402 | 403, _)) => number += 1,
            Some((status, body)) => panic!("{status}: {body}"),
            None => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

/// An operator who ends sessions and agents, and lets every other agent go on.
async fn order(
    caller: Caller,
    url: String,
    round: usize,
    known: Arc<Known>,
    over: Arc<AtomicBool>,
) {
    for number in 0.. {
        if over.load(Ordering::SeqCst) {
            return;
        }
        let agent = format!("r{round}-killed-{number}");
        let session = (number % 3 == 0).then(|| "s".to_owned());
        // In use when it is ended, as a rule.
        caller.call(&url, &agent, "s").await;
        known.sent.fetch_add(1, Ordering::SeqCst);
        let about = json!({ "agent": agent, "session": session, "reason": "enough" });
        if !caller.order(&url, "kill", &about).await {
            continue;
        }
        if session.is_some() || number % 2 == 0 {
            known.dead.lock().await.push((agent, session));
        } else if caller.order(&url, "clear", &json!({ "agent": agent })).await {
            known.cleared.lock().await.push(agent);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// One life of the server: load, a crash at `after`, and when it was.
async fn live_and_die(folder: &Path, round: usize, after: Duration, known: &Arc<Known>) -> Instant {
    let server = Server::start(folder);
    let over = Arc::new(AtomicBool::new(false));
    let caller = Caller::new();
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..6 {
        let agent = format!("r{round}-worker-{worker}");
        let (caller, url) = (caller.clone(), server.url.clone());
        tasks.spawn(work(caller, url, agent, Arc::clone(known), Arc::clone(&over)));
    }
    if round.is_multiple_of(2) {
        // Orders are written at once, and what was spent before with them: not in every life.
        tasks.spawn(order(caller, server.url.clone(), round, Arc::clone(known), Arc::clone(&over)));
    }
    tokio::time::sleep(after).await;
    let died = server.crash();
    over.store(true, Ordering::SeqCst);
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    died
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kill_9() {
    let rounds = if std::env::var_os("DEADSTOP_SOAK").is_some() { 30 } else { 4 };
    let folder = tempfile::tempdir().unwrap();
    let toml = format!(
        "policy = \"policy.json\"\n[providers.openai]\nbase_url = \"{}\"\n",
        provider().await
    );
    std::fs::write(folder.path().join("deadstop.toml"), toml).unwrap();
    let policy = json!({
        "budget": { "max_cost_usd": 0.10 }, "text_loop": { "enabled": false },
        "loop": { "enabled": false },
    });
    std::fs::write(folder.path().join("policy.json"), policy.to_string()).unwrap();

    let known = Arc::new(Known::default());
    let (mut before, mut total, mut longest) = (0.0, 0, Duration::ZERO);
    for round in 0..rounds {
        // Moments that are spread out, and the same in every run.
        let after = Duration::from_millis(300 + (round as u64 * 617) % 1700);
        let died = live_and_die(folder.path(), round, after, &known).await;

        let server = Server::start(folder.path());
        let (caller, url) = (Caller::new(), server.url.as_str());
        let spent = spent_in(&caller, url).await;
        let answered = std::mem::take(&mut *known.answered.lock().await);
        let sent = known.sent.swap(0, Ordering::SeqCst);
        let certain = answered.iter().filter(|at| died - **at > Duration::from_secs(1)).count();
        let least = before + certain as f64 * CALL_USD - 1e-9;
        assert!(spent >= least, "round {round}: ${spent} of ${least} is still spent");
        let most = before + sent as f64 * MOST_USD;
        assert!(spent <= most, "round {round}: ${spent} is more than {sent} calls can have cost");
        longest = longest.max(lost(&answered, died, (spent - before) / CALL_USD));
        before = spent;
        total += answered.len();

        for (agent, session) in known.dead.lock().await.iter() {
            let shown = session.as_deref().unwrap_or("another");
            let (status, body) = caller.call(url, agent, shown).await.unwrap();
            assert!([402, 403].contains(&status), "round {round}: {agent} {shown} lives: {body}");
        }
        for agent in known.cleared.lock().await.iter() {
            let (status, body) = caller.call(url, agent, "another").await.unwrap();
            assert_eq!(status, 200, "round {round}: {agent} is dead again: {body}");
        }
        before = before.max(spent_in(&caller, url).await);
        // What was asked just now is written before the next life, by a polite end.
        server.stop();
    }
    println!(
        "{rounds} crashes under load: {total} calls, {} kills and {} clears acknowledged, none lost; \
         at most the last {} ms of spending lost",
        known.dead.lock().await.len(),
        known.cleared.lock().await.len(),
        longest.as_millis()
    );
}

/// How far before the end the charges reach that are gone, if so many are left.
fn lost(answered: &[Instant], died: Instant, left: f64) -> Duration {
    let mut answered = answered.to_vec();
    answered.sort();
    answered
        .get(left.max(0.0) as usize)
        .map_or(Duration::ZERO, |first| died.saturating_duration_since(*first))
}

async fn spent_in(caller: &Caller, url: &str) -> f64 {
    let status = caller.ask("GET", url, "/api/status", &Value::Null).await;
    status.unwrap().1["project"]["cost_usd"].as_f64().unwrap()
}
