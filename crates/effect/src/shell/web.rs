//! Requests that a command line sends: which of them delete something, and which fetch a secret.

use deadstop_core::{Effect, HarmKind, Reach, Recovery};

use super::super::name::{Deed, Words};
use super::super::{graphql, http, remote, sql, target};
use super::command::value_of;
use super::{Walk, reads};

/// Where databases, search engines, brokers and their like listen. What a developer's own server deletes comes back
/// with its next start; what these delete does not.
const STORES: &[&str] = &[
    "9200",  // Elasticsearch, OpenSearch
    "7700",  // Meilisearch
    "8108",  // Typesense
    "8983",  // Solr
    "6333",  // Qdrant
    "19530", // Milvus
    "8086",  // InfluxDB
    "8123",  // ClickHouse
    "5984",  // CouchDB
    "7474",  // Neo4j
    "8091",  // Couchbase
    "15672", // RabbitMQ
    "2379",  // etcd
    "8500",  // Consul
    "8200",  // Vault
    "4646",  // Nomad
    "9090",  // Prometheus
    "3100",  // Loki
    "8001",  // Kong
    "8444",  // Kong
    "2375",  // Docker
];

/// Bodies of one request that are read.
const MAX_BODIES: usize = 4;

impl Walk<'_> {
    /// `curl`, `wget` and the like.
    pub(super) fn request(&mut self, name: &str, arguments: &[String]) {
        let method = value_of(arguments, &["-X", "--request", "--method"])
            .or_else(|| arguments.iter().find_map(|word| short_method(word)))
            .or_else(|| {
                let at = arguments.iter().position(|word| {
                    word.starts_with('-') && !word.starts_with("--") && word.ends_with('X')
                })?;
                arguments.get(at + 1).cloned()
            })
            .or_else(|| {
                let first = arguments.iter().find(|word| !word.starts_with('-'));
                first.filter(|_| matches!(name, "http" | "https" | "xh")).cloned()
            })
            .unwrap_or_default();
        let overridden = arguments.iter().any(|word| {
            let word = word.to_ascii_lowercase();
            word.starts_with("x-http-method") && word.trim_end().ends_with("delete")
        });
        let by_query = arguments.iter().any(|word| word.contains("/_delete_by_query"));
        if let Some(host) = arguments.iter().find(|word| {
            word.contains("169.254.169.254") || word.contains("metadata.google.internal")
        }) {
            let kind = HarmKind::ReadsSecret;
            self.effects.harm(kind, name, host, Reach::Outside, Recovery::None);
        }
        self.sends_orders(name, &method, arguments);
        if let Some(url) = tells_to_delete(&method, arguments).filter(|_| !by_query) {
            let (verb, place) = (format!("{name} {method}"), http::place(&url));
            let reach = remote(&[&place]);
            self.effects.harm(
                HarmKind::Destroys,
                verb.trim_end(),
                &place,
                reach,
                Recovery::Elsewhere,
            );
            return;
        }
        if !method.eq_ignore_ascii_case("delete") && !overridden && !by_query {
            self.effects.raise(reads::request(name, &method, arguments));
            return;
        }
        let url = arguments.iter().find(|word| word.contains("://")).or_else(|| {
            arguments
                .iter()
                .rev()
                .find(|word| !word.starts_with('-') && word.contains(['.', '/', ':']))
        });
        let url = url.map_or("", String::as_str);
        // Of all of an index or a store, as search engines name it, even a local one is not spared.
        let all = url.ends_with("/_all") || url.ends_with("/*") || by_query;
        if http::is_local(url) && !all {
            self.effects.raise(Effect::Changes);
            if is_store(url) {
                self.empties_store(name, url);
            }
        } else {
            self.effects.destroy("DELETE", &http::place(url));
        }
    }
}

impl Walk<'_> {
    /// A database of this machine loses something: asked about, and not counted, since it is a developer's own.
    fn empties_store(&mut self, name: &str, url: &str) {
        let place = http::place(url);
        let (kind, reach) = (HarmKind::Destroys, Reach::Directory);
        self.effects.harm(kind, name, &place, reach, Recovery::Elsewhere);
        self.stops(name, &place, Reach::System, Recovery::Elsewhere);
    }

    /// What the body of a request, or its query, tells a service: GraphQL, SQL, or a deletion in a service's own words.
    fn sends_orders(&mut self, name: &str, method: &str, arguments: &[String]) {
        if method.eq_ignore_ascii_case("get") {
            return;
        }
        let Some(url) = arguments.iter().find(|word| is_address(word)) else { return };
        // A developer's own server is tried out with requests such as these.
        if http::is_local(url) {
            return;
        }
        for body in bodies(arguments) {
            let object = serde_json::from_str::<serde_json::Value>(body).ok();
            let keys = ["query", "mutation", "sql", "statement", "stmt", "q"];
            let inner = object.as_ref().and_then(|object| {
                keys.iter().find_map(|key| object.get(*key)?.as_str().map(str::to_owned))
            });
            let text = inner.as_deref().unwrap_or(body);
            let found = graphql::of(text).or_else(|| sql::of(text));
            for harm in found.into_iter().flat_map(|found| found.harms) {
                let recovery = harm.recovery.min(Recovery::Elsewhere);
                self.effects.harm(harm.kind, &harm.verb, &harm.target, harm.reach, recovery);
            }
            let bare: String = body.chars().filter(|c| !c.is_whitespace()).take(4096).collect();
            let bulk = url.contains("_bulk") && bare.contains("{\"delete\":");
            if bulk || bare.contains("<delete>") {
                let what = target::clip(body);
                self.effects.harm(
                    HarmKind::Destroys,
                    &format!("{name} delete"),
                    &what,
                    remote(&[url]),
                    Recovery::Elsewhere,
                );
            }
        }
        let query = url.split_once('?').map_or("", |(_, query)| query);
        let stated = query
            .split('&')
            .find_map(|part| part.strip_prefix("query=").or_else(|| part.strip_prefix("q=")));
        if let Some(found) = stated.and_then(|text| sql::of(&spaced(text))) {
            self.effects.absorb(found);
        }
    }
}

/// A text of a query with its spaces back.
fn spaced(text: &str) -> String {
    text.replace('+', " ").replace("%20", " ")
}

/// What a request sends: the values of `-d`, `--data-raw` and the like.
fn bodies(arguments: &[String]) -> Vec<&str> {
    const SENDS: &[&str] = &[
        "-d",
        "--data",
        "--data-raw",
        "--data-binary",
        "--data-ascii",
        "--json",
        "--raw",
        "--data-urlencode",
        "--post-data",
        "--body-data",
    ];
    let mut found = Vec::new();
    for (at, word) in arguments.iter().enumerate() {
        let (name, joined) = word.split_once('=').unwrap_or((word, ""));
        let value = match SENDS.contains(&word.as_str()) {
            true => arguments.get(at + 1).map(String::as_str),
            false if SENDS.contains(&name) && name.starts_with("--") => Some(joined),
            false => word.strip_prefix("-d").filter(|rest| !rest.is_empty()),
        };
        found.extend(value.filter(|body| body.len() <= 16 * 1024));
    }
    found.truncate(MAX_BODIES);
    found
}

fn is_address(word: &str) -> bool {
    word.contains("://")
        || (!word.starts_with(['-', '{']) && (http::is_local(word) || word.starts_with(':')))
}

/// Whether a local address is that of a database, a search engine or a broker.
fn is_store(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split(['/', '?']).next().unwrap_or(rest);
    host.rsplit_once(':').is_some_and(|(_, port)| STORES.contains(&port))
}

/// The address of a request that tells a service to delete something, by its path or by an action that is sent:
/// `POST /api/users/purge`.
fn tells_to_delete(method: &str, arguments: &[String]) -> Option<String> {
    let sends = arguments
        .iter()
        .any(|word| word.starts_with("-d") || word.starts_with("--data") || word == "--json");
    let changes = ["post", "put", "patch"].iter().any(|m| m.eq_ignore_ascii_case(method));
    let unnamed = sends && method.is_empty();
    if !changes && !unnamed {
        return None;
    }
    let url = arguments.iter().find(|word| is_address(word))?;
    if http::is_local(url) && !is_store(url) {
        return None;
    }
    let path = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    let path = path.split(['?', '#']).next()?;
    let mut segments = path.split('/').skip(1).take(12).collect::<Vec<_>>();
    let ends = segments.split_off(segments.len().saturating_sub(2));
    // `POST …/delete` is how many services delete one thing.
    let one = ["delete", "remove", "revoke", "uninstall", "rm", "del"];
    let all = |part: &&str| {
        let words = Words::of(part);
        let upsets = || words.deed() == Some(Deed::Upsets) && words.names_a_store();
        part.len() <= 48
            && !one.contains(part)
            && (words.deed() == Some(Deed::Destroys)
                || upsets()
                || *part == "_close"
                || (is_store(url) && words.ends_all()))
    };
    let by_path = ends.iter().any(all);
    let action = |word: &String| {
        let bare: String = word.chars().filter(|c| !c.is_whitespace()).take(2048).collect();
        ["delete", "destroy", "drop", "purge", "wipe", "terminate"].iter().any(|verb| {
            bare.contains(&format!("\"action\":\"{verb}\""))
                || bare.contains(&format!("action={verb}"))
        })
    };
    (by_path || arguments.iter().any(action)).then(|| url.clone())
}

/// The method in `-XDELETE` or `-sXDELETE`.
fn short_method(word: &str) -> Option<String> {
    let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
    let (flags, method) = letters.split_once('X')?;
    let is_method = !method.is_empty() && method.bytes().all(|b| b.is_ascii_alphabetic());
    (is_method && flags.bytes().all(|b| b.is_ascii_alphabetic())).then(|| method.to_owned())
}
