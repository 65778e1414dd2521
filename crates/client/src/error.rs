//! What can go wrong between a client and a server, told apart by what to do about it.

use std::io;

use deadstop_protocol::govern::Refusal;
use thiserror::Error;

/// Why there is no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The URL, the key or the project cannot be right.
    #[error("{0}")]
    BadServer(String),
    /// The file with the key cannot be read.
    #[error("cannot read the key in {path}: {source}")]
    BadKeyFile {
        /// The file.
        path: String,
        /// What went wrong.
        source: io::Error,
    },
    /// The server did not answer, or not in time. Asking again later may help.
    #[error("no answer from the server at {url}: {why}")]
    NotReached {
        /// Its URL.
        url: String,
        /// What happened instead.
        why: String,
        /// What the system reported.
        source: io::Error,
    },
    /// The server refused, and says why.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// The answer is not one of a Deadstop server.
    #[error("the answer is not one of a deadstop server: {0}")]
    Malformed(String),
    /// The request was cancelled by a [`Cancel`](crate::Cancel).
    #[error("the request was cancelled")]
    Cancelled,
}

impl ClientError {
    /// Whether the server did not answer: asking again later may help.
    pub fn is_not_reached(&self) -> bool {
        matches!(self, ClientError::NotReached { .. })
    }

    /// The refusal, if it says that a session, an agent or a project is dead.
    pub fn death(&self) -> Option<&Refusal> {
        match self {
            ClientError::Refused(refusal) if refusal.is_death() => Some(refusal),
            _ => None,
        }
    }
}
