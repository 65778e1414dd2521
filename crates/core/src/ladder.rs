//! A ladder: at which count a pattern guard steers, blocks and ends.
//!
//! Telling the model costs nothing and is often enough, so it comes first. Each rung is optional. A
//! policy that only has a threshold and an action (as the seed's page has them) is a ladder with one
//! rung.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::settings::{BadSetting, in_range};
use crate::trip::{Action, Verdict};

/// The highest count that a rung may have.
pub const HIGHEST_RUNG: u32 = 10_000;

/// One rung: a count, or off. Typed as a whole number, or as `"off"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rung {
    /// The step is not taken.
    #[default]
    Off,
    /// The step is taken from this count on.
    At(u32),
}

impl Rung {
    /// The count, if it is on.
    pub fn count(self) -> Option<u32> {
        match self {
            Rung::Off => None,
            Rung::At(count) => Some(count),
        }
    }

    pub(crate) fn validate(self, path: &str) -> Result<(), BadSetting> {
        match self {
            Rung::Off => Ok(()),
            Rung::At(count) => in_range(path, count.into(), 2..=HIGHEST_RUNG.into()),
        }
    }
}

impl Serialize for Rung {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Rung::Off => serializer.serialize_str("off"),
            Rung::At(count) => serializer.serialize_u32(*count),
        }
    }
}

impl<'de> Deserialize<'de> for Rung {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rung, D::Error> {
        struct Typed;
        impl Visitor<'_> for Typed {
            type Value = Rung;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, or \"off\"")
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Rung, E> {
                Ok(Rung::At(u32::try_from(value).unwrap_or(u32::MAX)))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Rung, E> {
                let value = u32::try_from(value);
                value.map(Rung::At).map_err(|_| E::custom("a rung cannot be negative"))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Rung, E> {
                match value {
                    "off" => Ok(Rung::Off),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(Typed)
    }
}

/// The steps of a guard, mildest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ladder {
    /// In the order of their verdicts: steer, block, kill. Or one step of any action.
    steps: [(Verdict, Rung); 3],
}

/// A step that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) verdict: Verdict,
    /// The count from which on it is taken.
    pub(crate) at: u32,
}

impl Ladder {
    pub(crate) fn new(steer: Rung, block: Rung, end: Rung) -> Ladder {
        Ladder { steps: [(Verdict::Steer, steer), (Verdict::Block, block), (Verdict::Kill, end)] }
    }

    /// The ladder of a threshold and an action.
    pub(crate) fn single(threshold: u32, action: Action) -> Ladder {
        let off = (Verdict::Allow, Rung::Off);
        Ladder { steps: [(action.verdict(), Rung::At(threshold)), off, off] }
    }

    /// Whether no step is ever taken.
    pub(crate) fn is_off(&self) -> bool {
        self.steps.iter().all(|(_, rung)| *rung == Rung::Off)
    }

    /// The count from which on the first step is taken.
    pub(crate) fn lowest(&self) -> Option<u32> {
        self.steps.iter().filter_map(|(_, rung)| rung.count()).min()
    }

    /// The limit that a gauge shows beside a count: the rung that refuses or ends, as the sentence of
    /// a trip names it, or the next one of those ahead; where neither is set, the lowest rung.
    pub(crate) fn limit(&self, count: u32, scale: u32) -> Option<u32> {
        let refuses = |step: &Step| step.verdict >= Verdict::Block;
        if let Some(step) = self.step(count, scale).filter(refuses) {
            return Some(step.at);
        }
        let stops = self.steps.iter().filter(|(verdict, _)| *verdict >= Verdict::Block);
        let first = stops.filter_map(|(_, rung)| rung.count()).min().or_else(|| self.lowest());
        first.map(|at| at.saturating_mul(scale))
    }

    /// Whether a step of this verdict is on.
    pub(crate) fn has(&self, verdict: Verdict) -> bool {
        self.steps.iter().any(|(step, rung)| *step == verdict && *rung != Rung::Off)
    }

    /// The strictest step that a count reaches, where each rung counts `scale` times.
    pub(crate) fn step(&self, count: u32, scale: u32) -> Option<Step> {
        let reached = self.steps.iter().filter_map(|(verdict, rung)| {
            let at = rung.count()?.saturating_mul(scale);
            (count >= at).then_some(Step { verdict: *verdict, at })
        });
        reached.max_by_key(|step| step.verdict)
    }

    /// The same where the call is over and only what follows can be refused: a block becomes
    /// advice where the ladder steers, or else a warning.
    pub(crate) fn step_after(&self, count: u32, scale: u32) -> Option<Step> {
        let mut step = self.step(count, scale)?;
        if step.verdict == Verdict::Block {
            let told = self.has(Verdict::Steer);
            step.verdict = if told { Verdict::Steer } else { Verdict::Warn };
        }
        Some(step)
    }
}

/// Checks the rungs of a section: each in range, and in order.
pub(crate) fn validate(section: &str, rungs: [(&str, Rung); 3]) -> Result<(), BadSetting> {
    let mut before: Option<(&str, u32)> = None;
    for (name, rung) in rungs {
        let path = format!("{section}.{name}");
        rung.validate(&path)?;
        let Some(count) = rung.count() else { continue };
        if let Some((earlier, at)) = before.filter(|(_, at)| *at > count) {
            return Err(BadSetting::new(
                &path,
                format!("{count} is below {earlier} ({at})"),
                format!("write {at} or more, or turn {earlier} \"off\""),
            ));
        }
        before = Some((name, count));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strictest_step_that_is_reached_is_taken() {
        let ladder = Ladder::new(Rung::At(3), Rung::At(5), Rung::At(10));
        for (count, scale, expected) in [
            (2, 1, None),
            (3, 1, Some((Verdict::Steer, 3))),
            (4, 1, Some((Verdict::Steer, 3))),
            (5, 1, Some((Verdict::Block, 5))),
            (9, 1, Some((Verdict::Block, 5))),
            (10, 1, Some((Verdict::Kill, 10))),
            (10_000, 1, Some((Verdict::Kill, 10))),
            (5, 2, None),
            (6, 2, Some((Verdict::Steer, 6))),
            (19, 2, Some((Verdict::Block, 10))),
            (20, 2, Some((Verdict::Kill, 20))),
        ] {
            let step = ladder.step(count, scale).map(|step| (step.verdict, step.at));
            assert_eq!(step, expected, "{count} at scale {scale}");
        }
        let over = ladder.step_after(7, 1).map(|step| step.verdict);
        assert_eq!(over, Some(Verdict::Steer), "a call that is over cannot be refused");
        assert_eq!(ladder.lowest(), Some(3));
        let limits = [0, 4, 5, 9, 10, 11].map(|count| ladder.limit(count, 1));
        assert_eq!(limits, [5, 5, 5, 5, 10, 10].map(Some));
        assert_eq!((ladder.limit(3, 2), ladder.limit(20, 2)), (Some(10), Some(20)));
    }

    #[test]
    fn a_threshold_and_an_action_are_one_rung() {
        for (action, after) in [
            (Action::Warn, Verdict::Warn),
            (Action::Steer, Verdict::Steer),
            (Action::Block, Verdict::Warn),
            (Action::Terminate, Verdict::Kill),
        ] {
            let ladder = Ladder::single(5, action);
            assert_eq!(ladder.step(4, 1), None);
            assert_eq!(ladder.step(5, 1), Some(Step { verdict: action.verdict(), at: 5 }));
            assert_eq!(ladder.step_after(5, 1), Some(Step { verdict: after, at: 5 }));
            assert_eq!((ladder.lowest(), ladder.limit(3, 1)), (Some(5), Some(5)));
        }
        let off = Ladder::new(Rung::Off, Rung::Off, Rung::Off);
        assert!(off.is_off() && off.step(9999, 1).is_none() && off.lowest().is_none());
    }

    #[test]
    fn rungs_are_typed_as_numbers_or_off() {
        for (text, rung) in [("3", Rung::At(3)), ("\"off\"", Rung::Off)] {
            assert_eq!(serde_json::from_str::<Rung>(text).unwrap(), rung);
            assert_eq!(serde_json::to_string(&rung).unwrap(), text);
        }
        for bad in ["-1", "\"on\"", "true", "2.5", "[]"] {
            assert!(serde_json::from_str::<Rung>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rungs_go_up() {
        let check = |steer, block, end| {
            validate("loop", [("steer_at", steer), ("block_at", block), ("end_at", end)])
        };
        assert!(check(Rung::At(3), Rung::At(5), Rung::At(10)).is_ok());
        assert!(check(Rung::At(3), Rung::Off, Rung::At(3)).is_ok());
        assert!(check(Rung::Off, Rung::Off, Rung::At(HIGHEST_RUNG)).is_ok());
        let bad = check(Rung::At(6), Rung::At(5), Rung::Off).unwrap_err();
        assert_eq!(bad.to_string(), "loop.block_at: 5 is below steer_at (6)");
        assert!(check(Rung::At(1), Rung::Off, Rung::Off).is_err());
        assert!(check(Rung::Off, Rung::Off, Rung::At(HIGHEST_RUNG + 1)).is_err());
    }
}
