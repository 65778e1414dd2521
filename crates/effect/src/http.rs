//! HTTP requests made through a tool: the method says what is meant, the address what it is done to.

use deadstop_core::Effect;
use serde_json::{Map, Value};

use super::Effects;

/// A call with a method and an address, read as a request.
pub(super) fn of(arguments: &Map<String, Value>) -> Option<Effects> {
    // Some tools take the method among other options, as `fetch` does.
    let inner = ["options", "init", "request", "config"]
        .iter()
        .find_map(|key| arguments.get(*key)?.as_object());
    let method = ["method", "http_method", "verb"]
        .iter()
        .find_map(|key| arguments.get(*key).or_else(|| inner?.get(*key)))?
        .as_str()?;
    let keys = ["url", "uri", "path", "endpoint"];
    let named = |key: &&str| arguments.get(*key).or_else(|| inner?.get(*key))?.as_str();
    let address = keys.iter().find_map(named)?;
    let mut effects = Effects::only(Effect::Changes);
    if method.eq_ignore_ascii_case("delete") {
        effects.destroy_by_name("DELETE", &place(address));
    } else if ["get", "head", "options"].iter().any(|m| m.eq_ignore_ascii_case(method)) {
        effects.effect = Effect::Reads;
    }
    Some(effects)
}

/// An address without its query string, fragment and credentials: none of them belongs in a log.
pub(super) fn place(address: &str) -> String {
    let address = address.split(['?', '#']).next().unwrap_or(address);
    let Some((scheme, rest)) = address.split_once("://") else {
        return address.to_owned();
    };
    let host_end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(host_end);
    let host = authority.rsplit('@').next().unwrap_or(authority);
    format!("{scheme}://{host}{path}")
}

/// Whether an address is on this machine, where developers try their own servers out.
pub(super) fn is_local(address: &str) -> bool {
    let place = place(address);
    let rest = place.split_once("://").map_or(place.as_str(), |(_, rest)| rest);
    ["localhost", "127.0.0.1", "0.0.0.0", "[::1]"].iter().any(|host| {
        rest.strip_prefix(host).is_some_and(|more| more.is_empty() || more.starts_with([':', '/']))
    })
}
