//! Targets that take no alert: calls do not notice, and the log of deliveries tells.

use std::time::Duration;

use deadstop_server::Secret;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{answer, call, get, metric, timed};
use crate::place::{TestDatabase, on_both};
use crate::support::{Ask, Gate, Reply, Upstream, until};

on_both![targets_that_take_nothing_disturb_nobody];

/// Longer than a call takes that waits for nothing.
const AT_ONCE: Duration = Duration::from_millis(700);

async fn targets_that_take_nothing_disturb_nobody(place: &TestDatabase) {
    for (allowed, expected) in [(true, ["refused", "500", "timed out"]), (false, ["public"; 3])] {
        let gate = Gate::with(json!({}), answer, |config| {
            config.database = Some(Secret::new(place.address.clone()));
            config.private_alerts = allowed;
        })
        .await;
        // A port that was free a moment ago, one that always fails, and one that never answers.
        let absent = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let broken = Upstream::start(|_| Reply::json(500, &json!({ "error": "no" }))).await;
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let targets = [absent, broken.address, silent.local_addr().unwrap()];
        let mut ids = Vec::new();
        for (number, address) in targets.iter().enumerate() {
            let url = format!("http://localhost:{}/hook", address.port());
            let body = json!({
                "name": format!("target {allowed} {number}"), "agent": null, "events": ["kill"],
                "active": true, "target": { "type": "webhook", "url": url },
            });
            let got = gate.ask(&Ask::post("/api/alerts/targets", &body)).await;
            assert_eq!(got.status, 201, "{}", got.text());
            ids.push(got.json()["id"].as_str().unwrap().to_owned());
        }
        let agent = format!("agent-{allowed}");
        for number in 0..30 {
            let session = format!("s{number}");
            let (got, took) = timed(&gate, &call(&agent, &session)).await;
            assert!(got.status == 200 && took < AT_ONCE, "{took:?}: {}", got.text());
            let order = json!({ "agent": agent, "session": session, "reason": "enough" });
            let (got, took) = timed(&gate, &Ask::post("/api/kill", &order)).await;
            assert!(got.status == 200 && took < AT_ONCE, "{took:?}: {}", got.text());
        }
        for (id, expected) in ids.iter().zip(expected) {
            if expected == "timed out" {
                // It takes the sender longer to give up than we have: it is on its way.
                let found = deliveries(&gate, id).await;
                assert_eq!(found[0]["state"], "waiting", "{found}");
                continue;
            }
            until(expected, async || {
                let found = deliveries(&gate, id).await;
                let tried = found.as_array().into_iter().flatten();
                tried.filter_map(|one| one["answer"].as_str()).any(|said| said.contains(expected))
            })
            .await;
        }
        // The server itself is well.
        assert_eq!(gate.ask(&Ask::get("/readyz")).await.status, 200);
        assert!(metric(&gate, "deadstop_degraded 0").await);
        gate.stop().await;
    }
}

async fn deliveries(gate: &Gate, target: &str) -> Value {
    get(gate, &format!("/api/alerts/deliveries?target={target}")).await["items"].clone()
}
