//! Keys and logins: who may do what. Secrets are not here, only their digests.

use deadstop_core::Time;

use crate::audit::{self, AuditEvent};
use crate::backend::{Row, sql};
use crate::{Store, StoreError};

/// A key's or a login's last use is written at most so often.
const TOUCH_MS: u64 = 60_000;

/// What a key may be used for, from little to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Reading metrics.
    Metrics,
    /// Calls, and its own session.
    Agent,
    /// Looking.
    Viewer,
    /// Stopping and starting.
    Operator,
    /// Everything.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 5] =
        [Role::Metrics, Role::Agent, Role::Viewer, Role::Operator, Role::Admin];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Role::Metrics => "metrics",
            Role::Agent => "agent",
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    /// The role that a word means.
    pub fn named(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// A key as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    /// The part of it that is no secret.
    pub id: String,
    /// The project it is for.
    pub project: String,
    /// What it may be used for.
    pub role: Role,
    /// The agent it is bound to, if it is.
    pub agent: Option<String>,
    /// What people call it.
    pub name: String,
    /// The SHA-256 of its secret.
    pub digest: Vec<u8>,
    /// When it was made.
    pub made: Time,
    /// Who made it.
    pub made_by: String,
    /// When it was last used, to the minute.
    pub used: Option<Time>,
    /// When it was revoked.
    pub revoked: Option<Time>,
    /// Who revoked it.
    pub revoked_by: Option<String>,
}

/// How many keys there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyCount {
    /// All that were ever made.
    pub ever: u64,
    /// Those that were not revoked.
    pub live: u64,
}

/// A browser that is logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLogin {
    /// A digest of the cookie.
    pub id: String,
    /// The project it is for.
    pub project: String,
    /// The key it was made with.
    pub key: String,
    /// What a page has to send along with every change.
    pub csrf: String,
    /// When it began.
    pub made: Time,
    /// When it was last used, to the minute.
    pub used: Time,
    /// When it ends.
    pub expires: Time,
}

impl StoredKey {
    /// Who has made what a person signs in with, in place of a name.
    pub const SIGN_ON: &str = "single sign-on";

    /// Whether it belongs to a person who signs in through an OpenID provider: it has no text.
    pub fn is_person(&self) -> bool {
        self.made_by == StoredKey::SIGN_ON
    }
}

impl Store {
    /// Keeps what a person who signs in may do now; false if that was revoked.
    pub async fn put_person(&self, key: &StoredKey) -> Result<bool, StoreError> {
        let query = sql("INSERT INTO keys (id, project, role, agent, name, digest, made_ms, \
             made_by, used_ms) VALUES ($1, $2, $3, NULL, $4, $5, $6, $7, $8) \
             ON CONFLICT (id) DO UPDATE SET project = $2, role = $3, name = $4, used_ms = $8 \
             WHERE keys.revoked_ms IS NULL");
        let query = query
            .bind(&key.id)
            .bind(&key.project)
            .bind(key.role.name())
            .bind(&key.name)
            .bind(key.digest.as_slice())
            .bind(key.made)
            .bind(&key.made_by)
            .bind(key.used);
        self.change(query, None).await.map(|changed| changed > 0)
    }

    /// Keeps a new key.
    pub async fn create_key(
        &self,
        key: &StoredKey,
        audit: Option<&AuditEvent>,
    ) -> Result<(), StoreError> {
        let query = sql("INSERT INTO keys (id, project, role, agent, name, digest, made_ms, \
             made_by, used_ms, revoked_ms, revoked_by) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (id) DO NOTHING");
        let query = query
            .bind(&key.id)
            .bind(&key.project)
            .bind(key.role.name())
            .bind(&key.agent)
            .bind(&key.name)
            .bind(key.digest.as_slice())
            .bind(key.made)
            .bind(&key.made_by)
            .bind(key.used)
            .bind(key.revoked)
            .bind(&key.revoked_by);
        match self.change(query, audit).await? {
            0 => Err(StoreError::Exists("a key of this id")),
            _ => Ok(()),
        }
    }

    /// The keys of a project, oldest first, with those that were revoked.
    pub async fn keys(&self, project: &str) -> Result<Vec<StoredKey>, StoreError> {
        let query = sql("SELECT * FROM keys WHERE project = $1 ORDER BY made_ms, id LIMIT 10000");
        self.backend.rows(query.bind(project)).await?.iter().map(read_key).collect()
    }

    /// A key by its id, of whatever project: it says itself which.
    pub async fn key(&self, id: &str) -> Result<Option<StoredKey>, StoreError> {
        let found = self.backend.row(sql("SELECT * FROM keys WHERE id = $1").bind(id)).await?;
        found.as_ref().map(read_key).transpose()
    }

    /// Revokes a key and ends the logins made with it; false if there is none, or not any more.
    pub async fn revoke_key(
        &self,
        project: &str,
        id: &str,
        who: &str,
        at: Time,
        audit: Option<&AuditEvent>,
    ) -> Result<bool, StoreError> {
        let mut tx = self.backend.begin().await?;
        let query = sql("UPDATE keys SET revoked_ms = $1, revoked_by = $2 \
             WHERE id = $3 AND project = $4 AND revoked_ms IS NULL");
        if tx.run(query.bind(at).bind(who).bind(id).bind(project)).await? == 0 {
            tx.undo().await?;
            return Ok(false);
        }
        tx.run(sql("DELETE FROM logins WHERE key_id = $1").bind(id)).await?;
        audit::append(&mut tx, audit).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Notes that a key was used.
    pub async fn touch_key(&self, id: &str, at: Time) -> Result<(), StoreError> {
        let query = sql("UPDATE keys SET used_ms = $1 \
             WHERE id = $2 AND (used_ms IS NULL OR used_ms <= $3)");
        let before = at.0.saturating_sub(TOUCH_MS);
        self.backend.run(query.bind(at).bind(id).bind(before)).await?;
        Ok(())
    }

    /// How many keys there are, in all projects together.
    pub async fn count_keys(&self) -> Result<KeyCount, StoreError> {
        let query = sql("SELECT COUNT(*) AS ever, COUNT(*) - COUNT(revoked_ms) AS live FROM keys");
        let Some(row) = self.backend.row(query).await? else { return Ok(KeyCount::default()) };
        Ok(KeyCount { ever: row.unsigned("ever")?, live: row.unsigned("live")? })
    }

    /// Keeps a new login.
    pub async fn create_login(
        &self,
        login: &StoredLogin,
        audit: Option<&AuditEvent>,
    ) -> Result<(), StoreError> {
        let query = sql("INSERT INTO logins (id, project, key_id, csrf, made_ms, used_ms, \
             expires_ms) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO NOTHING");
        let query = query
            .bind(&login.id)
            .bind(&login.project)
            .bind(&login.key)
            .bind(&login.csrf)
            .bind(login.made)
            .bind(login.used)
            .bind(login.expires);
        match self.change(query, audit).await? {
            0 => Err(StoreError::Exists("a login of this id")),
            _ => Ok(()),
        }
    }

    /// A login that has not ended.
    pub async fn login(&self, id: &str, now: Time) -> Result<Option<StoredLogin>, StoreError> {
        let query = sql("SELECT * FROM logins WHERE id = $1 AND expires_ms > $2");
        let found = self.backend.row(query.bind(id).bind(now)).await?;
        found.as_ref().map(read_login).transpose()
    }

    /// Notes that a login was used.
    pub async fn touch_login(&self, id: &str, at: Time) -> Result<(), StoreError> {
        let query = sql("UPDATE logins SET used_ms = $1 WHERE id = $2 AND used_ms <= $3");
        let before = at.0.saturating_sub(TOUCH_MS);
        self.backend.run(query.bind(at).bind(id).bind(before)).await?;
        Ok(())
    }

    /// Ends a login; false if there was none.
    pub async fn end_login(
        &self,
        id: &str,
        audit: Option<&AuditEvent>,
    ) -> Result<bool, StoreError> {
        Ok(self.change(sql("DELETE FROM logins WHERE id = $1").bind(id), audit).await? > 0)
    }
}

fn read_key(row: &Row) -> Result<StoredKey, StoreError> {
    let role = row.get::<String>("role")?;
    Ok(StoredKey {
        id: row.get("id")?,
        project: row.get("project")?,
        role: Role::named(&role).ok_or_else(|| StoreError::unreadable("role"))?,
        agent: row.get("agent")?,
        name: row.get("name")?,
        digest: row.get("digest")?,
        made: Time(row.unsigned("made_ms")?),
        made_by: row.get("made_by")?,
        used: row.maybe_unsigned("used_ms")?.map(Time),
        revoked: row.maybe_unsigned("revoked_ms")?.map(Time),
        revoked_by: row.get("revoked_by")?,
    })
}

fn read_login(row: &Row) -> Result<StoredLogin, StoreError> {
    Ok(StoredLogin {
        id: row.get("id")?,
        project: row.get("project")?,
        key: row.get("key_id")?,
        csrf: row.get("csrf")?,
        made: Time(row.unsigned("made_ms")?),
        used: Time(row.unsigned("used_ms")?),
        expires: Time(row.unsigned("expires_ms")?),
    })
}
