//! The time between the first key and the day when every agent has one.
//!
//! The first key closes a server. Orders take a key from that moment on. Agents that were running
//! go on for a while without one, so that a person can give them keys before their calls fail. A
//! process that was started with keys gives no grace.

use std::collections::BTreeMap;
use std::time::Duration;

use deadstop_core::{ScopeKind, Time};
use deadstop_warden::{Warden, now};
use parking_lot::Mutex;
use serde::Serialize;
use utoipa::ToSchema;

use super::DEFAULT_PROJECT;

/// An agent that did nothing for so long is not running.
const RECENT: u64 = 24 * 60 * 60 * 1000;
/// Names that are listed at most.
const MOST: usize = 100;

/// Agents that may call without a key for the time being.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct KeyGrace {
    /// Until when.
    until_ms: u64,
    /// Those that have called without a key since the first key was made; at most 100.
    agents: Vec<String>,
}

/// What is known about the first key.
pub(crate) struct Grace {
    lasts: Duration,
    began: Mutex<Option<Began>>,
}

struct Began {
    at: Time,
    called: BTreeMap<String, Time>,
}

impl Grace {
    pub(crate) fn new(lasts: Duration) -> Grace {
        Grace { lasts, began: Mutex::new(None) }
    }

    /// The first key was found by a process that ran without keys until now.
    pub(crate) fn begin(&self) {
        let mut began = self.began.lock();
        if began.is_none() {
            tracing::warn!(
                "the first key was made: agents that were running may call without one for {} s",
                self.lasts.as_secs()
            );
            *began = Some(Began { at: now(), called: BTreeMap::new() });
        }
    }

    /// When the grace of a first key that is made now would end; `None` if there is none.
    pub(crate) fn would_end(&self) -> Option<u64> {
        let lasts = u64::try_from(self.lasts.as_millis()).unwrap_or(u64::MAX);
        (lasts > 0).then(|| now().0.saturating_add(lasts))
    }

    /// Whether it is running.
    pub(crate) fn is_on(&self) -> bool {
        self.began.lock().as_ref().is_some_and(|began| self.until(began) > now())
    }

    fn until(&self, began: &Began) -> Time {
        let lasts = u64::try_from(self.lasts.as_millis()).unwrap_or(u64::MAX);
        Time(began.at.0.saturating_add(lasts))
    }

    /// Whether an agent may call without a key: it was there before the first key.
    pub(crate) async fn admits(&self, warden: &Warden, agent: &str) -> bool {
        if !self.is_on() {
            return false;
        }
        let opened = opened(warden, agent).await;
        let mut began = self.began.lock();
        let Some(began) = began.as_mut() else { return false };
        let known = opened.is_some_and(|opened| opened <= began.at);
        if !known || self.until(began) <= now() {
            return false;
        }
        if !began.called.contains_key(agent) && began.called.len() < MOST {
            tracing::warn!("agent {agent} calls without a key, and will fail when the grace ends");
            began.called.insert(agent.to_owned(), now());
        }
        true
    }

    /// What people are shown while it is running.
    pub(crate) fn shown(&self) -> Option<KeyGrace> {
        let began = self.began.lock();
        let began = began.as_ref().filter(|began| self.until(began) > now())?;
        let agents = began.called.keys().cloned().collect();
        Some(KeyGrace { until_ms: self.until(began).0, agents })
    }
}

/// When an agent was first heard of. One that was idle may be in the database alone.
async fn opened(warden: &Warden, agent: &str) -> Option<Time> {
    let live = warden.live_agent(DEFAULT_PROJECT, agent).map(|scope| scope.state().opened());
    if live.is_some() {
        return live;
    }
    let stored = warden.store()?.agent(DEFAULT_PROJECT, agent).await.ok().flatten();
    stored.map(|stored| stored.opened)
}

/// The agents that did something in the last 24 hours: a first key stops them, sooner or later.
pub(crate) fn running(warden: &Warden) -> Vec<String> {
    let since = now().0.saturating_sub(RECENT);
    let scopes = warden.listed_scopes(DEFAULT_PROJECT);
    let agents = scopes.iter().filter(|scope| scope.kind() == ScopeKind::Agent);
    let used = agents.filter(|scope| scope.used().0 >= since);
    let mut names: Vec<String> = used.map(|scope| scope.name().to_owned()).collect();
    names.sort();
    names.truncate(MOST);
    names
}
