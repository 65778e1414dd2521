//! The command's environment: every known SDK is pointed at the gateway, and the gateway at where
//! the SDK would have gone without it.
//!
//! A base URL is taken apart so that client ▸ gateway ▸ upstream ends at the same path as the client
//! alone: of `OPENAI_BASE_URL=http://host/x/v1` the upstream gets `http://host/x` and the client
//! `/openai/v1`; where there is no `/v1` at the end, nothing is added on either side.
//! Keys stay where they are: the client sends its own.

use std::collections::BTreeMap;

use deadstop_protocol::llm::Api;
use deadstop_server::RawProvider;

/// Variables that say where one provider's calls go.
struct Family {
    provider: &'static str,
    api: Api,
    /// The first one counts for the others; those after it are other programs' names for it.
    variables: &'static [&'static str],
    /// What clients expect at the end of the URL by default.
    version: &'static str,
    /// Whether there is a provider when no variable is set.
    presence: Presence,
}

#[derive(PartialEq)]
enum Presence {
    /// The provider is known: the variables are always set.
    Always,
    /// Each user has another address: a variable is changed only if it is set.
    IfSet,
}

const FAMILIES: [Family; 5] = [
    Family {
        provider: "openai",
        api: Api::OpenAi,
        variables: &["OPENAI_BASE_URL", "OPENAI_API_BASE"],
        version: "/v1",
        presence: Presence::Always,
    },
    Family {
        provider: "anthropic",
        api: Api::Anthropic,
        variables: &["ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"],
        version: "",
        presence: Presence::Always,
    },
    Family {
        provider: "gemini",
        api: Api::Gemini,
        variables: &["GOOGLE_GEMINI_BASE_URL"],
        version: "",
        presence: Presence::Always,
    },
    Family {
        provider: "azure",
        api: Api::OpenAi,
        variables: &["AZURE_OPENAI_ENDPOINT"],
        version: "",
        presence: Presence::IfSet,
    },
    // Copilot CLI with a provider of the user's own.
    Family {
        provider: "copilot",
        api: Api::OpenAi,
        variables: &["COPILOT_PROVIDER_BASE_URL"],
        version: "/v1",
        presence: Presence::IfSet,
    },
];

/// Variables with headers to send along, and what stands between two of them.
const HEADERS: [(&str, &str); 3] = [
    ("ANTHROPIC_CUSTOM_HEADERS", "\n"),
    ("OPENAI_CUSTOM_HEADERS", "\n"),
    ("GEMINI_CLI_CUSTOM_HEADERS", ", "),
];

const PROXIES: [&str; 6] =
    ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];

/// A variable and the path, on the gateway, that it is to name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Road {
    pub(super) variable: &'static str,
    pub(super) path: String,
}

/// Whose run it is.
pub(super) struct Names<'a> {
    pub(super) agent: &'a str,
    pub(super) session: &'a str,
}

/// Headers that a shared server needs with each call.
#[derive(Default)]
pub(super) struct Shown {
    pub(super) key: Option<String>,
    pub(super) project: Option<String>,
}

type Variables = Vec<(String, String)>;

/// Sends the gateway's providers to where the environment sent the clients, and says which paths the
/// clients are to use.
pub(super) fn reroute(
    providers: &mut BTreeMap<String, RawProvider>,
    get: impl Fn(&str) -> Option<String>,
) -> Vec<Road> {
    let mut roads = Vec::new();
    for family in &FAMILIES {
        let mut first: Option<(String, String)> = None;
        let mut unset = Vec::new();
        for &variable in family.variables {
            let Some(url) = set(&get, variable) else {
                unset.push(variable);
                continue;
            };
            let (base, version) = match url.strip_suffix("/v1") {
                Some(base) if family.version == "/v1" => (base, "/v1"),
                _ => (url.as_str(), ""),
            };
            let name = match &first {
                Some((taken, _)) if taken != base => variable.to_lowercase().replace('_', "-"),
                _ => family.provider.to_owned(),
            };
            let path = format!("/{name}{version}");
            let provider = providers.entry(name).or_default();
            if provider.base_url.as_deref().map(|url| url.trim_end_matches('/')) != Some(base) {
                // A key that the configuration holds is for the address that stands beside it.
                *provider = RawProvider {
                    base_url: Some(base.to_owned()),
                    api: Some(family.api),
                    ..RawProvider::default()
                };
            }
            first.get_or_insert((base.to_owned(), path.clone()));
            roads.push(Road { variable, path });
        }
        if family.presence == Presence::Always {
            let usual = || format!("/{}{}", family.provider, family.version);
            let path = first.map_or_else(usual, |(_, path)| path);
            roads.extend(unset.into_iter().map(|variable| Road { variable, path: path.clone() }));
        }
    }
    roads
}

/// Whether the environment sends clients to an address that a server would not know.
pub(super) fn sends_elsewhere(get: impl Fn(&str) -> Option<String>) -> bool {
    let mut variables = FAMILIES.iter().flat_map(|family| family.variables);
    variables.any(|variable| set(&get, variable).is_some())
}

/// The variables for a private gateway.
pub(super) fn private(
    url: &str,
    roads: &[Road],
    names: &Names<'_>,
    get: impl Fn(&str) -> Option<String>,
) -> Variables {
    let mut variables = common(url, names, &get);
    for road in roads {
        variables.push((road.variable.to_owned(), format!("{url}{}", road.path)));
    }
    variables
}

/// The variables for a server that others use as well, and what the user should know about them.
pub(super) fn shared(
    url: &str,
    names: &Names<'_>,
    shown: &Shown,
    get: impl Fn(&str) -> Option<String>,
) -> (Variables, Vec<String>) {
    let mut variables = common(url, names, &get);
    let mut notes = Vec::new();
    let (agent, session) = (encoded(names.agent), encoded(names.session));
    let ours = format!("{url}/agent/{agent}/session/{session}");
    for family in &FAMILIES {
        for &variable in family.variables {
            let theirs = set(&get, variable).filter(|theirs| !theirs.starts_with(url));
            if family.presence == Presence::IfSet {
                notes.extend(theirs.map(|_| {
                    format!("{variable} is left as it is: those calls go past the server")
                }));
                continue;
            }
            let ours = format!("{ours}/{}{}", family.provider, family.version);
            // Not shown: an address may have a password in it.
            notes.extend(theirs.map(|_| {
                format!("{variable} is replaced: the server says where {} is", family.provider)
            }));
            variables.push((variable.to_owned(), ours));
        }
    }
    if let Some(key) = &shown.key {
        variables.push(("DEADSTOP_KEY".to_owned(), key.clone()));
    }
    if let Some(project) = &shown.project {
        variables.push(("DEADSTOP_PROJECT".to_owned(), project.clone()));
    }
    for (variable, between) in HEADERS {
        let headers = [
            ("x-deadstop-session", Some(names.session)),
            ("x-deadstop-key", shown.key.as_deref()),
            ("x-deadstop-project", shown.project.as_deref()),
        ];
        let ours =
            headers.into_iter().filter_map(|(name, value)| Some(format!("{name}: {}", value?)));
        let all: Vec<String> = set(&get, variable).into_iter().chain(ours).collect();
        variables.push((variable.to_owned(), all.join(between)));
    }
    (variables, notes)
}

/// What our own commands and SDKs look for, and the way past a proxy, which cannot reach us.
fn common(url: &str, names: &Names<'_>, get: impl Fn(&str) -> Option<String>) -> Variables {
    let mut variables: Variables = [
        ("DEADSTOP_SERVER", url),
        ("DEADSTOP_AGENT", names.agent),
        ("DEADSTOP_SESSION", names.session),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    if PROXIES.iter().any(|proxy| set(&get, proxy).is_some()) {
        let before = set(&get, "no_proxy").or_else(|| set(&get, "NO_PROXY"));
        let before = before.map(|hosts| format!("{hosts},")).unwrap_or_default();
        for name in ["no_proxy", "NO_PROXY"] {
            variables.push((name.to_owned(), format!("{before}127.0.0.1,localhost")));
        }
    }
    variables
}

/// A variable's value, if there is something in it; without a slash at the end.
fn set(get: impl Fn(&str) -> Option<String>, variable: &str) -> Option<String> {
    let value = get(variable)?;
    let value = value.trim().trim_end_matches('/');
    (!value.is_empty()).then(|| value.to_owned())
}

/// A name as one part of a path.
fn encoded(name: &str) -> String {
    let mut path = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                path.push(char::from(byte));
            }
            other => path.push_str(&format!("%{other:02X}")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names<'_> = Names { agent: "my bot", session: "run-1" };

    fn environment(pairs: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        let pairs: BTreeMap<String, String> =
            pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        move |name| pairs.get(name).cloned()
    }

    /// What the client is told and where the gateway sends it, put together again.
    fn check(variable: &'static str, value: &str, path: &str, upstream: &str) {
        let mut providers = BTreeMap::new();
        let roads = reroute(&mut providers, environment(&[(variable, value)]));
        let road = roads.iter().find(|road| road.variable == variable).unwrap();
        assert_eq!(road.path, path, "{value}");
        let name = path.split('/').nth(1).unwrap();
        assert_eq!(providers[name].base_url.as_deref(), Some(upstream), "{value}");
        let rest = road.path.strip_prefix(&format!("/{name}")).unwrap();
        assert_eq!(format!("{upstream}{rest}"), value.trim_end_matches('/'));
    }

    #[test]
    fn the_same_place_is_reached_with_us_and_without() {
        check("OPENAI_BASE_URL", "http://h/x/v1", "/openai/v1", "http://h/x");
        check("OPENAI_BASE_URL", "http://h/v1/", "/openai/v1", "http://h");
        check("OPENAI_BASE_URL", "https://g/v1beta/openai", "/openai", "https://g/v1beta/openai");
        check("OPENAI_API_BASE", "http://h/v1", "/openai/v1", "http://h");
        check("ANTHROPIC_BASE_URL", "http://h", "/anthropic", "http://h");
        check("ANTHROPIC_BASE_URL", "http://h/v1", "/anthropic", "http://h/v1");
        check("GOOGLE_GEMINI_BASE_URL", "http://h/g", "/gemini", "http://h/g");
        check("COPILOT_PROVIDER_BASE_URL", "http://own/v1", "/copilot/v1", "http://own");
        check("AZURE_OPENAI_ENDPOINT", "https://me.azure", "/azure", "https://me.azure");
    }

    #[test]
    fn nothing_set_means_the_known_providers() {
        let mut providers = BTreeMap::new();
        let roads = reroute(&mut providers, environment(&[("OPENAI_BASE_URL", " ")]));
        let shown: Vec<_> = roads.iter().map(|r| (r.variable, r.path.as_str())).collect();
        assert_eq!(
            shown,
            [
                ("OPENAI_BASE_URL", "/openai/v1"),
                ("OPENAI_API_BASE", "/openai/v1"),
                ("ANTHROPIC_BASE_URL", "/anthropic"),
                ("ANTHROPIC_API_BASE", "/anthropic"),
                ("GOOGLE_GEMINI_BASE_URL", "/gemini"),
            ]
        );
        assert!(providers.is_empty());
    }

    #[test]
    fn two_names_for_two_places_stay_two() {
        let mut providers = BTreeMap::new();
        let both = [("OPENAI_BASE_URL", "http://a/v1"), ("OPENAI_API_BASE", "http://b/v1")];
        let roads = reroute(&mut providers, environment(&both));
        assert_eq!(roads[0].path, "/openai/v1");
        assert_eq!(roads[1].path, "/openai-api-base/v1");
        assert_eq!(providers["openai-api-base"].base_url.as_deref(), Some("http://b"));
    }

    #[test]
    fn a_configured_key_goes_to_its_own_address_only() {
        for (configured, kept) in [("http://a/", true), ("http://b", false)] {
            let held = RawProvider {
                base_url: Some(configured.into()),
                api_key_env: Some("KEY".into()),
                ..RawProvider::default()
            };
            let mut providers = BTreeMap::from([("openai".to_owned(), held)]);
            reroute(&mut providers, environment(&[("OPENAI_BASE_URL", "http://a/v1")]));
            assert_eq!(providers["openai"].api_key_env.is_some(), kept, "{configured}");
            assert_eq!(
                providers["openai"].base_url.as_deref().unwrap().trim_end_matches('/'),
                "http://a"
            );
        }
    }

    #[test]
    fn a_shared_server_is_told_by_path_and_header() {
        let theirs = [
            ("OPENAI_BASE_URL", "http://elsewhere/v1"),
            ("ANTHROPIC_BASE_URL", "http://s/anthropic"),
            ("ANTHROPIC_CUSTOM_HEADERS", "a: b"),
            ("HTTPS_PROXY", "http://proxy"),
            ("NO_PROXY", "internal"),
        ];
        let (variables, notes) =
            shared("http://s", &NAMES, &Shown::default(), environment(&theirs));
        let get = |name: &str| variables.iter().find(|(n, _)| n == name).unwrap().1.as_str();
        assert_eq!(get("OPENAI_BASE_URL"), "http://s/agent/my%20bot/session/run-1/openai/v1");
        assert_eq!(get("ANTHROPIC_BASE_URL"), "http://s/agent/my%20bot/session/run-1/anthropic");
        assert_eq!(get("ANTHROPIC_CUSTOM_HEADERS"), "a: b\nx-deadstop-session: run-1");
        assert_eq!(get("DEADSTOP_SESSION"), "run-1");
        assert_eq!(get("no_proxy"), "internal,127.0.0.1,localhost");
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("OPENAI_BASE_URL is replaced"), "{notes:?}");
    }
}
