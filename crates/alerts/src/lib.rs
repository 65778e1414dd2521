//! Alerts: one message, delivered to one target.
//!
//! A target is a webhook, a Slack-compatible webhook or a mailbox. The caller keeps the queue of
//! messages, records which were delivered and schedules retries: this crate knows no database. Its
//! errors say whether a retry makes sense, and [`backoff`] says when.
//!
//! It also holds the ways out of Deadstop, which the server's doors use as well: proxies ([`Proxies`]),
//! private certificates and TLS ([`Way`]).
//!
//! Targets are typed in by people, so they are not trusted with our network: see [`address`].

pub mod address;
mod connect;
mod email;
mod error;
mod message;
mod proxy;
mod retry;
mod sender;
mod slack;
mod target;
mod way;
mod webhook;

pub use connect::{Resolver, Resolving, SystemResolver};
pub use error::DeliveryError;
pub use message::{Kind, Message};
pub use proxy::{BadProxy, Proxies, Proxy};
pub use retry::{MOST_ATTEMPTS, backoff};
pub use sender::{Receipt, Sender, Settings};
pub use target::{BadTarget, Secret, Target};
pub use way::{Duplex, Goal, NoWay, Stream, Way};
pub use webhook::sign;
