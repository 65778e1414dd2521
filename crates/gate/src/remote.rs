//! The server's side of a gate.

use std::time::{Duration, Instant};

use deadstop_client::{
    Client, ClientError, Decided, DecidedAll, Opening, Patience, Proposal, ProposedCall, Receipt,
    Report, Server, escaped,
};
use deadstop_core::{Harm, Status, Verdict};
use deadstop_protocol::mcp::Listing;
use serde_json::json;

use crate::{Ask, By, Judged, Judgement, ScopePath, SubAgent, Told};

/// A server to ask.
#[derive(Debug)]
pub(crate) struct Remote {
    client: Client,
    /// Whether the user named it; otherwise the gate only tries the default address.
    named: bool,
    pub(crate) project: Option<String>,
    /// How long an answer may take, and how long a person's.
    patience: Duration,
    approval: Duration,
}

/// Why the server has not decided.
pub(crate) enum Failed {
    /// It does not know the call, so it did not admit it.
    Unknown,
    /// It does not answer, or not usefully.
    Away { why: String, named: bool },
}

impl Remote {
    pub(crate) fn open(
        server: Option<Server>,
        patience: Patience,
        approval: Duration,
    ) -> Result<Remote, ClientError> {
        let (named, server) = match server {
            Some(server) => (true, server),
            None => (Server::is_named(), Server::from_env()?),
        };
        let project = server.project.clone();
        let client = Client::patient(&server, patience)?;
        Ok(Remote { client, named, project, patience: patience.answer, approval })
    }

    pub(crate) fn ask(&self, ask: &Ask, harms: Option<&[Harm]>) -> Result<Judgement, Failed> {
        let ScopePath { agent, session, .. } = &ask.place;
        let proposal = proposal(ask, harms, Duration::ZERO);
        let client = self.client.in_trace(ask.trace.as_deref());
        let propose = || client.propose(agent, session, &proposal).map(|mut all| all.pop());
        let first = propose();
        let waits = first.as_ref().ok().and_then(Option::as_ref).and_then(waiting);
        let decided = match waits {
            // Once a person has decided, the same question has an answer.
            Some(approval) if self.wait(&approval) => propose(),
            _ => first,
        };
        self.read(decided)
    }

    /// Waits for a person's decision; true if it came.
    fn wait(&self, approval: &str) -> bool {
        let until = Instant::now() + self.approval;
        let step = self.patience.saturating_sub(Duration::from_secs(1)).as_secs().clamp(1, 30);
        loop {
            let left = until.saturating_duration_since(Instant::now()).as_secs();
            if left == 0 {
                return false;
            }
            let path = format!("/api/approvals/{}?wait={}", escaped(approval), left.min(step));
            match self.client.get(&path) {
                Ok(about) if about["state"] == "waiting" => {}
                Ok(_) => return true,
                Err(_) => return false,
            }
        }
    }

    pub(crate) fn settle(
        &self,
        place: &ScopePath,
        id: &str,
        status: Status,
        text: Option<&str>,
    ) -> Result<Judgement, Failed> {
        let receipt = receipt(place, id, status, text);
        self.read(self.client.receipt(&place.agent, &place.session, &receipt).map(Some))
    }

    pub(crate) fn ask_held(
        &self,
        ask: &Ask,
        harms: Option<&[Harm]>,
        hold: Duration,
    ) -> Result<Judgement, Failed> {
        let proposal = proposal(ask, harms, hold);
        let client = self.client.in_trace(ask.trace.as_deref());
        let decided = client.post::<DecidedAll>(&path(&ask.place, "proposal"), &proposal);
        let decided = decided.map(|mut all| all.calls.pop());
        // A person was asked: a caller that holds the call may poll for the decision.
        let asks =
            |decided: &Decided| decided.verdict == Verdict::Ask && decided.approval.is_some();
        let waits = matches!(&decided, Ok(Some(decided)) if asks(decided));
        let mut answer = self.read(decided)?;
        if waits {
            answer.verdict = Verdict::Ask;
        }
        Ok(answer)
    }

    pub(crate) fn settle_soon(
        &self,
        place: &ScopePath,
        id: &str,
        told: Told<'_>,
    ) -> Result<Judgement, Failed> {
        let Told { outcome, text, trace } = told;
        let receipt = Receipt { wait: false, ..receipt(place, id, outcome.status, Some(text)) };
        let client = self.client.in_trace(trace);
        self.read(client.post(&path(place, "receipt"), &receipt).map(Some))
    }

    /// Waits until a call is to be stopped.
    pub(crate) fn watch(
        &self,
        place: &ScopePath,
        id: &str,
        wait: Duration,
    ) -> Result<Judgement, Failed> {
        let report = Report {
            id: id.to_owned(),
            scope: place.scope.clone(),
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            ..Report::default()
        };
        self.read(self.client.progress(&place.agent, &place.session, &report).map(Some))
    }

    pub(crate) fn listed(
        &self,
        place: &ScopePath,
        server: &str,
        listing: &Listing<'_>,
    ) -> Result<Judged, ClientError> {
        let tools: Vec<_> = listing
            .tools
            .iter()
            .map(|tool| {
                let fingerprint = format!("{:016x}", tool.fingerprint.0);
                let invisible: String = tool.invisible.iter().collect();
                json!({
                    "name": tool.name, "fingerprint": fingerprint, "destructive": tool.destructive,
                    "text": tool.text, "invisible": invisible,
                })
            })
            .collect();
        let body = json!({
            "agent": place.agent, "session": place.session, "server": server, "tools": tools,
            "complete": listing.complete,
        });
        self.client.post("/api/mcp/tools", &body)
    }

    pub(crate) fn standing(
        &self,
        place: &ScopePath,
        words: Option<&str>,
    ) -> Result<Judgement, Failed> {
        let opened = self.client.open(&place.agent, Some(&place.session), words);
        self.read(opened.map(|_| None))
    }

    /// A sub-agent begins or ends.
    pub(crate) fn sub_agent(&self, place: &ScopePath, is: SubAgent) -> Result<Judgement, Failed> {
        let done = is == SubAgent::Ended;
        self.opened(&Opening { scope: place.scope.clone(), done, ..opening(place) })
    }

    /// The session is over.
    pub(crate) fn over(&self, place: &ScopePath) -> Result<Judgement, Failed> {
        self.opened(&Opening { done: true, ..opening(place) })
    }

    pub(crate) fn compacted(&self, place: &ScopePath) -> Result<Judgement, Failed> {
        self.opened(&Opening { compacted: true, ..opening(place) })
    }

    fn opened(&self, opening: &Opening) -> Result<Judgement, Failed> {
        match self.client.open_with(opening) {
            Err(ClientError::Refused(mut refusal)) if refusal.decision.is_some() => {
                self.read(Ok(refusal.decision.take()))
            }
            other => self.read(other.map(|_| None)),
        }
    }

    fn read(&self, answer: Result<Option<Decided>, ClientError>) -> Result<Judgement, Failed> {
        let error = match answer {
            Ok(None) => return Ok(Judgement::passed(By::Server)),
            Ok(Some(decided)) => return Ok(judged(decided)),
            Err(error) => error,
        };
        if let Some(problem) = error.death() {
            let explain = format!("stopped: {}", problem.detail);
            return Ok(Judgement::said(
                Verdict::Kill,
                By::Server,
                "killed",
                &problem.code,
                explain,
            ));
        }
        if let ClientError::Refused(problem) = &error {
            match problem.code.as_str() {
                "not_found" => return Err(Failed::Unknown),
                // The server's own fail mode has spoken.
                "store_failed" => {
                    let explain = format!("blocked: {}", problem.detail);
                    let code = &problem.code;
                    return Ok(Judgement::said(
                        Verdict::Block,
                        By::Server,
                        "fail_mode",
                        code,
                        explain,
                    ));
                }
                _ => {}
            }
        }
        // Another program at the default address counts as no server.
        let named = self.named || matches!(error, ClientError::Refused(_));
        Err(Failed::Away { why: error.to_string(), named })
    }
}

/// The id of the question that waits for a person, if one does.
fn waiting(decided: &Decided) -> Option<String> {
    decided.approval.clone().filter(|_| decided.verdict == Verdict::Ask)
}

fn opening(place: &ScopePath) -> Opening {
    let (agent, session) = (place.agent.clone(), Some(place.session.clone()));
    Opening { agent, session, ..Opening::default() }
}

fn proposal(ask: &Ask, harms: Option<&[Harm]>, hold: Duration) -> Proposal {
    let call = ProposedCall {
        id: ask.id.clone(),
        tool: ask.tool.clone(),
        server: ask.server.clone(),
        arguments: ask.arguments.clone(),
        harms: harms.map(<[Harm]>::to_vec),
        spawns: ask.spawns,
    };
    Proposal { calls: vec![call], scope: ask.place.scope.clone(), hold_s: hold.as_secs() }
}

fn receipt(place: &ScopePath, id: &str, status: Status, text: Option<&str>) -> Receipt {
    Receipt {
        id: id.to_owned(),
        status: status.into(),
        text: text.map(str::to_owned),
        scope: place.scope.clone(),
        ..Receipt::default()
    }
}

fn path(place: &ScopePath, what: &str) -> String {
    format!("/api/sessions/{}/{}/{what}", escaped(&place.agent), escaped(&place.session))
}

fn judged(decided: Decided) -> Judgement {
    let Decided { allowed, verdict, trips, incident, traceparent, .. } = decided;
    // `allowed` and `verdict` must agree; the stricter of the two counts.
    let verdict = if allowed { verdict } else { verdict.max(Verdict::Ask) };
    Judgement { incident, span: traceparent, ..Judgement::of(verdict, trips, By::Server) }
}

#[cfg(test)]
mod tests {
    use deadstop_client::USUAL;

    use super::*;

    #[test]
    fn the_usual_place_is_a_url() {
        assert!(Remote::open(Some(Server::at(USUAL)), Patience::default(), Duration::ZERO).is_ok());
        assert!(
            Remote::open(Some(Server::at("nowhere")), Patience::default(), Duration::ZERO).is_err()
        );
    }
}
