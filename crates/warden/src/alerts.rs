//! Alerts: the messages of an alert, one for each target that wants it.
//!
//! A message is written to the outbox in one transaction with its incident. The first message of a
//! kind is sent at once. Those of the next minute are sent as one, so that a burst of trips becomes
//! one message. An outage is told once, whatever number of calls it meets; the agents that it meets in
//! the next minute are told of together.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use deadstop_alerts::{Kind, Message};
use deadstop_core::{GuardId, Measure, Time, Trip, Verdict};
use deadstop_store::Delivery;
use parking_lot::Mutex;

use crate::{Project, Warden, now};

/// Similar messages within so long are sent as one.
const BUNCH_MS: u64 = 60_000;
/// Groups of messages that are remembered.
const MOST_BUNCHES: usize = 4096;

/// Outages that are remembered as told. The database knows the others.
const MOST_TOLD: usize = 4096;

/// The outages that this node has told of, by their incidents.
#[derive(Default)]
pub struct ToldOutages(Mutex<VecDeque<String>>);

impl ToldOutages {
    /// Whether this node has told of an outage.
    pub(crate) fn has(&self, incident: &str) -> bool {
        self.0.lock().iter().any(|known| known == incident)
    }

    /// Notes that this node has told of an outage.
    pub(crate) fn add(&self, incident: &str) {
        let mut told = self.0.lock();
        if told.len() >= MOST_TOLD {
            told.pop_front();
        }
        told.push_back(incident.to_owned());
    }
}

/// When each group of messages may be sent again.
#[derive(Default)]
pub struct Bunches(Mutex<HashMap<String, Time>>);

impl Bunches {
    /// When a message of a group is to be sent.
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

/// An alert.
pub struct Alert<'a> {
    /// Its kind.
    pub kind: Kind,
    /// The agent.
    pub agent: Option<&'a str>,
    /// The session.
    pub session: Option<&'a str>,
    /// The trip behind it.
    pub trip: Option<&'a Trip>,
    /// What happened, in a sentence.
    pub sentence: String,
    /// The incident, if the trip became one.
    pub incident: Option<&'a str>,
    /// The server that fails, where the trip belongs to an outage.
    pub outage: Option<&'a str>,
}

/// The kind of alert for a trip; `None` if it needs none.
pub fn kind_of(trip: &Trip) -> Option<Kind> {
    match (trip.guard, trip.verdict) {
        (GuardId::Killed | GuardId::Paused, _) | (_, Verdict::Allow) => None,
        (_, Verdict::Kill) => Some(Kind::Kill),
        (GuardId::Budget, Verdict::Warn | Verdict::Steer) => Some(Kind::BudgetWarning),
        (GuardId::Breaker, _) => Some(Kind::BreakerOpen),
        _ => Some(Kind::Trip),
    }
}

impl Warden {
    /// The messages of an alert: one for every target that wants its kind.
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
            let alike = match alert.outage {
                Some(server) => format!("outage:{server}"),
                None => format!("{agent}:{guard}"),
            };
            let bunch = format!("{}:{}:{alike}", target.id, alert.kind.name());
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
                once: alert.outage.is_some(),
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
    fn outages_that_were_told_are_known() {
        let told = ToldOutages::default();
        told.add("a");
        assert!(told.has("a") && !told.has("b"));
        (0..MOST_TOLD).for_each(|n| told.add(&format!("later {n}")));
        assert!(!told.has("a"), "it is bounded");
    }

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
