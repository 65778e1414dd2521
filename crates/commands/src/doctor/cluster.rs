//! `deadstop doctor --cluster`: what a fleet stands on. PostgreSQL, Redis, their clocks, the nodes that
//! are alive, and how long a kill takes until every node that was named honours it.

use std::time::{Duration, Instant};

use deadstop_core::Time;
use deadstop_fleet::Redis;
use serde_json::json;

use super::{Chart, State, canary};
use crate::config;
use crate::remote::{Server, filled};
use crate::ui::{self, Hinted};

/// Milliseconds that two clocks may differ: windows are by Redis' clock, what is written is by the
/// nodes'.
const APART_MS: i64 = 2000;
/// How long a kill may take until every node honours it, before that is called wrong.
const HONOURED: Duration = Duration::from_secs(10);
/// Connections to PostgreSQL that a node may hold.
const CONNECTIONS: i64 = 8;

/// What is looked at.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct Wanted {
    /// Check a fleet instead: PostgreSQL, Redis, clocks, nodes, and whether a stop reaches every node
    #[arg(long)]
    pub(super) cluster: bool,
    /// The PostgreSQL that nodes share [env: DEADSTOP_DATABASE] [default: from deadstop.toml]
    #[arg(long, value_name = "URL", requires = "cluster")]
    database: Option<String>,
    /// The Redis that nodes share [env: DEADSTOP_REDIS] [default: from deadstop.toml]
    #[arg(long, value_name = "URL", requires = "cluster")]
    redis: Option<String>,
    /// A node's own address, past the balancer; once for each [default: --server alone]
    #[arg(long = "node", value_name = "URL", requires = "cluster")]
    nodes: Vec<String>,
}

/// Looks at all of it.
pub(super) fn look(chart: &mut Chart, args: &Wanted, server: &Server) -> anyhow::Result<()> {
    let file = config::read(None)?;
    let named = |typed: &Option<String>, variable: &str, written: Option<String>| {
        typed.clone().or_else(|| filled(variable)).or(written)
    };
    let database = named(&args.database, "DEADSTOP_DATABASE", file.database);
    let redis = named(&args.redis, "DEADSTOP_REDIS", file.redis);
    ui::runtime()?.block_on(async {
        let by_postgres = postgres(chart, database.as_deref()).await;
        let found = shared(chart, redis.as_deref()).await;
        clocks(chart, by_postgres, found.as_ref().map(|found| found.time));
        if let Some(found) = &found {
            nodes(chart, found);
        }
        let mut urls = args.nodes.clone();
        if urls.is_empty() {
            urls.push(server.url());
            chart.notes.push(
                "a stop was tested at one address only; name each node's own with --node URL"
                    .to_owned(),
            );
        }
        kill(chart, server, &urls).await;
    });
    Ok(())
}

/// PostgreSQL: there, up to date, and taking writes. Gives how far its clock is ahead of ours.
async fn postgres(chart: &mut Chart, address: Option<&str>) -> Option<i64> {
    let what = "PostgreSQL";
    let Some(address) = address else {
        chart.add(what, State::Unknown, "no address: name it with --database");
        return None;
    };
    let found = match deadstop_store::look(address).await {
        Ok(found) => found,
        Err(error) => {
            chart.add(what, State::Wrong, error.to_string());
            return None;
        }
    };
    let trip = millis(found.trip);
    if found.read_only {
        let detail =
            format!("{} is a read-only replica: Deadstop cannot write to it", found.version);
        chart.add(what, State::Wrong, detail);
    } else {
        chart.add(what, State::Proven, format!("{}, {trip} there and back", found.version));
    }
    let (step, known) = (found.step, found.known);
    match step {
        None => chart.add("tables", State::Unknown, "none yet: the first node creates them"),
        Some(step) if step == known => {
            chart.add("tables", State::Proven, format!("step {step}, as this program knows them"));
        }
        Some(step) if step < known => {
            let detail =
                format!("step {step} of {known}: the first node of this version does the rest");
            chart.add("tables", State::Unknown, detail);
        }
        Some(step) => {
            let detail =
                format!("step {step}, but this program knows only {known}: install a newer one");
            chart.add("tables", State::Wrong, detail);
        }
    }
    let most = found.most_connections;
    chart.notes.push(format!(
        "PostgreSQL takes {most} connections, a node holds up to {CONNECTIONS}: enough for {} nodes",
        most / CONNECTIONS
    ));
    Some(ahead(found.time))
}

/// Redis: there, taking writes and our scripts, and throwing nothing out.
async fn shared(chart: &mut Chart, address: Option<&str>) -> Option<Shared> {
    let what = "Redis";
    let Some(address) = address else {
        chart.add(what, State::Unknown, "no address: name it with --redis");
        return None;
    };
    let redis = match Redis::open(address) {
        Ok(redis) => redis,
        Err(error) => {
            chart.add(what, State::Wrong, error.to_string());
            return None;
        }
    };
    let found = match redis.look().await {
        Ok(found) => found,
        Err(away) => {
            chart.add(what, State::Wrong, format!("it cannot be used: {}", away.why));
            return None;
        }
    };
    if found.copied {
        chart.add(what, State::Wrong, format!("{} is a replica: name its master", found.version));
    } else {
        chart.add(what, State::Proven, found.version.clone());
    }
    chart.add("scripts", State::Proven, format!("run in {}, there and back", millis(found.trip)));
    let (used, most) = (found.used >> 20, found.most >> 20);
    let limit = if most == 0 { "no limit".to_owned() } else { format!("{most} MiB at most") };
    match found.eviction.as_str() {
        "noeviction" => {
            chart.add("memory", State::Proven, format!("{used} MiB in use, {limit}, noeviction"));
        }
        "" => chart.add("memory", State::Unknown, "Redis does not report its maxmemory-policy"),
        other => {
            let detail = format!(
                "maxmemory-policy is {other}: Redis may evict live states; set it to noeviction"
            );
            chart.add("memory", State::Wrong, detail);
        }
    }
    if !found.named {
        chart.notes.push(
            "Redis does not say which server it is (master_replid of INFO replication): should another \
             one take over without the last writes, it takes up to two seconds to be noticed"
                .to_owned(),
        );
    }
    if !found.kept {
        chart.notes.push(
            "Redis keeps nothing on disk: after a restart, states are those that PostgreSQL has; \
             `appendonly yes` loses less"
                .to_owned(),
        );
    }
    Some(Shared { time: ahead(found.time), now: found.time, nodes: found.nodes })
}

/// What Redis knows.
struct Shared {
    /// How far its clock is ahead of ours.
    time: i64,
    now: Time,
    nodes: Vec<(String, Time)>,
}

fn clocks(chart: &mut Chart, postgres: Option<i64>, redis: Option<i64>) {
    for (name, apart) in [("PostgreSQL", postgres), ("Redis", redis)] {
        let Some(apart) = apart else { continue };
        let state = if apart.abs() > APART_MS { State::Wrong } else { State::Proven };
        let detail = format!("{name}'s is {apart:+} ms from ours");
        let hint = if state == State::Wrong { "; have both set by NTP" } else { "" };
        chart.add("clock", state, format!("{detail}{hint}"));
    }
}

fn nodes(chart: &mut Chart, found: &Shared) {
    let alive: Vec<&str> = found
        .nodes
        .iter()
        .filter(|(_, until)| *until >= found.now)
        .map(|(node, _)| node.as_str())
        .collect();
    let gone = found.nodes.len() - alive.len();
    let names = alive.join(", ");
    match alive.len() {
        0 => chart.add("nodes", State::Wrong, format!("none is alive; {gone} were, lately")),
        many => chart.add("nodes", State::Proven, format!("{many} alive ({names}), {gone} gone")),
    }
}

/// A canary is killed at the first node, and asked about at each until it is dead there.
async fn kill(chart: &mut Chart, server: &Server, urls: &[String]) {
    let what = "kill";
    let mut clients = Vec::new();
    for url in urls {
        match server.at(url).client() {
            Ok(client) => clients.push((url, client)),
            Err(error) => return chart.add(what, State::Wrong, format!("{error:#}")),
        }
    }
    let Some((first, at)) = clients.first() else { return };
    let session = canary();
    let opening = json!({ "agent": "doctor", "session": session });
    if let Err(error) = at.post("/api/sessions", &opening).await {
        return chart.add(what, State::Unknown, format!("{first}: {error:#}"));
    }
    let order = json!({ "agent": "doctor", "session": session, "reason": "a canary" });
    let began = Instant::now();
    if let Err(error) = at.post("/api/kill", &order).await {
        return chart.add(what, State::Wrong, format!("{first}: {error:#}"));
    }
    let acknowledged = began.elapsed();
    for (url, client) in &clients {
        loop {
            match client.post("/api/sessions", &opening).await {
                Err(error) if Hinted::is_stopped(&error) => break,
                Err(error) => return chart.add(what, State::Wrong, format!("{url}: {error:#}")),
                Ok(_) if began.elapsed() > HONOURED => {
                    let detail =
                        format!("{url} still admits a session that was stopped at {first}");
                    return chart.add(what, State::Wrong, detail);
                }
                Ok(_) => {}
            }
        }
    }
    let all = began.elapsed();
    chart.doors += clients.len();
    let detail = format!(
        "acknowledged after {}, honoured by {} of {} after {}",
        millis(acknowledged),
        clients.len(),
        clients.len(),
        millis(all)
    );
    chart.add(what, State::Proven, detail);
}

/// How many milliseconds a clock is ahead of ours.
fn ahead(theirs: Time) -> i64 {
    let ours = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let ours = i64::try_from(ours.unwrap_or_default().as_millis()).unwrap_or(0);
    i64::try_from(theirs.0).unwrap_or(0) - ours
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}
