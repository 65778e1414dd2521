//! The way back: an answer passes to the client while the engine looks at a copy.
//!
//! A stream is passed on chunk by chunk and can be cut at any moment. A client can use a JSON
//! answer only when it is complete. So the gateway reads and judges all of it before it sends the
//! first byte, and can still replace it by a refusal if a tool call in it is refused.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use deadstop_core::{Failure, How, Quota, Status, Trip};
use deadstop_protocol::llm::answer::{Form, Pass, Reader, nearer};
use deadstop_protocol::llm::client::Client;
use deadstop_protocol::llm::request::Brings;
use deadstop_protocol::llm::{Dialect, Piece, quota as windows, refusal};
use deadstop_warden::metrics::Reply;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::BodyExt;

use super::flow::{Answered, Cut, Flow, Why};
use super::send::Failed;
use super::{Exchange, Gateway, answered, last_warned};
use crate::door::decode::{Decoder, MOST, TOO_LARGE, UNREADABLE};
use crate::door::{Answer, strip_hop_by_hop, warned};

/// Largest JSON answer that is read before it is passed on.
const MOST_JSON: usize = 32 << 20;

/// Why a larger one is not passed on.
const TOO_LONG: &str = "the answer is larger than 32 MiB, which is the most that Deadstop inspects; \
                        ask for less, or for a stream";

/// Why a stream breaks off that holds more than Deadstop reads.
const TOO_LONG_PART: &str = "an event of the stream, or the arguments of its calls, are larger than Deadstop \
                             reads (16 MiB), or hold too many values";

/// Passes an answer on.
pub(super) async fn pass(
    gateway: &Gateway,
    sent: Result<Response<Answer>, Failed>,
    mut flow: Box<Flow>,
    exchange: &Exchange,
    hide_usage: bool,
) -> Response<Body> {
    let response = match sent {
        Ok(response) => response,
        Err(failed) => {
            flow.watch(match failed {
                Failed::Timeout => Reply::Timeout,
                Failed::Address | Failed::Unreachable(_) => Reply::Unreachable,
            });
            flow.fail(Failure::provider(match failed {
                Failed::Timeout => How::TimedOut,
                Failed::Address | Failed::Unreachable(_) => How::Connection,
            }));
            flow.booked().await;
            return answered(refusal::failed(exchange.dialect, 502, &failed.to_string()));
        }
    };
    let (mut parts, body) = response.into_parts();
    strip_hop_by_hop(&mut parts.headers);
    flow.quota = quota(&parts.headers);
    let status = parts.status;
    flow.watch(Reply::Status(status.as_u16()));
    if leads_away(&parts, exchange) {
        if !may_lead_away(exchange) || !flow.may_pass_unread(ELSEWHERE) {
            flow.settle(Status::Ok);
            flow.booked().await;
            return answered(refusal::failed(exchange.dialect, 502, LED_AWAY));
        }
        parts.headers.append("x-deadstop-warning", HeaderValue::from_static(ELSEWHERE));
    }
    let failed = !status.is_success();
    if failed && exchange.dialect.is_other() {
        // Passed on faithfully. The status says whose failure it is.
        flow.ends(status);
        // The client may send it again at once, to another node.
        flow.booked().await;
        return Response::from_parts(parts, Body::new(body));
    }
    if !exchange.dialect.is_other() && is_opaque(&kind(&parts.headers)) {
        flow.fail(Failure::provider(How::Unreadable));
        flow.booked().await;
        return answered(refusal::failed(exchange.dialect, 502, OPAQUE));
    }
    let decoder = Decoder::new(&parts.headers);
    // A compressed answer passes as it is: the usage chunk cannot be removed from it.
    let hide_usage = hide_usage && decoder.is_identity();
    // Many clients read the body of a failure like that of an answer.
    let form = if failed { Some(Form::Json) } else { form(&parts.headers, exchange) };
    let Some(form) = form else {
        let passing = Passing::new(body, flow, None, decoder, exchange.dialect);
        return Response::from_parts(parts, Body::new(passing));
    };
    let mut reader = Reader::new(exchange.dialect, form, hide_usage && form == Form::Events);
    if exchange.guessed {
        reader.look_anywhere();
    }
    if decoder.is_identity() {
        reader.hold_calls();
    }
    if flow.thread.is_none() {
        reader.without_echo();
    }
    if exchange.dialect.is_other() {
        reader.read_by_parts();
    }
    if form == Form::Json {
        return match whole(body, flow, reader, decoder, (&parts, exchange)).await {
            Whole::Fine(bytes, warnings, ended) => {
                let base = exchange.results.as_deref();
                let near = base.and_then(|base| nearer(&bytes, base));
                if near.is_some() {
                    parts.headers.remove(header::CONTENT_LENGTH);
                }
                let bytes = near.map_or(bytes, Bytes::from);
                let response = Response::from_parts(parts, Body::from(bytes));
                last_warned(warned(response, &warnings), ended.as_deref())
            }
            Whole::Refused(cut) => gateway.cut(exchange, &cut),
            Whole::Broken(problem) => answered(refusal::failed(exchange.dialect, 502, &problem)),
            // Embeddings hold no tool calls, and many of them are large. What is no model's answer is read on as
            // it passes.
            Whole::TooLarge(mut passing)
                if exchange.dialect.is_other() || !holds_calls(exchange.dialect) =>
            {
                passing.client = exchange.client;
                Response::from_parts(parts, Body::new(*passing))
            }
            Whole::TooLarge(mut passing) => {
                passing.flow.fail(Failure::provider(How::Unreadable));
                answered(refusal::failed(exchange.dialect, 502, TOO_LONG))
            }
        };
    }
    // A length that the upstream gave would be wrong once the stream is cut: the client would take our
    // last words for a broken connection, and ask again. What is no model's answer by its path and by its
    // type keeps its length, as it would without us.
    let foreign = form == Form::File && exchange.brings == Some(Brings::Document);
    if !foreign {
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    flow.streams();
    let mut passing = Passing::new(body, flow, Some(reader), decoder, exchange.dialect);
    passing.shape = match (form, exchange.dialect) {
        (Form::Events | Form::Json, _) => Shape::Events,
        (Form::Objects, Dialect::Gemini) => Shape::List,
        (Form::Objects | Form::File, _) => Shape::Lines,
    };
    passing.client = exchange.client;
    Response::from_parts(parts, Body::new(passing))
}

/// The answer's form; `None` for a kind of answer that Deadstop does not read.
fn form(headers: &HeaderMap, exchange: &Exchange) -> Option<Form> {
    let dialect = exchange.dialect;
    let kind = kind(headers);
    let list = matches!(dialect, Dialect::Gemini | Dialect::Ollama) && exchange.stream;
    let is_media = ["audio/", "image/", "video/"].iter().any(|media| kind.starts_with(media));
    if dialect.is_other() {
        return match exchange.brings? {
            Brings::File => Some(Form::File),
            Brings::Document if kind.starts_with("text/event-stream") => Some(Form::Events),
            Brings::Document if kind.contains("ndjson") || kind.contains("jsonl") => {
                Some(Form::Objects)
            }
            Brings::Document if kind.contains("json") || kind.is_empty() => Some(Form::Json),
            Brings::Document if is_media => None,
            Brings::Document => Some(Form::File),
        };
    }
    // Ollama's clients read lines, whatever the answer is called.
    let lines = dialect == Dialect::Ollama;
    if kind.starts_with("text/event-stream") && exchange.stream && !lines {
        Some(Form::Events)
    } else if is_media && exchange.guessed && !exchange.stream {
        // A path that we do not know may be one for sounds or pictures. Where a model answers, its client
        // reads calls in whatever comes.
        None
    } else if list {
        // Objects are found in events as well.
        Some(Form::Objects)
    } else if exchange.stream && !kind.contains("json") {
        // Clients that asked for a stream read one, whatever it is called.
        Some(Form::Events)
    } else {
        Some(Form::Json)
    }
}

/// Whether an answer is in a form or in letters that Deadstop does not read, and a client may.
fn is_opaque(kind: &str) -> bool {
    let forms = ["eventstream", "protobuf", "grpc", "msgpack", "cbor"];
    let letters = [
        "utf-8",
        "utf8",
        "us-ascii",
        "ascii",
        "iso-8859-1",
        "latin1",
        "windows-1252",
        "utf-16",
        "utf-16le",
        "utf-16be",
        "utf-32",
        "utf-32le",
        "utf-32be",
    ];
    let charset = kind.split(';').skip(1).find_map(|part| part.trim().strip_prefix("charset="));
    let charset = charset.map(|charset| charset.trim().trim_matches(['"', '\'']));
    forms.iter().any(|form| kind.contains(form))
        || charset.is_some_and(|charset| !charset.is_empty() && !letters.contains(&charset))
}

/// Why such an answer is not passed on.
const OPAQUE: &str = "the answer is in a form or a character set that Deadstop does not read (it reads JSON and \
                      events, in UTF-8, UTF-16 or UTF-32); ask for JSON";

/// Why an answer that is a redirect is not passed on.
const LED_AWAY: &str = "the provider answers with a redirect, which would lead the client past Deadstop; \
                        send the path that the provider wants, or put its new address into base_url";

/// Why an answer of no dialect may pass unread: its provider keeps files elsewhere.
const ELSEWHERE: &str = "the answer lies elsewhere, where Deadstop does not look for tool calls";

/// Whether an answer sends the client elsewhere: clients follow a redirect to the provider itself, with
/// the same request. What is only fetched and brings no calls may lie elsewhere.
fn leads_away(parts: &http::response::Parts, exchange: &Exchange) -> bool {
    let fetched = exchange.fetches && exchange.dialect.is_other() && exchange.brings.is_none();
    parts.status.is_redirection() && parts.headers.contains_key(header::LOCATION) && !fetched
}

/// Whether the policy decides about that: providers keep files elsewhere, and what answers with pictures or
/// sounds brings no calls. A model is asked here, or not at all.
fn may_lead_away(exchange: &Exchange) -> bool {
    exchange.dialect.is_other() && (exchange.fetches || exchange.brings.is_none())
}

/// The answer's content type; empty without the header.
fn kind(headers: &HeaderMap) -> String {
    let kind = headers.get(header::CONTENT_TYPE).map(http::HeaderValue::as_bytes);
    String::from_utf8_lossy(kind.unwrap_or_default()).trim().to_ascii_lowercase()
}

enum Whole {
    /// Its bytes, what was let pass with a warning, and why the next call will be refused.
    Fine(Bytes, Vec<Trip>, Option<String>),
    Refused(Cut),
    Broken(String),
    TooLarge(Box<Passing>),
}

/// Reads a JSON answer to its end, or until the call is stopped.
async fn whole(
    mut body: Answer,
    mut flow: Box<Flow>,
    mut reader: Reader,
    mut decoder: Decoder,
    (head, exchange): (&http::response::Parts, &Exchange),
) -> Whole {
    let mut read: Vec<Bytes> = Vec::new();
    let (mut size, mut unpacked) = (0, 0);
    let mut pieces = Vec::new();
    loop {
        let frame = tokio::select! {
            biased;
            () = flow.stopped() => {
                let why = flow.why_stopped();
                flow.settle(Status::Cancelled);
                flow.booked().await;
                return why.map_or_else(|| Whole::Broken("stopped".into()), Whole::Refused);
            }
            frame = body.frame() => frame,
        };
        match frame {
            None => break,
            Some(Err(error)) => {
                flow.fail(Failure::provider(How::Torn));
                return Whole::Broken(format!("the upstream broke off: {error}"));
            }
            Some(Ok(frame)) => {
                let Ok(bytes) = frame.into_data() else { continue };
                let clear = decoder.feed(&bytes);
                unpacked += clear.len();
                size += bytes.len();
                reader.push(&clear, &mut pieces);
                decoder.passed(decoder.fresh());
                read.push(bytes);
            }
        }
        let fault = fault(&decoder).or_else(|| {
            // Without packing, a larger answer is refused for its length, or read on as it passes.
            let goes_on = decoder.is_identity() || exchange.dialect.is_other();
            (!goes_on && unpacked > MOST).then_some(TOO_LARGE)
        });
        match fault {
            Some(fault) if !may_stay_unread(&flow, exchange.dialect, fault) => {
                flow.fail(Failure::provider(How::Unreadable));
                return Whole::Broken(fault.to_owned());
            }
            None if size.max(unpacked) <= MOST_JSON => {}
            None => {
                // Embeddings are larger than anything else, and are not read.
                let reader = Some(reader).filter(|_| holds_calls(exchange.dialect));
                let passing = Passing::new(body, flow, reader, decoder, exchange.dialect);
                return large(passing, read, &pieces).await;
            }
            Some(_) => {
                reader.finish(&mut pieces);
                let mut passing = Passing::new(body, flow, Some(reader), decoder, exchange.dialect);
                passing.is_unread = true;
                return large(passing, read, &pieces).await;
            }
        }
    }
    reader.finish(&mut pieces);
    flow.whole = head.status.is_success();
    let answers = !exchange.dialect.is_other() && holds_calls(exchange.dialect);
    if reader.unread() && flow.whole && !exchange.guessed && answers {
        flow.fail(Failure::provider(How::Unreadable));
        flow.booked().await;
        return Whole::Broken(OPAQUE.to_owned());
    }
    if reader.lost()
        && !may_stay_unread(&flow, exchange.dialect, TOO_LONG_PART)
        && !(exchange.guessed && flow.may_pass_unread(TOO_LONG_PART))
    {
        flow.fail(Failure::provider(How::Unreadable));
        flow.booked().await;
        return Whole::Broken(TOO_LONG_PART.to_owned());
    }
    if let Err(cut) = judged(&mut flow, &reader, &pieces).await {
        return refused(&mut flow, cut).await;
    }
    let bytes = match read.len() {
        1 => read.remove(0),
        _ => Bytes::from(read.concat()),
    };
    let garbage = pieces.is_empty()
        && decoder.is_identity()
        && kind(&head.headers).contains("json")
        && serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_err();
    match garbage && flow.whole {
        true => flow.fail(Failure::provider(How::Unreadable)),
        false => flow.ends(head.status),
    }
    flow.booked().await;
    let ended = flow.ended();
    Whole::Fine(bytes, flow.warnings(), ended)
}

/// Judges what was read of an answer of which nothing has passed yet.
async fn judged(flow: &mut Flow, reader: &Reader, pieces: &[Piece]) -> Result<(), Cut> {
    let mut taken = flow.take(reader, pieces);
    if let Some((_, words)) = flow.asks() {
        taken = flow.take_words(words.await);
    }
    taken?;
    flow.judge_whole().await
}

/// An answer of which nothing has passed yet, and nothing will.
async fn refused(flow: &mut Flow, cut: Cut) -> Whole {
    flow.take_back();
    flow.settle(Status::Cancelled);
    flow.settle_kills().await;
    flow.booked().await;
    Whole::Refused(cut)
}

/// An answer that is too large to be kept until its end: what was read of it is judged, and the rest as it passes.
async fn large(mut passing: Passing, read: Vec<Bytes>, pieces: &[Piece]) -> Whole {
    if let Some(reader) = &passing.reader
        && let Err(cut) = judged(&mut passing.flow, reader, pieces).await
    {
        return refused(&mut passing.flow, cut).await;
    }
    if passing.is_unread {
        passing.reader = None;
    }
    passing.shape = Shape::Lines;
    passing.ready.extend(read.into_iter().map(Frame::data));
    Whole::TooLarge(Box::new(passing))
}

/// Why nothing more can be unpacked of an answer.
fn fault(decoder: &Decoder) -> Option<&'static str> {
    if decoder.is_too_large() {
        return Some(TOO_LARGE);
    }
    decoder.is_unreadable().then_some(UNREADABLE)
}

/// Whether the answers of a dialect may hold tool calls, in whatever form they come.
fn holds_calls(dialect: Dialect) -> bool {
    dialect != Dialect::OpenAiEmbeddings
}

/// Whether an answer may pass that is not read, or not to its end.
fn may_stay_unread(flow: &Flow, dialect: Dialect, why: &str) -> bool {
    !holds_calls(dialect) || (dialect.is_other() && flow.may_pass_unread(why))
}

/// Done when a kill is on disk, or something is decided elsewhere.
type Written = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A body on its way through.
struct Passing {
    upstream: Option<Answer>,
    flow: Box<Flow>,
    reader: Option<Reader>,
    decoder: Decoder,
    dialect: Dialect,
    /// Who reads it, as far as a refusal depends on that.
    client: Client,
    ready: VecDeque<Frame<Bytes>>,
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
    shape: Shape,
    /// Whether some of it passes unread, because the policy allows that.
    is_unread: bool,
    /// Why it must break off: the upstream did, or no error event can be added to it.
    breaks: Option<axum::BoxError>,
    /// The stream's last bytes, and what they wait for: a kill is on disk before the client hears
    /// of it, and some clients must have read what came before.
    last_words: Option<(Written, Bytes)>,
}

/// How a stream is divided, and so how it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
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
    /// The last chunk.
    chunk: Bytes,
}

impl Passing {
    fn new(
        upstream: Answer,
        flow: Box<Flow>,
        reader: Option<Reader>,
        decoder: Decoder,
        dialect: Dialect,
    ) -> Passing {
        let edge = Edge { whole_events: true, whole_line: true, last: b'[', chunk: Bytes::new() };
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

    fn out(&mut self, bytes: Bytes) {
        if let Some(last) = bytes.last() {
            let edge = &mut self.edge;
            edge.whole_line = matches!(last, b'\n' | b'\r');
            edge.last = bytes.trim_ascii_end().last().copied().unwrap_or(edge.last);
            edge.chunk = bytes.clone();
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
        match self.decoder.last_words(&words, &self.edge.chunk).filter(|_| readable) {
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

/// What the provider says about its windows.
fn quota(headers: &HeaderMap) -> Vec<Quota> {
    let names: Vec<&str> = headers
        .keys()
        .map(http::HeaderName::as_str)
        .filter(|name| name.contains("ratelimit") || name.starts_with("x-codex-"))
        .collect();
    if names.is_empty() {
        return Vec::new();
    }
    let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    windows::read(value, &names, deadstop_warden::now())
}
