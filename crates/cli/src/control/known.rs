//! Whether an order names something that the server has heard of. A typo must not look like a kill.

use serde_json::Value;

use super::Order;
use crate::client::{Client, encoded};
use crate::ui::{self, Hinted};

/// How many letters a name that is suggested may differ in.
const NEAR: usize = 3;

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
    let mut near: Vec<(usize, String)> = known
        .into_iter()
        .map(|known| (distance(name, &known), known))
        .filter(|(distance, _)| *distance <= NEAR)
        .collect();
    near.sort();
    near.truncate(3);
    let near: Vec<String> = near.into_iter().map(|(_, known)| format!("`{known}`")).collect();
    let meant = match near.is_empty() {
        true => format!("`deadstop {kind}s` lists what the server knows."),
        false => format!("did you mean {}?", near.join(" or ")),
    };
    let problem = format!("nothing was done: the server knows no {kind} `{name}`");
    Hinted::error(problem, format!("{meant} Add --new to give the order in advance."))
}

/// How many letters must be changed, added or taken away, or swapped with the next one.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<usize>>()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let change = rows[i][j] + usize::from(a != b);
            let mut least = change.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_near_by_their_letters() {
        for (one, other, expected) in
            [("crwaler", "crawler", 1), ("a", "a", 0), ("", "ab", 2), ("bot", "boat", 1)]
        {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
        let error = unknown("agent", "crwaler", vec!["crawler".into(), "writer".into()]);
        assert!(error.to_string().contains("no agent `crwaler`"), "{error}");
    }
}
