//! Calls that wait for a person.
//!
//! Where a policy says `ask`, the engine answers neither yes nor no. The call becomes an
//! [`Approval`] that people can see and decide about; whoever carries the call holds a [`Question`]
//! and waits for the word. The first word counts: a person's, the clock's (nobody decided in time,
//! so it is refused), the end of a scope, or the client's, by going away.
//!
//! The waiting lives in memory: after a restart there is nobody left who waits. What was decided is
//! in the audit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use deadstop_core::{Call, GuardId, Time, Trip, Verdict};
use deadstop_redact::excerpt::Excerpt;
use deadstop_store::AuditEvent;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Chain, Event, Message, Refused, Running, Said, Terms, Warden};
use crate::alerts::Alert;
use crate::settings::Capture;

/// Calls that may wait at a time; one more is refused.
const MOST: usize = 1000;
/// How long one that was decided is remembered, for whoever asks what became of it.
const REMEMBERED_MS: u64 = 10 * 60 * 1000;
/// How long after its time is up the node where it waits may take to say so.
const LATE_MS: u64 = 10_000;
/// Bytes of what was asked that a person is shown.
const SHOWN: usize = 2000;
/// Bytes of it that the audit keeps.
const AUDITED: usize = 300;

/// A call that waits for a person, or did.
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
    /// The beginning of what it was asked with, without secrets.
    pub asked: String,
    /// Why it waits, strictest first.
    pub trips: Vec<Trip>,
    /// Since when it waits.
    pub since: Time,
    /// When it is denied automatically.
    pub until: Time,
    /// The id that a client gave it.
    pub client: Option<String>,
    /// Whether it waits on another node.
    remote: bool,
    word: watch::Sender<Option<Word>>,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// A person lets it pass.
    Approved,
    /// A person does not.
    Denied,
    /// Nobody decided in time.
    Lapsed,
    /// Nobody wants to know any more.
    Withdrawn,
    /// A scope that it is made in was ended.
    Stopped,
}

impl Answer {
    /// All of them, in the order of their numbers.
    pub const ALL: [Answer; 5] =
        [Answer::Approved, Answer::Denied, Answer::Lapsed, Answer::Withdrawn, Answer::Stopped];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Answer::Approved => "approved",
            Answer::Denied => "denied",
            Answer::Lapsed => "lapsed",
            Answer::Withdrawn => "withdrawn",
            Answer::Stopped => "stopped",
        }
    }
}

/// Who said what about it, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word {
    /// What was decided.
    pub answer: Answer,
    /// Who decided.
    pub by: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Time,
}

impl Word {
    /// A person's.
    pub fn said(answer: Answer, by: &str, reason: &str, at: Time) -> Word {
        Word { answer, by: by.to_owned(), reason: reason.to_owned(), at }
    }

    /// Nobody's.
    fn of(answer: Answer, at: Time) -> Word {
        Word::said(answer, "", "", at)
    }

    /// What it means for a call, as the end of a sentence.
    fn clause(&self, approval: &Approval) -> String {
        let Word { by, reason, .. } = self;
        match self.answer {
            Answer::Approved => format!("approved by {by}: {reason}"),
            Answer::Denied => format!("denied by {by}: {reason}"),
            Answer::Lapsed => {
                let waited = approval.until.since(approval.since);
                format!("nobody approved it in {waited}")
            }
            Answer::Withdrawn => "withdrawn".to_owned(),
            Answer::Stopped => "stopped while it waited".to_owned(),
        }
    }
}

impl Approval {
    /// The last word about it, if there is one.
    pub fn word(&self) -> Option<Word> {
        self.word.borrow().clone()
    }

    /// Waits for the last word.
    pub async fn decided(&self) -> Word {
        let mut word = self.word.subscribe();
        match word.wait_for(Option::is_some).await.map(|word| word.clone()) {
            Ok(Some(word)) => word,
            _ => Word::of(Answer::Withdrawn, self.until),
        }
    }

    /// Whether what was said about it still counts.
    pub fn counts(&self) -> bool {
        self.word().is_none_or(|word| !matches!(word.answer, Answer::Withdrawn | Answer::Stopped))
    }

    /// A word about it; false if there was one before, which counts.
    fn hear(&self, word: &Word) -> bool {
        self.word.send_if_modified(|known| {
            let first = known.is_none();
            if first {
                *known = Some(word.clone());
            }
            first
        })
    }

    /// Why it waits.
    pub fn trip(&self) -> Option<&Trip> {
        self.trips.first()
    }

    /// Whether an approval still lets it pass: as long again as it could have been waited for.
    pub fn is_approved(&self, now: Time) -> bool {
        let wait = self.until.since(self.since);
        self.word()
            .is_some_and(|word| word.answer == Answer::Approved && now.since(word.at) <= wait)
    }

    /// Whether nobody will want to know any more what became of it.
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.is_orphan(now) || self.word().is_some_and(|word| now.since(word.at).0 > REMEMBERED_MS)
    }

    /// Whether the node where it waited is gone: it would have said so long ago that time is up.
    fn is_orphan(&self, now: Time) -> bool {
        self.remote && self.word().is_none() && now.since(self.until).0 > LATE_MS
    }

    /// The trips with the word about them: a warning if it was approved, a refusal if not.
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

    /// Says of what was let pass who has approved it.
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

/// All that wait, and those that did a moment ago, oldest first.
#[derive(Debug, Default)]
pub struct Approvals(Mutex<BTreeMap<String, Arc<Approval>>>);

impl Approvals {
    /// One of a project by its id.
    pub fn get(&self, project: &str, id: &str) -> Option<Arc<Approval>> {
        self.0.lock().get(id).filter(|approval| approval.project == project).cloned()
    }

    /// Those of a project that wait.
    pub fn waiting(&self, project: &str, now: Time) -> Vec<Arc<Approval>> {
        let all = self.0.lock();
        let waits =
            |a: &&Arc<Approval>| a.project == project && a.word().is_none() && !a.is_orphan(now);
        all.values().filter(waits).cloned().collect()
    }

    /// One that a client asks about by its own id, on whichever node.
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

    /// Those that wait on this node.
    pub(super) fn own(&self) -> Vec<Asked> {
        let all = self.0.lock();
        let waits = |a: &&Arc<Approval>| !a.remote && a.word().is_none();
        all.values().filter(waits).map(|approval| Asked::of(approval)).collect()
    }

    /// One waits on another node.
    pub(super) fn hear(&self, asked: Asked, now: Time) {
        if !self.0.lock().contains_key(&asked.id) && asked.until > now {
            self.enter(&Arc::new(asked.into()), now);
        }
    }

    /// Somebody has decided about one on another node. The first word counts.
    pub(super) fn decide(&self, id: &str, word: &Word) {
        let approval = self.0.lock().get(id).cloned();
        if let Some(approval) = approval {
            approval.hear(word);
        }
    }

    /// Enters one; false if too many wait.
    fn enter(&self, approval: &Arc<Approval>, now: Time) -> bool {
        let mut all = self.0.lock();
        if all.len() >= MOST {
            all.retain(|_, known| !known.is_over(now));
        }
        if all.len() >= MOST {
            // Those that were decided are forgotten before one is turned away.
            all.retain(|_, known| known.word().is_none());
        }
        if all.len() >= MOST {
            return false;
        }
        all.insert(approval.id.clone(), Arc::clone(approval));
        true
    }
}

/// A call that waits for a person, as nodes tell each other.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Asked {
    id: String,
    project: String,
    agent: String,
    session: String,
    nested: Option<String>,
    call: Call,
    asked: String,
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
            trips: asked.trips,
            since: asked.since,
            until: asked.until,
            client: asked.client,
            remote: true,
            word: watch::Sender::new(None),
        }
    }
}

/// A call whose carrier waits for a person's word. Dropped without one, it is withdrawn.
pub struct Question {
    warden: Arc<Warden>,
    chain: Chain,
    pub approval: Arc<Approval>,
    request: Excerpt,
    terms: Terms,
}

impl Question {
    /// Waits for the word, and lets the call run if it says so.
    pub async fn answer(self) -> Result<(Running, Vec<Trip>), Refused> {
        let word = self.wait().await;
        self.carry_out(&word).await
    }

    /// Waits without anybody who holds the line: the client comes back for the answer.
    pub fn detach(self) {
        tokio::spawn(async move {
            let word = self.wait().await;
            if matches!(word.answer, Answer::Denied | Answer::Lapsed) {
                self.refuse(&word);
            }
        });
    }

    /// Waits for a person, for the time to be up, or for the end of a scope.
    async fn wait(&self) -> Word {
        let left = self.approval.until.since(self.warden.time());
        let stops = self.chain.stops();
        let stopped = stops.iter().map(|stop| Box::pin(stop.cancelled()));
        let answer = tokio::select! {
            biased;
            word = self.approval.decided() => return word,
            _ = futures_util::future::select_all(stopped) => Answer::Stopped,
            () = tokio::time::sleep(Duration::from_millis(left.0)) => Answer::Lapsed,
        };
        let word = Word::of(answer, self.warden.time());
        match self.warden.first_word(&self.approval, word.clone()).await {
            // Somebody was faster on another node, and has kept what he said.
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
            Answer::Approved => {
                let terms = self.terms.clone().approved(&self.approval);
                warden.admit(chain, call, &self.request, &terms).await
            }
            Answer::Stopped => {
                let refused = warden.admit(chain, call, &self.request, &self.terms).await;
                // It is told what ended it; should that be over by now, it is refused all the same.
                match refused {
                    Err(refused) if refused.asks() => Err(self.refuse(word)),
                    other => other,
                }
            }
            Answer::Denied | Answer::Lapsed | Answer::Withdrawn => Err(self.refuse(word)),
        }
    }

    /// Keeps that the call was refused.
    fn refuse(&self, word: &Word) -> Refused {
        let (warden, chain, call) = (&self.warden, &self.chain, &self.approval.call);
        let trips = self.approval.judged(word);
        let id = warden.number();
        let said = || Said { request: self.request.clone(), response: Excerpt::default() };
        let incident = warden.record(chain, call, id, &trips, said);
        if let Some(trip) = trips.first() {
            warden.refused(chain, call, id, trip, incident.clone());
        }
        Refused { trips, incident, ..Refused::default() }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if self.approval.word().is_none() {
            let word = Word::of(Answer::Withdrawn, self.warden.time());
            self.warden.decide_approval(&self.approval, word.clone());
            let (warden, approval) = (Arc::clone(&self.warden), Arc::clone(&self.approval));
            tokio::spawn(async move { warden.first_word(&approval, word).await });
        }
    }
}

impl Refused {
    /// Whether a person may still say yes.
    pub fn asks(&self) -> bool {
        self.trips.first().is_some_and(|trip| trip.verdict == Verdict::Ask)
    }
}

impl Warden {
    /// May this call run? Where the policy says so, a person is asked, and this waits for the word
    /// as long as the policy allows. Whoever stops waiting withdraws the question.
    pub async fn admit_asking(
        self: &Arc<Warden>,
        chain: &Chain,
        call: &Call,
        request: &Excerpt,
        terms: Terms,
    ) -> Result<(Running, Vec<Trip>), Refused> {
        match self.admit(chain, call, request, &terms).await {
            Err(refused) if refused.asks() => {
                self.ask(chain, call, request, refused.trips, terms)?.answer().await
            }
            decided => decided,
        }
    }

    /// The same, and a call in a scope that is held waits for a person's word as well, for so long.
    /// What refuses it is on disk before anybody is told.
    pub async fn admit_patiently(
        self: &Arc<Warden>,
        chain: &Chain,
        call: &Call,
        request: &Excerpt,
        terms: Terms,
        hold: Duration,
    ) -> Result<(Running, Vec<Trip>), Refused> {
        let until = Instant::now() + hold;
        loop {
            // Registered before asking, so that a word said in between is not missed.
            let changed: Vec<_> = chain.scopes().iter().map(|scope| scope.changed()).collect();
            let refused = match self.admit_asking(chain, call, request, terms.clone()).await {
                Ok(admitted) => return Ok(admitted),
                Err(refused) => refused,
            };
            if refused.trips.first().is_some_and(|trip| trip.guard == GuardId::Paused) {
                let word = futures_util::future::select_all(changed.into_iter().map(Box::pin));
                if tokio::time::timeout_at(until, word).await.is_ok() {
                    continue;
                }
            }
            if refused.stale {
                return Err(refused);
            }
            match refused.incident {
                Some(_) => self.settle_incident().await,
                None => self.settle_kills(chain).await,
            }
            let incident = match refused.incident {
                Some(incident) => Some(incident),
                None => self.ended_by(chain, &refused.trips).await,
            };
            return Err(Refused { incident, ..refused });
        }
    }

    /// Asks people about a call that the engine wants them asked about.
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
        let approval = Arc::new(Approval {
            id: uuid::Uuid::now_v7().to_string(),
            project: chain.project.name.clone(),
            agent: agent.to_owned(),
            session: session.to_owned(),
            nested: chain.nested(),
            call: call.clone(),
            asked: chain.project.redact_start(request.text(), SHOWN),
            trips,
            since,
            until: since + policies.of(kind).ask_timeout_s.millis(),
            client: terms.reported_as().map(str::to_owned),
            remote: false,
            word: watch::Sender::new(None),
        });
        let (warden, chain, request) = (Arc::clone(self), chain.clone(), request.clone());
        if !self.approvals.enter(&approval, since) {
            let why = "too many calls wait for a person";
            let word = Word::said(Answer::Denied, "deadstop", why, since);
            approval.word.send_replace(Some(word.clone()));
            let question = Question { warden, chain, approval, request, terms };
            return Err(question.refuse(&word));
        }
        self.metrics.asked();
        let sentence = approval.trip().map(Trip::explain).unwrap_or_default();
        let event = Event::new("ask", &approval.project, agent, session, sentence.clone());
        self.spread(Event { approval: Some(approval.id.clone()), ..event });
        let alert = Alert {
            kind: deadstop_alerts::Kind::Approval,
            agent: Some(agent),
            session: Some(session),
            trip: approval.trip(),
            sentence,
            incident: None,
        };
        self.alert(&chain.project, &alert);
        self.tell_nodes(Message::Asked(Asked::of(&approval)));
        Ok(Question { warden, chain, approval, request, terms })
    }

    /// Says the last word about a call that waits; gives the one that counts, which is the first.
    fn decide_approval(&self, approval: &Approval, word: Word) -> Word {
        if !approval.hear(&word) {
            return approval.word().unwrap_or(word);
        }
        self.keep_word(approval, &word);
        word
    }

    /// Tells of the word that counts, and keeps it.
    fn keep_word(&self, approval: &Approval, word: &Word) {
        self.tell_nodes(Message::Decided { id: approval.id.clone(), word: word.clone() });
        self.metrics.answered(word.answer);
        let Approval { project, agent, session, call, .. } = approval;
        let text = format!("{}: {}", call.name(), word.clause(approval));
        let event = Event::new(word.answer.name(), project, agent, session, text);
        self.spread(Event { approval: Some(approval.id.clone()), ..event });
        let action = match word.answer {
            Answer::Approved => "call.approve",
            Answer::Denied => "call.deny",
            Answer::Lapsed => "call.lapse",
            Answer::Withdrawn | Answer::Stopped => return,
        };
        let (who, reason) = match word.answer {
            Answer::Lapsed => ("deadstop", word.clause(approval)),
            _ => (word.by.as_str(), word.reason.clone()),
        };
        let known = self.projects.read().get(project).cloned();
        let keeps = known.is_some_and(|known| known.settings.read().capture != Capture::None);
        let asked = approval.asked.floor_char_boundary(AUDITED);
        let detail = json!({
            "approval": approval.id,
            "call": call.name(),
            "asked": keeps.then(|| &approval.asked[..asked]),
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

    /// The word that was said first about a call that waits, on whichever node.
    async fn first_word(&self, approval: &Approval, word: Word) -> Result<Word, String> {
        let Some(node) = self.node() else { return Ok(word) };
        let said = serde_json::to_vec(&word).unwrap_or_default();
        let redis = &node.shared().redis;
        let first = match redis.first_word(&approval.id, &said).await {
            Ok(first) => first,
            // It may have arrived.
            Err(away) => match redis.word_about(&approval.id).await {
                Ok(Some(first)) => first,
                _ => return Err(away.to_string()),
            },
        };
        Ok(serde_json::from_slice(&first).unwrap_or(word))
    }

    /// A person's word about a call that waits; on disk when this returns. `None` in place of it if
    /// somebody was faster.
    pub async fn say(&self, approval: &Approval, word: Word) -> Option<Result<(), String>> {
        if approval.word().is_some() {
            return None;
        }
        match self.first_word(approval, word.clone()).await {
            Ok(first) if first != word => {
                approval.hear(&first);
                return None;
            }
            // In a cluster the first word that Redis heard counts, whatever this node heard before.
            Ok(_) if self.node().is_some() => {
                approval.hear(&word);
                self.keep_word(approval, &word);
            }
            // Where it waits nobody would hear of it.
            Err(away) if approval.remote => return Some(Err(away)),
            _ => {
                if self.decide_approval(approval, word.clone()) != word {
                    return None;
                }
            }
        }
        self.announce(Message::Decided { id: approval.id.clone(), word }).await;
        Some(self.flush().await)
    }

    /// Tells all nodes that a call waits, and waits until they know.
    pub async fn announce_asked(&self, approval: &Approval) {
        self.announce(Message::Asked(Asked::of(approval))).await;
    }

    /// What a call is told that was not approved, once more.
    pub fn refusal_of(&self, approval: &Approval, word: &Word) -> Refused {
        Refused { trips: approval.judged(word), ..Refused::default() }
    }
}
