//! Steps that cases of a fleet have in common.

use serde_json::{Value, json};

use crate::support::{Ask, Gate, Reply, Said, Seen, Speech, until};

/// A policy with the pattern guards switched off. On a busy machine Redis may be late, and then
/// calls are refused.
pub(crate) fn relaxed() -> Value {
    let off = json!({ "enabled": false });
    json!({
        "fail_mode": "closed", "loop": off, "text_loop": off, "similarity": off, "strikes": off,
    })
}

pub(crate) fn hello(_: &Seen) -> Reply {
    Speech::Chat.reply(false, &Said::text("Hello"))
}

pub(crate) fn call(agent: &str, session: &str) -> Ask {
    Speech::Chat.says(false, "Go on").by(agent, session)
}

/// Every node says the same to an agent, as soon as no store is late.
pub(crate) async fn everywhere(gate: &Gate, agent: &str, status: u16) {
    for node in 0..gate.nodes.len() {
        let ask = call(agent, "s");
        until(&format!("{status} for {agent} at node {node}"), async || {
            let got = gate.ask_at(node, &ask).await;
            assert!([status, 503].contains(&got.status), "node {node}: {}", got.text());
            got.status == status
        })
        .await;
    }
}
