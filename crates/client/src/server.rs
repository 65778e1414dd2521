//! Which server is asked, as whom, about which project.

use std::fmt;
use std::path::Path;

use crate::error::ClientError;

/// The server that is asked when none is named.
pub const USUAL: &str = "http://127.0.0.1:4141";

/// Which server, as whom, about which project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its URL.
    pub url: String,
    /// The key to show.
    pub key: Option<Key>,
    /// The project, where the key does not decide it.
    pub project: Option<String>,
}

impl Server {
    /// The server at this URL.
    pub fn at(url: impl Into<String>) -> Server {
        Server { url: url.into(), key: None, project: None }
    }

    /// The server that the environment names: `DEADSTOP_SERVER`, `DEADSTOP_KEY_FILE` or
    /// `DEADSTOP_KEY`, `DEADSTOP_PROJECT`.
    pub fn from_env() -> Result<Server, ClientError> {
        let url = filled("DEADSTOP_SERVER").unwrap_or_else(|| USUAL.to_owned());
        let key = match filled("DEADSTOP_KEY_FILE") {
            Some(file) => Some(Key::read(Path::new(&file))?),
            None => filled("DEADSTOP_KEY").map(|text| Key::new(&text)).transpose()?,
        };
        Ok(Server { url, key, project: filled("DEADSTOP_PROJECT") })
    }

    /// Whether the user wrote `none` in place of a URL: no server is to be used.
    pub fn is_none(&self) -> bool {
        self.url.trim() == "none"
    }

    /// Whether the environment names a server.
    pub fn is_named() -> bool {
        filled("DEADSTOP_SERVER").is_some()
    }
}

/// A key. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// The key in this text.
    pub fn new(text: &str) -> Result<Key, ClientError> {
        let text = text.trim();
        match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Key(text.to_owned())),
            false => Err(ClientError::BadServer(
                "the key is empty or has characters that no key has: copy it again".to_owned(),
            )),
        }
    }

    /// The key in this file.
    pub fn read(file: &Path) -> Result<Key, ClientError> {
        let text = std::fs::read_to_string(file).map_err(|source| ClientError::BadKeyFile {
            path: file.display().to_string(),
            source,
        })?;
        Key::new(&text)
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// A variable of the environment that says something.
fn filled(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}
