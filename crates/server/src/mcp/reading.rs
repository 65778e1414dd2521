//! What is read of an answer as it passes: the ends of calls, and listings of tools.

use std::sync::Arc;
use std::task::{Context, Poll};

use deadstop_core::{Digest, Status};
use deadstop_protocol::mcp::{self, Why};
use http::HeaderValue;
use tokio::time::Instant;

use super::flight::{Flight, Note};
use super::waiting::Waiting;
use deadstop_warden::{Booking, Chain, Tools, Warden};

/// What an answer is read for.
pub(super) struct Reading {
    /// Calls that it may answer.
    pub(super) flights: Vec<Flight>,
    /// Calls that it has answered, until all nodes know of their end.
    pub(super) bookings: Vec<Booking>,
    /// Tasks that the server has begun in place of answers, by their ids as they came.
    pub(super) tasks: Vec<String>,
    /// Requests for listings: what their ids say, and the ids as they came.
    pub(super) lists: Vec<(Digest, String)>,
    pub(super) warden: Arc<Warden>,
    pub(super) chain: Chain,
    pub(super) server: String,
    /// When its calls have taken too long.
    pub(super) deadline: Instant,
    pub(super) waiting: Arc<Waiting>,
    /// The protocol's own session.
    pub(super) session: Option<HeaderValue>,
}

/// Why a message of a server does not pass: two clients could read it in two ways.
pub(super) const AMBIGUOUS: &str = "the server's message has more than one meaning (a member that is there twice, \
    for example), so it was not passed on";

/// A message that was read.
#[derive(Default)]
pub(super) struct Taken {
    /// Whether it must not pass, because clients could read it otherwise than Deadstop does.
    pub(super) ambiguous: bool,
    /// The message in strict JSON, if it is JSON to some clients only.
    strict: Option<Vec<u8>>,
    /// What passes in its place.
    replaced: Option<Vec<u8>>,
    /// Whether it is replaced because tools in it are hidden.
    hides: bool,
    /// What the model is told behind it, known when all nodes know of the call's end.
    note: Option<Note>,
    /// The listing in it, if some of its tools are compared with what all nodes know.
    undecided: Option<Shelf>,
}

/// Whose listing a message holds.
#[derive(Clone)]
pub(super) struct Shelf {
    pub(super) key: Digest,
    warden: Arc<Warden>,
    chain: Chain,
    server: String,
}

impl Shelf {
    /// Compares a listing with what is known of its tools; which of them are hidden is known with the booking.
    pub(super) fn listed(&self, listing: &mcp::Listing<'_>) -> Option<Booking> {
        let tools = Tools { tools: listing.tools.clone(), complete: listing.complete };
        self.warden.listed(&self.chain, &self.server, tools)
    }

    /// The server's name.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// The listing without the tools that are hidden; `None` if it passes as it is.
    pub(super) fn narrowed(&self, said: &[u8], message: &mcp::Message<'_>) -> Option<Vec<u8>> {
        let listing = message.result.and_then(mcp::listing)?;
        listing.narrowed(said, |name: &str| self.warden.hides(&self.chain, &self.server, name))
    }
}

impl Taken {
    /// What passes in place of the message, once [`Reading::poll_booked`] is ready.
    pub(super) fn booked(mut self, said: &[u8]) -> Option<Vec<u8>> {
        let strict = self.strict.take();
        let said = strict.as_deref().unwrap_or(said);
        if self.note.is_none() && self.undecided.is_none() {
            return self.replaced;
        }
        let envelope = mcp::read(said).ok()?;
        if let Some(shelf) = self.undecided {
            let mut messages = envelope.messages().iter();
            let listing = messages.find(|message| message.key() == Some(shelf.key))?;
            return self.replaced.or_else(|| shelf.narrowed(said, listing));
        }
        self.note?.put(said, envelope.messages().first()?)
    }

    /// Whether it may not pass as it is, where nothing can take its place; once [`Reading::poll_booked`] is ready.
    pub(super) fn hides(self, said: &[u8]) -> bool {
        self.ambiguous || self.hides || (self.undecided.is_some() && self.booked(said).is_some())
    }
}

impl Reading {
    /// Reads a message of the server; gives its replacement if it may not pass as it is.
    pub(super) fn take(&mut self, said: &[u8]) -> Taken {
        if let Ok(envelope) = mcp::read(said) {
            return self.heard(said, &envelope);
        }
        // What is no JSON to any client is a message to none.
        let Some(strict) = mcp::strictly(said) else { return Taken::default() };
        match mcp::read(&strict) {
            Ok(envelope) => {
                Taken { strict: Some(strict.clone()), ..self.heard(&strict, &envelope) }
            }
            Err(_) => Taken { ambiguous: true, ..Taken::default() },
        }
    }

    fn heard(&mut self, said: &[u8], envelope: &mcp::Envelope<'_>) -> Taken {
        let alone = matches!(envelope, mcp::Envelope::One(_));
        let (mut narrowed, mut later, mut undecided, mut hides) = (None, None, None, false);
        for message in envelope.messages().iter().filter(|message| message.is_answer()) {
            let Some(key) = message.key() else { continue };
            let called = self.flights.iter().position(|flight| flight.is(key));
            if let Some(at) = called {
                self.tasks.extend(message.result.and_then(mcp::begun_task).map(str::to_owned));
                let mut flight = self.flights.swap_remove(at);
                flight.settle(&mcp::ended(message));
                let (note, booking) = (flight.note(), flight.booking());
                match booking {
                    // What its result has shown is known with the booking.
                    Some(_) if alone => later = Some(note),
                    // Of a batch one message is changed.
                    _ => narrowed = narrowed.or_else(|| note.put(said, message)),
                }
                self.bookings.extend(booking);
            }
            // A listing is judged whichever request it seems to answer: clients do not agree on which ids are equal.
            let Some(result) = message.result.filter(|_| called.is_none()) else { continue };
            if mcp::lists_unreadably(result) {
                return Taken { ambiguous: true, ..Taken::default() };
            }
            self.lists.retain(|(list, _)| *list != key);
            let Some(listing) = mcp::listing(result) else { continue };
            let shelf = self.shelf(key);
            match shelf.listed(&listing) {
                // Which of its tools are hidden is known with the booking. Of a batch one message is
                // changed: calls of the others' tools are refused anyway.
                Some(booking) => {
                    self.bookings.push(booking);
                    undecided.get_or_insert(shelf);
                }
                None => {
                    let kept = shelf.narrowed(said, message);
                    hides |= kept.is_some();
                    narrowed = narrowed.or(kept);
                }
            }
        }
        Taken { replaced: narrowed, hides, note: later, undecided, ..Taken::default() }
    }

    pub(super) fn shelf(&self, key: Digest) -> Shelf {
        let (warden, chain) = (Arc::clone(&self.warden), self.chain.clone());
        Shelf { key, warden, chain, server: self.server.clone() }
    }

    /// Whether a message may have to be replaced: a listing, or the result of a call.
    pub(super) fn may_reword(&self) -> bool {
        !self.lists.is_empty() || !self.flights.is_empty()
    }

    /// Ready when one of the calls is stopped.
    pub(super) fn poll_stopped(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let stopped = self.flights.iter_mut().any(|flight| flight.poll_stopped(context).is_ready());
        if stopped { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits until one of the calls is stopped.
    pub(super) async fn stopped(&mut self) {
        std::future::poll_fn(|context| self.poll_stopped(context)).await;
    }

    /// Ready when all nodes know of all calls that have ended.
    pub(super) fn poll_booked(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.bookings.extend(self.flights.iter_mut().filter_map(Flight::booking));
        self.bookings.retain_mut(|booking| booking.as_mut().poll(context).is_pending());
        if self.bookings.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits for the same.
    pub(super) async fn booked(&mut self) {
        std::future::poll_fn(|context| self.poll_booked(context)).await;
    }

    /// Ends calls that were stopped: their ids, and the refusal for each.
    pub(super) fn stop(&mut self) -> Vec<(String, Vec<u8>)> {
        self.end(Flight::stop)
    }

    /// Ends the calls because they got no answer.
    pub(super) fn fail(&mut self, reason: &str, text: &str) -> Vec<(String, Vec<u8>)> {
        self.end(|flight| {
            flight.fail(Status::Fault, text);
            Why::failed(reason, text)
        })
    }

    /// Ends the calls and the listings, because their answer cannot be judged.
    pub(super) fn refuse(&mut self, reason: &str, text: &str) -> Vec<(String, Vec<u8>)> {
        let mut told = self.fail(reason, text);
        let lists = std::mem::take(&mut self.lists).into_iter();
        told.extend(lists.map(|(_, id)| {
            let answer = mcp::failure(&id, reason, text);
            (id, answer)
        }));
        told
    }

    fn end(&mut self, mut end: impl FnMut(&mut Flight) -> Why) -> Vec<(String, Vec<u8>)> {
        let flights = std::mem::take(&mut self.flights);
        let bookings = &mut self.bookings;
        let told = flights.into_iter().filter_map(|mut flight| {
            let why = end(&mut flight);
            bookings.extend(flight.booking());
            let id = flight.id.clone()?;
            let answer = mcp::refuse(&id, &why);
            Some((id, answer))
        });
        told.collect()
    }
}
