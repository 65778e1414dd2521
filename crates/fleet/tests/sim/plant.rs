//! Bugs, planted on purpose: the simulation must find each of them.

use deadstop_core::Bounds;
use deadstop_fleet::model::Model;
use deadstop_fleet::{COUNTERS, Commit, Version};

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plant {
    /// Whoever comes later overwrites what is there.
    Version,
    /// What is only read is not looked at: nobody notices that it was killed meanwhile.
    Standing,
    /// Limits are not looked at where counters are added to.
    Bounds,
    /// What dead nodes hold stays held.
    Burial,
    /// Nobody finds its own write again, and does it twice.
    Doubt,
    /// Reading again brings back what was there before.
    Stale,
    /// A store that lost its memory gets its records back without asking who is dead.
    Recall,
    /// Nobody asks whether the store has lost something of its memory.
    Era,
    /// Nobody looks, once an order is in the database, whether the store still has it.
    Confirm,
    /// Whoever wrote more often knows better who is dead.
    Rows,
    /// What a node holds is not put right.
    Heal,
    /// A store that lost its memory counts from zero.
    Floors,
}

impl Plant {
    pub(crate) const ALL: [(Plant, &'static str); 12] = [
        (Plant::Version, "version"),
        (Plant::Standing, "standing"),
        (Plant::Bounds, "bounds"),
        (Plant::Burial, "burial"),
        (Plant::Doubt, "doubt"),
        (Plant::Stale, "stale"),
        (Plant::Recall, "recall"),
        (Plant::Era, "era"),
        (Plant::Confirm, "confirm"),
        (Plant::Rows, "rows"),
        (Plant::Heal, "heal"),
        (Plant::Floors, "floors"),
    ];

    pub(crate) fn named(name: &str) -> Option<Plant> {
        Plant::ALL.into_iter().find(|(_, known)| *known == name).map(|(plant, _)| plant)
    }

    /// The step as a store with this bug would understand it.
    pub(crate) fn spoil(self, commit: &Commit, model: &Model) -> Commit {
        let mut commit = commit.clone();
        let there = |key: &str| model.record(key).map_or(Version::default(), |record| record.0);
        match self {
            Plant::Version => {
                for item in commit.items.iter_mut().filter(|item| item.write.is_some()) {
                    item.expect = there(&item.key);
                }
            }
            Plant::Standing => {
                // Only where something else is done: who reads, reads.
                if commit.items.iter().any(|item| item.write.is_some()) {
                    for item in commit.items.iter_mut().filter(|item| item.write.is_none()) {
                        item.expect = there(&item.key);
                    }
                }
            }
            Plant::Bounds => {
                for sum in &mut commit.sums {
                    sum.bounds = Bounds::default();
                }
            }
            Plant::Burial => {
                for sum in &mut commit.sums {
                    sum.bury.clear();
                }
            }
            Plant::Era => {
                commit.era = commit.era.filter(|known| known.is_empty());
            }
            Plant::Heal if commit.items.is_empty() => {
                for sum in &mut commit.sums {
                    sum.held.clear();
                }
            }
            Plant::Floors => {
                for sum in &mut commit.sums {
                    sum.floor = [0; COUNTERS];
                    sum.period_floor = 0;
                }
            }
            Plant::Heal
            | Plant::Doubt
            | Plant::Stale
            | Plant::Recall
            | Plant::Confirm
            | Plant::Rows => {}
        }
        commit
    }
}
