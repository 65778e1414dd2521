//! Approvals: calls that wait for a person's decision.
//!
//! Where a policy says `ask`, the engine neither admits nor refuses the call. It becomes an
//! [`Approval`] that people can see and decide. The task that carries the call holds a [`Question`]
//! and waits for the decision. The first decision counts: a person approves or denies, the time
//! limit passes (the call is denied), a scope is killed, or the client disconnects.
//!
//! Waiting calls are kept in memory only: after a restart their clients are gone. Decisions are in
//! the audit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use deadstop_core::{Call, GuardId, Harm, Time, Trip, Verdict};
use deadstop_redact::excerpt::{self, Excerpt};
use deadstop_store::AuditEvent;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use super::record::Denied;
use super::{Admit, Chain, Event, Message, Refused, Running, Said, Terms, Warden};
use crate::alerts::Alert;
use crate::settings::Capture;

/// Calls that may wait at a time; one more is refused.
const MOST: usize = 1000;
/// How long a decided approval is kept, for clients that ask for the decision.
const REMEMBERED_MS: u64 = 10 * 60 * 1000;
/// How long after the time limit the node of a waiting call may take to report it.
const LATE_MS: u64 = 10_000;
/// Bytes of the request that the audit keeps.
const AUDITED: usize = 300;

/// A call that waits for a person's decision, or did.
#[derive(Debug)]
pub struct Approval {
    /// Its id.
    pub id: String,
    /// The project.
    pub project: String,
    /// The agent.
    pub agent: String,
    /// The session.
    pub session: String,
    /// The nested scopes, joined by slashes.
    pub nested: Option<String>,
    /// The call.
    pub call: Call,
    /// The request, redacted: as much of it as a person can be shown.
    pub asked: String,
    /// Characters of the request behind those. A tool call with any cannot be approved.
    pub unkept: u64,
    /// Why it waits, strictest first.
    pub trips: Vec<Trip>,
    /// Since when it waits.
    pub since: Time,
    /// When it is denied automatically.
    pub until: Time,
    /// The client's id for the call, if the client reports it.
    pub client: Option<String>,
    /// Whether it waits on another node.
    remote: bool,
    word: watch::Sender<Option<Word>>,
}

/// A decision about a waiting call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ApprovalOutcome {
    /// A person approved it.
    Approved,
    /// A person denied it.
    Denied,
    /// The time limit passed without a decision.
    Lapsed,
    /// The client disconnected.
    Withdrawn,
    /// One of its scopes was killed.
    Stopped,
}

impl ApprovalOutcome {
    /// All answers, in the order of their numbers.
    pub const ALL: [ApprovalOutcome; 5] = [
        ApprovalOutcome::Approved,
        ApprovalOutcome::Denied,
        ApprovalOutcome::Lapsed,
        ApprovalOutcome::Withdrawn,
        ApprovalOutcome::Stopped,
    ];

    /// The name of the answer.
    pub fn name(self) -> &'static str {
        match self {
            ApprovalOutcome::Approved => "approved",
            ApprovalOutcome::Denied => "denied",
            ApprovalOutcome::Lapsed => "lapsed",
            ApprovalOutcome::Withdrawn => "withdrawn",
            ApprovalOutcome::Stopped => "stopped",
        }
    }
}

/// A decision, with who made it and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word {
    /// What was decided.
    pub answer: ApprovalOutcome,
    /// Who decided.
    pub by: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Time,
}

impl Word {
    /// A person's decision.
    pub fn said(answer: ApprovalOutcome, by: &str, reason: &str, at: Time) -> Word {
        Word { answer, by: by.to_owned(), reason: reason.to_owned(), at }
    }

    /// A decision made without a person.
    fn of(answer: ApprovalOutcome, at: Time) -> Word {
        Word::said(answer, "", "", at)
    }

    /// The decision as the end of a sentence.
    fn clause(&self, approval: &Approval) -> String {
        let Word { by, reason, .. } = self;
        match self.answer {
            ApprovalOutcome::Approved => format!("approved by {by}: {reason}"),
            ApprovalOutcome::Denied => format!("denied by {by}: {reason}"),
            ApprovalOutcome::Lapsed => {
                let waited = approval.until.since(approval.since);
                format!("no approval within {waited}")
            }
            ApprovalOutcome::Withdrawn => "withdrawn".to_owned(),
            ApprovalOutcome::Stopped => "stopped while it waited".to_owned(),
        }
    }
}

impl Approval {
    /// The decision, if there is one.
    pub fn word(&self) -> Option<Word> {
        self.word.borrow().clone()
    }

    /// Waits for the decision.
    pub async fn decided(&self) -> Word {
        let mut word = self.word.subscribe();
        match word.wait_for(Option::is_some).await.map(|word| word.clone()) {
            Ok(Some(word)) => word,
            _ => Word::of(ApprovalOutcome::Withdrawn, self.until),
        }
    }

    /// Whether a repeated request gets this approval's decision instead of a new one.
    pub fn counts(&self) -> bool {
        self.word().is_none_or(|word| {
            !matches!(word.answer, ApprovalOutcome::Withdrawn | ApprovalOutcome::Stopped)
        })
    }

    /// Records a decision; false if there was one before, which stays.
    fn hear(&self, word: &Word) -> bool {
        self.word.send_if_modified(|known| {
            let first = known.is_none();
            if first {
                *known = Some(word.clone());
            }
            first
        })
    }

    /// What it would do, the worst first.
    pub fn harms(&self) -> Vec<&Harm> {
        let harms = self.call.tool().map_or(&[][..], |tool| &tool.harms);
        let mut harms: Vec<&Harm> = harms.iter().collect();
        harms.sort_by_key(|harm| std::cmp::Reverse(harm.severity()));
        harms
    }

    /// Why it waits.
    pub fn trip(&self) -> Option<&Trip> {
        self.trips.first()
    }

    /// Whether an approval still admits the call: for as long again as the time limit was.
    pub fn is_approved(&self, now: Time) -> bool {
        let wait = self.until.since(self.since);
        self.word().is_some_and(|word| {
            word.answer == ApprovalOutcome::Approved && now.since(word.at) <= wait
        })
    }

    /// Whether it can be forgotten.
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.is_orphan(now) || self.word().is_some_and(|word| now.since(word.at).0 > REMEMBERED_MS)
    }

    /// Whether the node of the waiting call is gone: it would have reported the time limit long
    /// ago.
    fn is_orphan(&self, now: Time) -> bool {
        self.remote && self.word().is_none() && now.since(self.until).0 > LATE_MS
    }

    /// The trips as a refusal, with the decision in their sentences.
    fn judged(&self, word: &Word) -> Vec<Trip> {
        let clause = word.clause(self);
        let judged = |trip: &Trip| {
            let mut trip = trip.clone();
            if trip.verdict == Verdict::Ask {
                trip.verdict = Verdict::Block;
                trip.because = format!("{}; {clause}", trip.because);
            }
            trip
        };
        self.trips.iter().map(judged).collect()
    }

    /// Adds to the warnings of an approved call who approved it.
    pub(super) fn sign(&self, trips: &mut [Trip]) {
        let Some(word) = self.word() else { return };
        let clause = word.clause(self);
        let asked = |trip: &&mut Trip| {
            let same = |own: &Trip| own.guard == trip.guard && own.reason == trip.reason;
            trip.verdict == Verdict::Warn && self.trips.iter().any(same)
        };
        for trip in trips.iter_mut().filter(asked) {
            trip.because = format!("{}; {clause}", trip.because);
        }
    }
}

/// All waiting calls, and those decided recently, oldest first.
#[derive(Debug, Default)]
pub struct Approvals(Mutex<BTreeMap<String, Arc<Approval>>>);

impl Approvals {
    /// An approval of a project, by its id.
    pub fn get(&self, project: &str, id: &str) -> Option<Arc<Approval>> {
        self.0.lock().get(id).filter(|approval| approval.project == project).cloned()
    }

    /// The waiting calls of a project.
    pub fn waiting(&self, project: &str, now: Time) -> Vec<Arc<Approval>> {
        let all = self.0.lock();
        let waits =
            |a: &&Arc<Approval>| a.project == project && a.word().is_none() && !a.is_orphan(now);
        all.values().filter(waits).cloned().collect()
    }

    /// The approval of a call that a client asks about by its own id, on any node.
    pub fn asked_as(
        &self,
        chain: &Chain,
        id: &str,
        call: &Call,
        now: Time,
    ) -> Option<Arc<Approval>> {
        let (agent, session) = chain.names();
        let all = self.0.lock();
        let same = |a: &&Arc<Approval>| {
            a.client.as_deref() == Some(id)
                && (a.project.as_str(), a.agent.as_str()) == (chain.project.name.as_str(), agent)
                && a.session == session
                && a.call.without_arguments() == call.without_arguments()
                && !a.is_orphan(now)
        };
        all.values().rev().find(same).cloned()
    }

    /// The calls that wait on this node.
    pub(super) fn own(&self) -> Vec<Asked> {
        let all = self.0.lock();
        let waits = |a: &&Arc<Approval>| !a.remote && a.word().is_none();
        all.values().filter(waits).map(|approval| Asked::of(approval)).collect()
    }

    /// Notes a call that waits on another node.
    pub(super) fn hear(&self, asked: Asked, now: Time) {
        if !self.0.lock().contains_key(&asked.id) && asked.until > now {
            self.enter(&Arc::new(asked.into()), now);
        }
    }

    /// Notes a decision made on another node. The first one counts.
    pub(super) fn decide(&self, id: &str, word: &Word) {
        let approval = self.0.lock().get(id).cloned();
        if let Some(approval) = approval {
            approval.hear(word);
        }
    }

    /// Adds an approval; false if too many calls wait.
    fn enter(&self, approval: &Arc<Approval>, now: Time) -> bool {
        let mut all = self.0.lock();
        if all.len() >= MOST {
            all.retain(|_, known| !known.is_over(now));
        }
        if all.len() >= MOST {
            // Forget decided approvals before refusing a new one.
            all.retain(|_, known| known.word().is_none());
        }
        if all.len() >= MOST {
            return false;
        }
        all.insert(approval.id.clone(), Arc::clone(approval));
        true
    }
}

/// A waiting call, as sent to other nodes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Asked {
    id: String,
    project: String,
    agent: String,
    session: String,
    nested: Option<String>,
    call: Call,
    asked: String,
    #[serde(default)]
    unkept: u64,
    trips: Vec<Trip>,
    since: Time,
    until: Time,
    client: Option<String>,
}

impl Asked {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    fn of(approval: &Approval) -> Asked {
        Asked {
            id: approval.id.clone(),
            project: approval.project.clone(),
            agent: approval.agent.clone(),
            session: approval.session.clone(),
            nested: approval.nested.clone(),
            call: approval.call.without_arguments(),
            asked: approval.asked.clone(),
            unkept: approval.unkept,
            trips: approval.trips.clone(),
            since: approval.since,
            until: approval.until,
            client: approval.client.clone(),
        }
    }
}

impl From<Asked> for Approval {
    fn from(asked: Asked) -> Approval {
        Approval {
            id: asked.id,
            project: asked.project,
            agent: asked.agent,
            session: asked.session,
            nested: asked.nested,
            call: asked.call,
            asked: asked.asked,
            unkept: asked.unkept,
            trips: asked.trips,
            since: asked.since,
            until: asked.until,
            client: asked.client,
            remote: true,
            word: watch::Sender::new(None),
        }
    }
}

/// A waiting call on the node that carries it. Dropped without a decision, it is withdrawn.
pub struct Question {
    warden: Arc<Warden>,
    chain: Chain,
    pub approval: Arc<Approval>,
    request: Excerpt,
    terms: Terms,
}

impl Question {
    /// Waits for the decision, and admits the call if it was approved.
    pub async fn answer(self) -> Result<(Running, Vec<Trip>), Refused> {
        let word = self.wait().await;
        self.carry_out(&word).await
    }

    /// Waits in the background: the client asks again for the decision.
    pub fn detach(self) {
        tokio::spawn(async move {
            let word = self.wait().await;
            if matches!(word.answer, ApprovalOutcome::Denied | ApprovalOutcome::Lapsed) {
                self.refuse(&word);
            }
        });
    }

    /// Waits for a decision, the time limit, or a kill.
    async fn wait(&self) -> Word {
        let left = self.approval.until.since(self.warden.time());
        let mut stops = self.chain.stops();
        let answer = tokio::select! {
            biased;
            word = self.approval.decided() => return word,
            () = stops.given() => ApprovalOutcome::Stopped,
            () = tokio::time::sleep(Duration::from_millis(left.0)) => ApprovalOutcome::Lapsed,
        };
        let word = Word::of(answer, self.warden.time());
        match self.warden.first_word(&self.approval, word.clone()).await {
            // A decision on another node came first, and that node has recorded it.
            Ok(first) if first != word => {
                self.approval.hear(&first);
                self.approval.word().unwrap_or(first)
            }
            _ => self.warden.decide_approval(&self.approval, word),
        }
    }

    async fn carry_out(&self, word: &Word) -> Result<(Running, Vec<Trip>), Refused> {
        let (warden, chain, call) = (&self.warden, &self.chain, &self.approval.call);
        match word.answer {
            ApprovalOutcome::Approved => {
                let terms = self.terms.clone().approved(&self.approval);
                warden.admit(chain, call, &self.request, &terms).await
            }
            ApprovalOutcome::Stopped => {
                let refused = warden.admit(chain, call, &self.request, &self.terms).await;
                // The client is told which kill refused it. If that was cleared meanwhile, the call
                // is refused all the same.
                match refused {
                    Err(refused) if refused.asks() => Err(self.refuse(word)),
                    other => other,
                }
            }
            ApprovalOutcome::Denied | ApprovalOutcome::Lapsed | ApprovalOutcome::Withdrawn => {
                Err(self.refuse(word))
            }
        }
    }

    /// Records the refusal.
    fn refuse(&self, word: &Word) -> Refused {
        let (warden, chain, call) = (&self.warden, &self.chain, &self.approval.call);
        let mut trips = self.approval.judged(word);
        if word.answer == ApprovalOutcome::Lapsed {
            warden.offer_once(chain, call, &self.request, &mut trips);
        }
        let id = warden.number();
        let said = || Said { request: self.request.beginning(), response: Excerpt::default() };
        let incident = warden.record(chain, call, id, &trips, said);
        if let Some(trip) = trips.first() {
            let call_id = self.terms.call_id();
            let incident = incident.clone();
            warden.refused(chain, call, Denied { id, trip, incident, call_id });
        }
        Refused { trips, incident, ..Refused::default() }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if self.approval.word().is_none() {
            let word = Word::of(ApprovalOutcome::Withdrawn, self.warden.time());
            self.warden.decide_approval(&self.approval, word.clone());
            let (warden, approval) = (Arc::clone(&self.warden), Arc::clone(&self.approval));
            tokio::spawn(async move { warden.first_word(&approval, word).await });
        }
    }
}

impl Refused {
    /// Whether the call waits for a person's decision.
    pub fn asks(&self) -> bool {
        self.trips.first().is_some_and(|trip| trip.verdict == Verdict::Ask)
    }
}

impl Warden {
    /// Admits a call. Where the policy says `ask`, this waits for a person's decision, up to the
    /// policy's time limit. Dropping the future withdraws the question.
    pub async fn admit_asking(
        self: &Arc<Warden>,
        chain: &Chain,
        call: &Call,
        request: &Excerpt,
        terms: Terms,
    ) -> Result<(Running, Vec<Trip>), Refused> {
        match self.admit(chain, call, request, &terms).await {
            Err(refused) if refused.asks() => {
                let question = self.ask(chain, call, request, refused.trips, terms)?;
                Box::pin(question.answer()).await
            }
            decided => decided,
        }
    }

    /// The same, and a call in a paused scope waits up to `hold` for it to be resumed. A refusal is
    /// on disk before this returns.
    pub(super) async fn admit_patiently(
        self: &Arc<Warden>,
        admit: Admit<'_>,
    ) -> Result<(Running, Vec<Trip>), Refused> {
        let Admit { chain, call, request, terms, hold } = admit;
        let until = Instant::now() + hold;
        loop {
            // Registered before asking, so that a change in between is not missed.
            let changed: Vec<_> = chain.scopes().iter().map(|scope| scope.changed()).collect();
            let refused = match self.admit_asking(chain, call, request, terms.clone()).await {
                Ok(admitted) => return Ok(admitted),
                Err(refused) => refused,
            };
            if refused.trips.first().is_some_and(|trip| trip.guard == GuardId::Paused) {
                let word = futures_util::future::select_all(changed.into_iter().map(Box::pin));
                if Box::pin(tokio::time::timeout_at(until, word)).await.is_ok() {
                    continue;
                }
            }
            if refused.stale {
                return Err(refused);
            }
            return Err(Box::pin(self.noted(chain, refused)).await);
        }
    }

    /// A refusal, once it is on disk.
    async fn noted(&self, chain: &Chain, refused: Refused) -> Refused {
        let incident = match refused.incident {
            Some(incident) => {
                self.settle_incident().await;
                Some(incident)
            }
            None => {
                self.settle_kills(chain).await;
                self.ended_by(chain, &refused.trips).await
            }
        };
        Refused { incident, ..refused }
    }

    /// Asks for a person's decision about a call.
    pub fn ask(
        self: &Arc<Warden>,
        chain: &Chain,
        call: &Call,
        request: &Excerpt,
        mut trips: Vec<Trip>,
        terms: Terms,
    ) -> Result<Question, Refused> {
        for trip in &mut trips {
            trip.because = chain.project.redact_reason(&trip.because);
        }
        let policies = chain.policies();
        let kind = trips.first().map_or(chain.innermost().kind(), |trip| trip.context.kind);
        let (since, (agent, session)) = (self.time(), chain.names());
        let most = if call.tool().is_some() { excerpt::MOST_OF_CALL } else { excerpt::MOST };
        let approval = Arc::new(Approval {
            id: uuid::Uuid::now_v7().to_string(),
            project: chain.project.name.clone(),
            agent: agent.to_owned(),
            session: session.to_owned(),
            nested: chain.nested(),
            call: call.clone(),
            asked: chain.project.redact_start(request.text(), most),
            unkept: request.unshown(most),
            trips,
            since,
            until: since + policies.of(kind).ask_timeout_s.millis(),
            client: terms.reported_as().map(str::to_owned),
            remote: false,
            word: watch::Sender::new(None),
        });
        let (warden, chain, request) = (Arc::clone(self), chain.clone(), request.clone());
        if !self.approvals.enter(&approval, since) {
            let why = format!("too many calls wait for a person (limit {MOST})");
            let word = Word::said(ApprovalOutcome::Denied, "deadstop", &why, since);
            approval.word.send_replace(Some(word.clone()));
            let question = Question { warden, chain, approval, request, terms };
            return Err(question.refuse(&word));
        }
        self.metrics.asked();
        let sentence = approval.trip().map(Trip::explain).unwrap_or_default();
        let event = Event::new("ask", &approval.project, agent, session, sentence.clone());
        let guard = approval.trip().map(|trip| trip.guard.name().into());
        self.spread(Event { approval: Some(approval.id.clone()), guard, ..event });
        let alert = Alert {
            kind: deadstop_alerts::Kind::Approval,
            agent: Some(agent),
            session: Some(session),
            trip: approval.trip(),
            sentence,
            incident: None,
            outage: None,
        };
        self.alert(&chain.project, &alert);
        self.tell_nodes(Message::Asked(Asked::of(&approval)));
        Ok(Question { warden, chain, approval, request, terms })
    }

    /// Records a decision about a waiting call. Returns the one that counts, which is the first.
    fn decide_approval(&self, approval: &Approval, word: Word) -> Word {
        if !approval.hear(&word) {
            return approval.word().unwrap_or(word);
        }
        self.keep_word(approval, &word);
        word
    }

    /// Announces the decision that counts, and writes it to the audit.
    fn keep_word(&self, approval: &Approval, word: &Word) {
        self.tell_nodes(Message::Decided { id: approval.id.clone(), word: word.clone() });
        self.metrics.answered(word.answer);
        let Approval { project, agent, session, call, .. } = approval;
        let text = format!("{}: {}", call.name(), word.clause(approval));
        let event = Event::new(word.answer.name(), project, agent, session, text);
        self.spread(Event { approval: Some(approval.id.clone()), ..event });
        let action = match word.answer {
            ApprovalOutcome::Approved => "call.approve",
            ApprovalOutcome::Denied => "call.deny",
            ApprovalOutcome::Lapsed => "call.lapse",
            ApprovalOutcome::Withdrawn | ApprovalOutcome::Stopped => return,
        };
        let (who, reason) = match word.answer {
            ApprovalOutcome::Lapsed => ("deadstop", word.clause(approval)),
            _ => (word.by.as_str(), word.reason.clone()),
        };
        let known = self.projects.read().get(project).cloned();
        let keeps = known.is_some_and(|known| known.settings.read().capture != Capture::None);
        let asked = approval.asked.floor_char_boundary(AUDITED);
        let detail = json!({
            "approval": approval.id,
            "call": call.name(),
            "asked": keeps.then(|| &approval.asked[..asked]),
            "asked_chars": approval.asked.chars().count() as u64 + approval.unkept,
            "harm": approval.harms().first().filter(|_| keeps).map(|harm| harm.because()),
            "why": approval.trip().map(Trip::explain),
            "waited_ms": word.at.since(approval.since).0,
        });
        self.outbox.lock().audit.push(AuditEvent {
            number: self.number(),
            project: project.clone(),
            at: word.at,
            who: who.to_owned(),
            action: action.to_owned(),
            subject: format!("{agent}/{session}"),
            reason,
            detail: detail.to_string(),
        });
    }

    /// The first decision about a waiting call on any node.
    async fn first_word(&self, approval: &Approval, word: Word) -> Result<Word, String> {
        let Some(node) = self.node() else { return Ok(word) };
        let said = serde_json::to_vec(&word).unwrap_or_default();
        let redis = &node.shared().redis;
        let first = match redis.first_word(&approval.id, &said).await {
            Ok(first) => first,
            // The request may have arrived although its answer did not.
            Err(error) => match redis.word_about(&approval.id).await {
                Ok(Some(first)) => first,
                _ => return Err(error.to_string()),
            },
        };
        Ok(serde_json::from_slice(&first).unwrap_or(word))
    }

    /// Records a person's decision; it is on disk when this returns. `None` if another decision
    /// came first.
    pub async fn say(&self, approval: &Approval, word: Word) -> Option<Result<(), String>> {
        if approval.word().is_some() {
            return None;
        }
        match self.first_word(approval, word.clone()).await {
            Ok(first) if first != word => {
                approval.hear(&first);
                return None;
            }
            // In a cluster the first decision that Redis received counts, whatever this node
            // received before.
            Ok(_) if self.node().is_some() => {
                approval.hear(&word);
                self.keep_word(approval, &word);
            }
            // The node where the call waits would not receive it.
            Err(error) if approval.remote => return Some(Err(error)),
            _ => {
                if self.decide_approval(approval, word.clone()) != word {
                    return None;
                }
            }
        }
        self.announce(Message::Decided { id: approval.id.clone(), word }).await;
        Some(self.flush().await)
    }

    /// Tells all nodes that a call waits, and waits until they have applied it.
    pub async fn announce_asked(&self, approval: &Approval) {
        self.announce(Message::Asked(Asked::of(approval))).await;
    }

    /// The refusal of a call that was not approved, for a repeated request.
    pub(super) fn refusal_of(
        &self,
        chain: &Chain,
        request: &Excerpt,
        approval: &Approval,
        word: &Word,
    ) -> Refused {
        let mut trips = approval.judged(word);
        if word.answer == ApprovalOutcome::Lapsed {
            self.offer_once(chain, &approval.call, request, &mut trips);
        }
        Refused { trips, ..Refused::default() }
    }
}
