//! *quota*: how much of a provider's own window an agent may use, such as the five hours or the week
//! of a subscription.
//!
//! Providers say in the headers of an answer how much of a window is used and when it begins anew.
//! **Catches** the agent that uses up the quota that people share. **Lets pass** everything below
//! `max_used`, and everything once a window has begun anew. **Trips** before a model call to a provider
//! one of whose windows is used that far: `warn` reports it, `ask` holds the call until a person
//! decides, `block` refuses it and says when to come back. **Recovers** when the window begins anew.
//!
//! Windows of less than five minutes are rate limits, which clients wait for by themselves.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::gauge::{Dial, Gauge};
use crate::guard::{End, Lesson, Seat};
use crate::scope::{ScopeKind, ScopeState};
use crate::settings::{BadSetting, Share, settings};
use crate::trip::{Action, GuardId, Measure, Trip, Wait};
use crate::units::{Millis, Time};

settings! {
    /// Limits on the windows of providers.
    QuotaSettings / RawQuota {
        /// The share of a window that may be used, or "off".
        max_used: Share = Share::OFF,
        /// What to do with calls beyond that.
        action: Action = Action::Block,
    }
}

impl QuotaSettings {
    pub(crate) fn validate(&self) -> Result<(), BadSetting> {
        match self.action {
            Action::Warn | Action::Ask | Action::Block => Ok(()),
            Action::Steer | Action::Terminate => Err(BadSetting::new(
                "quota.action",
                "a window begins anew, so nothing is ended for it, and the model cannot change it",
                "write \"warn\", \"ask\" or \"block\"",
            )),
        }
    }
}

/// A window of a provider, as an answer reported it.
#[derive(Debug, Clone, PartialEq)]
pub struct Quota {
    /// Its name: `5h`, `7d`, `primary`, `requests`.
    pub window: String,
    /// The share that is used.
    pub used: f64,
    /// When it begins anew.
    pub resets: Time,
}

/// A window of a provider that has not begun anew, as an agent remembers it.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderQuota {
    /// The provider, by the name under which it is called.
    pub provider: String,
    /// Its window.
    pub quota: Quota,
}

/// Windows with less time than this left are not kept.
const SHORTEST: Millis = Millis(300_000);
/// Windows that an agent remembers.
const MOST: usize = 12;
/// Longest name of a window or a provider, in characters.
const LONGEST_NAME: usize = 24;
/// Moments are rounded up to this, so that a state changes seldom.
const ROUND_MS: u64 = 60_000;

/// The windows of the providers that an agent has called.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Windows(Vec<Window>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Window {
    /// The provider.
    server: String,
    name: String,
    /// Hundredths that are used.
    percent: u8,
    resets: Time,
}

impl Windows {
    fn learn(&mut self, server: &str, quota: &Quota, now: Time) {
        self.0.retain(|known| known.resets > now);
        let resets = Time(quota.resets.0.div_ceil(ROUND_MS).saturating_mul(ROUND_MS));
        let name: String = quota.window.chars().take(LONGEST_NAME).collect();
        let percent = (quota.used.clamp(0.0, 1.0) * 100.0).round() as u8;
        let full = self.0.len() == MOST;
        let known = self.0.iter_mut().find(|known| known.server == server && known.name == name);
        match known {
            Some(known) => (known.percent, known.resets) = (percent, resets),
            None if full || quota.resets.since(now) < SHORTEST => {}
            None => self.0.push(Window { server: server.to_owned(), name, percent, resets }),
        }
    }

    /// The fullest window of a provider that has not begun anew.
    fn fullest(&self, server: &str, now: Time) -> Option<&Window> {
        let current = self.0.iter().filter(|known| known.server == server && known.resets > now);
        current.max_by_key(|known| known.percent)
    }
}

/// The name under which the windows of a provider are kept.
fn server_of(server: Option<&str>) -> &str {
    let server = server.unwrap_or_default();
    let end = server.char_indices().nth(LONGEST_NAME).map_or(server.len(), |(at, _)| at);
    &server[..end]
}

impl ScopeState {
    /// The windows of providers that have not begun anew, the fullest first. Agents have some.
    pub fn quotas(&self, now: Time) -> Vec<ProviderQuota> {
        let current = self.windows.0.iter().filter(|window| window.resets > now);
        let mut found: Vec<&Window> = current.collect();
        found.sort_by_key(|window| Reverse(window.percent));
        let told = |window: &Window| ProviderQuota {
            provider: window.server.clone(),
            quota: Quota {
                window: window.name.clone(),
                used: f64::from(window.percent) / 100.0,
                resets: window.resets,
            },
        };
        found.into_iter().map(told).collect()
    }
}

pub(crate) struct Guard;

impl super::Guard for Guard {
    fn admit(&self, seat: &Seat<'_>) -> Option<Trip> {
        let settings = &seat.policy.quota;
        let call = seat.call.model()?;
        if settings.max_used.0 == 0.0 || seat.scope.windows.0.is_empty() || call.lookup {
            return None;
        }
        let window = seat.scope.windows.fullest(server_of(call.server.as_deref()), seat.now)?;
        if f64::from(window.percent) < settings.max_used.0 * 100.0 {
            return None;
        }
        let left = window.resets.since(seat.now);
        let mut trip = seat.trip(GuardId::Quota, "quota_used", settings.action);
        trip.measured = Measure::Score(window.percent.into());
        trip.limit = Measure::Score(settings.max_used.0 * 100.0);
        trip.waits = Some(Wait::For(left));
        let server = call.server.as_deref().unwrap_or("the provider");
        trip.because = format!(
            "{}% of the window {} at {server} is used (limit {}); it begins anew in {left}",
            window.percent, window.name, settings.max_used
        );
        Some(trip)
    }

    fn settle(&self, lesson: &mut Lesson<'_>, end: &End<'_>) {
        let (ScopeKind::Agent, Some(call)) = (lesson.scope.kind, end.call.model()) else { return };
        if end.outcome.quota.is_empty() {
            return;
        }
        let server = server_of(call.server.as_deref());
        for quota in &end.outcome.quota {
            lesson.scope.windows.learn(server, quota, end.now);
        }
    }

    fn gauges(&self, dial: &Dial<'_>) -> Vec<Gauge> {
        let limit = match dial.policy.quota.max_used.0 {
            0.0 => 100.0,
            share => share * 100.0,
        };
        let scope: &ScopeState = dial.scope;
        let current = scope.windows.0.iter().filter(|window| window.resets > dial.now);
        let fullest = current.max_by_key(|window| window.percent);
        fullest
            .map(|window| {
                let used = Measure::Score(window.percent.into());
                Gauge::new(GuardId::Quota, "quota_percent", used, Measure::Score(limit))
            })
            .into_iter()
            .collect()
    }
}
