//! Whether an order names something that the server has heard of. A typo must not look like a kill.

use deadstop_protocol::near::nearest;
use serde_json::Value;

use super::Order;
use crate::client::{Client, encoded};
use crate::ui::{self, Hinted};

/// Refuses an order about an agent or a session that is unknown. A lookup that fails refuses
/// nothing: an operator in a hurry must not wait for it.
pub(super) async fn check(client: &Client, order: &Order) -> anyhow::Result<()> {
    let Some(agent) = order.agent.as_deref().filter(|_| !order.new) else { return Ok(()) };
    let path = format!("/api/agents/{}", encoded(agent));
    if matches!(client.find(&path).await, Ok(None)) {
        let all = client.get("/api/agents?limit=200").await.unwrap_or_default();
        return Err(unknown("agent", agent, names(&all["items"], "name")));
    }
    let Some(session) = order.session() else { return Ok(()) };
    let path = format!("/api/sessions/{}/{}", encoded(agent), encoded(session));
    if matches!(client.find(&path).await, Ok(None)) {
        let all = format!("/api/sessions?agent={}&limit=200", encoded(agent));
        let all = client.get(&all).await.unwrap_or_default();
        return Err(unknown("session", session, names(&all["items"], "session")));
    }
    Ok(())
}

fn names(items: &Value, field: &str) -> Vec<String> {
    let items = items.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| ui::text(&item[field])).collect()
}

/// The error, with the names that are nearest.
fn unknown(kind: &str, name: &str, known: Vec<String>) -> anyhow::Error {
    let near: Vec<String> =
        nearest(name, known).into_iter().map(|known| format!("`{known}`")).collect();
    let meant = match near.is_empty() {
        true => format!("`deadstop {kind}s` lists what the server knows."),
        false => format!("did you mean {}?", near.join(" or ")),
    };
    let problem = format!("nothing was done: the server knows no {kind} `{name}`");
    Hinted::error(problem, format!("{meant} Add --new to give the order in advance."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_what_was_typed() {
        let error = unknown("agent", "crwaler", vec!["crawler".into(), "writer".into()]);
        assert!(error.to_string().contains("no agent `crwaler`"), "{error}");
    }
}
