//! What a server is told: where to listen, where to keep its file, which providers there are.
//!
//! Upstreams come from here only, never from a request.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use deadstop_alerts::Way;
use deadstop_core::PolicySet;
use deadstop_protocol::llm::Api;
use deadstop_protocol::prices::Terms;
use serde::Deserialize;
use thiserror::Error;

use crate::anchor::Anchor;
use crate::export::{RawTelemetry, Telemetry};
use crate::operator::OperatorToken;
use crate::sso::{RawSso, Sso};
use crate::ways::Ways;

/// The port that everything is on.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:4141";

/// A valid configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where to keep the database; `None` keeps nothing.
    pub data: Option<PathBuf>,
    /// A database elsewhere, in place of the file in `data`.
    pub database: Option<Secret>,
    /// Where the live state is that many nodes share; `None` for one node alone.
    pub redis: Option<Secret>,
    /// Whether a proxy in front ends TLS: the page's cookies are for HTTPS only then.
    pub behind_proxy: bool,
    /// Whether alerts may go to addresses of the local network.
    pub private_alerts: bool,
    /// The policies in force.
    pub policies: PolicySet,
    /// Providers by the name they have in URLs.
    pub providers: BTreeMap<String, Provider>,
    /// MCP servers by the name they have in URLs.
    pub mcp: BTreeMap<String, McpServer>,
    /// How everything else outside is reached: alerts' targets, collectors, the OpenID provider.
    pub ways: Ways,
    /// What an agent is told when it was killed.
    pub on_kill: OnKill,
    /// Calls that may be in flight; more are shed.
    pub max_in_flight: usize,
    /// Largest request body.
    pub max_body: usize,
    /// How long a request's body may take to arrive.
    pub body_timeout: Duration,
    /// How long a client may read next to nothing of what it is sent.
    pub client_timeout: Duration,
    /// How long a paused call is held.
    pub hold: Duration,
    /// How long an upstream may take until its first byte.
    pub upstream_timeout: Duration,
    /// How long calls in flight may go on when the server shuts down; then streams end with an error.
    pub shutdown_grace: Duration,
    /// Who a call belongs to when it names no agent.
    pub default_agent: String,
    /// Who a call belongs to when it names no session: for a private gateway, its one run.
    pub default_session: Option<String>,
    /// Where the heads of the audit are noted outside the database.
    pub anchor: Option<Arc<Anchor>>,
    /// How long agents that were running may call without a key after the first one was made.
    pub key_grace: Duration,
    /// What an order that loosens control must bring while there are no keys. `None` takes such
    /// orders from every process of this machine.
    pub operator: Option<OperatorToken>,
    /// Where calls are exported to, as spans.
    pub telemetry: Option<Telemetry>,
    /// How people sign in to the page without a key.
    pub sso: Option<Sso>,
}

/// Where calls of a provider go.
#[derive(Debug, Clone, PartialEq)]
pub struct Provider {
    /// The family of APIs it speaks.
    pub api: Api,
    /// Scheme, host and perhaps a path.
    pub base_url: http::Uri,
    /// How it is reached.
    pub way: Way,
    /// The provider's key, where the server holds it.
    pub key: Option<Secret>,
    /// What a client must bring in its place.
    pub client_key: Option<Secret>,
    /// What it charges, where that is not what is usual.
    pub prices: Option<Arc<Terms>>,
}

/// Where calls of an MCP server go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServer {
    /// Its endpoint.
    pub url: http::Uri,
    /// How it is reached.
    pub way: Way,
    /// Headers that are sent with every request, in place of the client's own.
    pub headers: BTreeMap<String, Secret>,
    /// How long a tool call may take.
    pub timeout: Duration,
}

/// A text that does not show itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a secret in.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// Lets it out, for the wire.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `text` is the secret, in a time that does not tell how much of it is right.
    pub(crate) fn is(&self, text: &str) -> bool {
        let (ours, theirs) = (self.0.as_bytes(), text.as_bytes());
        let differences = ours.iter().zip(theirs).fold(0, |all, (a, b)| all | (a ^ b));
        differences == 0 && ours.len() == theirs.len()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// What an agent is told when it was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnKill {
    /// An error in its provider's own shape.
    #[default]
    Error,
    /// A final assistant message, for agents that cannot handle errors.
    Message,
}

/// `deadstop.toml` as it was typed.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawConfig {
    /// Where to listen.
    pub listen: Option<String>,
    /// Where to keep the database.
    pub data: Option<PathBuf>,
    /// A database elsewhere: `postgres://…`.
    pub database: Option<String>,
    /// The Redis that makes this one node of many: `redis://…`.
    pub redis: Option<String>,
    /// Whether a proxy in front ends TLS.
    pub behind_proxy: bool,
    /// Whether alerts may go to addresses of the local network.
    pub private_alerts: bool,
    /// Whether every process of this machine may give every order while there are no keys.
    pub trust_local: bool,
    /// A policy file, or the name of a preset.
    pub policy: Option<String>,
    /// What an agent is told when it was killed.
    pub on_kill: Option<OnKill>,
    /// Calls that may be in flight.
    pub max_in_flight: Option<usize>,
    /// Largest request body, in MiB.
    pub max_body_mib: Option<usize>,
    /// How long a request's body may take to arrive.
    pub body_timeout_seconds: Option<u64>,
    /// How long a client may read next to nothing of what it is sent.
    pub client_timeout_seconds: Option<u64>,
    /// How long a paused call is held.
    pub hold_seconds: Option<u64>,
    /// How long an upstream may take until its first byte.
    pub upstream_timeout_seconds: Option<u64>,
    /// How long calls in flight may go on when the server shuts down.
    pub shutdown_grace_seconds: Option<u64>,
    /// How long agents that were running may call without a key after the first one was made.
    pub key_grace_seconds: Option<u64>,
    /// The proxy to upstreams in place of those that the environment names; `none` for none.
    pub proxy: Option<String>,
    /// Certificates (PEM) that are trusted besides the built-in ones.
    pub ca_file: Option<PathBuf>,
    /// Providers by name.
    pub providers: BTreeMap<String, RawProvider>,
    /// MCP.
    pub mcp: RawMcp,
    /// Where calls are exported to, as spans.
    pub telemetry: RawTelemetry,
    /// How people sign in to the page without a key.
    pub sso: RawSso,
}

/// What was typed about MCP.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawMcp {
    /// Servers by name.
    pub servers: BTreeMap<String, RawMcpServer>,
}

/// One MCP server as it was typed.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawMcpServer {
    /// Its endpoint.
    pub url: Option<String>,
    /// Headers that are sent with every request.
    pub headers: BTreeMap<String, String>,
    /// The same, each by the environment variable that holds its value.
    pub headers_env: BTreeMap<String, String>,
    /// How long a tool call may take.
    pub timeout_seconds: Option<u64>,
    /// The proxy to this server; `none` for none.
    pub proxy: Option<String>,
    /// Certificates (PEM) that are trusted here.
    pub ca_file: Option<PathBuf>,
}

/// One provider as it was typed.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawProvider {
    /// Where it is.
    pub base_url: Option<String>,
    /// Which API it speaks; OpenAI's, unless the name says otherwise.
    pub api: Option<Api>,
    /// The environment variable that holds its key, where the server is to hold it.
    pub api_key_env: Option<String>,
    /// The environment variable that holds the key which clients must bring instead.
    pub client_key_env: Option<String>,
    /// What it charges: `free = true`, `factor = 0.8`, or `models = { name = [input, output] }`.
    pub prices: Option<Terms>,
    /// The proxy to this provider; `none` for none.
    pub proxy: Option<String>,
    /// Certificates (PEM) that are trusted here.
    pub ca_file: Option<PathBuf>,
}

/// A configuration that cannot be.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BadConfig {
    /// Not an address.
    #[error("`{0}` is not an address to listen on; write one such as {DEFAULT_LISTEN}")]
    Listen(String),
    /// Not the address of a database.
    #[error("that is not the address of a database; write one such as postgres://user@host/name")]
    Database,
    /// Not the address of a Redis.
    #[error("{0}; write one such as redis://host:6379")]
    Redis(String),
    /// A node of many without what lasts for all of them.
    #[error("--redis makes this one node of many: they need a --database postgres://… to share")]
    Alone,
    /// Not a URL.
    #[error("providers.{name}.base_url: `{url}` is not a URL; write one such as https://host/path")]
    Url {
        /// The provider.
        name: String,
        /// What was typed.
        url: String,
    },
    /// No URL for a provider that Deadstop does not know.
    #[error("providers.{0} has no base_url; add `base_url = \"https://…\"`")]
    NoUrl(String),
    /// A name that cannot stand in a path.
    #[error(
        "`{0}` cannot be a provider's name; use letters, digits, - and _, and not api, agent, mcp or session"
    )]
    Name(String),
    /// An MCP server that cannot be.
    #[error("mcp.servers.{name}: {problem}")]
    Mcp {
        /// The server.
        name: String,
        /// What is wrong, and what to do about it.
        problem: String,
    },
    /// A proxy or a private certificate that cannot be used.
    #[error("{0}")]
    Way(String),
    /// Telemetry that cannot be exported so.
    #[error("telemetry: {0}")]
    Telemetry(String),
    /// People cannot sign in so.
    #[error("sso: {0}")]
    Sso(String),
    /// The key is not there.
    #[error("providers.{name}: the environment has no {variable}; set it")]
    NoKey {
        /// The provider.
        name: String,
        /// The variable.
        variable: String,
    },
}

/// Providers that are there without being named.
const KNOWN: [(&str, Api, &str); 3] = [
    ("openai", Api::OpenAi, "https://api.openai.com"),
    ("anthropic", Api::Anthropic, "https://api.anthropic.com"),
    ("gemini", Api::Gemini, "https://generativelanguage.googleapis.com"),
];

impl RawConfig {
    /// Makes a valid configuration of it.
    pub fn resolve(
        self,
        policies: PolicySet,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Config, BadConfig> {
        let listen = self.listen.as_deref().unwrap_or(DEFAULT_LISTEN);
        let listen: SocketAddr =
            listen.parse().map_err(|_| BadConfig::Listen(listen.to_owned()))?;
        let is_database = |url: &String| {
            ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme))
        };
        if let Some(redis) = &self.redis {
            deadstop_fleet::Redis::open(redis)
                .map_err(|error| BadConfig::Redis(error.to_string()))?;
            if self.database.is_none() {
                return Err(BadConfig::Alone);
            }
        }
        if self.database.as_ref().is_some_and(|url| !is_database(url)) {
            return Err(BadConfig::Database);
        }
        let ways = Ways::resolve(self.proxy.as_deref(), self.ca_file.as_deref(), &environment)?;
        let mut providers = BTreeMap::new();
        for (name, api, url) in KNOWN {
            providers.insert(name.to_owned(), provider(name, api, url, ways.usual.clone())?);
        }
        for (name, raw) in self.providers {
            let providers_api = providers.get(&name).map(|known| known.api);
            let api = raw.api.or(providers_api).unwrap_or(Api::OpenAi);
            let url = match (raw.base_url, providers.get(&name)) {
                (Some(url), _) => url,
                (None, Some(known)) => known.base_url.to_string(),
                (None, None) => return Err(BadConfig::NoUrl(name)),
            };
            let place = format!("providers.{name}");
            let way = ways.to(&place, raw.proxy.as_deref(), raw.ca_file.as_deref())?;
            let mut resolved = provider(&name, api, &url, way)?;
            let secret = |variable: Option<String>| {
                let Some(variable) = variable else { return Ok(None) };
                let key = environment(&variable).filter(|key| !key.is_empty());
                let key = key.ok_or(BadConfig::NoKey { name: name.clone(), variable })?;
                Ok(Some(Secret::new(key)))
            };
            resolved.key = secret(raw.api_key_env)?;
            resolved.client_key = secret(raw.client_key_env)?;
            resolved.prices = raw.prices.map(Arc::new);
            providers.insert(name, resolved);
        }
        let mut mcp = BTreeMap::new();
        for (name, raw) in self.mcp.servers {
            let place = format!("mcp.servers.{name}");
            let way = ways.to(&place, raw.proxy.as_deref(), raw.ca_file.as_deref())?;
            let server = mcp_server(&name, raw, way, &environment)
                .map_err(|problem| BadConfig::Mcp { name: name.clone(), problem })?;
            mcp.insert(name, server);
        }
        let telemetry = self.telemetry.resolve(&environment)?;
        let sso = self.sso.resolve(&environment)?;
        Ok(Config {
            ways,
            sso,
            telemetry,
            mcp,
            listen,
            data: self.data,
            database: self.database.map(Secret::new),
            redis: self.redis.map(Secret::new),
            behind_proxy: self.behind_proxy,
            private_alerts: self.private_alerts,
            policies,
            providers,
            on_kill: self.on_kill.unwrap_or_default(),
            max_in_flight: self.max_in_flight.unwrap_or(4096).max(1),
            max_body: self.max_body_mib.unwrap_or(64).max(1) << 20,
            body_timeout: Duration::from_secs(self.body_timeout_seconds.unwrap_or(120).max(1)),
            client_timeout: Duration::from_secs(self.client_timeout_seconds.unwrap_or(60).max(1)),
            hold: Duration::from_secs(self.hold_seconds.unwrap_or(300)),
            upstream_timeout: Duration::from_secs(self.upstream_timeout_seconds.unwrap_or(600)),
            shutdown_grace: Duration::from_secs(self.shutdown_grace_seconds.unwrap_or(10)),
            default_agent: "default".to_owned(),
            default_session: None,
            key_grace: Duration::from_secs(self.key_grace_seconds.unwrap_or(15 * 60)),
            anchor: None,
            operator: None,
        })
    }
}

fn mcp_server(
    name: &str,
    raw: RawMcpServer,
    way: Way,
    environment: &impl Fn(&str) -> Option<String>,
) -> Result<McpServer, String> {
    if !is_name(name) {
        return Err("not a name for a URL; use letters, digits, - and _".to_owned());
    }
    let url = raw.url.ok_or("no url; add `url = \"https://…/mcp\"`")?;
    let url = address(&url)
        .ok_or_else(|| format!("`{url}` is not a URL; write one such as https://host/mcp"))?;
    let mut headers = BTreeMap::new();
    for (header, value) in raw.headers {
        headers.insert(header, Secret::new(value));
    }
    for (header, variable) in raw.headers_env {
        let value = environment(&variable).filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| format!("the environment has no {variable}; set it"))?;
        headers.insert(header, Secret::new(value));
    }
    for (header, value) in &headers {
        let fine = header.parse::<http::HeaderName>().is_ok()
            && http::HeaderValue::from_str(value.reveal()).is_ok();
        if !fine {
            return Err(format!("`{header}` is not a header, or its value cannot be one"));
        }
    }
    let timeout = Duration::from_secs(raw.timeout_seconds.unwrap_or(600).max(1));
    Ok(McpServer { url, way, headers, timeout })
}

fn is_name(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !name.is_empty() && name.chars().all(fine)
}

pub(crate) fn address(url: &str) -> Option<http::Uri> {
    let url: http::Uri = url.parse().ok()?;
    ["http", "https"].contains(&url.scheme_str()?).then_some(url)
}

fn provider(name: &str, api: Api, url: &str, way: Way) -> Result<Provider, BadConfig> {
    if !is_name(name) || ["api", "agent", "mcp", "session"].contains(&name) {
        return Err(BadConfig::Name(name.to_owned()));
    }
    let bad = || BadConfig::Url { name: name.to_owned(), url: url.to_owned() };
    let base_url = address(url.trim_end_matches('/')).ok_or_else(bad)?;
    if base_url.query().is_some() {
        return Err(bad());
    }
    Ok(Provider { api, base_url, way, key: None, client_key: None, prices: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use deadstop_core::Preset;

    fn resolve(text: &str) -> Result<Config, BadConfig> {
        let raw: RawConfig = toml::from_str(text).unwrap();
        raw.resolve(Preset::Balanced.policies(), |name| (name == "KEY").then(|| "sk-1".to_owned()))
    }

    #[test]
    fn nothing_needs_to_be_said() {
        let config = resolve("").unwrap();
        assert_eq!(config.listen.to_string(), DEFAULT_LISTEN);
        let names: Vec<_> = config.providers.keys().map(String::as_str).collect();
        assert_eq!(names, ["anthropic", "gemini", "openai"]);
        assert_eq!(config.providers["openai"].base_url, "https://api.openai.com/");
    }

    #[test]
    fn providers_are_a_line_each() {
        let config = resolve(
            "[providers.ollama]\nbase_url = \"http://127.0.0.1:11434/\"\n\
             [providers.openai]\napi_key_env = \"KEY\"\nclient_key_env = \"KEY\"\n\
             [providers.claude]\napi = \"anthropic\"\nbase_url = \"http://127.0.0.1:1/x\"",
        )
        .unwrap();
        assert_eq!(config.providers["ollama"].api, Api::OpenAi);
        assert_eq!(config.providers["claude"].api, Api::Anthropic);
        assert_eq!(config.providers["openai"].key, Some(Secret::new("sk-1")));
        assert!(!format!("{config:?}").contains("sk-1"));
        let key = config.providers["openai"].client_key.clone().unwrap();
        for (brought, fine) in
            [("sk-1", true), ("sk-2", false), ("sk-", false), ("sk-11", false), ("", false)]
        {
            assert_eq!(key.is(brought), fine, "{brought}");
        }
    }

    #[test]
    fn mcp_servers_are_a_line_each() {
        let config = resolve(
            "[mcp.servers.files]\nurl = \"http://127.0.0.1:1/mcp?a=b\"\ntimeout_seconds = 5\n\
             headers = { x-team = \"blue\" }\nheaders_env = { authorization = \"KEY\" }",
        )
        .unwrap();
        let server = &config.mcp["files"];
        assert_eq!((server.url.path(), server.timeout), ("/mcp", Duration::from_secs(5)));
        assert_eq!(server.headers["authorization"], Secret::new("sk-1"));
        assert_eq!(server.headers["x-team"], Secret::new("blue"));
        assert!(!format!("{config:?}").contains("sk-1"));
    }

    #[test]
    fn proxies_are_for_all_upstreams_or_for_one() {
        let text = "[providers.near]\nbase_url = \"http://127.0.0.1:1\"\n\
             [providers.told]\nbase_url = \"http://127.0.0.1:1\"\nproxy = \"http://u:pass@own:8\"\n\
             [providers.gemini]\nproxy = \"none\"\n\
             [mcp.servers.files]\nurl = \"https://files.example/mcp\"";
        let proxied = |before: &str| {
            let raw: RawConfig = toml::from_str(&format!("{before}{text}")).unwrap();
            let variable = |name: &str| match name {
                "HTTPS_PROXY" => Some("http://u:pass@env:3128".to_owned()),
                "NO_PROXY" => Some("openai.com".to_owned()),
                _ => None,
            };
            let config = raw.resolve(Preset::Balanced.policies(), variable).unwrap();
            assert!(!format!("{config:?}").contains("pass"));
            let proxied: Vec<_> = config.proxied().into_iter().collect();
            proxied
                .into_iter()
                .map(|(proxy, names)| format!("{proxy}: {}", names.join(" ")))
                .collect()
        };
        let told = "http://own:8 (providers.told.proxy): told";
        let environment = "http://env:3128 (HTTPS_PROXY): anthropic mcp/files";
        let own = "http://company:80 (proxy): anthropic mcp/files";
        let found: Vec<String> = proxied("");
        assert_eq!(found, [environment, told]);
        assert_eq!(proxied("proxy = \"company\"\n"), [own, told]);
        assert_eq!(proxied("proxy = \"none\"\n"), [told]);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("listen = \"nowhere\"", "`nowhere` is not an address"),
            ("database = \"mysql://a\"", "not the address of a database"),
            ("proxy = \"ftp://a\"", "proxy is not the URL of a proxy"),
            ("ca_file = \"/none.pem\"", "ca_file: cannot read certificates from /none.pem"),
            ("[providers.openai]\nproxy = \"a b\"", "providers.openai.proxy is not the URL"),
            ("[providers.openai]\nca_file = \"/none\"", "providers.openai.ca_file: cannot read"),
            (
                "[mcp.servers.x]\nurl = \"http://a\"\nca_file = \"/none\"",
                "mcp.servers.x.ca_file: cannot read",
            ),
            ("[providers.x]", "providers.x has no base_url"),
            ("[providers.x]\nbase_url = \"ftp://a\"", "is not a URL"),
            ("[providers.x]\nbase_url = \"a b\"", "is not a URL"),
            ("[providers.agent]\nbase_url = \"http://a\"", "cannot be a provider's name"),
            ("[providers.openai]\napi_key_env = \"NONE\"", "the environment has no NONE"),
            ("[providers.mcp]\nbase_url = \"http://a\"", "cannot be a provider's name"),
            ("[mcp.servers.x]", "mcp.servers.x: no url"),
            ("[mcp.servers.x]\nurl = \"/mcp\"", "`/mcp` is not a URL"),
            ("[mcp.servers.\"a b\"]\nurl = \"http://a\"", "not a name for a URL"),
            (
                "[mcp.servers.x]\nurl = \"http://a\"\nheaders = { \"a b\" = \"c\" }",
                "is not a header",
            ),
            (
                "[mcp.servers.x]\nurl = \"http://a\"\nheaders_env = { authorization = \"NONE\" }",
                "the environment has no NONE",
            ),
        ] {
            let error = resolve(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
