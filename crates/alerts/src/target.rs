//! Where messages go.

use std::fmt;

use lettre::message::Mailbox;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use url::Url;

/// A text that is not shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Takes a secret in.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// A secret for signing, made of random bytes, in the form that receivers expect.
    pub fn signing(random: &[u8; 32]) -> Secret {
        use base64::Engine as _;
        let text = base64::engine::general_purpose::STANDARD.encode(random);
        Secret(format!("whsec_{text}"))
    }

    /// Lets it out: for the wire, and once for the person who made it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// A target. Its serialised form holds its secrets, its debug form and its summary do not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Target {
    /// A signed POST.
    Webhook {
        /// Where to.
        url: Secret,
        /// What it is signed with; not signed without.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret: Option<Secret>,
    },
    /// A POST as Slack, Mattermost and others understand it.
    Slack {
        /// Where to; it is a secret by itself.
        url: Secret,
    },
    /// A mail.
    Email {
        /// `smtps://user:password@host:port`, `smtp+starttls://…`, or `smtp://…` for the own
        /// machine.
        smtp: Secret,
        /// From whom.
        from: String,
        /// To whom: one address or several with commas between.
        to: String,
    },
}

/// What is wrong with a target.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BadTarget {
    /// Not a URL.
    #[error("not a URL: write it in full, such as https://example.org/hook")]
    Url,
    /// A URL of another kind.
    #[error("a URL that starts with {0}:// does not work here: use {1}")]
    Scheme(String, &'static str),
    /// No host.
    #[error("the URL has no host")]
    Host,
    /// A password in a webhook's URL.
    #[error("the URL holds a user's name or password: sign with a secret instead")]
    Credentials,
    /// Not a mailbox.
    #[error("'{0}' is not a mail address: write it as name@example.org")]
    Mailbox(String),
}

impl Target {
    /// What it is, in a word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Webhook { .. } => "webhook",
            Self::Slack { .. } => "slack",
            Self::Email { .. } => "email",
        }
    }

    /// Where it goes, without secrets: for lists and logs.
    ///
    /// ```
    /// use deadstop_alerts::{Secret, Target};
    /// let target = Target::Slack { url: Secret::new("https://hooks.slack.com/services/T/B/x") };
    /// assert_eq!(target.summary(), "slack: https://hooks.slack.com/…");
    /// ```
    pub fn summary(&self) -> String {
        match self {
            Self::Webhook { url, .. } | Self::Slack { url } => {
                format!("{}: {}", self.name(), origin(url))
            }
            Self::Email { smtp, to, .. } => format!("email: {to} over {}", origin(smtp)),
        }
    }

    /// Checks everything that can be checked without the network.
    pub fn validate(&self) -> Result<(), BadTarget> {
        match self {
            Self::Webhook { url, .. } | Self::Slack { url } => web_url(url.reveal()).map(drop),
            Self::Email { smtp, from, to } => {
                smtp_url(smtp.reveal())?;
                mailbox(from)?;
                mailboxes(to).map(drop)
            }
        }
    }
}

fn origin(url: &Secret) -> String {
    match Url::parse(url.reveal()) {
        Ok(url) => match (url.host_str(), url.port()) {
            (Some(host), Some(port)) => format!("{}://{host}:{port}/…", url.scheme()),
            (Some(host), None) => format!("{}://{host}/…", url.scheme()),
            (None, _) => "(no host)".to_owned(),
        },
        Err(_) => "(not a URL)".to_owned(),
    }
}

/// The URL of a webhook.
pub(crate) fn web_url(text: &str) -> Result<Url, BadTarget> {
    let url = Url::parse(text).map_err(|_| BadTarget::Url)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(BadTarget::Scheme(url.scheme().to_owned(), "https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(BadTarget::Credentials);
    }
    url.host().ok_or(BadTarget::Host)?;
    Ok(url)
}

/// The URL of a mail server.
pub(crate) fn smtp_url(text: &str) -> Result<Url, BadTarget> {
    let url = Url::parse(text).map_err(|_| BadTarget::Url)?;
    if !matches!(url.scheme(), "smtp" | "smtps" | "smtp+starttls") {
        let scheme = url.scheme().to_owned();
        return Err(BadTarget::Scheme(scheme, "smtps://, smtp+starttls:// or smtp://"));
    }
    match url.host_str() {
        None | Some("") => Err(BadTarget::Host),
        Some(_) => Ok(url),
    }
}

pub(crate) fn mailbox(text: &str) -> Result<Mailbox, BadTarget> {
    let bad = || BadTarget::Mailbox(crate::message::one_line(text));
    if text.chars().any(char::is_control) {
        return Err(bad());
    }
    text.trim().parse().map_err(|_| bad())
}

pub(crate) fn mailboxes(text: &str) -> Result<Vec<Mailbox>, BadTarget> {
    text.split(',').map(mailbox).collect()
}
