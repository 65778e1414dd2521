//! The way back: an answer passes to the client while the engine looks at a copy.
//!
//! A stream is passed on chunk by chunk and can be cut at any moment. A client can use a JSON
//! answer only when it is complete. So the gateway reads and judges all of it before it sends the
//! first byte, and can still replace it by a refusal if a tool call in it is refused.

mod passing;

use axum::body::Body;
use bytes::Bytes;
use deadstop_core::{Failure, How, Quota, Status, Trip};
use deadstop_protocol::llm::answer::{Form, Reader, nearer};
use deadstop_protocol::llm::request::Brings;
use deadstop_protocol::llm::{Dialect, Piece, quota as windows, refusal};
use deadstop_warden::metrics::Reply;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::BodyExt;

use super::flow::{Cut, Flow};
use super::send::Failed;
use super::{Exchange, Gateway, answered, last_warned};
use crate::door::decode::{Decoder, MOST, TOO_LARGE, UNREADABLE};
use crate::door::{Answer, strip_hop_by_hop, warned};
use passing::{Passing, Shape};

/// Largest JSON answer that is read before it is passed on.
const MOST_JSON: usize = 32 << 20;

/// Why a larger one is not passed on.
const TOO_LONG: &str = "the answer is larger than 32 MiB, which is the most that Deadstop inspects; \
                        ask for less, or for a stream";

/// Why a stream breaks off that holds more than Deadstop reads.
const TOO_LONG_PART: &str = "an event of the stream, or the arguments of its calls, are larger than Deadstop \
                             reads (16 MiB and 4 MiB), or hold too many values";

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
    // What was asked for before may be wrapped.
    if exchange.guessed || (exchange.fetches && !exchange.dialect.is_other()) {
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
                return Whole::Broken(format!("the upstream ended the answer early: {error}"));
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
