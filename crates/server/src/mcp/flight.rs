//! A tool call in flight, and the promise that it is settled once.

use std::sync::Arc;
use std::task::{Context, Poll};

use deadstop_core::{Call, Digest, Outcome, Progress, Status, Tokens};
use deadstop_protocol::mcp::{self, Ended, Message, Why};
use deadstop_redact::excerpt::Excerpt;

use deadstop_warden::trace::CallSpan;
use deadstop_warden::{Advice, Booking, Chain, Running, Said, Stops, Warden};

/// A call in flight. Dropping it settles it, whatever ended it.
pub(super) struct Flight {
    warden: Arc<Warden>,
    chain: Chain,
    call: Call,
    running: Option<Running>,
    request: Excerpt,
    stops: Stops,
    /// Its id as it came; a notification has none.
    pub(super) id: Option<String>,
    key: Option<Digest>,
    /// Done when all nodes know of its end.
    booking: Option<Booking>,
    /// What the model is told behind its result, by its admission.
    pub(super) advice: Option<String>,
    /// The same by its result.
    told: Advice,
}

impl Flight {
    pub(super) fn new(
        warden: Arc<Warden>,
        chain: Chain,
        call: Call,
        running: Running,
        request: Excerpt,
        id: Option<String>,
    ) -> Flight {
        let stops = chain.stops();
        let key = id.as_deref().and_then(mcp::key);
        let running = Some(running);
        Flight {
            warden,
            chain,
            call,
            running,
            request,
            stops,
            id,
            key,
            booking: None,
            advice: None,
            told: Advice::default(),
        }
    }

    /// Whether an answer with this id is the one to this call.
    pub(super) fn is(&self, key: Digest) -> bool {
        self.key == Some(key)
    }

    /// Its span, where it is exported.
    pub(super) fn span(&self) -> Option<CallSpan> {
        self.warden.span_of(&self.chain, self.running.as_ref()?.id)
    }

    /// Whether its client has named a trace for it.
    pub(super) fn is_in_a_trace(&self) -> bool {
        self.chain.trace.is_some()
    }

    /// Ready when this call is stopped: one of its scopes was killed.
    pub(super) fn poll_stopped(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.stops.poll(context)
    }

    /// Waits until this call is stopped.
    pub(super) async fn stopped(&mut self) {
        std::future::poll_fn(|context| self.poll_stopped(context)).await;
    }

    /// Settles a stopped call, and gives the reason.
    pub(super) fn stop(&mut self) -> Why {
        let mut why = Why::failed("stopped", "stopped. Do not retry.");
        if let Some(running) = &mut self.running {
            let new = Progress { output: Tokens(0), text: "" };
            let request = &self.request;
            let said = || Said { request: request.clone(), response: Excerpt::default() };
            let (decision, incident) =
                self.warden.progress(&self.chain, &self.call, running, new, said);
            if let Some(trip) = decision.trips.first() {
                why = Why::of(trip, incident.as_deref());
            }
        }
        self.end(&Outcome { status: Status::Cancelled, ..Outcome::default() }, "");
        why
    }

    /// Done when the decision about it is on disk.
    pub(super) async fn written(&mut self) {
        self.warden.settle_kills(&self.chain).await;
    }

    /// It was answered.
    pub(super) fn settle(&mut self, ended: &Ended) {
        self.end(&ended.outcome, &ended.text);
    }

    /// It will not be answered.
    pub(super) fn fail(&mut self, status: Status, text: &str) {
        self.end(&Outcome { status, ..Outcome::default() }, text);
    }

    fn end(&mut self, outcome: &Outcome, text: &str) {
        let Some(running) = self.running.take() else { return };
        let mut response = Excerpt::default();
        response.push(text);
        let said = Said { request: std::mem::take(&mut self.request), response };
        let settled = self.warden.settle(&self.chain, &self.call, running, outcome, said);
        (self.booking, self.told) = (settled.booking, settled.advice);
    }

    /// What the model is told behind its result. With a booking it is complete when that is done.
    pub(super) fn note(&mut self) -> Note {
        Note { told: self.told.clone(), otherwise: self.advice.take() }
    }

    /// What to wait for before the client gets the answer: then this call counts on every node when
    /// the next one is judged.
    pub(super) fn booking(&mut self) -> Option<Booking> {
        self.booking.take()
    }
}

/// What the model is told behind a result: what the result has shown, or else what was said before.
#[derive(Default)]
pub(super) struct Note {
    told: Advice,
    otherwise: Option<String>,
}

impl Note {
    /// The answer with the note behind its content; `None` if there is nothing to say, or no content.
    pub(super) fn put(&self, said: &[u8], answer: &Message<'_>) -> Option<Vec<u8>> {
        mcp::noted(said, answer, self.told.get().or(self.otherwise.as_deref())?)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.end(&Outcome { status: Status::Cancelled, ..Outcome::default() }, "");
    }
}
