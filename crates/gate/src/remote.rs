//! The server's side of a gate.

use std::time::{Duration, Instant};

use deadstop_client::{
    Approval, Client, ClientError, Decided, Ended, Patience, ProposedCall, Receipt, Server, Used,
    escaped,
};
use deadstop_core::{Harm, Status, Verdict};
use deadstop_protocol::mcp::Listed;
use serde::Deserialize;
use serde_json::json;

use crate::{Answer, Ask, By, Judged, Place};

/// A server to ask.
#[derive(Debug)]
pub(crate) struct Remote {
    client: Client,
    /// Whether somebody named it, or we only look whether one runs at the usual place.
    named: bool,
    pub(crate) project: Option<String>,
    /// How long an answer may take, and how long a person's.
    patience: Duration,
    approval: Duration,
}

/// Why the server has not decided.
pub(crate) enum Failed {
    /// It does not know the call, so it was not the one who admitted it.
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

    pub(crate) fn ask(&self, ask: &Ask, harms: Option<&[Harm]>) -> Result<Answer, Failed> {
        let Place { agent, session, scope } = &ask.place;
        let call = ProposedCall {
            id: &ask.id,
            tool: &ask.tool,
            server: ask.server.as_deref(),
            arguments: &ask.arguments,
            harms,
        };
        let propose =
            || self.client.propose(agent, session, scope, &[call]).map(|mut all| all.pop());
        let first = propose();
        let waits = first.as_ref().ok().and_then(Option::as_ref).and_then(waiting);
        let decided = match waits {
            // Once a person has decided, the same question has an answer.
            Some(approval) if self.wait(&approval) => propose(),
            _ => first,
        };
        self.read(decided)
    }

    /// Waits for a person's word; whether it came.
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
        place: &Place,
        id: &str,
        status: Status,
        text: Option<&str>,
    ) -> Result<Answer, Failed> {
        let receipt = Receipt { id, status: ended(status), usage: Used::default(), text };
        let Place { agent, session, scope } = place;
        self.read(self.client.receipt(agent, session, scope, &receipt).map(Some))
    }

    pub(crate) fn ask_held(
        &self,
        ask: &Ask,
        harms: Option<&[Harm]>,
        hold: Duration,
    ) -> Result<Answer, Failed> {
        #[derive(Deserialize)]
        struct All {
            calls: Vec<Decided>,
        }
        let mut call = json!({
            "id": ask.id, "tool": ask.tool, "server": ask.server, "arguments": ask.arguments,
        });
        if let Some(harms) = harms {
            call["harms"] = json!(harms);
        }
        let body = json!({
            "calls": [call],
            "scope": ask.place.scope,
            "hold_s": hold.as_secs(),
        });
        let decided = self.client.post::<All>(&path(&ask.place, "proposal"), &body);
        let decided = decided.map(|mut all| all.calls.pop());
        // A person was asked: whoever holds calls may ask again for the word.
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
        place: &Place,
        id: &str,
        status: Status,
        text: &str,
    ) -> Result<Answer, Failed> {
        let status = ended(status);
        let body = json!({
            "id": id, "status": status, "text": text, "scope": place.scope, "wait": false,
        });
        self.read(self.client.post(&path(place, "receipt"), &body).map(Some))
    }

    /// Waits until a call is to be stopped.
    pub(crate) fn watch(&self, place: &Place, id: &str, wait: Duration) -> Result<Answer, Failed> {
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let body = json!({ "id": id, "scope": place.scope, "wait_ms": wait });
        let decided = match self.client.post(&path(place, "progress"), &body) {
            Err(ClientError::Refused(problem)) if problem.decision.is_some() => {
                Ok(problem.decision)
            }
            other => other.map(Some),
        };
        self.read(decided)
    }

    pub(crate) fn listed(
        &self,
        place: &Place,
        server: &str,
        tools: &[Listed],
    ) -> Result<Judged, ClientError> {
        let tools: Vec<_> = tools
            .iter()
            .map(|tool| {
                let fingerprint = format!("{:016x}", tool.fingerprint.0);
                json!({
                    "name": tool.name, "fingerprint": fingerprint, "destructive": tool.destructive,
                })
            })
            .collect();
        let body = json!({
            "agent": place.agent, "session": place.session, "server": server, "tools": tools,
        });
        self.client.post("/api/mcp/tools", &body)
    }

    pub(crate) fn standing(&self, place: &Place, words: Option<&str>) -> Result<Answer, Failed> {
        let opened = self.client.open(&place.agent, Some(&place.session), words);
        self.read(opened.map(|_| None))
    }

    fn read(&self, answer: Result<Option<Decided>, ClientError>) -> Result<Answer, Failed> {
        let error = match answer {
            Ok(None) => return Ok(Answer::passed(By::Server)),
            Ok(Some(decided)) => return Ok(judged(decided)),
            Err(error) => error,
        };
        if let Some(problem) = error.death() {
            let explain = format!("stopped: {}", problem.detail);
            return Ok(Answer::said(Verdict::Kill, By::Server, "killed", &problem.code, explain));
        }
        if let ClientError::Refused(problem) = &error {
            match problem.code.as_str() {
                "not_found" => return Err(Failed::Unknown),
                // The server's own fail mode has spoken.
                "store_failed" => {
                    let explain = format!("blocked: {}", problem.detail);
                    let code = &problem.code;
                    return Ok(Answer::said(
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
        // Whatever listens at the usual place without being a server of ours is none of our business.
        let named = self.named || matches!(error, ClientError::Refused(_));
        Err(Failed::Away { why: error.to_string(), named })
    }
}

/// The question that waits for a person, if one does.
fn waiting(decided: &Decided) -> Option<String> {
    match (&decided.approval, decided.verdict) {
        (Some(Approval::Id(id)), Verdict::Ask) => Some(id.clone()),
        _ => None,
    }
}

fn ended(status: Status) -> Ended {
    match status {
        Status::Ok => Ended::Ok,
        Status::Error => Ended::Error,
        Status::Fault => Ended::Fault,
        Status::Cancelled => Ended::Cancelled,
    }
}

fn path(place: &Place, what: &str) -> String {
    format!("/api/sessions/{}/{}/{what}", escaped(&place.agent), escaped(&place.session))
}

fn judged(decided: Decided) -> Answer {
    let Decided { allowed, verdict, trips, incident, .. } = decided;
    // What it says and how it is called must agree; the stricter of the two counts.
    let verdict = if allowed { verdict } else { verdict.max(Verdict::Ask) };
    Answer { verdict, trips, incident, by: By::Server, notice: None }
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
