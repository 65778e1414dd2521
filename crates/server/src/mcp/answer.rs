//! The way back: an answer passes to the client, and a copy of it is read.
//!
//! The events of a stream pass when they are whole, because the result of a call may get a note to the
//! model. Other bytes pass as they come. A document is read to its end first.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use deadstop_core::Status;
use deadstop_protocol::mcp::Events;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Limited};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;

use super::pass::Onward;
use super::reading::{Reading, Taken};
use super::waiting::{Session, Waiting};
use super::{accepted, json};
use crate::door::decode::{self, Decoder, TOO_LARGE, UNREADABLE};
use crate::door::{Answer, plain, strip_hop_by_hop};

/// Largest document that is read before it is passed on.
const MOST_JSON: usize = 64 << 20;
const DIED: &str = "the server ended the answer before the call was answered; do not retry blindly";
const LED_AWAY: &str = "it answers with a redirect, which would lead the client past Deadstop; put the \
                        address that it wants into url in deadstop.toml";
pub(super) const LATE: &str = "the server did not answer in time";

/// Sends a request on and passes its answer back.
pub(super) async fn pass(
    onward: Onward,
    reading: Option<Reading>,
    place: OwnedSemaphorePermit,
) -> Response<Body> {
    let Some(mut reading) = reading else {
        return match onward.send().await {
            Ok(response) => through(response, place),
            Err(problem) => unreachable_server(&problem),
        };
    };
    let deadline = reading.deadline;
    let sent = tokio::select! {
        biased;
        () = reading.stopped() => return stopped(&onward, reading).await,
        sent = onward.send() => sent,
        () = tokio::time::sleep_until(deadline) => return late(&onward, reading).await,
    };
    let response = match sent {
        Ok(response) => response,
        Err(problem) => {
            let text = format!("the MCP server cannot be reached: {problem}");
            let told = reading.fail("server_unreachable", &text);
            reading.booked().await;
            return match documents(told) {
                Some(body) => json(StatusCode::OK, body),
                None => unreachable_server(&problem),
            };
        }
    };
    let status = response.status();
    if !status.is_success() {
        // Passed on faithfully; a server's fault counts as one, a client's as an answer.
        let ended = if status.is_server_error() { Status::Fault } else { Status::Error };
        for flight in &mut reading.flights {
            flight.fail(ended, &format!("HTTP {status}"));
        }
        reading.booked().await;
        return through(response, place);
    }
    match kind(response.headers()) {
        Kind::Events => {
            let (mut parts, body) = response.into_parts();
            strip_hop_by_hop(&mut parts.headers);
            if reading.may_reword() {
                parts.headers.remove(header::CONTENT_LENGTH);
            }
            let passing = Passing::new(body, reading, onward, &parts.headers, place);
            Response::from_parts(parts, Body::new(passing))
        }
        Kind::Json => whole(onward, reading, response).await,
        Kind::Other => through(response, place),
    }
}

/// A document: read to its end, then passed on.
async fn whole(onward: Onward, mut reading: Reading, response: Response<Answer>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    strip_hop_by_hop(&mut parts.headers);
    let deadline = reading.deadline;
    let read = Limited::new(body, MOST_JSON).collect();
    let read = tokio::select! {
        biased;
        () = reading.stopped() => return stopped(&onward, reading).await,
        read = read => read,
        () = tokio::time::sleep_until(deadline) => return late(&onward, reading).await,
    };
    let bytes = match read {
        Ok(read) => read.to_bytes(),
        Err(_) => {
            let told = reading.fail("server_died", DIED);
            reading.booked().await;
            return documents(told)
                .map_or_else(|| unreachable_server(DIED), |body| json(StatusCode::OK, body));
        }
    };
    let clear = match decode::whole(&parts.headers, &bytes) {
        Ok(clear) => clear,
        Err(fault) => {
            let (code, why) = match fault {
                decode::Fault::TooLarge => ("answer_too_large", TOO_LARGE),
                decode::Fault::Broken => ("answer_unreadable", UNREADABLE),
            };
            let told = reading.fail(code, why);
            reading.booked().await;
            return documents(told)
                .map_or_else(|| unreachable_server(why), |body| json(StatusCode::OK, body));
        }
    };
    let clear = clear.as_deref().unwrap_or(&bytes);
    let taken = reading.take(clear);
    for flight in &mut reading.flights {
        flight.fail(Status::Fault, DIED);
    }
    reading.booked().await;
    let Some(body) = taken.booked(clear) else {
        return Response::from_parts(parts, Body::from(bytes));
    };
    parts.headers.remove(header::CONTENT_ENCODING);
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    Response::from_parts(parts, Body::from(body))
}

/// Refuses calls that were stopped before the server answered.
async fn stopped(onward: &Onward, mut reading: Reading) -> Response<Body> {
    let told = reading.stop();
    let ids: Vec<String> = told.iter().map(|(id, _)| id.clone()).collect();
    onward.cancel(&ids, "stopped by deadstop");
    reading.booked().await;
    reading.warden.settle_kills(&reading.chain).await;
    documents(told).map_or_else(accepted, |body| json(StatusCode::OK, body))
}

/// The server takes too long.
async fn late(onward: &Onward, mut reading: Reading) -> Response<Body> {
    let told = reading.fail("timeout", LATE);
    let ids: Vec<String> = told.iter().map(|(id, _)| id.clone()).collect();
    onward.cancel(&ids, "it took too long");
    reading.booked().await;
    let gone = || plain(StatusCode::GATEWAY_TIMEOUT, LATE);
    documents(told).map_or_else(gone, |body| json(StatusCode::OK, body))
}

/// Answers as one document: a batch if there are several.
fn documents(mut told: Vec<(String, Vec<u8>)>) -> Option<Vec<u8>> {
    if told.len() < 2 {
        return told.pop().map(|(_, answer)| answer);
    }
    let answers: Vec<Vec<u8>> = told.into_iter().map(|(_, answer)| answer).collect();
    Some([b"[".as_slice(), &answers.join(&b','), b"]"].concat())
}

/// Passes an answer on without reading it. A redirect would lead the client past Deadstop, with the same
/// message.
fn through(response: Response<Answer>, place: OwnedSemaphorePermit) -> Response<Body> {
    if response.status().is_redirection() && response.headers().contains_key(header::LOCATION) {
        return unreachable_server(LED_AWAY);
    }
    let (mut parts, body) = response.into_parts();
    strip_hop_by_hop(&mut parts.headers);
    // The place is taken until the answer has passed.
    let body = body.map_frame(move |frame| {
        let _ = &place;
        frame
    });
    Response::from_parts(parts, Body::new(body))
}

/// A stream that a client opens for the server's own messages, or to resume one that broke off,
/// with the answers of earlier calls. DELETE and other methods pass the same way.
pub(super) async fn follow(
    mut onward: Onward,
    session: Option<HeaderValue>,
    waiting: Arc<Waiting>,
    place: OwnedSemaphorePermit,
) -> Response<Body> {
    let resumes = onward.resumes();
    if resumes {
        onward.plainly();
    }
    let sent = onward.send().await;
    let session = session.map(|session| (onward.upstream.name.clone(), session));
    let has_words = session.as_ref().is_some_and(|it| resumes && waiting.has_words(it));
    let response = match sent {
        Ok(response) => Some(response),
        Err(_) if has_words => None,
        Err(problem) => return unreachable_server(&problem),
    };
    let is_events = |response: &Response<Answer>| matches!(kind(response.headers()), Kind::Events);
    let (session, response) = match (session, response) {
        (Some(session), Some(response)) if is_events(&response) => (session, Some(response)),
        // The server sends no stream, but Deadstop has events for the client.
        (Some(session), _) if has_words => (session, None),
        (_, Some(response)) => return through(response, place),
        (_, None) => return unreachable_server(DIED),
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
    let words = resumes && open && decoder.is_identity();
    if words {
        parts.headers.remove(header::CONTENT_LENGTH);
        waiting.listen(&session);
    }
    let events = Events::default();
    let body = Following { upstream, decoder, events, session, waiting, words, _place: place };
    Response::from_parts(parts, Body::new(body))
}

/// A stream that a client follows, with Deadstop's own events in between.
struct Following {
    upstream: Option<Answer>,
    decoder: Decoder,
    events: Events,
    session: Session,
    waiting: Arc<Waiting>,
    /// Whether Deadstop may add events.
    words: bool,
    _place: OwnedSemaphorePermit,
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
            // Never in the middle of an event, unless the upstream has ended.
            if this.words
                && (this.events.is_between() || this.upstream.is_none())
                && let Some(event) = this.waiting.next(&this.session, context)
            {
                let event = match std::mem::take(&mut this.events).is_between() {
                    true => event,
                    false => Bytes::from([b"\n\n", &*event].concat()),
                };
                return Poll::Ready(Some(Ok(Frame::data(event))));
            }
            let Some(upstream) = &mut this.upstream else {
                // An announced event may still be waiting for the disk.
                return match this.words && this.waiting.has_words(&this.session) {
                    true => Poll::Pending,
                    false => Poll::Ready(None),
                };
            };
            let Some(frame) = std::task::ready!(Pin::new(upstream).poll_frame(context)) else {
                this.upstream = None;
                continue;
            };
            let frame = frame?;
            if let Some(bytes) = frame.data_ref() {
                let clear = this.decoder.feed(bytes);
                if this.decoder.is_too_large() {
                    (this.upstream, this.words) = (None, false);
                    return Poll::Ready(Some(Err(TOO_LARGE.into())));
                }
                let (waiting, session) = (&this.waiting, &this.session);
                this.events.push(&clear, |_, said| {
                    if let Some(said) = said {
                        waiting.take(session, said);
                    }
                });
            }
            return Poll::Ready(Some(Ok(frame)));
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if self.words {
            self.waiting.leave(&self.session);
        }
    }
}

/// A message as an event.
pub(super) fn as_event(message: &[u8]) -> Bytes {
    Bytes::from([b"event: message\ndata: ".as_slice(), message, b"\n\n"].concat())
}

enum Kind {
    Events,
    Json,
    Other,
}

fn kind(headers: &HeaderMap) -> Kind {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let kind = kind.to_ascii_lowercase();
    if kind.starts_with(b"text/event-stream") {
        Kind::Events
    } else if kind.starts_with(b"application/json") {
        Kind::Json
    } else {
        Kind::Other
    }
}

fn unreachable_server(problem: &str) -> Response<Body> {
    plain(StatusCode::BAD_GATEWAY, &format!("the MCP server cannot be reached: {problem}"))
}

/// Done when the decision is on disk.
type Written = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What passes to the client next.
enum Ready {
    Bytes(Bytes),
    /// An event that was read, with its data.
    Read(Bytes, Vec<u8>, Taken),
}

impl Ready {
    fn bytes(self) -> Bytes {
        match self {
            Ready::Bytes(bytes) => bytes,
            Ready::Read(event, said, taken) => match taken.booked(&said) {
                Some(other) => Bytes::copy_from_slice(&Events::reworded(&event, &other)),
                None => event,
            },
        }
    }
}

/// An event stream on its way to the client.
struct Passing {
    upstream: Option<Answer>,
    reading: Reading,
    onward: Arc<Onward>,
    events: Events,
    decoder: Decoder,
    deadline: Pin<Box<Sleep>>,
    /// Whether events pass when they are whole.
    whole: bool,
    ready: VecDeque<Ready>,
    /// What the client is told once it is on disk.
    last_words: Option<(Written, Bytes)>,
    /// Whether it must break off: no event can be added to a compressed stream.
    breaks: bool,
    _place: OwnedSemaphorePermit,
}

impl Passing {
    fn new(
        upstream: Answer,
        reading: Reading,
        onward: Onward,
        headers: &HeaderMap,
        place: OwnedSemaphorePermit,
    ) -> Passing {
        let decoder = Decoder::new(headers);
        Passing {
            whole: reading.may_reword() && decoder.is_identity(),
            upstream: Some(upstream),
            deadline: Box::pin(tokio::time::sleep_until(reading.deadline)),
            reading,
            onward: Arc::new(onward),
            events: Events::default(),
            decoder,
            ready: VecDeque::new(),
            last_words: None,
            breaks: false,
            _place: place,
        }
    }

    fn read(&mut self, bytes: Bytes) {
        let clear = self.decoder.feed(&bytes);
        if self.decoder.is_too_large() {
            let told = self.reading.fail("answer_too_large", TOO_LARGE);
            self.end(&told, None);
            self.breaks = true;
            return;
        }
        let reading = &mut self.reading;
        if !self.whole {
            self.events.push(&clear, |_, said| {
                said.map(|said| reading.take(said));
            });
            self.ready.push_back(Ready::Bytes(bytes));
            return;
        }
        let ready = &mut self.ready;
        self.events.push(&clear, |event, said| {
            let event_bytes = Bytes::copy_from_slice(event);
            ready.push_back(match said {
                Some(said) => Ready::Read(event_bytes, said.to_vec(), reading.take(said)),
                None => Ready::Bytes(event_bytes),
            });
        });
    }

    /// The stream ends here, with answers of our own.
    fn end(&mut self, told: &[(String, Vec<u8>)], cancelled: Option<&str>) {
        self.pass_rest();
        self.upstream = None;
        if let Some(reason) = cancelled {
            let ids: Vec<String> = told.iter().map(|(id, _)| id.clone()).collect();
            self.onward.cancel(&ids, reason);
        }
        let mut words = Vec::new();
        if !self.events.is_between() {
            // Ends the event that the server had begun.
            words.extend_from_slice(b"\n\n");
        }
        for (_, answer) in told {
            words.extend_from_slice(&as_event(answer));
        }
        if told.is_empty() || !self.decoder.is_identity() {
            return;
        }
        let (warden, chain) = (Arc::clone(&self.reading.warden), self.reading.chain.clone());
        let written: Written = Box::pin(async move { warden.settle_kills(&chain).await });
        self.last_words = Some((written, Bytes::from(words)));
    }

    /// Passes on the beginning of an event whose end will not come.
    fn pass_rest(&mut self) {
        if self.whole {
            self.ready.push_back(Ready::Bytes(Bytes::from(self.events.rest())));
        }
    }

    /// The server has ended the stream, or it broke off.
    fn over(&mut self) {
        if self.take_up_later() {
            self.pass_rest();
            self.upstream = None;
            return;
        }
        let told = self.reading.fail("server_died", DIED);
        self.end(&told, None);
    }

    /// Keeps the calls for a stream that resumes this one, if the client can resume it.
    fn take_up_later(&mut self) -> bool {
        let Some(session) = self.reading.session.clone() else { return false };
        if !self.events.is_resumable() {
            return false;
        }
        for flight in std::mem::take(&mut self.reading.flights) {
            let deadline = self.reading.deadline;
            self.reading.waiting.keep(flight, session.clone(), &self.onward, deadline);
        }
        true
    }
}

impl http_body::Body for Passing {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let this = &mut *self;
        loop {
            // Booked first: the client may send its next call at once, to any node.
            std::task::ready!(this.reading.poll_booked(context));
            if let Some(ready) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(ready.bytes()))));
            }
            if let Some((written, _)) = &mut this.last_words {
                std::task::ready!(written.as_mut().poll(context));
                let words = this.last_words.take().map(|(_, words)| Ok(Frame::data(words)));
                return Poll::Ready(words);
            }
            let Some(upstream) = &mut this.upstream else {
                let broken = std::mem::take(&mut this.breaks);
                return Poll::Ready(broken.then(|| Err(TOO_LARGE.into())));
            };
            if !this.reading.flights.is_empty() {
                if this.reading.poll_stopped(context).is_ready() {
                    let told = this.reading.stop();
                    this.end(&told, Some("stopped by deadstop"));
                    continue;
                }
                if this.deadline.as_mut().poll(context).is_ready() {
                    let told = this.reading.fail("timeout", LATE);
                    this.end(&told, Some("it took too long"));
                    continue;
                }
            }
            match std::task::ready!(Pin::new(upstream).poll_frame(context)) {
                None | Some(Err(_)) => this.over(),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        this.read(bytes);
                    }
                }
            }
        }
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        // A client that goes away has not cancelled anything: it may come back for the rest.
        if !self.reading.flights.is_empty() && tokio::runtime::Handle::try_current().is_ok() {
            self.take_up_later();
        }
    }
}
