//! A grant: an operator's one-time allowance for a destructive batch.
//!
//! It is held by the scope it was given to, an agent's or a session's, with a reason and an end, and
//! used up by the destructive calls that it covers. A call that is covered does not count towards
//! the volume of any scope; deleting the same thing again and again stays what it is, unless the
//! grant names that very target.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::call::Call;
use crate::guard::destructive::Destroyed;
use crate::harm::Harm;
use crate::pattern::Pattern;
use crate::scope::Link;
use crate::trip::{GuardId, Trip, Verdict};
use crate::units::Time;

/// Grants that a scope may hold at a time.
pub const MOST_GRANTS: usize = 16;

/// An allowance for a destructive batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// A number that no other grant has.
    pub id: u64,
    /// How much may be destroyed with it.
    pub deletes: u32,
    /// How much of that is left.
    pub left: u32,
    /// Only by these tools.
    pub tool: Option<Pattern>,
    /// Only these targets.
    pub target: Option<Pattern>,
    /// When it was given.
    pub given: Time,
    /// When it ends.
    pub expires: Time,
    /// Who gave it.
    pub by: String,
    /// Why.
    pub because: String,
}

impl Grant {
    /// Whether it covers a call that would destroy these.
    fn covers(&self, tool: &str, destroys: &[&Harm], now: Time) -> bool {
        now < self.expires
            && self.left as usize >= destroys.len()
            && self.tool.as_ref().is_none_or(|own| own.matches(tool))
            && destroys
                .iter()
                .all(|deed| self.target.as_ref().is_none_or(|own| own.matches_target(&deed.target)))
    }

    /// Whether it is about this very target, and not about a kind of them.
    pub(crate) fn names(&self, target: &str) -> bool {
        self.target.as_ref().is_some_and(|own| own.is_exact() && own.matches_target(target))
    }
}

/// The grants of a scope, and what was destroyed with any.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Grants {
    held: Vec<Grant>,
    /// For the same target over and over, which a grant does not cover.
    pub(crate) deeds: Destroyed,
}

/// A scope that holds too many grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("there are {MOST_GRANTS} grants already: revoke one, or wait until one ends")]
pub struct TooManyGrants;

impl Grants {
    pub(crate) fn give(&mut self, grant: Grant, now: Time) -> Result<(), TooManyGrants> {
        self.held.retain(|held| now < held.expires);
        if self.held.len() >= MOST_GRANTS {
            return Err(TooManyGrants);
        }
        self.held.push(grant);
        Ok(())
    }

    pub(crate) fn revoke(&mut self, id: u64) -> Option<Grant> {
        let at = self.held.iter().position(|grant| grant.id == id)?;
        Some(self.held.remove(at))
    }

    pub(crate) fn held(&self) -> &[Grant] {
        &self.held
    }

    /// Takes in those that were held before.
    pub(crate) fn rejoin(&mut self, meanwhile: Vec<Grant>) {
        let known = |held: &[Grant], id| held.iter().any(|grant| grant.id == id);
        for grant in meanwhile {
            if self.held.len() < MOST_GRANTS && !known(&self.held, grant.id) {
                self.held.push(grant);
            }
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Grant> {
        std::mem::take(&mut self.held)
    }

    /// Takes from a grant what a call uses of it; one that is used up is gone.
    pub(crate) fn spend(&mut self, id: u64, much: u32) {
        for grant in self.held.iter_mut().filter(|grant| grant.id == id) {
            grant.left = grant.left.saturating_sub(much);
        }
        self.held.retain(|grant| grant.left > 0);
    }
}

/// A call that a grant covers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cover {
    /// The grant, as it will be once the call was admitted.
    pub(crate) grant: Grant,
    /// The scope that holds it.
    pub(crate) depth: usize,
    /// How much of it the call uses.
    pub(crate) much: u32,
    /// What the call would destroy, in words.
    what: String,
}

impl Cover {
    /// The grant that covers a call: of the innermost scope that has one, the one that ends first.
    pub(crate) fn of(chain: &[Link<'_>], call: &Call, now: Time) -> Option<Cover> {
        let tool = call.tool().filter(|tool| tool.destroys().next().is_some())?;
        if chain.iter().all(|link| link.state.grants.held.is_empty()) {
            return None;
        }
        let mut counted: Vec<&Harm> = Vec::new();
        for link in chain.iter().filter(|link| link.policy.destructive.enabled) {
            for deed in link.policy.destructive.counted(tool) {
                if !counted.contains(&deed) {
                    counted.push(deed);
                }
            }
        }
        let first = counted.first()?;
        let (depth, grant) = chain.iter().enumerate().rev().find_map(|(depth, link)| {
            let covers = |grant: &&Grant| grant.covers(&tool.name, &counted, now);
            let covering = link.state.grants.held.iter().filter(covers);
            covering.min_by_key(|grant| grant.expires).map(|grant| (depth, grant.clone()))
        })?;
        let much = u32::try_from(counted.len()).unwrap_or(u32::MAX);
        let what = match first.target.as_str() {
            "" => first.verb.clone(),
            target => format!("{} on {target}", first.verb),
        };
        let left = grant.left.saturating_sub(much);
        Some(Cover { grant: Grant { left, ..grant }, depth, much, what })
    }

    /// Says so, where a guard would say why not.
    pub(crate) fn note(&self, mut trip: Trip) -> Trip {
        let Grant { by, because, left, deletes, .. } = &self.grant;
        trip.verdict = Verdict::Allow;
        debug_assert_eq!(trip.guard, GuardId::Destructive);
        trip.because =
            format!("{} is granted by {by}: {because} ({left} of {deletes} left)", self.what);
        trip
    }
}
