//! The server's side of a gate.

use deadstop_client::{
    Client, ClientError, Decided, Ended, Patience, ProposedCall, Receipt, Server, Used,
};
use deadstop_core::{Status, Verdict};

use crate::{Answer, Ask, By, Place};

/// A server to ask.
#[derive(Debug)]
pub(crate) struct Remote {
    client: Client,
    /// Whether somebody named it, or we only look whether one runs at the usual place.
    named: bool,
    pub(crate) project: Option<String>,
}

/// Why the server has not decided.
pub(crate) enum Failed {
    /// It does not know the call, so it was not the one who admitted it.
    Unknown,
    /// It does not answer, or not usefully.
    Away { why: String, named: bool },
}

impl Remote {
    pub(crate) fn open(server: Option<Server>, patience: Patience) -> Result<Remote, ClientError> {
        let (named, server) = match server {
            Some(server) => (true, server),
            None => (Server::is_named(), Server::from_env()?),
        };
        let project = server.project.clone();
        Ok(Remote { client: Client::patient(&server, patience)?, named, project })
    }

    pub(crate) fn ask(&self, ask: &Ask) -> Result<Answer, Failed> {
        let Place { agent, session, scope } = &ask.place;
        let call = ProposedCall {
            id: &ask.id,
            tool: &ask.tool,
            server: ask.server.as_deref(),
            arguments: &ask.arguments,
        };
        let decided = self.client.propose(agent, session, scope, &[call]);
        self.read(decided.map(|mut all| all.pop()))
    }

    pub(crate) fn settle(
        &self,
        place: &Place,
        id: &str,
        status: Status,
        text: Option<&str>,
    ) -> Result<Answer, Failed> {
        let status = match status {
            Status::Ok => Ended::Ok,
            Status::Error => Ended::Error,
            Status::Fault => Ended::Fault,
            Status::Cancelled => Ended::Cancelled,
        };
        let receipt = Receipt { id, status, usage: Used::default(), text };
        let Place { agent, session, scope } = place;
        self.read(self.client.receipt(agent, session, scope, &receipt).map(Some))
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

fn judged(decided: Decided) -> Answer {
    let Decided { allowed, verdict, trips, incident, .. } = decided;
    // What it says and how it is called must agree; the stricter of the two counts.
    let verdict = if allowed { verdict } else { verdict.max(Verdict::Block) };
    Answer { verdict, trips, incident, by: By::Server, notice: None }
}

#[cfg(test)]
mod tests {
    use deadstop_client::USUAL;

    use super::*;

    #[test]
    fn the_usual_place_is_a_url() {
        assert!(Remote::open(Some(Server::at(USUAL)), Patience::default()).is_ok());
        assert!(Remote::open(Some(Server::at("nowhere")), Patience::default()).is_err());
    }
}
