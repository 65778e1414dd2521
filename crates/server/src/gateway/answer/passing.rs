//! A body on its way to the client, judged as it passes.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use deadstop_core::{Failure, How, Status};
use deadstop_protocol::llm::answer::{Pass, Reader};
use deadstop_protocol::llm::client::Client;
use deadstop_protocol::llm::{Dialect, Piece, refusal};
use http_body::Frame;

use super::{TOO_LONG_PART, fault, may_stay_unread};
use crate::door::Answer;
use crate::door::decode::{Decoder, Tail};
use crate::gateway::flow::{Answered, Cut, Flow, Why};

/// Done when a kill is on disk, or something is decided elsewhere.
type Written = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A body on its way through.
pub(super) struct Passing {
    upstream: Option<Answer>,
    pub(super) flow: Box<Flow>,
    pub(super) reader: Option<Reader>,
    decoder: Decoder,
    dialect: Dialect,
    /// Who reads it, as far as a refusal depends on that.
    pub(super) client: Client,
    pub(super) ready: VecDeque<Frame<Bytes>>,
    /// How many ready frames are not judged yet. Frames that arrived together are judged together.
    unjudged: usize,
    pieces: Vec<Piece>,
    /// How many decompressed bytes belong to the ready frames.
    fed: usize,
    /// While set, nothing goes out: other nodes have not confirmed the decision yet.
    undecided: Option<Written>,
    /// Bytes that wait for a person's decision.
    held: Option<Held>,
    /// Where the ready frames end, and where the judged ones end.
    edge: Edge,
    judged: Edge,
    pub(super) shape: Shape,
    /// Whether some of it passes unread, because the policy allows that.
    pub(super) is_unread: bool,
    /// Why it must break off: the upstream did, or no error event can be added to it.
    breaks: Option<axum::BoxError>,
    /// The stream's last bytes, and what they wait for: a kill is on disk before the client hears
    /// of it, and some clients must have read what came before.
    last_words: Option<(Written, Bytes)>,
}

/// How a stream is divided, and so how it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Events,
    /// One list of objects.
    List,
    /// Objects on lines of their own.
    Lines,
}

/// Bytes that wait until a person has decided about the tool calls in them.
struct Held {
    words: Pin<Box<dyn Future<Output = Vec<Answered>> + Send>>,
    bytes: Bytes,
    whole_events: bool,
}

/// Chunks that are judged together at most.
const TOGETHER: usize = 64;

/// How long the last words wait for a client that must read them apart from what came before.
const GAP: Duration = Duration::from_millis(100);

/// Where the bytes that were passed on end.
#[derive(Clone)]
struct Edge {
    /// With a whole event.
    whole_events: bool,
    /// With a whole line.
    whole_line: bool,
    /// The last character that is no white space.
    last: u8,
    /// The last bytes of the last chunk.
    tail: Tail,
}

impl Passing {
    pub(super) fn new(
        upstream: Answer,
        flow: Box<Flow>,
        reader: Option<Reader>,
        decoder: Decoder,
        dialect: Dialect,
    ) -> Passing {
        let edge = Edge { whole_events: true, whole_line: true, last: b'[', tail: Tail::default() };
        Passing {
            upstream: Some(upstream),
            flow,
            reader,
            decoder,
            dialect,
            client: Client::Other,
            ready: VecDeque::new(),
            unjudged: 0,
            pieces: Vec::new(),
            fed: 0,
            undecided: None,
            held: None,
            judged: edge.clone(),
            edge,
            shape: Shape::Events,
            is_unread: false,
            breaks: None,
            last_words: None,
        }
    }

    /// Reads the next bytes and decides what goes out.
    fn read(&mut self, bytes: Bytes) {
        let Some(reader) = &mut self.reader else {
            self.ready.push_back(Frame::data(bytes));
            return;
        };
        self.pieces.clear();
        let clear = self.decoder.feed(&bytes);
        if let Some(fault) = fault(&self.decoder) {
            if !self.goes_on_unread(fault) {
                return self.break_off(fault);
            }
            self.reader = None;
            self.ready.push_back(Frame::data(bytes));
            return;
        }
        let pass = reader.push(&clear, &mut self.pieces);
        if reader.lost() && !self.goes_on_unread(TOO_LONG_PART) {
            return self.break_off(TOO_LONG_PART);
        }
        let asks = self.pieces.iter().any(|piece| matches!(piece, Piece::ToolCall { .. }));
        if asks && self.unjudged > 0 && self.judge().is_err() {
            return;
        }
        let Some(reader) = &self.reader else { return };
        match self.flow.take(reader, &self.pieces) {
            Ok(()) => {
                let whole_events = reader.between_events();
                let mut bytes = passed(bytes, pass);
                if let Some((from, words)) = self.flow.asks() {
                    // What comes before the call passes, unless the answer is compressed.
                    let from = if self.decoder.is_identity() { from.min(bytes.len()) } else { 0 };
                    let before = bytes.split_to(from);
                    if !before.is_empty() {
                        self.edge.whole_events = true;
                        self.out(before);
                    }
                    self.held = Some(Held { words: Box::pin(words), bytes, whole_events });
                    return;
                }
                self.edge.whole_events = whole_events;
                self.out(bytes);
                self.unjudged += 1;
            }
            Err(cut) => {
                if self.decoder.is_identity() && cut.from > 0 {
                    let passed = passed(bytes, pass);
                    self.edge.whole_events = true;
                    self.out(passed.slice(..cut.from.min(passed.len())));
                }
                self.cut(&cut);
            }
        }
    }

    /// Whether what cannot be read passes.
    fn goes_on_unread(&mut self, why: &str) -> bool {
        self.is_unread = self.is_unread || may_stay_unread(&self.flow, self.dialect, why);
        self.is_unread
    }

    /// Ends a stream that cannot be judged, at once and without a word that a client could take for its
    /// proper end.
    fn break_off(&mut self, why: &'static str) {
        (self.upstream, self.unjudged, self.undecided) = (None, 0, None);
        self.ready.clear();
        self.flow.fail(Failure::provider(How::Unreadable));
        self.breaks = Some(why.into());
    }

    /// Judges what was read and not passed on yet. If a guard stops the call, none of it goes out.
    #[inline]
    fn judge(&mut self) -> Result<(), ()> {
        self.unjudged = 0;
        match self.flow.judge() {
            Ok(()) => {
                match self.flow.undecided() {
                    Some(decided) => self.undecided = Some(Box::pin(decided)),
                    None => {
                        self.judged = self.edge.clone();
                        self.decoder.passed(std::mem::take(&mut self.fed));
                    }
                }
                Ok(())
            }
            Err(cut) => {
                self.cut_back(&cut);
                Err(())
            }
        }
    }

    /// Ends the stream where it was last judged.
    fn cut_back(&mut self, cut: &Cut) {
        (self.unjudged, self.undecided) = (0, None);
        self.ready.clear();
        self.edge = self.judged.clone();
        self.cut(cut);
    }

    /// Waits until the cluster has confirmed the decision. A stop does not wait for that.
    fn poll_decided(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(decided) = &mut self.undecided else { return Poll::Ready(()) };
        if decided.as_mut().poll(context).is_ready() {
            self.undecided = None;
            if self.unjudged == 0 {
                let _ = self.judge();
            }
            return Poll::Ready(());
        }
        std::task::ready!(self.flow.poll_stopped(context));
        self.undecided = None;
        match self.flow.why_stopped() {
            Some(cut) => self.cut_back(&cut),
            None => self.upstream = None,
        }
        Poll::Ready(())
    }

    #[inline]
    fn out(&mut self, bytes: Bytes) {
        if let Some(last) = bytes.last() {
            let edge = &mut self.edge;
            edge.whole_line = matches!(last, b'\n' | b'\r');
            edge.last = bytes.trim_ascii_end().last().copied().unwrap_or(edge.last);
            edge.tail = Tail::of(&bytes);
            self.fed = self.decoder.fresh();
            self.ready.push_back(Frame::data(bytes));
        }
    }

    /// Ends the stream: drops the upstream, sends the provider's error event and ends cleanly.
    /// Where no event can be added, it breaks off: a clean end would look like a complete answer.
    fn cut(&mut self, cut: &Cut) {
        self.upstream = None;
        self.flow.take_back();
        self.flow.settle(Status::Cancelled);
        let words = match self.shape {
            Shape::Events => self.last_event(cut),
            Shape::List => self.last_element(cut),
            Shape::Lines => self.last_line(cut),
        };
        let readable = self.reader.is_some();
        match self.decoder.last_words(&words, self.edge.tail).filter(|_| readable) {
            Some(words) => {
                let words = Bytes::from(words);
                let written = self.flow.settle_kills();
                let gap = if self.client.reads_errors_apart() { GAP } else { Duration::ZERO };
                let ready = async move {
                    written.await;
                    if !gap.is_zero() {
                        tokio::time::sleep(gap).await;
                    }
                };
                self.last_words = Some((Box::pin(ready), words));
            }
            None => self.breaks = Some("stopped".into()),
        }
    }

    fn last_event(&self, cut: &Cut) -> Vec<u8> {
        let incident = cut.incident.as_deref();
        let mut event = match &cut.why {
            Why::Trip(trip) => refusal::stream_error(self.dialect, self.client, trip, incident),
            Why::Unreachable(why) => refusal::stream_failed(self.dialect, 503, why),
        };
        if !self.edge.whole_events && !self.client.reads_errors_apart() {
            // The client holds the beginning of an event, which must not become a valid one: an
            // empty line would complete it.
            let spoil = if self.edge.whole_line { "data: cut\n\n" } else { "\ndata: cut\n\n" };
            event.splice(0..0, spoil.bytes());
        }
        event
    }

    fn last_element(&self, cut: &Cut) -> Vec<u8> {
        let comma: &[u8] = if matches!(self.edge.last, b'[' | b',') { b"" } else { b"," };
        [comma, &self.last_object(cut), b"]"].concat()
    }

    /// An error on a line of its own. The beginning of another line, which the client may hold, stays without
    /// its end.
    fn last_line(&self, cut: &Cut) -> Vec<u8> {
        let end: &[u8] = if self.edge.whole_line { b"" } else { b"\n" };
        [end, &self.last_object(cut), b"\n"].concat()
    }

    fn last_object(&self, cut: &Cut) -> Vec<u8> {
        match &cut.why {
            Why::Trip(trip) => {
                refusal::refuse(self.dialect, self.client, trip, cut.incident.as_deref()).body
            }
            Why::Unreachable(why) => refusal::failed(self.dialect, 503, why).body,
        }
    }

    fn end(&mut self) {
        self.upstream = None;
        self.flow.whole = true;
        if self.judge().is_err() {
            return;
        }
        if let Some(reader) = &mut self.reader {
            self.pieces.clear();
            let pass = reader.finish(&mut self.pieces);
            let taken = self.flow.take(reader, &self.pieces);
            if let Some((_, words)) = self.flow.asks() {
                let rest = passed(Bytes::new(), pass);
                let held = Held { words: Box::pin(words), bytes: rest, whole_events: true };
                self.held = Some(held);
                return;
            }
            if let Err(cut) = taken.and_then(|()| self.flow.judge()) {
                self.cut(&cut);
                return;
            }
            if let Pass::Bytes(rest) = pass {
                self.out(Bytes::from(rest));
            }
        }
        self.flow.settle(Status::Ok);
    }
}

impl Passing {
    /// A person has decided: what was held passes, or the stream ends.
    fn release(&mut self, words: Vec<Answered>, held: Held) {
        if let Err(cut) = self.flow.take_words(words) {
            self.cut(&cut);
            return;
        }
        self.edge.whole_events = held.whole_events;
        self.out(held.bytes);
        self.unjudged += 1;
        if self.upstream.is_none() && self.judge().is_ok() {
            self.flow.settle(Status::Ok);
        }
    }
}

fn passed(bytes: Bytes, pass: Pass) -> Bytes {
    match pass {
        Pass::All => bytes,
        Pass::Bytes(instead) => Bytes::from(instead),
    }
}

impl http_body::Body for Passing {
    type Data = Bytes;
    type Error = axum::BoxError;

    #[inline]
    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let this = &mut *self;
        loop {
            if this.undecided.is_some() {
                std::task::ready!(this.poll_decided(context));
                continue;
            }
            if this.unjudged == 0 {
                if let Some(frame) = this.ready.pop_front() {
                    return Poll::Ready(Some(Ok(frame)));
                }
                if let Some((written, _)) = &mut this.last_words {
                    std::task::ready!(written.as_mut().poll(context));
                    let last = this.last_words.take().map(|(_, words)| Ok(Frame::data(words)));
                    return Poll::Ready(last);
                }
            }
            if let Some(held) = &mut this.held {
                let words = std::task::ready!(held.words.as_mut().poll(context));
                if let Some(held) = this.held.take() {
                    this.release(words, held);
                }
                continue;
            }
            let Some(upstream) = &mut this.upstream else {
                std::task::ready!(this.flow.poll_booked(context));
                return Poll::Ready(this.breaks.take().map(Err));
            };
            if this.unjudged == 0 && this.flow.poll_stopped(context).is_ready() {
                match this.flow.why_stopped() {
                    Some(cut) => this.cut(&cut),
                    None => this.upstream = None,
                }
                continue;
            }
            match Pin::new(upstream).poll_frame(context) {
                Poll::Pending if this.unjudged == 0 => return Poll::Pending,
                // All that has arrived is read.
                Poll::Pending => {
                    let _ = this.judge();
                }
                Poll::Ready(None) => this.end(),
                Poll::Ready(Some(Err(error))) => {
                    if this.judge().is_ok() {
                        this.upstream = None;
                        this.flow.fail(Failure::provider(How::Torn));
                        this.breaks = Some(error.into());
                    }
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => {
                        this.read(bytes);
                        if this.unjudged == TOGETHER {
                            let _ = this.judge();
                        }
                    }
                    Err(trailers) => this.ready.push_back(trailers),
                },
            }
        }
    }
}
