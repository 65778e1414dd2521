//! The audit log: who did what, when and why. Listed, verified (no entry was changed), exported.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use deadstop_protocol::policy_views::FieldFault;
use deadstop_store::{AuditEntry, AuditFilter, Head, Store, StoreError, Verified};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::auth::Who;
use super::extract::{Asked, AskedBoth, Page, Paged};
use super::problem::{Code, Problem};

/// Entries that are read at a time for an export.
const STRIDE: u32 = 1000;

/// An entry.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Entry {
    /// Its place in the chain, from one.
    seq: i64,
    /// Its number, which is hashed with it.
    number: String,
    /// The project.
    project: String,
    /// When.
    at_ms: u64,
    /// Who.
    who: String,
    /// What was done, such as `agent.kill`.
    action: String,
    /// What it was done to.
    subject: String,
    /// Why, in their words.
    reason: String,
    /// Anything else.
    detail: Value,
    /// The same word for word, as it is hashed.
    detail_text: String,
    /// The hash of the entry before; empty for the first.
    prev: String,
    /// The hash of this one.
    hash: String,
}

impl From<AuditEntry> for Entry {
    fn from(entry: AuditEntry) -> Entry {
        let event = entry.event;
        Entry {
            seq: entry.seq,
            number: event.number.to_string(),
            project: event.project,
            at_ms: event.at.0,
            who: event.who,
            action: event.action,
            subject: event.subject,
            reason: event.reason,
            detail: serde_json::from_str(&event.detail).unwrap_or_default(),
            detail_text: event.detail,
            prev: entry.prev,
            hash: entry.hash,
        }
    }
}

/// Which entries.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditAsked {
    /// Only what was done by this one.
    #[param(max_length = 400)]
    who: Option<String>,
    /// Only this kind of thing.
    #[param(max_length = 100)]
    action: Option<String>,
    /// Only what was done to this.
    #[param(max_length = 400)]
    subject: Option<String>,
    /// Not before this time, in milliseconds since 1970.
    #[param(minimum = 0)]
    from: Option<u64>,
    /// Before this time, in milliseconds since 1970.
    #[param(minimum = 0)]
    to: Option<u64>,
}

/// The audit, the newest first.
#[utoipa::path(
    get, path = "/api/audit", tag = "audit", params(Paged, AuditAsked),
    responses((status = 200, description = "A page of it", body = Page<Entry>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    who: Who,
    AskedBoth(paged, asked): AskedBoth<Paged, AuditAsked>,
) -> Result<Json<Page<Entry>>, Problem> {
    let AuditAsked { who: by, action, subject, from, to } = asked;
    let time = |ms: Option<u64>| ms.map(deadstop_core::Time);
    let period = deadstop_store::Period { from: time(from), to: time(to) };
    let filter = AuditFilter { who: by, action, subject, period };
    let found = app.store()?.audit_entries(&who.project, &filter, &paged.paging()).await?;
    Ok(Json(Page::of(found, Entry::from)))
}

/// Whether the chain is whole.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Chain {
    /// Whether every entry is as it was written.
    whole: bool,
    /// How many there are, up to the first that is wrong.
    entries: u64,
    /// The last one's hash. Note it elsewhere as `entries:head`, and give it as `since` later.
    #[schema(required)]
    head: Option<String>,
    /// The place of the first entry that is wrong.
    #[schema(required)]
    broken_at: Option<i64>,
    /// What is wrong with it.
    #[schema(required)]
    why: Option<&'static str>,
}

/// Checks the chain from its first entry to its last.
#[utoipa::path(
    get, path = "/api/audit/verify", tag = "audit", params(VerifyAsked),
    responses((status = 200, description = "What was found", body = Chain))
)]
pub(crate) async fn verify(
    State(app): State<Arc<App>>,
    who: Who,
    Asked(asked): Asked<VerifyAsked>,
) -> Result<Json<Chain>, Problem> {
    let store = app.store()?;
    let since = asked.since.as_deref().map(|since| {
        since_head(&who.project, since).ok_or_else(|| {
            let fault = FieldFault::invalid("since", "a head is SEQ:HASH, as `verify` prints it");
            Problem::fields(Code::InvalidQuery, vec![fault])
        })
    });
    let mut chain = check(store, &who.project, since.transpose()?.as_ref()).await?;
    if let (true, Some(anchor)) = (chain.whole, &app.anchor)
        && let Some(why) = anchor.fault(store, &who.project).await?
    {
        chain = chain.cut(why);
    }
    Ok(Json(chain))
}

/// From where on the chain must be the one that is known.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(crate) struct VerifyAsked {
    /// A head that was noted elsewhere, as SEQ:HASH: the chain must hold it.
    #[param(max_length = 100)]
    since: Option<String>,
}

/// A head as people note it.
pub(crate) fn since_head(project: &str, text: &str) -> Option<Head> {
    let (seq, hash) = text.trim().split_once(':')?;
    let fine = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (project, hash) = (project.to_owned(), hash.to_ascii_lowercase());
    let seq = seq.parse().ok().filter(|seq| *seq > 0)?;
    fine.then_some(Head { project, seq, hash })
}

impl Chain {
    /// The same where its end was cut off or replaced.
    fn cut(self, why: &'static str) -> Chain {
        let broken_at = i64::try_from(self.entries).ok().map(|entries| entries + 1);
        Chain { whole: false, head: None, broken_at, why: Some(why), ..self }
    }
}

/// Checks a project's chain, and that it holds a head that was noted elsewhere.
pub(crate) async fn check(
    store: &Store,
    project: &str,
    since: Option<&Head>,
) -> Result<Chain, StoreError> {
    let chain = whole(store, project).await?;
    match since {
        Some(head) if chain.whole && !store.holds_head(head).await? => {
            Ok(chain.cut("the chain does not hold the head that was noted elsewhere"))
        }
        _ => Ok(chain),
    }
}

async fn whole(store: &Store, project: &str) -> Result<Chain, StoreError> {
    Ok(match store.verify_audit(project).await? {
        Verified::Whole { entries, head } => {
            Chain { whole: true, entries, head: Some(head), broken_at: None, why: None }
        }
        Verified::Broken { seq, why } => Chain {
            whole: false,
            entries: u64::try_from(seq.saturating_sub(1)).unwrap_or_default(),
            head: None,
            broken_at: Some(seq),
            why: Some(why),
        },
    })
}

/// The whole audit, oldest first, one entry a line.
#[utoipa::path(
    get, path = "/api/audit/export", tag = "audit",
    responses((status = 200, description = "JSON, one entry a line", body = Entry, content_type = "application/x-ndjson"))
)]
pub(crate) async fn export(State(app): State<Arc<App>>, who: Who) -> Result<Response, Problem> {
    let store = app.store()?.clone();
    // Reads the first piece before it answers: if the database is away, the client gets an error
    // and no partial file.
    let first = piece(&store, &who.project, 0).await?;
    // If the database goes away later, the answer breaks off: half a chain must not look complete.
    let first = Ok(first);
    let rest = stream::unfold((store, who.project, first), |(store, project, piece)| async move {
        match piece {
            Ok(None) => None,
            Ok(Some((text, last))) => {
                let next = self::piece(&store, &project, last).await;
                Some((Ok(Bytes::from(text)), (store, project, next)))
            }
            Err(error) => Some((Err(error), (store, project, Ok(None)))),
        }
    });
    let kind = [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"audit.ndjson\""),
    ];
    Ok((kind, Body::from_stream(rest)).into_response())
}

/// The next entries as lines, and the place of the last one; nothing at the end.
pub(crate) async fn piece(
    store: &Store,
    project: &str,
    after: i64,
) -> Result<Option<(String, i64)>, StoreError> {
    let entries = store.audit_after(project, after, STRIDE).await?;
    let Some(last) = entries.last().map(|entry| entry.seq) else { return Ok(None) };
    let mut text = String::new();
    for entry in entries {
        text += &serde_json::to_string(&Entry::from(entry)).unwrap_or_default();
        text.push('\n');
    }
    Ok(Some((text, last)))
}
