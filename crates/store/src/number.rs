//! Numbers for rows: unique, sortable by time, made by a node without coordination.
//!
//! From the top: 41 bits of milliseconds since the start of 2024, 10 bits that name the node, 12 bits
//! that count. The database gives every start of a node the next of 1,024 names.

use std::sync::atomic::{AtomicU64, Ordering};

use deadstop_core::Time;

/// The first millisecond of 2024, so that the numbers last until 2093.
const START_MS: u64 = 1_704_067_200_000;
const NODE_BITS: u32 = 10;
const COUNT_BITS: u32 = 12;
/// The latest millisecond that has a number.
const LAST_MS: u64 = (1 << 41) - 1;

/// Makes numbers for one node.
///
/// ```
/// use deadstop_core::Time;
/// use deadstop_store::Numbers;
/// let numbers = Numbers::new(7);
/// let (first, second) = (numbers.next(Time(1_800_000_000_000)), numbers.next(Time(0)));
/// assert!(first < second, "a clock that goes back does not matter");
/// assert_eq!(Numbers::time(first), Time(1_800_000_000_000));
/// ```
#[derive(Debug)]
pub struct Numbers {
    node: u64,
    /// Milliseconds and count of the last number.
    last: AtomicU64,
}

impl Numbers {
    /// Numbers of a node; of its name the last ten bits count.
    pub fn new(node: u64) -> Numbers {
        Numbers { node: node & ((1 << NODE_BITS) - 1), last: AtomicU64::new(0) }
    }

    /// The next number: greater than every one before, whatever the clock does.
    pub fn next(&self, now: Time) -> i64 {
        let now = since_start(now) << COUNT_BITS;
        let step = |last: u64| now.max(last + 1);
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |l| Some(step(l)));
        let next = step(last.unwrap_or_else(|last| last));
        let (ms, count) = (next >> COUNT_BITS, next & ((1 << COUNT_BITS) - 1));
        joined(ms, self.node << COUNT_BITS | count)
    }

    /// The first number that any node can have made at this time or later.
    pub fn first(at: Time) -> i64 {
        joined(since_start(at), 0)
    }

    /// When a number was made.
    pub fn time(number: i64) -> Time {
        let ms = u64::try_from(number).unwrap_or(0) >> (NODE_BITS + COUNT_BITS);
        Time(ms + START_MS)
    }
}

fn since_start(at: Time) -> u64 {
    at.0.saturating_sub(START_MS).min(LAST_MS)
}

fn joined(ms: u64, rest: u64) -> i64 {
    i64::try_from(ms << (NODE_BITS + COUNT_BITS) | rest).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_and_tell_their_time() {
        let (one, two) = (Numbers::new(1), Numbers::new(2));
        let now = Time(1_790_000_000_000);
        let mut all: Vec<i64> = (0..10_000).map(|_| one.next(now)).collect();
        assert!(all.is_sorted_by(|a, b| a < b));
        assert_eq!(Numbers::time(all[0]), now);
        // 4,096 a millisecond, then it borrows from the next.
        assert_eq!(Numbers::time(all[9_999]), Time(now.0 + 2));
        assert!(Numbers::first(now) <= all[0] && all[0] < Numbers::first(Time(now.0 + 1)));
        all.extend((0..10_000).map(|_| two.next(now)));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 20_000, "two nodes never make the same");
    }

    #[test]
    fn ends_of_time() {
        for (at, expected) in [(0, START_MS), (START_MS, START_MS), (u64::MAX, START_MS + LAST_MS)]
        {
            let made = Numbers::new(1023).next(Time(at));
            assert!(made > 0, "{at}");
            assert_eq!(Numbers::time(made), Time(expected));
        }
        assert_eq!(Numbers::time(-1), Time(START_MS));
    }
}
