//! The operator's token: what tells the operator from the agents on a server without keys.
//!
//! Every process of the machine reaches a loopback server, the agents included. An order that
//! tightens control (kill, pause) is taken from each of them. An order that loosens control takes this
//! token. It lies in a file that only its owner can read; `deadstop` reads it by itself, and a
//! browser gets a cookie for it through a sign-in link, which works once.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use deadstop_core::{Millis, Time};
use parking_lot::Mutex;

use crate::api::auth::key;
use crate::config::Secret;
use deadstop_warden::now;

/// The header that carries the token.
pub const OPERATOR_HEADER: &str = "x-deadstop-operator";
/// A token that an operator chose must have so many characters.
const SHORTEST: usize = 16;
/// A file that is longer holds no token.
const LONGEST: u64 = 4096;
/// How long a sign-in link may wait for its browser.
const LINK: Millis = Millis::from_secs(12 * 60 * 60);
/// How long a browser stays signed in.
const SIGNED_IN: Millis = Millis::from_secs(12 * 60 * 60);
/// What every sign-in code begins with.
const CODE: &str = "ds_link";
/// What the cookie of an operator begins with.
const COOKIE: &str = "op";
/// Used links that are remembered; each is forgotten when it is too old to work anyway.
const MOST_USED: usize = 10_000;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or made.
    #[error("cannot use the operator's token in {0}: {1}")]
    File(String, std::io::Error),
    /// Too short, or not a header's text.
    #[error("the operator's token must have at least {SHORTEST} characters, without spaces")]
    Weak,
    /// Nothing secret can be made.
    #[error("the system has no source of randomness, so no secret can be created")]
    NoRandomness,
}

/// The operator's token. It does not show itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorToken(Secret);

impl OperatorToken {
    /// A token that was given as text.
    pub fn new(text: &str) -> Result<OperatorToken, TokenError> {
        let text = text.trim();
        let fine = text.len() >= SHORTEST && text.bytes().all(|byte| byte.is_ascii_graphic());
        if fine { Ok(OperatorToken(Secret::new(text))) } else { Err(TokenError::Weak) }
    }

    /// A token that lives in this process alone.
    pub fn random() -> Result<OperatorToken, TokenError> {
        let secret = key::secret().map_err(|_| TokenError::NoRandomness)?;
        Ok(OperatorToken(Secret::new(format!("ds_operator_{secret}"))))
    }

    /// The token in a file.
    pub fn read(path: &Path) -> Result<OperatorToken, TokenError> {
        let failed = |error| TokenError::File(path.display().to_string(), error);
        let mut text = String::new();
        let file = File::open(path).map_err(failed)?;
        file.take(LONGEST).read_to_string(&mut text).map_err(failed)?;
        OperatorToken::new(&text)
    }

    /// The token in a file, which is made if there is none. Only its owner can read it. Two servers
    /// that start at once agree: the file appears whole, and the first one stays.
    pub fn read_or_make(path: &Path) -> Result<OperatorToken, TokenError> {
        match OperatorToken::read(path) {
            Err(TokenError::File(_, error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            other => return other,
        }
        let failed = |error| TokenError::File(path.display().to_string(), error);
        if let Some(folder) = path.parent() {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .map_err(failed)?;
        }
        let token = OperatorToken::random()?;
        let draft = path.with_extension(format!("{}.new", std::process::id()));
        let mut file = File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&draft)
            .map_err(failed)?;
        writeln!(file, "{}", token.reveal()).and_then(|()| file.sync_all()).map_err(failed)?;
        let placed = std::fs::hard_link(&draft, path);
        let _ = std::fs::remove_file(&draft);
        match placed {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(failed(error)),
            _ => OperatorToken::read(path),
        }
    }

    /// The token itself, for the wire.
    pub fn reveal(&self) -> &str {
        self.0.reveal()
    }

    /// Whether a text is this token.
    pub(crate) fn is(&self, text: &str) -> bool {
        self.0.is(text.trim())
    }

    /// The address that signs a browser in, once. What follows `#` stays in the browser.
    pub fn sign_in_link(&self, server: &str) -> Result<String, TokenError> {
        let code = self.signed(CODE, now() + LINK)?;
        Ok(format!("{}/sign-in#{code}", server.trim_end_matches('/')))
    }

    /// A text that only this token can have made, good until then.
    fn signed(&self, kind: &str, until: Time) -> Result<String, TokenError> {
        let nonce = key::random::<10>().map_err(|_| TokenError::NoRandomness)?;
        let mark = self.mark(kind, until.0, &nonce);
        Ok(format!("{kind}_{}_{nonce}_{mark}", until.0))
    }

    fn mark(&self, kind: &str, until: u64, nonce: &str) -> String {
        key::derived(&format!("{kind} {until} {nonce}"), self.reveal())
    }

    /// The number and the end of a text of this kind that we have signed and that is not too old.
    fn proved<'t>(&self, kind: &str, text: &'t str) -> Option<(&'t str, Time)> {
        let rest = text.trim().strip_prefix(kind)?.strip_prefix('_')?;
        let mut parts = rest.splitn(3, '_');
        let (until, nonce, mark) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
        let fine = key::same(mark, &self.mark(kind, until, nonce)) && Time(until) > now();
        fine.then_some((nonce, Time(until)))
    }
}

/// Proves who is the operator on a server without keys.
pub(crate) struct Operators {
    /// `None` where every process of this machine is the operator.
    token: Option<OperatorToken>,
    /// Links that were used, and until when they would work.
    used: Mutex<HashMap<String, Time>>,
}

impl Operators {
    pub(crate) fn new(token: Option<OperatorToken>) -> Operators {
        Operators { token, used: Mutex::default() }
    }

    /// Whether every process of this machine is the operator.
    pub(crate) fn everybody(&self) -> bool {
        self.token.is_none()
    }

    /// Whether a text is the token.
    pub(crate) fn is_token(&self, text: &str) -> bool {
        self.token.as_ref().is_some_and(|token| token.is(text))
    }

    /// The cookie for a browser that brings the token or an unused link.
    pub(crate) fn sign_in(&self, text: &str) -> Option<String> {
        let token = self.token.as_ref()?;
        if !token.is(text) {
            let (nonce, until) = token.proved(CODE, text)?;
            let mut used = self.used.lock();
            used.retain(|_, until| *until > now());
            if used.len() >= MOST_USED || used.insert(nonce.to_owned(), until).is_some() {
                return None;
            }
        }
        token.signed(COOKIE, now() + SIGNED_IN).ok()
    }

    /// Whether a text was meant as a sign-in of the operator.
    pub(crate) fn is_sign_in(text: &str) -> bool {
        text.trim().starts_with(CODE)
    }

    /// Whether a cookie is of this kind.
    pub(crate) fn is_cookie(text: &str) -> bool {
        text.strip_prefix(COOKIE).is_some_and(|rest| rest.starts_with('_'))
    }

    /// The token that changes must bring along with this cookie; `None` if it is not in force.
    pub(crate) fn by_cookie(&self, cookie: &str) -> Option<String> {
        self.token.as_ref()?.proved(COOKIE, cookie)?;
        Some(key::derived("csrf", cookie))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_made_once_and_is_private() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("state/deadstop/operator-token");
        let made = OperatorToken::read_or_make(&path).unwrap();
        assert_eq!(OperatorToken::read_or_make(&path).unwrap(), made);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        std::fs::write(&path, "short\n").unwrap();
        assert!(matches!(OperatorToken::read_or_make(&path), Err(TokenError::Weak)));
    }

    #[test]
    fn a_link_signs_in_once_and_a_cookie_is_of_one_token() {
        let token = OperatorToken::random().unwrap();
        let operators = Operators::new(Some(token.clone()));
        let link = token.sign_in_link("http://127.0.0.1:1/").unwrap();
        let code = link.strip_prefix("http://127.0.0.1:1/sign-in#").unwrap();
        let cookie = operators.sign_in(code).unwrap();
        assert!(operators.sign_in(code).is_none(), "a link works once");
        assert!(operators.by_cookie(&cookie).is_some());
        assert!(operators.by_cookie(code).is_none() && operators.sign_in(&cookie).is_none());
        let later = cookie.replacen("op_1", "op_2", 1);
        assert!(operators.by_cookie(&later).is_none(), "its end is signed, too");
        let other = Operators::new(Some(OperatorToken::random().unwrap()));
        assert!(other.by_cookie(&cookie).is_none() && other.sign_in(token.reveal()).is_none());
        assert!(operators.sign_in(token.reveal()).is_some());
        let old = token.signed(COOKIE, Time(now().0 - 1)).unwrap();
        assert!(operators.by_cookie(&old).is_none());
    }
}
