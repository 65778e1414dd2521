//! What a gate can do, be it one server or a fleet, and the configuration that both start from.

use std::net::SocketAddr;

use deadstop_core::RawPolicy;
use deadstop_server::{Config, RawConfig};
use serde_json::{Value, json};

use super::{Ask, Gate, Got};

impl Gate {
    pub(crate) async fn ask(&self, ask: &Ask) -> Got {
        ask.send_to(self.address).await
    }

    /// An operator's order; it must be acknowledged.
    pub(crate) async fn order(&self, what: &str, mut order: Value) -> Value {
        // Also about an agent or a session that a case has not called for yet.
        order["new"] = json!(true);
        let got = self.ask(&Ask::post(&format!("/api/{what}"), &order)).await;
        assert_eq!(got.status, 200, "{what} {order}: {}", got.text());
        got.json()
    }

    /// The project as it is now.
    pub(crate) async fn project(&self) -> Value {
        self.ask(&Ask::get("/api/status")).await.json()["project"].clone()
    }

    /// A scope as it is now; null if it is unknown.
    pub(crate) async fn scope(&self, name: &str) -> Value {
        let status = self.ask(&Ask::get("/api/status")).await.json();
        let scopes = status["scopes"].as_array().cloned().unwrap_or_default();
        scopes.into_iter().find(|scope| scope["name"] == name).unwrap_or(Value::Null)
    }

    /// What a counter stands at, on all nodes together.
    pub(crate) async fn counted(&self, name: &str) -> f64 {
        let mut sum = 0.0;
        for address in self.addresses() {
            let text = Ask::get("/metrics").send_to(address).await.text();
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
            sum += line.parse::<f64>().unwrap();
        }
        sum
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
