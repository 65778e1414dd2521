//! Calls that a client reports itself: proposed before they run, reported while they run, and
//! booked with a receipt. The client's id names a call; a repeated report changes nothing. Also what
//! a client tells about a session outside of any call: a person's words, a compaction, a sub-agent.

use std::sync::Arc;
use std::time::Duration;

use deadstop_core::{Call, Decision, Outcome, Progress, Status, TextFacts, Tokens, Trip};
use deadstop_fleet::Owner;
use deadstop_redact::excerpt::Excerpt;

use super::backend::Pending;
use super::calls::{Numbered, Terms};
use super::reported::Reported;
use super::step::{Judged, Step};
use super::{Approval, Chain, Message, Refused, Said, Warden, now};
use crate::settings::Capture;
use crate::trace::CallSpan;

/// How long a client waits for the cluster.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of a request that go with a reported call.
const ASKED: usize = 2000;

/// The decision about a proposed call.
pub enum Proposed {
    /// It may run.
    Allowed {
        /// With these warnings.
        trips: Vec<Trip>,
        /// Its span, where it is exported.
        span: Option<CallSpan>,
    },
    /// It may not.
    Refused(Refused),
    /// It waits for a person's decision.
    Waits(Arc<Approval>),
}

/// The result of a receipt.
#[derive(Debug, Clone)]
pub enum Booked {
    /// It is booked, with this decision.
    Now(Decision),
    /// It was booked before, with this decision.
    Before(Decision),
    /// It will be booked when the cluster can be reached again.
    Later,
    /// There is no such call.
    Unknown,
}

impl Warden {
    /// Decides whether a client may make a call. Where a person must decide, the client asks again
    /// under the same id.
    pub async fn propose(
        self: &Arc<Warden>,
        chain: &Chain,
        id: &str,
        call: &Call,
        request: &Excerpt,
    ) -> Proposed {
        let terms = Terms::reported(id, self.asked(chain, request));
        let now = self.time();
        let before = self.approvals.asked_as(chain, id, call, now);
        let decided = match before.as_ref().map(|approval| (approval, approval.word())) {
            Some((approval, None)) => return Proposed::Waits(Arc::clone(approval)),
            Some((approval, Some(_))) if approval.is_approved(now) => {
                let terms = terms.clone().approved(approval);
                self.admit(chain, call, request, &terms).await
            }
            Some((approval, Some(word)))
                if approval.counts() && !self.onces.allows(chain, call, now) =>
            {
                Err(self.refusal_of(chain, request, approval, &word))
            }
            _ => self.admit(chain, call, request, &terms).await,
        };
        let refused = match decided {
            Ok((running, trips)) => {
                self.texts.keep(running.id, request);
                if running.owner == Owner::Offline {
                    self.report_offline(chain, id, call, &running, &trips);
                }
                return Proposed::Allowed { trips, span: self.span_of(chain, running.id) };
            }
            Err(refused) => refused,
        };
        if refused.known {
            return Proposed::Allowed { trips: refused.trips, span: None };
        }
        if !refused.asks() {
            return Proposed::Refused(refused);
        }
        match self.ask(chain, call, request, refused.trips, terms) {
            Ok(question) => {
                let approval = Arc::clone(&question.approval);
                question.detach();
                // The client may ask any node for the decision.
                self.announce_asked(&approval).await;
                Proposed::Waits(approval)
            }
            Err(refused) => Proposed::Refused(refused),
        }
    }

    /// Remembers in this node's memory a call that was admitted while the cluster was unreachable.
    fn report_offline(
        &self,
        chain: &Chain,
        id: &str,
        call: &Call,
        running: &super::Running,
        trips: &[Trip],
    ) {
        let reported = Reported {
            number: running.id,
            call: call.without_arguments(),
            ticket: Some(running.ticket.bare()),
            owner: running.owner.clone(),
            trips: trips.to_vec(),
            asked: String::new(),
            receipt: None,
        };
        chain.innermost().reported.lock().put(id, reported);
    }

    /// Whether a reported call still runs, as far as this node knows without asking the cluster.
    pub fn may_run(&self, chain: &Chain, id: &str) -> bool {
        self.backend.node().is_some() || chain.innermost().reported.lock().runs(id)
    }

    /// Decides whether a reported call may go on; `None` if there is no such call. A call goes on
    /// while the cluster is unreachable.
    pub async fn report(
        self: &Arc<Warden>,
        chain: &Chain,
        id: &str,
        output: Tokens,
        text: &str,
    ) -> Option<(Decision, Option<String>)> {
        let goes_on = || (Decision::default(), None);
        if self.is_offline(chain, id) || self.backend.unreachable().is_some() {
            return Some(goes_on());
        }
        let words = text.to_owned();
        let pending = self.backend.run_durably(chain, Some(id), move |step| {
            let mut reported = step.reported.take()?;
            let found = reported.ticket.as_mut().map(|ticket| {
                let new = Progress { output, text: &words };
                step.progress(&reported.call, ticket, &reported.owner, new)
            });
            let (call, number) = (reported.call.clone(), reported.number);
            let asked = reported.asked.clone();
            *step.reported = Some(reported);
            Some((found?, call, number, asked))
        });
        let Ok(known) = tokio::time::timeout(PATIENCE, pending.known()).await else {
            return Some(goes_on());
        };
        let Ok(Judged { value, killed }) = known else { return Some(goes_on()) };
        self.carry_kills(chain, killed);
        let (decision, call, number, asked) = value?;
        let said = with_request(self.texts.add(number, text), &asked);
        let said = Said { response: said.response.broken_off(), ..said };
        let incident = self.record(chain, &call, number, &decision.trips, || said.clone());
        Some((decision, incident))
    }

    /// Settles a reported call. `outcome` computes its outcome from the call.
    pub async fn receipt(
        self: &Arc<Warden>,
        chain: &Chain,
        id: &str,
        outcome: impl Fn(&Call) -> Outcome + Send + 'static,
        text: &str,
        whole: bool,
    ) -> Booked {
        if self.is_offline(chain, id) {
            return self.book_offline(chain, id, &outcome, text);
        }
        let pending = self.backend.run_durably(chain, Some(id), move |step| {
            let mut reported = step.reported.take()?;
            let ended = reported.ticket.take().map(|ticket| {
                let outcome = outcome(&reported.call);
                let decision =
                    step.settle(&reported.call, ticket.clone(), &reported.owner, &outcome);
                reported.receipt = Some((decision.verdict, decision.trips.clone()));
                (ticket, outcome)
            });
            let receipt = reported.receipt.clone();
            *step.reported = Some(reported.clone());
            let (verdict, trips) = receipt?;
            Some((Decision { verdict, trips, ..Decision::default() }, reported, ended))
        });
        let (warden, chain, text) = (Arc::clone(self), chain.clone(), text.to_owned());
        let call_id = self.exports().then(|| id.to_owned());
        let book = move |judged: Judged<Option<(Decision, Reported, _)>>| {
            warden.carry_kills(&chain, judged.killed);
            let Some((decision, reported, ended)) = judged.value else { return Booked::Unknown };
            let Some((ticket, outcome)) = ended else { return Booked::Before(decision) };
            let Reported { number, call, trips, asked, .. } = reported;
            let mut said = with_request(warden.texts.take(number), &asked);
            if said.response.is_empty() {
                said.response.push(&text);
            }
            if !whole {
                said.response = said.response.broken_off();
            }
            let warned = trips.into_iter().next().map(Box::new);
            let numbered = Numbered::of(number, &ticket, warned).known_as(call_id);
            warden.book(&chain, &call, numbered, &outcome, &decision, said);
            Booked::Now(decision)
        };
        match pending {
            Pending::Now(judged) => book(judged),
            Pending::Later(done) => {
                let booked = tokio::spawn(async move { done.await.map_or(Booked::Later, book) });
                let patience = match self.backend.unreachable() {
                    Some(_) => Duration::ZERO,
                    None => PATIENCE,
                };
                match tokio::time::timeout(patience, booked).await {
                    Ok(Ok(booked)) => booked,
                    Ok(Err(_)) | Err(_) => Booked::Later,
                }
            }
        }
    }

    /// A person spoke, outside of any model call.
    pub async fn hear_person(&self, chain: &Chain, words: TextFacts) {
        let done = self.backend.run_durably(chain, None, move |step| {
            if let Some(state) = step.state() {
                state.hear(&words);
            }
        });
        let _ = tokio::time::timeout(PATIENCE, done.known()).await;
    }

    /// The agent's context was compacted, outside of any model call that would tell it.
    pub async fn compacted(&self, chain: &Chain) {
        let done = self.backend.run_durably(chain, None, move |step| {
            if let Some(state) = step.state() {
                state.compacted();
            }
        });
        let _ = tokio::time::timeout(PATIENCE, done.known()).await;
    }

    /// Decides whether a sub-agent may begin in the innermost scope. While the cluster cannot be
    /// reached it may: its calls are decided anyway.
    pub async fn begin(&self, chain: &Chain) -> Decision {
        let done =
            self.backend.run_durably(chain, None, |step: &mut Step<'_, '_, '_>| step.begin());
        match tokio::time::timeout(PATIENCE, done.known()).await {
            Ok(Ok(judged)) => judged.value,
            Ok(Err(_)) | Err(_) => Decision::default(),
        }
    }

    /// The sub-agent of the innermost scope has ended.
    pub async fn end(&self, chain: &Chain) {
        let done = self.backend.run_durably(chain, None, |step: &mut Step<'_, '_, '_>| step.end());
        let _ = tokio::time::timeout(PATIENCE, done.known()).await;
    }

    /// A session's host says that it is over. Its next call opens it again. Calls that the client
    /// reports and that still run ended with it; in a cluster only those that this node admitted alone
    /// are known by their session.
    pub async fn finish(self: &Arc<Warden>, chain: &Chain) {
        let Some(session) = chain.session() else { return };
        let lost = session.reported.lock().running();
        for id in lost {
            let cancelled = |_: &Call| Outcome { status: Status::Cancelled, ..Outcome::default() };
            self.receipt(chain, &id, cancelled, "", false).await;
        }
        let at = now();
        session.finish(at);
        self.export_over(session);
        self.mark(session);
        self.tell_nodes(Message::Finished { key: session.id.key.clone(), at });
    }

    /// Whether a call was admitted by this node while the cluster was unreachable.
    fn is_offline(&self, chain: &Chain, id: &str) -> bool {
        self.backend.node().is_some() && chain.innermost().reported.lock().contains(id)
    }

    fn book_offline(
        self: &Arc<Warden>,
        chain: &Chain,
        id: &str,
        outcome: &impl Fn(&Call) -> Outcome,
        text: &str,
    ) -> Booked {
        let mut calls = chain.innermost().reported.lock();
        let Some(mut reported) = calls.take(id) else { return Booked::Unknown };
        let ticket = reported.ticket.take();
        calls.put(id, reported.clone());
        drop(calls);
        let allowed = Decision::default();
        let Some(ticket) = ticket else { return Booked::Before(allowed) };
        let Reported { number, call, owner, trips, .. } = reported;
        let mut said = self.texts.take(number);
        said.response.push(text);
        let warned = trips.into_iter().next().map(Box::new);
        let running = super::Running::again(number, ticket, owner, warned);
        let outcome = outcome(&call);
        drop(self.settle(chain, &call, running, &outcome, said));
        Booked::Now(allowed)
    }

    /// The beginning of a request, redacted, to store with a reported call.
    pub(super) fn asked(&self, chain: &Chain, request: &Excerpt) -> String {
        match chain.project.settings.read().capture {
            Capture::None => String::new(),
            _ => chain.project.redact_start(request.text(), ASKED),
        }
    }
}

/// The texts of a call. A node that never saw the request has only the beginning stored with the
/// call.
fn with_request(mut said: Said, asked: &str) -> Said {
    if said.request.is_empty() {
        said.request.push(asked);
    }
    said
}
