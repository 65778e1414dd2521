//! ID tokens: signed by the provider, for this server, for this sign-in, and not too old.

use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};

use super::Sso;
use crate::api::auth::key;

/// How far clocks may differ.
const LEEWAY_SECONDS: u64 = 30;

/// Why a token is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadToken {
    #[error("{0}")]
    Invalid(#[from] jsonwebtoken::errors::Error),
    #[error("it is signed with {0:?}, which is not a signature by a public key")]
    Algorithm(Algorithm),
    #[error("the provider has no key of its id")]
    UnknownKey,
    #[error("it is of another sign-in")]
    Nonce,
    #[error("it was made for another client")]
    Party,
    #[error("it does not say who signed in")]
    Nameless,
}

/// A person who has signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Person {
    /// Who it is for the provider; never another person's.
    pub(crate) subject: String,
    /// What people call them.
    pub(crate) name: String,
    /// The groups that they are in.
    pub(crate) groups: Vec<String>,
}

/// The person that a token tells of.
pub(crate) fn verify(
    token: &str,
    keys: &JwkSet,
    sso: &Sso,
    nonce: &str,
) -> Result<Person, BadToken> {
    let header = decode_header(token)?;
    let fits = |jwk: &&Jwk| suits(&jwk.algorithm, header.alg);
    let mut fitting = keys.keys.iter().filter(fits);
    let jwk = match &header.kid {
        Some(id) => fitting.find(|jwk| jwk.common.key_id.as_ref() == Some(id)),
        // Without an id it is the only one, or it cannot be known.
        None => fitting.next().filter(|_| fitting.next().is_none()),
    };
    if matches!(header.alg, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512) {
        return Err(BadToken::Algorithm(header.alg));
    }
    let key = DecodingKey::from_jwk(jwk.ok_or(BadToken::UnknownKey)?)?;
    let mut wanted = Validation::new(header.alg);
    wanted.leeway = LEEWAY_SECONDS;
    wanted.validate_nbf = true;
    wanted.set_audience(&[&sso.client_id]);
    wanted.set_issuer(&[&sso.issuer]);
    wanted.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
    let claims = decode::<Map<String, Value>>(token, &key, &wanted)?.claims;
    let text =
        |name: &str| claims.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    if !text("nonce").is_some_and(|said| key::same(said, nonce)) {
        return Err(BadToken::Nonce);
    }
    let many = claims.get("aud").and_then(Value::as_array).is_some_and(|all| all.len() > 1);
    let party = text("azp");
    if party.map_or(many, |party| party != sso.client_id) {
        return Err(BadToken::Party);
    }
    let subject = text("sub").ok_or(BadToken::Nameless)?.to_owned();
    // An address that the provider has not verified could be anyone's.
    let verified = claims.get("email_verified").is_none_or(|said| *said == Value::Bool(true));
    let email = text("email").filter(|_| verified);
    let name = email.or_else(|| text("preferred_username")).or_else(|| text("name"));
    let groups = match claims.get(&sso.groups_claim) {
        Some(Value::Array(all)) => {
            all.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        Some(Value::String(one)) => vec![one.clone()],
        _ => Vec::new(),
    };
    Ok(Person { name: name.unwrap_or(&subject).to_owned(), subject, groups })
}

/// Whether a key makes signatures of this kind.
fn suits(key: &AlgorithmParameters, algorithm: Algorithm) -> bool {
    match algorithm {
        Algorithm::RS256 | Algorithm::RS384 | Algorithm::RS512 => {
            matches!(key, AlgorithmParameters::RSA(_))
        }
        Algorithm::PS256 | Algorithm::PS384 | Algorithm::PS512 => {
            matches!(key, AlgorithmParameters::RSA(_))
        }
        Algorithm::ES256 | Algorithm::ES384 => {
            matches!(key, AlgorithmParameters::EllipticCurve(_))
        }
        Algorithm::EdDSA => matches!(key, AlgorithmParameters::OctetKeyPair(_)),
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => false,
    }
}
