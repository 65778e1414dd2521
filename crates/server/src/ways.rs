//! The ways out to upstreams, as configured: proxies and private CAs, for all of them or for one.

use std::collections::BTreeMap;
use std::path::Path;

use deadstop_alerts::{Goal, Proxies, Settings, Way};
use deadstop_client::Trust;
use http::Uri;

use crate::config::{BadConfig, Config};

/// What `proxy` says where no proxy is wanted.
const NONE: &str = "none";

/// The ways out.
#[derive(Debug, Clone)]
pub struct Ways {
    /// The one that is taken unless an upstream has its own.
    pub(crate) usual: Way,
    proxies: Proxies,
    trust: Trust,
}

impl Ways {
    /// What was typed for all upstreams, and what the environment says.
    pub(crate) fn resolve(
        proxy: Option<&str>,
        ca_file: Option<&Path>,
        environment: &impl Fn(&str) -> Option<String>,
    ) -> Result<Ways, BadConfig> {
        let bad = |problem: String| BadConfig::Way(problem);
        let proxies = match proxy {
            Some(NONE) => Proxies::default(),
            // A proxy that is named here takes the place of those, so they need not be valid.
            Some(url) => Proxies::from_environment(|name| {
                environment(name).filter(|_| name.eq_ignore_ascii_case("NO_PROXY"))
            })
            .and_then(|environment| environment.with(url, "proxy"))
            .map_err(|error| bad(error.to_string()))?,
            None => {
                Proxies::from_environment(environment).map_err(|error| bad(error.to_string()))?
            }
        };
        let (mut trust, problems) = Trust::from_environment(environment);
        for problem in problems {
            tracing::warn!("{problem}");
        }
        if let Some(file) = ca_file {
            trust.add_file(file).map_err(|error| bad(format!("ca_file: {error}")))?;
        }
        let usual = Way::new(proxies.clone(), trust.clone());
        let usual = usual.map_err(|error| bad(error.to_string()))?;
        Ok(Ways { usual, proxies, trust })
    }

    /// The way to one upstream, with what was typed for it alone.
    pub(crate) fn to(
        &self,
        place: &str,
        proxy: Option<&str>,
        ca_file: Option<&Path>,
    ) -> Result<Way, BadConfig> {
        if proxy.is_none() && ca_file.is_none() {
            return Ok(self.usual.clone());
        }
        let bad = |problem: String| BadConfig::Way(problem);
        let proxies = match proxy {
            Some(NONE) => Proxies::default(),
            Some(url) => Proxies::only(url, &format!("{place}.proxy"))
                .map_err(|error| bad(error.to_string()))?,
            None => self.proxies.clone(),
        };
        let mut trust = self.trust.clone();
        if let Some(file) = ca_file {
            trust.add_file(file).map_err(|error| bad(format!("{place}.ca_file: {error}")))?;
        }
        Way::new(proxies, trust).map_err(|error| bad(format!("{place}: {error}")))
    }

    /// How alerts go out.
    pub(crate) fn of_alerts(&self, allow_private: bool) -> Settings {
        let (proxies, trust) = (self.proxies.clone(), self.trust.clone());
        Settings { allow_private, proxies, trust, ..Settings::default() }
    }
}

impl Config {
    /// The proxies that lead to upstreams, without passwords, each with the upstreams behind it.
    pub fn proxied(&self) -> BTreeMap<String, Vec<String>> {
        let providers = self.providers.iter();
        let providers = providers.map(|(name, it)| (name.clone(), &it.way, &it.base_url));
        let servers = self.mcp.iter().map(|(name, it)| (format!("mcp/{name}"), &it.way, &it.url));
        let mut proxied: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, way, uri) in providers.chain(servers) {
            if let Some(proxy) = goal(uri).and_then(|goal| way.proxy(goal)) {
                proxied.entry(proxy.to_string()).or_default().push(name);
            }
        }
        proxied
    }
}

/// What an address is to a way.
pub(crate) fn goal(uri: &Uri) -> Option<Goal<'_>> {
    let secure = uri.scheme_str() == Some("https");
    let usual = if secure { 443 } else { 80 };
    Some(Goal { secure, host: uri.host()?, port: uri.port_u16().unwrap_or(usual) })
}
