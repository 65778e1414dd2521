//! A recorded run, replayed through the engine: what would this policy have done?
//!
//! The replay uses what was recorded and says where it had to assume something:
//! - **Times.** Without recorded times the messages are laid a fixed pace apart, and limits that
//!   depend on the clock alone (how many deletions, how much money or time per minute) are not
//!   judged: a stop must rest on what was seen, not on a guess. A pace given by the caller is taken
//!   at its word.
//! - **Usage.** Without recorded tokens the text is counted at four characters a token, with the
//!   whole history as input of each request.
//! - **People.** Whether a person would have approved a call is unknown. The run went on, so it
//!   counts as approved; the report says that a person would have been asked.
//! - **Refusals.** A call that a loop's ladder would refuse did run in the recording. It is reported
//!   as refused, and the run goes on with what it really brought: an agent that would have kept
//!   asking is ended in its time, and one that made progress is not.
//! - **Prices.** An unknown model is charged at the fallback's rates.

use std::collections::BTreeSet;

use deadstop_core::{
    Admission, Answer, Call, Decision, Digest, Link, Millis, ModelCall, NanoUsd, Outcome,
    PolicySet, Progress, Rates, ScopeKind, ScopeState, Status, TextFacts, TextHasher, Ticket, Time,
    Tokens, Trip, Usage, VelocitySettings, Verdict, admit_recorded, progress, settle,
};

use crate::facts::{
    self,
    envelope::{is_observation, is_summary},
};
use crate::prices::{PriceSource, Prices};
use crate::trace::{RecordedCall, Trace, Turn};

/// The assumed time between messages where the trace has no times.
const ASSUMED_PACE: Millis = Millis(1000);
/// Characters that make a token, on average and in English.
const CHARS_PER_TOKEN: u64 = 4;

/// A policy to replay traces through.
#[derive(Debug)]
pub struct Replayer<'a> {
    policies: PolicySet,
    untimed: PolicySet,
    prices: &'a Prices,
    pace: Option<Millis>,
}

/// One guard firing in a replayed trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The trip itself.
    pub trip: Trip,
    /// The tool call it happened at, from 1; `None` when it was a model call.
    pub at_call: Option<usize>,
    /// The message it happened at, from 1.
    pub at_message: usize,
    /// Tool calls that were still to come.
    pub calls_after: usize,
}

/// What the replay had to assume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Assumed {
    /// Times were laid out at a pace.
    pub times: bool,
    /// Tokens were counted by length.
    pub usage: bool,
    /// Models that were charged at the fallback's rates.
    pub unpriced: BTreeSet<String>,
}

/// A call that was replayed, to look it up by its number in a trip's evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// Its number in the session, from 1.
    pub number: u64,
    /// The turn of the trace it belongs to.
    pub turn: usize,
    /// Which of the turn's tool calls it is; `None` for the model call itself.
    pub call: Option<usize>,
}

/// What came of a trace.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// Every guard that fired, in order.
    pub events: Vec<Event>,
    /// Tool calls in the trace.
    pub calls_total: usize,
    /// Model calls in the trace.
    pub model_calls: usize,
    /// What the whole trace cost.
    pub cost: NanoUsd,
    /// What it cost after the stop.
    pub cost_after: NanoUsd,
    /// What was assumed.
    pub assumed: Assumed,
    /// The calls that were admitted, in order.
    pub calls: Vec<Replayed>,
}

impl Report {
    /// The first event of the strictest verdict: the end, or else the first refusal, question,
    /// piece of advice or warning.
    pub fn telling(&self) -> Option<&Event> {
        let strictest = self.events.iter().map(|event| event.trip.verdict).max()?;
        self.events.iter().find(|event| event.trip.verdict == strictest)
    }

    /// The verdict on the whole trace.
    pub fn verdict(&self) -> Verdict {
        self.telling().map_or(Verdict::Allow, |event| event.trip.verdict)
    }
}

impl<'a> Replayer<'a> {
    /// A replayer for these policies; `pace` is the time between two messages of a trace without
    /// times, for those who know it.
    pub fn new(policies: PolicySet, prices: &'a Prices, pace: Option<Millis>) -> Replayer<'a> {
        Replayer { untimed: without_clock(&policies), policies, prices, pace }
    }

    /// Replays one trace.
    pub fn replay(&self, trace: &Trace) -> Report {
        let times = trace.turns.iter().any(|turn| turn_time(turn).is_some());
        let judged_by_clock = times || self.pace.is_some();
        let mut run = Run {
            id: &trace.id,
            policies: if judged_by_clock { &self.policies } else { &self.untimed },
            prices: self.prices,
            pace: if times { Millis(0) } else { self.pace.unwrap_or(ASSUMED_PACE) },
            now: first_time(trace).unwrap_or_default(),
            states: None,
            heard: Heard::default(),
            history: 0,
            tool_calls: 0,
            stopped: false,
            report: Report::default(),
        };
        run.report.assumed.times = !times;
        run.report.calls_total = trace.turns.iter().map(|turn| calls(turn).len()).sum();
        for (index, turn) in trace.turns.iter().enumerate() {
            run.turn(trace, index, turn);
        }
        run.report
    }
}

/// The policies without the limits that only a clock can judge.
fn without_clock(policies: &PolicySet) -> PolicySet {
    let mut untimed = policies.clone();
    for policy in
        [&mut untimed.project, &mut untimed.agent, &mut untimed.session, &mut untimed.nested]
    {
        policy.velocity = VelocitySettings::default();
        policy.time.max_wall_time_seconds = None;
        policy.destructive.max_deletes = u32::MAX;
    }
    untimed
}

/// Whether the client says that it did not run the tool at all: a person refused, or another call
/// of the same answer failed first. That is no failure of the tool.
fn never_ran(error: &str) -> bool {
    const SAID: [&str; 3] = [
        "The user doesn't want to ",
        "[Request interrupted by user",
        "<tool_use_error>Sibling tool call errored",
    ];
    SAID.iter().any(|said| error.starts_with(said))
}

fn calls(turn: &Turn) -> &[RecordedCall] {
    match turn {
        Turn::Answer { calls, .. } => calls,
        Turn::Prompt { .. } => &[],
    }
}

fn turn_time(turn: &Turn) -> Option<Time> {
    match turn {
        Turn::Prompt { at, .. } | Turn::Answer { at, .. } => *at,
    }
}

fn first_time(trace: &Trace) -> Option<Time> {
    trace.turns.iter().find_map(turn_time)
}

/// What the model was told since its last answer.
#[derive(Default)]
struct Heard {
    hasher: TextHasher,
    anything: bool,
    person: bool,
    summary: bool,
}

impl Heard {
    fn hear(&mut self, text: &str) {
        self.anything |= !text.is_empty();
        self.hasher.push(text);
    }

    fn take(&mut self) -> (Option<TextFacts>, Heard) {
        let heard = std::mem::take(self);
        (heard.anything.then(|| heard.hasher.clone().finish()), heard)
    }
}

/// One trace on its way through the engine.
struct Run<'a> {
    id: &'a str,
    policies: &'a PolicySet,
    prices: &'a Prices,
    pace: Millis,
    now: Time,
    /// Project, agent and session, once there is a first call.
    states: Option<[ScopeState; 3]>,
    heard: Heard,
    /// Characters of the conversation so far.
    history: u64,
    tool_calls: usize,
    stopped: bool,
    report: Report,
}

impl Run<'_> {
    fn turn(&mut self, trace: &Trace, index: usize, turn: &Turn) {
        self.now = self.now + self.pace;
        if let Some(at) = turn_time(turn) {
            self.now = self.now.max(at);
        }
        match turn {
            Turn::Prompt { text, person, .. } => {
                self.heard.hear(text);
                let (result, summary) = (is_observation(text), is_summary(text));
                self.heard.person |= *person && !result && !summary;
                self.heard.summary |= summary;
                self.history += text.len() as u64;
            }
            Turn::Answer { text, calls, usage, model, message, .. } => {
                let model = model.as_ref().or(trace.model.as_ref());
                let model = model.map_or("unknown", String::as_str);
                let tools: Vec<Call> = calls
                    .iter()
                    .map(|call| Call::Tool(facts::tool_call(&call.name, &call.arguments)))
                    .collect();
                let answered = Answered { turn: index, message: *message, text, tools: &tools };
                self.model_call(model, *usage, &answered);
                for (nth, (call, recorded)) in tools.iter().zip(calls).enumerate() {
                    self.tool_call(call, recorded, index, nth);
                }
            }
        }
    }

    fn model_call(&mut self, model: &str, recorded: Option<Usage>, answered: &Answered<'_>) {
        let price = self.prices.price(model);
        if price.source == PriceSource::Fallback {
            self.report.assumed.unpriced.insert(model.to_owned());
        }
        let usage = self.usage(recorded, answered);
        let (prompt, heard) = self.heard.take();
        let call = Call::Model(ModelCall {
            model: model.to_owned(),
            rates: price.rates,
            input: usage.counted_input(),
            prompt,
            from_person: heard.person,
            compacted: heard.summary,
            ..ModelCall::default()
        });
        self.report.model_calls += 1;
        self.charge(price.rates, &usage);

        let at = TracePosition {
            turn: answered.turn,
            call: None,
            message: answered.message,
            at_call: None,
        };
        let Some(mut ticket) = self.admit(&call, at) else { return };
        if !answered.text.is_empty() {
            self.stream(&call, &mut ticket, &usage, answered.text, at);
        }
        let signatures: Vec<Digest> =
            answered.tools.iter().filter_map(Call::tool).map(|tool| tool.signature).collect();
        let outcome = Outcome {
            usage,
            answer: Some(Answer {
                text: (!answered.text.is_empty()).then(|| TextFacts::of(answered.text)),
                calls: (!signatures.is_empty()).then(|| facts::combine(&signatures)),
            }),
            ..Outcome::default()
        };
        self.settle(&call, ticket, &outcome, at);
    }

    fn tool_call(&mut self, call: &Call, recorded: &RecordedCall, turn: usize, nth: usize) {
        self.tool_calls += 1;
        let at = TracePosition {
            turn,
            call: Some(nth),
            message: recorded.message,
            at_call: Some(self.tool_calls),
        };
        let Some(result) = &recorded.result else {
            // Nothing is known of how it ended; it still counts as a step.
            if let Some(ticket) = self.admit(call, at) {
                self.settle(call, ticket, &Outcome::default(), at);
            }
            return;
        };
        self.heard.hear(&result.text);
        self.history += result.text.len() as u64;
        if let Some(ticket) = self.admit(call, at) {
            let status = match result.is_error || facts::says_failed(&result.text) {
                true if never_ran(&result.text) => Status::Cancelled,
                true => Status::Error,
                false => Status::Ok,
            };
            let facts = Some(facts::result(&result.text));
            let outcome = Outcome { status, result: facts, ..Outcome::default() };
            self.settle(call, ticket, &outcome, at);
        }
    }

    /// The tokens of an answer: as recorded, or by the length of the text.
    fn usage(&mut self, recorded: Option<Usage>, answered: &Answered<'_>) -> Usage {
        let input = self.history / CHARS_PER_TOKEN;
        let arguments: u64 = answered
            .tools
            .iter()
            .filter_map(Call::tool)
            .flat_map(|tool| &tool.arguments)
            .map(|argument| argument.value.len() as u64)
            .sum();
        let written = answered.text.len() as u64 + arguments;
        self.history += written;
        recorded.unwrap_or_else(|| {
            self.report.assumed.usage = true;
            let output = Tokens((written / CHARS_PER_TOKEN).max(1));
            Usage { input: Tokens(input), output, ..Usage::default() }
        })
    }

    fn charge(&mut self, rates: Rates, usage: &Usage) {
        let cost = rates.cost(usage);
        self.report.cost += cost;
        if self.stopped {
            self.report.cost_after += cost;
        }
    }

    fn admit(&mut self, call: &Call, at: TracePosition) -> Option<Ticket> {
        if self.stopped {
            return None;
        }
        let now = self.now;
        let Admission { trips, ticket, .. } =
            self.on_chain(|chain| admit_recorded(chain, call, now));
        self.note(trips, at);
        let ticket = ticket?;
        let replayed = Replayed { number: ticket.number, turn: at.turn, call: at.call };
        self.report.calls.push(replayed);
        Some(ticket)
    }

    fn stream(
        &mut self,
        call: &Call,
        ticket: &mut Ticket,
        usage: &Usage,
        text: &str,
        at: TracePosition,
    ) {
        let (now, new) = (self.now, Progress { output: usage.output, text });
        let Decision { trips, .. } = self.on_chain(|chain| progress(chain, call, ticket, new, now));
        self.note(trips, at);
    }

    fn settle(&mut self, call: &Call, ticket: Ticket, outcome: &Outcome, at: TracePosition) {
        let now = self.now;
        let Decision { trips, .. } =
            self.on_chain(|chain| settle(chain, call, ticket, outcome, now));
        self.note(trips, at);
    }

    fn note(&mut self, trips: Vec<Trip>, at: TracePosition) {
        for trip in trips {
            self.stopped |= trip.verdict == Verdict::Kill;
            self.report.events.push(Event {
                trip,
                at_call: at.at_call,
                at_message: at.message,
                calls_after: self.report.calls_total - self.tool_calls,
            });
        }
    }

    fn on_chain<T>(&mut self, decide: impl FnOnce(&mut [Link<'_>]) -> T) -> T {
        let (now, policies, id) = (self.now, self.policies, self.id);
        let [project, agent, session] = self.states.get_or_insert_with(|| {
            [ScopeKind::Project, ScopeKind::Agent, ScopeKind::Session]
                .map(|kind| ScopeState::new(kind, now))
        });
        decide(&mut [
            Link { name: "backtest", state: project, policy: &policies.project },
            Link { name: "agent", state: agent, policy: &policies.agent },
            Link { name: id, state: session, policy: &policies.session },
        ])
    }
}

/// An answer with its tool calls as facts.
struct Answered<'a> {
    turn: usize,
    message: usize,
    text: &'a str,
    tools: &'a [Call],
}

/// Where in a trace a call stands.
#[derive(Clone, Copy)]
struct TracePosition {
    turn: usize,
    call: Option<usize>,
    message: usize,
    at_call: Option<usize>,
}

#[cfg(test)]
mod tests;
