//! A call's three moments over its chain: admit, progress, settle. Decisions are recorded.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use deadstop_core::{
    Admission, Call, Decision, GuardId, Outcome, Progress, Ticket, Time, Trip, Verdict, Wait,
};
use deadstop_fleet::Owner;
use deadstop_redact::excerpt::Excerpt;
use parking_lot::Mutex;

use super::backend::{Commits, Pending, Slice};
use super::conversation::{Heard, Turn, Waiting, advice};
use super::reported::Reported;
use super::step::{Judged, Step, cancelled};
use super::{Approval, BOOKED, Booking, Chain, Once, Said, Warden, record};

/// A call that was admitted.
#[derive(Debug)]
pub struct Running {
    /// Its row number.
    pub id: i64,
    /// What it has reserved.
    pub ticket: Ticket,
    /// The warning it was admitted with.
    warned: Option<Box<Trip>>,
    /// Who settles it.
    pub(super) owner: Owner,
    /// The slice of a shared limit that a stream has reserved.
    pub(super) slice: Option<Arc<Mutex<Slice>>>,
}

impl Running {
    /// A call that was stored between its admission and its end.
    pub(super) fn again(
        id: i64,
        ticket: Ticket,
        owner: Owner,
        warned: Option<Box<Trip>>,
    ) -> Running {
        Running { id, ticket, warned, owner, slice: None }
    }

    /// Whether it was admitted while the cluster was unreachable.
    pub(super) fn is_offline(&self) -> bool {
        self.owner == Owner::Offline
    }
}

/// A call that may not run, or not go on.
#[derive(Debug, Default)]
pub struct Refused {
    /// Why, strictest first.
    pub trips: Vec<Trip>,
    /// The incident that it became, if it is a new one.
    pub incident: Option<String>,
    /// Why the cluster could not be asked, if that is the reason.
    pub unreachable: Option<String>,
    /// Whether its conversation has gone on meanwhile, so that the request must be read again.
    pub stale: bool,
    /// Whether the client proposed this call before and it still runs, so it is not refused.
    pub(super) known: bool,
}

/// How a call is admitted.
#[derive(Clone, Default)]
pub struct Terms {
    /// The approval of a person, if there is one.
    pub(super) approval: Option<Arc<Approval>>,
    /// The word of a person that its harm is allowed once, if there is one.
    once: Option<Arc<Once>>,
    /// The turn that the request belongs to.
    pub turn: Option<Arc<Turn>>,
    carrier: Carrier,
    /// Whether the door waits for room in a limit: a refusal for lack of room is then not recorded
    /// yet.
    patient: bool,
}

/// Who carries a call and reports its end.
#[derive(Clone, Default)]
enum Carrier {
    /// The door that asks.
    #[default]
    Door,
    /// The agent: the result comes with a later request, under this id.
    Agent(String),
    /// A client that reports its calls, under this id; with the beginning of the request, redacted.
    Client { id: String, asked: String },
}

impl Terms {
    /// A model call that comes with a request of a conversation.
    pub fn in_turn(turn: Option<Turn>) -> Terms {
        Terms { turn: turn.map(Arc::new), ..Terms::default() }
    }

    /// A tool call in a model's answer: its result comes with a later request.
    pub fn answered_later(id: &str) -> Terms {
        Terms { carrier: Carrier::Agent(id.to_owned()), ..Terms::default() }
    }

    /// A call that a client reports.
    pub(super) fn reported(id: &str, asked: String) -> Terms {
        Terms { carrier: Carrier::Client { id: id.to_owned(), asked }, ..Terms::default() }
    }

    /// The same for a door that waits for room in a limit.
    pub(super) fn patient(self) -> Terms {
        Terms { patient: true, ..self }
    }

    /// The same, once a person has approved it.
    pub(super) fn approved(self, approval: &Arc<Approval>) -> Terms {
        Terms { approval: Some(Arc::clone(approval)), ..self }
    }

    /// The model's id for a tool call, as far as its carrier knows one.
    pub(super) fn call_id(&self) -> Option<&str> {
        match &self.carrier {
            Carrier::Agent(id) | Carrier::Client { id, .. } => Some(id),
            Carrier::Door => None,
        }
    }

    /// The client's id for a call that it reports.
    pub(super) fn reported_as(&self) -> Option<&str> {
        match &self.carrier {
            Carrier::Client { id, .. } => Some(id),
            Carrier::Door | Carrier::Agent(_) => None,
        }
    }

    /// Whether the door that asks carries the call.
    pub(super) fn is_carried(&self) -> bool {
        matches!(self.carrier, Carrier::Door)
    }
}

/// The result of settling a call.
#[derive(Default)]
pub struct Settled {
    /// What the model should be told because of the result. In a cluster it is known with the booking.
    pub advice: Advice,
    /// What to wait for before the client gets the end of the answer.
    pub booking: Option<Booking>,
}

/// What the model should be told, once that is decided.
#[derive(Debug, Clone, Default)]
pub struct Advice(Arc<OnceLock<String>>);

impl Advice {
    /// The advice, if it is decided and there is some.
    pub fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    fn set(&self, decision: &Decision) {
        if let Some(advice) = advice(&decision.trips) {
            // A call is settled once.
            let _ = self.0.set(advice);
        }
    }
}

/// The result of settling tool calls.
#[derive(Debug, Default)]
pub struct Ended {
    /// What tripped.
    pub trips: Vec<Trip>,
    /// Notes for the model, each with the id of the call whose result it follows.
    pub notes: Vec<(String, String)>,
}

/// A call that asks to be admitted, and how long it may wait.
#[derive(Clone)]
pub struct Admit<'a> {
    /// Its scopes.
    pub chain: &'a Chain,
    /// The call.
    pub call: &'a Call,
    /// What was asked, for people.
    pub request: &'a Excerpt,
    /// How it is admitted.
    pub terms: Terms,
    /// How long it waits while one of its scopes is paused.
    pub hold: Duration,
}

/// What a step found when a call asked to be admitted.
pub(super) enum Found {
    /// It was decided.
    Decided { admission: Box<Admission>, owner: Owner },
    /// The same, and calls that had waited too long for their results were cancelled.
    GaveUp { admission: Box<Admission>, owner: Owner, calls: Vec<(Waiting, Decision)> },
    /// The client proposed this call before and it still runs: the warnings from then.
    Known(Vec<Trip>),
    /// The conversation went on meanwhile: what is new in the request must be read again.
    Stale,
}

/// The step that decides about a call.
pub(super) fn admission(
    step: &mut Step<'_, '_, '_>,
    call: &Call,
    terms: &Terms,
    number: i64,
) -> Found {
    if let Some(known) = step.reported.take() {
        if known.is(call) {
            let trips = known.trips.clone();
            *step.reported = Some(known);
            return Found::Known(trips);
        }
        // The client uses the id for another call, which does not inherit the old verdict.
        if let Some(ticket) = known.ticket {
            step.settle(&known.call, ticket, &known.owner, &cancelled());
        }
    }
    if let Some(turn) = &terms.turn {
        if step.conversation().heard != turn.before {
            return Found::Stale;
        }
        step.conversation_mut().heard = turn.after.clone();
    }
    let owner = if terms.is_carried() { step.me() } else { Owner::Any };
    let mut admission = match (&terms.approval, &terms.once) {
        (Some(_), _) => step.admit_approved(call, &owner),
        (None, Some(_)) => step.admit_allowed(call, &owner),
        (None, None) => step.admit(call, &owner),
    };
    if let Some(once) = &terms.once {
        once.sign(&mut admission.trips);
    }
    if let Some(approval) = &terms.approval {
        approval.sign(&mut admission.trips);
    }
    let waits = |trip: &Trip| {
        trip.guard == GuardId::Paused || trip.verdict == Verdict::Ask || trip.waits.is_some()
    };
    if let (true, Some(turn)) = (admission.trips.first().is_some_and(waits), &terms.turn) {
        // The client repeats the request unchanged once a person has decided.
        step.conversation_mut().heard = turn.before.clone();
    }
    let Some(ticket) = &admission.ticket else {
        return Found::Decided { admission: Box::new(admission), owner };
    };
    match &terms.carrier {
        Carrier::Door => {}
        Carrier::Agent(id) => {
            let forgotten = step.conversation_mut().wait_for(Waiting {
                id: id.clone(),
                number,
                call: call.without_arguments(),
                ticket: ticket.bare(),
                owner: owner.clone(),
                warned: admission.trips.first().cloned().map(Box::new),
            });
            if forgotten.is_some() {
                let calls = step.cancel(forgotten);
                return Found::GaveUp { admission: Box::new(admission), owner, calls };
            }
        }
        Carrier::Client { asked, .. } => {
            *step.reported = Some(Reported {
                number,
                call: call.without_arguments(),
                ticket: Some(ticket.bare()),
                owner: owner.clone(),
                trips: admission.trips.clone(),
                asked: asked.clone(),
                receipt: None,
            });
        }
    }
    Found::Decided { admission: Box::new(admission), owner }
}

/// What was decided about a call, before it is recorded.
struct Decided<'a> {
    admission: Admission,
    id: i64,
    owner: Owner,
    call_id: Option<&'a str>,
}

/// A tool's result, as a request brings it.
pub struct ResultIn {
    /// The model's id for the call.
    pub id: String,
    /// The tool's name, where there is no id.
    pub name: Option<String>,
    /// How the call ended.
    pub outcome: Outcome,
    /// The result.
    pub text: String,
}

/// A call as it is recorded: its row number, and the facts from its ticket.
pub(super) struct Numbered {
    id: i64,
    number: u64,
    admitted: Time,
    /// The warning it was admitted with.
    warned: Option<Box<Trip>>,
    /// The model's id for it, if it is a tool call and has one.
    call_id: Option<String>,
}

impl Numbered {
    pub(super) fn of(id: i64, ticket: &Ticket, warned: Option<Box<Trip>>) -> Numbered {
        let (number, admitted) = (ticket.number, ticket.admitted);
        Numbered { id, number, admitted, warned, call_id: None }
    }

    /// The same, with the model's id for the call.
    pub(super) fn known_as(self, call_id: Option<String>) -> Numbered {
        Numbered { call_id, ..self }
    }

    /// A call that telemetry told of.
    pub(super) fn observed(id: i64, number: u64, began: Time) -> Numbered {
        Numbered { id, number, admitted: began, warned: None, call_id: None }
    }
}

impl Warden {
    /// How far the conversation of a chain has been read.
    pub fn heard(&self, chain: &Chain) -> Heard {
        chain.innermost().heard()
    }

    /// Decides whether a call may run. Where a person must decide, [`Warden::ask`] asks.
    pub async fn admit(
        self: &Arc<Warden>,
        chain: &Chain,
        call: &Call,
        request: &Excerpt,
        terms: &Terms,
    ) -> Result<(Running, Vec<Trip>), Refused> {
        let allowed = match terms.approval {
            Some(_) => None,
            None => self.take_once(chain, call).await,
        };
        let own;
        let terms = match allowed {
            Some(once) => {
                own = Terms { once: Some(Arc::new(once)), ..terms.clone() };
                &own
            }
            None => terms,
        };
        let (begun, number) = (Instant::now(), self.number());
        let decided = self.backend.admit(chain, call, terms, number).await;
        self.metrics.decided(begun.elapsed());
        let (judged, offline) = match decided {
            Ok(judged) => (judged, false),
            Err(unreachable) => match self.backend.admit_offline(chain, call) {
                Some(judged) => {
                    self.metrics.allowed_offline();
                    (judged, true)
                }
                None => {
                    self.metrics.refused_offline();
                    let unreachable = Some(unreachable.why);
                    return Err(Refused { unreachable, ..Refused::default() });
                }
            },
        };
        self.carry_kills(chain, judged.killed);
        let (admission, owner) = match judged.value {
            Found::Decided { admission, owner } => (*admission, owner),
            Found::GaveUp { admission, owner, calls } => {
                self.book_all(chain, calls, &cancelled());
                (*admission, owner)
            }
            Found::Known(trips) => {
                return Err(Refused { known: true, trips, ..Refused::default() });
            }
            Found::Stale => return Err(Refused { stale: true, ..Refused::default() }),
        };
        let waits = |trip: &Trip| trip.waits == Some(Wait::Settle);
        if terms.patient && admission.trips.first().is_some_and(waits) {
            return Err(Refused { trips: admission.trips, ..Refused::default() });
        }
        let decided = Decided { admission, id: number, owner, call_id: terms.call_id() };
        let (running, trips) = self.admitted(chain, call, request, decided)?;
        if let Carrier::Agent(id) = &terms.carrier {
            self.texts.keep(number, request);
            if offline {
                self.wait_offline(chain, id, call, &running);
            }
        }
        Ok((running, trips))
    }

    /// Records what was decided about a call.
    fn admitted(
        &self,
        chain: &Chain,
        call: &Call,
        request: &Excerpt,
        decided: Decided<'_>,
    ) -> Result<(Running, Vec<Trip>), Refused> {
        let Decided { mut admission, id, owner, call_id } = decided;
        if admission.verdict == Verdict::Ask {
            // It is recorded after a person has decided.
            for trip in &admission.trips {
                self.metrics.verdict(trip.guard, trip.verdict);
            }
            return Err(Refused { trips: admission.trips, ..Refused::default() });
        }
        if admission.ticket.is_none() {
            self.offer_once(chain, call, request, &mut admission.trips);
        }
        let said = || Said { request: request.beginning(), response: Excerpt::default() };
        let incident = self.record(chain, call, id, &admission.trips, said);
        match admission.ticket {
            Some(ticket) => {
                if admission.trips.is_empty() {
                    self.metrics.allowed();
                }
                self.note_grant(chain, &ticket);
                let warned = admission.trips.first().cloned().map(Box::new);
                let running = Running { id, ticket, warned, owner, slice: None };
                Ok((running, admission.trips))
            }
            None => {
                if let Some(trip) = admission.trips.first() {
                    let incident = incident.clone();
                    self.refused(chain, call, record::Denied { id, trip, incident, call_id });
                }
                Err(Refused { trips: admission.trips, incident, ..Refused::default() })
            }
        }
    }

    /// Remembers in this node's memory a call that was admitted while the cluster was unreachable.
    fn wait_offline(self: &Arc<Warden>, chain: &Chain, id: &str, call: &Call, running: &Running) {
        let forgotten = chain.innermost().conversation.lock().wait_for(Waiting {
            id: id.to_owned(),
            number: running.id,
            call: call.without_arguments(),
            ticket: running.ticket.bare(),
            owner: running.owner.clone(),
            warned: running.warned.clone(),
        });
        self.settle_offline(chain, forgotten, &cancelled(), "");
    }

    /// Ends calls that were admitted while the cluster was unreachable; they are booked when it can
    /// be reached.
    fn settle_offline(
        self: &Arc<Warden>,
        chain: &Chain,
        calls: impl IntoIterator<Item = Waiting>,
        outcome: &Outcome,
        text: &str,
    ) {
        for Waiting { number, call, ticket, owner, warned, .. } in calls {
            let running = Running::again(number, ticket, owner, warned);
            let mut said = self.texts.take(number);
            said.response.push(text);
            drop(self.settle(chain, &call, running, outcome, said));
        }
    }

    /// Decides whether a call may go on. Returns the incident, if it may not.
    pub fn progress(
        &self,
        chain: &Chain,
        call: &Call,
        running: &mut Running,
        new: Progress<'_>,
        said: impl Fn() -> Said,
    ) -> (Decision, Option<String>) {
        let Judged { value: decision, killed } = self.backend.progress(chain, call, running, new);
        for (depth, kill) in &killed {
            self.end_everywhere(&chain.scopes()[*depth], kill);
        }
        self.carry_kills(chain, killed);
        let incident = self.record(chain, call, running.id, &decision.trips, said);
        if let Some(trip) = decision.trips.first() {
            running.warned = Some(Box::new(trip.clone()));
        }
        (decision, incident)
    }

    /// A future to wait for until the cluster has granted what a call has used; `None` if it has.
    pub fn undecided(&self, running: &Running) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.backend.undecided(running)
    }

    /// Settles a call. Later steps see its end. If there is a booking, the door waits for it before it
    /// ends the answer to the client.
    pub fn settle(
        self: &Arc<Warden>,
        chain: &Chain,
        call: &Call,
        mut running: Running,
        outcome: &Outcome,
        said: Said,
    ) -> Settled {
        let told = Advice::default();
        let offline = running.is_offline();
        let warned = running.warned.take();
        let numbered = Numbered::of(running.id, &running.ticket, warned);
        let commits = self.commits(chain, call, &running, outcome);
        let pending = self.backend.settle(chain, call, running, (outcome, commits));
        let done = match pending {
            Pending::Now(Judged { value: decision, killed }) => {
                self.carry_kills(chain, killed);
                told.set(&decision);
                self.book(chain, call, numbered, outcome, &decision, said);
                self.rooms.settled();
                return Settled { advice: told, booking: None };
            }
            Pending::Later(done) => done,
        };
        let (warden, chain) = (Arc::clone(self), chain.clone());
        let (call, outcome) = (call.clone(), outcome.clone());
        let heard = told.clone();
        let rides = (commits == Commits::WithNext).then(|| self.riders.join());
        let booked = tokio::spawn(async move {
            let _rides = rides;
            let Ok(Judged { value: decision, killed }) = done.await else { return };
            heard.set(&decision);
            warden.carry_kills(&chain, killed);
            warden.book(&chain, &call, numbered, &outcome, &decision, said);
            warden.rooms.settled();
        });
        if commits == Commits::WithNext {
            return Settled { advice: told, booking: None };
        }
        let patience = if offline { Duration::ZERO } else { self.patience() };
        let booking: Booking = Box::pin(async move {
            let _ = tokio::time::timeout(patience, booked).await;
        });
        Settled { advice: told, booking: Some(booking) }
    }

    /// How long to wait for the cluster: not at all while it is unreachable.
    pub(super) fn patience(&self) -> Duration {
        if self.backend.unreachable().is_some() { Duration::ZERO } else { BOOKED }
    }

    /// Tool results have arrived: settles their calls. Returns the trips, and the notes for the
    /// model, each with the result it follows.
    pub async fn results_in(self: &Arc<Warden>, chain: &Chain, results: Vec<ResultIn>) -> Ended {
        if results.is_empty() {
            return Ended::default();
        }
        if self.backend.node().is_some() {
            // It may have been admitted here while the cluster was unreachable.
            for result in &results {
                let mut memory = chain.innermost().conversation.lock();
                let found = memory.all_answered(&result.id, result.name.as_deref());
                drop(memory);
                self.settle_offline(chain, found, &result.outcome, &result.text);
            }
        }
        let results = Arc::new(results);
        let incoming = Arc::clone(&results);
        let pending = self.backend.run_durably(chain, None, move |step| {
            let mut ended = Vec::new();
            for (at, result) in incoming.iter().enumerate() {
                let (id, name) = (&result.id, result.name.as_deref());
                for waiting in step.conversation_mut().all_answered(id, name) {
                    let Waiting { call, ticket, owner, .. } = &waiting;
                    let decision = step.settle(call, ticket.clone(), owner, &result.outcome);
                    ended.push((at, waiting, decision));
                }
            }
            ended
        });
        let (warden, chain) = (Arc::clone(self), chain.clone());
        let book = move |judged: Judged<Vec<(usize, Waiting, Decision)>>| {
            warden.carry_kills(&chain, judged.killed);
            let mut ended = Ended::default();
            for (at, waiting, decision) in judged.value {
                let ResultIn { id, name, outcome, text, .. } = &results[at];
                let advice = waiting.advice(&decision);
                // Behind what came as a user's text there is no place for it.
                let advice = advice.filter(|_| !id.is_empty() || name.is_some());
                ended.notes.extend(advice.map(|advice| (id.clone(), advice)));
                warden.book_waiting(&chain, waiting, outcome, &decision, text);
                ended.trips.extend(decision.trips);
            }
            ended
        };
        match pending {
            Pending::Now(judged) => book(judged),
            Pending::Later(done) => {
                let booked = tokio::spawn(async move { done.await.map(book).unwrap_or_default() });
                // If the cluster answers later, the result is recorded then.
                let booked = tokio::time::timeout(self.patience(), booked).await;
                booked.map(Result::unwrap_or_default).unwrap_or_default()
            }
        }
    }

    /// Cancels tool calls whose results will not come, by their numbers in the scope.
    pub fn take_back(self: &Arc<Warden>, chain: &Chain, numbers: Vec<u64>) {
        if self.backend.node().is_some() {
            let taken = chain.innermost().conversation.lock().take_back(&numbers);
            self.settle_offline(chain, taken, &cancelled(), "");
        }
        let pending = self.backend.run_durably(chain, None, move |step| {
            let taken = step.conversation_mut().take_back(&numbers);
            step.cancel(taken)
        });
        let (warden, chain) = (Arc::clone(self), chain.clone());
        let book = move |judged: Judged<Vec<(Waiting, Decision)>>| {
            warden.carry_kills(&chain, judged.killed);
            warden.book_all(&chain, judged.value, &cancelled());
        };
        match pending {
            Pending::Now(judged) => book(judged),
            Pending::Later(done) => drop(tokio::spawn(async move { done.await.map(book) })),
        }
    }

    fn book_all(&self, chain: &Chain, calls: Vec<(Waiting, Decision)>, outcome: &Outcome) {
        for (waiting, decision) in calls {
            self.book_waiting(chain, waiting, outcome, &decision, "");
        }
    }

    fn book_waiting(
        &self,
        chain: &Chain,
        waiting: Waiting,
        outcome: &Outcome,
        decision: &Decision,
        text: &str,
    ) {
        let Waiting { id, number, call, ticket, warned, .. } = waiting;
        let mut said = self.texts.take(number);
        said.response.push(text);
        let numbered = Numbered::of(number, &ticket, warned).known_as(Some(id));
        self.book(chain, &call, numbered, outcome, decision, said);
    }

    /// Records the end of a call.
    pub(super) fn book(
        &self,
        chain: &Chain,
        call: &Call,
        numbered: Numbered,
        outcome: &Outcome,
        decision: &Decision,
        said: Said,
    ) {
        let Numbered { id, number, admitted, warned, call_id } = numbered;
        let nothing = cancelled();
        // Its tokens are in the record that telemetry made.
        let outcome = if decision.told { &nothing } else { outcome };
        let incident = self.record(chain, call, id, &decision.trips, || said.clone());
        let trip = decision.trips.first().or(warned.as_deref());
        let incident = incident.or_else(|| record::streak_id(chain, warned.as_deref()?));
        let call_id = call_id.as_deref();
        let ended = record::Ended { id, number, admitted, outcome, trip, incident, said, call_id };
        self.ended(chain, call, ended);
    }
}
