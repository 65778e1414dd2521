//! A server with a scripted upstream behind every provider.

use std::net::SocketAddr;

use deadstop_core::RawPolicy;
use deadstop_server::{Config, RawConfig, Server};
use serde_json::{Value, json};

use super::{Ask, Got, Reply, Seen, Upstream};

/// The gateway between both ends.
pub(crate) struct Gate {
    server: Server,
    pub(crate) address: SocketAddr,
    pub(crate) upstream: Upstream,
    pub(crate) folder: tempfile::TempDir,
}

impl Gate {
    /// Starts one under a policy (as JSON), with everything else at its default.
    pub(crate) async fn start(
        policy: Value,
        answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Gate {
        Gate::with(policy, answer, |_| {}).await
    }

    /// Starts one with a changed configuration.
    pub(crate) async fn with(
        policy: Value,
        answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
        change: impl FnOnce(&mut Config),
    ) -> Gate {
        let upstream = Upstream::start(answer).await;
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(upstream.address, policy);
        config.data = Some(folder.path().to_owned());
        change(&mut config);
        let server = Box::pin(Server::start(config)).await.unwrap();
        Gate { address: server.address(), server, upstream, folder }
    }

    /// Stops it gracefully, and starts another one on what it has left.
    pub(crate) async fn restart(self, policy: Value) -> Gate {
        self.server.stop().await;
        let mut config = config(self.upstream.address, policy);
        config.data = Some(self.folder.path().to_owned());
        let server = Box::pin(Server::start(config)).await.unwrap();
        Gate { address: server.address(), server, ..self }
    }

    /// The same on a database of its own.
    pub(crate) async fn restart_on(self, place: &crate::place::Place) -> Gate {
        self.server.stop().await;
        let mut config = config(self.upstream.address, json!({}));
        config.database = Some(deadstop_server::Secret::new(place.address.clone()));
        let server = Box::pin(Server::start(config)).await.unwrap();
        Gate { address: server.address(), server, ..self }
    }

    /// Stops it gracefully.
    pub(crate) async fn stop(self) -> (Upstream, tempfile::TempDir) {
        self.server.stop().await;
        (self.upstream, self.folder)
    }

    pub(crate) async fn ask(&self, ask: &Ask) -> Got {
        ask.send_to(self.address).await
    }

    /// An operator's order; it must be acknowledged.
    pub(crate) async fn order(&self, what: &str, order: Value) -> Value {
        let got = self.ask(&Ask::post(&format!("/api/{what}"), &order)).await;
        assert_eq!(got.status, 200, "{what} {order}: {}", got.text());
        got.json()
    }

    /// The project as it is now.
    pub(crate) async fn project(&self) -> Value {
        self.ask(&Ask::get("/api/status")).await.json()["project"].clone()
    }

    /// A scope as it is now; null if nobody has heard of it.
    pub(crate) async fn scope(&self, name: &str) -> Value {
        let status = self.ask(&Ask::get("/api/status")).await.json();
        let scopes = status["scopes"].as_array().cloned().unwrap_or_default();
        scopes.into_iter().find(|scope| scope["name"] == name).unwrap_or(Value::Null)
    }

    /// The newest incident; null if there is none.
    pub(crate) async fn incident(&self) -> Value {
        self.ask(&Ask::get("/api/incidents?limit=1")).await.json()["items"][0].clone()
    }
}

/// A configuration in which every provider is the same upstream.
pub(crate) fn config(upstream: SocketAddr, policy: Value) -> Config {
    let policy: RawPolicy = serde_json::from_value(policy).unwrap();
    let base_url = format!("http://{upstream}");
    let raw: RawConfig = serde_json::from_value(json!({
        "listen": "127.0.0.1:0",
        "providers": {
            "openai": { "base_url": base_url },
            "anthropic": { "base_url": base_url },
            "gemini": { "base_url": base_url },
            "own": { "base_url": format!("{base_url}/below/here") },
        },
    }))
    .unwrap();
    raw.resolve(policy.resolve().unwrap(), |_| None).unwrap()
}
