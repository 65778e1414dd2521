//! Events for people who watch. A watcher that reconnects continues after the last event it has
//! seen.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use deadstop_core::Time;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::now;

/// Events that are kept for watchers that reconnect.
const KEPT: usize = 4096;
/// After so long without a watcher, single calls are no longer events.
const WATCHED_MS: u64 = 5 * 60 * 1000;

/// An event.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Event {
    /// Its number; later events have larger ones.
    pub id: u64,
    /// When.
    pub at: Time,
    /// The kind of event, in a word.
    pub what: Cow<'static, str>,
    /// The same word, but `kill_switch` where the similarity guard has switched an agent off.
    #[serde(default)]
    pub event_type: Cow<'static, str>,
    /// Not serialised: a watcher sees one project only.
    #[serde(skip)]
    pub project: String,
    /// The agent.
    pub agent: String,
    /// The session; empty if it is about an agent or the project.
    pub session: String,
    /// What happened, in a sentence.
    pub text: String,
    /// The incident it became.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incident: Option<String>,
    /// The guard that tripped, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<Cow<'static, str>>,
    /// The waiting call that it is about, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<String>,
}

impl Event {
    /// An event that happens now.
    pub fn new(
        what: &'static str,
        project: &str,
        agent: &str,
        session: &str,
        text: String,
    ) -> Event {
        Event {
            id: 0,
            at: now(),
            what: Cow::Borrowed(what),
            event_type: Cow::Borrowed(what),
            project: project.to_owned(),
            agent: agent.to_owned(),
            session: session.to_owned(),
            text,
            incident: None,
            guard: None,
            approval: None,
        }
    }
}

/// The stream of events.
pub struct Events {
    sender: broadcast::Sender<Event>,
    kept: Mutex<VecDeque<Event>>,
    last: AtomicU64,
    watched: AtomicU64,
    /// Changes with every event except single calls, for watchers that only want to know when to
    /// reload.
    pub changes: watch::Sender<u64>,
    /// Cancelled at shutdown, so that watchers stop waiting.
    pub over: CancellationToken,
}

impl Events {
    /// `first` is the number to start from. A time works: numbers then keep growing over a restart.
    pub fn new(first: u64) -> Events {
        Events {
            sender: broadcast::channel(1024).0,
            kept: Mutex::new(VecDeque::new()),
            last: AtomicU64::new(first),
            watched: AtomicU64::new(0),
            changes: watch::Sender::new(first),
            over: CancellationToken::new(),
        }
    }

    /// Publishes an event.
    pub fn tell(&self, mut event: Event) {
        let mut kept = self.kept.lock();
        event.id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(event.clone());
        if event.what != "call" {
            self.changes.send_replace(event.id);
        }
        // There may be no receiver.
        let _ = self.sender.send(event);
    }

    /// Whether there is a watcher, or was one recently.
    pub fn watched(&self, now: Time) -> bool {
        self.sender.receiver_count() > 0
            || now.0.saturating_sub(self.watched.load(Ordering::Relaxed)) < WATCHED_MS
    }

    /// The number of the last event.
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// The events after `since`, and a receiver for those from now on. `None` in place of the past
    /// events if they are no longer kept.
    pub fn watch(
        &self,
        since: Option<u64>,
        now: Time,
    ) -> (Option<Vec<Event>>, broadcast::Receiver<Event>) {
        self.watched.store(now.0, Ordering::Relaxed);
        let kept = self.kept.lock();
        let receiver = self.sender.subscribe();
        let Some(since) = since else { return (Some(Vec::new()), receiver) };
        let last = self.last.load(Ordering::Relaxed);
        let first = kept.front().map_or(last + 1, |event| event.id);
        if since > last || since + 1 < first {
            return (None, receiver);
        }
        let missed = kept.iter().filter(|event| event.id > since).cloned().collect();
        (Some(missed), receiver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tell(events: &Events, text: &str) {
        events.tell(Event::new("kill", "default", "", "", text.into()));
    }

    #[tokio::test]
    async fn who_comes_back_goes_on_where_it_was() {
        let events = Events::new(100);
        tell(&events, "a");
        tell(&events, "b");
        let (missed, mut live) = events.watch(Some(101), Time(0));
        assert_eq!(missed.unwrap().iter().map(|e| e.text.as_str()).collect::<Vec<_>>(), ["b"]);
        tell(&events, "c");
        assert_eq!(live.recv().await.unwrap().id, 103);
        // A number from before the restart, and one that was never given.
        assert!(events.watch(Some(50), Time(0)).0.is_none());
        assert!(events.watch(Some(500), Time(0)).0.is_none());
        assert_eq!(events.watch(None, Time(0)).0.unwrap().len(), 0);
        for _ in 0..=KEPT {
            tell(&events, "more");
        }
        assert!(events.watch(Some(101), Time(0)).0.is_none());
    }
}
