//! Why a message was not delivered.

use std::net::IpAddr;
use std::time::Duration;

use thiserror::Error;

/// Why a message was not delivered. Its text goes into the delivery log, so it holds no secrets.
#[derive(Debug, Error)]
pub enum DeliveryError {
    /// The target is not one.
    #[error("the target is not valid: {0}")]
    Target(#[from] crate::BadTarget),
    /// The target is at an address that must not be reached.
    #[error(
        "{host} is at {address}, which is not a public address: allow private targets in the \
         configuration if it is meant"
    )]
    Forbidden {
        /// The host as it was given.
        host: String,
        /// Where it is.
        address: IpAddr,
    },
    /// The target sent us on to where we do not go.
    #[error("the redirect was not followed: {0}")]
    Redirect(&'static str),
    /// It took too long.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// There is no way there.
    #[error("cannot reach {host}: {reason}")]
    Unreachable {
        /// Which host.
        host: String,
        /// Why not.
        reason: String,
    },
    /// The target said no.
    #[error("answered with status {status}: {reply}")]
    Rejected {
        /// What it answered: an HTTP status, or a code of SMTP.
        status: u16,
        /// The beginning of what it said.
        reply: String,
        /// Whether it may say yes another time.
        retry: bool,
        /// When it wants to be asked again.
        after: Option<Duration>,
    },
}

impl DeliveryError {
    /// Whether another try makes sense.
    pub fn retry(&self) -> bool {
        match self {
            Self::Target(_) | Self::Forbidden { .. } | Self::Redirect(_) => false,
            Self::Timeout(_) | Self::Unreachable { .. } => true,
            Self::Rejected { retry, .. } => *retry,
        }
    }

    /// How long the target asks to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rejected { after, .. } => *after,
            _ => None,
        }
    }
}
