//! Claude Code's transcripts: events on lines, put together by session.
//!
//! What its files are like, as far as it matters here:
//! - An answer of the API is written as several events, one a block, with the same `message.id`;
//!   the usage is repeated on each. They are one answer and one usage.
//! - An event may be written twice, with the same `uuid`. It counts once.
//! - Sub-agents (`isSidechain`) write to the same session. Their calls are the session's calls;
//!   what they are told comes from an agent, not from a person.
//! - `isMeta` and `isCompactSummary` mark user messages that no person wrote.
//! - Other types of events (`system`, `summary`, `progress`, snapshots) are not part of what the
//!   model saw or did.

use std::collections::{HashMap, HashSet};

use deadstop_core::Digest;

use super::Trace;
use super::assemble::{Assembly, Speaker};
use super::record::Record;
use super::scalar::Scalar;

/// The sessions that were found in a file so far.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: Vec<Session>,
    by_id: HashMap<String, usize>,
    bytes: usize,
}

#[derive(Debug)]
struct Session {
    id: String,
    assembly: Assembly,
    seen: HashSet<Digest>,
}

impl Sessions {
    /// Takes an event, which came in so many bytes.
    pub(super) fn add_event(&mut self, mut event: Record<'_>, bytes: usize, line: usize) {
        let Some(mut message) = event.message.take() else { return };
        if !matches!(event.kind.as_str(), Some("user" | "assistant")) {
            return;
        }
        let session = event.session.words().or_else(|| event.streamed_session.words());
        let session = self.session(session, bytes, line);
        if let Some(uuid) = event.uuid.as_str()
            && !session.seen.insert(Digest::of(uuid.as_bytes()))
        {
            return;
        }
        if message.role == Scalar::Nothing {
            message.role = event.kind;
        }
        if message.timestamp == Scalar::Nothing {
            message.timestamp = event.timestamp;
        }
        if message.role.as_str() != Some("assistant") {
            let flags = [&event.is_sidechain, &event.is_meta, &event.is_summary];
            let by = match flags.iter().any(|flag| flag.is_set()) {
                true => Speaker::Program,
                false => Speaker::Person,
            };
            return session.assembly.add_said(*message, by);
        }
        if message.model.as_str() != Some("<synthetic>") {
            session.assembly.add_piece(*message);
        }
    }

    /// Takes a message that stands on a line of its own, outside of any session.
    pub(super) fn add_message(&mut self, message: Record<'_>, bytes: usize, line: usize) {
        self.session(None, bytes, line).assembly.add(message);
    }

    /// About how much memory the sessions take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The traces, in the order in which their sessions began.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Trace> + use<> {
        let sessions = std::mem::take(self);
        sessions
            .open
            .into_iter()
            .map(|session| Trace { id: session.id, ..session.assembly.finish() })
    }

    fn session(&mut self, id: Option<String>, bytes: usize, line: usize) -> &mut Session {
        /// What an event costs beyond its text.
        const OVERHEAD: usize = 256;
        self.bytes = self.bytes.saturating_add(bytes).saturating_add(OVERHEAD);
        let key = id.clone().unwrap_or_default();
        let index = *self.by_id.entry(key).or_insert_with(|| {
            let id = id.unwrap_or_else(|| format!("line-{line}"));
            let (assembly, seen) = (Assembly::default(), HashSet::new());
            self.open.push(Session { id, assembly, seen });
            self.open.len() - 1
        });
        &mut self.open[index]
    }
}
