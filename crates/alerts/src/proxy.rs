//! Which proxy leads to a host: the variables that other programs read as well (`HTTPS_PROXY`,
//! `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`), or the proxy that the configuration names.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use url::Url;

use crate::email::decoded;

/// A proxy that cannot be used. Its URL is not shown: there may be a password in it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{from} is not the URL of a proxy; write one such as http://host:3128, or socks5://host:1080"
)]
pub struct BadProxy {
    /// Where the URL is from.
    from: String,
}

/// What is spoken to a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speech {
    /// HTTP.
    Http,
    /// HTTP over TLS.
    Https,
    /// SOCKS 5; the proxy resolves names.
    Socks,
}

/// A proxy. It shows itself without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    pub(crate) speech: Speech,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) credentials: Option<(String, String)>,
    /// Where its URL is from: a variable, or a setting.
    pub(crate) from: String,
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.speech {
            Speech::Http => "http",
            Speech::Https => "https",
            Speech::Socks => "socks5",
        };
        write!(f, "{scheme}://{} ({})", authority(&self.host, self.port), self.from)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Proxy {
    /// Reads a URL; without a scheme it is that of an HTTP proxy.
    fn parse(url: &str, from: &str) -> Result<Proxy, BadProxy> {
        let bad = || BadProxy { from: from.to_owned() };
        let url = url.trim();
        let whole = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let url = Url::parse(&whole).map_err(|_| bad())?;
        let (speech, usual) = match url.scheme() {
            "http" => (Speech::Http, 80),
            "https" => (Speech::Https, 443),
            "socks5" | "socks5h" => (Speech::Socks, 1080),
            _ => return Err(bad()),
        };
        let host = bare(url.host_str().ok_or_else(bad)?).to_owned();
        if host.is_empty() || !matches!(url.path(), "" | "/") {
            return Err(bad());
        }
        let known = !url.username().is_empty() || url.password().is_some();
        let credentials =
            known.then(|| (decoded(url.username()), decoded(url.password().unwrap_or_default())));
        let port = url.port().unwrap_or(usual);
        Ok(Proxy { speech, host, port, credentials, from: from.to_owned() })
    }

    /// Its host and port.
    pub fn place(&self) -> String {
        authority(&self.host, self.port)
    }

    /// The value of `Proxy-Authorization`, if it wants one.
    pub fn authorization(&self) -> Option<String> {
        let (user, password) = self.credentials.as_ref()?;
        Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
    }
}

/// Which proxy leads where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    http: Option<Arc<Proxy>>,
    https: Option<Arc<Proxy>>,
    exempt: Vec<Exempt>,
    /// Whether the user has named the proxy for this very target.
    told: bool,
}

impl Proxies {
    /// What the environment says; in both cases of letters, the lower one first.
    pub fn from_environment(
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Proxies, BadProxy> {
        let set = |name: &str| {
            let names = [name.to_ascii_lowercase(), name.to_ascii_uppercase()];
            names.into_iter().find_map(|name| {
                // Under CGI a client sets this one, with a header named `Proxy`.
                if name == "HTTP_PROXY" && environment("REQUEST_METHOD").is_some() {
                    return None;
                }
                let value = environment(&name).filter(|value| !value.trim().is_empty())?;
                Some((name, value))
            })
        };
        let proxy = |name: &str| {
            let found = set(name).or_else(|| set("ALL_PROXY"));
            found.map(|(name, url)| Proxy::parse(&url, &name).map(Arc::new)).transpose()
        };
        let exempt = set("NO_PROXY").map(|(_, hosts)| exempt(&hosts)).unwrap_or_default();
        let (http, https) = (proxy("HTTP_PROXY")?, proxy("HTTPS_PROXY")?);
        Ok(Proxies { http, https, exempt, told: false })
    }

    /// This one in place of those that the environment names; `NO_PROXY` holds on.
    pub fn with(&self, url: &str, from: &str) -> Result<Proxies, BadProxy> {
        let proxy = Some(Arc::new(Proxy::parse(url, from)?));
        Ok(Proxies { http: proxy.clone(), https: proxy, ..self.clone() })
    }

    /// This one for every target, this machine included.
    pub fn only(url: &str, from: &str) -> Result<Proxies, BadProxy> {
        Ok(Proxies { told: true, ..Proxies::default().with(url, from)? })
    }

    /// The proxy that leads to a host; `None` is the direct way. This machine is reached directly.
    pub fn find(&self, secure: bool, host: &str, port: u16) -> Option<&Arc<Proxy>> {
        let proxy = if secure { self.https.as_ref() } else { self.http.as_ref() }?;
        let host = bare(host).trim_end_matches('.').to_ascii_lowercase();
        let address = host.parse().ok().map(|address: IpAddr| address.to_canonical());
        let direct = !self.told
            && (is_here(&host, address)
                || self.exempt.iter().any(|exempt| exempt.holds(&host, address, port)));
        (!direct).then_some(proxy)
    }
}

/// Whether a host is this machine.
fn is_here(host: &str, address: Option<IpAddr>) -> bool {
    let name = host == "localhost" || host.ends_with(".localhost");
    name || address.is_some_and(|address| address.is_loopback() || address.is_unspecified())
}

/// One entry of `NO_PROXY`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Exempt {
    what: What,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    All,
    /// A domain and what is below it.
    Domain(String),
    /// Addresses whose first bits are these.
    Network(IpAddr, u32),
}

impl Exempt {
    fn holds(&self, host: &str, address: Option<IpAddr>, port: u16) -> bool {
        let here = match &self.what {
            What::All => true,
            What::Domain(domain) => host
                .strip_suffix(domain.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
            What::Network(network, bits) => {
                address.is_some_and(|address| same_bits(*network, address, *bits))
            }
        };
        here && self.port.is_none_or(|wanted| wanted == port)
    }
}

/// Reads `NO_PROXY`: hosts, domains (`.example.com` and `*.example.com` too), addresses, networks, each
/// with a port if need be, and `*`. What is none of these fits nothing.
fn exempt(hosts: &str) -> Vec<Exempt> {
    let entries = hosts.split([',', ' ', '\t', '\n']).map(str::trim);
    entries.filter(|entry| !entry.is_empty()).filter_map(entry).collect()
}

fn entry(text: &str) -> Option<Exempt> {
    let all_bits = |address: IpAddr| if address.is_ipv4() { 32 } else { 128 };
    let single = |text: &str| {
        let address = bare(text).parse::<IpAddr>().ok()?.to_canonical();
        Some(What::Network(address, all_bits(address)))
    };
    if let Some((network, bits)) = text.split_once('/') {
        let network: IpAddr = bare(network).parse().ok()?;
        let bits = bits.parse().ok().filter(|bits| *bits <= all_bits(network))?;
        return Some(Exempt { what: What::Network(network, bits), port: None });
    }
    // An IPv6 address without brackets has colons and no port.
    if let Some(what) = single(text) {
        return Some(Exempt { what, port: None });
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port.parse().ok()?)),
        None => (text, None),
    };
    let domain = host.strip_prefix('*').unwrap_or(host);
    let domain = domain.trim_start_matches('.').trim_end_matches('.').to_ascii_lowercase();
    let what = match single(host) {
        Some(what) => what,
        None if host == "*" => What::All,
        None if domain.is_empty() => return None,
        None => What::Domain(domain),
    };
    Some(Exempt { what, port })
}

fn same_bits(network: IpAddr, address: IpAddr, bits: u32) -> bool {
    let (ours, theirs, width) = match (network, address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return false,
    };
    (ours ^ theirs).checked_shr(width - bits).unwrap_or_default() == 0
}

/// A host without the brackets of an IPv6 address.
pub(crate) fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Host and port as they stand in a URL.
pub(crate) fn authority(host: &str, port: u16) -> String {
    match bare(host) {
        v6 if v6.contains(':') => format!("[{v6}]:{port}"),
        host => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, BadProxy> {
        Proxies::from_environment(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn check(variables: &[(&str, &str)], url: &str, expected: Option<&str>) {
        let url = Url::parse(url).unwrap();
        let (host, port) = (url.host_str().unwrap(), url.port_or_known_default().unwrap());
        let proxies = proxies(variables).unwrap();
        let found = proxies.find(url.scheme() == "https", host, port);
        assert_eq!(found.map(ToString::to_string).as_deref(), expected, "{variables:?} {url}");
    }

    #[test]
    fn variables_name_proxies() {
        let (http, https, all) =
            (("HTTP_PROXY", "http://h:1"), ("HTTPS_PROXY", "h:2"), ("ALL_PROXY", "socks5h://h"));
        check(&[http, https], "http://a.org", Some("http://h:1 (HTTP_PROXY)"));
        check(&[http, https], "https://a.org", Some("http://h:2 (HTTPS_PROXY)"));
        check(&[http], "https://a.org", None);
        check(&[http, all], "https://a.org", Some("socks5://h:1080 (ALL_PROXY)"));
        check(&[http, all], "http://a.org", Some("http://h:1 (HTTP_PROXY)"));
        let lower = ("https_proxy", "https://[::1]");
        check(&[https, lower], "https://a.org", Some("https://[::1]:443 (https_proxy)"));
        check(&[("HTTPS_PROXY", " ")], "https://a.org", None);
        check(&[http, ("REQUEST_METHOD", "GET")], "http://a.org", None);
        for bad in ["ftp://h", "http://", "http://h:port", "http://h/path", "socks4://h"] {
            let said = proxies(&[("HTTPS_PROXY", bad)]).unwrap_err().to_string();
            assert!(said.starts_with("HTTPS_PROXY is not the URL of a proxy"), "{bad}: {said}");
        }
    }

    #[test]
    fn no_proxy_names_exceptions() {
        for (exempt, url, direct) in [
            ("*", "https://a.org", true),
            ("a.org", "https://a.org", true),
            ("a.org", "https://x.a.org", true),
            ("A.ORG", "https://x.A.org", true),
            (".a.org", "https://a.org", true),
            ("*.a.org", "https://x.a.org", true),
            ("a.org", "https://ba.org", false),
            ("a.org:443", "https://a.org", true),
            ("a.org:8443", "https://a.org", false),
            ("a.org:8443", "https://a.org:8443", true),
            ("b.org, a.org", "https://a.org", true),
            ("b.org a.org", "https://a.org", true),
            ("10.0.0.0/8", "https://10.20.30.40", true),
            ("10.0.0.0/8", "https://11.20.30.40", false),
            ("10.0.0.0/8", "https://ten.org", false),
            ("0.0.0.0/0", "https://1.2.3.4", true),
            ("10.1.2.3", "https://10.1.2.3", true),
            ("10.1.2.3", "https://10.1.2.4", false),
            ("10.1.2.3:443", "https://10.1.2.3", true),
            ("fd00::/8", "https://[fd12::1]", true),
            ("[fd12::1]:443", "https://[fd12::1]", true),
            ("fd12::1", "https://[fd12::1]", true),
            ("fd12::1", "https://[fd12::2]", false),
            ("10.0.0.0/99", "https://10.0.0.1", false),
            (",:,/,*.", "https://a.org", false),
            ("", "https://a.org", false),
            // This machine needs no entry.
            ("", "https://127.9.9.9:1", true),
            ("", "https://localhost", true),
            ("", "https://my.localhost", true),
            ("", "https://[::1]", true),
            ("", "https://[::ffff:127.0.0.1]", true),
            ("", "https://127.0.0.1.evil.org", false),
        ] {
            let expected = (!direct).then_some("http://h:2 (HTTPS_PROXY)");
            check(&[("HTTPS_PROXY", "http://h:2"), ("NO_PROXY", exempt)], url, expected);
            check(&[("HTTPS_PROXY", "http://h:2"), ("no_proxy", exempt)], url, expected);
        }
    }

    #[test]
    fn a_proxy_of_its_own_leads_to_this_machine_too() {
        let environment = proxies(&[("HTTPS_PROXY", "http://h:2"), ("NO_PROXY", "a.org")]).unwrap();
        let all = environment.with("http://h:3", "proxy").unwrap();
        assert!(all.find(true, "a.org", 443).is_none() && all.find(false, "::1", 80).is_none());
        assert_eq!(all.find(false, "b.org", 80).unwrap().to_string(), "http://h:3 (proxy)");
        let only = Proxies::only("http://h:3", "providers.x.proxy").unwrap();
        assert!(only.find(true, "localhost", 443).is_some());
        assert!(Proxies::default().find(true, "b.org", 443).is_none());
    }

    #[test]
    fn passwords_are_sent_and_not_shown() {
        let proxies = proxies(&[("HTTPS_PROXY", "http://anna:p%40ss%3a@h:2")]).unwrap();
        let proxy = proxies.find(true, "a.org", 443).unwrap();
        // `anna:p@ss:` in base64.
        assert_eq!(proxy.authorization().as_deref(), Some("Basic YW5uYTpwQHNzOg=="));
        let shown = format!("{proxy} {proxy:?} {proxies:?}");
        assert!(!shown.contains("ss") && !shown.contains("anna"), "{shown}");
        let bad = Proxies::only("ftp://me:secret@h", "proxy").unwrap_err();
        assert!(!format!("{bad} {bad:?}").contains("secret"));
    }
}
