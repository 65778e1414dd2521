//! Sessions with a server: it has the last word, and each knows of the other's kills.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use deadstop_client::Client;
use deadstop_sdk::layer::GuardLayer;
use deadstop_sdk::{
    AuthorityState, Durability, ModelAsk, OpenError, Outgoing, Session, SessionStatus, Tokens,
    Usage,
};
use deadstop_server::{RawConfig, Server};
use serde_json::json;
use tokio::runtime::Runtime;

struct Gate {
    runtime: Runtime,
    server: Option<Server>,
    url: String,
    policy: String,
    folder: tempfile::TempDir,
}

impl Gate {
    fn start(policy: &str) -> Gate {
        let runtime = Runtime::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let policy = policy.to_owned();
        let mut gate = Gate { runtime, server: None, url: String::new(), policy, folder };
        gate.restart("http://127.0.0.1:0");
        gate
    }

    fn restart(&mut self, url: &str) {
        let listen = url.trim_start_matches("http://");
        let raw: RawConfig = serde_json::from_value(json!({ "listen": listen })).unwrap();
        let policies = Session::parse_policy(&self.policy).unwrap();
        let mut config = raw.resolve(policies, |_| None).unwrap();
        config.data = Some(self.folder.path().to_owned());
        let started = async { Box::pin(Server::start(config)).await.unwrap() };
        let server = self.runtime.block_on(started);
        self.url = format!("http://{}", server.address());
        self.server = Some(server);
    }

    fn open(&self) -> Result<Session, OpenError> {
        let session = Session::builder("agent").session("s1").server(&self.url);
        session.state_folder(self.folder.path().join("kills")).open()
    }

    fn order(&self, path: &str, body: &serde_json::Value) {
        let client = Client::new(&deadstop_client::Server::at(&self.url)).unwrap();
        client.post::<serde_json::Value>(path, body).unwrap();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.stop());
        }
    }
}

fn eventually(check: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !check() {
        assert!(Instant::now() < until, "it never came to that");
        std::thread::yield_now();
    }
}

/// What two processes do in turn: to each of them every result is new, and together they go over the
/// same three again.
const CHECKS: [(usize, &str); 6] =
    [(0, "alpha"), (1, "bravo"), (1, "charlie"), (0, "bravo"), (1, "alpha"), (0, "charlie")];

/// Each of two processes sees half of a loop; the server sees all of it, at a call's end.
#[test]
fn what_the_server_says_about_an_ended_call_reaches_the_model_with_the_next() {
    let gate = Gate::start("[loop]\nsteer_at = 3\nblock_at = \"off\"\nend_at = \"off\"\n");
    let (here, there) = (gate.open().unwrap(), gate.open().unwrap());
    let heard = Arc::new(Mutex::new(Vec::new()));
    here.on_steer({
        let heard = Arc::clone(&heard);
        move |why| heard.lock().unwrap().push(why.advice.clone().unwrap_or_default())
    });
    let check = |session: &Session, name: &str| {
        let call = session.tool("run_check", &json!({ "name": name })).unwrap();
        assert!(call.warnings().is_empty(), "nothing is said before it runs");
        let settled = call.done(&format!("the {name} check is red")).unwrap();
        session.flush(Duration::from_secs(20));
        settled.advice
    };
    for (process, name) in CHECKS {
        assert_eq!(check([&here, &there][process], name), None, "{name}");
    }
    eventually(|| heard.lock().unwrap().len() == 1);
    // Another tool carries it, and only once.
    let settled = here.tool("read_log", &json!({})).unwrap().done("a log").unwrap();
    assert_eq!(settled.advice.as_ref(), heard.lock().unwrap().first());
    assert!(settled.told("a log").contains("[Deadstop] "), "{settled:?}");
    let settled = here.tool("read_plan", &json!({})).unwrap().done("a plan").unwrap();
    assert_eq!(settled.advice, None);
}

/// The same, with a guarded client: the advice stands in the request that follows.
#[test]
fn what_the_server_says_about_an_ended_call_is_in_the_next_request() {
    let gate = Gate::start("[loop]\nsteer_at = 3\nblock_at = \"off\"\nend_at = \"off\"\n");
    let (here, there) = (gate.open().unwrap(), gate.open().unwrap());
    for (process, name) in CHECKS {
        let session = [&here, &there][process];
        let call = session.tool("run_check", &json!({ "name": name })).unwrap();
        assert_eq!(call.done(&format!("the {name} check is red")).unwrap().advice, None, "{name}");
        session.flush(Duration::from_secs(20));
    }
    let body = json!({ "model": "gpt-4o", "messages": [{ "role": "user", "content": "go on" }] });
    let body = body.to_string();
    let outgoing = Outgoing::new("api.openai.com", "/v1/chat/completions", body.as_bytes());
    let exchange = here.root().request(&outgoing).unwrap();
    let sent = String::from_utf8_lossy(exchange.body().unwrap_or_default()).into_owned();
    assert!(sent.contains("[Deadstop] "), "{sent}");
}

/// Two processes of one session: what one forgot, the server lets both look up again.
#[test]
fn a_compaction_here_is_known_at_the_server() {
    let gate = Gate::start("[loop]\nsteer_at = \"off\"\nblock_at = 3\nend_at = \"off\"\n");
    let (here, there) = (gate.open().unwrap(), gate.open().unwrap());
    let read = |session: &Session| {
        let done = session.tool("read_file", &json!({ "path": "a" }))?.done("text").map(drop);
        session.flush(Duration::from_secs(20));
        done
    };
    read(&here).unwrap();
    read(&there).unwrap();
    assert!(read(&here).is_err(), "the third one, as the server counts");
    here.root().compacted();
    read(&here).unwrap();
    read(&there).unwrap();
    assert!(read(&here).is_err());
}

#[test]
fn a_kill_at_one_is_a_kill_at_all() {
    let gate = Gate::start("balanced");
    let (here, there) = (gate.open().unwrap(), gate.open().unwrap());
    assert_eq!(here.health().durability, Durability::Server);
    let running = there.tool("look", &json!({})).unwrap();
    here.kill("STOP");
    here.flush(Duration::from_secs(20));
    let health = here.health();
    assert_eq!(
        (health.durability, health.authority_state),
        (Durability::Server, AuthorityState::Killed)
    );
    // The other process hears of it by itself, and what it does is cut.
    assert!(running.stop_signal().wait(Duration::from_secs(20)));
    assert!(running.done("late").unwrap_err().to_string().contains("STOP"));
    let refused = gate.open().unwrap_err();
    assert!(
        matches!(refused, OpenError::Killed(_)) && refused.to_string().contains("STOP"),
        "{refused}"
    );
}

#[test]
fn one_budget_over_two_processes() {
    let policy =
        "[budget]\nmax_cost_usd = 0.02\nreservation = \"ceiling\"\n[strikes]\nenabled = false\n";
    let gate = Gate::start(policy);
    let sessions = [gate.open().unwrap(), gate.open().unwrap()];
    std::thread::scope(|threads| {
        for session in &sessions {
            for _ in 0..10 {
                threads.spawn(|| {
                    let ask = ModelAsk::new("gpt-4o").input_tokens(400).max_output_tokens(400);
                    let Ok(call) = session.model(&ask) else { return };
                    let tokens = Tokens(400);
                    let usage = Usage { input: tokens, output: tokens, ..Usage::default() };
                    let _ = call.answered(usage, "");
                });
            }
        }
    });
    // $0.005 a call: four fit into two cents, over both processes.
    let cost = |session: &Session| session.state().figures.cost_usd;
    let spent: f64 = sessions.iter().map(cost).sum();
    assert!(spent > 0.0 && spent <= 0.020_000_001, "{spent}");
}

#[test]
fn a_server_that_goes_away() {
    let mut gate = Gate::start("balanced");
    let session = gate.open().unwrap();
    session.tool("look", &json!({ "n": 1 })).unwrap().done("1").unwrap();
    session.flush(Duration::from_secs(20));
    let server = gate.server.take().unwrap();
    gate.runtime.block_on(server.stop());
    session.tool("look", &json!({ "n": 2 })).unwrap().done("2").unwrap();
    eventually(|| session.health().authority_state == AuthorityState::Unreachable);
    let health = session.health();
    assert_eq!((health.status, health.durability), (SessionStatus::Degraded, Durability::Pending));
    session.kill("enough");
    assert!(session.tool("look", &json!({ "n": 3 })).unwrap_err().is_killed());
    assert_eq!(session.health().durability, Durability::Pending);
}

/// A server that takes connections and never answers.
struct Hung(std::net::TcpListener);

impl Hung {
    fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().unwrap())
    }

    /// Waits for a request.
    fn asked(&self) -> std::net::TcpStream {
        use std::io::Read;
        let (mut stream, _) = self.0.accept().unwrap();
        stream.read_exact(&mut [0; 16]).unwrap();
        stream
    }
}

/// A session whose server answers to the opening and to nothing else.
fn hung() -> (Session, Hung, tempfile::TempDir) {
    use std::io::Write;
    let server = Hung(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let folder = tempfile::tempdir().unwrap();
    let opening = std::thread::spawn({
        let builder = Session::builder("agent").session("s1").server(server.url());
        let builder = builder.state_folder(folder.path());
        move || builder.open().unwrap()
    });
    let mut stream = server.asked();
    let body = json!({ "agent": "agent", "session": "s1", "policy": {} }).to_string();
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all((head + &body).as_bytes()).unwrap();
    drop(stream);
    let session = opening.join().unwrap();
    // The listener waits from now on.
    let listener = server.asked();
    std::mem::forget(listener);
    (session, server, folder)
}

#[test]
fn a_kill_ends_a_call_that_waits_for_a_hung_server() {
    let (session, server, folder) = hung();
    let waiting = std::thread::spawn({
        let session = session.clone();
        move || session.tool("look", &json!({}))
    });
    let _asked = server.asked();
    let began = Instant::now();
    session.kill("STOP");
    assert!(began.elapsed() < Duration::from_secs(1), "a kill does not wait for the server");
    let refused = waiting.join().unwrap().unwrap_err();
    assert!(refused.is_killed() && refused.to_string().contains("STOP"), "{refused}");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(session.health().durability, Durability::Pending);
    // The server has not heard of it: a file keeps it.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_kill_that_the_server_did_not_hear_of_outlives_the_process() {
    let mut gate = Gate::start("balanced");
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str, url: &str| {
        let session = Session::builder("agent").session(name);
        session.server(url).state_folder(folder.path()).open()
    };
    let session = open("s1", &gate.url).unwrap();
    let address = gate.url.clone();
    let server = gate.server.take().unwrap();
    gate.runtime.block_on(server.stop());
    session.kill("STOP");
    drop(session);
    // Another process, while the server is still away: the session is dead.
    let refused = open("s1", &address).unwrap_err();
    assert!(matches!(&refused, OpenError::Killed(_)), "{refused}");
    assert!(refused.to_string().contains("STOP"), "{refused}");
    // The server is back, and hears of it from the next process, also if that opens another session.
    gate.restart(&address);
    let other = open("s2", &address).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    other.tool("look", &json!({})).unwrap().done("seen").unwrap();
    assert!(matches!(open("s1", &address).unwrap_err(), OpenError::Killed(_)));
}

#[test]
fn an_agent_that_is_killed_and_cleared_goes_on() {
    let gate = Gate::start("balanced");
    let session = gate.open().unwrap();
    session.tool("look", &json!({ "n": 1 })).unwrap().done("1").unwrap();
    let running = session.tool("look", &json!({ "n": 2 })).unwrap();
    gate.order("/api/kill", &json!({ "agent": "agent", "reason": "STOP" }));
    eventually(|| session.is_killed());
    let refused = running.done("2").unwrap_err();
    assert!(refused.is_killed() && refused.to_string().contains("STOP"), "{refused}");
    assert!(session.tool("look", &json!({ "n": 3 })).unwrap_err().is_killed());
    gate.order("/api/clear", &json!({ "agent": "agent", "reason": "mended" }));
    eventually(|| !session.is_killed());
    assert_eq!(session.health().authority_state, AuthorityState::Active);
    let running = session.tool("look", &json!({ "n": 4 })).unwrap();
    assert!(!running.stop_signal().is_stopped());
    running.done("4").unwrap();
    // A session that was killed itself stays dead.
    session.kill("enough");
    session.flush(Duration::from_secs(20));
    gate.order("/api/kill", &json!({ "agent": "agent", "reason": "STOP" }));
    gate.order("/api/clear", &json!({ "agent": "agent", "reason": "mended" }));
    assert!(session.tool("look", &json!({ "n": 5 })).unwrap_err().is_killed());
    assert!(session.is_killed());
}

#[test]
fn the_layer_does_not_block_the_executor() {
    use tower::{Layer, ServiceExt, service_fn};

    let (session, server, _folder) = hung();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = service_fn(async |_: http::Request<http_body_util::Full<bytes::Bytes>>| {
            let body = http_body_util::Full::new(bytes::Bytes::from("{}"));
            Ok::<_, std::io::Error>(http::Response::new(body))
        });
        let client = GuardLayer::new(session.root()).layer(client);
        let body = r#"{"model":"gpt-4o","messages":[{"role":"user","content":"Hello"}]}"#;
        let request = http::Request::post("https://api.openai.com/v1/chat/completions")
            .body(http_body_util::Full::new(bytes::Bytes::from(body)))
            .unwrap();
        let asking = tokio::spawn(client.oneshot(request));
        // The only thread of this runtime goes on while the server is asked, and kills.
        let asked = tokio::task::spawn_blocking(move || (server.asked(), server));
        let _asked = asked.await.unwrap();
        assert!(!asking.is_finished());
        session.kill("STOP");
        let refused = asking.await.unwrap().unwrap_err();
        assert!(refused.to_string().contains("STOP"), "{refused}");
    });
}

#[test]
fn a_kill_at_the_server_tells_its_cause() {
    let gate = Gate::start("[steps]\nmax_steps = 2\n");
    let session = gate.open().unwrap();
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    session.on_tripped({
        let told = std::sync::Arc::clone(&told);
        move |why| told.lock().unwrap().push(why.reason().to_owned())
    });
    // Another process uses the limit up, so that only the server knows.
    let other = gate.open().unwrap();
    for n in 0..2 {
        other.tool("look", &json!({ "n": n })).unwrap().done("seen").unwrap();
    }
    other.flush(Duration::from_secs(20));
    for _ in 0..3 {
        let refused = session.tool("look", &json!({ "n": 9 })).unwrap_err();
        assert_eq!(refused.why().reason(), "max_steps", "{refused}");
    }
    assert_eq!(*told.lock().unwrap(), ["max_steps"]);
}
