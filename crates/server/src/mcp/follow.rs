//! Streams that a client opens for the server's own messages, or to resume one that broke off, with the answers of
//! earlier requests.
//!
//! A client takes an answer from any stream. So a listing of tools is judged here as well, if its request waits for
//! it. One that no request waits for is left out: a server could answer here what it answers otherwise elsewhere.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use deadstop_protocol::mcp::{self, Events};
use deadstop_warden::Booking;
use http::{HeaderValue, Response, header};
use http_body::Frame;
use tokio::sync::OwnedSemaphorePermit;

use super::answer::{DIED, Kind, kind, through, unreachable_server};
use super::pass::Onward;
use super::reading::Shelf;
use super::waiting::{Session, Waiting};
use crate::door::decode::{Decoder, TOO_LARGE, UNREADABLE};
use crate::door::{Answer, strip_hop_by_hop};

/// Why a packed stream breaks off.
const UNASKED: &str = "the server lists tools in a packed stream, where Deadstop cannot judge them";

/// Passes such a stream on. DELETE and other methods pass the same way.
pub(super) async fn follow(
    mut onward: Onward,
    session: Option<HeaderValue>,
    waiting: Arc<Waiting>,
    place: OwnedSemaphorePermit,
) -> Response<Body> {
    let resumes = onward.resumes();
    onward.plainly();
    let sent = onward.send().await;
    let session = session.map(|session| (onward.upstream.name.clone(), session));
    let has_words = session.as_ref().is_some_and(|it| resumes && waiting.has_words(it));
    let response = match sent {
        Ok(response) => Some(response),
        Err(_) if has_words => None,
        Err(problem) => return unreachable_server(&problem),
    };
    let is_events = |response: &Response<Answer>| matches!(kind(response.headers()), Kind::Events);
    let response = match response {
        Some(response) if is_events(&response) => Some(response),
        // The server sends no stream, but Deadstop has events for the client.
        _ if has_words => None,
        Some(response) => return through(response, place),
        None => return unreachable_server(DIED),
    };
    let (mut parts, upstream) = match response {
        Some(response) => {
            let (parts, body) = response.into_parts();
            (parts, Some(body))
        }
        None => {
            let (mut parts, ()) = Response::new(()).into_parts();
            let kind = HeaderValue::from_static("text/event-stream");
            parts.headers.insert(header::CONTENT_TYPE, kind);
            (parts, None)
        }
    };
    strip_hop_by_hop(&mut parts.headers);
    let decoder = Decoder::new(&parts.headers);
    // A body with a length is complete: it does not stay open.
    let open = has_words || !parts.headers.contains_key(header::CONTENT_LENGTH);
    // An event may be left out.
    parts.headers.remove(header::CONTENT_LENGTH);
    let words = resumes && open && decoder.is_identity() && session.is_some();
    if let (Some(session), true) = (&session, words) {
        waiting.listen(session);
    }
    let body = Following {
        upstream,
        decoder,
        events: Events::default(),
        session,
        waiting,
        words,
        ready: VecDeque::new(),
        _place: place,
    };
    Response::from_parts(parts, Body::new(body))
}

/// A stream that a client follows, with Deadstop's own events in between.
struct Following {
    upstream: Option<Answer>,
    decoder: Decoder,
    events: Events,
    session: Option<Session>,
    waiting: Arc<Waiting>,
    /// Whether Deadstop may add events.
    words: bool,
    ready: VecDeque<Ready>,
    _place: OwnedSemaphorePermit,
}

/// What passes to the client next.
enum Ready {
    Bytes(Bytes),
    /// An event with a listing, its message, and what to wait for before it is known which tools are hidden.
    Listing(Bytes, Vec<u8>, Shelf, Option<Booking>),
}

/// What becomes of a server's message.
enum Fate {
    Passes,
    /// No client may see it.
    LeftOut,
    /// A listing: its message as it was read.
    Judged(Vec<u8>, Shelf, Option<Booking>),
}

impl Following {
    /// Reads what the server sends; fails if what must not pass cannot be taken out.
    fn read(&mut self, bytes: &Bytes) -> Result<(), &'static str> {
        let clear = self.decoder.feed(bytes);
        if self.decoder.is_too_large() {
            return Err(TOO_LARGE);
        }
        if self.decoder.is_unreadable() {
            return Err(UNREADABLE);
        }
        let (waiting, session) = (&self.waiting, self.session.as_ref());
        let packed = !self.decoder.is_identity();
        let (ready, mut fault) = (&mut self.ready, None);
        self.events.push(&clear, |event, said| {
            let fate = said.map_or(Fate::Passes, |said| fate(waiting, session, said));
            let event = || Bytes::copy_from_slice(event);
            match fate {
                Fate::Passes if packed => {}
                Fate::Passes => ready.push_back(Ready::Bytes(event())),
                Fate::LeftOut | Fate::Judged(..) if packed => fault = Some(UNASKED),
                Fate::LeftOut => {}
                Fate::Judged(said, shelf, booking) => {
                    ready.push_back(Ready::Listing(event(), said, shelf, booking));
                }
            }
        });
        if packed && fault.is_none() {
            self.ready.push_back(Ready::Bytes(bytes.clone()));
        }
        fault.map_or(Ok(()), Err)
    }

    /// What passes next; pending until it is known.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(Ready::Listing(_, _, _, Some(booking))) = self.ready.front_mut() {
            std::task::ready!(booking.as_mut().poll(context));
        }
        Poll::Ready(match self.ready.pop_front() {
            None => None,
            Some(Ready::Bytes(bytes)) => Some(bytes),
            Some(Ready::Listing(event, said, shelf, _)) => Some(shown(&event, &said, &shelf)),
        })
    }
}

/// The event without the tools that are hidden.
fn shown(event: &Bytes, said: &[u8], shelf: &Shelf) -> Bytes {
    let narrowed = mcp::read(said).ok().and_then(|envelope| {
        let mut messages = envelope.messages().iter();
        shelf.narrowed(said, messages.find(|message| message.key() == Some(shelf.key))?)
    });
    narrowed.map_or_else(
        || event.clone(),
        |said| Bytes::copy_from_slice(&Events::reworded(event, &said)),
    )
}

/// Reads a message: tells the calls in it that wait, and finds listings.
fn fate(waiting: &Waiting, session: Option<&Session>, said: &[u8]) -> Fate {
    let strict;
    let said = match mcp::read(said) {
        Ok(_) => said,
        Err(_) => match mcp::strictly(said) {
            Some(made) => {
                strict = made;
                &strict
            }
            None => return Fate::Passes,
        },
    };
    let Ok(envelope) = mcp::read(said) else { return Fate::LeftOut };
    if let Some(session) = session {
        waiting.take(session, &envelope);
    }
    let answers = envelope.messages().iter().filter(|message| message.is_answer());
    let mut listings = answers.filter_map(|message| {
        let result = message.result?;
        let lists = mcp::lists_unreadably(result) || mcp::listing(result).is_some();
        lists.then_some((message, result))
    });
    let Some((message, result)) = listings.next() else { return Fate::Passes };
    let shelf = session.zip(message.key()).and_then(|(session, key)| waiting.list(session, key));
    match (shelf, mcp::listing(result), listings.next()) {
        (Some(shelf), Some(listing), None) => {
            let booking = shelf.listed(&listing);
            Fate::Judged(said.to_vec(), shelf, booking)
        }
        _ => Fate::LeftOut,
    }
}

impl http_body::Body for Following {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let this = &mut *self;
        loop {
            if let Some(bytes) = std::task::ready!(this.poll_ready(context)) {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            // Never in the middle of an event, unless the upstream has ended.
            if this.words
                && (this.events.is_between() || this.upstream.is_none())
                && let Some(session) = &this.session
                && let Some(event) = this.waiting.next(session, context)
            {
                let event = match std::mem::take(&mut this.events).is_between() {
                    true => event,
                    false => Bytes::from([b"\n\n", &*event].concat()),
                };
                return Poll::Ready(Some(Ok(Frame::data(event))));
            }
            let Some(upstream) = &mut this.upstream else {
                // An announced event may still be waiting for the disk.
                let session = this.session.as_ref().filter(|_| this.words);
                return match session.is_some_and(|session| this.waiting.has_words(session)) {
                    true => Poll::Pending,
                    false => Poll::Ready(None),
                };
            };
            let Some(frame) = std::task::ready!(Pin::new(upstream).poll_frame(context)) else {
                this.upstream = None;
                if this.decoder.is_identity() {
                    // The beginning of an event: what a client makes of it, it would make of it without us.
                    let rest = this.events.rest();
                    this.ready.extend((!rest.is_empty()).then(|| Ready::Bytes(Bytes::from(rest))));
                }
                continue;
            };
            match frame?.into_data() {
                Ok(bytes) => {
                    if let Err(why) = this.read(&bytes) {
                        (this.upstream, this.words) = (None, false);
                        this.ready.clear();
                        return Poll::Ready(Some(Err(why.into())));
                    }
                }
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if let (Some(session), true) = (&self.session, self.words) {
            self.waiting.leave(session);
        }
    }
}
