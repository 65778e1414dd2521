//! Calls whose stream broke off before their answer came, and may be taken up again: a client asks
//! for the rest with `Last-Event-ID`, and the answer comes on another stream.

use std::collections::HashMap;
use std::sync::Arc;

use deadstop_core::{Digest, Status};
use deadstop_protocol::mcp::{self, Ended};
use http::HeaderValue;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::flight::Flight;
use super::pass::Onward;

/// A call, by its server, the protocol's session and its id.
type Place = (String, HeaderValue, Digest);

/// The calls that wait.
#[derive(Default)]
pub(super) struct Waiting {
    calls: Mutex<HashMap<Place, oneshot::Sender<Ended>>>,
}

impl Waiting {
    /// Keeps a call until its answer comes, somebody stops it, or it has taken too long.
    pub(super) fn keep(
        self: &Arc<Waiting>,
        mut flight: Flight,
        session: HeaderValue,
        onward: &Arc<Onward>,
        deadline: Instant,
    ) {
        let Some(id) = flight.id.clone() else { return };
        let Some(key) = mcp::key(&id) else { return };
        let place = (onward.upstream.name.clone(), session, key);
        let (answered, answer) = oneshot::channel();
        self.calls.lock().insert(place.clone(), answered);
        let (all, onward) = (Arc::clone(self), Arc::clone(onward));
        tokio::spawn(async move {
            tokio::select! {
                Ok(ended) = answer => flight.settle(&ended),
                () = flight.stopped() => {
                    flight.stop();
                    onward.cancel(&[id], "stopped by deadstop");
                }
                () = tokio::time::sleep_until(deadline) => {
                    flight.fail(Status::Fault, "the server did not answer in time");
                    onward.cancel(&[id], "it took too long");
                }
            }
            all.calls.lock().remove(&place);
        });
    }

    /// Reads what a server says on another stream.
    pub(super) fn take(&self, server: &str, session: &HeaderValue, said: &[u8]) {
        if self.calls.lock().is_empty() {
            return;
        }
        let Ok(envelope) = mcp::read(said) else { return };
        for message in envelope.messages().iter().filter(|message| message.is_answer()) {
            let Some(key) = message.key() else { continue };
            let place = (server.to_owned(), session.clone(), key);
            if let Some(answered) = self.calls.lock().remove(&place) {
                // Whoever waited may have given up meanwhile.
                let _ = answered.send(mcp::ended(message));
            }
        }
    }
}
