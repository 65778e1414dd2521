//! Where a request goes: the provider and the agent that its path names.

use deadstop_protocol::llm::Dialect;
use deadstop_protocol::llm::request::{Brings, brings, fetched, names_results, versioned};
use http::{Method, Uri};

use crate::config::{Config, Provider};
use crate::door::Prefix;

/// A path that was understood.
pub(super) struct Route<'a> {
    /// The agent, if the path names one.
    pub(super) agent: Option<String>,
    /// The session, if the path names one.
    pub(super) session: Option<String>,
    /// The provider's name.
    pub(super) name: &'a str,
    /// The provider.
    pub(super) provider: &'a Provider,
    /// What is left of the path, with its slash.
    pub(super) path: String,
    /// The query, if any.
    pub(super) query: Option<String>,
    /// Whether the method only fetches something.
    pub(super) fetches: bool,
    /// Whether calls are looked for in an answer of no dialect.
    pub(super) brings: Option<Brings>,
}

impl<'a> Route<'a> {
    /// Reads `/{provider}/…`, with `/agent/{name}` and `/session/{id}` before it if need be.
    pub(super) fn find(config: &'a Config, method: &Method, uri: &Uri) -> Option<Route<'a>> {
        let Prefix { agent, session, rest } = Prefix::of(uri.path())?;
        let (name, path) = match rest.split_once('/') {
            Some((name, path)) => (name, format!("/{path}")),
            None => (rest, "/".to_owned()),
        };
        let (name, provider) = config.providers.get_key_value(name)?;
        let base = &provider.base_url;
        let upstream = (base.host().unwrap_or_default(), base.path());
        let path = versioned(provider.api, upstream, &path).into_owned();
        let query = uri.query().map(str::to_owned);
        let fetches = method == Method::GET || method == Method::HEAD;
        let brings = brings(method.as_str(), &path);
        Some(Route { agent, session, name, provider, path, query, fetches, brings })
    }

    /// The dialect of the answer: a request that is no model request may fetch a model's answer.
    pub(super) fn answers(&self, asked: Dialect) -> Dialect {
        match asked {
            Dialect::OpenAiOther => fetched(self.provider.api, &self.path).unwrap_or(asked),
            _ => asked,
        }
    }

    /// The path of the provider's address, if the answer may name addresses of results.
    pub(super) fn results(&self) -> Option<String> {
        let base = || self.provider.base_url.path().to_owned();
        names_results(self.provider.api, &self.path).then(base)
    }

    /// Whether the query asks for a stream.
    pub(super) fn asks_stream(&self) -> bool {
        let parts = self.query.as_deref().unwrap_or_default().split('&');
        let mut values = parts.filter_map(|part| part.strip_prefix("stream="));
        values.any(|value| value.eq_ignore_ascii_case("true") || value == "1")
    }

    /// The address of the upstream.
    pub(super) fn target(&self) -> Option<Uri> {
        let base = &self.provider.base_url;
        let base_path = base.path().trim_end_matches('/');
        let query = self.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        Uri::builder()
            .scheme(base.scheme()?.clone())
            .authority(base.authority()?.clone())
            .path_and_query(format!("{base_path}{}{query}", self.path))
            .build()
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RawConfig;
    use deadstop_core::Preset;

    fn check(path: &str, expected: Option<(&str, Option<&str>, &str)>) {
        let raw: RawConfig =
            toml::from_str("[providers.own]\nbase_url = \"http://127.0.0.1:9/base/\"").unwrap();
        let config = raw.resolve(Preset::Balanced.policies(), |_| None).unwrap();
        let uri: Uri = path.parse().unwrap();
        let found = Route::find(&config, &Method::POST, &uri);
        let shown = found.as_ref().map(|route| {
            let named = route.agent.as_deref().or(route.session.as_deref());
            (route.name, named, route.target().unwrap().to_string())
        });
        let expected = expected.map(|(name, agent, target)| (name, agent, target.to_owned()));
        assert_eq!(shown, expected, "{path}");
    }

    #[test]
    fn paths_name_providers_and_agents() {
        check(
            "/openai/v1/chat/completions?a=b",
            Some(("openai", None, "https://api.openai.com/v1/chat/completions?a=b")),
        );
        check(
            "/agent/my%20bot/anthropic/v1/messages",
            Some(("anthropic", Some("my bot"), "https://api.anthropic.com/v1/messages")),
        );
        check(
            "/session/s%2F1/own/v1/messages",
            Some(("own", Some("s/1"), "http://127.0.0.1:9/base/v1/messages")),
        );
        check("/agent/a/session/s/own/v1", Some(("own", Some("a"), "http://127.0.0.1:9/base/v1")));
        check("/own/v1/x%2Fy", Some(("own", None, "http://127.0.0.1:9/base/v1/x%2Fy")));
        // With and without the version in the client's base URL.
        for path in ["/anthropic/messages", "/anthropic/v1/messages", "/anthropic/v1/v1/messages"] {
            check(path, Some(("anthropic", None, "https://api.anthropic.com/v1/messages")));
        }
        let chat = "https://api.openai.com/v1/chat/completions";
        for path in ["/openai/chat/completions", "/openai/v1/v1/chat/completions"] {
            check(path, Some(("openai", None, chat)));
        }
        let models = "https://generativelanguage.googleapis.com/v1beta/models/m:generateContent";
        check("/gemini/models/m:generateContent", Some(("gemini", None, models)));
        // What a base URL with a path of its own means is its owner's business.
        check("/own/messages", Some(("own", None, "http://127.0.0.1:9/base/messages")));
        check("/own", Some(("own", None, "http://127.0.0.1:9/base/")));
        for nowhere in ["/", "/unknown/v1", "/agent/x", "/agent/x/unknown/v1", "/https://evil/v1"] {
            check(nowhere, None);
        }
    }
}
