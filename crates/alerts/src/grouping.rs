//! A storm is one message.
//!
//! The first of a group goes out at once; what follows within the interval is counted and told in
//! one message when the interval is over. Pure: the time is an argument, and what comes out is to
//! be sent by the caller.

use std::collections::HashMap;

use deadstop_core::{Millis, Time};

use crate::{Kind, Message};

/// Groups that are followed at a time. Beyond them, messages are folded by kind and project alone.
const MOST_GROUPS: usize = 1024;

/// What makes two messages alike: the session does not count, or every session of a runaway fleet
/// would ring by itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Alike {
    kind: Kind,
    project: String,
    agent: Option<String>,
    guard: Option<String>,
    reason: Option<String>,
}

#[derive(Debug)]
struct Group {
    told: Time,
    /// The last one that was not told, standing for all of them.
    folded: Option<Message>,
}

/// The groups of one target.
#[derive(Debug)]
pub struct Groups {
    interval: Millis,
    groups: HashMap<Alike, Group>,
}

impl Groups {
    /// Groups that tell at most one message an interval each.
    pub fn new(interval: Millis) -> Groups {
        Groups { interval, groups: HashMap::new() }
    }

    /// Takes a message. Gives it back if it is to be sent now.
    ///
    /// ```
    /// use deadstop_alerts::{Groups, Kind, Message};
    /// use deadstop_core::{Millis, Time};
    /// let mut groups = Groups::new(Millis(60_000));
    /// let message = |id, at| Message::new(id, Kind::Kill, "p", "stopped", Time(at));
    /// assert!(groups.offer(message("a", 0), Time(0)).is_some());
    /// assert!(groups.offer(message("b", 10), Time(10)).is_none());
    /// assert!(groups.offer(message("c", 20), Time(20)).is_none());
    /// let due = groups.due(Time(60_000));
    /// assert_eq!((due.len(), due[0].count), (1, 2));
    /// ```
    pub fn offer(&mut self, message: Message, now: Time) -> Option<Message> {
        if message.kind == Kind::Test {
            // Somebody waits for it.
            return Some(message);
        }
        let alike = self.alike(&message, now);
        match self.groups.get_mut(&alike) {
            Some(group) if group.folded.is_some() || now.since(group.told) < self.interval => {
                group.folded = Some(match group.folded.take() {
                    Some(before) => fold(before, message),
                    None => message,
                });
                None
            }
            _ => {
                self.groups.insert(alike, Group { told: now, folded: None });
                Some(message)
            }
        }
    }

    /// What is to be sent by now, oldest group first.
    pub fn due(&mut self, now: Time) -> Vec<Message> {
        let interval = self.interval;
        let mut due = Vec::new();
        self.groups.retain(|_, group| {
            if now.since(group.told) < interval {
                return true;
            }
            let folded = group.folded.take();
            group.told = now;
            let stays = folded.is_some();
            due.extend(folded);
            stays
        });
        due.sort_by(|a, b| (a.first_seen, &a.id).cmp(&(b.first_seen, &b.id)));
        due
    }

    /// When there will be something to send, if nothing else happens.
    pub fn next_due(&self) -> Option<Time> {
        let waiting = self.groups.values().filter(|group| group.folded.is_some());
        waiting.map(|group| group.told + self.interval).min()
    }

    fn alike(&mut self, message: &Message, now: Time) -> Alike {
        let alike = Alike {
            kind: message.kind,
            project: message.project.clone(),
            agent: message.agent.clone(),
            guard: message.guard.clone(),
            reason: message.reason.clone(),
        };
        if self.groups.len() < MOST_GROUPS || self.groups.contains_key(&alike) {
            return alike;
        }
        let interval = self.interval;
        self.groups.retain(|_, group| group.folded.is_some() || now.since(group.told) < interval);
        if self.groups.len() < MOST_GROUPS {
            return alike;
        }
        Alike { agent: None, guard: None, reason: None, ..alike }
    }
}

/// Two messages in one: the newer one's words, both counted.
fn fold(before: Message, after: Message) -> Message {
    let same = |a: &Option<String>, b: Option<String>| if *a == b { b } else { None };
    Message {
        id: before.id,
        agent: same(&before.agent, after.agent),
        session: same(&before.session, after.session),
        guard: same(&before.guard, after.guard),
        reason: same(&before.reason, after.reason),
        count: before.count.saturating_add(after.count),
        first_seen: before.first_seen.min(after.first_seen),
        last_seen: before.last_seen.max(after.last_seen),
        ..after
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(agent: &str, at: u64) -> Message {
        let mut message = Message::new(&format!("m{at}"), Kind::Kill, "p", "stopped", Time(at));
        message.agent = Some(agent.into());
        message.session = Some(format!("s{at}"));
        message
    }

    #[test]
    fn a_storm_is_one_message_an_interval() {
        let mut groups = Groups::new(Millis(60_000));
        assert_eq!(groups.offer(message("a", 0), Time(0)).unwrap().count, 1);
        for at in 1..15 {
            assert_eq!(groups.offer(message("a", at), Time(at)), None);
        }
        assert!(
            groups.offer(message("b", 20), Time(20)).is_some(),
            "another agent is another group"
        );
        assert_eq!(groups.next_due(), Some(Time(60_000)));
        assert_eq!(groups.due(Time(59_999)), []);
        let due = groups.due(Time(60_000));
        assert_eq!(due.len(), 1);
        assert_eq!((due[0].count, due[0].first_seen, due[0].last_seen), (14, Time(1), Time(14)));
        assert_eq!(due[0].title(), "Deadstop: a stopped, and 13 more like it");
        assert_eq!((&due[0].agent, &due[0].session), (&Some("a".into()), &None));
        assert_eq!(groups.next_due(), None);
        assert_eq!(groups.offer(message("a", 70_000), Time(70_000)), None, "within the next one");
        assert_eq!(groups.due(Time(120_000)).len(), 1);
        assert!(groups.due(Time(180_000)).is_empty());
        assert!(groups.groups.is_empty());
        assert!(groups.offer(message("a", 200_000), Time(200_000)).is_some());
    }

    #[test]
    fn groups_are_bounded() {
        let mut groups = Groups::new(Millis(60_000));
        let sent = (0..5_000).filter_map(|at| groups.offer(message(&at.to_string(), at), Time(at)));
        assert_eq!(sent.count(), MOST_GROUPS + 1);
        assert!(groups.groups.len() <= MOST_GROUPS + 1);
        let rest: u64 = groups.due(Time(70_000)).iter().map(|message| message.count).sum();
        assert_eq!(rest, 5_000 - MOST_GROUPS as u64 - 1);
    }

    proptest! {
        #[test]
        fn every_event_is_told_once_and_not_too_often(
            steps in prop::collection::vec((0..3_u8, 0..30_000_u64), 1..200),
        ) {
            let mut groups = Groups::new(Millis(60_000));
            let (mut now, mut told) = (0, Vec::new());
            for (agent, step) in &steps {
                now += step;
                told.extend(groups.due(Time(now)).into_iter().map(|m| (now, m)));
                let offered = groups.offer(message(&agent.to_string(), now), Time(now));
                told.extend(offered.map(|m| (now, m)));
            }
            told.extend(groups.due(Time(now + 60_000)).into_iter().map(|m| (now + 60_000, m)));
            let count: u64 = told.iter().map(|(_, message)| message.count).sum();
            prop_assert_eq!(count, steps.len() as u64);
            for agent in ["0", "1", "2"] {
                let times: Vec<u64> = told
                    .iter()
                    .filter(|(_, message)| message.agent.as_deref() == Some(agent))
                    .map(|(at, _)| *at)
                    .collect();
                prop_assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 60_000));
            }
        }
    }
}
