//! Records: calls, incidents with their evidence, the audit, alerts.
//!
//! They go to the outbox, and the writer brings them to the database.

use std::borrow::Cow;
use std::sync::Arc;

use deadstop_core::{Call, Kill, Millis, NanoUsd, Outcome, Time, Trip, Usage, Verdict};
use deadstop_core::{Digest, Failure, GuardId, How, Measure, ScopeKind};
use deadstop_store::{AuditEvent, CallKind, IncidentFilter, Paging, StoredCall};
use deadstop_store::{StoredIncident, StoredRung};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::recent::Exhibit;
use super::step::{is_incident, is_overruled};
use super::{Chain, Event, Order, Project, Said, Scope, Warden, What, log, now};
use crate::alerts::{self, Alert};
use crate::fingerprint;
use crate::metrics::Kind;
use crate::settings::Capture;
use crate::trace::{CallSpan, Sampler};
use deadstop_redact::Redactor;

/// Calls shown as evidence of an incident whose trip names none.
const FEW: usize = 5;

/// The format version of facts.
const FACTS_VERSION: u8 = 3;
/// Bytes that the facts of most calls fit into.
const USUAL_FACTS: usize = 256;
/// The version before it, which did not say when a call ended.
const FACTS_WITHOUT_END: u8 = 2;

/// A call that has ended.
pub(super) struct Ended<'a> {
    pub(super) id: i64,
    pub(super) number: u64,
    pub(super) admitted: Time,
    pub(super) outcome: &'a Outcome,
    pub(super) trip: Option<&'a Trip>,
    pub(super) incident: Option<String>,
    pub(super) said: Said,
    /// The model's id for it, if it is a tool call and has one.
    pub(super) call_id: Option<&'a str>,
}

/// A call that was refused.
pub(super) struct Denied<'a> {
    pub(super) id: i64,
    pub(super) trip: &'a Trip,
    pub(super) incident: Option<String>,
    /// The model's id for it, if it is a tool call and has one.
    pub(super) call_id: Option<&'a str>,
}

/// What the exporter of telemetry is told.
#[derive(Debug, Clone)]
pub enum Exported {
    /// A call ended or was refused.
    Call(Box<ExportedCall>),
    /// A session is over, as its host says.
    Over {
        /// Its project.
        project: String,
        /// Its row number.
        session: i64,
    },
}

/// A call for the exporter of telemetry.
#[derive(Debug, Clone)]
pub struct ExportedCall {
    /// Its record.
    pub row: StoredCall,
    /// The agent's name.
    pub agent: String,
    /// The session's name.
    pub session: String,
    /// What decided about it, redacted.
    pub trip: Option<Box<Trip>>,
    /// Where it stands in its trace.
    pub place: CallSpan,
    /// The model that answered, where the answer says so.
    pub model: Option<String>,
    /// The model's id for a tool call, redacted.
    pub call_id: Option<String>,
    /// What was asked and answered, where that is exported; see [`Warden::shown`].
    pub said: Option<Said>,
}

/// Names of a call that only the exporter needs.
#[derive(Clone, Copy, Default)]
struct Names<'a> {
    model: Option<&'a str>,
    call_id: Option<&'a str>,
    said: Option<&'a Said>,
}

/// Where calls go that are exported.
pub struct Exports {
    /// The queue of the exporter.
    pub queue: mpsc::Sender<Exported>,
    /// Whether what was asked and answered goes along.
    pub texts: bool,
    /// Which calls go there.
    pub sampler: Sampler,
}

impl Exports {
    fn takes(&self, chain: &Chain) -> bool {
        let session = chain.session().map_or(0, |scope| scope.number());
        self.sampler.takes(chain.trace.as_deref(), &chain.project.name, session)
    }
}

/// Trips of one rung whose calls are kept as evidence: a loop that only warns has no end.
const SHOWN: u64 = 5;

/// An incident to write, or what it grew by.
pub(super) struct NewIncident {
    pub(super) incident: StoredIncident,
    pub(super) exhibits: Vec<Exhibit>,
}

impl NewIncident {
    /// Takes in another trip of the same incident.
    pub(super) fn grow(&mut self, other: NewIncident) {
        self.incident.grow(other.incident);
        for exhibit in other.exhibits {
            self.exhibits.retain(|known| known.call != exhibit.call);
            self.exhibits.push(exhibit);
        }
        self.exhibits.sort_by_key(|exhibit| exhibit.call);
    }
}

/// The id of the incident that a trip of a loop or an outage belongs to; `None` for a trip that is an
/// incident of its own. Every node comes to the same id, so that the steps of a loop meet in one incident.
pub(super) fn streak_id(chain: &Chain, trip: &Trip) -> Option<String> {
    let first = trip.streak?;
    let scope = chain.scopes().get(trip.context.depth)?.number();
    let name = format!("{}/{scope}/{}/{first}", chain.project.name, trip.guard);
    let halves = ["a", "b"].map(|half| Digest::of(format!("{half}{name}").as_bytes()).0);
    let [high, low] = halves.map(u128::from);
    let bytes = (high << 64 | low).to_be_bytes();
    Some(uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string())
}

/// The step of the ladder that a trip of a loop took, where it counts.
fn rung(trip: &Trip, call: i64, at: Time) -> Option<StoredRung> {
    if trip.streak.is_none() || trip.guard == GuardId::Breaker {
        return None;
    }
    let (Measure::Count(count), Measure::Count(limit)) = (trip.measured, trip.limit) else {
        return None;
    };
    Some(StoredRung {
        verdict: trip.verdict,
        at,
        last: at,
        count,
        last_count: count,
        limit,
        sentence: trip.explain(),
        advice: trip.advice.clone().filter(|_| trip.verdict >= Verdict::Steer),
        call: Some(call),
        last_call: Some(call),
    })
}

/// The facts of a call that a backtest needs, without texts.
#[derive(Debug, Serialize, Deserialize)]
pub struct Facts {
    /// The call, without its arguments.
    pub call: Call,
    /// How it ended. Of a refused call: nothing.
    pub outcome: Outcome,
    /// A number taken when it ended. Calls have theirs from when they were asked, so that all
    /// moments have one order, also those of the same millisecond. 0 where that is not known.
    pub ended: i64,
}

impl Facts {
    /// The facts as bytes.
    pub fn write(call: &Call, outcome: &Outcome, ended: i64) -> Option<Vec<u8>> {
        let bare;
        let call = match call {
            Call::Model(_) => call,
            Call::Tool(_) => {
                bare = call.without_arguments();
                &bare
            }
        };
        let mut bytes = Vec::with_capacity(USUAL_FACTS);
        bytes.push(FACTS_VERSION);
        // The fields of `Facts`, in their order.
        postcard::to_extend(&(call, outcome, ended), bytes).ok()
    }

    /// Reads facts; `None` if another version wrote them.
    pub fn read(bytes: &[u8]) -> Option<Facts> {
        match bytes.split_first() {
            Some((&FACTS_VERSION, facts)) => postcard::from_bytes(facts).ok(),
            Some((&FACTS_WITHOUT_END, facts)) => {
                let (call, outcome) = postcard::from_bytes(facts).ok()?;
                Some(Facts { call, outcome, ended: 0 })
            }
            // Another version: the call counts, but cannot be replayed.
            _ => None,
        }
    }
}

/// Why a call failed, in short.
fn cause(failure: Failure) -> String {
    match failure.how {
        How::Unsaid => failure.blame.name().to_owned(),
        how => how.to_string(),
    }
}

impl Warden {
    /// Records the trips of a call as incidents, and shows them to watchers. Returns the id of the
    /// incident of the strictest trip.
    pub fn record(
        &self,
        chain: &Chain,
        call: &Call,
        id: i64,
        trips: &[Trip],
        said: impl Fn() -> Said,
    ) -> Option<String> {
        let mut first = None;
        for trip in trips {
            let recorded = is_incident(trip) && !is_overruled(trip, trips);
            self.metrics.verdict(trip.guard, trip.verdict);
            let (agent, _) = chain.names();
            let project = &chain.project.name;
            self.metrics.labelled.trip(project, agent, trip.guard, trip.verdict);
            let what = match trip.verdict {
                _ if trip.guard == GuardId::Killed => continue,
                Verdict::Allow => continue,
                // An `Ask` among the trips of a call that was refused for another reason.
                Verdict::Warn | Verdict::Ask => "warn",
                Verdict::Steer => "steer",
                Verdict::Block => "block",
                Verdict::Kill => "stop",
            };
            let mut trip = trip.clone();
            trip.because = chain.project.redact_reason(&trip.because);
            let own = || uuid::Uuid::now_v7().to_string();
            let incident = recorded.then(|| streak_id(chain, &trip).unwrap_or_else(own));
            log::trip(self, chain, &trip, id, incident.as_deref());
            self.tell_trip(chain, what, &trip, incident.clone());
            self.alert_trip(chain, call, &trip, incident.as_deref());
            let Some(incident) = incident else { continue };
            first.get_or_insert_with(|| incident.clone());
            self.keep_incident(chain, call, id, trip, incident, said());
        }
        first
    }

    fn keep_incident(
        &self,
        chain: &Chain,
        call: &Call,
        id: i64,
        trip: Trip,
        incident: String,
        said: Said,
    ) {
        let (agent, session) = chain.names();
        let scope = chain.innermost().number();
        let settings = Arc::clone(&chain.project.settings.read());
        let kept = settings.capture != Capture::None && shows(&trip);
        let mut exhibits = match kept {
            false => Vec::new(),
            true => self.recent.find(scope, &trip.evidence, FEW),
        };
        // Of an outage the calls that failed are shown, not those that were refused because of it.
        if kept && !said.request.is_empty() && trip.guard != GuardId::Breaker {
            exhibits.retain(|exhibit| exhibit.call != id);
            exhibits.push(Exhibit { scope, number: u64::MAX, call: id, said });
        }
        let at = now();
        let rungs = rung(&trip, id, at).into_iter().collect();
        let incident = StoredIncident {
            id: incident,
            project: chain.project.name.clone(),
            at,
            last: at,
            agent: agent.to_owned(),
            session: session.to_owned(),
            session_number: chain.session().map(|scope| scope.number()),
            call: Some(id),
            provider: server(call).map(str::to_owned),
            about: fingerprint::about(&trip, call),
            trip,
            rungs,
            acknowledged: None,
            assignee: None,
            resolved: None,
            calls: 0,
        };
        self.outbox.lock().incident(NewIncident { incident, exhibits });
    }

    /// The incident that ended the scope which refuses a call, if a guard did.
    pub(super) async fn ended_by(&self, chain: &Chain, trips: &[Trip]) -> Option<String> {
        let trip = trips.first().filter(|trip| trip.guard == GuardId::Killed)?;
        let scope = chain.scopes().get(trip.context.depth)?;
        if let Some(known) = scope.ended_by.lock().clone() {
            return Some(known);
        }
        let guard = scope.state.lock().killed()?.guard?;
        let session = chain.session().filter(|_| scope.kind() != ScopeKind::Agent);
        let filter = IncidentFilter {
            agent: chain.agent().map(|agent| agent.name().to_owned()),
            session: session.map(|session| session.number()),
            guard: Some(guard),
            ..IncidentFilter::default()
        };
        let paging = Paging::first(FEW as u32);
        let found = self.store.as_ref()?.incidents(&chain.project.name, &filter, &paging).await;
        let killed = |incident: &StoredIncident| incident.trip.verdict == Verdict::Kill;
        let incident = found.ok()?.items.into_iter().find(killed)?.id;
        *scope.ended_by.lock() = Some(incident.clone());
        Some(incident)
    }

    /// Records in the audit that a guard killed a scope.
    pub(super) fn killed_by_guard(&self, scope: &Arc<Scope>, kill: &Kill) {
        let guard = kill.guard.map_or("guard", GuardId::name);
        let tag = kill.guard.map_or("killed", |guard| guard.tag(Verdict::Kill));
        let because = kill.because.clone();
        let action = format!("{}.kill", scope.kind().name());
        self.outbox.lock().audit.push(AuditEvent {
            number: self.number(),
            project: scope.id.project.clone(),
            at: kill.at,
            who: format!("guard:{guard}"),
            action,
            subject: subject(scope),
            reason: format!("{tag}: {because}"),
            detail: "{}".to_owned(),
        });
        let event = self.event_of(scope, "kill", because);
        let switch = scope.kind() == ScopeKind::Agent && kill.guard == Some(GuardId::Similarity);
        let event_type = if switch { "kill_switch".into() } else { event.event_type.clone() };
        self.spread(Event { event_type, ..event });
    }

    /// Records an operator's order in the audit, and sends an alert if it is a kill.
    pub(super) fn ordered(&self, scope: &Scope, order: &Order<'_>) {
        let place = &scope.id;
        log::order(self, scope, order);
        self.outbox.lock().audit.push(AuditEvent {
            number: self.number(),
            project: place.project.clone(),
            at: now(),
            who: order.who.to_owned(),
            action: format!("{}.{}", scope.kind().name(), order.what.name()),
            subject: subject(scope),
            reason: order.reason.to_owned(),
            detail: "{}".to_owned(),
        });
        let project = self.projects.read().get(&place.project).cloned();
        if let Some(project) = project.filter(|_| order.what == What::Kill) {
            let kind = scope.kind();
            let alert = Alert {
                kind: deadstop_alerts::Kind::Kill,
                agent: Some(scope.agent()).filter(|agent| !agent.is_empty()),
                session: (kind == ScopeKind::Session).then(|| scope.name()),
                trip: None,
                sentence: format!("the {} {} was {}", kind.name(), subject(scope), order.text()),
                incident: None,
                outage: None,
            };
            self.alert(&project, &alert);
        }
    }

    /// Shows watchers what happened to a scope.
    pub(super) fn tell_of(&self, scope: &Scope, what: &'static str, text: String) {
        self.spread(self.event_of(scope, what, text));
    }

    /// What became of a scope. Only a session's own has the name of a session.
    fn event_of(&self, scope: &Scope, what: &'static str, text: String) -> Event {
        let session = match scope.kind() {
            ScopeKind::Session | ScopeKind::Nested => scope.name(),
            ScopeKind::Agent | ScopeKind::Project => "",
        };
        Event::new(what, &scope.id.project, scope.agent(), session, text)
    }

    /// Shows what a guard did to watchers.
    fn tell_trip(&self, chain: &Chain, what: &'static str, trip: &Trip, incident: Option<String>) {
        let (agent, session) = chain.names();
        let event = Event::new(what, &chain.project.name, agent, session, trip.explain());
        let guard = Some(Cow::Borrowed(trip.guard.name()));
        self.spread(Event { incident, guard, ..event });
    }

    /// Shows an event to watchers.
    pub fn tell(&self, chain: &Chain, what: &'static str, text: String, incident: Option<String>) {
        let (agent, session) = chain.names();
        let event = Event::new(what, &chain.project.name, agent, session, text);
        self.spread(Event { incident, ..event });
    }

    /// Records a call that was refused.
    pub(super) fn refused(&self, chain: &Chain, call: &Call, denied: Denied<'_>) {
        let Denied { id, trip, incident, call_id } = denied;
        self.count(call);
        if trip.guard == GuardId::Paused {
            return;
        }
        if trip.guard == GuardId::Breaker {
            // The session is held back by this provider, perhaps from its first call on.
            used(chain, call);
        }
        let row = self.row(chain, call, id, now(), Some(trip));
        log::call(chain, &row, incident.as_deref());
        let names = Names { call_id, ..Names::default() };
        self.export(chain, &row, incident.as_ref(), Some(trip), names);
        if self.store().is_none() {
            return;
        }
        // A looser policy is tried on refused calls, too.
        let facts = Facts::write(call, &Outcome::default(), 0);
        let row = StoredCall { incident, position: position(chain), facts, ..row };
        self.outbox.lock().call(row, &self.metrics);
    }

    /// Records a call that has ended.
    pub(super) fn ended(&self, chain: &Chain, call: &Call, ended: Ended<'_>) {
        self.count(call);
        let Ended { id, number, admitted, outcome, trip, incident, said, call_id } = ended;
        let usage = outcome.usage;
        self.metrics.used(&usage);
        // What the ledger was charged: the model that answered may cost another price than the one asked.
        let cost = outcome.billed.unwrap_or_else(|| cost(call, &usage));
        self.metrics.spent(cost);
        used(chain, call);
        let at = now();
        if self.events.watched(at) {
            let text = format!("{} {}", call.name(), cost);
            self.tell(chain, "call", text, None);
        }
        let row = self.row(chain, call, id, admitted, trip);
        let duration = Some(Millis(at.0.saturating_sub(admitted.0)));
        let cause = outcome.failure(call).map(cause);
        let (status, first) = (Some(outcome.status), outcome.first);
        let row = StoredCall { duration, first, status, cause, usage, cost, ..row };
        log::call(chain, &row, incident.as_deref());
        let names = Names { model: outcome.model.as_deref(), call_id, said: Some(&said) };
        self.export(chain, &row, incident.as_ref(), trip, names);
        if self.store().is_none() {
            return;
        }
        let row = StoredCall {
            // The session's count may have grown since, for example by the tool calls in this
            // answer. In a nested scope `number` counts that scope's calls only.
            position: if row.nested.is_none() { number } else { position(chain) },
            incident,
            facts: Facts::write(call, outcome, self.number()),
            ..row
        };
        let capture = chain.project.settings.read().capture;
        let scope = chain.innermost().number();
        // The whole body is for an incident about this call; it has been used by now.
        let said = Said { request: said.request.alone(), ..said };
        let payload = (capture == Capture::All).then(|| said.clone());
        {
            let mut outbox = self.outbox.lock();
            outbox.call(row, &self.metrics);
            if let Some(said) = payload {
                outbox.payload(chain.project.name.clone(), id, said);
            }
            if outbox.is_full() {
                self.full.notify_one();
            }
        }
        if capture != Capture::None {
            self.recent.push(Exhibit { scope, number, call: id, said });
        }
    }

    /// Hands a call to the exporter, where there is one. It never waits.
    fn export(
        &self,
        chain: &Chain,
        row: &StoredCall,
        incident: Option<&String>,
        trip: Option<&Trip>,
        names: Names<'_>,
    ) {
        let Some(exports) = self.exports.get().filter(|exports| exports.takes(chain)) else {
            return;
        };
        let texts = exports.texts && chain.project.keeps_texts();
        let (agent, session) = chain.names();
        let call_id = names.call_id.filter(|id| !id.is_empty() && row.kind == CallKind::Tool);
        let trip = trip.map(|trip| {
            let because = chain.project.redact_reason(&trip.because);
            Box::new(Trip { because, ..trip.clone() })
        });
        let row = StoredCall { incident: incident.cloned(), ..row.clone() };
        self.export_now(Exported::Call(Box::new(ExportedCall {
            agent: agent.to_owned(),
            session: session.to_owned(),
            trip,
            place: chain.place(row.id),
            model: names.model.map(|model| chain.project.redact_name(model)),
            call_id: call_id.map(|id| chain.project.redact(id)),
            said: names.said.filter(|_| texts).cloned(),
            row,
        })));
    }

    /// Tells the exporter that a session is over, where there is one.
    pub(super) fn export_over(&self, session: &Scope) {
        self.export_now(Exported::Over {
            project: session.id.project.clone(),
            session: session.number(),
        });
    }

    /// Puts something into the exporter's queue. What finds no room there is counted, if it is a call.
    fn export_now(&self, exported: Exported) {
        let Some(exports) = self.exports.get() else { return };
        let calls = u64::from(matches!(exported, Exported::Call(_)));
        if exports.queue.try_send(exported).is_err() {
            self.metrics.not_exported(calls);
        }
    }

    /// Hands a line of the log to the exporter, where there is one. It never waits.
    pub(super) fn export_line(&self, line: impl FnOnce() -> log::LogLine) {
        let Some(lines) = self.lines.get() else { return };
        if lines.try_send(line()).is_err() {
            self.metrics.lines_not_exported(1);
        }
    }

    /// Exports lines of the log from now on.
    pub fn export_lines_to(&self, lines: mpsc::Sender<log::LogLine>) {
        // A server starts one exporter.
        let _ = self.lines.set(lines);
    }

    /// Whether calls are exported.
    pub fn exports(&self) -> bool {
        self.exports.get().is_some()
    }

    /// A call's span, where it is exported: what the call asks for in turn belongs below it.
    pub fn span_of(&self, chain: &Chain, call: i64) -> Option<CallSpan> {
        let takes = self.exports.get().is_some_and(|exports| exports.takes(chain));
        takes.then(|| chain.place(call))
    }

    /// Exports calls from now on.
    pub fn export_to(&self, exports: Exports) {
        // A server starts one exporter.
        let _ = self.exports.set(exports);
    }

    fn count(&self, call: &Call) {
        self.metrics.call(match call {
            Call::Model(_) => Kind::Model,
            Call::Tool(_) => Kind::Tool,
        });
    }

    fn row(
        &self,
        chain: &Chain,
        call: &Call,
        id: i64,
        at: Time,
        trip: Option<&Trip>,
    ) -> StoredCall {
        StoredCall {
            id,
            project: chain.project.name.clone(),
            agent_number: chain.agent().map_or(0, |scope| scope.number()),
            session_number: chain.session().map_or(0, |scope| scope.number()),
            nested: chain.nested(),
            position: 0,
            kind: if call.tool().is_some() { CallKind::Tool } else { CallKind::Model },
            name: call.name().to_owned(),
            server: server(call).map(str::to_owned),
            at,
            duration: None,
            verdict: trip.map_or(Verdict::Allow, |trip| trip.verdict),
            guard: trip.map(|trip| trip.guard),
            reason: trip.map(|trip| trip.reason.clone()),
            status: None,
            usage: Usage::default(),
            cost: NanoUsd(0),
            incident: None,
            facts: None,
            first: None,
            cause: None,
        }
    }

    /// Puts alerts about a trip into the outbox.
    fn alert_trip(&self, chain: &Chain, call: &Call, trip: &Trip, incident: Option<&str>) {
        let Some(kind) = alerts::kind_of(trip) else { return };
        let (agent, session) = chain.names();
        let outage = trip.streak.and_then(|_| server(call));
        if chain.project.is_muted(agent, trip, call, now()) {
            return;
        }
        let alert = Alert {
            kind,
            agent: Some(agent),
            session: Some(session),
            trip: Some(trip),
            sentence: trip.explain(),
            incident,
            outage: outage.filter(|_| kind == deadstop_alerts::Kind::BreakerOpen),
        };
        let outage = alert.outage.and(incident);
        if outage.is_some_and(|incident| self.told_outages.has(incident)) {
            return;
        }
        let sent = self.alert(&chain.project, &alert);
        // A target that is added during an outage is told of it.
        if let (Some(incident), true) = (outage, sent) {
            self.told_outages.add(incident);
        }
    }

    /// Puts the messages of an alert into the outbox; false if no target wants any.
    pub fn alert(&self, project: &Project, alert: &Alert<'_>) -> bool {
        let messages = self.messages(project, alert);
        if messages.is_empty() {
            return false;
        }
        self.outbox.lock().deliveries.extend(messages);
        true
    }

    /// A text, redacted by the project's patterns.
    pub fn redacted(&self, project: &str, text: &str) -> String {
        match self.projects.read().get(project) {
            Some(project) => project.redact(text),
            None => Redactor::default().redact(text).into_owned(),
        }
    }
}

/// Notes which provider, model and circuit the session uses.
fn used(chain: &Chain, call: &Call) {
    let (Some(model), Some(session)) = (call.model(), chain.session()) else { return };
    let mut tally = session.tally.lock();
    if tally.model.as_deref() != Some(&model.model) || tally.provider != model.server {
        tally.model = Some(model.model.clone());
        tally.provider.clone_from(&model.server);
    }
    tally.circuit = deadstop_core::circuit(call);
}

/// Whether the calls of a trip are kept as evidence: of a rung the first few.
fn shows(trip: &Trip) -> bool {
    match (trip.streak, trip.measured, trip.limit) {
        (Some(_), Measure::Count(count), Measure::Count(limit)) => {
            trip.verdict == Verdict::Kill || count < limit.saturating_add(SHOWN)
        }
        _ => true,
    }
}

/// The name of a scope in the audit.
pub(crate) fn subject(scope: &Scope) -> String {
    match scope.kind() {
        ScopeKind::Project | ScopeKind::Agent => scope.name().to_owned(),
        ScopeKind::Session | ScopeKind::Nested => format!("{}/{}", scope.agent(), scope.name()),
    }
}

/// How many calls the session has made.
fn position(chain: &Chain) -> u64 {
    chain.session().map_or(0, |scope| scope.state.lock().calls())
}

fn server(call: &Call) -> Option<&str> {
    match call {
        Call::Model(call) => call.server.as_deref(),
        Call::Tool(call) => call.server.as_deref(),
    }
}

fn cost(call: &Call, usage: &Usage) -> NanoUsd {
    call.model().map_or(NanoUsd(0), |call| call.rates.cost(usage))
}
