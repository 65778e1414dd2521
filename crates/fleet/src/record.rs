//! A record: what Redis keeps of a scope under one key, and its version.

use deadstop_core::share::Held;
use deadstop_core::{BadBlob, ScopeState};
use serde::{Deserialize, Serialize};

/// Versions of each node that a record lists. A node that got no answer to a commit finds its
/// version here, however often other nodes have written since.
const REMEMBERED_EACH: usize = 4;
/// Versions of all nodes that a record lists.
const REMEMBERED: usize = 64;
/// Bits of a version that are its writer's mark: one half for the node, the other for the commit.
const MARK: u32 = 24;
/// The format in which records are written.
const FORM: u8 = 1;

/// The version of a record: how often it was written, and a mark of the last writer. Zero means
/// that there is no record.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize,
)]
pub struct Version(pub u64);

impl Version {
    /// The next version, with the mark of its writer.
    pub fn next(self, mark: u32) -> Version {
        Version(((self.count() + 1) << MARK) | (u64::from(mark) & ((1 << MARK) - 1)))
    }

    /// How often the record was written.
    pub fn count(self) -> u64 {
        self.0 >> MARK
    }

    /// The mark of one commit of a node. It is never zero.
    pub(crate) fn mark(node: u64, step: u64) -> u32 {
        let half = MARK / 2;
        (((1 + node % ((1 << half) - 1)) << half) | (step % (1 << half))) as u32
    }

    /// The same count with an empty mark. No record has such a version, so a commit that expects it
    /// always conflicts and learns the current record.
    pub(crate) fn unmarked(self) -> Version {
        Version(self.count() << MARK)
    }

    /// Whether the node of a mark wrote it, as far as marks tell.
    pub(crate) fn is_by(self, mark: u32) -> bool {
        self.writer() == u64::from(mark) >> (MARK / 2)
    }

    /// The node that wrote it, as far as the mark tells.
    fn writer(self) -> u64 {
        (self.0 & ((1 << MARK) - 1)) >> (MARK / 2)
    }
}

/// What the calls of one node have reserved in a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The node; empty for calls that any node may settle.
    pub node: String,
    /// What its calls have reserved.
    pub held: Held,
}

/// What Redis keeps of a scope.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The row number of the scope.
    pub number: i64,
    /// The versions of the last writes, oldest first.
    pub recent: Vec<Version>,
    /// Reservations by node. Empty for projects and agents, which keep them with their counters.
    pub parts: Vec<Part>,
    /// Bytes stored with the state that the engine does not read.
    pub attachment: Vec<u8>,
    /// The engine's state.
    pub state: ScopeState,
    /// A mark of the era in which the record was written: its writer had read the database in that
    /// era. Zero if unknown.
    pub era: u64,
}

#[derive(Serialize, Deserialize)]
struct Written<'a> {
    number: i64,
    recent: Vec<Version>,
    parts: Vec<Part>,
    #[serde(borrow)]
    attachment: &'a [u8],
    #[serde(borrow)]
    state: &'a [u8],
}

impl Record {
    /// The record as bytes, its format first. The state has a version number of its own, so that
    /// nodes of two releases can tell what they can read.
    pub fn to_bytes(&self) -> Vec<u8> {
        let state = self.state.to_blob();
        let written = Written {
            number: self.number,
            recent: self.recent.clone(),
            parts: self.parts.clone(),
            attachment: &self.attachment,
            state: &state,
        };
        let mut bytes = postcard::to_extend(&written, vec![FORM]).unwrap_or_default();
        // Appended at the end, where older releases ignore it.
        bytes.extend(self.era.to_le_bytes());
        bytes
    }

    /// Reads a record from bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Record, BadBlob> {
        let body = match bytes.split_first() {
            None => return Err(BadBlob::Empty),
            Some((&FORM, body)) => body,
            Some((&form, _)) => return Err(BadBlob::Version(form)),
        };
        let (written, rest): (Written<'_>, &[u8]) =
            postcard::take_from_bytes(body).map_err(|_| BadBlob::Damaged)?;
        let era = match rest {
            [] => 0,
            rest => u64::from_le_bytes(rest.try_into().map_err(|_| BadBlob::Damaged)?),
        };
        Ok(Record {
            era,
            number: written.number,
            recent: written.recent,
            parts: written.parts,
            attachment: written.attachment.to_vec(),
            state: ScopeState::from_blob(written.state)?,
        })
    }

    /// Adds a version to the list of recent writes.
    pub(crate) fn remember(&mut self, version: Version) {
        let same = |other: &Version| other.writer() == version.writer();
        if self.recent.iter().filter(|other| same(other)).count() >= REMEMBERED_EACH
            && let Some(at) = self.recent.iter().position(same)
        {
            self.recent.remove(at);
        }
        if self.recent.len() >= REMEMBERED {
            self.recent.remove(0);
        }
        self.recent.push(version);
    }

    /// What the calls of a node have reserved.
    pub fn held_by(&self, node: &str) -> Held {
        self.parts.iter().find(|part| part.node == node).map(|part| part.held).unwrap_or_default()
    }

    /// Sets what the calls of a node have reserved.
    pub(crate) fn set_held(&mut self, node: &str, held: Held) {
        self.parts.retain(|part| part.node != node);
        if !held.is_empty() {
            self.parts.push(Part { node: node.to_owned(), held });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deadstop_core::{ScopeKind, Time};

    #[test]
    fn a_record_is_read_back() {
        let mut record = Record {
            number: 7,
            recent: Vec::new(),
            parts: Vec::new(),
            attachment: b"a conversation".to_vec(),
            state: ScopeState::new(ScopeKind::Session, Time(5)),
            era: 77,
        };
        for n in 1..20 {
            record.remember(Version(n));
        }
        record.set_held("n1", Held { calls: 1, cost: 5, ..Held::default() });
        record.set_held("n2", Held { calls: -1, ..Held::default() });
        record.set_held("n1", Held::default());
        assert_eq!((record.recent.len(), record.parts.len()), (REMEMBERED_EACH, 1));
        let bytes = record.to_bytes();
        assert_eq!(Record::from_bytes(&bytes).unwrap(), record);
        assert_eq!(Record::from_bytes(&bytes[..bytes.len() - 1]), Err(BadBlob::Damaged));
        // A record that does not tell its era.
        let before = Record::from_bytes(&bytes[..bytes.len() - 8]);
        assert_eq!(before, Ok(Record { era: 0, ..record }));
        assert_eq!(Record::from_bytes(&[9]), Err(BadBlob::Version(9)));
    }

    #[test]
    fn versions_grow_with_every_writer() {
        let first = Version::default().next(Version::mark(u64::MAX, u64::MAX));
        let second = first.next(Version::mark(0, 0));
        assert!(first < second);
        assert_eq!((first.count(), second.count()), (1, 2));
        assert_ne!(second, second.unmarked());
    }

    #[test]
    fn a_write_is_remembered_however_often_others_write() {
        let mut record = Record {
            number: 7,
            recent: Vec::new(),
            parts: Vec::new(),
            attachment: Vec::new(),
            state: ScopeState::new(ScopeKind::Session, Time(5)),
            era: 0,
        };
        let mine = Version::default().next(Version::mark(1, 9));
        record.remember(mine);
        let mut last = mine;
        for n in 0..200 {
            last = last.next(Version::mark(2 + n % 3, n));
            record.remember(last);
        }
        assert!(record.recent.contains(&mine) && record.recent.contains(&last));
        assert_eq!(record.recent.len(), 1 + 3 * REMEMBERED_EACH);
    }
}
