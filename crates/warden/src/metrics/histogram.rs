//! Durations by length, each bucket an atomic; and, where calls have traces, a recent one of each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::family::{Durations, Exemplar};

/// Upper ends of buckets, in nanoseconds: decisions of the engine.
pub(super) const DECISIONS: &[u64] = &[
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    5_000_000,
    20_000_000,
    100_000_000,
    1_000_000_000,
];

/// The same for providers, from 50 ms to 5 minutes.
pub(super) const ANSWERS: &[u64] = &[
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
    300_000_000_000,
];

/// The same for writes to the database, from 1 ms to 10 s.
pub(super) const WRITES: &[u64] = &[
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    500_000_000,
    1_000_000_000,
    10_000_000_000,
];

/// A histogram of durations.
#[derive(Debug)]
pub(super) struct Histogram {
    ends: &'static [u64],
    /// One more than there are ends: the last counts everything longer.
    counts: Vec<AtomicU64>,
    nanos: AtomicU64,
    exemplars: Mutex<Vec<Option<Exemplar>>>,
}

impl Histogram {
    pub(super) fn new(ends: &'static [u64]) -> Histogram {
        let counts = (0..=ends.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { ends, counts, nanos: AtomicU64::new(0), exemplars: Mutex::default() }
    }

    /// Counts a duration.
    pub(super) fn count(&self, took: Duration) {
        self.add(took);
    }

    /// Counts a duration that was measured in a trace.
    pub(super) fn count_in(&self, exemplar: Exemplar) {
        let bucket = self.add(exemplar.took);
        let mut exemplars = self.exemplars.lock();
        if exemplars.is_empty() {
            exemplars.resize(self.counts.len(), None);
        }
        if let Some(place) = exemplars.get_mut(bucket) {
            *place = Some(exemplar);
        }
    }

    fn add(&self, took: Duration) -> usize {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = self.ends.partition_point(|end| *end < nanos);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        bucket
    }

    /// What it has come to.
    pub(super) fn read(&self) -> Durations {
        Durations {
            ends: self.ends,
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            nanos: self.nanos.load(Ordering::Relaxed),
            exemplars: self.exemplars.lock().clone(),
        }
    }
}
