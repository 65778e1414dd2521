//! What an order is about: something that the server has heard of, by its name or the beginning of
//! it. A typo must not look like a stop.

use deadstop_protocol::near::nearest;
use serde_json::Value;

use super::Order;
use crate::client::{Client, encoded};
use crate::short;
use crate::ui::{self, Hinted};

/// An agent and a session, as far as an order names them.
pub(super) type Whom = (Option<String>, Option<String>);

/// The agent and the session that were meant. An order about one that is unknown is refused. A
/// lookup that fails refuses nothing: an operator in a hurry must not wait for it.
pub(super) async fn meant(client: &Client, order: &Order) -> anyhow::Result<Whom> {
    let session = order.session().map(str::to_owned);
    let Some(typed) = order.agent.as_deref().filter(|_| !order.new) else {
        return Ok((order.agent.clone(), session));
    };
    let path = format!("/api/agents/{}", encoded(typed));
    let mut agent = typed.to_owned();
    let found = client.find(&path).await;
    // A removed agent is one that an operator does not expect to meet again.
    let unlisted =
        |found: &Option<Value>| found.as_ref().is_none_or(|agent| agent["removed_ms"].is_u64());
    if found.as_ref().is_ok_and(unlisted) {
        let all = client.get("/api/agents?limit=1000").await.unwrap_or_default();
        let known = names(&all["items"], "name");
        let picked = short::pick("agent", typed, &known)?;
        agent = picked.ok_or_else(|| unknown("agent", typed, known))?;
    }
    let Some(typed) = session else { return Ok((Some(agent), None)) };
    let path = format!("/api/sessions/{}/{}", encoded(&agent), encoded(&typed));
    if matches!(client.find(&path).await, Ok(None)) {
        let all = format!("/api/sessions?agent={}&limit=1000", encoded(&agent));
        let all = client.get(&all).await.unwrap_or_default();
        let known = names(&all["items"], "name");
        let picked = short::pick("session", &typed, &known)?;
        let session = picked.ok_or_else(|| unknown("session", &typed, known))?;
        return Ok((Some(agent), Some(session)));
    }
    Ok((Some(agent), Some(typed)))
}

/// The error about the name of a session that the server does not know: what may have been meant, an agent
/// or a session of a similar name. `None` if nothing is similar.
pub(super) async fn instead(client: &Client, what: &str, typed: &str) -> Option<anyhow::Error> {
    let order = if what == "kill" { "stop" } else { what };
    let agents = client.get("/api/agents?limit=1000").await.ok()?;
    let agents = names(&agents["items"], "name");
    if agents.iter().any(|agent| agent == typed) {
        let problem =
            format!("nothing was done: `{typed}` is an agent, and no session has that name");
        return Some(Hinted::error(problem, format!("deadstop {order} --agent {typed}")));
    }
    let problem = format!("nothing was done: the server knows no session `{typed}`");
    if let Some(agent) = nearest(typed, agents).first() {
        let hint = format!("did you mean the agent? deadstop {order} --agent {agent}");
        return Some(Hinted::error(problem, hint));
    }
    let sessions = client.get("/api/sessions?limit=1000").await.ok()?;
    let near = nearest(typed, names(&sessions["items"], "name"));
    let near: Vec<String> = near.iter().map(|name| format!("`{}`", ui::printable(name))).collect();
    let hint = format!("did you mean {}?", near.join(" or "));
    (!near.is_empty()).then(|| Hinted::error(problem, hint))
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
