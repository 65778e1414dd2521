//! A record: what the store keeps under one key, and its version.

use deadstop_core::{BadBlob, Held, ScopeState};
use serde::{Deserialize, Serialize};

/// Writes of each node that a record remembers: whoever does not know whether its write arrived
/// finds it here, however often others have written since.
const REMEMBERED_EACH: usize = 4;
/// Writes that it remembers of all of them.
const REMEMBERED: usize = 64;
/// Bits of a version that are its writer's mark: one half for the node, one for the step.
const MARK: u32 = 24;
/// The form in which records are written.
const FORM: u8 = 1;

/// The version of a record: how often it was written, and a mark of who did it last. Zero is the
/// version of what is not there.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize,
)]
pub struct Version(pub u64);

impl Version {
    /// The next one, by a writer's mark.
    pub fn next(self, mark: u32) -> Version {
        Version(((self.count() + 1) << MARK) | (u64::from(mark) & ((1 << MARK) - 1)))
    }

    /// How often the record was written.
    pub fn count(self) -> u64 {
        self.0 >> MARK
    }

    /// The mark of a node's step. It is never zero.
    pub(crate) fn mark(node: u64, step: u64) -> u32 {
        let half = MARK / 2;
        (((1 + node % ((1 << half) - 1)) << half) | (step % (1 << half))) as u32
    }

    /// The same count by nobody: there is no such record.
    pub(crate) fn unmarked(self) -> Version {
        Version(self.count() << MARK)
    }

    /// The node that wrote it, as far as the mark tells.
    fn writer(self) -> u64 {
        (self.0 & ((1 << MARK) - 1)) >> (MARK / 2)
    }
}

/// What a node has in flight in a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The node; empty for calls that any node may settle.
    pub node: String,
    /// What its calls hold.
    pub held: Held,
}

/// What the store keeps of a scope.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The scope's number among all rows.
    pub number: i64,
    /// The last writes, oldest first.
    pub recent: Vec<Version>,
    /// Who has what in flight. Empty for projects and agents, where the counters know.
    pub parts: Vec<Part>,
    /// What goes with the state and is not the engine's.
    pub page: Vec<u8>,
    /// The engine's state.
    pub state: ScopeState,
    /// A mark of the era in which it was written: whoever wrote it had asked the database who is dead.
    /// Zero if it does not say.
    pub era: u64,
}

#[derive(Serialize, Deserialize)]
struct Written<'a> {
    number: i64,
    recent: Vec<Version>,
    parts: Vec<Part>,
    #[serde(borrow)]
    page: &'a [u8],
    #[serde(borrow)]
    state: &'a [u8],
}

impl Record {
    /// As bytes, its form first. The state has a version of its own, so that nodes of two versions
    /// can tell what they understand.
    pub fn to_bytes(&self) -> Vec<u8> {
        let state = self.state.to_blob();
        let written = Written {
            number: self.number,
            recent: self.recent.clone(),
            parts: self.parts.clone(),
            page: &self.page,
            state: &state,
        };
        let mut bytes = postcard::to_extend(&written, vec![FORM]).unwrap_or_default();
        // Behind it, where those who do not look for it see nothing.
        bytes.extend(self.era.to_le_bytes());
        bytes
    }

    /// Reads it back.
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
            page: written.page.to_vec(),
            state: ScopeState::from_blob(written.state)?,
        })
    }

    /// Notes a write.
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

    /// What a node holds in it.
    pub fn held_by(&self, node: &str) -> Held {
        self.parts.iter().find(|part| part.node == node).map(|part| part.held).unwrap_or_default()
    }

    /// Says what a node holds in it.
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
            page: b"a conversation".to_vec(),
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
        // One that does not say in which era it was written.
        let before = Record::from_bytes(&bytes[..bytes.len() - 8]);
        assert_eq!(before, Ok(Record { era: 0, ..record }));
        assert_eq!(Record::from_bytes(&[9]), Err(BadBlob::Version(9)));
    }

    #[test]
    fn versions_go_up_whoever_writes() {
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
            page: Vec::new(),
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
