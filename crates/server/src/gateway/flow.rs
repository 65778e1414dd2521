//! A call on its way: what the engine has been told of it, and the promise that it is settled once.
//!
//! Whatever ends a call (the answer's end, a fault, a client that goes away, a panic), dropping its
//! flow settles it with what was used by then.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use deadstop_core::{
    Answer, Call, Decision, Digest, Outcome, Progress, Status, TextFacts, TextHasher, Ticket,
    Tokens, Trip, Usage, Verdict,
};
use deadstop_protocol::facts;
use deadstop_protocol::llm::Piece;
use deadstop_protocol::llm::answer::Reader;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::warden::{Chain, Pending, Warden};

/// A call on its way.
pub(super) struct Flow {
    warden: Arc<Warden>,
    pub(super) chain: Chain,
    call: Call,
    ticket: Option<Ticket>,
    stops: Vec<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// Text that was taken in and not judged yet.
    new: String,
    said: Said,
    asked: Vec<Digest>,
    /// Tool calls of this answer that wait for their results, by their numbers.
    waiting: Vec<u64>,
    /// What was let pass with a warning.
    warnings: Vec<Trip>,
    /// Whether it answers the first words of a conversation that may be anybody's: such an answer
    /// says nothing about repetition.
    pub(super) opening: bool,
    /// Whether the provider reported an error of its own inside the answer.
    failed: bool,
    output: Tokens,
    usage: Option<Usage>,
    _place: tokio::sync::OwnedSemaphorePermit,
}

/// The text of an answer, the same whatever the pieces in which it came.
#[derive(Default)]
struct Said {
    hasher: TextHasher,
    anything: bool,
    /// The beginning of a word whose end is not in yet.
    held: String,
}

/// A word that is longer than this is hashed in parts.
const LONGEST_WORD: usize = 4096;

impl Said {
    fn push(&mut self, text: &str) {
        self.anything |= !text.is_empty();
        // After a digit a space may stand inside a date.
        let gap = |(at, pair): (usize, &[u8])| {
            (pair[1].is_ascii_whitespace() && !pair[0].is_ascii_digit()).then_some(at + 1)
        };
        let Some(end) = text.as_bytes().windows(2).enumerate().rev().find_map(gap) else {
            self.held.push_str(text);
            if self.held.len() > LONGEST_WORD {
                self.hasher.push(&std::mem::take(&mut self.held));
            }
            return;
        };
        let (whole, rest) = text.split_at(end);
        if self.held.is_empty() {
            self.hasher.push(whole);
        } else {
            self.held.push_str(whole);
            self.hasher.push(&self.held);
            self.held.clear();
        }
        self.held.push_str(rest);
    }

    fn finish(mut self) -> Option<TextFacts> {
        self.hasher.push(&self.held);
        self.anything.then(|| self.hasher.finish())
    }
}

/// Why a call may not go on.
pub(super) struct Cut {
    pub(super) trip: Box<Trip>,
    /// The incident that it became, if it is a new one.
    pub(super) incident: Option<String>,
    /// Where, in the bytes just read, the part begins that must not be passed on.
    pub(super) from: usize,
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
        ticket: Ticket,
        place: tokio::sync::OwnedSemaphorePermit,
    ) -> Flow {
        let stops =
            chain.stops().into_iter().map(|stop| Box::pin(stop.cancelled_owned())).collect();
        Flow {
            warden,
            chain,
            call,
            ticket: Some(ticket),
            stops,
            new: String::new(),
            said: Said::default(),
            asked: Vec::new(),
            waiting: Vec::new(),
            warnings: Vec::new(),
            opening: false,
            failed: false,
            output: Tokens(0),
            usage: None,
            _place: place,
        }
    }

    /// Ready when somebody has stopped this call.
    pub(super) fn poll_stopped(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let stopped = self.stops.iter_mut().any(|stop| stop.as_mut().poll(context).is_ready());
        if stopped { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits until somebody stops this call.
    pub(super) async fn stopped(&mut self) {
        std::future::poll_fn(|context| self.poll_stopped(context)).await;
    }

    /// Why it was stopped, in the engine's words.
    pub(super) fn why_stopped(&mut self) -> Option<Cut> {
        let (decision, incident) = self.progress("");
        let trip = decision.trips.into_iter().next()?;
        Some(Cut { trip: Box::new(trip), incident, from: 0 })
    }

    /// What was let pass with a warning.
    pub(super) fn warnings(&mut self) -> Vec<Trip> {
        std::mem::take(&mut self.warnings)
    }

    /// Takes in what an answer has brought; a tool call that is refused ends it.
    pub(super) fn take(&mut self, reader: &Reader, pieces: &[Piece]) -> Result<(), Cut> {
        let mut refused = None;
        for piece in pieces {
            match piece {
                Piece::Text(text) => self.new.push_str(text),
                Piece::ToolCall { id, name, arguments, held_from } if refused.is_none() => {
                    let call = ToolRequest { id, name, arguments, held_from: *held_from };
                    refused = self.tool_call(&call).err();
                }
                // What it costs is known also when it is refused.
                Piece::Usage(usage) => self.usage = Some(*usage),
                Piece::Error(_) => self.failed = true,
                Piece::ToolCall { .. } | Piece::Done => {}
            }
        }
        self.output = reader.output_so_far();
        refused.map_or(Ok(()), Err)
    }

    /// Judges what was taken in since the last time.
    pub(super) fn judge(&mut self) -> Result<(), Cut> {
        let new = std::mem::take(&mut self.new);
        let (decision, incident) = self.progress(&new);
        self.said.push(&new);
        // Its memory serves again.
        self.new = new;
        self.new.clear();
        match decision.trips.into_iter().next() {
            Some(trip) if trip.verdict >= Verdict::Block => {
                Err(Cut { trip: Box::new(trip), incident, from: 0 })
            }
            _ => Ok(()),
        }
    }

    fn progress(&mut self, text: &str) -> (Decision, Option<String>) {
        let allowed = Decision { verdict: Verdict::Allow, trips: Vec::new() };
        let Some(ticket) = &mut self.ticket else { return (allowed, None) };
        let new = Progress { output: self.output, text };
        self.warden.progress(&self.chain, &self.call, ticket, new)
    }

    /// A tool call in the answer: judged before the agent can see it.
    fn tool_call(&mut self, asked: &ToolRequest<'_>) -> Result<(), Cut> {
        let facts = facts::tool_call(asked.name, asked.arguments);
        self.asked.push(facts.signature);
        let call = Call::Tool(facts);
        let (admission, incident) = self.warden.admit(&self.chain, &call);
        let Some(ticket) = admission.ticket else {
            let trip = admission.trips.into_iter().next().map(Box::new);
            return trip.map_or(Ok(()), |trip| Err(Cut { trip, incident, from: asked.held_from }));
        };
        self.warnings.extend(admission.trips);
        self.waiting.push(ticket.number);
        let mut conversation = self.chain.innermost().conversation.lock();
        let forgotten = conversation.wait_for(Pending { id: asked.id.to_owned(), call, ticket });
        drop(conversation);
        self.cancel(forgotten);
        Ok(())
    }

    /// The agent will not act on this answer: its tool calls are waited for no longer.
    pub(super) fn take_back(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let taken = self.chain.innermost().conversation.lock().take_back(&self.waiting);
        self.waiting.clear();
        self.cancel(taken);
    }

    fn cancel(&self, calls: impl IntoIterator<Item = Pending>) {
        let outcome = Outcome { status: Status::Cancelled, ..Outcome::default() };
        for Pending { call, ticket, .. } in calls {
            self.warden.settle(&self.chain, &call, ticket, &outcome);
        }
    }

    /// Settles the call; a second time does nothing.
    pub(super) fn settle(&mut self, status: Status) -> Option<Decision> {
        let ticket = self.ticket.take()?;
        let status = if self.failed && status == Status::Ok { Status::Fault } else { status };
        let estimated = Usage { output: self.output, input: self.input(), ..Usage::default() };
        let usage = match (self.usage, status) {
            (Some(usage), _) => Usage { output: usage.output.max(self.output), ..usage },
            // Nobody bills for a request that failed, unless an answer had begun.
            (None, Status::Error | Status::Fault) if self.output == Tokens(0) => Usage::default(),
            (None, _) => estimated,
        };
        self.said.push(&std::mem::take(&mut self.new));
        let said = std::mem::take(&mut self.said).finish();
        let answer = Answer {
            text: said.filter(|_| !self.opening),
            calls: (!self.asked.is_empty()).then(|| facts::combine(&self.asked)),
        };
        let outcome = Outcome { status, usage, answer: Some(answer), result: None };
        Some(self.warden.settle(&self.chain, &self.call, ticket, &outcome))
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

impl Drop for Flow {
    fn drop(&mut self) {
        // Still open: the client went away, and pays for what was generated until then.
        self.settle(Status::Cancelled);
    }
}
