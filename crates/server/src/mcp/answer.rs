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
use http_body_util::BodyExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;

use super::pass::Onward;
use super::reading::{AMBIGUOUS, Reading, Taken};
use super::{accepted, json};
use crate::door::decode::{self, Decoder, TOO_LARGE, UNREADABLE};
use crate::door::{Answer, gathered, plain, strip_hop_by_hop};

/// Largest document that is read before it is passed on.
const MOST_JSON: usize = 64 << 20;
pub(super) const DIED: &str =
    "the server ended the answer before the call was answered; do not retry blindly";
const LED_AWAY: &str = "it answers with a redirect, which would lead the client past Deadstop; put the \
                        address that it wants into url in deadstop.toml";
/// Why a packed stream breaks off.
const HIDDEN: &str = "the server lists tools that the policy hides, in a packed stream that nothing can be taken \
                      out of";
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
    let read = gathered(body, MOST_JSON);
    let read = tokio::select! {
        biased;
        () = reading.stopped() => return stopped(&onward, reading).await,
        read = read => read,
        () = tokio::time::sleep_until(deadline) => return late(&onward, reading).await,
    };
    let bytes = match read {
        Ok(read) => read,
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
            let told = reading.refuse(code, why);
            reading.booked().await;
            return documents(told)
                .map_or_else(|| unreachable_server(why), |body| json(StatusCode::OK, body));
        }
    };
    let clear = clear.as_deref().unwrap_or(&bytes);
    let taken = reading.take(clear);
    if taken.ambiguous {
        let told = reading.refuse("answer_unreadable", AMBIGUOUS);
        reading.booked().await;
        return documents(told)
            .map_or_else(|| unreachable_server(AMBIGUOUS), |body| json(StatusCode::OK, body));
    }
    for flight in &mut reading.flights {
        flight.fail(Status::Fault, DIED);
    }
    reading.booked().await;
    onward.watch_tasks(&reading.tasks, reading.chain.stops());
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
pub(super) fn through(response: Response<Answer>, place: OwnedSemaphorePermit) -> Response<Body> {
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

/// A message as an event.
pub(super) fn as_event(message: &[u8]) -> Bytes {
    Bytes::from([b"event: message\ndata: ".as_slice(), message, b"\n\n"].concat())
}

pub(super) enum Kind {
    Events,
    Json,
    Other,
}

pub(super) fn kind(headers: &HeaderMap) -> Kind {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let kind = kind.to_ascii_lowercase();
    if kind.starts_with(b"text/event-stream") {
        Kind::Events
    } else if kind.is_empty()
        || kind.starts_with(b"text/")
        || kind.windows(4).any(|part| part == b"json")
    {
        // Some clients read JSON in whatever calls itself a text.
        Kind::Json
    } else {
        Kind::Other
    }
}

pub(super) fn unreachable_server(problem: &str) -> Response<Body> {
    plain(StatusCode::BAD_GATEWAY, &format!("the MCP server cannot be reached: {problem}"))
}

/// Done when the decision is on disk.
type Written = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What passes to the client next.
enum Ready {
    Bytes(Bytes),
    /// An event that was read, with its data.
    Read(Bytes, Vec<u8>, Taken),
    /// Bytes of a packed stream, with the messages that they end.
    Packed(Bytes, Vec<(Vec<u8>, Taken)>),
}

impl Ready {
    /// What passes; `None` if it may not, and nothing can take its place.
    fn bytes(self) -> Option<Bytes> {
        match self {
            Ready::Bytes(bytes) => Some(bytes),
            Ready::Read(event, said, taken) => match taken.booked(&said) {
                Some(other) => Some(Bytes::copy_from_slice(&Events::reworded(&event, &other))),
                None => Some(event),
            },
            Ready::Packed(bytes, messages) => {
                let hides = messages.into_iter().any(|(said, taken)| taken.hides(&said));
                (!hides).then_some(bytes)
            }
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
    /// Why it must break off: no event can be added to a compressed stream.
    breaks: Option<&'static str>,
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
            breaks: None,
            _place: place,
        }
    }

    fn read(&mut self, bytes: Bytes) {
        let clear = self.decoder.feed(&bytes);
        if self.decoder.is_too_large() {
            return self.break_off("answer_too_large", TOO_LARGE);
        }
        if self.decoder.is_unreadable() {
            return self.break_off("answer_unreadable", UNREADABLE);
        }
        let reading = &mut self.reading;
        if !self.whole {
            let mut messages = Vec::new();
            self.events.push(&clear, |_, said| {
                messages.extend(said.map(|said| (said.to_vec(), reading.take(said))));
            });
            self.ready.push_back(Ready::Packed(bytes, messages));
            return;
        }
        let (ready, mut ambiguous) = (&mut self.ready, false);
        self.events.push(&clear, |event, said| {
            let taken = said.map(|said| (said.to_vec(), reading.take(said)));
            ambiguous |= taken.as_ref().is_some_and(|(_, taken)| taken.ambiguous);
            let event_bytes = Bytes::copy_from_slice(event);
            match taken {
                _ if ambiguous => {}
                Some((said, taken)) => ready.push_back(Ready::Read(event_bytes, said, taken)),
                None => ready.push_back(Ready::Bytes(event_bytes)),
            }
        });
        if ambiguous {
            let told = self.reading.refuse("answer_unreadable", AMBIGUOUS);
            self.end(&told, Some(AMBIGUOUS));
        }
    }

    /// Ends a stream to which nothing can be added, and whose client must not take it for complete.
    fn break_off(&mut self, code: &str, why: &'static str) {
        let told = self.reading.refuse(code, why);
        self.end(&told, None);
        self.breaks = Some(why);
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
        for (key, _) in std::mem::take(&mut self.reading.lists) {
            let shelf = self.reading.shelf(key);
            self.reading.waiting.keep_list(shelf, session.clone(), self.reading.deadline);
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
                let Some(bytes) = ready.bytes() else {
                    this.ready.clear();
                    this.break_off("tools_hidden", HIDDEN);
                    continue;
                };
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            if let Some((written, _)) = &mut this.last_words {
                std::task::ready!(written.as_mut().poll(context));
                let words = this.last_words.take().map(|(_, words)| Ok(Frame::data(words)));
                return Poll::Ready(words);
            }
            let Some(upstream) = &mut this.upstream else {
                return Poll::Ready(this.breaks.take().map(|why| Err(why.into())));
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
        if !self.reading.tasks.is_empty() && tokio::runtime::Handle::try_current().is_ok() {
            self.onward.watch_tasks(&self.reading.tasks, self.reading.chain.stops());
        }
        // A client that goes away has not cancelled anything: it may come back for the rest.
        if self.reading.may_reword() && tokio::runtime::Handle::try_current().is_ok() {
            self.take_up_later();
        }
    }
}
