//! The audit: who did what, when and why, as one chain of hashes a project.
//!
//! Every entry carries the hash of the one before, so nothing can be changed, left out or put
//! elsewhere without the next hash being wrong; and the chain's last entry is remembered apart, so
//! that cutting the end off shows as well.

use deadstop_core::{Time, hex};
use sha2::{Digest, Sha256};

use crate::backend::{Row, Tx, sql, storable};
use crate::page::{Page, Paging, Period};
use crate::{Store, StoreError};

/// Entries that are read at a time when a chain is checked.
const STRIDE: u32 = 1000;

/// One action of a person or a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    /// A number of the node, so that the same event is never written twice.
    pub number: i64,
    /// The project.
    pub project: String,
    /// When.
    pub at: Time,
    /// Who: a key's name, a guard, the local user.
    pub who: String,
    /// What was done, such as `agent.kill`.
    pub action: String,
    /// What it was done to.
    pub subject: String,
    /// Why, in their words.
    pub reason: String,
    /// Anything else, as JSON.
    pub detail: String,
}

/// An event in its chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its place in the project's chain, from one.
    pub seq: i64,
    /// What was done.
    pub event: AuditEvent,
    /// The hash of the entry before, in hex; empty for the first.
    pub prev: String,
    /// The hash of this entry, in hex.
    pub hash: String,
}

/// Which entries are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditFilter {
    /// Only what was done by this one.
    pub who: Option<String>,
    /// Only this kind of thing.
    pub action: Option<String>,
    /// Only what was done to this.
    pub subject: Option<String>,
    /// Only what was done in this span.
    pub period: Period,
}

/// The last entry of a project's chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The project.
    pub project: String,
    /// Its place.
    pub seq: i64,
    /// Its hash.
    pub hash: String,
}

/// What checking a chain has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verified {
    /// Every entry is as it was written.
    Whole {
        /// How many there are.
        entries: u64,
        /// The last one's hash; empty if there is none.
        head: String,
    },
    /// From here on it is not what was written.
    Broken {
        /// The place of the first entry that is wrong.
        seq: i64,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl AuditEntry {
    /// The hash that this entry must have: over all it says, each part with its length before it,
    /// and over the hash before.
    pub fn digest(&self) -> String {
        let event = &self.event;
        let mut hasher = Sha256::new();
        for number in [self.seq, event.number, i64::try_from(event.at.0).unwrap_or(i64::MAX)] {
            hasher.update(number.to_be_bytes());
        }
        let texts = [
            &event.project,
            &event.who,
            &event.action,
            &event.subject,
            &event.reason,
            &event.detail,
            &self.prev,
        ];
        for text in texts {
            hasher.update((text.len() as u64).to_be_bytes());
            hasher.update(text.as_bytes());
        }
        hex(&hasher.finalize())
    }
}

impl Store {
    /// Adds an event to its project's chain.
    pub async fn audit(&self, event: &AuditEvent) -> Result<(), StoreError> {
        let mut tx = self.backend.begin().await?;
        append(&mut tx, Some(event)).await?;
        tx.commit().await
    }

    /// The entries of a project, the newest first.
    pub async fn audit_entries(
        &self,
        project: &str,
        filter: &AuditFilter,
        paging: &Paging,
    ) -> Result<Page<AuditEntry>, StoreError> {
        let query = sql("SELECT * FROM audit")
            .with(" WHERE project = ", project)
            .with_some(" AND who = ", filter.who.as_ref())
            .with_some(" AND action = ", filter.action.as_ref())
            .with_some(" AND subject = ", filter.subject.as_ref())
            .with_some(" AND at_ms >= ", filter.period.from)
            .with_some(" AND at_ms < ", filter.period.to)
            .with_some(" AND seq < ", paging.number()?)
            .with(" ORDER BY seq DESC LIMIT ", paging.rows());
        let found = self.backend.rows(query).await?;
        let items = found.iter().map(read).collect::<Result<_, _>>()?;
        Ok(paging.page(items, |entry: &AuditEntry| entry.seq.to_string()))
    }

    /// The entries after a place, in their order: for exporting a chain piece by piece.
    pub async fn audit_after(
        &self,
        project: &str,
        seq: i64,
        most: u32,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        let query =
            sql("SELECT * FROM audit WHERE project = $1 AND seq > $2 ORDER BY seq LIMIT $3");
        let found = self.backend.rows(query.bind(project).bind(seq).bind(most)).await?;
        found.iter().map(read).collect()
    }

    /// The projects that have a chain.
    pub async fn audited_projects(&self) -> Result<Vec<String>, StoreError> {
        let query = sql("SELECT project FROM audit_heads UNION SELECT project FROM audit \
             ORDER BY project");
        self.backend.rows(query).await?.iter().map(|row| row.get("project")).collect()
    }

    /// The heads of all chains.
    pub async fn audit_heads(&self) -> Result<Vec<Head>, StoreError> {
        let query = sql("SELECT project, seq, hash FROM audit_heads ORDER BY project");
        let read = |row: &Row| {
            Ok(Head { project: row.get("project")?, seq: row.get("seq")?, hash: row.get("hash")? })
        };
        self.backend.rows(query).await?.iter().map(read).collect()
    }

    /// Whether a chain holds an entry that once was its last.
    pub async fn holds_head(&self, head: &Head) -> Result<bool, StoreError> {
        let query = sql("SELECT hash FROM audit WHERE project = $1 AND seq = $2");
        let found = self.backend.row(query.bind(&head.project).bind(head.seq)).await?;
        let hash: Option<String> = found.map(|row| row.get("hash")).transpose()?;
        Ok(hash.as_deref() == Some(&head.hash))
    }

    /// Checks a project's chain from its first entry to its last.
    pub async fn verify_audit(&self, project: &str) -> Result<Verified, StoreError> {
        // The head is read first, so that entries added meanwhile are no fault.
        let head = head(self, project).await?;
        let (mut seq, mut hash) = (0, String::new());
        loop {
            let entries = self.audit_after(project, seq, STRIDE).await?;
            for entry in &entries {
                let why = if entry.seq != seq + 1 {
                    Some("the entry is missing")
                } else if entry.prev != hash {
                    Some("the entry does not follow the one before")
                } else if entry.hash != entry.digest() {
                    Some("the entry was changed")
                } else if entry.seq == head.0 && entry.hash != head.1 {
                    Some("the entry is not the one that was written last")
                } else {
                    None
                };
                if let Some(why) = why {
                    return Ok(Verified::Broken { seq: seq + 1, why });
                }
                (seq, hash) = (entry.seq, entry.hash.clone());
            }
            if entries.is_empty() {
                break;
            }
        }
        if seq < head.0 {
            return Ok(Verified::Broken { seq: seq + 1, why: "the end of the chain was cut off" });
        }
        if head.0 == 0 && seq > 0 {
            return Ok(Verified::Broken { seq, why: "the chain's last entry is not remembered" });
        }
        Ok(Verified::Whole { entries: u64::try_from(seq).unwrap_or(0), head: hash })
    }
}

/// Adds events to their chains, in the caller's transaction. An event that is there stays as it is.
pub(crate) async fn append(
    tx: &mut Tx,
    events: impl IntoIterator<Item = &AuditEvent>,
) -> Result<(), StoreError> {
    for event in events {
        let query = sql("SELECT seq FROM audit WHERE project = $1 AND number = $2");
        if tx.row(query.bind(&event.project).bind(event.number)).await?.is_some() {
            continue;
        }
        // Taking the next place holds the chain until the end of the transaction.
        let query = sql("INSERT INTO audit_heads (project, seq, hash) VALUES ($1, 1, '') \
             ON CONFLICT (project) DO UPDATE SET seq = audit_heads.seq + 1 RETURNING seq, hash");
        let Some(place) = tx.row(query.bind(&event.project)).await? else { continue };
        let mut entry = AuditEntry {
            seq: place.get("seq")?,
            event: as_kept(event),
            prev: place.get("hash")?,
            hash: String::new(),
        };
        entry.hash = entry.digest();
        let event = &entry.event;
        let query = sql("INSERT INTO audit (project, seq, number, at_ms, who, action, subject, \
             reason, detail, prev, hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)");
        let query = query
            .bind(&event.project)
            .bind(entry.seq)
            .bind(event.number)
            .bind(event.at)
            .bind(&event.who)
            .bind(&event.action)
            .bind(&event.subject)
            .bind(&event.reason)
            .bind(&event.detail)
            .bind(&entry.prev)
            .bind(&entry.hash);
        tx.run(query).await?;
        let query = sql("UPDATE audit_heads SET hash = $1 WHERE project = $2");
        tx.run(query.bind(&entry.hash).bind(&event.project)).await?;
    }
    Ok(())
}

/// The event as the database will return it: that form is hashed.
fn as_kept(event: &AuditEvent) -> AuditEvent {
    let kept = |text: &str| storable(text).into_owned();
    AuditEvent {
        number: event.number,
        project: kept(&event.project),
        at: Time(event.at.0.min(i64::MAX as u64)),
        who: kept(&event.who),
        action: kept(&event.action),
        subject: kept(&event.subject),
        reason: kept(&event.reason),
        detail: kept(&event.detail),
    }
}

async fn head(store: &Store, project: &str) -> Result<(i64, String), StoreError> {
    let query = sql("SELECT seq, hash FROM audit_heads WHERE project = $1").bind(project);
    match store.backend.row(query).await? {
        Some(row) => Ok((row.get("seq")?, row.get("hash")?)),
        None => Ok((0, String::new())),
    }
}

fn read(row: &Row) -> Result<AuditEntry, StoreError> {
    Ok(AuditEntry {
        seq: row.get("seq")?,
        event: AuditEvent {
            number: row.get("number")?,
            project: row.get("project")?,
            at: Time(row.unsigned("at_ms")?),
            who: row.get("who")?,
            action: row.get("action")?,
            subject: row.get("subject")?,
            reason: row.get("reason")?,
            detail: row.get("detail")?,
        },
        prev: row.get("prev")?,
        hash: row.get("hash")?,
    })
}
