//! The OpenID provider: what it says about itself, and the exchange of a code for an ID token.

use std::time::{Duration, Instant};

use bytes::Bytes;
use deadstop_alerts::Way;
use http::{Request, header};
use http_body_util::Full;
use jsonwebtoken::jwk::JwkSet;
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::token::{self, Person};
use super::{Attempt, Sso};
use crate::door::{Lines, fetch};

/// How long the provider may take for one answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// What the provider says about itself is believed so long.
const BELIEVED: Duration = Duration::from_secs(600);

/// Why a sign-in fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    #[error("the provider cannot be reached: {0}")]
    Unreachable(String),
    #[error("the provider's answer is not as OpenID Connect has it: {0}")]
    Unreadable(String),
    #[error("the provider refuses the code ({0})")]
    Refused(String),
    #[error("the ID token was rejected: {0}")]
    Token(#[from] token::BadToken),
}

/// What a provider says about itself.
#[derive(Debug, Clone, Deserialize)]
struct About {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

/// The provider that people sign in at.
pub(crate) struct Provider {
    pub(crate) sso: Sso,
    way: Way,
    about: Mutex<Option<(About, Instant)>>,
}

impl Provider {
    pub(crate) fn new(sso: Sso, way: Way) -> Provider {
        Provider { sso, way, about: Mutex::new(None) }
    }

    /// Where a browser goes to sign in.
    pub(crate) async fn address(&self, attempt: &Attempt) -> Result<String, Failed> {
        let about = self.about().await?;
        let query = form(&[
            ("response_type", "code"),
            ("client_id", &self.sso.client_id),
            ("redirect_uri", &self.sso.redirect),
            ("scope", &self.sso.scopes),
            ("state", &attempt.state()),
            ("nonce", &attempt.nonce()),
            ("code_challenge", &attempt.challenge()),
            ("code_challenge_method", "S256"),
        ]);
        let join = if about.authorization_endpoint.contains('?') { '&' } else { '?' };
        Ok(format!("{}{join}{query}", about.authorization_endpoint))
    }

    /// Who signed in, by the code that the browser brought back.
    pub(crate) async fn person(&self, code: &str, attempt: &Attempt) -> Result<Person, Failed> {
        let about = self.about().await?;
        let tokens: Tokens = self.exchange(&about, code, attempt).await?;
        let keys: JwkSet = self.get(&about.jwks_uri).await?;
        Ok(token::verify(&tokens.id_token, &keys, &self.sso, &attempt.nonce())?)
    }

    async fn about(&self) -> Result<About, Failed> {
        if let Some((about, at)) = &*self.about.lock()
            && at.elapsed() < BELIEVED
        {
            return Ok(about.clone());
        }
        let issuer = self.sso.issuer.trim_end_matches('/');
        let about: About = self.get(&format!("{issuer}/.well-known/openid-configuration")).await?;
        if about.issuer != self.sso.issuer {
            let told = format!("it calls itself {}, and not {}", about.issuer, self.sso.issuer);
            return Err(Failed::Unreadable(told));
        }
        *self.about.lock() = Some((about.clone(), Instant::now()));
        Ok(about)
    }

    async fn exchange(
        &self,
        about: &About,
        code: &str,
        attempt: &Attempt,
    ) -> Result<Tokens, Failed> {
        let verifier = attempt.verifier();
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &self.sso.redirect),
            ("client_id", &self.sso.client_id),
            ("code_verifier", &verifier),
        ];
        if let Some(secret) = &self.sso.secret {
            fields.push(("client_secret", secret.reveal()));
        }
        let request = Request::post(&about.token_endpoint)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::from(form(&fields)));
        let (status, body) = self.ask(request).await?;
        if !status.is_success() {
            let refusal = serde_json::from_slice::<Refusal>(&body);
            return Err(Failed::Refused(refusal.map_or(status.to_string(), |said| said.error)));
        }
        read(&body)
    }

    async fn get<T: DeserializeOwned>(&self, url: &str) -> Result<T, Failed> {
        let (status, body) = self.ask(Request::get(url).body(Full::default())).await?;
        match status.is_success() {
            true => read(&body),
            false => Err(Failed::Unreachable(format!("{url} answered {status}"))),
        }
    }

    async fn ask(
        &self,
        request: http::Result<Request<Full<Bytes>>>,
    ) -> Result<(http::StatusCode, Bytes), Failed> {
        let request = request.map_err(|error| Failed::Unreachable(error.to_string()))?;
        fetch(&Lines::new(), &self.way, request, PATIENCE).await.map_err(Failed::Unreachable)
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failed> {
    serde_json::from_slice(body).map_err(|error| Failed::Unreadable(error.to_string()))
}

/// Fields as a form has them.
fn form(fields: &[(&str, &str)]) -> String {
    let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let pairs = fields.iter().map(|(name, value)| format!("{name}={}", encode(*value)));
    pairs.collect::<Vec<_>>().join("&")
}
