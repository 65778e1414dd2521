//! Keys: `ds_<role letter>_<id>_<secret>`.
//!
//! The id finds the key, the secret proves it. What is kept is the secret's SHA-256: it is 256 bits
//! of the system's randomness, so there is nothing that a slow hash would protect.

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::Role;

/// Bytes of a secret.
const SECRET: usize = 32;
/// Bytes of an id.
const ID: usize = 10;
/// What every key begins with.
const PREFIX: &str = "ds";

/// The system gave no randomness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system has no source of randomness, so no secret can be created")]
pub(crate) struct NoRandomness;

/// A key that was just made; the only time that its text is known.
pub(crate) struct NewKey {
    /// What finds it.
    pub(crate) id: String,
    /// The hash of its secret.
    pub(crate) hash: Vec<u8>,
    /// The key itself, to be shown once.
    pub(crate) text: String,
}

impl NewKey {
    /// Makes a key for a role.
    pub(crate) fn make(role: Role) -> Result<NewKey, NoRandomness> {
        let (id, secret) = (random::<ID>()?, random::<SECRET>()?);
        let text = format!("{PREFIX}_{}_{id}_{secret}", role.letter());
        Ok(NewKey { id, hash: hash(&secret), text })
    }
}

/// A key from a request, split into id and secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BroughtKey<'a> {
    /// What finds it.
    pub(crate) id: &'a str,
    secret: &'a str,
}

impl<'a> BroughtKey<'a> {
    /// Takes a text apart; `None` if it cannot be a key of ours. The role letter is for people:
    /// what a key may do stands in the store.
    pub(crate) fn parse(text: &'a str) -> Option<BroughtKey<'a>> {
        let mut parts = text.split('_');
        let (prefix, letter) = (parts.next()?, parts.next()?);
        let (id, secret) = (parts.next()?, parts.next()?);
        let fine = prefix == PREFIX
            && letter.len() == 1
            && parts.next().is_none()
            && id.len() == encoded_len(ID)
            && secret.len() == encoded_len(SECRET);
        fine.then_some(BroughtKey { id, secret })
    }

    /// Whether the secret has this hash, compared in constant time.
    pub(crate) fn proves(&self, kept: &[u8]) -> bool {
        hash(self.secret).ct_eq(kept).into()
    }
}

/// The hash of a secret.
pub(crate) fn hash(secret: &str) -> Vec<u8> {
    Sha256::digest(secret.as_bytes()).to_vec()
}

/// The hash of a secret, as text.
pub(crate) fn digest(secret: &str) -> String {
    encode(&hash(secret))
}

/// Whether two texts are equal, compared in constant time.
pub(crate) fn same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

/// Random bytes from the system, as text.
pub(crate) fn random<const BYTES: usize>() -> Result<String, NoRandomness> {
    let mut bytes = [0u8; BYTES];
    getrandom::fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(encode(&bytes))
}

/// A secret of the usual length.
pub(crate) fn secret() -> Result<String, NoRandomness> {
    random::<SECRET>()
}

/// A second secret, derived from a first one that it does not reveal.
pub(crate) fn derived(purpose: &str, secret: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(purpose.as_bytes());
    hasher.update([0]);
    hasher.update(secret.as_bytes());
    encode(&hasher.finalize())
}

const fn encoded_len(bytes: usize) -> usize {
    (bytes * 8).div_ceil(5)
}

/// Base 32 in lower case: one double click marks all of it, and it can be read aloud.
fn encode(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut text = String::with_capacity(encoded_len(bytes.len()));
    let (mut buffer, mut bits) = (0u32, 0);
    for byte in bytes {
        buffer = buffer << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(LETTERS[(buffer >> bits & 31) as usize]));
        }
        buffer &= (1 << bits) - 1;
    }
    if bits > 0 {
        text.push(char::from(LETTERS[(buffer << (5 - bits) & 31) as usize]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_proves_itself_and_no_other() {
        let (one, other) = (NewKey::make(Role::Admin).unwrap(), NewKey::make(Role::Admin).unwrap());
        assert!(one.text.starts_with("ds_a_") && one.text != other.text && one.id != other.id);
        let brought = BroughtKey::parse(&one.text).unwrap();
        assert_eq!(brought.id, one.id);
        assert!(brought.proves(&one.hash) && !brought.proves(&other.hash));
        assert!(!brought.proves(&[]) && !one.text.contains(&encode(&one.hash)));
    }

    #[test]
    fn what_cannot_be_a_key_is_none() {
        let fine = NewKey::make(Role::Agent).unwrap().text;
        for text in [
            "",
            "ds",
            "ds_a",
            "sk-1234",
            "ds_a_short_short",
            &fine[1..],
            &fine[..fine.len() - 1],
            &format!("{fine}a"),
            &format!("{fine}_a"),
            &fine.replacen("ds_g", "ds_gg", 1),
            &fine.replacen("ds_", "dx_", 1),
        ] {
            assert!(BroughtKey::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn text_is_base_32() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "my"),
            (b"fo", "mzxq"),
            (b"foo", "mzxw6"),
            (b"foob", "mzxw6yq"),
            (b"fooba", "mzxw6ytb"),
            (b"foobar", "mzxw6ytboi"),
        ] {
            assert_eq!(encode(bytes), text);
            assert_eq!(encoded_len(bytes.len()), text.len());
        }
        assert_ne!(derived("csrf", "a"), derived("csrf", "b"));
        assert_ne!(derived("csrf", "a"), derived("other", "a"));
    }
}
