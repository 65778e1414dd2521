//! A model call over HTTP: its request read before it is sent, its answer as it comes.
//!
//! The reading is the gateway's own, so that the same bytes give the same facts there and here. Tool
//! calls that an answer asks for are judged when it asks; a guarded tool that is then run takes its
//! call over, and a result that comes with the next request settles one that ran elsewhere.

use std::borrow::Cow;

use deadstop_core::{Answer, Call, Digest, Failure, How, Outcome, Status, Tokens, Usage};
use deadstop_protocol::facts;
use deadstop_protocol::llm::answer::{Form, Pass, Reader};
use deadstop_protocol::llm::request::{self, Open};
use deadstop_protocol::llm::words::Words;
use deadstop_protocol::llm::{Api, Dialect, Piece, Request};
use deadstop_redact::excerpt::Excerpt;

use crate::authority::Asked;
use crate::refused::Refused;
use crate::scope::{Running, Scope};
use crate::stop::Stop;

/// A request to a model API, before it is sent.
#[derive(Debug, Clone, Copy)]
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
    input: Tokens,
    /// The body to send instead, which asks for the usage that the client did not ask for.
    body: Option<Vec<u8>>,
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
    /// Whether the answer says that it is over.
    done: bool,
    stop: Stop,
}

impl Scope {
    /// May this request be sent? Send [`Exchange::body`] if it has one, hand it the answer as it
    /// comes, and pass on what it gives back.
    ///
    /// ```
    /// use deadstop_protocol::llm::Api;
    /// use deadstop_sdk::{Outgoing, Session};
    ///
    /// let session = Session::builder("writer").open()?;
    /// let mut exchange = session.root().request(&Outgoing {
    ///     api: Api::OpenAi,
    ///     provider: "openai",
    ///     method: "POST",
    ///     path: "/v1/chat/completions",
    ///     body: br#"{"model":"gpt-4o","messages":[{"role":"user","content":"Hello"}]}"#,
    /// })?;
    /// exchange.answer(200, "application/json");
    /// let answer = br#"{"choices":[{"message":{"content":"Hi"}}],
    ///     "usage":{"prompt_tokens":9,"completion_tokens":2}}"#;
    /// exchange.push(answer)?;
    /// exchange.finish()?;
    /// assert_eq!(session.state().figures.input_tokens, 9);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn request(&self, outgoing: &Outgoing<'_>) -> Result<Exchange, Refused> {
        let Outgoing { api, provider, method, path, body } = *outgoing;
        let dialect = request::dialect(api, method, path);
        let opened = request::open(dialect, path, body).ok();
        let changed = opened.as_ref().and_then(Open::with_usage);
        let request = match opened {
            Some(open) => open.read(self.session.tree().seen(self.at)),
            None => Request {
                model: request::model_in_path(path).unwrap_or_else(|| provider.to_owned()),
                ..Request::default()
            },
        };
        self.results(&request)?;
        let call = Call::Model(request.call(provider, self.session.prices(), None));
        let running = self.admit(call, || Asked::Model {
            model: request.model.clone(),
            provider: Some(provider.to_owned()),
            input: request.input.0,
            max_output: request.max_output.map(|tokens| tokens.0),
            prompt: (request.said.chars() > 0).then(|| request.said.text().to_owned()),
            from_person: request.from_person,
        })?;
        Ok(Exchange {
            stop: running.stop().clone(),
            running: Some(running),
            scope: self.clone(),
            dialect,
            stream: request.stream,
            input: request.input,
            body: changed,
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
            done: false,
        })
    }

    /// Results of tool calls that ran elsewhere.
    fn results(&self, request: &Request) -> Result<(), Refused> {
        for result in &request.results {
            let pending = self.session.tree().answered(self.at, &result.id, result.name.as_deref());
            let Some(pending) = pending else { continue };
            let outcome = Outcome {
                status: if result.is_error { Status::Error } else { Status::Ok },
                result: Some(facts::result(&result.text)),
                ..Outcome::default()
            };
            self.finish(pending, &outcome, Some(&result.text))?;
        }
        Ok(())
    }
}

impl Exchange {
    /// The body to send in place of the one that was given, if there is one.
    pub fn body(&self) -> Option<&[u8]> {
        self.body.as_deref()
    }

    /// The stop that this call must obey.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// What was said when it was let pass.
    pub fn warnings(&self) -> &[crate::Why] {
        self.running.as_ref().map_or(&[], Running::warnings)
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
        } else if kind.starts_with("application/json") {
            let list = self.dialect == Dialect::Gemini && self.stream;
            Some(if list { Form::GeminiJsonArray } else { Form::Json })
        } else {
            None
        };
        let hides = self.body.is_some() && form == Some(Form::Events);
        self.is_stream = form.is_some_and(|form| form != Form::Json);
        self.reader = form.map(|form| Reader::new(self.dialect, form, hides));
    }

    /// The next bytes of the answer (decoded); gives what may be passed on. After an error the call
    /// is cut off, and nothing of it is to be used.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, Refused> {
        if self.stop.is_stopped() {
            return Err(self.cut(None));
        }
        let Some(reader) = &mut self.reader else { return Ok(Cow::Borrowed(bytes)) };
        let mut pieces = Vec::new();
        let pass = reader.push(bytes, &mut pieces);
        // A document says nothing before it is whole.
        if self.is_stream || !pieces.is_empty() {
            self.take(&pieces)?;
        }
        Ok(match pass {
            Pass::All => Cow::Borrowed(bytes),
            Pass::Bytes(bytes) => Cow::Owned(bytes),
        })
    }

    /// The answer is complete; gives what may still be passed on.
    pub fn finish(&mut self) -> Result<Vec<u8>, Refused> {
        let mut rest = Vec::new();
        if self.stop.is_stopped() && self.running.is_some() {
            return Err(self.cut(None));
        }
        if let Some(reader) = &mut self.reader {
            let mut pieces = Vec::new();
            if let Pass::Bytes(bytes) = reader.finish(&mut pieces) {
                rest = bytes;
            }
            self.take(&pieces)?;
        }
        match self.settle(Status::Ok) {
            Ok(()) => Ok(rest),
            Err(refused) => {
                self.take_back();
                Err(refused)
            }
        }
    }

    /// The call was not answered, or its answer broke off.
    pub fn broken(&mut self) {
        self.take_back();
        let how = if self.output > Tokens(0) { How::Torn } else { How::Connection };
        self.failure = Some(Failure::provider(how));
        self.settle(Status::Fault).ok();
    }

    /// Whoever asked does not want the rest. What was generated until now is paid; an answer that
    /// said that it is over has nothing left but its end.
    pub fn abandon(&mut self) {
        if self.done && !self.stop.is_stopped() {
            self.settle(Status::Ok).ok();
            return;
        }
        self.take_back();
        self.settle(Status::Cancelled).ok();
    }

    /// It was stopped: breaks it off, and tells why.
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
            match &mut self.running {
                Some(running) => running.progress(self.output.0, &text),
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
                        let running = self.scope.admit(Call::Tool(call), || Asked::Tool {
                            tool: name.clone(),
                            server: None,
                            arguments: arguments.clone(),
                        })?;
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
        self.settle(Status::Cancelled).ok();
        refused
    }

    /// The agent will not act on this answer: its tool calls are waited for no longer.
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
            // Nobody bills for a request that failed, unless an answer had begun.
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
        let outcome =
            Outcome { status, failure, usage, answer: Some(answer), ..Outcome::default() };
        running.close(&outcome, Some(self.said.text()))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // Still open: whoever asked went away.
        if self.running.is_some() {
            self.abandon();
        }
    }
}
