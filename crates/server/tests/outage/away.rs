//! PostgreSQL goes away and comes back, while calls run.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::block_in_place;

use super::{audited, call, costs, degraded, denied, gate, kept, order_in_vain, recovered, timed};
use crate::place::{script, start};
use crate::support::{Ask, Gate, percentile, soon, until};

/// Longer than a call that waits for nothing takes on a busy machine, and shorter than any wait.
const AT_ONCE: Duration = Duration::from_millis(700);
/// What the first call of a new scope may wait before it is known that the database is away.
const NOTICING: Duration = Duration::from_millis(3500);

/// A PostgreSQL of its own, which can be stopped.
struct Postgres {
    folder: String,
    address: String,
}

impl Postgres {
    fn start() -> Postgres {
        let (folder, address) = block_in_place(|| start(&[&std::process::id().to_string()]));
        Postgres { folder, address }
    }

    fn run(&self, what: &str) {
        block_in_place(|| script(&[what, &self.folder]));
    }
}

/// Calls of one session, one after the other, until they are told to end; what each took.
fn keep_calling(
    address: SocketAddr,
    over: &Arc<AtomicBool>,
) -> tokio::task::JoinHandle<Vec<Duration>> {
    let over = Arc::clone(over);
    tokio::spawn(async move {
        let (ask, mut times) = (call("warm", "s"), Vec::new());
        while !over.load(Ordering::SeqCst) {
            let asked = Instant::now();
            let got = ask.send_to(address).await;
            assert_eq!(got.status, 200, "{}", got.text());
            times.push(asked.elapsed());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        times
    })
}

/// What is there before the database goes away: a session with two calls and dead ones, none of them
/// in memory any more but as far as a start brings them back.
async fn history(postgres: &Postgres, fail_mode: &str) -> Gate {
    let gate = gate(&postgres.address, fail_mode).await;
    for _ in 0..2 {
        assert_eq!(gate.ask(&call("cold", "s")).await.status, 200);
    }
    for agent in ["doomed", "dead"] {
        assert_eq!(gate.ask(&call(agent, "s")).await.status, 200);
    }
    gate.order("kill", json!({ "agent": "dead", "session": "s", "reason": "before" })).await;
    gate.order("kill", json!({ "agent": "gone", "reason": "before" })).await;
    gate.stop().await;
    let gate = super::gate(&postgres.address, fail_mode).await;
    assert_eq!(gate.ask(&call("warm", "s")).await.status, 200);
    gate
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_stops_and_comes_back_and_calls_go_on() {
    let _turn = crate::support::heavy().await;
    let postgres = Postgres::start();
    let gate = Box::pin(history(&postgres, "open")).await;
    let mut events = Ask::get("/api/events").open(gate.address).await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let calling = keep_calling(gate.address, &over);
    postgres.run("pause");
    let (noticed, mut new) = Box::pin(newcomers(&gate)).await;
    soon("the news", events.until("event: degraded")).await;
    let incident = Box::pin(orders_meanwhile(&gate)).await;
    postgres.run("resume");
    recovered(&gate).await;
    soon("the news", events.until("event: recovered")).await;
    over.store(true, Ordering::SeqCst);
    let mut times = calling.await.unwrap();
    println!(
        "PostgreSQL away: {} calls of a scope in memory took {:.1} ms (p50), {:.1} ms (p99), {:.1} ms \
         at most; the first that was not in memory {:.1} ms, 50 new ones {:.1} ms at most",
        times.len(),
        percentile(&mut times, 50),
        percentile(&mut times, 99),
        percentile(&mut times, 100),
        noticed.as_secs_f64() * 1000.0,
        percentile(&mut new, 100),
    );
    assert!(times.iter().max() < Some(&AT_ONCE), "calls have waited: {:?}", times.iter().max());
    assert!(new.iter().max() < Some(&AT_ONCE), "new scopes have waited: {:?}", new.iter().max());
    Box::pin(written_afterwards(&gate, &incident)).await;
    gate.stop().await;
    Box::pin(known_to_the_next(&postgres)).await;
    postgres.run("stop");
}

/// New sessions, and those not in memory, are let pass. The first one may wait until the server
/// notices the outage. Gives how long it and the others have waited.
async fn newcomers(gate: &Gate) -> (Duration, Vec<Duration>) {
    let (got, noticed) = timed(gate, &call("cold", "s")).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(noticed < NOTICING, "{noticed:?}");
    let mut new = Vec::new();
    for number in 0..50 {
        let (got, took) = timed(gate, &call("new", &format!("s{number}"))).await;
        assert_eq!(got.status, 200, "{}", got.text());
        new.push(took);
    }
    (noticed, new)
}

/// Killed agents stay dead, and a kill works at once. Gives an incident.
async fn orders_meanwhile(gate: &Gate) -> String {
    degraded(gate, "away").await;
    assert_eq!(gate.ask(&call("dead", "s")).await.status, 403);
    assert_eq!(gate.ask(&call("gone", "s")).await.status, 403);
    for order in [
        json!({ "agent": "doomed", "session": "s", "reason": "now 1" }),
        json!({ "agent": "new", "session": "s0", "reason": "now 2" }),
        json!({ "agent": "other", "reason": "now 3" }),
    ] {
        order_in_vain(gate, "kill", order).await;
    }
    for (agent, session) in [("doomed", "s"), ("new", "s0"), ("other", "s")] {
        assert_eq!(gate.ask(&call(agent, session)).await.status, 403, "{agent}");
    }
    let (got, took) = timed(gate, &Ask::get("/api/incidents")).await;
    assert_eq!((got.status, &got.json()["code"]), (503, &json!("store_failed")));
    assert!(took < AT_ONCE, "{took:?}");
    // A call of an unknown project.
    let stranger = call("stranger", "s").with("x-deadstop-project", "unheard-of");
    assert_eq!(gate.ask(&stranger).await.status, 200);
    denied(gate, "cold", "t1").await
}

/// What happened meanwhile is written, on top of what was there before.
async fn written_afterwards(gate: &Gate, incident: &str) {
    kept(gate, incident).await;
    costs(gate, "cold", 3).await;
    let session = super::get(gate, "/api/sessions?agent=cold").await;
    assert_eq!(session["items"].as_array().map(Vec::len), Some(1), "one session: {session}");
    let calls = super::get(gate, "/api/sessions/cold/s/calls").await;
    assert!(calls["items"].as_array().is_some_and(|calls| calls.len() >= 3), "{calls}");
    audited(gate, &["now 1", "now 2", "now 3"]).await;
}

/// And a server that starts later knows it.
async fn known_to_the_next(postgres: &Postgres) {
    let gate = gate(&postgres.address, "open").await;
    for (agent, session) in [("doomed", "s"), ("new", "s0"), ("other", "s"), ("dead", "s")] {
        let got = gate.ask(&call(agent, session)).await;
        assert_eq!(got.status, 403, "{agent} lives again: {}", got.text());
    }
    assert_eq!(gate.ask(&call("cold", "s")).await.status, 200);
    costs(&gate, "cold", 4).await;
    let theirs = Ask::get("/api/sessions/stranger/s").with("x-deadstop-project", "unheard-of");
    assert_eq!(gate.ask(&theirs).await.status, 200);
    gate.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_stops_and_comes_back_and_calls_wait_for_it() {
    let _turn = crate::support::heavy().await;
    let postgres = Postgres::start();
    let gate = Box::pin(history(&postgres, "closed")).await;
    postgres.run("pause");
    let refused = async |agent: &str| {
        let (got, took) = timed(&gate, &call(agent, "s")).await;
        let retry = got.header("retry-after").is_some();
        assert_eq!((got.status, retry), (503, true), "{agent}: {}", got.text());
        took
    };
    // The first call of an agent that is not in memory notices; from then on every call is refused.
    assert!(refused("cold").await < NOTICING);
    degraded(&gate, "away").await;
    for agent in ["warm", "cold", "new", "dead"] {
        assert!(refused(agent).await < AT_ONCE, "{agent}");
    }
    order_in_vain(&gate, "kill", json!({ "agent": "doomed", "session": "s", "reason": "now" }))
        .await;
    let asked = json!({ "id": "m1", "model": "gpt-4o" });
    let got = gate.ask(&Ask::post("/api/sessions/warm/s/preflight", &asked)).await;
    assert_eq!((got.status, &got.json()["code"]), (503, &json!("store_failed")), "{}", got.text());
    let before = gate.upstream.requests();

    postgres.run("resume");
    recovered(&gate).await;
    for (agent, status) in
        [("warm", 200), ("cold", 200), ("new", 200), ("dead", 403), ("gone", 403), ("doomed", 403)]
    {
        let got = gate.ask(&call(agent, "s")).await;
        assert_eq!(got.status, status, "{agent}: {}", got.text());
    }
    assert_eq!(gate.upstream.requests(), before + 3);
    costs(&gate, "cold", 3).await;
    audited(&gate, &["now"]).await;
    gate.stop().await;
    postgres.run("stop");
}

/// What lies between us and the database: passes bytes on, or holds all of them.
struct RawClient {
    address: SocketAddr,
    held: watch::Sender<bool>,
    open: Arc<AtomicUsize>,
}

impl RawClient {
    async fn to(port: u16) -> RawClient {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (held, holding) = watch::channel(false);
        let open = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&open);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let (near_in, near_out) = near.into_split();
                let (far_in, far_out) = far.into_split();
                tokio::spawn(pass(near_in, far_out, holding.clone()));
                tokio::spawn(pass(far_in, near_out, holding.clone()));
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        RawClient { address, held, open }
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut held: watch::Receiver<bool>,
) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut bytes = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if held.wait_for(|held| !held).await.is_err()
            || to.write_all(&bytes[..count]).await.is_err()
        {
            return;
        }
    }
}

/// A server that keeps its connections and says nothing on them, as behind a cable that was cut.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_falls_silent_and_speaks_again() {
    let _turn = crate::support::heavy().await;
    let postgres = Postgres::start();
    let port = postgres.address.rsplit_once(':').unwrap().1.split('/').next().unwrap();
    let line = RawClient::to(port.parse().unwrap()).await;
    let gate = gate(&format!("postgres://app@{}/postgres", line.address), "open").await;
    assert_eq!(gate.ask(&call("warm", "s")).await.status, 200);
    assert!(line.open.load(Ordering::SeqCst) > 0);
    let over = Arc::new(AtomicBool::new(false));
    let calling = keep_calling(gate.address, &over);
    line.held.send(true).unwrap();

    let (got, noticed) = timed(&gate, &call("new", "s0")).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(noticed < NOTICING, "{noticed:?}");
    for number in 1..20 {
        let (got, took) = timed(&gate, &call("new", &format!("s{number}"))).await;
        assert_eq!(got.status, 200, "{}", got.text());
        assert!(took < AT_ONCE, "{took:?}");
    }
    degraded(&gate, "away").await;
    // An order is answered, and not later than a statement may take.
    let order = Ask::post("/api/kill", &json!({ "agent": "new", "session": "s0" }));
    let (got, ordered) = timed(&gate, &order).await;
    assert_eq!((got.status, &got.json()["code"]), (503, &json!("not_durable")), "{}", got.text());
    assert!(ordered < Duration::from_secs(15), "{ordered:?}");

    line.held.send(false).unwrap();
    recovered(&gate).await;
    over.store(true, Ordering::SeqCst);
    let mut times = calling.await.unwrap();
    println!(
        "PostgreSQL silent: {} calls of a scope in memory took {:.1} ms at most, the first new one \
         {:.1} ms; an order was answered after {:.1} s",
        times.len(),
        percentile(&mut times, 100),
        noticed.as_secs_f64() * 1000.0,
        ordered.as_secs_f64(),
    );
    assert!(times.iter().max() < Some(&AT_ONCE), "calls have waited: {:?}", times.iter().max());
    until("written", async || gate.ask(&Ask::get("/api/sessions/new/s0")).await.status == 200)
        .await;
    assert_eq!(super::get(&gate, "/api/sessions/new/s0").await["state"], "killed");
    gate.stop().await;
    postgres.run("stop");
}

/// A key that cannot be looked up was called wrong once (401), for which clients give up for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keys_are_known_or_to_be_asked_for_again() {
    let _turn = crate::support::heavy().await;
    let postgres = Postgres::start();
    let gate = gate(&postgres.address, "open").await;
    let mut keys: Vec<String> = Vec::new();
    for role in ["admin", "agent", "operator"] {
        let ask = Ask::post(
            "/api/keys",
            &json!({ "name": role, "role": role, "agent": (role == "agent").then_some("*") }),
        );
        let got = gate.ask(&keys.first().into_iter().fold(ask, |ask, key| ask.key(key))).await;
        assert_eq!(got.status, 201, "{}", got.text());
        keys.push(got.json()["key"].as_str().unwrap().to_owned());
    }
    let by = |key: usize| call("warm", "s").with("x-deadstop-key", &keys[key]);
    assert_eq!(gate.ask(&by(1)).await.status, 200);
    postgres.run("pause");
    for _ in 0..3 {
        let got = gate.ask(&by(1)).await;
        assert_eq!(got.status, 200, "{}", got.text());
        let got = gate.ask(&by(2)).await;
        let again = got.header("retry-after").is_some();
        assert_eq!((got.status, again), (503, true), "{}", got.text());
    }
    postgres.run("resume");
    until("back", async || gate.ask(&by(2)).await.status == 200).await;
    gate.stop().await;
    postgres.run("stop");
}
