//! Calls whose stream broke off before their answer came. A client resumes it with `Last-Event-ID`,
//! and the answer comes on another stream. So does the refusal of a call that was stopped by then.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use deadstop_core::{Digest, Status};
use deadstop_protocol::mcp::{self, Ended, Why};
use http::HeaderValue;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::answer::{LATE, as_event};
use super::flight::Flight;
use super::pass::Onward;
use super::reading::Shelf;

/// How long a refusal is kept for a client that may come back for it.
const KEPT: Duration = Duration::from_secs(300);

/// The protocol's session at a server.
pub(super) type Session = (String, HeaderValue);

/// A call, by its session and its id.
type PendingKey = (Session, Digest);

/// The calls that wait for an answer, and the refusals of those that were stopped.
#[derive(Default)]
pub(super) struct Waiting {
    calls: Mutex<HashMap<PendingKey, oneshot::Sender<Ended>>>,
    /// Listings whose stream broke off, with whom they are for.
    lists: Mutex<HashMap<PendingKey, Shelf>>,
    words: Mutex<HashMap<Session, Words>>,
}

/// Events that a client has not received.
#[derive(Default)]
struct Words {
    untold: VecDeque<(Digest, Bytes)>,
    /// How many more events follow as soon as they are on disk.
    coming: usize,
    /// How many streams were resumed, and the one that listens.
    streams: usize,
    listens: Option<Waker>,
}

impl Words {
    fn is_idle(&self) -> bool {
        self.streams == 0 && self.coming == 0 && self.untold.is_empty()
    }
}

impl Waiting {
    /// Keeps a call until its answer comes, it is stopped, or it times out.
    pub(super) fn keep(
        self: &Arc<Waiting>,
        mut flight: Flight,
        session: HeaderValue,
        onward: &Arc<Onward>,
        deadline: Instant,
    ) {
        let Some(id) = flight.id.clone() else { return };
        let Some(key) = mcp::key(&id) else { return };
        let session = (onward.upstream.name.clone(), session);
        let place = (session.clone(), key);
        let (answered, answer) = oneshot::channel();
        self.calls.lock().insert(place.clone(), answered);
        let (all, onward) = (Arc::clone(self), Arc::clone(onward));
        tokio::spawn(async move {
            let why = tokio::select! {
                Ok(ended) = answer => {
                    flight.settle(&ended);
                    None
                }
                () = flight.stopped() => {
                    all.announce(&session);
                    let why = flight.stop();
                    onward.cancel(std::slice::from_ref(&id), "stopped by deadstop");
                    flight.written().await;
                    Some(why)
                }
                () = tokio::time::sleep_until(deadline) => {
                    all.announce(&session);
                    flight.fail(Status::Fault, LATE);
                    onward.cancel(std::slice::from_ref(&id), "it took too long");
                    Some(Why::failed("timeout", LATE))
                }
            };
            all.calls.lock().remove(&place);
            drop(flight);
            if let Some(why) = why {
                all.say(&session, key, as_event(&mcp::refuse(&id, &why)));
                tokio::time::sleep(KEPT).await;
                all.forget(&session, key);
            }
        });
    }

    /// Keeps a request for a listing until its answer comes, or it times out.
    pub(super) fn keep_list(
        self: &Arc<Waiting>,
        shelf: Shelf,
        session: HeaderValue,
        deadline: Instant,
    ) {
        let place = ((shelf.server().to_owned(), session), shelf.key);
        self.lists.lock().insert(place.clone(), shelf);
        let all = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(deadline).await;
            all.lists.lock().remove(&place);
        });
    }

    /// The request for a listing that a message on another stream answers.
    pub(super) fn list(&self, session: &Session, key: Digest) -> Option<Shelf> {
        self.lists.lock().remove(&(session.clone(), key))
    }

    /// Reads what a server says on another stream.
    pub(super) fn take(&self, session: &Session, envelope: &mcp::Envelope<'_>) {
        if self.calls.lock().is_empty() {
            return;
        }
        for message in envelope.messages().iter().filter(|message| message.is_answer()) {
            let Some(key) = message.key() else { continue };
            if let Some(answered) = self.calls.lock().remove(&(session.clone(), key)) {
                // Fails if the waiting task has ended meanwhile.
                let _ = answered.send(mcp::ended(message));
            }
        }
    }

    /// A stream was resumed: see [`Waiting::next`].
    pub(super) fn listen(&self, session: &Session) {
        self.words.lock().entry(session.clone()).or_default().streams += 1;
    }

    /// A resumed stream has ended.
    pub(super) fn leave(&self, session: &Session) {
        let mut words = self.words.lock();
        if let Some(theirs) = words.get_mut(session) {
            theirs.streams = theirs.streams.saturating_sub(1);
            if theirs.is_idle() {
                words.remove(session);
            }
        }
    }

    /// The next of Deadstop's own events for a session.
    pub(super) fn next(&self, session: &Session, context: &mut Context<'_>) -> Option<Bytes> {
        let mut words = self.words.lock();
        let theirs = words.get_mut(session)?;
        let next = theirs.untold.pop_front().map(|(_, event)| event);
        if next.is_none() {
            theirs.listens = Some(context.waker().clone());
        }
        next
    }

    /// Whether Deadstop has events of its own for a session, now or soon.
    pub(super) fn has_words(&self, session: &Session) -> bool {
        let words = self.words.lock();
        words.get(session).is_some_and(|it| it.coming > 0 || !it.untold.is_empty())
    }

    /// Announces an event, which follows once it is on disk.
    fn announce(&self, session: &Session) {
        self.words.lock().entry(session.clone()).or_default().coming += 1;
    }

    fn say(&self, session: &Session, key: Digest, event: Bytes) {
        let mut words = self.words.lock();
        let theirs = words.entry(session.clone()).or_default();
        theirs.coming = theirs.coming.saturating_sub(1);
        theirs.untold.push_back((key, event));
        let listens = theirs.listens.take();
        drop(words);
        listens.into_iter().for_each(Waker::wake);
    }

    /// Drops an event that the client did not collect in time.
    fn forget(&self, session: &Session, key: Digest) {
        let mut words = self.words.lock();
        if let Some(theirs) = words.get_mut(session) {
            theirs.untold.retain(|(of, _)| *of != key);
            if theirs.is_idle() {
                words.remove(session);
            }
        }
    }
}
