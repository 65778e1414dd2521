//! Single sign-on for the page: OpenID Connect, by the authorization code flow with PKCE.
//!
//! One secret in a cookie of the browser begins a sign-in; state, nonce and PKCE's verifier are derived
//! from it. So a server keeps nothing until the sign-in ends, and any node of a fleet can end it.
//! Machines do not come this way: they keep their keys.

mod provider;
mod token;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::api::auth::{Role, key};
use crate::config::{BadConfig, Secret};
pub(crate) use provider::Provider;

/// Where the provider sends the browser back to.
const CALLBACK: &str = "/api/sso/callback";
/// A group that every person is in.
const ANYONE: &str = "*";

/// `[sso]` as it was typed.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawSso {
    /// The provider: `https://login.example`.
    pub issuer: Option<String>,
    /// What the provider calls this server.
    pub client_id: Option<String>,
    /// The environment variable that holds the client's secret; none for a public client.
    pub client_secret_env: Option<String>,
    /// The address at which browsers reach this server.
    pub public_url: Option<String>,
    /// What is asked for.
    pub scopes: Option<Vec<String>>,
    /// The claim of the ID token that lists a person's groups.
    pub groups_claim: Option<String>,
    /// The project that people sign in to.
    pub project: Option<String>,
    /// Groups by role: `admin`, `operator`, `viewer`. `*` is any person that the provider knows.
    pub roles: BTreeMap<String, Vec<String>>,
}

/// How people sign in.
#[derive(Debug, Clone)]
pub struct Sso {
    pub(crate) issuer: String,
    pub(crate) client_id: String,
    pub(crate) secret: Option<Secret>,
    pub(crate) redirect: String,
    pub(crate) scopes: String,
    pub(crate) groups_claim: String,
    pub(crate) project: String,
    /// From the highest role to the lowest.
    roles: Vec<(Role, Vec<String>)>,
}

impl RawSso {
    /// What was typed, if it was, made valid.
    pub(crate) fn resolve(
        self,
        environment: &impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Sso>, BadConfig> {
        if self == RawSso::default() {
            return Ok(None);
        }
        let bad = |problem: &str| BadConfig::Sso(problem.to_owned());
        let issuer = self.issuer.ok_or_else(|| bad("no issuer; add `issuer = \"https://…\"`"))?;
        let client_id = self.client_id.ok_or_else(|| bad("no client_id"))?;
        let public = self.public_url.ok_or_else(|| {
            bad("no public_url; write the address at which browsers reach this server")
        })?;
        for (name, url) in [("issuer", &issuer), ("public_url", &public)] {
            if !is_private_enough(url) {
                return Err(BadConfig::Sso(format!(
                    "{name}: `{url}` is not an https:// URL (http:// is taken for this machine only)"
                )));
            }
        }
        let secret = self.client_secret_env.map(|variable| {
            let value = environment(&variable).filter(|value| !value.is_empty());
            let missing = || BadConfig::Sso(format!("the environment has no {variable}; set it"));
            value.map(Secret::new).ok_or_else(missing)
        });
        let mut roles = Vec::new();
        for (role, groups) in self.roles {
            let role = match role.as_str() {
                "admin" => Role::Admin,
                "operator" => Role::Operator,
                "viewer" => Role::Viewer,
                _ => return Err(bad("roles are `admin`, `operator` and `viewer`")),
            };
            roles.push((role, groups));
        }
        if roles.is_empty() {
            return Err(bad("no roles, so no person could sign in; add `viewer = [\"GROUP\"]`"));
        }
        roles.sort_by_key(|(role, _)| std::cmp::Reverse(*role));
        let scopes =
            self.scopes.unwrap_or_else(|| ["openid", "profile", "email"].map(str::to_owned).into());
        if !scopes.iter().any(|scope| scope == "openid") {
            return Err(bad("scopes must have `openid`"));
        }
        Ok(Some(Sso {
            client_id,
            secret: secret.transpose()?,
            redirect: format!("{}{CALLBACK}", public.trim_end_matches('/')),
            scopes: scopes.join(" "),
            groups_claim: self.groups_claim.unwrap_or_else(|| "groups".to_owned()),
            project: self.project.unwrap_or_else(|| deadstop_warden::DEFAULT_PROJECT.to_owned()),
            roles,
            issuer,
        }))
    }
}

impl Sso {
    /// The highest role that a person's groups give; `None` if none gives any.
    pub(crate) fn role(&self, groups: &[String]) -> Option<Role> {
        let fits = |wanted: &String| wanted == ANYONE || groups.contains(wanted);
        self.roles.iter().find(|(_, wanted)| wanted.iter().any(fits)).map(|(role, _)| *role)
    }
}

/// Whether what is sent to an address is not read on the way.
fn is_private_enough(url: &str) -> bool {
    let Some(uri) = crate::config::address(url) else { return false };
    let here = uri.host().is_some_and(crate::net::is_loopback);
    uri.scheme_str() == Some("https") || here
}

/// A sign-in that has begun: the secret in the browser's cookie, and what is derived from it.
pub(crate) struct Attempt(String);

impl Attempt {
    /// Begins one.
    pub(crate) fn begin() -> Result<Attempt, key::NoRandomness> {
        key::secret().map(Attempt)
    }

    /// The one that a cookie tells of.
    pub(crate) fn of(cookie: &str) -> Attempt {
        Attempt(cookie.to_owned())
    }

    /// The cookie's value.
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }

    /// What the provider gives back, so that the browser that began is the one that ends.
    pub(crate) fn state(&self) -> String {
        key::derived("sso state", &self.0)
    }

    /// What the ID token must hold, so that one of another sign-in is not taken.
    pub(crate) fn nonce(&self) -> String {
        key::derived("sso nonce", &self.0)
    }

    /// PKCE's verifier: the code is worth nothing without it.
    pub(crate) fn verifier(&self) -> String {
        key::derived("sso verifier", &self.0)
    }

    /// What the provider is told of the verifier.
    pub(crate) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier().as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(text: &str) -> Result<Option<Sso>, String> {
        let raw: RawSso = toml::from_str(text).unwrap();
        raw.resolve(&|name| (name == "SECRET").then(|| "s".to_owned())).map_err(|e| e.to_string())
    }

    const FINE: &str = "issuer = \"https://login.example\"\nclient_id = \"deadstop\"\n\
        public_url = \"https://deadstop.example/\"\n";

    #[test]
    fn groups_give_the_highest_role() {
        let roles =
            "[roles]\nviewer = [\"*\"]\nadmin = [\"root\"]\noperator = [\"sre\", \"oncall\"]";
        let sso = resolve(&format!("{FINE}{roles}")).unwrap().unwrap();
        assert_eq!(sso.redirect, "https://deadstop.example/api/sso/callback");
        for (groups, role) in [
            (&["sre", "root"][..], Role::Admin),
            (&["oncall"], Role::Operator),
            (&["Root"], Role::Viewer),
            (&[], Role::Viewer),
        ] {
            let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
            assert_eq!(sso.role(&groups), Some(role), "{groups:?}");
        }
        let sso = resolve(&format!("{FINE}[roles]\nviewer = [\"staff\"]")).unwrap().unwrap();
        assert_eq!(sso.role(&["sre".to_owned()]), None);
    }

    #[test]
    fn what_cannot_be_is_named() {
        assert!(resolve("").unwrap().is_none());
        let roles = "[roles]\nviewer = [\"*\"]";
        for (text, says) in [
            ("client_id = \"x\"".to_owned(), "no issuer"),
            (FINE.to_owned(), "no roles"),
            (format!("{FINE}[roles]\nroot = [\"*\"]"), "roles are `admin`"),
            (format!("{FINE}scopes = [\"email\"]\n{roles}"), "must have `openid`"),
            (format!("{FINE}client_secret_env = \"NONE\"\n{roles}"), "has no NONE"),
            (format!("{}{roles}", FINE.replace("https://l", "http://l")), "issuer: `http://login"),
        ] {
            let said = resolve(&text).unwrap_err();
            assert!(said.starts_with("sso: ") && said.contains(says), "{said}");
        }
        let here = FINE.replace("https://login.example", "http://127.0.0.1:1");
        assert!(resolve(&format!("{here}{roles}")).unwrap().is_some());
    }

    #[test]
    fn what_is_derived_does_not_tell_the_rest() {
        let attempt = Attempt::begin().unwrap();
        let all =
            [attempt.secret().to_owned(), attempt.state(), attempt.nonce(), attempt.verifier()];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one));
        }
        assert_eq!(Attempt::of(attempt.secret()).state(), attempt.state());
        assert!((43..=128).contains(&attempt.verifier().len()), "as PKCE wants it");
        assert_eq!(attempt.challenge().len(), 43);
    }
}
