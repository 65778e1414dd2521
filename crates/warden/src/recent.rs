//! Texts of recent calls, kept in memory as evidence for an incident.
//!
//! One list for all sessions, bounded in bytes: the oldest texts are dropped first.

use std::collections::VecDeque;

use deadstop_redact::excerpt::Excerpt;
use parking_lot::Mutex;

/// Bytes that are kept.
const MOST_BYTES: usize = 2 << 20;
/// Bytes of an entry besides its texts.
const OVERHEAD: usize = 160;

/// A request and its answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// The beginning of the request.
    pub request: Excerpt,
    /// The beginning of the answer.
    pub response: Excerpt,
}

impl Said {
    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        self.request.text().len() + self.response.text().len() + OVERHEAD
    }
}

/// A recent call with its texts.
#[derive(Debug, Clone)]
pub struct Exhibit {
    /// The scope in which it was made.
    pub scope: i64,
    /// Its number there.
    pub number: u64,
    /// The call's id.
    pub call: i64,
    pub said: Said,
}

/// The texts of recent calls.
#[derive(Default)]
pub struct Recent(Mutex<List>);

#[derive(Default)]
struct List {
    entries: VecDeque<Exhibit>,
    bytes: usize,
}

impl Recent {
    /// Remembers a call.
    pub fn push(&self, exhibit: Exhibit) {
        let mut gone = Vec::new();
        let mut list = self.0.lock();
        list.bytes += exhibit.said.size();
        list.entries.push_back(exhibit);
        while list.bytes > MOST_BYTES {
            let Some(oldest) = list.entries.pop_front() else { break };
            list.bytes -= oldest.said.size();
            gone.push(oldest);
        }
        drop(list);
        // Freed after the lock is released.
        drop(gone);
    }

    /// The calls of a scope with these numbers, or else its last few, oldest first.
    pub fn find(&self, scope: i64, numbers: &[u64], few: usize) -> Vec<Exhibit> {
        let list = self.0.lock();
        let mut found: Vec<Exhibit> = list
            .entries
            .iter()
            .rev()
            .filter(|entry| entry.scope == scope)
            .filter(|entry| numbers.is_empty() || numbers.contains(&entry.number))
            .take(if numbers.is_empty() { few } else { numbers.len() })
            .cloned()
            .collect();
        found.sort_by_key(|entry| entry.number);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exhibit(scope: i64, number: u64, bytes: usize) -> Exhibit {
        let mut request = Excerpt::default();
        request.push(&"x".repeat(bytes));
        let said = Said { request, response: Excerpt::default() };
        Exhibit { scope, number, call: 0, said }
    }

    fn numbers(found: &[Exhibit]) -> Vec<u64> {
        found.iter().map(|entry| entry.number).collect()
    }

    #[test]
    fn finds_by_number_or_the_last_few() {
        let recent = Recent::default();
        // Calls end in another order than they began.
        for (scope, number) in [(1, 2), (2, 1), (1, 1), (1, 3)] {
            recent.push(exhibit(scope, number, 10));
        }
        assert_eq!(numbers(&recent.find(1, &[1, 3, 9], 5)), [1, 3]);
        assert_eq!(numbers(&recent.find(1, &[], 2)), [1, 3]);
        assert_eq!(numbers(&recent.find(3, &[], 2)), [0u64; 0]);
    }

    #[test]
    fn stays_within_its_bound() {
        let recent = Recent::default();
        for number in 0..4000 {
            recent.push(exhibit(1, number, 8000));
        }
        let list = recent.0.lock();
        assert!(list.bytes <= MOST_BYTES && list.bytes > MOST_BYTES / 2);
        assert_eq!(list.entries.back().unwrap().number, 3999);
    }
}
