//! Asking the engine whether a request may pass, with what is known of its conversation.

use std::sync::Arc;

use axum::body::Body;
use deadstop_core::{Call, CallId, Digest, Outcome, Status, Trip};
use deadstop_protocol::facts;
use deadstop_protocol::llm::conversation::Attempt;
use deadstop_protocol::llm::{Request as Facts, ToolResult, request};
use deadstop_redact::excerpt::Excerpt;
use deadstop_warden::{Admit, Chain, Ended, Refused, ResultIn, Running, Terms, Turn, Warden};
use http::{Response, StatusCode};

use super::flow::Admitted;
use super::inbound::Inbound;
use super::route::Route;
use super::{Exchange, Gateway};
use crate::door::{plain, unavailable};

/// A request that the engine is asked about.
pub(super) struct Admission<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) inbound: &'a Inbound<'a>,
    pub(super) route: &'a Route<'a>,
    pub(super) scopes: &'a Chain,
    pub(super) credential: Digest,
    pub(super) attempt: Attempt,
    /// Whether it is one of many single prompts. A session does not compare these with each other;
    /// the agent's kill switch does, where an operator has switched it on.
    pub(super) single: bool,
}

/// A request that may pass.
pub(super) struct Passed {
    pub(super) admitted: Admitted,
    pub(super) call: Call,
    pub(super) exchange: Exchange,
    pub(super) warnings: Vec<Trip>,
    /// The body with Deadstop's notes to the model, if there are any.
    pub(super) noted: Option<Vec<u8>>,
}

/// A request, read with what is known of its conversation.
struct Read {
    facts: Facts,
    /// Whether it opens a conversation that many clients may share, as its first words name it.
    opening: bool,
    /// What it found of the conversation, and what it leaves for the next request.
    turn: Option<Turn>,
}

impl Read {
    fn unreadable(route: &Route<'_>) -> Read {
        let model = request::model_in_path(&route.path).unwrap_or_else(|| route.name.to_owned());
        Read { facts: Facts { model, ..Facts::default() }, opening: false, turn: None }
    }
}

impl<'a> Admission<'a> {
    /// Asks until the answer belongs to the conversation as it is: while it goes on elsewhere, what
    /// is new in this request must be read again.
    pub(super) async fn ask(
        &self,
        mut opened: Option<request::Open<'a>>,
    ) -> Result<Passed, Response<Body>> {
        let mut notes = Vec::new();
        loop {
            let read = self.read(opened).unwrap_or_else(|| Read::unreadable(self.route));
            if let Some(passed) = self.once(read, &mut notes).await? {
                return Ok(passed);
            }
            opened = self.inbound.open();
        }
    }

    /// `None` if the conversation went on meanwhile.
    async fn once(
        &self,
        read: Read,
        notes: &mut Vec<(String, String)>,
    ) -> Result<Option<Passed>, Response<Body>> {
        let Admission { inbound, route, scopes: chain, .. } = self;
        let Read { mut facts, opening, mut turn } = read;
        let ended = self.results(&facts).await;
        let mut warnings = ended.trips;
        notes.extend(ended.notes);
        let noted = turn.as_mut().and_then(|turn| inbound.with_notes(&mut turn.after.notes, notes));
        let prices = route.provider.prices.as_deref();
        let mut call = facts.call(route.name, &chain.project.prices(), prices);
        call.credential = Some(self.credential);
        call.retry = self.attempt == Attempt::Again;
        call.opening = opening;
        let call = chain.project.redact_call(Call::Model(call));
        let exchange = Exchange {
            dialect: route.answers(inbound.dialect),
            client: inbound.client,
            stream: facts.stream || route.asks_stream(),
            guessed: inbound.is_guessed(),
            fetches: route.fetches,
            brings: route.brings,
            results: route.results(),
            model: facts.model.clone(),
        };
        let mut request = std::mem::take(&mut facts.said);
        // What is new in a request says little without its system prompt and its history.
        if chain.project.keeps_texts() {
            request = request.part_of(inbound.evidence());
        }
        let terms = Terms::in_turn(turn);
        let Some((running, more)) = self.admit(&call, &request, &exchange, terms).await? else {
            return Ok(None);
        };
        warnings.extend(more);
        let admitted = Admitted { running, request };
        Ok(Some(Passed { admitted, call, exchange, warnings, noted }))
    }

    fn read(&self, opened: Option<request::Open<'_>>) -> Option<Read> {
        let before = self.warden().heard(self.scopes);
        let mut after = before.clone();
        let facts = opened?.read(&mut after.seen);
        let words = facts.prompt.map(|text| text.digest).filter(|_| self.single);
        let opening = words.is_some_and(|words| after.opens_with(words));
        Some(Read { facts, opening, turn: Some(Turn { before, after }) })
    }

    /// Tool results that came with this request: the calls they answer are over now. Gives what
    /// the guards have to say about them.
    async fn results(&self, facts: &Facts) -> Ended {
        let read = |result: &ToolResult| ResultIn {
            id: result.id.clone(),
            name: result.name.as_deref().map(|name| self.scopes.project.redact_name(name)),
            outcome: Outcome { id: CallId::of(&result.id), ..outcome(result) },
            text: result.text.clone(),
        };
        self.warden().results_in(self.scopes, facts.results.iter().map(read).collect()).await
    }

    /// Asks the engine. A call in a paused scope waits for a person's decision.
    async fn admit(
        &self,
        call: &Call,
        request: &Excerpt,
        exchange: &Exchange,
        terms: Terms,
    ) -> Result<Option<(Running, Vec<Trip>)>, Response<Body>> {
        let hold = self.gateway.config.hold;
        let admit = Admit { chain: self.scopes, call, request, terms, hold };
        let refused = match self.warden().admit_in_turn(admit).await {
            Ok(admitted) => return Ok(Some(admitted)),
            Err(refused) if refused.stale => return Ok(None),
            Err(refused) => refused,
        };
        let Refused { trips, incident, unreachable, .. } = refused;
        Err(match trips.first() {
            Some(trip) => self.gateway.refusal(exchange, trip, incident.as_deref()),
            None if unreachable.is_some() => unavailable(
                "Deadstop cannot reach the state that its nodes share, and the policy says to refuse.",
            ),
            None => plain(StatusCode::FORBIDDEN, "refused"),
        })
    }

    fn warden(&self) -> &Arc<Warden> {
        &self.gateway.warden
    }
}

/// How a tool call has ended, by the result that came with a request.
fn outcome(result: &ToolResult) -> Outcome {
    Outcome {
        status: if result.is_error { Status::Error } else { Status::Ok },
        result: Some(facts::result(&result.text)),
        ..Outcome::default()
    }
}
