//! A call in flight: what the engine has been told of it, and the promise that it is settled once.
//!
//! Whatever ends a call (the answer's end, a fault, a client that goes away, a panic), dropping its
//! flow settles it with what was used by then.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use deadstop_core::{
    Answer, Call, Decision, Digest, Failure, How, Millis, Mode, NanoUsd, OnHarm, Outcome, Progress,
    Quota, Status, Tokens, Trip, Usage, Verdict,
};
use deadstop_protocol::facts;
use deadstop_protocol::llm::Piece;
use deadstop_protocol::llm::answer::Reader;
use deadstop_protocol::llm::answer::counted::Counted;
use deadstop_protocol::llm::answer::echo::Echo;
use deadstop_protocol::llm::words::Words;
use deadstop_protocol::prices::{self, PriceSource};
use deadstop_warden::metrics::Reply;
use deadstop_warden::trace::TRACEPARENT;
use http::{HeaderMap, HeaderValue};

use super::watch::Watch;
use deadstop_redact::excerpt::Excerpt;
use deadstop_warden::{Booking, Chain, Refused, Running, Said, Stops, Terms, Thread, Warden};

/// A call in flight.
pub(super) struct Flow {
    warden: Arc<Warden>,
    pub(super) chain: Chain,
    call: Call,
    running: Option<Running>,
    stops: Stops,
    /// Text that was taken in and not judged yet.
    new: String,
    words: Words,
    asked: Vec<Digest>,
    /// Tool calls of this answer that wait for their results, by their numbers.
    waiting: Vec<u64>,
    /// Tool calls of this answer that wait for a person.
    questions: Vec<Asking>,
    /// What was let pass with a warning.
    warnings: Vec<Trip>,
    /// Its place in a conversation that has no name.
    pub(super) thread: Option<Thread>,
    /// What the next request will repeat of the answer, and the answer's own id.
    echo: Echo,
    id: Option<String>,
    /// What its bill counts beside tokens, and its provider's own terms.
    counted: Counted,
    pub(super) terms: Option<Arc<prices::Terms>>,
    /// Whether all of the answer is there, and paid for.
    pub(super) whole: bool,
    /// Whether the answer says that it is over.
    done: bool,
    /// Whether the provider reported an error of its own inside the answer.
    failed: bool,
    /// Why the call failed, if it did.
    failure: Option<Failure>,
    output: Tokens,
    usage: Option<Usage>,
    /// What was asked and answered, for people.
    request: Excerpt,
    response: Excerpt,
    /// How much of `new` is in `response` already, and whether a tool call came last.
    kept: usize,
    after_call: bool,
    /// In a cluster: done when all nodes know what the call has cost.
    booking: Option<Booking>,
    /// What the provider says about its windows.
    pub(super) quota: Vec<Quota>,
    /// How long its upstream takes; nothing before it was sent, and for what is no model's answer.
    watch: Option<Watch>,
    /// How long a streamed answer took to begin.
    first: Option<Millis>,
    _place: tokio::sync::OwnedSemaphorePermit,
}

/// What a flow begins with.
pub(super) struct Admitted {
    pub(super) running: Running,
    /// What was asked.
    pub(super) request: Excerpt,
}

/// Why a call may not go on.
pub(super) enum Why {
    /// A guard says so.
    Trip(Box<Trip>),
    /// The cluster could not be asked, and the policy says to refuse.
    Unreachable(String),
}

/// A call that may not go on.
pub(super) struct Cut {
    pub(super) why: Why,
    /// The incident that it became, if it is a new one.
    pub(super) incident: Option<String>,
    /// Where, in the bytes just read, the part begins that must not be passed on.
    pub(super) from: usize,
}

/// The outcome of a tool call that needs a person's approval.
type Admitting = Pin<Box<dyn Future<Output = Result<(Running, Vec<Trip>), Refused>> + Send>>;

/// A tool call that waits for a person before the agent sees it.
pub(super) struct Asking {
    answer: Admitting,
    held_from: usize,
}

/// A tool call that a person has decided about.
pub(super) struct Answered {
    held_from: usize,
    admitted: Result<(Running, Vec<Trip>), Refused>,
}

/// A tool call that an answer asks for.
struct ToolRequest<'a> {
    id: &'a str,
    name: &'a str,
    arguments: &'a serde_json::Value,
    held_from: usize,
}

impl Flow {
    pub(super) fn new(
        warden: Arc<Warden>,
        chain: Chain,
        call: Call,
        admitted: Admitted,
        place: tokio::sync::OwnedSemaphorePermit,
    ) -> Flow {
        let Admitted { running, request } = admitted;
        warden.metrics.stream_opened();
        let stops = chain.stops().and(Arc::clone(&warden.closing));
        Flow {
            warden,
            chain,
            call,
            running: Some(running),
            stops,
            new: String::new(),
            words: Words::default(),
            asked: Vec::new(),
            waiting: Vec::new(),
            questions: Vec::new(),
            warnings: Vec::new(),
            whole: false,
            thread: None,
            echo: Echo::default(),
            id: None,
            counted: Counted::default(),
            terms: None,
            failure: None,
            done: false,
            failed: false,
            output: Tokens(0),
            usage: None,
            request,
            response: Excerpt::default(),
            kept: 0,
            after_call: false,
            booking: None,
            quota: Vec::new(),
            watch: None,
            first: None,
            _place: place,
        }
    }

    /// The call is sent on now: its upstream's time begins, and the caller's trace goes along.
    pub(super) fn sends(&mut self, headers: &mut HeaderMap) {
        let (Some(model), Some(running)) = (self.call.model(), &self.running) else { return };
        let place = self.chain.place(running.id);
        // A provider learns of a trace only if the caller has named one.
        if self.chain.trace.is_some()
            && let Some(span) = self.warden.span_of(&self.chain, running.id)
            && let Ok(header) = HeaderValue::from_str(&span.header())
        {
            headers.insert(TRACEPARENT, header);
        }
        if !model.lookup {
            let provider = model.server.as_deref().unwrap_or_default();
            let labelled = &self.warden.metrics.labelled;
            let upstream = labelled.upstream(&self.chain.project.name, provider, &model.model);
            self.watch = Some(Watch::new(upstream, place));
        }
    }

    /// How its upstream has answered.
    pub(super) fn watch(&mut self, how: Reply) {
        if let Some(watch) = &mut self.watch {
            watch.answers(how);
        }
    }

    /// Its answer comes as a stream.
    pub(super) fn streams(&mut self) {
        self.watch.iter_mut().for_each(Watch::streams);
    }

    /// Ready when this call is stopped: one of its scopes was killed, or the server shuts down.
    pub(super) fn poll_stopped(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.stops.poll(context)
    }

    /// Waits until this call is stopped.
    pub(super) async fn stopped(&mut self) {
        std::future::poll_fn(|context| self.poll_stopped(context)).await;
    }

    /// Why it was stopped, in the engine's words.
    pub(super) fn why_stopped(&mut self) -> Option<Cut> {
        let (decision, incident) = self.progress("");
        let closing = self.warden.closing.is_given();
        let why = match decision.trips.into_iter().next() {
            Some(trip) if trip.verdict >= Verdict::Block || !closing => Why::Trip(Box::new(trip)),
            _ if closing => Why::Unreachable("Deadstop is shutting down. Try again.".to_owned()),
            _ => return None,
        };
        Some(Cut { why, incident, from: 0 })
    }

    /// Why the next call of this chain will be refused, if it will.
    pub(super) fn ended(&self) -> Option<String> {
        self.chain.stopped().map(|stopped| stopped.sentence())
    }

    /// Whether an answer of no dialect may pass that Deadstop cannot read, or not to its end. It is counted then.
    pub(super) fn may_pass_unread(&self, why: &str) -> bool {
        if refuses_unread(&self.chain) {
            return false;
        }
        self.warden.metrics.unread();
        let server = self.call.model().and_then(|call| call.server.as_deref());
        let server = server.unwrap_or_default();
        if self.chain.project.warns_of_unread(server) {
            tracing::warn!(
                "an answer of {server} passed unread: {why}; to refuse such answers, set harm.unreadable = \"block\""
            );
        }
        true
    }

    /// What was let pass with a warning.
    pub(super) fn warnings(&mut self) -> Vec<Trip> {
        std::mem::take(&mut self.warnings)
    }

    /// Takes in what an answer has brought; a tool call that is refused ends it.
    #[inline]
    pub(super) fn take(&mut self, reader: &Reader, pieces: &[Piece]) -> Result<(), Cut> {
        let mut refused = None;
        if pieces.iter().any(is_content)
            && let Some(took) = self.watch.as_mut().and_then(Watch::begins)
        {
            self.first = Some(took);
        }
        for piece in pieces {
            match piece {
                Piece::Text(text) => self.new.push_str(text),
                Piece::ToolCall { id, name, arguments, held_from } if refused.is_none() => {
                    let call = ToolRequest { id, name, arguments, held_from: *held_from };
                    refused = self.tool_call(&call).err();
                }
                // The cost is known even if the call is refused.
                Piece::Usage(usage) => self.usage = Some(*usage),
                Piece::Error(_) => self.failed = true,
                Piece::Done => self.done = true,
                Piece::ToolCall { .. } => {}
            }
        }
        self.output = reader.output_so_far();
        self.echo = *reader.echo();
        if pieces.iter().any(|piece| matches!(piece, Piece::Usage(_) | Piece::Done)) {
            self.counted = reader.counted().clone();
        }
        if self.id.is_none() {
            self.id = reader.id().map(str::to_owned);
        }
        refused.map_or(Ok(()), |cut: Cut| {
            let held = self.questions.drain(..).map(|asking| asking.held_from).min();
            Err(Cut { from: cut.from.min(held.unwrap_or(cut.from)), ..cut })
        })
    }

    /// Where the part that waits for a person begins, in the bytes just read; and the decisions.
    pub(super) fn asks(
        &mut self,
    ) -> Option<(usize, impl Future<Output = Vec<Answered>> + Send + use<>)> {
        let questions = std::mem::take(&mut self.questions);
        let from = questions.iter().map(|asking| asking.held_from).min()?;
        Some((from, async move {
            let answered = questions.into_iter().map(|asking| async move {
                let Asking { answer, held_from } = asking;
                Answered { held_from, admitted: answer.await }
            });
            futures_util::future::join_all(answered).await
        }))
    }

    /// Takes in what people have decided; a call that is refused ends the answer.
    pub(super) fn take_words(&mut self, answered: Vec<Answered>) -> Result<(), Cut> {
        let mut refused = None;
        for Answered { held_from, admitted } in answered {
            if let Err(cut) = self.decided(held_from, admitted) {
                refused.get_or_insert(cut);
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Judges what was taken in since the last time.
    #[inline]
    pub(super) fn judge(&mut self) -> Result<(), Cut> {
        self.keep_text();
        self.kept = 0;
        let new = std::mem::take(&mut self.new);
        let (decision, incident) = self.progress(&new);
        self.words.push(&new);
        // Reuses the allocation.
        self.new = new;
        self.new.clear();
        match decision.trips.into_iter().next() {
            Some(trip) if trip.verdict >= Verdict::Block => {
                Err(Cut { why: Why::Trip(Box::new(trip)), incident, from: 0 })
            }
            _ => Ok(()),
        }
    }

    /// Done when the cluster has confirmed the decision; then the text must be judged again.
    pub(super) fn undecided(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.warden.undecided(self.running.as_ref()?)
    }

    /// Judges, and waits until the cluster has confirmed the decision.
    pub(super) async fn judge_whole(&mut self) -> Result<(), Cut> {
        self.judge()?;
        match self.undecided() {
            Some(decided) => {
                decided.await;
                self.judge()
            }
            None => Ok(()),
        }
    }

    /// Keeps what is new of the text, where it was said: after the tool calls that came before it.
    fn keep_text(&mut self) {
        let new = &self.new[self.kept..];
        match (new.is_empty(), self.after_call) {
            (true, _) => return,
            (false, true) => self.response.line(new),
            (false, false) => self.response.push(new),
        }
        self.kept = self.new.len();
        self.after_call = false;
    }

    #[inline]
    fn progress(&mut self, text: &str) -> (Decision, Option<String>) {
        let allowed = Decision::default();
        let Some(running) = &mut self.running else { return (allowed, None) };
        // A whole answer is paid for: it is delivered, and the bill decides about the scope.
        if self.whole {
            running.ticket.paid();
        }
        let output = if self.whole { Tokens(0) } else { self.output };
        let new = Progress { output, text };
        let said =
            || Said { request: self.request.clone(), response: self.response.clone().broken_off() };
        self.warden.progress(&self.chain, &self.call, running, new, said)
    }

    /// A tool call in the answer: judged before the agent can see it.
    fn tool_call(&mut self, asked: &ToolRequest<'_>) -> Result<(), Cut> {
        let facts = facts::tool_call(asked.name, asked.arguments);
        self.asked.push(facts.signature);
        let call = self.chain.project.redact_call(Call::Tool(facts));
        let words = Excerpt::of_call(&format!("{} {}", asked.name, asked.arguments));
        self.keep_text();
        self.response.line(words.text());
        self.after_call = true;
        let held_from = asked.held_from;
        let (warden, chain) = (Arc::clone(&self.warden), self.chain.clone());
        let terms = Terms::answered_later(asked.id);
        let mut answer: Admitting =
            Box::pin(async move { warden.admit_asking(&chain, &call, &words, terms).await });
        // Mostly the engine decides at once, and nothing is held back. Otherwise a person or other
        // nodes are asked, and the agent does not see the call before they have answered.
        let mut context = Context::from_waker(std::task::Waker::noop());
        match answer.as_mut().poll(&mut context) {
            Poll::Ready(admitted) => self.decided(held_from, admitted),
            Poll::Pending => {
                self.questions.push(Asking { answer, held_from });
                Ok(())
            }
        }
    }

    /// A tool call that may run waits for its result; one that may not ends the answer.
    fn decided(
        &mut self,
        from: usize,
        admitted: Result<(Running, Vec<Trip>), Refused>,
    ) -> Result<(), Cut> {
        let (running, trips) = match admitted {
            Ok(admitted) => admitted,
            Err(Refused { trips, incident, unreachable, .. }) => {
                let why = match (trips.into_iter().next(), unreachable) {
                    (Some(trip), _) => Why::Trip(Box::new(trip)),
                    (None, Some(why)) => Why::Unreachable(why),
                    (None, None) => return Ok(()),
                };
                return Err(Cut { why, incident, from });
            }
        };
        self.warnings.extend(trips.into_iter().filter(|trip| trip.verdict >= Verdict::Warn));
        self.waiting.push(running.ticket.number);
        Ok(())
    }

    /// The agent will not act on this answer: its tool calls are waited for no longer.
    pub(super) fn take_back(&mut self) {
        if !self.waiting.is_empty() {
            self.warden.take_back(&self.chain, std::mem::take(&mut self.waiting));
        }
    }

    /// Settles a call that failed.
    pub(super) fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
        self.settle(failure.status());
    }

    /// Settles a call whose answer has this status.
    pub(super) fn ends(&mut self, status: http::StatusCode) {
        match Failure::of_status(status.as_u16()) {
            Some(failure) => self.fail(failure),
            None => self.settle(Status::Ok),
        }
    }

    /// Settles the call; a second time does nothing.
    pub(super) fn settle(&mut self, status: Status) {
        let Some(running) = self.running.take() else { return };
        self.warden.metrics.stream_ended();
        drop(self.watch.take());
        let status = if self.failed && status == Status::Ok { Status::Fault } else { status };
        let estimated = Usage { output: self.output, input: self.input(), ..Usage::default() };
        let usage = match (self.usage, status) {
            (Some(usage), _) => Usage { output: usage.output.max(self.output), ..usage },
            // Providers do not bill a failed request, unless an answer had begun.
            (None, Status::Error | Status::Fault) if self.output == Tokens(0) => Usage::default(),
            (None, _) => estimated,
        };
        self.words.push(&std::mem::take(&mut self.new));
        let said = std::mem::take(&mut self.words).finish();
        let answer = Answer {
            text: said,
            calls: (!self.asked.is_empty()).then(|| facts::combine(&self.asked)),
        };
        let failure = match status {
            Status::Ok | Status::Cancelled => None,
            Status::Error | Status::Fault if self.failed => {
                self.failure.or(Some(Failure::provider(How::Reported)))
            }
            Status::Error | Status::Fault => self.failure,
        };
        let noted = self.thread.take().and_then(|thread| match status {
            Status::Ok => thread.answered(&self.echo, self.id.as_deref()),
            _ => thread.failed(),
        });
        let billed = Some(self.bill(&usage));
        let answer = Some(answer);
        let quota = std::mem::take(&mut self.quota);
        let outcome = Outcome {
            status,
            failure,
            billed,
            usage,
            answer,
            quota,
            first: self.first,
            model: self.counted.model.take().filter(|_| self.warden.exports()),
            ..Outcome::default()
        };
        let request = std::mem::take(&mut self.request);
        let response = std::mem::take(&mut self.response);
        let response = match status {
            Status::Ok | Status::Error if self.done => response,
            _ => response.broken_off(),
        };
        let said = Said { request, response };
        let settled = self.warden.settle(&self.chain, &self.call, running, &outcome, said);
        self.booking = match (settled.booking, noted) {
            (Some(booked), Some(noted)) => Some(Box::pin(async move {
                futures_util::future::join(booked, noted).await;
            })),
            (booked, noted) => booked.or(noted),
        };
    }

    /// Ready when all nodes know what the call has cost, so that they judge the next call with it.
    pub(super) fn poll_booked(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(booking) = &mut self.booking {
            std::task::ready!(booking.as_mut().poll(context));
            self.booking = None;
        }
        Poll::Ready(())
    }

    /// Waits for the same.
    pub(super) async fn booked(&mut self) {
        std::future::poll_fn(|context| self.poll_booked(context)).await;
    }

    /// What the answer has cost. An unknown model is charged at the fallback price, and the log says so
    /// from time to time.
    fn bill(&self, usage: &Usage) -> NanoUsd {
        let Call::Model(call) = &self.call else { return NanoUsd(0) };
        let prices = self.chain.project.prices();
        let bill = prices.bill(self.terms.as_deref(), &call.model, usage, &self.counted);
        let unknown = bill.source == PriceSource::Fallback && bill.cost > NanoUsd(0);
        if unknown && !call.lookup && self.chain.project.warns_of_price(&bill.model) {
            tracing::warn!("{}", prices::fallback_warning(&bill.model, bill.cost));
        }
        bill.cost
    }

    fn input(&self) -> Tokens {
        self.call.model().map_or(Tokens(0), |call| call.input)
    }

    /// Waits until the kills above this call are on disk.
    pub(super) fn settle_kills(&self) -> impl Future<Output = ()> + Send + use<> {
        let (warden, chain) = (Arc::clone(&self.warden), self.chain.clone());
        async move { warden.settle_kills(&chain).await }
    }
}

/// Whether what Deadstop cannot read is refused, though no model is asked: where the policy wants more done about
/// unreadable commands than a warning.
pub(super) fn refuses_unread(chain: &Chain) -> bool {
    let policies = chain.policies();
    chain.scopes().iter().any(|scope| {
        let policy = policies.of(scope.kind());
        let warns = matches!(policy.harm.unreadable, OnHarm::Allow | OnHarm::Warn);
        policy.mode == Mode::Enforce && policy.harm.enabled && !warns
    })
}

/// Whether it is a part of the answer itself.
fn is_content(piece: &Piece) -> bool {
    matches!(piece, Piece::Text(_) | Piece::ToolCall { .. })
}

impl Drop for Flow {
    fn drop(&mut self) {
        // Still open: the client went away, and pays for what was generated until then.
        self.settle(Status::Cancelled);
    }
}
