//! What can go wrong between us and a server, told apart by what to do about it.

use thiserror::Error;

use crate::answer::Problem;

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// What was named is not a server, or the key is none.
    #[error("{0}")]
    BadServer(String),
    /// Nobody answered, or not in time.
    #[error("the server at {url} is not reached: {why}")]
    NotReached {
        /// Where it should be.
        url: String,
        /// What happened instead.
        why: String,
    },
    /// The server said no, and why.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// Whatever answered is not a Deadstop server, or a broken one.
    #[error("what answers is not a deadstop server: {0}")]
    Malformed(String),
}

impl ClientError {
    /// Whether nobody answered: asking again later may help.
    pub fn is_not_reached(&self) -> bool {
        matches!(self, ClientError::NotReached { .. })
    }

    /// What was refused because a session, an agent or a project is dead.
    pub fn death(&self) -> Option<&Problem> {
        match self {
            ClientError::Refused(problem) if problem.is_death() => Some(problem),
            _ => None,
        }
    }
}
