//! Alerts: which messages there are, and for which targets.
//!
//! A message goes to the outbox in one transaction with what it tells of. The first of its kind is
//! due at once; those that follow within a minute become one, so that a storm is one message.

use std::collections::HashMap;
use std::sync::Arc;

use deadstop_alerts::{Kind, Message};
use deadstop_core::{GuardId, Measure, Time, Trip, Verdict};
use deadstop_store::Delivery;
use parking_lot::Mutex;

use crate::{Project, Warden, now};

/// Messages alike within so long become one.
const BUNCH_MS: u64 = 60_000;
/// Bunches that are remembered.
const MOST_BUNCHES: usize = 4096;

/// When bunches may speak again.
#[derive(Default)]
pub struct Bunches(Mutex<HashMap<String, Time>>);

impl Bunches {
    /// When a message of a bunch is to be sent.
    fn due(&self, bunch: &str, now: Time) -> Time {
        let mut bunches = self.0.lock();
        if bunches.len() >= MOST_BUNCHES {
            bunches.retain(|_, free| *free > now);
        }
        match bunches.get(bunch) {
            Some(free) if *free > now => *free,
            _ => {
                bunches.insert(bunch.to_owned(), Time(now.0 + BUNCH_MS));
                now
            }
        }
    }
}

/// Something that people may want to hear of.
pub struct Alert<'a> {
    /// What it is about.
    pub kind: Kind,
    /// The agent.
    pub agent: Option<&'a str>,
    /// The session.
    pub session: Option<&'a str>,
    /// The trip behind it.
    pub trip: Option<&'a Trip>,
    /// What happened, in a sentence.
    pub sentence: String,
    /// The incident it became.
    pub incident: Option<&'a str>,
}

/// What a trip is called in alerts; `None` if it is not worth one.
pub fn kind_of(trip: &Trip) -> Option<Kind> {
    match (trip.guard, trip.verdict) {
        (GuardId::Killed | GuardId::Paused, _) | (_, Verdict::Allow) => None,
        (_, Verdict::Kill) => Some(Kind::Kill),
        (GuardId::Budget, Verdict::Warn) => Some(Kind::BudgetWarning),
        (GuardId::Breaker, _) => Some(Kind::BreakerOpen),
        _ => Some(Kind::Trip),
    }
}

impl Warden {
    /// The messages that an alert becomes: one for every target that wants to hear of it.
    pub fn messages(&self, project: &Project, alert: &Alert<'_>) -> Vec<Delivery> {
        let targets = Arc::clone(&project.targets.read());
        let at = now();
        let wants = |target: &&deadstop_store::AlertTarget| {
            target.active
                && target.agent.as_deref().is_none_or(|own| Some(own) == alert.agent)
                && target.events.iter().any(|event| event == alert.kind.name())
        };
        let message = |target: &deadstop_store::AlertTarget| {
            let id = self.number();
            let mut message =
                Message::new(&id.to_string(), alert.kind, &project.name, &alert.sentence, at);
            message.agent = alert.agent.map(str::to_owned);
            message.session = alert.session.map(str::to_owned);
            message.link = alert.incident.map(|incident| format!("/incidents/{incident}"));
            if alert.kind == Kind::Approval {
                message.link = Some("/approvals".to_owned());
            }
            if let Some(trip) = alert.trip {
                message.guard = Some(trip.guard.name().to_owned());
                message.reason = Some(trip.reason.clone());
                message.score = score(trip.measured);
                message.threshold = score(trip.limit);
            }
            let guard = message.guard.as_deref().unwrap_or_default();
            let agent = alert.agent.unwrap_or_default();
            let bunch = format!("{}:{}:{agent}:{guard}", target.id, alert.kind.name());
            Delivery {
                id,
                project: project.name.clone(),
                target: target.id,
                event: alert.kind.name().to_owned(),
                agent: message.agent.clone(),
                session: message.session.clone(),
                incident: alert.incident.map(str::to_owned),
                due: self.bunches.due(&bunch, at),
                bunch,
                body: serde_json::to_string(&message).unwrap_or_default(),
                at,
            }
        };
        targets.iter().filter(wants).map(message).collect()
    }
}

fn score(measure: Measure) -> Option<f64> {
    match measure {
        Measure::Score(score) => Some(score),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_one_message_now_and_one_later() {
        let bunches = Bunches::default();
        assert_eq!(bunches.due("a", Time(1000)), Time(1000));
        assert_eq!(bunches.due("a", Time(1001)), Time(1000 + BUNCH_MS));
        assert_eq!(bunches.due("b", Time(1002)), Time(1002));
        assert_eq!(bunches.due("a", Time(2000)), Time(1000 + BUNCH_MS));
        assert_eq!(bunches.due("a", Time(1000 + BUNCH_MS)), Time(1000 + BUNCH_MS));
    }
}
