//! Blame: who can change that a call failed.
//!
//! A failure counts against an agent only where the agent can do something about it. A provider
//! that is down, a rate limit, or a client with a wrong key say nothing about the agent, so none of
//! them may end its session. The door that carried the call works the cause out once, from the HTTP
//! status or from what happened to the connection; guards only read it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::call::{Call, Outcome, Status};

/// Who can change that a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Blame {
    /// The program that sends the request: a wrong key, a missing model, a malformed body.
    Caller,
    /// The model's provider, or the way to it: 5xx, rate limits, time-outs, torn streams.
    Provider,
    /// The tool, or the server that it runs on.
    Tool,
    /// The agent itself: it asked for a tool that is not there, or with arguments that the tool does
    /// not take. It is told so and may learn from it.
    Agent,
}

impl Blame {
    /// The name used in records and messages.
    pub fn name(self) -> &'static str {
        match self {
            Blame::Caller => "caller",
            Blame::Provider => "provider",
            Blame::Tool => "tool",
            Blame::Agent => "agent",
        }
    }
}

/// What was seen of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// The door did not say.
    #[default]
    Unsaid,
    /// An HTTP status.
    Status(u16),
    /// The connection could not be made, or was lost before an answer began.
    Connection,
    /// No answer in time.
    TimedOut,
    /// The answer broke off.
    Torn,
    /// The answer cannot be read.
    Unreadable,
    /// The stream itself reported an error.
    Reported,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            How::Unsaid => f.write_str("no answer"),
            How::Status(status) => write!(f, "{status}"),
            How::Connection => f.write_str("connection failed"),
            How::TimedOut => f.write_str("time-out"),
            How::Torn => f.write_str("answer broke off"),
            How::Unreadable => f.write_str("unreadable answer"),
            How::Reported => f.write_str("error in the stream"),
        }
    }
}

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Failure {
    /// Who can change it.
    pub blame: Blame,
    /// What was seen of it.
    pub how: How,
}

impl Failure {
    /// A failure of the provider, or of the way to it.
    pub fn provider(how: How) -> Failure {
        Failure { blame: Blame::Provider, how }
    }

    /// The failure behind an HTTP status of a model's provider: 408, 409, 429 and 5xx are the
    /// provider's, every other 4xx the caller's; anything else is none.
    ///
    /// ```
    /// use deadstop_core::{Blame, Failure};
    /// assert_eq!(Failure::of_status(529).map(|failure| failure.blame), Some(Blame::Provider));
    /// assert_eq!(Failure::of_status(429).map(|failure| failure.blame), Some(Blame::Provider));
    /// assert_eq!(Failure::of_status(401).map(|failure| failure.blame), Some(Blame::Caller));
    /// assert_eq!(Failure::of_status(200), None);
    /// ```
    pub fn of_status(status: u16) -> Option<Failure> {
        let blame = match status {
            408 | 409 | 429 | 500.. => Blame::Provider,
            400..=499 => Blame::Caller,
            _ => return None,
        };
        Some(Failure { blame, how: How::Status(status) })
    }

    /// How a call that failed so has ended: a caller's failure is an answer, a provider's is none.
    pub fn status(self) -> Status {
        match self.blame {
            Blame::Caller | Blame::Agent => Status::Error,
            Blame::Provider | Blame::Tool => Status::Fault,
        }
    }
}

impl Outcome {
    /// The outcome of a call that failed.
    pub fn failed(failure: Failure) -> Outcome {
        Outcome { status: failure.status(), failure: Some(failure), ..Outcome::default() }
    }

    /// Why the call failed, if it did. Where the door did not say, a model's fault is its
    /// provider's, a model's error its caller's, and whatever goes wrong with a tool the tool's.
    pub fn failure(&self, call: &Call) -> Option<Failure> {
        let blame = match (self.status, call) {
            (Status::Ok | Status::Cancelled, _) => return None,
            (_, Call::Tool(_)) => Blame::Tool,
            (Status::Fault, Call::Model(_)) => Blame::Provider,
            (Status::Error, Call::Model(_)) => Blame::Caller,
        };
        Some(self.failure.unwrap_or(Failure { blame, how: How::Unsaid }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{ModelCall, ToolCall};

    #[test]
    fn every_status_has_one_who_can_change_it() {
        for (status, expected) in [
            (200, None),
            (302, None),
            (400, Some(Blame::Caller)),
            (401, Some(Blame::Caller)),
            (403, Some(Blame::Caller)),
            (404, Some(Blame::Caller)),
            (408, Some(Blame::Provider)),
            (409, Some(Blame::Provider)),
            (422, Some(Blame::Caller)),
            (429, Some(Blame::Provider)),
            (500, Some(Blame::Provider)),
            (503, Some(Blame::Provider)),
            (529, Some(Blame::Provider)),
        ] {
            let failure = Failure::of_status(status);
            assert_eq!(failure.map(|failure| failure.blame), expected, "{status}");
            if let Some(failure) = failure {
                assert_eq!(failure.how.to_string(), status.to_string());
            }
        }
    }

    #[test]
    fn what_a_door_does_not_say_follows_from_the_call() {
        let model = Call::Model(ModelCall::default());
        let tool = Call::Tool(ToolCall::default());
        let outcome = |status| Outcome { status, ..Outcome::default() };
        let blame = |call: &Call, status| outcome(status).failure(call).map(|f| f.blame);
        assert_eq!(blame(&model, Status::Ok), None);
        assert_eq!(blame(&model, Status::Cancelled), None);
        assert_eq!(blame(&model, Status::Fault), Some(Blame::Provider));
        assert_eq!(blame(&model, Status::Error), Some(Blame::Caller));
        assert_eq!(blame(&tool, Status::Fault), Some(Blame::Tool));
        assert_eq!(blame(&tool, Status::Error), Some(Blame::Tool));
        let torn = Outcome::failed(Failure::provider(How::Torn));
        assert_eq!(
            (torn.status, blame(&model, torn.status)),
            (Status::Fault, Some(Blame::Provider))
        );
        assert_eq!(
            torn.failure(&model).map(|f| f.how.to_string()).as_deref(),
            Some("answer broke off")
        );
    }
}
