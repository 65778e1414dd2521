//! Delivers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deadstop_client::{BadTrust, Trust};

use crate::connect::{Connector, Resolver, SystemResolver};
use crate::proxy::Proxies;
use crate::way::Way;
use crate::webhook::Post;
use crate::{DeliveryError, Message, Target, email};

/// How messages are delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether targets may be at addresses that are not public.
    pub allow_private: bool,
    /// Addresses that are allowed although they are not public.
    pub allowed: Vec<IpAddr>,
    /// The proxies that lead out. Mail does not go through one.
    pub proxies: Proxies,
    /// The certificates that are trusted: targets inside may have private ones.
    pub trust: Trust,
    /// How long one delivery may take, from looking up the name to the end of the answer.
    pub timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            allow_private: false,
            allowed: Vec::new(),
            proxies: Proxies::default(),
            trust: Trust::default(),
            timeout: Duration::from_secs(15),
        }
    }
}

/// What the target said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Its HTTP status, or code of SMTP.
    pub status: u16,
    /// Redirects on the way.
    pub redirects: u8,
    /// The beginning of its answer.
    pub reply: String,
}

/// Delivers messages to targets. Cheap to clone; keeps no connections.
#[derive(Clone, Debug)]
pub struct Sender {
    connector: Connector,
    timeout: Duration,
}

impl Sender {
    /// One that asks the operating system for addresses.
    ///
    /// # Errors
    /// When TLS cannot be set up, or a root is no certificate.
    pub fn new(settings: &Settings) -> Result<Sender, BadTrust> {
        Self::with_resolver(settings, Arc::new(SystemResolver))
    }

    /// A sender with its own resolver.
    ///
    /// # Errors
    /// When TLS cannot be set up, or a root is no certificate.
    pub fn with_resolver(
        settings: &Settings,
        resolver: Arc<dyn Resolver>,
    ) -> Result<Sender, BadTrust> {
        let connector = Connector {
            resolver,
            allow_private: settings.allow_private,
            allowed: settings.allowed.clone(),
            way: Way::new(settings.proxies.clone(), settings.trust.clone())?,
        };
        Ok(Sender { connector, timeout: settings.timeout })
    }

    /// Tries once to deliver a message. The error says whether to try again.
    ///
    /// # Errors
    /// When it was not delivered, or when that is unknown.
    pub async fn deliver(
        &self,
        target: &Target,
        message: &Message,
    ) -> Result<Receipt, DeliveryError> {
        match tokio::time::timeout(self.timeout, self.attempt(target, message)).await {
            Ok(result) => result,
            Err(_) => Err(DeliveryError::Timeout(self.timeout)),
        }
    }

    async fn attempt(&self, target: &Target, message: &Message) -> Result<Receipt, DeliveryError> {
        match target {
            Target::Webhook { url, secret } => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let post = Post::signed(message, secret.as_ref(), now.as_secs());
                post.send(&self.connector, url.reveal()).await
            }
            Target::Slack { url } => Post::slack(message).send(&self.connector, url.reveal()).await,
            Target::Email { smtp, from, to } => {
                email::send(&self.connector, smtp, from, to, message).await
            }
        }
    }
}
