//! A call in flight: it is watched while it runs and settled when it ends.

use deadstop_core::{
    Answer, Call, NanoUsd, Outcome, Progress, Status, TextFacts, Ticket, Tokens, Trip, Usage,
    progress, prompt_counted, settle,
};
use deadstop_protocol::facts;
use deadstop_protocol::llm::answer::counted::Counted;

use crate::authority::{Remote, Report, Telling};
use crate::capture::{Capture, CaptureKind};
use crate::refused::{Refused, Why};
use crate::scope::Scope;
use crate::steer::{Settled, admitted_with, advice};
use crate::stop::StopSignal;
use crate::tree::Pending;

/// Bytes of an answer that the server is told.
const LONGEST_TOLD: usize = 64 << 10;

/// A call that was admitted. Settle it; one that is dropped counts as cancelled.
///
/// ```
/// use deadstop_sdk::Session;
/// use serde_json::json;
///
/// let session = Session::builder("a").open()?;
/// let call = session.tool("search", &json!({ "query": "deadstop" }))?;
/// assert_eq!(session.state().figures.in_flight, 1);
/// call.done("three pages")?;
/// assert_eq!(session.state().figures.in_flight, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Running {
    pub(crate) scope: Scope,
    pub(crate) call: Call,
    pub(crate) ticket: Option<Ticket>,
    /// How the server knows it, if there is one.
    pub(crate) remote: Option<Remote>,
    pub(crate) stop: StopSignal,
    pub(crate) warnings: Vec<Why>,
    /// The model's id for it, if an answer asked for it.
    pub(crate) asked_as: Option<String>,
}

impl Running {
    /// The signal that this call must obey: it is given when its scope, or anything above it, is
    /// killed.
    pub fn stop_signal(&self) -> &StopSignal {
        &self.stop
    }

    /// The warnings with which it was admitted.
    pub fn warnings(&self) -> &[Why] {
        &self.warnings
    }

    /// The scope in which it runs.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// May it go on? `output_tokens` counts from the beginning of the answer, `text` is what is new.
    /// If not, cut it off, then settle or drop it.
    pub fn progress(&mut self, output_tokens: u64, text: &str) -> Result<(), Refused> {
        self.progress_of(None, Tokens(output_tokens), text)
    }

    /// The same, where the provider has counted the prompt.
    pub(crate) fn progress_of(
        &mut self,
        prompt: Option<Tokens>,
        output: Tokens,
        text: &str,
    ) -> Result<(), Refused> {
        let Some(ticket) = &mut self.ticket else { return Ok(()) };
        if self.stop.is_stopped() {
            return Err(self.scope.why_stopped());
        }
        let (call, now) = (&self.call, self.scope.session.now());
        let mut tree = self.scope.session.tree();
        let at = self.scope.at;
        let (decision, ended) = tree.decide(at, |links| {
            if let Some(prompt) = prompt {
                prompt_counted(links, call, ticket, prompt);
            }
            progress(links, call, ticket, Progress { output, text }, now)
        });
        let refused = tree.refused(at, &decision.trips);
        drop(tree);
        if !decision.trips.is_empty() {
            let allowed = decision.allowed();
            let what = if allowed { CaptureKind::Tripped } else { CaptureKind::Cut };
            self.scope.note(what, &self.call, decision.verdict, &decision.trips, ended);
        }
        refused.map_or(Ok(()), Err)
    }

    /// A tool has answered. An error means that its scope was ended, by this result or meanwhile:
    /// the result is not to be used. Give the model [`Settled::told`].
    pub fn done(self, text: &str) -> Result<Settled, Refused> {
        self.end(Status::Ok, text)
    }

    /// A tool has answered with an error, or has not answered.
    pub fn failed(self, text: &str) -> Result<Settled, Refused> {
        self.end(Status::Error, text)
    }

    /// A tool's call has ended with this status.
    pub fn end(mut self, status: Status, text: &str) -> Result<Settled, Refused> {
        let result = Some(facts::result(text));
        self.close(&Outcome { status, result, ..Outcome::default() }, Some(text))
    }

    /// A model has answered.
    pub fn answered(self, usage: Usage, text: &str) -> Result<Settled, Refused> {
        self.end_model(Status::Ok, usage, text)
    }

    /// A model's call has ended with this status.
    pub fn end_model(
        mut self,
        status: Status,
        usage: Usage,
        text: &str,
    ) -> Result<Settled, Refused> {
        let said = (!text.is_empty()).then(|| TextFacts::of(text));
        let answer = Some(Answer { text: said, calls: None });
        self.close(&Outcome { status, usage, answer, ..Outcome::default() }, Some(text))
    }

    /// It has ended with this outcome.
    pub(crate) fn close(
        &mut self,
        outcome: &Outcome,
        text: Option<&str>,
    ) -> Result<Settled, Refused> {
        let Some((refused, advice)) = self.settle_saying(outcome, text) else {
            return Ok(Settled::default());
        };
        match refused {
            Some(refused) if refused.is_killed() => Err(refused),
            _ if self.stop.is_stopped() => Err(self.scope.why_stopped()),
            _ => {
                let advice = advice.or_else(|| admitted_with(&self.warnings));
                let asked = self.asked_as.take().map(|id| (self.scope.clone(), id));
                Ok(Settled { advice, asked })
            }
        }
    }

    /// What its answer has cost; `None` for a tool call.
    pub(crate) fn bill(&self, usage: &Usage, counted: &Counted) -> Option<NanoUsd> {
        let model = &self.call.model()?.model;
        Some(self.scope.session.prices().bill(None, model, usage, counted).cost)
    }

    /// Settles it; tells what that refuses, and what it has to say to the model. `None` if it was settled
    /// before.
    fn settle_saying(
        &mut self,
        outcome: &Outcome,
        text: Option<&str>,
    ) -> Option<(Option<Refused>, Option<String>)> {
        let ticket = self.ticket.take()?;
        let billed = outcome.billed.or_else(|| self.bill(&outcome.usage, &Counted::default()));
        let outcome = &Outcome { billed, ..outcome.clone() };
        let (call, session, at) = (&self.call, &self.scope.session, self.scope.at);
        let now = session.now();
        let mut tree = session.tree();
        let (decision, ended) = tree.decide(at, |links| settle(links, call, ticket, outcome, now));
        let refused = tree.refused(at, &decision.trips);
        drop(tree);
        let cost = billed.map(NanoUsd::dollars);
        session.capture(Capture {
            at_ms: now.0,
            what: CaptureKind::Settled,
            scope: self.scope.path(),
            name: call.name().to_owned(),
            verdict: decision.verdict,
            why: decision.trips.first().map(Trip::explain),
            cost_usd: cost,
        });
        session.carry_out(ended);
        session.tell(at, &decision.trips);
        if let (Some(remote), Some(authority)) = (self.remote.take(), session.authority()) {
            let told = advice(&decision.trips).or_else(|| admitted_with(&self.warnings));
            authority.tell(Telling::Ended(Box::new(Report {
                remote,
                scope: self.scope.path(),
                outcome: outcome.clone(),
                text: text.map(|text| text[..text.floor_char_boundary(LONGEST_TOLD)].to_owned()),
                steered: told.is_some(),
            })));
        }
        Some((refused, advice(&decision.trips)))
    }

    /// Keeps an admitted call of an answer until a tool runs it.
    pub(crate) fn wait_as(mut self, id: String) -> Option<u64> {
        let ticket = self.ticket.take()?;
        let number = ticket.number;
        let call = self.call.clone();
        let warnings = std::mem::take(&mut self.warnings);
        let pending = Pending { id, call, ticket, remote: self.remote.take(), warnings };
        let forgotten = self.scope.session.tree().wait_for(self.scope.at, pending);
        if let Some(forgotten) = forgotten {
            self.scope.give_up(forgotten);
        }
        Some(number)
    }
}

impl Scope {
    /// A call of an answer that will not run.
    pub(crate) fn give_up(&self, pending: Pending) {
        let outcome = Outcome { status: Status::Cancelled, ..Outcome::default() };
        let _ = self.finish(pending, &outcome, None);
    }

    /// A call of an answer that ran elsewhere, and whose result is known.
    pub(crate) fn finish(
        &self,
        pending: Pending,
        outcome: &Outcome,
        text: Option<&str>,
    ) -> Result<Settled, Refused> {
        self.taken_up(pending).close(outcome, text)
    }

    /// A call of an answer, as one that runs.
    pub(crate) fn taken_up(&self, pending: Pending) -> Running {
        let Pending { id, call, ticket, remote, warnings } = pending;
        let (stop, scope) = (self.session.tree().stop(self.at), self.clone());
        let (ticket, asked_as) = (Some(ticket), Some(id));
        Running { scope, call, ticket, remote, stop, warnings, asked_as }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            // Cancelled. What it had set aside may have been used, but that is not known here.
            let cancelled = Outcome { status: Status::Cancelled, ..Outcome::default() };
            self.settle_saying(&cancelled, None);
        }
    }
}
