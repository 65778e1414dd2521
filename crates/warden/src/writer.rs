//! The writer: writes changed scopes, calls, incidents, the audit and alerts to the database, in
//! the background and on demand.
//!
//! It is one task, so that an older state of a scope can never overwrite a newer one. The outbox is
//! bounded: when the database cannot keep up, single calls are dropped and counted. Kills,
//! incidents, charges and the audit are never dropped.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use deadstop_core::{ScopeKind, ScopeState, Time};
use deadstop_redact::Redactor;
use deadstop_redact::excerpt::Excerpt;
use deadstop_store::{
    AuditEvent, Batch, Body, Delivery, Evidence, Exchange, Payload, StoreError, StoredCall, Trouble,
};
use tokio::sync::{mpsc, oneshot};

use super::record::NewIncident;
use super::scope::{Rows, Seen};
use super::{Event, Said, Scope, Tally, Warden, now};
use crate::alerts::Alert;
use crate::metrics::Metrics;

/// Interval of writes when no caller waits for one.
const EVERY: Duration = Duration::from_millis(500);
/// So many waiting calls are written at once.
const MANY: usize = 1024;
/// Calls that may wait; more are dropped and counted.
pub(super) const MOST: usize = 65_536;
/// Bytes of request and answer texts that may wait; more are dropped.
const MOST_BYTES: usize = 64 << 20;

type Waiting = oneshot::Sender<Result<(), String>>;

/// What waits to be written.
#[derive(Default)]
pub(super) struct Outbox {
    pub(super) changed: Vec<Arc<Scope>>,
    calls: Vec<StoredCall>,
    /// Project, call and its texts.
    payloads: Vec<(String, i64, Said)>,
    payload_bytes: usize,
    /// By their ids: the steps of a loop are one incident.
    incidents: BTreeMap<String, NewIncident>,
    pub(super) audit: Vec<AuditEvent>,
    pub(super) deliveries: Vec<Delivery>,
}

impl Outbox {
    /// Adds a call, or counts it as dropped if there is no room.
    pub(super) fn call(&mut self, call: StoredCall, metrics: &Metrics) {
        if self.calls.len() >= MOST {
            metrics.dropped(1);
            return;
        }
        self.calls.push(call);
    }

    /// Adds an incident, or what a known one grew by.
    pub(super) fn incident(&mut self, new: NewIncident) {
        match self.incidents.entry(new.incident.id.clone()) {
            Entry::Occupied(mut known) => known.get_mut().grow(new),
            Entry::Vacant(free) => drop(free.insert(new)),
        }
    }

    /// Adds the texts of a call, if there is room.
    pub(super) fn payload(&mut self, project: String, call: i64, said: Said) {
        let size = said.size();
        if self.payload_bytes + size <= MOST_BYTES {
            self.payload_bytes += size;
            self.payloads.push((project, call, said));
        }
    }

    /// Replaces the provisional row number of a scope by the real one.
    fn renumber(&mut self, old: i64, new: i64) {
        for call in &mut self.calls {
            for number in [&mut call.agent_number, &mut call.session_number] {
                if *number == old {
                    *number = new;
                }
            }
        }
        for NewIncident { incident, .. } in self.incidents.values_mut() {
            if incident.session_number == Some(old) {
                incident.session_number = Some(new);
            }
        }
    }

    /// Whether so much waits that it should be written now.
    pub(super) fn is_full(&self) -> bool {
        self.calls.len() >= MANY
    }

    /// Records that wait.
    fn len(&self) -> usize {
        self.changed.len()
            + self.calls.len()
            + self.payloads.len()
            + self.incidents.len()
            + self.audit.len()
            + self.deliveries.len()
    }
}

/// The database does not take writes.
#[derive(Debug, Clone)]
pub struct Outage {
    /// Since when.
    pub since: Time,
    /// The error.
    pub why: String,
    /// What kind of error it is, if known.
    trouble: Option<Trouble>,
}

impl Outage {
    /// Whether the database does not answer at all.
    pub(super) fn is_away(&self) -> bool {
        self.trouble == Some(Trouble::Away)
    }

    /// The name of the kind.
    pub fn name(&self) -> &'static str {
        self.trouble.map_or("broken", Trouble::name)
    }
}

/// Runs until the warden is dropped.
pub(super) async fn run(warden: Weak<Warden>, mut waiting: mpsc::UnboundedReceiver<Waiting>) {
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let mut asked = Vec::new();
        let Some(full) = warden.upgrade() else { return };
        tokio::select! {
            _ = tick.tick() => {}
            () = full.full.notified() => full.metrics.back_pressure(),
            first = waiting.recv() => match first {
                Some(first) => asked.push(first),
                None => return,
            },
        }
        drop(full);
        while let Ok(more) = waiting.try_recv() {
            asked.push(more);
        }
        let Some(warden) = warden.upgrade() else { return };
        let written = warden.write().await;
        for ask in asked {
            // The caller may have stopped waiting.
            let _ = ask.send(written.clone());
        }
    }
}

impl Warden {
    async fn write(&self) -> Result<(), String> {
        let Some(store) = &self.store else {
            *self.outbox.lock() = Outbox::default();
            return Ok(());
        };
        self.adopt_strays().await?;
        let mut outbox = std::mem::take(&mut *self.outbox.lock());
        // A scope whose row could not be read yet is written after that.
        outbox.changed.retain(|scope| {
            let known = !scope.is_provisional();
            if !known {
                scope.leave();
            }
            known
        });
        if outbox.len() == 0 {
            return match self.outage() {
                None => Ok(()),
                Some(outage) => self.ask_again(outage).await,
            };
        }
        let (mut batch, dead) = self.batch(&mut outbox);
        let began = Instant::now();
        match store.write(&batch).await {
            Ok(()) => {
                self.metrics.batch_written(batch.rows(), began.elapsed());
                dead.iter().for_each(|scope| scope.kill_written());
                if !batch.deliveries.is_empty() {
                    self.posted.notify_one();
                }
                self.end_outage();
                Ok(())
            }
            Err(error) => {
                self.metrics.batch_failed();
                self.note_outage(&error);
                outbox.calls = std::mem::take(&mut batch.calls);
                self.put_back(outbox);
                Err(error.to_string())
            }
        }
    }

    /// The batch to write, and the killed scopes in it. Texts are redacted here. Calls are moved,
    /// because there are many; the caller puts them back if the write fails.
    fn batch(&self, outbox: &mut Outbox) -> (Batch, Vec<Arc<Scope>>) {
        let mut dead = Vec::new();
        let mut batch = Batch {
            calls: std::mem::take(&mut outbox.calls),
            audit: outbox.audit.clone(),
            deliveries: outbox.deliveries.clone(),
            ..Batch::default()
        };
        for scope in &outbox.changed {
            let Rows { scope: row, seen } = scope.to_rows();
            if row.killed {
                dead.push(Arc::clone(scope));
            }
            batch.scopes.push(row);
            match seen {
                Seen::Agent(agent) => batch.agents.push(agent),
                Seen::Session(session) => batch.sessions.push(session),
                Seen::Nothing => {}
            }
        }
        for NewIncident { incident, exhibits } in outbox.incidents.values() {
            // A loop's evidence grows, perhaps on several nodes: its calls are told apart by their ids.
            let by_call = incident.trip.streak.is_some();
            for (exhibit, place) in exhibits.iter().zip(0..) {
                let position = if by_call { exhibit.call.unsigned_abs() } else { place };
                batch.evidence.push(Evidence {
                    project: incident.project.clone(),
                    incident: incident.id.clone(),
                    position,
                    at: incident.at,
                    call: Some(exhibit.call),
                    exchange: self.exchange(&incident.project, &exhibit.said),
                    body: self.body(&incident.project, &exhibit.said),
                });
            }
            batch.incidents.push(incident.clone());
        }
        for (project, call, said) in &outbox.payloads {
            let exchange = self.exchange(project, said);
            batch.payloads.push(Payload { project: project.clone(), call: *call, exchange });
        }
        (batch, dead)
    }

    /// An excerpt without secrets; nothing if nothing was said.
    pub fn shown(&self, project: &str, said: &Excerpt) -> Option<String> {
        let project = self.projects.read().get(project).cloned();
        (!said.text().is_empty()).then(|| match &project {
            Some(project) => project.redact_start(said.text(), said.most()),
            None => Redactor::default().redact_start(said.text(), said.most()),
        })
    }

    /// The body that a request came in.
    fn body(&self, project: &str, said: &Said) -> Option<Body> {
        let whole = said.request.whole()?;
        let text = self.shown(project, whole)?;
        Some(Body { text, chars: whole.chars(), cut: whole.is_cut() })
    }

    fn exchange(&self, project: &str, said: &Said) -> Exchange {
        Exchange {
            request: self.shown(project, &said.request),
            response: self.shown(project, &said.response),
            request_chars: said.request.chars(),
            response_chars: said.response.chars(),
            request_cut: said.request.is_cut(),
            response_cut: said.response.is_cut(),
        }
    }

    /// Puts everything back into the outbox for the next write.
    fn put_back(&self, mut old: Outbox) {
        for scope in std::mem::take(&mut old.changed) {
            self.mark(&scope);
        }
        let mut new = self.outbox.lock();
        for incident in old.incidents.into_values() {
            new.incident(incident);
        }
        new.audit.splice(0..0, old.audit);
        new.deliveries.splice(0..0, old.deliveries);
        let room = MOST.saturating_sub(new.calls.len());
        let lost = old.calls.len().saturating_sub(room);
        self.metrics.dropped(lost as u64);
        new.calls.splice(0..0, old.calls.into_iter().skip(lost));
        if lost == 0 {
            new.payload_bytes += old.payload_bytes;
            new.payloads.splice(0..0, old.payloads);
        }
    }

    /// Records that wait to be written.
    pub fn queue_depth(&self) -> usize {
        self.outbox.lock().len()
    }

    /// The current outage of the database, if there is one.
    pub fn outage(&self) -> Option<Outage> {
        self.outage.read().clone()
    }

    /// The database has failed: from now on the policies' fail mode applies.
    pub(super) fn note_outage(&self, error: &StoreError) {
        let mut outage = self.outage.write();
        let since = outage.as_ref().map_or_else(now, |outage| outage.since);
        let first = outage.is_none();
        *outage = Some(Outage { since, why: error.to_string(), trouble: error.trouble() });
        drop(outage);
        if first {
            tracing::error!("{error}");
            self.metrics.set_degraded(true);
            let text = format!("the database does not take writes: {error}");
            for project in self.projects() {
                let alert = Alert {
                    kind: deadstop_alerts::Kind::Degraded,
                    agent: None,
                    session: None,
                    trip: None,
                    sentence: text.clone(),
                    incident: None,
                    outage: None,
                };
                self.alert(&project, &alert);
            }
            self.tell_all("degraded", &text);
        }
    }

    async fn ask_again(&self, outage: Outage) -> Result<(), String> {
        let Some(store) = &self.store else { return Ok(()) };
        match store.health().await {
            Ok(()) => {
                self.end_outage();
                Ok(())
            }
            Err(_) => Err(outage.why),
        }
    }

    fn end_outage(&self) {
        if self.outage.write().take().is_none() {
            return;
        }
        self.metrics.set_degraded(false);
        tracing::warn!("the database takes writes again");
        if let Some(node) = self.node() {
            node.reset_offline();
        }
        self.tell_all("recovered", "the database takes writes again");
    }

    /// Reads the rows of scopes that were made while the database was unreachable. This comes
    /// before any write: waiting records may carry provisional row numbers.
    async fn adopt_strays(&self) -> Result<(), String> {
        let mut strays = std::mem::take(&mut *self.strays.lock());
        while let Some(scope) = strays.pop() {
            let adopted = if scope.is_provisional() { self.adopt(&scope).await } else { continue };
            if let Err(error) = adopted {
                self.note_outage(&error);
                strays.push(scope);
                self.strays.lock().append(&mut strays);
                return Err(error.to_string());
            }
        }
        Ok(())
    }

    /// Merges the row of a scope with what happened since it was made.
    async fn adopt(&self, scope: &Arc<Scope>) -> Result<(), StoreError> {
        let Some(store) = &self.store else { return Ok(()) };
        let place = &scope.id;
        if scope.kind() == ScopeKind::Project {
            store.ensure_project(&place.name, now()).await?;
        }
        if let Some(stored) = store.scope(&place.key).await? {
            let number = if stored.number == 0 { scope.number() } else { stored.number };
            let tally = self.tally(place, number).await?;
            let before = super::lookup::state_of(&stored);
            match scope.cell().filter(|cell| cell.is_known()) {
                // The shared state is newer than the row; only a kill may be missing there.
                Some(cell) => cell.force(|state| _ = state.honour(&before)),
                None => self.rejoin(scope, number, before, tally),
            }
        }
        scope.set_provisional(false);
        self.mark(scope);
        Ok(())
    }

    fn rejoin(&self, scope: &Arc<Scope>, number: i64, before: ScopeState, tally: Tally) {
        let meanwhile = scope.number();
        scope.rejoin(number, before, tally);
        if scope.kind() == ScopeKind::Agent {
            for below in self.scopes(&scope.id.project) {
                if below.agent_number() == meanwhile {
                    below.set_agent_number(number);
                }
            }
        }
        // From here on no record carries the old row number.
        self.outbox.lock().renumber(meanwhile, number);
    }

    fn tell_all(&self, what: &'static str, text: &str) {
        for project in self.projects() {
            self.spread(Event::new(what, &project.name, "", "", text.to_owned()));
        }
    }
}
