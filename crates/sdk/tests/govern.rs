//! Sessions with a server: it has the last word, and each knows of the other's kills.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::{Duration, Instant};

use deadstop_sdk::{ModelAsk, OpenError, Session, Tokens, Usage};
use deadstop_server::{RawConfig, Server};
use serde_json::json;
use tokio::runtime::Runtime;

struct Gate {
    runtime: Runtime,
    server: Option<Server>,
    url: String,
    _folder: tempfile::TempDir,
}

impl Gate {
    fn start(policy: &str) -> Gate {
        let runtime = Runtime::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let raw: RawConfig = serde_json::from_value(json!({ "listen": "127.0.0.1:0" })).unwrap();
        let policies = Session::parse_policy(policy).unwrap();
        let mut config = raw.resolve(policies, |_| None).unwrap();
        config.data = Some(folder.path().to_owned());
        let server = runtime.block_on(async { Box::pin(Server::start(config)).await.unwrap() });
        let url = format!("http://{}", server.address());
        Gate { runtime, server: Some(server), url, _folder: folder }
    }

    fn open(&self) -> Result<Session, OpenError> {
        Session::builder("agent").session("s1").server(&self.url).open()
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

#[test]
fn a_kill_at_one_is_a_kill_at_all() {
    let gate = Gate::start("balanced");
    let (here, there) = (gate.open().unwrap(), gate.open().unwrap());
    assert_eq!(here.health().durability, "server");
    let running = there.tool("look", &json!({})).unwrap();
    here.kill("STOP");
    let health = here.health();
    assert_eq!((health.durability, health.authority_state), ("server", "killed"));
    // The other process hears of it by itself, and what it does is cut.
    assert!(running.stop().wait(Duration::from_secs(20)));
    assert!(running.done("late").unwrap_err().to_string().contains("STOP"));
    let refused = gate.open().unwrap_err().to_string();
    assert!(refused.contains("STOP"), "{refused}");
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
                    let ask = ModelAsk {
                        model: "gpt-4o",
                        input_tokens: 400,
                        max_output_tokens: Some(400),
                        ..ModelAsk::default()
                    };
                    let Ok(call) = session.model(&ask) else { return };
                    let tokens = Tokens(400);
                    let usage = Usage { input: tokens, output: tokens, ..Usage::default() };
                    let _ = call.answered(usage, "");
                });
            }
        }
    });
    // $0.005 a call: four fit into two cents, whoever makes them.
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
    eventually(|| session.health().authority_state == "unreachable");
    let health = session.health();
    assert_eq!((health.status, health.durability), ("degraded", "pending"));
    session.kill("enough");
    assert!(session.tool("look", &json!({ "n": 3 })).unwrap_err().is_killed());
    assert_eq!(session.health().durability, "pending");
}
