//! Allowed once: a refusal carries a short code, and a person who gives that code lets exactly that
//! call of that session run, once, within ten minutes.
//!
//! A code is offered when a call is refused because of its harm. It belongs to one scope and one
//! call: the same tool, arguments, server and harms. Codes are kept in the memory of each node, and
//! nodes tell each other of them. Which call uses a code up is decided by the first word in Redis,
//! as it is for approvals, so that a code holds once on any number of nodes.

use std::collections::VecDeque;

use deadstop_core::{Call, Digest, GuardId, Harm, Millis, Time, Trip, Verdict};
use deadstop_redact::excerpt::{self, Excerpt};
use deadstop_store::AuditEvent;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Chain, Event, Message, Warden};
use crate::settings::Capture;

/// Codes that a node keeps.
const MOST: usize = 256;
/// How long a code can be given after the refusal.
const OFFERED: Millis = Millis(3_600_000);
/// How long the call may be made after that.
const ALLOWED: Millis = Millis(600_000);
/// Letters of a code: none that looks like another.
const LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/// Bytes of the call that the audit keeps.
const AUDITED: usize = 300;

/// A refused call that a person may allow once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Once {
    /// The code.
    pub code: String,
    /// The project.
    pub project: String,
    /// The agent.
    pub agent: String,
    /// The session.
    pub session: String,
    /// The nested scopes, joined by slashes.
    pub nested: Option<String>,
    /// The tool.
    pub tool: String,
    /// The server that it runs on.
    pub server: Option<String>,
    /// What it would do, the worst first.
    pub harms: Vec<Harm>,
    /// The call, redacted: as much of it as a person can be shown.
    pub asked: String,
    /// Characters of the call behind those. A call with any cannot be allowed.
    pub unkept: u64,
    /// Why it was refused.
    pub because: String,
    /// When it was refused last.
    pub at: Time,
    /// A person's word, if there is one.
    pub allowed: Option<Allowed>,
    signature: Digest,
}

/// A person's word that a call may run once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowed {
    /// Who said so.
    pub by: String,
    /// Why.
    pub reason: String,
    /// Until when the call may be made.
    pub until: Time,
}

impl Once {
    fn is(&self, chain: &Chain, call: &Call) -> bool {
        let Some(tool) = call.tool() else { return false };
        self.project == chain.project.name
            && (self.agent.as_str(), self.session.as_str()) == chain.names()
            && self.nested == chain.nested()
            && self.tool == tool.name
            && self.server == tool.server
            && self.signature == tool.signature
            && self.harms == worst_first(&tool.harms)
    }

    fn is_over(&self, now: Time) -> bool {
        match &self.allowed {
            Some(allowed) => now > allowed.until,
            None => now > self.at + OFFERED,
        }
    }

    /// Adds to the warnings of the call who has allowed it.
    pub(super) fn sign(&self, trips: &mut [Trip]) {
        let Some(Allowed { by, reason, .. }) = &self.allowed else { return };
        let said = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        for trip in trips.iter_mut().filter(|trip| trip.guard == GuardId::Harm) {
            trip.because = format!("{}; allowed once by {by}{said}", trip.because);
        }
    }
}

fn worst_first(harms: &[Harm]) -> Vec<Harm> {
    let mut harms = harms.to_vec();
    harms.sort_by_key(|harm| std::cmp::Reverse(harm.severity()));
    harms
}

/// Why a code does not allow anything.
#[derive(Debug, PartialEq, Eq)]
pub enum NotAllowed {
    /// No such code.
    Unknown,
    /// It is in force, but could not be written.
    NotWritten(String),
}

/// The codes that can be given, and those that were, oldest first.
#[derive(Debug, Default)]
pub struct Onces(Mutex<VecDeque<Once>>);

impl Onces {
    /// The codes of a project.
    pub fn of(&self, project: &str, now: Time) -> Vec<Once> {
        let all = self.0.lock();
        all.iter().filter(|once| once.project == project && !once.is_over(now)).cloned().collect()
    }

    /// One of them, by its code in any case.
    pub fn get(&self, project: &str, code: &str, now: Time) -> Option<Once> {
        let code = code.trim().to_ascii_uppercase();
        self.of(project, now).into_iter().find(|once| once.code == code)
    }

    /// Whether a person has allowed this call.
    pub(super) fn allows(&self, chain: &Chain, call: &Call, now: Time) -> bool {
        let may = |once: &Once| once.allowed.is_some() && !once.is_over(now);
        self.0.lock().iter().any(|once| may(once) && once.is(chain, call))
    }

    /// The code that this call was offered before.
    fn offered(&self, chain: &Chain, call: &Call, now: Time) -> Option<Once> {
        let all = self.0.lock();
        let open = |once: &&Once| once.allowed.is_none() && !once.is_over(now);
        all.iter().filter(open).find(|once| once.is(chain, call)).cloned()
    }

    /// Notes a code. One that a person has given is not taken back by the offer of it, which may
    /// arrive later.
    pub(super) fn hear(&self, fresh: Once, now: Time) {
        let mut all = self.0.lock();
        all.retain(|once| !once.is_over(now));
        if let Some(known) = all.iter_mut().find(|once| once.code == fresh.code) {
            let allowed = fresh.allowed.clone().or(known.allowed.take());
            *known = Once { allowed, ..fresh };
            return;
        }
        if all.len() >= MOST {
            let oldest = all.iter().position(|once| once.allowed.is_none()).unwrap_or_default();
            all.remove(oldest);
        }
        all.push_back(fresh);
    }

    /// Notes that a code is used up.
    pub(super) fn used(&self, code: &str) {
        self.0.lock().retain(|once| once.code != code);
    }

    /// Takes a code out that allows this call.
    fn take(&self, chain: &Chain, call: &Call, now: Time) -> Option<Once> {
        let mut all = self.0.lock();
        let may = |once: &Once| once.allowed.is_some() && !once.is_over(now);
        let at = all.iter().position(|once| may(once) && once.is(chain, call))?;
        all.remove(at)
    }
}

impl Warden {
    /// Offers a code for a call that was refused because of its harm alone, and says so in the
    /// refusal. The same call gets the same code again.
    pub(super) fn offer_once(
        &self,
        chain: &Chain,
        call: &Call,
        request: &Excerpt,
        trips: &mut [Trip],
    ) {
        let refuses = |trip: &&Trip| trip.verdict >= Verdict::Block;
        let alone = trips
            .iter()
            .filter(refuses)
            .all(|trip| trip.guard == GuardId::Harm && trip.verdict == Verdict::Block);
        let (Some(tool), Some(trip)) = (call.tool(), trips.first_mut()) else { return };
        if !alone || trip.guard != GuardId::Harm || trip.verdict != Verdict::Block {
            return;
        }
        let now = self.time();
        let known = self.onces.offered(chain, call, now);
        let most = excerpt::MOST_OF_CALL;
        let (agent, session) = chain.names();
        let once = match known {
            Some(known) => Once { at: now, ..known },
            None => Once {
                code: self.fresh_code(),
                project: chain.project.name.clone(),
                agent: agent.to_owned(),
                session: session.to_owned(),
                nested: chain.nested(),
                tool: tool.name.clone(),
                server: tool.server.clone(),
                harms: worst_first(&tool.harms),
                asked: chain.project.redact_start(request.text(), most),
                unkept: request.unshown(most),
                because: chain.project.redact_reason(&trip.because),
                at: now,
                allowed: None,
                signature: tool.signature,
            },
        };
        trip.because = format!(
            "{}. A person can let this one call pass: `deadstop allow {}`",
            trip.because, once.code
        );
        self.tell_nodes(Message::Offered(Box::new(once.clone())));
        self.onces.hear(once, now);
    }

    /// A code that no call has yet.
    fn fresh_code(&self) -> String {
        loop {
            let mut seed = uuid::Uuid::now_v7().as_u128();
            let mut code = String::with_capacity(6);
            for _ in 0..6 {
                code.push(char::from(LETTERS[(seed % 32) as usize]));
                seed /= 32;
            }
            if !self.onces.0.lock().iter().any(|once| once.code == code) {
                return code;
            }
        }
    }

    /// A person's word: the call that was refused under this code may run, once, within ten minutes.
    /// It is in the audit when this returns, and all nodes know of it.
    pub async fn allow_once(
        &self,
        project: &str,
        code: &str,
        by: &str,
        reason: &str,
    ) -> Result<Once, NotAllowed> {
        let now = self.time();
        let mut once = self.onces.get(project, code, now).ok_or(NotAllowed::Unknown)?;
        let allowed =
            Allowed { by: by.to_owned(), reason: reason.to_owned(), until: now + ALLOWED };
        once.allowed = Some(allowed);
        self.audit_once(&once, "call.allow", reason);
        let written = self.flush().await;
        // It holds from here on; the audit knows of it first.
        self.onces.hear(once.clone(), now);
        self.announce(Message::Offered(Box::new(once.clone()))).await;
        let text = format!("{} allowed once by {by}", once.tool);
        self.spread(Event::new("allow", project, &once.agent, &once.session, text));
        written.map_err(NotAllowed::NotWritten)?;
        Ok(once)
    }

    /// Uses up the word that allows this call, if a person has given one.
    pub(super) async fn take_once(&self, chain: &Chain, call: &Call) -> Option<Once> {
        if call.tool().is_none_or(|tool| tool.harms.is_empty()) {
            return None;
        }
        let once = self.onces.take(chain, call, self.time())?;
        if let Some(node) = self.node() {
            // Another node may have let the same call pass: the first one counts.
            let about = format!("once-{}-{}", once.code, once.allowed.as_ref()?.until.0);
            let me = self.number().to_string().into_bytes();
            match node.shared().redis.first_word(&about, &me).await {
                Ok(first) if first == me => {}
                _ => return None,
            }
        }
        self.tell_nodes(Message::Used { code: once.code.clone() });
        self.audit_once(&once, "call.allowed", "the call was made");
        Some(once)
    }

    fn audit_once(&self, once: &Once, action: &str, reason: &str) {
        let Some(Allowed { by, until, .. }) = &once.allowed else { return };
        let known = self.projects.read().get(&once.project).cloned();
        let keeps = known.is_some_and(|known| known.settings.read().capture != Capture::None);
        let asked = once.asked.floor_char_boundary(AUDITED);
        let detail = json!({
            "code": once.code,
            "call": once.tool,
            "asked": keeps.then(|| &once.asked[..asked]),
            "asked_chars": once.asked.chars().count() as u64 + once.unkept,
            "why": once.because,
            "until_ms": until.0,
        });
        self.outbox.lock().audit.push(AuditEvent {
            number: self.number(),
            project: once.project.clone(),
            at: self.time(),
            who: by.clone(),
            action: action.to_owned(),
            subject: format!("{}/{}", once.agent, once.session),
            reason: reason.to_owned(),
            detail: detail.to_string(),
        });
    }
}
