//! What an order is about: something that the server has heard of, by its name or the beginning of
//! it. A typo must not look like a stop.

use serde_json::Value;

use super::Order;
use crate::client::{Client, encoded};
use crate::short;
use crate::ui::{self, Hinted};

/// How many letters a name that is suggested may differ in.
const NEAR: usize = 3;

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
    if matches!(client.find(&path).await, Ok(None)) {
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
