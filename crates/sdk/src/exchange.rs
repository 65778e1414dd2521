//! A model call over HTTP: its request read before it is sent, its answer as it comes.
//!
//! The reading is the gateway's own, so that the same bytes give the same facts there and here. Tool
//! calls that an answer asks for are judged when it asks; a guarded tool that is then run takes its
//! call over, and a result that comes with the next request settles one that ran elsewhere.

use std::borrow::Cow;

use deadstop_core::{Answer, Call, Digest, Failure, How, Outcome, Quota, Status, Tokens, Usage};
use deadstop_protocol::facts;
use deadstop_protocol::llm::answer::{Form, Pass, Reader};
use deadstop_protocol::llm::request::{self, Open};
use deadstop_protocol::llm::words::Words;
use deadstop_protocol::llm::{Api, Dialect, Piece, Request, quota};
use deadstop_redact::excerpt::Excerpt;

use crate::authority::Asked;
use crate::blocking;
use crate::refused::Refused;
use crate::running::Running;
use crate::scope::Scope;
use crate::stop::{StopOnDrop, StopSignal};

/// A request to a model API, before it is sent.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Outgoing<'a> {
    /// Which family of APIs it is for.
    pub api: Api,
    /// The provider's name, for the breaker: a host will do.
    pub provider: &'a str,
    /// The HTTP method.
    pub method: &'a str,
    /// The path of the URL.
    pub path: &'a str,
    /// The body, decoded.
    pub body: &'a [u8],
}

impl<'a> Outgoing<'a> {
    /// A `POST` to this host and path. The family of APIs follows from them.
    pub fn new(host: &'a str, path: &'a str, body: &'a [u8]) -> Outgoing<'a> {
        Outgoing { api: api_of(host, path), provider: host, method: "POST", path, body }
    }

    /// Which family of APIs it is for, where the host does not tell.
    #[must_use]
    pub fn api(mut self, api: Api) -> Outgoing<'a> {
        self.api = api;
        self
    }

    /// Another HTTP method.
    #[must_use]
    pub fn method(mut self, method: &'a str) -> Outgoing<'a> {
        self.method = method;
        self
    }
}

/// The family of APIs that a host serves, as far as its name and the path tell. Most others are
/// compatible with OpenAI.
pub fn api_of(host: &str, path: &str) -> Api {
    if host.contains("anthropic") || path.ends_with("/v1/messages") {
        Api::Anthropic
    } else if host.contains("googleapis") || path.contains(":generateContent") {
        Api::Gemini
    } else {
        Api::OpenAi
    }
}

/// A model call on its way.
#[derive(Debug)]
pub struct Exchange {
    running: Option<Running>,
    scope: Scope,
    dialect: Dialect,
    stream: bool,
    document: bool,
    input: Tokens,
    /// The body to send instead: it asks for the usage that the client did not ask for, or has notes to
    /// the model.
    body: Option<Vec<u8>>,
    /// Whether the client did not ask for the usage that the answer reports.
    hides_usage: bool,
    reader: Option<Reader>,
    /// Whether its answer comes as a stream of events.
    is_stream: bool,
    words: Words,
    new: String,
    said: Excerpt,
    asked: Vec<Digest>,
    /// Tool calls of this answer that wait to be run, by their numbers.
    waiting: Vec<u64>,
    output: Tokens,
    usage: Option<Usage>,
    failed: bool,
    /// Why the call failed, if it did.
    failure: Option<Failure>,
    /// What the provider says about its windows.
    quota: Vec<Quota>,
    /// Whether the answer says that it is over.
    done: bool,
    stop: StopSignal,
    /// Given when the code that reads the answer has left.
    left: StopSignal,
}

/// A request that was read, before the call is admitted.
struct Prepared {
    dialect: Dialect,
    stream: bool,
    /// Whether its answer is one document.
    document: bool,
    input: Tokens,
    body: Option<Vec<u8>>,
    hides_usage: bool,
}

/// What a piece of an answer says, before it is judged.
#[derive(Debug)]
pub(crate) struct Look {
    pass: Pass,
    pieces: Vec<Piece>,
}

impl Scope {
    /// May this request be sent? Send [`Exchange::body`] if it has one, hand it the answer as it
    /// comes, and pass on what it gives back.
    ///
    /// ```
    /// use deadstop_sdk::{Outgoing, Session};
    ///
    /// let session = Session::builder("writer").open()?;
    /// let body = br#"{"model":"gpt-4o","messages":[{"role":"user","content":"Hello"}]}"#;
    /// let outgoing = Outgoing::new("api.openai.com", "/v1/chat/completions", body);
    /// let mut exchange = session.root().request(&outgoing)?;
    /// exchange.answer(200, "application/json");
    /// let answer = br#"{"choices":[{"message":{"content":"Hi"}}],
    ///     "usage":{"prompt_tokens":9,"completion_tokens":2}}"#;
    /// exchange.push(answer)?;
    /// exchange.finish()?;
    /// assert_eq!(session.state().figures.input_tokens, 9);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn request(&self, outgoing: &Outgoing<'_>) -> Result<Exchange, Refused> {
        let (call, asked, prepared) = self.prepare(outgoing)?;
        let running = self.admit(call, || asked, &StopSignal::default())?;
        Ok(Exchange::begin(running, self.noted(outgoing, prepared)))
    }

    /// The same without blocking: a server is asked on another thread.
    pub async fn request_async(&self, outgoing: &Outgoing<'_>) -> Result<Exchange, Refused> {
        if self.session.authority().is_none() {
            return self.request(outgoing);
        }
        let (call, asked, prepared) = self.prepare(outgoing)?;
        let (scope, (leaving, left)) = (self.clone(), StopOnDrop::new());
        let admitted = blocking::run(move || scope.admit(call, || asked, &left)).await;
        drop(leaving);
        Ok(Exchange::begin(admitted?, self.noted(outgoing, prepared)))
    }

    fn prepare(&self, outgoing: &Outgoing<'_>) -> Result<(Call, Asked, Prepared), Refused> {
        let Outgoing { api, provider, method, path, body } = *outgoing;
        let named = request::dialect(api, method, path);
        let dialect = request::dialect_by_body(named, path, body);
        let opened = request::open(dialect, path, body).ok();
        // A path that we do not know may not know the option that asks for usage.
        let changed = opened.as_ref().filter(|_| named == dialect).and_then(Open::with_usage);
        let is_read = opened.is_some() && !dialect.is_other();
        let request = match opened {
            Some(open) => open.read(self.session.tree().seen(self.at)),
            None => Request {
                model: request::model_in_path(path).unwrap_or_else(|| provider.to_owned()),
                ..Request::default()
            },
        };
        self.results(&request)?;
        let (hides_usage, body) = (changed.is_some(), changed);
        let call = Call::Model(request.call(provider, self.session.prices(), None));
        let asked = Asked::Model {
            model: request.model,
            provider: Some(provider.to_owned()),
            input: request.input.0,
            max_output: request.max_output.map(|tokens| tokens.0),
            prompt: (request.said.chars() > 0).then(|| request.said.text().to_owned()),
            from_person: request.from_person,
            compacted: request.compacted,
        };
        let (stream, input) = (request.stream, request.input);
        let document = is_read && !stream;
        Ok((call, asked, Prepared { dialect, stream, document, input, body, hides_usage }))
    }

    /// Puts Deadstop's notes to the model into the body, in their places. The call is admitted by then:
    /// what the server said about the calls before it is among them.
    fn noted(&self, outgoing: &Outgoing<'_>, prepared: Prepared) -> Prepared {
        let mut tree = self.session.tree();
        if let Some(advice) = tree.late(self.at).take().and_then(|why| why.advice) {
            tree.notes(self.at).add("", &advice);
        }
        let notes = tree.notes(self.at);
        if notes.is_empty() {
            return prepared;
        }
        let opened = request::open(prepared.dialect, outgoing.path, outgoing.body).ok();
        let noted = opened.and_then(|open| open.with_notes(notes));
        let body = match noted {
            Some(noted) if prepared.hides_usage => {
                Some(request::with_usage(&noted).unwrap_or(noted))
            }
            Some(noted) => Some(noted),
            None => prepared.body,
        };
        Prepared { body, ..prepared }
    }

    /// Results of tool calls that ran elsewhere. What the guards have to say about them goes behind them.
    fn results(&self, request: &Request) -> Result<(), Refused> {
        for result in &request.results {
            let pending = self.session.tree().answered(self.at, &result.id, result.name.as_deref());
            let Some(pending) = pending else { continue };
            let outcome = Outcome {
                status: if result.is_error { Status::Error } else { Status::Ok },
                result: Some(facts::result(&result.text)),
                ..Outcome::default()
            };
            self.finish(pending, &outcome, Some(&result.text))?.leave_to_client();
        }
        Ok(())
    }
}

impl Exchange {
    fn begin(running: Running, prepared: Prepared) -> Exchange {
        let Prepared { dialect, stream, document, input, body, hides_usage } = prepared;
        Exchange {
            stop: running.stop_signal().clone(),
            left: StopSignal::default(),
            scope: running.scope().clone(),
            running: Some(running),
            dialect,
            stream,
            document,
            input,
            body,
            hides_usage,
            reader: None,
            is_stream: false,
            words: Words::default(),
            new: String::new(),
            said: Excerpt::default(),
            asked: Vec::new(),
            waiting: Vec::new(),
            output: Tokens(0),
            usage: None,
            failed: false,
            failure: None,
            quota: Vec::new(),
            done: false,
        }
    }

    /// The body to send in place of the one that was given, if there is one.
    pub fn body(&self) -> Option<&[u8]> {
        self.body.as_deref()
    }

    /// Whether the request asks for an answer in one document: then nothing is lost if it is judged as a
    /// whole, by [`Exchange::whole`]. Not so if it asks for a stream, or was not understood.
    pub fn asks_document(&self) -> bool {
        self.document
    }

    /// The signal that this call must obey.
    pub fn stop_signal(&self) -> &StopSignal {
        &self.stop
    }

    /// The warnings with which it was admitted.
    pub fn warnings(&self) -> &[crate::Why] {
        self.running.as_ref().map_or(&[], Running::warnings)
    }

    /// The headers of the answer, with names in lower case: providers report there how much of a
    /// window is used. Give them before [`Exchange::answer`]; see [`crate::Session::quotas`].
    ///
    /// ```
    /// use deadstop_sdk::{Outgoing, Session};
    ///
    /// let session = Session::builder("writer").open()?;
    /// let body = br#"{"model":"claude","max_tokens":9,"messages":[]}"#;
    /// let outgoing = Outgoing::new("api.anthropic.com", "/v1/messages", body);
    /// let mut exchange = session.root().request(&outgoing)?;
    /// exchange.headers(&[
    ///     ("anthropic-ratelimit-unified-5h-utilization", "0.62"),
    ///     ("anthropic-ratelimit-unified-5h-reset", "4102444800"),
    /// ]);
    /// exchange.answer(200, "application/json");
    /// exchange.finish()?;
    /// let [found] = &session.quotas()[..] else { panic!() };
    /// assert_eq!((found.quota.window.as_str(), found.quota.used), ("5h", 0.62));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn headers(&mut self, headers: &[(&str, &str)]) {
        let find =
            |name: &str| headers.iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        self.quota = quota::read(find, &names, self.scope.session.now());
    }

    /// The answer begins: its status and content type.
    pub fn answer(&mut self, status: u16, content_type: &str) {
        if status >= 400 {
            self.failure = Failure::of_status(status);
            self.settle(self.failure.map_or(Status::Error, Failure::status)).ok();
            return;
        }
        let kind = content_type.trim().to_ascii_lowercase();
        let other = matches!(
            self.dialect,
            Dialect::OpenAiOther | Dialect::AnthropicOther | Dialect::GeminiOther
        );
        let form = if other {
            None
        } else if kind.starts_with("text/event-stream") {
            Some(Form::Events)
        } else if kind.starts_with("application/json") || kind.contains("ndjson") {
            let list = matches!(self.dialect, Dialect::Gemini | Dialect::Ollama) && self.stream;
            Some(if list { Form::Objects } else { Form::Json })
        } else {
            None
        };
        let hides = self.hides_usage && form == Some(Form::Events);
        self.is_stream = form.is_some_and(|form| form != Form::Json);
        self.reader = form.map(|form| Reader::new(self.dialect, form, hides));
    }

    /// The next bytes of the answer (decoded); gives what may be passed on. After an error the call
    /// is cut off, and nothing of it is to be used. With a server this may wait for the server.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, Refused> {
        let look = self.look(bytes)?;
        self.judge(&look)?;
        Ok(match look.pass {
            Pass::All => Cow::Borrowed(bytes),
            Pass::Bytes(bytes) => Cow::Owned(bytes),
        })
    }

    /// The answer is complete; gives what may still be passed on. With a server this may wait for the
    /// server.
    pub fn finish(&mut self) -> Result<Vec<u8>, Refused> {
        let look = self.look_end()?;
        self.judge(&look)?;
        self.settle_end()?;
        Ok(look.rest())
    }

    /// All of an answer at once: its status, its content type, and its bytes (decoded). Gives what may be
    /// passed on, as [`Exchange::push`] and [`Exchange::finish`] do.
    ///
    /// ```
    /// use deadstop_sdk::{Outgoing, Session};
    ///
    /// let session = Session::builder("writer").open()?;
    /// let body = br#"{"model":"gpt-4o","messages":[{"role":"user","content":"Hello"}]}"#;
    /// let outgoing = Outgoing::new("api.openai.com", "/v1/chat/completions", body);
    /// let mut exchange = session.root().request(&outgoing)?;
    /// assert!(exchange.asks_document());
    /// let answer = br#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}"#;
    /// assert_eq!(&*exchange.whole(200, "application/json", answer)?, answer);
    /// assert_eq!(session.state().figures.output_tokens, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn whole<'a>(
        &mut self,
        status: u16,
        content_type: &str,
        bytes: &'a [u8],
    ) -> Result<Cow<'a, [u8]>, Refused> {
        self.answer(status, content_type);
        let passed = self.push(bytes)?;
        let rest = self.finish()?;
        Ok(if rest.is_empty() { passed } else { Cow::Owned([&*passed, &*rest].concat()) })
    }

    /// Reads the next bytes, without a judgement.
    pub(crate) fn look(&mut self, bytes: &[u8]) -> Result<Look, Refused> {
        if self.stop.is_stopped() {
            return Err(self.cut(None));
        }
        let mut pieces = Vec::new();
        let pass = match &mut self.reader {
            Some(reader) => reader.push(bytes, &mut pieces),
            None => Pass::All,
        };
        Ok(Look { pass, pieces })
    }

    /// Reads the end of the answer, without a judgement.
    pub(crate) fn look_end(&mut self) -> Result<Look, Refused> {
        if self.stop.is_stopped() && self.running.is_some() {
            return Err(self.cut(None));
        }
        let mut pieces = Vec::new();
        let pass = match &mut self.reader {
            Some(reader) => reader.finish(&mut pieces),
            None => Pass::All,
        };
        Ok(Look { pass, pieces })
    }

    /// Judges what was read. After an error the call is cut off.
    pub(crate) fn judge(&mut self, look: &Look) -> Result<(), Refused> {
        // A document says nothing before it is whole.
        if self.reader.is_some() && (self.is_stream || !look.pieces.is_empty()) {
            self.take(&look.pieces)?;
        }
        Ok(())
    }

    /// Whether judging this asks a server: then it may take a while.
    #[cfg(feature = "tower")]
    pub(crate) fn asks_server(&self, look: &Look) -> bool {
        let tool = |piece: &Piece| matches!(piece, Piece::ToolCall { .. });
        let session = &self.scope.session;
        session.authority().is_some() && session.0.watches_answers && look.pieces.iter().any(tool)
    }

    /// Settles a call whose whole answer was judged.
    pub(crate) fn settle_end(&mut self) -> Result<(), Refused> {
        let settled = self.settle(Status::Ok);
        if settled.is_err() {
            self.take_back();
        }
        settled
    }

    /// Given by the code that reads the answer when it leaves.
    #[cfg(feature = "tower")]
    pub(crate) fn leave_with(&mut self, left: StopSignal) {
        self.left = left;
    }

    /// The call was not answered, or its answer broke off.
    pub fn broken(&mut self) {
        self.take_back();
        let how = if self.output > Tokens(0) { How::Torn } else { How::Connection };
        self.failure = Some(Failure::provider(how));
        self.settle(Status::Fault).ok();
    }

    /// The caller does not want the rest. What was generated until now is paid. An answer that has said
    /// that it is complete is settled as such.
    pub fn abandon(&mut self) {
        if self.done && !self.stop.is_stopped() {
            self.settle(Status::Ok).ok();
            return;
        }
        self.take_back();
        self.settle(Status::Cancelled).ok();
    }

    /// The call was stopped: breaks it off, and tells why.
    pub fn cut_off(&mut self) -> Refused {
        self.cut(None)
    }

    fn take(&mut self, pieces: &[Piece]) -> Result<(), Refused> {
        if let Some(reader) = &self.reader {
            self.output = self.output.max(reader.output_so_far());
            self.usage = reader.usage().or(self.usage);
        }
        let judged = self.read(pieces).and_then(|()| {
            let text = std::mem::take(&mut self.new);
            self.words.push(&text);
            // A document is complete: it is settled next, with the provider's own figures.
            let output = if self.is_stream { self.output } else { Tokens(0) };
            let prompt = self.usage.filter(|_| self.is_stream).map(|usage| usage.counted_input());
            match &mut self.running {
                Some(running) => running.progress_of(prompt, output, &text),
                None => Ok(()),
            }
        });
        judged.map_err(|refused| self.cut(Some(refused)))
    }

    fn read(&mut self, pieces: &[Piece]) -> Result<(), Refused> {
        for piece in pieces {
            match piece {
                Piece::Text(text) => {
                    self.new.push_str(text);
                    self.said.push(text);
                }
                Piece::ToolCall { id, name, arguments, .. } => {
                    let call = facts::tool_call(name, arguments);
                    self.asked.push(call.signature);
                    if self.scope.session.0.watches_answers {
                        let asked = || Asked::Tool {
                            tool: name.clone(),
                            server: None,
                            arguments: arguments.clone(),
                        };
                        let running = self.scope.admit(Call::Tool(call), asked, &self.left)?;
                        self.waiting.extend(running.wait_as(id.clone()));
                    }
                }
                Piece::Error(_) => self.failed = true,
                Piece::Done => self.done = true,
                Piece::Usage(_) => {}
            }
        }
        Ok(())
    }

    /// Breaks the call off; what was generated until now is paid.
    fn cut(&mut self, refused: Option<Refused>) -> Refused {
        let refused = refused.unwrap_or_else(|| self.scope.why_stopped());
        self.take_back();
        // Booking it may end the scope, which is more than a call that was refused.
        match self.settle(Status::Cancelled) {
            Err(killed) if !refused.is_killed() => killed,
            _ => refused,
        }
    }

    /// The agent will not act on this answer: gives up its tool calls.
    fn take_back(&mut self) {
        let numbers = std::mem::take(&mut self.waiting);
        if numbers.is_empty() {
            return;
        }
        let taken = self.scope.session.tree().take_back(self.scope.at, &numbers);
        taken.into_iter().for_each(|pending| self.scope.give_up(pending));
    }

    fn settle(&mut self, status: Status) -> Result<(), Refused> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        let status = if self.failed && status == Status::Ok { Status::Fault } else { status };
        let estimated = Usage { output: self.output, input: self.input, ..Usage::default() };
        let usage = match (self.usage, status) {
            (Some(usage), _) => Usage { output: usage.output.max(self.output), ..usage },
            // A request that failed is not billed, unless an answer had begun.
            (None, Status::Error | Status::Fault) if self.output == Tokens(0) => Usage::default(),
            (None, _) => estimated,
        };
        let answer = Answer {
            text: std::mem::take(&mut self.words).finish(),
            calls: (!self.asked.is_empty()).then(|| facts::combine(&self.asked)),
        };
        let failure = match status {
            Status::Fault if self.failed => self.failure.or(Some(Failure::provider(How::Reported))),
            Status::Ok | Status::Cancelled => None,
            Status::Error | Status::Fault => self.failure,
        };
        let counted = self.reader.as_ref().map(|reader| reader.counted().clone());
        let billed = running.bill(&usage, &counted.unwrap_or_default());
        let answer = Some(answer);
        let quota = std::mem::take(&mut self.quota);
        let outcome =
            Outcome { status, failure, billed, usage, answer, quota, ..Outcome::default() };
        let settled = running.close(&outcome, Some(self.said.text()))?;
        // The model gets the advice about its answer with its next request.
        if let Some(advice) = settled.advice {
            self.scope.session.tree().notes(self.scope.at).add("", &advice);
        }
        Ok(())
    }
}

impl Look {
    /// What is left to pass on at the end of an answer.
    pub(crate) fn rest(self) -> Vec<u8> {
        match self.pass {
            Pass::All => Vec::new(),
            Pass::Bytes(bytes) => bytes,
        }
    }

    /// What is passed on in place of the bytes that were read, if something is.
    #[cfg(feature = "tower")]
    pub(crate) fn instead(self) -> Option<Vec<u8>> {
        match self.pass {
            Pass::All => None,
            Pass::Bytes(bytes) => Some(bytes),
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // Still open: the caller has left.
        if self.running.is_some() {
            self.abandon();
        }
    }
}
