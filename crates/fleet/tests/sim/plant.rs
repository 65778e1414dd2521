//! Bugs planted on purpose: the simulation must find each of them.

use deadstop_core::share::Bounds;
use deadstop_fleet::model::Model;
use deadstop_fleet::{COUNTERS, Commit, Version};

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plant {
    /// A commit overwrites a record whatever its version.
    Version,
    /// A commit does not check the versions of records that it only read, so it misses a kill.
    Standing,
    /// A commit does not check the limits of counters.
    Bounds,
    /// A commit does not check the pace of counters.
    Pace,
    /// Reservations of dead nodes are never booked as spent.
    Burial,
    /// A node does not recognise its own earlier commit, and applies it twice.
    Doubt,
    /// A read returns an older version of a record.
    Stale,
    /// After Redis lost its data, nodes write records back without reading kills from the database.
    Recall,
    /// A commit does not check whether Redis lost data.
    Era,
    /// An order is not checked in Redis again after it is in the database.
    Confirm,
    /// Of two database rows the one with more writes wins, even if the other has the newer kill.
    Rows,
    /// A node does not correct its reservations.
    Heal,
    /// After Redis lost its data, counters start from zero.
    Floors,
    /// The end of a call that rides is given up when Redis does not answer.
    Fragile,
    /// The end of a call rides, and no other call comes to ride with.
    Idle,
}

impl Plant {
    /// With the seed from which each is looked for: most runs do not meet what the rare ones need.
    pub(crate) const ALL: [(Plant, &'static str, u64); 15] = [
        (Plant::Version, "version", 1),
        (Plant::Standing, "standing", 1),
        (Plant::Bounds, "bounds", 20),
        (Plant::Pace, "pace", 170),
        (Plant::Burial, "burial", 1),
        (Plant::Doubt, "doubt", 1),
        (Plant::Stale, "stale", 1),
        (Plant::Recall, "recall", 30),
        (Plant::Era, "era", 10),
        (Plant::Confirm, "confirm", 60),
        (Plant::Rows, "rows", 1010),
        (Plant::Heal, "heal", 1),
        (Plant::Floors, "floors", 1),
        (Plant::Fragile, "fragile", 1),
        (Plant::Idle, "idle", 1),
    ];

    pub(crate) fn named(name: &str) -> Option<Plant> {
        Plant::ALL.into_iter().find(|(_, known, _)| *known == name).map(|(plant, ..)| plant)
    }

    /// The commit as a Redis with this bug would understand it.
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
                // Only in commits that write; plain reads stay correct.
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
            Plant::Pace => {
                for sum in &mut commit.sums {
                    (sum.bounds.pace_cost, sum.bounds.pace_tokens) = (None, None);
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
            | Plant::Rows
            | Plant::Fragile
            | Plant::Idle => {}
        }
        commit
    }
}
