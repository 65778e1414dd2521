//! Short names: people type the beginning, or the end, of an id that a list shows. What fits one
//! thing is that thing; what fits several is an error that lists them. A name that a list has cut in its
//! middle may be copied as it stands there.

use deadstop_protocol::near::nearest;
use serde_json::Value;

use crate::client::{Client, encoded};
use crate::list::{Pages, Query};
use crate::ui::{self, Hinted};

/// Fewer letters than these name nothing: one more typo would name something else.
const FEWEST: usize = 3;
/// Entries of a list that are searched, the newest first.
const SEARCHED: u64 = 5000;
/// Candidates that an error lists.
const LISTED: usize = 8;

/// The known name that was meant. `None` if none fits.
pub(crate) fn pick(kind: &str, typed: &str, known: &[String]) -> anyhow::Result<Option<String>> {
    let cut = typed.split_once('…').filter(|(begin, end)| !begin.is_empty() && !end.is_empty());
    let fits: [&dyn Fn(&str) -> bool; 4] = [
        &|name| name == typed,
        &|name| typed.chars().count() >= FEWEST && name.starts_with(typed),
        &|name| typed.chars().count() >= FEWEST && name.ends_with(typed),
        &|name| cut.is_some_and(|(begin, end)| name.starts_with(begin) && name.ends_with(end)),
    ];
    for fits in fits {
        let mut found: Vec<&String> = known.iter().filter(|name| fits(name)).collect();
        found.sort();
        found.dedup();
        match found.as_slice() {
            [] => {}
            [one] => return Ok(Some((*one).clone())),
            several => return Err(ambiguous(kind, typed, several)),
        }
    }
    Ok(None)
}

fn ambiguous(kind: &str, typed: &str, several: &[&String]) -> anyhow::Error {
    let listed: Vec<String> =
        several.iter().take(LISTED).map(|name| format!("`{}`", ui::printable(name))).collect();
    let more = match several.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Hinted::error(
        format!("nothing was done: `{typed}` fits {} {kind}s", several.len()),
        format!("write more of one of {}{more}", listed.join(", ")),
    )
}

/// The names in a list of a server.
async fn names(
    client: &Client,
    path: &str,
    name: impl Fn(&Value) -> String,
) -> anyhow::Result<Vec<String>> {
    let mut pages = Pages::new(client, Query::new(path), Some(SEARCHED));
    Ok(pages.collect().await?.iter().map(name).collect())
}

/// An entry of a short list, which comes whole, by the beginning or the end of its id; what was typed
/// if none fits, so that the server says what became of it.
pub(crate) async fn listed(
    client: &Client,
    kind: &str,
    path: &str,
    typed: &str,
) -> anyhow::Result<String> {
    let all = client.get(path).await?;
    let items = all["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let known: Vec<String> = items.iter().map(|item| ui::text(&item["id"])).collect();
    Ok(pick(kind, typed, &known)?.unwrap_or_else(|| typed.to_owned()))
}

/// An incident.
pub(crate) async fn incident(client: &Client, typed: &str) -> anyhow::Result<String> {
    if client.find(&format!("/api/incidents/{}", encoded(typed))).await?.is_some() {
        return Ok(typed.to_owned());
    }
    let known = names(client, "/api/incidents", |incident| ui::text(&incident["id"])).await?;
    Ok(pick("incident", typed, &known)?.unwrap_or_else(|| typed.to_owned()))
}

/// An agent. A lookup that fails decides nothing: the order that follows says why.
pub(crate) async fn agent(client: &Client, typed: &str) -> anyhow::Result<String> {
    let Ok(None) = client.find(&format!("/api/agents/{}", encoded(typed))).await else {
        return Ok(typed.to_owned());
    };
    let known = names(client, "/api/agents", |agent| ui::text(&agent["name"])).await;
    Ok(pick("agent", typed, &known.unwrap_or_default())?.unwrap_or_else(|| typed.to_owned()))
}

/// An agent that the server must know: the error about a name that it does not know tells what is similar.
pub(crate) async fn known_agent(client: &Client, typed: &str) -> anyhow::Result<String> {
    let Ok(None) = client.find(&format!("/api/agents/{}", encoded(typed))).await else {
        return Ok(typed.to_owned());
    };
    let known = names(client, "/api/agents", |agent| ui::text(&agent["name"])).await;
    let known = known.unwrap_or_default();
    if let Some(agent) = pick("agent", typed, &known)? {
        return Ok(agent);
    }
    Err(unknown("agent", typed, known, "`deadstop agents` lists them"))
}

/// The error about a name that the server does not know.
pub(crate) fn unknown(kind: &str, typed: &str, known: Vec<String>, hint: &str) -> anyhow::Error {
    let near = nearest(typed, known);
    let near: Vec<String> = near.iter().map(|name| format!("`{}`", ui::printable(name))).collect();
    let hint = match near.is_empty() {
        true => hint.to_owned(),
        false => format!("did you mean {}?", near.join(" or ")),
    };
    Hinted::error(format!("the server knows no {kind} `{typed}`"), hint)
}

/// A session of this agent.
pub(crate) async fn session_of(
    client: &Client,
    agent: &str,
    typed: &str,
) -> anyhow::Result<Option<String>> {
    let path = format!("/api/sessions/{}/{}", encoded(agent), encoded(typed));
    let Ok(None) = client.find(&path).await else {
        return Ok(Some(typed.to_owned()));
    };
    let path = format!("/api/sessions?agent={}", encoded(agent));
    let known = names(client, &path, |session| ui::text(&session["name"])).await?;
    pick("session", typed, &known)
}

/// An agent, or AGENT/SESSION; what was typed where the server knows none that fits.
pub(crate) async fn whom(client: &Client, typed: &str) -> anyhow::Result<(String, Option<String>)> {
    match typed.split_once('/') {
        None => Ok((agent(client, typed).await?, None)),
        Some((agent, name)) => match session(client, typed).await? {
            Some((agent, name)) => Ok((agent, Some(name))),
            None => Ok((agent.to_owned(), Some(name.to_owned()))),
        },
    }
}

/// A session as AGENT/SESSION, both of which may be short, or by its own name alone. `None` if the
/// server knows none that fits.
pub(crate) async fn session(
    client: &Client,
    typed: &str,
) -> anyhow::Result<Option<(String, String)>> {
    if let Some((agent, name)) = typed.split_once('/') {
        let agent = self::agent(client, agent).await?;
        let name = session_of(client, &agent, name).await?;
        return Ok(name.map(|name| (agent, name)));
    }
    let mut pages = Pages::new(client, Query::new("/api/sessions"), Some(SEARCHED));
    let all = pages.collect().await?;
    let names: Vec<String> = all.iter().map(|session| ui::text(&session["name"])).collect();
    let Some(name) = pick("session", typed, &names)? else { return Ok(None) };
    let owners: Vec<String> = all
        .iter()
        .filter(|session| session["name"] == name.as_str())
        .map(|session| format!("{}/{name}", ui::text(&session["agent"])))
        .collect();
    let whole = match pick("session", &name, &owners)? {
        Some(whole) => whole,
        None => return Ok(None),
    };
    Ok(whole.strip_suffix(&format!("/{name}")).map(|agent| (agent.to_owned(), name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_one_is_meant_and_what_fits_several_is_listed() {
        let known = ["run-18f3a-1", "run-18f3b-2", "nightly", "night"].map(str::to_owned);
        for (typed, expected) in [
            ("run-18f3a-1", Ok(Some("run-18f3a-1"))),
            ("run-18f3b", Ok(Some("run-18f3b-2"))),
            ("b-2", Ok(Some("run-18f3b-2"))),
            ("run…a-1", Ok(Some("run-18f3a-1"))),
            ("run…c-1", Ok(None)),
            ("night", Ok(Some("night"))),
            ("ni", Ok(None)),
            ("other", Ok(None)),
            ("run-18", Err("nothing was done: `run-18` fits 2 sessions")),
        ] {
            let picked = pick("session", typed, &known).map_err(|error| error.to_string());
            let expected = expected.map(|name| name.map(str::to_owned)).map_err(str::to_owned);
            assert_eq!(picked, expected, "{typed}");
        }
    }
}
