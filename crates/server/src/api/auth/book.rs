//! Where keys and logins are kept: in memory, for a server that keeps nothing.

use std::collections::HashMap;

use deadstop_core::Time;
use parking_lot::Mutex;

use super::super::problem::{Code, Problem};
use super::Role;

/// A key as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRecord {
    /// What finds it.
    pub(crate) id: String,
    /// The project that it belongs to.
    pub(crate) project: String,
    /// What it may do.
    pub(crate) role: Role,
    /// What people call it.
    pub(crate) name: String,
    /// The only agent that it may be.
    pub(crate) agent: Option<String>,
    /// SHA-256 of its secret.
    pub(crate) hash: Vec<u8>,
    /// Who made it.
    pub(crate) created_by: String,
    /// When.
    pub(crate) created: Time,
    /// Since when it is no longer in force.
    pub(crate) revoked: Option<Time>,
}

/// A login as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Login {
    /// SHA-256 of the cookie's secret.
    pub(crate) hash: Vec<u8>,
    /// The key that it was opened with.
    pub(crate) key: String,
    /// The key's project.
    pub(crate) project: String,
    /// Since when.
    pub(crate) created: Time,
    /// Until when.
    pub(crate) expires: Time,
}

/// Why keys could not be looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) String);

impl From<Fault> for Problem {
    fn from(Fault(text): Fault) -> Problem {
        Problem::new(Code::StoreFailed, text)
    }
}

/// Where keys and logins are kept.
pub(crate) enum Book {
    /// In memory.
    Memory(Mutex<Memory>),
}

/// Keys and logins in memory.
#[derive(Default)]
pub(crate) struct Memory {
    keys: HashMap<String, KeyRecord>,
    logins: HashMap<Vec<u8>, Login>,
}

#[expect(clippy::unused_async, reason = "a database will answer in its own time")]
impl Book {
    /// Keeps them in memory.
    pub(crate) fn memory() -> Book {
        Book::Memory(Mutex::default())
    }

    /// Whether there is any key in force.
    pub(crate) async fn any_key(&self) -> Result<bool, Fault> {
        let Book::Memory(memory) = self;
        Ok(memory.lock().keys.values().any(|key| key.revoked.is_none()))
    }

    /// A key by its id, in force or not.
    pub(crate) async fn key(&self, id: &str) -> Result<Option<KeyRecord>, Fault> {
        let Book::Memory(memory) = self;
        Ok(memory.lock().keys.get(id).cloned())
    }

    /// All keys of a project, newest first.
    pub(crate) async fn keys(&self, project: &str) -> Result<Vec<KeyRecord>, Fault> {
        let Book::Memory(memory) = self;
        let mut keys: Vec<_> =
            memory.lock().keys.values().filter(|key| key.project == project).cloned().collect();
        keys.sort_by_key(|key| std::cmp::Reverse(key.created));
        Ok(keys)
    }

    /// Keeps a new key.
    pub(crate) async fn add_key(&self, key: &KeyRecord) -> Result<(), Fault> {
        let Book::Memory(memory) = self;
        memory.lock().keys.insert(key.id.clone(), key.clone());
        Ok(())
    }

    /// Takes a key of a project out of force; false if there is none.
    pub(crate) async fn revoke(&self, project: &str, id: &str, at: Time) -> Result<bool, Fault> {
        let Book::Memory(memory) = self;
        let mut memory = memory.lock();
        match memory.keys.get_mut(id).filter(|key| key.project == project) {
            None => Ok(false),
            Some(key) => {
                key.revoked.get_or_insert(at);
                memory.logins.retain(|_, login| login.key != id);
                Ok(true)
            }
        }
    }

    /// A login by the hash of its secret.
    pub(crate) async fn login(&self, hash: &[u8]) -> Result<Option<Login>, Fault> {
        let Book::Memory(memory) = self;
        Ok(memory.lock().logins.get(hash).cloned())
    }

    /// Keeps a new login.
    pub(crate) async fn add_login(&self, login: &Login) -> Result<(), Fault> {
        let Book::Memory(memory) = self;
        memory.lock().logins.insert(login.hash.clone(), login.clone());
        Ok(())
    }

    /// Ends a login.
    pub(crate) async fn end_login(&self, hash: &[u8]) -> Result<(), Fault> {
        let Book::Memory(memory) = self;
        memory.lock().logins.remove(hash);
        Ok(())
    }
}
